//! Values that expire: what clients ask for, and between when and when the servers' clocks took it for expired.
//!
//! EXPIRE and PERSIST write the value again under a version of its own. In the history it is another value then, so that each is written once: what was read under the version
//! of such a change is renamed when the run has ended.

use crate::clock::EPOCH_MS;
use crate::marks;
use crate::plan::{Action, Plan};
use crate::world::World;
use rheostat_checkers::{self as checkers, Event, EventId, Expiry, History, KeyId, Observation, Outcome, UniqueValue};
use rheostat_core::answer::Read;
use rheostat_core::version::VersionId;
use std::collections::{BTreeMap, BTreeSet};

/// What expires later than so many milliseconds after the load has not expired when everything is looked at.
const LONG_MS: u64 = 60_000;

/// What a client asked for that expires.
#[derive(Default)]
pub(crate) struct Expiring {
    /// The writes, and when what they write expires, in milliseconds since the Unix epoch.
    made: BTreeMap<EventId, u64>,
    /// Changes of an expiry alone.
    again: BTreeSet<EventId>,
    /// When what was read expires, by its version; 0 is never.
    told: BTreeMap<VersionId, u64>,
    /// Where a change is decided at the time that it is stamped with: when some server's stamps had come to which time, in milliseconds since the Unix epoch.
    stamped: Vec<(u64, u64)>,
}

impl Expiring {
    /// Whether a client asked for anything that expires.
    pub(crate) fn is_empty(&self) -> bool {
        self.made.is_empty() && self.again.is_empty()
    }

    /// When the last value expires of those that do not outlive the run, in milliseconds since the Unix epoch.
    pub(crate) fn last_ms(&self, now_us: u64) -> u64 {
        let soon = |ms: &u64| *ms < EPOCH_MS + now_us / 1000 + LONG_MS;
        self.made.values().copied().filter(soon).max().unwrap_or(0)
    }
}

/// What a client asks for, and when what it writes expires, if it does.
pub(super) fn unwrapped(action: &Action, now_us: u64) -> (&Action, Option<u64>) {
    let at = |lives_ms: u64| (EPOCH_MS + now_us / 1000).saturating_add(lives_ms);
    match action {
        Action::Expiring { lives_ms, action } => (action, Some(at(*lives_ms))),
        Action::Expire { lives_ms, .. } => (action, lives_ms.map(at)),
        action => (action, None),
    }
}

impl World<'_> {
    /// A client has asked for `action`, and what it writes expires at `expires_ms`, if it does.
    pub(super) fn note_expiring(&mut self, action: &Action, event: Option<EventId>, expires_ms: Option<u64>) {
        if matches!(action, Action::Expire { .. }) {
            self.expiring.again.extend(event);
        }
        let Some(expires_ms) = expires_ms else { return };
        self.expiring.made.extend(event.map(|event| (event, expires_ms)));
        // It can be gone as what was deleted can.
        action.keys().into_iter().for_each(|key| self.written[key].deleted = true);
    }

    /// A reply has come: whatever time it was stamped with, some server's stamps had come to.
    pub(super) fn note_stamps(&mut self) {
        if self.keeps_bounds && !self.expiring.is_empty() {
            let newest_ms = self.newest_timestamp().millis();
            if self.expiring.stamped.last().is_none_or(|(_, ms)| *ms < newest_ms) {
                self.expiring.stamped.push((self.now_us, newest_ms));
            }
        }
    }

    /// A client was told when something expires.
    pub(super) fn note_told(&mut self, read: &Read) {
        if let (Some(_), Some(version)) = (&read.value, read.version)
            && !self.expiring.is_empty()
        {
            self.expiring.told.insert(version, read.expires_ms);
        }
    }

    /// Between when and when the servers' clocks came to `expires_ms`.
    fn expiry_at(&self, expires_ms: u64) -> Expiry {
        if self.plan.watched {
            return Expiry { from_us: 0, until_us: u64::MAX };
        }
        let shown = self.servers.iter().map(|server| server.clock.passes(expires_ms));
        let (from_us, until_us) =
            shown.fold((u64::MAX, 0), |(from_us, until_us), (first_us, last_us)| (from_us.min(first_us), until_us.max(last_us)));
        let stamped = self.expiring.stamped.iter().find(|(_, ms)| *ms >= expires_ms).map_or(u64::MAX, |(at_us, _)| *at_us);
        let from_us = from_us.min(stamped);
        Expiry { from_us, until_us: until_us.max(from_us) }
    }

    /// Says in the record when what was written expires.
    pub(crate) fn record_expiries(&mut self) {
        for (event, expires_ms) in &self.expiring.made {
            self.history.expires(*event, self.expiry_at(*expires_ms));
        }
    }

    /// Names what changes of an expiry have written again. `None` where nobody can tell which write a value was read of; such a history is not judged.
    pub(crate) fn rename_written_again(&mut self, mut history: History) -> Option<History> {
        if self.expiring.again.is_empty() {
            return Some(history);
        }
        let names = Names::of(&history, &self.expiring)?;
        for event in &mut history.events {
            let keys: Vec<KeyId> = event.observations().map(|(key, _)| key).collect();
            let observed: &mut [Observation] = match &mut event.outcome {
                Outcome::Read(observed) => observed,
                Outcome::Changed { before: Some(before), .. } => std::slice::from_mut(before),
                _ => &mut [],
            };
            keys.into_iter().zip(observed).for_each(|(key, observed)| names.rename(key, observed));
        }
        history.finals.iter_mut().for_each(|read| names.rename(read.key, &mut read.observed));
        Some(history)
    }

    /// Sees the marks that only the whole history shows.
    pub(crate) fn note_expired(&mut self, history: &History) {
        let writes = || history.expiring.iter().map(|(id, _)| history.event(*id));
        let values: BTreeSet<UniqueValue> = writes().flat_map(Event::items).filter_map(|item| item.value).collect();
        let versions: BTreeSet<VersionId> = writes().filter_map(|event| event.acknowledged().flatten()).collect();
        for event in &history.events {
            for (_, observed) in event.observations() {
                let expired = observed.value.is_none() && observed.version.is_some_and(|version| versions.contains(&version));
                self.marks.see_times(marks::EXPIRING_READ, u64::from(observed.value.is_some_and(|value| values.contains(&value))));
                self.marks.see_times(marks::EXPIRED_READ, u64::from(expired));
                let claims = matches!(event.action, checkers::Action::Change { condition: checkers::Condition::Absent, .. });
                self.marks.see_times(marks::EXPIRED_CLAIMED, u64::from(expired && claims && event.acknowledged().is_some()));
            }
        }
    }
}

