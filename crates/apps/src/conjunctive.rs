//! *Conjunctive*: l local predicates, each a key of another client that is true with a chance of β. What must never happen is that all are true at once; it happens, and monitors say so. Made to see how
//! fast they are, and that they miss nothing.

use crate::course::{Course, Evidence, FAILED_PAUSE, MOST_FAILURES, Setting};
use crate::report::{Progress, Report};
use crate::run::{Options, Run};
use rheostat_client::Put;
use rheostat_client::task::{Backend, Counts};
use rheostat_core::random::Random;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;
use tokio::time::Instant;

/// The most predicates, and the most locals of one.
pub const MOST_PREDICATES: usize = 10_000;
/// See [`MOST_PREDICATES`].
pub const MOST_LOCALS: usize = 16;
/// For how long the monitors may take to tell the last of it.
const PATIENCE: Duration = Duration::from_secs(20);

/// What is to be watched for.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Conjunctions {
    /// How many conjunctive predicates.
    pub predicates: usize,
    /// Local predicates of each, l.
    pub locals: usize,
    /// The chance that a local predicate is true after a write, β, in thousandths.
    pub chance: u16,
    /// Writes of a client in a second.
    pub rate: u32,
}

impl Conjunctions {
    /// Errors: what `clients` clients cannot do, in words.
    pub fn check(self, clients: usize) -> Result<(), String> {
        if self.predicates == 0 || self.predicates > MOST_PREDICATES {
            return Err(format!("{} predicates; from 1 to {MOST_PREDICATES}", self.predicates));
        }
        if self.locals < 2 || self.locals > MOST_LOCALS || self.locals > clients {
            let (locals, clients) = (self.locals, clients);
            return Err(format!("{locals} local predicates and {clients} clients: from 2 to {MOST_LOCALS}, each of another client"));
        }
        if self.chance > 1000 || self.rate == 0 {
            return Err("the chance is from 0 to 1, and a client writes at least once in a second".into());
        }
        Ok(())
    }
}

/// A time on the writers' hybrid logical clocks: milliseconds and counter.
pub type At = (u64, u32);

/// Of one key: from when it was true, until when, and the versions that made it so. Without an end: to the last.
#[derive(Clone, PartialEq, Debug)]
struct Span {
    from: At,
    until: Option<At>,
    versions: Vec<At>,
}

/// What a client has written to its keys, in order.
pub type Written = BTreeMap<String, Vec<(At, bool)>>;

fn key(prefix: &str, predicate: usize, local: usize) -> String {
    format!("{prefix}local{predicate}_{local}")
}

/// The pattern of all predicates, for keys that begin with `prefix`.
pub fn pattern(prefix: &str, locals: usize) -> String {
    let all: Vec<String> = (0..locals).map(|local| format!("{prefix}local{{P}}_{local} = 1")).collect();
    format!("!({})", all.join(" && "))
}

/// Lets local predicates become true and false until the time is over, and checks that no violation was missed.
///
/// # Errors
/// In words: it could not begin, or `ended` came while no clients worked or for the second time. What goes wrong otherwise is in the report.
pub async fn run(
    options: Options,
    what: Conjunctions,
    setting: &str,
    progress: impl FnMut(&Progress),
    ended: impl AsyncFnMut(),
) -> Result<Report, String> {
    what.check(options.setting.clients)?;
    let local = tokio::task::LocalSet::new();
    local.run_until(watched(options, what, setting, progress, ended)).await
}
async fn watched(
    options: Options,
    what: Conjunctions,
    setting: &str,
    progress: impl FnMut(&Progress),
    mut ended: impl AsyncFnMut(),
) -> Result<Report, String> {
    let options = Options { setting: Setting { monitor: true, ..options.setting }, ..options };
    let run = Run::begin(options, |prefix| pattern(prefix, what.locals), &mut ended).await?;
    let workers = (0..run.course.setting.clients).map(|number| work(run.course.clone(), number, what, run.session(number))).collect();
    let (works, mut faults) = run.drive(workers, None, progress, &mut ended).await?;
    let written: Written = works.into_iter().flatten().collect();
    let violations = violations(run.course.prefix(), what, &written);
    let outcome = async {
        // What has happened last may still be under way to whoever watches.
        let until = Instant::now() + PATIENCE;
        let missing = loop {
            let missing = missing(&violations, &run.course.told.evidence.borrow());
            if missing.all.is_empty() || Instant::now() > until {
                break missing;
            }
            tokio::time::sleep(FAILED_PAUSE).await;
        };
        let gaps = run.course.told.gaps.get();
        let mut report = run.end("conjunctive", setting.to_owned(), None, Vec::new()).await;
        report.checked = format!(
            "{} times all {} were true at once, by the versions that were written; {} of them without an alarm, {} more without one that names all of them",
            violations.len(),
            what.locals,
            missing.all.len(),
            missing.own - missing.all.len()
        );
        if gaps == 0 {
            faults.extend(missing.all);
        }
        report.faults = faults;
        report
    };
    run.found(outcome, &mut ended).await
}

