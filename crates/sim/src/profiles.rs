//! Profiles: what a batch of seeds is about. Every plan begins as the seed draws it; its profile gives it options, faults and a load beside.

use crate::generate::{general_plan, get, pick, put, server, several, spread, transaction_keys, two_data_centers, two_servers_inside};
use crate::generate_counters;
use crate::node;
use crate::plan::{Action, ClockPlan, Ends, Expected, Fate, Fault, FaultKind, Kill, Moment, PHASES, Plan, Spread, Step, Transport};
use rheostat_core::DcId;
use rheostat_core::dial::{Groups, Level};
use rheostat_core::ids::{PartitionId, Place, ServerId};
use rheostat_core::random::Random;
use rheostat_core::sla::ServiceLevel;
use rheostat_core::store::{Checkpoints, Durability};
use rheostat_counters::counting;
use std::sync::Arc;

/// A kind of load and of trouble.
#[derive(Debug)]
pub struct Profile {
    /// Its name.
    pub name: &'static str,
    /// What it is about, in one line.
    pub about: &'static str,
    /// An option that it sets if the protocol has it and nobody else has set it.
    option: Option<(&'static str, Setting)>,
    /// Changes the plan whose load takes about so many microseconds.
    dress: fn(&mut Plan, u64, &mut Random),
    /// The planted bugs that it was made for; others are looked for with plans as they are drawn.
    bugs: &'static [&'static str],
}

#[derive(Clone, Copy, Debug)]
enum Setting {
    Word(&'static str),
    Number(i64),
}

/// Every profile; the first leaves plans as they are drawn.
pub const ALL: &[Profile] = &[
    Profile { name: "plain", about: "what the seed draws, and no more", option: None, dress: |_, _, _| {}, bugs: &[] },
    Profile {
        name: "predicted",
        about: "clients predict the snapshots of their transactions",
        option: Some(("transactions", Setting::Word("predicted"))),
        dress: |_, _, _| {},
        bugs: &[
            "predicted-ignores-own-writes",
            "predicted-snapshot-goes-back",
            "predicted-retry-with-empty-vector",
            "predicted-validity-not-checked",
            "predicted-snapshot-not-kept",
        ],
    },
    Profile {
        name: "away",
        about: "short logs, and members of groups that are away for long",
        option: Some(("keep_entries", Setting::Number(4))),
        dress: away,
        bugs: &[
            "snapshot-shipped-as-it-came",
            "snapshot-without-deletions",
            "tombstones-collected-under-pages",
            "leader-clock-behind-the-log",
            "batches-forgotten-too-early",
        ],
    },
    Profile {
        name: "alone",
        about: "one data center alone for 6 to 10 seconds, while clients go on everywhere",
        option: None,
        dress: alone,
        bugs: &[],
    },
    Profile {
        name: "lagging",
        about: "several slow links between data centers, for the whole load, or ways that become slow and quick all at once",
        option: None,
        dress: lagging,
        bugs: &[],
    },
    Profile {
        name: "slices",
        about: "slow links inside data centers, wide reads, and writes elsewhere just after them",
        option: None,
        dress: slices,
        bugs: &[],
    },
    Profile {
        name: "bursts",
        about: "kills in short succession, each at a moment that matters",
        option: None,
        dress: bursts,
        bugs: &["held-write-not-recorded", "promise-not-recorded", "accepted-batch-not-recorded", "held-writes-cut-from-the-log"],
    },
    Profile {
        name: "narrow",
        about: "large values, so that batches, pages and windows end, and few operations that may wait",
        option: None,
        dress: narrow,
        bugs: &[],
    },
    Profile {
        name: "dead",
        about: "a data center dies for good, when some of what it wrote has reached only some of the others",
        option: None,
        dress: dead,
        bugs: &["passed-on-without-what-was-forgotten", "stream-ended-before-it-is-here"],
    },
    Profile {
        name: "joined",
        about: "a data center dies and is given up, and one with nothing on its disks has its place, among clients, cuts and crashes",
        option: None,
        dress: joined,
        bugs: &["joined-by-the-first-answer", "joined-reads-before-it-is-filled", "nothing-written-after-it-has-begun"],
    },
    Profile {
        name: "added",
        about: "a data center that was not there at first is started with nothing on its disks and let in, among clients, cuts and crashes",
        option: None,
        dress: added,
        bugs: &["counter-hello-forgotten-while-filled"],
    },
    Profile {
        name: "parted",
        about: "two data centers do not hear each other for long, and others pass on between them",
        option: None,
        dress: parted,
        bugs: &["passed-on-beyond-what-is-here"],
    },
    Profile {
        name: "lost-disks",
        about: "servers lose their disks, and what they wrote comes back from the others",
        option: None,
        dress: lost_disks,
        bugs: &["refilled-by-the-first-answer", "read-before-refilled", "read-of-parts-goes-on", "counts-while-it-is-filled"],
    },
    Profile {
        name: "hurried",
        about: "reads and writes under a service level, over slow links: fresh, in time, in as many data centers, or the next best",
        option: None,
        dress: hurried,
        bugs: &[
            "stale-read-taken-as-fresh",
            "entry-said-that-was-asked-for",
            "entry-timed-from-its-attempt",
            "copies-told-that-were-asked-for",
            "copies-timed-from-their-wait",
        ],
    },
    Profile {
        name: "past",
        about: "keys are read as of times in the past, as far back as history is kept",
        option: None,
        dress: past,
        bugs: &["past-read-before-it-is-here", "history-half-as-long"],
    },
    Profile {
        name: "checkpoints",
        about: "keys are read as of checkpoints before a short window, also where servers lose their disks",
        option: None,
        dress: checkpoints,
        bugs: &["checkpoint-goes-with-the-window", "any-time-taken-for-a-checkpoint", "checkpoints-outlive-a-fill"],
    },
    Profile {
        name: "rolled",
        about: "clients roll all keys back while others write, and die in the middle of it",
        option: None,
        dress: rolled,
        bugs: &[
            "rollback-beside-writes",
            "rollback-looks-too-early",
            "rollback-ends-before-it-is-seen",
            "rollback-stop-forgotten-at-restart",
            "rollback-goes-on-with-old-clocks",
        ],
    },
    Profile {
        name: "depending",
        about: "clients roll back one of the last writes and what depends on it, where the protocol knows that",
        option: None,
        dress: depending,
        bugs: &["rollback-leaves-what-depends", "rollback-takes-what-does-not-depend", "rollback-forgets-what-is-beneath"],
    },
    Profile {
        name: "orphaned",
        about: "a client rolls back and is gone, or taken for gone, in some phase of it; another one takes over; servers are killed in some phase",
        option: None,
        dress: orphaned,
        bugs: &["rollback-begun-again", "rollback-by-two"],
    },
    Profile {
        name: "tested",
        about: "tests of a key that decide what is written to another, among writes of both",
        option: None,
        dress: tested,
        bugs: &["tested-before-its-place"],
    },
    Profile {
        name: "replicas",
        about: "several servers under each one that the protocol knows of: leaders killed, cut off, paused for longer than their lease",
        option: None,
        dress: replicas,
        bugs: rheostat_group::PLANTED,
    },
    Profile {
        name: "replaced",
        about: "members of groups lose their disks, one after the other, and come back as new ones",
        option: None,
        dress: replaced,
        bugs: rheostat_group::PLANTED_IN_MEMBERS,
    },
    Profile {
        name: "moved",
        about: "servers that stand alone move to other machines with their files, whose clocks are others, among cuts and crashes",
        option: None,
        dress: moved,
        bugs: &["moved-without-its-clock"],
    },
    Profile {
        name: "split",
        about: "each data center's partitions are split, one data center after the other or all about at once, among cuts and crashes",
        option: None,
        dress: split,
        bugs: &[
            "split-forgets-its-state",
            "split-leaves-keys-behind",
            "split-leaves-entries-behind",
            "split-heard-by-those-that-are-not",
            "counter-greeted-ahead-of-fences",
        ],
    },
    Profile {
        name: "drained",
        about: "servers that lead are drained, and hand over, among those that are cut off, paused and killed",
        option: None,
        dress: drained,
        bugs: rheostat_group::PLANTED_IN_HAND_OVER,
    },
    Profile {
        name: "asleep",
        about: "servers of which nobody has asked anything for a while are told so, and woken by those that are asked",
        option: None,
        dress: asleep,
        bugs: &[],
    },
    Profile {
        name: "feed",
        about: "clients follow the change feed of their data center, and go on from positions that they were given, old ones too",
        option: None,
        dress: feed,
        bugs: &["feed-ahead-of-what-has-arrived", "feed-too-old-not-said", "feed-page-taken-for-whole"],
    },
];

/// The profile called `name`.
///
/// # Errors
/// There is none.
pub fn named(name: &str) -> Result<&'static Profile, String> {
    let names = || ALL.iter().map(|profile| profile.name).collect::<Vec<_>>().join(", ");
    ALL.iter().find(|profile| profile.name == name).ok_or_else(|| format!("there is no profile `{name}`; there are: {}", names()))
}

