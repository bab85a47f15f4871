/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Which threads are watched: those whose sleeps are recorded. The reader chooses them; the further
 * threads of their processes are added when they are met. Included by sched.bpf.c only.
 */

/* Processes that a watched one starts are watched, too. */
__u32 watch_children = 0;

/* Threads that could not be watched, because watched ones have both of their places. */
__u64 watch_collisions = 0;

/* A thread is at its id modulo the table's size; if another one was there, at a second place. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, struct sched_watch);
} watches SEC(".maps");

/* Processes whose further threads are watched, too. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, __u32);
} watched_processes SEC(".maps");

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

/*
 * A thread is met for the first time: it is watched if its process is, or else if that of its
 * parent is and its children are watched, too.
 */
__noinline int watch_new(__u32 tid, __u32 tgid, __u32 parent)
{
	__u32 place = tid & thread_mask, mark = 1;
	struct sched_watch *w;

	if (watch_of(tid))
		return 0;
	if (!bpf_map_lookup_elem(&watched_processes, &tgid)) {
		if (!watch_children || !bpf_map_lookup_elem(&watched_processes, &parent))
			return 0;
		bpf_map_update_elem(&watched_processes, &tgid, &mark, BPF_ANY);
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
	w->owed_ns = 0;
	w->told_since_ns = 0;
	w->context = CTX_UNKNOWN;
	w->ended = 0;
	barrier();
	w->tid = tid;
	return 0;
}

/* The thread has ended: another one may take its place. With its first thread, a process is over.
 */
__noinline int watch_end(__u32 tid, __u32 tgid)
{
	struct sched_watch *w = watch_of(tid);

	if (!w)
		return 0;
	w->ended = 1;
	if (tid == tgid)
		bpf_map_delete_elem(&watched_processes, &tgid);
	return 0;
}
