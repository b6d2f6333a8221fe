#include "safetensors.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "files.hpp"

namespace quatt::tools {
namespace {

using Json = nlohmann::json;

constexpr std::uint64_t kLengthBytes = 8;
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;
// More than any library makes. Without a limit, 100 MB of "1,1,1" would become 400 MB.
constexpr std::size_t kMaxRank = 32;
constexpr std::size_t kDataAlignment = 64;
constexpr std::string_view kMetadataKey = "__metadata__";
constexpr auto kMaxExtent = std::numeric_limits<std::int64_t>::max();

struct DtypeRow {
    std::string_view name;
    int bits;
};

// In the order of the enum.
constexpr std::array<DtypeRow, 22> kDtypes = {{
    {"BOOL", 8},        {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},
    {"I8", 8},          {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
    {"F8_E5M2FNUZ", 8}, {"I16", 16},    {"U16", 16},    {"F16", 16},    {"BF16", 16},
    {"I32", 32},        {"U32", 32},    {"F32", 32},    {"C64", 64},    {"F64", 64},
    {"I64", 64},        {"U64", 64},
}};
static_assert(kDtypes.size() == static_cast<std::size_t>(Dtype::kU64) + 1);

std::string dtype_list() {
    std::string out;
    for (const DtypeRow& row : kDtypes) {
        out += out.empty() ? "" : " ";
        out += row.name;
    }
    return out;
}

std::string shape_text(std::span<const std::int64_t> shape) {
    std::string out = "[";
    for (const std::int64_t extent : shape) {
        out += (out.size() > 1 ? ", " : "") + std::to_string(extent);
    }
    return out + "]";
}

// The bytes of a tensor whose extents are >= 0. `fail` is called with what is wrong, and throws.
// A zero extent does not excuse the others: strides are products of them too.
template <class Fail>
std::uint64_t checked_bytes(Dtype dtype, std::span<const std::int64_t> shape, const Fail& fail) {
    std::int64_t bits = dtype_bits(dtype);
    bool empty = false;
    for (const std::int64_t extent : shape) {
        if (extent == 0) {
            empty = true;
        } else if (__builtin_mul_overflow(bits, extent, &bits)) {
            fail("shape " + shape_text(shape) + " of " + std::string(dtype_name(dtype)) +
                 " overflows; allowed are less than 2^63 bits");
        }
    }
    if (empty) {
        return 0;
    }
    if (bits % 8 != 0) {
        fail("shape " + shape_text(shape) + " of " + std::string(dtype_name(dtype)) +
             " is no whole number of bytes");
    }
    return static_cast<std::uint64_t>(bits) / 8;
}

// An entry of the header, as read.
struct Entry {
    std::string name;
    Dtype dtype = Dtype::kF32;
    std::vector<std::int64_t> shape;
    std::array<std::uint64_t, 2> offsets = {};  // begin, end
    std::size_t offset_count = 0;
    bool has_dtype = false;
    bool has_shape = false;
    bool has_offsets = false;
};

// Takes the header's JSON event by event and accepts the one structure that is allowed, so that
// nothing is ever stored that the format does not have, however deep or long the text is.
class HeaderHandler {
public:
    using number_integer_t = Json::number_integer_t;
    using number_unsigned_t = Json::number_unsigned_t;
    using number_float_t = Json::number_float_t;
    using string_t = Json::string_t;
    using binary_t = Json::binary_t;

    HeaderHandler(std::string label, std::string_view text)
        : label_(std::move(label)), text_(text) {}

    std::vector<Entry> entries;
    std::map<std::string, std::size_t, std::less<>> index;
    Metadata metadata;

    bool null() { refuse("null"); }
    bool boolean(bool value) { refuse(value ? "true" : "false"); }
    // The parser reports as integer only what has a minus sign.
    bool number_integer(number_integer_t value) { refuse(std::to_string(value)); }
    bool number_float(number_float_t, const string_t& text) { refuse(printable(text, 40)); }
    bool binary(binary_t&) { refuse("binary data"); }

    bool number_unsigned(number_unsigned_t value) {
        if (state_ == State::kShapeItem && value <= std::uint64_t{kMaxExtent}) {
            auto& shape = entries.back().shape;
            if (shape.size() == kMaxRank) {
                fail("shape has more than " + std::to_string(kMaxRank) + " extents");
            }
            shape.push_back(static_cast<std::int64_t>(value));
        } else if (state_ == State::kOffsetsItem && entries.back().offset_count < 2) {
            Entry& entry = entries.back();
            entry.offsets[entry.offset_count++] = value;
        } else {
            refuse(std::to_string(value));
        }
        return true;
    }

    bool string(string_t& value) {
        if (state_ == State::kDtype) {
            const std::optional<Dtype> dtype = dtype_from_name(value);
            if (!dtype) {
                fail("dtype is " + in_quotes(value) + "; allowed are " + dtype_list());
            }
            entries.back().dtype = *dtype;
            state_ = State::kEntry;
        } else if (state_ == State::kMetadataValue) {
            if (value.find('\0') != std::string::npos) {
                fail(in_quotes(key_) + " is " + in_quotes(value) + ", with a NUL character");
            }
            metadata.emplace(std::move(key_), std::move(value));
            state_ = State::kMetadata;
        } else {
            refuse("the string " + in_quotes(value));
        }
        return true;
    }

    bool key(string_t& value) {
        if (value.find('\0') != std::string::npos) {
            fail("the key " + in_quotes(value) + " holds a NUL character");
        }
        switch (state_) {
            case State::kHeader:
                header_key(std::move(value));
                break;
            case State::kMetadata:
                if (metadata.contains(value)) {
                    fail("duplicate key " + in_quotes(value));
                }
                key_ = std::move(value);
                state_ = State::kMetadataValue;
                break;
            case State::kEntry:
                entry_key(value);
                break;
            default:
                throw std::logic_error("a key outside of an object");
        }
        return true;
    }

    bool start_object(std::size_t) {
        switch (state_) {
            case State::kStart:
                state_ = State::kHeader;
                break;
            case State::kTensor:
                state_ = State::kEntry;
                break;
            case State::kMetadataObject:
                state_ = State::kMetadata;
                break;
            default:
                refuse("an object");
        }
        return true;
    }

    bool end_object() {
        if (state_ == State::kHeader) {
            state_ = State::kDone;
            return true;
        }
        if (state_ == State::kEntry) {
            const Entry& entry = entries.back();
            if (!entry.has_dtype || !entry.has_shape || !entry.has_offsets) {
                fail(std::string("has no ") + (!entry.has_dtype   ? "dtype"
                                               : !entry.has_shape ? "shape"
                                                                  : "data_offsets"));
            }
        }
        where_.clear();
        state_ = State::kHeader;
        return true;
    }

    bool start_array(std::size_t) {
        if (state_ == State::kShape) {
            state_ = State::kShapeItem;
        } else if (state_ == State::kOffsets) {
            state_ = State::kOffsetsItem;
        } else {
            refuse("an array");
        }
        return true;
    }

    bool end_array() {
        if (state_ == State::kOffsetsItem && entries.back().offset_count != 2) {
            fail("data_offsets has " + std::to_string(entries.back().offset_count) +
                 " numbers; allowed are 2: begin and end");
        }
        state_ = State::kEntry;
        return true;
    }

    bool parse_error(std::size_t position, const std::string&, const Json::exception& error) {
        // "[json.exception.parse_error.101] parse error at line 1, column 5: what is wrong": the
        // part behind the position is for people.
        std::string_view what = error.what();
        if (const auto colon = what.find(": "); colon != std::string_view::npos) {
            what.remove_prefix(colon + 2);
        }
        // Text behind the header's closing brace is an error of its own kind, though not to JSON.
        const std::string_view kind =
            state_ == State::kDone ? "has text behind its closing brace" : "is not valid JSON";
        where_.clear();
        fail("the header " + std::string(kind) + " at byte " + std::to_string(position) + " of " +
             std::to_string(text_.size()) + ": " + printable(what, 200));
    }

    [[noreturn]] void fail(const std::string& what) const {
        throw Error(label_ + ": " + where_ + what);
    }

private:
    enum class State {
        kStart,
        kHeader,
        kTensor,
        kEntry,
        kDtype,
        kShape,
        kShapeItem,
        kOffsets,
        kOffsetsItem,
        kMetadataObject,
        kMetadata,
        kMetadataValue,
        kDone,
    };

    void header_key(std::string name) {
        if (name == kMetadataKey) {
            if (std::exchange(seen_metadata_, true)) {
                fail("duplicate key '__metadata__'");
            }
            where_ = "__metadata__: ";
            state_ = State::kMetadataObject;
            return;
        }
        if (!index.emplace(name, entries.size()).second) {
            fail("duplicate tensor name " + in_quotes(name));
        }
        where_ = "tensor " + in_quotes(name) + ": ";
        entries.emplace_back().name = std::move(name);
        state_ = State::kTensor;
    }

    void entry_key(const std::string& name) {
        Entry& entry = entries.back();
        bool seen = false;
        if (name == "dtype") {
            seen = std::exchange(entry.has_dtype, true);
            state_ = State::kDtype;
        } else if (name == "shape") {
            seen = std::exchange(entry.has_shape, true);
            state_ = State::kShape;
        } else if (name == "data_offsets") {
            seen = std::exchange(entry.has_offsets, true);
            state_ = State::kOffsets;
        } else {
            fail("unknown key " + in_quotes(name) + "; allowed are dtype, shape and data_offsets");
        }
        if (seen) {
            fail("duplicate key " + in_quotes(name));
        }
    }

    // `found` stands where the format wants something else.
    [[noreturn]] void refuse(const std::string& found) const {
        const std::string extents =
            "; allowed is an integer from 0 to " + std::to_string(kMaxExtent);
        switch (state_) {
            case State::kTensor:
                fail("is " + found + "; allowed is an object with dtype, shape and data_offsets");
            case State::kDtype:
                fail("dtype is " + found + "; allowed are " + dtype_list());
            case State::kShape:
                fail("shape is " + found + "; allowed is an array of integers");
            case State::kShapeItem:
                fail("shape[" + std::to_string(entries.back().shape.size()) + "] is " + found +
                     extents);
            case State::kOffsets:
                fail("data_offsets is " + found + "; allowed is an array of 2 integers");
            case State::kOffsetsItem:
                fail("data_offsets[" + std::to_string(entries.back().offset_count) + "] is " +
                     found + "; allowed are 2 integers, inside the file");
            case State::kMetadataObject:
                fail("is " + found + "; allowed is an object of strings");
            case State::kMetadataValue:
                fail(in_quotes(key_) + " is " + found + "; allowed is a string");
            default:
                fail("the header is " + found + "; allowed is an object");
        }
    }

    std::string label_;
    std::string_view text_;
    State state_ = State::kStart;
    std::string where_;  // "tensor 'q': " while inside one
    std::string key_;
    bool seen_metadata_ = false;
};

// The header's text, its length checked.
std::string_view header_text(std::span<const std::byte> file, const std::string& label) {
    if (file.size() < kLengthBytes) {
        throw Error(label + ": has " + std::to_string(file.size()) +
                    " bytes; a safetensors file has at least 8, the length of its header");
    }
    std::uint64_t length = 0;
    static_assert(std::endian::native == std::endian::little);
    std::memcpy(&length, file.data(), sizeof(length));
    if (length > kMaxHeaderBytes) {
        throw Error(label + ": header length is " + std::to_string(length) +
                    " bytes; allowed are at most " + std::to_string(kMaxHeaderBytes) +
                    " (is this a safetensors file?)");
    }
    if (length > file.size() - kLengthBytes) {
        throw Error(label + ": header length is " + std::to_string(length) +
                    " bytes, but the file ends " + std::to_string(file.size() - kLengthBytes) +
                    " bytes behind it");
    }
    const auto* text = reinterpret_cast<const char*>(file.data() + kLengthBytes);
    const std::string_view header(text, static_cast<std::size_t>(length));
    // The JSON parser would skip a byte order mark, and take a NUL as the end of the text.
    if (header.empty() || header.front() != '{') {
        throw Error(label + ": the header does not begin with '{'");
    }
    if (const auto nul = header.find('\0'); nul != std::string_view::npos) {
        throw Error(label + ": the header holds a NUL byte at byte " + std::to_string(nul));
    }
    return header;
}

// Sorts the entries by their place in the data and checks that they tile it.
void check_offsets(std::vector<Entry>& entries, std::uint64_t data_bytes,
                   const std::string& label) {
    for (const Entry& entry : entries) {
        const auto [begin, end] = entry.offsets;
        const auto fail = [&](const std::string& what) {
            throw Error(label + ": tensor " + in_quotes(entry.name) + ": " + what);
        };
        const std::string range =
            "data_offsets [" + std::to_string(begin) + ", " + std::to_string(end) + "]";
        if (begin > end) {
            fail(range + " decrease");
        }
        if (end > data_bytes) {
            fail(range + " reach past the " + std::to_string(data_bytes) +
                 " bytes of data in the file");
        }
        const std::uint64_t bytes = checked_bytes(entry.dtype, entry.shape, fail);
        if (bytes != end - begin) {
            fail(range + " are " + std::to_string(end - begin) + " bytes, but " +
                 std::string(dtype_name(entry.dtype)) + " " + shape_text(entry.shape) + " takes " +
                 std::to_string(bytes));
        }
    }
    // By both ends, so that empty tensors stand before the one that begins where they do.
    std::stable_sort(entries.begin(), entries.end(),
                     [](const Entry& a, const Entry& b) { return a.offsets < b.offsets; });
    std::uint64_t covered = 0;
    for (const Entry& entry : entries) {
        const std::uint64_t begin = entry.offsets[0];
        if (begin != covered) {
            throw Error(label + ": tensor " + in_quotes(entry.name) + ": data_offsets begin at " +
                        std::to_string(begin) + ", but the tensor before it ends at " +
                        std::to_string(covered) +
                        (begin < covered ? ": tensors overlap" : ": the data has a hole"));
        }
        covered = entry.offsets[1];
    }
    if (covered != data_bytes) {
        throw Error(label + ": the tensors end at byte " + std::to_string(covered) +
                    " of the data, but the file holds " + std::to_string(data_bytes));
    }
}

// A string as JSON; refuses what is not UTF-8.
std::string json_string(const std::string& text, const std::string& label) {
    try {
        return Json(text).dump();
    } catch (const Json::type_error&) {
        throw Error(label + ": the name or metadata value " + in_quotes(text) + " is not UTF-8");
    }
}

// The first bytes of a file, up to where the data begins.
std::string make_header(std::span<const TensorView* const> tensors, const Metadata& metadata,
                        const std::string& label) {
    std::string json = "{";
    if (!metadata.empty()) {
        json += json_string(std::string(kMetadataKey), label) + ":{";
        const char* separator = "";
        for (const auto& [key, value] : metadata) {
            if ((key + value).find('\0') != std::string::npos) {
                throw Error(label + ": the metadata of " + in_quotes(key) +
                            " holds a NUL character");
            }
            json += std::exchange(separator, ",") + json_string(key, label) + ":" +
                    json_string(value, label);
        }
        json += "}";
    }
    std::uint64_t offset = 0;
    std::map<std::string_view, bool> names;
    for (const TensorView* tensor : tensors) {
        const auto fail = [&](const std::string& what) {
            throw Error(label + ": tensor " + in_quotes(tensor->name) + ": " + what);
        };
        if (tensor->name == kMetadataKey || tensor->name.find('\0') != std::string::npos) {
            fail("this name is not allowed");
        }
        if (!names.emplace(tensor->name, true).second) {
            fail("duplicate name");
        }
        if (tensor->shape.size() > kMaxRank) {
            fail("has " + std::to_string(tensor->shape.size()) + " extents; allowed are at most " +
                 std::to_string(kMaxRank));
        }
        if (std::any_of(tensor->shape.begin(), tensor->shape.end(),
                        [](std::int64_t extent) { return extent < 0; })) {
            fail("shape " + shape_text(tensor->shape) + " has a negative extent");
        }
        const std::uint64_t bytes = checked_bytes(tensor->dtype, tensor->shape, fail);
        if (bytes != tensor->bytes.size()) {
            fail(tensor->describe() + " takes " + std::to_string(bytes) + " bytes, but " +
                 std::to_string(tensor->bytes.size()) + " are given");
        }
        json += (json.size() > 1 ? "," : "") + json_string(tensor->name, label) + ":{\"dtype\":\"" +
                std::string(dtype_name(tensor->dtype)) + "\",\"shape\":[";
        const char* separator = "";
        for (const std::int64_t extent : tensor->shape) {
            json += std::exchange(separator, ",") + std::to_string(extent);
        }
        json += "],\"data_offsets\":[" + std::to_string(offset) + "," +
                std::to_string(offset + bytes) + "]}";
        offset += bytes;
    }
    json += "}";
    const std::size_t end = kLengthBytes + json.size();
    json.append((kDataAlignment - end % kDataAlignment) % kDataAlignment, ' ');
    if (json.size() > kMaxHeaderBytes) {
        throw Error(label + ": the header takes " + std::to_string(json.size()) +
                    " bytes; allowed are at most " + std::to_string(kMaxHeaderBytes));
    }
    const std::uint64_t length = json.size();
    std::string header(kLengthBytes, '\0');
    std::memcpy(header.data(), &length, sizeof(length));
    return header + json;
}

}  // namespace

std::string_view dtype_name(Dtype dtype) noexcept {
    return kDtypes[static_cast<std::size_t>(dtype)].name;
}

std::optional<Dtype> dtype_from_name(std::string_view name) noexcept {
    for (std::size_t i = 0; i < kDtypes.size(); ++i) {
        if (kDtypes[i].name == name) {
            return static_cast<Dtype>(i);
        }
    }
    return std::nullopt;
}

int dtype_bits(Dtype dtype) noexcept {
    return kDtypes[static_cast<std::size_t>(dtype)].bits;
}

std::int64_t TensorView::elements() const noexcept {
    std::int64_t count = 1;
    for (const std::int64_t extent : shape) {
        count *= extent;
    }
    return count;
}

bool TensorView::element_aligned() const noexcept {
    const auto address = reinterpret_cast<std::uintptr_t>(bytes.data());
    return dtype_bits(dtype) < 8 || address % (static_cast<unsigned>(dtype_bits(dtype)) / 8) == 0;
}

std::string TensorView::describe() const {
    return std::string(dtype_name(dtype)) + " " + shape_text(shape);
}

TensorSet TensorSet::parse(std::span<const std::byte> file, std::string_view label) {
    TensorSet set;
    set.label_ = printable(label, 200);
    const std::string_view text = header_text(file, set.label_);
    HeaderHandler handler(set.label_, text);
    Json::sax_parse(text.begin(), text.end(), &handler);  // throws from the handler
    const auto data = file.subspan(kLengthBytes + text.size());
    check_offsets(handler.entries, data.size(), set.label_);

    set.metadata_ = std::move(handler.metadata);
    set.index_ = std::move(handler.index);
    set.tensors_.reserve(handler.entries.size());
    for (Entry& entry : handler.entries) {
        const auto begin = static_cast<std::size_t>(entry.offsets[0]);
        const auto end = static_cast<std::size_t>(entry.offsets[1]);
        set.index_.find(entry.name)->second = set.tensors_.size();
        set.tensors_.push_back({.name = std::move(entry.name),
                                .dtype = entry.dtype,
                                .shape = std::move(entry.shape),
                                .bytes = data.subspan(begin, end - begin)});
    }
    return set;
}

const TensorView* TensorSet::find(std::string_view name) const noexcept {
    const auto found = index_.find(name);
    return found == index_.end() ? nullptr : &tensors_[found->second];
}

const TensorView& TensorSet::at(std::string_view name) const {
    if (const TensorView* tensor = find(name)) {
        return *tensor;
    }
    constexpr std::size_t kListed = 20;
    std::string names;
    for (std::size_t i = 0; i < std::min(tensors_.size(), kListed); ++i) {
        names += (i == 0 ? "" : ", ") + printable(tensors_[i].name);
    }
    if (tensors_.size() > kListed) {
        names += ", and " + std::to_string(tensors_.size() - kListed) + " more";
    }
    throw Error(label_ + ": has no tensor " + in_quotes(name) +
                (names.empty() ? "; it holds no tensors" : "; it has " + names));
}

SafetensorsFile::SafetensorsFile(const std::string& path) : path_(path) {
    const std::string label = printable(path, 200);
    // Without O_NONBLOCK, opening a FIFO would wait for a writer before it can be refused.
    fd_.reset(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!fd_.valid()) {
        const int error = errno;
        throw Error(label + ": cannot open the file: " + errno_text(error));
    }
    const std::optional<Stamp> opened = stamp();
    if (!opened) {
        throw Error(label + ": is not a regular file");
    }
    opened_ = *opened;
    const auto size = static_cast<std::size_t>(opened_.bytes);
    if (size > 0) {
        void* address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd_.get(), 0);
        if (address == MAP_FAILED) {
            const int error = errno;
            throw Error(label + ": cannot map " + std::to_string(size) +
                        " bytes: " + errno_text(error));
        }
        mapping_ = {static_cast<const std::byte*>(address), size};
        guard_ = MappingGuard(address, size, label);
    }
    try {
        set_ = TensorSet::parse(mapping_, path);
    } catch (...) {
        unmap();  // the destructor does not run
        throw;
    }
}

SafetensorsFile::~SafetensorsFile() {
    unmap();
}

SafetensorsFile::SafetensorsFile(SafetensorsFile&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::move(other.fd_)),
      opened_(other.opened_),
      guard_(std::move(other.guard_)),
      mapping_(std::exchange(other.mapping_, {})),
      set_(std::exchange(other.set_, {})) {}

SafetensorsFile& SafetensorsFile::operator=(SafetensorsFile&& other) noexcept {
    if (this != &other) {
        unmap();
        path_ = std::move(other.path_);
        fd_ = std::move(other.fd_);
        opened_ = other.opened_;
        guard_ = std::move(other.guard_);
        mapping_ = std::exchange(other.mapping_, {});
        set_ = std::exchange(other.set_, {});
    }
    return *this;
}

std::optional<SafetensorsFile::Stamp> SafetensorsFile::stamp() const {
    struct stat info {};
    if (::fstat(fd_.get(), &info) != 0 || !S_ISREG(info.st_mode)) {
        return std::nullopt;
    }
    return Stamp{info.st_size, info.st_mtim.tv_sec, info.st_mtim.tv_nsec};
}

void SafetensorsFile::check_unchanged() const {
    if (stamp() != opened_) {
        throw Error(printable(path_, 200) + ": the file was written to while it was read");
    }
}

void SafetensorsFile::unmap() noexcept {
    if (!mapping_.empty()) {
        guard_ = {};
        ::munmap(const_cast<std::byte*>(mapping_.data()), mapping_.size());
        mapping_ = {};
    }
}

void write_safetensors(const std::string& path, std::span<const TensorView> tensors,
                       const Metadata& metadata, bool force) {
    const std::string label = printable(path, 200);
    std::vector<const TensorView*> order;
    order.reserve(tensors.size());
    for (const TensorView& tensor : tensors) {
        order.push_back(&tensor);
    }
    std::stable_sort(order.begin(), order.end(), [](const TensorView* a, const TensorView* b) {
        return dtype_bits(a->dtype) > dtype_bits(b->dtype);
    });
    const std::string header = make_header(order, metadata, label);

    std::vector<std::span<const std::byte>> pieces = {std::as_bytes(std::span(header))};
    for (const TensorView* tensor : order) {
        pieces.push_back(tensor->bytes);
    }
    write_file(path, pieces, force);
}

}  // namespace quatt::tools
