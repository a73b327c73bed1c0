//! States of the model, and the steps between them.

use super::{Counters, properties};
use rheostat_clock::DcId;
use rheostat_core::counter::Direction;
use rheostat_core::wire::Wire;
use rheostat_counters::State;
use rheostat_counters::hello::Greetings;
use rheostat_counters::rights::Asked;
use stateright::{Model, Property};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// What a data center keeps of a counter, with its byte form to compare it by.
#[derive(Clone)]
pub struct Known(Arc<(State, Greetings, Vec<u8>)>);

impl Known {
    pub(super) fn new(state: State, greetings: Greetings) -> Known {
        let mut bytes = state.to_bytes();
        greetings.encode(&mut bytes);
        Known(Arc::new((state, greetings, bytes)))
    }

    pub(super) fn state(&self) -> &State {
        &self.0.0
    }

    fn greetings(&self) -> &Greetings {
        &self.0.1
    }

    /// Whether what `dc` itself has done is the same.
    fn writes_the_same(&self, dc: DcId, other: &Known) -> bool {
        self.state().row(dc) == other.state().row(dc) && self.greetings() == other.greetings()
    }
}

impl PartialEq for Known {
    fn eq(&self, other: &Known) -> bool {
        self.0.2 == other.0.2
    }
}

impl Hash for Known {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.0.2.hash(hasher);
    }
}

/// One data center.
#[derive(Clone, PartialEq, Hash)]
pub struct Node {
    /// What it works with.
    pub(super) memory: Known,
    /// Its own last write that is on disk.
    pub(super) disk: Known,
    /// Its own writes that links may carry, oldest first: the last that all others have on disk, and all after it.
    pub(super) log: Vec<Known>,
    /// Per data center, which of its writes here (by place in its `log`) was the last to arrive.
    pub(super) arrived: Vec<u8>,
    /// Likewise, of what is on disk.
    pub(super) kept: Vec<u8>,
    /// Whether another had taken it for gone when it last started.
    pub(super) gone_at_start: bool,
    /// Whether it has changed the counter since then.
    pub(super) used_since_start: bool,
}

/// Everything, everywhere, at one moment.
#[derive(Clone, PartialEq, Hash)]
pub struct World {
    /// The data centers.
    pub(super) nodes: Vec<Node>,
    /// What can still happen.
    pub(super) increments: u8,
    pub(super) asks: u8,
    pub(super) moves: u8,
    pub(super) restarts: u8,
    pub(super) reclaims: u8,
    /// Whether an operation used rights that others had moved to it.
    pub(super) used_moved: bool,
    /// Whether an ask was answered with nothing.
    pub(super) refused: bool,
    /// Whether an operation used rights that were taken over.
    pub(super) used_sealed: bool,
    /// Whether a data center that had been restarted used rights again.
    pub(super) used_restarted: bool,
}

/// One step.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Action {
    /// The data center decrements by 1.
    Decrement(DcId),
    /// It increments by 1.
    Increment(DcId),
    /// It asks another for rights.
    Ask {
        /// Who asks.
        by: DcId,
        /// Who is asked.
        of: DcId,
        /// For which rights.
        direction: Direction,
        /// Whether an operation waits.
        urgent: bool,
    },
    /// It answers an ask.
    Answer(DcId, Asked),
    /// It gives a right away that nobody asked for.
    Move {
        /// Who gives.
        by: DcId,
        /// Who gets it.
        to: DcId,
        /// Which.
        direction: Direction,
    },
    /// The next write of one arrives at another.
    Arrive {
        /// Whose.
        from: DcId,
        /// Where.
        at: DcId,
    },
    /// What the data center has written and what has arrived is on disk.
    Flush(DcId),
    /// It stops, and starts with what is on disk.
    Restart(DcId),
    /// It greets one that has started anew.
    Greet {
        /// Who greets.
        by: DcId,
        /// Whom.
        whom: DcId,
    },
    /// It decides that another is gone for ever.
    Reclaim {
        /// Who decides.
        by: DcId,
        /// Who is gone.
        gone: DcId,
    },
}

