//! A judge of every frame that hosts send and receive. It knows no stack: what a segment may be follows from
//! the segments before it, by the documents alone.

mod fpdus;
mod half;
mod runs;
mod segment;
mod view;

use std::collections::HashMap;

use warpline_dataplane::time::Instant;

use super::flood::is_its_address;
use half::Half;
pub(super) use segment::{Flow, Segment, checksum, flag};
pub(super) use view::View;

/// Returns what `frame` is, for those who read along.
pub(super) fn describe(frame: &[u8]) -> String {
    let Some(segment) = Segment::in_frame(frame) else {
        return format!("{} octets: {:x?}", frame.len(), frame.get(12..).unwrap_or_default());
    };
    let Segment { flow, seq, ack, flags, window, options, payload, ecn, is_intact, .. } = segment;
    let flags: String =
        (0..8).filter(|bit| flags & 1 << bit != 0).map(|bit| char::from(b"FSRPAUEC"[bit])).collect();
    let state = if is_intact { "" } else { " damaged" };
    let options = options.describe();
    format!(
        "{:?} {flags} {seq}..{} ack {ack} win {window} ecn {ecn}{options}{state}",
        flow.ports(),
        seq.wrapping_add(payload.len() as u32)
    )
}

/// What a host has sent since it started, as its own counters have it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sent {
    /// Segments with text.
    pub(super) data_segments: u64,
    /// Those of text that was sent before.
    pub(super) again: u64,
}

/// What a forger knows of one end of a connection.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) host: usize,
    /// The direction of the segments that it takes.
    pub(super) flow: Flow,
    /// The sequence number of the place before the first octet of that direction.
    iss: u32,
    /// The place that it expects next, and that after the window it has offered.
    pub(super) next: i64,
    pub(super) edge: i64,
    /// What its peer would acknowledge, and the timestamps that its peer sent last.
    pub(super) ack: u32,
    /// The sequence number of the first octet that it has sent and not seen acknowledged.
    pub(super) una: u32,
    pub(super) clock: Option<(u32, u32)>,
}

impl Target {
    /// Returns the sequence number of a place.
    pub(super) const fn seq_of(&self, place: i64) -> u32 {
        self.iss.wrapping_add(1).wrapping_add(place as u32)
    }
}

/// All connections of a world, as the wire shows them.
#[derive(Default)]
pub(super) struct Wire {
    halves: HashMap<Flow, Half>,
    hosts: Vec<Sent>,
    /// Hosts that are receivers of DCTCP.
    echoes_each_mark: Vec<bool>,
    /// Segments of all hosts.
    segments: u64,
    /// The first thing that was wrong.
    fault: Option<String>,
    /// Acknowledgements have no cause to be late.
    is_prompt: bool,
}

impl Wire {
    /// Nothing but delay happens to frames, and hosts never stall.
    pub(super) const fn expect_prompt_acknowledgements(&mut self) {
        self.is_prompt = true;
    }

    /// A host starts, or starts again: it counts from nothing. It is a receiver of DCTCP if
    /// `echoes_each_mark` is set.
    pub(super) fn begin(&mut self, host: usize, echoes_each_mark: bool) {
        self.echoes_each_mark.resize(self.echoes_each_mark.len().max(host + 1), false);
        self.echoes_each_mark[host] = echoes_each_mark;
        self.hosts.resize(self.hosts.len().max(host + 1), Sent::default());
        self.hosts[host] = Sent::default();
        self.halves.values_mut().filter(|half| half.host == host).for_each(Half::forget);
    }

    /// `host` has dropped none of the segments that have come: judges what depends on that.
    pub(super) fn check_kept_all(&mut self, host: usize) {
        let doubt = self.halves.values().filter(|half| half.host == host).find_map(|half| half.doubt.clone());
        if let Some(doubt) = doubt {
            self.set_fault(format!("host {host} has kept all: {doubt}"));
        }
    }

    pub(super) fn sent(&self, host: usize) -> Sent {
        self.hosts[host]
    }

    /// Something is wrong that is not of TCP.
    pub(super) fn set_fault(&mut self, fault: String) {
        self.fault.get_or_insert(fault);
    }

    /// Returns what was wrong first.
    pub(super) fn fault(&self) -> Option<&str> {
        self.fault.as_deref()
    }

    /// Nothing is owed to anybody any more.
    pub(super) fn check_all(&mut self, now: Instant) {
        let late = self.halves.iter().find_map(|(flow, half)| Some((flow, half.is_in_time(now).err()?)));
        if let Some((flow, late)) = late {
            self.fault = Some(format!("{flow:?}: {late}"));
        }
    }

    /// No queue pair has done anything for a while: judges their connections by the windows of the hosts.
    pub(super) fn check_at_rest(&mut self, window_octets: impl Fn(usize) -> u32) {
        for (flow, half) in self.halves.iter().filter(|(_, half)| half.speaks_mpa()) {
            let peer = self.halves.get(&flow.reversed()).filter(|peer| half.talks_to(peer));
            let judged = peer.map_or(Ok(()), |peer| half.is_at_rest(peer, window_octets(half.host)));
            if let Err(what) = judged {
                self.fault.get_or_insert(format!("host {} at rest: {what}", half.host));
            }
        }
    }

