//! Sends of one segment into one range of memory, the first of their receive: most messages of protocols that
//! exchange small ones.
//!
//! Such a segment begins and ends its message, so nothing of it is kept for later: a few comparisons, the
//! copy of its payload, and a completion. Everything else, and what is not valid, is left to
//! [`Receiver::on_ulpdu`], which says why; for a segment that is taken here, it would place the same octets
//! and change the same fields.

use super::Receiver;
use crate::memory::{Access, StagTable};
use crate::mpa::whole;
use crate::qp::shared::SharedQp;
use crate::qp::work::{Completion, Status};
use crate::rdmap::message::SEND_QUEUE;
use crate::wire::ddp::Untagged;
use crate::wire::rdmap::Control;

impl Receiver {
    /// Checks, places and delivers the Send in `ulpdu`, the next in stream order, if it is whole, invalidates
    /// nothing, and the first range of a posted receive takes it. Returns the octets of its payload; `None`,
    /// and nothing of the message is placed or delivered, if it is anything else, or not valid.
    // Requirements: DDP-4.3-08, DDP-5.4-01, DDP-7.1-02 to DDP-7.1-05
    #[inline]
    pub fn on_whole_send(
        &mut self,
        ulpdu: &whole::Ulpdu<'_>,
        shared: &SharedQp,
        stags: &StagTable,
    ) -> Option<usize> {
        let whole::Ulpdu::InOnePiece(ulpdu) = ulpdu else { return None };
        let header = Untagged::parse(ulpdu)?;
        let payload = ulpdu.get(Untagged::LEN..)?;
        let (control, invalidated) = Control::from_rsvd_ulp(header.rsvd_ulp);
        let is_whole = header.last && header.mo == 0 && self.current.is_none() && !payload.is_empty();
        let is_next = header.queue == SEND_QUEUE
            && header.msn == self.expected_msn
            && control.opcode.is_send()
            && invalidated.is_none()
            && self.expects(header.version, control);
        if !is_whole || !is_next || shared.shares_receives() {
            return None;
        }
        if self.buffers.is_empty() {
            self.take_posted(shared);
        }
        let request = self.buffers.front()?;
        let buffer = request.local.as_slice().first()?;
        if payload.len() > buffer.len as usize {
            return None;
        }
        let local = Access::LOCAL_WRITE;
        let target = stags.check(buffer.stag, shared.accessor(), local, buffer.to, payload.len()).ok()?;
        target.write(0, payload).then_some(())?;
        let completion = Completion {
            solicited: control.opcode.solicits_event(),
            ..request.completion(shared.number, Status::Success, payload.len() as u32)
        };
        self.buffers.pop_front();
        self.expected_msn = self.expected_msn.wrapping_add(1);
        shared.complete_receive(completion);
        Some(payload.len())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::memory::{Grant, ProtectionDomainId, Region, STag};
    use crate::mpa::Framing;
    use crate::mpa::receiver::FpduReceiver;
    use crate::qp::doorbells::Doorbells;
    use crate::qp::reads::Reads;
    use crate::qp::receiver::{ReceiveContext, Received};
    use crate::qp::shared::{CompletionRing, CompletionRings, QpState, QueueDepths};
    use crate::qp::work::{QpNumber, ReceiveRequest, Slice, SliceList};

    const PD: ProtectionDomainId = ProtectionDomainId(1);
    const BUFFERS: STag = STag::new(1, 1);
    const OCTETS: usize = 256;
    const DEPTH: usize = 4;

    struct World {
        shared: SharedQp,
        completions: Arc<CompletionRing>,
        stags: StagTable,
        region: Region,
        receiver: Receiver,
    }

    impl World {
        fn new() -> Self {
            let completions = Arc::new(CompletionRing::new(DEPTH));
            let rings = CompletionRings::shared(completions.clone());
            let depths = QueueDepths { send: 1, receive: DEPTH };
            let shared = SharedQp::new(QpNumber(7), PD, depths, rings, Arc::new(Doorbells::new(1)));
            shared.set_state(QpState::ReadyToSend);
            let mut stags = StagTable::with_slots(2);
            let region = Region::heap(OCTETS).expect("memory");
            stags.insert(BUFFERS, Grant::new(region.clone(), PD, 0, Access::LOCAL_WRITE)).expect("a slot");
            Self { shared, completions, stags, region, receiver: Receiver::new(DEPTH) }
        }

        /// Takes the segment the general way.
        fn take(&mut self, ulpdu: &[u8]) -> Result<Received, String> {
            let fpdu = fpdu(ulpdu);
            let framing = Framing { markers: false, crc: false };
            let whole = FpduReceiver::new(framing).next_in(&fpdu).expect("it is whole");
            let mut reads = Reads::default();
            let mut context =
                ReceiveContext { shared: &self.shared, stags: &mut self.stags, reads: &mut reads };
            let taken = self.receiver.on_ulpdu(&mut context, &&fpdu[..], &whole.located);
            taken.map_err(|fault| format!("{:?}", fault.error))
        }

        /// What has changed: the messages and buffers at hand, what was placed and what has completed.
        fn shown(&mut self) -> String {
            self.receiver.take_posted(&self.shared);
            let mut octets = [0; OCTETS];
            assert!(self.region.read(0, &mut octets));
            let completed: Vec<_> = std::iter::from_fn(|| self.completions.poll()).collect();
            format!("{:?} {completed:?} {octets:?}", self.receiver)
        }
    }

    fn fpdu(ulpdu: &[u8]) -> Vec<u8> {
        let mut fpdu = (ulpdu.len() as u16).to_be_bytes().to_vec();
        fpdu.extend(ulpdu);
        fpdu.resize(crate::mpa::fpdu::unmarked_len(ulpdu.len()), 0);
        fpdu
    }

    /// Returns the buffer of a receive: of one range, or two, or one that may not be written to.
    fn buffer(rng: &mut fastrand::Rng) -> SliceList {
        let at = rng.u32(..200);
        let slice = Slice { stag: BUFFERS, to: at.into(), len: rng.u32(50..=OCTETS as u32 - at) };
        match rng.u8(..150) {
            0..2 => SliceList::try_from(&[slice, slice][..]).expect("two fit"),
            2 => SliceList::from(Slice { stag: STag::new(1, 2), ..slice }),
            3 => SliceList::from(Slice { len: OCTETS as u32, ..slice }),
            _ => SliceList::from(slice),
        }
    }

    /// Returns the segment of the Send with the number `msn`, or one that differs from it in a field.
    fn segment(rng: &mut fastrand::Rng, msn: u32) -> Vec<u8> {
        // Plain, with a solicited event, the two that invalidate, and another kind.
        let opcode = match rng.u8(..120) {
            0 => 0x44,
            1 => 0x46,
            2 => 0x48,
            3..40 => 0x45,
            _ => 0x43,
        };
        let mut header =
            Untagged { last: true, version: 1, rsvd_ulp: [opcode, 0, 0, 9, 9], queue: 0, msn, mo: 0 };
        match rng.u8(..200) {
            0 => header.last = false,
            1 => header.version = 0,
            2 => header.rsvd_ulp[0] ^= 0xc0,
            3 => header.queue = rng.u32(1..5),
            4 => header.msn = rng.u32(..4),
            5 => header.mo = rng.u32(1..9),
            _ => {}
        }
        let mut ulpdu = vec![0; Untagged::LEN];
        header.emit(&mut ulpdu);
        // A Tagged header where an Untagged one is expected.
        ulpdu[0] |= if rng.u8(..100) == 0 { 0x80 } else { 0 };
        let octets = match rng.u8(..40) {
            0..4 => 0,
            4 => rng.usize(50..100),
            _ => rng.usize(1..50),
        };
        ulpdu.extend((0..octets).map(|_| rng.u8(1..)));
        ulpdu
    }

    /// What is taken here is taken as the general way takes it, and anything else changes nothing.
    #[test]
    fn a_whole_send_changes_what_the_general_way_would() {
        let mut taken = 0;
        for seed in 0..400 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let (mut here, mut general) = (World::new(), World::new());
            for id in 0..60 {
                while rng.u8(..8) > 0 {
                    let request = ReceiveRequest::new(id, buffer(&mut rng));
                    // Both queues are full at the same time.
                    let posted = [&here, &general].map(|world| world.shared.post_receive(request));
                    assert_eq!(posted[0].is_ok(), posted[1].is_ok());
                }
                let ulpdu = segment(&mut rng, here.receiver.expected_msn);
                let World { shared, stags, receiver, .. } = &mut here;
                if let Some(octets) = receiver.on_whole_send(&whole::Ulpdu::InOnePiece(&ulpdu), shared, stags)
                {
                    assert_eq!(general.take(&ulpdu), Ok(Received::Placed { octets }), "seed {seed}");
                    taken += 1;
                } else {
                    assert_eq!(here.shown(), general.shown(), "seed {seed}: {ulpdu:x?}");
                    let results = [here.take(&ulpdu), general.take(&ulpdu)];
                    assert_eq!(results[0], results[1]);
                    if results[0].is_err() {
                        break;
                    }
                }
                assert_eq!(here.shown(), general.shown(), "seed {seed}: {ulpdu:x?}");
            }
        }
        assert!(taken > 500, "{taken} whole Sends");
    }
}
