// Sixteen floats or eight doubles at a time, by the compilers' vector extension: lowered to what
// the target has.
#pragma once
#include <cstdint>
#include <cstring>

// Functions marked with it are compiled for three instruction sets and chosen at load time. Results
// are the same bits: nothing is contracted or reordered. NOTE: the loader's resolvers run before a
// sanitizer is ready, so those builds go without.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define QUATT_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define QUATT_CLONES
#endif
// Inlined into each of the three.
#define QUATT_INLINE [[gnu::always_inline]] inline

namespace quatt::recipe {

using Floats [[gnu::vector_size(64)]] = float;
using Doubles [[gnu::vector_size(64)]] = double;

inline constexpr std::int64_t kFloats = 16;

}  // namespace quatt::recipe
