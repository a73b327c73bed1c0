//! What a version store must do. The drivers and the suite that holds them to this are in `rheostat-storage`.
//!
//! A store belongs to one partition server of one keyspace and is used by one thread. It keeps two things that must agree
//! after any crash: the version chains of the keys, and the log of updates that links to other data centers read.

use crate::version::{Key, Update, Version, VersionId};
use crate::{wire_enum, wire_struct};
use rheostat_clock::{DcId, Timestamp};

/// A position in a store's log: everything appended so far is below [`Store::end`]. Grows by at least one per record.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Position(pub u64);

/// How durable a keyspace wants its writes before it speaks of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Durability {
    /// A reply leaves when everything it speaks of is flushed to disk (group commit).
    Always,
    /// A reply leaves at once; the log is written through to the operating system before it, and flushed to disk within the
    /// interval. A killed process loses nothing; a machine that loses power loses at most the interval. An update
    /// leaves for another data center only when it is flushed, so that no peer holds what its origin lost.
    #[default]
    Interval,
    /// Nothing reaches a disk. A restarted server is empty until its peers have sent everything again.
    Memory,
}

/// What a store found when it was opened.
#[derive(Clone, Debug, Default)]
pub struct Recovered {
    /// The last protocol state that was appended with [`Store::append_state`].
    pub state: Option<Vec<u8>>,
    /// Per data center (by index), the highest timestamp of an update of that origin that is in the store.
    pub newest: Vec<Timestamp>,
    /// What was appended with [`Store::append_entry`] and not compacted, in order of the index.
    pub entries: Vec<(u64, Vec<u8>)>,
    /// Number of updates replayed from the log.
    pub replayed: u64,
    /// What was repaired, for the log: for example a torn tail that was cut off.
    pub notes: Vec<String>,
}

/// Raises the entry of `id`'s origin in a list by data center.
pub fn raise_newest(newest: &mut Vec<Timestamp>, id: VersionId) {
    let index = id.origin.index();
    if newest.len() <= index {
        newest.resize(index + 1, Timestamp::ZERO);
    }
    newest[index] = newest[index].max(id.written);
}

/// A flush to disk, to be run on any thread; it blocks.
pub struct FlushJob(pub Box<dyn FnOnce() -> std::io::Result<Position> + Send>);

impl FlushJob {
    /// Flushes; returns the position up to which everything is on disk. Errors: the disk's; nothing more may be
    /// appended to a store whose flush failed, since what the disk holds is then unknown.
    pub fn run(self) -> std::io::Result<Position> {
        (self.0)()
    }
}

/// A read of what is on disk only, to be run on any thread; it blocks.
pub struct ReadJob {
    /// Reads.
    pub read: Box<dyn FnOnce() -> ReadDone + Send>,
    /// What it reads is over a network: it may take long, and no other store's reads should wait for it.
    pub is_far: bool,
}

impl ReadJob {
    /// Reads.
    pub fn run(self) -> ReadDone {
        (self.read)()
    }
}

/// What a [`ReadJob`] has read, for the store that made it.
#[derive(Debug)]
pub struct ReadDone {
    /// The job's number.
    pub job: u64,
    /// Keys and their chains, in the store's own form; `None` for a key that is not there. Errors: the disk's; `TimedOut` if it can be asked again.
    pub found: std::io::Result<Vec<(Key, Option<Vec<u8>>)>>,
}

/// One step of a walk over keys in [`Store::scan`].
#[derive(Clone, Debug, Default)]
pub struct ScanPage {
    /// The keys found, each at most once.
    pub keys: Vec<Key>,
    /// Where to go on within the slot; `None` when the slot is done.
    pub next: Option<u32>,
}

/// Which versions of a chain go.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Trim {
    /// This one and everything below it.
    Upto(VersionId),
    /// These, in order: others stand beside them.
    These(Vec<VersionId>),
}

wire_enum!(Trim, "what goes of a chain", { 0 => Upto(id), 1 => These(ids) });

/// Counts and sizes, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// Keys with at least one version, tombstones included. After a start, a key that was replayed may count twice until its chain is asked for.
    pub keys: u64,
    /// Versions in memory.
    pub versions: u64,
    /// Bytes of keys, values and metadata in memory, estimated.
    pub memory_bytes: u64,
    /// Bytes of log on disk.
    pub log_bytes: u64,
    /// Keys whose chain is on disk only.
    pub cold_keys: u64,
    /// Keys in memory whose newest version has an expiry, be it past: an expired version is there until it is collected.
    pub expiring_keys: u64,
}

