//! Sessions that connections of this node share by name, so that a pool of connections can serve one user's session.
//!
//! A connection takes in what the others have given before its requests run, and gives what it has seen before its replies leave.

use crate::keyspace::KeyspaceInfo;
use crate::shared::lock;
use rheostat_core::session::Session;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// The longest name, in bytes.
pub(crate) const LONGEST_NAME: usize = 256;

/// All named sessions of a node.
pub(crate) struct NamedSessions {
    most: usize,
    keep_us: u64,
    by_name: Mutex<BTreeMap<Box<[u8]>, Arc<Named>>>,
}

/// One of them.
struct Named {
    name: Box<[u8]>,
    /// By keyspace.
    sessions: Mutex<Vec<Option<Session>>>,
    /// How often something was given.
    gifts: AtomicU64,
    /// When a connection last used it, or went, on the monotonic clock.
    used_us: AtomicU64,
}

/// Why a name cannot be had.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NameError {
    /// It is empty, or longer than [`LONGEST_NAME`].
    Length,
    /// There are so many names in use already.
    TooMany(usize),
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NameError::Length => write!(f, "a session's name has from 1 to {LONGEST_NAME} bytes"),
            NameError::TooMany(most) => write!(f, "connections of this node use {most} named sessions already (limits.named_sessions)"),
        }
    }
}

impl NamedSessions {
    /// At most `most` names; one that no connection has used for `keep_ms` milliseconds is forgotten.
    pub(crate) fn new(most: usize, keep_ms: u64) -> NamedSessions {
        NamedSessions { most, keep_us: keep_ms.saturating_mul(1000), by_name: Mutex::default() }
    }

    /// The session called `name`, begun if there is none. Where there are too many, the one goes that was not used for longest and that no connection has.
    pub(crate) fn join(&self, now_us: u64, name: &[u8]) -> Result<Member, NameError> {
        if name.is_empty() || name.len() > LONGEST_NAME {
            return Err(NameError::Length);
        }
        let mut by_name = lock(&self.by_name);
        let is_old =
            |named: &Arc<Named>| Arc::strong_count(named) == 1 && now_us.saturating_sub(named.used_us.load(Ordering::Relaxed)) > self.keep_us;
        if by_name.get(name).is_some_and(is_old) {
            by_name.remove(name);
        }
        if let Some(named) = by_name.get(name) {
            named.used_us.store(now_us, Ordering::Relaxed);
            return Ok(Member::new(named.clone(), now_us));
        }
        if by_name.len() >= self.most {
            by_name.retain(|_, named| !is_old(named));
        }
        if by_name.len() >= self.most {
            let free = by_name.values().filter(|named| Arc::strong_count(named) == 1);
            let Some(oldest) = free.min_by_key(|named| named.used_us.load(Ordering::Relaxed)).map(|named| named.name.clone()) else {
                return Err(NameError::TooMany(self.most));
            };
            by_name.remove(&oldest);
        }
        let named = Arc::new(Named { name: name.into(), sessions: Mutex::default(), gifts: AtomicU64::new(0), used_us: AtomicU64::new(now_us) });
        by_name.insert(name.into(), named.clone());
        Ok(Member::new(named, now_us))
    }
}

/// A connection's part in a named session.
pub(crate) struct Member {
    named: Arc<Named>,
    /// How many gifts it has taken in.
    taken: u64,
    /// When it joined, on the monotonic clock and as the system tells it: from both follows when it goes.
    joined: (u64, Instant),
}

impl Drop for Member {
    /// The session was in use until now, however long the connection has asked for nothing.
    fn drop(&mut self) {
        let (joined_us, joined) = self.joined;
        self.named.used_us.fetch_max(joined_us.saturating_add(joined.elapsed().as_micros() as u64), Ordering::Relaxed);
    }
}

impl Member {
    fn new(named: Arc<Named>, now_us: u64) -> Member {
        Member { named, taken: 0, joined: (now_us, Instant::now()) }
    }

