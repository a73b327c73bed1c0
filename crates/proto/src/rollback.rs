//! The steps of a rollback, between their two forms.

use crate::v1;
use crate::v1::rollback_request::Step;
use crate::v1::rollback_response::Answer;
use rheostat_core::ids::PartitionId;
use rheostat_core::outcome::Outcome;
use rheostat_core::rollback::{Cause, Difference, RollbackAnswer, RollbackCall, Turn};
use rheostat_core::version::{Key, VersionId};
use rheostat_core::{DcId, Timestamp};

/// The names of the data centers, in order.
pub type Names<'a> = &'a [String];

pub(crate) fn timestamp_out(at: Timestamp) -> v1::Timestamp {
    v1::Timestamp { millis: at.millis(), counter: at.counter().into() }
}

pub(crate) fn timestamp_in(at: Option<v1::Timestamp>) -> Result<Timestamp, String> {
    let at = at.unwrap_or_default();
    match u16::try_from(at.counter) {
        Ok(counter) if at.millis < 1 << 48 => Ok(Timestamp::new(at.millis, counter)),
        _ => Err(format!("{}.{} is no time that a clock can show", at.millis, at.counter)),
    }
}

pub(crate) fn version_out(names: Names<'_>, id: VersionId) -> v1::Version {
    v1::Version { written: Some(timestamp_out(id.written)), origin: names.get(id.origin.index()).cloned().unwrap_or_default() }
}

pub(crate) fn version_in(names: Names<'_>, version: v1::Version) -> Result<VersionId, String> {
    let place = names.iter().position(|name| *name == version.origin).and_then(|place| u8::try_from(place).ok());
    let origin = place.map(DcId).ok_or_else(|| format!("a version of data center {:?}, which there is not", version.origin))?;
    Ok(VersionId { written: timestamp_in(version.written)?, origin })
}

/// Versions, and beside them their partitions, of which a client of an older version knows nothing.
fn causes_out(names: Names<'_>, causes: &[Cause]) -> (Vec<v1::Version>, Vec<u32>) {
    let known = causes.iter().all(|cause| cause.partition.is_some());
    let partitions = causes.iter().filter(|_| known).filter_map(|cause| cause.partition).map(|partition| partition.0.into()).collect();
    (causes.iter().map(|cause| version_out(names, cause.version)).collect(), partitions)
}

fn causes_in(names: Names<'_>, versions: Vec<v1::Version>, partitions: &[u32]) -> Result<Vec<Cause>, String> {
    if !partitions.is_empty() && partitions.len() != versions.len() {
        return Err(format!("{} versions, and partitions of {}: one for each, or none", versions.len(), partitions.len()));
    }
    let partition = |place: usize| match partitions.get(place) {
        None => Ok(None),
        Some(number) => u16::try_from(*number).map(|number| Some(PartitionId(number))).map_err(|_| format!("there is no partition {number}")),
    };
    let cause = |(place, version)| Ok(Cause { version: version_in(names, version)?, partition: partition(place)? });
    versions.into_iter().enumerate().map(cause).collect()
}

fn shown_out(names: Names<'_>, versions: &[(Key, VersionId)]) -> Vec<v1::RollbackVersion> {
    versions.iter().map(|(key, id)| v1::RollbackVersion { key: key_out(key), version: Some(version_out(names, *id)) }).collect()
}

fn shown_in(names: Names<'_>, versions: Vec<v1::RollbackVersion>) -> Result<Vec<(Key, VersionId)>, String> {
    versions.into_iter().map(|one| Ok((key_in(&one.key), version_in(names, one.version.unwrap_or_default())?))).collect()
}

pub(crate) fn key_out(key: &Key) -> bytes::Bytes {
    bytes::Bytes::copy_from_slice(key)
}

pub(crate) fn key_in(key: &bytes::Bytes) -> Key {
    Key::from(&key[..])
}

/// The message for `call`.
pub fn call_out(names: Names<'_>, call: &RollbackCall) -> Step {
    match call {
        RollbackCall::Stop { name, turn, keys, at, until } => Step::Stop(v1::RollbackStop {
            name: *name,
            keys: key_out(keys),
            at: Some(timestamp_out(*at)),
            until: Some(timestamp_out(*until)),
            turn: turn.0,
        }),
        RollbackCall::Look { keys, at, upto, because, slot, from } => {
            let (because, because_partitions) = causes_out(names, because);
            Step::Look(v1::RollbackLook {
                keys: key_out(keys),
                at: Some(timestamp_out(*at)),
                upto: Some(timestamp_out(*upto)),
                slot: (*slot).into(),
                from: *from,
                because,
                because_partitions,
            })
        }
        RollbackCall::Restore { name, turn, keys, at, because } => {
            let (because, because_partitions) = causes_out(names, because);
            Step::Restore(v1::RollbackRestore {
                name: *name,
                keys: keys.iter().map(key_out).collect(),
                at: Some(timestamp_out(*at)),
                because,
                because_partitions,
                turn: turn.0,
            })
        }
        RollbackCall::Show { versions } => Step::Show(v1::RollbackShow { versions: shown_out(names, versions) }),
        RollbackCall::Resume { name, turn, after } => {
            Step::Resume(v1::RollbackResume { name: *name, after: Some(timestamp_out(*after)), turn: turn.0 })
        }
    }
}

