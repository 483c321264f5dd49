/* A completion queue that is destroyed leaves nothing on the channel that it shares with another, also if its
 * queue pair has flushed to it as that was destroyed. */
#include "common.h"
#include <poll.h>

static int is_readable(struct ibv_comp_channel *channel, int timeout_ms)
{
	return poll(&(struct pollfd){.fd = channel->fd, .events = POLLIN}, 1, timeout_ms);
}

int main(void)
{
	struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP}, *info;
	struct ibv_qp_init_attr attr = queue_pair_attributes();
	struct end near_end;
	struct ibv_comp_channel *channel;
	struct ibv_cq *receives, *sends, *cq;
	void *cq_context;
	struct ibv_wc wc;
	char port[8];
	int status;
	pid_t child = serve_in_child(port);

	CHECK(rdma_getaddrinfo(ADDRESS, port, &hints, &info) == 0);
	CHECK(rdma_create_ep(&near_end.id, info, NULL, NULL) == 0);
	rdma_freeaddrinfo(info);
	channel = ibv_create_comp_channel(near_end.id->verbs);
	CHECK(channel);
	receives = ibv_create_cq(near_end.id->verbs, 16, NULL, channel, 0);
	sends = ibv_create_cq(near_end.id->verbs, 16, NULL, channel, 0);
	CHECK(receives && sends);
	attr.send_cq = sends;
	attr.recv_cq = receives;
	CHECK(rdma_create_qp(near_end.id, NULL, &attr) == 0);
	connect_near(&near_end);

	/* An event of either queue arrives. */
	CHECK(ibv_req_notify_cq(sends, 0) == 0);
	CHECK(rdma_post_send(near_end.id, NULL, near_end.memory, 8, near_end.mr, 0) == 0);
	CHECK(ibv_get_cq_event(channel, &cq, &cq_context) == 0 && cq == sends);
	ibv_ack_cq_events(sends, 1);
	CHECK(ibv_poll_cq(sends, 1, &wc) == 1 && wc.status == IBV_WC_SUCCESS);

	/* The receive is flushed while the queue pair is destroyed, though the peer does not answer, and nobody
	 * takes the event. */
	CHECK(kill(child, SIGSTOP) == 0);
	CHECK(waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status));
	CHECK(rdma_post_recv(near_end.id, NULL, near_end.memory, 8, near_end.mr) == 0);
	CHECK(ibv_req_notify_cq(receives, 0) == 0);
	CHECK(ibv_destroy_qp(near_end.id->qp) == 0);
	near_end.id->qp = NULL;
	CHECK(ibv_destroy_cq(receives) == 0);
	CHECK(is_readable(channel, 0) == 0);
	CHECK(kill(child, SIGCONT) == 0);
	CHECK(is_readable(channel, 500) == 0);

	CHECK(ibv_destroy_cq(sends) == 0 && ibv_destroy_comp_channel(channel) == 0);
	CHECK(ibv_dereg_mr(near_end.mr) == 0);
	rdma_destroy_ep(near_end.id);
	CHECK(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
	puts("ok");
	return 0;
}
