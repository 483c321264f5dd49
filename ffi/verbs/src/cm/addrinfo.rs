//! Addresses by name: getaddrinfo(3), in the form that endpoints take.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::null_mut;

use super::sockaddr;
use crate::abi::{
    IBV_QPT_RC, RAI_NUMERICHOST, RAI_PASSIVE, RDMA_PS_TCP, rdma_addrinfo, sockaddr as CSockaddr,
};
use crate::errno::{Errno, minus_one};
use crate::object::zeroed;

/// Looks `node` and `service` up; `hints` alone suffice.
#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_getaddrinfo(
    node: *const c_char,
    service: *const c_char,
    hints: *const rdma_addrinfo,
    target: *mut *mut rdma_addrinfo,
) -> c_int {
    minus_one(|| {
        // SAFETY: the caller keeps the contract of the ABI.
        unsafe { target.write(find(node, service, hints.as_ref())?) };
        Ok(())
    })
}

unsafe fn find(
    node: *const c_char,
    service: *const c_char,
    hints: Option<&rdma_addrinfo>,
) -> Result<*mut rdma_addrinfo, Errno> {
    let flags = hints.map_or(0, |hints| hints.ai_flags);
    let passive = flags as u32 & RAI_PASSIVE != 0;
    // SAFETY: zeros are a structure of pointers and numbers.
    let unfinished = Unfinished(unsafe { allocate(size_of::<rdma_addrinfo>())? }.cast());
    // SAFETY: it is there until it is finished.
    let info = unsafe { &mut *unfinished.0 };
    info.ai_flags = flags;
    info.ai_qp_type = hints.map_or(0, |hints| hints.ai_qp_type);
    info.ai_port_space = hints.map_or(0, |hints| hints.ai_port_space);
    if info.ai_qp_type == 0 {
        info.ai_qp_type = IBV_QPT_RC as c_int;
    }
    if info.ai_port_space == 0 {
        info.ai_port_space = RDMA_PS_TCP as c_int;
    }
    // SAFETY: the caller keeps the contract of the ABI.
    unsafe {
        if node.is_null() && service.is_null() {
            let hints = hints.ok_or(Errno::INVALID)?;
            (info.ai_dst_addr, info.ai_dst_len) = copied(hints.ai_dst_addr, hints.ai_dst_len)?;
        } else {
            let family = hints.map_or(0, |hints| hints.ai_family);
            let (address, len) = looked_up(node, service, family, flags)?;
            if passive {
                (info.ai_src_addr, info.ai_src_len) = (address, len);
            } else {
                (info.ai_dst_addr, info.ai_dst_len) = (address, len);
            }
        }
        if let Some(hints) = hints.filter(|_| info.ai_src_addr.is_null()) {
            (info.ai_src_addr, info.ai_src_len) = copied(hints.ai_src_addr, hints.ai_src_len)?;
        }
        let some = if info.ai_dst_addr.is_null() { info.ai_src_addr } else { info.ai_dst_addr };
        if !some.is_null() {
            info.ai_family = (*some).sa_family.into();
        }
    }
    Ok(unfinished.finish())
}

/// What is found, which is given back unless it is finished.
struct Unfinished(*mut rdma_addrinfo);

impl Unfinished {
    fn finish(self) -> *mut rdma_addrinfo {
        let Self(info) = self;
        std::mem::forget(self);
        info
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // SAFETY: it and its parts were allocated here.
        unsafe { rdma_freeaddrinfo(self.0) };
    }
}

/// Looks an address up.
unsafe fn looked_up(
    node: *const c_char,
    service: *const c_char,
    family: c_int,
    flags: c_int,
) -> Result<(*mut CSockaddr, u32), Errno> {
    // SAFETY: a structure of pointers and numbers.
    let mut hints: libc::addrinfo = unsafe { zeroed() };
    hints.ai_family = family;
    hints.ai_socktype = libc::SOCK_STREAM;
    for (given, meant) in [(RAI_PASSIVE, libc::AI_PASSIVE), (RAI_NUMERICHOST, libc::AI_NUMERICHOST)] {
        if flags as u32 & given != 0 {
            hints.ai_flags |= meant;
        }
    }
    let mut found = null_mut();
    // SAFETY: the caller keeps the contract of the ABI.
    unsafe {
        match libc::getaddrinfo(node, service, &raw const hints, &raw mut found) {
            0 if !found.is_null() => {}
            libc::EAI_MEMORY => return Err(Errno::NO_MEMORY),
            libc::EAI_SYSTEM => return Err(Errno::last()),
            _ => return Err(Errno::NO_DEVICE),
        }
        let address = copied((*found).ai_addr.cast(), (*found).ai_addrlen);
        libc::freeaddrinfo(found);
        address
    }
}

unsafe fn allocate(len: usize) -> Result<*mut c_void, Errno> {
    // SAFETY: memory for `rdma_freeaddrinfo` to give back.
    let place = unsafe { libc::calloc(1, len) };
    if place.is_null() { Err(Errno::NO_MEMORY) } else { Ok(place) }
}

/// Copies an address, which is at least as long as its family says; null stays null.
unsafe fn copied(address: *const CSockaddr, len: u32) -> Result<(*mut CSockaddr, u32), Errno> {
    if address.is_null() {
        return Ok((null_mut(), 0));
    }
    // SAFETY: the caller keeps the contract of the ABI.
    unsafe {
        let (_, needed) = sockaddr::stored(sockaddr::read(address)?);
        if len < needed {
            return Err(Errno::INVALID);
        }
        let place = allocate(len as usize)?;
        place.cast::<u8>().copy_from_nonoverlapping(address.cast(), len as usize);
        Ok((place.cast(), len))
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_freeaddrinfo(first: *mut rdma_addrinfo) {
    let mut info = first;
    while !info.is_null() {
        // SAFETY: it is from `rdma_getaddrinfo`, which has allocated all of it.
        unsafe {
            let next = (*info).ai_next;
            for part in [(*info).ai_src_addr.cast(), (*info).ai_dst_addr.cast(), (*info).ai_connect] {
                libc::free(part);
            }
            libc::free(info.cast());
            info = next;
        }
    }
}
