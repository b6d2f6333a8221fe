#include "core/problem.hpp"

#include <algorithm>

#include "core/tensor_view.hpp"

namespace quatt::core {

Shape shape_of(const quatt_problem& p) {
    const quatt_tensor &q = p.tensors.q, &k = p.tensors.k, &v = p.tensors.v;
    const int tokens = q.rank - 3, heads = q.rank - 2, dim = q.rank - 1;
    Shape s;
    s.packed = q.rank == 3;
    s.segments = !s.packed ? q.extent[0]
                 : present(p.tensors.cu_seqlens_q)
                     ? std::max<std::int64_t>(p.tensors.cu_seqlens_q.extent[0] - 1, 0)
                     : 1;
    s.tokens_q = q.extent[tokens];
    s.tokens_k = k.extent[tokens];
    s.heads_q = q.extent[heads];
    s.heads_kv = k.extent[heads];
    s.head_dim = q.extent[dim];
    s.head_dim_v = v.extent[dim];
    return s;
}

bool is_touched(const Field& f, const quatt_tensors& t, Work work) {
    if (work == Work::kQuantize && f.member == &quatt_tensors::cu_seqlens_q) {
        return !present(t.cu_seqlens_k);
    }
    return work == Work::kRun || (work == Work::kQuantize ? f.quantize : f.attend);
}

quatt_tensors touched(const quatt_tensors& t, Work work) {
    quatt_tensors some = t;
    some.struct_size = sizeof some;  // the copy ends where we know it
    for (const Field& f : kFields) {
        if (!is_touched(f, t, work)) {
            (some.*f.member).data = nullptr;
        }
    }
    if (work == Work::kQuantize) {
        some.cu_seqlens_q_host = nullptr;
    }
    return some;
}

}  // namespace quatt::core
