//! What clients meet, counted alike on all grounds.

use super::{Measured, Samples};
use crate::experiment::Cluster;
use rheostat_bench::latency::Failures;
use rheostat_core::DcId;
use rheostat_core::slots;
use rheostat_core::version::Key;
use std::collections::BTreeMap;

/// What an operation is counted as.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Get,
    Put,
    Transaction,
}

impl Kind {
    /// Its name in measurements.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Kind::Get => "get",
            Kind::Put => "put",
            Kind::Transaction => "transaction",
        }
    }
}

/// What was measured, by name.
#[derive(Default)]
pub(super) struct Tallies {
    samples: BTreeMap<&'static str, Samples>,
    failures: Failures,
    /// Of ping-pong: when the last number was written.
    pub(super) written_ns: u64,
}

impl Tallies {
    /// Takes in one latency of `name`.
    pub(super) fn add(&mut self, name: &'static str, ms: f64) {
        self.samples.entry(name).or_default().add(ms);
    }

    /// An operation of a client in `dc` on `keys` took so long.
    pub(super) fn operation(&mut self, kind: Kind, ms: f64, dc: DcId, keys: &[Key], cluster: &Cluster) {
        self.add(kind.name(), ms);
        self.add("operation", ms);
        if let (Kind::Transaction, Some(slow)) = (kind, cluster.slow) {
            let of_it = |key: &Key| slots::partition_of(key, cluster.partitions).0 == slow.partition;
            let involved = dc.0 == slow.data_center && keys.iter().any(of_it);
            self.add(if involved { "transaction_involved" } else { "transaction_uninvolved" }, ms);
        }
    }

    /// An operation failed, for this reason.
    pub(super) fn failed(&mut self, why: &str) {
        self.failures.count(why);
    }

    /// Operations that were answered.
    pub(super) fn operations(&self) -> u64 {
        [Kind::Get, Kind::Put, Kind::Transaction].iter().filter_map(|kind| self.samples.get(kind.name())).map(Samples::count).sum()
    }

    /// What failed, in words.
    pub(super) fn failures(&self) -> String {
        self.failures.summary()
    }

    pub(super) fn sum_up(&self, measured: &mut Measured, seconds: f64) {
        for (name, samples) in &self.samples {
            measured.latencies(name, samples, seconds);
        }
        measured.values.insert("operations_per_second".into(), self.operations() as f64 / seconds);
        measured.values.insert("failures".into(), self.failures.total() as f64);
    }
}

/// What the servers' own numbers say of transactions; `since` is by how much one of them has grown in the measured time.
pub(super) fn of_transactions(measured: &mut Measured, since: impl Fn(&str) -> f64) {
    let mut values = Vec::new();
    let transactions = since("transactions_coordinated") + since("transactions_predicted");
    if transactions > 0.0 {
        values.push(("transaction_messages", since("transaction_messages") / transactions));
        values.push(("transaction_rounds", since("transaction_rounds") / transactions));
        values.push(("transactions_predicted_percent", 100.0 * since("transactions_predicted") / transactions));
    }
    if since("transactions_predicted") > 0.0 {
        values.push(("predictions_refused_percent", 100.0 * since("predictions_refused") / since("transactions_predicted")));
        values.push(("prediction_error_ms", since("prediction_errors_ms") / since("predicted_slices").max(1.0)));
        values.push(("slices_waited_percent", 100.0 * since("predicted_slices_waited") / since("predicted_slices").max(1.0)));
    }
    measured.values.extend(values.into_iter().map(|(name, value)| (name.to_owned(), value)));
}
