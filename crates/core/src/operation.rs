//! What a user asks of a keyspace, and what comes back.

use crate::counter::{CounterCall, CounterView, OutOfRights};
use crate::export::{ExportAnswer, ExportCall};
use crate::feed::{FeedAnswer, FeedCall};
use crate::ids::PartitionId;
use crate::rollback::{RollbackAnswer, RollbackCall};
use crate::version::{Item, Key, Value, Version, VersionId};
use crate::wire::{Reader, Wire, WireError};
use crate::{wire_enum, wire_struct};
use rheostat_clock::{DcId, Timestamp};
use smallvec::SmallVec;
use std::fmt;
use std::num::NonZeroU64;

/// Session guarantees, as a set (dissertation, section 2.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Guarantees(u8);

impl Guarantees {
    /// No guarantee.
    pub const NONE: Guarantees = Guarantees(0);
    /// A read sees at least what the session's earlier reads saw.
    pub const MONOTONIC_READS: Guarantees = Guarantees(1);
    /// A read sees the session's earlier writes.
    pub const READ_YOUR_WRITES: Guarantees = Guarantees(2);
    /// A write is ordered after the session's earlier writes, everywhere.
    pub const MONOTONIC_WRITES: Guarantees = Guarantees(4);
    /// A write is ordered after what the session has read, everywhere.
    pub const WRITES_FOLLOW_READS: Guarantees = Guarantees(8);
    /// All four.
    pub const ALL: Guarantees = Guarantees(15);

    const NAMES: [&'static str; 4] = ["monotonic-reads", "read-your-writes", "monotonic-writes", "writes-follow-reads"];

    /// The guarantees of both sets.
    pub const fn with(self, other: Guarantees) -> Guarantees {
        Guarantees(self.0 | other.0)
    }

    /// Whether every guarantee of `other` is in this set.
    pub const fn has(self, other: Guarantees) -> bool {
        self.0 & other.0 == other.0
    }
}

/// How much consistency an operation asks for. A keyspace gives at least what is asked, or an error.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Level {
    /// The newest version that has arrived here. Not part of the session's history: the session neither waits for
    /// it nor remembers it.
    Eventual,
    /// Some of the session guarantees: the first two bind reads, the last two bind writes.
    Session(Guarantees),
    /// Causal+ consistency.
    Causal,
    /// Linearizable among all operations of this level in one data center; writes of other data centers show when they arrive.
    Local,
    /// Linearizable everywhere.
    Strong,
}

impl Level {
    /// All session guarantees.
    pub const SESSION: Level = Level::Session(Guarantees::ALL);

    /// The levels that have a name of one word, weakest first; sets of session guarantees are written with `+` between their names.
    pub const WORDS: [Level; 5] = [Level::Eventual, Level::SESSION, Level::Causal, Level::Local, Level::Strong];

    /// The word for this level in RESP, gRPC, metrics and documents; every set of session guarantees is a `session` level.
    pub const fn name(self) -> &'static str {
        match self {
            Level::Eventual => "eventual",
            Level::Session(_) => "session",
            Level::Causal => "causal",
            Level::Local => "local",
            Level::Strong => "strong",
        }
    }

    /// The level called `name`, in any case: one of [`Level::WORDS`], or session guarantees with `+` between them.
    pub fn from_name(name: &str) -> Option<Level> {
        if let Some(level) = Level::WORDS.into_iter().find(|level| level.name().eq_ignore_ascii_case(name)) {
            return Some(level);
        }
        let mut set = 0;
        for part in name.split('+') {
            set |= 1 << Guarantees::NAMES.iter().position(|known| known.eq_ignore_ascii_case(part))?;
        }
        Some(Level::Session(Guarantees(set)))
    }

    /// What [`Level::from_name`] takes, for messages to users.
    pub fn names() -> String {
        format!("{}, or some of {} with `+` between them", Level::WORDS.map(Level::name).join(", "), Guarantees::NAMES.join(", "))
    }

    /// Whether an answer of this level is also one of level `asked`.
    pub fn implies(self, asked: Level) -> bool {
        match (self, asked) {
            (_, Level::Eventual) | (Level::Strong, _) | (Level::Causal, Level::Session(_)) => true,
            (Level::Session(given), Level::Session(asked)) => given.has(asked),
            _ => self == asked,
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Level::Session(set) if *set != Guarantees::ALL => {
                let names = Guarantees::NAMES.into_iter().enumerate().filter(|(bit, _)| set.0 & 1 << bit != 0);
                f.write_str(&names.map(|(_, name)| name).collect::<Vec<_>>().join("+"))
            }
            _ => f.write_str(self.name()),
        }
    }
}

