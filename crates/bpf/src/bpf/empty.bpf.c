// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Programs that do nothing, on the hooks of the probes: the baseline of overhead measurements.
 */
#include "base.h"
#include <bpf/bpf_helpers.h>

SEC("tp_btf/sched_switch")
int on_switch(void *ctx)
{
	return 0;
}

SEC("tp_btf/block_bio_queue")
int on_queue(void *ctx)
{
	return 0;
}

SEC("tp_btf/block_io_start")
int on_start(void *ctx)
{
	return 0;
}

SEC("tp_btf/block_rq_insert")
int on_insert(void *ctx)
{
	return 0;
}

SEC("tp_btf/block_rq_issue")
int on_issue(void *ctx)
{
	return 0;
}

SEC("tp_btf/block_rq_complete")
int on_complete(void *ctx)
{
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
