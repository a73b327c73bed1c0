//! The coordinator of a rollback: what to ask of which server, and what comes of the answers.

use super::{Cause, Difference, RollbackAnswer, RollbackCall, Turn};
use crate::failure::Failure;
use crate::ids::PartitionId;
use crate::outcome::Outcome;
use crate::version::{Key, VersionId};
use rheostat_clock::{DcId, Timestamp};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The most keys that one rollback may differ in.
pub const MOST_KEYS: usize = 1_000_000;
/// Keys that are written back in one write, and bytes of their values after which no more join.
const RESTORE_KEYS: usize = 64;
const RESTORE_BYTES: u64 = 1 << 20;
/// Keys of one question whether they are visible.
const SHOW_KEYS: usize = 500;
/// A question that timed out is asked so many times.
const MOST_TRIES: u32 = 6;

/// What a rollback is to do.
#[derive(Clone, Debug)]
pub struct Aim {
    /// Its name, which no other has.
    pub name: u64,
    /// Which coordinator this is; the first one if nobody has taken over.
    pub turn: Turn,
    /// The time to go back to.
    pub at: Timestamp,
    /// Which keys: a pattern.
    pub keys: Key,
    /// What was wrong: only what is one of these versions, or may depend on one, is rolled back. None: all that was written since.
    pub because: Vec<Cause>,
    /// Until when clients are stopped, if nobody says that they may go on.
    pub until: Timestamp,
    /// Only look.
    pub dry_run: bool,
    /// The data center that writes, where it holds the partition.
    pub here: DcId,
    /// Number of data centers.
    pub data_centers: u8,
    /// Those of them that nobody asks: their place is free, or they are lost and the others have the same of them.
    pub absent: Vec<DcId>,
    /// Number of partitions.
    pub partitions: u16,
}

impl Aim {
    /// The servers that are asked.
    pub fn servers(&self) -> impl Iterator<Item = (DcId, PartitionId)> {
        let there = (0..self.data_centers).map(DcId).filter(|dc| !self.absent.contains(dc));
        there.flat_map(|dc| (0..self.partitions).map(move |partition| (dc, PartitionId(partition))))
    }
}

/// What came of a rollback.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The keys that were not what they had been, in order.
    pub differences: Vec<Difference>,
    /// How many of them were written back.
    pub restored: usize,
    /// Clients' writes up to here are what was rolled back; zero if clients were not stopped.
    pub upto: Timestamp,
    /// Whether every data center shows what was written back.
    pub shown: bool,
    /// Whether clients were told to go on; else they do when the time is over.
    pub resumed: bool,
    /// It was taken over, and had been over already: nothing was looked for.
    pub over: bool,
    /// Another coordinator has taken it over, and knows what comes of it.
    pub overtaken: bool,
    /// What stopped it, and where.
    pub failed: Option<(DcId, PartitionId, Failure)>,
}

/// A partition's server in a data center.
pub type At = (DcId, PartitionId);

/// What is to be asked of whom.
pub type Request = (At, RollbackCall);

/// How far a rollback has come.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Phase {
    /// Clients are being stopped.
    Stop,
    /// What has changed is being found.
    Look,
    /// It is being written back.
    Restore,
    /// Every data center is to show it.
    Show,
    /// Clients are being told to go on.
    Resume,
    /// Nothing is under way any more.
    Done,
}

/// See the module.
#[derive(Debug)]
pub struct Course {
    aim: Aim,
    phase: Phase,
    /// What is asked of each, the first of it under way, and how often that has been asked.
    asked: BTreeMap<At, (VecDeque<RollbackCall>, u32)>,
    /// Which servers hold their partition.
    holders: BTreeSet<At>,
    /// Which may have stopped their clients.
    stopped: BTreeSet<At>,
    found: BTreeMap<PartitionId, Vec<Difference>>,
    restored: BTreeMap<PartitionId, Vec<(Key, VersionId)>>,
    /// What stays, and is to be seen everywhere all the same.
    kept: BTreeMap<PartitionId, Vec<(Key, VersionId)>>,
    newest: Timestamp,
    /// Something was asked for whose end is not known.
    open: bool,
    report: Report,
}

