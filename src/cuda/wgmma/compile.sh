#!/bin/sh
# Runs a compiler, and fails where ptxas says that it serialised the wgmmas of a kernel: that costs half the speed, and
# to the compiler it is a remark.
#
# usage: compile.sh COMMAND [ARGUMENT...]
log="$(mktemp)" || exit 1
trap 'rm -f "$log"' EXIT
"$@" >"$log" 2>&1
status=$?
cat "$log" >&2
if grep -q serialized "$log"; then
    echo "error: ptxas serialised wgmma (above)" >&2
    exit 1
fi
exit $status
