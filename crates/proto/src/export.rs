//! The steps of a backup, between their two forms.

use crate::rollback::{Names, key_in, key_out, timestamp_in, timestamp_out, version_in, version_out};
use crate::v1;
use crate::v1::export_request::Step;
use crate::v1::export_response::Answer;
use rheostat_core::Timestamp;
use rheostat_core::answer::Read;
use rheostat_core::export::{ExportAnswer, ExportCall, Exported, ExportedCounter, Kind};

/// The message for `call` of the backup that it names.
pub fn call_out(call: &ExportCall, current: bool) -> Step {
    match call {
        ExportCall::Hold { for_ms, .. } => Step::Hold(v1::ExportHold { for_ms: *for_ms }),
        ExportCall::Page { at, since, slot, from } => Step::Page(v1::ExportPage {
            at: at.map(timestamp_out),
            since: (*since > Timestamp::ZERO).then(|| timestamp_out(*since)),
            slot: (*slot).into(),
            from: *from,
            current,
        }),
        ExportCall::Release { .. } => Step::Release(true),
    }
}

/// What the message asks for, under the name of a backup. Errors: in words for its author.
pub fn call_in(name: u64, step: Step) -> Result<ExportCall, String> {
    Ok(match step {
        Step::Hold(v1::ExportHold { for_ms }) => ExportCall::Hold { name, for_ms },
        Step::Page(v1::ExportPage { at, since, slot, from, current: _ }) => {
            let slot = u16::try_from(slot).map_err(|_| format!("there is no slot {slot}"))?;
            ExportCall::Page { at: at.map(|at| timestamp_in(Some(at))).transpose()?, since: timestamp_in(since)?, slot, from }
        }
        Step::Release(_) => ExportCall::Release { name },
    })
}

/// The message for an answer.
pub fn answer_out(names: Names<'_>, answer: ExportAnswer) -> v1::ExportResponse {
    let answer = match answer {
        ExportAnswer::Held { from, kind, holds } => {
            let kind = match kind {
                Kind::Causal => v1::CutKind::Causal,
                Kind::Clocks => v1::CutKind::Clocks,
                Kind::Applied => v1::CutKind::Applied,
            };
            Answer::Held(v1::ExportHeld { from: Some(timestamp_out(from)), kind: kind.into(), holds })
        }
        ExportAnswer::Page { keys, next } => Answer::Page(v1::ExportedPage {
            keys: keys.into_iter().map(|one| key_state_out(names, one)).collect(),
            slot: next.map(|(slot, _)| slot.into()),
            from: next.map_or(0, |(_, from)| from),
        }),
        ExportAnswer::Released => Answer::Released(true),
    };
    v1::ExportResponse { answer: Some(answer) }
}

/// The answer in a message. Errors: what this version does not understand.
pub fn answer_in(names: Names<'_>, response: v1::ExportResponse) -> Result<ExportAnswer, String> {
    Ok(match response.answer.ok_or("an answer that says nothing")? {
        Answer::Held(v1::ExportHeld { from, kind, holds }) => {
            let kind = match v1::CutKind::try_from(kind) {
                Ok(v1::CutKind::Causal) => Kind::Causal,
                Ok(v1::CutKind::Clocks) => Kind::Clocks,
                Ok(v1::CutKind::Applied) => Kind::Applied,
                _ => return Err(format!("there is no kind {kind} of cut")),
            };
            ExportAnswer::Held { from: timestamp_in(from)?, kind, holds }
        }
        Answer::Page(v1::ExportedPage { keys, slot, from }) => {
            let slot = slot.map(|slot| u16::try_from(slot).map_err(|_| format!("there is no slot {slot}"))).transpose()?;
            let keys = keys.into_iter().map(|one| key_state_in(names, one)).collect::<Result<_, String>>()?;
            ExportAnswer::Page { keys, next: slot.map(|slot| (slot, from)) }
        }
        Answer::Released(_) => ExportAnswer::Released,
    })
}

/// The message for a key's state.
pub fn key_state_out(names: Names<'_>, one: Exported) -> v1::ExportedKey {
    let read = |read: Read| v1::Read {
        value: read.value.map(|value| bytes::Bytes::copy_from_slice(&value)),
        version: read.version.map(|id| version_out(names, id)),
        expires_at_ms: read.expires_ms,
    };
    let counter = one.counter.map(|ExportedCounter { value, lower, upper }| v1::ExportedCounter { value, lower, upper });
    v1::ExportedKey { key: key_out(&one.key), reads: one.reads.into_iter().map(read).collect(), counter }
}

/// The key's state in a message. Errors: a version that is none.
pub fn key_state_in(names: Names<'_>, one: v1::ExportedKey) -> Result<Exported, String> {
    let read = |read: v1::Read| {
        let version = read.version.map(|version| version_in(names, version)).transpose()?;
        Ok(Read { value: read.value.map(|value| value[..].into()), version, expires_ms: read.expires_at_ms })
    };
    let counter = one.counter.map(|v1::ExportedCounter { value, lower, upper }| ExportedCounter { value, lower, upper });
    Ok(Exported { key: key_in(&one.key), reads: one.reads.into_iter().map(read).collect::<Result<_, String>>()?, counter })
}
