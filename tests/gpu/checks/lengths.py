"""Lengths, and what lies beyond them."""

import time

import torch

from gpu.common import Attention, Exact, bits_of, dtype_of, largest, same_bits, unpack

RECIPES = ("bf16", "f16", "fp8")


def all_sizes(c, poison):
    """Every pair of lengths up to 300, a query length a call, after a kernel that leaves NaN behind."""
    top = c.size(300, 9)
    step = 1 if not c.quick or c.rehearse else 7
    k_bounds = [n * (n + 1) // 2 for n in range(top + 1)]  # 0, 1, 3, 6, ...: lengths 1, 2, 3, ...
    cu_k = c.ints(k_bounds)
    k_lens = torch.arange(1, top + 1, device=c.where)
    for recipe in RECIPES:
        for dim, causal in ((128, 0), (64, 1))[: 2 if recipe != "f16" else 1]:
            dtype = dtype_of(recipe)
            k, v = (c.normal(k_bounds[-1], 1, dim, seed=i, dtype=dtype) for i in (1, 2))
            k, v = k + 0.5, v + 1  # means that centring must get right in every length
            padded_k, padded_v = (unpack(x, k_bounds, top) for x in (k, v))
            all_q = c.normal(top * top, 1, dim, seed=3, dtype=dtype)
            worst = worst_lse = 0.0
            cases, where = 0, None
            for n in range(1, top + 1, step):
                q = all_q[: top * n]
                a = Attention(
                    c,
                    recipe,
                    q,
                    k,
                    v,
                    cu_seqlens_q=c.ints([n * i for i in range(top + 1)]),
                    cu_seqlens_k=cu_k,
                    causal=causal,
                )
                poison()  # after what torch fills, right before the call
                a.run()
                exact = Exact(q.view(top, n, 1, dim), padded_k, padded_v, dim**-0.5, causal, k_lens=k_lens)
                out, lse = exact.judge(
                    recipe, a.out.view(top, n, 1, dim), a.lse.view(1, top, n).transpose(0, 1)
                )
                cases += top
                if max(out, lse) > max(worst, worst_lse):
                    where = n
                worst, worst_lse = max(worst, out), max(worst_lse, lse)
            c.report(
                f"{recipe} D={dim} causal={causal}",
                worst <= 1 and worst_lse <= 1,
                f"{cases} pairs of lengths, largest part of the allowed error: out {worst:.2f}, lse"
                f" {worst_lse:.2f} (Nq = {where})",
            )


def garbage_in_padding(c):
    """NaN and 1e30 beyond the valid rows and keys change no bit."""
    wrong, cases = [], 0
    for recipe in RECIPES:
        dtype = dtype_of(recipe)
        lists = [[0, 100, 100, 230], [0, 64, 129], [0, 1]]
        for garbage in (float("nan"), 1e30, float("-inf")):
            for bounds in lists:
                tail = 70
                q, k, v = (c.normal(bounds[-1] + tail, 2, 128, seed=i, dtype=dtype) for i in range(3))
                cu = c.ints(bounds)
                results = []
                for filler in (0.0, garbage):
                    for x in (q, k, v):
                        x[bounds[-1] :] = filler
                    a = Attention(c, recipe, q, k, v, cu_seqlens_q=cu)
                    results.append(bits_of(a))
                cases += 1
                if (
                    not all(same_bits(x, y) for x, y in zip(*results))
                    or torch.isnan(results[0][0][: bounds[-1]]).any()
                ):
                    wrong.append(f"{recipe} packed {garbage}")
            for packed in (False, True):
                lens = [0, 1, 63, 64, 65, 130]
                q, k, v = (c.normal(len(lens), 130, 2, 128, seed=i, dtype=dtype) for i in range(3))
                results = []
                for filler in (0.0, garbage):
                    for i, n in enumerate(lens):
                        k[i, n:] = filler
                        v[i, n:] = filler
                    given = (x.flatten(0, 1) if packed else x for x in (q, k, v))
                    options = (
                        {"cu_seqlens_q": c.ints([130 * i for i in range(len(lens) + 1)])} if packed else {}
                    )
                    results.append(bits_of(Attention(c, recipe, *given, kv_lens=c.ints(lens), **options)))
                cases += 1
                if not all(same_bits(x, y) for x, y in zip(*results)) or torch.isnan(results[0][0]).any():
                    wrong.append(f"{recipe} kv_lens packed={packed} {garbage}")
    c.report("garbage in padding", not wrong, f"{cases} problems, bits changed: {wrong or 'none'}")


def finishes(c, a, seconds=20):
    """Runs, and waits no longer than that."""
    a.run()
    if c.where != "cuda":
        return True
    done = torch.cuda.Event()
    done.record()
    end = time.time() + seconds
    while not done.query():
        if time.time() > end:
            return False
        time.sleep(0.001)
    return True


def empty(c):
    """No keys, no queries, segments and items without either; each must end, and write every row."""
    wrong = []
    for recipe in RECIPES:
        dtype = dtype_of(recipe)

        def make(*shape, dtype=dtype):
            return c.normal(*shape, dtype=dtype)

        cases = {
            "no keys": Attention(c, recipe, make(2, 70, 2, 128), make(2, 0, 2, 128), make(2, 0, 2, 128)),
            "no queries": Attention(c, recipe, make(2, 0, 2, 128), make(2, 70, 2, 128), make(2, 70, 2, 128)),
            "no tokens": Attention(
                c, recipe, make(0, 2, 128), make(0, 2, 128), make(0, 2, 128), cu_seqlens_q=c.ints([0, 0, 0])
            ),
            "no items": Attention(c, recipe, make(0, 5, 2, 128), make(0, 5, 2, 128), make(0, 5, 2, 128)),
            "kv_lens 0": Attention(
                c, recipe, make(2, 70, 2, 128), make(2, 9, 2, 128), make(2, 9, 2, 128), kv_lens=c.ints([0, 0])
            ),
            "causal, fewer keys": Attention(
                c, recipe, make(1, 200, 2, 64), make(1, 3, 2, 64), make(1, 3, 2, 64), causal=1
            ),
            "keys of one segment only": Attention(
                c,
                recipe,
                make(200, 2, 128),
                make(9, 2, 128),
                make(9, 2, 128),
                cu_seqlens_q=c.ints([0, 100, 150, 200]),
                cu_seqlens_k=c.ints([0, 0, 9, 9]),
            ),
        }
        for name, a in cases.items():
            if not finishes(c, a):
                c.report(
                    "empty",
                    False,
                    f"{recipe}, {name}: still running after 20 s; nothing more can be checked",
                )
                raise SystemExit(1)
            filled = not torch.isnan(a.out).any() and not torch.isnan(a.lse).any()
            blank = torch.isneginf(a.lse)
            heads_last = blank.transpose(-1, -2)
            zero = largest(a.out[heads_last].abs()) == 0.0
            expected_blank = {
                "no keys": blank.all(),
                "kv_lens 0": blank.all(),
                "causal, fewer keys": blank[..., :197].all() and not blank[..., 197:].any(),
                "keys of one segment only": (
                    blank[:, :100].all() and not blank[:, 100:150].any() and blank[:, 150:].all()
                ),
            }.get(name, True)
            if not (filled and zero and expected_blank and a.guards_intact()):
                wrong.append(f"{recipe} {name}")
    c.report("empty", not wrong, f"wrong: {wrong or 'none'}")


def packed_lengths(c):
    """Zero lengths, capacity above the total, and bad lengths that only the device can see."""
    wrong, cases = [], 0
    top = 2**31 - 1
    for recipe in RECIPES:
        dtype = dtype_of(recipe)
        q, k, v = (c.normal(300, 2, 128, seed=i, dtype=dtype) for i in range(3))
        alone = {}

        def segment(i, j, m, n):
            if (i, j, m, n) not in alone:
                alone[i, j, m, n] = bits_of(Attention(c, recipe, q[i:j], k[m:n], v[m:n]))
            return alone[i, j, m, n]

        # q bounds, k bounds, valid leading segments, bits of the status word
        lists = [
            ([0, 0, 0, 5, 5, 300], None, 5, 0),
            ([0] * 50 + [3], None, 50, 0),
            ([0, 1, 2, 3], [0, 100, 100, 250], 3, 0),
            ([0, 100, 300], [0, 0, 1], 2, 0),
            ([0, 100, 90, 200], None, 1, 1),
            ([0, 100, 301], None, 1, 1),
            ([0, 100, top], None, 1, 1),
            ([1, 100, 200], None, 0, 1),
            ([-5, 100, 200], None, 0, 1),
            ([0, -1, 200], None, 0, 1),
            ([0, 100, 200], [0, 150, 149], 1, 1),
            ([0, 100, 200], [0, 150, 301], 1, 1),
            ([0, 100, 200], [0, top, top], 0, 1),
            ([0, 50, 100, -top - 1, 200], None, 2, 1),
        ]
        for bounds, k_bounds, valid, word in lists:
            for zero_tail in (0, 1):
                status = c.ints([77])
                options = {} if k_bounds is None else {"cu_seqlens_k": c.ints(k_bounds)}
                a = Attention(
                    c,
                    recipe,
                    q,
                    k,
                    v,
                    cu_seqlens_q=c.ints(bounds),
                    status_word=status,
                    zero_tail=zero_tail,
                    **options,
                )
                if not finishes(c, a):
                    c.report("packed lengths", False, f"{recipe} {bounds}: still running after 20 s")
                    raise SystemExit(1)
                cases += 1
                ks = k_bounds or bounds
                good = status.item() == word and a.guards_intact()
                touched = torch.zeros(300, dtype=torch.bool, device=c.where)
                for s in range(valid):
                    i, j, m, n = bounds[s], bounds[s + 1], ks[s], ks[s + 1]
                    if i < j:
                        out, lse = segment(i, j, m, n)
                        good &= same_bits(a.out[i:j], out) and same_bits(a.lse[:, i:j], lse)
                        touched[i:j] = True
                tail = bounds[-1] if word == 0 else 300  # bad lengths: no row is known to be past them
                rest = a.out[tail:]
                if zero_tail:
                    good &= largest(rest.abs()) == 0.0 and bool(torch.isneginf(a.lse[:, tail:]).all())
                    touched[tail:] = True
                good &= bool(torch.isnan(a.out[~touched]).all()) and bool(
                    torch.isnan(a.lse[:, ~touched]).all()
                )
                if not good:
                    wrong.append(f"{recipe} {bounds} {k_bounds} zero_tail={zero_tail} status={status.item()}")
        for lens, word in (([100, 50], 0), ([101, 50], 2), ([-1, 50], 2), ([100, top], 2)):
            status = c.ints([77])
            a = Attention(
                c,
                recipe,
                q[:200],
                k[:200],
                v[:200],
                cu_seqlens_q=c.ints([0, 100, 200]),
                kv_lens=c.ints(lens),
                status_word=status,
            )
            good = finishes(c, a) and status.item() == word
            cases += 1
            for s, n in enumerate(lens):
                part, lse = a.out[100 * s : 100 * s + 100], a.lse[:, 100 * s : 100 * s + 100]
                if 0 <= n <= 100:
                    want = segment(100 * s, 100 * s + 100, 100 * s, 100 * s + n)
                    good &= same_bits(part, want[0]) and same_bits(lse, want[1])
                else:
                    good &= bool(torch.isnan(part).all()) and bool(torch.isnan(lse).all())
            if not good:
                wrong.append(f"{recipe} kv_lens {lens} status={status.item()}")
    c.report("packed lengths", not wrong, f"{cases} lists, wrong: {wrong or 'none'}")
