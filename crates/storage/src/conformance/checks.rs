//! The checks of [`super::run`], one promise of the trait each.

use super::*;
use rheostat_core::random::Random;
use rheostat_core::slots::slot;
use rheostat_core::store::Trim;
use std::collections::BTreeSet;

pub(super) fn order<S: Store<Meta>>(mut store: S) {
    let mut random = Random::new(1);
    let mut updates: Vec<_> = (0..40).map(|n| put(id(100 + n / 3, (n % 3) as u8), &["k"])).collect();
    for at in (1..updates.len()).rev() {
        updates.swap(at, random.below(at as u64 + 1) as usize);
    }
    for update in &updates {
        append(&mut store, update, false);
    }
    let mut expected = ids(&updates);
    expected.sort_by(|left, right| right.cmp(left));
    assert_eq!(chain_ids(&mut store, "k"), expected, "chains are in last-writer-wins order, whatever the order of arrival");
    assert_eq!(store.chain(b"absent"), Vec::new());
    assert_eq!(store.stats().keys, 1);
    assert_eq!(store.stats().versions, 40);
}

pub(super) fn duplicates<S: Store<Meta>>(mut store: S) {
    for at in [5, 3, 5, 4, 3] {
        append(&mut store, &put(id(at, 1), &["k"]), false);
    }
    assert_eq!(chain_ids(&mut store, "k"), [id(5, 1), id(4, 1), id(3, 1)], "a duplicate changes nothing");
    append(&mut store, &put(id(6, 0), &["k"]), true);
    append(&mut store, &put(id(6, 0), &["k"]), true);
    flush(&mut store);
    assert_eq!(ids(&store.own_updates(Timestamp::ZERO, 1 << 20).expect("reads").0), [id(6, 0)], "an own duplicate is sent once");
    // A part of an update can come first, when it was read from chains; the rest is added.
    append(&mut store, &put(id(9, 1), &["a"]), false);
    append(&mut store, &put(id(9, 1), &["a", "b"]), false);
    assert_eq!(chain_ids(&mut store, "a"), [id(9, 1)]);
    assert_eq!(chain_ids(&mut store, "b"), [id(9, 1)]);
}

pub(super) fn latest<S: Store<Meta>>(mut store: S) {
    for at in [10, 30, 20] {
        append(&mut store, &put(id(at, 0), &["k"]), false);
    }
    let found = |store: &mut S, upto: u64| store.latest(b"k", |version| version.meta <= upto).map(|version| version.id);
    assert_eq!(found(&mut store, 100), Some(id(30, 0)));
    assert_eq!(found(&mut store, 29), Some(id(20, 0)));
    assert_eq!(found(&mut store, 10), Some(id(10, 0)));
    assert_eq!(found(&mut store, 9), None, "no version is accepted");
    assert!(store.latest(b"absent", |_| true).is_none());
    assert!(store.peek(b"absent").is_none());
    let mut touched = Vec::new();
    store.prefetch(&[b"absent", b"k", b"k"], |version| touched.push(version.id));
    assert_eq!(touched, [id(30, 0), id(30, 0)]);
    let absent: Vec<Key> = (0..100).map(|number| Key::from(format!("absent{number}").as_bytes())).collect();
    store.prefetch(&absent.iter().map(|key| &**key).collect::<Vec<_>>(), |_| panic!("a key that is not there, among two, has the same hash"));
    assert_eq!(store.peek(b"k").map(|version| version.id), Some(id(30, 0)));
    let newest = store.latest(b"k", |_| true).cloned().expect("is there");
    assert_eq!(newest.value.as_deref(), Some("k=30.0@0".as_bytes()));
    append(&mut store, &delete(id(40, 1), "k"), false);
    let newest = store.latest(b"k", |_| true).cloned().expect("a tombstone is a version");
    assert_eq!((newest.id, newest.value), (id(40, 1), None));
}

pub(super) fn multi_key<S: Store<Meta>>(mut store: S) {
    let mut update = put(id(7, 2), &["a", "b", "c"]);
    update.items[1].value = None;
    update.items[2].expires_ms = 99;
    append(&mut store, &update, false);
    for (key, expected) in update.versions() {
        assert_eq!(store.chain(key), [expected], "each item becomes a version with the update's id and metadata");
    }
    assert_eq!(store.stats().keys, 3);
}