/// The profile that a planted bug was made for, or plans as they are drawn.
pub fn of_bug(planted: Option<&str>) -> &'static Profile {
    ALL.iter().find(|profile| planted.is_some_and(|bug| profile.bugs.contains(&bug))).unwrap_or(&ALL[0])
}

/// Planted bugs of protocols that show only where counters lean on them.
const UNDER_COUNTERS: &[&str] = &["counter-guard-taken-as-met"];

/// Whether a planted bug needs a load of counters.
pub fn wants_counters(planted: Option<&str>) -> bool {
    planted.is_some_and(|bug| counting::PLANTED.contains(&bug) || UNDER_COUNTERS.contains(&bug))
}

impl Profile {
    /// The plan of `seed` for `protocol`, with `options` fixed and the rest drawn.
    pub fn plan(&self, protocol: &str, options: &toml::Table, planted: Option<&str>, counters: bool, seed: u64) -> Plan {
        let (mut options, mut random) = (options.clone(), Random::new(seed ^ 0x9E0F_11E5_5EED_0000));
        if let Some((name, setting)) = self.option
            && !options.contains_key(name)
        {
            let value = match setting {
                Setting::Word(word) => toml::Value::from(word),
                Setting::Number(number) => toml::Value::from(number),
            };
            let alone = toml::Table::from_iter([(name.to_owned(), value)]);
            if rheostat_protocols::registry::check_options(protocol, &alone).is_ok() {
                options.extend(alone);
            }
        }
        let (mut plan, horizon_us) = match counters {
            true => generate_counters::plan(protocol, &options, planted, seed),
            false => general_plan(protocol, &options, planted, seed),
        };
        (self.dress)(&mut plan, horizon_us.max(100_000), &mut random);
        plan.faults.sort_by_key(|fault| fault.from_us);
        plan
    }
}

/// Any server of the plan, any of its partition's replicas.
fn any(plan: &Plan, random: &mut Random) -> ServerId {
    ServerId { replica: random.below(plan.replicas.into()) as u8, ..server(plan, random) }
}

/// Members of groups that are away for long, leaders among them, while the others go on.
fn away(plan: &mut Plan, horizon_us: u64, _: &mut Random) {
    if !node::can(&plan.protocol).agrees() {
        return;
    }
    if let Some(kept) = plan.options.get_mut("keep_batches") {
        *kept = toml::Value::Integer(4);
    }
    // The source of its own that these plans have had from the beginning.
    let random = &mut Random::new(plan.seed ^ 0x6E0D_5EED_0000_0003);
    for _ in 0..random.between(2, 5) {
        let server = any(plan, random);
        let from_us = random.below(horizon_us);
        let kind = match random.chance(1, 2) {
            true => FaultKind::Pause { server },
            false => FaultKind::Kill { server, moment: if random.chance(1, 3) { Moment::MidRound } else { Moment::AtOnce } },
        };
        plan.faults.push(Fault { from_us, until_us: from_us + random.between(300_000, 3_000_000), kind });
    }
}

/// How long clients go on where a data center is alone, in microseconds.
const LONG_LOAD_US: u64 = 9_000_000;

/// The same load over a longer time.
fn at_leisure(plan: &mut Plan, horizon_us: u64) {
    let times = LONG_LOAD_US.div_ceil(horizon_us);
    plan.clients.iter_mut().for_each(|client| client.start_us *= times);
    plan.clients.iter_mut().flat_map(|client| &mut client.steps).for_each(|step| step.think_us *= times);
}

