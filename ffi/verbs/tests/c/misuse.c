/* Bad input, cancelled waits and forks: an error each, and the process goes on. */
#include "common.h"
#include <poll.h>
#include <time.h>

#define LARGE_BYTES (16 << 20)

static struct ibv_comp_channel *channel;
static struct rdma_event_channel *events;
static struct ibv_context *context;

static void *wait_for_completion(void *unused)
{
	struct ibv_cq *cq;
	void *cq_context;
	ibv_get_cq_event(channel, &cq, &cq_context);
	return unused;
}

static void *wait_for_connection(void *unused)
{
	struct rdma_cm_event *event;
	rdma_get_cm_event(events, &event);
	return unused;
}

static void *wait_for_device(void *unused)
{
	struct ibv_async_event event;
	ibv_get_async_event(context, &event);
	return unused;
}

static void cancel(void *(*waiting)(void *))
{
	pthread_t thread;
	void *result;
	CHECK(pthread_create(&thread, NULL, waiting, NULL) == 0);
	usleep(50000);
	CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0);
	CHECK(result == PTHREAD_CANCELED);
}

/* Posts the binding of a window of type 2 to all of an end's memory, under `rkey`. */
static int bind_window(struct end *end, struct ibv_mw *mw, uint32_t rkey, uint64_t length)
{
	struct ibv_send_wr *bad, wr = {.opcode = IBV_WR_BIND_MW};
	wr.bind_mw.mw = mw;
	wr.bind_mw.rkey = rkey;
	wr.bind_mw.bind_info = (struct ibv_mw_bind_info){
		.mr = end->mr, .addr = (uintptr_t)end->memory, .length = length,
		.mw_access_flags = IBV_ACCESS_REMOTE_READ};
	return ibv_post_send(end->id->qp, &wr, &bad);
}

/* Waits for the completion of flushed work of a queue pair, and returns its identifier. */
static uint64_t flushed(struct ibv_qp *qp, struct ibv_cq *cq)
{
	struct ibv_wc wc;
	int completions;

	while (!(completions = ibv_poll_cq(cq, 1, &wc)))
		usleep(1000);
	CHECK(completions == 1 && wc.status == IBV_WC_WR_FLUSH_ERR && wc.qp_num == qp->qp_num);
	return wc.wr_id;
}

/* ERR flushes what is posted to a queue pair without a connection, before and after. */
static void flush_unconnected(struct ibv_pd *pd)
{
	struct ibv_cq *cq = ibv_create_cq(pd->context, 16, NULL, NULL, 0);
	struct ibv_qp_init_attr init_attr = queue_pair_attributes();
	struct ibv_recv_wr *bad_recv, recv = {.wr_id = 1};
	struct ibv_send_wr *bad_send, send = {.wr_id = 3, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
	struct ibv_qp *qp;

	init_attr.send_cq = init_attr.recv_cq = cq;
	init_attr.qp_type = IBV_QPT_RC;
	qp = ibv_create_qp(pd, &init_attr);
	CHECK(qp && ibv_post_recv(qp, &recv, &bad_recv) == 0);
	CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == 0);
	CHECK(flushed(qp, cq) == 1);
	recv.wr_id = 2;
	CHECK(ibv_post_recv(qp, &recv, &bad_recv) == 0 && flushed(qp, cq) == 2);
	CHECK(ibv_post_send(qp, &send, &bad_send) == 0 && flushed(qp, cq) == 3);
	CHECK(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init_attr) == 0 && attr.qp_state == IBV_QPS_ERR);
	CHECK(ibv_destroy_qp(qp) == 0 && ibv_destroy_cq(cq) == 0);
}

