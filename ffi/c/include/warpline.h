/*
 * warpline, a software RNIC: RDMA over Ethernet (iWARP) in user space, for C.
 *
 * Calls that can fail return an int: 0 or more for success, else the negative of a number of errno.h.
 * Each call lists its own; any may return -EINVAL for a null pointer, -EIO for a failure that has no
 * number of its own, and -ENOTRECOVERABLE for a bug of the library. warpline_last_error() returns the
 * last failure of the calling thread as a sentence.
 *
 * Calls that make a handle write it to their last argument, which is of no use after a failure. Any
 * thread may use any handle, at the same time as others. For a queue pair or a completion queue that it has
 * made with single_threaded, a program promises that one thread at a time posts or polls. Each handle is
 * returned to the library once, by its own call, while no other call uses it and none does afterwards.
 * Handles may be returned in any order: an object that was made from another one goes on without the handle
 * of that one.
 *
 * Lengths are in bytes, times in milliseconds. Strings are UTF-8 and end with a zero byte. The library
 * reads what a pointer points to only during the call, unless the description says otherwise.
 *
 * A structure that a program fills begins with its size, for which the program sets sizeof. Its other
 * fields are zero for their defaults:
 *
 *   struct warpline_qp_attr attr = {.size = sizeof attr, .send_depth = 64};
 *
 * Such structures grow in later versions. A program that was compiled with an older header keeps its
 * fields. A program that sets a field which the library is too old to know gets -E2BIG. Structures that
 * the library fills, and struct warpline_sge and struct warpline_advertisement, do not grow.
 */

#ifndef WARPLINE_H
#define WARPLINE_H

/* Made by cbindgen from the Rust source. Do not edit. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** The version of this header: see `warpline_version`. */
#define WARPLINE_VERSION "0.1.0"
#define WARPLINE_VERSION_MAJOR 0
#define WARPLINE_VERSION_MINOR 1
#define WARPLINE_VERSION_PATCH 0

/**
 * `lcore` of a `warpline_device_attr` counts.
 */
#define WARPLINE_DEVICE_PIN 1

/**
 * The thread polls without a pause, for a CPU of its own, of which it takes all. Without, it sleeps when
 * there has been nothing to do for 50 microseconds (at once where the process has one CPU), until there is.
 * Frames wake it on a ring and at the kinds `packet`, `tap` and `virtio_user`; at `af_packet`, `af_xdp`,
 * `memif` and `vhost` it looks for them from time to time, at last every millisecond.
 */
#define WARPLINE_DEVICE_SPIN 2

/**
 * No CRCs with peers that want none either. What is damaged below TCP's checksum then goes unnoticed: not
 * without end-to-end protection at least as strong, such as IPsec (RFC 5044, section 4.4).
 */
#define WARPLINE_DEVICE_NO_CRC 4

/**
 * Messages, and the data of RDMA Reads and atomics, may be placed there.
 */
#define WARPLINE_ACCESS_LOCAL_WRITE 1

/**
 * Peers may read it.
 */
#define WARPLINE_ACCESS_REMOTE_READ 2

/**
 * Peers may write it.
 */
#define WARPLINE_ACCESS_REMOTE_WRITE 4

/**
 * Peers may do atomics on it.
 */
#define WARPLINE_ACCESS_REMOTE_ATOMIC 8

/**
 * Windows may be bound to it: see `warpline_mw_binding`.
 */
#define WARPLINE_ACCESS_WINDOW_BIND 16

/**
 * Tagged Offsets count from zero instead of being addresses, so that the peer does not learn where the
 * memory lies. `addr` of a `warpline_sge` then counts from zero too.
 */
#define WARPLINE_ACCESS_ZERO_BASED (1 << 16)

/**
 * Bytes of the message that `warpline_advertisement_encode` writes.
 */
#define WARPLINE_ADVERTISEMENT_BYTES 16

/**
 * Of `warpline_wc`: a Send, or Immediate Data.
 */
#define WARPLINE_WC_SEND 0

/**
 * An RDMA Write.
 */
#define WARPLINE_WC_WRITE 1

/**
 * An RDMA Read.
 */
#define WARPLINE_WC_READ 2

/**
 * An atomic compare-and-swap, or swap.
 */
#define WARPLINE_WC_COMPARE_SWAP 3

/**
 * An atomic fetch-and-add.
 */
#define WARPLINE_WC_FETCH_ADD 4

/**
 * The invalidation of an STag of this end.
 */
#define WARPLINE_WC_LOCAL_INVALIDATE 5

/**
 * The binding of a memory window.
 */
#define WARPLINE_WC_BIND 6

/**
 * A registration by a work request.
 */
#define WARPLINE_WC_REGISTER 7

/**
 * A received Send, or Immediate Data.
 */
#define WARPLINE_WC_RECEIVE 128

/**
 * Of a received message: `immediate` is valid, and there is nothing of it in the buffer.
 */
#define WARPLINE_WC_WITH_IMMEDIATE 1

/**
 * Of a received message: it has invalidated `invalidated_stag`.
 */
#define WARPLINE_WC_WITH_INVALIDATE 2

/**
 * Of a received message: its sender asked to wake a sleeper.
 */
#define WARPLINE_WC_SOLICITED 4

/**
 * Status of a `warpline_wc`, with the numbers of `enum ibv_wc_status`: success.
 */
#define WARPLINE_WC_SUCCESS 0

/**
 * The local buffers are too short or too long for the message.
 */
#define WARPLINE_WC_LOC_LEN_ERR 1

/**
 * The queue pair could not do what was asked of it.
 */
#define WARPLINE_WC_LOC_QP_OP_ERR 2

/**
 * A local buffer is not registered, or not for this.
 */
#define WARPLINE_WC_LOC_PROT_ERR 4

/**
 * The connection was over before this request's turn came.
 */
#define WARPLINE_WC_WR_FLUSH_ERR 5

/**
 * A memory window could not be bound.
 */
#define WARPLINE_WC_MW_BIND_ERR 6

/**
 * The peer's response is invalid.
 */
#define WARPLINE_WC_BAD_RESP_ERR 7

/**
 * The peer tried to access memory of this end that was not granted.
 */
#define WARPLINE_WC_LOC_ACCESS_ERR 8

/**
 * The peer has found a request of this end invalid.
 */
#define WARPLINE_WC_REM_INV_REQ_ERR 9

/**
 * The peer has not granted the access to its memory.
 */
#define WARPLINE_WC_REM_ACCESS_ERR 10

/**
 * The peer could not carry out the operation.
 */
#define WARPLINE_WC_REM_OP_ERR 11

/**
 * TCP gave up retransmitting.
 */
#define WARPLINE_WC_RETRY_EXC_ERR 12

/**
 * The peer had no receive posted for the message.
 */
#define WARPLINE_WC_RNR_RETRY_EXC_ERR 13

/**
 * The peer has ended the connection.
 */
#define WARPLINE_WC_REM_ABORT_ERR 16

/**
 * The stream cannot go on.
 */
#define WARPLINE_WC_FATAL_ERR 19

/**
 * An expected message did not come in time.
 */
#define WARPLINE_WC_RESP_TIMEOUT_ERR 20

/**
 * Anything else.
 */
#define WARPLINE_WC_GENERAL_ERR 21

/**
 * No connection yet; receives may be posted.
 */
#define WARPLINE_QP_IDLE 0

/**
 * Connected: sends may be posted.
 */
#define WARPLINE_QP_READY_TO_SEND 1

/**
 * An end has closed; requests posted before are still executed.
 */
#define WARPLINE_QP_CLOSING 2

/**
 * The stream has failed, and the connection is being closed.
 */
#define WARPLINE_QP_TERMINATE 3

/**
 * Over: everything posted is completed.
 */
#define WARPLINE_QP_ERROR 4

/**
 * The most ranges of memory in one work request.
 */
#define WARPLINE_MAX_SGE 4

/**
 * The most bytes that `WARPLINE_SEND_INLINE` takes.
 */
#define WARPLINE_MAX_INLINE 64

/**
 * RDMAP Send: to the oldest receive of the peer.
 */
#define WARPLINE_WR_SEND 0

/**
 * The same; on its Delivery it invalidates `remote_stag` at the peer.
 */
#define WARPLINE_WR_SEND_WITH_INVALIDATE 1

/**
 * RDMA Write to `remote_addr` of `remote_stag`.
 */
#define WARPLINE_WR_WRITE 2

/**
 * The same, then Immediate Data, which completes a receive of the peer.
 */
#define WARPLINE_WR_WRITE_WITH_IMMEDIATE 3

/**
 * Immediate Data alone; no memory.
 */
#define WARPLINE_WR_IMMEDIATE 4

/**
 * RDMA Read from `remote_addr` of `remote_stag` to the one range of memory.
 */
#define WARPLINE_WR_READ 5

/**
 * Adds `compare_add` to eight aligned bytes of the peer; their value before comes to the one range of
 * memory, of eight bytes.
 */
#define WARPLINE_WR_FETCH_ADD 6

/**
 * Replaces eight aligned bytes of the peer by `swap` if they are `compare_add`. As above else.
 */
#define WARPLINE_WR_COMPARE_SWAP 7

/**
 * Replaces eight aligned bytes of the peer by `swap`. As above else.
 */
#define WARPLINE_WR_SWAP 8

/**
 * As `WARPLINE_WR_FETCH_ADD`; set bits of `compare_add_mask` are the most significant of fields that are
 * added to on their own.
 */
#define WARPLINE_WR_MASKED_FETCH_ADD 9

/**
 * As `WARPLINE_WR_COMPARE_SWAP`; only bits of `compare_add_mask` are compared, only those of `swap_mask`
 * replaced.
 */
#define WARPLINE_WR_MASKED_COMPARE_SWAP 10

/**
 * Takes `remote_stag`, which here is one of this end, out of the reach of peers; no memory.
 */
#define WARPLINE_WR_LOCAL_INVALIDATE 11

/**
 * Binds a window to a part of a registration, as `grant` says, when all requests before it are complete; no
 * memory.
 */
#define WARPLINE_WR_BIND 12

/**
 * Registers memory that was registered before anew, as `grant` says, when all requests before it are
 * complete; no memory.
 */
#define WARPLINE_WR_REGISTER 13

/**
 * Success is reported by a completion; failure always is.
 */
#define WARPLINE_SEND_SIGNALED 1

/**
 * Wakes a peer that sleeps until such a message.
 */
#define WARPLINE_SEND_SOLICITED 2

/**
 * Waits until the Reads and atomics posted before are complete.
 */
#define WARPLINE_SEND_FENCE 4

/**
 * The bytes are copied when the request is posted: at most `WARPLINE_MAX_INLINE`. `addr` is then the address
 * of any memory, and `stag` is ignored.
 */
#define WARPLINE_SEND_INLINE 8

/**
 * The most bytes of Private Data; 4 fewer for a connection whose IRD and ORD are negotiated, as they are by
 * default.
 */
#define WARPLINE_MAX_PRIVATE_DATA 512

/**
 * `revision` of a `warpline_conn_param`: revision 2 of MPA, in which IRD and ORD are negotiated (RFC 6581),
 * and revision 1 on a new TCP connection if the peer turns out not to know it, unless MPA starts from
 * streaming mode. With more Private Data than revision 2 has room for, revision 1 at once.
 */
#define WARPLINE_REVISION_USUAL 0

/**
 * Revision 1 (RFC 5044).
 */
#define WARPLINE_REVISION_1 1

/**
 * Revision 2 and nothing else.
 */
#define WARPLINE_REVISION_2 2

/**
 * Revision 0, of the RDMA Consortium's endpoints: with Markers and CRCs, and version 0 of DDP and RDMAP.
 */
#define WARPLINE_REVISION_0 3

/**
 * The device that leads to the peer is known. The numbers of events are those of `enum rdma_cm_event_type`.
 */
#define WARPLINE_CM_EVENT_ADDR_RESOLVED 0

/**
 * No device of the channel leads to the peer; another address may be tried.
 */
#define WARPLINE_CM_EVENT_ADDR_ERROR 1

