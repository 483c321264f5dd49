//! Marker PDU Aligned framing (RFC 5044).
//!
//! Everything here is arithmetic over octets. [`fpdu`] frames ULPDUs, and [`encode`] builds the payload of
//! segments from them. [`receiver`] finds and verifies FPDUs in order, [`contiguous`] those that lie in one
//! piece, [`out_of_order`] those beyond gaps.
//! [`startup`] negotiates what the frames before Full Operation agree on, [`enhanced`] what RFC 6581 adds to
//! them. The stream itself belongs to TCP.
//!
//! # FPDUs beyond a gap
//!
//! With Markers nothing has to wait for a gap but Delivery. A segment beyond one is looked at when it comes:
//! a Marker in it or next to it, or the end of FPDUs that are placed right before it, says where an FPDU
//! begins, and lengths lead on from there (RFC 5044 §6). Complete FPDUs whose CRC and Markers hold go through
//! the same checks of DDP and RDMAP, and to their buffers at once: tagged ones by STag and offset, Sends by
//! their number to the buffer that will be theirs. Their frames are freed; TCP keeps only a record of the
//! place, which counts as received, is never overwritten by a copy, and joins its neighbours. When the chain
//! of FPDUs in order arrives at a record, the Sends in it are checked against the order of the stream and
//! delivered. A length that reaches into a record contradicts the Marker that led there: error 3. What does
//! not check out beyond a gap stays in its frames and is judged in its turn, so errors come in stream order.
//! So does an FPDU that no Marker locates: a small one at the front of a segment, right after a gap. A frame
//! can be trimmed at its front or its back, not in the middle, so FPDUs in the middle of a segment wait for a
//! neighbour; no octet is ever copied twice.
//!
//! # Damage
//!
//! A wrong CRC is first treated as loss: if TCP has not acknowledged any octet of the FPDU, it is forgotten
//! and TCP brings it again (RFC 5044 §8 allows it). The same FPDU wrong three times more, or one whose first
//! octets are already acknowledged, is error 2. A length above 64768 is treated likewise and is error 3 at
//! last, or at once where a valid CRC says that it was sent so.

pub mod contiguous;
pub mod encode;
pub mod enhanced;
mod error;
pub mod fpdu;
pub mod out_of_order;
pub mod receiver;
pub mod startup;

pub use error::MpaError;
pub use fpdu::Framing;
