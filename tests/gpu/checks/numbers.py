"""Hard numbers: constants, extreme ranges and means, sinks, rising maxima, LSE, tilings; and real tensors."""

import json
import struct
from pathlib import Path

import torch

from gpu.common import (
    BOUND,
    EXPECTED_LSE,
    TO_EMULATION,
    Attention,
    dtype_of,
    exact_rows,
    host,
    largest,
    rel_l2,
    same_bits,
)
from gpu.problems import SINKS, SINKS_BESIDE_MEANS, V_MEANS, heavy_keys, mean_errors, mean_problem, sink_problem

RECIPES = ("bf16", "f16", "fp8")


def against_both(c, recipe, q, k, v, causal=0, slack=0.0):
    """None where a dense problem is finite and no farther from fp64 than 1.05 times its emulation."""
    a = Attention(c, recipe, q, k, v, causal=causal)
    a.run()
    out, lse = (x.to(c.where) for x in host(c, "emulate", recipe, q, k, v, causal=causal, like=a))
    worst = []
    for b in range(q.shape[0]):
        exact, exact_lse = exact_rows(
            q[b], k[b], v[b], torch.arange(q.shape[1], device=c.where), q.shape[-1] ** -0.5, causal
        )
        size = exact.norm().item()
        mine, theirs = (a.out[b] - exact).norm().item(), (out[b] - exact).norm().item()
        seen = ~torch.isinf(exact_lse)
        mine_lse, theirs_lse = ((x[b].double() - exact_lse)[seen].abs().max().item() for x in (a.lse, lse))
        top = exact_lse[seen].abs().max().item()
        finite = bool(torch.isfinite(a.out[b]).all())
        # Where the emulation is exact, sums in fp32 are left; `slack` is for scores so large that fp32 no
        # longer holds them.
        good = (
            finite
            and mine <= 1.05 * theirs + (1e-5 + slack) * size
            and mine_lse <= 1.05 * theirs_lse + 1e-4 + 2e-6 * top
        )
        if not good:
            worst.append(
                f"error {mine:.3g} against {theirs:.3g} of {size:.3g}, lse {mine_lse:.2g} against"
                f" {theirs_lse:.2g}, finite {finite}"
            )
    return worst[0] if worst else None


def constants(c):
    """K or V constant, a channel or a block of zeros."""
    wrong, cases = [], 0
    sq, sk, dim = c.size((130, 300, 128), (20, 130, 64))
    for recipe in RECIPES:
        dtype = dtype_of(recipe)
        x = dict(
            zip("qkv", (c.normal(1, n, 2, dim, seed=i, dtype=dtype) for i, n in enumerate((sq, sk, sk))))
        )
        changed = {}
        for name in "kv":
            for value in (0, 1e-8, 1e-3, 1, 448, 6e4):
                changed[f"{name} = {value}"] = dict(x, **{name: torch.full_like(x[name], value)})
        for name in "qkv":
            for label, index in (
                ("channel", (..., 3)),
                ("block", (slice(None), slice(64, 128))),
                ("head", (slice(None), slice(None), 1)),
                ("all but one", (slice(None), slice(1, None))),
            ):
                t = x[name].clone()
                t[index] = 0
                changed[f"zero {label} of {name}"] = dict(x, **{name: t})
        for name, given in changed.items():
            # A constant K of 6e4 makes scores of 1e6, which fp32 keeps to 2^-4.
            problem = against_both(c, recipe, **given, slack=0.05 if name == "k = 60000.0" else 0)
            cases += 1
            if problem:
                wrong.append(f"{recipe} {name}: {problem}")
    c.report(
        "constants", not wrong, f"{cases} problems, worse than 1.05 x the emulation: {wrong or 'none'}"
    )


def ranges(c):
    """V up to 1e5, K channels 300 times the others, means of Q and K up to 100 deviations."""
    wrong, cases = [], 0
    sq, sk, dim = c.size((130, 500, 128), (20, 130, 64))
    for recipe in RECIPES:
        dtype = dtype_of(recipe)
        q, k, v = (c.normal(1, n, 2, dim, seed=i, dtype=torch.float32) for i, n in enumerate((sq, sk, sk)))
        loud = k.clone()
        loud[..., ::16] *= 300
        given = {
            "V 1e5" if recipe != "f16" else "V 6e4": (
                q,
                k,
                (v * 2e4).clamp(-1e5, 1e5) if recipe != "f16" else (v * 1e4).clamp(-6e4, 6e4),
            ),
            "V 1e-3": (q, k, v * 1e-3),
            "K channels x 300": (q, loud, v),
        }
        for mq, mk in ((0, 0), (1, 1), (10, 10), (100, 100), (10, 0), (0, 10), (100, 0), (0, 100)):
            given[f"means {mq}, {mk}"] = (q + mq, k + mk, v)
        for name, x in given.items():
            x = [t.to(dtype) for t in x]
            top = dim**-0.5 * (x[0].double().norm(dim=3).max() * x[1].double().norm(dim=3).max()).item()
            problem = against_both(
                c, recipe, *x, slack=top * 2**-20
            )  # 8 units in the last place of the largest score
            cases += 1
            if problem:
                wrong.append(f"{recipe} {name}: {problem}")
    c.report("ranges", not wrong, f"{cases} problems, worse than 1.05 x the emulation: {wrong or 'none'}")


