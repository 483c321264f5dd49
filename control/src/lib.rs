//! A software RNIC.
