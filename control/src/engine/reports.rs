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

/// How long an application waits for a report of one of several cores. What a core has not answered by then
/// is left out, and the core is asked nothing more before it has: no commands pile up.
const PATIENCE_NS: u64 = SECOND;

/// Counters that an application waits for.
struct Gathering {
    reply: Reply<CoreStatistics>,
    /// By core.
    statistics: CoreStatistics,
    awaited: CoreSet,
    until: Instant,
}

/// The state of a connection that an application waits for.
struct Waiting {
    reply: Reply<Option<Snapshot>>,
    until: Instant,
}

/// What applications wait for at one core, which answers in the order in which it is asked.
#[derive(Default)]
struct Awaited {
    /// The states of connections, in the order of asking.
    connections: VecDeque<Waiting>,
    /// Answers that nobody waits for any more, which come first.
    overdue_connections: usize,
    overdue_statistics: usize,
}

impl Awaited {
    /// Returns true if the core has not answered in time, and has not since.
    const fn is_late(&self) -> bool {
        self.overdue_connections + self.overdue_statistics > 0
    }
}

/// The reports that applications wait for.
pub(super) struct Reports {
    /// In the order of asking.
    gatherings: VecDeque<Gathering>,
    /// By core.
    cores: Box<[Awaited]>,
}

impl Reports {
    pub(super) fn new(cores: u8) -> Self {
        Self { gatherings: VecDeque::new(), cores: (0..cores).map(|_| Awaited::default()).collect() }
    }

    /// Asks all cores for their counters.
    pub(super) fn statistics(&mut self, now: Instant, out: &mut Outbox, reply: Reply<CoreStatistics>) {
        let asked = out.alive().iter().filter(|core| !self.cores[usize::from(*core)].is_late());
        let awaited = asked.fold(CoreSet::EMPTY, CoreSet::with);
        out.command_each(awaited, || Command::ReportStatistics);
        let until = out.until_within(now, PATIENCE_NS);
        let statistics = vec![None; out.cores().into()];
        self.gatherings.push_back(Gathering { reply, statistics, awaited, until });
        self.reply_to_complete(out);
    }

    /// Asks the core of a connection for its state.
    pub(super) fn connection(
        &mut self,
        now: Instant,
        out: &mut Outbox,
        connection: ConnectionId,
        reply: Reply<Option<Snapshot>>,
    ) {
        let core = usize::from(connection.core());
        if !out.alive().contains(connection.core()) || self.cores[core].is_late() {
            return out.reply(reply, None);
        }
        let until = out.until_within(now, PATIENCE_NS);
        self.cores[core].connections.push_back(Waiting { reply, until });
        out.command(connection, Command::ReportConnection { connection });
    }

    pub(super) fn on_statistics(&mut self, out: &mut Outbox, core: u8, statistics: Statistics) {
        if is_overdue(&mut self.cores[usize::from(core)].overdue_statistics) {
            return;
        }
        let gathering = self.gatherings.iter_mut().find(|gathering| gathering.awaited.contains(core));
        let Some(gathering) = gathering else { return };
        gathering.statistics[usize::from(core)] = Some(statistics);
        gathering.awaited = gathering.awaited.without(core);
        self.reply_to_complete(out);
    }

    pub(super) fn on_connection(&mut self, out: &mut Outbox, core: u8, report: Option<Snapshot>) {
        let awaited = &mut self.cores[usize::from(core)];
        if is_overdue(&mut awaited.overdue_connections) {
            return;
        }
        if let Some(waiting) = awaited.connections.pop_front() {
            out.reply(waiting.reply, report);
        }
    }

    /// Answers for a core that is no longer polled.
    pub(super) fn on_core_ended(&mut self, out: &mut Outbox, core: u8) {
        for gathering in &mut self.gatherings {
            gathering.awaited = gathering.awaited.without(core);
        }
        self.reply_to_complete(out);
        for waiting in core::mem::take(&mut self.cores[usize::from(core)]).connections {
            out.reply(waiting.reply, None);
        }
    }

    fn reply_to_complete(&mut self, out: &mut Outbox) {
        let is_complete = |gathering: &Gathering| gathering.awaited.is_empty();
        while let Some(index) = self.gatherings.iter().position(is_complete) {
            let Some(Gathering { reply, statistics, .. }) = self.gatherings.remove(index) else { return };
            out.reply(reply, statistics);
        }
    }

    /// Returns when the first application waits no longer.
    pub(super) fn next_deadline(&self) -> Instant {
        let statistics = self.gatherings.front().map(|gathering| gathering.until);
        let connections = self.cores.iter().filter_map(|awaited| Some(awaited.connections.front()?.until));
        connections.chain(statistics).min().unwrap_or(Instant::NEVER)
    }

    /// Replies to the applications that have waited for long enough.
    pub(super) fn on_time(&mut self, now: Instant, out: &mut Outbox) {
        while let Some(gathering) = self.gatherings.pop_front_if(|gathering| gathering.until <= now) {
            for core in gathering.awaited.iter() {
                self.cores[usize::from(core)].overdue_statistics += 1;
            }
            out.reply(gathering.reply, gathering.statistics);
        }
        for awaited in &mut self.cores {
            while let Some(waiting) = awaited.connections.pop_front_if(|waiting| waiting.until <= now) {
                awaited.overdue_connections += 1;
                out.reply(waiting.reply, None);
            }
        }
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.gatherings.is_empty() && self.cores.iter().all(|awaited| awaited.connections.is_empty())
    }
}

/// Returns true for an answer that nobody waits for any more, and takes it off their number.
const fn is_overdue(overdue: &mut usize) -> bool {
    let is_overdue = *overdue > 0;
    *overdue -= is_overdue as usize;
    is_overdue
}

