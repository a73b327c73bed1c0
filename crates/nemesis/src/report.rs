//! What came of a run.

use crate::world::DEADLINE;
use rheostat_checkers::History;
use rheostat_checkers::history::{Action, Outcome};
use rheostat_core::DcId;
use serde_json::{Value, json};
use std::fmt;
use std::path::PathBuf;

/// An episode as it was.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Happened {
    /// When it began, in microseconds on the recorder's clock.
    pub from_us: u64,
    /// When all nodes served again.
    pub to_us: u64,
    /// What was done, in words.
    pub acts: Vec<String>,
    /// By data center: the longest time in it in which no operation was answered there, in milliseconds.
    pub silence_ms: Vec<u64>,
    /// Commands that had to be given more than once, in words.
    pub repeated: Vec<String>,
    /// By data center: what most operations that failed there were told, and how many they were.
    pub told: Vec<Option<(String, usize)>>,
}

/// How operations of keys ended.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Counts {
    /// Reads that were answered.
    pub reads: usize,
    /// Writes, deletions and changes that were answered.
    pub writes: usize,
    /// Operations that were not done, and said so.
    pub failed: usize,
    /// Writes of which it is not known whether they were done.
    pub unknown: usize,
}

impl Counts {
    /// Those of `history`.
    pub fn of(history: &History) -> Counts {
        let mut counts = Counts::default();
        for event in &history.events {
            match event.outcome {
                Outcome::Read(_) => counts.reads += 1,
                Outcome::Written(_) | Outcome::Changed { .. } => counts.writes += 1,
                // A deletion of what is not there writes nothing.
                Outcome::Failed if matches!(event.action, Action::Put { ref items, .. } if items.iter().all(|item| item.value.is_none())) => {}
                Outcome::Failed => counts.failed += 1,
                Outcome::Unknown => counts.unknown += 1,
                Outcome::Adopted => {}
            }
        }
        counts
    }
}

/// The counter with a bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Counter {
    /// Updates that were answered.
    pub answered: u64,
    /// Updates that its bound refused.
    pub refused: u64,
    /// Its value in the end, if all data centers agreed, and it was one that it could have.
    pub value: Option<i64>,
}

/// What came of a run.
#[derive(Clone, PartialEq, Debug)]
pub struct Report {
    /// The names of the data centers.
    pub data_centers: Vec<String>,
    /// How operations of keys ended.
    pub counts: Counts,
    /// Sessions that were refused when they went on, and begun anew.
    pub refused_sessions: u64,
    /// How often a session went to another data center.
    pub moves: u64,
    /// What went wrong, one after the other.
    pub happened: Vec<Happened>,
    /// The counter.
    pub counter: Counter,
    /// What was checked, in words; empty if something was found.
    pub checked: String,
    /// What must not be.
    pub findings: Vec<String>,
    /// Where the history is.
    pub history: PathBuf,
}

/// The longest time from `from_us` to `to_us` in which no operation was answered in data center `dc`, in milliseconds.
pub fn silence_ms(history: &History, dc: usize, from_us: u64, to_us: u64) -> u64 {
    let there = history.events.iter().filter(|event| event.dc == DcId(dc as u8) && event.outcome != Outcome::Failed);
    let mut answered: Vec<u64> = there.filter_map(|event| event.completed_us).filter(|at| (from_us..to_us).contains(at)).collect();
    answered.sort_unstable();
    answered.push(to_us);
    let (mut last, mut longest) = (from_us, 0);
    for at in answered {
        longest = longest.max(at.saturating_sub(last));
        last = at;
    }
    longest / 1000
}

