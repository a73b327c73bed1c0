//! Counters where one group of servers decides for all data centers (protocol `strong`): the number itself, or for one with bounds its definition with the number as its first value, changed by guarded
//! writes (document 002, section V-A, the strongly consistent counter it compares with). Nobody holds rights: the bounds are kept where the write is decided.
//!
//! Updates go to the server that leads the group, which makes those of one counter one after the other, all that wait at once in one write. It reads what they need in its store, and writes all numbers that they
//! change, and the records of their names, if these still are what it has read. If others came first, plain writes or one who leads without it, the refusal brings what is there now.

use super::cell::{Found, damaged, find};
use super::names::Record;
use super::read::{Stage, reserved};
use super::{Counting, keys};
use crate::definition::{Definition, Incarnation};
use crate::state::Refusal;
use rheostat_clock::DcId;
use rheostat_core::answer::{Quality, Read};
use rheostat_core::counter::{CounterCall, CounterView, Direction, NewCounter, OutOfRights, Rights, Standing, UpdateName};
use rheostat_core::dial::Dial;
use rheostat_core::failure::Failure;
use rheostat_core::ids::{Now, OpId};
use rheostat_core::operation::{Change, Expiry, Guard, Operation, SetCondition};
use rheostat_core::outcome::Outcome;
use rheostat_core::replica::{Done, Execution, Outbox};
use rheostat_core::reserved::is_reserved;
use rheostat_core::session::Session;
use rheostat_core::store::Position;
use rheostat_core::version::{Item, Key, VersionId};
use rheostat_core::wire::Wire;
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// How often a write that others came before is tried again; one of all that meet is made each time. There are no pauses: what came first comes back with the refusal.
const MOST_TRIES: u32 = 256;

/// The most keys of one guarded write.
const MOST_KEYS: usize = 1024;

/// An update that is to be decided.
#[derive(Debug)]
struct Member {
    /// What it is called outside.
    op: OpId,
    changes: SmallVec<[(Key, i64); 1]>,
    /// Its name, and the key of its client's record.
    name: Option<(UpdateName, Key)>,
    dial: Dial,
    session: Session,
    /// What is answered once the write that is under way is made.
    values: SmallVec<[i64; 1]>,
}

impl Member {
    /// What it reads, and guards.
    fn keys(&self) -> impl Iterator<Item = &Key> {
        self.changes.iter().map(|(key, _)| key).chain(self.name.iter().map(|(_, record)| record))
    }
}

/// Updates that are decided together, in the order in which they came.
#[derive(Debug)]
pub(super) struct Adding {
    /// The name of them together.
    op: OpId,
    members: Vec<Member>,
    keys: Vec<Key>,
    /// Whether what was read last may be old; then it does not decide that nothing is written.
    old: bool,
    tries: u32,
}

/// Updates of this server, which leads the group, that are not decided yet. What changes one counter waits for what changes it already, so whoever asks gets a turn, from however far away; and what waits
/// is decided together.
#[derive(Default)]
pub(super) struct Deciding {
    /// Those that wait for others, in the order in which they came.
    queue: VecDeque<Member>,
    /// The keys of those under way.
    busy: BTreeSet<Key>,
    /// Until when each is waited for, with its session.
    waiting: BTreeMap<OpId, (u64, Session)>,
    /// Some begin at this moment, and what they begin with may have ended already.
    begins: bool,
    again: bool,
}

impl Deciding {
    /// When the first of them is given up.
    pub(super) fn next_us(&self) -> u64 {
        self.waiting.values().map(|(deadline_us, _)| *deadline_us).min().unwrap_or(u64::MAX)
    }

    /// Nobody waits for `op` any more.
    pub(super) fn abandon(&mut self, op: OpId) {
        self.waiting.remove(&op);
        self.queue.retain(|member| member.op != op);
    }
}

/// What an update comes to.
enum Decided {
    /// It was made before, as this version.
    Before(SmallVec<[i64; 1]>, VersionId),
    /// This is to be written.
    Write(SmallVec<[Item; 1]>),
}

