//! Bounded counters that their clients keep in Cassandra (docs/cassandra.md#counters):
//!
//!     cargo run --release -p rheostat-cql --example counter -- PLACES HERE KEYSPACE create NAME VALUE
//!     cargo run --release -p rheostat-cql --example counter -- PLACES HERE KEYSPACE add NAME AMOUNT [global]
//!     cargo run --release -p rheostat-cql --example counter -- PLACES HERE KEYSPACE get NAME
//!     cargo run --release -p rheostat-cql --example counter -- PLACES HERE KEYSPACE load NAME COUNTERS CLIENTS SECONDS
//!
//! PLACES are Cassandra's data centers, each with a node, in an order that never changes: `10.0.0.1:9042/dc1,10.1.0.1:9042/dc2`; HERE is the name of the one that is near. A place without a name
//! is a Cassandra of one data center. A keyspace that is missing is made, with CASSANDRA_REPLICAS (1) replicas in each. The counter is never below 0. `global` fetches rights from another data center. `load` has CLIENTS decrement COUNTERS counters at random, which it makes, and
//! then as many of Cassandra's own, which have no bounds. User, password and TLS: `CASSANDRA_USER`, `CASSANDRA_PASSWORD`, `CASSANDRA_AUTHORITY` (PEM).

mod common;

use rheostat_client::cassandra::Keys;
use rheostat_client::conditional::ConditionalCounter;
use rheostat_client::{NewCounter, Scope};
use rheostat_cql::{Replication, Settings};
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

const USAGE: &str = "counter PLACES HERE KEYSPACE create NAME VALUE | add NAME AMOUNT [global] | get NAME | load NAME COUNTERS CLIENTS SECONDS";

type Counter = ConditionalCounter<Keys>;

struct Places {
    stores: Vec<Keys>,
    here: usize,
}

impl Places {
    async fn connect(places: &str, here: &str, keyspace: &str) -> Result<Places, String> {
        let parts: Vec<(&str, Option<&str>)> =
            places.split(',').map(|place| place.split_once('/').map_or((place, None), |(at, name)| (at, Some(name)))).collect();
        let found = parts.iter().position(|(address, name)| name.unwrap_or(address) == here);
        let here = found.ok_or_else(|| format!("{here} is none of {places}"))?;
        let replicas = std::env::var("CASSANDRA_REPLICAS").map_or(Ok(1), |replicas| number(&replicas))?;
        let named: Vec<(String, u32)> = parts.iter().filter_map(|(_, name)| name.map(|name| (name.to_owned(), replicas))).collect();
        let replication = if named.is_empty() { Replication::Simple(replicas) } else { Replication::Network(named) };
        // Any of them tells of all others, so that one of them may be away.
        let contact_points: Vec<String> = parts.iter().map(|(address, _)| (*address).to_owned()).collect();
        let mut stores = Vec::new();
        for (address, name) in parts {
            let local_data_center = name.map(str::to_owned);
            let (contact_points, replication) = (contact_points.clone(), Some(replication.clone()));
            let settings = Settings { contact_points, local_data_center, replication, ..common::settings(address, keyspace)? };
            stores.push(Keys::connect(settings, "counters").await.map_err(|error| error.to_string())?);
        }
        Ok(Places { stores, here })
    }

    fn counter(&self, name: String) -> Result<Counter, String> {
        ConditionalCounter::new(name, self.stores.clone(), self.here).map_err(|error| error.to_string())
    }
}

fn number<T: std::str::FromStr<Err: std::fmt::Display>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error| format!("{text}: {error}"))
}

/// Has `clients` do `step` with a counter out of `counters`, for `time`. Returns how many were done, how many failed, and how long each took.
async fn load<F: Future<Output = Result<(), String>> + Send>(
    clients: usize,
    counters: usize,
    time: Duration,
    step: impl Fn(usize) -> F + Send + Sync + 'static,
) -> Result<(), String> {
    let step = Arc::new(step);
    let until = Instant::now() + time;
    let tasks: Vec<_> = (0..clients)
        .map(|client| {
            let step = step.clone();
            tokio::spawn(async move {
                let (mut took, mut failed, mut next) = (Vec::new(), 0, client);
                while Instant::now() < until {
                    let begun = Instant::now();
                    match step(next % counters).await {
                        Ok(()) => took.push(begun.elapsed()),
                        Err(_) => failed += 1,
                    }
                    // Each goes through all of them, in steps of its own.
                    next = next.wrapping_mul(7).wrapping_add(client + 1);
                }
                (took, failed)
            })
        })
        .collect();
    let (mut took, mut failed) = (Vec::new(), 0);
    for task in tasks {
        let (more, others) = task.await.map_err(|error| error.to_string())?;
        took.extend(more);
        failed += others;
    }
    took.sort_unstable();
    let at = |share: usize| took.get(took.len() * share / 100).map_or(0.0, |took| took.as_secs_f64() * 1e3);
    println!(
        "{:8.0} a second, half within {:.1} ms, 99 % within {:.1} ms, {failed} given up",
        took.len() as f64 / time.as_secs_f64(),
        at(50),
        at(99)
    );
    Ok(())
}

