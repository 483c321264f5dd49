//! Tests of every operation of RDMAP between two cores on a simulated link: the placed octets and the
//! completions.

mod atomics;
mod bench;
mod grants;
mod messages;
mod reads;
