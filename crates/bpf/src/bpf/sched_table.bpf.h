/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The thread table: a thread's slot is searched at its id modulo the table size, then at three
 * places given by a hash of its id, then in the overflow map. Included by sched.bpf.c only.
 *
 * Two CPUs may want the same free slot. Where BPF has compare-and-swap, it is used to change `seq`
 * from even to odd; on older kernels the later CPU wins, and the other's thread is found missing at
 * its next switch (slot_raced).
 */

static __always_inline __u32 probe(__u32 tid, int i)
{
	return (i ? ((tid * 0x9e3779b1U) >> 7) + i : tid) & thread_mask;
}

static __noinline int copy_comm(struct sched_thread *t, struct task_struct *task)
{
	__builtin_memcpy(t->comm, task->comm, TASK_COMM_LEN);
	return 0;
}

/*
 * Whether to read the comm of a process again. Reading it at each switch would touch two more cache
 * lines. An exec usually comes early in the life of a process; a later change is noticed within 16
 * switches of its leader.
 */
static __always_inline bool comm_is_due(__u32 switches)
{
	return switches < 64 || !(switches % 16);
}

static __always_inline bool is_free(struct sched_thread *t)
{
	/* The reader has seen the end of a dead thread once a full epoch has passed after the epoch
	 * in which it died. */
	return !t->tid || (t->state == ST_DEAD && (__u16)(epoch - t->dead_epoch) >= 2);
}

/* Initialises the slot of a new thread, overwriting the previous one. `t->seq` is odd meanwhile. */
static __always_inline void begin(struct sched_thread *t, struct task_struct *vouched, __u64 now,
				  __u8 state)
{
	struct task_struct *task = unvouched(vouched);

	t->tgid = task->tgid;
	t->cpu = 0;
	t->state = state;
	t->moved = 0;
	t->since_ns = now;
	t->first_ns = now;
	t->run_delay_ns = 0;
	t->throttle_clock_ns = 0;
	t->throttle_queue = 0;
	t->cgroup_set = (__u64)task->cgroups;
	__builtin_memset(t->in_state_ns, 0, sizeof(t->in_state_ns));
	t->start_boot_ns = task->start_boottime;
	t->leader_boot_ns = task->group_leader->start_boottime;
	t->cgroup_id = cgroup_id_of(task);
	t->wait_max_ns = 0;
	t->switches = 0;
	t->left_unseen = 0;
	t->parent = task->real_parent->tgid;
	t->dead_epoch = 0;
	t->watched = 0;
	copy_comm(t, task);
	t->tid = task->pid;
}

/* Finds the slot of a thread; 0 = it has none. Uses the scratch area like lock_place(). */
static __always_inline struct sched_thread *find_only(struct sched_area *area, __u32 tid,
						      __u32 *found)
{
	volatile struct sched_scratch *scratch = &area->cpu.scratch;
	struct sched_thread *t;

	scratch->slot = NO_SLOT;
	for (int i = 0; i < PROBES; i++) {
		__u32 slot = probe(tid, i);

		t = bpf_map_lookup_elem(&threads, &slot);
		if (t && t->tid == tid && t->state != ST_DEAD) {
			scratch->slot = slot;
			break;
		}
	}
	*found = scratch->slot;
	if (*found != NO_SLOT)
		return bpf_map_lookup_elem(&threads, found);
	t = bpf_map_lookup_elem(&overflow, &tid);
	return t && t->state != ST_DEAD ? t : 0;
}

/*
 * The slot of that thread; NO_SLOT = it is in the overflow map, or has none. Unlike find_only() it
 * does not use the scratch area, which belongs to the switch. A global function is verified once,
 * and not once for each possible result.
 */
__noinline __u32 slot_of(__u32 tid)
{
	for (int i = 0; i < PROBES; i++) {
		__u32 slot = probe(tid, i);
		struct sched_thread *t = bpf_map_lookup_elem(&threads, &slot);

		if (t && t->tid == tid && t->state != ST_DEAD)
			return slot;
	}
	return NO_SLOT;
}

/* Makes `t->seq` odd, if the slot may be taken. */
static __always_inline bool lock_slot(struct sched_thread *t, bool unread, bool atomic)
{
	__u32 seq = t->seq;

	if ((seq & 1) || !(is_free(t) || (unread && t->state == ST_DEAD)))
		return false;
	if (atomic)
		return __sync_val_compare_and_swap(&t->seq, seq, seq + 1) == seq;
	t->seq = seq + 1;
	return true;
}

/* Locks the thread's first free candidate slot (`seq` is odd then); NO_SLOT = none is free. */
__noinline __u32 lock_free_place(__u32 tid)
{
	for (int i = 0; i < PROBES; i++) {
		__u32 slot = probe(tid, i);
		struct sched_thread *t = bpf_map_lookup_elem(&threads, &slot);

		if (t && lock_slot(t, false, true))
			return slot;
	}
	return NO_SLOT;
}

/*
 * Locks the first free candidate slot of a thread, or else the first one of a dead thread whose end
 * the reader has not seen. The result goes through the scratch area, so that the verifier sees one
 * continuation and not one per candidate.
 */
