//! Names of updates.

use rheostat_proto::v1;
use std::hash::{BuildHasher, RandomState};

/// The names of a session's updates: under one, an update can be sent again and is made once.
pub(crate) struct Names {
    client: u64,
    last: u64,
}

impl Names {
    pub(crate) fn new() -> Names {
        // The keys of the hash are random, and differ from those of every other one.
        Names { client: RandomState::new().hash_one(0_u8), last: 0 }
    }

    pub(crate) fn next(&mut self) -> v1::UpdateName {
        self.last += 1;
        v1::UpdateName { client: self.client, number: self.last }
    }
}

impl Clone for Names {
    /// Names that differ from these: two sessions must not give the same one.
    fn clone(&self) -> Names {
        Names::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_grow_and_clones_have_names_of_their_own() {
        let mut names = Names::new();
        let (first, second) = (names.next(), names.next());
        assert!(first.client == second.client && first.number < second.number);
        assert_ne!(names.clone().next().client, first.client);
    }
}
