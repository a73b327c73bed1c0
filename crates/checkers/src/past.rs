//! The causal past of every event: happens-before of Definition 8, with session tokens handed over.

use crate::history::{Action, Event, EventId, KeyId, Outcome};
use crate::verdict::{Promise, Violation};
use crate::written::{Index, Known, Rank};
use rheostat_core::dial::Level;
use rheostat_core::version::VersionId;
use std::collections::VecDeque;

/// Above this many (events × keys) a history is refused: a table of its pasts would take more than a gigabyte.
const MAX_CELLS: usize = 1 << 28;

/// Which operations count: what a session remembers at which levels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Memory {
    /// Those of level causal and stronger: the causal order.
    Causal,
    /// Those of every level but eventual: what session guarantees speak of.
    Session,
}

impl Memory {
    fn counts(self, event: &Event) -> bool {
        match self {
            Memory::Causal => event.is_at(Level::Causal),
            Memory::Session => event.level().is_some_and(|level| level != Level::Eventual),
        }
    }

    /// Whether `event` read something that counts.
    pub(crate) fn reads(self, event: &Event) -> bool {
        event.has_read() && self.counts(event)
    }

    /// Whether `event` wrote something that counts, for certain or perhaps.
    pub(crate) fn writes(self, event: &Event) -> bool {
        !event.items().is_empty() && self.counts(event)
    }

    /// Whether the session remembers `event` from here on. Not so for what does not count, for what failed, and for writes without a reply: a
    /// session that never heard of its write need not see it.
    pub(crate) fn remembers(self, event: &Event) -> bool {
        event.outcome == Outcome::Adopted || event.outcome != Outcome::Unknown && (self.reads(event) || self.writes(event))
    }
}

/// Why one event happens before another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Edge {
    /// It is the one before in its session.
    Session,
    /// The session took over its token.
    Adopted,
    /// It wrote what was read of this key.
    Read(KeyId),
}

/// For each event, the greatest version of each key among what happened before it, itself included, of the operations that count.
///
/// A version that may be lost is left out: nobody can be required to see it. What it depends on is not.
pub(crate) struct CausalPast<'i, 'h> {
    pub(crate) index: &'i Index<'h>,
    memory: Memory,
    /// The events that the order speaks of, causes first.
    order: Vec<EventId>,
    predecessors: Vec<Vec<(EventId, Edge)>>,
    table: Vec<Rank>,
    /// The greatest version in each event's past, itself included, lost or not.
    greatest: Vec<Option<(VersionId, KeyId)>>,
}

impl<'i, 'h> CausalPast<'i, 'h> {
    /// # Errors
    ///
    /// Happens-before has a cycle; the history is too large.
    pub(crate) fn of(index: &'i Index<'h>, memory: Memory) -> Result<CausalPast<'i, 'h>, Violation> {
        let history = index.history;
        let cells = history.events.len().saturating_mul(history.keys.len());
        if cells > MAX_CELLS {
            return Err(Violation::malformed(format!("{} events on {} keys are too many", history.events.len(), history.keys.len())));
        }
        let predecessors = predecessors(index, memory);
        let order = causes_first(index, memory, &predecessors)?;
        let greatest = vec![None; history.events.len()];
        let mut past = CausalPast { index, memory, order, predecessors, table: Vec::new(), greatest };
        past.table = past.collect(|_| true, |past, event, row, _| past.note_own(event, row));
        for place in 0..past.order.len() {
            let event = past.order[place];
            past.greatest[event.index()] = past.greatest_before(event).max(past.greatest_own(event));
        }
        Ok(past)
    }

    /// The events that the order speaks of, causes first.
    pub(crate) fn order(&self) -> &[EventId] {
        &self.order
    }

