//! The search for an order of operations on one register: Wing and Gong's, with Lowe's memory of what was tried in vain.
//!
//! A configuration is which operations have been put in order and which write was the last. From it, an operation may come next if
//! nothing that is not yet in order had ended before it began, and if it fits: it finds the register as it said. A configuration that was
//! reached before, by another order of the same operations, is not tried again.
//!
//! Written values are unique, so most of what an operation found names the write before it. Four rules use that; none loses an order:
//!
//! - What only looks and fits is put in order at once: it changes nothing and delays nobody.
//! - Nothing may be written over a write that somebody is still to find.
//! - A write that nobody finds is put directly before another write that depends on nothing. If such writes may come next, all do, and only what
//!   depends on the register as it is now is tried instead.
//! - A write that need not have happened is put in order only directly before an operation that finds it.

use std::collections::BTreeSet;

/// What an operation found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Need {
    /// It did not look, or did not say.
    Nothing,
    /// What this operation wrote; an index into the operations.
    Write(usize),
    /// No value.
    Absent,
    /// Some value.
    Present,
    /// Anything but what this operation wrote.
    Not(usize),
    /// What this operation wrote, or no value.
    AbsentOr(usize),
}

/// What an operation did to the register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Effect {
    /// Nothing.
    None,
    /// Wrote a value.
    Value,
    /// Deleted the value.
    Delete,
}

/// One operation on the register.
#[derive(Clone, Debug)]
pub(crate) struct Op {
    /// When it began.
    pub(crate) from_us: u64,
    /// When it had happened; `None` if it need never have.
    pub(crate) until_us: Option<u64>,
    /// Its session; operations of one session that must have happened follow each other as they stand in the list.
    pub(crate) session: u64,
    /// What it found. An operation that need never have happened has no effect unless it finds that.
    pub(crate) need: Need,
    /// What it did.
    pub(crate) effect: Effect,
}

/// What came of the search.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Found {
    /// There is an order.
    Order,
    /// There is none.
    None,
    /// The limit was reached.
    Undecided,
}

/// Words of memory for the configurations that were tried, about.
const WORDS: usize = 1 << 24;

/// A set of operations.
type Set = Vec<u64>;

/// The write that came last; `None` at the beginning, when there is no value.
type Last = Option<usize>;

/// One step into the search.
struct Frame {
    /// What may come next, each in this order, and how many of these have been tried.
    moves: Vec<Vec<usize>>,
    tried: usize,
    /// What was put in order on the way here.
    taken: Vec<usize>,
    /// The write that came last before that, whether it had still to be found, and the first that was not in order.
    before: (Last, bool, usize),
}

struct Search<'o> {
    ops: &'o [Op],
    /// Operations that must have happened, by when they began; and those that need not have.
    required: Vec<usize>,
    optional: Vec<bool>,
    /// Of the latter, those that write a value, and those that delete.
    values: Vec<usize>,
    deletes: Vec<usize>,
    /// For each operation, the one of its session that must have happened before it.
    after: Vec<Option<usize>>,
    /// For each write, how many operations that must have happened find it and are not in order yet.
    finders: Vec<u32>,
    /// Whether something finds this write in particular.
    found: Vec<bool>,
    /// Writes that nothing finds or could find.
    unseen: Vec<bool>,
    /// For each write, when the first that finds it had happened, or itself: the sooner, the more urgent.
    urgency: Vec<u64>,
    taken: Set,
    left: usize,
    /// All of `required` before this place are in order.
    first: usize,
    last: Last,
    /// Whether `last` need not have happened and nobody has found it yet.
    owed: bool,
    tried: BTreeSet<(usize, Set, Last, bool)>,
    /// Words that `tried` holds, about.
    words: usize,
}

/// Whether `ops`, as they stand in the history, can be put in an order in which each finds the register as it said, and none comes before one that
/// had ended when it began. At most `limit` configurations are tried, or as many as there is room for.
pub(crate) fn search(ops: &[Op], limit: usize) -> Found {
    let mut search = Search::new(ops);
    let mut frames: Vec<Frame> = Vec::new();
    let Some(frame) = search.enter(&[]) else { return if search.left == 0 { Found::Order } else { Found::None } };
    frames.push(frame);
    while let Some(frame) = frames.last_mut() {
        let Some(next) = frame.moves.get(frame.tried).cloned() else {
            search.leave(frame);
            frames.pop();
            continue;
        };
        frame.tried += 1;
        if search.tried.len() >= limit || search.words >= WORDS {
            return Found::Undecided;
        }
        if let Some(frame) = search.enter(&next) {
            frames.push(frame);
        } else if search.left == 0 {
            return Found::Order;
        }
    }
    Found::None
}

