/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Types shared by the scheduler probe and its reader. Fixed-width fields with explicit padding; the
 * Rust types are generated from this file. All timestamps are nanoseconds of the run queue's clock
 * (rq->clock, based on sched_clock), all durations are nanoseconds. Durations and counts only grow,
 * except where noted.
 */
#ifndef DEBURR_SCHED_H
#define DEBURR_SCHED_H

#include "sched_sleep.h"

/* States of the wall-time ledger: indices of sched_thread.in_state_ns. */
enum sched_state {
	ST_ON_CPU = 0,
	ST_QUEUED = 1,
	ST_THROTTLED = 2,
	ST_SLEEP = 3,
	ST_BLOCK_IO = 4,
	ST_MEM_STALL = 5,
	ST_UNINTERRUPTIBLE = 6,
	ST_STOPPED = 7,
	ST_MAX = 8,
	/* Values of sched_thread.state only. */
	ST_DEAD = 8,
	ST_UNKNOWN = 9,
};

/* Which fields of sched_move are valid for a thread's current off-CPU period; bits. */
enum sched_moved {
	MOVED_QUEUED = 1,
	MOVED_ASLEEP = 2,
};

/* Must be deburr_core::recording::WAIT_BUCKETS. */
#define WAIT_BUCKETS 24
#define CULPRITS     8
#define RUNS         4096
/*
 * A thread. Written only by the CPU that holds the thread's run-queue lock, while `seq` is odd. A
 * slot is free when `tid` is 0, and may be reused when the thread is dead.
 */
struct sched_thread {
	/* First cache line: all that a switch needs, except for the amounts. */
	__u32 tid;
	__u32 tgid;
	__u32 seq;
	__u16 cpu; /* that it last got */
	__u8 state;
	__u8 moved;           /* moves between run queues since it left the CPU: enum sched_moved */
	__u64 since_ns;       /* when it entered `state` */
	__u64 run_delay_ns;   /* sched_info.run_delay at the last switch */
	__u64 throttle_queue; /* address of its cfs_rq when throttle_clock_ns was read; 0 = not
	read */
	__u64 cgroup_set;     /* address of its css_set: changes when it changes cgroups */
	__u64 wait_max_ns;    /* longest wait; the reader exchanges it with 0 */
	__u32 switches;
	__u16 dead_epoch; /* low part of the epoch in which it died */
	__u8 watched;     /* it may be: its watch is looked for. Set by the reader, too */
	__u8 pad;
	/* Second cache line. */
	__u64 in_state_ns[ST_MAX];
	/* Third cache line: identity, and what is rarely needed. */
	__u64 first_ns;          /* its time is accounted from here on */
	__u64 throttle_clock_ns; /* of throttle_queue at switch-out (or at wake-up) */
	__u64 start_boot_ns;     /* CLOCK_BOOTTIME */
	__u64 leader_boot_ns;    /* of the thread group's leader */
	__u64 cgroup_id;
	__u32 parent;      /* tgid of its real parent when it was first seen */
	__u32 left_unseen; /* times it left a CPU without a reported switch; any CPU increments it
			    */
	__u8 comm[16];     /* of a leader, or at its end: current; else when it was first seen */
};

struct sched_culprit {
	__u32 tgid;
	__u32 pad;
	__u64 ns;
};

/* Blame of one epoch: the content belongs to `epoch` only. The reader reads it after the epoch
 * ended. */
struct sched_blame {
	__u32 epoch;
	__u32 pad;
	__u64 migrated_ns;
	__u64 unsampled_ns; /* carried until a look-up is within budget; may shrink */
	__u64 wakeup_ns;    /* behind no process: the CPU was idle or waking up */
	struct sched_culprit culprit[CULPRITS];
};

/* One bucket of a histogram of wait lengths. */
struct sched_bucket {
	__u64 ns;
	__u64 count;
};

/* The waits of the thread in the slot of the same index. */
struct sched_waits {
	struct sched_bucket bucket[WAIT_BUCKETS];
	struct sched_blame blame[2]; /* by the parity of the epoch */
};

/*
 * What the reader has reported about a wait in progress of the thread in the slot of the same
 * index. Written by the reader only, before it checks whether the thread still waits.
 */
struct sched_reported {
	__u64 since_ns; /* start of the off-CPU period; 0 = nothing reported */
	__u64 queued_ns;
};

/*
 * Moves between run queues of the thread in the slot of the same index, while it is off the CPU.
 * `stay_ns` and `stopped_stay_ns` identify an off-CPU period by its start.
 */
struct sched_move {
	__u64 queued_ns;   /* when it was last moved while it waited */
	__u64 asleep_ns;   /* when it was last moved while it slept, still on the queue */
	__u64 stay_ns;     /* period in which it was seen runnable after a hidden wake-up, ... */
	__u64 runnable_ns; /* ... and when that was first seen */
	__u32 from_cpu;    /* CPU that it left at queued_ns */
	__u32 after_us;    /* time since it was moved before in the same wait; ~0 = it was not */
	__u64 stopped_stay_ns; /* period in which the iterator saw it throttled, ... */
	__u64 throttled_ns;    /* ... how long it had been throttled at the last look, ... */
	__u64 waited_ns;       /* ... and how long it had been queued */
};

/*
 * A waiting thread as reported by the iterator, with durations up to the time that the reader asked
 * for. Or a thread that got a CPU without a reported switch, with durations up to its arrival.
 */
