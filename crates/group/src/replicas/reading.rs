//! Reads at a member that does not lead, or has no lease to: at level eventual, of what the group has decided and this member has applied.
//!
//! They take no way to the leader, and go on while there is none. What they answer may be older than what the same client has read elsewhere, as that level says; what it has written is there, unless nobody leads. Nothing of it was not decided: what only a leader has stands in front of its store.

use super::{Replicas, Seat, Sits};
use rheostat_clock::Timestamp;
use rheostat_core::answer::{Quality, Read};
use rheostat_core::dial::Level;
use rheostat_core::ids::Now;
use rheostat_core::operation::Operation;
use rheostat_core::outcome::Outcome;
use rheostat_core::reserved::is_reserved;
use rheostat_core::session::Session;
use rheostat_core::store::Store;

impl<F: Seat> Replicas<F> {
    /// The answer to `operation`, if this member has all that it needs: a GET at level eventual whose value is a client's own, of a session whose writes are here. Else whoever leads is to answer.
    pub(super) fn read_here(&mut self, now: Now, operation: &Operation, session: &Session) -> Option<Outcome> {
        let key = match operation {
            Operation::Get { key, .. } if self.config.planted.is("replicas-followers-answer-anything") => key,
            operation => operation.key_for_anyone()?,
        };
        // One that is being filled lacks keys that have been there for long.
        let is_whole = self.standing.counts(self.member.configuration()) && self.applied >= self.whole_at;
        if !is_whole || !self.seat.reads_alone() || is_reserved(key) || !self.seat.holders().contains(&self.here().dc) {
            return None;
        }
        let is_led = self.member.leader().is_some_and(|leader| leader != self.standing.me());
        let written = session.last_write(self.here().dc);
        // Of one that leads and has no lease, what is decided too.
        let store = match &mut self.sits {
            Sits::Follows(ahead) => ahead.base_mut(),
            Sits::Leads(server) => self.seat.store_mut(server).base_mut(),
            Sits::Gone => return None,
        };
        store.readable().ok()?;
        let lacks = written > store.newest_own() || written > Timestamp::ZERO && written <= self.unsure_upto;
        if is_led && lacks {
            return None;
        }
        let read = store.latest(key, |_| true).map_or_else(Read::default, |version| Read::of(version, now.physical_ms));
        // What an error was has no place in a read: the leader's store is another one.
        store.readable().ok()?;
        if read.value.as_ref().is_some_and(|value| !self.seat.is_plain(value)) {
            return None;
        }
        self.read_here += 1;
        Some(Outcome::Read(read, Quality { level: Level::Eventual, staleness_ms: None }))
    }
}
