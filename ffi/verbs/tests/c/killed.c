/* A program that is killed is missed by its peer on the same host, where no kernel answers for it. */
#include "common.h"
#include <signal.h>
#include <time.h>

static void serve(int ready)
{
	struct end far;
	pthread_t thread;
	struct rdma_cm_id *listener = listen_as(&far, &thread);
	uint16_t port = rdma_get_src_port(listener);
	CHECK(write(ready, &port, sizeof port) == sizeof port);
	CHECK(pthread_join(thread, NULL) == 0);
	pause();
}

int main(void)
{
	struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP}, *info;
	struct ibv_qp_init_attr attr = queue_pair_attributes();
	struct rdma_conn_param param = {.private_data = "hello", .private_data_len = 5};
	struct rdma_event_channel *channel;
	struct rdma_cm_event *event;
	struct end near_end;
	struct timespec before, after;
	char service[8];
	int ready[2];
	uint16_t port;
	pid_t child;

	CHECK(pipe(ready) == 0);
	child = fork();
	if (child == 0)
		serve(ready[1]);
	CHECK(child > 0 && read(ready[0], &port, sizeof port) == sizeof port);
	snprintf(service, sizeof service, "%d", ntohs(port));
	CHECK(rdma_getaddrinfo(ADDRESS, service, &hints, &info) == 0);
	CHECK(rdma_create_ep(&near_end.id, info, NULL, &attr) == 0);
	rdma_freeaddrinfo(info);
	give_memory(&near_end);
	CHECK(rdma_connect(near_end.id, &param) == 0);
	channel = rdma_create_event_channel();
	CHECK(channel && rdma_migrate_id(near_end.id, channel) == 0);

	CHECK(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
	CHECK(clock_gettime(CLOCK_MONOTONIC, &before) == 0);
	CHECK(rdma_get_cm_event(channel, &event) == 0);
	CHECK(clock_gettime(CLOCK_MONOTONIC, &after) == 0);
	CHECK(event->event == RDMA_CM_EVENT_DISCONNECTED);
	/* Half a minute without an answer would end the connection, too. */
	CHECK(after.tv_sec - before.tv_sec < 15);
	CHECK(rdma_ack_cm_event(event) == 0);
	CHECK(ibv_dereg_mr(near_end.mr) == 0);
	puts("ok");
	return 0;
}
