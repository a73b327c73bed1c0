//! What a page asks of one key: its versions in every data center, what reads of each level return there, a counter's rights.

use super::ask::{Failed, Ways, each_data_center};
use super::refusal::Refusal;
use super::{Console, shown};
use crate::keyspace::KeyspaceInfo;
use crate::topology::NodeId;
use bytes::Bytes;
use futures::future::join_all;
use rheostat_core::dial::Level;
use rheostat_proto::dial::level_out;
use rheostat_proto::v1;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Keys of one question, and the bytes of one.
const MOST_KEYS: usize = 4;
const MOST_KEY_BYTES: usize = 4096;

/// Versions of one key that are told, the newest.
const MOST_VERSIONS: usize = 24;

/// Values of more bytes are not read.
const MOST_VALUE_BYTES: u64 = 64 << 10;

/// How long a read for a version's value may take, and one of a level, in milliseconds.
const VALUE_MS: u32 = 300;
const DIAL_MS: u32 = 2_000;

/// Keys, in hexadecimal digits: a page may ask for any bytes.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Keys {
    keyspace: String,
    keys: Vec<String>,
    /// Whether short values are wanted too.
    #[serde(default)]
    values: bool,
}

/// One key.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OneKey {
    pub(super) keyspace: String,
    pub(super) key: String,
}

pub(super) fn key_in(digits: &str) -> Result<Bytes, Refusal> {
    let bytes = digits.as_bytes();
    if bytes.len() > 2 * MOST_KEY_BYTES {
        return Err(Refusal::bad(format!("keys of more than {MOST_KEY_BYTES} bytes are not asked for here")));
    }
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let pair = |pair: &[u8]| match *pair {
        [high, low] => Some((digit(high)? * 16 + digit(low)?) as u8),
        _ => None,
    };
    let key: Option<Vec<u8>> = bytes.chunks(2).map(pair).collect();
    key.map(Bytes::from).ok_or_else(|| Refusal::bad("a key is given in pairs of hexadecimal digits"))
}

/// `wait` milliseconds for a read of `key` at `level`; 0 is the keyspace's own.
fn get(keyspace: &str, key: &Bytes, level: i32, guarantees: &[i32], wait: u32) -> v1::GetRequest {
    let context = v1::Context { keyspace: keyspace.into(), deadline_ms: wait, ..v1::Context::default() };
    // Said in so many words, so that no service level of the keyspace takes its place.
    let dial = v1::Dial { level, guarantees: guarantees.to_vec(), service_level: "none".into(), ..v1::Dial::default() };
    v1::GetRequest { context: Some(context), key: key.clone(), dial: Some(dial) }
}

pub(super) fn version_name(version: &v1::Version) -> String {
    let written = version.written.unwrap_or_default();
    format!("{}.{}@{}", written.millis, written.counter, version.origin)
}

fn read_told(read: &v1::Read) -> Value {
    json!({ "value": read.value.as_ref().map(|value| shown::json(value)), "version": read.version.as_ref().map(version_name) })
}

/// What one node says of one key.
async fn explain(ways: Arc<Ways>, node: NodeId, keyspace: String, key: Bytes, values: bool) -> Result<Value, Failed> {
    let began = Instant::now();
    let request = v1::ExplainRequest { keyspace: keyspace.clone(), key: key.clone(), session: String::new() };
    let explained = ways.to(node).explain(request).await?;
    let took_us = began.elapsed().as_micros() as u64;
    let mut told = Map::new();
    if values && explained.versions.iter().all(|version| version.length.unwrap_or(0) <= MOST_VALUE_BYTES) {
        // The newest that has arrived, and what a new session reads.
        for level in [v1::Level::Eventual, v1::Level::Unspecified] {
            if let Ok(v1::GetResponse { read: Some(read), .. }) = ways.to(node).get(get(&keyspace, &key, level.into(), &[], VALUE_MS)).await
                && let (Some(version), Some(value)) = (&read.version, &read.value)
            {
                told.insert(version_name(version), shown::json(value));
            }
        }
    }
    let version = |version: &v1::ExplainedVersion| {
        let id = version.version.clone().unwrap_or_default();
        let written = id.written.unwrap_or_default();
        json!({
            "millis": written.millis, "counter": written.counter, "origin": id.origin, "length": version.length, "expires_at_ms": version.expires_at_ms,
            "dependencies": version.dependencies, "hidden": version.hidden,
        })
    };
    Ok(json!({
        "took_us": took_us, "partition": explained.partition, "versions": explained.versions.iter().take(MOST_VERSIONS).map(version).collect::<Vec<_>>(),
        "more": explained.versions.len().saturating_sub(MOST_VERSIONS), "values": told,
    }))
}

