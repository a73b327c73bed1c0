//! Commands on the server.

use super::keys::pattern;
use super::one::read;
use super::{Arguments, Command, CommandError, CounterCommand, Parsed, Request};
use crate::ReplyWriter;
use crate::number::{parse_i64, parse_u64};
use crate::render::{Render, Seen};
use crate::table::catalogue::{Catalogue, Filter};
use crate::table::words::*;
use crate::table::{self, Found};

pub(crate) const COMMANDS: &[Entry] = &[
    Entry::server("acl", -2, SLOW, "6.0.0", container).does("Is about users, which the configuration makes").contains(&[
        Entry::server("acl|cat", -2, SLOW, "6.0.0", acl_cat)
            .does("Returns the categories of commands, or the commands of one")
            .costs(PER_COMMAND)
            .takes(&[Argument::new("category", Kind::String).optional()]),
        Entry::server("acl|getuser", 3, Flags::ADMIN, "6.0.0", |request| Ok(Command::Acl(AclCommand::GetUser(request.at(2)))))
            .does("Returns what a user may do, null if there is none")
            .costs("O(N) where N is the number of its keyspaces and prefixes")
            .takes(&[Argument::new("username", Kind::String)]),
        Entry::server("acl|help", 2, SLOW, "6.0.0", help).does(HELP),
        Entry::server("acl|list", 2, Flags::ADMIN, "6.0.0", |_| Ok(Command::Acl(AclCommand::List)))
            .does("Returns a line for each user: what it may do, without its password")
            .costs("O(N) where N is the number of users"),
        Entry::server("acl|users", 2, Flags::ADMIN, "6.0.0", |_| Ok(Command::Acl(AclCommand::Users)))
            .does("Returns the names of all users")
            .costs("O(N) where N is the number of users"),
        Entry::server("acl|whoami", 2, SLOW, "6.0.0", |_| Ok(Command::Acl(AclCommand::WhoAmI))).does("Returns the name of this connection's user"),
    ]),
    Entry::server("command", -1, SLOW, "2.8.13", |_| Ok(Command::Catalogue(Catalogue::All))).does("Describes all commands").contains(&[
        Entry::server("command|count", 2, SLOW, "2.8.13", |_| Ok(Command::Catalogue(Catalogue::Count))).does("Returns the number of commands that are served"),
        Entry::server("command|docs", -2, SLOW, "7.0.0", |request| Ok(Command::Catalogue(Catalogue::Docs(few(request.from(2))?)))).does("Documents commands").costs(PER_COMMAND).takes(&[COMMAND_NAMES]),
        Entry::server("command|getkeys", -3, SLOW, "2.8.13", command_get_keys)
            .does("Returns the keys of a request")
            .costs("O(N) where N is the number of arguments")
            .takes(REQUEST),
        Entry::server("command|getkeysandflags", -3, SLOW, "7.0.0", command_get_keys_and_flags)
            .does("Returns the keys of a request and what is done to each")
            .costs("O(N) where N is the number of arguments")
            .takes(REQUEST),
        Entry::server("command|help", 2, SLOW, "5.0.0", help).does(HELP),
        Entry::server("command|info", -2, SLOW, "2.8.13", command_info).does("Describes commands").costs(PER_COMMAND).takes(&[COMMAND_NAMES]),
        Entry::server("command|list", -2, SLOW, "7.0.0", command_list).does("Returns the names of commands").costs(PER_COMMAND).takes(&[
            Argument::one_of(
                "filterby",
                &[
                    Argument::new("module-name", Kind::String).after("MODULE"),
                    Argument::new("category", Kind::String).after("ACLCAT"),
                    PATTERN.after("PATTERN"),
                ],
            )
            .after("FILTERBY")
            .optional(),
        ]),
    ]),
    Entry::server("config", -2, SLOW, "2.0.0", container).does("Is about the configuration").contains(&[
        Entry::server("config|get", -3, Flags::ADMIN, "2.0.0", config_get)
            .does("Returns options whose names match a pattern")
            .costs("O(N) where N is the number of options")
            .takes(&[PATTERN.multiple()]),
        Entry::server("config|help", 2, SLOW, "5.0.0", help).does(HELP),
    ]),
    Entry::server("dbsize", 1, READ, "1.0.0", |_| Ok(Command::DbSize))
        .does("Returns the number of keys in the keyspace")
        .costs("O(N) where N is the number of partitions"),
    Entry::server("info", -1, SLOW, "1.0.0", |request| Ok(Command::Info(few(request.from(1))?)))
        .does("Describes the server's state")
        .takes(&[Argument::new("section", Kind::String).optional().multiple()])
        .hints(VARYING),
    Entry::server("memory", -2, SLOW, "4.0.0", container).does("Is about memory").contains(&[
        Entry::server("memory|help", 2, SLOW, "4.0.0", help).does(HELP),
        Entry { keys: Some(Keys { first: 2, last: 2, step: 1, access: LOOKS }), ..Entry::server("memory|usage", -3, READ, "4.0.0", memory_usage) }
            .does("Returns the bytes that a key and its newest value take, about; null without a key")
            .takes(&[KEY, Argument::new("count", Kind::Integer).after("SAMPLES").optional()]),
    ]),
    Entry::server("slowlog", -2, SLOW, "2.2.12", container).does("Is about operations that took long").contains(&[
        Entry::server("slowlog|get", -2, Flags::ADMIN, "2.2.12", slowlog_get)
            .does("Returns the last operations of this node's clients that took long, the newest first: 10, so many, or with -1 all that are kept. Waiting counts, as it does for the client. After the command and its first key stand the keyspace, the level, what was waited for and what it came to")
            .costs("O(N) where N is the number of entries returned")
            .takes(&[Argument::new("count", Kind::Integer).optional()])
            .hints(VARYING),
        Entry::server("slowlog|help", 2, SLOW, "6.2.0", help).does(HELP),
        Entry::server("slowlog|len", 2, Flags::ADMIN, "2.2.12", |_| Ok(Command::SlowLog(SlowLogCommand::Len)))
            .does("Returns how many operations that took long are kept")
            .hints(VARYING),
        Entry::server("slowlog|reset", 2, Flags::ADMIN, "2.2.12", |_| Ok(Command::SlowLog(SlowLogCommand::Reset))).does("Forgets the operations that took long"),
    ]),
    Entry::server("time", 1, FAST, "2.6.0", |_| Ok(Command::Time)).does("Returns the server's time in seconds and microseconds").hints(VARYING),
];

