//! A data directory that was written with fewer partitions than are configured: before anything of it is opened, each store is split into as many as there are for it now.
//!
//! **A split is a restart of one server as several**, so no protocol knows of it: each begins with the part of the keys that is its own, and with everything that says how far the server had come
//! (docs/splitting.md). The parts are made beside the stores, in `.parts` of each keyspace's folder. When all of them are on disk, the file `.splitting` says so, and with it what the directory's own files
//! will say; from then on a start goes on to the end. Before that file is there, the stores are as they were, and the parts of a start that was broken off are used if they are whole.
//!
//! The copying can be done while the node serves, before it is stopped: [`preparing`].

pub(crate) mod preparing;

use crate::cold::{self, Cold};
use crate::config::{ColdConfig, NodeConfig};
use crate::folder::{self, Noted};
use crate::keyspace::KeyspaceInfo;
use crate::memory::Memory;
use crate::seats;
use crate::shared::lock;
use crate::topology::Topology;
use rheostat_core::ids::{PartitionId, ServerId};
use rheostat_core::slots::slots_of;
use rheostat_core::store::Durability;
use rheostat_storage::{DiskOptions, Part, Prepared};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// In the data directory: everything is there, and takes the place of what was.
const READY: &str = ".splitting";

/// In a keyspace's folder: what is made of its stores.
const PARTS: &str = ".parts";

/// In the folder of the parts: how many partitions they are of.
const OF: &str = "of";

/// Begins the name of the file of what has changed in a store since its parts were prepared.
const CHANGED: &str = "changed-";

/// Begins the name of a part that is not whole.
const UNFINISHED: &str = "new-";

/// In a keyspace's folder: the stores that were split.
const BEFORE: &str = ".before";

/// A partition is split into so many at a time at most: all of them are open at once.
const MOST_PARTS: u16 = 64;

/// What a part's engine may have in memory however many there are: of what it takes in, and of what it has read.
const LEAST_ENGINE_BYTES: u64 = 1 << 20;

/// How often the operator is told how far it is.
const TELL: Duration = Duration::from_secs(5);

/// What the files of the data directory say when the parts are in place.
#[derive(Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct Ready {
    keyspaces: Vec<String>,
    files: BTreeMap<String, String>,
}

/// A store that is to be split.
struct Whole<'a> {
    keyspace: &'a KeyspaceInfo,
    /// Its folder, and that in which its parts wait.
    folder: PathBuf,
    waiting: PathBuf,
    server: ServerId,
    parts: Vec<PartitionId>,
    /// Where its chains are, and those of its parts.
    cold: ColdConfig,
    /// What was copied while it served, if anything was.
    prepared: Option<Prepared>,
}

impl Whole<'_> {
    /// The place of the part of it that is `partition`: keyspace, and name of its folder there.
    fn place(&self, partition: PartitionId) -> String {
        folder::place(&self.keyspace.name, partition, self.server.replica)
    }

    /// Where that part will wait, and where it is made.
    fn part(&self, partition: PartitionId) -> (PathBuf, PathBuf) {
        let place = self.place(partition);
        let name = place.rsplit('/').next().unwrap_or(&place);
        (self.waiting.join(name), self.waiting.join(format!("{UNFINISHED}{name}")))
    }

    /// Where it is noted what has changed since its parts were prepared.
    fn notes(&self) -> PathBuf {
        let place = self.place(self.server.partition);
        self.waiting.join(format!("{CHANGED}{}.keys", place.rsplit('/').next().unwrap_or(&place)))
    }

    /// The folders of its parts that are not whole, with their slots among `partitions`; each says where its chains are (`there`: the keyspace in Cassandra).
    fn unfinished(&self, partitions: u16, there: Option<&str>) -> Result<Vec<Part>, String> {
        let part = |part: &PartitionId| {
            let ((first, last), (_, unfinished)) = (slots_of(*part, partitions), self.part(*part));
            cold::claim(&unfinished, self.cold, there)?;
            Ok(Part { folder: unfinished, slots: first..=last })
        };
        self.parts.iter().map(part).collect()
    }

    /// Whether all of its parts are there.
    fn is_made(&self) -> bool {
        self.parts.iter().all(|part| self.part(*part).0.is_dir())
    }

    /// Takes what was prepared of its parts; what a start that was broken off has left of them is removed, if they are not all there.
    fn clear(&mut self, elsewhere: &Cold) -> Result<(), String> {
        if self.is_made() {
            return Ok(());
        }
        let notes = self.notes();
        self.prepared = Prepared::take(&notes).map_err(at(&notes))?.filter(|_| self.parts.iter().all(|part| self.part(*part).1.is_dir()));
        if self.prepared.is_some() {
            return Ok(());
        }
        for (made, unfinished) in self.parts.iter().map(|part| self.part(*part)) {
            remove_store(&unfinished, elsewhere)?;
            remove_store(&made, elsewhere)?;
        }
        Ok(())
    }
}

