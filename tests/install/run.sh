#!/usr/bin/env bash
# Installs a build, moves the installed tree elsewhere, and uses it as a stranger would: find_package with and without what the
# static library needs, pkg-config, and the source by add_subdirectory; C99, C++17 and C++20, shared and static.
#
# usage: run.sh SOURCE BUILD SCRATCH     SCRATCH is emptied; CC and CXX name the compilers, LIBRARY_PATH has the folder of
#                                        libcudart_static.a where the build has kernels for GPUs
set -euo pipefail

source_dir="$1"
build_dir="$2"
scratch="$3"
consumer="$source_dir/tests/install/consumer"
: "${CC:=cc}" "${CXX:=c++}"

step() { echo "-- $*"; }
fail() {
    echo "FAILED: $*" >&2
    exit 1
}

rm -rf "$scratch"
mkdir -p "$scratch"

step "install, then move: nothing may hold the path that it was installed to"
cmake --install "$build_dir" --prefix "$scratch/first" >"$scratch/install.log"
prefix="$scratch/moved"
mv "$scratch/first" "$prefix"
shared="$(find "$prefix" -name libquatt.so)"
archive="$(find "$prefix" -name libquatt.a)"
libdir="$(dirname "$shared")"
[ -n "$shared" ] && [ -n "$archive" ] || fail "libquatt.so or libquatt.a is not installed"
for name in quatt.h attention.hpp tensor.hpp recipe.hpp status.hpp; do
    [ -f "$prefix/include/quatt/$name" ] || fail "include/quatt/$name is not installed"
done

step "the installed headers stand alone; the installed libraries define what quatt.h declares, and nothing else"
export PYTHONDONTWRITEBYTECODE=1
python3 "$source_dir/tests/abi/check_headers.py" "$prefix/include" "C:$CC" "CXX:$CXX"
readelf -d "$shared" | grep -q 'SONAME.*\[libquatt\.so\.0\]' || fail "the SONAME is not libquatt.so.0"
python3 "$source_dir/tests/abi/check_symbols.py" --header "$prefix/include/quatt/quatt.h" --cc "$CC" \
    --shared "$shared" --static "$archive"

configure() { # configure NAME SOURCE OPTION...: a project of a stranger
    cmake -S "$2" -B "$scratch/$1" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_C_COMPILER="$CC" -DCMAKE_CXX_COMPILER="$CXX" "${@:3}" \
        >"$scratch/$1.log" 2>&1 || {
        cat "$scratch/$1.log"
        fail "configuration of $1"
    }
}
build() { # build NAME [FOLDER]
    cmake --build "${2:-$scratch/$1}" >"$scratch/build.log" 2>&1 || {
        cat "$scratch/build.log"
        fail "the build of $1"
    }
}
readme() { python3 "$source_dir/tests/docs/block.py" "$source_dir/README.md" "$@"; }
option() { sed -n "s/^$1:[A-Z]*=//p" "$build_dir/CMakeCache.txt"; }

step "find_package: C99, C++17 with quatt.h and C++20 with attention.hpp, shared and static (the README has static C++20)"
configure consumer "$consumer"
build consumer
for program in c_shared c_static cpp17_shared cpp17_static cpp20_shared; do
    "$scratch/consumer/$program"
done

step "find_package without a CUDA toolkit and Boost"
static_needs=""
if ldd "$shared" | grep -q libboost_context; then static_needs="Boost.Context"; fi
if grep -q cudart_static "$libdir/pkgconfig/quatt.pc"; then static_needs="libcudart_static of the CUDA toolkit [0-9.]+ or later"; fi
configure without "$source_dir/tests/install/without_toolkit" -DSTATIC_NEEDS="$static_needs" \
    -DCMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit=ON -DCMAKE_DISABLE_FIND_PACKAGE_Boost=ON
build without
"$scratch/without/c_shared"
if grep -rnE '/(usr|opt)/|[Cc]uda-?[0-9]' "$libdir/cmake" | grep -v "_IMPORT_PREFIX"; then
    fail "the CMake package names a folder of the machine that built it"
fi

step "attention.hpp in C++17 says what it needs"
if echo '#include <quatt/attention.hpp>' | "$CXX" -std=c++17 -I "$prefix/include" -fsyntax-only -x c++ - 2>"$scratch/error.log"; then
    fail "attention.hpp passed as C++17"
fi
head -n 3 "$scratch/error.log" | grep -q 'error.*quatt/attention.hpp needs C++20' || {
    cat "$scratch/error.log"
    fail "the first error does not say what is needed"
}

