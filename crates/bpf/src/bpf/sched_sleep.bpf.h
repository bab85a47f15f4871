/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * On what watched threads sleep, and who wakes them. Included by sched.bpf.c only.
 *
 * No system call is hooked: its number and arguments lie on top of the kernel stack of the thread
 * that sleeps in it, and through them the file or socket is found. They are read when the sleep
 * has ended: then its length is known, and most sleeps need no more than an addition. A record is
 * written for each `sleep_quantum_ns` of a thread's sleep: it stands for the sleep since the last
 * one, so that long sleeps are always told, and short ones in proportion to their time.
 */

/* Which calls have a file descriptor as their first argument. */
const volatile __u8 takes_fd[SLEEP_CALLS] = {};
/* Distance from a CPU's run queue to its preempt count in memory; 0 = not known. */
const volatile __s64 preempt_minus_rq;

/* "[eventpo", as a number. */
#define EVENTPOLL 0x6f70746e6576655bULL

/* Sleep for which a thread has one record. */
__u64 sleep_quantum_ns = 1000000;
/* From the bottom of a thread's kernel stack to the registers that its system call saved; 0 = not
 * known. */
__u64 regs_offset = 0;
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

static __always_inline __s64 call_of(__u64 regs)
{
	if (bpf_core_field_exists(((struct pt_regs___x86 *)0)->orig_ax)) {
		if (NUMBER_AT(struct pt_regs___x86, regs, cs) == USER32_CS)
			return SLEEP_COMPAT;
		return NUMBER_AT(struct pt_regs___x86, regs, orig_ax);
	}
	if (bpf_core_field_exists(((struct pt_regs___arm64 *)0)->syscallno)) {
		if (NUMBER_AT(struct pt_regs___arm64, regs, pstate) & PSR_MODE32_BIT)
			return SLEEP_COMPAT;
		return NUMBER_AT(struct pt_regs___arm64, regs, syscallno);
	}
	return SLEEP_UNKNOWN;
}

/* What the thread is doing in the kernel: the number of a system call, or enum sleep_call. */
static __always_inline __s64 call_in(__u64 *cell, __u64 task, __u64 *regs)
{
	__s64 call;

	if (!regs_offset)
		return SLEEP_UNKNOWN;
	if (NUMBER_AT(struct task_struct, task, flags) &
	    (PF_KTHREAD | PF_IO_WORKER | PF_USER_WORKER))
		return SLEEP_KERNEL;
	*regs = ADDRESS_AT(cell, struct task_struct, task, stack) + regs_offset;
	call = call_of(*regs);
	return call >= 0 && call < SLEEP_CALLS ? call : call == SLEEP_COMPAT ? call : SLEEP_NO_CALL;
}

static __always_inline void note_arguments(struct sched_sleep *sleep, __u64 regs)
{
	if (bpf_core_field_exists(((struct pt_regs___x86 *)0)->orig_ax)) {
		sleep->argument[0] = NUMBER_AT(struct pt_regs___x86, regs, di);
		sleep->argument[1] = NUMBER_AT(struct pt_regs___x86, regs, si);
		sleep->argument[2] = NUMBER_AT(struct pt_regs___x86, regs, dx);
	} else if (bpf_core_field_exists(((struct pt_regs___arm64 *)0)->syscallno)) {
		sleep->argument[0] = NUMBER_AT(struct pt_regs___arm64, regs, orig_x0);
		sleep->argument[1] = NUMBER_AT(struct pt_regs___arm64, regs, regs[1]);
		sleep->argument[2] = NUMBER_AT(struct pt_regs___arm64, regs, regs[2]);
	}
}

/* --- the file --- */

