#!/usr/bin/env python3
"""scripts/wrap_docs.py finds long lines, wraps them without a change of the text, and leaves the rest as it is."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
import wrap_docs

LONG = "word " * 40 + "`a long piece of code that must stay in one line` and [a link](there.md#a-place)"


class Wrap(unittest.TestCase):
    def test_long_paragraphs_and_items(self):
        for text in (LONG, f"- {LONG}", f"  12. {LONG}", f"short\n{LONG}\nshort", f"- one\n- {LONG}\n  more of it\n- three"):
            new = wrap_docs.wrapped(text)
            self.assertEqual(len(list(wrap_docs.long_lines(text))), 1)
            self.assertEqual(list(wrap_docs.long_lines(new)), [])
            self.assertLessEqual(max(map(len, new.split("\n"))), wrap_docs.WIDTH)
            self.assertEqual(new.split(), text.split())
            self.assertEqual(wrap_docs.wrapped(new), new)
            self.assertIn("`a long piece of code that must stay in one line`", new)
            self.assertIn("[a link](there.md#a-place)", new)

    def test_items_keep_their_indentation(self):
        self.assertTrue(all(line.startswith("  ") for line in wrap_docs.wrapped(f"- {LONG}").split("\n")[1:]))
        self.assertEqual(wrap_docs.wrapped(f"- one\n- {LONG}").split("\n")[0], "- one")

    def test_no_line_begins_with_what_is_markup_there(self):
        for mark in ("-", "*", "+", "7.", "#4", ">", "|"):
            text = f"{'x' * 155} word {mark} more"
            self.assertEqual(wrap_docs.wrapped(text).split("\n")[1], f"word {mark} more", mark)

    def test_what_stays(self):
        for text in (f"| {LONG} |", f"# {LONG}", f"```\n{LONG}\n```", f"a\n\n    {LONG}", "short\nlines\n\n- stay\n  as they are\n"):
            self.assertEqual(wrap_docs.wrapped(text), text)
            self.assertEqual(list(wrap_docs.long_lines(text)), [])

    def test_numbers_of_long_lines(self):
        self.assertEqual(list(wrap_docs.long_lines(f"one\n\n```\n{LONG}\n```\n{LONG}\nx\n- {LONG}")), [6, 8])


if __name__ == "__main__":
    unittest.main()