    /// The session's name.
    pub(crate) fn name(&self) -> &[u8] {
        &self.named.name
    }

    /// Adds to `sessions` what the others have given since the last time.
    pub(crate) fn take_in(&mut self, now_us: u64, keyspaces: &[KeyspaceInfo], sessions: &mut [Option<Session>]) {
        self.named.used_us.store(now_us, Ordering::Relaxed);
        if self.named.gifts.load(Ordering::Acquire) == self.taken {
            return;
        }
        let theirs = lock(&self.named.sessions);
        self.taken = self.named.gifts.load(Ordering::Acquire);
        for ((own, theirs), info) in sessions.iter_mut().zip(theirs.iter()).zip(keyspaces) {
            match (own, theirs) {
                (Some(own), Some(theirs)) => drop(info.merge_sessions(own, theirs)),
                (own @ None, Some(theirs)) => *own = Some(theirs.clone()),
                (_, None) => {}
            }
        }
    }

    /// Adds `sessions` to what the others take in.
    pub(crate) fn give(&mut self, keyspaces: &[KeyspaceInfo], sessions: &[Option<Session>]) {
        let mut theirs = lock(&self.named.sessions);
        theirs.resize_with(sessions.len(), || None);
        for ((own, theirs), info) in sessions.iter().zip(theirs.iter_mut()).zip(keyspaces) {
            match (own, theirs) {
                (Some(own), Some(theirs)) => drop(info.merge_sessions(theirs, own)),
                (Some(own), theirs @ None) => *theirs = Some(own.clone()),
                (None, _) => {}
            }
        }
        let gifts = self.named.gifts.load(Ordering::Acquire);
        self.named.gifts.store(gifts + 1, Ordering::Release);
        // What was given by nobody else since needs not be taken in.
        self.taken += u64::from(self.taken == gifts);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_bounded_in_length_number_and_age() {
        let named = NamedSessions::new(2, 10_000_000);
        assert_eq!(named.join(0, b"").err(), Some(NameError::Length));
        assert_eq!(named.join(0, &[b'x'; LONGEST_NAME + 1]).err(), Some(NameError::Length));
        let (first, second) = (named.join(0, b"a").unwrap(), named.join(1, b"b").unwrap());
        assert_eq!(named.join(2, b"c").err(), Some(NameError::TooMany(2)), "both are in use");
        let same = named.join(2, b"a").unwrap();
        assert!(Arc::ptr_eq(&same.named, &first.named));
        drop((first, same));
        let third = named.join(3, b"c").unwrap();
        drop((second, third));
        // The one that was not used for longest has gone.
        assert_eq!(lock(&named.by_name).keys().map(|name| name.to_vec()).collect::<Vec<_>>(), [b"b", b"c"]);
        let before = Arc::downgrade(&named.join(10_000_000_000, b"c").unwrap().named);
        assert!(before.upgrade().is_some_and(|before| Arc::ptr_eq(&before, &named.join(20_000_000_000, b"c").unwrap().named)));
        assert!(before.upgrade().is_some());
        drop(named.join(40_000_000_000, b"c").unwrap());
        assert!(before.upgrade().is_none(), "it was forgotten, and has begun anew");
    }

    /// Pools keep connections for longer than that without asking for anything, and replace them then.
    #[test]
    fn a_session_is_in_use_until_its_last_connection_goes() {
        const HOUR_US: u64 = 3_600_000_000;
        let named = NamedSessions::new(2, HOUR_US / 1000);
        let mut idle = named.join(0, b"a").unwrap();
        let before = Arc::downgrade(&idle.named);
        // Two hours pass.
        idle.joined.0 += 2 * HOUR_US;
        drop(idle);
        let next = named.join(2 * HOUR_US, b"a").unwrap();
        assert!(before.upgrade().is_some_and(|before| Arc::ptr_eq(&before, &next.named)));
        drop(next);
        drop(named.join(4 * HOUR_US, b"a").unwrap());
        assert!(before.upgrade().is_none(), "it was forgotten an hour later");
    }
}
