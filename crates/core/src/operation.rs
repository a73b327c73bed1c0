//! What a user asks of a keyspace.

use crate::answer::Read;
use crate::counter::CounterCall;
use crate::dial::{Dial, Level};
use crate::export::ExportCall;
use crate::feed::FeedCall;
use crate::rollback::RollbackCall;
use crate::version::{Item, Key, Value, VersionId};
use crate::{wire_enum, wire_struct};
use rheostat_clock::Timestamp;
use smallvec::SmallVec;

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
    /// disk; answers how far each one is, then or at the deadline. Refused if what was written here at `upto` can be lost: with the power under [`crate::store::Durability::Interval`], or with a disk.
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
            Operation::Get { dial, .. } | Operation::Siblings { dial, .. } | Operation::ReadTransaction { dial, .. } => dial.within_us,
            Operation::Counter { dial, .. } | Operation::Transact { dial, .. } if !self.writes() => dial.within_us,
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

wire_struct!(Guard { key, version });
wire_struct!(TestWrite { test, expected, target, then, otherwise });

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
