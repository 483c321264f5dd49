//! Compares an expected segment with the received one.

use warpline_dataplane::wire::tcp::Flags;

use super::flow::core_octet;
use super::script::{Options, Payload, Segment};
use super::segment::{flags_text, options_text};

/// Milliseconds by which a timestamp may differ from the one a line names: timers run on a wheel.
const TIMESTAMP_TOLERANCE: u32 = 3;

/// Returns a description of each difference. Windows are compared only if the line names one.
pub fn differences(expected: &Segment, came: &Segment, octets: &[u8]) -> Vec<String> {
    let mut differences = Vec::new();
    let mut compare = |name: &str, same: bool, expected: String, came: String| {
        if !same {
            differences.push(format!("{name}: expected {expected}, came {came}"));
        }
    };
    let number = |value: Option<i64>| value.map_or("none".to_owned(), |value| value.to_string());
    compare("flow", expected.flow == came.flow, expected.flow.to_string(), came.flow.to_string());
    // A sender may set PSH freely (RFC 9293 §3.9.1): it is compared only if a line names it.
    let ignored = if expected.flags.contains(Flags::PSH) { Flags::empty() } else { Flags::PSH };
    let flags = expected.flags == came.flags - ignored;
    compare("flags", flags, flags_text(expected.flags), flags_text(came.flags));
    compare("seq", expected.seq == came.seq, expected.seq.to_string(), came.seq.to_string());
    let octets_differ = expected.octets == came.octets;
    compare("octets", octets_differ, expected.octets.to_string(), came.octets.to_string());
    compare("ack", expected.ack == came.ack, number(expected.ack), number(came.ack));
    if expected.window.is_some() {
        let window = |window: Option<u16>| number(window.map(i64::from));
        compare("win", expected.window == came.window, window(expected.window), window(came.window));
    }
    compare("urg", expected.urgent == came.urgent, expected.urgent.to_string(), came.urgent.to_string());
    compare("ECN bits of IP", expected.ecn == came.ecn, expected.ecn.to_string(), came.ecn.to_string());
    let options = options_match(&expected.options, &came.options);
    compare("options", options, options_text(&expected.options), options_text(&came.options));
    match &expected.payload {
        // For a part of an FPDU, only equality with the octets sent before is checked.
        Payload::Pattern | Payload::PartOfFpdu(_) => {}
        Payload::Literal(literal) => {
            let text = |octets: &[u8]| format!("\"{}\"", octets.escape_ascii());
            compare("payload", literal == octets, text(literal), text(octets));
        }
        Payload::Fpdu => {
            if let Err(error) = whole_fpdu(octets) {
                differences.push(format!("fpdu: {error}"));
            }
        }
    }
    differences
}

fn options_match(expected: &Options, came: &Options) -> bool {
    let same = |expected: Option<u32>, came: Option<u32>, tolerance: u32| match (expected, came) {
        (Some(expected), Some(came)) => expected.abs_diff(came) <= tolerance,
        (None, _) => true,
        (Some(_), None) => false,
    };
    let timestamps = match (expected.timestamps, came.timestamps) {
        (Some(one), Some(other)) => same(one.0, other.0, TIMESTAMP_TOLERANCE) && same(one.1, other.1, 0),
        (expected, came) => expected.is_none() && came.is_none(),
    };
    // `<...>` allows options that it does not name; options that it names must be there.
    let others = expected.and_others;
    let field = |named: bool, same: bool| same || (others && !named);
    field(expected.timestamps.is_some(), timestamps)
        && field(expected.mss.is_some(), expected.mss == came.mss)
        && field(expected.window_scale.is_some(), expected.window_scale == came.window_scale)
        && field(expected.sack_permitted, expected.sack_permitted == came.sack_permitted)
        && field(!expected.sack.is_empty(), expected.sack == came.sack)
}

/// Whether `octets` are one whole FPDU of an RDMA Write (RFC 5044 §4, RFC 5041 §4.1), its CRC and its payload
/// right. Written without the code under test.
fn whole_fpdu(octets: &[u8]) -> Result<(), String> {
    const OVERHEAD: usize = 2 + 14;
    let length = match octets {
        [high, low, ..] => usize::from(u16::from_be_bytes([*high, *low])),
        _ => return Err(format!("{} octets have no ULPDU_Length", octets.len())),
    };
    let padded = (2 + length).next_multiple_of(4);
    if padded + 4 != octets.len() || length < 14 {
        return Err(format!("a ULPDU of {length} octets does not make a segment of {}", octets.len()));
    }
    let crc = crc32c::crc32c(&octets[..padded]).to_le_bytes();
    if octets[padded..] != crc {
        return Err("the CRC is wrong".to_owned());
    }
    let mut to = [0; 8];
    to.copy_from_slice(&octets[8..OVERHEAD]);
    let to = u64::from_be_bytes(to) as usize;
    let payload = &octets[OVERHEAD..2 + length];
    if payload.iter().enumerate().any(|(index, octet)| *octet != core_octet(to + index)) {
        return Err(format!("the payload is not what is to go to {to}"));
    }
    Ok(())
}