fn at(path: &Path) -> impl Fn(io::Error) -> String {
    move |error| format!("{}: {error}", path.display())
}

/// Into how many each of `before` partitions is split where the configuration says `now`, and `first` when the cluster was made; `whose` they are is said in errors.
///
/// # Errors
/// In words for the operator: they cannot be split into so many.
pub fn parts_of_each(whose: &str, before: u16, (first, now): (u16, u16)) -> Result<u16, String> {
    let whose = format!("{whose} has {before} partitions, and the configuration has partitions = {now}");
    let fits = before > 0 && before < now && now.is_multiple_of(before);
    let each = now / before.max(1);
    match (fits, before.is_multiple_of(first)) {
        (false, _) => Err(format!(
            "{whose}, first_partitions = {first}. Partitions are split into as many each, and not merged: {now} is no multiple of {before} (docs/splitting.md)"
        )),
        (true, false) => Err(format!(
            "{whose}. Each of them is split into {each} if the configuration says what they were at first: first_partitions = {before} (docs/splitting.md)"
        )),
        _ if each > MOST_PARTS => Err(format!(
            "{whose}: each would be split into {each}, and {MOST_PARTS} are the most at a time: start with at most {} first",
            before.saturating_mul(MOST_PARTS)
        )),
        _ => Ok(each),
    }
}

/// Splits the stores in `dir` if they are fewer than configured; chains that are elsewhere are in `elsewhere`. `begins` is told when there is something to do. Blocks for as long as it takes to write all of them once. Errors: in words
/// for the operator; the stores are as they were, or the next start goes on.
pub(crate) fn split(
    dir: &Path,
    config: &NodeConfig,
    topology: &Topology,
    keyspaces: &[KeyspaceInfo],
    elsewhere: &Cold,
    begins: &dyn Fn(),
) -> Result<(), String> {
    let path = dir.join(READY);
    if path.exists() {
        begins();
        put_in_place(dir, &path, folder::read_kept(&path)?, elsewhere)?;
    }
    let Some(text) = folder::belonging(dir, topology)? else { return Ok(()) };
    let before: u16 = folder::entry_of(&text, folder::PARTITIONS).parse().unwrap_or_default();
    let (first, now) = (config.made_with(), topology.partitions);
    if before == now {
        return keyspaces.iter().try_for_each(|keyspace| remove_stores(&dir.join(&keyspace.name).join(PARTS), elsewhere));
    }
    let each = parts_of_each(&format!("{}: this data directory", dir.display()), before, (first, now))?;
    folder::check_made_with(dir, &text, topology)?;
    let kept = seats::Kept::read(dir)?;
    let seats = kept.split(dir, topology, each)?;
    let mut stores = stores_of(dir, (&text, &kept), config, topology, keyspaces, before)?;
    // First: what cannot be used takes the space of what is to come.
    for whole in &mut stores {
        begin_parts(&whole.waiting, now, elsewhere)?;
        whole.clear(elsewhere)?;
    }
    has_room(dir, &stores)?;
    tracing::info!(before, now, stores = stores.len(), "partitions are split: nothing is served meanwhile");
    begins();
    let at_once = std::thread::available_parallelism().map_or(1, usize::from).clamp(1, stores.len().max(1));
    let options = within(Memory::new(config.limits.memory_bytes, 0).for_data() / at_once as u64, each);
    let there = config.cassandra.as_ref().map(|cassandra| cassandra.keyspace.as_str());
    make_all(&mut stores, at_once, |whole| {
        let options = DiskOptions { engines: elsewhere.engines(whole.cold), ..options.clone() };
        make_parts(whole, now, &options, there)
    })?;
    let mut noted = Vec::new();
    for whole in &stores {
        for part in &whole.parts {
            let (made, _) = whole.part(*part);
            let number = rheostat_storage::store_number(&made).map_err(|error| error.to_string())?;
            let number = number.ok_or_else(|| format!("{}: this part of a store has no log. Delete {PARTS}, and start again", made.display()))?;
            noted.push(folder::store_line(&whole.place(*part), number, whole.keyspace.protocol));
        }
    }
    let mut files = BTreeMap::from([(folder::FILE.to_owned(), folder::text_of(topology, noted))]);
    files.extend(seats.map(|text| (seats::FILE.to_owned(), text)));
    files.extend(crate::lost::split(dir, each)?.map(|text| (crate::lost::FILE.to_owned(), text)));
    for keyspace in keyspaces {
        let text = folder::split_group(dir, topology, keyspace).map_err(|error| error.to_string())?;
        files.extend(text.map(|text| (format!("{}/{}", keyspace.name, folder::GROUP_FILE), text)));
    }
    let ready = Ready { keyspaces: keyspaces.iter().map(|keyspace| keyspace.name.clone()).collect(), files };
    let told = toml::to_string(&ready).map_err(|error| error.to_string())?;
    folder::write_whole(dir, &path, told.as_bytes()).map_err(at(&path))?;
    put_in_place(dir, &path, ready, elsewhere)
}

