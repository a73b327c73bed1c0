//! A seed becomes a plan whose load is of counters.
//!
//! Cluster, network, clocks and faults are drawn as for other plans; from sources of their own come the counters, who changes them, and whose rights are taken over. Bounds are tight and amounts are
//! small, so that rights run out in one place while others have some.
//!
//! All counters lie in one partition, and what goes wrong elsewhere shows nothing of them: so faults come to its servers more often than to others, while the load goes on, and those that die do so more often than not
//! just when a client has asked them for something or has been answered. Clients write keys and go from data center to data center between their updates, so that an update can have a past that it must wait for.

use crate::generate::{general_plan, get, pick, put};
use crate::plan::{Action, ClientPlan, CounterPlan, FaultKind, Moment, Plan, Step};
use rheostat_core::DcId;
use rheostat_core::counter::{Direction, NewCounter};
use rheostat_core::ids::{PartitionId, ServerId};
use rheostat_core::random::Random;
use rheostat_core::slots::partition_of;
use rheostat_core::store::Durability;
use rheostat_counters::Rebalance;
use std::collections::BTreeMap;

/// Of a plan's other clients so many stay, with so many steps.
const OTHERS: usize = 1;
const OTHERS_STEPS: usize = 12;

/// Seeds that leave such a rest, divided by 8, have a load of tallies.
const TALLIED: [u64; 3] = [3, 4, 6];

/// How long an update may look for rights, in milliseconds: longer than the slowest way there and back.
const DEADLINE_MS: u64 = 6_000;

/// The longest that a server may be made to wait for many rounds, in microseconds: one that hears nobody must not use up the time of all.
const LONGEST_US: u64 = 6_000_000;

/// The limit on clocks that no drawn clock meets, and what a message needs and clocks drift, in milliseconds.
const WIDE_MS: u64 = 60_000;
const SLACK_MS: i64 = 300;

/// The plan whose load is of counters, and about when that will be done.
pub(crate) fn plan(protocol: &str, options: &toml::Table, planted: Option<&str>, seed: u64) -> (Plan, u64) {
    let (mut plan, load_us) = general_plan(protocol, options, planted, seed);
    let mut random = Random::new(seed ^ 0xC0_0417_5EED_0000);
    plan.clients.truncate(OTHERS);
    plan.clients.iter_mut().for_each(|client| client.steps.truncate(OTHERS_STEPS));
    for action in plan.clients.iter_mut().flat_map(|client| &mut client.steps).map(|step| &mut step.action) {
        if let Action::Adopt { .. } = action {
            *action = Action::Fresh;
        }
    }
    if plan.durability == Durability::Memory {
        plan.durability = if random.chance(1, 2) { Durability::Interval } else { Durability::Always };
    }
    // Loads are short: what goes wrong must go wrong early, or nobody sees it.
    let horizon_us = random.between(400_000, 2_500_000);
    for fault in &mut plan.faults {
        let lasts_us = fault.until_us - fault.from_us;
        fault.from_us = (u128::from(fault.from_us) * u128::from(horizon_us) / u128::from(load_us.max(100_000))) as u64;
        fault.until_us = fault.from_us + lasts_us;
    }
    plan.counting.deadline_ms = DEADLINE_MS;
    plan.counting.ask_timeout_ms = random.between(30, 900);
    plan.counting.balance_ms = random.between(5, 200);
    plan.counting.rebalance = pick(&mut random, &[(40, Rebalance::Forecast), (40, Rebalance::Paper), (20, Rebalance::Off)]);
    let partition = PartitionId(random.below(plan.partitions.into()) as u16);
    counters(&mut plan, partition, &mut random.fork());
    match TALLIED.contains(&(seed % 8)) {
        true => tallies(&mut plan, partition, horizon_us, &mut random.fork()),
        false => clients(&mut plan, horizon_us, &mut random.fork()),
    }
    aim(&mut plan, partition, &mut random.fork());
    reclaims(&mut plan, horizon_us, &mut random.fork());
    let_majorities_agree(&mut plan);
    if crate::node::can(protocol).keeps_bounds {
        // An operation without a bound takes as many rounds as it takes, a counter's takes two of those, and a server waits for all of them.
        let ways = plan.delays.iter().map(|delay| delay.delay).chain([plan.local, plan.near]);
        let way_us = ways.map(|way| way.least_us + way.jitter_us).max().unwrap_or(0);
        let longest_us = (30 * way_us + 20 * (plan.disk.least_us + plan.disk.jitter_us)).min(LONGEST_US);
        plan.server_timeout_us = plan.server_timeout_us.max(longest_us);
        plan.counting.deadline_ms = plan.counting.deadline_ms.max(longest_us / 1000);
    }
    (plan, horizon_us)
}