/// What a key with one version takes in memory beside the bytes of key and value, about.
const VERSION_BYTES: u64 = 128;

/// ACL's subcommands, except HELP. Users are made in the configuration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AclCommand<'a> {
    /// The connection's user.
    WhoAmI,
    /// The names of all users.
    Users,
    /// A line for each user.
    List,
    /// What a user may do.
    GetUser(&'a [u8]),
    /// The names of all categories of commands.
    Categories,
    /// The commands of a category.
    Category(&'a [u8]),
}

/// SLOWLOG's subcommands, except HELP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SlowLogCommand {
    /// The last operations that took long, at most so many; `None`: all that are kept.
    Get(Option<u32>),
    /// How many are kept.
    Len,
    /// Forgets them.
    Reset,
}

/// Most names or patterns in one request whose reply can be much longer than the request.
const MAX_NAMES: usize = 1024;

pub(super) fn few(names: Arguments<'_>) -> Result<Arguments<'_>, CommandError> {
    if names.len() > MAX_NAMES {
        return Err(CommandError::Other(format!("ERR at most {MAX_NAMES} names or patterns may be given at a time").into()));
    }
    Ok(names)
}

fn acl_cat(request: Request<'_>) -> Parsed<'_> {
    match (request.get(2), request.len()) {
        (None, _) => Ok(Command::Acl(AclCommand::Categories)),
        (Some(name), 3) => Ok(Command::Acl(AclCommand::Category(name))),
        _ => Err(CommandError::WrongArity(request.entry.name)),
    }
}

fn config_get(request: Request<'_>) -> Parsed<'_> {
    let patterns = few(request.from(2))?;
    patterns.iter().try_for_each(|bytes| pattern(bytes).map(|_| ()))?;
    Ok(Command::ConfigGet(patterns))
}

fn memory_usage(request: Request<'_>) -> Parsed<'_> {
    match (request.get(3), request.get(4), request.len()) {
        (None, ..) => {}
        // There are no nested values to take samples of.
        (Some(word), Some(count), 5) if word.eq_ignore_ascii_case(b"samples") => {
            parse_u64(count).ok_or(CommandError::NotAnInteger)?;
        }
        _ => return Err(CommandError::Syntax),
    }
    let key = request.at(2);
    read(key, Render::Told(memory_of, key.len() as u64))
}

fn memory_of(seen: &Seen<'_>, key_bytes: u64, out: &mut ReplyWriter<'_>) {
    match &seen.read.value {
        Some(value) => out.integer((key_bytes + value.len() as u64 + VERSION_BYTES) as i64),
        None => out.null(),
    }
}

pub(super) fn help(request: Request<'_>) -> Parsed<'_> {
    Ok(Command::Help(request.entry))
}

/// For containers that mean nothing without a subcommand; their arity says so first.
pub(super) fn container(request: Request<'_>) -> Parsed<'_> {
    Err(CommandError::WrongArity(request.entry.name))
}

fn command_info(request: Request<'_>) -> Parsed<'_> {
    let names = few(request.from(2))?;
    Ok(Command::Catalogue(if names.is_empty() { Catalogue::All } else { Catalogue::Info(names) }))
}

fn command_list(request: Request<'_>) -> Parsed<'_> {
    let filter = match request.len() {
        2 => Filter::None,
        5 if request.at(2).eq_ignore_ascii_case(b"filterby") => {
            let (by, value) = (request.at(3), request.at(4));
            match by {
                _ if by.eq_ignore_ascii_case(b"module") => Filter::Module,
                _ if by.eq_ignore_ascii_case(b"aclcat") => Filter::Category(value),
                _ if by.eq_ignore_ascii_case(b"pattern") => Filter::Pattern(pattern(value)?),
                _ => return Err(CommandError::Syntax),
            }
        }
        _ => return Err(CommandError::Syntax),
    };
    Ok(Command::Catalogue(Catalogue::List(filter)))
}

/// Where the keys are of the request within a COMMAND GETKEYS, and the request itself as far as it has keys.
fn inner_request(outer: Request<'_>) -> Result<(table::Keys, Arguments<'_>), CommandError> {
    let inner = outer.from(2);
    let error = |text: &'static str| CommandError::Other(text.into());
    let Some(Found::Served(entry)) = inner.get(0).and_then(table::find) else { return Err(error("ERR Invalid command specified")) };
    let entry = entry.subcommand_of(inner).unwrap_or(entry);
    match entry.keys {
        None => Err(error("ERR The command has no key arguments")),
        Some(_) if !entry.accepts(inner.len()) => Err(error("ERR Invalid number of arguments specified for command")),
        // Its keys are more than the table can say.
        Some(keys) if entry.name == "rheo|counter|add" => match (entry.parse)(Request { entry, arguments: inner, now_ms: outer.now_ms }) {
            Ok(Command::Counter(CounterCommand::Add { changes, .. })) => {
                let first = usize::from(keys.first);
                Ok((table::Keys { last: -1, step: 2, access: READS_AND_WRITES, ..keys }, inner.first(first + 2 * changes.iter().count())))
            }
            _ => Err(error("ERR Invalid arguments specified for command")),
        },
        Some(keys) => Ok((keys, inner)),
    }
}

fn command_get_keys(request: Request<'_>) -> Parsed<'_> {
    let (keys, request) = inner_request(request)?;
    Ok(Command::Catalogue(Catalogue::Keys(keys, request)))
}

fn command_get_keys_and_flags(request: Request<'_>) -> Parsed<'_> {
    let (keys, request) = inner_request(request)?;
    Ok(Command::Catalogue(Catalogue::KeysAndFlags(keys, request)))
}

/// How many Redis tells where nothing else is asked for.
const SLOW_OPERATIONS: u32 = 10;

fn slowlog_get(request: Request<'_>) -> Parsed<'_> {
    let most = match (request.get(2), request.len()) {
        (None, _) => Some(SLOW_OPERATIONS),
        (Some(count), 3) => match parse_i64(count).ok_or(CommandError::NotAnInteger)? {
            -1 => None,
            count => Some(u32::try_from(count).map_err(|_| CommandError::Other("ERR count should be greater than or equal to -1".into()))?),
        },
        _ => return Err(CommandError::WrongArity(request.entry.name)),
    };
    Ok(Command::SlowLog(SlowLogCommand::Get(most)))
}
