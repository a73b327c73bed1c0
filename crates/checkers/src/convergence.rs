//! After healing, every data center has the same version of each key, and it is the greatest: Definition 16 with
//! last-writer-wins, at the end of a history.
//!
//! The greatest is the greatest version that any reply or read of the history told of, leaving out those that may be lost. If
//! that is a delete, the key may be absent or a tombstone; if it is a value that expires, one data center may have been read before that and another one after it.

use crate::history::{FinalRead, History, KeyId};
use crate::past::is_delete;
use crate::verdict::{Promise, Report, Violation};
use crate::written::{Index, Rank};
use rheostat_clock::DcId;
use std::collections::BTreeMap;

const DEFINITION: &str = "Definition 16, convergence";

/// Checks the final reads. A history that lacks one of a key that it wrote, in some data center, makes no sense here.
///
/// # Errors
///
/// The first violation.
pub fn check(history: &History) -> Result<Report, Violation> {
    check_index(&Index::of(history)?)
}

/// Refuses a history without a final read in each data center of each key that may have been written.
pub(crate) fn require_finals(index: &Index<'_>) -> Result<(), Violation> {
    let history = index.history;
    let mut written = vec![false; history.keys.len()];
    history.events.iter().flat_map(|event| event.items()).for_each(|item| written[item.key.index()] = true);
    let mut seen = vec![false; history.keys.len() * usize::from(history.data_centers)];
    for read in &history.finals {
        seen[read.dc.index() * written.len() + read.key.index()] = true;
    }
    for (place, seen) in seen.iter().enumerate() {
        let (dc, key) = (place / written.len(), place % written.len());
        if written[key] && !seen {
            return Err(Violation::malformed(format!("no final read of {} in data center {dc}", history.key_name(KeyId(key as u32)))));
        }
    }
    if history.finals.is_empty() {
        return Err(Violation::malformed("no final reads".into()));
    }
    Ok(())
}

pub(crate) fn check_index(index: &Index<'_>) -> Result<Report, Violation> {
    require_finals(index)?;
    let mut report = Report::new(Promise::Convergence);
    let mut first: BTreeMap<KeyId, &FinalRead> = BTreeMap::new();
    for read in &index.history.finals {
        let other = *first.entry(read.key).or_insert(read);
        if other.observed.value != read.observed.value && !has_expired(index, other, read) && !has_expired(index, read, other) {
            let name = index.history.key_name(read.key);
            let what = format!("{name} is {} and {}", describe(index, other), describe(index, read));
            return Err(violation(index, what, read.key, 0));
        }
        let greatest = greatest(index, read.key);
        let Some(rank) = index.resolve(read.key, read.observed).rank else {
            report.skipped += 1;
            continue;
        };
        report.count(greatest > 0);
        let fine = if read.observed.is_absent() { index.may_be_absent(read.key, greatest, read.at_us) } else { rank >= greatest };
        if !fine {
            let (found, best) = (describe(index, read), index.describe(read.key, greatest));
            let what = format!("{} is {found}, and the greatest version is {best}", index.history.key_name(read.key));
            return Err(violation(index, what, read.key, greatest));
        }
    }
    Ok(report)
}

/// Whether `absent` has no value because that of `present` may have expired by then.
fn has_expired(index: &Index<'_>, absent: &FinalRead, present: &FinalRead) -> bool {
    let writer = present.observed.value.and_then(|value| index.writer_of(value));
    let expiry = writer.and_then(|writer| index.history.expiry(writer));
    absent.observed.value.is_none() && expiry.is_some_and(|expiry| expiry.from_us <= absent.at_us)
}

/// The greatest version of `key` that cannot be lost.
fn greatest(index: &Index<'_>, key: KeyId) -> Rank {
    index.known(key).iter().rposition(|known| !known.lost_allowed).map_or(0, |place| place as Rank + 1)
}

pub(crate) fn describe(index: &Index<'_>, read: &FinalRead) -> String {
    let DcId(dc) = read.dc;
    let what = match (index.resolve(read.key, read.observed).rank, read.observed.value) {
        (Some(0), _) => "absent".to_owned(),
        (Some(rank), value) => {
            let id = index.ranked(read.key, rank).map(|known| known.id).unwrap_or_default();
            match value {
                Some(value) => format!("{} (version {id})", value.0),
                None => format!("deleted (version {id})"),
            }
        }
        (None, value) => value.map_or_else(|| "absent".to_owned(), |value| value.0.to_string()),
    };
    format!("{what} in data center {dc} at the end")
}

fn violation(index: &Index<'_>, what: String, key: KeyId, rank: Rank) -> Violation {
    let last = index.known(key).len() as Rank;
    let shown = if rank == 0 { last } else { rank };
    let why = if is_delete(index.ranked(key, shown)) { "deletes it last" } else { "writes the greatest version" };
    let trace = index.ranked(key, shown).and_then(|known| known.writer).map(|writer| (writer, why.to_owned()));
    Violation::new(index.history, Promise::Convergence, DEFINITION, what, trace.into_iter().collect())
}
