//! COMPOUND calls in the shape of NFS version 4 over byte streams (draft-csapuntz-tcprdma-00 §5.1): an RPC of
//! several operations, of which some have a transfer. What is on the wire is read from frames.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::byte_streams::streams;
use crate::common::{PATIENCE, Pair};
use crate::options::option;
use warpline::link::sim::{End, Verdict};
use warpline::tcp_rdma::{NfsRid, Rid, RidFormat};
use warpline::{ByteStream, ByteStreamConfig, ReadItem, Region, Section, UnsolicitedConfig};

/// Operations (RFC 7530 §16).
const GETATTR: u32 = 9;
const PUTFH: u32 = 22;
const READ: u32 = 25;
const WRITE: u32 = 38;

const CALL: u32 = 0;
const REPLY: u32 = 1;
/// Octets of each transfer, and the zeros that fill them up to a multiple of four (RFC 4506 §4.10).
const DATA_BYTES: usize = 5001;
const PADDING: [u8; 3] = [0; 3];

/// The calls, by their XID. The draft's own example is the first: only the third operation has a transfer.
const CALLS: [(u32, &[u32]); 4] = [
    (0x8000_0001, &[PUTFH, GETATTR, WRITE]),
    (0x8000_0002, &[PUTFH, WRITE, GETATTR, WRITE]),
    (0x0000_0003, &[PUTFH, GETATTR, READ]),
    (0xffff_ffff, &[PUTFH, READ, GETATTR, READ, READ]),
];

/// Whether the call, or else the reply, has the data of `operation`.
const fn has_data(operation: u32, kind: u32) -> bool {
    (operation == WRITE && kind == CALL) || (operation == READ && kind == REPLY)
}

/// The name of the transfer of the operation at `index` in the RPC: all operations before it count.
fn rid(xid: u32, index: usize) -> Rid {
    NfsRid { xid, operation: index as u8 }.into()
}

fn data(xid: u32, index: usize) -> Vec<u8> {
    (0..DATA_BYTES).map(|at| ((at + xid as usize + index * 7) % 251) as u8).collect()
}

/// Sends a record: its mark (RFC 5531 §11), XID, kind and number of operations; of each operation its number,
/// and its data if it has some.
fn send(stream: &mut ByteStream, xid: u32, kind: u32, operations: &[u32]) {
    let octets =
        |&operation: &u32| 4 + if has_data(operation, kind) { DATA_BYTES + PADDING.len() } else { 0 };
    let mark = (1 << 31) | (12 + operations.iter().map(octets).sum::<usize>() as u32);
    let head = [mark, xid, kind, operations.len() as u32].map(u32::to_be_bytes);
    let writer = &mut stream.writer;
    writer.write_message(head.as_flattened(), PATIENCE).unwrap();
    let section = if kind == CALL { Section::unsolicited } else { Section::solicited };
    for (index, operation) in operations.iter().enumerate() {
        writer.write_all(&operation.to_be_bytes(), PATIENCE).unwrap();
        if has_data(*operation, kind) {
            let section = section(rid(xid, index), Some(DATA_BYTES as u32));
            writer.write_section(section, 0, &data(xid, index), PATIENCE).unwrap();
            writer.write_all(&PADDING, PATIENCE).unwrap();
        }
    }
}

fn words<const N: usize>(stream: &mut ByteStream) -> [u32; N] {
    let mut words = [[0; 4]; N];
    stream.reader.read_exact(words.as_flattened_mut(), PATIENCE).unwrap();
    words.map(u32::from_be_bytes)
}

/// Reads a record but for the data, which `read_data` reads. Returns its XID.
fn receive(
    stream: &mut ByteStream,
    kind: u32,
    mut read_data: impl FnMut(&mut ByteStream, u32, usize),
) -> u32 {
    let [mark, xid, of_kind, count] = words(stream);
    assert_eq!((mark >> 31, of_kind), (1, kind));
    let (_, operations) = CALLS.into_iter().find(|(call, _)| *call == xid).unwrap();
    assert_eq!(count as usize, operations.len());
    for (index, operation) in operations.iter().enumerate() {
        assert_eq!(words(stream), [*operation]);
        if has_data(*operation, kind) {
            read_data(stream, xid, index);
            let mut padding = [1; PADDING.len()];
            stream.reader.read_exact(&mut padding, PATIENCE).unwrap();
            assert_eq!(padding, PADDING);
        }
    }
    xid
}

/// Answers the calls when all have come, the latest first.
fn serve(stream: &mut ByteStream) {
    let calls = CALLS.map(|_| {
        receive(stream, CALL, |stream, xid, index| {
            let mut written = vec![0; DATA_BYTES];
            stream.reader.read_exact(&mut written, PATIENCE).unwrap();
            assert!(written == data(xid, index), "operation {index} of {xid:x}");
        })
    });
    for (xid, operations) in CALLS.into_iter().rev() {
        assert!(calls.contains(&xid));
        send(stream, xid, REPLY, operations);
    }
}

