//! Requests as they arrive: one that is announced large takes its room in memory before it is read, as over RESP, and one of too many parts is refused before it is decoded.
//!
//! A connection has many requests at once here, and each could be as large as one may be: those that are small, and larger than a frame, take room as well, of their own. An empty part takes two bytes as it arrives, and some
//! fifty times as much when it is decoded, and what is decoded is kept until the client says that its request has ended: parts take room by their number.

use super::Entered;
use crate::connection::{LEAST_PACE, NO_ROOM, PATIENCE, SCRATCH_BYTES};
use crate::memory::{Arriving, Memory};
use crate::shared::Shared;
use bytes::Bytes;
use hyper::body::Frame;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, Sleep};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::codegen::http::Request;
use tonic::server::NamedService;

/// How often a request is looked at that waits for room, or has some and does not come.
const LOOK: Duration = Duration::from_millis(100);

/// For requests that have room and do not come.
const CRAWLS: &str = "this request does not come, or too slowly, and has room in memory that others wait for (limits.stall_timeout_ms)";

/// So many fields a request may have in any case, beside `limits.max_arguments`: it has others than keys and items, and to restore a backup is no user's request.
const FEW_FIELDS: usize = 1 << 16;
const OTHER_FIELDS: usize = 64;

/// Bytes of a message that takes no room: it comes in one frame.
const FRAME_BYTES: usize = 16 << 10;

/// What a field may take in memory when it is decoded, however short it is.
const FIELD_BYTES: usize = 64;

/// Bytes in front of a message: whether it is compressed, and its length.
const HEAD: usize = 5;

/// What bounds requests as they arrive.
#[derive(Clone)]
pub(super) struct Bounds {
    budget: Arc<Memory>,
    /// Where requests up to [`SCRATCH_BYTES`] take their room: as much again, so that large ones do not keep them out.
    small: Arc<Memory>,
    /// The largest message that is read.
    largest: usize,
    /// The most fields of a request; what is in them does not count.
    most_fields: usize,
    /// How long a client may be silent.
    stall: Duration,
}

impl Bounds {
    /// Those of the node.
    pub(super) fn of(shared: &Shared) -> Bounds {
        let limits = &shared.config.limits;
        Bounds {
            budget: shared.budget.clone(),
            small: Arc::new(Memory::new(shared.budget.budget(), SCRATCH_BYTES)),
            largest: limits.max_request_bytes,
            most_fields: limits.max_arguments.max(FEW_FIELDS).saturating_add(OTHER_FIELDS),
            stall: Duration::from_millis(limits.stall_timeout_ms),
        }
    }
}

/// A service whose requests take room.
#[derive(Clone)]
pub(super) struct TakesRoom<S>(pub(super) S, pub(super) Bounds);

impl<S: NamedService> NamedService for TakesRoom<S> {
    const NAME: &'static str = S::NAME;
}

impl<S: Service<Request<Body>>> Service<Request<Body>> for TakesRoom<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> S::Future {
        let (bounds, entered) = (self.1.clone(), request.extensions().get::<Entered>().cloned());
        self.0.call(request.map(|body| Body::new(Arrival::new(body, bounds, entered))))
    }
}

/// A number of a message, as far as it has come.
#[derive(Clone, Copy, Default)]
struct Number {
    value: u64,
    bits: u32,
}

impl Number {
    /// Takes in its next byte; the number, if that was the last. What is longer than 64 bits is refused by who decodes it.
    fn next(&mut self, byte: u8) -> Option<u64> {
        self.value |= u64::from(byte & 0x7f).checked_shl(self.bits).unwrap_or(0);
        self.bits = self.bits.saturating_add(7);
        (byte & 0x80 == 0).then_some(self.value)
    }
}

/// What comes next in a message.
enum Part {
    /// What a field is.
    Tag(Number),
    /// A number.
    Value,
    /// The length of what follows it.
    Length(Number),
    /// So many bytes.
    Bytes(u64),
}

impl Default for Part {
    fn default() -> Part {
        Part::Tag(Number::default())
    }
}

impl Part {
    fn bytes(count: u64) -> Part {
        if count == 0 { Part::default() } else { Part::Bytes(count) }
    }
}

/// The fields of messages, counted as they pass. Who decodes them judges them.
#[derive(Default)]
struct Fields {
    count: usize,
    part: Part,
}

