//! One seed, from the draw to the last check.

use fastrand::Rng;
use warpline_dataplane::testing::ColdBranches;

use super::counters::{Counted, Effort};
use super::digest::Trace;
use super::draw::Draw;
use super::memory_oracle::play::{Play, Tally};
use super::memory_oracle::stack::World;
use super::reports;
use super::world::Swarm;

/// What a seed came to.
pub(super) struct Report {
    pub(super) trace: Trace,
    /// The digest of all that applications have had reported.
    pub(super) reported: u64,
    /// The digest of what hosts have counted.
    pub(super) counts: u64,
    pub(super) tally: Tally,
    pub(super) effort: Effort,
    pub(super) counted: Counted,
    /// Reports of connections that applications were given.
    pub(super) reports: u64,
}

/// What an application does, beside work on queue pairs.
#[derive(Clone, Copy)]
enum Event {
    CutOff,
    Restart,
    DropStream,
}

/// Runs `seed`.
///
/// # Panics
///
/// When the stack does anything that the oracles do not.
pub(super) fn run(seed: u64) -> Report {
    let mut rng = Rng::with_seed(seed);
    let draw = Draw::new(seed, &mut rng);
    run_draw(&draw, rng)
}

/// Runs `seed` on hosts of [another make](Draw::into_twin).
pub(super) fn run_twin(seed: u64) -> Report {
    let mut rng = Rng::with_seed(seed);
    let draw = Draw::new(seed, &mut rng);
    run_draw(&draw.into_twin(), rng)
}

fn run_draw(draw: &Draw, mut rng: Rng) -> Report {
    let seed = draw.seed;
    if super::shows() {
        println!("{draw:?}");
    }
    let _cold = ColdBranches::by_coin(draw.cold_of_256, seed);
    let world = Swarm::new(draw.clone(), rng.fork());
    let mut play = Play::on(seed, rng, world);
    if draw.has_flood {
        play.world.send_flood();
    }
    for _ in 0..draw.connections {
        let hosts = play.two_hosts();
        play.open_between(hosts);
    }
    for _ in 0..draw.streams {
        let hosts = play.two_hosts();
        play.world.open_stream(hosts);
    }
    play.world.begin_faults();
    act_all(draw, &mut play);
    for number in 0..play.halves.len() {
        if play.rng.u32(..3) == 0 && !play.halves[number][0].over {
            let side = play.rng.usize(..2);
            play.end_badly(number, side);
        }
    }
    play.settle_all();
    if draw.clean {
        play.expect_no_timeouts();
        play.world.expect_rest();
    }
    play.until("all streams are read", |play| play.world.streams.are_over());
    play.expect_all_memory();
    let reports = play.world.request_reports();
    play.end_all();
    play.world.check_reports(reports);
    play.world.streams.check_memory();
    play.world.check_counters();
    play.tally.damage = play.world.damage();
    Report {
        trace: play.world.switch.trace(),
        reported: play.world.reported.finish(),
        counts: play.world.counts().finish(),
        tally: play.tally,
        effort: play.world.effort(),
        counted: play.world.counted(),
        reports: play.world.reports.come,
    }
}

/// Everything that applications, and others, do while the connections are there.
fn act_all(draw: &Draw, play: &mut Play<Swarm>) {
    // By numbers of its own: whatever else is drawn stays as it is.
    let mut asking = Rng::with_seed(draw.seed);
    let mut events = vec![Event::CutOff; draw.cut_offs];
    events.extend(draw.restart.then_some(Event::Restart));
    events.extend(draw.drops_stream.then_some(Event::DropStream));
    let mut events: Vec<_> = events.into_iter().map(|event| (play.rng.u32(..draw.actions), event)).collect();
    for action in 0..draw.actions {
        play.act();
        if asking.u8(..4) == 0 {
            reports::ask(&mut play.world, &mut asking);
        }
        if draw.has_stranger && play.rng.u8(..4) == 0 {
            play.world.send_stray();
        }
        if draw.has_flood && play.rng.u8(..16) == 0 {
            play.world.send_flood();
        }
        if draw.has_forger && play.rng.u8(..4) == 0 {
            play.world.send_forged();
        }
        while let Some(due) = events.iter().position(|(at, _)| *at <= action) {
            match events.swap_remove(due).1 {
                Event::CutOff => play.cut_off_any(),
                Event::Restart => play.restart_any(),
                Event::DropStream => play.world.drop_any_stream(),
            }
        }
    }
}

impl Play<Swarm> {
    fn two_hosts(&mut self) -> [usize; 2] {
        let hosts = self.world.hosts();
        let one = self.rng.usize(..hosts);
        [one, (one + self.rng.usize(1..hosts)) % hosts]
    }

    /// On clear paths no acknowledgement is so late that a sender gives up waiting for it.
    fn expect_no_timeouts(&self) {
        for host in &self.world.hosts {
            let tcp = host.statistics().tcp;
            assert_eq!(tcp.timeouts, 0, "seed {}: {tcp:?}", self.seed);
        }
    }

    /// Opens a connection between two hosts.
    pub(super) fn open_between(&mut self, hosts: [usize; 2]) {
        let number = self.world.connect(hosts);
        assert_eq!(number, self.halves.len());
        self.add_connection();
        // Rule 4: the Responder may send once it has an FPDU (MPA-7.1.2-15).
        self.post_empty(number, 0);
    }
}