    /// What the session of `event` remembers when it begins `event`, as a row of `table`; empty at a session's beginning.
    pub(crate) fn before<'t>(&self, event: EventId, table: &'t [Rank]) -> &'t [Rank] {
        match self.predecessors[event.index()].first() {
            Some((before, Edge::Session)) => self.row(*before, table),
            _ => &[],
        }
    }

    /// The row of `event` in `table`.
    pub(crate) fn row<'t>(&self, event: EventId, table: &'t [Rank]) -> &'t [Rank] {
        let width = self.index.history.keys.len();
        &table[event.index() * width..][..width]
    }

    /// The table of causal pasts.
    pub(crate) fn table(&self) -> &[Rank] {
        &self.table
    }

    /// A table with a row per event: the maximum of the rows of its predecessors along `edges`, raised by `own`, which also
    /// gets the table so far.
    pub(crate) fn collect(&self, edges: impl Fn(Edge) -> bool, own: impl Fn(&Self, EventId, &mut [Rank], &[Rank])) -> Vec<Rank> {
        let width = self.index.history.keys.len();
        let mut table = vec![0; self.index.history.events.len() * width];
        let mut row = vec![0; width];
        for event in &self.order {
            row.fill(0);
            for (before, edge) in &self.predecessors[event.index()] {
                if edges(*edge) {
                    join(&mut row, self.row(*before, &table));
                }
            }
            own(self, *event, &mut row, &table);
            table[event.index() * width..][..width].copy_from_slice(&row);
        }
        table
    }

    /// Raises `row` by what `event` itself wrote and read.
    fn note_own(&self, event: EventId, row: &mut [Rank]) {
        self.note_writes(event, row);
        self.note_reads(event, row);
    }

    /// Raises `row` by what `event` wrote.
    pub(crate) fn note_writes(&self, event: EventId, row: &mut [Rank]) {
        let Some(version) = self.index.version_of(event) else { return };
        let record = self.index.history.event(event);
        for item in record.items().iter().filter(|_| self.memory.writes(record)) {
            self.raise(row, item.key, self.index.rank(item.key, version));
        }
    }

    /// Raises `row` by what `event` read.
    pub(crate) fn note_reads(&self, event: EventId, row: &mut [Rank]) {
        let event = self.index.history.event(event);
        if self.memory.reads(event) {
            for (key, observed) in event.observations() {
                self.raise(row, key, self.index.resolve(key, observed).rank);
            }
        }
    }

    fn raise(&self, row: &mut [Rank], key: KeyId, rank: Option<Rank>) {
        let Some(rank) = rank else { return };
        if self.index.ranked(key, rank).is_some_and(|known| !known.lost_allowed) {
            row[key.index()] = row[key.index()].max(rank);
        }
    }

    /// The writes that `event` reads from, with the key.
    pub(crate) fn reads_from(&self, event: EventId) -> impl Iterator<Item = (EventId, KeyId)> + '_ {
        self.predecessors[event.index()].iter().filter_map(|(write, edge)| match edge {
            Edge::Read(key) => Some((*write, *key)),
            _ => None,
        })
    }

    /// The greatest version of any key in what happened before `event`, lost or not.
    pub(crate) fn greatest_before(&self, event: EventId) -> Option<(VersionId, KeyId)> {
        self.predecessors[event.index()].iter().filter_map(|(before, _)| self.greatest[before.index()]).max()
    }

    fn greatest_own(&self, event: EventId) -> Option<(VersionId, KeyId)> {
        let record = self.index.history.event(event);
        let version = self.index.version_of(event);
        let written = record.items().iter().filter(|_| self.memory.writes(record)).filter_map(|item| Some((version?, item.key)));
        let id = |key, observed| Some((self.index.ranked(key, self.index.resolve(key, observed).rank?)?.id, key));
        let read = record.observations().filter(|_| self.memory.reads(record)).filter_map(|(key, observed)| id(key, observed));
        written.chain(read).max()
    }

    /// The shortest chain of events that brings version `rank` of `key` into the past of `event`, causes first, `event`
    /// last, along `edges`. The first event wrote or read the version.
    pub(crate) fn chain(&self, event: EventId, key: KeyId, rank: Rank, edges: impl Fn(EventId, Edge) -> bool) -> Vec<(EventId, String)> {
        let mut came_from: Vec<Option<(EventId, Edge)>> = vec![None; self.predecessors.len()];
        let mut waiting = VecDeque::from([event]);
        let mut found = None;
        'search: while let Some(here) = waiting.pop_front() {
            for (before, edge) in &self.predecessors[here.index()] {
                if *before == event || came_from[before.index()].is_some() || !edges(here, *edge) {
                    continue;
                }
                came_from[before.index()] = Some((here, *edge));
                if let Some(why) = self.touches(*before, key, rank) {
                    found = Some((*before, why));
                    break 'search;
                }
                waiting.push_back(*before);
            }
        }
        let Some((mut here, why)) = found else { return vec![(event, String::new())] };
        let mut chain = vec![(here, why)];
        while let Some((next, edge)) = came_from[here.index()] {
            chain.push((next, self.explain(here, edge)));
            here = next;
            if here == event {
                break;
            }
        }
        chain
    }

    fn touches(&self, event: EventId, key: KeyId, rank: Rank) -> Option<String> {
        let record = self.index.history.event(event);
        let known = self.index.ranked(key, rank)?;
        let is_it = |observed| self.index.resolve(key, observed).rank == Some(rank);
        if known.writer == Some(event) {
            Some(format!("writes {}", self.index.describe(key, rank)))
        } else if self.memory.reads(record) && record.observations().any(|(of, observed)| of == key && is_it(observed)) {
            Some(format!("reads {}", self.index.describe(key, rank)))
        } else {
            None
        }
    }

    fn explain(&self, before: EventId, edge: Edge) -> String {
        match edge {
            Edge::Session => format!("after {before} in its session"),
            Edge::Adopted => format!("takes over the token after {before}"),
            Edge::Read(key) => format!("reads {} from {before}", self.index.history.key_name(key)),
        }
    }
}

