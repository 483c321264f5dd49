//! Values with their names, for reports that list all there are without knowing each.

/// A counter, or another number of a report, with its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedValue {
    /// What it is called: as the field in Rust, `tcp.timeouts` where that is in another structure.
    pub name: String,
    /// Its value, in the unit that the name says. Of what is true or false, 1 or 0.
    pub value: u64,
}

impl NamedValue {
    pub(crate) fn new(name: impl Into<String>, value: u64) -> Self {
        Self { name: name.into(), value }
    }

    /// Returns it as a part of `structure`: `timeouts` as `tcp.timeouts`.
    #[must_use]
    pub fn within(self, structure: &str) -> Self {
        Self { name: format!("{structure}.{}", self.name), ..self }
    }
}

/// Lists variables that hold references to numbers, each under its own name.
macro_rules! named_values {
    ($($name:ident),* $(,)?) => {
        vec![$($crate::named::NamedValue::new(stringify!($name), u64::from(*$name))),*]
    };
}

pub(crate) use named_values;
