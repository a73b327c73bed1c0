//! Applications on the cluster, as `rheostat app` runs them.

use super::describe::KEYSPACE;
use crate::experiment::Point;
use crate::ground::Measured;
use crate::ground::application::{self, Application, Work};
use rheostat_apps::{Options, conjunctive, social, weather};
use rheostat_client::Client;
use rheostat_cluster::Processes as Cluster;
use std::rc::Rc;
use std::time::Duration;

/// How long an operation may take.
const DEADLINE: Duration = Duration::from_secs(10);

/// Puts the `application` of `point` on `cluster`.
pub(super) async fn run(point: &Point, cluster: &Cluster, application: Application) -> Result<Measured, String> {
    let mut nodes = Vec::new();
    for node in &cluster.nodes {
        let options = rheostat_client::Options { addresses: vec![node.address(node.ports.grpc)], deadline: DEADLINE, ..Default::default() };
        nodes.push(Client::connect_with(options).await.map_err(|error| error.to_string())?);
    }
    let asked_ms = point.contender.clients.as_ref().and_then(|clients| clients.settle_ms);
    let settle = asked_ms.map(|ms| Duration::from_micros((ms * 1000.0) as u64));
    let options = Options { nodes, keyspace: KEYSPACE.into(), settle, setting: application.setting };
    let (quiet, never) = (|_: &_| {}, async || std::future::pending::<()>().await);
    let report = match application.work {
        Work::Social(graph) => social::run(options, Rc::unwrap_or_clone(graph), "", quiet, never).await?,
        Work::Weather(shape, _, percent) => weather::run(options, shape, percent, "", quiet, never).await?,
        Work::Conjunctive(what) => conjunctive::run(options, what, "", quiet, never).await?,
    };
    let mut measured = Measured::default();
    application::sum_up(&mut measured, &report);
    let mut values = vec![("operations_per_second", report.operations_per_s), ("task_per_second", report.done as f64 / report.seconds.max(1e-9))];
    if report.of == Some(report.done) {
        values.push(("finished_s", report.seconds));
    }
    if let Some(told) = &report.detection {
        let quantiles = [("detection_p50_ms", told.median_ms), ("detection_p99_ms", told.p99_ms), ("detection_max_ms", told.max_ms)];
        values.extend(quantiles.into_iter().filter_map(|(name, ms)| Some((name, ms? as f64))));
    }
    measured.values.extend(values.into_iter().map(|(name, value)| (name.to_owned(), value)));
    Ok(measured)
}
