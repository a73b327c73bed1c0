//! Applications as loads: what their clients do, and what is measured of them, on all grounds alike.

use super::Measured;
use crate::experiment::{Act, Against, Asked, Clients, Cluster, GraphKind, Point, WeatherShape};
use rheostat_apps::conjunctive::{self, Conjunctions, Written};
use rheostat_apps::graph::Graph;
use rheostat_apps::weather::{self, Shape};
use rheostat_apps::{Consistency, Course, Livelock, Report, Setting, lock, social};
use rheostat_client::Quorum;
use rheostat_client::task::{Alarms, Backend};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

/// What an application's clients do.
#[derive(Clone)]
pub(super) enum Work {
    Social(Rc<Graph>),
    Weather(Shape, Rc<Graph>, Option<u8>),
    Conjunctive(Conjunctions),
}

/// What a client leaves when it has ended.
pub(super) enum Left {
    Nothing,
    Weather(weather::Work),
    Conjunctive(Written),
}

/// The application of a point.
pub(super) struct Application {
    pub(super) work: Work,
    pub(super) setting: Setting,
    /// For how long a task waits for an alarm about its locks.
    pub(super) settle: Duration,
    pub(super) epsilon_ms: u64,
}

impl Application {
    /// What `point` asks for; `None` if it is no application.
    pub(super) fn of(point: &Point) -> Result<Option<Application>, String> {
        let Some(load) = point.load.first().filter(|load| load.does.is_application()) else { return Ok(None) };
        let asked: Clients = point.contender.clients.clone().unwrap_or_default();
        let clients = load.clients as usize * point.cluster.regions.len();
        let work = match &load.does {
            Act::Social(colouring) => Work::Social(Rc::new(match colouring.graph {
                GraphKind::PowerLaw => Graph::power_law(colouring.nodes, 3, 50, point.seed)?,
                GraphKind::Regular => Graph::regular(colouring.nodes, 6, point.seed)?,
            })),
            Act::Weather(weather) => {
                let width = weather.nodes.isqrt();
                let shape = match weather.shape {
                    WeatherShape::Line => Shape::Line { nodes: weather.nodes },
                    WeatherShape::Grid => Shape::Grid { width, height: weather.nodes.div_ceil(width) },
                };
                let graph = shape.graph()?;
                if clients > graph.nodes() {
                    return Err(format!("{clients} clients for {} nodes: each needs one", graph.nodes()));
                }
                Work::Weather(shape, Rc::new(graph), weather.put_percent)
            }
            Act::Conjunctive(asked) => {
                let chance = (asked.chance * 1000.0).round() as u16;
                let what = Conjunctions { predicates: asked.predicates, locals: asked.locals, chance, rate: asked.rate };
                what.check(clients)?;
                Work::Conjunctive(what)
            }
            _ => return Ok(None),
        };
        let data_centers = point.cluster.regions.len() as u8;
        let majority = data_centers / 2 + 1;
        let setting = Setting {
            clients,
            consistency: match asked.consistency {
                Asked::Eventual => Consistency::Eventual,
                Asked::Sequential => Consistency::Sequential,
                Asked::Adaptive => Consistency::Adaptive,
            },
            meeting: Some(Quorum { asked: 0, reads: asked.reads.unwrap_or(majority), writes: asked.writes.unwrap_or(majority) }),
            monitor: asked.monitor,
            rollback: asked.rollback,
            livelock: match asked.livelock {
                Against::None => Livelock::None,
                Against::Backoff => Livelock::Backoff,
                Against::Reorder => Livelock::Reorder,
            },
            looks: asked.looks,
            write_all: asked.write_all,
            seed: point.seed,
            duration: Duration::from_millis(point.size.warm_ms + point.size.measure_ms),
            run: "lab".into(),
        };
        let settle_ms = asked.settle_ms.unwrap_or_else(|| 2.5 * longest_way_ms(&point.cluster) + 50.0);
        Ok(Some(Application { work, setting, settle: Duration::from_micros((settle_ms * 1000.0) as u64), epsilon_ms: asked.epsilon_ms }))
    }

    /// What is watched for, for keys that begin with `prefix`: a pattern.
    pub(super) fn predicate(&self, prefix: &str) -> String {
        match &self.work {
            Work::Social(_) | Work::Weather(..) => lock::predicate(prefix),
            Work::Conjunctive(what) => conjunctive::pattern(prefix, what.locals),
        }
    }

    /// How many tasks there are, where there is an end.
    pub(super) fn of_tasks(&self) -> Option<u64> {
        if let Work::Social(graph) = &self.work { Some(graph.nodes() as u64) } else { None }
    }

