// Every instruction that kernels use: one function each, with a native body, an emulated one where
// a GPU lacks it, and a body for the executor. Section numbers are those of PTX ISA 9.0 (CUDA 13).
#pragma once

#include "cuda/ptx/atomic.hpp"
#include "cuda/ptx/cluster.hpp"
#include "cuda/ptx/convert.hpp"
#include "cuda/ptx/copy.hpp"
#include "cuda/ptx/exchange.hpp"
#include "cuda/ptx/ids.hpp"
#include "cuda/ptx/math.hpp"
#include "cuda/ptx/matrix.hpp"
#include "cuda/ptx/mbarrier.hpp"
#include "cuda/ptx/memory.hpp"
#include "cuda/ptx/mma.hpp"
#include "cuda/ptx/platform.hpp"
#include "cuda/ptx/sync.hpp"
#include "cuda/ptx/tensor.hpp"
#include "cuda/ptx/wgmma.hpp"
