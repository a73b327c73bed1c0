//! What an operation goes on with that waits: for the protocol's answer, or for what has not arrived.

use super::Execution;
use crate::dial::Dial;
use crate::failure::Failure;
use crate::ids::OpId;
use crate::outcome::Outcome;
use crate::protocol::Call;
use crate::rollback::RollbackCall;
use crate::store::Position;
use crate::version::Key;
use rheostat_clock::Timestamp;

/// What is done with the protocol's answer.
#[derive(Clone)]
pub(super) enum Stage {
    /// It is the outcome.
    Call,
    /// It is the outcome if it is fresh enough; else the call is made again.
    Fresh(Box<Fresh>),
    /// It was not fresh enough: the call is made again when more has arrived.
    Stale(Box<Fresh>),
    /// No answer comes: what has arrived decides.
    Past(Box<Past>),
    /// Likewise.
    Rollback(Box<Held>),
    /// Likewise.
    Export(Box<Page>),
    /// Likewise: the links' progress does.
    Replication { upto: Timestamp, data_centers: u8 },
}

impl Stage {
    /// Whether what has arrived decides, and no answer of the protocol.
    pub(super) fn waits_for_links(&self) -> bool {
        matches!(self, Stage::Past(_) | Stage::Rollback(_) | Stage::Export(_))
    }
}

/// A read whose answer reflects every write of another data center that is older than so many milliseconds.
#[derive(Clone)]
pub(super) struct Fresh {
    pub(super) again: Again,
    pub(super) dial: Dial,
    pub(super) most_ms: u32,
}

/// What is asked of the protocol again.
#[derive(Clone)]
pub(super) enum Again {
    Call(Call),
    Siblings(Key),
}

/// A page that waits.
#[derive(Clone, Debug)]
pub(super) struct Page {
    pub(super) at: Option<Timestamp>,
    pub(super) since: Timestamp,
    pub(super) slot: u16,
    pub(super) from: u32,
}

/// Which keys are read.
#[derive(Clone, Debug)]
pub(super) enum Asked {
    /// One.
    One(Key),
    /// Several of this partition.
    Several(Vec<Key>),
}

impl Asked {
    pub(super) fn keys(&self) -> &[Key] {
        match self {
            Asked::One(key) => std::slice::from_ref(key),
            Asked::Several(keys) => keys,
        }
    }
}

/// A read of the past that waits for what has not arrived.
#[derive(Clone, Debug)]
pub(super) struct Past {
    pub(super) asked: Asked,
    pub(super) at: Timestamp,
}

/// A call that waits.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) call: RollbackCall,
    /// Of a stop: writes that began before this operation are to end first.
    pub(super) op: OpId,
}

pub(super) fn filling() -> Failure {
    Failure::Busy(
        "a disk was lost, here or in another data center, and not all that is sent here since is visible yet; level eventual reads what is here"
            .into(),
    )
}

pub(super) fn failed(failure: Failure) -> Execution {
    Execution::Done { outcome: Outcome::Failed(failure), after: Position(0) }
}