static __always_inline __u32 lock_place(struct sched_area *area, __u32 tid, bool atomic)
{
	volatile struct sched_scratch *scratch = &area->cpu.scratch;

	scratch->slot = NO_SLOT;
	for (int i = 0; i < 2 * PROBES; i++) {
		bool unread = i >= PROBES;
		__u32 slot = probe(tid, i % PROBES);
		struct sched_thread *t = bpf_map_lookup_elem(&threads, &slot);

		if (t && lock_slot(t, unread, atomic)) {
			area->cpu.lost.exit_unread += unread;
			scratch->slot = slot;
			break;
		}
	}
	return scratch->slot;
}

/* Allocates a slot for a thread that has none; `*found` = NO_SLOT if in the overflow map. */
static __always_inline struct sched_thread *claim(struct sched_area *area, struct task_struct *task,
						  __u64 now, __u8 state, bool atomic, __u32 *found)
{
	__u32 zero = 0, tid = task->pid, slot = lock_place(area, tid, atomic);
	struct sched_overflow *blank_entry;
	struct sched_thread *t;
	struct sched_waits *w;

	*found = slot;
	if (slot != NO_SLOT) {
		t = bpf_map_lookup_elem(&threads, &slot);
		w = bpf_map_lookup_elem(&waits, &slot);
		if (!t || !w)
			return 0;
		barrier();
		__builtin_memset(w, 0, sizeof(*w));
		begin(t, task, now, state);
		barrier();
		t->seq++;
		if (tells_sleeps && watch_new(t->tid, t->tgid, t->parent))
			t->watched = 1;
		return t;
	}
	blank_entry = bpf_map_lookup_elem(&blank, &zero);
	if (!blank_entry || bpf_map_update_elem(&overflow, &tid, blank_entry, BPF_ANY))
		return 0;
	t = bpf_map_lookup_elem(&overflow, &tid);
	if (!t)
		return 0;
	begin(t, task, now, state);
	/* Whoever is watched later is not found there by the reader. */
	t->watched = tells_sleeps;
	if (tells_sleeps)
		watch_new(t->tid, t->tgid, t->parent);
	area->cpu.overflows++;
	return t;
}

/* The slot of a thread that gets the CPU, if it is not at its first place. */
static __always_inline struct sched_thread *find_arriving(struct sched_area *area,
							  struct task_struct *next, __u64 now,
							  bool atomic, __u32 *slot)
{
	__u64 last_queued = next->sched_info.last_queued;
	__u64 since = last_queued && last_queued < now ? last_queued : now;
	struct sched_thread *t = find_only(area, next->pid, slot);

	if (t)
		return t;
	/* If it has never run, it exists since it was first queued. Otherwise it is accounted from
	 * its wake-up on. */
	if (!next->sched_info.pcount)
		since -= next->sched_info.run_delay;
	return claim(area, next, since, ST_QUEUED, atomic, slot);
}

/* The slot of a thread that leaves the CPU, if it is not the one recorded at its arrival. */
static __always_inline struct sched_thread *find_leaving(struct sched_area *area,
							 struct sched_thread *noted,
							 struct task_struct *prev, __u64 now,
							 bool atomic)
{
	__u64 since = prev->sched_info.last_arrival;
	struct sched_thread *t;
	__u32 slot;

	if (noted && noted->tid == area->cpu.tid && noted->tgid == prev->tgid &&
	    noted->state == ST_ON_CPU) {
		/* An exec by a thread other than the leader: it continues under the leader's id. */
		noted->seq++;
		barrier();
		noted->in_state_ns[ST_ON_CPU] += now - noted->since_ns;
		noted->since_ns = now;
		noted->state = ST_DEAD;
		noted->dead_epoch = epoch;
		barrier();
		noted->seq++;
		since = now;
	}
	t = find_only(area, prev->pid, &slot);
	if (t)
		return t;
	if (area->cpu.slot != NO_SLOT && area->cpu.tid == (__u32)prev->pid)
		area->cpu.lost.slot_raced++;
	if (since > now || !since)
		since = now;
	return claim(area, prev, since, ST_ON_CPU, atomic, &slot);
}

/*
 * Rarely called, hence out of line; and in two versions, because a verifier that does not know
 * compare-and-swap rejects it even in unreachable code.
 */
#define FIND_OUT_OF_LINE(suffix, atomic)                                                       \
	static __noinline struct sched_thread *find_arriving_##suffix(                         \
		struct sched_area *area, struct task_struct *next, __u64 now, __u32 *slot)     \
	{                                                                                      \
		return find_arriving(area, next, now, atomic, slot);                           \
	}                                                                                      \
	static __noinline struct sched_thread *find_leaving_##suffix(                          \
		struct sched_area *area, struct sched_thread *noted, struct task_struct *prev, \
		__u64 now)                                                                     \
	{                                                                                      \
		return find_leaving(area, noted, prev, now, atomic);                           \
	}

FIND_OUT_OF_LINE(atomic, true)
FIND_OUT_OF_LINE(plain, false)