/**
 * The route to the peer is known.
 */
#define WARPLINE_CM_EVENT_ROUTE_RESOLVED 2

/**
 * A peer wants to connect: `id` is new, and waits for `warpline_cm_accept` or `warpline_cm_reject`.
 */
#define WARPLINE_CM_EVENT_CONNECT_REQUEST 4

/**
 * The connection could not be opened, or accepted after all.
 */
#define WARPLINE_CM_EVENT_CONNECT_ERROR 6

/**
 * The peer did not answer in time, or the network says that it cannot be reached.
 */
#define WARPLINE_CM_EVENT_UNREACHABLE 7

/**
 * The peer's application does not want the connection (status `-EACCES`), or no program listens there
 * (`-ECONNREFUSED`).
 */
#define WARPLINE_CM_EVENT_REJECTED 8

/**
 * The connection is open: sends may be posted.
 */
#define WARPLINE_CM_EVENT_ESTABLISHED 9

/**
 * The connection is being closed, by either end, or has failed. It comes once.
 */
#define WARPLINE_CM_EVENT_DISCONNECTED 10

/**
 * The device serves no more.
 */
#define WARPLINE_CM_EVENT_DEVICE_REMOVAL 11

/**
 * The connection is over: its queue pair has completed everything and may be given back.
 */
#define WARPLINE_CM_EVENT_TIMEWAIT_EXIT 15

/**
 * For `warpline_stream_start_unnegotiated`: the direction in which this end sends.
 */
#define WARPLINE_STREAM_SEND 1

/**
 * The direction in which this end receives.
 */
#define WARPLINE_STREAM_RECEIVE 2

/**
 * All 46 bits of a RID are a name.
 */
#define WARPLINE_RID_OPAQUE 0

/**
 * The RID of NFS: operation index (8 bits), XID (32).
 */
#define WARPLINE_RID_NFS 1

/**
 * The RID of HTTP: request index (32 bits).
 */
#define WARPLINE_RID_HTTP 2

/**
 * The RID of CIFS: operation index (8 bits), PID (16), MID (16).
 */
#define WARPLINE_RID_CIFS 3

/**
 * The next part of a stream is bytes, which were copied.
 */
#define WARPLINE_READ_BYTES 1

/**
 * The next part is in a buffer already.
 */
#define WARPLINE_READ_PLACED 2

/**
 * All bytes of a transfer are in its buffer, and were reported: its name is free.
 */
#define WARPLINE_READ_COMPLETE 3

/**
 * The peer sends nothing more.
 */
#define WARPLINE_READ_FINISHED 4

/**
 * Transfer `rid` cannot be expected: an unsolicited one has its name, or there are too many. Nothing is
 * placed in the memory that `warpline_byte_stream_expect` has named.
 */
#define WARPLINE_READ_NOT_EXPECTED 5

/**
 * The next byte begins a message, as the peer has said.
 */
#define WARPLINE_READ_MESSAGE_START 6

/**
 * A complete message of `length` bytes at position `rid` of the stream, counted from its first byte, has
 * arrived, and bytes before it have not. The parts after it are of `WARPLINE_READ_EARLY_BYTES`, until all of
 * it was copied. A message ends where the next one begins, so the last one waits for the next one.
 */
#define WARPLINE_READ_EARLY_MESSAGE 7

/**
 * The next part is bytes of the early message, which were copied.
 */
#define WARPLINE_READ_EARLY_BYTES 8

/**
 * The turn of an early message has come, after `WARPLINE_READ_MESSAGE_START`: of the `length` bytes at
 * position `rid` of the stream, those that were not placed in a buffer are passed over.
 */
#define WARPLINE_READ_HANDED_OUT 9

/**
 * `buffer` of a transfer that was expected.
 */
#define WARPLINE_BUFFER_EXPECTED UINT32_MAX

/**
 * The most bytes of an address as a string, with the zero byte at its end.
 */
#define WARPLINE_MAX_ADDRESS 46

/**
 * The first message of the peer has arrived at the end that was connected to.
 */
#define WARPLINE_EVENT_COMMUNICATION_ESTABLISHED 0

/**
 * A queue pair's stream has ended because this end or the network failed.
 */
#define WARPLINE_EVENT_QP_FATAL 1

/**
 * A queue pair's stream has ended because a request broke the rules.
 */
#define WARPLINE_EVENT_QP_REQUEST_ERROR 2

/**
 * A queue pair's stream has ended because somebody reached for memory that was not granted.
 */
#define WARPLINE_EVENT_QP_ACCESS_ERROR 3

/**
 * A queue pair that is over has completed the last receive that it had taken from a shared receive queue.
 */
#define WARPLINE_EVENT_LAST_RECEIVE_REACHED 4

/**
 * A shared receive queue holds fewer receives than its limit.
 */
#define WARPLINE_EVENT_SRQ_LIMIT 5

/**
 * A completion had no place in a completion queue; the queue pair it was for has failed.
 */
#define WARPLINE_EVENT_CQ_ERROR 6

/**
 * Nobody polls the device's core any more.
 */
#define WARPLINE_EVENT_DEVICE_FATAL 7

/**
 * Another station on the link uses an address of the device, which keeps it.
 */
#define WARPLINE_EVENT_ADDRESS_CONFLICT 8

/**
 * Another station on the link has an address of the device, which has given it up.
 */
#define WARPLINE_EVENT_ADDRESS_ABANDONED 9

/**
 * The first segment was dropped whose TCP checksum its sender has left to a device that it never passed: on
 * a Linux peer, `ethtool -K INTERFACE tx off` has the kernel compute them.
 */
#define WARPLINE_EVENT_PARTIAL_CHECKSUM 10

/**
 * Something that has no number here.
 */
#define WARPLINE_EVENT_OTHER UINT32_MAX

/**
 * The first packet was dropped that the port has cut to its buffer: on a Linux peer, `ethtool -K INTERFACE
 * tso off` has the kernel cut what it sends into segments.
 */
#define WARPLINE_EVENT_OVERSIZED_PACKET 11

/**
 * Nobody polls the core of this number any more: its connections have failed, those of others go on.
 */
#define WARPLINE_EVENT_CORE_ENDED 12

/**
 * The adapter brings segments to other cores than it was asked to, and the cores sort them in software,
 * which takes more of the CPUs; nothing is lost.
 */
#define WARPLINE_EVENT_ADAPTER_DIFFERS 13

/**
 * The most bytes of a counter's name, with the zero byte at its end.
 */
#define WARPLINE_MAX_COUNTER_NAME 56

/**
 * A TCP connection whose bytes the program and the core share, without a thread between them. One thread may
 * read while another writes. `warpline_byte_stream_abort` and `warpline_byte_stream_has_rdma_option` never
 * wait for the threads that read, write or wait.
 */
struct warpline_byte_stream;

/**
 * Where the events of ids arrive, in the order in which they happened: `struct rdma_event_channel`. One
 * thread serves any number of ids and devices.
 *
 * To connect: `warpline_cm_create_id`, `warpline_cm_resolve_addr`, then `warpline_cm_resolve_route`, then
 * `warpline_cm_connect` with a queue pair of `warpline_cm_device`, each after the event of the one before.
 * To listen: `warpline_cm_bind_addr`, `warpline_cm_listen`, then for each
 * `WARPLINE_CM_EVENT_CONNECT_REQUEST` `warpline_cm_accept` or `warpline_cm_reject`. At either end
 * `WARPLINE_CM_EVENT_ESTABLISHED`, `WARPLINE_CM_EVENT_DISCONNECTED` and `WARPLINE_CM_EVENT_TIMEWAIT_EXIT`
 * follow.
 */
struct warpline_cm_channel;

/**
 * A connection or a listener, before, while or after it is open: `struct rdma_cm_id`. Its calls return at
 * once; their outcome arrives on its channel. One that comes at a wrong time fails with `-EINVAL`, and
 * changes nothing.
 */
struct warpline_cm_id;

/**
 * A bounded queue of completions. It may serve many queue pairs. Any thread may poll it; see
 * `single_threaded` of `warpline_cq_attr`.
 */
struct warpline_cq;

/**
 * One core or several on a NIC, each polled by a thread of its own. It serves until it is closed and
 * everything made from it is given back, in whichever order.
 */
struct warpline_device;

/**
 * Takes connections to a port.
 */
struct warpline_listener;

/**
 * Registered memory: a peer reaches it by its STag, as far as its access goes.
 *
 * It may be read and written through its address at any time, as memory that a device reaches by DMA: what a
 * peer is writing or this end has posted to be sent is not defined before the completion.
 */
struct warpline_mr;

/**
 * A memory window: bound to a part of a registration, it opens that part to the peer of one queue pair,
 * until either end invalidates it or the queue pair is gone (RFC 5042 §2.1).
 */
struct warpline_mw;

/**
 * Queue pairs and the memory they may reach (RFC 5041 §8.2).
 */
struct warpline_pd;

/**
 * A queue pair: an endpoint that serves one connection. Any thread may post to it; see `single_threaded` of
 * `warpline_qp_attr`.
 */
struct warpline_qp;

/**
 * A peer that wants to connect and waits for the answer: at a listener, or on a connection in streaming
 * mode, which a rejection leaves open.
 */
struct warpline_request;

/**
 * Receives that many queue pairs share.
 */
struct warpline_srq;

/**
 * A TCP connection in streaming mode: bytes go both ways until MPA is started on it, as Initiator by
 * `warpline_stream_initiate` or as Responder by `warpline_stream_respond`, whoever opened the connection; or
 * without startup frames by `warpline_stream_start_unnegotiated`. After a rejection it is in streaming mode
 * again.
 *
 * Bytes that are not read close TCP's window; bytes that are written wait in a queue of about 64 KiB. One
 * thread may read while another writes.
 */
struct warpline_stream;

/**
 * Takes connections to a port in streaming mode.
 */
struct warpline_stream_listener;

/**
 * How a device is opened. Zero is the default of everything but `size`.
 */
struct warpline_device_attr {
    /**
     * `sizeof(struct warpline_device_attr)`.
     */
    size_t size;
    /**
     * More arguments for DPDK's EAL, such as `"--no-huge -m 512"`; null for none. A process has one EAL:
     * only the call that starts it may have arguments.
     */
    const char *eal;
    /**
     * `WARPLINE_DEVICE_*`.
     */
    uint32_t flags;
    /**
     * With `WARPLINE_DEVICE_PIN`, the CPU of the thread that polls.
     */
    uint32_t lcore;
    /**
     * Bytes a peer may have in flight on one connection; 0 for 2 MiB.
     */
    uint32_t window;
    /**
     * Must be 0.
     */
    uint32_t reserved;
};

/**
 * A range of memory with a new STag, which takes effect when the work request with this grant is complete
 * (`WARPLINE_WR_BIND`, `WARPLINE_WR_REGISTER`); requests posted later on the same queue pair are executed
 * after it. `stag`, `to` and `length` are for the caller to read; nothing of it is to be changed.
 */
struct warpline_grant {
    /**
     * The Tagged Offset of the first byte, under the new name.
     */
    uint64_t to;
    /**
     * Bytes.
     */
    uint64_t length;
    /**
     * Where the range begins: of a window, as a Tagged Offset of the registration; else, as bytes from the
     * begin of the memory.
     */
    uint64_t start;
    /**
     * The new name.
     */
    uint32_t stag;
    /**
     * Of a window, the STag of the registration; else 0.
     */
    uint32_t mr_stag;
    /**
     * `WARPLINE_ACCESS_*`.
     */
    uint32_t access;
    /**
     * Whether it is for one queue pair alone.
     */
    bool one_stream;
};

/**
 * Memory of a peer that an RDMA Write may write or an RDMA Read may read.
 */
struct warpline_advertisement {
    /**
     * The Tagged Offset of the first byte: `remote_addr` of a `warpline_send_wr`.
     */
    uint64_t to;
    /**
     * `remote_stag` of a `warpline_send_wr`.
     */
    uint32_t stag;
    /**
     * Bytes from there on.
     */
    uint32_t length;
};

/**
 * How a completion queue is made. Zero is the default of everything but `size` and `capacity`.
 */
