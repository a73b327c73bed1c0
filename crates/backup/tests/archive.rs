//! An archive puts back any moment exactly, whatever was written in which segment, and says what it does not know.

use proptest::prelude::*;
use rheostat_backup::archive::{
    self, ARCHIVE, ARCHIVE_FORMAT, Archive, CountersName, End, Followed, Head, MOST_KEYS, Replay, SegmentName, Settings, Span, base_name,
    put_changes, put_counters, put_head,
};
use rheostat_backup::{Cut, FORMAT, Folder, KeyspaceEntry, MANIFEST, Manifest, SUMS, Store, Time, Unfinished};
use rheostat_core::answer::Read;
use rheostat_core::export::{Exported, ExportedCounter};
use rheostat_core::feed::{Change, Position};
use rheostat_core::version::VersionId;
use rheostat_core::{DcId, Timestamp};
use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;

fn at(millis: u64) -> Timestamp {
    Timestamp::new(1_795_000_000_000 + millis, 0)
}

fn id(millis: u64, origin: u8) -> VersionId {
    VersionId { written: at(millis), origin: DcId(origin) }
}

fn after(millis: u64) -> Position {
    Position::after(at(millis))
}

fn change(key: &str, millis: u64, value: Option<&str>) -> Change {
    Change { key: key.as_bytes().into(), version: id(millis, 0), value: value.map(|value| value.as_bytes().into()), expires_ms: 0, over: None }
}

fn record(key: &str, millis: u64, value: &str) -> Exported {
    let read = Read { value: Some(value.as_bytes().into()), version: Some(id(millis, 0)), expires_ms: 0 };
    Exported { key: key.as_bytes().into(), reads: vec![read], counter: None }
}

fn counter(key: &str, made: u64, value: i64) -> Exported {
    let read = Read { value: None, version: Some(id(made, 0)), expires_ms: 0 };
    Exported { key: key.as_bytes().into(), reads: vec![read], counter: Some(ExportedCounter { value, lower: Some(0), upper: None }) }
}

struct Place {
    _folder: tempfile::TempDir,
    store: Arc<Folder>,
}

impl Place {
    /// An archive of `plain`, which is followed, and `agreed`, which is not.
    fn new() -> Place {
        let folder = tempfile::tempdir().unwrap();
        let store = Arc::new(Folder::new(folder.path().join("archive")));
        let followed = |name: &str, order| Followed { name: name.into(), protocol: "causal".into(), order, why: None };
        let settings = Settings {
            format: ARCHIVE_FORMAT,
            cluster: "test".into(),
            release: "0".into(),
            data_centers: vec!["a".into(), "b".into()],
            keyspaces: vec![followed("plain", Some(Cut::Causal)), followed("agreed", None)],
        };
        archive::begin(&*store, &settings).unwrap();
        Place { _folder: folder, store }
    }

    fn base(&self, millis: u64, records: &[Exported]) {
        let unfinished = Unfinished::begin(self.store.within(&base_name(at(millis)))).unwrap();
        let mut keyspaces = Vec::new();
        for (number, name) in ["plain", "agreed"].into_iter().enumerate() {
            let mut file = unfinished.keyspace(number).unwrap();
            records.iter().for_each(|one| file.push(one).unwrap());
            let (file, totals) = file.finish().unwrap();
            keyspaces.push(KeyspaceEntry::new(name.into(), "causal".into(), Cut::Causal, file, totals));
        }
        let manifest = Manifest {
            format: FORMAT,
            cluster: "test".into(),
            release: "0".into(),
            as_of: Time::from(at(millis)),
            since: None,
            data_center: "a".into(),
            data_centers: vec!["a".into(), "b".into()],
            partitions: 1,
            keyspaces,
        };
        unfinished.finish(&manifest).unwrap();
    }

    fn changes(&self, number: u64, from: u64, to: u64, changes: &[Change]) -> SegmentName {
        put_changes(&*self.store, 0, number, (after(from), after(to)), changes).unwrap().0
    }

    fn head(&self, number: u64, from: u64, through: u64) {
        let end = End { number, from: after(from).to_string(), through: after(through).to_string() };
        let head = Head { owner: "me".into(), host: "here".into(), tick: 1, every_ms: 1, ended: false, ends: vec![Some(end), None] };
        put_head(&*self.store, &head).unwrap();
    }

