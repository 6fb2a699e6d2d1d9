#!/usr/bin/env bash
# How the captures of tests/golden/v1.3 were made: the workloads of v1, recorded by the first program that wrote
# version 1.3, with a CPU limit that no recording keeps: the rate falls after a second, and weights rise. It documents that,
# and is never used to make them again: readers must open what was written then.
#
# full.bprof: `ulimit -f 5; profiler record -F 2999 -o full.bprof -- /opt/bprof-golden/calls`, by a later program of this version.
# repaired.bprof: a third into calls.bprof bit 4 of a byte was flipped; then `profiler repair`.
#
#     record.sh PROFILER DIR     as root: builds the workloads, records, and leaves everything in DIR, which must be new
set -euo pipefail
limited=$(mktemp)
trap 'rm -f "$limited"' EXIT
cat >"$limited" <<END
#!/bin/sh
if [ "\$1" = record ]; then shift; exec "$(readlink -f "$1")" record --cpu-limit 0.01 "\$@"; fi
exec "$(readlink -f "$1")" "\$@"
END
chmod +x "$limited"
"$(dirname "$(readlink -f "$0")")/../../v1/src/record.sh" "$limited" "$2"
