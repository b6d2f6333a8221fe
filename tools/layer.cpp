#include "layer.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <utility>

#include "convert.hpp"

namespace quatt::tools {
namespace {

constexpr double kPartFlop = 1e11;  // some seconds of a CPU

// "layers.0.q" -> "layers.0" and "q"
std::pair<std::string_view, std::string_view> split_name(std::string_view name) {
    const auto dot = name.rfind('.');
    if (dot == std::string_view::npos) {
        return {"", name};
    }
    return {name.substr(0, dot), name.substr(dot + 1)};
}

bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

// Runs of digits compare as numbers, the rest as bytes.
bool natural_less(std::string_view a, std::string_view b) {
    std::size_t i = 0;
    std::size_t j = 0;
    const auto number = [](std::string_view text, std::size_t& at) {
        while (at + 1 < text.size() && text[at] == '0' && is_digit(text[at + 1])) {
            ++at;
        }
        const std::size_t begin = at;
        while (at < text.size() && is_digit(text[at])) {
            ++at;
        }
        return text.substr(begin, at - begin);
    };
    while (i < a.size() && j < b.size()) {
        if (is_digit(a[i]) && is_digit(b[j])) {
            const std::string_view x = number(a, i);
            const std::string_view y = number(b, j);
            if (x != y) {
                return x.size() != y.size() ? x.size() < y.size() : x < y;
            }
        } else if (a[i] != b[j]) {
            return a[i] < b[j];
        } else {
            ++i;
            ++j;
        }
    }
    return a.size() - i != b.size() - j ? a.size() - i < b.size() - j : a < b;
}

std::string lower(std::string_view text) {
    std::string out(text);
    for (char& c : out) {
        c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
    return out;
}

// Names under which captures carry what changes attention: masks, biases, sinks, lengths, scales,
// page tables. Better to refuse a file too many than to report on the wrong computation.
bool changes_result(std::string_view name) {
    constexpr std::array<std::string_view, 14> kParts = {
        "mask",    "bias",  "alibi",    "slope",  "sink",    "block_table", "page_table",
        "softcap", "scale", "soft_cap", "seqlen", "seq_len", "seqused",     "kv_len"};
    const std::string text = lower(name);
    return std::ranges::any_of(
        kParts, [&](std::string_view part) { return text.find(part) != std::string::npos; });
}

struct NonFinite {
    std::int64_t count = 0;
    std::int64_t first = 0;  // element
};

// NaN and infinity are the codes whose bits of `mask` are all set.
// NOTE: memcpy, because the bytes of a file need not be aligned.
template <class Code>
NonFinite find_codes(std::span<const std::byte> bytes, Code mask) {
    NonFinite found;
    for (std::size_t i = 0; i < bytes.size() / sizeof(Code); ++i) {
        Code code;
        std::memcpy(&code, bytes.data() + i * sizeof(Code), sizeof(Code));
        if ((code & mask) == mask && found.count++ == 0) {
            found.first = static_cast<std::int64_t>(i);
        }
    }
    return found;
}

NonFinite find_non_finite(const TensorView& tensor) {
    switch (tensor.dtype) {
        case Dtype::kF32:
            return find_codes<std::uint32_t>(tensor.bytes, 0x7F80'0000U);
        case Dtype::kF16:
            return find_codes<std::uint16_t>(tensor.bytes, 0x7C00U);
        case Dtype::kBf16:
            return find_codes<std::uint16_t>(tensor.bytes, 0x7F80U);
        default:  // F8_E4M3 has no infinity
            return find_codes<std::uint8_t>(tensor.bytes, 0x7FU);
    }
}

std::string index_text(std::int64_t element, const std::vector<std::int64_t>& shape) {
    std::string out;
    for (std::size_t axis = shape.size(); axis-- > 0; element /= shape[axis]) {
        out.insert(0, (axis == 0 ? "" : ",") + std::to_string(element % shape[axis]));
    }
    return "[" + out + "]";
}

std::string dtype_text(const TensorView& tensor) {
    return "tensor " + in_quotes(tensor.name) + " is " + tensor.describe();
}

std::vector<std::string> levels_of(const std::string& layer) {
    std::vector<std::string> levels = {layer};
    while (!levels.back().empty()) {
        levels.emplace_back(split_name(levels.back()).first);
    }
    return levels;
}

const std::string* find_metadata(const SafetensorsFile& file,
                                 const std::vector<std::string>& levels, std::string_view key) {
    for (const std::string& level : levels) {
        const auto found = file.metadata().find(tensor_name(level, key));
        if (found != file.metadata().end()) {
            return &found->second;
        }
    }
    return nullptr;
}

}  // namespace

std::string tensor_name(std::string_view layer, std::string_view name) {
    return layer.empty() ? std::string(name) : std::string(layer) + "." + std::string(name);
}

std::string layer_where(const SafetensorsFile& file, const std::string& layer) {
    return printable(file.path(), 200) + (layer.empty() ? "" : ": layer " + printable(layer));
}

std::vector<std::string> find_layers(const SafetensorsFile& file) {
    std::vector<std::string> layers;
    for (const TensorView& tensor : file.tensors()) {
        const auto [prefix, name] = split_name(tensor.name);
        if (name == "q" && file.find(tensor_name(prefix, "k")) != nullptr &&
            file.find(tensor_name(prefix, "v")) != nullptr) {
            layers.emplace_back(prefix);
        }
    }
    std::sort(layers.begin(), layers.end(), natural_less);
    return layers;
}

std::string incomplete_note(const SafetensorsFile& file) {
    constexpr std::size_t kListed = 20;
    std::map<std::string, std::set<std::string>, bool (*)(std::string_view, std::string_view)>
        prefixes(natural_less);
    for (const TensorView& tensor : file.tensors()) {
        const auto [prefix, name] = split_name(tensor.name);
        if (name == "q" || name == "k" || name == "v") {
            prefixes[std::string(prefix)].emplace(name);
        }
    }
    std::erase_if(prefixes, [](const auto& entry) { return entry.second.size() == 3; });
    std::vector<std::string> parts;
    for (const auto& [prefix, found] : prefixes) {
        if (parts.size() == kListed) {
            parts.emplace_back("...");
            break;
        }
        std::vector<std::string> missing;
        for (const std::string name : {"q", "k", "v"}) {
            if (!found.contains(name)) {
                missing.push_back(printable(tensor_name(prefix, name)));
            }
        }
        parts.push_back(layer_title(prefix) + " (no " + join(missing) + ")");
    }
    return parts.empty() ? "" : "left out, because tensors are missing: " + join(parts);
}

Device host_device(const std::string& command, const std::string& name) {
    Device device(name);
    if (device.backend == QUATT_BACKEND_CUDA || device.backend == QUATT_BACKEND_EMU) {
        throw Error(command + " runs on host devices: cpu, " +
                    (command == "check" ? "" : "reference, ") + "emulate, simt:ARCH; device " +
                    in_quotes(name) + " needs memory of a GPU, which only the library serves");
    }
    return device;
}

std::string layer_title(const std::string& layer) {
    return layer.empty() ? "(q, k, v)" : printable(layer);
}

LayerInput::LayerInput(const SafetensorsFile& file, std::string layer,
                       const std::optional<std::string>& sink)
    : file_(&file), layer_(std::move(layer)), levels_(levels_of(layer_)) {
    tensors_.q = operand("q");
    tensors_.k = operand("k");
    tensors_.v = operand("v");
    bind_lengths();
    bind_descale("q", tensors_.q, tensors_.q_descale);
    bind_descale("k", tensors_.k, tensors_.k_descale);
    bind_descale("v", tensors_.v, tensors_.v_descale);
    if (sink) {
        bind_sink(*sink);
    }
    refuse_unapplied();

    const auto shape_of = [&](std::string_view name) {
        return file.at(tensor_name(layer_, name)).describe();
    };
    const std::string k = shape_of("k");
    const std::string v = shape_of("v");
    shape_text_ = shape_of("q") == k && k == v ? "q, k, v " + k
                  : k == v                     ? "q " + shape_of("q") + ", k, v " + k
                                               : "q " + shape_of("q") + ", k " + k + ", v " + v;
    if (packed()) {
        const std::int64_t count =
            tensors_.cu_seqlens_q.dtype != QUATT_NONE ? tensors_.cu_seqlens_q.extent[0] - 1 : 1;
        shape_text_ += ", " + std::to_string(count) + (count == 1 ? " segment" : " segments");
    }
    if (tensors_.kv_lens.dtype != QUATT_NONE) {
        shape_text_ += ", kv_lens";
    }
    if (tensors_.sink.dtype != QUATT_NONE) {
        shape_text_ += ", sink";
    }
}

std::string LayerInput::where() const {
    return layer_where(*file_, layer_);
}

void LayerInput::fail(const std::string& what) const {
    throw Error(printable(file_->path(), 200) + ": " + what);
}

const TensorView* LayerInput::find(std::string_view name) const {
    for (const std::string& level : levels_) {
        if (const TensorView* tensor = file_->find(tensor_name(level, name))) {
            return tensor;
        }
    }
    return nullptr;
}

quatt_tensor LayerInput::copy(std::span<const std::byte> bytes, quatt_dtype dtype,
                              std::span<const std::int64_t> shape) {
    std::vector<std::byte>& mine = copies_.emplace_back(bytes.begin(), bytes.end());
    return quatt_tensor_contiguous(mine.data(), dtype, static_cast<std::int32_t>(shape.size()),
                                   shape.data());
}

quatt_tensor LayerInput::operand(std::string_view name) {
    const TensorView& tensor = file_->at(tensor_name(layer_, name));
    applied_.insert(&tensor);
    constexpr std::array<std::pair<Dtype, quatt_dtype>, 4> kTypes = {
        {{Dtype::kF32, QUATT_F32},
         {Dtype::kBf16, QUATT_BF16},
         {Dtype::kF16, QUATT_F16},
         {Dtype::kF8E4M3, QUATT_E4M3}}};
    const auto* const type =
        std::ranges::find(kTypes, tensor.dtype, [](const auto& t) { return t.first; });
    if (type == kTypes.end()) {
        fail(dtype_text(tensor) + "; allowed are F32, BF16, F16 and F8_E4M3");
    }
    if (tensor.shape.size() != 3 && tensor.shape.size() != 4) {
        fail(dtype_text(tensor) + "; allowed are [tokens, heads, head size] and " +
             "[batch, tokens, heads, head size]");
    }
    note_non_finite(tensor);
    if (!tensor.element_aligned()) {
        return copy(tensor.bytes, type->second, tensor.shape);
    }
    // NOTE: the library never writes to an input; its tensors have no const.
    return quatt_tensor_contiguous(const_cast<std::byte*>(tensor.bytes.data()), type->second,
                                   static_cast<std::int32_t>(tensor.shape.size()),
                                   tensor.shape.data());
}

void LayerInput::note_non_finite(const TensorView& tensor) {
    const NonFinite found = find_non_finite(tensor);
    if (found.count == 0) {
        return;
    }
    finite_ = false;
    notes_.push_back("tensor " + in_quotes(tensor.name) + " holds " + std::to_string(found.count) +
                     (found.count == 1 ? " value that is not finite, at "
                                       : " values that are not finite, first at ") +
                     index_text(found.first, tensor.shape));
}

// I32 as they are. I64, which many frameworks save, are converted where they fit.
quatt_tensor LayerInput::lengths(const TensorView& tensor) {
    applied_.insert(&tensor);
    if ((tensor.dtype != Dtype::kI32 && tensor.dtype != Dtype::kI64) || tensor.shape.size() != 1) {
        fail(dtype_text(tensor) + "; allowed are I32 and I64 with one extent");
    }
    if (tensor.dtype == Dtype::kI32) {
        return copy(tensor.bytes, QUATT_I32, tensor.shape);
    }
    std::vector<std::int32_t> narrow(tensor.bytes.size() / sizeof(std::int64_t));
    for (std::size_t i = 0; i < narrow.size(); ++i) {
        std::int64_t wide = 0;
        std::memcpy(&wide, tensor.bytes.data() + i * sizeof(wide), sizeof(wide));
        if (wide < std::numeric_limits<std::int32_t>::min() ||
            wide > std::numeric_limits<std::int32_t>::max()) {
            fail("tensor " + in_quotes(tensor.name) + ": element " + std::to_string(i) + " is " +
                 std::to_string(wide) + "; allowed are 0 to 2^31 - 1");
        }
        narrow[i] = static_cast<std::int32_t>(wide);
    }
    return copy(std::as_bytes(std::span(narrow)), QUATT_I32, tensor.shape);
}

quatt_tensor LayerInput::floats(const TensorView& tensor) {
    applied_.insert(&tensor);
    if ((tensor.dtype != Dtype::kF32 && tensor.dtype != Dtype::kBf16 &&
         tensor.dtype != Dtype::kF16) ||
        tensor.shape.size() > 2) {
        fail(dtype_text(tensor) + "; allowed are F32, BF16 and F16 with at most two extents");
    }
    const std::vector<float> values = to_floats(tensor.dtype, tensor.bytes);
    return copy(std::as_bytes(std::span(values)), QUATT_F32, tensor.shape);
}

void LayerInput::bind_lengths() {
    for (const std::string& level : levels_) {
        const auto at = [&](std::string_view name) {
            return file_->find(tensor_name(level, name));
        };
        const TensorView* both = at("cu_seqlens");
        const TensorView* of_q = at("cu_seqlens_q");
        const TensorView* of_k = at("cu_seqlens_k");
        if (both == nullptr && of_q == nullptr && of_k == nullptr) {
            continue;
        }
        if (both != nullptr && (of_q != nullptr || of_k != nullptr)) {
            fail("holds tensor " + in_quotes(both->name) + " and tensor " +
                 in_quotes((of_q != nullptr ? of_q : of_k)->name) +
                 "; allowed is cu_seqlens alone, or cu_seqlens_q and cu_seqlens_k");
        }
        if (both == nullptr && of_q == nullptr) {
            fail("holds tensor " + in_quotes(of_k->name) +
                 " without cu_seqlens_q; allowed are both, or cu_seqlens alone");
        }
        tensors_.cu_seqlens_q = lengths(both != nullptr ? *both : *of_q);
        // The host copy makes the library refuse bad values before anything runs.
        tensors_.cu_seqlens_q_host = static_cast<const std::int32_t*>(tensors_.cu_seqlens_q.data);
        if (of_k != nullptr) {
            tensors_.cu_seqlens_k = lengths(*of_k);
            tensors_.cu_seqlens_k_host =
                static_cast<const std::int32_t*>(tensors_.cu_seqlens_k.data);
        } else {
            tensors_.cu_seqlens_k_host = tensors_.cu_seqlens_q_host;
        }
        break;
    }
    if (const TensorView* kv_lens = find("kv_lens")) {
        tensors_.kv_lens = lengths(*kv_lens);
    }
}

void LayerInput::bind_descale(std::string_view operand, const quatt_tensor& of, quatt_tensor& to) {
    const std::string name = tensor_name(layer_, operand);
    const TensorView* tensor = file_->find(name + "_descale");
    if (tensor != nullptr) {
        to = floats(*tensor);
        if (of.dtype != QUATT_E4M3) {
            fail("holds tensor " + in_quotes(tensor->name) + ", but " +
                 dtype_text(file_->at(name)) + "; descales belong to F8_E4M3 tensors");
        }
    } else if (of.dtype == QUATT_E4M3) {
        notes_.push_back("tensor " + in_quotes(name) + " is F8_E4M3 and has no " +
                         in_quotes(name + "_descale") + ": its codes are taken as the values");
    }
}

void LayerInput::bind_sink(const std::string& name) {
    const TensorView* tensor = find(name);
    if (tensor == nullptr) {
        tensor = &file_->at(tensor_name(layer_, name));  // throws the list of names
    }
    tensors_.sink = floats(*tensor);
}

void LayerInput::refuse_unapplied() const {
    std::string reasons;
    const auto add = [&](const std::string& what) {
        reasons += (reasons.empty() ? "" : "\n") + printable(file_->path(), 200) + ": " + what;
    };
    for (const TensorView& tensor : file_->tensors()) {
        const auto [level, name] = split_name(tensor.name);
        const bool ours = std::ranges::find(levels_, level) != levels_.end();
        if (!ours || applied_.contains(&tensor) || !changes_result(name)) {
            continue;
        }
        const bool is_sink = lower(name).find("sink") != std::string::npos;
        add("tensor " + in_quotes(tensor.name) +
            " looks as if it changed the result, but is not applied; " +
            (is_sink ? "give --sink " + printable(name) + ", or leave it out of the file"
                     : "allowed beside q, k and v are cu_seqlens, cu_seqlens_q, cu_seqlens_k, "
                       "kv_lens, q_descale, k_descale, v_descale and what --sink names"));
    }
    for (const auto& [key, value] : file_->metadata()) {
        const auto [level, name] = split_name(key);
        const std::string text = lower(name);
        const bool cap =
            text.find("softcap") != std::string::npos || text.find("soft_cap") != std::string::npos;
        const std::string set = lower(value);
        if (cap && std::ranges::find(levels_, level) != levels_.end() && !set.empty() &&
            set != "0" && set != "0.0" && set != "none" && set != "null" && set != "false") {
            add("metadata " + in_quotes(key) + " is " + in_quotes(value) +
                "; no kernel of this version caps scores");
        }
    }
    if (!reasons.empty()) {
        throw Error(reasons);
    }
}

std::vector<Segment> LayerInput::segments() const {
    std::vector<Segment> all;
    const auto keys_that_exist = [&](std::int64_t index, std::int64_t tokens) {
        return tensors_.kv_lens.dtype == QUATT_NONE
                   ? tokens
                   : std::int64_t{static_cast<const std::int32_t*>(tensors_.kv_lens.data)[index]};
    };
    if (packed() && tensors_.cu_seqlens_q.dtype != QUATT_NONE) {
        for (std::int64_t i = 0; i + 1 < tensors_.cu_seqlens_q.extent[0]; ++i) {
            const std::int32_t* q = tensors_.cu_seqlens_q_host + i;
            const std::int32_t* k = tensors_.cu_seqlens_k_host + i;
            all.push_back({q[0], q[1] - q[0], k[0], keys_that_exist(i, k[1] - k[0])});
        }
        return all;
    }
    const std::int64_t items = packed() ? 1 : tensors_.q.extent[0];
    for (std::int64_t b = 0; b < items; ++b) {
        all.push_back({b * tokens_q(), tokens_q(), b * tokens_k(), keys_that_exist(b, tokens_k())});
    }
    return all;
}

namespace {

// --- Metadata under other names ---------------------------------------------------------------

// Letters to insert, delete, replace or swap with their neighbour until the texts are equal.
std::size_t edit_distance(std::string_view a, std::string_view b) {
    std::vector<std::vector<std::size_t>> d(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
    for (std::size_t i = 0; i <= a.size(); ++i) {
        for (std::size_t j = 0; j <= b.size(); ++j) {
            if (i == 0 || j == 0) {
                d[i][j] = i + j;
                continue;
            }
            d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1,
                                d[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0U : 1U)});
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
                d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
            }
        }
    }
    return d[a.size()][b.size()];
}

constexpr std::array<std::string_view, 5> kKnownKeys = {"softmax_scale", "causal", "window",
                                                        "window_left", "window_right"};

// The key that the file may mean; "" where it is one of ours, or looks like none.
std::string_view meant_by(std::string_view key) {
    constexpr std::size_t kLongestTypo = 40;
    const std::string name = lower(key);
    if (std::ranges::find(kKnownKeys, key) != kKnownKeys.end()) {
        return "";
    }
    for (const std::string_view known : kKnownKeys) {
        if (name.size() <= kLongestTypo && edit_distance(name, known) <= 2) {
            return known;
        }
    }
    constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kParts = {
        {{"causal", "causal"},
         {"window", "window"},
         {"scale", "softmax_scale"},
         {"scaling", "softmax_scale"}}};
    for (const auto& [part, known] : kParts) {
        if (name.find(part) != std::string::npos) {
            return known;
        }
    }
    return "";
}

// Whether the text says what holds anyway.
bool says_nothing_new(std::string_view known, const std::string& text, const Semantics& s) {
    const std::string value = lower(text);
    if (value.empty() || value == "none" || value == "null") {
        return true;
    }
    if (known == "causal") {
        return (value == "false" || value == "0") != s.causal.value;
    }
    if (known == "softmax_scale") {
        const auto number = parse_number<double>(value);
        return number && std::fabs(*number / double{s.softmax_scale.value} - 1.0) < 1e-5;
    }
    return value == "-1" || value == "-1,-1" || value == "open";
}

void note_unread(const SafetensorsFile& file, const std::vector<std::string>& levels,
                 Semantics& s) {
    for (const auto& [key, value] : file.metadata()) {
        const auto [level, name] = split_name(key);
        const std::string_view known = meant_by(name);
        const bool is_scale = known == "softmax_scale";
        const std::string& source = is_scale            ? s.softmax_scale.source
                                    : known == "causal" ? s.causal.source
                                                        : s.window.source;
        if (known.empty() || source != "default" || says_nothing_new(known, value, s) ||
            std::ranges::find(levels, level) == levels.end()) {
            continue;
        }
        s.notes.push_back("metadata " + in_quotes(key) + " is " + in_quotes(value) +
                          ", and nothing reads it; if it means " + std::string(known) +
                          ", give it that name, or the flag " +
                          (is_scale            ? "--softmax-scale"
                           : known == "causal" ? "--causal"
                                               : "--window"));
    }
}

}  // namespace

std::string window_text(const Window& window) {
    return window.left == -1 && window.right == -1
               ? "open"
               : std::to_string(window.left) + "," + std::to_string(window.right);
}

std::string Semantics::text() const {
    return "softmax_scale " + shortest(softmax_scale.value) + " (" + softmax_scale.source +
           "), causal " + (causal.value ? "yes" : "no") + " (" + causal.source + "), window " +
           window_text(window.value) + " (" + window.source + ")";
}

Semantics resolve_semantics(const SafetensorsFile& file, const LayerInput& layer,
                            const ProblemOptions& options) {
    const std::vector<std::string> levels = levels_of(layer.name());
    const auto metadata = [&](std::string_view key) { return find_metadata(file, levels, key); };
    const auto bad = [&](std::string_view key, const std::string& value,
                         std::string_view allowed) -> Error {
        return Error(printable(file.path(), 200) + ": metadata " + in_quotes(key) + " is " +
                     in_quotes(value) + "; allowed is " + std::string(allowed));
    };
    Semantics s;
    s.softmax_scale.value = 1.0F / std::sqrt(static_cast<float>(layer.head_dim()));
    if (options.softmax_scale) {
        s.softmax_scale = {static_cast<float>(*options.softmax_scale), "flag"};
    } else if (const std::string* text = metadata("softmax_scale")) {
        const auto value = parse_number<double>(*text);
        if (!value || !std::isfinite(*value) || *value <= 0.0) {
            throw bad("softmax_scale", *text, "a number > 0");
        }
        s.softmax_scale = {static_cast<float>(*value), "metadata"};
    }
    if (options.causal) {
        s.causal = {*options.causal, "flag"};
    } else if (const std::string* text = metadata("causal")) {
        const std::string value = lower(*text);
        if (value != "true" && value != "1" && value != "false" && value != "0") {
            throw bad("causal", *text, "true or false");
        }
        s.causal = {value == "true" || value == "1", "metadata"};
    }
    if (options.window) {
        s.window = {*options.window, "flag"};
    } else if (const std::string* text = metadata("window")) {
        const auto value = parse_window(*text);
        if (!value) {
            throw bad("window", *text, kWindowAllowed);
        }
        s.window = {*value, "metadata"};
    } else {
        for (const auto& [key, side] :
             {std::pair{"window_left", &Window::left}, std::pair{"window_right", &Window::right}}) {
            if (const std::string* side_text = metadata(key)) {
                const auto value = parse_number<std::int64_t>(*side_text);
                if (!value || *value < -1) {
                    throw bad(key, *side_text, "an integer >= 0, or -1 for open");
                }
                s.window.value.*side = *value;
                s.window.source = "metadata";
            }
        }
    }
    note_unread(file, levels, s);
    return s;
}

Problem make_problem(const LayerInput& layer, const Semantics& semantics,
                     const ProblemOptions& options, const std::string& recipe) {
    Problem problem;
    problem.recipe = Recipe(recipe);
    problem.tensors = layer.tensors();
    problem.softmax_scale = semantics.softmax_scale.value;
    problem.causal = semantics.causal.value ? 1 : 0;
    problem.window_left = semantics.window.value.left;
    problem.window_right = semantics.window.value.right;
    problem.key_tile = options.key_tile;
    problem.splits = options.splits;
    problem.threads = options.threads;
    problem.kernel = options.kernel.empty() ? nullptr : options.kernel.c_str();
    return problem;
}

void throw_status(const std::string& where, const Status& status) {
    std::string message;
    for (const std::string& line : split(status.message(), '\n')) {
        if (!line.empty()) {
            message += (message.empty() ? "" : "\n") + where + ": " + line;
        }
    }
    throw Error(message.empty() ? where + ": " + quatt_status_name(status.code()) : message);
}

Tensors slice_heads(const Tensors& tensors, std::int64_t first, std::int64_t count) {
    const std::int64_t heads_kv = tensors.k.extent[tensors.k.rank - 2];
    const std::int64_t group = tensors.q.extent[tensors.q.rank - 2] / heads_kv;
    const auto cut = [&](quatt_tensor& t, int axis, std::int64_t begin, std::int64_t length) {
        if (t.dtype == QUATT_NONE) {
            return;
        }
        t.data = static_cast<std::byte*>(t.data) +
                 begin * t.stride[axis] * static_cast<std::int64_t>(quatt_dtype_bytes(t.dtype));
        t.extent[axis] = length;
    };
    const auto cut_descale = [&](quatt_tensor& t) {
        if (t.rank >= 1 && t.extent[t.rank - 1] == heads_kv) {
            cut(t, t.rank - 1, first, count);
        }
    };
    Tensors part = tensors;
    cut(part.q, part.q.rank - 2, first * group, count * group);
    cut(part.out, part.out.rank - 2, first * group, count * group);
    cut(part.lse, part.lse.rank - 2, first * group, count * group);
    cut(part.light_mass, part.light_mass.rank - 2, first * group, count * group);
    cut(part.sink, 0, first * group, count * group);
    cut(part.k, part.k.rank - 2, first, count);
    cut(part.v, part.v.rank - 2, first, count);
    cut_descale(part.q_descale);
    cut_descale(part.k_descale);
    cut_descale(part.v_descale);
    return part;
}

std::int64_t part_count(const LayerInput& layer) {
    double flop = 0.0;
    for (const Segment& segment : layer.segments()) {
        flop += 4.0 * static_cast<double>(segment.q_tokens) *
                static_cast<double>(segment.k_tokens) * static_cast<double>(layer.heads()) *
                static_cast<double>(layer.head_dim());
    }
    const double parts = std::ceil(flop / kPartFlop);
    return static_cast<std::int64_t>(std::clamp(parts, 1.0, static_cast<double>(layer.heads_kv())));
}

}  // namespace quatt::tools
