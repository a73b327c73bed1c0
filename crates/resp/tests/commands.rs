//! Every command: what its requests mean, and the errors that answer what is wrong with them.

use rheostat_core::answer::{Quality, Read};
use rheostat_core::counter::{Direction, Scope, UpdateName};
use rheostat_core::dial::{Groups, Level};
use rheostat_core::operation::{Change, Expiry, ExpiryCondition, SetCondition};
use rheostat_core::outcome::Outcome;
use rheostat_core::version::VersionId;
use rheostat_resp::command::*;
use rheostat_resp::table::{COMMANDS, Reason, UNSERVED};
use rheostat_resp::{Arguments, Command, CommandError, Limits, Parser, Render, ReplyWriter, RespVersion, encode_request};
use std::sync::Arc;

/// When requests are made, in milliseconds since the Unix epoch.
const NOW: u64 = 5;

/// Calls `check` with what the request of these arguments means.
fn with<T>(arguments: &[&[u8]], check: impl FnOnce(Result<Command<'_>, CommandError>, Arguments<'_>) -> T) -> T {
    let mut stream = Vec::new();
    encode_request(arguments, &mut stream);
    let mut parser = Parser::new(Limits::default());
    let arguments = parser.next(&stream).expect("valid").expect("whole");
    check(Command::parse(arguments, NOW), arguments)
}

fn split(request: &str) -> Vec<&[u8]> {
    request.split(' ').map(|word| if word == "''" { b"".as_slice() } else { word.as_bytes() }).collect()
}

/// The request means this command.
#[track_caller]
fn is(request: &str, expected: Command<'_>) {
    with(&split(request), |command, _| assert_eq!(command.as_ref(), Ok(&expected), "{request}"));
    let upper = request.split_once(' ').map_or(request.to_uppercase(), |(name, rest)| format!("{} {rest}", name.to_uppercase()));
    with(&split(&upper), |command, _| assert_eq!(command.as_ref(), Ok(&expected), "{upper}"));
}

/// The request means the command of this kind that holds its arguments from `first` on.
macro_rules! holds {
    ($request:expr, $first:expr, $kind:path) => {
        with(&split($request), |command, arguments| assert_eq!(command, Ok($kind(arguments.from($first))), "{}", $request))
    };
}

/// The request does this to key `k`.
#[track_caller]
fn does(request: &str, act: Act) {
    is(request, Command::One(One { key: b"k", act, render: Render::Ok }));
}

/// The request's reply, when this is what its operation comes to.
#[track_caller]
fn tells(request: &str, outcome: &Outcome, reply: &str) {
    with(&split(request), |command, _| {
        let Ok(Command::One(one)) = command else { panic!("{request}: {command:?}") };
        let mut out = Vec::new();
        assert_eq!(one.render.write(outcome, NOW, &mut ReplyWriter::new(&mut out, RespVersion::Two)), !reply.starts_with('-'), "{request}");
        assert_eq!(String::from_utf8_lossy(&out), reply, "{request}");
    });
}

/// The request is answered with this error.
#[track_caller]
fn fails(request: &str, error: &str) {
    let text = with(&split(request), |command, _| command.map(|command| format!("{command:?}")).map_err(|error| error.to_string()));
    assert_eq!(text, Err(error.to_owned()), "{request}");
}

const SYNTAX: &str = "ERR syntax error";
const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";

#[test]
fn every_command_checks_its_number_of_arguments() {
    for entry in COMMANDS.iter().flat_map(|entry| std::iter::once(entry).chain(entry.subcommands)) {
        let name: Vec<&[u8]> = entry.name.split('|').map(str::as_bytes).collect();
        let arity = usize::from(entry.arity.unsigned_abs());
        let wrong = CommandError::WrongArity(entry.name);
        let of_length = |length: usize| {
            let mut arguments = name.clone();
            // A first argument would be taken for a subcommand.
            arguments.resize(length.max(name.len()), b"1");
            arguments
        };
        if arity > name.len() && entry.subcommands.is_empty() {
            with(&of_length(arity - 1), |command, _| assert_eq!(command, Err(wrong.clone()), "{}", entry.name));
        }
        if entry.arity > 0 {
            with(&of_length(arity + 1), |command, _| assert_eq!(command, Err(wrong.clone()), "{}", entry.name));
        }
        if entry.subcommands.is_empty() {
            with(&of_length(arity), |command, _| assert_ne!(command.err(), Some(wrong), "{}", entry.name));
        }
    }
    fails("get", "ERR wrong number of arguments for 'get' command");
    fails("client", "ERR wrong number of arguments for 'client' command");
    fails("client id x", "ERR wrong number of arguments for 'client|id' command");
    fails("mset a 1 b", "ERR wrong number of arguments for 'mset' command");
    fails("ping a b", "ERR wrong number of arguments for 'ping' command");
    fails("rheo level causal x", "ERR wrong number of arguments for 'rheo|level' command");
    fails("rheo session resume t x", "ERR wrong number of arguments for 'rheo|session' command");
}

