//! What the table of commands answers, and the page that is made from it.

mod support;

use rheostat_resp::{Command, CommandError, Limits, Parser, ReplyWriter, RespVersion, encode_request, table};
use support::{Reply, read_replies};

fn ask(request: &str, version: RespVersion) -> Result<Reply, CommandError> {
    let mut stream = Vec::new();
    encode_request(&request.split(' ').collect::<Vec<_>>(), &mut stream);
    let mut parser = Parser::new(Limits::default());
    let arguments = parser.next(&stream).expect("valid").expect("whole");
    let mut out = Vec::new();
    let mut writer = ReplyWriter::new(&mut out, version);
    match Command::parse(arguments, 1)? {
        Command::Catalogue(catalogue) => catalogue.reply(&mut writer),
        Command::Help(entry) => table::help::reply(entry, &mut writer),
        other => panic!("{other:?} is not answered by the table"),
    }
    let mut replies = read_replies(&out);
    assert_eq!(replies.len(), 1);
    Ok(replies.remove(0))
}

fn both(request: &str) -> [Reply; 2] {
    [RespVersion::Two, RespVersion::Three].map(|version| ask(request, version).expect("an answer"))
}

fn bulk(text: &str) -> Reply {
    Reply::Bulk(text.as_bytes().to_vec())
}

fn bulks(texts: &[&str]) -> Reply {
    Reply::Array(texts.iter().map(|text| bulk(text)).collect())
}

fn elements(reply: &Reply) -> &[Reply] {
    match reply {
        Reply::Array(elements) | Reply::Set(elements) => elements,
        other => panic!("{other:?} has no elements"),
    }
}

/// The value of a field, of a map or of the array that stands for one in RESP2.
fn field<'a>(reply: &'a Reply, name: &str) -> Option<&'a Reply> {
    match reply {
        Reply::Map(pairs) => pairs.iter().find(|(key, _)| *key == bulk(name)).map(|(_, value)| value),
        Reply::Array(flat) => flat.chunks(2).find(|pair| pair[0] == bulk(name)).map(|pair| &pair[1]),
        other => panic!("{other:?} is no map"),
    }
}

#[test]
fn count_list_and_info_agree() {
    for version in [RespVersion::Two, RespVersion::Three] {
        let Reply::Integer(count) = ask("COMMAND COUNT", version).expect("an answer") else { panic!("no count") };
        let all = ask("COMMAND", version).expect("an answer");
        assert_eq!(elements(&all).len() as i64, count);
        assert_eq!(ask("COMMAND INFO", version).expect("an answer"), all);
        let names: Vec<&Reply> = elements(&all).iter().map(|info| &elements(info)[0]).collect();
        let list = ask("COMMAND LIST", version).expect("an answer");
        assert_eq!(elements(&list).iter().filter(|name| names.contains(name)).count() as i64, count);
    }
}

#[test]
fn info_has_the_ten_elements_of_redis_7() {
    let simple = |text: &str| Reply::Simple(text.to_owned());
    let specification = |last: i64, step: i64| {
        let pair = |name: &str, value: Reply| (bulk(name), value);
        let search = Reply::Map(vec![pair("type", bulk("index")), pair("spec", Reply::Map(vec![pair("index", Reply::Integer(1))]))]);
        let range = vec![pair("lastkey", Reply::Integer(last)), pair("keystep", Reply::Integer(step)), pair("limit", Reply::Integer(0))];
        let keys = Reply::Map(vec![pair("type", bulk("range")), pair("spec", Reply::Map(range))]);
        let flags = Reply::Set(vec![simple("RO"), simple("access")]);
        Reply::Set(vec![Reply::Map(vec![pair("flags", flags), pair("begin_search", search), pair("find_keys", keys)])])
    };
    let info = ask("COMMAND INFO get nosuch msetnx MGET", RespVersion::Three).expect("an answer");
    let [get, unknown, unserved, mget] = elements(&info) else { panic!("four answers: {info:?}") };
    assert_eq!((unknown, unserved), (&Reply::Null, &Reply::Null));
    let expected = vec![
        bulk("get"),
        Reply::Integer(2),
        Reply::Set(vec![simple("readonly"), simple("fast")]),
        Reply::Integer(1),
        Reply::Integer(1),
        Reply::Integer(1),
        Reply::Set(vec![simple("@string"), simple("@read"), simple("@fast")]),
        Reply::Set(vec![]),
        specification(0, 1),
        Reply::Set(vec![]),
    ];
    assert_eq!(*get, Reply::Array(expected));
    // One snapshot: a client must not cut an MGET by slots, so there is no hint that it may.
    assert_eq!(elements(mget)[4], Reply::Integer(-1));
    assert_eq!(elements(mget)[7], Reply::Set(vec![]));
    assert_eq!(elements(mget)[8], specification(-1, 1));

    let info = ask("COMMAND INFO client|id config", RespVersion::Two).expect("an answer");
    assert_eq!(elements(&elements(&info)[0])[0], bulk("client|id"));
    let subcommands = elements(&elements(&elements(&info)[1])[9]);
    assert_eq!(subcommands.iter().map(|info| elements(info)[0].clone()).collect::<Vec<_>>(), [bulk("config|get"), bulk("config|help")]);
}