pub(super) fn own_updates<S: Store<Meta>>(mut store: S) {
    assert_eq!(store.own_updates(Timestamp::ZERO, 1000).expect("reads"), (Vec::new(), true));
    let mut own = Vec::new();
    for at in 1..=200u64 {
        if at % 3 == 0 {
            own.push(put(id(at, 0), if at % 2 == 0 { &["a", "b"] } else { &["a"] }));
            append(&mut store, own.last().expect("was pushed"), true);
        } else {
            append(&mut store, &put(id(at * 7 % 200, 1), &["a"]), false);
        }
    }
    flush(&mut store);
    let (all, complete) = store.own_updates(Timestamp::ZERO, usize::MAX).expect("reads");
    assert_eq!(all, own, "own updates come whole and in timestamp order");
    assert!(complete);
    let after = Timestamp::new(99, 0);
    assert_eq!(store.own_updates(after, usize::MAX).expect("reads").0[0].id, id(102, 0), "after is exclusive");
    let (one, complete) = store.own_updates(after, 1).expect("reads");
    assert_eq!((ids(&one), complete), (vec![id(102, 0)], false), "at least one, however little fits");
    assert_eq!(store.own_updates(Timestamp::new(198, 0), 1).expect("reads"), (Vec::new(), true));
    // In portions, the same comes out, and no portion is larger than asked.
    let (mut portions, mut from) = (Vec::new(), Timestamp::ZERO);
    loop {
        let (some, complete) = store.own_updates(from, 100).expect("reads");
        let bytes: usize = some.iter().map(|update| rheostat_core::wire::Wire::to_bytes(update).len()).sum();
        assert!(some.len() == 1 || bytes <= 100, "{bytes} bytes where 100 were asked");
        let Some(last) = some.last() else { break };
        from = last.id.written;
        portions.extend(some);
        assert_eq!(complete, portions.len() == own.len());
    }
    assert_eq!(portions, own);
}

pub(super) fn own_updates_are_durable<S: Store<Meta>>(mut store: S) {
    append(&mut store, &put(id(1, 0), &["a"]), true);
    flush(&mut store);
    append(&mut store, &put(id(2, 0), &["a"]), true);
    let durable_at_once = store.durable() == store.end();
    let (some, complete) = store.own_updates(Timestamp::ZERO, 1000).expect("reads");
    assert_eq!((some.len(), complete), if durable_at_once { (2, true) } else { (1, false) }, "only what is durable leaves");
    if let Some(job) = store.begin_flush() {
        append(&mut store, &put(id(3, 0), &["a"]), true);
        assert!(store.begin_flush().is_none(), "one flush at a time");
        let flushed = job.run().expect("flushes");
        store.end_flush(flushed);
        let (some, complete) = store.own_updates(Timestamp::ZERO, 1000).expect("reads");
        assert_eq!((ids(&some), complete), (vec![id(1, 0), id(2, 0)], false), "a flush covers what was there when it began");
    }
    flush(&mut store);
    assert!(store.own_updates(Timestamp::ZERO, 1000).expect("reads").1);
}

pub(super) fn own_clock<S: Store<Meta>>(mut store: S) {
    append(&mut store, &put(id(5, 0), &["a"]), true);
    let error = store.append(&put(id(4, 0), &["a"]), true, &KeepAll).expect_err("an own update from the past is refused");
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
}

pub(super) fn release<S: Store<Meta>>(mut store: S) {
    assert_eq!(store.released(), Timestamp::ZERO);
    for at in 1..=10 {
        append(&mut store, &put(id(at, 0), &["a"]), true);
    }
    flush(&mut store);
    store.release(Timestamp::new(4, 7));
    let released = store.released();
    assert!(
        (1..=4).any(|at| released == Timestamp::new(at, 0)),
        "{released} is no own update up to the one allowed: who has that would lack something"
    );
    store.release(Timestamp::new(2, 0));
    store.maintain().expect("maintains");
    assert!(store.released() >= released, "what was released stays released");
    assert!(store.released() < Timestamp::new(5, 0), "no more is released than was allowed");
    let (left, complete) = store.own_updates(Timestamp::new(4, 0), usize::MAX).expect("reads");
    assert_eq!((left.len(), complete), (6, true), "what is not released stays");
    store.release(Timestamp::MAX);
    append(&mut store, &put(id(11, 0), &["a"]), true);
    flush(&mut store);
    assert!(store.released() < Timestamp::new(11, 0), "what comes later is not released");
    assert_eq!(store.own_updates(Timestamp::new(10, 0), usize::MAX).expect("reads").0.len(), 1);
    assert_eq!(chain_ids(&mut store, "a").len(), 11, "a release takes nothing from the chains");
}

