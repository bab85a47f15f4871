// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * A random graph of threads in several processes that wait for each other, and when each of them slept and for whom, as
 * measured here. Nodes serve one request after the other: they compute, nap, ask further nodes, and do some of that with a
 * lock in hand. The root asks them and takes locks, and so do clients, which keep nodes and locks from it.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "clocks.h"

#define FOR_S	3.0
#define THREADS 12
#define LOCKS	2
#define SLEEPS	20000
#define QUIT	-1

/* Nodes up to this one take lock 0, and ask only others while they have it; all take lock 1, and ask nobody. */
#define LAST_WITH_LOCK_0 2

enum kind { NAPS, WAITS_FOR, WAITS_FOR_LOCK, RESTS, HAS_LOCK };

struct slept {
	double start, end;
	int kind, of; /* thread or lock */
};

struct node {
	int asks[2], answers[2]; /* what it is asked, and where its own questions are answered */
	int process, is_client, slept;
	unsigned seed;
	struct slept sleeps[SLEEPS];
};

struct shared {
	pthread_mutex_t locks[LOCKS];
	volatile int stop;
	struct node nodes[THREADS];
};

static struct shared *all;
static int nodes, clients, processes;
static double ends;
static __thread struct node *own;

static double drawn(double from, double to)
{
	return from + (to - from) * (rand_r(&own->seed) / (double)RAND_MAX);
}

static int one_of(int many)
{
	return rand_r(&own->seed) % many;
}

static void note(int kind, int of, double start, double end)
{
	if (own->slept == SLEEPS)
		exit(4);
	own->sleeps[own->slept++] = (struct slept){ start, end, kind, of };
}

/* A sleep that began then is over. What its thread waits for a CPU afterwards is no sleep. */
static void woke(int kind, int of, double start, double delay)
{
	double now_delay, end = monotonic_and(&now_delay) - (now_delay - delay);

	/* The kernel counts with another clock, some microseconds apart. */
	note(kind, of, start, end > start ? end : start);
}

static void compute(double seconds)
{
	double end = monotonic() + seconds;

	while (monotonic() < end)
		;
}

static void nap(double seconds)
{
	struct timespec t = { 0, seconds * 1e9 };
	double delay, start = monotonic_and(&delay);

	clock_nanosleep(CLOCK_MONOTONIC, 0, &t, 0);
	woke(NAPS, 0, start, delay);
}

static void ask(int node)
{
	int me = own - all->nodes, answer;
	double delay, start = monotonic_and(&delay);

	if (write(all->nodes[node].asks[1], &me, sizeof(me)) != sizeof(me))
		exit(5);
	if (read(own->answers[0], &answer, sizeof(answer)) != sizeof(answer) || answer != node)
		exit(6);
	woke(WAITS_FOR, node, start, delay);
}

static void compute_or_nap(void)
{
	if (one_of(2))
		compute(drawn(0.0015, 0.005));
	else
		nap(drawn(0.002, 0.007));
}

static void ask_one_after(int node)
{
	if (node + 1 < nodes)
		ask(node + 1 + one_of(nodes - node - 1));
}

static void with_lock(int lock)
{
	double delay, start = monotonic_and(&delay), since;

	pthread_mutex_lock(&all->locks[lock]);
	since = monotonic();
	woke(WAITS_FOR_LOCK, lock, start, delay);
	compute_or_nap();
	if (lock == 0 && one_of(2))
		ask_one_after(LAST_WITH_LOCK_0);
	note(HAS_LOCK, lock, since, monotonic());
	pthread_mutex_unlock(&all->locks[lock]);
}

static void with_some_lock(int me)
{
	with_lock(me <= LAST_WITH_LOCK_0 || own->is_client ? one_of(LOCKS) : 1);
}

static void *serve(void *number)
{
	int me = (intptr_t)number, client;
	char name[16];

	own = &all->nodes[me];
	sprintf(name, "node-%d", me);
	prctl(PR_SET_NAME, name);
	for (;;) {
		double delay, start = monotonic_and(&delay);

		if (read(own->asks[0], &client, sizeof(client)) != sizeof(client))
			exit(7);
		woke(RESTS, 0, start, delay);
		if (client == QUIT)
			return 0;
		for (int steps = 1 + one_of(2); steps; steps--) {
			int what = one_of(4);

			if (what == 0)
				with_some_lock(me);
			else if (what == 1)
				ask_one_after(me);
			else
				compute_or_nap();
		}
		if (write(all->nodes[client].answers[1], &me, sizeof(me)) != sizeof(me))
			exit(8);
	}
}

