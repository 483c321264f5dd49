//! Every bound of the data plane in one place, each with its unit and its reason.

/// Slots of STags at a core: an STag names its slot in 16 bits.
pub const REGIONS_PER_CORE: usize = 1 << 16;
/// Registrations and windows of a core: half of the slots, so that names stay sparse, and a free one is found
/// at once.
// Requirements: RDMAP-8.1.1-03
pub const REGISTRATIONS_MAX: usize = REGIONS_PER_CORE / 2;

/// Frames taken from the device in one go: enough to amortise the call, few enough to stay in cache.
pub const RECEIVE_BURST_FRAMES: usize = 32;

/// A poll loop has stalled if it took nothing for so long: ten times what a full turn takes.
pub const STALL_NS: u64 = 100 * MICROSECOND;
/// A core that has taken nothing for so long from a full ring of frames has stalled: frames for it are
/// dropped, so that those for other cores pass. More than the scheduler keeps a thread from a CPU that it
/// shares.
pub const CORE_STALL_NS: u64 = 100 * MILLISECOND;
/// Bursts of frames taken before timers that are due, at most: after a stall of the poll loop, the
/// acknowledgements that timers wait for have arrived behind others. As many as a ring of the device holds.
pub const BURSTS_BEFORE_TIMERS: usize = 64;

/// Connections of a core that are found without the keyed hash, of each family of IP. A power of two; an
/// entry takes 20 bytes over IPv4 and 44 over IPv6.
pub const RECENT_FLOWS: usize = 256;

use core::num::NonZeroU8;

use crate::time::{MICROSECOND, MILLISECOND, SECOND};

/// Retransmission timeout before the first sample (RFC 6298 §2.1).
pub const INITIAL_RTO_NS: u64 = SECOND;
/// The same when the timer of the SYN expired (RFC 6298 §5.7): the path may be slower than we think.
pub const INITIAL_RTO_AFTER_LOST_SYN_NS: u64 = 3 * SECOND;
/// Least retransmission timeout. RFC 6298 §2.4 asks for a second; every stack in use takes 200 ms, above the
/// delayed acknowledgement of common peers.
pub const MIN_RTO_NS: u64 = 200 * MILLISECOND;
/// Greatest retransmission timeout (RFC 6298 §2.5 allows 60 s or more).
pub const MAX_RTO_NS: u64 = 60 * SECOND;
/// The clock granularity G of RFC 6298.
pub const CLOCK_GRANULARITY_NS: u64 = 100 * MICROSECOND;

