#include "cli.hpp"

int main(int argc, char** argv) {
    return quatt::tools::run_cli(argc, argv);
}
