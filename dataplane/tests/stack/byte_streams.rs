//! Tests of byte streams with the TCP RDMA option (draft-csapuntz-tcprdma-00): what a sender puts on the
//! wire is judged by a reading of frames that shares no code with the stack, and what a receiver is told is
//! compared with the stream.
//!
//! Random transfers go both ways through loss, resegmentation and middleboxes that strip, split, replicate
//! and alter the option; guard octets watch the readers' buffers. `WARPLINE_SEEDS` sets the number of seeds.

mod annotations;
mod endings;
mod hostile;
mod messages;
mod narrowing;
mod placing;
mod receiver;
mod simulation;
mod tables;
mod trains;
mod wire;

use std::sync::Arc;

use crate::common::{Host, PORT, Pair, address};
use warpline_dataplane::byte_stream::{
    Annotation, ByteReader, ByteStreamConfig, ByteWriter, Section, SharedByteStream,
};
use warpline_dataplane::memory::Region;
use warpline_dataplane::ring::{Command, ConnectionId, Rings};
use warpline_dataplane::tcp::Behaviour;
use warpline_dataplane::time::SECOND;
use warpline_dataplane::wire::tcp_rdma::Rid;

/// A behaviour with the option.
fn with_option() -> Behaviour {
    Behaviour { rdma_option: true, ..Behaviour::default() }
}

fn rid(bits: u64) -> Rid {
    Rid::new(bits).expect("46 bits")
}

/// Rings of these octets.
fn config(send_octets: usize, receive_octets: usize) -> ByteStreamConfig {
    ByteStreamConfig::new(Region::heap(send_octets).unwrap(), Region::heap(receive_octets).unwrap())
}

/// Gives `connection` of the core of `rings` to an application.
fn attach(rings: &Rings, connection: ConnectionId, config: ByteStreamConfig) -> (ByteWriter, ByteReader) {
    let stream = SharedByteStream::new(connection.slot(), rings.doorbells.clone(), config);
    let stream = Arc::new(stream);
    let command = Command::AttachByteStream { connection, stream: stream.clone() };
    assert!(rings.commands.push(command).is_ok(), "command ring full");
    (ByteWriter::new(stream.clone()), ByteReader::new(stream))
}

fn attach_host(host: &Host, config: ByteStreamConfig) -> (ByteWriter, ByteReader) {
    attach(&host.rings, host.connection.expect("a connection"), config)
}

/// Opens a connection from `a` to `b`, each with its behaviour.
fn connect(pair: &mut Pair, [a, b]: [Behaviour; 2]) {
    pair.b.command(Command::Listen { address: None, port: PORT, backlog: 4, tcp: Some(b) });
    pair.a.command(Command::Connect {
        token: 1,
        local: None,
        remote: (address(2), PORT).into(),
        timeout_ns: 600 * SECOND,
        tcp: Some(a),
        octets: Box::default(),
    });
    let open = pair.run_until(700, |pair| pair.a.connection.is_some() && pair.b.connection.is_some());
    assert!(open, "no connection: {:?}", pair.a.events);
}

/// A note about octets of a section, from `offset` of the receiver's buffer on.
fn of_section(section: Section, offset: u32) -> Annotation {
    Annotation { starts_message: false, section: Some((section, offset)) }
}

const MESSAGE: Annotation = Annotation { starts_message: true, section: None };
const PLAIN: Annotation = Annotation { starts_message: false, section: None };
