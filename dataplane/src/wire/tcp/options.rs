//! The options of TCP headers that this stack speaks: maximum segment size, window scale, timestamps
//! (RFC 7323), selective acknowledgment (RFC 2018) and the RDMA option (draft-csapuntz-tcprdma-00).

use arrayvec::ArrayVec;

use super::SeqNumber;
use crate::wire::Writer;
use crate::wire::tcp_rdma::RdmaOption;

/// The timestamps option (RFC 7323 §3).
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Timestamps {
    /// The sender's clock.
    pub value: u32,
    /// The clock value being echoed; means nothing without ACK.
    pub echo: u32,
}

impl Timestamps {
    /// The option after two NOPs, as RFC 7323 appendix A recommends.
    #[inline]
    pub(super) const fn after_nops(self) -> [u8; USUAL_LEN] {
        let [v0, v1, v2, v3] = self.value.to_be_bytes();
        let [e0, e1, e2, e3] = self.echo.to_be_bytes();
        [NOP, NOP, TIMESTAMPS, USUAL_LEN as u8 - 2, v0, v1, v2, v3, e0, e1, e2, e3]
    }
}

/// The options of a header.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// Largest segment the sender accepts, in octets of payload.
    pub mss: Option<u16>,
    /// Left shift of the sender's windows, 0..=14.
    pub window_scale: Option<u8>,
    /// The sender understands selective acknowledgments.
    pub sack_permitted: bool,
    /// Clocks.
    pub timestamps: Option<Timestamps>,
    /// Blocks that the sender holds beyond the acknowledgment number: the first octet and the one after the
    /// last.
    pub sack: ArrayVec<(SeqNumber, SeqNumber), 4>,
    /// The first RDMA option of the header (draft-csapuntz-tcprdma-00 §3.3); `None` too if its length is not
    /// valid. The host's configuration says of which kind it is, see
    /// [`Header::parse_with`](super::Header::parse_with).
    pub rdma: Option<RdmaOption>,
}

pub(in crate::wire) const END: u8 = 0;
pub(in crate::wire) const NOP: u8 = 1;
pub(super) const MSS: u8 = 2;
const WINDOW_SCALE: u8 = 3;
const SACK_PERMITTED: u8 = 4;
pub(in crate::wire) const SACK: u8 = 5;
pub(in crate::wire) const TIMESTAMPS: u8 = 8;

/// Octets of the timestamps option with two NOPs.
pub(super) const USUAL_LEN: usize = 12;

/// The largest window scale (RFC 7323 §2.3); a larger one is used as this.
const WINDOW_SCALE_MAX: u8 = 14;

impl Options {
    /// Octets of options a header has room for.
    pub const ROOM: usize = 40;

    /// Parses an option list up to its end, or up to the first option whose length is impossible. RFC 9293
    /// §3.1 asks a TCP to be prepared for such a length; after it nobody can say where the next option
    /// begins, and the options before it are as good as ever. Example: of `02 04 05 b4  08 00` the MSS of
    /// 1460 is accepted, the timestamps of length 0 are not.
    ///
    /// RDMA options have the kind `rdma_kind`, unless another option has it. Of several only the first is
    /// looked at, even if its length is not valid.
    #[inline]
    pub(super) fn parse(octets: &[u8], rdma_kind: u8) -> Self {
        match *octets {
            [] => Self::default(),
            // RFC 7323 appendix A: the options of nearly all segments after the handshake.
            [NOP, NOP, TIMESTAMPS, 10, v0, v1, v2, v3, e0, e1, e2, e3] => {
                let value = u32::from_be_bytes([v0, v1, v2, v3]);
                let timestamps = Some(Timestamps { value, echo: u32::from_be_bytes([e0, e1, e2, e3]) });
                Self { timestamps, ..Self::default() }
            }
            _ => Self::parse_each(octets, rdma_kind),
        }
    }

    /// [Parses](Self::parse) option by option.
    #[inline(never)]
    fn parse_each(mut octets: &[u8], rdma_kind: u8) -> Self {
        let mut options = Self::default();
        let mut first_rdma = Some(rdma_kind);
        loop {
            octets = match octets {
                [] | [END, ..] => return options,
                [NOP, rest @ ..] => rest,
                _ => match options.parse_first(octets, &mut first_rdma) {
                    Some(rest) => rest,
                    None => return options,
                },
            };
        }
    }

