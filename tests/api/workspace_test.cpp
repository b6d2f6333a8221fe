// A workspace that lies over a tensor would be written while the tensor is read.
#include <gtest/gtest.h>
#include <quatt/attention.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace {

using namespace quatt;

constexpr std::int64_t kTokens = 8, kDim = 16;

TEST(Workspace, OverTensorsIsRefused) {
    std::vector<float> q(kTokens * kDim, 0.5f), k(q), v(q), out(q);
    const auto view = [](void* p) { return Tensor(p, DType::f32, {kTokens, 1, kDim}); };
    Problem problem(Recipe("fp8"), view(q.data()), view(k.data()), view(v.data()),
                    view(out.data()));
    const Plan plan = Plan::create(problem, "cpu").value();
    const std::size_t bytes = plan.workspace_bytes(), align = plan.info().workspace_align;
    // One block that holds the workspace and, behind it, room for a tensor.
    std::vector<std::byte> block(bytes + 2 * align + q.size() * sizeof(float));
    auto* base =
        block.data() + (align - reinterpret_cast<std::uintptr_t>(block.data()) % align) % align;
    const std::span<std::byte> workspace(base, bytes);
    EXPECT_TRUE(plan.run(problem.tensors, workspace).ok());

    struct Case {
        const char* name;
        quatt_tensor quatt_tensors::*member;
    };
    for (const Case& c : {Case{"q", &quatt_tensors::q},
                          {"k", &quatt_tensors::k},
                          {"v", &quatt_tensors::v},
                          {"out", &quatt_tensors::out}}) {
        for (std::byte* at :
             {base, base + bytes / 2 / align * align, base + (bytes - 1) / align * align}) {
            quatt_tensors t = problem.tensors;
            (t.*c.member).data = at;
            const Status s = plan.run(t, workspace);
            EXPECT_EQ(s.code(), QUATT_INVALID_ARGUMENT) << c.name;
            EXPECT_NE(s.message().find(std::string("workspace overlaps ") + c.name),
                      std::string::npos)
                << s.message();
        }
        quatt_tensors beside = problem.tensors;
        (beside.*c.member).data = base + (bytes + align - 1) / align * align;
        EXPECT_TRUE(plan.run(beside, workspace).ok()) << c.name;
    }
}

TEST(Tensor, ContiguousWithoutExtentsIsEmptyNotACrash) {
    const quatt_tensor t = quatt_tensor_contiguous(nullptr, QUATT_F32, 3, nullptr);
    EXPECT_EQ(t.rank, 3);
    EXPECT_EQ(t.extent[0], 0);
}

}  // namespace
