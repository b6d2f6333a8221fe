# Behind the README's block for add_subdirectory: the same from C, and from C++17, whose standard must stay.
add_executable(c_static "${CONSUMER}/main.c")
target_link_libraries(c_static PRIVATE quatt::static)
add_executable(cpp17_shared "${CONSUMER}/main17.cpp")
set_target_properties(cpp17_shared PROPERTIES CXX_STANDARD 17 CXX_STANDARD_REQUIRED ON CXX_EXTENSIONS OFF)
target_link_libraries(cpp17_shared PRIVATE quatt::quatt)