/// How a store is opened that is split into `each`, and each of its parts, where all of them together may use about `bytes` of memory.
fn within(bytes: u64, each: u16) -> DiskOptions {
    let (usual, part) = (DiskOptions::default(), bytes / 4 / u64::from(each));
    DiskOptions {
        memory_bytes: usual.memory_bytes.min(bytes / 4),
        own_cache_bytes: 0,
        // What it takes in it keeps up to twice.
        engine_memtable_bytes: usual.engine_memtable_bytes.min((part / 2).max(LEAST_ENGINE_BYTES)),
        engine_cache_bytes: usual.engine_cache_bytes.min(part.max(LEAST_ENGINE_BYTES)),
        ..usual
    }
}

/// The stores of this node, which `text` has noted, and which parts of each it will have: all, since a part begins where the store was.
fn stores_of<'a>(
    dir: &Path,
    (text, seats): (&str, &seats::Kept),
    config: &NodeConfig,
    topology: &Topology,
    keyspaces: &'a [KeyspaceInfo],
    before: u16,
) -> Result<Vec<Whole<'a>>, String> {
    let each = topology.partitions / before;
    let noted: Vec<Noted<'_>> = text.lines().filter_map(folder::noted).collect();
    let kept = |place: &str| keyspaces.iter().any(|keyspace| keyspace.durability != Durability::Memory && is_of(place, &keyspace.name));
    if let Some(store) = noted.iter().find(|store| !kept(store.place)) {
        return Err(format!(
            "{}: the store {} is here, and the configuration has no such keyspace on disk. Start with {before} partitions first",
            dir.display(),
            store.place
        ));
    }
    let mut stores = Vec::new();
    for (keyspace, configured) in keyspaces.iter().zip(&config.keyspaces).filter(|(keyspace, _)| keyspace.durability != Durability::Memory) {
        // One that is new has nothing to split.
        if !noted.iter().any(|store| is_of(store.place, &keyspace.name)) {
            continue;
        }
        if let Some(why) = configured.cannot_split() {
            return Err(why);
        }
        let servers = (0..before).flat_map(|partition| (0..keyspace.replicas).map(move |replica| (PartitionId(partition), replica)));
        for (partition, replica) in servers {
            let part = |number: u16| PartitionId(partition.0 * each + number);
            let moved = seats.moved_to(&keyspace.name, topology, partition, replica);
            if moved.unwrap_or_else(|| topology.first_host(topology.here, part(0), replica)) != topology.node {
                continue;
            }
            let place = folder::place(&keyspace.name, partition, replica);
            let server = ServerId { dc: topology.here, partition, replica };
            let whole = folder::of_server(dir, &keyspace.name, server);
            let number = rheostat_storage::store_number(&whole).map_err(|error| error.to_string())?;
            if !noted.iter().any(|store| store.place == place && Some(store.number) == number && store.protocol == keyspace.protocol) {
                return Err(format!(
                    "{}: the store {place} of protocol {} is to be split, and is not what this directory has noted. Start with {before} partitions first",
                    whole.display(),
                    keyspace.protocol
                ));
            }
            // Opened without what is elsewhere it would seem empty, and so would its parts.
            cold::claim(&whole, configured.cold, config.cassandra.as_ref().map(|cassandra| cassandra.keyspace.as_str()))?;
            let waiting = dir.join(&keyspace.name).join(PARTS);
            stores.push(Whole {
                keyspace,
                folder: whole,
                waiting,
                server,
                parts: (0..each).map(part).collect(),
                cold: configured.cold,
                prepared: None,
            });
        }
    }
    Ok(stores)
}

