#!/bin/sh
# What `make demo` records, for about three seconds: threads in C++, inlined functions, a storm of short processes, and
# system calls. $1: directory of the built workloads.
set -eu
"$1/burn" 2 1.2 >/dev/null &
"$1/inline" 0.8 >/dev/null &
"$1/storm" 1 60 "$1/quick" 0.01 >/dev/null &
dd if=/dev/zero of=/dev/null bs=4k count=1000000 2>/dev/null
wait
