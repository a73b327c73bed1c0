//! Makes a failing plan smaller while the same promise stays broken.

use crate::plan::{Action, Plan, Transport};
use crate::run::run_plan;
use crate::trace::TraceLevel;
use crate::world::Failure;

/// A plan that cannot be made smaller by leaving out one more thing, or as far as the runs allowed went.
#[derive(Clone, Debug)]
pub struct Shrunk {
    /// The plan.
    pub plan: Plan,
    /// What it breaks.
    pub failure: Failure,
    /// How many runs it took.
    pub runs: u64,
}

/// Leaves out of `plan`, which fails with `failure`, whatever does not keep it from breaking the same promise: clients, faults, steps, keys
/// of transactions, clocks, jitter. At most `most_runs` runs.
pub fn shrink(plan: &Plan, failure: &Failure, most_runs: u64) -> Shrunk {
    let mut shrinker = Shrinker { best: plan.clone(), failure: failure.clone(), runs: 0, most_runs };
    loop {
        let before = shrinker.best.clone();
        shrinker.clients();
        shrinker.faults();
        shrinker.steps();
        shrinker.keys();
        shrinker.quiet();
        if shrinker.best == before || shrinker.spent() {
            break;
        }
    }
    shrinker.without_idle_clients();
    Shrunk { plan: shrinker.best, failure: shrinker.failure, runs: shrinker.runs }
}

struct Shrinker {
    best: Plan,
    failure: Failure,
    runs: u64,
    most_runs: u64,
}

impl Shrinker {
    fn spent(&self) -> bool {
        self.runs >= self.most_runs
    }

    /// Takes the changed plan if it still breaks the promise; says whether it did.
    fn attempt(&mut self, change: impl FnOnce(&mut Plan)) -> bool {
        let mut plan = self.best.clone();
        change(&mut plan);
        if self.spent() || plan == self.best || plan.check().is_err() {
            return false;
        }
        self.runs += 1;
        let Ok(report) = run_plan(&plan, TraceLevel::Off) else { return false };
        let Some(failure) = report.failure.filter(|failure| failure.promise == self.failure.promise) else { return false };
        (self.best, self.failure) = (plan, failure);
        true
    }

    /// Leaves out parts of a list of `count(plan)` places: halves first, then quarters, down to single ones.
    fn parts(&mut self, count: impl Fn(&Plan) -> usize, remove: impl Fn(&mut Plan, usize, usize)) {
        let mut size = count(&self.best).div_ceil(2);
        while size > 0 && !self.spent() {
            let mut from = 0;
            while from < count(&self.best) {
                let until = (from + size).min(count(&self.best));
                if !self.attempt(|plan| remove(plan, from, until)) {
                    from = until;
                }
            }
            size = if size == 1 { 0 } else { size.div_ceil(2) };
        }
    }

    fn clients(&mut self) {
        for client in 0..self.best.clients.len() {
            self.attempt(|plan| plan.clients[client].steps.clear());
        }
    }

    fn faults(&mut self) {
        self.parts(|plan| plan.faults.len(), |plan, from, until| drop(plan.faults.drain(from..until)));
    }

    fn steps(&mut self) {
        for client in 0..self.best.clients.len() {
            // What is left keeps its time: the pauses of what goes are added to the next step's.
            self.parts(
                |plan| plan.clients[client].steps.len(),
                |plan, from, until| {
                    let steps = &mut plan.clients[client].steps;
                    let pause: u64 = steps.drain(from..until).map(|step| step.think_us).sum();
                    if let Some(next) = steps.get_mut(from) {
                        next.think_us += pause;
                    }
                },
            );
        }
    }

    fn keys(&mut self) {
        for client in 0..self.best.clients.len() {
            for step in 0..self.best.clients[client].steps.len() {
                let mut place = 0;
                loop {
                    let length = match &self.best.clients[client].steps[step].action {
                        Action::ReadTransaction { keys, .. } => keys.len(),
                        Action::Put { items } => items.len(),
                        _ => 0,
                    };
                    if length < 2 || place >= length || self.spent() {
                        break;
                    }
                    let shorter = self.attempt(|plan| match &mut plan.clients[client].steps[step].action {
                        Action::ReadTransaction { keys, .. } => drop(keys.remove(place)),
                        Action::Put { items } => drop(items.remove(place)),
                        _ => {}
                    });
                    place += usize::from(!shorter);
                }
            }
        }
    }

    /// Perfect clocks, steady delays, an orderly transport: as far as they are not needed.
    fn quiet(&mut self) {
        self.parts(|plan| plan.clocks.len(), |plan, from, until| drop(plan.clocks.drain(from..until)));
        self.attempt(|plan| plan.transport = Transport::Stream);
        self.attempt(|plan| plan.watched = false);
        self.attempt(|plan| plan.sleeps_us = 0);
        let empty = Plan::empty("");
        self.attempt(|plan| plan.padding = empty.padding);
        self.attempt(|plan| plan.max_waiting = empty.max_waiting);
        self.attempt(|plan| plan.service_level = None);
        self.attempt(|plan| plan.local.jitter_us = 0);
        self.attempt(|plan| plan.near.jitter_us = 0);
        self.attempt(|plan| plan.cold = 0);
        self.attempt(|plan| plan.disk.jitter_us = 0);
        self.attempt(|plan| plan.delays.iter_mut().for_each(|delay| delay.delay.jitter_us = 0));
    }

    /// Clients that do nothing go, and the others' numbers follow.
    fn without_idle_clients(&mut self) {
        for client in (0..self.best.clients.len()).rev() {
            if !self.best.clients[client].steps.is_empty() {
                continue;
            }
            self.attempt(|plan| {
                plan.clients.remove(client);
                for step in plan.clients.iter_mut().flat_map(|other| &mut other.steps) {
                    if let Action::Adopt { client: other } = &mut step.action
                        && *other > client
                    {
                        *other -= 1;
                    }
                }
            });
        }
    }
}
