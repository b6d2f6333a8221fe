"""Machine code of built kernels: finds NVIDIA's disassembler, lists functions, and walks their control flow.

Nothing here knows a kernel of this project; see kernels.py.
"""

import heapq
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Where scripts/setup.sh puts what PyPI has of the CUDA toolkit.
TOOLS = ROOT / "build" / "cuda-tools"
MISSING = ("cuobjdump or nvdisasm not found (PyPI: nvidia-cuda-cuobjdump, nvidia-cuda-nvdisasm; "
           "scripts/setup.sh test installs them)")


def find_disassembler(cuobjdump=None):
    """(cuobjdump, environment with nvdisasm on the PATH), or None. Looks on the PATH, then in what PyPI brought."""
    folders = os.environ.get("PATH", "").split(os.pathsep)
    for entry in [TOOLS, *sys.path]:
        folders += [str(p) for p in Path(entry or ".").glob("nvidia/*/bin")]
    path = os.pathsep.join(folders)
    cuobjdump = cuobjdump or shutil.which("cuobjdump", path=path)
    if not cuobjdump or not shutil.which("nvdisasm", path=path):
        return None
    return cuobjdump, {**os.environ, "PATH": path}


def run(command, environment=None):
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, check=True, env=environment).stdout


def nvcc_version(nvcc):
    return re.search(r"V(\d+\.\d+\.\d+)", run([nvcc, "--version"])).group(1)


class Instruction:
    """`address` in bytes, `guard` a predicate such as "@!P0" or "", `name` such as "LDSM.16.M88.4", `operands`."""

    def __init__(self, address, text):
        self.address = address
        match = re.match(r"(@!?U?P\w+\s+)?(\S+)\s*(.*)", text)
        self.guard, self.name, self.operands = (match.group(1) or "").strip(), match.group(2), match.group(3)

    @property
    def opcode(self):
        return self.name.split(".")[0]

    def __repr__(self):
        return f"{self.address:04x} {self.guard} {self.name} {self.operands}"


def parse_listing(text):
    """{(architecture, function): [Instruction]} from the output of `cuobjdump -sass`."""
    found, architecture, name = {}, "", None
    for line in text.splitlines():
        if match := re.match(r"arch = (sm_\w+)", line):
            architecture = match.group(1)
        elif match := re.search(r"Function : (\S+)", line):
            name = match.group(1)
            found[architecture, name] = []
        elif name and (match := re.match(r"\s*/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;", line)):
            found[architecture, name].append(Instruction(int(match.group(1), 16), match.group(2)))
    return found


def parse_resources(text):
    """{(architecture, function): {"REG": n, "STACK": n, "SHARED": n, "LOCAL": n}} from `cuobjdump -res-usage`."""
    found, architecture, name = {}, "", None
    for line in text.splitlines():
        if match := re.match(r"arch = (sm_\w+)", line):
            architecture = match.group(1)
        elif match := re.match(r"\s*Function (\S+):$", line):
            name = match.group(1)
        elif name and "REG:" in line:
            found[architecture, name] = {k: int(v) for k, v in re.findall(r"(REG|STACK|SHARED|LOCAL):(\d+)", line)}
    return found


def disassemble(tools, file):
    cuobjdump, environment = tools
    return (parse_listing(run([cuobjdump, "-sass", file], environment)),
            parse_resources(run([cuobjdump, "-res-usage", file], environment)))


def demangle(symbols):
    """{symbol: the name as it is written in C++}"""
    symbols = sorted(set(symbols))
    text = subprocess.run(["c++filt"], input="\n".join(symbols), capture_output=True, text=True, check=True).stdout
    return dict(zip(symbols, text.splitlines(), strict=True))


def local_bytes(code):
    """(stored, loaded): bytes a thread of all accesses to local memory, where spilled registers go."""
    def total(opcode):
        return sum(int(match.group(1)) // 8 if (match := re.search(r"\.(64|128)\b", i.name)) else 4
                   for i in code if i.opcode == opcode)
    return total("STL"), total("LDL")


