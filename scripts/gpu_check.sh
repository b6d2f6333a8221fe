#!/usr/bin/env bash
# Builds the library with CUDA, checks the GPU kernels and times them beside torch's. Needs a GPU, nvcc, CMake, ninja and Python
# with torch. Logs go to the folder $OUT (default build/gpu_check).
#
#   scripts/gpu_check.sh [--only correct|speed]
set -euo pipefail
cd "$(dirname "$0")/.."
out="${OUT:-build/gpu_check}"
mkdir -p "$out"
cmake -S . -B build/gpu -G Ninja -DCMAKE_BUILD_TYPE=Release -DQUATT_CUDA=ON -DQUATT_BUILD_TESTS=OFF -DQUATT_BUILD_TOOLS=OFF >"$out/configure.log" 2>&1 ||
    { cat "$out/configure.log"; exit 1; }
cmake --build build/gpu >"$out/build.log" 2>&1 || { tail -50 "$out/build.log"; exit 1; }
python3 bench/gpu_check.py build/gpu/libquatt.so --json "$out/gpu_check.json" "$@" 2>&1 | tee "$out/check.log"
