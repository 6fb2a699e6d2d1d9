#include "kernel_types.h"
#include <bpf/bpf_helpers.h>
char LICENSE[] SEC("license") = "Dual MIT/GPL";
