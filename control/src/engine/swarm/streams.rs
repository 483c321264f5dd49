//! Byte streams of a seed: two hosts, and applications that write and read what random plans say.

use std::net::SocketAddr;
use std::sync::Arc;

use fastrand::Rng;
use warpline_dataplane::byte_stream::{ByteReader, ByteWriter};
use warpline_dataplane::device::sim::OptionFaults;
use warpline_dataplane::ring::ConnectionId;
use warpline_dataplane::time::Instant;

use super::draw::{Damage, Draw};
use super::host::{Host, STREAM_PORT, address, patience};
use super::memory_oracle::stack::World;
use super::stream_oracle::plan::Plan;
use super::stream_oracle::receiver::{Arena, Receiver};
use super::stream_oracle::sender::Sender;
use super::talks::Talk;
use super::world::Swarm;
use crate::engine::interface::request::{Request, StreamRequest};
use crate::engine::interface::shared_stream::SharedStream;
use crate::vocabulary::stream::StreamConfig;

/// Attempts to open a stream: each may meet a stalled host.
const ATTEMPTS: usize = 20;

/// One direction of a stream.
struct Way {
    sender: Option<Sender>,
    written: Vec<u8>,
    receiver: Receiver,
}

impl Way {
    fn act(&mut self, rng: &mut Rng) {
        let Some(sender) = &mut self.sender else { return };
        if rng.u8(..3) == 0 {
            sender.act(rng, &mut self.receiver.gates);
        }
        if rng.u8(..3) == 0 {
            self.receiver.act(rng, &sender.written);
        }
    }

    fn is_over(&self) -> bool {
        self.sender
            .as_ref()
            .is_none_or(|sender| sender.is_finished() && self.receiver.is_finished(sender.written.len()))
    }
}

/// A byte stream between two hosts. The first way leads from the first host to the second.
struct Stream {
    ends: [(usize, Arc<SharedStream>); 2],
    ways: [Way; 2],
    is_faithful: bool,
}

/// The byte streams of a world.
#[derive(Default)]
pub(super) struct Streams {
    open: Vec<Stream>,
    /// Those whose applications have dropped both ends.
    dropped: Vec<Stream>,
    /// Connections that stay in streaming mode.
    talks: Vec<Talk>,
}

impl Streams {
    /// Has the applications write and read.
    pub(super) fn act(&mut self, rng: &mut Rng, now: Instant, hosts: &mut [Host]) {
        for way in self.open.iter_mut().flat_map(|stream| &mut stream.ways) {
            way.act(rng);
        }
        for talk in &mut self.talks {
            talk.act(rng, now, hosts);
        }
    }

    /// Returns the ends of all, and their hosts.
    pub(super) fn ends(&self) -> impl Iterator<Item = (usize, Arc<SharedStream>)> {
        let all = self.open.iter().map(|stream| &stream.ends).chain(self.talks.iter().map(|talk| &talk.ends));
        all.flatten().cloned()
    }

    /// Returns true if all octets of all streams were read, as far as somebody reads them.
    pub(super) fn are_over(&self) -> bool {
        self.open.iter().flat_map(|stream| &stream.ways).all(Way::is_over)
            && self.talks.iter().all(Talk::is_over)
    }

    /// Asserts that nothing was written outside of the buffers of any stream, at any time.
    pub(super) fn check_memory(&self) {
        for stream in self.open.iter().chain(&self.dropped) {
            for way in &stream.ways {
                way.receiver.check_memory(stream.is_faithful);
            }
        }
    }

    /// Describes the streams that are not over.
    pub(super) fn describe(&self) -> Vec<[String; 2]> {
        let ways = self.open.iter().flat_map(|stream| &stream.ways).filter(|way| !way.is_over());
        let describe =
            |way: &Way| [way.sender.as_ref().map(Sender::state).unwrap_or_default(), way.receiver.state()];
        let talks = self.talks.iter().filter(|talk| !talk.is_over());
        ways.map(describe).chain(talks.map(Talk::describe)).collect()
    }
}

/// Returns true if options arrive as they were sent.
fn is_faithful(draw: &Draw, hosts: [usize; 2]) -> bool {
    let whole = draw.damage == Damage::None && draw.impairments.rdma_option == OptionFaults::NONE;
    let plain = |host: usize| draw.hosts[host].tcp.rdma_option && draw.hosts[host].super_frame_octets == 0;
    // A connection that was opened with a cookie has no option.
    whole && draw.episodes == 0 && !draw.has_flood && hosts.into_iter().all(plain)
}

impl Swarm {
    /// Opens a byte stream between two hosts.
    pub(super) fn open_stream(&mut self, hosts: [usize; 2]) {
        for _ in 0..ATTEMPTS {
            let remote = SocketAddr::new(address(&self.draw, hosts[1]), STREAM_PORT);
            let config = StreamConfig { timeout: patience(), ..StreamConfig::default() };
            let request = |reply| Request::Stream(StreamRequest::Connect { remote, config, reply });
            let Ok(near) = self.ask(hosts[0], request) else { continue };
            let far = loop {
                match self.hosts[hosts[1]].streams.try_recv() {
                    Ok(far) if far.pair.remote == near.pair.local => break far,
                    Ok(stale) => self.abandon((hosts[1], stale.connection)),
                    Err(_) => self.step(),
                }
            };
            let connection = far.connection;
            self.hosts[hosts[1]].send(self.now, Request::Stream(StreamRequest::Admit { connection }));
            let ends = [(hosts[0], near), (hosts[1], far)];
            if self.rng.u8(..3) == 0 {
                let talk = Talk::new(&mut self.rng, ends);
                self.streams.talks.push(talk);
            } else {
                self.attach(ends);
            }
            return;
        }
        panic!("no stream in {ATTEMPTS} attempts: {:#?}", self.draw);
    }

