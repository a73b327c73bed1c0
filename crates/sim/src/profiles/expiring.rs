//! Values that expire.

use super::common::at_leisure;
use super::servers::replicas;
use crate::generate::{pick, transaction_keys};
use crate::node;
use crate::plan::{Action, Expected, FaultKind, KeyIndex, Plan, Step};
use rheostat_core::DcId;
use rheostat_core::dial::{Groups, Level};
use rheostat_core::random::Random;

/// How far apart clocks are at most where much is to be judged by them, in milliseconds.
const NEAR_MS: i64 = 60;

/// A value that outlives the run lives for so long, in milliseconds.
const LONG_MS: u64 = 3_600_000;

/// Writes expire, and are read when they do.
pub(super) fn expiring(plan: &mut Plan, horizon_us: u64, random: &mut Random) {
    // Counters that expire are another matter.
    if !plan.counters.is_empty() {
        return;
    }
    let can = node::can(&plan.protocol);
    if !can.agrees() && random.chance(1, 5) {
        replicas(plan, horizon_us, random);
    }
    if random.chance(1, 4) {
        at_leisure(plan, horizon_us);
    }
    if random.chance(2, 3) {
        clocks_near_each_other(plan);
    }
    plan.history_ms = pick(random, &[(2, 0), (1, 100), (1, 1_500)]);
    let levels: Vec<Level> = plan.clients.iter().flat_map(|client| &client.steps).filter_map(|step| level_of(&step.action)).collect();
    let (data_centers, changed) = (plan.data_centers, can.agrees_everywhere() && random.chance(1, 2));
    for client in 0..plan.clients.len() {
        let steps = std::mem::take(&mut plan.clients[client].steps);
        let mut made = Vec::with_capacity(2 * steps.len());
        for step in steps {
            let Some(key) = written(&step.action).filter(|_| random.chance(1, 2)) else {
                made.push(step);
                continue;
            };
            let lives_ms = match pick(random, &[(6, 0), (5, 1), (2, 2), (1, 3)]) {
                0 => random.between(50, 300),
                1 => random.between(300, 1_200),
                2 => random.between(1_200, 6_000),
                _ => LONG_MS,
            };
            let action = match step.action {
                Action::Put { items } if items.len() == 1 && can.agrees() && random.chance(1, 3) => Action::Claim { key: items[0].key },
                // An expiry that is changed is not told apart by the value.
                Action::Guarded { key, expected: Expected::Value } if changed => Action::Guarded { key, expected: Expected::Version },
                action => action,
            };
            let action = match changed && random.chance(1, 4) {
                true => Action::Expire { key, lives_ms: Some(lives_ms).filter(|_| random.chance(3, 4)) },
                false => Action::Expiring { lives_ms, action: Box::new(action) },
            };
            made.push(Step { think_us: step.think_us, action });
            if lives_ms <= 1_200 && random.chance(1, 2) {
                if random.chance(1, 4) {
                    made.push(Step { think_us: 0, action: Action::Move { dc: DcId(random.below(data_centers.into()) as u8) } });
                }
                // Just before, and just after.
                let think_us = lives_ms.saturating_sub(random.below(lives_ms / 4 + 20)) * 1_000;
                made.push(Step { think_us, action: read(plan, key, &levels, random) });
                made.push(Step { think_us: random.below(100_000), action: read(plan, key, &levels, random) });
            }
        }
        if changed {
            let by_value = made.iter_mut().filter_map(|step| match &mut step.action {
                Action::Guarded { expected, .. } if *expected == Expected::Value => Some(expected),
                _ => None,
            });
            by_value.for_each(|expected| *expected = Expected::Version);
        }
        plan.clients[client].steps = made;
    }
}

/// The key that a write of one key, or a put, begins with, if what it writes can expire.
fn written(action: &Action) -> Option<KeyIndex> {
    match action {
        Action::Put { items } => (!items.iter().any(|item| item.delete)).then_some(items[0].key),
        Action::Swap { key } | Action::Claim { key } | Action::Guarded { key, .. } => Some(*key),
        _ => None,
    }
}

fn level_of(action: &Action) -> Option<Level> {
    if let Action::Get { level, .. } = action { Some(*level) } else { None }
}

fn read(plan: &Plan, key: KeyIndex, levels: &[Level], random: &mut Random) -> Action {
    let level = if levels.is_empty() { Level::Causal } else { levels[random.below(levels.len() as u64) as usize] };
    if random.chance(1, 4) {
        return Action::ReadTransaction { keys: transaction_keys(plan, key, random), level, groups: Groups::default() };
    }
    Action::Get { key, level, groups: Groups::default() }
}

/// What a value's life is judged by would be wider than its life.
fn clocks_near_each_other(plan: &mut Plan) {
    plan.clocks.iter_mut().for_each(|clock| clock.offset_ms %= NEAR_MS);
    for fault in &mut plan.faults {
        if let FaultKind::ClockJump { by_ms, .. } = &mut fault.kind {
            *by_ms %= NEAR_MS;
        }
    }
}
