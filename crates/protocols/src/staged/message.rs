//! What is sent.

use crate::gather::TransactionId;
use rheostat_clock::{DcId, Timestamp};
use rheostat_core::answer::{Quality, Read};
use rheostat_core::dial::Level;
use rheostat_core::failure::Failure;
use rheostat_core::ids::PartitionId;
use rheostat_core::operation::{Change, Guard, TestWrite};
use rheostat_core::protocol::Call;
use rheostat_core::version::{Item, Key, Update, VersionId};
use rheostat_core::{wire_enum, wire_struct};
use smallvec::SmallVec;

/// What a session has behind it: its place in the order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Past {
    /// Everything that it has read is made with the order up to here.
    pub read: Timestamp,
    /// Likewise, what it has written in order.
    pub written: Timestamp,
    /// As `read`, of what it has read in the partitions that are asked now.
    pub here: Timestamp,
}

/// Up to where one partition's order must be made for what a session has read there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seen {
    /// The partition.
    pub partition: PartitionId,
    /// Of how many.
    pub of: u16,
    /// Up to here.
    pub at: Timestamp,
}

/// How long an operation may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bound {
    /// Microseconds. Paper: tBound.
    pub within_us: u32,
    /// The least level that the client takes; `None`: the best that comes in time.
    pub least: Option<Level>,
}

/// What is asked.
#[derive(Clone, PartialEq, Debug)]
pub enum Asked {
    /// What the papers know, and changes.
    Call(Call),
    /// A write that is made only if keys are as expected.
    PutIf(SmallVec<[Item; 1]>, Vec<Guard>),
    /// A read of one key that decides what is written to another. Paper: readTestWrite.
    Test(TestWrite),
}

/// From client to server.
#[derive(Clone, PartialEq, Debug)]
pub struct Request {
    /// What is asked.
    pub asked: Asked,
    /// What the session has behind it.
    pub past: Past,
    /// How long it may take; `None` is for ever, or as long as the server lets any operation wait.
    pub bound: Option<Bound>,
}

/// From server to client. Times are places in the order.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// Of a read: what was read, up to where the order must be made for it, and how good it is.
    Get(Read, Seen, Quality),
    /// Of a write.
    Put(VersionId),
    /// Of a write that is kept where it was made, for later, in no order (path (1) of the paper).
    Kept(VersionId),
    /// Of a change: what was there before, and what was written.
    Changed(Read, Seen, Option<VersionId>),
    /// Of a test that has been decided: whether the tested key was as expected, what it was, and what was written.
    Tested(bool, Read, Seen, Option<VersionId>),
    /// Of a read of several keys, of one partition or several.
    Many(Vec<Read>, Vec<Seen>, Quality),
    /// Of a guarded write that was not made: how the guards' keys were.
    Unmet(Vec<Read>),
    /// It failed.
    Failed(Failure),
}

/// What a write does, when its turn comes.
#[derive(Clone, PartialEq, Debug)]
pub enum Command {
    /// Writes items.
    Put(SmallVec<[Item; 1]>),
    /// Reads a key and changes it, as it is then.
    Change(Key, Change),
    /// Writes items if keys are as expected then.
    PutIf(SmallVec<[Item; 1]>, Vec<Guard>),
    /// Reads a key, and writes another one by what it is then.
    Test(TestWrite),
}

/// A write that waits for its turn. Paper: an entry of the b-list.
#[derive(Clone, PartialEq, Debug)]
pub struct Held {
    /// Its name, and its place among the ordered writes: both by time, then by data center.
    pub id: VersionId,
    /// Whether it keeps that place. Else it was accepted without a quorum, and is made when it comes; the versions it writes have this name all the same. Paper: ordered.
    pub ordered: bool,
    /// What it does.
    pub command: Command,
}

/// The name of an attempt to decide an instance; the greater one goes on. Paper: that of Paxos.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Ballot {
    /// Counts attempts.
    pub round: u64,
    /// Whose it is.
    pub by: DcId,
}

/// What one instance of consensus decides: everything in the order up to a time that was not in the batches before. Paper: the aligned writes.
#[derive(Clone, PartialEq, Debug)]
pub struct Batch {
    /// Ordered writes up to here are in this batch or those before it, or never will be in any.
    pub cutoff: Timestamp,
    /// The writes, in order.
    pub writes: Vec<Held>,
    /// Who coordinates the next instance, if it can. Paper: the leader, who changes on every commit.
    pub next: DcId,
}

