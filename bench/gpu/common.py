"""What the GPU checks share: problems with guards around them, exact attention in fp64, and the report."""

import ctypes
import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from quatt_c import Quatt  # noqa: E402

GUARD = 256  # bytes before and after a workspace
GUARD_BYTE = 0xA5

# Published relative L2 error and LSE error of each recipe (docs/recipes.md), and what the issue allows on
# N(0,1) data.
EXPECTED = {"bf16": 0.0023, "f16": 0.0003, "fp8": 0.0533}
EXPECTED_LSE = {"bf16": 0.005, "f16": 0.005, "fp8": 0.03}
BOUND = {"fp8": 0.056, "bf16": 0.004, "f16": 0.004}
# Between a kernel and its emulation: codes of P flip where ex2.approx differs in its last bits.
TO_EMULATION = {"fp8": 2e-3, "bf16": 1e-3, "f16": 1e-3}


class Checks:
    """Where the checks run, and what they found.

    In a rehearsal everything runs on the host by the executor (device simt:sm_90) at tiny sizes: it shows, on
    a machine without a GPU, that the checks themselves work.
    """

    def __init__(self, library, device="cuda", quick=False, rehearse=False):
        self.library, self.quatt = library, Quatt(library)
        self.rehearse, self.quick = rehearse, quick or rehearse
        self.device = "simt:sm_90" if rehearse else device
        self.where = "cpu" if rehearse else "cuda"
        self.lines, self.tables, self.started = [], {}, time.time()

    def size(self, full, tiny):
        return tiny if self.rehearse else full

    def report(self, name, ok, text):
        ok = bool(ok)
        print(f"{'ok  ' if ok else 'FAIL'} {name}: {text}", flush=True)
        self.lines.append({"name": name, "ok": ok, "text": text, "at": round(time.time() - self.started, 1)})

    def failures(self):
        return [x["name"] for x in self.lines if not x["ok"]]

    def normal(self, *shape, seed=0, dtype=torch.bfloat16):
        g = torch.Generator(device=self.where).manual_seed(seed)
        return torch.randn(*shape, generator=g, device=self.where, dtype=torch.float32).to(dtype)

    def ints(self, values):
        return torch.tensor(values, dtype=torch.int32, device=self.where)

    def synchronize(self):
        if self.where == "cuda":
            torch.cuda.synchronize()

    def free(self):
        """Gives cached memory back, for the next large problem."""
        if self.where == "cuda":
            torch.cuda.synchronize()
            torch.cuda.empty_cache()


def dtype_of(recipe):
    return torch.float16 if recipe == "f16" else torch.bfloat16


def nan_like(shape, dtype, device):
    return torch.full(shape, float("nan"), dtype=dtype, device=device)


class Attention:
    """One problem: its tensors, its plan, and a workspace full of 0xFF between guards."""

    def __init__(
        self,
        c,
        recipe,
        q,
        k,
        v,
        device=None,
        lse=True,
        out=None,
        out_dtype=torch.float32,
        edit=None,
        accumulator=0,
        **options,
    ):
        packed = q.dim() == 3
        self.where = q.device
        self.out = nan_like((*q.shape[:-1], v.shape[-1]), out_dtype, q.device) if out is None else out
        shape = (q.shape[1], q.shape[0]) if packed else (q.shape[0], q.shape[2], q.shape[1])
        self.lse = lse if torch.is_tensor(lse) else nan_like(shape, torch.float32, q.device) if lse else None
        self.keep = (q, k, v, options)
        self.problem = c.quatt.problem(recipe, q, k, v, self.out, lse=self.lse, **options)
        self.problem.recipe.accumulator = accumulator
        if edit:  # layouts that torch has no view for
            edit(self.problem.tensors)
        self.plan = c.quatt.plan(self.problem, device or c.device)
        self.bytes = self.plan.workspace_bytes
        self.memory = torch.full(
            (self.bytes + 2 * GUARD + 256,), GUARD_BYTE, dtype=torch.uint8, device=q.device
        )
        self.at = GUARD + -(self.memory.data_ptr() + GUARD) % 256
        self.fill(0xFF)

    def fill(self, byte):
        self.memory[self.at : self.at + self.bytes].fill_(byte)

    def guards_intact(self):
        outside = torch.cat((self.memory[: self.at], self.memory[self.at + self.bytes :]))
        return bool((outside == GUARD_BYTE).all())

    def handle(self, stream=None):
        if self.where.type != "cuda":
            return None
        return (stream or torch.cuda.current_stream()).cuda_stream

    def run(self, stream=None):
        self.plan.run(self.problem.tensors, self.memory.data_ptr() + self.at, self.handle(stream))
        return self.out

    def quantize(self, packed, stream=None):
        """K and V into a tensor of bytes, aligned as the workspace."""
        self.plan.quantize(
            self.problem.tensors, packed.data_ptr(), self.memory.data_ptr() + self.at, self.handle(stream)
        )

    def attend(self, packed, stream=None):
        self.plan.attend(
            self.problem.tensors, packed.data_ptr(), self.memory.data_ptr() + self.at, self.handle(stream)
        )
        return self.out

    def again(self):
        """Outputs are NaN again, then another run."""
        self.out.fill_(float("nan"))
        if self.lse is not None:
            self.lse.fill_(float("nan"))
        return self.run()


