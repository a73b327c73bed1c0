//! The commands that are served.

use super::{Argument, Entry, Flags, Group, Keys, Kind, Parse};
use crate::command::parse;

impl Entry {
    const fn new(name: &'static str, arity: i8, flags: Flags, group: Group, since: &'static str, parse: Parse) -> Entry {
        Entry { name, arity, flags, keys: None, group, since, summary: "", complexity: "O(1)", arguments: &[], tips: &[], subcommands: &[], parse }
    }

    const fn string(name: &'static str, arity: i8, flags: Flags, since: &'static str, parse: Parse) -> Entry {
        Entry::new(name, arity, flags, Group::String, since, parse)
    }

    const fn generic(name: &'static str, arity: i8, flags: Flags, since: &'static str, parse: Parse) -> Entry {
        Entry::new(name, arity, flags, Group::Generic, since, parse)
    }

    const fn transactions(name: &'static str, arity: i8, since: &'static str, parse: Parse) -> Entry {
        Entry::new(name, arity, FAST, Group::Transactions, since, parse)
    }

    const fn connection(name: &'static str, arity: i8, flags: Flags, since: &'static str, parse: Parse) -> Entry {
        Entry::new(name, arity, flags, Group::Connection, since, parse)
    }

    const fn server(name: &'static str, arity: i8, flags: Flags, since: &'static str, parse: Parse) -> Entry {
        Entry::new(name, arity, flags, Group::Server, since, parse)
    }

    const fn cluster(name: &'static str, arity: i8, flags: Flags, since: &'static str, parse: Parse) -> Entry {
        Entry::new(name, arity, flags, Group::Cluster, since, parse)
    }

    const fn own(name: &'static str, arity: i8, flags: Flags, parse: Parse) -> Entry {
        Entry::new(name, arity, flags, Group::Rheostat, "0.1.0", parse)
    }

    /// Of the family `RHEO COUNTER`, whose first argument is a key.
    const fn of_counter(name: &'static str, arity: i8, flags: Flags, access: &'static [&'static str], parse: Parse) -> Entry {
        Entry { keys: Some(Keys { first: 3, last: 3, step: 1, access }), ..Entry::own(name, arity, flags, parse) }
    }

    const fn does(self, summary: &'static str) -> Entry {
        Entry { summary, ..self }
    }

    const fn costs(self, complexity: &'static str) -> Entry {
        Entry { complexity, ..self }
    }

    const fn takes(self, arguments: &'static [Argument]) -> Entry {
        Entry { arguments, ..self }
    }

    /// All arguments but the name are keys.
    const fn on_keys(self, access: &'static [&'static str]) -> Entry {
        Entry { keys: Some(Keys { first: 1, last: -1, step: 1, access }), arguments: &[KEYS], ..self }
    }

    /// The first argument is the key, and the only one that documentation names so far.
    const fn on_key(self, access: &'static [&'static str]) -> Entry {
        Entry { keys: Some(Keys { first: 1, last: 1, step: 1, access }), arguments: &[KEY], ..self }
    }

    const fn hints(self, tips: &'static [&'static str]) -> Entry {
        Entry { tips, ..self }
    }

    const fn contains(self, subcommands: &'static [Entry]) -> Entry {
        Entry { subcommands, complexity: "Depends on the subcommand", ..self }
    }
}

const KEY: Argument = Argument::new("key", Kind::Key);
const KEYS: Argument = KEY.multiple();
const VALUE: Argument = Argument::new("value", Kind::String);
const SECONDS: Argument = Argument::new("seconds", Kind::Integer);
const MILLISECONDS: Argument = Argument::new("milliseconds", Kind::Integer);
const UNIX_SECONDS: Argument = Argument::new("unix-time-seconds", Kind::UnixTime);
const UNIX_MILLISECONDS: Argument = Argument::new("unix-time-milliseconds", Kind::UnixTime);
const PATTERN: Argument = Argument::new("pattern", Kind::Pattern);
const ON_OR_OFF: Argument = Argument::one_of("enabled", &[Argument::token("on", "ON"), Argument::token("off", "OFF")]);
const COMMAND_NAMES: Argument = Argument::new("command-name", Kind::String).optional().multiple();
const REQUEST: &[Argument] = &[Argument::new("command", Kind::String), Argument::new("arg", Kind::String).optional().multiple()];
const EXPIRE_CONDITION: Argument = Argument::one_of(
    "condition",
    &[Argument::token("nx", "NX"), Argument::token("xx", "XX"), Argument::token("gt", "GT"), Argument::token("lt", "LT")],
)
.optional();