/// Where servers agree on counters, a majority of each group must take what the others stamp, or nothing is ever decided: the limit on clocks is a wide one where it might cut them apart.
/// So must one of those that are there before others come.
pub(crate) fn let_majorities_agree(plan: &mut Plan) {
    if !plan.is_grouped() {
        return;
    }
    let everywhere = crate::node::can(&plan.protocol).agrees_everywhere();
    let reserved: Vec<DcId> = plan.reserved().collect();
    let mut groups: BTreeMap<(PartitionId, Option<DcId>), Vec<ServerId>> = BTreeMap::new();
    for server in plan.servers().filter(|server| !reserved.contains(&server.dc)) {
        groups.entry((server.partition, (!everywhere).then_some(server.dc))).or_default().push(server);
    }
    for group in groups.values().filter(|group| group.len() > 1) {
        let mut ranges: Vec<(i64, i64)> = group.iter().map(|server| clock_range(plan, *server)).collect();
        ranges.sort_unstable_by_key(|(_, most_ms)| *most_ms);
        let majority = ranges.len() / 2 + 1;
        let apart_ms = |those: &[(i64, i64)]| {
            those.iter().map(|(_, most)| *most).max() > those.iter().map(|(least, _)| least + plan.max_ahead_ms as i64 - SLACK_MS).min()
        };
        if ranges.windows(majority).all(apart_ms) {
            plan.max_ahead_ms = WIDE_MS;
        }
    }
}

/// How far the clock of `server` is ahead of true time, at least and at most, in milliseconds, as long as nothing heals it.
fn clock_range(plan: &Plan, server: ServerId) -> (i64, i64) {
    let offset_ms = plan.clocks.iter().find(|clock| clock.server == server).map_or(0, |clock| clock.offset_ms);
    let jumps = plan.faults.iter().filter_map(|fault| match fault.kind {
        FaultKind::ClockJump { server: jumps, by_ms } if jumps == server => Some(by_ms),
        _ => None,
    });
    jumps.fold((offset_ms, offset_ms), |(least, most), by_ms| (least + by_ms.min(0), most + by_ms.max(0)))
}

/// Lets faults come to `partition`: those of every second of the others, to all of its servers alike. Servers that die do so at a moment that matters.
fn aim(plan: &mut Plan, partition: PartitionId, random: &mut Random) {
    let moved: Vec<bool> = (0..plan.partitions).map(|_| random.chance(1, 2)).collect();
    let aimed = |server: &mut ServerId| {
        if moved[usize::from(server.partition.0)] {
            server.partition = partition;
        }
    };
    let moment = |random: &mut Random, other: Moment| pick(random, &[(2, other), (2, Moment::Asked), (1, Moment::Answered)]);
    for fault in &mut plan.faults {
        let mut servers = fault.kind.servers_mut();
        // Inside a data center a way leads from one partition to another, between data centers both ends are of one, and it stays so.
        if !matches!(servers.as_slice(), [a, b] if a.dc == b.dc) {
            servers.iter_mut().for_each(|server| aimed(server));
        }
        if let Some(at) = fault.kind.moment_mut() {
            *at = moment(random, *at);
        }
    }
}

/// Up to three counters of one partition, so that they can be changed together.
fn counters(plan: &mut Plan, partition: PartitionId, random: &mut Random) {
    let count = random.between(1, 3) as usize;
    let here = |name: &String| partition_of(name.as_bytes(), plan.partitions) == partition;
    let names: Vec<String> = (0..).map(|number| format!("n{number}")).filter(here).take(count).collect();
    for name in names {
        let room = random.between(2, 60) as i64;
        let (lower, upper, initial) = match random.below(10) {
            0..=5 => (Some(0), None, room),
            6 => (None, Some(0), -room),
            7 | 8 => (Some(0), Some(room), random.between(0, room as u64) as i64),
            _ => (None, None, 0),
        };
        let bounded = lower.is_some() || upper.is_some();
        let mut placement: Vec<u32> = Vec::new();
        if bounded && random.chance(1, 3) {
            placement = (0..plan.data_centers).map(|_| random.below(3) as u32).collect();
            if placement.iter().all(|weight| *weight == 0) {
                placement[0] = 1;
            }
        }
        plan.counters.push(CounterPlan { name, counter: NewCounter { lower, upper, initial, placement } });
    }
}

