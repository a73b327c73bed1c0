//! MULTI: requests that are kept until EXEC, and are then made as one step of their partition, or not at all.

use super::{Flow, State};
use crate::connection::output::Output;
use crate::connection::slow::{self, Part};
use crate::memory::{Arriving, Memory};
use crate::shard::Shard;
use rheostat_core::ids::{KeyspaceId, Now};
use rheostat_core::operation::{Action, Change, Guard, MOST_ACTIONS, Operation};
use rheostat_core::replica::CANNOT_DECIDE;
use rheostat_core::version::{Item, Key, VersionId};
use rheostat_resp::{Arguments, Command, CommandError, Kept, Render, resolve};
use rheostat_storage::MAX_KEY_BYTES;
use smallvec::smallvec;
use std::cell::RefCell;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

const ABORTED: &str = "EXECABORT Transaction discarded because of previous errors.";

const NO_ROOM: &str = "BUSY other large transactions are kept, and there is no room in memory for one more (limits.memory_bytes)";

/// What MULTI and WATCH have begun.
#[derive(Default)]
pub(super) struct Multi {
    /// The requests since MULTI, if there was one.
    queue: Option<Queue>,
    /// The watched keys, each with the version that was seen, and their keyspace.
    watched: BTreeMap<Key, Option<VersionId>>,
    keyspace: KeyspaceId,
    /// Bytes of memory that the watched keys take.
    watched_bytes: usize,
    /// Room in memory for all that is kept, if it is large, and since when.
    room: Option<(Arriving, u64)>,
}

#[derive(Default)]
struct Queue {
    requests: Kept,
    /// How many commands on single keys they are.
    actions: usize,
    /// A request was refused, so nothing will be made.
    is_broken: bool,
}

/// What takes more has room reserved for it.
const SMALL_BYTES: usize = 64 << 10;

/// Bytes of memory that a watched key takes: its own, its version, and the two counts of who holds it.
fn watched_bytes(key: &[u8]) -> usize {
    key.len() + size_of::<Guard>() + 2 * size_of::<usize>()
}

/// The error of what is more than a transaction may be.
fn too_large(most_bytes: usize) -> String {
    format!("ERR a transaction has at most {most_bytes} bytes, with the keys that it watches, as one request has (limits.max_request_bytes)")
}

impl Multi {
    /// Whether requests are kept.
    pub(super) fn is_open(&self) -> bool {
        self.queue.is_some()
    }

    /// How many requests are kept, if they are, and how many keys are watched.
    pub(super) fn counts(&self) -> (Option<usize>, usize) {
        (self.queue.as_ref().map(|queue| queue.requests.len()), self.watched.len())
    }

    /// Since when requests and watched keys have taken room that others wait for, and how much.
    pub(super) fn queued(&self) -> Option<(u64, u64)> {
        let (_, since_us) = self.room.as_ref()?;
        Some((*since_us, self.bytes() as u64))
    }

    /// Bytes of memory that everything takes.
    fn bytes(&self) -> usize {
        self.watched_bytes + self.queue.as_ref().map_or(0, |queue| queue.requests.cost())
    }

    pub(super) fn watch(&mut self, keyspace: KeyspaceId, seen: Vec<Guard>) {
        self.keyspace = keyspace;
        for Guard { key, version } in seen {
            let bytes = watched_bytes(&key);
            // What was seen first counts.
            if let Entry::Vacant(place) = self.watched.entry(key) {
                place.insert(version);
                self.watched_bytes += bytes;
            }
        }
    }

