//! The option list of a TCP header, any octets, with RDMA options of any kind (draft-csapuntz-tcprdma-00). An
//! independent judge, which reads the list octet by octet, determines the RDMA option; what was parsed is
//! emitted and parsed again.
//!
//! [`run`] takes one input; libFuzzer drives it from `fuzz/`, the tests replay seeds and regressions.
#![allow(dead_code, reason = "the input is used in part")]

#[path = "../receive/input.rs"]
mod input;
mod judge;

use input::Input;
use judge::Verdict;
use warpline_dataplane::wire::tcp::{Header, Options};
use warpline_dataplane::wire::tcp_rdma::{RdmaOption, Transfer, is_free_kind};

/// The end of a run, for tests that check the coverage of inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum End {
    /// There is no RDMA option.
    Absent,
    /// The first is of another length.
    Malformed,
    /// Its form, by its length.
    Length(u8),
    /// One of 20 octets, beside as much as a header takes: blocks of the selective acknowledgment are left
    /// out.
    Crowded,
}

/// Runs one input.
///
/// # Panics
///
/// If the options are not those of the judge, or do not survive.
pub fn run(octets: &[u8]) -> End {
    let mut input = Input::new(octets);
    let chosen = input.octet();
    let kind = if is_free_kind(chosen) { chosen } else { 25 };
    let list = input.octets(Options::ROOM);
    let options = parse(list, kind);
    let end = match (judge::judge(list, kind), &options.rdma) {
        (Verdict::Absent, None) => End::Absent,
        (Verdict::Malformed, None) => End::Malformed,
        (Verdict::Present(judged), Some(option)) => {
            assert!(is_same(option, &judged), "{option:?} is not {judged:?}");
            End::Length(judged.len)
        }
        (verdict, option) => panic!("{option:?} is not {verdict:?}"),
    };
    // Of another kind, it is no RDMA option; everything else stays.
    let other_kind = if kind == 253 { 254 } else { 253 };
    let others = parse(list, other_kind);
    assert_eq!(Options { rdma: None, ..options.clone() }, Options { rdma: None, ..others });
    survives(options, kind).unwrap_or(end)
}

/// The options of a header with this list, filled up by zeros.
fn parse(list: &[u8], kind: u8) -> Options {
    let mut segment = [0; Header::MIN_LEN].to_vec();
    segment.extend(list);
    segment.resize(segment.len().next_multiple_of(4), 0);
    segment[12] = (segment.len() / 4 * 16) as u8;
    let (header, len) = Header::parse_with(&segment, kind).expect("a whole header");
    assert_eq!(len, segment.len());
    header.options
}

/// Asserts that the options are the same when they are emitted and parsed again, but for blocks that do not
/// fit beside the others, and that the RDMA option is aligned. Returns that there were such blocks.
fn survives(options: Options, kind: u8) -> Option<End> {
    let header = Header { options, ..Header::default() };
    let mut segment = vec![0xee; header.header_len()];
    header.emit_with(&mut segment, kind);
    assert!(segment.len() <= Header::MAX_LEN && segment.len().is_multiple_of(4), "{} octets", segment.len());
    let (again, len) = Header::parse_with(&segment, kind).expect("a whole header");
    assert_eq!(len, segment.len());
    let (kept, sack) = (again.options.sack.len(), &header.options.sack);
    let mut expected = header.options.clone();
    expected.sack.truncate(kept);
    assert_eq!(again.options, expected);
    if kept < sack.len() {
        assert!(segment.len() + 8 > Header::MAX_LEN - 4, "there is room for another block");
    }
    let option = header.options.rdma?;
    let mut alone = [0xee; RdmaOption::MAX_LEN];
    let octets = option.emit(kind, &mut alone);
    let mut words = segment[Header::MIN_LEN..].chunks(4).scan(Header::MIN_LEN, |at, word| {
        let begins = *at;
        *at += word.len();
        Some(begins)
    });
    assert!(words.any(|at| segment[at..].starts_with(&alone[..octets])), "it is not aligned");
    (kept < sack.len() && octets == RdmaOption::MAX_LEN).then_some(End::Crowded)
}

fn is_same(option: &RdmaOption, judged: &judge::Judged) -> bool {
    match option {
        RdmaOption::Permitted => judged.len == 2,
        RdmaOption::Aligned { message_aligned, unsolicited } => {
            (judged.len, *message_aligned, *unsolicited) == (4, judged.aligned, judged.unsolicited)
        }
        RdmaOption::Transfer(transfer) => {
            let Transfer { rid, message_aligned, unsolicited, .. } = *transfer;
            let Transfer { buffer_offset, data_offset, data_octets, total_octets, .. } = *transfer;
            (message_aligned, unsolicited, rid.get()) == (judged.aligned, judged.unsolicited, judged.rid)
                && [buffer_offset, data_offset.into(), data_octets.into()] == judged.numbers
                && total_octets == judged.total
                && judged.len == if total_octets.is_some() { 20 } else { 16 }
        }
    }
}
