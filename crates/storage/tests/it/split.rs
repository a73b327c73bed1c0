//! A store is split: each part has what is its own, and knows how far the store had come.

use rheostat_core::Timestamp;
use rheostat_core::reserved::{OF_THE_SERVER, Reserved};
use rheostat_core::slots::{belongs, slot, slots_of};
use rheostat_core::store::{Recovered, Store};
use rheostat_core::version::{Key, Update};
use rheostat_core::wire::WireError;
use rheostat_core::{DcId, ids::PartitionId};
use rheostat_storage::conformance::{Meta, TestCut, append, delete, flush, id, put};
use rheostat_storage::{DiskOptions, DiskStore, MemoryStore, OpenError, Part, Preparation, Prepared, store_bytes};
use std::ops::RangeInclusive;
use std::path::Path;

const PARTS: u16 = 3;

fn tiny() -> DiskOptions {
    DiskOptions { memory_bytes: 2_000, segment_bytes: 2_000, checkpoint_bytes: 1_000, own_cache_bytes: 0, ..DiskOptions::default() }
}

fn slots(part: u16) -> RangeInclusive<u16> {
    let (first, last) = slots_of(PartitionId(part), PARTS);
    first..=last
}

fn parts(folder: &Path) -> Vec<Part> {
    (0..PARTS).map(|part| Part { folder: folder.join(format!("part{part}")), slots: slots(part) }).collect()
}

fn names() -> Vec<String> {
    (0..200).map(|number| format!("k{number}")).collect()
}

/// What a server keeps of itself.
fn of_the_server() -> Key {
    Reserved { kind: OF_THE_SERVER, number: 0, of: b"" }.to_key()
}

/// Updates of two data centers, own ones among them, of keys of all parts, alone and together; deletions, collections, and a state.
fn fill<S: Store<Meta>>(store: &mut S) {
    let names = names();
    for (at, name) in names.iter().enumerate() {
        let at = at as u64;
        append(store, &put(id(10 + at, 0), &[name]), true);
        append(store, &put(id(11 + at, 1), &[name]), false);
    }
    let mut kept = put(id(300, 0), &["own"]);
    kept.items[0].key = of_the_server();
    append(store, &kept, true);
    let three: Vec<&str> = (0..PARTS).map(|part| names.iter().find(|name| slots(part).contains(&slot(name.as_bytes()))).unwrap().as_str()).collect();
    append(store, &put(id(310, 0), &three), true);
    for name in &names[..20] {
        append(store, &delete(id(320, 1), name), false);
    }
    // The last own update is of the first part alone, the last of the other data center of the last one.
    append(store, &put(id(400, 0), &three[..1]), true);
    append(store, &put(id(500, 1), &three[2..]), false);
    for index in 1..=40 {
        store.append_entry(index, format!("entry {index}").as_bytes()).unwrap();
    }
    store.append_entry(31, b"another entry 31").unwrap();
    store.compact_entries(7).unwrap();
    store.append_state(b"how far it had come").unwrap();
    store.release(Timestamp::new(150, 0));
    for name in &names[..10] {
        store.collect(name.as_bytes(), &TestCut::upto(1000));
    }
    flush(store);
}

/// What an entry is for `slots`.
fn within(entry: &[u8], slots: &RangeInclusive<u16>) -> Result<Vec<u8>, WireError> {
    Ok([entry, format!(" for {slots:?}").as_bytes()].concat())
}

fn ids<S: Store<Meta>>(store: &mut S, key: &[u8]) -> Vec<rheostat_core::version::VersionId> {
    store.chain(key).into_iter().map(|version| version.id).collect()
}

fn own<S: Store<Meta>>(store: &mut S, after: Timestamp) -> Vec<Update<Meta>> {
    let (mut found, mut after) = (Vec::new(), after);
    for _ in 0..1000 {
        let (some, all) = store.own_updates(after, 300).unwrap();
        after = some.last().map_or(after, |update| update.id.written);
        found.extend(some);
        if all {
            return found;
        }
    }
    panic!("own updates never end");
}

