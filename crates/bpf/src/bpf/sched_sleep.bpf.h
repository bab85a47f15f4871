/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The sleeps of watched threads, and who wakes them. Included by sched.bpf.c only.
 *
 * On what a thread slept is read when the sleep has ended: then its length is known, and most
 * sleeps need no more than an addition. A record is written for each `sleep_quantum_ns` of a
 * thread's sleep: it stands for the sleep since the last one, so that long sleeps are always told,
 * and short ones in proportion to their time.
 */

#include "context.bpf.h"
#include "irq.h"
#include "serving.bpf.h"

/* Sleep for which a thread has one record when a sleep ends, and while it sleeps on. */
__u64 sleep_quantum_ns = 1000000;
__u64 asleep_quantum_ns = 1000000;
/* That of a CPU is written by its programs, which may interrupt the iterator. */
__u64 asleep_cell = 0;
/* What on_own_call saw of its caller, whose thread id is `own_tid`. */
__u32 own_tid = 0;
__u64 own_regs = 0;
__u64 own_stack = 0;
__u64 own_cell = 0;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sched_sleeps);
} sleeps SEC(".maps");

/* Adds a sleep to what is owed to a thread, which has a record for each so many ns. Returns what a
 * record of it stands for; 0 = none is due.
 */
static __always_inline __u64 due_ns(struct sched_watch *w, __u64 slept_ns, __u64 each)
{
	__u64 owed = w->owed_ns + slept_ns;

	if (!each || owed < each) {
		w->owed_ns = owed;
		return 0;
	}
	w->owed_ns = owed % each;
	return owed - w->owed_ns;
}

/*
 * Whether a limit may have ended a sleep that the thread had set itself, in a call that takes no
 * file. It may wait on: for what, its next sleep says.
 */
static __always_inline bool is_limit(struct sched_sleep *sleep)
{
	return (sleep->context == CTX_TIMER || sleep->context == CTX_HARDIRQ) && sleep->mark &&
	       !sleep->mode && !sleep->family;
}

/*
 * The thread that just got this CPU slept before, as the scratch area says. A global function is
 * verified once, and not once for each way that leads to it.
 */
__noinline int end_sleep(__u32 cpu_id)
{
	struct sched_area *area = bpf_map_lookup_elem(&areas, &cpu_id);
	struct sched_sleeps *log = bpf_map_lookup_elem(&sleeps, &cpu_id);
	__u64 slept, since, stands_for;
	struct sched_sleep *sleep;
	struct sched_watch *w;
	__u8 context, waits_on;

	if (!tells_sleeps || !area || !log)
		return 0;
	w = watch_of(area->cpu.tid);
	if (!w)
		return 0;
	context = w->context;
	w->context = CTX_UNKNOWN;
	waits_on = w->waits_on;
	w->waits_on = 0;
	slept = area->cpu.scratch.slept_ns;
	since = area->cpu.scratch.slept_since_ns;
	if (w->told_since_ns == since)
		slept -= slept < w->told_ns ? slept : w->told_ns;
	stands_for = due_ns(w, slept, sleep_quantum_ns);
	if (!stands_for && !waits_on && !looks_for_client(w))
		return 0;
	sleep = &log->sleep[log->head & (SLEEPS - 1)];
	__builtin_memset(sleep, 0, sizeof(*sleep));
	sleep->since_ns = since;
	sleep->slept_ns = area->cpu.scratch.slept_ns;
	sleep->stands_for_ns = stands_for;
	sleep->tid = area->cpu.tid;
	sleep->tgid = area->cpu.tgid;
	sleep->state = area->cpu.scratch.slept_in;
	sleep->context = context;
	if (context != CTX_UNKNOWN) {
		sleep->waker_tid = w->waker_tid;
		sleep->waker_tgid = w->waker_tgid;
		sleep->waker_call = w->waker_call;
	}
	note_call(sleep, w, &log->cell, cpu_id, area->cpu.scratch.task);
	if (sleep->family)
		sleep->device = w->waker_to;
	note_lock(sleep, &log->cell, area->cpu.scratch.task);
	/* What is looked at for its client only is written where the next record will be. */
	if (!stands_for && !waits_on)
		return 0;
	/* A record that none was due for leads to no other one: they are twice as many at most. */
	w->waits_on = stands_for && is_limit(sleep);
	if (stands_for)
		look_for_client(w, &log->cell);
	barrier();
	log->head++;
	return 0;
}