pub(super) fn held_updates<S: Store<Meta>>(mut store: S) {
    let mut own = Vec::new();
    for at in 1..=60u64 {
        let names: &[&str] = [&["a"][..], &["b", "c"], &["d", "a", "c"]][(at % 3) as usize];
        let update = put(id(at * 13 % 61, (at % 2) as u8), names);
        append(&mut store, &update, false);
        if update.id.origin == DcId(0) {
            own.push(update);
        }
    }
    own.sort_by_key(|update| update.id);
    for update in &mut own {
        update.items.sort_by(|left, right| left.key.cmp(&right.key));
    }
    let sorted = |updates: Vec<Update<Meta>>| -> Vec<Update<Meta>> {
        let mut updates = updates;
        updates.iter_mut().for_each(|update| update.items.sort_by(|left, right| left.key.cmp(&right.key)));
        updates
    };
    let (all, complete) = store.held_updates(DcId(0), Timestamp::ZERO, usize::MAX).expect("reads");
    assert!(complete, "nothing was left out");
    assert_eq!(sorted(all), own, "held updates of one origin, put together again, in timestamp order");
    let (mut portions, mut from) = (Vec::new(), Timestamp::ZERO);
    loop {
        let (some, complete) = store.held_updates(DcId(0), from, 150).expect("reads");
        let Some(last) = some.last() else { break };
        from = last.id.written;
        portions.extend(sorted(some));
        assert_eq!(complete, portions.len() == own.len(), "a portion says whether it is the last");
    }
    assert_eq!(portions, own, "portions miss nothing and split no update");
    assert_eq!(store.held_updates(DcId(7), Timestamp::ZERO, 100).expect("reads"), (Vec::new(), true));
}

pub(super) fn scan<S: Store<Meta>>(mut store: S) {
    let names: Vec<String> = (0..300).map(|n| format!("{{tag}}{n}")).collect();
    for (at, name) in names.iter().enumerate() {
        append(&mut store, &put(id(at as u64 + 1, 0), &[name]), false);
    }
    append(&mut store, &put(id(1, 0), &["elsewhere"]), false);
    let tag = slot(b"{tag}");
    let expected: BTreeSet<Key> = names.iter().map(key).collect();
    let mut orders = Vec::new();
    for limit in [0, 1, 2, 7, 300, 1000] {
        let keys = walk(&mut store, tag, limit);
        assert_eq!(keys.iter().cloned().collect::<BTreeSet<_>>(), expected, "a walk by {limit} finds every key of its slot");
        orders.push(keys);
    }
    assert!(orders.windows(2).all(|pair| pair[0] == pair[1]), "the order is fixed by the keys");
    assert!(store.scan(tag, 0, 10).keys.len() <= 12, "a page holds about its limit");
    assert_eq!(walk(&mut store, slot(b"elsewhere"), 10), [key("elsewhere")]);
    assert!(walk(&mut store, (tag + 1) % 16384, 10).is_empty());
}

pub(super) fn scan_while_keys_change<S: Store<Meta>>(mut store: S) {
    let stays: Vec<String> = (0..100).map(|n| format!("{{t}}stay{n}")).collect();
    let goes: Vec<String> = (0..100).map(|n| format!("{{t}}go{n}")).collect();
    for name in stays.iter().chain(&goes) {
        append(&mut store, &put(id(1, 0), &[name]), false);
    }
    let (mut found, mut from, mut step) = (Vec::new(), 0, 0);
    loop {
        let page = store.scan(slot(b"{t}"), from, 3);
        found.extend(page.keys);
        if let Some(name) = goes.get(step) {
            append(&mut store, &delete(id(2, 0), name), false);
            assert_eq!(store.collect(name.as_bytes(), &TestCut::upto(2)), 2);
            append(&mut store, &put(id(3, 0), &[&format!("{{t}}new{step}")]), false);
            store.maintain().expect("maintains");
        }
        step += 1;
        let Some(next) = page.next else { break };
        from = next;
    }
    let stays: BTreeSet<Key> = stays.iter().map(key).collect();
    assert_eq!(found.iter().filter(|key| stays.contains(*key)).count(), stays.len(), "no lasting key comes twice");
    assert!(stays.iter().all(|key| found.contains(key)), "no lasting key is missed");
}

