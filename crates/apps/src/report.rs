//! What an application has done, and what became of it.

use serde::Serialize;
use std::fmt::Write;

/// What is known while it runs.
#[derive(Clone, Copy, Default, Debug)]
pub struct Progress {
    /// Seconds since the clients began.
    pub seconds: f64,
    /// Tasks that were done.
    pub done: u64,
    /// Of how many, where that is known.
    pub of: Option<u64>,
    /// Reads and writes of the clients, those of locks among them.
    pub operations: u64,
    /// Tries that an alarm has ended.
    pub rolled_back: u64,
    /// What monitors have told.
    pub alarms: u64,
    /// Clients that ask for quorums that meet, of those that can choose.
    pub sequential: usize,
}

/// What monitors have told.
#[derive(Clone, PartialEq, Default, Serialize, Debug)]
pub struct Detection {
    /// Violations, each once, however often it was told.
    pub alarms: u64,
    /// Of these, certain ones; for the others the clocks are too close.
    pub violated: u64,
    /// How often violations may have been missed, as the monitors say themselves.
    pub gaps: u64,
    /// From the last write that took part to the first word of it, on the nodes' clocks: the median in milliseconds. Absent without alarms.
    pub median_ms: Option<u64>,
    /// 99 % of them were told within so many milliseconds.
    pub p99_ms: Option<u64>,
    /// All were.
    pub max_ms: Option<u64>,
}

/// A client's change of what it asks for.
#[derive(Clone, PartialEq, Serialize, Debug)]
pub struct Moved {
    /// Which client, from 0.
    pub client: usize,
    /// After how many of its tries.
    pub tries: u64,
    /// To quorums that meet, or away from them.
    pub sequential: bool,
    /// Why.
    pub reason: String,
}

/// What an application has done.
#[derive(Clone, PartialEq, Default, Serialize, Debug)]
pub struct Report {
    /// The application.
    pub app: String,
    /// What it ran on, in words.
    pub setting: String,
    /// The keyspace.
    pub keyspace: String,
    /// Its protocol.
    pub protocol: String,
    /// What was asked for.
    pub consistency: String,
    /// How long clients waited for alarms about what they had locked, in milliseconds; 0 where they did not.
    pub settle_ms: u64,
    /// Of the graph, and of all that is drawn.
    pub seed: u64,
    /// Clients, in the data centers in turn.
    pub clients: usize,
    /// For how long clients ran, in seconds.
    pub seconds: f64,
    /// Tasks that were done.
    pub done: u64,
    /// Of how many, where there is an end.
    pub of: Option<u64>,
    /// How often a task was begun.
    pub tries: u64,
    /// Of these, how many an alarm has ended.
    pub rolled_back: u64,
    /// Of these, how many ended since they could not go on.
    pub begun_again: u64,
    /// Of these, how many had an alarm while they asked for quorums that meet, and went on.
    pub close: u64,
    /// Of these, how many had an alarm only when they had written, while nothing had to meet.
    pub late: u64,
    /// Reads by clients.
    pub gets: u64,
    /// Writes by clients.
    pub puts: u64,
    /// Of reads and writes of states, the locks' apart: the share of writes in percent. Absent where it was not to be adjusted.
    pub put_percent: Option<f64>,
    /// Reads and writes in a second, as clients see it.
    pub operations_per_s: f64,
    /// Updates of the keyspace that servers of all data centers have written and received meanwhile, whoever asked for them.
    pub server_updates: u64,
    /// The same in a second.
    pub server_updates_per_s: f64,
    /// What the monitors told; absent if there were none.
    pub detection: Option<Detection>,
    /// How often two clients held one lock at the same time, and both went on to write. Seen in this process, not by the store.
    pub overlaps: u64,
    /// Changes of what clients ask for.
    pub moves: Vec<Moved>,
    /// What is wrong with the outcome, as the store has it in all data centers; empty: nothing is.
    pub faults: Vec<String>,
    /// What was looked at for that, in words.
    pub checked: String,
}

impl Report {
    /// Whether the outcome is what it should be. Of nothing that was done nothing is known.
    pub fn is_right(&self) -> bool {
        self.faults.is_empty() && self.done > 0
    }

