//! Tests of the neighbour cache: questions, answers and claims, evictions, replicas.

use super::*;
use crate::time::SECOND;

const MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);
const OTHER: MacAddress = MacAddress([2, 0, 0, 0, 0, 6]);
const RETRANSMIT: u64 = limits::NEIGHBOUR_RETRANSMIT_NS;

fn peer() -> IpAddr {
    "fd00::1".parse().unwrap()
}

fn at(nanos: u64) -> Instant {
    Instant::from_nanos(nanos)
}

fn cache() -> Neighbours {
    Neighbours::new(&[], &mut fastrand::Rng::with_seed(1))
}

/// A cache that learnt the peer at 0.
fn resolved() -> Neighbours {
    let mut cache = cache();
    assert_eq!(cache.resolve(peer(), at(0)), Resolution::Wait);
    assert_eq!(asked(&mut cache, at(0)), Some(everybody()));
    assert!(cache.answered(peer(), Some(MAC), at(0)), "somebody waited");
    cache
}

/// The question that is due, if there is one.
fn asked(cache: &mut Neighbours, now: Instant) -> Option<Solicitation> {
    let due = cache.dequeue_due(now);
    assert!(due.len() <= 1);
    due.first().copied()
}

fn everybody() -> Solicitation {
    Solicitation { address: peer(), to: None }
}

fn only(mac: MacAddress) -> Solicitation {
    Solicitation { address: peer(), to: Some(mac) }
}

/// The time from which the peer does not count as reachable any more.
fn stale(cache: &Neighbours) -> Instant {
    at(cache.reachable_ns)
}

#[test]
fn asks_three_times_a_second_apart_and_gives_up() {
    let mut cache = cache();
    assert_eq!(cache.resolve(peer(), at(0)), Resolution::Wait);
    assert!(cache.is_waiting(peer()));
    for n in 0..u64::from(limits::NEIGHBOUR_SOLICITATIONS) {
        assert_eq!(cache.next_due(), at(n * RETRANSMIT));
        assert_eq!(asked(&mut cache, at(n * RETRANSMIT)), Some(everybody()));
        assert_eq!(asked(&mut cache, at((n + 1) * RETRANSMIT - 1)), None);
        assert_eq!(cache.resolve(peer(), at(n * RETRANSMIT + 1)), Resolution::Wait);
    }
    assert_eq!(asked(&mut cache, at(3 * RETRANSMIT)), None);
    assert_eq!(cache.next_due(), Instant::NEVER, "nobody needs it");
    // A sender that needs the address asks again; a late answer is valid.
    assert_eq!(cache.resolve(peer(), at(10 * RETRANSMIT)), Resolution::Wait);
    assert_eq!(asked(&mut cache, at(10 * RETRANSMIT)), Some(everybody()));
    assert!(cache.answered(peer(), Some(MAC), at(11 * RETRANSMIT)));
    assert_eq!(cache.resolve(peer(), at(11 * RETRANSMIT)), Resolution::Known(MAC));
    assert!(!cache.is_waiting(peer()));
}

#[test]
fn a_stale_neighbour_is_used_and_then_asked() {
    let mut cache = resolved();
    let used = stale(&cache);
    assert!(
        (limits::NEIGHBOUR_REACHABLE_NS / 2..=limits::NEIGHBOUR_REACHABLE_NS / 2 * 3)
            .contains(&cache.reachable_ns)
    );
    assert_eq!(asked(&mut cache, used), None, "not used: not asked");
    assert_eq!(cache.resolve(peer(), used), Resolution::Known(MAC));
    assert_eq!(cache.next_due(), used + limits::NEIGHBOUR_DELAY_NS);
    let probed = cache.next_due();
    for n in 0..u64::from(limits::NEIGHBOUR_SOLICITATIONS) {
        assert_eq!(asked(&mut cache, probed + n * RETRANSMIT), Some(only(MAC)), "asked itself");
        assert_eq!(cache.resolve(peer(), probed + n * RETRANSMIT), Resolution::Known(MAC));
    }
    assert_eq!(asked(&mut cache, probed + 3 * RETRANSMIT), Some(everybody()), "then all are asked");
    assert_eq!(cache.resolve(peer(), probed + 3 * RETRANSMIT), Resolution::Wait);
    assert!(cache.answered(peer(), Some(OTHER), probed + 3 * RETRANSMIT));
    assert_eq!(cache.known(peer()), Some(OTHER));
}