#[test]
fn docs_are_maps_of_what_redis_cli_reads() {
    const KINDS: [&str; 8] = ["key", "string", "integer", "unix-time", "pattern", "pure-token", "oneof", "block"];
    fn check_arguments(arguments: &Reply) {
        for argument in elements(arguments) {
            assert!(matches!(field(argument, "name"), Some(Reply::Bulk(_))), "{argument:?}");
            let kind = field(argument, "type").expect("a type");
            assert!(KINDS.iter().any(|known| *kind == bulk(known)), "{argument:?}");
            let has_parts = field(argument, "arguments").inspect(|parts| check_arguments(parts)).is_some();
            assert_eq!(has_parts, *kind == bulk("oneof") || *kind == bulk("block"), "{argument:?}");
            if *kind == bulk("pure-token") {
                assert!(field(argument, "token").is_some(), "{argument:?}");
            }
            for flag in field(argument, "flags").map(elements).unwrap_or_default() {
                assert!(matches!(flag, Reply::Simple(flag) if flag == "optional" || flag == "multiple"), "{argument:?}");
            }
        }
    }
    fn check(docs: &Reply) -> usize {
        let pairs: Vec<(&Reply, &Reply)> = match docs {
            Reply::Map(pairs) => pairs.iter().map(|(name, docs)| (name, docs)).collect(),
            flat => elements(flat).chunks(2).map(|pair| (&pair[0], &pair[1])).collect(),
        };
        for (name, docs) in &pairs {
            for required in ["summary", "since", "group", "complexity"] {
                assert!(matches!(field(docs, required), Some(Reply::Bulk(_))), "{name:?} lacks {required}");
            }
            if let Some(arguments) = field(docs, "arguments") {
                check_arguments(arguments);
            }
            if let Some(subcommands) = field(docs, "subcommands") {
                check(subcommands);
            }
        }
        pairs.len()
    }
    for docs in both("COMMAND DOCS") {
        assert_eq!(check(&docs), table::COMMANDS.len());
        assert_eq!(field(field(&docs, "set").expect("SET"), "summary"), Some(&bulk("Sets the value of a key")));
        assert!(field(&docs, "append").is_none());
    }
    for docs in both("COMMAND DOCS GET nosuch append CLIENT|ID") {
        assert_eq!(check(&docs), 2);
        assert!(field(&docs, "client|id").is_some());
    }
}

#[test]
fn list_filters() {
    let list = |request: &str| ask(request, RespVersion::Two).expect("an answer");
    assert_eq!(list("COMMAND LIST FILTERBY PATTERN G*T"), bulks(&["get", "getset"]));
    assert_eq!(list("COMMAND LIST FILTERBY PATTERN config*"), bulks(&["config", "config|get", "config|help"]));
    assert_eq!(list("COMMAND LIST FILTERBY MODULE json"), bulks(&[]));
    assert_eq!(list("COMMAND LIST FILTERBY ACLCAT Blocking"), bulks(&["wait"]));
    assert_eq!(list("COMMAND LIST FILTERBY ACLCAT nosuch"), bulks(&[]));
    for request in ["COMMAND LIST x", "COMMAND LIST FILTERBY", "COMMAND LIST FILTERBY NAME x", "COMMAND LIST FILTERBY PATTERN x y"] {
        assert_eq!(ask(request, RespVersion::Two), Err(CommandError::Syntax), "{request}");
    }
}

