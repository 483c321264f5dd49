//! Tests that connections which always have more to send share what their core sends, whatever their number,
//! and that one with little to send does not wait for them.
//!
//! The device takes so many frames in an interval and no more: the order in which connections are served
//! decides which of them may send.

use core::num::NonZeroU8;

use crate::common::hosts::{Host, Hosts};
use warpline_dataplane::device::sim::{self, End, EndConfig, Impairments, Network};
use warpline_dataplane::limits;
use warpline_dataplane::memory::{Access, Region, STag};
use warpline_dataplane::qp::work::{Operation, SendRequest, Slice, Status};
use warpline_dataplane::time::{MICROSECOND, MILLISECOND, SECOND};

const SOURCE: STag = STag::new(1, 11);
const SINK: STag = STag::new(2, 22);
const MESSAGE: usize = 64 << 10;
/// Messages that each queue pair has under way.
const DEPTH: usize = 4;
/// The device takes [`FRAMES`] in each interval: some 23 Gb/s.
const INTERVAL_NS: u64 = 16 * MICROSECOND;
const FRAMES: usize = 32;
/// Polls of each core in an interval: enough for what arrives meanwhile.
const POLLS: usize = 4;

/// Queue pairs of two hosts that write as fast as they may.
struct Crowd {
    hosts: Hosts,
    network: Network,
    /// Messages that are complete, of each queue pair.
    done: Vec<u64>,
}

impl Crowd {
    /// Opens a queue pair for each of these weights.
    fn new(weights: &[u8]) -> Self {
        let (near, far) = sim::link(1, EndConfig::a(), EndConfig::b());
        let network = near.network();
        let count = weights.len() as u32;
        let mut hosts = Hosts::listening([Host::new(near, 1, count, DEPTH), Host::new(far, 2, count, DEPTH)]);
        hosts.ends[0].register(SOURCE, Region::heap(MESSAGE).unwrap(), Access::empty());
        hosts.ends[1].register(SINK, Region::heap(MESSAGE).unwrap(), Access::REMOTE_WRITE);
        for (number, weight) in weights.iter().enumerate() {
            hosts.open_with(number, NonZeroU8::new(*weight).expect("not zero"));
        }
        Self { hosts, network, done: vec![0; weights.len()] }
    }

    fn post(&self, number: usize, octets: usize) {
        let local = Slice { stag: SOURCE, to: 0, len: octets as u32 };
        let request = SendRequest::new(number as u64, Operation::Write { stag: SINK, to: 0 }, local);
        self.hosts.ends[0].qps[number].post_send(request).unwrap();
    }

    /// Lets an interval pass. Returns the queue pairs of the messages that are complete by then.
    fn step(&mut self) -> Vec<usize> {
        self.hosts.now += INTERVAL_NS;
        self.network.set_transmit_credit(End::A, Some(FRAMES));
        for _ in 0..POLLS {
            for end in &mut self.hosts.ends {
                end.core.poll_once(self.hosts.now);
            }
        }
        let completions = self.hosts.ends[0].completions.drain();
        let done = completions.map(|completion| {
            assert_eq!(completion.status, Status::Success);
            completion.id as usize
        });
        done.collect()
    }

    /// Has the first `count` queue pairs write for `duration_ns`. The messages that are complete after the
    /// first quarter of it are counted.
    fn keep_busy(&mut self, count: usize, duration_ns: u64) {
        for number in 0..count {
            (0..DEPTH).for_each(|_| self.post(number, MESSAGE));
        }
        let begin = self.hosts.now;
        while self.hosts.now < begin + duration_ns {
            for number in self.step() {
                self.done[number] += u64::from(self.hosts.now > begin + duration_ns / 4);
                self.post(number, MESSAGE);
            }
        }
    }
}

/// Returns Jain's index of the shares: 1 if they are equal, 1/n if one has all.
fn jain(shares: impl Iterator<Item = f64> + Clone) -> f64 {
    let sum: f64 = shares.clone().sum();
    let squares: f64 = shares.clone().map(|share| share * share).sum();
    sum * sum / (shares.count() as f64 * squares)
}

/// A thousand queue pairs: each gets as much as another, and those of twice the weight twice as much.
#[test]
fn a_thousand_queue_pairs_share_by_weight() {
    let weights: Vec<u8> = (0..1000).map(|number| if number % 2 == 0 { 16 } else { 32 }).collect();
    let mut crowd = Crowd::new(&weights);
    crowd.keep_busy(weights.len(), 400 * MILLISECOND);
    let shares = crowd.done.iter().zip(&weights).map(|(done, weight)| *done as f64 / f64::from(*weight));
    let index = jain(shares);
    println!("1000 queue pairs: Jain's index {index:.4}, {} messages", crowd.done.iter().sum::<u64>());
    assert!(index >= 0.98, "{index}: {:?}", crowd.done);
}

/// One segment in a hundred is lost: congestion control has queue pairs send less for a while, now these and
/// now those.
#[test]
fn queue_pairs_that_lose_segments_share() {
    const COUNT: usize = 1000;
    let mut crowd = Crowd::new(&[limits::WEIGHT_USUAL.get(); COUNT]);
    crowd.network.set_impairments(End::A, Impairments { loss: 0.01, ..Impairments::default() });
    crowd.keep_busy(COUNT, SECOND / 2);
    let index = jain(crowd.done.iter().map(|done| *done as f64));
    println!("{COUNT} queue pairs, 1 % loss: {index:.4}, {} messages", crowd.done.iter().sum::<u64>());
    assert!(index >= 0.9, "{index}: {:?}", crowd.done);
}

/// Beside a hundred queue pairs with bulk transfers one writes 64 octets at a time: each of these messages is
/// complete as soon as those before it in the queue to the device have left.
#[test]
fn a_small_message_does_not_wait_for_bulk_transfers() {
    const BULK: usize = 100;
    let mut crowd = Crowd::new(&[limits::WEIGHT_USUAL.get(); BULK + 1]);
    crowd.keep_busy(BULK, 10 * MILLISECOND);
    let mut intervals = Vec::new();
    for _ in 0..1000 {
        crowd.post(BULK, 64);
        let mut count = 0;
        loop {
            count += 1;
            let done = crowd.step();
            done.iter().filter(|number| **number < BULK).for_each(|number| crowd.post(*number, MESSAGE));
            if done.contains(&BULK) {
                break;
            }
        }
        intervals.push(count);
    }
    intervals.sort_unstable();
    let at = |percent: usize| intervals[intervals.len() * percent / 100 - 1];
    println!("intervals until 64 octets are acknowledged: median {}, 99th percentile {}", at(50), at(99));
    // The frames before it in the queue, those of the quantum that is being sent, and the way there and back.
    let quantum = usize::from(limits::WEIGHT_USUAL.get()) * limits::BYTES_PER_WEIGHT / 1448;
    let most = (limits::TRANSMIT_QUEUE_FRAMES + quantum).div_ceil(FRAMES) + 2;
    assert!(at(99) <= most, "median {}, 99th percentile {}", at(50), at(99));
}
