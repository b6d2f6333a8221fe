#!/usr/bin/env python3
"""Times of the device `cpu` beside torch's attention on the same CPU, quantisation included. Prints a table in Markdown.

usage: cpu_peers.py [--library build/release/libquatt.so] [--kernels cpu_avx2,...] [--recipes fp8,...] [--rounds 21]

Needs torch (any build of it that runs on the CPU). Every round runs all candidates in another order; ratios are taken within
a round. A sample is the mean of the calls of .1 s; one during which other processes had more than a tenth of a core is taken
again, up to 8 times, and left out where that did not help; the lines below a table say how many were, and how busy the machine
was. Exit status 1: a candidate has no time at all. quatt reads and writes bf16; torch fp32 and torch bf16 read and write their own
type.
"""

import argparse
import math
import os
import random
import statistics
import sys
import time

SHAPES = ((4096, 128, 8), (918, 64, 8))  # tokens, channels, heads; batch 1
RECIPES = "bf16,f16,fp8,fp8_head,int8_fp8,nvfp4_fp8"
PEERS = ("torch fp32", "torch bf16")
PAUSE_S = 0.03  # torch's threads spin for a while after their work
SAMPLE_S, LEAST_OTHERS, TRIES = 0.1, 0.1, 8


def quatt_call(torch, quatt, recipe, kernel, qkv, threads):
    """A function that runs the recipe, its kernel's name and its error on the first rows."""
    q, k, v = (x.transpose(1, 2) for x in qkv)  # [B, S, H, D] as views of torch's [B, H, S, D]
    out = torch.empty_like(q)
    options = dict(threads=threads)
    if kernel:
        options["kernel"] = kernel.encode()
    problem = quatt.problem(recipe, q, k, v, out, **options)
    plan = quatt.plan(problem, "cpu")
    workspace = torch.empty(plan.workspace_bytes + 64, dtype=torch.uint8)
    pointer = (workspace.data_ptr() + 63) // 64 * 64

    def run():
        plan.run(problem.tensors, pointer)

    run.keep = (q, k, v, out, workspace)
    run()
    exact = torch.nn.functional.scaled_dot_product_attention(qkv[0][:, :, :128].double(), qkv[1].double(), qkv[2].double())
    error = (out.transpose(1, 2)[:, :, :128].double() - exact).norm() / exact.norm()
    return run, plan.info.kernel.decode(), error.item()


def machine_seconds():
    """Core seconds that all processes have used."""
    with open("/proc/stat", encoding="ascii") as stat:
        user, nice, system = (int(x) for x in stat.readline().split()[1:4])
    return (user + nice + system) / os.sysconf("SC_CLK_TCK")


def sample(call):
    """(s a call, cores that other processes had meanwhile)"""
    time.sleep(PAUSE_S)
    start, machine, own, calls = time.perf_counter(), machine_seconds(), time.process_time(), 0
    while time.perf_counter() - start < SAMPLE_S:
        call()
        calls += 1
    wall = time.perf_counter() - start
    return wall / calls, (machine_seconds() - machine - time.process_time() + own) / wall


def measure(candidates, rounds, seed=1, take=sample):
    """({name: [s a round, None where other processes disturbed it]}, {name: [cores that they had then]}); the first round warms up."""
    times, busy = ({name: [] for name in candidates} for _ in range(2))
    order = list(candidates)
    shuffle = random.Random(seed).shuffle
    for i in range(rounds + 1):
        shuffle(order)
        for name in order:
            least = math.inf
            for _ in range(TRIES):
                seconds, others = take(candidates[name])
                least = min(least, others)
                if others < LEAST_OTHERS:
                    break
            if i > 0:
                quiet = least < LEAST_OTHERS
                times[name].append(seconds if quiet else None)
                busy[name] += [] if quiet else [least]
    return times, busy


def ratios(times, name, peer):
    r = sorted(p / t for t, p in zip(times[name], times[peer]) if t and p)
    if not r:
        return "-"
    quarter = len(r) // 4
    return f"{statistics.median(r):.2f} ({r[quarter]:.2f} to {r[-1 - quarter]:.2f}, {len(r)})"


def table(times, told, flop):
    """Lines in Markdown. A candidate without any time has a dash, and disturbances() says why."""
    yield "| what | kernel | ms | GFLOP/s | x torch fp32 | x torch bf16 | rel-L2 |"
    yield "|---|---|---|---|---|---|---|"
    for name, taken in times.items():
        quiet = [t for t in taken if t]
        seconds = statistics.median(quiet) if quiet else None
        ms, rate = (f"{seconds * 1e3:.1f}", f"{flop / seconds * 1e-9:.0f}") if quiet else ("-", "-")
        kernel, error = told[name]
        label = name if name in PEERS else f"`{name.split()[0]}`"
        yield f"| {label} | {kernel} | {ms} | {rate} | {ratios(times, name, PEERS[0])} | {ratios(times, name, PEERS[1])} | {error} |"


def disturbances(times, busy):
    """Lines that say what is missing from the table, and why; none where nothing is."""
    if not any(busy.values()):
        return
    yield (f"Left out, because other processes had {LEAST_OTHERS} cores or more during each of {TRIES} tries "
           "(how many they had at least, median):")
    for name, cores in busy.items():
        if cores:
            yield f"- {name}: {len(cores)} of {len(times[name])} rounds ({statistics.median(cores):.1f} cores)"
    if any(len(busy[name]) == len(times[name]) for name in times):
        yield "A dash is a candidate of which no round is left: measure again where nothing else runs."


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--library", default="build/release/libquatt.so")
    parser.add_argument("--kernels", default="")
    parser.add_argument("--recipes", default=RECIPES)
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    try:
        import torch
    except ImportError as error:
        print(f"cpu_peers.py needs Python 3 with torch: {error}", file=sys.stderr)
        return 1
    from quatt_c import Quatt

    complete = True
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    quatt = Quatt(args.library)
    print(f"{args.threads} threads, torch {torch.__version__} ({torch.backends.cpu.get_cpu_capability()}), "
          f"{args.rounds} rounds: medians; ratios (quartiles, rounds)\n")
    for tokens, channels, heads in SHAPES:
        fp32 = [torch.randn(1, heads, tokens, channels) for _ in range(3)]
        bf16 = [x.bfloat16() for x in fp32]
        sdpa = torch.nn.functional.scaled_dot_product_attention
        candidates = {"torch fp32": lambda qkv=fp32: sdpa(*qkv), "torch bf16": lambda qkv=bf16: sdpa(*qkv)}
        told = {name: ("", "") for name in PEERS}
        for kernel in args.kernels.split(","):
            for recipe in args.recipes.split(","):
                run, chosen, error = quatt_call(torch, quatt, recipe, kernel, bf16, args.threads)
                candidates[f"{recipe} {chosen}"] = run
                told[f"{recipe} {chosen}"] = (chosen, f"{error:.4f}")
        times, busy = measure(candidates, args.rounds)
        print(f"B=1 H={heads} S={tokens} D={channels}\n")
        print(*table(times, told, 4 * tokens * tokens * channels * heads), "", sep="\n", flush=True)
        lines = list(disturbances(times, busy))
        print(*lines, sep="\n", end="\n\n" if lines else "", flush=True)
        complete = complete and all(any(taken) for taken in times.values())
    return 0 if complete else 1


if __name__ == "__main__":
    sys.exit(main())
