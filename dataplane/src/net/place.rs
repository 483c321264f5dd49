//! The place of a core among those of its device, and the rings between them.
//!
//! A ring leads from each core to each other one, for frames to the device's own addresses. Between the host
//! core and each replica a ring leads each way, for notes (`notes`). Each ring has one producer and one
//! consumer. At the end of its poll a core announces what it has pushed, by a bit for itself in the `Inbox`
//! of each receiver (`inbox`). A core that nothing was sent to loads one word.
//!
//! Of four cores, core 2 sends a frame to core 1: the frame lies in the ring from 2 to 1, and bit 2 in the
//! inbox of core 1 is set. Core 1 clears the bit, and looks into its rings from core 2.

use std::sync::Arc;

use crossbeam::utils::CachePadded;
use rtrb::{Consumer, Producer, RingBuffer};

use super::notes::{HostNote, ReplicaNote};
use crate::inbox::{InboxOwner, Senders};
use crate::limits;
use crate::memory::Claims;
use crate::qp::shared::Doorbells;
use crate::steering::Steering;
use crate::tally;
use crate::time::Instant;
use crate::wire::flow::Flow;

/// The number of the host core.
pub(super) const HOST_CORE: u8 = 0;

/// Which cores have put something into the rings to one core, and how it is woken.
#[derive(Debug)]
struct Inbox {
    senders: Senders,
    owner: InboxOwner,
}

impl Inbox {
    fn new() -> Self {
        Self { senders: Senders::none(), owner: InboxOwner::default() }
    }

    /// Has the core woken by its doorbells' waker, if they have one: else it does not sleep. Returns false if
    /// it has another one already.
    fn wake_by(&self, doorbells: &Doorbells) -> bool {
        doorbells.waker().is_none_or(|waker| self.owner.wake_by(waker))
    }

    /// Marks that the rings from `sender` have something, and wakes the core.
    fn ring(&self, sender: u8) {
        self.owner.announce(&self.senders, sender);
    }
}

/// The rings of notes of a core.
#[derive(Debug)]
enum NoteRings {
    /// Of the host core: those to and from each replica, core 1 first.
    HostCore(Vec<(Producer<HostNote>, Consumer<ReplicaNote>)>),
    /// Of a replica.
    Replica(Producer<ReplicaNote>, Consumer<HostNote>),
}

/// The rings of frames between a core and another.
#[derive(Debug)]
struct FrameRings<F> {
    to: Producer<F>,
    from: Consumer<F>,
}

/// The place of a core among those of its device, whose frames are of type `F`.
#[derive(Debug)]
pub struct Place<F> {
    core: u8,
    steering: Arc<Steering>,
    /// What the cores may grant; `None` if there is one core.
    claims: Option<Arc<Claims>>,
    /// The core's own.
    inbox: Arc<CachePadded<Inbox>>,
    /// Those of all cores.
    inboxes: Arc<[Arc<CachePadded<Inbox>>]>,
    notes: NoteRings,
    /// By the number of the other core; none for itself.
    frames: Vec<Option<FrameRings<F>>>,
    /// How many frames may be on their way to another core.
    frames_max: usize,
    /// Cores to which what was pushed is still to be announced.
    unrung: u64,
    /// Senders whose rings may have more.
    left: u64,
    /// The sender whose frames were taken last.
    last: u8,
    /// When notes are pushed again that have found a ring full.
    retry_at: Instant,
}

impl<F> Place<F> {
    /// Returns the places of all cores of a device, core 0 first.
    ///
    /// # Panics
    ///
    /// If `steering` has more than [`limits::CORES_MAX`] cores.
    pub fn all(steering: &Arc<Steering>) -> Vec<Self> {
        let cores = steering.cores();
        assert!(usize::from(cores) <= limits::CORES_MAX, "{cores} cores");
        let claims = (cores > 1).then(|| Arc::new(Claims::new(limits::REGIONS_PER_CORE)));
        let inboxes: Arc<[_]> = (0..cores).map(|_| Arc::new(CachePadded::new(Inbox::new()))).collect();
        note_rings(cores)
            .into_iter()
            .zip(frame_rings(cores))
            .zip(0..)
            .map(|((notes, frames), core)| Self {
                core,
                steering: steering.clone(),
                claims: claims.clone(),
                inbox: inboxes[usize::from(core)].clone(),
                inboxes: inboxes.clone(),
                notes,
                frames,
                frames_max: limits::LOOPED_FRAMES_BETWEEN_CORES,
                unrung: 0,
                left: 0,
                last: 0,
                retry_at: Instant::NEVER,
            })
            .collect()
    }

