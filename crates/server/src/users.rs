//! Who a caller is, and what that user may do: decided once at each door, before anything is asked of a partition.
//!
//! `security.password`, or `security.password_sha256`, says the password of the user `default`, who may do everything. Every `[[user]]` of the configuration has a role, and may be limited to keyspaces and to keys that
//! begin with one of its prefixes. What a node does for another one is not looked at again.

use crate::config::{NodeConfig, Role, Secret};
use crate::guard::Guard;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use rheostat_core::counter::CounterCall;
use rheostat_core::ids::KeyspaceId;
use rheostat_core::operation::Operation;
use rheostat_resp::arguments::Arguments;
use rheostat_resp::command::{Command, CounterCommand};
use rheostat_resp::table::{Entry, Flags};
use ring::digest::{SHA256, digest};
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// The user that has `security.password`.
pub(crate) const DEFAULT: &str = "default";

/// The SHA-256 of `password`, as the configuration has it: 64 hexadecimal digits.
pub fn password_sha256(password: &[u8]) -> String {
    digest(&SHA256, password).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Why a caller is not let in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Closed {
    /// No password was given.
    Missing,
    /// The header is none that is understood.
    Malformed,
    /// No such user, or not its password.
    Wrong,
    /// Too many wrong ones came from this address; this one was not looked at.
    Later,
}

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Closed::Missing => "a password is needed: authorization: Bearer <password>, or Basic <user and password>",
            Closed::Malformed => "the authorization header must be: Bearer <password>, or Basic <user:password in base64>",
            Closed::Wrong => "wrong password",
            Closed::Later => "too many wrong passwords came from this address; none is looked at for a while",
        })
    }
}

/// Why something is not done for a user.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Denied {
    /// Its role is not enough for this.
    Role(Role),
    /// Not in this keyspace.
    Keyspace,
    /// Not with one of these keys.
    Key,
    /// It is about all keys of a keyspace, and the user has some only.
    AllKeys,
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Denied::Role(needed) => write!(f, "this user's role does not allow it: it takes `{}`", needed.name()),
            Denied::Keyspace => f.write_str("this user has no right to this keyspace"),
            Denied::Key => f.write_str("this user has no right to one of the keys"),
            Denied::AllKeys => f.write_str(
                "this user has rights to some keys only, and this is about all; SCAN and RHEO FEED can be limited with MATCH to a prefix of its own",
            ),
        }
    }
}

/// What a user may do who may not do everything.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Rights {
    pub(crate) name: String,
    pub(crate) role: Role,
    /// `None`: in all of them.
    keyspaces: Option<Vec<KeyspaceId>>,
    /// What its keys begin with; empty: any.
    prefixes: Vec<Vec<u8>>,
}

/// A caller that was let in: with a user's rights, or with all.
pub(crate) type Caller = Option<Arc<Rights>>;

impl Rights {
    fn has_role(&self, needed: Role) -> Result<(), Denied> {
        if self.role >= needed { Ok(()) } else { Err(Denied::Role(needed)) }
    }

    fn has_key(&self, key: &[u8]) -> bool {
        self.prefixes.is_empty() || self.prefixes.iter().any(|prefix| key.starts_with(prefix))
    }

    /// Whether its keys must begin with certain words.
    pub(crate) fn has_prefixes(&self) -> bool {
        !self.prefixes.is_empty()
    }

    /// Whether it may see all keys of all keyspaces.
    pub(crate) fn sees_all(&self) -> bool {
        self.keyspaces.is_none() && self.prefixes.is_empty()
    }

