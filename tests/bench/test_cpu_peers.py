#!/usr/bin/env python3
"""What bench/cpu_peers.py says of made-up samples, on quiet and on busy machines."""

import unittest

import fake_peers  # finds bench/
import cpu_peers

CANDIDATES = {"torch fp32": lambda: 0.4, "torch bf16": lambda: 0.2, "fp8 cpu_avx2": lambda: 0.1}
TOLD = {"torch fp32": ("", ""), "torch bf16": ("", ""), "fp8 cpu_avx2": ("cpu_avx2", "0.0530")}


def measured(others, rounds=5):
    """Times of the candidates where other processes have others(s a call) cores."""
    times, busy = cpu_peers.measure(CANDIDATES, rounds, take=lambda call: (call(), others(call())))
    return times, list(cpu_peers.table(times, TOLD, 4e9)), list(cpu_peers.disturbances(times, busy))


class BusyMachines(unittest.TestCase):
    def test_a_quiet_machine_has_times_and_nothing_to_explain(self):
        times, table, lines = measured(lambda seconds: 0.0)
        self.assertEqual(times["fp8 cpu_avx2"], [0.1] * 5)
        self.assertEqual(table[-1], "| `fp8` | cpu_avx2 | 100.0 | 40 | 4.00 (4.00 to 4.00, 5) | 2.00 (2.00 to 2.00, 5) | 0.0530 |")
        self.assertEqual(lines, [])

    def test_a_busy_machine_is_said_to_be_busy(self):
        times, table, lines = measured(lambda seconds: 1.5)
        self.assertEqual(times["torch fp32"], [None] * 5)
        text = "\n".join(table + lines)
        self.assertNotIn("nan", text)
        self.assertNotIn("?", text)
        self.assertIn("| `fp8` | cpu_avx2 | - | - | - | - | 0.0530 |", table)
        self.assertIn("other processes had 0.1 cores or more during each of 8 tries", text)
        self.assertIn("- torch bf16: 5 of 5 rounds (1.5 cores)", lines)
        self.assertIn("no round is left: measure again where nothing else runs", lines[-1])

    def test_what_is_disturbed_alone_is_named_alone(self):
        _, table, lines = measured(lambda seconds: 0.7 if seconds == 0.2 else 0.0)
        self.assertIn("| `fp8` | cpu_avx2 | 100.0 | 40 | 4.00 (4.00 to 4.00, 5) | - | 0.0530 |", table)
        self.assertEqual(lines[1], "- torch bf16: 5 of 5 rounds (0.7 cores)")
        self.assertEqual(len(lines), 3)

    def test_a_sample_is_taken_again_until_the_machine_is_quiet(self):
        taken = []

        def others(_):
            taken.append(1)
            return 2.0 if len(taken) % 3 else 0.0

        times, _, lines = measured(others)
        self.assertEqual([None in t for t in times.values()], [False] * 3)
        self.assertEqual((len(taken), lines), (6 * 3 * 3, []))


if __name__ == "__main__":
    unittest.main()
