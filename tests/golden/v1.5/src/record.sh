#!/usr/bin/env bash
# How the captures of tests/golden/v1.5 were made: the workloads of v1, recorded by the first program that wrote version 1.5:
# calls by unwind information and frame pointers (of the former there is .debug_frame), family along frame pointers. It documents that, and is
# never used to make them again: readers must open what was written then.
#
#     record.sh PROFILER DIR     as root: builds the workloads, records, and leaves everything in DIR, which must be new
set -euo pipefail
either=$(mktemp)
trap 'rm -f "$either"' EXIT
cat >"$either" <<END
#!/bin/sh
profiler=$(readlink -f "$1")
if [ "\$1" != record ]; then exec "\$profiler" "\$@"; fi
shift
case "\$*" in
*family*) exec "\$profiler" record --unwind fp "\$@" ;;
*) exec "\$profiler" record --unwind auto "\$@" ;;
esac
END
chmod +x "$either"
"$(dirname "$(readlink -f "$0")")/../../v1/src/record.sh" "$either" "$2"
