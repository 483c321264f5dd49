//! Views over the octets of each header, checked when they are made, and their emission.

pub mod ethernet;
