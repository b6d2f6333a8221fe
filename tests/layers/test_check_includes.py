#!/usr/bin/env python3
"""Plants violations in a made-up tree, and expects check_includes.py to report each of them and nothing else."""

import tempfile
import unittest
from pathlib import Path

import check_includes
from sources import plant  # check_includes adds its folder

GOOD = {
    "include/quatt/quatt.h": "#include <stddef.h>\n",
    "include/quatt/attention.hpp": "#include <quatt/quatt.h>\n#include <vector>\n",
    "src/formats/e4m3.hpp": "#include <bit>\n#include <cstdint>\n",
    "src/recipe/recipe.hpp": '#include "formats/e4m3.hpp"\n#include <quatt/quatt.h>\n',
    "src/core/plan.hpp": '#include "recipe/recipe.hpp"\n#include "formats/e4m3.hpp"\n',
    "src/core/plan.cpp": '#include "plan.hpp"\n/* #include "cpu/cpu.hpp" */\nstd::int64_t x;  // by e4m3.hpp\n',
    "src/cpu/cpu.hpp": '#include "core/plan.hpp"\n',
    "src/simt/fiber.hpp": '#include "formats/e4m3.hpp"\n',
    "src/cuda/ptx/mma.cuh": '#include "simt/fiber.hpp"\n',
    "src/cuda/tile/softmax.cuh": '#include "cuda/ptx/mma.cuh"\n',
    "src/cuda/wgmma/inst/fp8.cu": '#include "cuda/tile/softmax.cuh"\n#include "recipe/recipe.hpp"\n',
    "src/cuda/wgmma/config.hpp": '#include "cuda/tile/softmax.cuh"\n',
    "src/cuda/backend.hpp": '#include "cuda/wgmma/config.hpp"\n',
    "tools/file.hpp": "#include <nlohmann/json.hpp>\n",
    "tools/main.cpp": '#include "file.hpp"\n#include <quatt/attention.hpp>\n',
    "bench/attention.cpp": '#include "file.hpp"\n#include <quatt/quatt.h>\n',
    "tests/core/plan.cpp": '#include "core/plan.hpp"\n',
}

# File, its text, line and a piece of the report.
BAD = [
    ("src/formats/up.hpp", '#include "recipe/recipe.hpp"\n', 1, "formats may not include recipe"),
    ("src/recipe/up.cpp", '\n#  include "core/plan.hpp"\n', 2, "recipe may not include core"),
    ("src/core/up.cpp", '#include "cpu/cpu.hpp"\n', 1, "core may not include cpu"),
    ("src/core/angle.cpp", "#include <cpu/cpu.hpp>\n", 1, "core may not include cpu"),
    ("src/cpu/side.cpp", '#include "cuda/backend.hpp"\n', 1, "cpu may not include cuda"),
    ("src/simt/up.cpp", '/*\n*/ #include "cuda/ptx/mma.cuh"\n', 2, "simt may not include cuda/ptx"),
    ("src/cuda/ptx/up.cuh", '#include "cuda/tile/softmax.cuh"\n', 1, "cuda/ptx may not include cuda/tile"),
    ("src/cuda/tile/up.cuh", '#include "core/plan.hpp"\n', 1, "cuda/tile may not include core"),
    ("src/cuda/quantize/side.cu", '#include "cuda/wgmma/config.hpp"\n', 1, "cuda/quantize may not include cuda/wgmma"),
    ("src/core/dots.cpp", '#include "../cpu/cpu.hpp"\n', 1, "no '..'"),
    ("src/core/typo.cpp", '#include "core/plam.hpp"\n', 1, "no such file"),
    ("src/core/macro.cpp", "#include PLAN_HEADER\n", 1, "not a literal"),
    ("src/core/out.cpp", '#include "tools/file.hpp"\n', 1, "core may not include tools/file.hpp"),
    ("src/extra/new.cpp", "#include <bit>\n", 1, "no layer"),
    ("include/quatt/leak.hpp", '#include "core/plan.hpp"\n', 1, "include may not include src/core/plan.hpp"),
    ("tools/inside.cpp", '#include "core/plan.hpp"\n', 1, "tools may not include src/core/plan.hpp"),
    ("bench/inside.cpp", '#include "recipe/recipe.hpp"\n', 1, "bench may not include src/recipe/recipe.hpp"),
    ("python/module.cpp", '#include "core/plan.hpp"\n', 1, "python may not include src/core/plan.hpp"),
    ("src/core/width.cpp", "#include <vector>\nstd::uint8_t x;\n", 2, "without <cstdint>"),
    ("examples/one.c", '#include "file.hpp"\n', 1, "examples may not include tools/file.hpp"),
]


class CheckIncludes(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = folder.name
        plant(self.root, GOOD)

    def test_good_tree_has_no_violation(self):
        found, files = check_includes.check(self.root)
        self.assertEqual(found, [])
        self.assertEqual(files, sum(not file.startswith("tests/") for file in GOOD))

    def test_each_planted_violation_is_reported(self):
        for file, text, line, report in BAD:
            with self.subTest(file=file):
                plant(self.root, {file: text})
                found, _ = check_includes.check(self.root)
                (Path(self.root) / file).unlink()
                self.assertEqual(len(found), 1, found)
                self.assertTrue(found[0].startswith(f"{file}:{line}: "), found[0])
                self.assertIn(report, found[0])


if __name__ == "__main__":
    unittest.main()
