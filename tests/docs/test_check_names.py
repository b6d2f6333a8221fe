#!/usr/bin/env python3
"""check_names.py finds planted names, and lets pass what exists."""

import tempfile
import unittest
from pathlib import Path

import check_names

KNOWN = {"quatt_run", "QUATT_OK", "set_scale", "Plan", "create", "std"}


def faults(text):
    return list(check_names.faults(text, KNOWN, lambda path: path == "src/core/plan.cpp"))


class Names(unittest.TestCase):
    def test_what_exists_passes(self):
        for text in ("quatt_run and QUATT_OK, `quatt_run(plan, 0)`, `set_scale`, `Plan::create`, `plan->create()`", "`src/core/plan.cpp`",
                     "quatt_* and `quatt_*_sized`, *_init", "plain words, unmarked snake_case, `two words`, `S=8`", "`src/LAYER/NAME.cpp`",
                     "https://example.org/quatt_page, lib/quatt_x.so"):
            self.assertEqual(faults(text), [], text)

    def test_what_does_not_exist_is_found_with_its_line(self):
        for name, text in (("quatt_stop", "calls quatt_stop once"), ("QUATT_NO", "returns QUATT_NO"), ("set_qkv", "with `set_qkv`"),
                           ("launch", "`launch()`"), ("Plan::start", "`Plan::start(x, y)`"), ("Plan::start", "`Plan::start`"),
                           ("src/core/gone.cpp", "in `src/core/gone.cpp`"), ("tests/gone/", "`tests/gone/`"),
                           ("docs/GONE.md", "`docs/GONE.md`")):
            self.assertEqual(faults(f"first line\n{text}\n"), [(2, name)], text)

    def test_links(self):
        text = "[a](there.md) [b](gone.md) [c](https://x.org/y) [d](#here)\n[e](there.md#part) ![f](gone.png)"
        self.assertEqual(list(check_names.broken_links(text, lambda path: path == "there.md")), [(1, "gone.md"), (2, "gone.png")])

    def test_comments_and_code(self):
        text = '/* one\n two */ int three; // four\nconst char* five = "// six";\n'
        self.assertEqual(check_names.WORD.findall(check_names.comments(text)), ["one", "two", "four"])
        self.assertEqual(check_names.comments(text).count("\n"), text.count("\n"))
        self.assertEqual(check_names.WORD.findall(check_names.code(text)), ["int", "three", "const", "char", "five", "six"])

    def test_words_are_those_of_code(self):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            for name, text in {"src/a.hpp": "int in_code; // in_comment", "tests/a_test.py": "# in_python", "tests/docs/b.py": "in_this",
                               "docs/c.md": "in_docs", "CMakeLists.txt": "", "CMakePresets.json": "", "Makefile": "",
                               ".ci/run": ""}.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text, encoding="utf-8")
            found = check_names.words(root)
        self.assertLessEqual({"in_code", "in_python", "a_test"}, found)
        self.assertFalse({"in_comment", "in_docs", "in_this"} & found)


if __name__ == "__main__":
    unittest.main()
