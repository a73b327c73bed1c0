//! What is sent, and what is stored with a version.

use super::client::AdaptiveClient;
use super::groups::Table;
use super::vector::{Track, TrackVector};
use crate::change::Changed;
use crate::gather::TransactionId;
use crate::tree::Share;
use rheostat_core::answer::{Quality, Read};
use rheostat_core::dial::Groups;
use rheostat_core::ids::PartitionId;
use rheostat_core::planted::Planted;
use rheostat_core::protocol::Call;
use rheostat_core::version::{Key, VersionId};
use rheostat_core::wire::{Reader, Wire, WireError};
use rheostat_core::wire_enum;

/// What is stored with each version.
#[derive(Clone, Default, Debug, PartialEq)]
pub struct Meta {
    /// Per tracking group, the highest timestamp in the version's causal past, its own among them. Paper: d.ds.
    pub dependencies: TrackVector,
}

/// From client to server: what is asked, with what the client remembers. Paper: ⟨GETREQ k, cg, DS_c⟩, ⟨PUTREQ k, v, DS_c⟩.
#[derive(Clone, Debug)]
pub struct Request {
    /// What is asked.
    pub call: Call,
    /// What the client remembers.
    pub seen: AdaptiveClient,
}

/// From server to client.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// ⟨GETREPLY d⟩.
    Get {
        /// What was read. Paper: d.v.
        read: Read,
        /// Paper: d.ds.
        dependencies: TrackVector,
        /// Where it was read.
        partition: PartitionId,
        /// How good the answer is.
        quality: Quality,
        /// The server's planted bug: the client's lines break by it too.
        planted: Planted,
    },
    /// ⟨PUTREPLY tg, ut⟩.
    Put {
        /// Paper: ut.
        version: VersionId,
        /// Paper: tg.
        track: Track,
        /// As above.
        planted: Planted,
    },
    /// Of a change.
    Change(Changed<Reply>),
    /// Of a read-only transaction.
    ReadTransaction {
        /// In the order of the keys.
        reads: Vec<Read>,
        /// The versions' dependencies together.
        dependencies: TrackVector,
        /// Where they were read.
        partitions: Vec<PartitionId>,
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
    /// It cannot be served here; says why.
    Refused(String),
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
        snapshot: Option<TrackVector>,
    },
    /// What they are.
    SliceReply {
        /// The transaction.
        transaction: TransactionId,
        /// In the order of the keys.
        reads: Vec<Read>,
        /// The versions' dependencies together.
        dependencies: TrackVector,
    },
    /// Up the tree: what the sender's subtree has.
    Subtree(Share<TrackVector>),
    /// Down the tree: what the whole data center has.
    Stable(Share<TrackVector>),
    /// The sender's version vector, for those who check with it. Paper: VV.
    Have(TrackVector),
    /// The sender wants the receiver's version vector for a while.
    Watch,
    /// The sender's clients would use a checking group of these partitions. To the registrar.
    Propose(Vec<PartitionId>),
    /// The groups that the sender's clients have used since it last said so, and the table that it has. To the registrar.
    Used {
        /// The groups.
        groups: Groups,
        /// [`Table::epoch`].
        epoch: u64,
    },
    /// The checking groups from now on. From the registrar.
    Groups(Table),
}

wire_enum!(Message, "a message of protocol adaptive", {
    0 => Slice { transaction, keys, snapshot },
    1 => SliceReply { transaction, reads, dependencies },
    2 => Subtree(share),
    3 => Stable(share),
    4 => Have(received),
    5 => Watch,
    6 => Propose(members),
    7 => Used { groups, epoch },
    8 => Groups(table),
});

impl Wire for Meta {
    fn encode(&self, out: &mut Vec<u8>) {
        self.dependencies.encode(out);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Meta { dependencies: Wire::decode(input)? })
    }
}
