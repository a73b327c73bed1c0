//! `rheostat bench visibility`.

use super::load::seconds;
use super::{Own, measured, show, unless_told};
use crate::Failure;
use crate::regions::round_trips;
use crate::signal::Stop;
use clap::Args;
use rheostat_bench::Progress;
use rheostat_bench::target::resp::RespTarget;
use rheostat_bench::visibility::{self, Mode, VisibilityOptions};
use std::path::Path;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

/// Arguments of `bench visibility`.
#[derive(Args, Debug)]
pub struct Arguments {
    /// Data centers of a cluster that runs on this machine, as name=host:port of RESP [default: the demo's cluster, started for this]
    #[arg(long, value_name = "NAME=HOST:PORT", value_delimiter = ',')]
    resp: Vec<String>,
    /// The data centers of the cluster that is started
    #[arg(long, value_name = "NAMES", value_delimiter = ',', conflicts_with = "resp")]
    regions: Vec<String>,
    /// Round-trip times, as in `rheostat demo`. With --resp, those of the cluster that runs
    #[arg(long, value_name = "MS", allow_hyphen_values = true)]
    rtt: Option<String>,
    /// Partitions in each data center
    #[arg(long, value_name = "N", default_value = "2", value_parser = clap::value_parser!(u16).range(1..=64))]
    partitions: u16,
    /// The password of the servers that --resp names
    #[arg(long, env = "RHEOSTAT_PASSWORD", hide_env_values = true)]
    password: Option<String>,
    /// What to SELECT: a keyspace's number or name
    #[arg(short, long, value_name = "NAME")]
    keyspace: Option<String>,
    /// Recorded samples for each data center that writes
    #[arg(long, value_name = "N", default_value = "200")]
    samples: u32,
    /// Write two keys on two partitions, one after the other, wait for the second, and check that the first is there
    #[arg(long)]
    dependent: bool,
    /// Longest pause between two samples, in seconds; each pause is random
    #[arg(long, value_name = "SECONDS", default_value = "0.02")]
    longest_pause: f64,
    /// Seed of pauses and of the order of keys
    #[arg(long, value_name = "N", default_value = "1")]
    seed: u64,
}

pub(super) async fn run(arguments: Arguments, json: Option<&Path>, stop: &mut Stop) -> Result<ExitCode, Failure> {
    let (running, names) = measured(&arguments.resp, &arguments.regions)?;
    let round_trips = round_trips(&names, arguments.rtt.as_deref())?;
    let place = |name: &String| names.iter().position(|other| other == name).unwrap_or_default();
    let mut one_way_delay_ms = vec![vec![0.0; names.len()]; names.len()];
    for pair in &round_trips {
        let (a, b) = (place(&pair.a), place(&pair.b));
        one_way_delay_ms[a][b] = pair.ms / 2.0;
        one_way_delay_ms[b][a] = pair.ms / 2.0;
    }
    let own = if running.is_empty() { Some(Own::start(&names, round_trips, arguments.partitions).await?) } else { None };
    let address = |index: usize| match &own {
        Some(own) => format!("127.0.0.1:{}", own.ports()[index].resp),
        None => running[index].1.to_string(),
    };
    let target = |(index, name): (usize, &String)| RespTarget {
        password: arguments.password.clone().filter(|_| own.is_none()),
        keyspace: arguments.keyspace.clone(),
        ..RespTarget::new(name, address(index))
    };
    let data_centers = names.iter().enumerate().map(target).collect();
    // Part of every key, so that no reader takes a value of an earlier run for this one's.
    let run = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64);
    let options = VisibilityOptions {
        partitions: arguments.partitions,
        samples: arguments.samples,
        mode: if arguments.dependent { Mode::Dependent } else { Mode::Single },
        longest_pause: seconds("--longest-pause", arguments.longest_pause)?,
        seed: arguments.seed,
        ..VisibilityOptions::new(data_centers, one_way_delay_ms, run)
    };
    eprintln!("measuring: {} samples of each of {} data centers; 200 of three take about a minute", arguments.samples, names.len());
    let result = unless_told(stop, visibility::run(&options, &Progress::on_stderr())).await;
    if let Some(own) = own {
        own.end().await;
    }
    let report = result?;
    show(&report, json)?;
    // Under a protocol that promises it, an effect was seen before its cause; under another, it is what was to be shown.
    Ok(if report.is_measured() && report.violations == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
