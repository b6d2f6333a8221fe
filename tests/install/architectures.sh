#!/usr/bin/env bash
# QUATT_CUDA_ARCHITECTURES decides what is compiled, and what query refuses.
#
# usage: architectures.sh values SOURCE SCRATCH     values that configuration refuses, with what it says
#        architectures.sh build SOURCE SCRATCH      the library for each architecture alone
set -euo pipefail
part="$1"
source_dir="$2"
scratch="$3"

fail() {
    echo "FAILED: $*" >&2
    exit 1
}
expect() { # expect TEXT FILE
    grep -qF -- "$1" "$2" || {
        cat "$2"
        fail "not in the output: $1"
    }
}
configure() { # configure FOLDER OPTION...
    local build="$scratch/$1"
    shift
    cmake -S "$source_dir" -B "$build" -DQUATT_CUDA=ON -DQUATT_BUILD_TESTS=OFF -DQUATT_BUILD_TOOLS=OFF "$@"
}

rm -rf "$scratch"
mkdir -p "$scratch"
case "$part" in
values)
    allowed="it is a list of 90a (compute capability 9.0) and 120f (12.0 and 12.1)"
    for value in 80 90 "90a;120" all 90a-real; do
        if configure values "-DQUATT_CUDA_ARCHITECTURES=$value" >"$scratch/log" 2>&1; then fail "$value was taken"; fi
        # CMake wraps its messages.
        tr -s ' \n' ' ' <"$scratch/log" >"$scratch/line"
        expect "QUATT_CUDA_ARCHITECTURES has \"${value#90a;}\", for which there are no kernels; $allowed" "$scratch/line"
    done
    if configure values -DQUATT_CUDA_ARCHITECTURES= >"$scratch/log" 2>&1; then fail "an empty list was taken"; fi
    tr -s ' \n' ' ' <"$scratch/log" >"$scratch/line"
    expect "QUATT_CUDA_ARCHITECTURES is empty; $allowed. Without kernels for GPUs: -DQUATT_CUDA=OFF" "$scratch/line"
    ;;
build)
    for architecture in 90a 120f; do
        build="$scratch/$architecture"
        # With the options of the preset dev ccache has all but the kernels.
        (cd "$source_dir" && cmake --preset dev -B "$build" -DQUATT_CUDA=ON "-DQUATT_CUDA_ARCHITECTURES=$architecture" \
            -DQUATT_BUILD_TESTS=OFF -DQUATT_BUILD_TOOLS=OFF -DQUATT_BUILD_BENCH=OFF) >"$build.log"
        cmake --build "$build" --target quatt -j "$(nproc)" >>"$build.log" 2>&1 || {
            tail -n 50 "$build.log"
            fail "the build for $architecture"
        }
        "${CC:-cc}" -std=c99 "-I$source_dir/include" "$source_dir/tests/install/query.c" "-L$build" -lquatt \
            "-Wl,-rpath,$build" -o "$build/query"
        case "$architecture" in
        90a) has=(9 0) lacks=(12 0) built="9.0" kernel=wgmma ;;
        120f) has=(12 1) lacks=(9 0) built="12.0 12.1" kernel=warp_mma ;;
        esac
        "$build/query" "${has[@]}" >"$scratch/log" || fail "$architecture: ${has[*]} is refused"
        expect "chosen: $kernel" "$scratch/log"
        if "$build/query" "${lacks[@]}" >"$scratch/log"; then fail "$architecture: ${lacks[*]} is taken"; fi
        expect "compute capability of GPU 0 is ${lacks[0]}.${lacks[1]}; this build has code for $built (CMake option QUATT_CUDA_ARCHITECTURES)" \
            "$scratch/log"
    done
    ;;
*) fail "there is no part '$part'" ;;
esac
echo "architectures, $part: passed"
