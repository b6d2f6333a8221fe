/* The C interface as a C99 program sees it. Returns 0, or the line of the first check that failed.
 */
#include <math.h>
#include <quatt/quatt.h>
#include <stdlib.h>
#include <string.h>

int quatt_test_c_api(void);

#define CHECK(condition)     \
    do {                     \
        if (!(condition)) {  \
            line = __LINE__; \
            goto done;       \
        }                    \
    } while (0)

static void count_messages(void* user, const char* message) {
    int* count = (int*)user;
    if (message != NULL && message[0] != 0) {
        ++*count;
    }
}

int quatt_test_c_api(void) {
    enum { BATCH = 2, TOKENS = 3, HEADS = 2, DIM = 4, SIZE = BATCH * TOKENS * HEADS * DIM };
    static float q[SIZE], k[SIZE], v[SIZE], out[SIZE], lse[BATCH * HEADS * TOKENS];
    const int64_t shape[4] = {BATCH, TOKENS, HEADS, DIM};
    const int64_t lse_shape[3] = {BATCH, HEADS, TOKENS};
    int line = 0, messages = 0, named_cpu = 0, i;
    size_t needed = 0;
    char text[512];
    void *block = NULL, *workspace = NULL, *packed_block = NULL, *packed = NULL;
    quatt_device device;
    quatt_problem problem;
    quatt_tensors tensors;
    quatt_plan_info info;
    quatt_plan* plan = NULL;
    quatt_kernel_info kernel;
    quatt_recipe recipe;
    struct {
        quatt_device known;
        char beyond[16];
    } later;

    /* Equal scores: each result is the mean of v over the tokens, and lse the log of their number.
     */
    for (i = 0; i < SIZE; i++) {
        q[i] = 1.0f;
        k[i] = 0.0f;
        v[i] = (float)(i / (HEADS * DIM) % TOKENS); /* 0, 1, 2: mean 1 */
    }
    CHECK(quatt_device_init(&device, "cpu") == QUATT_OK);
    quatt_problem_init(&problem);
    CHECK(device.struct_size == sizeof device);
    CHECK(problem.struct_size == sizeof problem);
    CHECK(problem.tensors.struct_size == sizeof problem.tensors);
    CHECK(problem.recipe.struct_size == sizeof problem.recipe);
    memset(&later, 0x5A, sizeof later); /* a later version's struct */
    CHECK(quatt_device_init_sized(&later.known, sizeof later, "cpu") == QUATT_OK);
    CHECK(later.known.struct_size == sizeof later && later.beyond[0] == 0 && later.beyond[15] == 0);
    CHECK(strcmp(problem.recipe.name, "bf16") == 0);
    CHECK(problem.window_left == -1 && problem.window_right == -1);
    CHECK(problem.causal == 0 && problem.rows == NULL && problem.kernel == NULL);
    CHECK(problem.tensors.lse.dtype == QUATT_NONE);

    problem.tensors.q = quatt_tensor_contiguous(q, QUATT_F32, 4, shape);
    problem.tensors.k = quatt_tensor_contiguous(k, QUATT_F32, 4, shape);
    problem.tensors.v = quatt_tensor_contiguous(v, QUATT_F32, 4, shape);
    problem.tensors.out = quatt_tensor_contiguous(out, QUATT_F32, 4, shape);
    problem.tensors.lse = quatt_tensor_contiguous(lse, QUATT_F32, 3, lse_shape);
    CHECK(problem.tensors.q.stride[0] == TOKENS * HEADS * DIM && problem.tensors.q.stride[3] == 1);
    problem.log = count_messages;
    problem.log_user = &messages;

    /* The scale was not set: refused, with a message of this thread. */
    memset(&info, 0, sizeof info);
    info.struct_size = sizeof info;
    CHECK(quatt_query(&problem, &device, &info) == QUATT_INVALID_ARGUMENT);
    CHECK(strstr(quatt_last_error(), "softmax_scale is 0") != NULL);
    CHECK(strcmp(quatt_status_name(QUATT_INVALID_ARGUMENT), "invalid argument") == 0);

    /* A copy outlives the message; a short one ends early, and with a 0. */
    needed = quatt_copy_last_error(NULL, 0);
    CHECK(needed == strlen(quatt_last_error()) + 1);
    memset(text, 'x', sizeof text);
    CHECK(quatt_copy_last_error(text, needed) == needed && text[needed] == 'x');
    CHECK(strcmp(text, quatt_last_error()) == 0);
    memset(text, 'x', sizeof text);
    CHECK(quatt_copy_last_error(text, 9) == needed && strcmp(text, "softmax_") == 0);
    CHECK(text[9] == 'x');
    CHECK(quatt_copy_last_error(text, 1) == needed && text[0] == 0 && text[1] == 'o');
    CHECK(quatt_copy_last_error(text, 0) == needed && text[1] == 'o');
    CHECK(quatt_copy_last_error(NULL, 100) == needed);
    quatt_copy_last_error(text, sizeof text);
    CHECK(quatt_query(NULL, &device, &info) == QUATT_INVALID_ARGUMENT);
    CHECK(strstr(text, "softmax_scale is 0") != NULL);
    CHECK(strcmp(quatt_last_error(), "problem is null") == 0);
    problem.softmax_scale = 0.5f;

    /* query, plan, run */
    CHECK(quatt_query(&problem, &device, &info) == QUATT_OK);
    CHECK(strncmp(info.kernel, "cpu", 3) == 0 && strcmp(info.device, "cpu") == 0);
    CHECK(info.workspace_bytes > 0 && info.workspace_align == 64 && info.fallback == 0);
    CHECK(quatt_plan_create(&problem, &device, &plan) == QUATT_OK && plan != NULL);
    memset(&info, 0, sizeof info);
    info.struct_size = sizeof info;
    CHECK(quatt_plan_get_info(plan, &info) == QUATT_OK);
    block = malloc(info.workspace_bytes + info.workspace_align);
    CHECK(block != NULL);
    workspace = (char*)block + (info.workspace_align - (uintptr_t)block % info.workspace_align);
    CHECK(quatt_run(plan, &problem.tensors, workspace, info.workspace_bytes - 1, NULL) ==
          QUATT_WORKSPACE_TOO_SMALL);
    CHECK(quatt_run(plan, &problem.tensors, workspace, info.workspace_bytes, NULL) == QUATT_OK);
    for (i = 0; i < SIZE; i++) {
        CHECK(fabs(out[i] - 1.0f) < 0.01);
    }
    for (i = 0; i < BATCH * HEADS * TOKENS; i++) {
        CHECK(fabs(lse[i] - log(TOKENS)) < 1e-5);
    }

    /* K and V packed once */
    CHECK(info.packed_bytes > 0);
    packed_block = malloc(info.packed_bytes + info.workspace_align);
    CHECK(packed_block != NULL);
    packed = (char*)packed_block +
             (info.workspace_align - (uintptr_t)packed_block % info.workspace_align);
    CHECK(quatt_quantize(plan, &problem.tensors, packed, info.packed_bytes, workspace,
                         info.workspace_bytes, NULL) == QUATT_OK);
    memset(out, 0xFF, sizeof out);
    tensors = problem.tensors;
    tensors.k.data = tensors.v.data = NULL;
    CHECK(quatt_attend(plan, &tensors, packed, info.packed_bytes, workspace, info.workspace_bytes,
                       NULL) == QUATT_OK);
    for (i = 0; i < SIZE; i++) {
        CHECK(fabs(out[i] - 1.0f) < 0.01);
    }

    /* texts */
    CHECK(quatt_explain(&problem, &device, NULL, 0, &needed) == QUATT_OK && needed > 1);
    CHECK(quatt_explain(&problem, &device, text, sizeof text, NULL) == QUATT_OK);
    CHECK(strstr(text, "recipe bf16") != NULL);
    CHECK(quatt_problem_describe(&problem, text, 7, &needed) == QUATT_OK);
    CHECK(strcmp(text, "recipe") == 0 && needed > 7);
    CHECK(quatt_plan_describe(plan, text, sizeof text, &needed) == QUATT_OK);
    CHECK(strstr(text, "kernel cpu") != NULL);

    /* one call, another recipe, a device without kernels */
    CHECK(quatt_recipe_init(&recipe, "fp8") == QUATT_OK);
    problem.recipe = recipe;
    memset(out, 0xFF, sizeof out);
    CHECK(quatt_attention(&problem, &device) == QUATT_OK);
    CHECK(fabs(out[SIZE - 1] - 1.0f) < 0.1);
    CHECK(quatt_device_init(&device, "cuda:1") == QUATT_OK);
    device.compute_major = 7; /* which no kernel is for, whatever this machine has */
    device.compute_minor = 5;
    CHECK(quatt_attention(&problem, &device) == QUATT_UNSUPPORTED);
    CHECK(strstr(quatt_last_error(), "cuda:1") != NULL && messages == 0);
    problem.allow_fallback = 1;
    CHECK(quatt_attention(&problem, &device) == QUATT_OK && messages == 1);

    /* tables */
    CHECK(quatt_kernel_count() >= 3 && quatt_recipe_count() == 7);
    memset(&kernel, 0, sizeof kernel);
    kernel.struct_size = sizeof kernel;
    for (i = 0; i < quatt_kernel_count(); i++) {
        CHECK(quatt_kernel_get_info(i, &kernel) == QUATT_OK && kernel.name != NULL);
        named_cpu |= strcmp(kernel.name, "cpu") == 0;
    }
    CHECK(named_cpu);
    CHECK(quatt_recipe_name(0) != NULL && quatt_recipe_name(7) == NULL);
    CHECK(strlen(quatt_version()) >= 5 && quatt_cpu_count() >= 1);
    CHECK(quatt_dtype_bytes(QUATT_BF16) == 2 && strcmp(quatt_dtype_name(QUATT_E4M3), "e4m3") == 0);
    {
        unsigned char codes[4];
        float back[4];
        CHECK(quatt_convert(codes, QUATT_E4M3, v, QUATT_F32, 4) == QUATT_OK);
        CHECK(quatt_convert(back, QUATT_F32, codes, QUATT_E4M3, 4) == QUATT_OK);
        CHECK(back[3] == v[3]);
    }
done:
    quatt_plan_destroy(plan);
    free(packed_block);
    free(block);
    return line;
}
