//! `rheostat bench compare`.

use super::{Own, show, unless_told};
use crate::Failure;
use crate::signal::Stop;
use clap::Args;
use rheostat_bench::Progress;
use rheostat_bench::compare::{self, CompareOptions, Contender, Depth};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

/// Requests of a measurement at pipeline 1; deeper pipelines have up to five times as many.
const REQUESTS: u64 = 100_000;

/// Arguments of `bench compare`.
#[derive(Args, Debug)]
pub struct Arguments {
    /// Servers that run already, as name=host:port or name=host:port/number (SELECT) [default: a node with one partition, started for this]
    #[arg(long, value_name = "NAME=HOST:PORT", value_delimiter = ',')]
    resp: Vec<String>,
    /// The protocols that the node started for this has keyspaces of
    #[arg(long, value_name = "PROTOCOL", value_delimiter = ',', default_values_t = ["causal".to_string(), "eventual".to_string()], conflicts_with = "resp")]
    protocols: Vec<String>,
    /// Without Redis; ratios are then to the last contender
    #[arg(long)]
    no_redis: bool,
    /// Without the server that only parses and answers
    #[arg(long)]
    no_limit: bool,
    /// Without DECR of one hot counter
    #[arg(long)]
    no_counter: bool,
    /// Pipeline depths
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [1, 16], value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pipelines: Vec<u32>,
    /// Requests of each measurement at pipeline 1; at greater depths up to five times as many
    #[arg(long, value_name = "N", default_value_t = REQUESTS, value_parser = clap::value_parser!(u64).range(1..=400_000_000))]
    requests: u64,
    /// Connections
    #[arg(short, long, value_name = "N", default_value = "50")]
    connections: u32,
    /// Bytes of a value
    #[arg(long, value_name = "BYTES", default_value = "64")]
    value_length: u32,
    /// Number of keys
    #[arg(long, value_name = "N", default_value = "100000")]
    keys: u32,
    /// Rounds; in each, every server is measured once at each depth
    #[arg(long, value_name = "N", default_value = "5")]
    rounds: usize,
    /// The redis-server to start
    #[arg(long, value_name = "FILE", default_value = "redis-server")]
    redis_server: PathBuf,
    /// The redis-benchmark to run
    #[arg(long, value_name = "FILE", default_value = "redis-benchmark")]
    redis_benchmark: PathBuf,
}

pub(super) async fn run(arguments: Arguments, json: Option<&Path>, stop: &mut Stop) -> Result<ExitCode, Failure> {
    let mut contenders: Vec<Contender> = arguments.resp.iter().map(|text| contender(text)).collect::<Result<_, _>>()?;
    let own = if contenders.is_empty() { Some(Own::of_protocols(&arguments.protocols).await?) } else { None };
    if let Some(own) = &own {
        for (number, name) in arguments.protocols.iter().enumerate() {
            let (host, port, database) = ("127.0.0.1".to_string(), own.ports()[0].resp, Some(number as u32));
            contenders.push(Contender::Address { name: name.to_string(), host, port, password: None, database });
        }
    }
    if !arguments.no_limit {
        contenders.push(Contender::Limit);
    }
    if !arguments.no_redis {
        contenders.push(Contender::Redis { program: arguments.redis_server.clone() });
    }
    let depths = arguments.pipelines.iter().map(|pipeline| Depth { pipeline: *pipeline, requests: arguments.requests * u64::from(*pipeline).min(5) });
    let options = CompareOptions {
        depths: depths.collect(),
        connections: arguments.connections,
        value_length: arguments.value_length,
        keys: arguments.keys,
        rounds: arguments.rounds,
        redis_benchmark: arguments.redis_benchmark.clone(),
        // A new one for each run: it is made, and has a bound.
        hot_counter: (!arguments.no_counter)
            .then(|| format!("compare:hot:{}", SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros()))),
        ..CompareOptions::new(contenders)
    };
    let result = unless_told(stop, compare::run(&options, &Progress::on_stderr())).await;
    if let Some(own) = own {
        own.end().await;
    }
    show(&result?, json)
}

/// `name=host:port` or `name=host:port/number`.
fn contender(text: &str) -> Result<Contender, Failure> {
    let wrong = || format!("--resp {text}: not of the form name=host:port or name=host:port/number");
    let (name, place) = text.split_once('=').ok_or_else(wrong)?;
    let (address, database) = match place.split_once('/') {
        Some((address, number)) => (address, Some(number.parse().map_err(|_| wrong())?)),
        None => (place, None),
    };
    let (host, port) = address.rsplit_once(':').ok_or_else(wrong)?;
    let port = port.parse().map_err(|_| wrong())?;
    Ok(Contender::Address { name: name.to_string(), host: host.to_string(), port, password: None, database })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_read() {
        let wanted = Contender::Address { name: "a".into(), host: "h".into(), port: 1, password: None, database: Some(2) };
        assert_eq!(contender("a=h:1/2").unwrap(), wanted);
        for wrong in ["", "a", "a=h", "a=h:x", "a=h:1/x", "a=h:70000"] {
            assert!(contender(wrong).unwrap_err().contains("name=host:port"), "{wrong}");
        }
    }
}
