//! What is sent, and what is stored with a version.

use super::client::HybridClient;
use crate::change::Changed;
use crate::gather::TransactionId;
use crate::stability::FORGOTTEN;
use crate::tree::Share;
use rheostat_clock::{DcId, DependencyVector, StableVector, Timestamp, TimestampVector};
use rheostat_core::answer::{Quality, Read};
use rheostat_core::planted::Planted;
use rheostat_core::protocol::Call;
use rheostat_core::reserved::Reserved;
use rheostat_core::version::{Key, VersionId};
use rheostat_core::wire::{Reader, Wire, WireError};
use rheostat_core::wire_enum;

/// An explicit dependency.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Dependency {
    /// The key.
    pub key: Key,
    /// The version of it.
    pub version: VersionId,
}

impl Dependency {
    /// On what was deleted up to `at` and is forgotten in data center `here`: that is visible where everything up to then is stable.
    pub(super) fn on_forgotten(here: DcId, at: Timestamp) -> Option<Dependency> {
        (at > Timestamp::ZERO).then(|| Dependency { key: FORGOTTEN.to_key(), version: VersionId { written: at, origin: here } })
    }

    /// Whether it is one of those.
    pub(super) fn is_on_forgotten(&self) -> bool {
        Reserved::parse(&self.key) == Some(FORGOTTEN)
    }
}

/// What is stored with each version.
#[derive(Clone, Default, Debug, PartialEq)]
pub struct Meta {
    /// Per data center, the highest timestamp of a version in its causal past: what the stable vector is asked for.
    pub dependencies: DependencyVector,
    /// Its nearest dependencies: what the session read since its last write, and that write. `None`: more than are listed.
    pub nearest: Option<Vec<Dependency>>,
    /// What its writer's data center had.
    pub stable: StableVector,
    /// Dependencies up to here were left out of `nearest`: every data center has them.
    pub everywhere: StableVector,
}

/// From client to server: what is asked, with what the client remembers.
#[derive(Clone, Debug)]
pub struct Request {
    /// What is asked.
    pub call: Call,
    /// What the client remembers.
    pub seen: HybridClient,
}

/// From server to client.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// Of GET.
    Get {
        /// The answering data center.
        here: DcId,
        /// What was read.
        read: Read,
        /// The version, named; if there is none, what is forgotten.
        nearest: Option<Dependency>,
        /// The version's dependencies and the version itself.
        dependencies: DependencyVector,
        /// What the data center has.
        stable: StableVector,
        /// How good the answer is.
        quality: Quality,
        /// The server's planted bug: the client's lines break by it too.
        planted: Planted,
    },
    /// Of PUT.
    Put {
        /// The version.
        version: VersionId,
        /// One of its keys.
        key: Key,
        /// What the data center has.
        stable: StableVector,
        /// As above.
        planted: Planted,
    },
    /// Of a change.
    Change(Changed<Reply>),
    /// Of a read-only transaction.
    ReadTransaction {
        /// The answering data center.
        here: DcId,
        /// In the order of the keys.
        reads: Vec<Read>,
        /// The versions, named, and what is forgotten.
        nearest: Vec<Dependency>,
        /// The versions' dependencies and the versions themselves.
        dependencies: DependencyVector,
        /// What the data center has.
        stable: StableVector,
        /// How good the answer is.
        quality: Quality,
    },
    /// Of a read at level eventual: nothing for the client to remember.
    Untracked {
        /// What was read.
        read: Read,
        /// How good the answer is.
        quality: Quality,
    },
    /// Of a transaction at level eventual.
    UntrackedTransaction {
        /// In the order of the keys.
        reads: Vec<Read>,
        /// How good the answer is.
        quality: Quality,
    },
}

/// From server to server in a data center.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// Read these keys for a transaction.
    Slice {
        /// The transaction, at its coordinator.
        transaction: TransactionId,
        /// Keys of the receiver.
        keys: Vec<Key>,
        /// The snapshot; `None` reads the newest version that is there (level eventual).
        snapshot: Option<TimestampVector>,
    },
    /// What they are.
    SliceReply {
        /// The transaction.
        transaction: TransactionId,
        /// In the order of the keys.
        reads: Vec<Read>,
        /// The versions' dependencies and the versions themselves.
        dependencies: DependencyVector,
    },
    /// Up the tree: what the sender's subtree has.
    Subtree(Share<TimestampVector>),
    /// Down the tree: what the data center has.
    Stable(Share<TimestampVector>),
    /// Say when these versions are visible at the receiver.
    Check(Vec<Dependency>),
    /// They are.
    Visible {
        /// Which.
        dependencies: Vec<Dependency>,
        /// What the sender knows that the data center has.
        stable: StableVector,
    },
}

wire_enum!(Message, "a message of protocol hybrid", {
    0 => Slice { transaction, keys, snapshot },
    1 => SliceReply { transaction, reads, dependencies },
    2 => Subtree(share),
    3 => Stable(share),
    4 => Check(dependencies),
    5 => Visible { dependencies, stable },
});

impl Wire for Dependency {
    fn encode(&self, out: &mut Vec<u8>) {
        self.key.encode(out);
        self.version.encode(out);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Dependency { key: Wire::decode(input)?, version: Wire::decode(input)? })
    }
}

impl Wire for Meta {
    fn encode(&self, out: &mut Vec<u8>) {
        self.dependencies.encode(out);
        self.nearest.encode(out);
        self.stable.encode(out);
        self.everywhere.encode(out);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        let (dependencies, nearest) = (Wire::decode(input)?, Wire::decode(input)?);
        Ok(Meta { dependencies, nearest, stable: Wire::decode(input)?, everywhere: Wire::decode(input)? })
    }
}
