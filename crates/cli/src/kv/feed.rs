//! `rheostat kv feed` and `rheostat kv conflicts`: JSON, a line each.

use crate::output::{self, say};
use clap::Args;
use rheostat_client::feed::{self, Change, Conflict, Feed, From};
use rheostat_client::{Client, Error};
use serde_json::{Map, Value, json};

/// Arguments of `kv feed`.
#[derive(Args, Debug)]
pub struct Arguments {
    /// Where to begin: now, oldest, or a position that was printed before
    #[arg(long, default_value = "now")]
    from: String,
    /// Only keys that match this pattern, as in 'order:*'
    #[arg(long = "match", value_name = "PATTERN", default_value = "", hide_default_value = true)]
    pattern: String,
    /// End after so many changes, or a few more that belong together [default: never]
    #[arg(long, value_name = "CHANGES", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
}

/// Follows the feed of `keyspace`. A line with the position comes after the changes that it stands behind.
pub(super) async fn follow(client: &Client, keyspace: &str, arguments: &Arguments) -> Result<bool, Error> {
    let from = match arguments.from.as_str() {
        "now" => From::Now,
        "oldest" => From::Oldest,
        position => From::Position(position.to_owned()),
    };
    let mut feed = Feed::new(client, keyspace, from).matching(arguments.pattern.clone());
    if let Some(limit) = arguments.limit {
        feed = feed.at_once(limit.min(10_000) as u32);
    }
    let mut left = arguments.limit;
    loop {
        let changes = feed.next().await?;
        changes.iter().for_each(|change| say!("{}", Value::Object(told(change))));
        say!("{}", json!({ "position": feed.position(), "order": if feed.is_causal() { "causal" } else { "clocks" } }));
        if output::reader_is_gone() {
            return Ok(true);
        }
        if let Some(left) = &mut left {
            *left = left.saturating_sub(changes.len() as u64);
            if *left == 0 {
                return Ok(true);
            }
        }
    }
}

/// Prints the conflicts of `key`; says whether there are none.
pub(super) async fn conflicts(client: &Client, keyspace: &str, key: &str) -> Result<bool, Error> {
    let conflicts = feed::conflicts(client, keyspace, key.to_owned()).await?;
    for Conflict { winner, loser } in &conflicts {
        say!("{}", json!({ "winner": told(winner), "loser": told(loser) }));
    }
    Ok(conflicts.is_empty())
}

/// Bytes that are no text have another name and are in hexadecimal.
fn bytes(into: &mut Map<String, Value>, name: &str, bytes: Option<&[u8]>) {
    let (name, value) = match bytes.map(std::str::from_utf8) {
        None => (name.to_owned(), Value::Null),
        Some(Ok(text)) => (name.to_owned(), text.into()),
        Some(Err(_)) => {
            let digits: String = bytes.unwrap_or_default().iter().map(|byte| format!("{byte:02x}")).collect();
            (format!("{name}_hex"), digits.into())
        }
    };
    into.insert(name, value);
}

fn told(change: &Change) -> Map<String, Value> {
    let mut into = Map::new();
    bytes(&mut into, "key", Some(&change.key));
    into.insert("operation".into(), if change.value.is_some() { "set" } else { "del" }.into());
    bytes(&mut into, "value", change.value.as_deref());
    into.insert("version".into(), change.version.to_string().into());
    into.insert("origin".into(), change.version.origin.clone().into());
    into.insert("written_ms".into(), change.version.millis.into());
    into.insert("expires_ms".into(), change.expires_ms.into());
    into.insert("over".into(), change.over.as_ref().map(ToString::to_string).into());
    into
}
