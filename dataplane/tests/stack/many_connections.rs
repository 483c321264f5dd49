//! Tests of cores with more connections and queue pairs than one group of doorbells has.

use crate::common::hosts::{Host, Hosts};
use crate::common::{holds, pattern, region_of};
use warpline_dataplane::device::sim::{self, EndConfig};
use warpline_dataplane::memory::{Access, Region, STag};
use warpline_dataplane::qp::work::{Operation, SendRequest, Slice, Status};
use warpline_dataplane::ring::Command;

const SOURCE: STag = STag::new(1, 11);
const SINK: STag = STag::new(2, 22);
/// Octets that each queue pair writes.
const OCTETS: usize = 16;

/// Queue pairs in three groups of doorbells: each that rings is served, in an order that is not that of the
/// slots, and one that is destroyed leaves its slot to the next.
#[test]
fn every_queue_pair_of_many_is_served() {
    const CONNECTIONS: usize = 1100;
    let (near, far) = sim::link(1, EndConfig::a(), EndConfig::b());
    let spare = CONNECTIONS as u32 + 1;
    let mut hosts = Hosts::listening([Host::new(near, 1, spare, 1), Host::new(far, 2, spare, 1)]);
    let data = pattern(7, CONNECTIONS * OCTETS);
    let sink = Region::heap(CONNECTIONS * OCTETS).unwrap();
    hosts.ends[0].register(SOURCE, region_of(&data), Access::empty());
    hosts.ends[1].register(SINK, sink.clone(), Access::REMOTE_WRITE);
    (0..CONNECTIONS).for_each(|number| hosts.open(number));
    let write = |hosts: &Hosts, number: usize, at: usize| {
        let to = (at * OCTETS) as u64;
        let local = Slice { stag: SOURCE, to, len: OCTETS as u32 };
        let operation = Operation::Write { stag: SINK, to };
        hosts.ends[0].qps[number].post_send(SendRequest::new(number as u64, operation, local)).unwrap();
    };
    for number in (0..CONNECTIONS).rev().step_by(2).chain((0..CONNECTIONS - 1).step_by(2)) {
        write(&hosts, number, number);
    }
    hosts.settle();
    let mut done: Vec<_> = hosts.ends[0].completions.drain().collect();
    done.sort_by_key(|completion| completion.id);
    assert!(done.iter().all(|completion| completion.status == Status::Success), "{done:?}");
    assert!(done.iter().map(|completion| completion.id).eq(0..CONNECTIONS as u64), "{done:?}");
    assert!(holds(&sink, 0, &data));

    let last = hosts.ends[0].qps[CONNECTIONS - 1].clone();
    hosts.ends[0].command(Command::DestroyQp(last));
    hosts.settle();
    assert_eq!(hosts.ends[0].core.usage().queue_pairs, CONNECTIONS - 1);
    hosts.open(CONNECTIONS);
    write(&hosts, CONNECTIONS, 0);
    hosts.settle();
    assert_eq!(hosts.ends[0].completions.poll().map(|done| done.id), Some(CONNECTIONS as u64));
    assert_eq!(hosts.ends[0].core.usage().queue_pairs, CONNECTIONS);
}
