/* Every operation of verbs that iWARP has, between two ends of one process, with contents compared. */
#include "common.h"

static struct end near_end, far_end;

static void post(struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;
	CHECK(ibv_post_send(near_end.id->qp, wr, &bad) == 0);
}

static struct ibv_send_wr to_far(enum ibv_wr_opcode opcode, struct ibv_sge *sge, int count, size_t offset)
{
	struct ibv_send_wr wr = {.wr_id = 7, .sg_list = sge, .num_sge = count, .opcode = opcode};
	wr.wr.rdma.remote_addr = (uintptr_t)far_end.memory + offset;
	wr.wr.rdma.rkey = far_end.mr->rkey;
	return wr;
}

static struct ibv_sge range(struct end *end, size_t offset, uint32_t length)
{
	return (struct ibv_sge){.addr = (uintptr_t)end->memory + offset, .length = length, .lkey = end->mr->lkey};
}

static void is_done(enum ibv_wc_opcode opcode)
{
	struct ibv_wc wc = sent(&near_end);
	CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == 7 && wc.opcode == opcode);
	CHECK(wc.qp_num == near_end.id->qp->qp_num);
}

static void post_receive(void)
{
	CHECK(rdma_post_recv(far_end.id, (void *)1, far_end.memory, MEMORY_BYTES, far_end.mr) == 0);
}

/* Makes the shared receive queue of an id with each domain that it may have, and its queue pair with that. */
static void share_receives(void)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0xc6120001)};
	struct ibv_pd *own, *usual;
	struct rdma_cm_id *id;

	CHECK(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_bind_addr(id, (struct sockaddr *)&address) == 0 && id->pd);
	usual = id->pd;
	own = ibv_alloc_pd(id->verbs);
	CHECK(own);
	for (int round = 0; round < 3; round++) {
		struct ibv_qp_init_attr qp_attr = queue_pair_attributes();
		struct ibv_srq_init_attr_ex attr = {
			.attr = {.max_wr = 10, .max_sge = 1}, .srq_context = own,
			.comp_mask = IBV_SRQ_INIT_ATTR_TYPE, .srq_type = IBV_SRQT_BASIC};
		/* No domain, null as the domain, which is none too, and a domain of the program's. */
		if (round > 0)
			attr.comp_mask |= IBV_SRQ_INIT_ATTR_PD;
		attr.pd = round == 2 ? own : NULL;
		CHECK(rdma_create_srq_ex(id, &attr) == 0 && id->srq && id->srq->srq_context == own);
		CHECK(attr.attr.max_wr >= 10 && id->srq->pd == (round == 2 ? own : usual));
		CHECK(id->pd == id->srq->pd);
		CHECK(rdma_create_srq_ex(id, &attr) == -1 && errno == EINVAL);
		CHECK(rdma_create_qp(id, NULL, &qp_attr) == 0 && id->qp->srq == id->srq);
		rdma_destroy_qp(id);
		rdma_destroy_srq(id);
		attr.srq_type = IBV_SRQT_XRC;
		CHECK(!id->srq && rdma_create_srq_ex(id, &attr) == -1 && errno == EOPNOTSUPP);
	}
	CHECK(rdma_destroy_id(id) == 0 && ibv_dealloc_pd(own) == 0);
}

/* The binding of a window is complete, and is what has completed. */
static void is_bound(struct end *end)
{
	struct ibv_wc wc = sent(end);
	CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_BIND_MW);
}

/* The peer writes octets of its memory by a window. */
static void write_by(struct ibv_mw *mw, size_t from)
{
	struct ibv_sge sge = range(&near_end, from, 100);
	struct ibv_send_wr wr = to_far(IBV_WR_RDMA_WRITE, &sge, 1, 4096);

	memset(far_end.memory + 4096, 0, 100);
	wr.wr.rdma.rkey = mw->rkey;
	post(&wr);
	is_done(IBV_WC_RDMA_WRITE);
	CHECK(memcmp(far_end.memory + 4096, near_end.memory + from, 100) == 0);
}

/* A window of type 1 is bound like any other if the peer has closed it, or its owner, or a binding of no
 * octets, and that closes what is closed. */
