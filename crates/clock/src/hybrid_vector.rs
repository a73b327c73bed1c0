//! The hybrid vector clock (document 000, §3.1) and the relation of two intervals under it (§5, Fig. 6).
//!
//! A vector clock says of two events which happened before the other, and takes an entry per process. Where physical clocks differ by at most ε, an entry that has
//! fallen behind PT − ε says nothing that the clocks do not: it is read as PT − ε, and needs no place. With ε = ∞ every entry counts, and the clock is a vector clock.

use crate::Timestamp;
use std::fmt;

/// The most processes that a vector may have.
pub const MOST_PROCESSES: u32 = 1 << 16;

/// How far two physical clocks may be apart. Paper: ϵ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Epsilon {
    /// At most so many milliseconds.
    Millis(u64),
    /// Nothing is known of them: hybrid vector clocks are vector clocks.
    Infinite,
}

impl Epsilon {
    /// The default entry at time `at`. Paper: PT − ϵ.
    pub fn before(self, at: Timestamp) -> Timestamp {
        match self {
            Epsilon::Millis(millis) => Timestamp::from_bits(at.bits().saturating_sub(millis.saturating_mul(1 << 16))),
            Epsilon::Infinite => Timestamp::ZERO,
        }
    }
}

/// Why bytes are no hybrid vector clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoHybridVector(&'static str);

impl NoHybridVector {
    /// What is wrong with them.
    pub fn why(self) -> &'static str {
        self.0
    }
}

impl fmt::Display for NoHybridVector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not a hybrid vector clock: {}", self.0)
    }
}

impl std::error::Error for NoHybridVector {}

/// A hybrid vector clock's reading at one process. Paper: HVC_i.
///
/// Promises, where no two physical clocks are further apart than ε: if event e happens before event f then e's reading is less than f's. The own entry is the physical clock's reading
/// unless that stands still or goes back; it is the number that this process counted on to then. Clocks further apart cost precision, never the order of events that messages connect.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HybridVector {
    process: u32,
    processes: u32,
    epsilon: Epsilon,
    /// The own entry. Paper: HVC_i[i] = PT_i.
    at: Timestamp,
    /// The default entry: PT − ε, or that of a process whose clock is ahead and that has sent to this one, if it is more.
    floor: Timestamp,
    /// Entries of others that are greater than the default, by process.
    known: Vec<(u32, Timestamp)>,
}

impl HybridVector {
    /// The clock of `process` among `processes`, before its first event. Panics if there are more than [`MOST_PROCESSES`], or `process` is none of them.
    pub fn new(process: u32, processes: u32, epsilon: Epsilon) -> HybridVector {
        assert!(process < processes && processes <= MOST_PROCESSES, "process {process} of {processes}; at most {MOST_PROCESSES}");
        HybridVector { process, processes, epsilon, at: Timestamp::ZERO, floor: Timestamp::ZERO, known: Vec::new() }
    }

    /// Whose it is. Paper: i.
    pub fn process(&self) -> u32 {
        self.process
    }

    /// How many processes there are. Paper: n.
    pub fn processes(&self) -> u32 {
        self.processes
    }

    /// How far physical clocks may be apart.
    pub fn epsilon(&self) -> Epsilon {
        self.epsilon
    }

    /// The own entry. Paper: HVC_i[i].
    pub fn at(&self) -> Timestamp {
        self.at
    }

    /// The entry of `process`; never below PT − ε. Paper: HVC_i[j].
    pub fn get(&self, process: u32) -> Timestamp {
        if process == self.process {
            return self.at;
        }
        match self.known.binary_search_by_key(&process, |(other, _)| *other) {
            Ok(place) => self.known[place].1,
            Err(_) => self.floor,
        }
    }

    /// An event here, or a message about to be sent, at physical time `now`.
    pub fn tick(&mut self, now: Timestamp) {
        self.advance(now, Timestamp::ZERO);
    }

    /// A message has come at physical time `now`, with its sender's reading. Each entry becomes the maximum of the own one, the message's and PT − ε. (The paper drops the own one, and so would forget.)
    pub fn receive(&mut self, now: Timestamp, message: &HybridVector) {
        for &(process, at) in &message.known {
            self.learn(process, at);
        }
        self.learn(message.process, message.at);
        self.floor = self.floor.max(message.floor);
        // What the sender knows of this process is less than the own entry unless the clocks are ε apart, or more. Then the order of events goes before the clock.
        self.advance(now, message.get(self.process).successor());
    }