impl Course {
    /// Begins; second: what is to be asked first. Each server is asked one thing at a time.
    pub fn begin(aim: Aim) -> (Course, Vec<Request>) {
        let mut course = Course {
            holders: aim.servers().collect(),
            aim,
            phase: Phase::Stop,
            asked: BTreeMap::new(),
            stopped: BTreeSet::new(),
            found: BTreeMap::new(),
            restored: BTreeMap::new(),
            kept: BTreeMap::new(),
            newest: Timestamp::ZERO,
            open: false,
            report: Report::default(),
        };
        let first = match course.aim.dry_run {
            true => course.enter(Phase::Look),
            false => course.enter(Phase::Stop),
        };
        (course, first)
    }

    /// Whether nothing is under way any more.
    pub fn is_done(&self) -> bool {
        self.phase == Phase::Done
    }

    /// How far it has come.
    pub fn at(&self) -> Phase {
        self.phase
    }

    /// What is being done, in words.
    pub fn phase(&self) -> &'static str {
        match self.phase {
            Phase::Stop => "stopping clients",
            Phase::Look => "looking for what has changed",
            Phase::Restore => "writing back",
            Phase::Show => "waiting until every data center shows it",
            Phase::Resume => "telling clients to go on",
            Phase::Done => "done",
        }
    }

    /// Up to when clients had written, for all that is known so far.
    pub fn upto(&self) -> Timestamp {
        self.report.upto
    }

    /// What has been written back so far.
    pub fn restored(&self) -> impl Iterator<Item = (&[u8], VersionId)> {
        self.restored.values().flatten().map(|(key, version)| (&key[..], *version))
    }

    /// Whether every data center shows what was written back.
    pub fn is_shown(&self) -> bool {
        self.report.shown
    }

    /// What came of it, once it is done.
    pub fn into_report(self) -> Report {
        self.report
    }

    /// The data center that looks at `partition`, and writes it back.
    fn home(&self, partition: PartitionId) -> Option<DcId> {
        let all = (0..self.aim.data_centers).map(|step| DcId((self.aim.here.0 + step) % self.aim.data_centers));
        all.into_iter().find(|dc| self.holders.contains(&(*dc, partition)))
    }

    fn look(&self, slot: u16, from: u32) -> RollbackCall {
        RollbackCall::Look { keys: self.aim.keys.clone(), at: self.aim.at, upto: self.report.upto, because: self.aim.because.clone(), slot, from }
    }

    /// Begins `phase`, or the next one in which there is something to ask.
    fn enter(&mut self, phase: Phase) -> Vec<Request> {
        self.phase = phase;
        let Aim { name, turn, at, until, .. } = self.aim;
        let partitions = (0..self.aim.partitions).map(PartitionId);
        let calls: Vec<(At, Vec<RollbackCall>)> = match phase {
            Phase::Stop => {
                self.stopped = self.holders.clone();
                let stop = RollbackCall::Stop { name, turn, keys: self.aim.keys.clone(), at, until };
                self.holders.iter().map(|server| (*server, vec![stop.clone()])).collect()
            }
            Phase::Look => partitions.filter_map(|partition| Some(((self.home(partition)?, partition), vec![self.look(u16::MAX, 0)]))).collect(),
            Phase::Restore => {
                let of =
                    |(partition, found): (&PartitionId, &Vec<Difference>)| Some(((self.home(*partition)?, *partition), batches(found, &self.aim)));
                self.found.iter().filter_map(of).collect()
            }
            Phase::Show => {
                let of = |server: &At| {
                    let versions = [&self.restored, &self.kept].map(|all| all.get(&server.1).map_or(&[][..], Vec::as_slice)).concat();
                    (*server, versions.chunks(SHOW_KEYS).map(|some| RollbackCall::Show { versions: some.to_vec() }).collect())
                };
                self.holders.iter().map(of).collect()
            }
            Phase::Resume => {
                // What a predecessor has written back is not among what this one has, and older than where clients were stopped.
                let resume = RollbackCall::Resume { name, turn, after: self.newest.max(self.report.upto) };
                self.stopped.iter().map(|server| (*server, vec![resume.clone()])).collect()
            }
            Phase::Done => Vec::new(),
        };
        self.asked = calls.into_iter().filter(|(_, calls)| !calls.is_empty()).map(|(server, calls)| (server, (calls.into(), 0))).collect();
        if self.asked.is_empty() && phase != Phase::Done {
            return self.leave();
        }
        self.asked.iter().filter_map(|(server, (calls, _))| Some((*server, calls.front()?.clone()))).collect()
    }

    /// The phase is over.
    fn leave(&mut self) -> Vec<Request> {
        let failed = self.report.failed.is_some();
        let next = match self.phase {
            // A predecessor may have written back there, stamped after all that the others know of: who is stopped is so until its time is over.
            Phase::Stop if failed && self.aim.turn.times() > 0 => Phase::Done,
            Phase::Stop if failed || self.report.over => Phase::Resume,
            Phase::Stop => Phase::Look,
            Phase::Look => {
                self.report.differences = self.found.values().flatten().cloned().collect();
                self.report.differences.sort_by(|one, other| one.key.cmp(&other.key));
                match (self.aim.dry_run, failed) {
                    (true, _) => Phase::Done,
                    (false, true) => Phase::Resume,
                    (false, false) => Phase::Restore,
                }
            }
            Phase::Restore => {
                self.report.restored = self.restored.values().map(Vec::len).sum();
                match (self.open, failed) {
                    // What was asked for may yet be written: up to its end, nobody else may write.
                    (true, _) => Phase::Done,
                    (false, true) => Phase::Resume,
                    (false, false) => Phase::Show,
                }
            }
            Phase::Show if failed => Phase::Done,
            Phase::Show => {
                self.report.shown = true;
                Phase::Resume
            }
            Phase::Resume => {
                self.report.resumed = !self.open;
                Phase::Done
            }
            Phase::Done => Phase::Done,
        };
        self.enter(next)
    }

    /// Takes in the answer of `server`; returns what is to be asked next.
    pub fn answer(&mut self, server: At, outcome: Outcome) -> Vec<Request> {
        let Some((calls, tries)) = self.asked.get_mut(&server) else { return Vec::new() };
        let Some(call) = calls.front().cloned() else { return Vec::new() };
        let again = *tries + 1 < MOST_TRIES && self.report.failed.is_none();
        match outcome {
            Outcome::Rollback(RollbackAnswer::Stopped { clock, holds }) if self.phase == Phase::Stop => {
                self.report.upto = self.report.upto.max(clock);
                if !holds {
                    self.holders.remove(&server);
                }
            }
            Outcome::Rollback(RollbackAnswer::Over { clock }) if self.phase == Phase::Stop => {
                self.report.upto = self.report.upto.max(clock);
                self.report.over = true;
                self.stopped.remove(&server);
            }
            // Whoever was told to go on now would end what the other one is about to do.
            Outcome::Rollback(RollbackAnswer::Overtaken) => {
                self.report.overtaken = true;
                return self.enter(Phase::Done);
            }
            Outcome::Rollback(RollbackAnswer::Looked { found, kept, next }) if self.phase == Phase::Look => {
                self.found.entry(server.1).or_default().extend(found);
                self.kept.entry(server.1).or_default().extend(kept);
                let all: usize = self.found.values().map(Vec::len).chain(self.kept.values().map(Vec::len)).sum();
                if all > MOST_KEYS {
                    let why = format!("more than {MOST_KEYS} keys have changed since then; roll back some of them at a time");
                    self.report.failed.get_or_insert((server.0, server.1, Failure::Refused(why)));
                } else if let Some((slot, from)) = next.filter(|_| self.report.failed.is_none()) {
                    let look = self.look(slot, from);
                    if let Some((calls, _)) = self.asked.get_mut(&server) {
                        calls.push_back(look);
                    }
                }
            }
            Outcome::Written(version) if self.phase == Phase::Restore => {
                self.newest = self.newest.max(version.written);
                let RollbackCall::Restore { keys, .. } = call else { return Vec::new() };
                self.restored.entry(server.1).or_default().extend(keys.into_iter().map(|key| (key, version)));
            }
            Outcome::Rollback(RollbackAnswer::Shown) if self.phase == Phase::Show => {}
            Outcome::Rollback(RollbackAnswer::Resumed) if self.phase == Phase::Resume => {}
            // Asking again changes nothing.
            Outcome::Failed(Failure::Timeout(_) | Failure::Busy(_)) if again && matches!(self.phase, Phase::Stop | Phase::Look | Phase::Show) => {
                *tries += 1;
                return vec![(server, call)];
            }
            // Without a stop nobody has said yet who holds what.
            Outcome::Failed(Failure::Refused(_))
                if self.aim.dry_run && self.phase == Phase::Look && self.holders.iter().any(|other| other.1 == server.1 && *other != server) =>
            {
                self.asked.remove(&server);
                self.holders.remove(&server);
                // The next one begins anew.
                self.found.remove(&server.1);
                self.kept.remove(&server.1);
                let Some(home) = self.home(server.1) else { return self.next(server) };
                let look = self.look(u16::MAX, 0);
                self.asked.insert((home, server.1), (VecDeque::from([look.clone()]), 0));
                return vec![((home, server.1), look)];
            }
            Outcome::Failed(failure) => self.fail(server, failure),
            other => self.fail(server, Failure::Refused(format!("a partition answered something else than was asked: {other:?}"))),
        }
        self.next(server)
    }

    /// Nothing more will come of what `server` was asked.
    fn fail(&mut self, server: At, failure: Failure) {
        let definite = matches!(failure, Failure::Refused(_) | Failure::Busy(_) | Failure::Session(_));
        if self.phase == Phase::Stop && definite {
            self.stopped.remove(&server);
        }
        self.open |= self.phase == Phase::Restore && !definite || self.phase == Phase::Resume;
        self.report.failed.get_or_insert((server.0, server.1, failure));
        // What is not under way need not begin; who was stopped is told to go on, whoever cannot be.
        if self.phase != Phase::Resume {
            self.asked.values_mut().for_each(|(calls, _)| calls.truncate(1));
        }
    }

    /// What comes after the answer of `server`.
    fn next(&mut self, server: At) -> Vec<Request> {
        if let Some((calls, tries)) = self.asked.get_mut(&server) {
            calls.pop_front();
            *tries = 0;
            match calls.front() {
                Some(call) => return vec![(server, call.clone())],
                None => {
                    self.asked.remove(&server);
                }
            }
        }
        if self.asked.is_empty() { self.leave() } else { Vec::new() }
    }
}

