//! The mutants that were chosen, in files of the repository, and where they stand in the sources of today.

use crate::rewrite::{Edit, crossing};
use crate::sites::{self, Form, Source, one_line};
use crate::{Fault, ROOMS, hash};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

/// The first number of a mutant that was written by hand.
pub const BY_HAND: u32 = 1001;

/// The rule's name of those written by hand.
pub const BY_HAND_RULE: &str = "by hand";

/// A mutant made by rule. It is named by what it stands in and by its text, so that it survives edits elsewhere.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Chosen {
    /// Its number.
    pub number: u32,
    /// The file, from the root of the tree.
    pub file: String,
    /// The function.
    pub function: String,
    /// The rule.
    pub rule: String,
    /// The text.
    pub text: String,
    /// Which one of those that are alike.
    #[serde(default = "first")]
    pub nth: usize,
    /// What stands there instead, for readers.
    #[serde(default)]
    pub instead: String,
}

fn first() -> usize {
    1
}

/// A mutant written by hand.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Written {
    /// Its number, from [`BY_HAND`] on.
    pub number: u32,
    /// The file, from the root of the tree.
    pub file: String,
    /// An expression, or whole statements, that the file has once.
    pub find: String,
    /// What stands there instead.
    pub replace: String,
    /// What goes wrong with it.
    pub why: String,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Selected {
    #[serde(default)]
    mutants: Vec<Chosen>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Hand {
    #[serde(default)]
    mutant: Vec<Written>,
}

/// A mutant as it is told of.
#[derive(Clone, Debug)]
pub struct Mutant {
    /// Its number.
    pub number: u32,
    /// What it is, whatever its number and wherever its code stands: another mutant under the same number has another one.
    pub mark: String,
    /// The room.
    pub room: String,
    /// The file.
    pub file: String,
    /// The function; empty if it was written by hand.
    pub function: String,
    /// The rule.
    pub rule: String,
    /// What stands there.
    pub text: String,
    /// What stands there instead.
    pub instead: String,
}

/// Everything that was chosen, beside the sources.
#[derive(Debug, Default)]
pub struct Set {
    /// Each mutant.
    pub mutants: Vec<Mutant>,
    /// Each one's place in its file, of those that have one.
    pub edits: BTreeMap<String, Vec<Edit>>,
    /// The text of each file in `edits`.
    pub texts: BTreeMap<String, String>,
    /// Those that are not to be found in the sources any more, and why.
    pub stale: Vec<(u32, String)>,
}

/// The folder of this crate in the tree.
pub const FOLDER: &str = "crates/mutants";

fn read<T: Default + for<'a> Deserialize<'a>>(path: &Path) -> Result<T, Fault> {
    match std::fs::read_to_string(path) {
        Ok(text) => toml::from_str(&text).map_err(|error| format!("{}: {error}", path.display())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(T::default()),
        Err(error) => Err(format!("{}: {error}", path.display())),
    }
}

/// The sources of the rooms under `root` that are mutated.
///
/// # Errors
/// One cannot be read.
pub fn sources(root: &Path) -> Result<Vec<Source>, Fault> {
    let mut found = Vec::new();
    for room in ROOMS {
        let library = root.join("crates").join(room).join("src/lib.rs");
        if !library.is_file() {
            continue;
        }
        for (path, text, syntax) in sites::crate_files(&library)? {
            let file = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
            found.push(sites::of_syntax(&file, &text, &syntax));
        }
    }
    if found.is_empty() { Err(format!("{}: no room is here", root.display())) } else { Ok(found) }
}

/// The room of a file.
pub fn room(file: &str) -> &str {
    file.split('/').nth(1).unwrap_or(file)
}

fn mark(parts: &[&str]) -> String {
    format!("{:016x}", hash(&parts.join("\0")))
}

fn place_by_hand(written: &Written, source: &Source) -> Result<Edit, String> {
    let mut at = source.text.match_indices(&written.find).map(|(at, _)| at);
    let (Some(start), None) = (at.next(), at.next()) else {
        return Err(format!("its text is there {} times", source.text.matches(&written.find).count()));
    };
    let range = start..start + written.find.len();
    let number = written.number;
    let edit = |form| Edit { number, range: range.clone(), form, replacement: written.replace.clone() };
    if source.expressions.contains(&range) && !written.find.ends_with(';') {
        return Ok(edit(Form::Expression));
    }
    let begins: Vec<usize> = source.statements.iter().filter(|(_, of)| of.start == range.start).map(|(block, _)| *block).collect();
    let ends = source.statements.iter().any(|(block, of)| of.end == range.end && begins.contains(block));
    if ends { Ok(edit(Form::Statement)) } else { Err("its text is neither an expression nor whole statements".to_owned()) }
}

impl Set {
    /// What is chosen under `root`, and where it stands.
    ///
    /// # Errors
    /// A file cannot be read, or a number is there twice.
    pub fn read(root: &Path) -> Result<Set, Fault> {
        let sources = sources(root)?;
        let selected: Selected = read(&root.join(FOLDER).join("selection.toml"))?;
        let hand: Hand = read(&root.join(FOLDER).join("by-hand.toml"))?;
        Set::of(&sources, &selected.mutants, &hand.mutant)
    }

    /// What of `chosen` and `written` stands where in `sources`.
    ///
    /// # Errors
    /// A number is there twice.
    pub fn of(sources: &[Source], chosen: &[Chosen], written: &[Written]) -> Result<Set, Fault> {
        let mut set = Set::default();
        let mut numbers = BTreeSet::new();
        let mut places: BTreeMap<&str, Vec<Edit>> = BTreeMap::new();
        for one in chosen {
            let source = sources.iter().find(|source| source.file == one.file);
            let alike =
                |site: &&sites::Site| (&site.function, site.rule, &site.text, site.nth) == (&one.function, one.rule.as_str(), &one.text, one.nth);
            let site = source.and_then(|source| source.sites.iter().find(alike));
            match (source, site) {
                (Some(source), Some(site)) => places.entry(&source.file).or_default().push(Edit::new(one.number, site)),
                (None, _) => set.stale.push((one.number, format!("{}: there is no such file", one.file))),
                _ => set.stale.push((one.number, format!("{}, {}: no `{}` by the rule `{}`", one.file, one.function, one.text, one.rule))),
            }
            set.mutants.push(Mutant {
                number: one.number,
                mark: mark(&[&one.function, &one.rule, &one.text, &one.nth.to_string()]),
                room: room(&one.file).to_owned(),
                file: one.file.clone(),
                function: one.function.clone(),
                rule: one.rule.clone(),
                text: one.text.clone(),
                instead: one.instead.clone(),
            });
        }
        for one in written {
            if one.number < BY_HAND {
                return Err(format!("mutant {} was written by hand: its number is {BY_HAND} or more", one.number));
            }
            match sources.iter().find(|source| source.file == one.file).map(|source| (source, place_by_hand(one, source))) {
                Some((source, Ok(edit))) => places.entry(&source.file).or_default().push(edit),
                Some((_, Err(why))) => set.stale.push((one.number, format!("{}: {why}: {}", one.file, one_line(&one.find)))),
                None => set.stale.push((one.number, format!("{}: there is no such file", one.file))),
            }
            set.mutants.push(Mutant {
                number: one.number,
                mark: mark(&[&one.find, &one.replace]),
                room: room(&one.file).to_owned(),
                file: one.file.clone(),
                function: String::new(),
                rule: BY_HAND_RULE.to_owned(),
                text: one_line(&one.find),
                instead: one.why.clone(),
            });
        }
        for mutant in &set.mutants {
            if !numbers.insert(mutant.number) {
                return Err(format!("mutant {} is there twice", mutant.number));
            }
        }
        for (file, edits) in places {
            let crossed = crossing(&edits);
            set.stale.extend(crossed.iter().map(|number| (*number, format!("{file}: it overlaps another one"))));
            let edits: Vec<Edit> = edits.into_iter().filter(|edit| !crossed.contains(&edit.number)).collect();
            set.edits.insert(file.to_owned(), edits);
        }
        for source in sources {
            set.texts.insert(source.file.clone(), source.text.clone());
        }
        Ok(set)
    }
}

/// Draws `quota` sites of each room, the rules in turn and by chance inside each; the same seed draws the same.
pub fn draw(sources: &[Source], quotas: &BTreeMap<String, usize>, seed: u64) -> Vec<Chosen> {
    let mut chosen = Vec::new();
    for (wanted, quota) in quotas {
        let mut by_rule: BTreeMap<&str, Vec<(u64, &sites::Site)>> = BTreeMap::new();
        for site in sources.iter().filter(|source| room(&source.file) == wanted).flat_map(|source| &source.sites) {
            let key = format!("{seed} {} {} {} {} {}", site.file, site.function, site.rule, site.text, site.nth);
            // The last rounds of FNV spread poorly.
            let place = hash(&key).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            by_rule.entry(site.rule).or_default().push((place, site));
        }
        by_rule.values_mut().for_each(|sites| sites.sort_by_key(|(place, _)| std::cmp::Reverse(*place)));
        let mut of_room = Vec::new();
        while of_room.len() < *quota {
            let mut any = false;
            for sites in by_rule.values_mut() {
                let Some((_, site)) = sites.pop() else { continue };
                any = true;
                if of_room.len() < *quota {
                    of_room.push(site);
                }
            }
            if !any {
                break;
            }
        }
        of_room.sort_by_key(|site| (&site.file, site.range.start, site.rule));
        for site in of_room {
            let number = chosen.len() as u32 + 1;
            let (file, function, rule) = (site.file.clone(), site.function.clone(), site.rule.to_owned());
            let (text, nth, instead) = (site.text.clone(), site.nth, one_line(&site.replacement));
            chosen.push(Chosen { number, file, function, rule, text, nth, instead });
        }
    }
    chosen
}

/// The text of the file that keeps `chosen`.
pub fn text(chosen: &[Chosen], seed: u64) -> String {
    let word = |text: &str| toml::Value::String(text.to_owned()).to_string();
    let mut out = format!(
        "# Mutants made by rule: drawn once, with seed {seed} (`rheostat-mutants draw`). Each is named by its function, rule and text, not by its line.\n\
         # Numbers stay: results and explanations name them. A mutant that `rheostat-mutants list` calls stale is replaced by hand, or goes.\n\nmutants = [\n"
    );
    for one in chosen {
        let nth = if one.nth == 1 { String::new() } else { format!(", nth = {}", one.nth) };
        let _ = writeln!(
            out,
            "    {{ number = {}, file = {}, function = {}, rule = {}, text = {}{nth}, instead = {} }},",
            one.number,
            word(&one.file),
            word(&one.function),
            word(&one.rule),
            word(&one.text),
            word(&one.instead)
        );
    }
    out.push_str("]\n");
    out
}