struct sched_waiting {
	__u64 since_ns;  /* start of the off-CPU period; with `seq` and `slot` it identifies it */
	__u64 queued_ns; /* time in a run queue */
	__u64 throttled_ns; /* time throttled by a quota */
	__u64 here_ns;      /* last part of queued_ns: on the queue that it is on now */
	__u32 slot;         /* ~0 = in the overflow map */
	__u32 seq;
	__u32 tid;
	__u32 tgid;
	__u32 cpu;     /* CPU whose queue it is on */
	__u32 was_cpu; /* CPU from which it was moved while it waited; ~0 = it was not moved */
	__u64 moved_ns;
	__u64 arrived_ns; /* when it got a CPU; 0 = it still waits */
};

/*
 * How long a thread waited right before it got a CPU. If it was not throttled meanwhile: its time
 * in run queues. Otherwise WAIT_THROTTLED is set, the lower WAIT_QUEUED_BITS have that time, and
 * the bits between have the throttled time in units of 2^WAIT_THROTTLED_SHIFT ns (137 s at most).
 */
#define WAIT_THROTTLED       (1ULL << 63)
#define WAIT_QUEUED_BITS     40
#define WAIT_THROTTLED_SHIFT 14

/* One run of a thread on a CPU. It began when the run in the previous entry ended. */
struct sched_run {
	__u64 end_ns;
	__u64 waited; /* right before, packed */
	__u32 tid;
	__u32 tgid;
};

/* What was lost or truncated, counted per CPU. */
struct sched_lost {
	__u64 thread_table_full; /* switches to threads for which no slot was found */
	__u64 exit_unread; /* dead threads whose slot was reused before the reader saw their end */
	__u64 slot_raced;  /* slots found to hold another thread than expected */
	__u64 blame_table_full_ns;
	__u64 clock_backward;
	__u64 switches_missed; /* times a thread left a CPU without a reported switch */
};

/*
 * Variables kept in memory and not in registers, so that the verifier does not track their values:
 * otherwise each comparison, and each place where a thread's slot was found, would make it verify
 * all paths through the code that follows once more. They have no meaning between two switches.
 */
struct sched_scratch {
	/* The wait that just ended. */
	__u64 local_ns;   /* its part on this CPU's queue, up to now */
	__u64 was_off_ns; /* start of the off-CPU period */
	__u64 moved_ns;   /* when the thread was moved to this queue */
	__u32 was_cpu;    /* CPU from whose queue it was moved; ~0 = not known */
	__u32 slot;
	/* The interval of a blame look-up, and what each of its samples counts for. */
	__u64 from_ns;
	__u64 to_ns;
	__u64 weight_ns;
	/* The sleep that just ended, while threads are watched: how long it was, when it began, of
	 * whom, in which state. */
	__u64 slept_ns;
	__u64 slept_since_ns;
	__u64 task;
	__u64 slept_in;
};

struct sched_cpu {
	/* First cache line: all that an ordinary switch needs. */
	__u64 head; /* runs ever written to the ring; incremented before the fields below change */
	__u64 done; /* set to `head` when the update is complete */
	__u64 since_ns; /* when the current thread got the CPU */
	__u64 waited;   /* how long it waited right before, packed */
	__u32 tid;
	__u32 tgid;
	__u32 slot; /* of the current thread; ~0 = none */
	__u32 id;   /* number of the CPU */
	__u64 busy_ns;
	__u64 waited_ns; /* queued time of waits that ended here */
	/* Second cache line. */
	__u64 waits;                    /* number of waits that ended here */
	__u64 monotonic_minus_clock_ns; /* updated every few milliseconds; may shrink */
	__u64 compared_ns;              /* when the clocks were last compared, on the run queue's */
	__u64 long_blame_after_ns;      /* earliest time of the next sampled look-up */
	__u64 throttled_ns;
	__u64 block_io_ns;
	__u64 wait_throttled_ns; /* of the wait that just ended; 0 between two switches */
	__u64 overflows;
	struct sched_lost lost;
	struct sched_scratch scratch;
	__u64 pressure; /* address of the host's psi_group_cpu of this CPU; 0 = not used yet */
	__u64 spills;
	__u64 rq;          /* address of its run queue; 0 = not used yet */
	__u64 waking_cell; /* of wake-ups: numbers are stored here and read back */
	__u64 pad[3];
};

/* All data of a CPU that a switch needs, found by one look-up. */
struct sched_area {
	struct sched_cpu cpu;
	struct sched_run run[RUNS];
};

/* A thread that found no slot in the table. */
struct sched_overflow {
	struct sched_thread thread;
	struct sched_waits waits;
};

struct sched_spill_key {
	__u32 victim;
	__u32 culprit;
};

_Static_assert(sizeof(struct sched_thread) == 192, "three cache lines");
_Static_assert(sizeof(struct sched_blame) == 32 + 16 * CULPRITS, "no hidden padding");
_Static_assert(sizeof(struct sched_waits) == 704, "eleven cache lines");
_Static_assert(sizeof(struct sched_waiting) == 72, "no hidden padding");
_Static_assert(sizeof(struct sched_run) == 24, "no hidden padding");
_Static_assert(sizeof(struct sched_cpu) % 64 == 0, "CPUs do not share cache lines");

#endif
