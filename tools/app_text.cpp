#include "app_text.hpp"

#include <quatt/quatt.h>

#include <algorithm>
#include <stdexcept>
#include <utility>
#include <vector>

#include "parse.hpp"

namespace quatt::tools {
namespace {

constexpr std::size_t kHelpWidth = 100;
constexpr std::size_t kHelpIndent = 28;

using Options = std::vector<const CLI::Option*>;

std::vector<const CLI::App*> commands_of(const CLI::App& app) {
    return app.get_subcommands([](const CLI::App*) { return true; });
}

Options positionals_of(const CLI::App& app) {
    return app.get_options([](const CLI::Option* option) { return option->get_positional(); });
}

Options flags_of(const CLI::App& app) {
    return app.get_options([](const CLI::Option* option) { return option->nonpositional(); });
}

// "-o", "--output"
std::vector<std::string> names_of(const CLI::Option& option) {
    std::vector<std::string> names;
    for (const std::string& name : option.get_snames()) {
        names.push_back("-" + name);
    }
    for (const std::string& name : option.get_lnames()) {
        names.push_back("--" + name);
    }
    return names;
}

// Groups of flags, the general one last.
std::vector<std::string> groups_of(const CLI::App& app) {
    std::vector<std::string> groups = app.get_groups();
    std::stable_partition(groups.begin(), groups.end(),
                          [](const std::string& group) { return group != "General"; });
    return groups;
}

std::string full_name(const CLI::App& app) {
    return app.get_parent() != nullptr ? "quatt " + app.get_name() : "quatt";
}

// Behind the name: "IN.safetensors [options]"
std::string usage_of(const CLI::App& app) {
    std::string out;
    for (const CLI::Option* option : positionals_of(app)) {
        const std::string name = option->get_type_name();
        out += (option->get_required() ? name : "[" + name + "]") + " ";
    }
    return out + (commands_of(app).empty() ? "[options]" : "COMMAND [options]");
}

// --- Help -------------------------------------------------------------------------------------

// "text", broken between words, from column `indent` on; the first line stands at `column` already.
std::string wrapped(const std::string& text, std::size_t column, std::size_t indent) {
    std::string out;
    for (const std::string& word : split(text, ' ')) {
        if (column > indent && column + 1 + word.size() > kHelpWidth) {
            out += "\n" + std::string(indent, ' ');
            column = indent;
        } else if (column > indent) {
            out += " ";
            ++column;
        }
        out += word;
        column += word.size();
    }
    return out;
}

class Help : public CLI::FormatterBase {
public:
    std::string make_help(const CLI::App* app, std::string, CLI::AppFormatMode) const override {
        const std::string name = full_name(*app);
        std::string out = name + ": " + app->get_description() + "\n\nUsage: " + name + " " +
                          usage_of(*app) + "\n";
        for (const CLI::Option* option : positionals_of(*app)) {
            out += entry(option->get_type_name(), option->get_description());
        }
        if (!commands_of(*app).empty()) {
            out += "\nCommands:\n";
            for (const CLI::App* command : commands_of(*app)) {
                out += entry(command->get_name(), command->get_description());
            }
        }
        for (const std::string& group : groups_of(*app)) {
            std::string entries;
            for (const CLI::Option* option : flags_of(*app)) {
                if (option->get_group() == group) {
                    const std::string type = option->get_type_name();
                    entries += entry(join(names_of(*option)) + (type.empty() ? "" : " " + type),
                                     option->get_description());
                }
            }
            if (!entries.empty()) {
                out += "\n" + group + ":\n" + entries;
            }
        }
        return out + (app->get_footer().empty() ? "" : "\n" + app->get_footer() + "\n");
    }

private:
    static std::string entry(const std::string& head, const std::string& text) {
        std::string out = "  " + head;
        if (out.size() + 2 > kHelpIndent) {
            out += "\n";
            return out + std::string(kHelpIndent, ' ') + wrapped(text, kHelpIndent, kHelpIndent) +
                   "\n";
        }
        out.resize(kHelpIndent, ' ');
        return out + wrapped(text, kHelpIndent, kHelpIndent) + "\n";
    }
};

// --- Completion -------------------------------------------------------------------------------

// What a flag takes: nothing, one or several of some words, a file, or what nobody can complete.
struct Value {
    enum class Kind { kNone, kWords, kList, kFile, kOther } kind = Kind::kNone;
    std::vector<std::string> words;
};

Value value_of(const CLI::Option& option, const Completions& completions) {
    const std::string type = option.get_type_name();
    if (const auto found = completions.find(&option); found != completions.end()) {
        return {.kind = found->second.is_list ? Value::Kind::kList : Value::Kind::kWords,
                .words = found->second.words};
    }
    const bool is_file = type.find("FILE") != std::string::npos ||
                         type.find(".safetensors") != std::string::npos ||
                         type.find(".json") != std::string::npos;
    return {.kind = type.empty() ? Value::Kind::kNone
                    : is_file    ? Value::Kind::kFile
                                 : Value::Kind::kOther,
            .words = {}};
}

std::string header(std::string_view mark, std::string_view shell) {
    return std::string(mark) + " quatt " + quatt_version() + ": completion for " +
           std::string(shell) + ", made by `quatt completion " + std::string(shell) + "`.\n";
}

std::vector<std::string> all_names(const CLI::App& app) {
    std::vector<std::string> names;
    for (const CLI::Option* option : flags_of(app)) {
        std::ranges::copy(names_of(*option), std::back_inserter(names));
    }
    return names;
}

// What may stand where no flag's value is due.
Value positional_of(const CLI::App& app, const Completions& completions) {
    const Options positionals = positionals_of(app);
    return positionals.empty() ? Value{} : value_of(*positionals.front(), completions);
}

std::string bash_case(const CLI::App& command, const Completions& completions) {
    std::string out = "        " + command.get_name() + ")\n            case \"$previous\" in\n";
    for (const CLI::Option* option : flags_of(command)) {
        const Value value = value_of(*option, completions);
        if (value.kind == Value::Kind::kNone) {
            continue;
        }
        out += "                " + join(names_of(*option), " | ") + ") ";
        if (value.kind == Value::Kind::kFile) {
            out += "compopt -o default; return";
        } else if (value.kind == Value::Kind::kWords) {
            out += "words=\"" + join(value.words, " ") + "\"";
        } else if (value.kind == Value::Kind::kList) {
            out += "_quatt_list " + join(value.words, " ");
        } else {
            out += "return";
        }
        out += " ;;\n";
    }
    const Value positional = positional_of(command, completions);
    out += "                *)\n";
    if (positional.kind == Value::Kind::kFile) {
        out += "                    [[ $current == -* ]] || { compopt -o default; return; }\n";
    }
    return out + "                    words=\"" + join(all_names(command), " ") +
           (positional.words.empty() ? "" : " " + join(positional.words, " ")) +
           "\" ;;\n            esac ;;\n";
}

std::string bash_script(const CLI::App& program, const Completions& completions) {
    std::string names;
    std::string cases;
    for (const CLI::App* command : commands_of(program)) {
        names += command->get_name() + " ";
        cases += bash_case(*command, completions);
    }
    return header("#", "bash") +
           "# Sets words to the last entry of a list that is being typed: what is before its last "
           "comma stays.\n"
           "_quatt_list() {\n"
           "    local before=\"\" word\n"
           "    [[ $current != *,* ]] || before=\"${current%,*},\"\n"
           "    for word in \"$@\"; do\n"
           "        [[ ,$before == *,$word,* ]] || words+=\"$before$word \"\n"
           "    done\n"
           "}\n"
           "_quatt() {\n"
           "    local current=\"$2\" previous=\"$3\" words=\"\"\n"
           "    COMPREPLY=()\n"
           "    case \"$([ \"$COMP_CWORD\" -eq 1 ] || echo \"${COMP_WORDS[1]}\")\" in\n"
           "        '') words=\"" +
           names + join(all_names(program), " ") + "\" ;;\n" + cases +
           "    esac\n"
           "    mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$current\")\n"
           "}\n"
           "complete -F _quatt quatt\n";
}

// `text` with a backslash before each of `special`.
std::string escaped(std::string_view text, std::string_view special) {
    std::string out;
    for (const char c : text) {
        if (special.find(c) != std::string_view::npos) {
            out += '\\';
        }
        out += c;
    }
    return out;
}

// In single quotes.
std::string zsh_quoted(std::string_view text) {
    std::string out = "'";
    for (const char c : text) {
        out += c == '\'' ? std::string("'\\''") : std::string(1, c);
    }
    return out + "'";
}

// ":TYPE:what completes it" of _arguments, or "".
std::string zsh_value(const CLI::Option& option, const Completions& completions) {
    const Value value = value_of(option, completions);
    const std::string type = escaped(option.get_type_name(), ":[]");
    switch (value.kind) {
        case Value::Kind::kNone:
            return "";
        case Value::Kind::kFile:
            return ":" + type + ":_files";
        case Value::Kind::kWords:
        case Value::Kind::kList: {
            std::vector<std::string> words;
            for (const std::string& word : value.words) {
                words.push_back(escaped(word, ":"));
            }
            const std::string all = join(words, " ");
            return ":" + type +
                   (value.kind == Value::Kind::kList ? ":_values -s , entry " + all
                                                     : ":(" + all + ")");
        }
        default:
            return ":" + type + ": ";
    }
}

std::string zsh_arguments(const CLI::App& app, const Completions& completions) {
    std::string out = "_arguments";
    for (const CLI::Option* option : flags_of(app)) {
        const std::vector<std::string> names = names_of(*option);
        const int values = option->get_items_expected_min();
        // Names in parentheses are those that it excludes: itself, unless it may be repeated.
        const std::string once =
            option->get_items_expected_max() > values ? "*" : "(" + join(names, " ") + ")";
        const std::string text = "[" + escaped(option->get_description(), "[]\\") + "]";
        for (const std::string& name : names) {
            std::string spec = once;
            spec += name;
            spec += text;
            for (int i = 0; i < values; ++i) {
                spec += zsh_value(*option, completions);
            }
            out += " \\\n                " + zsh_quoted(spec);
        }
    }
    for (const CLI::Option* option : positionals_of(app)) {
        out += " \\\n                " + zsh_quoted(zsh_value(*option, completions));
    }
    return out;
}

std::string zsh_script(const CLI::App& program, const Completions& completions) {
    std::string names;
    std::string cases;
    for (const CLI::App* command : commands_of(program)) {
        names += "            " +
                 zsh_quoted(escaped(command->get_name(), ":") + ":" + command->get_description()) +
                 "\n";
        cases += "        " + command->get_name() + ")\n            " +
                 zsh_arguments(*command, completions) + " ;;\n";
    }
    return "#compdef quatt\n" + header("#", "zsh") +
           "_quatt() {\n"
           "    if (( CURRENT == 2 )); then\n"
           "        local -a commands=(\n" +
           names +
           "        )\n"
           "        _describe -t commands command commands\n"
           "        [[ $words[2] != -* ]] || " +
           zsh_arguments(program, completions) +
           "\n"
           "        return\n"
           "    fi\n"
           "    local command=$words[2]\n"
           "    shift words\n"
           "    (( CURRENT-- ))\n"
           "    case $command in\n" +
           cases +
           "    esac\n"
           "}\n"
           "# Autoloaded as a function, or read by `source`.\n"
           "if [[ $funcstack[1] == _quatt ]]; then\n"
           "    _quatt \"$@\"\n"
           "else\n"
           "    compdef _quatt quatt\n"
           "fi\n";
}

std::string fish_quoted(std::string_view text) {
    return "'" + escaped(text, "'\\") + "'";
}

// The rest of a `complete` line: what follows the flag or the command.
std::string fish_value(const CLI::Option& option, const Completions& completions) {
    const Value value = value_of(option, completions);
    switch (value.kind) {
        case Value::Kind::kNone:
            return "";
        case Value::Kind::kFile:
            return " -r -F";
        case Value::Kind::kWords:
            return " -x -a " + fish_quoted(join(value.words, " "));
        case Value::Kind::kList:
            return " -x -a " + fish_quoted("(__fish_append , " + join(value.words, " ") + ")");
        default:
            return " -x";
    }
}

std::string fish_flags(const CLI::App& app, const Completions& completions,
                       const std::string& condition) {
    std::string out;
    for (const CLI::Option* option : flags_of(app)) {
        out += "complete -c quatt -n " + condition;
        for (const std::string& name : option->get_snames()) {
            out += " -s " + name;
        }
        for (const std::string& name : option->get_lnames()) {
            out += " -l " + name;
        }
        out += fish_value(*option, completions) + " -d " + fish_quoted(option->get_description()) +
               "\n";
    }
    return out;
}

std::string fish_script(const CLI::App& program, const Completions& completions) {
    std::string out = header("#", "fish") + "complete -c quatt -f\n" +
                      fish_flags(program, completions, "__fish_use_subcommand");
    for (const CLI::App* command : commands_of(program)) {
        out += "complete -c quatt -n __fish_use_subcommand -a " + command->get_name() + " -d " +
               fish_quoted(command->get_description()) + "\n";
    }
    for (const CLI::App* command : commands_of(program)) {
        const std::string condition =
            fish_quoted("__fish_seen_subcommand_from " + command->get_name());
        out += fish_flags(*command, completions, condition);
        const Value positional = positional_of(*command, completions);
        if (positional.kind == Value::Kind::kFile) {
            out += "complete -c quatt -n " + condition + " -F\n";
        } else if (positional.kind == Value::Kind::kWords) {
            out += "complete -c quatt -n " + condition + " -a " +
                   fish_quoted(join(positional.words, " ")) + "\n";
        }
    }
    return out;
}

// --- Manual page ------------------------------------------------------------------------------

// Text of a line: a hyphen is what was typed, a backslash is none of roff's, and a line that begins
// with a dot or a quote is no request.
std::string roff(std::string_view text) {
    std::string out;
    bool first = true;
    for (const char c : text) {
        if (first && (c == '.' || c == '\'')) {
            out += "\\&";
        }
        if (c == '\\') {
            out += "\\(rs";
        } else if (c == '-') {
            out += "\\-";
        } else {
            out += c;
        }
        first = c == '\n';
    }
    return out;
}

std::string roff_entry(const std::string& head, const std::string& type, const std::string& text) {
    return ".TP\n\\fB" + roff(head) + "\\fR" + (type.empty() ? "" : " \\fI" + roff(type) + "\\fR") +
           "\n" + roff(text) + "\n";
}

std::string roff_verbatim(const std::string& text) {
    return text.empty() ? "" : ".PP\n.nf\n" + roff(text) + "\n.fi\n";
}

std::string roff_flags(const CLI::App& app) {
    std::string out;
    for (const CLI::Option* option : positionals_of(app)) {
        out += roff_entry(option->get_type_name(), "", option->get_description());
    }
    for (const std::string& group : groups_of(app)) {
        for (const CLI::Option* option : flags_of(app)) {
            if (option->get_group() == group) {
                out += roff_entry(join(names_of(*option)), option->get_type_name(),
                                  option->get_description());
            }
        }
    }
    return out;
}

}  // namespace

std::shared_ptr<CLI::FormatterBase> help_formatter() {
    return std::make_shared<Help>();
}

std::string completion_script(const CLI::App& program, const Completions& completions,
                              std::string_view shell) {
    if (shell == "bash") {
        return bash_script(program, completions);
    }
    if (shell == "zsh") {
        return zsh_script(program, completions);
    }
    if (shell == "fish") {
        return fish_script(program, completions);
    }
    throw std::logic_error("no completion for this shell");
}

std::string manual_page(const CLI::App& program) {
    std::string out = ".\\\" Made by `quatt man`.\n.TH QUATT 1 \"\" \"quatt " +
                      roff(quatt_version()) + "\" \"User Commands\"\n.SH NAME\nquatt \\- " +
                      roff(program.get_description()) + "\n.SH SYNOPSIS\n\\fBquatt\\fR " +
                      roff(usage_of(program)) + "\n.SH OPTIONS\n" + roff_flags(program) +
                      ".SH COMMANDS\n";
    for (const CLI::App* command : commands_of(program)) {
        out += ".SS \"" + full_name(*command) + " " + roff(usage_of(*command)) + "\"\n" +
               roff(command->get_description()) + ".\n" + roff_flags(*command) +
               roff_verbatim(command->get_footer());
    }
    return out + ".SH NOTES\n" + roff_verbatim(program.get_footer());
}

}  // namespace quatt::tools
