// The bytes are a safetensors file. The reader takes it or throws Error, and what it takes lies
// within the file.
#include "safetensors.hpp"

#include <vector>

#include "bytes.hpp"

using namespace quatt::fuzz;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const auto file = std::as_bytes(std::span(data, size));
    try {
        const auto set = quatt::tools::TensorSet::parse(file, "input");
        for (const quatt::tools::TensorView& t : set.tensors()) {
            require(set.find(t.name) == &t, "a tensor is not found by its name");
            require(!t.describe().empty(), "a tensor without a description");
            const auto bits = static_cast<std::uint64_t>(t.elements()) *
                              static_cast<unsigned>(quatt::tools::dtype_bits(t.dtype));
            require(bits == t.bytes.size() * 8, "a tensor's bytes are not those of its shape");
            require(t.bytes.empty() || (t.bytes.data() >= file.data() &&
                                        t.bytes.data() + t.bytes.size() <= file.data() + size),
                    "a tensor lies outside the file");
        }
    } catch (const quatt::tools::Error& e) {
        require(e.what()[0] != 0, "an error without a message");
    }
    return 0;
}