/// Holds `half`, which is part number `part` of `whole`, to what it must be.
fn check<S: Store<Meta>, T: Store<Meta>>(part: u16, half: &mut S, found: &Recovered, whole: &mut T, before: &Recovered) {
    let slots = slots(part);
    for name in names() {
        let expected = if slots.contains(&slot(name.as_bytes())) { ids(whole, name.as_bytes()) } else { Vec::new() };
        assert_eq!(ids(half, name.as_bytes()), expected, "{name} in part {part}");
    }
    assert_eq!(ids(half, &of_the_server()), ids(whole, &of_the_server()));
    let after = whole.released();
    assert_eq!(half.released(), after);
    let expected: Vec<Update<Meta>> = own(whole, after).iter().filter_map(|update| update.within(&slots)).collect();
    assert!(expected.len() > 10, "something is still to be sent");
    assert_eq!(own(half, after), expected);
    assert!(expected.iter().flat_map(|update| &update.items).all(|item| belongs(&item.key, &slots)));
    assert_eq!((&found.state, &found.newest), (&before.state, &before.newest), "part {part}");
    assert_eq!(before.entries.len(), 24, "{:?}", before.entries.last());
    let entries: Vec<(u64, Vec<u8>)> = before.entries.iter().map(|(index, entry)| (*index, within(entry, &slots).unwrap())).collect();
    assert_eq!(found.entries, entries, "part {part}");
    let (mine, all) = half.held_updates(DcId(1), Timestamp::ZERO, usize::MAX).unwrap();
    assert!(all && !mine.is_empty() && mine.iter().flat_map(|update| &update.items).all(|item| belongs(&item.key, &slots)));
    // It goes on.
    let name = names().into_iter().find(|name| slots.contains(&slot(name.as_bytes()))).unwrap();
    append(half, &put(id(600, 0), &[&name]), true);
    flush(half);
    assert_eq!(own(half, Timestamp::new(500, 0)).len(), 1);
}

#[test]
fn a_store_on_disk_is_split() {
    let folder = tempfile::tempdir().unwrap();
    let (mut store, _) = DiskStore::<Meta>::open(&folder.path().join("whole"), tiny()).unwrap();
    fill(&mut store);
    drop(store);
    let (mut store, before) = DiskStore::<Meta>::open(&folder.path().join("whole"), tiny()).unwrap();
    let mut told = 0;
    let keys = store.split(&parts(folder.path()), &tiny(), &before.entries, within, None, |keys| told = keys).unwrap();
    assert_eq!(keys.iter().sum::<u64>(), store.stats().keys + u64::from(PARTS) - 1, "the server's own is in each");
    assert_eq!(told, store.stats().keys);
    assert!(store_bytes(&folder.path().join("part0")).unwrap() > 1000);
    for (number, part) in parts(folder.path()).iter().enumerate() {
        let (mut half, found) = DiskStore::<Meta>::open(&part.folder, tiny()).unwrap();
        assert_eq!((found.replayed, &found.notes), (0, &Vec::new()));
        assert_eq!(half.stats().keys, keys[number]);
        check(number as u16, &mut half, &found, &mut store, &before);
        let error = half.split(&parts(folder.path()), &tiny(), &[], within, None, |_| {}).unwrap_err();
        assert!(matches!(error, OpenError::Foreign { .. }), "{error}");
        drop(half);
        // And is found so.
        let (mut half, found) = DiskStore::<Meta>::open(&part.folder, tiny()).unwrap();
        assert_eq!((found.newest.first(), found.newest.get(1)), (Some(&Timestamp::new(600, 0)), before.newest.get(1)));
        assert_eq!(own(&mut half, Timestamp::new(500, 0)).len(), 1);
    }
}

#[test]
fn an_entry_that_cannot_be_read_is_told_of() {
    let folder = tempfile::tempdir().unwrap();
    let (mut store, _) = DiskStore::<Meta>::open(&folder.path().join("whole"), tiny()).unwrap();
    let unreadable = |_: &[u8], _: &RangeInclusive<u16>| Err(WireError::Invalid("an entry"));
    let error = store.split(&parts(folder.path()), &tiny(), &[(7, b"entry".to_vec())], unreadable, None, |_| {}).unwrap_err().to_string();
    assert!(error.contains("entry 7 of its protocol's log"), "{error}");
}

