//! The machine around a device: its interfaces, and what else uses them. Read when a device is opened, so
//! that what would fail later, without a word, is refused with its remedy.

pub(crate) mod claim;
pub(crate) mod interfaces;
pub(crate) mod privileges;
pub(crate) mod sockets;
pub(crate) mod survey;
