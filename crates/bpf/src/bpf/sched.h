/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What the scheduler probe and its reader share. Fixed-width fields, padding written out; the Rust
 * types are generated from here. All times are nanoseconds of the run queue's clock (rq->clock,
 * sched_clock based) unless they are amounts. All amounts only grow, except where it says
 * otherwise.
 */
#ifndef DEBURR_SCHED_H
#define DEBURR_SCHED_H

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
	/* values of sched_thread.state only */
	ST_DEAD = 8,
	ST_UNKNOWN = 9,
};

/* What sched_move knows of a thread's stay off the CPU; bits. */
enum sched_moved {
	MOVED_QUEUED = 1,
	MOVED_ASLEEP = 2,
};

/* Must be deburr_core::recording::WAIT_BUCKETS. */
#define WAIT_BUCKETS 24
#define CULPRITS     8
#define RUNS         4096
/*
 * A thread. Written only by the CPU that holds the run-queue lock of the thread, inside a window in
 * which `seq` is odd. A slot is free when `tid` is 0, and may be taken when the thread is dead.
 */
struct sched_thread {
	/* first cache line: all that a switch needs, but for the amounts */
	__u32 tid;
	__u32 tgid;
	__u32 seq;
	__u16 cpu; /* it was switched out on */
	__u8 state;
	__u8 moved;           /* between run queues since then: enum sched_moved */
	__u64 since_ns;       /* in `state` */
	__u64 run_delay_ns;   /* sched_info.run_delay at switch-out */
	__u64 throttle_queue; /* identity of its cfs_rq when throttle_clock_ns was read; 0 = not
				 read */
	__u64 cgroup_set;     /* identity of its css_set: changes when it is moved */
	__u64 wait_max_ns;    /* the reader takes it by exchanging it with 0 */
	__u32 switches;
	__u32 dead_epoch; /* in which it died */
	/* second */
	__u64 in_state_ns[ST_MAX];
	/* third: identity and rare things */
	__u64 first_ns;          /* seen from here on */
	__u64 throttle_clock_ns; /* of throttle_queue at switch-out (or at wake-up) */
	__u64 start_boot_ns;     /* CLOCK_BOOTTIME */
	__u64 leader_boot_ns;    /* of the thread group's leader */
	__u64 cgroup_id;
	__u32 parent;      /* process that started it, as of its first sight */
	__u32 left_unseen; /* times that it left a CPU and no switch told of it; any CPU counts */
	__u8 comm[16];     /* of a leader; of another thread, as of its first sight */
};

struct sched_culprit {
	__u32 tgid;
	__u32 pad;
	__u64 ns;
};

/* Culprits of one epoch. Its content belongs to `epoch` only; the reader looks after the epoch
 * ended. */
struct sched_blame {
	__u32 epoch;
	__u32 pad;
	__u64 migrated_ns;
	__u64 unsampled_ns; /* carried until a look-up is affordable; may shrink */
	__u64 wakeup_ns;    /* behind nobody: the CPU idled or woke up */
	struct sched_culprit culprit[CULPRITS];
};

/* Waits of about one size. */
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
 * What the reader told of a wait in progress: of the thread in the slot of the same index. Written
 * by the reader only, before it looks whether the thread still waits.
 */
struct sched_told {
	__u64 since_ns; /* the thread is off the CPU since; 0 = nothing told */
	__u64 queued_ns;
};

/* Moves of the thread in the slot of the same index between run queues, while it is off the CPU. */
struct sched_move {
	__u64 queued_ns;   /* it was moved while it waited; the last time */
	__u64 asleep_ns;   /* it was moved while it slept, still on the queue */
	__u64 stay_ns;     /* the iterator saw it runnable in the stay that began then, ... */
	__u64 runnable_ns; /* ... for the first time at this moment */
	__u32 from_cpu;    /* of queued_ns */
	__u32 pad;
	__u64 stopped_stay_ns; /* the iterator saw it stopped by a quota in the stay that began
				  then, ... */
	__u64 throttled_ns;    /* ... for so long, at the last look, ... */
	__u64 waited_ns;       /* ... and in a run queue for so long */
};

/*
 * A thread that waits, as the iterator finds it: up to the moment that the reader asked for. Or one
 * that got a CPU and no switch told of it: up to when it came.
 */
struct sched_waiting {
	__u64 since_ns;     /* it is off the CPU since; with `seq` and `slot` it names the stay */
	__u64 queued_ns;    /* in a run queue */
	__u64 throttled_ns; /* stopped by a quota */
	__u64 here_ns;      /* of queued_ns: on the queue that it is on now, at the end of it */
	__u32 slot;         /* ~0 = in the overflow map */
	__u32 seq;
	__u32 tid;
	__u32 tgid;
	__u32 cpu;     /* whose queue it is on */
	__u32 was_cpu; /* it was moved from, as it waited; ~0 = it was not moved */
	__u64 moved_ns;
	__u64 arrived_ns; /* it has a CPU since; 0 = it waits */
};

/* A thread's stay on a CPU. It began where the entry before it ended. */
struct sched_run {
	__u64 end_ns;
	__u64 queued_ns; /* it waited in the run queue right before */
	__u32 tid;
	__u32 tgid;
};

/* What was lost or cut short, counted on each CPU. */
struct sched_lost {
	__u64 thread_table_full; /* switches to threads that no slot was found for */
	__u64 exit_unread; /* dead threads whose slot was taken before the reader saw their end */
	__u64 slot_raced;  /* slots found to hold another thread than expected */
	__u64 blame_table_full_ns;
	__u64 clock_backward;
	__u64 switches_missed; /* threads that left a CPU, and no switch told of it */
};

/*
 * Variables that are here and not in registers so that the verifier knows nothing of their values:
 * what it learns from comparing them, or from where a thread's slot was found, would make every way
 * through the code that follows a case of its own. They mean nothing between two switches.
 */
struct sched_scratch {
	/* the wait that just ended */
	__u64 local_ns;   /* on this CPU's queue, up to now */
	__u64 was_off_ns; /* off the CPU since */
	__u64 moved_ns;   /* to this queue */
	__u32 was_cpu;    /* moved from its queue; ~0 = not known */
	__u32 slot;
	/* a long look-up */
	__u64 from_ns;
	__u64 to_ns;
	__u64 weight_ns;
};

struct sched_cpu {
	/* first cache line: all that an ordinary switch needs */
	__u64 head;     /* runs ever written to the ring; a change of what follows begins with it */
	__u64 done;     /* `head` when the last change was complete */
	__u64 since_ns; /* the current thread runs since */
	__u64 queued_ns; /* it waited before */
	__u32 tid;
	__u32 tgid;
	__u32 slot; /* of the current thread; ~0 = none */
	__u32 id;   /* of the CPU */
	__u64 busy_ns;
	__u64 waited_ns; /* queued time that ended here */
	/* second */
	__u64 idle_ns;
	__u64 waits;                    /* that ended here */
	__u64 monotonic_minus_clock_ns; /* refreshed every few milliseconds; may shrink */
	__u64 compared_ns;              /* the clocks were, at that moment of the run queue's */
	__u64 long_blame_after_ns;      /* the next long look-up is affordable then */
	__u64 throttled_ns;
	__u64 block_io_ns;
	__u64 spills;
	__u64 overflows;
	struct sched_lost lost;
	struct sched_scratch scratch;
	__u64 pad[2];
};

/* All that a switch needs of its CPU: one look-up. */
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
