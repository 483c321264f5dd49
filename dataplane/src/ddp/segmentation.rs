//! Segmentation of messages (RFC 5041 §5.2).

use crate::memory::STag;
use crate::wire::ddp::{Header, Tagged, Untagged};

/// The buffer model and address of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    /// The Tagged Buffer Model: a buffer that the peer has advertised (RFC 5041 §4.2).
    Tagged {
        /// The peer's STag.
        stag: STag,
        /// The Tagged Offset at which the message begins, anywhere in the buffer.
        // Requirements: DDP-4.2-09
        to: u64,
    },
    /// The Untagged Buffer Model: the next buffer of a queue of the peer (RFC 5041 §4.3).
    Untagged {
        /// The queue.
        queue: u32,
        /// The MSN on that queue.
        msn: u32,
    },
}

/// A message to send: the fields that are the same in all of its segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// The version of DDP on its stream.
    pub version: u8,
    /// The address.
    pub model: Model,
    /// The octets of the ULP in every header; a Tagged header takes the first one.
    // Requirements: DDP-4.2-04, DDP-4.3-04
    pub rsvd_ulp: [u8; 5],
    /// Its length in octets; 32 bits, so below 2^32.
    // Requirements: DDP-5.2-02
    pub octets: u32,
}

impl Message {
    /// Octets of the header of each segment.
    #[inline]
    pub const fn header_len(&self) -> usize {
        match self.model {
            Model::Tagged { .. } => Tagged::LEN,
            Model::Untagged { .. } => Untagged::LEN,
        }
    }

    /// Octets of payload in the segment that begins `offset` octets into the message and fits `mulpdu`
    /// octets: as much as fits. A MULPDU is never below 128, so there is always room.
    // Requirements: DDP-5.2-01, MPA-4.5-05
    #[inline]
    pub fn part_octets(&self, offset: u32, mulpdu: usize) -> u32 {
        let room = mulpdu.saturating_sub(self.header_len()).max(1);
        (self.octets - offset).min(u32::try_from(room).unwrap_or(u32::MAX))
    }

