//! What a connection remembers from request to request, and the requests that are answered at once.

use super::answer::Render;
use super::counters::{self, Telling};
use super::output::Output;
use super::slow::{self, ShardAccess, Slow, SlowDone, Told};
use super::{cluster, info};
use crate::access::Started;
use crate::resp::command::{
    ClientCommand, ClusterCommand, CounterCommand, Credentials, Hello, Increment, KeyspaceChoice, NewExpiry, RheoCommand, SessionCommand, Set, SetIf,
    SetReply,
};
use crate::resp::table::{self, Flags};
use crate::resp::{Arguments, Command, CommandError, ReplyWriter, RespVersion, resolve};
use crate::shard::mailbox::{Answer, Waits, operation_bytes};
use crate::shard::{Executed, ReplicaIndex, Shard};
use crate::shared::Shared;
use rheostat_core::counter::{CounterCall, Scope};
use rheostat_core::ids::{KeyspaceId, Now, PartitionId};
use rheostat_core::operation::{Change, Dial, Expiry, ExpiryCondition, Level, Operation, Outcome, Quality, SetCondition, Strategy};
use rheostat_core::scatter::{Progress, Scatter};
use rheostat_core::session::{Session, encode_token};
use rheostat_core::slots;
use rheostat_core::store::Position;
use rheostat_core::version::{Item, Key, VersionId};
use smallvec::smallvec;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// Wrong passwords after which a connection is closed.
const WRONG_PASSWORDS: u32 = 8;

/// What follows a request.
pub(super) enum Flow {
    /// It has been answered.
    Done,
    /// It is not begun: requests before it have to be done first.
    Later,
    /// It has been answered, and the client is now known.
    Authenticated,
    /// So has it, and the client is not known any more.
    Forgotten,
    /// The answer comes from this.
    Slow(Slow),
    /// It has been answered, and the connection is to be closed.
    Close,
}

/// How good the last answer was.
#[derive(Clone, Copy, Default)]
pub(super) struct LastAnswer {
    pub(super) quality: Option<Quality>,
    pub(super) version: Option<VersionId>,
}

/// See the module.
pub(super) struct State {
    shared: Arc<Shared>,
    id: u64,
    address: SocketAddr,
    created_us: u64,
    authenticated: bool,
    wrong_passwords: u32,
    version: RespVersion,
    dial: Dial,
    /// Of updates of counters.
    scope: Scope,
    keyspace: KeyspaceId,
    /// By keyspace: the session, once there is one. Absent while a request that uses it waits.
    sessions: Vec<Option<Session>>,
    last: LastAnswer,
    /// Requests whose operations leave for another shard when no more of them follow.
    away: Option<Away>,
    name: Vec<u8>,
    library: (Vec<u8>, Vec<u8>),
    last_command: &'static str,
}

/// Requests in a row, each of one operation, that one other shard of this node serves.
pub(super) struct Away {
    pub(super) shard: u16,
    pub(super) keyspace: KeyspaceId,
    pub(super) operations: VecDeque<(PartitionId, Operation)>,
    /// How the outcome of each is told.
    pub(super) renders: Vec<Render>,
    /// Bytes of the operations.
    bytes: usize,
    now: Now,
}

/// Requests that leave together at most, and bytes of theirs after which no more join.
const AWAY_REQUESTS: usize = 64;
const AWAY_BYTES: usize = 256 << 10;

/// One operation of a request, and how its outcome is told.
struct Single {
    partition: PartitionId,
    operation: Operation,
    render: Render,
}

impl State {
    pub(super) fn new(shared: &Arc<Shared>, id: u64, address: SocketAddr, now: Now) -> State {
        State {
            id,
            address,
            created_us: now.monotonic_us,
            authenticated: shared.config.security.password.is_none(),
            wrong_passwords: 0,
            version: RespVersion::Two,
            dial: Dial::default(),
            scope: Scope::default(),
            keyspace: KeyspaceId(0),
            sessions: shared.keyspaces.iter().map(|_| None).collect(),
            last: LastAnswer::default(),
            away: None,
            name: Vec::new(),
            library: (Vec::new(), Vec::new()),
            last_command: "",
            shared: shared.clone(),
        }
    }

    pub(super) fn is_authenticated(&self) -> bool {
        self.authenticated
    }

