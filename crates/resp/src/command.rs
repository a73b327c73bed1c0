//! Typed commands: what a request means, or the error that answers it.

mod cluster;
mod connection;
mod counters;
mod keys;
mod one;
mod rheo;
mod server;
pub(crate) mod strings;
mod time;
mod transaction;

pub use cluster::ClusterCommand;
pub use connection::{ClientCommand, ClientKind, ClientSelection, Credentials, Hello, KeyspaceChoice, Secret};
pub use counters::{Changes, CounterCommand, CreateCounter, HowToAdd, Weights};
pub use keys::{Scan, Wait};
pub use one::{Act, One};
pub use rheo::{Feed, MAX_SERVICE_LEVEL_BYTES, MonitorCommand, NewServiceLevel, Put, ReceiptCommand, RheoCommand, SessionCommand, Test, View};
pub use server::{AclCommand, SlowLogCommand};
pub use time::MAX_EXPIRY_MS;

use super::arguments::{Arguments, Pairs};
use super::table::catalogue::Catalogue;
use super::table::{self, Entry, Found, Reason};
use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;

/// The commands of each group, in the manual's order.
pub(crate) const GROUPS: &[&[Entry]] =
    &[strings::COMMANDS, keys::COMMANDS, transaction::COMMANDS, connection::COMMANDS, server::COMMANDS, cluster::COMMANDS, rheo::COMMANDS];

/// A request whose number of arguments is right.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// The command.
    pub entry: &'static Entry,
    /// Its arguments.
    pub arguments: Arguments<'a>,
    /// When it is made, in milliseconds since the Unix epoch.
    pub now_ms: u64,
}

impl<'a> Deref for Request<'a> {
    type Target = Arguments<'a>;

    #[inline]
    fn deref(&self) -> &Arguments<'a> {
        &self.arguments
    }
}

