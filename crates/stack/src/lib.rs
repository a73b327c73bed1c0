//! A partition server, whole: the protocol that a name stands for, the replica around it, the layers around that, over a store in memory or on disk.
//!
//! There is one way to put it together, [`Plan::open`], and server, simulator and lab take it: what is simulated and measured is what is served. The types of protocol and store end
//! here, so each protocol is compiled once.

mod frame;
mod gate;
mod replicated;
mod store;

pub use store::{AnyStore, Driver};

use gate::Gate;
use replicated::Replicated;
use rheostat_core::DcId;
use rheostat_core::Timestamp;
use rheostat_core::gauge::Gauge;
use rheostat_core::ids::Place;
use rheostat_core::planted::Planted;
use rheostat_core::protocol::Protocol;
use rheostat_core::replica::{PartitionServer, Replica, ReplicaConfig};
use rheostat_core::store::{Position, Recovered, Store};
use rheostat_core::version::{Key, VersionId};
use rheostat_core::wire::{Wire, WireError};
use rheostat_counters::{Counting, Options, Setup};
use rheostat_protocols::registry::{self, Visitor};
use rheostat_storage::MemoryStore;
#[cfg(not(target_arch = "wasm32"))]
use rheostat_storage::{DiskOptions, DiskStore, Part, Prepared};
use std::ops::RangeInclusive;
#[cfg(not(target_arch = "wasm32"))]
use std::path::{Path, PathBuf};

/// What a partition server is made of.
#[derive(Clone, Debug)]
pub struct Plan<'a> {
    /// The protocol's name.
    pub protocol: &'a str,
    /// The protocol's options, as in the configuration.
    pub options: &'a toml::Table,
    /// The counters' options.
    pub counters: &'a Options,
    /// The replica's configuration.
    pub config: ReplicaConfig,
}

/// Where a store keeps what it is given.
#[derive(Clone, Debug)]
pub enum Backing {
    /// In memory; a restart finds nothing.
    Memory,
    /// In memory, with a disk that is simulated: what was flushed outlives [`Stack::halt`].
    SimulatedDisk {
        /// Of so many looks at a key one finds it on disk only; 0: none does.
        cold: u32,
    },
    /// In this folder. Not in a browser.
    #[cfg(not(target_arch = "wasm32"))]
    Disk(PathBuf, DiskOptions),
}

/// How a server over a simulated disk stops.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Halt {
    /// Its process is killed: what was handed to the operating system stays.
    Kill,
    /// It loses power: what was flushed stays.
    PowerLoss,
    /// It loses power when the disk has just finished a flush up to here, and nobody has been told.
    PowerLossAfter(Position),
    /// It loses power, and its disk with all that is on it. What it finds then is nothing.
    DiskLost,
}

/// What is left of a server that has stopped.
pub struct Halted {
    /// Starts it again.
    pub restart: Box<dyn Restart>,
    /// The newest own update that a restart finds; of a lost disk, the newest that was on it.
    pub newest_own: Timestamp,
    /// Records that were logged and are gone.
    pub records_lost: u64,
    /// Per other data center, the first update of it that was here and is gone.
    pub first_lost: Vec<(DcId, VersionId)>,
}

/// What a server over a simulated disk has left.
pub trait Restart {
    /// Makes a server of it. Errors: the configuration is not one for it.
    fn start(self: Box<Self>, config: ReplicaConfig) -> Result<Box<dyn Stack>, String>;

    /// What a server goes on with to which `slots` belong, when this one's partition is split.
    fn split(&self, slots: &RangeInclusive<u16>, planted: Planted) -> Box<dyn Restart>;
}

/// The bugs that can be planted in splits.
pub const PLANTED_IN_SPLITS: &[&str] =
    &["split-forgets-its-state", "split-leaves-keys-behind", "split-leaves-entries-behind", "split-heard-by-those-that-are-not"];

/// What an entry of the log in the store of a server of protocol `P` says of keys of `slots`: of the protocol's own log, or of its replicas'. Errors: it cannot be read.
fn entry_within<P: Protocol>(entry: &[u8], slots: &RangeInclusive<u16>) -> Result<Vec<u8>, WireError> {
    match P::CAN.agrees() {
        true => P::entry_within(entry, slots),
        false => rheostat_group::entry_within(entry, |data| rheostat_group::record::within::<P::Meta>(data, slots)),
    }
}

/// See [`Restart`].
struct Left<P: Protocol> {
    options: P::Options,
    counters: Options,
    store: MemoryStore<P::Meta>,
    found: Recovered,
}