    /// `process`, which is not this one, has told of its time `at`, and of nothing else.
    pub fn learn(&mut self, process: u32, at: Timestamp) {
        if process == self.process || process >= self.processes || at <= self.floor {
            return;
        }
        match self.known.binary_search_by_key(&process, |(other, _)| *other) {
            Ok(place) => self.known[place].1 = self.known[place].1.max(at),
            Err(place) => self.known.insert(place, (process, at)),
        }
    }

    fn advance(&mut self, now: Timestamp, after: Timestamp) {
        self.at = now.max(self.at.successor()).max(after);
        self.floor = self.floor.max(self.epsilon.before(self.at));
        self.known.retain(|(_, at)| *at > self.floor);
    }

    /// Whether no entry is greater than the other's. The same, or less. Paper: HVC_i ≤ HVC_j for all k.
    pub fn at_most(&self, other: &HybridVector) -> bool {
        let named = self.named().chain(other.named());
        named.clone().all(|process| self.get(process) <= other.get(process)) && {
            // Whoever neither of them names has the default in both.
            let mut all: Vec<u32> = named.collect();
            all.sort_unstable();
            all.dedup();
            all.len() >= self.processes as usize || self.floor <= other.floor
        }
    }

    fn named(&self) -> impl Iterator<Item = u32> + Clone + '_ {
        std::iter::once(self.process).chain(self.known.iter().map(|(process, _)| *process))
    }

    /// Whether it is less: no entry is greater, and one is less. Paper: HVC_i < HVC_j.
    pub fn is_less(&self, other: &HybridVector) -> bool {
        self.at_most(other) && !other.at_most(self)
    }

    /// Whether neither is less. Paper: HVC_i ‖ HVC_j.
    pub fn is_concurrent(&self, other: &HybridVector) -> bool {
        !self.is_less(other) && !other.is_less(self)
    }

    /// Appends the compressed form: whose, of how many, ε, the own entry; by how much the default is more than PT − ε (0, if no clock is ahead); a bit for each process, set where its entry is
    /// more than the default, in bytes; of these, how far it is from the own entry.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_varint(self.process.into(), out);
        put_varint(self.processes.into(), out);
        match self.epsilon {
            Epsilon::Infinite => put_varint(0, out),
            Epsilon::Millis(millis) => put_varint(millis.saturating_add(1), out),
        }
        out.extend_from_slice(&self.at.bits().to_le_bytes());
        put_varint(self.floor.bits() - self.epsilon.before(self.at).bits(), out);
        let bitmap = out.len();
        out.resize(bitmap + self.processes.div_ceil(8) as usize, 0);
        for &(process, at) in &self.known {
            out[bitmap + process as usize / 8] |= 1 << (process % 8);
            // Its distance from the own entry, either way.
            let behind = self.at.bits().wrapping_sub(at.bits()) as i64;
            put_varint((behind << 1 ^ behind >> 63) as u64, out);
        }
    }

    /// Reads the compressed form off the front of `input`.
    ///
    /// # Errors
    /// It is cut short, or no clock wrote it.
    pub fn decode(input: &mut &[u8]) -> Result<HybridVector, NoHybridVector> {
        let (process, processes, epsilon) = (varint(input)?, varint(input)?, varint(input)?);
        if processes > u64::from(MOST_PROCESSES) {
            return Err(NoHybridVector("too many processes"));
        }
        if process >= processes {
            return Err(NoHybridVector("it is of none of its processes"));
        }
        let epsilon = epsilon.checked_sub(1).map_or(Epsilon::Infinite, Epsilon::Millis);
        let at = Timestamp::from_bits(u64::from_le_bytes(take(input, 8)?.try_into().map_err(|_| NoHybridVector("it is cut short"))?));
        let floor = epsilon.before(at).bits().checked_add(varint(input)?).map(Timestamp::from_bits).ok_or(NoHybridVector("an entry out of range"))?;
        let bitmap = take(input, processes.div_ceil(8) as usize)?;
        let mut known = Vec::new();
        for process_of in 0..bitmap.len() as u32 * 8 {
            if bitmap[process_of as usize / 8] & 1 << (process_of % 8) == 0 {
                continue;
            }
            if u64::from(process_of) >= processes || u64::from(process_of) == process {
                return Err(NoHybridVector("an entry of nobody else"));
            }
            let behind = varint(input)?;
            let behind = (behind >> 1) as i64 ^ -((behind & 1) as i64);
            match Timestamp::from_bits(at.bits().wrapping_sub(behind as u64)) {
                entry if entry > floor => known.push((process_of, entry)),
                _ => return Err(NoHybridVector("an entry out of range")),
            }
        }
        Ok(HybridVector { process: process as u32, processes: processes as u32, epsilon, at, floor, known })
    }
}

