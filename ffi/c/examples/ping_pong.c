/*
 * Ping-pong with RDMA Sends, both ends in one process on a link in memory, or each on a device of its own:
 *
 *   ping_pong [COUNT]
 *   ping_pong server [DEVICE]
 *   ping_pong client SERVER
 *   ping_pong client DEVICE SERVER [COUNT]
 *
 * DEVICE names the device and its address: af_packet:eth1,address=198.18.0.1/24. Without it, the environment
 * variable WARPLINE_DEVICE does. WARPLINE_EAL, if it is set, has more arguments for DPDK.
 */
#include <pthread.h>
#include <string.h>

#include "check.h"

#define TCP_PORT 4711
#define BYTES 64

/* One end: a buffer to send from, and one to receive in. */
struct end {
    struct warpline_pd *pd;
    struct warpline_cq *cq;
    struct warpline_qp *qp;
    struct warpline_mr *mr;
    char *memory;
};

static void post_receive(struct end *end)
{
    struct warpline_sge sge = {(uint64_t)(uintptr_t)(end->memory + BYTES), BYTES, warpline_mr_stag(end->mr)};
    struct warpline_recv_wr wr = {.size = sizeof wr, .sg_list = &sge, .num_sge = 1};
    check("warpline_post_recv", warpline_post_recv(end->qp, &wr, NULL));
}

static struct end open_end(struct warpline_device *device)
{
    struct end end;
    check("warpline_pd_create", warpline_pd_create(device, &end.pd));
    check("warpline_cq_create", warpline_cq_create(16, true, &end.cq));
    check("warpline_qp_create", warpline_qp_create(end.pd, end.cq, end.cq, NULL, NULL, &end.qp));
    check("warpline_mr_allocate",
          warpline_mr_allocate(end.pd, NULL, 2 * BYTES, WARPLINE_ACCESS_LOCAL_WRITE, &end.mr));
    end.memory = warpline_mr_address(end.mr);
    /* Before the connection is open, so that the first message finds it. */
    post_receive(&end);
    return end;
}

static void post_send(struct end *end)
{
    struct warpline_sge sge = {(uint64_t)(uintptr_t)end->memory, BYTES, warpline_mr_stag(end->mr)};
    struct warpline_send_wr wr = {.size = sizeof wr, .sg_list = &sge, .num_sge = 1,
                                  .opcode = WARPLINE_WR_SEND, .flags = WARPLINE_SEND_SIGNALED};
    check("warpline_post_send", warpline_post_send(end->qp, &wr, NULL));
}

/* Waits until `sends` sends and `receives` receives are complete. */
static void complete(struct end *end, int sends, int receives)
{
    while (sends > 0 || receives > 0)
        *(next_completion(end->cq).opcode == WARPLINE_WC_RECEIVE ? &receives : &sends) -= 1;
}

static void close_end(struct end *end)
{
    check("warpline_disconnect", warpline_disconnect(end->qp));
    check("warpline_wait_closed", warpline_wait_closed(end->qp, PATIENCE_MS));
    check("warpline_mr_deregister", warpline_mr_deregister(end->mr, PATIENCE_MS));
    warpline_qp_destroy(end->qp);
    warpline_cq_destroy(end->cq);
    warpline_pd_destroy(end->pd);
}

static void client(struct warpline_device *device, const char *address, int count)
{
    struct end end = open_end(device);
    struct warpline_conn_param param = {.size = sizeof param, .private_data = &count,
                                        .private_data_len = sizeof count};
    check("warpline_connect", warpline_connect(end.qp, address, TCP_PORT, &param, NULL));
    for (int number = 0; number < count; number++) {
        snprintf(end.memory, BYTES, "ping %d", number);
        post_send(&end);
        complete(&end, 1, 1);
        if (memcmp(end.memory, end.memory + BYTES, BYTES) != 0)
            fail("something else came back");
        post_receive(&end);
    }
    close_end(&end);
    printf("%d pings answered\n", count);
}

/* Where the server listens: before its client connects. */
static struct warpline_listener *listener;

/* Answers one client; a thread of its own when both ends are here. */
static void *server(void *device)
{
    struct end end = open_end(device);
    struct warpline_request *request;
    size_t length;
    int count = 0;
    check("warpline_get_request", warpline_get_request(listener, -1, &request));
    const void *asked = warpline_request_private_data(request, &length);
    if (length == sizeof count)
        memcpy(&count, asked, sizeof count);
    check("warpline_accept", warpline_accept(request, end.qp, NULL));
    for (int number = 0; number < count; number++) {
        complete(&end, 0, 1);
        memcpy(end.memory, end.memory + BYTES, BYTES);
        post_receive(&end);
        post_send(&end);
        complete(&end, 1, 0);
    }
    close_end(&end);
    warpline_listener_destroy(listener);
    return NULL;
}

static int both_ends(int count)
{
    const char *near = "ring,address=198.18.0.1/24", *far = "ring,address=198.18.0.2/24";
    struct warpline_device *near_device, *far_device;
    pthread_t thread;
    check("warpline_device_open_pair",
          warpline_device_open_pair(near, NULL, far, NULL, &near_device, &far_device));
    check("warpline_listen", warpline_listen(far_device, TCP_PORT, NULL, &listener));
    if (pthread_create(&thread, NULL, server, far_device) != 0)
        fail("no thread is to be had");
    client(near_device, "198.18.0.2", count);
    pthread_join(thread, NULL);
    warpline_device_close(far_device);
    warpline_device_close(near_device);
    return 0;
}

int main(int argc, char **argv)
{
    int is_server = argc > 1 && strcmp(argv[1], "server") == 0;
    int is_client = argc > 1 && strcmp(argv[1], "client") == 0;
    if (!is_server && !is_client && argc <= 2)
        return both_ends(argc == 2 ? atoi(argv[1]) : 1000);
    if ((!is_server && !is_client) || argc > (is_server ? 3 : 5) || argc < (is_server ? 2 : 3))
        fail("usage: see the top of ping_pong.c");
    /* Without a name, warpline_device_open takes that of the environment. */
    const char *name = argc > (is_server ? 2 : 3) ? argv[2] : NULL;
    struct warpline_device_attr attr = {.size = sizeof attr, .eal = getenv("WARPLINE_EAL")};
    struct warpline_device *device;
    check("warpline_device_open", warpline_device_open(name, &attr, &device));
    if (is_server) {
        check("warpline_listen", warpline_listen(device, TCP_PORT, NULL, &listener));
        puts("listening");
        fflush(stdout);
        server(device);
    } else {
        client(device, argv[name ? 3 : 2], argc > 4 ? atoi(argv[4]) : 1000);
    }
    warpline_device_close(device);
    return 0;
}
