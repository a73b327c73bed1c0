//! What an archiver does beside following: full backups, and looks at counters. One at a time, each in a thread of its own, since writing waits for disks and networks.

use super::super::backup::take;
use super::super::nearest::nearest_first;
use crate::Failure;
use crate::connection::Connection;
use rheostat_backup::archive::{Unneeded, base_name};
use rheostat_backup::{Store, Unfinished};
use rheostat_client::backup::{Backup, Taking};
use rheostat_client::{Client, Error, v1};
use rheostat_core::Timestamp;
use rheostat_core::export::Exported;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

/// The cluster, and how long its parts are waited for.
#[derive(Clone)]
pub(super) struct Cluster {
    /// Where it is asked which nodes there are.
    pub(super) connection: Connection,
    /// Of the nodes that there were at the start.
    pub(super) clients: Vec<Client>,
    pub(super) topology: v1::TopologyResponse,
    pub(super) patience: Duration,
}

impl Cluster {
    /// Begins `backup` at the nodes of the start or, where these cannot, at those that there are now: an archiver outlives nodes.
    async fn begin(&self, backup: &Backup) -> Result<Taking, Failure> {
        let error = match backup.begin(&self.clients).await {
            Ok(taking) => return Ok(taking),
            Err(error) => error.to_string(),
        };
        let Ok((topology, nodes)) = self.connection.nodes().await else { return Err(error) };
        backup.begin(&nearest_first(&topology, &nodes)).await.map_err(|error| error.to_string())
    }
}

/// What came of a job.
pub(super) enum Done {
    /// A full backup as of this time, of so many keys and bytes.
    Base(Timestamp, u64, u64),
    /// The counters of some keyspaces, by their places, as of this time.
    Counters(Timestamp, Vec<(usize, Vec<Exported>)>),
}

/// A job that runs.
pub(super) type Job = JoinHandle<Result<Done, Failure>>;

/// Takes a full backup of `keyspaces` into a place of its own in `store`.
pub(super) fn base(cluster: Cluster, store: Arc<dyn Store>, keyspaces: Vec<String>) -> Job {
    let backup = async move {
        let backup = Backup { keyspaces, patience: cluster.patience, ..Backup::default() };
        let taking = cluster.begin(&backup).await?;
        let at = taking.at();
        let taken = match Unfinished::begin(store.within(&base_name(at))) {
            Ok(unfinished) => take(&taking, unfinished, &cluster.topology, None).await,
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
    tokio::task::spawn_blocking(move || Handle::current().block_on(backup))
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
    tokio::task::spawn_blocking(move || Handle::current().block_on(read))
}
