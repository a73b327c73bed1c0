//! `rheostat bench counter`.

use super::load::seconds;
use super::{Own, measured, show, unless_told};
use crate::Failure;
use crate::regions::round_trips;
use crate::signal::Stop;
use clap::Args;
use rheostat_bench::Progress;
use rheostat_bench::counter::{self, CounterOptions, Style};
use rheostat_bench::target::resp::RespTarget;
use std::path::Path;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

/// Arguments of `bench counter`.
#[derive(Args, Debug)]
pub struct Arguments {
    /// Data centers of a cluster that runs, as name=host:port of RESP [default: the demo's cluster, started for this]
    #[arg(long, value_name = "NAME=HOST:PORT", value_delimiter = ',')]
    resp: Vec<String>,
    /// The data centers of the cluster that is started
    #[arg(long, value_name = "NAMES", value_delimiter = ',', conflicts_with = "resp")]
    regions: Vec<String>,
    /// Round-trip times between them, as in `rheostat demo`
    #[arg(long, value_name = "MS", allow_hyphen_values = true, conflicts_with = "resp")]
    rtt: Option<String>,
    /// The password of the servers that --resp names
    #[arg(long, env = "RHEOSTAT_PASSWORD", hide_env_values = true)]
    password: Option<String>,
    /// The keyspace of bounded and weak counters
    #[arg(short, long, value_name = "NAME", default_value = "eventual")]
    keyspace: String,
    /// The keyspace of strong ones
    #[arg(long, value_name = "NAME", default_value = "strong")]
    strong_keyspace: String,
    /// Numbers of counters
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [1, 100])]
    counters: Vec<usize>,
    /// Numbers of clients in each data center
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [1, 4, 16])]
    clients: Vec<usize>,
    /// Seconds of each measurement
    #[arg(short, long, value_name = "SECONDS", default_value = "2")]
    duration: f64,
    /// What is in the counter that is exhausted
    #[arg(long, value_name = "N", default_value = "6000")]
    exhaust: i64,
    /// Seed of the order of updates
    #[arg(long, value_name = "N", default_value = "1")]
    seed: u64,
}

pub(super) async fn run(arguments: Arguments, json: Option<&Path>, stop: &mut Stop) -> Result<ExitCode, Failure> {
    let (running, names) = measured(&arguments.resp, &arguments.regions)?;
    let own = match running.is_empty() {
        true => Some(Own::start(&names, round_trips(&names, arguments.rtt.as_deref())?, 2).await?),
        false => None,
    };
    let address = |index: usize| match &own {
        Some(own) => format!("127.0.0.1:{}", own.ports()[index].resp),
        None => running[index].1.to_string(),
    };
    let target = |(index, name): (usize, &String)| RespTarget {
        password: arguments.password.clone().filter(|_| own.is_none()),
        keyspace: Some(arguments.keyspace.clone()),
        ..RespTarget::new(name, address(index))
    };
    // Part of every key, so that no run takes a counter of an earlier one for its own.
    let run = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64);
    let options = CounterOptions {
        strong_keyspace: arguments.strong_keyspace.clone(),
        counters: arguments.counters.clone(),
        clients: arguments.clients.clone(),
        duration: seconds("--duration", arguments.duration)?,
        exhausted: arguments.exhaust,
        seed: arguments.seed,
        ..CounterOptions::new(names.iter().enumerate().map(target).collect(), run)
    };
    let result = unless_told(stop, counter::run(&options, &Progress::on_stderr())).await;
    if let Some(own) = own {
        own.end().await;
    }
    let report = result?;
    show(&report, json)?;
    // A counter with a bound that was taken from in excess is a fault.
    let kept = report.excess.iter().all(|one| one.style != Style::Bounded || (one.in_excess == 0 && one.left >= 0)) && report.exhaustion.left >= 0;
    Ok(if kept { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
