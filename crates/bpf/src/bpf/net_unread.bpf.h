/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Which connections of a process have something to read that waits for its event loop, what the
 * loop's thread does meanwhile, and which connections wait to be accepted. Included by net.bpf.c
 * only.
 *
 * A socket's queue of waiting threads names the event poll that watches it, and that has a list of
 * what is ready: what it has not told of yet, or was told of and may not have been read yet. What
 * the process does not want to read now, as it has removed the event, is not in that list. Neither
 * is what it was told of, if it wants to be told once only (EPOLLET).
 */
#ifndef DEBURR_NET_UNREAD_BPF_H
#define DEBURR_NET_UNREAD_BPF_H

/* Entries of a socket's queue that are looked at. */
#define QUEUED_AT_SOCKET 4

#define READERS 1024

/* Looks at which the same thread must have waited before it is taken to be the only one. */
#define SEEN_OFTEN 4

/* Looks are farther apart: one that comes to an event poll several times counts once. */
#define SAME_LOOK_NS 20000000ULL

/* A thread that sleeps elsewhere, and has not waited in the event poll for so long, may have left
 * it alone for good: it does not keep anybody waiting whom it does not serve. */
#define RECENTLY_NS 2000000000ULL

/* An event poll in which nobody was seen to wait for so long may be another one at its place. */
#define FORGOTTEN_NS 10000000000ULL

/* A thread that the look itself has put off a CPU was on it at most so long before. */
#define DISPLACED_NS 1000000ULL

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, READERS);
	__type(key, __u64); /* the event poll */
	__type(value, struct net_reader);
} readers SEC(".maps");

/* One process reads, one iteration at a time. */
struct net_unread unread;
__u64 cell_of_unread;
__u64 last_poll;
__u32 watched_so_far;
__u32 may_hold_so_far;

/* The entry of the event poll that watches the file of the socket; 0 = none does. */
static __always_inline __u64 item_of(__u64 *cell, __u64 file, __u64 socket)
{
	__u64 head = socket + bpf_core_field_offset(struct socket, wq) +
		     bpf_core_field_offset(struct socket_wq, wait);
	__u64 list = head + bpf_core_field_offset(struct wait_queue_head, head);
	__u64 links = ADDRESS_AT(cell, struct list_head, list, next), entry, item;

	for (int i = 0; i < QUEUED_AT_SOCKET; i++) {
		if (!links || links == list)
			break;
		/* Any other entry of the queue does not name this file. */
		entry = links - bpf_core_field_offset(struct wait_queue_entry, entry) -
			bpf_core_field_offset(struct eppoll_entry, wait);
		item = ADDRESS_AT(cell, struct eppoll_entry, entry, base);
		if (ADDRESS_AT(cell, struct eppoll_entry, entry, whead) == head &&
		    ADDRESS_AT(cell, struct epitem, item, ffd.file) == file)
			return item;
		links = ADDRESS_AT(cell, struct list_head, links, next);
	}
	return 0;
}

static __always_inline bool waits_to_be_fetched(__u64 *cell, __u64 item)
{
	__u64 links = item + bpf_core_field_offset(struct epitem, rdllink);
	__u64 next = ADDRESS_AT(cell, struct list_head, links, next);

	return next && next != links && NUMBER_AT(struct epitem, item, event.events) & EPOLL_READS;
}

/* The thread that waits in the event poll; 0 = none does. */
static __always_inline __u64 waiter_of(__u64 *cell, __u64 poll)
{
	__u64 list = poll + bpf_core_field_offset(struct eventpoll, wq) +
		     bpf_core_field_offset(struct wait_queue_head, head);
	__u64 entry = ADDRESS_AT(cell, struct list_head, list, next);

	if (!entry || entry == list)
		return 0;
	entry -= bpf_core_field_offset(struct wait_queue_entry, entry);
	return ADDRESS_AT(cell, struct wait_queue_entry, entry, private);
}

static __always_inline bool has_several_waiters(__u64 *cell, __u64 poll)
{
	__u64 list = poll + bpf_core_field_offset(struct eventpoll, wq) +
		     bpf_core_field_offset(struct wait_queue_head, head);
	__u64 entry = ADDRESS_AT(cell, struct list_head, list, next);

	return entry && entry != list && ADDRESS_AT(cell, struct list_head, entry, next) != list;
}

static __always_inline bool is_of(__u64 task, __u32 tgid)
{
	return NUMBER_AT(struct task_struct, task, tgid) == tgid;
}

