#!/usr/bin/env python3
"""Checks the direction of #include lines: an include never points up. And that a file which names std::int32_t and
the like includes <cstdint>, itself or by files of the project: other standard headers may, or may not, bring it.

usage: check_includes.py [ROOT]

    formats <- recipe <- core <- {cpu, cuda, dist}
    formats <- simt <- cuda/ptx <- cuda/tile <- cuda/launch <- cuda/worklist <- {cuda/softmax, cuda/epilogue}
        <- {cuda/quantize, cuda/route, cuda/kv, cuda/combine, cuda/schedule <- {cuda/warp_mma, cuda/wgmma, cuda/tcgen05}}

include/ sees nothing of src/. tools, bench, python and examples see <quatt/...> and their own files; bench also sees
tools, whose library it links. Prints each violation as FILE:LINE: text, and exits 1 if there is one.
"""

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from sources import blank, report, sources  # noqa: E402  the folder comes first

BASE = {"formats"}
HOST = BASE | {"recipe", "core"}
TILES = BASE | {"simt", "cuda/ptx", "cuda/tile"}
LISTS = TILES | {"cuda/launch", "cuda/worklist"}  # launchers, the list of work
PARTS = LISTS | {"recipe", "cuda/softmax", "cuda/epilogue"}  # what kernels are put together from

# Layer -> the layers that it may include, besides itself. A layer is the longest of these names that a path under src/
# starts with.
LAYERS = {
    "formats": set(),
    "recipe": BASE,
    "core": BASE | {"recipe"},
    "cpu": HOST,
    "dist": HOST,
    "simt": BASE,
    "cuda/ptx": BASE | {"simt"},
    "cuda/tile": BASE | {"simt", "cuda/ptx"},
    "cuda/launch": TILES,
    "cuda/worklist": TILES | {"cuda/launch"},
    "cuda/softmax": TILES | {"recipe"},
    "cuda/epilogue": LISTS,
    "cuda/schedule": PARTS,
}
# They stand on the parts, never on each other.
for name in ("quantize", "route", "kv", "combine"):
    LAYERS[f"cuda/{name}"] = PARTS
SCHEDULES = {f"cuda/{name}" for name in ("warp_mma", "wgmma", "tcgen05")}
LAYERS.update({name: PARTS | {"cuda/schedule"} for name in SCHEDULES})
# Files right in src/cuda/: the backend that puts the stages together.
LAYERS["cuda"] = HOST | {name for name in LAYERS if name.startswith("cuda/")} | TILES

# Folder outside src/ -> the folders that it may include, besides itself. All may include <quatt/...>.
OUTSIDE = {"include": set(), "tools": set(), "bench": {"tools"}, "python": set(), "examples": set()}

COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
INCLUDE = re.compile(r"^\s*#\s*include\b\s*(.*)$")
FIXED_WIDTH = re.compile(r"\bstd::u?int(?:8|16|32|64|ptr|max)_t\b")
TARGET = re.compile(r'(?:"([^"]+)"|<([^>]+)>)')


def layer_of(path):
    """The layer of a path relative to src/, or None."""
    parts = path.parent.parts
    for length in range(len(parts), 0, -1):
        name = "/".join(parts[:length])
        if name in LAYERS:
            return name
    return None


def includes(file):
    """(line number, name, quoted) of each #include line; name is None where it is not a literal."""
    text = file.read_text(encoding="utf-8")
    for number, line in enumerate(COMMENT.sub(blank, text).splitlines(), 1):
        match = INCLUDE.match(line)
        if match:
            target = TARGET.match(match.group(1))
            if target:
                yield number, target.group(1) or target.group(2), target.group(1) is not None
            else:
                yield number, None, False


def place_of(root, file, name, quoted):
    """Where an include leads: a path relative to root, or None for a header from outside the project."""
    if quoted and (file.parent / name).is_file():
        return (file.parent / name).relative_to(root)
    for folder in ("include", "src", "tools", "."):
        if (root / folder / name).is_file():
            return (root / folder / name).relative_to(root)
    return None


def violation(root, file, name, quoted):
    """What is wrong with an include, or None."""
    if name is None:
        return "the name is not a literal, so its direction cannot be checked"
    if ".." in Path(name).parts:
        return f"{name}: no '..' in an include; name it from src/"
    to = place_of(root, file, name, quoted)
    if to is None:
        return f'"{name}": there is no such file in the project' if quoted else None
    top = file.relative_to(root).parts[0]
    if to.parts[:2] == ("include", "quatt"):
        return None
    if top != "src":
        if to.parts[0] == top or to.parts[0] in OUTSIDE[top]:
            return None
        allowed = ", ".join(["<quatt/...>", top, *sorted(OUTSIDE[top])])
        return f"{top} may not include {to}; it may include {allowed}"
    source = layer_of(file.relative_to(root / "src"))
    if to.parts[0] != "src":
        return f"{source} may not include {to}"
    target = layer_of(to.relative_to("src"))
    if target == source or target in LAYERS[source]:
        return None
    return f"{source} may not include {target} ({to}); it may include {', '.join(sorted(LAYERS[source])) or 'nothing'}"


def uses_fixed_width(file):
    """The line of the first std::int32_t or the like, or None."""
    text = COMMENT.sub(blank, file.read_text(encoding="utf-8"))
    for number, line in enumerate(text.splitlines(), 1):
        if FIXED_WIDTH.search(line.split("//")[0]):
            return number
    return None


def brings_cstdint(root, file, seen):
    seen.add(file)
    for _, name, quoted in includes(file):
        if name == "cstdint":
            return True
        to = place_of(root, file, name, quoted) if name else None
        if to and root / to not in seen and brings_cstdint(root, root / to, seen):
            return True
    return False


def check(root):
    """All violations, as text; and the number of files looked at."""
    root = Path(root).resolve()
    found = []
    files = 0
    for file in sources(root, "src", *OUTSIDE):
        files += 1
        short = file.relative_to(root)
        if short.parts[0] == "src" and layer_of(short.relative_to("src")) is None:
            found.append(f"{short}:1: this folder is no layer; give it a place in check_includes.py")
            continue
        for line, name, quoted in includes(file):
            text = violation(root, file, name, quoted)
            if text:
                found.append(f"{short}:{line}: {text}")
        line = uses_fixed_width(file)
        if line and not brings_cstdint(root, file, set()):
            found.append(f"{short}:{line}: integers of fixed width without <cstdint>")
    return found, files


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[2]
    return report(*check(root))


if __name__ == "__main__":
    sys.exit(main())
