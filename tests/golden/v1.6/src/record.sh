#!/usr/bin/env bash
# How the capture of tests/golden/v1.6 was made: `calls` of v1 without symbols and with unwind information, recorded and packed by
# the first program that wrote version 1.6. It documents that, and is never used to make it again: readers must open what was
# written then.
#
#     record.sh PROFILER DIR     as root: builds the workload, records, packs, and leaves everything in DIR, which must be new
set -euo pipefail

if (( $# != 2 )); then echo "usage: record.sh PROFILER DIR" >&2; exit 2; fi
profiler=$(readlink -f "$1")
src=$(dirname "$(readlink -f "$0")")
calls=$(readlink -f "$src/../../v1/src")/calls.c
opt=/opt/bprof-golden
if [[ -e $opt ]]; then echo "$opt is there already: remove it first" >&2; exit 1; fi
mkdir "$2"
out=$(readlink -f "$2")
files=$out/files
trap 'rm -rf "$opt"' EXIT
mkdir -p "$files$opt"
gcc -std=gnu11 -O1 -Wall -Wextra -Werror -ffreestanding -fno-stack-protector -fcf-protection=none -fasynchronous-unwind-tables \
    -fno-ident -fno-omit-frame-pointer -mno-omit-leaf-frame-pointer -fno-optimize-sibling-calls -static-pie -fpie \
    -nostdlib -Wl,--build-id=sha1 -Wl,-z,noseparate-code -Wl,-z,norelro -Wl,-z,noexecstack -s -o "$files$opt/calls" "$calls"
cp -r "$files$opt" "$opt"
cd /
"$profiler" record -q -F 99 -o "$out/nameless.bprof" -- $opt/calls
"$profiler" pack "$out/nameless.bprof"

# With the file and without it they are the same.
rm -rf "$opt"
report() { "$profiler" report "$@" "$out/nameless.bprof"; }
report --symfs "$files" --folded >"$out/nameless.folded" 2>"$out/nameless.verdict"
report --symfs "$files" --top 15 >"$out/nameless.top"
report --symfs "$files" --standard >"$out/nameless.standard" 2>"$out/nameless.warning"
report --symfs "$src" --folded >"$out/nameless.nofiles.folded" 2>"$out/nameless.nofiles.verdict"
ls -l "$out" "$files$opt"
