//! The offloads of interfaces and their channels, as ethtool(8) lists them: the family `ethtool` of generic
//! netlink.

use std::io;
use std::str;

use netlink_packet_core::{
    DecodeError, DefaultNla, Emitable, NLA_F_NESTED, NLA_HEADER_SIZE, NLM_F_ACK, NetlinkDeserializable,
    NetlinkHeader, NetlinkSerializable, NlasIterator,
};
use netlink_sys::{Socket, protocols::NETLINK_GENERIC};

use super::netlink;

/// The offloads of an interface that are on.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct Offloads {
    /// Their names, as the kernel has them (`tx-tcp-segmentation`).
    on: Vec<String>,
}

impl Offloads {
    #[cfg(test)]
    pub(crate) fn of(names: &[&str]) -> Self {
        Self { on: names.iter().map(|name| (*name).to_owned()).collect() }
    }

    fn has(&self, name: &str) -> bool {
        self.on.iter().any(|on| on == name)
    }

    /// Returns true if the kernel leaves the TCP checksums of what it sends to the interface.
    pub(crate) fn sums_transmitted(&self) -> bool {
        ["tx-checksum-ip-generic", "tx-checksum-ipv4", "tx-checksum-ipv6"].iter().any(|name| self.has(name))
    }

    /// Returns true if the kernel leaves it to the interface to cut what it sends into segments.
    pub(crate) fn segments_transmitted(&self) -> bool {
        ["tx-tcp-segmentation", "tx-tcp6-segmentation"].iter().any(|name| self.has(name))
    }

    /// Returns true if the interface vouches for checksums of what arrives.
    pub(crate) fn verifies_received(&self) -> bool {
        self.has("rx-checksum")
    }

    /// Returns those that join segments that arrive to longer packets, by the words of `ethtool -K`.
    pub(crate) fn joining_received(&self) -> Vec<&'static str> {
        let names = [("rx-gro", "gro"), ("rx-lro", "lro"), ("rx-gro-hw", "rx-gro-hw")];
        names.into_iter().filter(|(name, _)| self.has(name)).map(|(_, word)| word).collect()
    }
}

/// The controller, which knows the numbers of the other families: `GENL_ID_CTRL`.
const CONTROLLER: u16 = 0x10;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
const ETHTOOL_MSG_FEATURES_GET: u8 = 11;
/// The header of any message.
const ETHTOOL_A_HEADER: u16 = 1;
const ETHTOOL_A_HEADER_DEV_INDEX: u16 = 1;
const ETHTOOL_A_FEATURES_ACTIVE: u16 = 4;
const ETHTOOL_A_BITSET_BITS: u16 = 3;
const ETHTOOL_A_BITSET_BIT_NAME: u16 = 2;
const ETHTOOL_MSG_CHANNELS_GET: u8 = 17;
const ETHTOOL_A_CHANNELS_COMBINED_COUNT: u16 = 9;

/// Asks the kernel about interfaces.
pub(crate) struct Ethtool {
    socket: Socket,
    family: u16,
}

impl Ethtool {
    /// Begins to ask in this network namespace.
    ///
    /// # Errors
    ///
    /// That of the socket; `NotFound` if the kernel has no such family.
    pub(crate) fn open() -> io::Result<Self> {
        let socket = netlink::open(NETLINK_GENERIC)?;
        let attributes = serialized(&DefaultNla::new(CTRL_ATTR_FAMILY_NAME, b"ethtool\0".to_vec()));
        let request = GenericMessage { family: CONTROLLER, command: CTRL_CMD_GETFAMILY, attributes };
        let mut family = None;
        netlink::ask(&socket, NLM_F_ACK, request, |answer| {
            let number = value(&answer.attributes, CTRL_ATTR_FAMILY_ID);
            family = number.and_then(|number| number.try_into().ok()).map(u16::from_ne_bytes).or(family);
        })?;
        Ok(Self { socket, family: family.ok_or(io::ErrorKind::NotFound)? })
    }

    /// Returns the offloads of the interface with the number `index`.
    ///
    /// # Errors
    ///
    /// That of the socket or the kernel.
    pub(crate) fn offloads(&self, index: u32) -> io::Result<Offloads> {
        let mut offloads = Offloads::default();
        self.ask(ETHTOOL_MSG_FEATURES_GET, index, |attributes| offloads.on.extend(active(attributes)))?;
        Ok(offloads)
    }

    /// Returns how many channels that receive and send the interface with the number `index` has.
    ///
    /// # Errors
    ///
    /// That of the socket or the kernel: `Unsupported` for an interface without channels.
    pub(crate) fn channels(&self, index: u32) -> io::Result<u32> {
        let mut channels = 0;
        self.ask(ETHTOOL_MSG_CHANNELS_GET, index, |attributes| {
            let count = value(attributes, ETHTOOL_A_CHANNELS_COMBINED_COUNT);
            channels = count.and_then(|count| count.try_into().ok()).map_or(channels, u32::from_ne_bytes);
        })?;
        Ok(channels)
    }

