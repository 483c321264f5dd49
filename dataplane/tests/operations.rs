//! Every operation of RDMAP between two cores on a simulated link: what arrives where, and which completions tell of it.

#[path = "operations/atomics.rs"]
mod atomics;
#[path = "operations/bench.rs"]
mod bench;
mod common;
#[path = "operations/grants.rs"]
mod grants;
#[path = "operations/messages.rs"]
mod messages;
#[path = "operations/reads.rs"]
mod reads;
