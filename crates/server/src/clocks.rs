//! The clocks of a node, and what it thinks of the physical one: the nodes tell each other the time, and [`ClockWatch`] judges.

use crate::peer::Peer;
use crate::shard::mailbox::Control;
use crate::shared::{Shared, lock};
use rheostat_core::ids::Now;
use rheostat_core::session::ClusterId;
use rheostat_core::{ClockWatch, Trust};
use rustix::time::ClockId;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::Notify;

/// Between two questions for the time.
const ASK: Duration = Duration::from_secs(5);

/// After a leap, before it is looked at again.
const AFTER_A_LEAP: Duration = Duration::from_millis(50);

/// Two readings of one clock with one of the other between them belong together if they are no further apart, in microseconds. A thread can be stopped anywhere.
const TOGETHER_US: u64 = 2_000;

/// No bound: whatever the physical clock shows is believed.
const ANY: i64 = i64::MAX;

/// No lead is within this bound: the physical clock is not believed.
const NONE: i64 = -1;

/// The machine's monotonic clock. It goes on while the machine sleeps: else a leader that wakes would take its lease for one that still holds, and the physical clock would seem to leap.
#[cfg(target_os = "linux")]
const MONOTONIC: ClockId = ClockId::Boottime;
#[cfg(not(target_os = "linux"))]
const MONOTONIC: ClockId = ClockId::Monotonic;

/// A turn that has lasted longer than this, in microseconds, looks at the clocks again before it takes another message.
const SAME_TURN_US: u64 = 1_000;

/// All shards read the same ones.
pub(crate) struct Clocks {
    /// What the monotonic clock showed when this process made them, in microseconds.
    started_us: u64,
    boot: Option<u64>,
    offset_ms: i64,
    /// By how much it is wrong besides, since an operator wants it.
    wrong_ms: AtomicI64,
    watch: Mutex<ClockWatch>,
    /// The lead of the physical clock that was believed last, and how far it may be from that now; what [`ClockWatch::bounds`] says, for readers that do not wait.
    lead_us: AtomicI64,
    bound_us: AtomicI64,
    /// Why the physical clock is not believed.
    distrusted: Mutex<Option<String>>,
    /// How often that has changed.
    changes: AtomicU64,
    leapt: Notify,
}

impl Clocks {
    /// The machine's clocks, the physical one with `offset_ms` added. The node talks to `others` other nodes; timestamps may be ahead by `max_ahead_ms`.
    pub(crate) fn new(offset_ms: i64, others: usize, max_ahead_ms: u64) -> Clocks {
        Clocks {
            started_us: monotonic_us(),
            boot: boot(),
            offset_ms,
            wrong_ms: AtomicI64::new(0),
            watch: Mutex::new(ClockWatch::new(others, max_ahead_ms)),
            lead_us: AtomicI64::new(0),
            bound_us: AtomicI64::new(ANY),
            distrusted: Mutex::new(None),
            changes: AtomicU64::new(0),
            leapt: Notify::new(),
        }
    }

    pub(crate) fn now(&self) -> Now {
        let monotonic_us = self.monotonic_us();
        Now { monotonic_us, physical_ms: self.physical_us_at(monotonic_us) / 1000 }
    }

    /// `now` was read before, perhaps long ago, since a thread can be stopped anywhere: it is read again, if it is not of this moment any more.
    #[inline]
    pub(crate) fn refresh(&self, now: &mut Now) {
        if self.monotonic_us() > now.monotonic_us + SAME_TURN_US {
            *now = self.now();
        }
    }

    #[inline]
    pub(crate) fn monotonic_us(&self) -> u64 {
        monotonic_us()
    }

    /// How long this process has run, in milliseconds.
    pub(crate) fn uptime_ms(&self) -> u64 {
        (self.monotonic_us() - self.started_us) / 1000
    }

    /// See [`rheostat_core::replica::ReplicaConfig::boot`].
    pub(crate) fn boot(&self) -> Option<u64> {
        self.boot
    }

    /// The time, as far as the physical clock is believed.
    pub(crate) fn physical_ms(&self) -> u64 {
        self.physical_us_at(self.monotonic_us()) / 1000
    }

    /// As [`Clocks::physical_ms`], in microseconds.
    pub(crate) fn physical_us(&self) -> u64 {
        self.physical_us_at(self.monotonic_us())
    }

    #[inline]
    fn physical_us_at(&self, monotonic_us: u64) -> u64 {
        let shown_us = self.shown_us();
        if self.fits(shown_us, monotonic_us) { shown_us } else { self.doubted_us(monotonic_us) }
    }

    #[inline]
    fn fits(&self, shown_us: u64, monotonic_us: u64) -> bool {
        let lead_us = (shown_us as i64).wrapping_sub(monotonic_us as i64);
        lead_us.saturating_sub(self.lead_us.load(Ordering::Relaxed)).saturating_abs() <= self.bound_us.load(Ordering::Relaxed)
    }

