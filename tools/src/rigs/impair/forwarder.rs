//! The loop between the two devices.

use std::time::Duration;

use serde::Serialize;
use warpline::limits::RECEIVE_BURST_FRAMES;
use warpline::link::Device;
use warpline::link::fault::Fault;
use warpline::time::{Instant, MICROSECOND, MILLISECOND};

/// The longest nap while no frame is due: far below any delay worth injecting.
const NAP_NS: u64 = 50 * MICROSECOND;
/// Frames that may wait for a device with no room before no more are taken.
const WAITING_FRAMES: usize = 4 * RECEIVE_BURST_FRAMES;
/// Bursts moved one way before the clock is read again.
const BURSTS: usize = 4;

/// How well the forwarder kept its times. A poll that comes late delays every frame that was due.
#[derive(Serialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Punctuality {
    /// Polls made.
    pub polls: u64,
    /// Polls more than a millisecond after the one before: something else had the CPU.
    pub late_polls: u64,
    /// The longest time between two polls, in microseconds.
    pub latest_us: u64,
}

/// Two devices, and faults around the left one.
pub struct Forwarder<D: Device> {
    fault: Fault<D>,
    right: D,
    /// Frames from left to right, and from right to left, that a device had no room for.
    waiting: [Vec<D::Frame>; 2],
    burst: Vec<D::Frame>,
    last_poll: Instant,
    punctuality: Punctuality,
}

impl<D: Device> Forwarder<D> {
    /// Connects the two.
    pub fn new(fault: Fault<D>, right: D, now: Instant) -> Self {
        Self {
            fault,
            right,
            waiting: [Vec::new(), Vec::new()],
            burst: Vec::with_capacity(RECEIVE_BURST_FRAMES),
            last_poll: now,
            punctuality: Punctuality::default(),
        }
    }

    /// Returns the left device.
    pub fn fault(&self) -> &Fault<D> {
        &self.fault
    }

    /// Returns how closely the forwarder kept to the times of its frames.
    pub fn punctuality(&self) -> Punctuality {
        self.punctuality
    }

    /// Returns the number of frames that wait for a device to have room.
    pub fn waiting(&self) -> usize {
        self.waiting.iter().map(Vec::len).sum()
    }

    /// Moves the frames that are due. If there are none, returns how long the caller may sleep.
    pub fn poll(&mut self, now: Instant) -> Option<Duration> {
        self.record_time(now);
        let [to_right, to_left] = &mut self.waiting;
        let moved = shift(&mut self.fault, &mut self.right, to_right, &mut self.burst, now)
            + shift(&mut self.right, &mut self.fault, to_left, &mut self.burst, now);
        if moved > 0 {
            return None;
        }
        let due_ns = self.fault.next_arrival().map_or(u64::MAX, |due| due - now);
        (due_ns > 0).then(|| Duration::from_nanos(due_ns.min(NAP_NS)))
    }

    fn record_time(&mut self, now: Instant) {
        let gap_ns = now - self.last_poll;
        self.last_poll = now;
        let noted = &mut self.punctuality;
        noted.polls += 1;
        noted.late_polls += u64::from(gap_ns > MILLISECOND);
        noted.latest_us = noted.latest_us.max(gap_ns / MICROSECOND);
    }
}

/// Moves frames from one device to another. Returns their number.
fn shift<F>(
    from: &mut impl Device<Frame = F>,
    to: &mut impl Device<Frame = F>,
    waiting: &mut Vec<F>,
    burst: &mut Vec<F>,
    now: Instant,
) -> usize {
    let mut moved = 0;
    for _ in 0..BURSTS {
        if waiting.len() < WAITING_FRAMES && from.receive(now, burst, RECEIVE_BURST_FRAMES) > 0 {
            waiting.append(burst);
        }
        let taken = if waiting.is_empty() { 0 } else { to.transmit(now, waiting) };
        moved += taken;
        if taken < RECEIVE_BURST_FRAMES {
            break;
        }
    }
    moved
}

#[cfg(test)]
mod tests {
    use warpline::MacAddress;
    use warpline::link::fault::Impairments;
    use warpline::link::{Capabilities, ChecksumRequest, Frame, ReceivedChecksums};

    use super::*;

    struct Octets(Vec<u8>);

    impl Frame for Octets {
        fn piece(&self, index: usize) -> Option<&[u8]> {
            (index == 0).then_some(&self.0)
        }

        fn first_mut(&mut self) -> &mut [u8] {
            &mut self.0
        }

        fn append(&mut self, octets: usize) -> Option<&mut [u8]> {
            let start = self.0.len();
            self.0.resize(start + octets, 0);
            Some(&mut self.0[start..])
        }