static __always_inline void slept(struct sched_area *area, struct task_struct *next)
{
	area->cpu.scratch.task = (__u64)next;
	end_sleep(area->cpu.id);
	area->cpu.scratch.slept_ns = 0;
}

/*
 * Tells how long the watched threads have slept that sleep on, as of the time that the reader asked
 * for. No lock is held: what is told is noted before it is certain that the thread still sleeps, so
 * that its end can only tell too little.
 */
SEC("iter/task")
int on_asleep(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	__u64 now = asked_ns, since, slept, stands_for;
	struct sched_sleep sleep = {};
	struct sched_thread *t;
	struct sched_watch *w;
	__u32 slot, seq, state;

	if (!tells_sleeps || !task)
		return 0;
	w = watch_of(task->pid);
	if (!w)
		return 0;
	slot = slot_of(task->pid);
	t = bpf_map_lookup_elem(&threads, &slot);
	if (!t)
		return 0;
	seq = *(volatile __u32 *)&t->seq;
	state = t->state;
	since = t->since_ns;
	if ((seq & 1) || state >= ST_MAX || state <= ST_THROTTLED || state == ST_STOPPED ||
	    since >= now || !state_of(task))
		return 0;
	slept = now - since;
	if (w->told_since_ns == since)
		slept -= slept < w->told_ns ? slept : w->told_ns;
	w->told_ns = now - since;
	w->told_since_ns = since;
	barrier();
	if (*(volatile __u32 *)&t->seq != seq)
		return 0;
	stands_for = due_ns(w, slept, asleep_quantum_ns);
	if (!stands_for)
		return 0;
	sleep.since_ns = since;
	sleep.slept_ns = now - since;
	sleep.stands_for_ns = stands_for;
	sleep.tid = t->tid;
	sleep.tgid = t->tgid;
	sleep.state = state;
	sleep.context = CTX_NOT_YET;
	note_call(&sleep, w, &asleep_cell, polled_by_iterator, address_of(&asleep_cell, task));
	note_lock(&sleep, &asleep_cell, address_of(&asleep_cell, task));
	bpf_seq_write(ctx->meta->seq, &sleep, sizeof(sleep));
	return 0;
}

/* --- who wakes them --- */

static __always_inline __u8 context_of(struct sched_area *area, __u64 *cell)
{
	if (!area->cpu.rq)
		area->cpu.rq = queue_of_this_cpu(cell);
	return context_at(area->cpu.rq, cell);
}

/*
 * Whether a call is on a socket of the internet: on this host, the other end of a connection is
 * woken in a soft interrupt that whoever sends serves itself. One that is interrupted while it
 * reads from a file has nothing to do with the packets.
 */
static __always_inline bool uses_socket(struct sched_watch *w, __u64 *cell, __u64 task, __u64 regs)
{
	__u64 inode, sock;
	__u64 file = file_of(cell, task, (__u32)first_argument(regs));
	__u16 family;

	if (!file)
		return false;
	inode = ADDRESS_AT(cell, struct file, file, f_inode);
	if ((NUMBER_AT(struct inode, inode, i_mode) & S_IFMT) != S_IFSOCK)
		return false;
	sock = ADDRESS_AT(cell, struct file, file, private_data);
	sock = ADDRESS_AT(cell, struct socket, sock, sk);
	if (!sock)
		return false;
	family = NUMBER_AT(struct sock, sock, __sk_common.skc_family);
	w->waker_to = __builtin_bswap16(NUMBER_AT(struct sock, sock, __sk_common.skc_dport));
	return family == AF_INET || family == AF_INET6;
}

