// Attention over values that are all 1 gives 1; and an error is an exception that says what was
// wrong.
#include <cmath>
#include <iostream>
#include <quatt/attention.hpp>
#include <vector>

int main() {
    const std::vector<float> q(5 * 2 * 8, 0.5f), k(q.size(), -0.25f), v(q.size(), 1.0f);
    std::vector<float> out(q.size());
    const auto view = [](const std::vector<float>& values) {
        return quatt::Tensor(values.data(), quatt::DType::f32, {5, 2, 8});
    };
    quatt::Problem problem(quatt::Recipe("bf16"), view(q), view(k), view(v), view(out));
    try {
        quatt::attention(problem, "reference");
    } catch (const quatt::Error& error) {
        std::cerr << "attention: " << error.what() << '\n';
        return 1;
    }
    for (const float value : out) {
        if (!(std::abs(value - 1.0f) < 1e-6f)) {
            std::cerr << "out has " << value << ", not 1\n";
            return 1;
        }
    }

    problem.softmax_scale = -1.0f;
    try {
        quatt::attention(problem, "reference");
        std::cerr << "a negative softmax_scale was taken\n";
        return 1;
    } catch (const quatt::Error& error) {
        if (std::string(error.what()).find("softmax_scale") == std::string::npos) {
            std::cerr << "the message does not name softmax_scale: " << error.what() << '\n';
            return 1;
        }
    }
    std::cout << "C++: quatt " << quatt_version() << " works\n";
    return 0;
}