#[test]
fn a_simulated_disk_is_split_likewise() {
    let mut store = MemoryStore::<Meta>::with_simulated_disk();
    fill(&mut store);
    store.write_through().unwrap();
    for maintained in [false, true] {
        if maintained {
            while store.maintain().unwrap() {}
        }
        let (mut whole, before) = store.kill_image();
        for part in 0..PARTS {
            let (mut half, found) = whole.split(&slots(part), |entry| within(&entry, &slots(part)).unwrap());
            check(part, &mut half, &found, &mut whole, &before);
        }
    }
}

/// A store whose split is prepared while it goes on, in folders of its own.
struct Whole {
    folder: tempfile::TempDir,
    preparation: Preparation,
    store: DiskStore<Meta>,
}

impl Whole {
    fn new() -> Whole {
        let (folder, preparation) = (tempfile::tempdir().unwrap(), Preparation::default());
        let options = DiskOptions { preparation: Some(preparation.clone()), ..tiny() };
        let (store, _) = DiskStore::open(&folder.path().join("whole"), options).unwrap();
        Whole { folder, preparation, store }
    }

    fn notes(&self) -> std::path::PathBuf {
        self.folder.path().join("changed.keys")
    }

    /// Prepares the split on another thread, while this one has the store go on.
    fn prepare(&mut self) -> Result<u64, OpenError> {
        let (notes, parts, preparation) = (self.notes(), parts(self.folder.path()), self.preparation.clone());
        let preparing = std::thread::spawn(move || preparation.prepare(&notes, &parts, &tiny(), |_| {}));
        while !preparing.is_finished() {
            self.go_on();
        }
        preparing.join().unwrap()
    }

    fn go_on(&mut self) {
        self.store.maintain().unwrap();
        flush(&mut self.store);
        std::thread::sleep(std::time::Duration::from_millis(1));
    }

    /// Closes it, splits it from its files, and holds the parts to what they must be. Returns how many keys were copied then, and how many keys it has.
    fn split(self) -> (u64, u64) {
        let Whole { folder, store, .. } = self;
        drop(store);
        let (mut store, before) = DiskStore::<Meta>::open(&folder.path().join("whole"), tiny()).unwrap();
        let prepared = Prepared::take(&folder.path().join("changed.keys")).unwrap();
        assert!(!folder.path().join("changed.keys").exists());
        let mut told = 0;
        let keys = store.split(&parts(folder.path()), &tiny(), &before.entries, within, prepared, |keys| told = keys).unwrap();
        assert_eq!(keys.iter().sum::<u64>(), store.stats().keys + u64::from(PARTS) - 1, "the server's own is in each");
        for (number, part) in parts(folder.path()).iter().enumerate() {
            let (mut half, found) = DiskStore::<Meta>::open(&part.folder, tiny()).unwrap();
            assert_eq!((found.replayed, &found.notes), (0, &Vec::new()));
            assert_eq!(half.stats().keys, keys[number], "part {number}");
            check(number as u16, &mut half, &found, &mut store, &before);
        }
        (told, store.stats().keys)
    }
}

fn half_of_fill<S: Store<Meta>>(store: &mut S) {
    for (at, name) in names().iter().enumerate() {
        append(store, &put(id(1 + at as u64, 2), &[name]), false);
    }
    flush(store);
}

/// Some keys are changed, one is deleted, collected and gone, and one is new.
fn change<S: Store<Meta>>(store: &mut S) {
    for (at, name) in names()[40..50].iter().enumerate() {
        append(store, &put(id(1000 + at as u64, 1), &[name]), false);
    }
    append(store, &delete(id(1100, 1), &names()[60]), false);
    store.collect(names()[60].as_bytes(), &TestCut::upto(2000));
    assert!(store.chain(names()[60].as_bytes()).is_empty(), "it is gone");
    append(store, &put(id(1101, 1), &["of none of the names"]), false);
    flush(store);
}

#[test]
fn what_is_prepared_spares_a_split_what_has_not_changed() {
    for checkpoints in [[false, false], [true, false], [false, true], [true, true]] {
        let mut whole = Whole::new();
        fill(&mut whole.store);
        if checkpoints[0] {
            whole.store.checkpoint().unwrap();
        }
        whole.prepare().unwrap();
        change(&mut whole.store);
        if checkpoints[1] {
            whole.store.checkpoint().unwrap();
        }
        let (copied, keys) = whole.split();
        assert!(keys > 180, "{keys}");
        assert!((11..60).contains(&copied), "{copied} keys of {keys} were copied again, {checkpoints:?}");
    }
}

