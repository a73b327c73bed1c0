//! One member of a group: the library's Raft, stepped. What it wants logged, sent and applied is handed out by [`Member::take`]; who drives it does that, in the order given.

use crate::configuration::{Change, Configuration};
use crate::log::Log;
use raft::eraftpb::{Entry, EntryType, HardState, Message, MessageType};
use raft::{Config, ProgressState, RawNode, ReadState, StateRole};
use rheostat_clock::TimestampVector;
use rheostat_core::random::Random;
use rheostat_core::wire::{Wire, WireError};
use std::ops::{Deref, DerefMut};

/// Bytes of entries in one message, and applied in one go.
const MESSAGE_BYTES: u64 = 256 << 10;

/// Role, term and leader (0 if none is known).
pub type Role = (StateRole, u64, u64);

/// What a member remembers over a restart beside its entries.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Kept {
    /// Its term.
    pub term: u64,
    /// Whom it has voted for in it.
    pub vote: u64,
    /// Everything up to this index is committed and applied.
    pub applied: u64,
}

/// See the module.
pub struct Member {
    node: RawNode<Log>,
    /// As of the last look, for what changes with them.
    role: Role,
}

/// What the library wants done. The log of the member has it already.
pub struct Wanted {
    /// The request's number, for [`RawNode::on_persist_ready`] once all of it that is logged is on disk.
    pub number: u64,
    /// The state is that of a snapshot at this index and term, with this stable vector. The log has its configuration.
    pub snapshot: Option<((u64, u64), TimestampVector)>,
    /// Entries to be logged; those at or after the first that were there are void.
    pub entries: Vec<Entry>,
    /// What has changed of term, vote and commit.
    pub hard: Option<HardState>,
    /// Messages that leave at once.
    pub messages: Vec<Message>,
    /// Messages that promise something: they leave when everything logged so far is on disk.
    pub promises: Vec<Message>,
    /// Entries that are committed, to be applied.
    pub committed: Vec<Entry>,
    /// Questions for the commit index that a majority has answered.
    pub reads: Vec<ReadState>,
}

impl Member {
    /// Member `me` of the group of `log`, which holds the entries. Elections come after `election_ticks` to twice as many. Errors: the library's, about the configuration.
    pub fn new(me: u64, mut log: Log, kept: Kept, (heartbeat_ticks, election_ticks): (usize, usize)) -> Result<Member, String> {
        let commit = kept.applied.max(log.shown_committed());
        log.hard = HardState { term: kept.term, vote: kept.vote, commit, ..HardState::default() };
        let config = Config {
            id: me,
            election_tick: election_ticks,
            heartbeat_tick: heartbeat_ticks,
            applied: kept.applied,
            max_size_per_msg: MESSAGE_BYTES,
            max_committed_size_per_ready: MESSAGE_BYTES,
            check_quorum: true,
            pre_vote: true,
            ..Config::default()
        };
        let node = RawNode::new(&config, log, &slog::Logger::root(slog::Discard, slog::o!())).map_err(|error| format!("the Raft group: {error}"))?;
        // As of no term, so that the first look replaces the timeout that the library has drawn.
        Ok(Member { node, role: (StateRole::Follower, u64::MAX, 0) })
    }

    /// What the library wants done, if it wants anything.
    pub fn take(&mut self) -> Option<Wanted> {
        if !self.node.has_ready() {
            return None;
        }
        let mut ready = self.node.ready();
        let mut snapshot = None;
        if !ready.snapshot().is_empty() {
            let metadata = ready.snapshot().get_metadata();
            let base = (metadata.index, metadata.term);
            let (stable, configuration) = crate::message::mark_of(ready.snapshot());
            self.node.mut_store().restart_at(base, &stable, configuration);
            snapshot = Some((base, stable));
        }
        let entries: Vec<Entry> = ready.take_entries().into_iter().map(ours).collect();
        entries.iter().for_each(|entry| self.node.mut_store().append(entry.clone()));
        let hard = ready.hs().cloned();
        if let Some(hard) = &hard {
            self.node.mut_store().hard = hard.clone();
        }
        let wanted = Wanted {
            number: ready.number(),
            snapshot,
            entries,
            hard,
            messages: ready.take_messages(),
            promises: ready.take_persisted_messages(),
            committed: ready.take_committed_entries().into_iter().map(ours).collect(),
            reads: ready.take_read_states(),
        };
        self.node.advance_append_async(ready);
        Some(wanted)
    }

    /// Puts a change of the configuration to the group, if this member leads and no other one is under way. Says whether it has.
    pub(crate) fn propose_change(&mut self, change: Change) -> bool {
        let raft = &self.node.raft;
        if raft.state != StateRole::Leader || raft.has_pending_conf() || raft.lead_transferee.is_some() || self.log().configuration().is_joint() {
            return false;
        }
        self.node.propose_conf_change(change.to_bytes(), Change::to_library(Some(change))).is_ok()
    }

