#!/usr/bin/env python3
"""Compares the machine code of all built kernels with the committed table, expected.json.

usage: check_sass.py --plans PROGRAM --nvcc NVCC [--table FILE] OBJECT...

Exits 77 (skipped) where cuobjdump and nvdisasm are not found. The rules (no local memory where a device chooses the kernel, no
maximum on the common path, the right tensor instruction, CTAs an SM) hold for every compiler; the numbers only for the one that the
table names.
`scripts/sass_table.py --update` rewrites the table.
"""

import argparse
import json
import sys
from pathlib import Path

import kernels
import machine_code

TABLE = Path(__file__).resolve().parent / "expected.json"
SKIPPED = 77


def differences(expected, measured):
    """Lines that say where `measured` is not the table's."""
    lines = []
    for architecture in sorted(set(expected) | set(measured)):
        old, new = expected.get(architecture, {}), measured.get(architecture, {})
        for name in sorted(set(old) | set(new)):
            if name not in new or name not in old:
                lines.append(f"{architecture} {name}: {'not in the table' if name not in old else 'in the table, not built'}")
                continue
            lines += [f"{architecture} {name}: {key} is {was(new[name], key)}, the table says {was(old[name], key)}"
                      for key in keys(old[name], new[name]) if was(new[name], key) != was(old[name], key)]
    return lines


def keys(*rows):
    found = {}
    for row in rows:
        for key, value in row.items():
            if isinstance(value, dict):
                found |= {(key, inner): 0 for inner in value}
            else:
                found[key,] = 0
    return [".".join(path) for path in found]


def was(row, key):
    for part in key.split("."):
        row = (row or {}).get(part)
    return row


def check(measured, plans, expected, is_same_compiler):
    """Lines of all that is wrong."""
    lines = kernels.stale_exceptions(measured)
    for architecture, rows in measured.items():
        for name, row in rows.items():
            lines += [f"{architecture} {name}: {rule}"
                      for rule in kernels.broken_rules(architecture, name, row, kernels.plan_of(plans, name))]
    return lines + (differences(expected, measured) if is_same_compiler else [])


def print_common_paths(measured):
    columns = ["total", *kernels.PIPES]
    print(f"{'common path of a warp tile':40}" + "".join(f"{column:>8}" for column in columns))
    for architecture, rows in measured.items():
        for name, row in rows.items():
            path = row.get("common_path")
            if path:
                for factor in (1, 2):
                    label = f"{architecture} {name} {path['rows']}x{factor * path['keys']}"
                    print(f"{label:40}" + "".join(f"{factor * path[column]:8}" for column in columns))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--plans", required=True)
    parser.add_argument("--nvcc", required=True)
    parser.add_argument("--cuobjdump")
    parser.add_argument("--table", type=Path, default=TABLE)
    parser.add_argument("objects", nargs="+")
    options = parser.parse_args()
    tools = machine_code.find_disassembler(options.cuobjdump)
    if tools is None:
        print(f"skipped: {machine_code.MISSING}")
        return SKIPPED
    table = json.loads(options.table.read_text())
    version = machine_code.nvcc_version(options.nvcc)
    plans = kernels.load_plans(options.plans)
    measured = kernels.measure_objects(tools, options.objects, plans)
    print_common_paths(measured)
    is_same = version == table["nvcc"]
    if not is_same:
        print(f"the table was made with nvcc {table['nvcc']}, this is {version}: rules only, numbers are not compared")
    wrong = check(measured, plans, table["architectures"], is_same)
    print("\n".join(wrong))
    if wrong and is_same:
        print("if the change is meant: scripts/sass_table.py --update")
    print(f"{sum(len(rows) for rows in measured.values())} kernels, {len(wrong)} failures")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