/// Reads of `key` at each level that `keyspace` serves, one after the other.
async fn dial(ways: Arc<Ways>, node: NodeId, keyspace: String, key: Bytes, levels: Vec<(&'static str, i32, Vec<i32>)>) -> Result<Value, Failed> {
    let request = v1::ExplainRequest { keyspace: keyspace.clone(), key: key.clone(), session: String::new() };
    let longest = ways.to(node).explain(request).await?.versions.iter().filter_map(|version| version.length).max().unwrap_or(0);
    let began = Instant::now();
    ways.to(node).topology(v1::TopologyRequest {}).await?;
    let way_us = began.elapsed().as_micros() as u64;
    if longest > MOST_VALUE_BYTES {
        return Ok(json!({ "way_us": way_us, "refused": format!("its value has {longest} bytes; more than {MOST_VALUE_BYTES} are not read here") }));
    }
    let mut reads = Vec::new();
    for (name, level, guarantees) in levels {
        let began = Instant::now();
        let answer = ways.to(node).get(get(&keyspace, &key, level, &guarantees, DIAL_MS)).await;
        let took_us = began.elapsed().as_micros() as u64;
        let mut told = json!({ "level": name, "took_us": took_us });
        match answer {
            Ok(answer) => {
                let quality = answer.quality.unwrap_or_default();
                told["read"] = read_told(&answer.read.unwrap_or_default());
                told["staleness_ms"] = quality.staleness_ms.into();
                let achieved = rheostat_proto::dial::level_in(quality.level, &quality.guarantees).ok().flatten();
                told["achieved"] = achieved.map(|level| level.to_string()).into();
            }
            Err(failed) => told["error"] = failed.why.into(),
        }
        reads.push(told);
    }
    Ok(json!({ "way_us": way_us, "reads": reads }))
}

fn counter_told(counter: v1::Counter) -> Value {
    let rights = counter.rights.iter().map(|rights| {
        let standing = match rights.standing() {
            v1::Standing::Member => "member",
            v1::Standing::Reclaiming => "reclaiming",
            v1::Standing::Reclaimed => "reclaimed",
        };
        // 64 bits are more than a page's numbers hold exactly.
        json!({ "data_center": rights.data_center, "down": rights.down.map(|right| right.to_string()), "up": rights.up.map(|right| right.to_string()), "standing": standing, "heir": rights.heir })
    });
    json!({
        "value": counter.value.to_string(), "lower": counter.lower.map(|bound| bound.to_string()), "upper": counter.upper.map(|bound| bound.to_string()),
        "rights": rights.collect::<Vec<_>>(),
    })
}

impl Console {
    pub(super) fn keyspace(&self, name: &str) -> Result<&KeyspaceInfo, Refusal> {
        self.router.keyspace_named(name).ok_or_else(|| Refusal::bad("there is no such keyspace"))
    }

    /// The answers of a node in each data center, under their names.
    pub(super) fn by_data_center(&self, answers: Vec<(String, Result<Value, Failed>)>) -> Vec<Value> {
        let topology = self.router.topology();
        let told = |(name, (node, answer)): (&String, (String, Result<Value, Failed>))| {
            let mut told = answer.unwrap_or_else(|failed| json!({ "error": failed.why }));
            told["name"] = name.as_str().into();
            told["node"] = node.into();
            told
        };
        topology.data_centers.iter().zip(answers).map(told).collect()
    }

    /// Every data center's versions of some keys, and why each is visible there or not.
    pub(super) async fn key(self: &Arc<Self>, Keys { keyspace, keys, values }: Keys) -> Result<Value, Refusal> {
        let keyspace = self.keyspace(&keyspace)?;
        if keys.is_empty() || keys.len() > MOST_KEYS {
            return Err(Refusal::bad(format!("one to {MOST_KEYS} keys are asked for at once")));
        }
        let keys = keys.iter().map(|digits| key_in(digits)).collect::<Result<Vec<Bytes>, Refusal>>()?;
        let ways = self.ways();
        let values = values && !keyspace.siblings;
        // At the same time: of a data center that keeps silent only so much is waited for as of one key.
        let mut asking = Vec::with_capacity(keys.len());
        for key in &keys {
            let (name, asked) = (keyspace.name.clone(), key.clone());
            let ask = move |ways, node| explain(ways, node, name.clone(), asked.clone(), values);
            asking.push(each_data_center(&self.router, &ways, ask));
        }
        let answers = join_all(asking).await;
        let told: Vec<Value> = keys
            .iter()
            .zip(answers)
            .map(|(key, answers)| {
                json!({ "key": shown::json(key), "partition": self.router.partition_of(key).0, "data_centers": self.by_data_center(answers) })
            })
            .collect();
        Ok(json!({
            "keyspace": keyspace.name, "protocol": keyspace.protocol, "level": keyspace.level.to_string(),
            "at_ms": self.router.shared().clocks.physical_ms(), "keys": told,
        }))
    }

    /// The same read at each level, in each data center.
    pub(super) async fn dial(self: &Arc<Self>, OneKey { keyspace, key }: OneKey) -> Result<Value, Refusal> {
        let (keyspace, key) = (self.keyspace(&keyspace)?, key_in(&key)?);
        let (served, refused): (Vec<Level>, Vec<Level>) = Level::WORDS.into_iter().partition(|level| keyspace.serves(*level));
        let levels = served.into_iter().map(|level| {
            let (number, guarantees) = level_out(level);
            (level.name(), number, guarantees)
        });
        let levels: Vec<_> = levels.collect();
        let name = keyspace.name.clone();
        let asked = key.clone();
        let ask = move |ways, node| dial(ways, node, name.clone(), asked.clone(), levels.clone());
        let answers = each_data_center(&self.router, &self.ways(), ask).await;
        let refused = refused.into_iter().map(|level| json!({ "level": level.name(), "why": keyspace.does_not_serve(level) }));
        Ok(json!({
            "keyspace": keyspace.name, "level": keyspace.level.to_string(), "key": shown::json(&key), "data_centers": self.by_data_center(answers),
            "refused": refused.collect::<Vec<_>>(), "deadline_ms": DIAL_MS,
        }))
    }

    /// A counter, as each data center sees it.
    pub(super) async fn counter(self: &Arc<Self>, OneKey { keyspace, key }: OneKey) -> Result<Value, Refusal> {
        let (keyspace, key) = (self.keyspace(&keyspace)?, key_in(&key)?);
        let context = v1::Context {
            keyspace: keyspace.name.clone(),
            deadline_ms: Duration::from_millis(DIAL_MS.into()).as_millis() as u32,
            ..v1::Context::default()
        };
        let request = v1::LookRequest { context: Some(context), key: key.clone(), dial: None };
        let ask = move |ways: Arc<Ways>, node| {
            let request = request.clone();
            async move { ways.to(node).look(request).await.map(|answer| counter_told(answer.counter.unwrap_or_default())) }
        };
        let answers = each_data_center(&self.router, &self.ways(), ask).await;
        Ok(json!({ "keyspace": keyspace.name, "key": shown::json(&key), "data_centers": self.by_data_center(answers) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_any_bytes_and_nothing_else() {
        assert_eq!(key_in("00fF61").ok(), Some(Bytes::from_static(b"\x00\xffa")));
        assert_eq!(key_in("").ok(), Some(Bytes::new()));
        for wrong in ["0", "0g", "+1", " 1", "é"] {
            assert!(key_in(wrong).is_err(), "{wrong}");
        }
        assert!(key_in(&"00".repeat(MOST_KEY_BYTES)).is_ok() && key_in(&"00".repeat(MOST_KEY_BYTES + 1)).is_err());
    }
}
