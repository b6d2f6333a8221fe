"""Strides and places of tensors."""

import torch

from gpu.common import BOUND, Attention, bits_of, dtype_of, exact_rows, nan_like, rel_l2, same_bits, strided

RECIPES = ("bf16", "f16", "fp8")


def huge_strides(c):
    """Q, k, v, out or lse with a token stride of 2^20, or batch and head strides beyond 2^31."""
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
        view.copy_(
            torch.full((view.element_size(),), 0x5A, dtype=torch.uint8, device=c.where)
            .view(view.dtype)
            .expand(view.shape)
        )
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
        for name, strides in (
            ("k", (big, 256, 128, 1)),
            ("q", (128, 384, big // 2, 1)),
            ("v", (150 * 128, 128, big, 1)),
            ("out", (big // 3 // 8 * 8, 256, 128, 1)),
        ):
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
    memory = a = given = None
    c.free()
    c.report(
        "huge strides",
        not wrong and beside,
        f"{cases} views, not bit-equal: {wrong or 'none'}; written beside out or lse:"
        f" {'no' if beside else 'YES'}",
    )


def long_rows(c):
    """32 random query rows and the last 32, all keys, from a fused buffer and from copies."""
    heads = c.size(56, 2)
    for recipe in ("bf16", "fp8"):
        for tokens in c.size((98304, 200064, 262144), (500,)):
            fused = torch.empty(tokens, 3, heads, 128, dtype=torch.bfloat16, device=c.where)
            for i, part in enumerate(
                fused.split(1 << 15)
            ):  # the generator's f32 numbers would need twice the memory at once
                part.copy_(c.normal(*part.shape, seed=i))
            q, k, v = fused.unbind(1)
            rows = (
                torch.randperm(tokens - 32, generator=torch.Generator().manual_seed(tokens))[:32]
                .sort()
                .values.to(c.where)
            )
            chosen = {"last rows": q[-32:], "random rows": q[rows].contiguous()}
            worst = worst_lse = 0.0
            same = True
            copies = k.contiguous(), v.contiguous()
            for part in chosen.values():
                a, b = Attention(c, recipe, part, k, v), Attention(c, recipe, part.contiguous(), *copies)
                same &= same_bits(a.run(), b.run()) and same_bits(a.lse, b.lse)
                out, lse = exact_rows(part, k, v, torch.arange(32, device=c.where), 128**-0.5)
                worst, worst_lse = max(worst, rel_l2(a.out, out)), max(
                    worst_lse, (a.lse - lse).abs().max().item()
                )
                last = max(rel_l2(a.out[-1], out[-1]), 0.0)
            full = ""
            if tokens == c.size(98304, 500) and not c.quick:
                # Every query row too, so that its offsets are seen.
                a = Attention(c, recipe, q, k, v, out_dtype=torch.bfloat16)
                a.run()
                check = torch.cat((rows, torch.arange(tokens - 32, tokens, device=c.where)))
                out, _ = exact_rows(q, k, v, check, 128**-0.5)
                full = f", all rows at once {rel_l2(a.out[check], out):.4f}"
                worst = max(worst, rel_l2(a.out[check], out))
            limit = 0.03 if recipe == "fp8" else 0.005
            c.report(
                f"{recipe} {tokens} x {heads}",
                worst < BOUND[recipe] and worst_lse < limit and same,
                f"rel-L2 {worst:.4f}, last row {last:.4f}, lse {worst_lse:.4f}, view and copy bit-equal"
                f" {same}{full}",
            )
            del fused, q, k, v, copies, chosen, a, b
            c.free()


def inputs_and_outputs(c):
    """Inputs keep every byte, outputs get every element and nothing beside it."""
    wrong, cases = [], 0
    for recipe in RECIPES:
        dtype = dtype_of(recipe)
        for out_dtype in (torch.float32, torch.bfloat16, torch.float16):
            for dim, causal, options in (
                (128, 0, {}),
                (64, 1, {}),
                (72, 0, {}),
                (33, 1, {}),
                (128, 0, {"cu_seqlens_q": c.ints([0, 30, 30, 150])}),
                (128, 0, {"cu_seqlens_q": c.ints([0, 30, 150]), "kv_lens": c.ints([7, 120])}),
            ):
                x = [
                    strided(c.normal(150, 3, dim, seed=i, dtype=dtype), (3 * dim + 40, dim + 8, 1))
                    for i in range(3)
                ]
                before = [m.clone() for _, m in x] + [t.clone() for t in options.values()]
                out, out_memory = strided(
                    nan_like((150, 3, dim), out_dtype, c.where), (3 * dim + 37, dim + 3, 1), gap=7.0
                )
                lse, lse_memory = strided(nan_like((3, 150), torch.float32, c.where), (500, 3), gap=7.0)
                a = Attention(c, recipe, *(v for v, _ in x), out=out, lse=lse, causal=causal, **options)
                a.run()
                cases += 1
                good = all(
                    same_bits(m, b) for m, b in zip([m for _, m in x] + list(options.values()), before)
                )
                good &= not torch.isnan(out).any() and not torch.isnan(lse).any() and a.guards_intact()
                out.fill_(7)
                lse.fill_(7)
                good &= bool((out_memory == 7).all()) and bool((lse_memory == 7).all())
                if not good:
                    wrong.append(f"{recipe} {out_dtype} D={dim} {list(options)}")
    c.report("inputs and outputs", not wrong, f"{cases} problems, wrong: {wrong or 'none'}")


def backwards(tensors):
    """Makes dense q, k and v start at their last token and step to the first."""
    for t in (tensors.q, tensors.k, tensors.v):
        t.data += 2 * (t.extent[1] - 1) * t.stride[1]
        t.stride[1] = -t.stride[1]


def strides(c):
    """The same numbers in every layout give the same bits."""
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
            back = [t.flip(1).contiguous() for t in x]
            check("tokens backwards", *back, edit=backwards)
            out, memory = strided(
                nan_like((b, n, h, dim), torch.float32, c.where),
                (1, 2 * b, 2 * b * n, 2 * b * n * h),
                gap=7.0,
            )
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
    c.report("strides", not wrong, f"{cases} layouts, not bit-equal: {wrong or 'none'}")
