//! The version of the library.

use std::ffi::{CStr, c_char};

const VERSION: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
    Ok(version) => version,
    Err(_) => panic!("a version has no zero byte"),
};

/// Returns the version of the library, such as `"0.1.0"`: that of the loaded library, where
/// `WARPLINE_VERSION` is that of the header with which the program was compiled. Never null; good for ever.
#[unsafe(no_mangle)]
pub extern "C" fn warpline_version() -> *const c_char {
    VERSION.as_ptr()
}
