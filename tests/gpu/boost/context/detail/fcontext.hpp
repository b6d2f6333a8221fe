// The four names of Boost.Context that src/simt uses, on ucontext: for machines without Boost.
// Slower (a system call a switch), so that only scripts/gpu_check.sh takes it, for the
// instructions' comparison with the executor.
#pragma once

#include <cstddef>

namespace boost::context::detail {

using fcontext_t = void*;

struct transfer_t {
    fcontext_t fctx;
    void* data;
};

fcontext_t make_fcontext(void* stack_top, std::size_t bytes, void (*entry)(transfer_t));
transfer_t jump_fcontext(fcontext_t to, void* data);

}  // namespace boost::context::detail
