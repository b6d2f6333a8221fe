#!/usr/bin/env python3
"""Compiles and runs the C and C++ examples of README.md and docs/*.md.

An example is a fenced block (```c or ```cpp), a whole program, right after a line `<!-- compiled -->`. README.md must
have at least one of each language. Exits 77 where there is no README.md.
"""

import argparse
import re
import shutil
import subprocess
import sys
from pathlib import Path

MARK = "<!-- compiled -->"
FENCE = re.compile(r"^```(\w*)\s*$")
LANGUAGES = ("c", "cpp")
SKIPPED = 77


class BadMark(Exception):
    pass


def examples(text, name):
    """(line number, language, code) of each marked block. Raises BadMark where a mark has no such block."""
    found = []
    lines = text.splitlines()
    for index, line in enumerate(lines):
        if line.strip() != MARK:
            continue
        start = index + 1
        fence = FENCE.match(lines[start]) if start < len(lines) else None
        if not fence or fence.group(1) not in LANGUAGES:
            raise BadMark(f"{name}:{index + 1}: no ```c or ```cpp block right after {MARK}")
        try:
            end = lines.index("```", start + 1)
        except ValueError:
            raise BadMark(f"{name}:{start + 1}: the block has no end") from None
        found.append((start + 1, fence.group(1), "\n".join(lines[start + 1 : end]) + "\n"))
    return found


def run(args, file, line, language, code):
    """Compiles and runs one example; returns whether it worked."""
    place = f"{file.relative_to(args.root)}:{line}"
    source = args.scratch / f"{file.stem}_{line}.{language}"
    program = source.with_suffix("")
    source.write_text(code, encoding="utf-8")
    compiler, standard = (args.cc, "-std=c99") if language == "c" else (args.cxx, "-std=c++20")
    command = [compiler, standard, "-pedantic", "-Wall", "-Wextra", "-Werror", f"-I{args.root / 'include'}", source]
    command += ["-o", program, f"-L{args.library_dir}", "-lquatt", f"-Wl,-rpath,{args.library_dir}", "-lm"]
    for step in (command, [program]):
        done = subprocess.run(step, cwd=args.scratch, timeout=120, text=True, capture_output=True)
        if done.returncode != 0:
            print(f"{place}: {' '.join(map(str, step))}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
            return False
    print(f"{place}: {language} example works; it prints:\n{done.stdout}")
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--library-dir", type=Path, required=True)
    parser.add_argument("--scratch", type=Path, required=True)
    parser.add_argument("--cc", default="cc")
    parser.add_argument("--cxx", default="c++")
    args = parser.parse_args()

    readme = args.root / "README.md"
    if not readme.is_file():
        print("there is no README.md")
        return SKIPPED
    shutil.rmtree(args.scratch, ignore_errors=True)
    args.scratch.mkdir(parents=True)

    good = True
    for file in (readme, *sorted((args.root / "docs").glob("**/*.md"))):
        try:
            found = examples(file.read_text(encoding="utf-8"), file.relative_to(args.root))
        except BadMark as error:
            print(error)
            good = False
            continue
        for language in LANGUAGES:
            if file == readme and language not in [example[1] for example in found]:
                print(f"README.md: no ```{language} block marked {MARK}")
                good = False
        for example in found:
            good = run(args, file, *example) and good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
