//! What a plan may be for a page to run it.

use rheostat_sim::plan::{Action, Ends, FaultKind, Plan, Spread};

const MOST_SERVERS: usize = 64;
const MOST_CLIENTS: usize = 64;
const MOST_STEPS: usize = 4_000;
const MOST_KEYS: usize = 256;
const MOST_NAME: usize = 64;
const MOST_FAULTS: usize = 500;
/// The longest time that a plan names, in microseconds.
const MOST_TIME_US: u64 = 120_000_000;
/// The same in milliseconds, of clocks and histories, which may be far away.
const FARTHEST_MS: u64 = 100_000_000;
const MOST_PADDING: u64 = 1 << 20;
const MOST_WRITTEN: u64 = 256 << 20;
const MOST_AMOUNT: i64 = 1 << 40;

/// Errors: what of `plan` is larger than a page runs. Nothing that is left overflows, and none of it takes minutes.
pub fn bounded(plan: &Plan) -> Result<(), String> {
    no_more("servers", usize::from(plan.data_centers) * usize::from(plan.partitions) * usize::from(plan.replicas), MOST_SERVERS)?;
    no_more("clients", plan.clients.len(), MOST_CLIENTS)?;
    no_more("steps of clients", plan.steps(), MOST_STEPS)?;
    no_more("keys and counters", plan.keys.len() + plan.counters.len(), MOST_KEYS)?;
    let names = plan.keys.iter().chain(plan.counters.iter().map(|counter| &counter.name));
    no_more("letters of a name", names.map(String::len).max().unwrap_or(0), MOST_NAME)?;
    no_more("faults", plan.faults.len(), MOST_FAULTS)?;
    no_more("operations that wait", plan.max_waiting, 1 << 20)?;
    let spread = |what: &str, spread: &Spread| time(what, spread.least_us).and_then(|()| time(what, spread.jitter_us));
    spread("a delay", &plan.local)?;
    spread("a delay", &plan.near)?;
    spread("a disk", &plan.disk)?;
    plan.delays.iter().try_for_each(|delay| spread("a delay", &delay.delay))?;
    time("a limit", plan.server_timeout_us)?;
    time("a limit", plan.client_timeout_us)?;
    time("a failover", plan.group.failover_us)?;
    time("a sleep", plan.sleeps_us)?;
    no_more("a drift", plan.group.most_drift_ppm, 500_000)?;
    no_more("history, in ms", plan.history_ms, FARTHEST_MS)?;
    no_more("ahead, in ms", plan.max_ahead_ms, FARTHEST_MS)?;
    no_more("checkpoints, in ms", plan.checkpoints.every_ms, FARTHEST_MS)?;
    no_more("checkpoints", plan.checkpoints.count, 1_000)?;
    for clock in &plan.clocks {
        no_more("a clock's offset, in ms", clock.offset_ms.unsigned_abs(), FARTHEST_MS)?;
        no_more("a clock's drift, in ppm", clock.drift_ppm.unsigned_abs(), 500_000)?;
    }
    let padding = plan.padding.least_us.saturating_add(plan.padding.jitter_us);
    no_more("bytes of a value", padding, MOST_PADDING)?;
    no_more("bytes of all values", padding.saturating_mul(plan.steps() as u64), MOST_WRITTEN)?;
    for counter in &plan.counters {
        let rheostat_core::counter::NewCounter { lower, upper, initial, placement } = &counter.counter;
        let numbers = [*lower, *upper, Some(*initial)];
        numbers.into_iter().flatten().try_for_each(|number| no_more("a counter", number.unsigned_abs(), MOST_AMOUNT as u64))?;
        no_more("data centers of a counter", placement.len(), 8)?;
        placement.iter().try_for_each(|weight| no_more("a weight", u64::from(*weight), 1 << 20))?;
    }
    for fault in &plan.faults {
        time("a fault", fault.from_us)?;
        time("a fault", fault.until_us)?;
        match fault.kind {
            FaultKind::SlowLink { extra_us, .. } | FaultKind::SlowServer { extra_us, .. } | FaultKind::SlowDisk { extra_us, .. } => {
                time("a fault", extra_us)?;
            }
            FaultKind::ClockJump { by_ms, .. } => no_more("a jump, in ms", by_ms.unsigned_abs(), FARTHEST_MS)?,
            _ => {}
        }
    }
    for client in &plan.clients {
        time("a client's start", client.start_us)?;
        for step in &client.steps {
            time("a pause", step.think_us)?;
            match &step.action {
                Action::Add { changes, .. } => {
                    changes.iter().try_for_each(|(_, amount)| no_more("an amount", amount.unsigned_abs(), MOST_AMOUNT as u64))?;
                }
                Action::Give { amount, .. } => no_more("an amount", *amount, MOST_AMOUNT as u64)?,
                Action::Past { ago_ms, .. } => no_more("a time ago, in ms", *ago_ms, FARTHEST_MS)?,
                Action::Rollback { ago_ms, stop_ms, ends: what, .. } => {
                    no_more("a time ago, in ms", *ago_ms, FARTHEST_MS)?;
                    time("a stop", stop_ms.saturating_mul(1000))?;
                    ends(what)?;
                }
                Action::TakeOver { stop_ms, ends: what } => {
                    time("a stop", stop_ms.saturating_mul(1000))?;
                    ends(what)?;
                }
                _ => {}
            }
        }
    }
    let drawn: u64 = plan.clients.iter().flat_map(|client| &client.steps).map(|step| step.think_us).sum();
    time("all pauses together", drawn / MOST_CLIENTS as u64)
}

fn no_more<T: PartialOrd + std::fmt::Display>(what: &str, found: T, most: T) -> Result<(), String> {
    if found > most { Err(format!("{what}: {found} is more than a page runs, which is {most}")) } else { Ok(()) }
}

fn time(what: &str, us: u64) -> Result<(), String> {
    no_more(&format!("{what}, in ms"), us / 1000, MOST_TIME_US / 1000)
}

fn ends(ends: &Ends) -> Result<(), String> {
    ends.kill.map_or(Ok(()), |kill| time("how long a server is down", kill.down_us))
}