impl<P: Protocol> Restart for Left<P> {
    fn start(self: Box<Self>, config: ReplicaConfig) -> Result<Box<dyn Stack>, String> {
        around::<P>(config, self.options, self.counters, Driver::Memory(Box::new(self.store)), self.found)
    }

    fn split(&self, slots: &RangeInclusive<u16>, planted: Planted) -> Box<dyn Restart> {
        let most = *slots.start()..=slots.start() + (slots.end() - slots.start()) / 4 * 3;
        let of = |bug| if planted.is(bug) { &most } else { slots };
        let entries = of("split-leaves-entries-behind");
        let within = |entry: Vec<u8>| entry_within::<P>(&entry, entries).unwrap_or_else(|error| panic!("an entry of a server's own log: {error}"));
        let (store, mut found) = self.store.split(of("split-leaves-keys-behind"), within);
        // A member of a group that has forgotten what it is would not start.
        if planted.is("split-forgets-its-state") && found.entries.is_empty() {
            found.state = None;
        }
        Box::new(Left::<P> { options: self.options.clone(), counters: self.counters.clone(), store, found })
    }
}

/// A partition server with its layers, whatever its protocol and store.
pub trait Stack: Send {
    /// The outermost layer, which its driver speaks to.
    fn server(&mut self) -> &mut dyn PartitionServer;

    /// As [`Stack::server`], to look at.
    fn look(&self) -> &dyn PartitionServer;

    /// As [`Stack::server`], for good.
    fn into_server(self: Box<Self>) -> Box<dyn PartitionServer>;

    /// Stops it as `how` says. Panics if its store is on a real disk, which is stopped by stopping the process.
    fn halt(self: Box<Self>, how: Halt) -> Halted;

    /// The newest version of `key` that a restart would find after a loss of power. Panics as [`Stack::halt`] does.
    fn on_disk(&self, key: &[u8]) -> Option<VersionId>;

    /// Whether `frame`, which goes to another data center, asks for a stream to go on after a place that is not its beginning.
    fn resumes(&self, frame: &[u8]) -> bool;

    /// Whether `frame`, which goes to another data center, carries updates.
    fn has_updates(&self, frame: &[u8]) -> bool;

    /// What `frame` says, in words; `remote` says whether it goes to another data center.
    fn describe(&self, remote: bool, frame: &[u8]) -> String;

    /// Of which kind `frame` is, in a word or two; as [`Stack::describe`].
    fn kind(&self, remote: bool, frame: &[u8]) -> String;

    /// How many bytes the protocol's metadata has of each update in `frame`, which goes to another data center: in the form in which it goes.
    fn metadata(&self, frame: &[u8]) -> Vec<usize>;

    /// How many bytes the protocol's metadata has of each version of `keys` that is stored here.
    fn stored_metadata(self: Box<Self>, keys: &[Key]) -> Vec<usize>;
}

struct Layers<P: Protocol> {
    server: Gate<Counting>,
    options: P::Options,
    counters: Options,
    place: Place,
}

impl<P: Protocol> Layers<P> {
    fn around(
        config: ReplicaConfig,
        options: P::Options,
        counters: Options,
        store: Driver<P::Meta>,
        found: Recovered,
    ) -> Result<Box<dyn Stack>, String> {
        let place = config.place;
        let bounds = (&config).into();
        let server = Gate::new(server::<P>(config, &options, &counters, store.into(), found)?, bounds, frame::keys::<P>);
        Ok(Box::new(Layers::<P> { server, options, counters, place }))
    }
}

/// The replica of protocol `P` inside the layers.
pub type Inner<P> = Replica<P, AnyStore<<P as Protocol>::Meta>>;

/// A server over `store`.
fn server<P: Protocol>(
    config: ReplicaConfig,
    options: &P::Options,
    counters: &Options,
    store: AnyStore<P::Meta>,
    found: Recovered,
) -> Result<Counting, String> {
    let setup = Setup::of::<P>(&config, options, counters.clone());
    Counting::new(Inner::<P>::new(config, options, store, found)?, setup)
}

/// A server, alone or with replicas, over `store`.
fn around<P: Protocol>(
    config: ReplicaConfig,
    options: P::Options,
    counters: Options,
    store: Driver<P::Meta>,
    found: Recovered,
) -> Result<Box<dyn Stack>, String> {
    // A constant: replicas are not compiled around protocols that agree themselves.
    if config.place.replicas > 1 && const { !P::CAN.agrees() } {
        return Replicated::<P>::around(config, options, counters, store, found);
    }
    Layers::<P>::around(config, options, counters, store, found)
}