    pub(super) fn version(&self) -> RespVersion {
        self.version
    }

    /// The level that operations get on this connection.
    pub(super) fn level(&self) -> Level {
        self.dial.level.unwrap_or(self.shared.keyspaces[usize::from(self.keyspace.0)].level)
    }

    pub(super) fn created_us(&self) -> u64 {
        self.created_us
    }

    /// Answers a request, or begins to.
    #[inline]
    pub(super) fn request(&mut self, shard: &mut Shard, handle: &Rc<RefCell<Shard>>, now: Now, arguments: Arguments<'_>, out: &mut Output) -> Flow {
        let parsed = resolve(arguments).and_then(|entry| {
            self.last_command = entry.name;
            if !self.authenticated && !entry.flags.has(Flags::NO_AUTH) {
                return Err(CommandError::Other("NOAUTH Authentication required.".into()));
            }
            (entry.parse)(entry, arguments)
        });
        match parsed {
            Ok(command) => self.command(shard, handle, now, command, out),
            Err(_) if self.away.is_some() => Flow::Later,
            Err(error) => {
                shard.counters.errors += 1;
                if error.closes() {
                    return Flow::Close;
                }
                // What a stranger gets wrong is told in one way only.
                let unknown =
                    if self.authenticated || matches!(error, CommandError::Other(_)) { None } else { Some("NOAUTH Authentication required.") };
                match unknown {
                    Some(message) => out.error(message, self.version),
                    None => out.error(&error.to_string(), self.version),
                }
                Flow::Done
            }
        }
    }

    #[inline]
    fn command(&mut self, shard: &mut Shard, handle: &Rc<RefCell<Shard>>, now: Now, command: Command<'_>, out: &mut Output) -> Flow {
        let single = match command {
            Command::Get(key) => self.read(key, Render::Get),
            Command::Set(set) => self.set(now, set),
            Command::StrLen(key) => self.read(key, Render::StrLen),
            Command::Type(key) => self.read(key, Render::Type),
            Command::TimeOf(time) => {
                let time = crate::resp::command::TimeOf { key: b"", ..time };
                self.read(command_key(&command), Render::TimeOf(time))
            }
            Command::GetDel(key) => self.change(key, Change::Delete, Render::Before),
            Command::GetEx(get) => {
                let expiry = get.expiry.resolve(now.physical_ms);
                self.change(get.key, Change::Expire { expiry, condition: ExpiryCondition::Always }, Render::Before)
            }
            Command::Expire(expire) => {
                let expiry = Expiry::At(expire.when.resolve(now.physical_ms));
                self.change(expire.key, Change::Expire { expiry, condition: expire.condition }, Render::Changed)
            }
            Command::Persist(key) => self.change(key, Change::Expire { expiry: Expiry::Never, condition: ExpiryCondition::Always }, Render::Changed),
            Command::Delete(keys) if keys.len() == 1 => self.change(keys.at(0), Change::Delete, Render::Changed),
            Command::Exists(keys) if keys.len() == 1 => self.read(keys.at(0), Render::Exists),
            // What waits to be sent comes first: the snapshot is to cover it.
            Command::MultiGet(_) if self.away.is_some() && self.dial.strategy != Strategy::Coordinated => return Flow::Later,
            Command::MultiGet(keys) => {
                let keys: Vec<Key> = keys.iter().map(Key::from).collect();
                match self.scatter(now, &keys) {
                    Some(scatter) => return self.scattered(shard, handle, now, scatter, out),
                    None => self.multi_get(shard, keys),
                }
            }
            Command::MultiSet(pairs) => match self.multi_set(&pairs.last_of_each_key()) {
                Ok(single) => single,
                Err(_) if self.away.is_some() => return Flow::Later,
                Err(message) => return self.error(shard, out, message),
            },
            Command::Increment(Increment { key, by }) => self.increment(key, by),
            Command::Rheo(RheoCommand::Counter(_)) if self.away.is_some() => return Flow::Later,
            Command::Rheo(RheoCommand::Counter(command)) => match self.counter(handle, now, command) {
                Ok(Ok(single)) => single,
                Ok(Err(slow)) => return Flow::Slow(slow),
                Err(message) => return self.error(shard, out, &message),
            },
            Command::Rheo(RheoCommand::Explain(key)) => {
                let partition = self.shared.topology.partition_of(key);
                Single { partition, operation: Operation::Explain { key: key.into() }, render: Render::Explain }
            }
            _ if self.away.is_some() => return Flow::Later,
            other => return self.other_command(shard, handle, now, other, out),
        };
        self.single(shard, now, single, out)
    }

