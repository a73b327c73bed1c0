//! What is asked of the connection itself: who the client is, its dial and its sessions.

use super::{Choice, Flow, State, WRONG_PASSWORDS, session_of};
use crate::connection::info;
use crate::connection::output::Output;
use crate::named::Member;
use crate::shard::Shard;
use crate::users::{Caller, Closed, DEFAULT};
use rheostat_core::dial::{AsOf, Quorum};
use rheostat_core::ids::Now;
use rheostat_core::protocol::Verdict;
use rheostat_resp::command::{
    AclCommand, ClientCommand, Credentials, Hello, MonitorCommand, NewServiceLevel, ReceiptCommand, RheoCommand, SessionCommand,
};
use rheostat_resp::table;
use rheostat_resp::{ReplyWriter, RespVersion};
use std::cell::RefCell;
use std::rc::Rc;

/// Redis' words.
const WRONG: &str = "WRONGPASS invalid username-password pair or user is disabled.";
const NO_PASSWORD: &str =
    "ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?";

impl State {
    /// What TIME answers: seconds, and the microseconds of the second.
    pub(super) fn time(&self) -> [String; 2] {
        let now_us = self.shared.clocks.physical_us();
        [now_us / 1_000_000, now_us % 1_000_000].map(|number| number.to_string())
    }