/// A command. Keys are views of the request's bytes.
#[derive(Clone, PartialEq, Debug)]
pub enum Command<'a> {
    /// One operation on one key: GET, SET, INCR, EXPIRE, TTL and the like.
    One(One<'a>),

    /// PING: `PONG`, or the message.
    Ping(Option<&'a [u8]>),
    /// ECHO: the message.
    Echo(&'a [u8]),
    /// HELLO: switches the version of RESP, authenticates, names the connection; answers what the server is.
    Hello(Hello<'a>),
    /// AUTH.
    Auth(Credentials<'a>),
    /// QUIT: answers OK and closes.
    Quit,
    /// RESET: the connection as it was when it was opened.
    Reset,
    /// SELECT.
    Select(KeyspaceChoice<'a>),
    /// CLIENT.
    Client(ClientCommand<'a>),
    /// READONLY: a cluster client asks to read from replicas; any node of a data center serves any key, so this is OK.
    ReadOnly,
    /// READWRITE: the opposite of READONLY.
    ReadWrite,

    /// MULTI: what follows is kept until EXEC.
    Multi,
    /// EXEC: makes what was kept, all of it or nothing.
    Exec,
    /// DISCARD: forgets what was kept.
    Discard,
    /// WATCH: EXEC does nothing if one of these keys is written before it.
    Watch(Arguments<'a>),
    /// UNWATCH: forgets the watched keys.
    Unwatch,

    /// COMMAND: answered by [`Catalogue::reply`].
    Catalogue(Catalogue<'a>),
    /// HELP of the container that has this subcommand: answered by [`table::help::reply`].
    Help(&'static Entry),
    /// INFO: these sections, or the default ones if there are none.
    Info(Arguments<'a>),
    /// ACL.
    Acl(AclCommand<'a>),
    /// CONFIG GET: options that match any of these patterns, whatever their case.
    ConfigGet(Arguments<'a>),
    /// TIME: seconds and microseconds.
    Time,
    /// DBSIZE: number of keys in the keyspace.
    DbSize,
    /// WAIT.
    Wait(Wait),
    /// SLOWLOG.
    SlowLog(SlowLogCommand),
    /// CLUSTER.
    Cluster(ClusterCommand),
    /// CLUSTER KEYSLOT: the slot of a key, [`rheostat_core::slots::slot`].
    KeySlot(&'a [u8]),
    /// CLUSTER COUNTKEYSINSLOT.
    CountKeysInSlot(u16),
    /// RHEO: what only Rheostat has.
    Rheo(RheoCommand<'a>),
    /// RHEO FEED: what has been written to the keyspace.
    Feed(Feed<'a>),
    /// RHEO CONFLICTS: the versions of a key that were replaced unread.
    Conflicts(&'a [u8]),

    /// MGET: one read-only transaction.
    MultiGet(Arguments<'a>),
    /// MSET.
    MultiSet(Pairs<'a>),
    /// RHEO SIBLINGS: all values of a key that stand side by side, and what a write in their place needs.
    Siblings(&'a [u8]),
    /// RHEO PUT: writes a value in the place of those that were seen.
    Put(Put<'a>),
    /// RHEO TEST: reads a key and writes another by what it was.
    Test(Test<'a>),
    /// RHEO COUNTER.
    Counter(CounterCommand<'a>),

    /// DEL, UNLINK: how many of the keys were there. A key given twice is deleted, and counted, once.
    Delete(Arguments<'a>),
    /// EXISTS, TOUCH: how many of the keys are there. A key given twice counts twice.
    Exists(Arguments<'a>),
    /// SCAN.
    Scan(Scan<'a>),
}

/// Why a request is not a command. Nothing has been done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CommandError {
    /// No such command; its name and the beginning of its arguments, printable.
    Unknown {
        /// The name.
        name: String,
        /// The arguments, each in quotes.
        arguments: String,
    },
    /// No such subcommand of this container.
    UnknownSubcommand {
        /// The container's name.
        container: &'static str,
        /// The subcommand's name, printable.
        name: String,
    },
    /// Redis has this command; we refuse it.
    Unserved {
        /// The command's name, or `container|subcommand`.
        name: &'static str,
        /// Why.
        reason: Reason,
    },
    /// Redis has this option of a command that is served; we refuse it.
    UnservedOption {
        /// The command and the option: `XX together with LT`.
        what: &'static str,
        /// Why.
        reason: Reason,
    },
    /// Too many or too few arguments for this command.
    WrongArity(&'static str),
    /// Options that are not understood or do not go together.
    Syntax,
    /// An argument should be an integer of 64 bits.
    NotAnInteger,
    /// The expiry given to this command is zero, negative, or too far away.
    InvalidExpireTime(&'static str),
    /// Anything else; the whole error reply.
    Other(Cow<'static, str>),
    /// A web browser was tricked into talking to us: the connection is closed without an answer.
    CrossProtocol,
}

impl CommandError {
    /// Whether the connection is to be closed, without an answer.
    pub fn closes(&self) -> bool {
        matches!(self, CommandError::CrossProtocol)
    }
}

impl fmt::Display for CommandError {
    /// The error reply without its leading `-`, in Redis' words where it has them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CommandError::Unknown { name, arguments } => write!(f, "ERR unknown command '{name}', with args beginning with: {arguments}"),
            CommandError::UnknownSubcommand { container, name } => {
                write!(f, "ERR unknown subcommand '{name}'. Try {} HELP.", container.to_uppercase())
            }
            CommandError::Unserved { name, reason } => {
                write!(f, "ERR {} is not served: {reason}", name.to_uppercase().replace('|', " "))
            }
            CommandError::UnservedOption { what, reason } => write!(f, "ERR {what} is not served: {reason}"),
            CommandError::WrongArity(name) => write!(f, "ERR wrong number of arguments for '{name}' command"),
            CommandError::Syntax => f.write_str("ERR syntax error"),
            CommandError::NotAnInteger => f.write_str("ERR value is not an integer or out of range"),
            CommandError::InvalidExpireTime(name) => write!(f, "ERR invalid expire time in '{name}' command"),
            CommandError::Other(message) => f.write_str(message),
            CommandError::CrossProtocol => f.write_str("ERR this is not a web server"),
        }
    }
}

impl std::error::Error for CommandError {}

/// Bytes as printable text of at most `limit` characters, for an error message.
fn printable(bytes: &[u8], limit: usize) -> String {
    // A character has at most four bytes.
    let bytes = &bytes[..bytes.len().min(limit.saturating_mul(4))];
    String::from_utf8_lossy(bytes).chars().take(limit).map(|character| if character.is_control() { ' ' } else { character }).collect()
}

/// Most characters of a client's own words that an error repeats.
const REPEATED: usize = 128;

/// The entry that serves this request, whose number of arguments is right; `last` is that of the request before. `arguments` has at least one, as the parser's have.
#[inline]
pub fn resolve(last: Option<&'static Entry>, arguments: Arguments<'_>) -> Result<&'static Entry, CommandError> {
    let name = arguments.get(0).unwrap_or_default();
    // Most requests of a pipeline are like the one before.
    let same = |last: &&Entry| last.subcommands.is_empty() && last.name.as_bytes().eq_ignore_ascii_case(name) && !name.contains(&b'|');
    match last.filter(same) {
        Some(last) if last.accepts(arguments.len()) => Ok(last),
        _ => resolve_anew(name, arguments),
    }
}

fn resolve_anew(name: &[u8], arguments: Arguments<'_>) -> Result<&'static Entry, CommandError> {
    let entry = match table::find(name) {
        Some(Found::Served(entry)) => entry,
        Some(Found::Unserved(name, reason)) => return Err(CommandError::Unserved { name, reason }),
        None => return Err(unknown(name, arguments.from(1))),
    };
    if !entry.subcommands.is_empty()
        && let Some(name) = arguments.get(1)
    {
        return resolve_subcommand(entry, name, arguments);
    }
    if entry.accepts(arguments.len()) { Ok(entry) } else { Err(CommandError::WrongArity(entry.name)) }
}

fn resolve_subcommand(container: &'static Entry, name: &[u8], arguments: Arguments<'_>) -> Result<&'static Entry, CommandError> {
    match container.subcommand_of(arguments) {
        Some(entry) if entry.accepts(arguments.len()) => Ok(entry),
        Some(entry) => Err(CommandError::WrongArity(entry.name)),
        None => Err(match table::find_unserved_subcommand(container, name) {
            Some((name, reason)) => CommandError::Unserved { name, reason },
            None => {
                // A family's name says nothing without the word after it.
                let second = arguments.get(2).filter(|_| container.has_family(name)).map(|word| format!(" {}", printable(word, REPEATED)));
                let name = printable(name, REPEATED) + &second.unwrap_or_default();
                CommandError::UnknownSubcommand { container: container.name, name }
            }
        }),
    }
}

fn unknown(name: &[u8], arguments: Arguments<'_>) -> CommandError {
    // What an HTTP request would begin its lines with, as Redis has it.
    if name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:") {
        return CommandError::CrossProtocol;
    }
    let mut repeated = String::new();
    for argument in arguments.iter() {
        let Some(room) = REPEATED.checked_sub(repeated.chars().count()).filter(|room| *room > 0) else { break };
        repeated.push('\'');
        repeated.push_str(&printable(argument, room));
        repeated.push_str("' ");
    }
    CommandError::Unknown { name: printable(name, REPEATED), arguments: repeated }
}

impl<'a> Command<'a> {
    /// What the request `arguments` means, made at `now_ms` milliseconds since the Unix epoch. The same as [`resolve`], then the entry's `parse`.
    #[inline]
    pub fn parse(arguments: Arguments<'a>, now_ms: u64) -> Result<Command<'a>, CommandError> {
        let entry = resolve(None, arguments)?;
        (entry.parse)(Request { entry, arguments, now_ms })
    }
}

type Parsed<'a> = Result<Command<'a>, CommandError>;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Limits, Parser, encode_request};

    /// The name of the entry of `request` that comes after one of `last`.
    fn resolved(last: &[&[u8]], request: &[&[u8]]) -> Result<&'static str, CommandError> {
        let entry = |last: Option<&'static Entry>, request: &[&[u8]]| {
            let (mut buffer, mut parser) = (Vec::new(), Parser::new(Limits::default()));
            encode_request(request, &mut buffer);
            resolve(last, parser.next(&buffer).unwrap().unwrap())
        };
        entry(entry(None, last).ok(), request).map(|entry| entry.name)
    }

    #[test]
    fn what_came_before_changes_nothing() {
        let get: &[&[u8]] = &[b"GET", b"k"];
        let config: &[&[u8]] = &[b"CONFIG", b"GET", b"maxmemory"];
        for last in [get, config, &[b"SET", b"k", b"v"]] {
            assert_eq!(resolved(last, get), Ok("get"));
            assert_eq!(resolved(last, &[b"gEt", b"k"]), Ok("get"));
            assert_eq!(resolved(last, &[b"GET"]), Err(CommandError::WrongArity("get")));
            assert_eq!(resolved(last, &[b"STRLEN", b"k"]), Ok("strlen"));
            assert_eq!(resolved(last, config), Ok("config|get"));
            // A subcommand's whole name is no command's.
            assert!(matches!(resolved(last, &[b"config|get", b"maxmemory"]), Err(CommandError::Unknown { .. })));
        }
    }
}
