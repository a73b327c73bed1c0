//! What one read-only transaction returns is causally consistent: Definitions 17 and 18.
//!
//! For every version v1 that a transaction of level causal returns, and every version v2 that v1 depends on: if the
//! transaction read v2's key, it returned v2 or a greater version. Together with the session's past, which is visible+ too.
//! A put of several keys counts as one write: each of its versions depends on the others, so a transaction sees it whole or
//! not at all.

use crate::history::{EventId, History, KeyId};
use crate::past::{CausalPast, Memory};
use crate::reads::{self, Missed};
use crate::verdict::{Promise, Report, Violation};
use crate::written::Index;

/// Checks the read-only transactions of level causal.
///
/// # Errors
///
/// The first violation.
pub fn check(history: &History) -> Result<Report, Violation> {
    check_past(&CausalPast::of(&Index::of(history)?, Memory::Causal)?)
}

pub(crate) fn check_past(past: &CausalPast<'_, '_>) -> Result<Report, Violation> {
    let mut report = Report::new(Promise::Snapshot);
    for (id, event) in past.index.history.numbered() {
        if event.is_causal_read() && matches!(event.action, crate::history::Action::ReadTransaction { .. }) {
            let row = past.row(id, past.table());
            for (key, observed) in event.observations() {
                reads::compare(past, id, key, observed, row[key.index()], &mut report).map_err(|missed| describe(past, &missed))?;
            }
        }
    }
    Ok(report)
}

/// The put of several keys that this transaction saw through another key, and that wrote the missed version.
fn torn(past: &CausalPast<'_, '_>, event: EventId, key: KeyId, required: u32) -> Option<EventId> {
    let writer = past.index.ranked(key, required)?.writer?;
    past.reads_from(event).find(|(write, of)| *write == writer && *of != key).map(|(write, _)| write)
}

fn describe(past: &CausalPast<'_, '_>, missed: &Missed) -> Violation {
    let trace = past.chain(missed.event, missed.key, missed.required, |_, _| true);
    let (returned, required) = (past.index.describe(missed.key, missed.returned), past.index.describe(missed.key, missed.required));
    let (definition, what) = match torn(past, missed.event, missed.key, missed.required) {
        Some(put) => (
            "a put of several keys is seen whole or not at all",
            format!("{} saw part of {put}: it returned {returned} without {required}", missed.event),
        ),
        None => (
            "Definition 18, causal consistency for a set of versions",
            format!("{} returned {returned}, and what it returned besides, or its session, depends on {required}", missed.event),
        ),
    };
    Violation::new(past.index.history, Promise::Snapshot, definition, what, trace)
}
