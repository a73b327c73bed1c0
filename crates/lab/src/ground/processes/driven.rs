//! Mixes by the benchmark's load driver, over RESP.

use super::describe::{KEYSPACE, LEAST_MS};
use crate::experiment::{Act, Distribution, Load, Mix, Point, StrategyName};
use crate::ground::Measured;
use rheostat_bench::Progress;
use rheostat_bench::latency::Percentiles;
use rheostat_bench::load::report::PhaseReport;
use rheostat_bench::load::schedule::Arrivals;
use rheostat_bench::load::{self, LoadOptions, Pacing};
use rheostat_bench::target::Target;
use rheostat_bench::target::resp::RespTarget;
use rheostat_bench::workload::{CoreWorkload, OperationKind, RequestDistribution, Workload};
use rheostat_cluster::Processes as Cluster;
use std::time::Duration;
use tokio::task::JoinSet;

/// Most requests of an open loop under way on each connection.
const IN_FLIGHT: usize = 64;

/// Whether the load driver can do what the clients of `point` do.
pub(super) fn fits(point: &Point) -> bool {
    let contender = &point.contender;
    let own_level = contender.read_level.is_none() && contender.write_level.is_none();
    let mix = |load: &Load| matches!(&load.does, Act::Mix(mix) if mix.remote == 0.0 && mix.think_ms == 0.0);
    // The driver's connection is a gateway's, which would predict in the client's place.
    let bounded = contender.read_within.0.or(contender.write_within.0).is_some();
    let chosen = bounded || contender.strategy != StrategyName::Auto;
    let near = point.cluster.near_ms < LEAST_MS;
    // A slow server's own clients would not wait for it, and whether a transaction involves it is not told apart.
    own_level && near && !chosen && point.cluster.slow.is_none() && point.load.iter().all(mix)
}

fn options(point: &Point, mix: &Mix, clients: u32, seed: u64) -> LoadOptions {
    let size = point.size;
    let workload = Workload {
        name: point.experiment.clone(),
        record_count: mix.keys,
        field_count: 1,
        field_length_bytes: mix.value_bytes as u32,
        read: (1.0 - mix.put) * (1.0 - mix.transactions),
        update: mix.put,
        scan: (1.0 - mix.put) * mix.transactions,
        request_distribution: match mix.distribution {
            Distribution::Uniform => RequestDistribution::Uniform,
            Distribution::Zipfian => RequestDistribution::Zipfian,
        },
        min_scan_length: mix.transaction_keys,
        max_scan_length: mix.transaction_keys,
        ..Workload::core(CoreWorkload::A)
    };
    let pacing = match mix.rate > 0.0 {
        true => Pacing::Open { rate: mix.rate * f64::from(clients), arrivals: Arrivals::Poisson, in_flight: IN_FLIGHT },
        false => Pacing::Closed { pipeline: 1 },
    };
    LoadOptions {
        connections: clients as usize,
        threads: 1,
        pacing,
        warm_up: Duration::from_millis(size.warm_ms),
        operations: size.operations.map(|operations| operations * u64::from(clients)),
        duration: Some(Duration::from_millis(size.measure_ms)),
        load_records: false,
        seed,
        ..LoadOptions::new(workload)
    }
}

/// The groups of clients that have any, with their places.
fn groups(point: &Point) -> impl Iterator<Item = (usize, &Load)> {
    point.load.iter().enumerate().filter(|(_, group)| group.clients > 0)
}