    fn allows<'a>(&self, needed: Role, keyspace: KeyspaceId, mut keys: impl Iterator<Item = &'a [u8]>) -> Result<(), Denied> {
        self.has_role(needed)?;
        if self.keyspaces.as_ref().is_some_and(|keyspaces| !keyspaces.contains(&keyspace)) {
            return Err(Denied::Keyspace);
        }
        if keys.all(|key| self.has_key(key)) { Ok(()) } else { Err(Denied::Key) }
    }

    /// Whether changes of the keys that match `pattern` may be read in `keyspace`.
    pub(crate) fn allow_pattern(&self, keyspace: KeyspaceId, pattern: Option<&[u8]>) -> Result<(), Denied> {
        self.allows(Role::Read, keyspace, std::iter::empty())?;
        let own = self.prefixes.is_empty() || self.prefixes.iter().any(|prefix| pattern.is_some_and(|it| begins(it, prefix)));
        if own { Ok(()) } else { Err(Denied::AllKeys) }
    }

    /// Whether the request `arguments`, which `entry` serves and which means `command`, may be made in `keyspace`.
    pub(crate) fn allow_request(&self, entry: &Entry, arguments: Arguments<'_>, command: &Command<'_>, keyspace: KeyspaceId) -> Result<(), Denied> {
        if entry.flags.has(Flags::ADMIN) {
            self.has_role(Role::Operate)?;
        }
        let needed = if entry.flags.has(Flags::WRITE) { Role::Write } else { Role::Read };
        match command {
            // Its keys are more than the table can say.
            Command::Counter(CounterCommand::Add { changes, .. }) => {
                return self.allows(needed, keyspace, changes.iter().map(|(key, _)| key));
            }
            Command::Scan(scan) if self.allow_pattern(keyspace, scan.pattern) == Err(Denied::AllKeys) => {
                return Err(Denied::AllKeys);
            }
            Command::Feed(feed) => return self.allow_pattern(keyspace, feed.pattern),
            Command::CountKeysInSlot(_) if !self.sees_all() => return Err(Denied::AllKeys),
            _ => {}
        }
        match &entry.keys {
            Some(keys) => self.allows(needed, keyspace, keys.of(arguments)),
            None if matches!(command, Command::Scan(_)) => self.allows(needed, keyspace, std::iter::empty()),
            None if entry.flags.has(Flags::READONLY) || entry.flags.has(Flags::WRITE) => {
                self.allows(needed, keyspace, std::iter::empty())?;
                if self.prefixes.is_empty() { Ok(()) } else { Err(Denied::AllKeys) }
            }
            None => Ok(()),
        }
    }

    /// Whether `operation` may be run in `keyspace`.
    pub(crate) fn allow_operation(&self, keyspace: KeyspaceId, operation: &Operation) -> Result<(), Denied> {
        let needed = match operation {
            Operation::Counter { call: CounterCall::Reclaim { .. }, .. }
            | Operation::Restore { .. }
            | Operation::Rollback { .. }
            | Operation::Export { .. } => Role::Operate,
            operation if operation.writes() => Role::Write,
            _ => Role::Read,
        };
        let mut allowed = true;
        let mut key = |key: &[u8]| allowed &= self.has_key(key);
        match operation {
            Operation::Put { items, .. } => items.iter().for_each(|item| key(&item.key)),
            Operation::PutIf { items, guards, .. } => {
                items.iter().for_each(|item| key(&item.key));
                guards.iter().for_each(|guard| key(&guard.key));
            }
            Operation::ReadTransaction { keys, .. } => keys.iter().for_each(|one| key(one)),
            Operation::TestWrite { write, .. } => [&write.test, &write.target].into_iter().for_each(|one| key(one)),
            Operation::Counter { call, .. } => call.keys().for_each(|one| key(one)),
            Operation::Transact { actions, guards, .. } => {
                actions.iter().flat_map(|action| action.reads().into_iter().chain([action.key()])).for_each(|one| key(one));
                guards.iter().for_each(|guard| key(&guard.key));
            }
            Operation::AwaitReplication { .. } => {}
            other => match other.key() {
                Some(one) => key(one),
                None if self.prefixes.is_empty() => {}
                None => return Err(Denied::AllKeys),
            },
        }
        self.allows(needed, keyspace, std::iter::empty())?;
        if allowed { Ok(()) } else { Err(Denied::Key) }
    }

    /// One line as `ACL LIST` has them, without the password. Beside Redis' words, `in=` names the keyspaces.
    fn line(&self, names: &[String]) -> String {
        let (keyspaces, keys, commands) = self.words(names);
        format!("user {} on {keys} {commands}{}", self.name, if keyspaces.is_empty() { String::new() } else { format!(" in={keyspaces}") })
    }

    /// Its keyspaces, its keys and its commands, in Redis' words where there are some.
    pub(crate) fn words(&self, names: &[String]) -> (String, String, &'static str) {
        let name = |id: &KeyspaceId| names.get(usize::from(id.0)).cloned().unwrap_or_default();
        let keyspaces = self.keyspaces.iter().flatten().map(name).collect::<Vec<_>>().join(",");
        let pattern = |prefix: &Vec<u8>| format!("~{}*", String::from_utf8_lossy(prefix));
        let keys = if self.prefixes.is_empty() { "~*".into() } else { self.prefixes.iter().map(pattern).collect::<Vec<_>>().join(" ") };
        (keyspaces, keys, commands_of(self.role))
    }
}

