//! A data center that is gone for ever: taking over its rights, so that it cannot come back and use them (document 002, section IV-E, says that this can be done).
//!
//! A *fence* is an entry of one data center's row: it takes another for gone, and hears nothing from it any more. Whoever sees a fence makes its own at once. What is still heard of the one that is gone
//! comes from those who have no fence yet; so when everyone else has one, its row will not change any more, for anybody. From then on it is *sealed*, and its rights belong to the *heir*,
//! the first data center that is not sealed. `PAPER.md`, D4, has the proof.

use crate::state::{Circle, State};
use rheostat_clock::DcId;
use rheostat_core::version::VersionId;
use std::collections::BTreeSet;

/// What came of another data center's state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Absorbed {
    /// It is part of the state here now, and brought something new.
    News,
    /// It brought nothing new.
    Nothing,
    /// It was left alone: it is of another counter, or its writer is gone.
    Ignored,
}

impl State {
    /// Takes in `state`, which `from` wrote: the join, unless `from` is taken for gone here.
    ///
    /// A data center that is taken for gone knows from then on what it has heard last, and nothing else.
    /// Two data centers that took over each other's rights cannot go on both: of two that have done so with everyone's consent on their side, the first goes on.
    pub fn absorb(&mut self, circle: &Circle, from: DcId, state: &State) -> Absorbed {
        if state.incarnation != self.incarnation || from == circle.here {
            return Absorbed::Ignored;
        }
        if self.row(circle.here).gone.contains(&from) {
            let there = Circle { here: from, members: circle.members.clone() };
            if from < circle.here && state.sealed(&there).contains(&circle.here) && self.row_mut(circle.here).gone.insert(circle.here) {
                return Absorbed::News;
            }
            return Absorbed::Ignored;
        }
        if self.fenced(circle.here).is_some() || state.fenced(circle.here).is_some() {
            // What was done here and nobody had heard does not count, though others may have used these rights since. What another knows is whole, but
            // not together with what is known here.
            let mut theirs = state.clone();
            let own = theirs.row_mut(circle.here);
            own.gone.extend(&self.row(circle.here).gone);
            own.gone.insert(circle.here);
            theirs.adopt_fences(circle);
            let news = theirs != *self;
            *self = theirs;
            return if news { Absorbed::News } else { Absorbed::Nothing };
        }
        let rose = self.merge(state);
        if self.adopt_fences(circle) || rose { Absorbed::News } else { Absorbed::Nothing }
    }

    /// The join of what the data centers wrote, as a reader here finds it: without those who are gone for somebody who is not.
    pub fn gather(circle: &Circle, incarnation: VersionId, states: &[(DcId, State)]) -> State {
        let own = states.iter().find(|(dc, _)| *dc == circle.here).map(|(_, state)| state.row(circle.here).gone.clone()).unwrap_or_default();
        let heard = |gone: &BTreeSet<DcId>| states.iter().filter(|(dc, _)| !gone.contains(dc)).cloned().collect::<Vec<_>>();
        let mut gone: BTreeSet<DcId> = heard(&own).iter().flat_map(|(_, state)| state.rows.values().flat_map(|row| row.gone.clone())).collect();
        gone.extend(&own);
        let mut all = State::new(incarnation);
        for (_, state) in heard(&gone) {
            all.merge(&state);
        }
        all
    }

    /// A data center that takes `dc` for gone; itself, if it knows of no other.
    pub fn fenced(&self, dc: DcId) -> Option<DcId> {
        let mut by = self.rows.iter().filter(|(_, row)| row.gone.contains(&dc)).map(|(by, _)| *by);
        let first = by.next()?;
        Some(if first == dc { by.next().unwrap_or(dc) } else { first })
    }

    /// From now on this data center hears nothing from `gone`; says whether that is new.
    pub fn fence(&mut self, here: DcId, gone: DcId) -> bool {
        !self.row(here).gone.contains(&gone) && self.row_mut(here).gone.insert(gone)
    }

    /// Takes for gone here whoever is so elsewhere; says whether that is new.
    pub fn adopt_fences(&mut self, circle: &Circle) -> bool {
        let gone: BTreeSet<DcId> = self.rows.values().flat_map(|row| row.gone.iter().copied()).filter(|dc| *dc != circle.here).collect();
        gone.into_iter().fold(false, |new, dc| self.fence(circle.here, dc) | new)
    }

    /// The data centers whose rows will not change any more: the greatest set of them that everyone outside of it takes for gone, all of it. It only grows.
    pub fn sealed(&self, circle: &Circle) -> BTreeSet<DcId> {
        let mut sealed: BTreeSet<DcId> = self.rows.values().flat_map(|row| row.gone.iter().copied()).collect();
        loop {
            let outside: Vec<DcId> = circle.members.iter().copied().filter(|dc| !sealed.contains(dc)).collect();
            let before = sealed.len();
            sealed.retain(|dc| outside.iter().all(|by| self.row(*by).gone.contains(dc)));
            if sealed.len() == before {
                return sealed;
            }
        }
    }

    /// Who has the rights of those who are sealed: always the same while it is not sealed itself.
    pub fn heir(&self, circle: &Circle, sealed: &BTreeSet<DcId>) -> Option<DcId> {
        circle.members.iter().copied().find(|dc| !sealed.contains(dc))
    }
}
