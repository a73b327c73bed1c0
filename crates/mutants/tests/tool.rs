//! The tool on small sources; and that what the repository keeps is in step.

use rheostat_mutants::building::{self, Built, Program};
use rheostat_mutants::process::{self, Ended};
use rheostat_mutants::report;
use rheostat_mutants::results::{Fate, Line, Results};
use rheostat_mutants::rewrite::{Edit, crossing, rewrite};
use rheostat_mutants::running::{self, Baseline, Budget};
use rheostat_mutants::selection::{self, Chosen, Mutant, Set, Written};
use rheostat_mutants::sites::{self, Form, Source};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const FILE: &str = "crates/clock/src/lib.rs";

/// One function for each rule, and what cannot be mutated.
const SOURCE: &str = r#"
const fn known(at: u32) -> bool { at < 3 }
const LIST: [u8; 1 + 1] = [0; 1 + 1];
pub struct Held { items: Vec<u32>, sum: u32 }
impl Held {
    pub fn take(&mut self, item: u32) {
        // A comment stays.
        self.items.push(item);
        self.sum += item;
    }
    pub fn least(&self) -> Option<u32> { self.items.iter().copied().min() }
    pub fn is_full(&self, most: usize) -> bool {
        self.items.len() + 1 > most && !self.items.is_empty() || self.sum >= 100
    }
    pub fn after(&self, at: u32) -> Vec<u32> {
        let mut found = Vec::new();
        for item in &self.items {
            if *item == 0 { continue; }
            if let Some(next) = item.checked_sub(at) && next < 50 {
                found.push(next.min(40));
            } else if at != 7 {
                break;
            }
        }
        found
    }
}
pub fn told() -> String {
    let mut held = Held { items: vec![], sum: 0 };
    let empty = format!("{:?} {}", held.least(), held.is_full(1));
    for item in [5, 0, 9, 99, 3] { held.take(item); }
    let planted = |name: &str| name.is_empty();
    if planted("nothing") { held.sum = 1 + 1; }
    let word = match held.sum { sum if sum > 1000 => "great", _ => "small" };
    format!("{empty} {:?} {} {} {:?} {:?} {word} {} {LIST:?}", held.least(), held.is_full(9), held.is_full(6), held.after(2), held.after(7), known(2))
}
#[cfg(test)]
mod tests {
    #[test]
    fn one() { assert!(1 + 1 == 2); }
}
"#;

fn source() -> Source {
    sites::source(FILE, SOURCE).unwrap()
}

fn edits(source: &Source) -> Vec<Edit> {
    source.sites.iter().enumerate().map(|(at, site)| Edit::new(at as u32 + 1, site)).collect()
}

#[test]
fn every_rule_finds_its_place_and_leaves_alone_what_it_must() {
    let source = source();
    let rules: BTreeSet<&str> = source.sites.iter().map(|site| site.rule).collect();
    let expected = [
        "arithmetic",
        "bound",
        "condition false",
        "condition true",
        "connective",
        "does nothing",
        "equality",
        "extreme",
        "left out",
        "loop",
        "negation",
        "one off",
        "returns None",
        "returns false",
        "returns nothing",
        "returns true",
        "turned",
    ];
    expected.iter().for_each(|rule| assert!(rules.contains(rule), "{rule}: {rules:?}"));
    for site in &source.sites {
        assert!(!["known", "one", "tests::one"].contains(&site.function.as_str()), "{site:?}");
        assert!(!site.text.contains("planted") && !site.text.contains("1 + 1"), "{site:?}");
    }
    let keys: BTreeSet<_> = source.sites.iter().map(|site| (&site.function, site.rule, &site.text, site.nth)).collect();
    assert_eq!(keys.len(), source.sites.len(), "each has a name of its own");
}

