/* A connection whose peer takes nothing any more ends soon after it is disconnected. */
#include "common.h"
#include <time.h>

int main(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct end near_end, far_end;
	struct rdma_cm_id *listener = connect_ends(&near_end, &far_end);
	struct timespec before, after;
	struct rdma_cm_event *event;
	struct ibv_wc wc;
	int posted = 0, done = 0, waited = 0;

	/* The first takes the only receive, the second waits for one, and the rest waits behind it. */
	for (int i = 0; i < 2; i++, posted++)
		CHECK(rdma_post_send(near_end.id, NULL, near_end.memory, 8, near_end.mr, 0) == 0);
	while (waited < 100) {
		int polled = ibv_poll_cq(near_end.id->send_cq, 1, &wc);
		CHECK(polled >= 0 && (!polled || wc.status == IBV_WC_SUCCESS));
		done += polled;
		if (posted - done < 16) {
			CHECK(rdma_post_write(near_end.id, NULL, near_end.memory, MEMORY_BYTES, near_end.mr, 0,
					      (uintptr_t)far_end.memory, far_end.mr->rkey) == 0);
			posted++;
			waited = 0;
		} else if (!polled) {
			usleep(5000);
			waited++;
		}
	}
	CHECK(channel && rdma_migrate_id(near_end.id, channel) == 0);
	CHECK(clock_gettime(CLOCK_MONOTONIC, &before) == 0);
	CHECK(rdma_disconnect(near_end.id) == 0);
	CHECK(rdma_get_cm_event(channel, &event) == 0);
	CHECK(clock_gettime(CLOCK_MONOTONIC, &after) == 0);
	CHECK(event->event == RDMA_CM_EVENT_DISCONNECTED);
	/* The wait for the receive would end the connection after a minute. */
	CHECK(after.tv_sec - before.tv_sec < 15);
	CHECK(rdma_ack_cm_event(event) == 0);
	/* What was left is flushed. */
	while (done < posted) {
		int polled = ibv_poll_cq(near_end.id->send_cq, 1, &wc);
		CHECK(polled >= 0 && (!polled || wc.status != IBV_WC_SUCCESS));
		done += polled;
	}
	CHECK(ibv_dereg_mr(near_end.mr) == 0 && ibv_dereg_mr(far_end.mr) == 0);
	(void)listener;
	puts("ok");
	return 0;
}