/// Frames one connection may keep of bytes that are not consumed yet. The receive window bounds bytes; this
/// bounds frames, for peers that send many small segments. A whole window of 2 MiB fits in segments that are
/// too long to be gathered.
pub const HELD_FRAMES_PER_CONNECTION: usize = (2 << 20) / GATHER_MAX_BYTES;
/// Frames it may keep of bytes beyond a gap: they must not keep out the bytes that fill it, or the peer would
/// retransmit them for ever. A whole window of full Ethernet frames after a single loss fits.
// Requirements: MPA-A.5-03, C00-13-01
pub const HELD_FRAMES_BEYOND_GAP: usize = 1920;
/// Frames with which a connection can go on without another: an FPDU of the greatest length fits in segments
/// that are too long to be gathered.
pub const HELD_FRAMES_OF_FPDU: usize = (1 << 16) / GATHER_MAX_BYTES;
/// Frames one core may keep for all its connections; never more than half of what its device has, so that
/// others can still arrive.
pub const HELD_FRAMES_PER_CORE: usize = 8192;
/// The most that a core can be set up for.
pub const HELD_FRAMES_MAX: usize = 1 << 24;
/// Least receive window, in bytes: the FPDU of the least MULPDU with PAD, length, CRC and a Marker (RFC 5044
/// A.5).
pub const REASSEMBLY_FLOOR_BYTES: u32 = 128 + 2 + 2 + 4 + 4;
/// Of the frames of a core, those through which bytes in order only pass: an FPDU that comes whole needs one
/// for a moment, and so does a segment for which a byte stream has room. An eighth of all where that is less.
pub const HELD_FRAMES_RESERVED: usize = 2 * RECEIVE_BURST_FRAMES;
/// Of each four frames of a core, those that windows of paused readers may promise. The others are left to
/// queue pairs and to connections before Full Operation.
pub const PROMISED_FRAMES_OF_FOUR: usize = 3;
/// Bytes that a frame holds of a promised window, on average: segments that leave frames emptier are
/// gathered. Two segments that do not fit in a frame of 2 KiB together have as many each, on average.
pub const PROMISED_BYTES_PER_FRAME: usize = 896;
/// The same for the largest frames: what lies beyond gaps is gathered with nothing before them, so that more
/// of their room may stay empty.
pub const PROMISED_BYTES_PER_FRAME_MAX: usize = 4096;
/// Headers, and what drivers keep free, of a frame.
pub const PROMISED_FRAME_OVERHEAD_BYTES: usize = 256;
/// Once windows are promised, a connection before Full Operation is offered at most one part in so many of
/// what is left to promise, and never less than the 64 KiB that a SYN can offer: it is not known yet whether
/// a reader that pauses follows, and a window that was offered does not shrink.
pub const PROMISED_PART_IN_STARTUP: usize = 16;
/// Full segments that a window is promised however little is left, so that it always opens again.
pub const PROMISED_SEGMENTS_MIN: u32 = 2;
/// A connection may hold so many times as many frames as are left for all. A single connection may have four
/// fifths, and later connections find some: each share falls as more connections want one.
pub const HELD_SHARE_IN_ORDER: usize = 4;
/// The same for octets beyond a gap, which must leave room for the octets that fill it.
pub const HELD_SHARE_BEYOND_GAP: usize = 2;
/// Connections before Full Operation together may hold one in so many of a core's frames: their peers are
/// strangers, and a startup frame takes one for a moment. A single one still has a window of full frames.
pub const HELD_PART_IN_STARTUP: usize = 4;
/// While frames are short, how often connections that hold some are looked at, at most.
pub const HELD_LOOK_NS: u64 = 250 * MILLISECOND;
/// How long a connection holds its fair share of the frames or more, at each look, before it may be failed
/// for them: long enough for a peer that lives to send again what is missing several times.
pub const HELD_PATIENCE_NS: u64 = 4 * SECOND;
/// The least looks in that time: a peer without room looks for it less and less often.
pub const HELD_LOOKS: u8 = 4;
/// Connections failed at one look: others have their turn.
pub const HELD_FAILURES_PER_LOOK: usize = 64;
/// Records of bytes placed beyond gaps that one connection may have: as many as Markers can open in a window
/// of Ethernet's full frames of which every third is lost.
pub const PLACED_RUNS_PER_CONNECTION: usize = 512;
/// Such records of all connections of a core: a record has no frame and costs some 40 bytes.
pub const PLACED_RUNS_PER_CORE: usize = 8192;
/// Segments of Sends that one connection may have placed before their turn, each remembered for its Delivery:
/// a window of small ones.
pub const PLACED_SENDS_PER_CONNECTION: usize = 2048;
/// The same over all connections of a core: some 40 bytes each.
pub const PLACED_SENDS_PER_CORE: usize = 8192;
/// Receives that one segment beyond a gap moves from a shared receive queue to its queue pair, at most: where
/// one TCP segment was lost, the messages of that and of the one after. Others have their turn.
pub const RECEIVES_MOVED_PER_SEGMENT: usize = 2 * FPDUS_PER_SEGMENT;
/// A connection may have so many times as many records, and placed segments of Sends, as are left for all.
pub const PLACED_SHARE: usize = 2;
/// Chains of FPDUs looked for in what a segment beyond a gap belongs to. An FPDU that does not check out ends
/// one; octets after the second such FPDU may wait.
pub const PLACEMENT_ATTEMPTS: usize = 3;
/// Runs of new octets taken of one segment that overlaps what waits beyond gaps: each but the last is copied
/// to a frame of its own. As many gaps as such a segment has when its sender cut it in small ones before.
pub const NEW_RUNS_PER_SEGMENT: usize = 16;
/// Frames a connection keeps before small segments are appended by copy to the frame before them.
pub const HELD_FRAMES_BEFORE_GATHERING: usize = 16;
/// Payload of a segment that may be appended by copy to the frame before it, in bytes. Larger ones fill the
/// window before they fill the bound on frames, and are gathered only while frames are short.
pub const GATHER_MAX_BYTES: usize = 512;

