#!/usr/bin/env python3
"""Names in the public headers' comments and in the docs that the project does not have.

usage: check_names.py ROOT

Read are the comments of include/quatt/ and the text of README.md, CONTRIBUTING.md and docs/**/*.md. A name is
- a word that begins with quatt_ or QUATT_, anywhere;
- in backticks: `snake_case`, `call()` with or without arguments, and `Scope::member`;
- in backticks: a path that begins with a folder of the project, and each local target of a link.
It must be a word of the project's own code (comments of C and C++ do not count, nor does this folder), or a file. Words beside a *
stand for several, path components in capitals (src/LAYER, NAME.cpp) for any.
"""

import re
import sys
from pathlib import Path

FOLDERS = ("bench", "cmake", "include", "scripts", "src", "tests", "tools")
CODE = {".c", ".cpp", ".cu", ".cuh", ".h", ".hpp"}
OTHER = {".cmake", ".css", ".html", ".in", ".inc", ".js", ".json", ".map", ".py", ".sh", ".txt"}
COMMENT = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:[^"\\\n]|\\.)*"', re.DOTALL)
WORD = re.compile(r"\w+")
BACKTICKS = re.compile(r"`([^`\n]+)`")
OURS = re.compile(r"(?<![\w*./:-])(?:quatt|QUATT)_\w*(?![\w*])")
SNAKE = re.compile(r"[a-z]\w*_\w+")
CALL = re.compile(r"((?:\w+(?:::|\.|->))*\w+)\(.*\)")
SCOPED = re.compile(r"\w+(?:::\w+)+")
PATH = re.compile(rf"(?:{'|'.join(FOLDERS)}|docs)/[\w./-]*")
PLACEHOLDER = re.compile(r"/[A-Z]+(?:/|$|\.(?!md))")
LINK = re.compile(r"\]\(([^)\s]+)\)")
STANDARD = {"std", "main"}


def comments(text):
    """Only the comments of a C or C++ file; its lines keep their numbers."""
    kept, end = [], 0
    for match in COMMENT.finditer(text):
        if not match[0].startswith('"'):
            kept += [re.sub(r"[^\n]", "", text[end : match.start()]), match[0]]
            end = match.end()
    kept.append(re.sub(r"[^\n]", "", text[end:]))
    return "".join(kept)


def code(text):
    """A C or C++ file without its comments; string literals stay."""
    return COMMENT.sub(lambda match: match[0] if match[0].startswith('"') else " ", text)


def words(root):
    """All words of the project's code."""
    found = set(STANDARD)
    files = [root / name for name in ("CMakeLists.txt", "CMakePresets.json", "Makefile", ".ci/run")]
    for folder in FOLDERS:
        files += [file for file in (root / folder).rglob("*") if file.is_file()]
    for file in files:
        if "__pycache__" in file.parts or file.parent == root / "tests/docs" or (file.suffix not in CODE | OTHER and file.name not in ("Makefile", "run")):
            continue
        text = file.read_text(encoding="utf-8", errors="replace")
        found.update(WORD.findall(code(text) if file.suffix in CODE else text))
        found.update(WORD.findall(file.stem))
    return found


def faults(text, known, exists):
    """(line number, name) of what is in `text` and neither in the words `known` nor, of paths, `exists`."""
    for number, line in enumerate(text.split("\n"), 1):
        names = {name: [name] for name in OURS.findall(line)}
        for span in BACKTICKS.findall(line):
            if PATH.fullmatch(span):
                if not exists(span) and not PLACEHOLDER.search(span):
                    yield number, span
                continue
            call = CALL.fullmatch(span)
            name = call[1] if call else span
            if call or SCOPED.fullmatch(name) or SNAKE.fullmatch(name):
                names[name] = WORD.findall(re.split(r"\.|->", name)[-1])  # objects are the page's own
        for name, parts in names.items():
            if any(part not in known for part in parts):
                yield number, name


def broken_links(text, exists):
    for number, line in enumerate(text.split("\n"), 1):
        for target in LINK.findall(line):
            if "://" not in target and not target.startswith("#") and not exists(target.partition("#")[0]):
                yield number, target


def main():
    root = Path(sys.argv[1]).resolve()
    known = words(root)
    found = []
    for header in sorted((root / "include/quatt").iterdir()):
        text = comments(header.read_text(encoding="utf-8"))
        found += [(header, *fault) for fault in faults(text, known, lambda path: (root / path).exists())]
    for page in [root / "README.md", root / "CONTRIBUTING.md", *sorted((root / "docs").rglob("*.md"))]:
        text = page.read_text(encoding="utf-8")
        found += [(page, *fault) for fault in faults(text, known, lambda path: (root / path).exists())]
        found += [(page, *fault) for fault in broken_links(text, lambda path, page=page: (page.parent / path).exists())]
    for file, number, name in found:
        print(f"{file.relative_to(root)}:{number}: {name} is not in the project")
    print(f"{len(found)} names that do not exist")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