fn clients(plan: &mut Plan, horizon_us: u64, random: &mut Random) {
    let count = random.between(2, 6);
    let mix = [
        (random.between(20, 60), 0),
        (random.between(0, 40), 1),
        (random.between(5, 25), 2),
        (random.between(0, 10), 3),
        (random.below(10), 4),
        (random.below(4), 5),
        (random.below(12), 6),
        (random.below(12), 7),
        (random.below(6), 8),
    ];
    // Some are only ever used up: what a session reads of them must go one way.
    let up = if random.chance(1, 4) { 0 } else { random.between(10, 60) };
    let named = random.below(5);
    for _ in 0..count {
        let dc = DcId(random.below(plan.data_centers.into()) as u8);
        let start_us = random.below(horizon_us / 3);
        let steps = random.between(5, 40);
        let think_us = horizon_us / steps;
        let mut client = ClientPlan { dc, start_us, steps: Vec::new() };
        for _ in 0..steps {
            let counter = random.below(plan.counters.len() as u64) as usize;
            let amount = |random: &mut Random| {
                let size = if random.chance(1, 6) { random.between(1, 30) } else { random.between(1, 6) } as i64;
                if random.chance(up, 100) { size } else { -size }
            };
            let is_named = random.chance(named, 5);
            let action = match pick(random, &mix) {
                0 => Action::Add { changes: vec![(counter, amount(random))], global: false, named: is_named },
                1 => Action::Add { changes: vec![(counter, amount(random))], global: true, named: is_named },
                2 => Action::Value { counter },
                3 if plan.counters.len() > 1 => {
                    let size = random.between(1, 5) as i64;
                    let other = (counter + 1) % plan.counters.len();
                    let back = if up == 0 { -size } else { size };
                    Action::Add { changes: vec![(counter, -size), (other, back)], global: random.chance(1, 2), named: is_named }
                }
                4 if plan.counters[counter].counter.lower.is_some() => {
                    let to = DcId(random.below(plan.data_centers.into()) as u8);
                    Action::Give { counter, to, direction: Direction::Down, amount: random.between(1, 8) }
                }
                5 => Action::Fresh,
                6 => put(random.below(plan.keys.len() as u64) as usize),
                7 => Action::Move { dc: DcId(random.below(plan.data_centers.into()) as u8) },
                8 => get(random.below(plan.keys.len() as u64) as usize),
                _ => Action::Value { counter },
            };
            client.steps.push(Step { think_us: random.below(2 * think_us), action });
        }
        plan.clients.push(client);
    }
}

