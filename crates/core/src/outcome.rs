//! What comes back of an operation.

use crate::answer::{Explained, Quality, Read};
use crate::counter::CounterView;
use crate::export::ExportAnswer;
use crate::failure::Failure;
use crate::feed::FeedAnswer;
use crate::rollback::RollbackAnswer;
use crate::version::{Key, VersionId};
use crate::wire_enum;
use rheostat_clock::Timestamp;
use smallvec::SmallVec;

/// What came of an operation.
#[derive(Clone, PartialEq, Debug)]
pub enum Outcome {
    /// Of Get.
    Read(Read, Quality),
    /// Of Put and PutIf.
    Written(VersionId),
    /// Of Put within a bound, where no majority of servers could be reached: the write is on disk where it was made, and is made when they are back, under this name but in no order with
    /// others; no session is behind it.
    Kept(VersionId),
    /// Of PutIf and Transact, when nothing was written: how the guards' keys were, in their order; of Transact without their values.
    Unmet(Vec<Read>),
    /// Of Change: what was there before, and the new version if one was written.
    Changed {
        /// The key as it was.
        before: Read,
        /// The version that was written.
        version: Option<VersionId>,
    },
    /// Of TestWrite.
    Tested {
        /// Whether the tested key had the expected value.
        equal: bool,
        /// The tested key as it was.
        before: Read,
        /// The version that was written, if one was.
        version: Option<VersionId>,
    },
    /// Of ReadTransaction, in the order of the keys.
    Many(Vec<Read>, Quality),
    /// Of Scan: the visible keys, and where to go on.
    Page(Vec<Key>, Option<u32>),
    /// Of Count and Restore.
    Count(u64),
    /// Of AwaitReplication: per data center (by index), up to where it has this partition's writes on disk; [`Timestamp::MAX`] of one that holds nothing of the partition.
    Replicated(Vec<Timestamp>),
    /// Of Explain, greatest version first.
    Explained(Vec<Explained>),
    /// Of Versions, greatest first.
    Versions(Vec<(VersionId, Vec<u8>)>),
    /// Of an update of counters: their values after it, in the order of the changes, and the version that was written.
    Counted(SmallVec<[i64; 1]>, VersionId),
    /// Of Create, Look, Move and Reclaim.
    Counter(Box<CounterView>),
    /// Of Transact, in the order of the commands; the version that was written, if one was, and how good what was read is.
    Transacted(Vec<Acted>, Option<VersionId>, Quality),
    /// Of Siblings: the values that stand side by side, newest first; a deletion that stands beside values is not among them. None: the key is absent.
    Siblings(Vec<Read>, Quality),
    /// Of Rollback.
    Rollback(RollbackAnswer),
    /// Of Export.
    Export(ExportAnswer),
    /// Of Feed.
    Feed(FeedAnswer),
    /// It failed.
    Failed(Failure),
}

impl Outcome {
    /// How good what was read is, where something was.
    pub fn quality(&self) -> Option<Quality> {
        match self {
            Outcome::Read(_, quality) | Outcome::Many(_, quality) | Outcome::Siblings(_, quality) | Outcome::Transacted(_, _, quality) => {
                Some(*quality)
            }
            Outcome::Counter(view) => Some(view.quality),
            _ => None,
        }
    }

    /// Bytes of the values in it.
    pub fn value_bytes(&self) -> usize {
        match self {
            Outcome::Read(read, _) | Outcome::Changed { before: read, .. } | Outcome::Tested { before: read, .. } => value_bytes(read),
            Outcome::Many(reads, _) | Outcome::Siblings(reads, _) | Outcome::Unmet(reads) => reads.iter().map(value_bytes).sum(),
            Outcome::Transacted(acted, ..) => acted.iter().filter_map(Acted::read).map(value_bytes).sum(),
            _ => 0,
        }
    }
}

fn value_bytes(read: &Read) -> usize {
    read.value.as_ref().map_or(0, |value| value.len())
}

/// What a read takes in an outcome's byte form beside its value, at most, whatever it is a part of.
pub const READ_BYTES: usize = 32;

/// What came of one command of a transaction.
#[derive(Clone, PartialEq, Debug)]
pub enum Acted {
    /// Of Get: the key as the commands before it have left it.
    Read(Read),
    /// Of Put.
    Written,
    /// Of Change.
    Changed {
        /// The key as the commands before it have left it.
        before: Read,
        /// Whether it wrote.
        wrote: bool,
    },
    /// Of Add: the counter's value after it.
    Counted(i64),
    /// Of Test.
    Tested {
        /// Whether the tested key had the expected value.
        equal: bool,
        /// The tested key as the commands before it have left it.
        before: Read,
        /// Whether it wrote.
        wrote: bool,
    },
}

impl Acted {
    /// The key as the commands before it have left it, if it tells that.
    pub fn read(&self) -> Option<&Read> {
        match self {
            Acted::Read(read) | Acted::Changed { before: read, .. } | Acted::Tested { before: read, .. } => Some(read),
            Acted::Written | Acted::Counted(_) => None,
        }
    }

    /// Bytes of its byte form, at most.
    pub fn bytes(&self) -> usize {
        READ_BYTES + self.read().map_or(0, value_bytes)
    }
}

wire_enum!(Acted, "an outcome of a command", {
    0 => Read(read),
    1 => Written,
    2 => Changed { before, wrote },
    3 => Counted(value),
    4 => Tested { equal, before, wrote },
});
wire_enum!(Outcome, "an outcome", {
    0 => Read(read, quality),
    1 => Written(version),
    2 => Changed { before, version },
    3 => Many(reads, quality),
    4 => Page(keys, next),
    5 => Count(count),
    6 => Replicated(progress),
    7 => Explained(versions),
    8 => Failed(failure),
    9 => Counted(values, version),
    10 => Counter(view),
    11 => Unmet(reads),
    12 => Transacted(acted, version, quality),
    13 => Siblings(reads, quality),
    14 => Versions(versions),
    15 => Kept(version),
    16 => Rollback(answer),
    17 => Export(answer),
    18 => Tested { equal, before, version },
    19 => Feed(answer),
});
