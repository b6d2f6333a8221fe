// quatt sample: a file of made-up queries, keys and values.
#include <span>
#include <utility>

#include "commands.hpp"
#include "elements.hpp"
#include "files.hpp"
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
    probe_file(options.output, options.force);
    const Sample sample = make(spec);
    const std::int64_t tokens = sample.cu_seqlens.back();

    const std::vector<std::byte> q = from_floats(options.dtype, sample.q);
    const std::vector<std::byte> k = from_floats(options.dtype, sample.k);
    const std::vector<std::byte> v = from_floats(options.dtype, sample.v);
    const auto tensor = [&](std::string name, std::int64_t heads,
                            const std::vector<std::byte>& bytes) {
        return TensorView{.name = std::move(name),
                          .dtype = options.dtype,
                          .shape = {tokens, heads, spec.head_dim},
                          .bytes = bytes};
    };
    const std::vector<TensorView> tensors = {
        tensor("q", spec.heads_q, q), tensor("k", spec.heads_kv, k), tensor("v", spec.heads_kv, v),
        TensorView{.name = "cu_seqlens",
                   .dtype = Dtype::kI32,
                   .shape = {static_cast<std::int64_t>(sample.cu_seqlens.size())},
                   .bytes = std::as_bytes(std::span(sample.cu_seqlens))}};
    write_safetensors(options.output, tensors, sample.metadata, options.force);

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
