//! Graphs, each the same for the same seed on every machine.

use rheostat_core::random::Random;
use std::collections::BTreeSet;

/// The most nodes that a graph may have.
pub const MOST_NODES: usize = 200_000;

/// An undirected graph without loops and without double edges.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Graph {
    neighbours: Vec<Vec<u32>>,
}

impl Graph {
    fn of(neighbours: Vec<BTreeSet<u32>>) -> Graph {
        Graph { neighbours: neighbours.into_iter().map(|all| all.into_iter().collect()).collect() }
    }

    /// A graph whose degrees follow a power law and whose neighbours know each other (Holme and Kim, 2002): each new node takes `edges` old ones in proportion to their degree, and after each of
    /// them, with a chance of `triangle_percent`, one of its neighbours instead of the next.
    ///
    /// # Errors
    /// In words: numbers that fit no graph.
    pub fn power_law(nodes: usize, edges: usize, triangle_percent: u8, seed: u64) -> Result<Graph, String> {
        check_nodes(nodes)?;
        if edges == 0 || edges >= nodes || triangle_percent > 100 {
            return Err(format!("a power-law graph of {nodes} nodes with {edges} edges for each: at least 1, and fewer than there are nodes"));
        }
        let mut random = Random::new(seed);
        let mut neighbours = vec![BTreeSet::new(); nodes];
        // Each node as often as it has edges; the first ones once, so that they can be drawn.
        let mut ends: Vec<u32> = (0..edges as u32).collect();
        for node in edges..nodes {
            let mut taken: BTreeSet<u32> = BTreeSet::new();
            let mut last = None;
            while taken.len() < edges {
                let friend = last.filter(|_| random.chance(triangle_percent.into(), 100)).and_then(|last: u32| {
                    let all: Vec<u32> = neighbours[last as usize].iter().copied().filter(|friend| !taken.contains(friend)).collect();
                    (!all.is_empty()).then(|| all[random.below(all.len() as u64) as usize])
                });
                let drawn = friend.unwrap_or_else(|| ends[random.below(ends.len() as u64) as usize]);
                if taken.insert(drawn) {
                    last = Some(drawn);
                }
            }
            for other in taken {
                neighbours[node].insert(other);
                neighbours[other as usize].insert(node as u32);
                ends.extend([node as u32, other]);
            }
        }
        Ok(Graph::of(neighbours))
    }

    /// A random graph in which each node has `degree` neighbours (Steger and Wormald, 1999): free ends are joined at random as long as some fit, and all again from the start if none does.
    ///
    /// # Errors
    /// In words: numbers that fit no graph.
    pub fn regular(nodes: usize, degree: usize, seed: u64) -> Result<Graph, String> {
        check_nodes(nodes)?;
        if degree == 0 || degree >= nodes || !(nodes * degree).is_multiple_of(2) {
            return Err(format!(
                "no graph of {nodes} nodes gives each of them {degree} neighbours: fewer than there are nodes, and an even number of ends"
            ));
        }
        let mut random = Random::new(seed);
        for _ in 0..1000 {
            if let Some(neighbours) = joined(nodes, degree, &mut random) {
                return Ok(Graph::of(neighbours));
            }
        }
        Err(format!("no graph of {nodes} nodes with {degree} neighbours each was found; another seed may find one"))
    }

    /// Nodes one after the other, each joined with the next.
    ///
    /// # Errors
    /// As [`Graph::power_law`].
    pub fn line(nodes: usize) -> Result<Graph, String> {
        Graph::grid(nodes, 1)
    }

    /// `width` × `height` nodes, row by row, each joined with the one to the right and the one below.
    ///
    /// # Errors
    /// As [`Graph::power_law`].
    pub fn grid(width: usize, height: usize) -> Result<Graph, String> {
        let nodes = width.saturating_mul(height);
        check_nodes(nodes)?;
        let mut neighbours = vec![BTreeSet::new(); nodes];
        let mut join = |one: usize, other: usize| {
            neighbours[one].insert(other as u32);
            neighbours[other].insert(one as u32);
        };
        for row in 0..height {
            for column in 0..width {
                let node = row * width + column;
                if column + 1 < width {
                    join(node, node + 1);
                }
                if row + 1 < height {
                    join(node, node + width);
                }
            }
        }
        Ok(Graph::of(neighbours))
    }

    /// Number of nodes.
    pub fn nodes(&self) -> usize {
        self.neighbours.len()
    }

    /// Number of edges.
    pub fn edges(&self) -> usize {
        self.neighbours.iter().map(Vec::len).sum::<usize>() / 2
    }

    /// The neighbours of `node`, in order.
    pub fn of_node(&self, node: u32) -> &[u32] {
        &self.neighbours[node as usize]
    }

