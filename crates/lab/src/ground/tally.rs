//! What clients meet, counted alike on all grounds.

use super::{Measured, Samples};
use crate::experiment::Cluster;
use rheostat_bench::latency::Failures;
use rheostat_core::DcId;
use rheostat_core::answer::Quality;
use rheostat_core::dial::Level;
use rheostat_core::outcome::Outcome;
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
    /// Of yes and no: how often yes, and how often either.
    shares: BTreeMap<String, (u64, u64)>,
    failures: Failures,
    /// Of ping-pong: the last number whose writer has its answer, and since when.
    pub(super) written: (u64, u64),
}

impl Tallies {
    /// Takes in one latency of `name`.
    pub(super) fn add(&mut self, name: &'static str, ms: f64) {
        self.samples.entry(name).or_default().add(ms);
    }

    /// Of ping-pong: for how long the writer of `number`, which is read now, has had its answer. Without one it does not wait for it to be seen.
    pub(super) fn unseen_ms(&self, number: u64, now_ns: u64) -> f64 {
        let (written, at_ns) = self.written;
        if written == number { now_ns.saturating_sub(at_ns) as f64 / 1e6 } else { 0.0 }
    }

    /// Takes in one yes or no of `name`.
    pub(super) fn share(&mut self, name: impl Into<String>, yes: bool) {
        self.shares_of(name, yes.into(), 1);
    }

    /// Takes in so many times yes of so many.
    pub(super) fn shares_of(&mut self, name: impl Into<String>, yes: u64, all: u64) {
        let share = self.shares.entry(name.into()).or_default();
        *share = (share.0 + yes, share.1 + all);
    }

    /// An operation with a bound has ended after so long, well or not. The bound is of the time at the server; the way to a server nearby and back is not in it.
    pub(super) fn bounded(&mut self, kind: Kind, ms: f64, within_ms: f64, well: bool, cluster: &Cluster) {
        let ways_ms = 2.0 * (cluster.near_ms + cluster.local_jitter_ms);
        self.share(format!("{}_within", kind.name()), well && ms <= within_ms + ways_ms);
    }

    /// How good a read's answer says that it is.
    pub(super) fn quality(&mut self, quality: Quality) {
        for (name, level) in [("strong", Level::Strong), ("causal", Level::Causal), ("session", Level::SESSION)] {
            self.share(format!("get_{name}"), quality.level.implies(level));
        }
        if let Some(staleness_ms) = quality.staleness_ms {
            self.add("staleness", staleness_ms as f64);
        }
    }

    /// What an answer says of itself.
    pub(super) fn answered(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Read(_, quality) => self.quality(*quality),
            Outcome::Written(_) => self.share("put_kept", false),
            Outcome::Kept(_) => self.share("put_kept", true),
            _ => {}
        }
    }

    /// An operation on `keys`, of servers in `dc`, took so long.
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

    /// What was measured in `seconds`, and no distributions.
    pub(super) fn measured(&self, seconds: f64) -> Measured {
        let mut measured = Measured::default();
        self.sum_up(&mut measured, seconds);
        measured.distributions.clear();
        measured
    }

    pub(super) fn sum_up(&self, measured: &mut Measured, seconds: f64) {
        for (name, samples) in &self.samples {
            measured.latencies(name, samples, seconds);
        }
        let percent = |(yes, all): &(u64, u64)| 100.0 * *yes as f64 / *all as f64;
        measured.values.extend(self.shares.iter().map(|(name, share)| (format!("{name}_percent"), percent(share))));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_seen_before_its_writer_has_an_answer_was_not_unseen() {
        let tallies = Tallies { written: (7, 10_000_000), ..Tallies::default() };
        assert_eq!(tallies.unseen_ms(7, 15_000_000), 5.0);
        assert_eq!(tallies.unseen_ms(8, 90_000_000), 0.0, "what was written before it says nothing of it");
    }
}