/// How a read-only transaction finds its snapshot, where the protocol knows several ways.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Strategy {
    /// The protocol chooses.
    #[default]
    Auto,
    /// A coordinating server chooses it.
    Coordinated,
    /// The client predicts it.
    Predicted,
}

impl Strategy {
    /// Every strategy.
    pub const ALL: [Strategy; 3] = [Strategy::Auto, Strategy::Coordinated, Strategy::Predicted];

    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Strategy::Auto => "auto",
            Strategy::Coordinated => "coordinated",
            Strategy::Predicted => "predicted",
        }
    }

    /// The strategy called `name`, in any case.
    pub fn from_name(name: &str) -> Option<Strategy> {
        Strategy::ALL.into_iter().find(|strategy| strategy.name().eq_ignore_ascii_case(name))
    }
}

/// Checking groups, as a set of numbers below 64 (protocol `adaptive`; dissertation, chapter 7). The empty set leaves the choice to the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Groups(pub u64);

/// How many replicas an operation asks, and how many must answer, where the protocol leaves that to the request (protocol `quorum`; Nguyen et al., section 2.2). 0 leaves the
/// number to the keyspace.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Quorum {
    /// How many replicas are asked in the first round. Paper: N.
    pub asked: u8,
    /// How many must answer a read. Paper: R.
    pub reads: u8,
    /// How many must have a write. Paper: W.
    pub writes: u8,
}

impl Quorum {
    /// Whatever the keyspace says.
    pub const KEYSPACE: Quorum = Quorum { asked: 0, reads: 0, writes: 0 };
    /// The replica that is asked, alone.
    pub const ALONE: Quorum = Quorum { asked: 1, reads: 1, writes: 1 };
}

/// A time in the past; in as many bytes where there may be none.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AsOf(NonZeroU64);

impl AsOf {
    /// `at`; `None` if that is before everything.
    pub fn new(at: Timestamp) -> Option<AsOf> {
        NonZeroU64::new(at.bits()).map(AsOf)
    }

    /// The time.
    pub fn time(self) -> Timestamp {
        Timestamp::from_bits(self.0.get())
    }
}

/// What a request asks for beside its keys and values.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Dial {
    /// How much consistency; `None` is the keyspace's own level.
    pub level: Option<Level>,
    /// For read-only transactions.
    pub strategy: Strategy,
    /// For reads.
    pub groups: Groups,
    /// For reads: the answer reflects every write of another data center that is older than so many milliseconds. Until it does, the read waits.
    pub fresh_ms: Option<u32>,
    /// How long the operation may wait at its partition server, in microseconds; never longer than the server lets any wait. Then it fails, but where
    /// the protocol keeps bounds ([`crate::protocol::Protocol::KEEPS_BOUNDS`]): there it is answered with what there is.
    pub within_us: Option<u32>,
    /// For protocols with quorums.
    pub quorum: Quorum,
    /// For reads: each key is as it was then, for all that every data center has written; at level eventual, for all that has arrived here. Part of no session.
    pub as_of: Option<AsOf>,
    /// The service level that a read is part of, for whoever counts: see [`crate::notch::label_of`]. 0: none.
    pub label: u16,
}

impl Dial {
    /// Asks for `level`.
    pub fn at(level: Level) -> Dial {
        Dial { level: Some(level), ..Dial::default() }
    }
}

/// What happens to a key's expiry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Expiry {
    /// The new version never expires.
    #[default]
    Never,
    /// It expires at this time, in milliseconds since the Unix epoch.
    At(u64),
    /// It expires when the version before it would have.
    Keep,
}

