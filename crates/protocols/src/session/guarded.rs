//! Writes that are made only if keys are as expected. The leader decides before it gives the write its place, on everything that is before that place in its log; what it puts there is a plain write.
//!
//! An entry stands behind the same entries in every log that has it, so what the leader has decided holds for all, whoever leads when it is committed. It must not be decided where it
//! is applied, as a change of one key is: a member whose store has come in pages can have a guard's key as of a later entry and not be able to tell how it was at this one.

use super::group::{Write, seat};
use super::message::{Command, Entry, Message, Reply};
use super::server::{Replicated, Scope};
use super::snapshot::read_of;
use rheostat_core::answer::Read;
use rheostat_core::ids::ServerId;
use rheostat_core::step::{Departure, Step};
use rheostat_core::store::Store;
use rheostat_core::version::Key;
use rheostat_core::wire::Wire;
use std::collections::{BTreeMap, VecDeque};

/// The keys that a leader's log writes behind what is applied, each with the last entry that does.
#[derive(Default)]
pub(super) struct Unapplied {
    last: BTreeMap<Key, u64>,
    order: VecDeque<(u64, Key)>,
}

impl Unapplied {
    fn note(&mut self, index: u64, entry: &Entry) {
        let mut note = |key: &Key| {
            self.last.insert(key.clone(), index);
            self.order.push_back((index, key.clone()));
        };
        match entry {
            Entry::Write { command: Command::Put(items), .. } => items.iter().for_each(|item| note(&item.key)),
            Entry::Write { command: Command::Change(key, _), .. } => note(key),
            Entry::Remote { updates, .. } => updates.iter().flat_map(|update| &update.items).for_each(|item| note(&item.key)),
            Entry::Quiet(_) => {}
        }
    }

    fn applied(&mut self, applied: u64) {
        while let Some((index, key)) = self.order.pop_front_if(|(index, _)| *index <= applied) {
            if self.last.get(&key) == Some(&index) {
                self.last.remove(&key);
            }
        }
    }
}

/// What a leader needs to decide guarded writes.
#[derive(Default)]
pub(super) struct Guarded {
    /// Those that wait: for a leader that may decide, or for what is before them to be applied.
    waiting: Vec<Write>,
    /// Kept from the first guarded write of a leader's term on.
    unapplied: Option<Unapplied>,
}

impl Guarded {
    /// Another term, or none, begins.
    pub(super) fn forget_log(&mut self) {
        self.unapplied = None;
    }

    /// Everything up to this index is in the store.
    pub(super) fn applied(&mut self, applied: u64) {
        if let Some(unapplied) = &mut self.unapplied {
            unapplied.applied(applied);
        }
    }

    /// Whether the log has something on a guard's key that is not applied.
    fn is_open(&self, write: &Write) -> bool {
        self.unapplied.as_ref().is_some_and(|unapplied| write.guards.iter().any(|guard| unapplied.last.contains_key(&guard.key)))
    }

    pub(super) fn hold(&mut self, write: Write) {
        self.waiting.push(write);
    }

    /// Those that wait.
    pub(super) fn held(&self) -> impl Iterator<Item = &Write> {
        self.waiting.iter()
    }

    pub(super) fn abandon(&mut self, from: ServerId, request: u64) {
        self.waiting.retain(|write| write.from != from || write.request != request);
    }
}

impl<W: Scope> Replicated<W> {
    /// Whether this replica leads and has applied everything that earlier leaders have committed: an entry of its own term is behind all that.
    pub(super) fn leads(&self) -> bool {
        let raft = &self.group.node.raft;
        self.group.is_leader() && !self.group.saved.installing && raft.raft_log.term(self.group.applied).is_ok_and(|term| term == raft.term)
    }

    /// Puts `entry` at the end of the log; says at which place. `None` only when the leadership went this moment.
    pub(super) fn propose(&mut self, entry: &Entry) -> Option<u64> {
        self.group.node.propose(Vec::new(), entry.to_bytes()).ok()?;
        let index = self.group.node.raft.raft_log.last_index();
        if let Some(unapplied) = &mut self.guarded.unapplied {
            unapplied.note(index, entry);
        }
        Some(index)
    }

    /// Whether a guarded write waits here that need not wait any more.
    fn can_decide(&self) -> bool {
        if self.guarded.waiting.is_empty() {
            return false;
        }
        if !self.group.is_leader() {
            return self.group.leader().is_some();
        }
        // While it hands over, nothing is put into the log.
        let may = self.leads() && self.group.node.raft.lead_transferee.is_none();
        may && self.guarded.waiting.iter().any(|write| !self.guarded.is_open(write))
    }

    /// Decides the guarded writes that wait here and can be decided; says whether there were some.
    pub(super) fn decide_guarded<S: Store<u64>>(&mut self, step: &mut Step<'_, Self, S>) -> bool {
        if !self.can_decide() {
            return false;
        }
        let waiting = std::mem::take(&mut self.guarded.waiting);
        if !self.group.is_leader() {
            // None of them is in a log.
            waiting.into_iter().for_each(|write| self.send_on(step, write));
            return true;
        }
        if self.guarded.unapplied.is_none() {
            let mut unapplied = Unapplied::default();
            for entry in self.group.log().after(self.group.applied) {
                if let Ok(read) = Entry::from_bytes(&entry.data) {
                    unapplied.note(entry.index, &read);
                }
            }
            self.guarded.unapplied = Some(unapplied);
        }
        for write in waiting {
            if self.guarded.is_open(&write) {
                self.guarded.waiting.push(write);
                continue;
            }
            let now_ms = step.now.physical_ms;
            let mut read = |key: &Key| step.store.latest(key, |_| true).map_or_else(Read::default, |version| read_of(version, now_ms));
            let met: Vec<Read> = write.guards.iter().map(|guard| read(&guard.key)).collect();
            // It alone decides, so the name of a deletion will do, too.
            let holds = write.guards.iter().zip(&met).all(|(guard, met)| [met.present(), met.version].contains(&guard.version));
            if holds || self.planted.is("counter-guard-taken-as-met") {
                self.put_in_log(step, write);
            } else if write.from == self.place.server {
                self.unmet(step, write.request, met);
            } else {
                step.effects.send_member(write.from, Message::Unmet { request: write.request, met }, Departure::AsReply);
            }
        }
        true
    }

    /// A guarded write of a client here was not made, and will not be.
    pub(super) fn unmet<S: Store<u64>>(&mut self, step: &mut Step<'_, Self, S>, request: u64, met: Vec<Read>) {
        if let Some(op) = self.proposals.remove(&request) {
            step.effects.reply(op, Reply::Unmet(met));
        }
    }

    /// Whether `from` is a member of this group.
    pub(super) fn is_member(&self, from: ServerId) -> bool {
        from.partition == self.place.server.partition && self.seats.contains(&seat(from.dc, from.replica))
    }
}
