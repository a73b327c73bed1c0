//! A read-only transaction that its client takes to the partitions itself: one request to each, all at once, instead of one to a partition
//! that asks the others.
//!
//! It needs a protocol whose client can make a snapshot without asking anybody ([`crate::protocol::Client::predict`]). The caller sends what
//! [`Scatter::requests`] says, with a copy of the session each, and hands every answer to [`Scatter::answer`]. There are two rounds at most.

use crate::answer::{Quality, Read};
use crate::dial::{Dial, Level, Strategy};
use crate::failure::Failure;
use crate::ids::PartitionId;
use crate::operation::Operation;
use crate::outcome::Outcome;
use crate::protocol::Verdict;
use crate::session::Session;
use crate::slots;
use crate::version::Key;
use rheostat_clock::DcId;
use std::collections::BTreeMap;

/// One transaction under way.
#[derive(Debug)]
pub struct Scatter {
    keys: Vec<Key>,
    dial: Dial,
    parts: Vec<Part>,
    /// In the order of the keys; what has not come yet is empty.
    reads: Vec<Read>,
    quality: Option<Quality>,
    /// A partition's reason why it cannot serve its part.
    failed: Option<Failure>,
    /// A partition has refused the snapshot.
    refused: bool,
}

/// One partition's part.
#[derive(Debug)]
struct Part {
    partition: PartitionId,
    /// The places of its keys.
    places: Vec<usize>,
    answered: bool,
}

/// What an answer leads to.
#[derive(Debug)]
pub enum Progress {
    /// Others have yet to answer.
    Waiting,
    /// All have, and some refused the snapshot: [`Scatter::requests`] are to be sent again, with the session as it is now.
    Again,
    /// The transaction is over.
    Done(Outcome),
}

impl Scatter {
    /// Begins a transaction over `keys` at the client's time `now_ms`, in data center `here` of `partitions` partitions. `None`: one partition is
    /// to serve or to coordinate it, as always when it is to be fresh, since a predicted snapshot does not get fresher. Else `session` carries the snapshot until the transaction is over, and serves nothing else.
    ///
    /// Keys of one partition leave `session` as it is: if it carries a snapshot, they are the part of a transaction that began elsewhere.
    pub fn begin(here: DcId, partitions: u16, now_ms: u64, session: &mut Session, keys: &[Key], dial: Dial) -> Option<Scatter> {
        let lead = slots::partition_of(keys.first()?, partitions);
        if keys.iter().all(|key| slots::partition_of(key, partitions) == lead) {
            return None;
        }
        // The past is a snapshot that every partition can make for itself.
        if dial.as_of.is_none() {
            let asked = dial.strategy == Strategy::Coordinated || dial.level == Some(Level::Eventual) || dial.fresh_ms.is_some();
            if asked || !session.predict(here, lead, dial.strategy, now_ms) {
                return None;
            }
        }
        let mut places: BTreeMap<PartitionId, Vec<usize>> = BTreeMap::new();
        for (place, key) in keys.iter().enumerate() {
            places.entry(slots::partition_of(key, partitions)).or_default().push(place);
        }
        let mut parts: Vec<Part> = places.into_iter().map(|(partition, places)| Part { partition, places, answered: false }).collect();
        // As the keys come.
        parts.sort_unstable_by_key(|part| part.places[0]);
        let dial = Dial { strategy: Strategy::Predicted, ..dial };
        let reads = vec![Read::default(); keys.len()];
        Some(Scatter { keys: keys.to_vec(), dial, parts, reads, quality: None, failed: None, refused: false })
    }

    /// The requests of this round, each for its partition.
    pub fn requests(&self) -> Vec<(PartitionId, Operation)> {
        let operation = |part: &Part| {
            let keys = part.places.iter().map(|place| self.keys[*place].clone()).collect();
            (part.partition, Operation::ReadTransaction { keys, dial: self.dial })
        };
        self.parts.iter().map(operation).collect()
    }

    /// The partitions that have not answered in this round.
    pub fn waiting(&self) -> impl Iterator<Item = PartitionId> + '_ {
        self.parts.iter().filter(|part| !part.answered).map(|part| part.partition)
    }

    /// Takes in the answer of `partition`, whose copy of the session is `seen` now; `session` is the transaction's.
    pub fn answer(&mut self, partition: PartitionId, outcome: Outcome, seen: &Session, session: &mut Session) -> Progress {
        let Some(part) = self.parts.iter_mut().find(|part| part.partition == partition && !part.answered) else { return Progress::Waiting };
        part.answered = true;
        session.merge(seen);
        match outcome {
            Outcome::Many(reads, quality) if reads.len() == part.places.len() => {
                for (place, read) in part.places.iter().zip(reads) {
                    self.reads[*place] = read;
                }
                self.quality = Some(self.quality.map_or(quality, |other| weaker(other, quality)));
            }
            Outcome::Many(reads, _) if reads.is_empty() => self.refused = true,
            Outcome::Failed(failure) => self.failed = Some(failure),
            _ => self.failed = Some(Failure::Refused("a partition answered something else than was asked".into())),
        }
        if self.waiting().next().is_some() {
            return Progress::Waiting;
        }
        if let Some(failure) = self.failed.take() {
            session.settle(Verdict::Abandoned);
            return Progress::Done(Outcome::Failed(failure));
        }
        if !self.refused {
            session.settle(Verdict::Held);
            let reads = std::mem::take(&mut self.reads);
            return match self.quality {
                Some(quality) => Progress::Done(Outcome::Many(reads, quality)),
                None => Progress::Done(Outcome::Failed(Failure::Refused("a transaction of no keys".into()))),
            };
        }
        if !session.settle(Verdict::Refused) {
            let why = "the snapshot of a transaction that was delayed for too long is not kept any more; try again";
            return Progress::Done(Outcome::Failed(Failure::Busy(why.into())));
        }
        self.refused = false;
        self.quality = None;
        self.parts.iter_mut().for_each(|part| part.answered = false);
        Progress::Again
    }
}

/// What can be said of two answers together.
fn weaker(a: Quality, b: Quality) -> Quality {
    let level = if a.level.implies(b.level) { b.level } else { a.level };
    Quality { level, staleness_ms: a.staleness_ms.zip(b.staleness_ms).map(|(a, b)| a.max(b)) }
}
