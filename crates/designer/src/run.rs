//! Running an experiment in virtual time, one at a time, within limits of virtual time, real time and memory; it can be cancelled.

use crate::file;
use rheostat_lab::chart;
use rheostat_lab::expect::{self, Verdict};
use rheostat_lab::experiment::{self, ChartKind, Experiment, GroundName, Point};
use rheostat_lab::ground::VirtualTime;
use rheostat_lab::report::{self, Chapter};
use rheostat_lab::row::{Origin, Row};
use rheostat_server::resident;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Which size of an experiment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    /// The small one.
    Quick,
    /// The large one.
    Full,
}

impl Form {
    /// Its name in files.
    pub fn name(self) -> &'static str {
        match self {
            Form::Quick => "quick",
            Form::Full => "full",
        }
    }
}

/// What one run may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Of real time.
    pub real: Duration,
    /// Of virtual time, all measurements together.
    pub in_virtual: Duration,
    /// Measurements.
    pub rows: usize,
    /// By how much the process may grow meanwhile, in bytes.
    pub growth: u64,
    /// Whether everybody else's work comes first.
    pub last: bool,
}

impl Limits {
    /// In a process that serves a cluster.
    pub const NODE: Limits = Limits { real: Duration::from_secs(60), in_virtual: Duration::from_secs(600), rows: 200, growth: 256 << 20, last: true };

    /// In a process of its own, with so much real time.
    pub const fn alone(real: Duration) -> Limits {
        Limits { real, in_virtual: Duration::from_secs(4 * 3600), rows: 2000, growth: 4 << 30, last: false }
    }

    /// For the page.
    pub(crate) fn told(&self) -> Value {
        json!({ "real_s": self.real.as_secs(), "virtual_s": self.in_virtual.as_secs(), "rows": self.rows, "growth_mb": self.growth >> 20 })
    }
}

/// Why a run has not come to its end.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Ended {
    Cancelled,
    Failed(String),
}

/// How far a run is.
struct State {
    /// Measurements that are made.
    done: usize,
    /// The share of the next one that is made.
    share: f64,
    took: Duration,
    /// What came of it, and whether it came to its end.
    result: Option<(Value, Option<Ended>)>,
}

struct Job {
    number: u64,
    name: String,
    title: String,
    form: Form,
    of: usize,
    began: Instant,
    stop: AtomicBool,
    state: Mutex<State>,
}

/// Nothing panics while it holds a lock, but for what a protocol under test may do; what is behind is whole then too.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The runs of a process: one at a time, the last one kept.
pub struct Runs {
    limits: Limits,
    last: Mutex<Option<Arc<Job>>>,
}

impl Runs {
    pub(crate) fn new(limits: Limits) -> Runs {
        Runs { limits, last: Mutex::new(None) }
    }

    pub(crate) fn limits(&self) -> Limits {
        self.limits
    }

    /// Begins to run the experiment in `text`.
    ///
    /// # Errors
    /// It is not right, as the command line says it; it would take more than the limits allow; another one runs.
    pub(crate) fn begin(&self, text: &str, form: Form) -> Result<(), String> {
        let name = toml::from_str::<toml::Table>(text).ok().and_then(|table| Some(json!({ "name": table.get("name")?.as_str()? })));
        let experiment = file::experiment(&file::name_of(file::Kind::Experiment, name.as_ref()), text).map_err(|wrong| wrong.text)?;
        let full = form == Form::Full;
        if !experiment.grounds.contains(&GroundName::Virtual) {
            return Err("grounds: the Designer runs in virtual time only, and this experiment does not".into());
        }
        let (rows, size) = (experiment.rows(full).unwrap_or(usize::MAX), experiment.size(full));
        let in_virtual =
            Duration::from_millis(size.settle_ms + size.warm_ms + size.measure_ms).saturating_mul(u32::try_from(rows).unwrap_or(u32::MAX));
        let Limits { rows: most, in_virtual: longest, .. } = self.limits;
        if rows > most || in_virtual > longest {
            return Err(format!(
                "{rows} measurements of {} s of virtual time together; here are at most {most} and {} s; `rheostat lab run` has no such limits",
                in_virtual.as_secs(),
                longest.as_secs()
            ));
        }
        let points = experiment::points(&experiment, text, full)?;
        let mut last = lock(&self.last);
        if last.as_ref().is_some_and(|job| lock(&job.state).result.is_none()) {
            return Err("another experiment runs; cancel it, or wait".into());
        }
        let job = Arc::new(Job {
            number: last.as_ref().map_or(1, |job| job.number + 1),
            name: experiment.name.clone(),
            title: experiment.title.clone(),
            form,
            of: points.len(),
            began: Instant::now(),
            stop: AtomicBool::new(false),
            state: Mutex::new(State { done: 0, share: 0.0, took: Duration::ZERO, result: None }),
        });
        let (running, limits) = (job.clone(), self.limits);
        let thread = std::thread::Builder::new().name("designer".into()).spawn(move || {
            // What a protocol under a strange setting may do must not leave the page waiting.
            let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(&running, limits, experiment, &points)));
            let result = ran.unwrap_or_else(|_| (Value::Null, Some(Ended::Failed("an assertion failed while it ran; the log has it".into()))));
            let mut state = lock(&running.state);
            state.took = running.began.elapsed();
            state.result = Some(result);
        });
        thread.map_err(|error| format!("a thread cannot be started: {error}"))?;
        *last = Some(job);
        Ok(())
    }

    /// Has the run end soon, if there is one.
    pub(crate) fn cancel(&self) {
        if let Some(job) = &*lock(&self.last) {
            job.stop.store(true, Ordering::Relaxed);
        }
    }

    /// How far the last run is, and what came of it.
    pub(crate) fn progress(&self) -> Value {
        let Some(job) = lock(&self.last).clone() else { return json!({ "state": "none" }) };
        let state = lock(&job.state);
        let mut told = json!({
            "number": job.number, "name": job.name, "title": job.title, "form": job.form.name(), "done": state.done, "of": job.of, "share": state.share,
            "real_s": self.limits.real.as_secs(), "state": "running", "took_s": job.began.elapsed().as_secs_f64(),
        });
        if let Some((result, ended)) = &state.result {
            told["took_s"] = json!(state.took.as_secs_f64());
            told["result"] = result.clone();
            told["state"] = match ended {
                None => "done".into(),
                Some(Ended::Cancelled) => "cancelled".into(),
                Some(Ended::Failed(why)) => {
                    told["why"] = why.clone().into();
                    "failed".into()
                }
            };
        }
        told
    }
}

