//! What a restore writes, and where: at a data center that holds the key's partition, in requests that its nodes take.

use super::{Clock, PAUSE};
use crate::Failure;
use bytes::Bytes;
use rheostat_client::backup::{Imported, import};
use rheostat_client::v1::export_request::Step;
use rheostat_client::v1::export_response::Answer;
use rheostat_client::{Client, Error, Put, v1};
use rheostat_core::answer::Read;
use rheostat_core::export::Exported;
use rheostat_core::slots;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Partitions that are asked for at once.
const ASKED_AT_ONCE: usize = 32;

/// The data centers that a keyspace is written to.
pub(super) struct Targets {
    /// The nodes of each.
    data_centers: Vec<Arc<[Client]>>,
    /// By partition, its place among them.
    of: Vec<usize>,
}

impl Targets {
    /// Those for `keyspace`: `at`, and for each partition that it does not hold another one that does. `clients` are of nodes of all data centers.
    ///
    /// Errors: nobody holds a partition, of those that can be asked.
    pub(super) async fn find(keyspace: &str, at: &str, topology: &v1::TopologyResponse, clients: &[Client]) -> Result<Targets, Failure> {
        let others = topology.data_centers.iter().map(String::as_str).filter(|name| *name != at);
        let mut of: Vec<Option<usize>> = vec![None; topology.partitions as usize];
        let mut data_centers = Vec::new();
        for name in std::iter::once(at).chain(others) {
            let open: Vec<u32> = (0_u32..).zip(&of).filter(|(_, place)| place.is_none()).map(|(partition, _)| partition).collect();
            let there: Arc<[Client]> = clients.iter().filter(|client| client.topology().data_center == name).cloned().collect();
            // Where it was said to write to, what is busy now is waited for.
            for partition in held(&there, keyspace, open, name == at).await {
                of[partition as usize] = Some(data_centers.len());
            }
            data_centers.push(there);
        }
        let held = |(partition, place): (usize, Option<usize>)| {
            place.ok_or_else(|| format!("keyspace {keyspace}: no data center that holds partition {partition} can be reached; nothing was restored"))
        };
        let of = of.into_iter().enumerate().map(held).collect::<Result<Vec<usize>, Failure>>()?;
        Ok(Targets { data_centers, of })
    }

    /// How many data centers there are.
    pub(super) fn len(&self) -> usize {
        self.data_centers.len()
    }

    /// The place of the one that takes `key`.
    pub(super) fn of(&self, key: &[u8]) -> usize {
        self.of.get(usize::from(slots::partition_of(key, self.of.len() as u16).0)).copied().unwrap_or(0)
    }

    /// The nodes of the one at `place`.
    pub(super) fn clients(&self, place: usize) -> Arc<[Client]> {
        self.data_centers[place].clone()
    }
}

/// Which of `partitions` the data center of `clients` holds; those of which nobody there can say it, if `in_doubt`.
pub(super) async fn held(clients: &Arc<[Client]>, keyspace: &str, partitions: Vec<u32>, in_doubt: bool) -> Vec<u32> {
    let keyspace: Arc<str> = keyspace.into();
    let mut partitions = partitions.into_iter();
    let (mut asking, mut found) = (JoinSet::new(), Vec::new());
    loop {
        while asking.len() < ASKED_AT_ONCE
            && let Some(partition) = partitions.next()
        {
            let (clients, keyspace) = (clients.clone(), keyspace.clone());
            asking.spawn(async move {
                for client in clients.iter() {
                    if let Ok(holds) = holds(client, &keyspace, partition).await {
                        return (partition, holds);
                    }
                }
                (partition, in_doubt && !clients.is_empty())
            });
        }
        match asking.join_next().await {
            None => return found,
            Some(Ok((partition, true))) => found.push(partition),
            Some(_) => {}
        }
    }
}

/// Whether the data center of `client` holds `partition`. Servers are asked as for a backup, which is over at once.
async fn holds(client: &Client, keyspace: &str, partition: u32) -> Result<bool, Error> {
    let step = Some(Step::Hold(v1::ExportHold { for_ms: 1 }));
    let request = v1::ExportRequest { keyspace: keyspace.to_owned(), partition, name: 0, step };
    match client.admin().export(client.request(request)).await?.into_inner().answer {
        Some(Answer::Held(held)) => Ok(held.holds),
        _ => Err(Error::Server("a node answered something else than was asked".into())),
    }
}

/// Writes `keys` at one of `clients`, which are nodes of one data center.
///
/// What these refuse together they are asked for by halves, and values that stand side by side one by one: a request can be as small as what a client wrote once (`limits.max_request_bytes`).
pub(super) async fn write(clients: &[Client], keyspace: &str, keys: Vec<Exported>, (patience, clock): (Duration, Clock)) -> Result<Imported, Error> {
    let mut all = Imported::default();
    let mut left = vec![keys];
    while let Some(mut keys) = left.pop() {
        let done = match import(clients, keyspace, keys.clone(), patience).await {
            Err(Error::Refused(_)) if keys.len() > 1 => {
                let rest = keys.split_off(keys.len() / 2);
                left.extend([rest, keys]);
                continue;
            }
            Err(Error::Refused(why)) => match keys.pop().filter(|one| one.reads.len() > 1) {
                Some(one) => one_by_one(clients, keyspace, &one, (patience, clock)).await?,
                None => return Err(Error::Refused(why)),
            },
            done => done?,
        };
        all.written += done.written;
        all.deleted += done.deleted;
    }
    Ok(all)
}

/// Writes the values of a key that stand side by side. Nothing is changed by doing it again, from the first one on.
async fn one_by_one(clients: &[Client], keyspace: &str, one: &Exported, (patience, clock): (Duration, Clock)) -> Result<Imported, Error> {
    let until = Instant::now() + patience;
    for client in clients.iter().cycle() {
        match beside(clients, client, keyspace, one, (patience, clock)).await {
            Err(Error::Busy(_) | Error::Timeout(_) | Error::Unreachable(_)) if Instant::now() < until => tokio::time::sleep(PAUSE).await,
            done => return done,
        }
    }
    Err(Error::Refused("no node to ask".into()))
}

/// The oldest in the place of whatever is there, and each of the others beside those before it.
async fn beside(
    clients: &[Client],
    client: &Client,
    keyspace: &str,
    one: &Exported,
    (patience, clock): (Duration, Clock),
) -> Result<Imported, Error> {
    let now_ms = clock.now_ms();
    let reads: Vec<&Read> = one.reads.iter().rev().filter(|read| read.expires_ms == 0 || read.expires_ms > now_ms).collect();
    let oldest: Vec<Read> = reads.iter().take(1).map(|read| (*read).clone()).collect();
    let done = import(clients, keyspace, vec![Exported { key: one.key.clone(), reads: oldest, counter: None }], patience).await?;
    for read in reads.into_iter().skip(1) {
        let value = read.value.as_ref().ok_or_else(|| Error::Refused("values side by side, one of which is none".into()))?;
        let mut put = Put::new(Bytes::copy_from_slice(&one.key), Bytes::copy_from_slice(value));
        put.expires_after = (read.expires_ms > 0).then(|| Duration::from_millis(read.expires_ms - now_ms));
        // A session that has seen nothing writes in the place of nothing.
        client.session(keyspace).replace(put).await?;
    }
    Ok(done)
}
