/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Which connections of a process have something to read that waits for its event loop, and what
 * the loop's thread does meanwhile. Included by net.bpf.c only.
 *
 * A socket's queue of waiting threads names the event poll that watches it, and that has a list of
 * what is ready and was not fetched. What the process does not want to read now, as it has removed
 * the event, is not in that list. Neither is what it was told of and has not read yet, if it wants
 * to be told once only (EPOLLET).
 */
#ifndef DEBURR_NET_UNREAD_BPF_H
#define DEBURR_NET_UNREAD_BPF_H

/* Entries of a socket's queue that are looked at. */
#define QUEUED_AT_SOCKET 4

/* A power of two. */
#define READERS 256

/* Looks at which the same thread must have waited before it is taken to be the only one. */
#define SEEN_OFTEN 8

/* A thread that the look itself has put off a CPU was on it at most so long before. */
#define DISPLACED_NS 1000000ULL

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, READERS);
	__type(key, __u32);
	__type(value, struct net_reader);
} readers SEC(".maps");

/* One process reads, one iteration at a time. */
struct net_unread unread;
__u64 cell_of_unread;
__u64 last_poll;
__u32 watched_so_far;

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

/* The thread of that process that waits in the event poll; 0 = none does. */
static __always_inline __u64 waiter_of(__u64 *cell, __u64 poll, __u32 tgid)
{
	__u64 list = poll + bpf_core_field_offset(struct eventpoll, wq) +
		     bpf_core_field_offset(struct wait_queue_head, head);
	__u64 entry = ADDRESS_AT(cell, struct list_head, list, next), task;

	if (!entry || entry == list)
		return 0;
	entry -= bpf_core_field_offset(struct wait_queue_entry, entry);
	task = ADDRESS_AT(cell, struct wait_queue_entry, entry, private);
	return task && NUMBER_AT(struct task_struct, task, tgid) == tgid ? task : 0;
}

static __always_inline struct net_reader *reader_of(__u64 poll)
{
	__u32 place = (poll >> 6 ^ poll >> 14) & (READERS - 1);

	return bpf_map_lookup_elem(&readers, &place);
}

static __always_inline void note_waiter(__u64 *cell, __u64 poll, __u32 tgid)
{
	struct net_reader *reader = reader_of(poll);
	__u64 task = waiter_of(cell, poll, tgid);
	__u32 tid;

	if (!reader || !task)
		return;
	tid = NUMBER_AT(struct task_struct, task, pid);
	if (reader->poll == poll && reader->tid != tid)
		reader->several = 1;
	if (reader->poll == poll) {
		reader->seen++;
		return;
	}
	reader->poll = poll;
	reader->task = task;
	reader->tid = tid;
	reader->seen = 1;
	reader->several = 0;
}

static __always_inline __u32 cpu_of_task(__u64 task)
{
	if (bpf_core_field_exists(((struct task_struct___old_cpu *)0)->cpu))
		return NUMBER_AT(struct task_struct___old_cpu, task, cpu);
	return NUMBER_AT(struct task_struct, task, thread_info.cpu);
}

static __always_inline bool is_awake(__u64 task)
{
	if (bpf_core_field_exists(((struct task_struct___new_state *)0)->__state))
		return !NUMBER_AT(struct task_struct___new_state, task, __state);
	return !NUMBER_AT(struct task_struct___old_state, task, state);
}

/* Of a thread that was put off its CPU by the one that looks, it tells what it did before. */
static __always_inline __u32 state_of_reader(__u64 task)
{
	__u64 looks = bpf_get_current_task();

	if (NUMBER_AT(struct task_struct___first_byte, task, on_cpu))
		return READER_ON_CPU;
	if (!is_awake(task))
		return READER_ASLEEP;
	if (bpf_core_field_exists(((struct task_struct *)0)->sched_info.last_queued) &&
	    cpu_of_task(task) == bpf_get_smp_processor_id() &&
	    NUMBER_AT(struct task_struct, task, sched_info.last_queued) + DISPLACED_NS >=
		    NUMBER_AT(struct task_struct, looks, sched_info.last_arrival))
		return READER_ON_CPU;
	return READER_QUEUED;
}

