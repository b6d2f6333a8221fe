// The command line: what it asks for, and the exit status. All of CLI11 is in cli_*.cpp and in
// app_text.cpp.
#include "cli.hpp"

#include <quatt/quatt.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "app_text.hpp"
#include "cli_commands.hpp"
#include "cli_values.hpp"
#include "output.hpp"
#include "signals.hpp"

namespace quatt::tools {
namespace {

// --- Commands about the program itself --------------------------------------------------------

// For help and completion only: run() turns it into --help before anything is parsed.
void add_help(Program& p) {
    CLI::App& app = p.add_command("help", "show the help of the program, or of a command",
                                  "Example:\n  quatt help check");
    CLI::Option* option = app.add_option("COMMAND", "the command to explain");
    option->type_name("COMMAND");
    p.completions[option] = {.words = p.command_names(), .is_list = false};
}

void add_completion(Program& p, std::string& shell) {
    CLI::App& app =
        p.add_command("completion", "print a script that completes commands",
                      "Examples:\n"
                      "  quatt completion bash > "
                      "~/.local/share/bash-completion/completions/quatt\n"
                      "  quatt completion zsh > ~/.zfunc/_quatt    (a folder of $fpath)\n"
                      "  quatt completion fish > ~/.config/fish/completions/quatt.fish");
    CLI::Option* option = app.add_option("SHELL", shell, "bash, zsh or fish");
    option->required()->type_name("SHELL");
    p.completions[option] = {.words = {kShells.begin(), kShells.end()}, .is_list = false};
    app.callback([&p, &shell] {
        if (std::ranges::find(kShells, shell) == kShells.end()) {
            bad_value("the shell", shell, "one of bash, zsh, fish");
        }
        p.action = [&p, &shell] {
            print(completion_script(p.app, p.completions, shell));
            return kExitOk;
        };
    });
}

void add_man(Program& p) {
    CLI::App& app = p.add_command("man", "print the manual page of this program",
                                  "Example:\n  quatt man | man -l -");
    app.callback([&p] {
        p.action = [&p] {
            print(manual_page(p.app));
            return kExitOk;
        };
    });
}

// --- The program ------------------------------------------------------------------------------

// The flag of the command that an unknown one may mean; "" where it is like none.
std::string meant_flag(const CLI::App& command, const std::string& unknown) {
    constexpr std::size_t kMostTypos = 2;
    std::string best;
    std::size_t least = kMostTypos + 1;
    for (const CLI::Option* option : command.get_options()) {
        for (const std::string& name : option->get_lnames()) {
            const std::size_t typos = edit_distance(unknown, "--" + name);
            if (typos < least) {
                least = typos;
                best = "--" + name;
            }
        }
    }
    return best;
}

// What CLI11 says of a command line that does not fit, in our words where those are plainer.
std::string parse_message(const CLI::App& program, const CLI::ParseError& error) {
    for (const CLI::App* app : program.get_subcommands()) {
        for (const CLI::Option* option : app->get_options()) {
            if (option->get_items_expected_max() == 1 && option->count() > 1) {
                return option->get_name() + " is given " + std::to_string(option->count()) +
                       " times; allowed is once";
            }
        }
    }
    // First of all: what else seems to be missing may have been meant by it.
    const std::vector<std::string> extras = program.remaining(true);
    const auto flag = std::ranges::find_if(extras, [](const std::string& extra) {
        return extra.size() > 1 && extra.starts_with('-');
    });
    if (flag != extras.end()) {
        const std::string name = flag->substr(0, flag->find('='));
        const std::vector<CLI::App*> commands = program.get_subcommands();
        const std::string meant = meant_flag(commands.empty() ? program : *commands[0], name);
        return "there is no flag " + in_quotes(name) +
               (meant.empty() ? "" : "; did you mean " + meant + "?");
    }
    return printable(error.what(), 500);
}

// What stands at the command's place must be one.
void check_command(const Program& p, const std::string& word) {
    const std::vector<std::string> names = p.command_names();
    if (std::ranges::find(names, word) == names.end()) {
        throw UsageError("the command is " + in_quotes(word) + "; allowed is one of " +
                         join(names));
    }
}

// `help` is `--help`, and `help COMMAND` is `COMMAND --help`.
std::vector<std::string> without_help(std::vector<std::string> words) {
    if (words.size() < 2 || words[1] != "help" || (words.size() > 2 && words[2][0] == '-')) {
        return words;
    }
    if (words.size() > 3) {
        throw UsageError("help takes one command; given are " + std::to_string(words.size() - 2));
    }
    words.erase(words.begin() + 1);
    words.emplace_back("--help");
    return words;
}

int run(std::vector<std::string> words) {
    Program p;
    std::string shell;
    add_commands(p);
    add_completion(p, shell);
    add_man(p);
    add_help(p);

    p.check.command = words;
    if (!words.empty()) {
        p.check.command[0] = "quatt";  // and not where it is installed
    }
    words = without_help(std::move(words));
    std::string command = "quatt";
    if (words.size() > 1 && !words[1].starts_with('-')) {
        check_command(p, words[1]);
        command += " " + words[1];
    }
    // What follows `bench --peers` is another program's.
    if (command == "quatt bench") {
        const auto peers = std::ranges::find(words, "--peers");
        if (peers != words.end()) {
            p.bench.peers_arguments.assign(peers + 1, words.end());
            words.erase(peers + 1, words.end());
        }
    }
    try {
        // CLI11 takes them from the end, without the program's name.
        std::vector<std::string> arguments(words.rbegin(),
                                           words.empty() ? words.rend() : words.rend() - 1);
        p.app.parse(std::move(arguments));
    } catch (const CLI::CallForHelp&) {
        print(p.app.help());
        return kExitOk;
    } catch (const CLI::CallForVersion& version) {
        print(std::string(version.what()) + "\n");
        return kExitOk;
    } catch (const CLI::ParseError& error) {
        throw UsageError(parse_message(p.app, error) + " (see " + command + " --help)");
    }
    if (!p.action) {
        throw UsageError("a command is missing; see quatt --help");
    }
    return p.action();
}

}  // namespace

Program::Program()
    : app("quantised attention on files of tensors, and how accurate it is", "quatt") {
    app.formatter(help_formatter());
    app.set_version_flag("--version", std::string("quatt ") + quatt_version(), "show the version")
        ->group("General");
    app.set_help_flag("-h,--help", "show this help")->group("General");
    app.footer(
        "`quatt COMMAND --help` explains a command.\n"
        "Exit status: 0 success, 1 failure, 2 wrong usage.\n"
        "\n"
        "Examples:\n"
        "  quatt sample --kind dit --tokens 2048 --heads 4 -o dit.safetensors\n"
        "  quatt check dit.safetensors\n"
        "  quatt attend dit.safetensors -o out.safetensors --recipe fp8 --lse");
}

CLI::App& Program::add_command(const std::string& name, const std::string& description,
                               const std::string& footer) {
    CLI::App& command = *app.add_subcommand(name, description);
    command.footer(footer);
    command.set_help_flag("-h,--help", "show this help")->group("General");
    return command;
}

std::vector<std::string> Program::command_names() const {
    std::vector<std::string> names;
    for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
        names.push_back(command->get_name());
    }
    return names;
}

int run_cli(int argc, const char* const* argv) noexcept {
    try {
        prepare_streams();
        prepare_signals();
        try {
            return finish_streams(run({argv, argv + argc}));
        } catch (const UsageError& error) {
            print_error(error.what());
            return kExitUsage;
        } catch (const std::bad_alloc&) {
            print_error("out of memory");
        } catch (const std::exception& error) {
            print_error(error.what());
        }
    } catch (...) {
        // Not even the message could be made.
    }
    return kExitFailure;
}

}  // namespace quatt::tools
