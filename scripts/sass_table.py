#!/usr/bin/env python3
"""Prints what the built kernels' machine code is: registers, local memory, CTAs an SM, instructions of a key tile.

usage: scripts/sass_table.py [--build DIR] [--update] [--all] [--path INSTANCE] [OBJECT...]

--build DIR       the build to look at (default build/dev)
--update          rewrites tests/sass/expected.json, and the tables between <!-- sass: NAME --> lines in docs/perf/sm120.md
--all             the quantisers too
--path INSTANCE   lists the instructions of the common path of an sm_120f instance, such as fp8_128_block_scaled
OBJECT            other objects or cubins instead of the build's
"""

import argparse
import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "sass"))
sys.dont_write_bytecode = True
import check_sass  # noqa: E402  the folder comes first
import kernels  # noqa: E402
import machine_code  # noqa: E402

DOCS = ROOT / "docs" / "perf" / "sm120.md"

# ---------------------------------------------------------------- the model of sm_120 (docs/perf/sm120.md)

# Clocks of one scheduler (a quarter of an SM) that an instruction of a warp takes from its pipe, from published rates: 512 FP8 flop
# a clock, 4 transcendentals a clock; ldmatrix moves 128 bytes a clock for all four schedulers.
QMMA_CLOCKS = 2 * 16 * 8 * 32 / 512
MUFU_CLOCKS = 32 / 4
LDSM_X4_CLOCKS = 4 * 512 / 128

# name: (SMs, boost clock in GHz, measured ms at S = 30272 and 20440, H = 56, D = 128, of fp8_fa_sm120)
GPUS = {"RTX PRO 6000": (188, 2.617, 43.7, 19.9), "RTX 5080": (84, 2.617, 123.6, 57.0)}
LENGTHS = (30272, 20440)
HEADS, DIM = 56, 128

# FlashInfer 0.7.4's FP8 kernel, counted the same way: 16 x 128, path without masks and rescaling.
FLASHINFER = {"total": 608, "tensor": 128, "ldsm": 64, "nop": 71, "fmnmx": 68, "fadd": 66, "mufu": 66, "ffma": 66, "f2fp": 32}


def clocks(path):
    """{pipe: clocks of one scheduler for one warp tile}"""
    return {"tensor": path["tensor"] * QMMA_CLOCKS, "issue": path["total"], "mufu": path["mufu"] * MUFU_CLOCKS,
            "ldsm": path["ldsm"] * LDSM_X4_CLOCKS}


