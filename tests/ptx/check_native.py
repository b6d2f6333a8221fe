#!/usr/bin/env python3
"""Compiles every ptx wrapper and the test kernels with nvcc, and looks at the machine code.

usage: check_native.py compile|sass [--nvcc NVCC] [--cuobjdump CUOBJDUMP]

compile: all architectures must build, and what an architecture lacks must be refused by name.
sass: exits 77 (skipped) where cuobjdump and nvdisasm are not found.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SKIPPED = 77

sys.path.insert(0, str(ROOT / "tests" / "sass"))
import machine_code  # noqa: E402  the folder comes first

# compute_120f: one binary for the sm_120 family (120 and 121).
COMPLETE = ("90a", "120f")
FLAGS = {"90a": ("-DQUATT_WITH_WGMMA",), "120f": ()}
COMMON_ONLY = ("80", "86", "89")


def compile_wrappers(nvcc, architecture, output, *flags):
    command = [nvcc, "-std=c++20", "-O3", f"-I{ROOT / 'src'}", f"-I{ROOT / 'tests'}",
               "-gencode", f"arch=compute_{architecture},code=sm_{architecture}", "-Werror", "all-warnings",
               *flags, "-cubin", "-o", str(output), str(HERE / "wrappers.cu")]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def check_compile(nvcc, folder):
    failures = 0
    cases = [(a, FLAGS[a]) for a in COMPLETE] + [(a, ("-DQUATT_COMMON_ONLY",)) for a in COMMON_ONLY]
    for architecture, flags in cases:
        result = compile_wrappers(nvcc, architecture, folder / "out.cubin", *flags)
        print(f"sm_{architecture} {' '.join(flags)}: {'ok' if result.returncode == 0 else 'FAILED'}")
        if result.returncode != 0:
            failures += 1
            print(result.stdout + result.stderr)
    for architecture, flags, what in (("80", (), "bulk copies"), ("120f", FLAGS["90a"], "wgmma")):
        result = compile_wrappers(nvcc, architecture, folder / "out.cubin", *flags)
        refused = result.returncode != 0 and re.search(r"quatt_\w+_needs_sm_90", result.stdout + result.stderr)
        print(f"sm_{architecture} refuses {what} by name: {'ok' if refused else 'FAILED'}")
        failures += 0 if refused else 1
    return failures


def functions(tools, cubin):
    """{function name: list of instructions as text}"""
    listing = machine_code.disassemble(tools, cubin)[0]
    return {name: [f"{i.name} {i.operands}" for i in code] for (_, name), code in listing.items()}


def check_sass(nvcc, cuobjdump, folder):
    tools = machine_code.find_disassembler(cuobjdump)
    if tools is None:
        print(f"skipped: {machine_code.MISSING}")
        return None
    # Kernel -> architecture -> instructions that must be there.
    block_scaled = r"QMMA\.SF\.16832\.F32\.E4M3\.E4M3\.E8"
    expected = {
        "copy_kernel6matmul": {"120f": [block_scaled, "LDGSTS", "LDSM"], "90a": [r"HMMA\.16816\.F32", "LDGSTS", "LDSM"]},
        "bulk_kernel6matmul": {"120f": [block_scaled, "UTMALDG", "UTMASTG"], "90a": ["UTMALDG", "UTMASTG"]},
        "use_common": {"120f": [block_scaled, r"QMMA\.16832\.F32\.E4M3\.E4M3"], "90a": []},
        "use_bulk": {"120f": ["UBLKCP"], "90a": ["UBLKCP"]},
        "use_wgmma": {"90a": [r"QGMMA\.64x64x32\.F32\.E4M3\.E4M3", r"QGMMA\.64x128x32", r"QGMMA\.64x192x32",
                              r"USETMAXREG\.DEALLOC", r"USETMAXREG\.TRY_ALLOC"]},
        "use_cluster": {"90a": [r"UBLKCP\S*\.MULTICAST", "UCGABAR_ARV", "UCGABAR_WAIT", r"SYNCS\.ARRIVE\.TRANS64\.RED"]},
    }
    failures = 0
    for architecture in COMPLETE:
        cubin = folder / f"{architecture}.cubin"
        result = compile_wrappers(nvcc, architecture, cubin, *FLAGS[architecture])
        if result.returncode != 0:
            print(result.stdout + result.stderr)
            return 1
        code = functions(tools, cubin)
        for kernel, wanted in expected.items():
            if architecture not in wanted:
                continue
            names = [name for name in code if kernel in name]
            if len(names) != 1:
                print(f"sm_{architecture}: {len(names)} kernels named {kernel}")
                failures += 1
                continue
            text = "\n".join(code[names[0]])
            missing = [pattern for pattern in wanted[architecture] if not re.search(pattern, text)]
            local = re.findall(r"\b(?:STL|LDL)\b[^\n]*", text)
            print(f"sm_{architecture} {kernel}: {len(code[names[0]])} instructions, "
                  f"missing {missing or 'nothing'}, {len(local)} local memory accesses")
            failures += len(missing) + len(local)
    return failures


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("part", choices=("compile", "sass"))
    parser.add_argument("--nvcc", default="nvcc")
    parser.add_argument("--cuobjdump")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.part == "compile":
            failures = check_compile(options.nvcc, Path(folder))
        else:
            failures = check_sass(options.nvcc, options.cuobjdump, Path(folder))
    if failures is None:
        return SKIPPED
    print(f"{failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
