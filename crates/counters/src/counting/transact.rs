//! Transactions: commands on keys of one partition that are made as one step, or not at all (Redis: MULTI).
//!
//! Each command is tried on a draft of its key, and what the drafts come to is one write. Where a server decides for itself, reads and write stand in one call of the server inside,
//! so nothing comes between them. Where a group decides, the write is guarded by all that was read, and tried again with what the refusal brings.

use super::cell::damaged;
use super::decided::sum;
use super::key_set::KeySet;
use super::read::{Stage, being_made, is_counter, is_definition, reserved};
use super::update::Batch;
use super::{Counting, failed};
use crate::definition::Definition;
use crate::state::State;
use rheostat_clock::DcId;
use rheostat_core::answer::{Quality, Read};
use rheostat_core::capabilities::Reach;
use rheostat_core::dial::{Dial, Level};
use rheostat_core::failure::Failure;
use rheostat_core::ids::{Now, OpId};
use rheostat_core::operation::{Action, Change, Guard, MOST_ACTIONS, Operation, TestWrite};
use rheostat_core::outcome::{Acted, Outcome};
use rheostat_core::replica::{CANNOT_DECIDE, Execution};
use rheostat_core::reserved::is_reserved;
use rheostat_core::session::Session;
use rheostat_core::slots;
use rheostat_core::store::Position;
use rheostat_core::version::{Item, Key, VersionId};
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};

/// How often a guarded write that others came before is tried again, and how often reads that waited are made anew.
const MOST_TRIES: u32 = 256;

/// How often all keys are read until two rounds in a row have found the same versions.
const MOST_ROUNDS: u32 = 8;

/// How good the answer is of a transaction that reads nothing.
const NOTHING_READ: Quality = Quality { level: Level::Eventual, staleness_ms: None };

/// A transaction under way.
pub(super) struct Transaction {
    actions: Vec<Action>,
    guards: Vec<Guard>,
    dial: Dial,
    /// The keys that it reads, in order; where a group decides, the guards' among them.
    keys: Vec<Key>,
    tries: u32,
    /// It is one test or one change of a key, and is answered as such.
    is_single: bool,
    /// Up to where the store must be durable before what has been done so far is told.
    after: Position,
    /// Where a group decides: what is answered once the write that is under way is made.
    written: Option<(Vec<Acted>, Quality)>,
}

/// Of each counter the versions of what stands beside it, or what was taken in of each data center.
type Found = Vec<(Vec<Option<VersionId>>, BTreeMap<DcId, (u64, u64)>)>;

/// A key as the commands so far have left it.
#[derive(Clone, Default)]
struct Draft {
    /// As a user sees it: of a counter, the number.
    read: Read,
    /// The definition to write again, if it holds a counter.
    counter: Option<Definition>,
    is_dirty: bool,
    /// A command has added to it, by this data center's row.
    is_added: bool,
}

impl Draft {
    /// As it is stored.
    fn item(&self, key: Key) -> Item {
        let value = self.counter.as_ref().map(Definition::to_value).or_else(|| self.read.value.clone());
        Item { key, expires_ms: if value.is_some() { self.read.expires_ms } else { 0 }, value }
    }

    fn put(&mut self, item: &Item) {
        *self = Draft {
            read: Read { value: item.value.clone(), version: self.read.version, expires_ms: item.expires_ms },
            is_dirty: true,
            ..Draft::default()
        };
    }

    /// Errors: the change would delete what the transaction has added to.
    fn change(&mut self, now: Now, key: &Key, change: &Change) -> Result<Acted, Failure> {
        let before = self.read.clone();
        let Some(item) = change.clone().item(now.physical_ms, key.clone(), &before) else { return Ok(Acted::Changed { before, wrote: false }) };
        match change {
            Change::Expire { .. } if item.value.is_some() => {
                self.read.expires_ms = item.expires_ms;
                self.is_dirty = true;
            }
            _ if self.is_added => return Err(written_otherwise()),
            _ => self.put(&item),
        }
        Ok(Acted::Changed { before, wrote: true })
    }
}

impl Transaction {
    /// The answer, when everything is made.
    fn came(&self, mut acted: Vec<Acted>, version: Option<VersionId>, quality: Quality) -> Outcome {
        match (self.is_single, acted.pop()) {
            (true, Some(Acted::Tested { equal, before, .. })) => Outcome::Tested { equal, before, version },
            (true, Some(Acted::Changed { before, .. })) => Outcome::Changed { before, version },
            (_, last) => {
                acted.extend(last);
                Outcome::Transacted(acted, version, quality)
            }
        }
    }
}

