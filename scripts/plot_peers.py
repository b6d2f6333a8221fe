#!/usr/bin/env python3
"""Draws what bench/peers.py measured: peers.json to SVG files. Standard library only.

usage: plot_peers.py peers.json FOLDER [--prefix NAME]

Writes NAME_speed.svg (TFLOP/s against length), NAME_lengths.svg (error against length), NAME_means.svg (error
of the output's mean, by the mean of V) and NAME_sinks.svg (error beside a heavy key, by its place), each where
the file has its numbers. They have a background of their own, so that they read the same on light and on dark
pages.
"""

import argparse
import json
import math
import sys
from pathlib import Path
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 800, 420
LEFT, RIGHT, TOP, BOTTOM = 74, 236, 46, 56
INK, GRID, PAPER = "#24292f", "#d0d7de", "#ffffff"
COLOURS = {  # told apart by colour-blind readers too (Okabe and Ito); ours stands out
    "quatt fp8": "#d55e00",
    "FA3 FP8": "#0072b2",
    "FA3 FP8, V centred": "#56b4e9",
    "cuDNN FP8": "#009e73",
    "FA3 bf16": "#5f6b76",
    "cuDNN bf16": "#cc79a7",
    "FA2 bf16": "#b39500",
}
DASHES = ("", "7 4", "2 3", "9 3 2 3")
ONE_WEIGHT = 0.9  # of the sinks that are drawn


def colour(name):
    for known in sorted(COLOURS, key=len, reverse=True):
        if name.startswith(known):
            return COLOURS[known]
    return INK


class Axis:
    def __init__(self, values, log, begin, end, base=10):
        self.log, self.base, self.begin, self.end = log, base, begin, end
        low, high = min(values), max(values)
        if log:
            low, high = (math.log(x, base) for x in (low, high))
            self.low, self.high = (math.floor(low + 1e-9), math.ceil(high - 1e-9))
        else:
            step = nice_step(max(high - min(low, 0), 1e-12) / 5)
            self.low, self.high = math.floor(min(low, 0) / step) * step, math.ceil(high / step - 1e-9) * step
            self.step = step
        if self.high <= self.low:
            self.high = self.low + 1

    def at(self, value):
        place = math.log(value, self.base) if self.log else value
        return self.begin + (place - self.low) / (self.high - self.low) * (self.end - self.begin)

    def ticks(self):
        if self.log:
            every = max(1, math.ceil((self.high - self.low) / 9))
            return [self.base**i for i in range(self.low, self.high + 1, every)]
        count = round((self.high - self.low) / self.step)
        return [self.low + i * self.step for i in range(count + 1)]


def nice_step(x):
    """The next of 1, 2, 5 times a power of ten."""
    power = 10 ** math.floor(math.log10(x))
    return next(m * power for m in (1, 2, 5, 10) if m * power >= x * (1 - 1e-9))


def short(value):
    """1024 -> 1k, 0.001 -> 1e-3, 0.5 -> 0.5"""
    if value >= 1024 and value % 1024 == 0:
        return f"{value // 1024:.0f}k"
    if 0 < abs(value) < 0.01:
        return f"1e{round(math.log10(abs(value)))}"
    return f"{value:g}"


def plot(title, x_label, y_label, series, x_log=False, y_log=False):
    """An SVG. series: [(name, [(x, y)], dash index)]."""
    series = [
        (n, [(x, y) for x, y in points if y is not None and (y > 0 or not y_log)], d)
        for n, points, d in series
    ]
    points = [p for _, line, _ in series for p in line]
    if not points:
        return None
    x_axis = Axis([x for x, _ in points], x_log, LEFT, WIDTH - RIGHT, 2)
    y_axis = Axis([y for _, y in points], y_log, HEIGHT - BOTTOM, TOP)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"'
        f' font-family="sans-serif" font-size="12" fill="{INK}">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="6" fill="{PAPER}" stroke="{GRID}"/>',
        text(LEFT, 26, title, "start", 15),
        text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 14, x_label, "middle"),
        f'<g transform="translate(18 {(TOP + HEIGHT - BOTTOM) / 2}) rotate(-90)">',
        text(0, 0, y_label, "middle") + "</g>",
    ]
    for tick in x_axis.ticks():
        x = x_axis.at(tick)
        out.append(line(x, TOP, x, HEIGHT - BOTTOM))
        out.append(text(x, HEIGHT - BOTTOM + 18, short(tick), "middle"))
    for tick in y_axis.ticks():
        y = y_axis.at(tick)
        out.append(line(LEFT, y, WIDTH - RIGHT, y))
        out.append(text(LEFT - 8, y + 4, short(tick), "end"))
    for i, (name, points, dash) in enumerate(series):
        style = f'stroke="{colour(name)}" stroke-width="{3 if name.startswith("quatt") else 1.8}" fill="none"'
        style += f' stroke-dasharray="{DASHES[dash]}"' if DASHES[dash] else ""
        places = [(x_axis.at(x), y_axis.at(y)) for x, y in sorted(points)]
        if len(places) > 1:
            out.append(f'<polyline points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in places)}" {style}/>')
        out += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour(name)}"/>' for x, y in places]
        y = TOP + 10 + 20 * i
        out.append(f'<line x1="{WIDTH - RIGHT + 12}" y1="{y}" x2="{WIDTH - RIGHT + 40}" y2="{y}" {style}/>')
        out.append(text(WIDTH - RIGHT + 46, y + 4, name, "start"))
    return "\n".join(out) + "\n</svg>\n"


