/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The clocks of the programs that are witnesses of sleep. Includers define _GNU_SOURCE. */
#ifndef DEBURR_TESTS_CLOCKS_H
#define DEBURR_TESTS_CLOCKS_H

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static double monotonic(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

/* Seconds that the thread has waited for a CPU. */
static double delayed(void)
{
	static __thread int file = -1;
	/* A forked process has its parent's. */
	static __thread int of;
	char text[100] = { 0 };
	unsigned long long ran, delay;

	if (file < 0 || of != gettid())
		file = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
	of = gettid();
	if (pread(file, text, 99, 0) <= 0 || sscanf(text, "%llu %llu", &ran, &delay) != 2)
		exit(3);
	return delay / 1e9;
}

/* The time, and how long the thread had waited for a CPU until then: it did not wait between the two readings. */
static inline double monotonic_and(double *delay)
{
	double time;

	do {
		*delay = delayed();
		time = monotonic();
	} while (delayed() != *delay);
	return time;
}

/* The time less all that the thread has waited for a CPU: differences of it are what it ran and slept. */
static inline double undelayed(void)
{
	double delay, time = monotonic_and(&delay);

	return time - delay;
}

#endif
