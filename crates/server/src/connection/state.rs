//! What a connection remembers from request to request, and the requests that are answered at once.

mod commands;
mod control;
mod multi;
mod together;

use super::answer::{LastAnswer, last_of, write_explained};
use super::output::Output;
use super::slow::{self, ShardAccess, Slow, SlowDone, Told};
use crate::config::Role;
use crate::load::beginning;
use crate::load::clients::ClientInfo;
use crate::monitors::Listening;
use crate::named::{Member, NameError};
use crate::receipts::{Begun, Issued};
use crate::service_levels::Served;
use crate::shard::mailbox::Answer;
use crate::shard::{ReplicaIndex, Shard};
use crate::shared::Shared;
use crate::users::{self, Caller};
pub(super) use together::{Away, Collected, Joined};

use multi::Multi;
use rheostat_core::counter::Scope;
use rheostat_core::dial::{Dial, Level};
use rheostat_core::ids::{KeyspaceId, Now, PartitionId};
use rheostat_core::operation::Operation;
use rheostat_core::outcome::Outcome;
use rheostat_core::replica::Execution;
use rheostat_core::reserved::is_reserved;
use rheostat_core::session::Session;
use rheostat_core::sla;
use rheostat_core::store::Position;
use rheostat_core::version::Item;
use rheostat_counters::Definition;
use rheostat_receipts::Digest;
use rheostat_resp::command::{Act, One, RheoCommand, View};
use rheostat_resp::table::{Entry, Flags};
use rheostat_resp::{Arguments, Command, CommandError, Render, Request, RespVersion, resolve};
use rheostat_storage::MAX_KEY_BYTES;
use smallvec::SmallVec;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
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

/// See the module.
pub(super) struct State {
    shared: Arc<Shared>,
    id: u64,
    address: SocketAddr,
    created_us: u64,
    authenticated: bool,
    /// Since when it has not been, if it is not.
    unknown_since_us: u64,
    /// What its user may do; without, everything.
    rights: Caller,
    /// The version of the users by which that is so.
    users_version: u64,
    wrong_passwords: u32,
    version: RespVersion,
    dial: Dial,
    service_level: Choice,
    /// Of updates of counters.
    scope: Scope,
    keyspace: KeyspaceId,
    /// What SCAN and DBSIZE cover.
    view: View,
    /// The session that it shares with other connections.
    member: Option<Member>,
    /// By keyspace: the session, once there is one. Absent while a request that uses it waits.
    sessions: Vec<Option<Session>>,
    last: LastAnswer,
    /// Its operations have receipts.
    receipts: Option<Box<Receipting>>,
    /// What monitors say is pushed.
    listening: Option<Listening>,
    /// Requests whose operations leave for another shard or node when no more of them follow.
    away: Option<Away>,
    /// Writes that are made when no more of them follow. There are none while there is `away`.
    joined: Option<Joined>,
    /// What MULTI and WATCH have begun.
    multi: Option<Box<Multi>>,
    name: Vec<u8>,
    library: (Vec<u8>, Vec<u8>),
    last_command: Option<&'static Entry>,
}

/// The receipts of a connection's operations.
#[derive(Default)]
pub(super) struct Receipting {
    /// Of the last operation, if it has one.
    last: Option<Issued>,
    /// By keyspace: the statement that the next one names.
    previous: BTreeMap<KeyspaceId, Digest>,
}

/// The service level of a connection's reads.
#[derive(Default)]
enum Choice {
    /// The keyspace's own, if it has one.
    #[default]
    Default,
    /// None.
    Without,
    /// This one.
    Own(Arc<Served>),
}

