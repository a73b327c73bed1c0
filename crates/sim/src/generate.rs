//! A seed becomes a plan.
//!
//! The load is made of few hot keys, short sessions, and writes of sessions that have seen nothing among writes of sessions that have seen
//! much: what goes wrong with causality goes wrong between related writes on partitions that are replicated at different speeds, and is seen by
//! a session that happens to look.

use crate::plan::{Action, ClientPlan, ClockPlan, Delay, Expected, Fault, FaultKind, KeyIndex, Moment, Plan, PutItem, Spread, Step, Transport};
use rheostat_core::DcId;
use rheostat_core::dial::{Groups, Guarantees, Level};
use rheostat_core::ids::{PartitionId, ServerId};
use rheostat_core::random::Random;
use rheostat_core::slots::partition_of;
use rheostat_core::store::Durability;
use rheostat_protocols::registry;

/// Options that are drawn where a protocol has them: name, least, greatest.
const DRAWN_OPTIONS: &[(&str, u64, u64)] = &[
    ("heartbeat_ms", 12, 100),
    ("stabilization_ms", 12, 100),
    ("fan_out", 1, 4),
    ("collect_ms", 1, 400),
    ("cut_off_ms", 400, 2_000),
    ("coordinate_ms", 1, 200),
    ("patience_ms", 40, 600),
    ("keep_batches", 4, 40),
];

/// The plan whose load is of plain keys, and about when that will be done.
pub(crate) fn general_plan(protocol: &str, options: &toml::Table, planted: Option<&str>, seed: u64) -> (Plan, u64) {
    let mut random = Random::new(seed ^ 0x5EED_0F0F_7E57_1234);
    let mut plan = Plan::empty(protocol);
    plan.seed = seed;
    plan.planted = planted.map(str::to_owned);
    plan.options = drawn_options(protocol, options, &mut random.fork());
    cluster(&mut plan, &mut random.fork());
    if crate::node::can(protocol).agrees() {
        groups(&mut plan, seed);
    }
    plan.cold = cold(&plan, seed);
    network(&mut plan, &mut random.fork());
    clocks(&mut plan, &mut random.fork());
    plan.keys = keys(&plan, &mut random.fork());
    let horizon_us = clients(&mut plan, &mut random.fork());
    faults(&mut plan, horizon_us, &mut random.fork());
    if crate::node::can(protocol).agrees() {
        spread_over_replicas(&mut plan, seed);
    }
    checking(&mut plan, &mut random.fork());
    if crate::node::has_siblings(protocol) {
        side_by_side(&mut plan, options, seed);
    }
    (plan, horizon_us)
}

/// In some runs what operations and frames need is on disk only now and then.
fn cold(plan: &Plan, seed: u64) -> u32 {
    let mut random = Random::new(seed ^ 0xC01D_5EED_0000_0001);
    let some = plan.durability != Durability::Memory && random.chance(1, 5);
    if some { random.between(3, 30) as u32 } else { 0 }
}

