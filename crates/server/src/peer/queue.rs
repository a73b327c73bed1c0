//! What waits to be sent to one other node, in the order in which it leaves: fair by bytes.
//!
//! Frames of one partition server to another keep their order; each such pair is a stream. Streams take turns of [`TURN_BYTES`], and a frame that is larger leaves in
//! pieces, between which the others have theirs. So a small write never waits for a large value of another partition, only for that of its own. At most
//! [`LARGE_AT_ONCE`] frames are under way in pieces at once, which bounds what the receiver puts together.

use super::frame::{self, LARGE_AT_ONCE};
use std::collections::{BTreeMap, VecDeque};

/// Bytes that a stream sends in its turn, about; a frame of more leaves in pieces.
pub(super) const TURN_BYTES: usize = 64 << 10;

/// Frames whose order among each other is kept. The greatest number is that of frames whose order is of no account.
pub(super) type StreamId = u64;

/// A stream's frames that may leave.
#[derive(Default)]
struct Waiting {
    frames: VecDeque<Vec<u8>>,
    /// The first frame leaves in pieces: their number, and how many bytes of it have left.
    pieces: Option<(u32, usize)>,
}

/// See the module.
#[derive(Default)]
pub(super) struct Queue {
    /// What an emulated way holds back, with the time on the monotonic clock from which it may leave.
    held: VecDeque<(u64, StreamId, Vec<u8>)>,
    streams: BTreeMap<StreamId, Waiting>,
    /// Streams that have something to send, in the order of their turns.
    turns: VecDeque<StreamId>,
    bytes: usize,
    frames: usize,
    large: usize,
    next_pieces: u32,
}

impl Queue {
    /// Bytes that wait.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds `frame`, which may leave at `release_us`; says whether nothing has waited.
    pub(super) fn push(&mut self, release_us: u64, stream: StreamId, frame: Vec<u8>) -> bool {
        let first = self.frames == 0;
        self.bytes += frame.len();
        self.frames += 1;
        if release_us == 0 && self.held.is_empty() {
            self.enter(stream, frame);
        } else {
            self.held.push_back((release_us, stream, frame));
        }
        first
    }

    fn enter(&mut self, stream: StreamId, frame: Vec<u8>) {
        let waiting = self.streams.entry(stream).or_default();
        if waiting.frames.is_empty() {
            self.turns.push_back(stream);
        }
        waiting.frames.push_back(frame);
    }

    /// Moves about `limit` bytes of what may leave at `now_us` to `batch`; returns how many frames are whole with that.
    pub(super) fn take(&mut self, now_us: u64, limit: usize, batch: &mut Vec<u8>) -> u64 {
        while let Some((_, stream, frame)) = self.held.pop_front_if(|(release_us, ..)| *release_us <= now_us) {
            self.enter(stream, frame);
        }
        let (mut taken, mut passed) = (0, 0);
        while batch.len() < limit && passed < self.turns.len() {
            let Some(stream) = self.turns.pop_front() else { break };
            let before = batch.len();
            taken += self.turn(stream, batch);
            // Large frames may all have to wait for others.
            passed = if batch.len() == before { passed + 1 } else { 0 };
        }
        taken
    }

    /// One stream's turn.
    fn turn(&mut self, stream: StreamId, batch: &mut Vec<u8>) -> u64 {
        let Some(waiting) = self.streams.get_mut(&stream) else { return 0 };
        let (begun, mut taken) = (batch.len(), 0);
        while let Some(first) = waiting.frames.front() {
            let room = TURN_BYTES.saturating_sub(batch.len() - begun);
            if first.len() <= TURN_BYTES {
                if first.len() > room {
                    break;
                }
                batch.extend_from_slice(first);
            } else {
                if waiting.pieces.is_none() && self.large == LARGE_AT_ONCE || room < TURN_BYTES / 2 {
                    break;
                }
                let (number, sent) = *waiting.pieces.get_or_insert_with(|| {
                    self.large += 1;
                    self.next_pieces = self.next_pieces.wrapping_add(1);
                    // Its length is not sent: the last piece says that it is the last.
                    (self.next_pieces, frame::LENGTH_BYTES)
                });
                let upto = (sent + room).min(first.len());
                frame::piece(number, upto == first.len(), &first[sent..upto], batch);
                self.bytes -= upto - sent;
                if upto < first.len() {
                    waiting.pieces = Some((number, upto));
                    break;
                }
                waiting.pieces = None;
                self.large -= 1;
                // What is subtracted below has left already, but for its length.
                self.bytes += first.len() - frame::LENGTH_BYTES;
            }
            self.bytes -= first.len();
            self.frames -= 1;
            taken += 1;
            waiting.frames.pop_front();
        }
        if waiting.frames.is_empty() {
            self.streams.remove(&stream);
        } else {
            self.turns.push_back(stream);
        }
        taken
    }