    /// Who shows these credentials. Nothing has changed but the count of wrong passwords. Errors: the error reply.
    pub(super) fn identify(&mut self, shard: &mut Shard, credentials: Credentials<'_>) -> Result<Caller, &'static str> {
        let users = self.shared.users();
        if !users.are_asked() {
            // The default user has no password then, so any is right, and there is nobody else.
            return match credentials.user {
                Some(user) if user == DEFAULT.as_bytes() => Ok(None),
                Some(_) => Err(WRONG),
                None => Err(NO_PASSWORD),
            };
        }
        let from = (self.shared.clocks.monotonic_us(), self.address.ip());
        match users.let_in(&self.shared.guard, from, credentials.user, credentials.password.0) {
            Ok(caller) => return Ok(caller),
            Err(Closed::Later) => {
                self.wrong_passwords += 1;
                return Err("WRONGPASS too many wrong passwords came from this address; none is looked at for a while");
            }
            Err(Closed::Missing | Closed::Malformed | Closed::Wrong) => {}
        }
        shard.counters.wrong_passwords += 1;
        self.wrong_passwords += 1;
        Err(WRONG)
    }

    pub(super) fn refuse_password(&mut self, shard: &mut Shard, out: &mut Output, message: &str) -> Flow {
        self.error(shard, out, message);
        if self.wrong_passwords >= WRONG_PASSWORDS { Flow::Close } else { Flow::Done }
    }

    pub(super) fn hello(&mut self, shard: &mut Shard, now: Now, hello: Hello<'_>, out: &mut Output) -> Flow {
        let caller = match hello.credentials.map(|credentials| self.identify(shard, credentials)).transpose() {
            Ok(caller) => caller,
            Err(message) => return self.refuse_password(shard, out, message),
        };
        if caller.is_none() && !self.authenticated {
            return self.error(shard, out, "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time");
        }
        let named = match hello.name.map(|name| self.read_name(now, name).map(|asked| (name, asked))).transpose() {
            Ok(named) => named,
            Err(why) => return self.error(shard, out, &why),
        };
        // All of it, or nothing: what can be refused has been looked at.
        let flow = if caller.is_some() { Flow::Authenticated } else { Flow::Done };
        if let Some(caller) = caller {
            (self.authenticated, self.rights) = (true, caller);
        }
        self.version = hello.version.unwrap_or(self.version);
        // Nothing can be pushed in RESP2.
        self.listening = self.listening.take().filter(|_| self.version == RespVersion::Three);
        if let Some((name, asked)) = named {
            self.set_name(now, name, asked);
        }
        info::hello(self.id, &mut out.writer(self.version));
        flow
    }

    pub(super) fn acl(&mut self, shard: &mut Shard, acl: AclCommand<'_>, out: &mut Output) -> Flow {
        let users = self.shared.users();
        let bulks = |out: &mut Output, version, items: &mut dyn ExactSizeIterator<Item = &str>| {
            let mut writer = out.writer(version);
            writer.array(items.len());
            items.for_each(|item| writer.bulk(item.as_bytes()));
        };
        match acl {
            AclCommand::WhoAmI => out.writer(self.version).bulk(self.user().as_bytes()),
            AclCommand::Users => bulks(out, self.version, &mut users.names()),
            AclCommand::List => bulks(out, self.version, &mut users.lines().iter().map(String::as_str)),
            AclCommand::Categories => bulks(out, self.version, &mut table::catalogue::all_categories()),
            AclCommand::Category(name) => match table::catalogue::in_category(name) {
                Some(names) => bulks(out, self.version, &mut names.into_iter()),
                None => return self.error(shard, out, "ERR Unknown category; ACL CAT lists them"),
            },
            AclCommand::GetUser(name) => {
                let mut writer = out.writer(self.version);
                let Some((keyspaces, keys, commands)) = users.describe(name) else {
                    writer.null();
                    return Flow::Done;
                };
                writer.map(6);
                writer.bulk(b"flags");
                writer.set(1);
                writer.bulk(b"on");
                // Clients ask for them. Not even their hashes are shown.
                writer.bulk(b"passwords");
                writer.array(0);
                for (name, value) in [("commands", commands), ("keys", &keys), ("channels", ""), ("keyspaces", &keyspaces)] {
                    writer.bulk(name.as_bytes());
                    writer.bulk(value.as_bytes());
                }
            }
        }
        Flow::Done
    }

    pub(super) fn client(&mut self, shard: &mut Shard, handle: &Rc<RefCell<Shard>>, now: Now, command: ClientCommand<'_>, out: &mut Output) -> Flow {
        let mut writer = out.writer(self.version);
        match command {
            ClientCommand::Id => writer.integer(self.id as i64),
            ClientCommand::SetName(name) => match self.read_name(now, name) {
                Ok(asked) => {
                    self.set_name(now, name, asked);
                    out.writer(self.version).ok();
                }
                Err(why) => return self.error(shard, out, &why),
            },
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

    pub(super) fn rheo(&mut self, shard: &mut Shard, now: Now, command: RheoCommand<'_>, out: &mut Output) -> Flow {
        let keyspace = self.keyspace;
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
            RheoCommand::ServiceLevel(None) => {
                let text = self.service_level().map(|served| served.text());
                out.writer(self.version).bulk_or_null(text.as_deref().map(str::as_bytes));
            }
            RheoCommand::ServiceLevel(Some(NewServiceLevel::Default)) => {
                self.service_level = Choice::Default;
                out.writer(self.version).ok();
            }
            RheoCommand::ServiceLevel(Some(NewServiceLevel::Without)) => {
                self.service_level = Choice::Without;
                out.writer(self.version).ok();
            }
            RheoCommand::ServiceLevel(Some(NewServiceLevel::Text(words))) => {
                let words: Vec<_> = words.iter().map(String::from_utf8_lossy).collect();
                let info = &self.shared.keyspaces[usize::from(keyspace.0)];
                match self.shared.service_levels.find(&words.join(" ")) {
                    Ok(served) if info.serves_some(&served.aims) => self.service_level = Choice::Own(served),
                    Ok(_) => return self.error(shard, out, &format!("ERR {}", info.serves_none())),
                    Err(why) => return self.error(shard, out, &format!("ERR {why}")),
                }
                out.writer(self.version).ok();
            }
            RheoCommand::Fresh(None) => bound(self.dial.fresh_ms, &mut out.writer(self.version)),
            RheoCommand::Fresh(Some(fresh_ms)) => {
                self.dial.fresh_ms = fresh_ms;
                out.writer(self.version).ok();
            }
            RheoCommand::Within(None) => bound(self.dial.within_us.map(|us| us / 1000), &mut out.writer(self.version)),
            RheoCommand::Within(Some(within_ms)) => {
                self.dial.within_us = within_ms.map(|ms| ms.saturating_mul(1000));
                out.writer(self.version).ok();
            }
            RheoCommand::At(None) => {
                let text = self.dial.as_of.map(|at| at.time().to_string());
                out.writer(self.version).bulk_or_null(text.as_deref().map(str::as_bytes));
            }
            RheoCommand::At(Some(at)) => {
                self.dial.as_of = at.and_then(|at| AsOf::new(at.resolve(self.shared.clocks.physical_ms())));
                out.writer(self.version).ok();
            }
            RheoCommand::Scope(None) => out.writer(self.version).bulk(self.scope.name().as_bytes()),
            RheoCommand::Scope(Some(scope)) => {
                self.scope = scope;
                out.writer(self.version).ok();
            }
            RheoCommand::View(None) => out.writer(self.version).bulk(self.view.name().as_bytes()),
            RheoCommand::View(Some(view)) => {
                self.view = view;
                out.writer(self.version).ok();
            }
            RheoCommand::Strategy(None) => out.writer(self.version).bulk(self.dial.strategy.name().as_bytes()),
            RheoCommand::Strategy(Some(strategy)) => {
                self.dial.strategy = strategy;
                out.writer(self.version).ok();
            }
            RheoCommand::Quorum(None) => {
                let Quorum { asked, reads, writes } = self.dial.quorum;
                let mut writer = out.writer(self.version);
                writer.array(3);
                [asked, reads, writes].into_iter().for_each(|number| writer.integer(number.into()));
            }
            RheoCommand::Quorum(Some(quorum)) => {
                let info = &self.shared.keyspaces[usize::from(keyspace.0)];
                let most = self.shared.topology.data_centers.len();
                if quorum != Quorum::KEYSPACE && !info.siblings {
                    return self.error(
                        shard,
                        out,
                        &format!("ERR keyspace `{}` runs protocol {}, which has no quorums to choose", info.name, info.protocol),
                    );
                }
                if let Some(number) = [quorum.asked, quorum.reads, quorum.writes].into_iter().find(|number| usize::from(*number) > most) {
                    return self.error(shard, out, &format!("ERR {number} replicas: there are {most}, one in each data center"));
                }
                self.dial.quorum = quorum;
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
                let token = self.shared.session_token(keyspace, session_of(&mut self.sessions, &self.shared, keyspace));
                out.writer(self.version).bulk(token.as_bytes());
            }
            RheoCommand::Session(SessionCommand::Reset) => {
                self.leave_name();
                self.sessions[usize::from(keyspace.0)] = None;
                out.writer(self.version).ok();
            }
            RheoCommand::Session(SessionCommand::Name(None)) => {
                let name = self.member.as_ref().map(Member::name);
                out.writer(self.version).bulk_or_null(name);
            }
            RheoCommand::Session(SessionCommand::Name(Some(name))) => match self.join_session(now, name) {
                Ok(()) => out.writer(self.version).ok(),
                Err(why) => return self.error(shard, out, &why),
            },
            RheoCommand::Session(SessionCommand::Resume(token) | SessionCommand::Merge(token)) => {
                let info = &self.shared.keyspaces[usize::from(keyspace.0)];
                let mut other = match self.shared.resume_session(keyspace, token) {
                    Ok(other) => other,
                    Err(why) => return self.error(shard, out, &format!("SESSION {why}")),
                };
                // Only a client that is in the middle of a transaction has such a token.
                other.settle(Verdict::Abandoned);
                if matches!(command, RheoCommand::Session(SessionCommand::Merge(_))) {
                    info.merge_sessions(session_of(&mut self.sessions, &self.shared, keyspace), &other);
                } else {
                    self.leave_name();
                    self.sessions[usize::from(keyspace.0)] = Some(other);
                }
                out.writer(self.version).ok();
            }
            RheoCommand::Status => return Flow::Slow(info::status(self.context(now), self.shared.clone())),
            RheoCommand::Quality => self.quality(&mut out.writer(self.version)),
            RheoCommand::Monitor(MonitorCommand::Listen(_)) if self.version != RespVersion::Three => {
                return self.error(shard, out, "ERR what monitors say is pushed, which takes RESP3: say HELLO 3 first");
            }
            RheoCommand::Monitor(MonitorCommand::Listen(name)) => {
                // Whoever listens already gives its place back first.
                self.listening = None;
                let (name, over) = (String::from_utf8_lossy(name.unwrap_or_default()).into_owned(), self.shared.stopping.subscribe());
                match self.shared.listen_to_monitors(name, 0, over) {
                    Ok(listening) => self.listening = Some(listening),
                    Err(why) => return self.error(shard, out, &format!("BUSY {why}")),
                }
                out.writer(self.version).ok();
            }
            RheoCommand::Monitor(MonitorCommand::Stop) => {
                self.listening = None;
                out.writer(self.version).ok();
            }
            RheoCommand::Receipt(ReceiptCommand::Key) => out.writer(self.version).bulk(self.shared.receipts.signer.public().as_bytes()),
            RheoCommand::Receipt(ReceiptCommand::Set(on)) => {
                self.receipts = on.then(Box::default);
                out.writer(self.version).ok();
            }
            RheoCommand::Receipt(ReceiptCommand::Last) => {
                let last = self.receipts.as_ref().and_then(|receipts| receipts.last.as_ref());
                let line = last.and_then(|last| last.line(&self.shared.receipts.signer));
                out.writer(self.version).bulk_or_null(line.as_deref().map(str::as_bytes));
            }
        }
        Flow::Done
    }

    fn quality(&self, writer: &mut ReplyWriter<'_>) {
        writer.map(7);
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
        let achieved = self.last.achieved;
        let numbers = [
            ("entry", achieved.map(|one| one.entry as u64 + 1)),
            ("used_us", achieved.map(|one| one.used_us)),
            ("data_centers", achieved.and_then(|one| one.data_centers).map(u64::from)),
        ];
        for (name, number) in numbers {
            writer.bulk(name.as_bytes());
            match number {
                Some(number) => writer.integer(i64::try_from(number).unwrap_or(i64::MAX)),
                None => writer.null(),
            }
        }
        let topology = &self.shared.topology;
        let answered_in = achieved.filter(|one| one.data_centers.is_none()).map(|one| topology.dc_name(one.at.unwrap_or(topology.here)));
        writer.bulk(b"answered_in");
        writer.bulk_or_null(answered_in.map(str::as_bytes));
    }
}

/// A bound of the dial, in milliseconds.
fn bound(ms: Option<u32>, writer: &mut ReplyWriter<'_>) {
    match ms {
        Some(ms) => writer.integer(ms.into()),
        None => writer.null(),
    }
}
