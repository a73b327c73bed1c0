//! States that stood beside each other, and what they prove.

use super::active::{Active, Beside, Name, ServerKey, State, open_servers, picked};
use super::{Monitor, Notice, Waiting};
use crate::alarm::{Alarm, Evidence, Verdict};
use crate::cut::{Found, find};
use crate::predicate::{Clause, Target};
use rheostat_clock::{Epsilon, HybridVector, Relation, relate};
use rheostat_core::ids::KeyspaceId;
use std::collections::BTreeSet;

impl Monitor {
    /// Looks for a violation that the state `name` is part of. Servers that have not told enough, and are not among those `asked`, are asked.
    pub(super) fn look(&mut self, keyspace: KeyspaceId, target: &Target, place: usize, name: Name, asked: BTreeSet<ServerKey>) {
        let Some(active) = self.active.get(&(keyspace, target.clone())) else { return };
        let of = active.place_of(place);
        let Some(clause) = active.predicate.clauses.iter().find(|clause| clause.places.contains(&of)).cloned() else { return };
        if active.predicate.places[of].summed {
            return self.look_at_cuts(keyspace, target, (place, name), &clause, asked);
        }
        // Another state beside it may have ended a moment before: what is certain is told of that which stands.
        let found = match self.search(active, &clause, place, name, Beside::Certain) {
            Found::States(picks) => Found::States(picks),
            Found::Nothing | Found::TooMany => self.search(active, &clause, place, name, Beside::Known),
        };
        let picks = match found {
            Found::States(picks) => picks,
            Found::TooMany => return self.gap(Some(target.clone()), "there were more combinations of states than are tried".into()),
            Found::Nothing => {
                // What has not ended, as far as is known, may have.
                if let Found::States(picks) = self.search(active, &clause, place, name, Beside::Open) {
                    let open = picked(active, &clause, &picks).into_iter().filter(|(_, state)| state.end.is_none());
                    let servers: BTreeSet<ServerKey> = open.map(|(_, state)| state.name.server).collect();
                    self.wait_for(servers, Waiting { keyspace, target: target.clone(), place, name, asked });
                }
                return;
            }
        };
        let alarm = self.alarm(active, target, &picked(active, &clause, &picks));
        self.next_alarm += 1;
        let alarm = Alarm { number: self.next_alarm, ..alarm };
        match alarm.verdict {
            Verdict::Violated => self.numbers.violated += 1,
            Verdict::Possible => {
                self.numbers.possible += 1;
                let servers = open_servers(active, &clause);
                self.ask(servers.clone());
                // Where there is no room, it stays what it is.
                self.possible.insert((keyspace, alarm.clone(), (place, name)), servers);
            }
        }
        self.notices.push(Notice::Alarm(alarm));
    }

    /// States that may stand beside the state `name` of `place` and each other; those that began last, where there are several.
    pub(super) fn search(&self, active: &Active, clause: &Clause, place: usize, name: Name, which: Beside) -> Found {
        let Some(own) = active.places[place].iter().find(|state| state.name == name) else { return Found::Nothing };
        let fits = |one: &(usize, &State), other: &(usize, &State)| self.stand_beside(one.1, other.1, which);
        let beside = |of: usize| -> Vec<(usize, &State)> {
            let all = active.places[of].iter().enumerate().rev();
            match of == place {
                true => all.filter(|(_, state)| state.name == name).collect(),
                false => all.filter(|(_, state)| self.stand_beside(own, state, which)).collect(),
            }
        };
        let lists: Vec<Vec<(usize, &State)>> = clause.places.clone().map(beside).collect();
        let fulfils = |chosen: &[usize]| {
            let value = |number: usize| lists[number][chosen[number]].1.value.clone();
            clause.together.iter().all(|together| together.holds(value))
        };
        match find(&lists, fits, fulfils) {
            Found::States(chosen) => Found::States(chosen.iter().zip(&lists).map(|(chosen, list)| list[*chosen].0).collect()),
            other => other,
        }
    }