    /// Sends a command about the interface with the number `index`, and calls `each` for the attributes of
    /// each message of the answer.
    fn ask(&self, command: u8, index: u32, mut each: impl FnMut(&[u8])) -> io::Result<()> {
        let index = DefaultNla::new(ETHTOOL_A_HEADER_DEV_INDEX, index.to_ne_bytes().to_vec());
        let header = DefaultNla::new(ETHTOOL_A_HEADER | NLA_F_NESTED, serialized(&index));
        let request = GenericMessage { family: self.family, command, attributes: serialized(&header) };
        netlink::ask(&self.socket, NLM_F_ACK, request, |answer| each(&answer.attributes))
    }
}

/// Returns the names of the bits that are set in the answer `octets`.
fn active(octets: &[u8]) -> Vec<String> {
    let bits = value(octets, ETHTOOL_A_FEATURES_ACTIVE).and_then(|set| value(set, ETHTOOL_A_BITSET_BITS));
    let bits = NlasIterator::new(bits.unwrap_or_default()).map_while(Result::ok);
    let name = |bit: &[u8]| {
        let name = value(bit, ETHTOOL_A_BITSET_BIT_NAME)?.strip_suffix(b"\0")?;
        str::from_utf8(name).ok().map(str::to_owned)
    };
    bits.filter_map(|bit| name(bit.value())).collect()
}

/// Returns the value of the first attribute of the kind `kind` among the attributes `octets`.
fn value(octets: &[u8], kind: u16) -> Option<&[u8]> {
    let mut attributes = NlasIterator::new(octets).map_while(Result::ok);
    let attribute = attributes.find(|attribute| attribute.kind() == kind)?;
    let end = usize::from(attribute.length());
    attribute.into_inner().get(NLA_HEADER_SIZE..end)
}

fn serialized(attribute: &DefaultNla) -> Vec<u8> {
    let mut octets = vec![0; attribute.buffer_len()];
    attribute.emit(&mut octets);
    octets
}

/// A message of generic netlink.
struct GenericMessage {
    /// The number of the family.
    family: u16,
    command: u8,
    /// One after the other.
    attributes: Vec<u8>,
}

impl GenericMessage {
    /// Octets of the header: the command, a version and two that are reserved.
    const HEADER: usize = 4;
    const VERSION: u8 = 1;
}

impl NetlinkSerializable for GenericMessage {
    fn message_type(&self) -> u16 {
        self.family
    }

    fn buffer_len(&self) -> usize {
        Self::HEADER + self.attributes.len()
    }

    fn serialize(&self, buffer: &mut [u8]) {
        let (header, attributes) = buffer.split_at_mut(Self::HEADER);
        header.copy_from_slice(&[self.command, Self::VERSION, 0, 0]);
        attributes.copy_from_slice(&self.attributes);
    }
}

impl NetlinkDeserializable for GenericMessage {
    type Error = DecodeError;

    fn deserialize(header: &NetlinkHeader, payload: &[u8]) -> Result<Self, DecodeError> {
        let (&[command, ..], attributes) = payload
            .split_first_chunk::<{ Self::HEADER }>()
            .ok_or_else(|| DecodeError::buffer_too_small(payload.len(), Self::HEADER))?;
        Ok(Self { family: header.message_type, command, attributes: attributes.to_vec() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_lists_the_offloads_of_its_loopback() {
        let ethtool = Ethtool::open().unwrap();
        // The loopback interface has this number in every network namespace, and nobody can turn these off.
        let offloads = ethtool.offloads(1).unwrap();
        assert!(offloads.verifies_received() && offloads.has("loopback"), "{offloads:?}");
        assert!(offloads.sums_transmitted(), "{offloads:?}");
        assert!(!offloads.has("rx-lro"));
        let error = ethtool.offloads(u32::MAX >> 1).unwrap_err();
        assert_eq!(error.kind(), io::Error::from_raw_os_error(19).kind(), "no such device: {error}");
        let error = ethtool.channels(1).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Unsupported, "loopback has no channels: {error}");
    }

    #[test]
    fn an_answer_that_is_cut_has_no_offloads() {
        let nested = |kind: u16, value: Vec<u8>| serialized(&DefaultNla::new(kind, value));
        let bit = nested(ETHTOOL_A_BITSET_BIT_NAME, b"rx-gro\0".to_vec());
        let answer = nested(ETHTOOL_A_FEATURES_ACTIVE, nested(ETHTOOL_A_BITSET_BITS, nested(1, bit)));
        assert_eq!(active(&answer), ["rx-gro"]);
        for len in 0..answer.len() - 1 {
            assert_eq!(active(&answer[..len]), Vec::<String>::new(), "{len}");
        }
    }
}
