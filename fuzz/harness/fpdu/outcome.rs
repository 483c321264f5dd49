//! The expected result of a stream: the oracle reads it in order, and once more each FPDU by itself, like a
//! receiver that finds it by a Marker and may place it out of order.

use warpline_dataplane::mpa::MpaError;
use warpline_dataplane::qp::error::StreamError;
use warpline_dataplane::qp::work::Status;

use super::link::{Link, UNTOUCHED};
use super::mpa_reference::{Fault, Receiver};
use super::speech::{Place, RECEIVE_OCTETS, RECEIVES, SINK_OCTETS, Speech};

/// The expected result of a stream.
pub struct Outcome {
    /// ULPDUs in order, up to the fault.
    pub delivered: Vec<Vec<u8>>,
    pub fault: Option<Fault>,
    /// The stream ends inside an FPDU.
    inside: bool,
    /// With Markers: where the oracle stopped, a ULPDU_Length announces more octets than its FPDU has. A
    /// receiver that has placed the octets after it detects at once that Markers and length disagree
    /// (MPA-8-04); any other receiver waits for the CRC.
    overlong: bool,
    /// The ULPDU of each FPDU by itself, if it is valid.
    alone: Vec<Option<Vec<u8>>>,
}

impl Outcome {
    pub fn of(speech: &Speech) -> Self {
        let stream = speech.mode.stream();
        let mut receiver = Receiver::new(stream);
        let (mut delivered, mut fault) = (Vec::new(), None);
        for octet in &speech.octets {
            match receiver.take(*octet) {
                Ok(Some(received)) => delivered.push(received.ulpdu),
                Ok(None) => {}
                Err(found) => {
                    fault = Some(found);
                    break;
                }
            }
        }
        let alone = speech.fpdus.iter().map(|meant| {
            let mut receiver = Receiver::at(stream, stream.start.wrapping_add(meant.start as u32));
            let octets = &speech.octets[meant.start..meant.end];
            octets
                .iter()
                .find_map(|octet| receiver.take(*octet).transpose())?
                .ok()
                .map(|received| received.ulpdu)
        });
        let alone = alone.collect();
        let overlong = speech.mode.markers
            && speech.fpdus.get(delivered.len()).is_some_and(|last| speech.is_overlong(last));
        Self { delivered, fault, inside: receiver.inside(), overlong, alone }
    }

    /// Compares with the core's result.
    ///
    /// # Panics
    ///
    /// If the core's result differs.
    pub fn check(&self, link: &mut Link, speech: &Speech) {
        let failed = link.failed();
        let expected = self.fault.map(|fault| match fault {
            Fault::Crc => StreamError::Mpa(MpaError::Crc),
            Fault::Marker => StreamError::Mpa(MpaError::Marker),
        });
        let found_by_marker = self.overlong && failed == Some(StreamError::Mpa(MpaError::Marker));
        assert!(failed == expected || found_by_marker, "{failed:?}, not {expected:?}: {speech:?}");
        if failed.is_none() {
            assert_eq!(link.received(), speech.octets.len(), "not all was taken: {speech:?}");
            link.finish(speech.octets.len());
            let ended = self.inside.then_some(StreamError::Mpa(MpaError::TcpClosed));
            assert_eq!(link.failed(), ended, "after FIN: {speech:?}");
        }
        self.check_completions(link, speech);
        self.check_memory(link, speech);
    }

    /// Each Send that is whole was delivered, in order, and nothing else.
    fn check_completions(&self, link: &Link, speech: &Speech) {
        let meant = speech.fpdus.iter().take(self.delivered.len());
        let sends = meant.filter(|meant| matches!(meant.place, Place::Inbox { .. }));
        let mut wanted = Vec::new();
        let mut octets = 0;
        for (meant, ulpdu) in sends.zip(self.sent()) {
            octets += ulpdu.len() - meant.header;
            if meant.last {
                wanted.push(octets as u32);
                octets = 0;
            }
        }
        let completions = link.completions();
        let delivered: Vec<_> =
            completions.iter().take_while(|done| done.status == Status::Success).collect();
        let lengths: Vec<_> = delivered.iter().map(|done| done.byte_len).collect();
        assert_eq!(lengths, wanted, "{speech:?}");
        assert!(completions.iter().zip(0..).all(|(done, id)| done.id == id), "{completions:?}");
        let flushed = &completions[delivered.len()..];
        assert!(flushed.iter().all(|done| done.status != Status::Success), "{completions:?}");
    }

    /// The ULPDUs delivered that are segments of Sends: they have no T bit.
    fn sent(&self) -> impl Iterator<Item = &Vec<u8>> {
        self.delivered.iter().filter(|ulpdu| ulpdu[0] & 0x80 == 0)
    }

    /// Delivered octets are in their place, undelivered ones may be, and everything else is unchanged.
    fn check_memory(&self, link: &Link, speech: &Speech) {
        let untouched = || [vec![UNTOUCHED; SINK_OCTETS], vec![UNTOUCHED; RECEIVES * RECEIVE_OCTETS]];
        let (mut least, mut most) = (untouched(), untouched());
        for (index, meant) in speech.fpdus.iter().enumerate() {
            let (which, at) = match meant.place {
                Place::Sink { offset } => (0, offset),
                Place::Inbox { receive, offset } => (1, receive * RECEIVE_OCTETS + offset),
            };
            let delivered = self.delivered.get(index);
            if let Some(ulpdu) = delivered.or(self.alone[index].as_ref()) {
                let payload = &ulpdu[meant.header..];
                most[which][at..at + payload.len()].copy_from_slice(payload);
                if delivered.is_some() {
                    least[which][at..at + payload.len()].copy_from_slice(payload);
                }
            }
        }
        for (which, found) in [link.sink(), link.inbox()].into_iter().enumerate() {
            let allowed = least[which].iter().zip(&most[which]);
            let wrong =
                found.iter().zip(allowed).position(|(octet, (least, most))| octet != least && octet != most);
            assert_eq!(wrong, None, "octets of the sink, or of the inbox ({which}): {speech:?}");
        }
    }
}
