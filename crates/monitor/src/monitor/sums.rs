//! Predicates with sums: the cut on which a sum is worst.

use super::active::{Active, Beside, Name, ServerKey, State, Sum, Summed};
use super::{Monitor, Notice, Waiting};
use crate::alarm::{Alarm, Evidence, Verdict};
use crate::condition::{Order, Together, number};
use crate::cut::MOST_STEPS;
use crate::predicate::{Clause, Target};
use crate::sum::{At, Choice, Least, least};
use rheostat_clock::{Epsilon, HybridVector, Relation, Timestamp, relate};
use rheostat_core::ids::KeyspaceId;
use std::collections::{BTreeMap, BTreeSet};

/// Alarms about one sum of which more may come to be known.
const MOST_POSSIBLE_SUMS: usize = 4;

/// States of a sum that an alarm names: those that began last.
const MOST_EVIDENCE: usize = 64;

/// A sum, and of each key that is added up, by slot, its state on the cut; none where it is not written yet.
pub(super) type Worst = (i128, Vec<(usize, Option<usize>)>);

impl Monitor {
    /// Looks whether what stands violates the sum `target`, whose keys are all known now.
    pub(super) fn look_at_sum(&mut self, keyspace: KeyspaceId, target: &Target) {
        let Some(active) = self.active.get(&(keyspace, target.clone())) else { return };
        let first = active.predicate.places.len();
        for clause in active.predicate.clauses.clone().iter().filter(|clause| active.predicate.places[clause.places.start].summed) {
            let slots = (first..active.places.len()).filter(|slot| clause.places.contains(&active.place_of(*slot)));
            let standing = slots.flat_map(|slot| active.places[slot].iter().map(move |state| (slot, state))).filter(|(_, state)| state.end.is_none());
            if let Some((slot, name)) = standing.max_by_key(|(_, state)| state.start.at()).map(|(slot, state)| (slot, state.name)) {
                return self.look(keyspace, target, slot, name, BTreeSet::new());
            }
        }
    }

    /// Looks for a consistent cut through the state `name` on which a sum is beyond its bound. As [`Monitor::look`].
    pub(super) fn look_at_cuts(
        &mut self,
        keyspace: KeyspaceId,
        target: &Target,
        (slot, name): (usize, Name),
        clause: &Clause,
        asked: BTreeSet<ServerKey>,
    ) {
        let Some(active) = self.active.get(&(keyspace, target.clone())).filter(|active| active.sum.as_ref().is_some_and(Sum::is_counted)) else {
            return;
        };
        let (sum, picks) = match self.worst(active, clause, (slot, name), Beside::Known) {
            Ok(Some(found)) => found,
            Err(()) => return self.gap(Some(target.clone()), "there were more combinations of states than are tried".into()),
            Ok(None) => {
                if let Ok(Some((_, picks))) = self.worst(active, clause, (slot, name), Beside::Open) {
                    let states = picks.iter().filter_map(|(slot, pick)| pick.map(|pick| &active.places[*slot][pick]));
                    let servers: BTreeSet<ServerKey> = states.filter(|state| state.end.is_none()).map(|state| state.name.server).collect();
                    self.wait_for(servers, Waiting { keyspace, target: target.clone(), place: slot, name, asked });
                }
                return;
            }
        };
        let alarm =
            self.certain_of_sum(active, target, clause, (slot, name)).unwrap_or_else(|| self.alarm_of_sum(active, target, clause, sum, &picks));
        self.next_alarm += 1;
        let alarm = Alarm { number: self.next_alarm, ..alarm };
        match alarm.verdict {
            Verdict::Violated => self.numbers.violated += 1,
            Verdict::Possible => {
                self.numbers.possible += 1;
                let of_this = self.possible.count(|(of, other, _)| (*of, &other.target) == (keyspace, target));
                let servers: BTreeSet<ServerKey> = self.servers.keys().filter(|(of, _)| *of == keyspace).copied().collect();
                self.ask(servers.clone());
                // Where there is no room, it stays what it is.
                if of_this < MOST_POSSIBLE_SUMS {
                    self.possible.insert((keyspace, alarm.clone(), (slot, name)), servers);
                }
            }
        }
        self.notices.push(Notice::Alarm(alarm));
    }

