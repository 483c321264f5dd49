/* A program that is killed is missed by its peer on the same host, where no kernel answers for it. */
#include "common.h"
#include <time.h>

int main(void)
{
	struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP}, *info;
	struct ibv_qp_init_attr attr = queue_pair_attributes();
	struct rdma_event_channel *channel;
	struct rdma_cm_event *event;
	struct end near_end;
	struct timespec before, after;
	char port[8];
	pid_t child = serve_in_child(port);

	CHECK(rdma_getaddrinfo(ADDRESS, port, &hints, &info) == 0);
	CHECK(rdma_create_ep(&near_end.id, info, NULL, &attr) == 0);
	rdma_freeaddrinfo(info);
	connect_near(&near_end);
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
