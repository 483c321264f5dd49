//! Somebody who knows addresses, ports and sequence numbers of connections, and wants them gone: it forges
//! RSTs and SYNs. RFC 5961 §3.2, §4.2: each but a RST that is exactly what is expected next is answered with
//! an acknowledgement at most, and the connection lives.

use fastrand::Rng;

use super::draw::Draw;
use super::host::{MPA_PORT, STREAM_PORT};
use super::packets::{Ip, Link, TCP};
use super::wire::Target;

/// Its hardware address.
const MAC: [u8; 6] = [0x02, 0, 0, 0, 3, 2];
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;
/// Room of a window above which its last octets are not those that come next: a path would have to bring all
/// of it before the forged segment.
const ROOM_OCTETS: i64 = 20_000;

/// Returns a forged segment for one end of a connection.
pub(super) fn frame(draw: &Draw, rng: &mut Rng, target: &Target) -> Vec<u8> {
    let room = target.edge - target.next;
    let at = if room > ROOM_OCTETS && rng.bool() {
        target.edge - rng.i64(1..100)
    } else {
        // Before what has come.
        target.next - rng.i64(1..70_000)
    };
    // A connection may end before its segment arrives. Where somebody listens, a SYN opens another then.
    let [_, port] = target.flow.ports();
    let kinds = if [MPA_PORT, STREAM_PORT].contains(&port) { 2 } else { 4 };
    let flags = [RST, RST | ACK, SYN, SYN | ACK][rng.usize(..kinds)];
    let mut segment = Vec::new();
    let [from, to] = target.flow.ports();
    segment.extend(from.to_be_bytes());
    segment.extend(to.to_be_bytes());
    segment.extend(target.seq_of(at).to_be_bytes());
    segment.extend(target.ack.to_be_bytes());
    let options = options(target);
    segment.extend([(5 + options.len() as u8 / 4) << 4, flags, 0xff, 0xff, 0, 0, 0, 0]);
    segment.extend(options);
    let [source, destination] = target.flow.addresses();
    let address_octets = if draw.ipv6 { 16 } else { 4 };
    let [source, destination] = [&source[..address_octets], &destination[..address_octets]];
    Link { draw, station: MAC, host: target.host }.frame(Ip { source, destination, protocol: TCP }, segment)
}

/// The last timestamps of the connection, so that its clock does not give the segment away.
fn options(target: &Target) -> Vec<u8> {
    let Some((value, echo)) = target.clock else { return Vec::new() };
    [&[1, 1, 8, 10], &value.to_be_bytes()[..], &echo.to_be_bytes()].concat()
}
