#!/usr/bin/env bash
# Formats the project's C, C++ and CUDA files, new ones included, with .clang-format.
#
# usage: scripts/format.sh [--check]
#   --check   change nothing, fail where something would change
set -euo pipefail
cd "$(dirname "$0")/.."

case "${1:-}" in
'') mode=(-i) ;;
--check) mode=(--dry-run -Werror) ;;
*)
    echo "usage: scripts/format.sh [--check], not '$1'" >&2
    exit 2
    ;;
esac

git ls-files -z --cached --others --exclude-standard -- '*.c' '*.h' '*.cpp' '*.hpp' '*.cu' '*.cuh' |
    while IFS= read -r -d '' file; do
        # A file that is deleted but not yet committed is still listed.
        if [ -f "$file" ]; then printf '%s\0' "$file"; fi
    done |
    xargs -0 --no-run-if-empty clang-format "${mode[@]}"
