#!/usr/bin/env python3
"""Runs the examples of README.md and docs/*.md: C and C++ programs, and commands of the tool.

An example is a fenced block right after a line `<!-- compiled -->` (```c or ```cpp, a whole program) or `<!-- run -->` (```sh, for a
shell that finds `quatt` and the folder tests/). README.md must have at least one of each language.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

MARKS = {"<!-- compiled -->": ("c", "cpp"), "<!-- run -->": ("sh",)}
FENCE = re.compile(r"^```(\w*)\s*$")


class BadMark(Exception):
    pass


def examples(text, name):
    """(line number, language, code) of each marked block. Raises BadMark where a mark has no such block."""
    found = []
    lines = text.splitlines()
    for index, line in enumerate(lines):
        languages = MARKS.get(line.strip())
        if languages is None:
            continue
        start = index + 1
        fence = FENCE.match(lines[start]) if start < len(lines) else None
        if not fence or fence.group(1) not in languages:
            raise BadMark(f"{name}:{index + 1}: no ```{' or ```'.join(languages)} block right after {line.strip()}")
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
    if language == "sh":
        steps = [["bash", "-euo", "pipefail", source]]
    else:
        compiler, standard = (args.cc, "-std=c99") if language == "c" else (args.cxx, "-std=c++20")
        command = [compiler, standard, "-pedantic", "-Wall", "-Wextra", "-Werror", f"-I{args.root / 'include'}", source]
        command += ["-o", program, f"-L{args.library_dir}", "-lquatt", f"-Wl,-rpath,{args.library_dir}", "-lm"]
        steps = [command, [program]]
    environment = {**os.environ, "PATH": f"{args.tool_dir}{os.pathsep}{os.environ['PATH']}"}
    for step in steps:
        done = subprocess.run(step, cwd=args.scratch, timeout=120, text=True, capture_output=True, env=environment)
        if done.returncode != 0:
            print(f"{place}: {' '.join(map(str, step))}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
            return False
    print(f"{place}: {language} example works; it prints:\n{done.stdout}")
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--library-dir", type=Path, required=True)
    parser.add_argument("--tool-dir", type=Path, help="where `quatt` is; without it commands are left out")
    parser.add_argument("--scratch", type=Path, required=True)
    parser.add_argument("--cc", default="cc")
    parser.add_argument("--cxx", default="c++")
    args = parser.parse_args()

    readme = args.root / "README.md"
    shutil.rmtree(args.scratch, ignore_errors=True)
    args.scratch.mkdir(parents=True)
    (args.scratch / "tests").symlink_to(args.root / "tests")

    good = True
    for file in (readme, *sorted((args.root / "docs").glob("**/*.md"))):
        try:
            found = examples(file.read_text(encoding="utf-8"), file.relative_to(args.root))
        except BadMark as error:
            print(error)
            good = False
            continue
        for mark, languages in MARKS.items():
            for language in languages:
                if file == readme and language not in [example[1] for example in found]:
                    print(f"README.md: no ```{language} block marked {mark}")
                    good = False
        for example in found:
            if example[1] == "sh" and args.tool_dir is None:
                print(f"{file.relative_to(args.root)}:{example[0]}: left out, this build has no tool")
                continue
            good = run(args, file, *example) and good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