/// What a test comes to on drafts of keys.
fn test<K: Ord + std::borrow::Borrow<Key> + Clone>(drafts: &mut BTreeMap<K, Draft>, target: K, write: &TestWrite) -> Acted {
    let before = drafts.get(&write.test).map(|draft| draft.read.clone()).unwrap_or_default();
    let (equal, item) = write.clone().decide(&before);
    if let Some(item) = &item {
        drafts.entry(target).or_default().put(item);
    }
    Acted::Tested { equal, before, wrote: item.is_some() }
}

fn written_otherwise() -> Failure {
    Failure::Refused("a counter that a transaction adds to cannot be set, deleted or let expire at once in the same transaction".into())
}

/// Errors: the answer `acted` is more than a reply or a frame may have. A key that a thousand commands read is in memory once, but not in their answer. Looked at
/// before anything is written: afterwards an error would say that nothing was.
fn fits(acted: &[Acted], most: usize) -> Result<(), Failure> {
    let bytes: usize = acted.iter().map(Acted::bytes).sum();
    // What one command answers is no more than a GET answers.
    if acted.len() > 1 && bytes > most {
        return Err(Failure::Refused(format!(
            "the values that this transaction looks at have {bytes} bytes; {most} are the most (limits.max_reply_bytes, limits.max_frame_bytes)"
        )));
    }
    Ok(())
}

fn no_transacted(outcome: &Outcome) -> Failure {
    damaged(format!("a part of a transaction was answered by {outcome:?}"))
}

impl Counting {
    /// Reads a key and writes another by what it was. The server inside decides that if it can; what it cannot see is the number of a counter.
    pub(super) fn test_write(&mut self, now: Now, write: Box<TestWrite>, dial: Dial, session: &mut Session) -> Execution {
        if !self.setup.decides_tests || self.holds_counter(&write.test) {
            return self.transact_as(now, vec![Action::Test(write)], Vec::new(), dial, true, session);
        }
        if let Err(failure) = self.check_transaction(&[Action::Test(write.clone())], &[], dial) {
            return failed(failure);
        }
        let stage = Stage::Tested { test: write.test.clone(), target: write.target.clone() };
        self.perform(now, None, Operation::TestWrite { write, dial }, stage, session)
    }

    /// Makes `actions` if all `guards` hold.
    pub(super) fn transact(&mut self, now: Now, actions: Vec<Action>, guards: Vec<Guard>, dial: Dial, session: &mut Session) -> Execution {
        self.transact_as(now, actions, guards, dial, false, session)
    }

    /// As [`Counting::transact`]; `is_single`: it is answered as the one test or change that it is.
    pub(super) fn transact_as(
        &mut self,
        now: Now,
        actions: Vec<Action>,
        guards: Vec<Guard>,
        dial: Dial,
        is_single: bool,
        session: &mut Session,
    ) -> Execution {
        if dial.as_of.is_some() {
            return failed(Failure::Refused("a transaction of commands (MULTI) is of the present, not of a time in the past".into()));
        }
        if let Err(failure) = self.check_transaction(&actions, &guards, dial) {
            return failed(failure);
        }
        let read = actions.iter().filter_map(Action::reads);
        let keys: BTreeSet<&Key> = read.chain(guards.iter().map(|guard| &guard.key)).collect();
        let keys: Vec<Key> = keys.into_iter().cloned().collect();
        let transaction = Box::new(Transaction { actions, guards, dial, keys, tries: 0, is_single, after: Position(0), written: None });
        match self.setup.members {
            Reach::Server => self.transact_here(now, None, transaction, session),
            Reach::DataCenter | Reach::Everywhere => {
                let first = Operation::ReadTransaction { keys: transaction.keys.clone(), dial };
                if transaction.keys.is_empty() {
                    return self.write_decided(now, transaction, session);
                }
                self.perform(now, None, first, Stage::Transact(transaction), session)
            }
        }
    }

