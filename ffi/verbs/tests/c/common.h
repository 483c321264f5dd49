/* What the programs have in common: a check that says where it failed, and a connection of a process to
 * itself. */
#include <errno.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition)                                                                                     \
	do {                                                                                                 \
		if (!(condition)) {                                                                          \
			fprintf(stderr, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__, #condition, errno);    \
			_exit(1);                                                                            \
		}                                                                                            \
	} while (0)

/* The address of the interface that the test has made. */
#define ADDRESS "198.18.0.1"

struct end {
	struct rdma_cm_id *id;
	struct ibv_mr *mr;
	char *memory;
};

#define MEMORY_BYTES 65536

static struct ibv_qp_init_attr queue_pair_attributes(void)
{
	struct ibv_qp_init_attr attr = {0};
	attr.cap.max_send_wr = attr.cap.max_recv_wr = 16;
	attr.cap.max_send_sge = attr.cap.max_recv_sge = 2;
	attr.cap.max_inline_data = 200;
	attr.sq_sig_all = 1;
	return attr;
}

static void give_memory(struct end *end)
{
	end->memory = aligned_alloc(4096, MEMORY_BYTES);
	CHECK(end->memory);
	memset(end->memory, 0, MEMORY_BYTES);
	end->mr = ibv_reg_mr(end->id->pd, end->memory, MEMORY_BYTES,
			     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
				     IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND);
	CHECK(end->mr && end->mr->lkey == end->mr->rkey);
}

static void *accept_one(void *arg)
{
	struct end *end = arg;
	struct rdma_cm_id *listener = end->id;
	CHECK(rdma_get_request(listener, &end->id) == 0);
	CHECK(end->id->event->event == RDMA_CM_EVENT_CONNECT_REQUEST);
	CHECK(end->id->event->param.conn.private_data_len >= 5);
	CHECK(memcmp(end->id->event->param.conn.private_data, "hello", 5) == 0);
	give_memory(end);
	CHECK(rdma_post_recv(end->id, (void *)1, end->memory, MEMORY_BYTES, end->mr) == 0);
	CHECK(rdma_accept(end->id, NULL) == 0);
	return listener;
}

/* Listens, by an endpoint whose calls wait, and has a thread accept one connection as the far end. */
static struct rdma_cm_id *listen_as(struct end *far, pthread_t *thread)
{
	struct rdma_addrinfo hints = {0}, *info;
	struct ibv_qp_init_attr attr = queue_pair_attributes();
	struct rdma_cm_id *listener;

	hints.ai_port_space = RDMA_PS_TCP;
	hints.ai_flags = RAI_PASSIVE;
	CHECK(rdma_getaddrinfo(ADDRESS, "0", &hints, &info) == 0);
	CHECK(rdma_create_ep(&listener, info, NULL, &attr) == 0);
	rdma_freeaddrinfo(info);
	CHECK(rdma_get_src_port(listener) != 0);
	CHECK(rdma_listen(listener, 0) == 0);
	far->id = listener;
	CHECK(pthread_create(thread, NULL, accept_one, far) == 0);
	return listener;
}

/* Has a child accept one connection and keep it. Returns the child, and writes at which port it listens. */
static inline pid_t serve_in_child(char port[8])
{
	struct rdma_cm_id *listener;
	struct end far;
	pthread_t thread;
	uint16_t number;
	int ready[2];
	pid_t child;

	CHECK(pipe(ready) == 0);
	child = fork();
	if (child == 0) {
		CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
		listener = listen_as(&far, &thread);
		number = rdma_get_src_port(listener);
		CHECK(write(ready[1], &number, sizeof number) == sizeof number);
		CHECK(pthread_join(thread, NULL) == 0);
		for (;;)
			pause();
	}
	CHECK(child > 0 && read(ready[0], &number, sizeof number) == sizeof number);
	CHECK(close(ready[0]) == 0 && close(ready[1]) == 0);
	snprintf(port, 8, "%d", ntohs(number));
	return child;
}

/* Connects the near end, which has a queue pair, to an end that accepts. */
static inline void connect_near(struct end *near)
{
	struct rdma_conn_param param = {0};

	give_memory(near);
	param.private_data = "hello";
	param.private_data_len = 5;
	param.responder_resources = param.initiator_depth = 4;
	CHECK(rdma_connect(near->id, &param) == 0);
	CHECK(near->id->event->event == RDMA_CM_EVENT_ESTABLISHED);
}

/* Connects the process to itself, by endpoints whose calls wait. Returns the listener. */
static inline struct rdma_cm_id *connect_ends(struct end *near, struct end *far)
{
	struct rdma_addrinfo hints = {0}, *info;
	struct ibv_qp_init_attr attr = queue_pair_attributes();
	struct rdma_cm_id *listener;
	pthread_t thread;
	char port[8];

	listener = listen_as(far, &thread);
	snprintf(port, sizeof port, "%d", ntohs(rdma_get_src_port(listener)));
	hints.ai_port_space = RDMA_PS_TCP;
	CHECK(rdma_getaddrinfo(ADDRESS, port, &hints, &info) == 0);
	CHECK(rdma_create_ep(&near->id, info, NULL, &attr) == 0);
	CHECK(attr.cap.max_inline_data >= 200 && attr.cap.max_send_sge >= 2);
	rdma_freeaddrinfo(info);
	connect_near(near);
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK(rdma_get_dst_port(near->id) == rdma_get_src_port(listener));
	return listener;
}

static inline struct ibv_wc sent(struct end *end)
{
	struct ibv_wc wc;
	CHECK(rdma_get_send_comp(end->id, &wc) == 1);
	return wc;
}

static inline struct ibv_wc received(struct end *end)
{
	struct ibv_wc wc;
	CHECK(rdma_get_recv_comp(end->id, &wc) == 1);
	return wc;
}
