#!/usr/bin/env bash
# Shows which precision real tensors can bear: `quatt check` on a trained network's Q, K and V, as tables and as a page for the
# browser, then on a synthetic diffusion-transformer sample with head size 128. Called by `make demo`, which builds the tool first.
set -euo pipefail
cd "$(dirname "$0")/.."

quatt="${QUATT:-build/release/tools/quatt}"
real_file=tests/data/antibody_bert_packed.safetensors
sample_file=build/demo/dit.safetensors
report_file=build/demo/report.html

# The sample: one segment of tokens on a 3-D grid (frames x height x width).
sample_kind=dit
sample_seed=1
sample_tokens=2048
sample_heads=4
sample_head_dim=128
sample_flags=(
    --kind "$sample_kind"
    --seed "$sample_seed"
    --tokens "$sample_tokens"
    --heads "$sample_heads"
    --head-dim "$sample_head_dim"
)

show() {
    printf '\n$ quatt'
    printf ' %s' "$@"
    printf '\n'
    "$quatt" "$@"
}

echo "== 1. A trained network: three layers of an antibody language model, head size 64, four packed sequences =="
mkdir -p "$(dirname "$report_file")"
show check "$real_file" --report "$report_file"

echo
echo "== 2. A diffusion-transformer-like sample: RMS-normed, rotary, smooth along a 3-D token grid, head size 128 =="
show sample "${sample_flags[@]}" -o "$sample_file"
show check "$sample_file"

echo
echo "The report of 1 as a page, for a browser: file://$PWD/$report_file"