/// One build, and each mutant a run of it.
#[test]
fn with_no_mutant_on_all_is_as_before_and_each_one_is_switched_on_alone() {
    let source = source();
    let edits = edits(&source);
    assert!(edits.len() > 30, "{}", edits.len());
    let folder = tempfile::tempdir().unwrap();
    let build = |name: &str, text: &str| {
        let (file, program) = (folder.path().join(format!("{name}.rs")), folder.path().join(name));
        std::fs::write(&file, text).unwrap();
        let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let done = Command::new(rustc).args(["--edition", "2024", "--cap-lints", "allow", "-o"]).arg(&program).arg(&file).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        program
    };
    let main = "\nfn main() { println!(\"{}\", told()); }\n";
    let plain = build("plain", &format!("{SOURCE}{main}"));
    let rewritten = rewrite(SOURCE, &edits, "crate::mutant::on");
    let switch = format!("\nmod mutant {{ {} }}\n", include_str!("../src/switch.rs").replace("//!", "//"));
    let mutated = build("mutated", &format!("{}{main}{switch}", rewritten.text));
    let run = |program: &Path, number: Option<u32>, seen: &Path| {
        let mut command = process::limited(&program.to_string_lossy());
        if let Some(number) = number {
            command.env("RHEOSTAT_MUTANT", number.to_string()).env("RHEOSTAT_MUTANT_SEEN", seen);
        }
        let outcome = process::run(&mut command, Duration::from_secs(60), |_| None).unwrap();
        (outcome.ended, outcome.lines)
    };
    let seen = |number: u32| folder.path().join(format!("seen-{number}"));
    let before = run(&plain, None, &seen(0));
    assert_eq!(before.0, Ended::Well);
    assert_eq!(run(&mutated, None, &seen(0)), before);
    assert_eq!(run(&mutated, Some(0), &seen(0)), before);
    assert!(!seen(0).exists());
    let (mut caught, mut reached) = (0, 0);
    for edit in &edits {
        caught += u32::from(run(&mutated, Some(edit.number), &seen(edit.number)) != before);
        reached += u32::from(seen(edit.number).exists());
    }
    assert!(caught * 3 > edits.len() as u32 * 2, "{caught} of {} change what is printed", edits.len());
    assert!(reached * 10 > edits.len() as u32 * 9, "{reached} of {} are reached", edits.len());
    // Who comes by what, for choosing tests.
    let cover = folder.path().join("cover");
    let mut command = Command::new(&mutated);
    command.env("RHEOSTAT_MUTANT", "cover").env("RHEOSTAT_MUTANT_SEEN", &cover);
    assert_eq!(process::run(&mut command, Duration::from_secs(60), |_| None).unwrap().lines, before.1);
    let lines = std::fs::read_to_string(&cover).unwrap();
    assert_eq!(lines.lines().count() as u32, reached);
    assert!(lines.lines().all(|line| line.ends_with("\tmain")));
}

#[test]
fn what_a_compiler_says_is_laid_at_the_closest_mutants_door() {
    let edit = |number, range, replacement: &str| Edit { number, range, form: Form::Expression, replacement: replacement.to_owned() };
    let text = "let a = b < c + 1;";
    let edits = [edit(1, 8..17, "b <= c + 1"), edit(2, 12..17, "c"), edit(3, 12..17, "wrong")];
    let out = rewrite(text, &edits, "on");
    assert_eq!(out.text, "let a = (if on(1) { b <= c + 1 } else { b < (if on(2) { c } else if on(3) { wrong } else { c + 1 }) });");
    let at = |word: &str| {
        let start = out.text.find(word).unwrap();
        out.at(&(start..start + word.len())).map(<[u32]>::to_vec)
    };
    assert_eq!(at("wrong"), Some(vec![3]));
    assert_eq!(at("b <= c"), Some(vec![1]));
    assert_eq!(at("on(3)"), Some(vec![2, 3]));
    assert_eq!(at("let"), None);
    assert_eq!(crossing(&edits), Vec::<u32>::new());
    assert_eq!(crossing(&[edit(1, 0..10, ""), edit(2, 5..15, ""), edit(3, 5..10, "")]), vec![2]);
}

fn chosen(source: &Source) -> Vec<Chosen> {
    selection::draw(std::slice::from_ref(source), &BTreeMap::from([("clock".to_owned(), 20)]), 3)
}

