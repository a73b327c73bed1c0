//! RESP connections: each is a task on one shard's thread.
//!
//! It reads what has arrived, runs every whole request in it against the shard without waiting, and appends the replies to one buffer, which the
//! shard's next turn writes ([`Connection::release`]) once the log has been written through. A request that has to wait (for another shard, another node, other
//! data centers) becomes a future; until it is done the connection reads nothing further.

mod admission;
mod answer;
mod cluster;
mod counters;
mod info;
mod listening;
mod output;
mod scan;
mod slow;
mod state;
pub(crate) mod stream;
mod under_way;

pub(crate) use admission::Stranger;

use crate::load::Load;
use crate::load::clients::ClientInfo;
use crate::memory::Arriving;
use crate::shard::Shard;
use crate::socket;
use admission::admit;
use output::Output;
use rheostat_core::ids::Now;
use rheostat_resp::{Limits, Parser};
use slow::{Slow, SlowDone, Told};
use state::{Flow, State};
use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use stream::Stream;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use under_way::UnderWay;

/// Bytes that a connection reads at once, unless a request is larger.
pub(crate) const SCRATCH_BYTES: usize = 256 << 10;

/// Bytes of buffers that an idle connection keeps.
const KEPT_BYTES: usize = 16 << 10;

/// Reads in one run of the task, after which other tasks have their turn.
const READS_PER_RUN: usize = 4;

/// How long replies wait for those of later requests of the same pipeline that other shards are working on, in microseconds, so that they leave in one
/// write; and how many bytes of them wait.
const HOLD_US: u64 = 2_000;
const HOLD_BYTES: usize = 64 << 10;

/// Requests of a pipeline whose keys are looked up ahead, all at once.
const PREFETCHED: u64 = 32;

/// What is read of a client's next requests while the present one waits for long.
const AHEAD_BYTES: usize = 16 << 10;

/// The least that a client sends of a large request, in bytes a millisecond, once it has had room in memory for as long as one may be silent: others wait for that room.
pub(crate) const LEAST_PACE: u64 = 64;

/// How many times as long as a client may be silent a large request waits for room: others have to fall silent first.
pub(crate) const PATIENCE: u64 = 4;

/// For requests that are large and have waited for room for too long.
pub(crate) const NO_ROOM: &str = "BUSY other large requests are arriving, and there is no room in memory for one more (limits.memory_bytes)";

/// The largest growth of an input buffer ahead of what has arrived.
const GROWTH_BYTES: usize = 1 << 20;

/// One client.
pub(crate) struct Connection {
    inner: RefCell<Inner>,
}

