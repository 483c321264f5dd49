//! The functions as C calls them, over a link in memory.

mod ends;
mod failures;
mod header;
mod operations;
mod waiting;
mod windows;
