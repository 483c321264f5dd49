//! A software RNIC: RDMA over Ethernet (iWARP: RDMAP over DDP over MPA over TCP) in user space, on DPDK or
//! Linux's packet sockets.
//!
//! A [`Device`] is one core or several on a NIC, each polled by a thread. From it come [`ProtectionDomain`]s,
//! from these [`MemoryRegion`]s and [`QueuePair`]s. A queue pair is connected by
//! [`QueuePairControl::connect`], by a [`Listener`] and [`ConnectionRequest::accept`], or on a [`TcpStream`]
//! after bytes in streaming mode; work is posted to it, and its completions are polled from
//! [`CompletionQueue`]s.
//!
//! A queue pair has one thread that posts, a completion queue one that polls, and neither waits for a lock.
//! Threads that share one use its form with a lock, [`SharedQueuePair`] and [`SharedCompletionQueue`]; every
//! other handle may be used by any thread.
//!
//! Two devices with a link in memory between them; one writes into the other's memory:
//!
//! ```
//! use std::net::Ipv4Addr;
//! use std::time::Duration;
//! use warpline::{Access, CompletionQueue, ConnectConfig, Device, DeviceConfig, ListenConfig, PollThread};
//! use warpline::{QpConfig, Status};
//! use warpline::link::sim::{self, EndConfig};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! const SECOND: Duration = Duration::from_secs(1);
//! let (near, far) = sim::link(1, EndConfig::a(), EndConfig::b());
//! let address = [Ipv4Addr::new(198, 18, 0, 1), Ipv4Addr::new(198, 18, 0, 2)];
//! let near = Device::start(near, &DeviceConfig::new(address[0], 24), PollThread::default())?;
//! let far = Device::start(far, &DeviceConfig::new(address[1], 24), PollThread::default())?;
//!
//! // The far end accepts a connection and advertises its buffer in the Private Data of its Reply.
//! let far_domain = far.protection_domain();
//! let buffer = far_domain.allocate(4096, Access::REMOTE_WRITE)?;
//! let completions = CompletionQueue::new(256);
//! let far_qp = far_domain.queue_pair(&QpConfig::default(), &completions, &completions)?;
//! let listener = far.listen(4711, &ListenConfig::default())?;
//! let advertisement = buffer.advertisement(0, 4096).ok_or("outside")?;
//! let accept = std::thread::spawn(move || {
//!     let request = listener.accept(10 * SECOND).unwrap();
//!     request.accept(&far_qp, &advertisement.encode()).unwrap();
//!     far_qp
//! });
//!
//! // The near end connects and writes.
//! let domain = near.protection_domain();
//! let source = domain.allocate(5, Access::empty())?;
//! assert!(source.write(0, b"hello"));
//! let completions = CompletionQueue::new(256);
//! let qp = domain.queue_pair(&QpConfig::default(), &completions, &completions)?;
//! let connected = qp.connect((address[1], 4711).into(), &ConnectConfig::default())?;
//! let far_qp = accept.join().unwrap();
//! let advertisement = warpline::Advertisement::decode(&connected.private_data)?;
//! qp.post_write(7, source.slice(0, 5), &advertisement, 100)?;
//! let completion = completions.wait(10 * SECOND).ok_or("no completion")?;
//! assert_eq!((completion.id, completion.status), (7, Status::Success));
//! assert_eq!(buffer.to_vec(100, 5).as_deref(), Some(&b"hello"[..]));
//!
//! // FIN from both ends.
//! qp.disconnect();
//! far_qp.wait_closed(10 * SECOND)?;
//! # Ok(())
//! # }
//! ```
//!
//! # What later versions add
//!
//! Errors, events, statuses and reports are `#[non_exhaustive]`: a match has an arm for what it does not
//! know. Configurations get new fields: write them with `..QpConfig::default()` at the end, as the examples
//! do.

#![deny(unreachable_pub)]

mod engine;
mod handles;
#[cfg_attr(not(feature = "dpdk"), expect(dead_code, reason = "devices of DPDK need more of it"))]
mod host;
mod vocabulary;

