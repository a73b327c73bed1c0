//! Following the feed of one keyspace.

use super::super::nearest::nearest_first;
use super::jobs::Cluster;
use rheostat_client::feed::{Change as Told, Feed, From};
use rheostat_client::{Client, Error, v1};
use rheostat_core::feed::{Change, Position};
use rheostat_core::version::VersionId;
use rheostat_core::{DcId, Timestamp};
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

/// Changes that are asked for at once.
const AT_ONCE: u32 = 2_000;
/// A feed says every ten seconds where it is. After so long without a word it may be that of a data center that is gone for ever.
const SILENCE: Duration = Duration::from_secs(15);

/// What a feed has told.
pub(super) enum Event {
    /// Everything that was written after the last one's position up to this one.
    Changes(Vec<Change>, Position),
    /// It does not go on by itself.
    Ended(Why),
}

pub(super) enum Why {
    /// What comes next is not kept any more.
    TooOld,
    /// In words.
    Other(String),
}

/// Follows `keyspace` from `from` at the first node of `cluster`, and tells it with `place`; ends when nobody listens. Where the data center of that one has been given up, or has no such feed, another one is asked.
pub(super) fn start(
    cluster: &Cluster,
    keyspace: &str,
    place: usize,
    from: Option<Position>,
    data_centers: Vec<String>,
    events: mpsc::Sender<(usize, Event)>,
) -> AbortHandle {
    let from = from.map_or(From::Now, |position| From::Position(position.to_string()));
    let (cluster, keyspace) = (cluster.clone(), keyspace.to_owned());
    let follow = async move {
        let Some(mut client) = cluster.clients.first().cloned() else { return };
        let mut feed = Feed::new(&client, keyspace.clone(), from).at_once(AT_ONCE);
        // Data centers without such a feed, and the one that was given up last.
        let (mut without, mut left) = (BTreeSet::new(), None);
        loop {
            let event = match tokio::time::timeout(SILENCE, feed.next()).await {
                Ok(Ok(changes)) => told(&data_centers, changes, feed.position()),
                Ok(Err(Error::TooOld(_))) => Event::Ended(Why::TooOld),
                silent => {
                    let here = client.topology().data_center.clone();
                    let mut other = elsewhere(&cluster, &here, &without).await;
                    if other.is_some() {
                        left = Some(here);
                    } else if matches!(&silent, Ok(Err(Error::Refused(_)))) {
                        without.insert(here);
                        other = another(&cluster, &without, left.as_deref()).await;
                    }
                    match (other, silent) {
                        (Some(other), _) => {
                            // A position is good in every data center.
                            let from = feed.position().map_or(From::Now, |position| From::Position(position.to_owned()));
                            feed = Feed::new(&other, keyspace.clone(), from).at_once(AT_ONCE);
                            client = other;
                            continue;
                        }
                        (None, Ok(Err(error))) => Event::Ended(Why::Other(error.to_string())),
                        (None, _) => continue,
                    }
                }
            };
            let ends = matches!(event, Event::Ended(_));
            if events.send((place, event)).await.is_err() || ends {
                return;
            }
        }
    };
    tokio::spawn(follow).abort_handle()
}

/// A client of a data center that is not among `without`, nor is it the one that was `left`.
async fn another(cluster: &Cluster, without: &BTreeSet<String>, left: Option<&str>) -> Option<Client> {
    let may_have = |client: &&Client| {
        let data_center = client.topology().data_center.as_str();
        !without.contains(data_center) && left != Some(data_center)
    };
    if let Some(client) = cluster.clients.iter().find(may_have) {
        return Some(client.clone());
    }
    let (topology, nodes) = cluster.now().await?;
    nearest_first(&topology, &nodes).iter().find(may_have).cloned()
}

/// A client of another data center than `here` and those `without` such a feed, if one says that `here` was given up or taken out. Where none of the start is left to say anything, those are asked that there are now.
async fn elsewhere(cluster: &Cluster, here: &str, without: &BTreeSet<String>) -> Option<Client> {
    match asked(cluster, &cluster.clients, here, without).await {
        Said::Lost(other) => return Some(other),
        Said::Nothing => return None,
        Said::Silence => {}
    }
    cluster.hear().await;
    let (topology, nodes) = cluster.now().await?;
    match asked(cluster, &nearest_first(&topology, &nodes), here, without).await {
        Said::Lost(other) => Some(other),
        Said::Nothing | Said::Silence => None,
    }
}

/// What other data centers say of one.
enum Said {
    /// It was given up or taken out: whose client says so.
    Lost(Client),
    /// Nothing of that kind.
    Nothing,
    /// Nobody answers.
    Silence,
}