#[test]
fn an_answer_or_progress_ends_the_questions() {
    for by_transport in [false, true] {
        let mut cache = resolved();
        let used = stale(&cache);
        cache.resolve(peer(), used);
        let probed = used + limits::NEIGHBOUR_DELAY_NS;
        assert_eq!(asked(&mut cache, probed), Some(only(MAC)));
        if by_transport {
            cache.confirm(peer(), probed + 1);
        } else {
            assert!(!cache.answered(peer(), None, probed + 1));
        }
        assert_eq!(cache.resolve(peer(), probed + 2), Resolution::Known(MAC));
        assert_eq!(asked(&mut cache, probed + 100 * RETRANSMIT), None);
    }
}

#[test]
fn while_the_known_one_answers_no_claim_is_believed() {
    for solicited in [false, true] {
        let mut cache = resolved();
        let mut now = at(2 * SECOND);
        for _ in 0..10 {
            if solicited {
                cache.answered(peer(), Some(OTHER), now);
            } else {
                cache.claimed(peer(), OTHER, now, true);
            }
            assert_eq!(cache.resolve(peer(), now), Resolution::Known(MAC));
            assert_eq!(asked(&mut cache, now), Some(only(MAC)));
            cache.confirm(peer(), now);
            // Claims while it is asked change nothing; nor does a claim right after the answer ask again.
            cache.claimed(peer(), OTHER, now + 1, true);
            assert!(!cache.answered(peer(), Some(MAC), now + 2));
            cache.claimed(peer(), OTHER, now + 3, true);
            assert_eq!(asked(&mut cache, now + 3), None);
            assert_eq!(cache.resolve(peer(), now + 4), Resolution::Known(MAC));
            now += 2 * SECOND;
        }
    }
}

#[test]
fn who_takes_over_from_a_silent_one_is_believed_after_a_second() {
    let mut cache = resolved();
    let claimed = at(2 * SECOND);
    assert!(!cache.claimed(peer(), OTHER, claimed, false));
    assert_eq!(asked(&mut cache, claimed), Some(only(MAC)));
    cache.confirm(peer(), claimed + 1);
    assert_eq!(asked(&mut cache, claimed + RETRANSMIT), None);
    assert_eq!(cache.resolve(peer(), claimed + RETRANSMIT), Resolution::Known(OTHER));
    // It has to show that it answers.
    assert_eq!(asked(&mut cache, claimed + RETRANSMIT + limits::NEIGHBOUR_DELAY_NS), Some(only(OTHER)));
}

/// A claim that came before the answer to our own question is not held against the answer: nothing has
/// confirmed it.
#[test]
fn an_answer_right_after_a_claim_has_the_claim_asked() {
    let mut cache = cache();
    cache.resolve(peer(), at(0));
    assert_eq!(asked(&mut cache, at(0)), Some(everybody()));
    assert!(cache.claimed(peer(), OTHER, at(1), false), "somebody waited");
    assert!(!cache.answered(peer(), Some(MAC), at(2)));
    assert_eq!(asked(&mut cache, at(2)), Some(only(OTHER)));
    assert_eq!(asked(&mut cache, at(2 + RETRANSMIT)), None);
    assert_eq!(cache.known(peer()), Some(MAC));
    // Two claims hide it as little as one.
    let mut cache = self::cache();
    cache.resolve(peer(), at(0));
    asked(&mut cache, at(0));
    assert!(cache.claimed(peer(), OTHER, at(1), false));
    assert!(!cache.claimed(peer(), MacAddress([2, 0, 0, 0, 0, 7]), at(1), false));
    assert!(!cache.answered(peer(), Some(MAC), at(2)));
    assert_eq!(asked(&mut cache, at(2)), Some(only(OTHER)));
    assert_eq!(asked(&mut cache, at(2 + RETRANSMIT)), None);
    assert_eq!(cache.known(peer()), Some(MAC));
}

