#!/usr/bin/env python3
"""Wraps paragraphs of the docs that have a line of more than 160 columns, and leaves all others as they are.

usage: scripts/wrap_docs.py [--check] [FILE...]     (default: *.md and docs/**/*.md)
  --check   change nothing, fail where a line is too long

Tables, headings, fenced and indented blocks stay: they may be longer. A line is not broken inside `code` or a [link](target).
"""

import re
import sys
from pathlib import Path

WIDTH = 160
ATOM = re.compile(r"(?:`[^`]*`|!?\[[^\]]*\]\([^)]*\)|\S)+")
ITEM = re.compile(r"(\s*)(?:[-*]|\d+\.) +")
MARKUP = re.compile(r"[-*+]|\d+[.)]|[#>|].*")
KEPT = re.compile(r"\s*(?:\||#|<|!\[)")


def paragraphs(lines):
    """(is text, lines): paragraphs and list items, with what is between them."""
    kind, found, fenced = None, [], False
    for line in lines:
        fence = line.lstrip().startswith("```")
        indented = line.startswith("    ") and kind != "text"
        if fence or fenced or not line.strip() or KEPT.match(line) or indented:
            if found and kind == "text":
                yield True, found
                found = []
            yield False, [line]
            kind = "other"
            fenced ^= fence
        else:
            if found and ITEM.match(line):
                yield True, found
                found = []
            found.append(line)
            kind = "text"
    if found:
        yield True, found


def wrap(lines):
    """A paragraph again, in lines of at most WIDTH columns."""
    item = ITEM.match(lines[0])
    first = item[0] if item else re.match(r"\s*", lines[0])[0]
    wrapped, line = [], first
    for atom in ATOM.findall(" ".join([lines[0][len(first) :], *lines[1:]])):
        # What would begin a list, a heading, a quotation or a table there joins the line before, which loses its last word.
        if line.strip() and line != first and len(line) + 1 + len(atom) > WIDTH:
            if MARKUP.fullmatch(atom):
                line, _, word = line.rpartition(" ")
                atom = f"{word} {atom}"
            wrapped.append(line)
            line = " " * len(first)
        line += atom if line == first or not line.strip() else " " + atom
    return [*wrapped, line]


def wrapped(text):
    out = []
    for is_text, lines in paragraphs(text.split("\n")):
        out += wrap(lines) if is_text and max(map(len, lines)) > WIDTH else lines
    return "\n".join(out)


def long_lines(text):
    """Numbers of the lines that wrap() would break."""
    number = 1
    for is_text, lines in paragraphs(text.split("\n")):
        yield from (number + i for i, line in enumerate(lines) if is_text and len(line) > WIDTH)
        number += len(lines)


def main():
    arguments = sys.argv[1:]
    check = "--check" in arguments
    root = Path(__file__).resolve().parents[1]
    files = [Path(name) for name in arguments if name != "--check"] or [*sorted(root.glob("*.md")), *sorted(root.glob("docs/**/*.md"))]
    failed = False
    for file in files:
        text = file.read_text(encoding="utf-8")
        if check:
            for number in long_lines(text):
                print(f"{file}:{number}: more than {WIDTH} columns; scripts/wrap_docs.py wraps it")
                failed = True
        elif (new := wrapped(text)) != text:
            file.write_text(new, encoding="utf-8")
            print(f"wrapped {file}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
