//! TCP segments read from captured frames, by RFC 791, RFC 9293 and draft-csapuntz-tcprdma-00 §3.1 alone.

use std::sync::{Arc, Mutex};

use warpline_dataplane::device::sim::{End, Network, Verdict};

const KIND: u8 = 25;
pub const SYN: u8 = 2;
pub const RST: u8 = 4;

/// A segment as it was on the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    pub flags: u8,
    pub seq: u32,
    /// Octets of all options.
    pub options_len: usize,
    /// Each RDMA option: its place in the TCP header, and its octets.
    pub rdma: Vec<(usize, Vec<u8>)>,
    pub payload: Vec<u8>,
    /// Octets of the IP packet.
    pub packet_len: usize,
}

/// The fields of an option of 16 or 20 octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fields {
    pub aligned: bool,
    pub unsolicited: bool,
    pub rid: u64,
    pub buffer_offset: u32,
    pub data_offset: usize,
    pub data_len: usize,
    pub total: Option<u32>,
}

fn number(octets: &[u8]) -> u64 {
    octets.iter().fold(0, |number, octet| number << 8 | u64::from(*octet))
}

/// Reads a TCP segment over IPv4; `None` for any other frame.
pub fn read(frame: &[u8]) -> Option<Segment> {
    let packet = frame.get(14..)?;
    if frame[12..14] != [8, 0] || packet[9] != 6 {
        return None;
    }
    let packet_len = number(&packet[2..4]) as usize;
    let tcp = &packet[usize::from(packet[0] & 15) * 4..packet_len];
    let header = usize::from(tcp[12] >> 4) * 4;
    let (mut at, mut rdma) = (20, Vec::new());
    while at < header && tcp[at] != 0 {
        let len = if tcp[at] == 1 { 1 } else { usize::from(tcp[at + 1]) };
        assert!(len > 0 && at + len <= header, "a list of options is whole: {:02x?}", &tcp[20..header]);
        if tcp[at] == KIND {
            rdma.push((at, tcp[at..at + len].to_vec()));
        }
        at += len;
    }
    Some(Segment {
        flags: tcp[13],
        seq: number(&tcp[4..8]) as u32,
        options_len: header - 20,
        rdma,
        payload: tcp[header..].to_vec(),
        packet_len,
    })
}

/// The fields of an option; `None` if it describes no transfer.
pub fn fields(option: &[u8]) -> Option<Fields> {
    if !matches!(option.len(), 16 | 20) {
        return None;
    }
    assert_eq!(usize::from(option[1]), option.len());
    Some(Fields {
        aligned: option[2] & 0x80 != 0,
        unsolicited: option[2] & 0x40 != 0,
        rid: number(&option[2..8]) & 0x3fff_ffff_ffff,
        buffer_offset: number(&option[8..12]) as u32,
        data_offset: number(&option[12..14]) as usize,
        data_len: number(&option[14..16]) as usize,
        total: option.get(16..20).map(|total| number(total) as u32),
    })
}

/// All segments that an end has sent, before anything happened to them.
#[derive(Clone, Default)]
pub struct Capture(Arc<Mutex<Vec<Segment>>>);

impl Capture {
    /// Captures what `end` sends from now on. Each frame is shown to `router` too, which decides about it.
    pub fn start<R>(network: &Network, end: End, mut router: R) -> Self
    where
        R: FnMut(&Segment, &[u8]) -> Verdict + Send + 'static,
    {
        let capture = Self::default();
        let segments = capture.0.clone();
        network.set_filter(end, move |_, frame| match read(frame) {
            Some(segment) => {
                let verdict = router(&segment, frame);
                segments.lock().unwrap().push(segment);
                verdict
            }
            None => Verdict::Pass,
        });
        capture
    }

    pub fn segments(&self) -> Vec<Segment> {
        self.0.lock().unwrap().clone()
    }
}
