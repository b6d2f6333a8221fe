// safetensors files: 8 bytes of header length (little endian), a JSON header that names the
// tensors, then their bytes without gaps.
//
// Reading maps the file and copies no tensor. Files may be hostile: every field is checked before
// it is used, and memory grows with the header only (at most 100 MB, and ten times that in
// objects). A mapped file that another program cuts short while it is read raises SIGBUS, as with
// every memory map; the program ends then, with a message (signals.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "error.hpp"
#include "files.hpp"
#include "signals.hpp"

namespace quatt::tools {

// Every element type that the format knows. Which ones are of use, the caller decides.
enum class Dtype : std::uint8_t {
    kBool,
    kF4,
    kF6E2M3,
    kF6E3M2,
    kU8,
    kI8,
    kF8E5M2,
    kF8E4M3,
    kF8E8M0,
    kF8E4M3Fnuz,
    kF8E5M2Fnuz,
    kI16,
    kU16,
    kF16,
    kBf16,
    kI32,
    kU32,
    kF32,
    kC64,
    kF64,
    kI64,
    kU64,
};

// The name in the file ("BF16").
[[nodiscard]] std::string_view dtype_name(Dtype dtype) noexcept;
[[nodiscard]] std::optional<Dtype> dtype_from_name(std::string_view name) noexcept;
// Bits of an element; below 8 for the packed types.
[[nodiscard]] int dtype_bits(Dtype dtype) noexcept;

// A tensor in somebody else's memory, row-major.
struct TensorView {
    std::string name;
    Dtype dtype = Dtype::kF32;
    std::vector<std::int64_t> shape;
    // NOTE: the format does not promise that the bytes are aligned to an element.
    std::span<const std::byte> bytes;

    [[nodiscard]] std::int64_t elements() const noexcept;
    [[nodiscard]] bool element_aligned() const noexcept;
    // "BF16 [918, 8, 64]"
    [[nodiscard]] std::string describe() const;
};

using Metadata = std::map<std::string, std::string, std::less<>>;

// What a file holds. The views point into the bytes it was parsed from.
class TensorSet {
public:
    // Parses the bytes of a whole file; `label` names it in messages. Throws Error.
    [[nodiscard]] static TensorSet parse(std::span<const std::byte> file, std::string_view label);

    // In the order of their bytes in the file.
    [[nodiscard]] const std::vector<TensorView>& tensors() const noexcept { return tensors_; }
    [[nodiscard]] const Metadata& metadata() const noexcept { return metadata_; }
    // Null where there is no tensor of this name.
    [[nodiscard]] const TensorView* find(std::string_view name) const noexcept;
    // Throws an Error that lists the names there are.
    [[nodiscard]] const TensorView& at(std::string_view name) const;

private:
    std::string label_;
    std::vector<TensorView> tensors_;
    std::map<std::string, std::size_t, std::less<>> index_;
    Metadata metadata_;
};

// A file, mapped for as long as the object lives.
class SafetensorsFile {
public:
    // Throws Error.
    explicit SafetensorsFile(const std::string& path);
    ~SafetensorsFile();
    SafetensorsFile(SafetensorsFile&& other) noexcept;
    SafetensorsFile& operator=(SafetensorsFile&& other) noexcept;
    SafetensorsFile(const SafetensorsFile&) = delete;
    SafetensorsFile& operator=(const SafetensorsFile&) = delete;

    [[nodiscard]] const std::string& path() const noexcept { return path_; }
    [[nodiscard]] const std::vector<TensorView>& tensors() const noexcept { return set_.tensors(); }
    [[nodiscard]] const Metadata& metadata() const noexcept { return set_.metadata(); }
    [[nodiscard]] const TensorView* find(std::string_view name) const noexcept {
        return set_.find(name);
    }
    [[nodiscard]] const TensorView& at(std::string_view name) const { return set_.at(name); }

    // Throws Error where another program has written to the file since it was opened: whatever was
    // made of it may be wrong.
    void check_unchanged() const;

private:
    void unmap() noexcept;

    struct Stamp {
        std::int64_t bytes = 0;
        std::int64_t seconds = 0;
        std::int64_t nanoseconds = 0;
        bool operator==(const Stamp&) const = default;
    };
    [[nodiscard]] std::optional<Stamp> stamp() const;

    std::string path_;
    FileDescriptor fd_{-1};
    Stamp opened_;
    MappingGuard guard_;
    std::span<const std::byte> mapping_;
    TensorSet set_;
};

// Writes a file that holds the tensors, in one step as seen by others (write_file in files.hpp).
// Tensors of wide types come first, which aligns every tensor to its element; equal ones keep their
// order. The data starts at a multiple of 64 bytes. Throws Error.
void write_safetensors(const std::string& path, std::span<const TensorView> tensors,
                       const Metadata& metadata = {}, bool force = false);

}  // namespace quatt::tools
