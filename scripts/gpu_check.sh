#!/usr/bin/env bash
# Builds the library with CUDA, checks the GPU kernels in every way that needs a GPU, and times them beside
# torch's. Needs a GPU, nvcc 13, CMake, ninja, Python 3 with torch, and compute-sanitizer; no network, no
# GoogleTest, no Boost. Under 8 minutes on an H200 with 16 cores. cli needs CLI11 and nlohmann_json too; without
# --only it is left out where CMake does not find one of them (CMAKE_PREFIX_PATH says where else to look).
#
#   scripts/gpu_check.sh [--quick] [--only NAME,...]
#
# Names: ptx (instructions beside their model on the host), sanitize (small problems under memcheck,
# racecheck, initcheck, synccheck), cli (quatt bench on the GPU), and those of tests/gpu/gpu_check.py. Logs,
# gpu_check.json and cli.json go to the folder $OUT (default build/gpu_check).
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/gpu_build.sh
out="${OUT:-build/gpu_check}"
mkdir -p "$out" "$build/check"
rm -f "$out"/{build,ptx,sanitize,cli,check}.log "$out"/{gpu_check,cli}.json

only="" quick="" library_names=""
while [ $# -gt 0 ]; do
    case "$1" in
        --only) only="$2"; shift 2 ;;
        --quick) quick=--quick; shift ;;
        *) echo "usage: scripts/gpu_check.sh [--quick] [--only NAME,...], not '$1'" >&2; exit 2 ;;
    esac
done
for name in ${only//,/ }; do
    case "$name" in ptx | sanitize | cli) ;; *) library_names="$library_names,$name" ;; esac
done
wanted() { [ -z "$only" ] || [[ ",$only," == *",$1,"* ]]; }
python_wanted() { [ -z "$only" ] || [ -n "$library_names" ]; }

begin="$(date +%s.%N)"

