//! SYN cookies (RFC 4987 §3.6): a SYN-ACK that leaves no state in the core, because the state is in the
//! sequence number that the peer acknowledges.
//!
//! The 32 bits are a keyed hash of 24 bits and an octet of what the SYN said: its MSS, its window shift and
//! its permission for selective acknowledgement, each as an index into a small table, and a bit for the one
//! of two spans of time in which the cookie was made. The octet is masked by the hash. Timestamps need no
//! room: every segment of the peer shows whether it uses them, also the one that returns the cookie (RFC 7323
//! §3.2).

use std::hash::{Hash, Hasher};

use arrayvec::ArrayVec;
use siphasher::sip::SipHasher24;

use crate::limits;
use crate::net::flow::FlowKey;
use crate::time::Instant;
use crate::wire::tcp::{Flags, Header, Options, SeqNumber};

/// What an MSS is rounded down to: the least we believe, the default, the least of IPv6, tunnels, IPv6 and
/// IPv4 on Ethernet, and jumbo frames.
const MSS: [u16; 8] = [limits::MIN_MSS_BYTES, limits::DEFAULT_MSS_BYTES, 1220, 1360, 1400, 1440, 1460, 8940];
/// What a window shift is rounded down to. A shift that is too small makes the peer's window look smaller
/// than it is.
const SHIFT: [Option<u8>; 8] = [None, Some(0), Some(2), Some(4), Some(6), Some(7), Some(8), Some(10)];

/// The position of each part in the octet.
const MSS_AT: u8 = 0;
const SHIFT_AT: u8 = 3;
const SACK: u8 = 1 << 6;
const SPAN: u8 = 1 << 7;

/// Makes cookies and checks them.
#[derive(Debug)]
pub(crate) struct SynCookies {
    secret: [u64; 2],
    /// When a cookie was last made: a segment can return a cookie only for a while after that.
    made: Option<Instant>,
}

impl SynCookies {
    /// Returns cookies under `secret`, which is the core's own.
    pub(crate) const fn new(secret: [u64; 2]) -> Self {
        Self { secret, made: None }
    }

    /// Returns the initial sequence number of the SYN-ACK to `syn`.
    pub(crate) fn make(&mut self, now: Instant, key: &FlowKey, syn: &Header) -> SeqNumber {
        self.made = Some(now);
        let span = span(now);
        let mss = syn.options.mss.unwrap_or(limits::DEFAULT_MSS_BYTES);
        let mss = MSS.iter().rposition(|known| *known <= mss).unwrap_or(0) as u8;
        let shift = syn.options.window_scale;
        let shift = SHIFT.iter().rposition(|known| *known <= shift).unwrap_or(0) as u8;
        let mut octet = mss << MSS_AT | shift << SHIFT_AT;
        if syn.options.sack_permitted {
            octet |= SACK;
        }
        if span & 1 == 1 {
            octet |= SPAN;
        }
        let hash = self.hash(key, syn.seq, span, octet);
        let mask = (hash >> 24) as u8;
        SeqNumber(hash & 0xffff_ff00 | u32::from(octet ^ mask))
    }

    /// Returns true if a segment could return a cookie now.
    pub(crate) fn expected(&self, now: Instant) -> bool {
        self.made.is_some_and(|made| now - made < 2 * limits::SYN_COOKIE_SPAN_NS)
    }

    /// Returns the SYN whose SYN-ACK `header` acknowledges, with what the cookie stores of it; `None` if
    /// `header` acknowledges no cookie.
    pub(crate) fn check(&self, now: Instant, key: &FlowKey, header: &Header) -> Option<Header> {
        let cookie = (header.ack - 1).0;
        let octet = cookie as u8 ^ (cookie >> 24) as u8;
        let seq = header.seq - 1;
        let this = span(now);
        let made = if u64::from(octet & SPAN != 0) == this & 1 { this } else { this.checked_sub(1)? };
        if (self.hash(key, seq, made, octet) ^ cookie) & 0xffff_ff00 != 0 {
            return None;
        }
        Some(Header {
            seq,
            flags: Flags::SYN,
            // The cookie does not store the window of the SYN; this segment has the present one.
            window: header.window,
            options: Options {
                mss: Some(MSS[usize::from(octet >> MSS_AT & 7)]),
                window_scale: SHIFT[usize::from(octet >> SHIFT_AT & 7)],
                sack_permitted: octet & SACK != 0,
                timestamps: header.options.timestamps,
                sack: ArrayVec::new(),
                // The cookie does not store whether the SYN offered it.
                rdma: None,
            },
            ..header.clone()
        })
    }