impl Counters {
    /// Before anything has happened.
    pub(super) fn first(&self) -> World {
        let nothing = Known::new(Counters::nothing_done(), Greetings::default());
        let places = vec![0; self.everyone().count()];
        let node = || Node {
            memory: nothing.clone(),
            disk: nothing.clone(),
            log: vec![nothing.clone()],
            arrived: places.clone(),
            kept: places.clone(),
            gone_at_start: false,
            used_since_start: false,
        };
        let bounds = self.bounds();
        World {
            nodes: self.everyone().map(|_| node()).collect(),
            increments: bounds.increments,
            asks: bounds.asks,
            moves: bounds.moves,
            restarts: bounds.restarts,
            reclaims: bounds.reclaims,
            used_moved: false,
            refused: false,
            used_sealed: false,
            used_restarted: false,
        }
    }

    /// Whether `dc` may use and give away its rights: everyone has greeted it since it started.
    pub(super) fn confirmed(&self, world: &World, dc: DcId) -> bool {
        let hello = world.nodes[dc.index()].memory.greetings().hello;
        let greeted = |by: DcId| hello == 0 || world.heard(dc, by).answers(dc, hello);
        self.planted.is("counter-spends-without-greeting") || world.memory(dc).ungreeted(self.circle(dc), greeted).is_none()
    }

    /// What could happen next.
    pub(super) fn steps(&self, world: &World, steps: &mut Vec<Action>) {
        for dc in self.everyone() {
            let (node, circle) = (&world.nodes[dc.index()], self.circle(dc));
            let state = node.memory.state();
            let fenced = state.fenced(dc).is_some();
            if !fenced && self.confirmed(world, dc) {
                steps.push(Action::Decrement(dc));
                if world.increments > 0 {
                    steps.push(Action::Increment(dc));
                }
                for to in circle.others().filter(|_| world.moves > 0) {
                    steps.extend(self.directions().map(|direction| Action::Move { by: dc, to, direction }));
                }
                steps.extend(state.asked(circle).into_iter().map(|asked| Action::Answer(dc, asked)));
            }
            for direction in self.directions().filter(|_| world.asks > 0 && !fenced) {
                let rights = |of: DcId| state.rights(&self.definition, circle, of, direction).unwrap_or(0);
                let lacks = rights(dc) < u64::from(self.bounds().amount);
                for of in circle.others().filter(|of| lacks && rights(*of) > 0 && state.fenced(*of).is_none()) {
                    steps.extend(self.bounds().urgent.iter().map(|urgent| Action::Ask { by: dc, of, direction, urgent: *urgent }));
                }
            }
            for from in circle.others() {
                if usize::from(node.arrived[from.index()]) + 1 < world.nodes[from.index()].log.len() {
                    steps.push(Action::Arrive { from, at: dc });
                }
            }
            if self.bounds().late_disk && (!node.memory.writes_the_same(dc, &node.disk) || node.kept != node.arrived) {
                steps.push(Action::Flush(dc));
            }
            if world.restarts > 0 {
                steps.push(Action::Restart(dc));
            }
            let (own, unknown) = (node.memory.greetings(), |whom: &DcId| world.heard(dc, *whom).hello > 0);
            steps.extend(
                circle
                    .others()
                    .filter(unknown)
                    .filter(|whom| !own.answers(*whom, world.heard(dc, *whom).hello))
                    .map(|whom| Action::Greet { by: dc, whom }),
            );
            for gone in circle.others().filter(|gone| world.reclaims > 0 && !fenced && state.fenced(*gone).is_none()) {
                steps.push(Action::Reclaim { by: dc, gone });
            }
        }
    }

