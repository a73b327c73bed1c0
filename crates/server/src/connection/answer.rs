//! What outcomes say of themselves, and replies that name data centers.

use super::info::version_text;
use crate::topology::Topology;
use rheostat_core::answer::{Explained, Quality};
use rheostat_core::dial::Level;
use rheostat_core::feed::{Batch, Change, Conflict};
use rheostat_core::outcome::Outcome;
use rheostat_core::sla::Achieved;
use rheostat_core::version::VersionId;
use rheostat_resp::ReplyWriter;

/// How good the last answer was.
#[derive(Clone, Copy, Default)]
pub(super) struct LastAnswer {
    pub(super) quality: Option<Quality>,
    pub(super) version: Option<VersionId>,
    /// Of a read under a service level.
    pub(super) achieved: Option<Achieved>,
}

/// What `outcome` tells RHEO QUALITY; `None` if nothing.
#[inline]
pub(super) fn last_of(outcome: &Outcome) -> Option<LastAnswer> {
    let (quality, version) = match outcome {
        Outcome::Read(read, quality) => (Some(*quality), read.version),
        Outcome::Many(_, quality) => (Some(*quality), None),
        Outcome::Counter(view) => (Some(view.quality), None),
        Outcome::Written(version) | Outcome::Counted(_, version) => (None, Some(*version)),
        // It is written here, and nobody else knows of it.
        Outcome::Kept(version) => (Some(Quality { level: Level::Eventual, staleness_ms: None }), Some(*version)),
        Outcome::Changed { version, .. } | Outcome::Tested { version, .. } => (None, *version),
        _ => return None,
    };
    Some(LastAnswer { quality, version, achieved: None })
}

/// What stands in their place for who may see some keys only.
const COVERED: (&str, &str) = ("not shown: keys may be named there, and this user has rights to some only", "waits for what it depends on");

/// `covered`: no words that may name other keys.
pub(super) fn write_explained(versions: &[Explained], covered: bool, topology: &Topology, writer: &mut ReplyWriter<'_>) {
    writer.array(versions.len());
    for version in versions {
        writer.map(6);
        writer.bulk(b"version");
        writer.bulk(version_text(topology, version.id).as_bytes());
        writer.bulk(b"origin");
        writer.bulk(topology.dc_name(version.id.origin).as_bytes());
        writer.bulk(b"length");
        match version.length {
            Some(length) => writer.integer(i64::try_from(length).unwrap_or(i64::MAX)),
            None => writer.null(),
        }
        writer.bulk(b"expires_ms");
        writer.integer(i64::try_from(version.expires_ms).unwrap_or(i64::MAX));
        writer.bulk(b"dependencies");
        let (dependencies, hidden) = match covered {
            true => (COVERED.0, version.hidden.as_ref().map(|_| COVERED.1)),
            false => (version.dependencies.as_str(), version.hidden.as_deref()),
        };
        writer.bulk(dependencies.as_bytes());
        writer.bulk(b"hidden");
        writer.bulk_or_null(hidden.map(str::as_bytes));
    }
}

/// A batch of a change feed: position, kind of order, changes.
pub(super) fn write_batch(batch: &Batch, topology: &Topology, writer: &mut ReplyWriter<'_>) {
    writer.array(3);
    writer.bulk(batch.position.to_string().as_bytes());
    writer.bulk(batch.kind.name().as_bytes());
    writer.array(batch.changes.len());
    batch.changes.iter().for_each(|(_, change)| write_change(change, topology, writer));
}

fn write_change(change: &Change, topology: &Topology, writer: &mut ReplyWriter<'_>) {
    writer.map(7);
    writer.bulk(b"key");
    writer.bulk(&change.key);
    writer.bulk(b"operation");
    writer.bulk(if change.value.is_some() { b"set" } else { b"del" });
    writer.bulk(b"value");
    writer.bulk_or_null(change.value.as_deref());
    writer.bulk(b"version");
    writer.bulk(version_text(topology, change.version).as_bytes());
    writer.bulk(b"origin");
    writer.bulk(topology.dc_name(change.version.origin).as_bytes());
    writer.bulk(b"expires_ms");
    writer.integer(i64::try_from(change.expires_ms).unwrap_or(i64::MAX));
    writer.bulk(b"over");
    writer.bulk_or_null(change.over.map(|over| version_text(topology, over)).as_deref().map(str::as_bytes));
}

/// Winners and losers, the newest first.
pub(super) fn write_conflicts(conflicts: &[Conflict], topology: &Topology, writer: &mut ReplyWriter<'_>) {
    writer.array(conflicts.len());
    for Conflict { winner, loser } in conflicts {
        writer.map(2);
        for (name, version) in [("winner", winner), ("loser", loser)] {
            writer.bulk(name.as_bytes());
            writer.map(4);
            writer.bulk(b"version");
            writer.bulk(version_text(topology, version.version).as_bytes());
            writer.bulk(b"origin");
            writer.bulk(topology.dc_name(version.version.origin).as_bytes());
            writer.bulk(b"written_ms");
            writer.integer(i64::try_from(version.version.written.millis()).unwrap_or(i64::MAX));
            writer.bulk(b"value");
            writer.bulk_or_null(version.value.as_deref());
        }
    }
}
