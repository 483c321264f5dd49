//! CRC32c engines and the choice among them at run time.
