//! Rheostat's checkers: pure functions over recorded histories, one file per promise.
//!
//! A recorder (the simulator's clients, or real ones) fills a [`HistoryBuilder`]; the [`History`] that it gives is checked
//! by [`check_all`], or by one checker alone:
//!
//! | file | promise | from |
//! |---|---|---|
//! | [`written`] | every value that is read was written, by one write, under one version | dissertation §2.3, Observation 8 |
//! | [`expiry`] | a value is read until it expires, and not afterwards | |
//! | [`changes`] | a read-and-change has nothing between | |
//! | [`causal`] | causal+ consistency of GET and ROTX with last-writer-wins | Definitions 8–14, Observation 7 |
//! | [`snapshot`] | what one read-only transaction returns is causally consistent | Definitions 17 and 18 |
//! | [`sessions`] | the four session guarantees, for each operation that asks for them | Definitions 4–7 |
//! | [`durability`] | no acknowledged write is lost, no deleted data comes back | |
//! | [`linearizable`] | operations of level local or strong are linearizable | Herlihy and Wing, 1990 |
//! | [`convergence`] | after healing, every data center has the greatest version | Definition 16 |
//! | [`as_of`] | a read as of a time returns what had been written by then, everywhere; over a record of its own | document 000, section 6.1 |
//! | [`feed`] | a change feed tells every version once, a cause before its effects; over a record of its own | |
//! | [`recent`] | where one server takes all operations of a data center on a key, a read sees what was acknowledged there before it was asked | |
//! | [`rollback`] | after a rollback nobody reads what was rolled back, and nothing else is lost; over a record of its own | document 000, section 6.1 |
//! | [`siblings`] | values stand side by side until somebody has seen them, and quorums meet; over a record of its own | document 000, section 2 |
//! | [`test_writes`] | a test of a key and the write that it decides are one step; over a record of its own | document 004, section II |
//! | [`counters`] | counters stay within their bounds, and every update counts once; over a record of its own | document 002, sections II-C and III |
//!
//! Values are unique within a history, so what each read read is known, and every check but [`linearizable`] takes polynomial time; that one
//! says so when it gives up. A write
//! whose reply never came is *unknown*: it may have happened, and it has happened if anybody reads it.
//!
//! A value that expires ([`History::expiring`]) is to every checker one that may have been deleted, from when it may have expired by some clock; but read as expired it is
//! still the version that it is, so it never uncovers an older one. Expiries are not modelled by the checkers over records of their own but [`feed`] and [`siblings`], nor by [`rollback`],
//! nor by the forms of history that other checkers read.
//!
//! What the checkers do not model: operations that a session has under way
//! side by side (record them as two sessions that adopt each other's past), and reads of level `Eventual`, of which only
//! [`written`] asks anything.

pub mod as_of;
pub mod builder;
pub mod causal;
pub mod changes;
pub mod convergence;
mod counter_history;
pub mod counters;
pub mod durability;
pub mod expiry;
pub mod export;
pub mod feed;
pub mod history;
pub mod linearizable;
mod past;
mod reads;
pub mod recent;
pub mod rollback;
pub mod sessions;
pub mod siblings;
pub mod snapshot;
pub mod tallies;
pub mod test_writes;
mod text;
mod verdict;
pub mod written;

pub use builder::{HistoryBuilder, HistoryError};
pub use history::{Action, Condition, Event, EventId, Expiry, FinalRead, History, KeyId, Observation, Outcome, SessionId, UniqueValue, WriteItem};
pub use text::TextError;
pub use verdict::{Promise, Report, Violation};

use past::{CausalPast, Memory};
use rheostat_core::dial::Level;
use sessions::Guarantee;
use std::fmt;
use written::Index;

/// Which promises a keyspace makes. That every value read was written is always checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Promises {
    /// [`changes`].
    pub change: bool,
    /// [`causal`].
    pub causal: bool,
    /// [`snapshot`].
    pub snapshot: bool,
    /// [`sessions`], all four.
    pub sessions: bool,
    /// [`mod@linearizable`], for the operations of the levels that ask for it.
    pub linearizable: bool,
    /// [`convergence`]; the history must end in final reads.
    pub convergence: bool,
    /// [`durability`]; the history must end in final reads.
    pub durability: bool,
}

impl Promises {
    /// Every promise: what a causal keyspace makes.
    pub const fn causal() -> Promises {
        Promises { change: true, causal: true, snapshot: true, sessions: true, linearizable: false, convergence: true, durability: true }
    }

    /// What an eventual keyspace makes: convergence and durability.
    pub const fn eventual() -> Promises {
        Promises { change: true, causal: false, snapshot: false, sessions: false, linearizable: false, convergence: true, durability: true }
    }

