//! Receipts against each other: what no store can have said that keeps its promises.
//!
//! What is relied on, and nothing else:
//! - *Session.* A statement that names the digest of an earlier one, and began with the session that the earlier one left, continues that session. It names what
//!   could not be known before, so it came later.
//! - *Causes.* What a session did comes after what it did before; a read comes after the write of the version that it returned.
//! - *Order.* The greater version of a key stands in the place of the smaller one, in every data center.
//!
//! What a statement at level eventual says binds nobody later, and is bound by nothing but its staleness bound. Missing receipts hide contradictions and make none.

use crate::digest::Digest;
use crate::statement::{Act, Receipt, Statement};
use rheostat_core::dial::{Guarantees, Level};
use rheostat_core::version::VersionId;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The most receipts that are compared at once.
pub const MOST_RECEIPTS: usize = 1_000_000;

/// The most that receipts may remember together: each how far it has seen of each session that it has seen anything of.
const MOST_SEEN: usize = 50_000_000;

/// A promise that was broken.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Broken {
    /// A session read an older version than it had read before.
    MonotonicReads,
    /// A session did not read what it had written.
    ReadYourWrites,
    /// An effect was seen without its cause.
    CauseBeforeEffect,
    /// A read lacked a write that its staleness bound covers.
    StalenessBound,
    /// A write was put in order before what its session had seen of the key.
    WritesInOrder,
    /// A session forgot what it had written.
    SessionForgot,
    /// A read returned what was written after it.
    FromTheFuture,
}

impl Broken {
    /// In words.
    pub const fn text(self) -> &'static str {
        match self {
            Broken::MonotonicReads => "monotonic reads: the session had read a newer version",
            Broken::ReadYourWrites => "read your writes: the session had written a newer version",
            Broken::CauseBeforeEffect => "no effect before its cause: a newer version was among what the read depends on",
            Broken::StalenessBound => "staleness bound: a newer version is old enough that the read must have had it",
            Broken::WritesInOrder => "writes in order: the session had seen a newer version than the one that it wrote",
            Broken::SessionForgot => "sessions do not forget: the session had written more before",
            Broken::FromTheFuture => "no effect before its cause: what was read was written after the read",
        }
    }
}

/// Two receipts that cannot both be true; the second is the one that should have known of the first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Contradiction {
    /// The promise.
    pub broken: Broken,
    /// The index of the earlier one.
    pub known: usize,
    /// The index of the later one.
    pub later: usize,
    /// Not if somebody has deleted the key in between, or it expired: the later one says that it had no version.
    pub unless_deleted: bool,
}

/// What came of a comparison.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Verdict {
    /// What contradicts what, in the order of the later receipts.
    pub contradictions: Vec<Contradiction>,
    /// Receipts that continue the session of another one.
    pub linked: usize,
    /// Reads whose write is among the receipts.
    pub caused: usize,
    /// Parts of sessions that hang together.
    pub chains: usize,
}

/// The receipts are too many to be compared.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TooMany(pub String);

impl fmt::Display for TooMany {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Where a key is: cluster, keyspace, digest.
type Place<'a> = (u64, &'a str, Digest);

/// How many receipts of which chains are seen, in the order of the chains.
#[derive(Clone, Default)]
struct Seen(Vec<(usize, u32)>);

impl Seen {
    fn raise(&mut self, chain: usize, number: u32) {
        match self.0.binary_search_by_key(&chain, |(known, _)| *known) {
            Ok(index) => self.0[index].1 = self.0[index].1.max(number),
            Err(index) => self.0.insert(index, (chain, number)),
        }
    }

    fn join(&mut self, other: &Seen) {
        if other.0.len() <= 4 {
            other.0.iter().for_each(|(chain, number)| self.raise(*chain, *number));
            return;
        }
        let mut all = std::mem::take(&mut self.0);
        all.extend_from_slice(&other.0);
        all.sort_unstable_by_key(|(chain, number)| (*chain, std::cmp::Reverse(*number)));
        all.dedup_by_key(|(chain, _)| *chain);
        self.0 = all;
    }
}

/// By place and chain.
type ByChain<'a> = BTreeMap<(Place<'a>, usize), Newest>;