impl Member {
    /// What it comes to where its keys are as in `there`, and `written` is of others that go before it. Errors: nothing is written.
    fn decide(&mut self, there: &BTreeMap<&Key, Read>, written: &BTreeMap<Key, Item>, record_expires_ms: u64) -> Result<Decided, Failure> {
        let read = |key: &Key| there.get(key).ok_or_else(|| damaged("a key was not read"));
        if let Some((name, key)) = &self.name
            && let Read { value: Some(value), version, .. } = read(key)?
            && let Some(values) = Record::from_bytes(value).map_err(damaged)?.answer(name.number)?
        {
            if written.contains_key(key) {
                // It was sent twice, and both are decided now.
                self.values = values;
                return Ok(Decided::Write(SmallVec::new()));
            }
            return Ok(Decided::Before(values, version.unwrap_or_default()));
        }
        let mut items = SmallVec::new();
        self.values.clear();
        for (key, amount) in &self.changes {
            let (value, item) = sum(key, *amount, read(key)?)?;
            self.values.push(value);
            items.push(item);
        }
        if let Some((name, key)) = &self.name {
            let record = Record { number: name.number, values: self.values.to_vec(), incarnation: VersionId::default() };
            items.push(Item { key: key.clone(), value: Some(record.to_bytes().into()), expires_ms: record_expires_ms });
        }
        Ok(Decided::Write(items))
    }
}

/// A counter with bounds that is at `value` now.
fn at(definition: &Definition, value: i64) -> Result<Definition, Failure> {
    // Rights are not used here; a definition names an owner for all there are.
    let new = NewCounter { lower: definition.lower, upper: definition.upper, initial: value, placement: vec![1] };
    let definition = Definition::new(&new, 1, &[DcId(0)]).map_err(damaged)?;
    // Written again, it must stay what it is called.
    Ok(Definition { incarnation: Incarnation::Of(VersionId::default()), ..definition })
}

/// How far the counter can go.
fn room(definition: &Definition, direction: Direction) -> Option<u64> {
    definition.bound(direction).map(|bound| definition.initial.abs_diff(bound))
}

/// The number at `key`, which was `read`, with `amount` added: the value, and what is to be written. Errors: it cannot be added.
pub(super) fn sum(key: &Key, amount: i64, read: &Read) -> Result<(i64, Item), Failure> {
    let found = find(read)?;
    let number = match &found {
        Found::Counter(definition) => definition.initial,
        Found::Free(number) => *number,
        Found::Other => return Err(Failure::Refused("value is not an integer or out of range".into())),
    };
    let after = number.checked_add(amount).ok_or_else(|| Failure::Refused(Refusal::Overflow.to_string()))?;
    let value = match &found {
        Found::Counter(definition) => {
            let direction = if amount < 0 { Direction::Down } else { Direction::Up };
            let needed = amount.unsigned_abs();
            if let Some(here) = room(definition, direction).filter(|here| *here < needed) {
                return Err(Failure::OutOfRights(Box::new(OutOfRights { key: key.clone(), value: number, direction, needed, here, elsewhere: 0 })));
            }
            at(definition, after)?.to_value()
        }
        _ => after.to_string().into_bytes().into(),
    };
    // Of a key that has expired nothing is kept.
    let expires_ms = if read.value.is_some() { read.expires_ms } else { 0 };
    Ok((after, Item { key: key.clone(), value: Some(value), expires_ms }))
}

impl Counting {
    /// What is asked of counters where one group decides.
    pub(super) fn decided(&mut self, now: Now, call: CounterCall, dial: Dial, session: &mut Session) -> Result<Execution, Failure> {
        if call.key().is_some_and(|key| is_reserved(key)) {
            return Err(reserved());
        }
        match call {
            CounterCall::Create { key, counter } => {
                let made = Definition::new(&counter, self.setup.place.data_centers, &self.circle.members).map_err(Failure::Refused)?;
                let value = at(&made, made.initial)?.to_value();
                let change = Change::Set { value, expiry: Expiry::Never, condition: SetCondition::IfAbsent };
                Ok(self.perform(now, None, Operation::Change { key, change, dial }, Stage::Made(made), session))
            }
            CounterCall::Add { changes, name, .. } => {
                let (first, _) = self.check_changes(&changes)?;
                let waiting = self.deciding.queue.len();
                if waiting >= self.setup.options.max_waiting {
                    return Err(Failure::Busy(format!("{waiting} updates are waiting already")));
                }
                let name = name.map(|name| (name, keys::update(&first, name.client, DcId(0))));
                let op = self.new_op();
                self.deciding.waiting.insert(op, (now.monotonic_us + self.setup.operation_timeout_us, session.clone()));
                self.deciding.queue.push_back(Member { op, changes, name, dial, session: session.clone(), values: SmallVec::new() });
                self.decide_next(now);
                Ok(Execution::Waiting(op))
            }
            CounterCall::Look { key } => Ok(self.perform(now, None, Operation::Get { key, dial }, Stage::Look, session)),
            CounterCall::Move { .. } | CounterCall::Reclaim { .. } => Err(Failure::Refused(
                "in a keyspace of protocol `strong` no data center holds rights: the bounds are kept where writes are decided".into(),
            )),
        }
    }