def rising_maximum(c):
    """The running maximum rises from tile to tile, jumps in the last one, or the first tile is masked."""
    wrong, cases, worst = [], 0, {}
    tiles = c.size(40, 3)
    for recipe in RECIPES:
        dtype = dtype_of(recipe)
        keys = 64 * tiles + 5
        q, k, v = (
            c.normal(1, n, 2, 128, seed=i, dtype=torch.float32) * s
            for i, (n, s) in enumerate(((64, 0.5), (keys, 0.5), (keys, 1.0)))
        )
        q[..., 0] = 8
        unit = 128**0.5 / 8 / 1.4426950408889634  # of channel 0 of K: one log2 unit of the score
        tile = torch.arange(keys, device=c.where) // 64
        steps = {
            f"rise {r}": (tiles - tile) * r for r in (0.5, 1, 2, 4, 8, 12)
        }  # tiles are walked from the last to the first
        steps |= {f"fall {r}": tile * r for r in (0.5, 12)}
        steps["jump in the last tile"] = (tile == 0) * 120.0
        steps["jump in the first tile"] = (tile == tiles) * 120.0
        for name, step in steps.items():
            k[0, :, :, 0] = step.float()[:, None] * unit
            for causal in (0, 1):
                x = [t.to(dtype) for t in (q, k, v)]
                a = Attention(c, recipe, *x, causal=causal)
                a.run()
                out, lse = host(c, "emulate", recipe, *x, causal=causal, like=a)
                error, lse_error = rel_l2(a.out.cpu(), out), largest((a.lse.cpu() - lse).abs())
                cases += 1
                worst[recipe] = max(worst.get(recipe, 0), error)
                # t is as large as 480, so that its last fp32 bit moves P by 2^-15 of itself: more codes flip.
                if not (error < 2.5 * TO_EMULATION[recipe] and lse_error < 1e-3):
                    wrong.append(f"{recipe} {name} causal={causal}: {error:.1e}, lse {lse_error:.1e}")
        # The first tile that a block of 128 rows meets holds no key of its first rows.
        x = [c.normal(1, 300, 2, 128, seed=i, dtype=dtype) for i in range(3)]
        problem = against_both(c, recipe, *x, causal=1)
        if problem:
            wrong.append(f"{recipe} masked first tile: {problem}")
    c.report(
        "rising maximum",
        not wrong,
        f"{cases} problems against the emulation, largest rel-L2"
        f" {', '.join(f'{r} {e:.1e}' for r, e in worst.items())}; wrong: {wrong or 'none'}",
    )


def lse_everywhere(c):
    """LSE against fp64 with a K mean of 10, in every layout."""
    sq, sk = c.size((300, 2000), (20, 150))
    for recipe in RECIPES:
        dtype = dtype_of(recipe)
        worst = {}

        def check(name, got, q, k, v, causal=0):
            _, lse = exact_rows(
                q, k, v, torch.arange(q.shape[0], device=c.where), q.shape[-1] ** -0.5, causal
            )
            # The published error is for heads of 128; with fewer channels fewer rounding errors average out.
            error = largest((got.double() - lse).abs()) * min(1, q.shape[-1] / 128) ** 0.5
            worst[name] = max(worst.get(name, 0), error)

        for dim in (64, 128, 80):
            q, k, v = (
                c.normal(2, n, h, dim, seed=i, dtype=dtype)
                for i, (n, h) in enumerate(((sq, 4), (sk, 2), (sk, 2)))
            )
            k = (k.float() + 10).to(dtype)
            for causal in (0, 1):
                a = Attention(c, recipe, q, k, v, causal=causal)
                a.run()
                for b in range(2):
                    check("dense", a.lse[b], q[b], k[b], v[b], causal)
            lens = [sk - 100, sk]
            a = Attention(c, recipe, q, k, v, kv_lens=c.ints(lens))
            a.run()
            for b, n in enumerate(lens):
                check("kv_lens", a.lse[b], q[b], k[b, :n], v[b, :n])
            flat = [t.flatten(0, 1) for t in (q, k, v)]
            cu = dict(cu_seqlens_q=c.ints([0, sq, 2 * sq]), cu_seqlens_k=c.ints([0, sk, 2 * sk]))
            memory = torch.full((4, 3 * 2 * sq), float("nan"), device=c.where)
            a = Attention(c, recipe, *flat, lse=memory[:, ::3], **cu)
            a.run()
            for b in range(2):
                check("packed, strided", a.lse[:, b * sq : b * sq + sq], q[b], k[b], v[b])
        limit = EXPECTED_LSE[recipe] * c.size(1, 2)
        c.report(
            f"{recipe} lse",
            max(worst.values()) < limit,
            "largest error, at head size 128: "
            + ", ".join(f"{n} {e:.4f}" for n, e in worst.items())
            + f" (allowed {limit})",
        )


