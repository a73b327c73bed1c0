//! What `COMMAND` answers: everything a client asks the table itself.

use super::{COMMANDS, Entry, Flags, Group, Keys, find_served};
use crate::Arguments;
use crate::reply::ReplyWriter;
use crate::table::Argument;
use rheostat_core::glob;
use std::collections::BTreeSet;

/// A question to the table. Commands that are not served are not in any answer: a client is to believe that they are not there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Catalogue<'a> {
    /// COMMAND: every command.
    All,
    /// COMMAND COUNT.
    Count,
    /// COMMAND INFO of these names; null for those that are not served.
    Info(Arguments<'a>),
    /// COMMAND DOCS of these names, of all commands if there are none; nothing for those that are not served.
    Docs(Arguments<'a>),
    /// COMMAND LIST: names of commands and subcommands.
    List(Filter<'a>),
    /// COMMAND GETKEYS of a request whose keys are there.
    Keys(Keys, Arguments<'a>),
    /// COMMAND GETKEYSANDFLAGS of a request whose keys are there.
    KeysAndFlags(Keys, Arguments<'a>),
}

/// Which names COMMAND LIST lists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Filter<'a> {
    /// All.
    None,
    /// Those of a module; there are no modules.
    Module,
    /// Those of a category of Redis' access control lists, named without its `@`.
    Category(&'a [u8]),
    /// Those that match a pattern, whatever their case.
    Pattern(&'a [u8]),
}

impl Catalogue<'_> {
    /// Writes the answer.
    pub fn reply(&self, out: &mut ReplyWriter<'_>) {
        match self {
            Catalogue::Count => out.integer(COMMANDS.len() as i64),
            Catalogue::All => {
                out.array(COMMANDS.len());
                COMMANDS.iter().for_each(|entry| info(entry, out));
            }
            Catalogue::Info(names) => {
                out.array(names.len());
                for name in names.iter() {
                    match find_served(name) {
                        Some(entry) => info(entry, out),
                        None => out.null(),
                    }
                }
            }
            Catalogue::Docs(names) if names.is_empty() => docs_map(COMMANDS.iter(), COMMANDS.len(), out),
            Catalogue::Docs(names) => {
                let found = || names.iter().filter_map(find_served);
                docs_map(found(), found().count(), out);
            }
            Catalogue::List(filter) => {
                let wanted = || every_entry().filter(|entry| filter.wants(entry));
                out.array(wanted().count());
                wanted().for_each(|entry| out.bulk(entry.name.as_bytes()));
            }
            Catalogue::Keys(keys, request) => {
                out.array(keys.of(*request).count());
                keys.of(*request).for_each(|key| out.bulk(key));
            }
            Catalogue::KeysAndFlags(keys, request) => {
                out.array(keys.of(*request).count());
                for key in keys.of(*request) {
                    out.array(2);
                    out.bulk(key);
                    simple_set(keys.access_in(*request).iter().copied(), out);
                }
            }
        }
    }
}

fn every_entry() -> impl Iterator<Item = &'static Entry> {
    COMMANDS.iter().flat_map(|entry| std::iter::once(entry).chain(entry.subcommands))
}

impl Filter<'_> {
    fn wants(&self, entry: &Entry) -> bool {
        match self {
            Filter::None => true,
            Filter::Module => false,
            Filter::Category(name) => categories(entry).any(|category| category.as_bytes()[1..].eq_ignore_ascii_case(name)),
            Filter::Pattern(pattern) => glob::matches_ignoring_case(pattern, entry.name.as_bytes()),
        }
    }
}

/// All categories of Redis' access control lists that some command is in, without `@`.
pub fn all_categories() -> impl ExactSizeIterator<Item = &'static str> {
    let all: BTreeSet<&str> = every_entry().flat_map(categories).map(|name| &name[1..]).collect();
    all.into_iter().collect::<Vec<_>>().into_iter()
}

/// The commands in the category called `name`, without `@`; `None` if there is no such category.
pub fn in_category(name: &[u8]) -> Option<Vec<&'static str>> {
    let is_in = |entry: &&Entry| categories(entry).any(|category| category.as_bytes()[1..].eq_ignore_ascii_case(name));
    let found: Vec<_> = every_entry().filter(is_in).map(|entry| entry.name).collect();
    (!found.is_empty()).then_some(found)
}

/// The categories of Redis' access control lists that the entry's flags and group put it in.
fn categories(entry: &Entry) -> impl Iterator<Item = &'static str> {
    let flags = entry.flags;
    let of_group = match entry.group {
        Group::String => Some("@string"),
        Group::Generic => Some("@keyspace"),
        Group::Transactions => Some("@transaction"),
        Group::Connection => Some("@connection"),
        Group::Server | Group::Cluster | Group::Rheostat => None,
    };
    let of_flags = [
        (Flags::WRITE, "@write"),
        (Flags::READONLY, "@read"),
        (Flags::ADMIN, "@admin"),
        (Flags::ADMIN, "@dangerous"),
        (Flags::BLOCKING, "@blocking"),
    ];
    let speed = if flags.has(Flags::FAST) { "@fast" } else { "@slow" };
    of_group.into_iter().chain(of_flags.into_iter().filter(move |(flag, _)| flags.has(*flag)).map(|(_, name)| name)).chain([speed])
}