    /// Returns the number of the core.
    pub const fn core(&self) -> u8 {
        self.core
    }

    /// Returns how many cores the device has.
    pub fn cores(&self) -> u8 {
        self.steering.cores()
    }

    /// Returns who owns which flow.
    pub fn steering(&self) -> &Steering {
        &self.steering
    }

    /// Returns what the cores may grant of the memory that they have; `None` if there is one core.
    pub const fn claims(&self) -> Option<&Arc<Claims>> {
        self.claims.as_ref()
    }

    /// Returns true unless the core is the host core.
    pub const fn is_replica(&self) -> bool {
        self.core != HOST_CORE
    }

    /// Returns the owner of a flow, if that is another core.
    pub(super) fn other_owner(&self, flow: &Flow) -> Option<u8> {
        Some(self.steering.owner(flow)).filter(|owner| *owner != self.core)
    }

    /// Has the other cores wake this one, whose doorbells these are.
    pub(crate) fn wake_by(&self, doorbells: &Doorbells) {
        let is_only = self.inbox.wake_by(doorbells);
        debug_assert!(is_only, "core {} is made once", self.core);
    }

    /// Limits the frames on their way to other cores, of a device that has `device_frames`, to a quarter of
    /// these.
    pub(super) fn limit_frames(&mut self, device_frames: usize) {
        let others = usize::from(self.cores()).saturating_sub(1).max(1);
        self.frames_max = (device_frames / 4 / others).clamp(1, limits::LOOPED_FRAMES_BETWEEN_CORES);
    }

    /// Returns how many frames a connection may add to those on their way to `core`. A quarter is left to
    /// replies, which nothing sends again. To a core that has ended any number may go: each is dropped, and
    /// TCP gives the peer up.
    pub(super) fn room(&self, core: u8) -> usize {
        let most = self.frames_max - self.frames_max / 4;
        match self.frames_to(core) {
            Some(ring) if !ring.is_abandoned() => most.saturating_sub(in_ring(ring)),
            _ => most,
        }
    }

    fn frames_to(&self, core: u8) -> Option<&Producer<F>> {
        self.frames.get(usize::from(core))?.as_ref().map(|rings| &rings.to)
    }

    /// Sends a frame to an address of the device to the core that owns its flow.
    ///
    /// # Errors
    ///
    /// `frame`, when there is no room, or that core has ended.
    pub(super) fn send_frame(&mut self, core: u8, frame: F) -> Result<(), F> {
        let Some(Some(rings)) = self.frames.get_mut(usize::from(core)) else { return Err(frame) };
        if in_ring(&rings.to) >= self.frames_max || rings.to.is_abandoned() {
            return Err(frame);
        }
        rings.to.push(frame).map_err(|rtrb::PushError::Full(frame)| frame)?;
        self.record_push(core);
        Ok(())
    }

    /// Notes that a ring to `core` has more, which is to be announced.
    fn record_push(&mut self, core: u8) {
        tally::record_shared_write();
        self.unrung |= 1 << core;
    }

    /// Takes frames to the device's addresses from other cores, as many as `burst` has room for. The senders
    /// have their turns.
    pub(super) fn dequeue_frames(&mut self, burst: &mut Vec<F>) {
        let cores = self.frames.len();
        for step in 1..=cores {
            let sender = (usize::from(self.last) + step) % cores;
            if self.left & 1 << sender == 0 {
                continue;
            }
            let Some(rings) = &mut self.frames[sender] else { continue };
            let room = burst.capacity() - burst.len();
            burst.extend((0..room).map_while(|_| rings.from.pop().ok()));
            if burst.len() == burst.capacity() {
                self.last = sender as u8;
                break;
            }
        }
        self.forget_empty();
    }

