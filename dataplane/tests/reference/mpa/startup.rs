//! Startup frames a second time, from RFC 5044 §7.1.1 and RFC 6581 §6, §9 alone.

/// The frame that the receiver expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// By a Responder.
    Request,
    /// By an Initiator.
    Reply,
}

/// A frame that holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub markers: bool,
    pub crc: bool,
    pub rejected: bool,
    pub revision: u8,
    /// The words of the enhanced data: A, B and IRD; C, D and ORD.
    pub enhanced: Option<[u16; 2]>,
    /// Private Data without these words.
    pub private_data: Vec<u8>,
    /// Octets of the frame.
    pub octets: usize,
}

/// The state of the octets received so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// They may become a frame.
    Incomplete,
    /// They never will.
    Malformed,
    Complete(Frame),
}

/// The key, letter by letter.
fn key(expected: Expected) -> [u8; 16] {
    let mut key = *b"MPA ID Re_ Frame";
    key[9] = match expected {
        Expected::Request => b'q',
        Expected::Reply => b'p',
    };
    key
}

/// Returns the verdict on `octets`, the first octets of a stream. A receiver may wait for more octets than it
/// needs to detect a malformed frame, but ours does not: it checks each field as soon as it has arrived.
pub fn judge(expected: Expected, octets: &[u8]) -> Verdict {
    let mut frame = Frame {
        markers: false,
        crc: false,
        rejected: false,
        revision: 0,
        enhanced: None,
        private_data: Vec::new(),
        octets: 20,
    };
    let (mut has_words, mut length, mut words) = (false, 0, Vec::new());
    for (index, octet) in octets.iter().copied().enumerate() {
        match index {
            0..=15 if octet != key(expected)[index] => return Verdict::Malformed,
            0..=15 => {}
            16 => {
                frame.markers = octet & 0b1000_0000 != 0;
                frame.crc = octet & 0b0100_0000 != 0;
                // In a Request the bit has no meaning.
                frame.rejected = octet & 0b0010_0000 != 0 && expected == Expected::Reply;
                has_words = octet & 0b0001_0000 != 0;
            }
            17 => {
                frame.revision = octet;
                // S is a reserved bit before revision 2, and revision 2 is the last.
                has_words &= octet == 2;
                if octet > 2 {
                    return Verdict::Malformed;
                }
            }
            18 => {
                length = usize::from(octet) * 256;
                if length > 512 {
                    return Verdict::Malformed;
                }
            }
            19 => {
                length += usize::from(octet);
                if length > 512 || has_words && length < 4 {
                    return Verdict::Malformed;
                }
            }
            _ if index >= 20 + length => break,
            _ if has_words && index < 24 => words.push(octet),
            _ => frame.private_data.push(octet),
        }
    }
    if octets.len() < 20 || octets.len() < 20 + length {
        return Verdict::Incomplete;
    }
    if has_words {
        let word = |at: usize| u16::from(words[at]) << 8 | u16::from(words[at + 1]);
        frame.enhanced = Some([word(0), word(2)]);
    }
    frame.octets += length;
    Verdict::Complete(frame)
}
