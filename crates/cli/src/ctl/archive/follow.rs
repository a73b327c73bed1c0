//! Following the feed of one keyspace.

use rheostat_client::feed::{Change as Told, Feed, From};
use rheostat_client::{Client, Error};
use rheostat_core::feed::{Change, Position};
use rheostat_core::version::VersionId;
use rheostat_core::{DcId, Timestamp};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

/// Changes that are asked for at once.
const AT_ONCE: u32 = 2_000;

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

/// Follows `keyspace` from `from`, and tells it with `place`; ends when nobody listens.
pub(super) fn start(
    client: &Client,
    keyspace: &str,
    place: usize,
    from: Option<Position>,
    data_centers: Vec<String>,
    events: mpsc::Sender<(usize, Event)>,
) -> AbortHandle {
    let from = from.map_or(From::Now, |position| From::Position(position.to_string()));
    let mut feed = Feed::new(client, keyspace, from).at_once(AT_ONCE);
    let follow = async move {
        loop {
            let event = match feed.next().await {
                Ok(changes) => told(&data_centers, changes, feed.position()),
                Err(Error::TooOld(_)) => Event::Ended(Why::TooOld),
                Err(error) => Event::Ended(Why::Other(error.to_string())),
            };
            let ends = matches!(event, Event::Ended(_));
            if events.send((place, event)).await.is_err() || ends {
                return;
            }
        }
    };
    tokio::spawn(follow).abort_handle()
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
