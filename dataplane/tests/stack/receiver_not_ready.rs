//! Tests of a receiver that posts its receives late and one by one, over links that lose and reorder, with
//! and without Markers: every message is Delivered once, in order and whole, and every Write after a message
//! before the next message.

use warpline_dataplane::device::sim::{EndConfig, Impairments};
use warpline_dataplane::memory::{Access, STag};
use warpline_dataplane::qp::work::{CompletionKind, Slice, Status};
use warpline_dataplane::ring::{Command, Event};
use warpline_dataplane::time::{MICROSECOND, MILLISECOND, SECOND};

use crate::common::{Host, Pair, Setup, holds, pattern, region_of};

const SOURCE: STag = STag::new(1, 1);
const INBOX: STag = STag::new(2, 2);
const SHARED: STag = STag::new(3, 3);
const MESSAGES: u64 = 60;
const MESSAGE_OCTETS: usize = 3000;
const WRITE_OCTETS: usize = 5000;

#[test]
fn late_receives_lose_nothing() {
    let waits: Vec<u64> = (0..6).map(|seed| play(seed, seed % 2 == 0)).collect();
    assert!(waits.iter().all(|waits| *waits > 0) && waits.iter().sum::<u64>() > 60, "{waits:?}");
}

fn is_over(host: &Host) -> bool {
    host.events.iter().any(|event| matches!(event, Event::Closed { .. }))
}

/// Where both ends close while messages of both wait, nobody posts receives any more: both connections end
/// half a second later.
#[test]
fn ends_that_close_do_not_wait_for_each_other() {
    let mut pair = Pair::new(1, EndConfig::a(), EndConfig::b());
    pair.receive_wait_ns = Some(60 * SECOND);
    pair.a.register(SOURCE, &region_of(&[1; 100]), Access::empty());
    pair.b.register(SOURCE, &region_of(&[1; 100]), Access::empty());
    pair.establish(Setup { markers: false, crc: true });
    for end in [&pair.a, &pair.b] {
        end.send(1, Slice { stag: SOURCE, to: 0, len: 100 });
    }
    assert!(!pair.run_until(10, |pair| is_over(&pair.a) || is_over(&pair.b)), "they wait");
    for end in [&pair.a, &pair.b] {
        end.command(Command::Disconnect { connection: end.connection.unwrap(), within_ns: None });
    }
    let start = pair.now;
    assert!(pair.run_until(10, |pair| is_over(&pair.a) && is_over(&pair.b)));
    let took = pair.now - start;
    assert!((500 * MILLISECOND..SECOND).contains(&took), "{took}");
}

/// Returns how many messages have waited for their receive.
fn play(seed: u64, markers: bool) -> u64 {
    let impairments = Impairments {
        loss: 0.03,
        reorder: 0.05,
        delay_min_ns: 40 * MICROSECOND,
        delay_max_ns: 50 * MICROSECOND,
        reorder_delay_ns: MILLISECOND,
        ..Impairments::default()
    };
    let end = |end: EndConfig| EndConfig { outbound: impairments, ..end };
    let mut pair = Pair::new(seed, end(EndConfig::a()), end(EndConfig::b()));
    pair.receive_wait_ns = Some(600 * SECOND);
    let octets = MESSAGES as usize * (MESSAGE_OCTETS + WRITE_OCTETS);
    let data = pattern(seed, octets);
    let (inbox, shared) = (region_of(&vec![0; octets]), region_of(&vec![0; octets]));
    pair.a.register(SOURCE, &region_of(&data), Access::empty());
    pair.b.register(INBOX, &inbox, Access::LOCAL_WRITE);
    pair.b.register(SHARED, &shared, Access::REMOTE_WRITE);
    pair.establish(Setup { markers, crc: true });
    let messages_end = MESSAGES as usize * MESSAGE_OCTETS;
    let mut rng = fastrand::Rng::with_seed(seed);
    for message in 0..MESSAGES {
        let to = message * MESSAGE_OCTETS as u64;
        pair.a.send(2 * message, Slice { stag: SOURCE, to, len: MESSAGE_OCTETS as u32 });
        let to = messages_end as u64 + message * WRITE_OCTETS as u64;
        pair.a.write(2 * message + 1, Slice { stag: SOURCE, to, len: WRITE_OCTETS as u32 }, SHARED, to);
    }
    let mut posted = 0;
    for received in 0..MESSAGES {
        while posted <= received || (posted < MESSAGES.min(received + 3) && rng.u32(..8) == 0) {
            pair.now += rng.u64(..400 * MILLISECOND);
            let to = posted * MESSAGE_OCTETS as u64;
            pair.b.receive(posted, Slice { stag: INBOX, to, len: MESSAGE_OCTETS as u32 });
            posted += 1;
        }
        let mut completion = None;
        let came = pair.run_until(60, |pair| {
            completion = completion.or_else(|| pair.b.completions.poll());
            completion.is_some()
        });
        assert!(came, "seed {seed}: message {received}, {:?}, {:?}", pair.a.qp.error(), pair.b.qp.error());
        let completion = completion.unwrap();
        assert_eq!((completion.id, completion.status), (received, Status::Success), "seed {seed}");
        assert_eq!(completion.kind, CompletionKind::Receive);
        let at = received as usize * MESSAGE_OCTETS;
        assert!(holds(&inbox, at, &data[at..at + MESSAGE_OCTETS]), "seed {seed}: message {received}");
        if received > 0 {
            // Octets before the message are placed when it is Delivered.
            // Requirements: DDP-5.3-07
            let at = messages_end + (received as usize - 1) * WRITE_OCTETS;
            assert!(
                holds(&shared, at, &data[at..at + WRITE_OCTETS]),
                "seed {seed}: the Write before {received}"
            );
        }
    }
    let mut done = 0;
    assert!(pair.run_until(60, |pair| {
        done += pair.a.poll_completions().iter().filter(|done| done.status == Status::Success).count();
        done as u64 == 2 * MESSAGES
    }));
    assert_eq!(pair.b.statistics().held_frames, 0);
    pair.b.statistics().receives_awaited
}