/* A program may destroy the queue pair of an id, which names it still, before it takes the rejection. */
static void reject_without_queue_pair(void)
{
	struct sockaddr_in address = {
		.sin_family = AF_INET, .sin_port = htons(9), .sin_addr.s_addr = htonl(0xc6120001)};
	struct ibv_qp_init_attr attr = queue_pair_attributes();
	struct rdma_event_channel *own = rdma_create_event_channel();
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;

	CHECK(own && rdma_create_id(own, &id, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_resolve_addr(id, NULL, (struct sockaddr *)&address, 1000) == 0);
	CHECK(rdma_get_cm_event(own, &event) == 0 && event->event == RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(rdma_ack_cm_event(event) == 0 && rdma_resolve_route(id, 1000) == 0);
	CHECK(rdma_get_cm_event(own, &event) == 0 && event->event == RDMA_CM_EVENT_ROUTE_RESOLVED);
	CHECK(rdma_ack_cm_event(event) == 0 && rdma_create_qp(id, NULL, &attr) == 0);
	CHECK(rdma_connect(id, NULL) == 0);
	CHECK(poll(&(struct pollfd){.fd = own->fd, .events = POLLIN}, 1, 30000) == 1);
	CHECK(ibv_destroy_qp(id->qp) == 0);
	CHECK(rdma_get_cm_event(own, &event) == 0 && event->event == RDMA_CM_EVENT_REJECTED);
	CHECK(event->status == -ECONNREFUSED && rdma_ack_cm_event(event) == 0);
	id->qp = NULL;
	rdma_destroy_qp(id);
	CHECK(rdma_destroy_id(id) == 0);
	rdma_destroy_event_channel(own);
}

/* An id that does not get a port may be bound to another. */
static void bind_again(void)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0xc6120001)};
	int taken = socket(AF_INET, SOCK_STREAM, 0);
	socklen_t len = sizeof address;
	struct rdma_cm_id *id;

	CHECK(taken >= 0 && bind(taken, (struct sockaddr *)&address, sizeof address) == 0);
	CHECK(listen(taken, 1) == 0 && getsockname(taken, (struct sockaddr *)&address, &len) == 0);
	CHECK(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_bind_addr(id, (struct sockaddr *)&address) == -1 && errno == EADDRINUSE);
	CHECK(rdma_get_src_port(id) == 0);
	address.sin_port = 0;
	CHECK(rdma_bind_addr(id, (struct sockaddr *)&address) == 0 && rdma_get_src_port(id) != 0);
	CHECK(rdma_bind_addr(id, (struct sockaddr *)&address) == -1 && errno == EINVAL);
	CHECK(rdma_listen(id, 1) == 0 && rdma_destroy_id(id) == 0 && close(taken) == 0);

	/* A port that was found is for a listener: who connects gets another, which is known later. */
	CHECK(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_bind_addr(id, (struct sockaddr *)&address) == 0 && rdma_get_src_port(id) != 0);
	CHECK(rdma_resolve_addr(id, NULL, (struct sockaddr *)&address, 1000) == 0 && rdma_get_src_port(id) == 0);
	CHECK(rdma_destroy_id(id) == 0);
}

/* Options are integers; a listener at an address of IPv6 that refuses IPv4 is not there. */
static void set_options(void)
{
	const int options[] = {RDMA_OPTION_ID_REUSEADDR, RDMA_OPTION_ID_AFONLY};
	int no = 0, yes = 1;
	struct rdma_cm_id *id;

	CHECK(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP) == 0);
	for (int at = 0; at < 2; at++) {
		CHECK(rdma_set_option(id, RDMA_OPTION_ID, options[at], &no, sizeof no) == 0);
		CHECK(rdma_set_option(id, RDMA_OPTION_ID, options[at], &yes, 1) == -1 && errno == EINVAL);
		CHECK(rdma_set_option(id, RDMA_OPTION_ID, options[at], NULL, sizeof yes) == -1 && errno == EINVAL);
	}
	CHECK(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &yes, sizeof yes) == 0);
	CHECK(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &yes, sizeof yes) == -1);
	CHECK(errno == ENOSYS && rdma_destroy_id(id) == 0);
}

/* Connects to an endpoint that rejects, and returns the seconds that took. */
static void *be_rejected(void *arg)
{
	struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP}, *info;
	struct ibv_qp_init_attr attr = queue_pair_attributes();
	time_t start = time(NULL);
	struct rdma_cm_id *id;

	CHECK(rdma_getaddrinfo(ADDRESS, arg, &hints, &info) == 0);
	CHECK(rdma_create_ep(&id, info, NULL, &attr) == 0);
	rdma_freeaddrinfo(info);
	CHECK(rdma_connect(id, NULL) == -1 && errno == ECONNREFUSED);
	rdma_destroy_ep(id);
	return (void *)(intptr_t)(time(NULL) - start);
}