/// What a stop as `how` says leaves of `store`: the store that a restart opens and what it finds in it, and how many records are gone.
fn halted<M: Wire + Clone + Send + 'static>(store: &mut MemoryStore<M>, how: Halt) -> (MemoryStore<M>, Recovered, u64) {
    let end = store.end();
    let (image, found) = match how {
        Halt::DiskLost => return (MemoryStore::with_simulated_disk(), Recovered::default(), end.0),
        Halt::Kill => store.kill_image(),
        Halt::PowerLoss => store.crash_image(),
        Halt::PowerLossAfter(flushed) => {
            store.end_flush(flushed);
            store.crash_image()
        }
    };
    let lost = end.0.saturating_sub(image.end().0);
    (image, found, lost)
}

/// The newest version of `key` that a restart would find after a loss of power.
fn newest_on_disk<M: Wire + Clone + Send + 'static>(store: &MemoryStore<M>, key: &[u8]) -> Option<VersionId> {
    match store.is_on_disk() {
        true => store.crash_image().0.peek(key).map(|version| version.id),
        false => store.peek(key).map(|version| version.id),
    }
}

/// How many bytes the metadata has of each version of `keys` in `store`.
fn metadata_in<M: Wire>(store: &mut impl Store<M>, keys: &[Key]) -> Vec<usize> {
    keys.iter().flat_map(|key| store.chain(key)).map(|version| version.meta.to_bytes().len()).collect()
}

impl<P: Protocol> Stack for Layers<P> {
    fn server(&mut self) -> &mut dyn PartitionServer {
        &mut self.server
    }

    fn look(&self) -> &dyn PartitionServer {
        &self.server
    }

    fn into_server(self: Box<Self>) -> Box<dyn PartitionServer> {
        Box::new(self.server)
    }

    fn halt(self: Box<Self>, how: Halt) -> Halted {
        let Layers { server, options, counters, place } = *self;
        let AnyStore::Memory(mut store) = server.inner.into_inner::<Inner<P>>().into_store() else {
            panic!("only a server over a simulated disk can be halted")
        };
        let wiped = how == Halt::DiskLost;
        let (image, found, records_lost) = halted(&mut store, how);
        let newest = |dc: DcId| found.newest.get(dc.index()).copied().unwrap_or_default();
        let first_lost = place.peers().filter_map(|dc| Some((dc, store.held_updates(dc, newest(dc), 1).ok()?.0.first()?.id))).collect();
        let first_lost = if wiped { Vec::new() } else { first_lost };
        let newest_own = match wiped {
            true => store.kill_image().1.newest.get(place.dc().index()).copied().unwrap_or_default(),
            false => newest(place.dc()),
        };
        let restart = Box::new(Left::<P> { options, counters, store: image, found });
        Halted { restart, newest_own, records_lost, first_lost }
    }

    fn on_disk(&self, key: &[u8]) -> Option<VersionId> {
        let AnyStore::Memory(store) = self.server.inner.inner::<Inner<P>>().store() else { panic!("only a simulated disk can be looked at") };
        newest_on_disk(store, key)
    }

    fn resumes(&self, frame: &[u8]) -> bool {
        frame::resumes::<P>(frame)
    }

    fn has_updates(&self, frame: &[u8]) -> bool {
        frame::has_updates::<P>(frame)
    }

    fn describe(&self, remote: bool, frame: &[u8]) -> String {
        frame::describe::<P>(remote, frame)
    }

    fn kind(&self, remote: bool, frame: &[u8]) -> String {
        frame::kind::<P>(remote, frame)
    }

    fn metadata(&self, frame: &[u8]) -> Vec<usize> {
        frame::metadata::<P>(frame)
    }

    fn stored_metadata(self: Box<Self>, keys: &[Key]) -> Vec<usize> {
        metadata_in(&mut self.server.inner.into_inner::<Inner<P>>().into_store(), keys)
    }
}

