//! Following the feed of one keyspace.

use rheostat_client::feed::{Change as Told, Feed, From};
use rheostat_client::{Client, Error, v1};
use rheostat_core::feed::{Change, Position};
use rheostat_core::version::VersionId;
use rheostat_core::{DcId, Timestamp};
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

/// Follows `keyspace` from `from` at the first of `clients`, and tells it with `place`; ends when nobody listens. Where the data center of that one has been given up, another one is asked.
pub(super) fn start(
    clients: &[Client],
    keyspace: &str,
    place: usize,
    from: Option<Position>,
    data_centers: Vec<String>,
    events: mpsc::Sender<(usize, Event)>,
) -> AbortHandle {
    let from = from.map_or(From::Now, |position| From::Position(position.to_string()));
    let (clients, keyspace) = (clients.to_vec(), keyspace.to_owned());
    let follow = async move {
        let Some(mut client) = clients.first().cloned() else { return };
        let mut feed = Feed::new(&client, keyspace.clone(), from).at_once(AT_ONCE);
        loop {
            let event = match tokio::time::timeout(SILENCE, feed.next()).await {
                Ok(Ok(changes)) => told(&data_centers, changes, feed.position()),
                Ok(Err(Error::TooOld(_))) => Event::Ended(Why::TooOld),
                silent => match (elsewhere(&clients, &client.topology().data_center).await, silent) {
                    (Some(other), _) => {
                        // A position is good in every data center.
                        let from = feed.position().map_or(From::Now, |position| From::Position(position.to_owned()));
                        feed = Feed::new(&other, keyspace.clone(), from).at_once(AT_ONCE);
                        client = other;
                        continue;
                    }
                    (None, Ok(Err(error))) => Event::Ended(Why::Other(error.to_string())),
                    (None, _) => continue,
                },
            };
            let ends = matches!(event, Event::Ended(_));
            if events.send((place, event)).await.is_err() || ends {
                return;
            }
        }
    };
    tokio::spawn(follow).abort_handle()
}

/// A client of another data center than `here`, if one says that `here` was given up or taken out.
async fn elsewhere(clients: &[Client], here: &str) -> Option<Client> {
    for client in clients {
        if client.topology().data_center == here {
            continue;
        }
        let Ok(status) = client.admin().status(client.request(v1::StatusRequest {})).await else { continue };
        if status.into_inner().lost.iter().any(|lost| lost.data_center == here) {
            return Some(client.clone());
        }
    }
    None
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
