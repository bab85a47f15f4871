/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Which threads are watched: those whose sleeps are recorded. Included by the programs, which
 * define thread_mask.
 */
#ifndef DEBURR_WATCH_BPF_H
#define DEBURR_WATCH_BPF_H

/* A thread is at its id modulo the table's size; if another one was there, at a second place. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, struct sched_watch);
} watches SEC(".maps");

/* Must be the same in sched/sleep.rs. */
static __always_inline __u32 second_place(__u32 tid)
{
	return ((tid * 0x9e3779b1U) >> 7) & thread_mask;
}

/*
 * The watch on this thread, if it is watched. The second place is looked at only if the first one
 * is, or was, another thread's.
 */
static __always_inline struct sched_watch *watch_of(__u32 tid)
{
	__u32 place = tid & thread_mask;
	struct sched_watch *w = bpf_map_lookup_elem(&watches, &place);

	if (likely(!w || !w->tid))
		return 0;
	if (w->tid != tid || w->ended) {
		place = second_place(tid);
		w = bpf_map_lookup_elem(&watches, &place);
	}
	return w && w->tid == tid && !w->ended ? w : 0;
}

#endif