    /// What is wrong when all clients have ended, by what they left and what `newest` finds in the store; and, of violations that happened, how many had no alarm.
    pub(super) fn faults(
        &self,
        course: &Course,
        left: Vec<Left>,
        mut newest: impl FnMut(&str) -> Result<Option<String>, String>,
    ) -> (Vec<String>, Option<(usize, usize)>) {
        let mut faults = Vec::new();
        let mut values = BTreeMap::new();
        let prefix = course.prefix();
        let mut read = |key: String, faults: &mut Vec<String>| match newest(&key) {
            Ok(value) => drop(values.insert(key, value)),
            Err(why) => faults.push(why),
        };
        match &self.work {
            Work::Social(graph) => {
                (0..graph.nodes() as u32).for_each(|node| read(social::key(prefix, node), &mut faults));
                faults.extend(social::wrong(graph, prefix, &values, course.done() >= graph.nodes() as u64));
                (faults, None)
            }
            Work::Weather(..) => {
                let states = left.into_iter().filter_map(|left| if let Left::Weather(work) = left { Some(work.states) } else { None });
                let states: BTreeMap<u32, Vec<String>> = states.flatten().collect();
                states.keys().for_each(|node| read(weather::state_key(prefix, *node), &mut faults));
                faults.extend(weather::wrong(prefix, &states, &values));
                (faults, None)
            }
            Work::Conjunctive(what) => {
                let written = left.into_iter().filter_map(|left| if let Left::Conjunctive(written) = left { Some(written) } else { None });
                let violations = conjunctive::violations(prefix, *what, &written.flatten().collect());
                let missing = conjunctive::missing(&violations, &course.evidence());
                (missing.all.clone(), Some((violations.len(), missing.all.len())))
            }
        }
    }
}

/// The longest way from one data center to another and to a client there, in milliseconds.
fn longest_way_ms(cluster: &Cluster) -> f64 {
    let all = 0..cluster.regions.len();
    let ways = all.clone().flat_map(|a| all.clone().filter_map(move |b| (a != b).then(|| cluster.round_trip(a, b)).flatten()));
    ways.fold(0.0, f64::max) / 2.0 + cluster.jitter_ms + cluster.near_ms
}

impl Default for Clients {
    fn default() -> Clients {
        toml::from_str("").expect("every field has a default")
    }
}

/// What client `number` does, on `backend`.
pub(super) async fn live<B: Backend>(work: Work, course: Rc<Course>, number: usize, backend: B, alarms: Alarms) -> Result<Left, String> {
    match work {
        Work::Conjunctive(what) => conjunctive::work(course, number, what, backend).await.map(Left::Conjunctive),
        Work::Social(graph) => social::work(course.worker(number, backend, alarms), graph).await.map(|()| Left::Nothing),
        Work::Weather(shape, graph, percent) => weather::work(course.worker(number, backend, alarms), shape, graph, percent).await.map(Left::Weather),
    }
}

/// Puts down how many of so many violations no alarm has told; where there were none, none can be missed.
pub(super) fn sum_up_violations(measured: &mut Measured, violations: usize, missed: usize) {
    measured.values.insert("violations".into(), violations as f64);
    if violations > 0 {
        measured.values.insert("missed".into(), missed as f64);
    }
}

/// Puts down what the whole run came to, warming up included. A share of nothing is left out, and so is what is wrong where nothing was done.
pub(super) fn sum_up(measured: &mut Measured, report: &Report) {
    let percent = |part: u64, of: u64| (of > 0).then(|| 100.0 * part as f64 / of as f64);
    let mut values = vec![
        ("tries", report.tries as f64),
        ("rolled_back", report.rolled_back as f64),
        ("begun_again", report.begun_again as f64),
        ("close", report.close as f64),
        ("late", report.late as f64),
        ("moves", report.moves.len() as f64),
        ("overlaps", report.overlaps as f64),
    ];
    if report.done > 0 || !report.faults.is_empty() {
        values.push(("wrong", report.faults.len() as f64));
    }
    let mut shares = vec![("rolled_back_percent", percent(report.rolled_back, report.tries))];
    if let Some(of) = report.of {
        shares.push(("done_percent", percent(report.done, of)));
    }
    if let Some(told) = &report.detection {
        values.extend([("alarms", told.alarms as f64), ("gaps", told.gaps as f64)]);
        shares.push(("alarms_violated_percent", percent(told.violated, told.alarms)));
    }
    values.extend(shares.into_iter().filter_map(|(name, share)| Some((name, share?))));
    measured.values.extend(values.into_iter().map(|(name, value)| (name.to_owned(), value)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use rheostat_apps::Detection;

    #[test]
    fn of_nothing_that_was_done_nothing_is_right() {
        let measured = |report: &Report, violations: usize| {
            let mut measured = Measured::default();
            sum_up(&mut measured, report);
            sum_up_violations(&mut measured, violations, 0);
            ["wrong", "rolled_back_percent", "alarms_violated_percent", "missed"].map(|name| measured.values.get(name).copied())
        };
        let idle = Report { detection: Some(Detection::default()), ..Report::default() };
        assert_eq!(measured(&idle, 0), [None; 4]);
        let done = Report { done: 4, tries: 4, detection: Some(Detection { alarms: 1, ..Detection::default() }), ..Report::default() };
        assert_eq!(measured(&done, 1), [Some(0.0); 4]);
        assert_eq!(measured(&Report { faults: vec!["it did not begin".into()], ..idle }, 0)[0], Some(1.0));
    }
}