impl Report {
    /// As JSON.
    pub fn json(&self) -> Value {
        let seconds = |us: u64| us as f64 / 1e6;
        let told = |most: &Option<(String, usize)>| most.as_ref().map(|(why, times)| json!({ "why": why, "times": times }));
        let episode = |one: &Happened| {
            json!({
                "from_s": seconds(one.from_us), "to_s": seconds(one.to_us), "acts": one.acts, "silence_ms": one.silence_ms, "repeated": one.repeated,
                "told": one.told.iter().map(told).collect::<Vec<_>>(),
            })
        };
        let Counts { reads, writes, failed, unknown } = self.counts;
        let Counter { answered, refused, value } = self.counter;
        json!({
            "data_centers": self.data_centers,
            "operations": { "reads": reads, "writes": writes, "failed": failed, "unknown": unknown },
            "sessions": { "refused": self.refused_sessions, "moved": self.moves },
            "episodes": self.happened.iter().map(episode).collect::<Vec<_>>(),
            "counter": { "answered": answered, "refused": refused, "value": value },
            "findings": self.findings,
            "history": self.history,
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\nEpisodes, and the longest time in each without an answer, by data center ({}):", self.data_centers.join(", "))?;
        for one in &self.happened {
            let silent: Vec<String> = one.silence_ms.iter().map(|ms| format!("{:5.2}", *ms as f64 / 1e3)).collect();
            writeln!(
                f,
                "  {:6.1} s  over after {:5.1} s  silent {} s  {}",
                one.from_us as f64 / 1e6,
                (one.to_us - one.from_us) as f64 / 1e6,
                silent.join(" "),
                one.acts.join("; ")
            )?;
            for command in &one.repeated {
                writeln!(f, "            a command {command}")?;
            }
            for (dc, told) in one.told.iter().enumerate() {
                if let Some((why, times)) = told.as_ref().filter(|_| one.silence_ms.get(dc).is_some_and(|ms| u128::from(*ms) > DEADLINE.as_millis()))
                {
                    writeln!(f, "            {}: {times} times \"{why}\"", self.data_centers[dc])?;
                }
            }
        }
        let Counts { reads, writes, failed, unknown } = self.counts;
        writeln!(
            f,
            "\n{reads} reads and {writes} writes answered; {failed} operations failed, and of {unknown} writes it is not known whether they were done"
        )?;
        writeln!(f, "{} times a session went to another data center; {} sessions were refused and begun anew", self.moves, self.refused_sessions)?;
        let Counter { answered, refused, value } = self.counter;
        let value = value.map_or("not known".to_owned(), |value| value.to_string());
        writeln!(f, "the counter: {answered} updates answered, {refused} refused by its bound, {value} in the end")?;
        if !self.checked.is_empty() {
            writeln!(f, "\n{}", self.checked.trim_end())?;
        }
        for finding in &self.findings {
            writeln!(f, "\nFOUND: {}", finding.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rheostat_checkers::history::SessionId;
    use rheostat_checkers::{HistoryBuilder, Observation};
    use rheostat_core::dial::Level;

    /// Reads in data center 0, asked and answered at these times; the answers say whether they failed.
    fn history(reads: &[(u64, u64, bool)]) -> History {
        let mut builder = HistoryBuilder::new(2);
        let key = builder.key(b"x");
        for (number, (from, to, failed)) in reads.iter().enumerate() {
            let event = builder.begin(SessionId(number as u64), DcId(0), *from, Action::Get { key, level: Level::Eventual }).unwrap();
            let outcome = if *failed { Outcome::Failed } else { Outcome::Read(vec![Observation::ABSENT]) };
            builder.end(event, *to, outcome).unwrap();
        }
        builder.finish().unwrap()
    }

    #[test]
    fn silence_is_between_answers_and_failures_are_none() {
        let history = history(&[(0, 1_000, false), (1_000, 3_000, true), (2_000, 6_000, false), (6_000, 20_000, false)]);
        assert_eq!(silence_ms(&history, 0, 0, 10_000), 5);
        assert_eq!(silence_ms(&history, 0, 0, 30_000), 14);
        assert_eq!(silence_ms(&history, 0, 0, 5_000), 4, "from the last answer to the end");
        assert_eq!(silence_ms(&history, 1, 0, 10_000), 10, "nobody was answered there");
        assert_eq!(Counts::of(&history), Counts { reads: 3, failed: 1, ..Counts::default() });
    }
}
