//! Writes a small store in the current format, for `tests/formats`: run once per format version, and keep what it wrote.
//!
//! `cargo run -p rheostat-storage --example format_sample -- crates/storage/tests/formats/1`
//!
//! The log is kept as it is. The engine's own files are large and not ours, so its entries are kept as text: keyspace, key and value in hex.

use rheostat_core::store::Store;
use rheostat_storage::conformance::{TestCut, append, delete, expiring, flush, id, put};
use rheostat_storage::{DiskOptions, DiskStore};
use std::error::Error;
use std::fmt::Write;
use std::fs;
use std::path::Path;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn main() -> Result<(), Box<dyn Error>> {
    let target = std::env::args().nth(1).ok_or("which directory?")?;
    let target = Path::new(&target);
    let work = target.join("work");
    fs::create_dir_all(&work)?;
    let (mut store, _) = DiskStore::open(&work, DiskOptions { segment_bytes: 250, ..DiskOptions::default() })?;
    append(&mut store, &put(id(1, 0), &["one"]), true);
    append(&mut store, &put(id(2, 0), &["two", "three"]), true);
    append(&mut store, &put(id(1, 1), &["one"]), false);
    append(&mut store, &expiring(id(3, 2), "expires", 5000), false);
    store.append_state(b"first state")?;
    append(&mut store, &delete(id(4, 0), "two"), true);
    store.checkpoint()?;
    append(&mut store, &put(id(5, 1), &["two"]), false);
    append(&mut store, &put(id(5, 0), &["four"]), true);
    append(&mut store, &delete(id(6, 0), "three"), true);
    store.collect(b"three", &TestCut::upto(6));
    store.append_state(b"last state")?;
    flush(&mut store);
    append(&mut store, &put(id(7, 0), &["one"]), true);
    drop(store);

    let database = fjall::Database::builder(work.join("engine")).open()?;
    let mut text = String::new();
    for name in ["chains", "meta"] {
        let keyspace = database.keyspace(name, fjall::KeyspaceCreateOptions::default)?;
        for entry in keyspace.iter() {
            let (key, value) = entry.into_inner()?;
            writeln!(text, "{name} {} {}", hex(&key), hex(&value))?;
        }
    }
    drop(database);
    fs::write(target.join("engine.txt"), text)?;
    fs::create_dir_all(target.join("log"))?;
    for entry in fs::read_dir(work.join("log"))? {
        let entry = entry?;
        fs::copy(entry.path(), target.join("log").join(entry.file_name()))?;
    }
    fs::remove_dir_all(work)?;
    Ok(())
}
