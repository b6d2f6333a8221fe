#!/usr/bin/env python3
"""Writes the seeds of tests/fuzz/corpus: inputs that reach far on their own. What a fuzzer found is added by hand.

usage: make_corpus.py
"""

import json
import struct
from pathlib import Path

CORPUS = Path(__file__).parent / "corpus"


def write(target, name, data):
    folder = CORPUS / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)


def safetensors(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header, separators=(",", ":")).encode()
    return struct.pack("<Q", len(text)) + text + data


def tensor(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def safetensors_seeds():
    two = {"q": tensor("BF16", [1, 2], 0, 4), "k": tensor("F8_E4M3", [3], 4, 7)}
    yield "empty_header", safetensors({})
    yield "two_tensors", safetensors(two, bytes(7))
    yield "metadata", safetensors({"__metadata__": {"a": "b", "\u00e9": "\\u0041"}, "x": tensor("F32", [], 0, 4)}, bytes(4))
    yield "packed_type", safetensors({"f": tensor("F4", [2, 3], 0, 3), "g": tensor("F6_E2M3", [4], 3, 6)}, bytes(6))
    yield "no_elements", safetensors({"e": tensor("I64", [0, 1 << 40], 0, 0)})
    yield "huge_shape", safetensors({"h": tensor("U8", [1 << 32, 1 << 32], 0, 4)}, bytes(4))
    yield "gap", safetensors({"a": tensor("U8", [1], 1, 2)}, bytes(2))
    yield "numbers", safetensors(b'{"a":{"dtype":"U8","shape":[1e2,-1,18446744073709551616],"data_offsets":[0,true]}}')
    yield "deep", safetensors(b'{"a":' + b"[" * 40)
    yield "not_utf8", safetensors(b'{"\xff\xfe":{"dtype":"\\ud800"}}')
    yield "long_length", struct.pack("<Q", 1 << 62) + b"{}"


CPU, EMULATE, REFERENCE, CUDA, SIMT, EMU = 0, 1, 2, 4, 6, 7
F32, BF16, F16, E4M3 = range(4)


# The order in which problem.cpp takes its bytes.
def problem(device=CPU, recipe=0, dtypes=(BF16, BF16, BF16), out=F32, packed=0, batch=2, sq=3, sk=5, kv=1, group=1, d=4, dv=4,
            present=1, extras=0, kernel=0, words=(), rest=b""):
    head = bytes([device, recipe, packed, batch, sq, sk, kv - 1, group - 1, d - 1, dv - 1, *dtypes, out])
    head += struct.pack("<HBBB", present, extras, kernel, len(words))
    for where, at, how, value in words:
        if where == 2:
            head += bytes([2, at, how, value])  # which tensor, what and which axis, which number
        else:
            head += struct.pack("<BHB", where, at, how) + (struct.pack("<q", value) if how & 128 else b"")
    return head + rest


def problem_seeds():
    for recipe in range(7):
        yield f"recipe_{recipe}", problem(recipe=recipe, device=recipe % 3, dtypes=(E4M3, BF16, F16), present=1 | 8 | 16 | 32)
    yield "packed", problem(packed=1, present=1 | 2 | 4 | 8 | 0x300, extras=64, rest=bytes([1, 1, 1, 1, 1, 2, 1]))
    yield "reference_rows", problem(device=REFERENCE, present=0xFF, extras=3, dtypes=(E4M3, E4M3, E4M3))
    yield "emulate_counters", problem(device=EMULATE, recipe=2, extras=0x9C)
    yield "cuda", problem(device=CUDA, recipe=2)
    yield "fallback", problem(device=EMU, recipe=2, present=0x401, extras=32)
    yield "strict", problem(device=SIMT, present=0xC01)
    yield "no_batch", problem(batch=0)
    # Every engine of the CPU on more than a tile, a block and a vector; some processors have not all of them.
    for kernel in range(4, 14):
        for recipe in ([0, 2, 5] if kernel < 9 or kernel > 11 else [2]):
            yield f"kernel_{kernel}_{recipe}", problem(kernel=kernel, recipe=recipe, packed=14, batch=1, dtypes=(BF16, BF16, F32), out=BF16)
    yield "packed_long", problem(packed=15, recipe=2, present=1 | 2 | 4, batch=3, rest=bytes([1] * 5 + [8, 8]))
    # problem.struct_size and device.struct_size: smaller, longer, absurd.
    for i, (where, size) in enumerate([(0, 8), (0, 4000), (0, 1 << 60), (3, 9), (3, 100)]):
        yield f"size_{i}", problem(words=[(where, 0, 192, size)], rest=bytes(20) + b"\1\1\1")
    # Any word of the tensors and the recipe, with numbers at which something changes.
    for i in range(12):
        yield f"words_{i}", problem(words=[(0, 8 + 52 * i, 64 + 2 * i, 0), (0, 12 + 236 * i, i, 0)])


    # Strides: INT64_MIN of an e4m3 output of two rows, which has no absolute value; negative ones of q, k and out.
    yield "stride_min", problem(words=[(2, 3, 0, 0), (2, 3, 2 + 8, 2), (2, 3, 5 + 8, 19)], sq=2, rest=bytes(30)).replace(
        bytes([2, 3, 0, 0]), bytes([2, 3, 0, 0, 4]), 1)
    yield "stride_negative", problem(packed=2, words=[(2, 0, 4 + 8, 0), (2, 1, 4 + 16, 0), (2, 3, 4 + 24, 0)], present=1 | 16)


# The order in which lengths.cpp takes its bytes.
def lengths_seeds():
    def case(device, recipe, flags, segments, cu_q, cu_k, kv, rest=b""):
        return bytes([device, recipe, flags, segments, *cu_q, *cu_k, *kv]) + rest

    any_number = lambda n: [255, *struct.pack("<i", n)]
    yield "packed", case(0, 2, 1, 3, [0, 3, 4, 1, 0], [0, 2, 2, 2, 1], [1, 2, 3, 2])
    yield "own_k", case(1, 0, 1 | 2 | 4, 3, [0, 3, 4, 1, 0], [0, 4, 4, 3, 2], [1, 2, 3, 0])
    yield "host_copies", case(2, 0, 1 | 8 | 16, 2, [0, 3, 4, 0], [0, 1, 1, 0], [1, 1, 0], bytes([1, 3]))
    yield "zero_tail", case(0, 5, 1 | 32 | 64, 2, [0, 3, 0, 0], [0, 1, 1, 0], [1, 1, 0])
    yield "dense_kv", case(0, 3, 4, 3, [0] * 5, [0] * 5, [3, 12, 0, 1])
    yield "negative", case(0, 0, 5, 1, [0, *any_number(-1), 0], [0, 1, 0], [*any_number(-5), 0])
    yield "too_long", case(0, 0, 1, 1, [0, *any_number(2**31 - 1), 0], [0, 1, 0], [1, 0])
    yield "no_segment", case(0, 0, 1, 0, [0, 0], [0, 0], [0])


for target, seeds in [("safetensors", safetensors_seeds()), ("problem", problem_seeds()), ("lengths", lengths_seeds())]:
    for name, data in seeds:
        write(target, name, data)
