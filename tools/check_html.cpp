// The report of `quatt check` for a browser: the data of the JSON, and the page that draws it.
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "check.hpp"
#include "report_page.hpp"
#include "table.hpp"

namespace quatt::tools {
namespace {

using Json = nlohmann::ordered_json;

// The page shows fewer; the file stays half as large.
constexpr int kDigits = 6;

void shorten(Json& json) {
    if (json.is_structured()) {
        for (Json& item : json) {
            shorten(item);
        }
    } else if (json.is_number_float()) {
        json = *parse_number<double>(format_significant(json.get<double>(), kDigits));
    }
}

// Inside a <script>, only "</script" and "<!--" end or change anything; without "<" there is none.
std::string script_data(const Json& json) {
    std::string out;
    for (const char c : json.dump(-1, ' ', false, Json::error_handler_t::replace)) {
        if (c == '<') {
            out += "\\u003c";
        } else {
            out += c;
        }
    }
    return out;
}

std::string html_text(std::string_view text) {
    std::string out;
    for (const char c : text) {
        switch (c) {
            case '<':
                out += "&lt;";
                break;
            case '>':
                out += "&gt;";
                break;
            case '&':
                out += "&amp;";
                break;
            default:
                out += c;
        }
    }
    return out;
}

}  // namespace

std::string check_html(const CheckReport& report) {
    Json data = check_data(report);
    shorten(data);
    const std::array<std::pair<std::string_view, std::string>, 5> parts = {
        {{"title", html_text("quatt check: " + printable(report.file))},
         {"css", std::string(kPageCss)},
         {"text", html_text(check_text(report))},
         {"json", script_data(data)},
         {"js", std::string(kPageJs)}}};
    // One walk over the template: what is put in may hold anything, "@@css@@" included.
    std::string out;
    std::string_view rest = kPageHtml;
    while (true) {
        const auto begin = rest.find("@@");
        out += rest.substr(0, begin);
        if (begin == std::string_view::npos) {
            return out;
        }
        const auto end = rest.find("@@", begin + 2);
        const std::string_view name = rest.substr(begin + 2, end - begin - 2);
        for (const auto& [part, text] : parts) {
            out += part == name ? text : "";
        }
        rest.remove_prefix(end + 2);
    }
}

}  // namespace quatt::tools
