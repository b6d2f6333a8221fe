/* usage: query MAJOR MINOR: prints which kernel takes fp8 on a GPU of this compute capability, or
 * why none does. */
#include <quatt/quatt.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char** argv) {
    const int64_t extent[4] = {1, 64, 1, 64};
    const quatt_tensor x = quatt_tensor_contiguous(NULL, QUATT_BF16, 4, extent);
    quatt_problem problem;
    quatt_device device;
    quatt_plan_info info = {sizeof info};

    if (argc != 3 || quatt_device_init(&device, "cuda") != QUATT_OK) {
        return 2;
    }
    device.compute_major = atoi(argv[1]);
    device.compute_minor = atoi(argv[2]);
    quatt_problem_init(&problem);
    if (quatt_recipe_init(&problem.recipe, "fp8") != QUATT_OK) {
        return 2;
    }
    problem.tensors.q = problem.tensors.k = problem.tensors.v = problem.tensors.out = x;
    problem.softmax_scale = 0.125f;
    if (quatt_query(&problem, &device, &info) != QUATT_OK) {
        printf("%s\n", quatt_last_error());
        return 1;
    }
    printf("chosen: %s\n", info.kernel);
    return 0;
}
