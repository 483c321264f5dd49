//! Conflicts between two requests of one queue that use the same octets, and the measures that order them.
//!
//! RFC 5040 §5.5 and RFC 7306 §7 define an order of Deliveries and completions, hardly ever one of
//! Placements: two Writes, or the Responses to two Reads, may be placed in either order, and a Read may be
//! carried out after later Writes. The model keeps requests whose order is open from being in flight
//! together.

use core::ops::Range;

/// A part of the memory of one half of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Area {
    /// The owner sends from it; no request writes it.
    Source,
    /// The peer writes, reads and does Atomic Operations on it; its owner does not use it.
    Shared,
    /// The sink of the owner's Reads and of the values of its Atomic Operations; Sends may read it.
    Sink,
    /// Buffers for messages.
    Inbox,
    /// Memory whose STag may be invalidated, and which is then registered again; the peer uses it like shared
    /// memory.
    Disposable(u8),
}

/// Octets of an area.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub area: Area,
    pub range: Range<usize>,
}

impl Span {
    fn meets(&self, other: &Self) -> bool {
        self.area == other.area && self.range.start < other.range.end && other.range.start < self.range.end
    }
}

/// The octets that a request touches.
#[derive(Clone, Debug, Default)]
pub(crate) struct Touches {
    /// Read here when it is sent, and again when that is lost.
    pub sources: Vec<Span>,
    /// Written here by the answer.
    pub sink: Option<Span>,
    /// Written there.
    pub written: Option<Span>,
    /// Read there.
    pub read: Option<Span>,
    /// Changed there by an Atomic Operation.
    pub changed: Option<Span>,
    /// The place of the peer's name by which it reaches there.
    pub through: Option<usize>,
    /// The place of the name of this end that it changes.
    pub opens: Option<usize>,
}

/// The measure that keeps an order between a request and an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Needs {
    Nothing,
    /// A fence: it waits until earlier Reads and Atomic Operations are answered.
    Fence,
    /// The earlier one is complete before this one is posted.
    Completion,
}

fn meet(one: Option<&Span>, other: Option<&Span>) -> bool {
    one.zip(other).is_some_and(|(one, other)| one.meets(other))
}

impl Touches {
    /// Returns the measure needed between this request and `earlier`, which is not complete.
    pub(crate) fn needs(&self, earlier: &Self) -> Needs {
        let sink = self.sink.as_ref();
        let source_of = |span: &Option<Span>, touches: &Self| {
            touches.sources.iter().any(|source| meet(Some(source), span.as_ref()))
        };
        // The response must change no octets that are still to be sent, and no late response may overwrite
        // it.
        if source_of(&self.sink, earlier) || meet(sink, earlier.sink.as_ref()) {
            return Needs::Completion;
        }
        // Two Writes may be placed in either order.
        if meet(self.written.as_ref(), earlier.written.as_ref()) {
            return Needs::Completion;
        }
        let asked = [earlier.read.as_ref(), earlier.changed.as_ref()];
        // A Read or Atomic Operation may be carried out after a later Write has been placed, and a Read after
        // a later Atomic Operation. Atomic Operations keep their order, and later Reads see their effects.
        let overtakes = asked.iter().any(|asked| meet(self.written.as_ref(), *asked))
            || meet(self.changed.as_ref(), earlier.read.as_ref());
        // Octets that a Read returns can be sent once it is complete.
        if overtakes || source_of(&earlier.sink, self) {
            return Needs::Fence;
        }
        Needs::Nothing
    }
}
