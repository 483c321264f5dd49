//! Socket addresses, as programs have them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use crate::abi::{sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage};
use crate::errno::Errno;
use crate::object::zeroed;

/// Reads an address.
///
/// # Errors
///
/// [`Errno::INVALID`] for null, and for families other than IPv4 and IPv6.
///
/// # Safety
///
/// Null, or as long as its family says.
pub(crate) unsafe fn read(address: *const sockaddr) -> Result<SocketAddr, Errno> {
    if address.is_null() {
        return Err(Errno::INVALID);
    }
    // SAFETY: the caller's promise; the fields are read one by one, as nothing says that they are aligned.
    unsafe {
        match i32::from((&raw const (*address).sa_family).read_unaligned()) {
            libc::AF_INET => {
                let address = address.cast::<sockaddr_in>().read_unaligned();
                let ip = Ipv4Addr::from(address.sin_addr.s_addr.to_ne_bytes());
                Ok(SocketAddrV4::new(ip, u16::from_be(address.sin_port)).into())
            }
            libc::AF_INET6 => {
                let address = address.cast::<sockaddr_in6>().read_unaligned();
                let ip = Ipv6Addr::from(address.sin6_addr.__in6_u.__u6_addr8);
                let port = u16::from_be(address.sin6_port);
                Ok(SocketAddrV6::new(ip, port, 0, address.sin6_scope_id).into())
            }
            _ => Err(Errno::INVALID),
        }
    }
}

/// Returns an address as programs have it, and its length.
pub(crate) fn stored(address: SocketAddr) -> (sockaddr_storage, u32) {
    // SAFETY: structures of numbers.
    let mut storage: sockaddr_storage = unsafe { zeroed() };
    let target = &raw mut storage;
    match address {
        SocketAddr::V4(address) => {
            // SAFETY: as above.
            let mut plain: sockaddr_in = unsafe { zeroed() };
            plain.sin_family = libc::AF_INET as u16;
            plain.sin_port = address.port().to_be();
            plain.sin_addr.s_addr = u32::from_ne_bytes(address.ip().octets());
            // SAFETY: a storage has room for every address.
            unsafe { target.cast::<sockaddr_in>().write(plain) };
            (storage, size_of::<sockaddr_in>() as u32)
        }
        SocketAddr::V6(address) => {
            // SAFETY: as above.
            let mut plain: sockaddr_in6 = unsafe { zeroed() };
            plain.sin6_family = libc::AF_INET6 as u16;
            plain.sin6_port = address.port().to_be();
            plain.sin6_addr.__in6_u.__u6_addr8 = address.ip().octets();
            plain.sin6_scope_id = address.scope_id();
            // SAFETY: as above.
            unsafe { target.cast::<sockaddr_in6>().write(plain) };
            (storage, size_of::<sockaddr_in6>() as u32)
        }
    }
}

/// Returns the address of the device that `address` means: its first one for that of this host.
pub(crate) fn of_device(address: SocketAddr, own: &[warpline::Cidr]) -> SocketAddr {
    if !address.ip().is_loopback() {
        return address;
    }
    let same = |own: &&warpline::Cidr| own.address.is_ipv4() == address.is_ipv4();
    let first: Option<IpAddr> = own.iter().find(same).map(|own| own.address);
    SocketAddr::new(first.unwrap_or(address.ip()), address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_is_read_again() {
        for text in ["198.18.0.1:7471", "[fd00::1]:80", "0.0.0.0:0"] {
            let address: SocketAddr = text.parse().unwrap();
            let (storage, len) = stored(address);
            assert_eq!(len, if address.is_ipv4() { 16 } else { 28 });
            // SAFETY: a storage that was just written.
            assert_eq!(unsafe { read((&raw const storage).cast()) }, Ok(address));
        }
        // SAFETY: null is allowed.
        assert_eq!(unsafe { read(std::ptr::null()) }, Err(Errno::INVALID));
    }

    #[test]
    fn this_host_is_the_first_address_of_the_family() {
        let own = ["198.18.0.1/24", "fd00::1/64"].map(|own| own.parse().unwrap());
        for (given, meant) in [
            ("127.0.0.1:5", "198.18.0.1:5"),
            ("[::1]:5", "[fd00::1]:5"),
            ("198.18.0.9:5", "198.18.0.9:5"),
            ("0.0.0.0:5", "0.0.0.0:5"),
        ] {
            assert_eq!(of_device(given.parse().unwrap(), &own), meant.parse().unwrap(), "{given}");
        }
        assert_eq!(of_device("127.0.0.1:5".parse().unwrap(), &own[1..]), "127.0.0.1:5".parse().unwrap());
    }
}