    /// As JSON.
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("plain numbers and texts") + "\n"
    }

    /// As text for people.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let mut line = |name: &str, what: String| {
            let _ = writeln!(text, "{name:<12} {what}");
        };
        line("setting", format!("{}, {} clients, keyspace {} ({}), {}", self.setting, self.clients, self.keyspace, self.protocol, self.consistency));
        let of = self.of.map_or_else(String::new, |of| format!(" of {of}"));
        line("done", format!("{}{of} tasks in {:.1} s: {:.1} in a second", self.done, self.seconds, per_second(self.done, self.seconds)));
        let close = if self.close > 0 { format!("; {} had an alarm where quorums meet, and went on", self.close) } else { String::new() };
        line("tries", format!("{}; {} rolled back, {} could not go on{close}", self.tries, self.rolled_back, self.begun_again));
        let share = self.put_percent.map_or_else(String::new, |share| format!("; of states, {share:.1} % were PUTs"));
        if self.late > 0 {
            line("late", format!("{} tasks had written when an alarm about them came", self.late));
        }
        line("clients saw", format!("{:.0} operations/s ({} GETs, {} PUTs{share})", self.operations_per_s, self.gets, self.puts));
        line("servers saw", format!("{:.0} updates/s of this keyspace, in all data centers together", self.server_updates_per_s));
        match &self.detection {
            None => line("violations", "nobody watched".into()),
            Some(told) => {
                let times = match (told.median_ms, told.p99_ms, told.max_ms) {
                    (Some(median), Some(p99), Some(max)) => format!("; told after {median} ms (median), {p99} ms (99 %), {max} ms (all)"),
                    _ => String::new(),
                };
                line("violations", format!("{}, {} of them certain{times}", told.alarms, told.violated));
                if told.gaps > 0 {
                    line("gaps", format!("{}: some may have been missed", told.gaps));
                }
            }
        }
        if self.overlaps > 0 {
            line("overlaps", format!("{} times two clients held one lock, and both wrote", self.overlaps));
        }
        for moved in self.moves.iter().take(20) {
            let to = if moved.sequential { "sequential" } else { "eventual" };
            line("moved", format!("client {} to {to} after {} tries: {}", moved.client, moved.tries, moved.reason));
        }
        if self.moves.len() > 20 {
            line("", format!("and {} more", self.moves.len() - 20));
        }
        line("checked", self.checked.clone());
        for fault in self.faults.iter().take(10) {
            line("WRONG", fault.clone());
        }
        if self.faults.len() > 10 {
            line("", format!("and {} more", self.faults.len() - 10));
        }
        let outcome = match (self.is_right(), self.faults.is_empty()) {
            (true, _) => "right",
            (false, true) => "not known: nothing was done",
            (false, false) => "WRONG",
        };
        line("outcome", outcome.into());
        text
    }
}

/// How many in a second.
pub(crate) fn per_second(count: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { count as f64 / seconds } else { 0.0 }
}

/// Of `sorted`, the value within which `share` of 1000 are.
pub(crate) fn within(sorted: &[u64], share: usize) -> Option<u64> {
    sorted.get((sorted.len() * share).div_ceil(1000).saturating_sub(1)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_a_few_and_of_many() {
        let hundred: Vec<u64> = (1..=100).collect();
        assert_eq!((within(&hundred, 500), within(&hundred, 990), within(&hundred, 1000)), (Some(50), Some(99), Some(100)));
        assert_eq!((within(&[7], 500), within(&[7], 1000), within(&[], 500)), (Some(7), Some(7), None));
    }

    #[test]
    fn nothing_done_is_not_right() {
        let idle = Report { app: "weather".into(), ..Report::default() };
        assert!(!idle.is_right() && idle.text().contains("outcome      not known: nothing was done"), "{}", idle.text());
    }

    #[test]
    fn a_report_says_what_is_wrong() {
        let right = Report { app: "social".into(), of: Some(3), done: 3, ..Report::default() };
        assert!(right.text().contains("3 of 3 tasks") && right.text().contains("outcome      right"), "{}", right.text());
        let wrong = Report { faults: (0..12).map(|edge| format!("edge {edge}")).collect(), ..right };
        assert!(wrong.text().contains("edge 9") && !wrong.text().contains("edge 10") && wrong.text().contains("and 2 more"), "{}", wrong.text());
        assert!(wrong.text().contains("outcome      WRONG"));
        assert!(wrong.json().contains("\"faults\": [\n"));
    }
}
