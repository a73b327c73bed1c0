//! Reading a cluster's state as of one time while everybody writes, and writing it to another cluster; what that promises stands in `docs/backup.md`.

use crate::session::is_unanswered;
use crate::v1::store_client::StoreClient;
use crate::{Client, Error, LONGEST, v1};
use rheostat_clock::Timestamp;
use rheostat_core::export::{ExportAnswer, ExportCall, Exported, Kind};
use rheostat_proto::export::{answer_in, call_out, key_state_out};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};

/// How long one step may take at its server, and on the way.
const STEP: Duration = Duration::from_secs(12);
/// For how long servers keep the past if nobody asks again, and how often that is asked.
const HOLD: Duration = Duration::from_secs(60);
const HOLD_AGAIN: Duration = Duration::from_secs(15);
/// Partitions that are read at once, pages that wait to be taken, and holds that are asked for at once.
const PARTITIONS_AT_ONCE: usize = 4;
const PAGES_WAITING: usize = 4;
const HOLDS_AT_ONCE: usize = 32;
/// The pause before a step is asked for again.
const PAUSE: Duration = Duration::from_millis(100);

/// By how much a server's clock may be behind another's when it is asked for what was written since a moment ago.
const SKEW_MS: u64 = 1_000;
/// A node that is busy is asked so often before another one is.
const MOST_BUSY: u32 = 20;

/// What is to be read.
#[derive(Clone, Debug)]
pub struct Backup {
    /// Keyspaces, by name or number; none: all.
    pub keyspaces: Vec<String>,
    /// The data center to read from; the others are asked where it cannot answer. `None`: that of the first client.
    pub from: Option<String>,
    /// Only what has been written since; needs keyspaces whose history reaches so far.
    pub since: Option<Timestamp>,
    /// How long one page may take, over all tries.
    pub patience: Duration,
}

impl Default for Backup {
    fn default() -> Backup {
        Backup { keyspaces: Vec::new(), from: None, since: None, patience: Duration::from_secs(60) }
    }
}

/// A keyspace of a [`Taking`].
#[derive(Clone, Debug)]
pub struct Taken {
    /// Its name.
    pub name: String,
    /// Its protocol.
    pub protocol: String,
    /// What kind of state its keys make.
    pub kind: Kind,
}

/// A state that is being read. The servers keep it as long as this lives, and a minute more if nobody says that it is over.
pub struct Taking {
    source: Arc<Source>,
    at: Timestamp,
    since: Timestamp,
    partitions: u32,
    keyspaces: Vec<Taken>,
    /// Who was asked to hold it.
    asked: Vec<Asked>,
    /// Of each keyspace and partition the nodes that can be asked, the best first.
    places: BTreeMap<(usize, u32), Vec<usize>>,
    /// Go on asking each node to hold it.
    renewing: Vec<AbortHandle>,
}

impl Drop for Taking {
    fn drop(&mut self) {
        self.renewing.iter().for_each(AbortHandle::abort);
    }
}

struct Source {
    /// The name of this backup.
    name: u64,
    clients: Vec<Client>,
    data_centers: Vec<String>,
    patience: Duration,
}

impl Source {
    async fn ask(&self, client: usize, keyspace: &str, partition: u32, call: &ExportCall, current: bool) -> Result<ExportAnswer, Error> {
        let client = &self.clients[client];
        let step = Some(call_out(call, current));
        let request = client.request_within(v1::ExportRequest { keyspace: keyspace.into(), partition, name: self.name, step }, STEP);
        // A value that could be written can be read, with what stands beside it.
        let response = client.admin().max_decoding_message_size(usize::MAX).export(request).await?.into_inner();
        answer_in(&self.data_centers, response).map_err(Error::Server)
    }
}

