//! A connection's replies on their way out.

use crate::shard::ReplicaIndex;
use crate::shard::mailbox::{Waits, add_wait};
use rheostat_core::store::Position;
use rheostat_resp::{ReplyWriter, RespVersion};
use std::collections::VecDeque;

/// Buffers larger than this are given back when they are empty.
const KEPT_BYTES: usize = 64 << 10;

/// Replies in order. They are appended, then released (when what they tell is as durable as the keyspace asks), then written.
#[derive(Default)]
pub(super) struct Output {
    bytes: Vec<u8>,
    /// How many bytes at the front have been written, and up to where they may be.
    written: usize,
    released: usize,
    /// Ends of batches that wait for a disk; offsets in `bytes`.
    segments: VecDeque<(usize, Waits)>,
    /// What the present batch waits for.
    waits: Waits,
}

impl Output {
    /// A writer of replies.
    #[inline]
    pub(super) fn writer(&mut self, version: RespVersion) -> ReplyWriter<'_> {
        ReplyWriter::new(&mut self.bytes, version)
    }

    /// The present batch may leave only when `replica` is durable up to `after`.
    #[inline]
    pub(super) fn wait_for(&mut self, replica: ReplicaIndex, after: Position) {
        add_wait(&mut self.waits, replica, after);
    }

    /// Appends an error.
    pub(super) fn error(&mut self, message: &str, version: RespVersion) {
        self.writer(version).error(message);
    }

    /// Appends whole replies.
    pub(super) fn append(&mut self, replies: &[u8], waits: &Waits) {
        self.bytes.extend_from_slice(replies);
        for (replica, after) in waits {
            self.wait_for(*replica, *after);
        }
    }

    /// The present batch is complete.
    #[inline]
    pub(super) fn end_batch(&mut self) {
        if !self.waits.is_empty() {
            self.segments.push_back((self.bytes.len(), std::mem::take(&mut self.waits)));
        }
    }

    /// Bytes that have not been written.
    pub(super) fn len(&self) -> usize {
        self.bytes.len() - self.written
    }

    /// Whether everything has been written.
    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether something that was appended waits for a replica and a position of this kind.
    #[inline]
    pub(super) fn waits_for(&self, kind: impl Fn(ReplicaIndex, Position) -> bool) -> bool {
        let all = self.segments.iter().map(|(_, waits)| waits).chain([&self.waits]);
        all.flatten().any(|(replica, after)| kind(*replica, *after))
    }

    /// Releases what waits for nothing any more.
    #[inline]
    pub(super) fn release(&mut self, durable: impl Fn(ReplicaIndex, Position) -> bool) {
        while let Some((end, _)) = self.segments.pop_front_if(|(_, waits)| waits.iter().all(|(replica, after)| durable(*replica, *after))) {
            self.released = end;
        }
        if self.segments.is_empty() {
            self.released = self.bytes.len();
        }
    }

    /// Whether everything has been released.
    pub(super) fn is_released(&self) -> bool {
        self.segments.is_empty()
    }

    /// Whether something waits for the client to read.
    pub(super) fn has_released(&self) -> bool {
        self.written < self.released
    }

    /// What may be written next.
    #[inline]
    pub(super) fn released(&self) -> Option<&[u8]> {
        (self.written < self.released).then(|| &self.bytes[self.written..self.released])
    }

    /// So many bytes of it have been written.
    #[inline]
    pub(super) fn written(&mut self, count: usize) {
        self.written += count;
        if self.written == self.bytes.len() {
            self.bytes.clear();
            if self.bytes.capacity() > KEPT_BYTES {
                self.bytes = Vec::new();
            }
            (self.written, self.released) = (0, 0);
        } else if self.written > KEPT_BYTES && self.written >= self.bytes.len() / 2 {
            // The buffer does not grow for ever while something always waits.
            let gone = self.written;
            self.bytes.drain(..gone);
            self.released -= gone;
            self.segments.iter_mut().for_each(|(end, _)| *end -= gone);
            self.written = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const R: ReplicaIndex = ReplicaIndex(0);

    fn append(output: &mut Output, text: &str, after: Option<u64>) {
        output.append(text.as_bytes(), &after.map(|after| (R, Position(after))).into_iter().collect());
        output.end_batch();
    }

    fn take(output: &mut Output, durable: u64) -> String {
        output.release(|_, after| after.0 <= durable);
        let mut taken = Vec::new();
        while let Some(bytes) = output.released() {
            // One byte at a time, so that every offset is met.
            taken.push(bytes[0]);
            output.written(1);
        }
        String::from_utf8(taken).unwrap()
    }

    #[test]
    fn what_waits_for_the_disk_holds_back_what_follows_and_nothing_before() {
        let mut output = Output::default();
        append(&mut output, "ab", None);
        append(&mut output, "cd", Some(10));
        append(&mut output, "ef", None);
        append(&mut output, "gh", Some(20));
        append(&mut output, "i", None);
        assert_eq!(take(&mut output, 5), "");
        assert_eq!(take(&mut output, 10), "abcd");
        assert!(!output.is_released());
        assert_eq!(take(&mut output, 19), "");
        append(&mut output, "j", Some(30));
        assert_eq!(take(&mut output, 25), "efgh");
        assert_eq!(take(&mut output, 30), "ij");
        assert!(output.is_released() && output.is_empty());
    }

    #[test]
    fn what_is_waited_for_is_known_until_it_has_come() {
        let mut output = Output::default();
        append(&mut output, "ab", Some(10));
        output.wait_for(R, Position(20));
        let waits_for = |output: &Output, position| output.waits_for(|_, after| after == Position(position));
        assert!(waits_for(&output, 10) && waits_for(&output, 20) && !waits_for(&output, 11));
        output.end_batch();
        assert_eq!(take(&mut output, 10), "ab");
        assert!(!waits_for(&output, 10) && waits_for(&output, 20));
    }

    #[test]
    fn a_batch_that_waits_for_nothing_leaves_at_once() {
        let mut output = Output::default();
        append(&mut output, "ab", None);
        assert_eq!(take(&mut output, 0), "ab");
        assert!(output.is_empty());
    }
}
