//! No acknowledged write is lost, and deleted data does not come back.
//!
//! - In the end each data center has, of each key, at least every acknowledged write; except those that the history says
//!   may be lost ([`History::lost_allowed`]). A key may be absent if a delete at least as great exists.
//! - Once a delete is in a session's causal past, a read of level causal never returns a smaller version's value. Where sessions are
//!   promised nothing, since a server may forget what it has shown, they can see the older value until the delete comes again.
//!
//! The final state may be read in several rounds, before and after tombstones are collected: each must hold.

use crate::convergence::{describe, require_finals};
use crate::history::{History, KeyId};
use crate::past::{CausalPast, Edge, Memory, is_delete};
use crate::verdict::{Promise, Report, Violation};
use crate::written::{Index, Rank};

/// Checks the final reads against the acknowledged writes, and all reads against the deletes before them.
///
/// # Errors
///
/// The first violation.
pub fn check(history: &History) -> Result<Report, Violation> {
    check_past(&CausalPast::of(&Index::of(history)?, Memory::Causal)?, true)
}

/// With `sessions`, sessions are promised something.
pub(crate) fn check_past(past: &CausalPast<'_, '_>, sessions: bool) -> Result<Report, Violation> {
    require_finals(past.index)?;
    let mut report = Report::new(Promise::Durability);
    if sessions {
        check_resurrected(past, &mut report)?;
    }
    check_final(past.index, &mut report)?;
    Ok(report)
}

fn check_resurrected(past: &CausalPast<'_, '_>, report: &mut Report) -> Result<(), Violation> {
    let index = past.index;
    for (id, event) in index.history.numbered().filter(|(_, event)| event.is_causal_read()) {
        for (key, observed) in event.observations() {
            let required = past.before(id, past.table()).get(key.index()).copied().unwrap_or(0);
            if !is_delete(index.ranked(key, required)) {
                continue;
            }
            let Some(rank) = index.resolve(key, observed).rank else { continue };
            report.count(true);
            if observed.value.is_some() && rank < required {
                let trace = past.chain(id, key, required, |here, edge| here != id || edge == Edge::Session);
                let what = format!("{id} found {}, and it knew {}", index.describe(key, rank), index.describe(key, required));
                return Err(Violation::new(index.history, Promise::Durability, "deleted data does not come back", what, trace));
            }
        }
    }
    Ok(())
}

fn check_final(index: &Index<'_>, report: &mut Report) -> Result<(), Violation> {
    let history = index.history;
    let mut required: Vec<Rank> = vec![0; history.keys.len()];
    for (id, event) in history.numbered() {
        if event.acknowledged().is_none() || history.lost_allowed.binary_search(&id).is_ok() {
            continue;
        }
        for item in event.items() {
            match index.version_of(id).and_then(|version| index.rank(item.key, version)) {
                Some(rank) => required[item.key.index()] = required[item.key.index()].max(rank),
                None => report.skipped += 1,
            }
        }
    }
    for read in &history.finals {
        let needed = required[read.key.index()];
        let Some(rank) = index.resolve(read.key, read.observed).rank else {
            report.skipped += 1;
            continue;
        };
        report.count(needed > 0);
        let fine = if read.observed.is_absent() { index.may_be_absent(read.key, needed, read.at_us) } else { rank >= needed };
        if !fine {
            return Err(lost(index, read.key, needed, &describe(index, read)));
        }
    }
    Ok(())
}

fn lost(index: &Index<'_>, key: KeyId, rank: Rank, found: &str) -> Violation {
    let what = format!("{} is {found}, and {} was acknowledged", index.history.key_name(key), index.describe(key, rank));
    let writer = index.ranked(key, rank).and_then(|known| known.writer);
    let trace = writer.map(|writer| (writer, "acknowledged".to_owned())).into_iter().collect();
    Violation::new(index.history, Promise::Durability, "no acknowledged write is lost", what, trace)
}
