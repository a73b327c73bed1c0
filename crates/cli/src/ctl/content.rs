//! What data centers have, compared key by key, and given to those that lack it.
//!
//! Each data center says by hash slot what it shows, of the slots that differ by key, and of the keys that differ which versions it has. What was written after the question is under way, and no
//! difference.

use super::{WALK, bits, is_group, one_of_each, version_json};
use crate::Failure;
use crate::connection::Node;
use crate::output::say;
use crate::table::{Table, printable};
use rheostat_client::{Client, Error, v1};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// What a writer has: data center, keyspace, partition.
pub(super) type Writer = (String, String, u32);

/// The most keys that are looked at, and repaired, at a time.
const MOST_KEYS: usize = 1_000;

/// A version's place in the last-writer-wins order, and where it was written.
type Name = (u64, String);

/// A key that data centers show differently.
pub(super) struct Difference {
    keyspace: String,
    slot: u32,
    key: Vec<u8>,
    /// The newest version that any of them has.
    newest: Name,
    /// By data center that holds the key, its versions.
    versions: BTreeMap<String, BTreeMap<Name, Vec<u8>>>,
}

impl Difference {
    /// The data centers that have not the newest version; if all have it, those that lack any.
    fn lack(&self) -> Vec<&str> {
        let without =
            |name: &Name| self.versions.iter().filter(|(_, versions)| !versions.contains_key(name)).map(|(dc, _)| dc.as_str()).collect::<Vec<_>>();
        let newest = without(&self.newest);
        let all: BTreeSet<&Name> = self.versions.values().flat_map(BTreeMap::keys).collect();
        if newest.is_empty() { all.into_iter().flat_map(without).collect::<BTreeSet<_>>().into_iter().collect() } else { newest }
    }
}

/// The differences, at most [`MOST_KEYS`] of them.
pub(super) async fn compare(topology: &v1::TopologyResponse, nodes: &[Node], targets: &BTreeMap<Writer, u64>) -> Result<Vec<Difference>, Failure> {
    let mut found = Vec::new();
    for keyspace in topology.keyspaces.iter().filter(|keyspace| !is_group(keyspace)) {
        let mut slots: BTreeMap<u32, BTreeSet<Option<(u64, u64)>>> = BTreeMap::new();
        let mut by_place = Vec::new();
        for (data_center, node) in clients(topology, nodes)? {
            let answer = contents(node, data_center, &keyspace.name, None, 0).await?;
            by_place.push(answer.slots.into_iter().map(|slot| (slot.slot, (slot.keys, slot.digest))).collect::<BTreeMap<_, _>>());
        }
        for slot in by_place.iter().flat_map(BTreeMap::keys) {
            slots.entry(*slot).or_insert_with(|| by_place.iter().map(|place| place.get(slot).copied()).collect());
        }
        for slot in slots.into_iter().filter(|(_, shown)| shown.len() > 1).map(|(slot, _)| slot) {
            for key in keys_that_differ(topology, nodes, &keyspace.name, slot).await? {
                if found.len() >= MOST_KEYS {
                    return Ok(found);
                }
                found.extend(look(topology, nodes, targets, (&keyspace.name, slot), key).await?);
            }
        }
    }
    Ok(found)
}

fn clients<'a>(topology: &'a v1::TopologyResponse, nodes: &'a [Node]) -> Result<Vec<(&'a str, &'a Client)>, Failure> {
    let client = |(data_center, node): (&'a str, Result<&'a Node, String>)| {
        let client = node.and_then(|node| node.client.as_ref().map_err(ToString::to_string));
        client.map(|client| (data_center, client)).map_err(|why| format!("data center {data_center}: {why}"))
    };
    one_of_each(topology, nodes).into_iter().map(client).collect()
}

fn failed(data_center: &str, error: impl Into<Error>) -> Failure {
    format!("data center {data_center}: {}", error.into())
}

async fn contents(client: &Client, data_center: &str, keyspace: &str, slot: Option<u32>, from: u32) -> Result<v1::ContentsResponse, Failure> {
    let mut request = client.request(v1::ContentsRequest { keyspace: keyspace.to_string(), slot, from });
    request.set_timeout(WALK);
    let answer = client.admin().contents(request).await;
    answer.map(|answer| answer.into_inner()).map_err(|status| failed(data_center, status))
}

