//! What a user asks of counters, and what comes back. The counters themselves are in `rheostat-counters`.
//!
//! A counter is a number that every data center can change at once. Between bounds it never leaves them: each data center holds rights to decrement and to increment, and
//! changes the number only as far as its own rights go (document 002, section II-D). Without bounds it is a plain counter.

use crate::answer::Quality;
use crate::version::Key;
use crate::{wire_enum, wire_struct};
use rheostat_clock::DcId;
use smallvec::SmallVec;
use std::fmt;

/// How far an update of a counter may go for the rights that it needs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Scope {
    /// It is decided at once with the rights held here.
    #[default]
    Local,
    /// Rights are fetched from other data centers until they suffice or the deadline passes.
    Global,
}

impl Scope {
    /// Every scope.
    pub const ALL: [Scope; 2] = [Scope::Local, Scope::Global];

    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Scope::Local => "local",
            Scope::Global => "global",
        }
    }

    /// The scope called `name`, in any case.
    pub fn from_name(name: &str) -> Option<Scope> {
        Scope::ALL.into_iter().find(|scope| scope.name().eq_ignore_ascii_case(name))
    }
}

/// The name of an update, so that it is applied once however often it is sent. A client numbers its updates upwards and has one under way per counter.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct UpdateName {
    /// The client: a random number that no other client uses.
    pub client: u64,
    /// The client's number of this update; greater than those of its earlier updates.
    pub number: u64,
}

/// Which way a right allows the counter to go.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Direction {
    /// Rights to decrement, which a lower bound limits.
    Down,
    /// Rights to increment, which an upper bound limits.
    Up,
}

impl Direction {
    /// Both directions.
    pub const ALL: [Direction; 2] = [Direction::Down, Direction::Up];

    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Direction::Down => "down",
            Direction::Up => "up",
        }
    }

    /// The direction called `name`, in any case.
    pub fn from_name(name: &str) -> Option<Direction> {
        Direction::ALL.into_iter().find(|direction| direction.name().eq_ignore_ascii_case(name))
    }
}

/// A counter to be made.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NewCounter {
    /// It is never below this.
    pub lower: Option<i64>,
    /// It is never above this.
    pub upper: Option<i64>,
    /// Its value at first; within the bounds.
    pub initial: i64,
    /// Each data center's weight in the placement of the initial rights, in the order of the data centers; empty places them evenly.
    pub placement: Vec<u32>,
}

/// What a user asks of counters.
#[derive(Clone, PartialEq, Debug)]
pub enum CounterCall {
    /// Makes a counter; refused if the key is there.
    Create {
        /// Its key.
        key: Key,
        /// What it is to be.
        counter: NewCounter,
    },
    /// Adds to one counter, or to several of one partition: to all or to none. A key that is not there becomes a counter without bounds at 0; one with a decimal
    /// number becomes a counter without bounds at that number.
    Add {
        /// The counters, no key twice, and what is added to each; less than 0 decrements.
        changes: SmallVec<[(Key, i64); 1]>,
        /// Where rights may come from.
        scope: Scope,
        /// Its name, if it may be sent again.
        name: Option<UpdateName>,
    },
    /// The counter as it is known here.
    Look {
        /// Its key.
        key: Key,
    },
    /// Moves rights of this data center to another.
    Move {
        /// The counter's key.
        key: Key,
        /// Who gets them.
        to: DcId,
        /// Which rights.
        direction: Direction,
        /// How many.
        amount: u64,
    },
    /// Takes over the rights of a data center that is gone for ever. From then on nothing that it does to this counter counts; its operations there are refused when it comes back.
    Reclaim {
        /// The counter's key.
        key: Key,
        /// The data center that is gone.
        gone: DcId,
    },
}

impl CounterCall {
    /// The key that decides which partition serves it.
    pub fn key(&self) -> Option<&Key> {
        self.keys().next()
    }

    /// All keys that it names.
    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        let (one, several) = match self {
            CounterCall::Create { key, .. } | CounterCall::Look { key } | CounterCall::Move { key, .. } | CounterCall::Reclaim { key, .. } => {
                (Some(key), None)
            }
            CounterCall::Add { changes, .. } => (None, Some(changes.iter().map(|(key, _)| key))),
        };
        one.into_iter().chain(several.into_iter().flatten())
    }
}

/// A data center's part in a counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// It takes part.
    Member,
    /// Its rights are being reclaimed: not every other data center is known here to have stopped listening to it.
    Reclaiming,
    /// Its rights have gone to this data center.
    Reclaimed(DcId),
}

/// One data center's rights, as known where the counter was looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rights {
    /// The data center.
    pub dc: DcId,
    /// Rights to decrement; `None` without a lower bound.
    pub down: Option<u64>,
    /// Rights to increment; `None` without an upper bound.
    pub up: Option<u64>,
    /// Its part.
    pub standing: Standing,
}

/// A counter, as known where it was looked at.
#[derive(Clone, PartialEq, Debug)]
pub struct CounterView {
    /// Its value.
    pub value: i64,
    /// It is never below this.
    pub lower: Option<i64>,
    /// It is never above this.
    pub upper: Option<i64>,
    /// Per data center; the first is the one that was asked.
    pub rights: Vec<Rights>,
    /// How good the answer is.
    pub quality: Quality,
}

/// Why an update was not made: it would need rights that are not here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OutOfRights {
    /// The counter.
    pub key: Key,
    /// Its value as known here.
    pub value: i64,
    /// Which rights are missing.
    pub direction: Direction,
    /// How many are needed.
    pub needed: u64,
    /// How many this data center holds.
    pub here: u64,
    /// How many other data centers hold, as known here: with scope global, an update could succeed if these and `here` suffice.
    pub elsewhere: u64,
}

impl fmt::Display for OutOfRights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OutOfRights { key, value, direction, needed, here, elsewhere } = self;
        let verb = if *direction == Direction::Down { "decrement" } else { "increment" };
        write!(f, "counter {} is at {value} and needs {needed} rights to {verb}; here are {here}, ", String::from_utf8_lossy(key))?;
        match here.saturating_add(*elsewhere) >= *needed {
            true => write!(f, "elsewhere {elsewhere}: scope global may get them"),
            false => write!(f, "elsewhere {elsewhere}: scope global would not suffice"),
        }
    }
}

wire_enum!(Scope, "a scope", { 0 => Local, 1 => Global });
wire_enum!(Direction, "a direction", { 0 => Down, 1 => Up });
wire_enum!(Standing, "a standing", { 0 => Member, 1 => Reclaiming, 2 => Reclaimed(by) });
wire_enum!(CounterCall, "a call of a counter", {
    0 => Create { key, counter },
    1 => Add { changes, scope, name },
    2 => Look { key },
    3 => Move { key, to, direction, amount },
    4 => Reclaim { key, gone },
});
wire_struct!(UpdateName { client, number });
wire_struct!(NewCounter { lower, upper, initial, placement });
wire_struct!(Rights { dc, down, up, standing });
wire_struct!(CounterView { value, lower, upper, rights, quality });
wire_struct!(OutOfRights { key, value, direction, needed, here, elsewhere });
