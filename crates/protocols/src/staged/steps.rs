//! The nineteen steps of replication, their stages and conditions, and which may follow which (Tables I and II, Fig. 6).

/// A stage of replication. Durability and the right to answer are the stage's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// A server has the write.
    Reception,
    /// A quorum has it.
    Transmission,
    /// It has its place in the order.
    Coordination,
    /// It is made.
    Execution,
    /// What it replaced has been cleared away.
    Compaction,
    /// A read.
    Acquisition,
}

/// A condition of a step (Table II).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Condition {
    /// ⓐ A write is asked for.
    Write,
    /// ⓑ A read is asked for.
    Read,
    /// ⓒ A quorum of replicas can be reached.
    Connected,
    /// Its opposite: then, and only then, the bl-file is written.
    CutOff,
    /// ⓓ Some replica has failed.
    ReplicaFailed,
    /// ⓔ The b-list has writes.
    Buffered,
    /// ⓕ The p-list has writes.
    Pending,
    /// ⓖ The bl-file has writes.
    Logged,
    /// ⓗ The b-file has writes.
    Overflowed,
    /// ⓘ The b-list has space.
    BufferSpace,
    /// Its opposite.
    BufferFull,
    /// ⓙ The p-list has space.
    PendingSpace,
    /// ⓚ There are rows to compact.
    Compactable,
}

use Condition::{
    BufferFull, BufferSpace, Buffered, Compactable, Connected, CutOff, Logged, Overflowed, Pending, PendingSpace, Read, ReplicaFailed, Write,
};

/// One step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    /// Its number, from 1.
    pub number: u8,
    /// What is done.
    pub what: &'static str,
    /// Its stage.
    pub stage: Stage,
    /// What must hold.
    pub needs: &'static [Condition],
    /// The steps that may follow.
    pub then: &'static [u8],
    /// Whether a write's path may end with it: what has been done is durable then.
    pub ends_write: bool,
}

const fn step(number: u8, what: &'static str, stage: Stage, needs: &'static [Condition], then: &'static [u8], ends_write: bool) -> Step {
    Step { number, what, stage, needs, then, ends_write }
}

/// The steps, in order of their numbers. A path of a read ends with step 19.
pub const STEPS: [Step; 19] = [
    step(1, "flush writes to the bl-file", Stage::Reception, &[Write, CutOff], &[17, 18], true),
    step(2, "append writes to the b-list", Stage::Reception, &[Write, Connected], &[3, 4], false),
    step(3, "read writes from the bl-file", Stage::Reception, &[Connected, Logged], &[4], false),
    step(4, "transmit writes", Stage::Transmission, &[Connected], &[5, 6], false),
    step(5, "append writes to the b-list", Stage::Transmission, &[BufferSpace], &[7], false),
    step(6, "flush writes to the b-file", Stage::Transmission, &[BufferFull], &[7], false),
    step(7, "transmit the acknowledgement", Stage::Transmission, &[Connected], &[8, 9, 17, 18, 19], true),
    step(8, "read writes from the b-file", Stage::Transmission, &[Connected, Overflowed], &[9], false),
    step(9, "transmit writes from the b-list", Stage::Coordination, &[Connected, Buffered], &[10], false),
    step(10, "append writes to the t-list", Stage::Coordination, &[], &[11], false),
    step(11, "transmit writes", Stage::Coordination, &[Connected], &[12], false),
    step(12, "align writes", Stage::Coordination, &[], &[13], false),
    step(13, "transmit writes", Stage::Coordination, &[Connected], &[14], false),
    step(14, "insert writes into the p-list", Stage::Coordination, &[PendingSpace], &[15, 16], false),
    step(15, "flush writes to the p-file", Stage::Coordination, &[ReplicaFailed], &[16], false),
    step(16, "transmit the acknowledgement", Stage::Coordination, &[Connected], &[17, 18, 19], true),
    step(17, "execute writes", Stage::Execution, &[Pending], &[18, 19], true),
    step(18, "compact rows", Stage::Compaction, &[Compactable], &[19], true),
    step(19, "read rows", Stage::Acquisition, &[Read], &[], false),
];

/// The steps that a path may begin with: of a read, or of a write.
pub const fn starts(read: bool) -> &'static [u8] {
    if read { &[3, 8, 9, 17, 18, 19] } else { &[1, 2] }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every path of the graph, each step at most once.
    fn paths(read: bool) -> Vec<Vec<u8>> {
        let mut found = Vec::new();
        let mut open: Vec<Vec<u8>> = starts(read).iter().map(|first| vec![*first]).collect();
        while let Some(path) = open.pop() {
            let last = STEPS[usize::from(path[path.len() - 1]) - 1];
            if read && last.number == 19 || !read && last.ends_write {
                found.push(path.clone());
            }
            for next in last.then.iter().filter(|next| read || **next != 19) {
                open.push([path.as_slice(), &[*next]].concat());
            }
        }
        found
    }

    #[test]
    fn the_papers_paths_are_paths() {
        let writes = paths(false);
        for path in [vec![1], vec![2, 4, 5, 7], vec![2, 4, 6, 7], vec![2, 3, 4, 5, 7, 8, 9, 10, 11, 12, 13, 14, 16, 17, 18]] {
            assert!(writes.contains(&path), "{path:?} is no path of a write");
        }
        let reads = paths(true);
        for path in [vec![19], vec![3, 4, 5, 7, 8, 9, 10, 11, 12, 13, 14, 16, 17, 18, 19], vec![17, 19]] {
            assert!(reads.contains(&path), "{path:?} is no path of a read");
        }
    }

    #[test]
    fn every_path_of_a_write_ends_durable_and_holds_what_its_conditions_exclude() {
        for path in paths(false) {
            let has = |number: u8| path.contains(&number);
            assert!(has(1) || has(2) && has(4) && has(7), "{path:?}: neither in the bl-file nor at a quorum");
            assert!(!(has(1) && has(2)), "{path:?}: cut off and connected");
            assert!(!has(9) || has(13) && has(16), "{path:?}: half coordinated");
            assert!(path.is_sorted(), "{path:?}: goes back");
        }
        for path in paths(true) {
            assert_eq!(path.last(), Some(&19));
            assert!(!path.iter().any(|number| *number <= 2), "{path:?}: a read that receives");
            assert!(path.is_sorted(), "{path:?}: goes back");
        }
    }

    #[test]
    fn steps_are_numbered_and_every_one_is_on_a_path() {
        let all = [paths(false), paths(true)].concat();
        for (index, step) in STEPS.iter().enumerate() {
            assert_eq!(usize::from(step.number), index + 1);
            assert!(all.iter().any(|path| path.contains(&step.number)), "step {} is on no path", step.number);
        }
    }
}