    /// Takes room for `bytes` in all, if that is much. Errors: there is none; the error reply.
    fn take_room(&mut self, budget: &Memory, now: Now, bytes: usize) -> Result<(), &'static str> {
        if bytes <= SMALL_BYTES || self.room.as_ref().is_some_and(|(room, _)| room.bytes >= bytes) {
            return Ok(());
        }
        let since_us = self.room.as_ref().map_or(now.monotonic_us, |(_, since_us)| *since_us);
        if self.is_open() {
            // Given back first, as of a request that arrives: if there is no more, nothing of the transaction stays. What is watched stays after a WATCH that is refused.
            self.room = None;
        }
        let room = budget.take_queued(bytes.next_multiple_of(SMALL_BYTES)).ok_or(NO_ROOM)?;
        self.room = Some((room, since_us));
        Ok(())
    }

    /// Takes room for `keys`, which are not watched yet. Errors: they are too many or too long, or there is none; the error reply.
    fn may_watch(&mut self, keys: &BTreeSet<&[u8]>, most_bytes: usize, budget: &Memory, now: Now) -> Result<(), String> {
        if let Some(key) = keys.iter().find(|key| key.len() > MAX_KEY_BYTES) {
            return Err(format!("ERR a key of {} bytes; at most {MAX_KEY_BYTES} are stored", key.len()));
        }
        if self.watched.len() + keys.len() > MOST_ACTIONS {
            return Err(format!("ERR at most {MOST_ACTIONS} keys can be watched"));
        }
        let bytes = self.bytes() + keys.iter().map(|key| watched_bytes(key)).sum::<usize>();
        if bytes > most_bytes {
            return Err(too_large(most_bytes));
        }
        self.take_room(budget, now, bytes).map_err(str::to_owned)
    }

    /// Gives back the room that is not needed.
    pub(super) fn give_back(&mut self) {
        if self.bytes() <= SMALL_BYTES {
            self.room = None;
        }
    }
}

/// What a transaction's requests come to.
#[derive(Default)]
struct Plan {
    actions: Vec<Action>,
    parts: Vec<Part>,
}

impl Plan {
    fn one(&mut self, action: Action, render: Render) {
        self.actions.push(action);
        self.parts.push(Part::One(render));
    }

    fn several(&mut self, actions: impl Iterator<Item = Action>, part: impl FnOnce(usize) -> Part) {
        let before = self.actions.len();
        self.actions.extend(actions);
        self.parts.push(part(self.actions.len() - before));
    }
}

impl State {
    /// Takes a request while MULTI is open. `command`: what it means.
    #[cold]
    pub(super) fn in_multi(
        &mut self,
        shard: &mut Shard,
        handle: &Rc<RefCell<Shard>>,
        now: Now,
        arguments: Arguments<'_>,
        command: Result<Command<'_>, CommandError>,
        out: &mut Output,
    ) -> Flow {
        let refusal = match command {
            Ok(command @ (Command::Multi | Command::Exec | Command::Discard | Command::Watch(_) | Command::Quit | Command::Reset)) => {
                return self.command(shard, handle, now, command, out);
            }
            Ok(command) => {
                let mut plan = Plan::default();
                self.plan(command, &mut plan).and_then(|()| self.keep(now, arguments, plan.actions.len()))
            }
            Err(error) if error.closes() => {
                shard.counters.errors += 1;
                return Flow::Close;
            }
            Err(error) => Err(error.to_string()),
        };
        match refusal {
            Ok(()) => {
                out.writer(self.version).simple("QUEUED");
                Flow::Done
            }
            Err(why) => {
                self.break_multi();
                self.error(shard, out, &why)
            }
        }
    }

    /// Nothing of the open transaction will be made; if there is none, one is opened, so that nothing of what follows is made either.
    pub(super) fn break_multi(&mut self) {
        // Nor do the watched keys matter any more.
        **self.multi.get_or_insert_default() = Multi { queue: Some(Queue { is_broken: true, ..Queue::default() }), ..Multi::default() };
    }

    /// Keeps a request that is `actions` commands on single keys. Errors: there are too many, or there is no room for them.
    fn keep(&mut self, now: Now, request: Arguments<'_>, actions: usize) -> Result<(), String> {
        let most_bytes = self.shared.config.limits.max_request_bytes;
        let Some(multi) = self.multi.as_mut() else { return Ok(()) };
        let bytes = multi.bytes() + request.cost();
        let Some(queue) = multi.queue.as_ref().filter(|queue| !queue.is_broken) else { return Ok(()) };
        if queue.actions + actions > MOST_ACTIONS || queue.requests.len() >= MOST_ACTIONS {
            return Err(format!("ERR a transaction has at most {MOST_ACTIONS} commands"));
        }
        if bytes > most_bytes {
            return Err(too_large(most_bytes));
        }
        multi.take_room(&self.shared.budget, now, bytes)?;
        if let Some(queue) = &mut multi.queue {
            queue.actions += actions;
            queue.requests.push(request);
        }
        Ok(())
    }

