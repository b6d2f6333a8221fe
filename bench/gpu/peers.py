"""Other attention kernels beside ours: the same bf16 tensors, or E4M3 codes made from them beforehand."""

import importlib
import importlib.metadata
import math
import subprocess
import time
from contextlib import contextmanager

import torch

from . import peer_tables
from .common import Attention, exact_rows, rel_l2
from .peer_tables import DIM, OURS
from .speed import kernel_rounds, kernel_times, times

LEAD_CYCLES = 1_000_000  # half a millisecond: longer than any of these calls takes to launch
E4M3_MAX = 448.0


def per_head_e4m3(x, bounds):
    """Codes of [T,H,D] and their fp32 descales [segments,H]: amax / 448 of a segment's head."""
    codes = torch.empty(x.shape, dtype=torch.float8_e4m3fn, device=x.device)
    descales = torch.ones(len(bounds) - 1, x.shape[1], device=x.device)
    for i, (begin, end) in enumerate(zip(bounds, bounds[1:])):
        part = x[begin:end].float()
        amax = part.abs().amax((0, 2))
        descales[i] = torch.where(amax > 0, amax / E4M3_MAX, 1.0)
        codes[begin:end] = (part / descales[i][None, :, None]).clamp(-E4M3_MAX, E4M3_MAX).to(codes.dtype)
    return codes, descales


class Peer:
    """A kernel to compare with. `make` returns a function that runs it and returns [T,H,D]."""

    name = what = package = ""
    module = None
    packed = False  # whether it takes several segments

    @classmethod
    def missing(cls):
        """Why it cannot run here, or None."""
        try:
            if cls.module:
                importlib.import_module(cls.module)
        except Exception as e:  # a wheel for another torch fails with more than ImportError
            return f"import {cls.module}: {type(e).__name__}: {e}"
        return None

    @classmethod
    def version(cls):
        try:
            return importlib.metadata.version(cls.package)
        except importlib.metadata.PackageNotFoundError:
            return None

    @classmethod
    def make(cls, q, k, v, bounds):
        raise NotImplementedError


class Fa3(Peer):
    module, package, packed = "fa3_fwd_interface", "fa3-fwd", True

    @classmethod
    def call(cls, q, k, v, bounds, **descales):
        fa3 = importlib.import_module(cls.module)
        if len(bounds) == 2:
            dense = [x[None] for x in (q, k, v)]
            return lambda: _first(fa3.flash_attn_func(*dense, **descales))[0]
        cu = torch.tensor(bounds, dtype=torch.int32, device=q.device)
        longest = max(j - i for i, j in zip(bounds, bounds[1:]))
        return lambda: _first(fa3.flash_attn_varlen_func(q, k, v, cu, cu, longest, longest, **descales))


class Fa3Fp8(Fa3):
    name, what = "FA3 FP8", "attention alone on E4M3 codes made beforehand, a descale a head and segment"

    @classmethod
    def make(cls, q, k, v, bounds):
        """Keys may differ in number from queries where there is one segment."""
        codes, descales = {}, {}
        for name, x in (("q", q), ("k", k), ("v", v)):
            own = [0, x.shape[0]] if len(bounds) == 2 else bounds
            codes[name], descales[f"{name}_descale"] = per_head_e4m3(x, own)
        return cls.call(codes["q"], codes["k"], codes["v"], bounds, **descales)


class Fa3Bf16(Fa3):
    name, what = "FA3 bf16", "from bf16"

    @classmethod
    def make(cls, q, k, v, bounds):
        return cls.call(q, k, v, bounds)


