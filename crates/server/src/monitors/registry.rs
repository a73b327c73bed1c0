//! Which predicates there are. Every node has the whole list; of two entries with one name the later counts, everywhere the same one.

use rheostat_core::wire::Wire;
use rheostat_core::wire_struct;
use rheostat_monitor::predicate::{Definition, Predicate};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// In the data directory.
pub(super) const FILE: &str = ".monitors";

/// Predicates at once; one with a pattern stands for any number.
pub(super) const MOST: usize = 1000;

/// With those that were removed, which are remembered so that nobody brings them back.
const MOST_REMEMBERED: usize = 5000;

/// A predicate that there is, or was.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Entry {
    definition: Definition,
    /// Grows with each change, about as time does.
    stamp: u64,
    removed: bool,
}

wire_struct!(Entry { definition, stamp, removed });

/// See the module.
#[derive(Default)]
pub(super) struct Registry {
    entries: BTreeMap<String, (Entry, Option<Arc<Predicate>>)>,
}

#[derive(Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct Saved {
    #[serde(default)]
    monitor: Vec<SavedEntry>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SavedEntry {
    name: String,
    keyspace: String,
    expression: String,
    #[serde(default)]
    infer: bool,
    #[serde(default)]
    everywhere: bool,
    stamp: u64,
    #[serde(default)]
    removed: bool,
}

/// Reads what [`Registry::text`] wrote. Errors: in words for the operator.
pub(super) fn read(text: &str) -> Result<Vec<Entry>, String> {
    let saved: Saved = toml::from_str(text).map_err(|error| error.to_string())?;
    let entry = |SavedEntry { name, keyspace, expression, infer, everywhere, stamp, removed }| Entry {
        definition: Definition { name, keyspace, expression, infer, everywhere },
        stamp,
        removed,
    };
    Ok(saved.monitor.into_iter().map(entry).collect())
}

