//! The four session guarantees, each for the operations that ask for it, in last-writer-wins order of the versions.
//!
//! Per key, as the dissertation defines them (§2.2), for every operation of a level that implies the guarantee:
//!
//! - **Monotonic reads** (Definition 4): a read that asks for it returns at least every version of that key that its session read before.
//! - **Read your writes** (Definition 5): a read that asks for it returns at least every version of that key that its session wrote before.
//! - **Monotonic writes** (Definition 6): a write that asks for it is greater than its session's earlier writes of that key, so that nobody who has it
//!   can read one of those.
//! - **Writes follow reads** (Definition 7): a write that asks for it is greater than the versions of that key that its session had read; a change
//!   has read what it found.
//!
//! What was read and written before counts whatever its level, except `eventual`: of that the session remembers nothing. It counts wherever it was
//! done: sessions may move between data centers and replicas. A level without session guarantees (`eventual`, `local`) binds nothing.
//!
//! Among operations of level causal and stronger, two of them hold across keys, as far as sessions can observe it:
//!
//! - **Monotonic writes**: once a session has read a write w, it reads at least what w's session had written before, of any key.
//! - **Writes follow reads**: once a session has read a write w, it reads at least what w's session had read before, of any key.
//!
//! A session is its own events and those before a token that it took over. Unlike [`crate::causal`], nothing is passed on
//! through a third session, and nothing is demanded within one transaction.

use crate::history::{EventId, History};
use crate::past::{CausalPast, Edge, Memory};
use crate::reads::{self, Missed};
use crate::verdict::{Promise, Report, Violation};
use crate::written::{Index, Rank};
use rheostat_core::dial::{Guarantees, Level};

/// A session guarantee.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Guarantee {
    /// Definition 5.
    ReadYourWrites,
    /// Definition 4.
    MonotonicReads,
    /// Definition 6.
    MonotonicWrites,
    /// Definition 7.
    WritesFollowReads,
}

impl Guarantee {
    /// All four.
    pub const ALL: [Guarantee; 4] = [Guarantee::ReadYourWrites, Guarantee::MonotonicReads, Guarantee::MonotonicWrites, Guarantee::WritesFollowReads];

    /// The promise that it is.
    pub const fn promise(self) -> Promise {
        match self {
            Guarantee::ReadYourWrites => Promise::ReadYourWrites,
            Guarantee::MonotonicReads => Promise::MonotonicReads,
            Guarantee::MonotonicWrites => Promise::MonotonicWrites,
            Guarantee::WritesFollowReads => Promise::WritesFollowReads,
        }
    }

    const fn definition(self) -> &'static str {
        match self {
            Guarantee::ReadYourWrites => "Definition 5, read your writes",
            Guarantee::MonotonicReads => "Definition 4, monotonic reads",
            Guarantee::MonotonicWrites => "Definition 6, monotonic writes",
            Guarantee::WritesFollowReads => "Definition 7, writes follow reads",
        }
    }

    /// The weakest level that has it.
    const fn level(self) -> Level {
        Level::Session(match self {
            Guarantee::ReadYourWrites => Guarantees::READ_YOUR_WRITES,
            Guarantee::MonotonicReads => Guarantees::MONOTONIC_READS,
            Guarantee::MonotonicWrites => Guarantees::MONOTONIC_WRITES,
            Guarantee::WritesFollowReads => Guarantees::WRITES_FOLLOW_READS,
        })
    }

    /// Whether it speaks of what a session wrote before; else of what it read.
    const fn of_writes(self) -> bool {
        matches!(self, Guarantee::ReadYourWrites | Guarantee::MonotonicWrites)
    }
}

/// Checks one session guarantee.
///
/// # Errors
///
/// The first violation.
pub fn check(history: &History, guarantee: Guarantee) -> Result<Report, Violation> {
    let index = Index::of(history)?;
    let (session, causal) = (CausalPast::of(&index, Memory::Session)?, CausalPast::of(&index, Memory::Causal)?);
    check_guarantee(&session, &causal, guarantee)
}

pub(crate) fn check_all(index: &Index<'_>, causal: &CausalPast<'_, '_>) -> Result<Vec<Report>, Violation> {
    let session = CausalPast::of(index, Memory::Session)?;
    Guarantee::ALL.into_iter().map(|guarantee| check_guarantee(&session, causal, guarantee)).collect()
}

