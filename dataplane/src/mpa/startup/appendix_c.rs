//! RFC 5044 appendix C: who gets along with whom, figure by figure.

use super::*;

/// The three types of RNIC (figure 14).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Rnic {
    Rdmac,
    NonPermissive,
    Permissive,
}

use Rnic::{NonPermissive, Permissive, Rdmac};

impl Rnic {
    const fn permissive(self) -> bool {
        matches!(self, Permissive)
    }

    /// What it asks for. RDMA Consortium endpoints leave no choice (RDMAC-C.2.4-01), the others begin with
    /// revision 1 (RDMAC-C.2.5-01).
    const fn request(self, markers: bool) -> StartupFrame<'static> {
        let revision = if matches!(self, Rdmac) { 0 } else { 1 };
        frame(Kind::Request, markers, revision)
    }

    /// Its Reply, and whether it then goes on.
    const fn reply(self, request: &StartupFrame<'_>, markers: bool) -> (StartupFrame<'static>, bool) {
        if matches!(self, Rdmac) {
            // Whatever it is asked. With revision 1 it goes on, and it is for the Initiator to adapt or to
            // close.
            return (frame(Kind::Reply, true, 0), true);
        }
        let Answer { reply, close } = answer(request, Offer { markers, crc: true }, self.permissive());
        (reply, !close)
    }
}

const fn frame(kind: Kind, markers: bool, revision: u8) -> StartupFrame<'static> {
    StartupFrame { kind, markers, crc: true, rejected: false, enhanced: false, revision, private_data: b"" }
}

/// What both ends make of it, in the words of the figures: version, and Markers in the receive direction of
/// Initiator and Responder.
fn met(initiator: (Rnic, bool), responder: (Rnic, bool)) -> String {
    let request = initiator.0.request(initiator.1);
    let (reply, goes_on) = responder.0.reply(&request, responder.1);
    if reply.markers != responder.1 {
        return "N/A".into();
    }
    if !goes_on || fit(&request, &reply, initiator.0.permissive()) != Fit::Together {
        return "close".into();
    }
    let (here, there) = (Agreement::of(&request, &reply), Agreement::of(&reply, &request));
    // The RDMA Consortium's end operates in one mode, whatever the frames say.
    let fixed = Agreement { markers_sent: true, markers_received: true, crc: true, version: 0 };
    let here = if initiator.0 == Rdmac { fixed } else { here };
    let there = if responder.0 == Rdmac { fixed } else { there };
    assert_eq!(here.version, there.version, "RDMAC-C.1-02");
    assert_eq!((here.markers_sent, here.markers_received), (there.markers_received, there.markers_sent));
    assert!(here.crc && there.crc, "RDMAC-C.1-04");
    let markers = |on| u8::from(on);
    format!("V={} M={}/{}", here.version, markers(here.markers_received), markers(there.markers_received))
}

/// Compares the cells of a figure: a row for each Initiator, a column for each Responder.
fn compare<const N: usize>(rows: &[((Rnic, bool), [&str; N])], columns: [(Rnic, bool); N]) {
    for (initiator, cells) in rows {
        for (responder, cell) in columns.into_iter().zip(cells) {
            assert_eq!(met(*initiator, responder), *cell, "{initiator:?} with {responder:?}");
        }
    }
}

/// Figure 15: RDMAC-C.2-01, RDMAC-C.2-02, RDMAC-C.2-03, RDMAC-C.2.1-01, RDMAC-C.2.2-01
#[test]
fn figure_15() {
    compare(
        &[
            ((Rdmac, true), ["V=0 M=1/1", "close", "close"]),
            ((NonPermissive, false), ["close", "V=1 M=0/0", "V=1 M=0/1"]),
            ((NonPermissive, true), ["close", "V=1 M=1/0", "V=1 M=1/1"]),
        ],
        [(Rdmac, true), (NonPermissive, false), (NonPermissive, true)],
    );
}

/// Figure 16; ambiguity A-22.
// Requirements: RDMAC-C.1-05, RDMAC-C.2.3-01 to RDMAC-C.2.3-03, RDMAC-C.2.4-02, RDMAC-C.2.5-01
#[test]
fn figure_16() {
    compare(
        &[
            ((Rdmac, true), ["V=0 M=1/1", "N/A", "V=0 M=1/1"]),
            ((Permissive, false), ["V=0 M=1/1", "V=1 M=0/0", "V=1 M=0/1"]),
            ((Permissive, true), ["V=0 M=1/1", "V=1 M=1/0", "V=1 M=1/1"]),
        ],
        [(Rdmac, true), (Permissive, false), (Permissive, true)],
    );
}

/// Figure 17: RDMAC-C.3-01
#[test]
fn figure_17() {
    let without = ["V=1 M=0/0", "V=1 M=0/1", "V=1 M=0/0", "V=1 M=0/1"];
    let with = ["V=1 M=1/0", "V=1 M=1/1", "V=1 M=1/0", "V=1 M=1/1"];
    compare(
        &[
            ((NonPermissive, false), without),
            ((NonPermissive, true), with),
            ((Permissive, false), without),
            ((Permissive, true), with),
        ],
        [(NonPermissive, false), (NonPermissive, true), (Permissive, false), (Permissive, true)],
    );
}
