/* quatt: attention with 8- and 4-bit arithmetic. C interface (C99, C++11), the stable boundary of
 * the library.
 *
 * One call is three steps:
 *   quatt_query        Is the problem supported on this device, by which kernel, with how much
 *                      workspace? Answered on the host; no GPU is needed.
 *   quatt_plan_create  The same answer, kept: immutable, usable from several threads and streams
 *                      at once.
 *   quatt_run          Launches it: no allocation on the devices cpu and cuda, no synchronisation,
 *                      no global state. Where K and V serve several calls, quatt_quantize packs
 *                      them once and quatt_attend takes them from there.
 * quatt_attention does all three on a host device, and allocates the workspace.
 *
 * Errors. Every function that can fail returns a quatt_status; quatt_last_error() holds the message
 * of the last failed call of this thread, which names the argument, its value and what is allowed.
 * No exception leaves the library and nothing is printed.
 *
 * Units. Sizes in bytes say so in their names. Strides and extents are in elements, lengths in
 * tokens. Formulas of recipes, with their sources, are in docs/recipes.md.
 *
 * Structs start with struct_size. Fill them with the matching *_init function, then set what you
 * need: a field that a later version adds is then zero, which always means "not used". The library
 * compares struct_size, all of whose bytes are the caller's, with the size that it knows:
 * - Smaller: refused, and the message names both sizes. (No struct has grown since a release. A
 *   version in which one does will list the older sizes that it still takes.)
 * - Larger, of an input: taken if all bytes beyond the known ones are 0, else refused, since they
 *   ask for what this library does not have.
 * - Larger, of an output: taken; the bytes beyond the known ones are set to 0.
 * - Inside another struct (the recipe and the tensors of a problem): it must be equal.
 * - Above 16384: refused, since the struct was never initialised.
 * A struct without struct_size never changes.
 *
 * The *_init functions are compiled into the caller and tell the library the caller's sizes
 * (*_init_sized), so that a library of any version writes the caller's bytes and no others. Another
 * language calls *_init_sized with the sizes of its own declarations.
 */
#ifndef QUATT_QUATT_H
#define QUATT_QUATT_H

#include <stddef.h>
#include <stdint.h>

#define QUATT_VERSION_MAJOR 0
#define QUATT_VERSION_MINOR 1
#define QUATT_VERSION_PATCH 0

#if defined(__GNUC__)
#define QUATT_API __attribute__((visibility("default")))
#else
#define QUATT_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- status, errors, log -------------------------------------------------------------------- */

typedef int32_t quatt_status;
enum {
    QUATT_OK = 0,
    /* The problem or a value in a tensor is wrong by itself. */
    QUATT_INVALID_ARGUMENT = 1,
    /* The problem is well formed, but no kernel of this device takes it. */
    QUATT_UNSUPPORTED = 2,
    /* An allocation failed; nothing was changed. */
    QUATT_OUT_OF_MEMORY = 3,
    /* quatt_run got less workspace than the plan asks for, or it is misaligned. */
    QUATT_WORKSPACE_TOO_SMALL = 4,
    /* The device or its driver reported an error. */
    QUATT_DEVICE_ERROR = 5,
    /* A fault of the library. */
    QUATT_INTERNAL = 6
};

QUATT_API const char* quatt_version(void);                    /* "0.1.0" */
QUATT_API const char* quatt_status_name(quatt_status status); /* "invalid argument" */

/* Message of the last failed call of the calling thread; valid until its next call, so not where
 * another argument of the same expression is a call too. "" where there was none. */
QUATT_API const char* quatt_last_error(void);

/* The same message in memory of the caller: at most `capacity` bytes of it, always with a final 0
 * where capacity > 0. Returns the bytes that the whole message takes, final 0 included; with
 * (NULL, 0) it only counts. It does not replace the message itself. */
QUATT_API size_t quatt_copy_last_error(char* text, size_t capacity);

/* Gets a message that ends in 0 and is valid during the call. */
typedef void (*quatt_log_fn)(void* user, const char* message);

/* ---- tensors -------------------------------------------------------------------------------- */

