//! The four session guarantees, for a store of versions in last-writer-wins order. The per-key definitions 4 to 7 speak
//! of one key; here they are extended across keys, as far as sessions can observe them:
//!
//! - **Read your writes** (Definition 5): a read returns at least every version of that key that its session wrote.
//! - **Monotonic reads** (Definition 4): a read returns at least every version of that key that its session read.
//! - **Monotonic writes** (Definition 6): a session's write is greater than its earlier writes of the same key; and once a
//!   session has read a write w, it reads at least what w's session had written before, of any key.
//! - **Writes follow reads** (Definition 7): a session's write is greater than the versions of the same key that the session
//!   had read; and once a session has read a write w, it reads at least what w's session had read before, of any key.
//!
//! A session is its own events and those before a token that it took over. Unlike [`crate::causal`], nothing is passed on
//! through a third session, and nothing is demanded within one transaction.

use crate::history::{EventId, History};
use crate::past::{CausalPast, Edge};
use crate::reads::{self, Missed};
use crate::verdict::{Promise, Report, Violation};
use crate::written::{Index, Rank};

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
            Guarantee::MonotonicWrites => "Definition 6 across keys, monotonic writes",
            Guarantee::WritesFollowReads => "Definition 7 across keys, writes follow reads",
        }
    }
}

/// Checks one session guarantee.
///
/// # Errors
///
/// The first violation.
pub fn check(history: &History, guarantee: Guarantee) -> Result<Report, Violation> {
    check_guarantee(&CausalPast::of(&Index::of(history)?)?, guarantee)
}

pub(crate) fn check_past(past: &CausalPast<'_, '_>) -> Result<Vec<Report>, Violation> {
    Guarantee::ALL.into_iter().map(|guarantee| check_guarantee(past, guarantee)).collect()
}

fn in_session(edge: Edge) -> bool {
    matches!(edge, Edge::Session | Edge::Adopted)
}

fn check_guarantee(past: &CausalPast<'_, '_>, guarantee: Guarantee) -> Result<Report, Violation> {
    let mut report = Report::new(guarantee.promise());
    let own = match guarantee {
        Guarantee::ReadYourWrites | Guarantee::MonotonicWrites => past.collect(in_session, |past, event, row, _| past.note_writes(event, row)),
        Guarantee::MonotonicReads | Guarantee::WritesFollowReads => past.collect(in_session, |past, event, row, _| past.note_reads(event, row)),
    };
    let required = match guarantee {
        Guarantee::ReadYourWrites | Guarantee::MonotonicReads => own,
        Guarantee::MonotonicWrites | Guarantee::WritesFollowReads => {
            for event in past.order() {
                check_write(past, guarantee, *event, past.before(*event, &own), &mut report)?;
            }
            // Of everything that a session read: what the writer's session had done by then.
            past.collect(in_session, |past, event, row, _| {
                for (write, _) in past.reads_from(event) {
                    for (mine, theirs) in row.iter_mut().zip(past.before(write, &own)) {
                        *mine = (*mine).max(*theirs);
                    }
                }
            })
        }
    };
    reads::compare_all(past, |event| past.before(event, &required), &mut report).map_err(|missed| describe(past, guarantee, &missed))?;
    Ok(report)
}

/// A write is greater than what its session did to the same key before.
fn check_write(past: &CausalPast<'_, '_>, guarantee: Guarantee, event: EventId, before: &[Rank], report: &mut Report) -> Result<(), Violation> {
    let Some(version) = past.index.version_of(event) else { return Ok(()) };
    for item in past.index.history.event(event).items() {
        let earlier = before.get(item.key.index()).copied().unwrap_or(0);
        report.count(earlier > 0);
        let Some(rank) = past.index.rank(item.key, version) else { continue };
        if rank <= earlier {
            let missed = Missed { event, key: item.key, returned: rank, required: earlier };
            let (mine, earlier) = (past.index.describe(item.key, rank), past.index.describe(item.key, earlier));
            let what = format!("{event} wrote {mine}, which loses against {earlier} before it in its session");
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