impl Registry {
    /// All that there are.
    pub(super) fn live(&self) -> impl Iterator<Item = Arc<Predicate>> + '_ {
        self.entries.values().filter_map(|(_, predicate)| predicate.clone())
    }

    /// All, and those that were removed.
    pub(super) fn entries(&self) -> Vec<Entry> {
        self.entries.values().map(|(entry, _)| entry.clone()).collect()
    }

    fn stamp(&self, name: &str, now_ms: u64) -> u64 {
        let before = self.entries.get(name).map_or(0, |(entry, _)| entry.stamp);
        (now_ms << 8).max(before.saturating_add(1)).min(i64::MAX as u64)
    }

    /// The entry for a new predicate, which is not taken in yet. Errors: in words for its author.
    pub(super) fn add(&self, predicate: Predicate, now_ms: u64) -> Result<Entry, String> {
        let name = &predicate.definition.name;
        if self.entries.get(name).is_some_and(|(_, live)| live.is_some()) {
            return Err(format!("there is a monitor called `{name}` already; remove it first"));
        }
        if self.live().count() >= MOST {
            return Err(format!("there are {MOST} monitors already; one with a pattern (--infer) can stand for any number"));
        }
        if !self.entries.contains_key(name) && self.entries.len() >= MOST_REMEMBERED {
            return Err(format!("{MOST_REMEMBERED} monitors have had a name, which the nodes remember: use one again that was removed"));
        }
        Ok(Entry { stamp: self.stamp(name, now_ms), definition: predicate.definition, removed: false })
    }

    /// The entry that removes `name`, which is not taken in yet; `None` if there is none.
    pub(super) fn remove(&self, name: &str, now_ms: u64) -> Option<Entry> {
        let (entry, live) = self.entries.get(name)?;
        let definition = Definition { expression: String::new(), ..entry.definition.clone() };
        live.is_some().then(|| Entry { definition, stamp: self.stamp(name, now_ms), removed: true })
    }

    /// Takes in `entries`; returns those that are news.
    pub(super) fn merge(&mut self, entries: Vec<Entry>) -> Vec<Entry> {
        let mut news = Vec::new();
        for entry in entries {
            let name = entry.definition.name.clone();
            let order = |entry: &Entry| (entry.stamp, entry.to_bytes());
            let known = self.entries.get(&name);
            if known.is_some_and(|(known, _)| order(known) >= order(&entry)) || known.is_none() && self.entries.len() >= MOST_REMEMBERED {
                continue;
            }
            let predicate = match Predicate::new(entry.definition.clone()) {
                _ if entry.removed => None,
                Ok(predicate) => Some(Arc::new(predicate)),
                // Of another release, perhaps: it is kept for those who understand it.
                Err(why) => {
                    tracing::warn!(monitor = %name, why, "this monitor is not understood here");
                    None
                }
            };
            self.entries.insert(name, (entry.clone(), predicate));
            news.push(entry);
        }
        news
    }

    /// As a file.
    pub(super) fn text(&self) -> String {
        let saved = |(entry, _): &(Entry, Option<Arc<Predicate>>)| {
            let Definition { name, keyspace, expression, infer, everywhere } = entry.definition.clone();
            SavedEntry { name, keyspace, expression, infer, everywhere, stamp: entry.stamp, removed: entry.removed }
        };
        // Nothing in it has no form in TOML.
        toml::to_string(&Saved { monitor: self.entries.values().map(saved).collect() }).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn predicate(name: &str, expression: &str) -> Predicate {
        let definition = Definition { name: name.into(), keyspace: "k".into(), expression: expression.into(), infer: false, everywhere: true };
        Predicate::new(definition).unwrap()
    }

    #[test]
    fn two_nodes_come_to_the_same_whatever_the_order() {
        let (mut one, mut other) = (Registry::default(), Registry::default());
        let first = one.add(predicate("a", "x = 1"), 100).unwrap();
        let second = other.add(predicate("a", "x = 2"), 100).unwrap();
        one.merge(vec![first.clone()]);
        other.merge(vec![second.clone()]);
        assert_eq!((one.merge(vec![second.clone()]).len() + other.merge(vec![first.clone()]).len()), 1, "one of them wins");
        assert_eq!(one.entries(), other.entries());
        let gone = one.remove("a", 50).unwrap();
        assert_eq!(one.merge(vec![gone.clone()]).len(), 1, "a clock that goes back does not bring it back");
        assert_eq!((one.live().count(), one.merge(vec![first, second]).len()), (0, 0));
        assert_eq!(other.merge(one.entries()).len(), 1);
        assert!(other.remove("a", 60).is_none());
    }

    #[test]
    fn what_is_written_is_read() {
        let mut registry = Registry::default();
        let entries = vec![
            registry.add(predicate("a", "`a \"b\"` = 'x'\n && y >= 3"), 7).unwrap(),
            registry.add(predicate("b", "x = 1"), u64::MAX >> 8).unwrap(),
        ];
        registry.merge(entries);
        let mut again = Registry::default();
        again.merge(read(&registry.text()).unwrap());
        assert_eq!(again.entries(), registry.entries());
        assert!(read("monitor = 3").is_err() && read("[[monitor]]\nname = \"x\"").is_err() && read("").unwrap().is_empty());
    }

    #[test]
    fn there_are_so_many_at_most_and_each_once() {
        let mut registry = Registry::default();
        for number in 0..MOST {
            let entry = registry.add(predicate(&format!("p{number}"), "x = 1"), 1).unwrap();
            registry.merge(vec![entry]);
        }
        assert!(registry.add(predicate("p0", "x = 1"), 1).unwrap_err().contains("already"));
        assert!(registry.add(predicate("more", "x = 1"), 1).unwrap_err().contains("1000"));
        // Those that were removed are remembered, so that they do not come back, and not any number of them.
        for number in 0..MOST_REMEMBERED {
            let name = format!("p{number}");
            if number >= MOST {
                let entry = registry.add(predicate(&name, "x = 1"), 1).unwrap();
                assert_eq!(registry.merge(vec![entry]).len(), 1);
            }
            let removed = registry.remove(&name, 2).unwrap();
            registry.merge(vec![removed]);
        }
        assert!(registry.add(predicate("more", "x = 1"), 3).unwrap_err().contains("use one again"));
        let again = registry.add(predicate("p7", "x = 1"), 3).unwrap();
        assert_eq!((registry.merge(vec![again]).len(), registry.live().count()), (1, 1));
    }
}