    /// Forgets the senders whose rings are empty. What they push now, they ring for.
    fn forget_empty(&mut self) {
        let mut senders = self.left;
        while senders != 0 {
            let sender = senders.trailing_zeros() as usize;
            senders &= senders - 1;
            let has_frames = self.frames[sender].as_ref().is_some_and(|rings| !rings.from.is_empty());
            let has_notes = match &self.notes {
                NoteRings::HostCore(rings) => sender > 0 && !rings[sender - 1].1.is_empty(),
                NoteRings::Replica(_, from) => sender == usize::from(HOST_CORE) && !from.is_empty(),
            };
            if !has_frames && !has_notes {
                self.left &= !(1 << sender);
            }
        }
    }

    /// Returns true if another core may have sent something.
    #[inline]
    pub(super) fn may_have_input(&self) -> bool {
        self.left != 0 || self.inbox.senders.any()
    }

    /// Collects the bits of those that have sent something.
    pub(super) fn collect_senders(&mut self) {
        self.left |= self.inbox.senders.take();
    }

    /// Hands `serve` the notes of replicas, each with its sender: of each sender its share of
    /// [`limits::NOTES_PER_POLL`]. For the host core.
    pub(super) fn dequeue_replica_notes(&mut self, mut serve: impl FnMut(u8, ReplicaNote)) {
        let NoteRings::HostCore(rings) = &mut self.notes else { return };
        let share = (limits::NOTES_PER_POLL / rings.len().max(1)).max(1);
        for ((_, from), sender) in rings.iter_mut().zip(1..) {
            if self.left & 1 << sender != 0 {
                (0..share).map_while(|_| from.pop().ok()).for_each(|note| serve(sender, note));
            }
        }
    }

    /// Hands `serve` the notes of the host core. For a replica.
    pub(super) fn dequeue_host_notes(&mut self, serve: impl FnMut(HostNote)) {
        let NoteRings::Replica(_, from) = &mut self.notes else { return };
        (0..limits::NOTES_PER_POLL).map_while(|_| from.pop().ok()).for_each(serve);
    }

    /// Sends a note to a replica. Returns false if there is no room: it is to be sent later. A replica that
    /// has ended needs none.
    pub(super) fn send_to_replica(&mut self, core: u8, note: HostNote) -> bool {
        let NoteRings::HostCore(rings) = &mut self.notes else { return true };
        let Some((to, _)) = rings.get_mut(usize::from(core).wrapping_sub(1)) else { return true };
        if to.push(note).is_err() {
            return to.is_abandoned();
        }
        self.record_push(core);
        true
    }

    /// Sends a note to the host core. Returns false if there is no room: it is to be sent later.
    pub(super) fn send_to_host_core(&mut self, note: ReplicaNote) -> bool {
        let NoteRings::Replica(to, _) = &mut self.notes else { return true };
        if to.push(note).is_err() {
            return to.is_abandoned();
        }
        self.record_push(HOST_CORE);
        true
    }

    /// Returns true if notes that have found no room are to be pushed again.
    #[inline]
    pub(super) fn is_retry_due(&self, now: Instant) -> bool {
        self.retry_at <= now
    }

    /// Returns true if notes that have found no room are to be pushed again, but not yet.
    pub(super) fn awaits_retry(&self, now: Instant) -> bool {
        self.retry_at != Instant::NEVER && !self.is_retry_due(now)
    }

    /// Records whether there are notes that have found no room, which are pushed again after a while.
    pub(super) fn end_notes(&mut self, now: Instant, all_sent: bool) {
        self.retry_at = if all_sent { Instant::NEVER } else { now + limits::NOTE_RETRY_NS };
    }

    /// Returns true if something was pushed that is not [announced](Self::ring).
    #[inline]
    pub(super) const fn has_to_ring(&self) -> bool {
        self.unrung != 0
    }

    /// Announces what was pushed to the cores that receive it.
    pub(super) fn ring(&mut self) {
        while self.unrung != 0 {
            let core = self.unrung.trailing_zeros();
            self.unrung &= self.unrung - 1;
            self.inboxes[core as usize].ring(self.core);
        }
    }

