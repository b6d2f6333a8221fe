// The bytes are a problem and a device: a small sound problem first, then words of either struct
// overwritten. The library must answer, all its answers must agree, and what it takes is run on
// memory of exactly the tensors' reach.
#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "bytes.hpp"

using namespace quatt::fuzz;

namespace {

constexpr std::int64_t kMostBytes = 1 << 18;      // of a tensor that gets memory
constexpr std::int64_t kMostElements = 1 << 16;   // likewise: strides of 0 make many of few bytes
constexpr std::int64_t kMostProducts = 1 << 22;   // of a run, about
constexpr std::size_t kMostWorkspace = 64 << 20;  // of a run
constexpr std::size_t kMostStruct = 16384;        // as quatt.h says

// Numbers at which something changes.
constexpr std::array<std::int64_t, 24> kNumbers = {
    0,         1,         2,         3,         5,         7,         8,         16,
    64,        96,        128,       192,       256,       257,       -1,        -2,
    INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, 1LL << 31, 1LL << 48, 1LL << 60, -(1LL << 60)};

constexpr std::array<quatt_tensor quatt_tensors::*, 15> kTensors = {&quatt_tensors::q,
                                                                    &quatt_tensors::k,
                                                                    &quatt_tensors::v,
                                                                    &quatt_tensors::out,
                                                                    &quatt_tensors::lse,
                                                                    &quatt_tensors::cu_seqlens_q,
                                                                    &quatt_tensors::cu_seqlens_k,
                                                                    &quatt_tensors::kv_lens,
                                                                    &quatt_tensors::q_descale,
                                                                    &quatt_tensors::k_descale,
                                                                    &quatt_tensors::v_descale,
                                                                    &quatt_tensors::sink,
                                                                    &quatt_tensors::block_table,
                                                                    &quatt_tensors::status_word,
                                                                    &quatt_tensors::light_mass};

quatt_tensor view(quatt_dtype dtype, std::initializer_list<std::int64_t> extents) {
    return quatt_tensor_contiguous(nullptr, dtype, static_cast<std::int32_t>(extents.size()),
                                   extents.begin());
}

void sound_problem(Bytes& in, quatt_problem& p) {
    quatt_problem_init(&p);
    (void)quatt_recipe_init(&p.recipe, quatt_recipe_name(in.below(quatt_recipe_count())));
    static constexpr std::array<quatt_dtype, 4> kDtypes = {QUATT_F32, QUATT_BF16, QUATT_F16,
                                                           QUATT_E4M3};
    const auto dtype = [&] { return kDtypes[static_cast<std::size_t>(in.below(4))]; };
    // Tiny, or more than a tile of keys, a block of rows, a vector of channels.
    const auto shape = in.take<std::uint8_t>();
    const bool packed = (shape & 1) != 0;
    const std::int64_t more_keys = (shape & 2) != 0 ? 17 : 1, more_rows = (shape & 4) != 0 ? 30 : 1,
                       more_channels = (shape & 8) != 0 ? 56 : 0;
    const std::int64_t b = in.below(4), sq = more_rows * in.below(6), sk = more_keys * in.below(9),
                       kv = 1 + in.below(2), h = kv * (1 + in.below(2)),
                       d = 1 + more_channels + in.below(9), dv = 1 + more_channels + in.below(9);
    quatt_tensors& t = p.tensors;
    const auto operand = [&](quatt_dtype type, std::int64_t s, std::int64_t heads, std::int64_t n) {
        return packed ? view(type, {s, heads, n}) : view(type, {b, s, heads, n});
    };
    t.q = operand(dtype(), sq, h, d);
    t.k = operand(dtype(), sk, kv, d);
    t.v = operand(dtype(), sk, kv, dv);
    t.out = operand(kDtypes[static_cast<std::size_t>(in.below(3))], sq, h, dv);
    const auto with = in.take<std::uint16_t>();
    const auto rows = packed ? view(QUATT_F32, {h, sq}) : view(QUATT_F32, {b, h, sq});
    const std::int64_t items = packed && (with & 2) == 0 ? 1 : b;
    t.lse = (with & 1) != 0 ? rows : quatt_tensor{};
    if (packed && (with & 2) != 0) {
        t.cu_seqlens_q = view(QUATT_I32, {b + 1});
        t.cu_seqlens_k = (with & 4) != 0 ? t.cu_seqlens_q : quatt_tensor{};
    }
    t.kv_lens = (with & 8) != 0 ? view(QUATT_I32, {items}) : quatt_tensor{};
    t.sink = (with & 16) != 0 ? view(QUATT_F32, {h}) : quatt_tensor{};
    if ((with & 32) != 0) {
        t.q_descale = t.q.dtype == QUATT_E4M3 ? view(QUATT_F32, {}) : quatt_tensor{};
        t.k_descale = t.k.dtype == QUATT_E4M3 ? view(QUATT_F32, {kv}) : quatt_tensor{};
        t.v_descale = t.v.dtype == QUATT_E4M3 ? view(QUATT_F32, {items, kv}) : quatt_tensor{};
    }
    t.light_mass = (with & 64) != 0 ? rows : quatt_tensor{};
    t.status_word = (with & 128) != 0 ? view(QUATT_I32, {1}) : quatt_tensor{};
    p.causal = (with >> 8) & 1;
    p.zero_tail = (with >> 9) & 1;
    p.allow_fallback = (with >> 10) & 1;
    p.strict = (with >> 11) & 1;
    p.softmax_scale = 0.25f;
    p.threads = 1;
}

// Words of a struct, at any place of it.
void overwrite(Bytes& in, void* to, std::size_t bytes) {
    const std::size_t at = in.take<std::uint16_t>() % (bytes / 4) * 4;
    const auto how = in.take<std::uint8_t>();
    std::int64_t value = 0;
    std::size_t width = (how & 64) != 0 ? 8 : 4;
    if ((how & 128) != 0) {
        value = in.take<std::int64_t>();
    } else {
        value = kNumbers[(how & 63) % kNumbers.size()];
    }
    width = at + width > bytes ? 4 : width;
    std::memcpy(static_cast<std::byte*>(to) + at, &value, width);
}

// The same where it matters most, one field of a tensor: the reach, the dtype or the rank.
void change_tensor(Bytes& in, quatt_tensors& tensors) {
    quatt_tensor& t = tensors.*kTensors[static_cast<std::size_t>(in.below(15))];
    const auto what = in.take<std::uint8_t>();
    const std::int64_t number =
        kNumbers[static_cast<std::size_t>(in.below(static_cast<std::int32_t>(kNumbers.size())))];
    switch (what % 8) {
        case 0:
            t.dtype = static_cast<quatt_dtype>(in.below(8));
            break;
        case 1:
            t.rank = static_cast<std::int32_t>(in.below(7)) - 1;
            break;
        case 2:
        case 3:
            t.extent[what / 8 % 4] = number;
            break;
        case 4:  // so that many of what may be run is strided
            t.stride[what / 8 % 4] *= -1;
            break;
        default:
            t.stride[what / 8 % 4] = number;
    }
}

// A struct as a caller of that struct_size has it: no byte more, and none less.
template <class T>
T* placed(T s, Bytes& in, Block& block) {
    const std::size_t size = s.struct_size > kMostStruct || s.struct_size < sizeof s.struct_size
                                 ? sizeof s.struct_size
                                 : s.struct_size;
    block = block_of(size);
    std::memset(block.get(), 0, size);
    std::memcpy(block.get(), &s, std::min(size, sizeof s));
    if (size > sizeof s && in.bit()) {
        block.get()[sizeof s + in.take<std::uint16_t>() % (size - sizeof s)] = std::byte{1};
    }
    return reinterpret_cast<T*>(block.get());
}

// Values for the tensors; lengths small and rising, so that many are right.
void fill(Bytes& in, const quatt_tensor& t, std::byte* from, std::size_t bytes) {
    const auto seed = in.take<std::uint8_t>();
    const std::size_t size = quatt_dtype_bytes(t.dtype);
    for (std::size_t i = 0; i < bytes / size; i++) {
        const float x = seed == 255 ? static_cast<float>(INFINITY)
                                    : 0.125f * static_cast<float>((i * 7 + seed) % 31) + 0.125f;
        const auto n = static_cast<std::int32_t>(seed < 8    ? i * seed
                                                 : seed < 16 ? i * (seed - 7U) * 17
                                                             : i % 2);
        if (t.dtype == QUATT_I32) {
            std::memcpy(from + i * size, &n, size);
        } else {
            (void)quatt_convert(from + i * size, t.dtype, &x, QUATT_F32, 1);
        }
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    Bytes in(data, size);
    static constexpr std::array kDevices = {"cpu",        "emulate",    "reference",
                                            "cpu",        "cuda",       "cuda:3",
                                            "simt:sm_90", "emu:sm_120", "simt:sm_120"};
    // The first four: chosen by the library. An instruction set that the processor lacks is
    // refused.
    static constexpr std::array<const char*, 14> kKernels = {
        nullptr,    nullptr,          nullptr,           nullptr,           "cpu",
        "cpu_avx2", "cpu_avx512",     "cpu_avx512_vnni", "cpu_avx512_bf16", "emulate",
        "wgmma",    "no such kernel", "cpu_avx512_fp16", "cpu_amx"};
    quatt_device d{};
    require(quatt_device_init(&d, kDevices[static_cast<std::size_t>(in.below(9))]) == QUATT_OK,
            "a device that quatt.h names is unknown");
    quatt_problem p;
    sound_problem(in, p);
    const auto extras = in.take<std::uint8_t>();
    p.row_count = (extras & 3) == 3 ? 1 : 0;
    p.key_tile = (extras & 4) != 0 ? 128 : 0;
    p.splits = (extras & 8) != 0 ? 3 : 0;
    p.window_left = (extras & 16) != 0 ? 2 : -1;
    const char* kernel = kKernels[static_cast<std::size_t>(in.below(14))];
    for (int n = in.below(5); n > 0; n--) {
        switch (in.below(4)) {
            case 3:
                overwrite(in, &d, sizeof d);
                break;
            case 2:
                change_tensor(in, p.tensors);
                break;
            default:
                overwrite(in, &p, sizeof p);
        }
    }

    // Pointers are ours, whatever was overwritten: memory where the reach is tiny, else none.
    std::vector<Block> blocks;
    bool runnable = true;
    for (quatt_tensor quatt_tensors::*const member : kTensors) {
        quatt_tensor& t = p.tensors.*member;
        t.data = nullptr;
        if (t.dtype == QUATT_NONE) {
            continue;
        }
        const std::optional<ByteRange> reach = tiny_reach(t, kMostBytes, kMostElements);
        runnable = runnable && reach.has_value();
        if (reach.has_value()) {
            const auto bytes = static_cast<std::size_t>(reach->hi - reach->lo);
            blocks.push_back(block_of(bytes));
            fill(in, t, blocks.back().get(), bytes);
            t.data = blocks.back().get() - reach->lo;
        }
    }
    std::vector<std::int64_t> rows(
        p.row_count > 0 && p.row_count <= 64 ? static_cast<std::size_t>(p.row_count) : 0);
    for (std::size_t i = 0; i < rows.size(); i++) {
        rows[i] = static_cast<std::int64_t>(i);
    }
    quatt_counters counters{};
    const quatt_tensor& cu = p.tensors.cu_seqlens_q;
    std::vector<std::int32_t> host(cu.dtype == QUATT_I32 && cu.rank == 1 && cu.extent[0] > 0 &&
                                           cu.extent[0] <= 64
                                       ? static_cast<std::size_t>(cu.extent[0])
                                       : 0);
    p.rows = rows.empty() ? nullptr : rows.data();
    p.policy = nullptr;
    p.kernel = kernel;
    p.log = (extras & 32) != 0 ? [](void*, const char*) {} : quatt_log_fn{};
    p.log_user = nullptr;
    p.tensors.cu_seqlens_q_host = host.empty() || (extras & 64) == 0 ? nullptr : host.data();
    p.tensors.cu_seqlens_k_host = nullptr;
    p.tensors.counters = (extras & 128) != 0 ? &counters : nullptr;

    Block problem_block, device_block;
    const quatt_problem* problem = placed(p, in, problem_block);
    const quatt_device* device = placed(d, in, device_block);

    quatt_plan_info info{};
    info.struct_size = sizeof info;
    const quatt_status asked = quatt_query(problem, device, &info);
    require(asked == QUATT_OK || asked == QUATT_INVALID_ARGUMENT || asked == QUATT_UNSUPPORTED,
            "query gives another status than quatt.h says");
    require(asked == QUATT_OK || quatt_last_error()[0] != 0, "a refusal says nothing");
    std::size_t needed = 0;
    require(quatt_explain(problem, device, nullptr, 0, &needed) == QUATT_OK && needed > 1,
            "explain does not answer");
    const Block text = block_of(needed);
    require(quatt_explain(problem, device, reinterpret_cast<char*>(text.get()), needed / 2,
                          nullptr) == QUATT_OK,
            "explain does not answer a short buffer");
    const quatt_status described = quatt_problem_describe(problem, nullptr, 0, &needed);
    require(described == QUATT_OK || described == QUATT_INVALID_ARGUMENT, "describe fails");
    if (asked == QUATT_OK && info.threads > 4) {
        return 0;  // a plan would start them
    }
    quatt_plan* plan = nullptr;
    const quatt_status planned = quatt_plan_create(problem, device, &plan);
    require(planned == asked, "query and plan do not agree");
    require((plan != nullptr) == (planned == QUATT_OK), "a plan that is none");
    if (plan == nullptr) {
        return 0;
    }
    quatt_plan_info again{};
    again.struct_size = sizeof again;
    require(quatt_plan_get_info(plan, &again) == QUATT_OK &&
                again.workspace_bytes == info.workspace_bytes,
            "the plan is not what query promised");
    require(quatt_plan_describe(plan, nullptr, 0, &needed) == QUATT_OK, "a plan without a text");
    const std::string ran = info.device;
    const bool on_host = ran == "cpu" || ran == "emulate" || ran == "reference";
    const auto elements = [](const quatt_tensor& t) {
        std::int64_t n = 1;
        for (int i = 0; i < t.rank; i++) {
            n *= t.extent[i];
        }
        return n;
    };
    // Tokens of q and k, times heads and channels of one of them.
    const auto products = [&] {
        const std::int64_t channels =
            std::max<std::int64_t>(p.tensors.q.extent[p.tensors.q.rank - 1], 1);
        return elements(p.tensors.q) * (elements(p.tensors.k) / channels);
    };
    if (runnable && on_host && products() <= kMostProducts &&
        info.workspace_bytes <= kMostWorkspace) {
        const Block workspace = block_of(info.workspace_bytes, info.workspace_align);
        const quatt_status status =
            quatt_run(plan, &p.tensors, workspace.get(), info.workspace_bytes, nullptr);
        require(status == QUATT_OK || status == QUATT_INVALID_ARGUMENT,
                "run gives another status than quatt.h says");
        // The halves take what a run takes; what it refuses may be a matter of the other half.
        const Block packed = block_of(info.packed_bytes, info.workspace_align);
        const auto is_right = [&](quatt_status half) {
            return info.packed_bytes == 0 ? half == QUATT_UNSUPPORTED
                                          : half == QUATT_OK || half == status;
        };
        const quatt_status quantized =
            quatt_quantize(plan, &p.tensors, packed.get(), info.packed_bytes, workspace.get(),
                           info.workspace_bytes, nullptr);
        require(is_right(quantized), "quantize does not do as run");
        const quatt_status attended =
            quatt_attend(plan, &p.tensors, packed.get(), info.packed_bytes, workspace.get(),
                         info.workspace_bytes, nullptr);
        require(is_right(attended), "attend does not do as run");
    }
    quatt_plan_destroy(plan);
    return 0;
}
