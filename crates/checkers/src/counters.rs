//! Counters: within their bounds wherever they are read, every acknowledged update counted once, no right lost and none made (document 002, sections II-C and III-B).
//!
//! Updates have no unique values, so they are recorded apart from a [`crate::History`]: what was asked, what came of it, every value that somebody saw, and how each data center sees the
//! counter when everything has arrived.
//!
//! Where sessions are promised causal consistency, what one reads of a counter that goes one way only never goes back, and has in it what the session has read and made before.
//!
//! A staleness bound is true: where a counter goes one way only, every update of another data center that is older than the answer says is in the value.
//!
//! An update of unknown outcome counts once or not at all. So does one of a data center that was taken for gone, unless its server started after that was done: what it did and nobody had heard is lost with it.

pub use crate::counter_history::{Came, CounterHistory, FinalView, Learned, Reclaim, Seen, Update};
use rheostat_core::counter::{CounterView, NewCounter, Standing};
use rheostat_core::version::VersionId;
use std::collections::BTreeSet;
use std::fmt::Write;

/// More sums than this are not followed together; then each counter is looked at for itself.
const MOST_SUMS: usize = 100_000;

/// Checks everything that counters promise.
///
/// # Errors
///
/// The first violation, in words, with the updates that it is about.
pub fn check(history: &CounterHistory) -> Result<(), String> {
    within_bounds(history)?;
    history.seen.iter().try_for_each(|seen| reflected(history, seen))?;
    let values = (0..history.counters.len()).map(|counter| converged(history, counter)).collect::<Result<Vec<i64>, String>>()?;
    counted_once(history, &values)?;
    sessions_remember(history)?;
    crate::tallies::check(history)?;
    (0..history.counters.len()).try_for_each(|counter| rights_conserved(history, counter))
}

fn within_bounds(history: &CounterHistory) -> Result<(), String> {
    let finals = history.finals.iter().filter_map(|last| Some((last.counter, last.view.as_ref()?.value, "in the end".to_owned())));
    let seen = history.seen.iter().map(|seen| (seen.counter, seen.value, format!("at {} us", seen.at_us)));
    for (counter, value, when) in seen.chain(finals) {
        let (name, NewCounter { lower, upper, .. }) = &history.counters[counter];
        if lower.is_some_and(|lower| value < lower) || upper.is_some_and(|upper| value > upper) {
            return Err(format!("counter {name} was seen at {value} {when}, out of its bounds\n{}", story(history, counter)));
        }
    }
    Ok(())
}

/// The way that a counter goes for which all updates go one way: -1 or 1. `None` if they do not, if a data center was taken for gone, or if the first update began it.
fn only_way(history: &CounterHistory, counter: usize) -> Option<i64> {
    let amounts = || history.updates.iter().flat_map(|update| &update.changes).filter(|(changed, _)| *changed == counter).map(|(_, amount)| *amount);
    let is_simple = history.counters[counter].1 != NewCounter::default() && history.reclaims.iter().all(|reclaim| reclaim.counter != counter);
    [-1, 1].into_iter().find(|way| is_simple && amounts().all(|amount| amount * way >= 0))
}

/// What a session reads of a counter that goes one way has in it what it has read and made before.
fn sessions_remember(history: &CounterHistory) -> Result<(), String> {
    for ((session, counter), learned) in &history.learned {
        let Some(way) = only_way(history, *counter) else { continue };
        let (name, new) = &history.counters[*counter];
        let mut known = new.initial;
        for learned in learned {
            match learned {
                Learned::Read(value) if value * way < known * way => {
                    let text = story(history, *counter);
                    return Err(format!(
                        "{session} read counter {name} as {value}, and by what it had read and made before nobody can read less far than {known}\n{text}"
                    ));
                }
                Learned::Read(value) => known = *value,
                Learned::Made(amount) => known += amount,
            }
        }
    }
    Ok(())
}

/// What `seen` said of its staleness is true.
fn reflected(history: &CounterHistory, seen: &Seen) -> Result<(), String> {
    let (Some((here, before_ms)), Some(way)) = (seen.reflects, only_way(history, seen.counter)) else { return Ok(()) };
    let (name, new) = &history.counters[seen.counter];
    let is_old = |version: &VersionId| version.origin != here && version.written.millis() < before_ms;
    let old = history.updates.iter().filter(|update| update.came == Came::Done && update.version.as_ref().is_some_and(is_old));
    let changes = old.flat_map(|update| &update.changes).filter(|(changed, _)| *changed == seen.counter);
    let known = new.initial + changes.map(|(_, amount)| amount).sum::<i64>();
    if seen.value * way >= known * way {
        return Ok(());
    }
    Err(format!(
        "counter {name} was seen at {} in data center {here} at {} us, which was to reflect every update elsewhere before {before_ms} ms, and these lead to {known} at least\n{}",
        seen.value,
        seen.at_us,
        story(history, seen.counter)
    ))
}

/// Whether `last` is of a data center that somebody takes for gone.
fn is_gone(history: &CounterHistory, last: &FinalView) -> bool {
    let of = |other: &&FinalView| other.counter == last.counter;
    let standing = |view: &CounterView| view.rights.iter().any(|rights| rights.dc == last.dc && rights.standing != Standing::Member);
    history.finals.iter().filter(of).filter_map(|other| other.view.as_ref()).any(standing)
}