pub use engine::startup;
pub use handles::batch::SendBatch;
pub use handles::byte_stream::{ByteStream, ByteStreamHandle, ByteStreamReader, ByteStreamWriter, Piece};
pub use handles::clock::now;
pub use handles::cm;
pub use handles::completion::{CompletionQueue, CompletionQueueControl};
pub use handles::connection_request::ConnectionRequest;
pub use handles::control_driver::ControlDriver;
pub use handles::device::Device;
pub use handles::driver::CoreDriver;
pub use handles::event_fd::EventFd;
pub use handles::lending::{Buffer, LendError, Lender, Loan, NotLent, Returned};
pub use handles::link;
pub use handles::listener::Listener;
pub use handles::memory_region::{DeregisterError, MemoryRegion};
pub use handles::open;
pub use handles::protection_domain::ProtectionDomain;
pub use handles::queue_pair::{QueuePair, QueuePairControl};
pub use handles::shared::{SharedCompletionQueue, SharedQueuePair};
pub use handles::shared_receive_queue::SharedReceiveQueue;
pub use handles::tcp_listener::TcpListener;
pub use handles::tcp_stream::TcpStream;
pub use handles::turns::Turns;
pub use handles::window::{DeallocateError, MemoryWindow};
pub use vocabulary::advertisement::{Advertisement, NotAnAdvertisement};
pub use vocabulary::byte_stream::{ByteStreamConfig, ByteStreamError, UnsolicitedConfig};
pub use vocabulary::capacity::Capacity;
pub use vocabulary::connect::{ConnectConfig, ConnectError, Connected, Revision, STARTUP_TIMEOUT};
pub use vocabulary::core_set::CoreSet;
pub use vocabulary::cpu_list::{CpuList, NotCpuList};
pub use vocabulary::device::{CrcPolicy, DeviceConfig, MemorySource, StartError, Stopped, Usage};
pub use vocabulary::device_name::{
    DEVICE_VARIABLE, DeviceKind, DeviceName, DeviceNameError, DeviceNameFault, parse_interface_address,
};
pub use vocabulary::listen::{
    AcceptError, Accepted, AnswerError, FIRST_FPDU_TIMEOUT, ListenConfig, ListenError,
};
pub use vocabulary::memory::{Addressing, MemoryError, Sharing, WindowAddressing};
pub use vocabulary::poll_thread::{Idle, PollThread, PollThreadError};
pub use vocabulary::queue_pair::{CloseError, CreateError, QpConfig, RnrPolicy};
pub use vocabulary::quota::Quotas;
pub use vocabulary::startup::{Peer, ReadDepths, ReadsWanted, RtrKinds, StartupFault, Terms};
pub use vocabulary::stream::{
    StreamConfig, SwitchError, TcpListenConfig, TcpStreamError, UnnegotiatedConfig,
};
pub use warpline_dataplane::byte_stream::{
    Annotation, Buffer as TransferBuffer, ReadItem, Section, SectionError, TransferCounters,
};
pub use warpline_dataplane::ddp::DdpError;
pub use warpline_dataplane::limits;
pub use warpline_dataplane::memory::RegionPoolReport as StreamMemory;
pub use warpline_dataplane::memory::{Access, Binding, FastRegistration, Region, STag};
pub use warpline_dataplane::mpa::MpaError;
pub use warpline_dataplane::net::addresses::{Cidr, NotCidr, Presence, Route};
pub use warpline_dataplane::net::neighbours::StaticNeighbour;
pub use warpline_dataplane::notify::Notify;
pub use warpline_dataplane::qp::async_event::AsyncEvent;
pub use warpline_dataplane::qp::completion_queue::{CqNumber, Drain, Notice};
pub use warpline_dataplane::qp::error::StreamError;
pub use warpline_dataplane::qp::shared::{BadRequest, PostError, QpState};
pub use warpline_dataplane::qp::shared_receive_queue::SrqNumber;
pub use warpline_dataplane::qp::verbs::WcStatus;
pub use warpline_dataplane::qp::work::{
    Completion, CompletionKind, InlineData, Operation, Payload, QpNumber, ReceiveRequest, SendRequest, Slice,
    SliceList, Status, TooLongForInline, TooManySlices,
};
pub use warpline_dataplane::rdmap::RdmapError;
pub use warpline_dataplane::ring::Direction;
pub use warpline_dataplane::statistics::{DropCause, Drops, NamedValue, Statistics};
pub use warpline_dataplane::steering;
pub use warpline_dataplane::tcp::congestion::Algorithm;
pub use warpline_dataplane::tcp::{Behaviour, CloseReason, Counters, EcnPolicy, Keepalive, Snapshot};
pub use warpline_dataplane::time;
pub use warpline_dataplane::wire::ethernet::MacAddress;
pub use warpline_dataplane::wire::mpa::StartupError;

/// The TCP RDMA option (draft-csapuntz-tcprdma-00): the names of transfers, by protocol.
pub mod tcp_rdma {
    pub use warpline_dataplane::wire::tcp_rdma::{CifsRid, HttpRid, NfsRid, Rid, RidFormat, ScsiRid};
}

warpline_dataplane::debug_as_display!(
    AcceptError,
    AnswerError,
    ByteStreamError,
    CloseError,
    ConnectError,
    CreateError,
    DeallocateError,
    DeregisterError,
    DeviceNameError,
    DeviceNameFault,
    LendError,
    ListenError,
    MemoryError,
    NotAnAdvertisement,
    NotCpuList,
    NotLent,
    PollThreadError,
    StartError,
    StartupFault,
    Stopped,
    SwitchError,
    TcpStreamError,
    cm::CmError,
    host::cpus::CpuFault,
    host::privileges::Missing,
    host::survey::HostFault,
    host::survey::HostWarning,
    open::OpenError,
    vocabulary::startup::PrivateDataTooLong,
    vocabulary::startup::Unacceptable,
);
#[cfg(feature = "dpdk")]
warpline_dataplane::debug_as_display!(host::sockets::SocketFault);

/// The examples of the repository's README.md, compiled by the tests.
#[cfg(all(doctest, feature = "dpdk"))]
#[doc = include_str!("../../README.md")]
struct Readme;