    fn check_transaction(&self, actions: &[Action], guards: &[Guard], dial: Dial) -> Result<(), Failure> {
        let refuse = |why: &str| Err(Failure::Refused(why.into()));
        if actions.len().max(guards.len()) > MOST_ACTIONS {
            return refuse(&format!("a transaction has at most {MOST_ACTIONS} commands"));
        }
        // What the request leaves open the keyspace says.
        let usual = self.setup.quorum;
        let more = |asked: u8, usual: u8| if asked == 0 { usual > 1 } else { asked > 1 };
        if more(dial.quorum.reads, usual.reads) || more(dial.quorum.writes, usual.writes) {
            return refuse("a transaction is made by one replica alone, and more are asked for (RHEO QUORUM 1 1 1 asks for one)");
        }
        if let Some(asked) = dial.level
            && (self.setup.serves)(asked).is_none()
        {
            return refuse(&format!("this keyspace's protocol does not give level {asked}"));
        }
        let place = self.setup.place;
        let named = actions.iter().flat_map(|action| action.reads().into_iter().chain([action.key()]));
        for key in named.chain(guards.iter().map(|guard| &guard.key)) {
            if is_reserved(key) {
                return Err(reserved());
            }
            if slots::partition_of(key, place.partitions) != place.server.partition {
                return refuse("all keys of a transaction must lie in one partition: give them one {tag}");
            }
        }
        // Which keys are added to, and which are written otherwise.
        let mut added: BTreeMap<&Key, bool> = BTreeMap::new();
        for action in actions {
            let values = match action {
                Action::Put(Item { value, .. }) => [value.as_ref(), None],
                Action::Change(_, change) => [change.value(), None],
                Action::Test(write) => [Some(&write.then), write.otherwise.as_ref()],
                _ => [None, None],
            };
            if values.into_iter().flatten().any(|value| Definition::is(value)) {
                return Err(is_definition());
            }
            let adds = match action {
                Action::Add(..) => true,
                Action::Get(_) | Action::Change(_, Change::Expire { .. }) => continue,
                Action::Put(_) | Action::Test(_) | Action::Change(..) => false,
            };
            if adds && self.is_grouped() {
                return refuse(
                    "this keyspace's counters are kept by one server of the data center, and it adds to them outside of transactions only",
                );
            }
            if *added.entry(action.key()).or_insert(adds) != adds && !self.is_led() {
                return Err(written_otherwise());
            }
        }
        let conditional = actions.iter().any(|action| match action {
            Action::Change(_, change) => change.is_conditional(),
            Action::Test(_) => true,
            Action::Get(_) | Action::Put(_) | Action::Add(..) => false,
        });
        if self.setup.decides.is_none() && (conditional || !guards.is_empty()) {
            return refuse(&format!("this keyspace's protocol {CANNOT_DECIDE}"));
        }
        Ok(())
    }

    /// An operation inside, a part of a transaction, has come to `outcome`.
    pub(super) fn transacted(
        &mut self,
        now: Now,
        op: Option<OpId>,
        mut transaction: Box<Transaction>,
        outcome: Outcome,
        after: Position,
        session: &mut Session,
    ) -> Execution {
        transaction.tries += 1;
        transaction.after = transaction.after.max(after);
        if transaction.tries > MOST_TRIES {
            return failed(Failure::Busy(format!("others came first {MOST_TRIES} times")));
        }
        let after = transaction.after;
        let done = |outcome| Execution::Done { outcome, after };
        match (outcome, transaction.written.take()) {
            (Outcome::Failed(failure), _) => done(Outcome::Failed(failure)),
            // What it waited for is here; others may have written meanwhile, so it is read again.
            (Outcome::Read(..), _) if !self.is_led() => self.transact_here(now, op, transaction, session),
            (Outcome::Many(reads, quality), _) if reads.len() == transaction.keys.len() => {
                self.decide_transaction(now, op, transaction, reads, quality, true, session)
            }
            (Outcome::Written(version), Some((acted, quality))) => {
                transaction.actions.iter().for_each(|action| self.replaced(now, action.key()));
                done(transaction.came(acted, Some(version), quality))
            }
            // The guards are all keys that were read, in order.
            (Outcome::Unmet(met), Some((_, quality))) if met.len() == transaction.keys.len() => {
                self.decide_transaction(now, op, transaction, met, quality, false, session)
            }
            (outcome, _) => done(Outcome::Failed(no_transacted(&outcome))),
        }
    }

