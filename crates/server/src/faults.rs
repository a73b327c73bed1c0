//! Faults that an operator makes for some time, to see what comes of them: a slower link, a pause, a wrong clock. Only where `console.faults` is set.
//!
//! Each has a bound and ends by itself, is listed while it lasts, and can be ended earlier. None outlives the process.

use crate::shard::mailbox::Control;
use crate::shared::{Shared, lock};
use rheostat_core::DcId;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Faults at once.
const MOST: usize = 16;

/// The longest a fault lasts, in milliseconds; and a pause, after which all others have given the node up anyway.
pub(crate) const LONGEST_MS: u64 = 600_000;
pub(crate) const LONGEST_PAUSE_MS: u64 = 60_000;

/// What a link can be slowed by, one way, and a clock be wrong by, in milliseconds.
pub(crate) const SLOWEST_MS: u64 = 10_000;
pub(crate) const MOST_WRONG_MS: i64 = 600_000;

/// What goes wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// What is sent to this data center leaves so many milliseconds later.
    SlowLink { other: DcId, one_way_ms: u64 },
    /// The shards stand still.
    Pause,
    /// The clock is so many milliseconds ahead; negative: behind.
    Clock { ahead_ms: i64 },
}

/// One that lasts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Active {
    pub(crate) number: u64,
    pub(crate) fault: Fault,
    until: Instant,
}

impl Active {
    /// Until it ends by itself.
    pub(crate) fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }
}

/// See the module.
#[derive(Default)]
pub(crate) struct Faults {
    active: Mutex<Vec<Active>>,
    next: AtomicU64,
    /// Something has ended: shards that stand still look whether it was their pause.
    ended: Condvar,
}

impl Faults {
    /// Those that last.
    pub(crate) fn list(&self) -> Vec<Active> {
        lock(&self.active).clone()
    }

    /// Stands still until the pause of this number has ended.
    fn stand_still(&self, number: u64) {
        let mut active = lock(&self.active);
        while let Some(pause) = active.iter().find(|one| one.number == number) {
            let left = pause.left();
            if left.is_zero() {
                return;
            }
            active = self.ended.wait_timeout(active, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Shared {
    /// Begins `fault` for `for_ms`; its number. Errors: in words for the operator.
    pub(crate) fn begin_fault(self: &Arc<Shared>, fault: Fault, for_ms: u64) -> Result<u64, String> {
        if !self.config.console.faults {
            return Err("this node's configuration does not allow faults (console.faults)".into());
        }
        let longest_ms = if fault == Fault::Pause { LONGEST_PAUSE_MS } else { LONGEST_MS };
        if !(1..=longest_ms).contains(&for_ms) {
            return Err(format!("it may last 1 to {longest_ms} ms, not {for_ms}"));
        }
        match fault {
            Fault::SlowLink { one_way_ms, .. } if !(1..=SLOWEST_MS).contains(&one_way_ms) => {
                return Err(format!("a link can be slowed by 1 to {SLOWEST_MS} ms, not {one_way_ms}"));
            }
            Fault::Clock { ahead_ms } if ahead_ms == 0 || !(-MOST_WRONG_MS..=MOST_WRONG_MS).contains(&ahead_ms) => {
                return Err(format!("a clock can be ahead or behind by 1 to {MOST_WRONG_MS} ms, not {ahead_ms}"));
            }
            _ => {}
        }
        let lasts = Duration::from_millis(for_ms);
        let number = {
            let mut active = lock(&self.faults.active);
            if *self.stopping.borrow() {
                return Err("the node stops".into());
            }
            if active.len() >= MOST {
                return Err(format!("{MOST} faults last already; end one first"));
            }
            if fault == Fault::Pause && active.iter().any(|one| one.fault == Fault::Pause) {
                return Err("the node is paused already".into());
            }
            let number = self.faults.next.fetch_add(1, Ordering::Relaxed);
            active.push(Active { number, fault, until: Instant::now() + lasts });
            number
        };
        tracing::warn!(?fault, for_ms, "a fault begins, as an operator wants it");
        match fault {
            Fault::Pause => {
                for shard in &self.shards {
                    let shared = self.clone();
                    shard.control(Control::Run(Box::new(move |_| shared.faults.stand_still(number))));
                }
            }
            Fault::SlowLink { .. } | Fault::Clock { .. } => self.apply_faults(),
        }
        let shared = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(lasts).await;
            shared.end_faults(Some(number));
        });
        Ok(number)
    }

    /// Ends the fault of this number, or all; how many that were.
    pub(crate) fn end_faults(&self, number: Option<u64>) -> usize {
        let ended = {
            let mut active = lock(&self.faults.active);
            let before = active.len();
            active.retain(|one| number.is_some_and(|number| number != one.number));
            before - active.len()
        };
        if ended > 0 {
            tracing::warn!(ended, "a fault that an operator wanted has ended");
            self.faults.ended.notify_all();
            self.apply_faults();
        }
        ended
    }

    /// Links and the clock are as the faults say that last.
    fn apply_faults(&self) {
        let active = lock(&self.faults.active);
        let slowed_ms = |dc: DcId| -> u64 {
            let of = |one: &Active| if let Fault::SlowLink { other, one_way_ms } = one.fault { (other == dc).then_some(one_way_ms) } else { None };
            active.iter().filter_map(of).sum()
        };
        self.peers.iter().flatten().for_each(|peer| peer.slow_down(slowed_ms(peer.dc()) * 1000));
        let wrong_ms = active.iter().map(|one| if let Fault::Clock { ahead_ms } = one.fault { ahead_ms } else { 0 }).sum();
        self.clocks.set_wrong_ms(wrong_ms);
    }
}
