//! What travels between servers that have replicas: what they say themselves, and what the partition servers that their leaders run say to each other.

use crate::message::RaftMessage;
use crate::standing::Word;
use rheostat_clock::Timestamp;
use rheostat_core::operation::Operation;
use rheostat_core::outcome::Outcome;
use rheostat_core::version::Value;
use rheostat_core::wire::{Wire, WireError};
use rheostat_core::wire_enum;

/// What travels.
#[derive(Clone, PartialEq, Debug)]
pub enum Frame {
    /// Between the members of a group.
    Raft(RaftMessage),
    /// From the partition server that leader of this term runs, to another one.
    Inside(u64, Value),
    /// The sender leads in this term; whether it wants to be told who leads there.
    Greeting(u64, bool),
    /// To the leader: run this, for this session. Second: the name of the question.
    Ask(u64, Operation, Value),
    /// What came of it, and the session.
    Answer(u64, Outcome, Value),
    /// It was not run: another one leads.
    Elsewhere(u64),
    /// To the leader: own updates after this are wanted, for the snapshot at this index.
    FetchOwn(u64, Timestamp),
    /// To the leader: a page of the state is wanted, from this slot and place on, for the snapshot at this index.
    Fetch(u64, u16, u32),
    /// For the snapshot at this index: own updates after the first time; up to the second they are released; up to the third they are there; the server's state. The updates, encoded.
    Own(u64, Timestamp, Timestamp, Timestamp, Option<Value>, Vec<Value>),
    /// For the snapshot at this index: all versions of the keys from a place on, one to an update, encoded; and where the next page begins.
    Page(u64, u16, u32, Option<(u16, u32)>, Vec<Value>),
    /// Who is who in the group.
    Word(Word),
}

wire_enum!(Frame, "a frame between replicas", {
    0 => Raft(message),
    1 => Inside(term, bytes),
    2 => Greeting(term, asks),
    3 => Ask(request, operation, session),
    4 => Answer(request, outcome, session),
    5 => Elsewhere(request),
    6 => FetchOwn(snapshot, after),
    7 => Fetch(snapshot, slot, place),
    8 => Own(snapshot, after, released, upto, state, updates),
    9 => Page(snapshot, slot, place, next, updates),
    10 => Word(word),
});

/// What `frame` carries between partition servers, or in words what replicas say of themselves. Errors: it is no frame.
pub fn describe(frame: &[u8]) -> Result<Result<Value, String>, WireError> {
    Ok(match Frame::from_bytes(frame)? {
        Frame::Inside(_, bytes) => Ok(bytes),
        Frame::Page(snapshot, slot, ..) => Err(format!("a page of the state at {snapshot}, from slot {slot} on")),
        other => Err(format!("{other:?}")),
    })
}