/// What the message asks for. Errors: in words for its author.
pub fn call_in(names: Names<'_>, step: Option<Step>) -> Result<RollbackCall, String> {
    Ok(match step.ok_or("a rollback without a step")? {
        Step::Stop(v1::RollbackStop { name, keys, at, until, turn }) => {
            RollbackCall::Stop { name, turn: Turn(turn), keys: key_in(&keys), at: timestamp_in(at)?, until: timestamp_in(until)? }
        }
        Step::Look(v1::RollbackLook { keys, at, upto, slot, from, because, because_partitions }) => {
            let slot = u16::try_from(slot).map_err(|_| format!("there is no slot {slot}"))?;
            RollbackCall::Look {
                keys: key_in(&keys),
                at: timestamp_in(at)?,
                upto: timestamp_in(upto)?,
                because: causes_in(names, because, &because_partitions)?,
                slot,
                from,
            }
        }
        Step::Restore(v1::RollbackRestore { name, keys, at, because, because_partitions, turn }) => RollbackCall::Restore {
            name,
            turn: Turn(turn),
            keys: keys.iter().map(key_in).collect(),
            at: timestamp_in(at)?,
            because: causes_in(names, because, &because_partitions)?,
        },
        Step::Show(v1::RollbackShow { versions }) => RollbackCall::Show { versions: shown_in(names, versions)? },
        Step::Resume(v1::RollbackResume { name, after, turn }) => RollbackCall::Resume { name, turn: Turn(turn), after: timestamp_in(after)? },
    })
}

/// The message for what a partition server answered; `None` if that is no answer to a step.
pub fn answer_out(names: Names<'_>, outcome: Outcome) -> Option<v1::RollbackResponse> {
    let difference = |one: Difference| v1::RollbackDifference {
        key: key_out(&one.key),
        then: one.then.map(|id| version_out(names, id)),
        bytes: one.bytes,
        same: one.same,
        counter: one.counter,
        lost: one.lost.into_iter().map(|(id, bytes)| v1::RollbackLost { version: Some(version_out(names, id)), bytes }).collect(),
        more: one.more,
    };
    let answer = match outcome {
        Outcome::Rollback(RollbackAnswer::Stopped { clock, holds }) => {
            Answer::Stopped(v1::RollbackStopped { clock: Some(timestamp_out(clock)), holds })
        }
        Outcome::Rollback(RollbackAnswer::Looked { found, kept, next }) => Answer::Looked(v1::RollbackLooked {
            found: found.into_iter().map(difference).collect(),
            slot: next.map(|(slot, _)| slot.into()),
            from: next.map_or(0, |(_, from)| from),
            kept: shown_out(names, &kept),
        }),
        Outcome::Written(version) => Answer::Written(version_out(names, version)),
        Outcome::Rollback(RollbackAnswer::Shown) => Answer::Shown(true),
        Outcome::Rollback(RollbackAnswer::Resumed) => Answer::Resumed(true),
        Outcome::Rollback(RollbackAnswer::Over { clock }) => Answer::Over(timestamp_out(clock)),
        Outcome::Rollback(RollbackAnswer::Overtaken) => Answer::Overtaken(true),
        _ => return None,
    };
    Some(v1::RollbackResponse { answer: Some(answer) })
}

/// What a partition server answered. Errors: what this version does not understand.
pub fn answer_in(names: Names<'_>, response: v1::RollbackResponse) -> Result<Outcome, String> {
    let difference = |one: v1::RollbackDifference| {
        let lost = |lost: v1::RollbackLost| Ok((version_in(names, lost.version.unwrap_or_default())?, lost.bytes));
        Ok(Difference {
            key: key_in(&one.key),
            then: one.then.map(|version| version_in(names, version)).transpose()?,
            bytes: one.bytes,
            same: one.same,
            counter: one.counter,
            lost: one.lost.into_iter().map(lost).collect::<Result<_, String>>()?,
            more: one.more,
        })
    };
    Ok(match response.answer.ok_or("an answer that says nothing")? {
        Answer::Stopped(v1::RollbackStopped { clock, holds }) => Outcome::Rollback(RollbackAnswer::Stopped { clock: timestamp_in(clock)?, holds }),
        Answer::Looked(v1::RollbackLooked { found, slot, from, kept }) => {
            let slot = slot.map(|slot| u16::try_from(slot).map_err(|_| format!("there is no slot {slot}"))).transpose()?;
            let found = found.into_iter().map(difference).collect::<Result<_, String>>()?;
            Outcome::Rollback(RollbackAnswer::Looked { found, kept: shown_in(names, kept)?, next: slot.map(|slot| (slot, from)) })
        }
        Answer::Written(version) => Outcome::Written(version_in(names, version)?),
        Answer::Shown(_) => Outcome::Rollback(RollbackAnswer::Shown),
        Answer::Resumed(_) => Outcome::Rollback(RollbackAnswer::Resumed),
        Answer::Over(clock) => Outcome::Rollback(RollbackAnswer::Over { clock: timestamp_in(Some(clock))? }),
        Answer::Overtaken(_) => Outcome::Rollback(RollbackAnswer::Overtaken),
    })
}
