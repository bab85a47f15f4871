// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Threads that wait in unusual ways: in a call of the 32-bit interface, for a child of vfork, held by
 * a tracer, for a ring of io_uring, for a lock that another process holds, on a connection that
 * somebody else made. Writes whose waiting it was and how long, as measured here.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/io_uring.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "clocks.h"

static int fds[2];
static char byte;

static int child_of(void (*work)(void))
{
	int pid = fork();

	if (!pid) {
		work();
		_exit(0);
	}
	return pid;
}

static void feed(void)
{
	for (;;) {
		usleep(15000);
		if (write(fds[1], "x", 1) != 1)
			return;
	}
}

/* A lock in memory that two processes share. */
static pthread_mutex_t *shared;

static void make_shared(void)
{
	pthread_mutexattr_t is;

	shared = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pthread_mutexattr_init(&is);
	pthread_mutexattr_setpshared(&is, PTHREAD_PROCESS_SHARED);
	pthread_mutex_init(shared, &is);
}

static void hold(void)
{
	prctl(PR_SET_NAME, "holder");
	for (;;) {
		pthread_mutex_lock(shared);
		usleep(20000);
		pthread_mutex_unlock(shared);
		usleep(3000);
	}
}

static void of_shared(void)
{
	pthread_mutex_lock(shared);
	pthread_mutex_unlock(shared);
}

/* Two ends of a connection that a third process made and passed to those who use them. */
static int passed(int from)
{
	char data, space[CMSG_SPACE(sizeof(int))];
	struct iovec part = { &data, 1 };
	struct msghdr message = { .msg_iov = &part,
				  .msg_iovlen = 1,
				  .msg_control = space,
				  .msg_controllen = sizeof(space) };
	int fd;

	if (recvmsg(from, &message, 0) != 1)
		exit(6);
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(fd));
	return fd;
}

static void pass(int to, int fd)
{
	char data = 0, space[CMSG_SPACE(sizeof(int))] = { 0 };
	struct iovec part = { &data, 1 };
	struct msghdr message = { .msg_iov = &part,
				  .msg_iovlen = 1,
				  .msg_control = space,
				  .msg_controllen = sizeof(space) };
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);

	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(header), &fd, sizeof(fd));
	if (sendmsg(to, &message, 0) != 1)
		exit(6);
}

static int ways[2][2], peer;

static void broker(void)
{
	int ends[2];

	prctl(PR_SET_NAME, "broker");
	socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
	pass(ways[0][0], ends[0]);
	pass(ways[1][0], ends[1]);
	close(ends[0]);
	close(ends[1]);
	pause();
}

static void answer(void)
{
	prctl(PR_SET_NAME, "server");
	peer = passed(ways[0][1]);
	while (read(peer, &byte, 1) == 1) {
		usleep(15000);
		if (write(peer, "x", 1) != 1)
			return;
	}
}

static void of_peer(void)
{
	if (write(peer, "x", 1) != 1 || read(peer, &byte, 1) != 1)
		exit(7);
}

static void doze(void)
{
	for (;;)
		usleep(5000);
}

#ifdef __x86_64__
/* read(2) by its number in the 32-bit interface, which is that of close(2) in the other one. */
static void read_32(void)
{
	long done = 3;

	asm volatile("int $0x80"
		     : "+a"(done)
		     : "b"((long)fds[0]), "c"((long)&byte), "d"(1L)
		     : "r8", "r9", "r10", "r11", "memory");
	if (done != 1)
		exit(4);
}
#endif

static void of_vfork(void)
{
	int pid = vfork();

	if (!pid) {
		usleep(50000);
		_exit(0);
	}
}

static struct {
	int fd;
	char *submit, *complete;
	struct io_uring_sqe *entries;
	struct io_uring_params is;
} ring;

