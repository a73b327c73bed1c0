//! Commands on the connection itself.

use super::{Arguments, Command, CommandError, Entry, Parsed, REPEATED, printable};
use crate::number::{parse_i64, parse_u64};
use crate::reply::RespVersion;
use std::fmt;

/// Something that must not appear in logs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Secret<'a>(pub &'a [u8]);

impl fmt::Debug for Secret<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// Who a client says it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Credentials<'a> {
    /// The user; `None` is the default user.
    pub user: Option<&'a [u8]>,
    /// The password.
    pub password: Secret<'a>,
}

/// HELLO.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hello<'a> {
    /// The version to speak from the reply on; `None` leaves it.
    pub version: Option<RespVersion>,
    /// To authenticate with first.
    pub credentials: Option<Credentials<'a>>,
    /// The connection's new name; empty takes the name away.
    pub name: Option<&'a [u8]>,
}

/// SELECT's argument.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyspaceChoice<'a> {
    /// By number, in the order of the configuration.
    Number(u16),
    /// By name.
    Name(&'a str),
}

/// CLIENT's subcommands, except HELP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClientCommand<'a> {
    /// The connection's number.
    Id,
    /// Names the connection; empty takes the name away.
    SetName(&'a [u8]),
    /// The connection's name.
    GetName,
    /// One line about this connection.
    Info,
    /// One line about each connection.
    List(ClientSelection<'a>),
    /// Whether the connection is spared when connections are evicted: none are, so OK.
    NoEvict(bool),
    /// Whether reads leave no trace for eviction: they never do, so OK.
    NoTouch(bool),
    /// The client library's name.
    SetLibraryName(&'a [u8]),
    /// The client library's version.
    SetLibraryVersion(&'a [u8]),
}

/// Which connections CLIENT LIST is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClientSelection<'a> {
    /// All.
    All,
    /// Those of this kind.
    Kind(ClientKind),
    /// Those with these numbers, which are valid: [`parse_u64`] reads each.
    Ids(Arguments<'a>),
}

/// Redis' kinds of connections; ours are all normal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClientKind {
    /// A client.
    Normal,
    /// A primary that is replicated from.
    Master,
    /// A replica.
    Replica,
    /// A client in publish-subscribe mode.
    PubSub,
}

pub(crate) fn ping<'a>(entry: &'static Entry, arguments: Arguments<'a>) -> Parsed<'a> {
    if arguments.len() > 2 { Err(CommandError::WrongArity(entry.name)) } else { Ok(Command::Ping(arguments.get(1))) }
}

pub(crate) fn echo<'a>(_: &'static Entry, arguments: Arguments<'a>) -> Parsed<'a> {
    Ok(Command::Echo(arguments.at(1)))
}

pub(crate) fn auth<'a>(_: &'static Entry, arguments: Arguments<'a>) -> Parsed<'a> {
    match arguments.len() {
        2 => Ok(Command::Auth(Credentials { user: None, password: Secret(arguments.at(1)) })),
        3 => Ok(Command::Auth(Credentials { user: Some(arguments.at(1)), password: Secret(arguments.at(2)) })),
        _ => Err(CommandError::Syntax),
    }
}

/// Redis' rule for what it prints in CLIENT LIST: printable ASCII without spaces.
fn checked_name<'a>(name: &'a [u8], what: &str) -> Result<&'a [u8], CommandError> {
    if name.iter().all(u8::is_ascii_graphic) {
        return Ok(name);
    }
    Err(CommandError::Other(format!("ERR {what} cannot contain spaces, newlines or special characters.").into()))
}

pub(crate) fn hello<'a>(_: &'static Entry, arguments: Arguments<'a>) -> Parsed<'a> {
    let mut hello = Hello { version: None, credentials: None, name: None };
    let Some(version) = arguments.get(1) else { return Ok(Command::Hello(hello)) };
    hello.version = Some(match parse_i64(version) {
        Some(2) => RespVersion::Two,
        Some(3) => RespVersion::Three,
        Some(_) => return Err(CommandError::Other("NOPROTO unsupported protocol version".into())),
        None => return Err(CommandError::Other("ERR Protocol version is not an integer or out of range".into())),
    });
    let mut options = arguments.from(2).iter();
    while let Some(option) = options.next() {
        if option.eq_ignore_ascii_case(b"auth") && options.len() >= 2 {
            let (user, password) = (options.next(), options.next().unwrap_or_default());
            hello.credentials = Some(Credentials { user, password: Secret(password) });
        } else if option.eq_ignore_ascii_case(b"setname") && options.len() >= 1 {
            hello.name = Some(checked_name(options.next().unwrap_or_default(), "Client names")?);
        } else {
            let option = printable(option, REPEATED);
            return Err(CommandError::Other(format!("ERR Syntax error in HELLO option '{option}'").into()));
        }
    }
    Ok(Command::Hello(hello))
}

pub(crate) fn quit<'a>(_: &'static Entry, _: Arguments<'a>) -> Parsed<'a> {
    Ok(Command::Quit)
}