#[test]
fn unknown_commands() {
    fails("foo", "ERR unknown command 'foo', with args beginning with: ");
    fails("FOO a b", "ERR unknown command 'FOO', with args beginning with: 'a' 'b' ");
    fails("''", "ERR unknown command '', with args beginning with: ");
    fails("client foo", "ERR unknown subcommand 'foo'. Try CLIENT HELP.");
    fails("rheo foo", "ERR unknown subcommand 'foo'. Try RHEO HELP.");
    with(&[b"f\r\noo", b"a\nb\xff"], |command, _| {
        let error = command.expect_err("unknown").to_string();
        assert_eq!(error, "ERR unknown command 'f  oo', with args beginning with: 'a b\u{FFFD}' ");
    });
    let long = "x".repeat(1000);
    with(&[long.as_bytes(), long.as_bytes(), long.as_bytes()], |command, _| {
        let error = command.expect_err("unknown").to_string();
        assert_eq!(error, format!("ERR unknown command '{0}', with args beginning with: '{0}' ", "x".repeat(128)));
    });
    for request in ["POST / HTTP/1.1", "host: localhost"] {
        with(&split(request), |command, _| assert!(command.expect_err("refused").closes()));
    }
    fails("foo post", "ERR unknown command 'foo', with args beginning with: 'post' ");
}

#[test]
fn what_is_not_served_says_why() {
    for unserved in UNSERVED {
        for name in unserved.names {
            let arguments: Vec<&[u8]> = name.split('|').map(str::as_bytes).chain([b"k".as_slice(), b"v"]).collect();
            with(&arguments, |command, _| {
                let error = command.expect_err("not served");
                assert_eq!(error, CommandError::Unserved { name, reason: unserved.reason });
                let name = name.to_uppercase().replace('|', " ");
                assert_eq!(error.to_string(), format!("ERR {name} is not served: {}", unserved.reason));
            });
        }
    }
    let refused = |request: &str| with(&split(request), |command, _| command.expect_err("not served"));
    for (request, reason) in [
        ("msetnx k v", Reason::SeveralConditions),
        ("append k v", Reason::ReadModifyWrite),
        ("eval x 0", Reason::Scripts),
        ("rename a b", Reason::SeveralKeys),
        ("flushall", Reason::WholeKeyspace),
        ("lpush k v", Reason::DataType("lists")),
        ("subscribe c", Reason::Messages),
    ] {
        assert!(matches!(refused(request), CommandError::Unserved { reason: found, .. } if found == reason), "{request}");
    }
    fails("KEYS *", "ERR KEYS is not served: use SCAN, which does not hold up other requests");
    fails("hset k f v", "ERR HSET is not served: values are byte strings, there are no hashes");
}

