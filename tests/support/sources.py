"""Finds the project's source files, for the checks that read them."""

import re
from pathlib import Path

SUFFIXES = {".c", ".h", ".cpp", ".hpp", ".cu", ".cuh"}


def sources(root, *folders):
    """Each source file under the folders of root, in order."""
    for folder in folders:
        for file in sorted((Path(root) / folder).rglob("*")):
            if file.suffix in SUFFIXES and file.is_file():
                yield file


def blank(match):
    """Spaces instead of what matched; lines stay, so that line numbers stay right."""
    return re.sub(r"[^\n]", " ", match.group())


def plant(root, files):
    """Writes files, {path: text}, under root: trees for the tests of the checks."""
    for name, text in files.items():
        path = Path(root) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def report(found, files):
    """Prints the violations found in so many files; the exit status. No files at all is a failure too."""
    print("\n".join([*found, f"{files} files, {len(found)} violations"]))
    return 1 if found or not files else 0