# ---------------------------------------------------------------- build, all at once
build_ptx() { # the executor with tests/gpu in the place of Boost.Context
    local objects=() jobs=() source object
    for source in src/simt/*.cpp tests/gpu/fcontext.cpp tests/ptx/native/test_native.cpp; do
        object="$build/check/ptx_$(basename "$source" .cpp).o"
        g++ -std=c++20 -O2 -ffp-contract=off -Itests/gpu -Isrc -c "$source" -o "$object" & jobs+=($!)
        objects+=("$object")
    done
    for source in native wgmma; do
        object="$build/check/ptx_gpu_$source.o"
        "$nvcc" -std=c++20 -O3 -Isrc -gencode arch=compute_90a,code=sm_90a -c "tests/ptx/native/$source.cu" \
            -o "$object" & jobs+=($!)
        objects+=("$object")
    done
    for job in "${jobs[@]}"; do wait "$job" || return 1; done
    "$nvcc" -o "$build/check/test_ptx_native" "${objects[@]}" -lpthread
}
build_poison() {
    "$nvcc" -O2 -arch=sm_90 -shared -Xcompiler=-fPIC tests/gpu/poison.cu -o "$build/check/libpoison.so"
}
build_small() {
    "$nvcc" -std=c++20 -O2 -Iinclude tests/gpu/small.cu -o "$build/check/small" -L"$build" -lquatt \
        -Xlinker -rpath -Xlinker "$(cd "$build" && pwd)"
}

logs="$build/check"
build_library >"$logs/library.log" 2>&1 & library=$!
ptx=""
if wanted ptx; then build_ptx >"$logs/ptx_build.log" 2>&1 & ptx=$!; fi
build_poison >"$logs/poison.log" 2>&1 & poison=$!
built=1
wait "$library" || { built=0; tail -50 "$logs/library.log"; }
wait "$poison" || { built=0; cat "$logs/poison.log"; }
ptx_built=1
[ -z "$ptx" ] || wait "$ptx" || { ptx_built=0; tail -30 "$logs/ptx_build.log"; }
if [ $built = 1 ] && wanted sanitize; then
    build_small >"$logs/small_build.log" 2>&1 || { built=0; cat "$logs/small_build.log"; }
fi
cat "$logs"/{library,poison,ptx_build,small_build}.log >"$out/build.log" 2>/dev/null || true
[ $built = 1 ] || { echo "FAIL build"; exit 1; }
summary=("ok   build: $(seconds "$begin") s")
failed=0
note() { # name, ok or FAIL, text
    local line; line="$(printf '%-4s %s: %s' "$2" "$1" "$3")"
    summary+=("$line")
    echo "$line"
    [ "$2" = ok ] || failed=1
}

# ---------------------------------------------------------------- instructions, sanitizers
if wanted ptx; then
    if [ $ptx_built = 1 ] && timeout 120 "$build/check/test_ptx_native" >"$out/ptx.log" 2>&1; then
        note ptx ok "$(tail -1 "$out/ptx.log")"
    else
        cat "$out/ptx.log" 2>/dev/null | head -30 || true
        note ptx FAIL "$(tail -1 "$out/ptx.log" 2>/dev/null || echo not built)"
    fi
fi
if wanted sanitize; then
    start="$(date +%s.%N)"
    small="$build/check/small"
    if timeout 120 "$small" >"$logs/small.log" 2>&1; then
        note small ok "$(wc -l <"$logs/small.log") problems equal their emulation"
    else
        grep -v '^ok' "$logs/small.log" || true
        note small FAIL "$(tail -1 "$logs/small.log")"
    fi
    declare -A job
    for tool in memcheck racecheck initcheck synccheck; do
        timeout 240 compute-sanitizer --tool "$tool" --error-exitcode 1 "$small" >"$logs/$tool.log" 2>&1 &
        job[$tool]=$!
    done
    for tool in memcheck racecheck initcheck synccheck; do
        code=0
        wait "${job[$tool]}" || code=$?
        result="$(grep -E 'SUMMARY:|Error:' "$logs/$tool.log" | tail -1 | sed 's/^=* *//' || true)"
        # The tool must have said that it looked, too.
        if [ $code = 0 ] && grep -qE 'SUMMARY: 0 ' <<<"$result"; then
            note "$tool" ok "$result"
        else
            note "$tool" FAIL "exit $code, ${result:-no summary}"
        fi
    done
    for tool in small memcheck racecheck initcheck synccheck; do
        echo "==== $tool"
        head -c 2000000 "$logs/$tool.log"
    done >"$out/sanitize.log"
    summary+=("     sanitizers: $(seconds "$start") s")
fi

# ---------------------------------------------------------------- the command line tool
# Its JSON is whole, its results are right, its times are those of the work, and --compare reads it.
check_cli() {
    local quatt="$build/tools/quatt" json="$out/cli.json"
    cmake --build "$build" --target quatt_cli &&
        "$quatt" bench --device cuda --shape 1x2048x8x128 --shape 2x300x4x64 --heads-kv 4 --causal \
            --recipe bf16 --recipe f16 --recipe fp8 --rounds 5 --json "$json" &&
        "$quatt" bench --compare "$json" "$json" &&
        python3 - "$json" <<'EOF'
import json, sys
b = json.load(open(sys.argv[1]))
assert b["schema"] == "quatt.bench" and b["device"] == "cuda" and b["machine"]["gpu"], b
assert [r["recipe"] for r in b["results"]] == ["bf16", "f16", "fp8"] * 2, b["results"]
for r in b["results"]:
    assert 0 < r["lowest_ms"] <= r["q1_ms"] <= r["median_ms"] <= r["q3_ms"], r
    assert 1 <= r["runs"] <= 64 and (r["runs"] == 64 or r["runs"] * r["median_ms"] > 0.25), r
    assert 0 < r["gflops"] < 2e6, r
    assert 0 < r["rel_l2"] < {"bf16": 0.004, "f16": 0.001, "fp8": 0.08}[r["recipe"]], r
worst = max(r["rel_l2"] for r in b["results"] if r["recipe"] == "fp8")
print(f"{len(b['results'])} results on {b['machine']['gpu']}, rel-L2 of fp8 at most {worst:.3f}")
EOF
}
missing_package() { # the one that CMake's first error says is not there
    sed -n '/^CMake Error/,$p' "$out/cli.log" | tr -s ' \n' ' ' |
        sed -nE 's/^CMake Error at tools[^ ]* \(find_package\): By not providing "Find(CLI11|nlohmann_json)\.cmake".*/\1/p'
}
if wanted cli; then
    if ! cmake -S . -B "$build" -DQUATT_BUILD_TOOLS=ON >"$out/cli.log" 2>&1; then
        missing="$(missing_package)"
        if [ -z "$only" ] && [ -n "$missing" ]; then
            summary+=("     cli: left out, CMake does not find $missing")
        else
            note cli FAIL "$(grep -m 1 -A 1 'CMake Error' "$out/cli.log" | tail -1)"
        fi
    elif check_cli >>"$out/cli.log" 2>&1; then
        note cli ok "$(tail -1 "$out/cli.log")"
    else
        tail -30 "$out/cli.log"
        note cli FAIL "$(tail -1 "$out/cli.log")"
    fi
fi

# ---------------------------------------------------------------- numbers and times
if python_wanted; then
    code=0
    python3 -u tests/gpu/gpu_check.py "$build/libquatt.so" --poison "$build/check/libpoison.so" \
        --json "$out/gpu_check.json" ${library_names:+--only "${library_names#,}"} $quick 2>&1 |
        tee "$out/check.log" || code=$?
    [ $code = 0 ] || failed=1
fi
printf '%s\n' "${summary[@]}"
echo "all: $(seconds "$begin") s, $([ $failed = 0 ] && echo ok || echo FAILED)"
exit $failed
