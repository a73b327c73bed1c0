//! The lives of data directories. A directory has a number of its own and counts its starts; every node keeps what it was told of the others', so that one whose disk was lost, or is an older
//! copy, is known by that before anything is believed of it.

use crate::folder::{self, FolderError};
use crate::shard::mailbox::Control;
use crate::shared::{Shared, lock};
use crate::token_keys::random;
use rheostat_core::wire::{Reader, Wire, WireError};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// In the data directory: its own life.
const OWN: &str = ".life";

/// In the data directory: the lives of the others.
const OTHERS: &str = ".lives";

/// In the data directory: its earlier starts.
const EARLIER: &str = ".life-earlier";

/// So many of them are remembered, and shown to the others.
const EARLIER_STARTS: usize = 64;

/// So many directories are remembered of each node that were given up before the one that it has now.
const GIVEN_UP: usize = 16;

/// What is said to a node whose data is lost or old.
pub(crate) const ADVICE: &str = "Put the right directory back; if there is none, start it once with accept_lost_writes = true: what only this node had is lost then, and in groups (replicas, session, strong) it comes back as a new member, if a majority of the others kept their disks";

/// Follows the numbers of a directory that the operator has put in another's place.
const REPLACES: &str = " replaces";

/// Follows them where other data centers have had the place of this one before, with their number.
const GENERATION: &str = " generation ";

/// A start from a data directory: how often there had been one, and the number that was drawn for it.
pub(crate) type Start = (u64, u64);

/// One start of a node on a data directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Life {
    /// Of the directory, drawn when it was made.
    folder: u64,
    /// How often the directory has been started from.
    start: u64,
    /// Of this start: an older copy can have been started as often.
    once: u64,
    /// The operator has put the directory in the place of another one, and given up what it lacks.
    replaces: bool,
    /// How many data centers have had the place before of the one that the directory was made in.
    generation: u32,
}

impl Wire for Life {
    fn encode(&self, out: &mut Vec<u8>) {
        self.folder.encode(out);
        self.start.encode(out);
        self.once.encode(out);
        self.replaces.encode(out);
        self.generation.encode(out);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        let (folder, start, once) = (Wire::decode(input)?, Wire::decode(input)?, Wire::decode(input)?);
        Ok(Life { folder, start, once, replaces: Wire::decode(input)?, generation: Wire::decode(input)? })
    }
}

impl Life {
    /// Whether the directory stands in the place of one that was lost.
    pub(crate) fn replaces(self) -> bool {
        self.replaces
    }

    /// How many data centers have had the place before of the one that the directory was made in.
    pub(crate) fn generation(self) -> u32 {
        self.generation
    }

    fn line(&self) -> String {
        let generation = if self.generation > 0 { format!("{GENERATION}{}", self.generation) } else { String::new() };
        format!("{:016x} {} {:016x}{}{generation}", self.folder, self.start, self.once, if self.replaces { REPLACES } else { "" })
    }

    fn parse(line: &str) -> Option<Life> {
        let mut words = line.split_whitespace();
        let folder = u64::from_str_radix(words.next()?, 16).ok()?;
        let start = words.next()?.parse().ok()?;
        let once = u64::from_str_radix(words.next()?, 16).ok()?;
        let mut next = words.next();
        let replaces = next == Some(REPLACES.trim());
        if replaces {
            next = words.next();
        }
        let generation = match next {
            None => 0,
            Some(word) if word == GENERATION.trim() => words.next()?.parse().ok()?,
            Some(_) => return None,
        };
        words.next().is_none().then_some(Life { folder, start, once, replaces, generation })
    }

    /// Why a directory that shows `self`, and `earlier` starts, is not what was known as `known`, or an older copy of it.
    fn differs_from(&self, known: &Life, earlier: &[Start]) -> Option<String> {
        if self.generation > known.generation {
            // Another data center has the place, and an operator has said so.
            return None;
        }
        if self.generation < known.generation {
            return Some("its data directory is of a data center whose place another one has".into());
        }
        if self.folder != known.folder {
            return (!self.replaces).then(|| "its data directory is not the one that it was known with: the disk was lost, or exchanged".into());
        }
        let (is, was) = (self.start, known.start);
        if is < was || is == was && self.once != known.once {
            return Some(format!(
                "its data directory is an older copy: it was started from {was} times, and what it has now was started from {is} times"
            ));
        }
        // A copy that was refused has as many starts as what was known when it is started often enough; they are others.
        let is_another = earlier.iter().any(|(start, once)| *start == was && *once != known.once);
        is_another.then(|| format!("its data directory is an older copy: start number {was} from it was another one than from what was known"))
    }
}

