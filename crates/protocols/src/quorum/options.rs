//! How many replicas answer, and what a reader gets of several values.

use rheostat_core::dial;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

/// What a request gets that says nothing of quorums. Paper: section 2.2.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Default)]
#[serde(rename_all = "lowercase")]
pub enum Consistency {
    /// One replica answers a read or has a write.
    #[default]
    Eventual,
    /// A majority does: R + W > N and W > N / 2. The paper's name; it is no sequential consistency of whole histories (`PAPER.md`).
    Sequential,
}

/// What `GET` answers where values stand side by side.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
pub enum Resolver {
    /// The one that was written last.
    #[default]
    LastWriter,
    /// The values' lines, each once, in order: for values that are sets of lines.
    Union,
    /// As `Union`, but of lines that differ in the number after their last blank only, the one with the greatest: for counters that have a line for each writer, who raises no other.
    Counters,
}

impl Resolver {
    /// One value of those that stand side by side; `None` if it is the one that was written last, whatever they hold.
    pub fn merge<'a>(self, values: impl Iterator<Item = &'a [u8]>) -> Option<Vec<u8>> {
        let lines = values.flat_map(|value| value.split(|byte| *byte == b'\n'));
        match self {
            Resolver::LastWriter => None,
            Resolver::Union => Some(lines.collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join(&b'\n')),
            Resolver::Counters => {
                let mut counts: BTreeMap<&[u8], (Option<i64>, &[u8])> = BTreeMap::new();
                for line in lines {
                    let (name, count) = counted(line);
                    let greatest = counts.entry(name).or_insert((count, line));
                    if count > greatest.0 {
                        *greatest = (count, line);
                    }
                }
                Some(counts.into_values().map(|(_, line)| line).collect::<Vec<_>>().join(&b'\n'))
            }
        }
    }
}

/// A line's name and number; a line without a number is a name.
fn counted(line: &[u8]) -> (&[u8], Option<i64>) {
    let number = |blank: usize| Some((blank, str::from_utf8(&line[blank + 1..]).ok()?.parse().ok()?));
    match line.iter().rposition(|byte| *byte == b' ').and_then(number) {
        Some((blank, count)) => (&line[..blank], Some(count)),
        None => (line, None),
    }
}

/// The options of protocol `quorum`.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct QuorumOptions {
    /// A server that has written nothing for so many milliseconds says so to its peers; bounds what is known of staleness.
    pub heartbeat_ms: u64,
    /// What requests get that name no numbers: `eventual` or `sequential`.
    pub consistency: Consistency,
    /// How many replicas are asked in the first round, this data center's among them; 0 is all. Paper: N, of Voldemort's preference list.
    pub asked: u8,
    /// How many must answer a read; 0 is what `consistency` says. Paper: R.
    pub reads: u8,
    /// How many must have a write; 0 is what `consistency` says. Paper: W.
    pub writes: u8,
    /// When too few have answered after so many milliseconds, others are asked, one after the other.
    pub round_ms: u64,
    /// What `GET` answers where values stand side by side: `last-writer`, `union` or `counters`.
    pub resolver: Resolver,
    /// The published rule: plain version vectors, whose entries are the servers', so that a write hides one that its writer has not seen.
    pub published: bool,
}

impl Default for QuorumOptions {
    fn default() -> QuorumOptions {
        QuorumOptions {
            heartbeat_ms: 100,
            consistency: Consistency::Eventual,
            asked: 0,
            reads: 0,
            writes: 0,
            round_ms: 250,
            resolver: Resolver::LastWriter,
            published: false,
        }
    }
}

impl QuorumOptions {
    /// The numbers of an operation that asks for `asked`, where there are `replicas`. Errors: numbers that cannot be had, in words for the user.
    pub(super) fn numbers(&self, asked: dial::Quorum, replicas: u8) -> Result<dial::Quorum, String> {
        let usual = match self.consistency {
            Consistency::Eventual => 1,
            Consistency::Sequential => replicas / 2 + 1,
        };
        let first = |numbers: [u8; 3]| numbers.into_iter().find(|number| *number != 0).unwrap_or_default();
        let reads = first([asked.reads, self.reads, usual]);
        let writes = first([asked.writes, self.writes, usual]);
        let round = first([asked.asked, self.asked, replicas]);
        let names = [("asked", round), ("reads", reads), ("writes", writes)];
        if let Some((name, number)) = names.into_iter().find(|(_, number)| *number > replicas) {
            return Err(format!("{name} = {number}: a partition has {replicas} replicas, one in each data center"));
        }
        if reads > round || writes > round {
            return Err(format!("reads = {reads}, writes = {writes}: only {round} replicas are asked"));
        }
        Ok(dial::Quorum { asked: round, reads, writes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_from_the_request_then_the_keyspace_then_its_consistency() {
        let quorum = |asked, reads, writes| dial::Quorum { asked, reads, writes };
        let sequential = QuorumOptions { consistency: Consistency::Sequential, ..QuorumOptions::default() };
        assert_eq!(sequential.numbers(dial::Quorum::KEYSPACE, 3), Ok(quorum(3, 2, 2)));
        assert_eq!(sequential.numbers(dial::Quorum::KEYSPACE, 4), Ok(quorum(4, 3, 3)));
        assert_eq!(sequential.numbers(quorum(0, 1, 3), 3), Ok(quorum(3, 1, 3)));
        let own = QuorumOptions { writes: 3, ..QuorumOptions::default() };
        assert_eq!(own.numbers(dial::Quorum::KEYSPACE, 3), Ok(quorum(3, 1, 3)));
        assert!(own.numbers(dial::Quorum::KEYSPACE, 2).unwrap_err().contains("writes = 3"));
        assert!(sequential.numbers(quorum(1, 2, 1), 3).unwrap_err().contains("only 1 replicas are asked"));
        assert!(sequential.numbers(quorum(4, 1, 1), 3).is_err());
    }
}