    /// `world` after `action`; `None` if it changes nothing.
    pub(super) fn step(&self, world: &World, action: Action) -> Option<World> {
        let mut next = world.clone();
        match action {
            Action::Decrement(dc) => self.add(&mut next, dc, -1)?,
            Action::Increment(dc) => {
                next.increments -= 1;
                self.add(&mut next, dc, 1)?;
            }
            Action::Ask { by, of, direction, urgent } => {
                next.asks -= 1;
                self.change(&mut next, by, |state| {
                    state.ask(by, of, direction, u64::from(self.bounds().amount), urgent);
                    true
                })?;
            }
            Action::Answer(dc, asked) => {
                let mut moved = 0;
                self.change(&mut next, dc, |state| {
                    moved = state.answer(&self.definition, self.circle(dc), asked, self.planted);
                    true
                })?;
                next.refused |= moved == 0;
            }
            Action::Move { by, to, direction } => {
                next.moves -= 1;
                self.change(&mut next, by, |state| state.move_rights(&self.definition, self.circle(by), to, direction, 1).is_ok())?;
            }
            Action::Arrive { from, at } => {
                let newest = next.nodes[from.index()].log.len() as u8 - 1;
                let place = if self.bounds().one_by_one { next.nodes[at.index()].arrived[from.index()] + 1 } else { newest };
                next.nodes[at.index()].arrived[from.index()] = place;
                let write = next.nodes[from.index()].log[usize::from(place)].clone();
                let mut state = next.memory(at).clone();
                if self.planted.is("counter-merge-adds") {
                    for (dc, row) in write.state().rows.iter().filter(|(dc, _)| **dc != at) {
                        state.row_mut(*dc).removed += row.removed;
                    }
                }
                if self.planted.is("counter-hears-who-is-gone") {
                    state.merge(write.state());
                    state.adopt_fences(self.circle(at));
                } else {
                    state.absorb(self.circle(at), from, write.state());
                }
                let greetings = next.nodes[at.index()].memory.greetings().clone();
                self.work_on(&mut next, at, state, greetings);
            }
            Action::Flush(dc) => self.flush(&mut next, dc),
            Action::Restart(dc) => {
                next.restarts -= 1;
                self.restart(&mut next, dc);
            }
            Action::Greet { by, whom } => {
                let mut greetings = next.nodes[by.index()].memory.greetings().clone();
                if !greetings.greet(whom, world.heard(by, whom)) {
                    return None;
                }
                let state = next.memory(by).clone();
                self.work_on(&mut next, by, state, greetings);
            }
            Action::Reclaim { by, gone } => {
                next.reclaims -= 1;
                self.change(&mut next, by, |state| state.fence(by, gone))?;
            }
        }
        next.forget(self.bounds().one_by_one);
        Some(next)
    }

    fn add(&self, next: &mut World, dc: DcId, amount: i64) -> Option<()> {
        let before = next.memory(dc).clone();
        self.change(next, dc, |state| {
            let mut tried = state.clone();
            if self.planted.is("model-sealed-by-one") {
                let gone = tried.row(dc).gone.clone();
                self.circle(dc).others().for_each(|other| tried.row_mut(other).gone.extend(&gone));
            }
            let done = tried.add(&self.definition, self.circle(dc), amount).is_ok();
            *state.row_mut(dc) = tried.row(dc).clone();
            done
        })?;
        let direction = if amount < 0 { Direction::Down } else { Direction::Up };
        if self.definition.bound(direction).is_some() {
            let row = next.memory(dc).row(dc);
            let (used, made) = if amount < 0 { (row.removed, row.added) } else { (row.added, row.removed) };
            next.used_moved |= used > made + self.definition.placed(dc, direction);
            let sealed = before.sealed(self.circle(dc));
            next.used_sealed |= !sealed.is_empty() && before.heir(self.circle(dc), &sealed) == Some(dc);
        }
        next.used_restarted |= next.nodes[dc.index()].memory.greetings().hello > 0;
        next.nodes[dc.index()].used_since_start = true;
        Some(())
    }

    /// Changes what `dc` works with; `None` if it is as before.
    fn change(&self, next: &mut World, dc: DcId, change: impl FnOnce(&mut State) -> bool) -> Option<()> {
        let mut state = next.memory(dc).clone();
        let greetings = next.nodes[dc.index()].memory.greetings().clone();
        change(&mut state).then(|| self.work_on(next, dc, state, greetings))
    }

