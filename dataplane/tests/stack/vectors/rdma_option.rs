//! Vectors of the TCP RDMA option: its forms, the formats of RIDs, and the segments of the examples of
//! draft-csapuntz-tcprdma-00 §4.

use warpline_dataplane::wire::tcp::{Header, Options, Timestamps};
use warpline_dataplane::wire::tcp_rdma::{CifsRid, DEFAULT_KIND, HttpRid, NfsRid, RdmaOption, Rid, Transfer};

use super::{Record, load};

/// Returns the option that is all of a record, and asserts that it has the same octets again: alone, and in a
/// TCP header with and without timestamps.
fn option(Record { label, octets }: &Record) -> RdmaOption {
    let (head, body) = octets.split_at(2);
    assert_eq!(head, [DEFAULT_KIND, octets.len() as u8], "{label}");
    let option = RdmaOption::parse(body).expect(label);
    let mut out = [1; RdmaOption::MAX_LEN];
    let len = option.emit(DEFAULT_KIND, &mut out);
    assert_eq!(len, octets.len().next_multiple_of(4), "{label}");
    assert_eq!(out[..octets.len()], octets[..], "{label}");
    assert!(out[octets.len()..].iter().all(|octet| *octet == 1), "NOPs: {label}");
    for timestamps in [None, Some(Timestamps { value: 1, echo: 2 })] {
        let options = Options { timestamps, rdma: Some(option), ..Options::default() };
        let header = Header { options, ..Header::default() };
        let mut segment = vec![0xee; header.header_len()];
        header.emit(&mut segment);
        assert!(segment.ends_with(&out[..len]), "the last option: {label}");
        assert_eq!((segment.len() - len) % 4, 0, "aligned: {label}");
        assert_eq!(Header::parse(&segment), Ok((header, segment.len())), "{label}");
    }
    option
}

fn transfer(record: &Record) -> Transfer {
    match option(record) {
        RdmaOption::Transfer(transfer) => transfer,
        other => panic!("{}: {other:?}", record.label),
    }
}

// Requirements: TRO-3.1-01, TRO-3.1-02, TRO-3.1.1-02, TRO-3.1.3-02, TRO-3.1.4-03, TRO-3.1.6-02
#[test]
fn tro_formats() {
    let [offer, aligned, known, total, failed_read] = load("tro-formats");
    assert_eq!(option(&offer), RdmaOption::Permitted);
    assert_eq!(option(&aligned), RdmaOption::Aligned { message_aligned: true, unsolicited: false });
    let expected = Transfer {
        rid: Rid::new(0x2abb_ccdd_eeff).unwrap(),
        message_aligned: false,
        unsolicited: true,
        buffer_offset: 1000,
        data_offset: 20,
        data_octets: 512,
        total_octets: None,
    };
    assert_eq!(transfer(&known), expected);
    assert_eq!(transfer(&total), Transfer { total_octets: Some(4000), ..expected });
    let failed = Transfer {
        rid: NfsRid::of_one_operation(0x1234_5678).into(),
        message_aligned: true,
        unsolicited: false,
        buffer_offset: 0,
        data_offset: 0,
        data_octets: 0,
        total_octets: Some(0),
    };
    assert_eq!(transfer(&failed_read), failed);
    assert!(failed.fits(0));
}

// Requirements: TRO-5.1.1-01, TRO-5.2.1-01, TRO-5.3.1-01
#[test]
fn tro_rids() {
    let [nfs, http, cifs] = load("tro-rids");
    let rids = [&nfs, &http, &cifs].map(|record| transfer(record).rid);
    let expected: [Rid; 3] = [
        NfsRid { xid: 0x1234_5678, operation: 2 }.into(),
        HttpRid { request_index: 3 }.into(),
        CifsRid { operation: 1, pid: 0x00aa, mid: 0x0bb0 }.into(),
    ];
    assert_eq!(rids, expected);
    assert_eq!(NfsRid::from(rids[0]), NfsRid { xid: 0x1234_5678, operation: 2 });
    assert_eq!(HttpRid::from(rids[1]), HttpRid { request_index: 3 });
    assert_eq!(CifsRid::from(rids[2]), CifsRid { operation: 1, pid: 0x00aa, mid: 0x0bb0 });
}

/// A row of a table: sequence number, payload, buffer offset, data offset, data length, A.
type Row = (u32, u16, u32, u16, u16, bool);

fn follows_the_table<const ROWS: usize>(file: &str, rows: [Row; ROWS]) {
    let records = load::<ROWS>(file);
    let (mut data_octets, mut stream_octets) = (0, 0);
    for (record, (seq, payload, buffer_offset, data_offset, octets, message_aligned)) in
        records.iter().zip(rows)
    {
        assert!(record.label.contains(&format!("seq {seq}, payload {payload},")), "{}", record.label);
        let expected = Transfer {
            rid: NfsRid::of_one_operation(0x1234_5678).into(),
            message_aligned,
            unsolicited: false,
            buffer_offset,
            data_offset,
            data_octets: octets,
            total_octets: Some(4000),
        };
        let transfer = transfer(record);
        assert_eq!(transfer, expected, "{}", record.label);
        assert!(transfer.fits(payload.into()), "{}", record.label);
        assert_eq!((seq, buffer_offset), (stream_octets, data_octets), "{}", record.label);
        stream_octets += u32::from(payload);
        data_octets += u32::from(octets);
    }
    assert_eq!((data_octets, stream_octets), (4000, 4300));
}

// Requirements: TRO-3.1.5-01, TRO-4-01, TRO-4-03
#[test]
fn tro_table1() {
    follows_the_table(
        "tro-table1",
        [
            (0, 1000, 0, 100, 900, true),
            (1000, 1000, 900, 0, 1000, false),
            (2000, 200, 1900, 0, 100, false),
            (2200, 1000, 2000, 100, 900, true),
            (3200, 1000, 2900, 0, 1000, false),
            (4200, 100, 3900, 0, 100, false),
        ],
    );
}

/// The header of the second section is sent with the trailer of the first.
// Requirements: TRO-4-02, TRO-4-03
#[test]
fn tro_table2() {
    follows_the_table(
        "tro-table2",
        [
            (0, 1000, 0, 100, 900, true),
            (1000, 1000, 900, 0, 1000, false),
            (2000, 300, 1900, 0, 100, false),
            (2300, 1000, 2000, 0, 1000, false),
            (3300, 1000, 3000, 0, 1000, false),
        ],
    );
}