pub(super) fn collect<S: Store<Meta>>(mut store: S) {
    for at in [10, 20, 30, 40] {
        append(&mut store, &put(id(at, 0), &["k"]), false);
    }
    assert_eq!(store.collect(b"k", &TestCut::upto(9)), 0, "nothing is settled");
    assert_eq!(store.collect(b"k", &TestCut::upto(19)), 0, "the settled version is the oldest");
    assert_eq!(store.collect(b"k", &TestCut::upto(35)), 2);
    assert_eq!(chain_ids(&mut store, "k"), [id(40, 0), id(30, 0)], "the greatest settled version stays, as does what is newer");
    assert_eq!(store.collect(b"k", &TestCut::upto(50)), 1);
    assert_eq!(store.collect(b"k", &TestCut::upto(50)), 0);
    assert_eq!(store.collect(b"absent", &TestCut::upto(50)), 0);
    assert_eq!((store.stats().keys, store.stats().versions), (1, 1));
}

pub(super) fn collect_at_append<S: Store<Meta>>(mut store: S) {
    let mut write = |at: u64, cut: &TestCut| {
        store.append(&put(id(at, 0), &["a"]), true, cut).expect("appends");
        store.chain(b"a").iter().map(|version| version.id.written.millis()).collect::<Vec<_>>()
    };
    let nothing = TestCut::upto(0);
    assert_eq!(write(1, &nothing), [1]);
    assert_eq!(write(2, &nothing), [2, 1]);
    assert_eq!(write(3, &TestCut::upto(1)), [3, 2, 1], "1 is the greatest settled version: a snapshot may ask for it");
    assert_eq!(write(4, &TestCut::upto(2)), [4, 3, 2], "2 is settled: nobody asks for 1");
    assert_eq!(write(5, &TestCut { floor_ms: 4, ..TestCut::upto(4) }), [5, 4, 3], "3 was the newest just before 4, and is kept as history; 2 is not");
    assert_eq!(write(6, &TestCut::upto(u64::from(u32::MAX))), [6], "the version itself is settled at once");
    assert_eq!(store.stats().versions, 1);
}

pub(super) fn collect_tombstones<S: Store<Meta>>(mut store: S) {
    append(&mut store, &put(id(10, 0), &["k"]), false);
    append(&mut store, &delete(id(20, 0), "k"), false);
    let incomplete = TestCut { complete: Timestamp::new(15, 0), ..TestCut::upto(30) };
    assert_eq!(store.collect(b"k", &incomplete), 1);
    assert_eq!(chain_ids(&mut store, "k"), [id(20, 0)], "a tombstone stays while something older can arrive");
    append(&mut store, &put(id(40, 0), &["k"]), false);
    assert_eq!(store.collect(b"k", &TestCut::upto(30)), 0, "a tombstone stays while something newer stands before it");
    assert_eq!(store.newest_gone(), Timestamp::ZERO, "there is something left of each key");
    append(&mut store, &delete(id(50, 0), "k"), false);
    assert_eq!(store.collect(b"k", &TestCut::upto(50)), 3);
    assert!(store.chain(b"k").is_empty() && store.latest(b"k", |_| true).is_none());
    assert!(walk(&mut store, slot(b"k"), 10).is_empty(), "a key without versions is not there");
    assert_eq!((store.stats().keys, store.stats().versions), (0, 0));
    assert_eq!(store.newest_gone(), id(50, 0).written);
    append(&mut store, &put(id(60, 0), &["k"]), false);
    assert_eq!(chain_ids(&mut store, "k"), [id(60, 0)], "a collected key can come again");
    assert_eq!(walk(&mut store, slot(b"k"), 10), [key("k")]);
}

