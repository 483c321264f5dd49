//! READ and WRITE in the shape of CIFS over byte streams (draft-csapuntz-tcprdma-00 §5.3): SMB messages after
//! NetBIOS lengths, several requests at a time, replies in another order. What is on the wire is read from
//! frames.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::byte_streams::streams;
use crate::common::{PATIENCE, Pair};
use crate::options::option;
use warpline::link::sim::{End, Verdict};
use warpline::tcp_rdma::{CifsRid, Rid, RidFormat};
use warpline::{ByteStream, ByteStreamConfig, ReadItem, Region, Section, UnsolicitedConfig};

/// Requests, and those of them that have no reply yet, at most.
const REQUESTS: usize = 48;
const OUTSTANDING: u16 = 4;
const DATA_BYTES: usize = 5000;
const PID: u16 = 0xcafe;
/// SMB_COM_READ_ANDX and SMB_COM_WRITE_ANDX.
const READ: u8 = 0x2e;
const WRITE: u8 = 0x2f;
/// The NetBIOS length, the header of SMB, and which operation of the request has the data.
const HEAD_BYTES: usize = 4 + 32 + 1;

/// A request or a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Message {
    command: u8,
    is_reply: bool,
    /// Which operation of a compound request has a transfer: those before it have none, and count.
    operation: u8,
    mid: u16,
}

impl Message {
    const fn has_data(self) -> bool {
        (self.command == READ) == self.is_reply
    }

    fn rid(self) -> Rid {
        CifsRid { operation: self.operation, pid: PID, mid: self.mid }.into()
    }

    fn head(self) -> [u8; HEAD_BYTES] {
        let mut head = [0; HEAD_BYTES];
        let data = if self.has_data() { DATA_BYTES } else { 0 };
        head[..4].copy_from_slice(&((HEAD_BYTES - 4 + data) as u32).to_be_bytes());
        head[4..8].copy_from_slice(b"\xffSMB");
        head[8] = self.command;
        head[13] = if self.is_reply { 0x80 } else { 0 };
        head[30..32].copy_from_slice(&PID.to_le_bytes());
        head[34..36].copy_from_slice(&self.mid.to_le_bytes());
        head[36] = self.operation;
        head
    }

    fn of(head: &[u8]) -> Self {
        assert_eq!(head[4..8], *b"\xffSMB");
        let [pid, mid] = [30, 34].map(|at| u16::from_le_bytes([head[at], head[at + 1]]));
        assert_eq!(pid, PID);
        let message = Self { command: head[8], is_reply: head[13] & 0x80 != 0, operation: head[36], mid };
        assert_eq!(head[..HEAD_BYTES], message.head());
        message
    }

    /// Sends it with its data, if it has some.
    // Requirements: TRO-5.3.2-01, TRO-5.3.2-02, TRO-5.3.3-01
    fn send(self, stream: &mut ByteStream, data: &[u8]) {
        let section = if self.is_reply { Section::solicited } else { Section::unsolicited };
        let writer = &mut stream.writer;
        writer.cork();
        writer.write_message(&self.head(), PATIENCE).unwrap();
        if self.has_data() {
            let section = section(self.rid(), Some(data.len() as u32));
            writer.write_section(section, 0, data, PATIENCE).unwrap();
        }
        writer.uncork();
    }
}

fn receive(stream: &mut ByteStream) -> Message {
    let mut head = [0; HEAD_BYTES];
    stream.reader.read_exact(&mut head, PATIENCE).unwrap();
    Message::of(&head)
}

/// The data of the request of this number.
fn data(number: usize) -> Vec<u8> {
    (0..DATA_BYTES).map(|at| ((at + number) % 251) as u8).collect()
}

/// Answers requests in pairs, the later one first. A READ returns the data of the WRITE before it.
fn serve(stream: &mut ByteStream) {
    let mut kept = VecDeque::new();
    let mut under_way = BTreeSet::new();
    for _ in 0..REQUESTS / 2 {
        let mut requests = [(); 2].map(|()| {
            let request = receive(stream);
            assert!(under_way.insert(request.mid), "a MID of a request that has no reply: {request:?}");
            let mut written = vec![0; if request.has_data() { DATA_BYTES } else { 0 }];
            stream.reader.read_exact(&mut written, PATIENCE).unwrap();
            if request.has_data() {
                kept.push_back(written);
            }
            request
        });
        requests.reverse();
        for request in requests {
            let data = if request.command == READ { kept.pop_front().unwrap() } else { Vec::new() };
            under_way.remove(&request.mid);
            Message { is_reply: true, ..request }.send(stream, &data);
        }
    }
}