/// Calls, with a buffer for each READ, all in one piece of memory, and reads the replies.
fn ask(stream: &mut ByteStream) {
    let reads: Vec<(u32, usize)> = transfers(REPLY).into_iter().collect();
    let memory = Region::heap(reads.len() * DATA_BYTES).unwrap();
    for (place, (xid, index)) in reads.iter().enumerate() {
        let range = place * DATA_BYTES..(place + 1) * DATA_BYTES;
        stream.reader.expect(rid(*xid, *index), &memory, range).unwrap();
    }
    for (xid, operations) in CALLS {
        send(stream, xid, CALL, operations);
    }
    for _ in CALLS {
        receive(stream, REPLY, |stream, xid, index| {
            let at = reads.iter().position(|read| *read == (xid, index)).unwrap() * DATA_BYTES;
            let range = at..at + DATA_BYTES;
            assert_eq!(
                stream.reader.read_section(rid(xid, index), &memory, range, PATIENCE).unwrap(),
                DATA_BYTES
            );
            let end = stream.reader.read_item(&mut [], PATIENCE).unwrap();
            assert!(matches!(end, ReadItem::Complete { rid: of, .. } if of == rid(xid, index)), "{end:?}");
            let mut read = vec![0; DATA_BYTES];
            assert!(memory.read(at, &mut read));
            assert!(read == data(xid, index), "operation {index} of {xid:x}");
        });
    }
}

/// The XIDs and indices of the operations with a transfer in messages of this kind.
fn transfers(kind: u32) -> BTreeSet<(u32, usize)> {
    let of_call = |(xid, operations): (u32, &'static [u32])| {
        let with_data = operations.iter().enumerate().filter(move |(_, code)| has_data(**code, kind));
        with_data.map(move |(index, _)| (xid, index))
    };
    CALLS.into_iter().flat_map(of_call).collect()
}

/// A segment whose option names octets of a transfer.
struct Described {
    /// The bits A and U, and bits 40 to 45 of the RID.
    flags: u8,
    index: usize,
    xid: u32,
    buffer_offset: usize,
    data: Vec<u8>,
}

/// Reads a frame; `None` if it has no option that names octets.
fn described(frame: &[u8]) -> Option<Described> {
    let (option, payload) = option(frame).filter(|(option, _)| option.len() >= 16)?;
    let word = |octets: &[u8]| u32::from_be_bytes([octets[0], octets[1], octets[2], octets[3]]);
    let half = |octets: &[u8]| usize::from(u16::from_be_bytes([octets[0], octets[1]]));
    Some(Described {
        flags: option[2],
        index: option[3].into(),
        xid: word(&option[4..]),
        buffer_offset: word(&option[8..]) as usize,
        data: payload[half(&option[12..])..][..half(&option[14..])].to_vec(),
    })
}

/// Operations of one RPC share its XID, and each has its index in the list of all, whether or not those
/// before it have a transfer: if only the third has one, its index is 2.
// Requirements: TRO-5.1.1-01, TRO-5.1.1-02, TRO-5.1.1-04, TRO-5.1.2-01, TRO-5.1.3-01
#[test]
fn operations_of_a_compound_call_count_from_0() {
    let pair = Pair::new();
    let config = ByteStreamConfig {
        unsolicited: Some(UnsolicitedConfig { count: 4, bytes: DATA_BYTES }),
        rid_format: RidFormat::Nfs,
        ..ByteStreamConfig::default()
    };
    let (mut client, mut server) = streams(&pair.near, &pair.far, true, &config);
    let captured = [End::A, End::B].map(|end| {
        let segments = Arc::new(Mutex::new(Vec::new()));
        let captured = segments.clone();
        pair.network.set_filter(end, move |_, frame| {
            captured.lock().unwrap().extend(described(frame));
            Verdict::Pass
        });
        segments
    });
    thread::scope(|scope| {
        scope.spawn(|| serve(&mut server));
        ask(&mut client);
    });
    for (kind, end, captured) in [(CALL, &server, &captured[0]), (REPLY, &client, &captured[1])] {
        let expected = transfers(kind);
        let octets = (expected.len() * DATA_BYTES) as u64;
        assert_eq!(
            end.reader.transfer_counters().octets_delivered,
            octets,
            "all of the transfers are placed"
        );
        let mut sent = BTreeMap::new();
        for Described { flags, index, xid, buffer_offset, data } in captured.lock().unwrap().iter() {
            assert_eq!(flags & 0x40 != 0, kind == CALL, "the U bit of {xid:x}");
            assert_eq!(flags & 0x3f, 0, "bits 40 to 45 of {xid:x}");
            let octets = sent.entry((*xid, *index)).or_insert([0; DATA_BYTES]);
            octets[*buffer_offset..][..data.len()].copy_from_slice(data);
        }
        assert_eq!(sent.keys().copied().collect::<BTreeSet<_>>(), expected);
        for ((xid, index), octets) in sent {
            assert!(data(xid, index) == octets, "operation {index} of {xid:x}");
        }
    }
}