    /// Each edge once, the smaller node first, in the order in which locks are taken.
    pub fn each_edge(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        let of = |(node, all): (usize, &'_ Vec<u32>)| all.iter().map(move |other| (node as u32, *other)).collect::<Vec<_>>();
        self.neighbours.iter().enumerate().flat_map(of).filter(|(one, other)| one < other)
    }

    /// The greatest number of neighbours that a node has.
    pub fn greatest_degree(&self) -> usize {
        self.neighbours.iter().map(Vec::len).max().unwrap_or(0)
    }
}

fn check_nodes(nodes: usize) -> Result<(), String> {
    match nodes {
        2..=MOST_NODES => Ok(()),
        _ => Err(format!("a graph of {nodes} nodes; from 2 to {MOST_NODES}")),
    }
}

/// One attempt; `None` if ends are left that cannot be joined.
fn joined(nodes: usize, degree: usize, random: &mut Random) -> Option<Vec<BTreeSet<u32>>> {
    let mut neighbours = vec![BTreeSet::new(); nodes];
    let mut ends: Vec<u32> = (0..nodes as u32).flat_map(|node| std::iter::repeat_n(node, degree)).collect();
    while !ends.is_empty() {
        shuffle(&mut ends, random);
        let mut left = Vec::new();
        for pair in ends.chunks(2) {
            let (one, other) = (pair[0], pair[1]);
            if one != other && !neighbours[one as usize].contains(&other) {
                neighbours[one as usize].insert(other);
                neighbours[other as usize].insert(one);
            } else {
                left.extend([one, other]);
            }
        }
        // Whether any two of the nodes that are left can be joined.
        let distinct: Vec<u32> = left.iter().copied().collect::<BTreeSet<_>>().into_iter().collect();
        let fits = |one: &u32| distinct.iter().any(|other| other > one && !neighbours[*one as usize].contains(other));
        if !left.is_empty() && !distinct.iter().any(fits) {
            return None;
        }
        ends = left;
    }
    Some(neighbours)
}

/// Puts `all` into a random order.
pub(crate) fn shuffle<T>(all: &mut [T], random: &mut Random) {
    for place in (1..all.len()).rev() {
        all.swap(place, random.below(place as u64 + 1) as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(graph: &Graph) {
        for node in 0..graph.nodes() as u32 {
            let all = graph.of_node(node);
            assert!(all.is_sorted_by(|one, other| one < other), "{node}: {all:?}");
            assert!(all.iter().all(|other| *other != node && graph.of_node(*other).contains(&node)), "{node}: {all:?}");
        }
        assert_eq!(graph.each_edge().count(), graph.edges());
        assert!(graph.each_edge().collect::<Vec<_>>().is_sorted());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn every_graph_is_simple_and_of_the_size_that_was_asked_for(nodes in 8usize..200, edges in 1usize..5, half in 1usize..4, seed: u64) {
            let graph = Graph::power_law(nodes, edges, 60, seed).unwrap();
            check(&graph);
            prop_assert_eq!(graph.edges(), (nodes - edges) * edges);
            let graph = Graph::regular(nodes, 2 * half, seed).unwrap();
            check(&graph);
            prop_assert!((0..nodes as u32).all(|node| graph.of_node(node).len() == 2 * half));
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_graph_and_another_seed_another() {
        let power = |seed| Graph::power_law(300, 3, 50, seed).unwrap();
        let regular = |seed| Graph::regular(300, 6, seed).unwrap();
        assert_eq!((power(7), regular(7)), (power(7), regular(7)));
        assert_ne!(power(7), power(8));
        assert_ne!(regular(7), regular(8));
    }

    #[test]
    fn the_papers_sizes() {
        let graph = Graph::power_law(50_000, 3, 50, 1).unwrap();
        assert_eq!(graph.edges(), 149_991);
        // A few know very many, as in a social network; in the regular one nobody does.
        assert!(graph.greatest_degree() > 200, "{}", graph.greatest_degree());
        let triangles = |graph: &Graph| {
            let closed = |(one, other): (u32, u32)| graph.of_node(one).iter().filter(|third| graph.of_node(other).contains(third)).count();
            graph.each_edge().take(20_000).map(closed).sum::<usize>()
        };
        let (clustered, plain) = (triangles(&graph), triangles(&Graph::power_law(50_000, 3, 0, 1).unwrap()));
        assert!(clustered > 3 * plain, "{clustered} against {plain}: neighbours know each other");
        let graph = Graph::regular(50_000, 6, 1).unwrap();
        assert_eq!((graph.edges(), graph.greatest_degree()), (150_000, 6));
    }

    #[test]
    fn a_line_and_a_grid() {
        let line = Graph::line(4).unwrap();
        assert_eq!(line.each_edge().collect::<Vec<_>>(), [(0, 1), (1, 2), (2, 3)]);
        let grid = Graph::grid(3, 2).unwrap();
        assert_eq!(grid.each_edge().collect::<Vec<_>>(), [(0, 1), (0, 3), (1, 2), (1, 4), (2, 5), (3, 4), (4, 5)]);
        check(&grid);
    }

    #[test]
    fn what_fits_no_graph_is_refused() {
        for (graph, words) in [
            (Graph::line(1), "from 2"),
            (Graph::grid(usize::MAX, 2), "from 2"),
            (Graph::power_law(5, 0, 0, 1), "at least 1"),
            (Graph::power_law(5, 5, 0, 1), "fewer"),
            (Graph::power_law(5, 2, 101, 1), "power-law"),
            (Graph::regular(5, 3, 1), "even"),
            (Graph::regular(6, 6, 1), "fewer"),
            (Graph::regular(6, 0, 1), "fewer"),
        ] {
            let why = graph.unwrap_err();
            assert!(why.contains(words), "{why}");
        }
    }
}
