#!/usr/bin/env bash
# Makes the release archive quatt-VERSION-linux-MACHINE.tar.gz: headers, both libraries, the tool with its manual page and
# completions, CMake package and pkg-config file, docs and licence. One commit, compiler and set of packages give one
# sequence of bytes, in whatever folder it is built (tests/dist).
#
# usage: scripts/dist.sh [CMAKE ARGUMENT...]     (as in scripts/dist.sh -DQUATT_CUDA=ON, which names the archive ...-cuda)
#   SOURCE_DATE_EPOCH  time stamp of everything in the archive, in seconds (default: of the last commit)
#   JOBS               processes at a time (default: number of cores)
set -euo pipefail
cd "$(dirname "$0")/.."

build=build/dist
if [ -z "${SOURCE_DATE_EPOCH:-}" ]; then
    SOURCE_DATE_EPOCH="$(git log -1 --format=%ct)" || {
        echo "dist: this is no git checkout, so SOURCE_DATE_EPOCH has to be set" >&2
        exit 1
    }
fi
# Compilers read it too.
export SOURCE_DATE_EPOCH LC_ALL=C TZ=UTC

cmake --preset dist "$@" >"/dev/null"
cmake --build "$build" -j "${JOBS:-$(nproc)}"

version="$(sed -n 's/^CMAKE_PROJECT_VERSION:STATIC=//p' "$build/CMakeCache.txt")"
name="quatt-$version-linux-$(uname -m)"
if grep -q '^QUATT_CUDA:[A-Z]*=ON$' "$build/CMakeCache.txt"; then name+=-cuda; fi
rm -rf "$build/stage" "$build/$name.tar.gz"
cmake --install "$build" --prefix "$PWD/$build/stage/$name" >"$build/install.log"

# Order, owners, times and modes are fixed; gzip -n leaves the time out of its own header.
tar -C "$build/stage" --create --format=gnu --sort=name --owner=0 --group=0 --numeric-owner \
    --mtime="@$SOURCE_DATE_EPOCH" --mode=u=rwX,go=rX "$name" |
    gzip -n -9 >"$build/$name.tar.gz"
(cd "$build" && sha256sum "$name.tar.gz")