    #[inline]
    fn read(&self, key: &[u8], render: Render) -> Single {
        let partition = self.shared.topology.partition_of(key);
        Single { partition, operation: Operation::Get { key: key.into(), dial: self.dial }, render }
    }

    fn change(&self, key: &[u8], change: Change, render: Render) -> Single {
        Single {
            partition: self.shared.topology.partition_of(key),
            operation: Operation::Change { key: key.into(), change, dial: self.dial },
            render,
        }
    }

    #[inline]
    fn increment(&self, key: &[u8], by: i64) -> Single {
        let call = CounterCall::Add { changes: smallvec![(key.into(), by)], scope: self.scope, name: None };
        Single { partition: self.shared.topology.partition_of(key), operation: Operation::Counter { call, dial: self.dial }, render: Render::Counted }
    }

    /// A call of counters: as one operation, or as a request whose reply names data centers. Errors: the error reply.
    fn counter(&mut self, handle: &Rc<RefCell<Shard>>, now: Now, command: CounterCommand<'_>) -> Result<Result<Single, Slow>, String> {
        let (partition, call, telling) = counters::call(&self.shared.topology, self.scope, command)?;
        let operation = Operation::Counter { call, dial: self.dial };
        match telling {
            Telling::Short(render) => Ok(Ok(Single { partition, operation, render })),
            Telling::View => {
                let session = self.take_session(self.keyspace);
                let access = ShardAccess::new(handle, &self.shared);
                Ok(Err(slow::counter_view(self.context(now), access, session, partition, operation)))
            }
        }
    }