pub(super) fn collect_expired<S: Store<Meta>>(mut store: S) {
    append(&mut store, &expiring(id(10, 0), "k", 100), false);
    assert_eq!(store.collect(b"k", &TestCut { floor_ms: 100, ..TestCut::upto(50) }), 0, "it has not expired before the floor");
    assert_eq!(store.collect(b"k", &TestCut { complete: Timestamp::ZERO, floor_ms: 101, ..TestCut::upto(50) }), 0, "something older can arrive");
    assert_eq!(store.collect(b"k", &TestCut { floor_ms: 101, ..TestCut::upto(50) }), 1);
    assert_eq!(store.stats().keys, 0);
}

pub(super) fn expiring_keys<D: Driver>(mut driver: D) {
    let mut store = driver.create();
    let count = |store: &D::Store| store.stats().expiring_keys;
    append(&mut store, &put(id(10, 0), &["a", "b", "c"]), false);
    assert_eq!(count(&store), 0);
    append(&mut store, &expiring(id(20, 0), "a", 100), false);
    append(&mut store, &expiring(id(20, 0), "b", 100), false);
    append(&mut store, &expiring(id(20, 0), "c", 100), false);
    append(&mut store, &expiring(id(20, 0), "d", 100), false);
    assert_eq!(count(&store), 4);
    append(&mut store, &expiring(id(20, 0), "d", 100), false);
    append(&mut store, &expiring(id(30, 0), "d", 200), false);
    assert_eq!(count(&store), 4, "neither what comes again nor a later expiry counts twice");
    append(&mut store, &put(id(30, 0), &["a"]), false);
    assert_eq!(count(&store), 3, "overwritten by what does not expire");
    append(&mut store, &expiring(id(25, 1), "a", 100), false);
    assert_eq!(count(&store), 3, "what is older than the newest changes nothing");
    append(&mut store, &delete(id(30, 0), "b"), false);
    assert_eq!(count(&store), 2, "a tombstone does not expire");
    flush(&mut store);
    let Some((mut store, _)) = driver.restart(store) else { return };
    // What a restart has left on disk comes when it is asked for.
    let names = ["a", "b", "c", "d"];
    names.iter().for_each(|name| assert!(!store.chain(name.as_bytes()).is_empty()));
    assert_eq!(count(&store), 2, "after a restart");
    store.collect(b"c", &TestCut { floor_ms: 101, ..TestCut::upto(50) });
    store.collect(b"d", &TestCut { floor_ms: 101, ..TestCut::upto(50) });
    assert_eq!(count(&store), 1, "the one that expires later is still there");
    store.trim(&key("d"), &Trim::Upto(id(30, 0))).expect("trims");
    assert_eq!(count(&store), 0);
}

pub(super) fn collect_history<S: Store<Meta>>(mut store: S) {
    for at in [10, 20, 30] {
        append(&mut store, &put(id(at, 0), &["k"]), false);
    }
    append(&mut store, &delete(id(40, 0), "k"), false);
    assert_eq!(store.collect(b"k", &TestCut { floor_ms: 20, ..TestCut::upto(50) }), 0, "as of just before 20, the key is what was written at 10");
    assert_eq!(store.collect(b"k", &TestCut { floor_ms: 21, ..TestCut::upto(50) }), 1);
    assert_eq!(chain_ids(&mut store, "k"), [id(40, 0), id(30, 0), id(20, 0)], "what was the newest at the floor is history");
    assert_eq!(store.collect(b"k", &TestCut { floor_ms: 40, ..TestCut::upto(50) }), 1);
    assert_eq!(chain_ids(&mut store, "k"), [id(40, 0), id(30, 0)], "a tombstone at the floor is history, and what stood until then");
    assert_eq!(store.collect(b"k", &TestCut { floor_ms: 41, ..TestCut::upto(50) }), 2);
}

