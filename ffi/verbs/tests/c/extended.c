/* Sends that are built call by call, and completions that are read field by field, with contents compared. */
#include "common.h"

static struct end near_end, far_end;
static struct ibv_qp_ex *qp;
static struct ibv_cq_ex *cq;

static void make_queues(void)
{
	struct ibv_cq_init_attr_ex cq_attr = {.cqe = 64, .wc_flags = IBV_WC_STANDARD_FLAGS};
	struct ibv_qp_init_attr_ex attr = {.qp_type = IBV_QPT_RC, .sq_sig_all = 0};
	struct ibv_qp_init_attr plain = queue_pair_attributes();

	/* What iWARP has not. */
	cq_attr.wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
	CHECK(!ibv_create_cq_ex(near_end.id->verbs, &cq_attr) && errno == EOPNOTSUPP);
	cq_attr.wc_flags = IBV_WC_STANDARD_FLAGS;
	cq_attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
	cq_attr.flags = 1 << 5;
	CHECK(!ibv_create_cq_ex(near_end.id->verbs, &cq_attr) && errno == EINVAL);
	cq_attr.flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
	cq = ibv_create_cq_ex(near_end.id->verbs, &cq_attr);
	CHECK(cq && ibv_cq_ex_to_cq(cq)->cqe == 64);

	attr.cap = plain.cap;
	attr.send_cq = attr.recv_cq = ibv_cq_ex_to_cq(cq);
	attr.pd = near_end.id->pd;
	attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	attr.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_TSO;
	CHECK(!ibv_create_qp_ex(near_end.id->verbs, &attr) && errno == EOPNOTSUPP);
	attr.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_SEND_WITH_INV |
			      IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
			      IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
			      IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_LOCAL_INV |
			      IBV_QP_EX_WITH_BIND_MW;
	CHECK(rdma_create_qp_ex(near_end.id, &attr) == 0);
	qp = ibv_qp_to_qp_ex(near_end.id->qp);
	CHECK(qp && &qp->qp_base == near_end.id->qp);
}

/* Begins a posting, with the number of its first send. */
static void start(uint64_t wr_id, unsigned int flags)
{
	ibv_wr_start(qp);
	qp->wr_id = wr_id;
	qp->wr_flags = flags;
}

static void set_range(size_t offset, uint32_t length)
{
	ibv_wr_set_sge(qp, near_end.mr->lkey, (uintptr_t)near_end.memory + offset, length);
}

static uint64_t at_far(size_t offset)
{
	return (uintptr_t)far_end.memory + offset;
}

/* Waits for the next completion, and leaves it as the current one of a batch. */
static void start_poll(void)
{
	struct ibv_poll_cq_attr attr = {0};
	int result;
	do
		result = ibv_start_poll(cq, &attr);
	while (result == ENOENT);
	CHECK(result == 0);
}

static void is_done(uint64_t wr_id, enum ibv_wc_opcode opcode)
{
	start_poll();
	CHECK(cq->status == IBV_WC_SUCCESS && cq->wr_id == wr_id);
	CHECK(ibv_wc_read_opcode(cq) == opcode && ibv_wc_read_qp_num(cq) == near_end.id->qp->qp_num);
	CHECK(ibv_wc_read_vendor_err(cq) == 0 && ibv_wc_read_src_qp(cq) == 0 && ibv_wc_read_slid(cq) == 0);
	CHECK(ibv_wc_read_sl(cq) == 0 && ibv_wc_read_dlid_path_bits(cq) == 0);
	ibv_end_poll(cq);
}

static void post_receive(void)
{
	CHECK(rdma_post_recv(far_end.id, (void *)1, far_end.memory, MEMORY_BYTES, far_end.mr) == 0);
}