fn alone(plan: &mut Plan, horizon_us: u64, random: &mut Random) {
    at_leisure(plan, horizon_us);
    let alone = DcId(random.below(plan.data_centers.into()) as u8);
    let (from_us, lasts_us, hold) = (random.between(200_000, 2_500_000), random.between(6_000_000, 10_000_000), random.chance(1, 3));
    for other in (0..plan.data_centers).map(DcId).filter(|other| *other != alone) {
        for (from, to) in [(alone, other), (other, alone)] {
            plan.faults.push(Fault { from_us, until_us: from_us + lasts_us, kind: FaultKind::Cut { from, to, hold } });
        }
    }
}

/// Whether a data center can die and be given up: each server of it stands alone, and others have everything too.
fn can_die(plan: &Plan) -> bool {
    let held_by_all = (0..plan.partitions).map(PartitionId).all(|partition| {
        let place = Place {
            server: ServerId::new(DcId(0), partition),
            data_centers: plan.data_centers,
            partitions: plan.partitions,
            first_partitions: plan.partitions_at_first(),
            replicas: plan.replicas,
        };
        node::holders(&plan.protocol, &plan.options, place).is_ok_and(|holders| holders.len() == usize::from(plan.data_centers))
    });
    held_by_all && plan.data_centers > 1 && !node::can(&plan.protocol).agrees()
}

/// Any three data centers, if a data center can be out of reach for some of the others.
fn three_data_centers(plan: &Plan, random: &mut Random) -> Option<[DcId; 3]> {
    if plan.data_centers < 3 || !can_die(plan) || !plan.counters.is_empty() {
        return None;
    }
    Some(any_three(plan, random))
}

fn any_three(plan: &Plan, random: &mut Random) -> [DcId; 3] {
    let first = random.below(plan.data_centers.into()) as u8;
    let at = |step: u8| DcId((first + step) % plan.data_centers);
    if random.chance(1, 2) { [at(0), at(1), at(2)] } else { [at(0), at(2), at(1)] }
}

fn dead(plan: &mut Plan, horizon_us: u64, random: &mut Random) {
    if let Some(three) = three_data_centers(plan, random) {
        die(plan, three, horizon_us, random);
    }
}

fn die(plan: &mut Plan, [dc, cut_off, third]: [DcId; 3], horizon_us: u64, random: &mut Random) {
    let from_us = random.between(horizon_us / 4, horizon_us);
    let lasts_us = spread(random, 20_000, horizon_us);
    if random.chance(3, 4) {
        let kind = FaultKind::Cut { from: dc, to: cut_off, hold: false };
        plan.faults.push(Fault { from_us: from_us.saturating_sub(lasts_us), until_us: from_us, kind });
    }
    // Who remembers what others lack can lose it too.
    if plan.durability != Durability::Memory && random.chance(1, 3) {
        let server = ServerId { dc: if random.chance(1, 3) { cut_off } else { third }, ..any(plan, random) };
        let at_us = from_us.saturating_sub(lasts_us) + random.below(lasts_us + 500_000);
        let kind = FaultKind::Kill { server, moment: Moment::AtOnce };
        plan.faults.push(Fault { from_us: at_us, until_us: at_us + spread(random, 20_000, 500_000), kind });
    }
    // An operator says so, sooner or later; or does not know.
    let until_us = from_us + if random.chance(2, 3) { spread(random, 10_000, 12_000_000) } else { 0 };
    plan.faults.push(Fault { from_us, until_us, kind: FaultKind::Death { dc } });
}

/// What is sent over a connection arrives, and every server has a disk.
fn on_disks(plan: &mut Plan) {
    if plan.durability == Durability::Memory {
        plan.durability = Durability::Always;
    }
    plan.transport = Transport::Stream;
}

/// Servers come to stand in others' places: these had disks, what they had sent does not arrive any more, and all clocks are right.
fn on_disks_with_right_clocks(plan: &mut Plan) {
    on_disks(plan);
    plan.clocks.clear();
    plan.faults.retain(|fault| !matches!(fault.kind, FaultKind::ClockJump { .. }));
}

/// A data center dies as in [`dead`], is given up, and another one has its place, while clients go on.
fn joined(plan: &mut Plan, horizon_us: u64, random: &mut Random) {
    // What counters do is not checked yet where updates are lost with a data center and what rests on them is not.
    if !can_die(plan) || !plan.counters.is_empty() {
        return;
    }
    // Nobody puts another data center into the place of one whose clocks were far ahead, before these times have passed.
    on_disks_with_right_clocks(plan);
    at_leisure(plan, horizon_us);
    match plan.data_centers {
        2 => {
            let (dc, from_us) = (DcId(random.below(2) as u8), random.below(2_000_000));
            plan.faults.push(Fault { from_us, until_us: from_us, kind: FaultKind::Death { dc } });
        }
        _ => {
            let three = any_three(plan, random);
            die(plan, three, 4 * horizon_us.min(500_000), random);
        }
    }
    let given_up = plan.faults.iter_mut().find_map(|fault| match fault.kind {
        FaultKind::Death { dc } => {
            fault.until_us = fault.from_us + spread(random, 10_000, 1_500_000);
            Some((dc, fault.until_us))
        }
        _ => None,
    });
    let Some((dc, said_us)) = given_up else { return };
    // A power loss puts a clock up to five seconds ahead, and by then these have not passed.
    plan.faults.retain(|fault| !matches!(fault.kind, FaultKind::PowerLoss { server, .. } if server.dc == dc && fault.from_us < said_us));
    let from_us = said_us + spread(random, 10_000, 1_000_000);
    plan.faults.push(Fault { from_us, until_us: from_us, kind: FaultKind::Arrival { dc } });
    comes(plan, dc, from_us, random);
}

/// The place of a data center is free at first, and one comes into it while clients go on.
fn added(plan: &mut Plan, horizon_us: u64, random: &mut Random) {
    if !can_die(plan) {
        return;
    }
    on_disks(plan);
    at_leisure(plan, horizon_us);
    // Counters are made in the first one.
    let first = u64::from(!plan.counters.is_empty());
    let dc = DcId((first + random.below(u64::from(plan.data_centers) - first)) as u8);
    plan.faults.push(Fault { from_us: 0, until_us: 0, kind: FaultKind::Reserved { dc } });
    let from_us = spread(random, 10_000, 2_000_000);
    plan.faults.push(Fault { from_us, until_us: from_us, kind: FaultKind::Arrival { dc } });
    comes(plan, dc, from_us, random);
}

