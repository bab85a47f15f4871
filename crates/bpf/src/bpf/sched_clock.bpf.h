/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The run queues' clock and CLOCK_MONOTONIC: how far one is ahead of the other, and what the time
 * is when the first was not brought up to date. Included by sched.bpf.c only.
 */

/* The clocks drift apart by parts per million: a look now and then is enough. */
#define COMPARE_EACH_NS 4000000
/*
 * So much later a look may come than the clock was read, and so far the clocks may have drifted
 * apart: NTP slews by 500 ppm at most. What is more is not believed, but for so long.
 */
#define READ_LATE_NS  200
#define DRIFT_SHIFT   10 /* 977 ppm */
#define DISBELIEVE_NS 1000000000
/* From then on what another CPU found is newer. */
#define COMPARED_LONG_AGO_NS 16000000
/* Two clocks that are read one after the other are not exact to each other. */
#define CLOCKS_DIFFER_NS 5000

/*
 * How far CLOCK_MONOTONIC is ahead, as any CPU found it last. NTP makes it run faster than the run
 * queues' clocks, and a CPU that idles compares nothing: what that adds up to would be taken for
 * waiting. Where the kernel's clock is one for all CPUs, this is newer, some tenths of a second old
 * at most, for the reader switches so often; elsewhere it can only make less of a wait.
 */
__s64 newest_ahead_ns = 0;

/*
 * How far CLOCK_MONOTONIC is ahead, as it is now. Reading one after the other, and a clock that was
 * not brought up to date, make it seem further, never nearer.
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
 * The time of a switch to a thread that was queued at this very moment of the run queue's clock. A
 * wake-up by which the scheduler has to run spares it the update of that clock
 * (rq_clock_skip_update()), so that such a thread seems to have waited for nothing, and what it
 * waited would be told as its time on the CPU.
 */
static __noinline __u64 clock_of(struct sched_area *area, __u64 clock)
{
	__s64 ahead = bpf_ktime_get_ns() - clock, known;

	compare_clocks(area, clock, ahead, false);
	known = area->cpu.monotonic_minus_clock_ns;
	if (clock - area->cpu.compared_ns > COMPARED_LONG_AGO_NS && newest_ahead_ns > known)
		known = newest_ahead_ns;
	return ahead > known ? clock + (ahead - known) : clock;
}