struct warpline_cq_attr {
    /**
     * `sizeof(struct warpline_cq_attr)`.
     */
    size_t size;
    /**
     * Completions that it has room for, 1 to 1048576.
     */
    uint32_t capacity;
    /**
     * The queue has a file descriptor to sleep on.
     */
    bool sleepable;
    /**
     * One thread at a time polls, waits for and arms the queue: a promise of the program, for which these
     * calls take no lock (as `IBV_CREATE_CQ_ATTR_SINGLE_THREADED` of verbs). Without, any thread may, at any
     * time. All other calls are for any thread either way.
     */
    bool single_threaded;
    /**
     * Must be 0.
     */
    uint8_t reserved[2];
};

/**
 * The completion of a work request.
 */
struct warpline_wc {
    /**
     * The work request's name.
     */
    uint64_t wr_id;
    /**
     * With `WARPLINE_WC_WITH_IMMEDIATE`, the eight bytes as an integer, most significant first on the wire.
     */
    uint64_t immediate;
    /**
     * `WARPLINE_WC_SUCCESS`, or why it failed: `WARPLINE_WC_LOC_LEN_ERR` to `WARPLINE_WC_GENERAL_ERR`.
     */
    uint32_t status;
    /**
     * Which of `WARPLINE_WC_SEND` to `WARPLINE_WC_RECEIVE`.
     */
    uint32_t opcode;
    /**
     * For receives, bytes of the message; for sends, bytes sent.
     */
    uint32_t byte_len;
    /**
     * The queue pair: see `warpline_qp_number`.
     */
    uint32_t qp_number;
    /**
     * `WARPLINE_WC_WITH_IMMEDIATE`, `WARPLINE_WC_WITH_INVALIDATE`, `WARPLINE_WC_SOLICITED`.
     */
    uint32_t flags;
    /**
     * With `WARPLINE_WC_WITH_INVALIDATE`, the STag.
     */
    uint32_t invalidated_stag;
};

/**
 * How a queue pair is made. Zero is the default of everything but `size`.
 */
struct warpline_qp_attr {
    /**
     * `sizeof(struct warpline_qp_attr)`.
     */
    size_t size;
    /**
     * Send work requests that may be outstanding, 32768 at most; 0 for 128.
     */
    uint32_t send_depth;
    /**
     * The same of receives. With a shared receive queue, receives of it held at a time.
     */
    uint32_t recv_depth;
    /**
     * Milliseconds that a message of the peer which finds no receive waits for one; all that the peer sends
     * after it waits too. 0: such a message ends the stream at once.
     */
    uint32_t rnr_timeout_ms;
    /**
     * Milliseconds after `warpline_disconnect` without a byte of the peer or an acknowledgement of ours,
     * after which the connection is reset; 0 for 60000, `UINT32_MAX` for no limit.
     */
    uint32_t disconnect_timeout_ms;
    /**
     * When the peer closes its half of the connection, ours stays open for sends until
     * `warpline_disconnect`: see `warpline_wait_peer_closed`.
     */
    bool keep_open;
    /**
     * One thread at a time posts to the queue pair: a promise of the program, for which posting takes no
     * lock (as with a thread domain of verbs). Without, any thread may post at any time. All other calls are
     * for any thread either way.
     */
    bool single_threaded;
    /**
     * The share in what the device sends while several connections have much to send: one of weight 32 may
     * send twice as many bytes as one of 16; 0 for 16.
     */
    uint8_t weight;
    /**
     * Must be 0.
     */
    uint8_t reserved[5];
    /**
     * Milliseconds that bytes of ours may go unacknowledged before the connection fails with `-ETIMEDOUT`
     * (RFC 9293, section 3.9.1); 0 for as long as TCP retransmits, some five minutes.
     */
    uint32_t user_timeout_ms;
    /**
     * Milliseconds of silence, while nothing of ours waits for an acknowledgement, after which the peer is
     * probed (RFC 9293, section 3.8.4); 0 for no probes.
     */
    uint32_t keepalive_idle_ms;
    /**
     * Milliseconds between probes; 0 for a third of the idle time.
     */
    uint32_t keepalive_interval_ms;
    /**
     * Probes without an answer after which the connection fails with `-ETIMEDOUT`, 255 at most; 0 for 3.
     */
    uint32_t keepalive_probes;
    /**
     * Bytes of TCP payload that may be sent in a second, in whole kilobytes (1000 bytes): segments leave at
     * that pace. 0 for no limit.
     */
    uint64_t rate_limit;
};

/**
 * A range of registered memory. It stands in arrays, so it does not grow.
 */
struct warpline_sge {
    /**
     * Its address; an offset in a registration with `WARPLINE_ACCESS_ZERO_BASED`.
     */
    uint64_t addr;
    /**
     * Its length in bytes.
     */
    uint32_t length;
    /**
     * The STag of the registration it lies in.
     */
    uint32_t stag;
};

/**
 * A work request on the send queue. Its memory belongs to the library until its completion; itself only
 * until it is posted.
 */
struct warpline_send_wr {
    /**
     * `sizeof(struct warpline_send_wr)`.
     */
    size_t size;
    /**
     * The caller's identifier of it.
     */
    uint64_t wr_id;
    /**
     * The next request of the list; null for none.
     */
    const struct warpline_send_wr *next;
    /**
     * Ranges of memory.
     */
    const struct warpline_sge *sg_list;
    /**
     * The number of ranges, at most `WARPLINE_MAX_SGE`.
     */
    uint32_t num_sge;
    /**
     * `WARPLINE_WR_*`.
     */
    uint32_t opcode;
    /**
     * `WARPLINE_SEND_*`.
     */
    uint32_t flags;
    /**
     * The peer's registration.
     */
    uint32_t remote_stag;
    /**
     * The Tagged Offset in it: an address of the peer, if it says so.
     */
    uint64_t remote_addr;
    /**
     * Immediate Data, as an integer: most significant byte first on the wire.
     */
    uint64_t immediate;
    /**
     * The value to compare with, or to add.
     */
    uint64_t compare_add;
    /**
     * The value to store.
     */
    uint64_t swap;
    /**
     * See `WARPLINE_WR_MASKED_*`.
     */
    uint64_t compare_add_mask;
    /**
     * See `WARPLINE_WR_MASKED_COMPARE_SWAP`.
     */
    uint64_t swap_mask;
    /**
     * With `WARPLINE_WR_BIND`, what `warpline_mw_binding` wrote; with `WARPLINE_WR_REGISTER`, what
     * `warpline_mr_fast_registration` wrote.
     */
    const struct warpline_grant *grant;
};

/**
 * A work request on a receive queue: a buffer for one message of the peer.
 */
struct warpline_recv_wr {
    /**
     * `sizeof(struct warpline_recv_wr)`.
     */
    size_t size;
    /**
     * The caller's identifier of it.
     */
    uint64_t wr_id;
    /**
     * The next request of the list; null for none.
     */
    const struct warpline_recv_wr *next;
    /**
     * Ranges of memory, with the right `WARPLINE_ACCESS_LOCAL_WRITE`.
     */
    const struct warpline_sge *sg_list;
    /**
     * The number of ranges, at most `WARPLINE_MAX_SGE`.
     */
    uint32_t num_sge;
    /**
     * Must be 0.
     */
    uint32_t reserved;
};

/**
 * How a connection is opened or accepted. Zero is the default of everything but `size`.
 */
struct warpline_conn_param {
    /**
     * `sizeof(struct warpline_conn_param)`.
     */
    size_t size;
    /**
     * The Private Data for the peer's application.
     */
    const void *private_data;
    /**
     * The length of the Private Data in bytes.
     */
    uint32_t private_data_len;
    /**
     * To open: milliseconds it may take; 0 for ten seconds.
     */
    uint32_t timeout_ms;
    /**
     * RDMA Reads and atomics of the peer to be served at a time, and our own at the peer: at most these.
     * Both 0 for the default, 32 each.
     */
    uint16_t ird;
    /**
     * See `ird`.
     */
    uint16_t ord;
    /**
     * To open: `WARPLINE_REVISION_*`.
     */
    uint32_t revision;
    /**
     * `ird` and `ord` of 0 mean none.
     */
    bool no_reads;
    /**
     * To open: the peer is asked to insert Markers, so that data which arrives out of order can be placed at
     * once (RFC 5044, section 4.3). Linux siw refuses that.
     */
    bool markers;
    /**
     * To open: the peer may be one of the RDMA Consortium's, which answers in revision 0.
     */
    bool permissive;
    /**
     * To open: a peer of revision 2 that stays silent after our first message is not sent RDMA Writes
     * without payload, which it is otherwise, three at most: Linux siw may overlook that message until more
     * bytes come.
     */
    bool no_nudges;
    /**
     * To open with `warpline_connect`: our port; 0 for a free one.
     */
    uint16_t local_port;
    /**
     * To open with `warpline_connect`: our address; null for the one that leads to the peer.
     */
    const char *local_address;
};

/**
 * The peer's Private Data, and the agreed depths.
 */
struct warpline_conn_reply {
    /**
     * The peer's Private Data.
     */
    uint8_t private_data[512];
    /**
     * The length of the Private Data in bytes.
     */
    uint32_t private_data_len;
    /**
     * RDMA Reads and atomics of the peer that are served at a time.
     */
    uint16_t ird;
    /**
     * Our own that may be outstanding.
     */
    uint16_t ord;
};

/**
 * How connections are taken. Zero is the default of everything but `size`.
 */
struct warpline_listen_attr {
    /**
     * `sizeof(struct warpline_listen_attr)`.
     */
    size_t size;
    /**
     * Connections that wait for their startup or for the application, at most; 0 for 128.
     */
    uint32_t backlog;
    /**
     * Milliseconds that a peer has for its Request; 0 for ten seconds.
     */
    uint32_t startup_timeout_ms;
    /**
     * Milliseconds that a peer has for its first message, before which we may send nothing; 0 for a minute,
     * negative for ever.
     */
    int32_t first_message_timeout_ms;
    /**
     * Milliseconds that the application has to answer a connection request; 0 for a minute, negative for
     * ever. After that the peer is rejected.
     */
    int32_t decision_timeout_ms;
    /**
     * Peers are asked to insert Markers (RFC 5044, section 4.3). Linux siw refuses that.
     */
    bool markers;
    /**
     * Peers of the RDMA Consortium's are taken too: those of revision 0, with Markers and CRCs.
     */
    bool permissive;
    /**
     * Other listeners that say the same may have the same port at addresses that this one has too, as with
     * `SO_REUSEADDR`.
     */
    bool reuse_address;
    /**
     * Must be 0.
     */
    uint8_t reserved[5];
};

/**
 * Something that happened to an id.
 */
struct warpline_cm_event {
    /**
     * The id. Of `WARPLINE_CM_EVENT_CONNECT_REQUEST` a new one, with the context of the one that listens: it
     * belongs to the program that has taken the event, and is given back with `warpline_cm_destroy_id`.
     */
    struct warpline_cm_id *id;
    /**
     * Of `WARPLINE_CM_EVENT_CONNECT_REQUEST`, the id that listens; else null.
     */
    struct warpline_cm_id *listen_id;
    /**
     * `WARPLINE_CM_EVENT_*`.
     */
    uint32_t event;
    /**
     * 0, or why it failed, as the negative of a number of errno.h: `warpline_last_error` then has the words.
     */
    int status;
    /**
     * The peer's reply: with a request, an acceptance, a rejection. `ird` and `ord` are as agreed; with
     * `WARPLINE_CM_EVENT_CONNECT_REQUEST` they are the peer's own, 0 if its Request has none.
     */
    struct warpline_conn_reply conn;
};

/**
 * How TCP connections are opened or taken in streaming mode.
 */
struct warpline_stream_attr {
    /**
     * `sizeof(struct warpline_stream_attr)`.
     */
    size_t size;
    /**
     * To open: milliseconds it may take; 0 for ten seconds.
     */
    uint32_t timeout_ms;
    /**
     * To listen: connections that wait for the application, at most; 0 for 128.
     */
    uint32_t backlog;
    /**
     * Not 0: the TCP RDMA option is offered to the peer, or accepted from it.
     */
    uint32_t rdma_option;
    /**
     * 0.
     */
    uint32_t reserved;
};