/// Of one chain and key: for receipts in order, how many of the chain have been seen then, and the newest version up to there, with the receipt that says so.
#[derive(Default)]
struct Newest(Vec<(u32, VersionId, usize)>);

impl Newest {
    fn add(&mut self, seen: u32, version: VersionId, receipt: usize) {
        if self.0.last().is_none_or(|(_, newest, _)| version > *newest) {
            self.0.push((seen, version, receipt));
        }
    }

    /// Among the first `seen` of the chain.
    fn upto(&self, seen: u32) -> Option<(VersionId, usize)> {
        let end = self.0.partition_point(|(at, ..)| *at <= seen);
        self.0[..end].last().map(|(_, version, receipt)| (*version, *receipt))
    }
}

fn place(statement: &Statement) -> Place<'_> {
    (statement.cluster, &statement.keyspace, statement.key)
}

fn is_causal(level: Level) -> bool {
    level.implies(Level::Causal)
}

/// Whether a read at `level` promises `guarantee` of the session that it is part of.
fn promises(level: Level, guarantee: Guarantees) -> bool {
    match level {
        Level::Session(set) => set.has(guarantee),
        level => is_causal(level),
    }
}

struct Comparison<'a> {
    all: Vec<&'a Statement>,
    /// The receipt whose session each continues.
    parent: Vec<Option<usize>>,
    /// The write of what each read returned.
    write: Vec<Option<usize>>,
    chain: Vec<usize>,
    /// Its place in its chain, from 1.
    number: Vec<u32>,
    chains: usize,
    found: BTreeSet<Contradiction>,
}