/// Writes the keys of client `number` at random, each true or false by chance, until the time is over. What failed leaves its key out.
///
/// # Errors
/// In words: it gave up.
pub async fn work<B: Backend>(course: Rc<Course>, number: usize, what: Conjunctions, mut session: B) -> Result<Written, String> {
    let all = (0..what.predicates).flat_map(|predicate| (0..what.locals).map(move |local| (predicate, local)));
    let clients = course.setting.clients;
    let mine: Vec<String> = all
        .filter(|(predicate, local)| (predicate * what.locals + local) % clients == number)
        .map(|(predicate, local)| key(course.prefix(), predicate, local))
        .collect();
    let mut random = Random::new(course.setting.seed ^ (number as u64 + 1) << 32);
    let (mut written, mut counts, mut failures) = (Written::new(), Counts::default(), 0);
    let mut unknown = BTreeSet::new();
    let pace = Duration::from_secs(1) / what.rate;
    let mut next = session.now();
    while !course.is_over(session.now()) && !mine.is_empty() {
        let early = next.saturating_sub(session.now());
        if !early.is_zero() {
            session.sleep(early).await;
        }
        next = session.now() + pace;
        let key = &mine[random.below(mine.len() as u64) as usize];
        let is = random.chance(what.chance.into(), 1000);
        let put = Put { expires_after: Some(course.kept()), ..Put::new(key.clone(), if is { "1" } else { "0" }) };
        counts.puts += 1;
        counts.tries += 1;
        match session.put(put).await {
            Ok(version) => {
                failures = 0;
                written.entry(key.clone()).or_default().push(((version.millis, version.counter), is));
            }
            Err(error) => {
                // It may have been written: nothing is known of this key any more.
                unknown.insert(key.clone());
                failures += 1;
                if failures >= MOST_FAILURES {
                    return Err(format!("client {number} gave up after {MOST_FAILURES} failures in a row: {error}"));
                }
                session.sleep(FAILED_PAUSE).await;
            }
        }
        course.note(number, counts, false, u64::from(failures == 0));
    }
    written.retain(|key, _| !unknown.contains(key));
    Ok(written)
}

/// When a key was true.
fn spans(writes: &[(At, bool)]) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    let mut is_open = false;
    for (at, is) in writes {
        match (is_open, is) {
            (false, true) => spans.push(Span { from: *at, until: None, versions: vec![*at] }),
            (true, true) => spans.last_mut().into_iter().for_each(|span| span.versions.push(*at)),
            (true, false) => spans.last_mut().into_iter().for_each(|span| span.until = Some(*at)),
            (false, false) => {}
        }
        is_open = *is;
    }
    spans
}

/// A time at which all locals of a predicate were true: of each its key, and the versions that made it true.
pub type Violation = Vec<(String, Vec<At>)>;

/// Each time at which all locals of a predicate were true, by the times of the versions.
pub fn violations(prefix: &str, what: Conjunctions, written: &Written) -> Vec<Violation> {
    let mut all = Vec::new();
    for predicate in 0..what.predicates {
        let keys: Vec<String> = (0..what.locals).map(|local| key(prefix, predicate, local)).collect();
        let of_keys: Vec<Vec<Span>> = keys.iter().map(|key| spans(written.get(key).map_or(&[][..], Vec::as_slice))).collect();
        let mut places = vec![0; what.locals];
        while let Some(at) = of_keys.iter().zip(&places).map(|(spans, place)| spans.get(*place)).collect::<Option<Vec<&Span>>>() {
            let from = at.iter().map(|span| span.from).max().unwrap_or_default();
            let ends = at.iter().enumerate().filter_map(|(local, span)| Some((span.until?, local))).min();
            if ends.is_none_or(|(until, _)| from < until) {
                all.push(keys.iter().cloned().zip(at.iter().map(|span| span.versions.clone())).collect());
            }
            // Whoever ends first is next.
            match ends {
                Some((_, local)) => places[local] += 1,
                None => break,
            }
        }
    }
    all
}