/// EMSS when the peer names none (RFC 9293 §3.7.1).
pub const DEFAULT_MSS_BYTES: u16 = 536;
/// The same over IPv6.
pub const DEFAULT_MSS_IPV6_BYTES: u16 = 1220;
/// Least MSS we believe a peer: below it headers would outweigh data manyfold.
pub const MIN_MSS_BYTES: u16 = 64;
/// The initial window where ten segments are more (RFC 6928 §2).
pub const INITIAL_WINDOW_BYTES: u32 = 14_600;
/// Largest congestion window: the largest window TCP can offer (RFC 7323 §2.3).
pub const CONGESTION_WINDOW_MAX_BYTES: u32 = 1 << 30;
/// Times a SYN is sent before the connection fails: about a minute with backoff from one second.
pub const SYN_ATTEMPTS: u8 = 6;
/// Longest time a connection from a peer may take to open: somewhat longer than it takes to send all the
/// SYNs.
pub const ACCEPT_TIMEOUT_NS: u64 = 75 * SECOND;
/// Timeouts in a row before an established connection fails.
pub const RETRANSMIT_ATTEMPTS: u8 = 12;
/// Times a FIN is sent that is all there is to acknowledge, after the peer's, while the peer is silent: it
/// may be gone.
pub const LAST_FIN_ATTEMPTS: u8 = 5;
/// Probes of a window too small for an FPDU before the FPDU is cut to fit it.
pub const SMALL_WINDOW_PROBES: u8 = 3;
/// Longest time an acknowledgement is held back (RFC 9293 §3.8.6.3 allows 500 ms).
pub const DELAYED_ACK_NS: u64 = 40 * MILLISECOND;
/// Segments with data that may go unacknowledged (RFC 9293 §3.8.6.3).
pub const DELAYED_ACK_SEGMENTS: u8 = 2;
/// Segments acknowledged at once after a gap was filled: the peer is about to grow from half its window or
/// less, which these are enough to double a few times.
pub const PROMPT_ACKS: u8 = 16;
/// Duplicate acknowledgements owed at most: more tell the peer nothing new.
pub const ACKS_OWED_MAX: u8 = 32;
/// TIME-WAIT: twice the maximum segment lifetime, taken as 30 s.
pub const LINGER_NS: u64 = 60 * SECOND;

/// Commands from control that wait for a core.
pub const COMMANDS: usize = 256;
/// Events from a core that wait for control.
pub const EVENTS: usize = 1024;
/// Bytes of streaming data in one event. A startup frame has at most 532.
pub const STREAM_EVENT_BYTES: usize = 1460;
/// Streaming bytes of one connection that the peer has not acknowledged: as many as common stacks queue for
/// a socket at first. Before Full Operation there is little to say, and others need the memory too.
pub const STREAM_SEND_BYTES: usize = 1 << 16;
/// Pieces in which those may be handed down.
pub const STREAM_SEND_PIECES: usize = 64;
/// Streaming bytes of one connection that control has a copy of and has not consumed. The others wait in
/// TCP's window.
pub const STREAM_UNCONSUMED_BYTES: usize = 1 << 16;

/// Octets of the receive ring that a byte stream has at first: the largest window that a SYN can offer, so
/// that no frames are promised for what was offered before there was a stream.
pub const BYTE_STREAM_RECEIVE_BYTES_AT_FIRST: usize = 1 << 16;
/// Octets of the send ring that a byte stream has at first: more than an initial window.
pub const BYTE_STREAM_SEND_BYTES_AT_FIRST: usize = 1 << 14;
/// Bytes of the buffers of all byte streams of a core: 65,536 streams with what they have at first would take
/// 5 GiB, and 1,000 that have grown to 1 MiB each way 2 GiB.
pub const BYTE_STREAM_BYTES_PER_CORE: usize = 4 << 30;
/// The most that a core can be set up for.
pub const BYTE_STREAM_BYTES_MAX: usize = 1 << 40;

/// Pieces of a byte stream that its application may have written and the peer not acknowledged, at most.
pub const BYTE_STREAM_PIECES: usize = 1024;

/// Placements, and ends of transfers, that the application of a byte stream has not read, at most.
pub const BYTE_STREAM_RECORDS: usize = 1024;

/// Requests of the reader of a byte stream that its core has not seen, at most.
pub const BYTE_STREAM_COMMANDS: usize = 512;

/// Transfers of the TCP RDMA option that may be under way on a connection, at most.
pub const TRANSFERS_PER_STREAM: usize = 256;

/// Separate pieces of a buffer that a transfer may have filled, at most, and as many beyond gaps: a window of
/// full Ethernet frames of which every tenth is lost.
pub const TRANSFER_INTERVALS: usize = 64;

/// Placements on a connection whose turn in the stream has not come, at most.
pub const PLACEMENTS_PER_STREAM: usize = 1024;

/// Beginnings of messages on a byte stream whose turn in the stream has not come, at most. Those beyond are
/// read as octets inside a message.
pub const MESSAGE_STARTS_PER_STREAM: usize = 1024;

/// Messages handed out before their turn, and not yet reported to the application of a byte stream, at most.
pub const EARLY_MESSAGES_PER_STREAM: usize = 256;

/// Messages that one segment beyond a gap is found to have made whole, at most. Others are read in their
/// turn.
pub const EARLY_MESSAGES_PER_SEGMENT: usize = 4;

