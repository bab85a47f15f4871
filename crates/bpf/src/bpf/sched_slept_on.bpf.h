/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * In which call a thread sleeps, and on which file or socket. Included by sched.bpf.c only.
 *
 * No system call is hooked: its number and arguments lie on top of the kernel stack of the thread
 * that sleeps in it, and through them the file is found.
 */

#include "call.bpf.h"
/* The beginnings of names of files without a type, as numbers: "[eventpo". */
#define EVENTPOLL 0x6f70746e6576655bULL
/* "[io_urin" */
#define IO_URING 0x6e6972755f6f695bULL

#include "sched_polled.bpf.h"
#include "sched_client.bpf.h"

/* How a call says for which file it waits. */
enum sleep_file {
	SLEEP_NO_FILE = 0,
	SLEEP_DESCRIPTOR = 1, /* its first argument is a file descriptor */
	SLEEP_POLL = 2,       /* it takes a list of them: poll, select */
};

/* Of each call: enum sleep_file. */
const volatile __u8 says_file[SLEEP_CALLS] = {};
/* It exists for its type, which the reader uses. */
enum sleep_file exported_file = SLEEP_NO_FILE;

/* include/linux/hung_task.h */
#define BLOCKER_KIND 3ULL

/* It exists for its type, which the reader uses. */
enum sleep_lock exported_lock = SLEEP_NO_LOCK;
enum sleep_conversation exported_conversation = CONVERSATION_GOES_ON;

static __always_inline void note_arguments(struct sched_sleep *sleep, __u64 regs)
{
	sleep->argument[0] = first_argument(regs);
	if (bpf_core_field_exists(((struct pt_regs___x86 *)0)->orig_ax)) {
		sleep->argument[1] = NUMBER_AT(struct pt_regs___x86, regs, si);
		sleep->argument[2] = NUMBER_AT(struct pt_regs___x86, regs, dx);
	} else if (bpf_core_field_exists(((struct pt_regs___arm64 *)0)->syscallno)) {
		sleep->argument[1] = NUMBER_AT(struct pt_regs___arm64, regs, regs[1]);
		sleep->argument[2] = NUMBER_AT(struct pt_regs___arm64, regs, regs[2]);
	}
}

/* Of a call that takes no file. */
static __always_inline void note_caller(struct sched_sleep *sleep, __u64 regs)
{
	sleep->inode = instruction_pointer(regs);
	if (bpf_core_field_exists(((struct pt_regs___x86 *)0)->orig_ax))
		sleep->mark = NUMBER_AT(struct pt_regs___x86, regs, r10) != 0;
	else if (bpf_core_field_exists(((struct pt_regs___arm64 *)0)->syscallno))
		sleep->mark = NUMBER_AT(struct pt_regs___arm64, regs, regs[3]) != 0;
}

/* --- the file --- */

/*
 * Sent something, and read nothing of what has arrived; or it is not known yet whether it is
 * connected; or it is, and nothing was said.
 */
static __always_inline __u8 note_conversation(__u64 sock)
{
	__u32 unread = NUMBER_AT(struct tcp_sock, sock, rcv_nxt) -
		       NUMBER_AT(struct tcp_sock, sock, copied_seq);
	__u32 received = NUMBER_AT(struct tcp_sock, sock, bytes_received);
	__u8 state = NUMBER_AT(struct sock, sock, __sk_common.skc_state);

	if (NUMBER_AT(struct sock, sock, sk_protocol) != IPPROTO_TCP)
		return CONVERSATION_GOES_ON;
	if (state == TCP_SYN_SENT)
		return CONVERSATION_ASKED;
	if (NUMBER_AT(struct tcp_sock, sock, data_segs_out))
		return received == unread ? CONVERSATION_ASKED : CONVERSATION_GOES_ON;
	return state == TCP_ESTABLISHED && !received ? CONVERSATION_SILENT : CONVERSATION_GOES_ON;
}

/*
 * Nobody knows a port that the kernel has chosen for a socket of datagrams before it is told, as by
 * the first one that is sent. The first one that is received leaves it a part of a page of memory.
 */
static __always_inline __u8 note_datagrams(__u64 sock, __u16 remote_port)
{
	if (NUMBER_AT(struct sock, sock, sk_protocol) != IPPROTO_UDP)
		return CONVERSATION_GOES_ON;
	if (BPF_CORE_READ_BITFIELD_PROBED((struct sock *)sock, sk_userlocks) & SOCK_BINDPORT_LOCK)
		return CONVERSATION_BOUND;
	if (remote_port && !NUMBER_AT(struct sock, sock, sk_forward_alloc))
		return CONVERSATION_ASKED;
	return CONVERSATION_GOES_ON;
}

static __always_inline void note_addresses(struct sched_sleep *sleep, struct sched_watch *w,
					   __u64 *cell, __u64 sock)
{
	sleep->local_port = NUMBER_AT(struct sock, sock, __sk_common.skc_num);
	sleep->remote_port = __builtin_bswap16(NUMBER_AT(struct sock, sock, __sk_common.skc_dport));
	if (sleep->socket_type == SOCK_STREAM) {
		sleep->write_seq = NUMBER_AT(struct tcp_sock, sock, write_seq);
		sleep->mark = note_conversation(sock);
		if (sleep->ready)
			note_found(sleep, w, cell, sock);
	} else if (sleep->socket_type == SOCK_DGRAM) {
		sleep->mark = note_datagrams(sock, sleep->remote_port);
	}
	if (sleep->family == AF_INET) {
		sleep->remote[0] = NUMBER_AT(struct sock, sock, __sk_common.skc_daddr);
		return;
	}
	for (int i = 0; i < 4; i++)
		sleep->remote[i] =
			NUMBER_AT(struct sock, sock, __sk_common.skc_v6_daddr.in6_u.u6_addr32[i]);
}

