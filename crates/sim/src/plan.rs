//! A plan: everything that one run does, as explicit data. The generator draws one from a seed, the shrinker makes it smaller, a file keeps it.

pub use crate::faults::{Fault, FaultKind, Moment};
use rheostat_checkers::Promise;
use rheostat_core::DcId;
use rheostat_core::counter::{Direction, NewCounter};
use rheostat_core::dial::{Groups, Level};
use rheostat_core::ids::{PartitionId, ServerId};
use rheostat_core::replica::GroupConfig;
use rheostat_core::rollback::course::Phase;
use rheostat_core::sla::ServiceLevel;
use rheostat_core::slots::partition_of;
use rheostat_core::store::{Checkpoints, Durability};
use rheostat_counters::Options;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How long an answer that comes at once takes, about.
const ANSWER_US: u64 = 2_000;

/// What one run does. Times are microseconds of virtual time; the run begins at 0.
///
/// Only small things are left to the random source that `seed` seeds: the jitter of each message, which frames a lossy link loses, how
/// long each flush takes within its bounds.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The protocol's name in the registry.
    pub protocol: String,
    /// The protocol's options, as in a configuration.
    pub options: toml::Table,
    /// The planted bug, if any.
    pub planted: Option<String>,
    /// Seeds jitter, loss and flush times.
    pub seed: u64,
    /// Number of data centers, at least 1.
    pub data_centers: u8,
    /// Number of partitions in each, at least 1.
    pub partitions: u16,
    /// How many each data center begins with, until [`FaultKind::Split`]; 0: as many.
    pub split_from: u16,
    /// Number of servers of each partition in each data center.
    pub replicas: u8,
    /// Where the protocol knows of one of them: how they agree.
    pub group: GroupConfig,
    /// How durable writes are before they are spoken of.
    pub durability: Durability,
    /// How far ahead of a physical clock a received timestamp may lie, in milliseconds.
    pub max_ahead_ms: u64,
    /// How much history is kept, in milliseconds.
    pub history_ms: u64,
    /// Which moments before that are kept.
    pub checkpoints: Checkpoints,
    /// When a server gives an operation up.
    pub server_timeout_us: u64,
    /// When a client does.
    pub client_timeout_us: u64,
    /// How many operations may wait at a server before others are refused as busy.
    pub max_waiting: usize,
    /// How many bytes values have beside what tells them apart.
    pub padding: Spread,
    /// The service level of the clients' reads, if they have one.
    pub service_level: Option<Arc<ServiceLevel>>,
    /// How frames travel between data centers.
    pub transport: Transport,
    /// One-way delays between data centers.
    pub delays: Vec<Delay>,
    /// One-way delay between servers of one data center.
    pub local: Spread,
    /// One-way delay between a client and a server.
    pub near: Spread,
    /// How long a flush takes, and a read.
    pub disk: Spread,
    /// Of so many looks at a key one finds it on disk only; 0: none does.
    pub cold: u32,
    /// The servers' physical clocks; a server that is not listed has a perfect one.
    pub clocks: Vec<ClockPlan>,
    /// Servers ask each other for the time, and mistrust a clock of their own that disagrees.
    pub watched: bool,
    /// A server of which nobody has asked anything for so long, in microseconds, is told so; 0: never.
    pub sleeps_us: u64,
    /// What the history is held to beside what the protocol promises, as if every operation had asked for the strongest level.
    pub held_to: Option<Promise>,
    /// The keys.
    pub keys: Vec<String>,
    /// The counters.
    pub counters: Vec<CounterPlan>,
    /// The options of the counters.
    pub counting: Options,
    /// What goes wrong.
    pub faults: Vec<Fault>,
    /// Who asks what.
    pub clients: Vec<ClientPlan>,
}

/// A duration or a size that varies: at least `least_us`, up to `jitter_us` more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spread {
    /// The least, in microseconds.
    pub least_us: u64,
    /// How much it may exceed that, in microseconds.
    pub jitter_us: u64,
}

/// A one-way delay between two data centers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delay {
    /// The sender's data center.
    pub from: DcId,
    /// The receiver's.
    pub to: DcId,
    /// How long.
    pub delay: Spread,
}

/// How frames travel between data centers. Within one they always arrive in order, unless their connection breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// In order over connections; what is under way when one breaks is lost, and a new one is announced to both ends.
    Stream,
    /// Each for itself: lost, doubled or overtaken, and nothing is announced.
    Datagram {
        /// Frames lost, of a thousand.
        loss: u16,
        /// Frames that arrive twice, of a thousand.
        duplicate: u16,
    },
}