struct Inner {
    stream: Stream,
    waker: Option<Waker>,
    parser: Parser,
    /// What has arrived and is not consumed: part of a request, or requests that wait for the present one.
    input: Vec<u8>,
    /// Room for it in memory, if it is large.
    arriving: Option<Arriving>,
    /// Since when it has had some.
    arriving_since_us: Option<u64>,
    /// There is none at the moment: nothing is read.
    waits_for_room: bool,
    /// Since when there has been none.
    no_room_since_us: Option<u64>,
    /// Whether `input` may hold whole requests.
    unparsed: bool,
    output: Output,
    /// TLS may keep some of what was written.
    flushes: bool,
    /// Whether the shard's next turn knows of us.
    registered: bool,
    slow: Option<Slow>,
    /// What that is.
    under_way: UnderWay,
    /// Outcomes that have come and are told as the output has room.
    told: Option<Told>,
    /// Since when replies have waited for other shards.
    held_since_us: Option<u64>,
    state: State,
    stranger: Stranger,
    closing: Closing,
    /// When bytes last came or went.
    progress_us: u64,
    /// The oldest request whose reply has not left, and how many there are.
    waiting_since_us: u64,
    waiting: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Closing {
    No,
    /// When everything has been written.
    AfterReplies,
    Now,
}

/// Serves a client until it goes, or has to.
pub(crate) async fn serve(shard: Rc<RefCell<Shard>>, mut stream: TcpStream, address: SocketAddr, tls: Option<Arc<ServerConfig>>) {
    let shared = shard.borrow().shared.clone();
    let (_place, stranger) = match admit(&shared, address) {
        Ok(admitted) => admitted,
        Err(why) => {
            // If the client does not get to read it, it is refused all the same.
            let _ = stream.try_write(why);
            let _ = stream.shutdown().await;
            return;
        }
    };
    let stall = Duration::from_millis(shared.config.limits.stall_timeout_ms);
    let result = match (socket::tune(&stream, false), tls) {
        (Err(error), _) => Err(error),
        (Ok(()), None) => Ok(Stream::Plain(stream)),
        (Ok(()), Some(config)) => match tokio::time::timeout(stall, TlsAcceptor::from(config).accept(stream)).await {
            Ok(accepted) => accepted.map(|stream| Stream::Tls(Box::new(stream))),
            Err(_) => Err(io::Error::other("the TLS handshake took too long")),
        },
    };
    match result {
        Ok(stream) => run(&shard, stream, (address, stranger), Vec::new()).await,
        Err(error) => tracing::debug!(%address, %error, "connection failed before its first request"),
    }
}

/// As [`serve`], of a client that was told so far that the node opens its data. What has `arrived` from it was not answered yet.
pub(crate) async fn take_over(shard: Rc<RefCell<Shard>>, mut stream: Stream, address: SocketAddr, arrived: Vec<u8>) {
    let shared = shard.borrow().shared.clone();
    let stall = Duration::from_millis(shared.config.limits.stall_timeout_ms);
    match admit(&shared, address) {
        Ok((_place, stranger)) => run(&shard, stream, (address, stranger), arrived).await,
        // As there.
        Err(why) => drop(tokio::time::timeout(stall, stream.write_all(why)).await),
    }
}

async fn run(shard: &Rc<RefCell<Shard>>, stream: Stream, (address, stranger): (SocketAddr, Stranger), arrived: Vec<u8>) {
    let (connection, id) = {
        let mut shard = shard.borrow_mut();
        let now = shard.now();
        let id = shard.shared.next_client.fetch_add(1, Ordering::Relaxed);
        let state = State::new(&shard.shared, id, address, now);
        let limits = if state.is_authenticated() { parser_limits(&shard.shared.config.limits) } else { Limits::unauthenticated() };
        let inner = Inner {
            stream,
            waker: None,
            parser: Parser::new(limits),
            unparsed: !arrived.is_empty(),
            input: arrived,
            arriving: None,
            arriving_since_us: None,
            waits_for_room: false,
            no_room_since_us: None,
            output: Output::default(),
            flushes: false,
            registered: false,
            slow: None,
            under_way: UnderWay::default(),
            told: None,
            held_since_us: None,
            state,
            stranger,
            closing: Closing::No,
            progress_us: now.monotonic_us,
            waiting_since_us: 0,
            waiting: 0,
        };
        let connection = Rc::new(Connection { inner: RefCell::new(inner) });
        shard.connections.insert(id, connection.clone());
        shard.counters.accepted += 1;
        (connection, id)
    };
    let ended = poll_fn(|context| connection.poll(shard, context)).await;
    if let Err(error) = ended {
        tracing::debug!(%address, %error, "connection ended");
    }
    let mut shard = shard.borrow_mut();
    shard.connections.remove(&id);
    shard.shared.load.take_reason(id);
}

fn parser_limits(limits: &crate::config::Limits) -> Limits {
    Limits {
        max_arguments: limits.max_arguments,
        max_bulk_bytes: limits.max_request_bytes,
        max_request_bytes: limits.max_request_bytes,
        ..Limits::default()
    }
}

impl Connection {
    fn poll(self: &Rc<Self>, shard: &Rc<RefCell<Shard>>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut inner = self.inner.borrow_mut();
        let inner = &mut *inner;
        if !inner.waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
            inner.waker = Some(context.waker().clone());
        }
        let mut reads = 0;
        loop {
            if inner.closing == Closing::Now {
                return Poll::Ready(Ok(()));
            }
            inner.write(&mut shard.borrow_mut(), context)?;
            if let Some(slow) = &mut inner.slow {
                let Poll::Ready(done) = slow.as_mut().poll(context) else { break };
                inner.slow = None;
                inner.finish(&mut shard.borrow_mut(), done);
                self.register(inner, shard);
                continue;
            }
            if inner.closing == Closing::AfterReplies {
                if !inner.output.is_empty() || inner.flushes {
                    break;
                }
                std::task::ready!(inner.stream.poll_shutdown(context))?;
                return Poll::Ready(Ok(()));
            }
            let limit = shard.borrow().shared.config.limits.output_buffer_bytes;
            if inner.output.len() > limit {
                break;
            }
            if let Some(mut told) = inner.told.take() {
                let left = inner.state.tell_on(&mut shard.borrow_mut(), &mut told, limit, &mut inner.output);
                inner.told = Some(told).filter(|_| left);
                self.register(inner, shard);
                continue;
            }
            if inner.state.hear(context, &mut inner.output) {
                self.register(inner, shard);
                continue;
            }
            if inner.unparsed {
                let input = std::mem::take(&mut inner.input);
                let used = inner.requests(shard, &input, limit);
                inner.keep(input, used);
                self.register(inner, shard);
                continue;
            }
            if shard.borrow().is_stopping() {
                // Requests that have arrived whole are answered; the rest of one is not waited for.
                inner.closing = Closing::AfterReplies;
                continue;
            }
            if reads == READS_PER_RUN {
                context.waker().wake_by_ref();
                break;
            }
            reads += 1;
            let Poll::Ready(bytes) = inner.read(shard, context, limit)? else { break };
            if bytes == 0 {
                if inner.output.is_empty() && !inner.flushes {
                    return Poll::Ready(Ok(()));
                }
                // Who sends nothing more may read on.
                inner.closing = Closing::AfterReplies;
                continue;
            }
            self.register(inner, shard);
        }
        Poll::Pending
    }

