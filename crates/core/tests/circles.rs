//! No files of a room import each other in a circle, but where it is said why.
//!
//! A file and those in the folder of its name are one here. What is said is a file that all circles go through: what imports it is not counted, and then there is no circle left.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Room, files that circles go through, and why.
const SAID: &[(&str, &[&str], &str)] = &[
    ("core", &["step"], "a step hands out the journal that the replica keeps, and the replica runs the protocol that takes the step"),
    ("counters", &["counting/read", "counting/update"], "parts of one server: each goes on where an operation waits that another one began"),
    (
        "protocols",
        &["adaptive/client", "causal/client", "cops/client", "gentlerain/client", "hybrid/client", "session/client"],
        "a request carries what its client remembers, and the client makes requests",
    ),
    ("protocols", &["adaptive/groups", "causal/orion"], "a part of both client and server, kept together as its paper has it"),
    (
        "protocols",
        &["cops/server", "gentlerain/server", "hybrid/server", "session/server", "staged/server"],
        "a server has what its parts keep, and each part is handlers of that server",
    ),
    ("resp", &["command"], "a table's entry names the function that parses it, and what is parsed is told by its entry"),
    ("server", &["connection/slow"], "what takes long is begun by a connection, and answers it"),
    ("server", &["shard/recovery"], "a server that cannot open is opened again"),
    (
        "server",
        &["admin", "seats", "shard", "shared", "status"],
        "what the parts of a node share has something of each, and each is given it; shards and seats are told of by those that change them",
    ),
    ("sim", &["world"], "the world has what its parts keep, and each part is functions of the world"),
];

type Module = Vec<String>;

fn rooms() -> Vec<PathBuf> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut rooms: Vec<PathBuf> = fs::read_dir(crates).unwrap().map(|entry| entry.unwrap().path().join("src")).filter(|src| src.is_dir()).collect();
    rooms.sort();
    rooms
}

/// By module, the text of its file up to its tests.
fn modules(folder: &Path, of: &[String], found: &mut BTreeMap<Module, String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let stem = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let mut module = of.to_vec();
        if path.is_dir() {
            module.push(stem);
            modules(&path, &module, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            if !matches!(stem.as_str(), "lib" | "main" | "mod") {
                module.push(stem);
            }
            let text = fs::read_to_string(&path).unwrap();
            let code = text.split("#[cfg(test)]\nmod ").next().unwrap();
            let code: Vec<&str> = code.lines().map(|line| line.split("//").next().unwrap()).filter(|line| !line.starts_with("pub use ")).collect();
            found.insert(module, code.join("\n"));
        }
    }
}

/// Reads the tree of paths at the beginning of `text`, as in `a::{b, c::d}`, each added to `before`; returns what follows.
fn paths<'t>(text: &'t str, before: &[String], found: &mut Vec<Module>) -> &'t str {
    let text = text.trim_start();
    if let Some(mut rest) = text.strip_prefix('{') {
        loop {
            rest = paths(rest, before, found).trim_start();
            match rest.strip_prefix(',') {
                Some(more) if !more.trim_start().starts_with('}') => rest = more,
                Some(more) => return more.trim_start().strip_prefix('}').unwrap_or(more),
                None => return rest.strip_prefix('}').unwrap_or(rest),
            }
        }
    }
    let end = text.find(|letter: char| !(letter.is_alphanumeric() || letter == '_')).unwrap_or(text.len());
    let (word, rest) = text.split_at(end);
    let path = [before, &[word.to_owned()]].concat();
    if let Some(more) =
        rest.strip_prefix("::").filter(|more| more.starts_with(|letter: char| letter.is_alphabetic() || letter == '_' || letter == '{'))
    {
        return paths(more, &path, found);
    }
    found.push(path);
    match rest.strip_prefix(" as ") {
        Some(more) => more.trim_start_matches(|letter: char| letter.is_alphanumeric() || letter == '_'),
        None => rest,
    }
}

