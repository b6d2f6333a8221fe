#!/usr/bin/env python3
"""Compiles the public headers alone, strictly: quatt.h as C99 to C17 and C++11 to C++20, the others as C++20.

usage: check_headers.py INCLUDE COMPILER...      (COMPILER: C:PATH or CXX:PATH; one that is missing is left out)
"""

import shutil
import subprocess
import sys
from pathlib import Path

STRICT = ("-pedantic", "-Wall", "-Wextra", "-Wshadow", "-Wundef", "-Wconversion", "-Werror", "-fsyntax-only")
C_STRICT = ("-Wstrict-prototypes", "-Wc++-compat")
# Language, standards of quatt.h, standards of the C++ headers.
LANGUAGES = {
    "C": ("c", ("c99", "c11", "c17"), ()),
    "CXX": ("c++", ("c++11", "c++17", "c++20"), ("c++20",)),
}


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    include = Path(sys.argv[1])
    done = failed = 0
    seen = set()  # cc and gcc may be one program
    for argument in sys.argv[2:]:
        kind, _, name = argument.partition(":")
        compiler = shutil.which(name)
        if compiler is None:
            print(f"{name}: not found")
            continue
        if Path(compiler).resolve() in seen:
            continue
        seen.add(Path(compiler).resolve())
        language, c_standards, cxx_standards = LANGUAGES[kind]
        for header in sorted((include / "quatt").iterdir()):
            # Twice: the guard has to hold.
            text = f"#include <quatt/{header.name}>\n" * 2
            for standard in c_standards if header.suffix == ".h" else cxx_standards:
                command = [compiler, f"-std={standard}", *STRICT, *(C_STRICT if kind == "C" else ()),
                           "-I", str(include), "-x", language, "-"]
                result = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
                done += 1
                if result.returncode != 0:
                    failed += 1
                    print(f"FAILED: {' '.join(command)}  # {header.name}\n{result.stdout}{result.stderr}")
    print(f"{done} compilations, {failed} failed")
    return 1 if failed or not done else 0


if __name__ == "__main__":
    sys.exit(main())