/// From server to server.
#[derive(Clone, PartialEq, Debug)]
pub enum Message {
    /// Keep these writes (step 4).
    Hold(Vec<Held>),
    /// Writes of these names, of the receiver's, are kept on this disk (step 7).
    Has(Vec<VersionId>),
    /// Coordinate up to this time (step 9).
    Want(Timestamp),
    /// What do you hold up to `cutoff`, and what have you accepted for `instance` (step 9)? Paper: prepare.
    Collect {
        /// The instance.
        instance: u64,
        /// The attempt.
        ballot: Ballot,
        /// Ordered writes up to here are made.
        after: Timestamp,
        /// No ordered write up to here is taken in any more.
        cutoff: Timestamp,
    },
    /// The answer (step 11). Paper: promise.
    Collected {
        /// The attempt.
        ballot: Ballot,
        /// What was accepted for the instance.
        accepted: Option<(Ballot, Batch)>,
        /// What is held here up to `upto`.
        held: Vec<Held>,
        /// The asked cutoff, or less where that would be too much.
        upto: Timestamp,
        /// How many writes wait that were received here.
        waiting: u32,
    },
    /// The batch of an instance, aligned (step 13). Paper: accept.
    Accept {
        /// The instance.
        instance: u64,
        /// The attempt.
        ballot: Ballot,
        /// The batch.
        batch: Batch,
    },
    /// It is on this disk (step 16).
    Accepted {
        /// The attempt.
        ballot: Ballot,
    },
    /// Another attempt has begun.
    Refused {
        /// The attempt that was refused.
        ballot: Ballot,
        /// The one that goes on.
        promised: Ballot,
    },
    /// What was accepted with this ballot is decided.
    Chosen {
        /// The instance.
        instance: u64,
        /// The attempt.
        ballot: Ballot,
    },
    /// Which batches have been decided from this instance on? Paper: a failed replica's catch-up from the p-file.
    Fetch(u64),
    /// Decided batches, from this instance on.
    Batches(u64, Vec<Batch>),
    /// Up to where may anybody have been told that a write is in the order?
    Ask(u64),
    /// Up to here.
    Told(u64, Timestamp),
    /// Now and then.
    Status {
        /// The instances up to this one are made here, on disk.
        executed: u64,
        /// Where the order stands with that.
        cutoff: Timestamp,
        /// Nothing that is in no order and is older than this will come from here.
        floor: Timestamp,
        /// How many writes wait that were received here.
        waiting: u32,
        /// How long it takes to reach a majority from here and back, in microseconds.
        round_us: u64,
    },
    /// To a server of another partition of this data center: read these keys.
    Slice {
        /// The transaction, at its coordinator.
        transaction: TransactionId,
        /// Keys of the receiver.
        keys: Vec<Key>,
        /// The level.
        level: Level,
        /// What the session has behind it.
        past: Past,
        /// How long it may take.
        bound: Option<Bound>,
    },
    /// What they are.
    SliceReply {
        /// The transaction.
        transaction: TransactionId,
        /// In the order of the keys.
        reads: Vec<Read>,
        /// Up to where the order must be made for that.
        since: Timestamp,
        /// At which level.
        level: Level,
        /// Where the order stands.
        cutoff: Timestamp,
    },
    /// To the receiver's pages: what the state has from this place on.
    Page {
        /// The first slot.
        slot: u16,
        /// Where to go on in it.
        from: u32,
    },
    /// Newest versions.
    Pages {
        /// As in the request.
        slot: u16,
        /// As in the request.
        from: u32,
        /// Where to go on; `None` after the last slot.
        next: Option<(u16, u32)>,
        /// The versions, one item each.
        updates: Vec<Update<Timestamp>>,
        /// The instances up to this one are in the state that they are of.
        executed: u64,
        /// Where the order stands there.
        cutoff: Timestamp,
    },
}

wire_struct!(Past { read, written, here });
wire_struct!(Bound { within_us, least });
wire_struct!(Held { id, ordered, command });
wire_struct!(Ballot { round, by });
wire_struct!(Batch { cutoff, writes, next });
wire_enum!(Command, "a command", { 0 => Put(items), 1 => Change(key, change), 2 => PutIf(items, guards), 3 => Test(write) });
wire_enum!(Message, "a message of protocol staged", {
    0 => Hold(writes),
    1 => Has(names),
    2 => Want(upto),
    3 => Collect { instance, ballot, after, cutoff },
    4 => Collected { ballot, accepted, held, upto, waiting },
    5 => Accept { instance, ballot, batch },
    6 => Accepted { ballot },
    7 => Refused { ballot, promised },
    8 => Chosen { instance, ballot },
    9 => Fetch(from),
    10 => Batches(first, batches),
    11 => Ask(round),
    12 => Told(round, upto),
    13 => Status { executed, cutoff, floor, waiting, round_us },
    14 => Slice { transaction, keys, level, past, bound },
    15 => SliceReply { transaction, reads, since, level, cutoff },
    16 => Page { slot, from },
    17 => Pages { slot, from, next, updates, executed, cutoff },
});
