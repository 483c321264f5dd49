/*
 * The client of docs/tutorial.md in C, for the Rust server of the same page
 * (control/examples/hello_server.rs): it writes into the server's memory, reads it back, counts there, and
 * says so.
 *
 *   client [DEVICE] SERVER
 *
 * Without DEVICE, the environment variable WARPLINE_DEVICE names it.
 */
#include <string.h>
#include <unistd.h>

#include "check.h"

#define TCP_PORT 7471

int main(int argc, char **argv)
{
    if (argc != 2 && argc != 3) {
        fprintf(stderr, "usage: client [DEVICE] SERVER\n");
        return 2;
    }
    const char *name = argc == 3 ? argv[1] : NULL, *server = argv[argc - 1];
    struct warpline_device *device;
    struct warpline_pd *pd;
    struct warpline_cq *cq;
    struct warpline_qp *qp;
    struct warpline_mr *mr;
    check("warpline_device_open", warpline_device_open(name, NULL, &device));
    check("warpline_pd_create", warpline_pd_create(device, &pd));
    check("warpline_cq_create", warpline_cq_create(16, true, &cq));
    check("warpline_qp_create", warpline_qp_create(pd, cq, cq, NULL, NULL, &qp));
    check("warpline_mr_allocate", warpline_mr_allocate(pd, NULL, 4096, WARPLINE_ACCESS_LOCAL_WRITE, &mr));
    char *memory = warpline_mr_address(mr);

    /* The server may still be setting up. Its answer says where its page is. */
    struct warpline_conn_param param = {.size = sizeof param, .timeout_ms = 10000};
    struct warpline_conn_reply reply;
    int connected;
    for (int attempt = 0; attempt < 15; attempt++) {
        connected = warpline_connect(qp, server, TCP_PORT, &param, &reply);
        if (connected == 0)
            break;
        usleep(100000);
    }
    check("warpline_connect", connected);
    struct warpline_advertisement page;
    check("warpline_advertisement_decode",
          warpline_advertisement_decode(reply.private_data, reply.private_data_len, &page));

    /* One list: a Write, a Read of the same bytes, which follows it, an addition, and an inline Send. */
    memcpy(memory, "hello", 5);
    const char *said = "the client has written";
    uint64_t at = (uint64_t)(uintptr_t)memory;
    uint32_t own = warpline_mr_stag(mr);
    struct warpline_sge written = {at, 5, own}, read_back = {at + 100, 5, own}, count = {at + 200, 8, own};
    struct warpline_sge text = {(uint64_t)(uintptr_t)said, (uint32_t)strlen(said), 0};
    struct warpline_send_wr send = {.size = sizeof send, .wr_id = 4, .sg_list = &text, .num_sge = 1,
                                    .opcode = WARPLINE_WR_SEND,
                                    .flags = WARPLINE_SEND_SIGNALED | WARPLINE_SEND_INLINE};
    struct warpline_send_wr add = {.size = sizeof add, .wr_id = 3, .next = &send, .sg_list = &count,
                                   .num_sge = 1,
                                   .opcode = WARPLINE_WR_FETCH_ADD, .flags = WARPLINE_SEND_SIGNALED,
                                   .remote_stag = page.stag, .remote_addr = page.to, .compare_add = 1};
    struct warpline_send_wr read = {.size = sizeof read, .wr_id = 2, .next = &add, .sg_list = &read_back,
                                    .num_sge = 1,
                                    .opcode = WARPLINE_WR_READ, .flags = WARPLINE_SEND_SIGNALED,
                                    .remote_stag = page.stag, .remote_addr = page.to + 64};
    struct warpline_send_wr write = {.size = sizeof write, .wr_id = 1, .next = &read, .sg_list = &written,
                                     .num_sge = 1,
                                     .opcode = WARPLINE_WR_WRITE, .flags = WARPLINE_SEND_SIGNALED,
                                     .remote_stag = page.stag, .remote_addr = page.to + 64};
    check("warpline_post_send", warpline_post_send(qp, &write, NULL));
    for (int completed = 0; completed < 4; completed++)
        next_completion(cq);
    if (memcmp(memory + 100, "hello", 5) != 0)
        fail("something else was read back");

    check("warpline_disconnect", warpline_disconnect(qp));
    check("warpline_wait_closed", warpline_wait_closed(qp, PATIENCE_MS));
    check("warpline_mr_deregister", warpline_mr_deregister(mr, PATIENCE_MS));
    warpline_qp_destroy(qp);
    warpline_cq_destroy(cq);
    warpline_pd_destroy(pd);
    warpline_device_close(device);
    puts("written, read back and counted");
    return 0;
}
