// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The least that a program on sched_switch can do: what a probe costs is measured against it.
 */
#include "base.h"
#include <bpf/bpf_helpers.h>

SEC("tp_btf/sched_switch")
int on_switch(void *ctx)
{
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
