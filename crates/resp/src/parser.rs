//! The request parser: whole requests out of a buffer that grows at its end.
//!
//! Requests are arrays of bulk strings, or inline: one line of words. The parser remembers how far it has come in a
//! request that has not arrived whole, so each byte is looked at a bounded number of times however it is cut up, and the
//! inside of a bulk string never. It allocates nothing for what was only announced: memory follows bytes that arrived.

use super::ahead::SecondArguments;
use super::arguments::{Arguments, Span};
use super::inline::{self, Words};
use std::fmt;

/// What a request may be at most. Whatever exceeds it is refused as soon as it is announced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Arguments of one request, the command's name included.
    pub max_arguments: usize,
    /// Bytes of one argument.
    pub max_bulk_bytes: usize,
    /// Bytes of an inline request, its end of line included.
    pub max_inline_bytes: usize,
    /// Bytes of one request as it is sent; values over 4 GiB count as 4 GiB.
    pub max_request_bytes: usize,
}

impl Default for Limits {
    /// 1 Mi arguments, 64 MiB for an argument, 64 KiB inline, 128 MiB in all.
    fn default() -> Limits {
        Limits { max_arguments: 1 << 20, max_bulk_bytes: 64 << 20, max_inline_bytes: 64 << 10, max_request_bytes: 128 << 20 }
    }
}

impl Limits {
    /// For connections that have not authenticated: enough for HELLO and AUTH, and for nothing that costs memory.
    pub fn unauthenticated() -> Limits {
        Limits { max_arguments: 16, max_bulk_bytes: 16 << 10, max_inline_bytes: 16 << 10, max_request_bytes: 64 << 10 }
    }
}

/// Why bytes are not a request. There is no way to find the next request: the connection is answered this and closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProtocolError {
    /// The number after `*` is not a number, or exceeds [`Limits::max_arguments`].
    ArrayLength,
    /// The number after `$` is not a number, or exceeds [`Limits::max_bulk_bytes`].
    BulkLength,
    /// An argument does not begin with `$` but with this byte.
    ExpectedBulk(u8),
    /// An argument is not followed by CR LF where its length says it ends.
    BulkEnd,
    /// A quote in an inline request is not closed, or is closed within a word.
    UnbalancedQuotes,
    /// An inline request exceeds [`Limits::max_inline_bytes`].
    InlineTooLong,
    /// An inline request has more words than [`Limits::max_arguments`].
    TooManyArguments,
    /// The request exceeds [`Limits::max_request_bytes`].
    RequestTooLong,
}

impl fmt::Display for ProtocolError {
    /// The error reply without its leading `-`, in Redis' words where it has them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ERR Protocol error: ")?;
        match self {
            ProtocolError::ArrayLength => f.write_str("invalid multibulk length"),
            ProtocolError::BulkLength => f.write_str("invalid bulk length"),
            ProtocolError::ExpectedBulk(byte) => write!(f, "expected '$', got '{}'", byte.escape_ascii()),
            ProtocolError::BulkEnd => f.write_str("expected CR LF after a bulk string"),
            ProtocolError::UnbalancedQuotes => f.write_str("unbalanced quotes in request"),
            ProtocolError::InlineTooLong => f.write_str("too big inline request"),
            ProtocolError::TooManyArguments => f.write_str("too many arguments in inline request"),
            ProtocolError::RequestTooLong => f.write_str("too big request"),
        }
    }
}

impl std::error::Error for ProtocolError {}

/// A bulk string on the wire has at least this many bytes: `$0`, CR LF, CR LF.
const SHORTEST_BULK: usize = 6;

/// Memory for this many arguments, and this many unquoted bytes, is kept from request to request, and while none comes.
const KEPT: usize = 1024;

/// Parses one connection's requests. All positions are in the buffer that the caller hands in: bytes may be added at its end
/// at any time, and only [`Parser::consume`] says how many may be dropped from its front.
#[derive(Debug)]
pub struct Parser {
    limits: Limits,
    failed: Option<ProtocolError>,
    /// Where the request that is being parsed begins in the buffer; everything before it is done.
    start: usize,
    /// The length of the request that was returned last.
    last: usize,
    /// How far that request has been parsed, from `start`; for an inline request, how far the end of line was searched.
    parsed: usize,
    /// Number of arguments announced; 0 until an array's header has been read.
    announced: usize,
    /// Length of the argument that comes next, if its header has been read.
    bulk: Option<usize>,
    /// Where the arguments are, from `start`, or in `unquoted`.
    spans: Vec<Span>,
    unquoted: Vec<u8>,
    #[cfg(test)]
    examined: u64,
}