    /// Reads, and writes if no read has to wait.
    fn transact_here(&mut self, now: Now, op: Option<OpId>, transaction: Box<Transaction>, session: &mut Session) -> Execution {
        if self.flight.is_some() && transaction.actions.iter().any(|action| matches!(action, Action::Add(..))) {
            return failed(Failure::Busy("counters of this partition are being written; try again".into()));
        }
        if transaction.actions.iter().any(|action| !matches!(action, Action::Get(_)) && self.is_being_made(action.key())) {
            return failed(being_made());
        }
        // At level eventual what is read would be no part of the session, though what is written is.
        let writes = transaction.actions.iter().any(|action| !matches!(action, Action::Get(_)));
        let level = transaction.dial.level.filter(|level| !writes || *level != Level::Eventual);
        let dial = Dial { level, quorum: self.alone(), ..transaction.dial };
        let (mut after, mut quality) = (transaction.after, NOTHING_READ);
        let mut known: Vec<Read> = vec![Read::default(); transaction.keys.len()];
        let added = transaction.actions.iter().filter(|action| matches!(action, Action::Add(..))).map(Action::key);
        let added: BTreeSet<Key> = added.cloned().collect();
        let mut beside = Vec::new();
        // A read can make visible what a read before it did not find: the last round has found one moment.
        for round in 0.. {
            let mut changed = round == 0;
            for (key, known) in transaction.keys.iter().zip(&mut known) {
                match self.inner.execute(now, Operation::Get { key: key.clone(), dial }, session, &mut self.box_) {
                    Execution::Done { outcome: Outcome::Read(read, of), after: at } => {
                        (quality, after) = (of, after.max(at));
                        changed |= known.version != read.version;
                        *known = read;
                    }
                    Execution::Done { outcome, .. } => return Execution::Done { outcome, after: Position(0) },
                    Execution::Waiting(inside) => {
                        let op = op.unwrap_or(inside);
                        self.stages.insert(inside, (op, Stage::Transact(transaction)));
                        return Execution::Waiting(op);
                    }
                }
            }
            match self.counters_of_moment(now, &transaction.keys, &known, &added, session) {
                Ok(found) => changed |= std::mem::replace(&mut beside, found) != beside,
                Err(failure) => return failed(failure),
            }
            if !changed || transaction.keys.len() < 2 {
                break;
            }
            if round == MOST_ROUNDS {
                return failed(Failure::Busy("what is visible here changes while it is read; try again".into()));
            }
        }
        let known = transaction.keys.iter().cloned().zip(known).collect();
        let (mut cells, mut undo) = (KeySet::default(), Vec::new());
        match self.draft_here(now, &transaction.actions, known, (&mut cells, &mut undo), session) {
            Err(failure) => {
                for (key, state) in undo.into_iter().rev() {
                    if let Some(cell) = self.cells.get_mut(&key) {
                        cell.state = state;
                    }
                }
                failed(failure)
            }
            Ok((acted, items)) if items.is_empty() && cells == KeySet::Empty => {
                Execution::Done { outcome: Outcome::Transacted(acted, None, quality), after }
            }
            Ok((acted, items)) => {
                let replaced: Vec<Key> = items.iter().map(|item| item.key.clone()).collect();
                let batch = Batch { cells, extra: items, dial: Some(transaction.dial), ..Batch::default() };
                let outcome = match self.put(now, &batch, session) {
                    Execution::Done { outcome: Outcome::Written(version), after: at } => {
                        self.written(&batch, version, session);
                        replaced.iter().for_each(|key| self.replaced(now, key));
                        return Execution::Done { outcome: Outcome::Transacted(acted, Some(version), quality), after: after.max(at) };
                    }
                    Execution::Done { outcome, .. } => outcome,
                    // Written later, it would be of another moment than what was read.
                    Execution::Waiting(inside) => {
                        self.inner.abandon(inside);
                        Outcome::Failed(Failure::Busy("this server's clock is behind what this session has seen; try again".into()))
                    }
                };
                // What is in memory was not written.
                for key in batch.cells.iter() {
                    self.let_go(key);
                }
                Execution::Done { outcome, after: Position(0) }
            }
        }
    }

    /// What `session` sees of the counters among `keys`, which are as in `known`, and of those that are `added` to: the versions of what stands beside them, and what was taken in.
    fn counters_of_moment(&mut self, now: Now, keys: &[Key], known: &[Read], added: &BTreeSet<Key>, session: &mut Session) -> Result<Found, Failure> {
        let mut found = Vec::new();
        for (key, _) in keys.iter().zip(known).filter(|(key, read)| is_counter(read) && !added.contains(*key)) {
            found.push((self.states(now, key, session)?.into_iter().map(|read| read.version).collect(), BTreeMap::new()));
        }
        let ready = added.iter().try_for_each(|key| self.make_ready(now, key, session).map_err(|stopped| (key, stopped)));
        if let Err((key, stopped)) = ready {
            return Err(self.words(&[(key.clone(), 0)], stopped));
        }
        if let Err(stopped) = self.catch_up_together(now, &added.iter().collect::<Vec<_>>(), session) {
            return Err(self.words(&[], stopped));
        }
        found.extend(added.iter().filter_map(|key| self.cells.get(key)).map(|cell| (Vec::new(), cell.heard.clone())));
        Ok(found)
    }