def text(x, y, content, anchor, size=None):
    font = f' font-size="{size}" font-weight="bold"' if size else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{font}>{escape(content)}</text>'


def line(x1, y1, x2, y2):
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{GRID}"/>'


def speed(result):
    """Each candidate's attention kernel alone; ours all in, too."""
    lines = {}
    for shape in result.get("shapes", []):
        if len(shape["lengths"]) == 1:
            for name, x in shape["candidates"].items():
                kernel = x.get("kernel_tflops", x["call_tflops"])
                lines.setdefault((name, 0), []).append((shape["lengths"][0], kernel))
                if name == "quatt fp8":
                    lines.setdefault((f"{name}, all in", 1), []).append(
                        (shape["lengths"][0], x["call_tflops"])
                    )
    gpu = result.get("machine", {}).get("gpu", "")
    series = [(name, points, dash) for (name, dash), points in lines.items()]
    return plot(f"Attention kernels, head size 128, {gpu}", "tokens", "TFLOP/s", series, x_log=True)


def errors(result, table, key, choose, group=None, label="{}", absolute=False):
    """[(name, points, dash)] of a table of errors: a line a candidate and value of `group`."""
    lines, groups = {}, []
    for row in result.get("accuracy", {}).get(table, {}).get("rows", []):
        if not choose(row):
            continue
        value = row[group] if group else None
        if value not in groups:
            groups.append(value)
        for name, error in row["errors"].items():
            error = abs(error) if absolute and error is not None else error
            lines.setdefault((name, value), []).append((row[key], error))
    return [
        (
            name if value is None else f"{name}, {label.format(short(value))}",
            points,
            groups.index(value) % len(DASHES),
        )
        for (name, value), points in lines.items()
    ]


def lengths(result):
    series = errors(result, "lengths", "keys", lambda row: True)
    return plot("Error on N(0,1) against fp64", "keys", "relative L2 error", series, x_log=True, y_log=True)


def means(result):
    series = errors(
        result, "means", "keys", lambda row: row["mean"] in (1, 2), "mean", "mean {}", absolute=True
    )
    title = "Error of the output's mean where V has mean 1 or 2"
    return plot(title, "keys", "|mean / exact mean - 1|", series, x_log=True, y_log=True)


def sinks(result):
    rows = result.get("accuracy", {}).get("sinks", {}).get("rows", [])
    ends = {min((r["keys"] for r in rows), default=0), max((r["keys"] for r in rows), default=0)}
    series = errors(
        result,
        "sinks",
        "position",
        lambda row: row["weight"] == ONE_WEIGHT and row["keys"] in ends,
        "keys",
        "{} keys",
    )
    title = f"Error beside one key with {ONE_WEIGHT} of the weight"
    return plot(
        title, "place of that key in the row (0 first, 1 last)", "relative L2 error", series, y_log=True
    )


PLOTS = {"speed": speed, "lengths": lengths, "means": means, "sinks": sinks}


def main(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("result", help="peers.json")
    parser.add_argument("folder", help="where the SVG files go")
    parser.add_argument("--prefix", help="of their names (default: that of the JSON file)")
    args = parser.parse_args(arguments)
    try:
        result = json.loads(Path(args.result).read_text())
    except (OSError, ValueError) as e:
        parser.error(f"{args.result}: {e}")
    if not isinstance(result, dict) or (result.get("schema"), result.get("version")) != ("quatt.peers", 1):
        parser.error(f"{args.result}: is no result of bench/peers.py of version 1")
    for name, draw in PLOTS.items():
        svg = draw(result)
        if svg is None:
            print(f"no numbers for {name}")
            continue
        path = Path(args.folder) / f"{args.prefix or Path(args.result).stem}_{name}.svg"
        path.write_text(svg)
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
