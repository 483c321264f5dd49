//! Every operation of RDMAP between two cores on a simulated link: what arrives where, and which completions
//! tell of it.

mod atomics;
mod bench;
mod grants;
mod messages;
mod reads;
