//! One run of one plan.

use crate::marks::Marks;
use crate::plan::Plan;
use crate::trace::TraceLevel;
use crate::watch::{Course, Watch, Watching};
use crate::world::{Failure, World};
use rheostat_checkers::History;
use rheostat_core::dial::Level;

/// What came of a run.
#[derive(Clone, Debug)]
pub struct RunReport {
    /// A hash of everything that happened and of the final states of the random sources.
    pub hash: u64,
    /// Virtual time that passed, in microseconds.
    pub virtual_us: u64,
    /// Events of the simulator.
    pub events: u64,
    /// Client-visible events in the history.
    pub operations: usize,
    /// How far the hybrid clock of a server was ahead of its physical one when it had started again, at most, in milliseconds.
    pub restarted_ahead_ms: u64,
    /// How often a server has begun to mistrust its clock.
    pub clocks_distrusted: u64,
    /// What was seen.
    pub marks: Marks,
    /// The broken promise, if one was broken.
    pub failure: Option<Failure>,
    /// The trace, if asked for.
    pub trace: Vec<String>,
    /// The history, unless the run broke off.
    pub history: Option<History>,
    /// The level whose promises it was checked for.
    pub promised: Level,
}

/// Runs `plan` and checks its history.
///
/// # Errors
///
/// The plan makes no sense: see [`Plan::check`]; unknown protocol, option or planted bug. A broken promise is no error but a failure in the report.
pub fn run_plan(plan: &Plan, level: TraceLevel) -> Result<RunReport, String> {
    Ok(run(World::new(plan, level)?).0)
}

/// As [`run_plan`], and keeps what a person is shown of it; what `watching` says is done to messages on the way. With no such thing, and within its limits, the run is the
/// same to the byte.
///
/// # Errors
///
/// As [`run_plan`].
pub fn watch_plan(plan: &Plan, watching: &Watching) -> Result<(RunReport, Course), String> {
    let mut world = World::new(plan, TraceLevel::Story)?;
    world.watch = Some(Box::new(Watch::new(watching.clone(), plan)));
    let (report, watch) = run(world);
    Ok((report, watch.map(|watch| watch.into_course()).unwrap_or_default()))
}

fn run(mut world: World<'_>) -> (RunReport, Option<Box<Watch>>) {
    let history = world.finish();
    if let Some(history) = &history {
        world.check(history);
    }
    let sources = world.links.iter().map(|link| &link.random).chain(world.servers.iter().map(|server| &server.random));
    let states: Vec<u64> = sources.chain(world.clients.iter().map(|client| &client.random)).map(|random| random.state()).collect();
    states.into_iter().for_each(|state| world.trace.number(state));
    let text = history.as_ref().map(ToString::to_string);
    if let Some(text) = &text {
        world.trace.bytes(text.as_bytes());
    }
    let promised = world.promised();
    let report = RunReport {
        hash: world.trace.hash(),
        virtual_us: world.now_us,
        events: world.events,
        operations: history.as_ref().map_or(0, |history| history.events.len()),
        restarted_ahead_ms: world.restarted_ahead_ms,
        clocks_distrusted: world.clocks_distrusted,
        marks: world.marks,
        failure: world.failure,
        trace: world.trace.into_lines(),
        promised,
        history,
    };
    (report, world.watch)
}