typedef int32_t quatt_dtype;
enum {
    QUATT_NONE = 0, /* the tensor is absent */
    QUATT_F32 = 1,
    QUATT_BF16 = 2,
    QUATT_F16 = 3,
    QUATT_E4M3 = 4, /* E4M3FN: no infinity, NaN = 0x7F and 0xFF, largest number 448 */
    QUATT_I32 = 5
};

/* A strided view of memory that belongs to the caller. Inputs are never written. */
typedef struct quatt_tensor {
    void* data; /* may be null in a query */
    quatt_dtype dtype;
    int32_t rank; /* 0 to 4 */
    int64_t extent[4];
    /* In elements; may be negative, of inputs also 0. That of an extent of 1 is ignored. */
    int64_t stride[4];
} quatt_tensor;

/* A contiguous view (row-major) of up to four extents. */
QUATT_API quatt_tensor quatt_tensor_contiguous(void* data, quatt_dtype dtype, int32_t rank,
                                               const int64_t* extent);

QUATT_API size_t quatt_dtype_bytes(quatt_dtype dtype);     /* of an element; 0: unknown dtype */
QUATT_API const char* quatt_dtype_name(quatt_dtype dtype); /* "bf16" */

/* Converts `count` contiguous elements between f32, bf16, f16 and e4m3: round to nearest even; e4m3
 * saturates at 448. */
QUATT_API quatt_status quatt_convert(void* to, quatt_dtype to_dtype, const void* from,
                                     quatt_dtype from_dtype, int64_t count);

/* ---- recipes -------------------------------------------------------------------------------- */

/* How an operand is quantised: x ~ mean + 2^e * scale * decode(code) (docs/recipes.md). */
typedef int32_t quatt_format;
enum {
    QUATT_FORMAT_F32 = 1,
    QUATT_FORMAT_BF16 = 2,
    QUATT_FORMAT_F16 = 3,
    QUATT_FORMAT_E4M3 = 4,
    QUATT_FORMAT_INT8 = 5,
    QUATT_FORMAT_E2M1 = 6
};
enum { QUATT_SCALE_NONE = 0, QUATT_SCALE_F32 = 1, QUATT_SCALE_UE4M3 = 2 };
enum {
    QUATT_CENTER_NONE = 0,
    QUATT_CENTER_SEGMENT = 1, /* channel means of the segment */
    QUATT_CENTER_BLOCK = 2,   /* of each block of tokens */
    /* Medians of a sample of the segment. With a scale a channel (V) the scale comes from the
     * sample too, and tokens far from the centre are coded as they are. */
    QUATT_CENTER_SAMPLE = 3
};
enum {
    QUATT_ACCUMULATOR_FP32 = 0,
    /* 13 fraction bits below the largest exponent, cut toward zero, as FP8 on Hopper. */
    QUATT_ACCUMULATOR_HOPPER = 1
};
enum { QUATT_NORMALIZE_NONE = 0, QUATT_NORMALIZE_SEGMENT = 1, QUATT_NORMALIZE_BLOCK = 2 };

typedef struct quatt_operand_recipe {
    quatt_format format;
    int32_t scale_format;   /* QUATT_SCALE_* */
    int32_t group_tokens;   /* tokens that share a scale; 0 = the whole segment */
    int32_t group_channels; /* channels that share a scale; 0 = all of a head */
    /* 1: a token group is the 16 keys {8j + 4b + 0..3 : j = 0..3} of each 32 (b = 0, 1), as a lane
     * of an mma holds them. 0: contiguous tokens. */
    int32_t key_groups;
    /* QUATT_CENTER_*: what is subtracted first. */
    int32_t center;
    /* QUATT_NORMALIZE_*: segment or block is first divided by the power of two, 2^e, that brings
     * its amax into [1344, 2688). */
    int32_t normalize;
    int32_t block_tokens; /* block of center and normalize; 0 where neither is by block */
    float amax_target;    /* scale = amax / amax_target */
} quatt_operand_recipe;

/* The numeric truth of an attention call. A value: copy it, change fields, compare it. t is a score
 * in log2 units, m the integer that the exponents of a row refer to. */