#[test]
fn get_and_set() {
    does("get k", Act::Read);
    is("get ''", Command::One(One { key: b"", act: Act::Read, render: Render::Get }));
    does("getdel k", Act::Change(Change::Delete));
    does("strlen k", Act::Read);
    does("memory usage k samples 5", Act::Read);
    holds!("mget a b a", 1, Command::MultiGet);
    with(&split("mset a 1 b 2"), |command, _| {
        let Ok(Command::MultiSet(pairs)) = command else { panic!("{command:?}") };
        let expected: [(&[u8], &[u8]); 2] = [(b"a", b"1"), (b"b", b"2")];
        assert_eq!(pairs.iter().collect::<Vec<_>>(), expected);
    });

    // A plain write needs no read before it.
    let put = |expires_ms| Act::Put(Some(Arc::from(*b"v")), expires_ms);
    let set = |expiry| Act::Change(Change::Set { value: Arc::from(*b"v"), expiry, condition: SetCondition::Always });
    does("set k v", put(0));
    does("set k v get", set(Expiry::Never));
    does("set k v get GET", set(Expiry::Never));
    does("set k v KeepTTL", set(Expiry::Keep));
    does("set k v keepttl keepttl", set(Expiry::Keep));
    does("set k v ex 10", put(NOW + 10_000));
    does("set k v PX 10 get", set(Expiry::At(NOW + 10)));
    does("set k v get exat 10", set(Expiry::At(10_000)));
    does("set k v pxat 10", put(10));
    does("setex k 7 v", put(NOW + 7000));
    does("psetex k 7 v", put(NOW + 7));
    does("getset k v", set(Expiry::Never));
    // What has expired already is a deletion.
    does("set k v pxat 5", Act::Put(None, 0));
    does("set k v pxat 6", put(6));
    for request in [
        "set k v ex",
        "set k v foo",
        "set k v ex 10 px 10",
        "set k v ex 10 keepttl",
        "set k v keepttl ex 10",
        "set k v nx xx",
        "set k v xx nx",
        "set k v ex 10 ex 10",
        "set k v ex x foo",
        "set k v ''",
        "set k v persist",
    ] {
        fails(request, SYNTAX);
    }
    fails("set k v ex x", NOT_AN_INTEGER);
    fails("set k v ex 1.5", NOT_AN_INTEGER);
    fails("set k v px 9223372036854775808", NOT_AN_INTEGER);
    for time in ["ex 0", "ex -1", "px 0", "exat 0", "pxat -5", "ex 9223372036854775807", "px 9223372036854775807", "ex 9223372036854775"] {
        fails(&format!("set k v {time}"), "ERR invalid expire time in 'set' command");
    }
    fails("setex k 0 v", "ERR invalid expire time in 'setex' command");
    fails("psetex k -1 v", "ERR invalid expire time in 'psetex' command");
    fails("setex k x v", NOT_AN_INTEGER);
}

#[test]
fn conditional_writes() {
    let set = |condition, expiry| Act::Change(Change::Set { value: Arc::from(*b"v"), expiry, condition });
    let life = Expiry::At(NOW + 5);
    does("set k v nx", set(SetCondition::IfAbsent, Expiry::Never));
    does("set k v NX nx", set(SetCondition::IfAbsent, Expiry::Never));
    does("set k v XX", set(SetCondition::IfPresent, Expiry::Never));
    does("set k v nx get px 5", set(SetCondition::IfAbsent, life));
    does("set k v px 5 get xx", set(SetCondition::IfPresent, life));
    does("set k v xx keepttl", set(SetCondition::IfPresent, Expiry::Keep));
    does("setnx k v", set(SetCondition::IfAbsent, Expiry::Never));
    does("rheo cas k old v", set(SetCondition::IfValue(Arc::from(*b"old")), Expiry::Never));
    does("rheo cas k '' v px 5", set(SetCondition::IfValue(Arc::from(*b"")), life));
    does("rheo cas k old v KEEPTTL", set(SetCondition::IfValue(Arc::from(*b"old")), Expiry::Keep));
    for request in ["rheo cas k old v nx", "rheo cas k old v xx", "rheo cas k old v get", "rheo cas k old v ex", "rheo cas k old v foo 1"] {
        fails(request, SYNTAX);
    }
    fails("rheo cas k old v px 0", "ERR invalid expire time in 'rheo|cas' command");
    for (request, name) in [("rheo cas k old", "rheo|cas"), ("setnx k", "setnx"), ("setnx k v nx", "setnx")] {
        fails(request, &format!("ERR wrong number of arguments for '{name}' command"));
    }
}

#[test]
fn a_test_names_two_keys_and_what_is_written() {
    let test = |expected, otherwise| Command::Test(Test { key: b"k", target: b"t", expected, then: b"v", otherwise });
    is("rheo test k t eq old then v", test(Some(b"old"), None));
    is("RHEO TEST k t EQ '' THEN v ELSE ''", test(Some(b""), Some(b"")));
    is("rheo test k t absent then v else w", test(None, Some(b"w")));
    is("rheo test k t eq absent then v", test(Some(b"absent"), None));
    is("rheo test k t eq then then v", test(Some(b"then"), None));
    for request in [
        "rheo test k t eq then v else",
        "rheo test k t eq old v w",
        "rheo test k t old then v",
        "rheo test k t absent old then v",
        "rheo test k t eq old then v else",
        "rheo test k t eq old then v else w x",
        "rheo test k t eq old then v or w",
    ] {
        fails(request, SYNTAX);
    }
    fails("rheo test k t eq old", "ERR wrong number of arguments for 'rheo|test' command");
}

#[test]
fn getex() {
    let getex = |expiry| Act::Change(Change::Expire { expiry, condition: ExpiryCondition::Always });
    does("getex k", Act::Read);
    does("getex k persist", getex(Expiry::Never));
    does("getex k ex 5", getex(Expiry::At(NOW + 5000)));
    does("getex k PXAT 5", getex(Expiry::At(5)));
    for request in ["getex k ex", "getex k foo", "getex k foo 5", "getex k ex 1 persist", "getex k persist 1", "getex k keepttl", "getex k ex 1 ex 1"]
    {
        fails(request, SYNTAX);
    }
    fails("getex k ex 0", "ERR invalid expire time in 'getex' command");
    fails("getex k ex ten", NOT_AN_INTEGER);
}