    /// The states of a consistent cut through the state `name` on which the sum of `clause` is furthest beyond its bound, and that sum: by slot, the number of a state, or none where the key is not
    /// written yet. Nothing if no cut is beyond the bound. Errors: there are more than can be tried. `known`: as [`Monitor::search`].
    pub(super) fn worst(&self, active: &Active, clause: &Clause, (own_slot, name): (usize, Name), which: Beside) -> Result<Option<Worst>, ()> {
        let known = which != Beside::Open;
        let (Some(sum), Some(Together::Sum(parts, order, bound))) = (&active.sum, clause.together.first()) else { return Ok(None) };
        let Some(own) = active.places[own_slot].iter().find(|state| state.name == name) else { return Ok(None) };
        // The greatest is the least of what is turned round.
        let turned: i128 = if matches!(order, Order::More | Order::AtLeast) { -1 } else { 1 };
        let places = active.predicate.places.len();
        let beyond = |sum: i128| order.holds(sum * turned, *bound);
        let times_of = |summed: &Summed| {
            parts.iter().find(|(_, place)| clause.places.start + place == summed.place).map(|(times, _)| i128::from(*times) * turned)
        };
        // Most sums are far from their bounds, and nothing need be compared.
        let least_of =
            |summed: &Summed| times_of(summed).map_or(0, |times| (times * i128::from(summed.span.0)).min(times * i128::from(summed.span.1)));
        if !beyond(sum.keys.iter().map(least_of).sum()) {
            return Ok(None);
        }
        let mut slots = Vec::new();
        let mut choices: Vec<Vec<Choice>> = Vec::new();
        let mut states: Vec<Vec<Option<usize>>> = Vec::new();
        for (place, summed) in sum.keys.iter().enumerate() {
            let slot = places + place;
            let Some(times) = times_of(summed) else { continue };
            let of = &active.places[slot];
            if of.is_empty() {
                continue;
            }
            let (mut of_key, mut of_states) = (Vec::new(), Vec::new());
            // Nobody had written it yet.
            let began_later = |state: &State| match which {
                Beside::Certain | Beside::CertainLater => self.is_later(state, own),
                Beside::Known | Beside::Open => !self.began_before(state, own),
            };
            let unwritten = slot != own_slot && !summed.old && of.iter().all(began_later);
            if unwritten {
                of_key.push(Choice { sequence: 0, value: 0 });
                of_states.push(None);
            }
            for (place, state) in of.iter().enumerate() {
                let stands = match which {
                    _ if slot == own_slot => state.name == name,
                    _ => self.stand_beside(own, state, which),
                };
                if stands {
                    let value = i128::from(number(state.value.as_deref()).unwrap_or_default()) * times;
                    let (_, server) = state.name.server;
                    let sequence = 1 + (u32::from(server.dc.0) << 24 | u32::from(server.partition.0) << 8 | u32::from(server.replica));
                    of_key.push(Choice { sequence, value });
                    of_states.push(Some(place));
                }
            }
            // One sequence, where one server has written it.
            if unwritten
                && let [nothing, first, rest @ ..] = of_key.as_mut_slice()
                && rest.iter().all(|choice| choice.sequence == first.sequence)
            {
                nothing.sequence = first.sequence;
            }
            if of_key.is_empty() {
                // A newer version is somewhere, and has not been told of yet.
                return Ok(None);
            }
            if self.planted.is("monitor-adds-up-the-newest") {
                (of_key, of_states) = (of_key.split_off(of_key.len() - 1), of_states.split_off(of_states.len() - 1));
            }
            slots.push(slot);
            choices.push(of_key);
            states.push(of_states);
        }
        if !beyond(choices.iter().map(|of| of.iter().map(|choice| choice.value).min().unwrap_or_default()).sum()) {
            return Ok(None);
        }
        let before = self.pairs(active, &slots, &states, known).ok_or(())?;
        match least(&choices, &before) {
            Least::TooMany => Err(()),
            Least::Cut(sum, picks) if beyond(sum) => {
                let picks = picks.iter().enumerate().map(|(key, pick)| (slots[key], states[key][*pick])).collect();
                Ok(Some((sum * turned, picks)))
            }
            Least::Cut(..) | Least::NoCut => Ok(None),
        }
    }

