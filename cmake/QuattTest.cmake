# quatt_test(<name> SOURCES <file>... [LIBRARIES <target>...] [DEFINITIONS <definition>...])
#
# A GoogleTest program test_<name>, with RapidCheck at hand (<rapidcheck/gtest.h>), linked to the static library, so that
# tests may include internal headers ("recipe/recipe.hpp"). Each case becomes a ctest case <name>.<Suite>.<Case>.
# Tests read QUATT_TEST_DATA_DIR (a string literal) and, from the environment, QUATT_TEST_SCALE: a factor on the number of
# random cases, below 1 in the sanitizer runs.
find_package(GTest REQUIRED)
find_package(rapidcheck REQUIRED)
include(GoogleTest)

function(quatt_test name)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LIBRARIES;DEFINITIONS")
    set(target test_${name})
    add_executable(${target} ${arg_SOURCES})
    target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}/src" "${PROJECT_SOURCE_DIR}/tests")
    target_compile_definitions(${target} PRIVATE
        QUATT_TEST_DATA_DIR="${PROJECT_SOURCE_DIR}/tests/data" ${arg_DEFINITIONS})
    target_link_libraries(${target} PRIVATE
        quatt_options ${arg_LIBRARIES} quatt::static GTest::gtest_main rapidcheck rapidcheck_gtest)
    set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF)
    # PRE_TEST lists the cases when ctest runs, and not while building: a build then needs no working test program.
    gtest_discover_tests(${target}
        TEST_PREFIX "${name}."
        DISCOVERY_MODE PRE_TEST
        DISCOVERY_TIMEOUT 60
        PROPERTIES TIMEOUT 600 LABELS unit)
endfunction()

# quatt_test_folder([LIBRARIES <target>...] [DEFINITIONS <definition>...])
#
# One quatt_test named like the current folder, from all its .cpp and .c files; nothing while there are none.
macro(quatt_test_folder)
    file(GLOB quatt_test_sources CONFIGURE_DEPENDS
        "${CMAKE_CURRENT_SOURCE_DIR}/*.cpp" "${CMAKE_CURRENT_SOURCE_DIR}/*.c")
    if(quatt_test_sources)
        get_filename_component(quatt_test_name "${CMAKE_CURRENT_SOURCE_DIR}" NAME)
        quatt_test(${quatt_test_name} SOURCES ${quatt_test_sources} ${ARGN})
    endif()
endmacro()
