// SPDX-License-Identifier: Apache-2.0 OR MIT
// Threads that are met in unusual ways, and then take naps: `met_late MODE TOLD` writes its process id and for how many seconds
// it took them.
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char **arguments;

static double now_s(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static void *naps(void *arg)
{
	struct timespec nap = { 0, 50000000 };
	double begun = now_s();
	for (int left = 30; left > 0; left--)
		nanosleep(&nap, NULL);
	FILE *to = fopen(arguments[2], "w");
	fprintf(to, "%d %f\n", getpid(), now_s() - begun);
	fclose(to);
	return arg;
}

static void plain(pthread_attr_t *how)
{
	struct sched_param none = { 0 };
	pthread_attr_init(how);
	pthread_attr_setinheritsched(how, PTHREAD_EXPLICIT_SCHED);
	pthread_attr_setschedpolicy(how, SCHED_OTHER);
	pthread_attr_setschedparam(how, &none);
}

// Its first CPU is taken for 0.4 s by whoever made it.
static int starved(void)
{
	struct sched_param fifo = { 1 }, none = { 0 };
	pthread_attr_t how;
	pthread_t thread;
	cpu_set_t one;
	CPU_ZERO(&one);
	CPU_SET(sched_getcpu(), &one);
	plain(&how);
	if (sched_setaffinity(0, sizeof(one), &one) || sched_setscheduler(0, SCHED_FIFO, &fifo))
		return 2;
	if (pthread_create(&thread, &how, naps, NULL))
		return 1;
	for (double begun = now_s(); now_s() - begun < 0.4;)
		;
	sched_setscheduler(0, SCHED_OTHER, &none);
	return pthread_join(thread, NULL);
}

static void *executes(void *arg)
{
	poll(NULL, 0, 300);
	arguments[1] = "naps";
	execv("/proc/self/exe", arguments);
	return arg;
}

static void *outlives(void *arg)
{
	pthread_t thread;
	poll(NULL, 0, 300);
	if (!pthread_create(&thread, NULL, naps, NULL))
		pthread_join(thread, NULL);
	_exit(0);
	return arg;
}

int main(int count, char **all)
{
	pthread_t thread;
	if (count != 3)
		return 1;
	arguments = all;
	if (!strcmp(all[1], "naps"))
		return !naps(all);
	if (!strcmp(all[1], "starved"))
		return starved();
	if (!strcmp(all[1], "executes")) {
		pthread_create(&thread, NULL, executes, NULL);
		for (;;)
			pause();
	}
	// The first thread ends before the others.
	pthread_create(&thread, NULL, outlives, NULL);
	pthread_exit(NULL);
}
