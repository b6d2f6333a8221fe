#!/usr/bin/env python3
"""Runs bench/peers.py --rehearse: our own half of it, on the host by the executor.

usage: rehearse_peers.py LIBQUATT.so; exits 77 without torch
"""

import importlib.util
import json
import subprocess
import sys
import tempfile
from pathlib import Path

if importlib.util.find_spec("torch") is None:
    print("torch is not installed")
    sys.exit(77)
program = Path(__file__).resolve().parents[2] / "bench/peers.py"
with tempfile.TemporaryDirectory() as folder:
    file = Path(folder) / "peers.json"
    subprocess.run([sys.executable, program, sys.argv[1], "--rehearse", "--json", file], check=True)
    result = json.loads(file.read_text())
assert [x["name"] for x in result["shapes"]] == ["130x2", "packed-33+70x2"], result["shapes"]
for shape in result["shapes"]:
    assert shape["candidates"]["quatt fp8"]["rel_l2"] < 0.06, shape
assert set(result["spread"]["candidates"]["quatt fp8"]) >= {"std 1", "std 2", "std 4"}, result["spread"]
assert set(result["accuracy"]) == {"lengths", "sinks", "means", "needle"}, result["accuracy"]