/**
 * The sizes of a byte stream.
 */
struct warpline_byte_stream_attr {
    /**
     * `sizeof(struct warpline_byte_stream_attr)`.
     */
    size_t size;
    /**
     * Bytes that may be written and not acknowledged by the peer; 0 for 1 MiB.
     */
    size_t send_bytes;
    /**
     * Bytes that wait to be read, beside those in TCP's window; 0 for 1 MiB.
     */
    size_t receive_bytes;
    /**
     * Buffers for transfers that nobody expects, 256 at most, and the bytes of each. There are none if
     * either is 0, or if the ends have not agreed on the TCP RDMA option.
     */
    size_t unsolicited_count;
    /**
     * See `unsolicited_count`.
     */
    size_t unsolicited_bytes;
    /**
     * The format of the names of the peer's transfers, `WARPLINE_RID_*`: the bits that it has as zero are
     * received as zeros.
     */
    uint32_t rid_format;
    /**
     * Not 0: `warpline_byte_stream_read_part` says where messages begin.
     */
    uint32_t message_starts;
    /**
     * Bytes of complete messages beyond a gap that wait to be read: `warpline_byte_stream_read_part` returns
     * a message before its turn, as `WARPLINE_READ_EARLY_MESSAGE` describes, and says where messages begin.
     * 0 for none; a longer message is read in its turn.
     */
    size_t early_message_bytes;
};

/**
 * The next part of a stream.
 */
struct warpline_read_part {
    /**
     * The name of the transfer. Of `WARPLINE_READ_EARLY_MESSAGE` and `WARPLINE_READ_HANDED_OUT`, the
     * position of the message in the stream.
     */
    uint64_t rid;
    /**
     * `WARPLINE_READ_*`.
     */
    uint32_t kind;
    /**
     * Bytes of the part; of a complete transfer, all that it had; of an early message, all that it has.
     */
    uint32_t length;
    /**
     * Where in the buffer they begin.
     */
    uint32_t offset;
    /**
     * The number of an unsolicited buffer, or `WARPLINE_BUFFER_EXPECTED`.
     */
    uint32_t buffer;
};

/**
 * What is said about bytes that are written.
 */
struct warpline_annotation {
    /**
     * `sizeof(struct warpline_annotation)`.
     */
    size_t size;
    /**
     * The name of the transfer, 46 bits, if `in_section`.
     */
    uint64_t rid;
    /**
     * The place of the first byte in the peer's buffer.
     */
    uint32_t buffer_offset;
    /**
     * Bytes of the whole transfer, if `total_known`.
     */
    uint32_t total_bytes;
    /**
     * The first byte begins a message.
     */
    bool starts_message;
    /**
     * The bytes are a section of a transfer.
     */
    bool in_section;
    /**
     * The peer does not expect the transfer.
     */
    bool unsolicited;
    /**
     * See `total_bytes`.
     */
    bool total_known;
    /**
     * 0.
     */
    uint32_t reserved;
};

/**
 * Something that happened.
 */
struct warpline_event {
    /**
     * `WARPLINE_EVENT_*`.
     */
    uint32_t event;
    /**
     * The number of the queue pair, the shared receive queue, the completion queue or the core.
     */
    uint32_t number;
    /**
     * Of `WARPLINE_EVENT_QP_FATAL` to `_QP_ACCESS_ERROR`, why: as `status` of `warpline_wc`.
     */
    uint32_t status;
    /**
     * Of `WARPLINE_EVENT_ADDRESS_*` the address, of `WARPLINE_EVENT_PARTIAL_CHECKSUM` and
     * `_OVERSIZED_PACKET` the peer's, as a string.
     */
    char address[WARPLINE_MAX_ADDRESS];
    /**
     * Of `WARPLINE_EVENT_ADDRESS_*`, the hardware address of the other station.
     */
    uint8_t mac[6];
};

/**
 * A counter, or another number of a connection.
 */
