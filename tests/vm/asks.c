// SPDX-License-Identifier: Apache-2.0 OR MIT
// Datagrams on this host, for `matrix.sh`.
//
//   asks anew      asks for ever, each time from another port; each second question has no answer, the others after 50 ms
//   asks listens   says once that it is there, and then gets something ten times a second
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>
#include <signal.h>

static const struct sockaddr_in SERVER = {.sin_family = AF_INET, .sin_port = 0x3930, .sin_addr = {0x100007f}};

static int checked(int result, const char *what)
{
	if (result < 0) {
		perror(what);
		exit(1);
	}
	return result;
}

static void serve(int to, int pushes)
{
	struct sockaddr_in peer;
	socklen_t length = sizeof(peer);
	char data[8];

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (int n = 0;; n++) {
		if (n == 0 || !pushes)
			checked(recvfrom(to, data, sizeof(data), 0, (struct sockaddr *)&peer, &length), "recvfrom");
		usleep(pushes ? 100000 : 50000);
		if (pushes || n % 2)
			sendto(to, data, 1, 0, (struct sockaddr *)&peer, length);
	}
}

static int connected(void)
{
	int it = checked(socket(AF_INET, SOCK_DGRAM, 0), "socket");

	checked(connect(it, (const struct sockaddr *)&SERVER, sizeof(SERVER)), "connect");
	checked(send(it, "q", 1, 0), "send");
	return it;
}

int main(int argc, char **argv)
{
	int listens = argc == 2 && !strcmp(argv[1], "listens");
	int to = checked(socket(AF_INET, SOCK_DGRAM, 0), "socket");
	char data[8];

	checked(bind(to, (const struct sockaddr *)&SERVER, sizeof(SERVER)), "bind");
	if (checked(fork(), "fork") == 0)
		serve(to, listens);
	close(to);
	for (int it = connected();;) {
		struct pollfd poll_it = {.fd = it, .events = POLLIN};

		if (listens) {
			checked(recv(it, data, sizeof(data), 0), "recv");
			continue;
		}
		poll(&poll_it, 1, 200);
		close(it);
		it = connected();
	}
}
