//! Commands that are one operation on one key.

use super::{Command, Parsed};
use crate::render::Render;
use rheostat_core::counter::{CounterCall, Scope};
use rheostat_core::dial::Dial;
use rheostat_core::operation::{Action, Change, Operation};
use rheostat_core::version::{Item, Key, Value};

/// One operation on one key, and how its outcome is told.
#[derive(Clone, Debug)]
pub struct One<'a> {
    /// The key.
    pub key: &'a [u8],
    /// What is done to it.
    pub act: Act,
    /// How the outcome is told.
    pub render: Render,
}

/// What is done to a key.
#[derive(Clone, PartialEq, Debug)]
pub enum Act {
    /// It is read.
    Read,
    /// A value is written, or a deletion, whatever the key was; and when it expires, in milliseconds since the Unix epoch, 0 if never.
    Put(Option<Value>, u64),
    /// It is read, and written by what it was.
    Change(Change),
    /// This is added to its counter.
    Add(i64),
    /// Its versions are explained.
    Explain,
}

impl PartialEq for One<'_> {
    /// The same is done to the same key. Functions that write replies have no identity to compare.
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key && self.act == other.act
    }
}

impl One<'_> {
    /// The operation, on a connection of this dial and this scope of updates of counters.
    #[inline]
    pub fn operation(self, dial: Dial, scope: Scope) -> Operation {
        let key: Key = self.key.into();
        match self.act {
            Act::Read => Operation::Get { key, dial },
            Act::Put(value, expires_ms) => Operation::Put { items: [Item { key, value, expires_ms }].into(), dial },
            Act::Change(change) => Operation::Change { key, change, dial },
            Act::Add(by) => Operation::Counter { call: CounterCall::Add { changes: [(key, by)].into(), scope, name: None }, dial },
            Act::Explain => Operation::Explain { key },
        }
    }

    /// The command of a transaction; `None` if it cannot be in one.
    pub fn action(self) -> Option<Action> {
        let key: Key = self.key.into();
        Some(match self.act {
            Act::Read => Action::Get(key),
            Act::Put(value, expires_ms) => Action::Put(Item { key, value, expires_ms }),
            Act::Change(change) => Action::Change(key, change),
            Act::Add(by) => Action::Add(key, by),
            Act::Explain => return None,
        })
    }
}

#[inline]
pub(super) fn read(key: &[u8], render: Render) -> Parsed<'_> {
    Ok(Command::One(One { key, act: Act::Read, render }))
}

pub(super) fn change(key: &[u8], change: Change, render: Render) -> Parsed<'_> {
    Ok(Command::One(One { key, act: Act::Change(change), render }))
}

pub(super) fn add(key: &[u8], by: i64) -> Parsed<'_> {
    Ok(Command::One(One { key, act: Act::Add(by), render: Render::Counted }))
}