#[test]
fn a_selection_survives_edits_elsewhere_and_what_is_gone_is_told() {
    let source = source();
    let chosen = chosen(&source);
    assert_eq!(chosen.len(), 20);
    assert!(chosen.iter().map(|one| &one.rule).collect::<BTreeSet<_>>().len() > 10, "the rules take turns");
    let text = selection::text(&chosen, 3);
    assert_eq!(text, selection::text(&selection::draw(std::slice::from_ref(&source), &BTreeMap::from([("clock".to_owned(), 20)]), 3), 3));
    let set = Set::of(std::slice::from_ref(&source), &chosen, &[]).unwrap();
    assert!(set.stale.is_empty() && set.edits[FILE].len() == 20, "{:?}", set.stale);
    // Lines before it, and another function.
    let moved = sites::source(FILE, &format!("\n\npub fn other(at: u32) -> bool {{ at == 0 }}\n{SOURCE}")).unwrap();
    assert!(Set::of(&[moved], &chosen, &[]).unwrap().stale.is_empty());
    let renamed = sites::source(FILE, &SOURCE.replace("pub fn after", "pub fn since")).unwrap();
    let lost = chosen.iter().filter(|one| one.function == "Held::after").count();
    let set = Set::of(&[renamed], &chosen, &[]).unwrap();
    assert!(lost > 0);
    assert_eq!((set.stale.len(), set.edits[FILE].len()), (lost, 20 - lost));
    assert!(Set::of(&[source], &[chosen[0].clone(), chosen[0].clone()], &[]).is_err(), "a number is one mutant's");
}

#[test]
fn by_hand_only_what_can_be_replaced_as_a_whole() {
    let source = source();
    let by = |number, find: &str| Written { number, file: FILE.to_owned(), find: find.to_owned(), replace: String::new(), why: String::new() };
    let stale = |find: &str| Set::of(std::slice::from_ref(&source), &[], &[by(1001, find)]).unwrap().stale.len();
    assert_eq!(stale("self.items.push(item);"), 0);
    assert_eq!(stale("self.items.push(item);\n        self.sum += item;"), 0);
    assert_eq!(stale("self.sum >= 100"), 0);
    for bad in ["!self.items.is_empty() || self.sum >= 100", "not there", "item", "push(item);", "1 > most"] {
        assert_eq!(stale(bad), 1, "{bad}");
    }
    assert!(Set::of(std::slice::from_ref(&source), &[], &[by(7, "self.sum >= 100")]).is_err(), "their numbers are their own");
}

#[test]
fn a_copy_has_the_switch_and_its_mutants_and_nothing_is_written_twice() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("root");
    let put = |name: &str, text: &str| {
        let path = root.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    put("Cargo.toml", "[workspace]\nmembers = [\"crates/*\"]\n");
    put(FILE, &SOURCE.replace("#[cfg(test)]", "mod inner;\n#[cfg(test)]\nmod absent;\n#[cfg(test)]"));
    put("crates/clock/src/inner.rs", "pub fn is_two(at: u32) -> bool { at == 2 }\n");
    put("target/left", "out");
    let sources = selection::sources(&root).unwrap();
    assert_eq!(sources.iter().map(|source| source.file.as_str()).collect::<Vec<_>>(), ["crates/clock/src/inner.rs", FILE]);
    let chosen = selection::draw(&sources, &BTreeMap::from([("clock".to_owned(), 1000)]), 1);
    let set = Set::of(&sources, &chosen, &[]).unwrap();
    let kept = building::Folder(root.join("kept"));
    let rewritten = building::copy(&root, &set, &BTreeSet::new(), &kept).unwrap();
    assert_eq!(rewritten.len(), 2);
    let read = |name: &str| std::fs::read_to_string(kept.tree().join(name)).unwrap();
    assert!(read("crates/clock/src/inner.rs").contains("crate::mutant::on("));
    assert!(read(FILE).ends_with("pub mod mutant;\n") && read("Cargo.toml").contains("[profile.mutants]"));
    assert!(read("crates/clock/src/mutant.rs").contains("pub fn on("));
    assert!(!kept.tree().join("target").exists());
    let time = || std::fs::metadata(kept.tree().join("crates/clock/src/inner.rs")).unwrap().modified().unwrap();
    let before = time();
    std::thread::sleep(Duration::from_millis(20));
    building::copy(&root, &set, &BTreeSet::new(), &kept).unwrap();
    assert_eq!(time(), before, "what is as it was keeps its time, so that it is not compiled again");
    assert!(!kept.tree().join("kept").exists(), "it is no part of what it holds");
    let known = [building::BUILT, building::BASELINE];
    known.iter().for_each(|name| kept.keep(name, &1).unwrap());
    let all: BTreeSet<u32> = chosen.iter().map(|one| one.number).collect();
    building::copy(&root, &set, &all, &kept).unwrap();
    assert!(known.iter().all(|name| !kept.state(name).exists()), "of what the tree is not any more nothing is known");
    assert_eq!(read("crates/clock/src/inner.rs"), "pub fn is_two(at: u32) -> bool { at == 2 }\n");
}

