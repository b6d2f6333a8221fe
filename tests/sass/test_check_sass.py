#!/usr/bin/env python3
"""Plants each violation that check_sass.py is there for, in a made-up kernel, and demands that it is found.

usage: test_check_sass.py [the arguments of check_sass.py]: with them, doctored tables must fail on the built kernels too.
"""

import copy
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import check_sass
import kernels
import machine_code

PLAN = {"threads": 256, "shared_bytes": 65624, "ctas_per_sm": 1, "is_fp8": True, "rows": 16, "keys": 64, "products": 2, "exponentials": 2}
RESOURCES = {"REG": 200, "STACK": 0, "SHARED": 1024, "LOCAL": 0}
QMMA = "QMMA.SF.16832.F32.E4M3.E4M3.E8 R4, R4, R8, R4, R1, R1, URZ"

# A loop over tiles as the compiler leaves one: a request by one thread, masks, a refresh with a maximum, exponentials, a redo.
BODY = f"""
        MOV R0, RZ
head:   ISETP.GE.AND P0, PT, R0, 0x2, PT
        @!P0 BRA wait
        @P1 BRA wait
try:    SYNCS.PHASECHK.TRANS64.TRYWAIT P2, [R0], R1
        @!P2 BRA try
        UBLKCP.S.G [UR4], [UR8], UR6
wait:   LDSM.16.M88.4 R8, [R0]
        {QMMA}
        @!P3 BRA refresh
        ISETP.GE.AND P0, PT, R0, 0x2, PT
        FSEL R4, R4, -INF , P0
refresh: @!P4 BRA exps
        FMNMX R5, R4, R6, !PT
        MUFU.EX2 R7, R7
exps:   MUFU.EX2 R4, R4
        MUFU.EX2 R6, R6
        BRA.DIV UR4, apart
        VOTE.ANY P0, P0
back:   @!P0 BRA done
        FMNMX R5, R4, R6, !PT
        MUFU.EX2 R4, R4
        MUFU.EX2 R6, R6
done:   {QMMA}
        NOP
        @P5 BRA head
        EXIT
apart:  WARPSYNC.COLLECTIVE R0, exps
        BRA back
"""
COMMON = 15  # instructions of BODY's common path


def assemble(body):
    lines, labels = [], {}
    for line in body.strip().splitlines():
        label, _, text = line.rpartition(":")
        if label:
            labels[label.strip()] = len(lines) * 16
        lines.append(text.strip())
    listing = "arch = sm_120f\n\t\tFunction : made_up\n"
    for i, line in enumerate(lines):
        words = line.split(" ")
        line = " ".join(hex(labels[word]) if word in labels else word for word in words)
        listing += f"        /*{16 * i:04x}*/                   {line} ;   /* 0x0 */\n"
    return machine_code.parse_listing(listing)["sm_120f", "made_up"]


def broken(body=BODY, plan=PLAN, resources=RESOURCES, architecture="sm_120f", name="made_up"):
    measured = kernels.measure(architecture, assemble(body), resources, plan)
    return kernels.broken_rules(architecture, name, measured, plan)


class Names(unittest.TestCase):
    KERNEL = "void quatt::warp_mma::cuda_abi::attention<{}>(quatt::warp_mma::cuda_abi::Params)"

    @staticmethod
    def config(*arguments):
        return "quatt::warp_mma::cuda_abi::Config<" + ", ".join(arguments) + ">"

    def test_every_template_argument_counts(self):
        plans = {"wide": {"arguments": self.config("(quatt::Arithmetic)0", "128u", "2u")},
                 "rows16": {"arguments": self.config("(quatt::Arithmetic)0", "128u", "1u")}}
        for name, plan in plans.items():
            # The demanglers put a space between closing brackets.
            self.assertEqual(kernels.instance_of(self.KERNEL.format(plan["arguments"] + " "), plans), name)
        self.assertEqual(kernels.instance_of(self.KERNEL.format(self.config("(quatt::Arithmetic)1", "128u", "1u") + " "), plans),
                         "attention<Config<(Arithmetic)1, 128, 1>>")
        self.assertEqual(kernels.instance_of("void quatt::other::combine<" + plans["wide"]["arguments"] + " >(int)", plans),
                         "combine<Config<(Arithmetic)0, 128, 2>>")

    def test_names_of_kernels_that_are_in_no_list(self):
        for demangled, name in (
                ("void quatt::quantize::cuda_abi::pack_q<quatt::formats::Bf16, 128u, true>(quatt::quantize::cuda_abi::PackQParams)",
                 "pack_q<Bf16, 128, true>"),
                ("void quatt::quantize::cuda_abi::copy_rows<(quatt::quantize::cuda_abi::Operand)2, 64u, false>(quatt::quantize::Params)",
                 "copy_rows<(Operand)2, 64, false>"),
                ("void quatt::quantize::cuda_abi::plan<void>(quatt::quantize::cuda_abi::PlanParams)", "plan"),
                ("quatt::quantize::fill(quatt::Box<4u>)", "fill")):
            self.assertEqual(kernels.instance_of(demangled, {}), name)

    def test_plan_by_kernel_and_head_size(self):
        plans = {"pack_q_64": 1, "pack_q_128": 2, "plan": 3}
        self.assertEqual([kernels.plan_of(plans, name) for name in ("pack_q<Bf16, 64, true>", "pack_q<Bf16, 128, true>", "plan")], [1, 2, 3])
        self.assertIsNone(kernels.plan_of(plans, "pack_q<Bf16, 64, 128>"))

    def test_two_kernels_of_one_name(self):
        table = {}
        kernels.add(table, "sm_90a", "fp8_128", {}, "a.o")
        kernels.add(table, "sm_120f", "fp8_128", {}, "a.o")
        with self.assertRaisesRegex(ValueError, "b.o: a second kernel of the name fp8_128 for sm_90a"):
            kernels.add(table, "sm_90a", "fp8_128", {}, "b.o")

    def test_demangle(self):
        self.assertEqual(machine_code.demangle(["_Z1fIiEvT_", "_Z1gv"]), {"_Z1fIiEvT_": "void f<int>(int)", "_Z1gv": "g()"})


