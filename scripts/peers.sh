#!/usr/bin/env bash
# Builds the library with CUDA and measures it beside other attention kernels (bench/peers.py). Needs a GPU, nvcc 13,
# CMake, ninja and Python 3 with torch; the peers too, those that are there: fa3-fwd 0.0.3, nvidia-cudnn-frontend 1.18.
# Under 150 s on an H200 once the library is built.
#
#   scripts/peers.sh [options of bench/peers.py]
#
# peers.log, peers.json and build.log go to the folder $OUT (default build/peers).
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/gpu_build.sh
out="${OUT:-build/peers}"
mkdir -p "$out"
rm -f "$out"/{build,peers}.log "$out/peers.json"

begin="$(date +%s.%N)"
build_library >"$out/build.log" 2>&1 || { tail -50 "$out/build.log"; echo "FAIL build"; exit 1; }
echo "built in $(seconds "$begin") s"
code=0
python3 -u bench/peers.py "$build/libquatt.so" --json "$out/peers.json" "$@" 2>&1 | tee "$out/peers.log" || code=$?
echo "all: $(seconds "$begin") s, $([ $code = 0 ] && echo ok || echo FAILED)"
exit $code
