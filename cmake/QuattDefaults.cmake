# Build type, language standard, warnings and sanitizers: what holds for every target of the project.

get_property(quatt_multi_config GLOBAL PROPERTY GENERATOR_IS_MULTI_CONFIG)
if(PROJECT_IS_TOP_LEVEL AND NOT quatt_multi_config AND NOT CMAKE_BUILD_TYPE)
    set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()

if(QUATT_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
    find_program(QUATT_CCACHE_PROGRAM ccache)
    mark_as_advanced(QUATT_CCACHE_PROGRAM)
    if(QUATT_CCACHE_PROGRAM)
        foreach(language C CXX CUDA)
            set(CMAKE_${language}_COMPILER_LAUNCHER "${QUATT_CCACHE_PROGRAM}")
        endforeach()
    endif()
endif()

set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
find_package(Threads REQUIRED)

# Compiler options of our own targets. An interface library, so that a project which adds quatt as a subdirectory keeps
# its own flags.
add_library(quatt_options INTERFACE)
target_compile_features(quatt_options INTERFACE cxx_std_20)
# A fused multiply-add rounds once where the source says twice. Results must be the same bits with and without FMA
# hardware, so contraction happens only where the code asks for it with std::fma.
target_compile_options(quatt_options INTERFACE $<$<COMPILE_LANGUAGE:C,CXX>:-ffp-contract=off>)

if(QUATT_REPRODUCIBLE)
    # __FILE__ and std::source_location give paths from the source folder. Not in other builds, whose debug information a
    # debugger follows from anywhere.
    foreach(folder "${PROJECT_SOURCE_DIR}" "${PROJECT_BINARY_DIR}")
        target_compile_options(quatt_options INTERFACE $<$<COMPILE_LANGUAGE:C,CXX>:-ffile-prefix-map=${folder}/=>)
    endforeach()
    # The room for the build's own rpath stays in the installed program; from $ORIGIN it has one length everywhere.
    set(CMAKE_BUILD_RPATH_USE_ORIGIN ON)
    # D: no times, owners and modes of the objects in an archive, whatever ar's default.
    set(CMAKE_CXX_ARCHIVE_CREATE "<CMAKE_AR> qcD <TARGET> <LINK_FLAGS> <OBJECTS>")
    set(CMAKE_CXX_ARCHIVE_APPEND "<CMAKE_AR> qD <TARGET> <LINK_FLAGS> <OBJECTS>")
    set(CMAKE_CXX_ARCHIVE_FINISH "<CMAKE_RANLIB> -D <TARGET>")
endif()

set(quatt_warnings -Wall -Wextra -Wpedantic -Wshadow -Wundef -Wcast-qual -Wvla)
set(quatt_cxx_warnings -Wfloat-conversion -Wnon-virtual-dtor -Woverloaded-virtual -Wextra-semi)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    list(APPEND quatt_cxx_warnings -Wduplicated-cond -Wlogical-op)
    if(CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
        # GCC 12 reports "restrict" overlaps inside std::string's own operator+ (GCC bug 105651).
        list(APPEND quatt_cxx_warnings -Wno-restrict)
    endif()
endif()
if(QUATT_WERROR)
    list(APPEND quatt_warnings -Werror)
endif()
target_compile_options(quatt_options INTERFACE
    "$<$<COMPILE_LANGUAGE:C,CXX>:${quatt_warnings}>"
    "$<$<COMPILE_LANGUAGE:CXX>:${quatt_cxx_warnings}>")

if(QUATT_SANITIZE STREQUAL "address")
    set(quatt_sanitizers address,undefined)
elseif(QUATT_SANITIZE STREQUAL "thread")
    set(quatt_sanitizers thread)
elseif(NOT QUATT_SANITIZE STREQUAL "")
    message(FATAL_ERROR "QUATT_SANITIZE is \"${QUATT_SANITIZE}\"; it may be empty, address or thread")
endif()
if(QUATT_SANITIZE)
    # The instrumentation makes GCC lose track of initialisation; the plain builds keep this warning.
    target_compile_options(quatt_options INTERFACE
        -fsanitize=${quatt_sanitizers} -fno-sanitize-recover=all -fno-omit-frame-pointer
        $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
    target_link_options(quatt_options INTERFACE -fsanitize=${quatt_sanitizers})
endif()
if(QUATT_FUZZ)
    if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
        message(FATAL_ERROR "QUATT_FUZZ needs clang, not ${CMAKE_CXX_COMPILER_ID}; use the preset fuzz")
    endif()
    # Counts what an input reaches. Only the fuzzers themselves link libFuzzer, which has a main.
    target_compile_options(quatt_options INTERFACE $<$<COMPILE_LANGUAGE:C,CXX>:-fsanitize=fuzzer-no-link>)
endif()
if(NOT CMAKE_BUILD_TYPE STREQUAL "Release")
    target_compile_definitions(quatt_options INTERFACE _GLIBCXX_ASSERTIONS)
endif()
