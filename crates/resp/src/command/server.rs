//! Commands on the server, on the cluster, and those that only Rheostat has.

use super::counters::CounterCommand;
use super::keys::pattern;
use super::{Arguments, Command, CommandError, Entry, Parsed, REPEATED, printable};
use crate::number::{parse_i64, parse_u64};
use crate::table::catalogue::{Catalogue, Filter};
use crate::table::{self, Found};
use rheostat_core::counter::Scope;
use rheostat_core::feed::{self, DEFAULT_COUNT};
use rheostat_core::moment::Moment;
use rheostat_core::operation::{Groups, Level, Quorum, Strategy, TestWrite};
use rheostat_core::sla;
use rheostat_core::slots::SLOTS;

/// WAIT: waits until data centers have this session's writes on disk; answers how many have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wait {
    /// How many other data centers.
    pub data_centers: u8,
    /// How long at most, in milliseconds; `None` (0 in the request) is as long as the server allows.
    pub timeout_ms: Option<u64>,
}

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

/// CLUSTER's subcommands, except HELP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClusterCommand<'a> {
    /// Slot ranges with their nodes, as an array.
    Slots,
    /// Slot ranges with their nodes, as maps.
    Shards,
    /// One line per node.
    Nodes,
    /// The cluster's state.
    Info,
    /// This node's id.
    MyId,
    /// The slot of a key: [`rheostat_core::slots::slot`].
    KeySlot(&'a [u8]),
    /// Number of keys in a slot.
    CountKeysInSlot(u16),
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

/// RHEO's subcommands, except HELP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RheoCommand<'a> {
    /// The connection's session.
    Session(SessionCommand<'a>),
    /// The level of this connection's operations from now on, `Some(None)` the keyspace's own; `None` asks for it.
    Level(Option<Option<Level>>),
    /// What SCAN and DBSIZE on this connection cover from now on; `None` asks for it.
    View(Option<View>),
    /// How this connection's read-only transactions find their snapshot from now on; `None` asks for it.
    Strategy(Option<Strategy>),
    /// The checking groups of this connection's reads from now on, the empty set if the protocol chooses; `None` asks for them.
    Groups(Option<Groups>),
    /// Where the rights come from that updates of counters on this connection need from now on; `None` asks for it.
    Scope(Option<Scope>),
    /// The service level of this connection's reads from now on; `None` asks for it.
    ServiceLevel(Option<NewServiceLevel<'a>>),
    /// How stale this connection's reads may be from now on, in milliseconds, `Some(None)` as stale as they are; `None` asks for it.
    Fresh(Option<Option<u32>>),
    /// How long this connection's operations may wait from now on, in milliseconds, `Some(None)` as long as the server lets them; `None` asks for it.
    Within(Option<Option<u32>>),
    /// As of when this connection's reads are from now on, `Some(None)` the present; `None` asks for it.
    At(Option<Option<Moment>>),
    /// How many replicas answer this connection's operations from now on, in keyspaces of protocol `quorum`; `None` asks for it.
    Quorum(Option<Quorum>),
    /// All values of a key that stand side by side, and what a write in their place needs.
    Siblings(&'a [u8]),
    /// Writes a value in the place of those that were seen.
    Put(Put<'a>),
    /// Reads a key and writes another by what it was.
    Test(Test<'a>),
    /// Of counters.
    Counter(CounterCommand<'a>),
    /// The version chain of a key, and why each version is visible or not.
    Explain(&'a [u8]),
    /// Nodes, links and lags.
    Status,
    /// The level, staleness bound and version of the last reply on this connection.
    Quality,
    /// What has been written to the keyspace.
    Feed(Feed<'a>),
    /// The versions of a key that were replaced unread.
    Conflicts(&'a [u8]),
    /// Of receipts.
    Receipt(ReceiptCommand),
    /// Of monitors.
    Monitor(MonitorCommand<'a>),
}

/// How long RHEO FEED may wait for changes.
const LONGEST_BLOCK_MS: u64 = 60_000;

/// RHEO FEED.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Feed<'a> {
    /// Where it begins.
    pub from: feed::From,
    /// Of which keys; `None`: all.
    pub pattern: Option<&'a [u8]>,
    /// How many changes, about.
    pub count: u32,
    /// How long to wait for changes, in milliseconds.
    pub block_ms: u64,
}

/// RHEO MONITOR.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MonitorCommand<'a> {
    /// What monitors say is pushed from now on: of the predicate of this name, or of all.
    Listen(Option<&'a [u8]>),
    /// It is not any more.
    Stop,
}

/// RHEO RECEIPT.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReceiptCommand {
    /// Whether this connection's operations have receipts from now on.
    Set(bool),
    /// The node's public key.
    Key,
    /// That of the last operation.
    Last,
}

/// RHEO PUT.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Put<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The value.
    pub value: &'a [u8],
    /// What has been seen of the key, as RHEO SIBLINGS and RHEO PUT answer it; `None`: what this connection has.
    pub context: Option<&'a [u8]>,
}

/// RHEO TEST.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Test<'a> {
    /// The key that is tested.
    pub key: &'a [u8],
    /// The key that is written.
    pub target: &'a [u8],
    /// The value that the tested key must have; `None`: it must have none.
    pub expected: Option<&'a [u8]>,
    /// What is written if it has.
    pub then: &'a [u8],
    /// What is written if not; `None`: nothing.
    pub otherwise: Option<&'a [u8]>,
}

impl From<Test<'_>> for TestWrite {
    fn from(test: Test<'_>) -> TestWrite {
        TestWrite {
            test: test.key.into(),
            expected: test.expected.map(Into::into),
            target: test.target.into(),
            then: test.then.into(),
            otherwise: test.otherwise.map(Into::into),
        }
    }
}

/// RHEO SLA.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NewServiceLevel<'a> {
    /// The keyspace's own.
    Default,
    /// None, not even the keyspace's own.
    Without,
    /// The one of this name or with these entries; the words are to be joined by spaces.
    Text(Arguments<'a>),
}

/// What SCAN and DBSIZE cover.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum View {
    /// The slots that CLUSTER says this node serves, as in Redis Cluster: over all nodes of a data center each key once.
    #[default]
    Node,
    /// All keys of the data center.
    DataCenter,
}

impl View {
    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            View::Node => "node",
            View::DataCenter => "data-center",
        }
    }
}

/// RHEO SESSION.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SessionCommand<'a> {
    /// The session's token.
    Get,
    /// Goes on with the session of this token, and forgets the present one.
    Resume(&'a [u8]),
    /// Adds what the session of this token has seen to the present one.
    Merge(&'a [u8]),
    /// Begins a new session.
    Reset,
    /// Goes on with the session that connections of this node share by this name; `None` asks for the name.
    Name(Option<&'a [u8]>),
}

/// The longest service level as text.
const MAX_SERVICE_LEVEL_BYTES: usize = 1024;

/// Most names or patterns in one request whose reply can be much longer than the request.
const MAX_NAMES: usize = 1024;

fn few(names: Arguments<'_>) -> Result<Arguments<'_>, CommandError> {
    if names.len() > MAX_NAMES {
        return Err(CommandError::Other(format!("ERR at most {MAX_NAMES} names or patterns may be given at a time").into()));
    }
    Ok(names)
}

pub(crate) fn info<'a>(_: &'static Entry, arguments: Arguments<'a>) -> Parsed<'a> {
    Ok(Command::Info(few(arguments.from(1))?))
}

pub(crate) fn acl_who_am_i<'a>(_: &'static Entry, _: Arguments<'a>) -> Parsed<'a> {
    Ok(Command::Acl(AclCommand::WhoAmI))
}

pub(crate) fn acl_users<'a>(_: &'static Entry, _: Arguments<'a>) -> Parsed<'a> {
    Ok(Command::Acl(AclCommand::Users))
}

pub(crate) fn acl_list<'a>(_: &'static Entry, _: Arguments<'a>) -> Parsed<'a> {
    Ok(Command::Acl(AclCommand::List))
}

pub(crate) fn acl_get_user<'a>(_: &'static Entry, arguments: Arguments<'a>) -> Parsed<'a> {
    Ok(Command::Acl(AclCommand::GetUser(arguments.at(2))))
}

pub(crate) fn acl_cat<'a>(entry: &'static Entry, arguments: Arguments<'a>) -> Parsed<'a> {
    match (arguments.get(2), arguments.len()) {
        (None, _) => Ok(Command::Acl(AclCommand::Categories)),
        (Some(name), 3) => Ok(Command::Acl(AclCommand::Category(name))),
        _ => Err(CommandError::WrongArity(entry.name)),
    }
}

pub(crate) fn config_get<'a>(_: &'static Entry, arguments: Arguments<'a>) -> Parsed<'a> {
    let patterns = few(arguments.from(2))?;
    patterns.iter().try_for_each(|bytes| pattern(bytes).map(|_| ()))?;
    Ok(Command::ConfigGet(patterns))
}

pub(crate) fn memory_usage<'a>(_: &'static Entry, arguments: Arguments<'a>) -> Parsed<'a> {
    match (arguments.get(3), arguments.get(4), arguments.len()) {
        (None, ..) => {}
        // There are no nested values to take samples of.
        (Some(word), Some(count), 5) if word.eq_ignore_ascii_case(b"samples") => {
            parse_u64(count).ok_or(CommandError::NotAnInteger)?;
        }
        _ => return Err(CommandError::Syntax),
    }
    Ok(Command::MemoryUsage(arguments.at(2)))
}

pub(crate) fn time<'a>(_: &'static Entry, _: Arguments<'a>) -> Parsed<'a> {
    Ok(Command::Time)
}

pub(crate) fn db_size<'a>(_: &'static Entry, _: Arguments<'a>) -> Parsed<'a> {
    Ok(Command::DbSize)
}

pub(crate) fn wait<'a>(_: &'static Entry, arguments: Arguments<'a>) -> Parsed<'a> {
    let data_centers = parse_i64(arguments.at(1)).ok_or(CommandError::NotAnInteger)?;
    let timeout = parse_i64(arguments.at(2));
    let timeout = timeout.ok_or_else(|| CommandError::Other("ERR timeout is not an integer or out of range".into()))?;
    let timeout = u64::try_from(timeout).map_err(|_| CommandError::Other("ERR timeout is negative".into()))?;
    let data_centers = data_centers.clamp(0, u8::MAX.into()) as u8;
    Ok(Command::Wait(Wait { data_centers, timeout_ms: (timeout > 0).then_some(timeout) }))
}

pub(crate) fn help<'a>(entry: &'static Entry, _: Arguments<'a>) -> Parsed<'a> {
    Ok(Command::Help(entry))
}

/// For containers that mean nothing without a subcommand; their arity says so first.
pub(crate) fn container<'a>(entry: &'static Entry, _: Arguments<'a>) -> Parsed<'a> {
    Err(CommandError::WrongArity(entry.name))
}

pub(crate) fn command<'a>(_: &'static Entry, _: Arguments<'a>) -> Parsed<'a> {
    Ok(Command::Catalogue(Catalogue::All))
}

pub(crate) fn command_count<'a>(_: &'static Entry, _: Arguments<'a>) -> Parsed<'a> {
    Ok(Command::Catalogue(Catalogue::Count))
}

pub(crate) fn command_info<'a>(_: &'static Entry, arguments: Arguments<'a>) -> Parsed<'a> {
    let names = few(arguments.from(2))?;
    Ok(Command::Catalogue(if names.is_empty() { Catalogue::All } else { Catalogue::Info(names) }))
}

pub(crate) fn command_docs<'a>(_: &'static Entry, arguments: Arguments<'a>) -> Parsed<'a> {
    Ok(Command::Catalogue(Catalogue::Docs(few(arguments.from(2))?)))
}

pub(crate) fn command_list<'a>(_: &'static Entry, arguments: Arguments<'a>) -> Parsed<'a> {
    let filter = match arguments.len() {
        2 => Filter::None,
        5 if arguments.at(2).eq_ignore_ascii_case(b"filterby") => {
            let (by, value) = (arguments.at(3), arguments.at(4));
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

/// The entry of the request within a COMMAND GETKEYS, and the request itself.
fn inner_request<'a>(arguments: Arguments<'a>) -> Result<(table::Keys, Arguments<'a>), CommandError> {
    let inner = arguments.from(2);
    let error = |text: &'static str| CommandError::Other(text.into());
    let Some(Found::Served(entry)) = inner.get(0).and_then(table::find) else { return Err(error("ERR Invalid command specified")) };
    let entry = entry.subcommand_of(inner).unwrap_or(entry);
    match entry.keys {
        None => Err(error("ERR The command has no key arguments")),
        Some(_) if !entry.accepts(inner.len()) => Err(error("ERR Invalid number of arguments specified for command")),
        Some(keys) => Ok((keys, inner)),
    }
}

pub(crate) fn command_get_keys<'a>(_: &'static Entry, arguments: Arguments<'a>) -> Parsed<'a> {
    let (keys, request) = inner_request(arguments)?;
    Ok(Command::Catalogue(Catalogue::Keys(keys, request)))
}

pub(crate) fn command_get_keys_and_flags<'a>(_: &'static Entry, arguments: Arguments<'a>) -> Parsed<'a> {
    let (keys, request) = inner_request(arguments)?;
    Ok(Command::Catalogue(Catalogue::KeysAndFlags(keys, request)))
}

/// How many Redis tells where nothing else is asked for.
const SLOW_OPERATIONS: u32 = 10;

pub(crate) fn slowlog_get<'a>(entry: &'static Entry, arguments: Arguments<'a>) -> Parsed<'a> {
    let most = match (arguments.get(2), arguments.len()) {
        (None, _) => Some(SLOW_OPERATIONS),
        (Some(count), 3) => match parse_i64(count).ok_or(CommandError::NotAnInteger)? {
            -1 => None,
            count => Some(u32::try_from(count).map_err(|_| CommandError::Other("ERR count should be greater than or equal to -1".into()))?),
        },
        _ => return Err(CommandError::WrongArity(entry.name)),
    };
    Ok(Command::SlowLog(SlowLogCommand::Get(most)))
}

pub(crate) fn slowlog_len<'a>(_: &'static Entry, _: Arguments<'a>) -> Parsed<'a> {
    Ok(Command::SlowLog(SlowLogCommand::Len))
}

pub(crate) fn slowlog_reset<'a>(_: &'static Entry, _: Arguments<'a>) -> Parsed<'a> {
    Ok(Command::SlowLog(SlowLogCommand::Reset))
}

pub(crate) fn cluster_slots<'a>(_: &'static Entry, _: Arguments<'a>) -> Parsed<'a> {
    Ok(Command::Cluster(ClusterCommand::Slots))
}

pub(crate) fn cluster_shards<'a>(_: &'static Entry, _: Arguments<'a>) -> Parsed<'a> {
    Ok(Command::Cluster(ClusterCommand::Shards))
}

pub(crate) fn cluster_nodes<'a>(_: &'static Entry, _: Arguments<'a>) -> Parsed<'a> {
    Ok(Command::Cluster(ClusterCommand::Nodes))
}

pub(crate) fn cluster_info<'a>(_: &'static Entry, _: Arguments<'a>) -> Parsed<'a> {
    Ok(Command::Cluster(ClusterCommand::Info))
}

pub(crate) fn cluster_my_id<'a>(_: &'static Entry, _: Arguments<'a>) -> Parsed<'a> {
    Ok(Command::Cluster(ClusterCommand::MyId))
}

pub(crate) fn cluster_key_slot<'a>(_: &'static Entry, arguments: Arguments<'a>) -> Parsed<'a> {
    Ok(Command::Cluster(ClusterCommand::KeySlot(arguments.at(2))))
}

pub(crate) fn cluster_count_keys_in_slot<'a>(_: &'static Entry, arguments: Arguments<'a>) -> Parsed<'a> {
    let number = parse_i64(arguments.at(2)).ok_or(CommandError::NotAnInteger)?;
    let slot = u16::try_from(number).ok().filter(|slot| *slot < SLOTS);
    Ok(Command::Cluster(ClusterCommand::CountKeysInSlot(slot.ok_or_else(|| CommandError::Other("ERR Invalid slot".into()))?)))
}

pub(crate) fn rheo_session<'a>(entry: &'static Entry, arguments: Arguments<'a>) -> Parsed<'a> {
    let action = arguments.at(2);
    let session = match (action, arguments.get(3)) {
        (_, None) if action.eq_ignore_ascii_case(b"get") => SessionCommand::Get,
        (_, None) if action.eq_ignore_ascii_case(b"reset") => SessionCommand::Reset,
        (_, name) if action.eq_ignore_ascii_case(b"name") => SessionCommand::Name(name),
        (_, Some(token)) if action.eq_ignore_ascii_case(b"resume") => SessionCommand::Resume(token),
        (_, Some(token)) if action.eq_ignore_ascii_case(b"merge") => SessionCommand::Merge(token),
        _ => return Err(CommandError::Syntax),
    };
    if arguments.len() > 4 {
        return Err(CommandError::WrongArity(entry.name));
    }
    Ok(Command::Rheo(RheoCommand::Session(session)))
}

pub(crate) fn rheo_level<'a>(entry: &'static Entry, arguments: Arguments<'a>) -> Parsed<'a> {
    if arguments.len() > 3 {
        return Err(CommandError::WrongArity(entry.name));
    }
    let level = match arguments.get(2) {
        None => None,
        Some(name) if name.eq_ignore_ascii_case(b"default") => Some(None),
        Some(name) => Some(Some(std::str::from_utf8(name).ok().and_then(Level::from_name).ok_or_else(|| {
            let message = format!("ERR there is no level '{}', the levels are default, {}", printable(name, REPEATED), Level::names());
            CommandError::Other(message.into())
        })?)),
    };
    Ok(Command::Rheo(RheoCommand::Level(level)))
}

pub(crate) fn rheo_sla<'a>(_: &'static Entry, arguments: Arguments<'a>) -> Parsed<'a> {
    let words = few(arguments.from(2))?;
    let new = match (words.get(0), words.len()) {
        (None, _) => None,
        (Some(word), 1) if word.eq_ignore_ascii_case(b"default") => Some(NewServiceLevel::Default),
        (Some(word), 1) if word.eq_ignore_ascii_case(b"none") => Some(NewServiceLevel::Without),
        _ if words.iter().map(<[u8]>::len).sum::<usize>() > MAX_SERVICE_LEVEL_BYTES => {
            return Err(CommandError::Other(format!("ERR a service level has at most {MAX_SERVICE_LEVEL_BYTES} bytes").into()));
        }
        _ => Some(NewServiceLevel::Text(words)),
    };
    Ok(Command::Rheo(RheoCommand::ServiceLevel(new)))
}

/// A time of the dial: a number of milliseconds, or a number with its unit; `NONE` is no bound.
fn bound<'a>(entry: &'static Entry, arguments: Arguments<'a>, parse: fn(&str) -> Result<u32, String>) -> Result<Option<Option<u32>>, CommandError> {
    if arguments.len() > 3 {
        return Err(CommandError::WrongArity(entry.name));
    }
    let Some(word) = arguments.get(2) else { return Ok(None) };
    if word.eq_ignore_ascii_case(b"none") {
        return Ok(Some(None));
    }
    let text = printable(word, REPEATED);
    let with_unit = if word.iter().all(u8::is_ascii_digit) { format!("{text}ms") } else { text };
    parse(&with_unit).map(|ms| Some(Some(ms))).map_err(|why| CommandError::Other(format!("ERR {why}").into()))
}

pub(crate) fn rheo_fresh<'a>(entry: &'static Entry, arguments: Arguments<'a>) -> Parsed<'a> {
    Ok(Command::Rheo(RheoCommand::Fresh(bound(entry, arguments, sla::parse_bound)?)))
}

pub(crate) fn rheo_within<'a>(entry: &'static Entry, arguments: Arguments<'a>) -> Parsed<'a> {
    Ok(Command::Rheo(RheoCommand::Within(bound(entry, arguments, sla::parse_within)?)))
}

pub(crate) fn rheo_at<'a>(entry: &'static Entry, arguments: Arguments<'a>) -> Parsed<'a> {
    if arguments.len() > 3 {
        return Err(CommandError::WrongArity(entry.name));
    }
    let asked = match arguments.get(2) {
        None => None,
        Some(word) if word.eq_ignore_ascii_case(b"now") || word.eq_ignore_ascii_case(b"none") => Some(None),
        Some(word) => Some(Some(Moment::parse(&printable(word, REPEATED)).map_err(|why| CommandError::Other(format!("ERR {why}").into()))?)),
    };
    Ok(Command::Rheo(RheoCommand::At(asked)))
}

pub(crate) fn rheo_strategy<'a>(entry: &'static Entry, arguments: Arguments<'a>) -> Parsed<'a> {
    if arguments.len() > 3 {
        return Err(CommandError::WrongArity(entry.name));
    }
    let named = |name: &[u8]| {
        std::str::from_utf8(name).ok().and_then(Strategy::from_name).ok_or_else(|| {
            let names = Strategy::ALL.map(Strategy::name).join(", ");
            CommandError::Other(format!("ERR there is no strategy '{}', the strategies are {names}", printable(name, REPEATED)).into())
        })
    };
    Ok(Command::Rheo(RheoCommand::Strategy(arguments.get(2).map(named).transpose()?)))
}

pub(crate) fn rheo_quorum<'a>(entry: &'static Entry, arguments: Arguments<'a>) -> Parsed<'a> {
    let number = |place: usize| {
        let number = parse_u64(arguments.at(place)).and_then(|number| u8::try_from(number).ok());
        number.ok_or_else(|| {
            let given = printable(arguments.at(place), REPEATED);
            CommandError::Other(
                format!(
                    "ERR '{given}' is no number of replicas: how many are asked, must answer a read, must have a write; 0 is what the keyspace says"
                )
                .into(),
            )
        })
    };
    let quorum = match arguments.len() {
        2 => None,
        3 if arguments.at(2).eq_ignore_ascii_case(b"default") => Some(Quorum::KEYSPACE),
        5 => Some(Quorum { asked: number(2)?, reads: number(3)?, writes: number(4)? }),
        _ => return Err(CommandError::WrongArity(entry.name)),
    };
    Ok(Command::Rheo(RheoCommand::Quorum(quorum)))
}

pub(crate) fn rheo_conflicts<'a>(_: &'static Entry, arguments: Arguments<'a>) -> Parsed<'a> {
    Ok(Command::Rheo(RheoCommand::Conflicts(arguments.at(2))))
}

pub(crate) fn rheo_feed<'a>(_: &'static Entry, arguments: Arguments<'a>) -> Parsed<'a> {
    let wrong = |why: String| CommandError::Other(format!("ERR {why}").into());
    let mut asked = Feed { from: feed::From::Now, pattern: None, count: DEFAULT_COUNT, block_ms: 0 };
    let mut options = arguments.from(2).iter();
    while let Some(option) = options.next() {
        let value = options.next().ok_or(CommandError::Syntax)?;
        if option.eq_ignore_ascii_case(b"from") {
            asked.from = match value {
                _ if value.eq_ignore_ascii_case(b"now") => feed::From::Now,
                _ if value.eq_ignore_ascii_case(b"oldest") => feed::From::Oldest,
                _ => feed::From::After(feed::Position::parse(value).map_err(|_| {
                    let given = printable(value, REPEATED);
                    wrong(format!("'{given}' is no position of a feed: RHEO FEED returns them; or NOW, or OLDEST"))
                })?),
            };
        } else if option.eq_ignore_ascii_case(b"match") {
            asked.pattern = Some(pattern(value)?);
        } else if option.eq_ignore_ascii_case(b"count") {
            let count = parse_u64(value).filter(|count| (1..=feed::MOST_CHANGES as u64).contains(count));
            asked.count = count.ok_or_else(|| wrong(format!("COUNT is from 1 to {}", feed::MOST_CHANGES)))? as u32;
        } else if option.eq_ignore_ascii_case(b"block") {
            let block_ms = parse_u64(value).filter(|block_ms| *block_ms <= LONGEST_BLOCK_MS);
            asked.block_ms = block_ms.ok_or_else(|| wrong(format!("BLOCK is a number of milliseconds from 0 to {LONGEST_BLOCK_MS}")))?;
        } else {
            return Err(CommandError::Syntax);
        }
    }
    Ok(Command::Rheo(RheoCommand::Feed(asked)))
}

pub(crate) fn rheo_siblings<'a>(_: &'static Entry, arguments: Arguments<'a>) -> Parsed<'a> {
    Ok(Command::Rheo(RheoCommand::Siblings(arguments.at(2))))
}

pub(crate) fn rheo_put<'a>(_: &'static Entry, arguments: Arguments<'a>) -> Parsed<'a> {
    let context = match (arguments.get(4), arguments.get(5), arguments.len()) {
        (None, ..) => None,
        (Some(word), Some(context), 6) if word.eq_ignore_ascii_case(b"context") => Some(context),
        _ => return Err(CommandError::Syntax),
    };
    Ok(Command::Rheo(RheoCommand::Put(Put { key: arguments.at(2), value: arguments.at(3), context })))
}

pub(crate) fn rheo_test<'a>(_: &'static Entry, arguments: Arguments<'a>) -> Parsed<'a> {
    let is = |place: usize, word: &[u8]| arguments.get(place).is_some_and(|given| given.eq_ignore_ascii_case(word));
    let (expected, then) = match (is(4, b"absent"), is(4, b"eq")) {
        (true, _) => (None, 5),
        (_, true) => (arguments.get(5), 6),
        _ => return Err(CommandError::Syntax),
    };
    let otherwise = match arguments.len().saturating_sub(then) {
        2 => None,
        4 if is(then + 2, b"else") => arguments.get(then + 3),
        _ => return Err(CommandError::Syntax),
    };
    if !is(then, b"then") {
        return Err(CommandError::Syntax);
    }
    let test = Test { key: arguments.at(2), target: arguments.at(3), expected, then: arguments.at(then + 1), otherwise };
    Ok(Command::Rheo(RheoCommand::Test(test)))
}

pub(crate) fn rheo_view<'a>(entry: &'static Entry, arguments: Arguments<'a>) -> Parsed<'a> {
    if arguments.len() > 3 {
        return Err(CommandError::WrongArity(entry.name));
    }
    let named = |name: &[u8]| {
        let known = [View::Node, View::DataCenter].into_iter().find(|view| view.name().as_bytes().eq_ignore_ascii_case(name));
        known.ok_or_else(|| {
            CommandError::Other(format!("ERR there is no view '{}', the views are node, data-center", printable(name, REPEATED)).into())
        })
    };
    Ok(Command::Rheo(RheoCommand::View(arguments.get(2).map(named).transpose()?)))
}

pub(crate) fn rheo_groups<'a>(_: &'static Entry, arguments: Arguments<'a>) -> Parsed<'a> {
    let groups = match (arguments.get(2), arguments.len()) {
        (None, _) => None,
        (Some(word), 3) if word.eq_ignore_ascii_case(b"auto") => Some(Groups::default()),
        _ => {
            let mut set = 0;
            for number in arguments.from(2).iter() {
                set |= 1
                    << parse_u64(number).filter(|number| *number < 64).ok_or_else(|| {
                        let message =
                            format!("ERR '{}' is no checking group: they have numbers from 0 to 63, or are AUTO", printable(number, REPEATED));
                        CommandError::Other(message.into())
                    })?;
            }
            Some(Groups(set))
        }
    };
    Ok(Command::Rheo(RheoCommand::Groups(groups)))
}

pub(crate) fn rheo_explain<'a>(_: &'static Entry, arguments: Arguments<'a>) -> Parsed<'a> {
    Ok(Command::Rheo(RheoCommand::Explain(arguments.at(2))))
}

pub(crate) fn rheo_status<'a>(_: &'static Entry, _: Arguments<'a>) -> Parsed<'a> {
    Ok(Command::Rheo(RheoCommand::Status))
}

pub(crate) fn rheo_monitor<'a>(entry: &'static Entry, arguments: Arguments<'a>) -> Parsed<'a> {
    let is = |word: &str| arguments.at(2).eq_ignore_ascii_case(word.as_bytes());
    let command = match arguments.len() {
        3 | 4 if is("listen") => MonitorCommand::Listen(arguments.get(3)),
        3 if is("stop") => MonitorCommand::Stop,
        3 | 4 => return Err(CommandError::Syntax),
        _ => return Err(CommandError::WrongArity(entry.name)),
    };
    Ok(Command::Rheo(RheoCommand::Monitor(command)))
}

pub(crate) fn rheo_receipt<'a>(entry: &'static Entry, arguments: Arguments<'a>) -> Parsed<'a> {
    let is = |word: &str| arguments.at(2).eq_ignore_ascii_case(word.as_bytes());
    let command = match arguments.len() {
        2 => ReceiptCommand::Last,
        3 if is("on") => ReceiptCommand::Set(true),
        3 if is("off") => ReceiptCommand::Set(false),
        3 if is("key") => ReceiptCommand::Key,
        3 => return Err(CommandError::Syntax),
        _ => return Err(CommandError::WrongArity(entry.name)),
    };
    Ok(Command::Rheo(RheoCommand::Receipt(command)))
}

pub(crate) fn rheo_quality<'a>(_: &'static Entry, _: Arguments<'a>) -> Parsed<'a> {
    Ok(Command::Rheo(RheoCommand::Quality))
}
