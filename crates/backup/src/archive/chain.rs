//! What a keyspace's segments cover.

use super::names::{CountersName, SegmentName};
use super::{End, in_words, told_through};
use rheostat_core::Timestamp;
use rheostat_core::feed::Position;
use std::collections::BTreeSet;

/// The segments of a keyspace, in order.
#[derive(Clone, Debug, Default)]
pub struct Chain {
    /// Of changes.
    pub changes: Vec<SegmentName>,
    /// Of counters.
    pub counters: Vec<CountersName>,
    /// How far it is, as the archive's head has it.
    pub end: Option<End>,
}

/// A part of a segment that no other one of a run has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Step {
    /// Which of [`Chain::changes`].
    pub(super) place: usize,
    /// Changes after this position,
    pub(super) after: Position,
    /// and up to this one.
    pub(super) upto: Position,
}

/// Everything that was written after one position and up to another, without a gap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// After where.
    pub from: Position,
    /// Up to where.
    pub to: Position,
    /// The number of its last segment.
    pub number: u64,
    /// The number of its first one.
    first: u64,
    pub(super) steps: Vec<Step>,
}

impl Chain {
    pub(super) fn sort(&mut self) {
        self.changes.sort_by_key(|one| (one.from, one.to));
        self.counters.sort_by_key(|one| (one.at, one.since));
    }

    /// What the head says was free of changes.
    fn idle(&self) -> Option<(u64, Position, Position)> {
        let end = self.end.as_ref()?;
        let position = |text: &str| Position::parse(text.as_bytes()).ok();
        Some((end.number, position(&end.from)?, position(&end.through)?))
    }

    /// The runs, in order.
    pub fn runs(&self) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        for (place, one) in self.changes.iter().enumerate() {
            let step = |after| Step { place, after, upto: one.to };
            match runs.last_mut() {
                Some(run) if one.from <= run.to => {
                    run.number = run.number.max(one.number);
                    if one.to > run.to {
                        run.steps.push(step(run.to));
                        run.to = one.to;
                    }
                }
                _ => runs.push(Run { from: one.from, to: one.to, first: one.number, number: one.number, steps: vec![step(one.from)] }),
            }
        }
        if let Some((number, from, through)) = self.idle() {
            match runs.iter_mut().find(|run| run.from <= from && from <= run.to) {
                Some(run) => run.to = run.to.max(through),
                None => {
                    let place = runs.partition_point(|run| run.from < from);
                    runs.insert(place, Run { from, to: through, first: number + 1, number, steps: Vec::new() });
                }
            }
        }
        runs
    }

    /// What should be there and is not, a line each. What is from before `oldest`, the first full backup, is not needed.
    pub(super) fn faults(&self, oldest: Option<Timestamp>) -> Vec<String> {
        let mut faults = Vec::new();
        let between = |one: Timestamp, other: Timestamp| format!("what was written between {} and {} is not known", in_words(one), in_words(other));
        let runs = self.runs();
        // Numbers begin with one, and what was removed for its age ends before the first full backup that is left.
        if let (Some(oldest), Some(run)) = (oldest, runs.first())
            && run.first > 1
            && !run.steps.is_empty()
            && run.from > Position::after(oldest)
        {
            let upto = told_through(run.from);
            faults.push(format!("the segments of changes before number {} are missing: {}", run.first, between(oldest, upto)));
        }
        for pair in runs.windows(2) {
            let [before, after] = pair else { continue };
            // Where one was followed anew, its numbers go on.
            if after.first > before.number + 1 {
                let missing = match (before.number + 1, after.first - 1) {
                    (one, last) if one == last => format!("segment {one} of changes is missing"),
                    (one, last) => format!("segments {one} to {last} of changes are missing"),
                };
                faults.push(format!("{missing}: {}", between(told_through(before.to), told_through(after.from))));
            }
        }
        let last = self.changes.iter().map(|one| one.number).max().unwrap_or(0);
        if let Some((number, from, _)) =
            self.idle().filter(|(number, from, _)| *number > last && oldest.is_none_or(|oldest| told_through(*from) > oldest))
        {
            faults.push(format!(
                "the last segments of changes, up to number {number}, are missing: nothing is known up to {}",
                in_words(told_through(from))
            ));
        }
        let there: BTreeSet<Timestamp> = self.counters.iter().map(|one| one.at).collect();
        for one in self.counters.iter().filter(|one| one.since > Timestamp::ZERO && !there.contains(&one.since)) {
            faults.push(format!("the counters of {} are missing, on which those of {} stand", in_words(one.since), in_words(one.at)));
        }
        faults
    }

    /// Where following goes on: the number of the last segment, where that ended, and up to where nothing was written since; `None`: it was never begun.
    pub fn resume(&self) -> Option<(u64, Position, Position)> {
        let last = self.changes.iter().max_by_key(|one| one.to);
        let number = self.changes.iter().map(|one| one.number).max().unwrap_or(0);
        match (last, self.idle()) {
            (Some(last), Some((said, from, through))) if from >= last.to => Some((number.max(said), from, through)),
            (None, Some(idle)) => Some(idle),
            (Some(last), _) => Some((number, last.to, last.to)),
            (None, None) => None,
        }
    }

    /// The counters as of the last moment up to `at` that is known and after `base`, the newest first, back to where all of them are known; none: those of the full backup of `base` stand.
    /// Errors: one is missing.
    pub(super) fn counters_at(&self, base: Timestamp, at: Timestamp) -> Result<Vec<CountersName>, String> {
        let newest = self.counters.iter().filter(|one| one.at > base && one.at <= at).max_by_key(|one| (one.at, one.since == Timestamp::ZERO));
        newest.map_or(Ok(Vec::new()), |newest| self.back_from(newest))
    }

    /// These counters, and those on which they stand.
    fn back_from(&self, newest: &CountersName) -> Result<Vec<CountersName>, String> {
        let mut found = vec![newest.clone()];
        while let Some(last) = found.last().filter(|last| last.since > Timestamp::ZERO) {
            // All of them, if there is a choice.
            let before = self.counters.iter().filter(|one| one.at == last.since).max_by_key(|one| one.since == Timestamp::ZERO);
            let missing = || format!("the counters of {} are missing, on which those of {} stand", in_words(last.since), in_words(last.at));
            found.push(before.ok_or_else(missing)?.clone());
        }
        Ok(found)
    }

    /// Counters that no moment after `keep` needs.
    pub(super) fn old_counters(&self, keep: Timestamp) -> Vec<&CountersName> {
        let (mut needed, mut old) = (BTreeSet::new(), Vec::new());
        for one in self.counters.iter().rev() {
            if one.at > keep || needed.contains(&one.at) {
                needed.extend(Some(one.since).filter(|since| *since > Timestamp::ZERO));
            } else {
                old.push(one);
            }
        }
        old.reverse();
        old
    }
}

/// Up to where everything that was written after `from` is known; `None`: nothing is.
pub(super) fn reach(runs: &[Run], from: Timestamp) -> Option<Timestamp> {
    let run = runs.iter().find(|run| run.from <= Position::after(from) && told_through(run.to) >= from)?;
    Some(told_through(run.to))
}
