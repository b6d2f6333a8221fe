#!/usr/bin/env python3
"""Checks and times the GPU kernels against fp64, the host emulation and torch's attention. Needs torch and a GPU.

usage: gpu_check.py LIBQUATT.so [--json FILE] [--only correct|speed]

Prints a line a check and a table of times; exits 1 if a check fails. scripts/gpu_check.sh builds the library and calls this.
"""

import argparse
import json
import sys

import torch

from quatt_c import Quatt

failures = []


def report(name, ok, text):
    print(f"{'ok  ' if ok else 'FAIL'} {name}: {text}", flush=True)
    if not ok:
        failures.append(name)


class Attention:
    """One problem on the GPU: its tensors, its plan and a workspace filled with 0xFF."""

    def __init__(self, quatt, recipe, q, k, v, device="cuda", lse=True, out_dtype=torch.bfloat16, **options):
        packed = q.dim() == 3
        self.out = torch.full((*q.shape[:-1], v.shape[-1]), float("nan"), dtype=out_dtype, device=q.device)
        shape = (q.shape[1], q.shape[0]) if packed else (q.shape[0], q.shape[2], q.shape[1])
        self.lse = torch.full(shape, float("nan"), device=q.device) if lse else None
        self.keep = (q, k, v, options)
        self.problem = quatt.problem(recipe, q, k, v, self.out, lse=self.lse, **options)
        self.plan = quatt.plan(self.problem, device)
        self.workspace = torch.full((self.plan.workspace_bytes + 256,), 255, dtype=torch.uint8, device=q.device)

    def run(self, stream=None):
        stream = stream or torch.cuda.current_stream()
        self.plan.run(self.problem.tensors, self.workspace.data_ptr(), stream.cuda_stream)
        return self.out


