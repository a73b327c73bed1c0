//! What the protocols do alike that agree over the tree on what a data center has: heartbeats, rounds, the result on its way to disk; and what they say of it.

use crate::tree::{Aggregate, PERSIST_BUSY_US, Share, Tree};
use rheostat_clock::{DcId, Timestamp, TimestampVector};
use rheostat_core::answer::{Quality, Read};
use rheostat_core::dial::Level;
use rheostat_core::gauge::{Gauge, Metric};
use rheostat_core::ids::{Now, PartitionId, Place};
use rheostat_core::protocol::Protocol;
use rheostat_core::replica::QUIET_US;
use rheostat_core::reserved::{OF_THE_SERVER, Reserved};
use rheostat_core::step::Step;
use rheostat_core::store::Store;
use rheostat_core::version::Key;

/// Stands for whatever was deleted and is forgotten, among the keys that something depends on: no user's key, and there is no version of it.
pub(crate) const FORGOTTEN: Reserved<'static> = Reserved { kind: OF_THE_SERVER, number: u64::MAX, of: b"" };

/// Timer of heartbeats. Paper: Δ.
pub(crate) const HEARTBEAT: u8 = 0;
/// Timer of what is stable. Paper: θ.
pub(crate) const STABILIZE: u8 = 1;
/// Timer of the result's way to disk.
pub(crate) const PERSIST: u8 = 2;
/// The first timer that is a protocol's own.
pub(crate) const OWN_TIMER: u8 = 3;

/// What several protocols tell of themselves.
pub(crate) const STABLE_LAG: Gauge = Gauge::status(
    "stable_lag_ms",
    "How far what every reader here sees of the slowest other data center is behind this server's physical clock; rheostat_visibility_lag_seconds has each data center's.",
);
pub(crate) const HELD: Metric = Metric::gauges(
    "held_requests",
    "until",
    "Requests that this server holds: until what their session or snapshot has seen is here (past), or until its own clock has come so far (clock).",
);
pub(crate) const HELD_SESSIONS: Gauge = Gauge::of(
    HELD,
    "past",
    "held_sessions",
    "Requests that wait until what their session has seen is here: of sessions that moved, and slices of transactions.",
);
pub(crate) const UNDER_WAY: Gauge =
    Gauge::metric("transactions_under_way", "transactions_under_way", "Read-only transactions that this server coordinates now.");
pub(crate) const SECOND_ROUNDS: Metric =
    Metric { name: "transaction_second_rounds_total", counts: true, label: None, help: "Read-only transactions that took a second round." };
pub(crate) const CHECKS: Metric = Metric {
    name: "dependency_checks_total",
    counts: true,
    label: None,
    help: "Dependencies of versions of other data centers that were asked of this data center's servers.",
};

/// How long the result may wait on its way to disk while nobody asks anything, in microseconds: nothing is written then that it would let go.
const PERSIST_PUT_OFF_US: u64 = 30_000_000;

/// See [`Protocol::put_off_us`]. A data center's servers take their rounds up again as soon as anybody asks anything anywhere, so what is written then is seen as soon.
pub(crate) fn put_off_us(timer: u8) -> u64 {
    match timer {
        HEARTBEAT | STABILIZE => QUIET_US,
        PERSIST => PERSIST_PUT_OFF_US,
        _ => 0,
    }
}

/// See [`Protocol::later_us`].
pub(crate) fn later_us<A: Aggregate>(tree: &Tree<A>, timer: u8, period_us: u64) -> u64 {
    if timer == STABILIZE { tree.later_us(period_us) } else { 0 }
}

/// The message that tells a share.
type Say<P, A> = fn(Share<A>) -> <P as Protocol>::Message;

/// One server's heartbeats and rounds.
pub(crate) struct Rounds {
    heartbeat_us: u64,
    stabilization_us: u64,
    /// Whether what is told must be on disk before.
    pub(crate) flushed: bool,
    /// Whether a replicate message has left since the last heartbeat was due.
    pub(crate) replicated: bool,
}

