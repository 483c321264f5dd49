//! Memory that a program registers, and structures with any numbers in them.

use std::ffi::c_void;

use warpline_verbs::abi::{sockaddr, sockaddr_storage};

use super::input::Input;

/// Octets before and after registered memory, which nobody is to write.
const GUARD: usize = 64;
/// What is in memory before anybody writes.
const UNTOUCHED: u8 = 0xa5;

/// Memory to register, with guard octets around it.
pub struct Block {
    octets: Box<[u8]>,
    /// As it was when it was deregistered: nobody writes it any more.
    kept: Option<Box<[u8]>>,
}

impl Block {
    pub fn new(len: usize) -> Self {
        Self { octets: vec![UNTOUCHED; len + 2 * GUARD].into(), kept: None }
    }

    pub fn start(&mut self) -> *mut c_void {
        self.octets[GUARD..].as_mut_ptr().cast()
    }

    pub fn len(&self) -> usize {
        self.octets.len() - 2 * GUARD
    }

    /// Remembers what is there: the memory is the program's again.
    pub fn keep(&mut self) {
        self.kept = Some(self.octets.clone());
    }

    /// Checks the guard octets, and all others if they may not have changed.
    pub fn check(&self, may_be_written: bool) {
        let untouched = |octets: &[u8]| octets.iter().all(|octet| *octet == UNTOUCHED);
        let (front, rest) = self.octets.split_at(GUARD);
        let (inside, back) = rest.split_at(self.len());
        assert!(untouched(front) && untouched(back), "octets outside registered memory were written");
        assert!(may_be_written || untouched(inside), "memory was written that nobody may write");
        let is_kept = self.kept.as_ref().is_none_or(|kept| *kept == self.octets);
        assert!(is_kept, "memory was written after it was deregistered");
    }
}

/// Returns a structure of C's with some octets of it changed: one at least for three of four inputs.
///
/// # Safety
///
/// Any octets are a value of `T`: it has numbers alone.
pub unsafe fn changed<T>(input: &mut Input<'_>, mut structure: T) -> T {
    for _ in 0..input.below(4) {
        let place = usize::from(input.u16()) % size_of::<T>();
        // SAFETY: the place is inside, and the caller's promise.
        unsafe { (&raw mut structure).cast::<u8>().add(place).write(input.octet()) };
    }
    structure
}

/// Returns a number: small ones, the largest ones, and any.
pub fn number(input: &mut Input<'_>, usual: u32) -> u32 {
    match input.below(16) {
        0 => input.u32(),
        1 => u32::MAX - u32::from(input.octet()),
        2 => u32::from(input.octet()),
        3 => 1 << (input.octet() & 31),
        _ => usual,
    }
}

/// The addresses: of the device, of this host, of nobody.
const ADDRESSES: [[u8; 4]; 6] =
    [[198, 18, 0, 1], [127, 0, 0, 1], [0; 4], [198, 18, 0, 9], [192, 0, 2, 1], [255; 4]];

/// A socket address in memory that has room for the longest.
pub struct Address(Box<sockaddr_storage>);

impl Address {
    /// Returns an IPv4 address.
    pub fn of(address: [u8; 4], port: u16) -> Self {
        let mut octets = [0; size_of::<sockaddr_storage>()];
        octets[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
        octets[2..4].copy_from_slice(&port.to_be_bytes());
        octets[4..8].copy_from_slice(&address);
        Self::from_octets(octets)
    }

    fn from_octets(octets: [u8; size_of::<sockaddr_storage>()]) -> Self {
        // SAFETY: a structure of numbers, of as many octets.
        Self(Box::new(unsafe { std::ptr::read_unaligned((&raw const octets).cast()) }))
    }

    /// Returns an address of any family, with any numbers; mostly one that makes sense.
    pub fn any(input: &mut Input<'_>, port: u16) -> Self {
        let address = ADDRESSES[input.below(ADDRESSES.len())];
        let port = if input.octet() & 7 == 7 { input.u16() } else { port };
        let mut address = Self::of(address, port);
        match input.below(16) {
            0 => address.0.ss_family = libc::AF_INET6 as u16,
            1 => address.0.ss_family = input.octet().into(),
            2 => {
                let mut octets = [0; size_of::<sockaddr_storage>()];
                let given = input.octets(octets.len());
                octets[..given.len()].copy_from_slice(given);
                return Self::from_octets(octets);
            }
            _ => {}
        }
        address
    }

    pub fn raw(&mut self) -> *mut sockaddr {
        (&raw mut *self.0).cast()
    }
}
