#include "layer.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "elements.hpp"

namespace quatt::tools {
namespace {

constexpr double kPartFlop = 1e11;  // some seconds of a CPU

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

}  // namespace

Device host_device(const std::string& command, const std::string& name) {
    Device device(name);
    if (device.backend == QUATT_BACKEND_CUDA || device.backend == QUATT_BACKEND_EMU) {
        throw Error(command + " runs on host devices: cpu, " +
                    (command == "check" ? "" : "reference, ") + "emulate, simt:ARCH; device " +
                    in_quotes(name) + " needs memory of a GPU, which only the library serves");
    }
    return device;
}

std::string_view layout_name(Layout layout) noexcept {
    return layout == Layout::kTokensFirst ? "bshd" : "bhsd";
}

LayerInput::LayerInput(const SafetensorsFile& file, std::string layer,
                       const ProblemOptions& options)
    : file_(&file), layer_(std::move(layer)), levels_(levels_of(layer_)) {
    choose_layout(options);
    tensors_.q = operand("q");
    tensors_.k = operand("k");
    tensors_.v = operand("v");
    bind_lengths();
    bind_descale("q", tensors_.q, tensors_.q_descale);
    bind_descale("k", tensors_.k, tensors_.k_descale);
    bind_descale("v", tensors_.v, tensors_.v_descale);
    if (options.sink) {
        bind_sink(*options.sink);
    }
    judge_unapplied();
    layout_hint_ = hint_at_layout();
    if (!layout_hint_.empty()) {
        notes_.push_back(layout_hint_);
    }
    shape_text_ = describe_shapes();
}

void LayerInput::choose_layout(const ProblemOptions& options) {
    if (options.layout) {
        layout_ = {*options.layout, "flag"};
    } else if (const std::string* text = find_metadata(*file_, levels_, "qkv_layout")) {
        const std::string name = lower(*text);
        if (name != "bshd" && name != "bhsd") {
            fail("metadata 'qkv_layout' is " + in_quotes(*text) + "; allowed is bshd or bhsd");
        }
        layout_ = {name == "bshd" ? Layout::kTokensFirst : Layout::kHeadsFirst, "metadata"};
    }
}

quatt_tensor LayerInput::in_order(quatt_tensor t) const {
    if (layout_.value == Layout::kHeadsFirst) {
        std::swap(t.extent[t.rank - 3], t.extent[t.rank - 2]);
        std::swap(t.stride[t.rank - 3], t.stride[t.rank - 2]);
    }
    return t;
}

std::vector<std::int64_t> LayerInput::out_shape() const {
    std::vector<std::int64_t> shape = {tokens_q(), heads(), head_dim_v()};
    if (layout_.value == Layout::kHeadsFirst) {
        std::swap(shape[0], shape[1]);
    }
    if (!packed()) {
        shape.insert(shape.begin(), tensors_.q.extent[0]);
    }
    return shape;
}

// Where nothing says which axis is which, keys that are fewer than heads, or heads that do not fit,
// point to the other layout, provided that it fits.
std::string LayerInput::hint_at_layout() const {
    const quatt_tensor& k = tensors_.k;
    const quatt_tensor& v = tensors_.v;
    const bool same_rank = tensors_.q.rank == k.rank && k.rank == v.rank;
    if (layout_.source != "default" || tensors_.cu_seqlens_q.dtype != QUATT_NONE || !same_rank ||
        !std::equal(k.extent, k.extent + k.rank - 1, v.extent)) {
        return "";
    }
    const bool fits = heads_kv() > 0 && heads() % heads_kv() == 0;
    const bool fits_swapped = tokens_k() > 0 && tokens_q() % tokens_k() == 0;
    if (!fits_swapped || (fits && heads_kv() <= tokens_k())) {
        return "";
    }
    return "k " + file_->at(tensor_name(layer_, "k")).describe() + " is read as " +
           std::to_string(tokens_k()) + " tokens of " + std::to_string(heads_kv()) +
           " heads; if it is " + std::to_string(heads_kv()) + " tokens of " +
           std::to_string(tokens_k()) + " heads, as in torch's attention, give --layout bhsd, or " +
           "the metadata qkv_layout = bhsd";
}

std::string LayerInput::describe_shapes() const {
    const auto shape_of = [&](std::string_view name) {
        return file_->at(tensor_name(layer_, name)).describe();
    };
    const std::string q = shape_of("q");
    const std::string k = shape_of("k");
    const std::string v = shape_of("v");
    std::string text = q == k && k == v ? "q, k, v " + k
                       : k == v         ? "q " + q + ", k, v " + k
                                        : "q " + q + ", k " + k + ", v " + v;
    if (layout_.source != "default") {
        text += ", layout " + std::string(layout_name(layout_.value)) + " (" + layout_.source + ")";
    }
    if (packed()) {
        const std::int64_t count =
            tensors_.cu_seqlens_q.dtype != QUATT_NONE ? tensors_.cu_seqlens_q.extent[0] - 1 : 1;
        text += ", " + std::to_string(count) + (count == 1 ? " segment" : " segments");
    }
    text += tensors_.kv_lens.dtype != QUATT_NONE ? ", kv_lens" : "";
    text += tensors_.sink.dtype != QUATT_NONE ? ", sink" : "";
    return text;
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
    const std::optional<quatt_dtype> type = library_dtype(tensor.dtype);
    if (!type) {
        fail(dtype_text(tensor) + "; allowed are F32, BF16, F16 and F8_E4M3");
    }
    if (tensor.shape.size() != 3 && tensor.shape.size() != 4) {
        fail(dtype_text(tensor) + "; allowed are [tokens, heads, head size] and " +
             "[batch, tokens, heads, head size], or with --layout bhsd [heads, tokens, head size] "
             "and [batch, heads, tokens, head size]");
    }
    note_non_finite(tensor);
    if (!tensor.element_aligned()) {
        return in_order(copy(tensor.bytes, *type, tensor.shape));
    }
    // NOTE: the library never writes to an input; its tensors have no const.
    return in_order(quatt_tensor_contiguous(const_cast<std::byte*>(tensor.bytes.data()), *type,
                                            static_cast<std::int32_t>(tensor.shape.size()),
                                            tensor.shape.data()));
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

void LayerInput::judge_unapplied() {
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
        if (tensor.elements() == 0) {
            notes_.push_back("tensor " + in_quotes(tensor.name) +
                             " has no elements and is ignored");
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
            all.push_back({.item = 0,
                           .q_begin = q[0],
                           .q_tokens = q[1] - q[0],
                           .k_begin = k[0],
                           .k_tokens = keys_that_exist(i, k[1] - k[0])});
        }
        return all;
    }
    const std::int64_t items = packed() ? 1 : tensors_.q.extent[0];
    for (std::int64_t b = 0; b < items; ++b) {
        all.push_back({.item = b,
                       .q_begin = 0,
                       .q_tokens = tokens_q(),
                       .k_begin = 0,
                       .k_tokens = keys_that_exist(b, tokens_k())});
    }
    return all;
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

void LayerInput::refused(const Status& status, const std::string& detail) const {
    const std::string place = where() + (detail.empty() ? "" : ": " + detail);
    if (layout_hint_.empty()) {
        throw_status(place, status);
    }
    throw_status(place, Status(status.code(), status.message() + "\n" + layout_hint_));
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