typedef struct quatt_recipe {
    size_t struct_size;
    char name[24];
    quatt_operand_recipe q, k, v;

    /* P = 2^(t - m + w), rounded to this format; F32: not rounded. */
    quatt_format p_format;   /* F32, BF16, F16, E4M3 or E2M1 */
    int32_t overflow_format; /* the format that overflows: p_format, or for F32 E4M3 or E2M1 */
    int32_t exponent_bias;   /* w */

    /* When m, the running max, moves. A refresh takes the tile's maximum first: m rises to it, or
     * falls to it where it is refresh_rise or more too high. It comes in the first tile of an
     * interval, and in the tile after one that raised m by refresh_rise or more. */
    int32_t overflow_code;      /* a code of P (E2M1: of its scale) from here on raises m; 0x7E */
    int32_t promotion_interval; /* keys between such refreshes, and between promotions; 2304 */
    int32_t refresh_rise;       /* 8 */
    int32_t max_drop;           /* m never falls more than this below its highest value; 40 */
    int32_t refreshes;          /* 0: none: m moves by overflows only and never falls (bf16) */

    int32_t accumulator; /* QUATT_ACCUMULATOR_*: how sums of products are kept */
    int32_t promotes;    /* 1: sums of PV are added to a true fp32 sum once an interval */
    int32_t q_mean_term; /* 1: the quantised mean row of Q adds its scores back */

    /* Published, on N(0,1) data. */
    float expected_rel_l2;    /* relative L2 error of the output, mean over heads */
    float expected_lse_error; /* bound on |lse - lse of the original inputs| */
} quatt_recipe;

/* Named recipes: bf16 f16 fp8 fp8_head int8_fp8 nvfp4 nvfp4_fp8. */
QUATT_API quatt_status quatt_recipe_init_sized(quatt_recipe* recipe, size_t recipe_bytes,
                                               const char* name);
static inline quatt_status quatt_recipe_init(quatt_recipe* recipe, const char* name) {
    return quatt_recipe_init_sized(recipe, sizeof(quatt_recipe), name);
}
QUATT_API int32_t quatt_recipe_count(void);
QUATT_API const char* quatt_recipe_name(int32_t index); /* null outside 0 .. count - 1 */

/* ---- devices -------------------------------------------------------------------------------- */

typedef int32_t quatt_backend;
enum {
    QUATT_BACKEND_CPU = 0,
    QUATT_BACKEND_REFERENCE = 1, /* exact attention in fp64, on the host */
    QUATT_BACKEND_EMULATE = 2,   /* the recipe, step by step, on the host */
    QUATT_BACKEND_CUDA = 3,
    QUATT_BACKEND_SIMT = 4, /* a GPU kernel run by the SIMT executor on the host */
    QUATT_BACKEND_EMU = 5   /* a GPU kernel with emulated instructions on another GPU */
};

/* A description, not a handle: any GPU can be asked about on any machine. */
typedef struct quatt_device {
    size_t struct_size;
    quatt_backend backend;
    int32_t ordinal; /* CUDA device number */
    /* Compute capability of the GPU, or of the kernel's target; 0.0 = ask the driver. */
    int32_t compute_major;
    int32_t compute_minor;
    int32_t sm_count; /* 0 = unknown */
} quatt_device;

/* "cpu", "reference", "emulate", "cuda", "cuda:N", "simt:sm_120", "emu:sm_120", "emu:sm_120:N". */
QUATT_API quatt_status quatt_device_init_sized(quatt_device* device, size_t device_bytes,
                                               const char* name);
static inline quatt_status quatt_device_init(quatt_device* device, const char* name) {
    return quatt_device_init_sized(device, sizeof(quatt_device), name);
}

/* ---- problem -------------------------------------------------------------------------------- */

/* Bits of the status word: what was wrong with values that a query does not see. */
enum {
    /* GPUs: a segment ends outside its tensor or before it begins; it and those behind it count as
     * empty. */
    QUATT_DATA_BAD_CU_SEQLENS = 1,
    /* GPUs: a length outside 0 .. Sk; its item or segment counts as empty. */
    QUATT_DATA_BAD_KV_LENS = 2,
    /* Host devices: a finite value of q, k or v is beyond the 16-bit format of the recipe (f16:
     * above 65504). It counts as NaN. */
    QUATT_DATA_OVERFLOW = 4
};

/* What lazy softmax, the rule that moves m, did. `emulate` only, which adds to it: zero it first. A
 * warp tile is 16 query rows x one key tile. */
