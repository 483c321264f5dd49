//! Explicit congestion notification (RFC 3168, and RFC 8257 §3.2 for a receiver of DCTCP).

/// Whether a connection uses ECN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum EcnPolicy {
    /// Not used.
    Off,
    /// Used if the peer requests it.
    #[default]
    Accept,
    /// Requested, and accepted.
    Request,
}

/// The two ECN bits of an IP header (RFC 3168 §5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum EcnField {
    /// 00: the transport is not ECN-capable.
    #[default]
    NotCapable = 0b00,
    /// 01: ECN-capable, ECT(1).
    Capable1 = 0b01,
    /// 10: ECN-capable, ECT(0).
    Capable0 = 0b10,
    /// 11: congestion experienced.
    CongestionExperienced = 0b11,
}

impl EcnField {
    /// The field of two bits.
    pub const fn from_bits(bits: u8) -> Self {
        match bits & 0b11 {
            0b01 => Self::Capable1,
            0b10 => Self::Capable0,
            0b11 => Self::CongestionExperienced,
            _ => Self::NotCapable,
        }
    }

    /// The two bits.
    pub const fn bits(self) -> u8 {
        self as u8
    }
}

/// How a connection echoes congestion marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Echo {
    /// Not at all: the ends have not negotiated ECN.
    Off,
    /// From a mark until the peer has answered with CWR (RFC 3168 §6.1.3).
    UntilAnswered,
    /// Each mark by itself, as DCTCP needs (RFC 8257 §3.2).
    EachMark,
}

/// How new data is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Data {
    /// Not as ECN-capable.
    NotCapable,
    /// As ECN-capable: all SYNs of both ends have asked for it (RFC 3168 §6.1.1).
    Capable,
    /// The same, and the next segment carries CWR: the window was reduced (§6.1.2).
    CapableAfterReduction,
}

/// The ECN state of one connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ecn {
    echo: Echo,
    /// Acknowledgements carry ECE.
    echoing: bool,
    data: Data,
}

impl Ecn {
    /// The state of a connection that has not negotiated ECN.
    pub(super) const fn off() -> Self {
        Self { echo: Echo::Off, echoing: false, data: Data::NotCapable }
    }

    /// The state of a connection that has negotiated ECN, with DCTCP's echo of each mark if `each_mark` is
    /// set.
    pub(super) const fn negotiated(each_mark: bool) -> Self {
        let echo = if each_mark { Echo::EachMark } else { Echo::UntilAnswered };
        Self { echo, data: Data::Capable, ..Self::off() }
    }

    /// Has data sent as not ECN-capable, while marks of the peer's are echoed: one of the SYNs did not ask
    /// for ECN, as those that are sent again do not (RFC 3168 §6.1.1).
    pub(super) const fn echo_only(&mut self) {
        self.data = Data::NotCapable;
    }

    /// Whether new data is sent as ECN-capable: only then an echo is of a mark.
    pub(super) const fn sends_capable(self) -> bool {
        !matches!(self.data, Data::NotCapable)
    }

    /// The ECN field of new data.
    pub(super) const fn field(self) -> EcnField {
        if self.sends_capable() { EcnField::Capable0 } else { EcnField::NotCapable }
    }

    /// Records that the window was reduced: the next segment of new data says so.
    pub(super) const fn on_reduction(&mut self) {
        if let Data::Capable = self.data {
            self.data = Data::CapableAfterReduction;
        }
    }

    /// Whether the next segment of new data carries CWR.
    pub(super) const fn owes_cwr(self) -> bool {
        matches!(self.data, Data::CapableAfterReduction)
    }

    /// Records that a segment of new data leaves. Returns true if it carries CWR.
    pub(super) const fn take_cwr(&mut self) -> bool {
        let owed = self.owes_cwr();
        if owed {
            self.data = Data::Capable;
        }
        owed
    }

    /// Whether both ends take part.
    pub(super) const fn is_negotiated(self) -> bool {
        !matches!(self.echo, Echo::Off)
    }

    /// Whether acknowledgements carry ECE.
    pub(super) const fn is_echoing(self) -> bool {
        self.echoing
    }

    /// Accepts the mark of an arriving data segment and its CWR flag, `window_reduced`. Returns true if the
    /// echo has changed, so that data received before is to be acknowledged with the echo of before (RFC 8257
    /// §3.2).
    pub(super) const fn on_data(&mut self, marked: bool, window_reduced: bool) -> bool {
        match self.echo {
            Echo::Off => false,
            Echo::EachMark => {
                let changed = self.echoing != marked;
                self.echoing = marked;
                changed
            }
            Echo::UntilAnswered => {
                if window_reduced {
                    // RFC 3168 §6.1.3: the peer has answered; a new mark starts the echo anew.
                    self.echoing = false;
                }
                self.echoing |= marked;
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bits_are_those_of_the_header() {
        for bits in 0..4 {
            assert_eq!(EcnField::from_bits(bits).bits(), bits);
        }
        assert_eq!(EcnField::Capable0.bits(), 0b10);
    }

    /// RFC 3168 §6.1.3: ECE until CWR comes.
    #[test]
    fn a_mark_is_echoed_until_the_peer_has_answered() {
        let mut ecn = Ecn::negotiated(false);
        ecn.on_data(true, false);
        ecn.on_data(false, false);
        assert!(ecn.is_echoing());
        ecn.on_data(false, true);
        assert!(!ecn.is_echoing());
        ecn.on_data(true, true);
        assert!(ecn.is_echoing(), "marked anew");
    }

    /// RFC 8257 §3.2: the echo follows each mark, and a change is acknowledged at once.
    #[test]
    fn precise_echo_follows_the_marks() {
        let mut ecn = Ecn::negotiated(true);
        assert!(ecn.on_data(true, false));
        assert!(!ecn.on_data(true, false));
        assert!(ecn.on_data(false, false));
        assert!(!ecn.is_echoing());
    }

    #[test]
    fn without_negotiation_nothing_is_echoed() {
        let mut ecn = Ecn::off();
        assert!(!ecn.on_data(true, false));
        assert!(!ecn.is_echoing());
    }
}
