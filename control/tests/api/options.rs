//! The TCP RDMA option of frames, read without the stack's own parser.

/// Reads a frame. Returns the option from its kind on and the payload of the segment; `None` if it has no
/// such option, or one that is only agreed on.
pub fn option(frame: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    if frame[12..14] != [8, 0] || frame[23] != 6 {
        return None;
    }
    let packet = &frame[14..14 + usize::from(u16::from_be_bytes([frame[16], frame[17]]))];
    let tcp = &packet[usize::from(packet[0] & 15) * 4..];
    let (header, payload) = tcp.split_at(usize::from(tcp[12] >> 4) * 4);
    let mut list = &header[20..];
    while let [kind, rest @ ..] = list
        && *kind != 0
    {
        let len = if *kind == 1 { 1 } else { usize::from(rest[0]) };
        if *kind == 25 && len > 2 {
            return Some((list[..len].to_vec(), payload.to_vec()));
        }
        list = &list[len..];
    }
    None
}
