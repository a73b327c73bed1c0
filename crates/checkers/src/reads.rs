//! One read compared with what it must at least return.

use crate::history::{EventId, KeyId, Observation};
use crate::past::CausalPast;
use crate::verdict::Report;
use crate::written::Rank;
use rheostat_core::dial::Level;

/// A read that returned less than it had to.
pub(crate) struct Missed {
    pub(crate) event: EventId,
    pub(crate) key: KeyId,
    /// What it returned.
    pub(crate) returned: Rank,
    /// What it had to return, or something greater.
    pub(crate) required: Rank,
}

/// Compares what `event` read of `key` with `required`, and counts it. Visible+ of Definition 13 with last-writer-wins:
/// the returned version is the required one or wins over it. An absent key is all right if what deletes it may be.
pub(crate) fn compare(
    past: &CausalPast<'_, '_>,
    event: EventId,
    key: KeyId,
    observed: Observation,
    required: Rank,
    report: &mut Report,
) -> Result<(), Missed> {
    let index = past.index;
    let Some(returned) = index.resolve(key, observed).rank else {
        report.skipped += 1;
        return Ok(());
    };
    report.count(required > 0);
    let record = index.history.event(event);
    let until_us = record.completed_us.unwrap_or(record.invoked_us);
    let fine = if observed.is_absent() { index.may_be_absent(key, required, until_us) } else { returned >= required };
    if fine { Ok(()) } else { Err(Missed { event, key, returned, required }) }
}

/// Compares everything that reads of level `level` or stronger returned with `required(event)`: a row of ranks by key, or an empty one.
pub(crate) fn compare_all<'t>(
    past: &CausalPast<'_, '_>,
    level: Level,
    required: impl Fn(EventId) -> &'t [Rank],
    report: &mut Report,
) -> Result<(), Missed> {
    for (id, event) in past.index.history.numbered() {
        if event.has_read() && event.is_at(level) {
            let row = required(id);
            for (key, observed) in event.observations() {
                compare(past, id, key, observed, row.get(key.index()).copied().unwrap_or(0), report)?;
            }
        }
    }
    Ok(())
}
