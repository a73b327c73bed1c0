//! Greetings ([`crate::hello`]) where the servers of a data center keep a partition together.
//!
//! A data center must not use rights that were taken over while it was down; and it was down if all its servers were. So a hello is said for the group: the leader that says one
//! tells the others of it while they run, and whoever leads next goes on with the one that it was told of. One who has been told of none says a new one, and hears of the older one from those who know it.
//! Of two hellos that are known among servers that run, the older one is as good: not all of them have been down since. So a member that starts while others run changes nothing, and a change of leaders needs no
//! other data center.

use super::update::Batch;
use super::{Counting, keys};
use crate::hello::Greetings;
use rheostat_clock::Timestamp;
use rheostat_core::answer::Read;
use rheostat_core::dial::Dial;
use rheostat_core::ids::Now;
use rheostat_core::operation::{Guard, Operation};
use rheostat_core::outcome::Outcome;
use rheostat_core::replica::Execution;
use rheostat_core::version::{Key, VersionId};
use rheostat_core::wire::Wire;

/// How often a leader tells its group of the hello, in microseconds.
const TELL_US: u64 = 500_000;

impl Counting {
    /// What is at `key`, if everything is here that its writer had written before. A group takes in what another data center ships from a snapshot in any order; a session
    /// that has read a version waits until all before it is here.
    pub(super) fn whole(&mut self, now: Now, key: Key) -> Option<Read> {
        let mut session = self.inner.new_session();
        let mut read = None;
        for _ in 0..2 {
            match self.inner.execute(
                now,
                Operation::Get { key: key.clone(), dial: Dial { quorum: self.alone(), ..Dial::default() } },
                &mut session,
                &mut self.box_,
            ) {
                Execution::Done { outcome: Outcome::Read(found, _), .. } => read = Some(found),
                Execution::Done { .. } => return None,
                Execution::Waiting(op) => {
                    self.inner.abandon(op);
                    return None;
                }
            }
        }
        read
    }

    /// A leader reads what there is of greetings, and greets whom it has not.
    pub(super) fn recall_in_group(&mut self, now: Now) {
        if !self.led.own_known {
            let Ok((read, _)) = self.newest(now, &keys::hello(self.circle.here)) else { return };
            self.led.greetings_version = read.version;
            self.greetings = read.value.and_then(|value| Greetings::from_bytes(&value).ok()).unwrap_or_default();
            (self.led.own_known, self.led.look_at_parked) = (true, true);
        }
        let others: Vec<_> = self.circle.others().collect();
        let mut all = true;
        for dc in others {
            let Some(read) = self.whole(now, keys::hello(dc)) else {
                all = false;
                continue;
            };
            let Some(theirs) = read.value.and_then(|value| Greetings::from_bytes(&value).ok()) else { continue };
            self.greetings_changed |= self.greetings.greet(dc, &theirs);
            let greeted = theirs.greeted.get(&self.circle.here).copied().unwrap_or(0);
            self.led.look_at_parked |= self.greeted_by.insert(dc, greeted) != Some(greeted);
        }
        self.led.others_known = all;
    }

    /// Reads again what could not be read before, or was not written.
    pub(super) fn greet_again(&mut self, now: Now) {
        if self.is_grouped() && self.owns() && !(self.led.own_known && self.led.others_known) {
            self.recall_in_group(now);
        }
    }

    /// Another server has told of `hello`; one that is older and known here is to be told in turn.
    pub(super) fn hear_hello(&mut self, hello: (u64, Timestamp)) -> Option<(u64, Timestamp)> {
        let first = self.led.told.map_or(hello, |told| told.min(hello));
        self.led.told = Some(first);
        if self.owns() && self.said.is_some_and(|said| first < said) {
            (self.said, self.led.look_at_parked) = (Some(first), true);
        }
        (first < hello).then_some(first)
    }

    /// Goes on with the hello that an earlier leader has told of, or says one.
    pub(super) fn say_hello_in_group(&mut self) {
        if !self.led.own_known || self.led.saying {
            return;
        }
        if let Some((number, at)) = self.led.told
            && number <= self.greetings.hello
        {
            self.said = Some((number, at));
            return;
        }
        self.greetings.hello += 1;
        (self.led.saying, self.greetings_changed) = (true, true);
    }

    fn has_greetings(&self, batch: &Batch) -> bool {
        let key = keys::hello(self.circle.here);
        self.is_grouped() && batch.extra.iter().any(|item| item.key == key)
    }

    /// What must hold where `batch` writes this data center's greetings.
    pub(super) fn guard_of_greetings(&self, batch: &Batch) -> Option<Guard> {
        self.has_greetings(batch).then(|| Guard { key: keys::hello(self.circle.here), version: self.led.greetings_version })
    }

    /// `batch` was written by `version`, the greetings that are in it too.
    pub(super) fn greetings_written(&mut self, batch: &Batch, version: VersionId) {
        if !self.has_greetings(batch) {
            return;
        }
        self.led.greetings_version = Some(version);
        if batch.says_hello && self.led.saying {
            self.led.saying = false;
            let said = (self.greetings.hello, version.written);
            self.said = Some(self.led.told.map_or(said, |told| told.min(said)));
            self.led.told = self.said;
            self.led.tell_at_us = 0;
            self.led.look_at_parked = true;
        }
    }

    /// Something was not written, or perhaps, and greetings may have been in it: they are to be read again.
    pub(super) fn greetings_not_written(&mut self) {
        (self.led.own_known, self.led.others_known, self.led.saying, self.greetings_changed) = (false, false, false, false);
    }

    /// Tells the group of the hello, if it is time.
    pub(super) fn tell_hello(&mut self, now: Now) {
        if now.monotonic_us < self.next_hello_us() {
            return;
        }
        if let Some((number, at)) = self.said {
            self.led.tell_at_us = now.monotonic_us + TELL_US;
            self.tell_all(number, at);
        }
    }

    /// When the group is told of the hello, or greetings are read, again.
    pub(super) fn next_hello_us(&self) -> u64 {
        let tells = self.is_grouped() && self.owns() && self.setup.place.replicas > 1 && self.circle.members.len() > 1 && self.said.is_some();
        if tells { self.led.tell_at_us } else { u64::MAX }
    }
}
