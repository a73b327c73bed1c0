//! What `bench counter` found.

use super::{CounterOptions, Style};
use crate::latency::{Failures, Percentiles};
use crate::report::Report;
use crate::table::{Table, duration_us, rate};
use serde::Serialize;

/// One measurement of throughput and latency.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Throughput {
    /// How the counters are kept.
    pub style: Style,
    /// How many there are.
    pub counters: usize,
    /// Clients, over all data centers.
    pub clients: usize,
    /// Updates made per second.
    pub per_second: f64,
    /// Updates begun, whatever came of them.
    pub attempts: u64,
    /// Updates that lost against another client's.
    pub conflicts: u64,
    /// Updates that failed otherwise.
    pub failures: Failures,
    /// Of all updates, whatever came of them.
    pub latency: Percentiles,
}

/// Latency with one client in each data center that pauses between updates.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct LowLoad {
    /// How the counter is kept.
    pub style: Style,
    /// The median in each data center, in microseconds.
    pub median_us: Vec<f64>,
}

/// A twentieth of the time in which a counter was exhausted.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Slice {
    /// Updates that ended in it.
    pub updates: usize,
    /// Of these, those that were slow.
    pub slow: usize,
    /// Their median latency, in microseconds.
    pub median_us: f64,
    /// The longest, in microseconds.
    pub max_us: f64,
}

/// A bounded counter from its initial value to 0.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Exhaustion {
    /// What was in it.
    pub initial: i64,
    /// Decrements made.
    pub made: u64,
    /// What is left in it.
    pub left: i64,
    /// From the first update to the last decrement that was made, in seconds.
    pub lasted_s: f64,
    /// An update that took longer than this, in microseconds, is slow.
    pub slow_from_us: f64,
    /// Slow updates up to the last decrement that was made.
    pub slow: usize,
    /// All updates up to then.
    pub updates: usize,
    /// The same time in slices.
    pub slices: Vec<Slice>,
    /// Median latency of the updates after it, in microseconds: all of them are refused.
    pub refused_median_us: f64,
    /// Updates that failed otherwise.
    pub failures: Failures,
}

/// What clients took out of a counter in which was too little for all of them.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Excess {
    /// How the counter is kept.
    pub style: Style,
    /// Clients, over all data centers.
    pub clients: usize,
    /// What was in it.
    pub initial: i64,
    /// Decrements made.
    pub made: i64,
    /// Those beyond what was in it.
    pub in_excess: i64,
    /// Its value afterwards.
    pub left: i64,
    /// Updates that failed; they may have been made.
    pub failures: Failures,
}

/// The result.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct CounterReport {
    /// The data centers' names.
    pub data_centers: Vec<String>,
    /// By number of counters, number of clients, style.
    pub throughput: Vec<Throughput>,
    /// By style.
    pub low_load: Vec<LowLoad>,
    /// Of a bounded counter.
    pub exhaustion: Exhaustion,
    /// By number of clients, style.
    pub excess: Vec<Excess>,
}

impl CounterReport {
    pub(super) fn new(options: &CounterOptions) -> CounterReport {
        CounterReport {
            data_centers: options.data_centers.iter().map(|target| target.name.clone()).collect(),
            throughput: Vec::new(),
            low_load: Vec::new(),
            exhaustion: Exhaustion::default(),
            excess: Vec::new(),
        }
    }

    /// Throughput of bounded counters over that of `style` in the same measurement.
    fn over(&self, bounded: &Throughput, style: Style) -> String {
        let same = |other: &&Throughput| other.style == style && other.counters == bounded.counters && other.clients == bounded.clients;
        match self.throughput.iter().find(same) {
            Some(other) if other.per_second > 0.0 => format!("{:.2}", bounded.per_second / other.per_second),
            _ => "-".to_owned(),
        }
    }
}

impl Report for CounterReport {
    fn text(&self) -> String {
        let mut out = String::from("Throughput against latency (80 % decrements, 20 % increments, closed loop; latency of all updates)\n\n");
        let mut table = Table::new(["style", "counters", "clients", "updates/s", "mean", "p50", "p99", "conflicts", "bounded/this", "failed"]);
        for one in &self.throughput {
            let bounded =
                self.throughput.iter().find(|other| other.style == Style::Bounded && other.counters == one.counters && other.clients == one.clients);
            table.row([
                one.style.name().to_owned(),
                one.counters.to_string(),
                one.clients.to_string(),
                rate(one.per_second),
                duration_us(one.latency.mean_us),
                duration_us(one.latency.p50_us),
                duration_us(one.latency.p99_us),
                format!("{:.0} %", 100.0 * one.conflicts as f64 / one.attempts.max(1) as f64),
                bounded.map_or("-".to_owned(), |bounded| self.over(bounded, one.style)),
                one.failures.summary(),
            ]);
        }
        out.push_str(&table.render());
        out.push_str("\nMedian latency at low load\n\n");
        let mut table = Table::with_titles(["style".to_owned()].into_iter().chain(self.data_centers.iter().cloned()).collect());
        for one in &self.low_load {
            table.row([one.style.name().to_owned()].into_iter().chain(one.median_us.iter().map(|us| duration_us(*us))));
        }
        out.push_str(&table.render());
        let run = &self.exhaustion;
        out.push_str(&format!(
            "\nA bounded counter from {} to {} in {:.2} s: {} decrements made; {} of {} updates took longer than {}; afterwards refused in {} (median)\n\n",
            run.initial,
            run.left,
            run.lasted_s,
            run.made,
            run.slow,
            run.updates,
            duration_us(run.slow_from_us),
            duration_us(run.refused_median_us),
        ));
        let mut table = Table::new(["time", "updates", "median", "longest", "slow"]);
        for (index, slice) in run.slices.iter().enumerate() {
            let time = format!("{:.2} s", run.lasted_s * (index + 1) as f64 / run.slices.len() as f64);
            let (median, longest) = (duration_us(slice.median_us), duration_us(slice.max_us));
            table.row([time, slice.updates.to_string(), median, longest, slice.slow.to_string()]);
        }
        out.push_str(&table.render());
        out.push_str("\nDecrements in excess\n\n");
        let mut table = Table::new(["style", "clients", "in it", "taken", "in excess", "value", "failed"]);
        for one in &self.excess {
            table.row([
                one.style.name().to_owned(),
                one.clients.to_string(),
                one.initial.to_string(),
                one.made.to_string(),
                one.in_excess.to_string(),
                one.left.to_string(),
                one.failures.summary(),
            ]);
        }
        out.push_str(&table.render());
        out.push_str(
            "\nweak: read, then decremented if positive. strong: read, then written back by compare and set in a keyspace of level strong; a conflict is not tried again.\n",
        );
        out
    }
}
