//! Tests of small messages that share a segment which ends inside the last of them: those before it go out
//! and complete as whole ones, and it does when the rest of it has.

use warpline_dataplane::qp::work::Status;

use super::{EMSS, Writer};

/// Octets of each message: two and a part of the third fill a segment.
const OCTETS: u32 = 500;
/// Of the third: what is left of 1460 after two FPDUs of 520, less 20 for the headers and the CRC of its own.
const FIRST_PART: usize = 400;
const REST: usize = 100;
const FIRST_SEGMENT: u32 = EMSS as u32;

/// Returns the sizes of the payloads in each segment.
fn sizes(writer: &mut Writer) -> Vec<Vec<usize>> {
    let segments = writer.segments();
    assert_eq!(writer.judge(&segments, 0), u64::from(4 * OCTETS));
    let writes = segments.iter().flatten();
    let parts: Vec<_> = writes.filter(|write| !write.last).map(|write| write.payload.len()).collect();
    assert_eq!(parts, [FIRST_PART], "the only FPDU that ends no message");
    segments.iter().map(|segment| segment.iter().map(|write| write.payload.len()).collect()).collect()
}

fn completed(writer: &Writer) -> Vec<u64> {
    let done = std::iter::from_fn(|| writer.completions.poll());
    done.inspect(|done| assert_eq!((done.status, done.byte_len), (Status::Success, OCTETS)))
        .map(|done| done.id / u64::from(OCTETS))
        .collect()
}

fn four_messages() -> Writer {
    let mut writer = Writer::with(true, false);
    (0..4).for_each(|_| writer.post(OCTETS));
    writer.peer.settle();
    writer
}

/// The rest of the cut message begins the next segment, and a message completes when the last octet of it is
/// acknowledged, not when the first one is.
// Requirements: MPA-4.5-03, MPA-A.1-01, RDMAP-5.5-07
#[test]
fn the_rest_of_a_cut_message_follows() {
    let mut writer = four_messages();
    let whole = OCTETS as usize;
    assert_eq!(sizes(&mut writer), [vec![whole, whole, FIRST_PART], vec![REST, whole]]);
    writer.acknowledge(FIRST_SEGMENT);
    assert_eq!(completed(&writer), [0, 1], "of the third the rest is in flight");
    writer.acknowledge(FIRST_SEGMENT + 120 + 520);
    assert_eq!(completed(&writer), [2, 3]);
}

/// Both segments are lost, and built again as they were.
// Requirements: MPA-A.1-04
#[test]
fn a_cut_message_is_built_again_as_it_was() {
    let mut writer = four_messages();
    let sent: Vec<_> = writer.peer.sent.iter().filter(|sent| !sent.payload.is_empty()).cloned().collect();
    assert_eq!(sizes(&mut writer).len(), 2);
    for (sent, end) in sent.iter().zip([FIRST_SEGMENT, FIRST_SEGMENT + 120 + 520]) {
        writer.peer.pass_s(3);
        let again = writer.peer.sent.iter().find(|again| again.header.seq == sent.header.seq);
        assert_eq!(again.expect("a retransmission").payload, sent.payload);
        writer.acknowledge(end);
    }
    assert_eq!(completed(&writer), [0, 1, 2, 3]);
}