static void *post_in_turn(void *arg)
{
	uint64_t first = (uintptr_t)arg;
	for (uint64_t i = 0; i < 500; i++) {
		int result;
		do {
			start(first + i, IBV_SEND_SIGNALED);
			ibv_wr_rdma_write(qp, far_end.mr->rkey, at_far(0));
			set_range(0, 8);
			result = ibv_wr_complete(qp);
		} while (result == ENOMEM);
		CHECK(result == 0);
	}
	return NULL;
}

int main(void)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0xc6120001)};
	struct ibv_poll_cq_attr poll_attr = {.comp_mask = 1};
	struct ibv_sge sge[5];
	struct ibv_data_buf parts[2];
	struct ibv_mw_bind_info bind = {0};
	struct ibv_mw *window;
	uint32_t key;
	struct ibv_wc wc;
	pthread_t thread, threads[2];
	struct rdma_cm_id *listener = listen_as(&far_end, &thread);
	char inlined[200];
	uint64_t before;
	int count;

	CHECK(rdma_create_id(NULL, &near_end.id, NULL, RDMA_PS_TCP) == 0);
	address.sin_port = rdma_get_src_port(listener);
	CHECK(rdma_resolve_addr(near_end.id, NULL, (struct sockaddr *)&address, 1000) == 0);
	CHECK(rdma_resolve_route(near_end.id, 1000) == 0);
	make_queues();
	connect_near(&near_end);
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK(!ibv_qp_to_qp_ex(far_end.id->qp) && !ibv_qp_to_qp_ex(NULL));
	for (int i = 0; i < MEMORY_BYTES / 2; i++)
		near_end.memory[i] = i * 7 + i / 251;

	/* Nothing there, and a structure of a later version. */
	CHECK(ibv_start_poll(cq, &poll_attr) == EINVAL);
	poll_attr.comp_mask = 0;
	CHECK(ibv_start_poll(cq, &poll_attr) == ENOENT && ibv_start_poll(cq, &poll_attr) == ENOENT);

	/* Three sends of one posting, of which one is not signaled, polled in one batch. */
	start(1, IBV_SEND_SIGNALED);
	ibv_wr_rdma_write(qp, far_end.mr->rkey, at_far(10000));
	set_range(0, 20000);
	qp->wr_id = 2;
	qp->wr_flags = 0;
	ibv_wr_rdma_write(qp, far_end.mr->rkey, at_far(40000));
	sge[0] = (struct ibv_sge){.addr = (uintptr_t)near_end.memory, .length = 100, .lkey = near_end.mr->lkey};
	sge[1] = sge[0];
	sge[1].addr += 500;
	ibv_wr_set_sge_list(qp, 2, sge);
	qp->wr_id = 3;
	qp->wr_flags = IBV_SEND_SIGNALED | IBV_SEND_SOLICITED;
	ibv_wr_send(qp);
	set_range(1000, 3000);
	CHECK(ibv_wr_complete(qp) == 0);
	start_poll();
	CHECK(cq->wr_id == 1 && ibv_wc_read_opcode(cq) == IBV_WC_RDMA_WRITE);
	while ((count = ibv_next_poll(cq)) == ENOENT)
		;
	CHECK(count == 0 && cq->wr_id == 3 && ibv_wc_read_opcode(cq) == IBV_WC_SEND);
	CHECK(ibv_next_poll(cq) == ENOENT);
	ibv_end_poll(cq);
	wc = received(&far_end);
	CHECK(wc.byte_len == 3000 && memcmp(far_end.memory, near_end.memory + 1000, 3000) == 0);
	CHECK(memcmp(far_end.memory + 10000, near_end.memory, 20000) == 0);
	CHECK(memcmp(far_end.memory + 40000, near_end.memory, 100) == 0);
	CHECK(memcmp(far_end.memory + 40100, near_end.memory + 500, 100) == 0);

	/* Inline data is copied by the call that sets it: short, and beyond what a work request holds. */
	memset(inlined, 'i', sizeof inlined);
	start(4, 0);
	ibv_wr_rdma_write(qp, far_end.mr->rkey, at_far(50000));
	ibv_wr_set_inline_data(qp, inlined, 20);
	for (int i = 1; i < 8; i++) {
		memset(inlined, 'i' + i, sizeof inlined);
		if (i == 7)
			qp->wr_flags = IBV_SEND_SIGNALED;
		ibv_wr_rdma_write(qp, far_end.mr->rkey, at_far(50000 + 200 * i));
		parts[0] = (struct ibv_data_buf){.addr = inlined, .length = 150};
		parts[1] = (struct ibv_data_buf){.addr = inlined, .length = 50};
		ibv_wr_set_inline_data_list(qp, 2, parts);
	}
	memset(inlined, 0, sizeof inlined);
	CHECK(ibv_wr_complete(qp) == 0);
	is_done(4, IBV_WC_RDMA_WRITE);
	for (int i = 0; i < 200 * 8; i++)
		CHECK(far_end.memory[50000 + i] == (i < 20 ? 'i' : i < 200 ? 0 : 'i' + i / 200));

	/* Every other operation. */
	start(5, IBV_SEND_SIGNALED);
	ibv_wr_rdma_read(qp, far_end.mr->rkey, at_far(10000));
	set_range(40000, 20000);
	CHECK(ibv_wr_complete(qp) == 0);
	is_done(5, IBV_WC_RDMA_READ);
	CHECK(memcmp(near_end.memory + 40000, near_end.memory, 20000) == 0);
	post_receive();
	start(6, IBV_SEND_SIGNALED);
	ibv_wr_rdma_write_imm(qp, far_end.mr->rkey, at_far(0), htonl(0x01020304));
	set_range(0, 64);
	CHECK(ibv_wr_complete(qp) == 0);
	is_done(6, IBV_WC_RDMA_WRITE);
	CHECK(received(&far_end).imm_data == htonl(0x01020304));
	post_receive();
	start(7, IBV_SEND_SIGNALED);
	ibv_wr_send_imm(qp, 5);
	CHECK(ibv_wr_complete(qp) == 0);
	is_done(7, IBV_WC_SEND);
	CHECK(received(&far_end).imm_data == 5);
	memset(far_end.memory + 8, 0, 8);
	start(8, IBV_SEND_SIGNALED);
	ibv_wr_atomic_fetch_add(qp, far_end.mr->rkey, at_far(8), 15);
	set_range(0, 8);
	ibv_wr_atomic_cmp_swp(qp, far_end.mr->rkey, at_far(8), 15, 99);
	set_range(8, 8);
	CHECK(ibv_wr_complete(qp) == 0);
	is_done(8, IBV_WC_FETCH_ADD);
	is_done(8, IBV_WC_COMP_SWAP);
	memcpy(&before, near_end.memory + 8, 8);
	CHECK(before == 15);
	memcpy(&before, far_end.memory + 8, 8);
	CHECK(before == 99);

	/* A window is bound and taken back by one posting. */
	window = ibv_alloc_mw(near_end.id->pd, IBV_MW_TYPE_2);
	CHECK(window);
	bind.mr = near_end.mr;
	bind.addr = (uintptr_t)near_end.memory;
	bind.length = 100;
	bind.mw_access_flags = IBV_ACCESS_REMOTE_READ;
	key = ibv_inc_rkey(window->rkey);
	start(9, IBV_SEND_SIGNALED);
	ibv_wr_bind_mw(qp, window, key, &bind);
	ibv_wr_local_inv(qp, key);
	CHECK(ibv_wr_complete(qp) == 0 && window->rkey == key);
	is_done(9, IBV_WC_BIND_MW);
	is_done(9, IBV_WC_LOCAL_INV);
	bind.length = 0;
	start(9, IBV_SEND_SIGNALED);
	ibv_wr_bind_mw(qp, window, ibv_inc_rkey(key), &bind);
	CHECK(ibv_wr_complete(qp) == EINVAL && window->rkey == key);
	CHECK(ibv_dealloc_mw(window) == 0);

	/* All or nothing: what is wrong with one is wrong with all, and what is given up is not posted. */
	start(9, IBV_SEND_SIGNALED);
	ibv_wr_rdma_write(qp, far_end.mr->rkey, at_far(0));
	set_range(0, 8);
	ibv_wr_rdma_write(qp, far_end.mr->rkey, at_far(0));
	ibv_wr_set_sge_list(qp, 5, sge);
	CHECK(ibv_wr_complete(qp) == EINVAL);
	start(9, IBV_SEND_SIGNALED);
	ibv_wr_rdma_write(qp, far_end.mr->rkey, at_far(0));
	ibv_wr_set_inline_data(qp, inlined, 257);
	CHECK(ibv_wr_complete(qp) == EINVAL);
	start(9, IBV_SEND_SIGNALED);
	set_range(0, 8);
	CHECK(ibv_wr_complete(qp) == EINVAL);
	start(9, IBV_SEND_SIGNALED);
	ibv_wr_rdma_write(qp, far_end.mr->rkey, at_far(0));
	set_range(0, 8);
	set_range(0, 8);
	CHECK(ibv_wr_complete(qp) == EINVAL);
	start(9, IBV_SEND_SIGNALED);
	ibv_wr_rdma_write(qp, far_end.mr->rkey, at_far(0));
	set_range(0, 8);
	ibv_wr_send_imm(qp, 5);
	set_range(0, 8);
	CHECK(ibv_wr_complete(qp) == EOPNOTSUPP);
	start(9, IBV_SEND_SIGNALED);
	for (int i = 0; i < 17; i++) {
		ibv_wr_rdma_write(qp, far_end.mr->rkey, at_far(0));
		ibv_wr_set_inline_data(qp, inlined, 200);
	}
	CHECK(ibv_wr_complete(qp) == ENOMEM);
	/* Nothing is kept of more than the queue takes. */
	start(9, IBV_SEND_SIGNALED);
	for (int i = 0; i < 100000; i++)
		ibv_wr_send(qp);
	CHECK(ibv_wr_complete(qp) == ENOMEM);
	start(9, IBV_SEND_SIGNALED);
	ibv_wr_send(qp);
	ibv_wr_abort(qp);
	start(10, IBV_SEND_SIGNALED);
	CHECK(ibv_wr_complete(qp) == 0);
	usleep(10000);
	CHECK(ibv_start_poll(cq, &poll_attr) == ENOENT);

	/* Two threads build in turn. */
	for (int i = 0; i < 2; i++)
		CHECK(pthread_create(&threads[i], NULL, post_in_turn, (void *)(uintptr_t)(1000 * (i + 1))) == 0);
	count = 0;
	while (count < 1000) {
		start_poll();
		do {
			CHECK(cq->status == IBV_WC_SUCCESS);
			count++;
		} while (ibv_next_poll(cq) == 0);
		ibv_end_poll(cq);
	}
	for (int i = 0; i < 2; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);

	/* The peer's end takes its name from memory, and then nothing goes through it. */
	post_receive();
	start(11, IBV_SEND_SIGNALED);
	ibv_wr_send_inv(qp, far_end.mr->rkey);
	ibv_wr_set_sge(qp, near_end.mr->lkey, (uintptr_t)near_end.memory, 100);
	CHECK(ibv_wr_complete(qp) == 0);
	start_poll();
	CHECK(cq->wr_id == 11);
	ibv_end_poll(cq);

	CHECK(ibv_dereg_mr(near_end.mr) == 0);
	rdma_destroy_qp(near_end.id);
	CHECK(rdma_destroy_id(near_end.id) == 0);
	CHECK(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)) == 0);
	rdma_destroy_ep(far_end.id);
	CHECK(ibv_dereg_mr(far_end.mr) == 0);
	rdma_destroy_ep(listener);
	puts("ok");
	return 0;
}