/// When a change of expiry applies (Redis: NX, XX, GT, LT).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ExpiryCondition {
    /// Always.
    #[default]
    Always,
    /// Only if the key has no expiry.
    IfNone,
    /// Only if the key has an expiry.
    IfSome,
    /// Only if the new expiry is later; no expiry counts as the latest.
    IfLater,
    /// Only if the new expiry is earlier; no expiry counts as the latest.
    IfEarlier,
}

/// When a value is written, by what the key was before (Redis: NX, XX).
#[derive(Clone, PartialEq, Debug, Default)]
pub enum SetCondition {
    /// Always.
    #[default]
    Always,
    /// Only if the key has no value.
    IfAbsent,
    /// Only if the key has a value.
    IfPresent,
    /// Only if the key has this value (compare and set).
    IfValue(Value),
    /// Only if this version of a value is what a reader gets; `None`: only if the key has no value. A tombstone's version never fits: one server has collected it
    /// when another still has it, and all must decide alike.
    IfVersion(Option<VersionId>),
}

/// A read of one key and a write that depends on what was read, done without anything between them at the key's
/// partition server. Another data center may write the key at the same time, and the last writer wins, unless the level is `strong`.
#[derive(Clone, PartialEq, Debug)]
pub enum Change {
    /// Writes `value` (SET … KEEPTTL, SET … GET).
    Set {
        /// The new value.
        value: Value,
        /// The new expiry.
        expiry: Expiry,
        /// When it is written; anything but `Always` needs a protocol that decides it in one place.
        condition: SetCondition,
    },
    /// Deletes the key if it is there (DEL, GETDEL).
    Delete,
    /// Changes the expiry if the key is there; `Expiry::Never` removes it (EXPIRE, PERSIST).
    Expire {
        /// The new expiry; `Keep` changes nothing.
        expiry: Expiry,
        /// When it applies.
        condition: ExpiryCondition,
    },
}

impl Change {
    /// Whether it is written only if the key is as expected.
    pub fn is_conditional(&self) -> bool {
        matches!(self, Change::Set { condition, .. } if *condition != SetCondition::Always)
    }

    /// The value that it brings along, if it brings one.
    pub fn value(&self) -> Option<&Value> {
        match self {
            Change::Set { value, .. } => Some(value),
            Change::Delete | Change::Expire { .. } => None,
        }
    }

    /// The write that this change makes of `key` as it was `before`, at physical time `now_ms`; `None` if it writes nothing.
    pub fn item(self, now_ms: u64, key: Key, before: &Read) -> Option<Item> {
        let resolve = |expiry: Expiry| match expiry {
            Expiry::Never => 0,
            Expiry::At(at) => at,
            Expiry::Keep => before.expires_ms,
        };
        match self {
            Change::Set { value, expiry, condition } => {
                let applies = match condition {
                    SetCondition::Always => true,
                    SetCondition::IfAbsent => before.value.is_none(),
                    SetCondition::IfPresent => before.value.is_some(),
                    SetCondition::IfValue(expected) => before.value.as_ref() == Some(&expected),
                    SetCondition::IfVersion(expected) => before.version.filter(|_| before.value.is_some()) == expected,
                };
                // What has expired already is a deletion, and costs no timer.
                let expires_ms = if before.value.is_some() || expiry != Expiry::Keep { resolve(expiry) } else { 0 };
                let gone = expires_ms != 0 && expires_ms <= now_ms;
                applies.then(|| Item { key, value: Some(value).filter(|_| !gone), expires_ms: if gone { 0 } else { expires_ms } })
            }
            Change::Delete => before.value.is_some().then_some(Item { key, value: None, expires_ms: 0 }),
            Change::Expire { expiry, condition } => {
                let (old, new) = (before.expires_ms, resolve(expiry));
                let later = |a: u64, b: u64| (if a == 0 { u64::MAX } else { a }) > (if b == 0 { u64::MAX } else { b });
                let applies = match condition {
                    ExpiryCondition::Always => true,
                    ExpiryCondition::IfNone => old == 0,
                    ExpiryCondition::IfSome => old != 0,
                    ExpiryCondition::IfLater => later(new, old),
                    ExpiryCondition::IfEarlier => later(old, new),
                };
                let changes = applies && !(expiry == Expiry::Never && old == 0) && expiry != Expiry::Keep;
                let gone = new != 0 && new <= now_ms;
                before.value.clone().filter(|_| changes).map(|value| Item {
                    key,
                    value: Some(value).filter(|_| !gone),
                    expires_ms: if gone { 0 } else { new },
                })
            }
        }
    }
}

