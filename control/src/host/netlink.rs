//! Requests to the kernel (netlink(7)).

use std::io;

use netlink_packet_core::{
    NLM_F_REQUEST, NetlinkDeserializable, NetlinkHeader, NetlinkMessage, NetlinkPayload, NetlinkSerializable,
};
use netlink_sys::{Socket, SocketAddr};

/// Opens a socket to the part of the kernel with the number `protocol`.
///
/// # Errors
///
/// That of the socket.
pub(super) fn open(protocol: isize) -> io::Result<Socket> {
    let mut socket = Socket::new(protocol)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    Ok(socket)
}

/// Sends `request`, and calls `each` for each message of the answer. `flags` ask for something that ends the
/// answer: a dump (`NLM_F_DUMP`) or an acknowledgement (`NLM_F_ACK`).
///
/// # Errors
///
/// That of the socket or the kernel; `InvalidData` if an answer of the kernel cannot be read.
pub(super) fn ask<M>(socket: &Socket, flags: u16, request: M, mut each: impl FnMut(M)) -> io::Result<()>
where
    M: NetlinkSerializable + NetlinkDeserializable,
{
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | flags;
    let mut message = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(request));
    message.finalize();
    let mut octets = vec![0; message.buffer_len()];
    message.serialize(&mut octets);
    socket.send(&octets, 0)?;
    let unreadable = |error| io::Error::new(io::ErrorKind::InvalidData, error);
    loop {
        let (answer, _) = socket.recv_from_full()?;
        let mut rest = &answer[..];
        while !rest.is_empty() {
            let message = NetlinkMessage::<M>::deserialize(rest).map_err(unreadable)?;
            // Messages begin at multiples of four octets.
            let length = (message.header.length as usize).next_multiple_of(4);
            rest = rest.get(length.max(4)..).unwrap_or_default();
            match message.payload {
                NetlinkPayload::Done(_) => return Ok(()),
                // Without a code it is the acknowledgement.
                NetlinkPayload::Error(error) if error.code.is_none() => return Ok(()),
                NetlinkPayload::Error(error) => return Err(error.to_io()),
                NetlinkPayload::InnerMessage(message) => each(message),
                _ => {}
            }
        }
    }
}