class CudnnFp8(Peer):
    name, what = "cuDNN FP8", "attention alone on E4M3 codes made beforehand, one descale a tensor, E4M3 out"
    module, package = "cudnn", "nvidia-cudnn-frontend"

    @classmethod
    def make(cls, q, k, v, bounds):
        cudnn = importlib.import_module(cls.module)
        tokens, heads, dim = q.shape
        e4m3, fp32 = cudnn.data_type.FP8_E4M3, cudnn.data_type.FLOAT
        handle = cudnn.create_handle()
        cudnn.set_stream(handle=handle, stream=torch.cuda.current_stream().cuda_stream)
        graph = cudnn.pygraph(
            io_data_type=e4m3, intermediate_data_type=fp32, compute_data_type=fp32, handle=handle
        )
        one = [1, 1, 1, 1]
        shape, strides = [1, heads, tokens, dim], [tokens * heads * dim, dim, heads * dim, 1]
        scalar = {n: torch.ones(one, device=q.device) for n in ("q", "k", "v", "s", "scale_s", "scale_o")}
        codes = {}
        for name, x in (("q", q), ("k", k), ("v", v)):
            scalar[name].copy_(x.abs().max().float() / E4M3_MAX)
            codes[name] = (x / scalar[name].view(1, 1, 1)).clamp(-E4M3_MAX, E4M3_MAX).to(torch.float8_e4m3fn)
        scalar["scale_s"].fill_(E4M3_MAX)  # P is at most 1
        scalar["s"].fill_(1 / E4M3_MAX)
        inputs = {n: graph.tensor(name=n, dim=shape, stride=strides, data_type=e4m3) for n in codes}
        scales = {n: graph.tensor(name=f"of_{n}", dim=one, stride=one, data_type=fp32) for n in scalar}
        out, _, amax_s, amax_o = graph.sdpa_fp8(
            name="sdpa",
            **inputs,
            descale_q=scales["q"],
            descale_k=scales["k"],
            descale_v=scales["v"],
            descale_s=scales["s"],
            scale_s=scales["scale_s"],
            scale_o=scales["scale_o"],
            generate_stats=False,
            attn_scale=dim**-0.5,
        )
        out.set_output(True).set_dim(shape).set_stride(strides).set_data_type(e4m3)
        for amax in (amax_s, amax_o):
            amax.set_output(True).set_dim(one).set_stride(one).set_data_type(fp32)
        graph.validate()
        graph.build_operation_graph()
        graph.create_execution_plans([cudnn.heur_mode.A])
        graph.check_support()
        graph.build_plans()
        result = torch.empty(q.shape, dtype=torch.float8_e4m3fn, device=q.device)
        largest = [torch.zeros(one, device=q.device) for _ in range(2)]
        memory = torch.empty(max(graph.get_workspace_size(), 1), dtype=torch.uint8, device=q.device)
        pack = {inputs[n]: codes[n] for n in codes} | {scales[n]: scalar[n] for n in scalar}
        pack |= {out: result, amax_s: largest[0], amax_o: largest[1]}

        def run():
            graph.execute(pack, memory, handle=handle)
            return result

        run()
        torch.cuda.synchronize()
        top = largest[1].item()  # of the output before its scale
        if 0 < top < float("inf"):
            scalar["scale_o"].fill_(E4M3_MAX / top)
        run.descale = 1 / scalar["scale_o"].item()
        return run


class TorchSdpa(Peer):
    backend = ""

    @classmethod
    def make(cls, q, k, v, bounds):
        from torch.nn.attention import SDPBackend, sdpa_kernel

        backend = getattr(SDPBackend, cls.backend)
        heads_first = [x.permute(1, 0, 2)[None].contiguous() for x in (q, k, v)]

        def run():
            with sdpa_kernel(backend):
                out = torch.nn.functional.scaled_dot_product_attention(*heads_first)
            return out[0].permute(1, 0, 2)

        return run


class CudnnBf16(TorchSdpa):
    name, what, backend = "cuDNN bf16", "torch's scaled_dot_product_attention, from bf16", "CUDNN_ATTENTION"


class Fa2Bf16(TorchSdpa):
    name, what, backend = "FA2 bf16", "torch's scaled_dot_product_attention, from bf16", "FLASH_ATTENTION"


PEERS = (Fa3Fp8, CudnnFp8, Fa3Bf16, CudnnBf16, Fa2Bf16)


def _first(x):
    return x[0] if isinstance(x, (tuple, list)) else x