    /// When the next frame may leave, if one waits.
    pub(super) fn next_us(&self) -> Option<u64> {
        if self.turns.is_empty() { self.held.front().map(|(release_us, ..)| *release_us) } else { Some(0) }
    }

    /// Forgets everything; returns how many frames that were.
    pub(super) fn clear(&mut self) -> usize {
        std::mem::take(self).frames
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::frame::{Frame, Pieces, split};
    use rheostat_core::ids::{KeyspaceId, PartitionId};
    use std::collections::BTreeMap;

    fn frame(stream: u16, mark: u8, bytes: usize) -> Vec<u8> {
        let member = frame::Member { partition: PartitionId(stream), replica: 0 };
        frame::replica(KeyspaceId(0), member, member, &vec![mark; bytes])
    }

    /// The marks of the frames that arrive, by stream, and in which order they were whole.
    fn arrive(stream: &[u8], pieces: &mut Pieces, arrived: &mut Vec<(u16, u8, usize)>) {
        let mut rest = stream;
        while let Some((body, length)) = split(rest, 1 << 30).unwrap() {
            let whole = match Frame::decode(body).unwrap() {
                Frame::Piece { number, last, bytes } => pieces.add(number, last, bytes).unwrap(),
                _ => Some(body.to_vec()),
            };
            if let Some(whole) = whole {
                let Frame::Replica { from, bytes, .. } = Frame::decode(&whole).unwrap() else { panic!() };
                assert!(bytes.iter().all(|byte| *byte == bytes[0]));
                arrived.push((from.partition.0, bytes[0], bytes.len()));
            }
            rest = &rest[length..];
        }
        assert!(rest.is_empty());
    }

    #[test]
    fn small_frames_pass_large_ones_of_other_streams_and_each_stream_keeps_its_order() {
        let mut queue = Queue::default();
        let sizes = [10, 5 * TURN_BYTES + 3, TURN_BYTES, 1, TURN_BYTES + 1, 3 << 20];
        let mut sent: BTreeMap<u16, Vec<(u8, usize)>> = BTreeMap::new();
        for mark in 0..60u8 {
            let stream = u16::from(mark % 7);
            let bytes = sizes[usize::from(mark) % sizes.len()];
            queue.push(0, u64::from(stream), frame(stream, mark, bytes));
            sent.entry(stream).or_default().push((mark, bytes));
        }
        let (mut pieces, mut arrived) = (Pieces::new(1 << 30), Vec::new());
        let mut whole = 0;
        while queue.next_us().is_some() {
            let mut batch = Vec::new();
            whole += queue.take(0, TURN_BYTES, &mut batch);
            assert!(!batch.is_empty() && batch.len() <= 2 * TURN_BYTES + 100, "{}", batch.len());
            arrive(&batch, &mut pieces, &mut arrived);
        }
        assert_eq!((whole, queue.bytes(), queue.frames, queue.large), (60, 0, 0, 0));
        for (stream, sent) in sent {
            let came: Vec<(u8, usize)> = arrived.iter().filter(|(from, ..)| *from == stream).map(|(_, mark, bytes)| (*mark, *bytes)).collect();
            assert_eq!(came, sent, "stream {stream}");
        }
    }

    #[test]
    fn a_small_frame_waits_for_a_turn_of_each_other_stream_at_most() {
        let mut queue = Queue::default();
        for stream in 0..6 {
            queue.push(0, stream, frame(stream as u16, 1, 50 << 20));
        }
        let mut batch = Vec::new();
        queue.take(0, TURN_BYTES, &mut batch);
        queue.push(0, 9, frame(9, 2, 100));
        let mut waited = 0;
        let (mut pieces, mut arrived) = (Pieces::new(1 << 30), Vec::new());
        arrive(&batch, &mut pieces, &mut arrived);
        while !arrived.iter().any(|(stream, ..)| *stream == 9) {
            batch.clear();
            queue.take(0, 1, &mut batch);
            waited += batch.len();
            arrive(&batch, &mut pieces, &mut arrived);
        }
        assert!(waited <= (LARGE_AT_ONCE + 1) * (TURN_BYTES + 100), "{waited} bytes");
        assert_eq!(queue.large, LARGE_AT_ONCE, "no more are put together at once");
    }

    #[test]
    fn what_an_emulated_way_holds_back_leaves_at_its_time() {
        let mut queue = Queue::default();
        assert!(queue.push(50, 1, frame(1, 1, 10)));
        assert!(!queue.push(60, 2, frame(2, 2, 10)));
        assert_eq!(queue.next_us(), Some(50));
        let mut batch = Vec::new();
        assert_eq!((queue.take(49, 1000, &mut batch), batch.len()), (0, 0));
        assert_eq!(queue.take(50, 1000, &mut batch), 1);
        assert_eq!(queue.next_us(), Some(60));
        assert_eq!(queue.clear(), 1);
        assert_eq!((queue.next_us(), queue.bytes()), (None, 0));
    }
}