/// A server's physical clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockPlan {
    /// The server.
    pub server: ServerId,
    /// How far it is ahead of true time at the beginning, in milliseconds.
    pub offset_ms: i64,
    /// How much faster than true time it runs, in millionths.
    pub drift_ppm: i64,
}

/// One client: a session, or several after each other, and what is asked in it.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientPlan {
    /// The data center where it begins.
    pub dc: DcId,
    /// When it begins.
    pub start_us: u64,
    /// What it does, one after another.
    pub steps: Vec<Step>,
}

/// One step of a client.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// How long after the step before.
    pub think_us: u64,
    /// What it does.
    pub action: Action,
}

/// A key of a plan: its place in [`Plan::keys`].
pub type KeyIndex = usize;

/// One item of a put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PutItem {
    /// The key.
    pub key: KeyIndex,
    /// Whether it is deleted instead of given a new value.
    pub delete: bool,
}

/// A counter. One without bounds and placement is not made: the first update begins it.
#[derive(Clone, Debug, PartialEq)]
pub struct CounterPlan {
    /// Its key; not one of [`Plan::keys`].
    pub name: String,
    /// What it is.
    pub counter: NewCounter,
}

impl CounterPlan {
    /// Whether it is made before the load begins.
    pub fn is_made(&self) -> bool {
        self.counter != NewCounter::default()
    }
}

/// What a guarded write expects of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// A value.
    Present,
    /// The value that the client has last read of it; none if it has read none.
    Value,
    /// The version that the client has last read of it; that it has none if it has read none.
    Version,
}

/// What a client does. Values are unique; the run hands them out.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Reads a key.
    Get {
        /// The key.
        key: KeyIndex,
        /// The level.
        level: Level,
        /// The checking groups.
        groups: Groups,
    },
    /// Writes or deletes keys of one partition, together.
    Put {
        /// What.
        items: Vec<PutItem>,
    },
    /// Reads several keys from one snapshot.
    ReadTransaction {
        /// The keys; the first one's partition coordinates.
        keys: Vec<KeyIndex>,
        /// The level.
        level: Level,
        /// The checking groups.
        groups: Groups,
    },
    /// Writes a key and reads what it was (SET … GET).
    Swap {
        /// The key.
        key: KeyIndex,
    },
    /// Deletes a key and reads what it was (GETDEL).
    Take {
        /// The key.
        key: KeyIndex,
    },
    /// Writes a key if it has no value, and reads what it was (SET … NX GET).
    Claim {
        /// The key.
        key: KeyIndex,
    },
    /// Writes a key if it is what it is expected to be, and reads what it was.
    Guarded {
        /// The key.
        key: KeyIndex,
        /// What is expected.
        expected: Expected,
    },
    /// Does one of the writes of single keys and puts, and what it writes expires.
    Expiring {
        /// How long after it is asked for, in milliseconds of true time.
        lives_ms: u64,
        /// The write: a put, a swap, a claim or a guarded one.
        action: Box<Action>,
    },
    /// Changes when a key expires, if it has a value (EXPIRE, PERSIST).
    Expire {
        /// The key.
        key: KeyIndex,
        /// How long after it is asked for, in milliseconds of true time; `None`: never.
        lives_ms: Option<u64>,
    },
    /// Reads a key and writes another one of its partition by what it was.
    Test {
        /// The key that is tested.
        test: KeyIndex,
        /// The key that is written.
        target: KeyIndex,
        /// Whether it is expected to have no value; else the one that the client has last read of it.
        absent: bool,
        /// Whether something is written too if it is not as expected.
        otherwise: bool,
    },
    /// Reads all values of a key that stand side by side.
    Siblings {
        /// The key.
        key: KeyIndex,
    },
    /// Writes a key in the place of what the client has seen of it so, and of nothing else.
    Replace {
        /// The key.
        key: KeyIndex,
    },
    /// Reads keys as of a time in the past.
    Past {
        /// The keys.
        keys: Vec<KeyIndex>,
        /// How long ago, in milliseconds of true time.
        ago_ms: u64,
        /// As of the checkpoint before that.
        checkpoint: bool,
    },
    /// Reads a few changes more of its data center's change feed.
    Feed {
        /// First goes back to a position that it was given before.
        again: bool,
    },
    /// Rolls all keys back to a time in the past, in all data centers.
    Rollback {
        /// How long ago, in milliseconds of true time.
        ago_ms: u64,
        /// For how long clients are stopped, in milliseconds.
        stop_ms: u64,
        /// Only one of the last versions, and what depends on it.
        depending: bool,
        /// What happens to it on the way.
        ends: Ends,
    },
    /// Takes over the rollback that this client has begun last, whatever has come of it.
    TakeOver {
        /// For how long clients are stopped from then on, in milliseconds.
        stop_ms: u64,
        /// What happens to it on the way.
        ends: Ends,
    },
    /// Waits until so many other data centers have the session's writes of this key's partition on disk (WAIT).
    Await {
        /// The key.
        key: KeyIndex,
        /// How many other data centers.
        data_centers: u8,
    },
    /// Goes on in another data center, with the session's token.
    Move {
        /// Where.
        dc: DcId,
    },
    /// Adds what another client's session token remembers.
    Adopt {
        /// The other client.
        client: usize,
    },
    /// Begins a new session.
    Fresh,
    /// Adds to counters, to all or none.
    Add {
        /// Their places in [`Plan::counters`], and how much.
        changes: Vec<(usize, i64)>,
        /// Whether rights are fetched.
        global: bool,
        /// Whether it is named, and sent again when its reply does not come.
        named: bool,
    },
    /// Reads a counter, as a key.
    Value {
        /// Its place.
        counter: usize,
    },
    /// Looks at a counter and its rights.
    Look {
        /// Its place.
        counter: usize,
    },
    /// Reads counters and keys at one moment.
    Together {
        /// The counters' places; at least one.
        counters: Vec<usize>,
        /// The keys.
        keys: Vec<KeyIndex>,
    },
    /// Makes a counter, which only this client uses. If it is not known to be made, the client ends.
    Make {
        /// Its place.
        counter: usize,
    },
    /// Moves rights of the client's data center.
    Give {
        /// The counter's place.
        counter: usize,
        /// To whom.
        to: DcId,
        /// Which.
        direction: Direction,
        /// How many.
        amount: u64,
    },
    /// Takes over the rights of a data center.
    Reclaim {
        /// The counter's place.
        counter: usize,
        /// Whose.
        gone: DcId,
    },
}