pub(super) fn collect_checkpoints<D: Driver>(mut driver: D) {
    let cut = |floor_ms, oldest_ms| TestCut { floor_ms, every_ms: 100, oldest_ms, ..TestCut::upto(1_000) };
    let mut store = driver.create();
    let fill = |store: &mut D::Store, name: &str| {
        [50, 60, 150, 200, 201, 250, 310].iter().for_each(|at| append(store, &put(id(*at, 0), &[name]), false));
        append(store, &delete(id(320, 0), name), false);
    };
    fill(&mut store, "k");
    assert_eq!(store.collect(b"k", &cut(230, 0)), 2, "no checkpoint shows what was written at 50 and at 150");
    assert_eq!(chain_ids(&mut store, "k"), [320, 310, 250, 201, 200, 60].map(|at| id(at, 0)), "as of 100, of 200, and from 230 on");
    assert_eq!(store.collect(b"k", &cut(500, 0)), 2);
    assert_eq!(chain_ids(&mut store, "k"), [320, 250, 200, 60].map(|at| id(at, 0)), "a tombstone stays as long as checkpoints show what it hides");
    append(&mut store, &put(id(100, 1), &["k"]), false);
    assert_eq!(store.collect(b"k", &cut(500, 0)), 1);
    assert_eq!(chain_ids(&mut store, "k"), [id(320, 0), id(250, 0), id(200, 0), id(100, 1)], "what comes late is shown in the place of what was");
    assert_eq!(store.collect(b"k", &cut(500, 101)), 1, "the oldest checkpoint is not kept any more");
    assert_eq!(store.collect(b"k", &cut(500, 301)), 3, "nor is the last one that shows something");
    for (name, expires_ms) in [("before", 199), ("at", 200), ("after", 201)] {
        append(&mut store, &expiring(id(150, 0), name, expires_ms), false);
        assert_eq!(store.collect(name.as_bytes(), &cut(500, 0)), usize::from(expires_ms <= 200), "as of 200, one has not expired");
    }
    assert_eq!(store.collect(b"after", &cut(500, 201)), 1);
    assert_eq!(store.stats().keys, 0);
    // When the next version is written, what is between checkpoints goes too.
    for at in [50, 60, 150, 200, 250, 420] {
        store.append(&put(id(at, 0), &["written"]), true, &cut(400, 0)).expect("appends");
    }
    assert_eq!(chain_ids(&mut store, "written"), [420, 250, 200, 60].map(|at| id(at, 0)));
    // Where versions stand side by side.
    for (at, line) in [(50, 1), (60, 2), (150, 1), (170, 1), (160, 1), (90, 1), (270, 2)] {
        let update = Update { meta: line, ..put(id(at, 0), &["beside"]) };
        store.append(&update, false, &SideBySide(0, 100)).expect("appends");
    }
    assert_eq!(chain_ids(&mut store, "beside"), [270, 170, 90, 60].map(|at| id(at, 0)), "those of either line that stood at 100 and stand now");
    assert_eq!(store.collect(b"beside", &SideBySide(0, 0)), 2);
    assert_eq!(chain_ids(&mut store, "beside"), [270, 170].map(|at| id(at, 0)));
    fill(&mut store, "kept");
    assert_eq!(store.collect(b"kept", &cut(500, 0)), 4);
    flush(&mut store);
    let Some((mut store, _)) = driver.restart(store) else { return };
    store.collect(b"kept", &cut(500, 0));
    assert_eq!(chain_ids(&mut store, "kept"), [320, 250, 200, 60].map(|at| id(at, 0)), "over a restart");
}

pub(super) fn collect_some<S: Store<Meta>>(mut store: S) {
    let names: Vec<String> = (0..50).map(|n| format!("k{n}")).collect();
    for at in 1..=4 {
        for name in &names {
            append(&mut store, &put(id(at, 0), &[name]), false);
        }
    }
    append(&mut store, &delete(id(5, 0), "k0"), false);
    append(&mut store, &expiring(id(5, 0), "expires", 10), false);
    assert_eq!(store.collect_some(0, &TestCut::upto(9)), 0);
    assert!(store.collect_some(5, &TestCut::upto(9)) <= 5 * 4 + 1, "a bounded number of keys");
    let mut rounds = 0;
    while store.stats().versions > 49 {
        store.collect_some(5, &TestCut::upto(9));
        store.maintain().expect("maintains");
        read(&mut store);
        rounds += 1;
        assert!(rounds < 100, "going round finds every key that has something to collect");
    }
    assert_eq!(store.stats().keys, 49);
    assert!(store.chain(b"k0").is_empty() && store.chain(b"expires").is_empty());
    assert_eq!(store.collect_some(1000, &TestCut::upto(9)), 0);
    append(&mut store, &put(id(8, 0), &["k1"]), false);
    assert_eq!(store.collect_some(1000, &TestCut::upto(7)), 0, "what cannot go yet");
    assert_eq!(store.collect_some(1000, &TestCut::upto(9)), 1, "is found again later");
}