typedef struct quatt_counters {
    int64_t warp_tiles, overflow_warp_tiles, refresh_warp_tiles, drops;
} quatt_counters;

/* B: batch items or segments; Sq, Sk, Tq, Tk: tokens; Hq: query heads, a multiple of Hkv; D: head
 * size of q and k, Dv: of v and out, 1 to 256 (on GPUs 128).
 *
 *            dense             packed, cut by cu_seqlens
 *   q        [B, Sq, Hq, D]    [Tq, Hq, D]
 *   k        [B, Sk, Hkv, D]   [Tk, Hkv, D]
 *   v        [B, Sk, Hkv, Dv]  [Tk, Hkv, Dv]
 *   out      [B, Sq, Hq, Dv]   [Tq, Hq, Dv]
 *   lse      [B, Hq, Sq]       [Hq, Tq]
 *
 * Absent tensors have dtype QUATT_NONE. All memory is the device's (of host devices the host's). */
typedef struct quatt_tensors {
    size_t struct_size;
    quatt_tensor q, k, v; /* bf16, f16; on host devices also f32 and e4m3, in any mix */
    quatt_tensor out;     /* bf16, f16, f32 */
    /* f32, optional: natural log of the denominator of the true scores, sink included. */
    quatt_tensor lse;

    /* i32 [B + 1], packed only: the first token of each segment, and the end of the last one.
     * Absent q: one segment. Absent k: as q. */
    quatt_tensor cu_seqlens_q;
    quatt_tensor cu_seqlens_k;
    /* i32 [B], optional: only the first kv_lens[b] keys of an item or segment exist. Sk in what is
     * said of masks is then kv_lens[b]. */
    quatt_tensor kv_lens;

    /* f32 scalar, [Hkv] or [B, Hkv], of e4m3 only: value = descale * code. Absent: 1. */
    quatt_tensor q_descale, k_descale, v_descale;
    /* f32 [Hq], optional, host devices: one logit (natural log) a head, in the denominator only, so
     * in lse too. -inf: none. NaN and +inf are refused when it runs. */
    quatt_tensor sink;
    /* Room for a paged KV cache; refused by every kernel of this version. */
    quatt_tensor block_table;
    /* i32 [1], optional: set to 0, or to QUATT_DATA_* bits. */
    quatt_tensor status_word;
    /* f32, shaped as lse, optional, `reference` only: share of a row's mass in keys that lie 2^-11
     * or more below the largest of their aligned 64 keys (P in E4M3 keeps them badly). */
    quatt_tensor light_mass;

    /* Host copies of cu_seqlens, optional: bad values are then refused before the launch. They must
     * hold what the tensors hold: host devices compare, a GPU goes by the tensors. */
    const int32_t* cu_seqlens_q_host;
    const int32_t* cu_seqlens_k_host;
    quatt_counters* counters; /* optional, `emulate` only */
} quatt_tensors;

typedef struct quatt_head_range {
    int32_t first_head, head_count; /* whole GQA groups of query heads */
    quatt_recipe recipe;
} quatt_head_range;

/* A thread pool of the caller: calls body(context, i) once for each i from 0 to count - 1, in any
 * order and on any threads, the calling one included, and returns when all of these calls have
 * returned. Calling them one after the other is fine. It must not throw. A run calls it once or
 * more, with count at most the plan's `threads`; several threads that run a plan call it at once.
 * What the library sees of a broken contract (calls that are missing or too many, an early return,
 * an exception) makes the run fail with QUATT_INVALID_ARGUMENT; outputs and workspace then hold
 * anything. */
typedef void (*quatt_body_fn)(void* context, int64_t index);
typedef void (*quatt_parallel_for_fn)(void* user, int64_t count, quatt_body_fn body, void* context);

