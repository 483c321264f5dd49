//! Captures in the pcapng format.
