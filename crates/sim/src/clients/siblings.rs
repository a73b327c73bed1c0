//! What stands side by side, for its own checker.

use super::{Current, number};
use crate::marks;
use crate::plan::Action;
use crate::world::{ServerIndex, World};
use rheostat_checkers::siblings::{Look, Wrote};
use rheostat_checkers::{KeyId, UniqueValue};
use rheostat_core::answer::Read;
use rheostat_core::dial::{Dial, Quorum};
use rheostat_core::operation::Operation;
use rheostat_core::outcome::Outcome;
use rheostat_core::version::Key;

/// What the record has of an operation under way.
#[derive(Clone, Debug, Default)]
pub(super) struct Beside {
    begun_us: u64,
    /// Its writes.
    wrote: Vec<usize>,
}

/// The dial of a read of one replica alone.
pub(crate) fn alone() -> Dial {
    Dial { quorum: Quorum::ALONE, ..Dial::default() }
}

fn values(reads: &[Read]) -> Vec<UniqueValue> {
    reads.iter().filter_map(|read| number(read.value.as_ref()?)).collect()
}

impl World<'_> {
    pub(super) fn begin_beside(&mut self, client: usize, action: &Action, values: &[UniqueValue], expires: bool) -> Beside {
        if !self.side_by_side {
            return Beside::default();
        }
        let first = self.beside.wrote.len();
        let key = |key: usize| KeyId(key as u32);
        let mut push = |key: KeyId, value: Option<UniqueValue>, seen| self.beside.wrote.push(Wrote { key, value, seen, expires, acknowledged: None });
        match action {
            Action::Replace { key: place } => {
                let seen = self.clients[client].beside.as_ref().filter(|(of, _)| of == place).map(|(_, seen)| seen.clone());
                let in_doubt = self.clients[client].beside_in_doubt;
                push(key(*place), values.first().copied(), (!in_doubt).then(|| seen.unwrap_or_default()));
            }
            Action::Put { items } => {
                let mut values = values.iter().copied();
                items.iter().for_each(|item| push(key(item.key), if item.delete { None } else { values.next() }, None));
            }
            Action::Swap { key: place } => push(key(*place), values.first().copied(), None),
            Action::Take { key: place } => push(key(*place), None, None),
            _ => {}
        }
        Beside { begun_us: self.now_us, wrote: (first..self.beside.wrote.len()).collect() }
    }

    pub(super) fn end_beside(&mut self, client: usize, current: &Current, outcome: &Outcome) {
        if !self.side_by_side || matches!(current.action, Action::Past { .. }) {
            return;
        }
        let (now_us, begun_us) = (self.now_us, current.beside.begun_us);
        let mut look = |key: usize, reads: &[Read]| {
            let newest = reads.iter().filter_map(|read| read.version).max();
            let all = matches!(outcome, Outcome::Siblings(..));
            self.beside.looks.push(Look { key: KeyId(key as u32), begun_us, all, found: values(reads), newest });
        };
        let version = match outcome {
            Outcome::Siblings(reads, _) => {
                let key = current.action.keys()[0];
                look(key, reads);
                self.marks.see_times(marks::SIBLINGS_READ, u64::from(reads.len() > 1));
                (self.clients[client].beside, self.clients[client].beside_in_doubt) = (Some((key, values(reads))), false);
                return;
            }
            Outcome::Read(read, _) => return look(current.action.keys()[0], std::slice::from_ref(read)),
            Outcome::Many(reads, _) => {
                let keys = current.action.keys();
                return keys.into_iter().zip(reads).for_each(|(key, read)| look(key, std::slice::from_ref(read)));
            }
            Outcome::Failed(_) if matches!(current.action, Action::Siblings { .. } | Action::Replace { .. }) => {
                self.clients[client].beside_in_doubt = true;
                return;
            }
            Outcome::Written(version) => *version,
            Outcome::Changed { version: Some(version), .. } => *version,
            _ => return,
        };
        for place in current.beside.wrote.clone() {
            let wrote = &mut self.beside.wrote[place];
            wrote.acknowledged = Some((now_us, version));
            if let Action::Replace { key } = current.action {
                let seen = wrote.seen.iter().flatten().copied().chain(wrote.value).collect();
                (self.clients[client].beside, self.clients[client].beside_in_doubt) = (Some((key, seen)), false);
            }
        }
    }

    /// What stands of `key` at `server`, alone, in the end.
    pub(crate) fn final_siblings(&mut self, server: ServerIndex, key: usize) {
        let name = Key::from(self.plan.keys[key].as_bytes());
        let (dc, outcome) = (self.servers[server].id.dc, self.ask_alone(server, Operation::Siblings { key: name, dial: alone() }));
        match outcome {
            Some(Outcome::Siblings(reads, _)) => self.beside.finals.push((dc, KeyId(key as u32), values(&reads))),
            other => self.fail("progress", format!("the last look at {} came to {other:?}\n", self.plan.keys[key])),
        }
    }
}