struct warpline_counter {
    /**
     * What it counts, with its unit where it is not a number of things: `"frames_received"`,
     * `"drops.tcp_checksum"`, `"tcp.timeouts"`, `"smoothed_rtt_ns"`.
     */
    char name[WARPLINE_MAX_COUNTER_NAME];
    /**
     * The value. Of what is true or false, 1 or 0.
     */
    uint64_t value;
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Returns the version of the library, such as `"0.1.0"`: that of the loaded library, where
 * `WARPLINE_VERSION` is that of the header with which the program was compiled. Never null; good for ever.
 */
const char *warpline_version(void);

/**
 * Why the last call of this thread that failed did so, in a sentence that says what to do. Empty before the
 * first failure. It is good until the next call of this thread. Never null.
 */
const char *warpline_last_error(void);

/**
 * Opens the device `name` and starts a thread that polls it. A name is a kind, what the kind opens, and
 * options after commas, such as the addresses of the device:
 * `"packet:eth1,mtu=9000,address=198.18.0.1/24"`. The kinds are `packet:INTERFACE`, which needs no DPDK,
 * `tap:INTERFACE`, `af_packet:INTERFACE`, `af_xdp:INTERFACE`, `vhost:PATH`, `virtio_user:PATH`, `memif:PATH`
 * (same trust domain only), `pci:ADDRESS` and `eal:PORT`, a device in DPDK's notation. One of kind `packet`
 * without an address shares those of the kernel on its interface: the kernel answers for them, and other
 * programs have other ports.
 *
 * Options of all kinds are `address=ADDRESS/PREFIX`, `gateway=ADDRESS`, `route=NETWORK/PREFIX@GATEWAY`,
 * `mtu=BYTES`, `vlan=NUMBER`, `connections=NUMBER` and `cores=LIST`, the CPUs that poll the device, one core
 * on each: `2-5`, `2+4+7`, or `node0` for those of a NUMA node; the CPU of `attr` is ignored then. With
 * several cores the port has a queue for each where it has so many (`queues=one`: it has one); `vhost` and
 * `virtio_user` have if both ends say `queues=each`. A null `name` stands for the value of the environment
 * variable `WARPLINE_DEVICE`; `attr` may be null for the defaults.
 *
 * The first call for another kind than `packet` starts DPDK's EAL. If a process opens several devices, the
 * first of those must be the one of kind `pci` or `virtio_user`, because the EAL must know of these when it
 * starts; others can be added at any time.
 *
 * - `-EINVAL`: an argument is wrong
 * - `-E2BIG`: `attr` has fields that this library does not know
 * - `-EALREADY`: the EAL runs, and `attr` has arguments for it
 * - `-EPERM`: this process lacks a privilege; `warpline_last_error` names the command that grants it
 * - `-EADDRINUSE`: the kernel or another process has an address of the device, or its socket; or the kernel
 *   does not leave it ports: 128 at each address that they share, a file descriptor each (raise `ulimit -n`)
 * - `-ENODEV`: the EAL or the device does not start
 * - `-ENOMEM`: a thread, a file descriptor or memory is lacking
 * - `-ENOSYS`: the device needs DPDK, and the library was built without it
 */
int warpline_device_open(const char *name,
                         const struct warpline_device_attr *attr,
                         struct warpline_device **device);

/**
 * Looks at the machine around the device `name` before it is opened, and writes to `warnings` what may keep
 * it from working though it can be opened, a sentence a line: that its interface has no carrier, that
 * packets longer than the MTU arrive there, or what the peer of a memif can do to this process.
 * `warpline_device_open` tells nobody of that, but `warpline_device_warnings` does afterwards. `name` may be
 * null, as there.
 *
 * There is room for `room` bytes, with a zero byte at the end; `warnings` may be null if that is 0. Returns
 * how many bytes all of them have without the zero byte: 0 if there is nothing to warn of, and `room` or
 * more if they are cut.
 *
 * Fails as `warpline_device_open` does for what the machine refuses; a device that is open already has its
 * own address (`-EADDRINUSE`).
 */
int warpline_device_inspect(const char *name, char *warnings, size_t room);

/**
 * Writes to `warnings` what was found when the device was opened by `warpline_device_open`, as
 * `warpline_device_inspect` does before, and that the port has too few queues for the device's cores, so
 * that one core receives and sends for all. The room and the result are as there.
 */
int warpline_device_warnings(const struct warpline_device *device, char *warnings, size_t room);

/**
 * Opens two devices with a link in memory between them, without DPDK: for tests, and to try things out. Both
 * names are of the kind `ring`, such as `"ring,address=198.18.0.1/24"`. Each `attr` may be null for the
 * defaults.
 *
 * Fails as `warpline_device_open` does.
 */
int warpline_device_open_pair(const char *a_name,
                              const struct warpline_device_attr *a_attr,
                              const char *b_name,
                              const struct warpline_device_attr *b_attr,
                              struct warpline_device **a,
                              struct warpline_device **b);

/**
 * Returns a device to the library. What was made from it goes on until it is given back too. Does nothing
 * for null.
 */
void warpline_device_close(struct warpline_device *device);

/**
 * A new Protection Domain.
 */
int warpline_pd_create(struct warpline_device *device, struct warpline_pd **pd);

/**
 * Returns a Protection Domain to the library. What was made from it stays. Does nothing for null.
 */
void warpline_pd_destroy(struct warpline_pd *pd);

/**
 * Registers `length` bytes of the caller's own memory from `start`. What is sent from it is copied into
 * frames, see `warpline_mr_is_copied`; arriving data is placed there at once.
 *
 * `qp` is null, or the queue pair that alone may reach the memory: its peer may then invalidate it.
 *
 * The memory must be initialised, and stay in place, writable and mapped, until `warpline_mr_deregister` has
 * returned 0; `warpline_mr_destroy` is not enough for that.
 *
 * - `-EINVAL`: no bytes, a wrong right, or `qp` is of another Protection Domain
 * - `-ENOSPC`: the device has as many regions as it can, or the Protection Domain as many as it may
 * - `-ENODEV`: the device has stopped
 */
int warpline_mr_register(struct warpline_pd *pd,
                         struct warpline_qp *qp,
                         void *start,
                         size_t length,
                         uint32_t access,
                         struct warpline_mr **mr);

/**
 * As `warpline_mr_register`, but the first byte has the Tagged Offset `to`, whatever its address: at peers,
 * and in `addr` of a `warpline_sge` (libibverbs: the `iova` of `ibv_reg_mr_iova`).
 *
 * - `-EINVAL`: also if the Tagged Offsets would wrap at 2^64, and for `WARPLINE_ACCESS_ZERO_BASED`
 */
int warpline_mr_register_at(struct warpline_pd *pd,
                            struct warpline_qp *qp,
                            void *start,
                            size_t length,
                            uint64_t to,
                            uint32_t access,
                            struct warpline_mr **mr);

/**
 * Allocates and registers `length` zero bytes: in hugepages on a device of `warpline_device_open`. They go
 * when nothing reaches them any more.
 *
 * - `-ENOMEM`: there is no such memory
 * - and as `warpline_mr_register`
 */
int warpline_mr_allocate(struct warpline_pd *pd,
                         struct warpline_qp *qp,
                         size_t length,
                         uint32_t access,
                         struct warpline_mr **mr);

/**
 * Where the memory starts; null for a null `mr`.
 */
void *warpline_mr_address(const struct warpline_mr *mr);

/**
 * Its length in bytes; 0 for a null `mr`.
 */
size_t warpline_mr_length(const struct warpline_mr *mr);

/**
 * Its STag: its name in `warpline_sge`, and at peers. 0, which names nothing, for a null `mr`.
 * `warpline_mr_fast_registration` gives it another.
 */
uint32_t warpline_mr_stag(const struct warpline_mr *mr);

/**
 * Whether what is sent from it is copied into frames, because it may change, or the device cannot refer to
 * it or to any memory.
 */
bool warpline_mr_is_copied(const struct warpline_mr *mr);

/**
 * Takes the memory back: with 0, its STag names nothing, no core reaches the memory, and the handle is gone.
 * With anything else the handle is still there, for another try.
 *
 * - `-EBUSY`: work that is not completed, a response to the peer, or a window that is bound still needed the
 *   memory after `timeout_ms` milliseconds, or the core had not answered; `warpline_last_error` says which
 */
int warpline_mr_deregister(struct warpline_mr *mr, int32_t timeout_ms);

/**
 * As `warpline_mr_deregister`; but after `timeout_ms` milliseconds the connections of queue pairs are reset
 * whose Sends, Writes, Reads or responses still use the memory, and no others. With 0, nothing reads or
 * writes the memory any more, no retransmission either.
 *
 * - `-EBUSY`: a window that is bound still needed the memory, or the core had not answered;
 *   `warpline_last_error` says which
 */
int warpline_mr_revoke(struct warpline_mr *mr, int32_t timeout_ms);

/**
 * Returns memory without waiting: it is deregistered now, or in the background as soon as nothing uses it.
 * Fit for memory of `warpline_mr_allocate`; the caller's own must then never go. Does nothing for null.
 */
void warpline_mr_destroy(struct warpline_mr *mr);

/**
 * A window, bound to nothing yet.
 *
 * - `-ENOSPC`: the device has as many regions and windows as it can, or the Protection Domain as many as it
 *   may
 * - `-ENODEV`: the device has stopped
 */
int warpline_mw_allocate(struct warpline_pd *pd, struct warpline_mw **mw);

/**
 * Returns its STag, which is valid once it is bound; 0, which is no STag, for a null `mw`.
 * `warpline_mw_binding` and `warpline_mw_binding_with_key` give it another name each time.
 */
uint32_t warpline_mw_stag(const struct warpline_mw *mw);

/**
 * Writes to `grant` the binding of the window to bytes `offset` to `offset + length` of `mr`: for a work
 * request with the opcode `WARPLINE_WR_BIND`, which opens them to the peer of the queue pair that it is
 * posted to. The window must not be bound when the work request is done, so invalidate it before if it is.
 * Without a work request, nothing but its name changes.
 *
 * `mr` must have been registered with the right `WARPLINE_ACCESS_WINDOW_BIND`, and with
 * `WARPLINE_ACCESS_LOCAL_WRITE` if the peer is to change anything. `access` are rights of peers, and
 * `WARPLINE_ACCESS_ZERO_BASED` if need be. What the registration does not allow makes the work request fail
 * with `WARPLINE_WC_MW_BIND_ERR`, which ends the connection.
 *
 * - `-EINVAL`: a wrong right, or a handle that is on its way back
 */
int warpline_mw_binding(struct warpline_mw *mw,
                        const struct warpline_mr *mr,
                        size_t offset,
                        size_t length,
                        uint32_t access,
                        struct warpline_grant *grant);

/**
 * As `warpline_mw_binding`, with the key that the caller chooses: the low 16 bits of the STag, as
 * `ibv_inc_rkey` counts them. The work request fails with `WARPLINE_WC_MW_BIND_ERR` if the window has that
 * key already.
 *
 * Keys that are counted are not hard to predict (RFC 5040 §8.1.1): a peer of the queue pair that has had one
 * STag of the window can name it under each later key. Invalidate the window when the peer is not to reach
 * the memory.
 *
 * - `-EINVAL`: a wrong right, or a handle that is on its way back
 */
int warpline_mw_binding_with_key(struct warpline_mw *mw,
                                 const struct warpline_mr *mr,
                                 uint16_t key,
                                 size_t offset,
                                 size_t length,
                                 uint32_t access,
                                 struct warpline_grant *grant);

/**
 * Takes a window back: with 0, its name names nothing, and the handle is gone. With anything else the handle
 * is still there, for another try.
 *
 * - `-EBUSY`: a response to the peer still read by it after `timeout_ms` milliseconds, or the core had not
 *   answered
 */
int warpline_mw_deallocate(struct warpline_mw *mw, int32_t timeout_ms);

/**
 * Destroys a window without waiting: now, or in the background as soon as no Read uses it. Null
 * is nothing.
 */
void warpline_mw_destroy(struct warpline_mw *mw);

/**
 * Writes to `grant` the registration of bytes `offset` to `offset + length` of the memory anew, without
 * asking the control thread: for a work request with the opcode `WARPLINE_WR_REGISTER`. The memory must be
 * invalid when the work request is done, so invalidate it before (`WARPLINE_WR_LOCAL_INVALIDATE`), if the
 * peer has not. `warpline_mr_stag` returns the new STag from now on.
 *
 * `access` is no more than at first, with or without `WARPLINE_ACCESS_ZERO_BASED`. With `one_stream`, the
 * memory is for the queue pair alone that the work request is posted to, whose peer may then invalidate it.
 * What is not allowed makes the work request fail with `WARPLINE_WC_LOC_PROT_ERR`, which ends
 * the connection. On a device of several cores, a work request that registers memory without `one_stream`,
 * or invalidates memory that queue pairs at other cores may use, completes when those cores have followed;
 * it fails if one is not polled for 5 s.
 *
 * - `-EINVAL`: a wrong right, or a handle that is on its way back
 */
int warpline_mr_fast_registration(struct warpline_mr *mr,
                                  size_t offset,
                                  size_t length,
                                  uint32_t access,
                                  bool one_stream,
                                  struct warpline_grant *grant);

/**
 * Writes the advertisement of bytes `offset` to `offset + length` of the memory.
 *
 * - `-EINVAL`: they are not all registered
 */
int warpline_mr_advertisement(const struct warpline_mr *mr,
                              size_t offset,
                              uint32_t length,
                              struct warpline_advertisement *advertisement);

/**
 * Writes the advertisement of bytes `offset` to `offset + length` of the window, by its last
 * `warpline_mw_binding`.
 *
 * - `-EINVAL`: they do not all lie inside
 */
int warpline_mw_advertisement(const struct warpline_mw *mw,
                              uint64_t offset,
                              uint32_t length,
                              struct warpline_advertisement *advertisement);

/**
 * Writes the advertisement to the `WARPLINE_ADVERTISEMENT_BYTES` bytes at `message`, as rping does: Tagged
 * Offset 8, STag 4, length 4, each with the most significant byte first.
 */
int warpline_advertisement_encode(const struct warpline_advertisement *advertisement, void *message);

/**
 * Decodes a message that `warpline_advertisement_encode` wrote.
 *
 * - `-EINVAL`: `length` is not `WARPLINE_ADVERTISEMENT_BYTES`
 */
int warpline_advertisement_decode(const void *message,
                                  size_t length,
                                  struct warpline_advertisement *advertisement);

/**
 * A queue with room for the completions of `capacity` work requests. With `sleepable`, it has a file
 * descriptor.
 *
 * - `-EINVAL`: `capacity` is 0 or more than 1048576
 * - `-EMFILE`: the system has no file descriptor left
 */
int warpline_cq_create(uint32_t capacity, bool sleepable, struct warpline_cq **cq);

/**
 * A queue as `attr` describes it, which must not be null.
 *
 * - `-EINVAL`: `capacity` is 0 or more than 1048576, or a reserved field is not 0
 * - `-EMFILE`: the system has no file descriptor left
 */
int warpline_cq_create_with(const struct warpline_cq_attr *attr, struct warpline_cq **cq);

/**
 * Returns a completion queue to the library. It stays for queue pairs that report to it. Does nothing for
 * null.
 */
void warpline_cq_destroy(struct warpline_cq *cq);

/**
 * Moves the oldest completions to `wc`, at most `count`. Returns their number. Does not wait.
 */
int warpline_cq_poll(struct warpline_cq *cq, uint32_t count, struct warpline_wc *wc);

/**
 * The oldest completion; waits for it for `timeout_ms` milliseconds, or for ever if that is negative.
 * Returns 1 when `wc` is written, 0 when there was none in time. On a queue that is sleepable the thread
 * sleeps meanwhile, else it polls.
 *
 * Any number of threads may wait so, unless the queue is `single_threaded`. A thread that sleeps on the file
 * descriptor instead needs a queue of its own.
 */
int warpline_cq_wait(struct warpline_cq *cq, struct warpline_wc *wc, int32_t timeout_ms);

/**
 * Asks for one notification of the file descriptor: at the next completion, or with `solicited_only` at the
 * next whose sender asked for it or that is a failure. Returns 1 when there are completions
 * already, which cause no notification: poll first; else 0.
 */
int warpline_cq_arm(struct warpline_cq *cq, bool solicited_only);

/**
 * The file descriptor for poll(2) or an epoll set, readable from a notification until `warpline_cq_clear`.
 * It belongs to the queue: do not read or close it.
 *
 * - `-EOPNOTSUPP`: the queue is not sleepable
 */
int warpline_cq_fd(const struct warpline_cq *cq);

/**
 * Takes the notifications there are: do so before polling. Returns 1 when there was one, else 0.
 *
 * - `-EOPNOTSUPP`: the queue is not sleepable
 */
int warpline_cq_clear(struct warpline_cq *cq);

/**
 * Its number in asynchronous events; 0 for null.
 */
uint32_t warpline_cq_number(const struct warpline_cq *cq);

/**
 * Returns the name of a status in this header, such as `"WARPLINE_WC_WR_FLUSH_ERR"`. Never null; good for
 * ever.
 */
const char *warpline_wc_status_name(uint32_t status);

/**
 * What a status means, in words. Never null; good for ever.
 */
const char *warpline_wc_status_text(uint32_t status);

/**
 * Makes a queue pair that reports to `send_cq` and `recv_cq`, which may be the same. `srq` is null or where
 * it takes its receives from; `attr` may be null for the defaults.
 *
 * - `-EINVAL`: a pointer is null, `srq` is of another Protection Domain, or a queue would be too deep
 * - `-ENOSPC`: the device serves as many as it can, or the Protection Domain has as many as it may
 * - `-ENODEV`: the device has stopped
 */
int warpline_qp_create(struct warpline_pd *pd,
                       struct warpline_cq *send_cq,
                       struct warpline_cq *recv_cq,
                       struct warpline_srq *srq,
                       const struct warpline_qp_attr *attr,
                       struct warpline_qp **qp);

/**
 * Gives a queue pair back, which ends its connection: after `warpline_disconnect` in the orderly way that
 * has begun, else with a reset. No work request uses memory once this returns, unless the thread of its core
 * stands still for two seconds; on a device that the caller polls itself, 50 milliseconds of polling later.
 * What was posted has as long to reach the peer. Does nothing for null.
 */
void warpline_qp_destroy(struct warpline_qp *qp);

/**
 * Its number, as completions and events carry it; 0 for null.
 */
uint32_t warpline_qp_number(const struct warpline_qp *qp);

/**
 * Its state, which of `WARPLINE_QP_*`.
 */
int warpline_qp_state(const struct warpline_qp *qp);

/**
 * Closes our half of the connection after everything posted; requests posted later are flushed. The peer's
 * half stays open until the peer closes it. A peer that is silent for `disconnect_timeout_ms` is given up:
 * `warpline_wait_closed` then returns `-ECONNABORTED`.
 */
int warpline_disconnect(struct warpline_qp *qp);

/**
 * Resets the connection: outstanding requests are flushed, the peer sees an error. Without a connection
 * receives that were posted are flushed, an attempt to connect is given up, and the queue pair serves no
 * connection any more. `warpline_wait_closed` then returns `-ECONNABORTED`.
 */
int warpline_abort(struct warpline_qp *qp);

/**
 * Waits until the peer has closed its half of the connection: everything that it has sent is received then.
 * With `keep_open` ours is still open.
 *
 * - `-ETIMEDOUT`: it has not, after `timeout_ms` milliseconds
 * - `-ECONNABORTED`: the connection ended otherwise; `warpline_last_error` says how
 */
int warpline_wait_peer_closed(struct warpline_qp *qp, int32_t timeout_ms);

/**
 * Waits until the connection is closed by both ends.
 *
 * - `-ETIMEDOUT`: it is not yet, after `timeout_ms` milliseconds
 * - `-ECONNABORTED`: it ended otherwise; `warpline_last_error` says how
 */
int warpline_wait_closed(struct warpline_qp *qp, int32_t timeout_ms);

/**
 * Makes a queue of `depth` receives that queue pairs of `pd` can share.
 *
 * - `-EINVAL`: a pointer is null, or `depth` is 0 or more than 262144
 */
int warpline_srq_create(struct warpline_pd *pd, uint32_t depth, struct warpline_srq **srq);

/**
 * Asks for one event `WARPLINE_EVENT_SRQ_LIMIT` when fewer than `limit` receives are left, at once if they
 * are already; 0 asks for none.
 */
int warpline_srq_arm_limit(struct warpline_srq *srq, uint32_t limit);

/**
 * Its number in asynchronous events; 0 for null.
 */
uint32_t warpline_srq_number(const struct warpline_srq *srq);

/**
 * Returns a shared receive queue to the library. It stays for queue pairs that take from it. Does nothing
 * for null.
 */
void warpline_srq_destroy(struct warpline_srq *srq);

/**
 * Posts a list of send work requests in order. It stops at the first that is refused, and writes its address
 * to `bad_wr` (which may be null): those before it are posted, those after it are not. Any thread may post,
 * unless the queue pair is `single_threaded`: then one at a time, receives included.
 *
 * - `-EAGAIN`: the queue, or the completion queue, is full: poll completions first
 * - `-ENOTCONN`: the queue pair is not connected yet, or its device has stopped
 * - `-EOPNOTSUPP`: a Read or atomic, of which the ends have agreed on none
 * - `-EINVAL`, `-EMSGSIZE`: the request makes no sense
 */
int warpline_post_send(struct warpline_qp *qp,
                       const struct warpline_send_wr *wr,
                       const struct warpline_send_wr **bad_wr);

/**
 * Posts a list of receives in order; else as `warpline_post_send`. Allowed before the connection is open,
 * and advisable: a message that finds no receive ends the connection.
 */
int warpline_post_recv(struct warpline_qp *qp,
                       const struct warpline_recv_wr *wr,
                       const struct warpline_recv_wr **bad_wr);

/**
 * Posts a list of receives to a shared receive queue; else as `warpline_post_recv`.
 */
int warpline_srq_post(struct warpline_srq *srq,
                      const struct warpline_recv_wr *wr,
                      const struct warpline_recv_wr **bad_wr);

/**
 * Connects `qp` to `address`, an IPv4 or IPv6 address such as `"198.18.0.2"`, and `port`. Returns when sends
 * may be posted. `param` may be null for the defaults; `reply` may be null, else it is written on success,
 * and on `-EACCES` with the peer's reason.
 *
 * - `-ECONNREFUSED`: no listener is there
 * - `-EACCES`: the peer's application rejected the connection
 * - `-ETIMEDOUT`, `-EHOSTUNREACH`, `-ENETUNREACH`: the peer cannot be reached, or the core has not answered
 * - `-EISCONN`: the queue pair has or had a connection
 * - `-EPROTO`, `-ECONNRESET`: the connection failed while it was opened
 * - `-EADDRNOTAVAIL`: no local port is left, the one asked for is in use, or the address is none of the
 *   device's
 * - `-ENOSPC`: the device has as many connections as it can
 * - `-EINVAL`: an argument is wrong
 * - `-ENODEV`: the device has stopped
 */
int warpline_connect(struct warpline_qp *qp,
                     const char *address,
                     uint16_t port,
                     const struct warpline_conn_param *param,
                     struct warpline_conn_reply *reply);

/**
 * Takes connections to `port` at every address of the device, as `warpline_listen_at` does for `"::"`.
 * `attr` may be null for the usual.
 *
 * - `-EADDRINUSE`: the port has a listener
 * - `-EINVAL`: a pointer but `attr` is null
 * - `-ENOSPC`: the device has as many listeners as it can
 * - `-ENOMEM`: the kernel, whose addresses the device shares, does not leave the port (below 1024 without
 *   `CAP_NET_BIND_SERVICE`), or no file descriptor is left; `warpline_last_error` has the kernel's error
 * - `-ENODEV`: the device has stopped
 */
int warpline_listen(struct warpline_device *device,
                    uint16_t port,
                    const struct warpline_listen_attr *attr,
                    struct warpline_listener **listener);

/**
 * Stops listening. Peers that wait are rejected. Does nothing for null.
 */
void warpline_listener_destroy(struct warpline_listener *listener);

/**
 * Takes the next peer that wants to connect; waits for it for `timeout_ms` milliseconds, or for ever if that
 * is negative. Peers that fail before they have asked are passed over. `warpline_accept` or
 * `warpline_reject` answers it.
 *
 * - `-ETIMEDOUT`: no peer came
 * - `-ENODEV`: the device has stopped
 */
int warpline_get_request(struct warpline_listener *listener,
                         int32_t timeout_ms,
                         struct warpline_request **request);

/**
 * The peer's Private Data, valid until the request is answered; its length is written to `length`. Null, and
 * 0, for a null `request`.
 */
const void *warpline_request_private_data(const struct warpline_request *request, size_t *length);

/**
 * Accepts: `qp` serves the connection from now on. What it sends leaves after the peer's first message. The
 * request is gone, whatever this returns, and with a failure the connection is closed. `param` may be null
 * for the defaults.
 *
 * - `-EISCONN`: the queue pair has or had a connection
 * - `-EINVAL`: an argument is wrong, or the queue pair is of another device
 * - `-EPROTO`, `-ECONNRESET`: the connection failed meanwhile
 * - `-ETIMEDOUT`: the peer was rejected after `decision_timeout_ms`, or the core of the connection has not
 *   answered
 * - `-ENODEV`: the device has stopped
 */
int warpline_accept(struct warpline_request *request,
                    struct warpline_qp *qp,
                    const struct warpline_conn_param *param);

/**
 * Rejects: the peer gets `length` bytes of `private_data`. The request is gone, whatever this returns.
 *
 * - `-EINVAL`: a pointer is null, or there is more Private Data than a Reply holds
 * - `-EPROTO`, `-ECONNRESET`: the connection failed meanwhile
 * - `-ETIMEDOUT`: the peer was rejected after `decision_timeout_ms`, or the core of the connection has not
 *   answered
 * - `-ENODEV`: the device has stopped
 */
int warpline_reject(struct warpline_request *request, const void *private_data, uint32_t length);

/**
 * A channel for connections on `count` devices. It keeps them going.
 *
 * - `-EMFILE`: the system has no file descriptor left
 */
int warpline_cm_channel_create(struct warpline_device *const *devices,
                               uint32_t count,
                               struct warpline_cm_channel **channel);

/**
 * Destroys a channel. Its ids stay, and their events are lost. Does nothing for null.
 */
void warpline_cm_channel_destroy(struct warpline_cm_channel *channel);

/**
 * The file descriptor for poll(2) or an epoll set, readable while there may be an event. Then call
 * `warpline_cm_get_event` with no time to wait until it returns 0. It belongs to the channel: do not read or
 * close it.
 */
int warpline_cm_fd(const struct warpline_cm_channel *channel);

/**
 * The oldest event; waits for it for `timeout_ms` milliseconds, or for ever if that is negative. Returns 1
 * when `event` is written, 0 when there was none in time. There is nothing to acknowledge.
 *
 * Events of destroyed ids are left out. If other threads destroy ids, they and the caller must agree on
 * which ids are still in use.
 */
int warpline_cm_get_event(struct warpline_cm_channel *channel,
                          struct warpline_cm_event *event,
                          int32_t timeout_ms);

/**
 * Creates an id, whose events arrive on the channel. `context` is the caller's: `warpline_cm_context`
 * returns it.
 */
int warpline_cm_create_id(struct warpline_cm_channel *channel, void *context, struct warpline_cm_id **id);

/**
 * What an event of a channel is called. Never null; good for ever.
 */
const char *warpline_cm_event_text(uint32_t event);

/**
 * Returns an id to the library: it listens no more, and a peer that waits for its answer is rejected. A
 * connection goes on: it belongs to its queue pair. Does nothing for null.
 */
void warpline_cm_destroy_id(struct warpline_cm_id *id);

/**
 * What the caller has attached to the id, or to the one that listened for it; null for a null `id`.
 */
void *warpline_cm_context(const struct warpline_cm_id *id);

/**
 * Attaches something to the id.
 */
int warpline_cm_set_context(struct warpline_cm_id *id, void *context);

/**
 * A handle of the device that the id is on, for its queue pair: known once the address is resolved, and of a
 * peer that wants to connect. It is a handle of its own, to be given back with `warpline_device_close`.
 *
 * - `-ENODEV`: it is not known
 */
int warpline_cm_device(const struct warpline_cm_id *id, struct warpline_device **device);

/**
 * The peer that wants to connect, or whose address was resolved: the address as a string, for which there is
 * room for `WARPLINE_MAX_ADDRESS` bytes, and the port. Either may be null.
 *
 * - `-ENOTCONN`: the id has no peer
 */
int warpline_cm_peer(const struct warpline_cm_id *id, char *address, uint16_t *port);

/**
 * Chooses the local address, and with it the device: `"0.0.0.0"` for all devices and their IPv4 addresses,
 * `"::"` for all addresses. `warpline_cm_listen` listens there, and a connection comes from there; for port
 * 0 a free one is chosen then, which `warpline_cm_local` returns.
 *
 * - `-EADDRNOTAVAIL`: no device of the channel has the address
 * - `-EINVAL`: an argument is wrong, or the id is not new
 */
int warpline_cm_bind_addr(struct warpline_cm_id *id, const char *address, uint16_t port);

/**
 * Finds the device that leads to `address`: `WARPLINE_CM_EVENT_ADDR_RESOLVED` or
 * `WARPLINE_CM_EVENT_ADDR_ERROR`.
 *
 * - `-EINVAL`: an argument is wrong, or the id is neither new nor bound
 */
int warpline_cm_resolve_addr(struct warpline_cm_id *id, const char *address, uint16_t port);

/**
 * Finds the route to the peer: `WARPLINE_CM_EVENT_ROUTE_RESOLVED`.
 *
 * - `-EINVAL`: the address is not resolved
 */
int warpline_cm_resolve_route(struct warpline_cm_id *id);

/**
 * Connects `qp`, of the id's device, to the peer. What comes of it: `WARPLINE_CM_EVENT_ESTABLISHED`,
 * `WARPLINE_CM_EVENT_REJECTED`, `WARPLINE_CM_EVENT_UNREACHABLE` or `WARPLINE_CM_EVENT_CONNECT_ERROR`.
 * `param` may be null for the usual.
 *
 * - `-EINVAL`: an argument is wrong, the queue pair is of another device, or the route is not resolved
 * - `-ENODEV`: the device has stopped
 */
int warpline_cm_connect(struct warpline_cm_id *id,
                        struct warpline_qp *qp,
                        const struct warpline_conn_param *param);

/**
 * Listens where the id is bound: each peer that wants to connect is a `WARPLINE_CM_EVENT_CONNECT_REQUEST`.
 * `attr` may be null for the usual.
 *
 * - `-EADDRINUSE`: the port has a listener
 * - `-EINVAL`: the id is not bound
 * - `-ENOSPC`: a device has as many listeners as it can
 * - `-ENOMEM`: the kernel, whose addresses a device shares, does not leave the port (below 1024 without
 *   `CAP_NET_BIND_SERVICE`), or no file descriptor is left; `warpline_last_error` has the kernel's error
 * - `-ENODEV`: a device has stopped
 */
int warpline_cm_listen(struct warpline_cm_id *id, const struct warpline_listen_attr *attr);

/**
 * Accepts the peer that wants to connect: `qp`, of the id's device, serves the connection. What comes of it:
 * `WARPLINE_CM_EVENT_ESTABLISHED` or `WARPLINE_CM_EVENT_CONNECT_ERROR`. `param` may be null for the
 * defaults. With a failure the peer still waits for its answer.
 *
 * - `-EINVAL`: an argument is wrong, the queue pair is of another device, or no peer wants to connect
 * - `-ENODEV`: the device has stopped
 */
int warpline_cm_accept(struct warpline_cm_id *id,
                       struct warpline_qp *qp,
                       const struct warpline_conn_param *param);

/**
 * Rejects the peer that wants to connect: it gets `length` bytes of `private_data`. With a failure it still
 * waits for its answer.
 *
 * - `-EINVAL`: an argument is wrong, or no peer wants to connect
 * - `-ENODEV`: the device has stopped
 */
int warpline_cm_reject(struct warpline_cm_id *id, const void *private_data, uint32_t length);

/**
 * Closes our half of the connection after everything posted. `WARPLINE_CM_EVENT_DISCONNECTED` comes when the
 * peer closes its half, `WARPLINE_CM_EVENT_TIMEWAIT_EXIT` when all is over.
 *
 * - `-EINVAL`: there was no connection; one that has ended meanwhile is no error
 * - `-ENODEV`: the device has stopped
 */
int warpline_cm_disconnect(struct warpline_cm_id *id);

/**
 * Opens a TCP connection to `address`, an IPv4 or IPv6 address, and `port`, in streaming mode: in
 * `timeout_ms` milliseconds at most; 0 for ten seconds.
 *
 * - `-ECONNREFUSED`: no program listens there
 * - `-ETIMEDOUT`, `-EHOSTUNREACH`, `-ENETUNREACH`: the peer cannot be reached
 * - `-EADDRNOTAVAIL`, `-ENOSPC`: no local port is left, or the device has as many connections as it can
 * - `-EINVAL`: an argument is wrong
 * - `-ENODEV`: the device has stopped
 */
int warpline_stream_connect(struct warpline_device *device,
                            const char *address,
                            uint16_t port,
                            uint32_t timeout_ms,
                            struct warpline_stream **stream);

/**
 * Takes connections to `port` in streaming mode, of which at most `backlog` wait at a time; 0 for 128.
 *
 * Fails as `warpline_listen` does; a port has one listener, of either kind.
 */
int warpline_stream_listen(struct warpline_device *device,
                           uint16_t port,
                           uint32_t backlog,
                           struct warpline_stream_listener **listener);

/**
 * Listens no more: connections that nobody has taken are closed. Does nothing for null.
 */
void warpline_stream_listener_destroy(struct warpline_stream_listener *listener);

/**
 * The next connection; waits for it for `timeout_ms` milliseconds, or for ever if that is negative.
 *
 * - `-ETIMEDOUT`: there is none
 * - `-ENODEV`: the device has stopped
 */
int warpline_stream_accept(struct warpline_stream_listener *listener,
                           int32_t timeout_ms,
                           struct warpline_stream **stream);

/**
 * The file descriptor that becomes readable, once after `warpline_stream_listener_arm`, when there is a
 * connection to accept, or the device has stopped. It is the library's: do not close it.
 *
 * - `-EMFILE`: no file descriptor is left
 */
int warpline_stream_listener_fd(struct warpline_stream_listener *listener);

/**
 * Has the descriptor of `warpline_stream_listener_fd` become readable when the next connection comes, and
 * clears it. Returns 1 if there is none, so that the thread may sleep; else 0.
 */
int warpline_stream_listener_arm(struct warpline_stream_listener *listener);

/**
 * Returns a connection to the library: in streaming mode it is closed in an orderly way; once MPA has
 * started, it is its queue pair's. Null is nothing.
 */
void warpline_stream_destroy(struct warpline_stream *stream);

/**
 * Bytes that can be read at once; 0 for null.
 */
size_t warpline_stream_available(const struct warpline_stream *stream);

/**
 * Reads the bytes that have arrived, at most `length`, to `place`; waits for the first for `timeout_ms`
 * milliseconds, or for ever if that is negative. Returns how many; 0 when the peer has finished and all was
 * read.
 *
 * - `-ETIMEDOUT`: nothing came
 * - `-ECONNRESET`: the connection ended otherwise
 * - `-EINVAL`: a pointer is null, or the bytes are MPA's
 * - `-ENODEV`: the device has stopped
 */
int warpline_stream_read(struct warpline_stream *stream, void *place, size_t length, int32_t timeout_ms);

/**
 * Queues as many of `length` bytes from `start` as there is room for; waits for room for one for
 * `timeout_ms` milliseconds, or for ever if that is negative. Returns how many.
 *
 * - `-ETIMEDOUT`: there was no room
 * - `-EPIPE`: this end has finished
 * - `-ECONNRESET`: the connection has ended
 * - `-EINVAL`: a pointer is null, or MPA has started in this direction
 * - `-ENODEV`: the device has stopped
 */
int warpline_stream_write(struct warpline_stream *stream,
                          const void *start,
                          size_t length,
                          int32_t timeout_ms);

/**
 * Closes our half of the connection after everything written. The peer's half stays open.
 */
int warpline_stream_finish(struct warpline_stream *stream);

/**
 * Resets the connection.
 */
int warpline_stream_abort(struct warpline_stream *stream);

/**
 * Waits until both ends have finished.
 *
 * - `-ETIMEDOUT`: they have not, after `timeout_ms` milliseconds
 * - `-ECONNRESET`: the connection ended otherwise
 * - `-EINVAL`: a pointer is null, or MPA has started with startup frames
 * - `-ENODEV`: the device has stopped
 */
int warpline_stream_wait_closed(struct warpline_stream *stream, int32_t timeout_ms);

/**
 * Starts MPA as its Initiator, at once or after bytes: the Request follows this end's last byte, and the
 * peer's next byte belongs to its Reply. Returns when sends may be posted to `qp`. `param` may be null for
 * the defaults; `reply` may be null, else it is written on success, and on `-EACCES` with the peer's reason.
 * After that the connection is in streaming mode again.
 *
 * - `-EBUSY`: bytes wait to be read: read them, then start
 * - `-EACCES`: the peer's application does not want it
 * - `-EISCONN`: the queue pair has or had a connection
 * - `-EPROTO`, `-ECONNRESET`: startup has failed, and the connection is closed
 * - `-ETIMEDOUT`: the core of the connection has not answered
 * - `-EINVAL`: an argument is wrong, the queue pair is of another device, or MPA has started already
 * - `-ENODEV`: the device has stopped
 */
int warpline_stream_initiate(struct warpline_stream *stream,
                             struct warpline_qp *qp,
                             const struct warpline_conn_param *param,
                             struct warpline_conn_reply *reply);

/**
 * Starts MPA as its Responder: `length` bytes of `last_message`, which may be none, are our last ones before
 * the Reply, and the peer's next byte belongs to its Request. Waits for the Request, which `warpline_accept`
 * or `warpline_reject` answers; after a rejection the connection is in streaming mode again. `attr` may be
 * null for the defaults.
 *
 * - `-EBUSY`: bytes wait to be read, which cannot be the Request's with a last message: read them, then
 *   start
 * - `-EAGAIN`: the queue has no room for the last message
 * - `-EPROTO`, `-ECONNRESET`: no Request came in its time, or startup has failed; the connection is closed
 * - `-EINVAL`: a pointer is null but `attr`, or MPA has started already
 * - `-ENODEV`: the device has stopped
 */
int warpline_stream_respond(struct warpline_stream *stream,
                            const void *last_message,
                            size_t length,
                            const struct warpline_listen_attr *attr,
                            struct warpline_request **request);

/**
 * Rejects, as `warpline_reject` does, and keeps the connection of a request of `warpline_get_request`: it is
 * in streaming mode from then on.
 *
 * - `-EINVAL`: an argument is wrong
 * - `-EPROTO`, `-ECONNRESET`: the connection failed meanwhile
 * - `-ETIMEDOUT`: the peer was rejected after `decision_timeout_ms`, or the core of the connection has not
 *   answered
 * - `-ENODEV`: the device has stopped
 */
int warpline_reject_to_stream(struct warpline_request *request,
                              const void *private_data,
                              uint32_t length,
                              struct warpline_stream **stream);

/**
 * Full Operation without startup frames, as draft-culley-iwarp-mpa-00 has it: with Markers and CRCs, and no
 * waiting for the other end. `directions` is `WARPLINE_STREAM_SEND`, `WARPLINE_STREAM_RECEIVE` or both: the
 * bytes after those written and read so far are MPA's, which both ends must know; the other direction stays
 * in streaming mode until it is started too, with the same queue pair. `version` is that of DDP and RDMAP, 0
 * or 1. `ird` and `ord` are the RDMA Reads of the peer that are served at a time and our own that may be
 * outstanding, up to 128 each: the peer must be called with the same numbers the other way round. Of these
 * three the first call for a connection decides.
 *
 * - `-EBUSY`: bytes wait to be read
 * - `-EISCONN`: the queue pair has or had another connection
 * - `-ECONNRESET`: the connection has ended
 * - `-EINVAL`: an argument is wrong, the queue pair is of another device, or MPA has started already
 * - `-ENODEV`: the device has stopped
 */
int warpline_stream_start_unnegotiated(struct warpline_stream *stream,
                                       struct warpline_qp *qp,
                                       uint32_t directions,
                                       uint8_t version,
                                       uint16_t ird,
                                       uint16_t ord);

/**
 * Opens a TCP connection as `warpline_stream_connect` does, with what `attr` says; null for the defaults.
 */
int warpline_stream_open(struct warpline_device *device,
                         const char *address,
                         uint16_t port,
                         const struct warpline_stream_attr *attr,
                         struct warpline_stream **stream);

/**
 * Takes connections as `warpline_stream_listen` does, with what `attr` says; null for the defaults.
 */
int warpline_stream_listen_with(struct warpline_device *device,
                                uint16_t port,
                                const struct warpline_stream_attr *attr,
                                struct warpline_stream_listener **listener);

/**
 * Makes a byte stream of a connection in streaming mode, and returns the handle `stream` to the library,
 * also if it fails. `attr` may be null for the defaults. Bytes that were not read are the first that the
 * byte stream reads. MPA does not start on it any more.
 *
 * - `-EINVAL`: MPA has started on it, this end has finished, or `attr` is wrong
 * - `-ENOMEM`: there is no memory for its rings, or no file descriptor is left
 * - `-ENODEV`: the device has stopped
 */
int warpline_byte_stream_create(struct warpline_stream *stream,
                                const struct warpline_byte_stream_attr *attr,
                                struct warpline_byte_stream **byte_stream);

/**
 * Returns a byte stream to the library: what was written is still sent, and the connection is closed. If
 * bytes have arrived that were not read, or others arrive after this, it is reset instead, and what was
 * written may be lost: read to the peer's end where that matters. Null is nothing.
 */
void warpline_byte_stream_destroy(struct warpline_byte_stream *byte_stream);

/**
 * Whether the ends have agreed on the TCP RDMA option; false for null. Known before the first byte is read,
 * and returned at once whatever other threads do with the stream.
 */
bool warpline_byte_stream_has_rdma_option(const struct warpline_byte_stream *byte_stream);

/**
 * Resets the connection, whatever other threads do with the stream: those that read, write or wait return
 * `-ECONNRESET`. Does not wait for them, and does nothing if the connection has ended.
 */
int warpline_byte_stream_abort(struct warpline_byte_stream *byte_stream);

/**
 * Waits until both ends have finished.
 *
 * - `-ETIMEDOUT`: they have not, after `timeout_ms` milliseconds
 * - `-ECONNRESET`: the connection ended otherwise
 */
int warpline_byte_stream_wait_closed(struct warpline_byte_stream *byte_stream, int32_t timeout_ms);

/**
 * Reads the bytes that have arrived, at most `length`, to `place`, wherever they are: those of a transfer
 * are copied from its buffer. They are in stream order: bytes of a message that was read early are read
 * again, unless they were passed over after `WARPLINE_READ_HANDED_OUT`. Waits for the first for `timeout_ms`
 * milliseconds, or for ever if that is negative. Returns how many; 0 when the peer has finished and all was
 * read.
 *
 * - `-ETIMEDOUT`: nothing came
 * - `-ECONNRESET`: the connection ended otherwise
 */
int warpline_byte_stream_read(struct warpline_byte_stream *byte_stream,
                              void *place,
                              size_t length,
                              int32_t timeout_ms);

/**
 * Takes the next part of the stream and describes it in `part`: bytes that were not placed are copied to
 * `place`, at most `length`. Complete messages beyond a gap come first where `early_message_bytes` of
 * `warpline_byte_stream_attr` has room for them. Waits as `warpline_byte_stream_read` does. Returns how many
 * bytes were copied. With a `length` of 0 none are: a part of bytes has length 0 then, and they stay.
 *
 * - `-ETIMEDOUT`: nothing came
 * - `-ECONNRESET`: the connection ended otherwise
 */
int warpline_byte_stream_read_part(struct warpline_byte_stream *byte_stream,
                                   void *place,
                                   size_t length,
                                   int32_t timeout_ms,
                                   struct warpline_read_part *part);

/**
 * Has the bytes of transfer `rid` placed in the `length` bytes at `offset` of registered memory as they
 * arrive. Ask before the peer can know that name. The memory is held until the transfer is complete or
 * cancelled, or the stream is destroyed.
 *
 * If an unsolicited transfer has the name, `warpline_byte_stream_read_part` says
 * `WARPLINE_READ_NOT_EXPECTED`.
 *
 * - `-EINVAL`: the range does not lie in the memory, a transfer of this name is expected, or the name has
 *   more than 46 bits
 * - `-EACCES`: the memory is not registered with `WARPLINE_ACCESS_LOCAL_WRITE`
 * - `-ECONNRESET`: the connection has ended
 */
int warpline_byte_stream_expect(struct warpline_byte_stream *byte_stream,
                                uint64_t rid,
                                struct warpline_mr *mr,
                                size_t offset,
                                size_t length);

/**
 * Reads the next `length` bytes of the stream, the whole of transfer `rid`, which is expected at the
 * same place, into registered memory from `offset` on. Bytes that were placed there are not copied. Bytes
 * that were placed elsewhere, by an option that was changed on its way, or not at all, are brought to
 * their place. Bytes of a message that was read early are read again, as by `warpline_byte_stream_read`. An
 * unsolicited transfer that has the name is ended, and its buffer given back unless
 * `warpline_byte_stream_read_part` has told of it. Waits `timeout_ms` each time there is nothing to read.
 *
 * - `-ETIMEDOUT`: nothing came
 * - `-ECONNRESET`, `-EPIPE`: the connection, or the peer's half of it, ended before
 * - `-EINVAL`: the range does not lie in the memory
 * - `-EACCES`: the memory is not registered with `WARPLINE_ACCESS_LOCAL_WRITE`
 */
int warpline_byte_stream_read_section(struct warpline_byte_stream *byte_stream,
                                      uint64_t rid,
                                      struct warpline_mr *mr,
                                      size_t offset,
                                      size_t length,
                                      int32_t timeout_ms);

/**
 * Copies from an unsolicited buffer that a part was placed in: `length` bytes from `offset` of it on.
 *
 * - `-EINVAL`: there is no such buffer, or the range does not lie in it
 */
int warpline_byte_stream_copy_unsolicited(struct warpline_byte_stream *byte_stream,
                                          uint32_t buffer,
                                          size_t offset,
                                          void *place,
                                          size_t length);

/**
 * Gives an unsolicited buffer back.
 *
 * - `-EINVAL`: there is no such buffer
 */
int warpline_byte_stream_release(struct warpline_byte_stream *byte_stream, uint32_t buffer);

/**
 * Ends transfer `rid`, and waits for `timeout_ms` milliseconds until nothing more is placed in its buffer.
 *
 * - `-ETIMEDOUT`: the core did not answer
 */
int warpline_byte_stream_cancel(struct warpline_byte_stream *byte_stream, uint64_t rid, int32_t timeout_ms);

/**
 * The file descriptor that becomes readable, once after `warpline_byte_stream_arm_read`, when there is more
 * to read. It is the library's: do not close it.
 */
int warpline_byte_stream_read_fd(const struct warpline_byte_stream *byte_stream);

/**
 * Has the descriptor of `warpline_byte_stream_read_fd` become readable at the next change, and clears it.
 * Returns 1 if there is nothing to read, so that the thread may sleep; else 0.
 */
int warpline_byte_stream_arm_read(struct warpline_byte_stream *byte_stream);

/**
 * Writes as many of `length` bytes from `start` as there is room for; waits for room for one for
 * `timeout_ms` milliseconds, or for ever if that is negative. Returns how many.
 *
 * - `-ETIMEDOUT`: there was no room
 * - `-EPIPE`: this end has finished
 * - `-ECONNRESET`: the connection has ended
 */
int warpline_byte_stream_write(struct warpline_byte_stream *byte_stream,
                               const void *start,
                               size_t length,
                               int32_t timeout_ms);

/**
 * Writes all of `length` bytes from `start`, with what `annotation` says about them; null for nothing.
 * Waits `timeout_ms` each time there is no room. With no bytes and a section whose total is 0, it is a
 * transfer of nothing, which goes with the last byte written before it: that is of no section, and the
 * stream is corked.
 *
 * Fails as `warpline_byte_stream_write` does; some bytes may be written then.
 *
 * - `-EINVAL`: the section contradicts one before it (another total, bytes beyond the total, bytes of the
 *   buffer that were sent before), or a transfer of nothing has no byte to go with; nothing was written
 */
int warpline_byte_stream_write_annotated(struct warpline_byte_stream *byte_stream,
                                         const struct warpline_annotation *annotation,
                                         const void *start,
                                         size_t length,
                                         int32_t timeout_ms);

/**
 * Ends transfer `rid`, of which not all was sent, or whose total is not known: the next section with this
 * name is of another transfer.
 *
 * - `-EINVAL`: the name has more than 46 bits
 */
int warpline_byte_stream_end_transfer(struct warpline_byte_stream *byte_stream, uint64_t rid);

/**
 * Has what is written wait if `corked`, as far as there is room; else sends what has waited. Parts of a
 * message that were written together are cut into segments together.
 */
int warpline_byte_stream_cork(struct warpline_byte_stream *byte_stream, bool corked);

/**
 * Closes our half of the connection after everything written. The peer's half stays open.
 */
int warpline_byte_stream_finish(struct warpline_byte_stream *byte_stream);

/**
 * As `warpline_byte_stream_read_fd`, for room to write.
 */
int warpline_byte_stream_write_fd(const struct warpline_byte_stream *byte_stream);

/**
 * As `warpline_byte_stream_arm_read`, for room to write. A corked stream without room sends what it has.
 */
int warpline_byte_stream_arm_write(struct warpline_byte_stream *byte_stream);

/**
 * Takes connections to `port` at `address`, one of the device's; at every IPv4 address for `"0.0.0.0"`, at
 * every address for `"::"`. For port 0 a free one is chosen, which `warpline_listener_address` returns.
 * `attr` may be null for the defaults.
 *
 * - `-EADDRINUSE`: the port of the address has a listener
 * - `-EADDRNOTAVAIL`: the address is none of the device's
 * - `-EINVAL`: an argument is wrong
 * - `-ENOSPC`: the device has as many listeners as it can
 * - `-ENOMEM`: the kernel, whose addresses the device shares, does not leave the port (below 1024 without
 *   `CAP_NET_BIND_SERVICE`), or no file descriptor is left; `warpline_last_error` has the kernel's error
 * - `-ENODEV`: the device has stopped
 */
int warpline_listen_at(struct warpline_device *device,
                       const char *address,
                       uint16_t port,
                       const struct warpline_listen_attr *attr,
                       struct warpline_listener **listener);

/**
 * Takes connections to `port` at `address` in streaming mode, of which at most `backlog` wait at a time; 0
 * for 128.
 *
 * Fails as `warpline_listen_at` does.
 */
int warpline_stream_listen_at(struct warpline_device *device,
                              const char *address,
                              uint16_t port,
                              uint32_t backlog,
                              struct warpline_stream_listener **listener);

/**
 * Where a listener listens: the address as a string, for which there is room for `WARPLINE_MAX_ADDRESS`
 * bytes, and the port. Either may be null.
 */
int warpline_listener_address(const struct warpline_listener *listener, char *address, uint16_t *port);

/**
 * Where a listener for streaming mode listens, as `warpline_listener_address`.
 */
int warpline_stream_listener_address(const struct warpline_stream_listener *listener,
                                     char *address,
                                     uint16_t *port);

/**
 * The addresses and ports of a queue pair's connection, ours and the peer's: addresses as strings, for each
 * of which there is room for `WARPLINE_MAX_ADDRESS` bytes. Any of the four may be null. They stay known
 * after the connection has ended.
 *
 * - `-ENOTCONN`: it has had no connection
 */
int warpline_qp_addresses(const struct warpline_qp *qp,
                          char *local_address,
                          uint16_t *local_port,
                          char *peer_address,
                          uint16_t *peer_port);

/**
 * The addresses and ports of the connection that a peer asks for, as `warpline_qp_addresses`.
 */
int warpline_request_addresses(const struct warpline_request *request,
                               char *local_address,
                               uint16_t *local_port,
                               char *peer_address,
                               uint16_t *peer_port);

/**
 * The addresses and ports of a connection in streaming mode, as `warpline_qp_addresses`.
 */
int warpline_stream_addresses(const struct warpline_stream *stream,
                              char *local_address,
                              uint16_t *local_port,
                              char *peer_address,
                              uint16_t *peer_port);

/**
 * The id's own address and port (`rdma_get_local_addr`, `rdma_get_src_port`), as far as they are known: as
 * bound; with the address that leads to the peer once that is resolved; with the port that was chosen once
 * it listens or is connected. There is room for `WARPLINE_MAX_ADDRESS` bytes of the address; either may be
 * null.
 *
 * - `-ENOTCONN`: the id is new
 */
int warpline_cm_local(const struct warpline_cm_id *id, char *address, uint16_t *port);

/**
 * The oldest asynchronous event that was not taken; waits for it for `timeout_ms` milliseconds, or for ever
 * if that is negative. For one thread at a time. Returns 1 when `event` is written, 0 when there was none in
 * time.
 */
int warpline_get_event(struct warpline_device *device, struct warpline_event *event, int32_t timeout_ms);

/**
 * The file descriptor for poll(2) or an epoll set, readable once there is an event. Then call
 * `warpline_get_event` with no time to wait until it returns 0. It belongs to the device: do not read or
 * close it.
 */
int warpline_event_fd(const struct warpline_device *device);

/**
 * What an event is called. Never null; good for ever.
 */
const char *warpline_event_text(uint32_t event);

/**
 * Writes the counters of a device to `counters`, which has room for `room` of them; null if that is 0.
 * Returns how many there are: with more room than that, `counters` has all. A program looks for a counter
 * by its name: later versions have more of them, in another order.
 *
 * Counters only grow, but for `"held_frames"`, which is the number of frames held now. Those of TCP are the
 * sum over all connections so far.
 *
 * - `-EINVAL`: a pointer is null
 * - `-ENODEV`: the device has stopped
 */
int warpline_device_counters(const struct warpline_device *device,
                             struct warpline_counter *counters,
                             uint32_t room);

/**
 * Writes the state of a queue pair's TCP connection at this moment, and its counters: windows, what is in
 * flight, round-trip times once they are known, what was sent again and why. Otherwise as
 * `warpline_device_counters`.
 *
 * - `-ENOTCONN`: it has no connection yet, or none any more
 */
int warpline_qp_counters(const struct warpline_qp *qp, struct warpline_counter *counters, uint32_t room);

/**
 * Writes the same of a connection in streaming mode. See `warpline_qp_counters`.
 */
int warpline_stream_counters(const struct warpline_stream *stream,
                             struct warpline_counter *counters,
                             uint32_t room);

/**
 * Writes what became of the segments with the TCP RDMA option that a byte stream has received, as
 * `"transfers.octets_placed"` and the causes why others were not placed, and then the same as
 * `warpline_stream_counters`, as long as there is a connection. Does not wait for threads that read, write
 * or wait.
 */
int warpline_byte_stream_counters(const struct warpline_byte_stream *byte_stream,
                                  struct warpline_counter *counters,
                                  uint32_t room);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* WARPLINE_H */