static void make_ring(void)
{
	struct io_uring_params *is = &ring.is;

	ring.fd = syscall(SYS_io_uring_setup, 4, is);
	if (ring.fd < 0)
		exit(5);
	ring.submit = mmap(0, is->sq_off.array + is->sq_entries * 4, PROT_READ | PROT_WRITE, MAP_SHARED,
			   ring.fd, IORING_OFF_SQ_RING);
	ring.complete = mmap(0, is->cq_off.cqes + is->cq_entries * sizeof(struct io_uring_cqe),
			     PROT_READ | PROT_WRITE, MAP_SHARED, ring.fd, IORING_OFF_CQ_RING);
	ring.entries = mmap(0, is->sq_entries * sizeof(*ring.entries), PROT_READ | PROT_WRITE,
			    MAP_SHARED, ring.fd, IORING_OFF_SQES);
}

/* One read by a thread of the kernel's. */
static void submit(void)
{
	unsigned *tail = (unsigned *)(ring.submit + ring.is.sq_off.tail);
	unsigned at = *tail & *(unsigned *)(ring.submit + ring.is.sq_off.ring_mask);
	struct io_uring_sqe *entry = &ring.entries[at];

	memset(entry, 0, sizeof(*entry));
	entry->opcode = IORING_OP_READ;
	entry->fd = fds[0];
	entry->addr = (unsigned long)&byte;
	entry->len = 1;
	entry->off = -1;
	entry->flags = IOSQE_ASYNC;
	((unsigned *)(ring.submit + ring.is.sq_off.array))[at] = at;
	__atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
}

static void of_ring(void)
{
	syscall(SYS_io_uring_enter, ring.fd, 1, 1, IORING_ENTER_GETEVENTS, 0, 0);
}

int main(int count, char **words)
{
	const char *mode = count == 3 ? words[1] : "";
	int whose = getpid(), other = 0, third = 0;
	double end, spent = 0;
	FILE *told;

	if (pipe(fds))
		return 3;
	if (!strcmp(mode, "uring"))
		make_ring();
	make_shared();
	socketpair(AF_UNIX, SOCK_STREAM, 0, ways[0]);
	socketpair(AF_UNIX, SOCK_STREAM, 0, ways[1]);
	if (!strcmp(mode, "passed"))
		third = child_of(broker);
	other = child_of(!strcmp(mode, "traced") ? doze :
			 !strcmp(mode, "shared") ? hold :
			 !strcmp(mode, "passed") ? answer :
						   feed);
	if (!strcmp(mode, "passed"))
		peer = passed(ways[1][1]);
	usleep(1200000);
	for (end = monotonic() + 3; monotonic() < end;) {
		double begin = undelayed();

		if (!strcmp(mode, "traced")) {
			whose = other;
			ptrace(PTRACE_SEIZE, other, 0, 0);
			ptrace(PTRACE_INTERRUPT, other, 0, 0);
			waitpid(other, 0, __WALL);
			begin = monotonic();
			usleep(60000);
			ptrace(PTRACE_CONT, other, 0, 0);
			spent += monotonic() - begin;
			usleep(40000);
			continue;
		}
#ifdef __x86_64__
		if (!strcmp(mode, "int80"))
			read_32();
#endif
		if (!strcmp(mode, "vfork"))
			of_vfork();
		if (!strcmp(mode, "uring")) {
			submit();
			begin = undelayed();
			of_ring();
		}
		if (!strcmp(mode, "shared"))
			of_shared();
		if (!strcmp(mode, "passed"))
			of_peer();
		spent += undelayed() - begin;
		if (!strcmp(mode, "shared") || !strcmp(mode, "passed"))
			usleep(4000);
		if (!strcmp(mode, "vfork"))
			wait(0);
		if (!strcmp(mode, "uring"))
			++*(unsigned *)(ring.complete + ring.is.cq_off.head);
	}
	usleep(300000);
	told = fopen(words[2], "w");
	fprintf(told, "%d %f\n", whose, spent);
	fclose(told);
	kill(other, SIGKILL);
	if (third)
		kill(third, SIGKILL);
	_exit(0);
}
