//! SCAN: a page of keys, bounded in keys and in bytes.

use super::cluster;
use super::slow::{Context, ShardAccess, Slow};
use crate::access::{self, Access};
use rheostat_core::glob;
use rheostat_core::session::Session;
use rheostat_core::version::Key;
use rheostat_resp::command::{Scan, View};

/// The most keys of a page.
const MOST_KEYS: u32 = 10_000;

/// Bytes of keys after which a page ends.
const PAGE_BYTES: usize = 1 << 20;

/// Keys that are looked at before anything is known of their length, and the most that are looked at in one go after that.
const KEYS_AT_FIRST: u32 = 128;
const KEYS_AT_ONCE: usize = 1024;

/// After so many steps of matching keys with a pattern others have their turn: about a millisecond. One key is matched in one go.
const MATCHED_AT_ONCE: usize = 1 << 20;

/// What SCAN looks for.
pub(super) struct Wanted {
    cursor: u64,
    limit: u32,
    pattern: Option<Vec<u8>>,
    any: bool,
}

impl Wanted {
    pub(super) fn new(scan: &Scan<'_>) -> Wanted {
        let limit = u32::try_from(scan.count).unwrap_or(MOST_KEYS).clamp(1, MOST_KEYS);
        Wanted { cursor: scan.cursor, limit, pattern: scan.pattern.map(<[u8]>::to_vec), any: scan.strings }
    }

    fn matches(&self, key: &[u8]) -> bool {
        self.any && self.pattern.as_ref().is_none_or(|pattern| glob::matches(pattern, key))
    }

    /// Those of `keys` that match. A long pattern and a long key take their product in steps, so others have their turn in between.
    async fn those_of(&self, keys: Vec<Key>) -> Vec<Key> {
        let length = self.pattern.as_ref().map_or(0, Vec::len);
        let (mut found, mut steps) = (Vec::new(), 0);
        for key in keys {
            if steps >= MATCHED_AT_ONCE {
                steps = 0;
                tokio::task::yield_now().await;
            }
            steps += length * key.len();
            if self.matches(&key) {
                found.push(key);
            }
        }
        found
    }
}

/// How many keys are looked at next where `looked` had `bytes` in all, fewer than a page has.
fn at_once(looked: u32, bytes: usize) -> u32 {
    let length = (bytes / looked.max(1) as usize).max(1);
    (PAGE_BYTES.saturating_sub(bytes) / length).clamp(1, KEYS_AT_ONCE) as u32
}

/// SCAN.
pub(super) fn scan(context: Context, access: ShardAccess, mut session: Session, wanted: Wanted, view: View) -> Slow {
    Box::pin(async move {
        let shared = access.shared().clone();
        let covered = |partition| cluster::covers(view, &shared, context.keyspace, partition);
        let (mut cursor, mut found) = (wanted.cursor, Vec::<Key>::new());
        let (mut looked, mut bytes, mut limit) = (0u32, 0usize, wanted.limit.min(KEYS_AT_FIRST));
        loop {
            let page = match access::scan(&access, context.keyspace, &mut session, (cursor, limit), &covered).await {
                Err(failure) => return context.failed(session, access.waits(), &failure),
                Ok(page) => page,
            };
            let keys = page.keys.len() as u32;
            (cursor, looked, bytes) = (page.cursor, looked + keys, bytes + page.keys.iter().map(|key| key.len()).sum::<usize>());
            found.extend(wanted.those_of(page.keys).await);
            // Fewer than asked for: the walk has taken as long as one page may.
            if cursor == 0 || keys < limit || looked >= wanted.limit || bytes >= PAGE_BYTES {
                break;
            }
            limit = at_once(looked, bytes).min(wanted.limit - looked);
        }
        context.done_of_no_quality(session, access.waits(), |writer| {
            writer.array(2);
            writer.bulk(cursor.to_string().as_bytes());
            writer.array(found.len());
            found.iter().for_each(|key| writer.bulk(key));
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_looked_at_next_fills_a_page_if_it_is_as_long() {
        assert_eq!(at_once(128, 128 * 8000), 3);
        assert_eq!(at_once(128, PAGE_BYTES - 1), 1);
        // Short keys say little of those that follow.
        assert_eq!([at_once(128, 128 * 20), at_once(1, 0)], [KEYS_AT_ONCE as u32; 2]);
    }

    #[tokio::test]
    async fn keys_that_take_long_to_match_let_others_have_their_turn() {
        let pattern = [b"*[".as_slice(), &[b'x'; 1000], b"]"].concat();
        let wanted = Wanted::new(&Scan { cursor: 0, pattern: Some(&pattern), count: 10, strings: true });
        let keys: Vec<Key> = (0..6u8).map(|number| Key::from([vec![b'a'; 2000], vec![if number < 4 { b'a' } else { b'x' }]].concat())).collect();
        let (mut turns, matching) = (0, wanted.those_of(keys.clone()));
        let mut matching = std::pin::pin!(matching);
        let found = std::future::poll_fn(|context| {
            turns += 1;
            matching.as_mut().poll(context)
        })
        .await;
        assert_eq!((found.as_slice(), turns), (&keys[4..], 6));
        // Short ones do not.
        let keys = (0..100).map(|_| Key::from(*b"x")).collect();
        let mut matching = std::pin::pin!(wanted.those_of(keys));
        assert!(std::future::poll_fn(|context| std::task::Poll::Ready(matching.as_mut().poll(context).is_ready())).await);
    }
}
