//! Recording a history while it happens.

use crate::history::{Action, Event, EventId, Expiry, FinalRead, History, KeyId, Observation, Outcome, SessionId, UniqueValue};
use rheostat_clock::DcId;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Why a record was refused: the recorder is used wrongly.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HistoryError(String);

impl fmt::Display for HistoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for HistoryError {}

/// Records a [`History`]. Times are microseconds on the recorder's one clock.
#[derive(Clone, Debug, Default)]
pub struct HistoryBuilder {
    history: History,
    key_ids: BTreeMap<Vec<u8>, KeyId>,
    /// The operation that a session has under way.
    open: BTreeMap<SessionId, EventId>,
    /// The last event of a session that was answered.
    answered: BTreeMap<SessionId, EventId>,
    lost_allowed: BTreeSet<EventId>,
    expiring: BTreeMap<EventId, Expiry>,
    values: u64,
}

impl HistoryBuilder {
    /// A recorder for a cluster of `data_centers` data centers.
    pub fn new(data_centers: u8) -> HistoryBuilder {
        HistoryBuilder { history: History { data_centers, ..History::default() }, ..HistoryBuilder::default() }
    }

    /// The number of `key` in this history; the same each time.
    pub fn key(&mut self, key: &[u8]) -> KeyId {
        if let Some(id) = self.key_ids.get(key) {
            return *id;
        }
        let id = KeyId(self.history.keys.len() as u32);
        self.history.keys.push(key.to_vec());
        self.key_ids.insert(key.to_vec(), id);
        id
    }

    /// A value that no earlier call returned.
    pub fn fresh_value(&mut self) -> UniqueValue {
        self.values += 1;
        UniqueValue(self.values)
    }

    /// Records that `session` asks for `action` at `dc`. The outcome is unknown until [`HistoryBuilder::end`] says it.
    ///
    /// # Errors
    ///
    /// The session still has an operation under way.
    pub fn begin(&mut self, session: SessionId, dc: DcId, now_us: u64, action: Action) -> Result<EventId, HistoryError> {
        if let Some(open) = self.open.get(&session) {
            return Err(HistoryError(format!("{session} begins an operation while {open} is under way")));
        }
        let id = EventId(self.history.events.len() as u32);
        self.history.events.push(Event { session, dc, invoked_us: now_us, completed_us: None, action, outcome: Outcome::Unknown });
        self.open.insert(session, id);
        Ok(id)
    }

    /// Records the reply to `event`.
    ///
    /// # Errors
    ///
    /// The event is not under way.
    pub fn end(&mut self, event: EventId, now_us: u64, outcome: Outcome) -> Result<(), HistoryError> {
        let session = self.close(event)?;
        let record = &mut self.history.events[event.index()];
        if outcome != Outcome::Unknown {
            record.completed_us = Some(now_us);
            record.outcome = outcome;
            self.answered.insert(session, event);
        }
        Ok(())
    }

    /// Records that nobody waits for the reply to `event` any more: it stays unknown, and its session may go on.
    ///
    /// # Errors
    ///
    /// The event is not under way.
    pub fn unknown(&mut self, event: EventId) -> Result<(), HistoryError> {
        self.close(event).map(|_| ())
    }

    fn close(&mut self, event: EventId) -> Result<SessionId, HistoryError> {
        let session = self.history.events.get(event.index()).map(|record| record.session);
        match session {
            Some(session) if self.open.get(&session) == Some(&event) => {
                self.open.remove(&session);
                Ok(session)
            }
            _ => Err(HistoryError(format!("{event} is not under way"))),
        }
    }

    /// Names the token of `session` as it is now, for [`HistoryBuilder::adopt`] now or later; `None` while nothing has been
    /// answered to it.
    pub fn token(&self, session: SessionId) -> Option<EventId> {
        self.answered.get(&session).copied()
    }

    /// Records that `session` takes over `tokens`, each from [`HistoryBuilder::token`].
    ///
    /// # Errors
    ///
    /// The session still has an operation under way.
    pub fn adopt(&mut self, session: SessionId, dc: DcId, now_us: u64, tokens: &[EventId]) -> Result<EventId, HistoryError> {
        let event = self.begin(session, dc, now_us, Action::Adopt { from: tokens.to_vec() })?;
        self.end(event, now_us, Outcome::Adopted)?;
        Ok(event)
    }

    /// Says that the write `event` may be gone: it was acknowledged under a weaker durability, and its server lost power.
    pub fn allow_loss(&mut self, event: EventId) {
        self.lost_allowed.insert(event);
    }

    /// Says when what the write `event` writes expires.
    pub fn expires(&mut self, event: EventId, expiry: Expiry) {
        self.expiring.insert(event, expiry);
    }

    /// Records what `dc` holds of `key` in the end.
    pub fn final_read(&mut self, at_us: u64, dc: DcId, key: KeyId, observed: Observation) {
        self.history.finals.push(FinalRead { at_us, dc, key, observed });
    }

    /// The events so far; those under way stand as unknown.
    pub fn events(&self) -> &[Event] {
        &self.history.events
    }

    /// The history. What is still under way stays unknown.
    ///
    /// # Errors
    ///
    /// The history makes no sense: [`History::validate`].
    pub fn finish(self) -> Result<History, HistoryError> {
        let mut history = self.history;
        history.lost_allowed = self.lost_allowed.into_iter().collect();
        history.expiring = self.expiring.into_iter().collect();
        history.validate().map_err(HistoryError)?;
        Ok(history)
    }
}
