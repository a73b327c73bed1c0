//! The libraries that this project is made of: their licences, and versions that are known to be bad. Nothing is asked of the network.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// What a library may be licensed under: all of them let it be part of a program under Apache-2.0.
const LICENCES: &[&str] = &["Apache-2.0", "MIT", "BSD-2-Clause", "BSD-3-Clause", "ISC", "Zlib", "BSL-1.0", "0BSD", "Unlicense", "Unicode-3.0"];

/// Whether `expression` (SPDX, with `/` as `OR`) can be met with [`LICENCES`].
fn is_allowed(expression: &str) -> bool {
    let one = |name: &str| LICENCES.contains(&name.trim_matches(['(', ')', ' ']));
    expression.replace('/', " OR ").split(" AND ").all(|part| part.split(" OR ").any(one))
}

#[test]
fn licences_are_read_as_meant() {
    for allowed in ["MIT", "MIT OR Apache-2.0", "MIT/Apache-2.0", "GPL-2.0-only OR MIT", "(MIT OR Apache-2.0) AND Unicode-3.0", "MPL-2.0 OR MIT"] {
        assert!(is_allowed(allowed), "{allowed}");
    }
    for refused in ["", "GPL-3.0", "MIT AND GPL-3.0", "MPL-2.0", "(GPL-3.0 OR MPL-2.0) AND MIT"] {
        assert!(!is_allowed(refused), "{refused}");
    }
}

/// The host's target triple.
fn host() -> String {
    let version = Command::new("rustc").arg("-vV").output().expect("rustc runs");
    let text = String::from_utf8_lossy(&version.stdout).into_owned();
    text.lines().find_map(|line| line.strip_prefix("host: ")).expect("rustc says its host").to_owned()
}

#[test]
fn every_library_has_a_licence_that_fits() {
    let mut metadata = Command::new(env!("CARGO"));
    metadata.args(["metadata", "--format-version", "1", "--offline", "--filter-platform", &host()]).current_dir(root());
    let answer = metadata.output().expect("cargo runs");
    assert!(answer.status.success(), "{}", String::from_utf8_lossy(&answer.stderr));
    let answer: serde_json::Value = serde_json::from_slice(&answer.stdout).expect("cargo answers in JSON");
    let packages = answer["packages"].as_array().expect("packages");
    assert!(packages.len() > 50, "only {} packages", packages.len());
    let licence = |package: &serde_json::Value| package["license"].as_str().unwrap_or_default().to_owned();
    let refused: Vec<String> = packages
        .iter()
        .filter(|package| !is_allowed(&licence(package)))
        .map(|package| format!("{} {}: {:?}", package["name"], package["version"], licence(package)))
        .collect();
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}

/// Major, minor, patch; what follows counts for nothing.
fn version(text: &str) -> Vec<u64> {
    text.split(['.', '-', '+']).take(3).map(|part| part.parse().unwrap_or(0)).collect()
}

/// Name and version of everything in `Cargo.lock`.
fn locked() -> Vec<(String, Vec<u64>)> {
    let text = fs::read_to_string(root().join("Cargo.lock")).unwrap();
    let value = |line: &str, key: &str| line.strip_prefix(key).map(|rest| rest.trim_matches('"').to_owned());
    let mut found = Vec::new();
    let mut name = String::new();
    for line in text.lines() {
        if let Some(found) = value(line, "name = ") {
            name = found;
        } else if let Some(found_version) = value(line, "version = ")
            && !name.is_empty()
        {
            found.push((std::mem::take(&mut name), version(&found_version)));
        }
    }
    found
}

#[test]
fn no_version_that_is_known_to_be_bad_is_used_unexplained() {
    let advisories = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/advisories.txt")).unwrap();
    let locked = locked();
    assert!(locked.len() > 100, "only {} libraries", locked.len());
    let mut met = BTreeSet::new();
    for line in advisories.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (facts, why) = line.split_once('|').map_or((line, ""), |(facts, why)| (facts, why.trim()));
        let [id, name, from, until] = facts.split_whitespace().collect::<Vec<_>>()[..] else { panic!("four words: {line}") };
        let bad = |at: &Vec<u64>| *at >= version(from) && (until == "-" || *at < version(until));
        let used = locked.iter().any(|(used, at)| used == name && bad(at));
        if used {
            met.insert(id);
        }
        assert_eq!(
            used,
            !why.is_empty(),
            "{id}: {name} is {}",
            if used { "used, and nothing says why it may be" } else { "not used any more: its reason can go" }
        );
    }
    assert!(!met.is_empty(), "the list is read");
}

/// RUSTSEC-2024-0437 is about reading a message. What nodes send each other is in a form of our own (`group/src/message.rs`), so the library's reader never sees
/// their bytes. It has no other names than these.
#[test]
fn the_raft_librarys_own_byte_form_is_read_nowhere() {
    fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                sources(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "rs" || extension == "toml") {
                found.push(path);
            }
        }
    }
    let mut files = Vec::new();
    sources(&root().join("crates"), &mut files);
    assert!(files.len() > 200);
    for path in files.iter().filter(|path| !path.ends_with("tests/dependencies.rs")) {
        let text = fs::read_to_string(path).unwrap();
        for name in ["protobuf::", "merge_from_bytes", "parse_from", "CodedInputStream", "protobuf ="] {
            assert!(!text.contains(name), "{}: {name}", path.display());
        }
    }
}