/// Which versions nobody can ask for any more, by the protocol's word.
pub trait Cut<M> {
    /// Whether versions of a key may stand side by side: then only what [`Cut::replaces`] says is replaced by another. Elsewhere the greater version replaces every smaller one.
    const SIBLINGS: bool = false;

    /// Whether `newer`, whose name is greater, stands in the place of `older`. A partial order. Asked only where [`Cut::SIBLINGS`] says so.
    fn replaces(&self, _newer: &Version<M>, _older: &Version<M>) -> bool {
        true
    }

    /// Whether `version`, or a newer one of its key, is what every present and future reader here gets: then nothing
    /// older is asked for.
    fn settled(&self, version: &Version<M>) -> bool;

    /// Whether no update of any origin with a timestamp up to `at` can still arrive here. A settled tombstone up to
    /// there may go: nothing older can come back.
    fn complete(&self, at: Timestamp) -> bool;

    /// Whether every reader here, present or to come, gets what was written up to `at` elsewhere, or something newer: no snapshot is older. Where it is not known, what [`Cut::complete`] says.
    fn covers(&self, at: Timestamp) -> bool {
        self.complete(at)
    }

    /// What is kept for its age.
    fn history(&self) -> History;
}

/// The cut that lets nothing go.
#[derive(Clone, Copy, Debug)]
pub struct KeepAll;

impl<M> Cut<M> for KeepAll {
    fn settled(&self, _: &Version<M>) -> bool {
        false
    }

    fn complete(&self, _: Timestamp) -> bool {
        false
    }

    fn history(&self) -> History {
        History { floor_ms: 0, expired_before_ms: 0, checkpoints: Checkpoints::NONE, oldest_ms: 0 }
    }
}

/// A value is kept for so long after its expiry by the clock here, in milliseconds: that can be ahead of others, by which it has not expired.
pub const EXPIRED_KEPT_MS: u64 = 10_000;

/// What is kept for its age, the same for every protocol.
#[derive(Clone, Copy, Debug)]
pub struct History {
    /// Versions are kept as history that were written, or replaced, at or after this; in milliseconds since the Unix epoch. So each key can be read as of any time from here on.
    /// Without history the greatest number: nothing is kept for its age.
    pub floor_ms: u64,
    /// Versions that expired before this count as tombstones, unless a checkpoint shows them; in milliseconds since the Unix epoch.
    pub expired_before_ms: u64,
    /// Before the floor, what was the newest version at a checkpoint is kept.
    pub checkpoints: Checkpoints,
    /// Checkpoints before this are not kept any more; in milliseconds since the Unix epoch.
    pub oldest_ms: u64,
}

impl History {
    /// At physical time `now_ms`, keeping what was the newest version at some time of the last `history_ms` milliseconds, and at the `checkpoints` before that.
    pub fn new(now_ms: u64, history_ms: u64, checkpoints: Checkpoints) -> History {
        let window_ms = now_ms.saturating_sub(history_ms);
        let checkpoints = if history_ms == 0 { Checkpoints::NONE } else { checkpoints };
        let oldest_ms = checkpoints.oldest_ms(now_ms, history_ms);
        let floor_ms = if history_ms == 0 { u64::MAX } else { window_ms };
        History { floor_ms, expired_before_ms: window_ms.saturating_sub(EXPIRED_KEPT_MS), checkpoints, oldest_ms }
    }

    /// Whether a checkpoint that is kept lies at or after `from` and before `to`.
    pub fn checkpoint_in(&self, from: Timestamp, to: Timestamp) -> bool {
        if self.checkpoints.every_ms == 0 {
            return false;
        }
        let first = (from.millis() + u64::from(from.counter() > 0)).max(self.oldest_ms).next_multiple_of(self.checkpoints.every_ms);
        (first, 0) < (to.millis(), to.counter())
    }
}

/// Moments before the window of which the state is kept, too: multiples of a time since the Unix epoch, so the same ones everywhere. Retroscope's periodic checkpoints (document 000, §4), which are sets of versions here and no copies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checkpoints {
    /// The time between two of them, in milliseconds; 0: there are none.
    pub every_ms: u64,
    /// How many are kept beyond the window.
    pub count: u64,
}

