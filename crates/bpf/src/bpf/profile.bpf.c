// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * In what functions CPUs are found at the beats of a clock: the stacks of the user's program and of
 * the kernel.
 *
 * The clock is an hrtimer of each CPU, which is not served while interrupts are off: what runs then
 * counts for whatever turns them on. Each CPU's part of the log has one writer.
 */
#include "kern.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>
#include "profile.h"
#include "read.bpf.h"
#include "current.bpf.h"
#include "stack.bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, PROFILE_ENTRIES);
	__type(key, __u32);
	__type(value, struct profile_sample);
} entries SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct profile_cpu);
} cpus SEC(".maps");

SEC("perf_event")
int on_beat(struct bpf_perf_event_data *context)
{
	__u32 number = bpf_get_smp_processor_id(), place;
	struct profile_sample *sample;
	struct profile_cpu *cpu = bpf_map_lookup_elem(&cpus, &number);

	/* The idle task: the event leaves it out, but not on all kernels. */
	if (!cpu || !(__u32)bpf_get_current_pid_tgid())
		return 0;
	place = number * PROFILE_ENTRIES + cpu->written % PROFILE_ENTRIES;
	sample = bpf_map_lookup_elem(&entries, &place);
	if (!sample)
		return 0;
	sample->kernel = !!(NOTE_CURRENT(&cpu->cell, sample) & PF_KTHREAD);
	sample->kernel_frames = frames(
		bpf_get_stack(context, sample->kernel_stack, sizeof(sample->kernel_stack), 0));
	sample->user_frames = frames(
		bpf_get_stack(context, sample->user, sizeof(sample->user), BPF_F_USER_STACK));
	__sync_fetch_and_add(&cpu->written, 1);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