/// The cluster of a protocol that replicates partitions: fewer of them, each with several servers, on disks.
fn groups(plan: &mut Plan, seed: u64) {
    let mut random = Random::new(seed ^ 0x6E0D_5EED_0000_0001);
    let everywhere = crate::node::can(&plan.protocol).agrees_everywhere();
    plan.data_centers = pick(&mut random, if everywhere { &[(20, 1), (20, 2), (60, 3)] } else { &[(20, 1), (50, 2), (30, 3)] });
    plan.partitions = pick(&mut random, &[(60, 1), (40, 2)]);
    plan.replicas = match (everywhere, plan.data_centers) {
        (true, 2..) => pick(&mut random, &[(80, 1), (20, 2)]),
        _ => pick(&mut random, &[(10, 1), (10, 2), (70, 3), (10, 5)]),
    };
    if plan.durability == Durability::Memory {
        plan.durability = Durability::Interval;
    }
    if random.chance(1, 2) && !plan.options.contains_key("keep_entries") {
        plan.options.insert("keep_entries".into(), toml::Value::Integer(random.between(4, 24) as i64));
    }
    if random.chance(1, 5) && !plan.options.contains_key("hlc") {
        plan.options.insert("hlc".into(), toml::Value::Boolean(false));
    }
    plan.replicas = plan.replicas.min(crate::node::can(&plan.protocol).most_replicas);
    if everywhere {
        // A leader must be heard across the slowest way and back.
        plan.options.entry("election_ms").or_insert(toml::Value::Integer(random.between(1_200, 2_500) as i64));
        plan.options.insert("heartbeat_ms".into(), toml::Value::Integer(random.between(50, 200) as i64));
    } else if random.chance(1, 2) && !plan.options.contains_key("election_ms") {
        let heartbeat_ms = plan.options.get("heartbeat_ms").and_then(toml::Value::as_integer).unwrap_or(50);
        // And across the data center, with a flush on the way.
        let Plan { local, disk, .. } = plan;
        let round_us = 2 * (local.least_us + local.jitter_us) + disk.least_us + disk.jitter_us;
        let election_ms = (heartbeat_ms * random.between(4, 12) as i64).max(4 * round_us as i64 / 1000).min(heartbeat_ms * 900);
        plan.options.insert("election_ms".into(), toml::Value::Integer(election_ms));
    }
    // What is drawn for all of them, not every one has.
    let protocol = plan.protocol.clone();
    plan.options.retain(|name, value| {
        let alone = toml::Table::from_iter([(name.to_owned(), value.clone())]);
        registry::check_options(&protocol, &alone).is_ok()
    });
}

/// Faults that were drawn for a partition's first server come to any of them, leaders among them, and operations get levels of their own.
fn spread_over_replicas(plan: &mut Plan, seed: u64) {
    let mut random = Random::new(seed ^ 0x6E0D_5EED_0000_0002);
    let replicas = plan.replicas;
    for server in plan.faults.iter_mut().flat_map(|fault| fault.kind.servers_mut()) {
        server.replica = random.below(replicas.into()) as u8;
    }
    // A link from a server to itself is none.
    plan.faults.retain(|fault| !matches!(fault.kind, FaultKind::SlowLink { from: a, to: b, .. } | FaultKind::Break { a, b } if a == b));
    for action in plan.clients.iter_mut().flat_map(|client| &mut client.steps).map(|step| &mut step.action) {
        match action {
            Action::Get { level, .. } | Action::ReadTransaction { level, .. } if *level == Level::Causal => *level = read_level(&mut random),
            Action::Swap { key } if random.chance(1, 2) => *action = Action::Claim { key: *key },
            Action::Swap { key } if random.chance(2, 3) => {
                let expected = pick(&mut random, &[(1, Expected::Present), (2, Expected::Value), (2, Expected::Version)]);
                *action = Action::Guarded { key: *key, expected };
            }
            _ => {}
        }
    }
}

/// Quorums of all sizes, and keys whose values stand side by side: of those, clients read all values, and write in the place of what they have seen.
fn side_by_side(plan: &mut Plan, fixed: &toml::Table, seed: u64) {
    let mut random = Random::new(seed ^ 0x51B1_1265_5EED_0001);
    let replicas = u64::from(plan.data_centers);
    let majority = replicas / 2 + 1;
    let numbers = [(1, 1), (majority, majority), (random.between(1, replicas), random.between(1, replicas))];
    let (reads, writes) = numbers[random.below(3) as usize];
    let round_ms = spread(&mut random, 20, 400);
    for (name, value) in [("reads", reads), ("writes", writes), ("asked", random.below(2) * reads.max(writes)), ("round_ms", round_ms)] {
        if !fixed.contains_key(name) {
            plan.options.insert(name.into(), toml::Value::Integer(value as i64));
        }
    }
    if random.chance(1, 4) {
        return;
    }
    let beside = |key: KeyIndex| key.is_multiple_of(2);
    let mixed = random.chance(1, 3);
    for step in plan.clients.iter_mut().flat_map(|client| &mut client.steps) {
        step.action = match &step.action {
            _ if mixed && random.chance(1, 4) => continue,
            Action::Get { key, .. } if beside(*key) => Action::Siblings { key: *key },
            Action::Swap { key } | Action::Take { key } if beside(*key) => Action::Replace { key: *key },
            Action::Put { items } => match items.iter().find(|item| beside(item.key)) {
                Some(PutItem { key, .. }) if random.chance(1, 3) => Action::Siblings { key: *key },
                Some(PutItem { key, .. }) => Action::Replace { key: *key },
                None => continue,
            },
            _ => continue,
        };
    }
}

