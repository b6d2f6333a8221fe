/* Attention over values that are all 1 gives 1. */
#include <quatt/quatt.h>
#include <stdio.h>
#include <string.h>

enum { TOKENS = 5, HEADS = 2, HEAD_DIM = 8, COUNT = TOKENS * HEADS * HEAD_DIM };

int main(int argc, char** argv) {
    const int64_t extent[3] = {TOKENS, HEADS, HEAD_DIM};
    float q[COUNT], k[COUNT], v[COUNT], out[COUNT];
    quatt_problem problem;
    quatt_device device;
    int i;

    if (argc > 1 && strcmp(argv[1], "--version") == 0) {
        printf("%d.%d.%d %s\n", QUATT_VERSION_MAJOR, QUATT_VERSION_MINOR, QUATT_VERSION_PATCH,
               quatt_version());
        return 0;
    }
    for (i = 0; i < COUNT; i++) {
        q[i] = (float)(i % 7) - 3.0f;
        k[i] = (float)(i % 5) - 2.0f;
        v[i] = 1.0f;
        out[i] = 0.0f;
    }

    if (quatt_device_init(&device, "reference") != QUATT_OK) {
        fprintf(stderr, "quatt_device_init: %s\n", quatt_last_error());
        return 1;
    }
    quatt_problem_init(&problem);
    problem.softmax_scale = 0.35f;
    problem.tensors.q = quatt_tensor_contiguous(q, QUATT_F32, 3, extent);
    problem.tensors.k = quatt_tensor_contiguous(k, QUATT_F32, 3, extent);
    problem.tensors.v = quatt_tensor_contiguous(v, QUATT_F32, 3, extent);
    problem.tensors.out = quatt_tensor_contiguous(out, QUATT_F32, 3, extent);
    if (quatt_attention(&problem, &device) != QUATT_OK) {
        fprintf(stderr, "quatt_attention: %s\n", quatt_last_error());
        return 1;
    }
    for (i = 0; i < COUNT; i++) {
        if (out[i] < 0.999999f || out[i] > 1.000001f) {
            fprintf(stderr, "out[%d] is %g, not 1\n", i, (double)out[i]);
            return 1;
        }
    }
    printf("C: quatt %s works\n", quatt_version());
    return 0;
}
