//! What frames between servers say, for those who watch them go by.

use rheostat_core::Timestamp;
use rheostat_core::ids::{Place, ServerId};
use rheostat_core::link::LinkFrame;
use rheostat_core::protocol::{Protocol, Reading};
use rheostat_core::reserved::FRAME;
use rheostat_core::version::{Key, Update};
use rheostat_core::wire::Wire;
use std::fmt::Write;

/// Adds the keys that the receiver at `place` will ask its store for: those of updates, and those that another partition asks for. Says whether somebody asks.
pub(super) fn keys<P: Protocol>(place: &Place, from: ServerId, frame: &[u8], keys: &mut Vec<Key>) -> bool {
    let mut of_message = |message: &[u8]| {
        if let Ok(message) = P::Message::from_bytes(message)
            && let Reading::Question(asked) = P::reading(&message)
        {
            keys.extend_from_slice(asked);
            return true;
        }
        false
    };
    if !P::CAN.links || frame.first() == Some(&FRAME) {
        return false;
    }
    if from.dc == place.dc() {
        return of_message(frame);
    }
    match LinkFrame::<P::Meta>::from_bytes(frame) {
        Ok(LinkFrame::Message(message)) => return of_message(&message),
        Ok(LinkFrame::Batch { updates, .. } | LinkFrame::Part { updates, .. } | LinkFrame::Passed { updates, .. }) => {
            keys.extend(updates.iter().flat_map(|update| update.items.iter().map(|item| item.key.clone())));
        }
        _ => {}
    }
    false
}

pub(super) fn resumes<P: Protocol>(frame: &[u8]) -> bool {
    // A request to resume is short; most frames need not be decoded to know that they are none.
    P::CAN.links
        && frame.len() < 16
        && matches!(LinkFrame::<P::Meta>::from_bytes(frame), Ok(LinkFrame::Resume { received } | LinkFrame::Ask { received, .. }) if received > Timestamp::ZERO)
}

pub(super) fn has_updates<P: Protocol>(frame: &[u8]) -> bool {
    P::CAN.links
        && matches!(LinkFrame::<P::Meta>::from_bytes(frame), Ok(LinkFrame::Batch { updates, .. } | LinkFrame::Part { updates, .. } | LinkFrame::Passed { updates, .. }) if !updates.is_empty())
}

pub(super) fn describe<P: Protocol>(remote: bool, frame: &[u8]) -> String {
    if !remote || !P::CAN.links {
        return P::Message::from_bytes(frame).map_or_else(|error| error.to_string(), |message| format!("{message:?}"));
    }
    match LinkFrame::<P::Meta>::from_bytes(frame) {
        Err(error) => error.to_string(),
        Ok(LinkFrame::Message(message)) => P::Message::from_bytes(&message).map_or_else(|error| error.to_string(), |message| format!("{message:?}")),
        Ok(LinkFrame::Resume { received }) => format!("resume after {received}"),
        Ok(LinkFrame::Ask { received, question }) => format!("question {question}: what follows {received}?"),
        Ok(LinkFrame::Sent { through, question }) => format!("to question {question}: everything up to {through} was sent"),
        Ok(LinkFrame::Wanted { origin, received, .. }) => format!("what did data center {origin} write after {received}?"),
        Ok(LinkFrame::Passed { origin, after, through, updates, .. }) => {
            let mut text = format!("passed on, updates of data center {origin} after {after} up to {through}:");
            updates.iter().for_each(|update| describe_update(update, &mut text));
            text
        }
        Ok(LinkFrame::Begins) => "is filled, and wants to begin".into(),
        Ok(LinkFrame::Opened { upto }) => format!("takes what is written after {upto}"),
        Ok(LinkFrame::Acknowledge { durable, .. }) => format!("has everything up to {durable} on disk"),
        Ok(LinkFrame::Batch { after, through, updates }) if updates.is_empty() => format!("nothing after {after} up to {through}"),
        Ok(LinkFrame::Batch { after, through, updates } | LinkFrame::Part { after, through, updates, .. }) => {
            let mut text = format!("updates after {after} up to {through}:");
            updates.iter().for_each(|update| describe_update(update, &mut text));
            text
        }
    }
}

/// The kind of a message is its variant's name.
pub(super) fn kind<P: Protocol>(remote: bool, frame: &[u8]) -> String {
    let of_message = |message: &[u8]| P::Message::from_bytes(message).map_or_else(|_| "?".into(), |message| variant(&format!("{message:?}")));
    if !remote || !P::CAN.links {
        return of_message(frame);
    }
    let kind = match LinkFrame::<P::Meta>::from_bytes(frame) {
        Ok(LinkFrame::Message(message)) => return of_message(&message),
        Ok(LinkFrame::Batch { updates, .. }) => match updates.len() {
            0 => "heartbeat",
            1 => "update",
            _ => "several updates",
        },
        Ok(LinkFrame::Part { .. }) => "part",
        Ok(LinkFrame::Acknowledge { .. }) => "acknowledgement",
        Ok(LinkFrame::Resume { .. }) => "resume",
        Ok(LinkFrame::Ask { .. }) => "question",
        Ok(LinkFrame::Sent { .. }) => "answer",
        Ok(LinkFrame::Wanted { .. }) => "question about another",
        Ok(LinkFrame::Passed { .. }) => "passed on",
        Ok(LinkFrame::Begins) => "beginning",
        Ok(LinkFrame::Opened { .. }) => "opening",
        Err(_) => "?",
    };
    kind.into()
}

pub(super) fn metadata<P: Protocol>(frame: &[u8]) -> Vec<usize> {
    match LinkFrame::<P::Meta>::from_bytes(frame) {
        Ok(LinkFrame::Batch { updates, .. }) if P::CAN.links => updates.iter().map(|update| update.meta.to_bytes().len()).collect(),
        _ => Vec::new(),
    }
}

/// The name of an enum's variant, from its `Debug` form.
fn variant(debug: &str) -> String {
    debug.chars().take_while(|letter| letter.is_alphanumeric() || *letter == '_').collect()
}

fn describe_update<M: std::fmt::Debug>(update: &Update<M>, text: &mut String) {
    let _ = write!(text, " [{}", update.id);
    for item in &update.items {
        let value = item.value.as_ref().map_or_else(|| "deleted".into(), |value| String::from_utf8_lossy(value));
        let _ = write!(text, " {}={value}", String::from_utf8_lossy(&item.key));
    }
    let _ = write!(text, " {:?}]", update.meta);
}
