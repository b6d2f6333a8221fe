#!/usr/bin/env bash
# Installs a build, moves the installed tree elsewhere, and uses it as a stranger would: find_package and pkg-config,
# C and C++, shared and static.
#
# usage: run.sh SOURCE BUILD SCRATCH     (SCRATCH is emptied; CC and CXX name the compilers)
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

step "find_package, shared and static, C and C++"
cmake -S "$consumer" -B "$scratch/consumer" -DCMAKE_PREFIX_PATH="$prefix" \
    -DCMAKE_C_COMPILER="$CC" -DCMAKE_CXX_COMPILER="$CXX" >"$scratch/configure.log" || {
    cat "$scratch/configure.log"
    fail "find_package(quatt)"
}
cmake --build "$scratch/consumer"
for program in c_shared c_static cpp_shared cpp_static; do
    "$scratch/consumer/$program"
done

step "pkg-config, shared and static"
export PKG_CONFIG_PATH="$libdir/pkgconfig"
strict=(-pedantic -Wall -Wextra -Werror)
read -ra flags <<<"$(pkg-config --cflags --libs quatt)"
"$CC" -std=c99 "${strict[@]}" "$consumer/main.c" "${flags[@]}" -o "$scratch/pc_c"
"$CXX" -std=c++20 "${strict[@]}" "$consumer/main.cpp" "${flags[@]}" -o "$scratch/pc_cpp"
LD_LIBRARY_PATH="$libdir" "$scratch/pc_c"
LD_LIBRARY_PATH="$libdir" "$scratch/pc_cpp"
read -ra flags <<<"$(pkg-config --static --cflags --libs quatt)"
"$CC" -std=c99 "${strict[@]}" "$consumer/main.c" "${flags[@]/#-lquatt/$archive}" -o "$scratch/pc_c_static"
"$scratch/pc_c_static"

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
