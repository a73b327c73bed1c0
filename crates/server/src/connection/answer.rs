//! Outcomes as RESP replies.

use super::info::version_text;
use super::state::LastAnswer;
use crate::topology::Topology;
use rheostat_core::feed::{Batch, Change, Conflict};
use rheostat_core::operation::{Explained, Failure, Level, Outcome, Quality, Read};
use rheostat_resp::ReplyWriter;
use rheostat_resp::command::TimeOf;

/// The reply where a partition server is at fault.
pub(super) const STRANGE: &str = "ERR the partition server answered something else than was asked";

/// What a key with one version takes in memory beside the bytes of key and value, about.
const VERSION_BYTES: i64 = 128;

/// How the outcome of a request's one operation is told.
#[derive(Clone, Copy, Debug)]
pub(super) enum Render {
    /// OK, or null if a condition did not hold.
    Ok,
    /// The value.
    Get,
    /// Its length.
    StrLen,
    /// Bytes of memory, beside a key of so many.
    MemoryUsage {
        /// Length of the key.
        key_bytes: u32,
    },
    /// `string` or `none`.
    Type,
    /// 1 if it is there.
    Exists,
    /// Its expiry.
    TimeOf(TimeOf<'static>),
    /// The values.
    Many,
    /// The value as it was.
    Before,
    /// 1 if something changed.
    Changed,
    /// 1 if the tested key was as expected, 0 if not, null if that is not decided yet.
    Tested,
    /// The versions.
    Explain,
    /// The counter's value.
    Counted,
    /// The counters' values.
    CountedAll,
    /// A number.
    Count,
    /// PONG.
    Pong,
}

impl Render {
    /// Writes the reply; says whether it is not an error. `last` is what RHEO QUALITY tells.
    #[inline]
    pub(super) fn write(self, outcome: &Outcome, now_ms: u64, last: &mut LastAnswer, writer: &mut ReplyWriter<'_>) -> bool {
        match (self, outcome) {
            (_, Outcome::Failed(failure)) => {
                writer.error(&failure_text(failure));
                return false;
            }
            (Render::Get, Outcome::Read(read, quality)) => {
                *last = LastAnswer { quality: Some(*quality), version: read.version, achieved: None };
                writer.bulk_or_null(read.value.as_deref());
            }
            (Render::Ok, Outcome::Written(version)) => {
                *last = LastAnswer { quality: None, version: Some(*version), achieved: None };
                writer.ok();
            }
            (Render::Ok, Outcome::Kept(version)) => {
                // It is written here, and nobody else knows of it.
                let quality = Some(Quality { level: Level::Eventual, staleness_ms: None });
                *last = LastAnswer { quality, version: Some(*version), achieved: None };
                writer.ok();
            }
            (Render::Ok, Outcome::Changed { version, .. }) => {
                *last = LastAnswer { quality: None, version: *version, achieved: None };
                match version {
                    Some(_) => writer.ok(),
                    None => writer.null(),
                }
            }
            (_, Outcome::Read(read, quality)) => {
                *last = LastAnswer { quality: Some(*quality), version: read.version, achieved: None };
                self.write_read(read, now_ms, writer);
            }
            (Render::Before, Outcome::Changed { before, version }) => {
                *last = LastAnswer { quality: None, version: *version, achieved: None };
                writer.bulk_or_null(before.value.as_deref());
            }
            (Render::Tested, Outcome::Tested { equal, version, .. }) => {
                *last = LastAnswer { quality: None, version: *version, achieved: None };
                writer.integer((*equal).into());
            }
            (Render::Tested, Outcome::Written(version) | Outcome::Kept(version)) => {
                let kept = matches!(outcome, Outcome::Kept(_)).then_some(Quality { level: Level::Eventual, staleness_ms: None });
                *last = LastAnswer { quality: kept, version: Some(*version), achieved: None };
                writer.null();
            }
            (Render::Changed, Outcome::Changed { version, .. }) => {
                *last = LastAnswer { quality: None, version: *version, achieved: None };
                writer.integer(version.is_some().into());
            }
            (Render::Many, Outcome::Many(reads, quality)) => {
                *last = LastAnswer { quality: Some(*quality), version: None, achieved: None };
                writer.array(reads.len());
                for read in reads {
                    writer.bulk_or_null(read.value.as_deref());
                }
            }
            (Render::Counted, Outcome::Counted(values, version)) if values.len() == 1 => {
                *last = LastAnswer { quality: None, version: Some(*version), achieved: None };
                writer.integer(values[0]);
            }
            (Render::CountedAll, Outcome::Counted(values, version)) => {
                *last = LastAnswer { quality: None, version: Some(*version), achieved: None };
                writer.array(values.len());
                values.iter().for_each(|value| writer.integer(*value));
            }
            (Render::Ok, Outcome::Counter(view)) => {
                *last = LastAnswer { quality: Some(view.quality), version: None, achieved: None };
                writer.ok();
            }
            (Render::Count, Outcome::Count(count)) => writer.integer(i64::try_from(*count).unwrap_or(i64::MAX)),
            (Render::Pong, _) => writer.simple("PONG"),
            (Render::Ok, Outcome::Count(_)) => writer.ok(),
            _ => {
                writer.error(STRANGE);
                return false;
            }
        }
        true
    }

