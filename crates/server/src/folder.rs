//! The data directory as a whole: whose it is, and which stores are in it.
//!
//! The file `cluster` says both. A store is noted there, by its number, when its node has started with it. So a store that is not there any more, is another
//! one, or is read by nobody any more is noticed, and not served as empty.

use crate::keyspace::KeyspaceInfo;
use crate::placement::Placement;
use crate::seats::Seat;
use crate::topology::Topology;
use rheostat_core::ids::{PartitionId, ServerId};
use rheostat_core::store::Durability;
use rheostat_storage::OpenError;
use serde::de::DeserializeOwned;
use std::ffi::OsString;
use std::fmt;
use std::fs::{File, OpenOptions, Permissions, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// The format of the directory's layout.
const FORMAT: u32 = 1;

/// The file that says whose the directory is.
pub(crate) const FILE: &str = "cluster";

/// A folder that many file systems are made with.
const CHECKERS: &str = "lost+found";

/// Why a data directory cannot be used.
#[derive(Debug)]
pub enum FolderError {
    /// The disk's error.
    Io(PathBuf, io::Error),
    /// A keyspace's servers keep their data together, and they are not those that the data was written by.
    Regrouped {
        /// The file that says so.
        path: PathBuf,
        /// Which of its entries.
        entry: &'static str,
        /// What stands there.
        found: String,
        /// What the configuration says.
        expected: String,
    },
    /// It belongs to something else: where, what stands there, what was expected.
    Foreign {
        /// The file.
        path: PathBuf,
        /// Which of its entries.
        entry: &'static str,
        /// What stands there.
        found: String,
        /// What this node is.
        expected: String,
    },
    /// The cluster was made with another number of partitions than the configuration says, so what sessions know of partitions would be misunderstood.
    MadeWith {
        /// The file that says so.
        path: PathBuf,
        /// With how many.
        found: String,
        /// With how many by the configuration.
        expected: String,
    },
    /// It holds files that are not ours.
    NotEmpty(PathBuf),
    /// A store that was made here is not there.
    Missing {
        /// Its folder.
        folder: PathBuf,
        /// Its place: keyspace, and name of its folder there.
        store: String,
    },
    /// In a store's folder is another store.
    Exchanged {
        /// The folder.
        folder: PathBuf,
        /// Its place: keyspace, and name of its folder there.
        store: String,
        /// Where the store that is there belongs, if that is known.
        belongs: Option<String>,
    },
    /// A store is there, and the configuration has nobody who serves it.
    Unserved {
        /// Its folder.
        folder: PathBuf,
        /// Its place: keyspace, and name of its folder there.
        store: String,
        /// Why nobody does.
        why: &'static str,
    },
    /// A keyspace's data was written by another protocol.
    Protocol {
        /// The store's folder.
        folder: PathBuf,
        /// The keyspace.
        keyspace: String,
        /// The protocol that wrote it.
        found: String,
        /// The one that is configured.
        expected: &'static str,
    },
    /// The number of a store cannot be read.
    Store(OpenError),
}

impl fmt::Display for FolderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FolderError::Io(path, error) => write!(f, "{}: {error}", path.display()),
            FolderError::Foreign { path, entry, found, expected } => {
                let why = match *entry {
                    RESERVED => OTHERWISE,
                    _ if found.is_empty() => "the file is not whole: put it back as it was",
                    LAYOUT => "it was written by another version of Rheostat: start that one",
                    DATA_CENTERS | PARTITIONS => OTHERWISE,
                    _ => "it belongs to another node. Put this node's own directory there, or start a new one with an empty directory",
                };
                write!(f, "{}: this data directory's {entry} is {found:?}, and this node's is {expected:?}: {why}", path.display())
            }
            FolderError::Regrouped { path, entry, found, expected } => write!(
                f,
                "{}: the {entry} of this keyspace was {found:?} when its data was written, and is {expected:?} in the configuration: servers that agree by \
                 majority cannot be exchanged under their data",
                path.display()
            ),
            FolderError::MadeWith { path, found, expected } => write!(
                f,
                "{}: this cluster was made with {found} partitions, and with {expected} by the configuration: sessions from before would be misunderstood. It takes \
                 first_partitions = {found} for good (docs/splitting.md)",
                path.display()
            ),
            FolderError::NotEmpty(path) => write!(
                f,
                "{}: the directory is not empty and not a Rheostat data directory: it has no file `{FILE}`. If it once was one, put that file back",
                path.display()
            ),
            FolderError::Missing { folder, store, .. } => write!(
                f,
                "{}: the store {store} was made here, and is not there any more. Put its folder back from where it was moved, or from a copy. {UNREPLACED}",
                folder.display()
            ),
            FolderError::Exchanged { folder, store, belongs } => {
                write!(f, "{}: this is not the store {store} that was made here", folder.display())?;
                match belongs {
                    Some(belongs) => write!(f, ", but {belongs}: put each folder back where it belongs"),
                    None => write!(f, ", but another: put the folder that was here back. {UNREPLACED}"),
                }
            }
            FolderError::Unserved { folder, store, why } => write!(
                f,
                "{}: here is the store {store}, and {why}. A keyspace that was renamed begins empty under its new name, so it is not renamed: configure it as it was. \
                 If its data is to be given up on this node for good, move the folder out of the data directory",
                folder.display()
            ),
            FolderError::Protocol { folder, keyspace, found, expected } => write!(
                f,
                "{}: the data of keyspace {keyspace} was written by protocol {found}, and protocol {expected} is configured, which cannot read it: configure {found}",
                folder.display()
            ),
            FolderError::Store(error) => error.fmt(f),
        }
    }
}

