//! The Toeplitz hash of receive-side scaling (RSS), as adapters compute it over the addresses and ports of a
//! received segment.

use crate::wire::flow::Flow;

/// Octets of a key: an IPv6 flow, and the four octets that its last bit's window reaches beyond it.
pub const KEY_BYTES: usize = FLOW_OCTETS + 4;
/// Octets of the addresses and ports of an IPv6 flow, the longest input.
const FLOW_OCTETS: usize = 36;

/// A key, with what each octet of an input contributes to its hash.
///
/// The hash is the exclusive or of one window of the key, 32 bits, for each bit of the input that is set: so
/// it is that of one word for each octet, of 256 that are computed beforehand.
pub struct Toeplitz {
    key: [u8; KEY_BYTES],
    words: Box<[[u32; 256]]>,
}

impl Toeplitz {
    /// Returns the hash with `key`.
    pub fn new(key: [u8; KEY_BYTES]) -> Self {
        let mut words = vec![[0; 256]; FLOW_OCTETS].into_boxed_slice();
        for (octet, words) in words.iter_mut().enumerate() {
            for value in 1..256_usize {
                // The last bit that is set, beside what the others contribute.
                let bit = 8 * octet + 7 - value.trailing_zeros() as usize;
                words[value] = words[value & (value - 1)] ^ window(&key, bit);
            }
        }
        Self { key, words }
    }

    /// Returns the key.
    pub const fn key(&self) -> &[u8; KEY_BYTES] {
        &self.key
    }

    /// Returns the hash of a received segment with `flow`: of its source address, destination address, source
    /// port and destination port, in this order.
    #[inline]
    pub fn hash(&self, flow: &Flow) -> u32 {
        match flow {
            Flow::V4(flow) => self.hash_from(0, &flow.addresses) ^ self.hash_from(8, &flow.ports),
            Flow::V6(flow) => self.hash_from(0, &flow.addresses) ^ self.hash_from(32, &flow.ports),
        }
    }

    /// Returns what the destination port contributes to the hash of a flow with addresses of `octets` octets
    /// in all.
    #[inline]
    pub fn hash_of_destination_port(&self, octets: usize, port: u16) -> u32 {
        let [high, low] = port.to_be_bytes();
        self.words[octets + 2][usize::from(high)] ^ self.words[octets + 3][usize::from(low)]
    }

    /// Returns what the source port contributes to the hash of a flow with addresses of `octets` octets in
    /// all.
    pub fn hash_of_source_port(&self, octets: usize, port: u16) -> u32 {
        let [high, low] = port.to_be_bytes();
        self.words[octets][usize::from(high)] ^ self.words[octets + 1][usize::from(low)]
    }

    /// Returns what the octets from the one with the number `first` on contribute. They are as many as the
    /// type says, so that the compiler unrolls the loop.
    #[inline]
    fn hash_from<const OCTETS: usize>(&self, first: usize, octets: &[u8; OCTETS]) -> u32 {
        let Some(words) = self.words[first..].first_chunk::<OCTETS>() else { return 0 };
        let mut hash = 0;
        for octet in 0..OCTETS {
            hash ^= words[octet][usize::from(octets[octet])];
        }
        hash
    }
}

impl core::fmt::Debug for Toeplitz {
    /// Does not print the key, which strangers may not know.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Toeplitz").finish_non_exhaustive()
    }
}

/// Returns the 32 bits of `key` from `bit` of a flow on.
fn window(key: &[u8; KEY_BYTES], bit: usize) -> u32 {
    let mut word = [0; 8];
    word[3..].copy_from_slice(&key[bit / 8..][..5]);
    (u64::from_be_bytes(word) >> (8 - bit % 8)) as u32
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    /// The key of the published vectors.
    const KEY: [u8; KEY_BYTES] = [
        0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0,
        0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42,
        0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
    ];

    /// The vectors that Microsoft publishes in "Verifying the RSS Hash Calculation": destination, source, and
    /// the hash with TCP's ports.
    const VECTORS: [(&str, &str, u32); 8] = [
        ("161.142.100.80:1766", "66.9.149.187:2794", 0x51cc_c178),
        ("65.69.140.83:4739", "199.92.111.2:14230", 0xc626_b0ea),
        ("12.22.207.184:38024", "24.19.198.95:12898", 0x5c2b_394a),
        ("209.142.163.6:2217", "38.27.205.30:48228", 0xafc7_327f),
        ("202.188.127.2:1303", "153.39.163.191:44251", 0x10e8_28a2),
        ("[3ffe:2501:200:3::1]:1766", "[3ffe:2501:200:1fff::7]:2794", 0x4020_7d3d),
        ("[ff02::1]:4739", "[3ffe:501:8::260:97ff:fe40:efab]:14230", 0xdde5_1bbf),
        ("[fe80::200:f8ff:fe21:67cf]:38024", "[3ffe:1900:4545:3:200:f8ff:fe21:67cf]:44251", 0x02d1_feef),
    ];

    fn flow(destination: &str, source: &str) -> Flow {
        let [source, destination] = [source, destination].map(|text| text.parse::<SocketAddr>().unwrap());
        Flow::new(source, destination).expect("one family")
    }

    #[test]
    fn it_is_the_published_one() {
        let toeplitz = Toeplitz::new(KEY);
        for (destination, source, hash) in VECTORS {
            assert_eq!(toeplitz.hash(&flow(destination, source)), hash, "{source} to {destination}");
        }
    }

    /// The hash is linear, so what a port changes follows without the rest of the flow.
    #[test]
    fn a_port_contributes_the_same_to_every_hash() {
        let toeplitz = Toeplitz::new(KEY);
        for (destination, source, hash) in VECTORS {
            let flow = flow(destination, source);
            let addresses = 2 * if flow.source().is_ipv4() { 4 } else { 16 };
            let without = hash ^ toeplitz.hash_of_destination_port(addresses, flow.destination_port());
            let other = SocketAddr::new(flow.destination(), 50_001);
            let moved = Flow::new((flow.source(), flow.source_port()).into(), other).unwrap();
            let expected = without ^ toeplitz.hash_of_destination_port(addresses, 50_001);
            assert_eq!(toeplitz.hash(&moved), expected);
            let without = hash ^ toeplitz.hash_of_source_port(addresses, flow.source_port());
            let source = SocketAddr::new(flow.source(), 50_001);
            let moved = Flow::new(source, (flow.destination(), flow.destination_port()).into()).unwrap();
            assert_eq!(toeplitz.hash(&moved), without ^ toeplitz.hash_of_source_port(addresses, 50_001));
        }
    }
}