/// A read of one key that decides what is written to another one of the same partition, or to itself (dConssandra: readTestWrite).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TestWrite {
    /// The key that is tested. Paper: test cell.
    pub test: Key,
    /// The value that it must have; `None`: it must have none.
    pub expected: Option<Value>,
    /// The key that is written. Paper: target cell.
    pub target: Key,
    /// What is written to it if so; such a version never expires.
    pub then: Value,
    /// What is written to it if not; `None`: nothing.
    pub otherwise: Option<Value>,
}

impl TestWrite {
    /// Whether the tested key, which was `before`, has what is expected, and what is written.
    pub fn decide(self, before: &Read) -> (bool, Option<Item>) {
        let equal = before.value == self.expected;
        let value = if equal { Some(self.then) } else { self.otherwise };
        (equal, value.map(|value| Item { key: self.target, value: Some(value), expires_ms: 0 }))
    }
}

/// What a guarded write expects of a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Guard {
    /// The key.
    pub key: Key,
    /// The version that a reader must get of it; `None`: it has none.
    pub version: Option<VersionId>,
}

/// The most guards, and the most items, of one guarded write.
pub const MOST_GUARDS: usize = 8192;

/// One command of a transaction.
#[derive(Clone, PartialEq, Debug)]
pub enum Action {
    /// Reads a key.
    Get(Key),
    /// Writes an item, whatever the key was.
    Put(Item),
    /// Reads a key and changes it.
    Change(Key, Change),
    /// Reads a key and writes another one by what it was.
    Test(Box<TestWrite>),
    /// Adds to a counter, with the rights that are here.
    Add(Key, i64),
}

impl Action {
    /// Its key; of a test, the one that it writes.
    pub fn key(&self) -> &Key {
        match self {
            Action::Put(item) => &item.key,
            Action::Test(write) => &write.target,
            Action::Get(key) | Action::Change(key, _) | Action::Add(key, _) => key,
        }
    }
}

impl Action {
    /// The key that it reads, if it reads one.
    pub fn reads(&self) -> Option<&Key> {
        match self {
            Action::Put(_) => None,
            Action::Test(write) => Some(&write.test),
            other => Some(other.key()),
        }
    }
}

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

/// The most commands, and the most guards, of one transaction.
pub const MOST_ACTIONS: usize = MOST_GUARDS;

