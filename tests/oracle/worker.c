/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A process whose threads compute and sleep by turns:
 *
 *     worker COMM SECONDS JOIN[,JOIN] THREAD...
 *
 * JOIN is the file by which a cgroup is entered ("-" = none). The process ends after SECONDS, and with its parent. THREAD:
 *
 *     POLICY:VALUE:PERIOD_US:CPUS:BURST_US-BURST_US:SLEEP_US-SLEEP_US:HOP:CHILD_US:SEED
 *
 * POLICY and VALUE: other, batch or idle and a nice value, fifo or rr and a priority, deadline and a runtime in us of each
 * PERIOD_US. CPUS: a mask in hex, 0 = any. Bursts are CPU time, lengths are drawn log-uniformly between both bounds; a sleep of
 * 0 is none. HOP: after this many us of CPU time the thread is bound to the next CPU of CPUS; 0 = never. CHILD_US: instead of
 * computing, each burst forks a child that computes for this many us; 0 = no child.
 */
#define _GNU_SOURCE
#include <linux/types.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct thread {
	char policy[16];
	int value;
	long period_us;
	unsigned long cpus;
	double burst_us[2], sleep_us[2];
	long hop_us, child_us;
	uint64_t seed;
};

/* struct sched_attr, which the C library's headers of many systems lack. */
struct attributes {
	__u32 size, policy;
	__u64 flags;
	__s32 nice;
	__u32 priority;
	__u64 runtime_ns, deadline_ns, period_ns;
};

static void fail(const char *what)
{
	perror(what);
	exit(3);
}

static double drawn_us(struct thread *self, const double bounds[2])
{
	self->seed = self->seed * 6364136223846793005ull + 1442695040888963407ull;
	double random = (double)(self->seed >> 11) / (double)(1ull << 53);

	if (bounds[0] <= 0)
		return bounds[1] * random;
	return bounds[0] * exp(log(bounds[1] / bounds[0]) * random);
}

static double us(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static double cpu_us(void)
{
	return us(CLOCK_THREAD_CPUTIME_ID);
}

/*
 * Computes until the thread's CPU time is end_us, or a bit longer, and returns its CPU time. Reading that is a system call
 * that causes an event in perf's trace, so the time that is left at least is waited for by the wall clock.
 */
static double compute_until(double end_us)
{
	double now_us = cpu_us();

	while (now_us < end_us) {
		double wall_us = us(CLOCK_MONOTONIC) + end_us - now_us;

		while (us(CLOCK_MONOTONIC) < wall_us)
			;
		now_us = cpu_us();
	}
	return now_us;
}

static void bind_to(unsigned long cpus)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	for (int cpu = 0; cpu < 64; cpu++)
		if (cpus >> cpu & 1)
			CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		fail("sched_setaffinity");
}

static unsigned long next_cpu(unsigned long cpus, unsigned long now)
{
	do {
		now = now << 1 ? now << 1 : 1;
	} while (!(cpus & now));
	return now;
}

static void set_policy(const struct thread *self)
{
	struct attributes attributes = { .size = sizeof(attributes) };

	attributes.nice = self->value;
	if (!strcmp(self->policy, "other")) {
		attributes.policy = SCHED_OTHER;
	} else if (!strcmp(self->policy, "batch")) {
		attributes.policy = SCHED_BATCH;
	} else if (!strcmp(self->policy, "idle")) {
		attributes.policy = SCHED_IDLE;
	} else if (!strcmp(self->policy, "deadline")) {
		attributes.policy = 6;
		attributes.nice = 0;
		attributes.runtime_ns = (__u64)self->value * 1000;
		attributes.deadline_ns = attributes.period_ns = (__u64)self->period_us * 1000;
	} else {
		attributes.policy = !strcmp(self->policy, "rr") ? SCHED_RR : SCHED_FIFO;
		attributes.nice = 0;
		attributes.priority = (__u32)self->value;
	}
	if (syscall(SYS_sched_setattr, 0, &attributes, 0))
		fail("sched_setattr");
}

/* Computes for this many us of CPU time, and moves to the next CPU when that is due. */
static void compute(const struct thread *self, double us, unsigned long *cpu, double *hop_at_us)
{
	double now_us = cpu_us(), end_us = now_us + us;

	while (now_us < end_us) {
		if (self->hop_us && now_us >= *hop_at_us) {
			*cpu = next_cpu(self->cpus, *cpu);
			bind_to(*cpu);
			*hop_at_us = now_us + (double)self->hop_us;
		}
		now_us = compute_until(self->hop_us && *hop_at_us < end_us ? *hop_at_us : end_us);
	}
}

static void fork_child(const struct thread *self)
{
	pid_t child = fork();

	if (child < 0)
		fail("fork");
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		compute_until(cpu_us() + (double)self->child_us);
		_exit(0);
	}
	while (waitpid(-1, NULL, WNOHANG) > 0)
		;
}

static void *run(void *of)
{
	struct thread *self = of;
	unsigned long cpu = self->cpus & -self->cpus;
	double hop_at_us = 0;

	if (self->cpus)
		bind_to(self->cpus);
	set_policy(self);
	for (;;) {
		double burst_us = drawn_us(self, self->burst_us), sleep_us = drawn_us(self, self->sleep_us);

		if (self->child_us)
			fork_child(self);
		else
			compute(self, burst_us, &cpu, &hop_at_us);
		if (sleep_us > 0) {
			struct timespec time = { (time_t)(sleep_us / 1e6), 0 };

			time.tv_nsec = (long)((sleep_us - (double)time.tv_sec * 1e6) * 1e3);
			nanosleep(&time, NULL);
		}
	}
	return NULL;
}

static void join(char *files)
{
	for (char *path = strtok(files, ","); path && strcmp(path, "-"); path = strtok(NULL, ",")) {
		FILE *file = fopen(path, "w");

		if (!file || fprintf(file, "%d\n", getpid()) < 0 || fclose(file))
			fail(path);
	}
}

int main(int argc, char **argv)
{
	struct thread *threads = calloc((size_t)argc, sizeof(*threads));
	pid_t parent = getppid();
	pthread_t thread;

	if (argc < 5 || !threads)
		return 2;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		return 3;
	alarm((unsigned)atoi(argv[2]));
	join(argv[3]);
	prctl(PR_SET_NAME, argv[1]);
	for (int i = 4; i < argc; i++) {
		struct thread *t = &threads[i - 4];

		if (sscanf(argv[i], "%15[a-z]:%d:%ld:%lx:%lf-%lf:%lf-%lf:%ld:%ld:%lu", t->policy, &t->value, &t->period_us,
			   &t->cpus, &t->burst_us[0], &t->burst_us[1], &t->sleep_us[0], &t->sleep_us[1], &t->hop_us,
			   &t->child_us, &t->seed) != 11) {
			fprintf(stderr, "what is %s?\n", argv[i]);
			return 2;
		}
	}
	for (int i = 1; i < argc - 4; i++)
		if (pthread_create(&thread, NULL, run, &threads[i]))
			fail("pthread_create");
	run(&threads[0]);
}
