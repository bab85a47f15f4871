/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The table of threads: a slot is looked for at the thread's id modulo the table, then at three
 * places that its hash tells, then in the overflow map. Included by sched.bpf.c only.
 *
 * Two CPUs may want the same free slot. Where BPF has compare-and-swap, `seq` is taken from even to
 * odd with it; on older kernels the later one wins and the other's thread is found missing at its
 * next switch (slot_raced).
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
 * Whether to look at the name of a process again. Looking at each switch would touch two more cache
 * lines. An exec comes early in the life of a process; later a new name is known 16 switches of its
 * leader after it was given.
 */
static __always_inline bool comm_is_due(__u32 switches)
{
	return switches < 64 || !(switches % 16);
}

static __always_inline bool is_free(struct sched_thread *t)
{
	/* The reader has seen the end of a dead thread once a whole epoch went by after its last
	 * one. */
	return !t->tid || (t->state == ST_DEAD && epoch - t->dead_epoch >= 2);
}

/* Writes a new thread over whatever the slot held. `t->seq` is odd meanwhile. */
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
	copy_comm(t, task);
	t->tid = task->pid;
}

/* The slot of a thread that has one. The scratch is used as in lock_place. */
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
 * The slot of that thread; NO_SLOT = it is in the overflow map, or nowhere. Unlike find_only() it
 * needs no scratch, which is the switch's. A global function is verified once, and not once for
 * each answer.
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

/* Its first place that is free, with `seq` odd; NO_SLOT = none is. */
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
 * The first of its places that is free; else, the first of a dead thread whose end the reader has
 * not seen. The answer goes through the scratch, so that the verifier sees one way on and not one
 * per place.
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

/* A slot for a thread that has none; NO_SLOT in `found` = in the overflow map. */
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
		return t;
	}
	blank_entry = bpf_map_lookup_elem(&blank, &zero);
	if (!blank_entry || bpf_map_update_elem(&overflow, &tid, blank_entry, BPF_ANY))
		return 0;
	t = bpf_map_lookup_elem(&overflow, &tid);
	if (!t)
		return 0;
	begin(t, task, now, state);
	area->cpu.overflows++;
	return t;
}

/* The slot of a thread that gets the CPU, when it is not at its first place. */
static __always_inline struct sched_thread *find_arriving(struct sched_area *area,
							  struct task_struct *next, __u64 now,
							  bool atomic, __u32 *slot)
{
	__u64 last_queued = next->sched_info.last_queued;
	__u64 since = last_queued && last_queued < now ? last_queued : now;
	struct sched_thread *t = find_only(area, next->pid, slot);

	if (t)
		return t;
	/* It has never run: it exists since it was first queued. Otherwise it is known from its
	 * wake-up on. */
	if (!next->sched_info.pcount)
		since -= next->sched_info.run_delay;
	return claim(area, next, since, ST_QUEUED, atomic, slot);
}

/* The slot of a thread that leaves the CPU, when it is not the one that was noted at its arrival.
 */
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
		/* exec by a thread that was not the leader: it goes on under the leader's id. */
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
 * Seldom run, hence out of line; and twice, because a verifier that does not know compare-and-swap
 * refuses it even where it cannot be reached.
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