impl Backup {
    /// Chooses the time, and lets the servers keep what was then. `clients` are of nodes of every data center, the nearest first.
    ///
    /// # Errors
    /// There is no such keyspace or data center, or nobody can say what is to be read of a partition.
    pub async fn begin(&self, clients: &[Client]) -> Result<Taking, Error> {
        let first = clients.first().ok_or_else(|| Error::Refused("no node to ask".into()))?;
        let topology = first.topology();
        let from = self.from.as_ref().unwrap_or(&topology.data_center);
        if !topology.data_centers.contains(from) {
            return Err(Error::Refused(format!("there is no data center `{from}`; there are: {}", topology.data_centers.join(", "))));
        }
        let mut clients = clients.to_vec();
        clients.sort_by_key(|client| client.topology().data_center != *from);
        let (clients, partitions) = alike(clients).await?;
        let keyspaces = self.chosen(topology)?;
        let name = RandomState::new().hash_one(0_u8);
        let source = Arc::new(Source { name, clients, data_centers: topology.data_centers.clone(), patience: self.patience });
        // One node of a data center is enough to keep what is there; another one can be asked for it.
        let mut asked = Vec::new();
        for keyspace in &keyspaces {
            for partition in 0..partitions {
                let one_of_each = |client: &usize| {
                    let dc = |client: usize| &source.clients[client].topology().data_center;
                    (0..*client).all(|other| dc(other) != dc(*client))
                };
                asked.extend((0..source.clients.len()).filter(one_of_each).map(|client| (keyspace.name.clone(), partition, client)));
            }
        }
        let hold = ExportCall::Hold { name, for_ms: HOLD.as_millis() as u64 };
        let answers = ask_all(&source, &asked, &hold).await;
        let mut at = Timestamp::ZERO;
        let mut places: BTreeMap<(usize, u32), Vec<usize>> = BTreeMap::new();
        let mut kinds: Vec<Option<Kind>> = vec![None; keyspaces.len()];
        let mut refused: BTreeMap<(usize, u32), Error> = BTreeMap::new();
        for ((name, partition, client), answer) in asked.iter().zip(answers) {
            let Some(place) = keyspaces.iter().position(|keyspace| keyspace.name == *name) else { continue };
            match answer {
                Ok(ExportAnswer::Held { from, kind, holds }) => {
                    at = at.max(from);
                    kinds[place] = Some(kind);
                    if holds {
                        let dc = &source.clients[*client].topology().data_center;
                        let there = (0..source.clients.len()).filter(|other| source.clients[*other].topology().data_center == *dc);
                        places.entry((place, *partition)).or_default().extend(there);
                    }
                }
                Ok(_) => {
                    refused.insert((place, *partition), Error::Server("a node answered something else than was asked".into()));
                }
                Err(error) => {
                    refused.insert((place, *partition), error);
                }
            }
        }
        for (place, keyspace) in keyspaces.iter().enumerate() {
            for partition in 0..partitions {
                if !places.contains_key(&(place, partition)) {
                    let why = refused.remove(&(place, partition)).unwrap_or_else(|| Error::Refused("no data center holds it".into()));
                    return Err(of_partition(&keyspace.name, partition, why));
                }
            }
        }
        let kind = |place: usize| kinds[place].unwrap_or(Kind::Applied);
        let keyspaces = keyspaces
            .iter()
            .enumerate()
            .map(|(place, one)| Taken { name: one.name.clone(), protocol: one.protocol.clone(), kind: kind(place) })
            .collect();
        // Each node by itself: one that does not answer keeps none of the others waiting.
        let renew = |client: usize| {
            let (source, hold) = (source.clone(), hold.clone());
            let asked: Vec<_> = asked.iter().filter(|(.., other)| *other == client).cloned().collect();
            let renewing = async move {
                loop {
                    tokio::time::sleep(HOLD_AGAIN).await;
                    // What is not held any more is told when a page of it is asked for.
                    ask_all(&source, &asked, &hold).await;
                }
            };
            tokio::spawn(renewing).abort_handle()
        };
        let renewing = (0..source.clients.len()).map(renew).collect();
        Ok(Taking { source, at, since: self.since.unwrap_or(Timestamp::ZERO), partitions, keyspaces, places, asked, renewing })
    }

