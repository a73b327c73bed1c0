//! `rheostat bench soak`.

use super::load::seconds;
use super::{Own, show, unless_told};
use crate::Failure;
use crate::regions::round_trips;
use crate::signal::Stop;
use clap::Args;
use rheostat_bench::Progress;
use rheostat_bench::soak::{self, SoakDataCenter, SoakOptions, Verdict};
use rheostat_bench::target::resp::RespTarget;
use rheostat_cluster::regions;
use std::path::Path;
use std::process::ExitCode;

/// Arguments of `bench soak`.
#[derive(Args, Debug)]
pub struct Arguments {
    /// Data centers of a cluster that runs, as name=host:port of RESP [default: the demo's cluster, started for this]
    #[arg(long, value_name = "NAME=HOST:PORT", value_delimiter = ',')]
    resp: Vec<String>,
    /// The addresses of their metrics, in the same order; without them, versions are not counted
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',', requires = "resp")]
    metrics: Vec<String>,
    /// The password of the servers that --resp names
    #[arg(long, env = "RHEOSTAT_PASSWORD", hide_env_values = true)]
    password: Option<String>,
    /// What to SELECT: a keyspace's number or name
    #[arg(short, long, value_name = "NAME")]
    keyspace: Option<String>,
    /// The data centers of the cluster that is started
    #[arg(long, value_name = "NAMES", value_delimiter = ',', conflicts_with = "resp")]
    regions: Vec<String>,
    /// Round-trip times between them, as in `rheostat demo`
    #[arg(long, value_name = "MS", conflicts_with = "resp")]
    rtt: Option<String>,
    /// Partitions in each data center of the cluster that is started
    #[arg(long, value_name = "N", default_value = "2", conflicts_with = "resp", value_parser = clap::value_parser!(u16).range(1..=64))]
    partitions: u16,
    /// Seconds of writing
    #[arg(short, long, value_name = "SECONDS", default_value = "3600")]
    duration: f64,
    /// Keys, each overwritten in every data center
    #[arg(long, value_name = "N", default_value = "20000")]
    keys: u64,
    /// Bytes of a value
    #[arg(long, value_name = "BYTES", default_value = "256")]
    value_length: usize,
    /// Writes per second, over all data centers
    #[arg(long, value_name = "N", default_value = "5000")]
    rate: f64,
    /// Of 100 writes, so many are deletes
    #[arg(long, value_name = "PERCENT", default_value = "10")]
    deletes: u8,
    /// Of 100 writes, so many are of values that expire
    #[arg(long, value_name = "PERCENT", default_value = "10")]
    expiries: u8,
    /// Seconds between samples
    #[arg(long, value_name = "SECONDS", default_value = "5")]
    sample_every: f64,
    /// Growth from the second quarter of the time to the last beyond which something grows; 0.1 is 10 %
    #[arg(long, value_name = "SHARE", default_value = "0.1")]
    tolerance: f64,
    /// Seed of all choices
    #[arg(long, value_name = "N", default_value = "1")]
    seed: u64,
}

pub(super) async fn run(arguments: Arguments, json: Option<&Path>, stop: &mut Stop) -> Result<ExitCode, Failure> {
    let target = |name: &str, address: &str| RespTarget {
        password: arguments.password.clone().filter(|_| !arguments.resp.is_empty()),
        keyspace: arguments.keyspace.clone(),
        ..RespTarget::new(name, address)
    };
    if !arguments.metrics.is_empty() && arguments.metrics.len() != arguments.resp.len() {
        return Err(format!("--metrics: {} addresses for {} data centers", arguments.metrics.len(), arguments.resp.len()));
    }
    let mut data_centers = Vec::new();
    for (index, place) in arguments.resp.iter().enumerate() {
        let (name, address) = place.split_once('=').ok_or_else(|| format!("--resp {place}: not of the form name=host:port"))?;
        data_centers.push(SoakDataCenter { resp: target(name, address), metrics: arguments.metrics.get(index).cloned().into_iter().collect() });
    }
    let mut options = SoakOptions {
        keys: arguments.keys,
        value_length: arguments.value_length,
        rate: arguments.rate,
        deletes_percent: arguments.deletes,
        expiries_percent: arguments.expiries,
        duration: seconds("--duration", arguments.duration)?,
        sample_every: seconds("--sample-every", arguments.sample_every)?,
        tolerance: arguments.tolerance,
        seed: arguments.seed,
        ..SoakOptions::new(data_centers)
    };
    let own = if options.data_centers.is_empty() {
        let names = if arguments.regions.is_empty() { regions::names(regions::DEFAULT.len()) } else { arguments.regions.clone() };
        let round_trips = round_trips(&names, arguments.rtt.as_deref())?;
        let own = Own::start(&names, round_trips, arguments.partitions).await?;
        for (name, ports) in names.iter().zip(own.ports()) {
            let resp = target(name, &format!("127.0.0.1:{}", ports.resp));
            options.data_centers.push(SoakDataCenter { resp, metrics: vec![format!("127.0.0.1:{}", ports.admin)] });
        }
        Some(own)
    } else {
        None
    };
    let result = unless_told(stop, soak::run(&options, &Progress::on_stderr())).await;
    if let Some(own) = own {
        own.end().await;
    }
    let report = result?;
    show(&report, json)?;
    Ok(if report.verdict == Verdict::Level { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
