//! What is sent, and what is stored.

use super::client::GentleRainClient;
use crate::change::Changed;
use crate::gather::TransactionId;
use crate::tree::Share;
use rheostat_clock::{DcId, Timestamp};
use rheostat_core::answer::{Quality, Read};
use rheostat_core::protocol::Call;
use rheostat_core::version::{Key, Version, VersionId};
use rheostat_core::wire::{Reader, Wire, WireError};
use rheostat_core::wire_enum;

/// What is stored with a version beside its name: nothing, under the corrected rule.
#[derive(Clone, Default, Debug, PartialEq)]
pub struct Meta {
    /// Under the published rule, the physical time at which it was written, if the writer's clock had gone backward (D1). Paper: ut.
    pub physical: Option<Timestamp>,
}

impl Meta {
    /// When `version` was written. Paper: ut.
    pub fn written(version: &Version<Meta>) -> Timestamp {
        version.meta.physical.unwrap_or(version.id.written)
    }
}

impl Wire for Meta {
    fn encode(&self, out: &mut Vec<u8>) {
        self.physical.encode(out);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Meta { physical: Wire::decode(input)? })
    }
}

/// From client to server: what is asked, with what the client remembers. Paper: ⟨GETREQ k, GST_c⟩, ⟨PUTREQ k, v, DT_c⟩.
#[derive(Clone, Debug)]
pub struct Request {
    /// What is asked.
    pub call: Call,
    /// What the client remembers.
    pub seen: GentleRainClient,
}

/// From server to client.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// ⟨GETREPLY v, ut, gst⟩, and the same of a transaction.
    Read {
        /// The answering data center.
        here: DcId,
        /// In the order of the keys. Paper: v.
        reads: Vec<Read>,
        /// When the newest of them was written. Paper: ut.
        newest: Timestamp,
        /// Paper: gst.
        stable: Timestamp,
        /// How good the answer is.
        quality: Quality,
        /// Whether one key was asked for by GET.
        single: bool,
    },
    /// ⟨PUTREPLY ut⟩.
    Write {
        /// The answering data center.
        here: DcId,
        /// The version's name, and when it was written (paper: ut).
        version: (VersionId, Timestamp),
        /// The stable time that the client may rely on.
        stable: Timestamp,
    },
    /// Of a change (D5).
    Change(Changed<Reply>),
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
        /// The snapshot time; `None` reads the newest version that is there (level eventual).
        snapshot: Option<Timestamp>,
    },
    /// What they are.
    SliceReply {
        /// The transaction.
        transaction: TransactionId,
        /// In the order of the keys.
        reads: Vec<Read>,
        /// When the newest of them was written.
        newest: Timestamp,
    },
    /// Up the tree: the least entry of the version vectors of the sender's subtree. Paper: LST.
    Subtree(Share<Timestamp>),
    /// Down the tree. Paper: GST.
    Stable(Share<Timestamp>),
}

wire_enum!(Message, "a message of protocol gentlerain", {
    0 => Slice { transaction, keys, snapshot },
    1 => SliceReply { transaction, reads, newest },
    2 => Subtree(share),
    3 => Stable(share),
});
