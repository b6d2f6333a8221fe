#!/usr/bin/env bash
# Runs clang-tidy (.clang-tidy) on the host sources of src/ and tools/ and the headers that they include, and cppcheck on
# the same and on include/.
#
# usage: scripts/lint.sh [FILE.cpp...]   (default: all of them)
#   QUATT_LINT_PRESET  preset that says how they are compiled (default: dev)
#   QUATT_LINT_TOOLS   "clang-tidy cppcheck", or one of them (default: both)
#   JOBS               processes at a time (default: number of cores)
set -euo pipefail
cd "$(dirname "$0")/.."

tools=" ${QUATT_LINT_TOOLS:-clang-tidy cppcheck} "
jobs="${JOBS:-$(nproc)}"

if [ "$#" -gt 0 ]; then
    files=("$@")
else
    mapfile -t files < <(find src tools -name '*.cpp' | LC_ALL=C sort)
fi
if [ "${#files[@]}" -eq 0 ]; then
    echo "lint: no files"
    exit 0
fi

# Seconds, so it comes first. Not its style checks: they are clang-tidy's. Without the build's definitions, so that it looks at
# every configuration of a file and not only at this machine's; without system headers, which it knows by itself.
run_cppcheck() {
    local checks=warning,performance,portability
    local checked=("${files[@]}")
    if [ "$1" = all ]; then
        mapfile -t -O "${#checked[@]}" checked < <(find include -name '*.h' -o -name '*.hpp' | LC_ALL=C sort)
        # Reports entries of the list that match nothing, which those for other files would be.
        checks+=,information
    fi
    # At least two processes: a single one also says that there are system headers which it did not find.
    printf '%s\n' "${checked[@]}" | cppcheck --quiet --error-exitcode=1 -j "$((jobs > 1 ? jobs : 2))" --std=c++20 --language=c++ \
        --enable="$checks" --suppressions-list=.cppcheck-suppressions --max-configs=20 -I include -I src -I tools \
        --template='{file}:{line}:{column}: {severity}: {message} [cppcheck {id}]' --file-list=-
    echo "lint: cppcheck finds nothing in ${#checked[@]} files"
}

run_clang_tidy() {
    local preset="${QUATT_LINT_PRESET:-dev}"
    # New files enter compile_commands.json only when the build is configured.
    cmake --preset "$preset" >/dev/null
    # GCC's own warning flags are unknown to clang. Findings are on stdout; on stderr, --quiet still leaves a count of the
    # warnings that system headers would give.
    printf '%s\0' "${files[@]}" |
        xargs -0 -n 1 -P "$jobs" clang-tidy -p "build/$preset" --quiet --warnings-as-errors='*' \
            --extra-arg=-Wno-unknown-warning-option --extra-arg=-Wno-ignored-optimization-argument \
            2> >(grep -v 'warnings\? .*generated' >&2)
    echo "lint: clang-tidy finds nothing in ${#files[@]} files"
}

if [[ "$tools" == *" cppcheck "* ]]; then
    if [ "$#" -gt 0 ]; then run_cppcheck some; else run_cppcheck all; fi
fi
if [[ "$tools" == *" clang-tidy "* ]]; then run_clang_tidy; fi
