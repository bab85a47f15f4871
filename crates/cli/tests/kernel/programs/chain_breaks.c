// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * A thread that waits for links, one after the other, each of which comes to an end while it is waited for: it is killed, it
 * exits, it executes another program, it ends with a lock in hand, or another process has its pid. Writes how long was
 * waited, and what the links did meanwhile, as measured here.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "clocks.h"

#define FOR_S 3.0

/* What a link does: its sums so far, and what it began last. Seconds. */
struct told {
	double napped, computed, since;
	double delay; /* what its thread had waited for a CPU by then */
	int tid, naps, rounds;
	unsigned seed;
};

static struct told *told;
static int told_fd;
static double waited;

static double drawn(double from, double to)
{
	return from + (to - from) * (rand_r(&told->seed) / (double)RAND_MAX);
}

static void nap(double seconds)
{
	struct timespec t = { 0, seconds * 1e9 };

	clock_nanosleep(CLOCK_MONOTONIC, 0, &t, 0);
}

/* The next that a link does begins now. What it waits for a CPU after a nap counts as computing. */
static void begins(int naps)
{
	double now = monotonic(), before = told->since, delay = delayed(), waits = 0;

	if (told->naps && told->tid == gettid())
		waits = delay - told->delay;
	if (told->naps)
		told->napped += now - before - waits;
	else
		told->computed += now - before;
	told->computed += waits;
	told->naps = naps;
	told->since = now;
	told->delay = delay;
	told->tid = gettid();
}

static void work_for(double seconds)
{
	double end = told->since + seconds;

	while (monotonic() < end) {
		double some = drawn(0.003, 0.008);

		if (drawn(0, 1) < 0.5) {
			begins(1);
			nap(some);
		} else {
			begins(0);
			for (some += monotonic(); monotonic() < some;)
				;
		}
	}
	begins(0);
}

static int pipe_fds[2], go_fds[2];
static char byte;

/* A link waits until it is waited for. */
static void await(void)
{
	read(go_fds[0], &byte, 1);
}

static void let_go(void)
{
	told->since = monotonic();
	told->naps = 0;
	write(go_fds[1], "x", 1);
}

static void wait_for_pipe(char expected)
{
	double begin = undelayed();

	let_go();
	byte = '-';
	read(pipe_fds[0], &byte, 1);
	waited += undelayed() - begin;
	begins(0);
	if (byte != expected)
		exit(4);
	told->rounds++;
}

static int link_of(void (*work)(void))
{
	int pid = fork();

	if (!pid) {
		prctl(PR_SET_NAME, "link");
		close(pipe_fds[0]);
		work();
		_exit(0);
	}
	return pid;
}

static void works_on(void)
{
	await();
	work_for(60);
}

static void works_and_exits(void)
{
	await();
	work_for(drawn(0.02, 0.06));
}

static void works_and_executes(void)
{
	char fd[20], of_told[20];

	await();
	work_for(drawn(0.01, 0.03));
	sprintf(fd, "%d", pipe_fds[1]);
	sprintf(of_told, "%d", told_fd);
	execl("/proc/self/exe", "another", "executed", fd, of_told, (char *)0);
}

