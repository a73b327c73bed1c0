//! *Weather*: each node of a line or a grid follows its neighbours, for ever. A task updates one node: it takes the locks of the edges that lead to nodes of other clients, reads the neighbours, and
//! writes what comes of it.

use crate::course::{Course, Livelock, Tried, Worker};
use crate::graph::Graph;
use crate::lock::{self, Lock};
use crate::report::{Progress, Report};
use crate::run::{Options, Run};
use rheostat_client::Put;
use rheostat_client::task::{Backend, Stop, Task};
use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

/// Attributes of a node that one task writes at most, and extra reads that it makes at most, to come to the share of PUTs.
const MOST_EXTRA: u64 = 40;
/// So many tasks with locks settle at the same time, where so many in a row have not collided with anybody.
const TOGETHER: usize = 8;
const CALM: u32 = 16;

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
                // With more rows or columns than the nodes have, some clients would have none: then nodes are shared out row by row.
                if across > width || down > height {
                    return node * clients / (width * height);
                }
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
/// In words: it could not begin, or `ended` came while no clients worked or for the second time. What goes wrong otherwise is in the report.
pub async fn run(
    options: Options,
    shape: Shape,
    put_percent: Option<u8>,
    setting: &str,
    progress: impl FnMut(&Progress),
    ended: impl AsyncFnMut(),
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
    mut ended: impl AsyncFnMut(),
) -> Result<Report, String> {
    let run = Run::begin(options, lock::predicate, &mut ended).await?;
    let workers = (0..run.course.setting.clients).map(|number| work(run.worker(number), shape, graph.clone(), put_percent)).collect();
    let (works, mut faults) = run.drive(workers, None, progress, &mut ended).await?;
    let (gets, puts) = works.iter().fold((0, 0), |(gets, puts), work| (gets + work.gets, puts + work.puts));
    let states: BTreeMap<u32, Vec<String>> = works.into_iter().flat_map(|work| work.states).collect();
    let outcome = async {
        let mut report = run.end("weather", setting.to_owned(), None, Vec::new()).await;
        report.put_percent = (gets + puts > 0).then(|| puts as f64 * 100.0 / (gets + puts) as f64);
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
        report
    };
    run.found(outcome, &mut ended).await
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

/// The nodes of one client. None is followed again before each of them has been followed.
struct Section {
    graph: Rc<Graph>,
    shape: Shape,
    clients: usize,
    put_percent: Option<u8>,
    /// In this round.
    todo: VecDeque<u32>,
    done: Vec<u32>,
    /// Tasks that were begun.
    begun: u64,
    /// Whose locks are taken, or being taken.
    settling: Vec<u32>,
    /// Tasks with locks in a row that were done at the first try.
    calm: u32,
    work: Work,
}

/// A task: to follow a node's neighbours.
struct Follow {
    node: u32,
    locks: Vec<Lock>,
    around: u64,
    reads: u64,
    writes: u64,
    /// In the state that it writes, so that no two are the same.
    number: u64,
}

impl Section {
    /// The node whose turn it is.
    fn first(&mut self) -> Option<u32> {
        if self.todo.is_empty() {
            self.todo.extend(self.done.drain(..));
        }
        self.todo.front().copied()
    }

    /// Another node of this round: one between nodes of the same client, which needs no lock. When there is none left, one that needs locks, if it may settle beside those that do.
    fn another(&self) -> Option<(u32, bool)> {
        let owner = |node: u32| self.shape.owner(node, self.clients);
        let is_inner = |node: u32| self.graph.of_node(node).iter().all(|other| owner(*other) == owner(node));
        let find = |inner: bool| self.todo.iter().copied().find(|node| is_inner(*node) == inner && !self.settling.contains(node));
        let inner = find(true).map(|node| (node, true));
        let may_settle = self.calm >= CALM && self.settling.len() < TOGETHER;
        inner.or_else(|| find(false).filter(|_| may_settle).map(|node| (node, false)))
    }

    fn begin(&mut self, node: u32) -> Follow {
        self.begun += 1;
        let locks = lock::around(&self.graph, node, |other| self.shape.owner(other, self.clients));
        let around = self.graph.of_node(node).len() as u64;
        let (reads, writes) = self.put_percent.map_or((0, 1), |percent| balance(self.work.gets + around, self.work.puts, percent.into()));
        Follow { node, locks, around, reads, writes, number: self.begun }
    }

    /// It is done, and has written this state.
    fn end(&mut self, follow: &Follow, state: String) {
        self.work.gets += follow.around + follow.reads;
        self.work.puts += follow.writes;
        let states = self.work.states.entry(follow.node).or_default();
        // What failed before may come late.
        if states.len() <= 1 {
            states.clear();
        }
        states.push(state);
        self.calm += u32::from(!follow.locks.is_empty());
        self.todo.retain(|node| *node != follow.node);
        self.done.push(follow.node);
    }

    /// It failed: the node's value is not known here, and any will do from now on.
    fn lose(&mut self, node: u32) {
        self.work.states.entry(node).or_default().extend(["?".into(), "?".into()]);
    }

    /// Another one first. Where there is none left in this round, the next one has begun.
    fn put_off(&mut self) {
        if self.todo.len() == 1 {
            self.todo.extend(self.done.drain(..));
        }
        self.todo.rotate_left(1);
    }
}

/// Lets the nodes of one client follow their neighbours, until the time is over.
///
/// # Errors
/// In words: it gave up.
pub async fn work<B: Backend>(mut worker: Worker<B>, shape: Shape, graph: Rc<Graph>, put_percent: Option<u8>) -> Result<Work, String> {
    let course = worker.course.clone();
    let clients = course.setting.clients;
    let todo = (0..graph.nodes() as u32).filter(|node| shape.owner(*node, clients) == worker.number).collect();
    let mut section =
        Section { graph, shape, clients, put_percent, todo, done: Vec::new(), begun: 0, settling: Vec::new(), calm: 0, work: Work::default() };
    while let Some(node) = section.first().filter(|_| !worker.is_over()) {
        let one = section.begin(node);
        let tried = worker.attempt(async |task: &mut Task<'_, B>| follow_locked(task, &one, &mut section, &course).await).await?;
        section.settling.clear();
        match tried {
            Tried::Done(state) => section.end(&one, state),
            Tried::Later => {
                section.calm = 0;
                if course.setting.livelock == Livelock::Reorder {
                    section.put_off();
                }
            }
            Tried::Unknown => section.lose(node),
        }
    }
    Ok(section.work)
}

/// Takes the locks, and while an alarm about them could come, follows others. Who has locks does not wait for more: another node whose locks are held is left for later.
fn follow_locked<'a, B: Backend>(
    task: &'a mut Task<'_, B>,
    one: &'a Follow,
    section: &'a mut Section,
    course: &'a Course,
) -> Pin<Box<dyn Future<Output = Result<String, Stop>> + 'a>> {
    Box::pin(async move {
        let patience = if section.settling.is_empty() { lock::PATIENCE } else { Duration::ZERO };
        section.settling.push(one.node);
        let visit = lock::enter(task, &one.locks, course, patience).await?;
        if let Some(until) = task.settles_until() {
            while task.now() < until && !course.is_over(task.now()) {
                task.check()?;
                let Some((node, inner)) = section.another() else { break };
                let next = section.begin(node);
                let tried = match inner {
                    true => task.beside(async |other: &mut Task<'_, B>| follow(other, &next, &section.graph, course).await).await,
                    false => task.beside(async |other: &mut Task<'_, B>| follow_locked(other, &next, section, course).await).await,
                };
                section.settling.retain(|settling| *settling != node);
                match tried {
                    Ok(state) => {
                        section.end(&next, state);
                        course.count_done();
                    }
                    Err(stop) if stop.is_passing() && inner => {}
                    Err(stop) => {
                        section.calm = 0;
                        if !stop.is_passing() {
                            section.lose(node);
                        }
                        break;
                    }
                }
            }
            task.settle_until(until).await?;
        }
        let state = follow(task, one, &section.graph, course).await?;
        task.check()?;
        visit.write();
        task.write().await?;
        Ok(state)
    })
}

async fn follow<B: Backend>(task: &mut Task<'_, B>, one: &Follow, graph: &Graph, course: &Course) -> Result<String, Stop> {
    let mut sum = 0.0;
    for other in graph.of_node(one.node) {
        let read = task.get(key(course.prefix(), *other, 0)).await?.value.unwrap_or_default();
        let state = String::from_utf8_lossy(&read);
        // Nobody has written it yet: it begins with its number.
        sum += state.split(' ').next().and_then(|number| number.parse::<f64>().ok()).unwrap_or(f64::from(*other));
    }
    for read in 0..one.reads {
        task.get(key(course.prefix(), one.node, read)).await?;
    }
    let state = format!("{:.6} {}", sum / one.around as f64, one.number);
    for attribute in 0..one.writes {
        task.put(Put { expires_after: Some(course.kept()), ..Put::new(key(course.prefix(), one.node, attribute), state.clone()) });
    }
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
    use std::collections::BTreeSet;

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
    fn every_client_has_a_node() {
        for (width, height) in [(4, 4), (3, 5), (2, 9), (9, 2), (1, 6)] {
            let (shape, nodes) = (Shape::Grid { width, height }, width * height);
            for clients in 1..=nodes {
                let owners: BTreeSet<usize> = (0..nodes as u32).map(|node| shape.owner(node, clients)).collect();
                assert_eq!(owners, (0..clients).collect::<BTreeSet<usize>>(), "{clients} clients of {width} x {height}");
            }
        }
    }

    #[test]
    fn no_node_is_followed_again_before_each_has_been() {
        let shape = Shape::Grid { width: 6, height: 4 };
        let graph = Rc::new(shape.graph().unwrap());
        let todo = (0..24).filter(|node| shape.owner(*node, 2) == 0).collect();
        let mut section = Section {
            graph,
            shape,
            clients: 2,
            put_percent: None,
            todo,
            done: Vec::new(),
            begun: 0,
            settling: Vec::new(),
            calm: 0,
            work: Work::default(),
        };
        let nodes: Vec<u32> = section.todo.iter().copied().collect();
        assert_eq!(nodes, [0, 1, 2, 6, 7, 8, 12, 13, 14, 18, 19, 20]);
        for round in 1..=3 {
            let mut followed = std::collections::BTreeSet::new();
            while followed.len() < nodes.len() {
                let first = section.first().unwrap();
                section.settling = vec![first];
                while let Some((node, is_inner)) = section.another().filter(|_| first % 6 == 2) {
                    let next = section.begin(node);
                    assert_eq!((next.locks.is_empty(), is_inner), (is_inner, node % 6 < 2));
                    assert!(node != first && (is_inner || round > 2), "{round}: only after eight in a row that did not collide");
                    section.end(&next, String::new());
                    assert!(followed.insert(node), "{round}: {node}");
                }
                let one = section.begin(first);
                assert_eq!(one.locks.len(), usize::from(first % 6 == 2));
                section.end(&one, String::new());
                assert!(followed.insert(first), "{round}: {first}");
            }
        }
        assert_eq!((section.work.puts, section.begun), (36, 36));
        // The last one of a round that collides comes after those of the next.
        section.first();
        while section.todo.len() > 1 {
            let one = section.begin(section.todo[1]);
            section.end(&one, String::new());
        }
        let last = section.first().unwrap();
        section.put_off();
        assert_eq!((section.todo.len(), section.todo.back()), (nodes.len(), Some(&last)));
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
