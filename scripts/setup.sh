#!/usr/bin/env bash
# Installs what quatt needs, from the system's packages. Does nothing where nothing is missing.
#
# usage: scripts/setup.sh [demo|test|has-fuzzer]
#   demo   what builds the library and the command line tool
#   test   also what the tests, the formatter and the linter need (default)
#   has-fuzzer   install nothing; succeed where clang++ has libFuzzer
set -euo pipefail
cd "$(dirname "$0")/.."

goal="${1:-test}"
case "$goal" in
demo | test | has-fuzzer) ;;
*)
    echo "usage: scripts/setup.sh [demo|test|has-fuzzer], not '$goal'" >&2
    exit 2
    ;;
esac

# Probes look for the thing itself and not for the package: whoever has CMake from elsewhere needs no second one.
has_command() { command -v "$1" >/dev/null 2>&1; }
has_header() { echo "#include <$1>" | g++ -std=c++20 -E -x c++ - >/dev/null 2>&1; }
has_cxx20() { echo '#include <concepts>' | g++ -std=c++20 -E -x c++ - >/dev/null 2>&1; }
has_browser() { has_command chromium || has_command chromium-browser || has_command google-chrome; }
has_fuzzer() {
    has_command clang++ &&
        echo 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }' |
        clang++ -fsanitize=fuzzer,address -x c++ - -o /dev/null >/dev/null 2>&1
}
has_cmake() {
    has_command cmake || return 1
    local version
    version="$(cmake --version | sed -n '1s/.* \([0-9][0-9.]*\).*/\1/p')"
    [ "$(printf '%s\n' 3.25 "$version" | sort -V | head -n 1)" = 3.25 ]
}

if [ "$goal" = has-fuzzer ]; then
    has_fuzzer
    exit
fi

missing=()
need() { # need PACKAGE REASON PROBE...
    local package="$1" reason="$2"
    shift 2
    if ! "$@"; then
        missing+=("$package")
        printf 'setup: missing %-22s %s\n' "$package" "$reason"
    fi
}

need g++ "the C++20 compiler" has_cxx20
need cmake "configures the build (3.25 or newer)" has_cmake
need ninja-build "runs the build" has_command ninja
need make "runs the short commands" has_command make
need libcli11-dev "command line of the tool (CLI11)" has_header CLI/CLI.hpp
need nlohmann-json3-dev "JSON in safetensors files and reports" has_header nlohmann/json.hpp
if [ "$goal" = test ]; then
    need python3 "runs the include, docs and browser checks" has_command python3
    need libgtest-dev "unit tests (GoogleTest)" has_header gtest/gtest.h
    need librapidcheck-dev "property-based tests (RapidCheck)" has_header rapidcheck.h
    need libboost-context-dev "fibers of the SIMT executor (Boost.Context)" has_header boost/context/detail/fcontext.hpp
    need pkg-config "the install test reads quatt.pc" has_command pkg-config
    need ccache "repeated builds take seconds" has_command ccache
    need chromium "a test reads the report of quatt check in it" has_browser
    need clang-format "make format" has_command clang-format
    need clang-tidy "make lint" has_command clang-tidy
    need cppcheck "make lint" has_command cppcheck
    # 3 MB to fetch beside clang-tidy, which brings the compiler's own libraries.
    need clang "the fuzzers" has_command clang++
    need libclang-rt-dev "the fuzzers (libFuzzer)" has_fuzzer
fi

# Where there is nvcc, the tests of machine code want a disassembler, which not every CUDA toolkit brings. Without it they are
# skipped, so nothing here is an error.
if [ "$goal" = test ] && has_command nvcc && has_command python3 &&
    ! python3 tests/sass/machine_code.py >/dev/null 2>&1; then
    echo "setup: installing cuobjdump and nvdisasm into build/cuda-tools (PyPI: nvidia-cuda-cuobjdump, nvidia-cuda-nvdisasm)"
    PIP_ROOT_USER_ACTION=ignore python3 -m pip install --quiet --disable-pip-version-check --no-deps --upgrade --target build/cuda-tools \
        nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm ||
        echo "setup: that failed; the tests of machine code will be skipped" >&2
fi

if [ "${#missing[@]}" -eq 0 ]; then
    echo "setup: nothing is missing for '$goal'"
    exit 0
fi

as_root=()
if ! has_command apt-get; then
    echo "setup: this system has no apt-get. Install the above (Debian's names) by its own means, then run this again." >&2
    exit 1
elif [ "$(id -u)" -ne 0 ]; then
    if has_command sudo && sudo -n true 2>/dev/null; then
        as_root=(sudo)
    else
        echo "setup: installing needs root. Run this once, then try again:" >&2
        echo "    sudo apt-get update && sudo apt-get install --no-install-recommends ${missing[*]}" >&2
        exit 1
    fi
fi

# Another package manager may be at work on the machine; wait for it rather than fail.
apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300)
echo "setup: installing ${missing[*]}"
"${apt[@]}" update
"${apt[@]}" install -y --no-install-recommends "${missing[@]}" >/dev/null
echo "setup: done"
