//! Booleans in structures that C programs fill.

/// A `bool` of C, read as the byte that it is. Rust's `bool` has two values, and a program may leave any byte
/// there, by `memset` or a union: what is not 0 is true, as in C.
///
/// The header says `bool`: see cbindgen.toml.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flag(pub u8);

impl Flag {
    pub const CLEAR: Self = Self(0);
    pub const SET: Self = Self(1);

    pub const fn is_set(self) -> bool {
        self.0 != 0
    }
}

impl From<bool> for Flag {
    fn from(set: bool) -> Self {
        Self(set.into())
    }
}
