//! A TCP that knows about FPDUs and keeps their boundaries.