static void bind_closed(struct ibv_mw *mw, struct ibv_mw_bind bind)
{
	struct ibv_sge sge = range(&near_end, 0, 100);
	struct ibv_send_wr wr, *bad;
	struct ibv_wc wc;

	for (int round = 0; round < 4; round++) {
		bind.bind_info.length = 4096;
		CHECK(ibv_bind_mw(far_end.id->qp, mw, &bind) == 0);
		is_bound(&far_end);
		write_by(mw, 200 + 100 * round);
		if (round == 0) {
			wr = (struct ibv_send_wr){.opcode = IBV_WR_LOCAL_INV, .invalidate_rkey = mw->rkey};
			CHECK(ibv_post_send(far_end.id->qp, &wr, &bad) == 0);
			wc = sent(&far_end);
			CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_LOCAL_INV);
		}
		/* Not at all, once, twice, three times. */
		for (int closed = 0; closed < round; closed++) {
			bind.bind_info.length = 0;
			CHECK(ibv_bind_mw(far_end.id->qp, mw, &bind) == 0);
			is_bound(&far_end);
		}
		post_receive();
		wr = to_far(IBV_WR_SEND, &sge, 1, 0);
		post(&wr);
		is_done(IBV_WC_SEND);
		CHECK(received(&far_end).byte_len == 100);
	}
}

/* A window whose queue pair is gone is bound at another, of the same Protection Domain. */
static void bind_elsewhere(struct ibv_mw *mw, struct ibv_mw_bind bind)
{
	struct end near, far;
	struct rdma_cm_id *listener = connect_ends(&near, &far);
	struct ibv_pd *other = ibv_alloc_pd(far.id->verbs);
	struct ibv_mw *foreign = ibv_alloc_mw(other, IBV_MW_TYPE_1);
	struct ibv_mw_bind nothing = {0};

	CHECK(far.id->pd == far_end.id->pd && ibv_bind_mw(far.id->qp, mw, &bind) == 0);
	is_bound(&far);
	CHECK(foreign && ibv_bind_mw(far.id->qp, foreign, &nothing) == EINVAL);
	CHECK(foreign->context->ops.bind_mw(far.id->qp, foreign, &bind) == EINVAL);
	CHECK(ibv_dealloc_mw(foreign) == 0 && ibv_dealloc_pd(other) == 0);
	CHECK(ibv_dereg_mr(near.mr) == 0 && ibv_dereg_mr(far.mr) == 0);
	rdma_destroy_ep(near.id);
	rdma_destroy_ep(far.id);
	rdma_destroy_ep(listener);
	CHECK(ibv_bind_mw(far_end.id->qp, mw, &bind) == 0);
	is_bound(&far_end);
	write_by(mw, 700);
}

/* Fills the far end's queue until there is no room for a binding either. Requests that have reached the
 * near end make room meanwhile, but only so many as there are completions. Returns how often the window was
 * bound. */
static int bind_at_full_queue(struct ibv_mw *mw, struct ibv_mw_bind *bind)
{
	struct ibv_send_wr *bad, wr = {.opcode = IBV_WR_RDMA_WRITE};
	int result, posted = 0, bound = 0;
	uint32_t key;

	wr.wr.rdma.remote_addr = (uintptr_t)near_end.memory;
	wr.wr.rdma.rkey = near_end.mr->rkey;
	do {
		while (!(result = ibv_post_send(far_end.id->qp, &wr, &bad)))
			posted++;
		CHECK(result == ENOMEM);
		key = mw->rkey;
		result = ibv_bind_mw(far_end.id->qp, mw, bind);
		bound += result == 0;
	} while (result == 0);
	CHECK(result == ENOMEM && mw->rkey == key);
	for (posted += bound; posted; posted--)
		CHECK(sent(&far_end).status == IBV_WC_SUCCESS);
	return bound;
}