async fn compare(
    places: Places,
    session: Session,
    keyspace: &str,
    name: &str,
    counters: usize,
    clients: usize,
    time: Duration,
) -> Result<(), String> {
    let names: Arc<Vec<String>> = Arc::new((0..counters).map(|counter| format!("{name}-{counter}")).collect());
    for name in names.iter() {
        // Whoever measures again has them.
        let _ = places.counter(name.clone())?.create(&NewCounter { lower: Some(0), initial: 1_000_000_000, ..NewCounter::default() }).await;
    }
    print!("bounded, kept by clients: ");
    let places = Arc::new(places);
    let of = names.clone();
    load(clients, counters, time, move |counter| {
        let (places, name) = (places.clone(), of[counter].clone());
        async move { places.counter(name)?.add(-1, Scope::Local).await.map(drop).map_err(|error| error.to_string()) }
    })
    .await?;
    print!("Cassandra's, without bounds:");
    let table = format!("CREATE TABLE IF NOT EXISTS {keyspace}.unbounded (name text PRIMARY KEY, value counter)");
    session.query_unpaged(table, ()).await.map_err(|error| error.to_string())?;
    let add =
        session.prepare(format!("UPDATE {keyspace}.unbounded SET value = value - 1 WHERE name = ?")).await.map_err(|error| error.to_string())?;
    let session = Arc::new(session);
    load(clients, counters, time, move |counter| {
        let (session, add, name) = (session.clone(), add.clone(), names[counter].clone());
        async move { session.execute_unpaged(&add, (name,)).await.map(drop).map_err(|error| error.to_string()) }
    })
    .await
}

async fn run(arguments: &[&str]) -> Result<(), String> {
    let [places, here, keyspace, rest @ ..] = arguments else { return Err(USAGE.to_owned()) };
    let connected = Places::connect(places, here, keyspace).await?;
    match rest {
        ["create", name, value] => {
            let counter = NewCounter { lower: Some(0), initial: number(value)?, ..NewCounter::default() };
            connected.counter((*name).to_owned())?.create(&counter).await.map_err(|error| error.to_string())
        }
        ["add", name, amount, scope @ ..] => {
            let scope = match scope {
                [] => Scope::Local,
                ["global"] => Scope::Global,
                _ => return Err(USAGE.to_owned()),
            };
            let value = connected.counter((*name).to_owned())?.add(number(amount)?, scope).await.map_err(|error| error.to_string())?;
            println!("{value}");
            Ok(())
        }
        ["get", name] => {
            let view = connected.counter((*name).to_owned())?.look().await.map_err(|error| error.to_string())?;
            println!("{}", view.value);
            for (place, rights) in places.split(',').zip({
                let mut rights = view.rights;
                rights.sort_by_key(|rights| rights.dc);
                rights
            }) {
                println!("{place}: may take {}", rights.down.map_or("any".to_owned(), |down| down.to_string()));
            }
            Ok(())
        }
        ["load", name, counters, clients, seconds] => {
            let (counters, clients, seconds) = (number::<usize>(counters)?.max(1), number(clients)?, number(seconds)?);
            let address = places.split([',', '/']).next().unwrap_or_default();
            let session = SessionBuilder::new().known_node(address).build().await.map_err(|error| error.to_string())?;
            compare(connected, session, keyspace, name, counters, clients, Duration::from_secs(seconds)).await
        }
        _ => Err(USAGE.to_owned()),
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = tokio::runtime::Runtime::new().map_err(|error| error.to_string()).and_then(|runtime| runtime.block_on(run(&arguments)));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("counter: {why}");
            ExitCode::FAILURE
        }
    }
}
