//! Explicit congestion notification (RFC 3168, and RFC 8257 §3.2 for a receiver of DCTCP).

/// Whether a connection uses ECN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum EcnPolicy {
    /// Never.
    Off,
    /// When the peer asks for it.
    #[default]
    Accept,
    /// Ask for it, and accept it.
    Request,
}

/// The two ECN bits of an IP header (RFC 3168 §5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum EcnField {
    /// 00: the transport does not take part.
    #[default]
    NotCapable = 0b00,
    /// 01: it takes part, ECT(1).
    Capable1 = 0b01,
    /// 10: it takes part, ECT(0).
    Capable0 = 0b10,
    /// 11: a router has met congestion.
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

/// The ECN side of one connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ecn {
    /// Both ends take part.
    pub(super) negotiated: bool,
    /// Marks are echoed one by one, as DCTCP needs, not until the peer answers.
    precise: bool,
    /// Acknowledgements carry ECE.
    echo: bool,
    /// The next segment of new data carries CWR: the window was reduced.
    pub(super) reduced: bool,
}

impl Ecn {
    pub(super) const fn new(precise: bool) -> Self {
        Self { negotiated: false, precise, echo: false, reduced: false }
    }

    /// Whether acknowledgements carry ECE.
    pub(super) const fn echoes(self) -> bool {
        self.echo
    }

    /// Takes the marks of an arriving data segment; gives whether what is to be echoed has changed, so that data
    /// received before is to be acknowledged with the echo of before (RFC 8257 §3.2).
    pub(super) const fn on_data(&mut self, marked: bool, window_reduced: bool) -> bool {
        if !self.negotiated {
            return false;
        }
        if self.precise {
            let changed = self.echo != marked;
            self.echo = marked;
            return changed;
        }
        if window_reduced {
            // RFC 3168 §6.1.3: the peer has answered; a new mark starts the echo anew.
            self.echo = false;
        }
        self.echo |= marked;
        false
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
        let mut ecn = Ecn { negotiated: true, ..Ecn::new(false) };
        ecn.on_data(true, false);
        ecn.on_data(false, false);
        assert!(ecn.echoes());
        ecn.on_data(false, true);
        assert!(!ecn.echoes());
        ecn.on_data(true, true);
        assert!(ecn.echoes(), "marked anew");
    }

    /// RFC 8257 §3.2: the echo follows each mark, and a change is told at once.
    #[test]
    fn precise_echo_follows_the_marks() {
        let mut ecn = Ecn { negotiated: true, ..Ecn::new(true) };
        assert!(ecn.on_data(true, false));
        assert!(!ecn.on_data(true, false));
        assert!(ecn.on_data(false, false));
        assert!(!ecn.echoes());
    }

    #[test]
    fn without_negotiation_nothing_is_echoed() {
        let mut ecn = Ecn::new(true);
        assert!(!ecn.on_data(true, false));
        assert!(!ecn.echoes());
    }
}