/// What a user asks of one partition server.
#[derive(Clone, PartialEq, Debug)]
pub enum Operation {
    /// The value of a key.
    Get {
        /// The key.
        key: Key,
        /// What is asked for beside.
        dial: Dial,
    },
    /// Writes items, all of this partition, so that they appear together.
    Put {
        /// What to write; no key twice.
        items: SmallVec<[Item; 1]>,
        /// What is asked for beside.
        dial: Dial,
    },
    /// Writes items, all of this partition, so that they appear together, if keys of this partition are as expected; where one place decides that. Done with
    /// [`Outcome::Written`] or, if nothing was or will be written, [`Outcome::Unmet`].
    PutIf {
        /// What to write; no key twice. At most [`MOST_GUARDS`].
        items: SmallVec<[Item; 1]>,
        /// What must hold, all of it, at the write's place among all writes of the partition. At most [`MOST_GUARDS`].
        guards: Vec<Guard>,
        /// What is asked for beside.
        dial: Dial,
    },
    /// Reads a key and changes it.
    Change {
        /// The key.
        key: Key,
        /// The change.
        change: Change,
        /// What is asked for beside.
        dial: Dial,
    },
    /// Reads a key and writes another one by what it was, with nothing between the two, where one place decides that. Done with [`Outcome::Tested`]; within a bound that comes first, with
    /// [`Outcome::Written`] or [`Outcome::Kept`]: then it is decided later.
    TestWrite {
        /// What is tested, and written.
        write: Box<TestWrite>,
        /// What is asked for beside.
        dial: Dial,
    },
    /// Values of several keys of any partitions, from one snapshot.
    ReadTransaction {
        /// The keys.
        keys: Vec<Key>,
        /// What is asked for beside; level `Eventual` reads each key for itself.
        dial: Dial,
    },
    /// Visible keys of one hash slot, page by page.
    Scan {
        /// The slot.
        slot: u16,
        /// Where to go on; 0 at first.
        from: u32,
        /// About how many keys.
        limit: u32,
    },
    /// Number of visible keys in the slots from `first` to `last`.
    Count {
        /// The first slot.
        first: u16,
        /// The last slot.
        last: u16,
    },
    /// Waits until at least `data_centers` other data centers have everything written at this partition up to `upto` on
    /// disk; answers how far each one is, then or at the deadline.
    AwaitReplication {
        /// The session's latest write.
        upto: Timestamp,
        /// How many other data centers.
        data_centers: u8,
    },
    /// All values of a key that stand side by side, where the protocol lets them. The session remembers what was seen, for a [`Operation::Replace`].
    Siblings {
        /// The key.
        key: Key,
        /// What is asked for beside.
        dial: Dial,
    },
    /// Writes an item in the place of what the session has seen of its key ([`Operation::Siblings`]) and of nothing else; of nothing if it has not looked at the key last.
    Replace {
        /// What to write.
        item: Item,
        /// What is asked for beside.
        dial: Dial,
    },
    /// The version chain of a key, and why each version is visible or not.
    Explain {
        /// The key.
        key: Key,
    },
    /// The versions of a key that are here, as [`Operation::Restore`] takes them.
    Versions {
        /// The key.
        key: Key,
    },
    /// Takes in versions that this server has lost, from another data center's [`Operation::Versions`]. Done with [`Outcome::Count`]: how many were missing.
    Restore {
        /// The key.
        key: Key,
        /// The versions.
        versions: Vec<Vec<u8>>,
    },
    /// Of counters.
    Counter {
        /// What is asked of them.
        call: CounterCall,
        /// What is asked for beside.
        dial: Dial,
    },
    /// Commands on keys of this partition, in order, as one step: each sees the keys as the commands before it have left them, nothing comes between them, and what they
    /// write appears together. All are made or none. Done with [`Outcome::Transacted`] or, if a guard does not hold, [`Outcome::Unmet`].
    Transact {
        /// The commands. At most [`MOST_ACTIONS`].
        actions: Vec<Action>,
        /// What must hold, all of it, where one place decides that. At most [`MOST_ACTIONS`].
        guards: Vec<Guard>,
        /// What is asked for beside.
        dial: Dial,
    },
    /// A step of a rollback. Done with [`Outcome::Rollback`] or, if it writes, [`Outcome::Written`].
    Rollback {
        /// Which.
        call: Box<RollbackCall>,
    },
    /// What a backup asks. Done with [`Outcome::Export`].
    Export {
        /// Which.
        call: ExportCall,
    },
    /// What a change feed asks. Done with [`Outcome::Feed`].
    Feed {
        /// Which.
        call: FeedCall,
    },
}

impl Operation {
    /// Whether it may write.
    pub fn writes(&self) -> bool {
        match self {
            Operation::Put { .. } | Operation::PutIf { .. } | Operation::Replace { .. } | Operation::Change { .. } | Operation::TestWrite { .. } => {
                true
            }
            Operation::Counter { call, .. } => !matches!(call, CounterCall::Look { .. }),
            Operation::Transact { actions, .. } => actions.iter().any(|action| !matches!(action, Action::Get(_))),
            Operation::Rollback { call } => matches!(**call, RollbackCall::Restore { .. }),
            Operation::Get { .. }
            | Operation::Siblings { .. }
            | Operation::ReadTransaction { .. }
            | Operation::Scan { .. }
            | Operation::Count { .. }
            | Operation::AwaitReplication { .. }
            | Operation::Explain { .. }
            | Operation::Versions { .. }
            | Operation::Restore { .. }
            | Operation::Export { .. }
            | Operation::Feed { .. } => false,
        }
    }

