//! The table of commands: the one list that arity, flags, keys, documentation and refusals come from.
//!
//! [`COMMANDS`] is what is served, each with its handler, as the files of `command` list it; [`UNSERVED`] what Redis has and we refuse, each with its reason. `COMMAND`'s replies
//! ([`catalogue`]), `HELP` subcommands and docs/commands.md ([`commands_markdown`]) are made from them.

pub mod catalogue;
pub mod help;
mod markdown;
mod syntax;
mod unserved;
pub(crate) mod words;

pub use markdown::commands_markdown;
pub use syntax::{Argument, Kind};
pub use unserved::{Reason, UNSERVED, Unserved};

use super::arguments::Arguments;
use super::command::{Command, CommandError, GROUPS, Request};

/// Turns a request, whose arity has been checked, into a command.
pub type Parse = for<'a> fn(Request<'a>) -> Result<Command<'a>, CommandError>;

/// One command, or one subcommand.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Its name in lower case; of a subcommand `container|subcommand`, of one in a family `container|family|subcommand`.
    pub name: &'static str,
    /// Number of arguments, the name (and the subcommand's name) included; negative: at least so many.
    pub arity: i8,
    /// What it is like.
    pub flags: Flags,
    /// Where its keys are.
    pub keys: Option<Keys>,
    /// The part of the manual it belongs to.
    pub group: Group,
    /// The Redis version that first had it; of our own commands, the Rheostat version.
    pub since: &'static str,
    /// What it does, in one sentence without a full stop.
    pub summary: &'static str,
    /// Its cost.
    pub complexity: &'static str,
    /// Its arguments, for documentation.
    pub arguments: &'static [Argument],
    /// Hints to clients, in Redis' words.
    pub tips: &'static [&'static str],
    /// Its subcommands.
    pub subcommands: &'static [Entry],
    /// What it means: one operation on a key and how that is told, or what the connection does.
    pub parse: Parse,
}

impl PartialEq for Entry {
    /// Names are unique in the table.
    fn eq(&self, other: &Entry) -> bool {
        self.name == other.name
    }
}

impl Eq for Entry {}

/// A set of [`Entry`] flags.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flags(u8);

impl Flags {
    /// No flag.
    pub const NONE: Flags = Flags(0);
    /// It reads keys and writes none.
    pub const READONLY: Flags = Flags(1);
    /// It may write keys.
    pub const WRITE: Flags = Flags(2);
    /// Its cost does not grow with the data.
    pub const FAST: Flags = Flags(4);
    /// It is for operators.
    pub const ADMIN: Flags = Flags(8);
    /// It is served before authentication.
    pub const NO_AUTH: Flags = Flags(16);
    /// Its reply may take as long as its timeout.
    pub const BLOCKING: Flags = Flags(32);

    const NAMES: [(Flags, &'static str); 6] = [
        (Flags::WRITE, "write"),
        (Flags::READONLY, "readonly"),
        (Flags::ADMIN, "admin"),
        (Flags::FAST, "fast"),
        (Flags::NO_AUTH, "no_auth"),
        (Flags::BLOCKING, "blocking"),
    ];

    /// These flags and those of `other`.
    pub const fn and(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }

    /// Whether all flags of `other` are among these.
    pub const fn has(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Redis' words for these flags.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Flags::NAMES.into_iter().filter(move |(flag, _)| self.has(*flag)).map(|(_, name)| name)
    }
}

/// Where a command's keys are among its arguments, and what it does to them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Keys {
    /// Index of the first key.
    pub first: u8,
    /// Index of the last key; negative: counted from the end, -1 is the last argument.
    pub last: i8,
    /// Distance from one key to the next.
    pub step: u8,
    /// What is done to the keys, in Redis' words for key specifications.
    pub access: &'static [&'static str],
}

impl Keys {
    /// What is done to the keys of `request`, where its options decide that (Redis: variable flags): SET reads the key only with GET.
    pub fn access_in(&self, request: Arguments<'_>) -> &'static [&'static str] {
        match self.access.split_last() {
            Some((&"variable_flags", access)) if request.from(3).iter().any(|option| option.eq_ignore_ascii_case(b"get")) => access,
            Some((&"variable_flags", _)) => &["OW", "update"],
            _ => self.access,
        }
    }

    /// The keys among `arguments`, which satisfy the command's arity.
    pub fn of<'a>(&self, arguments: Arguments<'a>) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let last = if self.last < 0 { arguments.len().saturating_sub(usize::from(self.last.unsigned_abs())) } else { self.last as usize };
        (usize::from(self.first)..=last).step_by(usize::from(self.step)).map_while(move |index| arguments.get(index))
    }
}

/// The parts of the manual.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Group {
    /// Values.
    String,
    /// Keys, whatever their value.
    Generic,
    /// Several commands as one step.
    Transactions,
    /// The connection itself.
    Connection,
    /// The server.
    Server,
    /// Where keys are.
    Cluster,
    /// What only Rheostat has.
    Rheostat,
}

