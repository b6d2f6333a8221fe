#!/usr/bin/env python3
"""Makes tests/formats/format_tables.inc, what the tests of src/formats compare with.

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install numpy ml_dtypes
    /tmp/venv/bin/python scripts/make_format_tables.py [--check]

Values and roundings come from ml_dtypes (and numpy: float16 and, for INT8, rint). Where quatt's
definition differs from ml_dtypes', `encode` below says so and applies ours:
  - E4M3 and E5M2 saturate: ml_dtypes makes NaN or inf of what overflows.
  - NaN becomes one code, 0x7F.. (UE8M0: 0xFF), or 0 where a format has none.
  - UE4M3 is E4M3 without a sign: what is negative becomes 0.
  - UE8M0 saturates at both ends, zero included (ml_dtypes: NaN), and below 2^-126 it rounds by
    value as it does above (ml_dtypes, working on the fp32 exponent there, rounds 1.01 * 2^-127 up).
"""

import argparse
import pathlib
import sys

import ml_dtypes
import numpy as np

OUTPUT = pathlib.Path(__file__).resolve().parent.parent / "tests/formats/format_tables.inc"
RANDOM_SEED = 5489
RANDOM_BLOCK = 4096
RANDOM_BLOCKS = 256

F32 = np.float32
FLT_MAX = np.finfo(F32).max


def f32_bits(x):
    return np.ascontiguousarray(x, dtype=F32).view(np.uint32)


def from_bits(bits):
    return np.asarray(bits, dtype=np.uint32).view(F32)


class Format:
    """A format's codes, its decode, and encode by quatt's definition."""

    def __init__(self, name, dtype, code_bits, max_value, nan_code, exponents):
        self.name = name
        self.dtype = dtype
        self.code_bits = code_bits
        self.code_type = np.uint16 if code_bits == 16 else np.uint8
        self.max_value = F32(max_value)
        self.nan_code = nan_code
        # fp32 exponent fields that half of the random floats are drawn from: the format's range
        # and a little on both sides.
        self.exponents = exponents

    def codes(self):
        return np.arange(1 << self.code_bits, dtype=self.code_type)

    def decode(self, codes):
        return codes.view(self.dtype).astype(F32)

    def encode(self, x):
        nan = np.isnan(x)
        finite = np.where(nan, F32(0), x)
        if self.code_bits != 16:
            finite = np.clip(finite, -self.max_value, self.max_value)
        code = finite.astype(self.dtype).view(self.code_type)
        return np.where(nan, self.code_type(self.nan_code), code)


class Ue4m3(Format):
    def decode(self, codes):
        return super().decode(codes & np.uint8(0x7F))

    def codes(self):
        return np.arange(128, dtype=np.uint8)

    def encode(self, x):
        return super().encode(np.where(np.signbit(x) & ~np.isnan(x), F32(0), x))


class Ue8m0(Format):
    def encode(self, x):
        invalid = np.isnan(x) | (x < 0)
        lowest, tie, normal = (from_bits([b])[0] for b in (0x00400000, 0x00600000, 0x00800000))
        clipped = np.clip(np.where(invalid, F32(1), x), lowest, self.max_value)
        code = clipped.astype(self.dtype).view(np.uint8)
        code = np.where(clipped < normal, (clipped >= tie).astype(np.uint8), code)
        return np.where(invalid, np.uint8(self.nan_code), code)


class Int8(Format):
    def decode(self, codes):
        return codes.view(np.int8).astype(F32)

    def encode(self, x):
        finite = np.where(np.isnan(x), F32(0), x)
        rounded = np.rint(np.clip(finite, -self.max_value, self.max_value))
        return rounded.astype(np.int8).view(np.uint8)


FORMATS_8 = [
    Format("E4m3", ml_dtypes.float8_e4m3fn, 8, 448, 0x7F, (112, 140)),
    Format("E5m2", ml_dtypes.float8_e5m2, 8, 57344, 0x7F, (106, 146)),
    Format("E2m1", ml_dtypes.float4_e2m1fn, 4, 6, 0, (122, 132)),
    Ue4m3("Ue4m3", ml_dtypes.float8_e4m3fn, 8, 448, 0x7F, (112, 140)),
    Ue8m0("Ue8m0", ml_dtypes.float8_e8m0fnu, 8, 2.0**127, 0xFF, (0, 254)),
    Int8("Int8", None, 8, 127, 0, (122, 136)),
]
FORMATS_16 = [
    Format("Bf16", ml_dtypes.bfloat16, 16, 0, 0x7FFF, (0, 255)),
    Format("F16", np.float16, 16, 0, 0x7FFF, (98, 146)),
]


def finite_values(fmt):
    values = fmt.decode(fmt.codes()).astype(np.float64)
    values = np.unique(values[np.isfinite(values)])
    if fmt.name == "Int8":
        values = values[values >= -127]
    return values


def around(x):
    x = np.asarray(x, dtype=np.float64).astype(F32)
    return np.concatenate([np.nextafter(x, F32(-np.inf)), x, np.nextafter(x, F32(np.inf))])


