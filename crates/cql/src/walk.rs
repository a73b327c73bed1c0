//! Walks over a store's keys: partition by partition, as many at once as the page is likely to need.

use crate::calls::{Patience, unexpected};
use crate::engine::Store;
use crate::layout::bucket_of;
use futures::{StreamExt, TryStreamExt, stream};
use rheostat_storage::engine::Entries;
use scylla::response::query_result::QueryRowsResult;
use std::io;
use std::ops::Bound;
use std::sync::atomic::Ordering;

/// Partitions that are read at once, at most.
const BUCKETS_AT_ONCE: usize = 32;

/// Cells that a walk reads at once, at most.
const CELLS_AT_ONCE: usize = 64;

/// How many of the next partitions to read at once for `wanted` keys, where `keys` are in `buckets` of them.
fn width(wanted: usize, keys: u64, buckets: usize) -> usize {
    let mean = usize::try_from(keys).unwrap_or(usize::MAX) / buckets.max(1);
    wanted.div_ceil(mean.max(1)).clamp(1, BUCKETS_AT_ONCE)
}

impl Store {
    pub(crate) async fn walk(&self, from: Bound<Vec<u8>>, limit: usize, max_bytes: usize) -> io::Result<Entries> {
        let (mut entries, mut bytes) = (Entries::new(), 0);
        let mut from = from;
        // A key that is gone when its pieces are read leaves room for another.
        while entries.len() < limit && bytes < max_bytes {
            let wanted = (limit - entries.len()).min(CELLS_AT_ONCE);
            let cells = self.rows(&from, &Bound::Unbounded, wanted, false, |page, found| {
                for row in page.rows::<(Vec<u8>, Vec<u8>)>().map_err(unexpected)? {
                    found.push(row.map_err(unexpected)?);
                }
                Ok(())
            });
            let cells: Vec<(Vec<u8>, Vec<u8>)> = cells.await?;
            let complete = cells.len() < wanted;
            if let Some((last, _)) = cells.last() {
                from = Bound::Excluded(last.clone());
            }
            for (key, cell) in cells {
                if bytes >= max_bytes {
                    break;
                }
                if let Some(value) = self.value_of(&key, cell).await? {
                    bytes += value.len();
                    entries.push((key, value));
                }
            }
            if complete {
                break;
            }
        }
        Ok(entries)
    }

    pub(crate) async fn walk_keys(&self, from: Bound<Vec<u8>>, upto: Bound<Vec<u8>>, limit: usize) -> io::Result<Vec<Vec<u8>>> {
        let keys = self.rows(&from, &upto, limit, true, |page, found| {
            for row in page.rows::<(Vec<u8>,)>().map_err(unexpected)? {
                found.push(row.map_err(unexpected)?.0);
            }
            Ok(())
        });
        let mut keys: Vec<Vec<u8>> = keys.await?;
        keys.retain(|key| match &upto {
            Bound::Unbounded => true,
            Bound::Included(upto) => key <= upto,
            Bound::Excluded(upto) => key < upto,
        });
        Ok(keys)
    }

    /// The first `limit` rows from `from` on, as `take` takes them from pages; of partitions that have keys up to `upto`.
    async fn rows<T>(
        &self,
        from: &Bound<Vec<u8>>,
        upto: &Bound<Vec<u8>>,
        limit: usize,
        only_keys: bool,
        take: impl Fn(QueryRowsResult, &mut Vec<T>) -> io::Result<()>,
    ) -> io::Result<Vec<T>> {
        let first = match from {
            Bound::Unbounded => 0,
            Bound::Included(key) | Bound::Excluded(key) => bucket_of(key),
        };
        let last = match upto {
            Bound::Unbounded => i32::MAX,
            Bound::Included(key) | Bound::Excluded(key) => bucket_of(key),
        };
        let (buckets, all): (Vec<i32>, usize) = {
            let buckets = self.buckets();
            (buckets.range(first..).copied().take_while(|bucket| *bucket <= last).collect(), buckets.len())
        };
        let keys = self.keys.load(Ordering::Relaxed);
        let mut found = Vec::new();
        let mut left = buckets.as_slice();
        while found.len() < limit && !left.is_empty() {
            let wanted = limit - found.len();
            let (now, rest) = left.split_at(width(wanted, keys, all).min(left.len()));
            left = rest;
            let read = async |bucket: i32| self.rows_of(bucket, from, wanted, only_keys, &take).await;
            let parts: Vec<Vec<T>> = stream::iter(now.iter().copied()).map(read).buffered(BUCKETS_AT_ONCE).try_collect().await?;
            found.extend(parts.into_iter().flatten().take(wanted));
        }
        Ok(found)
    }

    /// The first `limit` rows of one partition from `from` on.
    async fn rows_of<T>(
        &self,
        bucket: i32,
        from: &Bound<Vec<u8>>,
        limit: usize,
        only_keys: bool,
        take: &impl Fn(QueryRowsResult, &mut Vec<T>) -> io::Result<()>,
    ) -> io::Result<Vec<T>> {
        let statements = &self.calls.statements;
        let (statement, key) = match (from, only_keys) {
            (Bound::Excluded(key), false) => (&statements.walk_after, key.as_slice()),
            (Bound::Excluded(key), true) => (&statements.walk_keys_after, key.as_slice()),
            (Bound::Included(key), false) => (&statements.walk_from, key.as_slice()),
            (Bound::Included(key), true) => (&statements.walk_keys_from, key.as_slice()),
            (Bound::Unbounded, false) => (&statements.walk_from, &[][..]),
            (Bound::Unbounded, true) => (&statements.walk_keys_from, &[][..]),
        };
        let mut found = Vec::new();
        let values = (self.store, bucket, key, i32::try_from(limit).unwrap_or(i32::MAX));
        let patience = Patience::For(self.calls.settings.read_timeout);
        self.calls.read_pages(patience, &self.closing, "walk over keys", statement, &values, |page| take(page, &mut found)).await?;
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_partitions_are_read_as_a_page_is_likely_to_need() {
        assert_eq!(width(256, 1_000_000, 1024), 1);
        assert_eq!(width(256, 102_400, 1024), 3);
        assert_eq!(width(256, 1024, 1024), BUCKETS_AT_ONCE);
        assert_eq!(width(256, 0, 1024), BUCKETS_AT_ONCE);
        assert_eq!(width(1, 0, 0), 1);
    }
}