class Rules(unittest.TestCase):
    def test_common_path(self):
        path = kernels.common_path(assemble(BODY), PLAN, "sm_120f")
        self.assertEqual(len(path), COMMON, path)
        counts = kernels.count(path)
        self.assertEqual((counts["tensor"], counts["mufu"], counts["ldsm"], counts["nop"], counts["fmnmx"], counts["copy"]), (2, 2, 1, 1, 0, 0))
        self.assertEqual(broken(), [])

    def test_path_of_copies_made_by_all_threads(self):
        plan = {**PLAN, "is_fp8": False}
        body = BODY.replace("UBLKCP.S.G [UR4], [UR8], UR6", "LDGSTS.E.128 [R1], desc[UR4][R2.64]")
        path = kernels.common_path(assemble(body), plan, "sm_120f")
        self.assertEqual(kernels.count(path)["copy"], 1)

    def test_maximum_on_the_common_path(self):
        self.assertIn("FMNMX on the common path", " ".join(broken(BODY.replace("NOP", "FMNMX R5, R4, R6, !PT"))))

    def test_local_memory(self):
        self.assertIn("stores 16", " ".join(broken(BODY.replace("NOP", "STL.128 [R1], R4"))))
        self.assertIn("stack 8", " ".join(broken(resources={**RESOURCES, "STACK": 8})))
        self.assertIn("stack 8", self.on_hopper("made_up", 8))

    @staticmethod
    def on_hopper(name, stack_bytes):
        return " ".join(broken(resources={**RESOURCES, "STACK": stack_bytes}, body=BODY.replace(QMMA, "HMMA.16816.F32 R4, R4, R8, R4"),
                               plan={**PLAN, "products": 1}, architecture="sm_90a", name=name))

    def test_exceptions_from_local_memory(self):
        # Not chosen on its device: may spill and may not.
        self.assertEqual([self.on_hopper("fp8_128_block_scaled", n) for n in (0, 8)], ["", ""])
        # An exception that is no longer one must go.
        for architecture, name in kernels.LOCAL_MEMORY:
            self.assertEqual(architecture, "sm_90a")
            self.assertEqual(self.on_hopper(name, 8), "")
            self.assertIn("take its entry out of LOCAL_MEMORY", self.on_hopper(name, 0))
            self.assertTrue(kernels.is_chosen(architecture, name))

    def test_exceptions_that_name_nothing(self):
        table = {architecture: dict.fromkeys(names) for architecture, names in kernels.NOT_CHOSEN.items()}
        for architecture, name in kernels.LOCAL_MEMORY:
            table[architecture][name] = None
        self.assertEqual(kernels.stale_exceptions(table), [])
        self.assertEqual(kernels.stale_exceptions({}), [])
        del table["sm_90a"]["bf16_128_rows16"]
        self.assertEqual(kernels.stale_exceptions(table), ["sm_90a bf16_128_rows16: named in tests/sass/kernels.py and not built"])

    def test_plain_fp8_instruction(self):
        self.assertIn("want QMMA.SF", " ".join(broken(BODY.replace(QMMA, "QMMA.16832.F32.E4M3.E4M3 R4, R4, R8, R4", 1))))

    def test_occupancy(self):
        self.assertIn("CTAs an SM", " ".join(broken(plan={**PLAN, "ctas_per_sm": 2})))
        self.assertIn("0 CTAs an SM", " ".join(broken(plan={**PLAN, "shared_bytes": 101377})))
        self.assertEqual(broken(plan={**PLAN, "shared_bytes": 101376}), [])
        self.assertIn("0 CTAs an SM", " ".join(broken(plan={**PLAN, "threads": 512})))

    def test_loop_lost(self):
        self.assertIn("no loop", " ".join(broken(BODY.replace("@P5 BRA head", "NOP"))))

    def test_wgmma(self):
        plan = {**PLAN, "exponentials": 1, "most_registers": 160, "shapes": ["64x64x32", "64x128x32"]}
        scores, values = "QGMMA.64x64x32.F32.E4M3.E4M3 R88, gdesc[UR8], RZ, !UPT", "QGMMA.64x128x32.F32.E4M3.E4M3 R24, R120, gdesc[UR8], R24, gsb0"
        tile = f"""        WARPGROUP.ARRIVE
        {scores}
        {values}
        MUFU.EX2 R4, R4
        @!P4 BRA next_N
        FMNMX R5, R4, R6, !PT
next_N: NOP
"""
        loop = "head:   NOP\n" + tile.replace("_N", "1") + tile.replace("_N", "2") + "        @P5 BRA head\n        EXIT\n"

        def found(body):
            return " ".join(broken(body, plan, architecture="sm_90a"))
        self.assertEqual(found(loop), "")
        self.assertEqual(kernels.measure("sm_90a", assemble(loop), RESOURCES, plan)["common_path"]["keys"], 128)
        self.assertIn("FMNMX on the common path", found(loop.replace("NOP\n        @P5", "FMNMX R5, R4, R6, !PT\n        @P5")))
        self.assertIn("serialised", found(loop.replace("        QGMMA.64x128", "        WARPGROUP.ARRIVE\n        QGMMA.64x128")))
        self.assertIn("want ['QGMMA", found(loop.replace("64x128x32", "64x64x32")))
        self.assertIn("registers", found(loop.replace("R120", "R160")))
        self.assertIn("loads 4", found(loop.replace("head:   NOP", "head:   LDL R0, [R1]")))
        self.assertIn("no loop", found(loop.replace("@P5 BRA head", "NOP")))

    def test_table(self):
        row = kernels.measure("sm_120f", assemble(BODY), RESOURCES, PLAN)
        table = {"sm_120f": {"made_up": row}}
        self.assertEqual(check_sass.differences(table, table), [])
        doctored = copy.deepcopy(table)
        doctored["sm_120f"]["made_up"]["common_path"]["total"] -= 1
        self.assertEqual(check_sass.differences(doctored, table),
                         [f"sm_120f made_up: common_path.total is {COMMON}, the table says {COMMON - 1}"])
        self.assertIn("not in the table", check_sass.differences({}, table)[0])
        self.assertIn("not built", check_sass.differences(table, {})[0])


