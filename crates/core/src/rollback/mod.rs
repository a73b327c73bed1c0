//! Rollback: what a keyspace was at a time in the past is written back, as new versions, in all data centers.
//!
//! [`course::Course`] is the coordinator, whoever drives it: it says what to ask of which partition server, and is told the answers. While it runs, clients' writes of the keys in question are refused
//! ([`RollbackCall::Stop`]), until it says that they may go on or the time that it has named is over, on each server's own clock. Whatever it writes is stamped before that time, and clients' writes after
//! it: so a coordinator that dies harms nobody, and no write of a client that goes on loses against what is written back (`docs/decisions/0016-rollback.md`).
//!
//! Another coordinator can take over, under the same name and with a greater [`Turn`]: where it has stopped clients, its predecessor is not heard any more; and where clients have been told to go on, or the
//! time has passed, the rollback is over and nothing more is written back ([`RollbackAnswer::Over`], `docs/decisions/0037-orphaned-rollbacks.md`).

pub mod course;

use crate::ids::PartitionId;
use crate::version::{Key, VersionId};
use crate::wire::{Reader, Wire, WireError};
use crate::{wire_enum, wire_struct};
use rheostat_clock::Timestamp;

/// The most versions that a rollback may be because of.
pub const MOST_BECAUSE: usize = 64;

/// Who coordinates a rollback: the greater one has taken over from the lesser.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub struct Turn(pub u64);

impl Turn {
    /// The next one, of a coordinator that has this number; two that take over at once have different ones.
    pub fn next(self, coordinator: u16) -> Turn {
        Turn((self.times() + 1) << 16 | u64::from(coordinator))
    }

    /// How often it was taken over.
    pub fn times(self) -> u64 {
        self.0 >> 16
    }
}

/// A write that was wrong. Two partitions of one data center can stamp the same version.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Cause {
    /// The version that it wrote.
    pub version: VersionId,
    /// Where; `None`: in any partition.
    pub partition: Option<PartitionId>,
}

impl Cause {
    /// Whether it is the write that has written `version` in `partition`.
    pub fn is(&self, version: VersionId, partition: PartitionId) -> bool {
        self.version == version && self.partition.is_none_or(|of| of == partition)
    }
}

/// What is asked of a partition server.
#[derive(Clone, PartialEq, Debug)]
pub enum RollbackCall {
    /// Refuse clients' writes of keys that match `keys`, until `until` has passed on your clock; answered when no such write is under way any more. What was at `at` must be kept.
    Stop {
        /// The rollback's name.
        name: u64,
        /// Who asks: lesser ones are not heard any more.
        turn: Turn,
        /// A pattern ([`crate::glob`]).
        keys: Key,
        /// The time to go back to.
        at: Timestamp,
        /// Until when.
        until: Timestamp,
    },
    /// Which keys that match are not what they were at `at`, a page of them; answered when everything up to `upto` is here (at once if that is zero).
    Look {
        /// A pattern.
        keys: Key,
        /// The time to go back to.
        at: Timestamp,
        /// Up to when clients have written.
        upto: Timestamp,
        /// Only keys whose newest version is one of these, or may depend on one; what they were is the newest that is not and does not. None: all that was written since `at`.
        because: Vec<Cause>,
        /// Where to go on: a hash slot; one that is not this partition's begins with its first.
        slot: u16,
        /// And a place in it.
        from: u32,
    },
    /// Write these keys as they were at `at`, or before `because`, as one write, under the rollback's stop. Answered with [`Outcome::Written`].
    Restore {
        /// The rollback's name.
        name: u64,
        /// Who asks.
        turn: Turn,
        /// The keys.
        keys: Vec<Key>,
        /// The time to go back to.
        at: Timestamp,
        /// As [`RollbackCall::Look`].
        because: Vec<Cause>,
    },
    /// Answer when each key shows this version or a newer one to a client that has seen nothing, or nothing is left of it: a deletion that has been collected.
    Show {
        /// The versions.
        versions: Vec<(Key, VersionId)>,
    },
    /// The rollback is over: what is written from now on is stamped after `after`.
    Resume {
        /// The rollback's name.
        name: u64,
        /// Who asks.
        turn: Turn,
        /// The last of what was written back, and of what was there when clients were stopped.
        after: Timestamp,
    },
}

/// What a partition server answers, beside [`Outcome::Written`].
#[derive(Clone, PartialEq, Debug)]
pub enum RollbackAnswer {
    /// Clients' writes are refused.
    Stopped {
        /// What they wrote before is stamped up to here.
        clock: Timestamp,
        /// Whether this data center holds the partition.
        holds: bool,
    },
    /// Keys that differ.
    Looked {
        /// Which.
        found: Vec<Difference>,
        /// Keys of which nothing is written back, and their newest versions, beneath which something stands that is rolled back: whoever does not see the newest yet may see that.
        kept: Vec<(Key, VersionId)>,
        /// Where to go on.
        next: Option<(u16, u32)>,
    },
    /// All are visible.
    Shown,
    /// Clients may write.
    Resumed,
    /// Of Stop: clients were told to go on, or did when the time was over. What they have written since must stay.
    Over {
        /// What was written here is stamped up to here.
        clock: Timestamp,
    },
    /// Another coordinator has taken over: nothing was done, and this one is to do nothing more.
    Overtaken,
}

/// A key that is not what it was.
#[derive(Clone, PartialEq, Debug)]
pub struct Difference {
    /// The key.
    pub key: Key,
    /// What it was: the version; `None` if it was absent.
    pub then: Option<VersionId>,
    /// Bytes of the value that it had.
    pub bytes: u64,
    /// It has the same value and the same expiry again, so nothing need be written.
    pub same: bool,
    /// It holds, or held, a counter, whose past is not written back: rights that were used stay used.
    pub counter: bool,
    /// Versions that have been written since, newest first, and bytes of their values (`None`: a deletion). At most [`Difference::MOST_LOST`].
    pub lost: Vec<(VersionId, Option<u64>)>,
    /// How many more.
    pub more: u32,
}

impl Difference {
    /// Lost versions that are listed of one key.
    pub const MOST_LOST: usize = 20;

    /// Whether it is to be written.
    pub fn is_restored(&self) -> bool {
        !self.same && !self.counter
    }
}

wire_struct!(Difference { key, then, bytes, same, counter, lost, more });
wire_struct!(Cause { version, partition });
wire_enum!(RollbackCall, "a call of a rollback", {
    0 => Stop { name, turn, keys, at, until },
    1 => Look { keys, at, upto, because, slot, from },
    2 => Restore { name, turn, keys, at, because },
    3 => Show { versions },
    4 => Resume { name, turn, after },
});
wire_enum!(RollbackAnswer, "an answer of a rollback", {
    0 => Stopped { clock, holds },
    1 => Looked { found, kept, next },
    2 => Shown,
    3 => Resumed,
    4 => Over { clock },
    5 => Overtaken,
});

impl Wire for Turn {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        Wire::decode(input).map(Turn)
    }
}