impl Fields {
    fn pass(&mut self, mut bytes: &[u8]) {
        while let Some((byte, rest)) = bytes.split_first() {
            let next = match &mut self.part {
                Part::Bytes(left) => {
                    let passed = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                    *left -= passed as u64;
                    let left = *left;
                    self.part = Part::bytes(left);
                    bytes = &bytes[passed..];
                    continue;
                }
                Part::Tag(number) => number.next(*byte).map(|tag| {
                    self.count += 1;
                    match tag & 7 {
                        0 => Part::Value,
                        1 => Part::Bytes(8),
                        2 => Part::Length(Number::default()),
                        5 => Part::Bytes(4),
                        _ => Part::default(),
                    }
                }),
                Part::Length(number) => number.next(*byte).map(Part::bytes),
                Part::Value => (byte & 0x80 == 0).then(Part::default),
            };
            if let Some(next) = next {
                self.part = next;
            }
            bytes = rest;
        }
    }
}

/// Where one is in a body: messages, each behind its head.
#[derive(Default)]
struct Announced {
    head: [u8; HEAD],
    /// Bytes of the head that have come.
    known: usize,
    /// Bytes of the message that have not.
    left: usize,
    fields: Fields,
}

impl Announced {
    /// Passes over `bytes`; the length of the largest message that is announced in them, 0 if none is.
    fn pass(&mut self, mut bytes: &[u8]) -> usize {
        let mut largest = 0;
        while !bytes.is_empty() {
            if self.left > 0 {
                let (of_message, rest) = bytes.split_at(bytes.len().min(self.left));
                self.fields.pass(of_message);
                self.left -= of_message.len();
                bytes = rest;
                continue;
            }
            let (of_head, rest) = bytes.split_at(bytes.len().min(HEAD - self.known));
            self.head[self.known..self.known + of_head.len()].copy_from_slice(of_head);
            self.known += of_head.len();
            bytes = rest;
            if self.known == HEAD {
                let [_, length @ ..] = self.head;
                (self.known, self.left, self.fields.part) = (0, u32::from_be_bytes(length) as usize, Part::default());
                largest = largest.max(self.left);
            }
        }
        largest
    }
}

/// The room that a request has.
struct Taken {
    room: Arriving,
    since: Instant,
    /// When bytes last came.
    heard: Instant,
    /// Bytes that have come since it has room.
    came: u64,
}

/// A request's body.
struct Arrival {
    body: Body,
    bounds: Bounds,
    /// Who has been let in with it.
    entered: Option<Entered>,
    announced: Announced,
    /// Bytes of the largest message that was announced, or of the fields that have come, decoded, if that is more.
    wanted: usize,
    /// What has come, and is not read before there is room.
    held: Option<Frame<Bytes>>,
    taken: Option<Taken>,
    /// Since when it waits for room, if it does.
    waits_since: Option<Instant>,
    look: Option<Pin<Box<Sleep>>>,
}

impl Arrival {
    fn new(body: Body, bounds: Bounds, entered: Option<Entered>) -> Arrival {
        Arrival { body, bounds, entered, announced: Announced::default(), wanted: 0, held: None, taken: None, waits_since: None, look: None }
    }

    /// Errors: who has been let in with it may not go on.
    fn may_go_on(&self) -> Result<(), Status> {
        self.entered.as_ref().map_or(Ok(()), Entered::still)
    }

    fn take_in(&mut self, frame: Frame<Bytes>) {
        if let Some(bytes) = frame.data_ref() {
            let announced = self.announced.pass(bytes);
            // What is larger than the largest is refused by who reads it.
            if announced <= self.bounds.largest {
                self.wanted = self.wanted.max(announced);
            }
            // In large steps: room that grows is taken anew. The largest request has room in any case.
            let decoded = self.announced.fields.count.saturating_mul(FIELD_BYTES).next_power_of_two();
            self.wanted = self.wanted.max(decoded.min(self.bounds.largest));
            if let Some(taken) = &mut self.taken {
                taken.heard = Instant::now();
                taken.came += bytes.len() as u64;
            }
        }
        self.held = Some(frame);
    }

    /// Whether it has the room that it needs, and is to be read. Takes room if there is some.
    fn has_room(&mut self) -> bool {
        if self.announced.fields.count > self.bounds.most_fields {
            return false;
        }
        if self.wanted <= FRAME_BYTES || self.taken.as_ref().is_some_and(|taken| taken.room.bytes >= self.wanted) {
            return true;
        }
        let now = Instant::now();
        // What it has is given back first: two that each want more must not wait for each other.
        self.taken = None;
        let Bounds { budget, small, .. } = &self.bounds;
        let budget = if self.wanted <= SCRATCH_BYTES { small } else { budget };
        self.taken = budget.take_arriving(self.wanted).map(|room| Taken { room, since: now, heard: now, came: 0 });
        self.waits_since = if self.taken.is_some() { None } else { self.waits_since.or(Some(now)) };
        self.taken.is_some()
    }