    fn write_read(self, read: &Read, now_ms: u64, writer: &mut ReplyWriter<'_>) {
        match self {
            Render::StrLen => writer.integer(read.value.as_ref().map_or(0, |value| value.len() as i64)),
            Render::MemoryUsage { key_bytes } => match &read.value {
                Some(value) => writer.integer(i64::from(key_bytes) + value.len() as i64 + VERSION_BYTES),
                None => writer.null(),
            },
            Render::Type => writer.simple(if read.value.is_some() { "string" } else { "none" }),
            Render::Exists => writer.integer(read.value.is_some().into()),
            Render::TimeOf(time) => writer.integer(time.answer(read, now_ms)),
            _ => writer.bulk_or_null(read.value.as_deref()),
        }
    }
}

pub(super) fn write_explained(versions: &[Explained], topology: &Topology, writer: &mut ReplyWriter<'_>) {
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
        writer.bulk(version.dependencies.as_bytes());
        writer.bulk(b"hidden");
        writer.bulk_or_null(version.hidden.as_deref().map(str::as_bytes));
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

/// A failure as an error reply, its kind first.
pub(super) fn failure_text(failure: &Failure) -> String {
    match failure {
        Failure::Timeout(_) => format!("TIMEOUT {failure}"),
        Failure::Busy(what) => format!("BUSY {what}"),
        Failure::Session(why) => format!("SESSION {why}"),
        Failure::Refused(why) => format!("ERR {why}"),
        Failure::Unreachable(_) => format!("CLUSTERDOWN {failure}"),
        Failure::Storage(_) => format!("STORAGE {failure}"),
        Failure::OutOfRights(_) => format!("NORIGHTS {failure}"),
        Failure::Insufficient(_) => format!("NOREPLICAS {failure}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rheostat_core::ids::PartitionId;

    #[test]
    fn the_class_of_an_error_is_its_type_and_not_its_words() {
        let classes = [
            (Failure::Session("this session is not one of protocol causal".into()), "SESSION"),
            (Failure::Refused("session is a word like any other".into()), "ERR"),
            (Failure::Busy("session".into()), "BUSY"),
            (Failure::Timeout("session".into()), "TIMEOUT"),
            (Failure::Storage("session".into()), "STORAGE"),
            (Failure::Unreachable(PartitionId(1)), "CLUSTERDOWN"),
        ];
        for (failure, class) in classes {
            let text = failure_text(&failure);
            assert_eq!(text.split(' ').next(), Some(class), "{text}");
        }
    }
}