/// The value on which all data centers agree that take part.
fn converged(history: &CounterHistory, counter: usize) -> Result<i64, String> {
    let (name, new) = &history.counters[counter];
    let mut agreed: Option<Option<i64>> = None;
    for last in history.finals.iter().filter(|last| last.counter == counter && !is_gone(history, last)) {
        let value = last.view.as_ref().map(|view| view.value);
        if value.map(|value| value.to_string()) != last.read {
            return Err(format!(
                "counter {name} in data center {} is read as {:?} and looked at as {value:?}\n{}",
                last.dc,
                last.read,
                story(history, counter)
            ));
        }
        if *agreed.get_or_insert(value) != value {
            let text = story(history, counter);
            return Err(format!(
                "counter {name} is {value:?} in data center {} and {:?} elsewhere, though everything has arrived\n{text}",
                last.dc,
                agreed.flatten()
            ));
        }
    }
    Ok(agreed.flatten().unwrap_or(new.initial))
}

/// Every acknowledged update counts once, every refused one not at all, and every other once or not at all.
fn counted_once(history: &CounterHistory, values: &[i64]) -> Result<(), String> {
    let count = history.counters.len();
    let mut sure = vec![0i64; count];
    let mut optional: Vec<Vec<(usize, i64)>> = Vec::new();
    for update in &history.updates {
        match update.came {
            Came::Failed => {}
            Came::Done => {
                for (counter, amount) in &update.changes {
                    match history.excused(update, *counter) {
                        true => optional.push(vec![(*counter, *amount)]),
                        false => sure[*counter] += amount,
                    }
                }
            }
            // A fence takes effect counter by counter.
            Came::Pending | Came::Unknown if update.changes.iter().any(|(counter, _)| history.excused(update, *counter)) => {
                optional.extend(update.changes.iter().map(|change| vec![*change]));
            }
            Came::Pending | Came::Unknown => optional.push(update.changes.clone()),
        }
    }
    let missing: Vec<i64> = (0..count).map(|counter| values[counter] - history.counters[counter].1.initial - sure[counter]).collect();
    let together = reaches(&optional, &missing);
    let explained = together.unwrap_or_else(|| {
        (0..count).all(|counter| {
            let alone: Vec<Vec<(usize, i64)>> =
                optional.iter().flatten().filter(|(changed, _)| *changed == counter).map(|(_, amount)| vec![(0, *amount)]).collect();
            reaches(&alone, &missing[counter..=counter]).unwrap_or(true)
        })
    });
    if explained {
        return Ok(());
    }
    let mut text = String::new();
    for counter in 0..count {
        let (name, new) = &history.counters[counter];
        let _ = writeln!(
            text,
            "counter {name} is {}, began at {}, and acknowledged updates add {}: no choice of those of unknown outcome explains it",
            values[counter], new.initial, sure[counter]
        );
        text.push_str(&story(history, counter));
    }
    Err(text)
}

/// Whether some of `optional` add up to `wanted`; `None` if there are too many sums to tell.
fn reaches(optional: &[Vec<(usize, i64)>], wanted: &[i64]) -> Option<bool> {
    let mut sums = BTreeSet::from([vec![0i64; wanted.len()]]);
    for changes in optional {
        let with: Vec<Vec<i64>> = sums
            .iter()
            .map(|sum| {
                let mut sum = sum.clone();
                changes.iter().for_each(|(counter, amount)| sum[*counter] += amount);
                sum
            })
            .collect();
        sums.extend(with);
        if sums.len() > MOST_SUMS {
            return None;
        }
    }
    Some(sums.contains(wanted))
}

/// What everyone holds together is what the value leaves.
fn rights_conserved(history: &CounterHistory, counter: usize) -> Result<(), String> {
    let (name, _) = &history.counters[counter];
    for last in history.finals.iter().filter(|last| last.counter == counter && !is_gone(history, last)) {
        let Some(view) = &last.view else { continue };
        let held = |of: fn(&rheostat_core::counter::Rights) -> Option<u64>| view.rights.iter().filter_map(of).map(u128::from).sum::<u128>();
        let down = view.lower.map(|lower| (held(|rights| rights.down), u128::from(view.value.abs_diff(lower)), "decrement"));
        let up = view.upper.map(|upper| (held(|rights| rights.up), u128::from(view.value.abs_diff(upper)), "increment"));
        for (held, left, verb) in down.into_iter().chain(up) {
            if held != left {
                let text = story(history, counter);
                return Err(format!(
                    "rights to {verb} counter {name} are {held} in all, seen from data center {}, and its value leaves {left}\n{text}",
                    last.dc
                ));
            }
        }
    }
    Ok(())
}

/// The updates of one counter, for the reader.
fn story(history: &CounterHistory, counter: usize) -> String {
    let mut text = String::new();
    for reclaim in history.reclaims.iter().filter(|reclaim| reclaim.counter == counter) {
        let _ = writeln!(text, "  data center {} was taken for gone: {reclaim:?}", reclaim.gone);
    }
    for update in history.updates.iter().filter(|update| update.changes.iter().any(|(changed, _)| *changed == counter)) {
        let Update { client, dc, begun_us, changes, came, version, .. } = update;
        let version = version.map_or_else(String::new, |version| format!(", version {version}"));
        let _ = writeln!(text, "  client {client} in data center {dc} at {begun_us} us: {changes:?} {came:?}{version}");
    }
    for last in history.finals.iter().filter(|last| last.counter == counter) {
        let _ = writeln!(text, "  in the end data center {} sees {:?}", last.dc, last.view);
    }
    text
}
