//! Servers that are away, lose their disks, are replaced, move, are emptied of leaders, are split, sleep, and hurry.

use super::common::{LONG_LOAD_US, any, at_leisure, on_disks_with_right_clocks};
use super::ways::{lagging, slices};
use crate::generate::{pick, spread, two_data_centers};
use crate::node;
use crate::plan::{Action, ClockPlan, Fault, FaultKind, Moment, Plan, Step};
use rheostat_core::DcId;
use rheostat_core::dial::Level;
use rheostat_core::ids::{PartitionId, ServerId};
use rheostat_core::random::Random;
use rheostat_core::sla::ServiceLevel;
use rheostat_core::store::Durability;
use std::sync::Arc;

/// Members of groups that are away for long, leaders among them, while the others go on.
pub(super) fn away(plan: &mut Plan, horizon_us: u64, _: &mut Random) {
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

/// One disk of a partition at most: what only two servers have is lost with both.
pub(super) fn lost_disks(plan: &mut Plan, horizon_us: u64, random: &mut Random) {
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
        plan.faults.push(Fault { from_us, until_us: from_us + spread(random, 10_000, 1_000_000), kind: FaultKind::LostDisk { server } });
        // The others have different amounts of what it wrote.
        if plan.data_centers > 2 && random.chance(1, 2) {
            let to = DcId((server.dc.0 + 1 + random.below(u64::from(plan.data_centers) - 1) as u8) % plan.data_centers);
            let kind = FaultKind::Cut { from: server.dc, to, hold: false };
            plan.faults.push(Fault { from_us: from_us.saturating_sub(random.between(50_000, 1_000_000)), until_us: from_us, kind });
        }
    }
}

/// Where the protocol knows of one server: replicas under it, and trouble for those that lead.
pub(super) fn replicas(plan: &mut Plan, horizon_us: u64, random: &mut Random) {
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
pub(super) fn replaced(plan: &mut Plan, horizon_us: u64, random: &mut Random) {
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

/// All data centers begin with fewer partitions than the plan has. What lasts at a server is at one that is there from the beginning.
pub(super) fn split(plan: &mut Plan, horizon_us: u64, random: &mut Random) {
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
pub(super) fn moved(plan: &mut Plan, horizon_us: u64, random: &mut Random) {
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
pub(super) fn drained(plan: &mut Plan, horizon_us: u64, random: &mut Random) {
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

/// Long thoughts among the clients' steps, and servers that are soon asleep.
pub(super) fn asleep(plan: &mut Plan, horizon_us: u64, random: &mut Random) {
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

pub(super) fn hurried(plan: &mut Plan, horizon_us: u64, random: &mut Random) {
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