    fn look(&self) -> Archive {
        Archive::look(&*self.store).unwrap().unwrap()
    }

    fn faults(&self) -> Vec<String> {
        self.look().verify(&*self.store, |_| {}).unwrap().faults
    }

    /// What a restore writes: keys with their values; of counters a number with `#`.
    fn state(&self, millis: u64, most_keys: u64) -> Result<BTreeMap<String, String>, String> {
        let plan = self.look().plan(0, at(millis))?;
        let mut replay = Replay::new(self.store.clone(), plan, most_keys);
        let (mut state, mut told) = (BTreeMap::new(), Vec::new());
        while let Some(keys) = replay.next_block().map_err(|error| error.to_string())? {
            for one in keys {
                let key = String::from_utf8(one.key.to_vec()).unwrap();
                assert!(!told.contains(&key), "{key} is told twice");
                told.push(key.clone());
                match (&one.counter, one.reads.first()) {
                    (Some(counter), _) => drop(state.insert(key, format!("#{}", counter.value))),
                    (None, Some(read)) => drop(state.insert(key, String::from_utf8(read.value.clone().unwrap().to_vec()).unwrap())),
                    (None, None) => {}
                }
            }
        }
        Ok(state)
    }

    fn shows(&self, millis: u64, expected: &[(&str, &str)]) {
        let expected: BTreeMap<String, String> = expected.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        for most_keys in [MOST_KEYS, 1] {
            assert_eq!(self.state(millis, most_keys).as_ref(), Ok(&expected), "at {millis}");
        }
    }
}

#[test]
fn each_moment_is_put_back_exactly() {
    let place = Place::new();
    // A change from before the full backup, which it has already, or has a newer one of.
    place.changes(
        1,
        5,
        20,
        &[change("kept", 8, Some("before")), change("new", 12, Some("1")), change("old", 15, Some("2")), change("gone", 18, None)],
    );
    place.base(10, &[record("old", 3, "1"), record("gone", 4, "here"), record("kept", 9, "in the backup")]);
    place.changes(2, 20, 30, &[change("new", 22, Some("2")), change("gone", 25, Some("again")), change("new", 28, None)]);
    place.head(2, 30, 40);
    assert_eq!(place.faults(), [""; 0]);
    assert_eq!(place.look().spans(), [Span { from: at(10), to: at(40) }]);
    let kept = ("kept", "in the backup");
    place.shows(10, &[("old", "1"), ("gone", "here"), kept]);
    place.shows(11, &[("old", "1"), ("gone", "here"), kept]);
    place.shows(12, &[("new", "1"), ("old", "1"), ("gone", "here"), kept]);
    place.shows(17, &[("new", "1"), ("old", "2"), ("gone", "here"), kept]);
    place.shows(20, &[("new", "1"), ("old", "2"), kept]);
    place.shows(22, &[("new", "2"), ("old", "2"), kept]);
    place.shows(25, &[("new", "2"), ("old", "2"), ("gone", "again"), kept]);
    place.shows(40, &[("old", "2"), ("gone", "again"), kept]);
    // A newer full backup is begun from, and says the same.
    place.base(26, &[record("new", 22, "2"), record("old", 15, "2"), record("gone", 25, "again"), record("kept", 9, "in the backup")]);
    place.shows(25, &[("new", "2"), ("old", "2"), ("gone", "again"), kept]);
    place.shows(29, &[("old", "2"), ("gone", "again"), kept]);
    for (millis, says) in [(9, "is before the first full backup"), (41, "the archive is known up to 2026-11-18 11:06:40.040 UTC")] {
        let why = place.state(millis, MOST_KEYS).unwrap_err();
        assert!(why.contains(says) && why.contains("what can be put back: from 2026"), "{why}");
    }
    // One that is newer than what was told so far is no gap.
    place.base(45, &[]);
    assert_eq!(place.look().spans(), [Span { from: at(10), to: at(40) }]);
    assert!(place.state(43, MOST_KEYS).unwrap_err().contains("the archive is known up to"));
    // What is not followed is as of the full backup.
    let plan = place.look().plan(1, at(29)).unwrap();
    assert_eq!((plan.is_followed, plan.base_at), (false, at(26)));
}