#[test]
fn keys() {
    for name in ["del", "unlink"] {
        holds!(&format!("{name} a b a"), 1, Command::Delete);
    }
    for name in ["exists", "touch"] {
        holds!(&format!("{name} a b a"), 1, Command::Exists);
    }
    does("persist k", Act::Change(Change::Expire { expiry: Expiry::Never, condition: ExpiryCondition::Always }));
    for name in ["type", "ttl", "pttl", "expiretime", "pexpiretime"] {
        does(&format!("{name} k"), Act::Read);
    }
}

#[test]
fn what_comes_of_an_operation_is_told_as_redis_tells_it() {
    let quality = Quality { level: Level::Causal, staleness_ms: None };
    let there = Read { value: Some(Arc::from(*b"value")), version: None, expires_ms: NOW + 1400 };
    let read = |read: &Read| Outcome::Read(read.clone(), quality);
    let changed = |before: &Read, version| Outcome::Changed { before: before.clone(), version };
    let (absent, written) = (Read::default(), Some(VersionId::default()));
    for (request, with, without) in [
        ("get k", "$5\r\nvalue\r\n", "$-1\r\n"),
        ("getex k", "$5\r\nvalue\r\n", "$-1\r\n"),
        ("strlen k", ":5\r\n", ":0\r\n"),
        ("memory usage k", ":134\r\n", "$-1\r\n"),
        ("type k", "+string\r\n", "+none\r\n"),
        ("ttl k", ":1\r\n", ":-2\r\n"),
        ("pttl k", ":1400\r\n", ":-2\r\n"),
        ("expiretime k", ":1\r\n", ":-2\r\n"),
        ("pexpiretime k", ":1405\r\n", ":-2\r\n"),
    ] {
        tells(request, &read(&there), with);
        tells(request, &read(&absent), without);
    }
    for (request, made, not_made) in [
        ("getdel k", "$5\r\nvalue\r\n", "$-1\r\n"),
        ("getset k v", "$5\r\nvalue\r\n", "$-1\r\n"),
        ("set k v nx get", "$5\r\nvalue\r\n", "$-1\r\n"),
        ("getex k ex 1", "$5\r\nvalue\r\n", "$-1\r\n"),
        ("set k v xx", "+OK\r\n", "$-1\r\n"),
        ("set k v keepttl", "+OK\r\n", "$-1\r\n"),
        ("setnx k v", ":1\r\n", ":0\r\n"),
        ("rheo cas k a b", ":1\r\n", ":0\r\n"),
        ("expire k 1", ":1\r\n", ":0\r\n"),
        ("persist k", ":1\r\n", ":0\r\n"),
    ] {
        tells(request, &changed(&there, written), made);
        tells(request, &changed(&absent, None), not_made);
    }
    for request in ["set k v", "setex k 1 v", "psetex k 1 v"] {
        tells(request, &Outcome::Written(VersionId::default()), "+OK\r\n");
    }
    for request in ["incr k", "decr k", "incrby k 2", "decrby k 2"] {
        tells(request, &Outcome::Counted([7].into(), VersionId::default()), ":7\r\n");
    }
    let strange = "-ERR the partition server answered something else than was asked\r\n";
    for request in ["get k", "ttl k", "incr k", "getdel k"] {
        tells(request, &Outcome::Written(VersionId::default()), strange);
    }
    tells("set k v", &read(&there), strange);
}