static __always_inline void note_addresses(struct sched_sleep *sleep, __u64 sock)
{
	sleep->local_port = NUMBER_AT(struct sock, sock, __sk_common.skc_num);
	sleep->remote_port = __builtin_bswap16(NUMBER_AT(struct sock, sock, __sk_common.skc_dport));
	if (sleep->family == AF_INET) {
		sleep->remote[0] = NUMBER_AT(struct sock, sock, __sk_common.skc_daddr);
		return;
	}
	for (int i = 0; i < 4; i++)
		sleep->remote[i] =
			NUMBER_AT(struct sock, sock, __sk_common.skc_v6_daddr.in6_u.u6_addr32[i]);
}

static __always_inline void note_unix(struct sched_sleep *sleep, __u64 *cell, __u64 sock)
{
	__u64 pid = ADDRESS_AT(cell, struct sock, sock, sk_peer_pid);

	/* The side that accepted has the address of the listener. */
	sleep->has_address = ADDRESS_AT(cell, struct unix_sock, sock, addr) != 0;
	if (pid)
		sleep->peer = NUMBER_AT(struct pid, pid, numbers[0].nr);
}

static __always_inline void note_socket(struct sched_sleep *sleep, __u64 *cell, __u64 file)
{
	__u64 sock = ADDRESS_AT(cell, struct file, file, private_data);

	sock = ADDRESS_AT(cell, struct socket, sock, sk);
	if (!sock)
		return;
	sleep->family = NUMBER_AT(struct sock, sock, __sk_common.skc_family);
	sleep->socket_type = NUMBER_AT(struct sock, sock, sk_type);
	sleep->socket_state = NUMBER_AT(struct sock, sock, __sk_common.skc_state);
	if (sleep->family == AF_INET || sleep->family == AF_INET6)
		note_addresses(sleep, sock);
	else if (sleep->family == AF_UNIX)
		note_unix(sleep, cell, sock);
}

/* The first file that an event poll found ready, if it is a socket: it ended the sleep. */
static __always_inline void note_ready(struct sched_sleep *sleep, __u64 *cell, __u64 file)
{
	__u64 poll = ADDRESS_AT(cell, struct file, file, private_data);
	__u64 list = poll + bpf_core_field_offset(struct eventpoll, rdllist);
	__u64 first = ADDRESS_AT(cell, struct list_head, list, next);
	__u64 inode;

	if (!first || first == list)
		return;
	first -= bpf_core_field_offset(struct epitem, rdllink);
	file = ADDRESS_AT(cell, struct epitem, first, ffd.file);
	inode = ADDRESS_AT(cell, struct file, file, f_inode);
	sleep->ready = 1;
	sleep->mode = NUMBER_AT(struct inode, inode, i_mode);
	if ((sleep->mode & S_IFMT) == S_IFSOCK)
		note_socket(sleep, cell, file);
}

static __always_inline void note_file(struct sched_sleep *sleep, __u64 *cell, __u64 task)
{
	__u64 file = file_of(cell, task, (__u32)sleep->argument[0]);
	__u64 inode, super, name;

	if (!file)
		return;
	inode = ADDRESS_AT(cell, struct file, file, f_inode);
	super = ADDRESS_AT(cell, struct inode, inode, i_sb);
	sleep->mode = NUMBER_AT(struct inode, inode, i_mode);
	sleep->inode = NUMBER_AT(struct inode, inode, i_ino);
	sleep->device = NUMBER_AT(struct super_block, super, s_dev);
	if ((sleep->mode & S_IFMT) == S_IFSOCK) {
		note_socket(sleep, cell, file);
	} else if (!(sleep->mode & S_IFMT)) {
		/* "[eventpoll]", "[timerfd]", ... */
		name = ADDRESS_AT(cell, struct file, file, f_path.dentry);
		name = ADDRESS_AT(cell, struct dentry, name, d_name.name);
		bpf_probe_read_kernel(sleep->kind, sizeof(sleep->kind), (const void *)name);
		if (*(__u64 *)sleep->kind == EVENTPOLL)
			note_ready(sleep, cell, file);
	}
}

