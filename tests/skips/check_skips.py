#!/usr/bin/env python3
"""Demands that exactly those tests were skipped that tests/skips/expected.txt lists for this machine and build.

usage: check_skips.py BUILD_FOLDER JUNIT.xml [--complete]

BUILD_FOLDER is what CMake made, JUNIT.xml what `ctest --output-junit` wrote. An error is
- a skipped test that no entry lists, or whose needs this machine meets: it should have run;
- a test that ran though its entry's needs are not met: the entry is out of date;
- with --complete (all tests were asked for), an entry that names no test.
"""

import argparse
import ctypes
import fnmatch
import importlib.util
import os
import pty
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
EXPECTED = HERE / "expected.txt"


# ---------------------------------------------------------------- what this machine and build have

def cpu_flags():
    match = re.search(r"^flags\s*:(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return set(match.group(1).split()) if match else set()


def has_permission_for_amx():
    """As the library asks Linux for AMX's tiles, in a process that ends at once."""
    request, tile_data, arch_prctl = 0x1023, 18, 158
    child = os.fork()
    if child == 0:
        os._exit(0 if ctypes.CDLL(None).syscall(arch_prctl, request, tile_data) == 0 else 1)
    return os.waitpid(child, 0)[1] == 0


def has_terminals():
    try:
        for end in pty.openpty():
            os.close(end)
    except OSError:
        return False
    return True


def has_disassembler():
    return subprocess.run([sys.executable, ROOT / "tests/sass/machine_code.py"], capture_output=True, check=False).returncode == 0


def cached(build, name):
    """A variable of CMake's cache, or ""."""
    match = re.search(rf"^{name}:\w+=(.*)$", (build / "CMakeCache.txt").read_text(), re.MULTILINE)
    return match.group(1) if match else ""


def facts_of(build):
    """{fact: does it hold}: the words that expected.txt may use."""
    flags = cpu_flags()
    avx2 = {"avx2", "fma", "f16c"} <= flags
    avx512 = avx2 and {"avx512f", "avx512bw", "avx512dq", "avx512vl"} <= flags
    vnni = avx512 and "avx512_vnni" in flags
    bf16 = vnni and "avx512_bf16" in flags
    amx = bf16 and {"amx_tile", "amx_int8", "amx_bf16"} <= flags
    browser = os.environ.get("QUATT_BROWSER")
    compiler = cached(build, "CMAKE_CUDA_COMPILER")
    return {
        "avx2": avx2, "avx512": avx512, "avx512_vnni": vnni, "avx512_bf16": bf16, "avx512_fp16": vnni and "avx512_fp16" in flags,
        "amx": amx and has_permission_for_amx(), "no amx": not amx,
        "browser": bool(shutil.which(browser) if browser else shutil.which("chromium")),
        "gpu": any(Path("/dev").glob("nvidia[0-9]*")),
        "nvcc": bool(compiler) and not compiler.endswith("NOTFOUND") and cached(build, "QUATT_CUDA") != "OFF",
        "nvcc somewhere": bool(cached(build, "QUATT_NVCC")) and not cached(build, "QUATT_NVCC").endswith("NOTFOUND"),
        "disassembler": has_disassembler(),
        "torch": importlib.util.find_spec("torch") is not None,
        "terminals": has_terminals(),
        "root": os.geteuid() == 0,
        "no sanitizer": not cached(build, "QUATT_SANITIZE"), "no thread sanitizer": cached(build, "QUATT_SANITIZE") != "thread",
        "whole samples": float(os.environ.get("QUATT_TEST_SCALE") or 1) >= 1,
        "never": False,
    }


# ---------------------------------------------------------------- the list and the run

class Entry:
    def __init__(self, pattern, needs, reason):
        self.pattern, self.needs, self.reason = pattern, needs, reason


def parse(text):
    """Entries of expected.txt: lines `pattern | need, need | reason`, comments with #."""
    entries = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        parts = [part.strip() for part in line.split("|")]
        if len(parts) != 3 or not all(parts):
            raise ValueError(f"line {number} is not `pattern | needs | reason`: {line}")
        entries.append(Entry(parts[0], [need.strip() for need in parts[1].split(",")], parts[2]))
    return entries


def outcomes(junit):
    """{test: was it skipped} of all tests of a run; those that are disabled are left out."""
    root = ElementTree.fromstring(junit)
    return {case.get("name"): case.find("skipped") is not None
            for case in root.iter("testcase") if case.get("status") != "disabled"}


def check(entries, facts, ran, is_complete):
    """Lines of all that is wrong."""
    lines = [f"'{need}' of {entry.pattern} is no fact that tests/skips/check_skips.py knows"
             for entry in entries for need in entry.needs if need not in facts]
    if lines:
        return lines
    for test, was_skipped in sorted(ran.items()):
        matching = [entry for entry in entries if fnmatch.fnmatchcase(test, entry.pattern)]
        lacking = [need for entry in matching for need in entry.needs if not facts[need]]
        if was_skipped and not matching:
            lines.append(f"{test} was skipped; tests/skips/expected.txt does not list it")
        elif was_skipped and not lacking:
            needs = ", ".join(need for entry in matching for need in entry.needs)
            lines.append(f"{test} was skipped, but this machine has what it needs: {needs}")
        elif not was_skipped and lacking:
            lines.append(f"{test} ran without {', '.join(lacking)}, which tests/skips/expected.txt says it needs")
    if is_complete:
        for entry in entries:
            exists = "nvcc" not in entry.needs or facts["nvcc"]
            if exists and not any(fnmatch.fnmatchcase(test, entry.pattern) for test in ran):
                lines.append(f"no test is named like {entry.pattern}, which tests/skips/expected.txt lists")
    return lines


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=Path)
    parser.add_argument("junit", type=Path)
    parser.add_argument("--complete", action="store_true")
    options = parser.parse_args()
    ran = outcomes(options.junit.read_text())
    facts = facts_of(options.build)
    wrong = check(parse(EXPECTED.read_text()), facts, ran, options.complete)
    print("\n".join(wrong), end="\n" if wrong else "")
    missing = ", ".join(fact for fact, holds in facts.items() if not holds and not fact.startswith(("no ", "never")))
    print(f"{sum(ran.values())} of {len(ran)} tests were skipped, {'all' if not wrong else 'not all'} as expected; "
          f"this machine and build have no {missing}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