fn simple_set(names: impl Iterator<Item = &'static str> + Clone, out: &mut ReplyWriter<'_>) {
    out.set(names.clone().count());
    names.for_each(|name| out.simple(name));
}

/// One element of `COMMAND INFO`, as Redis 7 has it.
fn info(entry: &Entry, out: &mut ReplyWriter<'_>) {
    out.array(10);
    out.bulk(entry.name.as_bytes());
    out.integer(entry.arity.into());
    let flags: Vec<_> = entry.flags.names().collect();
    simple_set(flags.into_iter(), out);
    let (first, last, step) = entry.keys.map_or((0, 0, 0), |keys| (keys.first.into(), keys.last.into(), keys.step.into()));
    out.integer(first);
    out.integer(last);
    out.integer(step);
    let categories: Vec<_> = categories(entry).collect();
    simple_set(categories.into_iter(), out);
    out.set(entry.tips.len());
    entry.tips.iter().for_each(|tip| out.bulk(tip.as_bytes()));
    out.set(usize::from(entry.keys.is_some()));
    if let Some(keys) = &entry.keys {
        key_specification(keys, out);
    }
    out.set(entry.subcommands.len());
    entry.subcommands.iter().for_each(|subcommand| info(subcommand, out));
}

fn key_specification(keys: &Keys, out: &mut ReplyWriter<'_>) {
    out.map(3);
    out.bulk(b"flags");
    simple_set(keys.access.iter().copied(), out);
    out.bulk(b"begin_search");
    out.map(2);
    out.bulk(b"type");
    out.bulk(b"index");
    out.bulk(b"spec");
    out.map(1);
    out.bulk(b"index");
    out.integer(keys.first.into());
    out.bulk(b"find_keys");
    out.map(2);
    out.bulk(b"type");
    out.bulk(b"range");
    out.bulk(b"spec");
    out.map(3);
    out.bulk(b"lastkey");
    // Here the last key is counted from the first one.
    out.integer(if keys.last < 0 { keys.last.into() } else { i64::from(keys.last) - i64::from(keys.first) });
    out.bulk(b"keystep");
    out.integer(keys.step.into());
    out.bulk(b"limit");
    out.integer(0);
}

fn docs_map(entries: impl Iterator<Item = &'static Entry>, count: usize, out: &mut ReplyWriter<'_>) {
    out.map(count);
    for entry in entries {
        out.bulk(entry.name.as_bytes());
        docs(entry, out);
    }
}

fn docs(entry: &Entry, out: &mut ReplyWriter<'_>) {
    out.map(4 + usize::from(!entry.arguments.is_empty()) + usize::from(!entry.subcommands.is_empty()));
    for (name, text) in [("summary", entry.summary), ("since", entry.since), ("group", entry.group.name()), ("complexity", entry.complexity)] {
        out.bulk(name.as_bytes());
        out.bulk(text.as_bytes());
    }
    if !entry.arguments.is_empty() {
        out.bulk(b"arguments");
        out.array(entry.arguments.len());
        entry.arguments.iter().for_each(|part| argument(part, out));
    }
    if !entry.subcommands.is_empty() {
        out.bulk(b"subcommands");
        docs_map(entry.subcommands.iter(), entry.subcommands.len(), out);
    }
}

fn argument(argument: &Argument, out: &mut ReplyWriter<'_>) {
    let is_key = argument.kind == super::Kind::Key;
    let flags = [(argument.is_optional, "optional"), (argument.is_multiple, "multiple")];
    let flags = flags.into_iter().filter(|(is_set, _)| *is_set).map(|(_, name)| name);
    let has_flags = argument.is_optional || argument.is_multiple;
    let optional_fields = [is_key, argument.token.is_some(), has_flags, !argument.parts.is_empty()];
    out.map(2 + optional_fields.into_iter().filter(|is_there| *is_there).count());
    out.bulk(b"name");
    out.bulk(argument.name.as_bytes());
    out.bulk(b"type");
    out.bulk(argument.kind.name().as_bytes());
    if is_key {
        out.bulk(b"key_spec_index");
        out.integer(0);
    }
    if let Some(token) = argument.token {
        out.bulk(b"token");
        out.bulk(token.as_bytes());
    }
    if has_flags {
        out.bulk(b"flags");
        simple_set(flags, out);
    }
    if !argument.parts.is_empty() {
        out.bulk(b"arguments");
        out.array(argument.parts.len());
        argument.parts.iter().for_each(|part| self::argument(part, out));
    }
}