impl Checkpoints {
    /// There are none.
    pub const NONE: Checkpoints = Checkpoints { every_ms: 0, count: 0 };

    /// `count` of them, every `every_ms` milliseconds; none if one of the two is 0.
    pub fn new(every_ms: u64, count: u64) -> Checkpoints {
        if every_ms == 0 || count == 0 { Checkpoints::NONE } else { Checkpoints { every_ms, count } }
    }

    /// The oldest one that is kept at physical time `now_ms` beyond a window of `history_ms`, in milliseconds since the Unix epoch.
    pub fn oldest_ms(self, now_ms: u64, history_ms: u64) -> u64 {
        let floor_ms = now_ms.saturating_sub(history_ms);
        let newest_ms = floor_ms - floor_ms.checked_rem(self.every_ms).unwrap_or(0);
        newest_ms.saturating_sub(self.count.saturating_sub(1).saturating_mul(self.every_ms))
    }

    /// Whether `at` is one of them, whatever is kept.
    pub fn has(self, at: Timestamp) -> bool {
        self.every_ms > 0 && at.counter() == 0 && at.millis().is_multiple_of(self.every_ms)
    }
}

wire_struct!(Checkpoints { every_ms, count });

/// A version store.
pub trait Store<M>: Send {
    /// Appends `update` to the log and adds its versions to their chains, from whose old end goes what `cut` lets go. An update whose id is already in the chain of its
    /// keys changes nothing (but may be logged). Chains are in last-writer-wins order whatever the order of arrival.
    /// Returns the log's end after it. `own` says that this server wrote it, so links to peers will ask for it.
    ///
    /// # Errors
    /// The disk's. Nothing may be appended after an error.
    fn append(&mut self, update: &Update<M>, own: bool, cut: &impl Cut<M>) -> std::io::Result<Position>;

    /// Appends a protocol state; the last one is found again by a restart.
    fn append_state(&mut self, state: &[u8]) -> std::io::Result<Position>;

    /// Appends entry `index` of a log that the protocol keeps (Raft's). What was appended at `index` or after it is void. A restart finds what
    /// was appended and neither made void nor compacted.
    ///
    /// # Errors
    /// The disk's. Nothing may be appended after an error.
    fn append_entry(&mut self, index: u64, entry: &[u8]) -> std::io::Result<Position>;

    /// Entries of the protocol's log up to `through` are not needed any more.
    ///
    /// # Errors
    /// As [`Store::append_entry`].
    fn compact_entries(&mut self, through: u64) -> std::io::Result<Position>;

    /// Whether everything could be read so far: reading has no other way to say that the disk failed, and returns less than was stored then. To be asked before
    /// anything is said or done on the ground of what was read. Never recovers.
    ///
    /// # Errors
    /// The first of the disk's. Nothing may be appended after it.
    fn readable(&self) -> std::io::Result<()>;

    /// The greatest version of `key` in last-writer-wins order that `accept` accepts. Paper: "obtain the latest version d from
    /// the version chain of key k such that …".
    fn latest(&mut self, key: &[u8], accept: impl Fn(&Version<M>) -> bool) -> Option<&Version<M>>;

    /// The greatest version of `key`, if its chain is in memory; nothing is read from the disk, nothing counts as used.
    fn peek(&self, key: &[u8]) -> Option<&Version<M>>;

    /// Shortly `keys` will be asked for: whatever that waits for is fetched for all of them together. Calls `touch` with what is probably the greatest version of each one whose chain is in
    /// memory; it can be another key's.
    fn prefetch(&self, keys: &[&[u8]], touch: impl FnMut(&Version<M>));

    /// Whether some chains are on disk only.
    fn is_cold(&self) -> bool {
        false
    }

    /// Whether a step that asks for these keys and no others need not wait for the disk. If not, what it would wait for is read by the next [`Store::begin_read`].
    fn ready(&mut self, _keys: &[&[u8]]) -> bool {
        true
    }

    /// A read that is due, of what [`Store::ready`] did not find, or for [`Store::collect_some`]. `None`: nothing is, or enough are under way.
    fn begin_read(&mut self) -> Option<ReadJob> {
        None
    }

    /// Takes in what a [`ReadJob`] has read. If it could not read, [`Store::readable`] says so from now on, but for what can be asked again.
    fn end_read(&mut self, _read: ReadDone) {}

    /// Number of keys that [`Store::collect_some`] may find something in, or bring into memory after a start.
    fn candidates(&self) -> usize;