pub(super) fn long_keys<S: Store<Meta>>(mut store: S) {
    for length in [0, 1, crate::MAX_KEY_BYTES] {
        let name = "k".repeat(length);
        append(&mut store, &put(id(1, 0), &[&name]), false);
        assert_eq!(chain_ids(&mut store, &name), [id(1, 0)]);
        assert_eq!(walk(&mut store, slot(name.as_bytes()), 1), [key(&name)]);
    }
    let error = store.append(&put(id(2, 0), &[&"k".repeat(crate::MAX_KEY_BYTES + 1)]), false, &KeepAll).expect_err("is refused");
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
    append(&mut store, &put(id(3, 0), &["k"]), false);
}

/// Versions stand side by side where one does not replace the other ([`SideBySide`]).
pub(super) fn side_by_side<D: Driver>(mut driver: D) {
    let mut store = driver.create();
    let write = |store: &mut D::Store, at: u64, line: u64, value: bool| {
        let update = Update { meta: line, ..if value { put(id(at, 0), &["k"]) } else { delete(id(at, 0), "k") } };
        store.append(&update, false, &SideBySide(0, 0)).expect("appends");
        store.chain(b"k").iter().map(|version| version.id.written.millis()).collect::<Vec<_>>()
    };
    assert_eq!(write(&mut store, 10, 1, true), [10]);
    assert_eq!(write(&mut store, 20, 2, true), [20, 10], "neither replaces the other");
    assert_eq!(write(&mut store, 30, 1, true), [30, 20], "what is replaced goes, and what stands between stays");
    assert_eq!(write(&mut store, 25, 1, true), [30, 20], "what comes late and is replaced already is not kept");
    assert_eq!(write(&mut store, 26, 3, true), [30, 26, 20]);
    assert_eq!((store.stats().keys, store.stats().versions), (1, 3));
    assert_eq!(write(&mut store, 40, 3, false), [40, 30, 20]);
    assert_eq!(store.collect(b"k", &SideBySide(50, 0)), 0, "a tombstone stays while it stands before something older");
    assert_eq!(write(&mut store, 50, 2, false), [50, 40, 30]);
    assert_eq!(write(&mut store, 60, 1, true), [60, 50, 40]);
    assert_eq!(store.collect(b"k", &SideBySide(45, 0)), 1, "the one that is complete");
    flush(&mut store);
    let ids = |store: &mut D::Store| chain_ids(store, "k");
    assert_eq!(ids(&mut store), [id(60, 0), id(50, 0)]);
    let Some((mut store, _)) = driver.restart(store) else { return };
    let collected = store.collect(b"k", &SideBySide(45, 0));
    assert_eq!(ids(&mut store), [id(60, 0), id(50, 0)], "what came back by the restart is let go again: {collected}");
    assert_eq!(write(&mut store, 70, 1, false), [70, 50]);
    assert_eq!(store.collect(b"k", &SideBySide(60, 0)), 1);
    assert_eq!(store.collect(b"k", &SideBySide(80, 0)), 1, "nothing is left");
    assert_eq!((ids(&mut store).len(), store.stats().keys, store.stats().versions), (0, 0, 0));
    flush(&mut store);
    let Some((mut store, _)) = driver.restart(store) else { return };
    assert!(ids(&mut store).is_empty() && store.stats().keys == 0, "deleted data does not come back");
}

pub(super) fn flushes<S: Store<Meta>>(mut store: S) {
    flush(&mut store);
    let mut last = store.end();
    for at in 1..=5 {
        append(&mut store, &put(id(at, 0), &["k"]), at % 2 == 0);
        assert!(store.end() > last, "each record moves the end");
        assert!(store.durable() <= store.end());
        last = store.end();
        store.append_state(b"state").expect("appends");
        assert!(store.end() > last);
        last = store.end();
        flush(&mut store);
    }
    assert!(store.begin_flush().is_none(), "nothing is due when everything is on disk");
}

/// Everything that a store shows, for comparison over a restart.
fn shown<S: Store<Meta>>(store: &mut S, names: &[&str]) -> impl PartialEq + std::fmt::Debug + use<S> {
    let chains: Vec<_> = names.iter().map(|name| store.chain(name.as_bytes())).collect();
    let walks: Vec<_> = names.iter().map(|name| walk(store, slot(name.as_bytes()), 3)).collect();
    let own = store.own_updates(store.released(), usize::MAX).expect("reads");
    (chains, walks, own, store.stats().keys)
}