/// What happens around the arrival of the data center `dc`: its clients, cuts, crashes and slow ways.
fn comes(plan: &mut Plan, dc: DcId, from_us: u64, random: &mut Random) {
    // Clients of the new one: they wait until it is there.
    for client in plan.clients.iter_mut().filter(|client| client.dc == dc) {
        if random.chance(2, 3) {
            client.start_us = from_us + spread(random, 10_000, 3_000_000);
        }
    }
    // When all have the same of the lost one is not known: within a few seconds.
    for _ in 0..random.below(4) {
        let at_us = from_us + random.below(5_000_000);
        let other = DcId((dc.0 + random.between(1, u64::from(plan.data_centers) - 1) as u8) % plan.data_centers);
        let server = ServerId { dc: if random.chance(1, 2) { dc } else { other }, ..any(plan, random) };
        let kind = match random.below(5) {
            0 => FaultKind::Cut { from: dc, to: other, hold: random.chance(1, 3) },
            1 => FaultKind::Cut { from: other, to: dc, hold: random.chance(1, 3) },
            2 => FaultKind::Kill { server, moment: Moment::AtOnce },
            3 => FaultKind::PowerLoss { server, flushed: random.chance(1, 2), moment: Moment::AtOnce },
            _ => FaultKind::SlowLink {
                from: server,
                to: ServerId { dc: if server.dc == dc { other } else { dc }, ..server },
                extra_us: random.below(300_000),
            },
        };
        plan.faults.push(Fault { from_us: at_us, until_us: at_us + spread(random, 20_000, 1_500_000), kind });
    }
}

/// One disk of a partition at most: what only two servers have is lost with both.
fn lost_disks(plan: &mut Plan, horizon_us: u64, random: &mut Random) {
    if node::can(&plan.protocol).agrees() || plan.data_centers == 1 || !plan.counters.is_empty() {
        return;
    }
    // Where a clock is far behind what its servers have written, a new one repeats timestamps that went with the old one's disk.
    on_disks_with_right_clocks(plan);
    for partition in (0..plan.partitions).map(PartitionId) {
        if !random.chance(2, 3) {
            continue;
        }
        let server = ServerId::new(DcId(random.below(plan.data_centers.into()) as u8), partition);
        let from_us = horizon_us / 4 + random.below(horizon_us);
        // A power loss puts a clock up to five seconds ahead; nobody puts in a new disk within that time.
        plan.faults.retain(|fault| !matches!(fault.kind, FaultKind::PowerLoss { server: of, .. } if of == server));
        plan.faults.push(Fault { from_us, until_us: from_us + spread(random, 10_000, 1_000_000), kind: FaultKind::LostDisk { server } });
        // The others have different amounts of what it wrote.
        if plan.data_centers > 2 && random.chance(1, 2) {
            let to = DcId((server.dc.0 + 1 + random.below(u64::from(plan.data_centers) - 1) as u8) % plan.data_centers);
            let kind = FaultKind::Cut { from: server.dc, to, hold: false };
            plan.faults.push(Fault { from_us: from_us.saturating_sub(random.between(50_000, 1_000_000)), until_us: from_us, kind });
        }
    }
}

fn parted(plan: &mut Plan, horizon_us: u64, random: &mut Random) {
    let Some([from, to, _]) = three_data_centers(plan, random) else { return };
    at_leisure(plan, horizon_us);
    let (from_us, lasts_us) = (random.between(200_000, 1_500_000), random.between(5_000_000, 9_000_000));
    plan.faults.push(Fault { from_us, until_us: from_us + lasts_us, kind: FaultKind::Cut { from, to, hold: random.chance(1, 3) } });
    if random.chance(1, 2) {
        plan.faults.push(Fault { from_us, until_us: from_us + lasts_us, kind: FaultKind::Cut { from: to, to: from, hold: false } });
    }
}

fn lagging(plan: &mut Plan, horizon_us: u64, random: &mut Random) {
    if plan.data_centers == 1 {
        return;
    }
    if random.chance(1, 3) {
        return stepped(plan, horizon_us, random);
    }
    for _ in 0..random.between(2, 6) {
        let (from, to) = two_data_centers(plan, random);
        let place = any(plan, random);
        let kind =
            FaultKind::SlowLink { from: ServerId { dc: from, ..place }, to: ServerId { dc: to, ..place }, extra_us: random.between(20_000, 900_000) };
        let from_us = if random.chance(2, 3) { 0 } else { random.below(horizon_us) };
        plan.faults.push(Fault { from_us, until_us: from_us + random.between(horizon_us / 2, 2 * horizon_us), kind });
    }
}

/// What a way between data centers takes more than it should, from one moment to the next.
const STEPS_US: [u64; 5] = [0, 5_000, 40_000, 200_000, 400_000];

/// Ways between data centers that become slow and quick again all at once, some of them in one direction only.
fn stepped(plan: &mut Plan, horizon_us: u64, random: &mut Random) {
    let (partitions, replicas) = (plan.partitions, plan.replicas);
    for _ in 0..random.between(1, 3) {
        let (a, b) = two_data_centers(plan, random);
        let ways = if random.chance(2, 3) { 2 } else { 1 };
        let mut from_us = random.below(horizon_us / 4 + 1);
        while from_us < horizon_us {
            let until_us = from_us + random.between(50_000, (horizon_us / 3).max(60_000));
            let extra_us = STEPS_US[random.below(STEPS_US.len() as u64) as usize];
            for (from, to) in [(a, b), (b, a)].into_iter().take(ways).filter(|_| extra_us > 0) {
                for (partition, replica) in (0..partitions).flat_map(|partition| (0..replicas).map(move |replica| (partition, replica))) {
                    let at = |dc| ServerId { replica, ..ServerId::new(dc, PartitionId(partition)) };
                    plan.faults.push(Fault { from_us, until_us, kind: FaultKind::SlowLink { from: at(from), to: at(to), extra_us } });
                }
            }
            from_us = until_us;
        }
    }
}

fn slices(plan: &mut Plan, horizon_us: u64, random: &mut Random) {
    if plan.partitions == 1 {
        return;
    }
    for _ in 0..random.between(1, 4) {
        let (from, to) = two_servers_inside(plan, random);
        let kind = FaultKind::SlowLink { from, to, extra_us: spread(random, 2_000, 300_000) };
        plan.faults.push(Fault { from_us: 0, until_us: horizon_us, kind });
    }
    for client in 0..plan.clients.len() {
        let steps = std::mem::take(&mut plan.clients[client].steps);
        let mut made = Vec::with_capacity(steps.len());
        for step in steps {
            let first = match &step.action {
                Action::Get { key, .. } if random.chance(1, 2) => *key,
                _ => {
                    made.push(step);
                    continue;
                }
            };
            let keys = transaction_keys(plan, first, random);
            let elsewhere = several(plan, first, 3, random, |_, next| plan.partition(next) != plan.partition(first));
            made.push(Step { think_us: step.think_us, action: Action::ReadTransaction { keys, level: Level::Causal, groups: Groups::default() } });
            for key in elsewhere.into_iter().skip(1) {
                made.push(Step { think_us: random.below(1_500), action: if random.chance(3, 4) { put(key) } else { get(key) } });
            }
        }
        plan.clients[client].steps = made;
    }
}

