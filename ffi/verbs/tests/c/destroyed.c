/* After a queue pair is destroyed, a program finds the completions that there were, and no other. */
#include "common.h"

static struct end near_end, far_end;

static int poll_for_100_ms(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	int found = 0;
	for (int turn = 0; turn < 100; turn++) {
		found += ibv_poll_cq(cq, 1, &wc);
		usleep(1000);
	}
	return found;
}

/* What a peer has on its way reaches no memory once its queue pair is destroyed: a program gives a buffer to
 * others then, also while it stays registered. */
static void nothing_is_placed_later(void)
{
	static char before[MEMORY_BYTES];
	struct end near, far;
	struct rdma_cm_id *listener = connect_ends(&near, &far);

	for (int number = 1; number < 16; number++)
		CHECK(rdma_post_recv(far.id, NULL, far.memory + 4096 * number, 4096, far.mr) == 0);
	memset(near.memory, 'x', MEMORY_BYTES);
	for (int number = 0; number < 16; number++)
		CHECK(rdma_post_send(near.id, NULL, near.memory, 4096, near.mr, 0) == 0);
	CHECK(ibv_destroy_qp(far.id->qp) == 0);
	memcpy(before, far.memory, MEMORY_BYTES);
	usleep(50000);
	CHECK(memcmp(before, far.memory, MEMORY_BYTES) == 0);
	CHECK(listener);
}

int main(void)
{
	struct rdma_cm_id *listener = connect_ends(&near_end, &far_end);
	struct ibv_cq *cq = ibv_create_cq(near_end.id->verbs, 64, NULL, NULL, 0);
	struct ibv_qp_init_attr attr = queue_pair_attributes();
	struct ibv_wc arrived;
	CHECK(cq);

	/* One after the other, so that a number may be used again. */
	for (int round = 0; round < 100; round++) {
		struct ibv_sge sge = {.addr = (uintptr_t)near_end.memory, .length = 100, .lkey = near_end.mr->lkey};
		struct ibv_recv_wr wr = {.wr_id = round, .sg_list = &sge, .num_sge = 1}, *bad;
		struct ibv_qp *qp;
		attr.qp_type = IBV_QPT_RC;
		attr.send_cq = attr.recv_cq = cq;
		qp = ibv_create_qp(near_end.id->pd, &attr);
		CHECK(qp);
		CHECK(ibv_post_recv(qp, &wr, &bad) == 0 && ibv_post_recv(qp, &wr, &bad) == 0);
		CHECK(ibv_destroy_qp(qp) == 0);
	}
	CHECK(poll_for_100_ms(cq) == 0);

	/* Queues of others are as they were. */
	CHECK(rdma_post_send(near_end.id, (void *)2, near_end.memory, 100, near_end.mr, 0) == 0);
	CHECK(sent(&near_end).wr_id == 2 && received(&far_end).wr_id == 1);

	/* What has arrived before is still there. */
	CHECK(rdma_post_recv(far_end.id, (void *)3, far_end.memory, 100, far_end.mr) == 0);
	CHECK(rdma_post_recv(far_end.id, (void *)4, far_end.memory, 100, far_end.mr) == 0);
	CHECK(rdma_post_send(near_end.id, (void *)2, near_end.memory, 100, near_end.mr, 0) == 0);
	CHECK(sent(&near_end).wr_id == 2 && poll_for_100_ms(cq) == 0);
	CHECK(ibv_destroy_qp(far_end.id->qp) == 0);
	arrived = received(&far_end);
	CHECK(arrived.wr_id == 3 && arrived.status == IBV_WC_SUCCESS);
	CHECK(poll_for_100_ms(far_end.id->recv_cq) == 0);

	for (int round = 0; round < 5; round++)
		nothing_is_placed_later();

	CHECK(ibv_destroy_cq(cq) == 0);
	CHECK(listener);
	printf("ok\n");
	return 0;
}
