//! Rounds of questions to the other replicas, and what is done when enough have answered.

use super::context::Context;
use super::message::Reply;
use super::standing::Answer;
use crate::gather::TransactionId;
use rheostat_clock::{DcId, Timestamp};
use rheostat_core::dial::Quorum;
use rheostat_core::failure::{Failure, Insufficient};
use rheostat_core::ids::{OpId, PartitionId};
use rheostat_core::operation::Change;
use rheostat_core::version::{Item, Key};
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};

/// A round for another partition's transaction is given up after so long, in microseconds: its coordinator has by then.
const GIVE_UP_US: u64 = 30_000_000;

/// What is done with what was read.
#[derive(Clone, Debug)]
pub(super) enum Then {
    /// It is the answer to a GET.
    Get(OpId),
    /// All of it is.
    Siblings(OpId),
    /// It is this partition's part of a transaction that another coordinates, or this one.
    Slice(PartitionId, TransactionId),
    /// The items are written in the place of what was read.
    Put(OpId, SmallVec<[Item; 1]>),
    /// The item is written in the place of what its client had seen.
    Replace(OpId, Item, Context),
    /// The change is tried on it.
    Change(OpId, Change),
}

impl Then {
    fn op(&self) -> Option<OpId> {
        match self {
            Then::Get(op) | Then::Siblings(op) | Then::Put(op, _) | Then::Replace(op, ..) | Then::Change(op, _) => Some(*op),
            Then::Slice(..) => None,
        }
    }
}

/// What a round asks.
#[derive(Clone, Debug)]
pub(super) enum Question {
    /// What stands of these keys.
    Read {
        /// The keys.
        keys: Vec<Key>,
        /// What is done with that.
        then: Then,
        /// What has come, by data center.
        answers: BTreeMap<DcId, Answer>,
    },
    /// Whether what was written up to there has arrived.
    Write {
        /// Up to where.
        upto: Timestamp,
        /// The operation, and its reply.
        op: OpId,
        /// The reply.
        reply: Reply,
        /// Who has it.
        has: BTreeSet<DcId>,
    },
}

/// One round under way.
#[derive(Clone, Debug)]
pub(super) struct Round {
    /// What it asks.
    pub(super) question: Question,
    /// The operation's numbers.
    pub(super) quorum: Quorum,
    begun_us: u64,
    /// When somebody was last asked.
    asked_us: u64,
    /// Whom the second round asks next, of those that have not answered.
    next: usize,
}

impl Round {
    /// How many must answer.
    pub(super) fn needed(&self) -> u8 {
        match self.question {
            Question::Read { .. } => self.quorum.reads,
            Question::Write { .. } => self.quorum.writes,
        }
    }

    /// Who has answered. An answer to a read that a replica gives while it gets again what it has lost does not count.
    fn answered(&self) -> Vec<DcId> {
        match &self.question {
            Question::Read { answers, .. } => answers.iter().filter(|(_, answer)| answer.coverage.whole).map(|(dc, _)| *dc).collect(),
            Question::Write { has, .. } => has.iter().copied().collect(),
        }
    }

    /// Whether so many have, or `fewer` than that.
    pub(super) fn is_done(&self, fewer: u8) -> bool {
        self.answered().len() + usize::from(fewer) >= usize::from(self.needed())
    }

    fn op(&self) -> Option<OpId> {
        match &self.question {
            Question::Read { then, .. } => then.op(),
            Question::Write { op, .. } => Some(*op),
        }
    }
}

/// The rounds that one server coordinates.
#[derive(Default)]
pub(super) struct Rounds {
    open: BTreeMap<u64, Round>,
    last: u64,
}

impl Rounds {
    /// The server starts; rounds of an earlier run have smaller numbers than `after`.
    pub(super) fn start(&mut self, after: u64) {
        self.last = after;
    }

    /// Opens a round.
    pub(super) fn open(&mut self, now_us: u64, question: Question, quorum: Quorum) -> u64 {
        self.last += 1;
        self.open.insert(self.last, Round { question, quorum, begun_us: now_us, asked_us: now_us, next: 0 });
        self.last
    }

    /// Round `id`, if it is under way.
    pub(super) fn get(&mut self, id: u64) -> Option<&mut Round> {
        self.open.get_mut(&id)
    }

    /// Round `id`, which is over.
    pub(super) fn close(&mut self, id: u64) -> Option<Round> {
        self.open.remove(&id)
    }

    /// Number of rounds under way.
    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    /// The rounds in which somebody is to be asked again, and whom, where too few have answered within `round_us`: one after the other of `replicas` that has not (section 2.2).
    pub(super) fn overdue(&mut self, now_us: u64, round_us: u64, replicas: &[DcId]) -> Vec<(u64, DcId)> {
        self.open.retain(|_, round| round.op().is_some() || now_us < round.begun_us + GIVE_UP_US);
        let mut again = Vec::new();
        for (id, round) in self.open.iter_mut().filter(|(_, round)| now_us >= round.asked_us + round_us) {
            let answered = round.answered();
            let silent: Vec<DcId> = replicas.iter().copied().filter(|dc| !answered.contains(dc)).collect();
            if let Some(dc) = silent.get(round.next % silent.len().max(1)) {
                again.push((*id, *dc));
            }
            round.next += 1;
            round.asked_us = now_us;
        }
        again
    }

    /// How far the operation has come, as an error for its client.
    pub(super) fn insufficient(&self, op: OpId) -> Option<Failure> {
        let round = self.open.values().find(|round| round.op() == Some(op))?;
        let write = matches!(round.question, Question::Write { .. });
        Some(Failure::Insufficient(Box::new(Insufficient { write, needed: round.needed(), answered: round.answered(), names: Vec::new() })))
    }

    /// Nobody waits for `op` any more.
    pub(super) fn abandon(&mut self, op: OpId) {
        self.open.retain(|_, round| round.op() != Some(op));
    }
}
