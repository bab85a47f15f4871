/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Which threads are added to the watched ones: the further threads of processes that the reader
 * chose, when they are met. Included by sched.bpf.c only.
 */

#include "watch.bpf.h"

/* Processes that a watched one starts are watched, too. */
__u32 watch_children = 0;

/* Threads that could not be watched, because watched ones have both of their places. */
__u64 watch_collisions = 0;

/* Processes whose further threads are watched, too, with the sleep of their ended threads that no
 * record stands for. Below 0 for a while, if two new threads took it at once. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, __s64);
} watched_processes SEC(".maps");

/*
 * A thread is met for the first time: it is watched if its process is, or else if that of its
 * parent is and its children are watched, too. Returns whether it is.
 */
__noinline int watch_new(__u32 tid, __u32 tgid, __u32 parent)
{
	__u32 place = tid & thread_mask;
	__s64 owed = 0, *left;
	struct sched_watch *w;

	if (watch_of(tid))
		return 1;
	left = bpf_map_lookup_elem(&watched_processes, &tgid);
	if (!left) {
		if (!watch_children || !bpf_map_lookup_elem(&watched_processes, &parent))
			return 0;
		bpf_map_update_elem(&watched_processes, &tgid, &owed, BPF_ANY);
	}
	w = bpf_map_lookup_elem(&watches, &place);
	if (w && w->tid && !w->ended) {
		place = second_place(tid);
		w = bpf_map_lookup_elem(&watches, &place);
	}
	if (!w || (w->tid && !w->ended)) {
		__sync_fetch_and_add(&watch_collisions, 1);
		return 0;
	}
	owed = left ? *left : 0;
	if (owed > 0)
		__sync_fetch_and_add(left, -owed);
	w->owed_ns = owed > 0 ? owed : 0;
	w->told_since_ns = 0;
	w->context = CTX_UNKNOWN;
	w->client = 0;
	w->ended = 0;
	barrier();
	w->tid = tid;
	return 1;
}

/*
 * The thread has ended, whose task is at that address: another one may take its place. What it is
 * owed goes to the next thread of its process: of threads that live for less than a record's sleep
 * there would be no record otherwise. A process is over with the last of its threads: its first
 * one may end before, and does if another one executes a program.
 */
__noinline int watch_end(__u32 tid, __u32 tgid, __u64 task)
{
	struct sched_watch *w = watch_of(tid);
	__s64 *left = bpf_map_lookup_elem(&watched_processes, &tgid);
	__u64 signal;

	if (!w)
		return 0;
	if (left)
		__sync_fetch_and_add(left, w->owed_ns);
	signal = ADDRESS_AT(&w->client, struct task_struct, task, signal);
	if (!NUMBER_AT(struct signal_struct, signal, live.counter))
		bpf_map_delete_elem(&watched_processes, &tgid);
	w->client = 0;
	barrier();
	w->ended = 1;
	return 0;
}
