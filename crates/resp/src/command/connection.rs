//! Commands on the connection itself.

use super::server::{container, help};
use super::{Arguments, Command, CommandError, Parsed, REPEATED, Request, printable};
use crate::number::{parse_i64, parse_u64};
use crate::reply::RespVersion;
use crate::table::words::*;
use std::fmt;

pub(crate) const COMMANDS: &[Entry] = &[
    Entry::connection("auth", -2, OPEN, "1.0.0", auth)
        .does("Authenticates the connection")
        .takes(&[Argument::new("username", Kind::String).optional(), Argument::new("password", Kind::String)]),
    Entry::connection("client", -2, SLOW, "2.4.0", container).does("Is about connections").contains(&[
        Entry::connection("client|getname", 2, SLOW, "2.6.9", |_| Ok(Command::Client(ClientCommand::GetName))).does("Returns the connection's name"),
        Entry::connection("client|help", 2, SLOW, "5.0.0", help).does(HELP),
        Entry::connection("client|id", 2, SLOW, "5.0.0", |_| Ok(Command::Client(ClientCommand::Id))).does("Returns the connection's number"),
        Entry::connection("client|info", 2, SLOW, "6.2.0", |_| Ok(Command::Client(ClientCommand::Info)))
            .does("Describes the connection")
            .hints(VARYING),
        Entry::connection("client|list", -2, Flags::ADMIN, "2.4.0", client_list)
            .does("Describes connections, one on a line")
            .costs("O(N) where N is the number of connections")
            .takes(&[Argument::one_of(
                "selection",
                &[
                    Argument::one_of(
                        "client-type",
                        &[
                            Argument::token("normal", "NORMAL"),
                            Argument::token("master", "MASTER"),
                            Argument::token("replica", "REPLICA"),
                            Argument::token("pubsub", "PUBSUB"),
                        ],
                    )
                    .after("TYPE"),
                    Argument::new("client-id", Kind::Integer).after("ID").multiple(),
                ],
            )
            .optional()])
            .hints(VARYING),
        Entry::connection("client|no-evict", 3, Flags::ADMIN, "7.0.0", |request| {
            Ok(Command::Client(ClientCommand::NoEvict(on_or_off(request.at(2))?)))
        })
        .does("Has no effect: connections are not evicted")
        .takes(&[ON_OR_OFF]),
        Entry::connection("client|no-touch", 3, SLOW, "7.2.0", |request| Ok(Command::Client(ClientCommand::NoTouch(on_or_off(request.at(2))?))))
            .does("Has no effect: access leaves no trace")
            .takes(&[ON_OR_OFF]),
        Entry::connection("client|setinfo", 4, SLOW, "7.2.0", client_set_info).does("Says which client library the connection is from").takes(&[
            Argument::one_of(
                "attribute",
                &[Argument::new("libname", Kind::String).after("LIB-NAME"), Argument::new("libver", Kind::String).after("LIB-VER")],
            ),
        ]),
        Entry::connection("client|setname", 3, SLOW, "2.6.9", |request| {
            Ok(Command::Client(ClientCommand::SetName(checked_name(request.at(2), "Client names")?)))
        })
        .does("Names the connection")
        .takes(&[Argument::new("connection-name", Kind::String)]),
    ]),
    Entry::connection("echo", 2, FAST, "1.0.0", |request| Ok(Command::Echo(request.at(1))))
        .does("Returns the message")
        .takes(&[Argument::new("message", Kind::String)]),
    Entry::connection("hello", -1, OPEN, "6.0.0", hello)
        .does("Chooses the version of RESP, authenticates and names the connection, and returns what the server is")
        .takes(&[Argument::block(
            "arguments",
            &[
                Argument::new("protover", Kind::Integer),
                Argument::block("credentials", &[Argument::new("username", Kind::String), Argument::new("password", Kind::String)])
                    .after("AUTH")
                    .optional(),
                Argument::new("clientname", Kind::String).after("SETNAME").optional(),
            ],
        )
        .optional()]),
    Entry::connection("ping", -1, FAST, "1.0.0", ping)
        .does("Returns `PONG`, or the message")
        .takes(&[Argument::new("message", Kind::String).optional()]),
    Entry::connection("quit", -1, OPEN, "1.0.0", |_| Ok(Command::Quit)).does("Closes the connection"),
    Entry::connection("reset", 1, OPEN, "6.2.0", |_| Ok(Command::Reset))
        .does("Makes the connection as it was when it was opened, with a new session"),
    Entry::connection("select", 2, FAST, "1.0.0", select)
        .does("Chooses the keyspace")
        .takes(&[Argument::one_of("keyspace", &[Argument::new("index", Kind::Integer), Argument::new("name", Kind::String)])]),
];

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

