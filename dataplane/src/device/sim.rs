//! A network in memory, in virtual time.