/* Whether the thread is still there: another one may have come to its place in memory. */
static __always_inline bool is_there(struct net_reader *known)
{
	__u64 task = known->task;
	__u32 tid = known->tid;

	return NUMBER_AT(struct task_struct, task, pid) == tid &&
	       !NUMBER_AT(struct task_struct, task, exit_state);
}

static __always_inline void note_waiter(__u64 *cell, __u64 poll, __u32 tgid)
{
	struct net_reader *reader = bpf_map_lookup_elem(&readers, &poll);
	__u64 task = waiter_of(cell, poll), now = bpf_ktime_get_ns();
	struct net_reader first = { .task = task, .met_ns = now, .seen = 1 };

	if (!task || !is_of(task, tgid))
		return;
	first.several = has_several_waiters(cell, poll);
	first.tid = NUMBER_AT(struct task_struct, task, pid);
	if (!reader || !is_there(reader) ||
	    (reader->tid != first.tid && reader->met_ns + FORGOTTEN_NS < now)) {
		bpf_map_update_elem(&readers, &poll, &first, BPF_ANY);
		return;
	}
	reader->seen += reader->met_ns + SAME_LOOK_NS < now;
	reader->several |= first.several || reader->tid != first.tid;
	reader->met_ns = now;
}

static __always_inline __u32 cpu_of_task(__u64 task)
{
	if (bpf_core_field_exists(((struct task_struct___old_cpu *)0)->cpu))
		return NUMBER_AT(struct task_struct___old_cpu, task, cpu);
	return NUMBER_AT(struct task_struct, task, thread_info.cpu);
}

/* What the kernel calls its state: 0 = it runs or would run. */
static __always_inline __u32 sleep_of(__u64 task)
{
	if (bpf_core_field_exists(((struct task_struct___new_state *)0)->__state))
		return NUMBER_AT(struct task_struct___new_state, task, __state);
	return NUMBER_AT(struct task_struct___old_state, task, state);
}

/* By the freezer of cgroup v2. */
static __always_inline bool is_frozen(__u64 task)
{
	struct task_struct___cgroups *in_cgroup = (void *)task;

	return bpf_core_field_exists(((struct task_struct___cgroups *)0)->frozen) &&
	       BPF_CORE_READ_BITFIELD_PROBED(in_cgroup, frozen);
}

/* Of a thread that was put off its CPU by the one that looks, it tells what it did before. */
static __always_inline __u32 state_of_reader(__u64 task)
{
	__u64 looks = bpf_get_current_task();
	__u32 sleep = sleep_of(task);

	if (NUMBER_AT(struct task_struct___first_byte, task, on_cpu))
		return READER_ON_CPU;
	if (sleep & (TASK_STOPPED_OR_TRACED | TASK_FROZEN))
		return READER_UNKNOWN;
	/* Who waits for a child of vfork has the same mark, and sleeps uninterruptibly. */
	if (sleep && !(sleep & TASK_UNINTERRUPTIBLE) && is_frozen(task))
		return READER_UNKNOWN;
	if (sleep)
		return READER_ASLEEP;
	if (bpf_core_field_exists(((struct task_struct *)0)->sched_info.last_queued) &&
	    cpu_of_task(task) == bpf_get_smp_processor_id() &&
	    NUMBER_AT(struct task_struct, task, sched_info.last_queued) + DISPLACED_NS >=
		    NUMBER_AT(struct task_struct, looks, sched_info.last_arrival))
		return READER_ON_CPU;
	return READER_QUEUED;
}

/*
 * Whether it is this thread that would fetch from the event poll. Threads of a pool take turns, and
 * the first thread of a process may use an event poll only now and then.
 */
static __always_inline bool is_the_reader(struct net_reader *known, __u32 tgid, __u32 state)
{
	return !known->several && (known->tid == tgid || known->seen >= SEEN_OFTEN) &&
	       (state != READER_ASLEEP || known->met_ns + RECENTLY_NS > bpf_ktime_get_ns());
}

static __always_inline bool is_alone(__u64 *cell, __u64 process)
{
	__u64 shared = ADDRESS_AT(cell, struct task_struct, process, signal);

	return NUMBER_AT(struct signal_struct, shared, live.counter) == 1;
}

static __always_inline void note_state(struct net_unread *it, __u64 task, __u32 state)
{
	it->state = state;
	it->reader = state == READER_UNKNOWN ? 0 : NUMBER_AT(struct task_struct, task, pid);
}

/*
 * Sets reader and state. `process`: its first thread, which is taken for the reader where none was
 * seen to wait, if it is the only one and is awake: a loop that never waits is not seen to. Returns
 * false if the reader is asleep in the event poll: then it is about to fetch what is ready, or
 * another one is. Likewise if another process reads.
 */