typedef struct quatt_problem {
    size_t struct_size;
    quatt_recipe recipe;
    /* Layouts; where data pointers are set, their alignment and overlap are checked too. */
    quatt_tensors tensors;

    float softmax_scale;  /* finite, > 0; 1/sqrt(D) is usual */
    int32_t causal;       /* 1: query i sees keys <= i + Sk - Sq (bottom-right aligned) */
    int64_t window_left;  /* query i sees keys >= i + Sk - Sq - window_left; -1 = open */
    int64_t window_right; /* query i sees keys <= i + Sk - Sq + window_right; -1 = open */

    int32_t key_tile;  /* 64, 96, 128, 192, 256; 0 = the kernel's own */
    int32_t splits;    /* keys cut at interval borders into so many parts; 0 = the kernel's own */
    int32_t zero_tail; /* packed, 1: rows from cu_seqlens_q[B] on become 0, lse -inf; 0: left */
    int32_t threads;   /* host devices; 0 = quatt_cpu_count() */

    /* `reference` and `emulate`, optional: only these query rows (of each item, or of the packed
     * stream), ascending; others are left untouched. Must stay valid while a plan uses it. */
    const int64_t* rows;
    int64_t row_count;

    /* Room for a recipe per head range; refused by every kernel of this version. */
    const quatt_head_range* policy;
    int32_t policy_count;

    /* 1: where the device has no kernel, it may compute the 16-bit recipe of the inputs instead, or
     * the CPU may serve (where it can reach the memory). The plan says so. */
    int32_t allow_fallback;
    int32_t strict;     /* 1: a fallback is an error, also where allowed */
    const char* kernel; /* force an entry of the support table, by name */
    quatt_log_fn log;   /* gets the reason of a fallback, once a plan */
    void* log_user;

    /* Host devices: where their loops run, instead of threads of the library; results have the same
     * bits. Both must stay valid while a plan uses them. Null: threads of the library. simt refuses
     * it; a kernel on a GPU has no use for it. */
    quatt_parallel_for_fn parallel_for;
    void* parallel_for_user;
    /* cpu: how much workspace to aim at. It takes as many KV heads at a time as threads keep busy,
     * but no more than fit, and always one. 0 = 512 MiB, and always two. */
    int64_t workspace_target_bytes;
} quatt_problem;

/* Recipe bf16, windows open, everything else absent. Where the library does not take these sizes,
 * the first call with the problem refuses it and names them. */
QUATT_API void quatt_problem_init_sized(quatt_problem* problem, size_t problem_bytes,
                                        size_t recipe_bytes, size_t tensors_bytes);
static inline void quatt_problem_init(quatt_problem* problem) {
    quatt_problem_init_sized(problem, sizeof(quatt_problem), sizeof(quatt_recipe),
                             sizeof(quatt_tensors));
}

/* ---- query, plan, run ----------------------------------------------------------------------- */

typedef struct quatt_plan_info {
    size_t struct_size;
    char kernel[32];
    char device[32];        /* that runs it: differs from the asked one after a fallback */
    size_t workspace_bytes; /* exact */
    size_t workspace_align; /* bytes */
    int32_t key_tile;
    int32_t splits;
    int32_t threads;
    int32_t fallback; /* 1: this is not a kernel of the device that was asked for */
    /* Exact, of packed K and V, aligned as the workspace. 0: the kernel keeps none with this recipe
     * (bf16 and f16 on GPUs, reference, emulate). */
    size_t packed_bytes;
} quatt_plan_info;

/* Supported: QUATT_OK and *info. Else QUATT_INVALID_ARGUMENT or QUATT_UNSUPPORTED, with all reasons
 * in quatt_last_error(), one a line. */
QUATT_API quatt_status quatt_query(const quatt_problem* problem, const quatt_device* device,
                                   quatt_plan_info* info);

/* The whole support table for this problem as text: what was chosen, and why each other entry was
 * not. Writes at most `capacity` bytes (with a final 0) and the full size, final 0 included, to
 * *needed. */
QUATT_API quatt_status quatt_explain(const quatt_problem* problem, const quatt_device* device,
                                     char* text, size_t capacity, size_t* needed);

/* A problem as text, likewise. */
QUATT_API quatt_status quatt_problem_describe(const quatt_problem* problem, char* text,
                                              size_t capacity, size_t* needed);

typedef struct quatt_plan quatt_plan;

/* *plan is null where the call fails. Destroy a plan once; null is fine. */
QUATT_API quatt_status quatt_plan_create(const quatt_problem* problem, const quatt_device* device,
                                         quatt_plan** plan);
QUATT_API void quatt_plan_destroy(quatt_plan* plan);

