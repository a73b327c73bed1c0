//! What the simulator knows of a protocol by its name; a partition server is the production stack over a store with a simulated disk.

use rheostat_core::DcId;
use rheostat_core::capabilities::{Capabilities, Reach};
use rheostat_core::dial::Level;
use rheostat_core::ids::Place;
use rheostat_core::planted::Planted;
use rheostat_core::protocol::Protocol;
use rheostat_core::replica::ReplicaConfig;
use rheostat_core::store::Durability;
use rheostat_core::{link, replica};
use rheostat_counters::{Options, counting};
use rheostat_group as group;
use rheostat_protocols::registry::{self, Visitor};
use rheostat_stack::{Backing, PLANTED_IN_SPLITS, Plan, Stack};

/// A server of `protocol` that has never run, of whose looks at keys one in `cold` waits for the disk. Errors: no such protocol, options that are not its own or out of range.
pub(crate) fn open(protocol: &str, options: &toml::Table, counters: &Options, config: ReplicaConfig, cold: u32) -> Result<Box<dyn Stack>, String> {
    let backing = match config.durability {
        Durability::Memory => Backing::Memory,
        Durability::Always | Durability::Interval => Backing::SimulatedDisk { cold },
    };
    Ok(Plan { protocol, options, counters, config }.open(backing)?.0)
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

/// Whether values of a key may stand side by side in `protocol`.
pub(crate) fn has_siblings(protocol: &str) -> bool {
    registry::list().into_iter().any(|info| info.name == protocol && info.siblings)
}

/// What `protocol` can do.
pub(crate) fn can(protocol: &str) -> Capabilities {
    registry::info(protocol).map_or(Capabilities::LINKED, |info| info.can)
}

/// The level that the reads of `protocol` have; eventual if there is no such protocol.
pub(crate) fn level(protocol: &str) -> Level {
    registry::list().into_iter().find(|info| info.name == protocol).map_or(Level::Eventual, |info| info.level)
}

/// How `protocol` serves levels; as if it were none at all if there is no such protocol.
pub(crate) fn serves(protocol: &str) -> fn(Level) -> Option<Level> {
    registry::list().into_iter().find(|info| info.name == protocol).map_or(|_| None, |info| info.serves)
}

/// Whether `protocol` shows to everybody in a data center what was acknowledged there: not where several servers answer, and not where checking groups hide what they do not have.
pub(crate) fn shows_at_once(protocol: &str) -> bool {
    let option = toml::Table::from_iter([("tracking".to_owned(), "server".into())]);
    let has_checking_groups = registry::check_options(protocol, &option).is_ok();
    !has_checking_groups && registry::info(protocol).is_some_and(|info| !info.siblings)
}

/// `protocol bug seed` for each seed that catches a planted bug; `only protocol bug` for one that shows under one protocol alone.
const CATCHING: &str = include_str!("../plans/planted.seeds");

/// The bugs that can be planted under `protocol`: its own, the links', the replica's. Empty if there is no such protocol.
pub fn planted(protocol: &str) -> Vec<&'static str> {
    let Some(info) = registry::list().into_iter().find(|info| info.name == protocol) else { return Vec::new() };
    // Without links and with a log of its own, most bugs of the parts that all share cannot show.
    let shared = match info.can.members {
        Reach::Server => [
            link::PLANTED,
            replica::PLANTED,
            counting::PLANTED,
            group::PLANTED,
            group::PLANTED_IN_HAND_OVER,
            group::PLANTED_IN_MEMBERS,
            PLANTED_IN_SPLITS,
        ]
        .concat(),
        Reach::DataCenter => [counting::PLANTED, group::PLANTED_IN_MEMBERS, PLANTED_IN_SPLITS].concat(),
        Reach::Everywhere => [group::PLANTED_IN_MEMBERS, PLANTED_IN_SPLITS].concat(),
    };
    // A group's answers are on disk, and it says hello more than once.
    let can_show = |bug: &&str| match *bug {
        bug if only_under(bug).is_some() => only_under(bug) == Some(info.name),
        "rollback-leaves-what-depends" | "rollback-takes-what-does-not-depend" | "rollback-forgets-what-is-beneath" => info.can.knows_the_past,
        "counter-spends-before-durable" | "counter-name-forgotten-at-restart" => !info.can.agrees(),
        // A member of a group that has forgotten what it is would not start.
        "split-forgets-its-state" if info.can.agrees() => false,
        bug if PLANTED_IN_SPLITS.contains(&bug) => info.can.splits,
        _ => true,
    };
    [info.planted, &shared].concat().into_iter().filter(can_show).collect()
}

/// The one protocol under which `bug` shows, if there is only one.
fn only_under(bug: &str) -> Option<&'static str> {
    CATCHING.lines().find_map(|line| match line.split_whitespace().collect::<Vec<_>>()[..] {
        ["only", protocol, of] if of == bug => Some(protocol),
        _ => None,
    })
}

/// The planted bug called `name` under `protocol`. Errors: there is none.
pub(crate) fn find_planted(protocol: &str, name: &str) -> Result<Planted, String> {
    let found = planted(protocol).into_iter().find(|bug| *bug == name);
    found.map(Planted::bug).ok_or_else(|| format!("protocol {protocol} has no planted bug `{name}`; there are: {}", planted(protocol).join(", ")))
}
