//! `dlopen` of the libraries that this one stands for: programs that load them when they need them, and look
//! for their functions, find those here. They may ask for a version of a function (`dlvsym`); the functions
//! here have none, and serve for each.
//!
//! The linker of the process looks for a library where the caller's says (`DT_RUNPATH` of dlopen(3)), and
//! finds the caller by the address that the call returns to. So a call goes on with a jump, not from here.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::OnceLock;

/// The names by which programs load libibverbs and librdmacm, without directories.
const STOOD_FOR: [&CStr; 4] = [c"libibverbs.so.1", c"libibverbs.so", c"librdmacm.so.1", c"librdmacm.so"];

/// How a call goes on, as two registers.
#[repr(C)]
struct Chosen {
    /// The name of the library to load.
    name: *const c_char,
    /// The linker's function.
    dlopen: *const c_void,
}

/// Takes the place of dlopen(3).
#[unsafe(no_mangle)]
#[unsafe(naked)]
unsafe extern "C" fn dlopen(_name: *const c_char, _flags: c_int) -> *mut c_void {
    core::arch::naked_asm!(
        // The flags, and the stack where the ABI wants it for a call.
        "push rsi",
        "call {choose}",
        "pop rsi",
        "mov rdi, rax",
        "jmp rdx",
        choose = sym choose,
    )
}

/// Takes the place of dlvsym(3).
#[unsafe(no_mangle)]
#[unsafe(naked)]
unsafe extern "C" fn dlvsym(
    _handle: *mut c_void,
    _symbol: *const c_char,
    _version: *const c_char,
) -> *mut c_void {
    core::arch::naked_asm!(
        "push rdi",
        "push rsi",
        "push rdx",
        "call {lookup}",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "jmp rax",
        lookup = sym lookup,
    )
}

/// Returns the linker's function that looks for a function by `handle`: where that is this library's, the one
/// that asks for no version.
unsafe extern "C" fn lookup(handle: *mut c_void) -> *const c_void {
    /// As a number, for all threads.
    static OWN: OnceLock<usize> = OnceLock::new();
    let own = *OWN.get_or_init(|| {
        let path = own_path();
        let flags = libc::RTLD_LAZY | libc::RTLD_NOLOAD;
        // SAFETY: a string of C. The library is there, and stays.
        if path.is_null() { 0 } else { unsafe { libc::dlopen(path, flags) }.expose_provenance() }
    });
    let name = if own != 0 && handle.addr() == own { c"dlsym" } else { c"dlvsym" };
    // SAFETY: takes a handle that is a constant, and a string of C.
    unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) }.cast_const()
}

/// Returns this library for the name of one that it stands for, and any other name as it is.
unsafe extern "C" fn choose(name: *const c_char) -> Chosen {
    // SAFETY: takes a handle that is a constant, and a string of C.
    let dlopen = unsafe { libc::dlsym(libc::RTLD_NEXT, c"dlopen".as_ptr()) }.cast_const();
    // SAFETY: null, which stands for the program, or the caller's string of C.
    let file = (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) }).and_then(|name| {
        let octets = name.to_bytes();
        octets.rsplit(|octet| *octet == b'/').next()
    });
    let stands_for = file.is_some_and(|file| STOOD_FOR.iter().any(|name| name.to_bytes() == file));
    let own = if stands_for { own_path() } else { ptr::null() };
    Chosen { name: if own.is_null() { name } else { own }, dlopen }
}

/// Returns where the linker has this library from, or null.
fn own_path() -> *const c_char {
    /// As a number, for all threads.
    static PATH: OnceLock<usize> = OnceLock::new();
    let path = PATH.get_or_init(|| {
        let mut found = MaybeUninit::<libc::Dl_info>::uninit();
        // SAFETY: any address may be asked for; the structure is written to unless the result is 0.
        let result = unsafe { libc::dladdr(choose as *const c_void, found.as_mut_ptr()) };
        // SAFETY: as above. The string belongs to the linker, for as long as the library is loaded.
        if result == 0 { 0 } else { unsafe { found.assume_init() }.dli_fname.expose_provenance() }
    });
    ptr::with_exposed_provenance(*path)
}
