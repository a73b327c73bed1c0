//! What every driver of partition servers does so that they are watched: it hands what a server has applied to the detector beside it.

use crate::detector::{Detector, Homes, Standing};
use crate::report::Report;
use rheostat_clock::Timestamp;
use rheostat_core::ids::{Now, ServerId};
use rheostat_core::replica::{Applied, Beside, PartitionServer};
use rheostat_core::slots::slots_of;

/// The time of `server`, which is at `at`: its own clock's, or the physical clock's, which that follows.
pub fn time(server: &dyn PartitionServer, at: ServerId, now: Now) -> Timestamp {
    server.reached().get(at.dc).max(Timestamp::new(now.physical_ms, 0))
}

/// What a server has of a variable: all versions that stand side by side, the newest first.
pub fn standing(applied: Option<Applied>) -> Vec<Standing> {
    let Some(Applied { version, value, expires_ms, beside, .. }) = applied else { return vec![Standing::NOTHING] };
    let beside = beside.into_iter().map(|Beside { version, value, expires_ms }| Standing { version: Some(version), value, expires_ms });
    std::iter::once(Standing { version: Some(version), value, expires_ms }).chain(beside).collect()
}

/// Hands what the server at `at` has just `applied` to its detector. `stamps`: it stamps its writes itself, when it makes them.
pub fn detect(
    detector: &mut Detector,
    server: &dyn PartitionServer,
    (at, stamps): (ServerId, bool),
    now: Now,
    applied: impl Iterator<Item = Applied>,
    homes: &impl Homes,
) {
    let time = time(server, at, now);
    for (dc, reached) in server.reached().entries().filter(|(dc, _)| *dc != at.dc) {
        detector.heard(ServerId { dc, ..at }, reached);
    }
    for applied in applied {
        // A write of this server's own says when it was made; others' count from when they are here.
        let own = applied.version.origin == at.dc && stamps;
        let when = if own { applied.version.written } else { time };
        let key = applied.key.clone();
        detector.applied(now.monotonic_us, when, &key, &standing(Some(applied)), homes);
    }
}

/// Keys, and hash slots, that are looked at in one go.
const COUNTED_KEYS: usize = 500;
const COUNTED_SLOTS: usize = 4096;

/// Goes on with counting the keys of the server at `at` for sums, if there are keys to be counted; some at a time. May read the disk.
pub fn count(detector: &mut Detector, server: &mut dyn PartitionServer, at: ServerId, partitions: u16, now: Now, homes: &impl Homes) {
    let Some((mut slot, mut from)) = detector.counting() else { return };
    let time = time(server, at, now);
    let (first, last) = slots_of(at.partition, partitions);
    slot = slot.max(first);
    let (mut keys, mut slots) = (0, 0);
    while keys < COUNTED_KEYS && slots < COUNTED_SLOTS {
        let page = server.keys(slot, from);
        keys += page.keys.len();
        for key in &page.keys {
            if detector.is_counted(key) {
                detector.applied(now.monotonic_us, time, key, &standing(server.newest(key)), homes);
            }
        }
        (slot, from) = match page.next {
            Some(next) => (slot, next),
            None if slot >= last => return detector.counted(now.monotonic_us, None),
            None => (slot + 1, 0),
        };
        slots += usize::from(from == 0);
    }
    detector.counted(now.monotonic_us, Some((slot, from)));
}

/// What the detector of the server at `at` is to tell monitors now, and where they are.
pub fn reports(detector: &mut Detector, server: &dyn PartitionServer, at: ServerId, now: Now, homes: &impl Homes) -> Vec<(u16, Report)> {
    let expires = detector.next_expiry_ms().is_some_and(|expires_ms| expires_ms <= now.physical_ms);
    if !expires && detector.next_us() > now.monotonic_us {
        return Vec::new();
    }
    let time = time(server, at, now);
    detector.expire(now.monotonic_us, time, homes);
    detector.reports(now.monotonic_us, time)
}