    /// Adds what `command` comes to. Errors: it cannot be in a transaction; the error reply.
    fn plan(&self, command: Command<'_>, plan: &mut Plan) -> Result<(), String> {
        match command {
            Command::Ping(None) => plan.parts.push(Part::Pong),
            Command::Ping(Some(message)) | Command::Echo(message) => plan.parts.push(Part::Said(smallvec![message.into()])),
            Command::Time => plan.parts.push(Part::Said(self.time().map(|text| text.into_bytes().into()).into_iter().collect())),
            // By EXEC the watched keys have had their effect.
            Command::Unwatch => plan.parts.push(Part::Ok(0)),
            Command::MultiGet(keys) => plan.several(keys.iter().map(|key| Action::Get(key.into())), Part::Values),
            Command::MultiSet(pairs) => {
                let item = |(key, value): (&[u8], &[u8])| Item { key: key.into(), value: Some(value.into()), expires_ms: 0 };
                plan.several(pairs.last_of_each_key().into_iter().map(|pair| Action::Put(item(pair))), Part::Ok);
            }
            Command::Exists(keys) => plan.several(keys.iter().map(|key| Action::Get(key.into())), Part::Count),
            Command::Delete(keys) => {
                let mut keys: Vec<Key> = keys.iter().map(Key::from).collect();
                keys.sort_unstable();
                keys.dedup();
                plan.several(keys.into_iter().map(|key| Action::Change(key, Change::Delete)), Part::Count);
            }
            Command::Test(test) => {
                let decides = self.shared.keyspaces[usize::from(self.keyspace.0)].can.decides.is_some();
                let single = if decides { self.test(test).map_err(str::to_owned)? } else { return Err(self.cannot_decide()) };
                let Operation::TestWrite { write, .. } = single.operation else { return Err(self.not_in_multi()) };
                plan.one(Action::Test(write), single.render);
            }
            Command::One(one) => {
                let render = one.render;
                plan.one(one.action().ok_or_else(|| self.not_in_multi())?, render);
            }
            _ => return Err(self.not_in_multi()),
        }
        let decides = self.shared.keyspaces[usize::from(self.keyspace.0)].can.decides.is_some();
        match plan.actions.last() {
            Some(Action::Change(_, change)) if change.is_conditional() && !decides => Err(self.cannot_decide()),
            _ => Ok(()),
        }
    }

    fn not_in_multi(&self) -> String {
        let name = self.last_command.map_or("", |entry| entry.name);
        format!("ERR {} is not served between MULTI and EXEC", name.to_uppercase().replace('|', " "))
    }

    fn cannot_decide(&self) -> String {
        format!("ERR protocol {} {CANNOT_DECIDE}", self.shared.keyspaces[usize::from(self.keyspace.0)].protocol)
    }

    /// MULTI.
    pub(super) fn open_multi(&mut self, shard: &mut Shard, out: &mut Output) -> Flow {
        let multi = self.multi.get_or_insert_default();
        if multi.is_open() {
            return self.error(shard, out, "ERR MULTI calls can not be nested");
        }
        multi.queue = Some(Queue::default());
        out.writer(self.version).ok();
        Flow::Done
    }

    /// DISCARD.
    pub(super) fn discard(&mut self, shard: &mut Shard, out: &mut Output) -> Flow {
        if !self.multi.as_ref().is_some_and(|multi| multi.is_open()) {
            return self.error(shard, out, "ERR DISCARD without MULTI");
        }
        self.multi = None;
        out.writer(self.version).ok();
        Flow::Done
    }

    /// UNWATCH, outside of a transaction.
    pub(super) fn unwatch(&mut self, out: &mut Output) -> Flow {
        self.multi = None;
        out.writer(self.version).ok();
        Flow::Done
    }