/* A listener whose attributes no queue pair can have rejects its peers, and is destroyed as any other. */
static void reject_by_attributes(void)
{
	struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP, .ai_flags = RAI_PASSIVE}, *info;
	struct ibv_qp_init_attr attr = queue_pair_attributes();
	struct rdma_cm_id *listener, *id;
	pthread_t thread;
	void *seconds;
	char port[8];

	attr.cap.max_inline_data = 257;
	CHECK(rdma_getaddrinfo(ADDRESS, "0", &hints, &info) == 0);
	CHECK(rdma_create_ep(&listener, info, NULL, &attr) == 0 && rdma_listen(listener, 0) == 0);
	rdma_freeaddrinfo(info);
	snprintf(port, sizeof port, "%d", ntohs(rdma_get_src_port(listener)));
	for (int round = 0; round < 2; round++) {
		CHECK(pthread_create(&thread, NULL, be_rejected, port) == 0);
		CHECK(rdma_get_request(listener, &id) == -1 && errno == EINVAL);
		/* Without an answer a peer waits for a minute. */
		CHECK(pthread_join(thread, &seconds) == 0 && (intptr_t)seconds < 10);
	}
	alarm(10);
	rdma_destroy_ep(listener);
	alarm(0);
}

/* Runs in a child: what the parent has is gone for it, and it can have its own. */
static void in_child(struct end *end)
{
	struct ibv_qp_init_attr attr = queue_pair_attributes();
	struct ibv_context *own;
	struct ibv_pd *pd;
	struct ibv_wc wc;
	static char memory[4096];

	CHECK(!ibv_reg_mr(end->id->pd, memory, sizeof memory, 0) && errno == ENODEV);
	attr.send_cq = attr.recv_cq = end->id->send_cq;
	attr.qp_type = IBV_QPT_RC;
	CHECK(!ibv_create_qp(end->id->pd, &attr) && errno == ENODEV);
	CHECK(ibv_poll_cq(end->id->send_cq, 1, &wc) == 0);
	own = ibv_open_device(end->id->verbs->device);
	CHECK(own);
	pd = ibv_alloc_pd(own);
	CHECK(pd && ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE));
	exit(0);
}