/// Whether the store at `place` is of `keyspace`.
fn is_of(place: &str, keyspace: &str) -> bool {
    place.split_once('/').is_some_and(|(of, _)| of == keyspace)
}

/// How much space is needed for parts that are not there yet.
fn needed(stores: &[Whole<'_>]) -> io::Result<u64> {
    let bytes: io::Result<u64> =
        stores.iter().filter(|whole| !whole.is_made() && whole.prepared.is_none()).map(|whole| rheostat_storage::store_bytes(&whole.folder)).sum();
    Ok(bytes? / 8 * 9)
}

/// Refuses if there is no room for everything once more.
fn has_room(dir: &Path, stores: &[Whole<'_>]) -> Result<(), String> {
    let (needed, disk) = (needed(stores).map_err(at(dir))?, rustix::fs::statvfs(dir).map_err(|error| at(dir)(error.into()))?);
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    if free < needed {
        return Err(format!(
            "{}: to split the stores, as much space is needed as they take, {} MB, and {} MB are free. Nothing was changed",
            dir.display(),
            needed >> 20,
            free >> 20
        ));
    }
    Ok(())
}

/// Has a folder for parts of `partitions`. What was made for another number goes: a part has its name from its place among all.
fn begin_parts(waiting: &Path, partitions: u16, elsewhere: &Cold) -> Result<(), String> {
    let (of, text) = (waiting.join(OF), partitions.to_string());
    if fs::read_to_string(&of).is_ok_and(|found| found == text) {
        return Ok(());
    }
    remove_stores(waiting, elsewhere)?;
    fs::create_dir_all(waiting).map_err(at(waiting))?;
    folder::write_whole(waiting, &of, text.as_bytes()).map_err(at(&of))
}

/// Makes the parts of all `stores`, of `at_once` at the same time, each by a thread of its own. Errors: the first one's; no other store is begun after it.
fn make_all<'a>(stores: &mut [Whole<'a>], at_once: usize, make: impl Fn(&mut Whole<'a>) -> Result<(), String> + Sync) -> Result<(), String> {
    let (waiting, failed) = (Mutex::new(stores.iter_mut()), Mutex::new(None));
    std::thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                while lock(&failed).is_none()
                    && let Some(whole) = { lock(&waiting).next() }
                {
                    if let Err(why) = make(whole) {
                        lock(&failed).get_or_insert(why);
                    }
                }
            });
        }
    });
    lock(&failed).take().map_or(Ok(()), Err)
}

