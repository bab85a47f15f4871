// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Waits in a call for reads of a file that were asked for before, and how long as measured here,
 * for four seconds:
 *
 *   aio     with libaio's calls, eight reads at a time
 *   ring    with io_uring, four reads at a time
 *   reaper  libaio; another thread asks for a read now and then, which this one hardly waits for,
 * and reads something itself afterwards loop    io_uring; a message in a pipe now and then, and a
 * read after each
 *
 * Writes to a file how long that was, in seconds.
 */
#define _GNU_SOURCE
#include <linux/aio_abi.h>
#include <linux/io_uring.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "clocks.h"

#define FOR_S    4.0
#define BLOCK    4096
#define BLOCKS   4096
#define DEPTH    8
#define EVERY_US 50000

static int file, words[2];
static char *memory;
static unsigned seed = 1;
static double waited;

static long long place(void)
{
	return (long long)(rand_r(&seed) % BLOCKS) * BLOCK;
}

/* --- libaio --- */

static aio_context_t aio;

static void submit(int at)
{
	struct iocb it = { .aio_fildes = file,
			   .aio_lio_opcode = IOCB_CMD_PREAD,
			   .aio_buf = (uintptr_t)(memory + at * BLOCK),
			   .aio_nbytes = BLOCK,
			   .aio_offset = place(),
			   .aio_data = at };
	struct iocb *list[] = { &it };

	if (syscall(SYS_io_submit, aio, 1, list) != 1)
		exit(4);
}

static int next_event(void)
{
	struct io_event event;
	double begin = undelayed();

	if (syscall(SYS_io_getevents, aio, 1, 1, &event, 0) != 1 || event.res != BLOCK)
		exit(5);
	waited += undelayed() - begin;
	return event.data;
}

static void *asks_now_and_then(void *none)
{
	for (;;) {
		usleep(EVERY_US);
		submit(0);
	}
}

static void reads_with_aio(int depth)
{
	pthread_t other;
	double end = monotonic() + FOR_S;

	if (syscall(SYS_io_setup, 64, &aio))
		exit(6);
	if (depth)
		for (int at = 0; at < depth; at++)
			submit(at);
	else
		pthread_create(&other, 0, asks_now_and_then, 0);
	while (monotonic() < end) {
		int at = next_event();

		if (depth)
			submit(at);
		else if (pread(file, memory + BLOCK, BLOCK, place()) != BLOCK)
			exit(7);
	}
}

/* --- io_uring --- */

static struct {
	int fd;
	unsigned *sq_tail, *sq_mask, *sq_array, *cq_head, *cq_tail, *cq_mask;
	struct io_uring_sqe *sqes;
	struct io_uring_cqe *cqes;
} ring;

static void open_ring(void)
{
	struct io_uring_params of = {};
	char *sq, *cq;
	int shared = MAP_SHARED | MAP_POPULATE;

	ring.fd = syscall(SYS_io_uring_setup, 32, &of);
	if (ring.fd < 0)
		exit(77);
	sq = mmap(0, of.sq_off.array + of.sq_entries * 4, PROT_READ | PROT_WRITE, shared, ring.fd,
		  IORING_OFF_SQ_RING);
	cq = mmap(0, of.cq_off.cqes + of.cq_entries * sizeof(*ring.cqes), PROT_READ | PROT_WRITE,
		  shared, ring.fd, IORING_OFF_CQ_RING);
	ring.sqes = mmap(0, of.sq_entries * sizeof(*ring.sqes), PROT_READ | PROT_WRITE, shared,
			 ring.fd, IORING_OFF_SQES);
	ring.sq_tail = (void *)(sq + of.sq_off.tail);
	ring.sq_mask = (void *)(sq + of.sq_off.ring_mask);
	ring.sq_array = (void *)(sq + of.sq_off.array);
	ring.cq_head = (void *)(cq + of.cq_off.head);
	ring.cq_tail = (void *)(cq + of.cq_off.tail);
	ring.cq_mask = (void *)(cq + of.cq_off.ring_mask);
	ring.cqes = (void *)(cq + of.cq_off.cqes);
}

static void add(struct io_uring_sqe it)
{
	unsigned tail = *ring.sq_tail, at = tail & *ring.sq_mask;

	ring.sqes[at] = it;
	ring.sq_array[at] = at;
	__atomic_store_n(ring.sq_tail, tail + 1, __ATOMIC_RELEASE);
}

static void add_read(int at)
{
	add((struct io_uring_sqe){ .opcode = IORING_OP_READ,
				   .fd = file,
				   .addr = (uintptr_t)(memory + at * BLOCK),
				   .len = BLOCK,
				   .off = place(),
				   .user_data = at });
}

/* Submits, waits for one to be complete, and returns which. */
static int next_of(int submitted)
{
	unsigned head = *ring.cq_head;
	struct io_uring_cqe *it;
	double begin = undelayed();

	if (syscall(SYS_io_uring_enter, ring.fd, submitted, 1, IORING_ENTER_GETEVENTS, 0, 0) < 0)
		exit(8);
	waited += undelayed() - begin;
	while (__atomic_load_n(ring.cq_tail, __ATOMIC_ACQUIRE) == head)
		;
	it = &ring.cqes[head & *ring.cq_mask];
	if (it->res <= 0)
		exit(9);
	__atomic_store_n(ring.cq_head, head + 1, __ATOMIC_RELEASE);
	return it->user_data;
}

static void reads_with_ring(void)
{
	double end = monotonic() + FOR_S;
	int submitted = DEPTH / 2, at;

	for (at = 0; at < submitted; at++)
		add_read(at);
	while (monotonic() < end) {
		at = next_of(submitted);
		add_read(at);
		submitted = 1;
	}
}

static void *writes_now_and_then(void *none)
{
	for (;;) {
		usleep(EVERY_US);
		if (write(words[1], "x", 1) != 1)
			exit(10);
	}
}

static void takes_what_comes(void)
{
	double end = monotonic() + FOR_S;
	pthread_t other;
	char byte;

	if (pipe(words))
		exit(11);
	pthread_create(&other, 0, writes_now_and_then, 0);
	while (monotonic() < end) {
		add((struct io_uring_sqe){
			.opcode = IORING_OP_POLL_ADD, .fd = words[0], .poll_events = POLLIN });
		next_of(1);
		if (read(words[0], &byte, 1) != 1)
			exit(12);
		add_read(0);
		next_of(1);
	}
}

int main(int argc, char **argv)
{
	FILE *told;

	file = open(argv[1], O_RDONLY | O_DIRECT);
	memory = mmap(0, DEPTH * BLOCK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (file < 0)
		return 13;
	if (!strcmp(argv[2], "aio"))
		reads_with_aio(DEPTH);
	else if (!strcmp(argv[2], "reaper"))
		reads_with_aio(0);
	else
		open_ring();
	if (!strcmp(argv[2], "ring"))
		reads_with_ring();
	else if (!strcmp(argv[2], "loop"))
		takes_what_comes();
	told = fopen(argv[3], "w");
	fprintf(told, "%.9f\n", waited);
	return fclose(told) != 0;
}
