//! Commands that only Rheostat has.

use super::counters::*;
use super::keys::pattern;
use super::one::{Act, One};
use super::server::{container, few, help};
use super::strings::compare_and_set;
use super::{Arguments, Command, CommandError, Parsed, REPEATED, Request, printable};
use crate::number::parse_u64;
use crate::render::Render;
use crate::table::words::*;
use rheostat_core::counter::Scope;
use rheostat_core::dial::{Groups, Level, Quorum, Strategy};
use rheostat_core::feed::{self, DEFAULT_COUNT};
use rheostat_core::moment::Moment;
use rheostat_core::operation::TestWrite;
use rheostat_core::sla;

pub(crate) const COMMANDS: &[Entry] = &[
    Entry::own("rheo", -2, SLOW, container).does("Is what only Rheostat has").contains(&[
        Entry::own("rheo|at", -2, FAST, rheo_at)
            .does("Sets, or returns, as of when this connection's reads are: milliseconds since 1970, a version, a date such as 2026-11-22T12:34:58.590Z, or a time ago such as -5s; NOW is the present. All keys are of one cut; level eventual reads what is here of it")
            .takes(&[Argument::new("time", Kind::String).optional()]),
        Entry {
            keys: Some(Keys { first: 2, last: 2, step: 1, access: READS_AND_WRITES }),
            ..Entry::own("rheo|cas", -5, Flags::WRITE, compare_and_set)
        }
        .does("Compares and sets: sets the value of a key that has the expected one; 1 if it did, else 0")
        .takes(&[KEY, Argument::new("expected", Kind::String), VALUE, LIFE]),
        Entry::of_counter("rheo|counter|add", -5, Flags::WRITE, &["RW", "access", "update", "incomplete"], counter_add)
            .does("Adds to counters of one partition, to all or to none, and returns the value, or an array of the values of several; where they lack rights, the answer is NORIGHTS. An update with an ID can be sent again and is made once")
            .costs(PER_KEY)
            .takes(&[
                Argument::block("change", &[KEY, Argument::new("delta", Kind::Integer)]).multiple(),
                SCOPE.optional(),
                UPDATE_ID,
            ]),
        Entry::of_counter("rheo|counter|create", -4, Flags::WRITE, &["OW", "insert"], counter_create)
            .does("Makes a counter that is never below MIN nor above MAX, with an initial value of 0 or VALUE; PLACE gives each data center's weight in the placement of its rights")
            .takes(&[
                KEY,
                Argument::new("min", Kind::Integer).after("MIN").optional(),
                Argument::new("max", Kind::Integer).after("MAX").optional(),
                Argument::new("value", Kind::Integer).after("VALUE").optional(),
                Argument::new("weight", Kind::Integer).after("PLACE").multiple().optional(),
            ]),
        Entry::of_counter("rheo|counter|get", 4, Flags::READONLY, READS, counter_get)
            .does("Returns a counter as it is known here: value, bounds and each data center's rights")
            .costs(PER_DATA_CENTER)
            .takes(&[KEY]),
        Entry::of_counter("rheo|counter|move", 7, Flags::WRITE, READS_AND_WRITES, counter_move)
            .does("Moves rights of this data center to another one, and returns the counter as GET does")
            .costs(PER_DATA_CENTER)
            .takes(&[
                KEY,
                DATA_CENTER,
                Argument::new("amount", Kind::Integer),
                Argument::one_of("direction", &[Argument::token("down", "DOWN"), Argument::token("up", "UP")]),
            ]),
        Entry::of_counter("rheo|counter|reclaim", 5, Flags::WRITE.and(Flags::ADMIN), READS_AND_WRITES, counter_reclaim)
            .does("Takes over the rights of a data center that is gone for ever, which cannot update the counter any more, and returns the counter as GET does")
            .costs(PER_DATA_CENTER)
            .takes(&[KEY, DATA_CENTER]),
        Entry {
            keys: Some(Keys { first: 3, last: 4, step: 1, access: READS_AND_WRITES }),
            ..Entry::own("rheo|counter|transfer", -6, Flags::WRITE, counter_transfer)
        }
        .does("Takes an amount from one counter and adds it to another of the same partition, both or neither, and returns both values")
        .takes(&[
            Argument::new("from", Kind::Key),
            Argument::new("to", Kind::Key),
            Argument::new("amount", Kind::Integer),
            SCOPE.optional(),
            UPDATE_ID,
        ]),
        Entry {
            keys: Some(Keys { first: 2, last: 2, step: 1, access: READS }),
            ..Entry::own("rheo|conflicts", 3, Flags::READONLY, |request| Ok(Command::Conflicts(request.at(2))))
        }
        .does("Returns the versions of a key that one of another data center replaced whose writer had certainly not seen them, each with the one that stands in its place, the newest first, as far back as history is kept")
        .costs("O(N) where N is the number of versions")
        .takes(&[KEY])
        .hints(VARYING),
        Entry {
            keys: Some(Keys { first: 2, last: 2, step: 1, access: READS }),
            ..Entry::own("rheo|explain", 3, Flags::READONLY, |request| Ok(Command::One(One { key: request.at(2), act: Act::Explain, render: Render::Explain })))
        }
        .does("Returns the versions of a key, what each depends on, and why it is visible or not")
        .costs("O(N) where N is the number of versions")
        .takes(&[KEY])
        .hints(VARYING),
        Entry::own("rheo|feed", -2, Flags::READONLY, rheo_feed)
            .does("Returns the next changes of the keyspace, own and other data centers', a cause before its effects: the position to go on from, the kind of order, and the changes. FROM is NOW, OLDEST, or a position that it returned; MATCH is a pattern of keys; BLOCK waits for a change, up to so many milliseconds. A position older than the history is TOOOLD")
            .costs("O(N) where N is the number of changes, and of partitions")
            .takes(&[
                Argument::new("position", Kind::String).after("FROM").optional(),
                Argument::new("pattern", Kind::Pattern).after("MATCH").optional(),
                Argument::new("count", Kind::Integer).after("COUNT").optional(),
                Argument::new("milliseconds", Kind::Integer).after("BLOCK").optional(),
            ])
            .hints(VARYING),
        Entry::own("rheo|fresh", -2, FAST, rheo_fresh)
            .does("Sets, or returns, how stale this connection's reads may be, in milliseconds: until the answer reflects every older write of other data centers, the read waits; NONE is no bound")
            .takes(&[Argument::new("time", Kind::String).optional()]),
        Entry::own("rheo|groups", -2, FAST, rheo_groups)
            .does("Sets, or returns, the checking groups of this connection's reads in keyspaces of protocol adaptive; AUTO lets it choose")
            .takes(&[Argument::one_of("groups", &[Argument::token("auto", "AUTO"), Argument::new("number", Kind::Integer).multiple()]).optional()]),
        Entry::own("rheo|help", 2, SLOW, help).does(HELP),
        Entry::own("rheo|level", -2, FAST, rheo_level)
            .does("Sets, or returns, the level of this connection's operations; DEFAULT is the keyspace's own")
            .takes(&[Argument::new("level", Kind::String).optional()]),
        Entry::own("rheo|monitor", -3, Flags::ADMIN, rheo_monitor)
            .does("Pushes on this connection what monitors say from now on, of the predicate of this name or of all, as RESP3 messages of kind monitor; STOP ends that. It takes HELLO 3")
            .takes(&[Argument::one_of(
                "command",
                &[
                    Argument::block("listen", &[Argument::token("listen", "LISTEN"), Argument::new("name", Kind::String).optional()]),
                    Argument::token("stop", "STOP"),
                ],
            )]),
        Entry {
            keys: Some(Keys { first: 2, last: 2, step: 1, access: &["RW", "insert"] }),
            ..Entry::own("rheo|put", -4, Flags::WRITE, rheo_put)
        }
        .does("Writes a value in the place of those that were seen of the key, and of no others, and returns the new context: what RHEO SIBLINGS or RHEO PUT answered, or what this connection has seen of the key last; of nothing if it has not. In keyspaces of protocol quorum")
        .takes(&[KEY, VALUE, Argument::new("context", Kind::String).after("CONTEXT").optional()]),
        Entry::own("rheo|quality", 2, FAST, |_| Ok(Command::Rheo(RheoCommand::Quality)))
            .does("Returns the level, the staleness bound in milliseconds and the version of the last reply on this connection; under a service level also which of its entries the reply satisfies, and the microseconds that it took")
            .hints(VARYING),
        Entry::own("rheo|quorum", -2, FAST, rheo_quorum)
            .does("Sets, or returns, how many replicas are asked by this connection's operations, how many must answer a read, and how many must have a write, in keyspaces of protocol quorum; 0 and DEFAULT leave it to the keyspace")
            .takes(&[Argument::one_of(
                "numbers",
                &[
                    Argument::token("default", "DEFAULT"),
                    Argument::block(
                        "quorum",
                        &[Argument::new("asked", Kind::Integer), Argument::new("reads", Kind::Integer), Argument::new("writes", Kind::Integer)],
                    ),
                ],
            )
            .optional()]),
        Entry::own("rheo|receipt", -2, FAST, rheo_receipt)
            .does("Returns the receipt of the last operation on this connection: a line that the node has signed, or nothing if receipts are not on, or the operation has none. ON and OFF set whether operations on one key have receipts from now on; KEY returns the node's public key")
            .takes(&[Argument::one_of("command", &[Argument::token("on", "ON"), Argument::token("off", "OFF"), Argument::token("key", "KEY")]).optional()])
            .hints(VARYING),
        Entry::own("rheo|scope", -2, FAST, rheo_scope)
            .does("Sets, or returns, where updates of counters on this connection get the rights that they need: LOCAL, only here; GLOBAL, from other data centers too")
            .takes(&[SCOPE.optional()]),
        Entry::own("rheo|session", -3, FAST, rheo_session)
            .does("Returns the session's token, goes on with another session, adds another to it, begins a new one, or goes on with one that connections of this node share by name")
            .costs("O(N) where N is the number of data centers")
            .takes(&[Argument::one_of(
                "action",
                &[
                    Argument::token("get", "GET"),
                    Argument::new("token", Kind::String).after("RESUME"),
                    Argument::new("token", Kind::String).after("MERGE"),
                    Argument::token("reset", "RESET"),
                    Argument::new("name", Kind::String).after("NAME"),
                ],
            )]),
        Entry {
            keys: Some(Keys { first: 2, last: 2, step: 1, access: READS }),
            ..Entry::own("rheo|siblings", 3, Flags::READONLY, |request| Ok(Command::Siblings(request.at(2))))
        }
        .does("Returns a context, and all values of the key that stand side by side, newest first; RHEO PUT with the context writes in their place. In keyspaces of protocol quorum")
        .costs("O(N) where N is the number of values")
        .takes(&[KEY]),
        Entry::own("rheo|sla", -2, FAST, rheo_sla)
            .does("Sets, or returns, the service level of this connection's reads: its name, or entries from best to least, as in strong 200ms; causal 1s 20ms; eventual. NONE is none, DEFAULT the keyspace's own")
            .takes(&[Argument::new("word", Kind::String).multiple().optional()]),
        Entry::own("rheo|status", 2, SLOW, |_| Ok(Command::Rheo(RheoCommand::Status))).does("Returns nodes, links and lags").hints(VARYING),
        Entry::own("rheo|strategy", -2, FAST, rheo_strategy)
            .does("Sets, or returns, how this connection's MGETs find their snapshot: AUTO, COORDINATED or PREDICTED")
            .takes(&[Argument::new("strategy", Kind::String).optional()]),
        Entry {
            keys: Some(Keys { first: 2, last: 3, step: 1, access: READS_AND_WRITES }),
            ..Entry::own("rheo|test", -7, Flags::WRITE, rheo_test)
        }
        .does("Reads a key and writes another one of the same partition by what it was, with nothing between: the value after THEN if it had the value after EQ, or, with ABSENT, had none; else the one after ELSE, or nothing. 1 if it was so, 0 if not; null if a bound came before that was decided. In keyspaces whose protocol decides such a write in one place")
        .takes(&[
            Argument::new("key", Kind::Key),
            Argument::new("target", Kind::Key),
            Argument::one_of("expected", &[Argument::new("value", Kind::String).after("EQ"), Argument::token("absent", "ABSENT")]),
            Argument::new("then", Kind::String).after("THEN"),
            Argument::new("otherwise", Kind::String).after("ELSE").optional(),
        ]),
        Entry::own("rheo|view", -2, FAST, rheo_view)
            .does("Sets, or returns, what SCAN and DBSIZE on this connection cover: the slots of this NODE, as in Redis Cluster, or the whole DATA-CENTER")
            .takes(&[Argument::new("view", Kind::String).optional()]),
        Entry::own("rheo|within", -2, FAST, rheo_within)
            .does("Sets, or returns, how long this connection's operations may wait at their partition server, in milliseconds, from 0; then it ends with TIMEOUT, but where the keyspace keeps bounds, as staged does: there with what there is; NONE leaves it to the server")
            .takes(&[Argument::new("time", Kind::String).optional()]),
    ]),
];

