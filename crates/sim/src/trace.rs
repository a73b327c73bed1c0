//! The trace of a run: a hash of everything that happened, and, when asked, lines to read.

use crate::text::Millis;

/// How much of a run is told in words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum TraceLevel {
    /// Nothing.
    #[default]
    Off,
    /// What clients see, updates on their way, faults, and requests that raise a stable vector.
    Story,
    /// Everything: heartbeats, the protocol's messages, flushes.
    Full,
}

/// What happened in a run.
#[derive(Clone, Debug)]
pub(crate) struct Trace {
    hash: u64,
    level: TraceLevel,
    lines: Vec<Line>,
}

/// Something that is told.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    now_us: u64,
    pub(crate) who: String,
    pub(crate) what: String,
}

impl Trace {
    pub(crate) fn new(level: TraceLevel) -> Trace {
        Trace { hash: 0x243F_6A88_85A3_08D3, level, lines: Vec::new() }
    }

    /// Takes a number into the hash.
    pub(crate) fn number(&mut self, number: u64) {
        let product = u128::from(self.hash ^ number) * 0x9E37_79B9_7F4A_7C15_u128;
        // The rotation keeps order: without it two numbers could be exchanged where one product vanishes.
        self.hash = ((product >> 64) as u64 ^ product as u64).rotate_left(23) ^ 0xA409_3822_299F_31D0;
    }

    /// Takes bytes into the hash.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.number(u64::from_le_bytes(word));
        }
    }

    /// Whether lines of `level` are kept.
    pub(crate) fn wants(&self, level: TraceLevel) -> bool {
        self.level >= level
    }

    /// Keeps a line, if lines of `level` are kept.
    pub(crate) fn line(&mut self, level: TraceLevel, now_us: u64, who: impl std::fmt::Display, what: impl FnOnce() -> String) {
        if self.wants(level) {
            self.lines.push(Line { now_us, who: who.to_string(), what: what() });
        }
    }

    /// The hash of everything so far.
    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    /// What was told so far.
    pub(crate) fn told(&self) -> &[Line] {
        &self.lines
    }

    /// The lines, as text.
    pub(crate) fn into_lines(self) -> Vec<String> {
        let text = |line: &Line| format!("{:>12}  {:<14} {}", Millis(line.now_us).to_string(), line.who, line.what);
        self.lines.iter().map(text).collect()
    }
}