fn read_level(random: &mut Random) -> Level {
    let one = |guarantee| Level::Session(guarantee);
    let choices = [
        (30, Level::SESSION),
        (10, one(Guarantees::MONOTONIC_READS)),
        (10, one(Guarantees::READ_YOUR_WRITES)),
        (30, Level::Local),
        (10, Level::Strong),
        (10, Level::Eventual),
    ];
    pick(random, &choices)
}

fn drawn_options(protocol: &str, fixed: &toml::Table, random: &mut Random) -> toml::Table {
    let mut options = fixed.clone();
    for (name, least, greatest) in DRAWN_OPTIONS {
        let value = random.between(*least, *greatest);
        let alone = toml::Table::from_iter([((*name).to_owned(), toml::Value::Integer(value as i64))]);
        if !options.contains_key(*name) && registry::check_options(protocol, &alone).is_ok() {
            options.extend(alone);
        }
    }
    options
}

/// Where the protocol has checking groups: which there are, who tracks and holds what, and which reads name some.
fn checking(plan: &mut Plan, random: &mut Random) {
    let words = |values: &[&str], random: &mut Random| toml::Value::from(values[random.below(values.len() as u64) as usize]);
    let (tracking, choose) = (words(&["data-center", "server", "partition"], random), words(&["auto", "auto", "all", "alone"], random));
    if registry::check_options(&plan.protocol, &toml::Table::from_iter([("tracking".to_owned(), tracking.clone())])).is_err() {
        return;
    }
    let (partitions, data_centers) = (u64::from(plan.partitions), u64::from(plan.data_centers));
    let subset = |of: u64, random: &mut Random| {
        let sure = random.below(of);
        toml::Value::from((0..of).filter(|one| *one == sure || random.chance(1, 2)).map(|one| one as i64).collect::<Vec<_>>())
    };
    let groups: Vec<toml::Value> = (0..random.below(4)).map(|_| subset(partitions, random)).collect();
    let whole = random.chance(2, 3);
    let placement: Vec<toml::Value> = if whole { Vec::new() } else { (0..partitions).map(|_| subset(data_centers, random)).collect() };
    let drawn = [
        ("tracking", tracking),
        ("choose", choose),
        ("groups", groups.into()),
        ("placement", placement.into()),
        ("max_groups", (random.below(4) as i64).into()),
        ("propose_after", (random.between(1, 6) as i64).into()),
        ("remove_after_ms", (spread(random, 100, 3_000) as i64).into()),
    ];
    for (name, value) in drawn {
        plan.options.entry(name).or_insert(value);
    }
    for step in plan.clients.iter_mut().flat_map(|client| &mut client.steps) {
        if let Action::Get { groups, .. } | Action::ReadTransaction { groups, .. } = &mut step.action
            && random.chance(1, 4)
        {
            *groups = Groups(random.between(1, 31) & random.between(1, 31));
        }
    }
}

/// One of `choices`, each as likely as its weight.
pub(crate) fn pick<T: Copy>(random: &mut Random, choices: &[(u64, T)]) -> T {
    let mut left = random.below(choices.iter().map(|(weight, _)| weight).sum());
    for (weight, choice) in choices {
        if left < *weight {
            return *choice;
        }
        left -= weight;
    }
    choices[0].1
}

/// A number from `least` to `greatest`, small ones as likely as large ones by order of magnitude.
pub(crate) fn spread(random: &mut Random, least: u64, greatest: u64) -> u64 {
    let mut greatest_here = greatest;
    while greatest_here / 2 > least && random.chance(1, 2) {
        greatest_here /= 2;
    }
    random.between(least, greatest_here)
}

