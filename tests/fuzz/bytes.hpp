// What the fuzz targets share: fields taken from a fuzzer's bytes, and memory that ends where a
// tensor does, so that the address sanitizer sees every step past it.
#pragma once
#include <quatt/quatt.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>

// Defined by each target; libFuzzer and replay.cpp call it.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace quatt::fuzz {

// Ends the program, which is how a fuzzer learns of a fault.
[[noreturn]] inline void fault(const char* what) {
    std::fprintf(stderr, "fault: %s; last error: %s\n", what, quatt_last_error());
    std::abort();
}
inline void require(bool holds, const char* what) {
    if (!holds) {
        fault(what);
    }
}

// Reads from the front; past the end everything is 0, so that every input means something.
class Bytes {
public:
    Bytes(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}

    [[nodiscard]] bool empty() const { return size_ == 0; }
    template <class T>
    [[nodiscard]] T take() {
        T value{};
        const std::size_t n = size_ < sizeof(T) ? size_ : sizeof(T);
        if (n > 0) {
            std::memcpy(&value, data_, n);
        }
        data_ += n;
        size_ -= n;
        return value;
    }
    // 0 to limit - 1
    [[nodiscard]] std::int32_t below(std::int32_t limit) { return take<std::uint8_t>() % limit; }
    [[nodiscard]] bool bit() { return (take<std::uint8_t>() & 1) != 0; }

private:
    const std::uint8_t* data_;
    std::size_t size_;
};

// A heap block of exactly so many bytes.
struct Free {
    void operator()(std::byte* p) const { std::free(p); }
};
using Block = std::unique_ptr<std::byte, Free>;
[[nodiscard]] inline Block block_of(std::size_t bytes, std::size_t align = 16) {
    void* p = nullptr;
    require(::posix_memalign(&p, align, bytes) == 0, "no memory for the test itself");
    return Block(static_cast<std::byte*>(p));
}

// What a tensor reaches, in bytes relative to its data, or nothing where that is not tiny or the
// tensor makes no sense. Written from quatt.h and in 128 bits, to be no copy of the library's.
struct ByteRange {
    std::int64_t lo = 0, hi = 0;
};
[[nodiscard]] inline std::optional<ByteRange> tiny_reach(const quatt_tensor& t,
                                                         std::int64_t most_bytes,
                                                         std::int64_t most_elements) {
    const auto size = static_cast<std::int64_t>(quatt_dtype_bytes(t.dtype));
    if (size == 0 || t.rank < 0 || t.rank > 4) {
        return std::nullopt;
    }
    __extension__ using Wide = __int128;
    Wide lo = 0, hi = 0, elements = 1;
    for (int i = 0; i < t.rank; i++) {
        if (t.extent[i] < 0 || t.extent[i] > most_elements) {
            return std::nullopt;
        }
        elements *= t.extent[i];
        const Wide step = t.extent[i] > 1 ? Wide{t.extent[i] - 1} * t.stride[i] : 0;
        (step < 0 ? lo : hi) += step;
    }
    if (elements == 0) {
        return ByteRange{};
    }
    if ((hi - lo + 1) * size > most_bytes || elements > most_elements) {
        return std::nullopt;
    }
    return ByteRange{static_cast<std::int64_t>(lo) * size,
                     static_cast<std::int64_t>(hi + 1) * size};
}

}  // namespace quatt::fuzz
