#!/usr/bin/env bash
# How the captures of tests/golden/v1.2 were made: the workloads of v1, recorded by the first program that wrote
# version 1.2. It documents that, and is never used to make them again: readers must open what was written then.
#
#     record.sh PROFILER DIR     as root: builds the workloads, records, and leaves everything in DIR, which must be new
set -euo pipefail
exec "$(dirname "$(readlink -f "$0")")/../../v1/src/record.sh" "$@"
