/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Behind whom a thread waited: each CPU keeps the last RUNS stays of threads on it, and a wait is laid over them.
 * Included by sched.bpf.c only.
 *
 * Most waits lie within one stay; a few more are walked exactly. The rest of a longer wait is sampled at POINTS
 * random moments, one in each equal part, so that the blame is unbiased and its sum exact.
 */

struct blamed {
	__u64 local_ns;		 /* on this CPU, up to now */
	__u64 elsewhere_ns;	 /* on another one, before */
	__u64 elsewhere_from_ns; /* and since when, if known */
	__u32 elsewhere_cpu;	 /* NO_SLOT = not known which */
	__u32 victim;
	__u64 idle_ns; /* out: while that CPU idled or woke up */
};

static __always_inline __u32 wait_bucket(__u64 ns)
{
	/* ns / 1000 for what fits into 32 bits, by multiplication: off by at most 1 in 10^6 at the edges */
	__u64 us = ns >> 32 ? ns / 1000 : (ns * 4294968) >> 32;
	__u32 bucket = 0, shift;

	if (us >> WAIT_BUCKETS)
		return WAIT_BUCKETS - 1;
	shift = (us > 0xffff) << 4, us >>= shift, bucket |= shift;
	shift = (us > 0xff) << 3, us >>= shift, bucket |= shift;
	shift = (us > 0xf) << 2, us >>= shift, bucket |= shift;
	shift = (us > 0x3) << 1, us >>= shift, bucket |= shift;
	bucket += (us > 1) + (us > 0);
	return bucket < WAIT_BUCKETS ? bucket : WAIT_BUCKETS - 1;
}

static __noinline int spill_over(struct sched_area *area, __u32 victim, __u32 culprit, __u64 ns)
{
	struct sched_spill_key key = { .victim = victim, .culprit = culprit };
	__u64 *sum = bpf_map_lookup_elem(&spill, &key);

	if (sum) {
		__sync_fetch_and_add(sum, ns);
		return 0;
	}
	area->cpu.spills++;
	if (bpf_map_update_elem(&spill, &key, &ns, BPF_NOEXIST)) {
		/* Full, or another CPU was first. */
		sum = bpf_map_lookup_elem(&spill, &key);
		if (sum)
			__sync_fetch_and_add(sum, ns);
		else
			area->cpu.lost.blame_table_full_ns += ns;
	}
	return 0;
}

static __always_inline void add_culprit(struct sched_area *area, struct sched_blame *blame, struct blamed *b,
					__u32 tgid, __u64 ns)
{
	__u32 k = (tgid ^ (tgid >> 3)) & (CULPRITS - 1);
	struct sched_culprit *c = &blame->culprit[k], *d = &blame->culprit[k ^ (CULPRITS / 2)];

	if (!tgid) {
		b->idle_ns += ns;
		return;
	}
	if (c->tgid != tgid && d->tgid == tgid)
		c = d;
	else if (c->tgid && c->tgid != tgid)
		c = d;
	if (c->tgid && c->tgid != tgid) {
		spill_over(area, b->victim, tgid, ns);
		return;
	}
	c->tgid = tgid;
	c->ns += ns;
}

/* Who ran on that CPU at that moment: the oldest stay that ends after it, by a search without branches. */
static __always_inline __u32 ran_at(struct sched_area *area, __u64 head, __u64 moment)
{
	__u32 age = 1;

#pragma unroll
	for (__u32 step = RUNS / 2; step; step >>= 1) {
		__u64 end = area->run[(head - age - step) & (RUNS - 1)].end_ns;

		age += step & -(__u32)(end > moment);
	}
	return area->run[(head - age) & (RUNS - 1)].tgid;
}

/* Samples [from, from + ns) of `where`, if a long look-up is affordable; else carries it. */
static __noinline int blame_sampled(struct sched_area *area, struct sched_area *where,
				    struct sched_blame *blame, struct blamed *b, __u64 from)
{
	__u64 ns = b->elsewhere_ns, now = area->cpu.since_ns, weight, part;

	if (now < area->cpu.long_blame_after_ns) {
		blame->unsampled_ns += ns;
		return 0;
	}
	area->cpu.long_blame_after_ns = now + LONG_BLAME_NS;
	weight = (ns + blame->unsampled_ns) / POINTS;
	part = ns / POINTS;
	/* What the division leaves over stays for the next time. */
	blame->unsampled_ns = (ns + blame->unsampled_ns) - weight * POINTS;
	for (int i = 0; i < POINTS; i++) {
		__u64 moment = from + part * i + ((part * (bpf_get_prandom_u32() >> 16)) >> 16);

		add_culprit(area, blame, b, ran_at(where, where->cpu.head, moment), weight);
	}
	return 0;
}

/* A wait on this CPU that several stays share. */
static __noinline int blame_walk(struct sched_area *area, struct sched_blame *blame, struct blamed *b)
{
	__u64 now = area->cpu.since_ns, from = now - b->local_ns, end = now;
	__u64 head = area->cpu.head;
	struct blamed rest = *b;

	for (int i = 1; i <= EXACT_RUNS; i++) {
		__u64 start = area->run[(head - i - 1) & (RUNS - 1)].end_ns;
		__u32 tgid = area->run[(head - i) & (RUNS - 1)].tgid;

		if (start < from)
			start = from;
		if (start < end)
			add_culprit(area, blame, b, tgid, end - start);
		end = start;
		if (end <= from)
			return 0;
	}
	rest.elsewhere_ns = end - from;
	rest.idle_ns = 0;
	blame_sampled(area, area, blame, &rest, from);
	b->idle_ns += rest.idle_ns;
	return 0;
}

static __always_inline void find_culprits(struct sched_area *area, struct sched_blame *blame, struct blamed *b)
{
	struct sched_run *last = &area->run[(area->cpu.head - 1) & (RUNS - 1)];
	struct sched_run *before = &area->run[(area->cpu.head - 2) & (RUNS - 1)];

	if (b->local_ns) {
		if (before->end_ns <= area->cpu.since_ns - b->local_ns)
			add_culprit(area, blame, b, last->tgid, b->local_ns);
		else
			blame_walk(area, blame, b);
	}
	if (b->elsewhere_ns) {
		__u32 cpu_id = b->elsewhere_cpu;
		struct sched_area *where = bpf_map_lookup_elem(&areas, &cpu_id);

		if (where)
			blame_sampled(area, where, blame, b, b->elsewhere_from_ns);
		else
			blame->migrated_ns += b->elsewhere_ns;
	}
}

static __always_inline void count_wait(struct sched_area *area, struct sched_thread *t, __u32 slot, __u64 queued,
				       struct blamed *b, __u64 now)
{
	struct sched_waits *w = bpf_map_lookup_elem(&waits, &slot);
	struct sched_blame *blame;
	__u32 bucket;

	if (!w) {
		__u32 tid = t->tid;
		struct sched_overflow *entry = bpf_map_lookup_elem(&overflow, &tid);

		if (!entry)
			return;
		/* Or the compiler adds the offset before the check, which the verifier refuses. */
		asm volatile("" : "+r"(entry));
		w = &entry->waits;
	}
	bucket = wait_bucket(queued);
	if (bucket < WAIT_BUCKETS) {
		w->count[bucket]++;
		w->ns[bucket] += queued;
	}
	blame = &w->blame[epoch & 1];
	if (blame->epoch != epoch) {
		__builtin_memset(blame, 0, sizeof(*blame));
		blame->epoch = epoch;
	}
	b->victim = t->tgid;
	find_culprits(area, blame, b);
	t->wakeup_latency_ns += b->idle_ns;
}
