//! One partition server of the simulated cluster: the production replica over a store with a simulated disk, its protocol chosen by name.

use rheostat_core::DcId;
use rheostat_core::Timestamp;
use rheostat_core::ids::Place;
use rheostat_core::link::LinkFrame;
use rheostat_core::operation::Level;
use rheostat_core::planted::Planted;
use rheostat_core::protocol::{Protocol, Span};
use rheostat_core::replica::{PartitionServer, Replica, ReplicaConfig};
use rheostat_core::store::{Durability, Position, Recovered, Store};
use rheostat_core::version::{Update, VersionId};
use rheostat_core::wire::Wire;
use rheostat_core::{link, replica};
use rheostat_counters::{Counting, Options, Setup, counting};
use rheostat_protocols::registry::{self, Visitor};
use rheostat_storage::MemoryStore;
use std::fmt::Write;

/// How a server stops.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Halt {
    /// Its process is killed: what was handed to the operating system stays.
    Kill,
    /// It loses power: what was flushed stays.
    PowerLoss,
    /// It loses power when the disk has just finished a flush up to here, and nobody has been told.
    PowerLossAfter(Position),
}

/// What is left of a server that has stopped.
pub(crate) struct Halted {
    /// Starts it again.
    pub(crate) restart: Restart,
    /// The newest own update that a restart finds.
    pub(crate) newest_own: Timestamp,
    /// Records that were logged and are gone.
    pub(crate) records_lost: u64,
    /// Per other data center, the first update of it that was here and is gone.
    pub(crate) first_lost: Vec<(DcId, VersionId)>,
}

/// Makes a server of what the one before it left.
pub(crate) type Restart = Box<dyn FnOnce(ReplicaConfig) -> Result<Box<dyn Node>, String>>;

/// A simulated server.
pub(crate) trait Node {
    /// The production code.
    fn replica(&mut self) -> &mut dyn PartitionServer;

    /// As [`Node::replica`], to look at.
    fn look(&self) -> &dyn PartitionServer;

    /// Stops it.
    fn halt(self: Box<Self>, how: Halt) -> Halted;

    /// Whether `frame`, which goes to another data center, asks for a stream to go on after a place that is not its beginning.
    fn resumes(&self, frame: &[u8]) -> bool;

    /// Whether `frame`, which goes to another data center, carries updates.
    fn has_updates(&self, frame: &[u8]) -> bool;

    /// What `frame` says, in words; `remote` says whether it goes to another data center.
    fn describe(&self, remote: bool, frame: &[u8]) -> String;
}

struct Machine<P: Protocol> {
    replica: Counting<Replica<P, MemoryStore<P::Meta>>>,
    options: P::Options,
    counting: Options,
    place: Place,
}

impl<P: Protocol> Machine<P> {
    fn open(
        config: ReplicaConfig,
        options: P::Options,
        counting: Options,
        store: MemoryStore<P::Meta>,
        recovered: Recovered,
    ) -> Result<Box<dyn Node>, String> {
        let place = config.place;
        let setup = Setup::of::<P>(&config, &options, counting.clone());
        let replica = Counting::new(Replica::<P, _>::new(config, &options, store, recovered)?, setup)?;
        Ok(Box::new(Machine { replica, options, counting, place }))
    }
}

impl<P: Protocol> Node for Machine<P> {
    fn replica(&mut self) -> &mut dyn PartitionServer {
        &mut self.replica
    }

    fn look(&self) -> &dyn PartitionServer {
        &self.replica
    }

    fn halt(self: Box<Self>, how: Halt) -> Halted {
        let Machine { replica, options, counting, place } = *self;
        let mut store = replica.into_inner().into_store();
        let end = store.end();
        let (image, recovered) = match how {
            Halt::Kill => store.kill_image(),
            Halt::PowerLoss => store.crash_image(),
            Halt::PowerLossAfter(flushed) => {
                store.end_flush(flushed);
                store.crash_image()
            }
        };
        let newest = |dc: DcId| recovered.newest.get(dc.index()).copied().unwrap_or_default();
        let first_lost = place.peers().filter_map(|dc| Some((dc, store.held_updates(dc, newest(dc), 1).ok()?.0.first()?.id))).collect();
        let (newest_own, records_lost) = (newest(place.dc()), end.0.saturating_sub(image.end().0));
        Halted {
            restart: Box::new(move |config| Machine::<P>::open(config, options, counting, image, recovered)),
            newest_own,
            records_lost,
            first_lost,
        }
    }

    fn resumes(&self, frame: &[u8]) -> bool {
        // A request to resume is short; most frames need not be decoded to know that they are none.
        P::SPAN == Span::Server
            && frame.len() < 16
            && matches!(LinkFrame::<P::Meta>::from_bytes(frame), Ok(LinkFrame::Resume { received } | LinkFrame::Ask { received, .. }) if received > Timestamp::ZERO)
    }

    fn has_updates(&self, frame: &[u8]) -> bool {
        P::SPAN == Span::Server
            && matches!(LinkFrame::<P::Meta>::from_bytes(frame), Ok(LinkFrame::Batch { updates, .. } | LinkFrame::Part { updates, .. }) if !updates.is_empty())
    }