static __always_inline void note_unix(struct sched_sleep *sleep, struct sched_watch *w, __u64 *cell,
				      __u64 sock)
{
	/* The side that accepted has the address of the listener. */
	sleep->mark = ADDRESS_AT(cell, struct unix_sock, sock, addr) != 0;
	sleep->peer = connected_by(cell, sock);
	if (sleep->mark && sleep->socket_type == SOCK_STREAM)
		note_unix_client(sleep, w, cell, sock);
}

static __always_inline void note_socket(struct sched_sleep *sleep, struct sched_watch *w,
					__u64 *cell, __u64 file)
{
	__u64 sock = ADDRESS_AT(cell, struct file, file, private_data);

	sock = ADDRESS_AT(cell, struct socket, sock, sk);
	if (!sock)
		return;
	sleep->family = NUMBER_AT(struct sock, sock, __sk_common.skc_family);
	sleep->socket_type = NUMBER_AT(struct sock, sock, sk_type);
	sleep->socket_state = NUMBER_AT(struct sock, sock, __sk_common.skc_state);
	if (sleep->family == AF_INET || sleep->family == AF_INET6)
		note_addresses(sleep, w, cell, sock);
	else if (sleep->family == AF_UNIX)
		note_unix(sleep, w, cell, sock);
}

/* The first file that an event poll found ready, if it is a socket: it ended the sleep. */
static __always_inline void note_ready(struct sched_sleep *sleep, struct sched_watch *w,
				       __u64 *cell, __u64 file)
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
		note_socket(sleep, w, cell, file);
}

static __always_inline void note_file(struct sched_sleep *sleep, struct sched_watch *w, __u64 *cell,
				      __u64 file)
{
	__u64 inode, super, name;

	inode = ADDRESS_AT(cell, struct file, file, f_inode);
	super = ADDRESS_AT(cell, struct inode, inode, i_sb);
	sleep->mode = NUMBER_AT(struct inode, inode, i_mode);
	sleep->inode = NUMBER_AT(struct inode, inode, i_ino);
	sleep->device = NUMBER_AT(struct super_block, super, s_dev);
	if ((sleep->mode & S_IFMT) == S_IFSOCK) {
		note_socket(sleep, w, cell, file);
	} else if ((sleep->mode & S_IFMT) == S_IFCHR) {
		sleep->device = NUMBER_AT(struct inode, inode, i_rdev);
	} else if ((sleep->mode & S_IFMT) == S_IFREG || (sleep->mode & S_IFMT) == S_IFDIR) {
		sleep->mark = NUMBER_AT(struct super_block, super, s_magic) == FUSE_SUPER_MAGIC;
	} else if (!(sleep->mode & S_IFMT)) {
		/* "[eventpoll]", "[timerfd]", ... */
		name = ADDRESS_AT(cell, struct file, file, f_path.dentry);
		name = ADDRESS_AT(cell, struct dentry, name, d_name.name);
		bpf_probe_read_kernel(sleep->kind, sizeof(sleep->kind), (const void *)name);
		if (*(__u64 *)sleep->kind == EVENTPOLL)
			note_ready(sleep, w, cell, file);
	}
}

/*
 * The kernel's lock for which the thread sleeps. It says so itself until it runs again, and when
 * this is called, it has not run yet.
 */
static __always_inline void note_lock(struct sched_sleep *sleep, __u64 *cell, __u64 task)
{
	__u64 lock, mm;

	if (!bpf_core_field_exists(((struct task_struct___blocker *)0)->blocker) || sleep->family)
		return;
	lock = NUMBER_AT(struct task_struct___blocker, task, blocker);
	if (!lock)
		return;
	sleep->lock = 1 + (lock & BLOCKER_KIND);
	lock &= ~BLOCKER_KIND;
	sleep->remote[0] = lock;
	sleep->remote[1] = lock >> 32;
	mm = ADDRESS_AT(cell, struct task_struct___mm, task, mm);
	if (mm && lock == mm + bpf_core_field_offset(struct mm_struct___lock, mmap_lock))
		sleep->lock = SLEEP_MMAP_LOCK;
}

/* The file that a call waits for which takes a list of them. */
static __always_inline __u64 file_polled(struct sched_sleep *sleep, __u32 place, __u64 task,
					 __u64 regs)
{
	struct sched_polled *p = bpf_map_lookup_elem(&polled, &place);

	if (!p)
		return 0;
	p->task = task;
	p->regs = regs;
	find_polled(place);
	sleep->ready = p->several;
	return p->file;
}

/* What the sleeping thread does in the kernel, and on which file. `place` is that in `polled`. */
static __always_inline void note_call(struct sched_sleep *sleep, struct sched_watch *w, __u64 *cell,
				      __u32 place, __u64 task)
{
	__u64 regs = 0, index, file = 0;
	__u8 says;
	__s64 call = call_in(cell, task, &regs);

	sleep->call = call;
	if (call < 0)
		return;
	note_arguments(sleep, regs);
	index = call;
	/* Bounded right before its use: verifiers up to 6.1 do not follow a bound to a copy. */
	asm volatile("" : "+r"(index));
	says = says_file[index & (SLEEP_CALLS - 1)];
	if (says == SLEEP_DESCRIPTOR)
		file = file_of(cell, task, (__u32)sleep->argument[0]);
	else if (says == SLEEP_POLL)
		file = file_polled(sleep, place, task, regs);
	else
		note_caller(sleep, regs);
	if (file)
		note_file(sleep, w, cell, file);
	note_awaited(sleep, w, cell);
}
