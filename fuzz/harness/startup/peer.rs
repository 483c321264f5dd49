//! The peer's octets: noise, or a startup frame, valid or with a fault.

use super::input::Input;
use super::mpa_reference::startup::Expected;

/// The peer's octets, and how they are cut.
pub struct Heard {
    octets: Vec<u8>,
    taken: usize,
}

impl Heard {
    /// Returns the octets that `input` makes the peer send to an end that expects `expected`.
    pub fn of(input: &mut Input<'_>, expected: Expected) -> Self {
        let how = input.octet();
        let octets = if how & 7 == 7 { input.octets(700).to_vec() } else { frame(input, expected, how) };
        Self { octets, taken: 0 }
    }

    /// Returns the octets that have arrived so far.
    pub fn so_far(&self) -> &[u8] {
        &self.octets[..self.taken]
    }

    /// The next piece, if there is one.
    pub fn piece(&mut self, input: &mut Input<'_>) -> Option<Vec<u8>> {
        let left = self.octets.len() - self.taken;
        let octets = match input.octet() {
            0 => left,
            octets => left.min(usize::from(octets)),
        };
        let piece = self.octets[self.taken..self.taken + octets].to_vec();
        self.taken += octets;
        (!piece.is_empty()).then_some(piece)
    }
}

fn frame(input: &mut Input<'_>, expected: Expected, how: u8) -> Vec<u8> {
    let request = (expected == Expected::Request) ^ (how & 7 == 6);
    let mut octets = if request { *b"MPA ID Req Frame" } else { *b"MPA ID Rep Frame" }.to_vec();
    let (flags, revision) = (input.octet(), input.octet());
    octets.push(if how & 8 == 0 { flags & 0xf0 } else { flags });
    octets.push(if revision & 0xf8 == 0xf8 { revision } else { revision % 3 });
    let mut private_data = Vec::new();
    if how & 0x10 != 0 {
        private_data.extend(input.u32().to_be_bytes());
    }
    let most = [0, 1, 16, 508, 512, 520, 600, 3][usize::from(how >> 5)];
    private_data.extend((0..most).map(|at: usize| at as u8));
    let length = private_data.len() as u16;
    octets.extend(if input.octet() < 0xe0 { length } else { input.u16() }.to_be_bytes());
    octets.extend(private_data);
    for _ in 0..input.octet() / 100 {
        let at = usize::from(input.u16()) % octets.len();
        octets[at] ^= 1 << (input.octet() & 7);
    }
    if input.octet() >= 0xe0 {
        octets.extend(input.octets(40));
    }
    octets
}