/// The life of this node, and what it knows of the others'.
#[derive(Default)]
pub(crate) struct Lives {
    own: Option<Life>,
    /// The starts before it from the same directory, the last of them.
    earlier: Vec<Start>,
    dir: Option<PathBuf>,
    /// The last is the present one; those before it are of directories that were given up.
    known: Mutex<BTreeMap<String, Vec<Life>>>,
    /// The disk lacks something of that. Changes while `known` is locked.
    unwritten: AtomicBool,
    /// Why this node serves nothing, if others have said so.
    lost: Mutex<Option<String>>,
}

fn damaged(path: &Path) -> FolderError {
    let why = "what stands here cannot be read; put this file back as it was, or remove it if that cannot be done";
    FolderError::Io(path.to_owned(), io::Error::new(io::ErrorKind::InvalidData, why))
}

fn text_of(path: &Path) -> Result<Option<String>, FolderError> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => Err(damaged(path)),
        Err(error) => Err(FolderError::Io(path.to_owned(), error)),
    }
}

/// Keeps in `dir` which starts there were before `own`, the last of which is `before`: on disk before `own` is.
fn remember(dir: &Path, own: &Life, before: Option<Life>) -> Result<Vec<Start>, FolderError> {
    let path = dir.join(EARLIER);
    let text = text_of(&path)?.unwrap_or_default();
    let mut earlier = text.lines().map(|line| Life::parse(line).ok_or_else(|| damaged(&path))).collect::<Result<Vec<Life>, _>>()?;
    // What is known of another directory, or of starts after the last one, says nothing of this one.
    earlier.retain(|one| one.folder == own.folder && before.is_some_and(|before| one.start < before.start));
    earlier.extend(before);
    earlier.drain(..earlier.len().saturating_sub(EARLIER_STARTS));
    let lines: String = earlier.iter().map(|one| format!("{}\n", one.line())).collect();
    if lines != text {
        folder::write_whole(dir, &path, lines.as_bytes()).map_err(|error| FolderError::Io(path, error))?;
    }
    Ok(earlier.iter().map(|one| (one.start, one.once)).collect())
}

impl Lives {
    /// Begins a life on the data directory `dir`, which is on disk when this returns; `replaces`: a first one, in the place of whatever the others know of this node; `generation`: how many data centers have had
    /// the place of this one before. Errors: the disk's, what stands there is damaged, or it was made in another of these data centers.
    pub(crate) fn begin(dir: Option<&Path>, replaces: bool, generation: u32) -> Result<Lives, FolderError> {
        let Some(dir) = dir else { return Ok(Lives::default()) };
        let number = |path: &Path| random::<8>().map(u64::from_le_bytes).map_err(|error| FolderError::Io(path.to_owned(), error));
        let path = dir.join(OWN);
        let before = text_of(&path)?.map(|text| Life::parse(&text).ok_or_else(|| damaged(&path))).transpose()?;
        let once = number(&path)?;
        if let Some(before) = before.filter(|before| before.generation != generation) {
            let (found, expected) = (before.generation.to_string(), generation.to_string());
            return Err(FolderError::Foreign { path, entry: "generation", found, expected });
        }
        let own = match before.filter(|_| !replaces) {
            Some(before) => Life { start: before.start + 1, once, ..before },
            None => Life { folder: number(&path)?, start: 1, once, replaces, generation },
        };
        let earlier = remember(dir, &own, before.filter(|_| !replaces))?;
        folder::write_whole(dir, &path, format!("{}\n", own.line()).as_bytes()).map_err(|error| FolderError::Io(path.clone(), error))?;
        let path = dir.join(OTHERS);
        let mut known: BTreeMap<String, Vec<Life>> = BTreeMap::new();
        for line in text_of(&path)?.unwrap_or_default().lines() {
            let (life, node) = line.split_once(": ").and_then(|(life, node)| Some((Life::parse(life)?, node))).ok_or_else(|| damaged(&path))?;
            known.entry(node.to_owned()).or_default().push(life);
        }
        Ok(Lives { own: Some(own), earlier, dir: Some(dir.to_owned()), known: Mutex::new(known), ..Lives::default() })
    }

