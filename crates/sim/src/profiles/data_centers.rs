//! Data centers that die and are given up, and others that come.

use super::common::{any, any_three, at_leisure, can_come, ends, on_disks, on_disks_with_right_clocks, three_data_centers};
use crate::generate::spread;
use crate::node;
use crate::plan::{Action, Ends, Fault, FaultKind, Moment, Plan, Step};
use rheostat_core::DcId;
use rheostat_core::ids::ServerId;
use rheostat_core::random::Random;
use rheostat_core::store::Durability;

pub(super) fn dead(plan: &mut Plan, horizon_us: u64, random: &mut Random) {
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

/// A data center dies as in [`dead`], is given up, and another one has its place, while clients go on.
pub(super) fn joined(plan: &mut Plan, horizon_us: u64, random: &mut Random) {
    // What counters do is not checked yet where updates are lost with a data center and what rests on them is not.
    if !can_come(plan) || !plan.counters.is_empty() {
        return;
    }
    // A group goes on, and lets others in, while a majority is left; of two members the one that is left knows everything.
    if node::can(&plan.protocol).agrees() && plan.data_centers == 2 && plan.replicas > 1 {
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
pub(super) fn added(plan: &mut Plan, horizon_us: u64, random: &mut Random) {
    if !can_come(plan) {
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

/// Coordinators that are gone, or taken for gone, in each phase, and are taken over once or twice; servers that are killed then.
pub(super) fn orphaned(plan: &mut Plan, horizon_us: u64, random: &mut Random) {
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