fn bursts(plan: &mut Plan, horizon_us: u64, random: &mut Random) {
    if plan.durability == Durability::Memory {
        plan.durability = Durability::Interval;
    }
    let power = plan.durability == Durability::Always;
    for _ in 0..random.between(1, 3) {
        let victims: Vec<ServerId> = (0..random.between(1, 2)).map(|_| any(plan, random)).collect();
        let mut at_us = random.below(horizon_us);
        for _ in 0..random.between(3, 9) {
            let server = victims[random.below(victims.len() as u64) as usize];
            let aimed = Moment::AIMED[random.below(Moment::AIMED.len() as u64) as usize];
            let moment = pick(random, &[(2, Moment::AtOnce), (8, aimed)]);
            // One that is to die at a moment waits for it; then it is down for the rest of its time.
            let lasts_us = spread(random, 5_000, 200_000);
            let kind = match power && random.chance(1, 3) {
                true => FaultKind::PowerLoss { server, flushed: random.chance(1, 3), moment },
                false => FaultKind::Kill { server, moment },
            };
            plan.faults.push(Fault { from_us: at_us, until_us: at_us + lasts_us, kind });
            at_us += spread(random, 2_000, 200_000);
        }
    }
}

fn past(plan: &mut Plan, _: u64, random: &mut Random) {
    if node::can(&plan.protocol).agrees() {
        return;
    }
    plan.history_ms = random.between(100, 2_000);
    for client in 0..plan.clients.len() {
        let steps = std::mem::take(&mut plan.clients[client].steps);
        for step in steps {
            let keys = step.action.keys();
            plan.clients[client].steps.push(step);
            if let Some(first) = keys.first()
                && random.chance(1, 2)
            {
                let keys = transaction_keys(plan, *first, random);
                let ago_ms = if random.chance(1, 4) { random.below(30) } else { spread(random, 1, plan.history_ms) };
                plan.clients[client].steps.push(Step { think_us: random.below(20_000), action: Action::Past { keys, ago_ms, checkpoint: false } });
            }
        }
    }
}

fn feed(plan: &mut Plan, horizon_us: u64, random: &mut Random) {
    if node::can(&plan.protocol).agrees() {
        return;
    }
    if random.chance(1, 5) {
        replicas(plan, horizon_us, random);
    }
    // A window that reaches over everything, but where positions are to be too old.
    plan.history_ms = if random.chance(3, 4) { 60_000 } else { random.between(200, 2_000) };
    for client in 0..plan.clients.len() {
        let steps = std::mem::take(&mut plan.clients[client].steps);
        for step in steps {
            plan.clients[client].steps.push(step);
            if random.chance(1, 2) {
                let again = random.chance(1, 6);
                plan.clients[client].steps.push(Step { think_us: random.below(10_000), action: Action::Feed { again } });
            }
        }
    }
}

fn checkpoints(plan: &mut Plan, horizon_us: u64, random: &mut Random) {
    past(plan, horizon_us, random);
    if node::can(&plan.protocol).agrees() {
        return;
    }
    plan.history_ms = random.between(30, 300);
    plan.checkpoints = Checkpoints { every_ms: spread(random, 20, 300), count: random.between(1, 12) };
    let reach_ms = plan.history_ms + (plan.checkpoints.count + 1) * plan.checkpoints.every_ms;
    for step in plan.clients.iter_mut().flat_map(|client| &mut client.steps) {
        if let Action::Past { ago_ms, checkpoint, .. } = &mut step.action {
            *ago_ms = random.below(reach_ms);
            // Some ask for moments that are not kept.
            *checkpoint = random.chance(7, 8);
        }
    }
    if random.chance(1, 3) {
        lost_disks(plan, horizon_us, random);
    }
}

fn rolled(plan: &mut Plan, horizon_us: u64, random: &mut Random) {
    if node::can(&plan.protocol).agrees() {
        return;
    }
    // A window that reaches over everything: what is kept is for the profile `past`.
    plan.history_ms = 60_000;
    for _ in 0..random.between(1, 3) {
        let client = random.below(plan.clients.len() as u64) as usize;
        let steps = &mut plan.clients[client].steps;
        let at = random.below(steps.len() as u64 + 1) as usize;
        let coordinator = random.chance(1, 3).then(|| Fate { doubted: false, answers: random.between(1, 40) as u32, phase: None });
        let action = Action::Rollback {
            ago_ms: spread(random, 1, horizon_us / 1000 + 100),
            stop_ms: spread(random, 50, 10_000),
            depending: false,
            ends: Ends { coordinator, kill: None },
        };
        steps.insert(at, Step { think_us: random.below(20_000), action });
    }
}

fn depending(plan: &mut Plan, horizon_us: u64, random: &mut Random) {
    if !node::can(&plan.protocol).knows_the_past {
        return;
    }
    rolled(plan, horizon_us, random);
    for step in plan.clients.iter_mut().flat_map(|client| &mut client.steps) {
        if let Action::Rollback { depending, .. } = &mut step.action {
            *depending = true;
        }
    }
}

/// Coordinators that are gone, or taken for gone, in each phase, and are taken over once or twice; servers that are killed then.
fn orphaned(plan: &mut Plan, horizon_us: u64, random: &mut Random) {
    if node::can(&plan.protocol).agrees() {
        return;
    }
    plan.history_ms = 60_000;
    // With trouble beside, few rollbacks come as far as to be written back.
    if random.chance(2, 3) {
        plan.faults.clear();
    }
    let client = random.below(plan.clients.len() as u64) as usize;
    let at = random.below(plan.clients[client].steps.len() as u64 + 1) as usize;
    let depending = node::can(&plan.protocol).knows_the_past && random.chance(1, 4);
    let first = Action::Rollback {
        ago_ms: spread(random, 1, horizon_us / 1000 + 100),
        stop_ms: spread(random, 500, 10_000),
        depending,
        ends: ends(plan, 5, random),
    };
    let mut steps = vec![Step { think_us: random.below(20_000), action: first }];
    for last in 0..random.between(1, 2) {
        // Where it is taken over at once, both are under way; where late, the time is over, or it is.
        let think_us = if random.chance(1, 2) { random.below(5_000) } else { spread(random, 1_000, 500_000) };
        let ends = if random.chance(1, 2) { ends(plan, 3 + last as u32, random) } else { Ends::default() };
        steps.push(Step { think_us, action: Action::TakeOver { stop_ms: spread(random, 500, 10_000), ends } });
    }
    plan.clients[client].steps.splice(at..at, steps);
}

