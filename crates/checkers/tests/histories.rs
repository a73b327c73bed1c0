//! Every hand-made history in `tests/histories`: the good ones keep every promise, each bad one breaks exactly the
//! promises that its header names, when every checker is asked by itself.

use rheostat_checkers::{History, Promise, Promises, check, check_all};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn files(folder: &str) -> Vec<(PathBuf, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/histories").join(folder);
    let mut files: Vec<PathBuf> = std::fs::read_dir(&folder).expect("the folder is there").map(|entry| entry.expect("readable").path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "txt"));
    files.sort();
    assert!(!files.is_empty(), "no histories in {}", folder.display());
    files.into_iter().map(|file| (file.clone(), std::fs::read_to_string(file).expect("readable"))).collect()
}

fn promises_of(history: &History) -> Vec<Promise> {
    let at_the_end = |promise: &Promise| matches!(promise, Promise::Convergence | Promise::Durability);
    Promise::ALL.into_iter().filter(|promise| !history.finals.is_empty() || !at_the_end(promise)).collect()
}

fn all_promises(history: &History) -> Promises {
    if history.finals.is_empty() { Promises::strong().before_the_end() } else { Promises::strong() }
}

#[test]
fn good_histories_keep_every_promise() {
    for (file, text) in files("good") {
        let history = History::parse(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        for promise in promises_of(&history) {
            if let Err(violation) = check(&history, promise) {
                panic!("{}: {violation}", file.display());
            }
        }
        let summary = check_all(&history, &all_promises(&history)).unwrap_or_else(|violation| panic!("{}: {violation}", file.display()));
        assert!(summary.of(Promise::Written).is_some_and(|report| report.checked > 0), "{}: nothing was read", file.display());
    }
}

#[test]
fn bad_histories_break_exactly_the_promises_that_they_name() {
    let mut named = BTreeSet::new();
    for (file, text) in files("bad") {
        let file = file.display();
        let header = text.lines().find_map(|line| line.strip_prefix("# violates: ")).unwrap_or_else(|| panic!("{file}: no header"));
        let expected: BTreeSet<Promise> =
            header.split_whitespace().map(|word| Promise::from_name(word).unwrap_or_else(|| panic!("{file}: no promise {word}"))).collect();
        let history = History::parse(&text).unwrap_or_else(|error| panic!("{file}: {error}"));
        let mut broken = BTreeSet::new();
        for promise in promises_of(&history) {
            if let Err(violation) = check(&history, promise) {
                assert!(violation.to_string().lines().count() > violation.trace.len(), "{file}: {violation}");
                broken.insert(violation.promise);
            }
        }
        assert_eq!(broken, expected, "{file}");
        // No keyspace promises both one snapshot and linearizability; a kept history may break either.
        let promises = Promises { snapshot: true, ..all_promises(&history) };
        let violation = check_all(&history, &promises).expect_err("some promise is broken");
        assert!(expected.contains(&violation.promise), "{file}: {violation}");
        named.extend(expected);
    }
    assert_eq!(named, Promise::ALL.into_iter().collect(), "every promise has a history that breaks it");
}

#[test]
fn the_text_form_is_stable() {
    for (file, text) in files("good").into_iter().chain(files("bad")) {
        let history = History::parse(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let lines: String = text.lines().filter(|line| !line.starts_with('#')).map(|line| format!("{line}\n")).collect();
        assert_eq!(history.to_string(), lines, "{}", file.display());
    }
}

#[test]
fn a_violation_shows_the_chain_from_the_missed_write_to_the_read() {
    let text = include_str!("histories/bad/through_three_sessions.txt");
    let violation = check(&History::parse(text).expect("parses"), Promise::Causal).expect_err("e6 misses e0");
    let expected = "\
causal is violated (Definition 14, what a read version depends on is visible+): e6 found a absent, and a=1 at 10.0@0 is in its causal past
  e1 s2 dc1 10..11 get causal a -> 1@10.0@0    # reads a=1 at 10.0@0
  e2 s2 dc1 12..13 put b=2 -> 20.0@1    # after e1 in its session
  e3 s3 dc1 20..21 get causal b -> 2@20.0@1    # reads b from e2
  e4 s3 dc1 22..23 put c=3 -> 30.0@1    # after e3 in its session
  e5 s4 dc2 30..31 get causal c -> 3@30.0@1    # reads c from e4
  e6 s4 dc2 32..33 get causal a -> -    # after e5 in its session
";
    assert_eq!(violation.to_string(), expected);
}