/// What is wrong where the directory is this node's.
const OTHERWISE: &str =
    "it was made with another configuration. Configure it as it was; what can be added later: docs/more-data-centers.md, docs/splitting.md";

/// What an operator must not do.
const UNREPLACED: &str =
    "Do not start with an empty one in its place: updates that were acknowledged here may be nowhere else, and would be lost without a word";

impl std::error::Error for FolderError {}

/// The entry that says how the directory is laid out.
const LAYOUT: &str = "format";

/// The entries that can grow: more places for data centers that are let in later.
const DATA_CENTERS: &str = "data centers";
const RESERVED: &str = "reserved";

/// The entry that grows when partitions are split.
pub(crate) const PARTITIONS: &str = "partitions";

/// How many there were when the cluster was made. Versions of before 2026-11-27 did not note it.
const MADE_WITH: &str = "made with";

/// What must be the same at every start, but for more places.
fn entries(topology: &Topology) -> [(&'static str, String); 8] {
    [
        (LAYOUT, FORMAT.to_string()),
        ("cluster", topology.cluster.clone()),
        ("node", topology.this().name.clone()),
        ("data center", topology.dc_name(topology.here).to_owned()),
        (DATA_CENTERS, topology.data_centers.join(" ")),
        (RESERVED, topology.reserved_names()),
        (PARTITIONS, topology.partitions.to_string()),
        (MADE_WITH, topology.first_partitions.to_string()),
    ]
}

/// Whether the file at `path`, which has this text, notes that the cluster was made with as many partitions as `topology` says; `false`: it notes nothing of that. Errors: with others.
fn is_made_with(path: &Path, text: &str, topology: &Topology) -> Result<bool, FolderError> {
    match (entry_of(text, MADE_WITH), topology.first_partitions.to_string()) {
        ("", _) => Ok(false),
        (found, expected) if found == expected => Ok(true),
        (found, expected) => Err(FolderError::MadeWith { path: path.to_owned(), found: found.to_owned(), expected }),
    }
}

/// The text of the file that says whose `dir` is, if it is this node's but for the number of partitions, and not new; anything else [`claim`] has to say. Errors: in words for the operator.
pub(crate) fn belonging(dir: &Path, topology: &Topology) -> Result<Option<String>, String> {
    let path = dir.join(FILE);
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(format!("{}: {error}", path.display())),
    };
    let is_same = |(entry, expected): &(&str, String)| [PARTITIONS, MADE_WITH].contains(entry) || entry_of(&text, entry) == expected;
    Ok(entries(topology).iter().all(is_same).then_some(text))
}

/// Whether the directory `dir`, whose file has this text, may be split as `topology` says. Errors: in words for the operator.
pub(crate) fn check_made_with(dir: &Path, text: &str, topology: &Topology) -> Result<(), String> {
    is_made_with(&dir.join(FILE), text, topology).map(drop).map_err(|error| error.to_string())
}

/// What the file says of this node with these stores, a line each.
pub(crate) fn text_of(topology: &Topology, stores: impl IntoIterator<Item = String>) -> String {
    let entries = entries(topology).map(|(entry, value)| format!("{entry}: {value}"));
    entries.into_iter().chain(stores).map(|line| line + "\n").collect()
}

