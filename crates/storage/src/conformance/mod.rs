//! What any driver must do, as checks that any driver can run: [`run`].
//!
//! A driver hands in a [`Driver`]: how to make an empty store, and how its process is restarted. Each check panics with what
//! it expected. [`model`] holds a store to a naive model over any sequence of operations; property tests use it too.

mod checks;
pub mod model;

use rheostat_clock::{DcId, Timestamp};
use rheostat_core::store::{Checkpoints, Cut, History, KeepAll, Recovered, Store};
use rheostat_core::version::{Item, Key, Update, Value, Version, VersionId};

/// The protocol's metadata in these checks.
pub type Meta = u64;

/// A driver under test. It lives as long as its store; each check gets its own.
pub trait Driver {
    /// The store.
    type Store: Store<Meta>;

    /// An empty store. Called once, before [`Driver::restart`].
    fn create(&mut self) -> Self::Store;

    /// Kills the store's process after a write-through, and starts it again. `None` for a driver that keeps nothing over a restart.
    fn restart(&mut self, store: Self::Store) -> Option<(Self::Store, Recovered)>;
}

/// Runs every check on stores of the driver that `make` makes. Panics at the first that fails.
pub fn run<D: Driver>(make: impl Fn() -> D) {
    checks::order(make().create());
    checks::duplicates(make().create());
    checks::latest(make().create());
    checks::multi_key(make().create());
    checks::own_updates(make().create());
    checks::own_updates_are_durable(make().create());
    checks::own_clock(make().create());
    checks::release(make().create());
    checks::held_updates(make().create());
    checks::scan(make().create());
    checks::scan_while_keys_change(make().create());
    checks::collect(make().create());
    checks::collect_at_append(make().create());
    checks::collect_tombstones(make().create());
    checks::collect_expired(make().create());
    checks::expiring_keys(make());
    checks::collect_history(make().create());
    checks::collect_checkpoints(make());
    checks::collect_some(make().create());
    checks::side_by_side(make());
    checks::long_keys(make().create());
    checks::flushes(make().create());
    checks::restart(make());
    checks::restart_after_collection(make());
    checks::entries(make());
    for seed in 0..48 {
        model::check(make(), &model::random_operations(seed, 160));
    }
}

/// A cut for tests.
#[derive(Clone, Copy, Debug)]
pub struct TestCut {
    /// Versions up to this are settled.
    pub settled: Timestamp,
    /// Nothing up to this can still arrive.
    pub complete: Timestamp,
    /// See [`History::floor_ms`].
    pub floor_ms: u64,
    /// See [`Checkpoints::every_ms`].
    pub every_ms: u64,
    /// See [`History::oldest_ms`].
    pub oldest_ms: u64,
}

impl TestCut {
    /// Everything up to `ms` is settled and complete, and no history is kept.
    pub fn upto(ms: u64) -> TestCut {
        TestCut { settled: Timestamp::new(ms, u16::MAX), complete: Timestamp::new(ms, u16::MAX), floor_ms: u64::MAX, every_ms: 0, oldest_ms: 0 }
    }
}

impl Cut<Meta> for TestCut {
    fn settled(&self, version: &Version<Meta>) -> bool {
        version.id.written <= self.settled
    }

    fn complete(&self, at: Timestamp) -> bool {
        at <= self.complete
    }

    fn history(&self) -> History {
        let checkpoints = Checkpoints { every_ms: self.every_ms, count: 0 };
        History { floor_ms: self.floor_ms, expired_before_ms: self.floor_ms, checkpoints, oldest_ms: self.oldest_ms }
    }
}

/// A cut where versions with the same metadata replace each other, and others stand beside them; everything up to a time, in milliseconds, is complete, and checkpoints come so often, 0 for never.
#[derive(Clone, Copy, Debug)]
pub struct SideBySide(pub u64, pub u64);

impl Cut<Meta> for SideBySide {
    const SIBLINGS: bool = true;

    fn replaces(&self, newer: &Version<Meta>, older: &Version<Meta>) -> bool {
        newer.meta == older.meta
    }

    fn settled(&self, _: &Version<Meta>) -> bool {
        true
    }

    fn complete(&self, at: Timestamp) -> bool {
        at.millis() <= self.0
    }

    fn history(&self) -> History {
        History { floor_ms: u64::MAX, expired_before_ms: u64::MAX, checkpoints: Checkpoints { every_ms: self.1, count: 0 }, oldest_ms: 0 }
    }
}

/// A key of these bytes.
pub fn key(bytes: impl AsRef<[u8]>) -> Key {
    Key::from(bytes.as_ref())
}

/// The version id ⟨`ms`, `origin`⟩.
pub fn id(ms: u64, origin: u8) -> VersionId {
    VersionId { written: Timestamp::new(ms, 0), origin: DcId(origin) }
}

/// An update that writes to each of `keys` a value that names key and version.
pub fn put(id: VersionId, keys: &[&str]) -> Update<Meta> {
    let item = |name: &&str| Item { key: key(name), value: Some(Value::from(format!("{name}={id}").as_bytes())), expires_ms: 0 };
    Update { id, items: keys.iter().map(item).collect(), meta: id.written.millis() }
}

/// An update that deletes `name`.
pub fn delete(id: VersionId, name: &str) -> Update<Meta> {
    let mut update = put(id, &[name]);
    update.items[0].value = None;
    update
}

/// An update to `name` that expires.
pub fn expiring(id: VersionId, name: &str, expires_ms: u64) -> Update<Meta> {
    let mut update = put(id, &[name]);
    update.items[0].expires_ms = expires_ms;
    update
}

/// Appends; panics on an error.
pub fn append<S: Store<Meta>>(store: &mut S, update: &Update<Meta>, own: bool) {
    let before = store.end();
    let after = store.append(update, own, &KeepAll).expect("appends");
    assert!(after >= before && after == store.end(), "append returns the end of the log, which does not go back");
}

/// Flushes until everything is durable.
pub fn flush<S: Store<Meta>>(store: &mut S) {
    store.write_through().expect("writes through");
    while let Some(job) = store.begin_flush() {
        let flushed = job.run().expect("flushes");
        store.end_flush(flushed);
    }
    assert_eq!(store.durable(), store.end(), "everything is durable after a flush");
}

/// Reads what is due, as [`Store::begin_read`] wants it.
pub fn read<S: Store<Meta>>(store: &mut S) {
    while let Some(job) = store.begin_read() {
        store.end_read(job.run());
    }
}

/// All keys of `slot`, by pages of about `limit`; panics if one comes twice.
pub fn walk<S: Store<Meta>>(store: &mut S, slot: u16, limit: usize) -> Vec<Key> {
    let mut keys = Vec::new();
    let mut from = 0;
    loop {
        let page = store.scan(slot, from, limit);
        keys.extend(page.keys);
        let Some(next) = page.next else { break };
        assert!(next > from || from == 0, "a walk moves on");
        from = next;
    }
    let distinct: std::collections::BTreeSet<_> = keys.iter().collect();
    assert_eq!(distinct.len(), keys.len(), "a walk returns each key once");
    keys
}

/// The ids of the chain of `name`, greatest first.
fn chain_ids<S: Store<Meta>>(store: &mut S, name: &str) -> Vec<VersionId> {
    store.chain(name.as_bytes()).iter().map(|version| version.id).collect()
}

fn ids(updates: &[Update<Meta>]) -> Vec<VersionId> {
    updates.iter().map(|update| update.id).collect()
}
