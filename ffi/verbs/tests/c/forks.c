/* Forks at any time, also while another thread is in a call: each child has a device of its own. */
#include "common.h"
#include <stdatomic.h>

#define CHILDREN 16

static struct ibv_context *context;
static atomic_int stopped;

/* Starts the device with its first call, and is in calls nearly always. */
static void *make_domains(void *unused)
{
	while (!stopped) {
		struct ibv_pd *pd = ibv_alloc_pd(context);
		CHECK(pd && ibv_dealloc_pd(pd) == 0);
	}
	return unused;
}

static void in_child(struct ibv_context *parents)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0xc6120001)};
	struct ibv_context *own;
	struct rdma_cm_id *id;
	struct ibv_pd *pd;

	/* A call that waits for ever. */
	alarm(20);
	own = ibv_open_device(context->device);
	CHECK(own);
	pd = ibv_alloc_pd(own);
	CHECK(pd);
	/* Its ids do not share a context, whose events are read by a descriptor, with those of the parent. */
	CHECK(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_bind_addr(id, (struct sockaddr *)&address) == 0 && id->verbs && id->pd);
	CHECK(id->verbs != parents && (!parents || id->verbs->async_fd != parents->async_fd));
	CHECK(rdma_destroy_id(id) == 0 && ibv_dealloc_pd(pd) == 0 && ibv_close_device(own) == 0);
	exit(0);
}

int main(void)
{
	struct ibv_device **devices = ibv_get_device_list(NULL);
	struct ibv_context **shared = NULL;
	pthread_t thread;
	int status;

	CHECK(devices && devices[0]);
	context = ibv_open_device(devices[0]);
	ibv_free_device_list(devices);
	CHECK(context && pthread_create(&thread, NULL, make_domains, NULL) == 0);
	/* The first while the device starts, the later ones while it runs. */
	for (int i = 0; i < CHILDREN; i++) {
		pid_t child;

		if (i == CHILDREN / 2) {
			shared = rdma_get_devices(NULL);
			CHECK(shared && shared[0]);
		}
		child = fork();
		if (!child)
			in_child(shared ? shared[0] : NULL);
		CHECK(child > 0 && waitpid(child, &status, 0) == child);
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	}
	stopped = 1;
	CHECK(pthread_join(thread, NULL) == 0);
	rdma_free_devices(shared);
	CHECK(ibv_close_device(context) == 0);
	puts("ok");
	return 0;
}
