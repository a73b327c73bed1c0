//! Read, edit, write if nobody else has: until the write succeeds or patience ends. No I/O: the caller does what [`Next`] says.

use rheostat_core::random::Random;
use rheostat_core::version::Value;

/// How often an edit is tried, and how long it pauses between tries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Patience {
    /// How many writes are tried; at least 1.
    pub tries: u32,
    /// The longest pause after the first conflict, in microseconds; it doubles with each further one. The pause itself is drawn between 0 and this.
    pub pause_us: u64,
    /// No pause is longer than this, in microseconds.
    pub longest_pause_us: u64,
}

impl Default for Patience {
    fn default() -> Patience {
        Patience { tries: 32, pause_us: 500, longest_pause_us: 50_000 }
    }
}

/// What is to be done to a value.
pub trait Edit {
    /// What whoever asked for it is told.
    type Answer: std::fmt::Debug;

    /// What `before` becomes. Called again with a newer value after each write that another one came before.
    fn edit(&mut self, before: Option<&Value>) -> Edited<Self::Answer>;
}

/// What an edit makes of a value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Edited<A> {
    /// The answer holds once this is written.
    Write(Value, A),
    /// Nothing is to be written.
    Answer(A),
}

/// What the caller does next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Next<V, A> {
    /// Read the key, and its version; then [`Retry::read`].
    Read,
    /// Write this if the key is still at `expected` (`None`: never written); then [`Retry::written`].
    Write {
        /// What.
        value: Value,
        /// The version that was read.
        expected: Option<V>,
    },
    /// Wait for so many microseconds; then read.
    Pause(u64),
    /// It is done.
    Done(A),
    /// Another write came first every time.
    GaveUp {
        /// How many writes were tried.
        tried: u32,
        /// Whether one of which no answer came may still be made.
        uncertain: bool,
    },
}

/// How a conditional write went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Written {
    /// It is there.
    Yes,
    /// The key was not as expected; it is not there.
    Conflict,
    /// No answer came: it may be there, or still come.
    Unknown,
}

/// One edit of one key, under way (document 002, section IV-B).
///
/// A write of which no answer came is no danger: what is read afterwards shows whether it is there, and if it comes later still, it and the next try expect the same version, so at most one
/// of them is made. An edit that must be made once has to see by the value whether it has been.
#[derive(Debug)]
pub struct Retry<E: Edit, V> {
    edit: E,
    answer: Option<E::Answer>,
    /// The version that the last write expected.
    expected: Option<V>,
    /// That write may be there, or still come.
    uncertain: bool,
    patience: Patience,
    random: Random,
    tried: u32,
}

impl<E: Edit, V: Clone + PartialEq> Retry<E, V> {
    /// Begins with a read.
    pub fn new(edit: E, patience: Patience, random: Random) -> Retry<E, V> {
        Retry { edit, answer: None, expected: None, uncertain: false, patience, random, tried: 0 }
    }

    /// The edit.
    pub fn edit(&self) -> &E {
        &self.edit
    }

    /// Whether a write of which no answer came may be made still.
    pub fn is_uncertain(&self) -> bool {
        self.uncertain
    }

    /// The key has this value at this version.
    pub fn read(&mut self, value: Option<&Value>, version: Option<V>) -> Next<V, E::Answer> {
        // Once the key has moved on from what a write expected, that write is there or never will be.
        self.uncertain &= version == self.expected;
        match self.edit.edit(value) {
            Edited::Answer(answer) => Next::Done(answer),
            Edited::Write(value, answer) => {
                if self.tried >= self.patience.tries.max(1) {
                    return Next::GaveUp { tried: self.tried, uncertain: self.uncertain };
                }
                self.tried += 1;
                self.answer = Some(answer);
                self.expected.clone_from(&version);
                Next::Write { value, expected: version }
            }
        }
    }

    /// The write that [`Next::Write`] asked for went like this.
    pub fn written(&mut self, written: Written) -> Next<V, E::Answer> {
        // Of two writes that expect the same version one at most is made, so a conflict or a success settles the ones before.
        self.uncertain = written == Written::Unknown;
        match (self.answer.take(), written) {
            (Some(answer), Written::Yes) => Next::Done(answer),
            _ => {
                let longest = self.patience.pause_us.saturating_mul(1 << (self.tried.max(1) - 1).min(20)).min(self.patience.longest_pause_us);
                Next::Pause(self.random.between(0, longest))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds 1 to a number in a byte; refuses at 9.
    struct AddOne;

    impl Edit for AddOne {
        type Answer = Result<u8, &'static str>;

        fn edit(&mut self, before: Option<&Value>) -> Edited<Self::Answer> {
            match before.map_or(0, |value| value[0]) {
                9 => Edited::Answer(Err("full")),
                number => Edited::Write(Value::from([number + 1]), Ok(number + 1)),
            }
        }
    }

    fn value(number: u8) -> Value {
        Value::from([number])
    }

    #[test]
    fn a_conflict_pauses_and_edits_what_is_there_then() {
        let mut retry = Retry::<_, u32>::new(AddOne, Patience { tries: 3, pause_us: 10, longest_pause_us: 15 }, Random::new(1));
        assert_eq!(retry.read(None, None), Next::Write { value: value(1), expected: None });
        assert!(matches!(retry.written(Written::Conflict), Next::Pause(..=10)));
        assert_eq!(retry.read(Some(&value(4)), Some(7)), Next::Write { value: value(5), expected: Some(7) });
        assert!(matches!(retry.written(Written::Unknown), Next::Pause(..=15)));
        assert_eq!(retry.read(Some(&value(6)), Some(8)), Next::Write { value: value(7), expected: Some(8) });
        assert_eq!(retry.written(Written::Yes), Next::Done(Ok(7)));
    }

    #[test]
    fn patience_ends_and_an_answer_without_a_write_needs_none() {
        let mut retry = Retry::<_, u32>::new(AddOne, Patience { tries: 1, ..Patience::default() }, Random::new(1));
        assert!(matches!(retry.read(Some(&value(1)), Some(1)), Next::Write { .. }));
        assert!(matches!(retry.written(Written::Conflict), Next::Pause(_)));
        assert_eq!(retry.read(Some(&value(2)), Some(2)), Next::GaveUp { tried: 1, uncertain: false });
        let mut retry = Retry::<_, u32>::new(AddOne, Patience { tries: 1, ..Patience::default() }, Random::new(1));
        retry.read(Some(&value(1)), Some(1));
        retry.written(Written::Unknown);
        assert_eq!(retry.read(Some(&value(1)), Some(1)), Next::GaveUp { tried: 1, uncertain: true });
        let mut retry = Retry::<_, u32>::new(AddOne, Patience { tries: 1, ..Patience::default() }, Random::new(1));
        assert_eq!(retry.read(Some(&value(9)), Some(3)), Next::Done(Err("full")));
    }

    #[test]
    fn pauses_differ_and_grow_to_their_limit() {
        let patience = Patience { tries: 40, pause_us: 100, longest_pause_us: 1_000 };
        let mut retry = Retry::<_, u32>::new(AddOne, patience, Random::new(3));
        let mut pauses = Vec::new();
        for _ in 0..40 {
            assert!(matches!(retry.read(None, None), Next::Write { .. }));
            let Next::Pause(pause) = retry.written(Written::Conflict) else { panic!("a conflict pauses") };
            pauses.push(pause);
        }
        assert!(pauses[0] <= 100 && pauses.iter().all(|pause| *pause <= 1_000));
        assert!(pauses.iter().any(|pause| *pause > 100));
        assert!(pauses[10..].windows(2).any(|two| two[0] != two[1]));
    }
}