fn put_varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn take<'a>(input: &mut &'a [u8], length: usize) -> Result<&'a [u8], NoHybridVector> {
    let (taken, rest) = input.split_at_checked(length).ok_or(NoHybridVector("it is cut short"))?;
    *input = rest;
    Ok(taken)
}

fn varint(input: &mut &[u8]) -> Result<u64, NoHybridVector> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let byte = take(input, 1)?[0];
        if shift == 63 && byte > 1 {
            break;
        }
        value |= u64::from(byte & 0x7F) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(NoHybridVector("a number over 64 bits"))
}

/// How two intervals lie to each other. Paper: Fig. 6.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Relation {
    /// The first had ended before the second began.
    Before,
    /// The second had ended before the first began.
    After,
    /// Neither had ended when the other began: some consistent cut passes through both. Paper: first case.
    Concurrent,
    /// One had ended when the other began, as far as the messages say that were told of; the clocks are too close to say so by themselves. Paper: third case, which counts as concurrent.
    Uncertain,
}

/// How an interval of one process lies to another's: each by the readings at its start and at its end (`None`: it has not ended, or that is not known). Intervals of one process are in its order.
///
/// The paper's three cases, with what is to be compared in the second and the third put right: it is the end of the first interval and the start of the second, both times. In the second case the
/// clocks alone decide: an end that is ε before a start is before it, whatever either knows of others. With ε = ∞ they never do, messages decide, and the third case is empty.
pub fn relate(first: (&HybridVector, Option<&HybridVector>), second: (&HybridVector, Option<&HybridVector>)) -> Relation {
    match (before(first.1, second.0), before(second.1, first.0)) {
        (Relation::Before, _) => Relation::Before,
        (_, Relation::Before) => Relation::After,
        (Relation::Uncertain, _) | (_, Relation::Uncertain) => Relation::Uncertain,
        _ => Relation::Concurrent,
    }
}

