//! The options of a load.

use clap::{Args, ValueEnum};
use rheostat_bench::load::schedule::Arrivals;
use rheostat_bench::load::{LoadOptions, Pacing};
use rheostat_bench::target::Target;
use rheostat_bench::target::grpc::GrpcTarget;
use rheostat_bench::target::resp::RespTarget;
use rheostat_bench::workload::{CoreWorkload, RequestDistribution, Workload};
use rheostat_client::{Level, Strategy};
use rheostat_cluster::Ports;
use std::time::Duration;

/// What is asked, and how fast.
#[derive(Args, Debug)]
pub struct Load {
    /// Records that are loaded first [YCSB: recordcount]
    #[arg(long, value_name = "N", default_value = "100000")]
    records: u64,
    /// Fields of a record [YCSB: fieldcount]
    #[arg(long, value_name = "N", default_value = "10")]
    fields: u32,
    /// Bytes of a field [YCSB: fieldlength]
    #[arg(long, value_name = "BYTES", default_value = "100")]
    field_length: u32,
    /// A scan, which is one read-only transaction, reads from 1 to so many records, every length alike [YCSB: maxscanlength]
    #[arg(long, value_name = "N", default_value = "100")]
    scan_length: u32,
    /// Which records are asked for: zipfian, uniform or latest [default: the workload's own]
    #[arg(long, value_name = "NAME")]
    distribution: Option<RequestDistribution>,
    /// Connections
    #[arg(short, long, value_name = "N", default_value = "50")]
    connections: usize,
    /// Threads of the load generator
    #[arg(long, value_name = "N", default_value = "1")]
    threads: usize,
    /// Closed loop: requests in one pipeline on each connection
    #[arg(long, value_name = "N", default_value = "1", conflicts_with = "rate")]
    pipeline: usize,
    /// Open loop: requests per second, over all connections
    #[arg(long, value_name = "N")]
    rate: Option<f64>,
    /// Open loop: evenly spaced requests, instead of random gaps as from many independent users
    #[arg(long, requires = "rate")]
    even: bool,
    /// Open loop: most requests under way on each connection
    #[arg(long, value_name = "N", default_value = "64", requires = "rate")]
    in_flight: usize,
    /// Seconds at the start that are not recorded
    #[arg(long, value_name = "SECONDS", default_value = "1")]
    warm_up: f64,
    /// Seconds that are recorded
    #[arg(short, long, value_name = "SECONDS", default_value = "10")]
    duration: f64,
    /// Recorded operations after which the load ends, if the duration has not ended it [YCSB: operationcount]
    #[arg(long, value_name = "N")]
    operations: Option<u64>,
    /// The records are there already, at the servers that --address names
    #[arg(long, requires = "address")]
    no_load: bool,
    /// Seed of all choices
    #[arg(long, value_name = "N", default_value = "1")]
    seed: u64,
}

impl Load {
    /// The load of `workload` as asked. Errors: an option that cannot be.
    pub fn options(&self, workload: CoreWorkload) -> Result<LoadOptions, String> {
        let mut workload = Workload::core(workload);
        workload.record_count = self.records;
        workload.field_count = self.fields;
        workload.field_length_bytes = self.field_length;
        workload.max_scan_length = self.scan_length;
        if let Some(distribution) = self.distribution {
            workload.request_distribution = distribution;
        }
        let pacing = match self.rate {
            None => Pacing::Closed { pipeline: self.pipeline },
            Some(rate) => Pacing::Open { rate, arrivals: if self.even { Arrivals::Even } else { Arrivals::Poisson }, in_flight: self.in_flight },
        };
        let options = LoadOptions {
            connections: self.connections,
            threads: self.threads,
            pacing,
            warm_up: seconds("--warm-up", self.warm_up)?,
            operations: self.operations,
            duration: Some(seconds("--duration", self.duration)?),
            load_records: !self.no_load,
            seed: self.seed,
            ..LoadOptions::new(workload)
        };
        options.check().map_err(|error| error.to_string())?;
        Ok(options)
    }
}

/// `value` seconds. Errors: not a length of time.
pub fn seconds(option: &str, value: f64) -> Result<Duration, String> {
    Duration::try_from_secs_f64(value).map_err(|error| format!("{option} {value}: {error}"))
}

/// How requests travel.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Kind {
    /// RESP: Rheostat, Redis, any server that speaks it
    Resp,
    /// Rheostat's gRPC, with sessions: one for each request under way on a connection
    Grpc,
}

/// Which server.
#[derive(Args, Debug)]
pub struct Server {
    /// How requests travel
    #[arg(long, value_enum, default_value = "resp")]
    target: Kind,
    /// Addresses of the server, host:port, of RESP or gRPC as --target says; connections are spread over them [default: a node started for this]
    #[arg(long, visible_alias = "resp", value_name = "HOST:PORT", value_delimiter = ',')]
    address: Vec<String>,
    /// The password of the server that --address names
    #[arg(long, env = "RHEOSTAT_PASSWORD", hide_env_values = true)]
    password: Option<String>,
    /// What to SELECT, or over gRPC the keyspace: a number, or a keyspace's name
    #[arg(short, long, value_name = "NAME")]
    keyspace: Option<String>,
    /// Over gRPC, the level to ask for: eventual, session, causal, local, strong [default: the keyspace's own]
    #[arg(long, value_parser = level)]
    level: Option<Level>,
    /// How read-only transactions find their snapshot: auto, coordinated or predicted [default: the keyspace's own]
    #[arg(long, value_parser = strategy)]
    strategy: Option<Strategy>,
    /// Partitions of the node that is started
    #[arg(long, value_name = "N", default_value = "1", conflicts_with = "address", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub partitions: u16,
}

fn level(name: &str) -> Result<Level, String> {
    Level::from_name(name).ok_or_else(|| format!("the levels are: {}", Level::names()))
}

fn strategy(name: &str) -> Result<Strategy, String> {
    Strategy::from_name(name).ok_or_else(|| format!("the strategies are: {}", Strategy::ALL.map(Strategy::name).join(", ")))
}

impl Server {
    /// Errors: options that contradict each other.
    pub fn check(&self) -> Result<(), String> {
        match (self.target, self.level) {
            (Kind::Resp, Some(_)) => Err("--level is for --target grpc: over RESP the level is the keyspace's own".to_string()),
            _ => Ok(()),
        }
    }

    /// The server that was named, if one was.
    pub fn named(&self) -> Option<Target> {
        let first = self.address.first()?;
        Some(self.at(first, self.address.clone()))
    }

    /// The node at `ports` of this machine.
    pub fn own(&self, ports: Ports) -> Target {
        let port = match self.target {
            Kind::Resp => ports.resp,
            Kind::Grpc => ports.grpc,
        };
        let name = format!("rheostat {}", self.keyspace.as_deref().unwrap_or("default"));
        self.at(&name, vec![format!("127.0.0.1:{port}")])
    }

    fn at(&self, name: &str, addresses: Vec<String>) -> Target {
        // Whoever is started for this has none.
        let password = self.password.clone().filter(|_| !self.address.is_empty());
        let keyspace = self.keyspace.clone();
        match self.target {
            Kind::Resp => Target::Resp(RespTarget { addresses, password, keyspace, strategy: self.strategy, ..RespTarget::new(name, "") }),
            Kind::Grpc => {
                let default = GrpcTarget::new(name, "");
                let keyspace = keyspace.unwrap_or(default.keyspace);
                let strategy = self.strategy.unwrap_or_default();
                Target::Grpc(GrpcTarget { addresses, password, keyspace, level: self.level, strategy, name: default.name })
            }
        }
    }
}
