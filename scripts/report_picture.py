#!/usr/bin/env python3
"""Makes docs/img/report.png: the top of the report of the antibody network, as `make demo` writes it.

usage: scripts/report_picture.py [REPORT.html]   (default: build/demo/report.html)
"""

import collections
import os
import struct
import sys
import zlib

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
sys.path.insert(0, os.path.join(ROOT, "tests", "report"))
from browser import Browser, find_browser  # noqa: E402


def chunks(png):
    at = 8
    while at < len(png):
        size, kind = struct.unpack(">I4s", png[at:at + 8])
        yield kind, png[at + 8:at + 8 + size]
        at += size + 12


def pixels(png):
    """Lines of (r, g, b), of a PNG as Chromium writes it: 8 bits, not interlaced, with or without alpha."""
    parts = list(chunks(png))
    width, height, bits, colour = struct.unpack(">IIBB", parts[0][1][:10])
    assert bits == 8 and colour in (2, 6), (bits, colour)
    depth = 3 if colour == 2 else 4
    data = zlib.decompress(b"".join(body for kind, body in parts if kind == b"IDAT"))
    stride = width * depth
    above = bytearray(stride)
    for y in range(height):
        kind = data[y * (stride + 1)]
        line = bytearray(data[y * (stride + 1) + 1:(y + 1) * (stride + 1)])
        for x in range(stride):
            left, up, corner = (line[x - depth] if x >= depth else 0), above[x], (above[x - depth] if x >= depth else 0)
            if kind == 4:  # Paeth
                p = left + up - corner
                guess = min((abs(p - left), 0, left), (abs(p - up), 1, up), (abs(p - corner), 2, corner))[2]
            else:
                guess = (0, left, up, (left + up) // 2)[kind]
            line[x] = (line[x] + guess) & 255
        above = line
        yield [tuple(line[x:x + 3]) for x in range(0, stride, depth)]


def with_palette(png):
    """The same picture with its 256 commonest colours, at a third of the size; what else there is are edges of letters."""
    lines = list(pixels(png))
    counts = collections.Counter(colour for line in lines for colour in line)
    palette = [colour for colour, _ in counts.most_common(256)]
    index = {colour: min(range(len(palette)), key=lambda i: sum((a - b) ** 2 for a, b in zip(palette[i], colour))) for colour in counts}
    data = b"".join(b"\0" + bytes(index[colour] for colour in line) for line in lines)
    parts = [(b"IHDR", struct.pack(">IIBBBBB", len(lines[0]), len(lines), 8, 3, 0, 0, 0)),
             (b"PLTE", bytes(value for colour in palette for value in colour)), (b"IDAT", zlib.compress(data, 9)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body)) for kind, body in parts)


def main():
    report = sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build", "demo", "report.html")
    program = find_browser()
    if not program:
        sys.exit("report_picture: no Chromium here; scripts/setup.sh test installs one")
    target = os.path.join(ROOT, "docs", "img", "report.png")
    os.makedirs(os.path.dirname(target), exist_ok=True)
    with Browser(program) as browser:
        browser.view(1200)
        browser.open(report)
        # Verdict, recommendations, heat map, and the first layer's tables and histogram.
        end = browser.run("document.querySelector('.strip').getBoundingClientRect().top + scrollY - 12")
        browser.screenshot(target, 0, int(end))
    with open(target, "rb") as file:
        png = with_palette(file.read())
    with open(target, "wb") as file:
        file.write(png)
    print(f"docs/img/report.png: {len(png)} bytes")


if __name__ == "__main__":
    main()