    #[inline]
    fn set(&self, now: Now, set: Set<'_>) -> Single {
        let condition = match set.condition {
            SetIf::Always => SetCondition::Always,
            SetIf::Absent => SetCondition::IfAbsent,
            SetIf::Present => SetCondition::IfPresent,
            SetIf::Value(expected) => SetCondition::IfValue(expected.into()),
        };
        if set.reply == SetReply::Before || set.expiry == NewExpiry::Keep || condition != SetCondition::Always {
            let render = match set.reply {
                SetReply::Ok => Render::Ok,
                SetReply::Before => Render::Before,
                SetReply::Number => Render::Changed,
            };
            return self.change(set.key, Change::Set { value: set.value.into(), expiry: set.expiry.resolve(now.physical_ms), condition }, render);
        }
        let expires_ms = match set.expiry.resolve(now.physical_ms) {
            Expiry::At(at) => at,
            Expiry::Never | Expiry::Keep => 0,
        };
        // What has expired already is a deletion.
        let value = Some(set.value.into()).filter(|_| expires_ms == 0 || expires_ms > now.physical_ms);
        let expires_ms = if value.is_some() { expires_ms } else { 0 };
        let item = Item { key: set.key.into(), value, expires_ms };
        Single {
            partition: self.shared.topology.partition_of(set.key),
            operation: Operation::Put { items: smallvec![item], dial: self.dial },
            render: Render::Ok,
        }
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
                started.push((partition, shard.shared.start(keyspace, partition, copy, operation)));
                continue;
            };
            match shard.execute(now, replica, operation, &mut copy) {
                Executed::Done(outcome, after) => {
                    if after > Position(0) && after > shard.durable(replica) {
                        waits.push((replica, after));
                    }
                    if let Progress::Done(outcome) = scatter.answer(partition, outcome, &copy, &mut session) {
                        self.sessions[usize::from(keyspace.0)] = Some(session);
                        waits.into_iter().for_each(|(replica, after)| out.wait_for(replica, after));
                        let ok = Render::Many.write(&outcome, now.physical_ms, &mut self.last, &mut out.writer(self.version));
                        shard.counters.errors += u64::from(!ok);
                        return Flow::Done;
                    }
                }
                Executed::Waiting(op) => {
                    let (sender, answer) = oneshot::channel();
                    shard.expect(keyspace, replica, op, Answer::Task(sender));
                    started.push((partition, Started::Waiting { answer, partition, fallback: copy }));
                }
            }
        }
        Flow::Slow(slow::gather(self.context(now), ShardAccess::with(handle, &self.shared, waits), session, scatter, started))
    }

    fn multi_set(&self, pairs: &[(&[u8], &[u8])]) -> Result<Single, &'static str> {
        let partition = self.shared.topology.partition_of(pairs[0].0);
        if pairs.iter().any(|(key, _)| self.shared.topology.partition_of(key) != partition) {
            return Err("CROSSSLOT Keys in request don't hash to the same slot");
        }
        let items = pairs.iter().map(|(key, value)| Item { key: (*key).into(), value: Some((*value).into()), expires_ms: 0 }).collect();
        Ok(Single { partition, operation: Operation::Put { items, dial: self.dial }, render: Render::Ok })
    }

    fn error(&self, shard: &mut Shard, out: &mut Output, message: &str) -> Flow {
        shard.counters.errors += 1;
        out.error(message, self.version);
        Flow::Done
    }

    /// Runs one operation: here if its partition is, else where it is.
    #[inline]
    fn single(&mut self, shard: &mut Shard, now: Now, single: Single, out: &mut Output) -> Flow {
        let Single { partition, operation, render } = single;
        let keyspace = self.keyspace;
        if self.away.is_some() {
            return self.join_away(partition, operation, render);
        }
        if let Some(replica) = shard.find(keyspace, partition) {
            let session = session_of(&mut self.sessions, &self.shared, keyspace);
            return match shard.execute(now, replica, operation, session) {
                Executed::Done(outcome, after) => {
                    self.tell(shard, now, replica, after, render, outcome, out);
                    Flow::Done
                }
                Executed::Waiting(op) => {
                    let (sender, answer) = oneshot::channel();
                    shard.expect(keyspace, replica, op, Answer::Task(sender));
                    let fallback = self.take_session(keyspace);
                    Flow::Slow(slow::await_answer(self.context(now), answer, partition, fallback, render))
                }
            };
        }
        if let Some(to) = self.shared.placement.serving(keyspace, partition) {
            let away = Away { shard: to, keyspace, operations: VecDeque::new(), renders: Vec::new(), bytes: 0, now };
            self.away = Some(away);
            return self.join_away(partition, operation, render);
        }
        let session = self.take_session(keyspace);
        let started = shard.shared.start(keyspace, partition, session, operation);
        Flow::Slow(slow::await_started(self.context(now), started, render))
    }

    /// Adds an operation to those that leave together, if it goes to the same shard and there is room.
    fn join_away(&mut self, partition: PartitionId, operation: Operation, render: Render) -> Flow {
        let Some(away) = &mut self.away else { return Flow::Later };
        let room = away.operations.len() < AWAY_REQUESTS && away.bytes < AWAY_BYTES;
        if !room || self.shared.placement.serving(away.keyspace, partition) != Some(away.shard) {
            return Flow::Later;
        }
        away.bytes += operation_bytes(&operation);
        away.operations.push_back((partition, operation));
        away.renders.push(render);
        Flow::Done
    }

    /// Sends away what was collected, with the session.
    pub(super) fn depart(&mut self, shard: &mut Shard) -> Option<Slow> {
        let away = self.away.take()?;
        let session = self.take_session(away.keyspace);
        Some(slow::send_away(self.context(away.now), shard, away, session))
    }

    /// Writes outcomes that came together, until there are none or the output exceeds `limit`. Says whether some are left.
    pub(super) fn tell_on(&mut self, shard: &mut Shard, told: &mut Told, limit: usize, out: &mut Output) -> bool {
        while out.len() <= limit {
            let (Some(outcome), Some(render)) = (told.outcomes.next(), told.renders.next()) else { return false };
            let ok = render.write(&outcome, told.now_ms, &mut self.last, &mut out.writer(self.version));
            shard.counters.errors += u64::from(!ok);
        }
        told.outcomes.len() > 0
    }

    #[inline]
    #[allow(clippy::too_many_arguments)]
    fn tell(&mut self, shard: &mut Shard, now: Now, replica: ReplicaIndex, after: Position, render: Render, outcome: Outcome, out: &mut Output) {
        if after > Position(0) && after > shard.durable(replica) {
            out.wait_for(replica, after);
        }
        let ok = render.write(&outcome, now.physical_ms, &mut self.last, &mut out.writer(self.version));
        shard.counters.errors += u64::from(!ok);
    }

    /// What a waiting request takes with it.
    fn context(&self, now: Now) -> slow::Context {
        slow::Context { keyspace: self.keyspace, version: self.version, dial: self.dial, now }
    }

    /// Takes the session of `keyspace` out, for a request that waits.
    fn take_session(&mut self, keyspace: KeyspaceId) -> Session {
        let info = &self.shared.keyspaces[usize::from(keyspace.0)];
        self.sessions[usize::from(keyspace.0)].take().unwrap_or_else(|| info.new_session())
    }

    /// Whether requests are collected that leave together.
    pub(super) fn has_away(&self) -> bool {
        self.away.is_some()
    }

    /// Takes in what a request that waited has left; returns what of it is still to be told.
    pub(super) fn finish(&mut self, done: SlowDone) -> Option<Told> {
        if let Some((keyspace, session)) = done.session {
            self.sessions[usize::from(keyspace.0)] = Some(session);
        }
        if let Some(last) = done.last {
            self.last = last;
        }
        done.told
    }

    /// Everything that is not one operation.
    fn other_command(&mut self, shard: &mut Shard, handle: &Rc<RefCell<Shard>>, now: Now, command: Command<'_>, out: &mut Output) -> Flow {
        let mut writer = out.writer(self.version);
        match command {
            Command::Ping(None) => writer.simple("PONG"),
            Command::Ping(Some(message)) | Command::Echo(message) => writer.bulk(message),
            Command::Hello(hello) => return self.hello(shard, hello, out),
            Command::Auth(credentials) => {
                return match self.authenticate(shard, credentials) {
                    Ok(()) => {
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
                let created_us = self.created_us;
                *self = State { created_us, wrong_passwords: self.wrong_passwords, ..State::new(&self.shared, self.id, self.address, now) };
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
            Command::ConfigGet(patterns) => info::config_get(&self.shared, patterns, &mut writer),
            Command::Time => {
                let micros = self.shared.clocks.monotonic_us() % 1000;
                writer.array(2);
                writer.bulk((now.physical_ms / 1000).to_string().as_bytes());
                writer.bulk((now.physical_ms % 1000 * 1000 + micros).to_string().as_bytes());
            }
            Command::Client(client) => return self.client(handle, now, client, out),
            Command::Cluster(ClusterCommand::CountKeysInSlot(slot)) => {
                let session = self.take_session(self.keyspace);
                return Flow::Slow(slow::count(self.context(now), ShardAccess::new(handle, &self.shared), session, (slot, slot)));
            }
            Command::Cluster(ClusterCommand::KeySlot(key)) => writer.integer(slots::slot(key).into()),
            Command::Cluster(other) => cluster::reply(&self.shared.topology, other, &mut writer),
            Command::Rheo(rheo) => return self.rheo(shard, now, rheo, out),
            Command::Info(sections) => {
                let sections = sections.iter().map(|section| String::from_utf8_lossy(section).to_lowercase()).collect();
                return Flow::Slow(info::info(self.context(now), self.shared.clone(), sections));
            }
            Command::DbSize => {
                let session = self.take_session(self.keyspace);
                return Flow::Slow(slow::count(self.context(now), ShardAccess::new(handle, &self.shared), session, (0, slots::SLOTS - 1)));
            }
            Command::Wait(wait) => {
                let session = self.take_session(self.keyspace);
                let timeout = wait.timeout_ms.map(Duration::from_millis);
                return Flow::Slow(slow::wait(self.context(now), ShardAccess::new(handle, &self.shared), session, wait.data_centers.into(), timeout));
            }
            Command::Scan(scan) => {
                let session = self.take_session(self.keyspace);
                let wanted = slow::Wanted::new(&scan);
                return Flow::Slow(slow::scan(self.context(now), ShardAccess::new(handle, &self.shared), session, wanted));
            }
            Command::Delete(keys) => {
                let mut keys: Vec<Key> = keys.iter().map(Key::from).collect();
                keys.sort_unstable();
                keys.dedup();
                let session = self.take_session(self.keyspace);
                return Flow::Slow(slow::delete(self.context(now), ShardAccess::new(handle, &self.shared), session, keys));
            }
            Command::Exists(keys) => {
                let keys: Vec<Key> = keys.iter().map(Key::from).collect();
                let session = self.take_session(self.keyspace);
                return Flow::Slow(slow::exists(self.context(now), ShardAccess::new(handle, &self.shared), session, keys));
            }
            Command::Get(_)
            | Command::Set(_)
            | Command::GetDel(_)
            | Command::GetEx(_)
            | Command::MultiGet(_)
            | Command::MultiSet(_)
            | Command::StrLen(_)
            | Command::Increment(_)
            | Command::Type(_)
            | Command::Expire(_)
            | Command::Persist(_)
            | Command::TimeOf(_) => return self.error(shard, out, "ERR this command was not recognized"),
        }
        Flow::Done
    }

    fn authenticate(&mut self, shard: &mut Shard, credentials: Credentials<'_>) -> Result<(), &'static str> {
        let Some(password) = &self.shared.config.security.password else {
            return Err("ERR AUTH called without any password configured. Are you sure your configuration is correct?");
        };
        let known_user = credentials.user.is_none_or(|user| user == b"default");
        if password.matches(credentials.password.0) && known_user {
            self.authenticated = true;
            return Ok(());
        }
        shard.counters.wrong_passwords += 1;
        self.wrong_passwords += 1;
        Err("WRONGPASS invalid username-password pair or user is disabled.")
    }

    fn refuse_password(&mut self, shard: &mut Shard, out: &mut Output, message: &str) -> Flow {
        self.error(shard, out, message);
        if self.wrong_passwords >= WRONG_PASSWORDS { Flow::Close } else { Flow::Done }
    }

    fn hello(&mut self, shard: &mut Shard, hello: Hello<'_>, out: &mut Output) -> Flow {
        let before = self.authenticated;
        if let Some(credentials) = hello.credentials
            && let Err(message) = self.authenticate(shard, credentials)
        {
            return self.refuse_password(shard, out, message);
        }
        if !self.authenticated {
            return self.error(shard, out, "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time");
        }
        self.version = hello.version.unwrap_or(self.version);
        if let Some(name) = hello.name {
            self.name = name.to_vec();
        }
        info::hello(self.id, &mut out.writer(self.version));
        if before { Flow::Done } else { Flow::Authenticated }
    }

    fn client(&mut self, handle: &Rc<RefCell<Shard>>, now: Now, command: ClientCommand<'_>, out: &mut Output) -> Flow {
        let mut writer = out.writer(self.version);
        match command {
            ClientCommand::Id => writer.integer(self.id as i64),
            ClientCommand::SetName(name) => {
                self.name = name.to_vec();
                writer.ok();
            }
            ClientCommand::GetName => writer.bulk_or_null(Some(self.name.as_slice()).filter(|name| !name.is_empty())),
            ClientCommand::Info => writer.verbatim(&self.describe(now, now.monotonic_us, 0, 0)),
            ClientCommand::List(selection) => {
                let own = self.describe(now, now.monotonic_us, 0, 0);
                return Flow::Slow(info::client_list(self.context(now), handle, info::Selection::new(selection), (self.id, own)));
            }
            // There is no eviction and no recency to touch: both hold already.
            ClientCommand::NoEvict(_) | ClientCommand::NoTouch(_) => writer.ok(),
            ClientCommand::SetLibraryName(name) => {
                self.library.0 = name.to_vec();
                writer.ok();
            }
            ClientCommand::SetLibraryVersion(version) => {
                self.library.1 = version.to_vec();
                writer.ok();
            }
        }
        Flow::Done
    }

    fn rheo(&mut self, shard: &mut Shard, now: Now, command: RheoCommand<'_>, out: &mut Output) -> Flow {
        let keyspace = self.keyspace;
        let cluster = self.shared.topology.cluster_id;
        match command {
            RheoCommand::Level(None) => out.writer(self.version).bulk(self.level().to_string().as_bytes()),
            RheoCommand::Level(Some(level)) => {
                let info = &self.shared.keyspaces[usize::from(keyspace.0)];
                if let Some(asked) = level
                    && !info.serves(asked)
                {
                    return self.error(shard, out, &format!("ERR {}", info.does_not_serve(asked)));
                }
                self.dial.level = level;
                out.writer(self.version).ok();
            }
            RheoCommand::Scope(None) => out.writer(self.version).bulk(self.scope.name().as_bytes()),
            RheoCommand::Scope(Some(scope)) => {
                self.scope = scope;
                out.writer(self.version).ok();
            }
            RheoCommand::Strategy(None) => out.writer(self.version).bulk(self.dial.strategy.name().as_bytes()),
            RheoCommand::Strategy(Some(strategy)) => {
                self.dial.strategy = strategy;
                out.writer(self.version).ok();
            }
            RheoCommand::Groups(None) => {
                let numbers = (0..64).filter(|number| self.dial.groups.0 & 1 << number != 0).map(|number| number.to_string());
                let named = numbers.collect::<Vec<_>>().join(" ");
                out.writer(self.version).bulk(if named.is_empty() { b"auto" } else { named.as_bytes() });
            }
            RheoCommand::Groups(Some(groups)) => {
                self.dial.groups = groups;
                out.writer(self.version).ok();
            }
            RheoCommand::Session(SessionCommand::Get) => {
                let token = encode_token(cluster, keyspace, session_of(&mut self.sessions, &self.shared, keyspace));
                out.writer(self.version).bulk(token.as_bytes());
            }
            RheoCommand::Session(SessionCommand::Reset) => {
                self.sessions[usize::from(keyspace.0)] = None;
                out.writer(self.version).ok();
            }
            RheoCommand::Session(SessionCommand::Resume(token) | SessionCommand::Merge(token)) => {
                let info = &self.shared.keyspaces[usize::from(keyspace.0)];
                let decoded = info.decode_token(cluster, token);
                let other = match decoded {
                    Ok(other) => other,
                    Err(why) => return self.error(shard, out, &format!("SESSION {why}")),
                };
                if matches!(command, RheoCommand::Session(SessionCommand::Merge(_))) {
                    info.merge_sessions(session_of(&mut self.sessions, &self.shared, keyspace), &other);
                } else {
                    self.sessions[usize::from(keyspace.0)] = Some(other);
                }
                out.writer(self.version).ok();
            }
            RheoCommand::Status => return Flow::Slow(info::status(self.context(now), self.shared.clone())),
            RheoCommand::Quality => self.quality(&mut out.writer(self.version)),
            // One operation each; taken care of before.
            RheoCommand::Explain(_) | RheoCommand::Counter(_) => return self.error(shard, out, "ERR this command was not recognized"),
        }
        Flow::Done
    }

    fn quality(&self, writer: &mut ReplyWriter<'_>) {
        writer.map(3);
        writer.bulk(b"level");
        writer.bulk_or_null(self.last.quality.map(|quality| quality.level.to_string()).as_deref().map(str::as_bytes));
        writer.bulk(b"staleness_ms");
        match self.last.quality.and_then(|quality| quality.staleness_ms) {
            Some(staleness_ms) => writer.integer(i64::try_from(staleness_ms).unwrap_or(i64::MAX)),
            None => writer.null(),
        }
        writer.bulk(b"version");
        match self.last.version {
            Some(version) => writer.bulk(info::version_text(&self.shared.topology, version).as_bytes()),
            None => writer.null(),
        }
    }

    /// The line of CLIENT LIST and CLIENT INFO, in Redis' words.
    pub(super) fn describe(&self, now: Now, progress_us: u64, input: usize, output: usize) -> String {
        let seconds = |since_us: u64| now.monotonic_us.saturating_sub(since_us) / 1_000_000;
        let text = String::from_utf8_lossy;
        format!(
            "id={} addr={} name={} age={} idle={} flags=N db={} qbuf={input} omem={output} cmd={} user=default lib-name={} lib-ver={} resp={}",
            self.id,
            self.address,
            text(&self.name),
            seconds(self.created_us),
            seconds(progress_us),
            self.keyspace.0,
            self.last_command,
            text(&self.library.0),
            text(&self.library.1),
            self.version.number(),
        )
    }
}

/// The session of `keyspace`, made if there is none yet.
#[inline]
fn session_of<'a>(sessions: &'a mut [Option<Session>], shared: &Shared, keyspace: KeyspaceId) -> &'a mut Session {
    let index = usize::from(keyspace.0);
    sessions[index].get_or_insert_with(|| shared.keyspaces[index].new_session())
}

fn command_key<'a>(command: &Command<'a>) -> &'a [u8] {
    match command {
        Command::TimeOf(time) => time.key,
        _ => b"",
    }
}
