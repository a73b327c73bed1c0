//! What an archiver does beside following: full backups, and looks at counters. One at a time, each in a thread of its own, since writing waits for disks and networks.

use super::super::backup::take;
use super::super::nearest::nearest_first;
use crate::Failure;
use crate::connection::{Connection, Node};
use rheostat_backup::archive::{Unneeded, base_name};
use rheostat_backup::{Store, Unfinished};
use rheostat_client::backup::{Backup, Taking, topology};
use rheostat_client::{Client, Error, v1};
use rheostat_core::Timestamp;
use rheostat_core::export::Exported;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// The cluster, and how long its parts are waited for.
#[derive(Clone)]
pub(super) struct Cluster {
    /// Where it is asked which nodes there are.
    connection: Connection,
    /// Of the nodes that there were at the start.
    pub(super) clients: Vec<Client>,
    pub(super) topology: v1::TopologyResponse,
    pub(super) patience: Duration,
    /// Where its nodes are, as one of them said last.
    heard: Arc<Mutex<Vec<String>>>,
}

fn addresses(topology: &v1::TopologyResponse) -> Vec<String> {
    topology.nodes.iter().map(|node| node.grpc.clone()).filter(|address| !address.is_empty()).collect()
}

impl Cluster {
    pub(super) fn new(connection: Connection, clients: Vec<Client>, topology: v1::TopologyResponse, patience: Duration) -> Cluster {
        let heard = Arc::new(Mutex::new(addresses(&topology)));
        Cluster { connection, clients, topology, patience, heard }
    }

    fn heard(&self) -> MutexGuard<'_, Vec<String>> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins `backup` at the nodes of the start or, where these cannot, at those that there are now: an archiver outlives nodes.
    async fn begin(&self, backup: &Backup) -> Result<Taking, Failure> {
        let (begun, ()) = tokio::join!(backup.begin(&self.clients), self.hear());
        let error = match begun {
            Ok(taking) => return Ok(taking),
            Err(error) => error.to_string(),
        };
        let Some((topology, nodes)) = self.now().await else { return Err(error) };
        backup.begin(&nearest_first(&topology, &nodes)).await.map_err(|error| error.to_string())
    }

    /// Asks where its nodes are, those that clients have heard of since the start among them.
    pub(super) async fn hear(&self) {
        for client in &self.clients {
            // By now it may be another cluster's address.
            if let Ok(topology) = topology(client).await
                && topology.cluster == self.topology.cluster
            {
                *self.heard() = addresses(&topology);
                return;
            }
        }
    }

    /// The nodes that there are now, found at the addresses of the arguments or, where those are gone, at those that were heard of last.
    pub(super) async fn now(&self) -> Option<(v1::TopologyResponse, Vec<Node>)> {
        let heard = self.heard().clone();
        let ways = [Some(self.connection.clone()), Some(heard).filter(|heard| !heard.is_empty()).map(|heard| self.connection.at_any(heard))];
        for connection in ways.into_iter().flatten() {
            // By now it may be another cluster's address.
            if let Ok(found) = connection.nodes().await
                && found.0.cluster == self.topology.cluster
            {
                return Some(found);
            }
        }
        None
    }
}

/// What came of a job.
pub(super) enum Done {
    /// A full backup as of this time, of so many keys and bytes.
    Base(Timestamp, u64, u64),
    /// The counters of some keyspaces, by their places, as of this time.
    Counters(Timestamp, Vec<(usize, Vec<Exported>)>),
}

/// A job that runs. A full backup ends when this is dropped, and nothing of it stays.
pub(super) struct Job {
    done: JoinHandle<Result<Done, Failure>>,
    /// A thread cannot be ended from outside: it hears that this goes.
    _wanted: Option<oneshot::Sender<()>>,
}

impl Job {
    fn start(work: impl Future<Output = Result<Done, Failure>> + Send + 'static, wanted: Option<oneshot::Sender<()>>) -> Job {
        Job { done: tokio::task::spawn_blocking(move || Handle::current().block_on(work)), _wanted: wanted }
    }

    /// What has come of it.
    pub(super) async fn done(&mut self) -> Result<Done, Failure> {
        (&mut self.done).await.unwrap_or_else(|error| Err(format!("it ended before its end: {error}")))
    }
}

/// Takes a full backup of `keyspaces` into a place of its own in `store`.
pub(super) fn base(cluster: Cluster, store: Arc<dyn Store>, keyspaces: Vec<String>) -> Job {
    let (wanted, given_up) = oneshot::channel::<()>();
    let backup = async move {
        let backup = Backup { keyspaces, patience: cluster.patience, ..Backup::default() };
        let taking = cluster.begin(&backup).await?;
        let at = taking.at();
        let taken = match Unfinished::begin(store.within(&base_name(at))) {
            Ok(unfinished) => tokio::select! {
                taken = take(&taking, unfinished, &cluster.topology, None) => taken,
                _ = given_up => Err("it is not wanted any more".into()),
            },
            Err(error) => Err(error.to_string()),
        };
        taking.end().await;
        if taken.is_err() {
            // What is there of it has no manifest, and would take its room for ever.
            let _ = Unneeded { bases: vec![base_name(at)], segments: Vec::new() }.remove(&*store);
        }
        let manifest = taken?;
        let of = |number: fn(&rheostat_backup::KeyspaceEntry) -> u64| manifest.keyspaces.iter().map(number).sum();
        Ok(Done::Base(at, of(|one| one.keys), of(|one| one.bytes)))
    };
    Job::start(backup, Some(wanted))
}