/// Makes the parts of one store, if they are not there; `there` is the keyspace in Cassandra, if there is one.
fn make_parts(whole: &mut Whole<'_>, partitions: u16, options: &DiskOptions, there: Option<&str>) -> Result<(), String> {
    if whole.is_made() {
        return Ok(());
    }
    let parts = whole.unfinished(partitions, there)?;
    let prepared = whole.prepared.take();
    let was_prepared = prepared.is_some();
    let (began, mut told) = (Instant::now(), Instant::now());
    let mut tell = |keys: u64| {
        if told.elapsed() > TELL {
            told = Instant::now();
            tracing::info!(keyspace = %whole.keyspace.name, partition = whole.server.partition.0, replica = whole.server.replica, keys, "still splitting");
        }
    };
    let keys = rheostat_stack::split(whole.keyspace.protocol, &whole.folder, &parts, options.clone(), prepared, &mut tell)?;
    for part in &whole.parts {
        let (made, unfinished) = whole.part(*part);
        fs::rename(unfinished, made).map_err(at(&whole.waiting))?;
    }
    sync(&whole.waiting)?;
    let took_ms = began.elapsed().as_millis() as u64;
    tracing::info!(keyspace = %whole.keyspace.name, partition = whole.server.partition.0, replica = whole.server.replica, ?keys, was_prepared, took_ms, "is split");
    Ok(())
}

/// The parts take the place of the stores; whatever was done of that before a crash is passed over.
fn put_in_place(dir: &Path, path: &Path, ready: Ready, elsewhere: &Cold) -> Result<(), String> {
    let folders: Vec<PathBuf> = ready.keyspaces.iter().map(|keyspace| dir.join(keyspace)).filter(|folder| folder.join(PARTS).is_dir()).collect();
    for folder in &folders {
        let (parts, before) = (folder.join(PARTS), folder.join(BEFORE));
        let waiting = stores_in(&parts)?;
        if !waiting.is_empty() && !before.is_dir() {
            // Under another name until all are in it: what is moved away from now on are parts.
            let moving = folder.join(format!("{BEFORE}.new"));
            fs::create_dir_all(&moving).map_err(at(&moving))?;
            for store in stores_in(folder)? {
                fs::rename(folder.join(&store), moving.join(&store)).map_err(at(&moving))?;
            }
            sync(&moving)?;
            fs::rename(&moving, &before).map_err(at(&before))?;
            sync(folder)?;
        }
        for part in waiting {
            fs::rename(parts.join(&part), folder.join(&part)).map_err(at(&parts))?;
        }
        sync(folder)?;
    }
    for (file, text) in &ready.files {
        let path = dir.join(file);
        folder::write_whole(path.parent().unwrap_or(dir), &path, text.as_bytes()).map_err(at(&path))?;
    }
    for folder in ready.keyspaces.iter().map(|keyspace| dir.join(keyspace)) {
        // In this order: while there are parts, what stands in their place was moved there.
        remove(&folder.join(PARTS)).and_then(|()| remove_stores(&folder.join(BEFORE), elsewhere))?;
    }
    fs::remove_file(path).map_err(at(path))?;
    sync(dir)
}

/// The names of the folders of stores in `folder`.
fn stores_in(folder: &Path) -> Result<Vec<String>, String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(at(folder))? {
        let name = entry.map_err(at(folder))?.file_name();
        let is_store = |name: &&str| name.strip_prefix('p').is_some_and(|number| number.starts_with(|first: char| first.is_ascii_digit()));
        found.extend(name.to_str().filter(is_store).map(str::to_owned));
    }
    Ok(found)
}

/// Removes a folder with stores, and what they have elsewhere.
fn remove_stores(folder: &Path, elsewhere: &Cold) -> Result<(), String> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(at(folder))?,
    };
    for entry in entries {
        let path = entry.map_err(at(folder))?.path();
        if path.is_dir() {
            remove_store(&path, elsewhere)?;
        }
    }
    remove(folder)
}