    /// As [`Clocks::physical_ms`], when the physical clock does not fit: perhaps it has just leapt, or this thread was stopped between the two readings.
    #[cold]
    fn doubted_us(&self, monotonic_us: u64) -> u64 {
        if self.bound_us.load(Ordering::Relaxed) != NONE {
            let (shown_us, monotonic_us) = self.together();
            if self.fits(shown_us, monotonic_us) {
                return shown_us;
            }
            self.leapt.notify_one();
        }
        monotonic_us.saturating_add_signed(self.lead_us.load(Ordering::Relaxed))
    }

    /// What the physical clock shows, right or wrong, in microseconds since the Unix epoch.
    pub(crate) fn shown_us(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let offset_ms = self.offset_ms.saturating_add(self.wrong_ms.load(Ordering::Relaxed));
        (since.as_micros() as u64).saturating_add_signed(offset_ms.saturating_mul(1000))
    }

    /// From now on the physical clock shows so many milliseconds more than it does by itself.
    pub(crate) fn set_wrong_ms(&self, wrong_ms: i64) {
        if self.wrong_ms.swap(wrong_ms, Ordering::Relaxed) != wrong_ms {
            self.leapt.notify_one();
        }
    }

    /// What the physical and the monotonic clock show at one time.
    fn together(&self) -> (u64, u64) {
        let mut before_us = self.monotonic_us();
        loop {
            let shown_us = self.shown_us();
            let after_us = self.monotonic_us();
            if after_us <= before_us + TOGETHER_US {
                return (shown_us, before_us);
            }
            before_us = after_us;
        }
    }

    /// The instant at which the monotonic clock shows `us`, if the machine does not sleep until then; now, if that is past.
    pub(crate) fn instant(&self, us: u64) -> Instant {
        Instant::now() + Duration::from_micros(us.saturating_sub(self.monotonic_us()))
    }

    /// Why the physical clock is not believed, if it is not.
    pub(crate) fn distrusted(&self) -> Option<String> {
        lock(&self.distrusted).clone()
    }

    /// How often that has changed.
    #[inline]
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// By how much the physical clock is ahead of those of the other nodes, by their number, in milliseconds; of those that were heard lately.
    pub(crate) fn ahead_of(&self) -> Vec<Option<i64>> {
        let (shown_us, monotonic_us) = self.together();
        lock(&self.watch).ahead_of(shown_us, monotonic_us)
    }

    /// By how much two clocks of this node and those that it talks to are apart at least, in milliseconds.
    pub(crate) fn apart_ms(&self) -> u64 {
        let (shown_us, monotonic_us) = self.together();
        lock(&self.watch).apart_us(shown_us, monotonic_us) / 1000
    }

    fn hear(&self, of: usize, asked_us: u64, heard_us: u64, shown_us: u64) {
        lock(&self.watch).hear(of, asked_us, heard_us, shown_us);
    }

    /// Judges the physical clock; what is thought of it, if that has changed between right and wrong.
    fn judge(&self) -> Option<Trust> {
        let mut watch = lock(&self.watch);
        let (shown_us, monotonic_us) = self.together();
        let trust = watch.judge(shown_us, monotonic_us);
        let (lead_us, bound_us) = match watch.bounds() {
            (Some(held_us), _) => (held_us, NONE),
            (None, Some((believed_us, agree_us))) => (believed_us, agree_us),
            (None, None) => (0, ANY),
        };
        self.lead_us.store(lead_us, Ordering::Relaxed);
        self.bound_us.store(bound_us, Ordering::Relaxed);
        let why = (!trust.is_right()).then(|| trust.to_string());
        let mut distrusted = lock(&self.distrusted);
        let news = why.is_some() != distrusted.is_some();
        if *distrusted != why {
            *distrusted = why;
            self.changes.fetch_add(1, Ordering::Release);
        }
        news.then_some(trust)
    }
}

#[inline]
fn monotonic_us() -> u64 {
    let shown = rustix::time::clock_gettime(MONOTONIC);
    shown.tv_sec as u64 * 1_000_000 + shown.tv_nsec as u64 / 1000
}

/// The machine's run since it has started, where the system names it. A container may shift the monotonic clock, and is another run then.
fn boot() -> Option<u64> {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let shift = std::fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
    Some(ClusterId::from_name(&format!("{id} {shift}")).0)
}

impl Shared {
    /// What the clock of the node behind `peer` showed, which was asked at `asked_us` and heard at `heard_us`.
    pub(crate) fn hear_time(&self, peer: &Peer, asked_us: u64, heard_us: u64, shown_us: u64) {
        if let Some(number) = self.peers.iter().flatten().position(|other| std::ptr::eq(&**other, peer)) {
            self.clocks.hear(number, asked_us, heard_us, shown_us);
            self.judge_clock();
        }
    }

