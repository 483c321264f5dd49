//! The names of numbers, and the version.

use std::ffi::{CStr, c_char};

use warpline::WcStatus;

use crate::completion::*;
use crate::version::warpline_version;

fn words(text: *const c_char) -> &'static str {
    // SAFETY: the library's words end with a zero byte and are good for ever.
    unsafe { CStr::from_ptr(text) }.to_str().unwrap()
}

/// Every status of verbs has a constant of its number, a name and a text; no other number has.
#[test]
fn every_status_has_a_name() {
    let named = [
        (WcStatus::Success, WARPLINE_WC_SUCCESS, "WARPLINE_WC_SUCCESS", "success"),
        (
            WcStatus::LocalLengthError,
            WARPLINE_WC_LOC_LEN_ERR,
            "WARPLINE_WC_LOC_LEN_ERR",
            "local length error",
        ),
        (
            WcStatus::LocalQpOperation,
            WARPLINE_WC_LOC_QP_OP_ERR,
            "WARPLINE_WC_LOC_QP_OP_ERR",
            "local QP operation error",
        ),
        (
            WcStatus::LocalProtection,
            WARPLINE_WC_LOC_PROT_ERR,
            "WARPLINE_WC_LOC_PROT_ERR",
            "local protection error",
        ),
        (
            WcStatus::WorkRequestFlushed,
            WARPLINE_WC_WR_FLUSH_ERR,
            "WARPLINE_WC_WR_FLUSH_ERR",
            "work request flushed",
        ),
        (
            WcStatus::MemoryWindowBind,
            WARPLINE_WC_MW_BIND_ERR,
            "WARPLINE_WC_MW_BIND_ERR",
            "memory window bind error",
        ),
        (WcStatus::BadResponse, WARPLINE_WC_BAD_RESP_ERR, "WARPLINE_WC_BAD_RESP_ERR", "bad response"),
        (
            WcStatus::LocalAccess,
            WARPLINE_WC_LOC_ACCESS_ERR,
            "WARPLINE_WC_LOC_ACCESS_ERR",
            "local access error",
        ),
        (
            WcStatus::RemoteInvalidRequest,
            WARPLINE_WC_REM_INV_REQ_ERR,
            "WARPLINE_WC_REM_INV_REQ_ERR",
            "remote invalid request",
        ),
        (
            WcStatus::RemoteAccess,
            WARPLINE_WC_REM_ACCESS_ERR,
            "WARPLINE_WC_REM_ACCESS_ERR",
            "remote access error",
        ),
        (
            WcStatus::RemoteOperation,
            WARPLINE_WC_REM_OP_ERR,
            "WARPLINE_WC_REM_OP_ERR",
            "remote operation error",
        ),
        (WcStatus::RetryExceeded, WARPLINE_WC_RETRY_EXC_ERR, "WARPLINE_WC_RETRY_EXC_ERR", "retries exceeded"),
        (
            WcStatus::RnrRetryExceeded,
            WARPLINE_WC_RNR_RETRY_EXC_ERR,
            "WARPLINE_WC_RNR_RETRY_EXC_ERR",
            "the peer had no receive posted",
        ),
        (
            WcStatus::RemoteAborted,
            WARPLINE_WC_REM_ABORT_ERR,
            "WARPLINE_WC_REM_ABORT_ERR",
            "aborted by the peer",
        ),
        (WcStatus::Fatal, WARPLINE_WC_FATAL_ERR, "WARPLINE_WC_FATAL_ERR", "fatal error"),
        (
            WcStatus::ResponseTimeout,
            WARPLINE_WC_RESP_TIMEOUT_ERR,
            "WARPLINE_WC_RESP_TIMEOUT_ERR",
            "response timeout",
        ),
        (WcStatus::General, WARPLINE_WC_GENERAL_ERR, "WARPLINE_WC_GENERAL_ERR", "general error"),
    ];
    for (status, number, name, text) in named {
        assert_eq!(u32::from(status as u8), number, "{name}");
        assert_eq!(words(warpline_wc_status_name(number)), name);
        assert_eq!(words(warpline_wc_status_text(number)), text);
    }
    let other =
        (0..300).chain([u32::MAX]).filter(|number| named.iter().all(|(_, known, ..)| known != number));
    for number in other {
        assert_eq!(words(warpline_wc_status_name(number)), "unknown status", "{number}");
        assert_eq!(words(warpline_wc_status_text(number)), "unknown status", "{number}");
    }
}

#[test]
fn the_version_is_that_of_the_header() {
    let header = include_str!("../../include/warpline.h");
    let version = words(warpline_version());
    assert_eq!(version, env!("CARGO_PKG_VERSION"));
    assert!(header.contains(&format!("#define WARPLINE_VERSION \"{version}\"\n")));
}
