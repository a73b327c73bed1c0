//! Writing: the number of keys, and which of them may not be there, before keys come or go; partitions before their rows, pieces before the rows that name them; what was replaced, after.

use crate::engine::{Counted, PIECES_AT_ONCE, Store};
use crate::layout::{Cell, INLINE_BYTES, PIECE_BYTES, Pieces, bucket_of};
use futures::{StreamExt, TryStreamExt, stream};
use scylla::statement::batch::{Batch, BatchType};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::atomic::Ordering;

/// Statements of one store that are sent at once.
const STATEMENTS_AT_ONCE: usize = 64;
/// Bytes of rows that are sent together: Cassandra warns of more than 5 KiB, unless configured otherwise.
const TOGETHER_BYTES: usize = 4 << 10;
/// What a row takes beside its key and its value.
const ROW_BYTES: usize = 40;

/// A row of `chains`: store, partition, key, value, timestamp.
type Row = (i64, i32, Vec<u8>, Vec<u8>, i64);

/// Rows of one partition that are sent together.
type Together = Vec<Row>;

impl Store {
    /// As [`rheostat_storage::engine::Engine::write`].
    pub(crate) async fn write(&self, changes: Vec<(Vec<u8>, Option<Vec<u8>>)>, count: u64) -> io::Result<()> {
        let at = self.next_timestamp()?;
        let names: BTreeSet<Vec<u8>> = changes.iter().map(|(key, _)| key.clone()).collect();
        let gone = changes.iter().filter(|(_, value)| value.is_none()).count() as u64;
        let before = self.keys.load(Ordering::Relaxed);
        let new = (count + gone).saturating_sub(before);
        if new + gone > 0 {
            let unsure = self.unsure().as_ref().map(|unsure| unsure | &names);
            self.keep_count(Counted { keys: before + new, unsure }).await?;
        }
        self.use_buckets(changes.iter().filter(|(_, value)| value.is_some()).map(|(key, _)| bucket_of(key)), at).await?;
        let replaced: Vec<(Vec<u8>, Vec<i64>)> = {
            let large = self.large();
            if large.is_empty() {
                Vec::new()
            } else {
                changes.iter().filter_map(|(key, _)| large.get(key).map(|all| (key.clone(), all.clone()))).collect()
            }
        };
        let mut rows = BTreeMap::<i32, Vec<Row>>::new();
        let mut gone = Vec::new();
        for (key, value) in changes {
            let bucket = bucket_of(&key);
            let cell = match value {
                None => {
                    gone.push((at, self.store, bucket, key));
                    continue;
                }
                Some(value) if value.len() <= INLINE_BYTES => Cell::in_row(&value),
                Some(value) => self.write_pieces(&key, &value, at).await?,
            };
            rows.entry(bucket).or_default().push((self.store, bucket, key, cell, at));
        }
        let puts = stream::iter(rows.into_values().flat_map(together)).map(|rows| self.write_rows(rows)).buffer_unordered(STATEMENTS_AT_ONCE);
        puts.try_collect::<()>().await?;
        let statement = &self.calls.statements.delete;
        let delete =
            async |values: (i64, i64, i32, Vec<u8>)| self.calls.write(self.patience(), &self.closing, "delete a key", statement, &values).await;
        stream::iter(gone).map(delete).buffer_unordered(STATEMENTS_AT_ONCE).try_collect::<()>().await?;
        for (key, all) in replaced {
            self.delete_pieces(&key, all).await?;
        }
        if let Some(unsure) = &mut *self.unsure() {
            unsure.retain(|key| !names.contains(key));
        }
        self.keys.store(count, Ordering::Relaxed);
        Ok(())
    }

    /// Has partitions in the list of those in use, before they have a row.
    async fn use_buckets(&self, buckets: impl Iterator<Item = i32>, at: i64) -> io::Result<()> {
        let new: BTreeSet<i32> = {
            let known = self.buckets();
            buckets.filter(|bucket| !known.contains(bucket)).collect()
        };
        let statement = &self.calls.statements.add_bucket;
        let add = async |bucket: i32| {
            let values = (self.store, bucket, at);
            self.calls.write(self.patience(), &self.closing, "write which partitions are in use", statement, &values).await
        };
        stream::iter(new.iter().copied()).map(add).buffer_unordered(STATEMENTS_AT_ONCE).try_collect::<()>().await?;
        self.buckets().extend(new);
        Ok(())
    }