/// Removes a store that nobody has any more. What it has elsewhere goes first, as long as its number is known; if it cannot be deleted now, that is for the operator, whom nothing else waits for.
fn remove_store(folder: &Path, elsewhere: &Cold) -> Result<(), String> {
    if !cold::is_elsewhere(folder) {
        return remove(folder);
    }
    let deleted = match rheostat_storage::store_number(folder) {
        // Without a log it has nothing there.
        Ok(None) => Ok(()),
        Ok(Some(number)) => elsewhere
            .engines(ColdConfig::Cassandra)
            .map_or_else(
                || Err("the configuration does not say where it is".to_owned()),
                |engines| engines.delete(number).map_err(|error| error.to_string()),
            )
            .map_err(|why| format!("store {number:016x}: {why}")),
        // One that a crash has left half made.
        Err(error) => Err(error.to_string()),
    };
    if let Err(why) = deleted {
        let folder = folder.display();
        tracing::warn!(%folder, why, "a store that was split may have rows in Cassandra still, which nobody needs: delete them by hand (docs/cassandra.md)");
    }
    remove(folder)
}

fn remove(folder: &Path) -> Result<(), String> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(at(folder)(error)),
        _ => Ok(()),
    }
}

fn sync(folder: &Path) -> Result<(), String> {
    fs::File::open(folder).and_then(|folder| folder.sync_all()).map_err(at(folder))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::KeyspaceConfig;
    use rheostat_core::DcId;
    use rheostat_core::ids::KeyspaceId;

    fn keyspace() -> KeyspaceInfo {
        let keyspace: KeyspaceConfig = toml::from_str("name = \"k\"\nprotocol = \"causal\"").unwrap();
        KeyspaceInfo::new(KeyspaceId(0), &keyspace, true).unwrap()
    }

    /// One of several in `folder` that are split into two each.
    fn whole<'a>(keyspace: &'a KeyspaceInfo, folder: &Path, partition: u16) -> Whole<'a> {
        Whole {
            keyspace,
            folder: folder.join(format!("p{partition}")),
            waiting: folder.join(PARTS),
            server: ServerId::new(DcId(0), PartitionId(partition)),
            parts: (0..2).map(|part| PartitionId(2 * partition + part)).collect(),
            cold: ColdConfig::Embedded,
            prepared: None,
        }
    }

    #[test]
    fn each_store_is_split_once_by_whichever_thread_and_none_after_an_error() {
        let keyspace = keyspace();
        for (at_once, fails, expected) in [(3, None, vec![0, 1, 2, 3, 4]), (1, Some(1), vec![0, 1]), (8, None, vec![0, 1, 2, 3, 4])] {
            let mut stores: Vec<Whole<'_>> = (0..5).map(|partition| whole(&keyspace, Path::new("/"), partition)).collect();
            let made = Mutex::new(Vec::new());
            let result = make_all(&mut stores, at_once, |whole| {
                let partition = whole.server.partition.0;
                lock(&made).push(partition);
                if fails == Some(partition) { Err(format!("no {partition}")) } else { Ok(()) }
            });
            assert_eq!(result, fails.map_or(Ok(()), |partition| Err(format!("no {partition}"))));
            let mut made = made.into_inner().unwrap();
            made.sort_unstable();
            assert_eq!(made, expected);
        }
    }

    /// A start that goes on needs no space for what the one before it has made.
    #[test]
    fn space_is_needed_for_those_parts_only_that_are_not_there() {
        let folder = tempfile::tempdir().unwrap();
        let keyspace = keyspace();
        let whole = |partition: u16| whole(&keyspace, folder.path(), partition);
        let mut stores = [whole(0), whole(1)];
        for whole in &stores {
            fs::create_dir_all(whole.folder.join("log")).unwrap();
            fs::write(whole.folder.join("log/0"), [0u8; 800]).unwrap();
        }
        assert_eq!(needed(&stores).unwrap(), 1800);
        let made = |part: u16| fs::create_dir_all(folder.path().join(PARTS).join(format!("p{part}"))).unwrap();
        made(0);
        made(2);
        made(3);
        assert_eq!(needed(&stores).unwrap(), 900, "one that is not whole is made again");
        stores.iter_mut().for_each(|whole| whole.clear(&Cold::default()).unwrap());
        let left = [0, 2, 3].map(|part| folder.path().join(PARTS).join(format!("p{part}")).exists());
        assert_eq!(left, [false, true, true]);
    }
}