fn cluster(plan: &mut Plan, random: &mut Random) {
    plan.data_centers = pick(random, &[(50, 2), (38, 3), (12, 4)]);
    plan.partitions = pick(random, &[(10, 1), (40, 2), (35, 3), (15, 4)]);
    plan.durability = pick(random, &[(60, Durability::Always), (30, Durability::Interval), (10, Durability::Memory)]);
    plan.max_ahead_ms = if random.chance(1, 8) { random.between(500, 4_000) } else { 60_000 };
    plan.history_ms = if random.chance(1, 4) { random.between(50, 1_500) } else { 0 };
    plan.server_timeout_us = spread(random, 200_000, 5_000_000);
    plan.client_timeout_us = spread(random, 200_000, 4_000_000);
    let unsteady_us = if random.chance(1, 3) { 60_000 } else { 3_000 };
    plan.local = Spread { least_us: random.between(50, 500), jitter_us: spread(random, 50, unsteady_us) };
    plan.near = Spread { least_us: random.between(50, 300), jitter_us: spread(random, 50, 3_000) };
    plan.disk = Spread { least_us: random.between(80, 2_000), jitter_us: spread(random, 50, 6_000) };
}

fn network(plan: &mut Plan, random: &mut Random) {
    plan.transport = match random.chance(1, 2) {
        true => Transport::Stream,
        false => Transport::Datagram { loss: spread(random, 0, 200) as u16, duplicate: spread(random, 0, 200) as u16 },
    };
    for from in (0..plan.data_centers).map(DcId) {
        for to in (0..plan.data_centers).map(DcId).filter(|to| *to != from) {
            let least_us = spread(random, 1_000, 200_000);
            let jitter_us = if random.chance(1, 3) { random.below(least_us) } else { random.below(2_000) };
            plan.delays.push(Delay { from, to, delay: Spread { least_us, jitter_us } });
        }
    }
}

fn clocks(plan: &mut Plan, random: &mut Random) {
    let worst_ms = pick(random, &[(25, 0), (30, 50), (30, 500), (15, 5_000)]);
    if worst_ms == 0 {
        return;
    }
    for server in plan.servers() {
        let offset_ms = random.below(2 * worst_ms + 1) as i64 - worst_ms as i64;
        let drift_ppm = if random.chance(1, 3) { random.below(2_001) as i64 - 1_000 } else { 0 };
        plan.clocks.push(ClockPlan { server, offset_ms, drift_ppm });
    }
}

/// Few keys, some in every partition.
fn keys(plan: &Plan, random: &mut Random) -> Vec<String> {
    let each = random.between(1, 3) as usize;
    let mut room = vec![each; usize::from(plan.partitions)];
    let mut keys = Vec::new();
    let letters = || (b'a'..=b'z').map(char::from);
    let names = letters().map(String::from).chain(letters().flat_map(|first| letters().map(move |second| format!("{first}{second}"))));
    for name in names {
        let room = &mut room[usize::from(partition_of(name.as_bytes(), plan.partitions).0)];
        if *room > 0 {
            *room -= 1;
            keys.push(name);
        }
    }
    keys
}

/// The mixture of one plan's load.
struct Load {
    actions: Vec<(u64, Kind)>,
    /// One key is asked for more often than the others.
    hot: KeyIndex,
    hot_percent: u64,
}

#[derive(Clone, Copy)]
enum Kind {
    Get,
    GetEventual,
    Put,
    PutSeveral,
    Delete,
    Transaction,
    TransactionEventual,
    /// Writes a key, then at once another of another partition.
    Chain,
    /// Reads a key, then at once another of another partition.
    LookAround,
    Swap,
    Take,
    Await,
    Move,
    Adopt,
    Fresh,
}