impl Plan {
    /// The partition of `key`.
    pub fn partition(&self, key: KeyIndex) -> PartitionId {
        self.keys.get(key).map_or(PartitionId(0), |name| partition_of(name.as_bytes(), self.partitions))
    }

    /// The partition that an action begins at.
    pub fn place(&self, action: &Action) -> PartitionId {
        match action.counters().first() {
            Some(counter) => self.counters.get(*counter).map_or(PartitionId(0), |plan| partition_of(plan.name.as_bytes(), self.partitions)),
            None => self.partition(action.keys().first().copied().unwrap_or(0)),
        }
    }

    /// Every server, by data center, then partition, then replica.
    pub fn servers(&self) -> impl Iterator<Item = ServerId> + use<> {
        let (partitions, replicas) = (self.partitions, self.replicas);
        let partitions = (0..self.data_centers).flat_map(move |dc| (0..partitions).map(move |partition| (DcId(dc), PartitionId(partition))));
        partitions.flat_map(move |(dc, partition)| (0..replicas).map(move |replica| ServerId { dc, partition, replica }))
    }

    /// Steps of all clients.
    pub fn steps(&self) -> usize {
        self.clients.iter().map(|client| client.steps.len()).sum()
    }

    /// About when the clients would be done if every answer came at once, in microseconds.
    pub fn horizon_us(&self) -> u64 {
        let ends = |client: &ClientPlan| client.start_us + client.steps.iter().map(|step| step.think_us + ANSWER_US).sum::<u64>();
        self.clients.iter().map(ends).max().unwrap_or(0)
    }

    /// The counters that tell which updates are in them: all that is added to one is powers of two, each once.
    pub fn tallies(&self) -> BTreeSet<usize> {
        let free = self.counters.iter().enumerate().filter(|(_, counter)| !counter.is_made()).map(|(place, _)| place);
        let mut added: BTreeMap<usize, BTreeSet<i64>> = free.map(|place| (place, BTreeSet::new())).collect();
        for action in self.clients.iter().flat_map(|client| &client.steps).map(|step| &step.action) {
            let Action::Add { changes, .. } = action else { continue };
            for (counter, amount) in changes {
                let alone = *amount > 0 && amount.count_ones() == 1;
                if added.get_mut(counter).is_some_and(|known| !(alone && known.insert(*amount))) {
                    added.remove(counter);
                }
            }
        }
        added.into_iter().filter(|(_, amounts)| !amounts.is_empty()).map(|(place, _)| place).collect()
    }