    /// Has the shard's next turn write what there is.
    fn register(self: &Rc<Self>, inner: &mut Inner, shard: &Rc<RefCell<Shard>>) {
        if !inner.registered && !inner.output.is_empty() {
            inner.registered = true;
            shard.borrow_mut().register_ready(self);
        }
    }

    /// Writes the replies that may leave. `failed`: the log could not be written, so replies since the last turn may be untrue, and the client is
    /// disconnected. Returns whether replies are left that wait for the disk.
    pub(crate) fn release(&self, shard: &mut Shard, now: Now, failed: bool) -> bool {
        let mut inner = self.inner.borrow_mut();
        let inner = &mut *inner;
        if failed {
            inner.closing = Closing::Now;
            inner.registered = false;
            inner.wake();
            return false;
        }
        if inner.slow.is_some()
            && let Some(since_us) = inner.held_since_us
            && inner.output.len() < HOLD_BYTES
            && now.monotonic_us < since_us + HOLD_US
            && inner.closing == Closing::No
        {
            shard.look_again(since_us + HOLD_US);
            return true;
        }
        inner.held_since_us = None;
        if inner.output.waits_for(|replica, after| shard.is_lost(replica, after)) {
            inner.closing = Closing::Now;
            inner.registered = false;
            inner.wake();
            return false;
        }
        inner.output.release(|replica, after| after <= shard.durable(replica));
        let all = inner.output.is_released();
        if all && inner.waiting > 0 && inner.slow.is_none() && inner.told.is_none() {
            let level = crate::status::level_index(inner.state.level());
            let took_us = now.monotonic_us.saturating_sub(inner.waiting_since_us);
            shard.counters.latency_us[level].record(took_us, inner.waiting);
            if took_us >= shard.shared.load.slow.threshold_us() {
                inner.under_way.late(now, &shard.shared, &inner.state, (inner.waiting_since_us, inner.waiting));
            }
            inner.waiting = 0;
        }
        let waker = inner.waker.clone().unwrap_or_else(|| Waker::noop().clone());
        if inner.write(shard, &mut Context::from_waker(&waker)).is_err() {
            inner.closing = Closing::Now;
        }
        // What the task waits for may be that the buffer has room again, or is empty.
        if inner.closing != Closing::No || (inner.unparsed || inner.state.is_listening()) && inner.slow.is_none() || shard.is_stopping() {
            inner.wake();
        }
        inner.registered = !all;
        !all
    }

