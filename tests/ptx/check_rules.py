#!/usr/bin/env python3
"""Checks what may stand where in device code.

usage: check_rules.py [ROOT]

1. asm and __CUDA_ARCH__ (and its relatives) appear in src/cuda/ptx only. Files of other layers that are no device code
   may use asm.
2. Kernels, the .cuh files of the folders below and of tests/simt, touch the machine through ptx:: wrappers and views
   only: no built-in variables or intrinsics, no std::, no dereference, no static variables.

Prints each violation as FILE:LINE: text, and exits 1 if there is one.
"""

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from sources import blank, report, sources  # noqa: E402  the folder comes first

# Folders of device code in src/cuda: kernels and their parts.
KERNELS = ("quantize", "softmax", "tile", "worklist", "epilogue", "warp_mma", "wgmma", "tcgen05")

# Comments and the contents of literals say nothing about the code.
NOISE = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', re.DOTALL)

ARCH = (re.compile(r"\b__CUDA_ARCH\w*"), "the architecture is decided in src/cuda/ptx")
ASM = (re.compile(r"\b(?:asm|__asm__|__asm)\b"), "instructions stand in src/cuda/ptx")
IN_KERNELS = [
    (re.compile(r"\b(?:threadIdx|blockIdx|blockDim|gridDim|warpSize)\b"), "use the ids of ptx::"),
    (re.compile(r"\bstd\s*::(?!numeric_limits<float>::lowest\b)"), "std:: does not compile as device code"),
    (re.compile(r"\b__(?!restrict__\b|LINE__\b|FILE__\b)\w+"), "use a ptx:: wrapper or a QUATT_ macro"),
    (re.compile(r"\breinterpret_cast\b"), "memory is touched through views only"),
    (re.compile(r"->(?!\s*(?:void|bool|float|auto|[ui](?:8|16|32|64)|tile::|ptx::)\b)"),
     "memory is touched through views only"),
    (re.compile(r"(?:^|[-=(,;{}&|!?:+<>]|\breturn)\s*\*+\s*[A-Za-z_(]", re.MULTILINE),
     "memory is touched through views only"),
    (re.compile(r"(?<!QUATT_DEV )\bstatic\b(?!\s+constexpr)"), "a static variable is shared by all threads"),
]


def violations(root, file):
    """(line number, text) of each violation in a file."""
    path = file.relative_to(root)
    parts = path.parts
    code = NOISE.sub(blank, file.read_text(encoding="utf-8"))
    rules = []
    if parts[:3] != ("src", "cuda", "ptx"):
        rules.append(ARCH)
        is_device = parts[:1] == ("src",) and parts[1] in ("cuda", "formats", "simt")
        is_device = is_device or parts[:2] in (("tests", "simt"), ("tests", "ptx"))
        if is_device or path.suffix in (".cu", ".cuh"):
            rules.append(ASM)
    in_kernels = parts[:2] == ("src", "cuda") and len(parts) > 3 and parts[2] in KERNELS
    in_kernels = in_kernels and path.stem != "launch"  # host code that both sides share
    if path.suffix == ".cuh" and (in_kernels or parts[:2] == ("tests", "simt")):
        rules += IN_KERNELS
    for pattern, why in rules:
        for match in pattern.finditer(code):
            # A match may begin with what stands before it, on another line.
            yield code.count("\n", 0, match.end() - 1) + 1, f"'{match.group().strip()}': {why}"


def check(root):
    """All violations, as text; and the number of files looked at."""
    root = Path(root).resolve()
    found = []
    files = 0
    for file in sources(root, "include", "src", "tools", "bench", "tests"):
        files += 1
        found += [f"{file.relative_to(root)}:{line}: {text}" for line, text in violations(root, file)]
    return found, files


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[2]
    return report(*check(root))


if __name__ == "__main__":
    sys.exit(main())
