#!/usr/bin/env bash
# Builds the release archive twice, from two copies of the source in folders of different lengths, and compares the bytes.
#
# usage: run.sh SOURCE SCRATCH     (SCRATCH is emptied)   Exits with 77 where SOURCE is no git checkout.
#
# One build without ccache, one with it: a cache that hands out objects with a path in them shows too. Without CUDA, whose
# kernels would take as long as all the rest.
set -euo pipefail

source_dir="$1"
scratch="$2"
fail() {
    echo "FAILED: $*" >&2
    exit 1
}

cd "$source_dir"
SOURCE_DATE_EPOCH="$(git log -1 --format=%ct)" || exit 77
export SOURCE_DATE_EPOCH
rm -rf "$scratch"
mkdir -p "$scratch"
scratch="$(cd "$scratch" && pwd)"

# What is there now, committed or not; once, so that an edit meanwhile does not matter.
git ls-files -z --cached --others --exclude-standard |
    while IFS= read -r -d '' file; do
        if [ -f "$file" ]; then printf '%s\0' "$file"; fi
    done |
    tar --create --null --files-from=- --file "$scratch/source.tar"

archive_of() { # archive_of FOLDER UMASK [CMAKE ARGUMENT...]
    local folder="$scratch/$1"
    local mask="$2"
    shift 2
    mkdir -p "$folder"
    (umask "$mask" && tar -C "$folder" --extract --no-same-permissions --file "$scratch/source.tar")
    (umask "$mask" && cd "$folder" && CCACHE_BASEDIR="$folder" scripts/dist.sh "$@") >"$folder.log" 2>&1 || {
        tail -n 40 "$folder.log" >&2
        fail "scripts/dist.sh in $folder"
    }
    find "$folder/build/dist" -maxdepth 1 -name 'quatt-*.tar.gz'
}

first="$(archive_of a 022 -DQUATT_CCACHE=OFF)"
second="$(archive_of a_folder_with_a_longer_name 077 -DQUATT_CCACHE=ON)"
[ -s "$first" ] && [ "$(basename "$first")" = "$(basename "$second")" ] || fail "the archives '$first' and '$second'"
sha256sum "$first" "$second"

for archive in "$first" "$second"; do
    unpacked="$archive.unpacked"
    mkdir "$unpacked"
    tar -C "$unpacked" -xzf "$archive"
    (cd "$unpacked" && find . -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum) >"$archive.files"
    tar --full-time -tvf "$archive" >>"$archive.files"
done
cmp "$first" "$second" || {
    diff "$first.files" "$second.files" || true
    fail "two builds of the same source differ"
}

unpacked="$first.unpacked/$(basename "$first" .tar.gz)"
for file in include/quatt/quatt.h lib/libquatt.so lib/libquatt.a lib/cmake/quatt/quatt-config.cmake lib/pkgconfig/quatt.pc \
    bin/quatt share/man/man1/quatt.1 share/bash-completion/completions/quatt share/zsh/site-functions/_quatt \
    share/fish/vendor_completions.d/quatt.fish share/doc/quatt/LICENSE share/doc/quatt/README.md \
    share/doc/quatt/docs/design.md; do
    [ -s "$unpacked/$file" ] || fail "the archive has no $file"
done
if grep -rlF "$scratch" "$unpacked"; then fail "these files hold the path of the build"; fi
"$unpacked/bin/quatt" info >/dev/null || fail "the unpacked tool does not run"
echo "dist test passed: $(stat -c %s "$first") bytes"
