//! A second implementation of the receive and the send step, written from the documents alone: framing from
//! RFC 5044 ([`mpa`]), segments and their checks from RFC 5041, messages from RFC 5040 and RFC 7306. Where
//! these leave a choice, the ambiguities (A-..) of `docs/requirements.md` decide.
//!
//! It reads octets one at a time and fields one after the other, keeps memory as vectors, and does everything
//! in the order of the stream. It shares nothing with the code that it judges.

#![allow(dead_code, reason = "each test uses a part of it")]

pub mod fields;
pub mod memory;
pub mod mpa;
pub mod reader;
pub mod target;
