//! What is sent, and what is stored.

use super::client::CopsClient;
use crate::change::Changed;
use crate::gather::TransactionId;
use crate::tree::Share;
use rheostat_clock::{DcId, StableVector, Timestamp, TimestampVector};
use rheostat_core::answer::{Quality, Read};
use rheostat_core::planted::Planted;
use rheostat_core::protocol::Call;
use rheostat_core::version::{Key, VersionId};
use rheostat_core::wire::{Reader, Wire, WireError};
use rheostat_core::wire_enum;
use std::sync::Arc;

/// One version that another depends on. Paper: ⟨key, version⟩.
#[derive(Clone, Debug, PartialEq)]
pub struct Dependency {
    /// The key.
    pub key: Key,
    /// The version.
    pub id: VersionId,
    /// Whether it is in the past of no other dependency in the list: then it is checked, and the others with it.
    pub nearest: bool,
}

impl Wire for Dependency {
    fn encode(&self, out: &mut Vec<u8>) {
        self.key.encode(out);
        self.id.encode(out);
        self.nearest.encode(out);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Dependency { key: Wire::decode(input)?, id: Wire::decode(input)?, nearest: Wire::decode(input)? })
    }
}

/// What a version depends on: everything in its past that is not listed is covered by the floor.
#[derive(Clone, Debug, PartialEq)]
pub struct Meta {
    /// The dependencies that are not old. Paper: deps.
    pub dependencies: Arc<[Dependency]>,
    /// Per data center, the newest dependency that was collected; all of its past was collected with it (D1).
    pub floor: TimestampVector,
    /// The other keys that were written with it.
    pub together: Arc<[Key]>,
}

impl Default for Meta {
    fn default() -> Meta {
        Meta { dependencies: Arc::new([]), floor: TimestampVector::new(), together: Arc::new([]) }
    }
}

impl Wire for Meta {
    fn encode(&self, out: &mut Vec<u8>) {
        self.dependencies.to_vec().encode(out);
        self.floor.encode(out);
        self.together.to_vec().encode(out);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        let (dependencies, floor) = (<Vec<Dependency>>::decode(input)?, Wire::decode(input)?);
        Ok(Meta { dependencies: dependencies.into(), floor, together: <Vec<Key>>::decode(input)?.into() })
    }
}

/// A version that a client comes to know by reading or writing it.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    /// The key.
    pub key: Key,
    /// The version.
    pub id: VersionId,
    /// What it depends on.
    pub meta: Meta,
}

impl Wire for Seen {
    fn encode(&self, out: &mut Vec<u8>) {
        self.key.encode(out);
        self.id.encode(out);
        self.meta.encode(out);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Seen { key: Wire::decode(input)?, id: Wire::decode(input)?, meta: Wire::decode(input)? })
    }
}

/// From client to server: what is asked, with what the client remembers. Paper: get_by_version, put_after.
#[derive(Clone, Debug)]
pub struct Request {
    /// What is asked.
    pub call: Call,
    /// What the client remembers.
    pub seen: CopsClient,
}

/// From server to client.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// The answering data center; `None` for a read at level eventual, of which nothing is remembered.
    pub here: Option<DcId>,
    /// What came of it.
    pub answer: Answer,
    /// The versions read.
    pub seen: Vec<Seen>,
    /// The versions written, one per key.
    pub written: Vec<Key>,
    /// The stable vector of the server.
    pub stable: StableVector,
    /// Dependencies up to here are old.
    pub collect: Timestamp,
    /// The server's planted bug: the client's lines break by it too.
    pub planted: Planted,
}

/// What came of a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// Of GET.
    One(Read, Quality),
    /// Of a transaction.
    Many(Vec<Read>, Quality),
    /// Of PUT.
    Written(VersionId),
    /// Of a change.
    Changed(Changed<Reply>),
}

/// From server to server in a data center.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// Are these versions of the receiver visible? Paper: dep_check.
    Check(Vec<VersionId>),
    /// These are.
    Checked(Vec<VersionId>),
    /// The first round of a transaction.
    Slice {
        /// The transaction, at its coordinator.
        transaction: TransactionId,
        /// Keys of the receiver.
        keys: Vec<Key>,
        /// What a version may have as floor to be read; `None` reads the newest version that is there (level eventual).
        snapshot: Option<TimestampVector>,
    },
    /// The second round: exactly these versions. Paper: get_by_version with a version.
    Exact {
        /// The transaction, at its coordinator.
        transaction: TransactionId,
        /// Keys of the receiver, with versions.
        wanted: Vec<(Key, VersionId)>,
    },
    /// Of either round.
    SliceReply {
        /// The transaction.
        transaction: TransactionId,
        /// In the order of the keys.
        reads: Vec<Read>,
        /// The versions read.
        seen: Vec<Seen>,
    },
    /// Up the tree: what the sender's subtree has.
    Subtree(Share<TimestampVector>),
    /// Down the tree: what the data center has.
    Stable(Share<TimestampVector>),
}

wire_enum!(Message, "a message of protocol cops", {
    0 => Check(versions),
    1 => Checked(versions),
    2 => Slice { transaction, keys, snapshot },
    3 => Exact { transaction, wanted },
    4 => SliceReply { transaction, reads, seen },
    5 => Subtree(share),
    6 => Stable(share),
});
