//! Reports of cores about themselves: to all of those that an application asks, and back.

use std::collections::VecDeque;

use warpline_dataplane::ring::{Command, ConnectionId};
use warpline_dataplane::statistics::Statistics;
use warpline_dataplane::tcp::Snapshot;
use warpline_dataplane::time::{Instant, SECOND};

use super::interface::reply::Reply;
use super::interface::request::CoreStatistics;
use super::outbox::Outbox;
use crate::vocabulary::core_set::CoreSet;

/// How long an application waits for the counters of several cores. Those of a core that has not answered by
/// then are left out.
const PATIENCE_NS: u64 = SECOND;

/// Counters that an application waits for.
struct Gathering {
    reply: Reply<CoreStatistics>,
    /// By core.
    statistics: CoreStatistics,
    awaited: CoreSet,
    until: Instant,
}

/// The reports that applications wait for. A core answers in the order in which it is asked.
pub(super) struct Reports {
    /// In the order of asking.
    gatherings: VecDeque<Gathering>,
    /// By core: answers of it that nobody waits for any more come first.
    overdue: Box<[usize]>,
    /// By core, in the order of asking.
    snapshots: Box<[VecDeque<Reply<Option<Snapshot>>>]>,
}

impl Reports {
    pub(super) fn new(cores: u8) -> Self {
        let snapshots = (0..cores).map(|_| VecDeque::new()).collect();
        Self { gatherings: VecDeque::new(), overdue: vec![0; cores.into()].into(), snapshots }
    }

    /// Asks all cores for their counters.
    pub(super) fn statistics(&mut self, now: Instant, out: &mut Outbox, reply: Reply<CoreStatistics>) {
        let awaited = out.alive();
        out.command_each(awaited, || Command::ReportStatistics);
        // The application may be about to poll the only core.
        let until = if out.cores() == 1 { Instant::NEVER } else { now + PATIENCE_NS };
        let statistics = vec![None; out.cores().into()];
        self.gatherings.push_back(Gathering { reply, statistics, awaited, until });
    }

    /// Asks the core of a connection for its state.
    pub(super) fn connection(
        &mut self,
        out: &mut Outbox,
        connection: ConnectionId,
        reply: Reply<Option<Snapshot>>,
    ) {
        if !out.alive().contains(connection.core()) {
            return out.reply(reply, None);
        }
        self.snapshots[usize::from(connection.core())].push_back(reply);
        out.command(connection, Command::ReportConnection { connection });
    }

    pub(super) fn on_statistics(&mut self, out: &mut Outbox, core: u8, statistics: Statistics) {
        let overdue = &mut self.overdue[usize::from(core)];
        if *overdue > 0 {
            *overdue -= 1;
            return;
        }
        let gathering = self.gatherings.iter_mut().find(|gathering| gathering.awaited.contains(core));
        let Some(gathering) = gathering else { return };
        gathering.statistics[usize::from(core)] = Some(statistics);
        gathering.awaited = gathering.awaited.without(core);
        self.reply_to_complete(out);
    }

    pub(super) fn on_connection(&mut self, out: &mut Outbox, core: u8, report: Option<Snapshot>) {
        if let Some(reply) = self.snapshots[usize::from(core)].pop_front() {
            out.reply(reply, report);
        }
    }

    /// Answers for a core that is polled no more.
    pub(super) fn on_core_ended(&mut self, out: &mut Outbox, core: u8) {
        for gathering in &mut self.gatherings {
            gathering.awaited = gathering.awaited.without(core);
        }
        self.reply_to_complete(out);
        for reply in core::mem::take(&mut self.snapshots[usize::from(core)]) {
            out.reply(reply, None);
        }
    }

    fn reply_to_complete(&mut self, out: &mut Outbox) {
        while let Some(Gathering { reply, statistics, .. }) =
            self.gatherings.pop_front_if(|gathering| gathering.awaited.is_empty())
        {
            out.reply(reply, statistics);
        }
    }

    /// Returns when the first application waits no longer.
    pub(super) fn next_deadline(&self) -> Instant {
        self.gatherings.front().map_or(Instant::NEVER, |gathering| gathering.until)
    }

    /// Replies to the applications that have waited for long enough.
    pub(super) fn on_time(&mut self, now: Instant, out: &mut Outbox) {
        while let Some(gathering) = self.gatherings.pop_front_if(|gathering| gathering.until <= now) {
            for core in gathering.awaited.iter() {
                self.overdue[usize::from(core)] += 1;
            }
            out.reply(gathering.reply, gathering.statistics);
        }
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.gatherings.is_empty() && self.snapshots.iter().all(VecDeque::is_empty)
    }
}