/// What a client's name asks for.
struct Asked {
    /// A part in a session with a name.
    member: Option<Member>,
    keyspace: Option<KeyspaceId>,
}

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
            authenticated: !shared.users().are_asked(),
            unknown_since_us: now.monotonic_us,
            rights: None,
            users_version: shared.users_version(),
            wrong_passwords: 0,
            version: RespVersion::Two,
            dial: Dial::default(),
            service_level: Choice::Default,
            scope: Scope::default(),
            keyspace: KeyspaceId(0),
            view: View::default(),
            member: None,
            sessions: shared.keyspaces.iter().map(|_| None).collect(),
            last: LastAnswer::default(),
            receipts: None,
            listening: None,
            away: None,
            joined: None,
            multi: None,
            name: Vec::new(),
            library: (Vec::new(), Vec::new()),
            last_command: None,
            shared: shared.clone(),
        }
    }

    /// Whether what monitors say is pushed.
    pub(super) fn is_listening(&self) -> bool {
        self.listening.is_some()
    }

    /// Pushes the next of what monitors have said, between two replies; says whether there was something.
    pub(super) fn hear(&mut self, context: &mut Context<'_>, out: &mut Output) -> bool {
        if self.listening.is_none() {
            return false;
        }
        // Its user may have been given less meanwhile.
        let caller = match self.shared.users_version() == self.users_version {
            true => self.authenticated.then(|| self.rights.clone()),
            false => self.shared.users().still(&self.rights, self.users_version).filter(|_| self.authenticated),
        };
        if caller.is_none_or(|caller| caller.is_some_and(|rights| rights.role < Role::Operate)) {
            self.listening = None;
        }
        let Some(listening) = &mut self.listening else { return false };
        match listening.poll_heard(context) {
            Poll::Ready(Some(heard)) => {
                super::listening::push(&self.shared, &heard, &mut out.writer(self.version));
                out.end_batch();
                true
            }
            Poll::Ready(None) => {
                self.listening = None;
                false
            }
            Poll::Pending => false,
        }
    }

    pub(super) fn is_authenticated(&self) -> bool {
        self.authenticated
    }

    /// Looks whether users have changed; says whether the one of this connection must show a password again.
    #[inline]
    pub(super) fn look_at_users(&mut self, now: Now) -> bool {
        self.shared.users_version() != self.users_version && self.users_changed(now)
    }

    #[cold]
    fn users_changed(&mut self, now: Now) -> bool {
        let seen = std::mem::replace(&mut self.users_version, self.shared.users_version());
        if !self.authenticated {
            return false;
        }
        let still = self.shared.users().still(&self.rights, seen);
        self.authenticated = still.is_some();
        self.rights = still.unwrap_or_default();
        if !self.authenticated {
            self.unknown_since_us = now.monotonic_us;
            // What its user has begun is not gone on with by whoever comes next.
            self.multi = None;
        }
        !self.authenticated
    }

    /// What a transaction that is open, or the keys that are watched for one, hold of the room for large ones: since when, and how many bytes.
    pub(super) fn queued(&self) -> Option<(u64, u64)> {
        self.multi.as_ref()?.queued()
    }

    /// The version of the protocol that the client has chosen.
    pub(super) fn version(&self) -> RespVersion {
        self.version
    }

    /// The level that operations get on this connection.
    pub(super) fn level(&self) -> Level {
        self.dial.level.unwrap_or(self.shared.keyspaces[usize::from(self.keyspace.0)].level)
    }

    /// Since when the client has owed a password, if it does.
    pub(super) fn unknown_since_us(&self) -> Option<u64> {
        (!self.authenticated).then_some(self.unknown_since_us)
    }

    /// Requests about `keys` follow: see [`Shard::prefetch`]. For one key alone there is nothing to gain.
    #[inline]
    pub(super) fn prefetch<'a>(&self, shard: &mut Shard, mut keys: impl Iterator<Item = &'a [u8]>) {
        let Some(mut last) = keys.next().filter(|_| self.authenticated) else { return };
        // The first is asked for at once, and a key that comes again is there already.
        let replica = |key: &[u8]| shard.find(self.keyspace, self.shared.topology.partition_of(key));
        let others = keys.filter(|key| *key != std::mem::replace(&mut last, key));
        let mut found: SmallVec<[(ReplicaIndex, &[u8]); 32]> = others.filter_map(|key| Some((replica(key)?, key))).collect();
        found.sort_by_key(|(replica, _)| *replica);
        for of_one in found.chunk_by(|one, next| one.0 == next.0) {
            let keys: SmallVec<[&[u8]; 32]> = of_one.iter().map(|(_, key)| *key).collect();
            shard.prefetch(of_one[0].0, &keys);
        }
    }

    /// Answers a request, or begins to.
    #[inline]
    pub(super) fn request(&mut self, shard: &mut Shard, handle: &Rc<RefCell<Shard>>, now: Now, arguments: Arguments<'_>, out: &mut Output) -> Flow {
        let parsed = resolve(self.last_command, arguments).and_then(|entry| {
            self.last_command = Some(entry);
            if !self.authenticated && !entry.flags.has(Flags::NO_AUTH) {
                return Err(CommandError::Other("NOAUTH Authentication required.".into()));
            }
            let command = self.read_request(now, entry, arguments)?;
            self.allow(entry, arguments, &command)?;
            Ok(command)
        });
        if self.multi.as_ref().is_some_and(|multi| multi.is_open()) {
            return self.in_multi(shard, handle, now, arguments, parsed, out);
        }
        match parsed {
            Ok(command) => self.command(shard, handle, now, command, out),
            Err(_) if self.collects() => Flow::Later,
            Err(error) => {
                // A refused MULTI is refused with what follows it.
                if self.authenticated && error == CommandError::WrongArity("multi") {
                    self.break_multi();
                }
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

    /// What a request means, on this connection.
    #[inline]
    fn read_request<'a>(&self, now: Now, entry: &'static Entry, arguments: Arguments<'a>) -> Result<Command<'a>, CommandError> {
        (entry.parse)(Request { entry, arguments, now_ms: now.physical_ms })
    }

    /// Whether the client's user may make the request that means `command`.
    #[inline]
    fn allow(&self, entry: &Entry, arguments: Arguments<'_>, command: &Command<'_>) -> Result<(), CommandError> {
        match &self.rights {
            None => Ok(()),
            Some(rights) => rights
                .allow_request(entry, arguments, command, self.keyspace)
                .map_err(|denied| CommandError::Other(format!("NOPERM {denied}").into())),
        }
    }

    #[inline]
    fn command(&mut self, shard: &mut Shard, handle: &Rc<RefCell<Shard>>, now: Now, command: Command<'_>, out: &mut Output) -> Flow {
        if self.joined.is_some() && !matches!(command, Command::One(One { act: Act::Put(..), .. })) {
            return Flow::Later;
        }
        if let Some(receipts) = &mut self.receipts
            && !matches!(command, Command::Rheo(RheoCommand::Receipt(_)))
        {
            receipts.last = None;
        }
        match command {
            Command::One(one) => {
                let single = self.one(one);
                self.single(shard, handle, now, single, out)
            }
            other => self.other_command(shard, handle, now, other, out),
        }
    }

    /// The operation of a command that is one on one key.
    #[inline]
    fn one(&self, one: One<'_>) -> Single {
        Single { partition: self.shared.topology.partition_of(one.key), render: one.render, operation: one.operation(self.dial, self.scope) }
    }

    fn error(&self, shard: &mut Shard, out: &mut Output, message: &str) -> Flow {
        shard.counters.errors += 1;
        out.error(message, self.version);
        Flow::Done
    }

    /// The service level of this connection's reads, if they have one.
    #[inline]
    fn service_level(&self) -> Option<&Arc<Served>> {
        match &self.service_level {
            // Who asks for a level or a freshness asks for that.
            Choice::Default if self.dial.level.is_some() || self.dial.fresh_ms.is_some() || self.dial.as_of.is_some() => None,
            Choice::Default => self.shared.service_levels.default_of(self.keyspace),
            Choice::Without => None,
            Choice::Own(served) => Some(served),
        }
    }

    /// Runs one operation, or keeps it for later ones to join.
    #[inline]
    fn single(&mut self, shard: &mut Shard, handle: &Rc<RefCell<Shard>>, now: Now, mut single: Single, out: &mut Output) -> Flow {
        if self.receipts.is_some()
            && let Some(begun) = self.begin_receipt(now, &single)
        {
            // Each alone, since the receipt says what the session was before it and after it.
            if self.collects() {
                return Flow::Later;
            }
            let (served, session) = (self.service_level().cloned(), self.take_session(self.keyspace));
            let access = self.access(handle);
            let Single { partition, operation, render } = single;
            return Flow::Slow(slow::with_receipt(self.context(now), access, session, (partition, operation, render), served, begun));
        }
        if let Some(served) = self.service_level().cloned() {
            match sla::Request::of(single.operation, &served.aims) {
                Err(other) => single.operation = other,
                Ok(_) if self.collects() => return Flow::Later,
                Ok(request) => {
                    let session = self.take_session(self.keyspace);
                    let access = self.access(handle);
                    return Flow::Slow(slow::serve(self.context(now), access, session, (single.partition, request, single.render), served));
                }
            }
        }
        if self.away.is_some() {
            return self.join_away(shard, single.partition, single.operation, single.render);
        }
        if !self.shared.keyspaces[usize::from(self.keyspace.0)].can.agrees() {
            return self.run(shard, now, single, out);
        }
        match &single.operation {
            Operation::Put { items, .. } if items.len() == 1 && can_join(&items[0]) => self.join(single.partition, items[0].clone()),
            _ if self.joined.is_some() => Flow::Later,
            _ => self.run(shard, now, single, out),
        }
    }

    /// What is said of an operation in its receipt before it has run; `None` if it has none.
    fn begin_receipt(&mut self, now: Now, single: &Single) -> Option<Begun> {
        let keyspace = self.keyspace;
        let previous = self.receipts.as_ref()?.previous.get(&keyspace).copied();
        let session = session_of(&mut self.sessions, &self.shared, keyspace);
        Begun::of(&self.shared, (keyspace, single.partition), &single.operation, session, (previous, now.physical_ms))
    }

    /// Runs one operation: here if its partition is, else where it is.
    #[inline]
    fn run(&mut self, shard: &mut Shard, now: Now, single: Single, out: &mut Output) -> Flow {
        let (keyspace, partition, render) = (self.keyspace, single.partition, single.render);
        let found = shard.find(keyspace, partition);
        if let Some(to) = self.target(keyspace, partition, &single.operation, found.is_some()) {
            // Where it goes is not asked twice: who leads can change in between.
            let mut away = Away::to(to, keyspace, now, self.last_command);
            away.add(partition, single.operation, render);
            self.away = Some(away);
            return Flow::Done;
        }
        if let Some(replica) = found {
            let session = session_of(&mut self.sessions, &self.shared, keyspace);
            let mut operation = single.operation;
            let over = shard.shared.leave_in_time(keyspace, &mut operation);
            return match &shard.execute(now, replica, operation, session) {
                Execution::Done { outcome, after } => {
                    self.tell(shard, now, replica, *after, render, outcome, out);
                    Flow::Done
                }
                Execution::Waiting(op) => {
                    let (sender, answer) = oneshot::channel();
                    shard.expect(now, keyspace, (replica, *op), self.id, Answer::Task(sender));
                    let fallback = self.take_session(keyspace);
                    Flow::Slow(slow::await_answer(self.context(now), answer, (partition, fallback, over), render))
                }
            };
        }
        let session = self.take_session(keyspace);
        let started = shard.shared.start(self.id, keyspace, partition, session, single.operation);
        Flow::Slow(slow::await_started(self.context(now), started, render))
    }

    /// Writes outcomes that came together, until there are none or the output exceeds `limit`. Says whether some are left.
    pub(super) fn tell_on(&mut self, shard: &mut Shard, told: &mut Told, limit: usize, out: &mut Output) -> bool {
        while out.len() <= limit {
            let (Some(outcome), Some(render)) = (told.outcomes.next(), told.renders.next()) else { return false };
            let ok = self.write(render, &outcome, told.now_ms, out);
            shard.counters.errors += u64::from(!ok);
            if told.achieved.is_some() {
                self.last.achieved = told.achieved;
            }
        }
        told.outcomes.len() > 0
    }

    #[inline]
    #[allow(clippy::too_many_arguments)]
    fn tell(&mut self, shard: &mut Shard, now: Now, replica: ReplicaIndex, after: Position, render: Render, outcome: &Outcome, out: &mut Output) {
        if after > Position(0) && after > shard.durable(replica) {
            out.wait_for(replica, after);
        }
        let ok = self.write(render, outcome, now.physical_ms, out);
        shard.counters.errors += u64::from(!ok);
    }

    /// Writes a reply; says whether it is not an error. An explanation names data centers, which only the cluster knows.
    #[inline]
    fn write(&mut self, render: Render, outcome: &Outcome, now_ms: u64, out: &mut Output) -> bool {
        let mut writer = out.writer(self.version);
        match (render, outcome) {
            (Render::Explain, Outcome::Explained(versions)) => {
                let covered = self.rights.as_ref().is_some_and(|rights| rights.has_prefixes());
                write_explained(versions, covered, &self.shared.topology, &mut writer);
                true
            }
            _ => {
                match last_of(outcome) {
                    Some(last) => self.last = last,
                    None if matches!(outcome, Outcome::Failed(_)) => self.last = LastAnswer::default(),
                    None => {}
                }
                render.write(outcome, now_ms, &mut writer)
            }
        }
    }

    /// What a waiting request takes with it.
    fn context(&self, now: Now) -> slow::Context {
        slow::Context { client: self.id, keyspace: self.keyspace, version: self.version, dial: self.dial, now }
    }

    /// A way to the partitions for a request that waits.
    fn access(&self, handle: &Rc<RefCell<Shard>>) -> ShardAccess {
        ShardAccess::new(handle, &self.shared, self.id)
    }

    /// Takes the session of `keyspace` out, for a request that waits.
    fn take_session(&mut self, keyspace: KeyspaceId) -> Session {
        // Replies of requests before that one may leave while it waits.
        self.give();
        let info = &self.shared.keyspaces[usize::from(keyspace.0)];
        self.sessions[usize::from(keyspace.0)].take().unwrap_or_else(|| info.new_session())
    }

    /// The command of the last request.
    pub(super) fn last_command(&self) -> Option<&'static Entry> {
        self.last_command
    }

    /// Takes in what other connections of a named session have seen. Before requests run.
    #[inline]
    pub(super) fn take_in(&mut self, now: Now) {
        if let Some(member) = &mut self.member {
            member.take_in(now.monotonic_us, &self.shared.keyspaces, &mut self.sessions);
        }
    }

    /// Gives other connections of a named session what this one has seen. Before replies leave.
    #[inline]
    pub(super) fn give(&mut self) {
        if let Some(member) = &mut self.member {
            member.give(&self.shared.keyspaces, &self.sessions);
        }
    }

    /// Goes on with the session called `name`, instead of the present one. Errors: the error reply.
    fn join_session(&mut self, now: Now, name: &[u8]) -> Result<(), String> {
        let member = self.member_of(now, name)?;
        self.go_on_with(now, member);
        Ok(())
    }

    /// A part in the session called `name`. Errors: the error reply.
    fn member_of(&self, now: Now, name: &[u8]) -> Result<Member, String> {
        self.shared.named.join(now.monotonic_us, name).map_err(|why| match why {
            NameError::Length => format!("ERR {why}"),
            NameError::TooMany(_) => format!("BUSY {why}"),
        })
    }

    /// Goes on with the session of `member`, instead of the present one.
    fn go_on_with(&mut self, now: Now, mut member: Member) {
        self.leave_name();
        self.sessions.iter_mut().for_each(|session| *session = None);
        member.take_in(now.monotonic_us, &self.shared.keyspaces, &mut self.sessions);
        self.member = Some(member);
    }

    /// The connection's session has no name any more.
    fn leave_name(&mut self) {
        // Requests before this one may be of the same pipeline.
        self.give();
        self.member = None;
    }

    /// What a client's name asks for that begins with `rheo:`, as in `rheo:session=user:42;keyspace=strong`; other names ask for nothing. Nothing has changed yet. Errors: the error reply.
    fn read_name(&self, now: Now, name: &[u8]) -> Result<Asked, String> {
        let (mut session, mut keyspace) = (None, None);
        let options = name.strip_prefix(b"rheo:").unwrap_or_default();
        for option in options.split(|byte| *byte == b';').filter(|option| !option.is_empty()) {
            let at = option.iter().position(|byte| *byte == b'=').unwrap_or(option.len());
            match (&option[..at], option.get(at + 1..)) {
                (b"session", Some(name)) => session = Some(name),
                (b"keyspace", Some(name)) => {
                    let found = self.shared.keyspaces.iter().find(|keyspace| keyspace.name.as_bytes() == name);
                    keyspace =
                        Some(found.ok_or("ERR there is no keyspace of the name that the client's name asks for; INFO keyspace lists them")?.id);
                }
                _ => return Err("ERR a client's name that begins with rheo: has the options session= and keyspace=, with ; between them".into()),
            }
        }
        // Last: where there are too many, one that nobody uses goes for it.
        let member = session.map(|name| self.member_of(now, name)).transpose()?;
        Ok(Asked { member, keyspace })
    }

    /// The client is called `name` from now on, which asks for this.
    fn set_name(&mut self, now: Now, name: &[u8], Asked { member, keyspace }: Asked) {
        if let Some(member) = member {
            self.go_on_with(now, member);
        }
        self.keyspace = keyspace.unwrap_or(self.keyspace);
        self.name = name.to_vec();
    }

    /// Takes in what a request that waited has left; returns what of it is still to be told.
    pub(super) fn finish(&mut self, done: SlowDone) -> Option<Told> {
        if let Some((keyspace, session)) = done.session {
            self.sessions[usize::from(keyspace.0)] = Some(session);
        }
        if let Some(last) = done.last {
            self.last = last;
        }
        if let (Some(receipts), Some((keyspace, issued))) = (&mut self.receipts, done.receipt) {
            receipts.previous.insert(keyspace, issued.digest());
            receipts.last = Some(issued);
        }
        if let Some((keyspace, seen)) = done.watched {
            self.multi.get_or_insert_default().watch(keyspace, seen);
        } else if let Some(multi) = &mut self.multi {
            // It may have been a WATCH that has failed.
            multi.give_back();
        }
        self.give();
        done.told
    }

    /// The name of its user.
    pub(super) fn user(&self) -> &str {
        self.rights.as_ref().map_or(users::DEFAULT, |rights| &rights.name)
    }

    /// Who the client is, for an operation of its that took long.
    pub(super) fn who(&self) -> (String, Vec<u8>, String) {
        (self.address.to_string(), beginning(&self.name).to_vec(), self.user().to_owned())
    }

    /// The connection's number.
    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// The keyspace of its operations.
    pub(super) fn keyspace(&self) -> KeyspaceId {
        self.keyspace
    }

    /// The connection, as far as this knows of it.
    pub(super) fn to_client_info(&self, now: Now) -> ClientInfo {
        let (address, name, user) = self.who();
        ClientInfo {
            id: self.id,
            address,
            name,
            user,
            keyspace: self.keyspace,
            level: Some(self.level()),
            service_level: self.service_level().map(|served| served.text()),
            library: (beginning(&self.library.0).to_vec(), beginning(&self.library.1).to_vec()),
            age_ms: now.monotonic_us.saturating_sub(self.created_us) / 1000,
            last_command: self.last_command.map_or("", |entry| entry.name),
            authenticated: self.authenticated,
            ..ClientInfo::default()
        }
    }

    /// The line of CLIENT LIST and CLIENT INFO, in Redis' words.
    pub(super) fn describe(&self, now: Now, progress_us: u64, input: usize, output: usize) -> String {
        let seconds = |since_us: u64| now.monotonic_us.saturating_sub(since_us) / 1_000_000;
        let text = String::from_utf8_lossy;
        let (kept, watched) = self.multi.as_ref().map_or((None, 0), |multi| multi.counts());
        let multi = kept.map_or("-1".to_owned(), |kept| kept.to_string());
        // Client libraries read all of these counts, and some fail where one is missing: what there is none of is 0.
        format!(
            "id={} addr={} name={} age={} idle={} flags={} db={} sub=0 psub=0 ssub=0 multi={multi} watch={watched} qbuf={input} qbuf-free=0 \
             argv-mem=0 obl=0 oll=0 omem={output} tot-mem={} cmd={} user={} lib-name={} lib-ver={} resp={}",
            self.id,
            self.address,
            text(&self.name),
            seconds(self.created_us),
            seconds(progress_us),
            if kept.is_some() { "x" } else { "N" },
            self.keyspace.0,
            input + output,
            self.last_command.map_or("", |entry| entry.name),
            self.user(),
            text(&self.library.0),
            text(&self.library.1),
            self.version.number(),
        )
    }
}

/// Whether nothing in the write itself lets it be refused: those that are made with it would be refused, too.
#[inline]
fn can_join(item: &Item) -> bool {
    let defines = item.value.as_deref().is_some_and(Definition::is);
    item.key.len() <= MAX_KEY_BYTES && !is_reserved(&item.key) && !defines
}

/// The session of `keyspace`, made if there is none yet.
#[inline]
fn session_of<'a>(sessions: &'a mut [Option<Session>], shared: &Shared, keyspace: KeyspaceId) -> &'a mut Session {
    let index = usize::from(keyspace.0);
    sessions[index].get_or_insert_with(|| shared.keyspaces[index].new_session())
}