    /// The key of a GET that any server with the partition's data may answer: at level eventual, and nothing else asked for.
    #[inline]
    pub fn key_for_anyone(&self) -> Option<&Key> {
        match self {
            Operation::Get { key, dial: Dial { level: Some(Level::Eventual), fresh_ms: None, as_of: None, .. } } => Some(key),
            _ => None,
        }
    }

    /// How long a read may take at most, if it says so.
    pub fn within_us(&self) -> Option<u32> {
        match self {
            Operation::Get { dial, .. } | Operation::ReadTransaction { dial, .. } => dial.within_us,
            _ => None,
        }
    }

    /// What is asked for beside, where something can be.
    pub fn dial_mut(&mut self) -> Option<&mut Dial> {
        match self {
            Operation::Get { dial, .. }
            | Operation::Put { dial, .. }
            | Operation::PutIf { dial, .. }
            | Operation::Change { dial, .. }
            | Operation::TestWrite { dial, .. }
            | Operation::ReadTransaction { dial, .. }
            | Operation::Siblings { dial, .. }
            | Operation::Replace { dial, .. }
            | Operation::Counter { dial, .. }
            | Operation::Transact { dial, .. } => Some(dial),
            Operation::Scan { .. }
            | Operation::Count { .. }
            | Operation::AwaitReplication { .. }
            | Operation::Explain { .. }
            | Operation::Versions { .. }
            | Operation::Restore { .. }
            | Operation::Rollback { .. }
            | Operation::Export { .. }
            | Operation::Feed { .. } => None,
        }
    }

    /// It, with `dial`, where something can be asked for beside.
    pub fn with_dial(&self, dial: Dial) -> Operation {
        let mut operation = self.clone();
        if let Some(own) = operation.dial_mut() {
            *own = dial;
        }
        operation
    }

    /// It has waited for so many microseconds before its partition server saw it: of a bound on how long it may wait, so much is gone. A bound of 0 is one that was asked for.
    pub fn has_waited(&mut self, us: u64) {
        if let Some(within_us) = self.dial_mut().and_then(|dial| dial.within_us.as_mut()).filter(|within_us| **within_us > 0) {
            *within_us = within_us.saturating_sub(u32::try_from(us).unwrap_or(u32::MAX)).max(1);
        }
    }

    /// Whether it is a transaction of commands some of which get keys.
    pub fn gets(&self) -> bool {
        matches!(self, Operation::Transact { actions, .. } if actions.iter().any(|action| matches!(action, Action::Get(_))))
    }

    /// Calls `each` with the keys that it reads or writes, some of them perhaps twice. Not with one that is looked at only ([`Operation::Explain`]): that changes nothing, nor what is in memory.
    pub fn for_each_key(&self, mut each: impl FnMut(&Key)) {
        match self {
            Operation::Explain { .. } => {}
            Operation::ReadTransaction { keys, .. } => keys.iter().for_each(each),
            Operation::Put { items, .. } => items.iter().for_each(|item| each(&item.key)),
            Operation::PutIf { items, guards, .. } => {
                items.iter().for_each(|item| each(&item.key));
                guards.iter().for_each(|guard| each(&guard.key));
            }
            Operation::TestWrite { write, .. } => [&write.test, &write.target].into_iter().for_each(each),
            Operation::Counter { call, .. } => call.keys().for_each(each),
            Operation::Transact { actions, guards, .. } => {
                actions.iter().flat_map(|action| [Some(action.key()), action.reads()]).flatten().for_each(&mut each);
                guards.iter().for_each(|guard| each(&guard.key));
            }
            other => other.key().into_iter().for_each(each),
        }
    }