    /// Closes the connection if nothing has come of it for too long, or if its client has gone while a request waits.
    pub(crate) fn check_stalled(self: &Rc<Self>, shard: &mut Shard, now: Now) {
        let mut inner = self.inner.borrow_mut();
        let inner = &mut *inner;
        let stall_ms = shard.shared.config.limits.stall_timeout_ms;
        let ms_since = |since_us: u64| now.monotonic_us.saturating_sub(since_us) / 1000;
        if std::mem::take(&mut inner.waits_for_room) {
            // That it does not go on is no fault of the client's.
            inner.progress_us = now.monotonic_us;
            inner.wake();
            if ms_since(*inner.no_room_since_us.get_or_insert(now.monotonic_us)) >= PATIENCE * stall_ms {
                shard.counters.errors += 1;
                inner.output.error(NO_ROOM, inner.state.version());
                inner.output.end_batch();
                inner.closing = Closing::AfterReplies;
                if !std::mem::replace(&mut inner.registered, true) {
                    shard.register_ready(self);
                }
                return;
            }
        }
        let limits = &shard.shared.config.limits;
        let quiet_ms = ms_since(inner.progress_us);
        if inner.slow.is_some() && quiet_ms >= limits.operation_timeout_ms && inner.is_gone() {
            inner.closing = Closing::Now;
            return inner.wake();
        }
        let half_sent = inner.slow.is_none() && !inner.unparsed && (!inner.input.is_empty() || inner.state.queued().is_some());
        let unread = inner.output.has_released() || inner.flushes;
        // What holds room that others wait for has to come, too.
        let arriving = inner.arriving_since_us.map(|since_us| (since_us, inner.input.len() as u64));
        let crawls = |(since_us, bytes)| ms_since(since_us).saturating_sub(limits.stall_timeout_ms) > bytes / LEAST_PACE;
        let stalled =
            (half_sent || unread) && quiet_ms >= limits.stall_timeout_ms || half_sent && arriving.into_iter().chain(inner.state.queued()).any(crawls);
        let unknown = inner.state.unknown_since_us().is_some_and(|since_us| ms_since(since_us) >= limits.stall_timeout_ms);
        let idle = limits.idle_timeout_ms > 0 && quiet_ms >= limits.idle_timeout_ms && inner.slow.is_none() && !inner.state.is_listening();
        if stalled || unknown {
            shard.counters.stalled += 1;
        } else if idle {
            shard.counters.idle += 1;
        } else {
            return;
        }
        inner.closing = Closing::Now;
        inner.wake();
    }

    /// Waits for nothing any more: the shard has ended.
    pub(crate) fn give_up(&self) {
        self.inner.borrow_mut().slow = None;
    }

    /// Has the task look again.
    pub(crate) fn wake(&self) {
        self.inner.borrow().wake();
    }

    /// The line of CLIENT LIST; `None` while the connection itself is running the command.
    pub(crate) fn describe(&self, now: Now) -> Option<String> {
        let inner = self.inner.try_borrow().ok()?;
        Some(inner.state.describe(now, inner.progress_us, inner.input.len(), inner.output.len()))
    }

    /// The same for programs; `None` likewise.
    pub(crate) fn client(&self, now: Now, load: &Load) -> Option<ClientInfo> {
        let inner = self.inner.try_borrow().ok()?;
        let client = inner.state.to_client_info(now);
        Some(ClientInfo {
            idle_ms: now.monotonic_us.saturating_sub(inner.progress_us) / 1000,
            pending: inner.under_way.pending(now, load, client.id),
            input_bytes: inner.input.len() as u64,
            output_bytes: inner.output.len() as u64,
            ..client
        })
    }
}

impl Inner {
    fn wake(&self) {
        if let Some(waker) = &self.waker {
            waker.wake_by_ref();
        }
    }