const LIFE: Argument = Argument::one_of(
    "expiration",
    &[
        SECONDS.after("EX"),
        MILLISECONDS.after("PX"),
        UNIX_SECONDS.after("EXAT"),
        UNIX_MILLISECONDS.after("PXAT"),
        Argument::token("keepttl", "KEEPTTL"),
    ],
)
.optional();

const DATA_CENTER: Argument = Argument::new("data-center", Kind::String);
const SCOPE: Argument = Argument::one_of("scope", &[Argument::token("local", "LOCAL"), Argument::token("global", "GLOBAL")]);
const UPDATE_ID: Argument =
    Argument::block("id", &[Argument::new("client", Kind::Integer), Argument::new("number", Kind::Integer)]).after("ID").optional();

const READ: Flags = Flags::READONLY.and(Flags::FAST);
const WRITE: Flags = Flags::WRITE.and(Flags::FAST);
const FAST: Flags = Flags::FAST;
const SLOW: Flags = Flags::NONE;
const OPEN: Flags = Flags::FAST.and(Flags::NO_AUTH);

/// What is done to keys, in Redis' words.
const READS: &[&str] = &["RO", "access"];
const LOOKS: &[&str] = &["RO"];
const OVERWRITES: &[&str] = &["OW", "update"];
const READS_AND_WRITES: &[&str] = &["RW", "access", "update"];
/// As the options say: see [`super::Keys::access_in`].
const SETS: &[&str] = &["RW", "access", "update", "variable_flags"];
const UPDATES: &[&str] = &["RW", "update"];
const REMOVES: &[&str] = &["RM", "delete"];
const READS_AND_REMOVES: &[&str] = &["RW", "access", "delete"];

/// Each key is served for itself: a client may cut the request by slots and add up the answers.
const ADDED_UP: &[&str] = &["request_policy:multi_shard", "response_policy:agg_sum"];
const VARYING: &[&str] = &["nondeterministic_output"];
const HELP: &str = "Says what the subcommands are";
const PER_KEY: &str = "O(N) where N is the number of keys";
const PER_DATA_CENTER: &str = "O(N) where N is the number of data centers";
const PER_COMMAND: &str = "O(N) where N is the number of commands";