    fn chosen(&self, topology: &v1::TopologyResponse) -> Result<Vec<v1::Keyspace>, Error> {
        if self.keyspaces.is_empty() {
            return Ok(topology.keyspaces.clone());
        }
        let mut chosen = BTreeSet::new();
        for wanted in &self.keyspaces {
            let place = topology.keyspaces.iter().position(|one| one.name == *wanted || one.number.to_string() == *wanted);
            chosen.insert(place.ok_or_else(|| {
                let names: Vec<&str> = topology.keyspaces.iter().map(|one| &*one.name).collect();
                Error::Refused(format!("there is no keyspace `{wanted}`; there are: {}", names.join(", ")))
            })?);
        }
        Ok(chosen.into_iter().map(|place| topology.keyspaces[place].clone()).collect())
    }
}

/// Those of `clients` that answer, are of the cluster that they were of, and speak of as many partitions as the first one of them that does, and how many those are. What a client was told when it connected may be from before a split; and
/// while one goes from data center to data center, a partition is not the same everywhere.
async fn alike(clients: Vec<Client>) -> Result<(Vec<Client>, u32), Error> {
    let mut asking = JoinSet::new();
    for (place, client) in clients.iter().cloned().enumerate() {
        asking.spawn(async move {
            let answer = async {
                // Over the connection by which it is asked for what it has.
                let mut store = StoreClient::new(client.shared.home.clone());
                let topology = store.topology(client.request(v1::TopologyRequest {})).await?;
                Ok::<u32, Error>(same_cluster(&client, topology.into_inner())?.partitions)
            };
            (place, answer.await)
        });
    }
    let (mut said, mut last) = (BTreeMap::new(), Error::Unreachable("no node to ask".into()));
    while let Some(answer) = asking.join_next().await {
        match answer {
            Ok((place, Ok(partitions))) => drop(said.insert(place, partitions)),
            Ok((_, Err(error))) => last = error,
            Err(_) => {}
        }
    }
    let Some(partitions) = said.values().next().copied() else { return Err(last) };
    let same = clients.into_iter().enumerate().filter(|(place, _)| said.get(place) == Some(&partitions));
    Ok((same.map(|(_, client)| client).collect(), partitions))
}

/// Keyspace, partition, and the node that is asked.
type Asked = (String, u32, usize);

/// Asks each node the same.
async fn ask_all(source: &Arc<Source>, asked: &[Asked], call: &ExportCall) -> Vec<Result<ExportAnswer, Error>> {
    let mut answers: Vec<Result<ExportAnswer, Error>> = asked.iter().map(|_| Err(Error::Timeout("no answer".into()))).collect();
    let mut under_way = JoinSet::new();
    let mut next = asked.iter().cloned().enumerate();
    loop {
        while under_way.len() < HOLDS_AT_ONCE
            && let Some((place, (keyspace, partition, client))) = next.next()
        {
            let (source, call) = (source.clone(), call.clone());
            under_way.spawn(async move { (place, source.ask(client, &keyspace, partition, &call, false).await) });
        }
        match under_way.join_next().await {
            None => return answers,
            Some(Ok((place, answer))) => answers[place] = answer,
            Some(Err(_)) => {}
        }
    }
}

fn of_partition(keyspace: &str, partition: u32, error: Error) -> Error {
    let with = |why: String| format!("keyspace {keyspace}, partition {partition}: {why}");
    match error {
        Error::Refused(why) => Error::Refused(with(why)),
        Error::TooOld(why) => Error::TooOld(with(why)),
        Error::Busy(why) => Error::Busy(with(why)),
        Error::Timeout(why) => Error::Timeout(with(why)),
        Error::Unreachable(why) => Error::Unreachable(with(why)),
        Error::Server(why) => Error::Server(with(why)),
        other => other,
    }
}

impl Taking {
    /// The time.
    pub fn at(&self) -> Timestamp {
        self.at
    }

    /// In how many partitions the keys are.
    pub fn partitions(&self) -> u32 {
        self.partitions
    }