    /// The whole chain of `key`, greatest first.
    fn chain(&mut self, key: &[u8]) -> Vec<Version<M>>;

    /// Applies the stable-cut rule to the chain of `key`: everything older than its greatest settled version goes, and that version too
    /// if it is a tombstone (or expired before `cut.history().expired_before_ms`) that is complete and nothing newer stands before it. Where versions stand side by side
    /// ([`Cut::SIBLINGS`]), what a settled version replaces goes, and every such tombstone before which nothing stands. Returns the number of versions collected.
    fn collect(&mut self, key: &[u8], cut: &impl Cut<M>) -> usize;

    /// Applies [`Store::collect`] to at most `limit` keys that may have something to collect (chains of two or more versions,
    /// tombstones, expiring versions), going round; after a start, brings some chains back into memory too. Of what is on disk only, it sees what [`Store::begin_read`] reads for it. Returns the number of versions collected.
    fn collect_some(&mut self, limit: usize, cut: &impl Cut<M>) -> usize;

    /// Removes versions of `key` from its chain, as a collection elsewhere has ([`Store::take_collected`]). What is not there is passed over.
    ///
    /// # Errors
    /// The disk's. Nothing may be appended after an error.
    fn trim(&mut self, key: &Key, trim: &Trim) -> std::io::Result<()>;

    /// The greatest timestamp among the last versions of keys of which nothing was left when they were collected or trimmed, since the store was opened.
    fn newest_gone(&self) -> Timestamp;

    /// From now on what is collected is remembered for [`Store::take_collected`], or no more.
    fn remember_collected(&mut self, remember: bool);

    /// What has been collected since the last call, in order.
    fn take_collected(&mut self) -> Vec<(Key, Trim)>;

    /// At most about `limit` keys of hash slot `slot`, in an order fixed by the key alone, from `from` on (0 at first). A key that is there
    /// from the first call of a walk to the last is returned by exactly one of them.
    fn scan(&mut self, slot: u16, from: u32, limit: usize) -> ScanPage;

    /// The end of the log.
    fn end(&self) -> Position;

    /// Everything below this position is on disk. Equal to [`Store::end`] for a store without disk.
    fn durable(&self) -> Position;

    /// Hands buffered records to the operating system, so that a killed process loses none of them.
    fn write_through(&mut self) -> std::io::Result<()>;

    /// The flush that is due, or `None` if everything is on disk or a flush is under way.
    fn begin_flush(&mut self) -> Option<FlushJob>;

    /// Takes the result of a [`FlushJob`].
    fn end_flush(&mut self, flushed: Position);

    /// Own updates with timestamps greater than `after`, in timestamp order, only such as are durable, at least one (if there is one) and then
    /// as many as fit in `max_bytes` of encoded form. Second: whether these are all the own updates after `after` in the whole log, durable or not.
    fn own_updates(&mut self, after: Timestamp, max_bytes: usize) -> std::io::Result<(Vec<Update<M>>, bool)>;

    /// All updates of `origin` with timestamps greater than `after` that the chains still hold, in timestamp order: what is left
    /// for a peer that asks for more than the log still has. At least one (if there is one), then as many as fit in about `max_bytes`. Second: whether these are
    /// all. A multi-key update comes apart where some of its versions were collected, so a reader of a part of them can miss what a newer version replaced.
    fn held_updates(&mut self, origin: DcId, after: Timestamp, max_bytes: usize) -> std::io::Result<(Vec<Update<M>>, bool)>;

    /// The timestamp of the newest own update that was ever appended as one.
    fn newest_own(&self) -> Timestamp;

    /// The newest own update that may have been released from the log; [`Store::own_updates`] is complete only for `after` at or above its timestamp.
    fn released(&self) -> Timestamp;

    /// Every peer has all own updates up to `upto`: the log may forget them.
    fn release(&mut self, upto: Timestamp);

    /// Background work of bounded length: checkpoints, log truncation, eviction. Called now and then; says whether a checkpoint is under way, which goes on with the next call.
    fn maintain(&mut self) -> std::io::Result<bool>;

    /// The process is going to end: does what makes the next start shorter, where that takes less time than it saves.
    ///
    /// # Errors
    /// The disk's; what was durable is.
    fn rest(&mut self) -> std::io::Result<()> {
        Ok(())
    }

    /// Counts and sizes.
    fn stats(&self) -> StoreStats;
}