async fn asked(cluster: &Cluster, clients: &[Client], here: &str, without: &BTreeSet<String>) -> Said {
    let mut said = Said::Silence;
    let is_other = |data_center: &String| data_center != here && !without.contains(data_center);
    for client in clients.iter().filter(|client| is_other(&client.topology().data_center)) {
        let Ok(status) = client.admin().status(client.request(v1::StatusRequest {})).await else { continue };
        let status = status.into_inner();
        // By now it may be another cluster's address.
        if status.topology.is_none_or(|topology| topology.cluster != cluster.topology.cluster) {
            continue;
        }
        if status.lost.iter().any(|lost| lost.data_center == here) {
            return Said::Lost(client.clone());
        }
        said = Said::Nothing;
    }
    said
}

fn told(data_centers: &[String], changes: Vec<Told>, position: Option<&str>) -> Event {
    let position = position.and_then(|text| Position::parse(text.as_bytes()).ok());
    let changes: Option<Vec<Change>> = changes.into_iter().map(|change| change_of(data_centers, change)).collect();
    match (changes, position) {
        (Some(changes), Some(position)) => Event::Changes(changes, position),
        _ => Event::Ended(Why::Other("a node told a change that this version of the software does not understand".into())),
    }
}

fn change_of(data_centers: &[String], change: Told) -> Option<Change> {
    let name = |version: rheostat_client::Version| {
        let origin = data_centers.iter().position(|name| *name == version.origin)?;
        let written = Timestamp::new(version.millis, u16::try_from(version.counter).ok()?);
        Some(VersionId { written, origin: DcId(u8::try_from(origin).ok()?) })
    };
    let Told { key, value, version, expires_ms, over } = change;
    let over = match over {
        Some(over) => Some(name(over)?),
        None => None,
    };
    Some(Change { key: key[..].into(), version: name(version)?, value: value.map(|value| value[..].into()), expires_ms, over })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::Connection;
    use clap::{Args, Command, FromArgMatches};
    use rheostat_cluster::nodes::keyspace;
    use rheostat_cluster::{Description, InProcess};

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn who_has_given_a_data_center_up_is_found_where_no_other_node_of_the_start_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let keyspaces = vec![keyspace("default", "eventual").unwrap()];
        let description = Description { keyspaces, ..Description::new("left", &["a".into(), "b".into()]) };
        let nodes = InProcess::start(&description, folder.path(), None).await.unwrap();
        let [a, b] = [0, 1].map(|index: usize| format!("127.0.0.1:{}", nodes.ports[index].grpc));
        let (first, other) = (Client::connect([a]).await.unwrap(), Client::connect([b]).await.unwrap());
        let said = Connection::augment_args(Command::new("archive")).get_matches_from(["archive", "-a", "127.0.0.1:1"]);
        let connection = Connection::from_arg_matches(&said).unwrap();
        let topology = first.topology().clone();
        let cluster = Cluster::new(connection, vec![first], topology, Duration::from_secs(5));
        assert!(elsewhere(&cluster, "a", &BTreeSet::new()).await.is_none(), "nobody has given it up");
        let request = v1::LoseDataCenterRequest { data_center: "a".into(), ends: Vec::new(), leaves: true };
        other.admin().lose_data_center(other.request(request)).await.unwrap();
        let found = elsewhere(&cluster, "a", &BTreeSet::new()).await.expect("b says that a was taken out");
        assert_eq!(found.topology().data_center, "b");
        nodes.end().await;
    }

    /// In `adaptive` only those that hold every partition have a feed.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_data_center_that_has_no_feed_is_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        let mut held = keyspace("default", "adaptive").unwrap();
        held.history_ms = 600_000;
        held.options = toml::from_str("placement = [[0], [0, 1]]").unwrap();
        let description = Description { partitions: 2, keyspaces: vec![held], ..Description::new("held", &["a".into(), "b".into()]) };
        let nodes = InProcess::start(&description, folder.path(), None).await.unwrap();
        let mut clients = Vec::new();
        for index in [1, 0] {
            clients.push(Client::connect([format!("127.0.0.1:{}", nodes.ports[index].grpc)]).await.unwrap());
        }
        let said = Connection::augment_args(Command::new("archive")).get_matches_from(["archive", "-a", "127.0.0.1:1"]);
        let connection = Connection::from_arg_matches(&said).unwrap();
        let topology = clients[0].topology().clone();
        let data_centers = topology.data_centers.clone();
        let cluster = Cluster::new(connection, clients, topology, Duration::from_secs(60));
        let place = rheostat_backup::Folder::new(folder.path().join("archive"));
        let settings = super::super::writer::settings(&place, &[], &cluster).await.unwrap();
        assert!(settings.keyspaces[0].order.is_some(), "{:?}", settings.keyspaces);
        let (tell, mut told) = mpsc::channel(2);
        let feed = start(&cluster, "default", 0, None, data_centers, tell);
        let event = tokio::time::timeout(Duration::from_secs(60), told.recv()).await.expect("nothing is told").unwrap();
        match event {
            (0, Event::Changes(changes, _)) => assert!(changes.is_empty(), "where it begins comes first"),
            (_, Event::Ended(Why::Other(why))) => panic!("{why}"),
            _ => panic!("something else is told"),
        }
        feed.abort();
        nodes.end().await;
    }
}