/// A length and its CR LF, read off the front of some bytes.
enum Line {
    /// The length, and the number of bytes it took.
    Length(u64, usize),
    /// A negative length, and the number of bytes it took.
    Negative(usize),
    /// So far well-formed, but not whole.
    Partial,
    Invalid,
}

#[inline]
fn length_line(bytes: &[u8]) -> Line {
    // Nearly all lengths.
    match bytes {
        [digit @ b'0'..=b'9', b'\r', b'\n', ..] => Line::Length(u64::from(digit - b'0'), 3),
        [ten @ b'1'..=b'9', digit @ b'0'..=b'9', b'\r', b'\n', ..] => Line::Length(u64::from(ten - b'0') * 10 + u64::from(digit - b'0'), 4),
        _ => any_length_line(bytes),
    }
}

fn any_length_line(bytes: &[u8]) -> Line {
    let mut value = 0u64;
    for (index, byte) in bytes.iter().enumerate() {
        match byte {
            // 18 digits do not overflow, and no limit has more.
            b'0'..=b'9' if index < 18 => value = value * 10 + u64::from(byte - b'0'),
            b'\r' if index > 0 => {
                return match bytes.get(index + 1) {
                    None => Line::Partial,
                    Some(b'\n') if index == 1 || bytes[0] != b'0' => Line::Length(value, index + 2),
                    Some(_) => Line::Invalid,
                };
            }
            // One sign: a line of nothing else would take a frame of the stack for each.
            b'-' if index == 0 && bytes.get(1) != Some(&b'-') => {
                return match length_line(&bytes[1..]) {
                    Line::Length(1.., used) => Line::Negative(used + 1),
                    Line::Partial => Line::Partial,
                    Line::Length(0, _) | Line::Negative(_) | Line::Invalid => Line::Invalid,
                };
            }
            _ => return Line::Invalid,
        }
    }
    Line::Partial
}

/// What the next step of parsing came to.
enum Step {
    /// A request that ends so many bytes after `start`.
    Request(usize, Words),
    /// Nothing, in so many bytes: an empty line, an empty array.
    Nothing(usize),
    /// More bytes are needed.
    Partial,
}

impl Parser {
    /// A parser at the start of a connection.
    pub fn new(limits: Limits) -> Parser {
        Parser {
            limits,
            failed: None,
            start: 0,
            last: 0,
            parsed: 0,
            announced: 0,
            bulk: None,
            spans: Vec::new(),
            unquoted: Vec::new(),
            #[cfg(test)]
            examined: 0,
        }
    }

    /// Changes the limits from the next request on, as after a successful AUTH.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// The next whole request in `buffer`; `None` when more bytes are needed. Empty requests (an empty line, `*0`) are skipped, as
    /// Redis does, so a request has at least one argument. `buffer` must begin with the bytes that were there in the last call,
    /// less what [`Parser::consume`] returned since. After an error, every call returns the same one.
    #[inline]
    pub fn next<'a>(&'a mut self, buffer: &'a [u8]) -> Result<Option<Arguments<'a>>, ProtocolError> {
        loop {
            let bytes = buffer.get(self.start..).unwrap_or_default();
            match self.step(bytes) {
                Ok(Step::Request(end, words)) => {
                    self.start += end;
                    self.last = end;
                    self.reset();
                    let bytes = if words == Words::InLine { &bytes[..end] } else { self.unquoted.as_slice() };
                    return Ok(Some(Arguments::new(bytes, &self.spans)));
                }
                Ok(Step::Nothing(end)) => {
                    self.start += end;
                    self.reset();
                }
                Ok(Step::Partial) => return Ok(None),
                Err(error) => {
                    self.failed = Some(error);
                    return Err(error);
                }
            }
        }
    }

    /// The request that [`Parser::next`] returned last is returned by the next call again. Not to be called twice for one request, nor after
    /// [`Parser::consume`].
    pub fn put_back(&mut self) {
        self.start -= std::mem::take(&mut self.last);
    }

    /// How many bytes at the front of the buffer belong to requests that have been returned. The caller drops exactly these before it
    /// calls [`Parser::next`] again; they are counted once.
    #[inline]
    pub fn consume(&mut self) -> usize {
        self.last = 0;
        std::mem::take(&mut self.start)
    }