    /// The segment that begins `offset` octets into the message and fits `mulpdu` octets: its header and its
    /// octets of payload. The last segment has the Last flag and is sent last; an empty message has exactly
    /// one segment. All segments have the fields of the message.
    // Requirements: DDP-4.2-08, DDP-4.3-06, DDP-4.3-10, DDP-5.2-03, DDP-5.2-06, RDMAP-4.1-06
    #[inline]
    pub fn segment(&self, offset: u32, mulpdu: usize) -> (Header, u32) {
        let octets = self.part_octets(offset, mulpdu);
        // Requirements: DDP-4.1-03 to DDP-4.1-06, DDP-5.2-08
        let last = octets == self.octets - offset;
        let header = match self.model {
            Model::Tagged { stag, to } => Header::Tagged(Tagged {
                last,
                version: self.version,
                rsvd_ulp: self.rsvd_ulp[0],
                stag,
                // The sum may wrap; the peer then refuses it.
                // Requirements: DDP-7.1-14, DDP-5.2-07
                to: to.wrapping_add(u64::from(offset)),
            }),
            Model::Untagged { queue, msn } => Header::Untagged(Untagged {
                last,
                version: self.version,
                rsvd_ulp: self.rsvd_ulp,
                queue,
                msn,
                // Requirements: DDP-4.3-11, DDP-5.2-05
                mo: offset,
            }),
        };
        (header, octets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(message: &Message, mulpdu: usize) -> Vec<(Header, u32)> {
        let mut segments = Vec::new();
        let mut offset = 0;
        loop {
            let (header, octets) = message.segment(offset, mulpdu);
            segments.push((header, octets));
            offset += octets;
            if offset == message.octets {
                return segments;
            }
        }
    }

    /// The example of RFC 5041 §5.2, untagged.
    // Requirements: DDP-5.2-01, DDP-5.2-05, DDP-4.1-06
    #[test]
    fn the_untagged_example() {
        let message = Message {
            version: 1,
            model: Model::Untagged { queue: 0, msn: 1 },
            rsvd_ulp: [0; 5],
            octets: 2048,
        };
        let got: Vec<_> = cut(&message, 1500)
            .iter()
            .map(|(header, octets)| match header {
                Header::Untagged(u) => (u.mo, *octets, u.last),
                Header::Tagged(_) => panic!("untagged"),
            })
            .collect();
        assert_eq!(got, [(0, 1482, false), (1482, 566, true)]);
    }

    /// The example of RFC 5041 §5.2, tagged.
    // Requirements: DDP-5.2-01, DDP-5.2-07
    #[test]
    fn the_tagged_example() {
        let model = Model::Tagged { stag: STag(0x0102_0304), to: 16384 };
        let message = Message { version: 1, model, rsvd_ulp: [0x40, 0, 0, 0, 0], octets: 2048 };
        let got: Vec<_> = cut(&message, 1500)
            .iter()
            .map(|(header, octets)| match header {
                Header::Tagged(t) => (t.to, *octets, t.last),
                Header::Untagged(_) => panic!("tagged"),
            })
            .collect();
        assert_eq!(got, [(16384, 1486, false), (17870, 562, true)]);
    }

    /// The message's fields in every segment, in the order in which the segments are sent.
    // Requirements: DDP-5.2-02, DDP-5.2-06, DDP-5.3-03, RDMAP-4.1-06
    #[test]
    fn what_is_the_messages_is_in_every_segment() {
        let (rsvd_ulp, stag) = ([0x46, 1, 2, 3, 4], STag(0xa1a2_a3a4));
        let models = [
            Model::Tagged { stag, to: u64::from(u32::MAX) - 7 },
            Model::Untagged { queue: 3, msn: u32::MAX },
        ];
        for (model, octets) in models.into_iter().flat_map(|model| [0, 1, 4000].map(|octets| (model, octets)))
        {
            let message = Message { version: 1, model, rsvd_ulp, octets };
            let segments = cut(&message, 500);
            let mut offset = 0;
            for (place, (header, payload)) in segments.iter().enumerate() {
                // Requirements: DDP-4.1-03 to DDP-4.1-06
                let last = place + 1 == segments.len();
                let expected = match model {
                    Model::Tagged { stag, to } => {
                        // Requirements: DDP-4.2-02, DDP-4.2-04, DDP-4.2-06, DDP-4.2-08
                        let to = to + u64::from(offset);
                        Header::Tagged(Tagged { last, version: 1, rsvd_ulp: 0x46, stag, to })
                    }
                    Model::Untagged { queue, msn } => {
                        // Requirements: DDP-4.3-02, DDP-4.3-04, DDP-4.3-06, DDP-4.3-10
                        Header::Untagged(Untagged { last, version: 1, rsvd_ulp, queue, msn, mo: offset })
                    }
                };
                assert_eq!(*header, expected);
                offset += payload;
            }
        }
        // The longest there is: its last octet can be addressed.
        let model = Model::Untagged { queue: 0, msn: 1 };
        let longest = Message { version: 1, model, rsvd_ulp, octets: u32::MAX };
        let (header, octets) = longest.segment(u32::MAX - 1, 500);
        assert!(matches!(header, Header::Untagged(Untagged { last: true, mo: 0xffff_fffe, .. })));
        assert_eq!(octets, 1);
    }

    /// An empty message is one segment; every octet of any other is in exactly one.
    // Requirements: DDP-5.2-08, DDP-5.2-03
    #[test]
    fn nothing_is_left_out() {
        for octets in [0, 1, 109, 110, 111, 220, 5000] {
            let model = Model::Untagged { queue: 0, msn: 9 };
            let message = Message { version: 0, model, rsvd_ulp: [0; 5], octets };
            let segments = cut(&message, 128);
            assert_eq!(segments.iter().map(|(_, n)| n).sum::<u32>(), octets);
            assert_eq!(segments.len(), (octets as usize).div_ceil(110).max(1));
        }
    }
}