    /// Whether a client makes this counter; the others are made before the load begins.
    pub fn is_made_by_a_client(&self, counter: usize) -> bool {
        let makes = |action: &Action| matches!(action, Action::Make { counter: made } if *made == counter);
        self.clients.iter().flat_map(|client| &client.steps).any(|step| makes(&step.action))
    }

    /// Whether a server can lose writes that it acknowledged: it may lose power, and does not wait for its disk.
    pub fn may_lose_acknowledged(&self) -> bool {
        // A group acknowledges what a majority of its disks has.
        !self.is_grouped() && self.durability != Durability::Always && self.faults.iter().any(|fault| fault.kind.takes_power())
    }

    /// Whether the servers of a partition agree by majority.
    pub fn is_grouped(&self) -> bool {
        crate::node::can(&self.protocol).agrees() || self.replicas > 1
    }

    /// Whether they do so under a protocol that knows of one of them.
    pub fn has_replicas(&self) -> bool {
        self.replicas > 1 && !crate::node::can(&self.protocol).agrees()
    }

    /// Whether a server loses its disk in it.
    pub fn loses_a_disk(&self) -> bool {
        self.faults.iter().any(|fault| matches!(fault.kind, FaultKind::LostDisk { .. }))
    }

    /// Whether a data center dies in it.
    pub fn loses_a_data_center(&self) -> bool {
        self.faults.iter().any(|fault| matches!(fault.kind, FaultKind::Death { .. }))
    }

