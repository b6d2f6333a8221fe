// Names of tensors and of metadata in a file.
//
// A layer is a prefix P with tensors P.q, P.k and P.v; the empty prefix stands for q, k and v. What
// several layers share may stand on an outer level: for "layers.0", cu_seqlens is looked for as
// layers.0.cu_seqlens, layers.cu_seqlens and cu_seqlens. The same holds for keys of the metadata.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "safetensors.hpp"

namespace quatt::tools {

// "layers.0" and "q" -> "layers.0.q"
[[nodiscard]] std::string tensor_name(std::string_view layer, std::string_view name);
// The inverse.
[[nodiscard]] std::pair<std::string_view, std::string_view> split_name(std::string_view name);
// "layers.0" -> "layers.0", "layers", ""
[[nodiscard]] std::vector<std::string> levels_of(const std::string& layer);

[[nodiscard]] std::string lower(std::string_view text);

// The key's value on the first of the levels that has it; null where none has.
[[nodiscard]] const std::string* find_metadata(const SafetensorsFile& file,
                                               const std::vector<std::string>& levels,
                                               std::string_view key);

// In natural order: layers.2 before layers.10.
[[nodiscard]] std::vector<std::string> find_layers(const SafetensorsFile& file);

// Names the prefixes with some of q, k and v only, which are no layers; "" where there are none.
[[nodiscard]] std::string incomplete_note(const SafetensorsFile& file);

// "FILE: layer NAME", for messages; "FILE" without a name.
[[nodiscard]] std::string layer_where(const SafetensorsFile& file, const std::string& layer);

// The layer as messages and tables name it: printable, and "(q, k, v)" without a prefix.
[[nodiscard]] std::string layer_title(const std::string& layer);

}  // namespace quatt::tools
