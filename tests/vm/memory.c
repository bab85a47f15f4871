// SPDX-License-Identifier: Apache-2.0 OR MIT
// Programs for `memory.sh`: one that needs a file in memory, one that takes memory, and one that needs what it took.
//
//   memory read FILE             touches pages of a file at random, for ever
//   memory take MIB PAUSE_US     takes so many MiB, with a pause after each, and keeps them
//   memory need MIB PAUSE_US     the same, and then touches what it took at random, for ever
//
// Each prints, five times a second, the monotonic clock and the kernel's own account of its delays (taskstats), all in
// nanoseconds: waiting for pages that came back, waiting for block IO (those pages included), freeing memory, moving memory.
#include <fcntl.h>
#include <linux/genetlink.h>
#include <linux/netlink.h>
#include <linux/taskstats.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static pid_t worker;

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

// Sends a request with one attribute, and receives the answer; returns its length.
static long ask(int fd, uint16_t family, uint8_t command, uint16_t type, const void *value, uint16_t length,
		char *answer, size_t room)
{
	struct {
		struct nlmsghdr n;
		struct genlmsghdr g;
		char data[64];
	} request = { .n = { .nlmsg_type = family, .nlmsg_flags = NLM_F_REQUEST }, .g = { .cmd = command, .version = 1 } };
	struct nlattr *attribute = (struct nlattr *)request.data;

	attribute->nla_type = type;
	attribute->nla_len = NLA_HDRLEN + length;
	memcpy(request.data + NLA_HDRLEN, value, length);
	request.n.nlmsg_len = NLMSG_LENGTH(GENL_HDRLEN) + NLA_ALIGN(attribute->nla_len);
	if (send(fd, &request, request.n.nlmsg_len, 0) < 0)
		fail("send");
	return recv(fd, answer, room, 0);
}

// The attribute of that type in a list; NULL = there is none.
static struct nlattr *find(char *from, char *end, uint16_t type)
{
	while (from + NLA_HDRLEN <= end) {
		struct nlattr *attribute = (struct nlattr *)from;

		if (attribute->nla_len < NLA_HDRLEN)
			break;
		if ((attribute->nla_type & NLA_TYPE_MASK) == type)
			return attribute;
		from += NLA_ALIGN(attribute->nla_len);
	}
	return NULL;
}

static void *account(void *unused)
{
	char answer[4096], *data = answer + NLMSG_LENGTH(GENL_HDRLEN);
	int fd = socket(AF_NETLINK, SOCK_RAW, NETLINK_GENERIC);
	long length = ask(fd, GENL_ID_CTRL, CTRL_CMD_GETFAMILY, CTRL_ATTR_FAMILY_NAME, TASKSTATS_GENL_NAME,
			  sizeof(TASKSTATS_GENL_NAME), answer, sizeof(answer));
	struct nlattr *family = length > 0 ? find(data, answer + length, CTRL_ATTR_FAMILY_ID) : NULL;
	uint16_t id;

	if (!family)
		fail("no taskstats");
	memcpy(&id, (char *)family + NLA_HDRLEN, sizeof(id));
	for (;; usleep(200000)) {
		uint32_t pid = worker;
		struct timespec now;
		struct taskstats stats = { 0 };
		struct nlattr *of, *inner;

		length = ask(fd, id, TASKSTATS_CMD_GET, TASKSTATS_CMD_ATTR_PID, &pid, sizeof(pid), answer, sizeof(answer));
		clock_gettime(CLOCK_MONOTONIC, &now);
		of = length > 0 ? find(data, answer + length, TASKSTATS_TYPE_AGGR_PID) : NULL;
		inner = of ? find((char *)of + NLA_HDRLEN, (char *)of + of->nla_len, TASKSTATS_TYPE_STATS) : NULL;
		if (!inner)
			fail("no account");
		length = inner->nla_len - NLA_HDRLEN;
		memcpy(&stats, (char *)inner + NLA_HDRLEN, length < (long)sizeof(stats) ? length : (long)sizeof(stats));
		printf("%lld %llu %llu %llu %llu\n", now.tv_sec * 1000000000LL + now.tv_nsec,
		       (unsigned long long)stats.thrashing_delay_total, (unsigned long long)stats.blkio_delay_total,
		       (unsigned long long)stats.freepages_delay_total, (unsigned long long)stats.compact_delay_total);
		fflush(stdout);
	}
	return unused;
}

static void touch_for_ever(volatile char *at, size_t pages, int write)
{
	uint64_t seed = 88172645463325252ULL;

	for (;;) {
		seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
		volatile char *page = at + seed % pages * 4096;

		if (write)
			*page += 1;
		else
			(void)*page;
		// An emulated processor is to have time for others.
		if (seed % 64 == 0)
			usleep(500);
	}
}

int main(int argc, char **argv)
{
	pthread_t accountant;

	worker = getpid();
	if (argc < 3)
		return 2;
	if (pthread_create(&accountant, NULL, account, NULL))
		fail("pthread_create");
	if (!strcmp(argv[1], "read")) {
		struct stat stat;
		int fd = open(argv[2], O_RDONLY);

		if (fd < 0 || fstat(fd, &stat))
			fail(argv[2]);
		char *file = mmap(NULL, stat.st_size, PROT_READ, MAP_SHARED, fd, 0);

		if (file == MAP_FAILED)
			fail("mmap");
		// Each fault is for the page that is touched.
		madvise(file, stat.st_size, MADV_RANDOM);
		touch_for_ever(file, stat.st_size / 4096, 0);
	}
	size_t mib = atol(argv[2]);
	char *all = mmap(NULL, mib << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (all == MAP_FAILED)
		fail("mmap");
	madvise(all, mib << 20, MADV_NOHUGEPAGE);
	for (size_t at = 0; at < mib; at++) {
		memset(all + (at << 20), 1, 1 << 20);
		usleep(argc > 3 ? atol(argv[3]) : 0);
	}
	if (!strcmp(argv[1], "need"))
		touch_for_ever(all, mib << 8, 1);
	pause();
	return 0;
}
