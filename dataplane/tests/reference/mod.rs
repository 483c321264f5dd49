//! A second implementation of what goes over the wire, written from the documents alone: framing from RFC
//! 5044 ([`mpa`]).

pub mod mpa;
