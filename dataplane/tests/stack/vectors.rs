//! Tests of the golden vectors: decoded and encoded again, and sent and received by the stack.
//! `tests/vectors/README.md` names the origin of each.

mod both_ways;
mod fpdu;
mod messages;
mod rdma_option;
mod stack;
mod startup;

use std::fs;
use std::path::{Path, PathBuf};

use warpline_dataplane::crc32c;
use warpline_dataplane::mpa::fpdu::{encode as encode_fpdu, wire_len};
use warpline_dataplane::mpa::receiver::{FpduReceiver, Ulpdu};
use warpline_dataplane::mpa::{Framing, MpaError};
use warpline_dataplane::wire::ddp::Header;
use warpline_dataplane::wire::rdmap::Control;

#[derive(Debug, PartialEq)]
pub struct Record {
    pub label: String,
    pub octets: Vec<u8>,
}

/// Reads the records of a vector file. A line that is neither a comment, nor a record's opening line, nor
/// octets is an error, and so is a record with a wrong number of octets.
fn records(text: &str) -> Result<Vec<Record>, String> {
    let mut records: Vec<(Record, usize)> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let error = |what: &str| format!("line {}: {what}: {line}", index + 1);
        if line.starts_with('#') {
            continue;
        }
        if let Some(opening) = line.strip_prefix("@ ") {
            let (label, len) = opening.rsplit_once("  len=").ok_or_else(|| error("no length"))?;
            let len = len.parse().map_err(|_| error("no number"))?;
            records.push((Record { label: label.to_owned(), octets: Vec::new() }, len));
            continue;
        }
        let (record, _) = records.last_mut().ok_or_else(|| error("octets without a record"))?;
        let octets: Vec<&str> = line.split(' ').collect();
        if octets.len() > 16 {
            return Err(error("more than sixteen octets"));
        }
        for octet in octets {
            let digits = octet.len() == 2 && octet.bytes().all(|digit| digit.is_ascii_hexdigit());
            let value = u8::from_str_radix(octet, 16).ok().filter(|_| digits);
            record.octets.push(value.ok_or_else(|| error("not an octet"))?);
        }
    }
    for (record, len) in &records {
        if record.octets.len() != *len {
            return Err(format!("{}: {} octets, not {len}", record.label, record.octets.len()));
        }
    }
    Ok(records.into_iter().map(|(record, _)| record).collect())
}

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors")
}

/// The octets of all records of a file, of which there must be `COUNT`.
pub fn load<const COUNT: usize>(file: &str) -> [Record; COUNT] {
    let text = fs::read_to_string(directory().join(file).with_extension("hex")).expect(file);
    let records = records(&text).unwrap_or_else(|error| panic!("{file}: {error}"));
    records
        .try_into()
        .unwrap_or_else(|records: Vec<_>| panic!("{file}: {} records, not {COUNT}", records.len()))
}

/// The ULPDU of the FPDU that is all of `octets`.
fn decode(octets: &[u8], position: u64, markers: bool, crc: bool) -> Result<Vec<u8>, MpaError> {
    let located = FpduReceiver::at(position, Framing { markers, crc }).next(&octets)?.expect("complete");
    assert_eq!(located.wire_len(), octets.len());
    let mut ulpdu = vec![0; located.ulpdu_len()];
    located.ulpdu(&octets).for_each_piece(0, |at, slice| {
        ulpdu[at..at + slice.len()].copy_from_slice(slice);
    });
    Ok(ulpdu)
}

fn encode(ulpdu: &[u8], position: u64, markers: bool, crc: bool) -> Vec<u8> {
    let (header, payload) = ulpdu.split_at(ulpdu.len().min(14));
    let mut out = vec![0xee; wire_len(position, ulpdu.len(), markers)];
    assert!(encode_fpdu(&mut out, position, Framing { markers, crc }, header, payload.len(), |at, out| {
        out.copy_from_slice(&payload[at..at + out.len()]);
        true
    }));
    out
}

/// The ULPDU of an FPDU with a CRC, which encodes to the same octets again.
fn both_ways(octets: &[u8], position: u64, markers: bool) -> Vec<u8> {
    let ulpdu = decode(octets, position, markers, true).expect("valid");
    assert_eq!(encode(&ulpdu, position, markers, true), octets);
    ulpdu
}

/// Returns the header and the payload of a DDP Segment, and asserts that header and RDMAP control field
/// encode to the same octets again.
fn segment(ulpdu: &[u8]) -> (Header, Control, &[u8]) {
    let prefix = &ulpdu[..ulpdu.len().min(Header::MAX_LEN)];
    let (header, header_len) = Header::parse(prefix, ulpdu.len()).expect("a header");
    let mut out = [0xee; Header::MAX_LEN];
    assert_eq!(header.emit(&mut out), header_len);
    assert_eq!(out[..header_len], ulpdu[..header_len]);
    let control = Control::from_octet(header.ulp_control());
    assert_eq!(control.to_octet(), ulpdu[1]);
    assert_eq!(control.opcode.is_tagged(), matches!(header, Header::Tagged(_)));
    (header, control, &ulpdu[header_len..])
}

fn counting(from: usize, len: usize) -> Vec<u8> {
    (from..from + len).map(|octet| octet as u8).collect()
}

#[test]
fn the_loader_is_strict() {
    let good = "# comment\n@ two  octets  len=2\n00 ff\n";
    assert_eq!(records(good).unwrap(), [Record { label: "two  octets".to_owned(), octets: vec![0, 255] }]);
    for bad in [
        "00\n",
        "@ no length\n00\n",
        "@ one  len=x\n00\n",
        "@ one  len=2\n00\n",
        "@ one  len=1\n00 00\n",
        "@ one  len=1\n0\n",
        "@ one  len=1\n+1\n",
        "@ one  len=1\n000\n",
        "@ one  len=2\n00  00\n",
        "@ one  len=1\n00\n\n",
        "@one  len=1\n00\n",
        "@ many  len=17\n00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00\n",
    ] {
        assert!(records(bad).is_err(), "{bad}");
    }
}

#[test]
fn every_file_loads() {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "hex") {
            let records = records(&fs::read_to_string(&path).unwrap());
            assert!(records.is_ok_and(|records| !records.is_empty()), "{}", path.display());
            files.push(path.file_stem().unwrap().to_str().unwrap().to_owned());
        }
    }
    files.sort();
    assert_eq!(files, both_ways::files(), "every file has its place in a table of this test");
}

// Requirements: DDP-3-06, MPA-4.4-01, MPA-4.4-11, C00-7.2-02
#[test]
fn crc32c_basic() {
    for record in load::<6>("crc32c-basic") {
        let (_, expected) = record.label.split_once("wire CRC = ").unwrap();
        let octets = crc32c::checksum(&record.octets).to_le_bytes();
        assert_eq!(
            u32::from_be_bytes(octets),
            u32::from_str_radix(expected, 16).unwrap(),
            "{}",
            record.label
        );
    }
}