/// Buffers for unsolicited transfers of a connection, at most.
pub const UNSOLICITED_BUFFERS_PER_STREAM: usize = 256;
/// Work requests that an application gathers on its stack to post them together: some 6 KiB.
pub const POST_BATCH: usize = 32;
/// Asynchronous events of a device that the application has not taken. A thousand queue pairs may fail at
/// once and leave room for those of queues and of the device, which come rarely; those beyond are counted.
pub const ASYNC_EVENTS: usize = 1280;
/// Those of them that are about queue pairs. What those beyond said of an end, the queue pairs still do.
pub const ASYNC_EVENTS_OF_QUEUE_PAIRS: usize = 1024;
/// Cores of a device, at most.
pub const CORES_MAX: usize = 64;
/// Queue pairs of a core, unless set up otherwise: as many as connections.
pub const QPS_PER_CORE: usize = CONNECTIONS_PER_CORE;
/// Connections of a core, half-open ones included, unless set up otherwise. Tables fill as they are used:
/// this many take 100 MiB of address space, and no memory before there are connections.
pub const CONNECTIONS_PER_CORE: usize = 1 << 16;
/// The most connections that a core can be set up for: the name of one has 24 bits for its slot.
pub const CONNECTIONS_MAX: usize = 1 << 24;
/// How many times as many places of a backlog as are left free one address may hold: half of it, if it is
/// alone.
pub const BACKLOG_SHARE_OF_ADDRESS: u32 = 1;
/// The same for all addresses of an IPv6 network of 64 bits: four fifths. Networks of one site are no
/// strangers to each other.
pub const BACKLOG_SHARE_OF_NETWORK: u32 = 4;
/// Counters of what peers hold of backlogs: more than half-open connections, so that two busy peers hardly
/// ever meet in one.
pub const BACKLOG_COUNTERS: usize = 4096;
/// How long a connection request waits for the application's decision unless a listener is set up otherwise:
/// longer than Initiators wait for a Reply (ten seconds, here and in Linux siw), so that no peer is there any
/// more that could be accepted.
pub const DECISION_NS: u64 = 60 * SECOND;
/// Listeners of a core, unless set up otherwise: pairs of an address, or all of them, and a port.
pub const LISTENERS_PER_CORE: usize = 1024;
/// The most listeners that a core can be set up for: fewer than there are ports for those that name none.
pub const LISTENERS_MAX: usize = 8192;
/// Descriptors of data sent or queued, over all connections of a core.
pub const SEND_DESCRIPTORS_PER_CORE: usize = 32_768;
/// A connection may have so many times as many of them as are left for all: a peer that acknowledges nothing
/// takes four fifths at most, and later connections find some.
pub const SEND_DESCRIPTOR_SHARE: usize = 4;
/// While there are none, how often a connection that has something to send looks for one.
pub const SEND_DESCRIPTOR_RETRY_NS: u64 = MILLISECOND;
/// Work requests in one queue of a queue pair: a core has no descriptors for more sends at a time, and
/// adapters offer no more.
pub const WORK_REQUESTS_PER_QUEUE: usize = SEND_DESCRIPTORS_PER_CORE;
/// Receives in a shared receive queue: four for each queue pair that a core has unless set up otherwise.
pub const RECEIVES_PER_SHARED_QUEUE: usize = 1 << 18;
/// Completions in a completion queue: as if 4,096 queue pairs reported to one, each with 256 work requests,
/// as many as they have unless set up otherwise.
pub const COMPLETIONS_PER_QUEUE: usize = 1 << 20;
/// RDMA Read Requests outstanding in one direction of a connection, at most: Linux siw takes no more.
pub const READ_DEPTH_MAX: u16 = 128;
/// The same by default: as many as adapters offer. More takes longer round trips than a data centre has.
pub const READ_DEPTH_USUAL: u16 = 32;
/// Ranges of memory in one work request: as many as most applications use; more would make every request
/// longer.
pub const SCATTER_GATHER_ELEMENTS: usize = 4;
/// Bytes that go inline in a work request: no longer than as many ranges.
pub const INLINE_BYTES: usize = 64;
/// FPDUs in one segment: beyond that many the headers before them hardly weigh, and all are built again if it
/// is lost.
pub const FPDUS_PER_SEGMENT: usize = 64;
/// A Terminate's payload: control word, segment length, DDP header and RDMAP Read Request header
/// (RFC 5040 §4.8).
pub const TERMINATE_BYTES: usize = 4 + 2 + 18 + 28;
/// Addresses of a core, both families together: a host on a few networks, dual stack.
pub const ADDRESSES_PER_CORE: usize = 8;
/// Routes of a core: each is looked at for each turn of a connection.
pub const ROUTES_PER_CORE: usize = 16;
/// Neighbours a core remembers.
pub const NEIGHBOURS_PER_CORE: usize = 256;
/// Of these, those that have not answered may take the places of others up to here.
pub const UNANSWERED_NEIGHBOURS_PER_CORE: usize = NEIGHBOURS_PER_CORE / 8;
/// Neighbours whose hardware address is configured.
pub const STATIC_NEIGHBOURS_PER_CORE: usize = 16;
/// How long a neighbour counts as reachable once it was shown to be, between half of this and one and a half
/// (RFC 4861 §10: REACHABLE_TIME).
pub const NEIGHBOUR_REACHABLE_NS: u64 = 30 * SECOND;
/// How long a neighbour that may be gone is used before it is asked (RFC 4861 §10: DELAY_FIRST_PROBE_TIME).
pub const NEIGHBOUR_DELAY_NS: u64 = 5 * SECOND;
/// Time between two questions to the same neighbour (RFC 4861 §10: RETRANS_TIMER; RFC 1122 §2.3.2.1: at most
/// one a second).
pub const NEIGHBOUR_RETRANSMIT_NS: u64 = SECOND;
/// Solicitations without an answer, first to the neighbour, then to all, after which it is unreachable (RFC
/// 4861 §10: MAX_UNICAST_SOLICIT, MAX_MULTICAST_SOLICIT).
pub const NEIGHBOUR_SOLICITATIONS: u8 = 3;
/// Solicitations sent in one poll: other frames have their turn too.
pub const SOLICITATIONS_PER_POLL: usize = 8;
/// Longest time before the first probe for a duplicate of an address (RFC 4862 §5.4.2:
/// MAX_RTR_SOLICITATION_DELAY).
pub const PROBE_DELAY_NS: u64 = SECOND;
/// Time between two defences of an address (RFC 5227 §1.1: DEFEND_INTERVAL).
pub const DEFEND_INTERVAL_NS: u64 = 10 * SECOND;
/// Segments a connection sends in one poll before others have their turn, or frames where segments share
/// super-frames.
pub const TRANSMIT_BURST_SEGMENTS: usize = 32;
/// What a connection whose segments share super-frames sends in one poll, if that is more: so much as fills
/// some of them, or a device that takes 64 KiB as easily as 1500 bytes would get half-full ones.
pub const TRANSMIT_BURST_SUPER_FRAMES: usize = 2;
/// The segments of these at most: some 20 µs of work.
pub const TRANSMIT_BURST_SEGMENTS_JOINED: usize = 96;
/// What a connection may send in a round while others have something to send, in bytes for each unit of its
/// weight.
pub const BYTES_PER_WEIGHT: usize = 8192;
/// The weight of a connection that names none: 128 KiB in a round, some large messages of storage. A longer
/// visit to a connection that has left the caches costs less per byte; a shorter one keeps others waiting for
/// less, here for 20 µs at 50 Gb/s. With half of it a hundred queue pairs at MTU 9000 lost a twentieth.
pub const WEIGHT_USUAL: NonZeroU8 = NonZeroU8::new(16).unwrap();
/// What it costs a connection to be served, in bytes beside those that it sends: a core that looks at a
/// connection sends nothing meanwhile. So one may send some 400 times in a round a small message.
pub const SERVE_BYTES: usize = 256;
/// What a segment takes of a wire beside its payload, in bytes: preamble, Ethernet header, FCS and gap (38),
/// the headers of IPv4 and TCP (40), and timestamps (12).
pub const FRAME_OVERHEAD_BYTES: usize = 90;
/// Payload of an FPDU that goes out by reference where the device takes references, in bytes: below it a
/// copy costs less than two more buffers.
pub const BY_REFERENCE_MIN_BYTES: u32 = 1024;
/// A message of fewer bytes from one range of memory is small: its payload is copied on any device, and the
/// CRCs of the small messages of a segment are filled in together. In one segment of 1448 bytes up to 17
/// Writes of 64 bytes lie, and what each takes counts more than what their segment takes.
pub const SMALL_MESSAGE_BYTES: u32 = 512;
const _: () = assert!(SMALL_MESSAGE_BYTES <= BY_REFERENCE_MIN_BYTES);
/// Bytes a core keeps of FPDUs that go out in parts, until they are acknowledged, besides one run of FPDUs
/// of each connection: a window of a fast path that has become narrower, and some thousand FPDUs of
/// connections whose segments are below MPA's least. FPDUs that find no room are sent when some are
/// acknowledged.
pub const CUT_BYTES_PER_CORE: usize = 4 << 20;
/// Empty frames that a core takes from its device together: one call for each frame would cost as much as
/// writing its headers.
pub const EMPTY_FRAMES: usize = 16;
/// Frames gathered before they are handed to the device: the peer works on the first while the next are
/// built.
pub const TRANSMIT_CHUNK_FRAMES: usize = 8;
/// Frames that may wait for the device before connections stop sending.
pub const TRANSMIT_QUEUE_FRAMES: usize = 128;
/// Frames to the device's own addresses that may be on their way from a core to another, at most a quarter of
/// those its device has for all others together: two bursts, and with 64 cores 2 MiB of rings.
pub const LOOPED_FRAMES_BETWEEN_CORES: usize = 64;
/// Notes that may be on their way between the host core and a replica: a neighbour each. Others wait.
pub const NOTES_BETWEEN_CORES: usize = 64;
/// Notes of other cores served in one poll: some microseconds of work.
pub const NOTES_PER_POLL: usize = 128;
/// When notes are sent again that have found no room, because the other core did not poll meanwhile.
pub const NOTE_RETRY_NS: u64 = MILLISECOND;
/// Frames of the wire that may be on their way from a core to another, at most: as many as the queue of an
/// adapter usually has.
pub const FRAMES_BETWEEN_CORES: usize = 512;
/// Segments of a queue compared with the core that owns their flow, before the adapter is believed to bring
/// all of them there.
pub const FRAMES_COMPARED_WITH_ADAPTER: usize = 64;
/// Frames that may be on their way from a core to itself, at most a quarter of those its device has: some
/// bursts, so that neither end of a connection to ourselves waits for the other. A connection keeps its turn
/// while there is no room.
pub const LOOPBACK_FRAMES: usize = 256;
/// Segments handed to the device in one poll before what has arrived is looked at again: no more than a ring
/// of descriptors has.
pub const SEGMENTS_SENT_PER_POLL: u64 = 256;
/// Segments of send queues looked at in one poll because of selective acknowledgements: some 100 µs of work,
/// and two searches of all there can be.
pub const SEGMENTS_SEARCHED_PER_POLL: u32 = 2 * SEND_DESCRIPTORS_PER_CORE as u32;
/// How long a search for losses waits that found the poll's work done.
pub const SEARCH_RETRY_NS: u64 = MILLISECOND;
/// Commands taken in one poll.
pub const COMMANDS_PER_POLL: usize = 16;
/// Connections whose timers are looked after in one poll: a thousand that time out together must not keep
/// frames waiting.
pub const TIMERS_PER_POLL: usize = 128;
/// Timers looked at in one poll, due or not, of which a tick of the timer wheel may have any number: some
/// 10 µs of work.
pub const TIMERS_VISITED_PER_POLL: u32 = 1024;
/// Connections served in one poll, whether or not they have anything to send: as many as it serves doorbells
/// of, and some 50 µs of work where each sends a segment.
pub const CONNECTIONS_SERVED_PER_POLL: usize = 64;
/// Connections that the caches of a processor hold with what belongs to them, some 5 KiB each. With more, a
/// core looks ahead: it fetches what the next ones need while it handles one.
pub const CONNECTIONS_IN_CACHE: usize = 256;
/// How long a message waits for a receive once its own end has begun to close, where messages may wait.
pub const CLOSING_RECEIVE_WAIT_NS: u64 = 500 * MILLISECOND;
/// How long a message waits for a receive that a thread is posting to a shared receive queue, where messages
/// may not wait: longer than a system takes to give a thread a processor again.
pub const SHARED_POST_NS: u64 = SECOND;
/// How long a port counts as just left by a listener, where addresses are shared: as a server takes that
/// serves one peer, before it listens for the next.
pub const LEFT_PORT_NS: u64 = 10 * SECOND;
/// How long a SYN to such a port waits for the next listener. Less than the second after which peers send a
/// SYN again.
pub const HELD_SYN_NS: u64 = 500 * MILLISECOND;
/// Ports that count as just left.
pub const LEFT_PORTS: usize = 8;
/// SYNs that wait there.
pub const HELD_SYNS: usize = 16;
/// Connections that a walk over all of them visits in one poll, some 30 µs of work: a report of the counters,
/// a look for those that hold frames, and one for those that wait for a path. The next poll goes on.
pub const CONNECTIONS_VISITED_PER_POLL: usize = 256;
/// Queue pairs whose posted work is accepted together because memory is deregistered. The poll that begins
/// with it does so twice at most.
pub const QUEUE_PAIRS_VISITED_TOGETHER: u32 = 128;
/// Queue pairs and requests that are looked at in a poll because memory is revoked, and those of one queue
/// pair more. The next poll goes on.
pub const REQUESTS_VISITED_PER_POLL: usize = 1024;
/// Ports tried together for a connection that control opens: each takes a look-up or three. The poll that
/// begins with it does so twice at most. Of several cores each owns one port in as many, and finds out in a
/// few nanoseconds which; a core tries so many times as many.
pub const PORTS_TRIED_TOGETHER: u32 = 128;
/// Requests that put nothing on the wire (binds, registrations, invalidations) carried out in one poll: some
/// 50 µs of work. Beyond them each connection has one in its turn, so that none waits for another.
pub const LOCAL_OPERATIONS_PER_POLL: usize = 256;
/// Doorbells answered in one poll.
pub const DOORBELLS_PER_POLL: usize = 64;
/// Connections on which a message that has waited for a shared receive queue goes on in one poll: each may
/// have a whole window to take.
pub const RECEIVES_RESUMED_PER_POLL: usize = 64;
/// Connections that wait for a shared receive queue that one poll asks whether it has a receive for them.
pub const RECEIVE_WAITERS_VISITED_PER_POLL: usize = 256;
/// Times an FPDU with a wrong CRC at the same place is dropped for TCP to bring it again (RFC 5044 §8),
/// before the error is reported, unless a queue pair is set up otherwise. The Internet checksum lets one
/// corruption in thousands through; if the same bytes are wrong again, the sender caused it.
pub const CRC_RETRIES: u8 = 3;
/// How long an Initiator waits for an FPDU of the peer after its first one, before it nudges a peer that may
/// have overlooked that, in nanoseconds: far longer than such a peer needs to be ready, and short for the
/// waiting end.
pub const FIRST_NUDGE_NS: u64 = 200_000_000;
/// Nudges on a connection, each after twice the time of the one before: the last is due after 1.4 seconds. A
/// peer that does not answer then has nothing to say.
pub const NUDGES: u8 = 3;
/// First and last port of active opens (RFC 6335 §6).
pub const EPHEMERAL_PORTS: (u16, u16) = (49_152, 65_535);
/// How long connections to a peer take the next port in TIME-WAIT, once a search has found none that is
/// unused. Such a search looks at all ports, some milliseconds' work, and connections to a peer that are
/// opened and closed by the thousand would each need one.
pub const PORTS_EXHAUSTED_NS: u64 = SECOND;
/// Counters that peers share by chance when local ports are picked (RFC 6056 §3.3.4).
pub const PORT_COUNTERS: usize = 64;
/// How long after a disconnect a connection may go without an octet from the peer or an acknowledgement of
/// ours, before it is reset: a peer that has disappeared, or never closes its half, holds its queue pair no
/// longer than this. Adapters wait as long.
pub const DISCONNECT_TIMEOUT_NS: u64 = 60 * SECOND;
/// How long a byte stream whose application has left may take to send what was written before, and to close,
/// however much of it still moves: a peer that acknowledges an octet now and then holds its place no longer.
/// As long as common stacks wait for a peer's FIN.
pub const ORPHAN_NS: u64 = 60 * SECOND;
/// Of the connections that a core has room for, those that applications have left may be one in so many: the
/// others are for applications that are there.
pub const ORPHAN_PART: usize = 2;
/// The same for those to one IPv6 network of 64 bits.
pub const ORPHAN_PART_OF_NETWORK: usize = 4;
/// The same for those to one address.
pub const ORPHAN_PART_OF_ADDRESS: usize = 16;
/// How long a failed stream may take to send its Terminate and close before it is reset, and a connection
/// whose queue pair is destroyed to close.
pub const TERMINATE_LINGER_NS: u64 = 5 * SECOND;
/// Octets on their way that are copied when a queue pair is destroyed whose Terminate is not acknowledged: as
/// many as are in flight to a peer at 10 Gbit/s and 800 microseconds. With more the connection is reset.
pub const LINGERING_BYTES: usize = 1 << 20;
/// The same over all connections of a core, so that many failures at once cost little memory.
pub const LINGERING_BYTES_PER_CORE: usize = 16 << 20;
/// TTL, or hop limit, of packets we send (RFC 1700's successor registry recommends 64).
pub const TIME_TO_LIVE: u8 = 64;