pub(super) fn restart<D: Driver>(mut driver: D) {
    let mut store = driver.create();
    let names = ["a", "b", "c", "d", "{a}1", "{a}2"];
    for at in 1..=90u64 {
        let two = [names[(at % 6) as usize], names[(at * 5 % 6 + 1) as usize % 6]];
        let keys = if two[0] == two[1] { &two[..1] } else { &two[..] };
        match at % 4 {
            0 => append(&mut store, &put(id(at, 0), keys), true),
            1 => append(&mut store, &put(id(at * 7 % 90, 1), keys), false),
            2 => append(&mut store, &delete(id(at, 2), names[(at % 6) as usize]), false),
            _ => drop(store.append_state(&[at as u8]).expect("appends")),
        }
        if at == 50 {
            flush(&mut store);
            store.maintain().expect("maintains");
        }
    }
    store.write_through().expect("writes through");
    let own_before = {
        flush(&mut store);
        shown(&mut store, &names)
    };
    let end = store.end();
    let Some((mut store, recovered)) = driver.restart(store) else { return };
    assert_eq!(shown(&mut store, &names), own_before, "a restart changes nothing");
    assert_eq!(recovered.state.as_deref(), Some(&[87][..]), "the last state is found");
    assert_eq!(recovered.newest, [Timestamp::new(88, 0), Timestamp::new(89, 0), Timestamp::new(90, 0)], "the newest of each origin");
    assert!(store.end() >= end, "positions keep growing");
    assert!(recovered.notes.is_empty(), "nothing was to be repaired: {:?}", recovered.notes);
    append(&mut store, &put(id(100, 0), &["a"]), true);
    flush(&mut store);
    let Some((mut store, recovered)) = driver.restart(store) else { return };
    assert_eq!(chain_ids(&mut store, "a")[0], id(100, 0));
    assert_eq!(recovered.newest[0], Timestamp::new(100, 0));
}

pub(super) fn restart_after_collection<D: Driver>(mut driver: D) {
    let mut store = driver.create();
    append(&mut store, &put(id(10, 0), &["gone"]), false);
    append(&mut store, &delete(id(20, 0), "gone"), false);
    // An older version that arrives after the tombstone must not come back without it.
    append(&mut store, &put(id(15, 1), &["gone"]), false);
    append(&mut store, &put(id(10, 0), &["stays"]), false);
    append(&mut store, &put(id(20, 0), &["stays"]), false);
    assert_eq!(store.collect_some(10, &TestCut::upto(30)), 4);
    let Some((mut store, _)) = driver.restart(store) else { return };
    assert!(store.chain(b"gone").is_empty(), "deleted data does not come back");
    assert_eq!(chain_ids(&mut store, "stays")[0], id(20, 0));
    assert_eq!(store.stats().keys, 1);
}

pub(super) fn entries<D: Driver>(mut driver: D) {
    let mut store = driver.create();
    for index in 1..=60u64 {
        store.append_entry(index, &[index as u8]).expect("appends");
        append(&mut store, &put(id(index, 0), &["k"]), true);
        if index == 30 {
            // Most of what is before is compacted, and a checkpoint may pass over what is not.
            store.compact_entries(20).expect("compacts");
            store.release(id(30, 0).written);
            flush(&mut store);
            (0..50).for_each(|_| {
                store.maintain().expect("maintains");
            });
        }
    }
    store.append_entry(50, b"new").expect("appends");
    store.append_entry(51, b"").expect("appends");
    flush(&mut store);
    (0..50).for_each(|_| {
        store.maintain().expect("maintains");
    });
    let Some((mut store, recovered)) = driver.restart(store) else { return };
    let mut expected: Vec<(u64, Vec<u8>)> = (21..50).map(|index| (index, vec![index as u8])).collect();
    expected.extend([(50, b"new".to_vec()), (51, Vec::new())]);
    assert_eq!(recovered.entries, expected, "a restart finds the entries that are neither void nor compacted");
    store.compact_entries(51).expect("compacts");
    store.append_entry(70, b"after a gap").expect("appends");
}