    /// Why it is not taken, or not waited for any longer, if so.
    fn ends(&self) -> Option<Status> {
        let most = self.bounds.most_fields;
        if self.announced.fields.count > most {
            return Some(Status::invalid_argument(format!("a request of more than {most} fields (limits.max_arguments)")));
        }
        let (now, stall) = (Instant::now(), self.bounds.stall);
        if let Some(since) = self.waits_since {
            let words = NO_ROOM.trim_start_matches("BUSY ");
            return (now.duration_since(since) >= stall.saturating_mul(PATIENCE as u32)).then(|| Status::resource_exhausted(words));
        }
        let taken = self.taken.as_ref()?;
        let late_ms = now.duration_since(taken.since).saturating_sub(stall).as_millis() as u64;
        let crawls = now.duration_since(taken.heard) >= stall || late_ms > taken.came / LEAST_PACE;
        // A small one may take its time while there is room for another.
        let crawls = crawls && (taken.room.bytes > SCRATCH_BYTES || self.bounds.small.take_arriving(SCRATCH_BYTES).is_none());
        crawls.then(|| Status::deadline_exceeded(CRAWLS))
    }
}

impl hyper::body::Body for Arrival {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = self.get_mut();
        loop {
            if this.held.is_none() {
                match Pin::new(&mut this.body).poll_frame(context) {
                    Poll::Ready(Some(Ok(frame))) => this.take_in(frame),
                    Poll::Ready(None) => return Poll::Ready(this.may_go_on().err().map(Err)),
                    Poll::Ready(failed) => return Poll::Ready(failed),
                    Poll::Pending if this.taken.is_none() => return Poll::Pending,
                    Poll::Pending => {}
                }
            }
            if this.held.is_some() && this.has_room() {
                this.may_go_on()?;
                return Poll::Ready(this.held.take().map(Ok));
            }
            if let Some(why) = this.ends() {
                return Poll::Ready(Some(Err(why)));
            }
            let look = this.look.get_or_insert_with(|| Box::pin(tokio::time::sleep(LOOK)));
            ready!(look.as_mut().poll(context));
            look.as_mut().reset(Instant::now() + LOOK);
        }
    }

    fn is_end_stream(&self) -> bool {
        self.held.is_none() && self.body.is_end_stream()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::{BodyExt, StreamBody};
    use proptest::prelude::*;
    use tokio::sync::mpsc;
    use tokio_stream::wrappers::ReceiverStream;
    use tonic::Code;

    proptest! {
        #[test]
        fn what_is_announced_is_known_however_it_comes(lengths in proptest::collection::vec(0usize..300, 0..8), piece in 1usize..400) {
            let mut bytes = Vec::new();
            for length in &lengths {
                bytes.push(0);
                bytes.extend_from_slice(&(*length as u32).to_be_bytes());
                bytes.resize(bytes.len() + length, 0xff);
            }
            let mut announced = Announced::default();
            let largest = bytes.chunks(piece).map(|part| announced.pass(part)).max().unwrap_or(0);
            prop_assert_eq!(largest, lengths.iter().copied().max().unwrap_or(0));
            prop_assert_eq!((announced.known, announced.left), (0, 0));
        }
    }

    #[test]
    fn fields_are_counted_however_they_come() {
        let mut message = Vec::new();
        let fields: [&[u8]; 7] = [
            &[0x08, 0x96, 0x01],
            &[0x12, 0x00],
            &[0x12, 0x03, 0x12, 0x12, 0x12],
            &[0x0d, 1, 2, 3, 4],
            &[0x09, 1, 2, 3, 4, 5, 6, 7, 8],
            &[0x08, 0],
            &[0x12, 0],
        ];
        fields.iter().for_each(|field| message.extend_from_slice(field));
        message.extend_from_slice(&[0xa2, 0x06, 0xac, 0x02]);
        message.resize(message.len() + 300, 0x12);
        message.extend_from_slice(&[0x10, 0x7f]);
        for piece in 1..message.len() {
            let mut counted = Fields::default();
            message.chunks(piece).for_each(|part| counted.pass(part));
            assert_eq!(counted.count, 9, "in pieces of {piece}");
        }
    }

    #[tokio::test]
    async fn a_request_of_too_many_parts_is_refused_before_it_is_whole() {
        let bounds = Bounds { most_fields: 1000, ..bounds(60_000) };
        let (sender, mut arrival) = announce(4000, &bounds).await;
        assert!(arrival.frame().await.unwrap().is_ok());
        sender.send(Ok(Frame::data(Bytes::from([0x12u8, 0].repeat(1000))))).await.unwrap();
        assert!(arrival.frame().await.unwrap().is_ok());
        sender.send(Ok(Frame::data(Bytes::from_static(&[0x12, 0])))).await.unwrap();
        assert_eq!(arrival.frame().await.unwrap().unwrap_err().code(), Code::InvalidArgument);
    }

    /// Room for one request of 6 MB, and for none beside it; and for one of 256 KiB.
    fn bounds(stall_ms: u64) -> Bounds {
        let largest = 8 << 20;
        let (budget, small) = (Arc::new(Memory::new(64 << 20, largest)), Arc::new(Memory::new(1, SCRATCH_BYTES)));
        Bounds { budget, small, largest, most_fields: 1 << 20, stall: Duration::from_millis(stall_ms) }
    }

    type Sender = mpsc::Sender<Result<Frame<Bytes>, Status>>;

    /// A request that announces a message of so many bytes.
    async fn announce(bytes: u32, bounds: &Bounds) -> (Sender, Arrival) {
        let (sender, receiver) = mpsc::channel(4);
        let head = [&[0u8][..], &bytes.to_be_bytes()].concat();
        sender.send(Ok(Frame::data(Bytes::from(head)))).await.unwrap();
        (sender, Arrival::new(Body::new(StreamBody::new(ReceiverStream::new(receiver))), bounds.clone(), None))
    }

    async fn is_read(arrival: &mut Arrival) -> bool {
        tokio::time::timeout(Duration::ZERO, arrival.frame()).await.is_ok()
    }

    #[tokio::test]
    async fn a_large_request_waits_until_there_is_room() {
        let bounds = bounds(60_000);
        let (_first, mut one) = announce(6 << 20, &bounds).await;
        let (_second, mut other) = announce(6 << 20, &bounds).await;
        let (_third, mut small) = announce(1000, &bounds).await;
        let (_fourth, mut too_large) = announce(9 << 20, &bounds).await;
        assert!(is_read(&mut one).await && !is_read(&mut other).await);
        assert!(is_read(&mut small).await && is_read(&mut too_large).await, "neither takes room");
        drop(one);
        assert!(other.frame().await.is_some_and(|frame| frame.is_ok()));
    }

    #[tokio::test]
    async fn requests_of_several_frames_have_room_together_however_small() {
        let bounds = bounds(1);
        let patient = Bounds { stall: Duration::from_secs(60), ..bounds.clone() };
        let (_first, mut one) = announce(200 << 10, &bounds).await;
        let (_second, mut other) = announce(200 << 10, &patient).await;
        let (_third, mut large) = announce(6 << 20, &bounds).await;
        let (_fourth, mut frame) = announce(16 << 10, &bounds).await;
        assert!(is_read(&mut one).await && !is_read(&mut other).await);
        assert!(is_read(&mut large).await && is_read(&mut frame).await, "they take other room, or none");
        assert_eq!(one.frame().await.unwrap().unwrap_err().code(), Code::DeadlineExceeded);
        drop(one);
        assert!(other.frame().await.unwrap().is_ok());
        // Nobody else wants its room.
        let bounds = Bounds { small: Arc::new(Memory::new(8 << 20, SCRATCH_BYTES)), ..bounds };
        let (_fifth, mut slow) = announce(200 << 10, &bounds).await;
        assert!(slow.frame().await.unwrap().is_ok());
        assert!(tokio::time::timeout(3 * LOOK, slow.frame()).await.is_err());
    }

    #[tokio::test]
    async fn a_request_of_many_parts_has_room_for_what_they_become() {
        let bounds = bounds(60_000);
        let (sender, mut one) = announce(4000, &bounds).await;
        sender.send(Ok(Frame::data(Bytes::from([0x12u8, 0].repeat(2000))))).await.unwrap();
        assert!(is_read(&mut one).await && is_read(&mut one).await);
        let (_second, mut other) = announce(200 << 10, &bounds).await;
        assert!(!is_read(&mut other).await);
        drop(one);
        assert!(other.frame().await.unwrap().is_ok());
    }

    #[tokio::test]
    async fn one_that_does_not_come_is_ended_and_so_is_one_that_waits_for_too_long() {
        let bounds = bounds(100);
        let (_first, mut silent) = announce(6 << 20, &bounds).await;
        assert!(silent.frame().await.unwrap().is_ok());
        let (_second, mut other) = announce(6 << 20, &bounds).await;
        assert_eq!(other.frame().await.unwrap().unwrap_err().code(), Code::ResourceExhausted);
        assert_eq!(silent.frame().await.unwrap().unwrap_err().code(), Code::DeadlineExceeded);
        drop(silent);
        let (_third, mut third) = announce(6 << 20, &bounds).await;
        assert!(third.frame().await.unwrap().is_ok(), "its room is free");
    }
}