    /// The key that decides which partition serves this operation; `None` where the caller names it.
    pub fn key(&self) -> Option<&Key> {
        match self {
            Operation::Get { key, .. } | Operation::Siblings { key, .. } | Operation::Change { key, .. } | Operation::Explain { key } => Some(key),
            Operation::Versions { key } | Operation::Restore { key, .. } => Some(key),
            Operation::Replace { item, .. } => Some(&item.key),
            Operation::TestWrite { write, .. } => Some(&write.target),
            Operation::Put { items, .. } | Operation::PutIf { items, .. } => items.first().map(|item| &item.key),
            Operation::ReadTransaction { keys, .. } => keys.first(),
            Operation::Counter { call, .. } => call.key(),
            Operation::Transact { actions, guards, .. } => actions.first().map(Action::key).or_else(|| guards.first().map(|guard| &guard.key)),
            Operation::Feed { call: FeedCall::Conflicts { key } } => Some(key),
            Operation::Scan { .. }
            | Operation::Count { .. }
            | Operation::AwaitReplication { .. }
            | Operation::Rollback { .. }
            | Operation::Export { .. }
            | Operation::Feed { call: FeedCall::Changes { .. } } => None,
        }
    }
}

/// What one key's read returned.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Read {
    /// The value; `None` when the key is absent, deleted or expired.
    pub value: Option<Value>,
    /// The version that was read; `None` when the key has none that is visible.
    pub version: Option<VersionId>,
    /// When it expires, in milliseconds since the Unix epoch; 0 is never.
    pub expires_ms: u64,
}

impl Read {
    /// What a reader finds of `version` at `now_ms`, in milliseconds since the Unix epoch.
    pub fn of<M>(version: &Version<M>, now_ms: u64) -> Read {
        let value = version.live(now_ms).cloned();
        let expires_ms = if value.is_some() { version.expires_ms } else { 0 };
        Read { value, version: Some(version.id), expires_ms }
    }
}

/// How good an answer is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Quality {
    /// The level that was achieved.
    pub level: Level,
    /// Every write of another data center that is older than this many milliseconds (on its writer's clock) is reflected;
    /// `None` when no bound is known. 0 when there is no other data center.
    pub staleness_ms: Option<u64>,
}

/// One version in an explanation.
#[derive(Clone, PartialEq, Debug)]
pub struct Explained {
    /// Its name.
    pub id: VersionId,
    /// Length of the value in bytes; `None` for a tombstone.
    pub length: Option<u64>,
    /// When it expires, in milliseconds since the Unix epoch; 0 is never.
    pub expires_ms: u64,
    /// What it depends on, in the protocol's words.
    pub dependencies: String,
    /// `None` when it is visible; else what it waits for.
    pub hidden: Option<String>,
}

/// Why an operation failed. Nothing was changed unless it says so.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Failure {
    /// The deadline passed; says what was waited for. A write may have happened.
    Timeout(String),
    /// Too much is under way; try again later.
    Busy(String),
    /// The request cannot be served here.
    Refused(String),
    /// The session cannot be used here: it is another protocol's, cannot be read, or is ahead of every clock.
    Session(String),
    /// The partition is elsewhere and cannot be reached. A write may have happened.
    Unreachable(PartitionId),
    /// The store failed; the server stops serving this partition.
    Storage(String),
    /// Too few replicas answered a quorum's question in time. A write has happened where it was made, and goes on to the others.
    Insufficient(Box<Insufficient>),
    /// A counter would leave its bounds, for all that is known here. Nothing was changed.
    OutOfRights(Box<OutOfRights>),
}

/// How far a quorum came.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Insufficient {
    /// Whether it was a write.
    pub write: bool,
    /// How many replicas had to answer.
    pub needed: u8,
    /// The data centers whose replicas did.
    pub answered: Vec<DcId>,
    /// Their names, once somebody has seen the failure who knows them.
    pub names: Vec<String>,
}

