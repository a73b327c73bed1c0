//! What is sent.

use super::context::{Context, Coverage};
use crate::change::Changed;
use crate::gather::TransactionId;
use rheostat_clock::Timestamp;
use rheostat_core::answer::{Quality, Read};
use rheostat_core::dial::Quorum;
use rheostat_core::failure::Failure;
use rheostat_core::protocol::Call;
use rheostat_core::version::{Item, Key, Version, VersionId};
use rheostat_core::wire_enum;

/// From client to server.
#[derive(Clone, Debug)]
pub struct Request {
    /// What is asked.
    pub asked: Asked,
    /// By so many replicas.
    pub quorum: Quorum,
}

/// What a client asks.
#[derive(Clone, Debug)]
pub enum Asked {
    /// What the papers' clients ask.
    Call(Call),
    /// All values of a key.
    Siblings(Key),
    /// To write an item in the place of what its client has seen of the key.
    Replace(Item, Context),
}

/// From server to client.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// Of GET.
    Get(Read, Quality),
    /// Of PUT.
    Put(VersionId),
    /// Of Siblings.
    Siblings {
        /// The key.
        key: Key,
        /// The values that stand.
        reads: Vec<Read>,
        /// What has been seen by that.
        seen: Context,
        /// How good the answer is.
        quality: Quality,
    },
    /// Of Replace.
    Replace {
        /// What was written.
        version: VersionId,
        /// The key.
        key: Key,
        /// What has been seen, with that.
        seen: Context,
    },
    /// Of a change.
    Change(Changed<Reply>),
    /// Of a read of several keys.
    ReadTransaction(Vec<Read>, Quality),
    /// It cannot be done.
    Failed(Failure),
}

/// From server to server.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// Within the data center: read these keys for a transaction.
    Slice {
        /// The transaction, at its coordinator.
        transaction: TransactionId,
        /// Keys of the receiver.
        keys: Vec<Key>,
        /// By so many replicas.
        quorum: Quorum,
    },
    /// What they are.
    SliceReply {
        /// The transaction.
        transaction: TransactionId,
        /// In the order of the keys.
        reads: Vec<Read>,
        /// Up to where everything from every data center was known.
        oldest: Timestamp,
    },
    /// To the partition's replica in another data center: what stands of these keys?
    Read {
        /// The round, at its coordinator.
        round: u64,
        /// The keys.
        keys: Vec<Key>,
    },
    /// What stands there.
    Versions {
        /// The round.
        round: u64,
        /// In the order of the keys.
        versions: Vec<Vec<Version<Context>>>,
        /// What has been there.
        coverage: Coverage,
    },
    /// To the partition's replica in another data center: say when you have what this one has written up to there.
    Await {
        /// The round.
        round: u64,
        /// Up to where.
        upto: Timestamp,
    },
    /// It has.
    Has {
        /// The round.
        round: u64,
    },
}

wire_enum!(Message, "a message of protocol quorum", {
    0 => Slice { transaction, keys, quorum },
    1 => SliceReply { transaction, reads, oldest },
    2 => Read { round, keys },
    3 => Versions { round, versions, coverage },
    4 => Await { round, upto },
    5 => Has { round },
});