#[test]
fn counters_are_as_of_the_last_look_and_give_way_to_what_replaced_them() {
    let place = Place::new();
    place.base(10, &[counter("stock", 5, 100), counter("sold", 5, 1), record("n", 6, "7")]);
    put_counters(&*place.store, 0, (Timestamp::ZERO, at(20)), &[counter("stock", 5, 90), counter("sold", 5, 1)]).unwrap();
    put_counters(&*place.store, 0, (at(20), at(30)), &[counter("stock", 5, 80), counter("n", 24, 8)]).unwrap();
    put_counters(&*place.store, 0, (at(30), at(40)), &[counter("again", 38, 3), counter("sold", 39, 50)]).unwrap();
    place.changes(
        1,
        9,
        50,
        &[
            change("n", 15, Some("9")),
            change("sold", 33, Some("a word")),
            change("again", 35, None),
            change("sold", 37, None),
            change("stock", 45, None),
        ],
    );
    assert_eq!(place.faults(), [""; 0]);
    place.shows(19, &[("stock", "#100"), ("sold", "#1"), ("n", "9")]);
    place.shows(20, &[("stock", "#90"), ("sold", "#1"), ("n", "9")]);
    // A value that became a counter.
    place.shows(30, &[("stock", "#80"), ("sold", "#1"), ("n", "#8")]);
    place.shows(34, &[("stock", "#80"), ("sold", "a word"), ("n", "#8")]);
    place.shows(38, &[("stock", "#80"), ("n", "#8")]);
    place.shows(44, &[("stock", "#80"), ("sold", "#50"), ("again", "#3"), ("n", "#8")]);
    place.shows(45, &[("sold", "#50"), ("again", "#3"), ("n", "#8")]);
    let counters = |millis| place.look().plan(0, at(millis)).unwrap().counters_at;
    assert_eq!([19, 20, 39, 40].map(counters), [at(10), at(20), at(30), at(40)]);
    // One that is missing is named, and nothing stands on it.
    let name = place.look().chains[0].counters[1].text();
    fs::remove_file(place.store.path(&name)).unwrap();
    assert!(place.faults()[0].contains("the counters of 2026-11-18 11:06:40.030 UTC are missing, on which those of"));
    assert!(place.state(44, MOST_KEYS).unwrap_err().contains("are missing"));
    place.shows(29, &[("stock", "#90"), ("sold", "#1"), ("n", "9")]);
}

#[test]
fn what_is_missing_is_named_and_a_moment_in_it_is_refused() {
    let place = Place::new();
    place.base(10, &[]);
    for number in 1..=6 {
        place.changes(number, number * 10 - 5, number * 10 + 5, &[change("k", number * 10, Some("v"))]);
    }
    assert_eq!(place.faults(), [""; 0]);
    let all = place.look().chains[0].changes.clone();
    let remove = |place: usize, store: &Folder| fs::remove_file(store.path(&all[place].text())).unwrap();
    remove(2, &place.store);
    remove(3, &place.store);
    let faults = place.faults();
    assert!(
        faults.len() == 1 && faults[0].contains("segments 3 to 4 of changes are missing: what was written between 2026-11-18 11:06:40.025 UTC"),
        "{faults:?}"
    );
    assert_eq!(place.look().spans(), [Span { from: at(10), to: at(25) }]);
    assert!(place.state(26, MOST_KEYS).unwrap_err().contains("the archive is known up to 2026-11-18 11:06:40.025 UTC"));
    place.shows(25, &[("k", "v")]);
    // The last ones, of which the head knows.
    place.head(6, 65, 70);
    remove(5, &place.store);
    let faults = place.faults();
    assert!(
        faults.iter().any(|fault| fault.contains("segment 6 of changes is missing") || fault.contains("up to number 6, are missing")),
        "{faults:?}"
    );
    // One that was followed anew: no fault, but a gap, until there is a full backup.
    place.changes(8, 100, 110, &[change("k", 105, Some("w"))]);
    place.changes(7, 90, 95, &[]);
    place.head(8, 110, 130);
    place.base(120, &[record("k", 105, "w")]);
    let why = place.state(112, MOST_KEYS).unwrap_err();
    assert!(why.contains("what was written between 2026-11-18 11:06:40.025 UTC and 2026-11-18 11:06:40.120 UTC is not known"), "{why}");
    place.shows(125, &[("k", "w")]);
}

