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
option() { sed -n "s/^$1:[A-Z]*=//p" "$build_dir/CMakeCache.txt"; }

step "find_package, shared and static; C99, C++17 with quatt.h and C++20 with attention.hpp"
configure consumer "$consumer"
cmake --build "$scratch/consumer" >"$scratch/build.log" || {
    cat "$scratch/build.log"
    fail "the consumer"
}
for program in c cpp17 cpp20; do
    for kind in shared static; do
        "$scratch/consumer/${program}_$kind"
    done
done

step "find_package without a CUDA toolkit and Boost"
static_needs=""
if ldd "$shared" | grep -q libboost_context; then static_needs="Boost.Context"; fi
if grep -q cudart_static "$libdir/pkgconfig/quatt.pc"; then static_needs="libcudart_static of the CUDA toolkit [0-9.]+ or later"; fi
configure without "$source_dir/tests/install/without_toolkit" -DSTATIC_NEEDS="$static_needs" \
    -DCMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit=ON -DCMAKE_DISABLE_FIND_PACKAGE_Boost=ON
cmake --build "$scratch/without" >"$scratch/build.log"
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

step "pkg-config, shared and static; no folder of this machine in it"
export PKG_CONFIG_PATH="$libdir/pkgconfig"
if grep -nE '(^|[ =])(-L|-I)?/' "$libdir/pkgconfig/quatt.pc"; then fail "quatt.pc has an absolute path"; fi
strict=(-pedantic -Wall -Wextra -Werror)
read -ra flags <<<"$(pkg-config --cflags --libs quatt)"
"$CXX" -std=c++20 "${strict[@]}" "$consumer/main.cpp" "${flags[@]}" -o "$scratch/pc_cpp"
LD_LIBRARY_PATH="$libdir" "$scratch/pc_cpp"
read -ra flags <<<"$(pkg-config --static --cflags --libs quatt)"
"$CC" -std=c99 "${strict[@]}" "$consumer/main.c" "${flags[@]/#-lquatt/$archive}" -o "$scratch/pc_c_static"
"$scratch/pc_c_static"

step "add_subdirectory, without kernels for GPUs"
# The options of the build, and a folder as deep as its own: then ccache has most of it.
inside="$build_dir-subdirectory"
rm -rf "$inside"
CCACHE_NOHASHDIR=1 configure inside "$source_dir/tests/install/subdirectory" -B "$inside" -DQUATT_SOURCE="$source_dir" \
    -DQUATT_CCACHE="$(option QUATT_CCACHE)" -DQUATT_WERROR="$(option QUATT_WERROR)" -DCMAKE_BUILD_TYPE="$(option CMAKE_BUILD_TYPE)" \
    -DCMAKE_CXX_FLAGS_RELWITHDEBINFO="$(option CMAKE_CXX_FLAGS_RELWITHDEBINFO)"
CCACHE_NOHASHDIR=1 cmake --build "$inside" >"$scratch/build.log" || {
    cat "$scratch/build.log"
    fail "add_subdirectory"
}
"$inside/c_static"
"$inside/cpp17_shared"
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