def sinks(c):
    """One key with most of the weight and V = 0, the rest diffuse: as good as the emulation."""
    table = {}
    for keys in c.size((8192, 32768, 131072), (400,)):
        q, k, v = sink_problem(c, keys)
        for recipe in ("bf16", "fp8"):
            a = Attention(c, recipe, q, k, v)
            a.run()
            out, _ = host(c, "emulate", recipe, q, k, v, like=a)
            exact, _ = exact_rows(q, k, v, torch.arange(32, device=c.where), 128**-0.5)
            wrong, rows = [], []
            for h, (weight, position) in enumerate(SINKS):
                mine, theirs = rel_l2(a.out[:, h], exact[:, h]), rel_l2(out[:, h].to(c.where), exact[:, h])
                rows.append((weight, position, mine, theirs))
                good = mine <= 1.05 * theirs + 1e-3 and not (weight == 0.9 and keys >= 32768 and mine > 0.1)
                if not good:
                    wrong.append(f"weight {weight} at {position}: {mine:.4f}, emulation {theirs:.4f}")
            table[f"{recipe} {keys}"] = rows
            line = "; ".join(
                f"{w}: " + " ".join(f"{m:.3f}" for ww, _, m, _ in rows if ww == w)
                for w in dict.fromkeys(weight for weight, _ in SINKS)
            )
            c.report(
                f"{recipe} sink, {keys} keys",
                not wrong,
                f"rel-L2 at 0 .3 .5 1 of the row, weight {line}; wrong: {wrong or 'none'}",
            )
        del q, k, v, a
        c.free()
    c.tables["sinks: weight, position, rel-L2, of the emulation"] = table


def sinks_beside_means(c):
    """The same with a small V beside means of V: far tokens keep their V."""
    keys = c.size(8192, 400)
    q, k, v = heavy_keys(c, keys, SINKS_BESIDE_MEANS)
    a = Attention(c, "fp8", q, k, v)
    a.run()
    exact, _ = exact_rows(q, k, v, torch.arange(32, device=c.where), 128**-0.5)
    errors = [rel_l2(a.out[:, h], exact[:, h]) for h in range(len(SINKS_BESIDE_MEANS))]
    c.report(
        f"fp8 sinks beside means of V, {keys} keys",
        max(errors) <= 0.06,
        f"rel-L2 at most {max(errors):.4f}, at most .06 (weight .9 at 0, .6, 1 of the row, means .3, 1, 3)",
    )
    c.tables["sinks beside means: weight, position, mean, share of V, rel-L2"] = [
        (*head, error) for head, error in zip(SINKS_BESIDE_MEANS, errors)
    ]


def means_of_v(c):
    """V with a mean of c; the mean of the output must be that of fp64."""
    table = {}
    for keys in c.size((2048, 8192, 32768, 131072), (600,)):
        q, k, v = mean_problem(c, keys)
        exact, _ = exact_rows(q, k, v, torch.arange(32, device=c.where), 128**-0.5)
        for recipe in ("bf16", "fp8"):
            a = Attention(c, recipe, q, k, v)
            row = mean_errors(a.run(), exact)
            good = all(abs(error) <= (2e-3 if mean else 2e-2) for mean, error in zip(V_MEANS, row))
            table[f"{recipe} {keys}"] = row
            c.report(
                f"{recipe} mean of V, {keys} keys",
                good,
                "mean(out)/mean(exact) - 1 for c = 0 .5 1 2: " + " ".join(f"{x:+.1e}" for x in row),
            )
    c.tables["means of V: c = 0, .5, 1, 2"] = table