    /// Data centers that are not there at the beginning: their places are free.
    pub fn reserved(&self) -> impl Iterator<Item = DcId> + '_ {
        self.faults.iter().filter_map(|fault| match fault.kind {
            FaultKind::Reserved { dc } => Some(dc),
            _ => None,
        })
    }

    /// How many partitions each data center begins with.
    pub fn partitions_at_first(&self) -> u16 {
        if self.split_from == 0 { self.partitions } else { self.split_from }
    }

    /// Whether another one has its place afterwards.
    pub fn gains_a_data_center(&self) -> bool {
        self.faults.iter().any(|fault| matches!(fault.kind, FaultKind::Arrival { .. }))
    }

    /// Says what is wrong with the plan, if anything.
    ///
    /// # Errors
    ///
    /// A data center, server, key or client that there is not; a put over several partitions; a durability that cannot survive a fault.
    pub fn check(&self) -> Result<(), String> {
        if self.data_centers == 0 || self.data_centers > 8 || self.partitions == 0 || self.partitions > 64 {
            return Err("a plan has 1 to 8 data centers and 1 to 64 partitions".into());
        }
        if self.split_from > 0
            && (!self.partitions.is_multiple_of(self.split_from) || self.durability == Durability::Memory || !crate::node::can(&self.protocol).splits)
        {
            return Err("partitions are split into as many each, where servers have a disk and can be split".into());
        }
        if !(1..=9).contains(&self.replicas) {
            return Err("a plan has 1 to 9 replicas".into());
        }
        if self.keys.is_empty() {
            return Err("a plan has at least one key".into());
        }
        if (1..self.keys.len()).any(|place| self.keys[..place].contains(&self.keys[place])) {
            return Err("a key is listed twice".into());
        }
        let names: Vec<&String> = self.counters.iter().map(|counter| &counter.name).collect();
        if (0..names.len()).any(|place| names[..place].contains(&names[place]) || self.keys.contains(names[place])) {
            return Err("a counter has the name of another, or of a key".into());
        }
        let dc = |dc: DcId| if dc.0 < self.data_centers { Ok(()) } else { Err(format!("there is no data center {dc}")) };
        let server = |server: ServerId| match server.partition.0 < self.partitions && server.replica < self.replicas {
            true => dc(server.dc),
            false => Err(format!("there is no server {server}")),
        };
        self.delays.iter().try_for_each(|delay| dc(delay.from).and(dc(delay.to)))?;
        self.clocks.iter().try_for_each(|clock| server(clock.server))?;
        for fault in &self.faults {
            if fault.until_us < fault.from_us {
                return Err("a fault ends before it begins".into());
            }
            if let FaultKind::Death { dc } = fault.kind {
                let replaced = self.faults.iter().any(|other| other.kind == FaultKind::Arrival { dc });
                let can = crate::node::can(&self.protocol);
                let alone = !self.is_grouped() || can.agrees() && can.lets_in && replaced;
                if !alone || !self.counters.is_empty() && !replaced {
                    return Err("a data center dies only where each server of it stands alone; where it is of a group, and with counters, only if another one has its place".into());
                }
            }
            if let FaultKind::Arrival { dc } = fault.kind {
                let given_up =
                    |other: &Fault| other.kind == FaultKind::Death { dc } && other.until_us > other.from_us && other.until_us <= fault.from_us;
                let free = self.faults.iter().any(|other| given_up(other) || other.kind == FaultKind::Reserved { dc });
                if !free || self.durability == Durability::Memory || self.transport != Transport::Stream {
                    return Err("a data center arrives in a place that is free or in that of one that is given up, over connections, and where there are disks".into());
                }
            }
            if let FaultKind::Reserved { dc } = fault.kind {
                let others = |dc: &DcId| !self.faults.iter().any(|other| other.kind == FaultKind::Reserved { dc: *dc });
                let dies = self.faults.iter().any(|other| other.kind == FaultKind::Death { dc });
                if fault.until_us > 0 || dies || !crate::node::can(&self.protocol).lets_in || !(0..self.data_centers).map(DcId).any(|dc| others(&dc))
                {
                    return Err("a place is free from the beginning, not all are, nobody dies there, and the protocol lets data centers in".into());
                }
            }
            if matches!(fault.kind, FaultKind::Split { .. }) && self.split_from == 0 {
                return Err("partitions are split where there are fewer at first".into());
            }
            let lasts = matches!(
                fault.kind,
                FaultKind::SlowLink { .. }
                    | FaultKind::SlowServer { .. }
                    | FaultKind::SlowDisk { .. }
                    | FaultKind::Isolate { .. }
                    | FaultKind::Pause { .. }
                    | FaultKind::Drain { .. }
            );
            let each = self.partitions / self.partitions_at_first();
            if lasts && fault.kind.clone().servers_mut().iter().any(|server| !server.partition.0.is_multiple_of(each)) {
                return Err("what lasts at a server begins and ends at one that is there from the beginning".into());
            }
            if matches!(fault.kind, FaultKind::LostDisk { .. }) && (!self.counters.is_empty() || self.durability == Durability::Memory) {
                return Err("a disk is lost only where there is one, and without counters".into());
            }
            if fault.kind.is_crash() && self.durability == Durability::Memory {
                return Err("a server in memory does not survive a crash".into());
            }
            fault.kind.data_centers().into_iter().try_for_each(dc)?;
            fault.kind.clone().servers_mut().into_iter().try_for_each(|at| server(*at))?;
        }
        for client in &self.clients {
            dc(client.dc)?;
            client.steps.iter().try_for_each(|step| self.check_action(&step.action))?;
        }
        Ok(())
    }

    fn check_action(&self, action: &Action) -> Result<(), String> {
        let keys = action.keys();
        if keys.iter().any(|key| *key >= self.keys.len()) {
            return Err("there is no such key".into());
        }
        if (1..keys.len()).any(|place| keys[..place].contains(&keys[place])) {
            return Err("a key stands twice in one operation".into());
        }
        let counters = action.counters();
        if counters.iter().any(|counter| *counter >= self.counters.len()) {
            return Err("there is no such counter".into());
        }
        match action {
            Action::Add { .. } if counters.is_empty() || (1..counters.len()).any(|place| counters[..place].contains(&counters[place])) => {
                Err("an update changes at least one counter, and each once".into())
            }
            Action::Together { .. } if counters.is_empty() => Err("a reading of counters together reads at least one".into()),
            Action::Give { to: dc, .. } | Action::Reclaim { gone: dc, .. } if dc.0 >= self.data_centers => {
                Err(format!("there is no data center {dc}"))
            }
            Action::Expiring { action, .. }
                if !matches!(**action, Action::Put { .. } | Action::Swap { .. } | Action::Claim { .. } | Action::Guarded { .. }) =>
            {
                Err("what expires is written by a put, a swap, a claim or a guarded write".into())
            }
            Action::Expiring { action, .. } => self.check_action(action),
            Action::Expire { .. } if !crate::node::can(&self.protocol).agrees_everywhere() => {
                Err("when a key expires is changed where one place decides it for all data centers".into())
            }
            Action::Put { items } if items.is_empty() => Err("a put writes at least one key".into()),
            Action::Put { .. } if keys.iter().any(|key| self.partition(*key) != self.partition(keys[0])) => {
                Err("the keys of a put are of one partition".into())
            }
            Action::ReadTransaction { keys, .. } | Action::Past { keys, .. } if keys.is_empty() => Err("a transaction reads at least one key".into()),
            Action::Test { test, target, .. } if test == target || *test >= self.keys.len() || self.partition(*test) != self.partition(*target) => {
                Err("a test is of another key of the same partition".into())
            }
            Action::Rollback { ends: Ends { kill: Some(kill), .. }, .. } | Action::TakeOver { ends: Ends { kill: Some(kill), .. }, .. }
                if self.durability == Durability::Memory
                    || kill.server.partition.0 >= self.partitions
                    || kill.server.replica >= self.replicas
                    || kill.server.dc.0 >= self.data_centers =>
            {
                Err(format!("there is no server {} that survives a kill", kill.server))
            }
            Action::Move { dc } if dc.0 >= self.data_centers => Err(format!("there is no data center {dc}")),
            Action::Adopt { client } if *client >= self.clients.len() => Err(format!("there is no client {client}")),
            _ => Ok(()),
        }
    }
}

