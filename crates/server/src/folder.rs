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
mod tests;
