//! A TCP that keeps the boundaries of FPDUs (RFC 9293, with selective acknowledgement, RACK-TLP, timestamps,
//! ECN and a choice of congestion controls).
//!
//! A [`Connection`] copies no octets. It keeps descriptors of data to send ([`send_queue`]), and received
//! data in the frames it came in ([`receive_queue`]). It reads no clock and sends nothing by itself: segments
//! come in through [`Connection::on_segment`], time through [`Connection::on_timer`], and
//! [`Connection::poll_transmit`] returns the segments to send.
//!
//! Its one purpose is to carry FPDUs complete, fast and through loss, to any host that speaks TCP. All of it
//! can be played by scripts and simulated. README lists the RFCs.
//!
//! # What follows from MPA
//!
//! The send queue holds descriptors of segments, not octets. A long message is one descriptor:
//! a group, of which the first segment, their number and their state are kept, and each is computed from the
//! first (`tcp/send_queue/group.rs`). A group is parted where the fate of its segments differs: sent and
//! not sent, held by the peer and lost, sent again or cut. Each segment counts in the core's pool of
//! descriptors, so there is always room to split one. A segment is a run of complete FPDUs (`qp/run.rs`): one
//! of full size, or small ones that wait at the same time, and after them the beginning of a larger message
//! if a quarter of the segment is left, and 128 octets of ULPDU fit (RFC 5044 §4.5). `QpConfig::packing`
//! turns sharing off. Nothing waits to be packed unless Nagle's algorithm is on. What is sent again is the
//! same run, built from the same work requests, so boundaries hold through every kind of retransmission (App.
//! A.1). Therefore its requests complete together, when all of the segment is acknowledged. A segment that a
//! middlebox has acknowledged in part is not cut, and all of it is sent again. An FPDU is cut in three cases
//! only, each counted: the EMSS is below MPA's floor of 128 octets, the path has become narrower since the
//! FPDU was made, or the peer's window stays too small for it over several probes. A closed window is probed
//! one octet below it, so no FPDU is cut for a probe. Nagle's algorithm is off unless a connection asks for
//! it.
//!
//! The receive queue holds frames. It may drop an FPDU whose CRC is wrong as if it had been lost, as long as
//! none of it has been acknowledged; the octets after it are kept, so nothing that was selectively
//! acknowledged is given up. A frame holds one run of octets. Of a segment that overlaps what is held, each
//! run of new octets but the last is copied to a frame of its own (`Frame::copy_part`), up to 16 of them;
//! what came first stays.
//!
//! # How losses are found and repaired
//!
//! Each segment in the send queue has a fate: unsent, in flight, selectively acknowledged, or lost
//! (`send_queue/scoreboard.rs`). The sum of those in flight is the pipe of RFC 6675; one counter of octets
//! per fate is all the bookkeeping there is.
//!
//! - `rack.rs` says what is lost (RFC 8985): a segment sent well before one that has arrived. "Well" is
//!   nothing when three segments were selectively acknowledged and no reordering was ever seen, else a
//!   quarter of the least round-trip time, more after each D-SACK. A timer covers the case that nothing more
//!   arrives.
//! - A tail probe goes out after two round trips of silence, so that the last segments of a burst need no
//!   timeout.
//! - Without selective acknowledgements, duplicates count instead, and each partial acknowledgement reveals
//!   the next hole (RFC 6582).
//! - `prr.rs` spreads what may be sent during recovery evenly over the acknowledgements (RFC 9937).
//! - After a timeout only what is overdue counts as lost, and one segment is sent. `frto.rs` answers its
//!   acknowledgement with two new segments instead of lost ones. If the next acknowledgement is for something
//!   sent once, before the timeout, the timeout was spurious; if it is a duplicate or reports a new segment,
//!   the loss was real (F-RTO, RFC 5682). Timestamps (RFC 3522) and D-SACKs (RFC 3708) tell the same of other
//!   retransmissions. Then window and threshold are put back, and what was marked lost is in flight again.
//! - A peer that drops what it had selectively acknowledged is found out when the oldest segment is among it,
//!   and gets all of it again.
//!
//! `acknowledgement.rs` reads in this order: check the number, accept the window, free what is acknowledged,
//! mark what is held, judge the probe, judge the timeout, repair, undo, grow, rearm.
//!
//! # How much is sent
//!
//! `congestion/` is one trait with three algorithms: CUBIC (the default), NewReno and DCTCP, with HyStart++
//! in slow start. An algorithm receives what was delivered and when something was lost or marked, and returns
//! a window and a threshold; it is chosen per device, per listener or per connection (`Behaviour`), like
//! everything else that can be chosen. The window grows only when it was used, and falls back to the initial
//! one after a pause of a timeout. Bursts leave at a pace of the window over the round trip, 2 ms or ten
//! segments at a time; on paths shorter than that, pacing does not bite. ECN is accepted from peers and asked
//! for where configured; DCTCP asks always, and its receiver echoes mark by mark.
//!
//! # What is offered and acknowledged
//!
//! The right edge of the offered window never goes back (RFC 5041 App. A), and moves in steps of a segment.
//! An acknowledgement goes out after two segments, 40 ms, a PSH, or anything beyond a gap; the last because a
//! sender needs it to find losses, PSH because an RDMA Write, which has no answer, completes with it. After a
//! gap was filled or a silence as long as a timeout, sixteen segments are acknowledged one by one, because
//! the peer's congestion window is small. Acknowledgements beyond a gap report the four most recent runs
//! held, or three beside timestamps, and what came twice.
//!
//! # The path
//!
//! A path turns out narrower by an ICMP message, believed only if it quotes octets that are outstanding and
//! names a size between the protocol's least and the present one (RFC 5927), or by three timeouts in a row on
//! large segments (RFC 4821 §7.7). The EMSS follows, FPDUs on the queue are cut, new ones are made to fit.
//! The first kind is remembered for ten minutes per destination; the second, which congestion can feign, is
//! doubted after eight seconds, and longer each time it proves true.
//!
//! # Closing
//!
//! After a disconnect this end's half closes after everything posted, and the peer's half stays open for what
//! it still sends. Without an octet in order from the peer, or an acknowledgement of this end's octets, for a
//! minute (`QpConfig::disconnect_timeout`) the connection is reset, and ends as timed out. Answers to probes
//! do not count.
//!
//! When an application leaves a byte stream (`Command::Abandon`) and octets are unread, the connection is
//! reset (RFC 2525 §2.17). Otherwise TCP refuses text from then on, what was written is sent, and a FIN after
//! it; new text leads to a RST. Such an orphan is reset when nothing moves for five seconds, and after a
//! minute in any case (`limits::ORPHAN_NS`). `conn::Orphans` bounds them: a sixteenth of all connections for
//! one address, a quarter for one IPv6 network of 64 bits, half for all. docs/exceptions.md lists where TCP
//! differs from Linux and FreeBSD.

