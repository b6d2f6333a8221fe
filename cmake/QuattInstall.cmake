# cmake --install: headers, both libraries, the tool, and what find_package and pkg-config read.
include(CMakePackageConfigHelpers)

install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/quatt" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
    FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")
install(TARGETS quatt EXPORT quatt_shared_targets LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
install(TARGETS quatt_static EXPORT quatt_static_targets ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}")
if(TARGET quatt_cli)
    install(TARGETS quatt_cli RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
    # What `quatt bench --peers` runs.
    install(FILES "${PROJECT_SOURCE_DIR}/bench/peers.py" "${PROJECT_SOURCE_DIR}/bench/quatt_c.py"
        DESTINATION "${CMAKE_INSTALL_DATADIR}/quatt/bench")
    install(DIRECTORY "${PROJECT_SOURCE_DIR}/bench/gpu" DESTINATION "${CMAKE_INSTALL_DATADIR}/quatt/bench"
        FILES_MATCHING PATTERN "*.py" PATTERN "__pycache__" EXCLUDE)
endif()
if(TARGET quatt_texts)
    set(quatt_texts_dir "${PROJECT_BINARY_DIR}/tools")
    install(FILES "${quatt_texts_dir}/quatt.1" DESTINATION "${CMAKE_INSTALL_MANDIR}/man1")
    install(FILES "${quatt_texts_dir}/quatt.bash" RENAME quatt
        DESTINATION "${CMAKE_INSTALL_DATADIR}/bash-completion/completions")
    install(FILES "${quatt_texts_dir}/_quatt" DESTINATION "${CMAKE_INSTALL_DATADIR}/zsh/site-functions")
    install(FILES "${quatt_texts_dir}/quatt.fish" DESTINATION "${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d")
endif()

set(quatt_cmake_dir "${CMAKE_INSTALL_LIBDIR}/cmake/quatt")
# Apart: what the static library needs need not be there for programs that use the shared one.
foreach(kind shared static)
    install(EXPORT quatt_${kind}_targets NAMESPACE quatt:: FILE quatt-${kind}-targets.cmake DESTINATION "${quatt_cmake_dir}")
endforeach()
set(quatt_toolkit_version "${CUDAToolkit_VERSION_MAJOR}.${CUDAToolkit_VERSION_MINOR}")
configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/quatt-config.cmake.in"
    "${PROJECT_BINARY_DIR}/quatt-config.cmake"
    INSTALL_DESTINATION "${quatt_cmake_dir}"
    NO_SET_AND_CHECK_MACRO)
# Before 1.0 a minor version may change the interface.
write_basic_package_version_file("${PROJECT_BINARY_DIR}/quatt-config-version.cmake" COMPATIBILITY SameMinorVersion)
install(FILES
    "${PROJECT_BINARY_DIR}/quatt-config.cmake"
    "${PROJECT_BINARY_DIR}/quatt-config-version.cmake"
    DESTINATION "${quatt_cmake_dir}")

# Relative to the .pc file, so that the installed tree can be moved.
file(RELATIVE_PATH quatt_prefix_from_pc
    "${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig" "${CMAKE_INSTALL_PREFIX}")
string(REGEX REPLACE "/$" "" quatt_prefix_from_pc "${quatt_prefix_from_pc}")
set(quatt_pc_private "")
if(QUATT_SIMT)
    string(APPEND quatt_pc_private " -lboost_context")
endif()
if(QUATT_HAVE_CUDA)
    string(APPEND quatt_pc_private " -lcudart_static -ldl -lrt")
endif()
configure_file("${PROJECT_SOURCE_DIR}/cmake/quatt.pc.in" "${PROJECT_BINARY_DIR}/quatt.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/quatt.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")

# Laid out as in the source, so that the links of README.md hold.
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" "${PROJECT_SOURCE_DIR}/README.md" "${PROJECT_SOURCE_DIR}/CHANGELOG.md"
    DESTINATION "${CMAKE_INSTALL_DOCDIR}")
install(DIRECTORY "${PROJECT_SOURCE_DIR}/docs" DESTINATION "${CMAKE_INSTALL_DOCDIR}")