class Bench:
    """One run: what can be compared, what was left out and why."""

    def __init__(self, c, rounds):
        self.c, self.rounds = c, rounds
        self.left_out, self.peers = [], []
        for peer in PEERS:
            reason = "a rehearsal runs on the host" if c.rehearse else peer.missing()
            if reason:
                self.leave_out(peer.name, "everywhere", reason)
            else:
                self.peers.append(peer)

    def leave_out(self, peer, where, reason):
        self.left_out.append({"peer": peer, "where": where, "reason": " ".join(str(reason).split())})
        print(*peer_tables.left_out_lines(self.left_out[-1:]), flush=True)

    @contextmanager
    def or_left_out(self, peer, where):
        try:
            yield
        except Exception as e:  # the others still count
            self.leave_out(peer, where, f"{type(e).__name__}: {e}")

    def peer(self, kind):
        return kind if kind in self.peers else None

    def measure(self, candidates, where):
        """{name: ([ms of each call], [{kernel: ms} of each round])}."""
        if self.c.where != "cuda":
            return {name: (host_times(f, self.rounds), []) for name, f in candidates.items()}
        calls = times(candidates, self.rounds, lead_cycles=LEAD_CYCLES)
        kernels = {name: [] for name in candidates}
        with self.or_left_out("profiled rounds in shuffled order", where):
            kernels = kernel_rounds(candidates, self.rounds, lead_cycles=LEAD_CYCLES)
        if not any(kernels.values()):  # each alone, then
            for name, f in candidates.items():
                with self.or_left_out(f"kernel times of {name}", where):
                    kernels[name] = [kernel_times(f)]
        return {name: (calls[name], kernels[name]) for name in candidates}

    def shape(self, shape):
        """The JSON of a shape: every candidate beside ours."""
        c = self.c
        q, k, v = (c.normal(shape.tokens, shape.heads, DIM, seed=i) for i in range(3))
        candidates, errors, plan = {}, {}, None
        with self.or_left_out(OURS, shape.name):
            ours = attention(c, q, k, v, shape.bounds)
            candidates[OURS], plan = ours.run, plan_name(ours)
        for peer in self.peers:
            if shape.packed and not peer.packed:
                continue
            with self.or_left_out(peer.name, shape.name):
                candidates[peer.name] = peer.make(q, k, v, shape.bounds)
        for name, run in list(candidates.items()):
            with self.or_left_out(name, shape.name):
                errors[name] = sample_error(run(), getattr(run, "descale", 1.0), q, k, v, shape.bounds)
                if not math.isfinite(errors[name]):
                    raise ArithmeticError(f"rel-L2 of its result is {errors.pop(name)}")
            if name not in errors:
                del candidates[name]
        taken = self.measure(candidates, shape.name)
        row = {
            "name": shape.name,
            "lengths": list(shape.lengths),
            "heads": shape.heads,
            "dim": DIM,
            "flop": shape.flop,
            "plan": plan,
            "candidates": {
                name: peer_tables.candidate(shape.flop, *taken[name], errors[name]) for name in candidates
            },
            "under_load": self.under_load(candidates.get(OURS), taken.get(OURS)),
        }
        row["ratios"] = peer_tables.ratios(row["candidates"])
        return row

    def under_load(self, run, taken):
        """The clocks while our kernel runs for half a second."""
        if self.c.where != "cuda" or not run or not taken:
            return None
        calls = int(500 / max(peer_tables.summary(taken[0])["median"], 0.05)) + 1
        clocks = machine_state(lambda: [run() for _ in range(calls)])
        torch.cuda.synchronize()
        return clocks

    def spread(self):
        """Ours and FA3 FP8 on logits of std 1, 2, 4, and on maxima that move all the time."""
        c = self.c
        tokens, heads = c.size((30272, 16), (130, 1))
        k, v = (c.normal(tokens, heads, DIM, seed=i) for i in (1, 2))
        cases = {}
        for std in (1, 2, 4):
            cases[f"std {std}"] = (
                c.normal(tokens, heads, DIM, seed=0, dtype=torch.float32) * std
            ).bfloat16(), k
        # Half a log2 unit a 64-key tile. Tiles are walked from the last key to the first.
        q = c.normal(tokens, heads, DIM, seed=0)
        q[..., 0] = 8
        tile = torch.arange(tokens, device=c.where, dtype=torch.float32) // 64
        step = tile * (0.5 * DIM**0.5 / 8 / 1.4426950408889634)
        for name, rise in (("ramp up to the end", step), ("ramp up to the start", step.flip(0))):
            ramp = k.clone()
            ramp[..., 0] = rise[:, None].bfloat16()
            cases[name] = q, ramp
        makers = {OURS: lambda q, k: attention(c, q, k, v, [0, tokens]).run}
        if fa3 := self.peer(Fa3Fp8):
            makers[fa3.name] = lambda q, k: fa3.make(q, k, v, [0, tokens])
        candidates = {}
        for name, make in makers.items():
            for case, x in cases.items():
                with self.or_left_out(name, f"spread, {case}"):
                    run = make(*x)
                    run()
                    c.synchronize()
                    candidates[name, case] = run
        taken = self.measure(candidates, "spread")
        flop = 4 * tokens**2 * DIM * heads
        table = {name: {} for name in makers}
        for (name, case), x in taken.items():
            table[name][case] = peer_tables.candidate(flop, *x, None)
        return {"tokens": tokens, "heads": heads, "candidates": table}