    /// The keyspaces, in the cluster's order.
    pub fn keyspaces(&self) -> &[Taken] {
        &self.keyspaces
    }

    /// The same, but of keys that hold counters, and of what was written in the last second: of each keyspace whose state is as of one time, and which keeps a history.
    pub fn only_counters(mut self) -> Taking {
        // Counters are told whenever they were made, and nothing else that is as old. Some server's clock may be behind the time that is read.
        self.since = Timestamp::new(self.at.millis().saturating_sub(SKEW_MS), 0);
        self
    }

    /// The data center that is asked first.
    pub fn data_center(&self) -> &str {
        self.source.clients.first().map_or("", |client| &client.topology().data_center)
    }

    /// Reads keyspace number `keyspace` of [`Taking::keyspaces`]; `take` is told of its keys page by page, each key once, and can end it by an error.
    ///
    /// # Errors
    /// What `take` says; or a page that nobody gives, within the patience asked for.
    pub async fn read<E: From<Error>>(&self, keyspace: usize, mut take: impl FnMut(Vec<Exported>) -> Result<(), E>) -> Result<(), E> {
        let Some(taken) = self.keyspaces.get(keyspace) else { return Ok(()) };
        let (pages, mut arrived) = mpsc::channel(PAGES_WAITING);
        let mut partitions = self.places.range((keyspace, 0)..=(keyspace, u32::MAX)).map(|((_, partition), nodes)| Walk {
            source: self.source.clone(),
            keyspace: taken.name.clone(),
            partition: *partition,
            nodes: nodes.clone(),
            at: (taken.kind != Kind::Applied).then_some(self.at),
            since: self.since,
            pages: pages.clone(),
        });
        let mut walks = JoinSet::new();
        for walk in partitions.by_ref().take(PARTITIONS_AT_ONCE) {
            walks.spawn(walk.run());
        }
        let mut under_way = walks.len();
        while under_way > 0 {
            match arrived.recv().await {
                Some(Page::Keys(keys)) => take(keys)?,
                Some(Page::Failed(error)) => return Err(error.into()),
                Some(Page::End) => match partitions.next() {
                    Some(walk) => {
                        walks.spawn(walk.run());
                    }
                    None => under_way -= 1,
                },
                None => break,
            }
        }
        Ok(())
    }

    /// The servers need not keep it any more.
    pub async fn end(self) {
        self.renewing.iter().for_each(AbortHandle::abort);
        let release = ExportCall::Release { name: self.source.name };
        // Where it is not heard, it is over in a minute.
        let _ = tokio::time::timeout(STEP, ask_all(&self.source, &self.asked, &release)).await;
    }
}

enum Page {
    Keys(Vec<Exported>),
    End,
    Failed(Error),
}

/// A walk over the keys of one partition.
struct Walk {
    source: Arc<Source>,
    keyspace: String,
    partition: u32,
    nodes: Vec<usize>,
    at: Option<Timestamp>,
    since: Timestamp,
    pages: mpsc::Sender<Page>,
}

impl Walk {
    async fn run(self) {
        let (mut place, mut node, mut current) = ((u16::MAX, 0), 0, true);
        loop {
            // Whoever reads them may have gone.
            match self.page(place, &mut node, current).await {
                Ok((keys, next)) => {
                    if self.pages.send(Page::Keys(keys)).await.is_err() {
                        return;
                    }
                    let Some(next) = next else { break };
                    (place, current) = (next, false);
                }
                Err(error) => {
                    let _ = self.pages.send(Page::Failed(of_partition(&self.keyspace, self.partition, error))).await;
                    return;
                }
            }
        }
        let _ = self.pages.send(Page::End).await;
    }