/// Draws what the clients do; returns about when they will be done.
fn clients(plan: &mut Plan, random: &mut Random) -> u64 {
    let count = random.between(2, 8);
    let steps = match random.below(10) {
        0..=5 => random.between(80, 260),
        6..=8 => random.between(260, 420),
        _ => random.between(20, 80),
    };
    let deletes = random.below(8);
    let load = Load {
        actions: vec![
            (random.between(15, 45), Kind::Get),
            (random.below(4), Kind::GetEventual),
            (random.between(15, 40), Kind::Put),
            (random.below(8), Kind::PutSeveral),
            (deletes, Kind::Delete),
            (random.between(2, 24), Kind::Transaction),
            (random.below(2), Kind::TransactionEventual),
            (random.below(12), Kind::Chain),
            (random.below(12), Kind::LookAround),
            (random.below(5), Kind::Swap),
            (deletes / 2, Kind::Take),
            (random.below(3), Kind::Await),
            (random.below(6), Kind::Move),
            (random.below(6), Kind::Adopt),
            (random.below(14), Kind::Fresh),
        ],
        hot: random.below(plan.keys.len() as u64) as usize,
        hot_percent: if random.chance(1, 2) { random.below(50) } else { 0 },
    };
    let mut horizon_us = 0;
    for _ in 0..count {
        let dc = DcId(random.below(plan.data_centers.into()) as u8);
        let start_us = if random.chance(1, 5) { random.below(1_000_000) } else { random.below(60_000) };
        let think_us = pick(random, &[(30, 3_000), (45, 30_000), (15, 120_000), (10, 900_000)]);
        // A client that thinks long does little, so that the run does not become long.
        let steps = (steps / count).clamp(1, 3_000_000 / think_us);
        let mut ends_us = start_us;
        let mut client = ClientPlan { dc, start_us, steps: Vec::new() };
        while (client.steps.len() as u64) < steps {
            let think_us = if random.chance(1, 50) { random.between(200_000, 800_000) } else { random.below(think_us) };
            ends_us += think_us + 2_000;
            for (place, action) in actions(plan, &load, count, random).into_iter().enumerate() {
                let think_us = if place == 0 { think_us } else { random.below(2_000) };
                client.steps.push(Step { think_us, action });
            }
        }
        horizon_us = horizon_us.max(ends_us);
        plan.clients.push(client);
    }
    horizon_us
}

fn key(plan: &Plan, load: &Load, random: &mut Random) -> KeyIndex {
    if random.below(100) < load.hot_percent { load.hot } else { random.below(plan.keys.len() as u64) as usize }
}

/// `first` and some other keys that may stand beside those before them, no key twice.
pub(crate) fn several(plan: &Plan, first: KeyIndex, limit: u64, random: &mut Random, may: impl Fn(&[KeyIndex], KeyIndex) -> bool) -> Vec<KeyIndex> {
    let mut keys = vec![first];
    for _ in 1..random.between(2, limit) {
        let next = random.below(plan.keys.len() as u64) as usize;
        if may(&keys, next) && !keys.contains(&next) {
            keys.push(next);
        }
    }
    keys
}

/// Keys for a transaction: any, or each of another partition.
pub(crate) fn transaction_keys(plan: &Plan, first: KeyIndex, random: &mut Random) -> Vec<KeyIndex> {
    let wide = random.chance(1, 2);
    several(plan, first, 6, random, |keys, next| !wide || keys.iter().all(|key| plan.partition(*key) != plan.partition(next)))
}

fn transaction(plan: &Plan, first: KeyIndex, level: Level, random: &mut Random) -> Action {
    Action::ReadTransaction { keys: transaction_keys(plan, first, random), level, groups: Groups::default() }
}

pub(crate) fn get(key: KeyIndex) -> Action {
    Action::Get { key, level: Level::Causal, groups: Groups::default() }
}

pub(crate) fn put(key: KeyIndex) -> Action {
    Action::Put { items: vec![PutItem { key, delete: false }] }
}

fn actions(plan: &Plan, load: &Load, clients: u64, random: &mut Random) -> Vec<Action> {
    let key = key(plan, load, random);
    let kind = pick(random, &load.actions);
    if let Kind::Chain | Kind::LookAround = kind {
        let act = if matches!(kind, Kind::Chain) { put } else { get };
        let keys = several(plan, key, 4, random, |keys, next| plan.partition(keys[keys.len() - 1]) != plan.partition(next));
        return keys.into_iter().map(act).collect();
    }
    vec![action(plan, kind, key, clients, random)]
}