impl fmt::Display for Insufficient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Insufficient { write, needed, answered, names } = self;
        let numbers = || answered.iter().map(|dc| dc.0.to_string()).collect::<Vec<_>>().join(", ");
        let named = if names.is_empty() { numbers() } else { names.join(", ") };
        let (count, sort) = (answered.len(), if *write { "write" } else { "read" });
        write!(f, "InsufficientReplies: {count} of the {needed} replicas that this {sort} needs have answered in time")?;
        if count > 0 {
            write!(f, ": data center {named}")?;
        }
        if *write { f.write_str("; the write stays where it is, and goes on to the others") } else { Ok(()) }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Timeout(what) => write!(f, "timed out waiting for {what}"),
            Failure::Busy(what) => write!(f, "busy: {what}"),
            Failure::Refused(why) | Failure::Session(why) => f.write_str(why),
            Failure::Unreachable(partition) => write!(f, "partition {partition} cannot be reached"),
            Failure::Storage(why) => write!(f, "storage failed: {why}"),
            Failure::OutOfRights(what) => what.fmt(f),
            Failure::Insufficient(what) => what.fmt(f),
        }
    }
}

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
    /// Of PutIf and Transact, when nothing was written: how the guards' keys were, in their order.
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
}

wire_struct!(Read { value, version, expires_ms });
wire_struct!(Guard { key, version });
wire_struct!(TestWrite { test, expected, target, then, otherwise });
wire_struct!(Quality { level, staleness_ms });
wire_struct!(Explained { id, length, expires_ms, dependencies, hidden });

impl Wire for PartitionId {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(PartitionId(Wire::decode(input)?))
    }
}

impl Wire for Guarantees {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.0);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        match input.byte()? {
            set @ ..=15 => Ok(Guarantees(set)),
            _ => Err(WireError::Invalid("session guarantees")),
        }
    }
}

impl Wire for Groups {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Groups(Wire::decode(input)?))
    }
}

impl Wire for AsOf {
    fn encode(&self, out: &mut Vec<u8>) {
        self.time().encode(out);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        AsOf::new(Wire::decode(input)?).ok_or(WireError::Invalid("a time in the past"))
    }
}

wire_enum!(Level, "a level", { 0 => Eventual, 1 => Session(guarantees), 2 => Causal, 3 => Local, 4 => Strong });
wire_enum!(Strategy, "a strategy", { 0 => Auto, 1 => Coordinated, 2 => Predicted });
wire_struct!(Quorum { asked, reads, writes });
wire_struct!(Insufficient { write, needed, answered, names });
wire_struct!(Dial { level, strategy, groups, fresh_ms, within_us, quorum, as_of, label });
wire_enum!(SetCondition, "a condition", { 0 => Always, 1 => IfAbsent, 2 => IfPresent, 3 => IfValue(value), 4 => IfVersion(version) });
wire_enum!(Expiry, "an expiry", { 0 => Never, 1 => At(at), 2 => Keep });
wire_enum!(ExpiryCondition, "an expiry condition", { 0 => Always, 1 => IfNone, 2 => IfSome, 3 => IfLater, 4 => IfEarlier });
wire_enum!(Change, "a change", { 0 => Set { value, expiry, condition }, 1 => Delete, 2 => Expire { expiry, condition } });
wire_enum!(Operation, "an operation", {
    0 => Get { key, dial },
    1 => Put { items, dial },
    2 => Change { key, change, dial },
    3 => ReadTransaction { keys, dial },
    4 => Scan { slot, from, limit },
    5 => Count { first, last },
    6 => AwaitReplication { upto, data_centers },
    7 => Explain { key },
    8 => Counter { call, dial },
    9 => PutIf { items, guards, dial },
    10 => Transact { actions, guards, dial },
    11 => Siblings { key, dial },
    12 => Replace { item, dial },
    13 => Versions { key },
    14 => Restore { key, versions },
    15 => Rollback { call },
    16 => Export { call },
    17 => TestWrite { write, dial },
    18 => Feed { call },
});
wire_enum!(Action, "a command of a transaction", { 0 => Get(key), 1 => Put(item), 2 => Change(key, change), 3 => Add(key, amount), 4 => Test(write) });
wire_enum!(Acted, "an outcome of a command", {
    0 => Read(read),
    1 => Written,
    2 => Changed { before, wrote },
    3 => Counted(value),
    4 => Tested { equal, before, wrote },
});
wire_enum!(Failure, "a failure", {
    0 => Timeout(what), 1 => Busy(what), 2 => Refused(why), 3 => Unreachable(partition), 4 => Storage(why),
    5 => OutOfRights(what), 6 => Session(why), 7 => Insufficient(what),
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
