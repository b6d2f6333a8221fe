"""What the machine code of this project's kernels is: which instance a symbol is, which path is common, what runs on it."""

import json
import math
import re
from collections import Counter

import machine_code
from machine_code import Flow

# Of one multiprocessor. A block also has 1 KB of shared memory taken by the system.
LIMITS = {
    "sm_90a": {"shared_bytes": 228 << 10, "block_shared_bytes": 227 << 10, "registers": 65536, "threads": 2048},
    "sm_120f": {"shared_bytes": 100 << 10, "block_shared_bytes": 99 << 10, "registers": 65536, "threads": 1536},
}
SYSTEM_SHARED_BYTES = 1024

BLOCK_SCALED = "QMMA.SF.16832.F32.E4M3.E4M3.E8"
TENSOR = {"QMMA", "HMMA", "IMMA", "OMMA", "DMMA", "QGMMA"}

# Groups of opcodes, for the table. An opcode that is not here counts as "alu".
GROUPS = {
    "tensor": TENSOR, "ldsm": {"LDSM"}, "mufu": {"MUFU"}, "ffma": {"FFMA"}, "fadd": {"FADD"}, "fmul": {"FMUL"},
    "f2fp": {"F2FP", "F2F"}, "fmnmx": {"FMNMX", "FMNMX3"}, "copy": {"LDGSTS", "LDGDEPBAR", "UBLKCP", "UTMALDG"},
    "memory": {"LDG", "STG", "LDS", "STS", "LDL", "STL", "LDC", "LDCU", "ULDC", "SYNCS", "ATOMS", "ATOMG", "FENCE", "MEMBAR", "CCTL"},
    "vote": {"VOTE", "VOTEU", "SHFL", "MATCH", "REDUX"}, "nop": {"NOP"},
    "control": {"WARPGROUP", "BRA", "BSSY", "BSYNC", "WARPSYNC", "BAR", "DEPBAR", "EXIT", "BREAK", "YIELD", "JMP", "CALL", "RET", "WARPSYNC"},
}
PIPES = [*GROUPS, "uniform", "alu"]


def group_of(instruction):
    for name, opcodes in GROUPS.items():
        if instruction.opcode in opcodes:
            return name
    return "uniform" if re.match(r"U[A-Z]|R2UR|S2UR", instruction.opcode) else "alu"


# ---------------------------------------------------------------- names

def instance_of(demangled, plans):
    """The name of a kernel by its demangled name, in which all its template arguments stand.

    Where they are those of an entry of a schedule's list of instances, that entry's name ("fp8_128_block_scaled"); else the function
    with its arguments, without their namespaces ("pack_q<Bf16, 128, true>").
    """
    match = re.match(r"(?:[\w ]+ )?(?:\w+::)*(\w+)[<(]", demangled)
    if not match:
        return demangled
    arguments = template_arguments(demangled[match.end(1):])
    for name, plan in plans.items():
        if match.group(1) == "attention" and plan.get("arguments") == arguments:
            return name
    short = re.sub(r"\b(\d+)(?:u|ul|ull|l|ll)\b", r"\1", re.sub(r"(?:\w+::)+", "", arguments)).replace(" >", ">")
    return match.group(1) + (f"<{short}>" if short not in ("", "void") else "")


def template_arguments(text):
    """What stands between the brackets that `text` begins with, if it does."""
    depth = 0
    for i, letter in enumerate(text):
        depth += (letter == "<") - (letter == ">")
        if depth == 0:
            return text[1:i].strip()
    raise ValueError(f"brackets do not match: {text}")


# Instances that no device of an architecture ever chooses: emulation runs them there, or nothing does.
NOT_CHOSEN = {
    "sm_90a": {"bf16_128_rows16", "fp8_64_block_scaled", "fp8_128_block_scaled"},
    "sm_120f": {"bf16_128", "fp8_64_block_scaled", "fp8_128_block_scaled"},
}
# Those that are chosen and have local memory all the same. An entry whose instance has none is an error.
LOCAL_MEMORY = {
    ("sm_90a", "fp8_128"): "mma.sync has no E4M3 there: converting to f16 takes registers that a warp of 16 rows does not have",
    ("sm_90a", "bf16_128"): "32 rows a warp take all 255 registers: to be cured",
}


def is_chosen(architecture, name):
    return name not in NOT_CHOSEN.get(architecture, ())


def stale_exceptions(measured):
    """Entries of the two tables above that name nothing, for the architectures that were measured."""
    entries = [(architecture, name) for architecture, names in NOT_CHOSEN.items() for name in sorted(names)] + list(LOCAL_MEMORY)
    return [f"{architecture} {name}: named in tests/sass/kernels.py and not built"
            for architecture, name in entries if architecture in measured and name not in measured[architecture]]


