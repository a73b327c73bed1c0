//! The choice of steps within a latency bound (Algorithms 1 and 2, dCON): as many writes as time allows, in the order of what they do for consistency.

use super::costs::Price;
use super::steps::{Condition, STEPS, Stage};

/// What is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sort {
    /// A read.
    Read,
    /// A write.
    Write,
}

/// What waits here when the choice is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Standing {
    /// Whether a quorum can be reached. Condition ⓒ.
    pub connected: bool,
    /// Whether a replica has failed. Condition ⓓ.
    pub replica_failed: bool,
    /// Writes that a quorum has and that are in no batch. Conditions ⓔ and ⓗ: b-list and b-file.
    pub buffered: u32,
    /// Writes that are decided and not made. Condition ⓕ: p-list.
    pub pending: u32,
    /// Writes that only this server has. Condition ⓖ: bl-file.
    pub logged: u32,
    /// Whether the b-list has no space. Not condition ⓘ.
    pub buffer_full: bool,
    /// Whether there is something to compact. Condition ⓚ.
    pub compactable: bool,
}

/// The steps that are taken, and for how many writes.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Choice {
    /// A bit per step, from step 1 at bit 0.
    pub steps: u32,
    /// Decided writes that are made.
    pub executed: u32,
    /// Buffered writes that are coordinated and made; of a write, it itself is one of them.
    pub coordinated: u32,
    /// Logged writes that are transmitted, coordinated and made.
    pub transmitted: u32,
    /// What it costs, in microseconds.
    pub cost_us: f64,
}

const fn bits(steps: &[u8]) -> u32 {
    let (mut bits, mut at) = (0, 0);
    while at < steps.len() {
        bits |= 1 << (steps[at] - 1);
        at += 1;
    }
    bits
}

/// The steps of `stage` whose conditions hold, when there is something to be done in it.
fn steps_of(stage: Stage, sort: Sort, standing: &Standing) -> u32 {
    let taken = |condition: &Condition| holds(*condition, sort, standing);
    STEPS.iter().filter(|step| step.stage == stage && step.needs.iter().all(taken)).fold(0, |bits, step| bits | 1 << (step.number - 1))
}

/// Whether a condition of Table II holds. What goes through a stage is there for the next one.
fn holds(condition: Condition, sort: Sort, standing: &Standing) -> bool {
    match condition {
        Condition::Write => sort == Sort::Write,
        Condition::Read => sort == Sort::Read,
        Condition::Connected => standing.connected,
        Condition::CutOff => !standing.connected,
        Condition::ReplicaFailed => standing.replica_failed,
        Condition::Buffered | Condition::Pending | Condition::PendingSpace => true,
        Condition::Logged => standing.logged > 0,
        // b-list and b-file are one here.
        Condition::Overflowed => false,
        Condition::BufferSpace => !standing.buffer_full,
        Condition::BufferFull => standing.buffer_full,
        Condition::Compactable => standing.compactable,
    }
}

impl Choice {
    /// Whether step `number` is taken.
    pub fn has(&self, number: u8) -> bool {
        self.steps & bits(&[number]) != 0
    }
}

/// What is chosen with: k and b of every step, by number from 1, and time that is left.
struct Budget<'a> {
    costs: &'a [Price; 19],
    left_us: f64,
    choice: Choice,
}

impl Budget<'_> {
    fn sum(&self, steps: u32, part: impl Fn(Price) -> f64) -> f64 {
        let mut sum = 0.0;
        let mut rest = steps;
        while rest != 0 {
            sum += part(self.costs[rest.trailing_zeros() as usize]);
            rest &= rest - 1;
        }
        sum
    }

    /// Takes `steps` for as many of `most` writes as fit; says how many. What was taken before costs no second b.
    fn take(&mut self, steps: u32, most: u32) -> u32 {
        if most == 0 {
            return 0;
        }
        let fixed = self.sum(steps & !self.choice.steps, |(_, b)| b);
        let each = self.sum(steps, |(k, _)| k);
        let left = self.left_us - fixed;
        let fits = match (left < 0.0, each > 0.0) {
            (true, _) => 0,
            (false, true) => ((left / each) as u32).min(most),
            (false, false) => most,
        };
        if fits > 0 {
            self.spend(steps, fixed + each * f64::from(fits));
        }
        fits
    }

    fn spend(&mut self, steps: u32, us: f64) {
        self.choice.steps |= steps;
        self.choice.cost_us += us;
        self.left_us -= us;
    }
}

