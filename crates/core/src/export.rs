//! What a backup asks of a partition server: that a moment's state is kept for a while, and that state, page by page (`docs/decisions/0024-backup.md`).

use crate::answer::Read;
use crate::version::Key;
use crate::{wire_enum, wire_struct};
use rheostat_clock::Timestamp;

/// What is asked.
#[derive(Clone, PartialEq, Debug)]
pub enum ExportCall {
    /// Keep what is the newest version of each key from now on, though newer ones replace it, for so long. Asked again under the same name before that is over, it is kept for
    /// longer.
    Hold {
        /// The backup's name, which no other has.
        name: u64,
        /// In milliseconds; at most [`LONGEST_HOLD_MS`].
        for_ms: u64,
    },
    /// A page of the keys as they were at a time, answered when everything up to there is here.
    Page {
        /// The time; `None`: as they are now, whatever has arrived.
        at: Option<Timestamp>,
        /// Only what has been written since this time, deletions among it; zero: everything that there is.
        since: Timestamp,
        /// Where to go on: a hash slot; one that is not this partition's begins with its first.
        slot: u16,
        /// And a place in it.
        from: u32,
    },
    /// What was held under this name need not be.
    Release {
        /// The backup's name.
        name: u64,
    },
}

/// For how long something is held at most, if nobody asks again.
pub const LONGEST_HOLD_MS: u64 = 600_000;

/// What kind of state pages make.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A cut: whatever a version in it depends on is in it.
    Causal,
    /// A cut by clocks alone.
    Clocks,
    /// Each key as its server had applied it when the page was made.
    Applied,
}

impl Kind {
    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Causal => "causal",
            Kind::Clocks => "clocks",
            Kind::Applied => "applied",
        }
    }
}

/// What is answered.
#[derive(Clone, PartialEq, Debug)]
pub enum ExportAnswer {
    /// It is held.
    Held {
        /// The state as of this time, or any later one, can be asked for.
        from: Timestamp,
        /// What kind of state that is. If [`Kind::Applied`], nothing is held.
        kind: Kind,
        /// Whether this data center holds the partition.
        holds: bool,
    },
    /// Keys.
    Page {
        /// Which, in no order.
        keys: Vec<Exported>,
        /// Where to go on; `None`: that was all.
        next: Option<(u16, u32)>,
    },
    /// It is not held any more.
    Released,
}

/// A key's state.
#[derive(Clone, PartialEq, Debug)]
pub struct Exported {
    /// The key.
    pub key: Key,
    /// Its value; several where values stand side by side, the newest first. Without one the key was deleted, which is told only of what was written since a time.
    pub reads: Vec<Read>,
    /// The counter that it holds, in the place of the value.
    pub counter: Option<ExportedCounter>,
}

/// A counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExportedCounter {
    /// Its value.
    pub value: i64,
    /// It is never below this.
    pub lower: Option<i64>,
    /// It is never above this.
    pub upper: Option<i64>,
}

wire_enum!(ExportCall, "a call of a backup", { 0 => Hold { name, for_ms }, 1 => Page { at, since, slot, from }, 2 => Release { name } });
wire_enum!(Kind, "a kind of cut", { 0 => Causal, 1 => Clocks, 2 => Applied });
wire_enum!(ExportAnswer, "an answer to a backup", { 0 => Held { from, kind, holds }, 1 => Page { keys, next }, 2 => Released });
wire_struct!(Exported { key, reads, counter });
wire_struct!(ExportedCounter { value, lower, upper });
