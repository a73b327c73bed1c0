//! Who belongs to a group, and how that changes.
//!
//! A member's number is its seat, which is the server's place in the group and stays, and its generation: what has taken the seat of a member that lost its disk has the next one, and is somebody else. So nobody answers for
//! what another has promised.
//!
//! The configuration is part of what the group agrees on. An entry changes it where it is applied; it goes to disk and into snapshots with the index of the last entry that changed it, so that an entry which is applied again
//! after a restart changes nothing.

use raft::eraftpb::{ConfChangeSingle, ConfChangeTransition, ConfChangeType, ConfChangeV2, ConfState};
use rheostat_core::wire::{Reader, Wire, WireError};
use rheostat_core::wire_enum;
use std::collections::BTreeMap;

/// Numbers of one generation; seats are below.
const SEATS: u64 = 1 << 16;

/// Nobody's number. The library takes no 0.
pub const NOBODY: u64 = u64::MAX;

/// The seat of member `number`.
pub fn seat_of(number: u64) -> u64 {
    number % SEATS
}

/// How often the seat of member `number` was taken over before.
pub fn generation_of(number: u64) -> u64 {
    number / SEATS
}

/// The number of the member that follows `number` in its seat.
pub(crate) fn next_in_seat(number: u64) -> u64 {
    number + SEATS
}

/// What an entry says that changes the configuration. Nothing: a joint one, in which majorities of before and after are needed, is left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// Member `old` goes, and `new`, whose disk has `life`, comes into its seat as a learner.
    Replace {
        /// Who goes.
        old: u64,
        /// Who comes.
        new: u64,
        /// What its directory has drawn.
        life: u64,
    },
    /// A learner has caught up: it is counted from now on.
    Promote(u64),
}

wire_enum!(Change, "a change of a group's configuration", { 0 => Replace { old, new, life }, 1 => Promote(number) });

impl Change {
    /// The change that the library is asked for; `None` is the end of a joint configuration.
    pub(crate) fn to_library(change: Option<Change>) -> ConfChangeV2 {
        let single = |kind, number| {
            let mut single = ConfChangeSingle { node_id: number, ..ConfChangeSingle::default() };
            single.set_change_type(kind);
            single
        };
        let changes = match change {
            None => Vec::new(),
            Some(Change::Replace { old, new, .. }) => vec![single(ConfChangeType::RemoveNode, old), single(ConfChangeType::AddLearnerNode, new)],
            Some(Change::Promote(number)) => vec![single(ConfChangeType::AddNode, number)],
        };
        let mut library = ConfChangeV2::default();
        library.set_transition(ConfChangeTransition::Auto);
        library.set_changes(changes.into());
        library
    }
}

/// See the module.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Configuration {
    /// The last entry that changed it; 0 if none has.
    pub index: u64,
    /// Whose votes and disks count.
    pub voters: Vec<u64>,
    /// Who is told everything and is not counted.
    pub learners: Vec<u64>,
    /// While a change is joint: the voters before it, of whom a majority is needed too.
    pub outgoing: Vec<u64>,
    /// Voters that become learners when it is over.
    learners_next: Vec<u64>,
    /// Whether the leader ends the joint configuration by itself.
    auto_leave: bool,
    /// Of members that took a seat over: what their directory has drawn.
    lives: BTreeMap<u64, u64>,
}

impl Configuration {
    /// That of a new group: the first generation in all `seats`.
    pub fn first(seats: &[u64]) -> Configuration {
        Configuration { voters: seats.to_vec(), ..Configuration::default() }
    }

    /// Who sits in `seat`: of two, the one that has come later.
    pub fn holder(&self, seat: u64) -> Option<u64> {
        let all = self.voters.iter().chain(&self.learners).chain(&self.outgoing).chain(&self.learners_next);
        all.copied().filter(|number| seat_of(*number) == seat).max()
    }

    /// What the directory of member `number` has drawn; 0 for those of the first generation.
    pub fn life_of(&self, number: u64) -> u64 {
        self.lives.get(&number).copied().unwrap_or(0)
    }

    /// Whether a change is under way in which two majorities are needed.
    pub fn is_joint(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// The library's form.
    pub(crate) fn to_library(&self) -> ConfState {
        ConfState {
            voters: self.voters.clone(),
            learners: self.learners.clone(),
            voters_outgoing: self.outgoing.clone(),
            learners_next: self.learners_next.clone(),
            auto_leave: self.auto_leave,
            ..ConfState::default()
        }
    }

    /// What the library has made of it by the entry at `index`, which said `change`.
    pub(crate) fn changed_to(&mut self, index: u64, change: Option<Change>, state: ConfState) {
        if let Some(Change::Replace { new, life, .. }) = change {
            self.lives.insert(new, life);
        }
        let sorted = |mut numbers: Vec<u64>| {
            numbers.sort_unstable();
            numbers
        };
        self.index = index;
        self.voters = sorted(state.voters);
        self.learners = sorted(state.learners);
        self.outgoing = sorted(state.voters_outgoing);
        self.learners_next = sorted(state.learners_next);
        self.auto_leave = state.auto_leave;
        let held: Vec<u64> = self.lives.keys().copied().filter(|number| self.holder(seat_of(*number)) == Some(*number)).collect();
        self.lives.retain(|number, _| held.contains(number));
    }
}

impl Wire for Configuration {
    fn encode(&self, out: &mut Vec<u8>) {
        self.index.encode(out);
        for members in [&self.voters, &self.learners, &self.outgoing, &self.learners_next] {
            members.encode(out);
        }
        self.auto_leave.encode(out);
        self.lives.iter().map(|(number, life)| (*number, *life)).collect::<Vec<_>>().encode(out);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        let (index, voters) = (Wire::decode(input)?, Wire::decode(input)?);
        let (learners, outgoing) = (Wire::decode(input)?, Wire::decode(input)?);
        let (learners_next, auto_leave) = (Wire::decode(input)?, Wire::decode(input)?);
        let lives: Vec<(u64, u64)> = Wire::decode(input)?;
        let read = Configuration { index, voters, learners, outgoing, learners_next, auto_leave, lives: lives.into_iter().collect() };
        let all = read.voters.iter().chain(&read.learners).chain(&read.outgoing);
        match read.voters.is_empty() || all.clone().any(|number| *number == 0 || *number == NOBODY) {
            true => Err(WireError::Invalid("a group's configuration")),
            false => Ok(read),
        }
    }
}
