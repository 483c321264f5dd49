/*
 * One thread, two ends, and no call that waits but poll(2): a client says hello, a server says it back. The
 * connection manager's events and completions come by file descriptors. Both ends are in this process, on a
 * wire in memory.
 */
#include <poll.h>

#include "check.h"

#define TCP_PORT 7471
#define BYTES 64

struct end {
    struct warpline_cm_id *id;
    struct warpline_pd *pd;
    struct warpline_cq *cq;
    struct warpline_qp *qp;
    struct warpline_mr *mr;
    char *memory;
};

static struct end client, server;
static int open_ends = 2;

/* What an id needs to connect or accept. */
static void open_end(struct end *end, struct warpline_cm_id *id)
{
    struct warpline_device *device;
    check("warpline_cm_device", warpline_cm_device(id, &device));
    check("warpline_pd_create", warpline_pd_create(device, &end->pd));
    check("warpline_cq_create", warpline_cq_create(16, true, &end->cq));
    check("warpline_qp_create", warpline_qp_create(end->pd, end->cq, end->cq, NULL, NULL, &end->qp));
    check("warpline_mr_allocate",
          warpline_mr_allocate(end->pd, NULL, BYTES, WARPLINE_ACCESS_LOCAL_WRITE, &end->mr));
    warpline_device_close(device);
    end->id = id;
    end->memory = warpline_mr_address(end->mr);
    struct warpline_sge sge = {(uint64_t)(uintptr_t)end->memory, BYTES, warpline_mr_stag(end->mr)};
    struct warpline_recv_wr wr = {.size = sizeof wr, .sg_list = &sge, .num_sge = 1};
    check("warpline_post_recv", warpline_post_recv(end->qp, &wr, NULL));
    check("warpline_cq_arm", warpline_cq_arm(end->cq, false));
}

static void post_send(struct end *end, const void *bytes, uint32_t count)
{
    struct warpline_sge sge = {(uint64_t)(uintptr_t)bytes, count, 0};
    struct warpline_send_wr wr = {.size = sizeof wr, .sg_list = &sge, .num_sge = 1,
                                  .opcode = WARPLINE_WR_SEND, .flags = WARPLINE_SEND_INLINE};
    check("warpline_post_send", warpline_post_send(end->qp, &wr, NULL));
}

static void on_server(const struct warpline_wc *wc)
{
    if (wc->opcode == WARPLINE_WC_RECEIVE)
        post_send(&server, server.memory, wc->byte_len);
}

static void on_client(const struct warpline_wc *wc)
{
    if (wc->opcode == WARPLINE_WC_RECEIVE) {
        printf("the server has said: %.*s\n", (int)wc->byte_len, client.memory);
        check("warpline_cm_disconnect", warpline_cm_disconnect(client.id));
    }
}

static void close_end(struct end *end)
{
    check("warpline_mr_deregister", warpline_mr_deregister(end->mr, PATIENCE_MS));
    warpline_cm_destroy_id(end->id);
    warpline_qp_destroy(end->qp);
    warpline_cq_destroy(end->cq);
    warpline_pd_destroy(end->pd);
    end->cq = NULL;
    open_ends--;
}

static void on_event(const struct warpline_cm_event *event)
{
    switch (event->event) {
    case WARPLINE_CM_EVENT_ADDR_RESOLVED:
        check("warpline_cm_resolve_route", warpline_cm_resolve_route(event->id));
        break;
    case WARPLINE_CM_EVENT_ROUTE_RESOLVED:
        open_end(&client, event->id);
        check("warpline_cm_connect", warpline_cm_connect(event->id, client.qp, NULL));
        break;
    case WARPLINE_CM_EVENT_CONNECT_REQUEST:
        open_end(&server, event->id);
        check("warpline_cm_accept", warpline_cm_accept(event->id, server.qp, NULL));
        break;
    case WARPLINE_CM_EVENT_ESTABLISHED:
        if (event->id == client.id)
            post_send(&client, "hello", 5);
        break;
    case WARPLINE_CM_EVENT_DISCONNECTED:
        if (event->id == server.id)
            check("warpline_cm_disconnect", warpline_cm_disconnect(event->id));
        break;
    case WARPLINE_CM_EVENT_TIMEWAIT_EXIT:
        close_end(event->id == client.id ? &client : &server);
        break;
    default:
        fail(warpline_cm_event_text(event->event));
    }
}

static void on_completions(struct end *end, void (*on)(const struct warpline_wc *))
{
    struct warpline_wc wc;
    check("warpline_cq_clear", warpline_cq_clear(end->cq));
    do {
        while (check("warpline_cq_poll", warpline_cq_poll(end->cq, 1, &wc))) {
            if (wc.status != 0)
                fail(warpline_wc_status_text(wc.status));
            on(&wc);
        }
    } while (check("warpline_cq_arm", warpline_cq_arm(end->cq, false)));
}

int main(void)
{
    const char *near = "ring,address=198.18.0.1/24", *far = "ring,address=198.18.0.2/24";
    struct warpline_device *devices[2];
    struct warpline_cm_channel *channel;
    struct warpline_cm_id *listener;
    struct warpline_cm_event event;
    check("warpline_device_open_pair",
          warpline_device_open_pair(near, NULL, far, NULL, &devices[0], &devices[1]));
    check("warpline_cm_channel_create", warpline_cm_channel_create(devices, 2, &channel));
    check("warpline_cm_create_id", warpline_cm_create_id(channel, NULL, &listener));
    check("warpline_cm_bind_addr", warpline_cm_bind_addr(listener, "198.18.0.2", TCP_PORT));
    check("warpline_cm_listen", warpline_cm_listen(listener, NULL));
    check("warpline_cm_create_id", warpline_cm_create_id(channel, NULL, &client.id));
    check("warpline_cm_resolve_addr", warpline_cm_resolve_addr(client.id, "198.18.0.2", TCP_PORT));
    while (open_ends > 0) {
        struct pollfd fds[3] = {{.fd = warpline_cm_fd(channel), .events = POLLIN},
                                {.fd = client.cq ? warpline_cq_fd(client.cq) : -1, .events = POLLIN},
                                {.fd = server.cq ? warpline_cq_fd(server.cq) : -1, .events = POLLIN}};
        if (poll(fds, 3, PATIENCE_MS) <= 0)
            fail("nothing happens any more");
        if (fds[1].revents)
            on_completions(&client, on_client);
        if (fds[2].revents)
            on_completions(&server, on_server);
        while (check("warpline_cm_get_event", warpline_cm_get_event(channel, &event, 0)))
            on_event(&event);
    }
    warpline_cm_destroy_id(listener);
    warpline_cm_channel_destroy(channel);
    warpline_device_close(devices[0]);
    warpline_device_close(devices[1]);
    return 0;
}
