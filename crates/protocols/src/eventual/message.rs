//! What is sent.

use crate::change::Changed;
use crate::gather::TransactionId;
use rheostat_clock::Timestamp;
use rheostat_core::answer::{Quality, Read};
use rheostat_core::protocol::Call;
use rheostat_core::version::{Key, VersionId};
use rheostat_core::wire_enum;

/// From client to server.
#[derive(Clone, Debug)]
pub struct Request(pub Call);

/// From server to client.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// Of GET.
    Get(Read, Quality),
    /// Of PUT.
    Put(VersionId),
    /// Of a change.
    Change(Changed<Reply>),
    /// Of a read of several keys.
    ReadTransaction(Vec<Read>, Quality),
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
    },
    /// What they are.
    SliceReply {
        /// The transaction.
        transaction: TransactionId,
        /// In the order of the keys.
        reads: Vec<Read>,
        /// Up to where everything from every other data center had arrived.
        oldest: Timestamp,
    },
}

wire_enum!(Message, "a message of protocol eventual", { 0 => Slice { transaction, keys }, 1 => SliceReply { transaction, reads, oldest } });