/// Reads the counters of `keyspaces`, which are given with their places.
pub(super) fn counters(cluster: Cluster, keyspaces: Vec<(usize, String)>) -> Job {
    let read = async move {
        let names = keyspaces.iter().map(|(_, name)| name.clone()).collect();
        let backup = Backup { keyspaces: names, patience: cluster.patience, ..Backup::default() };
        let taking = cluster.begin(&backup).await?.only_counters();
        let at = taking.at();
        let mut all = Vec::new();
        let mut failed = None;
        for (number, taken) in taking.keyspaces().iter().enumerate() {
            let mut found = Vec::new();
            let read = taking.read::<Error>(number, |keys| {
                found.extend(keys.into_iter().filter(|one| one.counter.is_some()));
                Ok(())
            });
            if let Err(error) = read.await {
                failed = Some(error.to_string());
                break;
            }
            let place = keyspaces.iter().find(|(_, name)| *name == taken.name).map(|(place, _)| *place);
            all.extend(place.map(|place| (place, found)));
        }
        taking.end().await;
        match failed {
            Some(why) => Err(why),
            None => Ok(Done::Counters(at, all)),
        }
    };
    Job::start(read, None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Args, Command, FromArgMatches};
    use rheostat_backup::{Entry, Error as PlaceError, Folder, Lock, Opened, Output};
    use rheostat_cluster::nodes::keyspace;
    use rheostat_cluster::{Description, InProcess};
    use std::sync::Barrier;
    use std::time::Instant;

    /// A folder in which a file of records is begun when somebody has come to the gate twice.
    struct Gated {
        folder: Folder,
        gate: Arc<Barrier>,
    }

    impl Store for Gated {
        fn name(&self) -> &str {
            self.folder.name()
        }

        fn list(&self, beginning: &str, take: &mut dyn FnMut(Entry) -> bool) -> Result<(), PlaceError> {
            self.folder.list(beginning, take)
        }

        fn open(&self, name: &str) -> Result<Option<Opened>, PlaceError> {
            self.folder.open(name)
        }

        fn create(&self, name: &str) -> Result<Box<dyn Output>, PlaceError> {
            if name.ends_with(".records") {
                self.gate.wait();
                self.gate.wait();
            }
            self.folder.create(name)
        }

        fn remove(&self, name: &str) -> Result<(), PlaceError> {
            self.folder.remove(name)
        }

        fn remove_place(&self, name: &str) -> Result<(), PlaceError> {
            self.folder.remove_place(name)
        }

        fn within(&self, name: &str) -> Arc<dyn Store> {
            let folder = Folder::new(std::path::Path::new(self.folder.name()).join(name));
            Arc::new(Gated { folder, gate: self.gate.clone() })
        }

        fn lock(&self) -> Result<Option<Lock>, PlaceError> {
            self.folder.lock()
        }

        fn unlock(&self, lock: Lock) -> Result<(), PlaceError> {
            self.folder.unlock(lock)
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn of_a_full_backup_that_is_not_wanted_any_more_nothing_stays() {
        let folder = tempfile::tempdir().unwrap();
        let keyspaces = vec![keyspace("default", "eventual").unwrap()];
        let description = Description { keyspaces, ..Description::new("unwanted", &["a".into(), "b".into()]) };
        let nodes = InProcess::start(&description, &folder.path().join("nodes"), None).await.unwrap();
        let client = Client::connect([format!("127.0.0.1:{}", nodes.ports[0].grpc)]).await.unwrap();
        let said = Connection::augment_args(Command::new("archive")).get_matches_from(["archive", "-a", "127.0.0.1:1"]);
        let connection = Connection::from_arg_matches(&said).unwrap();
        let topology = client.topology().clone();
        let cluster = Cluster::new(connection, vec![client], topology, Duration::from_secs(5));
        let (archive, gate) = (folder.path().join("archive"), Arc::new(Barrier::new(2)));
        let store = Arc::new(Gated { folder: Folder::new(&archive), gate: gate.clone() });
        let job = base(cluster, store, vec!["default".into()]);
        gate.wait();
        let places = || std::fs::read_dir(&archive).unwrap().count();
        assert_eq!(places(), 1);
        drop(job);
        gate.wait();
        let until = Instant::now() + Duration::from_secs(60);
        while places() > 0 {
            assert!(Instant::now() < until, "it is still there");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        nodes.end().await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn nodes_are_found_when_the_addresses_of_the_start_lead_nowhere() {
        let folder = tempfile::tempdir().unwrap();
        let keyspaces = vec![keyspace("default", "eventual").unwrap()];
        let description = Description { keyspaces, ..Description::new("found", &["a".into(), "b".into()]) };
        let nodes = InProcess::start(&description, folder.path(), None).await.unwrap();
        let client = Client::connect([format!("127.0.0.1:{}", nodes.ports[0].grpc)]).await.unwrap();
        let said = Connection::augment_args(Command::new("archive")).get_matches_from(["archive", "-a", "127.0.0.1:1"]);
        let connection = Connection::from_arg_matches(&said).unwrap();
        let topology = client.topology().clone();
        let cluster = Cluster::new(connection, vec![client], topology, Duration::from_secs(5));
        // What was heard at the start may be of nodes that have gone, too.
        *cluster.heard() = vec!["127.0.0.1:1".into()];
        assert!(cluster.now().await.is_none());
        cluster.hear().await;
        let (_, found) = cluster.now().await.unwrap();
        assert_eq!(found.iter().filter(|node| node.client.is_ok()).count(), 2);
        let other = v1::TopologyResponse { cluster: "other".into(), ..cluster.topology.clone() };
        assert!(Cluster { topology: other, ..cluster.clone() }.now().await.is_none(), "a cluster of another name was taken for it");
        nodes.end().await;
    }
}
