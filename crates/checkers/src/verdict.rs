//! What a checker answers: a report, or a violation.

use crate::history::{EventId, History};
use std::fmt;

/// What is said instead of a definition where the search for proof of the contrary was given up.
pub(crate) const UNDECIDED: &str = "no verdict: the search for an order was given up";

/// A promise that a history is checked against.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Promise {
    /// The history itself makes sense; not a promise of the store but of the recorder.
    WellFormed,
    /// Every value that is read was written, by one write, under one version.
    Written,
    /// A value is read until it expires, and not afterwards.
    Expiry,
    /// A read-and-change has nothing between.
    Change,
    /// Causal+ consistency with last-writer-wins.
    Causal,
    /// What one read-only transaction returns is causally consistent.
    Snapshot,
    /// Session guarantee: read your writes.
    ReadYourWrites,
    /// Session guarantee: monotonic reads.
    MonotonicReads,
    /// Session guarantee: monotonic writes.
    MonotonicWrites,
    /// Session guarantee: writes follow reads.
    WritesFollowReads,
    /// Each operation takes effect at one moment between its call and its reply.
    Linearizable,
    /// After healing, every data center has the greatest version.
    Convergence,
    /// No acknowledged write is lost, no deleted data comes back.
    Durability,
}

impl Promise {
    /// Every promise, in the order of checking.
    pub const ALL: [Promise; 13] = [
        Promise::WellFormed,
        Promise::Written,
        Promise::Expiry,
        Promise::Change,
        Promise::Causal,
        Promise::Snapshot,
        Promise::ReadYourWrites,
        Promise::MonotonicReads,
        Promise::MonotonicWrites,
        Promise::WritesFollowReads,
        Promise::Durability,
        Promise::Linearizable,
        Promise::Convergence,
    ];

    /// One word for tables and files.
    pub const fn name(self) -> &'static str {
        match self {
            Promise::WellFormed => "well-formed",
            Promise::Written => "written",
            Promise::Expiry => "expiry",
            Promise::Change => "change",
            Promise::Causal => "causal",
            Promise::Snapshot => "snapshot",
            Promise::ReadYourWrites => "read-your-writes",
            Promise::MonotonicReads => "monotonic-reads",
            Promise::MonotonicWrites => "monotonic-writes",
            Promise::WritesFollowReads => "writes-follow-reads",
            Promise::Linearizable => "linearizable",
            Promise::Convergence => "convergence",
            Promise::Durability => "durability",
        }
    }

    /// The promise called `name`.
    pub fn from_name(name: &str) -> Option<Promise> {
        Promise::ALL.into_iter().find(|promise| promise.name() == name)
    }
}

impl fmt::Display for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a checker did on a history that keeps the promise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Report {
    /// The promise.
    pub promise: Promise,
    /// Comparisons made: one per key that an event read or wrote, as far as the promise speaks of it.
    pub checked: u64,
    /// Those of them that could have failed, because there was something in the history that the result had to agree with.
    pub constrained: u64,
    /// Results that could not be compared, because the history does not say which version they were.
    pub skipped: u64,
}

impl Report {
    pub(crate) const fn new(promise: Promise) -> Report {
        Report { promise, checked: 0, constrained: 0, skipped: 0 }
    }

    pub(crate) fn count(&mut self, constrained: bool) {
        self.checked += 1;
        self.constrained += u64::from(constrained);
    }

    /// Whether no comparison could have failed: the history shows nothing about this promise.
    pub const fn is_idle(&self) -> bool {
        self.constrained == 0
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} checked, {} of them constrained, {} skipped", self.promise, self.checked, self.constrained, self.skipped)
    }
}

/// A broken promise, with the events that show it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// The promise.
    pub promise: Promise,
    /// The definition that it breaks, by name or number in the dissertation.
    pub definition: &'static str,
    /// What is wrong, in a sentence.
    pub what: String,
    /// The events that show it, causes first, each with why it stands there.
    pub trace: Vec<(EventId, String)>,
    /// `trace` and `what` as text.
    text: String,
}

impl Violation {
    /// A violation of `promise`; the trace's events are printed from `history`.
    pub(crate) fn new(history: &History, promise: Promise, definition: &'static str, what: String, trace: Vec<(EventId, String)>) -> Violation {
        let mut text = format!("{promise} is violated ({definition}): {what}\n");
        for (event, why) in &trace {
            text.push_str("  ");
            history.print_event(*event, &mut text);
            if !why.is_empty() {
                text.push_str("    # ");
                text.push_str(why);
            }
            text.push('\n');
        }
        Violation { promise, definition, what, trace, text }
    }

    /// Whether nothing is known to be violated: the search for proof of the contrary was given up.
    pub fn is_undecided(&self) -> bool {
        self.definition == UNDECIDED
    }

    pub(crate) fn malformed(what: String) -> Violation {
        let text = format!("the history makes no sense: {what}\n");
        Violation { promise: Promise::WellFormed, definition: "history", what, trace: Vec::new(), text }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Violation {}