/// A data directory that no other node opens, as long as this lives. Files in it say nothing of that: it can be new, and its keyspaces in memory only.
pub(crate) struct Held(Option<File>);

/// Closing the directory is not enough: a process that is being started has it open too, until its program begins.
impl Drop for Held {
    fn drop(&mut self) {
        let _ = self.0.as_ref().map(File::unlock);
    }
}

/// Holds `dir`, which is made if it is not there. Errors: another node has it, or the disk's.
pub(crate) fn hold(dir: &Path) -> Result<Held, FolderError> {
    let io = |error| FolderError::Io(dir.to_owned(), error);
    std::fs::create_dir_all(dir).map_err(io)?;
    let folder = File::open(dir).map_err(io)?;
    match folder.try_lock() {
        Ok(()) => Ok(Held(Some(folder))),
        Err(TryLockError::WouldBlock) => Err(FolderError::Store(OpenError::Locked(dir.to_owned()))),
        Err(TryLockError::Error(error)) => {
            tracing::warn!(dir = %dir.display(), %error, "the data directory cannot be locked; its stores are, each for itself");
            Ok(Held(None))
        }
    }
}

/// Makes `dir` this node's if it is new; else checks that it is.
pub(crate) fn claim(dir: &Path, topology: &Topology) -> Result<(), FolderError> {
    let io = |path: &Path| {
        let path = path.to_owned();
        move |error| FolderError::Io(path, error)
    };
    std::fs::create_dir_all(dir).map_err(io(dir))?;
    let path = dir.join(FILE);
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            for entry in std::fs::read_dir(dir).map_err(io(dir))? {
                let entry = entry.map_err(io(dir))?;
                // A first start that was killed, or found the disk full, may have left what was to become the file. At the root of a file system is what its checker needs.
                if entry.path() != temporary(dir, &path) && entry.file_name() != CHECKERS {
                    return Err(FolderError::NotEmpty(dir.to_owned()));
                }
            }
            close(dir).map_err(io(dir))?;
            return write(dir, &path, &entries(topology)).map_err(io(&path));
        }
        Err(error) => return Err(FolderError::Io(path, error)),
    };
    let more = has_more_places(&text, topology);
    for (entry, expected) in entries(topology).into_iter().filter(|(entry, _)| *entry != MADE_WITH) {
        let found = entry_of(&text, entry);
        if found != expected && !(more && [DATA_CENTERS, RESERVED].contains(&entry)) {
            return Err(FolderError::Foreign { path, entry, found: found.to_owned(), expected });
        }
    }
    if !is_made_with(&path, &text, topology)? || more {
        let stores = text.lines().filter(|line| line.starts_with(STORE)).map(str::to_owned);
        write_whole(dir, &path, text_of(topology, stores).as_bytes()).map_err(io(&path))?;
    }
    close(dir).map_err(io(dir))
}

/// Whether `topology` differs from what `text` says in more places at the end only, in which nobody was.
fn has_more_places(text: &str, topology: &Topology) -> bool {
    let (before, reserved) = (entry_of(text, DATA_CENTERS).split(' '), entry_of(text, RESERVED).split_whitespace());
    let before: Vec<&str> = before.collect();
    let now = &topology.data_centers;
    let is_reserved = |name: &str| topology.reserved.iter().any(|dc| topology.dc_name(*dc) == name);
    let grown = before.len() < now.len() && before.iter().zip(now).all(|(before, now)| before == now);
    let reserved: Vec<&str> = reserved.collect();
    grown && now.iter().enumerate().all(|(place, name)| is_reserved(name) == (place >= before.len() || reserved.contains(&name.as_str())))
}

/// Whoever may not enter the folder reads nothing in it, whatever its files' modes.
fn close(dir: &Path) -> io::Result<()> {
    std::fs::set_permissions(dir, Permissions::from_mode(0o700))
}

/// The folder of `server`'s store. Replica 0 has the name that a partition's only server has.
pub(crate) fn of_server(dir: &Path, keyspace: &str, server: ServerId) -> PathBuf {
    dir.join(place(keyspace, server.partition, server.replica))
}

/// The place of a store in the data directory.
pub(crate) fn place(keyspace: &str, partition: PartitionId, replica: u8) -> String {
    match replica {
        0 => format!("{keyspace}/p{partition}"),
        replica => format!("{keyspace}/p{partition}.{replica}"),
    }
}

