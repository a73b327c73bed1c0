//! What wrong passwords cost: who gave several must wait before the next one is looked at, longer each time.
//!
//! It counts by address (IPv6: by network of 64 bits, which one machine has to itself). While an address waits, its passwords are not looked at, right or wrong, so that guessing faster
//! learns nothing. A right one ends the count of those for the same user; so does time. Those for another user stand: who has a password of his own would guess
//! somebody else's for nothing.
//!
//! And how many connections of one address owe a password: they have a share of those that there may be, so that others find room.

use crate::shared::lock;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Wrong passwords that cost nothing: people mistype.
const FREE: u32 = 5;

/// The first wait, and the longest, in microseconds. Each is twice the one before.
const WAIT_US: (u64, u64) = (200_000, 10_000_000);

/// After so long without a wrong password an address is forgotten, in microseconds.
const FORGET_US: u64 = 600_000_000;

/// The most addresses that are remembered.
const MOST: usize = 4096;

/// The most users whose wrong passwords of one address are told apart.
const MOST_USERS: usize = 8;

/// Connections of one address that owe a password are one of so many that there may be, at most.
const STRANGERS_SHARE: usize = 4;

/// An address's wrong passwords.
#[derive(Default)]
struct Record {
    wrong: u32,
    last_us: u64,
    /// How many of them were for whom, by a hash of the name. Those for others are nobody's.
    users: Vec<(u64, u32)>,
}

impl Record {
    /// From when on, on the monotonic clock, another password is looked at.
    fn until_us(&self) -> u64 {
        match self.wrong.checked_sub(FREE) {
            None => 0,
            Some(over) => self.last_us.saturating_add((WAIT_US.0 << over.min(20)).min(WAIT_US.1)),
        }
    }
}

/// See the module.
#[derive(Default)]
pub(crate) struct Guard {
    records: Mutex<HashMap<IpAddr, Record>>,
    wrong: AtomicU64,
    delayed: AtomicU64,
    /// By address: the connections that owe a password.
    strangers: Mutex<HashMap<IpAddr, usize>>,
}

/// What counts as one caller.
pub(crate) fn caller(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
        address => address,
    }
}

fn hash(user: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    user.hash(&mut hasher);
    hasher.finish()
}

impl Guard {
    /// Whether a password of `address` is looked at now. Errors: for how long it is not, in microseconds.
    pub(crate) fn may_try(&self, now_us: u64, address: IpAddr) -> Result<(), u64> {
        let until_us = lock(&self.records).get(&caller(address)).map_or(0, Record::until_us);
        match until_us.checked_sub(now_us) {
            None | Some(0) => Ok(()),
            Some(wait_us) => {
                self.delayed.fetch_add(1, Ordering::Relaxed);
                Err(wait_us)
            }
        }
    }

    /// A password of `address` for `user` was looked at, and was `right` or not.
    pub(crate) fn tried(&self, now_us: u64, address: IpAddr, user: &[u8], right: bool) {
        let (caller, user) = (caller(address), hash(user));
        let mut records = lock(&self.records);
        if right {
            if let Some(record) = records.get_mut(&caller)
                && let Some(index) = record.users.iter().position(|(of, _)| *of == user)
            {
                record.wrong -= record.users.swap_remove(index).1;
                if record.wrong == 0 {
                    records.remove(&caller);
                }
            }
            return;
        }
        self.wrong.fetch_add(1, Ordering::Relaxed);
        if records.len() >= MOST && !records.contains_key(&caller) {
            records.retain(|_, record| now_us < record.last_us.saturating_add(FORGET_US));
        }
        if records.len() >= MOST && !records.contains_key(&caller) {
            // Who has the fewest goes, and of those the oldest: many addresses with one guess each do not drive out the one that guesses.
            let first = records.iter().min_by_key(|(address, record)| (record.wrong, record.last_us, **address)).map(|(address, _)| *address);
            if let Some(first) = first {
                records.remove(&first);
            }
        }
        let record = records.entry(caller).or_default();
        if now_us >= record.last_us.saturating_add(FORGET_US) {
            *record = Record::default();
        }
        record.last_us = now_us;
        record.wrong = record.wrong.saturating_add(1);
        match record.users.iter().position(|(of, _)| *of == user) {
            Some(index) => record.users[index].1 = record.users[index].1.saturating_add(1),
            None if record.users.len() < MOST_USERS => record.users.push((user, 1)),
            None => {}
        }
    }

    /// One more connection of `address` owes a password.
    pub(crate) fn comes(&self, address: IpAddr) {
        *lock(&self.strangers).entry(caller(address)).or_default() += 1;
    }

    /// One of those has shown it, or has gone.
    pub(crate) fn goes(&self, address: IpAddr) {
        let (caller, mut strangers) = (caller(address), lock(&self.strangers));
        if let Some(count) = strangers.get_mut(&caller) {
            *count -= 1;
            if *count == 0 {
                strangers.remove(&caller);
            }
        }
    }

    /// Whether those of `address` are more than one address may have where there may be `most` connections.
    pub(crate) fn are_too_many(&self, address: IpAddr, most: usize) -> bool {
        let count = lock(&self.strangers).get(&caller(address)).copied().unwrap_or(0);
        count > (most / STRANGERS_SHARE).max(1)
    }

