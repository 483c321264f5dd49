//! Tables of what the engine numbers itself.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, DefaultHasher};

/// A table by keys that no peer chooses. The order of its entries depends on nothing but its history, so a
/// simulation of the engine can be replayed.
pub(super) type Table<K, V> = HashMap<K, V, BuildHasherDefault<DefaultHasher>>;
