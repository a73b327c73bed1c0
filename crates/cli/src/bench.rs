//! `rheostat bench`.

mod compare;
mod counter;
mod limit;
mod load;
mod soak;
mod visibility;
mod ycsb;

use crate::output;
use crate::signal::Stop;
use crate::{Failure, date, demo};
use clap::{Args, Subcommand};
use rheostat_bench::{Environment, Report, report};
use rheostat_cluster::description::Description;
use rheostat_cluster::nodes::keyspace;
use rheostat_cluster::regions::{self, RoundTrip};
use rheostat_cluster::{InProcess, Ports};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tempfile::TempDir;

const EXAMPLES: &str = "\
Examples:
  rheostat bench compare                                  SET and GET beside Redis, by redis-benchmark
  rheostat bench visibility                               how long until a write is seen elsewhere, on the demo's links
  rheostat bench ycsb a --records 100000                  YCSB's workload A, closed loop
  rheostat bench ycsb b --rate 20000 --duration 30        workload B, open loop: 20000 requests per second whatever happens
  rheostat bench ycsb c --resp 127.0.0.1:6379             the same load against any server that speaks RESP
  rheostat bench ycsb a --target grpc --level eventual    workload A over gRPC, reads at a level of their own
  rheostat bench counter                                  bounded counters beside weak and strong ones, until none is left
  rheostat bench limit                                    against a server that parses and answers without a store
  rheostat bench soak --duration 600                      ten minutes of overwriting; the exit code is 0 when memory stayed level

Where no servers are named, a cluster is started in this process, with its data in a temporary folder, and ended afterwards.
Measure release builds: cargo run --release -- bench ...";

/// Arguments of `bench`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Also write the result as JSON to this file
    #[arg(long, global = true, value_name = "FILE")]
    json: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// One of YCSB's core workloads, in a closed or an open loop
    Ycsb(ycsb::Arguments),
    /// Time from a write in one data center to its first sight in another, against the one-way delay
    Visibility(visibility::Arguments),
    /// The same load against a server that parses and answers without a store
    Limit(limit::Arguments),
    /// Overwrite keys for an hour: do memory and log stay level
    Soak(soak::Arguments),
    /// Counters with bounds beside weak and strong ones: throughput, latency, exhaustion, decrements in excess
    Counter(counter::Arguments),
    /// redis-benchmark against causal, eventual, Redis and the limit, in turn
    Compare(compare::Arguments),
}

/// Runs `bench`.
pub async fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let json = arguments.json;
    // Before the work: a result that cannot be written would be lost.
    if let Some(file) = &json {
        output::can_be_written(file)?;
    }
    // Before a cluster is started: its folder is to go in any case.
    let mut stop = Stop::listen().map_err(|error| format!("signals cannot be heard: {error}"))?;
    match arguments.command {
        Command::Ycsb(arguments) => ycsb::run(arguments, json.as_deref(), &mut stop).await,
        Command::Visibility(arguments) => visibility::run(arguments, json.as_deref(), &mut stop).await,
        Command::Limit(arguments) => limit::run(arguments, json.as_deref(), &mut stop).await,
        Command::Soak(arguments) => soak::run(arguments, json.as_deref(), &mut stop).await,
        Command::Counter(arguments) => counter::run(arguments, json.as_deref(), &mut stop).await,
        Command::Compare(arguments) => compare::run(arguments, json.as_deref(), &mut stop).await,
    }
}

/// What `measuring` finds. Errors: its own, in words, or that this was told to `stop` before.
async fn unless_told<T>(stop: &mut Stop, measuring: impl Future<Output = Result<T, rheostat_bench::Error>>) -> Result<T, Failure> {
    tokio::select! {
        result = measuring => result.map_err(|error| error.to_string()),
        signal = stop.heard() => Err(format!("ended by {signal}")),
    }
}

/// Prints a result, and writes it as JSON if asked.
fn show<R: Report>(result: &R, json: Option<&Path>) -> Result<ExitCode, Failure> {
    let commit = option_env!("RHEOSTAT_COMMIT").map(str::to_string);
    let environment = Environment::read(without_passwords(std::env::args()), commit, date::now());
    output::text(&report::text(&environment, result));
    if let Some(file) = json {
        std::fs::write(file, report::json(&environment, result)).map_err(|error| format!("{}: cannot be written: {error}", file.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A command line that can be shown.
fn without_passwords(words: impl Iterator<Item = String>) -> Vec<String> {
    let mut hide = false;
    words
        .map(|word| {
            let shown = match word.split_once('=') {
                _ if hide => "***".to_string(),
                Some(("--password", _)) => "--password=***".to_string(),
                _ => word.clone(),
            };
            hide = word == "--password";
            shown
        })
        .collect()
}

/// A cluster that was started for one measurement.
struct Own {
    cluster: InProcess,
    /// Deleted when this is dropped.
    _folder: TempDir,
}

impl Own {
    /// One node for each of `regions`, at free ports.
    async fn start(regions: &[String], round_trips: Vec<RoundTrip>, partitions: u16) -> Result<Own, Failure> {
        Own::of(&demo::description(regions, &round_trips, 0.0, partitions)?).await
    }

    async fn of(description: &Description) -> Result<Own, Failure> {
        let folder = tempfile::Builder::new().prefix("rheostat-bench-").tempdir().map_err(|error| format!("no temporary folder: {error}"))?;
        Ok(Own { cluster: InProcess::start(description, folder.path(), None).await?, _folder: folder })
    }

    /// One node with `partitions` partitions, alone.
    async fn alone(partitions: u16) -> Result<Own, Failure> {
        Own::start(&regions::names(1), Vec::new(), partitions).await
    }

    /// One node with one partition, alone, with a keyspace of each of `protocols` in their order.
    async fn of_protocols(protocols: &[String]) -> Result<Own, Failure> {
        let keyspaces = protocols.iter().map(|protocol| keyspace(protocol, protocol)).collect::<Result<_, _>>()?;
        let description = Description { keyspaces, ..demo::description(&regions::names(1), &[], 0.0, 1)? };
        description.validate().map_err(|error| error.to_string())?;
        Own::of(&description).await
    }

    fn ports(&self) -> &[Ports] {
        &self.cluster.ports
    }

    async fn end(self) {
        self.cluster.end().await;
    }
}

/// A running data center: its name, and the address where it speaks RESP.
type Running<'a> = (&'a str, &'a str);

/// The data centers that `--resp` names, as name and address, and the names of all that are measured: those, else the `given` ones, else the demo's.
/// Errors: a place that is not of the form name=host:port.
fn measured<'a>(resp: &'a [String], given: &[String]) -> Result<(Vec<Running<'a>>, Vec<String>), Failure> {
    let running = resp.iter().map(|place| place.split_once('=').ok_or_else(|| format!("--resp {place}: not of the form name=host:port")));
    let running: Vec<Running<'_>> = running.collect::<Result<_, _>>()?;
    let names = match (running.is_empty(), given.is_empty()) {
        (false, _) => running.iter().map(|(name, _)| name.to_string()).collect(),
        (true, false) => given.to_vec(),
        (true, true) => regions::names(regions::DEFAULT.len()),
    };
    Ok((running, names))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_not_shown() {
        let words = ["rheostat", "--password", "secret", "--password=secret", "ycsb", "--seed=1"].map(str::to_string);
        assert_eq!(without_passwords(words.into_iter()), ["rheostat", "--password", "***", "--password=***", "ycsb", "--seed=1"]);
    }
}
