//! Real processes of this machine: real sockets, emulated delays and clock offsets.
//!
//! Each measurement starts a cluster of its own, in memory or in a temporary folder, at free ports of loopback, and ends it whatever happens. Three kinds of clients:
//!
//! - Mixes that stay in their data center, think of nothing and ask for the keyspace's own level go through [`rheostat_bench::load`], over RESP: its load
//!   generator costs little beside the servers, so that throughput says something of them.
//! - Applications are run as `rheostat app` does.
//! - Everything else is done by users with sessions over gRPC, one thing after the other.

mod applied;
mod describe;
mod driven;
mod usage;
mod users;

use super::application::Application;
use super::tally::of_transactions;
use super::{Ground, Measured};
use crate::experiment::{Act, GroundName, Point};
use rheostat_cluster::ready::{options, statuses};
use rheostat_cluster::{Description, Processes as Cluster};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use usage::Usage;

/// How long a cluster may take until it serves.
const READY: Duration = Duration::from_secs(60);

/// Has measurements on processes end from another thread, with their processes and folders.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<Asked>);

#[derive(Debug, Default)]
struct Asked {
    state: Mutex<State>,
    told: Notify,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    runs: bool,
    ends: bool,
}

impl Interrupt {
    /// No measurement begins any more, and one that runs ends soon; says whether one does.
    pub fn ask(&self) -> bool {
        let runs = self.change(|state| state.ends = true).runs;
        self.0.told.notify_one();
        runs
    }

    fn change(&self, change: impl FnOnce(&mut State)) -> State {
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut state);
        *state
    }

    /// What it says of a measurement that ends early.
    fn words() -> String {
        "it was ended before its time".to_owned()
    }
}

/// Experiments on processes of this machine.
#[derive(Clone, Debug)]
pub struct Processes {
    program: PathBuf,
    interrupt: Interrupt,
}

impl Processes {
    /// With `program`, which is `rheostat`, as the nodes; `interrupt` ends what runs.
    pub fn new(program: PathBuf, interrupt: Interrupt) -> Processes {
        Processes { program, interrupt }
    }
}

impl Ground for Processes {
    fn name(&self) -> GroundName {
        GroundName::Processes
    }

    fn run(&mut self, point: &Point) -> Result<Measured, String> {
        if point.load.iter().any(|load| matches!(load.does, Act::LinesOfCode(_))) {
            return Err("lines of code are counted on ground virtual".into());
        }
        let application = Application::of(point)?;
        let description = describe::description(point)?;
        if self.interrupt.change(|state| state.runs = true).ends {
            return Err(Interrupt::words());
        }
        let measured = self.measure(point, application, &description);
        self.interrupt.change(|state| state.runs = false);
        measured
    }
}

impl Processes {
    fn measure(&self, point: &Point, application: Option<Application>, description: &Description) -> Result<Measured, String> {
        let folder = tempfile::Builder::new().prefix("rheostat-lab-").tempdir().map_err(|error| format!("no temporary folder: {error}"))?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| format!("no runtime: {error}"))?;
        runtime.block_on(async {
            let mut cluster = Cluster::start(description, &self.program, folder.path()).await?;
            let measured = async {
                cluster.ready(READY).await?;
                tokio::time::sleep(Duration::from_millis(point.size.settle_ms)).await;
                let before = gauges(&cluster, description).await;
                let mut usage = Usage::of(&cluster);
                let load = async {
                    match application {
                        Some(application) => applied::run(point, &cluster, application).await,
                        None if driven::fits(point) => driven::run(point, &cluster).await,
                        None => users::run(point, &cluster).await,
                    }
                };
                let mut measured = tokio::select! {
                    measured = load => measured?,
                    never = usage.watch() => match never {},
                };
                let rate = measured.values.get("operations_per_second").copied().filter(|rate| *rate > 0.0);
                if let (Some(rate), Some(busy)) = (rate, usage.busy(Duration::from_millis(point.size.measure_ms))) {
                    measured.values.insert("server_us_per_operation".to_owned(), 1e6 * busy / rate);
                }
                let after = gauges(&cluster, description).await;
                let since = |name: &str| after.get(name).copied().unwrap_or(0.0) - before.get(name).copied().unwrap_or(0.0);
                of_transactions(&mut measured, since);
                cluster.check()?;
                Ok::<_, String>(measured)
            };
            let measured = tokio::select! {
                measured = measured => measured,
                () = self.interrupt.0.told.notified() => Err(Interrupt::words()),
            };
            cluster.end().await;
            measured
        })
    }
}

/// The protocols' own numbers, added up over all servers. Warming up is part of what they count.
async fn gauges(cluster: &Cluster, description: &Description) -> BTreeMap<String, f64> {
    let mut sums = BTreeMap::new();
    let Ok(options) = options(description) else { return sums };
    for replica in statuses(&options, &cluster.nodes).await.into_iter().flatten().flat_map(|status| status.replicas) {
        let of = |name: &str| replica.gauges.iter().find(|gauge| gauge.name == name).map_or(0.0, |gauge| gauge.value);
        // Means cannot be added up.
        *sums.entry("prediction_errors_ms".to_owned()).or_default() += of("prediction_error_ms") * of("predicted_slices");
        for gauge in replica.gauges {
            *sums.entry(gauge.name).or_default() += gauge.value;
        }
    }
    sums
}
