//! What goes wrong, and when: drawn from a seed before anything runs.

use rheostat_core::random::Random;
use std::fmt;

/// A kind of fault, or of what an operator does in the middle of load.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Fault {
    /// A node's process is killed with SIGKILL, and started again.
    Kill,
    /// A node is asked to stop (SIGTERM), and started again: one step of a rolling restart.
    Stop,
    /// A node's process stands still (SIGSTOP), and goes on.
    Pause,
    /// The link between two data centers is cut, and resumed.
    Cut,
    /// The link between two data centers is slow for a while.
    Slow,
    /// A node's clock is wrong for a while.
    Clock,
    /// A node is killed, its disk emptied, and it is started again as one that has lost its disk.
    Wipe,
    /// A server moves to another node of its data center.
    Move,
    /// A node that was added without servers gets its share of them.
    Join,
    /// A node is killed, the others take over its servers, and it comes back with its old disk and gets its share again.
    Empty,
    /// All partitions are split in two, one data center after the other, each of which is stopped for it: once.
    Split,
    /// The last data center is killed as a whole, and given up for ever: once, in the end.
    Lose,
}

impl Fault {
    /// All of them.
    pub const ALL: [Fault; 12] = [
        Fault::Kill,
        Fault::Stop,
        Fault::Pause,
        Fault::Cut,
        Fault::Slow,
        Fault::Clock,
        Fault::Move,
        Fault::Wipe,
        Fault::Join,
        Fault::Empty,
        Fault::Split,
        Fault::Lose,
    ];

    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Fault::Kill => "kill",
            Fault::Stop => "stop",
            Fault::Pause => "pause",
            Fault::Cut => "cut",
            Fault::Slow => "slow",
            Fault::Clock => "clock",
            Fault::Move => "move",
            Fault::Wipe => "wipe",
            Fault::Join => "join",
            Fault::Empty => "empty",
            Fault::Split => "split",
            Fault::Lose => "lose",
        }
    }

    /// The one of this name.
    pub fn from_name(name: &str) -> Option<Fault> {
        Fault::ALL.into_iter().find(|fault| fault.name() == name)
    }

    /// Whether a majority of a partition's servers in a data center has to stand in for one of them.
    pub const fn needs_replicas(self) -> bool {
        matches!(self, Fault::Wipe | Fault::Join | Fault::Empty)
    }

    /// Whether it takes as long as it takes, by a command of an operator: then nothing is done to nodes beside.
    const fn is_operation(self) -> bool {
        self.needs_replicas() || matches!(self, Fault::Move | Fault::Split)
    }

    /// Whether it is done to all nodes, once.
    const fn comes_once(self) -> bool {
        matches!(self, Fault::Join | Fault::Split)
    }
}

/// A node: its data center and its place there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeAt {
    /// The data center.
    pub dc: usize,
    /// Its place in the data center.
    pub place: usize,
}

/// One thing that goes wrong. Times in milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Act {
    /// [`Fault::Kill`]; the node is away for so long.
    Kill(NodeAt, u64),
    /// [`Fault::Stop`]; likewise.
    Stop(NodeAt, u64),
    /// [`Fault::Pause`], for so long.
    Pause(NodeAt, u64),
    /// [`Fault::Cut`], between these data centers for so long.
    Cut([usize; 2], u64),
    /// [`Fault::Slow`]: so much later each way, for so long.
    Slow([usize; 2], u64, u64),
    /// [`Fault::Clock`]: so far ahead, or behind if it is less than 0, for so long.
    Clock(NodeAt, i64, u64),
    /// [`Fault::Move`], in this data center; the number chooses server and node.
    Move(usize, u64),
    /// [`Fault::Wipe`].
    Wipe(NodeAt),
    /// [`Fault::Join`], in this data center.
    Join(usize),
    /// [`Fault::Empty`].
    Empty(NodeAt),
    /// [`Fault::Split`].
    Split,
    /// [`Fault::Lose`]: this data center.
    Lose(usize),
}

