//! What each command comes to. Those that are one operation on one key need nothing of this.

use super::{Flow, Single, State, session_of};
use crate::access::Started;
use crate::connection::counters::{self, Telling};
use crate::connection::output::Output;
use crate::connection::scan::{self, Wanted};
use crate::connection::slow::{self, ShardAccess, Slow};
use crate::connection::{cluster, info};
use crate::shard::Shard;
use crate::shard::mailbox::{Answer, Waits};
use rheostat_core::dial::Strategy;
use rheostat_core::ids::{Now, PartitionId};
use rheostat_core::operation::{Change, Operation};
use rheostat_core::replica::Execution;
use rheostat_core::scatter::{Progress, Scatter};
use rheostat_core::slots;
use rheostat_core::store::Position;
use rheostat_core::version::{Item, Key};
use rheostat_resp::command::{Act, CounterCommand, KeyspaceChoice, One, Test, View};
use rheostat_resp::{Command, Render, table};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::oneshot;

/// What is said to what looks at no single key, while reads are of the past.
const ONLY_READS: &str = "ERR only reads of keys can be as of a time in the past; RHEO AT NOW ends that";

impl State {
    /// Answers any command, or begins to.
    pub(super) fn other_command(&mut self, shard: &mut Shard, handle: &Rc<RefCell<Shard>>, now: Now, command: Command<'_>, out: &mut Output) -> Flow {
        let mut writer = out.writer(self.version);
        match command {
            Command::One(one) => {
                let single = self.one(one);
                return self.single(shard, handle, now, single, out);
            }
            Command::Delete(keys) if keys.len() == 1 => {
                let single = self.one(One { key: keys.at(0), act: Act::Change(Change::Delete), render: Render::CHANGED });
                return self.single(shard, handle, now, single, out);
            }
            Command::Exists(keys) if keys.len() == 1 => {
                let single = self.one(One { key: keys.at(0), act: Act::Read, render: Render::EXISTS });
                return self.single(shard, handle, now, single, out);
            }
            // What waits to be sent comes first: the snapshot is to cover it.
            Command::MultiGet(_) if self.away.is_some() && (self.dial.strategy != Strategy::Coordinated || self.dial.as_of.is_some()) => {
                return Flow::Later;
            }
            Command::MultiGet(keys) => {
                let keys: Vec<Key> = keys.iter().map(Key::from).collect();
                // What is tried at several levels is tried at one place, its coordinator.
                if self.service_level().is_none()
                    && let Some(scatter) = self.scatter(now, &keys)
                {
                    return self.scattered(shard, handle, now, scatter, out);
                }
                let single = self.multi_get(shard, keys);
                return self.single(shard, handle, now, single, out);
            }
            Command::MultiSet(pairs) => match self.multi_set(&pairs.last_of_each_key()) {
                Ok(single) => return self.single(shard, handle, now, single, out),
                Err(_) if self.away.is_some() => return Flow::Later,
                Err(message) => return self.error(shard, out, message),
            },
            Command::Counter(_) | Command::Siblings(_) | Command::Put(_) if self.away.is_some() => return Flow::Later,
            Command::Counter(command) => match self.counter(handle, now, command) {
                Ok(Ok(single)) => return self.single(shard, handle, now, single, out),
                Ok(Err(slow)) => return Flow::Slow(slow),
                Err(message) => return self.error(shard, out, &message),
            },
            Command::Siblings(key) => {
                let (partition, key) = (self.shared.topology.partition_of(key), key.into());
                return self.with_context(handle, now, partition, Operation::Siblings { key, dial: self.dial });
            }
            Command::Put(put) => {
                if let Some(context) = put.context {
                    match self.shared.resume_session(self.keyspace, context) {
                        Ok(seen) => self.shared.keyspaces[usize::from(self.keyspace.0)]
                            .merge_sessions(session_of(&mut self.sessions, &self.shared, self.keyspace), &seen),
                        Err(why) => return self.error(shard, out, &format!("SESSION {why}")),
                    };
                }
                let item = Item { key: put.key.into(), value: Some(put.value.into()), expires_ms: 0 };
                return self.with_context(handle, now, self.shared.topology.partition_of(put.key), Operation::Replace { item, dial: self.dial });
            }
            Command::Test(test) => match self.test(test) {
                Ok(single) => return self.single(shard, handle, now, single, out),
                Err(_) if self.away.is_some() => return Flow::Later,
                Err(message) => return self.error(shard, out, message),
            },
            _ if self.away.is_some() => return Flow::Later,

            Command::Ping(None) => writer.simple("PONG"),
            Command::Ping(Some(message)) | Command::Echo(message) => writer.bulk(message),
            Command::Hello(hello) => return self.hello(shard, now, hello, out),
            Command::Auth(credentials) => {
                return match self.identify(shard, credentials) {
                    Ok(caller) => {
                        (self.authenticated, self.rights) = (true, caller);
                        out.writer(self.version).ok();
                        Flow::Authenticated
                    }
                    Err(message) => self.refuse_password(shard, out, message),
                };
            }
            Command::Quit => {
                writer.ok();
                return Flow::Close;
            }
            Command::Reset => {
                self.leave_name();
                let (created_us, wrong_passwords) = (self.created_us, self.wrong_passwords);
                // Who was unknown before stays as long as ever.
                let unknown_since_us = if self.authenticated { now.monotonic_us } else { self.unknown_since_us };
                *self = State { created_us, unknown_since_us, wrong_passwords, ..State::new(&self.shared, self.id, self.address, now) };
                out.writer(self.version).simple("RESET");
                return if self.authenticated { Flow::Done } else { Flow::Forgotten };
            }
            Command::Select(choice) => {
                let found = match choice {
                    KeyspaceChoice::Number(number) => self.shared.keyspaces.get(usize::from(number)),
                    KeyspaceChoice::Name(name) => self.shared.keyspaces.iter().find(|keyspace| keyspace.name == name),
                };
                match found {
                    Some(info) => {
                        self.keyspace = info.id;
                        writer.ok();
                    }
                    None => return self.error(shard, out, "ERR there is no such keyspace; INFO keyspace lists them"),
                }
            }
            Command::ReadOnly | Command::ReadWrite => writer.ok(),
            Command::Catalogue(catalogue) => catalogue.reply(&mut writer),
            Command::Help(entry) => table::help::reply(entry, &mut writer),
            Command::Acl(acl) => return self.acl(shard, acl, out),
            Command::ConfigGet(patterns) => info::config_get(&self.shared, patterns, &mut writer),
            Command::Time => {
                writer.array(2);
                self.time().iter().for_each(|number| writer.bulk(number.as_bytes()));
            }
            Command::Multi => return self.open_multi(shard, out),
            Command::Exec => return self.exec(shard, handle, now, out),
            Command::Discard => return self.discard(shard, out),
            Command::Watch(keys) => return self.watch(shard, handle, now, keys, out),
            Command::Unwatch => return self.unwatch(out),
            Command::Client(client) => return self.client(shard, handle, now, client, out),
            Command::SlowLog(slow_log) => info::slow_log(&self.shared, slow_log, &mut writer),
            Command::Feed(_) | Command::Conflicts(_) | Command::DbSize | Command::CountKeysInSlot(_) | Command::Scan(_)
                if self.dial.as_of.is_some() =>
            {
                return self.error(shard, out, ONLY_READS);
            }
            Command::CountKeysInSlot(slot) => {
                let session = self.take_session(self.keyspace);
                let access = self.access(handle);
                return Flow::Slow(slow::count(self.context(now), access, session, (slot, slot), View::DataCenter));
            }
            Command::KeySlot(key) => writer.integer(slots::slot(key).into()),
            Command::Cluster(other) => cluster::reply(&self.shared, self.keyspace, other, &mut writer),
            Command::Rheo(rheo) => return self.rheo(shard, now, rheo, out),
            Command::Feed(feed) => {
                let by = (self.rights.clone(), self.users_version);
                return Flow::Slow(slow::feed(self.context(now), self.access(handle), feed, by));
            }
            Command::Conflicts(key) => return Flow::Slow(slow::conflicts(self.context(now), self.access(handle), key.into())),
            Command::Info(sections) => {
                let sections = sections.iter().map(|section| String::from_utf8_lossy(section).to_lowercase()).collect();
                return Flow::Slow(info::info(self.context(now), self.shared.clone(), sections));
            }
            Command::DbSize => {
                let session = self.take_session(self.keyspace);
                let access = self.access(handle);
                return Flow::Slow(slow::count(self.context(now), access, session, (0, slots::SLOTS - 1), self.view));
            }
            Command::Wait(wait) => {
                let session = self.take_session(self.keyspace);
                let timeout = wait.timeout_ms.map(Duration::from_millis);
                return Flow::Slow(slow::wait(self.context(now), self.access(handle), session, wait.data_centers.into(), timeout));
            }
            Command::Scan(scan) => {
                let session = self.take_session(self.keyspace);
                let wanted = Wanted::new(&scan);
                return Flow::Slow(scan::scan(self.context(now), self.access(handle), session, wanted, self.view));
            }
            Command::Delete(keys) => {
                let mut keys: Vec<Key> = keys.iter().map(Key::from).collect();
                keys.sort_unstable();
                keys.dedup();
                let served = self.service_level().filter(|served| !served.aims.copies().is_empty()).cloned();
                let session = self.take_session(self.keyspace);
                return Flow::Slow(slow::delete(self.context(now), self.access(handle), session, keys, served));
            }
            Command::Exists(keys) => {
                let keys: Vec<Key> = keys.iter().map(Key::from).collect();
                let served = self.service_level().filter(|served| !served.aims.aims().is_empty()).cloned();
                let session = self.take_session(self.keyspace);
                return Flow::Slow(slow::exists(self.context(now), self.access(handle), session, keys, served));
            }
        }
        Flow::Done
    }

