#!/usr/bin/env python3
"""The plots that scripts/plot_peers.py makes of a made-up result."""

import contextlib
import io
import json
import math
import sys
import tempfile
import unittest
import xml.etree.ElementTree
from pathlib import Path

import fake_peers

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
import plot_peers  # noqa: E402

SVG = "{http://www.w3.org/2000/svg}"


def parsed(svg):
    return xml.etree.ElementTree.fromstring(svg)


class Plots(unittest.TestCase):
    def test_every_candidate_is_a_line_with_a_legend(self):
        root = parsed(plot_peers.speed(fake_peers.result()))
        texts = [t.text for t in root.iter(SVG + "text")]
        for name in ("quatt fp8", "quatt fp8, all in", "FA3 FP8", "FA2 bf16", "TFLOP/s", "1k", "4k"):
            self.assertIn(name, texts)
        self.assertEqual(len(list(root.iter(SVG + "polyline"))), 4)

    def test_points_lie_inside_and_in_order(self):
        result = fake_peers.result()
        for name, draw in plot_peers.PLOTS.items():
            with self.subTest(name):
                root = parsed(draw(result))
                circles = list(root.iter(SVG + "circle"))
                self.assertTrue(circles)
                for c in circles:
                    self.assertTrue(
                        plot_peers.LEFT <= float(c.get("cx")) <= plot_peers.WIDTH - plot_peers.RIGHT
                    )
                    self.assertTrue(
                        plot_peers.TOP <= float(c.get("cy")) <= plot_peers.HEIGHT - plot_peers.BOTTOM
                    )

    def test_it_has_a_background_so_that_dark_pages_do_not_matter(self):
        first = next(parsed(plot_peers.lengths(fake_peers.result())).iter(SVG + "rect"))
        self.assertEqual(first.get("fill"), plot_peers.PAPER)
        self.assertEqual(
            (first.get("width"), first.get("height")), (str(plot_peers.WIDTH), str(plot_peers.HEIGHT))
        )

    def test_numbers_that_are_missing_or_not_drawable_are_left_out(self):
        result = fake_peers.result()
        result["accuracy"]["lengths"]["rows"][0]["errors"] = {"quatt fp8": None, "FA3 FP8": 0.0}
        root = parsed(plot_peers.lengths(result))
        self.assertEqual(len(list(root.iter(SVG + "circle"))), 4)
        self.assertIsNone(plot_peers.lengths({}))
        self.assertIsNone(plot_peers.speed({"shapes": []}))

    def test_axes(self):
        axis = plot_peers.Axis([1000, 130000], True, 0, 100, 2)
        self.assertEqual((axis.low, axis.high), (9, 17))
        self.assertAlmostEqual(axis.at(2**13), 50)
        axis = plot_peers.Axis([3, 917], False, 0, 100)
        self.assertEqual(axis.ticks(), [0, 200, 400, 600, 800, 1000])
        self.assertTrue(all(map(math.isfinite, plot_peers.Axis([5, 5], True, 0, 1).ticks())))
        self.assertEqual(
            [plot_peers.short(x) for x in (1024, 131072, 0.5, 0.001, 200)],
            ["1k", "128k", "0.5", "1e-3", "200"],
        )

    def test_files(self):
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / "h200.json"
            source.write_text(json.dumps(fake_peers.result()))
            with contextlib.redirect_stdout(io.StringIO()) as said:
                self.assertEqual(plot_peers.main([str(source), folder]), 0)
            for name in plot_peers.PLOTS:
                parsed((Path(folder) / f"h200_{name}.svg").read_text())
                self.assertIn(f"h200_{name}.svg", said.getvalue())
            for content in ("{}", "[]", "nothing"):
                source.write_text(content)
                with self.assertRaises(SystemExit), contextlib.redirect_stderr(io.StringIO()) as said:
                    plot_peers.main([str(source), folder])
                self.assertIn("h200.json", said.getvalue())


if __name__ == "__main__":
    unittest.main()
