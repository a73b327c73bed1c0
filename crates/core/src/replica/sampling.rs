//! What other levels would have returned, of a sample of reads: see [`crate::notch`].

use super::{Execution, Replica};
use crate::answer::Read;
use crate::dial::Level;
use crate::ids::{Now, OpId};
use crate::notch::{Asked, Held, NOBODY, Shown};
use crate::operation::Operation;
use crate::outcome::Outcome;
use crate::protocol::{Client, Protocol};
use crate::reserved::is_reserved;
use crate::session::Session;
use crate::store::Store;
use crate::version::Version;
use rheostat_clock::Timestamp;

/// Sampled writes that wait to be visible.
const MOST_UNSEEN: usize = 256;

/// Keys that are longer are not sampled, since samples keep them.
const LONGEST_KEY: usize = 1024;

/// How `version` stands to a reader at `now`.
fn held<M>(now: Now, version: &Version<M>) -> Held {
    Held { id: version.id, live: version.live(now.physical_ms).is_some() }
}

/// What came of a sampled read; `None`: it failed.
fn answer(outcome: &Outcome) -> Option<(Level, Shown)> {
    match outcome {
        Outcome::Read(Read { value, version, .. }, quality) => Some((quality.level, version.filter(|_| value.is_some()))),
        _ => None,
    }
}

impl<P: Protocol, S: Store<P::Meta>> Replica<P, S> {
    /// Begins to follow `operation` if it is a read of one key in the present and its turn to be sampled; returns its number then.
    #[inline]
    pub(super) fn sample(&mut self, now: Now, operation: &Operation, session: &Session) -> Option<u64> {
        match operation {
            Operation::Get { dial, .. } if dial.as_of.is_none() && dial.label != NOBODY && self.journal.notches.is_due() => {
                self.begin_sample(now, operation, session)
            }
            _ => None,
        }
    }

    #[cold]
    fn begin_sample(&mut self, now: Now, operation: &Operation, session: &Session) -> Option<u64> {
        let Operation::Get { key, dial } = operation else { return None };
        if is_reserved(key) || key.len() > LONGEST_KEY || self.journal.failed.is_some() || self.is_filling() {
            return None;
        }
        let level = dial.level.map_or(Some(P::LEVEL), P::serves)?;
        let newest = self.store.latest(key, |_| true).map(|version| held(now, version));
        let (protocol, here) = (&self.protocol, self.config.place.dc());
        // A session from elsewhere would have to wait, for nobody knows what.
        let own = match session.client::<P::Client>() {
            Some(client) if P::LEVEL == Level::Causal && (client.is_at_home(here) || client.newest() == Timestamp::ZERO) => {
                let version = self.store.latest(key, |version| protocol.visible(client, version));
                Some(version.map(|version| held(now, version)).filter(|held| held.live).map(|held| held.id))
            }
            _ => None,
        };
        Some(self.journal.notches.begin(now, Asked { key: key.clone(), level, label: dial.label, newest, own }))
    }

    /// The sampled read with this number was executed.
    #[cold]
    pub(super) fn sampled_ends(&mut self, now: Now, number: u64, execution: &Execution) {
        match execution {
            Execution::Done { outcome, .. } => self.journal.notches.answered(now, number, answer(outcome)),
            Execution::Waiting(op) => self.journal.notches.waits(number, *op),
        }
    }

    /// The operation `op`, which has waited, has this outcome.
    #[inline]
    pub(super) fn sampled_ended(&mut self, now: Now, op: OpId, outcome: &Outcome) {
        if self.journal.notches.any_under_way() {
            self.journal.notches.answered_later(now, op, answer(outcome));
        }
    }

    /// Looks at the sampled writes that a step has stored.
    #[inline]
    pub(super) fn sample_writes(&mut self, now: Now) {
        if self.journal.notches.has_new() {
            self.follow_writes(now);
        }
    }

    #[cold]
    fn follow_writes(&mut self, now: Now) {
        for (key, id) in self.journal.notches.take_new() {
            let found = self.store.latest(&key, |version| version.id == id);
            if let Some(version) = found.filter(|_| self.unseen.len() < MOST_UNSEEN) {
                self.unseen.push(Version { id, value: None, expires_ms: 0, meta: version.meta.clone() });
            }
        }
        self.look_for_seen(now);
    }

    fn look_for_seen(&mut self, now: Now) {
        let (protocol, notches, nobody) = (&self.protocol, &mut self.journal.notches, P::Client::default());
        self.unseen.retain(|version| {
            let visible = protocol.visible(&nobody, version);
            if visible {
                notches.seen(now, version.id.written);
            }
            !visible
        });
    }

    /// Settles sampled reads, once in a millisecond.
    #[inline]
    pub(super) fn settle_samples(&mut self, now: Now) {
        if self.journal.notches.may_settle(now, !self.unseen.is_empty()) {
            self.settle_now(now);
        }
    }

    #[cold]
    fn settle_now(&mut self, now: Now) {
        let known = self.everything_upto();
        self.journal.notches.settle(now, known);
        self.look_for_seen(now);
    }

    /// Everything that was written before this, anywhere, is here.
    fn everything_upto(&self) -> Timestamp {
        if !P::CAN.links {
            return self.protocol.stable().into_iter().min().unwrap_or_default();
        }
        let received = self.peers.received();
        self.peers.others(self.config.place.dc()).map(|dc| received.get(dc)).min().unwrap_or(Timestamp::MAX)
    }
}
