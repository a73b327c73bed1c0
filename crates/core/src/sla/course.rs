//! One read under a service level, from its beginning to its answer.

use super::copies::is_write;
use super::forecast::{Ask, Forecast, Kind};
use super::{PROBE_US, ServiceLevel};
use crate::counter::CounterCall;
use crate::dial::{Dial, Level};
use crate::failure::Failure;
use crate::notch::NOBODY;
use crate::operation::Operation;
use crate::outcome::Outcome;
use crate::planted::Planted;
use rheostat_clock::DcId;
use smallvec::SmallVec;
use std::sync::Arc;

/// The most attempts that one read makes in other data centers, beside at most one for each entry here.
pub const MOST_AWAY: usize = 2;

/// Another data center that can be asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Away {
    /// Which.
    pub dc: DcId,
    /// The way there and back, in microseconds, as it was measured last.
    pub way_us: u64,
}

/// How a read goes on.
#[derive(Debug)]
pub enum Progress {
    /// This is to be made.
    Ask(Ask),
    /// It is over: the outcome, and of an answer which entry (counted from 0) it satisfies.
    Done(Outcome, Option<Achieved>),
}

/// What an operation under a service level came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Achieved {
    /// The entry that the answer satisfies, counted from 0.
    pub entry: usize,
    /// The time that it took, in microseconds.
    pub used_us: u64,
    /// Of a write: the data centers that had it.
    pub data_centers: Option<u8>,
    /// Of a read: the data center that answered, if it is another one.
    pub at: Option<DcId>,
}

/// One read under a service level, from its beginning to its answer.
#[derive(Clone, Debug)]
pub struct Course {
    aims: Arc<ServiceLevel>,
    dial: Dial,
    several: bool,
    begun_us: u64,
    /// The longest that all of it may take.
    most_us: u64,
    /// Entries that need not be tried here (any more), as bits.
    closed: u32,
    /// Entries whose level the keyspace does not serve.
    unserved: u32,
    /// Other data centers that can be asked, the nearest first.
    away: SmallVec<[Away; 4]>,
    /// What was asked there.
    tried_away: SmallVec<[(usize, DcId); MOST_AWAY]>,
    /// The server here cannot be reached, or its store has failed: another data center is better than an error, at any level.
    nobody_here: bool,
    why: Vec<String>,
    planted: Planted,
}

impl Course {
    /// Begins a read of `several` keys or one, with `dial` for all but level and bounds, which takes at most `most_us`; entries whose level is not `served` are never tried.
    pub fn begin(aims: &Arc<ServiceLevel>, dial: Dial, several: bool, now_us: u64, most_us: u64, served: impl Fn(Level) -> bool) -> Course {
        let closed = aims.aims().iter().enumerate().filter(|(_, aim)| !served(aim.level)).fold(0, |closed, (index, _)| closed | 1 << index);
        let (away, tried_away) = (SmallVec::new(), SmallVec::new());
        Course {
            aims: aims.clone(),
            dial,
            several,
            begun_us: now_us,
            most_us,
            closed,
            unserved: closed,
            away,
            tried_away,
            nobody_here: false,
            why: Vec::new(),
            planted: Planted::NONE,
        }
    }

    /// These data centers can be asked too.
    pub fn with_away(mut self, away: impl IntoIterator<Item = Away>) -> Course {
        self.away = away.into_iter().collect();
        self.away.sort_by_key(|away| (away.way_us, away.dc));
        self
    }

    /// With a planted bug; the simulator's only.
    pub fn with_planted(self, planted: Planted) -> Course {
        Course { planted, ..self }
    }