    fn attach(&mut self, ends: [(usize, Arc<SharedStream>); 2]) {
        let rng = &mut self.rng;
        let plans = [Plan::random(rng), Plan::random(rng)];
        let arenas = [Arena::new(rng, &plans[1]), Arena::new(rng, &plans[0])];
        let configs = arenas.each_ref().map(|arena| arena.config(rng));
        let bells = arenas.each_ref().map(|arena| arena.writer.clone());
        let mut shared = Vec::new();
        for ((host, end), config) in ends.iter().zip(configs) {
            let connection = end.connection;
            let request = |reply| Request::Stream(StreamRequest::Attach { connection, config, reply });
            shared.push(self.ask(*host, request).expect("it is in streaming mode"));
        }
        let [plan_a, plan_b] = plans;
        let [arena_a, arena_b] = arenas;
        let is_faithful = is_faithful(&self.draw, ends.each_ref().map(|(host, _)| *host));
        let way = |plan: Plan, from: usize, arena| {
            let (writer, reader) =
                (ByteWriter::new(shared[from].clone()), ByteReader::new(shared[1 - from].clone()));
            let mut receiver = Receiver::new(plan.clone(), reader, arena);
            receiver.is_faithful = is_faithful;
            Way {
                sender: Some(Sender::new(plan, writer, bells[from].clone())),
                written: Vec::new(),
                receiver,
            }
        };
        let ways = [way(plan_a, 0, arena_b), way(plan_b, 1, arena_a)];
        self.streams.open.push(Stream { ends, ways, is_faithful });
    }

    fn abandon(&mut self, (host, connection): (usize, ConnectionId)) {
        self.hosts[host].send(self.now, Request::Stream(StreamRequest::Abandon { connection }));
    }

    /// Drops both ends of a connection, or aborts one.
    fn drop_ends(&mut self, ends: &[(usize, Arc<SharedStream>); 2], aborts: bool) {
        if aborts {
            let (host, end) = &ends[self.rng.usize(..2)];
            let connection = end.connection;
            self.hosts[*host].send(self.now, Request::Stream(StreamRequest::Abort { connection }));
        }
        for (host, end) in ends {
            end.abandon();
            self.abandon((*host, end.connection));
        }
    }

    /// Drops both ends of a stream, finished or not, or aborts one.
    fn drop_stream(&mut self, index: usize) {
        let mut stream = self.streams.open.swap_remove(index);
        let aborts = self.rng.bool();
        for way in &mut stream.ways {
            let sender = way.sender.take();
            way.written = sender.map(|sender| sender.written).unwrap_or_default();
            way.receiver.facts().for_each(|fact| self.reported.add(fact));
            way.receiver.abandon();
        }
        self.drop_ends(&stream.ends, aborts);
        self.streams.dropped.push(stream);
    }

    /// The same of a talk.
    fn drop_talk(&mut self, index: usize) {
        let talk = self.streams.talks.swap_remove(index);
        talk.facts().for_each(|fact| self.reported.add(fact));
        let aborts = self.rng.bool();
        self.drop_ends(&talk.ends, aborts);
    }

    /// Drops a stream of chance, if there is one.
    pub(super) fn drop_any_stream(&mut self) {
        let (open, talks) = (self.streams.open.len(), self.streams.talks.len());
        if open + talks == 0 {
            return;
        }
        let any = self.rng.usize(..open + talks);
        match any.checked_sub(open) {
            Some(talk) => self.drop_talk(talk),
            None => self.drop_stream(any),
        }
    }

    /// Drops the first connections whose ends are as `is_dropped` says: true if there was one.
    fn drop_first(&mut self, is_dropped: impl Fn(&Self, &[(usize, Arc<SharedStream>); 2]) -> bool) -> bool {
        let open = self.streams.open.iter().position(|stream| is_dropped(self, &stream.ends));
        let talk = self.streams.talks.iter().position(|talk| is_dropped(self, &talk.ends));
        match (open, talk) {
            (Some(stream), _) => self.drop_stream(stream),
            (None, Some(talk)) => self.drop_talk(talk),
            (None, None) => return false,
        }
        true
    }

    /// Drops the streams of which an end has closed and gives up, as nothing says that its FIN has come: its
    /// peer loses with the RST what it has not read.
    pub(super) fn drop_unheard_streams(&mut self) {
        while self.drop_first(|this, [(one, _), (other, _)]| {
            let wire = this.switch.wire();
            wire.has_given_up_stream(*one, *other) || wire.has_given_up_stream(*other, *one)
        }) {}
    }

    /// Drops all streams that have an end at `host`.
    pub(super) fn drop_streams_of(&mut self, host: usize) {
        while self.drop_first(|_, ends| ends.iter().any(|(of, _)| *of == host)) {}
    }

    /// Drops all streams.
    pub(super) fn drop_all_streams(&mut self) {
        while self.drop_first(|_, _| true) {}
    }
}