/// What happens to a rollback in some phase of it.
fn ends(plan: &Plan, most: u32, random: &mut Random) -> Ends {
    let phase = PHASES[random.below(5) as usize].0;
    let fate = Fate { doubted: random.chance(1, 2), answers: random.below(u64::from(most)) as u32, phase: Some(phase) };
    let killed = plan.durability != Durability::Memory && random.chance(1, 2);
    let kill = Kill { server: any(plan, random), phase, down_us: spread(random, 1_000, 200_000) };
    // Whom it asks of that server does not answer: it is taken for dead itself.
    let fate = Fate { doubted: fate.doubted || killed, ..fate };
    Ends { coordinator: Some(fate), kill: killed.then_some(kill) }
}

/// Where one place decides it: what is written follows from another key.
fn tested(plan: &mut Plan, _: u64, random: &mut Random) {
    if !node::can(&plan.protocol).agrees() {
        return;
    }
    for client in 0..plan.clients.len() {
        let steps = std::mem::take(&mut plan.clients[client].steps);
        for mut step in steps {
            let target = match &step.action {
                Action::Put { items } if items.len() == 1 && random.chance(1, 2) => items[0].key,
                Action::Swap { key } | Action::Claim { key } => *key,
                // The bytes that a test has written are not those that the number in the record stands for.
                Action::Guarded { key, .. } => {
                    step.action = Action::Guarded { key: *key, expected: Expected::Version };
                    plan.clients[client].steps.push(step);
                    continue;
                }
                _ => {
                    plan.clients[client].steps.push(step);
                    continue;
                }
            };
            let others: Vec<usize> = (0..plan.keys.len()).filter(|key| *key != target && plan.partition(*key) == plan.partition(target)).collect();
            let Some(test) = others.get(random.below(others.len().max(1) as u64) as usize).copied() else {
                plan.clients[client].steps.push(step);
                continue;
            };
            if random.chance(2, 3) {
                plan.clients[client].steps.push(Step { think_us: step.think_us, action: get(test) });
                step.think_us = random.below(3_000);
            }
            step.action = Action::Test { test, target, absent: random.chance(1, 5), otherwise: random.chance(3, 4) };
            plan.clients[client].steps.push(step);
        }
    }
}

/// Where the protocol knows of one server: replicas under it, and trouble for those that lead.
fn replicas(plan: &mut Plan, horizon_us: u64, random: &mut Random) {
    if node::can(&plan.protocol).agrees() || node::can(&plan.protocol).most_replicas < 3 {
        return;
    }
    plan.replicas = pick(random, &[(85, 3), (10, 5), (5, 2)]);
    if plan.durability == Durability::Memory {
        plan.durability = Durability::Interval;
    }
    // A leader must be heard across the data center, with a flush on the way.
    let Plan { local, disk, .. } = plan;
    let round_us = 2 * (local.least_us + local.jitter_us) + disk.least_us + disk.jitter_us;
    plan.group.failover_us = spread(random, 40, 500).max(4 * round_us / 1000) * 1000;
    if random.chance(1, 2) {
        plan.group.keep_bytes = random.between(100, 2_000) as usize;
    }
    let all: Vec<ServerId> = plan.servers().filter(|server| server.replica > 0).collect();
    if let Some(worst_ms) = plan.clocks.iter().map(|clock| clock.offset_ms.abs()).max() {
        for server in all {
            let offset_ms = random.below(2 * worst_ms as u64 + 1) as i64 - worst_ms;
            let drift_ppm = if random.chance(1, 3) { random.below(2_001) as i64 - 1_000 } else { 0 };
            plan.clocks.push(ClockPlan { server, offset_ms, drift_ppm });
        }
    }
    let replicas = plan.replicas;
    for server in plan.faults.iter_mut().flat_map(|fault| fault.kind.servers_mut()) {
        server.replica = random.below(replicas.into()) as u8;
    }
    plan.faults.retain(|fault| !matches!(fault.kind, FaultKind::SlowLink { from: a, to: b, .. } | FaultKind::Break { a, b } if a == b));
    // Trouble comes to one partition again and again, or to any.
    let one = random.chance(2, 3).then(|| any(plan, random));
    for _ in 0..random.between(2, 12) {
        let server = ServerId { replica: random.below(replicas.into()) as u8, ..one.unwrap_or_else(|| any(plan, random)) };
        let from_us = random.below(horizon_us);
        let aimed = Moment::AIMED[random.below(Moment::AIMED.len() as u64) as usize];
        let moment = pick(random, &[(3, Moment::AtOnce), (1, aimed)]);
        let lasts_us = random.between(plan.group.failover_us / 4, 5 * plan.group.failover_us);
        let kind = match random.below(9) {
            0..=1 => FaultKind::Kill { server, moment },
            2..=3 => FaultKind::Pause { server },
            4..=6 => FaultKind::Isolate { server },
            7 => FaultKind::PowerLoss { server, flushed: random.chance(1, 4), moment },
            _ => FaultKind::SlowDisk { server, extra_us: spread(random, 1_000, 200_000) },
        };
        plan.faults.push(Fault { from_us, until_us: from_us + lasts_us, kind });
    }
    // All of a partition's servers in a data center, at about the same time.
    if random.chance(1, 6) {
        let (of, at_us) = (any(plan, random), random.below(horizon_us));
        for replica in 0..replicas {
            let (server, from_us) = (ServerId { replica, ..of }, at_us + random.below(20_000));
            let until_us = from_us + spread(random, 5_000, 400_000);
            plan.faults.push(Fault {
                from_us,
                until_us,
                kind: FaultKind::PowerLoss { server, flushed: random.chance(1, 4), moment: Moment::AtOnce },
            });
        }
    }
}

