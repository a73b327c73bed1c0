//! Ways that are slow, cut or narrow, clocks that are set, and loads that are long.

use super::common::{any, at_leisure, three_data_centers};
use crate::generate::{get, pick, put, several, spread, transaction_keys, two_data_centers, two_servers_inside};
use crate::node;
use crate::plan::{Action, Expected, Fault, FaultKind, Moment, Plan, Spread, Step};
use rheostat_core::DcId;
use rheostat_core::dial::{Groups, Level};
use rheostat_core::ids::{PartitionId, ServerId};
use rheostat_core::random::Random;
use rheostat_core::store::Durability;

pub(super) fn alone(plan: &mut Plan, horizon_us: u64, random: &mut Random) {
    at_leisure(plan, horizon_us);
    let alone = DcId(random.below(plan.data_centers.into()) as u8);
    let (from_us, lasts_us, hold) = (random.between(200_000, 2_500_000), random.between(6_000_000, 10_000_000), random.chance(1, 3));
    for other in (0..plan.data_centers).map(DcId).filter(|other| *other != alone) {
        for (from, to) in [(alone, other), (other, alone)] {
            plan.faults.push(Fault { from_us, until_us: from_us + lasts_us, kind: FaultKind::Cut { from, to, hold } });
        }
    }
}

pub(super) fn parted(plan: &mut Plan, horizon_us: u64, random: &mut Random) {
    let Some([from, to, _]) = three_data_centers(plan, random) else { return };
    at_leisure(plan, horizon_us);
    let (from_us, lasts_us) = (random.between(200_000, 1_500_000), random.between(5_000_000, 9_000_000));
    plan.faults.push(Fault { from_us, until_us: from_us + lasts_us, kind: FaultKind::Cut { from, to, hold: random.chance(1, 3) } });
    if random.chance(1, 2) {
        plan.faults.push(Fault { from_us, until_us: from_us + lasts_us, kind: FaultKind::Cut { from: to, to: from, hold: false } });
    }
}

pub(super) fn lagging(plan: &mut Plan, horizon_us: u64, random: &mut Random) {
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

pub(super) fn slices(plan: &mut Plan, horizon_us: u64, random: &mut Random) {
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

pub(super) fn bursts(plan: &mut Plan, horizon_us: u64, random: &mut Random) {
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

pub(super) fn narrow(plan: &mut Plan, _: u64, random: &mut Random) {
    plan.padding = Spread { least_us: spread(random, 100, 20_000), jitter_us: spread(random, 1_000, 200_000) };
    if random.chance(1, 2) {
        plan.max_waiting = random.between(1, 4) as usize;
    }
}

/// Where one place decides it: what is written follows from another key.
pub(super) fn tested(plan: &mut Plan, _: u64, random: &mut Random) {
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