#[test]
fn expire() {
    let expire = |at, condition| Act::Change(Change::Expire { expiry: Expiry::At(at), condition });
    does("expire k 10", expire(NOW + 10_000, ExpiryCondition::Always));
    does("pexpire k 10", expire(NOW + 10, ExpiryCondition::Always));
    does("expireat k 10", expire(10_000, ExpiryCondition::Always));
    does("pexpireat k 10", expire(10, ExpiryCondition::Always));
    // What has passed already deletes.
    does("pexpire k -1", expire(NOW - 1, ExpiryCondition::Always));
    does("expire k 0", expire(NOW, ExpiryCondition::Always));
    for (options, condition) in [
        ("nx", ExpiryCondition::IfNone),
        ("NX nx", ExpiryCondition::IfNone),
        ("xx", ExpiryCondition::IfSome),
        ("gt", ExpiryCondition::IfLater),
        ("xx gt", ExpiryCondition::IfLater),
        ("lt", ExpiryCondition::IfEarlier),
    ] {
        does(&format!("pexpire k 10 {options}"), expire(NOW + 10, condition));
    }
    for options in ["nx xx", "nx gt", "lt nx", "nx gt lt"] {
        fails(&format!("expire k 10 {options}"), "ERR NX and XX, GT or LT options at the same time are not compatible");
    }
    for options in ["gt lt", "xx lt gt"] {
        fails(&format!("expire k 10 {options}"), "ERR GT and LT options at the same time are not compatible");
    }
    fails("expire k 10 lt xx", "ERR XX together with LT is not served: use one of them");
    fails("expire k 10 foo", "ERR Unsupported option foo");
    fails("expire k x", NOT_AN_INTEGER);
    fails("expire k 9223372036854775807", "ERR invalid expire time in 'expire' command");
    // A point in time is what it is; only lives are added to the time.
    does("pexpireat k 9223372036854775807", expire(i64::MAX as u64, ExpiryCondition::Always));
    does("pexpireat k -9223372036854775808", expire(1, ExpiryCondition::Always));
    fails("expireat k -9223372036854775808", "ERR invalid expire time in 'expireat' command");
    fails("pexpire k 4611686018427387904", "ERR invalid expire time in 'pexpire' command");
    does("pexpire k 4611686018427387903", expire(NOW + MAX_EXPIRY_MS as u64, ExpiryCondition::Always));
}

#[test]
fn scan() {
    let plain = Scan { cursor: 0, pattern: None, count: 10, strings: true };
    is("scan 0", Command::Scan(plain));
    is("scan 18446744073709551615", Command::Scan(Scan { cursor: u64::MAX, ..plain }));
    is("scan 7 match a* count 5 type STRING", Command::Scan(Scan { cursor: 7, pattern: Some(b"a*"), count: 5, strings: true }));
    is("scan 0 type hash", Command::Scan(Scan { strings: false, ..plain }));
    is("scan 0 count 1 count 2", Command::Scan(Scan { count: 2, ..plain }));
    for cursor in ["x", "-1", "''", "18446744073709551616", "0x"] {
        fails(&format!("scan {cursor}"), "ERR invalid cursor");
    }
    for options in ["match", "foo", "foo bar", "count 0", "count -1", "count 5 match"] {
        fails(&format!("scan 0 {options}"), SYNTAX);
    }
    fails("scan 0 count x", NOT_AN_INTEGER);
    fails(&format!("scan 0 match {}", "*".repeat(1025)), "ERR a pattern may have at most 1024 bytes");

    let wanted = Scan { pattern: Some(b"user:[0-9]*"), ..plain };
    assert!(wanted.wants(b"user:1x") && !wanted.wants(b"user:x"));
    assert!(plain.wants(b"") && !Scan { strings: false, ..plain }.wants(b""));
}

#[test]
fn connection() {
    is("ping", Command::Ping(None));
    is("ping x", Command::Ping(Some(b"x")));
    is("echo x", Command::Echo(b"x"));
    is("quit", Command::Quit);
    is("quit now", Command::Quit);
    is("reset", Command::Reset);
    is("readonly", Command::ReadOnly);
    is("readwrite", Command::ReadWrite);
    is("auth p", Command::Auth(Credentials { user: None, password: Secret(b"p") }));
    is("auth u p", Command::Auth(Credentials { user: Some(b"u"), password: Secret(b"p") }));
    fails("auth u p x", SYNTAX);
    with(&split("auth hunter2"), |command, _| assert!(!format!("{command:?}").contains("hunter2")));

    is("select 0", Command::Select(KeyspaceChoice::Number(0)));
    is("select 65535", Command::Select(KeyspaceChoice::Number(65535)));
    is("select eventual", Command::Select(KeyspaceChoice::Name("eventual")));
    is("select 1a", Command::Select(KeyspaceChoice::Name("1a")));
    for number in ["-1", "65536", "9223372036854775807"] {
        fails(&format!("select {number}"), "ERR DB index is out of range");
    }
    fails("select ''", "ERR a keyspace is selected by its number or its name");
    with(&[b"select", b"\xff"], |command, _| assert!(command.is_err()));
}