    /// Returns when the core has something to receive from others, or to send them again.
    pub(super) fn next_due(&self) -> Instant {
        if self.may_have_input() { Instant::ZERO } else { self.retry_at }
    }
}

/// Returns how many items a ring has.
fn in_ring<T>(ring: &Producer<T>) -> usize {
    ring.buffer().capacity() - ring.slots()
}

/// Returns the rings of notes of each core.
fn note_rings(cores: u8) -> Vec<NoteRings> {
    let (host_core, mut all): (Vec<_>, Vec<_>) = (1..cores)
        .map(|_| {
            let (to_replica, from_host_core) = RingBuffer::new(limits::NOTES_BETWEEN_CORES);
            let (to_host_core, from_replica) = RingBuffer::new(limits::NOTES_BETWEEN_CORES);
            ((to_replica, from_replica), NoteRings::Replica(to_host_core, from_host_core))
        })
        .unzip();
    all.insert(0, NoteRings::HostCore(host_core));
    all
}

/// Returns the rings of frames of each core, each by the number of the other core.
fn frame_rings<F>(cores: u8) -> Vec<Vec<Option<FrameRings<F>>>> {
    let cores = usize::from(cores);
    let mut all: Vec<Vec<_>> = (0..cores).map(|_| (0..cores).map(|_| None).collect()).collect();
    for (one, other) in (0..cores).flat_map(|one| (0..one).map(move |other| (one, other))) {
        let (to_other, from_one) = RingBuffer::new(limits::LOOPED_FRAMES_BETWEEN_CORES);
        let (to_one, from_other) = RingBuffer::new(limits::LOOPED_FRAMES_BETWEEN_CORES);
        all[one][other] = Some(FrameRings { to: to_other, from: from_other });
        all[other][one] = Some(FrameRings { to: to_one, from: from_one });
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::notes::AddressStates;
    use crate::steering::toeplitz::KEY_BYTES;
    use crate::wire::ethernet::MacAddress;

    const NOTE: HostNote = HostNote::Addresses(AddressStates { assigned: 1, given_up: 0 });

    /// Places whose frames are numbers.
    fn places(cores: u8) -> Vec<Place<u32>> {
        Place::all(&Arc::new(Steering::with_key(cores, 128, [0x6d; KEY_BYTES])))
    }

    /// The frames that a core takes in a poll.
    fn taken(place: &mut Place<u32>, most: usize) -> Vec<u32> {
        let mut burst = Vec::with_capacity(most);
        place.collect_senders();
        place.dequeue_frames(&mut burst);
        burst
    }

    #[test]
    fn a_frame_goes_to_the_core_it_is_sent_to() {
        let mut places = places(4);
        for from in 0..4 {
            for to in (0..4).filter(|to| *to != from) {
                places[usize::from(from)].send_frame(to, u32::from(from * 10 + to)).unwrap();
            }
        }
        assert!(
            places.iter().all(|place| !place.may_have_input()),
            "nothing is announced before the end of the poll"
        );
        places.iter_mut().for_each(Place::ring);
        for to in 0..4_u32 {
            let place = &mut places[to as usize];
            assert!(place.may_have_input() && place.next_due() == Instant::ZERO);
            let mut frames = taken(place, 32);
            frames.sort_unstable();
            let expected: Vec<u32> = (0..4).filter(|from| *from != to).map(|from| from * 10 + to).collect();
            assert_eq!(frames, expected);
            assert!(!place.may_have_input() && place.next_due() == Instant::NEVER);
        }
    }

    /// Of two senders with full rings, each has its turn.
    #[test]
    fn senders_take_turns() {
        let mut places = places(3);
        for from in [1_u8, 2] {
            let place = &mut places[usize::from(from)];
            while place.send_frame(0, from.into()).is_ok() {}
            place.ring();
        }
        let bursts: Vec<_> = (0..4).map(|_| taken(&mut places[0], 32)).collect();
        for (burst, from) in bursts.iter().zip([1, 2, 1, 2]) {
            assert_eq!(*burst, [from; 32]);
        }
        assert!(!places[0].may_have_input());
    }

    #[test]
    fn a_quarter_of_a_ring_is_left_to_replies() {
        let mut places = places(3);
        places[0].limit_frames(8 * 16);
        assert_eq!(places[0].room(1), 12);
        (0..12).for_each(|n| places[0].send_frame(1, n).unwrap());
        assert_eq!((places[0].room(1), places[0].room(2)), (0, 12));
        (12..16).for_each(|n| places[0].send_frame(1, n).unwrap());
        assert_eq!(places[0].send_frame(1, 16), Err(16), "16 in all");
        drop(places.remove(1));
        assert_eq!(places[0].send_frame(1, 17), Err(17), "the core has ended");
        assert_eq!(places[0].room(1), 12, "nothing waits for room that does not come");
    }

    #[test]
    fn notes_go_between_the_host_core_and_replicas() {
        let mut places = places(3);
        let address = [198, 18, 0, 2].into();
        let confirmed = ReplicaNote::Confirmed { address, mac: MacAddress([2; 6]) };
        for (core, note) in [(1, ReplicaNote::Wanted(address)), (2, confirmed)] {
            assert!(places[core].is_replica() && places[core].send_to_host_core(note));
            places[core].ring();
        }
        let mut notes = Vec::new();
        places[0].collect_senders();
        places[0].dequeue_replica_notes(|sender, note| notes.push((sender, note)));
        assert_eq!(notes, [(1, ReplicaNote::Wanted(address)), (2, confirmed)]);
        // The ring to a replica that does not poll fills, and keeps nothing from the other one.
        while places[0].send_to_replica(1, NOTE) {}
        assert!(places[0].send_to_replica(2, NOTE));
        places[0].ring();
        let mut count = 0;
        places[1].collect_senders();
        places[1].dequeue_host_notes(|note| count += usize::from(note == NOTE));
        assert_eq!(count, limits::NOTES_BETWEEN_CORES);
        drop(places.remove(2));
        for _ in 0..=limits::NOTES_BETWEEN_CORES {
            assert!(places[0].send_to_replica(2, NOTE), "a core that has ended needs none");
        }
    }

    /// No sender has more than its share of the notes of a poll, and what is left comes in the next.
    #[test]
    fn notes_of_a_poll_have_a_bound() {
        let mut places = places(64);
        for place in &mut places[1..] {
            for _ in 0..5 {
                assert!(place.send_to_host_core(ReplicaNote::Wanted([10, 0, 0, 1].into())));
            }
            place.ring();
        }
        let mut counts = Vec::new();
        while places[0].may_have_input() {
            let mut count = 0;
            places[0].collect_senders();
            places[0].dequeue_replica_notes(|_, _| count += 1);
            places[0].dequeue_frames(&mut Vec::with_capacity(1));
            counts.push(count);
        }
        assert_eq!(counts, [126, 126, 63]);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use loom::thread;

    use super::*;
    use crate::notify::Notify;
    use crate::sync::{AtomicBool, Ordering};
    use crate::waker::Waker;

    /// A bell that says whether it has rung.
    #[derive(Default)]
    struct Bell(AtomicBool);

    impl Notify for Bell {
        fn notify(&self) {
            self.0.store(true, Ordering::Release);
        }
    }

    /// The host core sends to a replica while that is made and goes to sleep: its last poll finds the bit, or
    /// its bell rings.
    #[test]
    fn a_core_that_is_made_meanwhile_is_woken() {
        loom::model(|| {
            let inbox = Arc::new(Inbox::new());
            let bell = Arc::new(Bell::default());
            let waker = Arc::new(Waker::new(bell.clone()));
            let sender = {
                let inbox = inbox.clone();
                thread::spawn(move || inbox.ring(HOST_CORE))
            };
            // The sender may run here. To register is no operation of the model, which switches at none else.
            let _ = inbox.senders.any();
            assert!(inbox.wake_by(&Doorbells::new(1).with_waker(waker.clone())));
            waker.arm();
            let is_seen = inbox.senders.take() != 0;
            sender.join().expect("it has rung");
            assert!(is_seen || bell.0.load(Ordering::Acquire), "it would sleep");
            assert_eq!(is_seen, !inbox.senders.any());
        });
    }
}