impl Rounds {
    /// As the options ask for. Errors: options out of range, in words for the user.
    pub(crate) fn new(place: &Place, heartbeat_ms: u64, stabilization_ms: u64, fan_out: u16) -> Result<Rounds, String> {
        for (name, value) in [("heartbeat_ms", heartbeat_ms), ("stabilization_ms", stabilization_ms)] {
            if !(1..=60_000).contains(&value) {
                return Err(format!("{name} = {value}: must be 1 to 60000"));
            }
        }
        if fan_out == 0 {
            return Err("fan_out = 0: must be at least 1".into());
        }
        let flushed = place.data_centers > 1;
        Ok(Rounds { heartbeat_us: heartbeat_ms * 1000, stabilization_us: stabilization_ms * 1000, flushed, replicated: false })
    }

    /// Sets the timers, when the server starts.
    pub(crate) fn start<P: Protocol, S: Store<P::Meta>>(&self, step: &mut Step<'_, P, S>) {
        step.effects.timer(HEARTBEAT, self.heartbeat_us);
        step.effects.timer(STABILIZE, self.stabilization_us);
        step.effects.timer(PERSIST, 0);
    }

    /// Upon every Δ time (Alg. 5.3 lines 3 to 7): if nothing was replicated, the clock is told to those who are `linked`, if anybody is.
    pub(crate) fn heartbeat<P: Protocol, S: Store<P::Meta>>(&mut self, step: &mut Step<'_, P, S>, linked: bool) {
        if linked && !std::mem::take(&mut self.replicated) {
            let at = step.tick();
            step.effects.heartbeat(at);
        }
        step.effects.timer(HEARTBEAT, self.heartbeat_us);
    }

    /// Upon every θ time (Alg. 5.3 lines 1 and 2): one level up the tree what the subtree has (`up`); from the root, down again (`down`).
    pub(crate) fn tell<P: Protocol, S: Store<P::Meta>, A: Aggregate>(
        &self,
        step: &mut Step<'_, P, S>,
        tree: &Tree<A>,
        share: Share<A>,
        (up, down): (Say<P, A>, Say<P, A>),
    ) {
        let message = if tree.parent().is_some() { up(share) } else { down(share) };
        // What is said of received updates, and of snapshots to come, must still be true after a crash.
        if self.flushed {
            step.effects.send_flushed(tree.above(), message);
        } else {
            step.effects.send(tree.above(), message);
        }
        step.effects.timer(STABILIZE, self.stabilization_us);
    }
}

/// The result comes down the tree `from` the server above: passes it on (`down`), and returns what the data center has. `None` from anybody else.
pub(crate) fn pass_down<P: Protocol, S: Store<P::Meta>, A: Aggregate>(
    step: &mut Step<'_, P, S>,
    tree: &mut Tree<A>,
    from: PartitionId,
    share: Share<A>,
    down: Say<P, A>,
) -> Option<A> {
    if from != tree.above() {
        return None;
    }
    for child in tree.children() {
        step.effects.send(*child, down(share.clone()));
    }
    tree.oldest_snapshot.join(&share.oldest_snapshot);
    Some(share.received)
}

/// Now and then `result`, if there is one, goes to disk, as the state that `bytes` makes of it.
pub(crate) fn persist<P: Protocol, S: Store<P::Meta>, A: Aggregate>(
    step: &mut Step<'_, P, S>,
    tree: &mut Tree<A>,
    result: Option<&A>,
    bytes: impl FnOnce() -> Vec<u8>,
) {
    if result.is_some_and(|result| tree.persist(result, step.now.monotonic_us)) {
        step.persist(bytes());
    }
    step.effects.timer(PERSIST, PERSIST_BUSY_US);
}

/// A lower bound on every snapshot that a server coordinates now (`under_way`) or will coordinate, even after a restart, where its own clock has shown `own`.
pub(crate) fn oldest_snapshot<'a>(
    tree: &Tree<TimestampVector>,
    own: (DcId, Timestamp),
    under_way: impl Iterator<Item = &'a TimestampVector>,
) -> TimestampVector {
    let mut oldest = tree.persisted.clone();
    oldest.set(own.0, own.1);
    under_way.for_each(|snapshot| oldest.meet(snapshot));
    oldest
}

/// The oldest of the other data centers' entries of `vector`; the greatest timestamp if there is none.
pub(crate) fn oldest(place: &Place, vector: &TimestampVector) -> Timestamp {
    place.peers().map(|dc| vector.get(dc)).min().unwrap_or(Timestamp::MAX)
}