impl<'o> Search<'o> {
    fn new(ops: &'o [Op]) -> Search<'o> {
        let mut required: Vec<usize> = (0..ops.len()).filter(|op| ops[*op].until_us.is_some()).collect();
        required.sort_by_key(|op| (ops[*op].from_us, *op));
        let mut last_of = std::collections::BTreeMap::new();
        let mut after = vec![None; ops.len()];
        let mut finders = vec![0; ops.len()];
        let mut found = vec![false; ops.len()];
        let mut urgency: Vec<u64> = ops.iter().map(|op| op.until_us.unwrap_or(u64::MAX)).collect();
        for (place, op) in ops.iter().enumerate() {
            after[place] = last_of.get(&op.session).copied();
            if op.until_us.is_some() {
                last_of.insert(op.session, place);
            }
            if let Need::Write(write) = op.need {
                found[write] = true;
                finders[write] += u32::from(op.until_us.is_some());
                urgency[write] = urgency[write].min(op.until_us.unwrap_or(u64::MAX));
            }
            if let Need::AbsentOr(write) = op.need {
                found[write] = true;
            }
        }
        let has = |wanted: fn(&Need) -> bool| ops.iter().any(|op| wanted(&op.need));
        let vague = has(|need| matches!(need, Need::Present | Need::Not(_)));
        let absent = has(|need| matches!(need, Need::Absent | Need::AbsentOr(_)));
        let is_unseen = |place: usize| match ops[place].effect {
            Effect::None => false,
            Effect::Value => !found[place] && !vague,
            Effect::Delete => !found[place] && !vague && !absent,
        };
        let unseen: Vec<bool> = (0..ops.len()).map(is_unseen).collect();
        // One that need not have happened and that nothing finds makes no difference.
        let makes_difference = |op: usize| ops[op].until_us.is_none() && ops[op].effect != Effect::None && !unseen[op];
        let optional: Vec<bool> = (0..ops.len()).map(makes_difference).collect();
        let those = |effect: Effect| (0..ops.len()).filter(|op| optional[*op] && ops[*op].effect == effect).collect();
        let (values, deletes) = (those(Effect::Value), those(Effect::Delete));
        let unseen = (0..ops.len()).map(|op| unseen[op] && ops[op].need == Need::Nothing).collect();
        let left = required.len();
        let taken = vec![0; ops.len().div_ceil(64)];
        let (tried, words) = (BTreeSet::new(), 0);
        Search {
            ops,
            required,
            optional,
            values,
            deletes,
            after,
            finders,
            found,
            unseen,
            urgency,
            taken,
            left,
            first: 0,
            last: None,
            owed: false,
            tried,
            words,
        }
    }

    fn is_taken(&self, op: usize) -> bool {
        self.taken[op / 64] & 1 << (op % 64) != 0
    }

    fn fits(&self, op: usize) -> bool {
        fits(self.ops, self.ops[op].need, self.last)
    }

    /// The operations that must have happened and may come next, in time's regard, and until when an operation must have begun for that.
    fn candidates(&self) -> (Vec<usize>, u64) {
        let mut until = u64::MAX;
        let mut candidates = Vec::new();
        for op in &self.required[self.first..] {
            if self.ops[*op].from_us > until {
                break;
            }
            if !self.is_taken(*op) {
                until = until.min(self.ops[*op].until_us.unwrap_or(u64::MAX));
                candidates.push(*op);
            }
        }
        candidates.retain(|op| self.is_free(*op, until));
        (candidates, until)
    }

    fn is_free(&self, op: usize, until: u64) -> bool {
        self.ops[op].from_us <= until && self.after[op].is_none_or(|before| self.is_taken(before))
    }

    fn take(&mut self, op: usize) {
        self.taken[op / 64] |= 1 << (op % 64);
        let Op { until_us, need, effect, .. } = self.ops[op];
        if until_us.is_some() {
            self.left -= 1;
            if let Need::Write(write) = need {
                self.finders[write] -= 1;
            }
        }
        while self.required.get(self.first).is_some_and(|op| self.is_taken(*op)) {
            self.first += 1;
        }
        if effect != Effect::None {
            self.last = Some(op);
            self.owed = until_us.is_none();
        } else {
            self.owed = false;
        }
    }

    /// Takes `next` and whatever only looks and fits. `None` if everything is in order then, or nothing can come of it; then nothing but the
    /// count of what is left in the first case has changed.
    fn enter(&mut self, next: &[usize]) -> Option<Frame> {
        let before = (self.last, self.owed, self.first);
        let mut taken = next.to_vec();
        next.iter().for_each(|op| self.take(*op));
        loop {
            let (candidates, _) = self.candidates();
            let looking: Vec<usize> = candidates.into_iter().filter(|op| self.ops[*op].effect == Effect::None && self.fits(*op)).collect();
            if looking.is_empty() {
                break;
            }
            looking.iter().for_each(|op| self.take(*op));
            taken.extend(looking);
        }
        if self.left == 0 {
            return None;
        }
        let frame = Frame { moves: Vec::new(), tried: 0, taken, before };
        let configuration = self.configuration();
        let words = configuration.1.len() + 8;
        let is_new = self.tried.insert(configuration);
        self.words += if is_new { words } else { 0 };
        let moves = if is_new { self.moves() } else { Vec::new() };
        if moves.is_empty() {
            self.leave(&frame);
            return None;
        }
        Some(Frame { moves, ..frame })
    }

    fn leave(&mut self, frame: &Frame) {
        for op in &frame.taken {
            self.taken[op / 64] &= !(1 << (op % 64));
            if self.ops[*op].until_us.is_some() {
                self.left += 1;
                if let Need::Write(write) = self.ops[*op].need {
                    self.finders[write] += 1;
                }
            }
        }
        (self.last, self.owed, self.first) = frame.before;
    }

    /// Where it stands, in few bytes: what begins with only taken operations is said by its length.
    fn configuration(&self) -> (usize, Set, Last, bool) {
        let full = self.taken.iter().take_while(|word| **word == u64::MAX).count();
        let end = self.taken.iter().rposition(|word| *word != 0).map_or(full, |place| place + 1);
        (full, self.taken[full..end.max(full)].to_vec(), self.last, self.owed)
    }

    /// The operations that need not have happened, may come next in time's regard, and without which a candidate does not fit; and those without
    /// which those do not.
    fn wanted(&self, candidates: &[usize], until: u64) -> Vec<usize> {
        let mut wanted: Vec<usize> = Vec::new();
        let mut open = candidates.to_vec();
        while let Some(op) = open.pop() {
            let need = self.ops[op].need;
            if self.fits(op) {
                continue;
            }
            let (one, values, deletes): (&[usize], &[usize], &[usize]) = match &need {
                Need::Nothing => (&[], &[], &[]),
                Need::Write(write) => (std::slice::from_ref(write), &[], &[]),
                Need::Absent => (&[], &[], &self.deletes),
                Need::AbsentOr(write) => (std::slice::from_ref(write), &[], &self.deletes),
                Need::Present => (&[], &self.values, &[]),
                Need::Not(_) => (&[], &self.values, &self.deletes),
            };
            let may_come = |write: &usize| self.optional[*write] && !self.is_taken(*write) && self.is_free(*write, until);
            for writes in [one, values, deletes] {
                // Of those that nobody finds in particular and that depend on nothing, one is as good as another.
                let mut any_other = false;
                for write in writes.iter().copied().filter(may_come) {
                    let is_any = !self.found[write] && self.ops[write].need == Need::Nothing;
                    if !(is_any && any_other || wanted.contains(&write)) {
                        wanted.push(write);
                        open.push(write);
                    }
                    any_other |= is_any;
                }
            }
        }
        wanted
    }

    /// What may come next.
    fn moves(&self) -> Vec<Vec<usize>> {
        let (candidates, until) = self.candidates();
        let writes = candidates.iter().copied().filter(|op| self.ops[*op].effect != Effect::None && self.fits(*op));
        let (mut unseen, mut writes): (Vec<usize>, Vec<usize>) = writes.partition(|op| self.unseen[*op]);
        let finders = self.last.map_or(0, |last| self.finders[last]);
        if finders > 0 {
            // Only the last that finds it may write over it.
            writes.retain(|op| finders == 1 && Some(self.ops[*op].need) == self.last.map(Need::Write));
            unseen.clear();
        }
        let depends = |op: &usize| self.ops[*op].need != Need::Nothing;
        if self.owed || !unseen.is_empty() {
            writes.retain(depends);
        }
        if finders == 0 {
            let may_come = !self.owed && unseen.is_empty();
            let wanted = self.wanted(&candidates, until);
            writes.extend(wanted.into_iter().filter(|op| self.fits(*op) && (may_come || depends(op))));
        }
        writes.sort_by_key(|op| self.urgency[*op]);
        let mut moves: Vec<Vec<usize>> = writes.into_iter().map(|op| vec![op]).collect();
        if !unseen.is_empty() && !self.owed {
            moves.push(unseen);
        }
        moves
    }
}

/// Whether an operation that needs `need` fits when `last` came last.
fn fits(ops: &[Op], need: Need, last: Last) -> bool {
    let present = last.is_some_and(|last| ops[last].effect == Effect::Value);
    match need {
        Need::Nothing => true,
        Need::Write(write) => last == Some(write),
        Need::Absent => !present,
        Need::AbsentOr(write) => !present || last == Some(write),
        Need::Present => present,
        Need::Not(write) => last != Some(write),
    }
}