    /// This node's own; none without a data directory.
    pub(crate) fn own(&self) -> Option<Life> {
        self.own
    }

    /// The last of the starts before this one from the same directory.
    pub(crate) fn earlier(&self) -> &[Start] {
        &self.earlier
    }

    /// Whether `node`, which shows `life` and `earlier` starts, is the one that was known, and nothing that it has said is lost. Keeps what is new of it, and what could not be written before, on disk where
    /// there is one, which may take as long as the disk does. Errors: why it is not.
    pub(crate) fn meet(&self, node: &str, life: Option<Life>, earlier: &[Start]) -> Result<(), String> {
        let Some(life) = life else { return Ok(()) };
        let mut known = lock(&self.known);
        let lives = known.entry(node.to_owned()).or_default();
        let before = lives.last().copied();
        if let Some(before) = before {
            if let Some(why) = life.differs_from(&before, earlier) {
                return Err(why);
            }
            if life.folder == before.folder {
                lives.pop();
            } else if lives.iter().any(|given_up| given_up.folder == life.folder) {
                return Err("its data directory was given up: another one was started in its place".into());
            }
        }
        lives.push(life);
        lives.drain(..lives.len().saturating_sub(GIVEN_UP + 1));
        if let Some(dir) = self.dir.as_ref().filter(|_| before != Some(life) || self.unwritten.load(Ordering::Relaxed)) {
            let lines = known.iter().flat_map(|(node, lives)| lives.iter().map(move |life| format!("{}: {node}\n", life.line())));
            let text: String = lines.collect();
            let written = folder::write_whole(dir, &dir.join(OTHERS), text.as_bytes());
            self.unwritten.store(written.is_err(), Ordering::Relaxed);
            if let Err(error) = written {
                tracing::error!(
                    node,
                    %error,
                    "the life of another node's data directory could not be kept: after a restart this node does not know it. It is tried again when a node connects"
                );
            }
        }
        Ok(())
    }
}

impl Lives {
    /// Why this node serves nothing, if others have said that its data is lost.
    pub(crate) fn lost(&self) -> Option<String> {
        lock(&self.lost).clone()
    }
}