impl Plan<'_> {
    /// Opens the store, which reads back what it holds, and makes the server; second: what the store found. Errors: no such protocol, options that are not its own or out of range, or the
    /// disk's, in words for the user.
    pub fn open(self, backing: Backing) -> Result<(Box<dyn Stack>, Recovered), String> {
        let protocol = self.protocol;
        registry::visit(protocol, Open { plan: self, backing }).unwrap_or_else(|| Err(format!("there is no protocol `{protocol}`")))
    }

    /// The replica alone in memory, without the layers around it and whatever its counters: for tests of what protocols say to each other. Errors: as [`Plan::open`]'s.
    pub fn open_bare(self) -> Result<Box<dyn PartitionServer>, String> {
        let protocol = self.protocol;
        registry::visit(protocol, Bare(self)).unwrap_or_else(|| Err(format!("there is no protocol `{protocol}`")))
    }
}

/// Every number that a partition server of the protocol called `protocol` tells of itself, with the layers around it; none if there is no such protocol.
pub fn gauges_of(protocol: &str) -> Vec<Gauge> {
    let Some(info) = registry::info(protocol) else { return Vec::new() };
    let group: &[&[Gauge]] = if !info.can.agrees() && info.can.most_replicas > 1 { rheostat_group::gauges::OF_REPLICAS } else { &[] };
    [info.gauges, group, &[rheostat_counters::GAUGES]].concat().concat()
}

/// Every number that any partition server tells of itself, once each, in the order of their layers.
pub fn gauges() -> Vec<Gauge> {
    let mut found: Vec<Gauge> = Vec::new();
    for gauge in registry::names().into_iter().flat_map(gauges_of) {
        if !found.contains(&gauge) {
            found.push(gauge);
        }
    }
    found
}

struct Open<'a> {
    plan: Plan<'a>,
    backing: Backing,
}

impl Visitor for Open<'_> {
    type Output = Result<(Box<dyn Stack>, Recovered), String>;

    fn visit<P: Protocol>(self) -> Self::Output {
        let Open { plan: Plan { options, counters, config, .. }, backing } = self;
        let options = registry::parse_options::<P>(options)?;
        let (store, found) = match backing {
            Backing::Memory => (Driver::Memory(Box::default()), Recovered::default()),
            Backing::SimulatedDisk { cold } => {
                let mut store = MemoryStore::with_simulated_disk();
                store.set_cold(cold);
                (Driver::Memory(Box::new(store)), Recovered::default())
            }
            #[cfg(not(target_arch = "wasm32"))]
            Backing::Disk(folder, settings) => {
                let (store, found) = DiskStore::open(&folder, settings).map_err(|error| error.to_string())?;
                (Driver::Disk(Box::new(store)), found)
            }
        };
        Ok((around::<P>(config, options, counters.clone(), store, found.clone())?, found))
    }
}

struct Bare<'a>(Plan<'a>);

impl Visitor for Bare<'_> {
    type Output = Result<Box<dyn PartitionServer>, String>;

    fn visit<P: Protocol>(self) -> Self::Output {
        let options = registry::parse_options::<P>(self.0.options)?;
        let store = Driver::Memory(Box::default()).into();
        Ok(Box::new(Inner::<P>::new(self.0.config, &options, store, Recovered::default())?))
    }
}

/// Splits the store of a server of `protocol` in `folder`: see [`DiskStore::split`]. Errors: no such protocol, one whose servers cannot be split, or the disk's, in words for the user.
#[cfg(not(target_arch = "wasm32"))]
pub fn split(
    protocol: &str,
    folder: &Path,
    parts: &[Part],
    options: DiskOptions,
    prepared: Option<Prepared>,
    told: &mut dyn FnMut(u64),
) -> Result<Vec<u64>, String> {
    let unknown = || Err(format!("there is no protocol `{protocol}`"));
    registry::visit(protocol, Split { folder, parts, options, prepared, told }).unwrap_or_else(unknown)
}

#[cfg(not(target_arch = "wasm32"))]
struct Split<'a> {
    folder: &'a Path,
    parts: &'a [Part],
    options: DiskOptions,
    prepared: Option<Prepared>,
    told: &'a mut dyn FnMut(u64),
}

#[cfg(not(target_arch = "wasm32"))]
impl Visitor for Split<'_> {
    type Output = Result<Vec<u64>, String>;

    fn visit<P: Protocol>(self) -> Self::Output {
        let Split { folder, parts, options, prepared, told } = self;
        if !P::CAN.splits {
            return Err(format!("servers of protocol {} cannot be split", P::NAME));
        }
        let (mut store, found) = DiskStore::<P::Meta>::open(folder, options.clone()).map_err(|error| error.to_string())?;
        store.split(parts, &options, &found.entries, entry_within::<P>, prepared, told).map_err(|error| error.to_string())
    }
}