        fn checksums(&self) -> ReceivedChecksums {
            ReceivedChecksums::default()
        }

        fn request_checksums(&mut self, _: ChecksumRequest) {}
    }

    /// A device whose wire is in the test's hands.
    use std::collections::VecDeque;

    #[derive(Default)]
    struct Port {
        incoming: VecDeque<u8>,
        outgoing: Vec<u8>,
        /// Frames it takes yet.
        room: usize,
    }

    impl Device for Port {
        type Frame = Octets;

        fn capabilities(&self) -> Capabilities {
            Capabilities {
                mtu_bytes: 1500,
                transmit_checksums: false,
                transmit_ip_checksums: false,
                gather: false,
                super_frame_bytes: 1500,
                super_frame_pieces: usize::MAX,
                frames: 1000,
                frame_bytes: 2048,
            }
        }

        fn mac(&self) -> MacAddress {
            MacAddress([2, 0, 0, 0, 0, 1])
        }

        fn receive(&mut self, _: Instant, frames: &mut Vec<Octets>, limit: usize) -> usize {
            let count = limit.min(self.incoming.len());
            frames.extend(self.incoming.drain(..count).map(|fill| Octets(vec![fill; 60])));
            count
        }

        fn allocate(&mut self) -> Option<Octets> {
            Some(Octets(Vec::new()))
        }

        fn transmit(&mut self, _: Instant, frames: &mut Vec<Octets>) -> usize {
            let count = frames.len().min(self.room);
            self.room -= count;
            self.outgoing.extend(frames.drain(..count).map(|frame| frame.0[0]));
            count
        }
    }

    fn forwarder(left: Port, right: Port) -> Forwarder<Port> {
        let delayed = Impairments { delay_min_ns: 20_000, delay_max_ns: 20_000, ..Impairments::default() };
        let slow = Impairments { delay_min_ns: 2_000_000, delay_max_ns: 2_000_000, ..Impairments::default() };
        Forwarder::new(Fault::new(left, 1, delayed, slow), right, Instant::ZERO)
    }

    fn port(incoming: std::ops::Range<u8>, room: usize) -> Port {
        Port { incoming: incoming.collect(), room, ..Port::default() }
    }

    #[test]
    fn frames_cross_both_ways_when_they_are_due_and_it_naps_until_then() {
        let mut forwarder = forwarder(port(0..50, 999), port(100..150, 999));
        // What the right device received has moved: into the paths of the left one.
        assert_eq!(forwarder.poll(Instant::ZERO), None);
        assert_eq!(forwarder.poll(Instant::ZERO), Some(Duration::from_micros(20)));
        assert!(forwarder.right.outgoing.is_empty());
        assert_eq!(forwarder.poll(Instant::from_nanos(20_000)), None);
        assert_eq!(forwarder.right.outgoing, (0..50).collect::<Vec<_>>());
        assert_eq!(forwarder.poll(Instant::from_nanos(20_000)), Some(Duration::from_micros(50)));
        assert!(forwarder.fault().inner().outgoing.is_empty());
        forwarder.poll(Instant::from_nanos(2_000_000));
        assert_eq!(forwarder.fault().inner().outgoing, (100..150).collect::<Vec<_>>());
        assert_eq!(forwarder.fault().outbound().delivered, 50);
    }

    #[test]
    fn a_device_without_room_loses_nothing_and_little_waits() {
        let mut forwarder = forwarder(port(0..0, 0), port(0..0, 0));
        forwarder.fault = Fault::new(
            port(0..250, 0),
            1,
            Impairments { delay_min_ns: 0, delay_max_ns: 0, ..Impairments::default() },
            Impairments::default(),
        );
        for _ in 0..100 {
            forwarder.poll(Instant::ZERO);
        }
        assert!(forwarder.waiting() <= WAITING_FRAMES + RECEIVE_BURST_FRAMES, "{}", forwarder.waiting());
        assert!(forwarder.right.outgoing.is_empty());
        forwarder.right.room = 999;
        while forwarder.poll(Instant::ZERO).is_none() {}
        assert_eq!(forwarder.right.outgoing, (0..250).collect::<Vec<_>>());
    }

    #[test]
    fn late_polls_are_noted() {
        let mut forwarder = forwarder(Port::default(), Port::default());
        for at_us in [10, 900, 1_900, 2_901, 7_901] {
            forwarder.poll(Instant::from_nanos(at_us * MICROSECOND));
        }
        let expected = Punctuality { polls: 5, late_polls: 2, latest_us: 5_000 };
        assert_eq!(forwarder.punctuality(), expected);
    }
}
