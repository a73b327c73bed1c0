//! What a client asks of a protocol that reads and writes a changed key in one step.

use rheostat_core::operation::{Change, Level};
use rheostat_core::protocol::Call;
use rheostat_core::version::Key;

/// What a client asks.
#[derive(Clone, Debug)]
pub enum Ask {
    /// What the papers know.
    Call(Call),
    /// A read and a write of one key, with nothing between them here.
    Change {
        /// The key.
        key: Key,
        /// The change.
        change: Change,
    },
}

impl Ask {
    /// The request to change `key`, unless that depends on a condition, which no protocol without consensus can decide.
    pub(crate) fn change(key: &Key, change: &Change) -> Option<Ask> {
        (!change.is_conditional()).then(|| Ask::Change { key: key.clone(), change: change.clone() })
    }

    /// Whether it reads at level eventual: then it neither waits for the session's past nor adds to it. A write always belongs to the session.
    pub(crate) fn is_untracked(&self) -> bool {
        matches!(self, Ask::Call(Call::Get { level: Level::Eventual, .. } | Call::ReadTransaction { level: Level::Eventual, .. }))
    }
}