/// What goes wrong together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Episode {
    /// When it begins at the earliest, in milliseconds from the beginning of the load. It begins later if the one before it is not over.
    pub at_ms: u64,
    /// One act, and perhaps one more elsewhere, which begins so many milliseconds later.
    pub acts: Vec<(u64, Act)>,
}

/// From what a course is drawn.
#[derive(Clone, Debug)]
pub struct Drawn<'a> {
    /// The seed.
    pub seed: u64,
    /// For how long there is load, in milliseconds.
    pub duration_ms: u64,
    /// From one episode to the next, in milliseconds; at least 1000.
    pub every_ms: u64,
    /// How many nodes each data center has from the beginning.
    pub nodes: &'a [usize],
    /// Data centers with a node that lacks a server of some partition, so that one can move there.
    pub roomy: &'a [usize],
    /// What may go wrong.
    pub faults: &'a [Fault],
}

/// The episodes of a run, the last of which ends about an episode before the load does. Each fault that is asked for comes before one comes again.
pub fn draw(from: &Drawn<'_>) -> Vec<Episode> {
    let mut random = Random::new(from.seed ^ 0x4E45_4D45_5349_5300);
    let (mut episodes, mut left, mut done) = (Vec::new(), Vec::new(), Vec::new());
    let can_be = |fault: &Fault| match fault {
        Fault::Cut | Fault::Slow => from.nodes.len() > 1,
        Fault::Move => !from.roomy.is_empty(),
        // It comes by itself.
        Fault::Lose => false,
        _ => true,
    };
    let wanted: Vec<Fault> = from.faults.iter().copied().filter(can_be).collect();
    let mut at_ms = from.every_ms;
    while at_ms + from.every_ms <= from.duration_ms {
        if left.is_empty() {
            left = wanted.iter().copied().filter(|fault| !fault.comes_once() || !done.contains(fault)).collect();
        }
        if left.is_empty() {
            break;
        }
        let fault = left.swap_remove(random.below(left.len() as u64) as usize);
        done.push(fault);
        let first = act(fault, from, None, &mut random);
        let mut acts = vec![(0, first)];
        if !fault.is_operation() && random.chance(1, 2) {
            let others: Vec<Fault> = wanted.iter().copied().filter(|other| !other.is_operation()).collect();
            let second = act(others[random.below(others.len() as u64) as usize], from, Some(&first), &mut random);
            if !collide(&first, &second) {
                acts.push((random.below(from.every_ms / 4), second));
            }
        }
        episodes.push(Episode { at_ms, acts });
        at_ms += from.every_ms;
    }
    if from.faults.contains(&Fault::Lose) && from.nodes.len() > 1 {
        // It takes the last one's place only where there is none behind it.
        if at_ms + from.every_ms > from.duration_ms {
            at_ms = episodes.pop().map_or(at_ms, |last: Episode| last.at_ms);
        }
        if at_ms + from.every_ms <= from.duration_ms {
            episodes.push(Episode { at_ms, acts: vec![(0, Act::Lose(from.nodes.len() - 1))] });
        }
    }
    episodes
}

/// Whether two acts are about the same data center's nodes, or about links both: then the second could leave a group without a majority, or undo the first.
fn collide(first: &Act, second: &Act) -> bool {
    match (first.node(), second.node()) {
        (Some(one), Some(other)) => one.dc == other.dc,
        (None, None) => true,
        _ => false,
    }
}

