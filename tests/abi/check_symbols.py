#!/usr/bin/env python3
"""Checks that the libraries define what quatt.h declares, and take no other name from a program.

usage: check_symbols.py --header quatt.h [--shared libquatt.so] [--static libquatt.a] [--cc CC] [--nm NM]

shared: its dynamic symbols are the functions that quatt.h declares, no more and no fewer. Those that it defines inline
        are the caller's.
static: its global symbols are those functions, names that begin with quatt_, names in namespace quatt, and weak
        instantiations of templates of the C++ library, which a program merges with its own.
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path

# A function of the header, once comments and macros are gone. A pointer to a function has ')' behind its name.
DECLARATION = re.compile(r"\b(quatt_[a-z0-9_]+)\s*\(")
INLINE = re.compile(r"\bstatic inline\b[^{;]*\{[^{}]*\}")

# What stands before the first name of a mangled one: a local entity, a guard, tables and type information, a thunk; then
# qualifiers of a member (Itanium C++ ABI 5.1).
PREFIX = r"_Z(?:Z|GV|GR|T[VTIS]|T[hv]n?\d+_(?:n?\d+_)?)*N?[VKRO]*"
OURS = re.compile(r"quatt_|" + PREFIX + "5quatt")
# S and a letter: an abbreviation that begins in std.
STANDARD = re.compile(PREFIX + r"(?:S[a-z]|9__gnu_cxx)")
WEAK = "WVu"


def declared(text):
    """Names of the functions in a preprocessed header."""
    return set(DECLARATION.findall(INLINE.sub("", text)))


def symbols(listing):
    """(kind, name without its version) of each line of nm. Absolute symbols name the nodes of a version script."""
    for line in listing.splitlines():
        fields = line.split()
        if len(fields) == 3 and fields[1] != "A":
            yield fields[1], fields[2].partition("@")[0]


def shared_faults(names, listing):
    exported = {name for _, name in symbols(listing)}
    yield from (f"{name} is declared and not exported" for name in sorted(names - exported))
    yield from (f"{name} is exported and not declared" for name in sorted(exported - names))


def is_ours_or_shared(kind, name):
    # DW.ref.*: a hidden pointer to type information or a personality routine, one a program.
    return OURS.match(name) or (kind in WEAK and (STANDARD.match(name) or name.startswith("DW.ref.")))


def static_faults(names, listing):
    found = set(symbols(listing))
    defined = {name for _, name in found}
    yield from (f"{name} is declared and not defined" for name in sorted(names - defined))
    for kind, name in sorted(found, key=lambda symbol: symbol[1]):
        if not is_ours_or_shared(kind, name):
            yield f"{name} ({kind}) is neither quatt's nor a weak instantiation of the C++ library"


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--header", type=Path, required=True)
    parser.add_argument("--shared")
    parser.add_argument("--static")
    parser.add_argument("--cc", default="cc")
    parser.add_argument("--nm", default="nm")
    args = parser.parse_args()
    include = str(args.header.resolve().parents[1])
    names = declared(output(args.cc, "-std=c99", "-E", "-P", "-I", include, str(args.header)))
    faults = [] if names else [f"{args.header}: no declaration found"]
    checks = [(args.shared, ("-D",), shared_faults), (args.static, ("--extern-only",), static_faults)]
    for library, flags, find in checks:
        if library:
            listing = output(args.nm, "--defined-only", *flags, library)
            faults += [f"{library}: {fault}" for fault in find(names, listing)]
    print("\n".join([*faults, f"{len(names)} functions, {len(faults)} faults"]))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