    /// WATCH.
    pub(super) fn watch(&mut self, shard: &mut Shard, handle: &Rc<RefCell<Shard>>, now: Now, keys: Arguments<'_>, out: &mut Output) -> Flow {
        if self.multi.as_ref().is_some_and(|multi| multi.is_open()) {
            return self.error(shard, out, "ERR WATCH inside MULTI is not allowed");
        }
        if self.shared.keyspaces[usize::from(self.keyspace.0)].can.decides.is_none() {
            let why = self.cannot_decide();
            return self.error(shard, out, &why);
        }
        let multi = self.multi.get_or_insert_default();
        if !multi.watched.is_empty() && multi.keyspace != self.keyspace {
            return self.error(shard, out, "ERR keys of another keyspace are watched; UNWATCH them first");
        }
        // What was seen first counts, so what is watched already is not read again.
        let keys: BTreeSet<&[u8]> = keys.iter().filter(|key| !multi.watched.contains_key(*key)).collect();
        let Some(first) = keys.first() else {
            out.writer(self.version).ok();
            return Flow::Done;
        };
        if let Err(why) = multi.may_watch(&keys, self.shared.config.limits.max_request_bytes, &self.shared.budget, now) {
            return self.error(shard, out, &why);
        }
        let partition = self.shared.topology.partition_of(first);
        let keys: Vec<Key> = keys.into_iter().map(Key::from).collect();
        let session = self.take_session(self.keyspace);
        Flow::Slow(slow::watch(self.context(now), self.access(handle), session, partition, keys))
    }

    /// EXEC.
    pub(super) fn exec(&mut self, shard: &mut Shard, handle: &Rc<RefCell<Shard>>, now: Now, out: &mut Output) -> Flow {
        let Some(multi) = self.multi.take_if(|multi| multi.is_open()) else { return self.error(shard, out, "ERR EXEC without MULTI") };
        let Multi { queue, watched, keyspace, .. } = *multi;
        let queue = queue.unwrap_or_default();
        if queue.is_broken {
            return self.error(shard, out, ABORTED);
        }
        if !watched.is_empty() && keyspace != self.keyspace {
            return self.error(shard, out, "ERR the watched keys are of another keyspace; nothing was done");
        }
        let mut plan = Plan::default();
        for request in queue.requests.iter() {
            let read = resolve(None, request).and_then(|entry| Ok((entry, self.read_request(now, entry, request)?)));
            let Ok((entry, command)) = read else { return self.error(shard, out, ABORTED) };
            // Its user may have been given less since it was kept.
            if let Err(denied) = self.allow(entry, request, &command) {
                return self.error(shard, out, &denied.to_string());
            }
            if self.plan(command, &mut plan).is_err() {
                return self.error(shard, out, ABORTED);
            }
        }
        let guards: Vec<Guard> = watched.into_iter().map(|(key, version)| Guard { key, version }).collect();
        let mut partitions = plan.actions.iter().map(Action::key).chain(guards.iter().map(|guard| &guard.key));
        let partition = partitions.next().map(|key| self.shared.topology.partition_of(key));
        if partitions.any(|key| Some(self.shared.topology.partition_of(key)) != partition) {
            return self.error(
                shard,
                out,
                "CROSSSLOT the keys of a transaction must lie in one partition: give them one {tag}, or send the commands without MULTI; nothing was done",
            );
        }
        let watches = !guards.is_empty();
        let operation = Operation::Transact { actions: plan.actions, guards, dial: self.dial };
        // Its answer would tell of the watched keys.
        if watches
            && let Some(rights) = &self.rights
            && let Err(denied) = rights.allow_operation(self.keyspace, &operation)
        {
            return self.error(shard, out, &format!("NOPERM {denied}"));
        }
        let (served, session) = (self.service_level().cloned(), self.take_session(self.keyspace));
        let access = self.access(handle);
        Flow::Slow(slow::transact(self.context(now), access, session, (partition, operation), plan.parts, served))
    }
}
