#!/usr/bin/env python3
"""Which blocks run_examples.py takes for examples, and what it refuses."""

import unittest

from run_examples import BadMark, examples

MARK = "<!-- compiled -->"
RUN = "<!-- run -->"


class Examples(unittest.TestCase):
    def test_marked_blocks_are_found_with_line_and_language(self):
        text = f"text\n{MARK}\n```cpp\nint main() {{}}\n```\n\n```c\nunmarked\n```\n{MARK}\n```c\nint x;\n\n```\n"
        self.assertEqual(examples(text, "f.md"), [(3, "cpp", "int main() {}\n"), (11, "c", "int x;\n\n")])

    def test_commands_have_a_mark_of_their_own(self):
        self.assertEqual(examples(f"{RUN}\n```sh\nquatt info\n```\n", "f.md"), [(2, "sh", "quatt info\n")])
        for mark, language in ((RUN, "c"), (MARK, "sh")):
            with self.subTest(mark=mark), self.assertRaises(BadMark):
                examples(f"{mark}\n```{language}\nx\n```\n", "f.md")

    def test_no_mark_no_example(self):
        self.assertEqual(examples("```cpp\nint main() {}\n```\n", "f.md"), [])

    def test_a_mark_without_its_block_is_an_error(self):
        for rest in ("", "\n```cpp\n```\n", "```python\n```\n", "text\n", "```cpp\nint main() {}\n"):
            with self.subTest(rest=rest), self.assertRaises(BadMark):
                examples(f"{MARK}\n{rest}", "f.md")


if __name__ == "__main__":
    unittest.main()