int main(void)
{
	struct ibv_device **list;
	struct ibv_device_attr device_attr;
	struct ibv_port_attr port_attr;
	struct ibv_qp_init_attr attr = queue_pair_attributes();
	struct ibv_qp_attr qp_attr = {0};
	struct ibv_qp_init_attr queried;
	struct rdma_cm_id *listener, *other_listener, *id;
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0xc6120001)};
	struct ibv_srq_init_attr srq_attr = {.attr = {.max_wr = 10, .max_sge = 1}};
	struct ibv_srq *srq;
	struct ibv_pd *pd;
	struct ibv_cq *cq, *other;
	void *cq_context;
	struct ibv_async_event event;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	struct ibv_send_wr *bad, wr = {0};
	struct ibv_recv_wr *bad_recv, recv = {.wr_id = 7};
	struct ibv_wc wc;
	struct end near_end, far_end, other_near, other_far;
	struct ibv_mw *mw, *of_type_1, *foreign;
	struct ibv_mw_bind bind = {0};
	uint32_t key;
	static char memory[8192];
	char *large;
	int count, status;
	pid_t child;

	/* Before anything is made, a child is nothing special. */
	child = fork();
	if (!child)
		exit(ibv_get_device_list(&count) && count == 1 ? 0 : 1);
	CHECK(waitpid(child, &status, 0) == child && status == 0);

	list = ibv_get_device_list(&count);
	CHECK(list && count == 1 && list[0] && !list[1]);
	CHECK(list[0]->node_type == IBV_NODE_RNIC && list[0]->transport_type == IBV_TRANSPORT_IWARP);
	context = ibv_open_device(list[0]);
	ibv_free_device_list(list);
	CHECK(context && !ibv_open_device(NULL) && errno == ENODEV);
	CHECK(ibv_query_device(context, &device_attr) == 0 && device_attr.max_sge == 4);
	CHECK(device_attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW);
	CHECK(device_attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2B);
	CHECK(ibv_query_port(context, 1, &port_attr) == 0 && port_attr.link_layer == IBV_LINK_LAYER_ETHERNET);
	CHECK(ibv_query_port(context, 2, &port_attr) == EINVAL);

	/* Null, foreign and impossible. */
	CHECK(!ibv_alloc_pd(NULL) && errno == EINVAL);
	pd = ibv_alloc_pd(context);
	CHECK(pd && ibv_close_device(context) == EBUSY);
	CHECK(!ibv_reg_mr(pd, NULL, 10, 0) && errno == EINVAL);
	CHECK(!ibv_reg_mr(pd, memory, 0, 0) && errno == EINVAL);
	CHECK(!ibv_reg_mr(pd, (void *)4096, 4096, 0) && errno == EFAULT);
	CHECK(!ibv_reg_mr(pd, memory, 10, IBV_ACCESS_REMOTE_WRITE) && errno == EINVAL);
	CHECK(!ibv_reg_mr(pd, memory, 10, IBV_ACCESS_ON_DEMAND) && errno == EOPNOTSUPP);
	CHECK(!ibv_reg_mr((struct ibv_pd *)context, memory, 10, 0) && errno == EINVAL);
	mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING);
	CHECK(mr && ibv_dealloc_pd(pd) == EBUSY && ibv_dereg_mr(mr) == 0);
	mr = ibv_reg_mr_iova(pd, memory, sizeof memory, 0x1000, IBV_ACCESS_LOCAL_WRITE);
	CHECK(mr && ibv_dereg_mr(mr) == 0);
	CHECK(ibv_dereg_mr(NULL) == EINVAL && ibv_destroy_qp(NULL) == EINVAL && ibv_destroy_cq(NULL) == EINVAL);
	CHECK(!ibv_create_cq(context, 0, NULL, NULL, 0) && errno == EINVAL);
	CHECK(!ibv_create_cq(context, 1 << 30, NULL, NULL, 0) && errno == EINVAL);
	CHECK(!ibv_create_cq(context, 10, NULL, NULL, 1) && errno == EINVAL);
	channel = ibv_create_comp_channel(context);
	cq = ibv_create_cq(context, 10, memory, channel, 0);
	CHECK(channel && cq && ibv_destroy_comp_channel(channel) == EBUSY);
	/* A small queue has places for 64 sends, and as many receives. */
	CHECK(cq->cqe == 10 && ibv_resize_cq(cq, 64) == 0 && cq->cqe == 64);
	CHECK(ibv_resize_cq(cq, 65) == EOPNOTSUPP && ibv_resize_cq(cq, 128) == EOPNOTSUPP && cq->cqe == 64);
	CHECK(ibv_resize_cq(cq, 20) == 0 && cq->cqe == 20);
	CHECK(ibv_req_notify_cq(cq, 0) == 0 && ibv_poll_cq(cq, 1, &wc) == 0);
	CHECK(ibv_get_cq_event((struct ibv_comp_channel *)pd, &other, &cq_context) == -1 && errno == EINVAL);
	CHECK(ibv_get_async_event((struct ibv_context *)pd, &event) == -1 && errno == EINVAL);
	CHECK(ibv_query_device((struct ibv_context *)pd, &device_attr) == EINVAL);
	attr.send_cq = attr.recv_cq = cq;
	attr.qp_type = IBV_QPT_UD;
	CHECK(!ibv_create_qp(pd, &attr) && errno == EOPNOTSUPP);
	attr.qp_type = IBV_QPT_RC;
	attr.cap.max_send_sge = 5;
	CHECK(!ibv_create_qp(pd, &attr) && errno == EINVAL);
	attr.cap.max_send_sge = 1;
	attr.cap.max_inline_data = 257;
	CHECK(!ibv_create_qp(pd, &attr) && errno == EINVAL);
	attr.cap.max_inline_data = 0;
	attr.cap.max_send_wr = attr.cap.max_recv_wr = 0;
	qp = ibv_create_qp(pd, &attr);
	CHECK(qp && attr.cap.max_send_wr >= 1 && ibv_destroy_cq(cq) == EBUSY && ibv_dealloc_pd(pd) == EBUSY);
	CHECK(ibv_query_qp(qp, &qp_attr, IBV_QP_STATE, &queried) == 0 && qp_attr.qp_state == IBV_QPS_RESET);
	qp_attr.qp_state = IBV_QPS_INIT;
	CHECK(ibv_modify_qp(qp, &qp_attr, IBV_QP_STATE) == 0 && qp->state == IBV_QPS_INIT);
	CHECK(ibv_modify_qp(qp, &qp_attr, IBV_QP_STATE | IBV_QP_AV) == EOPNOTSUPP);
	wr.num_sge = 3;
	CHECK(ibv_post_send(qp, &wr, &bad) == EINVAL && bad == &wr);
	wr.num_sge = 0;
	wr.opcode = IBV_WR_TSO;
	CHECK(ibv_post_send(qp, &wr, &bad) == EINVAL && bad == &wr);
	flush_unconnected(pd);
	srq = ibv_create_srq(pd, &srq_attr);
	CHECK(srq && ibv_destroy_qp(qp) == 0);
	srq_attr.attr.srq_limit = 11;
	CHECK(ibv_modify_srq(srq, &srq_attr.attr, IBV_SRQ_LIMIT) == EINVAL);
	srq_attr.attr.srq_limit = 5;
	CHECK(ibv_modify_srq(srq, &srq_attr.attr, IBV_SRQ_LIMIT) == 0);
	CHECK(ibv_destroy_srq(srq) == 0);
	CHECK(!ibv_create_ah(pd, NULL) && errno == EOPNOTSUPP);

	/* Connections that do not come about. */
	events = rdma_create_event_channel();
	CHECK(events && rdma_create_id(events, &id, NULL, RDMA_PS_UDP) == -1 && errno == EOPNOTSUPP);
	CHECK(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_connect(id, NULL) == -1 && errno == EINVAL);
	CHECK(rdma_disconnect(id) == -1 && errno == EINVAL);
	address.sin_port = htons(9);
	CHECK(rdma_resolve_addr(id, NULL, (struct sockaddr *)&address, 1000) == 0 && id->verbs && id->pd);
	CHECK(rdma_resolve_route(id, 1000) == 0);
	attr = queue_pair_attributes();
	CHECK(rdma_create_qp(id, NULL, &attr) == 0 && id->qp && id->send_cq);
	/* The connection manager brings its queue pairs to INIT. */
	CHECK(id->qp->state == IBV_QPS_INIT);
	CHECK(ibv_query_qp(id->qp, &qp_attr, IBV_QP_STATE, &queried) == 0 && qp_attr.qp_state == IBV_QPS_INIT);
	CHECK(rdma_create_qp(id, NULL, &attr) == -1 && errno == EINVAL);
	CHECK(ibv_post_recv(id->qp, &recv, &bad_recv) == 0);
	CHECK(rdma_connect(id, NULL) == -1 && errno == ECONNREFUSED);
	CHECK(flushed(id->qp, id->recv_cq) == 7);
	rdma_destroy_qp(id);
	CHECK(rdma_destroy_id(id) == 0);
	reject_without_queue_pair();
	reject_by_attributes();
	bind_again();
	set_options();
	CHECK(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP) == 0);
	address.sin_addr.s_addr = htonl(0x08080808);
	CHECK(rdma_bind_addr(id, (struct sockaddr *)&address) == -1 && errno == ENODEV);
	CHECK(rdma_resolve_addr(id, NULL, (struct sockaddr *)&address, 1000) == -1 && errno == ENODEV);
	CHECK(rdma_destroy_id(id) == 0 && rdma_join_multicast(id, NULL, NULL) == -1);

	cancel(wait_for_completion);
	cancel(wait_for_connection);
	cancel(wait_for_device);

	/* A child while a connection is open, which goes on. */
	listener = connect_ends(&near_end, &far_end);
	child = fork();
	if (!child)
		in_child(&near_end);
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	strcpy(near_end.memory, "after the fork");
	CHECK(rdma_post_send(near_end.id, NULL, near_end.memory, 15, near_end.mr, 0) == 0);
	CHECK(sent(&near_end).status == IBV_WC_SUCCESS && received(&far_end).byte_len == 15);
	CHECK(strcmp(far_end.memory, "after the fork") == 0);

	/* Windows of type 2: what is wrong is said when it is posted, and the connection goes on. */
	other_listener = connect_ends(&other_near, &other_far);
	CHECK(!ibv_alloc_mw(pd, 3) && errno == EINVAL);
	mw = ibv_alloc_mw(other_far.id->pd, IBV_MW_TYPE_2);
	of_type_1 = ibv_alloc_mw(other_far.id->pd, IBV_MW_TYPE_1);
	foreign = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
	CHECK(mw && of_type_1 && foreign);
	key = ibv_inc_rkey(mw->rkey);
	CHECK(bind_window(&other_far, NULL, key, 100) == EINVAL);
	CHECK(bind_window(&other_far, mw, key, 0) == EINVAL);
	CHECK(bind_window(&other_far, mw, key ^ 0x100, 100) == EINVAL);
	CHECK(bind_window(&other_far, mw, key ^ 0x10000, 100) == EINVAL);
	CHECK(bind_window(&other_far, of_type_1, ibv_inc_rkey(of_type_1->rkey), 100) == EINVAL);
	CHECK(bind_window(&other_far, foreign, ibv_inc_rkey(foreign->rkey), 100) == EINVAL);
	bind.bind_info.length = 100;
	bind.bind_info.mr = other_far.mr;
	CHECK(ibv_bind_mw(other_far.id->qp, mw, &bind) == EINVAL);
	CHECK(context->ops.bind_mw(other_far.id->qp, mw, &bind) == EINVAL);
	CHECK(ibv_inc_rkey(mw->rkey) == key && ibv_dealloc_mw(foreign) == 0 && ibv_dealloc_mw(of_type_1) == 0);

	/* A Send that finds no receive, and is longer than what the peer takes in meanwhile, reads memory that is
	 * given back: its stream ends. */
	large = malloc(LARGE_BYTES);
	memset(large, 1, LARGE_BYTES);
	mr = ibv_reg_mr(near_end.id->pd, large, LARGE_BYTES, 0);
	CHECK(mr && rdma_post_send(near_end.id, NULL, large, LARGE_BYTES, mr, 0) == 0);
	usleep(50000);
	CHECK(ibv_poll_cq(near_end.id->send_cq, 1, &wc) == 0);
	CHECK(ibv_dereg_mr(mr) == 0);
	memset(large, 0xff, LARGE_BYTES);
	free(large);
	CHECK(sent(&near_end).status != IBV_WC_SUCCESS);
	/* The other connection of the Protection Domain goes on. */
	CHECK(other_near.id->pd == near_end.id->pd);
	strcpy(other_near.memory, "beside it");
	CHECK(rdma_post_send(other_near.id, NULL, other_near.memory, 10, other_near.mr, 0) == 0);
	CHECK(sent(&other_near).status == IBV_WC_SUCCESS && received(&other_far).byte_len == 10);
	CHECK(strcmp(other_far.memory, "beside it") == 0);

	/* Bound, and bound again before it is invalidated: the request fails, and the connection with it. */
	CHECK(bind_window(&other_far, mw, key, MEMORY_BYTES) == 0 && mw->rkey == key);
	CHECK(sent(&other_far).status == IBV_WC_SUCCESS);
	CHECK(bind_window(&other_far, mw, ibv_inc_rkey(key), 100) == 0);
	CHECK(sent(&other_far).status == IBV_WC_MW_BIND_ERR);
	CHECK(ibv_dealloc_mw(mw) == 0);
	rdma_destroy_ep(other_near.id);
	rdma_destroy_ep(other_far.id);
	rdma_destroy_ep(other_listener);
	CHECK(ibv_dereg_mr(other_near.mr) == 0 && ibv_dereg_mr(other_far.mr) == 0);
	CHECK(ibv_dereg_mr(near_end.mr) == 0);
	rdma_destroy_ep(near_end.id);
	CHECK(ibv_dereg_mr(far_end.mr) == 0);
	rdma_destroy_ep(far_end.id);
	rdma_destroy_ep(listener);
	rdma_destroy_event_channel(events);
	CHECK(ibv_destroy_cq(cq) == 0 && ibv_destroy_comp_channel(channel) == 0 && ibv_dealloc_pd(pd) == 0);
	CHECK(ibv_close_device(context) == 0);
	puts("ok");
	return 0;
}
