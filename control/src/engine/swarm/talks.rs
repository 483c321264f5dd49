//! Connections in streaming mode (RFC 5044 §7.1) that stay in it: two applications write and read through
//! control, and finish when each has said all.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use warpline_dataplane::time::Instant;

use super::host::Host;
use crate::engine::interface::request::{Request, StreamRequest};
use crate::engine::interface::shared_stream::SharedStream;
use crate::vocabulary::stream::TcpStreamError;

/// Octets that one end says: some say more than control takes at a time.
const TEXT_OCTETS_MAX: [usize; 3] = [10, 5_000, 120_000];
/// Octets of a write or a read.
const PIECE_OCTETS_MAX: [usize; 3] = [20, 2_000, 20_000];
/// Applications come back later.
const NO_WAIT: Duration = Duration::ZERO;

/// What one end says to the other.
struct Speech {
    text: Vec<u8>,
    said: usize,
    is_finished: bool,
    heard: usize,
    /// The other end has heard that it is finished.
    is_over: bool,
}

/// Two applications and their connection.
pub(super) struct Talk {
    pub(super) ends: [(usize, Arc<SharedStream>); 2],
    /// The first is that of the first end.
    speeches: [Speech; 2],
}

impl Speech {
    fn new(rng: &mut Rng) -> Self {
        let most = TEXT_OCTETS_MAX[rng.usize(..TEXT_OCTETS_MAX.len())];
        let octets = rng.usize(..most);
        let text = (0..octets).map(|_| rng.u8(..)).collect();
        Self { text, said: 0, is_finished: false, heard: 0, is_over: false }
    }

    /// The application at `end` says some of it. Returns what it asks control for.
    fn say(&mut self, rng: &mut Rng, end: &SharedStream) -> Option<StreamRequest> {
        let (connection, mut request) = (end.connection, None);
        let left = self.text.len() - self.said;
        if left == 0 {
            self.is_finished = true;
            end.finish(|| request = Some(StreamRequest::Finish { connection }));
            return request;
        }
        let piece = &self.text[self.said..][..left.min(any_octets(rng))];
        let write = |octets| {
            request = Some(StreamRequest::Write { connection, octets });
            Ok(())
        };
        match end.write(piece, NO_WAIT, write) {
            Ok(octets) => self.said += octets,
            Err(error) => assert_eq!(error, TcpStreamError::TimedOut, "after {} octets", self.said),
        }
        request
    }

    /// The application at `end` hears some of it. Returns what it asks control for.
    fn hear(&mut self, rng: &mut Rng, end: &SharedStream) -> Option<StreamRequest> {
        let (connection, mut request) = (end.connection, None);
        let mut out = vec![0; any_octets(rng)];
        let take = |octets| {
            request = Some(StreamRequest::Take { connection, octets });
            Ok(())
        };
        match end.read(&mut out, NO_WAIT, take) {
            Ok(0) => {
                assert!(self.is_finished && self.heard == self.text.len(), "{} octets heard", self.heard);
                self.is_over = true;
            }
            Ok(octets) => {
                let expected = self.text[..self.said].get(self.heard..self.heard + octets);
                assert_eq!(expected, Some(&out[..octets]), "other octets at {}", self.heard);
                self.heard += octets;
            }
            Err(error) => assert_eq!(error, TcpStreamError::TimedOut, "{} octets heard", self.heard),
        }
        request
    }
}

fn any_octets(rng: &mut Rng) -> usize {
    let most = PIECE_OCTETS_MAX[rng.usize(..PIECE_OCTETS_MAX.len())];
    rng.usize(1..most)
}

impl Talk {
    pub(super) fn new(rng: &mut Rng, ends: [(usize, Arc<SharedStream>); 2]) -> Self {
        Self { ends, speeches: [Speech::new(rng), Speech::new(rng)] }
    }

    /// Has the applications say and hear some.
    pub(super) fn act(&mut self, rng: &mut Rng, now: Instant, hosts: &mut [Host]) {
        for (from, speech) in self.speeches.iter_mut().enumerate() {
            let [(speaks, speaker), (hears, hearer)] = [&self.ends[from], &self.ends[1 - from]];
            if !speech.is_finished
                && rng.u8(..3) == 0
                && let Some(request) = speech.say(rng, speaker)
            {
                hosts[*speaks].send(now, Request::Stream(request));
            }
            if !speech.is_over
                && rng.u8(..3) == 0
                && let Some(request) = speech.hear(rng, hearer)
            {
                hosts[*hears].send(now, Request::Stream(request));
            }
        }
    }

    /// Returns true if all was heard, and the connection is closed in an orderly way at both ends.
    pub(super) fn is_over(&self) -> bool {
        let is_closed = |(_, end): &(usize, Arc<SharedStream>)| end.wait_closed(NO_WAIT).is_ok();
        self.speeches.iter().all(|speech| speech.is_over) && self.ends.iter().all(is_closed)
    }

    /// Returns how much was heard.
    pub(super) fn facts(&self) -> impl Iterator<Item = u64> {
        self.speeches.iter().map(|speech| speech.heard as u64)
    }

    pub(super) fn describe(&self) -> [String; 2] {
        let closed = self.ends.each_ref().map(|(_, end)| end.wait_closed(NO_WAIT));
        self.speeches.each_ref().map(|Speech { text, said, is_finished, heard, is_over }| {
            let octets = text.len();
            format!("{said} of {octets} said, {is_finished}; {heard} heard, {is_over}; {closed:?}")
        })
    }
}
