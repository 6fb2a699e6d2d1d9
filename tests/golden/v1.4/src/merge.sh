#!/usr/bin/env bash
# How the files of tests/golden/v1.4 were made: captures of earlier versions, and one imported from perf, merged by the first
# program that could. It documents that, and is never used to make them again: readers must open what was written then.
#
#     merge.sh PROFILER DIR     leaves everything in DIR, which must be new
set -euo pipefail
profiler=$(readlink -f "$1")
golden=$(dirname "$(readlink -f "$0")")/../..
mkdir "$2"
cd "$2"
"$profiler" import "$golden/import/packed.data" -o imported.bprof
"$profiler" merge "$golden/v1.3/calls.bprof" imported.bprof "$golden/v1.2/family.bprof" -o hosts.bprof
rm imported.bprof
report() { "$profiler" report --symfs "$golden/v1.2/files" "$@" hosts.bprof; }
report --folded >hosts.folded
report --top 15 >hosts.top
report --standard >hosts.standard
