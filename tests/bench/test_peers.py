#!/usr/bin/env python3
"""The arguments of bench/peers.py, and the tables and the JSON that it makes of made-up times."""

import contextlib
import importlib.util
import io
import unittest

import fake_peers
import peers
from gpu import peer_tables


def refusal(*arguments):
    """(exit status, what is said) of arguments that are refused."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            peers.parse(list(arguments))
    except SystemExit as e:
        return e.code, said.getvalue()
    return 0, said.getvalue()


class Arguments(unittest.TestCase):
    def test_defaults_are_all_shapes_all_parts_and_fifteen_rounds(self):
        args = peers.parse(["lib.so"])
        self.assertEqual(args.shapes, peer_tables.SHAPES)
        self.assertEqual((args.parts, args.rounds), (list(peers.PARTS), 15))

    def test_choices(self):
        args = peers.parse(["lib.so", "--shapes", "2048x56,8192x16", "--only", "spread", "--rounds", "3"])
        self.assertEqual([s.name for s in args.shapes], ["2048x56", "8192x16"])
        self.assertEqual((args.parts, args.rounds), (["spread"], 3))
        self.assertEqual(peers.parse(["lib.so", "--quick"]).rounds, 5)
        self.assertEqual(peers.parse(["lib.so", "--rehearse"]).shapes, peer_tables.TINY)

    def test_wrong_arguments_name_themselves_and_what_is_allowed(self):
        for arguments, words in (
            ((), ("the library is missing",)),
            (("lib.so", "--shapes", "2048x56,7x7"), ("--shapes 7x7", "30272x56")),
            (("lib.so", "--only", "spede"), ("--only spede", "speed, spread, accuracy")),
            (("lib.so", "--rounds", "0"), ("--rounds 0",)),
            (("lib.so", "--rounds", "many"), ("--rounds", "many")),
            (("lib.so", "--fast"), ("--fast",)),
        ):
            with self.subTest(arguments=arguments):
                status, said = refusal(*arguments)
                self.assertEqual(status, 2)
                for word in words:
                    self.assertIn(word, said)

    @unittest.skipIf(importlib.util.find_spec("torch"), "torch is there")
    def test_without_torch_it_says_what_it_needs(self):
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            self.assertEqual(peers.main(["lib.so"]), 1)
        self.assertIn("needs Python 3 with torch", said.getvalue())

    def test_list_needs_no_library(self):
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            peers.main(["--list", "--shapes", "2048x56"])
        self.assertIn("shapes: 2048x56\n", said.getvalue())


class Tables(unittest.TestCase):
    def test_work_of_segments(self):
        shape = peer_tables.Shape("", [100, 300], 7)
        self.assertEqual(shape.flop, 4 * (100**2 + 300**2) * 128 * 7)
        self.assertEqual((shape.tokens, shape.bounds, shape.packed), (400, [0, 100, 400], True))

    def test_summary(self):
        self.assertEqual(
            peer_tables.summary([5, 1, 3, 2, 4]), {"median": 3, "q1": 2, "q3": 4, "lowest": 1, "rounds": 5}
        )
        self.assertEqual(peer_tables.summary([2.5])["median"], 2.5)

    def test_the_attention_kernel_is_named_so_or_the_longest(self):
        name, each = peer_tables.main_kernel([{"attention": 1, "pack_q": 2}, {"attention": 3, "pack_q": 2}])
        self.assertEqual((name, each), ("attention", {"attention": 2, "pack_q": 2}))
        self.assertEqual(peer_tables.main_kernel([{"fill": 0.1, "device_kernel": 5}])[0], "device_kernel")

    def test_candidate_and_ratios(self):
        x = fake_peers.candidates(flop=2e12, ours=2.0)
        ours = x["quatt fp8"]
        self.assertAlmostEqual(ours["call_ms"]["median"], 2)
        self.assertAlmostEqual(ours["call_tflops"], 1000)
        self.assertAlmostEqual(ours["kernel_ms"]["median"], 1.89)
        self.assertNotIn("kernel_ms", x["FA2 bf16"])
        ratios = peer_tables.ratios(x)
        self.assertAlmostEqual(ratios["FA3 FP8"]["all_in"], 1.2)
        self.assertAlmostEqual(ratios["FA3 FP8"]["kernel"], 2.4 / 1.89)
        self.assertEqual(list(ratios["FA2 bf16"]), ["all_in"])
        del x["quatt fp8"]
        self.assertEqual(peer_tables.ratios(x), {})

    def test_lines_of_a_shape_align_and_hold_everything(self):
        row = fake_peers.result()["shapes"][1]
        lines = peer_tables.shape_lines(row)
        self.assertIn("4096x8: 4096 tokens, H=8, D=128, plan wgmma, key tile 128", lines[0])
        self.assertEqual(len({len(line) for line in lines[1:5]}), 1, "\n".join(lines))
        for text in ("16.000", "19.200", "0.0533", "1.200"):
            self.assertIn(text, "\n".join(lines))
        self.assertIn("attention 15.890 ms, the rest 0.110: plan 0.010, pack_q 0.100", lines[-1])

    def test_a_shape_without_ours_is_still_shown(self):
        row = fake_peers.result()["shapes"][0]
        del row["candidates"]["quatt fp8"]
        row["ratios"], row["plan"] = {}, None
        self.assertEqual(len(peer_tables.shape_lines(row)), 4)
        self.assertEqual(peer_tables.summary_lines([row]), [])

    def test_summary_spread_accuracy_and_what_was_left_out(self):
        x = fake_peers.result()
        self.assertIn("FA3 FP8 1.348 (1.200)", peer_tables.summary_lines(x["shapes"])[1])
        self.assertIn("std 4 1.390 (1.562)", peer_tables.spread_lines(x["spread"])[1])
        errors = "\n".join(peer_tables.accuracy_lines(x["accuracy"]))
        for text in ("65536 keys", "0.0500", "0.0600", "-1.0e-01"):
            self.assertIn(text, errors)
        self.assertEqual(
            peer_tables.left_out_lines(x["left_out"]),
            ["left out: cuDNN FP8, everywhere: No module named 'cudnn'"],
        )

    def test_the_json_is_strict(self):
        self.assertEqual(
            peer_tables.plain({"a": [1.5, float("nan")], "b": (float("inf"), None, "x")}),
            {"a": [1.5, None], "b": [None, None, "x"]},
        )

    def test_the_json_of_a_candidate(self):
        x = fake_peers.result()
        self.assertEqual(
            set(x["shapes"][0]["candidates"]["quatt fp8"]),
            {
                "call_ms",
                "call_tflops",
                "rel_l2",
                "kernel",
                "kernel_ms",
                "kernel_tflops",
                "kernels_ms",
            },
        )


if __name__ == "__main__":
    unittest.main()
