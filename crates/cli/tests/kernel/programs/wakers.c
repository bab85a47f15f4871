// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Threads that are woken in one way each, and measure how long they slept for that: by a time that
 * they set, by the end of a time that the kernel keeps for a socket, by a packet that comes late, and
 * by a disk. On the CPU of those of the network, another process sends to nobody without end.
 *
 * Arguments: the file for what was measured, a file on a disk. Lines: name, seconds.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/aio_abi.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "clocks.h"

#define SECONDS 4.0
#define READS	64
#define BLOCK	4096

static double end;
static const char *path;

static void pin(int cpu)
{
	cpu_set_t one;

	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	if (sched_setaffinity(0, sizeof(one), &one))
		exit(4);
}

static int check(int result)
{
	if (result < 0)
		exit(5);
	return result;
}

/* A connection within this host; `out` has the other end. */
static int connection(int *out)
{
	struct sockaddr_in address = { .sin_family = AF_INET,
				       .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t length = sizeof(address);
	int listener = check(socket(AF_INET, SOCK_STREAM, 0)), one = 1, it;

	check(bind(listener, (void *)&address, length));
	check(listen(listener, 8));
	check(getsockname(listener, (void *)&address, &length));
	it = check(socket(AF_INET, SOCK_STREAM, 0));
	check(connect(it, (void *)&address, length));
	*out = check(accept(listener, 0, 0));
	setsockopt(it, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	setsockopt(*out, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return it;
}

/* It waits for events that never come. */
static double timeouts(void)
{
	int poll = check(epoll_create1(0));
	struct epoll_event event;
	double slept = 0, begin;

	while (monotonic() < end) {
		begin = undelayed();
		epoll_wait(poll, &event, 1, 7);
		slept += undelayed() - begin;
	}
	return slept;
}

/* It waits for an answer for so long as it has told the kernel to. */
static double expires(void)
{
	struct timeval limit = { .tv_usec = 12000 };
	double slept = 0, begin;
	int other, it;
	char byte;

	it = connection(&other);
	check(setsockopt(it, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)));
	if (send(it, "x", 1, MSG_NOSIGNAL) != 1)
		exit(6);
	while (monotonic() < end) {
		begin = undelayed();
		recv(it, &byte, 1, 0);
		slept += undelayed() - begin;
	}
	return slept;
}

/* It waits for an answer until a time is up that it has set, which the kernel does not keep for the
 * socket. */
static double polls(void)
{
	struct pollfd one = { .events = POLLIN };
	double slept = 0, begin;
	int other;

	one.fd = connection(&other);
	if (send(one.fd, "x", 1, MSG_NOSIGNAL) != 1)
		exit(6);
	while (monotonic() < end) {
		begin = undelayed();
		poll(&one, 1, 15);
		slept += undelayed() - begin;
	}
	return slept;
}

static int answers[2];

/* The other process of a connection whose packets come late. */
static void answer(int it)
{
	char byte;

	pin(1);
	while (recv(it, &byte, 1, 0) == 1)
		if (send(it, &byte, 1, MSG_NOSIGNAL) != 1)
			break;
	_exit(0);
}

static double receives(void)
{
	double slept = 0, begin;
	char byte = 'x';

	while (monotonic() < end) {
		if (send(answers[0], &byte, 1, MSG_NOSIGNAL) != 1)
			exit(6);
		begin = undelayed();
		if (recv(answers[0], &byte, 1, 0) != 1)
			exit(7);
		slept += undelayed() - begin;
	}
	return slept;
}

/* It waits until a disk has read many blocks. */
static double reads(void)
{
	int file = open(path, O_RDONLY | O_DIRECT);
	off_t blocks = file < 0 ? 0 : lseek(file, 0, SEEK_END) / BLOCK;
	struct io_event done[READS];
	struct iocb all[READS], *list[READS];
	struct timespec limit = { .tv_sec = 5 };
	aio_context_t context = 0;
	double slept = 0, begin;
	char *memory;

	if (blocks < READS || posix_memalign((void **)&memory, BLOCK, READS * BLOCK))
		exit(8);
	check(syscall(SYS_io_setup, READS, &context));
	while (monotonic() < end) {
		for (int i = 0; i < READS; i++) {
			memset(&all[i], 0, sizeof(all[i]));
			all[i].aio_fildes = file;
			all[i].aio_lio_opcode = IOCB_CMD_PREAD;
			all[i].aio_buf = (unsigned long)memory + i * BLOCK;
			all[i].aio_nbytes = BLOCK;
			all[i].aio_offset = random() % blocks * BLOCK;
			list[i] = &all[i];
		}
		if (syscall(SYS_io_submit, context, READS, list) != READS)
			exit(9);
		begin = undelayed();
		if (syscall(SYS_io_getevents, context, READS, READS, done, &limit) != READS)
			exit(10);
		slept += undelayed() - begin;
	}
	return slept;
}

/* Sends to a cable that is not plugged in, on the CPU of those that wait for the network: their
 * interrupts come in the middle of its calls, and it has none of its own. */
static void spray(void)
{
	struct sockaddr_in address = { .sin_family = AF_INET,
				       .sin_port = htons(9),
				       .sin_addr.s_addr = htonl(0x0a090902) };
	static char text[1000];

	if (unshare(CLONE_NEWNET) || system("ip link add cable type veth peer name end && "
					    "ip addr add 10.9.9.1/24 dev cable && "
					    "ip link set cable arp off up"))
		exit(4);
	pin(0);
	check(nice(5));
	int it = check(socket(AF_INET, SOCK_DGRAM, 0));
	check(connect(it, (void *)&address, sizeof(address)));
	for (;;)
		send(it, text, sizeof(text), 0);
}

struct work {
	const char *name;
	double (*run)(void);
	int cpu;
	double slept;
	pthread_t thread;
};

static void *run(void *of)
{
	struct work *it = of;

	prctl(PR_SET_NAME, it->name);
	if (it->cpu >= 0)
		pin(it->cpu);
	it->slept = it->run();
	return 0;
}

static int child_of(void (*work)(int), int with)
{
	int pid = check(fork());

	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		work(with);
		_exit(0);
	}
	return pid;
}

static void sprays(int unused)
{
	spray();
}

int main(int count, char **arguments)
{
	struct work all[] = {
		{ "timeouts", timeouts, -1 },
		{ "expires", expires, 0 },
		{ "polls", polls, 0 },
		{ "receives", receives, 0 },
		{ "reads", reads, -1 },
	};
	int works = sizeof(all) / sizeof(all[0]), children[2];
	FILE *told;

	path = arguments[2];
	children[0] = child_of(sprays, 0);
	if (unshare(CLONE_NEWNET))
		return 4;
	if (system("ip link set lo mtu 1500 up && "
		   "tc qdisc add dev lo root tbf rate 64kbit burst 1600 latency 400ms"))
		return 4;
	answers[0] = connection(&answers[1]);
	children[1] = child_of(answer, answers[1]);
	close(answers[1]);
	end = monotonic() + SECONDS;
	for (int i = 0; i < works; i++)
		pthread_create(&all[i].thread, 0, run, &all[i]);
	for (int i = 0; i < works; i++)
		pthread_join(all[i].thread, 0);
	told = fopen(arguments[1], "w");
	fprintf(told, "%d %d\n", getpid(), children[0]);
	for (int i = 0; i < works; i++)
		fprintf(told, "%s %f\n", all[i].name, all[i].slept);
	fclose(told);
	for (int i = 0; i < 2; i++) {
		kill(children[i], SIGKILL);
		waitpid(children[i], 0, 0);
	}
	return 0;
}