/* What the sleeping thread does in the kernel, and on which file. */
static __always_inline void note_call(struct sched_sleep *sleep, __u64 *cell, __u64 task)
{
	__u64 regs = 0;
	__s64 call = call_in(cell, task, &regs);

	sleep->call = call;
	if (call < 0)
		return;
	note_arguments(sleep, regs);
	if (takes_fd[call & (SLEEP_CALLS - 1)])
		note_file(sleep, cell, task);
}

/* Adds a sleep to what is owed to a thread. Returns what a record of it stands for; 0 = none is
 * due.
 */
static __always_inline __u64 due_ns(struct sched_watch *w, __u64 slept_ns)
{
	__u64 owed = w->owed_ns + slept_ns, each = sleep_quantum_ns;

	if (!each || owed < each) {
		w->owed_ns = owed;
		return 0;
	}
	w->owed_ns = owed % each;
	return owed - w->owed_ns;
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
	__u8 context;

	if (!tells_sleeps || !area || !log)
		return 0;
	w = watch_of(area->cpu.tid);
	if (!w)
		return 0;
	context = w->context;
	w->context = CTX_UNKNOWN;
	slept = area->cpu.scratch.slept_ns;
	since = area->cpu.scratch.slept_since_ns;
	if (w->told_since_ns == since)
		slept -= slept < w->told_ns ? slept : w->told_ns;
	stands_for = due_ns(w, slept);
	if (!stands_for)
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
	note_call(sleep, &log->cell, area->cpu.scratch.task);
	barrier();
	log->head++;
	return 0;
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
	if (*(volatile __u32 *)&t->seq != seq || w->context != CTX_UNKNOWN)
		return 0;
	stands_for = due_ns(w, slept);
	if (!stands_for)
		return 0;
	sleep.since_ns = since;
	sleep.slept_ns = now - since;
	sleep.stands_for_ns = stands_for;
	sleep.tid = t->tid;
	sleep.tgid = t->tgid;
	sleep.state = state;
	sleep.context = CTX_NOT_YET;
	note_call(&sleep, &w->cell, address_of(&w->cell, task));
	bpf_seq_write(ctx->meta->seq, &sleep, sizeof(sleep));
	return 0;
}

/* --- who wakes them --- */

static __always_inline __u8 context_of(struct sched_area *area, __u64 *cell)
{
	__u64 queue;
	__u32 count;

	if (!preempt_minus_rq)
		return CTX_UNKNOWN;
	if (!area->cpu.rq) {
		queue = ADDRESS_AT(cell, struct task_struct, bpf_get_current_task(), se.cfs_rq);
		area->cpu.rq = ADDRESS_AT(cell, struct cfs_rq, queue, rq);
	}
	/* struct hlist_head serves as a kernel type that is a number of 8 bytes; the count has 4.
	 */
	count = ADDRESS_AT(cell, struct hlist_head, area->cpu.rq + preempt_minus_rq, first);
	if (count & NMI_MASK)
		return CTX_NMI;
	if (count & HARDIRQ_MASK)
		return CTX_HARDIRQ;
	return count & SERVES_SOFTIRQ ? CTX_SOFTIRQ : CTX_TASK;
}

/* Its caller is whoever this CPU runs. It may be called several times for one sleep: the last one
 * ends it. */
SEC("tp_btf/sched_waking")
int on_waking(unsigned long long *ctx)
{
	struct task_struct *task = task_arg(ctx, 0);
	struct sched_watch *w = watch_of(task->pid);
	__u32 cpu_id;
	struct sched_area *area;
	__u64 regs = 0;

	if (!w)
		return 0;
	cpu_id = bpf_get_smp_processor_id();
	area = bpf_map_lookup_elem(&areas, &cpu_id);
	if (!area)
		return 0;
	w->waker_tid = area->cpu.tid;
	w->waker_tgid = area->cpu.tgid;
	w->waker_call =
		area->cpu.tid ? call_in(&w->cell, bpf_get_current_task(), &regs) : SLEEP_KERNEL;
	w->context = context_of(area, &w->cell);
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