#[test]
fn keys_of_requests() {
    let keys = |request: &str| ask(&format!("COMMAND GETKEYS {request}"), RespVersion::Two).map_err(|error| error.to_string());
    assert_eq!(keys("GET a"), Ok(bulks(&["a"])));
    assert_eq!(keys("set a b ex 10"), Ok(bulks(&["a"])));
    assert_eq!(keys("mget a b c"), Ok(bulks(&["a", "b", "c"])));
    assert_eq!(keys("mset a 1 b 2"), Ok(bulks(&["a", "b"])));
    assert_eq!(keys("rheo explain a"), Ok(bulks(&["a"])));
    assert_eq!(keys("rheo counter transfer a b 5"), Ok(bulks(&["a", "b"])));
    assert_eq!(keys("rheo counter add a 1 b 2 LOCAL"), Ok(bulks(&["a", "b"])));
    assert_eq!(keys("rheo counter add LOCAL 1 b -2 ID 3 4"), Ok(bulks(&["LOCAL", "b"])));
    assert_eq!(keys("rheo counter add a 1 b x"), Err("ERR Invalid arguments specified for command".to_owned()));
    assert_eq!(keys("nosuch a"), Err("ERR Invalid command specified".to_owned()));
    assert_eq!(keys("append a b"), Err("ERR Invalid command specified".to_owned()));
    assert_eq!(keys("get a b"), Err("ERR Invalid number of arguments specified for command".to_owned()));
    assert_eq!(keys("ping a"), Err("ERR The command has no key arguments".to_owned()));
    assert_eq!(keys("rheo status"), Err("ERR The command has no key arguments".to_owned()));

    let both = ask("COMMAND GETKEYSANDFLAGS mset a 1 b 2", RespVersion::Three).expect("an answer");
    let flags = Reply::Set(vec![Reply::Simple("OW".into()), Reply::Simple("update".into())]);
    assert_eq!(both, Reply::Array(["a", "b"].map(|key| Reply::Array(vec![bulk(key), flags.clone()])).into()));
    // What SET does to its key depends on its options; a value that is called like one is none.
    let flags_of = |request: &str| {
        let reply = ask(&format!("COMMAND GETKEYSANDFLAGS {request}"), RespVersion::Two).expect("an answer");
        let flags = elements(&elements(&elements(&reply)[0])[1]).to_vec();
        flags.into_iter().map(|flag| if let Reply::Simple(flag) = flag { flag } else { panic!("{flag:?}") }).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(flags_of("set a get"), "OW update");
    assert_eq!(flags_of("set a 1 ex 10"), "OW update");
    assert_eq!(flags_of("set a 1 ex 10 GET"), "RW access update");
    assert_eq!(flags_of("incr a"), "RW access update");
    assert_eq!(flags_of("del a"), "RM delete");
    assert_eq!(flags_of("rheo counter add a 1 b 2"), "RW access update");
}

#[test]
fn help_names_every_subcommand() {
    for container in table::COMMANDS.iter().filter(|entry| !entry.subcommands.is_empty()) {
        let help = ask(&format!("{} help", container.name), RespVersion::Two).expect("help");
        let lines: Vec<&str> = elements(&help)
            .iter()
            .map(|line| match line {
                Reply::Simple(line) => line.as_str(),
                other => panic!("{other:?} is no line"),
            })
            .collect();
        assert!(lines[0].starts_with(&container.name.to_uppercase()), "{lines:?}");
        for subcommand in container.subcommands {
            let name = subcommand.short_name().to_uppercase().replace('|', " ");
            let is_it = |line: &&str| line.strip_prefix(name.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '));
            assert!(lines.iter().any(is_it), "{name} in {lines:?}");
        }
    }
}

#[test]
fn syntax_lines() {
    let syntax = |name: &str| table::find_served(name.as_bytes()).expect("served").syntax();
    assert_eq!(
        syntax("set"),
        "SET key value [NX | XX] [GET] [EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds | KEEPTTL]"
    );
    assert_eq!(syntax("mset"), "MSET key value [key value ...]");
    assert_eq!(syntax("del"), "DEL key [key ...]");
    assert_eq!(syntax("scan"), "SCAN cursor [MATCH pattern] [COUNT count] [TYPE type]");
    assert_eq!(syntax("client|list"), "CLIENT LIST [TYPE <NORMAL | MASTER | REPLICA | PUBSUB> | ID client-id [client-id ...]]");
    assert_eq!(syntax("client|no-evict"), "CLIENT NO-EVICT <ON | OFF>");
    assert_eq!(syntax("rheo|session"), "RHEO SESSION <GET | RESUME token | MERGE token | RESET | NAME name>");
    assert_eq!(syntax("rheo|counter|add"), "RHEO COUNTER ADD key delta [key delta ...] [LOCAL | GLOBAL] [ID client number]");
    assert_eq!(syntax("rheo|counter|create"), "RHEO COUNTER CREATE key [MIN min] [MAX max] [VALUE value] [PLACE weight [weight ...]]");
    assert_eq!(syntax("rheo|counter|move"), "RHEO COUNTER MOVE key data-center amount <DOWN | UP>");
    assert_eq!(syntax("hello"), "HELLO [protover [AUTH username password] [SETNAME clientname]]");
}

#[test]
fn docs_commands_md_is_the_table() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/commands.md");
    let made = table::commands_markdown();
    if std::env::var_os("RHEOSTAT_BLESS").is_some_and(|value| value == "1") {
        std::fs::write(path, &made).expect("docs/commands.md can be written");
    }
    let found = std::fs::read_to_string(path).unwrap_or_default();
    assert!(found == made, "docs/commands.md is not what the table says; RHEOSTAT_BLESS=1 writes it anew");
}