impl Group {
    /// All groups, in the manual's order.
    pub const ALL: [Group; 7] =
        [Group::String, Group::Generic, Group::Transactions, Group::Connection, Group::Server, Group::Cluster, Group::Rheostat];

    /// Its name in `COMMAND DOCS`.
    pub const fn name(self) -> &'static str {
        match self {
            Group::String => "string",
            Group::Generic => "generic",
            Group::Transactions => "transactions",
            Group::Connection => "connection",
            Group::Server => "server",
            Group::Cluster => "cluster",
            Group::Rheostat => "rheostat",
        }
    }
}

impl Entry {
    /// Whether a request of `count` arguments has the right number of them.
    #[inline]
    pub fn accepts(&self, count: usize) -> bool {
        let arity = usize::from(self.arity.unsigned_abs());
        if self.arity < 0 { count >= arity } else { count == arity }
    }

    /// The subcommand that `arguments` name, the first of which is this command: by one word, or by two where it belongs to a family.
    pub fn subcommand_of(&self, arguments: Arguments<'_>) -> Option<&'static Entry> {
        let names = |entry: &&Entry| {
            let mut words = entry.short_name().split('|').enumerate();
            words.all(|(index, word)| arguments.get(index + 1).is_some_and(|given| given.eq_ignore_ascii_case(word.as_bytes())))
        };
        self.subcommands.iter().find(names)
    }

    /// Whether subcommands have a name of two words of which `word` is the first.
    pub fn has_family(&self, word: &[u8]) -> bool {
        let first = |entry: &Entry| entry.short_name().split_once('|').is_some_and(|(first, _)| word.eq_ignore_ascii_case(first.as_bytes()));
        self.subcommands.iter().any(first)
    }

    /// The subcommand's own name; of a command, its name.
    pub fn short_name(&self) -> &'static str {
        self.name.split_once('|').map_or(self.name, |(_, own)| own)
    }

    /// The subcommand called `name`, in any case.
    pub fn subcommand(&self, name: &[u8]) -> Option<&'static Entry> {
        self.subcommands.iter().find(|entry| entry.short_name().as_bytes().eq_ignore_ascii_case(name))
    }
}

/// Every command that is served, by group and then by name.
pub static COMMANDS: &[Entry] = &ALL;

const COUNT: usize = {
    let (mut count, mut group) = (0, 0);
    while group < GROUPS.len() {
        count += GROUPS[group].len();
        group += 1;
    }
    count
};

static ALL: [Entry; COUNT] = {
    let mut all = [GROUPS[0][0]; COUNT];
    let (mut count, mut group) = (0, 0);
    while group < GROUPS.len() {
        let mut at = 0;
        while at < GROUPS[group].len() {
            all[count] = GROUPS[group][at];
            count += 1;
            at += 1;
        }
        group += 1;
    }
    all
};

/// What a name stands for.
#[derive(Clone, Copy, Debug)]
pub enum Found {
    /// A command that is served.
    Served(&'static Entry),
    /// A command of Redis that is not.
    Unserved(&'static str, Reason),
}

/// The command called `name`, in any case; not subcommands.
#[inline]
pub fn find(name: &[u8]) -> Option<Found> {
    let mut slot = hash(name);
    loop {
        let found = match INDEX[slot % INDEX_SLOTS] {
            Place::Empty => return None,
            Place::Served(at) => {
                let entry = &COMMANDS[usize::from(at)];
                (entry.name, Found::Served(entry))
            }
            Place::Unserved(group, at) => {
                let unserved = &UNSERVED[usize::from(group)];
                let name = unserved.names[usize::from(at)];
                (name, Found::Unserved(name, unserved.reason))
            }
        };
        if found.0.as_bytes().eq_ignore_ascii_case(name) {
            return Some(found.1);
        }
        slot += 1;
    }
}

/// The command or subcommand that `COMMAND INFO` and `COMMAND DOCS` know as `name`, in any case.
pub fn find_served(name: &[u8]) -> Option<&'static Entry> {
    let (container, subcommand) = match name.iter().position(|byte| *byte == b'|') {
        Some(bar) => (&name[..bar], Some(&name[bar + 1..])),
        None => (name, None),
    };
    match (find(container)?, subcommand) {
        (Found::Served(entry), None) => Some(entry),
        (Found::Served(entry), Some(own)) => entry.subcommand(own),
        (Found::Unserved(..), _) => None,
    }
}

/// Why the subcommand `name` of `container` is not served, if Redis has it.
pub fn find_unserved_subcommand(container: &Entry, name: &[u8]) -> Option<(&'static str, Reason)> {
    UNSERVED
        .iter()
        .flat_map(|unserved| unserved.names.iter().map(|full| (*full, unserved.reason)))
        .find(|(full, _)| full.split_once('|').is_some_and(|(of, own)| of == container.name && own.as_bytes().eq_ignore_ascii_case(name)))
}

/// A slot of the open-addressing hash table from names to the lists.
#[derive(Clone, Copy)]
enum Place {
    Empty,
    Served(u16),
    Unserved(u16, u16),
}

/// A power of two, and several times the number of commands, so that most lookups meet one slot.
const INDEX_SLOTS: usize = 2048;

static INDEX: [Place; INDEX_SLOTS] = {
    let mut index = [Place::Empty; INDEX_SLOTS];
    let mut at = 0;
    while at < COMMANDS.len() {
        insert(&mut index, COMMANDS[at].name, Place::Served(at as u16));
        at += 1;
    }
    let mut group = 0;
    while group < UNSERVED.len() {
        let names = UNSERVED[group].names;
        let mut at = 0;
        while at < names.len() {
            insert(&mut index, names[at], Place::Unserved(group as u16, at as u16));
            at += 1;
        }
        group += 1;
    }
    index
};

const fn insert(index: &mut [Place; INDEX_SLOTS], name: &str, place: Place) {
    let mut slot = hash(name.as_bytes());
    while !matches!(index[slot % INDEX_SLOTS], Place::Empty) {
        slot += 1;
    }
    index[slot % INDEX_SLOTS] = place;
}

/// Of at most 24 bytes: longer names are told apart by comparison, and a client's long nonsense costs no more.
const fn hash(name: &[u8]) -> usize {
    let mut hash = name.len() as u32;
    let mut at = 0;
    while at < name.len() && at < 24 {
        hash = (hash ^ (name[at] | 0x20) as u32).wrapping_mul(0x0100_0193);
        at += 1;
    }
    (hash ^ hash >> 15) as usize % INDEX_SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn every_entry() -> impl Iterator<Item = &'static Entry> {
        COMMANDS.iter().flat_map(|entry| std::iter::once(entry).chain(entry.subcommands))
    }