    /// Reads once and runs the requests that are there; the number of bytes read.
    fn read(&mut self, shard: &Rc<RefCell<Shard>>, context: &mut Context<'_>, limit: usize) -> Poll<io::Result<usize>> {
        if self.input.is_empty() {
            // Nothing is left over from before: the shard's own buffer serves, and an idle connection has none.
            let mut scratch = std::mem::take(&mut shard.borrow_mut().scratch);
            if scratch.len() < SCRATCH_BYTES {
                scratch.resize(SCRATCH_BYTES, 0);
            }
            let mut buffer = ReadBuf::new(&mut scratch);
            let read = Pin::new(&mut self.stream).poll_read(context, &mut buffer);
            let bytes = buffer.filled().len();
            if bytes > 0 {
                shard.borrow_mut().counters.bytes_read += bytes as u64;
                let used = self.requests(shard, &scratch[..bytes], limit);
                self.input.extend_from_slice(&scratch[used..bytes]);
                self.parser.give_back();
            }
            shard.borrow_mut().scratch = scratch;
            return read.map_ok(|()| bytes);
        }
        // The rest of a large request: the buffer grows as it arrives, at most as fast as what is there already.
        let start = self.input.len();
        let missing = self.parser.wanted().map_or(start, |wanted| wanted.saturating_sub(start));
        let room = missing.clamp(KEPT_BYTES, start.clamp(KEPT_BYTES, GROWTH_BYTES));
        let whole = start + missing.max(room);
        if whole > SCRATCH_BYTES {
            if self.arriving.as_ref().is_none_or(|arriving| arriving.bytes < whole) {
                // What it has is given back first: two that each want more must not wait for each other.
                self.arriving = None;
                self.arriving = shard.borrow().shared.budget.take_arriving(whole);
                self.waits_for_room = self.arriving.is_none();
                if self.waits_for_room {
                    self.arriving_since_us = None;
                    return Poll::Pending;
                }
                self.no_room_since_us = None;
            }
            self.arriving_since_us.get_or_insert_with(|| shard.borrow().now().monotonic_us);
        }
        let mut input = std::mem::take(&mut self.input);
        input.reserve(room);
        let read = pin!(self.stream.read_buf(&mut input)).poll(context);
        let mut used = 0;
        if input.len() > start {
            shard.borrow_mut().counters.bytes_read += (input.len() - start) as u64;
            used = self.requests(shard, &input, limit);
        }
        self.keep(input, used);
        read
    }

    /// While a request waits, nothing is read otherwise: whether the client has gone meanwhile. What it has sent is kept, up to a bound; behind more than that its end is not seen.
    fn is_gone(&mut self) -> bool {
        if self.input.len() >= AHEAD_BYTES {
            return false;
        }
        let waker = self.waker.clone().unwrap_or_else(|| Waker::noop().clone());
        let mut bytes = [0; AHEAD_BYTES];
        let mut buffer = ReadBuf::new(&mut bytes);
        match Pin::new(&mut self.stream).poll_read(&mut Context::from_waker(&waker), &mut buffer) {
            Poll::Pending => false,
            Poll::Ready(Err(_)) => true,
            Poll::Ready(Ok(())) => {
                self.input.extend_from_slice(buffer.filled());
                buffer.filled().is_empty()
            }
        }
    }

    /// Keeps what is left of `input` after `used` bytes, and no more memory than that takes.
    fn keep(&mut self, mut input: Vec<u8>, used: usize) {
        self.parser.give_back();
        if used > 0 {
            self.arriving_since_us = None;
        }
        if used == input.len() {
            input.clear();
            self.arriving = None;
            if input.capacity() > KEPT_BYTES {
                input = Vec::new();
            }
        } else {
            input.drain(..used);
            if used > 0 && input.len() <= SCRATCH_BYTES {
                // What the request before it had is not its own.
                self.arriving = None;
                input.shrink_to(SCRATCH_BYTES);
            }
        }
        self.input = input;
    }

