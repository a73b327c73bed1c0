//! *Weather*: each node of a line or a grid follows its neighbours, for ever. A task updates one node: it takes the locks of the edges that lead to nodes of other clients, reads the neighbours, and
//! writes what comes of it.

use crate::course::{Course, Livelock, Tried, Worker};
use crate::graph::Graph;
use crate::lock::{self, Lock};
use crate::report::{Progress, Report};
use crate::run::{Options, Run};
use rheostat_client::Put;
use rheostat_client::task::{Backend, Stop, Task};
use std::collections::BTreeMap;
use std::rc::Rc;

/// Attributes of a node that one task writes at most, and extra reads that it makes at most, to come to the share of PUTs.
const MOST_EXTRA: u64 = 40;

/// Where the nodes are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// One after the other; each client has a segment.
    Line {
        /// How many.
        nodes: usize,
    },
    /// In rows; clients are a grid, too, and each has a section.
    Grid {
        /// Nodes in a row.
        width: usize,
        /// Rows.
        height: usize,
    },
}

impl Shape {
    /// The graph of its nodes.
    ///
    /// # Errors
    /// In words: numbers that fit no graph.
    pub fn graph(self) -> Result<Graph, String> {
        match self {
            Shape::Line { nodes } => Graph::line(nodes),
            Shape::Grid { width, height } => Graph::grid(width, height),
        }
    }

    /// Which of `clients` updates `node`.
    fn owner(self, node: u32, clients: usize) -> usize {
        let node = node as usize;
        match self {
            Shape::Line { nodes } => node * clients / nodes,
            Shape::Grid { width, height } => {
                // The grid of clients that is closest to a square.
                let down = (1..=clients).filter(|rows| clients.is_multiple_of(*rows) && rows * rows <= clients).max().unwrap_or(1);
                let across = clients / down;
                let (row, column) = (node / width, node % width);
                (row * down / height) * across + column * across / width
            }
        }
    }
}

fn key(prefix: &str, node: u32, attribute: u64) -> String {
    match attribute {
        0 => format!("{prefix}state{node}"),
        _ => format!("{prefix}state{node}:{attribute}"),
    }
}

/// How many more reads and writes of states bring `puts` of all to `percent` percent, when one write must come: (reads, writes).
fn balance(gets: u64, puts: u64, percent: u64) -> (u64, u64) {
    let wanted = |gets: u64| gets * percent / (100 - percent).max(1);
    let writes = wanted(gets).saturating_sub(puts).clamp(1, MOST_EXTRA);
    let reads = ((puts + writes) * (100 - percent)).div_ceil(percent.max(1)).saturating_sub(gets).min(MOST_EXTRA);
    (reads, writes)
}

/// Lets nodes follow their neighbours until the time is over, and checks what the store has. `put_percent`: the share of PUTs among reads and writes of states; `None`: as it comes, one write for the reads
/// of all neighbours.
///
/// # Errors
/// In words: it could not begin. What goes wrong later is in the report.
pub async fn run(
    options: Options,
    shape: Shape,
    put_percent: Option<u8>,
    setting: &str,
    progress: impl FnMut(&Progress),
    ended: impl Future<Output = ()>,
) -> Result<Report, String> {
    if put_percent.is_some_and(|percent| !(5..=90).contains(&percent)) {
        return Err("the share of PUTs: from 5 to 90 percent".into());
    }
    let graph = Rc::new(shape.graph()?);
    if options.setting.clients > graph.nodes() {
        return Err(format!("{} clients for {} nodes: each needs one", options.setting.clients, graph.nodes()));
    }
    let local = tokio::task::LocalSet::new();
    local.run_until(followed(options, shape, graph, put_percent, setting, progress, ended)).await
}

async fn followed(
    options: Options,
    shape: Shape,
    graph: Rc<Graph>,
    put_percent: Option<u8>,
    setting: &str,
    progress: impl FnMut(&Progress),
    ended: impl Future<Output = ()>,
) -> Result<Report, String> {
    let run = Run::begin(options, lock::predicate).await?;
    let workers = (0..run.course.setting.clients).map(|number| work(run.worker(number), shape, graph.clone(), put_percent)).collect();
    let (works, mut faults) = run.drive(workers, None, progress, ended).await;
    let (gets, puts) = works.iter().fold((0, 0), |(gets, puts), work| (gets + work.gets, puts + work.puts));
    let mut report = run.end("weather", setting.to_owned(), None, Vec::new()).await;
    report.put_percent = (gets + puts > 0).then(|| puts as f64 * 100.0 / (gets + puts) as f64);
    let states: BTreeMap<u32, Vec<String>> = works.into_iter().flat_map(|work| work.states).collect();
    let keys: Vec<String> = states.keys().map(|node| key(run.course.prefix(), *node, 0)).collect();
    match run.agreed(&keys).await {
        Ok(values) => faults.extend(wrong(run.course.prefix(), &states, &values)),
        Err(why) => faults.push(why),
    }
    if run.course.excludes() && report.overlaps > 0 {
        faults.push(format!("{} times two clients held one lock, and both wrote", report.overlaps));
    }
    report.checked = format!("{} nodes: each is in all data centers what its client wrote last", states.len());
    report.faults = faults;
    Ok(report)
}

/// What a client has done.
#[derive(Default)]
pub struct Work {
    /// Reads of states.
    pub gets: u64,
    /// Writes of states.
    pub puts: u64,
    /// Of each node, what may be in the store: what was written last, and what may have been since.
    pub states: BTreeMap<u32, Vec<String>>,
}