/*
 * Whether it is this thread that would fetch from the event poll. Threads of a pool take turns: one
 * of them that sleeps elsewhere may have been relieved by another one.
 */
static __always_inline bool is_the_reader(struct net_reader *known, __u32 tgid, __u32 state)
{
	return !known->several &&
	       (state != READER_ASLEEP || known->tid == tgid || known->seen >= SEEN_OFTEN);
}

/*
 * Sets reader and state. `process`: its first thread, which is taken for the reader where none was
 * seen to wait, if it is awake: a loop that never waits is not seen to. Returns false if the reader
 * is asleep in the event poll: then it is about to fetch what is ready, or another one is.
 */
static __always_inline bool note_reader(struct net_unread *it, __u64 *cell, __u64 poll,
					__u64 process, __u32 tgid)
{
	struct net_reader *known = reader_of(poll);
	__u64 task = waiter_of(cell, poll, tgid);
	bool is_known = known && known->poll == poll;

	it->reader = 0;
	it->state = READER_UNKNOWN;
	if (task) {
		it->reader = NUMBER_AT(struct task_struct, task, pid);
		it->state = READER_QUEUED;
		return is_awake(task);
	}
	if (is_known) {
		task = known->task;
		it->reader = known->tid;
	} else if (is_awake(process)) {
		task = process;
		it->reader = tgid;
	}
	if (task && NUMBER_AT(struct task_struct, task, pid) == it->reader &&
	    NUMBER_AT(struct task_struct, task, tgid) == tgid)
		it->state = state_of_reader(task);
	if (is_known && !is_the_reader(known, tgid, it->state))
		it->state = READER_UNKNOWN;
	if (it->state == READER_UNKNOWN)
		it->reader = 0;
	return true;
}

/* Bytes that arrived and were not read. */
static __always_inline __u32 unread_bytes_of(__u64 sock, __u8 state)
{
	__u32 bytes = NUMBER_AT(struct tcp_sock, sock, rcv_nxt) -
		      NUMBER_AT(struct tcp_sock, sock, copied_seq);

	/* The end of what is sent has a number, too. */
	return bytes - (state == TCP_CLOSE_WAIT && bytes);
}

static __always_inline __u32 room_of(__u64 sock)
{
	__u32 room = NUMBER_AT(struct tcp_sock, sock, rcv_wup) +
		     NUMBER_AT(struct tcp_sock, sock, rcv_wnd) -
		     NUMBER_AT(struct tcp_sock, sock, rcv_nxt);

	return (__s32)room < 0 ? 0 : room;
}

/* Returns the socket of TCP that transfers data; 0 = it is another file. */
static __always_inline __u64 connection_of(__u64 *cell, __u64 socket)
{
	__u64 sock = socket ? ADDRESS_AT(cell, struct socket, socket, sk) : 0;
	__u16 family;
	__u8 state;

	if (!sock)
		return 0;
	family = NUMBER_AT(struct sock, sock, __sk_common.skc_family);
	state = NUMBER_AT(struct sock, sock, __sk_common.skc_state);
	if ((family != AF_INET && family != AF_INET6) ||
	    (state != TCP_ESTABLISHED && state != TCP_CLOSE_WAIT) ||
	    NUMBER_AT(struct sock, sock, sk_protocol) != IPPROTO_TCP)
		return 0;
	return sock;
}

static __always_inline int sum_up(struct bpf_iter__task_file *ctx)
{
	unread.ends.sock = 0;
	unread.watched = watched_so_far;
	watched_so_far = 0;
	last_poll = 0;
	bpf_seq_write(ctx->meta->seq, &unread, sizeof(unread));
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

	if (!file || !task)
		return sum_up(ctx);
	if ((file->f_inode->i_mode & S_IFMT) != S_IFSOCK)
		return 0;
	socket = address_of(cell, file->private_data);
	process = address_of(cell, task);
	sock = connection_of(cell, socket);
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
	unread.unread_bytes =
		unread_bytes_of(sock, NUMBER_AT(struct sock, sock, __sk_common.skc_state));
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
