"""Random problems, sound and unsound."""

import random

import torch

from gpu.common import Attention, Exact, dtype_of, strided, unpack

RECIPES = ("bf16", "f16", "fp8")


def random_tensor(c, r, shape, dtype, seed):
    """Numbers in memory of a random layout, NaN between them."""
    x = c.normal(*shape, seed=seed, dtype=dtype)
    kind = r.random()
    if kind < 0.4:
        return x
    order = list(range(len(shape)))
    r.shuffle(order)
    steps, step = [0] * len(shape), r.choice((1, 1, 2, 3))
    for axis in order:
        steps[axis] = step
        step = step * max(shape[axis], 1) + r.choice((0, 0, 1, 5, 8))
    for axis, n in enumerate(shape):
        if n == 1 and r.random() < 0.5:
            steps[axis] = r.randint(0, 9)  # never used
    return strided(x, steps, misalign=r.choice((0, 0, 1, 2, 4, 8)))[0]


def random_problem(c, seed):
    """(recipe, q, k, v, options, fault, per item: query rows and keys as lists of bounds or lengths)"""
    r = random.Random(seed)
    recipe = r.choice(RECIPES)
    dtype = r.choice((torch.bfloat16, torch.float16)) if recipe == "fp8" else dtype_of(recipe)
    hkv = r.randint(1, 3)
    hq = hkv * r.randint(1, 3)
    dim = r.choice((64, 128, 128, r.randint(1, 128)))
    dim_v = dim if r.random() < 0.7 else r.randint(1, 128)
    top = c.size(300, 40)

    def tokens():
        return r.choice((r.randint(0, 40), r.randint(1, top)))

    options = {"causal": int(r.random() < 0.4), "softmax_scale": dim**-0.5 * r.uniform(0.2, 1.5)}
    packed = r.random() < 0.5
    if packed:
        count = r.randint(1, 5)
        q_lens, k_lens = ([0 if r.random() < 0.2 else tokens() for _ in range(count)] for _ in range(2))
        if r.random() < 0.5:
            k_lens = list(q_lens)
        q_bounds, k_bounds = ([sum(x[:i]) for i in range(count + 1)] for x in (q_lens, k_lens))
        options["cu_seqlens_q"] = c.ints(q_bounds)
        if q_lens != k_lens or r.random() < 0.3:
            options["cu_seqlens_k"] = c.ints(k_bounds)
        extra_q = r.choice((0, 0, 17))
        extra_k = extra_q if q_lens == k_lens else r.choice((0, 9))
        shapes = (
            (q_bounds[-1] + extra_q, hq, dim),
            (k_bounds[-1] + extra_k, hkv, dim),
            (k_bounds[-1] + extra_k, hkv, dim_v),
        )
        options["zero_tail"] = int(r.random() < 0.3)
    else:
        count, sq, sk = r.randint(1, 3), tokens(), tokens()
        q_lens, k_lens = [sq] * count, [sk] * count
        q_bounds, k_bounds = None, None
        shapes = ((count, sq, hq, dim), (count, sk, hkv, dim), (count, sk, hkv, dim_v))
    q, k, v = (random_tensor(c, r, s, dtype, seed + i) for i, s in enumerate(shapes))
    if r.random() < 0.3:
        k_lens = [r.randint(0, n) for n in k_lens]
        options["kv_lens"] = c.ints(k_lens)
    options["out_dtype"] = torch.float32
    fault = None
    if r.random() < 0.2:
        fault = r.choice(
            ("window", "sink", "splits", "tile", "wide", "mixed", "recipe", "f32", "scale", "heads", "rank")
        )
        if fault == "window":
            options["window_left"] = r.randint(0, 50)
        elif fault == "sink":
            options["sink"] = torch.zeros(hq, device=c.where)
        elif fault == "splits":
            options["splits"] = 3
        elif fault == "tile":
            options["key_tile"] = r.choice((96, 128, 192, 256))
        elif fault == "wide":
            q, k = (torch.zeros((*x.shape[:-1], 192), dtype=dtype, device=c.where) for x in (q, k))
        elif fault == "mixed":
            k = k.to(torch.bfloat16 if dtype == torch.float16 else torch.float16)
        elif fault == "recipe":
            recipe = r.choice(("int8_fp8", "nvfp4", "fp8_head"))
        elif fault == "f32":
            q, k, v = q.float(), k.float(), v.float()
        elif fault == "scale":
            options["softmax_scale"] = r.choice((0.0, -1.0, float("nan"), float("inf")))
        elif fault == "heads":
            k = torch.zeros((*k.shape[:-2], hq + 1, k.shape[-1]), dtype=k.dtype, device=c.where)
        elif fault == "rank":
            q = q[0] if q.dim() == 4 else q[None]
    return recipe, q, k, v, options, fault, (q_bounds, k_bounds, q_lens, k_lens)


def random_problems(c):
    """What query accepts is accurate; what it refuses, the plan refuses in the same words."""
    count = 400 if c.quick else 3000
    count = c.size(count, 60)
    wrong, accepted, refused = [], 0, 0
    for seed in range(count):
        recipe, q, k, v, options, fault, (q_bounds, k_bounds, q_lens, k_lens) = random_problem(c, 1000 * seed)
        given = dict(options)
        given.pop("out_dtype")
        out = torch.empty((*q.shape[:-1], v.shape[-1]), device=c.where)
        status, message, _ = c.quatt.query(c.quatt.problem(recipe, q, k, v, out, **given), c.device)
        if status != 0:
            refused += 1
            try:
                Attention(c, recipe, q, k, v, **options)
                again = "accepted"
            except RuntimeError as e:
                again = str(e)
            if fault is None or not message:
                wrong.append(f"{seed}: refused without a fault: {message}")
            elif again != message and "lse" not in again:  # lse is one more tensor whose shape may not fit
                wrong.append(f"{seed} {fault}: query says {message!r}, plan says {again!r}")
            continue
        accepted += 1
        if fault is not None:
            wrong.append(f"{seed}: accepted with fault {fault}")
            continue
        a = Attention(c, recipe, q, k, v, **options)
        a.run()
        out, lse = a.out, a.lse
        if q_bounds is not None:
            longest_q, longest_k = max(q_lens), max(b - a for a, b in zip(k_bounds, k_bounds[1:]))
            if q_bounds[-1] == 0 or longest_k == 0 and k.shape[0] == 0:
                continue
            rest, rest_lse = out[q_bounds[-1] :], lse[:, q_bounds[-1] :]
            clean = (
                (rest == 0).all() and torch.isneginf(rest_lse).all()
                if options["zero_tail"]
                else torch.isnan(rest).all() and torch.isnan(rest_lse).all()
            )
            if not clean:
                wrong.append(f"{seed}: rows past the end")
            q, out = unpack(q, q_bounds, longest_q), unpack(out, q_bounds, longest_q)
            k, v = unpack(k, k_bounds, longest_k), unpack(v, k_bounds, longest_k)
            lse = unpack(lse.T, q_bounds, longest_q).transpose(1, 2)
        exact = Exact(q, k, v, options["softmax_scale"], options["causal"], c.ints(q_lens), c.ints(k_lens))
        error, lse_error = exact.judge(recipe, out, lse)
        if not (error <= 1 and lse_error <= 1 and a.guards_intact()):
            wrong.append(
                f"{seed} {recipe}: {error:.2f} and {lse_error:.2f} of the allowed errors, guards"
                f" {a.guards_intact()}"
            )
    c.report(
        "random problems",
        not wrong,
        f"{accepted} accurate, {refused} refused; wrong: {wrong[:5] or 'none'}",
    )
