/* A peer that closes or resets the connection before it has answered has rejected it. */
#define _GNU_SOURCE
#include "common.h"
#include <arpa/inet.h>
#include <sched.h>
#include <sys/socket.h>

#define STRANGER "198.18.0.2"
#define CLOSES 7471
#define RESETS 7472
#define RECEIVES 16

/* Reads the request of each connection, and ends it: by a reset, or by a FIN. */
static void end_each(int listener, int resets)
{
	struct linger linger = {1, 0};
	char request[4096];

	for (;;) {
		int connection = accept(listener, NULL, NULL);
		CHECK(connection >= 0 && read(connection, request, sizeof request) >= 20);
		if (resets)
			CHECK(setsockopt(connection, SOL_SOCKET, SO_LINGER, &linger, sizeof linger) == 0);
		CHECK(close(connection) == 0);
	}
}

static int listener_at(int port)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
	int listener = socket(AF_INET, SOCK_STREAM, 0);

	CHECK(inet_aton(STRANGER, &address.sin_addr) == 1);
	CHECK(listener >= 0 && bind(listener, (struct sockaddr *)&address, sizeof address) == 0);
	CHECK(listen(listener, 16) == 0);
	return listener;
}

/* Has the other end of the link in a network namespace of its own, and there a stranger at each port. */
static void bring_strangers(void)
{
	int moved[2], ready[2];
	char word, command[64];
	pid_t child;

	CHECK(pipe(moved) == 0 && pipe(ready) == 0);
	child = fork();
	if (child == 0) {
		CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && unshare(CLONE_NEWNET) == 0);
		CHECK(write(ready[1], "n", 1) == 1 && read(moved[0], &word, 1) == 1);
		CHECK(system("ip address add " STRANGER "/24 dev far && ip link set far up") == 0);
		int closes = listener_at(CLOSES), resets = listener_at(RESETS);
		child = fork();
		CHECK(child >= 0 && prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
		if (child > 0)
			CHECK(write(ready[1], "l", 1) == 1);
		end_each(child ? closes : resets, child == 0);
	}
	CHECK(child > 0 && read(ready[0], &word, 1) == 1);
	snprintf(command, sizeof command, "ip link set far netns %d", child);
	CHECK(system(command) == 0);
	CHECK(write(moved[1], "m", 1) == 1 && read(ready[0], &word, 1) == 1);
}

static void ask(int port)
{
	struct rdma_addrinfo hints = {0}, *info;
	struct ibv_qp_init_attr attr = queue_pair_attributes();
	struct end near;
	struct ibv_wc wc;
	char service[8];

	hints.ai_port_space = RDMA_PS_TCP;
	snprintf(service, sizeof service, "%d", port);
	CHECK(rdma_getaddrinfo(STRANGER, service, &hints, &info) == 0);
	CHECK(rdma_create_ep(&near.id, info, NULL, &attr) == 0);
	rdma_freeaddrinfo(info);
	give_memory(&near);
	for (intptr_t number = 0; number < RECEIVES; number++)
		CHECK(rdma_post_recv(near.id, (void *)number, near.memory, 8, near.mr) == 0);
	errno = 0;
	CHECK(rdma_connect(near.id, NULL) == -1 && errno == ECONNREFUSED);
	CHECK(near.id->event && near.id->event->event == RDMA_CM_EVENT_REJECTED);
	CHECK(near.id->event->status == -ECONNRESET);
	/* The queue pair has failed, and every receive comes back. */
	for (int number = 0; number < RECEIVES; number++) {
		wc = received(&near);
		CHECK(wc.status == IBV_WC_WR_FLUSH_ERR && wc.wr_id == (uint64_t)number);
	}
	CHECK(ibv_dereg_mr(near.mr) == 0);
	rdma_destroy_ep(near.id);
}

int main(void)
{
	bring_strangers();
	ask(CLOSES);
	ask(RESETS);
	puts("ok");
	return 0;
}
