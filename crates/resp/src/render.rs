//! Outcomes of operations as replies.

use crate::ReplyWriter;
use rheostat_core::answer::Read;
use rheostat_core::failure::Failure;
use rheostat_core::outcome::Outcome;

/// The reply where a partition server is at fault.
pub const STRANGE: &str = "ERR the partition server answered something else than was asked";

/// What a reply is made of.
pub struct Seen<'a> {
    /// The key as it was read, or as it was before its change.
    pub read: &'a Read,
    /// Whether the change was made; false of a read.
    pub changed: bool,
    /// When it was asked for, in milliseconds since the Unix epoch.
    pub now_ms: u64,
}

/// Writes one reply, of an outcome and of a number that the request gave beside.
pub type Tell = fn(&Seen<'_>, u64, &mut ReplyWriter<'_>);

/// How the outcome of a request's one operation is told.
#[derive(Clone, Copy, Debug)]
pub enum Render {
    /// OK, or null if a condition did not hold.
    Ok,
    /// The value.
    Get,
    /// What this writes of what was read, or was there before a change.
    Told(Tell, u64),
    /// The values.
    Many,
    /// The value as it was.
    Before,
    /// 1 if the tested key was as expected, 0 if not, null if that is not decided yet.
    Tested,
    /// The versions. Names of data centers are in them, so it is the server that writes them.
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
    /// 1 if something changed, else 0.
    pub const CHANGED: Render = Render::Told(|seen, _, out| out.integer(seen.changed.into()), 0);

    /// 1 if the key is there, else 0.
    pub const EXISTS: Render = Render::Told(|seen, _, out| out.integer(seen.read.value.is_some().into()), 0);

    /// Writes the reply; says whether it is not an error. `now_ms` is when it was asked for.
    #[inline]
    pub fn write(self, outcome: &Outcome, now_ms: u64, writer: &mut ReplyWriter<'_>) -> bool {
        match (self, outcome) {
            (_, Outcome::Failed(failure)) => {
                writer.error(&failure_text(failure));
                return false;
            }
            (Render::Get, Outcome::Read(read, _)) | (Render::Before, Outcome::Changed { before: read, .. }) => {
                writer.bulk_or_null(read.value.as_deref());
            }
            (Render::Ok, Outcome::Written(_) | Outcome::Kept(_) | Outcome::Counter(_) | Outcome::Count(_)) => writer.ok(),
            (Render::Ok, Outcome::Changed { version, .. }) => match version {
                Some(_) => writer.ok(),
                None => writer.null(),
            },
            (Render::Told(tell, with), outcome @ (Outcome::Read(read, _) | Outcome::Changed { before: read, .. })) => {
                let changed = matches!(outcome, Outcome::Changed { version: Some(_), .. });
                return writer.is_no_error(|writer| tell(&Seen { read, changed, now_ms }, with, writer));
            }
            (Render::Tested, Outcome::Tested { equal, .. }) => writer.integer((*equal).into()),
            (Render::Tested, Outcome::Written(_) | Outcome::Kept(_)) => writer.null(),
            (Render::Many, Outcome::Many(reads, _)) => {
                writer.array(reads.len());
                reads.iter().for_each(|read| writer.bulk_or_null(read.value.as_deref()));
            }
            (Render::Counted, Outcome::Counted(values, _)) if values.len() == 1 => writer.integer(values[0]),
            (Render::CountedAll, Outcome::Counted(values, _)) => {
                writer.array(values.len());
                values.iter().for_each(|value| writer.integer(*value));
            }
            (Render::Count, Outcome::Count(count)) => writer.integer(i64::try_from(*count).unwrap_or(i64::MAX)),
            (Render::Pong, _) => writer.simple("PONG"),
            _ => {
                writer.error(STRANGE);
                return false;
            }
        }
        true
    }
}

/// A failure as an error reply, its kind first. Redis clients repeat by themselves what was answered with CLUSTERDOWN or NOREPLICAS: so those say that nothing was changed.
pub fn failure_text(failure: &Failure) -> String {
    match failure {
        Failure::Timeout(_) => format!("TIMEOUT {failure}"),
        Failure::Busy(what) => format!("BUSY {what}"),
        Failure::Session(why) => format!("SESSION {why}"),
        Failure::Refused(why) => format!("ERR {why}"),
        Failure::Unreachable(_) => format!("CLUSTERDOWN {failure}"),
        Failure::Storage(_) => format!("STORAGE {failure}"),
        Failure::OutOfRights(_) => format!("NORIGHTS {failure}"),
        // Clients repeat by themselves what NOREPLICAS has refused. This write is made.
        Failure::Insufficient(why) if why.write => format!("TIMEOUT {failure}"),
        Failure::Insufficient(_) => format!("NOREPLICAS {failure}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rheostat_core::failure::Insufficient;
    use rheostat_core::ids::PartitionId;

    #[test]
    fn the_class_of_an_error_is_its_type_and_not_its_words() {
        let insufficient = |write| Failure::Insufficient(Box::new(Insufficient { write, needed: 2, answered: Vec::new(), names: Vec::new() }));
        let classes = [
            (Failure::Session("this session is not one of protocol causal".into()), "SESSION"),
            (Failure::Refused("session is a word like any other".into()), "ERR"),
            (Failure::Busy("session".into()), "BUSY"),
            (Failure::Timeout("session".into()), "TIMEOUT"),
            (Failure::Storage("session".into()), "STORAGE"),
            (Failure::Unreachable(PartitionId(1)), "CLUSTERDOWN"),
            (insufficient(false), "NOREPLICAS"),
            // It is made, and clients are not to repeat it.
            (insufficient(true), "TIMEOUT"),
        ];
        for (failure, class) in classes {
            let text = failure_text(&failure);
            assert_eq!(text.split(' ').next(), Some(class), "{text}");
        }
    }
}