# ---------------------------------------------------------------- control flow

BRANCHES = {"BRA", "BRX", "JMP"}
ENDS = {"EXIT", "RET", "BRX", "JMX"}


class Flow:
    """Basic blocks of a function: `blocks[i]` is a list of instructions, `next[i]` the blocks that may follow."""

    def __init__(self, code):
        at = {instruction.address: i for i, instruction in enumerate(code)}
        starts = {0}
        targets = {}
        for i, instruction in enumerate(code):
            if instruction.opcode in BRANCHES:
                target = re.search(r"0x([0-9a-f]+)\)?$", instruction.operands)
                if target:
                    targets[i] = at[int(target.group(1), 16)]
                    starts.add(targets[i])
            if instruction.opcode in BRANCHES | ENDS:
                starts.add(i + 1)
        order = sorted(s for s in starts if s < len(code))
        number = {start: block for block, start in enumerate(order)}
        self.blocks = [code[start:end] for start, end in zip(order, order[1:] + [len(code)])]
        self.next = []
        for block, start in enumerate(order):
            last = start + len(self.blocks[block]) - 1
            instruction = code[last]
            following = []
            if last in targets:
                following.append(number[targets[last]])
            # BRA.DIV, BRA.U, guarded branches and branches on an operand predicate may fall through.
            may_fall = (instruction.opcode not in BRANCHES | ENDS or bool(instruction.guard)
                        or (instruction.opcode == "BRA" and ("," in instruction.operands or "DIV" in instruction.name)))
            if may_fall and last + 1 < len(code):
                following.append(number[last + 1])
            self.next.append(following)

    def has(self, block, opcodes):
        return any(i.opcode in opcodes for i in self.blocks[block])

    def reaches(self, goal, avoid):
        """Blocks from which a walk leads to `goal` without entering a block of `avoid`."""
        before = [[] for _ in self.blocks]
        for block, following in enumerate(self.next):
            for other in following:
                before[other].append(block)
        found, waiting = set(), [goal]
        while waiting:
            for block in before[waiting.pop()]:
                if block not in found and block not in avoid:
                    found.add(block)
                    waiting.append(block)
        return found

    def cheapest_cycle(self, start, weigh, low, high, through):
        """The cheapest closed walk from `start`, in instructions, with one block of `through` on it, if that is not empty.

        weigh(block) is a tuple of counts, whose sums must be between `low` and `high`. Returns (instructions, [block]) or None.
        """
        weights = [weigh(block) for block in range(len(self.blocks))]
        first = (start, tuple(0 for _ in low), not through)
        queue, parent = [(0, 0, first, None)], {}
        ticket = 0
        while queue:
            cost, _, state, via = heapq.heappop(queue)
            if state in parent:
                continue
            if via is not None:
                parent[state] = via
                if state[0] == start:
                    if state[2] and all(a >= b for a, b in zip(state[1], low)):
                        walk = []
                        while via is not None and via != first:
                            walk.append(via[0])
                            via = parent.get(via)
                        return cost, [start, *reversed(walk)]
                    continue
            block, sums, met = state
            sums = tuple(a + b for a, b in zip(sums, weights[block]))
            if any(a > b for a, b in zip(sums, high)):
                continue
            for other in self.next[block]:
                ticket += 1
                heapq.heappush(queue, (cost + len(self.blocks[block]), ticket, (other, sums, met or block in through), state))
        return None

    def loop_heads(self):
        """Blocks that a branch leads back to."""
        return sorted({other for block, following in enumerate(self.next) for other in following if other <= block})


if __name__ == "__main__":
    # scripts/setup.sh asks whether there is a disassembler.
    FOUND = find_disassembler()
    print(FOUND[0] if FOUND else MISSING)
    sys.exit(0 if FOUND else 1)