/// What `module` takes from others of its room.
fn imports(module: &Module, text: &str, all: &BTreeMap<Module, String>) -> BTreeSet<Module> {
    let mut found = Vec::new();
    for root in ["crate::", "super::", "self::"] {
        for (at, _) in text.match_indices(root) {
            let is_word = text[..at].ends_with(|letter: char| letter.is_alphanumeric() || letter == '_' || letter == ':');
            if !is_word {
                paths(&text[at..], &[], &mut found);
            }
        }
    }
    let file = |path: Module| {
        let mut place = if path[0] == "crate" { Module::new() } else { module.clone() };
        let mut names = path.into_iter().peekable();
        while let Some(name) = names.next_if(|name| matches!(name.as_str(), "crate" | "self" | "super")) {
            if name == "super" {
                place.pop();
            }
        }
        for name in names {
            place.push(name);
            if !all.contains_key(&place) {
                place.pop();
                break;
            }
        }
        place
    };
    let is_other = |place: &Module| all.contains_key(place) && !place.starts_with(module) && !module.starts_with(place);
    found.into_iter().map(file).filter(is_other).collect()
}

/// A circle among `imports`, if there is one.
fn circle(imports: &BTreeMap<Module, BTreeSet<Module>>) -> Option<Vec<Module>> {
    fn walk(at: &Module, imports: &BTreeMap<Module, BTreeSet<Module>>, way: &mut Vec<Module>, done: &mut BTreeSet<Module>) -> Option<Vec<Module>> {
        if let Some(begins) = way.iter().position(|on| on == at) {
            return Some(way[begins..].to_vec());
        }
        if done.contains(at) {
            return None;
        }
        way.push(at.clone());
        let found = imports[at].iter().find_map(|next| walk(next, imports, way, done));
        way.pop();
        done.insert(at.clone());
        found
    }
    let mut done = BTreeSet::new();
    imports.keys().find_map(|module| walk(module, imports, &mut Vec::new(), &mut done))
}

#[test]
fn files_import_each_other_in_no_circle_but_where_it_is_said_why() {
    let mut faults = Vec::new();
    for src in rooms() {
        let room = src.parent().unwrap().file_name().unwrap().to_str().unwrap();
        let mut all = BTreeMap::new();
        modules(&src, &[], &mut all);
        let known: BTreeMap<Module, BTreeSet<Module>> = all.iter().map(|(module, text)| (module.clone(), imports(module, text, &all))).collect();
        let through = || SAID.iter().filter(|(of, _, _)| *of == room).flat_map(|(_, files, _)| files.iter().copied());
        let without = |said: &BTreeSet<&str>| {
            let mut left = known.clone();
            left.values_mut().for_each(|others| others.retain(|other| !said.contains(other.join("/").as_str())));
            circle(&left)
        };
        if let Some(circle) = without(&through().collect()) {
            let circle: Vec<String> = circle.iter().map(|module| module.join("/")).collect();
            faults.push(format!("{room}: {} import each other", circle.join(" -> ")));
        }
        for file in through() {
            if without(&through().filter(|other| *other != file).collect()).is_none() {
                faults.push(format!("{room}: no circle goes through {file} any more: it need not be said"));
            }
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn a_circle_is_found_and_trees_of_paths_are_read() {
    let mut found = Vec::new();
    let rest = paths("crate::{a::{self, B as C}, b::c, d}; use", &[], &mut found);
    let found: Vec<String> = found.iter().map(|path| path.join("::")).collect();
    assert_eq!((found, rest), (["crate::a::self", "crate::a::B", "crate::b::c", "crate::d"].map(str::to_owned).to_vec(), "; use"));
    let module = |name: &str| vec![name.to_owned()];
    let texts = [("a", "use crate::b::X;"), ("b", "fn f(x: &super::c::Y) {}"), ("c", "use super::{a, b};")];
    let all: BTreeMap<Module, String> = texts.iter().map(|(name, text)| (module(name), (*text).to_owned())).collect();
    let mut known: BTreeMap<Module, BTreeSet<Module>> = all.iter().map(|(name, text)| (name.clone(), imports(name, text, &all))).collect();
    assert_eq!(circle(&known).unwrap().len(), 3);
    known.get_mut(&module("c")).unwrap().clear();
    assert_eq!(circle(&known), None);
}
