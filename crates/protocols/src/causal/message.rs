//! What is sent.

use super::client::CausalClient;
use super::orion::Report;
use crate::change::Changed;
use crate::gather::TransactionId;
use crate::tree::Share;
use rheostat_clock::{DcId, DependencyVector, StableVector, Timestamp, TimestampVector};
use rheostat_core::answer::{Quality, Read};
use rheostat_core::protocol::Call;
use rheostat_core::version::{Key, VersionId};
use rheostat_core::wire_enum;

/// From client to server: what is asked, with what the client remembers. Paper: ⟨GETREQ k, DSV_c⟩, ⟨PUTREQ k, v, DS_c⟩, ⟨ROTX kset, DSV_c, DS_c⟩.
#[derive(Clone, Debug)]
pub struct Request {
    /// What is asked.
    pub call: Call,
    /// What the client remembers.
    pub seen: CausalClient,
}

/// From server to client.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// ⟨GETREPLY v, ds, dsv⟩.
    Get {
        /// The answering data center.
        here: DcId,
        /// What was read. Paper: v.
        read: Read,
        /// The version's dependencies and the version itself. Paper: ds.
        dependencies: DependencyVector,
        /// Paper: dsv.
        stable: StableVector,
        /// If what was read is not yet stable: a time of the partition that it was read from, above all snapshots read there before (D1).
        arrived: Timestamp,
        /// How good the answer is.
        quality: Quality,
        /// What the server says of itself; the client's lines break by its planted bug too.
        report: Report,
    },
    /// Of a read at level eventual: nothing for the client to remember.
    Untracked {
        /// What was read.
        read: Read,
        /// How good the answer is.
        quality: Quality,
    },
    /// ⟨PUTREPLY ut, sr⟩.
    Put {
        /// Paper: ut, sr.
        version: VersionId,
        /// The stable vector that the client may rely on.
        stable: StableVector,
        /// As above.
        report: Report,
    },
    /// Of a change (D10).
    Change(Changed<Reply>),
    /// ⟨ROTXREPLY vset, dsv, ds⟩; of a predicted slice, ⟨ROTReply V, DSV, DS⟩ (003, Alg. 2).
    ReadTransaction {
        /// The answering data center.
        here: DcId,
        /// In the order of the keys. Paper: vset. Empty if the partition refuses the predicted snapshot.
        reads: Vec<Read>,
        /// Paper: ds.
        dependencies: DependencyVector,
        /// Paper: dsv.
        stable: StableVector,
        /// As of GET, the highest over the partitions.
        arrived: Timestamp,
        /// How good the answer is.
        quality: Quality,
        /// As above.
        report: Report,
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
    /// ⟨SLICEREQ k, sv⟩, for all keys of one partition.
    Slice {
        /// The transaction, at its coordinator.
        transaction: TransactionId,
        /// Keys of the receiver.
        keys: Vec<Key>,
        /// Paper: sv. `None` reads the newest version that is there (level eventual).
        snapshot: Option<TimestampVector>,
    },
    /// ⟨SLICEREPLY v, ds⟩.
    SliceReply {
        /// The transaction.
        transaction: TransactionId,
        /// In the order of the keys.
        reads: Vec<Read>,
        /// The versions' dependencies and the versions themselves.
        dependencies: DependencyVector,
        /// As of GET.
        arrived: Timestamp,
    },
    /// Up the tree (Alg. 5.3 line 2): what the sender's subtree has. Paper: VV, the entry-wise minimum.
    Subtree(Share<TimestampVector>),
    /// Down the tree: what the data center has. Paper: DSV.
    Stable(Share<TimestampVector>),
}

wire_enum!(Message, "a message of protocol causal", {
    0 => Slice { transaction, keys, snapshot },
    1 => SliceReply { transaction, reads, dependencies, arrived },
    2 => Subtree(share),
    3 => Stable(share),
});