#[test]
fn hello() {
    let plain = Hello { version: None, credentials: None, name: None };
    let three = Hello { version: Some(RespVersion::Three), ..plain };
    is("hello", Command::Hello(plain));
    is("hello 2", Command::Hello(Hello { version: Some(RespVersion::Two), ..plain }));
    is("hello 3", Command::Hello(three));
    let credentials = Some(Credentials { user: Some(b"u"), password: Secret(b"p") });
    is("hello 3 auth u p", Command::Hello(Hello { credentials, ..three }));
    is("hello 3 SETNAME me AUTH u p", Command::Hello(Hello { credentials, name: Some(b"me"), ..three }));
    is("hello 3 setname ''", Command::Hello(Hello { name: Some(b""), ..three }));
    fails("hello 4", "NOPROTO unsupported protocol version");
    fails("hello 1", "NOPROTO unsupported protocol version");
    fails("hello x", "ERR Protocol version is not an integer or out of range");
    fails("hello 3 foo", "ERR Syntax error in HELLO option 'foo'");
    fails("hello 3 auth u", "ERR Syntax error in HELLO option 'auth'");
    fails("hello 3 setname", "ERR Syntax error in HELLO option 'setname'");
    with(&[b"hello", b"3", b"setname", b"a b"], |command, _| {
        let error = command.expect_err("refused").to_string();
        assert_eq!(error, "ERR Client names cannot contain spaces, newlines or special characters.");
    });
}

#[test]
fn client() {
    let client = Command::Client;
    is("client id", client(ClientCommand::Id));
    is("client GETNAME", client(ClientCommand::GetName));
    is("client setname me", client(ClientCommand::SetName(b"me")));
    is("client setname ''", client(ClientCommand::SetName(b"")));
    is("client info", client(ClientCommand::Info));
    is("client no-evict on", client(ClientCommand::NoEvict(true)));
    is("client no-touch OFF", client(ClientCommand::NoTouch(false)));
    is("client setinfo lib-name x", client(ClientCommand::SetLibraryName(b"x")));
    is("client setinfo LIB-VER 1.2", client(ClientCommand::SetLibraryVersion(b"1.2")));
    is("client list", client(ClientCommand::List(ClientSelection::All)));
    is("client list type slave", client(ClientCommand::List(ClientSelection::Kind(ClientKind::Replica))));
    is("client list TYPE normal", client(ClientCommand::List(ClientSelection::Kind(ClientKind::Normal))));
    with(&split("client list id 1 2"), |command, arguments| {
        let selection = ClientSelection::Ids(arguments.from(3));
        assert_eq!(command, Ok(Command::Client(ClientCommand::List(selection))));
    });
    fails("client no-evict maybe", SYNTAX);
    fails("client list foo", SYNTAX);
    fails("client list type", SYNTAX);
    fails("client list id", SYNTAX);
    fails("client list type normal x", SYNTAX);
    fails("client list type foo", "ERR Unknown client type 'foo'");
    for id in ["x", "0", "-1", "1 x"] {
        fails(&format!("client list id {id}"), "ERR Invalid client ID");
    }
    fails("client setinfo foo x", "ERR Unrecognized option 'foo'");
    for name in [b"a b".as_slice(), b"a\n", b"\x7f", "ä".as_bytes()] {
        with(&[b"client", b"setname", name], |command, _| {
            let error = command.expect_err("refused").to_string();
            assert_eq!(error, "ERR Client names cannot contain spaces, newlines or special characters.");
        });
        with(&[b"client", b"setinfo", b"lib-ver", name], |command, _| {
            let error = command.expect_err("refused").to_string();
            assert_eq!(error, "ERR lib-ver cannot contain spaces, newlines or special characters.");
        });
    }
}

#[test]
fn server() {
    is("time", Command::Time);
    is("dbsize", Command::DbSize);
    holds!("info", 1, Command::Info);
    holds!("info server memory", 1, Command::Info);
    holds!("config get save append*", 2, Command::ConfigGet);
    is("wait 1 100", Command::Wait(Wait { data_centers: 1, timeout_ms: Some(100) }));
    is("wait -3 0", Command::Wait(Wait { data_centers: 0, timeout_ms: None }));
    is("wait 1000 1", Command::Wait(Wait { data_centers: 255, timeout_ms: Some(1) }));
    fails("wait x 1", NOT_AN_INTEGER);
    fails("wait 1 x", "ERR timeout is not an integer or out of range");
    fails("wait 1 -1", "ERR timeout is negative");
    fails("config get", "ERR wrong number of arguments for 'config|get' command");
    fails(&format!("config get {}", "*".repeat(1025)), "ERR a pattern may have at most 1024 bytes");
}

