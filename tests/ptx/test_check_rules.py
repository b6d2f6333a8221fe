#!/usr/bin/env python3
"""check_rules.py finds each kind of violation, and nothing in clean code."""

import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import check_rules  # noqa: E402
from sources import plant  # noqa: E402  check_rules adds its folder

KERNEL = "src/cuda/warp_mma/kernel.cuh"


def found(files):
    with tempfile.TemporaryDirectory() as root:
        plant(root, files)
        return check_rules.check(root)[0]


class Rules(unittest.TestCase):
    def test_asm_and_architecture_belong_to_ptx(self):
        for text in ('asm volatile("x;");', "#if __CUDA_ARCH__ >= 900", "#if defined(__CUDA_ARCH_FEAT_SM90_ALL)"):
            self.assertEqual(found({"src/cuda/ptx/a.hpp": text}), [])
            self.assertEqual(len(found({"src/cuda/tile/a.hpp": text})), 1, text)
            self.assertEqual(len(found({"tests/cuda/a.cu": text})), 1, text)
        self.assertEqual(found({"src/cpu/cpuid.cpp": 'asm("cpuid");'}), [])
        self.assertEqual(found({"src/cuda/tile/a.hpp": "// asm is elsewhere\n/* __CUDA_ARCH__ */ \"asm\";"}), [])

    def test_kernels_use_wrappers_and_views(self):
        for text in (
            "x = threadIdx.x;",
            "x = std::min(a, b);",
            "__syncthreads();",
            "x = __shfl_sync(m, v, 0);",
            "x = *p;",
            "*p = x;",
            "f(*p);",
            "return *p;",
            "x = p->y;",
            "x = a + *p;",
            "x = *reinterpret_cast<const u32*>(p);",
            "static int n;",
            "static const float table[2] = {1, 2};",
        ):
            self.assertTrue(found({KERNEL: text}), text)
            self.assertEqual(found({"src/cuda/warp_mma/launch.cu": text}), [], text)
            self.assertEqual(found({"src/cuda/warp_mma/launch.cuh": text}), [], text)

    def test_clean_kernels_pass(self):
        text = """
        // std::min of threadIdx.x
        template <int F> QUATT_KERNEL(kThreads) f(QUATT_GRID_CONSTANT(Params) p) {
            static_assert(sizeof(int) == 4);
            static constexpr u32 kN = 3;
            const auto place = [&](u32 row) -> u32 { return row * kN + (row ^ 1) * 2; };
            acc[n][i] *= 0.5f;
            const u32 x = static_cast<u32>(place(2)) * kN;
        }
        """
        self.assertEqual(found({KERNEL: text}), [])

    def test_lines_are_right(self):
        self.assertEqual(found({KERNEL: "int a;\n\n   *p = 3;\n"})[0].split(":")[1], "3")


if __name__ == "__main__":
    unittest.main()
