//! What a core is created with, beside its device.

use super::Config;
use super::tables::Tables;
use crate::net::place::Place;
use crate::ring::Rings;

/// What a core is created with, beside its device.
pub struct CoreSetup<F> {
    /// How it is set up.
    pub(super) config: Config,
    /// By what it talks to control.
    pub(super) rings: Rings,
    /// How large its tables are.
    pub(super) tables: Tables,
    /// Its place among the cores of its device, if there are several.
    pub(super) place: Option<Place<F>>,
}

impl<F> CoreSetup<F> {
    /// Returns the setup of a core that talks to control over `rings` and is alone on its device, with tables
    /// of the usual sizes.
    pub fn new(config: Config, rings: Rings) -> Self {
        Self { config, rings, tables: Tables::default(), place: None }
    }

    /// The same with tables of other sizes.
    #[must_use]
    pub fn with_tables(self, tables: Tables) -> Self {
        Self { tables, ..self }
    }

    /// The same for one of several cores of a device, which all have the same configuration: the device
    /// brings each the frames of its flows, and the host core those that are of no flow.
    #[must_use]
    pub fn placed(self, place: Place<F>) -> Self {
        Self { place: Some(place), ..self }
    }
}
