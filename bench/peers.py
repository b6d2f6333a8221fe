#!/usr/bin/env python3
"""Times and errors of quatt's fp8 beside other attention kernels, all in one process.

Each round calls every candidate once, in another order: after a hot kernel the GPU is slower for the next
one. A call is timed between two events of its stream: ours from bf16, all quantisation included; that of an
FP8 peer on codes made beforehand. "kernel alone" is the attention kernel as the profiler sees it, in rounds
of its own. A peer that cannot be imported or fails is named with the reason and left out.

Peers: FA3 FP8 and bf16 (pip install fa3-fwd==0.0.3), cuDNN FP8 (nvidia-cudnn-frontend==1.18.0), and torch's
scaled_dot_product_attention (cuDNN bf16, FA2 bf16). Needs torch and a GPU; scripts/peers.sh builds the
library and calls this. Exits 1 where ours failed.
"""

import argparse
import datetime
import faulthandler
import json
import sys
import time
import traceback

from gpu import peer_tables

PARTS = ("speed", "spread", "accuracy")
DEADLINE = 400  # seconds: something hangs


def names_of(parser, flag, text, known):
    names = [n for n in text.split(",") if n] or list(known)
    unknown = [n for n in names if n not in known]
    if unknown:
        parser.error(f"{flag} {', '.join(unknown)}: the names are {', '.join(known)}")
    return names


def parse(arguments):
    parser = argparse.ArgumentParser(
        prog="peers.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("library", nargs="?", help="libquatt.so")
    parser.add_argument("--shapes", default="", metavar="NAME,...", help="these shapes only (see --list)")
    parser.add_argument("--only", default="", metavar="PART,...", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--rounds", type=int, metavar="N", help="timed calls of each candidate (default 15)")
    parser.add_argument("--json", metavar="FILE", help="write everything here, too")
    parser.add_argument("--quick", action="store_true", help="5 rounds, and fewer long rows")
    parser.add_argument("--list", action="store_true", help="say what would run, and run nothing")
    parser.add_argument(
        "--rehearse", action="store_true", help="tiny cases of our own half, on the host by the executor"
    )
    args = parser.parse_args(arguments)
    shapes = {s.name: s for s in (peer_tables.TINY if args.rehearse else peer_tables.SHAPES)}
    args.shapes = [shapes[n] for n in names_of(parser, "--shapes", args.shapes, shapes)]
    args.parts = names_of(parser, "--only", args.only, PARTS)
    if args.rounds is None:
        args.rounds = 5 if args.quick else 2 if args.rehearse else 15
    if args.rounds < 1:
        parser.error(f"--rounds {args.rounds}: at least 1")
    if not args.library and not args.list:
        parser.error("the library is missing: peers.py build/gpu/libquatt.so")
    return args


def list_all(args):
    print("shapes: " + ", ".join(s.name for s in args.shapes))
    print(f"parts: {', '.join(args.parts)}; {args.rounds} rounds")
    try:
        from gpu import peers
    except ImportError as e:
        print(f"peers: {e}")
        return 1
    for p in peers.PEERS:
        version = f"{p.package} {p.version()}" if p.package else "torch"
        print(f"  {p.name}: {p.what} ({version}){'; packed too' if p.packed else ''}; {p.missing() or 'ok'}")
    return 0


def refuse(reason):
    print(f"peers.py {reason}", file=sys.stderr)
    return 1


def write(path, document):
    if path:
        with open(path, "w") as f:
            json.dump(peer_tables.plain(document), f, indent=1)
            f.write("\n")


def main(arguments=None):
    args = parse(arguments)
    if args.list:
        return list_all(args)
    try:
        from gpu import accuracy, peers
        from gpu.common import Checks
    except ModuleNotFoundError as e:
        return refuse(f"needs Python 3 with torch: {e}")
    if not args.rehearse and not peers.torch.cuda.is_available():
        return refuse("needs a GPU that torch can use (or --rehearse)")
    try:
        c = Checks(args.library, quick=args.quick, rehearse=args.rehearse)
    except OSError as e:
        return refuse(f"cannot load the library: {e}")
    faulthandler.dump_traceback_later(DEADLINE, exit=True)
    document = {
        "schema": peer_tables.SCHEMA,
        "version": peer_tables.VERSION,
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "machine": peers.machine(c),
        "rounds": args.rounds,
        "quick": args.quick,
        "order": "shuffled each round",
        "seconds": {},
    }
    bench = peers.Bench(c, args.rounds)
    document["peers"] = {p.name: p.what for p in bench.peers}
    document["left_out"] = bench.left_out

    def part(name, run):
        start = time.time()
        try:
            run()
        except Exception as e:  # the other parts still count
            bench.leave_out("all", name, f"{type(e).__name__}: {e}")
            traceback.print_exc()
        document["seconds"][name] = round(time.time() - start, 1)
        write(args.json, document)  # what there is, should a later part end the process

    def show(key, value, lines):
        document[key] = value
        print("\n".join(lines) + "\n", flush=True)

    def one_shape(shape):
        row = bench.shape(shape)
        document.setdefault("shapes", []).append(row)
        print("\n".join(peer_tables.shape_lines(row)) + "\n", flush=True)

    def spread():
        table = bench.spread()
        show("spread", table, peer_tables.spread_lines(table))

    def errors():
        tables = accuracy.Accuracy(bench).tables()
        show("accuracy", tables, peer_tables.accuracy_lines(tables))

    if "speed" in args.parts:
        for shape in args.shapes:
            part(shape.name, lambda shape=shape: one_shape(shape))
            c.free()
    if "spread" in args.parts:
        part("spread", spread)
        c.free()
    if "accuracy" in args.parts:
        part("accuracy", errors)
    if c.where == "cuda":
        document["machine"]["after"] = peers.machine_state()
    write(args.json, document)
    print("\n".join(peer_tables.summary_lines(document.get("shapes", []))))
    print("seconds: " + ", ".join(f"{n} {s}" for n, s in document["seconds"].items()))
    print("\n".join(peer_tables.left_out_lines(bench.left_out)))
    failed = [x for x in bench.left_out if x["peer"] in ("all", peer_tables.OURS)]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