#[test]
fn short_requests_have_no_endless_replies() {
    for name in ["command info", "command docs", "config get", "info"] {
        let request = |names: usize| format!("{name}{}", " set".repeat(names));
        with(&split(&request(1024)), |command, _| assert!(command.is_ok(), "{name}"));
        fails(&request(1025), "ERR at most 1024 names or patterns may be given at a time");
    }
}

#[test]
fn cluster() {
    is("cluster slots", Command::Cluster(ClusterCommand::Slots));
    is("cluster SHARDS", Command::Cluster(ClusterCommand::Shards));
    is("cluster nodes", Command::Cluster(ClusterCommand::Nodes));
    is("cluster info", Command::Cluster(ClusterCommand::Info));
    is("cluster myid", Command::Cluster(ClusterCommand::MyId));
    is("cluster keyslot k", Command::KeySlot(b"k"));
    is("cluster countkeysinslot 16383", Command::CountKeysInSlot(16383));
    for slot in ["16384", "-1", "65536"] {
        fails(&format!("cluster countkeysinslot {slot}"), "ERR Invalid slot");
    }
    fails("cluster countkeysinslot x", NOT_AN_INTEGER);
}

#[test]
fn rheo() {
    let rheo = Command::Rheo;
    is("rheo session get", rheo(RheoCommand::Session(SessionCommand::Get)));
    is("rheo SESSION RESET", rheo(RheoCommand::Session(SessionCommand::Reset)));
    is("rheo session resume t", rheo(RheoCommand::Session(SessionCommand::Resume(b"t"))));
    is("rheo session name", rheo(RheoCommand::Session(SessionCommand::Name(None))));
    is("rheo session name n", rheo(RheoCommand::Session(SessionCommand::Name(Some(b"n")))));
    is("rheo view data-center", rheo(RheoCommand::View(Some(View::DataCenter))));
    is("rheo session merge t", rheo(RheoCommand::Session(SessionCommand::Merge(b"t"))));
    is("rheo level", rheo(RheoCommand::Level(None)));
    is("rheo level Eventual", rheo(RheoCommand::Level(Some(Some(Level::Eventual)))));
    is("rheo level causal", rheo(RheoCommand::Level(Some(Some(Level::Causal)))));
    is("rheo groups", rheo(RheoCommand::Groups(None)));
    is("rheo groups Auto", rheo(RheoCommand::Groups(Some(Groups(0)))));
    is("rheo groups 0 63 2", rheo(RheoCommand::Groups(Some(Groups(1 << 63 | 5)))));
    fails("rheo groups 64", "ERR '64' is no checking group: they have numbers from 0 to 63, or are AUTO");
    fails("rheo groups 1 auto", "ERR 'auto' is no checking group: they have numbers from 0 to 63, or are AUTO");
    does("rheo explain k", Act::Explain);
    is("rheo status", rheo(RheoCommand::Status));
    is("rheo quality", rheo(RheoCommand::Quality));
    for request in ["rheo session foo", "rheo session get x", "rheo session resume", "rheo session merge", "rheo session reset x"] {
        fails(request, SYNTAX);
    }
    fails("rheo session", "ERR wrong number of arguments for 'rheo|session' command");
    fails(
        "rheo level linearizable",
        "ERR there is no level 'linearizable', the levels are default, eventual, session, causal, local, strong, or some of monotonic-reads, read-your-writes, monotonic-writes, writes-follow-reads with `+` between them",
    );
}

#[test]
fn increments() {
    does("incr k", Act::Add(1));
    does("decr k", Act::Add(-1));
    does("incrby k 0", Act::Add(0));
    does("incrby k -7", Act::Add(-7));
    does("decrby k 7", Act::Add(-7));
    does("decrby k -9223372036854775807", Act::Add(i64::MAX));
    does("incrby k -9223372036854775808", Act::Add(i64::MIN));
    fails("decrby k -9223372036854775808", "ERR decrement would overflow");
    for request in ["incrby k x", "incrby k 1.5", "decrby k 9223372036854775808", "incrby k ''"] {
        fails(request, NOT_AN_INTEGER);
    }
}