/// The file in a keyspace's folder that says which servers keep their data together.
pub(crate) const GROUP_FILE: &str = "group";

/// In it: the servers that were here at first.
const SERVERS: &str = "servers";

/// Notes in `dir` which servers of `keyspace` keep their data together at first, if its data is new; else checks that they are the same. A majority of other
/// servers would not have what the first ones agreed on. Servers that have moved, and nodes that were added, change nothing of it.
pub(crate) fn claim_group(dir: &Path, topology: &Topology, keyspace: &KeyspaceInfo) -> Result<(), FolderError> {
    let folder = dir.join(&keyspace.name);
    let path = folder.join(GROUP_FILE);
    let io = |error| FolderError::Io(path.clone(), error);
    let found = match std::fs::read_to_string(&path) {
        Ok(text) => Some(text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(io(error)),
    };
    let expected = together(topology, keyspace);
    let text = match found {
        Some(text) => text,
        None if !keyspace.is_grouped() => return Ok(()),
        None if has_stores(&folder).map_err(io)? => String::new(),
        None => {
            std::fs::create_dir_all(&folder).map_err(io)?;
            return write(&folder, &path, &expected).map_err(io);
        }
    };
    are_together(&text, path, expected)
}

/// Which servers of `keyspace` keep their data together at first.
fn together(topology: &Topology, keyspace: &KeyspaceInfo) -> [(&'static str, String); 4] {
    let partitions = (0..topology.partitions).map(PartitionId);
    let servers = partitions.flat_map(|partition| (0..keyspace.replicas).map(move |replica| (partition, replica)));
    let is_first_here = |(partition, replica): &(PartitionId, u8)| topology.first_host(topology.here, *partition, *replica) == topology.node;
    let servers: Vec<String> = servers.filter(is_first_here).map(|(partition, replica)| format!("{partition}.{replica}")).collect();
    let nodes: Vec<&str> = topology.first_nodes().map(|node| node.name.as_str()).collect();
    [
        ("protocol", keyspace.protocol.to_owned()),
        ("replicas", keyspace.replicas.to_string()),
        ("nodes", nodes.join(" ")),
        (SERVERS, servers.join(" ")),
    ]
}

/// Whether the file at `path`, which has this text, says what is `expected`.
fn are_together(text: &str, path: PathBuf, expected: impl IntoIterator<Item = (&'static str, String)>) -> Result<(), FolderError> {
    for (entry, expected) in expected {
        let found = entry_of(text, entry);
        if found != expected {
            return Err(FolderError::Regrouped { path, entry, found: found.to_owned(), expected });
        }
    }
    Ok(())
}

/// What the file that [`claim_group`] made for `keyspace` in `dir` is to say when partitions have been split: of the same nodes, the servers of `topology`. `None` if there is no such file.
pub(crate) fn split_group(dir: &Path, topology: &Topology, keyspace: &KeyspaceInfo) -> Result<Option<String>, FolderError> {
    let path = dir.join(&keyspace.name).join(GROUP_FILE);
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(FolderError::Io(path, error)),
    };
    let expected = together(topology, keyspace);
    are_together(&text, path, expected.iter().filter(|(entry, _)| *entry != SERVERS).cloned())?;
    Ok(Some(text_of_entries(&expected)))
}

fn text_of_entries(entries: &[(&'static str, String)]) -> String {
    entries.iter().map(|(entry, value)| format!("{entry}: {value}\n")).collect()
}

/// Begins the lines of the directory's file that name stores: the place, then the number in hexadecimal, then the protocol.
const STORE: &str = "store ";

/// The line that notes the store with this number at `place`.
pub(crate) fn store_line(place: &str, number: u64, protocol: &str) -> String {
    format!("{STORE}{place}: {number:016x} {protocol}")
}

/// A store of this node, as it is configured.
#[derive(Clone, Debug)]
pub(crate) struct Configured {
    /// Its place: keyspace, and name of its folder there.
    place: String,
    keyspace: String,
    pub(crate) folder: PathBuf,
    protocol: &'static str,
    durability: Durability,
}

/// The stores that this node has, according to its configuration.
pub(crate) fn configured(dir: &Path, topology: &Topology, placement: &Placement, keyspaces: &[KeyspaceInfo]) -> Vec<Configured> {
    let servers =
        keyspaces.iter().flat_map(|keyspace| placement.all(keyspace.id).map(move |(partition, hosted)| (keyspace, partition, hosted.replica)));
    let store = |(keyspace, partition, replica): (&KeyspaceInfo, PartitionId, u8)| Configured {
        place: place(&keyspace.name, partition, replica),
        keyspace: keyspace.name.clone(),
        folder: of_server(dir, &keyspace.name, ServerId { dc: topology.here, partition, replica }),
        protocol: keyspace.protocol,
        durability: keyspace.durability,
    };
    servers.map(store).collect()
}

/// What the directory's file says of one store.
pub(crate) struct Noted<'a> {
    pub(crate) place: &'a str,
    pub(crate) number: u64,
    pub(crate) protocol: &'a str,
}

pub(crate) fn noted(line: &str) -> Option<Noted<'_>> {
    let (place, rest) = line.strip_prefix(STORE)?.split_once(": ")?;
    let (number, protocol) = rest.split_once(' ')?;
    Some(Noted { place, number: u64::from_str_radix(number, 16).ok()?, protocol })
}

/// The places of the stores in `seats`, which have moved to other nodes.
pub(crate) fn places(seats: &[Seat], keyspaces: &[KeyspaceInfo]) -> Vec<String> {
    seats.iter().map(|(keyspace, server)| place(&keyspaces[usize::from(keyspace.0)].name, server.partition, server.replica)).collect()
}

/// Checks that every store that was ever noted in `dir` is where it was, and is served; those in `moved` are served elsewhere, and those in `coming` are on their way here, where they may have been before. Changes nothing.
pub(crate) fn check_stores(dir: &Path, stores: &[Configured], moved: &[String], coming: &[String]) -> Result<(), FolderError> {
    let path = dir.join(FILE);
    let text = std::fs::read_to_string(&path).map_err(|error| FolderError::Io(path, error))?;
    for Noted { place, number, protocol } in text.lines().filter_map(noted) {
        let Some(store) = stores.iter().find(|store| store.place == place && store.durability != Durability::Memory) else {
            let folder = dir.join(place);
            if folder.exists() && !moved.iter().any(|moved| moved == place) {
                let keyspace = place.split_once('/').map_or(place, |(keyspace, _)| keyspace);
                let why = match stores.iter().find(|store| store.keyspace == keyspace) {
                    None => "the configuration has no such keyspace here",
                    Some(store) if store.durability == Durability::Memory => "its keyspace's durability is `memory`, which does not read it",
                    Some(_) => "the configuration gives its partition to another node",
                };
                return Err(FolderError::Unserved { folder, store: place.to_owned(), why });
            }
            continue;
        };
        let (folder, place) = (store.folder.clone(), place.to_owned());
        if coming.contains(&place) && !folder.exists() {
            continue;
        }
        match rheostat_storage::store_number(&folder).map_err(FolderError::Store)? {
            // A store that has lost its log says so itself, and better.
            None if !folder.join("engine").exists() => return Err(FolderError::Missing { folder, store: place }),
            Some(found) if found != number => {
                let belongs = text.lines().filter_map(noted).find(|noted| noted.number == found).map(|noted| noted.place.to_owned());
                return Err(FolderError::Exchanged { folder, store: place, belongs });
            }
            None | Some(_) if protocol != store.protocol => {
                let keyspace = store.keyspace.clone();
                return Err(FolderError::Protocol { folder, keyspace, found: protocol.to_owned(), expected: store.protocol });
            }
            None | Some(_) => {}
        }
    }
    Ok(())
}

/// Notes the stores that are there now, and forgets those that the operator has taken out of both the directory and the configuration. A server can come, or go, while its node starts: one after the
/// other says what is there, each by its own `stores` of then.
pub(crate) fn note_stores(dir: &Path, stores: impl FnOnce() -> Vec<Configured>) -> Result<(), FolderError> {
    static NOTING: Mutex<()> = Mutex::new(());
    let _noting = NOTING.lock().unwrap_or_else(PoisonError::into_inner);
    let stores = stores();
    let path = dir.join(FILE);
    let io = |error| FolderError::Io(path.clone(), error);
    let text = std::fs::read_to_string(&path).map_err(io)?;
    let is_store = |line: &&str| line.starts_with(STORE);
    let mut lines: Vec<String> = text.lines().filter(|line| !is_store(line)).map(str::to_owned).collect();
    for store in stores.iter().filter(|store| store.durability != Durability::Memory) {
        if let Some(number) = rheostat_storage::store_number(&store.folder).map_err(FolderError::Store)? {
            lines.push(store_line(&store.place, number, store.protocol));
        }
    }
    let new: String = lines.into_iter().map(|line| line + "\n").collect();
    if new != text {
        write_whole(dir, &path, new.as_bytes()).map_err(io)?;
    }
    Ok(())
}

/// Whether the folder of a keyspace is there and has the folder of a partition's server.
fn has_stores(folder: &Path) -> io::Result<bool> {
    if !folder.exists() {
        return Ok(false);
    }
    for entry in std::fs::read_dir(folder)? {
        if entry?.file_type()?.is_dir() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// What `text` says of `entry`; empty if nothing.
pub(crate) fn entry_of<'a>(text: &'a str, entry: &str) -> &'a str {
    text.lines().find_map(|line| line.split_once(": ").filter(|(name, _)| *name == entry)).map_or("", |(_, value)| value)
}

/// The TOML file at `path` in a data directory, as this program wrote it; what stands for nothing if there is none. Errors: in words for the operator.
pub(crate) fn read_kept<T: DeserializeOwned + Default>(path: &Path) -> Result<T, String> {
    match std::fs::read_to_string(path) {
        Ok(text) => toml::from_str(&text).map_err(|error| not_as_kept(path, &error.to_string())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(T::default()),
        Err(error) => Err(format!("{}: {error}", path.display())),
    }
}

/// What an operator is told of a file that this program did not write so.
pub(crate) fn not_as_kept(path: &Path, why: &str) -> String {
    format!("{}: {why}; put this file back as it was", path.display())
}

/// What the file at `path` is called in `dir` until it is whole. Of its own name: others may be written at the same time.
fn temporary(dir: &Path, path: &Path) -> PathBuf {
    let mut name = OsString::from(".new.");
    name.push(path.file_name().unwrap_or_default());
    dir.join(name)
}

/// Writes the file at `path` in `dir` for this process's user only. It is whole or as it was, also after a crash.
pub(crate) fn write_whole(dir: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = temporary(dir, path);
    // Whoever made one before may have made it readable.
    match std::fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&temporary, path)?;
    std::fs::File::open(dir)?.sync_all()
}

/// Deletes the file at `path` in `dir`, if there is one; it does not come back after a crash.
pub(crate) fn remove_file(dir: &Path, path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // Also where there is none: whoever deleted it may have failed here.
    std::fs::File::open(dir)?.sync_all()
}

fn write(dir: &Path, path: &Path, entries: &[(&'static str, String)]) -> io::Result<()> {
    write_whole(dir, path, text_of_entries(entries).as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::NodeConfig;
    use rheostat_core::capabilities::Reach;

    fn topology(cluster: &str, node: &str) -> Topology {
        Topology::new(&NodeConfig::new(cluster, node, "here"))
    }

    #[test]
    fn a_directory_is_claimed_once() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("a/b");
        claim(&dir, &topology("c", "n")).unwrap();
        std::fs::set_permissions(&dir, Permissions::from_mode(0o755)).unwrap();
        claim(&dir, &topology("c", "n")).unwrap();
        assert_eq!(std::fs::metadata(&dir).unwrap().permissions().mode() & 0o777, 0o700);
        let error = claim(&dir, &topology("c", "other")).unwrap_err().to_string();
        assert!(error.contains("node") && error.contains("other"), "{error}");
        assert!(matches!(claim(&dir, &topology("d", "n")), Err(FolderError::Foreign { entry: "cluster", .. })));
    }

    #[test]
    fn nobody_is_told_to_begin_anew_whose_own_directory_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let told = |text: &str| {
            std::fs::write(folder.path().join(FILE), text).unwrap();
            claim(folder.path(), &topology("c", "n")).unwrap_err().to_string()
        };
        let text = text_of(&topology("c", "n"), []);
        let newer = told(&text.replace("format: 1", "format: 2"));
        assert!(newer.contains("another version"), "{newer}");
        for cut in ["", "format: 1\nclu"] {
            let damaged = told(cut);
            assert!(damaged.contains("not whole"), "{damaged}");
        }
        let before = told(&text.replace("data centers: here", "data centers: there here"));
        assert!(before.contains("another configuration"), "{before}");
        let foreign = told(&text.replace("node: n", "node: m"));
        assert!(foreign.contains("belongs to another node"), "{foreign}");
    }

    #[test]
    fn what_a_first_start_left_that_was_killed_is_nobodys() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path();
        std::fs::write(dir.join(".new.cluster"), "").unwrap();
        std::fs::write(dir.join("other"), "").unwrap();
        assert!(matches!(claim(dir, &topology("c", "n")), Err(FolderError::NotEmpty(_))));
        std::fs::remove_file(dir.join("other")).unwrap();
        claim(dir, &topology("c", "n")).unwrap();
        assert!(!dir.join(".new.cluster").exists());
        claim(dir, &topology("c", "n")).unwrap();
    }

    #[test]
    fn a_file_system_of_its_own_is_an_empty_directory() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("lost+found")).unwrap();
        claim(folder.path(), &topology("c", "n")).unwrap();
    }

    #[test]
    fn a_directory_is_held_by_one_at_a_time_and_not_by_what_a_child_could_keep() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("a/b");
        let held = hold(&dir).unwrap();
        let inherited = held.0.as_ref().unwrap().try_clone().unwrap();
        let refused = hold(&dir).err().unwrap().to_string();
        assert!(refused.contains("b is in use"), "{refused}");
        assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0, "it is as empty as before");
        drop(held);
        drop(hold(&dir).unwrap());
        drop(inherited);
    }

    #[test]
    fn stores_are_noted_by_whoever_comes_at_the_same_time() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("data");
        claim(&dir, &topology("c", "n")).unwrap();
        let place = "k/p0".to_owned();
        drop(rheostat_storage::DiskStore::<()>::open(&dir.join(&place), rheostat_storage::DiskOptions::default()).unwrap());
        let stores = || {
            let folder = dir.join(&place);
            vec![Configured { place: place.clone(), keyspace: "k".into(), folder, protocol: "causal", durability: Durability::Always }]
        };
        std::thread::scope(|scope| {
            for number in 0..4 {
                // Whether a store has come or gone, the file is written each time.
                let (dir, stores) = (&dir, &stores);
                scope.spawn(move || {
                    (0..50).for_each(|round| note_stores(dir, || if (number + round) % 2 == 0 { stores() } else { Vec::new() }).unwrap())
                });
            }
        });
        note_stores(&dir, stores).unwrap();
        let text = std::fs::read_to_string(dir.join(FILE)).unwrap();
        assert_eq!(text.lines().filter_map(noted).map(|noted| noted.place).collect::<Vec<_>>(), ["k/p0"]);
    }

    #[test]
    fn a_directory_takes_more_places_at_the_end_and_no_other_change_of_data_centers() {
        let folder = tempfile::tempdir().unwrap();
        let claim = |names: &[&str], reserved: &[&str]| {
            let mut config = NodeConfig::new("c", "n", "here");
            config.data_centers = names.iter().map(|name| name.to_string()).collect();
            config.reserved_data_centers = reserved.iter().map(|name| name.to_string()).collect();
            super::claim(folder.path(), &Topology::new(&config)).map_err(|error| error.to_string())
        };
        claim(&["here", "there"], &[]).unwrap();
        let file = folder.path().join(FILE);
        let stores = "store k/p0: 00ff causal\n";
        std::fs::write(&file, std::fs::read_to_string(&file).unwrap() + stores).unwrap();
        let refused = |names: &[&str], reserved: &[&str], entry: &str| {
            let why = claim(names, reserved).unwrap_err();
            assert!(why.contains(&format!("directory's {entry} is")), "{names:?} {reserved:?}: {why}");
        };
        // Somebody was there, or would be from one moment to the next.
        refused(&["here", "there"], &["there"], "reserved");
        refused(&["here", "there", "new"], &[], "data centers");
        refused(&["here", "new", "there"], &["new"], "data centers");
        refused(&["here", "there", "new"], &["there", "new"], "data centers");
        claim(&["here", "there", "new"], &["new"]).unwrap();
        claim(&["here", "there", "new"], &["new"]).unwrap();
        refused(&["here", "there"], &[], "data centers");
        refused(&["here", "there", "new"], &[], "reserved");
        refused(&["here", "there", "new", "newer"], &["newer"], "data centers");
        claim(&["here", "there", "new", "newer", "newest"], &["newest", "new", "newer"]).unwrap();
        claim(&["here", "there", "new", "newer", "newest"], &["new", "newer", "newest"]).unwrap();
        assert!(std::fs::read_to_string(&file).unwrap().ends_with(stores), "what is noted of stores stays");
    }

    #[test]
    fn a_directory_knows_with_how_many_partitions_its_cluster_was_made() {
        let folder = tempfile::tempdir().unwrap();
        let with = |first| Topology::new(&NodeConfig { partitions: 4, first_partitions: first, ..NodeConfig::new("c", "n", "here") });
        claim(folder.path(), &with(Some(2))).unwrap();
        for wrong in [None, Some(1)] {
            let error = claim(folder.path(), &with(wrong)).unwrap_err().to_string();
            assert!(error.contains("It takes first_partitions = 2 for good"), "{error}");
        }
        claim(folder.path(), &with(Some(2))).unwrap();
        // Whoever wrote it did not note that, and it is taken as it is configured.
        let file = folder.path().join(FILE);
        let text = std::fs::read_to_string(&file).unwrap() + "store k/p0: 00ff causal\n";
        std::fs::write(&file, text.replace("made with: 2\n", "")).unwrap();
        claim(folder.path(), &with(Some(2))).unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
    }

    /// Data center `here` with three nodes, seen from the first, and a keyspace of `replicas` as protocol `span` would have them.
    fn grouped(replicas: u8, reach: Reach) -> (Topology, KeyspaceInfo) {
        use crate::config::{KeyspaceConfig, Member};
        let mut config = NodeConfig::new("c", "n0", "here");
        config.partitions = 3;
        let member = |index: u16| Member {
            name: format!("n{index}"),
            data_center: "here".into(),
            peer: None,
            resp: None,
            grpc: None,
            admin: None,
            partitions: Some(vec![index]),
            added: false,
        };
        config.members = (0..3).map(member).collect();
        let keyspace: KeyspaceConfig = toml::from_str("name = \"k\"\nprotocol = \"causal\"").unwrap();
        config.keyspaces = vec![KeyspaceConfig { replicas, ..keyspace }];
        let topology = Topology::new(&config);
        let mut info = KeyspaceInfo::new(rheostat_core::ids::KeyspaceId(0), &config.keyspaces[0], true).unwrap();
        info.can.members = reach;
        (topology, info)
    }

    #[test]
    fn the_servers_of_a_group_stay_the_same_under_their_data() {
        let folder = tempfile::tempdir().unwrap();
        let claim = |replicas, span| {
            let (topology, keyspace) = grouped(replicas, span);
            claim_group(folder.path(), &topology, &keyspace).map_err(|error| error.to_string())
        };
        assert_eq!(claim(1, Reach::Server), Ok(()));
        assert!(!folder.path().join("k").exists(), "nothing is kept together, so nothing is noted");
        assert_eq!(claim(3, Reach::DataCenter), Ok(()));
        assert_eq!(claim(3, Reach::DataCenter), Ok(()));
        let refused = claim(2, Reach::DataCenter).unwrap_err();
        assert!(refused.contains("replicas") && refused.contains("\"3\"") && refused.contains("\"2\""), "{refused}");
        assert!(claim(1, Reach::Server).is_err());
    }

    #[test]
    fn data_of_single_servers_does_not_become_that_of_a_group() {
        let folder = tempfile::tempdir().unwrap();
        let (topology, keyspace) = grouped(3, Reach::Everywhere);
        // A folder that a crash left empty is new.
        std::fs::create_dir(folder.path().join("k")).unwrap();
        claim_group(folder.path(), &topology, &keyspace).unwrap();
        std::fs::remove_file(folder.path().join("k").join(GROUP_FILE)).unwrap();
        std::fs::create_dir(of_server(folder.path(), "k", ServerId::default())).unwrap();
        let refused = claim_group(folder.path(), &topology, &keyspace);
        assert!(matches!(refused, Err(FolderError::Regrouped { entry: "protocol", .. })));
    }

    #[test]
    fn replica_0_has_the_folder_that_a_single_server_has() {
        let server = |replica| ServerId { partition: rheostat_core::ids::PartitionId(4), replica, ..ServerId::default() };
        assert!(of_server(Path::new("data"), "k", server(0)).ends_with("data/k/p4"));
        assert!(of_server(Path::new("data"), "k", server(2)).ends_with("data/k/p4.2"));
    }

    #[test]
    fn a_directory_with_other_files_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("letter.txt"), "dear").unwrap();
        assert!(matches!(claim(folder.path(), &topology("c", "n")), Err(FolderError::NotEmpty(_))));
    }
}