async fn keys_that_differ(topology: &v1::TopologyResponse, nodes: &[Node], keyspace: &str, slot: u32) -> Result<Vec<Vec<u8>>, Failure> {
    let mut places: Vec<BTreeMap<Vec<u8>, u64>> = Vec::new();
    for (data_center, client) in clients(topology, nodes)? {
        let (mut keys, mut next) = (BTreeMap::new(), Some(0));
        while let Some(from) = next {
            let page = contents(client, data_center, keyspace, Some(slot), from).await?;
            keys.extend(page.keys.into_iter().map(|key| (key.key.to_vec(), key.digest)));
            next = page.next;
        }
        places.push(keys);
    }
    let all: BTreeSet<&Vec<u8>> = places.iter().flat_map(BTreeMap::keys).collect();
    let differs = |key: &&Vec<u8>| places.iter().any(|place| place.get(*key) != places[0].get(*key));
    Ok(all.into_iter().filter(differs).cloned().collect())
}

/// The versions of `key` everywhere, unless what differs is under way.
async fn look(
    topology: &v1::TopologyResponse,
    nodes: &[Node],
    targets: &BTreeMap<Writer, u64>,
    (keyspace, slot): (&str, u32),
    key: Vec<u8>,
) -> Result<Option<Difference>, Failure> {
    let (mut versions, mut partition) = (BTreeMap::new(), 0);
    for (data_center, client) in clients(topology, nodes)? {
        let request = v1::VersionsRequest { keyspace: keyspace.to_string(), key: key.clone().into() };
        let answer = match client.admin().versions(client.request(request)).await.map_err(Error::from) {
            Ok(answer) => answer.into_inner(),
            // It does not hold this key, or counters keep it.
            Err(Error::Refused(_)) => continue,
            Err(error) => return Err(failed(data_center, error)),
        };
        partition = answer.partition;
        let named = |stored: v1::StoredVersion| stored.version.map(|name| ((bits(name.written.as_ref()), name.origin), stored.data.to_vec()));
        versions.insert(data_center.to_string(), answer.versions.into_iter().filter_map(named).collect::<BTreeMap<Name, Vec<u8>>>());
    }
    let newest = versions.values().flat_map(BTreeMap::keys).max().cloned();
    let is_old = |name: &Name| targets.get(&(name.1.clone(), keyspace.to_string(), partition)).is_some_and(|target| name.0 <= *target);
    let difference = newest.filter(is_old).map(|newest| Difference { keyspace: keyspace.to_string(), slot, key, newest, versions });
    Ok(difference.filter(|difference| !difference.lack().is_empty()))
}

/// Gives each data center what it lacks; says how many versions that were.
pub(super) async fn repair(topology: &v1::TopologyResponse, nodes: &[Node], differences: &[Difference]) -> Result<u64, Failure> {
    let mut restored = 0;
    for Difference { keyspace, key, versions, .. } in differences {
        for (data_center, client) in clients(topology, nodes)? {
            let Some(has) = versions.get(data_center) else { continue };
            let lacks: BTreeMap<&Name, &Vec<u8>> = versions.values().flatten().filter(|(name, _)| !has.contains_key(*name)).collect();
            if lacks.is_empty() {
                continue;
            }
            let versions = lacks.into_values().map(|data| data.clone().into()).collect();
            let request = v1::RestoreRequest { keyspace: keyspace.clone(), key: key.clone().into(), versions };
            match client.admin().restore(client.request(request)).await.map_err(Error::from) {
                Ok(answer) => restored += answer.into_inner().restored,
                // It may still be on its way there.
                Err(Error::Busy(_)) => {}
                Err(error) => return Err(failed(data_center, error)),
            }
        }
    }
    Ok(restored)
}

pub(super) fn as_json(differences: &[Difference]) -> Value {
    let one = |difference: &Difference| {
        let (at, origin) = &difference.newest;
        let newest = v1::Version { written: Some(v1::Timestamp { millis: at >> 16, counter: (at & 0xFFFF) as u32 }), origin: origin.clone() };
        json!({
            "keyspace": difference.keyspace, "slot": difference.slot, "key": printable(&difference.key), "newest": version_json(&newest), "lacked_by": difference.lack(),
        })
    };
    differences.iter().map(one).collect()
}

pub(super) fn print(differences: &[Difference]) {
    if differences.is_empty() {
        say!("the content is the same in every data center");
        return;
    }
    let mut table = Table::new(["keyspace", "slot", "key", "newest version", "lacked by"]);
    for difference in differences {
        let (at, origin) = &difference.newest;
        let (key, lack) = (printable(&difference.key), difference.lack().join(", "));
        table.row([difference.keyspace.clone(), difference.slot.to_string(), key, format!("{}.{}@{origin}", at >> 16, at & 0xFFFF), lack]);
    }
    say!();
    table.print(0);
    let (count, most) = (differences.len(), if differences.len() >= MOST_KEYS { ", or more" } else { "" });
    say!("the content differs in {count} keys{most}; `rheostat ctl convergence --repair` gives each data center what it lacks");
}