/// What `request` asks of counters.
fn counter<T>(request: &str, check: impl FnOnce(CounterCommand<'_>) -> T) -> T {
    with(&split(request), |command, _| match command {
        Ok(Command::Counter(counter)) => check(counter),
        other => panic!("{request}: {other:?}"),
    })
}

#[test]
fn counters_are_made_with_bounds_and_weights() {
    let create = |request: &str| {
        counter(request, |command| match command {
            CounterCommand::Create(create) => (create.lower, create.upper, create.initial, create.placement.iter().collect::<Vec<_>>()),
            other => panic!("{request}: {other:?}"),
        })
    };
    assert_eq!(create("rheo counter create k"), (None, None, 0, vec![]));
    assert_eq!(create("RHEO COUNTER CREATE k MIN 0 VALUE 1000"), (Some(0), None, 1000, vec![]));
    assert_eq!(create("rheo counter create k place 1 0 2 min -5 max 5"), (Some(-5), Some(5), 0, vec![1, 0, 2]));
    assert_eq!(create("rheo Counter create min value 3 Place 4"), (None, None, 3, vec![4]));
    for request in ["create k min", "create k min 0 min 0", "create k 0", "create k min 0 1", "create k value 1 value 1"] {
        fails(&format!("rheo counter {request}"), SYNTAX);
    }
    fails("rheo counter create k max x", NOT_AN_INTEGER);
    for request in ["place", "place 0 0", "place x", "place -1", "place 4294967296"] {
        fails(
            &format!("rheo counter create k {request}"),
            "ERR PLACE needs a weight from 0 to 4294967295 for each data center, and one of them greater than 0",
        );
    }
}

#[test]
fn counters_are_added_to_and_options_follow_the_pairs() {
    let add = |request: &str| {
        counter(request, |command| match command {
            CounterCommand::Add { changes, how } => {
                let changes = changes.iter().map(|(key, by)| (String::from_utf8_lossy(key).into_owned(), by)).collect::<Vec<_>>();
                (changes, how.scope, how.name)
            }
            other => panic!("{request}: {other:?}"),
        })
    };
    let one = |key: &str, by: i64| (key.to_owned(), by);
    let name = Some(UpdateName { client: 7, number: u64::MAX });
    assert_eq!(add("rheo counter add k -1"), (vec![one("k", -1)], None, None));
    assert_eq!(add("rheo counter add a 1 b -2 GLOBAL"), (vec![one("a", 1), one("b", -2)], Some(Scope::Global), None));
    assert_eq!(add("rheo counter add a 1 id 7 18446744073709551615 local"), (vec![one("a", 1)], Some(Scope::Local), name));
    assert_eq!(add("rheo counter add local 1 b 2 ID 7 18446744073709551615"), (vec![one("local", 1), one("b", 2)], None, name));
    for request in ["add k 1 b", "add k 1 local global", "add k 1 id 1", "add k 1 local local", "add k 1 id 1 2 id 1 2", "add k 1 local b 2"] {
        fails(&format!("rheo counter {request}"), SYNTAX);
    }
    for request in ["add k x", "add k 1 b x", "add k 9223372036854775808"] {
        fails(&format!("rheo counter {request}"), NOT_AN_INTEGER);
    }
    fails("rheo counter add k 1 id -1 2", "ERR ID takes two integers from 0 to 18446744073709551615: the client's and the update's");

    let how = HowToAdd { scope: Some(Scope::Global), name };
    let transfer = CounterCommand::Transfer { from: b"a", to: b"b", amount: 5, how };
    counter("rheo counter transfer a b 5 global id 7 18446744073709551615", |command| assert_eq!(command, transfer));
    for amount in ["0", "-1", "x", "9223372036854775808"] {
        fails(&format!("rheo counter transfer a b {amount}"), "ERR the amount must be an integer greater than 0");
    }
}

#[test]
fn rights_of_counters() {
    counter("rheo counter get k", |command| assert_eq!(command, CounterCommand::Look(b"k")));
    let up = CounterCommand::Move { key: b"k", to: b"eu", direction: Direction::Up, amount: 3 };
    counter("rheo counter move k eu 3 Up", |command| assert_eq!(command, up));
    counter("rheo counter reclaim k 2", |command| assert_eq!(command, CounterCommand::Reclaim { key: b"k", gone: b"2" }));
    fails("rheo counter move k eu 0 up", "ERR the amount must be an integer greater than 0");
    fails("rheo counter move k eu 1 left", "ERR there are no rights 'left', there are DOWN (to decrement) and UP (to increment)");
    fails("rheo counter", "ERR unknown subcommand 'counter'. Try RHEO HELP.");
    fails("rheo counter frob k", "ERR unknown subcommand 'counter frob'. Try RHEO HELP.");
    fails("rheo counter get", "ERR wrong number of arguments for 'rheo|counter|get' command");
    is("rheo scope", Command::Rheo(RheoCommand::Scope(None)));
    is("rheo scope Global", Command::Rheo(RheoCommand::Scope(Some(Scope::Global))));
    fails("rheo scope all", "ERR there is no scope 'all', the scopes are local, global");
    fails("rheo scope local x", "ERR wrong number of arguments for 'rheo|scope' command");
}