fn ping(request: Request<'_>) -> Parsed<'_> {
    if request.len() > 2 { Err(CommandError::WrongArity(request.entry.name)) } else { Ok(Command::Ping(request.get(1))) }
}

fn auth(request: Request<'_>) -> Parsed<'_> {
    match request.len() {
        2 => Ok(Command::Auth(Credentials { user: None, password: Secret(request.at(1)) })),
        3 => Ok(Command::Auth(Credentials { user: Some(request.at(1)), password: Secret(request.at(2)) })),
        _ => Err(CommandError::Syntax),
    }
}

/// The most bytes of what a client says of itself: it is kept as long as the connection.
const MOST_NAME_BYTES: usize = 1024;

/// Redis' rule for what it prints in CLIENT LIST: printable ASCII without spaces. And no more than a name has.
fn checked_name<'a>(name: &'a [u8], what: &str) -> Result<&'a [u8], CommandError> {
    if name.len() > MOST_NAME_BYTES {
        return Err(CommandError::Other(format!("ERR {what} cannot have more than {MOST_NAME_BYTES} bytes").into()));
    }
    if name.iter().all(u8::is_ascii_graphic) {
        return Ok(name);
    }
    Err(CommandError::Other(format!("ERR {what} cannot contain spaces, newlines or special characters.").into()))
}

fn hello(request: Request<'_>) -> Parsed<'_> {
    let mut hello = Hello { version: None, credentials: None, name: None };
    let Some(version) = request.get(1) else { return Ok(Command::Hello(hello)) };
    hello.version = Some(match parse_i64(version) {
        Some(2) => RespVersion::Two,
        Some(3) => RespVersion::Three,
        Some(_) => return Err(CommandError::Other("NOPROTO unsupported protocol version".into())),
        None => return Err(CommandError::Other("ERR Protocol version is not an integer or out of range".into())),
    });
    let mut options = request.from(2).iter();
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

fn select(request: Request<'_>) -> Parsed<'_> {
    let choice = request.at(1);
    if let Some(number) = parse_i64(choice) {
        let number = u16::try_from(number).map_err(|_| CommandError::Other("ERR DB index is out of range".into()))?;
        return Ok(Command::Select(KeyspaceChoice::Number(number)));
    }
    match std::str::from_utf8(choice) {
        Ok(name) if !name.is_empty() => Ok(Command::Select(KeyspaceChoice::Name(name))),
        _ => Err(CommandError::Other("ERR a keyspace is selected by its number or its name".into())),
    }
}

fn client_list(request: Request<'_>) -> Parsed<'_> {
    let selection = match (request.get(2), request.get(3)) {
        (None, _) => ClientSelection::All,
        (Some(option), Some(kind)) if option.eq_ignore_ascii_case(b"type") && request.len() == 4 => ClientSelection::Kind(client_kind(kind)?),
        (Some(option), Some(_)) if option.eq_ignore_ascii_case(b"id") => {
            let ids = request.from(3);
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

fn client_set_info(request: Request<'_>) -> Parsed<'_> {
    let (attribute, value) = (request.at(2), request.at(3));
    Ok(Command::Client(match attribute {
        _ if attribute.eq_ignore_ascii_case(b"lib-name") => ClientCommand::SetLibraryName(checked_name(value, "lib-name")?),
        _ if attribute.eq_ignore_ascii_case(b"lib-ver") => ClientCommand::SetLibraryVersion(checked_name(value, "lib-ver")?),
        _ => return Err(CommandError::Other(format!("ERR Unrecognized option '{}'", printable(attribute, REPEATED)).into())),
    }))
}