    /// The end of `state`, or up to where it is known to have stood.
    pub(super) fn end_of<'a>(&'a self, state: &'a State, known: bool) -> Option<&'a HybridVector> {
        match &state.end {
            Some(end) => Some(end),
            None if known => Some(
                self.servers.get(&state.name.server).map(|server| &server.upto).filter(|upto| upto.at() > state.start.at()).unwrap_or(&state.start),
            ),
            None => None,
        }
    }

    pub(super) fn stand_beside(&self, one: &State, other: &State, which: Beside) -> bool {
        match which {
            Beside::Known => self.fit(one, other, true),
            Beside::Open => self.fit(one, other, false),
            Beside::Certain => self.overlap(one, other, true),
            Beside::CertainLater => self.overlap(one, other, false),
        }
    }

    /// Whether some consistent cut passes through both. `known`: a state has not ended where its server has not come further than what is told; otherwise it goes on for ever.
    pub(super) fn fit(&self, one: &State, other: &State, known: bool) -> bool {
        let relation = relate((&one.start, self.end_of(one, known)), (&other.start, self.end_of(other, known)));
        match relation {
            Relation::Concurrent if self.planted.is("monitor-trusts-clocks-too-much") => self.overlap_within(one, other, Some(0), true),
            Relation::Concurrent | Relation::Uncertain => true,
            Relation::Before | Relation::After => false,
        }
    }

    /// Whether there was a moment at which both stood, if clocks are no more than ε apart: in the order of one server, or by more than ε on the clocks of two. `known`: as [`Monitor::fit`].
    pub(super) fn overlap(&self, one: &State, other: &State, known: bool) -> bool {
        self.overlap_within(one, other, self.apart_ms(), known)
    }

    pub(super) fn overlap_within(&self, one: &State, other: &State, apart_ms: Option<u64>, known: bool) -> bool {
        let apart_ms = if one.name.server == other.name.server { Some(0) } else { apart_ms };
        let Some(apart_ms) = apart_ms else { return false };
        let outlasts = |one: &State, other: &State| {
            let end = one.stood.or_else(|| self.end_of(one, known).map(HybridVector::at));
            end.is_none_or(|end| end > other.start.at().plus_millis(apart_ms))
        };
        outlasts(one, other) && outlasts(other, one)
    }

    pub(super) fn verdict(&self, states: &[(usize, &State)]) -> Verdict {
        let overlap = |(number, (_, one)): (usize, &(usize, &State))| states[..number].iter().all(|(_, other)| self.overlap(one, other, true));
        if states.iter().enumerate().all(overlap) { Verdict::Violated } else { Verdict::Possible }
    }

    pub(super) fn alarm(&self, active: &Active, target: &Target, states: &[(usize, &State)]) -> Alarm {
        let starts = states.iter().map(|(_, state)| state.start.at());
        let since = match self.epsilon {
            Epsilon::Millis(_) => self.epsilon.before(starts.max().unwrap_or_default()),
            Epsilon::Infinite => starts.min().unwrap_or_default(),
        };
        let evidence = |(place, state): &(usize, &State)| Evidence {
            variable: active.variable(*place, target),
            value: state.value.clone(),
            version: state.version,
            server: state.name.server.1,
            from: state.start.at(),
            until: state.end.as_ref().map(HybridVector::at),
        };
        Alarm { number: 0, target: target.clone(), verdict: self.verdict(states), since, evidence: states.iter().map(evidence).collect() }
    }

    /// How far clocks may be apart, if that is bounded.
    pub(super) fn apart_ms(&self) -> Option<u64> {
        match self.epsilon {
            Epsilon::Millis(millis) => Some(millis),
            Epsilon::Infinite => None,
        }
    }

    /// Whether `one` began later than `other` for certain.
    pub(super) fn is_later(&self, one: &State, other: &State) -> bool {
        let apart_ms = if one.name.server == other.name.server { Some(0) } else { self.apart_ms() };
        apart_ms.is_some_and(|apart_ms| one.start.at() > other.start.at().plus_millis(apart_ms))
    }

    /// Whether `one` had begun, for certain, when `other` began: its key was written then.
    pub(super) fn began_before(&self, one: &State, other: &State) -> bool {
        matches!(relate((&one.start, Some(&one.start)), (&other.start, None)), Relation::Before)
    }
}
