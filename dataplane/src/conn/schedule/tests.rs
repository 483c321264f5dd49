use super::*;

/// Payload of a segment.
const SEGMENT: usize = 1448;

/// Connections with something to send, a core that sends for them, and what each has sent.
struct Bench {
    schedule: Schedule,
    shares: Vec<Share>,
    sent: Vec<usize>,
}

impl Bench {
    fn new(weights: &[u8]) -> Self {
        let shares = weights.iter().map(|weight| {
            let mut share = Share::new();
            share.set_weight(NonZeroU8::new(*weight).expect("not zero"));
            share
        });
        let shares: Vec<_> = shares.collect();
        Self { schedule: Schedule::new(weights.len()), sent: vec![0; shares.len()], shares }
    }

    fn add(&mut self, slot: u32) {
        self.schedule.add(slot, &mut self.shares[slot as usize]);
    }

    /// Serves the next connection, which has `queued` octets to send, all in segments of `segment`, and has
    /// `more` afterwards. Returns its slot; `None` if it sits out this round.
    fn serve(&mut self, segment: usize, queued: usize, more: bool) -> Option<u32> {
        let slot = self.schedule.next().expect("some are scheduled");
        let allowance = self.schedule.begin(slot, &mut self.shares[slot as usize])?;
        let most = allowance.octets.div_ceil(segment).min(limits::TRANSMIT_BURST_SEGMENTS) * segment;
        let octets = most.min(queued);
        self.sent[slot as usize] += octets;
        self.schedule.end(slot, &mut self.shares[slot as usize], Served { octets, more });
        Some(slot)
    }
}

/// Each of a thousand connections that always have more sends as much as another, whatever the length of its
/// segments; weights count.
#[test]
fn connections_share_octets_by_weight() {
    let weights: Vec<u8> = (0..1000).map(|slot| [16, 16, 32, 1][slot % 4]).collect();
    let mut bench = Bench::new(&weights);
    (0..1000).for_each(|slot| bench.add(slot));
    for turn in 0..400_000 {
        // One in two has segments of 9000 octets.
        let slot = bench.schedule.first.front().or_else(|| bench.schedule.waiting.front());
        let segment = if slot.is_some_and(|slot| slot % 8 < 4) { SEGMENT } else { 8948 };
        let _ = bench.serve(segment, usize::MAX, true);
        assert_eq!(bench.schedule.len(), 1000, "turn {turn}");
    }
    let per_weight = bench.sent.iter().zip(&weights).map(|(sent, weight)| *sent as f64 / f64::from(*weight));
    let per_weight: Vec<f64> = per_weight.collect();
    let (sum, squares) =
        per_weight.iter().fold((0.0, 0.0), |(sum, squares), sent| (sum + sent, squares + sent * sent));
    let jain = sum * sum / (1000.0 * squares);
    assert!(jain > 0.99, "{jain}");
}

/// One that becomes busy is served before those that have used up their quantum, again and again while its
/// own lasts, and not for ever: then all others have their turn.
#[test]
fn one_that_becomes_busy_goes_first_while_its_quantum_lasts() {
    const OTHERS: u32 = 100;
    let mut bench = Bench::new(&[16; OTHERS as usize + 1]);
    (0..OTHERS).for_each(|slot| bench.add(slot));
    for _ in 0..3 * OTHERS {
        assert!(bench.serve(SEGMENT, usize::MAX, true).is_some());
    }
    // Each of its messages is sent at once, and it rests.
    let mut at_once = 0;
    loop {
        bench.add(OTHERS);
        if bench.serve(SEGMENT, 64, false) != Some(OTHERS) {
            break;
        }
        at_once += 1;
    }
    let quantum = 16 * limits::BYTES_PER_WEIGHT;
    assert!((quantum / 400..=quantum / 256).contains(&at_once), "{at_once} messages");
    let sent = bench.sent.clone();
    let mut turns = 0;
    while bench.serve(SEGMENT, 64, true) != Some(OTHERS) {
        turns += 1;
    }
    assert!(turns >= OTHERS - 1, "{turns}");
    let served = (0..OTHERS as usize).filter(|slot| bench.sent[*slot] > sent[*slot]).count();
    assert!(served >= OTHERS as usize - 1, "{served} of the others were served");
}

/// However often others become busy anew, one that waits is served once they have sent their quanta.
#[test]
fn none_is_kept_waiting_by_those_that_come_and_go() {
    const COMING: u32 = 50;
    let mut bench = Bench::new(&[16; COMING as usize + 1]);
    bench.add(COMING);
    (0..COMING).for_each(|slot| bench.add(slot));
    let mut waited = 0;
    let mut longest = 0;
    for _ in 0..100_000 {
        match bench.serve(SEGMENT, 2 * SEGMENT, false) {
            Some(COMING) => {
                longest = longest.max(core::mem::take(&mut waited));
                bench.add(COMING);
            }
            Some(slot) => {
                waited += 2 * SEGMENT;
                bench.add(slot);
            }
            None => {}
        }
    }
    let quanta = COMING as usize * (16 * limits::BYTES_PER_WEIGHT + 2 * SEGMENT);
    assert!(longest > 0 && longest <= quanta, "{longest} octets of others");
}

/// One that is alone may send as much as it likes, and owes nothing for it when another comes.
#[test]
fn one_that_is_alone_pays_nothing() {
    let mut bench = Bench::new(&[16, 16]);
    bench.add(0);
    for _ in 0..1000 {
        let slot = bench.schedule.next().expect("it is scheduled");
        let allowance = bench.schedule.begin(slot, &mut bench.shares[0]);
        assert_eq!(allowance, Some(Allowance { slot: 0, octets: usize::MAX }));
        bench.schedule.end(0, &mut bench.shares[0], Served { octets: 100_000, more: true });
    }
    bench.add(1);
    bench.sent = vec![0; 2];
    for _ in 0..100 {
        let _ = bench.serve(SEGMENT, usize::MAX, true);
    }
    let (one, other) = (bench.sent[0] as f64, bench.sent[1] as f64);
    assert!((0.9..1.1).contains(&(one / other)), "{one} and {other}");
}

/// One that can send nothing, though it has something, does not keep others waiting.
#[test]
fn one_that_is_held_up_goes_behind() {
    let mut bench = Bench::new(&[16; 3]);
    (0..3).for_each(|slot| bench.add(slot));
    assert_eq!(bench.serve(SEGMENT, 0, true), Some(0));
    assert_eq!(bench.serve(SEGMENT, SEGMENT, false), Some(1));
    assert_eq!(bench.serve(SEGMENT, SEGMENT, false), Some(2));
    assert_eq!(bench.serve(SEGMENT, SEGMENT, false), Some(0));
    assert_eq!(bench.schedule.len(), 0);
}

/// What a segment is longer than the quantum is owed: a connection of weight 1 with segments of 9000 octets
/// sits out rounds.
#[test]
fn an_overdraft_is_paid_back() {
    let mut bench = Bench::new(&[1, 2]);
    (0..2).for_each(|slot| bench.add(slot));
    let mut idle = 0;
    for _ in 0..10_000 {
        idle += u32::from(bench.serve(8948, usize::MAX, true).is_none());
    }
    assert!(idle > 100, "{idle}");
    let ratio = bench.sent[1] as f64 / bench.sent[0] as f64;
    assert!((1.9..2.1).contains(&ratio), "{ratio}");
}