/// What is to happen while a rollback is under way.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Ends {
    /// What becomes of its coordinator, and when.
    pub coordinator: Option<Fate>,
    /// A server that is killed.
    pub kill: Option<Kill>,
}

/// When a coordinator is gone, or taken for gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fate {
    /// It goes on all the same, while its client does what comes next: taking over from it, perhaps.
    pub doubted: bool,
    /// When it has had so many answers: of this phase, or in all.
    pub answers: u32,
    /// Of this phase.
    pub phase: Option<Phase>,
}

/// A server that is killed when a rollback comes to a phase.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kill {
    /// Which.
    pub server: ServerId,
    /// When.
    pub phase: Phase,
    /// For how long it is down, in microseconds.
    pub down_us: u64,
}

/// The phases of a rollback, as plans name them.
pub(crate) const PHASES: [(Phase, &str); 5] =
    [(Phase::Stop, "stop"), (Phase::Look, "look"), (Phase::Restore, "restore"), (Phase::Show, "show"), (Phase::Resume, "resume")];

impl Action {
    /// The keys that it names; of a test, the one that is written.
    pub fn keys(&self) -> Vec<KeyIndex> {
        match self {
            Action::Get { key, .. } | Action::Swap { key } | Action::Take { key } | Action::Claim { key } => vec![*key],
            Action::Guarded { key, .. } | Action::Await { key, .. } | Action::Siblings { key } | Action::Replace { key } => vec![*key],
            Action::Expire { key, .. } => vec![*key],
            Action::Expiring { action, .. } => action.keys(),
            Action::Test { target, .. } => vec![*target],
            Action::Put { items } => items.iter().map(|item| item.key).collect(),
            Action::ReadTransaction { keys, .. } | Action::Together { keys, .. } | Action::Past { keys, .. } => keys.clone(),
            Action::Move { .. } | Action::Adopt { .. } | Action::Fresh | Action::Feed { .. } | Action::Rollback { .. } | Action::TakeOver { .. } => {
                Vec::new()
            }
            Action::Add { .. } | Action::Value { .. } | Action::Look { .. } | Action::Make { .. } => Vec::new(),
            Action::Give { .. } | Action::Reclaim { .. } => Vec::new(),
        }
    }

    /// The counters that it names.
    pub fn counters(&self) -> Vec<usize> {
        match self {
            Action::Add { changes, .. } => changes.iter().map(|(counter, _)| *counter).collect(),
            Action::Value { counter } | Action::Look { counter } | Action::Make { counter } => vec![*counter],
            Action::Give { counter, .. } | Action::Reclaim { counter, .. } => vec![*counter],
            Action::Together { counters, .. } => counters.clone(),
            _ => Vec::new(),
        }
    }

    /// Whether it reads a key and writes it by what it was.
    pub fn changes(&self) -> bool {
        matches!(self, Action::Swap { .. } | Action::Take { .. } | Action::Claim { .. } | Action::Guarded { .. } | Action::Expire { .. })
    }

    /// Whether it writes, or may.
    pub fn writes(&self) -> bool {
        matches!(self, Action::Put { .. } | Action::Replace { .. } | Action::Test { .. }) || self.changes()
    }
}
