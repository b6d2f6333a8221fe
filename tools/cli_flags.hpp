// Flags of a command.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "app_text.hpp"
#include "cli_values.hpp"

namespace quatt::tools {

// Adds options that read their own values, so that every message says what is allowed.
class Flags {
public:
    Flags(CLI::App& app, Completions& completions) : app_(app), completions_(completions) {}

    void group(std::string name) { group_ = std::move(name); }

    // `set` gets the flag's name, for messages, and the text.
    template <class Set>
    CLI::Option* value(const std::string& names, const std::string& type, const std::string& text,
                       Set set) {
        const std::string flag = names.substr(names.find("--"));
        return app_
            .add_option_function<std::string>(
                names, [set, flag](const std::string& given) { set(flag, given); }, text)
            ->type_name(type)
            ->group(group_);
    }
    // May be given several times.
    template <class Item, class Read>
    CLI::Option* list(const std::string& name, const std::string& type, const std::string& text,
                      std::vector<Item>& to, Read read) {
        return app_
            .add_option_function<std::vector<std::string>>(
                name,
                [&to, read, name](const std::vector<std::string>& given) {
                    to.clear();
                    for (const std::string& one : given) {
                        to.push_back(read(name, one));
                    }
                },
                text)
            ->allow_extra_args(false)
            ->type_name(type)
            ->group(group_);
    }
    template <class To>
    void number(const std::string& name, std::int64_t min, std::int64_t max,
                const std::string& text, To& to) {
        value(name, "N", text, [&to, min, max](const std::string& flag, const std::string& given) {
            const std::int64_t number = integer_value(flag, given, min, max);
            if constexpr (std::is_arithmetic_v<To>) {
                to = static_cast<To>(number);
            } else {
                to = number;
            }
        });
    }
    // "-" is standard output, where the flag may mean that.
    CLI::Option* file(const std::string& names, const std::string& text, std::string& to,
                      bool may_print = false) {
        return value(names, "FILE", text,
                     [&to, may_print](const std::string& flag, const std::string& given) {
                         if (given.empty() || (given == "-" && !may_print)) {
                             bad_value(flag, given,
                                       given.empty() ? "the name of a file"
                                                     : "the name of a file (./- is one, too)");
                         }
                         to = given;
                     });
    }
    CLI::Option* flag(const std::string& names, const std::string& text, bool& to) {
        return app_.add_flag(names, to, text)->group(group_)->disable_flag_override();
    }

    // One of some names.
    template <class Value, std::size_t N, class To>
    CLI::Option* choice(const std::string& name, const std::string& type, const std::string& text,
                        const Names<Value, N>& table, To& to) {
        return completed(value(name, type, text,
                               [&to, &table](const std::string& flag, const std::string& given) {
                                   to = named_value(flag, given, table);
                               }),
                         names_of(table));
    }
    CLI::Option* recipe(const std::string& text, std::string& to) {
        return completed(value("--recipe", "R", text,
                               [&to](const std::string& flag, const std::string& given) {
                                   to = recipe_value(flag, given);
                               }),
                         recipe_names());
    }
    void kernel(std::string& to) {
        completed(value("--kernel", "K", "this entry of the support table only (see quatt info)",
                        [&to](const std::string& flag, const std::string& given) {
                            to = kernel_value(flag, given);
                        }),
                  kernel_names());
    }
    // `examples`: what a shell completes; others may be allowed.
    void device(const std::string& text, std::string& to, std::vector<std::string> examples) {
        completed(value("--device", "D", text,
                        [&to](const std::string& flag, const std::string& given) {
                            to = device_value(flag, given);
                        }),
                  std::move(examples));
    }

    // What a shell may put in the option's place.
    CLI::Option* completed(CLI::Option* option, std::vector<std::string> words,
                           bool is_list = false) {
        completions_[option] = {.words = std::move(words), .is_list = is_list};
        return option;
    }

private:
    CLI::App& app_;
    Completions& completions_;
    std::string group_ = "Options";
};

}  // namespace quatt::tools