/// What an interval with this end and one that begins at `start` are, by these two readings.
fn before(end: Option<&HybridVector>, start: &HybridVector) -> Relation {
    let Some(end) = end else { return Relation::Concurrent };
    let latest = if end.process == start.process { start.at() } else { start.epsilon.before(start.at()) };
    match start.epsilon {
        _ if end.process == start.process && end.at() <= latest => Relation::Before,
        Epsilon::Millis(_) if end.at() <= latest => Relation::Before,
        Epsilon::Millis(_) if end.process != start.process && end.at_most(start) => Relation::Uncertain,
        Epsilon::Infinite if end.at_most(start) => Relation::Before,
        _ => Relation::Concurrent,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::new(millis, 0)
    }

    /// What happens in an execution: an event at a process, or a message from one to another; and how much later than the last.
    #[derive(Clone, Debug)]
    struct Happens {
        process: u32,
        from: Option<u32>,
        after_ms: u64,
    }

    fn executions(processes: u32) -> impl Strategy<Value = Vec<Happens>> {
        let one =
            (0..processes, proptest::option::of(0..processes), 0u64..8).prop_map(|(process, from, after_ms)| Happens { process, from, after_ms });
        proptest::collection::vec(one, 1..60)
    }

    /// Every event's reading, and its vector clock: whatever that says is what happened before.
    fn run(processes: u32, epsilon: Epsilon, skews: &[u64], execution: &[Happens]) -> Vec<(HybridVector, Vec<u64>)> {
        let mut clocks: Vec<HybridVector> = (0..processes).map(|process| HybridVector::new(process, processes, epsilon)).collect();
        let mut vectors = vec![vec![0u64; processes as usize]; processes as usize];
        let mut events = Vec::new();
        let mut time = 1000;
        for happens in execution {
            time += happens.after_ms;
            let now = |process: u32| at(time + skews[process as usize]);
            let process = happens.process as usize;
            if let Some(from) = happens.from.filter(|from| *from != happens.process) {
                clocks[from as usize].tick(now(from));
                vectors[from as usize][from as usize] += 1;
                events.push((clocks[from as usize].clone(), vectors[from as usize].clone()));
                let (sent, told) = (clocks[from as usize].clone(), vectors[from as usize].clone());
                clocks[process].receive(now(happens.process), &sent);
                vectors[process].iter_mut().zip(&told).for_each(|(own, told)| *own = (*own).max(*told));
            } else {
                clocks[process].tick(now(happens.process));
            }
            vectors[process][process] += 1;
            events.push((clocks[process].clone(), vectors[process].clone()));
        }
        events
    }

    fn happened_before(one: &[u64], other: &[u64]) -> bool {
        one != other && one.iter().zip(other).all(|(one, other)| one <= other)
    }

    proptest! {
        #[test]
        fn what_happens_before_is_less(execution in executions(5), epsilon_ms in 0u64..40, skews in proptest::collection::vec(0u64..60, 5)) {
            // If clocks are further apart than ε, no two events are in the wrong order.
            let events = run(5, Epsilon::Millis(epsilon_ms), &skews, &execution);
            for (place, (f, f_vector)) in events.iter().enumerate() {
                for (e, e_vector) in &events[..place] {
                    let connected = happened_before(e_vector, f_vector);
                    let apart = skews.iter().max().unwrap() - skews.iter().min().unwrap();
                    if connected && apart <= epsilon_ms {
                        prop_assert!(e.is_less(f), "{e:?} happened before {f:?}");
                    }
                    prop_assert!(!connected || !f.is_less(e));
                }
            }
        }

        #[test]
        fn with_epsilon_infinite_it_is_a_vector_clock(execution in executions(5), skews in proptest::collection::vec(0u64..1000, 5)) {
            let events = run(5, Epsilon::Infinite, &skews, &execution);
            for (e, e_vector) in &events {
                for (f, f_vector) in &events {
                    prop_assert_eq!(e.is_less(f), happened_before(e_vector, f_vector));
                }
            }
        }

        #[test]
        fn no_entry_is_below_the_own_less_epsilon(execution in executions(4), epsilon_ms in 0u64..40, skews in proptest::collection::vec(0u64..40, 4)) {
            for (reading, _) in run(4, Epsilon::Millis(epsilon_ms), &skews, &execution) {
                for process in 0..4 {
                    prop_assert!(reading.get(process) >= Epsilon::Millis(epsilon_ms).before(reading.at()));
                }
                let mut bytes = Vec::new();
                reading.encode(&mut bytes);
                let mut rest = bytes.as_slice();
                prop_assert_eq!(HybridVector::decode(&mut rest), Ok(reading));
                prop_assert!(rest.is_empty());
            }
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..60), small in 0u8..10) {
            let _ = HybridVector::decode(&mut bytes.as_slice());
            let _ = HybridVector::decode(&mut [&[small / 2, small, small], bytes.as_slice()].concat().as_slice());
        }
    }

    #[test]
    fn clocks_exactly_epsilon_apart_keep_the_order() {
        let happens = Happens { process: 4, from: Some(3), after_ms: 0 };
        let events = run(5, Epsilon::Millis(29), &[17, 17, 17, 46, 17], &[happens]);
        assert!(events[0].0.is_less(&events[1].0), "{events:?}");
    }

    #[test]
    fn the_papers_example_takes_a_bit_for_each_and_three_entries() {
        let mut clock = HybridVector::new(0, 10, Epsilon::Millis(20));
        clock.learn(3, at(95));
        clock.learn(6, at(100));
        clock.learn(7, at(80));
        clock.tick(at(100));
        assert_eq!((0..10).map(|process| clock.get(process).millis()).collect::<Vec<_>>(), [100, 80, 80, 95, 80, 80, 100, 80, 80, 80]);
        let mut bytes = Vec::new();
        clock.encode(&mut bytes);
        assert_eq!(bytes[12..14], [0b0100_1000, 0], "what is the default has no bit");
        assert_eq!(bytes.len(), 3 + 8 + 1 + 2 + 3 + 1);
    }

    #[test]
    fn what_no_clock_writes_is_refused() {
        let mut clock = HybridVector::new(1, 3, Epsilon::Millis(20));
        clock.learn(2, at(95));
        clock.tick(at(100));
        let mut bytes = Vec::new();
        clock.encode(&mut bytes);
        let refused = |bytes: &[u8]| HybridVector::decode(&mut &*bytes).unwrap_err().why();
        for length in 0..bytes.len() {
            assert_eq!(refused(&bytes[..length]), "it is cut short");
        }
        let with = |place: usize, byte: u8| {
            let mut bytes = bytes.clone();
            bytes[place] = byte;
            bytes
        };
        assert_eq!(refused(&with(0, 3)), "it is of none of its processes");
        assert_eq!(refused(&with(12, 0b1000)), "an entry of nobody else");
        assert_eq!(refused(&with(12, 0b0010)), "an entry of nobody else");
        assert_eq!(refused(&[0, 0x81, 0x80, 4, 1]), "too many processes");
        // 21 ms behind, where ε is 20 ms.
        let mut below = bytes[..13].to_vec();
        put_varint(21 << 17, &mut below);
        assert_eq!(refused(&below), "an entry out of range");
        assert_eq!(refused(&[0xFF; 20]), "a number over 64 bits");
    }

    /// Reading of process `process` of 3 at `millis`, that knows of the others' times.
    fn reading(process: u32, millis: u64, epsilon: Epsilon, knows: &[(u32, u64)]) -> HybridVector {
        let mut clock = HybridVector::new(process, 3, epsilon);
        knows.iter().for_each(|(other, millis)| clock.learn(*other, at(*millis)));
        clock.tick(at(millis));
        clock
    }

    #[test]
    fn the_three_cases() {
        let epsilon = Epsilon::Millis(10);
        let of = |process, millis, knows: &[(u32, u64)]| reading(process, millis, epsilon, knows);
        let (start, end) = (of(0, 100, &[]), of(0, 200, &[]));
        let first = (&start, Some(&end));
        let relation = |second: &HybridVector| (relate(first, (second, None)), relate((second, None), first));
        // The second begins while the first lasts, and where nobody told it of the first's end.
        assert_eq!(relation(&of(1, 150, &[])), (Relation::Concurrent, Relation::Concurrent));
        assert_eq!(relation(&of(1, 205, &[])), (Relation::Concurrent, Relation::Concurrent));
        assert_eq!(relation(&of(1, 209, &[(0, 199)])), (Relation::Concurrent, Relation::Concurrent));
        // By the clocks alone: exactly ε later is later.
        assert_eq!(relation(&of(1, 210, &[])), (Relation::Before, Relation::After));
        // By messages alone.
        assert_eq!(relation(&of(1, 205, &[(0, 200)])), (Relation::Uncertain, Relation::Uncertain));
        // One process is in its own order.
        assert_eq!(relation(&of(0, 200, &[])), (Relation::Before, Relation::After));
        assert_eq!(relation(&of(0, 199, &[])), (Relation::Concurrent, Relation::Concurrent));
        assert_eq!(relate((&start, None), (&of(1, 100_000, &[]), None)), Relation::Concurrent, "it has not ended");
    }

    #[test]
    fn with_epsilon_infinite_messages_alone_decide() {
        let of = |process, millis, knows: &[(u32, u64)]| reading(process, millis, Epsilon::Infinite, knows);
        let (start, end) = (of(0, 100, &[]), of(0, 200, &[]));
        assert_eq!(relate((&start, Some(&end)), (&of(1, 9000, &[]), None)), Relation::Concurrent);
        assert_eq!(relate((&start, Some(&end)), (&of(1, 50, &[(0, 200)]), None)), Relation::Before);
    }
}