def tilings(c):
    """Other tiles, splits, shards and places of a row give the same result on data without sinks."""
    keys = c.size(9000, 300)
    for recipe in ("bf16", "fp8"):
        q, k, v = (c.normal(n, 2, 128, seed=i) for i, n in enumerate((64, keys, keys)))
        q = q * 2  # logit std 2
        a = Attention(c, recipe, q, k, v)
        a.run()
        distance = {}
        for name, options in {
            **{f"tile {t}": {"key_tile": t} for t in (64, 96, 128, 192, 256)},
            "splits 2": {"splits": 2},
            "splits 4": {"splits": 4},
        }.items():
            out, _ = host(c, "emulate", recipe, q, k, v, **options, like=a)
            distance[name] = rel_l2(a.out.cpu(), out)
        # Shards cut at interval borders, joined by LSE. Their means and scales are their own, so that fp8
        # differs by its error.
        parts = []
        for begin in range(0, keys, 2304):
            b = Attention(c, recipe, q, k[begin : begin + 2304], v[begin : begin + 2304])
            parts.append((b.run().clone(), b.lse.clone()))
        lse = torch.stack([p[1] for p in parts]).double()
        total = torch.logsumexp(lse, 0)
        joined = sum(p[0].double() * torch.exp(x - total).T[:, :, None] for p, x in zip(parts, lse))
        exact, exact_lse = exact_rows(q, k, v, torch.arange(64, device=c.where), 128**-0.5)
        whole, shards = rel_l2(a.out, exact), rel_l2(joined, exact)
        shard_lse, whole_lse = ((x - exact_lse).abs().max().item() for x in (total, a.lse))
        # A row has the same bits wherever it stands in its block of rows, and however many stand beside it.
        places = True
        for begin, end in ((0, 1), (3, 20), (17, 64), (63, 64)):
            b = Attention(c, recipe, q[begin:end], k, v)
            places &= same_bits(b.run(), a.out[begin:end]) and same_bits(b.lse, a.lse[:, begin:end])
        good = (
            max(distance.values()) < TO_EMULATION[recipe]
            and shards <= 1.05 * whole + 1e-4
            and shard_lse < max(EXPECTED_LSE[recipe], 1.5 * whole_lse)
            and places
        )
        c.report(
            f"{recipe} tilings",
            good,
            "rel-L2 to the emulation at "
            + ", ".join(f"{n} {d:.1e}" for n, d in distance.items())
            + f"; to fp64 {whole:.4f}, joined shards {shards:.4f} (lse {whole_lse:.4f}, {shard_lse:.4f});"
            f" rows elsewhere bit-equal {places}",
        )


def read_safetensors(path):
    data = Path(path).read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header, body = json.loads(data[8 : 8 + size]), data[8 + size :]
    dtypes = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32, "I32": torch.int32}
    tensors = {}
    for name, x in header.items():
        if name != "__metadata__":
            begin, end = x["data_offsets"]
            tensors[name] = torch.frombuffer(bytearray(body[begin:end]), dtype=dtypes[x["dtype"]]).reshape(
                x["shape"]
            )
    return tensors, header.get("__metadata__", {})


def real_tensors(c):
    """The captured network: the GPU kernel's error of each layer is the CPU backend's."""
    path = Path(__file__).resolve().parents[2] / "data/antibody_bert_packed.safetensors"
    tensors, metadata = read_safetensors(path)
    bounds = tensors["cu_seqlens"].tolist()[: c.size(None, 3)]
    scale = float(metadata["softmax_scale"])
    layers = sorted({name.rsplit(".", 1)[0] for name in tensors if name.endswith(".q")})
    for recipe in ("bf16", "fp8"):
        good, texts = True, []
        for layer in layers:
            q, k, v = (tensors[f"{layer}.{x}"][: bounds[-1]].to(c.where) for x in "qkv")
            cu = c.ints(bounds)
            a = Attention(c, recipe, q, k, v, cu_seqlens_q=cu, softmax_scale=scale)
            a.run()
            out, _ = host(c, "cpu", recipe, q, k, v, cu_seqlens_q=cu, softmax_scale=scale)
            exact = torch.cat(
                [
                    exact_rows(q[i:j], k[i:j], v[i:j], torch.arange(j - i, device=c.where), scale)[0]
                    for i, j in zip(bounds, bounds[1:])
                ]
            )
            mine, theirs = rel_l2(a.out, exact), rel_l2(out.to(c.where), exact)
            good &= abs(mine / theirs - 1) < 0.02 and mine < 2 * BOUND[recipe]
            texts.append(f"{layer} {mine:.5f} / {theirs:.5f}")
        c.report(f"real {recipe}", good, "rel-L2 of the GPU / of device cpu: " + ", ".join(texts))