    /// What can be asked now, the best first: each entry here, then elsewhere.
    fn options(&self, now_us: u64) -> impl Iterator<Item = (Ask, u32)> + '_ {
        let places = move || std::iter::once(None).chain(self.away.iter().copied().map(Some));
        (0..self.aims.aims().len()).flat_map(move |entry| places().filter_map(move |away| self.ask(entry, away, now_us)))
    }

    /// The place of a data center among the options of an entry.
    fn rank(&self, at: Option<DcId>) -> usize {
        at.map_or(0, |at| 1 + self.away.iter().position(|away| away.dc == at).unwrap_or(self.away.len()))
    }

    /// The read that is to be made now: of the entries that can still be held the first that is expected to be, else the likeliest. `None`: there is none.
    pub fn next(&mut self, forecast: &mut Forecast, now_us: u64) -> Option<Ask> {
        let (ask, _) = forecast.best(self.options(now_us), |(ask, within_us)| (ask.kind, u64::from(*within_us)), now_us)?;
        match ask.at {
            None => self.closed |= 1 << ask.entry,
            Some(dc) => self.tried_away.push((ask.entry, dc)),
        }
        Some(ask)
    }

    /// A read to be made beside `chosen`, of what was passed over for it, so that it is noticed when that can be held (again). Its answer is for [`Forecast::record`] only.
    pub fn probe(&self, chosen: &Ask, forecast: &mut Forecast, now_us: u64) -> Option<Ask> {
        if forecast.probed_us.is_some_and(|probed_us| now_us < probed_us + PROBE_US) {
            return None;
        }
        let place = (chosen.entry, self.rank(chosen.at));
        let passed_over = self.options(now_us).map(|(ask, _)| ask).take_while(|ask| (ask.entry, self.rank(ask.at)) < place);
        // In turn, the better one first.
        let probe = passed_over.min_by_key(|ask| forecast.of(ask.kind, now_us).probed_us)?;
        forecast.of(probe.kind, now_us).probed_us = Some(now_us);
        forecast.probed_us = Some(now_us);
        Some(probe)
    }

    /// The read for `entry`, here or elsewhere, and the time that it may take in microseconds, if it is open and there is time for it.
    fn ask(&self, entry: usize, away: Option<Away>, now_us: u64) -> Option<(Ask, u32)> {
        let aim = self.aims.aims()[entry];
        let used_us = now_us.saturating_sub(self.begun_us);
        let most_us = aim.within_ms.map_or(self.most_us, |within_ms| (u64::from(within_ms) * 1000).min(self.most_us));
        let open = match away {
            None => self.closed & 1 << entry == 0,
            Some(Away { dc, .. }) => {
                let tried = self.tried_away.len() >= MOST_AWAY || self.tried_away.contains(&(entry, dc));
                let wanted = aim.is_worth_leaving_for() || self.nobody_here && aim.may_leave();
                self.unserved & 1 << entry == 0 && wanted && !tried
            }
        };
        if !open || used_us >= most_us {
            return None;
        }
        let mut left_us = most_us - used_us;
        // Without a bound of its own it would take the time of those that come after it.
        let unbounded = |index: &usize| self.aims.aims()[*index].within_ms.is_none_or(|within_ms| u64::from(within_ms) * 1000 >= self.most_us);
        if unbounded(&entry) && (entry + 1..self.aims.aims().len()).any(|after| self.closed & 1 << after == 0 && unbounded(&after)) {
            left_us = left_us.div_ceil(2);
        }
        let way_us = away.map_or(0, |away| away.way_us);
        let there_us = left_us.checked_sub(way_us).filter(|there_us| *there_us > 0)?;
        let us = |us: u64| u32::try_from(us).unwrap_or(u32::MAX);
        // Who counts what other levels would have returned counts what is asked here.
        let label = if away.is_some() { NOBODY } else { self.dial.label };
        let dial = Dial { level: Some(aim.level), fresh_ms: aim.fresh_ms, within_us: Some(us(there_us)), label, ..self.dial };
        let at = away.map(|away| away.dc);
        let kind = Kind::Read { aim, several: self.several, at };
        Some((Ask { entry, at, dial, until_us: now_us + left_us, asked_us: now_us, kind }, us(left_us)))
    }

    /// Takes in what came of `ask`.
    pub fn answer(&mut self, ask: &Ask, outcome: Outcome, forecast: &mut Forecast, now_us: u64) -> Progress {
        let quality = outcome.quality();
        let since_us = if self.planted.is("entry-timed-from-its-attempt") { ask.asked_us } else { self.begun_us };
        let used_us = now_us.saturating_sub(since_us);
        let failed_here = matches!(&outcome, Outcome::Failed(Failure::Unreachable(_) | Failure::Storage(_)) if ask.at.is_none());
        self.nobody_here |= failed_here;
        // A service level is of the whole way: an answer can satisfy another entry than the one that it was asked for.
        let aim = self.aims.aims()[ask.entry];
        forecast.record(ask, now_us, quality.is_some_and(|quality| aim.is_held(quality, 0)));
        match (quality, outcome) {
            (Some(_), outcome) if self.planted.is("entry-said-that-was-asked-for") => {
                return Progress::Done(outcome, Some(Achieved { entry: ask.entry, used_us, data_centers: None, at: ask.at }));
            }
            (Some(quality), outcome) => match self.aims.held(quality, used_us, ask.at.is_some()) {
                Some(entry) => return Progress::Done(outcome, Some(Achieved { entry, used_us, data_centers: None, at: ask.at })),
                None => self.why.push(format!("`{aim}` came after {} ms", used_us / 1000)),
            },
            // Whatever is wrong there, it may be right here.
            (None, Outcome::Failed(failure)) if let Some(dc) = ask.at => self.why.push(format!("`{aim}` in data center {dc}: {failure}")),
            (None, _) if let Some(dc) = ask.at => self.why.push(format!("`{aim}` in data center {dc}: another answer than was asked for")),
            (None, Outcome::Failed(Failure::Timeout(what))) => self.why.push(format!("`{aim}` waited for {what}")),
            (None, Outcome::Failed(failure @ (Failure::Busy(_) | Failure::Refused(_) | Failure::Unreachable(_) | Failure::Insufficient(_)))) => {
                self.why.push(format!("`{aim}`: {failure}"));
            }
            (None, Outcome::Failed(failure @ Failure::Storage(_))) if !self.away.is_empty() => self.why.push(format!("`{aim}`: {failure}")),
            // Of the session, the store, the request: no other entry fares better.
            (None, outcome) => return Progress::Done(outcome, None),
        }
        match self.next(forecast, now_us) {
            Some(ask) => Progress::Ask(ask),
            None => Progress::Done(Outcome::Failed(self.missed()), None),
        }
    }

    /// Why no entry was held.
    pub fn missed(&self) -> Failure {
        let why = if self.why.is_empty() { "the keyspace serves none of its levels".to_owned() } else { self.why.join("; ") };
        Failure::Timeout(format!("an entry of the service level to be held: {why}"))
    }
}

