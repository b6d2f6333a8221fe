"""Sizes, strides, lengths and what lies beside a tensor: tests 1, 2, 3, 5, 13, 14, 20, 25 of the list of known faults."""

import time

import torch

from .common import (BOUND, Attention, Exact, dtype_of, exact_rows, largest, nan_like, rel_l2, same_bits, strided, unpack)

RECIPES = ("bf16", "f16", "fp8")


def bits_of(a):
    return a.run().clone(), a.lse.clone()


def huge_strides(c):
    """1: one of q, k, v, out and lse at a time with a token stride of 2^20, or batch and head strides beyond 2^31."""
    stride = c.size(1 << 20, 1 << 12)
    wrong, cases, beside = [], 0, True
    longest = c.size(4100, 130)
    memory = torch.empty(longest * stride * 4, dtype=torch.uint8, device=c.where)

    def place(x, strides):
        view = memory.view(x.dtype).as_strided(x.shape, strides)
        view.copy_(x)
        return view

    def untouched(view):
        """All bytes but the view's are still 0x5A; the view itself is set to that first."""
        view.copy_(torch.full((view.element_size(),), 0x5A, dtype=torch.uint8, device=c.where).view(view.dtype).expand(view.shape))
        return all(bool((part == 0x5A).all()) for part in memory.split(1 << 30))

    for recipe in RECIPES:
        for tokens in (c.size(2050, 70), longest):
            x = dict(zip("qkv", (c.normal(tokens, 1, 64, seed=i, dtype=dtype_of(recipe)) for i in range(3))))
            out, lse = bits_of(Attention(c, recipe, **x))
            for name in ("q", "k", "v", "out", "lse"):
                given = dict(x)
                if name == "lse":
                    memory.fill_(0x5A)
                    given["lse"] = memory.view(torch.float32).as_strided((1, tokens), (1, stride))
                elif name == "out":
                    memory.fill_(0x5A)
                    given["out"] = memory.view(torch.float32).as_strided((tokens, 1, 64), (stride, 64, 1))
                else:
                    given[name] = place(x[name], (stride, 64, 1))
                a = Attention(c, recipe, **given)
                a.run()
                cases += 1
                if not (same_bits(a.out, out) and same_bits(a.lse, lse)):
                    wrong.append(f"{recipe} {name} {tokens}")
                if name in ("out", "lse") and tokens == longest and recipe != "f16":
                    beside &= untouched(given[name])
        # Dense, the offset of a batch item or head beyond 2^31 elements.
        x = dict(zip("qkv", (c.normal(3, 150, 2, 128, seed=i, dtype=dtype_of(recipe)) for i in range(3))))
        out, lse = bits_of(Attention(c, recipe, **x, causal=1))
        big = (stride << 11) + 8 if not c.rehearse else 1 << 17
        for name, strides in (("k", (big, 256, 128, 1)), ("q", (128, 384, big // 2, 1)), ("v", (150 * 128, 128, big, 1)), ("out", (big // 3 // 8 * 8, 256, 128, 1))):
            given = dict(x)
            if name == "out":
                given["out"] = memory.view(torch.float32).as_strided((3, 150, 2, 128), strides)
            else:
                given[name] = place(x[name], strides)
            a = Attention(c, recipe, **given, causal=1)
            a.run()
            cases += 1
            if not (same_bits(a.out, out) and same_bits(a.lse, lse)):
                wrong.append(f"{recipe} {name} dense")
    del memory, a, given
    c.free()
    c.report("1 huge strides", not wrong and beside, f"{cases} views, not bit-equal: {wrong or 'none'}; written beside out or lse: {'no' if beside else 'YES'}")


def long_rows(c):
    """2: 32 random query rows and the last 32, all keys, as views of a fused buffer and as contiguous copies."""
    heads = c.size(56, 2)
    for recipe in ("bf16", "fp8"):
        for tokens in c.size((98304, 200064, 262144), (500,)):
            fused = torch.empty(tokens, 3, heads, 128, dtype=torch.bfloat16, device=c.where)
            for i, part in enumerate(fused.split(1 << 15)):  # the generator's f32 numbers would need twice the memory at once
                part.copy_(c.normal(*part.shape, seed=i))
            q, k, v = fused.unbind(1)
            rows = torch.randperm(tokens - 32, generator=torch.Generator().manual_seed(tokens))[:32].sort().values.to(c.where)
            chosen = {"last rows": q[-32:], "random rows": q[rows].contiguous()}
            worst = worst_lse = 0.0
            same = True
            copies = k.contiguous(), v.contiguous()
            for part in chosen.values():
                a, b = Attention(c, recipe, part, k, v), Attention(c, recipe, part.contiguous(), *copies)
                same &= same_bits(a.run(), b.run()) and same_bits(a.lse, b.lse)
                out, lse = exact_rows(part, k, v, torch.arange(32, device=c.where), 128 ** -.5)
                worst, worst_lse = max(worst, rel_l2(a.out, out)), max(worst_lse, (a.lse - lse).abs().max().item())
                last = max(rel_l2(a.out[-1], out[-1]), 0.0)
            full = ""
            if tokens == c.size(98304, 500) and not c.quick:
                # Every query row too, so that its offsets are seen.
                a = Attention(c, recipe, q, k, v, out_dtype=torch.bfloat16)
                a.run()
                check = torch.cat((rows, torch.arange(tokens - 32, tokens, device=c.where)))
                out, _ = exact_rows(q, k, v, check, 128 ** -.5)
                full = f", all rows at once {rel_l2(a.out[check], out):.4f}"
                worst = max(worst, rel_l2(a.out[check], out))
            limit = .03 if recipe == "fp8" else .005
            c.report(f"2 {recipe} {tokens} x {heads}", worst < BOUND[recipe] and worst_lse < limit and same,
                     f"rel-L2 {worst:.4f}, last row {last:.4f}, lse {worst_lse:.4f}, view and copy bit-equal {same}{full}")
            del fused, q, k, v, copies, chosen, a, b
            c.free()


def all_sizes(c, poison):
    """3: every pair of lengths up to 300, all key lengths of one query length in a call, after a kernel that leaves NaN behind."""
    top = c.size(300, 9)
    step = 1 if not c.quick or c.rehearse else 7
    k_bounds = [n * (n + 1) // 2 for n in range(top + 1)]  # 0, 1, 3, 6, ...: lengths 1, 2, 3, ...
    cu_k = c.ints(k_bounds)
    k_lens = torch.arange(1, top + 1, device=c.where)
    for recipe in RECIPES:
        for dim, causal in ((128, 0), (64, 1))[:2 if recipe != "f16" else 1]:
            dtype = dtype_of(recipe)
            k, v = (c.normal(k_bounds[-1], 1, dim, seed=i, dtype=dtype) for i in (1, 2))
            k, v = k + .5, v + 1  # means that centring must get right in every length
            padded_k, padded_v = (unpack(x, k_bounds, top) for x in (k, v))
            all_q = c.normal(top * top, 1, dim, seed=3, dtype=dtype)
            worst = worst_lse = 0.0
            cases, where = 0, None
            for n in range(1, top + 1, step):
                q = all_q[:top * n]
                poison()
                a = Attention(c, recipe, q, k, v, cu_seqlens_q=c.ints([n * i for i in range(top + 1)]), cu_seqlens_k=cu_k, causal=causal)
                a.run()
                exact = Exact(q.view(top, n, 1, dim), padded_k, padded_v, dim ** -.5, causal, k_lens=k_lens)
                out, lse = exact.judge(recipe, a.out.view(top, n, 1, dim), a.lse.view(1, top, n).transpose(0, 1))
                # Keys that a causal row does not see: rows of a query longer than its keys, which are 0.
                cases += top
                if max(out, lse) > max(worst, worst_lse):
                    where = n
                worst, worst_lse = max(worst, out), max(worst_lse, lse)
            c.report(f"3 {recipe} D={dim} causal={causal}", worst <= 1 and worst_lse <= 1,
                     f"{cases} pairs of lengths, largest part of the allowed error: out {worst:.2f}, lse {worst_lse:.2f} (Nq = {where})")


def garbage_in_padding(c):
    """5: NaN and 1e30 beyond the valid rows and keys change no bit."""
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
                        x[bounds[-1]:] = filler
                    a = Attention(c, recipe, q, k, v, cu_seqlens_q=cu)
                    results.append(bits_of(a))
                cases += 1
                if not all(same_bits(x, y) for x, y in zip(*results)) or torch.isnan(results[0][0][:bounds[-1]]).any():
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
                    options = {"cu_seqlens_q": c.ints([130 * i for i in range(len(lens) + 1)])} if packed else {}
                    results.append(bits_of(Attention(c, recipe, *given, kv_lens=c.ints(lens), **options)))
                cases += 1
                if not all(same_bits(x, y) for x, y in zip(*results)) or torch.isnan(results[0][0]).any():
                    wrong.append(f"{recipe} kv_lens packed={packed} {garbage}")
    c.report("5 garbage in padding", not wrong, f"{cases} problems, bits changed: {wrong or 'none'}")


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
        time.sleep(.001)
    return True


def empty(c):
    """13: no keys, no queries, segments and items without either; each must end, and write every row."""
    wrong = []
    for recipe in RECIPES:
        dtype = dtype_of(recipe)

        def make(*shape, dtype=dtype):
            return c.normal(*shape, dtype=dtype)

        cases = {
            "no keys": Attention(c, recipe, make(2, 70, 2, 128), make(2, 0, 2, 128), make(2, 0, 2, 128)),
            "no queries": Attention(c, recipe, make(2, 0, 2, 128), make(2, 70, 2, 128), make(2, 70, 2, 128)),
            "no tokens": Attention(c, recipe, make(0, 2, 128), make(0, 2, 128), make(0, 2, 128), cu_seqlens_q=c.ints([0, 0, 0])),
            "no items": Attention(c, recipe, make(0, 5, 2, 128), make(0, 5, 2, 128), make(0, 5, 2, 128)),
            "kv_lens 0": Attention(c, recipe, make(2, 70, 2, 128), make(2, 9, 2, 128), make(2, 9, 2, 128), kv_lens=c.ints([0, 0])),
            "causal, fewer keys": Attention(c, recipe, make(1, 200, 2, 64), make(1, 3, 2, 64), make(1, 3, 2, 64), causal=1),
            "keys of one segment only": Attention(c, recipe, make(200, 2, 128), make(9, 2, 128), make(9, 2, 128),
                                                  cu_seqlens_q=c.ints([0, 100, 150, 200]), cu_seqlens_k=c.ints([0, 0, 9, 9])),
        }
        for name, a in cases.items():
            if not finishes(c, a):
                c.report("13 empty", False, f"{recipe}, {name}: still running after 20 s; nothing more can be checked")
                raise SystemExit(1)
            filled = not torch.isnan(a.out).any() and not torch.isnan(a.lse).any()
            blank = torch.isneginf(a.lse)
            heads_last = blank.transpose(-1, -2)
            zero = largest(a.out[heads_last].abs()) == 0.0
            expected_blank = {"no keys": blank.all(), "kv_lens 0": blank.all(), "causal, fewer keys": blank[..., :197].all() and not blank[..., 197:].any(),
                              "keys of one segment only": blank[:, :100].all() and not blank[:, 100:150].any() and blank[:, 150:].all()}.get(name, True)
            if not (filled and zero and expected_blank and a.guards_intact()):
                wrong.append(f"{recipe} {name}")
    c.report("13 empty", not wrong, f"wrong: {wrong or 'none'}")


def packed_lengths(c):
    """14: zero lengths, capacity above the total, and bad lengths that only the device can see."""
    wrong, cases = [], 0
    top = 2 ** 31 - 1
    for recipe in RECIPES:
        dtype = dtype_of(recipe)
        q, k, v = (c.normal(300, 2, 128, seed=i, dtype=dtype) for i in range(3))
        alone = {}

        def segment(i, j, m, n):
            if (i, j, m, n) not in alone:
                alone[i, j, m, n] = bits_of(Attention(c, recipe, q[i:j], k[m:n], v[m:n]))
            return alone[i, j, m, n]

        # q bounds, k bounds, valid leading segments, bits of the status word
        lists = [([0, 0, 0, 5, 5, 300], None, 5, 0), ([0] * 50 + [3], None, 50, 0), ([0, 1, 2, 3], [0, 100, 100, 250], 3, 0),
                 ([0, 100, 300], [0, 0, 1], 2, 0), ([0, 100, 90, 200], None, 1, 1), ([0, 100, 301], None, 1, 1), ([0, 100, top], None, 1, 1),
                 ([1, 100, 200], None, 0, 1), ([-5, 100, 200], None, 0, 1), ([0, -1, 200], None, 0, 1), ([0, 100, 200], [0, 150, 149], 1, 1),
                 ([0, 100, 200], [0, 150, 301], 1, 1), ([0, 100, 200], [0, top, top], 0, 1), ([0, 50, 100, -top - 1, 200], None, 2, 1)]
        for bounds, k_bounds, valid, word in lists:
            for zero_tail in (0, 1):
                status = c.ints([77])
                options = {} if k_bounds is None else {"cu_seqlens_k": c.ints(k_bounds)}
                a = Attention(c, recipe, q, k, v, cu_seqlens_q=c.ints(bounds), status_word=status, zero_tail=zero_tail, **options)
                if not finishes(c, a):
                    c.report("14 packed lengths", False, f"{recipe} {bounds}: still running after 20 s")
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
                tail = bounds[-1] if 0 <= bounds[-1] <= 300 else 300
                rest = a.out[tail:]
                if zero_tail:
                    good &= largest(rest.abs()) == 0.0 and bool(torch.isneginf(a.lse[:, tail:]).all())
                    touched[tail:] = True
                good &= bool(torch.isnan(a.out[~touched]).all()) and bool(torch.isnan(a.lse[:, ~touched]).all())
                if not good:
                    wrong.append(f"{recipe} {bounds} {k_bounds} zero_tail={zero_tail} status={status.item()}")
        for lens, word in (([100, 50], 0), ([101, 50], 2), ([-1, 50], 2), ([100, top], 2)):
            status = c.ints([77])
            a = Attention(c, recipe, q[:200], k[:200], v[:200], cu_seqlens_q=c.ints([0, 100, 200]), kv_lens=c.ints(lens), status_word=status)
            good = finishes(c, a) and status.item() == word
            cases += 1
            for s, n in enumerate(lens):
                part, lse = a.out[100 * s:100 * s + 100], a.lse[:, 100 * s:100 * s + 100]
                if 0 <= n <= 100:
                    want = segment(100 * s, 100 * s + 100, 100 * s, 100 * s + n)
                    good &= same_bits(part, want[0]) and same_bits(lse, want[1])
                else:
                    good &= bool(torch.isnan(part).all()) and bool(torch.isnan(lse).all())
            if not good:
                wrong.append(f"{recipe} kv_lens {lens} status={status.item()}")
    c.report("14 packed lengths", not wrong, f"{cases} lists, wrong: {wrong or 'none'}")


def inputs_and_outputs(c):
    """20: inputs keep every byte, outputs get every element and nothing beside it."""
    wrong, cases = [], 0
    for recipe in RECIPES:
        dtype = dtype_of(recipe)
        for out_dtype in (torch.float32, torch.bfloat16, torch.float16):
            for dim, causal, options in ((128, 0, {}), (64, 1, {}), (72, 0, {}), (33, 1, {}), (128, 0, {"cu_seqlens_q": c.ints([0, 30, 30, 150])}),
                                         (128, 0, {"cu_seqlens_q": c.ints([0, 30, 150]), "kv_lens": c.ints([7, 120])})):
                x = [strided(c.normal(150, 3, dim, seed=i, dtype=dtype), (3 * dim + 40, dim + 8, 1)) for i in range(3)]
                before = [m.clone() for _, m in x] + [t.clone() for t in options.values()]
                out, out_memory = strided(nan_like((150, 3, dim), out_dtype, c.where), (3 * dim + 37, dim + 3, 1), gap=7.0)
                lse, lse_memory = strided(nan_like((3, 150), torch.float32, c.where), (500, 3), gap=7.0)
                a = Attention(c, recipe, *(v for v, _ in x), out=out, lse=lse, causal=causal, **options)
                a.run()
                cases += 1
                good = all(same_bits(m, b) for m, b in zip([m for _, m in x] + list(options.values()), before))
                good &= not torch.isnan(out).any() and not torch.isnan(lse).any() and a.guards_intact()
                out.fill_(7)
                lse.fill_(7)
                good &= bool((out_memory == 7).all()) and bool((lse_memory == 7).all())
                if not good:
                    wrong.append(f"{recipe} {out_dtype} D={dim} {list(options)}")
    c.report("20 inputs and outputs", not wrong, f"{cases} problems, wrong: {wrong or 'none'}")


def strides(c):
    """25: the same numbers in every layout give the same bits."""
    wrong, cases = [], 0
    for recipe in RECIPES:
        dtype = dtype_of(recipe)
        for dim in (128, 64, 96):
            b, n, h = 2, 150, 3
            x = [c.normal(b, n, h, dim, seed=i, dtype=dtype) for i in range(3)]
            want = bits_of(Attention(c, recipe, *x, causal=1))

            def check(name, q, k, v, want=want, **options):
                nonlocal cases
                cases += 1
                a = Attention(c, recipe, q, k, v, causal=1, **options)
                got = a.run(), a.lse
                if not all(same_bits(i, j) for i, j in zip(got, want)):
                    wrong.append(f"{recipe} D={dim} {name}")

            check("[B,N,3,H,D]", *torch.stack(x, 2).unbind(2))
            check("[B,N,H,3,D]", *torch.stack(x, 3).unbind(3))
            check("[B,H,N,D]", *(t.transpose(1, 2).contiguous().transpose(1, 2) for t in x))
            check("[B,N,D,H]", *(t.transpose(2, 3).contiguous().transpose(2, 3) for t in x))
            for misalign in (1, 2, 4, 8):
                check(f"base {2 * misalign}", *(strided(t, t.stride(), misalign=misalign)[0] for t in x))
            check("odd rows", *(strided(t, (n * h * (dim + 1), h * (dim + 1), dim + 1, 1))[0] for t in x))
            check("channels 2 apart", *(strided(t, tuple(2 * s for s in t.stride()))[0] for t in x))
            out, memory = strided(nan_like((b, n, h, dim), torch.float32, c.where), (1, 2 * b, 2 * b * n, 2 * b * n * h), gap=7.0)
            check("strided out", *x, out=out)
            out.fill_(7)
            if not bool((memory == 7).all()):
                wrong.append(f"{recipe} D={dim} beside strided out")
            # One head, with strides that are never used, and K and V shared by all heads through stride 0.
            one = [t[:1, :, :1].clone() for t in x]
            alone = bits_of(Attention(c, recipe, *one, causal=1))
            check("extent 1", *(t.as_strided(t.shape, (7, dim, 13, 1)) for t in one), want=alone)
            shared = [x[0]] + [t[:, :, :1].expand(b, n, h, dim) for t in x[1:]]
            wide = bits_of(Attention(c, recipe, *(t.contiguous() for t in shared), causal=1))
            check("stride 0 over heads", *shared, want=wide)
    c.report("25 strides", not wrong, f"{cases} layouts, not bit-equal: {wrong or 'none'}")