/// Datagrams of a core of which some fragments are missing. Each has a buffer of the device's MTU; fragments
/// of TCP are rare, and the oldest makes room.
pub const DATAGRAMS_IN_REASSEMBLY: usize = 32;
/// Fragments of one datagram: a packet of 9000 bytes over a path of 552 makes 17.
pub const FRAGMENTS_PER_DATAGRAM: usize = 32;
/// How long fragments wait for those that are missing. RFC 1122 §3.3.2 thinks of a minute or two; at today's
/// rates a sender's 16-bit names come round sooner, and pieces of two datagrams would be joined (RFC 4963).
pub const REASSEMBLY_NS: u64 = 30 * SECOND;
/// Least length of the buffer a datagram is put together in, in bytes (RFC 8200 §5; RFC 1122 §3.3.2 asks for
/// 576).
pub const REASSEMBLY_MIN_BYTES: usize = 1500;

/// The largest backlog of a listener; a larger one counts as this. As much as common stacks allow. Of several
/// cores each has twice its part, because peers do not come to them in turn.
pub const BACKLOG_MAX: u32 = 4096;
/// Half-open connections of a core, whatever the backlogs of its ports; never more than half of its
/// connections. Beyond it SYNs are answered by cookies, which cost no memory; only what a cookie cannot hold
/// (the exact MSS and window shift) is lost.
pub const HALF_OPEN_PER_CORE: usize = 512;
/// SYNs that get a connection in one poll. The others get cookies: a burst of SYNs takes no more from the
/// connections that are open than half a burst of frames.
pub const SYNS_PER_POLL: usize = 16;
/// A SYN cookie is good for one to two of these: longer than a handshake takes, with a SYN sent twice
/// (RFC 4987 §3.6).
pub const SYN_COOKIE_SPAN_NS: u64 = 16 * SECOND;
/// RSTs that a device sends in a second to segments that belong to no connection, at most, of which each core
/// has its part: enough for every peer that outlived a restart, too few to flood a host whose address was
/// forged.
pub const RESETS_PER_SECOND: u32 = 1000;
/// Pings that a device answers in a second, at most (RFC 1812 §4.3.2.8 wants such a limit).
pub const ECHO_REPLIES_PER_SECOND: u32 = 1000;