def attention(c, q, k, v, bounds):
    """Our call: bf16 in and out, no LSE."""
    options = {} if len(bounds) == 2 else {"cu_seqlens_q": c.ints(bounds)}
    return Attention(c, "fp8", q, k, v, lse=False, out_dtype=torch.bfloat16, **options)


def plan_name(a):
    info = a.plan.info
    return f"{info.kernel.decode()}, key tile {info.key_tile}, on {info.device.decode()}"


def sample_error(out, descale, q, k, v, bounds, heads=2, rows=16):
    """rel-L2 to fp64 of a few rows of the longest segment: that a candidate computes what it is timed for."""
    begin, end = max(zip(bounds, bounds[1:]), key=lambda x: x[1] - x[0])
    some = torch.linspace(0, end - begin - 1, rows, device=q.device).long()
    exact, _ = exact_rows(*(x[begin:end, :heads] for x in (q, k, v)), some, DIM**-0.5)
    return rel_l2(out[begin:end, :heads].float()[some] * descale, exact)


def host_times(f, rounds):
    taken = []
    for _ in range(rounds):
        start = time.perf_counter()
        f()
        taken.append(1e3 * (time.perf_counter() - start))
    return taken


def machine_state(meanwhile=lambda: None):
    """Clocks, power and temperature as nvidia-smi reads them, or its error."""
    fields = "name,driver_version,clocks.sm,clocks.mem,clocks.max.sm,power.draw,power.limit,temperature.gpu"
    command = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"]
    command.append(f"--id={torch.cuda.current_device()}")
    try:
        smi = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    except OSError as e:
        return {"error": str(e)}
    meanwhile()
    try:
        said, _ = smi.communicate(timeout=20)
    except subprocess.TimeoutExpired as e:
        smi.kill()
        return {"error": str(e)}
    values = [x.strip() for x in said.strip().split(",")]
    names = fields.split(",")
    return dict(zip(names, values)) if len(values) == len(names) else {"error": said.strip()}


def machine(c):
    """What ran where."""
    state = {
        "quatt": c.quatt.version(),
        "torch": torch.__version__,
        "versions": {p.package: p.version() for p in PEERS if p.package},
    }
    if c.where == "cuda":
        state |= {
            "gpu": torch.cuda.get_device_name(),
            "compute_capability": list(torch.cuda.get_device_capability()),
            "sm_count": torch.cuda.get_device_properties(0).multi_processor_count,
            "cuda": torch.version.cuda,
            "cudnn": torch.backends.cudnn.version(),
            "before": machine_state(),
        }
    return state