/// RHEO's subcommands on the connection and the node.
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
    /// Nodes, links and lags.
    Status,
    /// The level, staleness bound and version of the last reply on this connection.
    Quality,
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
pub const MAX_SERVICE_LEVEL_BYTES: usize = 1024;

fn rheo_session(request: Request<'_>) -> Parsed<'_> {
    let action = request.at(2);
    let session = match (action, request.get(3)) {
        (_, None) if action.eq_ignore_ascii_case(b"get") => SessionCommand::Get,
        (_, None) if action.eq_ignore_ascii_case(b"reset") => SessionCommand::Reset,
        (_, name) if action.eq_ignore_ascii_case(b"name") => SessionCommand::Name(name),
        (_, Some(token)) if action.eq_ignore_ascii_case(b"resume") => SessionCommand::Resume(token),
        (_, Some(token)) if action.eq_ignore_ascii_case(b"merge") => SessionCommand::Merge(token),
        _ => return Err(CommandError::Syntax),
    };
    if request.len() > 4 {
        return Err(CommandError::WrongArity(request.entry.name));
    }
    Ok(Command::Rheo(RheoCommand::Session(session)))
}

fn rheo_level(request: Request<'_>) -> Parsed<'_> {
    if request.len() > 3 {
        return Err(CommandError::WrongArity(request.entry.name));
    }
    let level = match request.get(2) {
        None => None,
        Some(name) if name.eq_ignore_ascii_case(b"default") => Some(None),
        Some(name) => Some(Some(std::str::from_utf8(name).ok().and_then(Level::from_name).ok_or_else(|| {
            let message = format!("ERR there is no level '{}', the levels are default, {}", printable(name, REPEATED), Level::names());
            CommandError::Other(message.into())
        })?)),
    };
    Ok(Command::Rheo(RheoCommand::Level(level)))
}

fn rheo_sla(request: Request<'_>) -> Parsed<'_> {
    let words = few(request.from(2))?;
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
fn bound(request: Request<'_>, parse: fn(&str) -> Result<u32, String>) -> Result<Option<Option<u32>>, CommandError> {
    if request.len() > 3 {
        return Err(CommandError::WrongArity(request.entry.name));
    }
    let Some(word) = request.get(2) else { return Ok(None) };
    if word.eq_ignore_ascii_case(b"none") {
        return Ok(Some(None));
    }
    let text = printable(word, REPEATED);
    let with_unit = if word.iter().all(u8::is_ascii_digit) { format!("{text}ms") } else { text };
    parse(&with_unit).map(|ms| Some(Some(ms))).map_err(|why| CommandError::Other(format!("ERR {why}").into()))
}

fn rheo_fresh(request: Request<'_>) -> Parsed<'_> {
    Ok(Command::Rheo(RheoCommand::Fresh(bound(request, sla::parse_bound)?)))
}

fn rheo_within(request: Request<'_>) -> Parsed<'_> {
    Ok(Command::Rheo(RheoCommand::Within(bound(request, sla::parse_within)?)))
}

fn rheo_at(request: Request<'_>) -> Parsed<'_> {
    if request.len() > 3 {
        return Err(CommandError::WrongArity(request.entry.name));
    }
    let asked = match request.get(2) {
        None => None,
        Some(word) if word.eq_ignore_ascii_case(b"now") || word.eq_ignore_ascii_case(b"none") => Some(None),
        Some(word) => Some(Some(Moment::parse(&printable(word, REPEATED)).map_err(|why| CommandError::Other(format!("ERR {why}").into()))?)),
    };
    Ok(Command::Rheo(RheoCommand::At(asked)))
}

fn rheo_strategy(request: Request<'_>) -> Parsed<'_> {
    if request.len() > 3 {
        return Err(CommandError::WrongArity(request.entry.name));
    }
    let named = |name: &[u8]| {
        std::str::from_utf8(name).ok().and_then(Strategy::from_name).ok_or_else(|| {
            let names = Strategy::ALL.map(Strategy::name).join(", ");
            CommandError::Other(format!("ERR there is no strategy '{}', the strategies are {names}", printable(name, REPEATED)).into())
        })
    };
    Ok(Command::Rheo(RheoCommand::Strategy(request.get(2).map(named).transpose()?)))
}

fn rheo_quorum(request: Request<'_>) -> Parsed<'_> {
    let number = |place: usize| {
        let number = parse_u64(request.at(place)).and_then(|number| u8::try_from(number).ok());
        number.ok_or_else(|| {
            let given = printable(request.at(place), REPEATED);
            CommandError::Other(
                format!(
                    "ERR '{given}' is no number of replicas: how many are asked, must answer a read, must have a write; 0 is what the keyspace says"
                )
                .into(),
            )
        })
    };
    let quorum = match request.len() {
        2 => None,
        3 if request.at(2).eq_ignore_ascii_case(b"default") => Some(Quorum::KEYSPACE),
        5 => Some(Quorum { asked: number(2)?, reads: number(3)?, writes: number(4)? }),
        _ => return Err(CommandError::WrongArity(request.entry.name)),
    };
    Ok(Command::Rheo(RheoCommand::Quorum(quorum)))
}

fn rheo_feed(request: Request<'_>) -> Parsed<'_> {
    let wrong = |why: String| CommandError::Other(format!("ERR {why}").into());
    let mut asked = Feed { from: feed::From::Now, pattern: None, count: DEFAULT_COUNT, block_ms: 0 };
    let mut options = request.from(2).iter();
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
    Ok(Command::Feed(asked))
}

fn rheo_put(request: Request<'_>) -> Parsed<'_> {
    let context = match (request.get(4), request.get(5), request.len()) {
        (None, ..) => None,
        (Some(word), Some(context), 6) if word.eq_ignore_ascii_case(b"context") => Some(context),
        _ => return Err(CommandError::Syntax),
    };
    Ok(Command::Put(Put { key: request.at(2), value: request.at(3), context }))
}

fn rheo_test(request: Request<'_>) -> Parsed<'_> {
    let is = |place: usize, word: &[u8]| request.get(place).is_some_and(|given| given.eq_ignore_ascii_case(word));
    let (expected, then) = match (is(4, b"absent"), is(4, b"eq")) {
        (true, _) => (None, 5),
        (_, true) => (request.get(5), 6),
        _ => return Err(CommandError::Syntax),
    };
    let otherwise = match request.len().saturating_sub(then) {
        2 => None,
        4 if is(then + 2, b"else") => request.get(then + 3),
        _ => return Err(CommandError::Syntax),
    };
    if !is(then, b"then") {
        return Err(CommandError::Syntax);
    }
    let test = Test { key: request.at(2), target: request.at(3), expected, then: request.at(then + 1), otherwise };
    Ok(Command::Test(test))
}

fn rheo_view(request: Request<'_>) -> Parsed<'_> {
    if request.len() > 3 {
        return Err(CommandError::WrongArity(request.entry.name));
    }
    let named = |name: &[u8]| {
        let known = [View::Node, View::DataCenter].into_iter().find(|view| view.name().as_bytes().eq_ignore_ascii_case(name));
        known.ok_or_else(|| {
            CommandError::Other(format!("ERR there is no view '{}', the views are node, data-center", printable(name, REPEATED)).into())
        })
    };
    Ok(Command::Rheo(RheoCommand::View(request.get(2).map(named).transpose()?)))
}

fn rheo_groups(request: Request<'_>) -> Parsed<'_> {
    let groups = match (request.get(2), request.len()) {
        (None, _) => None,
        (Some(word), 3) if word.eq_ignore_ascii_case(b"auto") => Some(Groups::default()),
        _ => {
            let mut set = 0;
            for number in request.from(2).iter() {
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

fn rheo_monitor(request: Request<'_>) -> Parsed<'_> {
    let is = |word: &str| request.at(2).eq_ignore_ascii_case(word.as_bytes());
    let command = match request.len() {
        3 | 4 if is("listen") => MonitorCommand::Listen(request.get(3)),
        3 if is("stop") => MonitorCommand::Stop,
        3 | 4 => return Err(CommandError::Syntax),
        _ => return Err(CommandError::WrongArity(request.entry.name)),
    };
    Ok(Command::Rheo(RheoCommand::Monitor(command)))
}

fn rheo_receipt(request: Request<'_>) -> Parsed<'_> {
    let is = |word: &str| request.at(2).eq_ignore_ascii_case(word.as_bytes());
    let command = match request.len() {
        2 => ReceiptCommand::Last,
        3 if is("on") => ReceiptCommand::Set(true),
        3 if is("off") => ReceiptCommand::Set(false),
        3 if is("key") => ReceiptCommand::Key,
        3 => return Err(CommandError::Syntax),
        _ => return Err(CommandError::WrongArity(request.entry.name)),
    };
    Ok(Command::Rheo(RheoCommand::Receipt(command)))
}
