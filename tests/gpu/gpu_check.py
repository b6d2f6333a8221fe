#!/usr/bin/env python3
"""Checks and times the GPU kernels against fp64, the host emulation and torch's attention.

usage: gpu_check.py LIBQUATT.so [--json FILE] [--only NAME,...] [--quick] [--rehearse] [--poison FILE.so]

Needs torch and a GPU. Names are those of `parts`. Prints a line a check, a table of times and the failures;
exits 1 if a check fails. --quick takes fewer cases. --rehearse runs tiny cases on the host by the executor (a
library built with QUATT_SIMT): a test of this program. scripts/gpu_check.sh builds all and calls this.
"""

import argparse
import ctypes
import faulthandler
import json
import sys
import time
import traceback
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))
from checks import basic, calls, lengths, numbers, random_problems, shapes  # noqa: E402
from gpu.common import Checks  # noqa: E402
from gpu.speed import speed  # noqa: E402

DEADLINE = 420  # seconds: something hangs


def poisoner(c, path):
    """A function that fills the shared memory of every multiprocessor with NaN."""
    if path is None or c.where != "cuda":
        return lambda: None
    fill = ctypes.CDLL(path).quatt_test_poison_shared
    fill.argtypes = [ctypes.c_void_p]

    def poison():
        error = fill(torch.cuda.current_stream().cuda_stream)
        if error != 0:
            raise RuntimeError(f"the kernel that fills shared memory: CUDA error {error}")

    return poison


def parts(c, args, state):
    """{name: function}, in order. Those of `gpu_only` need streams, device memory or time."""
    both = (c.device,) if c.rehearse else ("cuda", "emu:sm_120")
    return {
        "emulate": lambda: [basic.emulation(c, d) for d in both],
        "packed": lambda: [basic.packed_lists(c, d) for d in both],
        "large": lambda: [basic.large(c, d) for d in both],
        "huge_strides": lambda: shapes.huge_strides(c),
        "long_rows": lambda: shapes.long_rows(c),
        "all_sizes": lambda: lengths.all_sizes(c, poisoner(c, args.poison)),
        "padding": lambda: lengths.garbage_in_padding(c),
        "constants": lambda: numbers.constants(c),
        "ranges": lambda: numbers.ranges(c),
        "rising_maximum": lambda: numbers.rising_maximum(c),
        "lse": lambda: numbers.lse_everywhere(c),
        "empty": lambda: lengths.empty(c),
        "packed_lengths": lambda: lengths.packed_lengths(c),
        "random": lambda: random_problems.random_problems(c),
        "streams": lambda: calls.streams(c),
        "workspace": lambda: calls.workspace(c),
        "packed_kv": lambda: calls.packed_kv(c),
        "inputs_and_outputs": lambda: shapes.inputs_and_outputs(c),
        "fallbacks": lambda: calls.fallbacks(c),
        "strides": lambda: shapes.strides(c),
        "alternating": lambda: calls.alternating(c, state["fresh"]),
        "sinks": lambda: numbers.sinks(c),
        "sinks_beside_means": lambda: numbers.sinks_beside_means(c),
        "means_of_v": lambda: numbers.means_of_v(c),
        "tilings": lambda: numbers.tilings(c),
        "memory": lambda: calls.memory(c),
        "workspace_size": lambda: calls.workspace_size(c),
        "real_tensors": lambda: numbers.real_tensors(c),
        "speed": lambda: state["table"].extend(speed(c)),
    }


GPU_ONLY = {"large", "streams", "memory", "speed"}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("library")
    parser.add_argument("--json")
    parser.add_argument("--only", default="", help="names, separated by commas")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rehearse", action="store_true")
    parser.add_argument("--poison", help="shared object of tests/gpu/poison.cu")
    parser.add_argument("--digest", type=int, help="print the digest of one configuration (what `alternating` starts)")
    args = parser.parse_args()
    faulthandler.dump_traceback_later(DEADLINE, exit=True)
    c = Checks(args.library, quick=args.quick, rehearse=args.rehearse)
    if args.digest is not None:
        print(calls.configuration(c, args.digest))
        return 0

    state = {"table": []}
    todo = parts(c, args, state)
    names = [n for n in args.only.split(",") if n] or list(todo)
    unknown = [n for n in names if n not in todo]
    if unknown:
        parser.error(f"--only {', '.join(unknown)}: the names are {', '.join(todo)}")
    if c.rehearse:
        names = [n for n in names if n not in GPU_ONLY]
    if "alternating" in names:
        state["fresh"] = calls.start_fresh(c)
        if "memory" in names or "workspace" in names:
            for p in state["fresh"]:  # their memory must not change under the checks that look at it
                p.wait(120)
    seconds = {}
    for name in names:
        start = time.time()
        try:
            todo[name]()
        except Exception as e:  # the other parts still count
            c.report(name, False, f"stopped by {type(e).__name__}: {e}")
            traceback.print_exc()
        c.free()
        seconds[name] = round(time.time() - start, 1)

    gpu = torch.cuda.get_device_name() if c.where == "cuda" else "executor"
    print("\nseconds: " + ", ".join(f"{n} {s}" for n, s in seconds.items()))
    print("\n".join(state["table"]))
    failures = c.failures()
    if args.json:
        with open(args.json, "w") as f:
            json.dump(
                {
                    "gpu": gpu,
                    "torch": torch.__version__,
                    "failures": failures,
                    "seconds": seconds,
                    "checks": c.lines,
                    "tables": c.tables,
                },
                f,
                indent=1,
            )
    print(
        f"\n{gpu}: {len(c.lines)} checks, {len(failures)}"
        f" failed{': ' + '; '.join(failures) if failures else ''}"
    )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
