//! Reads of the past, feeds of changes, checkpoints, and rollbacks.

use super::servers::{lost_disks, replicas};
use crate::generate::{spread, transaction_keys};
use crate::node;
use crate::plan::{Action, Ends, Fate, Plan, Step};
use rheostat_core::random::Random;
use rheostat_core::store::Checkpoints;

pub(super) fn past(plan: &mut Plan, _: u64, random: &mut Random) {
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

pub(super) fn feed(plan: &mut Plan, horizon_us: u64, random: &mut Random) {
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

pub(super) fn checkpoints(plan: &mut Plan, horizon_us: u64, random: &mut Random) {
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

pub(super) fn rolled(plan: &mut Plan, horizon_us: u64, random: &mut Random) {
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

pub(super) fn depending(plan: &mut Plan, horizon_us: u64, random: &mut Random) {
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