#[test]
fn the_first_segments_after_a_full_backup_are_missed_and_those_before_it_are_not() {
    let place = Place::new();
    place.base(10, &[]);
    for number in 1..=4 {
        place.changes(number, number * 10 - 5, number * 10 + 5, &[change("k", number * 10, Some("v"))]);
    }
    place.base(38, &[record("k", 30, "v")]);
    assert_eq!(place.faults(), [""; 0]);
    let all = place.look().chains[0].changes.clone();
    for (number, upto) in [(2, "015"), (3, "025")] {
        fs::remove_file(place.store.path(&all[number - 2].text())).unwrap();
        let says = format!(
            "the segments of changes before number {number} are missing: what was written between 2026-11-18 11:06:40.010 UTC and 2026-11-18 11:06:40.{upto} UTC is not known"
        );
        let faults = place.faults();
        assert!(faults.len() == 1 && faults[0].contains(&says), "{faults:?}");
    }
    // No moment needs them where the full backup before them has gone.
    place.look().unneeded(at(38)).remove(&*place.store).unwrap();
    assert_eq!(place.faults(), [""; 0]);
    // One that was followed anew before it had told anything has none before its first.
    let place = Place::new();
    place.base(10, &[]);
    place.changes(1, 20, 30, &[change("k", 25, Some("v"))]);
    assert_eq!(place.faults(), [""; 0]);
}

#[test]
fn a_keyspace_that_was_not_written_for_long_is_whole_without_segments() {
    let place = Place::new();
    place.base(10, &[]);
    place.changes(1, 5, 15, &[change("k", 12, Some("v"))]);
    place.base(50, &[record("k", 12, "v")]);
    place.head(1, 15, 60);
    let unneeded = place.look().unneeded(at(55));
    assert_eq!((unneeded.bases.len(), unneeded.segments.len()), (1, 1));
    unneeded.remove(&*place.store).unwrap();
    assert_eq!(place.faults(), [""; 0]);
    place.shows(58, &[("k", "v")]);
    // One that the full backup does not stand for is missed.
    place.head(2, 55, 60);
    assert!(place.faults()[0].contains("up to number 2, are missing"), "{:?}", place.faults());
}

#[test]
fn a_gap_that_was_told_is_no_fault() {
    let place = Place::new();
    place.base(10, &[]);
    place.changes(1, 5, 15, &[change("k", 12, Some("1"))]);
    place.changes(2, 50, 60, &[change("k", 55, Some("2"))]);
    place.head(2, 60, 70);
    place.base(53, &[]);
    assert_eq!(place.faults(), [""; 0]);
    assert_eq!(place.look().spans(), [Span { from: at(10), to: at(15) }, Span { from: at(53), to: at(70) }]);
    assert!(place.state(30, MOST_KEYS).unwrap_err().contains("is not known"));
    // Where the new beginning has no change yet, the head alone knows of it.
    assert_eq!(place.look().chains[0].resume(), Some((2, after(60), after(70))));
    place.head(2, 200, 210);
    assert_eq!(place.look().chains[0].resume(), Some((2, after(200), after(210))));
    assert_eq!(place.faults(), [""; 0]);
    // One that is behind what was written: killed between the two.
    place.head(1, 15, 18);
    assert_eq!(place.look().chains[0].resume(), Some((2, after(60), after(60))));
}

#[test]
fn every_byte_of_a_segment_that_is_changed_is_told() {
    let place = Place::new();
    place.base(10, &[]);
    let name = place.changes(1, 5, 15, &[change("key", 12, Some("value")), change("gone", 13, None)]);
    put_counters(&*place.store, 0, (Timestamp::ZERO, at(12)), &[counter("stock", 11, 9)]).unwrap();
    let counters = place.look().chains[0].counters[0].text();
    for name in [name.text(), counters] {
        let path = place.store.path(&name);
        let whole = fs::read(&path).unwrap();
        for byte in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[byte] ^= 1 << (byte % 8);
            fs::write(&path, &damaged).unwrap();
            let faults = place.faults();
            assert!(faults.len() == 1 && faults[0].starts_with(&path), "{byte}: {faults:?}");
            assert!(place.state(14, MOST_KEYS).unwrap_err().starts_with(&path));
            fs::write(&path, &whole[..byte]).unwrap();
            assert_eq!(place.faults().len(), 1, "{byte}");
        }
        // Another's bytes under this name.
        fs::write(&path, &whole).unwrap();
        assert_eq!(place.faults(), [""; 0]);
    }
    let other = place.changes(2, 15, 20, &[change("key", 18, Some("value"))]);
    fs::copy(place.store.path(&other.text()), place.store.path(&name.text())).unwrap();
    assert!(place.faults()[0].contains("its name has another sum"));
}

