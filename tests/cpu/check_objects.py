#!/usr/bin/env python3
"""Checks that object files share no functions with the rest of a program.

usage: check_objects.py NM OBJECT...

The linker keeps one copy of each weak symbol (an inline function that was not inlined, a template). If that copy comes from a
file compiled for AVX-512, a processor without it meets its instructions anywhere. So files of an instruction-set level define
none, and only data with external linkage: their table of kernels.
"""

import subprocess
import sys


def faults(nm, path):
    listing = subprocess.run([nm, "--demangle", "--defined-only", "--extern-only", path], check=True, capture_output=True,
                             text=True).stdout
    for line in listing.splitlines():
        kind, name = line.split(maxsplit=2)[1:]
        if kind not in "DRB":
            yield f"{path}: {name} ({kind})"


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    found = [fault for path in sys.argv[2:] for fault in faults(sys.argv[1], path)]
    print("\n".join(found) or f"{len(sys.argv) - 2} objects, nothing shared")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