/// Every command that is served, by group and then by name.
pub static COMMANDS: &[Entry] = &[
    Entry::string("decr", 2, WRITE, "1.0.0", parse::decr)
        .does("Takes 1 from a counter and returns its value; a key that is absent, or has a decimal number, becomes a counter")
        .on_key(READS_AND_WRITES),
    Entry::string("decrby", 3, WRITE, "1.0.0", parse::decr_by)
        .does("Takes a number from a counter and returns its value, as DECR does")
        .on_key(READS_AND_WRITES)
        .takes(&[KEY, Argument::new("decrement", Kind::Integer)]),
    Entry::string("get", 2, READ, "1.0.0", parse::get).does("Returns the value of a key").on_key(READS),
    Entry::string("getdel", 2, WRITE, "6.2.0", parse::get_del).does("Returns the value of a key and deletes it").on_key(READS_AND_REMOVES),
    Entry::string("getex", -2, WRITE, "6.2.0", parse::get_ex)
        .does("Returns the value of a key and changes its expiry")
        .on_key(READS_AND_WRITES)
        .takes(&[
            KEY,
            Argument::one_of(
                "expiration",
                &[
                    SECONDS.after("EX"),
                    MILLISECONDS.after("PX"),
                    UNIX_SECONDS.after("EXAT"),
                    UNIX_MILLISECONDS.after("PXAT"),
                    Argument::token("persist", "PERSIST"),
                ],
            )
            .optional(),
        ]),
    Entry::string("getset", 3, WRITE, "1.0.0", parse::get_set)
        .does("Sets the value of a key and returns the one before")
        .on_key(READS_AND_WRITES)
        .takes(&[KEY, VALUE]),
    Entry::string("incr", 2, WRITE, "1.0.0", parse::incr)
        .does("Adds 1 to a counter and returns its value; a key that is absent, or has a decimal number, becomes a counter")
        .on_key(READS_AND_WRITES),
    Entry::string("incrby", 3, WRITE, "1.0.0", parse::incr_by)
        .does("Adds a number to a counter and returns its value, as INCR does")
        .on_key(READS_AND_WRITES)
        .takes(&[KEY, Argument::new("increment", Kind::Integer)]),
    Entry::string("mget", -2, READ, "1.0.0", parse::multi_get)
        .does("Returns the values of keys, of one snapshot where the keyspace's protocol promises it")
        .costs(PER_KEY)
        .on_keys(READS),
    Entry {
        keys: Some(Keys { first: 1, last: -1, step: 2, access: OVERWRITES }),
        ..Entry::string("mset", -3, Flags::WRITE, "1.0.1", parse::multi_set)
    }
    .does("Sets the values of keys of one partition, all together")
    .costs(PER_KEY)
    .takes(&[Argument::block("data", &[KEY, VALUE]).multiple()]),
    Entry::string("psetex", 4, Flags::WRITE, "2.6.0", parse::pset_ex)
        .does("Sets the value of a key that expires after so many milliseconds")
        .on_key(OVERWRITES)
        .takes(&[KEY, MILLISECONDS, VALUE]),
    Entry::string("set", -3, Flags::WRITE, "1.0.0", parse::set).does("Sets the value of a key").on_key(SETS).takes(&[
        KEY,
        VALUE,
        Argument::one_of("condition", &[Argument::token("nx", "NX"), Argument::token("xx", "XX")]).optional(),
        Argument::token("get", "GET").optional(),
        LIFE,
    ]),
    Entry::string("setex", 4, Flags::WRITE, "2.0.0", parse::set_ex)
        .does("Sets the value of a key that expires after so many seconds")
        .on_key(OVERWRITES)
        .takes(&[KEY, SECONDS, VALUE]),
    Entry::string("setnx", 3, WRITE, "1.0.0", parse::set_nx)
        .does("Sets the value of a key that has none; 1 if it did, else 0")
        .on_key(OVERWRITES)
        .takes(&[KEY, VALUE]),
    Entry::string("strlen", 2, READ, "2.2.0", parse::str_len).does("Returns the length of a value in bytes, 0 without a key").on_key(LOOKS),
    Entry::generic("del", -2, Flags::WRITE, "1.0.0", parse::delete)
        .does("Deletes keys and returns how many were there")
        .costs(PER_KEY)
        .on_keys(REMOVES)
        .hints(ADDED_UP),
    Entry::generic("exists", -2, READ, "1.0.0", parse::exists)
        .does("Returns how many of the keys are there")
        .costs(PER_KEY)
        .on_keys(LOOKS)
        .hints(ADDED_UP),
    Entry::generic("expire", -3, WRITE, "1.0.0", parse::expire).does("Lets a key expire after so many seconds").on_key(UPDATES).takes(&[
        KEY,
        SECONDS,
        EXPIRE_CONDITION,
    ]),
    Entry::generic("expireat", -3, WRITE, "1.2.0", parse::expire_at).does("Lets a key expire at a time given in seconds").on_key(UPDATES).takes(&[
        KEY,
        UNIX_SECONDS,
        EXPIRE_CONDITION,
    ]),
    Entry::generic("expiretime", 2, READ, "7.0.0", parse::expire_time)
        .does("Returns when a key expires, in seconds; -1 if never, -2 without a key")
        .on_key(READS),
    Entry::generic("persist", 2, WRITE, "2.2.0", parse::persist).does("Takes the expiry from a key").on_key(UPDATES),
    Entry::generic("pexpire", -3, WRITE, "2.6.0", parse::pexpire).does("Lets a key expire after so many milliseconds").on_key(UPDATES).takes(&[
        KEY,
        MILLISECONDS,
        EXPIRE_CONDITION,
    ]),
    Entry::generic("pexpireat", -3, WRITE, "2.6.0", parse::pexpire_at)
        .does("Lets a key expire at a time given in milliseconds")
        .on_key(UPDATES)
        .takes(&[KEY, UNIX_MILLISECONDS, EXPIRE_CONDITION]),
    Entry::generic("pexpiretime", 2, READ, "7.0.0", parse::pexpire_time)
        .does("Returns when a key expires, in milliseconds; -1 if never, -2 without a key")
        .on_key(READS),
    Entry::generic("pttl", 2, READ, "2.6.0", parse::pttl)
        .does("Returns how many milliseconds a key has left; -1 if it does not expire, -2 without a key")
        .on_key(READS)
        .hints(VARYING),
    Entry::generic("scan", -2, Flags::READONLY, "2.8.0", parse::scan)
        .does("Returns a page of keys, and the cursor to go on from")
        .costs("O(1) for a page of bounded size, O(N) for all N keys")
        .takes(&[
            Argument::new("cursor", Kind::Integer),
            PATTERN.after("MATCH").optional(),
            Argument::new("count", Kind::Integer).after("COUNT").optional(),
            Argument::new("type", Kind::String).after("TYPE").optional(),
        ])
        .hints(VARYING),
    Entry::generic("touch", -2, READ, "3.2.1", parse::exists)
        .does("Returns how many of the keys are there, as EXISTS does: access leaves no trace")
        .costs(PER_KEY)
        .on_keys(LOOKS)
        .hints(ADDED_UP),
    Entry::generic("ttl", 2, READ, "1.0.0", parse::ttl)
        .does("Returns how many seconds a key has left; -1 if it does not expire, -2 without a key")
        .on_key(READS)
        .hints(VARYING),
    Entry::generic("type", 2, READ, "1.0.0", parse::type_of).does("Returns `string`, or `none` without a key").on_key(LOOKS),
    Entry::generic("unlink", -2, WRITE, "4.0.0", parse::delete)
        .does("Deletes keys and returns how many were there, as DEL does")
        .costs(PER_KEY)
        .on_keys(REMOVES)
        .hints(ADDED_UP),
    Entry::generic("wait", 3, Flags::BLOCKING, "3.0.0", parse::wait)
        .does("Waits until so many other data centers have this session's writes on disk, and returns how many have")
        .takes(&[Argument::new("numdatacenters", Kind::Integer), Argument::new("timeout", Kind::Integer)]),
    Entry::transactions("discard", 1, "2.0.0", parse::discard).does("Forgets the commands that were kept since MULTI").costs("O(N) where N is the number of commands kept"),
    Entry::transactions("exec", 1, "1.2.0", parse::exec)
        .does("Makes the commands that were kept since MULTI, on keys of one partition, as one step: all of them or none")
        .costs("Depends on the commands"),
    Entry::transactions("multi", 1, "1.2.0", parse::multi).does("Has the commands that follow kept until EXEC"),
    Entry::transactions("unwatch", 1, "2.2.0", parse::unwatch).does("Forgets the watched keys"),
    Entry::transactions("watch", -2, "2.2.0", parse::watch)
        .does("Lets EXEC do nothing, and return null, if one of the keys is written before it; where a keyspace decides conditions")
        .costs(PER_KEY)
        .on_keys(LOOKS),
    Entry::connection("auth", -2, OPEN, "1.0.0", parse::auth)
        .does("Authenticates the connection")
        .takes(&[Argument::new("username", Kind::String).optional(), Argument::new("password", Kind::String)]),
    Entry::connection("client", -2, SLOW, "2.4.0", parse::container).does("Is about connections").contains(&[
        Entry::connection("client|getname", 2, SLOW, "2.6.9", parse::client_get_name).does("Returns the connection's name"),
        Entry::connection("client|help", 2, SLOW, "5.0.0", parse::help).does(HELP),
        Entry::connection("client|id", 2, SLOW, "5.0.0", parse::client_id).does("Returns the connection's number"),
        Entry::connection("client|info", 2, SLOW, "6.2.0", parse::client_info).does("Describes the connection").hints(VARYING),
        Entry::connection("client|list", -2, Flags::ADMIN, "2.4.0", parse::client_list)
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
        Entry::connection("client|no-evict", 3, Flags::ADMIN, "7.0.0", parse::client_no_evict)
            .does("Has no effect: connections are not evicted")
            .takes(&[ON_OR_OFF]),
        Entry::connection("client|no-touch", 3, SLOW, "7.2.0", parse::client_no_touch)
            .does("Has no effect: access leaves no trace")
            .takes(&[ON_OR_OFF]),
        Entry::connection("client|setinfo", 4, SLOW, "7.2.0", parse::client_set_info).does("Says which client library the connection is from").takes(
            &[Argument::one_of(
                "attribute",
                &[Argument::new("libname", Kind::String).after("LIB-NAME"), Argument::new("libver", Kind::String).after("LIB-VER")],
            )],
        ),
        Entry::connection("client|setname", 3, SLOW, "2.6.9", parse::client_set_name)
            .does("Names the connection")
            .takes(&[Argument::new("connection-name", Kind::String)]),
    ]),
    Entry::connection("echo", 2, FAST, "1.0.0", parse::echo).does("Returns the message").takes(&[Argument::new("message", Kind::String)]),
    Entry::connection("hello", -1, OPEN, "6.0.0", parse::hello)
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
    Entry::connection("ping", -1, FAST, "1.0.0", parse::ping)
        .does("Returns `PONG`, or the message")
        .takes(&[Argument::new("message", Kind::String).optional()]),
    Entry::connection("quit", -1, OPEN, "1.0.0", parse::quit).does("Closes the connection"),
    Entry::connection("reset", 1, OPEN, "6.2.0", parse::reset).does("Makes the connection as it was when it was opened, with a new session"),
    Entry::connection("select", 2, FAST, "1.0.0", parse::select)
        .does("Chooses the keyspace")
        .takes(&[Argument::one_of("keyspace", &[Argument::new("index", Kind::Integer), Argument::new("name", Kind::String)])]),
    Entry::server("acl", -2, SLOW, "6.0.0", parse::container).does("Is about users, which the configuration makes").contains(&[
        Entry::server("acl|cat", -2, SLOW, "6.0.0", parse::acl_cat)
            .does("Returns the categories of commands, or the commands of one")
            .costs(PER_COMMAND)
            .takes(&[Argument::new("category", Kind::String).optional()]),
        Entry::server("acl|getuser", 3, Flags::ADMIN, "6.0.0", parse::acl_get_user)
            .does("Returns what a user may do, null if there is none")
            .costs("O(N) where N is the number of its keyspaces and prefixes")
            .takes(&[Argument::new("username", Kind::String)]),
        Entry::server("acl|help", 2, SLOW, "6.0.0", parse::help).does(HELP),
        Entry::server("acl|list", 2, Flags::ADMIN, "6.0.0", parse::acl_list)
            .does("Returns a line for each user: what it may do, without its password")
            .costs("O(N) where N is the number of users"),
        Entry::server("acl|users", 2, Flags::ADMIN, "6.0.0", parse::acl_users)
            .does("Returns the names of all users")
            .costs("O(N) where N is the number of users"),
        Entry::server("acl|whoami", 2, SLOW, "6.0.0", parse::acl_who_am_i).does("Returns the name of this connection's user"),
    ]),
    Entry::server("command", -1, SLOW, "2.8.13", parse::command).does("Describes all commands").contains(&[
        Entry::server("command|count", 2, SLOW, "2.8.13", parse::command_count).does("Returns the number of commands that are served"),
        Entry::server("command|docs", -2, SLOW, "7.0.0", parse::command_docs).does("Documents commands").costs(PER_COMMAND).takes(&[COMMAND_NAMES]),
        Entry::server("command|getkeys", -3, SLOW, "2.8.13", parse::command_get_keys)
            .does("Returns the keys of a request")
            .costs("O(N) where N is the number of arguments")
            .takes(REQUEST),
        Entry::server("command|getkeysandflags", -3, SLOW, "7.0.0", parse::command_get_keys_and_flags)
            .does("Returns the keys of a request and what is done to each")
            .costs("O(N) where N is the number of arguments")
            .takes(REQUEST),
        Entry::server("command|help", 2, SLOW, "5.0.0", parse::help).does(HELP),
        Entry::server("command|info", -2, SLOW, "2.8.13", parse::command_info).does("Describes commands").costs(PER_COMMAND).takes(&[COMMAND_NAMES]),
        Entry::server("command|list", -2, SLOW, "7.0.0", parse::command_list).does("Returns the names of commands").costs(PER_COMMAND).takes(&[
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
    Entry::server("config", -2, SLOW, "2.0.0", parse::container).does("Is about the configuration").contains(&[
        Entry::server("config|get", -3, Flags::ADMIN, "2.0.0", parse::config_get)
            .does("Returns options whose names match a pattern")
            .costs("O(N) where N is the number of options")
            .takes(&[PATTERN.multiple()]),
        Entry::server("config|help", 2, SLOW, "5.0.0", parse::help).does(HELP),
    ]),
    Entry::server("dbsize", 1, READ, "1.0.0", parse::db_size)
        .does("Returns the number of keys in the keyspace")
        .costs("O(N) where N is the number of partitions"),
    Entry::server("info", -1, SLOW, "1.0.0", parse::info)
        .does("Describes the server's state")
        .takes(&[Argument::new("section", Kind::String).optional().multiple()])
        .hints(VARYING),
    Entry::server("memory", -2, SLOW, "4.0.0", parse::container).does("Is about memory").contains(&[
        Entry::server("memory|help", 2, SLOW, "4.0.0", parse::help).does(HELP),
        Entry { keys: Some(Keys { first: 2, last: 2, step: 1, access: LOOKS }), ..Entry::server("memory|usage", -3, READ, "4.0.0", parse::memory_usage) }
            .does("Returns the bytes that a key and its newest value take, about; null without a key")
            .takes(&[KEY, Argument::new("count", Kind::Integer).after("SAMPLES").optional()]),
    ]),
    Entry::server("slowlog", -2, SLOW, "2.2.12", parse::container).does("Is about operations that took long").contains(&[
        Entry::server("slowlog|get", -2, Flags::ADMIN, "2.2.12", parse::slowlog_get)
            .does("Returns the last operations of this node's clients that took long, the newest first: 10, so many, or with -1 all that are kept. Waiting counts, as it does for the client. After the command and its first key stand the keyspace, the level, what was waited for and what it came to")
            .costs("O(N) where N is the number of entries returned")
            .takes(&[Argument::new("count", Kind::Integer).optional()])
            .hints(VARYING),
        Entry::server("slowlog|help", 2, SLOW, "6.2.0", parse::help).does(HELP),
        Entry::server("slowlog|len", 2, Flags::ADMIN, "2.2.12", parse::slowlog_len)
            .does("Returns how many operations that took long are kept")
            .hints(VARYING),
        Entry::server("slowlog|reset", 2, Flags::ADMIN, "2.2.12", parse::slowlog_reset).does("Forgets the operations that took long"),
    ]),
    Entry::server("time", 1, FAST, "2.6.0", parse::time).does("Returns the server's time in seconds and microseconds").hints(VARYING),
    Entry::cluster("cluster", -2, SLOW, "3.0.0", parse::container).does("Is about where keys are").contains(&[
        Entry::cluster("cluster|countkeysinslot", 3, SLOW, "3.0.0", parse::cluster_count_keys_in_slot)
            .does("Returns the number of keys in a slot")
            .costs("O(N) where N is the number of keys in the slot")
            .takes(&[Argument::new("slot", Kind::Integer)]),
        Entry::cluster("cluster|help", 2, SLOW, "5.0.0", parse::help).does(HELP),
        Entry::cluster("cluster|info", 2, SLOW, "3.0.0", parse::cluster_info).does("Describes the cluster's state").hints(VARYING),
        Entry::cluster("cluster|keyslot", 3, SLOW, "3.0.0", parse::cluster_key_slot)
            .does("Returns the slot that a key is in")
            .costs("O(N) where N is the length of the key")
            .takes(&[Argument::new("name", Kind::String)]),
        Entry::cluster("cluster|myid", 2, SLOW, "3.0.0", parse::cluster_my_id).does("Returns this node's id"),
        Entry::cluster("cluster|nodes", 2, SLOW, "3.0.0", parse::cluster_nodes)
            .does("Describes nodes, one on a line")
            .costs("O(N) where N is the number of nodes")
            .hints(VARYING),
        Entry::cluster("cluster|shards", 2, SLOW, "7.0.0", parse::cluster_shards)
            .does("Returns which nodes serve which slots, as maps")
            .costs("O(N) where N is the number of nodes")
            .hints(VARYING),
        Entry::cluster("cluster|slots", 2, SLOW, "3.0.0", parse::cluster_slots)
            .does("Returns which nodes serve which slots")
            .costs("O(N) where N is the number of nodes")
            .hints(VARYING),
    ]),
    Entry::cluster("readonly", 1, FAST, "3.0.0", parse::read_only).does("Has no effect: every node serves reads"),
    Entry::cluster("readwrite", 1, FAST, "3.0.0", parse::read_write).does("Has no effect: every node serves reads and writes"),
    Entry::own("rheo", -2, SLOW, parse::container).does("Is what only Rheostat has").contains(&[
        Entry::own("rheo|at", -2, FAST, parse::rheo_at)
            .does("Sets, or returns, as of when this connection's reads are: milliseconds since 1970, a version, a date such as 2026-11-22T12:34:58.590Z, or a time ago such as -5s; NOW is the present. All keys are of one cut; level eventual reads what is here of it")
            .takes(&[Argument::new("time", Kind::String).optional()]),
        Entry {
            keys: Some(Keys { first: 2, last: 2, step: 1, access: READS_AND_WRITES }),
            ..Entry::own("rheo|cas", -5, Flags::WRITE, parse::rheo_cas)
        }
        .does("Compares and sets: sets the value of a key that has the expected one; 1 if it did, else 0")
        .takes(&[KEY, Argument::new("expected", Kind::String), VALUE, LIFE]),
        Entry::of_counter("rheo|counter|add", -5, Flags::WRITE, &["RW", "access", "update", "incomplete"], parse::counter_add)
            .does("Adds to counters of one partition, to all or to none, and returns the value, or an array of the values of several; where they lack rights, the answer is NORIGHTS. An update with an ID can be sent again and is made once")
            .costs(PER_KEY)
            .takes(&[
                Argument::block("change", &[KEY, Argument::new("delta", Kind::Integer)]).multiple(),
                SCOPE.optional(),
                UPDATE_ID,
            ]),
        Entry::of_counter("rheo|counter|create", -4, Flags::WRITE, &["OW", "insert"], parse::counter_create)
            .does("Makes a counter that is never below MIN nor above MAX, with an initial value of 0 or VALUE; PLACE gives each data center's weight in the placement of its rights")
            .takes(&[
                KEY,
                Argument::new("min", Kind::Integer).after("MIN").optional(),
                Argument::new("max", Kind::Integer).after("MAX").optional(),
                Argument::new("value", Kind::Integer).after("VALUE").optional(),
                Argument::new("weight", Kind::Integer).after("PLACE").multiple().optional(),
            ]),
        Entry::of_counter("rheo|counter|get", 4, Flags::READONLY, READS, parse::counter_get)
            .does("Returns a counter as it is known here: value, bounds and each data center's rights")
            .costs(PER_DATA_CENTER)
            .takes(&[KEY]),
        Entry::of_counter("rheo|counter|move", 7, Flags::WRITE, READS_AND_WRITES, parse::counter_move)
            .does("Moves rights of this data center to another one, and returns the counter as GET does")
            .costs(PER_DATA_CENTER)
            .takes(&[
                KEY,
                DATA_CENTER,
                Argument::new("amount", Kind::Integer),
                Argument::one_of("direction", &[Argument::token("down", "DOWN"), Argument::token("up", "UP")]),
            ]),
        Entry::of_counter("rheo|counter|reclaim", 5, Flags::WRITE.and(Flags::ADMIN), READS_AND_WRITES, parse::counter_reclaim)
            .does("Takes over the rights of a data center that is gone for ever, which cannot update the counter any more, and returns the counter as GET does")
            .costs(PER_DATA_CENTER)
            .takes(&[KEY, DATA_CENTER]),
        Entry {
            keys: Some(Keys { first: 3, last: 4, step: 1, access: READS_AND_WRITES }),
            ..Entry::own("rheo|counter|transfer", -6, Flags::WRITE, parse::counter_transfer)
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
            ..Entry::own("rheo|conflicts", 3, Flags::READONLY, parse::rheo_conflicts)
        }
        .does("Returns the versions of a key that one of another data center replaced whose writer had certainly not seen them, each with the one that stands in its place, the newest first, as far back as history is kept")
        .costs("O(N) where N is the number of versions")
        .takes(&[KEY])
        .hints(VARYING),
        Entry {
            keys: Some(Keys { first: 2, last: 2, step: 1, access: READS }),
            ..Entry::own("rheo|explain", 3, Flags::READONLY, parse::rheo_explain)
        }
        .does("Returns the versions of a key, what each depends on, and why it is visible or not")
        .costs("O(N) where N is the number of versions")
        .takes(&[KEY])
        .hints(VARYING),
        Entry::own("rheo|feed", -2, Flags::READONLY, parse::rheo_feed)
            .does("Returns the next changes of the keyspace, own and other data centers', a cause before its effects: the position to go on from, the kind of order, and the changes. FROM is NOW, OLDEST, or a position that it returned; MATCH is a pattern of keys; BLOCK waits for a change, up to so many milliseconds. A position older than the history is TOOOLD")
            .costs("O(N) where N is the number of changes, and of partitions")
            .takes(&[
                Argument::new("position", Kind::String).after("FROM").optional(),
                Argument::new("pattern", Kind::Pattern).after("MATCH").optional(),
                Argument::new("count", Kind::Integer).after("COUNT").optional(),
                Argument::new("milliseconds", Kind::Integer).after("BLOCK").optional(),
            ])
            .hints(VARYING),
        Entry::own("rheo|fresh", -2, FAST, parse::rheo_fresh)
            .does("Sets, or returns, how stale this connection's reads may be, in milliseconds: until the answer reflects every older write of other data centers, the read waits; NONE is no bound")
            .takes(&[Argument::new("time", Kind::String).optional()]),
        Entry::own("rheo|groups", -2, FAST, parse::rheo_groups)
            .does("Sets, or returns, the checking groups of this connection's reads in keyspaces of protocol adaptive; AUTO lets it choose")
            .takes(&[Argument::one_of("groups", &[Argument::token("auto", "AUTO"), Argument::new("number", Kind::Integer).multiple()]).optional()]),
        Entry::own("rheo|help", 2, SLOW, parse::help).does(HELP),
        Entry::own("rheo|level", -2, FAST, parse::rheo_level)
            .does("Sets, or returns, the level of this connection's operations; DEFAULT is the keyspace's own")
            .takes(&[Argument::new("level", Kind::String).optional()]),
        Entry::own("rheo|monitor", -3, Flags::ADMIN, parse::rheo_monitor)
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
            ..Entry::own("rheo|put", -4, Flags::WRITE, parse::rheo_put)
        }
        .does("Writes a value in the place of those that were seen of the key, and of no others, and returns the new context: what RHEO SIBLINGS or RHEO PUT answered, or what this connection has seen of the key last; of nothing if it has not. In keyspaces of protocol quorum")
        .takes(&[KEY, VALUE, Argument::new("context", Kind::String).after("CONTEXT").optional()]),
        Entry::own("rheo|quality", 2, FAST, parse::rheo_quality)
            .does("Returns the level, the staleness bound in milliseconds and the version of the last reply on this connection; under a service level also which of its entries the reply satisfies, and the microseconds that it took")
            .hints(VARYING),
        Entry::own("rheo|quorum", -2, FAST, parse::rheo_quorum)
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
        Entry::own("rheo|receipt", -2, FAST, parse::rheo_receipt)
            .does("Returns the receipt of the last operation on this connection: a line that the node has signed, or nothing if receipts are not on, or the operation has none. ON and OFF set whether operations on one key have receipts from now on; KEY returns the node's public key")
            .takes(&[Argument::one_of("command", &[Argument::token("on", "ON"), Argument::token("off", "OFF"), Argument::token("key", "KEY")]).optional()])
            .hints(VARYING),
        Entry::own("rheo|scope", -2, FAST, parse::rheo_scope)
            .does("Sets, or returns, where updates of counters on this connection get the rights that they need: LOCAL, only here; GLOBAL, from other data centers too")
            .takes(&[SCOPE.optional()]),
        Entry::own("rheo|session", -3, FAST, parse::rheo_session)
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
            ..Entry::own("rheo|siblings", 3, Flags::READONLY, parse::rheo_siblings)
        }
        .does("Returns a context, and all values of the key that stand side by side, newest first; RHEO PUT with the context writes in their place. In keyspaces of protocol quorum")
        .costs("O(N) where N is the number of values")
        .takes(&[KEY]),
        Entry::own("rheo|sla", -2, FAST, parse::rheo_sla)
            .does("Sets, or returns, the service level of this connection's reads: its name, or entries from best to least, as in strong 200ms; causal 1s 20ms; eventual. NONE is none, DEFAULT the keyspace's own")
            .takes(&[Argument::new("word", Kind::String).multiple().optional()]),
        Entry::own("rheo|status", 2, SLOW, parse::rheo_status).does("Returns nodes, links and lags").hints(VARYING),
        Entry::own("rheo|strategy", -2, FAST, parse::rheo_strategy)
            .does("Sets, or returns, how this connection's MGETs find their snapshot: AUTO, COORDINATED or PREDICTED")
            .takes(&[Argument::new("strategy", Kind::String).optional()]),
        Entry {
            keys: Some(Keys { first: 2, last: 3, step: 1, access: READS_AND_WRITES }),
            ..Entry::own("rheo|test", -7, Flags::WRITE, parse::rheo_test)
        }
        .does("Reads a key and writes another one of the same partition by what it was, with nothing between: the value after THEN if it had the value after EQ, or, with ABSENT, had none; else the one after ELSE, or nothing. 1 if it was so, 0 if not; null if a bound came before that was decided. In keyspaces whose protocol decides such a write in one place")
        .takes(&[
            Argument::new("key", Kind::Key),
            Argument::new("target", Kind::Key),
            Argument::one_of("expected", &[Argument::new("value", Kind::String).after("EQ"), Argument::token("absent", "ABSENT")]),
            Argument::new("then", Kind::String).after("THEN"),
            Argument::new("otherwise", Kind::String).after("ELSE").optional(),
        ]),
        Entry::own("rheo|view", -2, FAST, parse::rheo_view)
            .does("Sets, or returns, what SCAN and DBSIZE on this connection cover: the slots of this NODE, as in Redis Cluster, or the whole DATA-CENTER")
            .takes(&[Argument::new("view", Kind::String).optional()]),
        Entry::own("rheo|within", -2, FAST, parse::rheo_within)
            .does("Sets, or returns, how long this connection's operations may wait at their partition server, in milliseconds, from 0; then it ends with TIMEOUT, but where the keyspace keeps bounds, as staged does: there with what there is; NONE leaves it to the server")
            .takes(&[Argument::new("time", Kind::String).optional()]),
    ]),
];
