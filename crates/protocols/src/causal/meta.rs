//! What is stored with each version.

use rheostat_clock::{DcId, DependencyVector, StableVector, Timestamp, TimestampVector};
use rheostat_core::wire::{Reader, Wire, WireError};

/// What a version depends on.
#[derive(Clone, Default, Debug, PartialEq)]
pub struct Meta {
    /// Per data center, the highest timestamp of a version in its causal past. Paper: ds.
    pub dependencies: DependencyVector,
    /// Of a version written here, when it differs from `dependencies`: what a snapshot must cover to include it (D1). Its
    /// dependencies are all here, since somebody here has read them; some are just not yet below the stable vector.
    required: Option<Box<TimestampVector>>,
}

impl Meta {
    /// Of a version written here by a client that depends on `dependencies`, knows of `stable`, and read what was not yet stable before
    /// `arrived`; `here` is the local entry.
    pub fn local(here: DcId, dependencies: DependencyVector, stable: &StableVector, arrived: Timestamp) -> Meta {
        if stable.covers_remote(here, &dependencies) {
            return Meta { dependencies, required: None };
        }
        let mut required = dependencies.0.clone();
        required.meet(&stable.0);
        required.raise(here, dependencies.get(here).max(arrived));
        Meta { dependencies, required: Some(Box::new(required)) }
    }

    /// Of a version that arrived from another data center.
    pub fn remote(dependencies: DependencyVector) -> Meta {
        Meta { dependencies, required: None }
    }

    /// What a snapshot must cover to include the version.
    pub fn required(&self) -> &TimestampVector {
        self.required.as_deref().unwrap_or(&self.dependencies.0)
    }
}

impl Wire for Meta {
    fn encode(&self, out: &mut Vec<u8>) {
        self.dependencies.encode(out);
        self.required.encode(out);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Meta { dependencies: Wire::decode(input)?, required: Wire::decode(input)? })
    }
}
