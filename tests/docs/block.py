#!/usr/bin/env python3
"""Prints the first fenced block of a page that stands right after the line `<!-- MARK -->`.

usage: block.py PAGE MARK LANGUAGE
"""

import re
import sys
from pathlib import Path


def main():
    page, mark, language = sys.argv[1:]
    text = Path(page).read_text(encoding="utf-8")
    found = re.search(rf"^<!-- {re.escape(mark)} -->\n```{re.escape(language)}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    if not found:
        sys.exit(f"{page}: no ```{language} block right after <!-- {mark} -->")
    sys.stdout.write(found[1])


if __name__ == "__main__":
    main()
