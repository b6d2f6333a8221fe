# formats.device_compile: the formats compile as host and device code, where there is an nvcc.
# It calls nvcc itself: the architectures are its own, and the project may be configured without
# CUDA.
find_program(QUATT_NVCC nvcc PATHS /usr/local/cuda/bin)
mark_as_advanced(QUATT_NVCC)

set(quatt_device_compile_codes "")
if(QUATT_NVCC)
    execute_process(COMMAND "${QUATT_NVCC}" --help OUTPUT_VARIABLE quatt_nvcc_help ERROR_QUIET)
    set(quatt_device_compile_flags "")
    foreach(code 90a 120f)
        # 120f needs CUDA 12.9.
        if(quatt_nvcc_help MATCHES "'sm_${code}'")
            list(APPEND quatt_device_compile_codes ${code})
            list(APPEND quatt_device_compile_flags -gencode arch=compute_${code},code=sm_${code})
        else()
            message(STATUS "quatt: formats.device_compile leaves out sm_${code}: "
                "${QUATT_NVCC} does not know it")
        endif()
    endforeach()
endif()

if(quatt_device_compile_codes)
    add_test(NAME formats.device_compile
        COMMAND "${QUATT_NVCC}" -std=c++20 -Werror all-warnings -Xcompiler=-Wall,-Wextra
            ${quatt_device_compile_flags} -I "${PROJECT_SOURCE_DIR}/src"
            -c "${CMAKE_CURRENT_LIST_DIR}/device_compile.cu"
            -o "${CMAKE_CURRENT_BINARY_DIR}/device_compile.o")
else()
    add_test(NAME formats.device_compile
        COMMAND "${CMAKE_COMMAND}" -E echo "SKIPPED: no nvcc that knows sm_90a or sm_120f")
    set_tests_properties(formats.device_compile PROPERTIES SKIP_REGULAR_EXPRESSION "^SKIPPED")
endif()
set_tests_properties(formats.device_compile PROPERTIES LABELS cuda TIMEOUT 600)
