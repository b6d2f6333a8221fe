#!/usr/bin/env bash
# Runs every benchmark of a build.
#
# usage: scripts/bench.sh FOLDER   (as build/dev/bench)
set -euo pipefail

folder="${1:?usage: scripts/bench.sh FOLDER}"
found=0
for program in "$folder"/*; do
    if [ -f "$program" ] && [ -x "$program" ]; then
        found=$((found + 1))
        echo "== $(basename "$program")"
        "$program"
    fi
done
if [ "$found" -eq 0 ]; then
    echo "bench: there is no benchmark in $folder yet"
fi
