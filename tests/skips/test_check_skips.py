#!/usr/bin/env python3
"""Plants each mistake that check_skips.py is there for, and demands that it is found."""

import unittest

import check_skips

LIST = """
# A comment.
report   | browser      | shows pages
amx/*    | amx, gpu     | two needs
refusal  | no amx       | the other way round
inner    | never        | run by another test
sass     | nvcc         | only built with it
"""
FACTS = {"browser": True, "amx": False, "no amx": True, "gpu": True, "nvcc": False, "never": False}
RUN = {"report": False, "amx/1": True, "amx/2": True, "refusal": False, "inner": True, "plain": False}


def check(changes=None, facts=None, complete=True, text=LIST):
    return check_skips.check(check_skips.parse(text), {**FACTS, **(facts or {})}, {**RUN, **(changes or {})}, complete)


class Skips(unittest.TestCase):
    def test_as_expected(self):
        self.assertEqual(check(), [])

    def test_skipped_and_not_listed(self):
        self.assertEqual(check({"plain": True}), ["plain was skipped; tests/skips/expected.txt does not list it"])

    def test_skipped_where_it_could_run(self):
        self.assertEqual(check({"report": True}), ["report was skipped, but this machine has what it needs: browser"])
        self.assertEqual(check({"amx/1": False}, {"amx": True, "no amx": False}),
                         ["amx/2 was skipped, but this machine has what it needs: amx, gpu",
                          "refusal ran without no amx, which tests/skips/expected.txt says it needs"])

    def test_ran_where_it_cannot(self):
        self.assertEqual(check({"amx/1": False}), ["amx/1 ran without amx, which tests/skips/expected.txt says it needs"])
        self.assertEqual(check({"inner": False}), ["inner ran without never, which tests/skips/expected.txt says it needs"])

    def test_entries_that_name_nothing(self):
        text = LIST + "gone | browser | was renamed\n"
        self.assertEqual(check(text=text), ["no test is named like gone, which tests/skips/expected.txt lists"])
        self.assertEqual(check(text=text, complete=False), [])
        self.assertEqual(check(facts={"nvcc": True}), ["no test is named like sass, which tests/skips/expected.txt lists"])

    def test_unknown_fact(self):
        self.assertIn("'warp core' of x is no fact", check(text="x | warp core | y")[0])

    def test_bad_lines(self):
        for line in ("report | browser", "report browser shows", "report | | shows pages", "a | b | c | d"):
            with self.assertRaisesRegex(ValueError, "line 1"):
                check_skips.parse(line)

    def test_what_ctest_writes(self):
        junit = """<testsuite><testcase name="a" status="run"/><testcase name="b" status="notrun"><skipped message="77"/></testcase>
            <testcase name="c" status="fail"><failure/></testcase><testcase name="d" status="disabled"><skipped/></testcase></testsuite>"""
        self.assertEqual(check_skips.outcomes(junit), {"a": False, "b": True, "c": False})

    def test_facts_of_the_list(self):
        for entry in check_skips.parse(check_skips.EXPECTED.read_text()):
            self.assertTrue(entry.reason)


if __name__ == "__main__":
    unittest.main()
