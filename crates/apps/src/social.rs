//! *Social*: the nodes of a graph are coloured so that no two neighbours are alike. A task colours one node: it takes the locks of all edges that lead to nodes of other clients, in one order, reads the
//! neighbours' colours, and writes the least colour that none of them has.

use crate::course::{Course, Livelock, Tried, Worker};
use crate::graph::{Graph, shuffle};
use crate::lock::{self, Lock};
use crate::report::{Progress, Report};
use crate::run::{Options, Run};
use rheostat_client::Put;
use rheostat_client::task::{Backend, Stop, Task};
use rheostat_core::random::Random;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

/// Which client colours a node: the first nodes the first client, as many as each other.
fn owner(node: u32, nodes: usize, clients: usize) -> usize {
    (node as usize * clients) / nodes
}

/// The key of a node's colour, of keys that begin with `prefix`.
pub fn key(prefix: &str, node: u32) -> String {
    format!("{prefix}colour{node}")
}

/// Colours `graph`, and checks the colouring in the store.
///
/// # Errors
/// In words: it could not begin, or `ended` came while no clients worked or for the second time. What goes wrong otherwise is in the report.
pub async fn run(options: Options, graph: Graph, setting: &str, progress: impl FnMut(&Progress), ended: impl AsyncFnMut()) -> Result<Report, String> {
    let local = tokio::task::LocalSet::new();
    local.run_until(coloured(options, Rc::new(graph), setting, progress, ended)).await
}

async fn coloured(
    options: Options,
    graph: Rc<Graph>,
    setting: &str,
    progress: impl FnMut(&Progress),
    mut ended: impl AsyncFnMut(),
) -> Result<Report, String> {
    let run = Run::begin(options, lock::predicate, &mut ended).await?;
    let clients = run.course.setting.clients;
    let workers = (0..clients).map(|number| work(run.worker(number), graph.clone())).collect();
    let of = Some(graph.nodes() as u64);
    let (_, mut faults) = run.drive(workers, of, progress, &mut ended).await?;
    let outcome = async {
        let mut report = run.end("social", setting.to_owned(), of, Vec::new()).await;
        if report.done < graph.nodes() as u64 && faults.is_empty() {
            faults.push(format!("{} of {} nodes were coloured when the time was over", report.done, graph.nodes()));
        }
        let keys: Vec<String> = (0..graph.nodes() as u32).map(|node| key(run.course.prefix(), node)).collect();
        match run.agreed(&keys).await {
            Ok(values) => faults.extend(wrong(&graph, run.course.prefix(), &values, report.done == graph.nodes() as u64)),
            Err(why) => faults.push(why),
        }
        if run.course.excludes() && report.overlaps > 0 {
            faults.push(format!("{} times two clients held one lock, and both wrote", report.overlaps));
        }
        report.checked = format!("{} nodes and {} edges, as the store has them in all data centers", graph.nodes(), graph.edges());
        report.faults = faults;
        report
    };
    run.found(outcome, &mut ended).await
}

/// Colours the nodes of one client.
///
/// # Errors
/// In words: it gave up.
pub async fn work<B: Backend>(mut worker: Worker<B>, graph: Rc<Graph>) -> Result<(), String> {
    let course = worker.course.clone();
    let of = |node: u32| owner(node, graph.nodes(), course.setting.clients);
    let mut mine: Vec<u32> = (0..graph.nodes() as u32).filter(|node| of(*node) == worker.number).collect();
    shuffle(&mut mine, &mut Random::new(course.setting.seed ^ (worker.number as u64 + 1)));
    let mut nodes = VecDeque::from(mine);
    while let Some(node) = nodes.front().copied().filter(|_| !worker.is_over()) {
        let locks = lock::around(&graph, node, of);
        let colour = async |task: &mut Task<'_, B>| colour(task, &graph, node, &locks, &course).await;
        match worker.attempt(colour).await? {
            Tried::Done(()) => drop(nodes.pop_front()),
            Tried::Later if course.setting.livelock == Livelock::Reorder => nodes.rotate_left(1),
            Tried::Later | Tried::Unknown => {}
        }
    }
    Ok(())
}

async fn colour<B: Backend>(task: &mut Task<'_, B>, graph: &Graph, node: u32, locks: &[Lock], course: &Course) -> Result<(), Stop> {
    let visit = lock::enter(task, locks, course, lock::PATIENCE).await?;
    task.settle().await?;
    let mut taken = Vec::new();
    for other in graph.of_node(node) {
        if let Some(value) = task.get(key(course.prefix(), *other)).await?.value {
            taken.push(value);
        }
    }
    let least = (0u32..).map(|colour| colour.to_string()).find(|colour| taken.iter().all(|taken| taken != colour.as_bytes()));
    let least = least.ok_or_else(|| Stop::Again("every colour is taken".into()))?;
    task.put(Put { expires_after: Some(course.kept()), ..Put::new(key(course.prefix(), node), least) });
    task.check()?;
    visit.write();
    task.write().await
}

/// What is wrong with a colouring, in words; `is_whole`: every node should have a colour.
pub fn wrong(graph: &Graph, prefix: &str, values: &BTreeMap<String, Option<String>>, is_whole: bool) -> Vec<String> {
    let of = |node: u32| values.get(&key(prefix, node)).and_then(Option::as_ref);
    let bare = (0..graph.nodes() as u32).filter(|node| is_whole && of(*node).is_none()).map(|node| format!("node {node} has no colour in the store"));
    let alike = graph.each_edge().filter_map(|(one, other)| {
        let colour = of(one).filter(|colour| Some(*colour) == of(other))?;
        Some(format!("edge {one}-{other}: both have colour {colour}"))
    });
    bare.chain(alike).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_have_as_many_nodes_as_each_other() {
        let owners: Vec<usize> = (0..10).map(|node| owner(node, 10, 4)).collect();
        assert_eq!(owners, [0, 0, 0, 1, 1, 2, 2, 2, 3, 3]);
    }

    #[test]
    fn a_colouring_is_wrong_where_neighbours_are_alike_and_where_a_node_has_none() {
        let graph = Graph::line(3).unwrap();
        let colours = |all: [Option<&str>; 3]| (0..).zip(all).map(|(node, colour)| (key("p:", node), colour.map(str::to_owned))).collect();
        assert!(wrong(&graph, "p:", &colours([Some("0"), Some("1"), Some("0")]), true).is_empty());
        assert_eq!(wrong(&graph, "p:", &colours([Some("0"), Some("1"), Some("1")]), true), ["edge 1-2: both have colour 1"]);
        assert_eq!(wrong(&graph, "p:", &colours([None, Some("1"), None]), true).len(), 2);
        assert!(wrong(&graph, "p:", &colours([None, Some("1"), None]), false).is_empty());
    }
}