    #[test]
    fn every_name_is_there_once_and_found_in_any_case() {
        let mut names = BTreeSet::new();
        for entry in every_entry() {
            assert!(names.insert(entry.name), "{} twice", entry.name);
            assert_eq!(entry.name, entry.name.to_lowercase());
            for spelled in [entry.name.to_owned(), entry.name.to_uppercase()] {
                assert!(std::ptr::eq(find_served(spelled.as_bytes()).expect("found"), entry), "{spelled}");
            }
        }
        for unserved in UNSERVED {
            for name in unserved.names {
                assert!(names.insert(name), "{name} twice");
                assert!(find_served(name.as_bytes()).is_none(), "{name}");
                match name.split_once('|') {
                    None => assert!(matches!(find(name.to_uppercase().as_bytes()), Some(Found::Unserved(found, _)) if found == *name)),
                    Some((container, own)) => {
                        let container = find_served(container.as_bytes()).expect("the container is served");
                        assert_eq!(find_unserved_subcommand(container, own.as_bytes()), Some((*name, unserved.reason)));
                    }
                }
            }
        }
        for unknown in [b"".as_slice(), b"foo", b"get ", b"ge", &[b'x'; 1000], b"get|x", b"\xff\xfe"] {
            assert!(find_served(unknown).is_none());
        }
    }

    #[test]
    fn entries_are_whole() {
        for entry in every_entry() {
            assert!(entry.arity != 0 && !entry.summary.is_empty() && !entry.summary.ends_with('.'), "{}", entry.name);
            assert!(!entry.since.is_empty() && !entry.complexity.is_empty(), "{}", entry.name);
            assert!(!(entry.flags.has(Flags::READONLY) && entry.flags.has(Flags::WRITE)), "{}", entry.name);
            let container = entry.name.split_once('|').map(|(container, _)| container);
            for subcommand in entry.subcommands {
                assert!(container.is_none() && subcommand.name.starts_with(&format!("{}|", entry.name)), "{}", subcommand.name);
                assert!(entry.accepts(usize::from(subcommand.arity.unsigned_abs())), "{}", subcommand.name);
                assert!(subcommand.arity.unsigned_abs() >= 2, "{}", subcommand.name);
                assert_eq!(subcommand.group, entry.group);
            }
            if let Some(keys) = entry.keys {
                assert!(keys.step > 0 && keys.first > 0 && keys.first < entry.arity.unsigned_abs(), "{}", entry.name);
                let documented = entry.arguments.iter().any(Argument::has_key);
                assert!(documented, "{} has keys that its documentation does not name", entry.name);
            } else {
                assert!(!entry.arguments.iter().any(Argument::has_key), "{}", entry.name);
            }
        }
    }

    #[test]
    fn lookups_meet_few_slots() {
        let filled = INDEX.iter().filter(|place| !matches!(place, Place::Empty)).count();
        assert_eq!(filled, COMMANDS.len() + UNSERVED.iter().map(|unserved| unserved.names.len()).sum::<usize>());
        assert!(filled * 4 < INDEX_SLOTS);
        for hot in ["get", "set", "del", "mget", "mset"] {
            let Place::Served(at) = INDEX[hash(hot.as_bytes())] else { panic!("{hot} does not stand first in its slot") };
            assert_eq!(COMMANDS[usize::from(at)].name, hot);
        }
    }
}