/// The steps for an operation that may take `bound_us` (`None`: any time), with `costs` of each step; `answer_us` is what the answer takes to its client.
pub fn choose(sort: Sort, bound_us: Option<u32>, standing: &Standing, costs: &[Price; 19], answer_us: f64) -> Choice {
    let left_us = bound_us.map_or(f64::INFINITY, f64::from) - answer_us;
    let mut budget = Budget { costs, left_us, choice: Choice::default() };
    let of = |stage| steps_of(stage, sort, standing);
    let from_log = bits(&[3]);
    // What is always done (Algorithm 1), whatever it takes.
    let least = match sort {
        Sort::Read => of(Stage::Acquisition),
        Sort::Write if standing.connected => of(Stage::Reception) & !from_log | of(Stage::Transmission),
        Sort::Write => of(Stage::Reception),
    };
    let us = budget.sum(least, |(k, b)| k + b);
    budget.spend(least, us);
    // Algorithm 2, what contributes most first.
    let execution = of(Stage::Execution);
    budget.choice.executed = budget.take(execution, standing.pending);
    // What is behind others in the order is not made before them.
    let in_turn = budget.choice.executed == standing.pending;
    if standing.connected && in_turn {
        let coordination = of(Stage::Coordination) | execution;
        budget.choice.coordinated = budget.take(coordination, standing.buffered + u32::from(sort == Sort::Write));
        budget.choice.transmitted = budget.take(from_log | of(Stage::Transmission) | coordination, standing.logged);
    }
    if standing.compactable {
        budget.take(of(Stage::Compaction), 1);
    }
    budget.choice
}

#[cfg(test)]
mod tests {
    use super::super::steps::starts;
    use super::*;
    use rheostat_core::random::Random;

    /// As on a path, where nothing is there that was neither waiting nor came by the steps before.
    fn holds_on_a_path(condition: Condition, sort: Sort, standing: &Standing, coordinated: bool) -> bool {
        match condition {
            Condition::Buffered => standing.buffered > 0 || sort == Sort::Write || standing.logged > 0,
            Condition::Pending => standing.pending > 0 || coordinated,
            Condition::Compactable => false,
            _ => holds(condition, sort, standing),
        }
    }

    /// The most writes that any legal path makes within the bound, each number of writes tried.
    fn best(sort: Sort, bound_us: u32, standing: &Standing, costs: &[(f64, f64); 19]) -> u32 {
        let mut best = 0;
        let mut open: Vec<Vec<u8>> = starts(sort == Sort::Read).iter().map(|first| vec![*first]).collect();
        while let Some(path) = open.pop() {
            let step = STEPS[usize::from(path[path.len() - 1]) - 1];
            let coordinated = path.contains(&16);
            if !step.needs.iter().all(|condition| holds_on_a_path(*condition, sort, standing, coordinated)) {
                continue;
            }
            // Where a replica has failed, the p-file is not optional.
            if step.number == 16 && standing.replica_failed && !path.contains(&15) {
                continue;
            }
            if sort == Sort::Read && step.number == 19 || sort == Sort::Write && step.ends_write {
                best = best.max(most_on(&path, sort, bound_us, standing, costs));
            }
            for next in step.then.iter().filter(|next| sort == Sort::Read || **next != 19) {
                open.push([path.as_slice(), &[*next]].concat());
            }
        }
        best
    }

    /// No order among writes is kept to: a path may leave out whatever costs it too much.
    fn most_on(path: &[u8], sort: Sort, bound_us: u32, standing: &Standing, costs: &[(f64, f64); 19]) -> u32 {
        let has = |number: u8| path.contains(&number);
        let own = u32::from(sort == Sort::Write);
        let buffered = if has(16) { standing.buffered + own } else { 0 };
        let logged = if has(3) { standing.logged } else { 0 };
        let mut most = 0;
        for executed in 0..=standing.pending {
            for coordinated in 0..=buffered {
                for transmitted in 0..=logged {
                    let later = coordinated + transmitted;
                    if later > 0 && (!has(16) || !has(17)) {
                        continue;
                    }
                    let cost: f64 = path
                        .iter()
                        .map(|number| {
                            let (k, b) = costs[usize::from(*number) - 1];
                            let n = match number {
                                1 | 2 | 19 => 1,
                                3 => transmitted,
                                4..=7 => transmitted + own,
                                8..=16 => later,
                                17 => executed + later,
                                _ => 0,
                            };
                            k * f64::from(n) + b
                        })
                        .sum();
                    if cost <= f64::from(bound_us) {
                        most = most.max(if has(17) { executed + later } else { 0 });
                    }
                }
            }
        }
        most
    }

