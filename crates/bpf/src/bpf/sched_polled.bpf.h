/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * For which of its files a thread sleeps in poll or select. Included by sched.bpf.c only.
 *
 * The descriptors are in the memory of the process, which cannot be read here. The kernel's own
 * list of the files, struct poll_wqueues (fs/select.c), is on the kernel stack of the thread until
 * the call returns: at a distance from its top that many kernels choose anew at each call
 * (CONFIG_RANDOMIZE_KSTACK_OFFSET). It is found by what it says of itself.
 */

/* A copy of the top of a kernel stack, in words; a power of two. The frames of the call and the
 * random offset have less than POLL_SEARCHED. */
#define POLL_WORDS    512
#define POLL_SEARCHED 384
/* Words of each part of the search; a divisor of that. */
#define POLL_PART 32
/* Files that are looked at. The list has room for nine, further ones are elsewhere. */
#define POLL_FILES 8

struct sched_polled {
	__u64 task;
	__u64 regs;
	__u64 file;    /* the result; 0 = none is known */
	__u64 several; /* there are several, of which it is ready */
	__u64 first;
	__u64 ready;
	__u64 list;
	__u64 other;
	__u64 cell;
	__u64 word[POLL_WORDS];
};

/* That of the iterator; that of a CPU has its number. */
const volatile __u32 polled_by_iterator = 1;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct sched_polled);
} polled SEC(".maps");

/* Where in it an entry of the list begins. */
static __always_inline __u64 poll_entry(__u64 list, __u32 number)
{
	return list + bpf_core_field_offset(struct poll_wqueues, inline_entries) +
	       (__u64)number * bpf_core_type_size(struct poll_table_entry);
}

/* An entry that is in a queue of waiting threads now. What a call before has left on the stack is
 * in none: it was taken out. */
static __always_inline bool is_queued(__u64 *cell, __u64 entry)
{
	__u64 links = entry + bpf_core_field_offset(struct poll_table_entry, wait) +
		      bpf_core_field_offset(struct wait_queue_entry, entry);
	__u64 next = ADDRESS_AT(cell, struct list_head, links, next);

	return next && ADDRESS_AT(cell, struct list_head, next, prev) == links;
}

/*
 * Looks for the list of the thread's files in a part of the copy of its stack, from that word on:
 * it names the thread, and each of its entries names the list. What a call before has left may look
 * so, too. The verifier follows each pass of a loop, but a global function only once, so that the
 * search costs it one part and not all.
 */
__noinline int find_list_in(__u32 at, __u32 from)
{
	struct sched_polled *p = bpf_map_lookup_elem(&polled, &at);
	__u64 first, task, list;
	__u32 to_owner = (bpf_core_field_offset(struct poll_wqueues, inline_entries) +
			  bpf_core_field_offset(struct poll_table_entry, wait) +
			  bpf_core_field_offset(struct wait_queue_entry, private) -
			  bpf_core_field_offset(struct poll_wqueues, polling_task)) /
			 8;
	__u32 to_task = bpf_core_field_offset(struct poll_wqueues, polling_task);

	if (!p)
		return 0;
	first = p->regs - 8 * POLL_SEARCHED;
	task = p->task;
	for (__u32 i = 0; i < POLL_PART; i++) {
		__u32 word = (from + i) & (POLL_WORDS - 1);

		if (p->word[word] != task)
			continue;
		list = first + 8 * word - to_task;
		if (p->word[(word + to_owner) & (POLL_WORDS - 1)] == list) {
			p->other = p->list;
			p->list = list;
		}
	}
	return 0;
}

static __always_inline void find_list(struct sched_polled *p, __u32 at)
{
	p->list = p->other = 0;
	for (__u32 from = 0; from < POLL_SEARCHED; from += POLL_PART)
		find_list_in(at, from);
	if (p->list && !is_queued(&p->cell, poll_entry(p->list, 0)))
		p->list = p->other;
}

/* Has something for its process: what it has not read yet, or a client that was not accepted yet.
 */
static __always_inline bool is_ready(__u64 *cell, __u64 file)
{
	__u64 inode = ADDRESS_AT(cell, struct file, file, f_inode), sock;

	if ((NUMBER_AT(struct inode, inode, i_mode) & S_IFMT) != S_IFSOCK)
		return false;
	sock = ADDRESS_AT(cell, struct file, file, private_data);
	sock = ADDRESS_AT(cell, struct socket, sock, sk);
	return sock && (NUMBER_AT(struct sock, sock, sk_receive_queue.qlen) ||
			NUMBER_AT(struct sock, sock, sk_ack_backlog));
}

/* Sets `file` of the area: the only one that the thread waits for, or of several the first that is
 * ready. */
static __always_inline void choose_file(struct sched_polled *p)
{
	/* Not in the place of an address: before 6.2, access to it would be relocated. */
	__u64 list = p->list, entry, file;
	__u32 files = NUMBER_AT(struct poll_wqueues, list, inline_index);

	for (__u32 i = 0; i < POLL_FILES && i < files; i++) {
		entry = poll_entry(list, i);
		file = ADDRESS_AT(&p->cell, struct poll_table_entry, entry, filp);
		if (!i)
			p->first = file;
		if (file != p->first)
			p->several = 1;
		if (!p->ready && is_ready(&p->cell, file))
			p->ready = file;
	}
	p->file = p->several ? p->ready : p->first;
}

/* Of the `task` of the area, whose call's registers are at `regs`. */
__noinline int find_polled(__u32 at)
{
	struct sched_polled *p = bpf_map_lookup_elem(&polled, &at);

	if (!p)
		return 0;
	p->file = p->first = p->ready = p->several = 0;
	if (bpf_probe_read_kernel(p->word, 8 * POLL_SEARCHED,
				  (const void *)(p->regs - 8 * POLL_SEARCHED)))
		return 0;
	find_list(p, at);
	if (p->list && is_queued(&p->cell, poll_entry(p->list, 0)))
		choose_file(p);
	return 0;
}
