//! What the ends say to each other while a test runs: Immediate Data of eight bytes, in the order of the
//! messages around them.

/// A word from the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// The connecting end begins. The other end may send from now on; where both ends do, it sends as many
    /// messages, or without limit for 0.
    Start(u64),
    /// The message with this number has been written to this slot for samples.
    Sample {
        /// The slot.
        slot: u8,
        /// The message.
        number: u64,
    },
    /// The sample in this slot has been compared: the slot may be written again.
    Compared(u8),
    /// The next messages have been written to the region from its start on, as many as this.
    Check(u64),
    /// They have been compared: the region may be written again.
    Checked,
    /// The listening end has sent as many messages as it was asked for.
    Sent,
    /// The connecting end has sent everything. The other end is to stop, and to report.
    Finish,
    /// Report: messages that the listening end had sent when it was to stop.
    Messages(u64),
    /// Report: messages of the connecting end that have arrived, where that can be counted.
    Arrived(u64),
    /// Report: bytes that the listening end has compared.
    ComparedBytes(u64),
    /// Report: bytes of them that were wrong.
    CorruptBytes(u64),
    /// The report is complete.
    Reported,
}

/// Bits of a word's value, below those of its kind.
const VALUE_BITS: u32 = 56;
const VALUE_MAX: u64 = (1 << VALUE_BITS) - 1;
/// Bits of a message's number beside a slot.
const NUMBER_BITS: u32 = 48;
const NUMBER_MAX: u64 = (1 << NUMBER_BITS) - 1;

impl Word {
    /// Returns the word as Immediate Data. A count that has no room in it becomes the largest that has.
    pub fn encode(self) -> u64 {
        let (kind, value) = match self {
            Self::Start(messages) => (1, messages),
            Self::Sample { slot, number } => (2, u64::from(slot) << NUMBER_BITS | number & NUMBER_MAX),
            Self::Compared(slot) => (3, slot.into()),
            Self::Check(messages) => (4, messages),
            Self::Checked => (5, 0),
            Self::Sent => (6, 0),
            Self::Finish => (7, 0),
            Self::Messages(count) => (8, count),
            Self::Arrived(count) => (9, count),
            Self::ComparedBytes(bytes) => (10, bytes),
            Self::CorruptBytes(bytes) => (11, bytes),
            Self::Reported => (12, 0),
        };
        kind << VALUE_BITS | value.min(VALUE_MAX)
    }

    /// Returns the word in Immediate Data; `None` if it is none.
    pub fn decode(immediate: u64) -> Option<Self> {
        let value = immediate & VALUE_MAX;
        Some(match immediate >> VALUE_BITS {
            1 => Self::Start(value),
            2 => Self::Sample { slot: (value >> NUMBER_BITS) as u8, number: value & NUMBER_MAX },
            3 => Self::Compared(value as u8),
            4 => Self::Check(value),
            5 => Self::Checked,
            6 => Self::Sent,
            7 => Self::Finish,
            8 => Self::Messages(value),
            9 => Self::Arrived(value),
            10 => Self::ComparedBytes(value),
            11 => Self::CorruptBytes(value),
            12 => Self::Reported,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_as_they_were_written() {
        for word in [
            Word::Start(0),
            Word::Start(VALUE_MAX),
            Word::Sample { slot: 1, number: NUMBER_MAX },
            Word::Compared(1),
            Word::Check(9),
            Word::Checked,
            Word::Sent,
            Word::Finish,
            Word::Messages(8),
            Word::Arrived(7),
            Word::ComparedBytes(6),
            Word::CorruptBytes(5),
            Word::Reported,
        ] {
            assert_eq!(Word::decode(word.encode()), Some(word));
        }
        assert_eq!(Word::decode(Word::Messages(u64::MAX).encode()), Some(Word::Messages(VALUE_MAX)));
        assert_eq!(Word::decode(0), None);
        assert_eq!(Word::decode(u64::MAX), None);
    }
}