/// By how many milliseconds the slowest other data center's entry of `vector` is behind; 0 if there is none.
pub(crate) fn lag_ms(place: &Place, now: Now, vector: &TimestampVector) -> u64 {
    now.physical_ms.saturating_sub(oldest(place, vector).millis())
}

/// How good an answer at `level` is that reflects everything up to `vector`.
pub(crate) fn quality(place: &Place, now: Now, level: Level, vector: &TimestampVector) -> Quality {
    Quality { level, staleness_ms: Some(lag_ms(place, now, vector)) }
}

/// `vector` as a list by data center.
pub(crate) fn listed(place: &Place, vector: &TimestampVector) -> Vec<Timestamp> {
    (0..place.data_centers).map(|index| vector.get(DcId(index))).collect()
}

/// The vector that covers everything.
pub(crate) fn everything(place: &Place) -> TimestampVector {
    up_to(place, Timestamp::MAX)
}

/// The vector that covers everything that was written up to `at`, and no more.
pub(crate) fn up_to(place: &Place, at: Timestamp) -> TimestampVector {
    (0..place.data_centers).map(|index| (DcId(index), at)).collect()
}

/// Up to where something can have been deleted, or have expired, of which nothing is left at the server whose tree this is: since its start, up to `gone` ([`rheostat_core::step::Step::forgotten`]); before, up to what
/// was persisted then. Its clock, or the snapshot that it reads, is at `most`.
pub(crate) fn forgotten(place: &Place, tree: &Tree<TimestampVector>, gone: Timestamp, most: Timestamp) -> Timestamp {
    // What is deleted where there is no other data center is hidden nowhere.
    if place.data_centers == 1 {
        return Timestamp::ZERO;
    }
    oldest(place, &tree.restarted).max(gone).min(oldest(place, &tree.persisted)).min(most)
}

/// What is said of a session that waits for a data center: which, up to where, and up to where it is here.
pub(crate) fn session_waits((dc, needed, had): (DcId, Timestamp, Timestamp)) -> String {
    format!("the updates of data center {dc} up to {needed} that this session depends on (here up to {had})")
}

/// What is said of a version that waits for a data center.
pub(crate) fn version_waits((dc, needed, had): (DcId, Timestamp, Timestamp)) -> String {
    format!("waits for everything from data center {dc} up to {needed}; here up to {had}")
}

/// The newest version of `key`, visible or not: what level eventual reads.
pub(crate) fn newest<P: Protocol, S: Store<P::Meta>>(step: &mut Step<'_, P, S>, key: &Key) -> Read {
    let now_ms = step.now.physical_ms;
    step.store.latest(key, |_| true).map_or_else(Read::default, |version| Read::of(version, now_ms))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rheostat_core::ids::ServerId;

    /// What was forgotten before a restart nobody tells any more: it is taken for all that had been persisted then.
    #[test]
    fn what_was_forgotten_is_bounded_over_a_restart() {
        let at = |ms| Timestamp::new(ms, 0);
        let vector = |entries: [u64; 3]| -> TimestampVector { (0..3).zip(entries).map(|(dc, ms)| (DcId(dc), at(ms))).collect() };
        let place =
            |data_centers| Place { server: ServerId::new(DcId(0), PartitionId(0)), data_centers, partitions: 1, first_partitions: 1, replicas: 1 };
        let mut tree = Tree::new(&place(3), 2);
        assert_eq!(forgotten(&place(3), &tree, at(7), Timestamp::MAX), Timestamp::ZERO, "nothing was persisted, so nothing was collected");
        tree.restart(vector([90, 4, 5]));
        assert_eq!(forgotten(&place(3), &tree, Timestamp::ZERO, Timestamp::MAX), at(4));
        assert!(tree.persist(&vector([99, 9, 10]), u64::MAX));
        let found = |gone, most| forgotten(&place(3), &tree, gone, most);
        assert_eq!(found(Timestamp::ZERO, Timestamp::MAX), at(4), "where nothing is deleted it stands still");
        assert_eq!([found(at(7), Timestamp::MAX), found(at(7), at(6)), found(at(12), Timestamp::MAX)], [at(7), at(6), at(9)]);
        assert_eq!(forgotten(&place(1), &tree, at(7), Timestamp::MAX), Timestamp::ZERO, "there is nobody else");
    }
}