impl Shared {
    /// Node `by` does not take this one for what it was.
    pub(crate) fn is_lost(&self, by: &str, why: &str) {
        let why = format!("node {by} says of this node: {why}");
        let news = lock(&self.lives.lost).replace(why.clone()).is_none();
        if news {
            tracing::error!(why, "the data of this node is lost or old: it serves nothing");
            self.shards.iter().for_each(|shard| shard.control(Control::GiveUp(why.clone())));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Lives {
        /// As [`Lives::meet`] of a node that does not show its earlier starts.
        fn knows(&self, node: &str, life: Option<Life>) -> Result<(), String> {
            self.meet(node, life, &[])
        }
    }

    fn begin(dir: &Path) -> Lives {
        Lives::begin(Some(dir), false, 0).unwrap()
    }

    #[test]
    fn an_empty_and_an_older_directory_are_not_taken_for_what_they_were() {
        let folder = tempfile::tempdir().unwrap();
        let (at, from) = (folder.path().join("at"), folder.path().join("from"));
        std::fs::create_dir_all(&at).unwrap();
        std::fs::create_dir_all(&from).unwrap();
        let here = begin(&at);
        assert_eq!(here.knows("b", None), Ok(()), "a node without a disk has nothing to lose");
        let first = begin(&from);
        for _ in 0..2 {
            assert_eq!(here.knows("b", first.own()), Ok(()));
        }
        let copy = std::fs::read(from.join(OWN)).unwrap();
        let second = begin(&from);
        assert_eq!(here.knows("b", second.own()), Ok(()));
        let here = begin(&at);
        assert_eq!(here.knows("b", second.own()), Ok(()), "it is known after a restart");
        assert!(here.knows("b", first.own()).unwrap_err().contains("older copy"), "a life that is over");
        // A copy of its first life begins a second one too, and it is another.
        std::fs::write(from.join(OWN), copy).unwrap();
        let other_second = begin(&from);
        assert!(here.knows("b", other_second.own()).unwrap_err().contains("older copy"));
        std::fs::remove_file(from.join(OWN)).unwrap();
        let empty = begin(&from);
        assert!(here.knows("b", empty.own()).unwrap_err().contains("disk was lost"));
        assert_eq!(here.knows("c", empty.own()), Ok(()), "another node");
        // The operator gives up what is lost, once.
        let accepted = Lives::begin(Some(&from), true, 0).unwrap();
        assert_eq!(here.knows("b", accepted.own()), Ok(()));
        let later = begin(&from);
        assert_eq!(here.knows("b", later.own()), Ok(()));
        assert!(here.knows("b", second.own()).is_err(), "the old one has come back too late");
        assert!(here.knows("b", accepted.own()).is_err());
        // Who was down meanwhile hears of it later.
        let late = Lives::default();
        assert_eq!(late.knows("b", second.own()), Ok(()));
        assert_eq!(late.knows("b", later.own()), Ok(()));
    }

    /// A node that is refused is started again, as often as it takes its operator to read why.
    #[test]
    fn an_older_copy_stays_one_however_often_it_is_started() {
        let folder = tempfile::tempdir().unwrap();
        let [at, from, copy] = ["at", "from", "copy"].map(|name| folder.path().join(name));
        [&at, &from, &copy].into_iter().for_each(|dir| std::fs::create_dir_all(dir).unwrap());
        let here = begin(&at);
        let shows = |lives: &Lives| here.meet("b", lives.own(), lives.earlier());
        for _ in 0..2 {
            assert_eq!(shows(&begin(&from)), Ok(()));
        }
        for file in [OWN, EARLIER] {
            std::fs::copy(from.join(file), copy.join(file)).unwrap();
        }
        assert_eq!(shows(&begin(&from)), Ok(()));
        assert_eq!(shows(&begin(&from)), Ok(()));
        for start in 3..10 {
            let begun = begin(&copy);
            assert_eq!(begun.own().unwrap().start, start);
            assert!(shows(&begun).unwrap_err().contains("older copy"), "start {start}");
        }
        assert_eq!(shows(&begin(&from)), Ok(()), "the right one");
        // As after a start by the release before, which keeps no earlier ones.
        std::fs::remove_file(from.join(EARLIER)).unwrap();
        assert_eq!(shows(&begin(&from)), Ok(()));
        let own = begin(&from).own().unwrap();
        let starts = |lives: &Lives| lives.earlier().iter().map(|(start, _)| *start).collect::<Vec<u64>>();
        // Where the file of an earlier start was put back, those after it were another directory's.
        std::fs::write(from.join(OWN), Life { start: 2, ..own }.line()).unwrap();
        assert_eq!(starts(&begin(&from)), [2]);
        // As many are kept as are shown, and none of a directory that was given up.
        let many: String = (0..1000).map(|start| format!("{}\n", Life { start, ..own }.line())).collect();
        std::fs::write(from.join(EARLIER), many).unwrap();
        std::fs::write(from.join(OWN), Life { start: 1000, ..own }.line()).unwrap();
        assert_eq!(starts(&begin(&from)), (1001 - EARLIER_STARTS as u64..=1000).collect::<Vec<_>>());
        assert!(Lives::begin(Some(&from), true, 0).unwrap().earlier().is_empty());
        assert_eq!(starts(&begin(&from)), [1]);
    }

    #[test]
    fn a_directory_that_was_given_up_does_not_come_back_though_it_was_another_ones_replacement() {
        let folder = tempfile::tempdir().unwrap();
        let [at, first, second] = ["at", "first", "second"].map(|name| folder.path().join(name));
        [&at, &first, &second].into_iter().for_each(|dir| std::fs::create_dir_all(dir).unwrap());
        let here = begin(&at);
        let accept = |dir: &Path| Lives::begin(Some(dir), true, 0).unwrap().own();
        for dir in [&first, &second] {
            assert_eq!(here.knows("b", accept(dir)), Ok(()));
            assert_eq!(here.knows("b", begin(dir).own()), Ok(()));
        }
        assert!(here.knows("b", begin(&first).own()).unwrap_err().contains("given up"));
        let here = begin(&at);
        assert!(here.knows("b", begin(&first).own()).unwrap_err().contains("given up"), "that is known after a restart");
        assert_eq!(here.knows("b", begin(&second).own()), Ok(()));
        assert_eq!(here.knows("b", accept(&first)), Ok(()), "an operator has said so");
        assert!(here.knows("b", begin(&second).own()).unwrap_err().contains("given up"));
        for _ in 0..3 * GIVEN_UP {
            assert_eq!(here.knows("b", accept(&first)), Ok(()));
        }
        let kept = std::fs::read_to_string(at.join(OTHERS)).unwrap();
        assert_eq!(kept.lines().count(), GIVEN_UP + 1);
    }

    #[test]
    fn what_could_not_be_kept_of_a_node_is_kept_when_one_is_met_again() {
        let folder = tempfile::tempdir().unwrap();
        let [at, from, other] = ["at", "from", "other"].map(|name| folder.path().join(name));
        [&at, &from, &other].into_iter().for_each(|dir| std::fs::create_dir_all(dir).unwrap());
        let here = begin(&at);
        let [first, second] = [(); 2].map(|()| begin(&from));
        let other = begin(&other);
        assert_eq!((here.knows("b", first.own()), here.knows("c", other.own())), (Ok(()), Ok(())));
        // Nothing can be written by this name.
        let in_the_way = at.join(".new..lives");
        std::fs::create_dir(&in_the_way).unwrap();
        assert_eq!(here.knows("b", second.own()), Ok(()));
        std::fs::remove_dir(&in_the_way).unwrap();
        assert_eq!(here.knows("c", other.own()), Ok(()), "of which nothing is new");
        let here = begin(&at);
        assert!(here.knows("b", first.own()).unwrap_err().contains("older copy"));
        assert_eq!(here.knows("b", second.own()), Ok(()));
    }

    #[test]
    fn lives_are_read_as_they_were_written_and_damage_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let own = Lives::begin(Some(folder.path()), true, 0).unwrap().own().unwrap();
        for life in [own, Life { replaces: false, ..own }, Life { generation: 7, ..own }, Life { replaces: false, generation: 1, ..own }] {
            assert_eq!(Life::parse(&life.line()), Some(life));
            assert_eq!(Life::from_bytes(&life.to_bytes()), Ok(life));
        }
        for (file, text) in [
            (OWN, "what"),
            (OWN, ""),
            (OWN, "00 1 00 what"),
            (OWN, "00 1 00 replaces x"),
            (OWN, "00 1 00 generation x"),
            (OWN, "00 1 00 generation 1 x"),
            (OTHERS, "00 1 00 b"),
            (OTHERS, "00 x 00: b"),
            (EARLIER, "00 x 00"),
        ] {
            let kept = std::fs::read(folder.path().join(OWN)).unwrap();
            std::fs::write(folder.path().join(file), text).unwrap();
            assert!(Lives::begin(Some(folder.path()), false, 0).is_err(), "{file} {text:?}");
            std::fs::write(folder.path().join(OWN), kept).unwrap();
            for aside in [OTHERS, EARLIER] {
                let _ = std::fs::remove_file(folder.path().join(aside));
            }
        }
        assert_eq!(begin(folder.path()).own().unwrap().folder, own.folder);
        assert!(Lives::begin(None, false, 0).unwrap().own().is_none());
    }

    #[test]
    fn a_directory_of_a_data_center_whose_place_another_one_has_is_not_taken_any_more() {
        let folder = tempfile::tempdir().unwrap();
        let [at, old, new] = ["at", "old", "new"].map(|name| folder.path().join(name));
        [&at, &old, &new].into_iter().for_each(|dir| std::fs::create_dir_all(dir).unwrap());
        let here = begin(&at);
        let before = Lives::begin(Some(&old), true, 0).unwrap();
        assert_eq!(here.knows("b", before.own()), Ok(()));
        let after = Lives::begin(Some(&new), false, 1).unwrap();
        assert_eq!(here.knows("b", after.own()), Ok(()), "an operator has said so");
        assert!(here.knows("b", begin(&old).own()).unwrap_err().contains("another one has"), "though it once replaced another");
        for (dir, generation) in [(&old, 1), (&new, 0), (&new, 2)] {
            let refused = Lives::begin(Some(dir), true, generation).err().unwrap().to_string();
            assert!(refused.contains("generation"), "{refused}");
        }
        assert_eq!(here.knows("b", Lives::begin(Some(&new), false, 1).unwrap().own()), Ok(()));
    }
}
