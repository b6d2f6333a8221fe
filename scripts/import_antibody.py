#!/usr/bin/env python3
"""Copies the captured antibody tensors and adds what `quatt check` needs to the metadata.

The keys softmax_scale and causal are added; every other byte of metadata, and all tensors, stay as
they are. Needs nothing but Python's standard library.

    scripts/import_antibody.py INPUT.safetensors tests/data/antibody_bert_packed.safetensors
"""

import json
import struct
import sys

ADDED = {"causal": "false", "softmax_scale": "0.125"}


def main() -> int:
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    with open(sys.argv[1], "rb") as file:
        content = file.read()
    (length,) = struct.unpack_from("<Q", content)
    header = json.loads(content[8 : 8 + length])
    header["__metadata__"] = {**header.get("__metadata__", {}), **ADDED}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)  # the data begins at a multiple of 8
    with open(sys.argv[2], "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + content[8 + length :])
    return 0


if __name__ == "__main__":
    sys.exit(main())