fn act(fault: Fault, from: &Drawn<'_>, beside: Option<&Act>, random: &mut Random) -> Act {
    let away = random.between(from.every_ms / 20, from.every_ms / 2);
    let avoided = beside.and_then(Act::node).map(|node| node.dc);
    let dcs: Vec<usize> = (0..from.nodes.len()).filter(|dc| Some(*dc) != avoided || from.nodes.len() == 1).collect();
    let dc = dcs[random.below(dcs.len() as u64) as usize];
    let node = NodeAt { dc, place: random.below(from.nodes[dc] as u64) as usize };
    let other = (dc + 1 + random.below(from.nodes.len().saturating_sub(1).max(1) as u64) as usize) % from.nodes.len();
    match fault {
        Fault::Kill => Act::Kill(node, away),
        Fault::Stop => Act::Stop(node, away),
        Fault::Pause => Act::Pause(node, away),
        Fault::Cut => Act::Cut([dc.min(other), dc.max(other)], away),
        Fault::Slow => Act::Slow([dc.min(other), dc.max(other)], random.between(50, 1000), away),
        Fault::Clock => {
            let by = random.between(50, 5000) as i64;
            Act::Clock(node, if random.chance(1, 2) { by } else { -by }, away.max(1000))
        }
        Fault::Move => Act::Move(from.roomy[random.below(from.roomy.len() as u64) as usize], random.next_u64()),
        Fault::Wipe => Act::Wipe(node),
        // The first data center is the one with a node more.
        Fault::Join => Act::Join(0),
        Fault::Lose => Act::Lose(from.nodes.len() - 1),
        Fault::Split => Act::Split,
        Fault::Empty => Act::Empty(NodeAt { dc: 0, place: random.below(from.nodes[0] as u64) as usize }),
    }
}

impl Act {
    /// The node that it is about.
    pub fn node(&self) -> Option<NodeAt> {
        match *self {
            Act::Kill(node, _) | Act::Stop(node, _) | Act::Pause(node, _) | Act::Clock(node, ..) | Act::Wipe(node) | Act::Empty(node) => Some(node),
            Act::Cut(..) | Act::Slow(..) | Act::Move(..) | Act::Join(_) | Act::Split | Act::Lose(_) => None,
        }
    }

    /// Its kind.
    pub fn fault(&self) -> Fault {
        match self {
            Act::Kill(..) => Fault::Kill,
            Act::Stop(..) => Fault::Stop,
            Act::Pause(..) => Fault::Pause,
            Act::Cut(..) => Fault::Cut,
            Act::Slow(..) => Fault::Slow,
            Act::Clock(..) => Fault::Clock,
            Act::Move(..) => Fault::Move,
            Act::Wipe(_) => Fault::Wipe,
            Act::Join(_) => Fault::Join,
            Act::Empty(_) => Fault::Empty,
            Act::Split => Fault::Split,
            Act::Lose(_) => Fault::Lose,
        }
    }
}

/// An act in words, with the nodes' and data centers' names.
pub struct Words<'a> {
    /// The act.
    pub act: &'a Act,
    /// By data center: its name.
    pub data_centers: &'a [String],
    /// The name of the node that the act is about, if it is about one.
    pub node: &'a str,
}

