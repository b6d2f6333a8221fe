"""What bench/peers.py measures and how it is written down. Needs no torch."""

import math
import statistics

SCHEMA, VERSION = "quatt.peers", 1  # of the JSON; scripts/plot_peers.py and `quatt bench --compare` read it
DIM = 128
OURS = "quatt fp8"


class Shape:
    """Segments of tokens, each attending to itself. One segment is a dense call."""

    def __init__(self, name, lengths, heads):
        self.name, self.lengths, self.heads = name, tuple(lengths), heads

    @property
    def tokens(self):
        return sum(self.lengths)

    @property
    def packed(self):
        return len(self.lengths) > 1

    @property
    def bounds(self):
        bounds = [0]
        for n in self.lengths:
            bounds.append(bounds[-1] + n)
        return bounds

    @property
    def flop(self):
        return 4 * sum(n * n for n in self.lengths) * DIM * self.heads


SHAPES = [
    Shape("30272x56", [30272], 56),
    Shape("20440x56", [20440], 56),
    Shape("8192x16", [8192], 16),
    Shape("2048x56", [2048], 56),
    Shape("4096x32", [4096], 32),
    Shape("131072x4", [131072], 4),
    Shape("packed-4x8368x56", [8368] * 4, 56),
    Shape("packed-257+4310+257x56", [257, 4310, 257], 56),
]
TINY = [Shape("130x2", [130], 2), Shape("packed-33+70x2", [33, 70], 2)]  # for a rehearsal


def summary(times):
    """Median, quartiles and lowest of times in ms."""
    q1, median, q3 = statistics.quantiles(times, n=4, method="inclusive") if len(times) > 1 else times * 3
    return {"median": median, "q1": q1, "q3": q3, "lowest": min(times), "rounds": len(times)}


def main_kernel(rounds):
    """(name, {kernel: median ms}) of profiled rounds: `attention`, else the longest kernel."""
    names = dict.fromkeys(name for kernels in rounds for name in kernels)
    each = {name: statistics.median(kernels.get(name, 0) for kernels in rounds) for name in names}
    return ("attention" if "attention" in each else max(each, key=each.get)), each


def candidate(flop, calls, kernel_rounds, rel_l2):
    """The JSON of one candidate: its whole call between two events, and its attention kernel alone."""
    entry = {"call_ms": summary(calls), "rel_l2": rel_l2}
    entry["call_tflops"] = flop / entry["call_ms"]["median"] / 1e9
    if kernel_rounds:
        name, each = main_kernel(kernel_rounds)
        entry["kernel"] = name
        entry["kernel_ms"] = summary([kernels.get(name, 0) for kernels in kernel_rounds])
        entry["kernel_tflops"] = flop / entry["kernel_ms"]["median"] / 1e9
        entry["kernels_ms"] = each
    return entry


def ratios(candidates):
    """{peer: {"all_in": its call / our call, "kernel": its kernel / our kernel}}: above 1, ours is faster."""
    ours, table = candidates.get(OURS), {}
    if not ours:
        return table
    for name, x in candidates.items():
        if name != OURS:
            table[name] = {"all_in": x["call_ms"]["median"] / ours["call_ms"]["median"]}
            if "kernel_ms" in x and "kernel_ms" in ours:
                table[name]["kernel"] = x["kernel_ms"]["median"] / ours["kernel_ms"]["median"]
    return table


TIME_WIDTH = 44


def _time(x, flop):
    """Median, quartiles, lowest, TFLOP/s."""
    if not x:
        return f"{'-':>9}".ljust(TIME_WIDTH)
    quartiles = f"[{x['q1']:8.3f} {x['q3']:8.3f}]"
    return f"{x['median']:9.3f} {quartiles} {x['lowest']:8.3f} {flop / x['median'] / 1e9:5.0f}"


def shape_lines(row):
    """The table of one shape."""
    call, kernel = (
        f"{what:>9} [quartiles, ms    ]   lowest  TF/s".ljust(TIME_WIDTH) for what in ("call", "kernel")
    )
    lines = [
        f"{row['name']}: {' + '.join(map(str, row['lengths']))} tokens, H={row['heads']}, D={DIM}"
        f", plan {row.get('plan', '-')}",
        f"  {'':<26}{call}  /ours  {kernel}  /ours  rel-L2",
    ]
    for name, x in row["candidates"].items():
        r = row["ratios"].get(name, {})
        lines.append(
            f"  {name:<26}{_time(x['call_ms'], row['flop'])} {_ratio(r.get('all_in'))}"
            f"  {_time(x.get('kernel_ms'), row['flop'])} {_ratio(r.get('kernel'))}  {x['rel_l2']:.4f}"
        )
    ours = row["candidates"].get(OURS, {})
    if "kernels_ms" in ours:
        prep = {n: t for n, t in ours["kernels_ms"].items() if n != ours["kernel"]}
        lines.append(
            f"  {OURS}: {ours['kernel']} {ours['kernel_ms']['median']:.3f} ms, the rest"
            f" {sum(prep.values()):.3f}: " + ", ".join(f"{n} {t:.3f}" for n, t in prep.items())
        )
    return lines


def _ratio(x):
    return f"{'-' if x is None else format(x, '.3f'):>6}"


def summary_lines(shapes):
    """One line a shape: what the peers take against us. Above 1, ours is faster."""
    names = list(dict.fromkeys(n for row in shapes for n in row["ratios"]))
    if not names:
        return []
    lines = ["peer / quatt fp8: kernel against kernel, and (the peer's call against all of ours)"]
    for row in shapes:
        cells = []
        for n in names:
            r = row["ratios"].get(n)
            if r:
                cells.append(f"{n} {_ratio(r.get('kernel')).strip()} ({r['all_in']:.3f})")
        lines.append(f"  {row['name']:<24}" + "  ".join(cells))
    return lines


def spread_lines(spread):
    """Times by kind of logits, relative to the same candidate at std 1."""
    lines = [f"logits, {spread['tokens']} tokens, H={spread['heads']}: ms of the kernel (/ its own at std 1)"]
    for name, cases in spread["candidates"].items():
        base, cells = None, []
        for case, x in cases.items():
            t = (x.get("kernel_ms") or x["call_ms"])["median"]
            base = base or t
            cells.append(f"{case} {t:.3f} ({t / base:.3f})")
        lines.append(f"  {name:<26}" + "  ".join(cells))
    return lines


def accuracy_lines(accuracy):
    """Every table of errors: a row a case, a column a candidate."""
    lines = []
    for table in accuracy.values():
        names = list(dict.fromkeys(n for row in table["rows"] for n in row["errors"]))
        lines += [table["title"], f"  {'':<30}" + "".join(f"{n:>26}" for n in names)]
        for row in table["rows"]:
            cells = [f"{row['errors'][n]:{table['digits']}}" if n in row["errors"] else "-" for n in names]
            lines.append(f"  {row['case']:<30}" + "".join(f"{cell:>26}" for cell in cells))
    return lines


def plain(x):
    """x as JSON can hold it: what is not finite is null."""
    if isinstance(x, dict):
        return {key: plain(y) for key, y in x.items()}
    if isinstance(x, (list, tuple)):
        return [plain(y) for y in x]
    return None if isinstance(x, float) and not math.isfinite(x) else x


def left_out_lines(left_out):
    return [f"left out: {x['peer']}, {x['where']}: {x['reason']}" for x in left_out]
