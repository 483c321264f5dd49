//! How connections end: cut off with work outstanding, by a host that starts again, or in an orderly way.

use std::time::Duration;

use warpline_dataplane::qp::shared::QpState;
use warpline_dataplane::tcp::CloseReason;

use super::host::PATIENCE_NS;
use super::memory_oracle::play::Play;
use super::memory_oracle::pool::Pool;
use super::memory_oracle::stack::World;
use super::world::Swarm;
use crate::engine::interface::request::{DeregisterOutcome, Request};

impl Swarm {
    pub(super) fn disconnect(&mut self, number: usize, side: usize) {
        let connection = &self.connections[number];
        let (host, qp) = (connection.hosts[side], connection.qps[side].shared.clone());
        self.hosts[host].send(self.now, Request::Disconnect { qp });
    }

    fn destroy(&mut self, number: usize, side: usize) {
        if std::mem::replace(&mut self.connections[number].destroyed[side], true) {
            return;
        }
        let host = self.connections[number].hosts[side];
        let qp = self.connections[number].qps[side].shared.number;
        // As programs of verbs do, and as others.
        let fence = number % 2 == 1;
        self.ask(host, |reply| Request::DestroyQp { qp, fence, reply });
    }

    /// Records how the connection has ended at that side.
    fn record_end(&mut self, number: usize, side: usize) {
        let qp = &self.connections[number].qps[side].shared;
        let end = format!("{:?} {:?} {:?}", self.end_of(number, side), qp.state(), qp.error());
        self.reported.add_octets(end.as_bytes());
    }

    /// Returns why the connection has ended at that side, once it has.
    fn end_of(&self, number: usize, side: usize) -> Option<CloseReason> {
        self.connections[number].qps[side].status.close_state().reason
    }
}

impl Play<Swarm> {
    /// Ends a connection of chance with whatever is outstanding on it.
    pub(super) fn cut_off_any(&mut self) {
        let live: Vec<usize> =
            (0..self.halves.len()).filter(|number| !self.halves[*number][0].over).collect();
        if live.is_empty() {
            return;
        }
        let (number, side) = (live[self.rng.usize(..live.len())], self.rng.usize(..2));
        self.cut_off(number);
        match self.rng.u8(..5) {
            0 => self.world.destroy(number, side),
            1 => {
                let connection = &self.world.connections[number];
                let (host, qp) = (connection.hosts[side], connection.qps[side].shared.number);
                self.world.hosts[host].send(self.world.now, Request::Abort { qp });
            }
            2 => {
                self.world.disconnect(number, side);
                self.world.destroy(number, side);
            }
            3 => self.revoke_any(number, side),
            _ => self.world.disconnect(number, side),
        }
        for _ in 0..self.rng.u32(..100) {
            self.world.step();
        }
        for side in [side, 1 - side] {
            self.finish_cut_off(number, side);
        }
    }

    /// The application takes memory of chance back: nothing is read from it any more, or written to it. A
    /// connection ends that sends from it.
    fn revoke_any(&mut self, number: usize, side: usize) {
        let names: Vec<_> = self.halves[number][side].registrations().collect();
        let [stag, last] = names[self.rng.usize(..names.len())];
        let patience = Duration::from_micros([0, 100, 100_000][self.rng.usize(..3)]);
        let host = self.world.host_of(number, side);
        loop {
            let outcome = self.world.ask(host, |reply| Request::Revoke { stag, last, patience, reply });
            match outcome {
                DeregisterOutcome::Done => break,
                DeregisterOutcome::WindowsBound => return,
                DeregisterOutcome::Unanswered(_) => {
                    assert!(self.world.draw.episodes > 0, "seed {}: no core stalls", self.seed);
                }
                DeregisterOutcome::InUse => panic!("seed {}: {stag:?} is read", self.seed),
            }
        }
        self.world.connections[number].revoked[side].push(stag);
        self.halves[number][side].take_back(&mut self.rng, stag);
    }

    /// The application of a connection that was cut off sees its end, takes what is reported, and drops it.
    fn finish_cut_off(&mut self, number: usize, side: usize) {
        if !self.world.connections[number].destroyed[side] {
            self.world.disconnect(number, side);
            let connection = &self.world.connections[number];
            let peer = 1 - side;
            if self.world.draw.hosts[connection.hosts[peer]].keeps_open && !connection.destroyed[peer] {
                self.world.disconnect(number, peer);
            }
            self.until("the end of a connection that was cut off", |this| {
                this.world.end_of(number, side).is_some()
            });
            self.world.destroy(number, side);
        }
        // An application that has dropped its queue pair may have left it to a close that is under way.
        self.until("the flush of a queue pair", |this| this.world.qp(number, side).state() == QpState::Error);
        self.expect_flushed(number, side);
    }