#[test]
fn a_process_ends_at_the_first_failure_or_when_its_time_is_up_with_all_it_has_started() {
    let folder = tempfile::tempdir().unwrap();
    let shell = |script: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", script]).current_dir(folder.path());
        command
    };
    let run = |script: &str, limit: u64| {
        process::run(&mut shell(script), Duration::from_millis(limit), |line| line.strip_prefix("bad ").map(str::to_owned)).unwrap()
    };
    assert_eq!(run("echo good", 10_000).ended, Ended::Well);
    assert!(matches!(run("exit 3", 10_000).ended, Ended::Badly(how) if how.contains('3')));
    let seen = run("echo good; echo bad luck; sleep 30", 20_000);
    assert_eq!((seen.ended, seen.took < Duration::from_secs(15)), (Ended::Seen("luck".to_owned()), true));
    let late = run("(sleep 2; echo > left) & sleep 30", 300);
    assert_eq!((late.ended, late.took < Duration::from_secs(15)), (Ended::TimeUp, true));
    std::thread::sleep(Duration::from_millis(2_500));
    assert!(!folder.path().join("left").exists(), "its child was ended with it");
    // More than it may take.
    let mut greedy = process::limited("sh");
    greedy.args(["-c", "ulimit -v"]);
    assert_eq!(process::run(&mut greedy, Duration::from_secs(10), |_| None).unwrap().lines, [process::MEMORY_KIB.to_string()]);
}

#[test]
fn a_process_does_not_outlive_who_has_started_it() {
    let mut command = process::limited("sleep");
    let mut child = command.arg("60").stdin(Stdio::piped()).process_group(0).spawn().unwrap();
    drop(child.stdin.take());
    assert_eq!(child.wait().unwrap().signal(), Some(9));
}

fn line(mutant: &Mutant, fate: Fate) -> Line {
    Line { reached: true, seconds: 1.0, ..Line::new(mutant, fate) }
}

fn set_of_twenty() -> Set {
    let source = source();
    let chosen = chosen(&source);
    Set::of(&[source], &chosen, &[]).unwrap()
}

#[test]
fn two_at_once_lose_nothing_of_each_other() {
    let (folder, mutants) = (tempfile::tempdir().unwrap(), set_of_twenty().mutants);
    let file = folder.path().join("results.jsonl");
    let (mut one, mut other) = (Results::read(&file).unwrap(), Results::read(&file).unwrap());
    one.put(line(&mutants[0], Fate::Test)).unwrap();
    other.put(line(&mutants[1], Fate::Seed)).unwrap();
    one.put(line(&mutants[2], Fate::Test)).unwrap();
    let all = Results::read(&file).unwrap();
    assert_eq!([0, 1, 2].map(|at| all.of(&mutants[at]).map(|line| line.fate)), [Some(Fate::Test), Some(Fate::Seed), Some(Fate::Test)]);
    let kept = building::Folder(folder.path().join("kept"));
    let alone = kept.alone().unwrap();
    assert!(kept.alone().unwrap_err().contains("another rheostat-mutants works there"));
    drop(alone);
    // A process that another test starts has the file, too, until it is another program.
    while kept.alone().is_err() {
        std::thread::yield_now();
    }
}

#[test]
fn a_mutant_that_is_asked_for_and_cannot_be_run_is_told() {
    let set = set_of_twenty();
    let folder = tempfile::tempdir().unwrap();
    let mut results = Results::read(&folder.path().join("results.jsonl")).unwrap();
    results.put(line(&set.mutants[0], Fate::Survived)).unwrap();
    results.put(line(&set.mutants[1], Fate::Test)).unwrap();
    let built = Built { dropped: BTreeSet::from([4]), mutants: marks(&set.mutants[..3]), ..Built::default() };
    let open = |only: &[u32], survivors: bool| {
        let open = running::open(&set, &built, &results, only, survivors)?;
        Ok::<Vec<u32>, String>(open.into_iter().map(|mutant| mutant.number).collect())
    };
    assert_eq!(open(&[], false), Ok(vec![3]));
    assert_eq!(open(&[], true), Ok(vec![1]));
    assert_eq!(open(&[2], false), Ok(vec![2]));
    for (number, why) in [(4, "it does not compile"), (5, "it is not in the build"), (999, "there is no such mutant")] {
        let error = open(&[2, number], false).unwrap_err();
        assert!(error.starts_with(&format!("mutant {number}: {why}")), "{error}");
    }
}

