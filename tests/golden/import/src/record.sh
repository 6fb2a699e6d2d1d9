#!/usr/bin/env bash
# How the recordings of tests/golden/import were made: the workloads of tests/golden/v1.2, by Linux perf, with what perf itself
# says of each sample beside them. It documents them; they need not be made again.
#
#     record.sh DIR     as root, with perf: records, and leaves everything in DIR, which must be new
set -euo pipefail
files=$(dirname "$(readlink -f "$0")")/../../v1.2/files
opt=/opt/bprof-golden
mkdir "$1"
cd "$1"
cp -r "$files$opt" $opt
trap 'rm -rf $opt' EXIT

# As of a host that no test runs on: nothing of the machine the tests run on is then taken for what was recorded.
record() { unshare --uts sh -c 'hostname golden; exec perf record -q -N "$@"' sh "$@"; }

record -F 49 -g --sample-cpu -o calls.data -- $opt/calls
record -F 49 -g -z --buildid-mmap -k mono -o packed.data -- $opt/calls
record -F 19 -g --buildid-mmap -o - -- $opt/calls >stream.data
record -F 25 -g -o family.data -- $opt/family
record -F 9 --call-graph dwarf,512 -o dwarf.data -- $opt/calls

# PID/TID and addresses in the mapped file, leaf first, of each sample in order of time.
for name in calls packed stream family; do
    perf script -i $name.data -F pid,tid,ip | awk '
        /\// { if (line != "") print line; line = $1; next }
        NF   { line = line " " $1 }
        END  { print line }' >$name.samples
done
ls -l
