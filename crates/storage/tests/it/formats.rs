//! Stores that were written in each format version there has been must open. See `examples/format_sample.rs`.

use rheostat_clock::Timestamp;
use rheostat_core::store::Store;
use rheostat_storage::conformance::{Meta, append, id, put};
use rheostat_storage::{DiskOptions, DiskStore};
use std::fs;
use std::path::Path;

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len() / 2).map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).expect("hex")).collect()
}

/// Puts a kept store together in `directory`.
fn restore(sample: &Path, directory: &Path) {
    fs::create_dir_all(directory.join("log")).expect("creates");
    for entry in fs::read_dir(sample.join("log")).expect("lists") {
        let entry = entry.expect("lists");
        fs::copy(entry.path(), directory.join("log").join(entry.file_name())).expect("copies");
    }
    let database = fjall::Database::builder(directory.join("engine")).open().expect("opens");
    for line in fs::read_to_string(sample.join("engine.txt")).expect("reads").lines() {
        let [name, key, value] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let keyspace = database.keyspace(name, fjall::KeyspaceCreateOptions::default).expect("opens");
        keyspace.insert(bytes(key), bytes(value)).expect("inserts");
    }
}

#[test]
fn format_1_opens() {
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/formats/1");
    let directory = tempfile::tempdir().expect("a directory");
    restore(&sample, directory.path());
    let (mut store, recovered) = DiskStore::<Meta>::open(directory.path(), DiskOptions::default()).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(recovered.notes, Vec::<String>::new());
    assert_eq!(recovered.state.as_deref(), Some(&b"last state"[..]));
    assert_eq!(recovered.newest, [id(7, 0).written, id(5, 1).written, id(3, 2).written]);
    assert_eq!(recovered.replayed, 4, "only what came after the checkpoint");
    let mut ids = |name: &str| store.chain(name.as_bytes()).iter().map(|version| version.id).collect::<Vec<_>>();
    assert_eq!(ids("one"), [id(7, 0), id(1, 1), id(1, 0)]);
    assert_eq!(ids("two"), [id(5, 1), id(4, 0), id(2, 0)]);
    assert_eq!(ids("three"), []);
    assert_eq!(ids("four"), [id(5, 0)]);
    let expires = &store.chain(b"expires")[0];
    assert_eq!((expires.id, expires.expires_ms, expires.meta), (id(3, 2), 5000, 3));
    assert_eq!(store.chain(b"one")[0], put(id(7, 0), &["one"]).versions().next().expect("one item").1);
    let (own, complete) = store.own_updates(Timestamp::ZERO, usize::MAX).expect("reads");
    assert_eq!(own.iter().map(|update| update.id).collect::<Vec<_>>(), [1, 2, 4, 5, 6, 7].map(|at| id(at, 0)));
    assert!(complete);
    append(&mut store, &put(id(8, 0), &["one"]), true);
    store.checkpoint().expect("writing goes on");
}