def probes(fmt):
    """Every value, every midpoint and every end of the fp32 line, with both neighbours of each."""
    values = finite_values(fmt)
    midpoints = (values[:-1] + values[1:]) / 2
    assert np.array_equal(midpoints, midpoints.astype(F32)), "a midpoint is not an fp32 number"
    top = float(fmt.max_value)
    below = values[-2]
    # Where a format without saturation would overflow, and where the next binade would begin.
    threshold = top + (top - below) / 2
    ends = [threshold, top + (top - below), 2 * top, 3 * top, 1e30, FLT_MAX]
    ends = [e for e in ends if e <= FLT_MAX]
    ends += [2.0**-149, 2.0**-148, 2.0**-127, 2.0**-126, 2.0**-125, 1e-30]
    ends = np.array(ends + [-e for e in ends])
    bits = f32_bits(np.concatenate([around(values), around(midpoints), around(ends)]))
    specials = [0x00000000, 0x80000000, 0x7F800000, 0xFF800000]
    nans = [0x7FC00000, 0xFFC00000, 0x7F800001, 0xFF800001, 0x7FFFFFFF, 0xFFFFFFFF, 0x7FA00000]
    bits = np.concatenate([bits, np.array(specials + nans, dtype=np.uint32)])
    return np.unique(bits)


def random_floats(fmt):
    """std::mt19937's output, every second one moved into the format's exponents."""
    count = RANDOM_BLOCK * RANDOM_BLOCKS
    bits = np.random.RandomState(RANDOM_SEED).randint(0, 1 << 32, size=count, dtype=np.uint32)
    assert bits[9999] == 4123659995, "not the generator that the C++ standard defines"
    low, high = fmt.exponents
    exponent = low + ((bits >> 23) & 0xFF) % (high - low + 1)
    moved = (bits & np.uint32(0x807FFFFF)) | (exponent.astype(np.uint32) << 23)
    return from_bits(np.where(np.arange(count) % 2 == 1, moved, bits))


def block_sums(codes):
    """One sum a block; its weights are odd, so one wrong code always shows."""
    weights = (2 * np.arange(RANDOM_BLOCK, dtype=np.uint64) + 1) * 2654435761
    sums = (codes.reshape(RANDOM_BLOCKS, RANDOM_BLOCK).astype(np.uint64) * weights).sum(axis=1)
    return (sums & 0xFFFFFFFF).astype(np.uint32)


def runs(values):
    """The sequence as (first index, first value, step) runs; lossless, modulo 2^32."""
    values = np.asarray(values).astype(np.int64)
    out, start = [], 0
    while start < len(values):
        step, end = 0, start + 1
        if end < len(values):
            step = int(values[end] - values[start])
            breaks = np.flatnonzero(np.diff(values[start:]) != step)
            end = start + int(breaks[0]) + 1 if len(breaks) else len(values)
        out += [start, int(values[start]), step & 0xFFFFFFFF]
        start = end
    return out


def canonical_nan(bits):
    return np.where((bits & 0x7FFFFFFF) > 0x7F800000, np.uint32(0x7FC00000), bits)


def emit(lines, name, values):
    values = [f"0x{int(v):X}" for v in values]
    lines.append(f"inline constexpr std::uint32_t {name}[] = {{")
    line = "   "
    for v in values:
        if len(line) + len(v) + 2 > 100:
            lines.append(line)
            line = "   "
        line += f" {v},"
    lines += [line, "};"]


def generate():
    lines = [
        "// Made by scripts/make_format_tables.py; do not edit.",
        "//",
        "// k<Format>Decode: fp32 bits of every code; NaN as 0x7FC00000.",
        "// k<Format>Encode: pairs of fp32 bits and code.",
        "// k<Format>Random: weighted sums of the codes of blocks of random floats.",
        "// k<Format>...Runs: triples of first index, first value and step, of a sequence of",
        "//     65536 decoded values, or of the codes of what lies at, just below and just above",
        "//     the midpoint that follows each positive finite value (after the last: the overflow",
        "//     threshold).",
        f"inline constexpr std::uint32_t kRandomSeed = {RANDOM_SEED};",
        f"inline constexpr std::uint32_t kRandomBlock = {RANDOM_BLOCK};",
        f"inline constexpr std::uint32_t kRandomBlocks = {RANDOM_BLOCKS};",
    ]
    for fmt in FORMATS_8 + FORMATS_16:
        low, high = fmt.exponents
        lines.append("")
        emit(lines, f"k{fmt.name}RandomExponents", [low, high])
        emit(lines, f"k{fmt.name}Random", block_sums(fmt.encode(random_floats(fmt))))
        decoded = canonical_nan(f32_bits(fmt.decode(fmt.codes())))
        if fmt.code_bits != 16:
            emit(lines, f"k{fmt.name}Decode", decoded)
            bits = probes(fmt)
            codes = fmt.encode(from_bits(bits))
            emit(lines, f"k{fmt.name}Encode", np.stack([bits, codes], axis=1).ravel())
            continue
        emit(lines, f"k{fmt.name}DecodeRuns", runs(decoded))
        # Midpoints are made in fp64, exactly, and are fp32 numbers.
        values = fmt.decode(fmt.codes()[: 0x8000]).astype(np.float64)
        values = values[np.isfinite(values)]
        gaps = np.diff(values)
        midpoints = np.append(values[:-1] + gaps / 2, values[-1] + gaps[-1] / 2).astype(F32)
        for sign, suffix in ((F32(1), ""), (F32(-1), "Negative")):
            emit(lines, f"k{fmt.name}At{suffix}EvenRuns", runs(fmt.encode(sign * midpoints)[0::2]))
            emit(lines, f"k{fmt.name}At{suffix}OddRuns", runs(fmt.encode(sign * midpoints)[1::2]))
            for side, name in ((F32(0), "Below"), (F32(np.inf), "Above")):
                near = np.nextafter(midpoints, side)
                emit(lines, f"k{fmt.name}{name}{suffix}Runs", runs(fmt.encode(sign * near)))
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="only compare with the file in place")
    check = parser.parse_args().check
    with np.errstate(all="ignore"):
        text = generate()
    if not check:
        OUTPUT.write_text(text)
        return 0
    if OUTPUT.read_text() != text:
        print(f"{OUTPUT} differs from what this script makes", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