#[cfg(test)]
mod tests {
    use crossbeam::channel::Receiver;

    use super::*;

    fn deliver(out: &mut Outbox) {
        while let Some(reply) = out.next_reply() {
            reply();
        }
    }

    fn ask(reports: &mut Reports, now: Instant, out: &mut Outbox) -> Receiver<CoreStatistics> {
        let (reply, receiver) = Reply::new();
        reports.statistics(now, out, reply);
        receiver
    }

    fn counters(starts_refused: u64) -> Statistics {
        let mut statistics = Statistics::default();
        statistics.starts_refused = starts_refused;
        statistics
    }

    /// Returns how many commands `core` is sent, and sends them.
    fn commands(out: &mut Outbox, core: u8) -> usize {
        std::iter::from_fn(|| out.next_command(core)).count()
    }

    /// Returns how many starts each core has counted.
    fn starts(receiver: &Receiver<CoreStatistics>) -> Option<Vec<Option<u64>>> {
        let of_core = |statistics: Option<Statistics>| statistics.map(|counters| counters.starts_refused);
        receiver.try_recv().ok().map(|cores| cores.into_iter().map(of_core).collect())
    }

    /// A core that answers too late is left out, and its answer is not taken for the next one.
    #[test]
    fn a_late_report_is_not_the_next_one() {
        let (mut reports, mut out) = (Reports::new(2), Outbox::new(2));
        let now = Instant::from_nanos(1);
        let [first, second] = [0; 2].map(|_| ask(&mut reports, now, &mut out));
        reports.on_statistics(&mut out, 1, counters(10));
        reports.on_statistics(&mut out, 1, counters(11));
        let late = now + PATIENCE_NS;
        assert_eq!(reports.next_deadline(), late);
        reports.on_time(late, &mut out);
        deliver(&mut out);
        assert_eq!(starts(&first), Some(vec![None, Some(10)]));
        assert_eq!(starts(&second), Some(vec![None, Some(11)]));
        assert_eq!(commands(&mut out, 0), 2);
        assert_eq!(commands(&mut out, 1), 2);

        // Nothing piles up for it, and nobody waits for it.
        let third = ask(&mut reports, late, &mut out);
        reports.on_statistics(&mut out, 0, counters(20));
        reports.on_statistics(&mut out, 1, counters(12));
        deliver(&mut out);
        assert_eq!(starts(&third), Some(vec![None, Some(12)]));
        assert_eq!((commands(&mut out, 0), commands(&mut out, 1)), (0, 1));

        reports.on_statistics(&mut out, 0, counters(21));
        let fourth = ask(&mut reports, late, &mut out);
        reports.on_statistics(&mut out, 0, counters(22));
        reports.on_statistics(&mut out, 1, counters(13));
        deliver(&mut out);
        assert_eq!(starts(&fourth), Some(vec![Some(22), Some(13)]));
        assert!(reports.is_empty());
    }

    /// With every core late the answer comes at once.
    #[test]
    fn nobody_waits_for_cores_that_are_late() {
        let (mut reports, mut out) = (Reports::new(2), Outbox::new(2));
        let now = Instant::from_nanos(1);
        let _first = ask(&mut reports, now, &mut out);
        let late = now + PATIENCE_NS;
        reports.on_time(late, &mut out);
        let second = ask(&mut reports, late, &mut out);
        deliver(&mut out);
        assert_eq!(starts(&second), Some(vec![None, None]));
        assert!(reports.is_empty());
    }

    /// One that asks when a core is late does not wait for those who asked before.
    #[test]
    fn an_answer_does_not_wait_for_earlier_ones() {
        let (mut reports, mut out) = (Reports::new(2), Outbox::new(2));
        let now = Instant::from_nanos(1);
        let _first = ask(&mut reports, now, &mut out);
        let second = ask(&mut reports, now + PATIENCE_NS / 2, &mut out);
        for _ in 0..2 {
            reports.on_statistics(&mut out, 1, counters(5));
        }
        let late = now + PATIENCE_NS;
        reports.on_time(late, &mut out);
        let third = ask(&mut reports, late, &mut out);
        reports.on_statistics(&mut out, 1, counters(5));
        deliver(&mut out);
        assert_eq!(starts(&third), Some(vec![None, Some(5)]));
        assert_eq!(starts(&second), None, "it waits for core 0");
    }

    /// The state of a connection that comes too late is not taken for that of the next.
    #[test]
    fn a_late_state_is_not_the_next_one() {
        let (mut reports, mut out) = (Reports::new(2), Outbox::new(2));
        let now = Instant::from_nanos(1);
        let ask = |reports: &mut Reports, now, out: &mut Outbox| {
            let (reply, receiver) = Reply::new();
            reports.connection(now, out, ConnectionId::from_bits(1 << 24), reply);
            receiver
        };
        let first = ask(&mut reports, now, &mut out);
        let late = now + PATIENCE_NS;
        reports.on_time(late, &mut out);
        deliver(&mut out);
        assert!(matches!(first.try_recv(), Ok(None)));

        let second = ask(&mut reports, late, &mut out);
        deliver(&mut out);
        assert!(matches!(second.try_recv(), Ok(None)), "it is asked nothing more");
        assert_eq!(commands(&mut out, 1), 1);
        reports.on_connection(&mut out, 1, None);

        let third = ask(&mut reports, late, &mut out);
        deliver(&mut out);
        assert!(third.try_recv().is_err());
        reports.on_connection(&mut out, 1, None);
        deliver(&mut out);
        assert!(third.try_recv().is_ok());
        assert!(reports.is_empty());
    }
}
