# quatt_layer(<name> [SOURCES <file>...] [DEPENDS <layer>...])
#
# One layer of the library: target quatt_<name>, compiled once and linked into both the shared and the static library.
# A layer without sources is header-only. Code includes "layer/file.hpp" and <quatt/file.hpp>.
# DEPENDS states the direction of includes; tests/layers checks that the code keeps to it.
function(quatt_layer name)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;DEPENDS")
    set(target quatt_${name})
    list(TRANSFORM arg_DEPENDS PREPEND quatt_)

    if(NOT arg_SOURCES)
        add_library(${target} INTERFACE)
        target_include_directories(${target} INTERFACE "${PROJECT_SOURCE_DIR}/include" "${PROJECT_SOURCE_DIR}/src")
        target_link_libraries(${target} INTERFACE ${arg_DEPENDS})
        return()
    endif()

    add_library(${target} OBJECT ${arg_SOURCES})
    target_include_directories(${target} PUBLIC "${PROJECT_SOURCE_DIR}/include" PRIVATE "${PROJECT_SOURCE_DIR}/src")
    target_compile_definitions(${target} PRIVATE QUATT_BUILDING)
    target_link_libraries(${target} PRIVATE quatt_options ${arg_DEPENDS} Threads::Threads)
    set_target_properties(${target} PROPERTIES
        POSITION_INDEPENDENT_CODE ON
        CXX_EXTENSIONS OFF
        C_VISIBILITY_PRESET hidden
        CXX_VISIBILITY_PRESET hidden
        VISIBILITY_INLINES_HIDDEN ON)
    set_property(GLOBAL APPEND PROPERTY QUATT_OBJECTS $<TARGET_OBJECTS:${target}>)
endfunction()
