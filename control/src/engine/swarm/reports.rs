//! Applications ask about their connections while these are at work. The answers are what the wire
//! shows.

use crossbeam::channel::{Receiver, TryRecvError};
use fastrand::Rng;
use warpline_dataplane::tcp::Snapshot;

use super::draw::Draw;
use super::wire::{Flow, View};
use super::world::Swarm;
use crate::engine::interface::reply::Reply;
use crate::engine::interface::request::Request;

/// A report that an application waits for.
struct Awaited {
    host: usize,
    /// What the host sends on the connection.
    flow: Flow,
    reply: Receiver<Option<Snapshot>>,
    /// What the wire showed before the last step.
    shown: Option<View>,
}

/// The reports that applications wait for.
#[derive(Default)]
pub(super) struct Reports {
    awaited: Vec<Awaited>,
    /// How many have come.
    pub(super) come: u64,
}

/// An application asks about a connection, which `rng` chooses.
pub(super) fn ask(world: &mut Swarm, rng: &mut Rng) {
    let streams: Vec<_> = world.streams.ends().collect();
    let any = rng.usize(..2 * world.connections.len() + streams.len());
    let (reply, receiver) = Reply::new();
    let (host, flow, request) = if let Some((host, end)) = streams.get(any) {
        let flow = Flow::between(end.pair.local, end.pair.remote);
        (*host, flow, Request::StreamReport { connection: end.connection, reply })
    } else {
        let any = any - streams.len();
        let (of, side) = (&world.connections[any / 2], any % 2);
        let qp = of.qps[side].shared.number;
        let responder = Flow::between(of.responder.local, of.responder.remote);
        let flow = if side == 1 { responder } else { responder.reversed() };
        (of.hosts[side], flow, Request::ConnectionReport { qp, reply })
    };
    world.hosts[host].send(world.now, request);
    world.reports.awaited.push(Awaited { host, flow, reply: receiver, shown: None });
}

/// Looks at the reports that have come, and at the wire for those that have not.
pub(super) fn take(world: &mut Swarm) {
    for mut awaited in core::mem::take(&mut world.reports.awaited) {
        match awaited.reply.try_recv() {
            Ok(Some(snapshot)) => take_one(world, &awaited, &snapshot),
            Err(TryRecvError::Empty) => {
                awaited.shown = world.switch.wire().view(awaited.flow);
                world.reports.awaited.push(awaited);
            }
            // The connection is over, or its core stalls, or its host has started again.
            Ok(None) | Err(TryRecvError::Disconnected) => {}
        }
    }
}

fn take_one(world: &mut Swarm, awaited: &Awaited, snapshot: &Snapshot) {
    world.reports.come += 1;
    world.reported.add_octets(format!("{:?} {:?}", snapshot.state, snapshot.congestion).as_bytes());
    for named in snapshot.named() {
        world.reported.add_octets(named.name.as_bytes());
        world.reported.add(named.value);
    }
    let Draw { seed, clean, episodes, restart, .. } = &world.draw;
    // A core or an engine that stalls answers late, a frame may wait for another core, and a host that has
    // started again may have another connection of the same addresses and ports.
    let is_exact = *episodes == 0 && !restart && world.hosts[awaited.host].core_count() == 1;
    if let Some(shown) = awaited.shown.filter(|_| is_exact) {
        let judged = shown.judge(snapshot, *clean);
        assert_eq!(judged, Ok(()), "seed {seed}, {:?}: {snapshot:#?}", awaited.flow);
    }
}