impl fmt::Display for Words<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = |ms: u64| ms as f64 / 1e3;
        let Words { act, data_centers, node } = self;
        match act {
            Act::Kill(_, ms) => write!(f, "kill {node}, away for {:.1} s", seconds(*ms)),
            Act::Stop(_, ms) => write!(f, "stop {node}, away for {:.1} s", seconds(*ms)),
            Act::Pause(_, ms) => write!(f, "pause {node} for {:.1} s", seconds(*ms)),
            Act::Cut([a, b], ms) => write!(f, "cut {} from {} for {:.1} s", data_centers[*a], data_centers[*b], seconds(*ms)),
            Act::Slow([a, b], by, ms) => {
                write!(f, "slow {} to {}, {by} ms more each way, for {:.1} s", data_centers[*a], data_centers[*b], seconds(*ms))
            }
            Act::Clock(_, by, ms) => {
                let where_ = if *by < 0 { "behind" } else { "ahead" };
                write!(f, "clock of {node} {:.1} s {where_} for {:.1} s", seconds(by.unsigned_abs()), seconds(*ms))
            }
            Act::Move(dc, _) => write!(f, "move a server in {}", data_centers[*dc]),
            Act::Wipe(_) => write!(f, "wipe {node}: its disk is lost"),
            Act::Join(dc) => write!(f, "join in {}: the node that was added gets its share", data_centers[*dc]),
            Act::Split => write!(f, "split: one data center after the other is stopped and starts with twice as many partitions"),
            Act::Lose(dc) => write!(f, "lose {} for ever", data_centers[*dc]),
            Act::Empty(_) => write!(f, "empty {node}: dead, the others take over, and it comes back"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn from(seed: u64) -> Drawn<'static> {
        Drawn { seed, duration_ms: 600_000, every_ms: 10_000, nodes: &[3, 3, 3], roomy: &[0], faults: &Fault::ALL }
    }

    #[test]
    fn names_are_read_back() {
        for fault in Fault::ALL {
            assert_eq!(Fault::from_name(fault.name()), Some(fault));
        }
        assert_eq!(Fault::from_name("fire"), None);
    }

    #[test]
    fn a_seed_draws_one_course_and_another_seed_another() {
        assert_eq!(draw(&from(1)), draw(&from(1)));
        assert_ne!(draw(&from(1)), draw(&from(2)));
    }

    #[test]
    fn every_fault_comes_and_the_last_one_has_time() {
        for seed in 0..50 {
            let course = draw(&from(seed));
            assert_eq!(course.len(), 59);
            assert!(course.last().unwrap().at_ms + 10_000 <= 600_000);
            let kinds: BTreeSet<Fault> = course.iter().map(|episode| episode.acts[0].1.fault()).collect();
            assert_eq!(kinds.len(), Fault::ALL.len(), "{kinds:?}");
            assert_eq!(course.last().unwrap().acts, [(0, Act::Lose(2))]);
            let losses = course.iter().filter(|episode| episode.acts[0].1.fault() == Fault::Lose);
            assert_eq!(losses.count(), 1);
            for once in [Fault::Join, Fault::Split] {
                assert_eq!(course.iter().filter(|episode| episode.acts[0].1.fault() == once).count(), 1);
            }
        }
    }

    /// A group of three has a majority whatever is drawn.
    #[test]
    fn of_one_data_center_one_node_is_away_at_a_time() {
        for seed in 0..200 {
            for episode in draw(&from(seed)) {
                let dcs: Vec<usize> = episode.acts.iter().filter_map(|(_, act)| act.node()).map(|node| node.dc).collect();
                assert!(dcs.len() < 2 || dcs[0] != dcs[1], "{episode:?}");
                for (_, act) in &episode.acts {
                    if let Act::Cut([a, b], _) | Act::Slow([a, b], ..) = act {
                        assert!(a < b && *b < 3, "{act:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn one_data_center_has_no_links_and_a_full_one_no_moves() {
        let course = draw(&Drawn { nodes: &[3], roomy: &[], ..from(7) });
        let links = course.iter().flat_map(|episode| &episode.acts).filter(|(_, act)| matches!(act, Act::Cut(..) | Act::Slow(..) | Act::Move(..)));
        assert_eq!(links.count(), 0);
        assert!(course.iter().all(|episode| episode.acts[0].1.fault() != Fault::Lose), "it is all that there is");
        assert!(draw(&Drawn { nodes: &[3], faults: &[Fault::Cut], ..from(7) }).is_empty());
    }

    #[test]
    fn what_comes_once_comes_before_a_data_center_is_lost() {
        for seed in 0..50 {
            let course = draw(&Drawn { faults: &[Fault::Join, Fault::Split, Fault::Lose], ..from(seed) });
            let mut kinds: Vec<Fault> = course.iter().map(|episode| episode.acts[0].1.fault()).collect();
            assert_eq!(kinds.pop(), Some(Fault::Lose));
            kinds.sort_unstable();
            assert_eq!(kinds, [Fault::Join, Fault::Split]);
            assert!(course.iter().zip(&course[1..]).all(|(one, next)| one.at_ms + 10_000 == next.at_ms), "{course:?}");
        }
    }

    #[test]
    fn a_run_shorter_than_two_episodes_has_none() {
        assert!(draw(&Drawn { duration_ms: 19_999, ..from(1) }).is_empty());
        assert_eq!(draw(&Drawn { duration_ms: 20_000, ..from(1) }).len(), 1);
    }
}
