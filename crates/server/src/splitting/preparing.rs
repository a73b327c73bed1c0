//! A split that is prepared while the node serves: chains are copied into the parts, so that the start that splits copies those only that have changed since.

use super::{LEAST_ENGINE_BYTES, PARTS, Whole, begin_parts, has_room, parts_of_each, remove, stores_of, within};
use crate::config::{ColdConfig, KeyspaceConfig, NodeConfig};
use crate::folder;
use crate::memory::Memory;
use crate::seats;
use crate::shared::{Shared, lock};
use crate::topology::Topology;
use rheostat_storage::Preparation;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// All parts together may use one in so many parts of the memory that there is for data, while the node serves.
const MEMORY_SHARE: u64 = 8;

/// What a part takes at least: its engine keeps twice what it takes in, and what it has read.
const LEAST_BYTES: u64 = 3 * LEAST_ENGINE_BYTES;

/// What this node has prepared, and prepares.
#[derive(Default)]
pub(crate) struct Preparing {
    /// By the folder of the store: those that are open, or were.
    stores: Mutex<HashMap<PathBuf, Preparation>>,
    under_way: Mutex<UnderWay>,
}

#[derive(Default)]
struct UnderWay {
    /// A thread is at it.
    runs: bool,
    progress: Progress,
    /// Why it ended, if it could not be done.
    failed: Option<String>,
}

/// How far a node is with preparing a split.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Progress {
    /// Into how many partitions; 0: nothing is prepared.
    pub partitions: u16,
    /// Stores whose parts can be prepared: those with their chains in the data directory.
    pub stores: u32,
    /// Stores whose parts are prepared.
    pub prepared: u32,
    /// Keys that have been copied.
    pub keys: u64,
    /// All stores are prepared; or none is, where there is too little memory for it.
    pub done: bool,
}

impl Preparing {
    /// That of the store in `folder`, for the one that opens it.
    pub(crate) fn of(&self, folder: &Path) -> Preparation {
        lock(&self.stores).entry(folder.to_owned()).or_default().clone()
    }

    fn tell(&self, tell: impl FnOnce(&mut Progress)) {
        tell(&mut lock(&self.under_way).progress);
    }

    /// How many stores note what changes: not those that have had to give it up, or were opened again since.
    fn noting(&self) -> usize {
        lock(&self.stores).values().filter(|preparation| preparation.is_noting()).count()
    }

    /// Nothing that was prepared is of use.
    fn forget(&self) {
        lock(&self.stores).values().for_each(Preparation::forget);
    }
}

impl Shared {
    /// Prepares a split into `partitions`, which takes as long as the data, or says how far it is; `partitions` as there are now: what was prepared is thrown away. Blocks for a moment. Errors: in words for the
    /// operator; the node goes on as it was.
    pub(crate) fn prepare_split(self: &Arc<Self>, partitions: u16) -> Result<Progress, String> {
        let (before, first) = (self.topology.partitions, self.config.made_with());
        if partitions != before {
            parts_of_each("this cluster", before, (first, partitions))?;
            if let Some(why) = self.config.keyspaces.iter().find_map(KeyspaceConfig::cannot_split) {
                return Err(why);
            }
        }
        let Some(dir) = self.config.data_dir.clone() else { return Ok(Progress { partitions, done: true, ..Progress::default() }) };
        let mut under_way = lock(&self.preparing.under_way);
        if under_way.runs {
            let other = under_way.progress.partitions;
            return if other == partitions {
                Ok(under_way.progress)
            } else {
                Err(format!("a split into {other} is being prepared: wait until that has ended"))
            };
        }
        if let Some(why) = under_way.failed.take() {
            under_way.progress = Progress::default();
            return Err(why);
        }
        if under_way.progress.partitions == partitions && under_way.progress.done && self.preparing.noting() == under_way.progress.prepared as usize {
            return Ok(under_way.progress);
        }
        under_way.progress = Progress { partitions, ..Progress::default() };
        if partitions == before {
            under_way.progress = Progress { done: true, ..Progress::default() };
            return self.throw_away(&dir).map(|()| under_way.progress);
        }
        let shared = self.clone();
        let run = move || {
            // A disk that it has filled has space again.
            let done = prepare(&shared, &dir, partitions).inspect_err(|_| drop(shared.throw_away(&dir)));
            let mut under_way = lock(&shared.preparing.under_way);
            under_way.runs = false;
            match done {
                Ok(()) => under_way.progress.done = true,
                Err(why) => {
                    tracing::warn!(partitions, why, "a split could not be prepared");
                    under_way.failed = Some(why);
                }
            }
        };
        std::thread::Builder::new().name("rheostat-split".to_owned()).spawn(run).map_err(|error| error.to_string())?;
        under_way.runs = true;
        Ok(under_way.progress)
    }

