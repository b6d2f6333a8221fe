"""What a call promises: streams and graphs, workspace, fallbacks, the same bits in any order of calls, memory."""

import ctypes
import hashlib
import subprocess
import sys
import time
from pathlib import Path

import torch

from gpu.common import GUARD, GUARD_BYTE, LOG, Attention, dtype_of, same_bits

RECIPES = ("bf16", "f16", "fp8")
UNSUPPORTED = 2


def streams(c):
    """A non-blocking stream runs while the legacy stream is blocked; a graph replays on new inputs."""
    q, k, v = (c.normal(2000, 8, 128, seed=i) for i in range(3))
    for recipe in ("bf16", "fp8"):
        a = Attention(c, recipe, q.clone(), k.clone(), v.clone())
        eager = a.run().clone()
        torch.cuda.synchronize()
        side = torch.cuda.Stream()  # torch makes these non-blocking
        blocked, done = torch.cuda.Event(), torch.cuda.Event()
        with torch.cuda.stream(torch.cuda.default_stream()):
            torch.cuda._sleep(2_000_000_000)  # a second
            blocked.record()
        with torch.cuda.stream(side):
            start = time.time()
            for _ in range(3):
                a.run(side)
            issued = time.time() - start
            done.record(side)
        while not done.query() and time.time() < start + 5:
            time.sleep(0.0005)
        independent = done.query() and not blocked.query()
        torch.cuda.synchronize()
        independent &= torch.equal(a.out, eager)

        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            a.run()
        a.keep[0].copy_(q.flip(0))
        a.keep[1].copy_(k * 2)
        graph.replay()
        torch.cuda.synchronize()
        replayed, replayed_lse = a.out.clone(), a.lse.clone()
        b = Attention(c, recipe, q.flip(0).contiguous(), k * 2, v)
        same = torch.equal(replayed, b.run()) and torch.equal(replayed_lse, b.lse)

        # New lengths: the work list is built on the device.
        cu = c.ints([0, 500, 2000])
        d = Attention(c, recipe, q, k, v, cu_seqlens_q=cu)
        d.run()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            d.run()
        cu.copy_(c.ints([0, 1501, 1900]))
        d.out.fill_(float("nan"))
        graph.replay()
        e = Attention(c, recipe, q, k, v, cu_seqlens_q=c.ints([0, 1501, 1900]))
        lengths = same_bits(d.out, e.run())

        two = [torch.cuda.Stream() for _ in range(2)]
        pair = [Attention(c, recipe, q, k, v) for _ in two]
        torch.cuda.synchronize()
        for _ in range(5):
            for s, x in zip(two, pair):
                x.run(s)
        torch.cuda.synchronize()
        both = all(torch.equal(x.out, eager) for x in pair)
        c.report(
            f"{recipe} streams and graphs",
            independent and same and lengths and both,
            f"independent of the legacy stream {independent} (issued in {1e3 * issued:.2f} ms), replay on new"
            f" inputs bit-equal {same}, on new lengths {lengths}, two streams at once bit-equal {both}",
        )