# ---------------------------------------------------------------- the common path

def is_wgmma(plan):
    return "shapes" in plan


def common_path(code, plan, architecture, tiles=1):
    """The instructions of one key tile for a warp that neither masks, refreshes, nor redoes, and asks for no bulk copy.

    Of `tiles` key tiles, where the loop is unrolled.

    Found as the cheapest way round the loop over key tiles that runs the products and exponentials of one tile, once: masks, refreshes and
    redos only add to it. It passes the copies (16 bit: every thread makes some), or, where one thread makes
    them (8 bit), the branch around them. Returns [instruction], or None.
    """
    flow = Flow(code)
    # mma.sync has no E4M3 there: two HMMA take its place.
    tensor = tiles * plan["products"] * (2 if architecture == "sm_90a" and plan["is_fp8"] and not is_wgmma(plan) else 1)
    exponentials = tiles * plan["exponentials"]
    # The compiler may compute factors of a rare branch ahead of it; a redo has all exponentials again.
    low, high = (tensor, exponentials), (tensor, exponentials * 3 // 2)

    def weigh(block):
        return (sum(i.opcode in TENSOR for i in flow.blocks[block]),
                sum(i.name.startswith("MUFU.EX2") for i in flow.blocks[block]))

    copies = {b for b in range(len(flow.blocks)) if flow.has(b, {"LDGSTS", "UBLKCP", "UTMALDG"})}
    best = None
    for head in flow.loop_heads():
        through = copies
        if is_wgmma(plan):
            through = set()  # other warps ask for the copies
        elif plan["is_fp8"]:
            # Where the walk that copies leaves the one that does not, at the last moment.
            with_copy = flow.cheapest_cycle(head, weigh, low, high, copies)
            if with_copy is None:
                continue
            without = flow.reaches(head, copies)
            walk = with_copy[1]
            before = [b for b in walk[:min(i for i, b in enumerate(walk) if b in copies)] if b in without]
            through = {before[-1]} if before else copies
        found = flow.cheapest_cycle(head, weigh, low, high, through)
        if found and (best is None or found[0] < best[0]):
            best = found
    return None if best is None else [i for block in best[1] for i in flow.blocks[block]]


def count(path):
    """{group: instructions}"""
    counts = Counter(group_of(i) for i in path)
    return {group: counts[group] for group in PIPES}


# ---------------------------------------------------------------- what is measured of an instance

def ctas_per_sm(architecture, registers, threads, shared_bytes):
    limits = LIMITS[architecture]
    if shared_bytes > limits["block_shared_bytes"]:
        return 0
    warp_registers = math.ceil(registers * 32 / 256) * 256
    return min(limits["shared_bytes"] // (shared_bytes + SYSTEM_SHARED_BYTES),
               limits["registers"] // (warp_registers * (threads // 32)), limits["threads"] // threads)


def measure(architecture, code, resources, plan):
    stored, loaded = machine_code.local_bytes(code)
    static = resources["SHARED"] - SYSTEM_SHARED_BYTES
    shared = plan["shared_bytes"] + max(static, 0)
    result = {
        "registers": resources["REG"], "stack_bytes": resources["STACK"],
        "spill_store_bytes": stored, "spill_load_bytes": loaded,
        "threads": plan["threads"], "shared_bytes": shared,
        "ctas_per_sm": ctas_per_sm(architecture, resources["REG"], plan["threads"], shared),
    }
    tensor = Counter(i.name for i in code if i.opcode in TENSOR)
    if tensor:
        result["tensor_opcodes"] = sorted(tensor)
    if "products" in plan:
        # A way round the loop over items has as many tiles and is longer.
        paths = [(tiles, common_path(code, plan, architecture, tiles)) for tiles in ((1, 2) if is_wgmma(plan) else (1,))]
        tiles, path = min(paths, key=lambda found: len(found[1]) / found[0] if found[1] else math.inf)
        if path is None:
            result["common_path"] = None
        else:
            result["common_path"] = {"rows": plan["rows"], "keys": tiles * plan["keys"], "total": len(path), **count(path)}
        if is_wgmma(plan):
            # What is launched with and what setmaxnreg leaves to those that compute differ: the highest that is named counts.
            result["registers_named"] = 1 + max(int(n) for i in code for n in re.findall(r"\bR(\d+)\b", i.operands))
            if path is not None:
                result["arrivals"] = sum(i.name == "WARPGROUP.ARRIVE" for i in path)
    return result


def broken_rules(architecture, name, measured, plan):
    """What must hold whatever the table says."""
    broken = []
    is_attention = "products" in plan
    has_local_memory = any(measured[key] for key in ("stack_bytes", "spill_store_bytes", "spill_load_bytes"))
    excuse = LOCAL_MEMORY.get((architecture, name))
    if has_local_memory and is_chosen(architecture, name) and not excuse:
        broken.append(f"local memory: stack {measured['stack_bytes']}, stores {measured['spill_store_bytes']}, "
                      f"loads {measured['spill_load_bytes']} bytes a thread")
    if excuse and not has_local_memory:
        broken.append("no local memory: take its entry out of LOCAL_MEMORY (tests/sass/kernels.py)")
    # Without the room for the CTAs that config.hpp states a kernel is slow, without the room for one it cannot start. The
    # statement is for the architecture that a recipe is made for: of the 16-bit ones, sm_90a.
    wanted = 0 if not is_chosen(architecture, name) else plan["ctas_per_sm"] if architecture == "sm_90a" or plan.get("is_fp8", True) else 1
    if measured["ctas_per_sm"] < wanted:
        broken.append(f"{measured['ctas_per_sm']} CTAs an SM, want {wanted}: "
                      f"{measured['registers']} registers, {measured['shared_bytes']} shared bytes, {plan['threads']} threads")
    if not is_attention:
        return broken
    # fp8 on sm_120f is the block-scaled instruction, in the instance for emulation too; elsewhere there is HMMA only.
    if is_wgmma(plan):
        return broken + broken_wgmma_rules(measured, plan)
    wanted = BLOCK_SCALED if architecture == "sm_120f" and plan["is_fp8"] else "HMMA.16816.F32"
    others = [opcode for opcode in measured.get("tensor_opcodes", []) if not opcode.startswith(wanted)]
    if wanted not in " ".join(measured.get("tensor_opcodes", [])) or others:
        broken.append(f"tensor instructions {measured.get('tensor_opcodes')}, want {wanted} only")
    path = measured["common_path"]
    if path is None:
        broken.append("no loop with the products and exponentials of one key tile")
    elif path["fmnmx"]:
        broken.append(f"{path['fmnmx']} FMNMX on the common path, want none")
    return broken


def broken_wgmma_rules(measured, plan):
    broken = []
    wanted = sorted({f"QGMMA.{shape}.F32.E4M3.E4M3" for shape in plan["shapes"]})
    if measured.get("tensor_opcodes") != wanted:
        broken.append(f"tensor instructions {measured.get('tensor_opcodes')}, want {wanted}")
    if measured["registers_named"] > plan["most_registers"]:
        broken.append(f"{measured['registers_named']} registers, setmaxnreg leaves {plan['most_registers']}")
    path = measured["common_path"]
    if path is None:
        return [*broken, "no loop with the products and exponentials of one or two key tiles"]
    if path["fmnmx"]:
        broken.append(f"{path['fmnmx']} FMNMX on the common path, want none")
    # Where ptxas serialises wgmmas, each has its own.
    if measured["arrivals"] != path["keys"] // plan["keys"]:
        broken.append(f"{measured['arrivals']} WARPGROUP.ARRIVE on the common path, want one a tile: are the wgmmas serialised?")
    return broken


def measure_objects(tools, objects, plans):
    """{architecture: {instance: measured}} of all kernels in the objects; an instance that comes twice is an error."""
    table = {}
    for file in objects:
        listings, resources = machine_code.disassemble(tools, file)
        demangled = machine_code.demangle([symbol for _, symbol in listings])
        for (architecture, symbol), code in listings.items():
            name = instance_of(demangled[symbol], plans)
            plan = plan_of(plans, name)
            if plan is None:
                raise ValueError(f"{file}: no plan for {name} ({demangled[symbol]})")
            add(table, architecture, name, measure(architecture, code, resources[architecture, symbol], plan), file)
    return {architecture: dict(sorted(rows.items())) for architecture, rows in sorted(table.items())}


def add(table, architecture, name, row, file):
    rows = table.setdefault(architecture, {})
    if name in rows:
        raise ValueError(f"{file}: a second kernel of the name {name} for {architecture}")
    rows[name] = row


def plan_of(plans, name):
    """Those of kernels that are in no list of instances are by kernel and head size: pack_q<Bf16, 128, true> has that of pack_q_128."""
    if name in plans:
        return plans[name]
    kernel, dims = name.split("<")[0], re.findall(r"\b(64|128)\b", name)
    return plans.get(f"{kernel}_{dims[0]}" if len(dims) == 1 else kernel)


def load_plans(program):
    """What plans.cu says of every instance: threads, shared bytes, CTAs an SM, products and exponentials a tile."""
    return json.loads(machine_code.run([program]))