def host(c, device, recipe, q, k, v, lse=True, like=None, **options):
    """(out, lse) of a host device, as f32 on the host. `like`: an Attention whose kernel is to be emulated."""
    # The accumulators of wgmma are Hopper's.
    hopper = like is not None and like.plan.info.kernel == b"wgmma"
    q, k, v = (x.cpu() for x in (q, k, v))
    options = {name: x.cpu() if torch.is_tensor(x) else x for name, x in options.items()}
    a = Attention(c, recipe, q, k, v, device, lse=lse, accumulator=int(hopper), **options)
    a.run()
    return a.out, a.lse


def bits_of(a):
    return a.run().clone(), a.lse.clone()


def same_bits(a, b):
    """NaN equals NaN of the same bits."""
    kind = {2: torch.int16, 4: torch.int32}[a.element_size()]
    return a.shape == b.shape and torch.equal(a.contiguous().view(kind), b.contiguous().view(kind))


def rel_l2(a, b):
    return ((a.double() - b.double()).norm() / b.double().norm()).item()


def exact_rows(q, k, v, rows, scale, causal=False):
    """fp64 attention of rows of a segment: q [Sq,H,D], k, v [Sk,Hkv,D] -> out [rows,H,D], lse [H,rows]."""
    group = q.shape[1] // k.shape[1]
    out = torch.empty(len(rows), q.shape[1], v.shape[2], dtype=torch.float64, device=q.device)
    lse = torch.empty(q.shape[1], len(rows), dtype=torch.float64, device=q.device)
    position = rows + (k.shape[0] - q.shape[0])
    for h in range(q.shape[1]):
        kh, vh = k[:, h // group].double(), v[:, h // group].double()
        s = q[rows, h].double() @ kh.T * scale
        if causal:
            s.masked_fill_(
                torch.arange(k.shape[0], device=q.device)[None, :] > position[:, None], float("-inf")
            )
        lse[h] = torch.logsumexp(s, 1)
        out[:, h] = torch.nan_to_num(torch.softmax(s, 1)) @ vh
    return out, lse


class Exact:
    """fp64 attention of a batch, and what its errors are in proportion to.

    q [B,Sq,H,D], k and v [B,Sk,Hkv,D(v)]; only the first q_lens[b] rows and k_lens[b] keys of an item count
    (what lies beyond must be finite). The noise is that of tests/support/attention.hpp: to first order an
    error of P or V moves the result by weight * v, one of the score by weight * (v - out).
    """

    def __init__(self, q, k, v, scale, causal=False, q_lens=None, k_lens=None):
        b, sq, heads, _ = q.shape
        sk, group = k.shape[1], heads // k.shape[2]
        lens = [
            torch.full((b,), n, device=q.device) if x is None else x.long()
            for n, x in ((sq, q_lens), (sk, k_lens))
        ]
        qd = q.double().transpose(1, 2)
        kd, vd = (x.double().transpose(1, 2).repeat_interleave(group, 1) for x in (k, v))
        s = qd @ kd.transpose(2, 3) * scale
        noise = (qd * qd) @ (kd * kd).transpose(2, 3) * scale**2
        row, key = torch.arange(sq, device=q.device), torch.arange(sk, device=q.device)
        hidden = (key[None, :] >= lens[1][:, None])[:, None, :].expand(b, sq, sk)
        if causal:
            hidden = hidden | (key[None, None, :] > row[None, :, None] + (lens[1] - lens[0])[:, None, None])
        s.masked_fill_(hidden[:, None], float("-inf"))
        self.lse = torch.logsumexp(s, 3) if sk else s.new_full((b, heads, sq), float("-inf"))
        w = torch.nan_to_num(torch.exp(s - self.lse[..., None]))
        out = w @ vd
        w2 = w * w
        wa = w2 * noise
        square = vd * vd
        spread = wa.sum(3, keepdim=True)
        noise2 = w2 @ square + wa @ square - 2 * out * (wa @ vd) + out * out * spread
        self.out, self.noise2 = out.transpose(1, 2), noise2.clamp_min_(0).transpose(1, 2)
        self.lse_noise = spread[..., 0].sqrt()
        self.valid = row[None, :] < lens[0][:, None]  # [B,Sq]

    def judge(self, recipe, out, lse=None):
        """Largest (rms error of an item, LSE error), each as part of what is allowed: <= 1 is good."""
        valid = self.valid[:, :, None, None]
        error = torch.where(valid, out.double() - self.out, 0.0).square().sum((1, 2, 3))
        noise = torch.where(valid, self.noise2, 0.0).sum((1, 2, 3))
        ratio = error.sqrt() / (2 * EXPECTED[recipe] * noise.sqrt() + 1e-30)
        worst = largest(ratio)
        if lse is None:
            return worst, 0.0
        off = (lse.double() - self.lse).abs()
        off = torch.where(lse.double() == self.lse, 0.0, off)  # -inf equals -inf
        allowed = (
            EXPECTED_LSE[recipe]
            + 5 * EXPECTED[recipe] * self.lse_noise
            + 1e-6 * self.lse.abs().clamp_max(1e30)
        )
        return worst, largest(torch.where(self.valid[:, None, :], off / allowed, 0.0))


def largest(x):
    """The largest element, infinite where one is NaN; 0 of nothing."""
    return torch.nan_to_num(x, nan=float("inf"), posinf=float("inf")).max().item() if x.numel() else 0.0


def unpack(x, bounds, longest=None):
    """Packed [T, ...] to [segments, longest, ...], zeros beyond a segment's length. bounds: a list."""
    lengths = [j - i for i, j in zip(bounds, bounds[1:])]
    longest = max(lengths, default=0) if longest is None else longest
    start = torch.tensor(bounds[:-1], device=x.device)[:, None]
    length = torch.tensor(lengths, device=x.device)[:, None]
    place = torch.arange(longest, device=x.device)[None, :]
    index = torch.where(place < length, start + place, 0)
    padded = x[index]
    mask = (place < length).reshape(len(lengths), longest, *(1,) * (x.dim() - 1))
    return torch.where(mask, padded, torch.zeros((), dtype=x.dtype, device=x.device))


def strided(x, strides, gap=float("nan"), misalign=0, slack=64):
    """(view, memory): a copy of x with these strides (elements) in memory that holds `gap` elsewhere."""
    reach = sum((n - 1) * s for n, s in zip(x.shape, strides) if n > 1)
    memory = torch.full((reach + 1 + misalign + 2 * slack,), gap, dtype=x.dtype, device=x.device)
    start = slack + misalign  # torch's memory is aligned to more than slack elements
    view = memory.as_strided(x.shape, strides, start)
    if x.numel():
        view.copy_(x)
    return view, memory


LOG = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p)
