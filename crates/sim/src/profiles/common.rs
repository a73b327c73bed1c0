//! What several profiles use.

use crate::generate::{server, spread};
use crate::node;
use crate::plan::{Ends, Fate, FaultKind, Kill, PHASES, Plan, Transport};
use rheostat_core::DcId;
use rheostat_core::ids::{PartitionId, Place, ServerId};
use rheostat_core::random::Random;
use rheostat_core::store::Durability;

/// Any server of the plan, any of its partition's replicas.
pub(super) fn any(plan: &Plan, random: &mut Random) -> ServerId {
    ServerId { replica: random.below(plan.replicas.into()) as u8, ..server(plan, random) }
}

/// How long clients go on where a data center is alone, in microseconds.
pub(super) const LONG_LOAD_US: u64 = 9_000_000;

/// The same load over a longer time.
pub(super) fn at_leisure(plan: &mut Plan, horizon_us: u64) {
    let times = LONG_LOAD_US.div_ceil(horizon_us);
    plan.clients.iter_mut().for_each(|client| client.start_us *= times);
    plan.clients.iter_mut().flat_map(|client| &mut client.steps).for_each(|step| step.think_us *= times);
}

/// What is sent over a connection arrives, and every server has a disk.
pub(super) fn on_disks(plan: &mut Plan) {
    if plan.durability == Durability::Memory {
        plan.durability = Durability::Always;
    }
    plan.transport = Transport::Stream;
}

/// Servers come to stand in others' places: these had disks, what they had sent does not arrive any more, and all clocks are right.
pub(super) fn on_disks_with_right_clocks(plan: &mut Plan) {
    on_disks(plan);
    plan.clocks.clear();
    plan.faults.retain(|fault| !matches!(fault.kind, FaultKind::ClockJump { .. }));
}

/// What happens to a rollback in some phase of it.
pub(super) fn ends(plan: &Plan, most: u32, random: &mut Random) -> Ends {
    let phase = PHASES[random.below(5) as usize].0;
    let fate = Fate { doubted: random.chance(1, 2), answers: random.below(u64::from(most)) as u32, phase: Some(phase) };
    let killed = plan.durability != Durability::Memory && random.chance(1, 2);
    let kill = Kill { server: any(plan, random), phase, down_us: spread(random, 1_000, 200_000) };
    // Whom it asks of that server does not answer: it is taken for dead itself.
    let fate = Fate { doubted: fate.doubted || killed, ..fate };
    Ends { coordinator: Some(fate), kill: killed.then_some(kill) }
}

/// Whether a data center can die and be given up: each server of it stands alone, and others have everything too.
pub(super) fn can_die(plan: &Plan) -> bool {
    can_come(plan) && !node::can(&plan.protocol).agrees()
}

/// Whether another one can come: others have everything too.
pub(super) fn can_come(plan: &Plan) -> bool {
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
    held_by_all && plan.data_centers > 1 && node::can(&plan.protocol).lets_in
}

/// Any three data centers, if a data center can be out of reach for some of the others.
pub(super) fn three_data_centers(plan: &Plan, random: &mut Random) -> Option<[DcId; 3]> {
    if plan.data_centers < 3 || !can_die(plan) || !plan.counters.is_empty() {
        return None;
    }
    Some(any_three(plan, random))
}

pub(super) fn any_three(plan: &Plan, random: &mut Random) -> [DcId; 3] {
    let first = random.below(plan.data_centers.into()) as u8;
    let at = |step: u8| DcId((first + step) % plan.data_centers);
    if random.chance(1, 2) { [at(0), at(1), at(2)] } else { [at(0), at(2), at(1)] }
}