/// Writes and reads. No two requests that have no reply have the same PID and MID.
// Requirements: TRO-5.3.1-01
fn ask(stream: &mut ByteStream, memory: &Region) {
    let mut free: VecDeque<u16> = (0..OUTSTANDING).map(|mid| mid.wrapping_sub(2)).collect();
    let (mut sent, mut under_way) = (0, Vec::new());
    while sent < REQUESTS || !under_way.is_empty() {
        while sent < REQUESTS
            && let Some(mid) = free.pop_front()
        {
            let command = if sent % 2 == 0 { WRITE } else { READ };
            let request = Message { command, is_reply: false, operation: (sent % 3) as u8, mid };
            if command == READ {
                let at = usize::from(mid % OUTSTANDING) * DATA_BYTES;
                stream.reader.expect(request.rid(), memory, at..at + DATA_BYTES).unwrap();
            }
            request.send(stream, &data(sent));
            under_way.push((request, sent));
            sent += 1;
        }
        let reply = receive(stream);
        let is_request = |(request, _): &(Message, usize)| Message { is_reply: true, ..*request } == reply;
        let (_, number) = under_way.swap_remove(under_way.iter().position(is_request).unwrap());
        if reply.has_data() {
            let at = usize::from(reply.mid % OUTSTANDING) * DATA_BYTES;
            let range = at..at + DATA_BYTES;
            assert_eq!(stream.reader.read_section(reply.rid(), memory, range, PATIENCE).unwrap(), DATA_BYTES);
            let end = stream.reader.read_item(&mut [], PATIENCE).unwrap();
            assert!(matches!(end, ReadItem::Complete { rid, .. } if rid == reply.rid()), "{end:?}");
            let mut read = vec![0; DATA_BYTES];
            assert!(memory.read(at, &mut read));
            assert!(read == data(number - 1), "what the request before has written");
        }
        free.push_back(reply.mid);
    }
}

// Requirements: TRO-5.3.1-01, TRO-5.3.1-02, TRO-5.3.2-01, TRO-5.3.2-02, TRO-5.3.3-01
#[test]
fn requests_share_no_name_and_data_lands_in_place() {
    let pair = Pair::new();
    let config = ByteStreamConfig {
        unsolicited: Some(UnsolicitedConfig { count: OUTSTANDING.into(), bytes: DATA_BYTES }),
        rid_format: RidFormat::Cifs,
        ..ByteStreamConfig::default()
    };
    let (mut client, mut server) = streams(&pair.near, &pair.far, true, &config);
    let captured = [End::A, End::B].map(|end| {
        let segments = Arc::new(Mutex::new(Vec::new()));
        let captured = segments.clone();
        pair.network.set_filter(end, move |_, frame| {
            captured.lock().unwrap().extend(option(frame));
            Verdict::Pass
        });
        segments
    });
    let memory = Region::heap(usize::from(OUTSTANDING) * DATA_BYTES).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| serve(&mut server));
        ask(&mut client, &memory);
    });
    let read = (REQUESTS / 2 * DATA_BYTES) as u64;
    assert_eq!(client.reader.transfer_counters().octets_delivered, read, "all that was read");
    assert_eq!(server.reader.transfer_counters().octets_delivered, read, "all that was written");
    for (from_server, segments) in [false, true].into_iter().zip(captured) {
        let (mut aligned, mut mids) = (0, BTreeSet::new());
        for (option, payload) in segments.lock().unwrap().iter() {
            if option[2] & 0x80 != 0 {
                let message = Message::of(payload);
                assert_eq!(message.is_reply, from_server);
                aligned += 1;
            }
            if option.len() >= 16 {
                let [bits, operation, pid_high, pid_low, mid_high, mid_low] = option[2..8] else {
                    panic!("{option:02x?}")
                };
                assert_eq!(bits & 0x40 != 0, !from_server, "U: {option:02x?}");
                assert_eq!(bits & 0x3f, 0, "bits 40 to 45: {option:02x?}");
                assert!(operation < 3 && [pid_high, pid_low] == PID.to_be_bytes(), "{option:02x?}");
                mids.insert(u16::from_be_bytes([mid_high, mid_low]));
            }
        }
        assert!(aligned >= REQUESTS, "{aligned} messages");
        assert_eq!(mids.len(), usize::from(OUTSTANDING), "{mids:?}");
    }
}
