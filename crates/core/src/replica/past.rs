//! Reads of the past: each key as it was at a time, for all that every data center has written. See [`Dial::as_of`].
//!
//! What was written up to a time is a cut: the same in every data center, once everything up to there has arrived and this server's own clock has passed it. Where a write's timestamp
//! is above those of what it follows, nobody finds an effect in it without its cause.

use super::waiting::{Asked, Past, Stage, failed, filling};
use super::{Done, Execution, Outbox, Replica};
use crate::answer::{Quality, Read};
use crate::dial::{Dial, Level, Quorum};
use crate::failure::Failure;
use crate::ids::{Now, OpId};
use crate::outcome::Outcome;
use crate::protocol::Protocol;
use crate::session::Session;
use crate::slots;
use crate::store::Store;
use crate::version::Key;
use rheostat_clock::{DcId, Timestamp};

impl<P: Protocol, S: Store<P::Meta>> Replica<P, S> {
    /// Reads keys as of `at`, now or when everything up to there is here.
    pub(super) fn read_past(&mut self, now: Now, asked: Asked, at: Timestamp, dial: Dial, session: &Session, out: &mut Outbox) -> Execution {
        if let Err(refused) = self.check_past(now, &asked, at, dial) {
            return failed(refused);
        }
        let past = Past { asked, at };
        if dial.level == Some(Level::Eventual) {
            let outcome = self.past(now, &past, Level::Eventual);
            return self.looked(outcome);
        }
        if self.comes_in_parts() {
            return failed(filling());
        }
        // From now on nothing is written here that would belong there.
        self.step(now, out, |_, step| step.clock.raise(at));
        match self.lacks_of_past(at) {
            None => {
                let outcome = self.past(now, &past, P::LEVEL);
                self.looked(outcome)
            }
            Some(_) if self.pending.len() >= self.config.max_waiting => self.busy(),
            Some(lacks) => {
                self.parked_reason = Some(lacks);
                let (op, deadline_us) = (self.new_op(), self.deadline_us(now, dial.within_us));
                self.wait(op, session, Stage::Past(Box::new(past)), deadline_us)
            }
        }
    }

    /// Whether keys can be read as of `at` at all.
    fn check_past(&self, now: Now, asked: &Asked, at: Timestamp, dial: Dial) -> Result<(), Failure> {
        let refused = |why: String| Err(Failure::Refused(why));
        let place = self.config.place;
        if let Some(asked) = dial.level
            && P::serves(asked).is_none()
        {
            return refused(format!("protocol {} gives level {}, not {asked}", P::NAME, P::LEVEL));
        }
        if dial.fresh_ms.is_some() || dial.quorum != Quorum::KEYSPACE {
            return refused(
                "a read as of a time in the past has neither freshness nor quorum: what it returns does not depend on who answers".into(),
            );
        }
        if !P::CAN.timed && dial.level != Some(Level::Eventual) {
            let why = "reads the past at level eventual only, as what had been applied at this server";
            return refused(format!("protocol {} {why}", P::NAME));
        }
        if asked.keys().iter().any(|key| slots::partition_of(key, place.partitions) != place.server.partition) {
            return refused("keys of several partitions in one read of the past; each partition is asked for its own".into());
        }
        self.check_kept(now, at)
    }

    /// As [`Replica::check_window`], but what is held for a backup is kept, too.
    pub(super) fn check_kept(&self, now: Now, at: Timestamp) -> Result<(), Failure> {
        if self.is_held(now, at) { Ok(()) } else { self.check_window(now, at) }
    }

    /// Whether the state as of `at` is kept: within the window, or as a checkpoint. Errors: it never was, not any more, or not yet.
    pub(super) fn check_window(&self, now: Now, at: Timestamp) -> Result<(), Failure> {
        let checkpoints = self.config.checkpoints;
        let is_one = checkpoints.has(at) || checkpoints.every_ms > 0 && self.config.planted.is("any-time-taken-for-a-checkpoint");
        let kept = is_one && self.config.history_ms > 0 && at.millis() <= now.physical_ms && at >= self.checkpoints_from(now);
        if kept { Ok(()) } else { self.check_every_time_since(now, at) }
    }

    /// From when on checkpoints are whole.
    fn checkpoints_from(&self, now: Now) -> Timestamp {
        let oldest_ms = self.config.checkpoints.oldest_ms(now.physical_ms, self.config.history_ms);
        self.journal.saved.checkpoints_from.max(Timestamp::new(oldest_ms, 0))
    }