/// What is written while chains are copied, checkpoints among it, is not lost, wherever the copying is.
#[test]
fn a_store_goes_on_while_its_split_is_prepared() {
    let mut whole = Whole::new();
    half_of_fill(&mut whole.store);
    whole.store.checkpoint().unwrap();
    let (folder, preparation) = (whole.folder.path().to_owned(), whole.preparation.clone());
    let (reached, waits) = std::sync::mpsc::sync_channel(0);
    let (go_on, goes) = std::sync::mpsc::channel();
    let copying = std::thread::spawn(move || {
        let told = |_| {
            reached.send(()).unwrap();
            goes.recv().unwrap();
        };
        preparation.prepare(&folder.join("changed.keys"), &parts(&folder), &tiny(), told)
    });
    // All that there was is copied; it is not the end.
    while waits.try_recv().is_err() {
        whole.go_on();
    }
    fill(&mut whole.store);
    whole.store.checkpoint().unwrap();
    assert!(!whole.notes().exists());
    go_on.send(()).unwrap();
    copying.join().unwrap().unwrap();
    change(&mut whole.store);
    whole.split();
}

/// Notes that do not know of the store's last checkpoint lack what it has.
#[test]
fn what_was_prepared_is_made_anew_if_not_all_is_known() {
    type Spoil = fn(&mut Whole);
    let spoiled: [(&str, Spoil); 4] = [
        ("noted no more", |whole| {
            whole.preparation.forget();
            change(&mut whole.store);
            whole.store.checkpoint().unwrap();
        }),
        ("a torn end", |whole| {
            change(&mut whole.store);
            whole.store.checkpoint().unwrap();
            let bytes = std::fs::read(whole.notes()).unwrap();
            std::fs::write(whole.notes(), &bytes[..bytes.len() - 1]).unwrap();
        }),
        ("a damaged middle", |whole| {
            change(&mut whole.store);
            whole.store.checkpoint().unwrap();
            let mut bytes = std::fs::read(whole.notes()).unwrap();
            bytes[60] ^= 1;
            std::fs::write(whole.notes(), bytes).unwrap();
        }),
        ("another store's", |whole| {
            let mut bytes = std::fs::read(whole.notes()).unwrap();
            bytes[8] ^= 1;
            std::fs::write(whole.notes(), bytes).unwrap();
        }),
    ];
    for (what, spoil) in spoiled {
        let mut whole = Whole::new();
        fill(&mut whole.store);
        whole.store.checkpoint().unwrap();
        whole.prepare().unwrap();
        spoil(&mut whole);
        let (copied, keys) = whole.split();
        assert_eq!(copied, keys, "{what}");
    }
    // A torn end that no checkpoint has come after is of keys that the log has, too.
    let mut whole = Whole::new();
    fill(&mut whole.store);
    whole.store.checkpoint().unwrap();
    whole.prepare().unwrap();
    change(&mut whole.store);
    let torn = [std::fs::read(whole.notes()).unwrap(), vec![90, 0, 0, 0, 1]].concat();
    std::fs::write(whole.notes(), torn).unwrap();
    assert!(whole.split().0 < 60);
}

#[test]
fn a_preparation_ends_with_its_store_and_with_too_much_to_note() {
    let whole = Whole::new();
    let (preparation, folder) = (whole.preparation.clone(), whole.folder.path().to_owned());
    drop(whole.store);
    let error = preparation.prepare(&folder.join("changed.keys"), &parts(&folder), &tiny(), |_| {}).unwrap_err().to_string();
    assert!(error.contains("the store is not open"), "{error}");
    let mut whole = Whole::new();
    fill(&mut whole.store);
    whole.prepare().unwrap();
    assert!(whole.preparation.is_noting());
    let long = "k".repeat(60_000);
    for at in 0..300u64 {
        append(&mut whole.store, &put(id(3000 + at, 1), &[&format!("{long}{at}")]), false);
    }
    whole.store.checkpoint().unwrap();
    assert!(!whole.preparation.is_noting());
    let (copied, keys) = whole.split();
    assert_eq!(copied, keys);
}
