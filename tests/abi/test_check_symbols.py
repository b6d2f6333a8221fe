#!/usr/bin/env python3
"""check_symbols.py finds planted symbols in listings of nm, and lets pass what a library may define."""

import unittest

import check_symbols

HEADER = """
typedef void (*quatt_log_fn)(void* user, const char* message);
__attribute__((visibility("default"))) const char* quatt_version(void);
__attribute__((visibility("default"))) int quatt_run(const struct quatt_plan* plan,
    void* workspace);
int quatt_forgotten
    (void);
static inline int quatt_short(const struct quatt_plan* plan) {
    return quatt_run(plan, 0);
}
"""
NAMES = {"quatt_version", "quatt_run", "quatt_forgotten"}


def listing(*symbols):
    return "".join(f"00000000000010f0 {kind} {name}\n" for kind, name in symbols)


API = [("T", name) for name in sorted(NAMES)]


class Symbols(unittest.TestCase):
    def test_declarations_may_be_wrapped_and_lack_the_attribute_and_are_not_inline(self):
        self.assertEqual(check_symbols.declared(HEADER), NAMES)

    def test_shared_both_directions(self):
        def faults(*symbols):
            return list(check_symbols.shared_faults(NAMES, listing(*symbols)))

        versioned = [(kind, name + "@@QUATT_0") for kind, name in API]
        self.assertEqual(faults(("A", "QUATT_0"), *versioned), [])
        self.assertEqual(faults(*versioned[1:]), ["quatt_forgotten is declared and not exported"])
        self.assertEqual(faults(*versioned, ("T", "quatt_extra@@QUATT_0")), ["quatt_extra is exported and not declared"])
        self.assertEqual(faults(*versioned, ("W", "_ZNSt6vectorIiSaIiEED2Ev")),
                         ["_ZNSt6vectorIiSaIiEED2Ev is exported and not declared"])

    def test_static_lets_pass_what_is_ours_or_merged(self):
        sound = [
            ("T", "_ZN5quatt4core9make_planEv"),
            ("T", "_ZNK5quatt4simt5Block2idEv"),
            ("B", "_ZZN5quatt4core5cacheEvE1x"),
            ("V", "_ZTIN5quatt4simt9CancelledE"),
            ("V", "_ZTVN5quatt4simt9CancelledE"),
            ("u", "_ZGVZN5quatt4core5cacheEvE1x"),
            ("T", "_ZThn8_N5quatt4core4PoolD1Ev"),
            ("T", "quatt_internal_helper"),
            ("W", "_ZNSt6vectorIN5quatt4simt4WordESaIS2_EED2Ev"),
            ("W", "_ZSt4swapIiEvRT_S1_"),
            ("W", "_ZN9__gnu_cxx13new_allocatorIcED2Ev"),
            ("V", "DW.ref.__gxx_personality_v0"),
        ]
        self.assertEqual(list(check_symbols.static_faults(NAMES, "\nfile.o:\n" + listing(*API, *sound))), [])

    def test_static_finds_names_of_others(self):
        for symbol in [
            ("T", "helper"),
            ("T", "_Z6helperv"),
            ("W", "_ZN5other6helperEv"),
            ("B", "_ZL5table"),
            ("T", "_ZNSt6vectorIiSaIiEED2Ev"),  # a strong definition would clash
            ("T", "_ZN6quatt26helperEv"),
            ("D", "DW.ref.something"),
        ]:
            found = list(check_symbols.static_faults(NAMES, listing(*API, symbol)))
            self.assertEqual(len(found), 1, symbol)
            self.assertIn(symbol[1], found[0])
        self.assertEqual(list(check_symbols.static_faults(NAMES, listing(*API[1:]))),
                         ["quatt_forgotten is declared and not defined"])


if __name__ == "__main__":
    unittest.main()