    async fn write_rows(&self, mut rows: Together) -> io::Result<()> {
        let put = &self.calls.statements.put;
        let doing = "write a key";
        if rows.len() == 1
            && let Some(row) = rows.pop()
        {
            return self.calls.write(self.patience(), &self.closing, doing, put, &row).await;
        }
        let mut batch = Batch::new(BatchType::Unlogged);
        batch.set_is_idempotent(true);
        rows.iter().for_each(|_| batch.append_statement(put.clone()));
        self.calls.write_rows(self.patience(), &self.closing, doing, &batch, &rows).await
    }

    /// Writes the pieces of a value, and returns the cell that names them.
    async fn write_pieces(&self, key: &[u8], value: &[u8], at: i64) -> io::Result<Vec<u8>> {
        let statements = &self.calls.statements;
        self.calls
            .write(self.patience(), &self.closing, "write which values are in pieces", &statements.add_large, &(self.store, key, at, at))
            .await?;
        self.large().entry(key.to_owned()).or_default().push(at);
        let put = async |(number, piece): (usize, &[u8])| {
            let number = i32::try_from(number).map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "a value has too many pieces"))?;
            let values = (self.store, key, at, number, piece, at);
            self.calls.write(self.patience(), &self.closing, "write a piece of a value", &statements.put_piece, &values).await
        };
        stream::iter(value.chunks(PIECE_BYTES).enumerate()).map(put).buffer_unordered(PIECES_AT_ONCE).try_collect::<()>().await?;
        Ok(Cell::in_pieces(Pieces { written: at, bytes: value.len() as u64 }))
    }

    /// Deletes the pieces that no row names any more.
    async fn delete_pieces(&self, key: &[u8], all: Vec<i64>) -> io::Result<()> {
        let statements = &self.calls.statements;
        for written in all {
            let at = self.next_timestamp()?;
            let values = (at, self.store, key, written);
            self.calls.write(self.patience(), &self.closing, "delete a value's pieces", &statements.delete_pieces, &values).await?;
            self.calls.write(self.patience(), &self.closing, "write which values are in pieces", &statements.delete_large, &values).await?;
            let mut large = self.large();
            if let Some(left) = large.get_mut(key) {
                left.retain(|other| *other != written);
                if left.is_empty() {
                    large.remove(key);
                }
            }
        }
        Ok(())
    }
}

/// The rows of one partition, in parts that are sent together.
fn together(rows: Vec<Row>) -> Vec<Together> {
    let mut parts: Vec<Together> = Vec::new();
    let mut bytes = TOGETHER_BYTES;
    for row in rows {
        let more = ROW_BYTES + row.2.len() + row.3.len();
        match parts.last_mut() {
            Some(part) if bytes + more <= TOGETHER_BYTES => {
                bytes += more;
                part.push(row);
            }
            _ => {
                bytes = more;
                parts.push(vec![row]);
            }
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(bytes: usize) -> Row {
        (1, 1, vec![0; 10], vec![0; bytes - 10 - ROW_BYTES], 1)
    }

    #[test]
    fn small_rows_go_together_and_large_ones_alone() {
        let sizes = |bytes: &[usize]| together(bytes.iter().map(|bytes| row(*bytes)).collect()).iter().map(Vec::len).collect::<Vec<_>>();
        assert!(sizes(&[]).is_empty());
        assert_eq!(sizes(&[100_000]), [1]);
        assert_eq!(sizes(&[2048, 2048, 100]), [2, 1]);
        assert_eq!(sizes(&[2048, 2049, 100]), [1, 2]);
        assert_eq!(sizes(&[100; 50]), [40, 10]);
        assert_eq!(sizes(&[100, 100_000, 100]), [1, 1, 1]);
    }
}