/// What values are called that were written again.
struct Names(BTreeMap<(KeyId, VersionId), UniqueValue>);

impl Names {
    /// What a write without a reply wrote is known by when it expires. `None` where nobody can tell even so.
    fn of(history: &History, expiring: &Expiring) -> Option<Names> {
        let mut names = BTreeMap::new();
        let mut open: Vec<EventId> = Vec::new();
        let mut plain: BTreeMap<UniqueValue, EventId> = BTreeMap::new();
        for (id, event) in history.numbered() {
            for item in event.items() {
                match (expiring.again.contains(&id), event.acknowledged().flatten(), item.value) {
                    (true, Some(version), Some(name)) => drop(names.insert((item.key, version), name)),
                    (true, None, _) => open.push(id),
                    (false, _, Some(value)) => drop(plain.insert(value, id)),
                    _ => {}
                }
            }
        }
        let finals = history.finals.iter().map(|read| (read.key, read.observed));
        for (key, observed) in history.events.iter().flat_map(Event::observations).chain(finals) {
            let (Some(value), Some(version)) = (observed.value, observed.version) else { continue };
            // What nobody wrote is for the checkers to say.
            let Some(writer) = plain.get(&value) else { continue };
            let known = history.event(*writer).acknowledged();
            if names.contains_key(&(key, version)) || known.flatten() == Some(version) {
                continue;
            }
            let expires_ms = expiring.told.get(&version).copied().unwrap_or(0);
            let may = |id: &EventId| expiring.made.get(id).copied().unwrap_or(0) == expires_ms && history.event(*id).dc == version.origin;
            let fitting: Vec<usize> =
                (0..open.len()).filter(|place| history.event(open[*place]).items()[0].key == key && may(&open[*place])).collect();
            match (known.is_none() && may(writer), fitting.as_slice()) {
                (true, []) => {}
                (false, [only]) => {
                    let name = history.event(open.remove(*only)).items()[0].value?;
                    names.insert((key, version), name);
                }
                _ => return None,
            }
        }
        Some(Names(names))
    }

    fn rename(&self, key: KeyId, observed: &mut Observation) {
        if let (Some(_), Some(version)) = (observed.value, observed.version)
            && let Some(name) = self.0.get(&(key, version))
        {
            observed.value = Some(*name);
        }
    }
}

/// Whether a client of `plan` asks for anything that expires.
pub(crate) fn draws_expiry(plan: &Plan) -> bool {
    let mut actions = plan.clients.iter().flat_map(|client| &client.steps).map(|step| &step.action);
    actions.any(|action| matches!(action, Action::Expiring { .. } | Action::Expire { .. }))
}