    /// Returns how many segments of `host` ended inside of an FPDU.
    pub(super) fn unaligned(&self, host: usize) -> u64 {
        self.halves.values().filter(|half| half.host == host).map(|half| half.unaligned).sum()
    }

    /// Returns true if the end of `host` of a queue pair's connection with `peer` has closed, and given up
    /// without a word that its FIN has come.
    pub(super) fn has_given_up(&self, host: usize, peer: usize) -> bool {
        self.has_given_up_one(host, peer, true)
    }

    /// Returns the same of the end of a byte stream.
    pub(super) fn has_given_up_stream(&self, host: usize, peer: usize) -> bool {
        self.has_given_up_one(host, peer, false)
    }

    fn has_given_up_one(&self, host: usize, peer: usize, speaks_mpa: bool) -> bool {
        self.halves.iter().any(|(flow, half)| {
            let is_of = |other: &Half| other.host == peer && half.talks_to(other);
            half.host == host
                && half.speaks_mpa() == speaks_mpa
                && half.has_given_up()
                && self.halves.get(&flow.reversed()).is_some_and(is_of)
        })
    }

    /// Returns how many FPDUs all hosts have sent, and their octets.
    pub(super) fn fpdus(&self) -> [u64; 2] {
        self.halves.values().map(Half::fpdus).fold([0; 2], |sum, more| [sum[0] + more[0], sum[1] + more[1]])
    }

    /// Returns an open connection's end of those that `number` chooses among, for a forger.
    pub(super) fn target(&self, number: usize) -> Option<Target> {
        let open = |(flow, half): (&Flow, &Half)| {
            let peer = self.halves.get(&flow.reversed())?;
            half.is_open_to(peer).then(|| half.target(flow.reversed(), peer))
        };
        let mut targets: Vec<_> = self.halves.iter().filter_map(open).collect();
        // Not in the order of a hash.
        targets.sort_unstable_by_key(|target| (target.host, target.flow.ports(), target.flow.addresses()));
        if targets.is_empty() { None } else { Some(targets.swap_remove(number % targets.len())) }
    }

    /// Returns what shows of the end that sends `flow`, once it has seen the SYN of its peer.
    pub(super) fn view(&self, flow: Flow) -> Option<View> {
        let half = self.halves.get(&flow)?;
        let peer = self.halves.get(&flow.reversed()).filter(|peer| half.talks_to(peer))?;
        Some(View::of(half, peer))
    }

    /// `host` sends `frame`.
    pub(super) fn on_sent(&mut self, host: usize, now: Instant, frame: &[u8]) {
        // What answers SYNs that this did not see is judged by who sent them.
        let is_judged = |it: &Segment<'_>| !is_its_address(it.flow.addresses()[1]);
        let Some(segment) = Segment::in_frame(frame).filter(is_judged) else { return };
        if let Err(what) = self.judge(host, now, &segment) {
            let text = format!("{} octets of text", segment.payload.len());
            let Segment { flow, seq, ack, flags, window, options, .. } = &segment;
            self.fault.get_or_insert_with(|| {
                format!(
                    "host {host} at {}: {what}; {:?} seq {seq} ack {ack} flags {flags:x} window {window} \
                     {options:?}, {text}",
                    now.as_nanos(),
                    flow.ports(),
                )
            });
        }
    }

    /// Returns how many segments all hosts have sent.
    pub(super) const fn segments(&self) -> u64 {
        self.segments
    }

    fn judge(&mut self, host: usize, now: Instant, segment: &Segment<'_>) -> Result<(), String> {
        self.segments += 1;
        if !segment.is_intact {
            return Err("a wrong checksum".to_owned());
        }
        if segment.options.is_malformed {
            return Err("an option of an impossible length".to_owned());
        }
        let (flow, reversed) = (segment.flow, segment.flow.reversed());
        let known = self.halves.remove(&flow);
        let peer = self.halves.get(&reversed);
        if segment.has(flag::SYN) {
            let begun = Half::begin(host, segment, peer)?;
            let known = known.filter(|half| half.has_iss(segment.seq));
            self.halves.insert(flow, known.unwrap_or(begun));
            return Ok(());
        }
        let Some(mut half) = known else {
            let refuses = segment.has(flag::RST) && segment.payload.is_empty();
            return if refuses { Ok(()) } else { Err("a segment of no connection".to_owned()) };
        };
        let peer = peer.filter(|peer| half.talks_to(peer));
        let mut again = half.send(now, segment, peer, self.echoes_each_mark[host]);
        if self.is_prompt && again.is_ok() {
            again = half.is_within_congestion_window().and(again);
        }
        self.halves.insert(flow, half);
        self.hosts[host].data_segments += u64::from(!segment.payload.is_empty());
        self.hosts[host].again += u64::from(again?);
        Ok(())
    }

    /// A host takes `frame` from its device.
    pub(super) fn on_arrived(&mut self, now: Instant, frame: &[u8]) {
        let Some(segment) = Segment::in_frame(frame).filter(|segment| segment.is_intact) else { return };
        let Some(mut sender) = self.halves.remove(&segment.flow) else { return };
        let receiver = self.halves.get_mut(&segment.flow.reversed());
        sender.arrive(now, &segment, receiver, self.is_prompt);
        self.halves.insert(segment.flow, sender);
    }
}