    /// A page from where `node` says, or from another that has the same.
    async fn page(&self, (slot, from): (u16, u32), node: &mut usize, mut current: bool) -> Result<(Vec<Exported>, Option<(u16, u32)>), Error> {
        let until = Instant::now() + self.source.patience.min(LONGEST);
        let call = ExportCall::Page { at: self.at, since: self.since, slot, from };
        let (mut refused, mut busy) = (BTreeSet::new(), 0);
        loop {
            let error = match self.source.ask(self.nodes[*node], &self.keyspace, self.partition, &call, current).await {
                Ok(ExportAnswer::Page { keys, next }) => return Ok((keys, next)),
                Ok(_) => Error::Server("a node answered something else than was asked".into()),
                Err(error) => error,
            };
            match error {
                Error::Busy(_) => busy += 1,
                Error::Timeout(_) | Error::Unreachable(_) => busy = MOST_BUSY,
                _ => {
                    refused.insert(*node);
                    busy = MOST_BUSY;
                }
            }
            let others = (1..=self.nodes.len()).map(|step| (*node + step) % self.nodes.len());
            let next = others.into_iter().find(|other| !refused.contains(other));
            match next.filter(|_| Instant::now() < until && !matches!(error, Error::Unauthenticated(_))) {
                Some(_) if busy < MOST_BUSY => {}
                Some(other) => (*node, busy) = (other, 0),
                None => return Err(error),
            }
            current = true;
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// The cluster as a node describes it now, of those of its data center that `client` knows by now: the ones of its start may have gone.
///
/// # Errors
/// None of them answers.
pub async fn topology(client: &Client) -> Result<v1::TopologyResponse, Error> {
    let mut last = Error::Unreachable("no node to ask".into());
    for node in client.any() {
        match client.store(node)?.topology(client.request(v1::TopologyRequest {})).await {
            Ok(answer) => match same_cluster(client, answer.into_inner()) {
                Ok(topology) => return Ok(topology),
                Err(error) => last = error,
            },
            Err(status) => {
                if is_unanswered(&status) {
                    client.avoid(node);
                }
                last = status.into();
            }
        }
    }
    Err(last)
}

/// What a node says that is of the cluster that `client` is of. Errors: its address is another one's by now.
fn same_cluster(client: &Client, topology: v1::TopologyResponse) -> Result<v1::TopologyResponse, Error> {
    let before = &client.topology().cluster;
    match topology.cluster == *before {
        true => Ok(topology),
        false => Err(Error::Refused(format!("where a node of cluster {before} was there is one of cluster {} now", topology.cluster))),
    }
}

/// What came of a write of keys of a backup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// Keys that have their value.
    pub written: u64,
    /// Keys that have none: they were deleted, or have expired.
    pub deleted: u64,
}

/// Writes `keys` of a backup to `keyspace`, at one of `clients`, which are nodes of one data center. Nothing is changed by writing them again, so what fails for a passing reason is
/// sent again for as long as `patience`.
///
/// # Errors
/// What does not pass.
pub async fn import(clients: &[Client], keyspace: &str, keys: Vec<Exported>, patience: Duration) -> Result<Imported, Error> {
    let until = Instant::now() + patience.min(LONGEST);
    let first = clients.first().ok_or_else(|| Error::Refused("no node to ask".into()))?;
    let mut others = clients.iter().cycle().skip(1);
    // The versions' names are of another cluster, and are not looked at.
    let names = &first.topology().data_centers;
    let keys: Vec<v1::ExportedKey> = keys.into_iter().map(|one| key_state_out(names, one)).collect();
    let mut client = first;
    loop {
        let message = v1::ImportRequest { keyspace: keyspace.into(), keys: keys.clone() };
        // A value that could be written can be written again: the node says what is too large for it.
        let error = match client.admin().max_encoding_message_size(usize::MAX).import(client.request_within(message, STEP)).await {
            Ok(response) => {
                let v1::ImportResponse { written, deleted } = response.into_inner();
                return Ok(Imported { written, deleted });
            }
            Err(status) => Error::from(status),
        };
        match error {
            Error::Busy(_) if Instant::now() < until => {}
            // One that keeps silent may do so for long.
            Error::Timeout(_) | Error::Unreachable(_) if Instant::now() < until => client = others.next().unwrap_or(first),
            other => return Err(other),
        }
        tokio::time::sleep(PAUSE).await;
    }
}
