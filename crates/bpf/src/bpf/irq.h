/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Types shared by the probe of interrupts and its reader. Fixed-width fields with explicit padding;
 * the Rust types are generated from this file. Times are nanoseconds of CLOCK_MONOTONIC.
 */
#ifndef DEBURR_IRQ_H
#define DEBURR_IRQ_H

/* A soft interrupt this long after the one before begins a burst. */
#define IRQ_PAUSE_NS 1000000

enum irq_kind {
	IRQ_SOFT = 0,
	IRQ_DEVICE = 1,
	IRQ_TIMER = 2, /* of the CPU itself, where the kernel does not handle it like a device's */
	IRQ_CALL = 3,  /* another CPU has this one call a function */
};

/* In what a soft interrupt was served. */
enum irq_context {
	IRQ_INTERRUPTS = 0, /* it interrupts the thread; hard interrupts always do */
	IRQ_OWN_CALL = 1,   /* the thread itself asked for it, in a call of the kernel */
	IRQ_NOT_KNOWN = 2,
};

struct irq_key {
	__u32 tgid; /* of the thread that held the CPU; 0 = it was idle */
	__u32 line; /* vector of a soft interrupt, number of a device's; 0 = another one */
	__u32 cpu;
	__u8 kind;
	__u8 context;
	__u8 half; /* parity of the second */
	__u8 pad;
};

/* Which interrupts a CPU serves: soft ones begin when hard ones are over, and are interrupted by
 * them. */
struct irq_serving {
	__u32 soft;    /* 1 + the vector of a soft interrupt; 0 = none, or not known */
	__u32 context; /* of that: enum irq_context */
	__u32 hard;    /* 1 + enum irq_kind; 0 = none, or not known */
	__u32 line;    /* of that, if it is a device's */
	__u32 pad[12];
};

/* Sums of one kind of interrupt on one CPU, while threads of one process held it, in one second. */
struct irq_sum {
	__u64 ns; /* hard interrupts that came meanwhile are not in it */
	__u64 count;
	__u64 longest_ns;
	__u64 bursts; /* times at which the one before was IRQ_PAUSE_NS or more ago */
	__u64 ended_ns;
	__u64 leader_boot_ns;
	__u8 comm[16];
	__u32 kernel; /* a thread of the kernel */
	__u32 pad;
};

/* What was lost, counted per CPU. */
struct irq_lost {
	__u64 sums_full; /* interrupts for which the table of sums had no room */
};

/*
 * Hard interrupts come while a program runs for a soft one: what the ones write, the others do not.
 * Soft interrupts do not interrupt each other, and neither do hard ones that are told.
 */
struct irq_cpu {
	__u64 runs;
	__u64 soft_since_ns; /* 0 = none is served */
	__u64 hard_since_ns;
	__u64 hard_ns;        /* of all hard interrupts so far */
	__u64 hard_before_ns; /* the same when the soft interrupt began */
	__u64 rq;             /* address of its run queue; 0 = not used yet */
	__u64 soft_cell;
	__u64 hard_cell;
	__u64 soft_seen; /* soft interrupts so far */
	__u64 call_seen; /* calls by other CPUs so far */
	struct irq_lost lost;
	__u32 watch_number; /* in which the soft interrupt began */
	__u32 context;
	__u32 call_watch_number; /* in which the call began */
	__u32 pad_call;
	__u64 pad[3];
};

_Static_assert(sizeof(struct irq_key) == 16, "no hidden padding");
_Static_assert(sizeof(struct irq_serving) == 64, "CPUs do not share cache lines");
_Static_assert(sizeof(struct irq_sum) == 72, "no hidden padding");
_Static_assert(sizeof(struct irq_cpu) == 128, "CPUs do not share cache lines");

#endif
