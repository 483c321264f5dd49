//! Frames for the tests of the simulated network, and the plainest reading of them.

/// A TCP/IPv4 segment to be written out.
#[derive(Clone, Copy)]
pub(in crate::device) struct Sample<'a> {
    pub sequence: u32,
    pub flags: u8,
    pub source_port: u16,
    /// TCP options, a multiple of four octets.
    pub options: &'a [u8],
    pub payload: &'a [u8],
}

pub(in crate::device) const ACK: u8 = 0x10;
pub(in crate::device) const PSH: u8 = 0x08;
pub(in crate::device) const FIN: u8 = 0x01;
pub(in crate::device) const SYN: u8 = 0x02;
pub(in crate::device) const URG: u8 = 0x20;
pub(in crate::device) const CWR: u8 = 0x80;

impl Default for Sample<'_> {
    fn default() -> Self {
        Self { sequence: 1000, flags: ACK, source_port: 4711, options: &[], payload: &[] }
    }
}

impl Sample<'_> {
    /// Returns the Ethernet frame, with good checksums.
    pub(crate) fn frame(&self) -> Vec<u8> {
        let tcp_header = 20 + self.options.len();
        let total = (20 + tcp_header + self.payload.len()) as u16;
        let mut ip = vec![0x45, 0, 0, 0, 0x12, 0x34, 0x40, 0, 64, 6, 0, 0, 198, 18, 0, 1, 198, 18, 0, 2];
        ip[2..4].copy_from_slice(&total.to_be_bytes());
        let checksum = !ones_complement_sum(&ip);
        ip[10..12].copy_from_slice(&checksum.to_be_bytes());

        let mut tcp = Vec::new();
        tcp.extend(self.source_port.to_be_bytes());
        tcp.extend(5001u16.to_be_bytes());
        tcp.extend(self.sequence.to_be_bytes());
        tcp.extend(77u32.to_be_bytes());
        tcp.extend([(tcp_header as u8 / 4) << 4, self.flags, 0x20, 0x00, 0, 0, 0, 0]);
        tcp.extend(self.options);
        tcp.extend(self.payload);
        let checksum = !ones_complement_sum(&[pseudo_header(&ip, tcp.len()), tcp.clone()].concat());
        tcp[16..18].copy_from_slice(&checksum.to_be_bytes());

        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x08, 0x00];
        frame.extend(ip);
        frame.extend(tcp);
        frame
    }
}

fn pseudo_header(ip: &[u8], tcp_octets: usize) -> Vec<u8> {
    let mut pseudo = ip[12..20].to_vec();
    pseudo.extend([0, 6]);
    pseudo.extend((tcp_octets as u16).to_be_bytes());
    pseudo
}

/// Returns the ones' complement sum, computed one word at a time as RFC 1071 §1 describes it.
pub(in crate::device) fn ones_complement_sum(octets: &[u8]) -> u16 {
    let mut total = 0u16;
    for pair in octets.chunks(2) {
        let word = u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]);
        let (sum, carry) = total.overflowing_add(word);
        total = sum + u16::from(carry);
    }
    total
}

/// A receiver's result for a frame built from a [`Sample`].
pub(in crate::device) struct Reading<'a> {
    pub sequence: u32,
    pub flags: u8,
    pub options: &'a [u8],
    pub payload: &'a [u8],
}

/// Reads a frame; `None` when a length or a checksum is wrong.
pub(in crate::device) fn read(frame: &[u8]) -> Option<Reading<'_>> {
    let ip = frame.get(14..)?;
    let total = usize::from(u16::from_be_bytes([ip[2], ip[3]]));
    let tcp = ip.get(20..total)?;
    let pseudo = pseudo_header(ip, tcp.len());
    if ip[0] != 0x45
        || ones_complement_sum(&ip[..20]) != 0xffff
        || ones_complement_sum(&[&pseudo, tcp].concat()) != 0xffff
    {
        return None;
    }
    let header = usize::from(tcp[12] >> 4) * 4;
    Some(Reading {
        sequence: u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]),
        flags: tcp[13],
        options: &tcp[20..header],
        payload: &tcp[header..],
    })
}