    /// Begins with updates that can begin. Some end as they begin, and others need not wait for them any more: one after the other, however many they are.
    fn decide_next(&mut self, now: Now) {
        self.deciding.again = true;
        if std::mem::replace(&mut self.deciding.begins, true) {
            return;
        }
        while std::mem::take(&mut self.deciding.again) {
            self.decide_together(now);
        }
        self.deciding.begins = false;
    }

    /// Begins with all updates that wait for none that is under way, nor for one that waits itself.
    fn decide_together(&mut self, now: Now) {
        let mut waits: BTreeSet<Key> = BTreeSet::new();
        let (mut members, mut keys) = (Vec::<Member>::new(), BTreeSet::new());
        for member in std::mem::take(&mut self.deciding.queue) {
            let free = member.keys().all(|key| !self.deciding.busy.contains(key) && !waits.contains(key));
            if free && keys.len() < MOST_KEYS && members.first().is_none_or(|first| first.dial == member.dial) {
                keys.extend(member.keys().cloned());
                members.push(member);
            } else {
                waits.extend(member.keys().cloned());
                self.deciding.queue.push_back(member);
            }
        }
        let Some(first) = members.first() else { return };
        let mut session = first.session.clone();
        for member in members.iter().skip(1) {
            self.inner.merge_sessions(&mut session, &member.session);
        }
        self.deciding.busy.extend(keys.iter().cloned());
        let adding = Box::new(Adding { op: self.new_op(), members, keys: keys.into_iter().collect(), old: true, tries: 0 });
        // The first read need not be of today: if it is not, the write says so, and what is there.
        match adding.keys.iter().map(|key| Ok(self.newest(now, key)?.0)).collect::<Result<Vec<Read>, Failure>>() {
            Ok(reads) => self.add_on(now, adding, &reads, Position(0), &mut session),
            Err(failure) => self.end_adding(now, *adding, |_| Outcome::Failed(failure.clone()), None, Position(0)),
        }
    }

    /// Answers all members of `adding`, in their own sessions if there is none that they share, and goes on with those that have waited for them.
    fn end_adding(&mut self, now: Now, adding: Adding, outcome: impl Fn(&Member) -> Outcome, session: Option<&Session>, after: Position) {
        for member in adding.members {
            let outcome = outcome(&member);
            self.answer_member(member, outcome, session, after);
        }
        self.deciding.busy.retain(|key| !adding.keys.contains(key));
        self.decide_next(now);
    }

    fn answer_member(&mut self, member: Member, outcome: Outcome, session: Option<&Session>, after: Position) {
        if self.deciding.waiting.remove(&member.op).is_some() {
            let session = session.cloned().unwrap_or(member.session);
            self.held.push_back((after, Done { op: member.op, outcome, session }));
        }
    }

    /// What is to be written where the keys of `adding` are as in `reads`, one update after the other; those that write nothing are taken out and told. `None`: what was read may be too old to say that.
    fn decide(&mut self, now: Now, adding: &mut Adding, reads: &[Read], after: Position, session: &Session) -> Option<SmallVec<[Item; 1]>> {
        let mut there: BTreeMap<&Key, Read> = adding.keys.iter().zip(reads.iter().cloned()).collect();
        let mut items: BTreeMap<Key, Item> = BTreeMap::new();
        let (mut stay, mut told) = (Vec::new(), Vec::new());
        let window_ms = self.setup.options.retry_window_ms;
        for mut member in std::mem::take(&mut adding.members) {
            match member.decide(&there, &items, now.physical_ms + window_ms) {
                Ok(Decided::Write(own)) => {
                    for item in own {
                        if let Some(read) = there.get_mut(&item.key) {
                            (read.value, read.expires_ms) = (item.value.clone(), item.expires_ms);
                        }
                        items.insert(item.key.clone(), item);
                    }
                    stay.push(member);
                }
                Ok(Decided::Before(values, version)) => told.push((member, Outcome::Counted(values, version))),
                Err(failure) => told.push((member, Outcome::Failed(failure))),
            }
        }
        if adding.old && !told.is_empty() {
            // The session is to have seen what it is told, and what stands in its way is to be of today.
            adding.members = stay.into_iter().chain(told.into_iter().map(|(member, _)| member)).collect();
            adding.members.sort_by_key(|member| member.op);
            return None;
        }
        for (member, outcome) in told {
            self.numbers.repeats += u64::from(matches!(outcome, Outcome::Counted(..)));
            self.answer_member(member, outcome, Some(session), after);
        }
        adding.members = stay;
        Some(items.into_values().collect())
    }

