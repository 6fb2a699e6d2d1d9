#!/usr/bin/env bash
# How the captures of tests/golden/v1 were made. It documents them, and makes such captures for a later version of the
# format; those in v1 are never made again, because readers must open what was written then.
#
#     record.sh PROFILER DIR     as root: builds the workloads, records, and leaves everything in DIR, which must be new
#
# The programs are recorded at /opt/bprof-golden, so that no path of the machine is in the captures.
set -euo pipefail

if (( $# != 2 )); then echo "usage: record.sh PROFILER DIR" >&2; exit 2; fi
profiler=$(readlink -f "$1")
src=$(dirname "$(readlink -f "$0")")
opt=/opt/bprof-golden
if [[ -e $opt ]]; then echo "$opt is there already: remove it first" >&2; exit 1; fi
mkdir "$2"
out=$(readlink -f "$2")
files=$out/files
trap 'rm -rf "$opt" "$out/fifo"' EXIT
mkdir -p "$files$opt"

# No libc and no path of this machine; -g1 has lines and inlined functions and little else.
build() {
    local name=$1; shift
    (cd "$src" && gcc -std=gnu11 -O1 -g1 -gno-record-gcc-switches -Wall -Wextra -Werror -ffile-prefix-map="$src"=/golden \
        -ffreestanding -fno-stack-protector -fcf-protection=none -fno-asynchronous-unwind-tables -fno-ident \
        -fno-omit-frame-pointer -mno-omit-leaf-frame-pointer -fno-optimize-sibling-calls \
        -nostdlib -Wl,--build-id=sha1 -Wl,-z,noseparate-code -Wl,-z,norelro -Wl,-z,noexecstack \
        "$@" -o "$files$opt/$name")
}
build calls -static-pie -fpie calls.c
build family -static-pie -fpie family.c
build one -static -fno-pie -DBUSY=one_spin spin.c
build two -static -fno-pie -DBUSY=two_spin spin.c
cp -r "$files$opt" "$opt"

"$profiler" record -q -F 99 -o "$out/calls.bprof" -- $opt/calls

# Killed in the middle of the last phase, when more than a second of it is written. Reading to the end of the pipe waits
# for the workload, which ends by itself.
mkfifo "$out/fifo"
"$profiler" record -q -F 49 -o "$out/family.bprof" -- $opt/family >"$out/fifo" &
recorder=$!
disown
{
    read -r _
    sleep 1.7
    kill -KILL "$recorder"
    cat >/dev/null
} <"$out/fifo"

# What reports of them print. Where no recorded path is, names are missing and the reasons told.
rm -rf "$opt"
cd /
for name in calls family; do
    report() { "$profiler" report "$@" "$out/$name.bprof"; }
    report --symfs "$files" --folded >"$out/$name.folded" 2>"$out/$name.verdict"
    report --symfs "$files" --top 15 >"$out/$name.top"
    report --symfs "$files" --standard >"$out/$name.standard"
    report --symfs "$src" --folded >"$out/$name.nofiles.folded" 2>"$out/$name.nofiles.verdict"
done
ls -l "$out" "$files$opt"