/// Disks are lost as soon as the one before has been replaced, and others are away meanwhile.
fn replaced(plan: &mut Plan, horizon_us: u64, random: &mut Random) {
    let group = node::can(&plan.protocol).agrees();
    if node::can(&plan.protocol).most_replicas < 3 || !plan.counters.is_empty() {
        return;
    }
    at_leisure(plan, horizon_us);
    let horizon_us = horizon_us.max(LONG_LOAD_US);
    match group {
        true => {
            plan.durability = if plan.durability == Durability::Memory { Durability::Interval } else { plan.durability };
            let alone = node::can(&plan.protocol).agrees_everywhere() && plan.data_centers > 2;
            plan.replicas = if alone { 1 } else { 3 };
            plan.faults.iter_mut().flat_map(|fault| fault.kind.servers_mut()).for_each(|server| server.replica %= plan.replicas);
            plan.clocks.retain(|clock| clock.server.replica < plan.replicas);
            if let Some(kept) = plan.options.get_mut("keep_entries") {
                *kept = toml::Value::Integer(random.between(4, 64) as i64);
            }
        }
        false => {
            replicas(plan, horizon_us, random);
            plan.replicas = plan.replicas.max(3);
        }
    }
    let one = any(plan, random);
    let mut at_us = random.between(100_000, 1_500_000);
    while at_us < horizon_us {
        let everywhere = node::can(&plan.protocol).agrees_everywhere();
        let dc = if everywhere { DcId(random.below(plan.data_centers.into()) as u8) } else { one.dc };
        let server = ServerId { dc, replica: random.below(plan.replicas.into()) as u8, ..one };
        let until_us = at_us + spread(random, 5_000, 800_000);
        plan.faults.push(Fault { from_us: at_us, until_us, kind: FaultKind::LostDisk { server } });
        // While it comes back, others die and are slow.
        for _ in 0..random.below(4) {
            let server = ServerId { replica: random.below(plan.replicas.into()) as u8, ..server };
            let from_us = until_us + spread(random, 1_000, 1_000_000);
            let kind = match random.below(4) {
                0..=1 => FaultKind::Kill { server, moment: Moment::AtOnce },
                2 => FaultKind::Pause { server },
                _ => FaultKind::PowerLoss { server, flushed: random.chance(1, 4), moment: Moment::AtOnce },
            };
            plan.faults.push(Fault { from_us, until_us: from_us + spread(random, 5_000, 800_000), kind });
        }
        at_us = until_us + spread(random, 100_000, 2_500_000);
    }
}

/// Long thoughts among the clients' steps, and servers that are soon asleep.
fn asleep(plan: &mut Plan, horizon_us: u64, random: &mut Random) {
    plan.sleeps_us = spread(random, 2_000, 400_000);
    for client in &mut plan.clients {
        for step in &mut client.steps {
            let longest_us = if random.chance(1, 12) { 4 * plan.sleeps_us.max(100_000) } else { 1 };
            step.think_us += random.below(longest_us);
        }
    }
    // A night that is longer than timestamps are reserved for.
    if random.chance(1, 3) {
        let night_us = spread(random, 5_000_000, 40_000_000);
        for client in &mut plan.clients {
            let middle = client.steps.len() / 2;
            if let Some(step) = client.steps.get_mut(middle) {
                step.think_us += night_us;
            }
        }
        let losses = if plan.durability == Durability::Memory { 0 } else { random.below(3) };
        for _ in 0..losses {
            let from_us = horizon_us / 2 + random.below(night_us);
            let kind = FaultKind::PowerLoss { server: any(plan, random), flushed: random.chance(1, 3), moment: Moment::AtOnce };
            plan.faults.push(Fault { from_us, until_us: from_us + spread(random, 1_000, 1_000_000), kind });
        }
    }
    // What is cut off sleeps on while others ask.
    if plan.data_centers > 1 && random.chance(1, 2) {
        let (from, to) = two_data_centers(plan, random);
        let from_us = random.below(horizon_us);
        let until_us = from_us + spread(random, 50_000, 3_000_000);
        plan.faults.push(Fault { from_us, until_us, kind: FaultKind::Cut { from, to, hold: random.chance(1, 3) } });
    }
}

/// All data centers begin with fewer partitions than the plan has. What lasts at a server is at one that is there from the beginning.
fn split(plan: &mut Plan, horizon_us: u64, random: &mut Random) {
    let rolls_back = |step: &Step| matches!(step.action, Action::Rollback { .. } | Action::TakeOver { .. });
    if !node::can(&plan.protocol).splits || plan.partitions == 1 || plan.clients.iter().any(|client| client.steps.iter().any(rolls_back)) {
        return;
    }
    if plan.durability == Durability::Memory {
        plan.durability = Durability::Interval;
    }
    let numbers: Vec<u16> = (1..plan.partitions).filter(|fewer| plan.partitions.is_multiple_of(*fewer)).collect();
    plan.split_from = numbers[random.below(numbers.len() as u64) as usize];
    let parts = plan.partitions / plan.split_from;
    only_at_first(plan, parts);
    let (together_us, spread_us) = (random.below(horizon_us), if random.chance(1, 3) { 300_000 } else { horizon_us });
    for dc in (0..plan.data_centers).map(DcId) {
        let from_us = if spread_us < horizon_us { together_us + random.below(spread_us) } else { random.below(horizon_us) };
        let until_us = from_us + spread(random, 5_000, 1_500_000);
        plan.faults.push(Fault { from_us, until_us, kind: FaultKind::Split { dc, killed: random.chance(1, 2) } });
    }
    for _ in 0..random.below(3) {
        let at = any(plan, random);
        let at = ServerId { partition: PartitionId(at.partition.0 - at.partition.0 % parts), ..at };
        let from_us = random.below(horizon_us);
        let kind = match random.chance(1, 2) {
            true => FaultKind::Kill { server: at, moment: Moment::AtOnce },
            false => FaultKind::PowerLoss { server: at, flushed: random.chance(1, 2), moment: Moment::AtOnce },
        };
        plan.faults.push(Fault { from_us, until_us: from_us + spread(random, 5_000, 300_000), kind });
    }
    if random.chance(1, 3) {
        replicas(plan, horizon_us, random);
        only_at_first(plan, parts);
    }
}

