#!/usr/bin/env bash
# Runs clang-tidy (.clang-tidy) on the host sources of src/ and tools/, and on the headers that they include.
#
# usage: scripts/lint.sh [FILE.cpp...]   (default: all of them)
#   QUATT_LINT_PRESET  preset that says how they are compiled (default: dev)
#   JOBS               processes at a time (default: number of cores)
set -euo pipefail
cd "$(dirname "$0")/.."

preset="${QUATT_LINT_PRESET:-dev}"
# New files enter compile_commands.json only when the build is configured.
cmake --preset "$preset" >/dev/null

if [ "$#" -gt 0 ]; then
    files=("$@")
else
    mapfile -t files < <(find src tools -name '*.cpp' | LC_ALL=C sort)
fi
if [ "${#files[@]}" -eq 0 ]; then
    echo "lint: no files"
    exit 0
fi

# GCC's own warning flags are unknown to clang. Findings are on stdout; on stderr, --quiet still leaves a count of the
# warnings that system headers would give.
printf '%s\0' "${files[@]}" |
    xargs -0 -n 1 -P "${JOBS:-$(nproc)}" clang-tidy -p "build/$preset" --quiet --warnings-as-errors='*' \
        --extra-arg=-Wno-unknown-warning-option --extra-arg=-Wno-ignored-optimization-argument \
        2> >(grep -v 'warnings\? .*generated' >&2)
echo "lint: ${#files[@]} files are clean"