#[test]
fn what_cannot_be_read_of_one_full_backup_keeps_nobody_from_hearing_of_the_rest() {
    let place = Place::new();
    place.changes(1, 5, 20, &[change("key", 12, Some("1"))]);
    place.base(10, &[record("key", 3, "0")]);
    let segment = place.changes(2, 20, 30, &[change("key", 22, Some("2"))]);
    place.head(2, 30, 30);
    assert_eq!(place.faults(), [""; 0]);
    let sums = format!("{}/{SUMS}", place.store.path(&base_name(at(10))));
    fs::remove_file(&sums).unwrap();
    // Whoever reads it is refused.
    fs::create_dir(&sums).unwrap();
    fs::write(place.store.path(&segment.text()), b"damaged").unwrap();
    let faults = place.faults();
    assert!(faults.iter().any(|fault| fault.contains(SUMS)) && faults.iter().any(|fault| fault.contains(&segment.text())), "{faults:?}");
}

#[test]
fn what_is_foreign_is_left_alone_and_an_archive_wants_a_place_of_its_own() {
    let place = Place::new();
    place.base(10, &[]);
    place.changes(1, 5, 15, &[change("k", 12, Some("v"))]);
    for number in 0..1000 {
        place.store.put(&format!("photo{number}.jpg"), b"x").unwrap();
    }
    for name in [
        "changes-0000-1-x",
        "changes-9999-000000000001-f01a20a6fa3270000ff-f01a20a6fa3270001ff-00000001-00000000000000000000000000000000.segment",
        "counters-",
        "base-x",
    ] {
        place.store.put(name, b"x").unwrap();
    }
    // One that was interrupted is no part of it, nor is one of other keyspaces.
    drop(Unfinished::begin(place.store.within(&base_name(at(14)))).unwrap());
    assert_eq!((place.look().foreign, place.look().bases.len(), place.faults()), (1_004, 1, vec![]));
    place.shows(14, &[("k", "v")]);
    let settings = place.look().settings;
    let why = archive::begin(&*place.store, &settings).unwrap_err().to_string();
    assert!(why.contains("an archive wants a place of its own"), "{why}");
    let text = fs::read_to_string(place.store.path(ARCHIVE)).unwrap();
    fs::write(place.store.path(ARCHIVE), text.replace("\"format\": 1", "\"format\": 2")).unwrap();
    assert!(Archive::look(&*place.store).unwrap_err().to_string().contains("has form 2; this version of the software reads form 1"));
    fs::write(place.store.path(ARCHIVE), "{").unwrap();
    assert!(Archive::look(&*place.store).unwrap_err().to_string().contains("archive.json: is damaged"));
}