def workspace_formula(tokens, heads, lse=True):
    """Bytes of an fp8 call, head size 128, one segment, Hq = Hkv: call.hpp's parts, rounded up to 256."""
    tiles = tokens // 64 + 1
    parts = {
        "segments": 64,
        "work list": 24,
        "Q codes": heads * tiles * 64 * 128,  # rows in tiles of 64
        "K codes": heads * tiles * 64 * 128,
        "V codes": heads * tiles * 64 * 128,
        "Q factors": 4 * heads * tokens,
        "LSE shifts": 4 * heads * tokens if lse else 0,
        "K scales": 16 * heads * tiles,  # and which tokens are far
        "V scales, V means, K means": 3 * (-(-4 * heads * 128 // 256) * 256),
        "V scales of the sample, values beyond them": 2 * (-(-4 * heads * 128 // 256) * 256),
        "where the sample lied": 4 * heads,
    }
    return sum(-(-x // 256) * 256 for x in parts.values())


def workspace(c):
    """No allocation or synchronisation in run(); an exact, monotone workspace of any content."""
    for recipe in RECIPES:
        dtype = dtype_of(recipe)
        shapes = [(200, 2, 128), (150, 3, 64), (130, 2, 72), (1, 1, 128), (129, 5, 33)]
        cases = [
            Attention(c, recipe, *(c.normal(*s, seed=i, dtype=dtype) for i in range(3)), causal=causal)
            for s in shapes
            for causal in (0, 1)
        ]
        cases += [
            Attention(c, recipe, *(c.normal(2, *s, seed=i, dtype=dtype) for i in range(3))) for s in shapes
        ]
        cases += [
            Attention(
                c,
                recipe,
                *(c.normal(*s, seed=i, dtype=dtype) for i in range(3)),
                cu_seqlens_q=c.ints([0, s[0] // 3, s[0] // 3, s[0]]),
            )
            for s in shapes
        ]
        content = guards = True
        for a in cases:
            first, lse = a.run().clone(), a.lse.clone()
            for byte in (0x00, 0x7F, 0x5A):
                a.fill(byte)
                a.again()
                content &= same_bits(a.out, first) and same_bits(a.lse, lse)
            guards &= a.guards_intact()
        try:  # one byte less is refused
            c.quatt.check(
                c.quatt.lib.quatt_run(
                    cases[0].plan.handle,
                    ctypes.byref(cases[0].problem.tensors),
                    ctypes.c_void_p(cases[0].memory.data_ptr() + cases[0].at),
                    ctypes.c_size_t(cases[0].bytes - 1),
                    None,
                )
            )
            exact = cases[0].bytes == 0
        except RuntimeError:
            exact = True

        monotone = True
        base = {"b": 2, "sq": 100, "sk": 150, "group": 2, "hkv": 2, "dim": 40, "dim_v": 30}
        for name, most in (
            ("b", 20),
            ("sq", 300),
            ("sk", 300),
            ("group", 5),
            ("hkv", 5),
            ("dim", 128),
            ("dim_v", 128),
        ):
            last = 0
            for n in range(1, most + 1):
                x = dict(base, **{name: n})
                q = torch.empty(x["b"], x["sq"], x["group"] * x["hkv"], x["dim"], dtype=dtype)
                k, v = (
                    torch.empty(x["b"], x["sk"], x["hkv"], d, dtype=dtype) for d in (x["dim"], x["dim_v"])
                )
                p = c.quatt.problem(recipe, q, k, v, torch.empty(*q.shape[:-1], x["dim_v"]))
                for t in (p.tensors.q, p.tensors.k, p.tensors.v, p.tensors.out):
                    t.data = None
                status, message, info = c.quatt.query(p, c.device)
                # NOTE: 16-bit heads of 64 and 128 are read where they are: nothing is packed, so that less is
                # needed.
                direct = (
                    recipe != "fp8"
                    and name in ("dim", "dim_v")
                    and x["dim"] == x["dim_v"]
                    and x["dim"] in (64, 128)
                )
                monotone &= status == 0 and (info.workspace_bytes >= last or direct)
                last = info.workspace_bytes
        text = (
            f"bits with workspaces of 0xFF, 0, 0x7F, 0x5A equal {content}, guards intact {guards}, one byte"
            f" less refused {exact}, monotone {monotone}"
        )
        good = content and guards and exact and monotone
        if c.where == "cuda":
            for a in cases:
                a.run()
            torch.cuda.synchronize()
            before = torch.cuda.mem_get_info()[0]
            for _ in range(50):
                for a in cases:
                    a.run()
            torch.cuda.synchronize()
            kept = before - torch.cuda.mem_get_info()[0]
            # The stream is busy for half a second: a call that waits for it shows.
            torch.cuda._sleep(1_000_000_000)
            busy = torch.cuda.Event()
            busy.record()
            start = time.time()
            for a in cases:
                a.run()
            issued, still = time.time() - start, not busy.query()
            torch.cuda.synchronize()
            good &= kept == 0 and still
            text += (
                f", memory taken by {50 * len(cases)} runs {kept}, {len(cases)} runs issued in"
                f" {1e3 * issued:.1f} ms while the stream was blocked {still}"
            )
        c.report(f"{recipe} workspace", good, text)


def packed_kv(c):
    """K and V packed once: two plans attend to them with the bits of a run, in a graph too, without k and v."""
    n = c.size(4000, 150)
    for name, dim, options in (
        ("dense", 128, {}),
        ("causal", 64, {"causal": 1}),
        ("padded heads", 40, {}),
        ("segments", 128, {"cu_seqlens_k": c.ints([0, n // 3, n // 3, n])}),
    ):
        q, few = c.normal(n, 4, dim), c.normal(n // 5, 8, dim, seed=3)
        k, v = (c.normal(n, 2, dim, seed=i) for i in (1, 2))
        lengths = [{}, {}]
        if "cu_seqlens_k" in options:
            lengths = [{"cu_seqlens_q": c.ints([0, x // 2, x // 2 + 1, x])} for x in (n, n // 5)]
        one = Attention(c, "fp8", q, k, v, **options, **lengths[0])
        two = Attention(c, "fp8", few, k, v, lse=False, out_dtype=torch.bfloat16, **options, **lengths[1])
        want = [x.run().clone() for x in (one, two)]
        want_lse = one.lse.clone()
        size = one.plan.packed_bytes
        packed = torch.full((size + 2 * GUARD,), GUARD_BYTE, dtype=torch.uint8, device=c.where)
        keys = packed[GUARD : GUARD + size]
        for x in (one, two):
            x.fill(0xFF)
        one.quantize(keys)
        c.synchronize()
        for x in (one, two):
            x.problem.tensors.k.data = x.problem.tensors.v.data = None
        for t in (k, v):
            t.fill_(float("nan"))
        before = keys.clone()

        def attend():
            for x in (one, two):
                x.attend(keys)

        def is_same():
            c.synchronize()
            same = same_bits(one.out, want[0]) and same_bits(one.lse, want_lse) and same_bits(two.out, want[1])
            for x in (one, two):
                x.out.fill_(float("nan"))
            one.lse.fill_(float("nan"))
            return same

        is_same()  # outputs are NaN from here on
        attend()
        eager = is_same()
        replayed = [True]
        if c.where == "cuda":
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                attend()
            replayed = []
            for _ in range(2):
                graph.replay()
                replayed.append(is_same())
        outside = torch.cat((packed[:GUARD], packed[GUARD + size :]))
        intact = bool((outside == GUARD_BYTE).all()) and torch.equal(keys, before)
        intact &= one.guards_intact() and two.guards_intact()
        sizes = two.plan.packed_bytes == size
        c.report(
            f"packed K and V, {name}",
            eager and all(replayed) and intact and sizes,
            f"bits of runs {eager}, replayed in a graph {replayed}, nothing else written {intact}, one size {sizes}",
        )


def fallbacks(c):
    """A fallback is taken where allowed, says so, and is an error in strict mode."""
    messages = []
    log = LOG(lambda user, message: messages.append(message.decode()))
    q, k, v = (c.normal(100, 2, 128, seed=i) for i in range(3))
    out = torch.empty(100, 2, 128, device=c.where)
    wrong = []

    def problem(recipe, **options):
        return c.quatt.problem(recipe, q, k, v, out, log=ctypes.cast(log, ctypes.c_void_p), **options)

    for recipe, options, why in (
        ("int8_fp8", {}, "recipe"),
        ("fp8", {"sink": torch.zeros(2, device=c.where)}, "sink"),
        ("fp8", {"window_left": 5}, "window"),
    ):
        status, plain, _ = c.quatt.query(problem(recipe, **options), c.device)
        if status != UNSUPPORTED or why not in plain:
            wrong.append(f"{why}: status {status}, {plain!r}")
        status, strict, _ = c.quatt.query(problem(recipe, allow_fallback=1, strict=1, **options), c.device)
        if status != UNSUPPORTED or "strict" not in strict:
            wrong.append(f"{why}, strict: status {status}, {strict!r}")
        messages.clear()
        try:
            plan = c.quatt.plan(problem(recipe, allow_fallback=1, **options), c.device)
        except RuntimeError as e:
            wrong.append(f"{why}, allowed: {e}")
            continue
        kernel, device = plan.info.kernel.decode(), plan.info.device.decode()
        if (
            not plan.info.fallback
            or len(messages) != 1
            or why not in messages[0]
            or kernel not in messages[0]
        ):
            wrong.append(
                f"{why}, allowed: fallback {plan.info.fallback}, {kernel} on {device}, log {messages}"
            )
        if c.where == "cuda":
            space = torch.empty(plan.workspace_bytes + 64, dtype=torch.uint8, device="cuda")
            p = problem(recipe, allow_fallback=1, **options)
            try:
                plan.run(
                    p.tensors, (space.data_ptr() + 63) // 64 * 64, torch.cuda.current_stream().cuda_stream
                )
                same = same_bits(out, Attention(c, "bf16", q, k, v, lse=False).run())
                if not (device.startswith("cuda") and why == "recipe" and same):
                    wrong.append(f"{why}: ran on {device}, bits of bf16 {same}")
            except RuntimeError as e:
                # A host kernel must refuse the GPU's memory rather than crash on it.
                if device.startswith("cuda"):
                    wrong.append(f"{why}: {e}")
    info = Attention(c, "fp8", q, k, v).plan.info
    hopper = c.where != "cuda" or torch.cuda.get_device_capability() == (9, 0)  # a rehearsal is on simt:sm_90
    if info.kernel.decode() != ("wgmma" if hopper else "warp_mma") or info.fallback:
        wrong.append(f"plan names {info.kernel.decode()}, fallback {info.fallback}")
    c.report("fallbacks", not wrong, f"wrong: {wrong or 'none'}")


def configuration(c, number):
    """Digest of one configuration's bits, for `alternating`."""
    recipe, shape, options = [
        ("fp8", (700, 4, 128), {}),
        ("bf16", (333, 3, 64), {"causal": 1}),
        ("fp8", (130, 2, 80), {"causal": 1}),
    ][number]
    a = Attention(c, recipe, *(c.normal(*shape, seed=i) for i in range(3)), **options)
    a.run()
    return hashlib.sha256(a.out.cpu().numpy().tobytes() + a.lse.cpu().numpy().tobytes()).hexdigest()


def start_fresh(c):
    """The processes of `alternating`, started early: importing torch takes seconds."""
    script = str(Path(__file__).resolve().parents[1] / "gpu_check.py")
    flags = ["--rehearse"] if c.rehearse else []
    return [
        subprocess.Popen(
            [sys.executable, script, c.library, "--digest", str(n), *flags], stdout=subprocess.PIPE, text=True
        )
        for n in range(3)
    ]


def alternating(c, fresh):
    """Configurations that alternate in one process give the bits of fresh processes."""
    alone = [p.communicate(timeout=120)[0].split()[-1] for p in fresh]
    together = [[configuration(c, n) for n in (0, 1, 2, 1, 0, 2)] for _ in range(2)]
    good = all(digest == alone[n] for row in together for n, digest in zip((0, 1, 2, 1, 0, 2), row))
    c.report("alternating configurations", good, f"3 configurations, bits of fresh processes {good}")


def memory(c):
    """Nothing is kept between calls: device memory is back at its baseline after 20 shapes in turn."""
    shapes = [(100 + 977 * i, 1 + i % 7, (64, 128)[i % 2]) for i in range(20)]

    def one(shape, recipe):
        q, k, v = (torch.ones(*shape, dtype=torch.bfloat16, device="cuda") for _ in range(3))
        a = Attention(c, recipe, q, k, v)
        a.run()
        torch.cuda.synchronize()

    for recipe in ("bf16", "fp8"):  # modules are loaded at their first use
        for shape in shapes[:2]:
            one(shape, recipe)
    c.free()
    baseline = torch.cuda.mem_get_info()[0]
    largest_use = 0
    for _ in range(2):
        for shape in shapes:
            for recipe in ("bf16", "fp8"):
                one(shape, recipe)
                largest_use = max(largest_use, baseline - torch.cuda.mem_get_info()[0])
    c.free()
    kept = baseline - torch.cuda.mem_get_info()[0]
    c.report(
        "memory",
        kept == 0,
        f"20 shapes in turn took up to {largest_use / 1e6:.0f} MB; after them {kept} bytes more than before",
    )


def workspace_size(c):
    """The workspace at the size of the target, and its formula."""
    q = torch.empty(1, dtype=torch.bfloat16).expand(30272, 56, 128)
    p = c.quatt.problem(
        "fp8",
        q,
        q,
        q,
        torch.empty(1, dtype=torch.bfloat16).expand(30272, 56, 128),
        lse=torch.empty(1).expand(56, 30272),
    )
    for t in (p.tensors.q, p.tensors.k, p.tensors.v, p.tensors.out, p.tensors.lse):
        t.data = None
    for t, extents in (
        (p.tensors.q, (30272, 56, 128)),
        (p.tensors.k, (30272, 56, 128)),
        (p.tensors.v, (30272, 56, 128)),
        (p.tensors.out, (30272, 56, 128)),
        (p.tensors.lse, (56, 30272)),
    ):
        step = 1
        for i in reversed(range(len(extents))):
            t.stride[i] = step
            step *= extents[i]
    status, message, info = c.quatt.query(p, c.device)
    want = workspace_formula(30272, 56)
    good = status == 0 and info.workspace_bytes == want and want <= 700e6
    c.report(
        "workspace size",
        good,
        f"S=30272, H=56: {info.workspace_bytes / 1e6:.1f} MB {message}; H (3 * 64 * 128 T + 8 S + 16 T"
        f" + 3 * 4 * 128 + 16 * 128 (S/128 + 1)), T = S/64 + 1: {want / 1e6:.1f} MB; allowed 700 MB",
    )