    /// Goes on with updates whose keys are as in `reads`.
    fn add_on(&mut self, now: Now, mut adding: Box<Adding>, reads: &[Read], after: Position, session: &mut Session) {
        if reads.len() != adding.keys.len() {
            return self.end_adding(now, *adding, |_| Outcome::Failed(damaged("a read of fewer keys than were asked for")), None, after);
        }
        let dial = adding.members.first().map(|member| member.dial).unwrap_or_default();
        let operation = match self.decide(now, &mut adding, reads, after, session) {
            None => {
                adding.old = false;
                Operation::ReadTransaction { keys: adding.keys.clone(), dial }
            }
            Some(_) if adding.members.is_empty() => return self.end_adding(now, *adding, |_| Outcome::Count(0), None, after),
            Some(_) if adding.tries >= MOST_TRIES => {
                let busy = Failure::Busy(format!("others came first {MOST_TRIES} times"));
                return self.end_adding(now, *adding, |_| Outcome::Failed(busy.clone()), None, after);
            }
            Some(items) => {
                adding.tries += 1;
                let guards = adding.keys.iter().cloned().zip(reads).map(|(key, read)| Guard { key, version: read.present() });
                Operation::PutIf { items, guards: guards.collect(), dial }
            }
        };
        let op = adding.op;
        self.later(now, Some(op), operation, Stage::Add(adding), after, session);
    }

    /// An operation inside, a part of updates, has come to `outcome`; says that nothing of it is to be told but what they have told already.
    pub(super) fn added(&mut self, now: Now, mut adding: Box<Adding>, outcome: Outcome, after: Position, session: &mut Session) -> Execution {
        let op = adding.op;
        match outcome {
            Outcome::Many(reads, _) => self.add_on(now, adding, &reads, after, session),
            Outcome::Unmet(met) if self.owns() => {
                adding.old = true;
                self.add_on(now, adding, &met, after, session);
            }
            // Nothing was made, for certain, and another one leads.
            Outcome::Unmet(_) => {
                for member in std::mem::take(&mut adding.members) {
                    self.deciding.waiting.remove(&member.op);
                    self.once_more(Some(member.op), None);
                }
                self.end_adding(now, *adding, |_| Outcome::Count(0), None, after);
            }
            Outcome::Written(version) => {
                self.end_adding(now, *adding, |member| Outcome::Counted(member.values.clone(), version), Some(session), after)
            }
            other => self.end_adding(now, *adding, |_| other.clone(), None, after),
        }
        Execution::Waiting(op)
    }

    /// Another server leads: what has not begun here begins there.
    pub(super) fn decide_elsewhere(&mut self) {
        for member in std::mem::take(&mut self.deciding.queue) {
            self.deciding.waiting.remove(&member.op);
            self.once_more(Some(member.op), None);
        }
    }

    /// Gives up the updates whose deadline has passed.
    pub(super) fn expire_deciding(&mut self, now: Now, out: &mut Outbox) {
        let due: Vec<OpId> =
            self.deciding.waiting.iter().filter(|(_, (deadline_us, _))| *deadline_us <= now.monotonic_us).map(|(op, _)| *op).collect();
        for op in due {
            let Some((_, session)) = self.deciding.waiting.remove(&op) else { continue };
            let queued = self.deciding.queue.len();
            self.deciding.queue.retain(|member| member.op != op);
            let failure = match self.deciding.queue.len() < queued {
                true => Failure::Busy("others came first until the deadline, so this update was not made".into()),
                false => Failure::Timeout("the servers of this partition to decide".into()),
            };
            out.done.push(Done { op, outcome: Outcome::Failed(failure), session });
        }
    }

    /// The counter, as it was read.
    pub(super) fn seen(&self, read: &Read, quality: Quality) -> Outcome {
        match find(read) {
            Ok(Found::Counter(definition)) => self.seen_as(&definition, quality),
            // Without bounds it is nothing but its number.
            Ok(Found::Free(value)) if read.value.is_some() => {
                let rights = vec![Rights { dc: self.circle.here, down: None, up: None, standing: Standing::Member }];
                Outcome::Counter(Box::new(CounterView { value, lower: None, upper: None, rights, quality }))
            }
            Ok(_) => Outcome::Failed(Failure::Refused(if read.value.is_some() { "the value is not a counter" } else { "no such counter" }.into())),
            Err(failure) => Outcome::Failed(failure),
        }
    }

    pub(super) fn seen_as(&self, definition: &Definition, quality: Quality) -> Outcome {
        let [down, up] = [Direction::Down, Direction::Up].map(|direction| room(definition, direction));
        let rights = vec![Rights { dc: self.circle.here, down, up, standing: Standing::Member }];
        let Definition { initial, lower, upper, .. } = *definition;
        Outcome::Counter(Box::new(CounterView { value: initial, lower, upper, rights, quality }))
    }
}