    fn judge_clock(&self) {
        let before = self.clocks.changes();
        match self.clocks.judge() {
            Some(Trust::Right) => tracing::warn!("this node's clock is believed again"),
            Some(trust) => {
                tracing::error!(%trust, "this node does not believe its clock: it gives no timestamps to writes, and leads no group, until the clock is right")
            }
            None => {}
        }
        if self.clocks.changes() != before {
            self.shards.iter().for_each(|shard| shard.control(Control::Wake));
        }
    }

    /// Says which nodes' clocks differ, where no majority says who is right.
    fn tell_differences(&self) {
        if self.clocks.distrusted().is_some() {
            return;
        }
        for (peer, ahead_ms) in self.peers.iter().flatten().zip(self.clocks.ahead_of()) {
            let Some(ahead_ms) = ahead_ms.filter(|ahead_ms| ahead_ms.unsigned_abs() > self.config.limits.max_ahead_ms / 3) else { continue };
            let node = &self.topology.nodes[peer.node().index()].name;
            if let Some(left_out) = self.throttle.line(self.clocks.monotonic_us(), &format!("clock of {node}")) {
                tracing::warn!(node, ahead_ms, left_out, "this node's clock and another's differ");
            }
        }
    }
}

/// Asks the other nodes for the time until this node stops.
pub(crate) async fn run(shared: Arc<Shared>) {
    let mut stopping = shared.stopping.subscribe();
    while !*stopping.borrow_and_update() {
        shared.judge_clock();
        shared.tell_differences();
        let now_us = shared.clocks.monotonic_us();
        shared.peers.iter().flatten().for_each(|peer| peer.ask_time(now_us));
        tokio::select! {
            () = tokio::time::sleep(ASK) => {}
            () = shared.clocks.leapt.notified() => {
                // What every reader has held back until now is judged, then the others are asked; not more often than this, whatever the clock does.
                shared.judge_clock();
                tokio::time::sleep(AFTER_A_LEAP).await;
            }
            _ = stopping.changed() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_alone_shows_what_its_clock_shows() {
        let clocks = Clocks::new(0, 0, 60_000);
        clocks.judge();
        let before = clocks.shown_us() / 1000;
        let now = clocks.now().physical_ms;
        assert!(before <= now && now <= clocks.shown_us() / 1000);
    }

    #[test]
    fn what_was_read_long_ago_is_read_again() {
        let clocks = Clocks::new(0, 0, 60_000);
        let read = clocks.now();
        let mut now = Now { monotonic_us: read.monotonic_us + 3_600_000_000, ..read };
        clocks.refresh(&mut now);
        assert_eq!(now.monotonic_us, read.monotonic_us + 3_600_000_000, "it is of this moment, or later");
        now.monotonic_us = read.monotonic_us - SAME_TURN_US;
        now.physical_ms = 0;
        std::thread::sleep(Duration::from_micros(1));
        clocks.refresh(&mut now);
        assert!(now.monotonic_us >= read.monotonic_us && now.physical_ms >= read.physical_ms);
    }

    /// The lease of a leader that slept with its machine must have ended when it wakes.
    #[cfg(target_os = "linux")]
    #[test]
    fn the_monotonic_clock_goes_on_while_the_machine_sleeps() {
        let shown_s = || rustix::time::clock_gettime(ClockId::Boottime).tv_sec as u64;
        let before_s = shown_s();
        let clocks = Clocks::new(0, 0, 60_000);
        let between_s = clocks.monotonic_us() / 1_000_000;
        assert!(before_s <= between_s && between_s <= shown_s());
    }

    #[test]
    fn a_clock_that_leaps_is_held_at_once_and_judged_by_the_others() {
        let mut clocks = Clocks::new(0, 2, 60_000);
        assert_eq!(clocks.judge(), None);
        clocks.offset_ms = 3_600_000;
        let right_ms = || Clocks::new(0, 0, 0).shown_us() / 1000;
        assert!(clocks.physical_ms().abs_diff(right_ms()) < 60_000, "before anybody has looked");
        assert!(matches!(clocks.judge(), Some(Trust::Leapt { .. })));
        assert!(clocks.physical_ms().abs_diff(right_ms()) < 60_000);
        assert!(clocks.distrusted().is_some() && clocks.changes() == 1);
        for of in 0..2 {
            let heard_us = clocks.monotonic_us();
            clocks.hear(of, heard_us, heard_us, right_ms() * 1000);
        }
        assert_eq!(clocks.judge(), None, "it was not right before either");
        assert!(clocks.distrusted().unwrap().contains("ahead of those of a majority"));
        assert!(clocks.ahead_of()[0].is_some_and(|ahead_ms| ahead_ms > 3_500_000));
        clocks.offset_ms = 0;
        assert_eq!(clocks.judge(), Some(Trust::Right));
        assert_eq!(clocks.distrusted(), None);
    }
}
