//! House rules that a compiler does not know, each with what to do instead.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn sources(room: &str) -> Vec<(PathBuf, String)> {
    fn walk(folder: &Path, found: &mut Vec<(PathBuf, String)>) {
        let mut entries: Vec<PathBuf> = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
        entries.sort();
        for path in entries {
            if path.is_dir() {
                walk(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                found.push((path, text));
            }
        }
    }
    let mut found = Vec::new();
    walk(&root().join("crates").join(room).join("src"), &mut found);
    assert!(!found.is_empty(), "room {room} has no sources");
    found
}

/// The lines of a file up to its tests, comments left out, with their numbers.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let until = text.find("#[cfg(test)]").unwrap_or(text.len());
    text[..until].lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//")).map(|(number, line)| (number + 1, line))
}

fn forbid(rooms: &[&str], banned: &[(&str, &str)]) -> Vec<String> {
    let mut faults = Vec::new();
    for room in rooms {
        for (path, text) in sources(room) {
            for (number, line) in code(&text) {
                for (pattern, instead) in banned {
                    if line.contains(pattern) {
                        faults.push(format!("{}:{number}: `{pattern}`: {instead}", path.display()));
                    }
                }
            }
        }
    }
    faults
}

/// Every room: one depends on rooms before it in this list only.
const ROOMS: &[&str] = &[
    "clock",
    "core",
    "group",
    "protocols",
    "counters",
    "monitor",
    "storage",
    "stack",
    "checkers",
    "sim",
    "model",
    "receipts",
    "resp",
    "backup",
    "objects",
    "cql",
    "proto",
    "server",
    "client",
    "cluster",
    "bench",
    "apps",
    "lab",
    "nemesis",
    "designer",
    "page",
    "cli",
    "mutants",
];

#[test]
fn deterministic_rooms_read_no_time_and_iterate_over_no_hash_map() {
    let banned = [
        ("std::time::Instant", "the clocks' reading comes in as `Now`"),
        ("SystemTime", "the clocks' reading comes in as `Now`"),
        ("HashMap", "use a BTreeMap: its order is the same in every run"),
        ("HashSet", "use a BTreeSet: its order is the same in every run"),
        ("thread::spawn", "a step does not spawn; emit an effect"),
        ("rand::", "use rheostat_core::random::Random, seeded"),
        ("tokio", "a step does no I/O; emit an effect"),
        ("Mutex", "a step does not lock"),
    ];
    let faults = forbid(&["clock", "core", "group", "protocols", "counters", "monitor", "sim", "checkers", "model", "page", "resp"], &banned);
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn nothing_is_left_unfinished_or_silenced() {
    let banned = [
        ("todo!(", "finish it"),
        ("unimplemented!(", "finish it"),
        ("allow(dead_code", "delete what is dead"),
        ("allow(unused", "delete what is unused"),
        ("unsafe ", "there is no unsafe code here but in the allocator"),
    ];
    let mut faults = forbid(ROOMS, &banned);
    faults.retain(|fault| !(fault.contains("crates/cli/src/allocator.rs:") && fault.contains("`unsafe `")));
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn rooms_depend_one_way() {
    let allowed_beside: &[(&str, &[&str])] = &[
        ("clock", &[]),
        ("core", &["clock"]),
        ("group", &["clock", "core"]),
        ("protocols", &["clock", "core", "group"]),
        ("counters", &["clock", "core"]),
        ("monitor", &["clock", "core"]),
        ("storage", &["clock", "core"]),
        ("checkers", &["clock", "core"]),
        ("stack", &["clock", "core", "group", "protocols", "counters", "storage"]),
        ("sim", &["clock", "core", "group", "protocols", "counters", "storage", "stack", "checkers"]),
        ("model", &["clock", "core", "counters"]),
        ("receipts", &["clock", "core"]),
        ("resp", &["core"]),
        ("backup", &["core"]),
        ("objects", &["core", "backup"]),
        ("cql", &["storage"]),
        ("page", &["core", "protocols", "checkers", "sim"]),
    ];
    for (place, room) in ROOMS.iter().enumerate() {
        let manifest = fs::read_to_string(root().join("crates").join(room).join("Cargo.toml")).unwrap();
        let own = manifest.split("[dev-dependencies]").next().unwrap();
        let rooms: Vec<&str> =
            own.lines().filter_map(|line| line.strip_prefix("rheostat-")).filter_map(|line| line.split(['.', ' ', '=']).next()).collect();
        for used in rooms {
            let known = ROOMS.iter().position(|other| *other == used).unwrap_or_else(|| panic!("{room} uses unknown room {used}"));
            assert!(known < place, "{room} may not depend on {used}");
            if let Some((_, allowed)) = allowed_beside.iter().find(|(name, _)| name == room) {
                assert!(allowed.contains(&used), "{room} may not depend on {used}");
            }
        }
    }
}

/// Protocols are named in their folders and in the registry; elsewhere they are strings of a configuration.
#[test]
fn nothing_but_the_registry_names_a_protocol() {
    let folders = ["adaptive", "causal", "cops", "eventual", "gentlerain", "hybrid", "session", "strong"].map(|name| format!("protocols::{name}"));
    let banned: Vec<(&str, &str)> = folders.iter().map(|name| (name.as_str(), "visit the registry")).collect();
    let mut faults = forbid(
        &[
            "core", "counters", "monitor", "storage", "stack", "checkers", "sim", "model", "resp", "server", "client", "cluster", "bench", "lab",
            "nemesis", "designer", "cli",
        ],
        &banned,
    );
    // Four names are words of levels and of speech as well; these are not. Those who simulate and check know none of them.
    let names = ["\"adaptive\"", "\"cops\"", "\"gentlerain\"", "\"hybrid\""].map(|name| (name, "ask the registry what the protocol is like"));
    faults.extend(forbid(&["core", "storage", "stack", "checkers", "sim"], &names));
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

/// What is compiled for users differs from what is tested in one place.
#[test]
fn one_file_of_the_server_asks_whether_it_has_cassandra() {
    let asks: Vec<PathBuf> =
        sources("server").into_iter().filter(|(_, text)| text.contains("feature = \"cassandra\"")).map(|(path, _)| path).collect();
    assert!(asks.len() == 1 && asks[0].ends_with("driver.rs"), "{asks:?}");
}