/// What is written together.
fn batches(found: &[Difference], aim: &Aim) -> Vec<RollbackCall> {
    let (mut all, mut keys, mut bytes) = (Vec::new(), Vec::new(), 0);
    let restore = |keys| RollbackCall::Restore { name: aim.name, turn: aim.turn, keys, at: aim.at, because: aim.because.clone() };
    for one in found.iter().filter(|one| one.is_restored()) {
        if !keys.is_empty() && (keys.len() == RESTORE_KEYS || bytes + one.bytes > RESTORE_BYTES) {
            all.push(restore(std::mem::take(&mut keys)));
            bytes = 0;
        }
        bytes += one.bytes;
        keys.push(one.key.clone());
    }
    if !keys.is_empty() {
        all.push(restore(keys));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: At = (DcId(0), PartitionId(0));
    const OTHER: At = (DcId(1), PartitionId(0));

    fn aim(turn: Turn) -> Aim {
        let at = |millis| Timestamp::new(millis, 0);
        Aim {
            name: 7,
            turn,
            at: at(100),
            keys: b"*"[..].into(),
            because: Vec::new(),
            until: at(1_000),
            dry_run: false,
            here: DcId(0),
            data_centers: 3,
            // Nobody asks one that is lost.
            absent: vec![DcId(2)],
            partitions: 1,
        }
    }

    fn begin(turn: Turn) -> Course {
        let (course, first) = Course::begin(aim(turn));
        assert_eq!(first.iter().map(|(server, _)| *server).collect::<Vec<_>>(), [ONE, OTHER]);
        course
    }

    fn stopped(millis: u64) -> Outcome {
        Outcome::Rollback(RollbackAnswer::Stopped { clock: Timestamp::new(millis, 0), holds: true })
    }

    fn resume(turn: Turn, millis: u64) -> RollbackCall {
        RollbackCall::Resume { name: 7, turn, after: Timestamp::new(millis, 0) }
    }

    /// What a predecessor has written back can be ahead of the clocks of those who go on.
    #[test]
    fn clients_go_on_after_all_that_was_there_whoever_has_written_it_back() {
        let turn = Turn::default().next(1);
        let mut course = begin(turn);
        assert_eq!(course.answer(ONE, stopped(500)), []);
        let look = course.answer(OTHER, stopped(300));
        assert!(matches!(look[..], [(ONE, RollbackCall::Look { .. })]), "{look:?}");
        let nothing = RollbackAnswer::Looked { found: Vec::new(), kept: Vec::new(), next: None };
        assert_eq!(course.answer(ONE, Outcome::Rollback(nothing)), [(ONE, resume(turn, 500)), (OTHER, resume(turn, 500))]);
        for server in [ONE, OTHER] {
            course.answer(server, Outcome::Rollback(RollbackAnswer::Resumed));
        }
        let report = course.into_report();
        assert_eq!((report.shown, report.resumed, report.over, report.failed), (true, true, false, None));
    }

    /// Where a server does not say how far its clock is, nobody knows what its predecessor has written back there.
    #[test]
    fn who_takes_over_and_cannot_stop_everybody_tells_nobody_to_go_on() {
        let refused = || Outcome::Failed(Failure::Refused("no".into()));
        let turn = Turn::default().next(1);
        for over in [false, true] {
            let mut course = begin(turn);
            course.answer(ONE, if over { Outcome::Rollback(RollbackAnswer::Over { clock: Timestamp::new(300, 0) }) } else { stopped(300) });
            assert_eq!(course.answer(OTHER, refused()), []);
            assert!(course.is_done() && !course.into_report().resumed);
        }
        // The first one has written nothing back yet.
        let mut course = begin(Turn::default());
        course.answer(ONE, stopped(300));
        assert_eq!(course.answer(OTHER, refused()), [(ONE, resume(Turn::default(), 300))]);
    }

    #[test]
    fn what_is_over_anywhere_is_ended_everywhere_and_nothing_is_looked_for() {
        let mut course = begin(Turn::default());
        let over = Outcome::Rollback(RollbackAnswer::Over { clock: Timestamp::new(700, 0) });
        assert_eq!(course.answer(ONE, over), []);
        assert_eq!(course.answer(OTHER, stopped(300)), [(OTHER, resume(Turn::default(), 700))]);
        course.answer(OTHER, Outcome::Rollback(RollbackAnswer::Resumed));
        let report = course.into_report();
        assert_eq!((report.shown, report.resumed, report.over, report.failed), (false, true, true, None));
    }

    /// What it goes back to can be forgotten where it is looked for before the last page, and be known elsewhere for a moment more.
    #[test]
    fn who_goes_on_elsewhere_tells_of_no_key_twice() {
        let (mut course, _) = Course::begin(Aim { dry_run: true, ..aim(Turn::default()) });
        let page = |keys: &[&str], next| {
            let difference =
                |key: &&str| Difference { key: key.as_bytes().into(), then: None, bytes: 0, same: false, counter: false, lost: Vec::new(), more: 0 };
            Outcome::Rollback(RollbackAnswer::Looked { found: keys.iter().map(difference).collect(), kept: Vec::new(), next })
        };
        assert_eq!(course.answer(ONE, page(&["a"], Some((5, 0)))).len(), 1);
        let elsewhere = course.answer(ONE, Outcome::Failed(Failure::Refused("it is before what is kept".into())));
        assert!(matches!(elsewhere[..], [(OTHER, RollbackCall::Look { slot: u16::MAX, from: 0, .. })]), "{elsewhere:?}");
        assert_eq!(course.answer(OTHER, page(&["a", "b"], None)), []);
        let report = course.into_report();
        assert_eq!(report.differences.iter().map(|one| &*one.key).collect::<Vec<_>>(), [b"a", b"b"]);
        assert_eq!(report.failed, None);
    }

    #[test]
    fn who_is_overtaken_asks_for_nothing_more() {
        let mut course = begin(Turn::default());
        assert_eq!(course.answer(ONE, Outcome::Rollback(RollbackAnswer::Overtaken)), []);
        assert!(course.is_done());
        assert_eq!(course.answer(OTHER, stopped(300)), []);
        let report = course.into_report();
        assert!(report.overtaken && !report.resumed && report.failed.is_none());
    }
}
