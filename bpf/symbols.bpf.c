/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* Names kernel addresses for the recorder, off the sampling path: those that were sampled, each once. The kernel has
 * no cheaper way of it; the text of all of /proc/kallsyms costs as much as half a minute of sampling. */
#include "kernel_types.h"
#include <bpf/bpf_helpers.h>
#include "symbols.h"

struct named named = {};
struct landmarks landmarks = {};

#define UNUSED __attribute__((unused))

static const char with_symbol[] = "%pS";

static long name_one(__u64 i, void *ctx UNUSED)
{
	__u64 at = *(volatile __u32 *)&named.bytes;
	__u64 address;
	long len;

	if (i >= NAMED_AT_ONCE || at > NAMES_BYTES - LONGEST_NAME)
		return 1;
	address = named.addresses[i];
	len = bpf_snprintf(named.text + at, LONGEST_NAME, with_symbol, &address, sizeof(address));
	if (len <= 0 || len > LONGEST_NAME) {
		/* Cut short it is no name. */
		named.text[at] = 0;
		len = 1;
	}
	named.bytes = at + len;
	named.done = i + 1;
	return 0;
}

SEC("syscall")
int name_addresses(void *ctx UNUSED)
{
	named.done = 0;
	named.bytes = 0;
	bpf_loop(named.asked, name_one, NULL, 0);
	return 0;
}

#define FIND(symbol, where) bpf_kallsyms_lookup_name(symbol, sizeof(symbol), 0, &landmarks.where)

/* Refused, with zeros left, to whom /proc/kallsyms shows no addresses. */
SEC("syscall")
int find_landmarks(void *ctx UNUSED)
{
	FIND("_stext", stext);
	FIND("_etext", etext);
	/* Given back after boot, but for what idle tasks return to. */
	FIND("_sinittext", sinittext);
	FIND("_einittext", einittext);
	FIND("__cpuidle_text_start", idle_start);
	FIND("__cpuidle_text_end", idle_end);
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