def exact_rows(q, k, v, rows, scale, causal=False):
    """fp64 attention of chosen rows of one segment: q [Sq,H,D], k and v [Sk,Hkv,D] -> out [rows,H,D], lse [H,rows]."""
    group = q.shape[1] // k.shape[1]
    out = torch.empty(len(rows), q.shape[1], v.shape[2], dtype=torch.float64, device=q.device)
    lse = torch.empty(q.shape[1], len(rows), dtype=torch.float64, device=q.device)
    position = rows + (k.shape[0] - q.shape[0])
    for h in range(q.shape[1]):
        kh, vh = k[:, h // group].double(), v[:, h // group].double()
        s = q[rows, h].double() @ kh.T * scale
        if causal:
            s.masked_fill_(torch.arange(k.shape[0], device=q.device)[None, :] > position[:, None], float("-inf"))
        lse[h] = torch.logsumexp(s, 1)
        out[:, h] = torch.nan_to_num(torch.softmax(s, 1)) @ vh
    return out, lse


def rel_l2(a, b):
    return ((a.double() - b.double()).norm() / b.double().norm()).item()


BOUND = {"fp8": .056, "bf16": .004, "f16": .004}


def normal(*shape, seed=0, dtype=torch.bfloat16):
    g = torch.Generator(device="cuda").manual_seed(seed)
    return torch.randn(*shape, generator=g, device="cuda", dtype=torch.float32).to(dtype)


def check_segments(quatt, device):
    lists = [(0, 1), (0, 128), (0, 129), (0, 0, 129, 129, 500), (0, 133, 300, 900), (0, 257, 4567, 4824), (0, 4097)]
    for recipe in ("bf16", "f16", "fp8"):
        dtype = torch.float16 if recipe == "f16" else torch.bfloat16
        worst, largest, bits = 0.0, 0.0, True
        for bounds in lists:
            for heads in (3, 56):
                total = bounds[-1]
                fused = normal(total, 3, heads, 128, seed=total + heads, dtype=dtype)
                q, k, v = fused.unbind(1)
                cu = torch.tensor(bounds, dtype=torch.int32, device="cuda")
                a = Attention(quatt, recipe, q, k, v, device, cu_seqlens_q=cu, out_dtype=torch.float32)
                a.run()
                first, first_lse = a.out.clone(), a.lse.clone()
                a.workspace.fill_(0x5A)
                a.run()
                bits &= torch.equal(first, a.out) and torch.equal(first_lse, a.lse)
                errors = []
                for i, j in zip(bounds, bounds[1:]):
                    if i < j:
                        rows = torch.arange(j - i, device="cuda")
                        out, lse = exact_rows(q[i:j], k[i:j], v[i:j], rows, 128 ** -.5)
                        worst = max(worst, rel_l2(a.out[i:j], out))
                        excess = ((a.out[i:j] - out).abs() - .1 * out.abs()).max().item()
                        largest = max(largest, excess, (a.lse[:, i:j] - lse).abs().max().item())
        report(f"{device} {recipe} packed lists", worst < BOUND[recipe] and largest < .1 and bits,
               f"rel-L2 {worst:.4f}, largest {largest:.4f}, second run bit-equal {bits}")


def check_emulation(quatt, device):
    for recipe in ("bf16", "f16", "fp8"):
        dtype = torch.float16 if recipe == "f16" else torch.bfloat16
        worst = worst_lse = 0.0
        for sq, sk, hq, hkv, dim, causal in ((300, 300, 4, 2, 128, 0), (77, 500, 4, 4, 64, 1), (500, 77, 2, 1, 96, 1),
                                             (200, 3000, 2, 2, 128, 0), (129, 129, 3, 3, 40, 1)):
            q = normal(2, sq, hq, dim, seed=sq, dtype=dtype) * 2
            k = normal(2, sk, hkv, dim, seed=sk + 1, dtype=dtype) + 1
            v = normal(2, sk, hkv, dim, seed=sk + 2, dtype=dtype) + 1
            a = Attention(quatt, recipe, q, k, v, device, out_dtype=torch.float32, causal=causal)
            a.run()
            host = [x.cpu() for x in (q, k, v)]
            out = torch.empty(a.out.shape)
            lse = torch.empty(a.lse.shape)
            p = quatt.problem(recipe, *host, out, lse=lse, causal=causal)
            plan = quatt.plan(p, "emulate")
            space = torch.empty(plan.workspace_bytes + 64, dtype=torch.uint8)
            plan.run(p.tensors, (space.data_ptr() + 63) // 64 * 64)
            worst = max(worst, rel_l2(a.out.cpu(), out))
            known = ~torch.isinf(lse)
            worst_lse = max(worst_lse, (a.lse.cpu() - lse)[known].abs().max().item())
        # Codes of P flip where ex2.approx differs in its last bits: about 1e-3 of the recipe's own error.
        bound = 1e-3 if recipe != "fp8" else 2e-3
        report(f"{device} {recipe} against emulate", worst < bound and worst_lse < 1e-4, f"rel-L2 {worst:.1e}, lse {worst_lse:.1e}")


def check_large(quatt, device):
    for recipe in ("bf16", "fp8"):
        for tokens, heads in ((30272, 56), (262144, 1)):
            q, k, v = (normal(tokens, heads, 128, seed=i) for i in range(3))
            a = Attention(quatt, recipe, q, k, v, device)
            a.run()
            rows = torch.cat([torch.randperm(tokens - 16, device="cuda")[:48].sort().values, torch.arange(tokens - 16, tokens, device="cuda")])
            out, lse = exact_rows(q, k, v, rows, 128 ** -.5)
            error, lse_error = rel_l2(a.out[rows], out), (a.lse[:, rows] - lse).abs().max().item()
            limit = .03 if recipe == "fp8" else .005
            report(f"{device} {recipe} {tokens} x {heads}", error < BOUND[recipe] and lse_error < limit,
                   f"rel-L2 {error:.4f}, lse {lse_error:.4f}, workspace {a.plan.workspace_bytes / 1e6:.1f} MB")


def check_graph_and_streams(quatt):
    q, k, v = (normal(2000, 8, 128, seed=i) for i in range(3))
    for recipe in ("bf16", "fp8"):
        a = Attention(quatt, recipe, q.clone(), k.clone(), v.clone())
        eager = a.run().clone()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            a.run()
        a.keep[0].copy_(q.flip(0))
        graph.replay()
        torch.cuda.synchronize()
        replayed = a.out.clone()
        b = Attention(quatt, recipe, q.flip(0).contiguous(), k, v)
        same = torch.equal(replayed, b.run())
        streams = [torch.cuda.Stream() for _ in range(2)]
        pair = [Attention(quatt, recipe, q, k, v) for _ in streams]
        for _ in range(5):
            for s, x in zip(streams, pair):
                x.run(s)
        torch.cuda.synchronize()
        both = all(torch.equal(x.out, eager) for x in pair)
        report(f"{recipe} graph and streams", same and both, f"replay on new inputs bit-equal {same}, two streams bit-equal {both}")


def median_ms(candidates, repeats=9):
    """Medians of {name: function}, taken in turns, so that a warming GPU is the same for all."""
    times = {name: [] for name in candidates}
    for i in range(repeats + 2):
        for name, f in candidates.items():
            a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            a.record()
            f()
            b.record()
            b.synchronize()
            if i >= 2:
                times[name].append(a.elapsed_time(b))
    return {name: sorted(t)[len(t) // 2] for name, t in times.items()}


def kernel_times(f):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as prof:
        for _ in range(3):
            f()
        torch.cuda.synchronize()
    return {e.key.split("<")[0].split("::")[-1].split("(")[0]: e.self_device_time_total / e.count / 1e3 for e in prof.key_averages() if e.self_device_time_total > 0}


def speed(quatt, results):
    from torch.nn.attention import SDPBackend, sdpa_kernel
    print("\nms and TFLOP/s (4 S^2 D H), median")
    for tokens, heads in ((30272, 56), (8192, 16), (2048, 56)):
        q, k, v = (normal(tokens, heads, 128, seed=i) for i in range(3))
        flop = 4 * tokens ** 2 * 128 * heads
        row = {"tokens": tokens, "heads": heads}
        bhsd = [x.permute(1, 0, 2)[None].contiguous() for x in (q, k, v)]

        def torch_attention(backend):
            with sdpa_kernel(backend):
                torch.nn.functional.scaled_dot_product_attention(*bhsd)

        ours = {f"quatt {r}": Attention(quatt, r, q, k, v, lse=False) for r in ("bf16", "fp8")}
        row |= median_ms({
            "torch FA2 bf16": lambda: torch_attention(SDPBackend.FLASH_ATTENTION),
            "torch cuDNN bf16": lambda: torch_attention(SDPBackend.CUDNN_ATTENTION),
        } | {name: a.run for name, a in ours.items()})
        for name, a in ours.items():
            for kernel, ms in kernel_times(a.run).items():
                row[f"  {name} {kernel}"] = ms
        row["FA2 / quatt bf16"] = row["torch FA2 bf16"] / row["quatt bf16"]
        source = torch.empty(int(2e9), dtype=torch.uint8, device="cuda")
        row["copy GB/s"] = 4e9 / median_ms({"": lambda: source.clone()})[""] / 1e6
        for name, value in row.items():
            tf = f"{flop / value / 1e9:8.0f}" if isinstance(value, float) and not any(x in name for x in ("GB", "  ", "/")) else ""
            print(f"{name:28s} {value:10.3f} {tf}" if isinstance(value, float) else f"{name} {value}")
        results.append(row)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("library")
    parser.add_argument("--json")
    parser.add_argument("--only", choices=["correct", "speed"])
    args = parser.parse_args()
    quatt, results = Quatt(args.library), []
    if args.only != "speed":
        for device in ("cuda", "emu:sm_120"):
            check_emulation(quatt, device)
            check_segments(quatt, device)
        check_graph_and_streams(quatt)
        check_large(quatt, "cuda")
        check_large(quatt, "emu:sm_120")
    if args.only != "correct":
        speed(quatt, results)
    if args.json:
        with open(args.json, "w") as f:
            json.dump({"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "failures": failures, "times": results}, f, indent=1)
    print(f"\n{len(failures)} checks failed{': ' + ', '.join(failures) if failures else ''}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