/// Connections in TIME-WAIT for each that a core has room for, unless set up otherwise: with 65,536, those of
/// a minute at 17,000 closes a second.
pub const TIME_WAITS_PER_CONNECTION: usize = 16;
/// The most connections in TIME-WAIT that a core can be set up for.
pub const TIME_WAITS_MAX: usize = 1 << 28;
/// Connections whose TIME-WAIT is over that are removed together: after an idle minute it may be over for
/// all, and frames must not wait for that.
pub const TIME_WAITS_ENDED_TOGETHER: usize = 64;
/// How long a connection stays in TIME-WAIT before an active open may use its ports again, when no others are
/// left: longer than a segment of it takes to arrive, and more than a tick of the clock that distinguishes
/// old from new (RFC 6191).
pub const TIME_WAIT_REST_NS: u64 = SECOND;
/// Acknowledgements of one connection that segments out of place ask for, in [`CHALLENGE_SPAN_NS`]
/// (RFC 5961 §7 gives these numbers as an example), and those that probes ask for. Two ends that disagree
/// answer each other no faster than this.
pub const CHALLENGES_PER_SPAN: u8 = 10;
/// The span of time [`CHALLENGES_PER_SPAN`] is for.
pub const CHALLENGE_SPAN_NS: u64 = 5 * SECOND;
/// Time between two such acknowledgements of a connection in TIME-WAIT: as many in the mean.
pub const CHALLENGE_INTERVAL_NS: u64 = 500 * MILLISECOND;
/// Such acknowledgements of a device in a second, at most, of which each core has its part (RFC 5961 §7).
pub const CHALLENGES_PER_SECOND: u32 = 1000;