    /// From now on `dc` works with `state`. It writes when its own row has changed.
    fn work_on(&self, next: &mut World, dc: DcId, state: State, greetings: Greetings) {
        let node = &mut next.nodes[dc.index()];
        node.memory = Known::new(state, greetings);
        if !self.bounds().late_disk {
            self.flush(next, dc);
        } else if self.planted.is("model-sent-before-disk") {
            next.send(dc);
        }
    }

    /// Everything of `dc` is on disk, and links may carry it.
    fn flush(&self, next: &mut World, dc: DcId) {
        let node = &mut next.nodes[dc.index()];
        node.kept.clone_from(&node.arrived);
        if !node.memory.writes_the_same(dc, &node.disk) {
            node.disk = node.memory.clone();
        }
        next.send(dc);
    }

    fn restart(&self, next: &mut World, dc: DcId) {
        let here = &next.nodes[dc.index()];
        let mut states = vec![(dc, here.disk.state().clone())];
        for from in self.circle(dc).others() {
            states.push((from, next.nodes[from.index()].log[usize::from(here.kept[from.index()])].state().clone()));
        }
        let mut state = State::gather(self.circle(dc), Counters::nothing_done().incarnation, &states);
        state.adopt_fences(self.circle(dc));
        let mut greetings = here.disk.greetings().clone();
        greetings.hello += 1;
        let gone = self.circle(dc).others().any(|other| next.memory(other).row(other).gone.contains(&dc));
        let node = &mut next.nodes[dc.index()];
        node.arrived.clone_from(&node.kept);
        (node.gone_at_start, node.used_since_start) = (gone, false);
        self.work_on(next, dc, state, greetings);
    }
}

impl Model for Counters {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![self.first()]
    }

    fn actions(&self, world: &World, steps: &mut Vec<Action>) {
        self.steps(world, steps);
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        self.step(world, action)
    }

    fn properties(&self) -> Vec<Property<Counters>> {
        properties::of(self)
    }
}

impl World {
    /// What `dc` works with.
    pub(super) fn memory(&self, dc: DcId) -> &State {
        self.nodes[dc.index()].memory.state()
    }

    /// The greetings of `from` as `at` has heard them.
    fn heard(&self, at: DcId, from: DcId) -> &Greetings {
        self.nodes[from.index()].log[usize::from(self.nodes[at.index()].arrived[from.index()])].greetings()
    }

    /// Links may carry what `dc` works with, if its row has changed.
    fn send(&mut self, dc: DcId) {
        let node = &mut self.nodes[dc.index()];
        if node.log.last().is_none_or(|last| !node.memory.writes_the_same(dc, last)) {
            node.log.push(node.memory.clone());
        }
    }

    /// Forgets writes that can neither arrive any more nor be found at a restart.
    fn forget(&mut self, one_by_one: bool) {
        for from in 0..self.nodes.len() {
            let places = |node: &Node| [node.arrived[from], node.kept[from]];
            let mut needed: Vec<u8> = self.nodes.iter().enumerate().filter(|(at, _)| *at != from).flat_map(|(_, node)| places(node)).collect();
            needed.push(self.nodes[from].log.len() as u8 - 1);
            needed.sort_unstable();
            needed.dedup();
            if one_by_one {
                needed = (needed[0]..=needed[needed.len() - 1]).collect();
            }
            if needed.len() == self.nodes[from].log.len() {
                continue;
            }
            self.nodes[from].log = needed.iter().map(|place| self.nodes[from].log[usize::from(*place)].clone()).collect();
            let moved = |place: u8| needed.partition_point(|needed| *needed < place) as u8;
            for (_, node) in self.nodes.iter_mut().enumerate().filter(|(at, _)| *at != from) {
                (node.arrived[from], node.kept[from]) = (moved(node.arrived[from]), moved(node.kept[from]));
            }
        }
    }
}
