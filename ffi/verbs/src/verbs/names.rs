//! Words for numbers, and numbers of rates.

use std::ffi::{CStr, c_char, c_int};

/// Returns the text of `number` among `texts`, or `otherwise`.
fn text(texts: &[&'static CStr], number: u32, otherwise: &'static CStr) -> *const c_char {
    texts.get(number as usize).copied().unwrap_or(otherwise).as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn ibv_wc_status_str(status: u32) -> *const c_char {
    let texts = [
        c"success",
        c"local length error",
        c"local QP operation error",
        c"local EE context operation error",
        c"local protection error",
        c"Work Request Flushed Error",
        c"memory management operation error",
        c"bad response error",
        c"local access error",
        c"remote invalid request error",
        c"remote access error",
        c"remote operation error",
        c"transport retry counter exceeded",
        c"RNR retry counter exceeded",
        c"local RDD violation error",
        c"remote invalid RD request",
        c"aborted error",
        c"invalid EE context number",
        c"invalid EE context state",
        c"fatal error",
        c"response timeout error",
        c"general error",
        c"TM error",
        c"TM software rendezvous",
    ];
    text(&texts, status, c"unknown")
}

#[unsafe(no_mangle)]
extern "C" fn ibv_event_type_str(event: u32) -> *const c_char {
    let texts = [
        c"CQ error",
        c"local work queue catastrophic error",
        c"invalid request local work queue error",
        c"local access violation work queue error",
        c"communication established",
        c"send queue drained",
        c"path migration",
        c"path migration request error",
        c"local catastrophic error",
        c"port active",
        c"port error",
        c"LID change",
        c"P_Key change",
        c"SM change",
        c"SRQ catastrophic error",
        c"SRQ limit reached",
        c"last WQE reached",
        c"client reregistration",
        c"GID table change",
        c"WQ fatal",
    ];
    text(&texts, event, c"unknown")
}

#[unsafe(no_mangle)]
extern "C" fn ibv_node_type_str(node: c_int) -> *const c_char {
    let texts = [
        c"unknown",
        c"InfiniBand channel adapter",
        c"InfiniBand switch",
        c"InfiniBand router",
        c"iWARP NIC",
        c"usNIC",
        c"usNIC UDP",
        c"unspecified",
    ];
    text(&texts, node as u32, c"unknown")
}

#[unsafe(no_mangle)]
extern "C" fn ibv_port_state_str(state: u32) -> *const c_char {
    let texts = [c"no state change (NOP)", c"down", c"init", c"armed", c"active", c"active defer"];
    text(&texts, state, c"invalid state")
}

/// Rates of InfiniBand: the code, how many times 2.5 Gb/s, and Mb/s.
const RATES: [(u32, c_int, c_int); 23] = [
    (2, 1, 2500),
    (5, 2, 5000),
    (3, 4, 10_000),
    (6, 8, 20_000),
    (4, 12, 30_000),
    (7, 16, 40_000),
    (8, 24, 60_000),
    (9, 32, 80_000),
    (10, 48, 120_000),
    (11, 5, 14_062),
    (12, 22, 56_250),
    (13, 44, 112_500),
    (14, 66, 168_750),
    (15, 10, 25_781),
    (16, 40, 103_125),
    (17, 80, 206_250),
    (18, 120, 309_375),
    (19, 11, 28_125),
    (20, 20, 50_000),
    (21, 160, 400_000),
    (22, 240, 600_000),
    (23, 320, 800_000),
    (24, 480, 1_200_000),
];

#[unsafe(no_mangle)]
extern "C" fn ibv_rate_to_mult(rate: u32) -> c_int {
    RATES.iter().find(|(code, ..)| *code == rate).map_or(-1, |(_, times, _)| *times)
}

#[unsafe(no_mangle)]
extern "C" fn mult_to_ibv_rate(times: c_int) -> u32 {
    RATES.iter().find(|(_, of, _)| *of == times).map_or(0, |(code, ..)| *code)
}

#[unsafe(no_mangle)]
extern "C" fn ibv_rate_to_mbps(rate: u32) -> c_int {
    RATES.iter().find(|(code, ..)| *code == rate).map_or(-1, |(.., mbps)| *mbps)
}

#[unsafe(no_mangle)]
extern "C" fn mbps_to_ibv_rate(mbps: c_int) -> u32 {
    RATES.iter().find(|(.., of)| *of == mbps).map_or(0, |(code, ..)| *code)
}
