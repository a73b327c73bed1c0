//! Peterson's lock for each edge of a graph, in keys of a store, taken in one order by all; and who has held which at the same time.

use crate::course::Course;
use crate::graph::Graph;
use crate::ledger::Visit;
use rheostat_client::task::{Backend, Stop, Task};
use std::time::Duration;

/// Between two looks at a lock that somebody else holds.
const LOOK_AGAIN: Duration = Duration::from_millis(5);
/// For how long a lock may be held by another.
pub(crate) const PATIENCE: Duration = Duration::from_secs(15);
const TAKEN: &str = "true";
const FREE: &str = "false";

/// The predicate that a lock of every edge is violated: a pattern for keys that begin with `prefix` (document 000, §5).
pub fn predicate(prefix: &str) -> String {
    format!(
        "!({prefix}flag{{A}}_{{B}}_{{A}} = true && {prefix}turn{{A}}_{{B}} = \"{{A}}\" \
         && {prefix}flag{{A}}_{{B}}_{{B}} = true && {prefix}turn{{A}}_{{B}} = \"{{B}}\")"
    )
}

/// The lock of an edge, as one of its two ends takes it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Lock {
    one: u32,
    other: u32,
    own: u32,
}

impl Lock {
    /// The lock of the edge between `own` and `other`, taken for `own`.
    pub fn new(own: u32, other: u32) -> Lock {
        Lock { one: own.min(other), other: own.max(other), own }
    }

    /// The edge, its smaller end first. Locks are taken in this order.
    pub fn edge(self) -> (u32, u32) {
        (self.one, self.other)
    }

    fn theirs(self) -> u32 {
        if self.own == self.one { self.other } else { self.one }
    }

    fn flag(self, prefix: &str, of: u32) -> String {
        format!("{prefix}flag{}_{}_{of}", self.one, self.other)
    }

    fn turn(self, prefix: &str) -> String {
        format!("{prefix}turn{}_{}", self.one, self.other)
    }

    /// Takes it, as if there were one copy of the data: flag, turn, and waiting while the other end wants it and it is the other's turn. `looks`: not before it looks free.
    ///
    /// # Errors
    /// [`Stop::Again`] if it is not given back within `patience`; what the task says.
    pub async fn take<B: Backend>(self, task: &mut Task<'_, B>, prefix: &str, looks: bool, patience: Duration) -> Result<(), Stop> {
        let until = task.now() + patience;
        let (theirs, turn) = (self.flag(prefix, self.theirs()), self.turn(prefix));
        // Who sees that it is held does not reach for it: two turns that are under way at the same time look like two holders. Where quorums meet they never are, and one look less is needed.
        while looks && !task.is_sequential() && is(task, &theirs, TAKEN).await? {
            self.wait(task, until).await?;
        }
        task.lock(self.flag(prefix, self.own), TAKEN, FREE).await?;
        task.mark(turn.clone(), self.theirs().to_string()).await?;
        while is(task, &theirs, TAKEN).await? && is(task, &turn, &self.theirs().to_string()).await? {
            self.wait(task, until).await?;
        }
        Ok(())
    }

    async fn wait<B: Backend>(self, task: &Task<'_, B>, until: Duration) -> Result<(), Stop> {
        if task.now() >= until {
            return Err(Stop::Again(format!("the lock of edge {}-{} is not given back", self.one, self.other)));
        }
        task.sleep(LOOK_AGAIN).await;
        Ok(())
    }
}

async fn is<B: Backend>(task: &mut Task<'_, B>, key: &str, value: &str) -> Result<bool, Stop> {
    Ok(task.get(key.to_owned()).await?.value.as_deref() == Some(value.as_bytes()))
}

/// The locks that are needed to write `node`, those of edges to nodes of other clients, in the order in which all take them.
pub fn around(graph: &Graph, node: u32, owner: impl Fn(u32) -> usize) -> Vec<Lock> {
    let theirs = graph.of_node(node).iter().filter(|other| owner(**other) != owner(node));
    let mut locks: Vec<Lock> = theirs.map(|other| Lock::new(node, *other)).collect();
    locks.sort_unstable_by_key(|lock| lock.edge());
    locks
}

/// Takes `locks`, each of which another may hold for so long (`patience`). They are to settle before anything is done that rests on them. Whoever else holds them is known as long as the visit lasts.
///
/// # Errors
/// As [`Lock::take`].
pub async fn enter<'a, B: Backend>(task: &mut Task<'_, B>, locks: &[Lock], course: &'a Course, patience: Duration) -> Result<Visit<'a>, Stop> {
    for lock in locks {
        lock.take(task, course.prefix(), course.setting.looks, patience).await?;
    }
    Ok(course.ledger.enter(locks.iter().map(|lock| lock.edge()).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_of_an_edge_name_the_same_keys() {
        let (one, other) = (Lock::new(17, 4), Lock::new(4, 17));
        assert_eq!((one.edge(), other.edge()), ((4, 17), (4, 17)));
        assert_eq!((one.flag("p:", 17), other.flag("p:", 4)), ("p:flag4_17_17".into(), "p:flag4_17_4".into()));
        assert_eq!((one.turn("p:"), other.turn("p:")), ("p:turn4_17".into(), "p:turn4_17".into()));
        assert_eq!((one.theirs(), other.theirs()), (4, 17));
        assert!(Lock::new(9, 2).edge() < one.edge(), "the order of the edges, whoever takes them");
    }

    #[test]
    fn locks_are_those_of_edges_between_clients_in_one_order() {
        let graph = Graph::line(4).unwrap();
        let halves = |node: u32| node as usize / 2;
        assert_eq!(around(&graph, 1, halves), [Lock::new(1, 2)]);
        assert!(around(&graph, 0, halves).is_empty(), "its neighbour has the same client");
        let graph = Graph::regular(100, 6, 3).unwrap();
        for node in 0..100 {
            let locks = around(&graph, node, |node| node as usize);
            assert_eq!(locks.len(), 6);
            assert!(locks.iter().map(|lock| lock.edge()).is_sorted());
        }
    }
}
