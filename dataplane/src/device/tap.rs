//! A device that records what passes through another.