/* A binding for which there is no room leaves the window as it was. */
static void bind_without_room(struct ibv_mw *mw, struct ibv_mw_bind bind)
{
	struct ibv_mw_bind closing = bind;

	closing.bind_info.length = 0;
	bind_at_full_queue(mw, &bind);
	write_by(mw, 800);
	if (bind_at_full_queue(mw, &closing)) {
		CHECK(ibv_bind_mw(far_end.id->qp, mw, &bind) == 0);
		is_bound(&far_end);
	}
	write_by(mw, 900);
}

int main(void)
{
	struct rdma_cm_id *listener = connect_ends(&near_end, &far_end);
	struct ibv_sge sge[2];
	struct ibv_send_wr wr, *bad;
	struct ibv_wc wc;
	struct ibv_mw *mw, *keyed;
	struct ibv_mw_bind bind = {0};
	struct ibv_async_event event;
	int failed = 0;
	uint64_t before;
	uint32_t key;
	char inlined[200];

	share_receives();
	for (int i = 0; i < MEMORY_BYTES / 2; i++)
		near_end.memory[i] = i * 7 + i / 251;

	/* A Send of two ranges. */
	sge[0] = range(&near_end, 0, 100);
	sge[1] = range(&near_end, 1000, 30000);
	wr = to_far(IBV_WR_SEND, sge, 2, 0);
	wr.send_flags = IBV_SEND_SOLICITED;
	post(&wr);
	is_done(IBV_WC_SEND);
	wc = received(&far_end);
	CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV && wc.byte_len == 30100 && wc.wr_id == 1);
	CHECK(memcmp(far_end.memory, near_end.memory, 100) == 0);
	CHECK(memcmp(far_end.memory + 100, near_end.memory + 1000, 30000) == 0);

	/* Inline data, beyond what a work request holds, whose source changes at once. */
	for (int round = 0; round < 100; round++) {
		memset(inlined, round, sizeof inlined);
		sge[0] = (struct ibv_sge){.addr = (uintptr_t)inlined, .length = sizeof inlined};
		wr = to_far(IBV_WR_RDMA_WRITE, sge, 1, 40000 + 200 * (round % 8));
		wr.send_flags = IBV_SEND_INLINE;
		post(&wr);
		memset(inlined, 0xff, sizeof inlined);
		if (round % 8 == 7)
			for (int i = 0; i < 8; i++)
				is_done(IBV_WC_RDMA_WRITE);
	}
	for (int i = 0; i < 4; i++)
		is_done(IBV_WC_RDMA_WRITE);
	for (int i = 0; i < 200 * 8; i++)
		CHECK(far_end.memory[40000 + i] == (i < 200 * 4 ? 96 + i / 200 : 88 + i / 200));

	/* A Write, and a Read of it. */
	sge[0] = range(&near_end, 0, 20000);
	wr = to_far(IBV_WR_RDMA_WRITE, sge, 1, 10000);
	post(&wr);
	is_done(IBV_WC_RDMA_WRITE);
	CHECK(memcmp(far_end.memory + 10000, near_end.memory, 20000) == 0);
	sge[0] = range(&near_end, 40000, 20000);
	wr = to_far(IBV_WR_RDMA_READ, sge, 1, 10000);
	post(&wr);
	is_done(IBV_WC_RDMA_READ);
	CHECK(memcmp(near_end.memory + 40000, near_end.memory, 20000) == 0);

	/* Immediate Data alone and after a Write. */
	post_receive();
	sge[0] = range(&near_end, 0, 64);
	wr = to_far(IBV_WR_RDMA_WRITE_WITH_IMM, sge, 1, 0);
	wr.imm_data = htonl(0x01020304);
	post(&wr);
	is_done(IBV_WC_RDMA_WRITE);
	wc = received(&far_end);
	CHECK(wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM && wc.wc_flags & IBV_WC_WITH_IMM);
	CHECK(wc.imm_data == htonl(0x01020304) && memcmp(far_end.memory, near_end.memory, 64) == 0);
	post_receive();
	wr = to_far(IBV_WR_SEND_WITH_IMM, NULL, 0, 0);
	wr.imm_data = 5;
	post(&wr);
	is_done(IBV_WC_SEND);
	wc = received(&far_end);
	CHECK(wc.imm_data == 5);
	wr = to_far(IBV_WR_SEND_WITH_IMM, sge, 1, 0);
	CHECK(ibv_post_send(near_end.id->qp, &wr, &bad) == EOPNOTSUPP && bad == &wr);

	/* Atomic operations. */
	memset(far_end.memory + 8, 0, 8);
	sge[0] = range(&near_end, 0, 8);
	for (uint64_t round = 0; round < 3; round++) {
		wr = to_far(IBV_WR_ATOMIC_FETCH_AND_ADD, sge, 1, 0);
		wr.wr.atomic.remote_addr = (uintptr_t)far_end.memory + 8;
		wr.wr.atomic.compare_add = 5;
		wr.wr.atomic.rkey = far_end.mr->rkey;
		post(&wr);
		is_done(IBV_WC_FETCH_ADD);
		memcpy(&before, near_end.memory, 8);
		CHECK(before == 5 * round);
	}
	wr.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
	wr.wr.atomic.compare_add = 15;
	wr.wr.atomic.swap = 99;
	post(&wr);
	is_done(IBV_WC_COMP_SWAP);
	memcpy(&before, far_end.memory + 8, 8);
	CHECK(before == 99);

	/* A window: bound, written through, bound to something else, closed. */
	mw = ibv_alloc_mw(far_end.id->pd, IBV_MW_TYPE_1);
	CHECK(mw);
	bind.bind_info = (struct ibv_mw_bind_info){
		.mr = far_end.mr, .addr = (uintptr_t)far_end.memory + 4096, .length = 4096,
		.mw_access_flags = IBV_ACCESS_REMOTE_WRITE};
	bind.send_flags = IBV_SEND_SIGNALED;
	for (int round = 0; round < 2; round++) {
		key = mw->rkey;
		CHECK(ibv_bind_mw(far_end.id->qp, mw, &bind) == 0 && mw->rkey != key);
		wc = sent(&far_end);
		CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_BIND_MW);
		sge[0] = range(&near_end, 100, 100);
		wr = to_far(IBV_WR_RDMA_WRITE, sge, 1, 4096);
		wr.wr.rdma.rkey = mw->rkey;
		post(&wr);
		is_done(IBV_WC_RDMA_WRITE);
	}
	CHECK(memcmp(far_end.memory + 4096, near_end.memory + 100, 100) == 0);
	/* The peer closes it with a Send, after a fence; its name is good for nothing then. */
	post_receive();
	wr = to_far(IBV_WR_SEND_WITH_INV, sge, 1, 0);
	wr.invalidate_rkey = mw->rkey;
	wr.send_flags = IBV_SEND_FENCE;
	post(&wr);
	is_done(IBV_WC_SEND);
	wc = received(&far_end);
	CHECK(wc.wc_flags & IBV_WC_WITH_INV && wc.invalidated_rkey == mw->rkey && wc.byte_len == 100);
	bind_closed(mw, bind);
	bind_elsewhere(mw, bind);
	bind_without_room(mw, bind);

	/* A window under keys that the program counts: taken back by its owner, by its owner, and by the peer. */
	keyed = ibv_alloc_mw(far_end.id->pd, IBV_MW_TYPE_2);
	CHECK(keyed && keyed->type == IBV_MW_TYPE_2);
	for (int round = 0; round < 3; round++) {
		size_t to = round == 1 ? 0 : 4096;
		key = ibv_inc_rkey(keyed->rkey);
		wr = (struct ibv_send_wr){.wr_id = 9, .opcode = IBV_WR_BIND_MW};
		wr.bind_mw.mw = keyed;
		wr.bind_mw.rkey = key;
		wr.bind_mw.bind_info = bind.bind_info;
		if (round == 1)
			wr.bind_mw.bind_info.mw_access_flags |= IBV_ACCESS_ZERO_BASED;
		CHECK(ibv_post_send(far_end.id->qp, &wr, &bad) == 0 && keyed->rkey == key);
		wc = sent(&far_end);
		CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_BIND_MW && wc.wr_id == 9);
		CHECK(ibv_dereg_mr(far_end.mr) == EBUSY);
		sge[0] = range(&near_end, 300 + 100 * round, 100);
		wr = to_far(IBV_WR_RDMA_WRITE, sge, 1, to);
		if (round == 1)
			wr.wr.rdma.remote_addr = 0;
		wr.wr.rdma.rkey = key;
		post(&wr);
		is_done(IBV_WC_RDMA_WRITE);
		CHECK(memcmp(far_end.memory + 4096, near_end.memory + 300 + 100 * round, 100) == 0);
		if (round < 2) {
			wr = (struct ibv_send_wr){.opcode = IBV_WR_LOCAL_INV, .invalidate_rkey = key};
			CHECK(ibv_post_send(far_end.id->qp, &wr, &bad) == 0);
			wc = sent(&far_end);
			CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_LOCAL_INV);
			continue;
		}
		post_receive();
		wr = to_far(IBV_WR_SEND_WITH_INV, sge, 1, 0);
		wr.invalidate_rkey = key;
		post(&wr);
		is_done(IBV_WC_SEND);
		wc = received(&far_end);
		CHECK(wc.wc_flags & IBV_WC_WITH_INV && wc.invalidated_rkey == key);
	}
	CHECK(ibv_dealloc_mw(keyed) == 0);

	/* Offsets that count from zero, and from a number of the program's. */
	for (int round = 0; round < 2; round++) {
		uint64_t first = round ? 0x123456789000 : 0;
		int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
		struct ibv_mr *mr = round ? ibv_reg_mr_iova(far_end.id->pd, far_end.memory, 4096, first, access)
					  : ibv_reg_mr(far_end.id->pd, far_end.memory, 4096,
						       access | IBV_ACCESS_ZERO_BASED);
		CHECK(mr);
		memset(far_end.memory, 0, 4096);
		sge[0] = range(&near_end, 1000, 100);
		wr = to_far(IBV_WR_RDMA_WRITE, sge, 1, 0);
		wr.wr.rdma.remote_addr = first + 50;
		wr.wr.rdma.rkey = mr->rkey;
		post(&wr);
		is_done(IBV_WC_RDMA_WRITE);
		CHECK(memcmp(far_end.memory + 50, near_end.memory + 1000, 100) == 0);
		CHECK(ibv_dereg_mr(mr) == 0);
	}

	/* Outside the memory: the peer ends the stream, and what is posted later is flushed. */
	wr = to_far(IBV_WR_RDMA_WRITE, sge, 1, MEMORY_BYTES - 50);
	post(&wr);
	do {
		wc = sent(&near_end);
		wr = to_far(IBV_WR_RDMA_READ, sge, 1, 0);
		ibv_post_send(near_end.id->qp, &wr, &bad);
	} while (wc.status == IBV_WC_SUCCESS);
	wr = to_far(IBV_WR_SEND, sge, 1, 0);
	wr.wr_id = 8;
	post(&wr);
	do
		wc = sent(&near_end);
	while (wc.wr_id != 8);
	CHECK(wc.status == IBV_WC_WR_FLUSH_ERR);

	/* Both ends' queue pairs are told of, on the context that is theirs. */
	do {
		CHECK(ibv_get_async_event(near_end.id->verbs, &event) == 0);
		failed |= event.element.qp == near_end.id->qp && event.event_type != IBV_EVENT_COMM_EST;
		failed |= (event.element.qp == far_end.id->qp && event.event_type == IBV_EVENT_QP_ACCESS_ERR) << 1;
		ibv_ack_async_event(&event);
	} while (failed != 3);

	/* In the wrong order nothing goes, and nothing breaks. */
	CHECK(ibv_dealloc_mw(mw) == 0);
	CHECK(ibv_destroy_cq(near_end.id->send_cq) == EBUSY);
	CHECK(ibv_destroy_comp_channel(near_end.id->send_cq_channel) == EBUSY);
	CHECK(ibv_dereg_mr(near_end.mr) == 0 && ibv_dereg_mr(far_end.mr) == 0);
	rdma_destroy_ep(near_end.id);
	rdma_destroy_ep(far_end.id);
	rdma_destroy_ep(listener);
	puts("ok");
	return 0;
}