/// An operation that a service level says something of.
#[derive(Clone, PartialEq, Debug)]
pub enum Request {
    /// A read of the present; of `several` keys or of one.
    Read {
        /// What is asked for.
        operation: Box<Operation>,
        /// Its dial.
        dial: Dial,
        /// Of several keys, from one snapshot.
        several: bool,
    },
    /// A write.
    Write(Box<Operation>),
}

impl Request {
    /// The read of the present, or the write, that `operation` is, if `aims` has entries for it. A transaction of commands is a write if it writes; if it also gets keys, what it gets
    /// satisfies an entry for reads too ([`ServiceLevel::least`]).
    ///
    /// # Errors
    /// It is none; it comes back.
    pub fn of(mut operation: Operation, aims: &ServiceLevel) -> Result<Request, Operation> {
        let Some(dial) = operation.dial_mut().copied().filter(|dial| dial.as_of.is_none()) else { return Err(operation) };
        let several = match &operation {
            Operation::Get { .. } | Operation::Siblings { .. } | Operation::Counter { call: CounterCall::Look { .. }, .. } => Some(false),
            Operation::ReadTransaction { keys, .. } => Some(keys.len() > 1),
            Operation::Transact { .. } if !operation.writes() => Some(true),
            _ => None,
        };
        match several {
            Some(several) if !aims.aims().is_empty() => Ok(Request::Read { operation: Box::new(operation), dial, several }),
            None if !aims.copies().is_empty() && is_write(&operation) => Ok(Request::Write(Box::new(operation))),
            None if !aims.aims().is_empty() && operation.gets() => Ok(Request::Write(Box::new(operation))),
            _ => Err(operation),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::{Quality, Read};
    use crate::failure::Insufficient;

    fn shop() -> ServiceLevel {
        ServiceLevel::parse("strong 200ms; causal 1s 20ms; eventual").unwrap()
    }

    fn read(level: Level, staleness_ms: Option<u64>) -> Outcome {
        Outcome::Read(Read::default(), Quality { level, staleness_ms })
    }

    fn late() -> Outcome {
        Outcome::Failed(Failure::Timeout("the leader".into()))
    }

    /// Makes one read, each of whose attempts `answers` after so many microseconds; returns what it came to, the entries that were tried, and when it was over.
    fn serve(
        aims: &ServiceLevel,
        forecast: &mut Forecast,
        now_us: &mut u64,
        mut answers: impl FnMut(&Ask) -> (u64, Outcome),
    ) -> (Outcome, Option<Achieved>, Vec<usize>) {
        let mut course = Course::begin(&Arc::new(aims.clone()), Dial::default(), false, *now_us, 5_000_000, |_| true);
        let mut tried = Vec::new();
        let Some(mut ask) = course.next(forecast, *now_us) else { return (Outcome::Failed(course.missed()), None, tried) };
        loop {
            tried.push(ask.entry);
            let (took_us, outcome) = answers(&ask);
            *now_us += took_us;
            match course.answer(&ask, outcome, forecast, *now_us) {
                Progress::Ask(next) => ask = next,
                Progress::Done(outcome, achieved) => return (outcome, achieved, tried),
            }
        }
    }

    #[test]
    fn the_first_entry_is_tried_until_it_is_known_to_fail_and_again_when_it_holds_again() {
        let (aims, mut forecast, mut now_us) = (shop(), Forecast::default(), 1);
        let strong_is_cut = |ask: &Ask| match ask.entry {
            0 => (u64::from(ask.dial.within_us.unwrap()), late()),
            _ => (300, read(ask.dial.level.unwrap(), Some(5))),
        };
        // What is not known is tried; when it fails, causal's time is over too.
        let (_, achieved, tried) = serve(&aims, &mut forecast, &mut now_us, strong_is_cut);
        assert_eq!((tried, achieved.unwrap().entry), (vec![0, 2], 2));
        assert_eq!(achieved.unwrap().used_us, 200_300);
        // From then on it is passed over, and what is expected to hold is asked at once.
        for _ in 0..20 {
            let (_, achieved, tried) = serve(&aims, &mut forecast, &mut now_us, strong_is_cut);
            assert_eq!((tried, achieved), (vec![1], Some(Achieved { entry: 1, used_us: 300, data_centers: None, at: None })));
        }
        // It is forgotten when nobody asks, and tried again.
        now_us += 10_000_000;
        let (_, achieved, tried) = serve(&aims, &mut forecast, &mut now_us, |_| (81_000, read(Level::Strong, Some(0))));
        assert_eq!((tried, achieved.unwrap().entry), (vec![0], 0));
    }

    const NEAR: Away = Away { dc: DcId(1), way_us: 20_000 };
    const FAR: Away = Away { dc: DcId(2), way_us: 80_000 };

    fn away(aims: &Arc<ServiceLevel>, now_us: u64) -> Course {
        Course::begin(aims, Dial::default(), false, now_us, 5_000_000, |_| true).with_away([FAR, NEAR])
    }

    /// Makes one read with its probe, each attempt of which `answers`; returns what it came to and where it was asked.
    fn travel(
        aims: &Arc<ServiceLevel>,
        forecast: &mut Forecast,
        now_us: &mut u64,
        answers: impl Fn(&Ask) -> (u64, Outcome),
    ) -> (Option<Achieved>, Vec<(usize, Option<DcId>)>) {
        let mut course = away(aims, *now_us);
        let mut asked = Vec::new();
        let mut next = course.next(forecast, *now_us);
        while let Some(ask) = next {
            if let Some(probe) = course.probe(&ask, forecast, *now_us) {
                let (took_us, outcome) = answers(&probe);
                let came = outcome.quality().is_some_and(|quality| aims.aims()[probe.entry].is_held(quality, 0));
                forecast.record(&probe, *now_us + took_us, came);
            }
            asked.push((ask.entry, ask.at));
            let (took_us, outcome) = answers(&ask);
            *now_us += took_us.min(ask.until_us - *now_us);
            match course.answer(&ask, outcome, forecast, *now_us) {
                Progress::Ask(ask) => next = Some(ask),
                Progress::Done(_, achieved) => return (achieved, asked),
            }
        }
        (None, asked)
    }

    /// Here nothing fresh can be had; the near data center has it.
    fn cut_off(ask: &Ask) -> (u64, Outcome) {
        match (ask.dial.fresh_ms, ask.at) {
            (Some(_), None) => (ask.dial.within_us.unwrap().into(), late()),
            (Some(_), Some(DcId(2))) => (80_300, Outcome::Failed(Failure::Unreachable(crate::ids::PartitionId(0)))),
            (Some(_), Some(_)) => (20_300, read(Level::Causal, Some(40))),
            (None, _) => (300, read(Level::Causal, None)),
        }
    }

    #[test]
    fn what_cannot_be_had_here_is_asked_for_elsewhere_and_here_again_when_it_can() {
        let aims = Arc::new(ServiceLevel::parse("causal 1s 100ms; causal").unwrap());
        let (mut forecast, mut now_us) = (Forecast::default(), 1);
        let (mut held, mut probed_far) = ([0, 0], false);
        for _ in 0..60 {
            let (achieved, asked) = travel(&aims, &mut forecast, &mut now_us, cut_off);
            let achieved = achieved.unwrap();
            assert_eq!(achieved.at, (achieved.entry == 0).then_some(NEAR.dc));
            assert!(asked.len() <= 2 + MOST_AWAY, "{asked:?}");
            assert!(achieved.entry == 1 || achieved.used_us <= 100_000);
            probed_far |= asked.iter().any(|(_, at)| *at == Some(FAR.dc));
            held[achieved.entry] += 1;
            now_us += 20_000;
        }
        // The first ones find out, at most one of them by waiting in vain; nobody waits for a data center of which nothing is known.
        assert!(held[0] >= 50 && !probed_far, "{held:?}");
        // It can be had here again.
        let all_is_well = |ask: &Ask| if ask.at.is_none() { (300, read(Level::Causal, Some(3))) } else { cut_off(ask) };
        let mut here = 0;
        for _ in 0..200 {
            let (achieved, _) = travel(&aims, &mut forecast, &mut now_us, all_is_well);
            let achieved = achieved.unwrap();
            assert_eq!(achieved.entry, 0, "it goes on elsewhere until it is known here");
            here += i32::from(achieved.at.is_none());
            now_us += 20_000;
        }
        assert!(here >= 100, "{here}");
    }

    #[test]
    fn what_is_not_known_elsewhere_is_tried_before_there_is_an_error_and_not_often() {
        let aims = Arc::new(ServiceLevel::parse("causal 1s 100ms").unwrap());
        let (mut forecast, mut now_us) = (Forecast::default(), 1);
        let here_is_cut = |ask: &Ask| if ask.at.is_none() { (10, Outcome::Failed(Failure::Busy("full".into()))) } else { cut_off(ask) };
        let (achieved, asked) = travel(&aims, &mut forecast, &mut now_us, here_is_cut);
        assert_eq!((achieved.unwrap().at, asked), (Some(NEAR.dc), vec![(0, None), (0, Some(NEAR.dc))]));
        let aims = Arc::new(ServiceLevel::parse("strong 10s; causal 1s 9s; causal fresh 2s 8s; monotonic-reads fresh 3s 7s").unwrap());
        let nobody = |_: &Ask| (10, Outcome::Failed(Failure::Session("not one of this keyspace".into())));
        let mut course = away(&aims, now_us);
        // What is wrong with the session there need not be wrong here.
        let mut asked = Vec::new();
        let mut forecast = Forecast::default();
        for entry in 0..4 {
            forecast.add(Kind::Read { aim: aims.aims()[entry], several: false, at: None }, 0, now_us, false);
        }
        let mut next = course.next(&mut forecast, now_us);
        while let Some(ask) = next {
            asked.push(ask.at);
            let outcome = if ask.at.is_none() { late() } else { nobody(&ask).1 };
            next = match course.answer(&ask, outcome, &mut forecast, now_us) {
                Progress::Ask(ask) => Some(ask),
                Progress::Done(outcome, _) => {
                    assert!(matches!(&outcome, Outcome::Failed(Failure::Timeout(what)) if what.contains("in data center")), "{outcome:?}");
                    None
                }
            };
        }
        assert_eq!((asked.len(), asked.iter().flatten().count()), (4 + MOST_AWAY, MOST_AWAY), "{asked:?}");
    }

    #[test]
    fn nobody_is_asked_who_is_too_far_away_or_could_not_help() {
        let fails = |_: &Ask| (10, Outcome::Failed(Failure::Busy("full".into())));
        for (text, asked) in [
            ("causal 1s 20ms", vec![]),
            ("causal 1s 21ms", vec![NEAR.dc]),
            ("causal 1s 81ms", vec![NEAR.dc, FAR.dc]),
            ("causal 1s 81ms here", vec![]),
            ("eventual", vec![]),
            ("eventual 1s 200ms", vec![NEAR.dc, FAR.dc]),
            ("local", vec![]),
            ("strong", vec![NEAR.dc, FAR.dc]),
        ] {
            let aims = Arc::new(ServiceLevel::parse(text).unwrap());
            let (_, tried) = travel(&aims, &mut Forecast::default(), &mut 1, fails);
            assert_eq!(tried.into_iter().filter_map(|(_, at)| at).collect::<Vec<_>>(), asked, "{text}");
        }
        // What there is too little time for is not begun, and the way is not part of the time there.
        let aims = Arc::new(ServiceLevel::parse("causal 1s 100ms").unwrap());
        let course = away(&aims, 0);
        assert_eq!(course.ask(0, Some(FAR), 10_000).unwrap().0.dial.within_us, Some(10_000));
        assert_eq!(course.ask(0, Some(FAR), 20_000), None);
        assert_eq!(course.ask(0, Some(NEAR), 20_000).unwrap().0.until_us, 100_000);
        // Levels that are not served here are not served there.
        let mut course = Course::begin(&aims, Dial::default(), false, 0, 5_000_000, |_| false).with_away([NEAR]);
        assert_eq!(course.next(&mut Forecast::default(), 0), None);
    }

    #[test]
    fn where_nobody_is_here_others_are_asked_at_every_level() {
        for gone in [Failure::Unreachable(crate::ids::PartitionId(0)), Failure::Storage("the disk".into())] {
            let there = |ask: &Ask| match ask.at {
                None => (10, Outcome::Failed(gone.clone())),
                Some(DcId(1)) => (20_300, read(Level::Eventual, None)),
                Some(_) => (80_300, read(Level::Eventual, None)),
            };
            for (text, held) in
                [("eventual", Some(0)), ("eventual 10ms", None), ("eventual here", None), ("local", None), ("causal 1s; eventual", Some(1))]
            {
                let aims = Arc::new(ServiceLevel::parse(text).unwrap());
                let (achieved, _) = travel(&aims, &mut Forecast::default(), &mut 1, there);
                assert_eq!(achieved.map(|achieved| (achieved.entry, achieved.at.is_some())), held.map(|entry| (entry, true)), "{text}, {gone}");
            }
        }
        // Where there is nobody else, a failure of the store is told as it is.
        let (outcome, ..) = serve(&shop(), &mut Forecast::default(), &mut 1, |_| (10, Outcome::Failed(Failure::Storage("the disk".into()))));
        assert!(matches!(outcome, Outcome::Failed(Failure::Storage(_))), "{outcome:?}");
    }

    #[test]
    fn an_answer_from_elsewhere_satisfies_no_entry_that_is_to_be_answered_here() {
        let aims = Arc::new(ServiceLevel::parse("causal 500ms 60ms here; causal 1s 70ms").unwrap());
        let mut forecast = Forecast::default();
        for _ in 0..8 {
            (0..2).for_each(|entry| forecast.add(Kind::Read { aim: aims.aims()[entry], several: false, at: None }, 0, 1, false));
            forecast.add(Kind::Read { aim: aims.aims()[1], several: false, at: Some(NEAR.dc) }, 20_300, 1, true);
        }
        let (achieved, asked) = travel(&aims, &mut forecast, &mut 1, cut_off);
        assert_eq!((achieved.map(|achieved| (achieved.entry, achieved.at)), asked), (Some((1, Some(NEAR.dc))), vec![(1, Some(NEAR.dc))]));
    }

    #[test]
    fn probes_find_out_that_an_entry_holds_again() {
        let (aims, mut forecast, mut now_us) = (Arc::new(shop()), Forecast::default(), 1);
        let (mut probes, mut back_us) = (0, None);
        for round in 0..10_000u64 {
            let cut = round < 5_000;
            let mut course = Course::begin(&aims, Dial::default(), false, now_us, 5_000_000, |_| true);
            let ask = course.next(&mut forecast, now_us).unwrap();
            if let Some(probe) = course.probe(&ask, &mut forecast, now_us) {
                assert_eq!((probe.entry, probe.dial.within_us), (0, Some(200_000)));
                probes += 1;
                forecast.record(&probe, now_us + if cut { 200_000 } else { 81_000 }, !cut);
            }
            let (took_us, outcome) = match (ask.entry, cut) {
                (0, true) => (200_000, late()),
                (0, false) => (81_000, read(Level::Strong, Some(0))),
                _ => (300, read(Level::Causal, Some(5))),
            };
            now_us += took_us + 1_000;
            course.answer(&ask, outcome, &mut forecast, now_us);
            if !cut && ask.entry == 0 {
                back_us.get_or_insert(round - 5_000);
            }
        }
        // One in 100 ms at most; rounds take about 1.3 ms each.
        assert!((20..=200).contains(&probes), "{probes} probes");
        assert!(back_us.unwrap() < 4_000, "{back_us:?}");
    }

    #[test]
    fn a_bound_below_what_reads_take_is_not_waited_for() {
        let (aims, mut forecast, mut now_us) = (ServiceLevel::parse("strong 60ms; causal").unwrap(), Forecast::default(), 1);
        let far = |ask: &Ask| match ask.entry {
            0 => (60_000, late()),
            _ => (200, read(Level::Causal, None)),
        };
        serve(&aims, &mut forecast, &mut now_us, far);
        // What others with less time have missed says nothing of those who have more.
        let patient = ServiceLevel::parse("strong 1s; causal").unwrap();
        let (_, achieved, tried) = serve(&patient, &mut forecast, &mut now_us, |_| (81_000, read(Level::Strong, Some(0))));
        assert_eq!((tried, achieved.unwrap().entry), (vec![0], 0));
        let (_, achieved, tried) = serve(&aims, &mut forecast, &mut now_us, far);
        assert_eq!((tried, achieved.unwrap().entry), (vec![1], 1));
    }

    #[test]
    fn an_answer_below_the_last_entry_is_an_error_that_says_what_was_tried() {
        let (aims, mut forecast, mut now_us) = (ServiceLevel::parse("strong 10ms; causal 30ms").unwrap(), Forecast::default(), 1);
        let (outcome, achieved, tried) = serve(&aims, &mut forecast, &mut now_us, |ask| match ask.entry {
            0 => (10_000, late()),
            _ => (25_000, read(Level::Causal, None)),
        });
        assert_eq!((tried, achieved), (vec![0, 1], None));
        let Outcome::Failed(Failure::Timeout(what)) = outcome else { panic!("{outcome:?}") };
        assert_eq!(what, "an entry of the service level to be held: `strong 10ms` waited for the leader; `causal 30ms` came after 35 ms");
        // Weaker than asked for, in time: no entry either.
        let (outcome, _, _) = serve(&aims, &mut forecast, &mut now_us, |_| (10, read(Level::Eventual, None)));
        assert!(matches!(outcome, Outcome::Failed(Failure::Timeout(_))), "{outcome:?}");
    }

    #[test]
    fn a_failure_that_no_entry_escapes_ends_it_and_a_busy_server_does_not() {
        let (aims, mut forecast, mut now_us) = (shop(), Forecast::default(), 1);
        let foreign = Outcome::Failed(Failure::Session("not one of this keyspace".into()));
        let (outcome, _, tried) = serve(&aims, &mut forecast, &mut now_us, |_| (10, foreign.clone()));
        assert_eq!((outcome, tried), (foreign, vec![0]));
        let (_, achieved, tried) = serve(&aims, &mut Forecast::default(), &mut now_us, |ask| match ask.entry {
            0 => (10, Outcome::Failed(Failure::Busy("full".into()))),
            _ => (10, read(Level::Causal, Some(0))),
        });
        assert_eq!((tried, achieved.unwrap().entry), (vec![0, 1], 1));
    }

    /// What a quorum says when its time is over is no more than any other timeout.
    #[test]
    fn too_few_replicas_in_time_end_an_attempt_and_not_the_read() {
        let too_few = Failure::Insufficient(Box::new(Insufficient { write: false, needed: 2, answered: vec![DcId(0)], names: Vec::new() }));
        let too_few = Outcome::Failed(too_few);
        let (aims, mut forecast, mut now_us) = (ServiceLevel::parse("eventual 50ms; eventual 1s").unwrap(), Forecast::default(), 1);
        let (_, achieved, tried) = serve(&aims, &mut forecast, &mut now_us, |ask| match ask.entry {
            0 => (50_000, too_few.clone()),
            _ => (30_000, read(Level::Eventual, Some(5))),
        });
        assert_eq!((tried, achieved.unwrap().entry), (vec![0, 1], 1));
        let (outcome, _, _) = serve(&aims, &mut Forecast::default(), &mut now_us, |ask| (u64::from(ask.dial.within_us.unwrap()), too_few.clone()));
        assert!(matches!(&outcome, Outcome::Failed(Failure::Timeout(what)) if what.contains("1 of the 2 replicas")), "{outcome:?}");
        // Others can have enough within reach.
        let aims = Arc::new(ServiceLevel::parse("eventual 1s 200ms").unwrap());
        let here_is_cut = |ask: &Ask| if ask.at.is_none() { (10, too_few.clone()) } else { (20_300, read(Level::Eventual, Some(40))) };
        let (achieved, _) = travel(&aims, &mut Forecast::default(), &mut 1, here_is_cut);
        assert_eq!(achieved.unwrap().at, Some(NEAR.dc));
    }

    #[test]
    fn an_entry_that_fails_at_once_is_passed_over_as_one_that_takes_too_long() {
        for text in ["strong 200ms; causal", "strong fresh 1s; causal"] {
            let (aims, mut forecast, mut now_us) = (ServiceLevel::parse(text).unwrap(), Forecast::default(), 1);
            let busy = |ask: &Ask| match ask.entry {
                0 => (10, Outcome::Failed(Failure::Busy("full".into()))),
                _ => (10, read(Level::Causal, Some(0))),
            };
            serve(&aims, &mut forecast, &mut now_us, busy);
            let (_, _, tried) = serve(&aims, &mut forecast, &mut now_us, busy);
            assert_eq!(tried, [1], "{text}");
        }
    }

    #[test]
    fn of_entries_that_are_as_unlikely_the_better_one_is_tried() {
        let (aims, mut forecast, mut now_us) = (ServiceLevel::parse("strong 200ms; causal 300ms").unwrap(), Forecast::default(), 1);
        let fails = |_: &Ask| (10, Outcome::Failed(Failure::Busy("full".into())));
        for _ in 0..2 {
            let (outcome, _, tried) = serve(&aims, &mut forecast, &mut now_us, fails);
            assert_eq!(tried, [0, 1]);
            assert!(matches!(outcome, Outcome::Failed(Failure::Timeout(_))));
        }
    }

    #[test]
    fn what_an_entry_says_is_asked_for_while_there_is_time() {
        let aims = Arc::new(ServiceLevel::parse("causal 1s 20ms; eventual").unwrap());
        let dial = Dial { groups: crate::dial::Groups(5), ..Dial::default() };
        let at = |now_us| Course::begin(&aims, dial, false, 0, 5_000_000, |_| true).next(&mut Forecast::default(), now_us).unwrap();
        assert_eq!(at(19_999).dial, Dial { level: Some(Level::Causal), fresh_ms: Some(1000), within_us: Some(1), ..dial });
        assert_eq!(at(20_000).dial, Dial { level: Some(Level::Eventual), within_us: Some(4_980_000), ..dial });
    }

    #[test]
    fn what_an_operation_is_decides_which_entries_are_for_it() {
        use crate::counter::{CounterCall, NewCounter, Scope};
        use crate::dial::AsOf;
        use crate::operation::{Action, Change};
        use crate::version::{Item, Key};
        let key = || Key::from(b"k".as_slice());
        let (get, put) = (|| Action::Get(key()), || Action::Put(Item { key: key(), value: None, expires_ms: 0 }));
        let dial = Dial::default();
        let transact = |actions: Vec<Action>| Operation::Transact { actions, guards: Vec::new(), dial };
        let add = CounterCall::Add { changes: smallvec::smallvec![(key(), 1)], scope: Scope::Local, name: None };
        let kind = |operation: &Operation, text: &str| match Request::of(operation.clone(), &ServiceLevel::parse(text).unwrap()) {
            Ok(Request::Read { several, .. }) => {
                if several {
                    "reads"
                } else {
                    "read"
                }
            }
            Ok(Request::Write(_)) => "write",
            Err(_) => "none",
        };
        for (operation, reads, writes) in [
            (Operation::Get { key: key(), dial }, "read", "none"),
            (Operation::Get { key: key(), dial: Dial { as_of: AsOf::new(rheostat_clock::Timestamp::new(1, 0)), ..dial } }, "none", "none"),
            (Operation::Siblings { key: key(), dial }, "read", "none"),
            (Operation::Counter { call: CounterCall::Look { key: key() }, dial }, "read", "none"),
            (Operation::Counter { call: add, dial }, "none", "write"),
            (Operation::Counter { call: CounterCall::Create { key: key(), counter: NewCounter::default() }, dial }, "none", "write"),
            (transact(vec![get(), get()]), "reads", "none"),
            (transact(vec![put()]), "none", "write"),
            (transact(vec![Action::Change(key(), Change::Delete)]), "none", "write"),
            (transact(vec![put(), get()]), "write", "write"),
            (transact(Vec::new()), "reads", "none"),
            (Operation::Scan { slot: 0, from: 0, limit: 1 }, "none", "none"),
        ] {
            assert_eq!((kind(&operation, "eventual"), kind(&operation, "durable 1")), (reads, writes), "{operation:?}");
        }
    }

    #[test]
    fn levels_that_a_keyspace_does_not_serve_are_not_tried() {
        let aims = Arc::new(shop());
        let mut course = Course::begin(&aims, Dial::default(), false, 0, 5_000_000, |level| level != Level::Strong);
        assert_eq!(course.next(&mut Forecast::default(), 0).unwrap().entry, 1);
        let mut course = Course::begin(&aims, Dial::default(), false, 0, 5_000_000, |_| false);
        assert_eq!(course.next(&mut Forecast::default(), 0), None);
        assert!(course.missed().to_string().contains("serves none of its levels"));
    }

    #[test]
    fn an_entry_without_a_bound_leaves_time_for_those_after_it() {
        let aims = ServiceLevel::parse("strong fresh 1s; causal fresh 1s; eventual").unwrap();
        let mut waits = Vec::new();
        let (_, achieved, tried) = serve(&aims, &mut Forecast::default(), &mut 1, |ask| {
            waits.push(ask.dial.within_us.unwrap());
            if ask.entry < 2 { (u64::from(ask.dial.within_us.unwrap()), late()) } else { (100, read(Level::Eventual, None)) }
        });
        assert_eq!((tried, achieved.unwrap().entry), (vec![0, 1, 2], 2));
        assert_eq!(waits, [2_500_000, 1_250_000, 1_250_000], "half of what is left, and the last one all of it");
        // One that has a bound of its own has that, and one before bounded ones has all the time.
        let aims = Arc::new(ServiceLevel::parse("strong 1s; causal fresh 1s; causal 20ms").unwrap());
        let mut course = Course::begin(&aims, Dial::default(), false, 0, 5_000_000, |_| true);
        assert_eq!(course.next(&mut Forecast::default(), 0).unwrap().dial.within_us, Some(1_000_000));
        assert_eq!(course.next(&mut Forecast::default(), 500_000).unwrap().dial.within_us, Some(4_500_000));
    }

    #[test]
    fn no_attempt_outlives_the_longest_time_of_an_operation() {
        let aims = ServiceLevel::parse("strong 1m; causal").unwrap();
        let (mut forecast, mut now_us) = (Forecast::default(), 1);
        let (outcome, _, tried) = serve(&aims, &mut forecast, &mut now_us, |ask| (u64::from(ask.dial.within_us.unwrap()), late()));
        assert_eq!((tried, now_us), (vec![0, 1], 5_000_001));
        assert!(matches!(outcome, Outcome::Failed(Failure::Timeout(_))));
    }
}
