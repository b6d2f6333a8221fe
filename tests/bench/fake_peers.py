"""A result of bench/peers.py with made-up times, for tests of what reads it."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))
from gpu import peer_tables  # noqa: E402

PREP = {"plan": 0.01, "pack_q": 0.1}


def candidates(flop, ours, spread=0.01):
    """Ours takes `ours` ms in all, of which .11 is prep; the peers take a fifth more, and twice that."""

    def rounds(ms):
        return [ms * (1 + spread * (i % 5 - 2) / 2) for i in range(15)]

    def kernels(ms, others=None, name="attention"):
        return [{**(others or {}), name: t} for t in rounds(ms)]

    return {
        "quatt fp8": peer_tables.candidate(flop, rounds(ours), kernels(ours - 0.11, PREP), 0.0533),
        "FA3 FP8": peer_tables.candidate(
            flop, rounds(1.2 * ours), kernels(1.2 * ours, None, "device_kernel"), 0.05
        ),
        "FA2 bf16": peer_tables.candidate(flop, rounds(2.4 * ours), [], 0.0023),
    }


def result(ours=1.0):
    shapes = []
    for shape in (peer_tables.Shape("1024x8", [1024], 8), peer_tables.Shape("4096x8", [4096], 8)):
        ms = ours * (shape.tokens / 1024) ** 2
        row = {
            "name": shape.name,
            "lengths": list(shape.lengths),
            "heads": shape.heads,
            "dim": peer_tables.DIM,
            "flop": shape.flop,
            "plan": "wgmma, key tile 128, on cuda:0",
            "candidates": candidates(shape.flop, ms),
        }
        row["ratios"] = peer_tables.ratios(row["candidates"])
        shapes.append(row)
    spread = {"tokens": 1024, "heads": 8, "candidates": {}}
    for name in ("quatt fp8", "FA3 FP8"):
        spread["candidates"][name] = {
            case: candidates(1e9, ours * factor)[name] for case, factor in (("std 1", 1), ("std 4", 1.5))
        }
    errors = {"quatt fp8": 0.05, "FA3 FP8": 0.06}
    accuracy = {
        "lengths": {
            "title": "rel-L2",
            "digits": ".4f",
            "rows": [{"case": f"{n} keys", "keys": n, "errors": errors} for n in (1024, 8192, 65536)],
        },
        "means": {
            "title": "means",
            "digits": "+.1e",
            "rows": [
                {
                    "case": f"{n} keys, mean {m}",
                    "keys": n,
                    "mean": m,
                    "errors": {"quatt fp8": 1e-4, "FA3 FP8": -0.1 * m},
                }
                for n in (2048, 8192)
                for m in (0, 1)
            ],
        },
        "sinks": {
            "title": "sinks",
            "digits": ".4f",
            "rows": [
                {"case": f"{n} at {p}", "keys": n, "weight": 0.9, "position": p, "errors": errors}
                for n in (8192, 32768)
                for p in (0, 0.5, 1)
            ],
        },
    }
    return {
        "schema": peer_tables.SCHEMA,
        "version": peer_tables.VERSION,
        "date": "2026-01-02T03:04:05+00:00",
        "machine": {"gpu": "a GPU", "torch": "2"},
        "rounds": 15,
        "shapes": shapes,
        "spread": spread,
        "accuracy": accuracy,
        "left_out": [{"peer": "cuDNN FP8", "where": "everywhere", "reason": "No module named 'cudnn'"}],
    }