fn action(plan: &Plan, kind: Kind, key: KeyIndex, clients: u64, random: &mut Random) -> Action {
    match kind {
        Kind::Get | Kind::LookAround => get(key),
        Kind::GetEventual => Action::Get { key, level: Level::Eventual, groups: Groups::default() },
        Kind::Put | Kind::Chain => put(key),
        Kind::Delete => Action::Put { items: vec![PutItem { key, delete: true }] },
        Kind::PutSeveral => {
            let keys = several(plan, key, 4, random, |_, other| plan.partition(other) == plan.partition(key));
            let items = keys.into_iter().map(|key| PutItem { key, delete: random.chance(1, 10) }).collect();
            Action::Put { items }
        }
        Kind::Transaction => transaction(plan, key, Level::Causal, random),
        Kind::TransactionEventual => transaction(plan, key, Level::Eventual, random),
        Kind::Swap => Action::Swap { key },
        Kind::Take => Action::Take { key },
        Kind::Await => Action::Await { key, data_centers: random.between(1, u64::from(plan.data_centers.max(2)) - 1) as u8 },
        Kind::Move => Action::Move { dc: DcId(random.below(plan.data_centers.into()) as u8) },
        Kind::Adopt => Action::Adopt { client: random.below(clients) as usize },
        Kind::Fresh => Action::Fresh,
    }
}

pub(crate) fn server(plan: &Plan, random: &mut Random) -> ServerId {
    let (dc, partition) = (random.below(plan.data_centers.into()) as u8, random.below(plan.partitions.into()) as u16);
    ServerId::new(DcId(dc), PartitionId(partition))
}

/// Two different data centers.
pub(crate) fn two_data_centers(plan: &Plan, random: &mut Random) -> (DcId, DcId) {
    let from = random.below(plan.data_centers.into()) as u8;
    let to = (from + random.between(1, u64::from(plan.data_centers.max(2)) - 1) as u8) % plan.data_centers;
    (DcId(from), DcId(to))
}

/// Two different servers of one data center; of one partition if there is only one.
pub(crate) fn two_servers_inside(plan: &Plan, random: &mut Random) -> (ServerId, ServerId) {
    let a = server(plan, random);
    let partition = (u64::from(a.partition.0) + random.between(1, u64::from(plan.partitions).max(2) - 1)) % u64::from(plan.partitions);
    (a, ServerId { partition: PartitionId(partition as u16), ..a })
}

fn moment(random: &mut Random) -> Moment {
    if random.chance(1, 3) { Moment::MidRound } else { Moment::AtOnce }
}

#[derive(Clone, Copy)]
enum Trouble {
    Cut,
    SlowReplication,
    SlowInside,
    SlowServer,
    Break,
    Pause,
    Kill,
    PowerLoss,
    Blackout,
    SlowDisk,
    ClockJump,
}

fn faults(plan: &mut Plan, horizon_us: u64, random: &mut Random) {
    let count = match random.below(10) {
        0 => 0,
        1..=4 => random.between(1, 3),
        _ => random.between(3, 9),
    };
    let crashes = if plan.durability == Durability::Memory { 0 } else { random.below(3) };
    let power = match plan.durability {
        Durability::Always => crashes,
        Durability::Interval if random.chance(1, 4) => crashes,
        _ => 0,
    };
    let several = u64::from(plan.data_centers > 1);
    let kinds = [
        (3 * several, Trouble::Cut),
        (5 * several, Trouble::SlowReplication),
        (3, Trouble::SlowInside),
        (2, Trouble::SlowServer),
        (2, Trouble::Break),
        (2, Trouble::Pause),
        (2 * crashes, Trouble::Kill),
        (3 * power, Trouble::PowerLoss),
        (power, Trouble::Blackout),
        (2, Trouble::SlowDisk),
        (2, Trouble::ClockJump),
    ];
    for _ in 0..count {
        let kind = pick(random, &kinds);
        trouble(plan, kind, horizon_us.max(100_000), random);
    }
    plan.faults.sort_by_key(|fault| fault.from_us);
}