/// The error that ends a run whose user no longer wants it.
const CANCELLED: &str = "cancelled";

/// How often memory is looked at.
const LOOK: Duration = Duration::from_millis(50);

fn work(job: &Job, limits: Limits, experiment: Experiment, points: &[Point]) -> (Value, Option<Ended>) {
    if limits.last {
        // On Linux the nice value is the thread's; 19 is the last.
        #[cfg(target_os = "linux")]
        let _ = rustix::process::setpriority_process(None, 19);
    }
    let before = resident();
    let origin = Origin { commit: "unknown".into(), machine: "the Designer".into() };
    let (mut rows, mut ended, mut looked) = (Vec::new(), None, Instant::now());
    for point in points {
        let mut watch = |share: f64| {
            if job.stop.load(Ordering::Relaxed) {
                return Err(CANCELLED.to_owned());
            }
            if looked.elapsed() < LOOK {
                return Ok(());
            }
            looked = Instant::now();
            lock(&job.state).share = share.clamp(0.0, 1.0);
            let grown = resident().saturating_sub(before);
            if grown > limits.growth {
                return Err(format!(
                    "the process has grown by {} MiB meanwhile, and at most {} are for the Designer; make the experiment smaller",
                    grown >> 20,
                    limits.growth >> 20
                ));
            }
            match job.began.elapsed() > limits.real {
                true => Err(format!(
                    "it took longer than {} s of real time; make the experiment smaller, or run it with `rheostat lab run`",
                    limits.real.as_secs()
                )),
                false => Ok(()),
            }
        };
        let began = Instant::now();
        let measured = watch(0.0).and_then(|()| VirtualTime::run_watched(point, &mut watch));
        match measured {
            Ok(measured) => rows.push(Row::new(point, GroundName::Virtual, measured, began.elapsed().as_secs_f64(), &origin)),
            Err(why) if why == CANCELLED => ended = Some(Ended::Cancelled),
            Err(why) => ended = Some(Ended::Failed(format!("{}: {why}", expect::place(&point.contender.name, &point.at)))),
        }
        if ended.is_some() {
            break;
        }
        let mut state = lock(&job.state);
        (state.done, state.share) = (rows.len(), 0.0);
    }
    (told(Chapter { experiment, rows }), ended)
}

/// What a chapter shows: its pictures, its table and what became of what must hold, as `rheostat lab run` draws, prints and judges it.
fn told(mut chapter: Chapter) -> Value {
    // The other ground is not run here, so nothing of it is missed.
    chapter.experiment.expect.retain(|expect| !expect.get_ref().between_grounds && expect.get_ref().ground != Some(GroundName::Processes));
    chapter.experiment.grounds = vec![GroundName::Virtual];
    let pictures = chart::pictures(&chapter.experiment, &chapter.rows).into_iter().map(|picture| {
        let panels = picture.panels.into_iter().map(|panel| {
            let series = panel.series.into_iter().map(|series| json!({ "name": series.name, "colour": series.colour, "paper": series.paper, "points": series.points }));
            json!({ "title": panel.title, "series": series.collect::<Vec<_>>() })
        });
        let kind = match picture.kind {
            ChartKind::Line => "line",
            ChartKind::Bar => "bar",
            ChartKind::Cdf => "cdf",
        };
        json!({
            "name": picture.name, "title": picture.title, "kind": kind, "x_label": picture.x_label, "y_label": picture.y_label, "words": picture.words, "log": [picture.log.0, picture.log.1],
            "panels": panels.collect::<Vec<_>>(),
        })
    });
    let pictures: Vec<Value> = pictures.collect();
    let findings = expect::judge(&chapter.experiment, &chapter.rows).into_iter().map(|finding| {
        let verdict = match finding.verdict {
            Verdict::Met => "met",
            Verdict::Failed(_) => "failed",
            Verdict::NotMeasured => "not measured",
        };
        json!({
            "verdict": verdict, "says": finding.expect.says, "bounds": expect::bounds(&finding.expect), "paper": finding.expect.paper,
            "worst": finding.worst.map(|found| format!("{} ({})", found.text(), found.place)),
        })
    });
    let findings: Vec<Value> = findings.collect();
    json!({ "pictures": pictures, "table": report::summary(&chapter), "findings": findings, "rows": chapter.rows.len() })
}

#[cfg(test)]
mod tests;