mod ack_state;
mod acknowledgement;
mod burst;
mod challenge;
mod config;
pub mod congestion;
mod connection;
mod counters;
mod disposition;
mod ecn;
mod frto;
mod input;
mod losses;
mod output;
mod pacing;
mod passed_marks;
mod path_mss;
mod path_mtu;
mod pools;
mod prr;
mod rack;
mod rdma_option;
pub mod receive_queue;
mod receive_state;
mod recovery;
pub mod rtt;
mod sack_blocks;
pub mod scan_budget;
pub mod send_queue;
mod send_state;
mod snapshot;
mod state;
mod successors;
mod syn;
mod text;
mod timeouts;
mod timers;
mod timestamps;
mod unusual;

pub use burst::Burst;
pub use config::{Behaviour, Config, Keepalive, PeerTimeouts};
pub use connection::Connection;
pub use counters::Counters;
pub use disposition::{Changes, Disposition, Refusal};
pub use ecn::{EcnField, EcnPolicy};
pub use input::Payload;
pub use output::Outgoing;
pub use path_mtu::PathMtu;
pub use pools::Pools;
pub use rdma_option::RdmaOptionUse;
pub use snapshot::Snapshot;
pub use state::{CloseReason, State};
pub use successors::Successors;
pub use unusual::Unusual;
