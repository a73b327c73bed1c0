//! Log lines that a stranger can cause as often as he likes: one of each kind in a while, with how many were left out.

use crate::shared::lock;
use std::collections::BTreeMap;
use std::sync::Mutex;

/// Between two lines of one kind, in microseconds.
const EVERY_US: u64 = 10_000_000;

/// The most kinds.
const KINDS: usize = 64;

/// See the module.
#[derive(Default)]
pub(crate) struct Throttle {
    /// By kind: when a line was written, and how many were left out since.
    kinds: Mutex<BTreeMap<String, (u64, u64)>>,
}

impl Throttle {
    /// Whether a line of `kind` is to be written now: with how many of its kind were left out before.
    pub(crate) fn line(&self, now_us: u64, kind: &str) -> Option<u64> {
        let mut kinds = lock(&self.kinds);
        if let Some((written_us, left_out)) = kinds.get_mut(kind) {
            if now_us < written_us.saturating_add(EVERY_US) {
                *left_out += 1;
                return None;
            }
            *written_us = now_us;
            return Some(std::mem::take(left_out));
        }
        // Words that a stranger chooses are kinds without end: beyond these they share one.
        if kinds.len() >= KINDS {
            kinds.retain(|_, (written_us, _)| now_us < written_us.saturating_add(EVERY_US));
        }
        let kind = if kinds.len() >= KINDS { "" } else { kind };
        match kinds.get_mut(kind) {
            Some((written_us, left_out)) if now_us < written_us.saturating_add(EVERY_US) => {
                *left_out += 1;
                None
            }
            _ => {
                kinds.insert(kind.to_owned(), (now_us, 0));
                Some(0)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_written_once_in_a_while_and_says_how_many_were_left_out() {
        let throttle = Throttle::default();
        assert_eq!(throttle.line(0, "a"), Some(0));
        assert_eq!(throttle.line(0, "b"), Some(0));
        for _ in 0..1000 {
            assert_eq!(throttle.line(EVERY_US - 1, "a"), None);
        }
        assert_eq!(throttle.line(EVERY_US, "a"), Some(1000));
        assert_eq!(throttle.line(EVERY_US + 1, "a"), None);
    }

    #[test]
    fn kinds_without_end_write_little() {
        let throttle = Throttle::default();
        let written = (0..10_000).filter(|kind| throttle.line(1, &kind.to_string()).is_some()).count();
        assert_eq!(written, KINDS + 1);
        assert!(lock(&throttle.kinds).len() <= KINDS + 1);
    }
}