QUATT_API quatt_status quatt_plan_get_info(const quatt_plan* plan, quatt_plan_info* info);

/* A plan as text, as quatt_explain writes it. */
QUATT_API quatt_status quatt_plan_describe(const quatt_plan* plan, char* text, size_t capacity,
                                           size_t* needed);

/* Layouts of `tensors` must be those of the plan's problem; data pointers are read from here only.
 * The workspace is memory of the device, exclusively this run's until it is done. `stream` is a
 * CUDA stream; host devices ignore it and return when done. cpu, emulate and reference use at most
 * 64 KB of stack in each thread, compute under a floating-point state of their own, which they put
 * back, and may run in a child process of fork, where the first run makes new threads. */
QUATT_API quatt_status quatt_run(const quatt_plan* plan, const quatt_tensors* tensors,
                                 void* workspace, size_t workspace_bytes, void* stream);

/* quatt_run in two halves, with K and V packed in memory of the caller in between: quatt_quantize
 * once, quatt_attend as often as there are queries, with the bits that quatt_run has in out, lse
 * and status word. Errors, stream and workspace (`workspace_bytes` of the plan serves both; none is
 * kept between calls) are as in quatt_run. Besides, a plan whose packed_bytes is 0 is refused with
 * QUATT_UNSUPPORTED. QUATT_INVALID_ARGUMENT: `packed` is null, smaller than packed_bytes, not
 * aligned to workspace_align, or shares bytes with the workspace or with a tensor that the call
 * touches; on host devices also where it does not hold what quatt_quantize wrote, or was written
 * for another layout (the message names what differs).
 *
 * quatt_quantize reads k, v, cu_seqlens_k (where that is absent, cu_seqlens_q), kv_lens, k_descale
 * and v_descale, and writes `packed` and the status word. The data of q, out, lse and of what else
 * a problem has may be null, and is not touched.
 *
 * quatt_attend reads `packed` in place of k, v, k_descale and v_descale, whose data is not touched
 * and may be null or freed. cu_seqlens_k and kv_lens must hold what they held.
 *
 * What lies in `packed` depends on kind of device, kernel, recipe, the extents of k and v and the
 * number of segments. Any plan that has these may attend to it, from several threads and streams at
 * once: with other queries, query heads, masks, softmax_scale, out, with an lse or without. Packed
 * memory can be copied to another address of the same alignment.
 *
 * It begins with a header of 256 bytes, in which host devices keep what must be equal, and check
 * it. On a GPU the header cannot be read without a synchronisation, and nothing is checked: memory
 * that another layout was packed in gives wrong results. Inside a CUDA graph both may be captured.
 */
QUATT_API quatt_status quatt_quantize(const quatt_plan* plan, const quatt_tensors* tensors,
                                      void* packed, size_t packed_bytes, void* workspace,
                                      size_t workspace_bytes, void* stream);
QUATT_API quatt_status quatt_attend(const quatt_plan* plan, const quatt_tensors* tensors,
                                    const void* packed, size_t packed_bytes, void* workspace,
                                    size_t workspace_bytes, void* stream);

/* query + plan + workspace + run for a problem whose tensors carry data. Host devices only: on a
 * GPU the workspace is the caller's. */
QUATT_API quatt_status quatt_attention(const quatt_problem* problem, const quatt_device* device);

/* ---- support table -------------------------------------------------------------------------- */

/* A kernel on a device. The texts are for people to read. */
typedef struct quatt_kernel_info {
    size_t struct_size;
    const char* name;
    const char* device;
    const char* compute; /* compute capabilities that this build has code for; "" on host devices */
    const char* recipes;
    const char* head_dims;
    const char* dtypes;
    const char* features;
} quatt_kernel_info;

QUATT_API int32_t quatt_kernel_count(void);
QUATT_API quatt_status quatt_kernel_get_info(int32_t index, quatt_kernel_info* info);

/* "AVX2 FMA F16C AVX512F ..." */
QUATT_API const char* quatt_cpu_features(void);

/* Cores that the calling thread may use: those of its affinity mask, but no more than the CPU quota
 * of its control group (rounded up). */
QUATT_API int32_t quatt_cpu_count(void);

#ifdef __cplusplus
}
#endif
#endif