/// Puts the load of `point` on `cluster`.
pub(super) async fn run(point: &Point, cluster: &Cluster) -> Result<Measured, String> {
    let mut loads = Vec::new();
    for (index, group) in groups(point) {
        let Act::Mix(mix) = &group.does else { return Err("a load that the driver cannot do".into()) };
        let everywhere: Vec<u8> = (0..point.cluster.regions.len() as u8).collect();
        let places = if group.data_centers.is_empty() { &everywhere } else { &group.data_centers };
        for dc in places {
            let region = &point.cluster.regions[usize::from(*dc)];
            let there = cluster.nodes.iter().filter(|node| node.config.data_center == *region);
            let target = Target::Resp(RespTarget {
                addresses: there.map(|node| node.address(node.ports.resp)).collect(),
                keyspace: Some(KEYSPACE.to_owned()),
                ..RespTarget::new(region.clone(), "")
            });
            let options = options(point, mix, group.clients, point.seed.wrapping_add((index as u64) << 32 | u64::from(*dc)));
            loads.push((target, options, group.measured));
        }
    }
    // All begin together, so the records are there before.
    if let Some((target, options, _)) = loads.first() {
        load::load_records(target, options, &Progress::hidden()).await.map_err(|error| error.to_string())?;
    }
    let mut running = JoinSet::new();
    for (target, options, measured) in loads {
        running.spawn(async move { load::run(&target, &options, &Progress::hidden()).await.map(|report| (report.measured, measured)) });
    }
    let mut phases = Vec::new();
    while let Some(done) = running.join_next().await {
        let (phase, measured) = done.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
        phases.extend(measured.then_some(phase));
    }
    sum_up(&phases)
}

/// All data centers together. Quantiles are means over them, weighted by their counts.
fn sum_up(phases: &[PhaseReport]) -> Result<Measured, String> {
    let succeeded: u64 = phases.iter().map(|phase| phase.succeeded).sum();
    if succeeded == 0 {
        let why = phases.first().map(PhaseReport::failures_summary).unwrap_or_default();
        return Err(format!("no operation was answered in the measured time: {why}"));
    }
    let mut measured = Measured::default();
    let mut all = Vec::new();
    for (kind, name) in [(OperationKind::Read, "get"), (OperationKind::Update, "put"), (OperationKind::Scan, "transaction")] {
        let of_kind: Vec<Percentiles> = phases.iter().flat_map(|phase| &phase.kinds).filter(|one| one.kind == kind).map(|one| one.latency).collect();
        let rate: f64 = phases.iter().flat_map(|phase| &phase.kinds).filter(|one| one.kind == kind).map(|one| one.throughput_per_s).sum();
        latencies(&mut measured, name, &of_kind, rate);
        all.extend(of_kind);
    }
    let rate: f64 = phases.iter().map(|phase| phase.throughput_per_s).sum();
    latencies(&mut measured, "operation", &all, rate);
    let failed: u64 = phases.iter().map(|phase| phase.failed + phase.unsent).sum();
    let busy = phases.iter().filter_map(|phase| phase.generator.busy).fold(0.0, f64::max);
    measured.values.extend([
        ("operations_per_second".to_owned(), rate),
        ("failures".to_owned(), failed as f64),
        ("generator_busy_percent".to_owned(), 100.0 * busy),
    ]);
    Ok(measured)
}

fn latencies(measured: &mut Measured, name: &str, parts: &[Percentiles], rate: f64) {
    let count: u64 = parts.iter().map(|part| part.count).sum();
    if count == 0 {
        return;
    }
    let weighted = |of: fn(&Percentiles) -> f64| parts.iter().map(|part| of(part) * part.count as f64).sum::<f64>() / count as f64 / 1000.0;
    let largest = parts.iter().map(|part| part.max_us).fold(0.0, f64::max) / 1000.0;
    let values = [
        ("mean_ms", weighted(|part| part.mean_us)),
        ("p50_ms", weighted(|part| part.p50_us)),
        ("p90_ms", weighted(|part| part.p90_us)),
        ("p95_ms", weighted(|part| part.p95_us)),
        ("p99_ms", weighted(|part| part.p99_us)),
        ("max_ms", largest),
        ("count", count as f64),
        ("per_second", rate),
    ];
    measured.values.extend(values.map(|(what, value)| (format!("{name}_{what}"), value)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue;
    use crate::experiment::points;

    #[test]
    fn a_group_without_clients_is_no_load() {
        let (experiment, text) = catalogue::find("get-put-share").unwrap().remove(0);
        let mut point = points(&experiment, text, false).unwrap().remove(0);
        let idle = Load { clients: 0, ..point.load[0].clone() };
        point.load.insert(0, idle);
        assert_eq!(groups(&point).map(|(place, group)| (place, group.clients > 0)).collect::<Vec<_>>(), [(1, true)]);
    }
}