    /// What the commands come to on keys that are as in `known`; `cells` and `undo` take what is changed in memory. Errors: they cannot be made, or their answer is too large.
    fn draft_here(
        &mut self,
        now: Now,
        actions: &[Action],
        known: BTreeMap<Key, Read>,
        (cells, undo): (&mut KeySet, &mut Vec<(Key, State)>),
        session: &mut Session,
    ) -> Result<(Vec<Acted>, Vec<Item>), Failure> {
        let mut drafts: BTreeMap<Key, Draft> = BTreeMap::new();
        for (key, read) in known {
            let mut draft = Draft { read, ..Draft::default() };
            if is_counter(&draft.read) {
                draft.counter = stored(&draft.read)?;
                let states = self.states(now, &key, session)?;
                self.show(&mut draft.read, &states)?;
            }
            drafts.insert(key, draft);
        }
        let mut acted = Vec::with_capacity(actions.len());
        for action in actions {
            if let Action::Test(write) = action {
                acted.push(test(&mut drafts, write.target.clone(), write));
                continue;
            }
            let draft = drafts.entry(action.key().clone()).or_default();
            acted.push(match action {
                Action::Test(_) | Action::Get(_) => Acted::Read(draft.read.clone()),
                Action::Put(item) => {
                    draft.put(item);
                    Acted::Written
                }
                Action::Change(key, change) => draft.change(now, key, change)?,
                Action::Add(key, amount) => {
                    let Some(cell) = self.cells.get(key) else { return Err(Failure::Busy("too many counters at once".into())) };
                    if cells.insert(key.clone()) {
                        undo.push((key.clone(), cell.state.clone()));
                    }
                    // The cell's definition is the newest that there is, and is written with the row if it is not yet.
                    draft.counter = Some(cell.definition.clone().moved(cell.seen.unwrap_or_default()));
                    let values = match self.apply(now, &[(key.clone(), *amount)], session) {
                        Ok(values) => values,
                        Err(stopped) => return Err(self.words(&[(key.clone(), *amount)], stopped)),
                    };
                    self.numbers.local_done += 1;
                    let value = values.first().copied().unwrap_or_default();
                    draft.read.value = Some(value.to_string().into_bytes().into());
                    draft.is_added = true;
                    Acted::Counted(value)
                }
            });
        }
        fits(&acted, self.setup.max_answer_bytes)?;
        let mut items = Vec::new();
        for (key, draft) in drafts.into_iter().filter(|(_, draft)| draft.is_dirty) {
            match self.cells.get_mut(&key).filter(|cell| draft.is_added && cell.unwritten.is_some()) {
                Some(cell) => cell.unwritten = Some(draft.read.expires_ms),
                None => items.push(draft.item(key)),
            }
        }
        Ok((acted, items))
    }