    /// A look at the next `requests` in `buffer`, of those that have not been returned. `None` where the next one is parsed in part: of what arrives in pieces, each
    /// look would begin at its front again.
    #[inline]
    pub fn ahead<'a>(&self, buffer: &'a [u8], requests: usize) -> Option<SecondArguments<'a>> {
        self.is_between().then(|| SecondArguments::of(buffer.get(self.start..).unwrap_or_default(), requests))
    }

    /// Gives back the memory that an unusually large request took, if nothing of the next one has been parsed. What the request's
    /// [`Arguments`] show must not be needed any more.
    #[inline]
    pub fn give_back(&mut self) {
        if self.is_between() {
            self.forget();
        }
    }

    /// Whether nothing has been parsed of the request that comes next.
    #[inline]
    fn is_between(&self) -> bool {
        self.announced == 0 && self.parsed == 0
    }

    /// The length that the whole buffer must have before the argument that is being received is whole; `None` if its length is not
    /// known yet. Meant for sizing reads: it is what the peer announced, within the limits, so memory should follow it only as bytes arrive.
    pub fn wanted(&self) -> Option<usize> {
        self.bulk.map(|length| self.start + self.parsed + length + 2)
    }

    #[inline]
    fn reset(&mut self) {
        self.parsed = 0;
        self.announced = 0;
    }

    #[inline]
    fn max_request_bytes(&self) -> usize {
        self.limits.max_request_bytes.min(u32::MAX as usize)
    }

    #[cfg(test)]
    fn count(&mut self, bytes: usize) {
        self.examined += bytes as u64;
    }

    #[inline]
    fn step(&mut self, bytes: &[u8]) -> Result<Step, ProtocolError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        if self.announced == 0 {
            match bytes.first() {
                None => return Ok(Step::Partial),
                Some(b'*') => {}
                Some(_) => return self.inline(bytes),
            }
            #[cfg(test)]
            self.count(bytes.len().min(20));
            match length_line(&bytes[1..]) {
                Line::Partial => return Ok(Step::Partial),
                Line::Invalid => return Err(ProtocolError::ArrayLength),
                Line::Negative(used) | Line::Length(0, used) => return Ok(Step::Nothing(used + 1)),
                Line::Length(count, used) => self.begin(count, used + 1)?,
            }
        }
        self.bulks(bytes)
    }

    #[inline]
    fn begin(&mut self, count: u64, parsed: usize) -> Result<(), ProtocolError> {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        if count > self.limits.max_arguments {
            return Err(ProtocolError::ArrayLength);
        }
        if count.saturating_mul(SHORTEST_BULK).saturating_add(parsed) > self.max_request_bytes() {
            return Err(ProtocolError::RequestTooLong);
        }
        self.forget();
        self.announced = count;
        self.parsed = parsed;
        Ok(())
    }

    /// Forgets the last request, and gives back what an unusually large one took.
    #[inline]
    fn forget(&mut self) {
        self.spans.clear();
        self.spans.shrink_to(KEPT);
        self.unquoted.clear();
        self.unquoted.shrink_to(KEPT);
    }

    #[inline]
    fn bulks(&mut self, bytes: &[u8]) -> Result<Step, ProtocolError> {
        let mut at = self.parsed;
        while self.spans.len() < self.announced {
            let length = match self.bulk {
                Some(length) => length,
                None => {
                    self.parsed = at;
                    let Some((marker, line)) = bytes.get(at..).and_then(|rest| rest.split_first()) else { return Ok(Step::Partial) };
                    if *marker != b'$' {
                        return Err(ProtocolError::ExpectedBulk(*marker));
                    }
                    #[cfg(test)]
                    self.count(line.len().min(20));
                    match length_line(line) {
                        Line::Partial => return Ok(Step::Partial),
                        Line::Invalid | Line::Negative(_) => return Err(ProtocolError::BulkLength),
                        Line::Length(length, used) => {
                            at += 1 + used;
                            self.announce_bulk(length, at)?
                        }
                    }
                }
            };
            let end = at + length;
            match bytes.get(end..end + 2) {
                Some(b"\r\n") => {}
                Some(_) => return Err(ProtocolError::BulkEnd),
                None => {
                    self.bulk = Some(length);
                    self.parsed = at;
                    return Ok(Step::Partial);
                }
            }
            self.bulk = None;
            self.spans.push((at as u32, end as u32));
            at = end + 2;
        }
        Ok(Step::Request(at, Words::InLine))
    }

    /// Checks a bulk's length before anything waits for its bytes. `at` is where it begins.
    #[inline]
    fn announce_bulk(&self, length: u64, at: usize) -> Result<usize, ProtocolError> {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if length > self.limits.max_bulk_bytes {
            return Err(ProtocolError::BulkLength);
        }
        let left = self.announced - self.spans.len() - 1;
        let least = at.saturating_add(length).saturating_add(2).saturating_add(left * SHORTEST_BULK);
        if least > self.max_request_bytes() {
            return Err(ProtocolError::RequestTooLong);
        }
        Ok(length)
    }

    fn inline(&mut self, bytes: &[u8]) -> Result<Step, ProtocolError> {
        let limit = self.limits.max_inline_bytes.min(self.max_request_bytes());
        let searched = &bytes[..bytes.len().min(limit)];
        let unsearched = searched.get(self.parsed..).unwrap_or_default();
        #[cfg(test)]
        self.count(unsearched.len());
        let Some(found) = unsearched.iter().position(|byte| *byte == b'\n') else {
            if bytes.len() >= limit {
                return Err(ProtocolError::InlineTooLong);
            }
            self.parsed = searched.len();
            return Ok(Step::Partial);
        };
        let end = self.parsed + found + 1;
        self.forget();
        let line = &bytes[..end - 1];
        let words = inline::split(line, &mut self.spans, &mut self.unquoted).map_err(|_| ProtocolError::UnbalancedQuotes)?;
        if self.spans.is_empty() {
            return Ok(Step::Nothing(end));
        }
        if self.spans.len() > self.limits.max_arguments {
            return Err(ProtocolError::TooManyArguments);
        }
        Ok(Step::Request(end, words))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode_request;

    /// Feeds `stream` in pieces of `piece` bytes, as a connection would; the requests, and the bytes that were looked at.
    fn feed(stream: &[u8], piece: usize) -> (Vec<Vec<Vec<u8>>>, u64) {
        let mut parser = Parser::new(Limits::default());
        let (mut buffer, mut requests) = (Vec::new(), Vec::new());
        for part in stream.chunks(piece) {
            buffer.extend_from_slice(part);
            while let Some(request) = parser.next(&buffer).expect("a request") {
                requests.push(request.iter().map(<[u8]>::to_vec).collect());
            }
            buffer.drain(..parser.consume());
        }
        assert!(buffer.is_empty());
        (requests, parser.examined)
    }

    #[test]
    fn a_large_value_that_arrives_slowly_costs_its_length_once() {
        let mut stream = Vec::new();
        encode_request(&[b"SET".as_slice(), b"k", &vec![b'x'; 4 << 20]], &mut stream);
        let (whole, at_once) = feed(&stream, usize::MAX);
        for piece in [1000, 7] {
            let (requests, examined) = feed(&stream, piece);
            assert_eq!(requests, whole);
            assert!(examined <= at_once + 400, "{examined} bytes examined in pieces of {piece}, {at_once} at once");
        }
    }

    #[test]
    fn many_arguments_and_long_lines_that_arrive_byte_by_byte_cost_linear_work() {
        let mut stream = Vec::new();
        encode_request(&vec![b"abc"; 50_000], &mut stream);
        assert!(feed(&stream, 1).1 <= 20 * stream.len() as u64);

        let line = [b"ECHO ".as_slice(), &vec![b'x'; 60_000], b"\r\n"].concat();
        assert_eq!(feed(&line, 1).1, line.len() as u64);
    }

    #[test]
    fn memory_follows_what_arrived_and_is_given_back() {
        let mut parser = Parser::new(Limits::default());
        assert_eq!(parser.next(b"*1048576\r\n$3\r\nDEL\r\n"), Ok(None));
        assert!(parser.spans.capacity() < 16);

        let mut stream = Vec::new();
        encode_request(&vec![b"abc"; 50_000], &mut stream);
        stream.extend_from_slice(b"PING\r\n");
        let mut parser = Parser::new(Limits::default());
        assert_eq!(parser.next(&stream).expect("valid").map(|request| request.len()), Some(50_000));
        assert!(parser.spans.capacity() >= 50_000);
        assert_eq!(parser.next(&stream).expect("valid").map(|request| request.len()), Some(1));
        assert!(parser.spans.capacity() <= KEPT);
    }

    #[test]
    fn memory_is_given_back_though_no_request_follows() {
        let mut stream = Vec::new();
        encode_request(&vec![b"abc"; 50_000], &mut stream);
        let large = stream.len();
        encode_request(&[b"ECHO".as_slice(), b"hi"], &mut stream);
        let mut parser = Parser::new(Limits::default());
        // Not while it arrives: its arguments so far are known by what would be given back.
        assert_eq!(parser.next(&stream[..large - 1]), Ok(None));
        parser.give_back();
        assert!(parser.spans.capacity() >= 49_999);
        assert_eq!(parser.next(&stream[..large]).expect("valid").map(|request| request.len()), Some(50_000));
        parser.give_back();
        assert!(parser.spans.capacity() <= KEPT);
        // Before or behind what is consumed, and though it is put back.
        parser.put_back();
        assert_eq!(parser.next(&stream).expect("valid").map(|request| request.len()), Some(50_000));
        assert_eq!(parser.consume(), large);
        parser.give_back();
        assert!(parser.spans.capacity() <= KEPT);
        assert_eq!(parser.next(&stream[large..]).expect("valid").map(|request| request.at(1)), Some(b"hi".as_slice()));

        let line = [b"ECHO \"".as_slice(), &vec![b'x'; 60_000], b"\"\r\n"].concat();
        let mut parser = Parser::new(Limits::default());
        assert!(parser.next(&line).expect("valid").is_some());
        assert!(parser.unquoted.capacity() >= 60_000);
        parser.give_back();
        assert!(parser.unquoted.capacity() <= KEPT);
    }

    #[test]
    fn what_is_ahead_of_a_request_in_pieces_is_looked_at_once() {
        let mut stream = Vec::new();
        encode_request(&[b"GET".as_slice(), b"first"], &mut stream);
        let first = stream.len();
        encode_request(&vec![b"abc"; 1000], &mut stream);
        let second = stream.len();
        encode_request(&[b"GET".as_slice(), b"third"], &mut stream);
        for piece in [1, 7, 1000] {
            let mut parser = Parser::new(Limits::default());
            let (mut buffer, mut looks, mut seen) = (Vec::new(), 0, Vec::new());
            for part in stream.chunks(piece) {
                buffer.extend_from_slice(part);
                loop {
                    if let Some(ahead) = parser.ahead(&buffer, 100) {
                        looks += 1;
                        seen.extend(ahead.map(<[u8]>::to_vec));
                    }
                    if parser.next(&buffer).expect("valid").is_none() {
                        break;
                    }
                }
                buffer.drain(..parser.consume());
            }
            assert!(looks <= 20, "{looks} looks at pieces of {piece}");
            let whole: &[&[u8]] = if piece < 1000 { &[] } else { &[b"first", b"third"] };
            assert_eq!(seen, whole, "in smaller pieces none is whole before some of it is parsed");
        }
        let mut parser = Parser::new(Limits::default());
        let keys = |ahead: Option<SecondArguments<'_>>| ahead.map(|ahead| ahead.map(<[u8]>::to_vec).collect::<Vec<_>>());
        assert_eq!(keys(parser.ahead(&stream, 100)).map(|keys| keys.len()), Some(3));
        assert!(parser.next(&stream[..second - 1]).expect("valid").is_some());
        assert_eq!(keys(parser.ahead(&stream[..second - 1], 100)), Some(Vec::new()));
        assert_eq!(parser.next(&stream[..second - 1]), Ok(None));
        assert_eq!(keys(parser.ahead(&stream, 100)), None);
        assert_eq!(parser.consume(), first);
        assert!(parser.next(&stream[first..]).expect("valid").is_some());
        assert_eq!(keys(parser.ahead(&stream[first..], 100)), Some(vec![b"third".to_vec()]));
    }

    #[test]
    fn wanted_is_what_is_missing() {
        let stream = b"PING\r\n*2\r\n$3\r\nGET\r\n$10\r\n0123456789\r\n";
        let mut parser = Parser::new(Limits::default());
        assert!(parser.next(&stream[..30]).expect("valid").is_some());
        assert_eq!(parser.next(&stream[..30]), Ok(None));
        assert_eq!(parser.wanted(), Some(stream.len()));
        assert_eq!(parser.consume(), 6);
        assert_eq!(parser.wanted(), Some(stream.len() - 6));
        assert!(parser.next(&stream[6..]).expect("valid").is_some());
        assert_eq!(parser.wanted(), None);
    }
}