    /// The checkers that hold them, in the order of checking.
    pub fn list(&self) -> Vec<Promise> {
        let asked = |promise: &Promise| match promise {
            Promise::WellFormed => false,
            Promise::Written | Promise::Expiry => true,
            Promise::Change => self.change,
            Promise::Causal => self.causal,
            Promise::Snapshot => self.snapshot,
            Promise::ReadYourWrites | Promise::MonotonicReads | Promise::MonotonicWrites | Promise::WritesFollowReads => self.sessions,
            Promise::Linearizable => self.linearizable,
            Promise::Convergence => self.convergence,
            Promise::Durability => self.durability,
        };
        Promise::ALL.into_iter().filter(asked).collect()
    }

    /// What a keyspace makes whose operations each ask for session guarantees or level local: those, and what an eventual one makes.
    pub const fn local() -> Promises {
        Promises { sessions: true, linearizable: true, ..Promises::eventual() }
    }

    /// What a keyspace makes whose reads achieve `level`.
    pub const fn of(level: Level) -> Promises {
        match level {
            Level::Eventual => Promises::eventual(),
            Level::Session(_) | Level::Local => Promises::local(),
            Level::Causal => Promises::causal(),
            Level::Strong => Promises::strong(),
        }
    }

    /// What a strong keyspace makes: everything but [`snapshot`], since each key of a transaction is linearizable for itself.
    pub const fn strong() -> Promises {
        Promises { linearizable: true, snapshot: false, ..Promises::causal() }
    }

    /// These promises without those about the final state, for a history that was recorded without final reads.
    pub const fn before_the_end(self) -> Promises {
        Promises { convergence: false, durability: false, ..self }
    }
}

/// What [`check_all`] checked, one report per promise, in the order of checking.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Summary {
    /// The reports.
    pub reports: Vec<Report>,
}

impl Summary {
    /// The report on `promise`, if it was checked.
    pub fn of(&self, promise: Promise) -> Option<&Report> {
        self.reports.iter().find(|report| report.promise == promise)
    }

    /// The promises of which this history could not have shown a violation: no comparison had anything to compare with.
    pub fn idle(&self) -> impl Iterator<Item = Promise> + '_ {
        self.reports.iter().filter(|report| report.is_idle()).map(|report| report.promise)
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for report in &self.reports {
            writeln!(f, "{report}")?;
        }
        Ok(())
    }
}

/// Checks `history` against one promise alone.
///
/// # Errors
///
/// The first violation found; of [`Promise::WellFormed`] or [`Promise::Written`] when the history does not even make sense,
/// and of [`Promise::Causal`] when happens-before has a cycle.
pub fn check(history: &History, promise: Promise) -> Result<Report, Violation> {
    let guarantee = |guarantee| sessions::check(history, guarantee);
    match promise {
        Promise::WellFormed | Promise::Written => written::check(history),
        Promise::Expiry => expiry::check(history),
        Promise::Change => changes::check(history),
        Promise::Causal => causal::check(history),
        Promise::Snapshot => snapshot::check(history),
        Promise::ReadYourWrites => guarantee(Guarantee::ReadYourWrites),
        Promise::MonotonicReads => guarantee(Guarantee::MonotonicReads),
        Promise::MonotonicWrites => guarantee(Guarantee::MonotonicWrites),
        Promise::WritesFollowReads => guarantee(Guarantee::WritesFollowReads),
        Promise::Linearizable => linearizable::check(history),
        Promise::Convergence => convergence::check(history),
        Promise::Durability => durability::check(history),
    }
}

/// Checks `history` against every promise of `promises`.
///
/// # Errors
///
/// The first violation found, in the order of the table above; or a violation of [`Promise::WellFormed`] when the history
/// itself makes no sense.
pub fn check_all(history: &History, promises: &Promises) -> Result<Summary, Violation> {
    let index = Index::of(history)?;
    let mut reports = vec![index.report()];
    if !history.expiring.is_empty() {
        reports.push(expiry::check_index(&index)?);
    }
    if promises.change {
        reports.push(changes::check_index(&index)?);
    }
    if promises.causal || promises.snapshot || promises.sessions || promises.durability {
        let past = CausalPast::of(&index, Memory::Causal)?;
        if promises.causal {
            reports.push(causal::check_past(&past)?);
        }
        if promises.snapshot {
            reports.push(snapshot::check_past(&past)?);
        }
        if promises.sessions {
            reports.extend(sessions::check_all(&index, &past)?);
        }
        if promises.durability {
            reports.push(durability::check_past(&past, promises.causal || promises.sessions)?);
        }
    }
    if promises.linearizable {
        reports.push(linearizable::check_index(&index)?);
    }
    if promises.convergence {
        reports.push(convergence::check_index(&index)?);
    }
    Ok(Summary { reports })
}