    /// A call of counters: as one operation, or as a request whose reply names data centers. Errors: the error reply.
    fn counter(&mut self, handle: &Rc<RefCell<Shard>>, now: Now, command: CounterCommand<'_>) -> Result<Result<Single, Slow>, String> {
        let (partition, call, telling) = counters::call(&self.shared.topology, self.scope, command)?;
        let operation = Operation::Counter { call, dial: self.dial };
        match telling {
            Telling::Short(render) => Ok(Ok(Single { partition, operation, render })),
            Telling::View => {
                let (served, session) = (self.service_level().cloned(), self.take_session(self.keyspace));
                let access = self.access(handle);
                Ok(Err(slow::counter_view(self.context(now), access, session, (partition, operation), served)))
            }
        }
    }

    /// An operation whose reply carries the session's token, as the context of a later one.
    fn with_context(&mut self, handle: &Rc<RefCell<Shard>>, now: Now, partition: PartitionId, operation: Operation) -> Flow {
        let (served, session) = (self.service_level().cloned(), self.take_session(self.keyspace));
        Flow::Slow(slow::with_context(self.context(now), self.access(handle), session, (partition, operation), served))
    }

    /// RHEO TEST. Errors: the error reply.
    pub(super) fn test(&self, test: Test<'_>) -> Result<Single, &'static str> {
        let partition = self.shared.topology.partition_of(test.target);
        if self.shared.topology.partition_of(test.key) != partition {
            return Err("CROSSSLOT the two keys of RHEO TEST must lie in one partition: give them one {tag}");
        }
        Ok(Single { partition, operation: Operation::TestWrite { write: Box::new(test.into()), dial: self.dial }, render: Render::Tested })
    }

    /// Any partition can run the transaction; one that is here and has one of the keys saves a way.
    fn multi_get(&self, shard: &Shard, keys: Vec<Key>) -> Single {
        let partition_of = |key: &Key| self.shared.topology.partition_of(key);
        let local = keys.iter().map(partition_of).find(|partition| shard.find(self.keyspace, *partition).is_some());
        let partition = local.unwrap_or_else(|| keys.first().map_or(PartitionId(0), partition_of));
        Single { partition, operation: Operation::ReadTransaction { keys, dial: self.dial }, render: Render::Many }
    }

    /// The transaction, if the session predicts its snapshot, so that this connection takes it to the partitions itself.
    fn scatter(&mut self, now: Now, keys: &[Key]) -> Option<Scatter> {
        let (here, partitions, dial) = (self.shared.topology.here, self.shared.topology.partitions, self.dial);
        Scatter::begin(here, partitions, now.physical_ms, session_of(&mut self.sessions, &self.shared, self.keyspace), keys, dial)
    }

    /// Asks every partition of a transaction at once: those that are elsewhere first, those that are here directly.
    fn scattered(&mut self, shard: &mut Shard, handle: &Rc<RefCell<Shard>>, now: Now, mut scatter: Scatter, out: &mut Output) -> Flow {
        let keyspace = self.keyspace;
        let mut session = self.take_session(keyspace);
        let mut requests = scatter.requests();
        requests.sort_by_key(|(partition, _)| shard.find(keyspace, *partition).is_some());
        let (mut started, mut waits) = (Vec::new(), Waits::new());
        for (partition, operation) in requests {
            let mut copy = session.clone();
            let Some(replica) = shard.find(keyspace, partition) else {
                started.push((partition, shard.shared.start(self.id, keyspace, partition, copy, operation)));
                continue;
            };
            match shard.execute(now, replica, operation, &mut copy) {
                Execution::Done { outcome, after } => {
                    if after > Position(0) && after > shard.durable(replica) {
                        waits.push((replica, after));
                    }
                    if let Progress::Done(mut outcome) = scatter.answer(partition, outcome, &copy, &mut session) {
                        crate::shard::bound(&mut outcome, shard.shared.config.limits.max_reply_bytes);
                        self.sessions[usize::from(keyspace.0)] = Some(session);
                        waits.into_iter().for_each(|(replica, after)| out.wait_for(replica, after));
                        let ok = self.write(Render::Many, &outcome, now.physical_ms, out);
                        shard.counters.errors += u64::from(!ok);
                        return Flow::Done;
                    }
                }
                Execution::Waiting(op) => {
                    let (sender, answer) = oneshot::channel();
                    shard.expect(now, keyspace, (replica, op), self.id, Answer::Task(sender));
                    started.push((partition, Started::Waiting { writes: false, answer, partition, fallback: copy, over: None }));
                }
            }
        }
        Flow::Slow(slow::gather(self.context(now), ShardAccess::with(handle, &self.shared, self.id, waits), session, scatter, started))
    }

    fn multi_set(&self, pairs: &[(&[u8], &[u8])]) -> Result<Single, &'static str> {
        let partition = self.shared.topology.partition_of(pairs[0].0);
        if pairs.iter().any(|(key, _)| self.shared.topology.partition_of(key) != partition) {
            return Err("CROSSSLOT Keys in request don't hash to the same slot");
        }
        let items = pairs.iter().map(|(key, value)| Item { key: (*key).into(), value: Some((*value).into()), expires_ms: 0 }).collect();
        Ok(Single { partition, operation: Operation::Put { items, dial: self.dial }, render: Render::Ok })
    }
}