    /// Passwords looked at that were wrong, and those that were not looked at.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.wrong.load(Ordering::Relaxed), self.delayed.load(Ordering::Relaxed))
    }
}

/// For whom another node's proof is: it is counted as no user's password.
pub(crate) const NODE: &[u8] = b"\0node";

/// Who calls where the address is not known.
pub(crate) const NOWHERE: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    #[test]
    fn wrong_passwords_cost_more_each_time_and_only_their_address() {
        let guard = Guard::default();
        let (mut now_us, mut waits) = (1, Vec::new());
        for _ in 0..15 {
            if let Err(wait_us) = guard.may_try(now_us, address(1)) {
                assert!(guard.may_try(now_us + wait_us - 1, address(1)).is_err());
                waits.push(wait_us);
                now_us += wait_us;
            }
            assert_eq!(guard.may_try(now_us, address(1)), Ok(()));
            guard.tried(now_us, address(1), b"default", false);
        }
        assert_eq!(waits[..3], [200_000, 400_000, 800_000]);
        assert_eq!(waits.last(), Some(&10_000_000));
        assert_eq!(waits.len(), 10, "the first five cost nothing");
        assert_eq!(guard.may_try(now_us, address(2)), Ok(()));
        assert_eq!(guard.counts(), (15, 20));
    }

    #[test]
    fn a_right_one_and_time_end_the_count() {
        let guard = Guard::default();
        (0..FREE).for_each(|_| guard.tried(0, address(1), b"default", false));
        assert!(guard.may_try(0, address(1)).is_err());
        guard.tried(1, address(1), b"default", true);
        assert_eq!(guard.may_try(1, address(1)), Ok(()));
        (0..100).for_each(|_| guard.tried(2, address(1), b"default", false));
        guard.tried(2 + FORGET_US, address(1), b"default", false);
        assert_eq!(guard.may_try(2 + FORGET_US, address(1)), Ok(()));
    }

    #[test]
    fn the_password_of_one_user_does_not_end_the_count_of_anothers() {
        let guard = Guard::default();
        for _ in 0..FREE {
            guard.tried(1, address(1), b"operator", false);
            guard.tried(1, address(1), b"reader", true);
        }
        assert!(guard.may_try(1, address(1)).is_err());
        guard.tried(2, address(1), b"operator", true);
        assert_eq!(guard.may_try(2, address(1)), Ok(()));
        // Each ends that of his own.
        (0..FREE).for_each(|_| guard.tried(3, address(1), b"operator", false));
        guard.tried(3, address(1), b"reader", false);
        guard.tried(3, address(1), b"reader", true);
        assert!(guard.may_try(3, address(1)).is_err());
        guard.tried(3, address(1), b"operator", true);
        assert_eq!((guard.may_try(3, address(1)), lock(&guard.records).len()), (Ok(()), 0));
        // Those for names without end are nobody's, and take no more room.
        (0..1000_u32).for_each(|number| guard.tried(4, address(1), &number.to_le_bytes(), false));
        (0..1000_u32).for_each(|number| guard.tried(4, address(1), &number.to_le_bytes(), true));
        assert!(guard.may_try(4, address(1)).is_err());
    }

    #[test]
    fn connections_of_one_address_that_owe_a_password_are_a_share_of_all() {
        let guard = Guard::default();
        (0..2).for_each(|_| guard.comes(address(1)));
        assert!(!guard.are_too_many(address(1), 8) && guard.are_too_many(address(1), 7));
        guard.comes(address(1));
        assert!(guard.are_too_many(address(1), 8) && !guard.are_too_many(address(2), 8));
        (0..2).for_each(|_| guard.goes(address(1)));
        assert!(!guard.are_too_many(address(1), 1), "there may always be one");
        guard.goes(address(1));
        guard.goes(address(1));
        assert!(lock(&guard.strangers).is_empty());
    }

    #[test]
    fn the_table_is_bounded_and_keeps_who_guesses() {
        let guard = Guard::default();
        (0..10).for_each(|_| guard.tried(1, address(1), b"default", false));
        for number in 0..2 * MOST as u32 {
            guard.tried(2, IpAddr::from(Ipv4Addr::from_bits(number << 8)), b"default", false);
        }
        assert_eq!(lock(&guard.records).len(), MOST);
        assert!(guard.may_try(3, address(1)).is_err());
    }

    #[test]
    fn one_machines_ipv6_addresses_count_together() {
        let guard = Guard::default();
        for last in 0..FREE as u16 {
            guard.tried(1, IpAddr::from([0x2001, 0xdb8, 0, 1, 0, 0, 0, last]), b"default", false);
        }
        assert!(guard.may_try(1, IpAddr::from([0x2001, 0xdb8, 0, 1, 9, 9, 9, 9])).is_err());
        assert_eq!(guard.may_try(1, IpAddr::from([0x2001, 0xdb8, 0, 2, 0, 0, 0, 0])), Ok(()));
        (0..FREE).for_each(|_| guard.tried(1, address(7), b"default", false));
        assert!(guard.may_try(1, IpAddr::from(Ipv4Addr::new(10, 0, 0, 7).to_ipv6_mapped())).is_err());
    }
}