/// Two counters of which each value says what is in it, changed alone and together, and read together with keys by sessions that travel; and now and then a client that makes a counter of its own and takes
/// it along.
fn tallies(plan: &mut Plan, partition: PartitionId, horizon_us: u64, random: &mut Random) {
    let here = |name: &String| partition_of(name.as_bytes(), plan.partitions) == partition;
    let names: Vec<String> = (0..).map(|number| format!("t{number}")).filter(here).take(5).collect();
    let first = plan.counters.len();
    plan.counters.extend(names.iter().take(2).map(|name| CounterPlan { name: name.clone(), counter: NewCounter::default() }));
    let tallies = [first, first + 1];
    let dc = |random: &mut Random| DcId(random.below(plan.data_centers.into()) as u8);
    let (mut bits, count) = ([0u32; 2], random.between(2, 6));
    let named = random.below(3);
    let mix = [
        (random.between(15, 40), 0),
        (random.between(0, 25), 1),
        (random.between(10, 30), 2),
        (random.between(0, 10), 3),
        (random.between(0, 10), 4),
        (random.between(5, 25), 5),
        (random.between(0, 15), 6),
        (random.between(0, 20), 7),
        (random.below(5), 8),
        (random.below(12), 9),
    ];
    for _ in 0..count {
        let (begins, start_us) = (dc(random), random.below(horizon_us / 3));
        let steps = random.between(8, 40);
        let mut client = ClientPlan { dc: begins, start_us, steps: Vec::new() };
        for _ in 0..steps {
            let (one, key) = (random.below(2) as usize, random.below(plan.keys.len() as u64) as usize);
            let kind = pick(random, &mix);
            let adds: &[usize] = match kind {
                0 => &tallies[one..=one],
                1 => &tallies,
                _ => &[],
            };
            let room = adds.iter().all(|tally| bits[tally - first] < 60);
            let action = match kind {
                0 | 1 if room => {
                    let change = |tally: &usize| {
                        bits[tally - first] += 1;
                        (*tally, 1i64 << (bits[tally - first] - 1))
                    };
                    Action::Add { changes: adds.iter().map(change).collect(), global: random.chance(1, 4), named: random.chance(named, 3) }
                }
                2 => {
                    let keys = if random.chance(1, 2) { vec![key] } else { Vec::new() };
                    Action::Together { counters: tallies.to_vec(), keys }
                }
                3 => Action::Value { counter: tallies[one] },
                4 => Action::Look { counter: tallies[one] },
                5 => put(key),
                6 => get(key),
                7 => Action::Move { dc: dc(random) },
                8 => Action::Fresh,
                9 if first > 0 => {
                    let counter = random.below(first as u64) as usize;
                    let size = random.between(1, 4) as i64;
                    Action::Add {
                        changes: vec![(counter, if random.chance(1, 3) { size } else { -size })],
                        global: random.chance(1, 2),
                        named: false,
                    }
                }
                _ => Action::Together { counters: tallies.to_vec(), keys: vec![key] },
            };
            client.steps.push(Step { think_us: random.below(2 * horizon_us / steps), action });
        }
        plan.clients.push(client);
    }
    if crate::node::level(&plan.protocol) == rheostat_core::dial::Level::Eventual || plan.may_lose_acknowledged() || !random.chance(1, 2) {
        return;
    }
    let counter = plan.counters.len();
    let own = NewCounter { lower: Some(0), initial: random.between(10, 90) as i64, ..NewCounter::default() };
    plan.counters.push(CounterPlan { name: names[2].clone(), counter: own });
    let mut client =
        ClientPlan { dc: dc(random), start_us: random.below(horizon_us / 2), steps: vec![Step { think_us: 0, action: Action::Make { counter } }] };
    for _ in 0..random.between(3, 12) {
        let action = match random.below(5) {
            0 | 1 => Action::Move { dc: dc(random) },
            2 | 3 => {
                Action::Add { changes: vec![(counter, -(random.between(1, 3) as i64))], global: random.chance(1, 2), named: random.chance(1, 2) }
            }
            _ => Action::Look { counter },
        };
        client.steps.push(Step { think_us: random.below(horizon_us / 8), action });
    }
    plan.clients.push(client);
}

/// Data centers whose rights are taken over: while their server is down, or though it is not.
fn reclaims(plan: &mut Plan, horizon_us: u64, random: &mut Random) {
    if plan.data_centers == 1 || !random.chance(2, 5) || plan.counters.iter().all(|counter| !counter.is_made()) {
        return;
    }
    let partition = plan.place(&Action::Value { counter: 0 });
    let down: Vec<(DcId, u64, u64)> = plan
        .faults
        .iter()
        .filter_map(|fault| match fault.kind {
            FaultKind::Kill { server, .. } | FaultKind::PowerLoss { server, .. } if server.partition == partition => {
                Some((server.dc, fault.from_us, fault.until_us))
            }
            _ => None,
        })
        .collect();
    let (gone, at_us) = match down.is_empty() || random.chance(1, 3) {
        true => (DcId(random.below(plan.data_centers.into()) as u8), random.below(horizon_us)),
        false => {
            let (dc, from_us, until_us) = down[random.below(down.len() as u64) as usize];
            (dc, from_us + random.below((until_us - from_us).max(1)))
        }
    };
    let by = DcId((gone.0 + random.between(1, u64::from(plan.data_centers) - 1) as u8) % plan.data_centers);
    let counters = (0..plan.counters.len()).filter(|place| plan.counters[*place].is_made());
    let steps = counters.map(|counter| Step { think_us: 1_000, action: Action::Reclaim { counter, gone } }).collect();
    plan.clients.push(ClientPlan { dc: by, start_us: at_us, steps });
}