/// New neighbours of a full cache do not take each other's places before they are asked for.
#[test]
fn new_neighbours_of_a_full_cache_are_all_asked() {
    let neighbour = |n: u32| IpAddr::from((0x0a00_0000 + n).to_be_bytes());
    let mut cache = cache();
    for n in 0..limits::NEIGHBOURS_PER_CORE as u32 {
        cache.resolve(neighbour(n), at(u64::from(n)));
        assert!(cache.answered(neighbour(n), Some(MAC), at(u64::from(n))));
    }
    let now = at(1_000_000);
    let new = 1000..1000 + limits::UNANSWERED_NEIGHBOURS_PER_CORE as u32;
    new.clone().for_each(|n| _ = cache.resolve(neighbour(n), now));
    assert!(new.clone().all(|n| cache.is_waiting(neighbour(n))));
    assert!(new.clone().all(|n| cache.answered(neighbour(n), Some(MAC), now)));
    let longest_unused = |n| cache.known(neighbour(n)).is_none();
    assert!((0..new.len() as u32).all(longest_unused));
}

#[test]
fn strangers_neither_fill_the_cache_nor_drive_others_out() {
    let stranger = |n: u32| IpAddr::from(n.to_be_bytes());
    let mut cache = resolved();
    assert!(!cache.claimed(stranger(1), MAC, at(0), false));
    assert!(!cache.answered(stranger(1), Some(MAC), at(0)));
    assert!(!cache.claimed(stranger(1), MacAddress::BROADCAST, at(0), true), "a group is no station");
    assert!(!cache.claimed(stranger(1), MacAddress::default(), at(0), true));
    assert_eq!(cache.entries.len(), 1);
    for n in 0..10_000 {
        cache.claimed(stranger(n), OTHER, at(u64::from(n)), true);
    }
    assert_eq!(cache.entries.len(), limits::NEIGHBOURS_PER_CORE);
    assert_eq!(cache.known(peer()), Some(MAC), "used: it stays");
    assert_eq!(cache.known(stranger(9_999)), Some(OTHER));
    // When all entries are used, unsolicited claims find no room. A neighbour that this core needs
    // replaces one that has not answered, however lately it was needed.
    for n in 0..2 * limits::NEIGHBOURS_PER_CORE as u32 {
        cache.resolve(stranger(20_000 + n), at(10_000 + u64::from(n)));
    }
    assert!(!cache.claimed(stranger(1), OTHER, at(20_000), true));
    assert_eq!((cache.known(stranger(1)), cache.known(peer())), (None, Some(MAC)));
    assert_eq!(cache.entries.len(), limits::NEIGHBOURS_PER_CORE);
    // When all have answered, it replaces the one that was used longest ago.
    let answer = limits::NEIGHBOURS_PER_CORE as u32 + 1..2 * limits::NEIGHBOURS_PER_CORE as u32;
    for n in answer {
        assert!(cache.answered(stranger(20_000 + n), Some(OTHER), at(20_000)), "{n}");
    }
    assert_eq!(cache.known(peer()), Some(MAC));
    cache.resolve(stranger(30_000), at(20_001));
    assert_eq!((cache.entries.len(), cache.known(peer())), (limits::NEIGHBOURS_PER_CORE, None));
    assert!(cache.is_waiting(stranger(30_000)));
}