/// Lets the nodes of one client follow their neighbours, until the time is over.
///
/// # Errors
/// In words: it gave up.
pub async fn work<B: Backend>(mut worker: Worker<B>, shape: Shape, graph: Rc<Graph>, put_percent: Option<u8>) -> Result<Work, String> {
    let course = worker.course.clone();
    let clients = course.setting.clients;
    let mut nodes: std::collections::VecDeque<u32> = (0..graph.nodes() as u32).filter(|node| shape.owner(*node, clients) == worker.number).collect();
    let (mut work, mut round) = (Work::default(), 0u64);
    while !worker.is_over() && !nodes.is_empty() {
        let node = nodes[0];
        let locks = lock::around(&graph, node, |other| shape.owner(other, clients));
        let around = graph.of_node(node).len() as u64;
        let (reads, writes) = put_percent.map_or((0, 1), |percent| balance(work.gets + around, work.puts, percent.into()));
        round += 1;
        let follow = async |task: &mut Task<'_, B>| follow(task, &graph, node, &locks, (reads, writes, round), &course).await;
        match worker.attempt(follow).await? {
            Tried::Done(state) => {
                (work.gets, work.puts) = (work.gets + around + reads, work.puts + writes);
                let states = work.states.entry(node).or_default();
                // What failed before may come late.
                if states.len() <= 1 {
                    states.clear();
                }
                states.push(state);
                nodes.rotate_left(1);
            }
            Tried::Later if course.setting.livelock == Livelock::Reorder => nodes.rotate_left(1),
            Tried::Later => {}
            // Its value is not known here: any will do from now on.
            Tried::Unknown => work.states.entry(node).or_default().extend(["?".into(), "?".into()]),
        }
    }
    Ok(work)
}

async fn follow<B: Backend>(
    task: &mut Task<'_, B>,
    graph: &Graph,
    node: u32,
    locks: &[Lock],
    (reads, writes, round): (u64, u64, u64),
    course: &Course,
) -> Result<String, Stop> {
    let visit = lock::enter(task, locks, course).await?;
    let mut sum = 0.0;
    for other in graph.of_node(node) {
        let read = task.get(key(course.prefix(), *other, 0)).await?.value.unwrap_or_default();
        let state = String::from_utf8_lossy(&read);
        // Nobody has written it yet: it begins with its number.
        sum += state.split(' ').next().and_then(|number| number.parse::<f64>().ok()).unwrap_or(f64::from(*other));
    }
    for read in 0..reads {
        task.get(key(course.prefix(), node, read)).await?;
    }
    let state = format!("{:.6} {round}", sum / graph.of_node(node).len() as f64);
    for attribute in 0..writes {
        task.put(Put { expires_after: Some(course.kept()), ..Put::new(key(course.prefix(), node, attribute), state.clone()) });
    }
    task.check()?;
    visit.write();
    task.write().await?;
    Ok(state)
}

/// The key of a node's state, of keys that begin with `prefix`.
pub fn state_key(prefix: &str, node: u32) -> String {
    key(prefix, node, 0)
}

/// Which nodes are not what their clients have written, in words.
pub fn wrong(prefix: &str, states: &BTreeMap<u32, Vec<String>>, values: &BTreeMap<String, Option<String>>) -> Vec<String> {
    let differs = |(node, possible): (&u32, &Vec<String>)| {
        let found = values.get(&key(prefix, *node, 0)).and_then(Option::as_ref);
        let is_known = possible.len() == 1;
        (is_known && found != possible.first()).then(|| format!("node {node} is {found:?} in the store, and its client wrote {:?} last", possible[0]))
    };
    states.iter().filter_map(differs).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_have_sections_of_about_the_same_size() {
        for (shape, clients) in [(Shape::Line { nodes: 30 }, 4), (Shape::Grid { width: 6, height: 6 }, 6), (Shape::Grid { width: 5, height: 7 }, 4)] {
            let graph = shape.graph().unwrap();
            let mut sizes = vec![0; clients];
            (0..graph.nodes() as u32).for_each(|node| sizes[shape.owner(node, clients)] += 1);
            assert!(sizes.iter().all(|size| *size >= graph.nodes() / clients / 2), "{shape:?}: {sizes:?}");
        }
        let shape = Shape::Grid { width: 4, height: 4 };
        assert_eq!([0, 1, 2, 7, 8, 15].map(|node| shape.owner(node, 4)), [0, 0, 1, 1, 2, 3]);
    }

    #[test]
    fn the_share_of_puts_is_what_was_asked_for() {
        for percent in [5u64, 25, 33, 50, 75, 90] {
            let (mut gets, mut puts) = (0, 0);
            for task in 0..2_000 {
                let around = 2 + task % 3;
                let (reads, writes) = balance(gets + around, puts, percent);
                assert!((1..=MOST_EXTRA).contains(&writes) && reads <= MOST_EXTRA);
                (gets, puts) = (gets + around + reads, puts + writes);
            }
            let share = puts as f64 * 100.0 / (gets + puts) as f64;
            assert!((share - percent as f64).abs() < 3.0, "{share} instead of {percent}");
        }
    }

    #[test]
    fn a_node_that_is_not_what_was_written_last_is_found() {
        let known = |state: &str| vec![state.to_owned()];
        let states = BTreeMap::from([(0, known("1 1")), (1, known("2 1")), (2, vec!["3 1".into(), "?".into()])]);
        let values = |all: [Option<&str>; 3]| (0..).zip(all).map(|(node, value)| (key("p:", node, 0), value.map(str::to_owned))).collect();
        assert!(wrong("p:", &states, &values([Some("1 1"), Some("2 1"), Some("9 9")])).is_empty());
        assert_eq!(wrong("p:", &states, &values([Some("1 1"), Some("2 0"), None])).len(), 1);
        assert_eq!(wrong("p:", &states, &values([None, None, None])).len(), 2);
    }
}