/// What a role may do, in Redis' words.
fn commands_of(role: Role) -> &'static str {
    match role {
        Role::Read => "+@all -@write -@admin",
        Role::Write => "+@all -@admin",
        Role::Operate => "+@all",
    }
}

/// Whether every key that `pattern` matches begins with `prefix`.
fn begins(pattern: &[u8], prefix: &[u8]) -> bool {
    let literal = pattern.iter().position(|byte| b"*?[\\".contains(byte)).unwrap_or(pattern.len());
    pattern[..literal].starts_with(prefix)
}

/// All users.
pub(crate) struct Users {
    /// The SHA-256 of the default one's password.
    default: Option<Secret>,
    /// That password itself, if the configuration has it.
    password: Option<Secret>,
    /// The version of the users since which that is the password.
    default_since: u64,
    /// By name.
    named: BTreeMap<String, Named>,
    keyspaces: Vec<String>,
}

/// A user with a name.
struct Named {
    /// The SHA-256 of the password, and the version of the users since which it is.
    secret: Secret,
    since: u64,
    rights: Arc<Rights>,
}

impl Users {
    /// Those of `config`, which has been checked.
    pub(crate) fn new(config: &NodeConfig) -> Users {
        let keyspaces: Vec<String> = config.keyspaces.iter().map(|keyspace| keyspace.name.clone()).collect();
        let number = |name: &String| keyspaces.iter().position(|own| own == name).map(|index| KeyspaceId(index as u16));
        let rights = |user: &crate::config::UserConfig| {
            let limited = (!user.keyspaces.is_empty()).then(|| user.keyspaces.iter().filter_map(number).collect());
            let prefixes = user.prefixes.iter().map(|prefix| prefix.clone().into_bytes()).collect();
            Arc::new(Rights { name: user.name.clone(), role: user.role, keyspaces: limited, prefixes })
        };
        let secret = |user: &crate::config::UserConfig| Secret(user.password_sha256.0.to_ascii_lowercase());
        let named = |user: &crate::config::UserConfig| Named { secret: secret(user), since: 0, rights: rights(user) };
        let named = config.users.iter().map(|user| (user.name.clone(), named(user))).collect();
        Users { default: config.security.digest(), password: config.security.password.clone(), default_since: 0, named, keyspaces }
    }

    /// These users, as version `version`, which follow those `before`.
    pub(crate) fn after(mut self, before: &Users, version: u64) -> Users {
        self.default_since = if self.default == before.default { before.default_since } else { version };
        for (name, named) in &mut self.named {
            let same = before.named.get(name).filter(|before| before.secret == named.secret);
            named.since = same.map_or(version, |before| before.since);
        }
        self
    }

