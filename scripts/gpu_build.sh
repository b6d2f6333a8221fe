# Sourced by the scripts that need a GPU, from the root of the repository: builds the library with CUDA in $build.
build="${QUATT_GPU_BUILD:-build/gpu}"
nvcc="$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)"
export PATH="$PATH:$(dirname "$nvcc")"

build_library() {
    cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DQUATT_CUDA=ON -DQUATT_BUILD_TESTS=OFF \
        -DQUATT_BUILD_TOOLS=OFF &&
        cmake --build "$build" --target quatt
}
seconds() { awk -v a="$1" -v b="$(date +%s.%N)" 'BEGIN { printf "%.0f", b - a }'; } # since $1
