//! The numbers that a server tells of itself. Each is declared once, beside the code that tells it: for status by a name of its own, and for metrics as a sample of one that means one thing.
//!
//! What reads them all (metrics, their page, the dashboard) is made from the declarations, and knows none of the names.

/// A number that a server tells of itself.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Gauge {
    /// Its name in status.
    pub name: &'static str,
    /// What it says.
    pub help: &'static str,
    /// What it is among the metrics; none: it is for whoever looks at one server.
    pub sample: Option<Sample>,
}

/// What a number is among the metrics.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sample {
    /// The metric.
    pub metric: Metric,
    /// The value of the metric's label; empty if it has none.
    pub label: &'static str,
    /// So many of the number's unit make one of the metric's.
    pub per: f64,
}

/// A metric of partition servers.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Metric {
    /// Its name, without what all have before it. It ends with the unit, and a counter's with `_total`.
    pub name: &'static str,
    /// Whether it only grows while the process runs.
    pub counts: bool,
    /// The label that tells its samples apart, beside those that name the server.
    pub label: Option<&'static str>,
    /// What it says.
    pub help: &'static str,
}

impl Metric {
    /// A gauge whose samples `label` tells apart.
    pub const fn gauges(name: &'static str, label: &'static str, help: &'static str) -> Metric {
        Metric { name, counts: false, label: Some(label), help }
    }

    /// A counter whose samples `label` tells apart.
    pub const fn counters(name: &'static str, label: &'static str, help: &'static str) -> Metric {
        Metric { name, counts: true, label: Some(label), help }
    }
}

impl Gauge {
    /// A number that is no metric.
    pub const fn status(name: &'static str, help: &'static str) -> Gauge {
        Gauge { name, help, sample: None }
    }

    /// A number that goes up and down, and is the metric of this name.
    pub const fn metric(name: &'static str, metric: &'static str, help: &'static str) -> Gauge {
        let metric = Metric { name: metric, counts: false, label: None, help };
        Gauge { name, help, sample: Some(Sample { metric, label: "", per: 1.0 }) }
    }

    /// A number that only grows while the process runs, and is the metric of this name.
    pub const fn counter(name: &'static str, metric: &'static str, help: &'static str) -> Gauge {
        let metric = Metric { name: metric, counts: true, label: None, help };
        Gauge { name, help, sample: Some(Sample { metric, label: "", per: 1.0 }) }
    }

    /// A number that is the sample of `metric` with this value of its label.
    pub const fn of(metric: Metric, label: &'static str, name: &'static str, help: &'static str) -> Gauge {
        Gauge { name, help, sample: Some(Sample { metric, label, per: 1.0 }) }
    }

    /// With so many of the number's unit to one of the metric's.
    pub const fn per(mut self, units: f64) -> Gauge {
        if let Some(sample) = &mut self.sample {
            sample.per = units;
        }
        self
    }
}

/// Whether `told` are the numbers that are `declared`, in this order.
pub fn are_declared(declared: &[&[Gauge]], told: &[(&'static str, f64)]) -> bool {
    declared.iter().copied().flatten().map(|gauge| gauge.name).eq(told.iter().map(|(name, _)| *name))
}
