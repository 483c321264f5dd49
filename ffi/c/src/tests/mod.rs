//! The functions as C calls them, over a link in memory.

mod addresses;
mod byte_streams;
mod cm;
mod ends;
mod failures;
mod handles;
mod header;
mod names;
mod operations;
mod sizes;
mod startup;
mod statistics;
mod streaming;
mod waiting;
mod windows;