    /// What the caller may do who was let in, as `caller`, when the users were of version `seen`; `None`: his user is gone, or has another password since.
    pub(crate) fn still(&self, caller: &Caller, seen: u64) -> Option<Caller> {
        match caller {
            None => (self.default_since <= seen).then_some(None),
            Some(rights) => self.named.get(&rights.name).filter(|named| named.since <= seen).map(|named| Some(named.rights.clone())),
        }
    }

    /// Whether callers must say who they are.
    pub(crate) fn are_asked(&self) -> bool {
        self.default.is_some()
    }

    /// Lets in who knows the password of `user` (`None`: of the default one), as far as `guard` lets an address try.
    pub(crate) fn let_in(&self, guard: &Guard, (now_us, address): (u64, IpAddr), user: Option<&[u8]>, password: &[u8]) -> Result<Caller, Closed> {
        guard.may_try(now_us, address).map_err(|_| Closed::Later)?;
        let offered = password_sha256(password);
        let found = match user.filter(|user| *user != DEFAULT.as_bytes()) {
            None => self.default.as_ref().is_some_and(|secret| secret.matches(offered.as_bytes())).then_some(None),
            Some(user) => {
                let known = std::str::from_utf8(user).ok().and_then(|user| self.named.get(user));
                known.filter(|named| named.secret.matches(offered.as_bytes())).map(|named| Some(named.rights.clone()))
            }
        };
        guard.tried(now_us, address, user.unwrap_or(DEFAULT.as_bytes()), found.is_some());
        found.ok_or(Closed::Wrong)
    }

    /// Lets in whoever the `authorization` header says, if callers are asked at all.
    pub(crate) fn let_in_by_header(&self, guard: &Guard, from: (u64, IpAddr), header: Option<&[u8]>) -> Result<Caller, Closed> {
        if !self.are_asked() {
            return Ok(None);
        }
        let header = header.ok_or(Closed::Missing)?;
        // The scheme is not case-sensitive (RFC 9110, 11.1).
        let of_scheme = |scheme: &str| {
            let (own, rest) = header.split_at_checked(scheme.len() + 1)?;
            (own[..scheme.len()].eq_ignore_ascii_case(scheme.as_bytes()) && own[scheme.len()] == b' ').then_some(rest)
        };
        if let Some(password) = of_scheme("bearer") {
            return self.let_in(guard, from, None, password);
        }
        let basic = of_scheme("basic").and_then(|text| BASE64.decode(text).ok()).ok_or(Closed::Malformed)?;
        let colon = basic.iter().position(|byte| *byte == b':').ok_or(Closed::Malformed)?;
        self.let_in(guard, from, Some(&basic[..colon]), &basic[colon + 1..])
    }

    /// The default user's password, if the configuration has it.
    pub(crate) fn password(&self) -> Option<&Secret> {
        self.password.as_ref()
    }

    /// Names of all users.
    pub(crate) fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        let mut names: Vec<&str> = vec![DEFAULT];
        names.extend(self.named.keys().map(String::as_str));
        names.into_iter()
    }

    /// A line for each user.
    pub(crate) fn lines(&self) -> Vec<String> {
        let all = if self.are_asked() { "" } else { " nopass" };
        let mut lines = vec![format!("user {DEFAULT} on{all} ~* {}", commands_of(Role::Operate))];
        lines.extend(self.named.values().map(|named| named.rights.line(&self.keyspaces)));
        lines
    }

    /// What the user called `name` may: its keyspaces, its keys, its commands. `None`: there is none.
    pub(crate) fn describe(&self, name: &[u8]) -> Option<(String, String, &'static str)> {
        if name == DEFAULT.as_bytes() {
            return Some((String::new(), "~*".into(), commands_of(Role::Operate)));
        }
        Some(self.named.get(std::str::from_utf8(name).ok()?)?.rights.words(&self.keyspaces))
    }
}