    fn hash(&self, key: &FlowKey, seq: SeqNumber, span: u64, octet: u8) -> u32 {
        let mut hasher = SipHasher24::new_with_keys(self.secret[0], self.secret[1]);
        // The keys of a span follow from the secret and the span, which is part of what is hashed.
        hasher.write_u64(span);
        key.hash(&mut hasher);
        hasher.write_u32(seq.0);
        hasher.write_u8(octet);
        hasher.finish() as u32
    }
}

/// Returns the span of time that `now` lies in.
const fn span(now: Instant) -> u64 {
    now.as_nanos() / limits::SYN_COOKIE_SPAN_NS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::SECOND;

    fn key() -> FlowKey {
        FlowKey {
            local: [198, 18, 0, 1].into(),
            remote: [198, 18, 0, 2].into(),
            remote_port: 40_000,
            local_port: 7471,
        }
    }

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * SECOND)
    }

    fn syn(options: Options) -> Header {
        Header { seq: SeqNumber(0xffff_ffff), flags: Flags::SYN, options, ..Header::default() }
    }

    fn answer(cookie: SeqNumber) -> Header {
        Header { seq: SeqNumber(0), ack: cookie + 1, flags: Flags::ACK, ..Header::default() }
    }

    #[test]
    fn what_a_syn_said_comes_back_never_more() {
        let mut cookies = SynCookies::new([1, 2]);
        for mss in [None, Some(1), Some(535), Some(536), Some(1459), Some(1460), Some(8960), Some(u16::MAX)] {
            for window_scale in (0..=14).map(Some).chain([None]) {
                for sack_permitted in [false, true] {
                    let options = Options { mss, window_scale, sack_permitted, ..Options::default() };
                    let cookie = cookies.make(at(100), &key(), &syn(options));
                    let known = cookies.check(at(101), &key(), &answer(cookie)).unwrap().options;
                    let mss = mss.unwrap_or(536).max(limits::MIN_MSS_BYTES);
                    let least = if mss > 8940 { 8940 } else { mss / 10 };
                    assert!(
                        known.mss.is_some_and(|known| known <= mss && known >= least),
                        "{mss}: {known:?}"
                    );
                    assert!(known.window_scale <= window_scale);
                    assert_eq!(known.window_scale.is_some(), window_scale.is_some(), "RFC 7323 §2.2");
                    assert!(known.window_scale.unwrap_or(0) + 4 >= window_scale.unwrap_or(0));
                    assert_eq!(known.sack_permitted, sack_permitted);
                }
            }
        }
        for mss in MSS {
            let options = Options { mss: Some(mss), ..Options::default() };
            let cookie = cookies.make(at(100), &key(), &syn(options));
            assert_eq!(cookies.check(at(101), &key(), &answer(cookie)).unwrap().options.mss, Some(mss));
        }
    }

    #[test]
    fn a_cookie_is_good_for_one_flow_and_a_while() {
        let mut cookies = SynCookies::new([1, 2]);
        let entire_span = limits::SYN_COOKIE_SPAN_NS;
        for start in [0, 7, 16, 31, 1000] {
            let cookie = cookies.make(at(start), &key(), &syn(Options::default()));
            let good = answer(cookie);
            assert!(cookies.check(at(start) + (entire_span - 1), &key(), &good).is_some());
            assert!(cookies.check(at(start) + 2 * entire_span, &key(), &good).is_none());
            assert!(cookies.check(at(start) + 3 * entire_span, &key(), &good).is_none());
            for changed in [
                FlowKey { remote: [198, 18, 0, 3].into(), ..key() },
                FlowKey { local: [198, 18, 0, 3].into(), ..key() },
                FlowKey { remote_port: 1, ..key() },
                FlowKey { local_port: 1, ..key() },
            ] {
                assert!(cookies.check(at(start), &changed, &good).is_none());
            }
            let other_seq = Header { seq: good.seq + 1, ..good.clone() };
            assert!(cookies.check(at(start), &key(), &other_seq).is_none());
            assert!(SynCookies::new([1, 3]).check(at(start), &key(), &good).is_none());
        }
    }

    /// 24 bits are to be guessed: of a million numbers hardly any is one.
    #[test]
    fn cookies_are_hard_to_guess() {
        let cookies = SynCookies::new([1, 2]);
        let mut rng = fastrand::Rng::with_seed(1);
        let guessed = (0..1_000_000)
            .filter(|_| cookies.check(at(100), &key(), &answer(SeqNumber(rng.u32(..)))).is_some());
        assert!(guessed.count() <= 2);
    }

    #[test]
    fn no_cookie_is_expected_that_was_not_made() {
        let mut cookies = SynCookies::new([1, 2]);
        assert!(!cookies.expected(at(1)));
        cookies.make(at(100), &key(), &syn(Options::default()));
        assert!(cookies.expected(at(100) + (2 * limits::SYN_COOKIE_SPAN_NS - 1)));
        assert!(!cookies.expected(at(100) + 2 * limits::SYN_COOKIE_SPAN_NS));
    }
}