    /// What was prepared is gone.
    fn throw_away(&self, dir: &Path) -> Result<(), String> {
        self.preparing.forget();
        self.keyspaces.iter().try_for_each(|keyspace| remove(&dir.join(&keyspace.name).join(PARTS)))
    }
}

fn prepare(shared: &Shared, dir: &Path, partitions: u16) -> Result<(), String> {
    let (before, first) = (shared.topology.partitions, shared.config.made_with());
    let config = NodeConfig { partitions, first_partitions: Some(first), ..shared.config.clone() };
    let topology = Topology::new(&config);
    let Some(text) = folder::belonging(dir, &shared.topology)? else { return Ok(()) };
    let kept = seats::Kept::read(dir)?;
    let mut stores = stores_of(dir, (&text, &kept), &config, &topology, &shared.keyspaces, before)?;
    // What is elsewhere is copied by the start.
    stores.retain(|whole| whole.cold == ColdConfig::Embedded);
    shared.preparing.tell(|progress| progress.stores = stores.len() as u32);
    let preparation = |whole: &Whole<'_>| shared.preparing.of(&whole.folder);
    let prepared = |whole: &Whole<'_>| preparation(whole).is_noting() && whole.notes().is_file();
    for whole in &mut stores {
        if std::fs::read_to_string(whole.waiting.join(super::OF)).is_ok_and(|of| of != partitions.to_string()) {
            shared.preparing.forget();
        }
        begin_parts(&whole.waiting, partitions, &shared.cold)?;
        if !prepared(whole) {
            preparation(whole).forget();
            whole.clear(&shared.cold)?;
            whole.prepared = None;
        }
    }
    let waiting: Vec<Whole<'_>> = stores.into_iter().filter(|whole| !prepared(whole)).collect();
    shared.preparing.tell(|progress| progress.prepared = progress.stores - waiting.len() as u32);
    let each = partitions / before;
    let memory = Memory::new(config.limits.memory_bytes, 0).for_data() / MEMORY_SHARE;
    if memory < LEAST_BYTES * u64::from(each) {
        tracing::warn!(partitions, "limits.memory_bytes is too small for a split to be prepared while this node serves: the start does all of it");
        return Ok(());
    }
    has_room(dir, &waiting)?;
    let options = within(memory, each);
    for whole in &waiting {
        let parts = whole.unfinished(partitions, None)?;
        let mut copied = 0;
        // Before the first page the store makes a checkpoint at its own leisure.
        let mut began = None;
        let told = |keys: u64| {
            shared.preparing.tell(|progress| progress.keys += keys - copied);
            copied = keys;
            // Half of the time is for clients.
            std::thread::sleep(began.map_or(Duration::ZERO, |began: Instant| began.elapsed()));
            began = Some(Instant::now());
        };
        let notes = whole.notes();
        let keys = preparation(whole).prepare(&notes, &parts, &options, told).map_err(|error| error.to_string())?;
        shared.preparing.tell(|progress| progress.prepared += 1);
        tracing::info!(keyspace = %whole.keyspace.name, partition = whole.server.partition.0, replica = whole.server.replica, keys, "its split is prepared");
    }
    Ok(())
}
