# The two libraries, made of the objects of all layers: quatt::quatt (shared) and quatt::static.

get_property(quatt_objects GLOBAL PROPERTY QUATT_OBJECTS)
if(NOT quatt_objects)
    # CMake refuses a library without any source.
    file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/empty.cpp" CONTENT "")
    set(quatt_objects "${PROJECT_BINARY_DIR}/empty.cpp")
endif()

add_library(quatt SHARED ${quatt_objects})
add_library(quatt::quatt ALIAS quatt)
add_library(quatt_static STATIC ${quatt_objects})
add_library(quatt::static ALIAS quatt_static)

foreach(target quatt quatt_static)
    target_include_directories(${target} PUBLIC
        $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
        $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
    set_target_properties(${target} PROPERTIES
        OUTPUT_NAME quatt
        LINKER_LANGUAGE CXX
        ARCHIVE_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}"
        LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}")
endforeach()
set_target_properties(quatt PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR})
set_target_properties(quatt_static PROPERTIES EXPORT_NAME static)

target_link_libraries(quatt PRIVATE Threads::Threads)
target_link_libraries(quatt_static PUBLIC Threads::Threads)
if(QUATT_HAVE_CUDA)
    find_package(CUDAToolkit REQUIRED)
    target_link_libraries(quatt PRIVATE CUDA::cudart_static)
    target_link_libraries(quatt_static PUBLIC CUDA::cudart_static)
endif()
if(QUATT_SIMT)
    target_link_libraries(quatt PRIVATE Boost::context)
    target_link_libraries(quatt_static PUBLIC Boost::context)
endif()

# Hidden visibility does not reach the templates of the C++ standard library that get instantiated here; the version
# script does. It also gives symbols a version, which lets a later SONAME live beside this one.
set(quatt_version_script "${PROJECT_SOURCE_DIR}/cmake/quatt.map")
target_link_options(quatt PRIVATE "LINKER:--version-script=${quatt_version_script}")
set_target_properties(quatt PROPERTIES LINK_DEPENDS "${quatt_version_script}")
if(QUATT_SANITIZE)
    foreach(target quatt quatt_static)
        target_link_options(${target} PUBLIC $<BUILD_INTERFACE:-fsanitize=${quatt_sanitizers}>)
    endforeach()
else()
    # A symbol that is missing fails here, and not in the first program that uses it.
    target_link_options(quatt PRIVATE LINKER:-z,defs)
endif()
