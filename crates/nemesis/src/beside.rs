//! Values that stand side by side: where a key may have several, half of the keys are written by clients who say what they have seen. A record of its own goes to a checker of its own.

use crate::agreed;
use crate::record::{key_name, observation, version_id};
use crate::world::{World, lock};
use rheostat_checkers::siblings::{Look, SiblingHistory, Wrote};
use rheostat_checkers::{KeyId, UniqueValue};
use rheostat_client::{Client, Error, Put, Read, Session, Version};
use rheostat_core::DcId;
use std::time::Duration;

/// Whether key `key` is written by clients only who say what they have seen of it.
pub(crate) fn is_shared(key: usize) -> bool {
    key.is_multiple_of(2)
}

/// Whether those that answer a read and those that have a write are together more than there are, of a keyspace with these `options` in so many data centers.
pub(crate) fn quorums_meet(options: &toml::Table, data_centers: u8) -> bool {
    let all = i64::from(data_centers);
    let sequential = options.get("consistency").and_then(toml::Value::as_str) == Some("sequential");
    let number = |name: &str, otherwise: i64| options.get(name).and_then(toml::Value::as_integer).filter(|number| *number > 0).unwrap_or(otherwise);
    let usual = if sequential { all / 2 + 1 } else { 1 };
    number("reads", usual) + number("writes", usual) > all && number("asked", all) == all
}

fn values(names: &[String], reads: &[Read]) -> Vec<UniqueValue> {
    reads.iter().filter_map(|read| observation(names, read).value).collect()
}

/// What a client has seen last of a key, for its next write there.
#[derive(Clone, Default, Debug)]
pub(crate) struct Seen(Option<(usize, Vec<UniqueValue>)>);

impl Seen {
    /// The key that it is of.
    pub(crate) fn key(&self) -> Option<usize> {
        self.0.as_ref().map(|(key, _)| *key)
    }

    /// A read of `key` that was asked for at `begun_us` found `reads`: all that stand side by side, or the newest only.
    pub(crate) fn looked(&mut self, world: &World, key: usize, begun_us: u64, reads: &[Read], all: bool) {
        let names = &world.data_centers;
        let newest = reads.iter().filter_map(|read| observation(names, read).version).max();
        let found = values(names, reads);
        if all {
            self.0 = Some((key, found.clone()));
        }
        lock(&world.beside).looks.push(Look { key: KeyId(key as u32), begun_us, all, found, newest });
    }

    /// `value` is being written to `key`: in the place of what was seen of it, or of whatever is there, as `replaces` says. Returns the write's place in the record.
    pub(crate) fn begin_write(&self, world: &World, key: usize, value: Option<UniqueValue>, replaces: bool) -> usize {
        let seen = self.0.as_ref().filter(|(of, _)| *of == key).map(|(_, seen)| seen.clone());
        let seen = replaces.then(|| seen.unwrap_or_default());
        let mut beside = lock(&world.beside);
        beside.wrote.push(Wrote { key: KeyId(key as u32), value, seen, acknowledged: None, expires: false });
        beside.wrote.len() - 1
    }

    /// The write at `place` was acknowledged under `version`.
    pub(crate) fn wrote(&mut self, world: &World, place: usize, version: &Version, replaces: bool) {
        let now_us = lock(&world.recorder).now_us();
        let mut beside = lock(&world.beside);
        let wrote = &mut beside.wrote[place];
        wrote.acknowledged = Some((now_us, version_id(&world.data_centers, version)));
        if replaces {
            let seen = wrote.seen.iter().flatten().copied().chain(wrote.value).collect();
            self.0 = Some((wrote.key.index(), seen));
        }
    }

    /// A look, or a write in the place of what was seen, has failed, and may have changed what the session says of that: it looks again first.
    pub(crate) fn failed(&mut self) {
        self.0 = None;
    }
}

/// Writes `value` to `key` in the place of what `session` has seen of it.
pub(crate) async fn replace(session: &mut Session, key: usize, value: UniqueValue) -> Result<Version, Error> {
    session.replace(Put::new(key_name(key), value.0.to_string())).await
}

/// What stands in the end: all values of every key, in every data center.
///
/// # Errors
/// In words: they do not agree.
pub(crate) async fn settle(clients: &[Client], world: &World, patience: Duration) -> Result<(), String> {
    let keys = lock(&world.recorder).keys();
    let finals = agreed(clients, patience, async |session| all(session, keys, &world.data_centers).await).await?;
    let there = world.there().into_iter().map(|dc| DcId(dc as u8)).zip(finals);
    let each = there.flat_map(|(dc, found)| found.into_iter().zip(0..).map(move |(found, key)| (dc, KeyId(key), found)));
    lock(&world.beside).finals = each.collect();
    Ok(())
}

/// By key, the values in their order.
async fn all(mut session: Session, keys: usize, names: &[String]) -> Result<Vec<Vec<UniqueValue>>, String> {
    let mut there = Vec::new();
    for key in 0..keys {
        let reads = session.siblings(key_name(key)).await.map_err(|error| format!("{}: {error}", key_name(key)))?;
        let mut found = values(names, &reads);
        found.sort_unstable();
        there.push(found);
    }
    Ok(there)
}

/// Checks what was recorded; returns what was checked, in words.
///
/// # Errors
/// In words: what was not kept.
pub(crate) fn check(mut history: SiblingHistory, quorums_meet: bool, may_lose: bool) -> Result<String, String> {
    (history.quorums_meet, history.may_lose) = (quorums_meet, may_lose);
    history.check()?;
    let replaced = history.wrote.iter().filter(|wrote| wrote.seen.is_some()).count();
    let several = history.looks.iter().filter(|look| look.found.len() > 1).count();
    let met = if quorums_meet && !may_lose { "; every read found what a quorum had acknowledged before it" } else { "" };
    Ok(format!("side by side: {replaced} writes in the place of what was seen, {several} looks that found several values{met}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quorums_meet_by_the_options_of_the_keyspace() {
        let meet = |options: &str, data_centers| quorums_meet(&options.parse().unwrap(), data_centers);
        assert!(!meet("", 3));
        assert!(meet("", 1));
        assert!(meet("consistency = \"sequential\"", 3) && meet("consistency = \"sequential\"", 4));
        assert!(meet("reads = 1\nwrites = 3", 3) && !meet("reads = 1\nwrites = 2", 3) && !meet("reads = 2\nwrites = 2\nasked = 2", 3));
        assert!(!meet("consistency = \"sequential\"\nreads = 1", 3));
    }
}