    /// The alarm about a cut through the state `name` that there was for certain, if there was one.
    pub(super) fn certain_of_sum(&self, active: &Active, target: &Target, clause: &Clause, state: (usize, Name)) -> Option<Alarm> {
        let (sum, picks) = self.worst(active, clause, state, Beside::Certain).ok()??;
        Some(self.alarm_of_sum(active, target, clause, sum, &picks)).filter(|alarm| alarm.verdict == Verdict::Violated)
    }

    /// Pairs of states of different keys of which the first had ended, or its key been written (where it is none), when the second began. `None`: too many are to be compared.
    pub(super) fn pairs(&self, active: &Active, slots: &[usize], states: &[Vec<Option<usize>>], known: bool) -> Option<Vec<(At, At)>> {
        let every = || states.iter().enumerate().flat_map(|(key, of)| of.iter().enumerate().map(move |(number, state)| (key, number, *state)));
        let mut starts: Vec<(Timestamp, usize, usize, &State)> = every()
            .filter_map(|(key, number, state)| state.map(|state| (key, number, &active.places[slots[key]][state])))
            .map(|(key, number, state)| (state.start.at(), key, number, state))
            .collect();
        starts.sort_unstable_by_key(|(at, key, number, _)| (*at, *key, *number));
        let (mut found, mut steps) = (Vec::new(), 0);
        for (key, number, state) in every() {
            let of = &active.places[slots[key]];
            let over = match state {
                Some(state) => self.end_of(&of[state], known).map(HybridVector::at),
                None => of.iter().map(|state| state.start.at()).min(),
            };
            let Some(over) = over else { continue };
            // What begins so long before its end has not begun after it, whatever the clocks.
            let from = match self.epsilon {
                Epsilon::Millis(_) => starts.partition_point(|(at, ..)| *at < self.epsilon.before(over)),
                Epsilon::Infinite => 0,
            };
            for (_, other, second, later) in starts[from..].iter().filter(|(_, other, ..)| *other != key) {
                steps += 1;
                if steps > MOST_STEPS {
                    return None;
                }
                let is_before = match state {
                    Some(state) => matches!(
                        relate((&of[state].start, self.end_of(&of[state], known)), (&later.start, self.end_of(later, known))),
                        Relation::Before
                    ),
                    None => of.iter().any(|first| self.began_before(first, later)),
                };
                if is_before {
                    found.push(((key, number), (*other, *second)));
                }
            }
        }
        Some(found)
    }