#[test]
fn what_is_old_goes_and_the_rest_is_an_archive_at_each_step() {
    let build = || {
        let place = Place::new();
        for number in 0..4 {
            place.base(10 + number * 20, &[record("k", 9, "base")]);
        }
        for number in 1..=8 {
            place.changes(number, number * 10 - 5, number * 10 + 5, &[change("k", number * 10, Some(&number.to_string()))]);
        }
        for millis in [25, 45, 60] {
            put_counters(&*place.store, 0, (Timestamp::ZERO, at(millis)), &[counter("c", 5, millis as i64)]).unwrap();
        }
        place
    };
    let place = build();
    // Moments from 49 on: the full backup of 30 is needed for them.
    let unneeded = place.look().unneeded(at(49));
    assert_eq!(unneeded.bases, [base_name(at(10))]);
    assert_eq!(unneeded.segments.len(), 3, "{unneeded:?}");
    let (before, after) = (place.state(49, MOST_KEYS), place.state(84, MOST_KEYS));
    unneeded.remove(&*place.store).unwrap();
    unneeded.remove(&*place.store).unwrap();
    assert_eq!((place.state(49, MOST_KEYS), place.state(84, MOST_KEYS)), (before, after));
    assert_eq!((place.faults(), place.look().spans()), (vec![], vec![Span { from: at(30), to: at(85) }]));
    assert!(!std::path::Path::new(&place.store.path(&base_name(at(10)))).exists());
    assert_eq!(place.look().unneeded(at(49)), Default::default());
    assert_eq!(place.look().unneeded(at(5)), Default::default());
    // Somebody verifies it meanwhile.
    let place = build();
    let looked = place.look();
    looked.unneeded(at(75)).remove(&*place.store).unwrap();
    assert_eq!(looked.verify(&*place.store, |_| {}).unwrap().faults, Vec::<String>::new());
    // Interrupted anywhere.
    let all = build().look().unneeded(at(75));
    for removed in 0..=all.segments.len() {
        let place = build();
        for name in &all.bases {
            fs::remove_file(place.store.within(name).path(MANIFEST)).unwrap();
        }
        all.segments[..removed].iter().for_each(|name| place.store.remove(name).unwrap());
        assert_eq!((place.faults(), place.look().spans()), (vec![], vec![Span { from: at(70), to: at(85) }]), "{removed}");
        place.look().unneeded(at(75)).remove(&*place.store).unwrap();
        assert_eq!(place.look().bases.len(), 1);
    }
}

#[test]
fn names_are_read_as_they_were_written_and_nothing_else_is() {
    let sum = "0123456789abcdef0123456789abcdef".to_string();
    let segment = SegmentName { keyspace: 7, number: 12, from: after(1), to: after(2), count: 300, sum: sum.clone() };
    let counters = CountersName { keyspace: 7, at: at(5), since: at(3), count: 1, sum };
    assert_eq!(SegmentName::parse(&segment.text()), Some(segment.clone()));
    assert_eq!(CountersName::parse(&counters.text()), Some(counters.clone()));
    for text in [segment.text(), counters.text()] {
        for cut in 0..text.len() {
            assert_eq!((SegmentName::parse(&text[..cut]), CountersName::parse(&text[..cut])), (None, None));
        }
    }
    // Backwards.
    assert_eq!(SegmentName::parse(&SegmentName { from: segment.to, to: segment.from, ..segment }.text()), None);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    /// Any history in any segments, some of them by two writers at once, beside a model.
    #[test]
    fn any_moment_of_any_history_is_what_was(
        writes in prop::collection::vec((0_u8..6, 0_u8..5), 1..60),
        cuts in prop::collection::vec(1_u64..60, 0..8),
        others in prop::collection::vec((0_u64..60, 1_u64..20), 0..3),
        base in 0_u64..30,
        most_keys in 1_u64..5,
    ) {
        let place = Place::new();
        let end = writes.len() as u64;
        let all: Vec<Change> = writes.iter().enumerate().map(|(index, (key, value))| {
            let value = (*value > 0).then(|| format!("{index}"));
            change(&format!("key{key}"), index as u64 + 1, value.as_deref())
        }).collect();
        let state = |upto: u64| {
            let mut state = BTreeMap::new();
            for one in all.iter().take(upto as usize) {
                let key = String::from_utf8(one.key.to_vec()).unwrap();
                match &one.value {
                    Some(value) => drop(state.insert(key, String::from_utf8(value.to_vec()).unwrap())),
                    None => drop(state.remove(&key)),
                }
            }
            state
        };
        let between = |from: u64, to: u64| all[from.min(end) as usize..to.min(end) as usize].to_vec();
        let base = base.min(end);
        let records: Vec<Exported> = state(base).iter().map(|(key, value)| record(key, base, value)).collect();
        place.base(base, &records);
        let mut cuts: Vec<u64> = cuts.into_iter().filter(|cut| *cut < end).chain([0, end]).collect();
        cuts.sort();
        cuts.dedup();
        for (number, pair) in cuts.windows(2).enumerate() {
            place.changes(number as u64 + 1, pair[0], pair[1], &between(pair[0], pair[1]));
        }
        for (from, length) in others {
            let from = from.min(end - 1);
            let to = (from + length).min(end);
            place.changes(1, from, to, &between(from, to));
        }
        prop_assert_eq!(place.faults(), vec![""; 0]);
        for upto in base..=end {
            prop_assert_eq!(place.state(upto, most_keys).unwrap(), state(upto), "at {}", upto);
        }
    }
}