step "pkg-config from C, static; no folder of this machine in quatt.pc"
export PKG_CONFIG_PATH="$libdir/pkgconfig"
if grep -nE '(^|[ =])(-L|-I)?/' "$libdir/pkgconfig/quatt.pc"; then fail "quatt.pc has an absolute path"; fi
strict=(-pedantic -Wall -Wextra -Werror)
read -ra flags <<<"$(pkg-config --static --cflags --libs quatt)"
"$CC" -std=c99 "${strict[@]}" "$consumer/main.c" "${flags[@]/#-lquatt/$archive}" -o "$scratch/pc_c_static"
"$scratch/pc_c_static"

step "README.md: find_package, shared and static"
mkdir -p "$scratch/app" "$scratch/inside" "$scratch/home"
readme compiled cpp >"$scratch/app/app.cpp"
readme "cmake: find_package" cmake >"$scratch/app/CMakeLists.txt"
configure readme_shared "$scratch/app"
build readme_shared
"$scratch/readme_shared/app" >"$scratch/app.log"
sed -i 's/COMPONENTS shared/COMPONENTS static/; s/quatt::quatt/quatt::static/' "$scratch/app/CMakeLists.txt"
configure readme_static "$scratch/app"
build readme_static
if ldd "$scratch/readme_static/app" | grep libquatt; then fail "the static program loads libquatt.so"; fi
"$scratch/readme_static/app" >"$scratch/app.log"

step "README.md: the compiler and pkg-config"
ln -s "$prefix" "$scratch/home/quatt"
readme "shell: pkg-config" sh | sed "s|^c++ |$CXX |" >"$scratch/app/build.sh"
(cd "$scratch/app" && HOME="$scratch/home" bash -euo pipefail build.sh)
"$scratch/app/app" >"$scratch/app.log"
if ldd "$scratch/app/app_static" | grep libquatt; then fail "the static program loads libquatt.so"; fi
"$scratch/app/app_static" >"$scratch/app.log"

step "README.md: add_subdirectory, without kernels for GPUs"
{
    echo 'cmake_minimum_required(VERSION 3.25)'
    echo 'project(inside LANGUAGES C CXX)'
    readme "cmake: add_subdirectory" cmake | sed "s|third_party/quatt|\"$source_dir\" quatt|"
    echo "set(CONSUMER \"$consumer\")"
    cat "$source_dir/tests/install/subdirectory.cmake"
} >"$scratch/inside/CMakeLists.txt"
cp "$scratch/app/app.cpp" "$scratch/inside"
# The options of the build, and a folder as deep as its own: then ccache has most of it (Makefile).
inside="$build_dir-subdirectory"
rm -rf "$inside"
configure inside "$scratch/inside" -B "$inside" -DQUATT_CCACHE="$(option QUATT_CCACHE)" -DQUATT_WERROR="$(option QUATT_WERROR)" \
    -DCMAKE_BUILD_TYPE="$(option CMAKE_BUILD_TYPE)" -DCMAKE_CXX_FLAGS_RELWITHDEBINFO="$(option CMAKE_CXX_FLAGS_RELWITHDEBINFO)"
grep -q 'CUDA OFF' "$scratch/inside.log" || fail "kernels for GPUs are on"
build inside "$inside"
for program in app c_static cpp17_shared; do
    "$inside/$program" >"$scratch/app.log"
done
rm -rf "$inside"

step "one version everywhere"
version="$(pkg-config --modversion quatt)"
grep -q "^## \[$version\]" "$source_dir/CHANGELOG.md" || fail "CHANGELOG.md has no section [$version]"
[ "$("$scratch/pc_c_static" --version)" = "$version $version" ] ||
    fail "quatt.h and quatt_version() say '$("$scratch/pc_c_static" --version)', quatt.pc says $version"

if [ -x "$build_dir/tools/quatt" ]; then
    step "the installed tool finds its library"
    "$prefix/bin/quatt" info >"$scratch/info.log" || fail "quatt info"
    step "the installed tool finds its program for measurements, which finds its own files"
    # Without torch it says so and exits with 1.
    "$prefix/bin/quatt" bench --peers --list >"$scratch/peers.log" || true
    grep -q "^shapes: " "$scratch/peers.log" || fail "quatt bench --peers --list"
    (cd "$prefix/share/quatt/bench" && PYTHONDONTWRITEBYTECODE=1 python3 -c "import quatt_c, gpu.peer_tables") ||
        fail "the modules of peers.py"
    for file in man/man1/quatt.1 bash-completion/completions/quatt zsh/site-functions/_quatt \
        fish/vendor_completions.d/quatt.fish; do
        [ -s "$prefix/share/$file" ] || fail "share/$file is not installed"
    done
fi
echo "install test passed"