    /// The factor is one: a write of a later group goes through every step that one of an earlier group does, and more, so nothing that is left out makes room for as much.
    #[test]
    fn greedy_makes_as_many_writes_as_the_best_path() {
        let mut random = Random::new(7);
        for _ in 0..3_000 {
            let mut costs = [(0.0, 0.0); 19];
            for cost in &mut costs {
                *cost = (random.below(6) as f64, random.below(12) as f64);
            }
            let standing = Standing {
                connected: random.chance(4, 5),
                replica_failed: random.chance(1, 5),
                buffered: random.below(5) as u32,
                pending: random.below(5) as u32,
                logged: random.below(4) as u32,
                buffer_full: random.chance(1, 4),
                compactable: false,
            };
            let sort = if random.chance(1, 2) { Sort::Read } else { Sort::Write };
            let bound_us = random.below(260) as u32;
            let choice = choose(sort, Some(bound_us), &standing, &costs, 0.0);
            let made = choice.executed + choice.coordinated + choice.transmitted;
            let best = best(sort, bound_us, &standing, &costs);
            // The exhaustive search may pay a step's b twice where a path goes through it for nothing; greedy never does.
            assert!(made >= best, "{sort:?} within {bound_us}: {choice:?} makes {made}, a path makes {best}: {standing:?} {costs:?}");
            let least = choose(sort, Some(0), &standing, &costs, 0.0).cost_us;
            assert!(choice.cost_us <= f64::from(bound_us).max(least) + 1e-9, "{choice:?} does not fit into {bound_us}");
        }
    }

    /// Where it is worse than another path, by another measure: writes that only this server has are left to it where there is time to bring them to a majority and none to coordinate them.
    #[test]
    fn greedy_does_not_transmit_what_it_cannot_coordinate() {
        let mut costs = [(0.0, 0.0); 19];
        (costs[3], costs[8]) = ((1.0, 10.0), (0.0, 1_000.0));
        let standing = Standing { connected: true, logged: 5, ..Standing::default() };
        let choice = choose(Sort::Read, Some(500), &standing, &costs, 0.0);
        assert_eq!((choice.transmitted, choice.steps, choice.cost_us), (0, bits(&[19]), 0.0));
        let transmits = [3, 4, 5, 7, 19];
        let cost: f64 = transmits.iter().map(|step| costs[*step - 1].0 * 5.0 + costs[*step - 1].1).sum();
        assert!(
            transmits.is_sorted_by(|step, next| STEPS[step - 1].then.contains(&(*next as u8))) && cost <= 500.0,
            "a legal path does, in {cost} us"
        );
    }

    #[test]
    fn a_bound_of_nothing_takes_the_least_path_and_no_bound_takes_all() {
        let costs = [(1.0, 10.0); 19];
        let standing = Standing { connected: true, replica_failed: true, buffered: 3, pending: 2, logged: 4, buffer_full: false, compactable: true };
        assert_eq!(choose(Sort::Read, Some(0), &standing, &costs, 0.0).steps, bits(&[19]));
        assert_eq!(choose(Sort::Write, Some(0), &standing, &costs, 0.0).steps, bits(&[2, 4, 5, 7]));
        let cut_off = Standing { connected: false, ..standing };
        assert_eq!(choose(Sort::Write, Some(0), &cut_off, &costs, 0.0).steps, bits(&[1]));
        let all = choose(Sort::Write, None, &standing, &costs, 0.0);
        assert_eq!((all.executed, all.coordinated, all.transmitted), (2, 4, 4));
        assert_eq!(all.steps, bits(&[2, 3, 4, 5, 7, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18]));
    }

    #[test]
    fn what_is_behind_others_in_the_order_is_not_coordinated_before_them_are_made() {
        let mut costs = [(0.0, 0.0); 19];
        costs[16] = (10.0, 0.0);
        let standing = Standing { connected: true, buffered: 9, pending: 5, ..Standing::default() };
        let choice = choose(Sort::Read, Some(30), &standing, &costs, 0.0);
        assert_eq!((choice.executed, choice.coordinated), (3, 0));
        let choice = choose(Sort::Read, Some(70), &standing, &costs, 0.0);
        assert_eq!((choice.executed, choice.coordinated), (5, 2));
    }
}