static void map_told(int fd)
{
	told_fd = fd;
	told = mmap(0, sizeof(*told), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
}

/* The program that a link executes. */
static int executed(int fd, int of_told)
{
	prctl(PR_SET_NAME, "another");
	map_told(of_told);
	begins(1);
	nap(drawn(0.01, 0.03));
	begins(0);
	return write(fd, "x", 1) != 1;
}

static void round_of(void (*work)(void), int kills)
{
	int pid, killer = 0;

	if (pipe(pipe_fds) || pipe(go_fds))
		exit(5);
	pid = link_of(work);
	if (kills) {
		double after = drawn(0.02, 0.06);

		killer = fork();
		if (!killer) {
			prctl(PR_SET_NAME, "killer");
			close(pipe_fds[1]);
			nap(after);
			kill(pid, SIGKILL);
			_exit(0);
		}
	}
	close(pipe_fds[1]);
	wait_for_pipe(work == works_and_executes ? 'x' : '-');
	waitpid(pid, 0, 0);
	if (killer)
		waitpid(killer, 0, 0);
	close(pipe_fds[0]);
	close(go_fds[0]);
	close(go_fds[1]);
}

/* --- a thread that ends with a lock in hand --- */

static pthread_mutex_t robust;
static volatile int holds;

static void *holder(void *unused)
{
	prctl(PR_SET_NAME, "link");
	pthread_mutex_lock(&robust);
	holds = 1;
	await();
	work_for(drawn(0.02, 0.06));
	return unused;
}

static void round_of_lock(void)
{
	double begin;
	pthread_t thread;

	/* The main thread waits for nothing else in a futex. */
	holds = 0;
	pthread_create(&thread, 0, holder, 0);
	while (!holds)
		nap(0.0002);
	begin = undelayed();
	let_go();
	if (pthread_mutex_lock(&robust) != EOWNERDEAD)
		exit(6);
	waited += undelayed() - begin;
	begins(0);
	told->rounds++;
	pthread_mutex_consistent(&robust);
	pthread_mutex_unlock(&robust);
	while (pthread_tryjoin_np(thread, 0))
		nap(0.0002);
}

static void rounds_of_lock(double until)
{
	pthread_mutexattr_t is;

	pthread_mutexattr_init(&is);
	pthread_mutexattr_setrobust(&is, PTHREAD_MUTEX_ROBUST);
	pthread_mutex_init(&robust, &is);
	if (pipe(go_fds))
		exit(5);
	while (monotonic() < until)
		round_of_lock();
}

/* --- a process that has the pid of another one --- */

static int fork_with(int pid)
{
	pid_t set = pid;
	struct clone_args args = {
		.exit_signal = SIGCHLD,
		.set_tid = pid ? (uintptr_t)&set : 0,
		.set_tid_size = pid ? 1 : 0,
	};

	return syscall(SYS_clone3, &args, sizeof(args));
}

/* The first one computes all its life. The second one naps, and then ends the wait for both. */
static int round_of_pid(void)
{
	double begin;
	int pid, other;

	if (pipe(pipe_fds))
		exit(5);
	other = fork();
	if (!other) {
		double end;
		int status;

		prctl(PR_SET_NAME, "starter");
		pid = fork_with(0);
		if (!pid) {
			prctl(PR_SET_NAME, "first");
			for (end = monotonic() + 0.7; monotonic() < end;)
				;
			_exit(0);
		}
		waitpid(pid, &status, 0);
		told->computed += 0.7;
		if (fork_with(pid) == 0) {
			prctl(PR_SET_NAME, "second");
			nap(0.7);
			write(pipe_fds[1], "x", 1);
			/* Until a look has found it. */
			nap(1.5);
			_exit(0);
		}
		if (errno == EPERM || errno == ENOSYS || errno == EINVAL)
			write(pipe_fds[1], "?", 1);
		wait(&status);
		_exit(0);
	}
	close(pipe_fds[1]);
	begin = undelayed();
	read(pipe_fds[0], &byte, 1);
	waited += undelayed() - begin;
	told->napped += 0.7;
	told->rounds++;
	waitpid(other, 0, 0);
	return byte == 'x';
}

/* --- a link that is waited for while the observer is stopped, and a crowd whose sleeps fill its logs --- */

#define CROWD 40

static const char *path;

static const char *named(const char *what)
{
	static char name[4096];

	snprintf(name, sizeof(name), "%s.%s", path, what);
	return name;
}

static void *sleeps_often(void *until)
{
	while (monotonic() < *(double *)until)
		nap(0.001);
	return 0;
}

static void crowd(void)
{
	pthread_t threads[CROWD];
	double until;

	prctl(PR_SET_NAME, "crowd");
	close(pipe_fds[1]);
	nap(0.4);
	close(creat(named("begun"), 0600));
	while (access(named("stopped"), F_OK))
		nap(0.005);
	until = monotonic() + 0.6;
	for (int i = 0; i < CROWD; i++)
		pthread_create(threads + i, 0, sleeps_often, &until);
	for (int i = 0; i < CROWD; i++)
		pthread_join(threads[i], 0);
	close(creat(named("crowded"), 0600));
}

static void works_until_crowded(void)
{
	await();
	while (access(named("crowded"), F_OK))
		work_for(0.05);
	work_for(0.5);
}

static void round_of_lost(void)
{
	int pids[2];

	if (pipe(pipe_fds) || pipe(go_fds))
		exit(5);
	pids[0] = fork();
	if (!pids[0]) {
		crowd();
		_exit(0);
	}
	pids[1] = link_of(works_until_crowded);
	close(pipe_fds[1]);
	wait_for_pipe('-');
	for (int i = 0; i < 2; i++)
		waitpid(pids[i], 0, 0);
}

int main(int argc, char **argv)
{
	const char *mode = argv[1];
	double until = monotonic() + FOR_S;
	FILE *file;

	if (!strcmp(mode, "executed"))
		return executed(atoi(argv[2]), atoi(argv[3]));
	map_told(memfd_create("told", 0));
	if (ftruncate(told_fd, sizeof(*told)))
		return 8;
	told->seed = atoi(argv[3]);
	file = fopen(argv[2], "w");
	if (!strcmp(mode, "lock"))
		rounds_of_lock(until);
	if (!strcmp(mode, "pid") && !round_of_pid())
		return 2;
	path = argv[2];
	if (!strcmp(mode, "lost"))
		round_of_lost();
	while (!strcmp(mode, "killed") && monotonic() < until)
		round_of(works_on, 1);
	while (!strcmp(mode, "exits") && monotonic() < until)
		round_of(works_and_exits, 0);
	while (!strcmp(mode, "executes") && monotonic() < until)
		round_of(works_and_executes, 0);
	if (!told->rounds)
		return 7;
	fprintf(file, "%d %f %f %f %d\n", getpid(), waited, told->napped, told->computed,
		told->rounds);
	return fclose(file) != 0;
}
