# Sets QUATT_HAVE_CUDA, and enables the CUDA language where it is set.

set(QUATT_CUDA_ARCHITECTURES "80-real;90a-real;120-real" CACHE STRING
    "CUDA architectures to compile for (CMake's CUDA_ARCHITECTURES)")

set(QUATT_HAVE_CUDA OFF)
if(QUATT_CUDA STREQUAL "AUTO" OR QUATT_CUDA)
    # The toolkit's installer does not put nvcc on the PATH.
    find_program(QUATT_NVCC nvcc PATHS /usr/local/cuda/bin)
    mark_as_advanced(QUATT_NVCC)
    if(QUATT_NVCC)
        if(NOT CMAKE_CUDA_COMPILER)
            set(CMAKE_CUDA_COMPILER "${QUATT_NVCC}" CACHE FILEPATH "CUDA compiler")
        endif()
        set(CMAKE_CUDA_ARCHITECTURES ${QUATT_CUDA_ARCHITECTURES})
        enable_language(CUDA)
        set(QUATT_HAVE_CUDA ON)
    elseif(NOT QUATT_CUDA STREQUAL "AUTO")
        message(FATAL_ERROR "QUATT_CUDA is ON, but nvcc was found neither on the PATH nor in /usr/local/cuda/bin")
    endif()
endif()
message(STATUS "quatt: CUDA ${QUATT_HAVE_CUDA} (QUATT_CUDA=${QUATT_CUDA})")