/// What alarms have told of violations.
#[derive(PartialEq, Debug)]
pub struct Missing {
    /// Those of which no alarm names all states: one alarm is told for a state, whatever it stood beside.
    pub own: usize,
    /// Those of which no alarm names any state, in words.
    pub all: Vec<String>,
}

/// What of `violations` no alarm has told.
pub fn missing(violations: &[Violation], told: &[Evidence]) -> Missing {
    let mut of_key: BTreeMap<&[u8], BTreeMap<At, BTreeSet<usize>>> = BTreeMap::new();
    for (alarm, evidence) in told.iter().enumerate() {
        for (variable, millis, counter) in evidence {
            of_key.entry(variable).or_default().entry((*millis, *counter)).or_default().insert(alarm);
        }
    }
    let none = BTreeMap::new();
    let alarms_of = |violation: &Violation| -> Vec<BTreeSet<usize>> {
        let of = |(key, versions): &(String, Vec<At>)| {
            let of_versions = of_key.get(key.as_bytes()).unwrap_or(&none);
            versions.iter().filter_map(|version| of_versions.get(version)).flatten().copied().collect()
        };
        violation.iter().map(of).collect()
    };
    let mut missing = Missing { own: 0, all: Vec::new() };
    for violation in violations {
        let alarms = alarms_of(violation);
        let names_all = alarms.iter().cloned().reduce(|one, other| &one & &other).is_some_and(|all| !all.is_empty());
        missing.own += usize::from(!names_all);
        if alarms.iter().all(BTreeSet::is_empty) {
            let first = |(key, versions): &(String, Vec<At>)| format!("{key} at {}.{}", versions[0].0, versions[0].1);
            missing.all.push(format!("all were true, and no alarm came: {}", violation.iter().map(first).collect::<Vec<_>>().join(", ")));
        }
    }
    missing
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: Conjunctions = Conjunctions { predicates: 1, locals: 2, chance: 500, rate: 10 };

    fn written(one: &[(u64, bool)], other: &[(u64, bool)]) -> Written {
        let of = |all: &[(u64, bool)]| all.iter().map(|(at, is)| ((*at, 0), *is)).collect();
        BTreeMap::from([(key("p:", 0, 0), of(one)), (key("p:", 0, 1), of(other))])
    }

    #[test]
    fn all_are_true_at_once_where_their_times_meet() {
        let count = |one: &[(u64, bool)], other: &[(u64, bool)]| violations("p:", TWO, &written(one, other)).len();
        assert_eq!(count(&[(1, true), (5, false)], &[(5, true), (9, false)]), 0, "one ends when the other begins");
        assert_eq!(count(&[(1, true), (6, false)], &[(5, true), (9, false)]), 1);
        assert_eq!(count(&[(1, true), (2, true), (6, false)], &[(5, true)]), 1, "true again is the same time");
        assert_eq!(count(&[(1, true)], &[(5, true)]), 1, "to the last");
        assert_eq!(count(&[(1, true), (20, false)], &[(2, true), (3, false), (4, true), (5, false), (6, true)]), 3);
        assert_eq!(count(&[(1, true)], &[]), 0);
    }

    #[test]
    fn an_alarm_tells_a_violation_if_it_names_a_state_of_it_and_its_own_names_each() {
        let all = violations("p:", TWO, &written(&[(1, true), (2, true), (6, false)], &[(5, true)]));
        let told = |one: u64, other: u64| vec![(key("p:", 0, 0).into_bytes(), one, 0), (key("p:", 0, 1).into_bytes(), other, 0)];
        let counts = |told: &[Evidence]| {
            let missing = missing(&all, told);
            (missing.own, missing.all.len())
        };
        assert_eq!(counts(&[told(2, 5)]), (0, 0));
        assert_eq!(counts(&[told(9, 9), told(1, 5)]), (0, 0));
        assert_eq!(counts(&[told(6, 5)]), (1, 0), "with another state of the first key");
        assert_eq!(counts(&[told(1, 9), told(9, 5)]), (1, 0), "two alarms that each name one of them");
        assert_eq!(counts(&[told(6, 9)]), (1, 1));
        assert_eq!(counts(&[]), (1, 1));
    }

    #[test]
    fn the_pattern_is_for_all_predicates_and_names_each_local() {
        assert_eq!(pattern("p:", 2), "!(p:local{P}_0 = 1 && p:local{P}_1 = 1)");
    }
}
