// quatt sample: a file of made-up queries, keys and values.
#include <span>

#include "commands.hpp"
#include "convert.hpp"
#include "output.hpp"
#include "table.hpp"

namespace quatt::tools {
namespace {

Sample make(const SampleSpec& spec) {
    try {
        return make_sample(spec);
    } catch (const Error& error) {
        throw UsageError(error.what());  // all of a spec comes from flags
    }
}

}  // namespace

int run_sample(const SampleOptions& options) {
    const SampleSpec& spec = options.spec;
    const Sample sample = make(spec);
    const std::int64_t tokens = sample.cu_seqlens.back();

    const std::vector<std::byte> q = from_floats(options.dtype, sample.q);
    const std::vector<std::byte> k = from_floats(options.dtype, sample.k);
    const std::vector<std::byte> v = from_floats(options.dtype, sample.v);
    std::vector<TensorView> tensors = {
        {"q", options.dtype, {tokens, spec.heads_q, spec.head_dim}, q},
        {"k", options.dtype, {tokens, spec.heads_kv, spec.head_dim}, k},
        {"v", options.dtype, {tokens, spec.heads_kv, spec.head_dim}, v},
        {"cu_seqlens",
         Dtype::kI32,
         {static_cast<std::int64_t>(sample.cu_seqlens.size())},
         std::as_bytes(std::span(sample.cu_seqlens))}};
    write_safetensors(options.output, tensors, sample.metadata);

    if (!options.quiet) {
        const std::size_t segments = spec.segment_tokens.size();
        print("wrote " + printable(options.output, 200) + ": " +
              std::string(sample_kind_name(spec.kind)) + " sample, seed " +
              std::to_string(spec.seed) + ", q " + tensors[0].describe() + ", k and v " +
              tensors[1].describe() + ", " + std::to_string(segments) +
              (segments == 1 ? " segment\n" : " segments\n"));
    }
    return kExitOk;
}

}  // namespace quatt::tools