    /// Parses the option at the front of `octets` and returns the octets after it; `None`, and nothing
    /// parsed, when its length is impossible. `first_rdma` is the kind of the RDMA option as long as none has
    /// come.
    fn parse_first<'a>(&mut self, octets: &'a [u8], first_rdma: &mut Option<u8>) -> Option<&'a [u8]> {
        let [kind, len, ..] = octets else { return None };
        let (option, rest) = octets.split_at_checked(usize::from(*len))?;
        self.set(*kind, option.get(2..)?, first_rdma)?;
        Some(rest)
    }

    /// `None`, and nothing set, when `body` has not the length its `kind` asks for.
    fn set(&mut self, kind: u8, body: &[u8], first_rdma: &mut Option<u8>) -> Option<()> {
        match kind {
            MSS => self.mss = Some(u16::from_be_bytes(body.try_into().ok()?)),
            WINDOW_SCALE => {
                let [shift] = body.try_into().ok()?;
                self.window_scale = Some(u8::min(shift, WINDOW_SCALE_MAX));
            }
            SACK_PERMITTED => {
                let [] = body.try_into().ok()?;
                self.sack_permitted = true;
            }
            SACK => {
                let (blocks, []) = body.as_chunks::<8>() else { return None };
                for block in blocks {
                    let (left, right) = two_words(*block);
                    // More than fits a header cannot be, but several options of this kind can.
                    let _ = self.sack.try_push((SeqNumber(left), SeqNumber(right)));
                }
            }
            TIMESTAMPS => {
                let (value, echo) = two_words(body.try_into().ok()?);
                self.timestamps = Some(Timestamps { value, echo });
            }
            // draft-csapuntz-tcprdma-00 §3.1: an option of another length is ignored. It is the first all the
            // same (§3.3), and the options after it count.
            // Requirements: TRO-3.1-01, TRO-3.3-01
            _ if *first_rdma == Some(kind) => {
                self.rdma = RdmaOption::parse(body);
                *first_rdma = None;
            }
            _ => {}
        }
        Some(())
    }

    /// Octets of everything but the selective acknowledgment, each option filled up to a multiple of four.
    pub(super) const fn fixed_len(&self) -> usize {
        let mss = if self.mss.is_some() { 4 } else { 0 };
        // Permission shares the four octets of alignment that timestamps need.
        let clocks = match (self.timestamps.is_some(), self.sack_permitted) {
            (true, _) => 12,
            (false, true) => 4,
            (false, false) => 0,
        };
        let scale = if self.window_scale.is_some() { 4 } else { 0 };
        let rdma = match &self.rdma {
            Some(option) => option.len(),
            None => 0,
        };
        mss + clocks + scale + rdma
    }

    /// How many blocks of the selective acknowledgment have room: three beside timestamps, four without, none
    /// beside timestamps and an RDMA option of 20 octets.
    fn sack_blocks(&self) -> usize {
        // All of them together: 4 of MSS, 12 of timestamps and permission, 4 of scale, 20 of a transfer.
        let room = Self::ROOM - self.fixed_len();
        self.sack.len().min(room.saturating_sub(4) / 8)
    }

    /// Whether there is no option but perhaps timestamps, as in nearly all segments.
    #[inline]
    pub const fn is_usual(&self) -> bool {
        self.mss.is_none()
            && self.window_scale.is_none()
            && !self.sack_permitted
            && self.sack.is_empty()
            && self.rdma.is_none()
    }

    /// Octets of all options, which are [usual](Self::is_usual) or not.
    #[inline]
    pub(super) fn len(&self, usual: bool) -> usize {
        if usual {
            return if self.timestamps.is_some() { USUAL_LEN } else { 0 };
        }
        match self.sack_blocks() {
            0 => self.fixed_len(),
            blocks => self.fixed_len() + 4 + 8 * blocks,
        }
    }

    /// The order and the padding are those of Linux, so that header prediction elsewhere recognises them. All
    /// options, padding included, begin at multiples of four octets, as draft-csapuntz-tcprdma-00 §3.1.8
    /// requires of the RDMA option.
    // Requirements: TRO-3.1.8-02
    pub(super) fn emit(&self, out: &mut Writer<'_>, rdma_kind: u8) {
        if let Some(mss) = self.mss {
            out.put([MSS, 4]);
            out.put(mss.to_be_bytes());
        }
        if let Some(Timestamps { value, echo }) = self.timestamps {
            out.put(if self.sack_permitted { [SACK_PERMITTED, 2] } else { [NOP, NOP] });
            out.put([TIMESTAMPS, 10]);
            out.put(value.to_be_bytes());
            out.put(echo.to_be_bytes());
        } else if self.sack_permitted {
            out.put([NOP, NOP, SACK_PERMITTED, 2]);
        }
        if let Some(shift) = self.window_scale {
            out.put([NOP, WINDOW_SCALE, 3, shift.min(WINDOW_SCALE_MAX)]);
        }
        if let Some(option) = &self.rdma {
            let octets = option.emit(rdma_kind, out.0);
            out.0 = core::mem::take(&mut out.0).get_mut(octets..).unwrap_or_default();
        }
        let blocks = self.sack_blocks();
        if blocks > 0 {
            out.put([NOP, NOP, SACK, 2 + 8 * blocks as u8]);
        }
        for (left, right) in self.sack.iter().take(blocks) {
            out.put(left.0.to_be_bytes());
            out.put(right.0.to_be_bytes());
        }
    }
}

/// The two 32-bit words of an option's body.
fn two_words(octets: [u8; 8]) -> (u32, u32) {
    let both = u64::from_be_bytes(octets);
    ((both >> 32) as u32, both as u32)
}