fn marks(mutants: &[Mutant]) -> BTreeMap<u32, String> {
    mutants.iter().map(|mutant| (mutant.number, mutant.mark.clone())).collect()
}

#[test]
fn a_mutant_that_takes_anothers_number_does_not_take_its_result() {
    let source = source();
    let chosen = chosen(&source);
    let of = |chosen: &[Chosen]| Set::of(std::slice::from_ref(&source), chosen, &[]).unwrap();
    let before = of(&chosen);
    let folder = tempfile::tempdir().unwrap();
    let mut results = Results::read(&folder.path().join("results.jsonl")).unwrap();
    before.mutants.iter().for_each(|mutant| results.put(line(mutant, Fate::Test)).unwrap());
    let whole = Built { mutants: marks(&before.mutants), ..Built::default() };
    let open = |set: &Set, built: &Built| running::open(set, built, &results, &[], false).unwrap().iter().map(|one| one.number).collect::<Vec<_>>();
    assert_eq!(open(&before, &whole), Vec::<u32>::new());
    // The last two change places.
    let mut replaced = chosen[..18].to_vec();
    replaced.extend([Chosen { number: 19, ..chosen[19].clone() }, Chosen { number: 20, ..chosen[18].clone() }]);
    let after = of(&replaced);
    assert_eq!(open(&after, &whole), Vec::<u32>::new(), "the build has others under these numbers");
    assert_eq!(open(&after, &Built { mutants: marks(&after.mutants), ..Built::default() }), [19, 20]);
    let told = report::report(&after, &results, &report::Survivors::default());
    assert!(told.text.contains("| `clock` | 20 | 0 | 18 | 0 | 0 | 0 | 2 | 100.0 % |"), "{}", told.text);
    // Where its code stands is not what it is.
    let moved: Vec<Chosen> = chosen.iter().map(|one| Chosen { file: "crates/clock/src/elsewhere.rs".to_owned(), ..one.clone() }).collect();
    assert_eq!(marks(&of(&moved).mutants), marks(&before.mutants));
}

/// A run of the program, over a build that somebody else has made.
#[test]
fn what_survives_a_part_of_the_tests_has_no_result() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("root");
    let put = |name: &str, text: &str| {
        let path = root.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    put(FILE, SOURCE);
    put("crates/mutants/selection.toml", &selection::text(&chosen(&source()), 3));
    let set = Set::read(&root).unwrap();
    let kept = building::Folder(root.join("kept"));
    std::fs::create_dir_all(&kept.0).unwrap();
    kept.keep(building::BASELINE, &Baseline::default()).unwrap();
    let results = || Results::read(&root.join("crates/mutants/results.jsonl")).unwrap();
    let run = |rooms: &[&str], seeds: Option<&str>| {
        let programs = rooms.iter().map(|room| Program { room: (*room).to_owned(), name: "lib".to_owned(), path: "true".into() }).collect();
        let built = Built { programs, seeds: seeds.map(Into::into), mutants: marks(&set.mutants[..1]), ..Built::default() };
        kept.keep(building::BUILT, &built).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_rheostat-mutants"));
        let done = command.args(["run", "--folder", "kept"]).current_dir(&root).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).unwrap()
    };
    for said in [run(&["clock"], None), run(rheostat_mutants::TESTED, None)] {
        assert!(said.contains("1 survived what was built, and have no result"), "{said}");
        assert_eq!(results().of(&set.mutants[0]), None);
    }
    assert!(!run(rheostat_mutants::TESTED, Some("true")).contains("no result"));
    assert_eq!(results().of(&set.mutants[0]).map(|line| line.fate), Some(Fate::Survived));
}