    /// Stops a host and starts it again, with the same ports and STags; its peers find out. Then it has new
    /// connections with them.
    pub(super) fn restart_any(&mut self) {
        let host = self.rng.usize(..self.world.hosts());
        let hosts_of = |this: &Self, number: usize| this.world.connections[number].hosts;
        let of_host: Vec<usize> =
            (0..self.halves.len()).filter(|number| hosts_of(self, *number).contains(&host)).collect();
        for number in &of_host {
            if !self.halves[*number][0].over {
                self.cut_off(*number);
            }
        }
        self.world.drop_streams_of(host);
        self.world.restart(host);
        self.pools[host] = Pool::new(&mut self.rng, &mut self.world, host);
        for number in &of_host {
            let side = usize::from(hosts_of(self, *number)[1] == host);
            self.world.connections[*number].destroyed[side] = true;
            let half = &mut self.halves[*number][side];
            half.gone = true;
            half.due.clear();
            half.due_receives.clear();
            half.receives.clear();
            half.begun = None;
        }
        // Some open connections from the same ports while their peers still have the old ones.
        let reopens_first = self.rng.bool();
        let reopen = |this: &mut Self| {
            for number in &of_host {
                let hosts = hosts_of(this, *number);
                this.open_between(hosts);
            }
        };
        if reopens_first {
            reopen(self);
        }
        for number in &of_host {
            let side = usize::from(hosts_of(self, *number)[0] == host);
            self.finish_cut_off(*number, side);
        }
        if !reopens_first {
            reopen(self);
        }
    }

    /// Both ends have closed. One may have lost each FIN of the other, which has all and gives up.
    fn check_close(&self, number: usize, side: usize) {
        let [end, other] = [side, 1 - side].map(|side| self.world.end_of(number, side));
        let [host, peer] = [1 - side, side].map(|side| self.world.host_of(number, side));
        let is_unheard = (end, other) == (Some(CloseReason::Reset), Some(CloseReason::Finished))
            && self.world.switch.wire().has_given_up(host, peer);
        let qp = self.world.qp(number, side);
        if !is_unheard {
            let (seed, end) = (self.seed, (end, qp.error()));
            assert_eq!(end, (Some(CloseReason::Finished), None), "seed {seed}, {number} {side}");
        }
        assert_eq!(qp.state(), QpState::Error);
    }

    /// Ends everything in an orderly way: connections that nothing has disturbed are closed by both ends,
    /// and hosts have nothing left in the end.
    pub(super) fn end_all(&mut self) {
        let orderly: Vec<usize> =
            (0..self.halves.len()).filter(|number| !self.halves[*number][0].over).collect();
        for number in &orderly {
            // What waits for messages is flushed.
            self.halves[*number].iter_mut().for_each(|half| half.over = true);
            let first = self.rng.usize(..2);
            for side in [first, 1 - first] {
                self.world.disconnect(*number, side);
                for _ in 0..self.rng.u32(..20) {
                    self.world.step();
                }
            }
        }
        for number in orderly {
            for side in [0, 1] {
                self.until("an orderly close", |this| this.world.end_of(number, side).is_some());
            }
            for side in [0, 1] {
                self.check_close(number, side);
            }
        }
        for number in 0..self.halves.len() {
            for side in [0, 1] {
                self.world.record_end(number, side);
                self.world.destroy(number, side);
            }
        }
        self.world.drop_all_streams();
        self.take_completions();
        for number in 0..self.halves.len() {
            for side in [0, 1] {
                let half = &self.halves[number][side];
                let (host, mut names) = (self.world.host_of(number, side), half.all_names());
                let revoked = &self.world.connections[number].revoked[side];
                names.retain(|[stag, _]| !revoked.contains(stag));
                if !half.gone {
                    self.deregister(host, &names);
                }
            }
        }
        for host in 0..self.world.hosts() {
            let stag = self.pools[host].memory.stag;
            self.deregister(host, &[[stag, stag]]);
            self.world.hosts[host].unlisten(self.world.now);
        }
        let give_up = self.world.now + PATIENCE_NS;
        while !self.world.hosts.iter_mut().all(super::host::Host::is_unused) {
            assert!(self.world.now < give_up, "seed {}: {:?}", self.seed, self.usage());
            self.world.step();
        }
        // What a core has handed over to another is taken.
        while self.world.hosts.iter().any(|host| host.next_deadline() <= self.world.now) {
            assert!(self.world.now < give_up, "seed {}: {:?}", self.seed, self.usage());
            self.world.step();
        }
        self.world.hosts.iter_mut().for_each(|host| _ = host.engine().assert_unused());
    }

    fn usage(&self) -> Vec<warpline_dataplane::core::tables::Usage> {
        self.world.hosts.iter().flat_map(super::host::Host::usage).collect()
    }

    fn deregister(&mut self, host: usize, names: &[[warpline_dataplane::memory::STag; 2]]) {
        for [stag, last] in names.iter().copied() {
            let request = |reply| Request::Deregister { stag, last, patience: None, reply };
            assert_eq!(self.world.ask(host, request), DeregisterOutcome::Done);
        }
    }
}
