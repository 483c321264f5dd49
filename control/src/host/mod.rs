//! The machine around a device: its interfaces, and what else uses them. Read when a device is opened, so
//! that what would fail later, without a word, is refused with its remedy.

mod arrivals;
pub(crate) mod claim;
mod interfaces;
mod netlink;
mod offloads;
pub(crate) mod privileges;
pub(crate) mod sockets;
pub(crate) mod survey;