/* Vectors of soft interrupts, as in include/linux/interrupt.h. */
#define VECTOR_TIMER    1
#define VECTOR_NET_TX   2
#define VECTOR_NET_RX   3
#define VECTOR_BLOCK    4
#define VECTOR_IRQ_POLL 5
#define VECTOR_HRTIMER  8

/* Whether a soft interrupt may be one for the network that the thread itself serves, in its call.
 */
static __always_inline bool may_be_own(struct irq_serving *it)
{
	return !it || !it->soft || (it->soft == 1 + VECTOR_NET_RX && it->context != IRQ_INTERRUPTS);
}

/* In which interrupt, if that is known. */
static __always_inline __u8 interrupt_of(struct sched_watch *w, struct irq_serving *it,
					 __u8 context)
{
	__u32 soft = it->soft, hard = it->hard;

	if (context == CTX_HARDIRQ) {
		if (hard == 1 + IRQ_TIMER)
			return CTX_TIMER;
		if (hard == 1 + IRQ_CALL)
			return CTX_CALL;
		if (hard != 1 + IRQ_DEVICE)
			return context;
		w->waker_tid = it->line;
		return CTX_DEVICE;
	}
	if (soft == 1 + VECTOR_TIMER)
		return CTX_KERNEL_TIMER;
	if (soft == 1 + VECTOR_HRTIMER)
		return CTX_TIMER;
	if (soft == 1 + VECTOR_NET_RX || soft == 1 + VECTOR_NET_TX)
		return CTX_NETWORK;
	if (soft == 1 + VECTOR_BLOCK || soft == 1 + VECTOR_IRQ_POLL)
		return CTX_BLOCK;
	return context;
}

/*
 * Its caller is whoever this CPU runs, which the kernel is asked: not every switch is reported. It
 * may be called several times for one sleep: the last one ends it. A thread that runs here and is
 * woken has not gone to sleep yet, and will not.
 */
SEC("tp_btf/sched_waking")
int on_waking(unsigned long long *ctx)
{
	struct task_struct *task = task_arg(ctx, 0);
	struct sched_watch *w = watch_of(task->pid);
	__u32 cpu_id, tid;
	struct sched_area *area;
	struct irq_serving *it;
	__u64 regs = 0, current, *cell;
	__u8 context;

	if (!w)
		return 0;
	cpu_id = bpf_get_smp_processor_id();
	area = bpf_map_lookup_elem(&areas, &cpu_id);
	current = bpf_get_current_task();
	tid = NUMBER_AT(struct task_struct, current, pid);
	if (!area || tid == w->tid)
		return 0;
	cell = &area->cpu.waking_cell;
	w->waker_tid = tid;
	w->waker_tgid = NUMBER_AT(struct task_struct, current, tgid);
	w->waker_call = tid ? call_in(cell, current, &regs) : SLEEP_KERNEL;
	context = context_of(area, cell);
	if (context == CTX_SOFTIRQ || context == CTX_HARDIRQ) {
		it = served_by(cpu_id);
		if (context == CTX_SOFTIRQ && may_be_own(it) && w->waker_call >= 0 &&
		    uses_socket(w, cell, current, regs))
			context = it && it->soft ? CTX_SENT : CTX_SOCKET;
		else if (it)
			context = interrupt_of(w, it, context);
	}
	w->context = context;
	return 0;
}

/* Attached for a moment: the reader calls the kernel itself, in order to learn `regs_offset`. */
SEC("tp_btf/sys_enter")
int on_own_call(unsigned long long *ctx)
{
	__u32 tid = bpf_get_current_pid_tgid();

	if (tid != own_tid || own_regs)
		return 0;
	own_stack = ADDRESS_AT(&own_cell, struct task_struct, bpf_get_current_task(), stack);
	own_regs = arg(ctx, 0);
	return 0;
}
