//! Causal+ consistency for GET and ROTX with last-writer-wins.
//!
//! Definition 14 with O = R = {GET, ROTX} and f of Observation 8: whatever version of a key is in a session's causal past
//! (what it wrote, what it read, and what those depend on), each read of that key returns it or a greater one. A key may
//! read as absent only if the greatest version in the past is a delete, or some greater delete exists: its tombstone may have
//! been collected. Besides: happens-before is acyclic (nobody reads from the future), and a version's timestamp is greater than
//! that of everything that it depends on (Observation 7).
//!
//! That what a transaction returns agrees with itself is [`crate::snapshot`]'s question.

use crate::history::{EventId, History};
use crate::past::{CausalPast, Edge, Memory};
use crate::reads::{self, Missed};
use crate::verdict::{Promise, Report, Violation};
use crate::written::Index;
use rheostat_core::dial::Level;

/// Checks causal+ consistency of the reads of level causal.
///
/// # Errors
///
/// The first violation.
pub fn check(history: &History) -> Result<Report, Violation> {
    check_past(&CausalPast::of(&Index::of(history)?, Memory::Causal)?)
}

pub(crate) fn check_past(past: &CausalPast<'_, '_>) -> Result<Report, Violation> {
    let mut report = Report::new(Promise::Causal);
    // A stronger level needs no timestamps for its order.
    for event in past.order().iter().filter(|event| past.index.history.event(**event).level() == Some(Level::Causal)) {
        check_timestamp(past, *event, &mut report)?;
    }
    reads::compare_all(past, Level::Causal, |event| past.before(event, past.table()), &mut report).map_err(|missed| describe(past, &missed))?;
    Ok(report)
}

fn check_timestamp(past: &CausalPast<'_, '_>, event: EventId, report: &mut Report) -> Result<(), Violation> {
    let history = past.index.history;
    let Some(version) = past.index.version_of(event) else { return Ok(()) };
    let cause = past.greatest_before(event);
    report.count(cause.is_some());
    match cause {
        Some((id, key)) if id.written >= version.written => {
            let name = history.key_name(key);
            let what = format!("{event} wrote version {version}, and it depends on version {id} of {name}, which is not older");
            let rank = past.index.rank(key, id).unwrap_or(0);
            let trace = past.chain(event, key, rank, |_, _| true);
            Err(Violation::new(history, Promise::Causal, "Observation 7: v1 dep v2 implies v1.ut > v2.ut", what, trace))
        }
        _ => Ok(()),
    }
}

fn describe(past: &CausalPast<'_, '_>, missed: &Missed) -> Violation {
    // The session's own past only: what the same transaction returned for other keys is not at issue here.
    let trace = past.chain(missed.event, missed.key, missed.required, |here, edge| here != missed.event || edge == Edge::Session);
    let session = past.index.history.event(missed.event).session;
    let by_session = trace.iter().all(|(event, _)| past.index.history.event(*event).session == session);
    let definition = match trace.first() {
        Some((first, _)) if by_session && past.index.version_of(*first).is_some() => "Definition 14, what a client wrote is visible+ to it",
        Some(_) if by_session => "Definition 14, what a client read remains visible+ to it",
        _ => "Definition 14, what a read version depends on is visible+",
    };
    let (returned, required) = (past.index.describe(missed.key, missed.returned), past.index.describe(missed.key, missed.required));
    let what = format!("{} found {returned}, and {required} is in its causal past", missed.event);
    Violation::new(past.index.history, Promise::Causal, definition, what, trace)
}