pub(crate) fn reset<'a>(_: &'static Entry, _: Arguments<'a>) -> Parsed<'a> {
    Ok(Command::Reset)
}

pub(crate) fn read_only<'a>(_: &'static Entry, _: Arguments<'a>) -> Parsed<'a> {
    Ok(Command::ReadOnly)
}

pub(crate) fn read_write<'a>(_: &'static Entry, _: Arguments<'a>) -> Parsed<'a> {
    Ok(Command::ReadWrite)
}

pub(crate) fn select<'a>(_: &'static Entry, arguments: Arguments<'a>) -> Parsed<'a> {
    let choice = arguments.at(1);
    if let Some(number) = parse_i64(choice) {
        let number = u16::try_from(number).map_err(|_| CommandError::Other("ERR DB index is out of range".into()))?;
        return Ok(Command::Select(KeyspaceChoice::Number(number)));
    }
    match std::str::from_utf8(choice) {
        Ok(name) if !name.is_empty() => Ok(Command::Select(KeyspaceChoice::Name(name))),
        _ => Err(CommandError::Other("ERR a keyspace is selected by its number or its name".into())),
    }
}

pub(crate) fn client_id<'a>(_: &'static Entry, _: Arguments<'a>) -> Parsed<'a> {
    Ok(Command::Client(ClientCommand::Id))
}

pub(crate) fn client_set_name<'a>(_: &'static Entry, arguments: Arguments<'a>) -> Parsed<'a> {
    Ok(Command::Client(ClientCommand::SetName(checked_name(arguments.at(2), "Client names")?)))
}

pub(crate) fn client_get_name<'a>(_: &'static Entry, _: Arguments<'a>) -> Parsed<'a> {
    Ok(Command::Client(ClientCommand::GetName))
}

pub(crate) fn client_info<'a>(_: &'static Entry, _: Arguments<'a>) -> Parsed<'a> {
    Ok(Command::Client(ClientCommand::Info))
}

pub(crate) fn client_list<'a>(_: &'static Entry, arguments: Arguments<'a>) -> Parsed<'a> {
    let selection = match (arguments.get(2), arguments.get(3)) {
        (None, _) => ClientSelection::All,
        (Some(option), Some(kind)) if option.eq_ignore_ascii_case(b"type") && arguments.len() == 4 => ClientSelection::Kind(client_kind(kind)?),
        (Some(option), Some(_)) if option.eq_ignore_ascii_case(b"id") => {
            let ids = arguments.from(3);
            if !ids.iter().all(|id| parse_u64(id).is_some_and(|id| id > 0)) {
                return Err(CommandError::Other("ERR Invalid client ID".into()));
            }
            ClientSelection::Ids(ids)
        }
        _ => return Err(CommandError::Syntax),
    };
    Ok(Command::Client(ClientCommand::List(selection)))
}

fn client_kind(name: &[u8]) -> Result<ClientKind, CommandError> {
    Ok(match name {
        _ if name.eq_ignore_ascii_case(b"normal") => ClientKind::Normal,
        _ if name.eq_ignore_ascii_case(b"master") => ClientKind::Master,
        _ if name.eq_ignore_ascii_case(b"replica") || name.eq_ignore_ascii_case(b"slave") => ClientKind::Replica,
        _ if name.eq_ignore_ascii_case(b"pubsub") => ClientKind::PubSub,
        _ => return Err(CommandError::Other(format!("ERR Unknown client type '{}'", printable(name, REPEATED)).into())),
    })
}

fn on_or_off(word: &[u8]) -> Result<bool, CommandError> {
    match word {
        _ if word.eq_ignore_ascii_case(b"on") => Ok(true),
        _ if word.eq_ignore_ascii_case(b"off") => Ok(false),
        _ => Err(CommandError::Syntax),
    }
}

pub(crate) fn client_no_evict<'a>(_: &'static Entry, arguments: Arguments<'a>) -> Parsed<'a> {
    Ok(Command::Client(ClientCommand::NoEvict(on_or_off(arguments.at(2))?)))
}

pub(crate) fn client_no_touch<'a>(_: &'static Entry, arguments: Arguments<'a>) -> Parsed<'a> {
    Ok(Command::Client(ClientCommand::NoTouch(on_or_off(arguments.at(2))?)))
}

pub(crate) fn client_set_info<'a>(_: &'static Entry, arguments: Arguments<'a>) -> Parsed<'a> {
    let (attribute, value) = (arguments.at(2), arguments.at(3));
    Ok(Command::Client(match attribute {
        _ if attribute.eq_ignore_ascii_case(b"lib-name") => ClientCommand::SetLibraryName(checked_name(value, "lib-name")?),
        _ if attribute.eq_ignore_ascii_case(b"lib-ver") => ClientCommand::SetLibraryVersion(checked_name(value, "lib-ver")?),
        _ => return Err(CommandError::Other(format!("ERR Unrecognized option '{}'", printable(attribute, REPEATED)).into())),
    }))
}