def predicted_ms(path, keys, sms, ghz, length, overlap):
    """One head takes length / 16 x length / keys warp tiles. overlap 1: only the busiest pipe counts; 0: nothing overlaps the products."""
    tile = clocks(path)
    rest = max(tile["issue"] - path["tensor"], tile["mufu"], tile["ldsm"])
    busiest = max(tile.values())
    cost = overlap * busiest + (1 - overlap) * (tile["tensor"] + rest)
    tiles = HEADS * -(-length // 128) * 8 * -(-length // keys)
    return tiles * cost / (4 * sms * ghz * 1e9) * 1e3


def floor_ms(sms, ghz, length):
    return 4 * length * length * DIM * HEADS / (sms * 4 * 512 * ghz * 1e9) * 1e3


# ---------------------------------------------------------------- tables

def markdown(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join(lines + ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows])


def resources_table(table, is_attention):
    rows = []
    for architecture, instances in table.items():
        for name, row in instances.items():
            if ("common_path" in row) == is_attention:
                rows.append([architecture, name, row["registers"], row["stack_bytes"], row["spill_store_bytes"], row["spill_load_bytes"],
                             row["threads"], row["shared_bytes"], row["ctas_per_sm"]])
    return markdown(["target", "instance", "registers", "stack", "spill stores", "spill loads", "threads", "shared bytes", "CTAs an SM"], rows)


def paths_table(table):
    columns = ["total", *kernels.PIPES]
    rows = []
    for architecture, instances in table.items():
        for name, row in instances.items():
            path = row.get("common_path")
            for factor in (1, 2) if path else ():
                rows.append([architecture, name, f"{path['rows']}x{factor * path['keys']}", *(factor * path[column] for column in columns)])
    return markdown(["target", "instance", "warp tile", *columns], rows)


def counts_table(table):
    ours = table["sm_120f"]["fp8_128_block_scaled"]["common_path"]
    columns = ["total", "tensor", "ldsm", "mufu", "ffma", "fadd", "fmul", "f2fp", "fmnmx", "nop", "control", "vote", "memory", "uniform", "alu"]
    rows = [["quatt, 16x64", *(ours[c] for c in columns)], ["quatt, 16x128 (two tiles)", *(2 * ours[c] for c in columns)],
            ["FlashInfer 0.7.4 FP8, 16x128", *(("~" if c == "total" else "") + str(FLASHINFER[c]) if c in FLASHINFER else "" for c in columns)]]
    return markdown(["warp tile", *columns], rows)


def clocks_table(table):
    path = table["sm_120f"]["fp8_128_block_scaled"]["common_path"]
    tile = clocks(path)
    peer = clocks(FLASHINFER)
    what = {"tensor": "block-scaled products, 16 clocks each", "issue": "one instruction a clock",
            "mufu": "exponentials, 8 clocks each", "ldsm": "ldmatrix x4, 4 clocks of an SM, so 16 of each of its 4 schedulers' share"}
    return markdown(["pipe", "rate", "16x64", "16x128", "of the tensor pipe", "FlashInfer 16x128"],
                    [[pipe, what[pipe], round(tile[pipe]), round(2 * tile[pipe]), f"{100 * tile[pipe] / tile['tensor']:.0f} %", round(peer[pipe])]
                     for pipe in tile])


def times_table(table):
    path = table["sm_120f"]["fp8_128_block_scaled"]["common_path"]
    rows = []
    for gpu, (sms, ghz, *measured) in GPUS.items():
        for length, ms in zip(LENGTHS, measured):
            floor = floor_ms(sms, ghz, length)
            at = [predicted_ms(path, 64, sms, ghz, length, overlap) for overlap in (1, 0.75, 0.5, 0)]
            rows.append([gpu, length, f"{floor:.1f}", *(f"{t:.1f} ({100 * floor / t:.0f} %)" for t in at), f"{ms} ({100 * floor / ms:.0f} %)"])
    return markdown(["GPU", "S", "tensor floor, ms", "overlap 1", ".75", ".5", "0", "fp8_fa_sm120, measured"], rows)


BLOCKS = {"counts": counts_table, "clocks": clocks_table, "times": times_table,
          "resources": lambda table: resources_table(table, True), "paths": paths_table}


def update_docs(table):
    text = DOCS.read_text()
    for name, make in BLOCKS.items():
        text, found = re.subn(rf"(<!-- sass: {name} -->\n).*?(<!-- end -->)", lambda m, make=make: m.group(1) + make(table) + "\n" + m.group(2),
                              text, flags=re.DOTALL)
        if found != 1:
            raise ValueError(f"{DOCS}: {found} places for the table '{name}'")
    DOCS.write_text(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "dev")
    parser.add_argument("--nvcc", default="nvcc")
    parser.add_argument("--update", action="store_true")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--path")
    parser.add_argument("objects", nargs="*")
    options = parser.parse_args()
    tools = machine_code.find_disassembler()
    if tools is None:
        sys.exit(machine_code.MISSING)
    plans = kernels.load_plans(options.build / "tests" / "sass" / "sass_plans")
    native = options.build / "src" / "cuda" / "CMakeFiles"
    objects = options.objects or sorted([*native.glob("quatt_native.dir/**/*.o"), *native.glob("quatt_native_wgmma.dir/**/*.o")])
    if options.path:
        for file in objects:
            listings = machine_code.disassemble(tools, file)[0]
            demangled = machine_code.demangle([symbol for _, symbol in listings])
            for (architecture, symbol), code in listings.items():
                name = kernels.instance_of(demangled[symbol], plans)
                if name == options.path and architecture in ("", "sm_120f"):
                    for instruction in kernels.common_path(code, plans[name], "sm_120f"):
                        print(f"{kernels.group_of(instruction):8} {instruction}")
        return
    table = kernels.measure_objects(tools, objects, plans)
    print(resources_table(table, True), "\n")
    if options.all:
        print(resources_table(table, False), "\n")
    print(paths_table(table), "\n")
    if "fp8_128_block_scaled" in table.get("sm_120f", {}):
        print("Model of sm_120, clocks of a scheduler:", clocks_table(table), "\nPredicted ms, by how much of the rest overlaps the products:",
              times_table(table), sep="\n")
    for line in kernels.stale_exceptions(table) if not options.objects else ():
        print(f"BROKEN: {line}")
    for architecture, rows in table.items():
        for name, row in rows.items():
            for rule in kernels.broken_rules(architecture, name, row, kernels.plan_of(plans, name)):
                print(f"BROKEN: {architecture} {name}: {rule}")
    if options.update:
        # One kernel a line, so that a diff shows which changed.
        parts = [f' "{architecture}": {{\n' + ",\n".join(f'  "{name}": {json.dumps(row)}' for name, row in rows.items()) + "\n }"
                 for architecture, rows in table.items()]
        version = machine_code.nvcc_version(options.nvcc)
        check_sass.TABLE.write_text(f'{{"nvcc": "{version}",\n"architectures": {{\n' + ",\n".join(parts) + "\n}}\n")
        update_docs(table)


if __name__ == "__main__":
    main()