/// Compares receipts that are all signed. The same one may be there several times.
///
/// # Errors
/// There are too many.
pub fn compare(receipts: &[Receipt]) -> Result<Verdict, TooMany> {
    if receipts.len() > MOST_RECEIPTS {
        return Err(TooMany(format!("{} receipts; at most {MOST_RECEIPTS} are compared", receipts.len())));
    }
    let all: Vec<&Statement> = receipts.iter().map(|receipt| &receipt.statement).collect();
    let mut first: BTreeMap<Digest, usize> = BTreeMap::new();
    let mut twin = vec![false; all.len()];
    for (index, statement) in all.iter().enumerate() {
        twin[index] = *first.entry(statement.digest()).or_insert(index) != index;
    }
    let mut written: BTreeMap<(Place<'_>, VersionId), usize> = BTreeMap::new();
    for (index, statement) in all.iter().enumerate().filter(|(index, statement)| !twin[*index] && statement.act == Act::Write) {
        if let Some(version) = statement.version {
            written.entry((place(statement), version)).or_insert(index);
        }
    }
    let continues = |statement: &Statement| {
        let parent = *first.get(&statement.previous?)?;
        let before = all[parent];
        (before.after == statement.before && (before.cluster, &before.keyspace) == (statement.cluster, &statement.keyspace)).then_some(parent)
    };
    let parent: Vec<Option<usize>> = all.iter().enumerate().map(|(index, one)| continues(one).filter(|_| !twin[index])).collect();
    let write_of = |index: usize, one: &Statement| {
        let write = *written.get(&(place(one), one.version?))?;
        (!twin[index] && one.act == Act::Read).then_some(write)
    };
    let write = all.iter().enumerate().map(|(index, one)| write_of(index, one)).collect();
    let mut comparison = Comparison { chain: vec![0; all.len()], number: vec![0; all.len()], chains: 0, found: BTreeSet::new(), parent, write, all };
    comparison.place_in_chains(&twin);
    comparison.follow(&twin)?;
    comparison.bounds(&twin);
    let Comparison { parent, write, chains, found, .. } = comparison;
    let mut contradictions: Vec<Contradiction> = found.into_iter().collect();
    contradictions.sort_by_key(|one| (one.later, one.known, one.broken));
    let some = |links: &[Option<usize>]| links.iter().flatten().count();
    Ok(Verdict { contradictions, linked: some(&parent), caused: some(&write), chains })
}

impl Comparison<'_> {
    fn report(&mut self, broken: Broken, known: usize, later: usize) {
        let unless_deleted = self.all[later].version.is_none();
        // What was deleted, or has expired, is gone some time.
        if unless_deleted && !self.all[known].lasting {
            return;
        }
        self.found.insert(Contradiction { broken, known, later, unless_deleted });
    }

    /// Gives each receipt a chain: its session's, as far as that did not fork.
    fn place_in_chains(&mut self, twin: &[bool]) {
        let mut child: Vec<Option<usize>> = vec![None; self.all.len()];
        let mut begins = Vec::new();
        for index in (0..self.all.len()).filter(|index| !twin[*index]) {
            match self.parent[index] {
                Some(parent) if child[parent].is_none() => child[parent] = Some(index),
                _ => begins.push(index),
            }
        }
        for begin in begins {
            let (mut at, mut number) = (Some(begin), 1);
            while let Some(index) = at {
                (self.chain[index], self.number[index]) = (self.chains, number);
                (at, number) = (child[index], number + 1);
            }
            self.chains += 1;
        }
    }

    /// Goes through the receipts, causes first.
    fn follow(&mut self, twin: &[bool]) -> Result<(), TooMany> {
        let (count, mut remembered) = (self.all.len(), 0);
        let cause = |index: usize, write: &[Option<usize>], all: &[&Statement]| {
            write[index].filter(|write| is_causal(all[index].level) && is_causal(all[*write].level))
        };
        let mut causes = vec![0; count];
        let mut effects: Vec<Vec<usize>> = vec![Vec::new(); count];
        for index in (0..count).filter(|index| !twin[*index]) {
            for before in [self.parent[index], cause(index, &self.write, &self.all)].into_iter().flatten() {
                causes[index] += 1;
                effects[before].push(index);
            }
        }
        let mut ready: Vec<usize> = (0..count).filter(|index| !twin[*index] && causes[*index] == 0).collect();
        let (mut session, mut causal): (Vec<Seen>, Vec<Seen>) = (vec![Seen::default(); count], vec![Seen::default(); count]);
        let (mut reads, mut writes, mut known): (ByChain<'_>, ByChain<'_>, ByChain<'_>) = Default::default();
        let all = self.all.clone();
        let mut done = vec![false; count];
        while let Some(index) = ready.pop() {
            done[index] = true;
            let (statement, chain, number) = (all[index], self.chain[index], self.number[index]);
            let at = place(statement);
            let mut of_session = self.parent[index].map_or_else(Seen::default, |parent| session[parent].clone());
            let mut of_causes = self.parent[index].map_or_else(Seen::default, |parent| causal[parent].clone());
            if let Some(write) = cause(index, &self.write, &all) {
                of_causes.join(&causal[write]);
            }
            let newest = |among: &ByChain<'_>, seen: &Seen| seen.0.iter().filter_map(|(chain, number)| among.get(&(at, *chain))?.upto(*number)).max();
            let older =
                |found: Option<(VersionId, usize)>| found.filter(|(version, _)| Some(*version) > statement.version).map(|(_, receipt)| receipt);
            match statement.act {
                Act::Read => {
                    let read = older(newest(&reads, &of_session)).filter(|_| promises(statement.level, Guarantees::MONOTONIC_READS));
                    let wrote = older(newest(&writes, &of_session)).filter(|_| promises(statement.level, Guarantees::READ_YOUR_WRITES));
                    let cause = older(newest(&known, &of_causes)).filter(|_| is_causal(statement.level) && read.is_none() && wrote.is_none());
                    for (broken, receipt) in [(Broken::MonotonicReads, read), (Broken::ReadYourWrites, wrote), (Broken::CauseBeforeEffect, cause)] {
                        if let Some(receipt) = receipt {
                            self.report(broken, receipt, index);
                        }
                    }
                }
                Act::Write if is_causal(statement.level) => {
                    if let Some(receipt) = older(newest(&known, &of_causes)) {
                        self.report(Broken::WritesInOrder, receipt, index);
                    }
                }
                Act::Write => {}
            }
            if let Some(parent) = self.parent[index] {
                let forgot = all[parent].past.entries().any(|(dc, written)| statement.past.get(dc) < written);
                if forgot && statement.level != Level::Eventual && all[parent].level != Level::Eventual {
                    self.report(Broken::SessionForgot, parent, index);
                }
            }
            if let Some(version) = statement.version.filter(|_| statement.level != Level::Eventual) {
                let of_act = if statement.act == Act::Read { &mut reads } else { &mut writes };
                of_act.entry((at, chain)).or_default().add(number, version, index);
                if is_causal(statement.level) {
                    known.entry((at, chain)).or_default().add(number, version, index);
                }
            }
            of_session.raise(chain, number);
            of_causes.raise(chain, number);
            remembered += of_session.0.len() + of_causes.0.len();
            if remembered > MOST_SEEN {
                return Err(TooMany(format!("{count} receipts, of sessions that have seen too much of each other; compare fewer at once")));
            }
            (session[index], causal[index]) = (of_session, of_causes);
            for effect in std::mem::take(&mut effects[index]) {
                causes[effect] -= 1;
                if causes[effect] == 0 {
                    ready.push(effect);
                }
            }
        }
        // What never got ready is among its own causes, or follows such.
        let left: Vec<usize> = (0..count).filter(|index| !twin[*index] && !done[*index]).collect();
        let circles = if left.is_empty() { Vec::new() } else { self.circles() };
        for index in left {
            if let Some(write) = cause(index, &self.write, &all).filter(|write| circles[*write] == circles[index]) {
                self.report(Broken::FromTheFuture, write, index);
            }
        }
        Ok(())
    }

    /// What each receipt comes after: the one whose session it continues, the write of what it read.
    fn before(&self, index: usize) -> impl Iterator<Item = usize> + use<> {
        [self.parent[index], self.write[index]].into_iter().flatten()
    }

    /// Numbers that are the same for receipts each of which comes after the other, and for no others: the strongly connected components, by Tarjan's algorithm.
    fn circles(&self) -> Vec<usize> {
        let count = self.all.len();
        // When it was met, the first that is met from it and is in no circle yet, and its circle, each from 1.
        let (mut met, mut first, mut circle) = (vec![0; count], vec![0; count], vec![0; count]);
        let (mut met_last, mut last_circle) = (0, 0);
        let (mut in_none, mut under_way) = (Vec::new(), Vec::new());
        for begin in 0..count {
            if met[begin] == 0 {
                under_way.push((begin, 0));
            }
            while let Some((index, looked_at)) = under_way.pop() {
                if looked_at == 0 {
                    met_last += 1;
                    (met[index], first[index]) = (met_last, met_last);
                    in_none.push(index);
                }
                if let Some(earlier) = self.before(index).nth(looked_at) {
                    under_way.push((index, looked_at + 1));
                    if met[earlier] == 0 {
                        under_way.push((earlier, 0));
                    }
                    continue;
                }
                let open = self.before(index).filter(|earlier| circle[*earlier] == 0);
                first[index] = open.map(|earlier| first[earlier]).fold(first[index], usize::min);
                if first[index] == met[index] {
                    last_circle += 1;
                    while let Some(one) = in_none.pop() {
                        circle[one] = last_circle;
                        if one == index {
                            break;
                        }
                    }
                }
            }
        }
        circle
    }

    /// Reads against their own staleness bounds.
    fn bounds(&mut self, twin: &[bool]) {
        let mut versions: BTreeMap<Place<'_>, Vec<(VersionId, usize)>> = BTreeMap::new();
        let all = self.all.clone();
        for (index, statement) in all.iter().enumerate().filter(|(index, _)| !twin[*index]) {
            if let Some(version) = statement.version {
                versions.entry(place(statement)).or_default().push((version, index));
            }
        }
        for of_key in versions.values_mut() {
            of_key.sort_unstable();
            of_key.dedup_by_key(|(version, _)| *version);
        }
        for (index, statement) in all.iter().enumerate().filter(|(index, statement)| !twin[*index] && statement.act == Act::Read) {
            let Some(staleness_ms) = statement.staleness_ms else { continue };
            let reflected_ms = statement.began_ms.saturating_sub(staleness_ms);
            let of_key = versions.get(&place(statement)).map_or(&[][..], Vec::as_slice);
            let newer = of_key.iter().rev().take_while(|(version, _)| Some(*version) > statement.version);
            let mut covered = newer.filter(|(version, _)| version.origin != statement.here && version.written.millis() < reflected_ms);
            // The oldest of them is the clearest case; whether the key is gone, the newest says.
            let known = if statement.version.is_none() { covered.next() } else { covered.last() };
            if let Some((_, known)) = known {
                self.report(Broken::StalenessBound, *known, index);
            }
        }
    }
}
