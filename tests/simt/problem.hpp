// A matrix product of random E4M3 codes, its expected bits, and launches of the two kernels.
#pragma once

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "formats/e4m3.hpp"
#include "simt/launch.hpp"
#include "simt/matmul_bulk.cuh"
#include "simt/matmul_copy.cuh"
#include "simt/seeds.hpp"

namespace quatt::test {

struct Problem {
    std::uint32_t m, n, k;
    std::vector<std::uint8_t> a, b;
    std::vector<float> c;

    Problem(std::uint32_t m_, std::uint32_t n_, std::uint32_t k_, unsigned seed = 1)
        : m(m_), n(n_), k(k_), a(std::size_t{m} * k), b(std::size_t{n} * k), c(std::size_t{m} * n) {
        std::mt19937 generator(seed);
        std::normal_distribution<float> normal;
        for (std::uint8_t& code : a)
            code = formats::E4m3::encode(normal(generator));
        for (std::uint8_t& code : b)
            code = formats::E4m3::encode(normal(generator));
    }

    // What the mma's documented order of summation gives: fp32 after each 32 products, which are
    // exact in fp64.
    [[nodiscard]] std::vector<float> expected() const {
        std::vector<float> result(c.size());
        for (std::size_t i = 0; i < m; i++)
            for (std::size_t j = 0; j < n; j++) {
                float sum = 0;
                for (std::size_t k0 = 0; k0 < k; k0 += 32) {
                    double products = 0;
                    for (std::size_t l = k0; l < k0 + 32; l++)
                        products += double{formats::E4m3::decode(a[i * k + l])} *
                                    formats::E4m3::decode(b[j * k + l]);
                    sum = static_cast<float>(products + double{sum});
                }
                result[i * n + j] = sum;
            }
        return result;
    }

    template <copy_kernel::Planted P = copy_kernel::Planted::kNone>
    simt::Result run_copy(const simt::Options& options) {
        c.assign(c.size(), NAN);
        const copy_kernel::Params params{{a.data(), static_cast<std::int64_t>(a.size())},
                                         {b.data(), static_cast<std::int64_t>(b.size())},
                                         {c.data(), static_cast<std::int64_t>(c.size())},
                                         m,
                                         n,
                                         k};
        return simt::launch({"matmul_copy",
                             {n / kTileN, (m + kTileM - 1) / kTileM},
                             {copy_kernel::kThreads},
                             sizeof(copy_kernel::SharedPlan)},
                            options, [&] { copy_kernel::matmul<P>(params); });
    }

    template <bulk_kernel::Planted P = bulk_kernel::Planted::kNone>
    simt::Result run_bulk(const simt::Options& options) {
        c.assign(c.size(), NAN);
        bulk_kernel::Params params;
        params.a = map(a.data(), 1, m, k, kTileM, bulk_kernel::kTileK, simt::Swizzle::k128B);
        params.b = map(b.data(), 1, n, k, kTileN, bulk_kernel::kTileK, simt::Swizzle::k128B);
        params.c = map(reinterpret_cast<std::uint8_t*>(c.data()), 4, m, n, kTileM, kTileN,
                       simt::Swizzle::kNone);
        params.k = k;
        return simt::launch({"matmul_bulk",
                             {n / kTileN, (m + kTileM - 1) / kTileM},
                             {bulk_kernel::kThreads},
                             sizeof(bulk_kernel::SharedPlan)},
                            options, [&] { bulk_kernel::matmul<P>(params); });
    }

private:
    static simt::TensorMap map(std::uint8_t* base, std::uint32_t element_bytes, std::uint32_t rows,
                               std::uint32_t columns, std::uint32_t box_rows,
                               std::uint32_t box_columns, simt::Swizzle swizzle) {
        simt::TensorMap map;
        map.base = base;
        map.rank = 2;
        map.element_bytes = element_bytes;
        map.extent[0] = columns;
        map.extent[1] = rows;
        map.stride_bytes[1] = std::uint64_t{columns} * element_bytes;
        map.box[0] = box_columns;
        map.box[1] = box_rows;
        map.swizzle = swizzle;
        return map;
    }
};

}  // namespace quatt::test
