"""Accuracy at ordinary shapes: against fp64, and against the host emulation."""

import torch

from gpu.common import BOUND, TO_EMULATION, Attention, dtype_of, exact_rows, host, rel_l2


def packed_lists(c, device):
    lists = [
        (0, 1),
        (0, 128),
        (0, 129),
        (0, 0, 129, 129, 500),
        (0, 133, 300, 900),
        (0, 257, 4567, 4824),
        (0, 4097),
    ]
    for recipe in ("bf16", "f16", "fp8"):
        worst, largest, bits = 0.0, 0.0, True
        for bounds in c.size(lists, lists[:4]):
            for heads in c.size((3, 56), (2,)):
                total = bounds[-1]
                q, k, v = c.normal(total, 3, heads, 128, seed=total + heads, dtype=dtype_of(recipe)).unbind(1)
                a = Attention(c, recipe, q, k, v, device, cu_seqlens_q=c.ints(bounds))
                a.run()
                first, first_lse = a.out.clone(), a.lse.clone()
                a.fill(0x5A)
                a.again()
                bits &= torch.equal(first, a.out) and torch.equal(first_lse, a.lse) and a.guards_intact()
                for i, j in zip(bounds, bounds[1:]):
                    if i < j:
                        out, lse = exact_rows(
                            q[i:j], k[i:j], v[i:j], torch.arange(j - i, device=c.where), 128**-0.5
                        )
                        worst = max(worst, rel_l2(a.out[i:j], out))
                        excess = ((a.out[i:j] - out).abs() - 0.1 * out.abs()).max().item()
                        largest = max(largest, excess, (a.lse[:, i:j] - lse).abs().max().item())
        c.report(
            f"packed {device} {recipe}",
            worst < BOUND[recipe] and largest < 0.1 and bits,
            f"rel-L2 {worst:.4f}, largest {largest:.4f}, second run bit-equal {bits}",
        )


def emulation(c, device):
    for recipe in ("bf16", "f16", "fp8"):
        dtype = dtype_of(recipe)
        worst = worst_lse = 0.0
        shapes = (
            (300, 300, 4, 2, 128, 0),
            (77, 500, 4, 4, 64, 1),
            (500, 77, 2, 1, 96, 1),
            (200, 3000, 2, 2, 128, 0),
            (129, 129, 3, 3, 40, 1),
        )
        for sq, sk, hq, hkv, dim, causal in c.size(shapes, ((30, 70, 2, 1, 128, 1), (20, 130, 1, 1, 40, 0))):
            q = c.normal(2, sq, hq, dim, seed=sq, dtype=dtype) * 2
            k = c.normal(2, sk, hkv, dim, seed=sk + 1, dtype=dtype) + 1
            v = c.normal(2, sk, hkv, dim, seed=sk + 2, dtype=dtype) + 1
            a = Attention(c, recipe, q, k, v, device, causal=causal)
            a.run()
            out, lse = host(c, "emulate", recipe, q, k, v, causal=causal, like=a)
            worst = max(worst, rel_l2(a.out.cpu(), out))
            known = ~torch.isinf(lse)
            worst_lse = max(worst_lse, (a.lse.cpu() - lse)[known].abs().max().item())
        c.report(
            f"emulate {device} {recipe}",
            worst < TO_EMULATION[recipe] and worst_lse < 1e-4,
            f"rel-L2 {worst:.1e}, lse {worst_lse:.1e}",
        )


def large(c, device):
    for recipe in ("bf16", "fp8"):
        for tokens, heads in ((30272, 56), (262144, 1)):
            q, k, v = (c.normal(tokens, heads, 128, seed=i) for i in range(3))
            a = Attention(c, recipe, q, k, v, device, out_dtype=torch.bfloat16)
            a.run()
            rows = torch.cat(
                [
                    torch.randperm(tokens - 16, device=c.where)[:48].sort().values,
                    torch.arange(tokens - 16, tokens, device=c.where),
                ]
            )
            out, lse = exact_rows(q, k, v, rows, 128**-0.5)
            error, lse_error = rel_l2(a.out[rows], out), (a.lse[:, rows] - lse).abs().max().item()
            limit = 0.03 if recipe == "fp8" else 0.005
            c.report(
                f"large {device} {recipe} {tokens} x {heads}",
                error < BOUND[recipe] and lse_error < limit,
                f"rel-L2 {error:.4f}, lse {lse_error:.4f}, workspace {a.bytes / 1e6:.1f} MB",
            )
            del q, k, v, a
            c.free()