    pub(super) fn alarm_of_sum(&self, active: &Active, target: &Target, clause: &Clause, sum: i128, picks: &[(usize, Option<usize>)]) -> Alarm {
        let mut states: Vec<(usize, &State)> =
            picks.iter().filter_map(|(slot, pick)| pick.map(|pick| (*slot, &active.places[*slot][pick]))).collect();
        states.sort_by_key(|(slot, state)| (std::cmp::Reverse(state.start.at()), *slot));
        let verdict = self.verdict_of_sum(active, &states, picks);
        let named = &states[..states.len().min(MOST_EVIDENCE)];
        let mut alarm = self.alarm(active, target, named);
        if let (Some((_, last)), Some(Together::Sum(parts, ..))) = (states.first(), clause.together.first()) {
            let of_place = |(times, place): &(i64, usize)| {
                let variable = active.predicate.places[clause.places.start + place].variable.fill(&[]);
                let (times, name) = (times, String::from_utf8_lossy(&variable).into_owned());
                if *times == 1 { format!("sum({name})") } else { format!("{times}*sum({name})") }
            };
            let name = parts.iter().map(of_place).collect::<Vec<_>>().join(" + ");
            alarm.evidence.insert(
                0,
                Evidence {
                    variable: name.into_bytes().into(),
                    value: Some(sum.to_string().into_bytes()),
                    version: None,
                    server: last.name.server.1,
                    from: last.start.at(),
                    until: None,
                },
            );
        }
        Alarm { verdict, ..alarm }
    }

    /// As [`Monitor::verdict`]; beside, keys that nobody had written must not have been written for certain, and every server must have told of what it had then.
    pub(super) fn verdict_of_sum(&self, active: &Active, states: &[(usize, &State)], picks: &[(usize, Option<usize>)]) -> Verdict {
        let Epsilon::Millis(apart_ms) = self.epsilon else { return Verdict::Possible };
        // Of each server, the last start and the first end: all pairs overlap if these do.
        let mut spans: BTreeMap<ServerKey, (Timestamp, Timestamp)> = BTreeMap::new();
        for (_, state) in states {
            let Some(end) = self.end_of(state, true).map(|end| state.stood.unwrap_or(end.at())) else { return Verdict::Possible };
            let span = spans.entry(state.name.server).or_insert((state.start.at(), end));
            *span = (span.0.max(state.start.at()), span.1.min(end));
        }
        let by = |one: &ServerKey, other: &ServerKey| if one == other { 0 } else { apart_ms };
        let overlap = spans.iter().all(|(one, (_, end))| spans.iter().all(|(other, (start, _))| *end > start.plus_millis(by(one, other))));
        let unwritten = picks.iter().filter(|(_, pick)| pick.is_none()).flat_map(|(slot, _)| &active.places[*slot]);
        let written_later =
            |state: &State| spans.iter().all(|(server, (start, _))| state.start.at() > start.plus_millis(by(server, &state.name.server)));
        let has_told = |server: &ServerKey| {
            let told = self.servers.get(server).filter(|told| !told.lost);
            told.is_some_and(|told| spans.iter().all(|(one, (start, _))| told.upto.at() > start.plus_millis(by(one, server))))
        };
        let Some(keyspace) = states.first().map(|(_, state)| state.name.server.0) else { return Verdict::Possible };
        let all_told = active.sum.iter().flat_map(|sum| &sum.counted).all(|server| has_told(&(keyspace, *server)));
        if overlap && all_told && unwritten.into_iter().all(written_later) { Verdict::Violated } else { Verdict::Possible }
    }

    /// More is known of the cuts through the state `name`, which an alarm was about.
    pub(super) fn look_at_sum_again(&mut self, keyspace: KeyspaceId, alarm: Alarm, (slot, name): (usize, Name)) {
        let Some(active) = self.active.get(&(keyspace, alarm.target.clone())) else { return };
        let of = active.place_of(slot);
        let Some(clause) = active.predicate.clauses.iter().find(|clause| clause.places.contains(&of)) else { return };
        let over = active.places[slot].iter().find(|state| state.name == name).is_none_or(|state| state.end.is_some());
        if let Some(now) = self.certain_of_sum(active, &alarm.target, clause, (slot, name)) {
            self.numbers.violated += 1;
            self.notices.push(Notice::Alarm(Alarm { number: alarm.number, ..now }));
        } else if !over {
            let servers = self.servers.keys().filter(|(of, _)| *of == keyspace).copied().collect();
            self.possible.insert((keyspace, alarm, (slot, name)), servers);
        }
    }
}
