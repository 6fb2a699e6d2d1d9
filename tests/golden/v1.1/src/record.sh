#!/usr/bin/env bash
# How tests/golden/v1.1/paths.bprof was made. It documents that, and is never used to make it again: readers must open what
# was written then. (calls and family are those of v1, packed.)
#
#     record.sh PROFILER DIR     as root: builds the workload, records, and leaves everything in DIR, which must be new
#
# The program is recorded at /opt/bprof-golden, so that no path of the machine is in the capture.
set -euo pipefail

if (( $# != 2 )); then echo "usage: record.sh PROFILER DIR" >&2; exit 2; fi
profiler=$(readlink -f "$1")
src=$(dirname "$(readlink -f "$0")")
opt=/opt/bprof-golden
if [[ -e $opt ]]; then echo "$opt is there already: remove it first" >&2; exit 1; fi
mkdir "$2"
out=$(readlink -f "$2")
files=$out/files
trap 'rm -rf "$opt"' EXIT
mkdir -p "$files$opt"

(cd "$src" && gcc -std=gnu11 -O1 -g1 -gno-record-gcc-switches -Wall -Wextra -Werror -ffile-prefix-map="$src"=/golden \
    -ffreestanding -fno-stack-protector -fcf-protection=none -fno-asynchronous-unwind-tables -fno-ident \
    -fno-omit-frame-pointer -mno-omit-leaf-frame-pointer -fno-optimize-sibling-calls \
    -nostdlib -Wl,--build-id=sha1 -Wl,-z,noseparate-code -Wl,-z,norelro -Wl,-z,noexecstack \
    -static -fno-pie -o "$files$opt/paths" paths.c)
cp -r "$files$opt" "$opt"
"$profiler" record -q -F 199 -o "$out/paths.bprof" -- $opt/paths

rm -rf "$opt"
cd /
report() { "$profiler" report "$@" "$out/paths.bprof"; }
report --symfs "$files" --folded >"$out/paths.folded" 2>"$out/paths.verdict"
report --symfs "$files" --top 15 >"$out/paths.top"
report --symfs "$files" --standard >"$out/paths.standard"
report --symfs "$src" --folded >"$out/paths.nofiles.folded" 2>"$out/paths.nofiles.verdict"
ls -l "$out" "$files$opt"
