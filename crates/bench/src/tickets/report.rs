//! Who oversold.

use crate::counter::client::Outcome;
use crate::latency::{Failures, LatencyHistogram, Percentiles};
use crate::report::Report;
use crate::table::{Table, duration_us};
use serde::Serialize;
use std::time::Duration;

/// What one data center's sellers sold of one kind.
#[derive(Clone, Debug, Default)]
pub struct Sale {
    /// Tickets sold.
    pub sold: u64,
    /// Customers sent away: sold out, for all that was known.
    pub refused: u64,
    /// Sales that failed; they may have been made.
    pub failures: Failures,
    latency: LatencyHistogram,
}

impl Sale {
    pub(super) fn count(&mut self, outcome: &Outcome, took: Duration) {
        match outcome {
            Outcome::Made => {
                self.sold += 1;
                self.latency.record(took);
            }
            Outcome::Refused => self.refused += 1,
            Outcome::Conflict => self.failures.count("conflict"),
            Outcome::Failed(kind) => self.failures.count(kind),
        }
    }
}

/// What was sold of one kind.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Kind {
    /// By data center.
    pub sold: Vec<u64>,
    /// By data center: customers sent away.
    pub refused: Vec<u64>,
    /// Sales that failed; they may have been made.
    pub failures: Failures,
    /// The counter's value in the end, as each data center sees it.
    pub left: Vec<Option<i64>>,
    /// Tickets sold beyond those that there were.
    pub oversold: u64,
    /// Of the sales that were made.
    pub latency: Percentiles,
}

/// The result.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct TicketsReport {
    /// How many tickets there were of each kind.
    pub tickets: i64,
    /// The data centers' names.
    pub data_centers: Vec<String>,
    /// Sold out of a counter without bounds, by looking first.
    pub weak: Kind,
    /// Sold out of a counter with a lower bound.
    pub bounded: Kind,
    /// For how long the last data center was cut off, in seconds; absent if it was not.
    pub cut_s: Option<f64>,
    /// How long it all took, in seconds.
    pub lasted_s: f64,
}

impl TicketsReport {
    pub(super) fn new(
        tickets: i64,
        data_centers: Vec<String>,
        sales: [Vec<Sale>; 2],
        left: [Vec<Option<i64>>; 2],
        cut: Option<Duration>,
        lasted: Duration,
    ) -> TicketsReport {
        let kind = |sales: Vec<Sale>, left: Vec<Option<i64>>| {
            let (mut failures, mut latency) = (Failures::default(), LatencyHistogram::new());
            for sale in &sales {
                failures.merge(&sale.failures);
                latency.merge(&sale.latency);
            }
            let all: u64 = sales.iter().map(|sale| sale.sold).sum();
            Kind {
                sold: sales.iter().map(|sale| sale.sold).collect(),
                refused: sales.iter().map(|sale| sale.refused).collect(),
                failures,
                left,
                oversold: all.saturating_sub(tickets as u64),
                latency: latency.percentiles(),
            }
        };
        let ([weak, bounded], [weak_left, bounded_left]) = (sales, left);
        let (weak, bounded) = (kind(weak, weak_left), kind(bounded, bounded_left));
        TicketsReport { tickets, data_centers, weak, bounded, cut_s: cut.map(|cut| cut.as_secs_f64()), lasted_s: lasted.as_secs_f64() }
    }

    fn verdict(&self, name: &str, kind: &Kind) -> String {
        let sold: u64 = kind.sold.iter().sum();
        let failed =
            if kind.failures.total() > 0 { format!(" ({} sales failed: {})", kind.failures.total(), kind.failures.summary()) } else { String::new() };
        match kind.oversold {
            0 => format!("{name}: {sold} of {} tickets sold, none twice{failed}.\n", self.tickets),
            over => format!("{name}: OVERSOLD. {sold} tickets sold, and there were {}: {over} people have no seat{failed}.\n", self.tickets),
        }
    }
}

impl Report for TicketsReport {
    fn text(&self) -> String {
        let mut titles = vec!["counter".to_owned(), "sold".to_owned()];
        titles.extend(self.data_centers.iter().map(|name| format!("in {name}")));
        titles.extend(["left", "sent away", "sale p50", "sale p99"].map(str::to_owned));
        let mut table = Table::with_titles(titles);
        for (name, kind) in [("weak", &self.weak), ("bounded", &self.bounded)] {
            let mut row = vec![name.to_owned(), kind.sold.iter().sum::<u64>().to_string()];
            row.extend(kind.sold.iter().map(u64::to_string));
            let mut left: Vec<String> = kind.left.iter().map(|value| value.map_or("?".to_owned(), |value| value.to_string())).collect();
            left.dedup();
            row.push(left.join(" / "));
            row.push(kind.refused.iter().sum::<u64>().to_string());
            row.extend([duration_us(kind.latency.p50_us), duration_us(kind.latency.p99_us)]);
            table.row(row);
        }
        let last = self.data_centers.last().map_or("", String::as_str);
        let cut = self.cut_s.map_or("no link was cut".to_owned(), |cut| format!("{last} was cut off for {cut:.1} s of it"));
        let mut out = format!("After {:.1} s ({cut}):\n\n{}\n", self.lasted_s, table.render());
        out.push_str(&self.verdict("weak", &self.weak));
        out.push_str(&self.verdict("bounded", &self.bounded));
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_who_oversold() {
        let sale = |sold: u64| {
            let mut sale = Sale::default();
            (0..sold).for_each(|_| sale.count(&Outcome::Made, Duration::from_millis(1)));
            sale.count(&Outcome::Refused, Duration::from_millis(1));
            sale
        };
        let sales = [vec![sale(6), sale(7)], vec![sale(4), sale(6)]];
        let names = vec!["east".to_owned(), "eu".to_owned()];
        let left = [vec![Some(-3), Some(-3)], vec![Some(0), Some(0)]];
        let report = TicketsReport::new(10, names, sales, left, Some(Duration::from_secs(2)), Duration::from_secs(5));
        assert_eq!((report.weak.oversold, report.bounded.oversold), (3, 0));
        let text = report.text();
        assert!(text.contains("weak: OVERSOLD. 13 tickets sold, and there were 10: 3 people have no seat."), "{text}");
        assert!(text.contains("bounded: 10 of 10 tickets sold, none twice."), "{text}");
        assert!(text.contains("eu was cut off for 2.0 s"), "{text}");
    }
}
