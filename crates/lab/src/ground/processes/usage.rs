//! How much processor time the servers take.

use rheostat_bench::thread::CpuUse;
use rheostat_cluster::Processes as Cluster;
use std::convert::Infallible;
use std::time::{Duration, Instant};

/// Between two looks.
const LOOK: Duration = Duration::from_millis(200);

/// Looks at what the processes of a cluster have used.
pub(super) struct Usage {
    processes: Vec<u32>,
    /// When, and the time on a processor of all of them until then.
    looks: Vec<(Instant, Duration)>,
}

impl Usage {
    pub(super) fn of(cluster: &Cluster) -> Usage {
        let ids = (0..cluster.nodes.len()).filter_map(|index| cluster.pid(index)).filter_map(|pid| u32::try_from(pid.as_raw_nonzero().get()).ok());
        Usage { processes: ids.collect(), looks: Vec::new() }
    }

    /// Nothing where the system does not say.
    fn look(&mut self) {
        let used: Option<Duration> = self.processes.iter().map(|id| CpuUse::of_process(*id).map(|used| used.running)).sum();
        self.looks.extend(used.map(|used| (Instant::now(), used)));
    }

    /// Looks again and again.
    pub(super) async fn watch(&mut self) -> Infallible {
        loop {
            self.look();
            tokio::time::sleep(LOOK).await;
        }
    }

    /// How many processors were busy with the servers in the last `span`, or since the first look if that is less.
    pub(super) fn busy(&mut self, span: Duration) -> Option<f64> {
        self.look();
        let (now, used) = *self.looks.last()?;
        let from = now.checked_sub(span)?;
        let (then, before) = *self.looks.iter().rev().find(|(at, _)| *at <= from).or(self.looks.first())?;
        let passed = now.saturating_duration_since(then).as_secs_f64();
        (passed > 0.0).then(|| used.saturating_sub(before).as_secs_f64() / passed)
    }
}