def doctored_tables_fail(arguments):
    """Runs check_sass.py on one built kernel, first with a true table, then with tables that are wrong in one number each."""
    name = "fp8_128_block_scaled"
    objects = [argument for argument in arguments if argument.endswith(f"{name}.cu.o")]
    options = [argument for argument in arguments if not argument.endswith(".o")]
    tools = machine_code.find_disassembler()
    if tools is None:
        print(f"built kernels skipped: {machine_code.MISSING}")
        return None
    plans, nvcc = (options[options.index(option) + 1] for option in ("--plans", "--nvcc"))
    true = {"nvcc": machine_code.nvcc_version(nvcc), "architectures": kernels.measure_objects(tools, objects, kernels.load_plans(plans))}
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        for path in ([], ["registers"], ["spill_store_bytes"], ["shared_bytes"], ["ctas_per_sm"], ["common_path", "total"], ["common_path", "nop"]):
            doctored = copy.deepcopy(true)
            row = doctored["architectures"]["sm_120f"][name]
            for key in path[:-1]:
                row = row[key]
            if path:
                row[path[-1]] += 1
            file = Path(folder) / "doctored.json"
            file.write_text(json.dumps(doctored))
            result = subprocess.run([sys.executable, check_sass.__file__, "--table", file, *options, *objects], capture_output=True, text=True, check=False)
            found = f"{name}: {'.'.join(path)} is" in result.stdout
            if path:
                is_right = result.returncode == 1 and found
            else:  # the built kernel may break a rule, which is for the test sass.kernels to say
                is_right = "the table says" not in result.stdout
            print(f"{'doctored ' + '.'.join(path) if path else 'true table'}: {'as it must be' if is_right else 'WRONG'}")
            if not is_right:
                print(result.stdout + result.stderr)
            failures += not is_right
    return failures


if __name__ == "__main__":
    if not unittest.main(argv=sys.argv[:1], exit=False).result.wasSuccessful():
        sys.exit(1)
    FAILURES = doctored_tables_fail(sys.argv[1:]) if len(sys.argv) > 1 else 0
    sys.exit(check_sass.SKIPPED if FAILURES is None else FAILURES != 0)
