//! Which mutant is on. This file stands in copies of the tree only, in the lowest room.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io::Write as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

const UNREAD: u32 = u32::MAX;
const COVER: u32 = u32::MAX - 1;

static CHOSEN: AtomicU32 = AtomicU32::new(UNREAD);
static SEEN: AtomicBool = AtomicBool::new(false);
static FILE: OnceLock<Option<String>> = OnceLock::new();

/// Whether the mutant of this number is on: the one that RHEOSTAT_MUTANT names. Where it is asked the first time, the file that RHEOSTAT_MUTANT_SEEN names is
/// written; with RHEOSTAT_MUTANT=cover none is on, and a line is written for each mutant and thread that asks.
#[inline]
pub fn on(number: u32) -> bool {
    let chosen = CHOSEN.load(Ordering::Relaxed);
    chosen != 0 && slow(chosen, number)
}

#[cold]
fn slow(mut chosen: u32, number: u32) -> bool {
    if chosen == UNREAD {
        let value = std::env::var("RHEOSTAT_MUTANT").unwrap_or_default();
        chosen = if value == "cover" { COVER } else { value.parse().unwrap_or(0) };
        FILE.get_or_init(|| std::env::var("RHEOSTAT_MUTANT_SEEN").ok());
        CHOSEN.store(chosen, Ordering::Relaxed);
    }
    if chosen == COVER {
        cover(number);
        return false;
    }
    if chosen != number {
        return false;
    }
    if !SEEN.swap(true, Ordering::Relaxed) {
        write("seen\n");
    }
    true
}

fn cover(number: u32) {
    thread_local!(static ASKED: RefCell<BTreeSet<u32>> = const { RefCell::new(BTreeSet::new()) });
    let first = ASKED.try_with(|asked| asked.try_borrow_mut().map(|mut asked| asked.insert(number)).unwrap_or(false)).unwrap_or(false);
    if first {
        write(&format!("{number}\t{}\n", std::thread::current().name().unwrap_or("?")));
    }
}

fn write(line: &str) {
    let Some(Some(path)) = FILE.get() else { return };
    if let Ok(mut file) = std::fs::OpenOptions::new().create(true).append(true).open(path) {
        let _ = file.write_all(line.as_bytes());
    }
}
