// The tensors of a file as an attention problem.
//
// One rule for shapes: q, k, v and the output are seen through views whose axes are [batch,]
// tokens, heads, head size, wherever the file has them (in_order makes such a view). Every size
// comes from a view's extents and every address from its strides; the shapes in the file are for
// messages.
#pragma once

#include <quatt/attention.hpp>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "commands.hpp"
#include "layer_names.hpp"
#include "safetensors.hpp"

namespace quatt::tools {

// A device whose memory is the host's. Throws Error for others; `command` is for its message.
[[nodiscard]] Device host_device(const std::string& command, const std::string& name);

// "bshd" or "bhsd"
[[nodiscard]] std::string_view layout_name(Layout layout) noexcept;

// A setting and where it comes from: "flag", "metadata" or "default".
template <class T>
struct Setting {
    T value{};
    std::string source = "default";
};

// Tokens of a packed stream that belong together; of a dense tensor, a batch item.
struct Segment {
    std::int64_t item = 0;     // 0 where packed
    std::int64_t q_begin = 0;  // in the item
    std::int64_t q_tokens = 0;
    std::int64_t k_begin = 0;
    std::int64_t k_tokens = 0;  // that kv_lens leaves
};

// The inputs of one layer. They point into the file's memory, or, where that is not aligned to its
// elements or of another type than the library takes, to copies kept here.
class LayerInput {
public:
    // Throws Error, also where the file holds a tensor that would change the result but that
    // nothing here applies. Of the options, the layout and the name of the sink count.
    LayerInput(const SafetensorsFile& file, std::string layer, const ProblemOptions& options);

    LayerInput(const LayerInput&) = delete;
    LayerInput& operator=(const LayerInput&) = delete;
    LayerInput(LayerInput&&) = default;
    LayerInput& operator=(LayerInput&&) = default;
    ~LayerInput() = default;

    [[nodiscard]] const std::string& name() const noexcept { return layer_; }
    // "FILE: layer NAME", for messages.
    [[nodiscard]] std::string where() const;
    [[nodiscard]] const Tensors& tensors() const noexcept { return tensors_; }
    [[nodiscard]] const std::vector<std::string>& notes() const noexcept { return notes_; }
    // Whether q, k and v hold no NaN and no infinity.
    [[nodiscard]] bool finite() const noexcept { return finite_; }
    // "q BF16 [918, 8, 64], k, v BF16 [918, 2, 64], 4 segments"
    [[nodiscard]] const std::string& shape_text() const noexcept { return shape_text_; }

    [[nodiscard]] Layout layout() const noexcept { return layout_.value; }

    // A tensor that lies as q does in the file, as a view with the axes in our order.
    [[nodiscard]] quatt_tensor in_order(quatt_tensor t) const;
    // Of the output, as it goes into a file.
    [[nodiscard]] std::vector<std::int64_t> out_shape() const;

    // Throws Error with all reasons of the library, and where the layout may be the cause, with
    // that. `detail` stands between the layer and the reasons.
    [[noreturn]] void refused(const Status& status, const std::string& detail = "") const;

    [[nodiscard]] bool packed() const noexcept { return tensors_.q.rank == 3; }
    [[nodiscard]] std::int64_t tokens_q() const noexcept { return extent(tensors_.q, 3); }
    [[nodiscard]] std::int64_t tokens_k() const noexcept { return extent(tensors_.k, 3); }
    [[nodiscard]] std::int64_t heads() const noexcept { return extent(tensors_.q, 2); }
    [[nodiscard]] std::int64_t heads_kv() const noexcept { return extent(tensors_.k, 2); }
    [[nodiscard]] std::int64_t head_dim() const noexcept { return extent(tensors_.q, 1); }
    [[nodiscard]] std::int64_t head_dim_v() const noexcept { return extent(tensors_.v, 1); }
    // Call it only once the library has accepted the problem: lengths are data.
    [[nodiscard]] std::vector<Segment> segments() const;

private:
    // From the last axis, because dense tensors have one more in front.
    [[nodiscard]] static std::int64_t extent(const quatt_tensor& t, int from_last) noexcept {
        return t.extent[t.rank - from_last];
    }

    [[nodiscard]] const TensorView* find(std::string_view name) const;
    [[nodiscard]] quatt_tensor operand(std::string_view name);
    [[nodiscard]] quatt_tensor copy(std::span<const std::byte> bytes, quatt_dtype dtype,
                                    std::span<const std::int64_t> shape);
    [[nodiscard]] quatt_tensor lengths(const TensorView& tensor);
    [[nodiscard]] quatt_tensor floats(const TensorView& tensor);
    void note_non_finite(const TensorView& tensor);
    void bind_lengths();
    void bind_descale(std::string_view operand, const quatt_tensor& of, quatt_tensor& to);
    void bind_sink(const std::string& name);
    void judge_unapplied();
    void choose_layout(const ProblemOptions& options);
    [[nodiscard]] std::string hint_at_layout() const;
    [[nodiscard]] std::string describe_shapes() const;
    [[noreturn]] void fail(const std::string& what) const;

    const SafetensorsFile* file_;
    std::string layer_;
    std::vector<std::string> levels_;  // the layer's own first, "" last
    Setting<Layout> layout_;
    std::string layout_hint_;
    Tensors tensors_;
    std::deque<std::vector<std::byte>> copies_;
    std::set<const TensorView*> applied_;
    std::vector<std::string> notes_;
    bool finite_ = true;
    std::string shape_text_;
};

// What the metadata may say.
struct Semantics {
    Setting<float> softmax_scale;
    Setting<bool> causal;
    Setting<Window> window;

    // "softmax_scale 0.125 (metadata), causal no (default), window open (default)"
    [[nodiscard]] std::string text() const;

    // On metadata that nothing reads, though it looks like one of these under another name.
    std::vector<std::string> notes;
};
[[nodiscard]] Semantics resolve_semantics(const SafetensorsFile& file, const LayerInput& layer,
                                          const ProblemOptions& options);

// "open" or "127,0"
[[nodiscard]] std::string window_text(const Window& window);

// The problem without outputs.
[[nodiscard]] Problem make_problem(const LayerInput& layer, const Semantics& semantics,
                                   const ProblemOptions& options, const std::string& recipe);

// Throws Error with all reasons of the library, each behind `where`.
[[noreturn]] void throw_status(const std::string& where, const Status& status);

// The tensors of the query heads that belong to KV heads [first, first + count): views, no copies.
[[nodiscard]] Tensors slice_heads(const Tensors& tensors, std::int64_t first, std::int64_t count);

// Into how many such parts a long call is cut, so that progress can be shown.
[[nodiscard]] std::int64_t part_count(const LayerInput& layer);

}  // namespace quatt::tools