    /// Goes on where a group decides, with keys as in `reads`. `whole`: they were read together and for the session, not brought by a refusal.
    #[allow(clippy::too_many_arguments)]
    fn decide_transaction(
        &mut self,
        now: Now,
        op: Option<OpId>,
        mut transaction: Box<Transaction>,
        reads: Vec<Read>,
        quality: Quality,
        whole: bool,
        session: &mut Session,
    ) -> Execution {
        let known: BTreeMap<Key, Read> = transaction.keys.iter().cloned().zip(reads).collect();
        let version = |key: &Key| known.get(key).and_then(Read::present);
        let met = transaction.guards.iter().all(|guard| version(&guard.key) == guard.version);
        let counters = known.values().any(is_counter);
        let outcome = match met {
            false => Ok(None),
            true if counters && self.is_grouped() => Err(Failure::Refused(match transaction.is_single {
                true => "the key holds a counter, and in this keyspace nothing can be written by what a counter's value is".into(),
                false => "a transaction of this keyspace cannot name counters: ask for them outside of it".into(),
            })),
            true => draft_decided(now, &transaction.actions, &known, self.setup.max_answer_bytes).map(Some),
        };
        match outcome {
            // What a refusal brings may be of a server that leads no more.
            Ok(None) | Err(_) if !whole => {
                let again = Operation::ReadTransaction { keys: transaction.keys.clone(), dial: transaction.dial };
                self.perform(now, op, again, Stage::Transact(transaction), session)
            }
            Ok(Some((_, items))) if items.is_empty() && !whole => {
                let again = Operation::ReadTransaction { keys: transaction.keys.clone(), dial: transaction.dial };
                self.perform(now, op, again, Stage::Transact(transaction), session)
            }
            Ok(None) => {
                // Nobody asked for their values.
                let found = |guard: &Guard| known.get(&guard.key).map_or_else(Read::default, |read| Read { value: None, ..*read });
                let reads = transaction.guards.iter().map(found).collect();
                Execution::Done { outcome: Outcome::Unmet(reads), after: transaction.after }
            }
            Err(failure) => failed(failure),
            Ok(Some((acted, items))) if items.is_empty() => {
                Execution::Done { outcome: transaction.came(acted, None, quality), after: transaction.after }
            }
            Ok(Some((acted, items))) => {
                transaction.written = Some((acted, quality));
                let guards = transaction.keys.iter().map(|key| Guard { key: key.clone(), version: version(key) }).collect();
                let operation = Operation::PutIf { items, guards, dial: transaction.dial };
                self.perform(now, op, operation, Stage::Transact(transaction), session)
            }
        }
    }

    /// Where a group decides: a transaction that reads nothing is a plain write.
    fn write_decided(&mut self, now: Now, mut transaction: Box<Transaction>, session: &mut Session) -> Execution {
        match draft_decided(now, &transaction.actions, &BTreeMap::new(), self.setup.max_answer_bytes) {
            Err(failure) => failed(failure),
            Ok((acted, items)) if items.is_empty() => Execution::Done { outcome: Outcome::Transacted(acted, None, NOTHING_READ), after: Position(0) },
            Ok((acted, items)) => {
                transaction.written = Some((acted, NOTHING_READ));
                let operation = Operation::Put { items, dial: transaction.dial };
                self.perform(now, None, operation, Stage::Transact(transaction), session)
            }
        }
    }
}

/// The definition that was `read`, as it is to be written again.
fn stored(read: &Read) -> Result<Option<Definition>, Failure> {
    let definition = read.value.as_ref().and_then(|value| Definition::from_value(value)).transpose().map_err(damaged)?;
    Ok(definition.map(|definition| definition.moved(read.version.unwrap_or_default())))
}

/// What the commands come to, where the number of a counter is in its definition. Errors: they cannot be made, or their answer has more bytes than `most`.
fn draft_decided(now: Now, actions: &[Action], known: &BTreeMap<Key, Read>, most: usize) -> Result<(Vec<Acted>, SmallVec<[Item; 1]>), Failure> {
    let mut drafts: BTreeMap<&Key, Draft> = BTreeMap::new();
    for (key, read) in known {
        let mut draft = Draft { read: read.clone(), ..Draft::default() };
        if is_counter(read) {
            draft.counter = stored(read)?;
            draft.read.value = draft.counter.as_ref().map(|definition| definition.initial.to_string().into_bytes().into());
        }
        drafts.insert(key, draft);
    }
    let mut acted = Vec::with_capacity(actions.len());
    for action in actions {
        if let Action::Test(write) = action {
            acted.push(test(&mut drafts, &write.target, write));
            continue;
        }
        let draft = drafts.entry(action.key()).or_default();
        acted.push(match action {
            Action::Test(_) | Action::Get(_) => Acted::Read(draft.read.clone()),
            Action::Put(item) => {
                draft.put(item);
                Acted::Written
            }
            Action::Change(key, change) => draft.change(now, key, change)?,
            Action::Add(key, amount) => {
                let stored_now = Read { value: draft.item(key.clone()).value, ..draft.read.clone() };
                let (value, item) = sum(key, *amount, &stored_now)?;
                let written = Read { value: item.value, version: None, expires_ms: item.expires_ms };
                draft.counter = stored(&written)?;
                draft.read.value = Some(value.to_string().into_bytes().into());
                draft.read.expires_ms = written.expires_ms;
                draft.is_dirty = true;
                Acted::Counted(value)
            }
        });
    }
    fits(&acted, most)?;
    let items = drafts.into_iter().filter(|(_, draft)| draft.is_dirty).map(|(key, draft)| draft.item(key.clone())).collect();
    Ok((acted, items))
}