fn trouble(plan: &mut Plan, kind: Trouble, horizon_us: u64, random: &mut Random) {
    let from_us = random.below(horizon_us);
    let short_us = spread(random, 20_000, 2_000_000);
    let fault = |lasts_us: u64, kind: FaultKind| Fault { from_us, until_us: from_us + lasts_us, kind };
    match kind {
        Trouble::Cut => {
            let ((from, to), hold) = (two_data_centers(plan, random), random.chance(1, 2));
            plan.faults.push(fault(short_us, FaultKind::Cut { from, to, hold }));
            if random.chance(1, 2) {
                plan.faults.push(fault(short_us, FaultKind::Cut { from: to, to: from, hold }));
            }
        }
        Trouble::SlowReplication => {
            let (from, to) = two_data_centers(plan, random);
            let partition = server(plan, random).partition;
            let at = |dc| ServerId::new(dc, partition);
            let kind = FaultKind::SlowLink { from: at(from), to: at(to), extra_us: random.between(20_000, 800_000) };
            let until_us = from_us + spread(random, 200_000, 2 * horizon_us);
            plan.faults.push(Fault { from_us: if random.chance(1, 2) { 0 } else { from_us }, until_us, kind });
        }
        Trouble::SlowInside => {
            let (from, to) = two_servers_inside(plan, random);
            let lasts_us = if random.chance(1, 2) { short_us } else { horizon_us };
            plan.faults.push(fault(lasts_us, FaultKind::SlowLink { from, to, extra_us: spread(random, 1_000, 300_000) }));
        }
        Trouble::SlowServer => {
            let kind = FaultKind::SlowServer { server: server(plan, random), extra_us: spread(random, 1_000, 200_000) };
            plan.faults.push(fault(short_us, kind));
        }
        Trouble::Break => {
            let (a, b) = match random.chance(1, 2) {
                true => two_servers_inside(plan, random),
                false => {
                    let (here, there) = two_data_centers(plan, random);
                    let partition = server(plan, random).partition;
                    (ServerId::new(here, partition), ServerId::new(there, partition))
                }
            };
            plan.faults.push(fault(0, FaultKind::Break { a, b }));
        }
        Trouble::Pause => plan.faults.push(fault(short_us, FaultKind::Pause { server: server(plan, random) })),
        Trouble::Kill => plan.faults.push(fault(short_us, FaultKind::Kill { server: server(plan, random), moment: moment(random) })),
        Trouble::PowerLoss => {
            let server = server(plan, random);
            if random.chance(1, 2) {
                // A disk that gets slow before its machine dies has much to lose.
                let extra_us = random.between(20_000, 600_000);
                let slow_from_us = from_us.saturating_sub(random.between(50_000, 1_500_000));
                plan.faults.push(Fault { from_us: slow_from_us, until_us: from_us, kind: FaultKind::SlowDisk { server, extra_us } });
            }
            plan.faults.push(fault(short_us, FaultKind::PowerLoss { server, flushed: random.chance(1, 4), moment: Moment::AtOnce }));
        }
        Trouble::Blackout => {
            let dc = server(plan, random).dc;
            for server in plan.servers().filter(|server| server.dc == dc).collect::<Vec<_>>() {
                let (lasts_us, flushed) = (spread(random, 20_000, 2_000_000), random.chance(1, 4));
                plan.faults.push(fault(lasts_us, FaultKind::PowerLoss { server, flushed, moment: Moment::AtOnce }));
            }
        }
        Trouble::SlowDisk => {
            let extra_us = spread(random, 1_000, 500_000);
            plan.faults.push(fault(short_us, FaultKind::SlowDisk { server: server(plan, random), extra_us }));
        }
        Trouble::ClockJump => {
            let size_ms = spread(random, 1, 5_000) as i64;
            let by_ms = if random.chance(1, 2) { size_ms } else { -size_ms };
            plan.faults.push(fault(0, FaultKind::ClockJump { server: server(plan, random), by_ms }));
        }
    }
}