fn in_session(edge: Edge) -> bool {
    matches!(edge, Edge::Session | Edge::Adopted)
}

/// What each event's session had done before it and in it, of what `guarantee` speaks of.
fn own(past: &CausalPast<'_, '_>, guarantee: Guarantee) -> Vec<Rank> {
    past.collect(in_session, |past, event, row, _| if guarantee.of_writes() { past.note_writes(event, row) } else { past.note_reads(event, row) })
}

fn check_guarantee(session: &CausalPast<'_, '_>, causal: &CausalPast<'_, '_>, guarantee: Guarantee) -> Result<Report, Violation> {
    let mut report = Report::new(guarantee.promise());
    let mine = own(session, guarantee);
    if matches!(guarantee, Guarantee::ReadYourWrites | Guarantee::MonotonicReads) {
        let compared = reads::compare_all(session, guarantee.level(), |event| session.before(event, &mine), &mut report);
        return compared.map(|()| report).map_err(|missed| describe(session, guarantee, &missed));
    }
    for event in session.order() {
        check_write(session, guarantee, *event, session.before(*event, &mine), &mut report)?;
    }
    // Across keys: of everything that a session read, what the writer's session had done by then.
    let theirs = own(causal, guarantee);
    let required = causal.collect(in_session, |past, event, row, _| {
        for (write, _) in past.reads_from(event) {
            for (mine, theirs) in row.iter_mut().zip(past.before(write, &theirs)) {
                *mine = (*mine).max(*theirs);
            }
        }
    });
    let compared = reads::compare_all(causal, Level::Causal, |event| causal.before(event, &required), &mut report);
    compared.map(|()| report).map_err(|missed| describe(causal, guarantee, &missed))
}

/// A write that asks for the guarantee is greater than what its session did to the same key before; a change also than what it found.
fn check_write(past: &CausalPast<'_, '_>, guarantee: Guarantee, event: EventId, before: &[Rank], report: &mut Report) -> Result<(), Violation> {
    let record = past.index.history.event(event);
    let Some(version) = past.index.version_of(event).filter(|_| record.is_at(guarantee.level())) else { return Ok(()) };
    for item in record.items() {
        let found = record.observations().filter(|_| guarantee == Guarantee::WritesFollowReads);
        let found = found.filter_map(|(key, observed)| past.index.resolve(key, observed).rank).max().unwrap_or(0);
        let earlier = before.get(item.key.index()).copied().unwrap_or(0).max(found);
        report.count(earlier > 0);
        let Some(rank) = past.index.rank(item.key, version) else { continue };
        if rank <= earlier {
            let missed = Missed { event, key: item.key, returned: rank, required: earlier };
            let (mine, theirs) = (past.index.describe(item.key, rank), past.index.describe(item.key, earlier));
            let whose = if earlier == found { "which it found" } else { "before it in its session" };
            let what = format!("{event} wrote {mine}, which loses against {theirs}, {whose}");
            return Err(Violation::new(past.index.history, guarantee.promise(), guarantee.definition(), what, trace(past, guarantee, &missed, true)));
        }
    }
    Ok(())
}

fn trace(past: &CausalPast<'_, '_>, guarantee: Guarantee, missed: &Missed, session_only: bool) -> Vec<(EventId, String)> {
    let session_only = session_only || matches!(guarantee, Guarantee::ReadYourWrites | Guarantee::MonotonicReads);
    past.chain(missed.event, missed.key, missed.required, |here, edge| in_session(edge) || !session_only && here != missed.event)
}

fn describe(past: &CausalPast<'_, '_>, guarantee: Guarantee, missed: &Missed) -> Violation {
    let (returned, required) = (past.index.describe(missed.key, missed.returned), past.index.describe(missed.key, missed.required));
    let why = match guarantee {
        Guarantee::ReadYourWrites => "its session wrote",
        Guarantee::MonotonicReads => "its session read",
        Guarantee::MonotonicWrites => "its session read a write whose session had before written",
        Guarantee::WritesFollowReads => "its session read a write whose session had before read",
    };
    let what = format!("{} found {returned}, and {why} {required}", missed.event);
    Violation::new(past.index.history, guarantee.promise(), guarantee.definition(), what, trace(past, guarantee, missed, false))
}
