//! What entries of the table are written with.

pub(crate) use super::{Argument, Entry, Flags, Keys, Kind};
use super::{Group, Parse};

impl Entry {
    pub(crate) const fn new(name: &'static str, arity: i8, flags: Flags, group: Group, since: &'static str, parse: Parse) -> Entry {
        Entry { name, arity, flags, keys: None, group, since, summary: "", complexity: "O(1)", arguments: &[], tips: &[], subcommands: &[], parse }
    }

    pub(crate) const fn string(name: &'static str, arity: i8, flags: Flags, since: &'static str, parse: Parse) -> Entry {
        Entry::new(name, arity, flags, Group::String, since, parse)
    }

    pub(crate) const fn generic(name: &'static str, arity: i8, flags: Flags, since: &'static str, parse: Parse) -> Entry {
        Entry::new(name, arity, flags, Group::Generic, since, parse)
    }

    pub(crate) const fn transactions(name: &'static str, arity: i8, since: &'static str, parse: Parse) -> Entry {
        Entry::new(name, arity, FAST, Group::Transactions, since, parse)
    }

    pub(crate) const fn connection(name: &'static str, arity: i8, flags: Flags, since: &'static str, parse: Parse) -> Entry {
        Entry::new(name, arity, flags, Group::Connection, since, parse)
    }

    pub(crate) const fn server(name: &'static str, arity: i8, flags: Flags, since: &'static str, parse: Parse) -> Entry {
        Entry::new(name, arity, flags, Group::Server, since, parse)
    }

    pub(crate) const fn cluster(name: &'static str, arity: i8, flags: Flags, since: &'static str, parse: Parse) -> Entry {
        Entry::new(name, arity, flags, Group::Cluster, since, parse)
    }

    pub(crate) const fn own(name: &'static str, arity: i8, flags: Flags, parse: Parse) -> Entry {
        Entry::new(name, arity, flags, Group::Rheostat, "0.1.0", parse)
    }

    /// Of the family `RHEO COUNTER`, whose first argument is a key.
    pub(crate) const fn of_counter(name: &'static str, arity: i8, flags: Flags, access: &'static [&'static str], parse: Parse) -> Entry {
        Entry { keys: Some(Keys { first: 3, last: 3, step: 1, access }), ..Entry::own(name, arity, flags, parse) }
    }

    pub(crate) const fn does(self, summary: &'static str) -> Entry {
        Entry { summary, ..self }
    }

    pub(crate) const fn costs(self, complexity: &'static str) -> Entry {
        Entry { complexity, ..self }
    }

    pub(crate) const fn takes(self, arguments: &'static [Argument]) -> Entry {
        Entry { arguments, ..self }
    }

    /// All arguments but the name are keys.
    pub(crate) const fn on_keys(self, access: &'static [&'static str]) -> Entry {
        Entry { keys: Some(Keys { first: 1, last: -1, step: 1, access }), arguments: &[KEYS], ..self }
    }

    /// The first argument is the key, and the only one that documentation names so far.
    pub(crate) const fn on_key(self, access: &'static [&'static str]) -> Entry {
        Entry { keys: Some(Keys { first: 1, last: 1, step: 1, access }), arguments: &[KEY], ..self }
    }

    pub(crate) const fn hints(self, tips: &'static [&'static str]) -> Entry {
        Entry { tips, ..self }
    }

    pub(crate) const fn contains(self, subcommands: &'static [Entry]) -> Entry {
        Entry { subcommands, complexity: "Depends on the subcommand", ..self }
    }
}

pub(crate) const KEY: Argument = Argument::new("key", Kind::Key);
pub(crate) const KEYS: Argument = KEY.multiple();
pub(crate) const VALUE: Argument = Argument::new("value", Kind::String);
pub(crate) const SECONDS: Argument = Argument::new("seconds", Kind::Integer);
pub(crate) const MILLISECONDS: Argument = Argument::new("milliseconds", Kind::Integer);
pub(crate) const UNIX_SECONDS: Argument = Argument::new("unix-time-seconds", Kind::UnixTime);
pub(crate) const UNIX_MILLISECONDS: Argument = Argument::new("unix-time-milliseconds", Kind::UnixTime);
pub(crate) const PATTERN: Argument = Argument::new("pattern", Kind::Pattern);
pub(crate) const ON_OR_OFF: Argument = Argument::one_of("enabled", &[Argument::token("on", "ON"), Argument::token("off", "OFF")]);
pub(crate) const COMMAND_NAMES: Argument = Argument::new("command-name", Kind::String).optional().multiple();
pub(crate) const REQUEST: &[Argument] = &[Argument::new("command", Kind::String), Argument::new("arg", Kind::String).optional().multiple()];
pub(crate) const EXPIRE_CONDITION: Argument = Argument::one_of(
    "condition",
    &[Argument::token("nx", "NX"), Argument::token("xx", "XX"), Argument::token("gt", "GT"), Argument::token("lt", "LT")],
)
.optional();

pub(crate) const LIFE: Argument = Argument::one_of(
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

pub(crate) const DATA_CENTER: Argument = Argument::new("data-center", Kind::String);
pub(crate) const SCOPE: Argument = Argument::one_of("scope", &[Argument::token("local", "LOCAL"), Argument::token("global", "GLOBAL")]);
pub(crate) const UPDATE_ID: Argument =
    Argument::block("id", &[Argument::new("client", Kind::Integer), Argument::new("number", Kind::Integer)]).after("ID").optional();

pub(crate) const READ: Flags = Flags::READONLY.and(Flags::FAST);
pub(crate) const WRITE: Flags = Flags::WRITE.and(Flags::FAST);
pub(crate) const FAST: Flags = Flags::FAST;
pub(crate) const SLOW: Flags = Flags::NONE;
pub(crate) const OPEN: Flags = Flags::FAST.and(Flags::NO_AUTH);

/// What is done to keys, in Redis' words.
pub(crate) const READS: &[&str] = &["RO", "access"];
pub(crate) const LOOKS: &[&str] = &["RO"];
pub(crate) const OVERWRITES: &[&str] = &["OW", "update"];
pub(crate) const READS_AND_WRITES: &[&str] = &["RW", "access", "update"];
/// As the options say: see [`super::Keys::access_in`].
pub(crate) const SETS: &[&str] = &["RW", "access", "update", "variable_flags"];
pub(crate) const UPDATES: &[&str] = &["RW", "update"];
pub(crate) const REMOVES: &[&str] = &["RM", "delete"];
pub(crate) const READS_AND_REMOVES: &[&str] = &["RW", "access", "delete"];

/// Each key is served for itself: a client may cut the request by slots and add up the answers.
pub(crate) const ADDED_UP: &[&str] = &["request_policy:multi_shard", "response_policy:agg_sum"];
pub(crate) const VARYING: &[&str] = &["nondeterministic_output"];
pub(crate) const HELP: &str = "Says what the subcommands are";
pub(crate) const PER_KEY: &str = "O(N) where N is the number of keys";
pub(crate) const PER_DATA_CENTER: &str = "O(N) where N is the number of data centers";
pub(crate) const PER_COMMAND: &str = "O(N) where N is the number of commands";