/* The root, and the clients that are in its way. */
static void *asks_all(void *number)
{
	int me = (intptr_t)number;
	char name[16];

	own = &all->nodes[me];
	sprintf(name, me ? "client-%d" : "root", me);
	prctl(PR_SET_NAME, name);
	while (!all->stop) {
		all->stop = !me && monotonic() > ends;
		nap(me ? drawn(0.005, 0.015) : drawn(0.001, 0.003));
		if (one_of(3))
			ask(1 + one_of(nodes - 1));
		else
			with_some_lock(me);
	}
	return 0;
}

static void channel(int fds[2])
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t length = sizeof(at);
	int listens, one = 1, what = one_of(3);

	if (what == 0 && !pipe(fds))
		return;
	if (what == 1 && !socketpair(AF_UNIX, SOCK_STREAM, 0, fds))
		return;
	listens = socket(AF_INET, SOCK_STREAM, 0);
	if (bind(listens, (void *)&at, length) || listen(listens, 1) ||
	    getsockname(listens, (void *)&at, &length))
		exit(9);
	fds[0] = socket(AF_INET, SOCK_STREAM, 0);
	if (connect(fds[0], (void *)&at, length))
		exit(9);
	fds[1] = accept(listens, 0, 0);
	setsockopt(fds[1], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	close(listens);
}

static void prepare(unsigned seed)
{
	pthread_mutexattr_t is;

	all = mmap(0, sizeof(*all), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pthread_mutexattr_init(&is);
	pthread_mutexattr_setpshared(&is, PTHREAD_PROCESS_SHARED);
	for (int lock = 0; lock < LOCKS; lock++)
		pthread_mutex_init(&all->locks[lock], &is);
	own = &all->nodes[0];
	own->seed = seed * 2654435761U;
	nodes = 5 + one_of(3);
	clients = 2 + one_of(2);
	processes = 3;
	for (int it = 0; it < nodes + clients; it++) {
		channel(all->nodes[it].asks);
		channel(all->nodes[it].answers);
		/* The root is alone in its process: so many kinds of sleep are told of each process. */
		all->nodes[it].process = it ? 1 + one_of(processes - 1) : 0;
		all->nodes[it].seed = seed * 31 + it;
		all->nodes[it].is_client = it == 0 || it >= nodes;
	}
}

static void start_threads(int process, pthread_t *threads)
{
	for (intptr_t it = 1; it < nodes + clients; it++)
		if (all->nodes[it].process == process)
			pthread_create(threads + it, 0, it < nodes ? serve : asks_all, (void *)it);
}

static void join_threads(int process, pthread_t *threads, int from, int to)
{
	for (int it = from; it < to; it++)
		if (all->nodes[it].process == process)
			pthread_join(threads[it], 0);
}

int main(int argc, char **argv)
{
	pthread_t threads[THREADS];
	int pids[4] = { 0 }, quit = QUIT;
	FILE *file;

	prepare(strtoul(argv[2], 0, 10));
	for (int process = 1; process < processes; process++) {
		pids[process] = fork();
		if (!pids[process]) {
			start_threads(process, threads);
			join_threads(process, threads, nodes, nodes + clients);
			join_threads(process, threads, 1, nodes);
			_exit(0);
		}
	}
	ends = monotonic() + FOR_S;
	asks_all(0);
	/* Clients of other processes have a while to end; who serves them quits afterwards. */
	nap(0.3);
	for (int it = 1; it < nodes; it++)
		write(all->nodes[it].asks[1], &quit, sizeof(quit));
	for (int process = 1; process < processes; process++)
		waitpid(pids[process], 0, 0);
	file = fopen(argv[1], "w");
	fprintf(file, "%d %d %d %d\n", getpid(), nodes, clients, processes);
	for (int it = 0; it < nodes + clients; it++)
		for (int at = 0; at < all->nodes[it].slept; at++) {
			struct slept *s = &all->nodes[it].sleeps[at];

			fprintf(file, "%d %d %d %.9f %.9f\n", it, s->kind, s->of, s->start, s->end);
		}
	return fclose(file) != 0;
}