/// Faults that are of servers which come with a split into so many parts are of those that are split.
fn only_at_first(plan: &mut Plan, parts: u16) {
    for server in plan.faults.iter_mut().flat_map(|fault| fault.kind.servers_mut()) {
        server.partition.0 -= server.partition.0 % parts;
    }
    // Two places that are one now say nothing to each other.
    let alone = |kind: &FaultKind| {
        !matches!(kind, FaultKind::SlowLink { from, to, .. } if from == to) && !matches!(kind, FaultKind::Break { a, b } if a == b)
    };
    plan.faults.retain(|fault| alone(&fault.kind));
}

/// Servers that stand alone move, one or several, once or again and again.
fn moved(plan: &mut Plan, horizon_us: u64, random: &mut Random) {
    if plan.is_grouped() {
        return;
    }
    if plan.durability == Durability::Memory {
        plan.durability = Durability::Interval;
    }
    let one = any(plan, random);
    for _ in 0..random.between(1, 6) {
        let server = if random.chance(1, 2) { one } else { any(plan, random) };
        let from_us = random.below(horizon_us);
        let until_us = from_us + spread(random, 5_000, 500_000);
        // The clock there is about right, or off as one that nobody looks after.
        let most_us = if random.chance(3, 4) { 20_000 } else { 800_000 };
        let by_ms = spread(random, 1_000, most_us) as i64 / 1000;
        let by_ms = if random.chance(1, 3) { by_ms } else { -by_ms };
        plan.faults.push(Fault { from_us, until_us, kind: FaultKind::Move { server, by_ms } });
    }
}

/// Servers of one partition are drained one after the other, and several at once.
fn drained(plan: &mut Plan, horizon_us: u64, random: &mut Random) {
    if !node::can(&plan.protocol).agrees() {
        replicas(plan, horizon_us, random);
    }
    let one = any(plan, random);
    let everywhere = node::can(&plan.protocol).agrees_everywhere();
    for _ in 0..random.between(3, 16) {
        let dc = if everywhere { DcId(random.below(plan.data_centers.into()) as u8) } else { one.dc };
        let server = ServerId { dc, replica: random.below(plan.replicas.into()) as u8, ..one };
        let from_us = random.below(horizon_us);
        let until_us = from_us + spread(random, 10_000, 10 * plan.group.failover_us);
        plan.faults.push(Fault { from_us, until_us, kind: FaultKind::Drain { server } });
        // What it leads goes to somebody who is then not heard, or by ways that are slow.
        if random.chance(1, 2) {
            let server = ServerId { replica: random.below(plan.replicas.into()) as u8, ..server };
            let from_us = from_us + spread(random, 100, 50_000);
            let kind = match random.below(4) {
                0..=1 => FaultKind::Isolate { server },
                2 => FaultKind::Pause { server },
                _ => FaultKind::SlowServer { server, extra_us: spread(random, 1_000, 200_000) },
            };
            plan.faults.push(Fault { from_us, until_us: from_us + spread(random, 10_000, 2 * plan.group.failover_us), kind });
        }
    }
}

fn hurried(plan: &mut Plan, horizon_us: u64, random: &mut Random) {
    let serves = node::serves(&plan.protocol);
    let levels: Vec<Level> = Level::WORDS.into_iter().filter(|level| serves(*level) == Some(*level)).collect();
    let best = levels[random.below(levels.len() as u64) as usize];
    let (form, here) = (random.below(4), if random.chance(1, 4) { " here" } else { "" });
    let mut ms = |most| (spread(random, 1_000, most) / 1000).max(1);
    let entries = match form {
        0 => format!("{best} {}ms {}ms{here}; {best} {}ms; eventual {}ms", ms(300_000), ms(200_000), ms(50_000), ms(500_000)),
        1 => format!("{best} {}ms {}ms{here}; eventual", ms(100_000), ms(400_000)),
        2 => format!("{best} fresh {}ms{here}", ms(500_000)),
        _ => format!("{best} {}ms{here}; eventual fresh {}ms; eventual", ms(60_000), ms(200_000)),
    };
    let all = u64::from(plan.data_centers);
    let copies = match random.below(4) {
        0 => String::new(),
        1 => format!("; durable {all} {}ms; durable 1", spread(random, 1_000, 200_000) / 1000 + 1),
        2 => format!("; durable {} {}ms", random.between(1, all + 1), spread(random, 1_000, 400_000) / 1000 + 1),
        _ => {
            let (first, least) = (spread(random, 1_000, 60_000) / 1000 + 1, random.between(1, all));
            format!("; durable {all} {first}ms; durable {least} {}ms; durable 1 {}ms", 3 * first, 10 * first)
        }
    };
    // What is drawn can have an entry that is never reached.
    let drawn = ServiceLevel::parse(&format!("{entries}{copies}")).or_else(|_| ServiceLevel::parse(&entries));
    plan.service_level = drawn.ok().map(Arc::new);
    match random.below(3) {
        0 => lagging(plan, horizon_us, random),
        1 => slices(plan, horizon_us, random),
        _ => {}
    }
}

fn narrow(plan: &mut Plan, _: u64, random: &mut Random) {
    plan.padding = Spread { least_us: spread(random, 100, 20_000), jitter_us: spread(random, 1_000, 200_000) };
    if random.chance(1, 2) {
        plan.max_waiting = random.between(1, 4) as usize;
    }
}

/// The plan of `seed` for `protocol`, with `options` fixed and the rest drawn; a planted bug brings the profile and the load that it was made for.
pub fn plan(protocol: &str, options: &toml::Table, planted: Option<&str>, seed: u64) -> Plan {
    of_bug(planted).plan(protocol, options, planted, wants_counters(planted), seed)
}

/// The plan of `seed` for `protocol` with a load of counters.
pub fn counter_plan(protocol: &str, options: &toml::Table, planted: Option<&str>, seed: u64) -> Plan {
    ALL[0].plan(protocol, options, planted, true, seed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_profile_makes_plans_that_make_sense() {
        for protocol in rheostat_protocols::registry::names() {
            for profile in ALL {
                for (seed, counters) in (1..=40).flat_map(|seed| [(seed, false), (seed, true)]) {
                    let plan = profile.plan(protocol, &toml::Table::new(), None, counters, seed);
                    assert_eq!(Plan::parse(&plan.to_string()), Ok(plan), "{protocol} {} {seed}", profile.name);
                }
            }
        }
    }

    #[test]
    fn a_profile_is_found_by_its_name() {
        assert_eq!(named("alone").map(|profile| profile.name), Ok("alone"));
        assert!(named("allone").unwrap_err().contains("lagging"));
    }
}