    fn describe(&self, remote: bool, frame: &[u8]) -> String {
        if !remote || P::SPAN != Span::Server {
            return P::Message::from_bytes(frame).map_or_else(|error| error.to_string(), |message| format!("{message:?}"));
        }
        match LinkFrame::<P::Meta>::from_bytes(frame) {
            Err(error) => error.to_string(),
            Ok(LinkFrame::Resume { received }) => format!("resume after {received}"),
            Ok(LinkFrame::Ask { received, question }) => format!("question {question}: what follows {received}?"),
            Ok(LinkFrame::Sent { through, question }) => format!("to question {question}: everything up to {through} was sent"),
            Ok(LinkFrame::Acknowledge { durable }) => format!("has everything up to {durable} on disk"),
            Ok(LinkFrame::Batch { after, through, updates }) if updates.is_empty() => format!("nothing after {after} up to {through}"),
            Ok(LinkFrame::Batch { after, through, updates } | LinkFrame::Part { after, through, updates, .. }) => {
                let mut text = format!("updates after {after} up to {through}:");
                updates.iter().for_each(|update| describe_update(update, &mut text));
                text
            }
        }
    }
}

fn describe_update<M: std::fmt::Debug>(update: &Update<M>, text: &mut String) {
    let _ = write!(text, " [{}", update.id);
    for item in &update.items {
        let value = item.value.as_ref().map_or_else(|| "deleted".into(), |value| String::from_utf8_lossy(value));
        let _ = write!(text, " {}={value}", String::from_utf8_lossy(&item.key));
    }
    let _ = write!(text, " {:?}]", update.meta);
}

struct Open<'o> {
    options: &'o toml::Table,
    counting: Options,
    config: ReplicaConfig,
}

impl Visitor for Open<'_> {
    type Output = Result<Box<dyn Node>, String>;

    fn visit<P: Protocol>(self) -> Self::Output {
        let options = registry::parse_options::<P>(self.options)?;
        let store = match self.config.durability {
            Durability::Memory => MemoryStore::new(),
            Durability::Always | Durability::Interval => MemoryStore::with_simulated_disk(),
        };
        Machine::<P>::open(self.config, options, self.counting, store, Recovered::default())
    }
}

/// A server of `protocol` that has never run. Errors: no such protocol, options that are not its own or out of range.
pub(crate) fn open(protocol: &str, options: &toml::Table, counting: &Options, config: ReplicaConfig) -> Result<Box<dyn Node>, String> {
    registry::check_options(protocol, options)?;
    registry::visit(protocol, Open { options, counting: counting.clone(), config })
        .unwrap_or_else(|| Err(format!("there is no protocol `{protocol}`")))
}

struct Holders<'o>(&'o toml::Table, Place);

impl Visitor for Holders<'_> {
    type Output = Result<Vec<DcId>, String>;

    fn visit<P: Protocol>(self) -> Self::Output {
        Ok(P::holders(&self.1, &registry::parse_options::<P>(self.0)?))
    }
}

/// The data centers that hold the data of the server at `place`. Errors: as [`open`].
pub(crate) fn holders(protocol: &str, options: &toml::Table, place: Place) -> Result<Vec<DcId>, String> {
    registry::visit(protocol, Holders(options, place)).unwrap_or_else(|| Err(format!("there is no protocol `{protocol}`")))
}

/// The level that the reads of `protocol` have; eventual if there is no such protocol.
pub(crate) fn level(protocol: &str) -> Level {
    registry::list().into_iter().find(|info| info.name == protocol).map_or(Level::Eventual, |info| info.level)
}

/// How `protocol` serves levels; as if it were none at all if there is no such protocol.
pub(crate) fn serves(protocol: &str) -> fn(Level) -> Option<Level> {
    registry::list().into_iter().find(|info| info.name == protocol).map_or(|_| None, |info| info.serves)
}

/// Whether `protocol` keeps several servers of a partition together, and so decides changes in one place.
pub(crate) fn replicates(protocol: &str) -> bool {
    registry::list().into_iter().any(|info| info.name == protocol && info.span != Span::Server)
}

/// The bugs that can be planted under `protocol`: its own, the links', the replica's. Empty if there is no such protocol.
pub fn planted(protocol: &str) -> Vec<&'static str> {
    let Some(info) = registry::list().into_iter().find(|info| info.name == protocol) else { return Vec::new() };
    // Without links and with a log of its own, most bugs of the parts that all share cannot show.
    let shared = match info.span {
        Span::Server => [link::PLANTED, replica::PLANTED, counting::PLANTED].concat(),
        Span::DataCenter => counting::PLANTED.to_vec(),
        Span::Everywhere => Vec::new(),
    };
    // A write is overtaken only where writes wait and nothing guards them; a group's answers are on disk, and it says hello more than once.
    let can_show = |bug: &&str| match *bug {
        "counter-overtakes-itself" => info.name == "gentlerain",
        "counter-spends-before-durable" | "counter-name-forgotten-at-restart" => info.span == Span::Server,
        _ => true,
    };
    [info.planted, &shared].concat().into_iter().filter(can_show).collect()
}

/// The planted bug called `name` under `protocol`. Errors: there is none.
pub(crate) fn find_planted(protocol: &str, name: &str) -> Result<Planted, String> {
    let found = planted(protocol).into_iter().find(|bug| *bug == name);
    found.map(Planted::bug).ok_or_else(|| format!("protocol {protocol} has no planted bug `{name}`; there are: {}", planted(protocol).join(", ")))
}
