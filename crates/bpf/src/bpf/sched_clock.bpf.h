/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The offset between the run queues' clock and CLOCK_MONOTONIC, and the current time where the run
 * queue's clock was not updated. Included by sched.bpf.c only.
 */

/* Interval of comparisons: the clocks drift apart by parts per million only. */
#define COMPARE_EACH_NS 4000000
/*
 * Greatest plausible increase of the offset: CLOCK_MONOTONIC is read up to READ_LATE_NS after the
 * run queue's clock, and the clocks drift apart; NTP slews by at most 500 ppm. A larger increase is
 * rejected, until DISBELIEVE_NS after the last accepted value.
 */
#define READ_LATE_NS  200
#define DRIFT_SHIFT   10 /* 977 ppm */
#define DISBELIEVE_NS 1000000000
/* A CPU's comparison older than this is superseded by the newest one of any CPU. */
#define COMPARED_LONG_AGO_NS 16000000
/* A switch that is longer after its wake-up is not looked up in the pressure-stall account. */
#define PRESSURE_NEAR_NS 100000000
/* Smaller differences are due to reading the two clocks one after the other. */
#define CLOCKS_DIFFER_NS 5000

/*
 * How far CLOCK_MONOTONIC is ahead, as last measured by any CPU. NTP can make it run faster than
 * the run queues' clocks, and an idle CPU measures nothing: the accumulated drift would be mistaken
 * for waiting. Where all CPUs share one sched_clock, this value is newer, at most some tenths of a
 * second old, because the reader causes a switch that often; elsewhere it can only shorten a wait.
 */
__s64 newest_ahead_ns = 0;

/*
 * Takes over a new measurement of how far CLOCK_MONOTONIC is ahead, if it is plausible. The delay
 * between the two reads, and a run-queue clock that was not updated, make `ahead` too large, never
 * too small. `fresh` = the run queue's clock is up to date.
 */
static __always_inline void compare_clocks(struct sched_area *area, __u64 clock, __u64 ahead,
					   bool fresh)
{
	__u64 since = clock - area->cpu.compared_ns;
	__s64 more = ahead - area->cpu.monotonic_minus_clock_ns;
	__s64 drift = READ_LATE_NS + (since >> DRIFT_SHIFT);

	if (more < 0 || (fresh && (more < drift || since > DISBELIEVE_NS))) {
		area->cpu.monotonic_minus_clock_ns = ahead;
		area->cpu.compared_ns = clock;
		newest_ahead_ns = ahead;
	}
}

/*
 * The time at which pressure-stall accounting (PSI) saw this switch, a moment before this hook:
 * psi_task_switch() reads the same clock as the run queue's. It reaches the account of the whole
 * host if the thread that left went to sleep, or if it was the idle task. 0 = without PSI, or not
 * near the run queue's clock.
 */
static __always_inline __u64 pressure_clock(struct sched_area *area, struct rq *rq, __u64 clock)
{
	__u64 account, switched_ns;

	if (unlikely(!area->cpu.pressure))
		area->cpu.pressure = address_of(&area->cpu.pressure, rq) + pressure_minus_rq;
	/* In a variable of its own: otherwise this field becomes a relocation, too. */
	account = area->cpu.pressure;
	switched_ns = NUMBER_AT(struct psi_group_cpu, account, state_start);
	return switched_ns - clock < PRESSURE_NEAR_NS ? switched_ns : 0;
}

/*
 * The time of a switch to a thread whose last_queued equals the run queue's clock. After a wake-up
 * that causes a reschedule, the scheduler skips the update of that clock (rq_clock_skip_update()):
 * such a thread appears not to have waited, and its wait would be counted as time on the CPU.
 * `accounted` = the switch is in the host's pressure-stall account, which is read at a fraction of
 * the cost of a clock.
 */
static __noinline __u64 clock_of(struct sched_area *area, struct rq *rq, __u64 clock,
				 bool accounted)
{
	__s64 ahead, known;
	__u64 switched_ns;

	if (pressure_minus_rq && accounted) {
		switched_ns = pressure_clock(area, rq, clock);
		if (likely(switched_ns))
			return switched_ns;
	}
	ahead = bpf_ktime_get_ns() - clock;
	compare_clocks(area, clock, ahead, false);
	known = area->cpu.monotonic_minus_clock_ns;
	if (clock - area->cpu.compared_ns > COMPARED_LONG_AGO_NS && newest_ahead_ns > known)
		known = newest_ahead_ns;
	return ahead > known ? clock + (ahead - known) : clock;
}