#[test]
fn questions_have_a_bound_per_poll() {
    let mut cache = cache();
    for n in 0..100u32 {
        cache.resolve(IpAddr::from(n.to_be_bytes()), at(0));
    }
    let mut sent = 0;
    while cache.next_due() <= at(0) {
        let due = cache.dequeue_due(at(0)).len();
        assert!(due <= limits::SOLICITATIONS_PER_POLL && due > 0);
        sent += due;
    }
    assert_eq!(sent, 100);
}

/// All that is sent to the replicas.
fn sent(cache: &mut Neighbours) -> Vec<(u8, Option<MacAddress>)> {
    let mut sent = Vec::new();
    assert!(cache.send_updates(|core, address, mac| {
        assert_eq!(address, peer());
        sent.push((core, mac));
        true
    }));
    sent
}

#[test]
fn replicas_are_sent_what_they_have_asked_for() {
    let mut cache = cache();
    cache.want(peer(), 3, at(0));
    assert_eq!(asked(&mut cache, at(0)), Some(everybody()), "it is solicited for the replica");
    assert_eq!(sent(&mut cache), [], "nothing is known");
    assert!(cache.answered(peer(), Some(MAC), at(1)));
    assert_eq!(sent(&mut cache), [(3, Some(MAC))]);
    cache.want(peer(), 5, at(2));
    assert_eq!(sent(&mut cache), [(5, Some(MAC))], "at once, and the other one not again");
    cache.claimed(peer(), OTHER, at(2 * SECOND), false);
    assert_eq!(asked(&mut cache, at(2 * SECOND)), Some(only(MAC)));
    asked(&mut cache, at(2 * SECOND + RETRANSMIT));
    assert_eq!(sent(&mut cache), [(3, Some(OTHER)), (5, Some(OTHER))]);
}

/// What finds no room is sent later, and then as it is by then.
#[test]
fn a_replica_that_takes_nothing_is_sent_it_later() {
    let mut cache = resolved();
    cache.want(peer(), 1, at(1));
    assert!(!cache.send_updates(|_, _, _| false));
    let used = stale(&cache);
    cache.want(peer(), 1, used);
    let mut now = used + limits::NEIGHBOUR_DELAY_NS;
    while cache.known(peer()).is_some() {
        assert!(cache.dequeue_due(now).len() <= 1);
        assert!(cache.known(peer()).is_none() || !cache.send_updates(|_, _, _| false));
        now += RETRANSMIT;
    }
    assert_eq!(sent(&mut cache), [(1, None)]);
    assert_eq!(sent(&mut cache), []);
}

/// Acknowledgements of a station that had the address before confirm nothing.
#[test]
fn a_replica_confirms_the_station_that_it_sends_to() {
    for (mac, is_confirmed) in [(MAC, true), (OTHER, false)] {
        let mut cache = resolved();
        let used = stale(&cache);
        cache.want(peer(), 1, used);
        cache.confirm_for(peer(), 1, mac, used + 1);
        let probed = asked(&mut cache, used + limits::NEIGHBOUR_DELAY_NS).is_some();
        assert_eq!(probed, !is_confirmed, "{mac:?}");
    }
}

#[test]
fn a_configured_neighbour_stays_as_it_is() {
    let configured = StaticNeighbour { address: peer(), mac: MAC };
    let mut cache = Neighbours::new(&[configured], &mut fastrand::Rng::with_seed(1));
    cache.claimed(peer(), OTHER, at(10 * SECOND), true);
    cache.answered(peer(), Some(OTHER), at(10 * SECOND));
    cache.confirm(peer(), at(10 * SECOND));
    assert_eq!(cache.resolve(peer(), at(1000 * SECOND)), Resolution::Known(MAC));
    assert_eq!(cache.next_due(), Instant::NEVER);
    for n in 0..1000u32 {
        cache.resolve(IpAddr::from(n.to_be_bytes()), at(2000 * SECOND));
    }
    assert_eq!(cache.known(peer()), Some(MAC));
}
