//! What nodes say to each other when they have greeted, as bytes: frames, each behind its length.

use rheostat_core::DcId;
use rheostat_core::ids::{KeyspaceId, PartitionId, ServerId};
use rheostat_core::operation::Operation;
use rheostat_core::outcome::Outcome;
use rheostat_core::wire::{Reader, Wire, WireError, put_varint};
use std::collections::VecDeque;

/// Frames under way in pieces at once.
pub(super) const LARGE_AT_ONCE: usize = 4;

/// Bytes of a frame's length.
pub(super) const LENGTH_BYTES: usize = 4;

/// The longest greeting, and the longest answer to one.
pub(super) const MAX_GREETING: usize = 256 << 10;

/// One frame, as it arrives.
#[derive(Debug, PartialEq)]
pub(super) enum Frame<'a> {
    /// From a partition server of the sender to one of the receiver.
    Replica { keyspace: KeyspaceId, from: Member, to: Member, bytes: &'a [u8] },
    /// Operations of one session for partitions of the receiver, each after the one before it.
    Request { request: u64, keyspace: KeyspaceId, session: &'a [u8], operations: VecDeque<(PartitionId, Operation)> },
    /// Outcomes of what the receiver asked for, from the `first` on, and the session after all of them.
    Response { request: u64, first: u32, session: &'a [u8], outcomes: Vec<Outcome> },
    /// Somebody asks something of a keyspace; `first`: of the sender.
    Attend { keyspace: KeyspaceId, first: bool },
    /// A part of a frame that is too large to leave in one go: those with one number, in order.
    Piece { number: u32, last: bool, bytes: &'a [u8] },
    /// The keys that sign session tokens, sealed for this connection.
    TokenKeys(&'a [u8]),
    /// What does the receiver's physical clock show? Asked when the sender's monotonic clock showed `asked_us`.
    AskTime { asked_us: u64 },
    /// Of the monitors of predicates; see [`crate::monitors::Message`].
    Monitors(&'a [u8]),
    /// Data centers that are lost; see [`crate::lost`].
    Lost(&'a [u8]),
    /// Seats that were moved; see [`crate::seats`].
    Seats(&'a [u8]),
    /// What the sender leads; see [`crate::leads`].
    Leads(&'a [u8]),
    /// A question for the files of a server that moves, or the answer to one of the receiver's; see [`crate::moving`].
    Files { question: u64, answers: bool, bytes: &'a [u8] },
    /// The answer, in microseconds.
    Time { asked_us: u64, shown_us: u64 },
}

/// A partition server, in a data center that is known from the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Member {
    pub(super) partition: PartitionId,
    pub(super) replica: u8,
}

impl Member {
    pub(super) fn of(server: ServerId) -> Member {
        Member { partition: server.partition, replica: server.replica }
    }

    pub(super) fn at(self, dc: DcId) -> ServerId {
        ServerId { dc, partition: self.partition, replica: self.replica }
    }
}

impl Wire for Member {
    fn encode(&self, out: &mut Vec<u8>) {
        self.partition.encode(out);
        out.push(self.replica);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Member { partition: Wire::decode(input)?, replica: input.byte()? })
    }
}

const REPLICA: u8 = 0;
const REQUEST: u8 = 1;
const RESPONSE: u8 = 2;
const ATTEND: u8 = 3;
const PIECE: u8 = 4;
const TOKEN_KEYS: u8 = 5;
const ASK_TIME: u8 = 6;
const TIME: u8 = 7;
const MONITORS: u8 = 8;
const LOST: u8 = 9;
const SEATS: u8 = 10;
const LEADS: u8 = 11;
const FILES: u8 = 12;

/// A frame with its length in front; `write` appends the rest.
fn framed(kind: u8, capacity: usize, write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::with_capacity(LENGTH_BYTES + 16 + capacity);
    out.extend_from_slice(&[0; LENGTH_BYTES]);
    out.push(kind);
    write(&mut out);
    let length = (out.len() - LENGTH_BYTES) as u32;
    out[..LENGTH_BYTES].copy_from_slice(&length.to_le_bytes());
    out
}

fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    put_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

pub(super) fn replica(keyspace: KeyspaceId, from: Member, to: Member, bytes: &[u8]) -> Vec<u8> {
    framed(REPLICA, bytes.len(), |out| {
        keyspace.0.encode(out);
        from.encode(out);
        to.encode(out);
        out.extend_from_slice(bytes);
    })
}

pub(super) fn request(request: u64, keyspace: KeyspaceId, session: &[u8], operations: &VecDeque<(PartitionId, Operation)>) -> Vec<u8> {
    framed(REQUEST, session.len() + 64 * operations.len(), |out| {
        request.encode(out);
        keyspace.0.encode(out);
        put_bytes(session, out);
        put_varint(operations.len() as u64, out);
        for (partition, operation) in operations {
            partition.encode(out);
            operation.encode(out);
        }
    })
}

pub(super) fn response(request: u64, first: u32, session: &[u8], outcomes: &[Outcome]) -> Vec<u8> {
    framed(RESPONSE, session.len() + 64 * outcomes.len(), |out| {
        request.encode(out);
        first.encode(out);
        put_bytes(session, out);
        put_varint(outcomes.len() as u64, out);
        outcomes.iter().for_each(|outcome| outcome.encode(out));
    })
}

pub(super) fn attend(keyspace: KeyspaceId, first: bool) -> Vec<u8> {
    framed(ATTEND, 4, |out| {
        keyspace.0.encode(out);
        first.encode(out);
    })
}

/// Appends a piece of a frame's bytes without its length.
pub(super) fn piece(number: u32, last: bool, bytes: &[u8], out: &mut Vec<u8>) {
    let length = 1 + 4 + 1 + bytes.len();
    out.extend_from_slice(&(length as u32).to_le_bytes());
    out.push(PIECE);
    out.extend_from_slice(&number.to_le_bytes());
    out.push(u8::from(last));
    out.extend_from_slice(bytes);
}

/// Frames that come in pieces, as far as they have come.
pub(super) struct Pieces {
    begun: Vec<(u32, Vec<u8>)>,
    max_frame_bytes: usize,
}

impl Pieces {
    pub(super) fn new(max_frame_bytes: usize) -> Pieces {
        Pieces { begun: Vec::new(), max_frame_bytes }
    }

    /// Adds a piece; returns the frame's bytes, without its length, with the last one. Errors: more is under way than an honest node sends at once.
    pub(super) fn add(&mut self, number: u32, last: bool, bytes: &[u8]) -> Result<Option<Vec<u8>>, WireError> {
        let at = match self.begun.iter().position(|(begun, _)| *begun == number) {
            Some(at) => at,
            None if self.begun.len() == LARGE_AT_ONCE => return Err(WireError::Invalid("more frames in pieces than are sent at once")),
            None => {
                self.begun.push((number, Vec::new()));
                self.begun.len() - 1
            }
        };
        let frame = &mut self.begun[at].1;
        if frame.len() + bytes.len() > self.max_frame_bytes {
            return Err(WireError::Invalid("a frame longer than limits.max_frame_bytes"));
        }
        frame.extend_from_slice(bytes);
        Ok(last.then(|| self.begun.swap_remove(at).1))
    }
}

pub(super) fn token_keys(sealed: &[u8]) -> Vec<u8> {
    framed(TOKEN_KEYS, sealed.len(), |out| out.extend_from_slice(sealed))
}

pub(super) fn monitors(message: &[u8]) -> Vec<u8> {
    framed(MONITORS, message.len(), |out| out.extend_from_slice(message))
}

pub(super) fn lost(list: &[u8]) -> Vec<u8> {
    framed(LOST, list.len(), |out| out.extend_from_slice(list))
}

pub(super) fn seats(list: &[u8]) -> Vec<u8> {
    framed(SEATS, list.len(), |out| out.extend_from_slice(list))
}

pub(super) fn leads(list: &[u8]) -> Vec<u8> {
    framed(LEADS, list.len(), |out| out.extend_from_slice(list))
}

pub(super) fn files(question: u64, answers: bool, bytes: &[u8]) -> Vec<u8> {
    framed(FILES, bytes.len(), |out| {
        question.encode(out);
        answers.encode(out);
        out.extend_from_slice(bytes);
    })
}

pub(super) fn ask_time(asked_us: u64) -> Vec<u8> {
    framed(ASK_TIME, 8, |out| asked_us.encode(out))
}

pub(super) fn time(asked_us: u64, shown_us: u64) -> Vec<u8> {
    framed(TIME, 16, |out| (asked_us, shown_us).encode(out))
}

impl<'a> Frame<'a> {
    /// Reads a frame's bytes, without its length.
    pub(super) fn decode(body: &'a [u8]) -> Result<Frame<'a>, WireError> {
        let mut input = Reader::new(body);
        let take = |input: &mut Reader<'a>| {
            let length = input.length()?;
            input.take(length)
        };
        let frame = match input.byte()? {
            REPLICA => {
                let (keyspace, from, to) = (KeyspaceId(Wire::decode(&mut input)?), Wire::decode(&mut input)?, Wire::decode(&mut input)?);
                return Ok(Frame::Replica { keyspace, from, to, bytes: input.rest() });
            }
            REQUEST => {
                let (request, keyspace) = (Wire::decode(&mut input)?, KeyspaceId(Wire::decode(&mut input)?));
                let session = take(&mut input)?;
                let operations: Vec<(PartitionId, Operation)> = Wire::decode(&mut input)?;
                Frame::Request { request, keyspace, session, operations: operations.into() }
            }
            RESPONSE => {
                let (request, first) = (Wire::decode(&mut input)?, Wire::decode(&mut input)?);
                let session = take(&mut input)?;
                Frame::Response { request, first, session, outcomes: Wire::decode(&mut input)? }
            }
            PIECE => {
                let number = input.take(4)?.try_into().map_or(0, u32::from_le_bytes);
                let last = bool::decode(&mut input)?;
                return Ok(Frame::Piece { number, last, bytes: input.rest() });
            }
            ATTEND => Frame::Attend { keyspace: KeyspaceId(Wire::decode(&mut input)?), first: Wire::decode(&mut input)? },
            TOKEN_KEYS => return Ok(Frame::TokenKeys(input.rest())),
            MONITORS => return Ok(Frame::Monitors(input.rest())),
            LOST => return Ok(Frame::Lost(input.rest())),
            SEATS => return Ok(Frame::Seats(input.rest())),
            LEADS => return Ok(Frame::Leads(input.rest())),
            FILES => {
                let (question, answers) = (Wire::decode(&mut input)?, bool::decode(&mut input)?);
                return Ok(Frame::Files { question, answers, bytes: input.rest() });
            }
            ASK_TIME => Frame::AskTime { asked_us: Wire::decode(&mut input)? },
            TIME => Frame::Time { asked_us: Wire::decode(&mut input)?, shown_us: Wire::decode(&mut input)? },
            _ => return Err(WireError::Invalid("a frame of unknown kind")),
        };
        input.finish()?;
        Ok(frame)
    }
}

/// The next whole frame at the front of `buffer`: its body, and how many bytes it takes with its length. Errors: its length exceeds `max_bytes`.
pub(super) fn split(buffer: &[u8], max_bytes: usize) -> Result<Option<(&[u8], usize)>, WireError> {
    let Some((length, rest)) = buffer.split_first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
    let length = u32::from_le_bytes(*length) as usize;
    if length > max_bytes {
        return Err(WireError::Invalid("a frame longer than limits.max_frame_bytes"));
    }
    Ok(rest.get(..length).map(|body| (body, LENGTH_BYTES + length)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rheostat_core::dial::Dial;
    use rheostat_core::failure::Failure;

    #[test]
    fn frames_come_back_as_they_were() {
        let (keyspace, partition) = (KeyspaceId(3), PartitionId(700));
        let (from, to) = (Member { partition: PartitionId(1), replica: 0 }, Member { partition, replica: 8 });
        let get = |partition| (partition, Operation::Get { key: b"k".as_slice().into(), dial: Dial::default() });
        let operations = VecDeque::from([get(partition), get(PartitionId(1))]);
        let outcomes = vec![Outcome::Failed(Failure::Busy("x".into())), Outcome::Count(3)];
        let mut stream = replica(keyspace, from, to, b"abc");
        stream.extend(request(300, keyspace, b"session", &operations));
        stream.extend(response(300, 7, b"", &outcomes));
        stream.extend(attend(keyspace, true));
        stream.extend(token_keys(b"sealed"));
        stream.extend(ask_time(1 << 40));
        stream.extend(time(1 << 40, u64::MAX));
        stream.extend(monitors(b"report"));
        stream.extend(files(1 << 30, true, b"block"));
        let expected = [
            Frame::Replica { keyspace, from, to, bytes: b"abc" },
            Frame::Request { request: 300, keyspace, session: b"session", operations },
            Frame::Response { request: 300, first: 7, session: b"", outcomes },
            Frame::Attend { keyspace, first: true },
            Frame::TokenKeys(b"sealed"),
            Frame::AskTime { asked_us: 1 << 40 },
            Frame::Time { asked_us: 1 << 40, shown_us: u64::MAX },
            Frame::Monitors(b"report"),
            Frame::Files { question: 1 << 30, answers: true, bytes: b"block" },
        ];
        let mut rest = stream.as_slice();
        for expected in expected {
            let (body, length) = split(rest, 1000).unwrap().unwrap();
            assert_eq!(Frame::decode(body).unwrap(), expected);
            assert_eq!(split(&rest[..length - 1], 1000).unwrap(), None);
            rest = &rest[length..];
        }
        assert!(rest.is_empty());
        assert!(split(&1001u32.to_le_bytes(), 1000).is_err());
    }

    #[test]
    fn pieces_are_put_together_and_bounded() {
        let mut pieces = Pieces::new(10);
        for number in 0..LARGE_AT_ONCE as u32 {
            assert_eq!(pieces.add(number, false, b"12345"), Ok(None));
        }
        assert!(pieces.add(99, true, b"1").is_err(), "too many at once");
        assert_eq!(pieces.add(1, true, b"67890"), Ok(Some(b"1234567890".to_vec())));
        assert_eq!(pieces.add(99, true, b""), Ok(Some(Vec::new())));
        assert!(pieces.add(0, false, b"678901").is_err(), "too long");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>, kind in 0u8..14) {
            let _ = Frame::decode(&[&[kind], bytes.as_slice()].concat());
            let _ = split(&bytes, 100);
        }
    }
}