fn join(row: &mut [Rank], other: &[Rank]) {
    for (mine, theirs) in row.iter_mut().zip(other) {
        *mine = (*mine).max(*theirs);
    }
}

/// For each event that the order speaks of, its direct causes; the session's comes first.
fn predecessors(index: &Index<'_>, memory: Memory) -> Vec<Vec<(EventId, Edge)>> {
    let history = index.history;
    let mut last = std::collections::BTreeMap::new();
    let mut predecessors = vec![Vec::new(); history.events.len()];
    // What a session's token holds after each event: the last remembered event up to it.
    let mut token_after: Vec<Option<EventId>> = vec![None; history.events.len()];
    for (id, event) in history.numbered() {
        let before: Option<EventId> = last.get(&event.session).copied();
        let causes: &mut Vec<(EventId, Edge)> = &mut predecessors[id.index()];
        token_after[id.index()] = before;
        let remembered = memory.remembers(event);
        let unknown_put = event.outcome == Outcome::Unknown && memory.writes(event);
        if !remembered && !unknown_put {
            continue;
        }
        causes.extend(before.map(|before| (before, Edge::Session)));
        if let Action::Adopt { from } = &event.action {
            causes.extend(from.iter().filter_map(|from| Some((token_after[from.index()]?, Edge::Adopted))));
        }
        if memory.reads(event) {
            causes.extend(event.observations().filter_map(|(key, observed)| Some((index.resolve(key, observed).writer?, Edge::Read(key)))));
        }
        if remembered {
            last.insert(event.session, id);
            token_after[id.index()] = Some(id);
        }
    }
    predecessors
}

/// The events that the order speaks of, causes first, else in the order of the history.
fn causes_first(index: &Index<'_>, memory: Memory, predecessors: &[Vec<(EventId, Edge)>]) -> Result<Vec<EventId>, Violation> {
    let history = index.history;
    let mut missing: Vec<usize> = predecessors.iter().map(Vec::len).collect();
    let mut effects: Vec<Vec<EventId>> = vec![Vec::new(); predecessors.len()];
    for (id, _) in history.numbered() {
        for (before, _) in &predecessors[id.index()] {
            effects[before.index()].push(id);
        }
    }
    // A write that does not count can still be read from.
    let speaks_of = |id: EventId| memory.remembers(history.event(id)) || !history.event(id).items().is_empty();
    let wanted: Vec<EventId> = history.numbered().map(|(id, _)| id).filter(|id| speaks_of(*id)).collect();
    let mut ready: VecDeque<EventId> = wanted.iter().copied().filter(|id| missing[id.index()] == 0).collect();
    let mut order = Vec::with_capacity(wanted.len());
    while let Some(event) = ready.pop_front() {
        order.push(event);
        for effect in &effects[event.index()] {
            missing[effect.index()] -= 1;
            if missing[effect.index()] == 0 {
                ready.push_back(*effect);
            }
        }
    }
    if order.len() == wanted.len() {
        return Ok(order);
    }
    // Going from a leftover event to a leftover cause, again and again, must come back to where it was.
    let is_left = |id: &EventId| missing[id.index()] > 0;
    let mut walk: Vec<EventId> = wanted.iter().copied().filter(is_left).take(1).collect();
    while let Some(cause) = walk.last().and_then(|here| predecessors[here.index()].iter().map(|(before, _)| *before).find(is_left)) {
        if let Some(start) = walk.iter().position(|seen| *seen == cause) {
            walk.drain(..start);
            break;
        }
        walk.push(cause);
    }
    walk.reverse();
    let trace = walk.iter().map(|event| (*event, "in the cycle".to_owned())).collect();
    let what = "each of these events happens before the next, and the last before the first".to_owned();
    Err(Violation::new(history, Promise::Causal, "Definition 8: happens-before is an order", what, trace))
}

/// Whether a known version deletes its key.
pub(crate) fn is_delete(known: Option<&Known>) -> bool {
    known.is_some_and(|known| known.value.is_none())
}