static __always_inline bool note_reader(struct net_unread *it, __u64 *cell, __u64 poll,
					__u64 process, __u32 tgid)
{
	struct net_reader *known = bpf_map_lookup_elem(&readers, &poll);
	__u64 task = waiter_of(cell, poll);
	__u32 state;

	note_state(it, 0, READER_UNKNOWN);
	if (task) {
		note_state(it, task, READER_QUEUED);
		return is_of(task, tgid) && !sleep_of(task);
	}
	if (!known) {
		if (is_alone(cell, process) && !sleep_of(process))
			note_state(it, process, state_of_reader(process));
		return true;
	}
	task = known->task;
	if (!is_there(known))
		return true;
	if (!is_of(task, tgid))
		return false;
	state = state_of_reader(task);
	if (is_the_reader(known, tgid, state))
		note_state(it, task, state);
	return true;
}

/* Bytes that arrived and were not read. */
static __always_inline __u32 unread_bytes_of(__u64 sock)
{
	return NUMBER_AT(struct tcp_sock, sock, rcv_nxt) -
	       NUMBER_AT(struct tcp_sock, sock, copied_seq);
}

static __always_inline __u32 room_of(__u64 sock)
{
	__u32 room = NUMBER_AT(struct tcp_sock, sock, rcv_wup) +
		     NUMBER_AT(struct tcp_sock, sock, rcv_wnd) -
		     NUMBER_AT(struct tcp_sock, sock, rcv_nxt);

	return (__s32)room < 0 ? 0 : room;
}

/* Returns the socket of TCP whose other end is open; 0 = it is another file. Whoever has closed its
 * end waits for no answer. */
static __always_inline __u64 connection_of(__u64 *cell, __u64 socket)
{
	__u64 sock = socket ? ADDRESS_AT(cell, struct socket, socket, sk) : 0;
	__u16 family;

	if (!sock)
		return 0;
	family = NUMBER_AT(struct sock, sock, __sk_common.skc_family);
	if ((family != AF_INET && family != AF_INET6) ||
	    NUMBER_AT(struct sock, sock, __sk_common.skc_state) != TCP_ESTABLISHED ||
	    NUMBER_AT(struct sock, sock, sk_protocol) != IPPROTO_TCP)
		return 0;
	return sock;
}

#include "net_accept.bpf.h"
#include "net_held_back.bpf.h"

static __always_inline int sum_up(struct bpf_iter__task_file *ctx)
{
	unread.ends.sock = 0;
	unread.watched = watched_so_far;
	unread.waiting = may_hold_so_far;
	watched_so_far = may_hold_so_far = 0;
	last_poll = 0;
	bpf_seq_write(ctx->meta->seq, &unread, sizeof(unread));
	unread.waiting = 0;
	return 0;
}

/* Runs over the open files of a process, and once more at their end. */
SEC("iter/task_file")
int on_unread(struct bpf_iter__task_file *ctx)
{
	struct task_struct *task = ctx->task;
	struct file *file = ctx->file;
	__u64 *cell = &cell_of_unread, process, socket, sock, item, poll;
	__u32 tgid;
	bool may_hold;

	if (!file || !task)
		return sum_up(ctx);
	if ((file->f_inode->i_mode & S_IFMT) != S_IFSOCK)
		return 0;
	socket = address_of(cell, file->private_data);
	if (tell_of_listener(ctx, cell, socket))
		return 0;
	process = address_of(cell, task);
	sock = connection_of(cell, socket);
	may_hold = sock && tell_of_held_back(ctx, cell, sock);
	may_hold_so_far += may_hold;
	item = sock ? item_of(cell, address_of(cell, file), socket) : 0;
	if (!item)
		return 0;
	watched_so_far++;
	unread.watched = 0;
	poll = ADDRESS_AT(cell, struct epitem, item, ep);
	process = ADDRESS_AT(cell, struct task_struct, process, group_leader);
	tgid = NUMBER_AT(struct task_struct, process, tgid);
	if (poll != last_poll)
		note_waiter(cell, poll, tgid);
	last_poll = poll;
	unread.unread_bytes = unread_bytes_of(sock);
	if (!unread.unread_bytes || !waits_to_be_fetched(cell, item) ||
	    !note_reader(&unread, cell, poll, process, tgid))
		return 0;
	unread.room_bytes = room_of(sock);
	unread.age_jiffies = (__u32)bpf_jiffies64() -
			     NUMBER_AT(struct inet_connection_sock, sock, icsk_ack.lrcvtime);
	note_ends(&unread.ends, cell, sock);
	bpf_seq_write(ctx->meta->seq, &unread, sizeof(unread));
	return 0;
}

#endif