/// How long streaming bytes that control had no room for wait until it is asked again: nothing that arrives
/// may do it.
pub const HAND_UP_RETRY_NS: u64 = MILLISECOND;
/// Largest receive window: the largest that a scale of 14 can express (RFC 7323 §2.3).
pub const WINDOW_BYTES_MAX: u32 = 1 << 30;
/// Time over which the least round-trip time is taken (RFC 8985 §6.2 step 1): routes change.
pub const LEAST_RTT_SPAN_NS: u64 = 300 * SECOND;
/// Recoveries for which a widened window of reordering stays wide (RFC 8985 §6.2 step 4).
pub const REORDER_WINDOW_PERSISTS: u8 = 16;
/// Least time before the tail is probed for: poll loops and timer wheels of both ends.
pub const MIN_PROBE_NS: u64 = 4 * MILLISECOND;
/// How long a peer may hold an acknowledgement back (RFC 8985 §7.2, WCDelAckT).
pub const PEER_DELAYED_ACK_NS: u64 = 200 * MILLISECOND;
/// Segments that may leave in one burst whatever the pace: an initial window (RFC 6928).
pub const PACED_BURST_SEGMENTS: u32 = 10;
/// Time whose worth of segments may leave in one burst: two ticks of the timer wheel.
pub const PACED_BURST_NS: u64 = 2 * MILLISECOND;
/// Timeouts in a row after which large segments are suspected not to pass (RFC 4821 §7.7).
pub const BLACK_HOLE_TIMEOUTS: u8 = 3;
/// Segment sizes, options included, that are tried one after the other on a path that swallows larger ones:
/// Ethernet, tunnels over it, IPv6's least MTU, and what every IPv4 host takes.
pub const PATH_MSS_STEPS: [u16; 4] = [1460, 1400, 1220, 536];
/// How long that suspicion lasts the first time; twice as long each time it is confirmed, up to the next.
pub const BLACK_HOLE_RETRY_NS: u64 = 8 * SECOND;
/// How long a narrower path is believed in (RFC 1191 §6.3: ten minutes).
pub const PATH_MTU_RETRY_NS: u64 = 600 * SECOND;

/// Destinations of a core whose paths are narrower than our link.
pub const PATH_MTUS_PER_CORE: usize = 256;
/// Least MTU an IPv4 router is believed, in bytes: RFC 791 would allow 68, at which headers outweigh data;
/// no link in use has less than this, and a smaller claim is an attack (RFC 5927 §7.1).
pub const PATH_MTU_MIN_IPV4_BYTES: u16 = 552;
/// Least MTU an IPv6 router is believed, in bytes (RFC 8201 §4).
pub const PATH_MTU_MIN_IPV6_BYTES: u16 = 1280;