#[test]
fn a_part_of_a_baseline_is_not_kept_and_a_second_of_seeds_is_not_none() {
    let folder = tempfile::tempdir().unwrap();
    let kept = building::Folder(folder.path().to_owned());
    ["clock", "sim"].iter().for_each(|room| std::fs::create_dir_all(kept.tree().join("crates").join(room)).unwrap());
    let program = |room: &str| Program { room: room.to_owned(), name: "lib".to_owned(), path: "true".into() };
    let baseline = |rooms: &[&str]| {
        let built = Built { programs: rooms.iter().map(|room| program(room)).collect(), ..Built::default() };
        running::baseline(&built, &kept, 1, Duration::from_secs(60), &mut |_: &str| {})
    };
    // There is no folder for its tests: the second one does not start.
    assert!(baseline(&["clock", "absent"]).is_err());
    assert!(!kept.state(building::BASELINE).exists());
    assert_eq!(baseline(&["clock"]).unwrap().programs.len(), 1);
    assert!(kept.state(building::BASELINE).exists());
    let cover = BTreeMap::from([(1, BTreeSet::from(["kind".to_owned()]))]);
    let known = Baseline { kinds: vec!["kind".to_owned()], cover, ..Baseline::default() };
    let built = Built { seeds: Some("false".into()), ..Built::default() };
    let budget = Budget { seeds: Duration::from_secs(1), longest: 1.0 };
    assert_eq!(running::mutant(&set_of_twenty().mutants[0], &built, &known, &kept, budget).unwrap().fate, Fate::Seed);
}

#[test]
fn that_nobody_reads_what_is_printed_is_no_failure() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = Command::new(env!("CARGO_BIN_EXE_rheostat-mutants"));
    assert!(command.args(["list", "--sites"]).stdout(writer).status().unwrap().success());
}

#[test]
fn a_report_counts_each_fate_once_and_asks_for_explanations() {
    let source = source();
    let chosen = chosen(&source);
    let set = Set::of(&[source], &chosen, &[]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut results = Results::read(&folder.path().join("results.jsonl")).unwrap();
    let fates = [Fate::Test, Fate::Seed, Fate::Seed, Fate::Survived, Fate::Survived, Fate::Survived, Fate::DoesNotCompile];
    for (mutant, fate) in set.mutants.iter().zip(fates) {
        let line = Line { by: "x".to_owned(), reached: fate != Fate::Survived, ..Line::new(mutant, fate) };
        results.put(Line { fate: Fate::Survived, ..line.clone() }).unwrap();
        results.put(line).unwrap();
    }
    let results = Results::read(&folder.path().join("results.jsonl")).unwrap();
    let told = report::Survivors::parse(
        "[[survivor]]\nnumber = 4\nequivalent = \"a | b\"\n[[survivor]]\nnumber = 5\nneeded = \"time\"\n[[survivor]]\nnumber = 1\nneeded = \"x\"\n",
    )
    .unwrap();
    let report = report::report(&set, &results, &told);
    assert_eq!((report.unexplained, report.idle), (vec![6], vec![1]));
    assert!((report.share - 0.6).abs() < 1e-9, "{}", report.share);
    assert!(report.text.contains("| `clock` | 20 | 1 | 1 | 2 | 1 | 2 | 13 | 60.0 % |"), "{}", report.text);
    assert!(report.text.contains("equivalent: a \\| b") && report.text.contains("(nothing comes by)"));
    assert!(report::Survivors::parse("[[survivor]]\nnumber = 4\n").is_err());
    assert!(report::Survivors::parse("[[survivor]]\nnumber = 4\nneeded = \"\"\n[[survivor]]\nnumber = 4\nneeded = \"\"\n").is_err());
    let page = format!("before\n{}\nold\n{}\nafter\n", report::MARKS.0, report::MARKS.1);
    let new = report::between(&page, "new").unwrap();
    assert!(new.contains("before") && new.contains("new") && new.contains("after") && !new.contains("old"));
    assert!(report::between("no marks", "new").is_err());
}

/// Edits make mutants stale; there are to be enough nevertheless. What the page says is what the results say.
#[test]
fn the_repositorys_mutants_are_enough_and_its_page_is_in_step() {
    let root = building::root(Path::new(env!("CARGO_MANIFEST_DIR"))).unwrap();
    let set = Set::read(&root).unwrap();
    let standing = set.mutants.len() - set.stale.len();
    assert!(standing >= 150, "{standing} of the mutants are in the sources still: choose new ones; stale: {:#?}", set.stale);
    let (_, wrong) = report::page(&root, &set, true).unwrap();
    assert!(wrong.is_empty(), "{wrong:#?}");
}
