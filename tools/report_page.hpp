// The files of tools/report/, as they are in the source tree.
#pragma once

#include <string_view>

namespace quatt::tools {

extern const std::string_view kPageHtml, kPageCss, kPageJs;

}  // namespace quatt::tools