    /// Which moments before the window can be had, in words, and which of them are nearest to `at`.
    fn checkpoints_in_words(&self, now: Now, at: Timestamp) -> String {
        let every_ms = self.config.checkpoints.every_ms;
        if every_ms == 0 {
            return String::new();
        }
        let (first, window) = (self.checkpoints_from(now), self.journal.saved.whole_from);
        let oldest_ms = (first.millis() + u64::from(first.counter() > 0)).next_multiple_of(every_ms);
        let newest_ms = window.millis() - window.millis() % every_ms;
        if newest_ms < oldest_ms {
            return format!("; before that, as of each multiple of {every_ms} ms (`history_every_ms`), of which there is none yet");
        }
        let before = (at.millis() - at.millis() % every_ms).clamp(oldest_ms, newest_ms);
        let after = before.saturating_add(every_ms).min(newest_ms);
        let nearest = if before == after || at.millis() < oldest_ms {
            format!("the nearest is {before}")
        } else {
            format!("the nearest are {before} and {after}")
        };
        format!("; before that, as of each multiple of {every_ms} ms (`history_every_ms`) from {oldest_ms} to {newest_ms}: {nearest}")
    }

    /// Whether the state as of `at`, and of every time since, is kept. Errors: it never was, not any more, or not yet.
    pub(super) fn check_every_time_since(&self, now: Now, at: Timestamp) -> Result<(), Failure> {
        let refused = |why: String| Err(Failure::Refused(why));
        let (from, history_ms) = (self.journal.saved.whole_from, self.config.history_ms);
        if history_ms == 0 {
            return refused("this keyspace keeps no history; its `history_ms` says how long what was replaced is kept".into());
        }
        if at.millis() > now.physical_ms {
            return refused(format!("{} is in the future: this server's clock shows {}", at.millis(), now.physical_ms));
        }
        if at < from {
            let (kept, began) = (history_ms as f64 / 1e3, from.millis());
            let checkpoints = self.checkpoints_in_words(now, at);
            return refused(format!(
                "{at} is before what is kept: the history here is whole from {began} on, and kept for {kept} s (`history_ms`){checkpoints}"
            ));
        }
        Ok(())
    }

    /// What has not arrived yet of what was written up to `at`, in words; `None` if everything has.
    pub(super) fn lacks_of_past(&self, at: Timestamp) -> Option<String> {
        if self.config.planted.is("past-read-before-it-is-here") {
            return None;
        }
        let late: Vec<DcId> = self.peers.awaited().filter(|dc| self.peers.received().get(*dc) < at).collect();
        let named = || late.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        (!late.is_empty()).then(|| format!("what was written until {at} in data center {} (level eventual reads what is here)", named()))
    }

    fn past(&mut self, now: Now, past: &Past, level: Level) -> Outcome {
        let Past { asked, at } = past;
        let complete = P::CAN.timed && !self.lacks() && self.lacks_of_past(*at).is_none();
        let quality = Quality { level, staleness_ms: complete.then(|| now.physical_ms.saturating_sub(at.millis())) };
        let mut read = |key: &Key| {
            self.store.latest(key, |version| version.id.written <= *at).map_or_else(Read::default, |version| Read::of(version, at.millis()))
        };
        match asked {
            Asked::One(key) => Outcome::Read(read(key), quality),
            Asked::Several(keys) => Outcome::Many(keys.iter().map(read).collect(), quality),
        }
    }

    /// Answers the read `op` if what it waits for has come; says whether.
    pub(super) fn look_at_past(&mut self, now: Now, op: OpId, past: &Past, out: &mut Outbox) -> bool {
        if let Some(lacks) = self.lacks_of_past(past.at) {
            if let Some(pending) = self.pending.get_mut(&op) {
                pending.waits_for = lacks;
            }
            self.stale.push_back(op);
            return false;
        }
        // What was kept when it was asked for can be gone by now, or come in parts.
        let outcome = match self.check_kept(now, past.at) {
            Ok(()) if !self.comes_in_parts() => self.past(now, past, P::LEVEL),
            Ok(()) => Outcome::Failed(filling()),
            Err(failure) => Outcome::Failed(failure),
        };
        let outcome = match self.store.readable() {
            Ok(()) => outcome,
            Err(error) => Outcome::Failed(self.fail(&error)),
        };
        if let Some(pending) = self.pending.remove(&op) {
            self.hold(Done { op, outcome, session: pending.session }, out);
        }
        true
    }
}