    /// Applies the committed entry at `index`, if it changes the configuration and has not yet. Says what it changed; nothing: a joint one has ended.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn apply_change(&mut self, entry: &Entry) -> Result<Option<Change>, WireError> {
        let change = if entry.context.is_empty() { None } else { Some(Change::from_bytes(&entry.context)?) };
        if entry.index <= self.log().configuration().index {
            return Ok(change);
        }
        self.node.mut_store().changing = true;
        let state = self.node.apply_conf_change(&Change::to_library(change));
        let log = self.node.mut_store();
        log.changing = false;
        // What does not fit is void, for all members alike.
        if let Ok(state) = state {
            log.configuration.changed_to(entry.index, change, state);
        }
        Ok(change)
    }

    /// Who belongs to the group, as of what is applied.
    pub fn configuration(&self) -> &Configuration {
        self.log().configuration()
    }

    /// A snapshot has been taken in and is not on disk: the library would look for entries that are gone if it called an election now.
    fn is_between_logs(&self) -> bool {
        self.node.raft.raft_log.applied < self.log().base().0
    }

    /// A tick of the library's clock.
    pub fn tick(&mut self) {
        match self.is_between_logs() {
            true => self.tick_aside(),
            false => drop(self.node.tick()),
        }
    }

    /// A message from another member. Errors: it is of an old term, or of nobody.
    pub fn step(&mut self, message: Message) -> raft::Result<()> {
        if message.get_msg_type() == MessageType::MsgTimeoutNow && self.is_between_logs() {
            return Ok(());
        }
        self.note_restored(&message);
        self.node.step(message)
    }

    /// A member that asked for a snapshot has got it. The library's leader remembers that it was asked, and would send the next one, and the next, for as long as anything is written.
    fn note_restored(&mut self, message: &Message) {
        if message.get_msg_type() == MessageType::MsgAppendResponse
            && !message.reject
            && let Some(progress) = self.node.raft.mut_prs().get_mut(message.from)
            && progress.state == ProgressState::Snapshot
            && message.index >= progress.pending_snapshot
        {
            progress.pending_request_snapshot = raft::INVALID_INDEX;
        }
    }

    /// Says whether role, term or leader have changed since the last look, and from what. The library's random choice of an election timeout is made by `random` instead.
    pub fn changed(&mut self, election_ticks: usize, random: &mut Random) -> Option<Role> {
        let raft = &mut self.node.raft;
        let role = (raft.state, raft.term, raft.leader_id);
        if role == self.role {
            return None;
        }
        if (role.0, role.1) != (self.role.0, self.role.1) {
            raft.set_randomized_election_timeout(election_ticks + random.below(election_ticks as u64) as usize);
        }
        Some(std::mem::replace(&mut self.role, role))
    }

    /// Tells the library what is applied; a snapshot only when it is on disk.
    pub fn advance_applied(&mut self, applied: u64) {
        let log = &self.node.raft.raft_log;
        let reached = applied.min(log.persisted).min(log.committed);
        if reached > log.applied {
            self.node.advance_apply_to(reached);
        }
    }

    /// Whether it leads.
    pub fn is_leader(&self) -> bool {
        self.node.raft.state == StateRole::Leader
    }

    /// The leader, if there is one that is known.
    pub fn leader(&self) -> Option<u64> {
        Some(self.node.raft.leader_id).filter(|leader| *leader != 0)
    }

    /// The log.
    pub fn log(&self) -> &Log {
        self.node.store()
    }

    /// Gives up its role; it knows of no leader.
    pub fn step_aside(&mut self) {
        let raft = &mut self.node.raft;
        if raft.state != StateRole::Follower {
            let term = raft.term;
            raft.become_follower(term, raft::INVALID_ID);
        }
    }

    /// A tick of a member that may not lead: it hears of no leader any more as any other does, and then votes for whoever asks.
    pub fn tick_aside(&mut self) {
        let raft = &mut self.node.raft;
        raft.election_elapsed = (raft.election_elapsed + 1).min(raft.election_timeout());
    }
}

/// Whether `entry` changes the configuration.
pub fn is_change(entry: &Entry) -> bool {
    entry.get_entry_type() == EntryType::EntryConfChangeV2
}

/// An entry without the library's form of what it changes.
fn ours(mut entry: Entry) -> Entry {
    if is_change(&entry) {
        entry.data = Default::default();
    }
    entry
}

impl Deref for Member {
    type Target = RawNode<Log>;

    fn deref(&self) -> &RawNode<Log> {
        &self.node
    }
}

impl DerefMut for Member {
    fn deref_mut(&mut self) -> &mut RawNode<Log> {
        &mut self.node
    }
}