    /// Runs the requests at the front of `bytes`, until there is no whole one, one has to wait, or so many bytes of replies wait that the client should read
    /// first. Returns how many bytes were used up.
    fn requests(&mut self, shard: &Rc<RefCell<Shard>>, bytes: &[u8], limit: usize) -> usize {
        let mut borrowed = shard.borrow_mut();
        let now = borrowed.now();
        // Bytes have come, or a request that others waited for is done.
        self.progress_us = now.monotonic_us;
        self.unparsed = false;
        self.state.take_in(now);
        if self.state.look_at_users(now) {
            self.parser.set_limits(Limits::unauthenticated());
        }
        // Requests that are done, and up to which one they have been looked up ahead.
        let (mut count, mut ahead) = (0u64, 0u64);
        loop {
            if self.output.len() > limit {
                self.unparsed = true;
                break;
            }
            if count >= ahead
                && let Some(keys) = self.parser.ahead(bytes, PREFETCHED as usize)
            {
                self.state.prefetch(&mut borrowed, keys);
                ahead = count + PREFETCHED;
            }
            let arguments = match self.parser.next(bytes) {
                Ok(Some(arguments)) => arguments,
                Ok(None) => break,
                // It comes again when what is before it has been answered.
                Err(_) if self.state.collects() => break,
                Err(error) => {
                    borrowed.counters.protocol_errors += 1;
                    self.output.error(&error.to_string(), self.state.version());
                    self.closing = Closing::AfterReplies;
                    break;
                }
            };
            count += 1;
            match self.state.request(&mut borrowed, shard, now, arguments, &mut self.output) {
                Flow::Done => {}
                Flow::Later => {
                    self.parser.put_back();
                    count -= 1;
                    break;
                }
                Flow::Authenticated => self.parser.set_limits(parser_limits(&borrowed.shared.config.limits)),
                Flow::Forgotten => self.parser.set_limits(Limits::unauthenticated()),
                Flow::Slow(slow) => {
                    self.under_way.begin(now, self.state.last_command(), arguments);
                    self.slow = Some(slow);
                    self.unparsed = true;
                    break;
                }
                Flow::Close => {
                    self.closing = Closing::AfterReplies;
                    break;
                }
            }
        }
        let (collected, away) = (self.state.collected(), self.state.has_away());
        if let Flow::Slow(slow) = self.state.depart(&mut borrowed, now, shard, &mut self.output) {
            if let Some(collected) = &collected {
                self.under_way.begin_several(now, collected);
            }
            self.slow = Some(slow);
            self.unparsed = true;
            if away {
                self.held_since_us.get_or_insert(now.monotonic_us);
            }
        }
        self.state.give();
        self.stranger.owes(!self.state.is_authenticated());
        // What comes after them has waited.
        self.unparsed |= collected.is_some();
        borrowed.counters.requests += count;
        if self.waiting == 0 {
            self.waiting_since_us = now.monotonic_us;
        }
        self.waiting += count;
        self.output.end_batch();
        if self.closing == Closing::No { self.parser.consume() } else { bytes.len() }
    }

    /// Takes in what a waiting request came to.
    fn finish(&mut self, shard: &mut Shard, done: SlowDone) {
        self.output.append(&done.reply, &done.waits);
        self.output.end_batch();
        shard.counters.errors += u64::from(done.reply.first() == Some(&b'-'));
        self.under_way.end(shard.shared.clocks.monotonic_us(), &shard.shared, &self.state, || done.failure());
        self.told = self.state.finish(done);
        // If nothing is left, looking once more finds nothing.
        self.unparsed = true;
    }

    /// Writes what has been released, as far as the socket takes it.
    fn write(&mut self, shard: &mut Shard, context: &mut Context<'_>) -> io::Result<()> {
        while let Some(bytes) = self.output.released() {
            match self.stream.poll_write(context, bytes) {
                Poll::Pending => return Ok(()),
                Poll::Ready(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(Ok(written)) => {
                    shard.counters.bytes_written += written as u64;
                    self.output.written(written);
                    // What TLS has taken may wait in it until the socket takes more.
                    self.flushes = true;
                    self.progress_us = shard.now().monotonic_us;
                }
                Poll::Ready(Err(error)) => return Err(error),
            }
        }
        if self.flushes
            && let Poll::Ready(flushed) = self.stream.poll_flush(context)
        {
            flushed?;
            self.flushes = false;
        }
        Ok(())
    }
}
