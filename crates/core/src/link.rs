//! The stream of a partition server's own updates to its peer in another data center.
//!
//! Every batch speaks for itself: "these are all my updates after A and up to T". The receiver applies it if it already has
//! everything up to A, skips what it has, and has it sent again from where it stands when something is missing. So the stream is
//! exactly once and in order over a transport that loses, repeats or reorders batches, over reconnects, and over crashes and restarts of
//! either end; and a heartbeat, which is a batch without updates, cannot overtake one.
//!
//! Silence proves no loss: on a slow link a large value is under way for long. A receiver that hears nothing only asks ([`LinkFrame::Ask`]), and the sender says up to
//! where it has sent, in the stream ([`LinkFrame::Sent`]): what has not come by then is lost, and only that is sent again ([`LinkFrame::Resume`]).
//!
//! A receiver that has lost what it said it had is sent parts: what the sender's versions still hold. They lack what newer versions have replaced, so they
//! are a state only together with those, and each says what the receiver needs before it may rely on them.
//!
//! Of a data center that is out of reach, the others pass on what they have ([`LinkFrame::Wanted`], [`LinkFrame::Passed`]). It goes into the same stream, at the place where it stands, so
//! whoever sends it, it is taken once and in order.

use crate::planted::Planted;
use crate::version::Update;
use crate::wire::Wire;
use rheostat_clock::{DcId, Timestamp, TimestampVector};
use std::collections::VecDeque;

/// The bugs that can be planted in the links; see the lines that name them.
pub const PLANTED: &[&str] = &[
    "heartbeat-overtakes-put",
    "update-skipped-at-reconnect",
    "acknowledged-before-durable",
    "gap-in-stream-accepted",
    "passed-on-beyond-what-is-here",
    "passed-on-without-what-was-forgotten",
];

/// What travels on a link.
#[derive(Clone, PartialEq, Debug)]
pub enum LinkFrame<M> {
    /// All of the sender's updates after `after` and up to `through`.
    Batch {
        /// Everything up to here was sent before.
        after: Timestamp,
        /// Nothing up to here is left to send.
        through: Timestamp,
        /// The updates, in timestamp order.
        updates: Vec<Update<M>>,
    },
    /// As a batch, but without those of the sender's updates that newer ones, of any data center, have replaced.
    Part {
        /// As in a batch.
        after: Timestamp,
        /// As in a batch.
        through: Timestamp,
        /// The updates, in timestamp order.
        updates: Vec<Update<M>>,
        /// Whoever has everything of each data center up to here lacks nothing by it.
        needs: TimestampVector,
    },
    /// The receiver has everything up to `received`, and what was sent after that is lost: send from there.
    Resume {
        /// Up to where.
        received: Timestamp,
    },
    /// The receiver has everything up to `received` and hears nothing more: is there more?
    Ask {
        /// Up to where.
        received: Timestamp,
        /// The question's number, greater than those of the receiver's questions before.
        question: u64,
    },
    /// The answer to a question, in the stream: everything up to `through` has been sent before.
    Sent {
        /// Up to where.
        through: Timestamp,
        /// The question's number.
        question: u64,
    },
    /// The receiver has everything up to `durable` on disk.
    Acknowledge {
        /// Up to where.
        durable: Timestamp,
        /// Up to where it has the updates of each other data center on disk, but for the sender's and its own.
        holds: TimestampVector,
    },
    /// The receiver has everything of data center `origin` up to `received`, and hears nothing from it: what else is known of it?
    Wanted {
        /// The silent data center; the receiver itself, if it has lost what it wrote.
        origin: DcId,
        /// Up to where.
        received: Timestamp,
        /// Whether parts will do.
        parts: bool,
    },
    /// What the sender has on disk of the updates of `origin`: all after `after` and up to `through`, or a part of them, as in [`LinkFrame::Part`].
    Passed {
        /// Whose updates.
        origin: DcId,
        /// As in a batch.
        after: Timestamp,
        /// As in a batch.
        through: Timestamp,
        /// The updates, in timestamp order.
        updates: Vec<Update<M>>,
        /// As in a part; nothing if these are all.
        needs: TimestampVector,
        /// Up to where the sender has them in all.
        holds: Timestamp,
    },
    /// The sender's data center has the place of one that was lost, and has everything that the receiver's has: it is going to write.
    Begins,
    /// The answer: from now on the receiver takes what the sender writes after `upto`, and nothing else.
    Opened {
        /// Up to where the one that was lost has written nothing, as the receiver has told its readers.
        upto: Timestamp,
    },
    /// Beside the stream: a message of the protocol, from this partition's server to that of the other data center. Lost with the connection.
    Message(
        /// The message, encoded.
        Vec<u8>,
    ),
}

impl<M: Wire> Wire for LinkFrame<M> {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            LinkFrame::Batch { after, through, updates } => {
                out.push(0);
                after.encode(out);
                through.encode(out);
                updates.encode(out);
            }
            LinkFrame::Resume { received } => {
                out.push(1);
                received.encode(out);
            }
            LinkFrame::Acknowledge { durable, holds } => {
                out.push(2);
                durable.encode(out);
                holds.encode(out);
            }
            LinkFrame::Ask { received, question } => {
                out.push(4);
                (*received, *question).encode(out);
            }
            LinkFrame::Sent { through, question } => {
                out.push(5);
                (*through, *question).encode(out);
            }
            LinkFrame::Message(message) => {
                out.push(6);
                out.extend_from_slice(message);
            }
            LinkFrame::Part { after, through, updates, needs } => {
                out.push(3);
                after.encode(out);
                through.encode(out);
                updates.encode(out);
                needs.encode(out);
            }
            LinkFrame::Wanted { origin, received, parts } => {
                out.push(7);
                (*origin, *received).encode(out);
                parts.encode(out);
            }
            LinkFrame::Passed { origin, after, through, updates, needs, holds } => {
                out.push(8);
                origin.encode(out);
                after.encode(out);
                through.encode(out);
                updates.encode(out);
                needs.encode(out);
                holds.encode(out);
            }
            LinkFrame::Begins => out.push(9),
            LinkFrame::Opened { upto } => {
                out.push(10);
                upto.encode(out);
            }
        }
    }

    fn decode(input: &mut crate::wire::Reader<'_>) -> Result<Self, crate::wire::WireError> {
        Ok(match input.byte()? {
            0 => LinkFrame::Batch { after: Wire::decode(input)?, through: Wire::decode(input)?, updates: Wire::decode(input)? },
            1 => LinkFrame::Resume { received: Wire::decode(input)? },
            2 => LinkFrame::Acknowledge { durable: Wire::decode(input)?, holds: Wire::decode(input)? },
            3 => LinkFrame::Part {
                after: Wire::decode(input)?,
                through: Wire::decode(input)?,
                updates: Wire::decode(input)?,
                needs: Wire::decode(input)?,
            },
            4 => LinkFrame::Ask { received: Wire::decode(input)?, question: Wire::decode(input)? },
            6 => LinkFrame::Message(input.take(input.rest().len())?.to_vec()),
            5 => LinkFrame::Sent { through: Wire::decode(input)?, question: Wire::decode(input)? },
            7 => LinkFrame::Wanted { origin: Wire::decode(input)?, received: Wire::decode(input)?, parts: Wire::decode(input)? },
            8 => LinkFrame::Passed {
                origin: Wire::decode(input)?,
                after: Wire::decode(input)?,
                through: Wire::decode(input)?,
                updates: Wire::decode(input)?,
                needs: Wire::decode(input)?,
                holds: Wire::decode(input)?,
            },
            9 => LinkFrame::Begins,
            10 => LinkFrame::Opened { upto: Wire::decode(input)? },
            _ => return Err(crate::wire::WireError::Invalid("a link frame")),
        })
    }
}

/// Bytes of updates that a sender lets be under way before the receiver has them on disk.
pub const WINDOW_BYTES: usize = 8 << 20;

/// Bytes of updates in one batch, about.
pub const BATCH_BYTES: usize = 256 << 10;

/// A receiver that hears nothing for this long asks again, in microseconds.
pub const SILENCE_US: u64 = 1_000_000;

/// The same while nobody asks anything, and heartbeats come seldom.
const QUIET_SILENCE_US: u64 = 5_000_000;

/// A receiver that has had something sent again and still lacks it asks after so long, in microseconds.
pub const RESUME_SPACING_US: u64 = 300_000;

/// A data center that is not heard for this long is out of reach: the others are asked what they have of it, in microseconds.
pub const OUT_OF_REACH_US: u64 = 3_000_000;

/// The same while nobody asks anything.
const QUIET_OUT_OF_REACH_US: u64 = 7_000_000;

/// After this long they may answer with parts, for which reads here are refused until everything they need has come; in microseconds.
pub const OUT_OF_REACH_FOR_LONG_US: u64 = 20_000_000;

/// Between two questions of that kind, in microseconds: the least, after news, and the greatest, when there is none for long.
pub const WANTED_SPACING_US: (u64, u64) = (1_000_000, 8_000_000);

/// Bytes of batches of another data center that are remembered at most, to be passed on to those who lack them.
pub const REMEMBERED_BYTES: usize = 1 << 20;

/// Between two acknowledgements, in microseconds.
pub const ACKNOWLEDGE_SPACING_US: u64 = 10_000;

/// Between two acknowledgements of heartbeats alone while nobody asks anything, in microseconds.
const QUIET_ACKNOWLEDGE_US: u64 = 5_000_000;

/// The sending end: a cursor into the log of own updates.
#[derive(Clone, Debug, Default)]
pub struct LinkSender {
    /// Everything up to here has been sent; `None` until the receiver has said where it stands.
    sent: Option<Timestamp>,
    /// The receiver has everything up to here on disk.
    acknowledged: Timestamp,
    /// Batches under way: their `through` and size.
    under_way: VecDeque<(Timestamp, usize)>,
    bytes_under_way: usize,
}

impl LinkSender {
    /// Where the next batch starts, if one may be sent now.
    pub fn cursor(&self) -> Option<Timestamp> {
        self.sent.filter(|_| self.bytes_under_way < WINDOW_BYTES)
    }

    /// Up to where the receiver has everything on disk.
    pub fn acknowledged(&self) -> Timestamp {
        self.acknowledged
    }

    /// Bytes sent and not yet acknowledged.
    pub fn bytes_under_way(&self) -> usize {
        self.bytes_under_way
    }

    /// A batch from the cursor up to `through` has been handed over, `bytes` long.
    pub fn sent(&mut self, through: Timestamp, bytes: usize) {
        self.sent = Some(through);
        if bytes > 0 {
            self.under_way.push_back((through, bytes));
            self.bytes_under_way += bytes;
        }
    }

    /// The receiver has everything up to `received` and asks what was sent: returns up to where, if that is more. A sender that does not know begins there.
    pub fn on_ask(&mut self, received: Timestamp, planted: Planted) -> Option<Timestamp> {
        match self.sent {
            Some(sent) if sent > received => Some(sent),
            _ => {
                self.on_resume(received, planted);
                None
            }
        }
    }

    /// The receiver has lost what it had said it had.
    pub fn forget(&mut self) {
        self.acknowledged = Timestamp::ZERO;
    }

    /// The receiver asks for everything after `received`. What it has acknowledged beyond that it has lost.
    pub fn on_resume(&mut self, received: Timestamp, planted: Planted) {
        if planted.is("update-skipped-at-reconnect") && self.sent.is_some() {
            return;
        }
        self.sent = Some(received);
        self.acknowledged = self.acknowledged.min(received);
        self.under_way.clear();
        self.bytes_under_way = 0;
    }

    /// The receiver has everything up to `durable` on disk; says whether that is news.
    pub fn on_acknowledge(&mut self, durable: Timestamp) -> bool {
        while let Some((_, bytes)) = self.under_way.pop_front_if(|(through, _)| *through <= durable) {
            self.bytes_under_way -= bytes;
        }
        let news = durable > self.acknowledged;
        self.acknowledged = self.acknowledged.max(durable);
        news
    }
}

/// What to do with a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Apply the updates after this timestamp.
    Apply {
        /// What was here already.
        after: Timestamp,
    },
    /// Nothing in it is new.
    Old,
    /// Something before it is missing.
    Gap,
}

/// What a receiver knows to be missing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Missing {
    /// Nothing.
    Nothing,
    /// A batch has come that does not follow what is here.
    Gap,
    /// The sender has sent what is not here ([`LinkReceiver::has_lost`]).
    Lost,
}

/// The receiving end.
#[derive(Clone, Debug)]
pub struct LinkReceiver {
    /// Everything up to here has been applied.
    received: Timestamp,
    /// Everything up to here is on disk.
    durable: Timestamp,
    /// What was applied but is not known to be on disk: the log's end after it, and up to where.
    in_flight: VecDeque<(u64, Timestamp)>,
    acknowledged: Timestamp,
    acknowledged_at_us: u64,
    heard_at_us: u64,
    /// Whether anything has come since the start.
    heard: bool,
    /// When something was last asked for; `None`: it is to be asked at once.
    asked_at_us: Option<u64>,
    /// The number of the newest question.
    question: u64,
    /// Everything after this is to be sent again; whether it is lost too, only later questions can tell.
    resumed: Option<(Timestamp, u64)>,
    /// Nobody asks anything.
    quiet: bool,
    /// Nobody has asked anything when something was heard last: it may have been a while ago.
    patient: bool,
    /// The last batch with updates went up to here.
    updated: Timestamp,
    /// Since when nothing has been heard; `None` while nobody else can be asked.
    silent_since_us: Option<u64>,
    /// When others were last asked what they have, and when they are to be asked again.
    wanted_us: (u64, u64),
}

impl LinkReceiver {
    /// A receiver that has everything up to `received` on disk.
    pub fn new(received: Timestamp) -> LinkReceiver {
        LinkReceiver {
            received,
            durable: received,
            in_flight: VecDeque::new(),
            acknowledged: Timestamp::ZERO,
            acknowledged_at_us: 0,
            heard_at_us: 0,
            heard: false,
            asked_at_us: None,
            question: 0,
            resumed: None,
            quiet: false,
            patient: false,
            updated: Timestamp::ZERO,
            silent_since_us: None,
            wanted_us: (0, 0),
        }
    }

    /// Something has come from the sender itself.
    fn hear(&mut self, now_us: u64) {
        (self.heard, self.heard_at_us, self.patient) = (true, now_us, self.quiet);
        if let Some(since_us) = &mut self.silent_since_us {
            *since_us = now_us;
        }
    }

    /// Whether nobody asks anything: then heartbeats come seldom, and there is time to acknowledge them.
    pub fn set_quiet(&mut self, quiet: bool) {
        self.quiet = quiet;
        self.patient |= quiet;
    }

    /// Between two acknowledgements, in microseconds: somebody may wait for that of an update.
    fn acknowledge_spacing_us(&self) -> u64 {
        if self.quiet && self.updated <= self.acknowledged { QUIET_ACKNOWLEDGE_US } else { ACKNOWLEDGE_SPACING_US }
    }

    /// Who is not heard for so long, in microseconds, is out of reach.
    fn out_of_reach_us(&self) -> u64 {
        if self.patient { QUIET_OUT_OF_REACH_US } else { OUT_OF_REACH_US }
    }

    /// There were updates in the batch that went up to `through`.
    pub fn updated(&mut self, through: Timestamp) {
        self.updated = self.updated.max(through);
    }

    /// Up to where everything has been applied.
    pub fn received(&self) -> Timestamp {
        self.received
    }

    /// Up to where everything is on disk.
    pub fn durable(&self) -> Timestamp {
        self.durable
    }

    /// What to do with a batch after `after` up to `through`.
    pub fn judge(&mut self, now_us: u64, after: Timestamp, through: Timestamp, planted: Planted) -> Verdict {
        self.hear(now_us);
        self.judge_passed(after, through, planted)
    }

    /// As [`LinkReceiver::judge`], of what another data center passes on.
    pub fn judge_passed(&self, after: Timestamp, through: Timestamp, planted: Planted) -> Verdict {
        if through <= self.received {
            return Verdict::Old;
        }
        if after > self.received && !planted.is("gap-in-stream-accepted") {
            return Verdict::Gap;
        }
        Verdict::Apply { after: self.received }
    }

    /// Everything up to `through` has been applied; the log's end is now `position`.
    pub fn applied(&mut self, through: Timestamp, position: u64) {
        self.received = self.received.max(through);
        match self.in_flight.back_mut() {
            Some((at, upto)) if *at == position => *upto = self.received,
            _ => self.in_flight.push_back((position, self.received)),
        }
    }

    /// The log is on disk below `position`.
    pub fn on_durable(&mut self, position: u64) {
        while let Some((_, upto)) = self.in_flight.pop_front_if(|(at, _)| *at <= position) {
            self.durable = upto;
        }
    }

    /// The sender has sent everything up to `through`, as question `question` asked; says whether some of that is lost.
    pub fn has_lost(&mut self, now_us: u64, through: Timestamp, question: u64) -> bool {
        self.hear(now_us);
        through > self.received && question <= self.question && self.resumed.is_none_or(|(_, before)| question > before)
    }

    /// Whether what follows is being sent again.
    fn is_resumed(&self) -> bool {
        self.resumed.is_some_and(|(from, _)| from == self.received)
    }

    /// What is to be asked of the sender: at the start, when the stream is silent, when something is missing.
    pub fn request_due<M>(&mut self, now_us: u64, missing: Missing) -> Option<LinkFrame<M>> {
        let again = match missing {
            Missing::Lost => true,
            Missing::Gap => !self.is_resumed(),
            // What was under way to a receiver before a restart is of no use to it.
            Missing::Nothing => self.asked_at_us.is_none() && !self.heard,
        };
        if !again && now_us < self.ask_us() {
            return None;
        }
        self.asked_at_us = Some(now_us);
        // The acknowledgement may be what was lost.
        self.acknowledged = Timestamp::ZERO;
        let received = self.received;
        if again {
            self.resumed = Some((received, self.question));
            return Some(LinkFrame::Resume { received });
        }
        self.question += 1;
        Some(LinkFrame::Ask { received, question: self.question })
    }

    /// When it is to be asked again, if nothing is heard.
    fn ask_us(&self) -> u64 {
        match self.asked_at_us {
            None => 0,
            Some(at) if self.is_resumed() => at + RESUME_SPACING_US,
            Some(at) => self.heard_at_us.max(at) + if self.patient { QUIET_SILENCE_US } else { SILENCE_US },
        }
    }

    /// Whether others are to be asked now what they have of the sender's updates, and whether parts will do.
    pub fn wanted_due(&mut self, now_us: u64) -> Option<bool> {
        let silent_us = now_us.saturating_sub(*self.silent_since_us.get_or_insert(now_us));
        if silent_us < self.out_of_reach_us() || now_us < self.wanted_us.1 {
            return None;
        }
        let (least, most) = WANTED_SPACING_US;
        let spacing_us = (2 * self.wanted_us.1.saturating_sub(self.wanted_us.0)).clamp(least, most);
        self.wanted_us = (now_us, now_us + spacing_us);
        Some(silent_us >= OUT_OF_REACH_FOR_LONG_US)
    }

    /// Nobody else can be asked what the sender wrote, or not any more.
    pub fn nobody_to_ask(&mut self) {
        self.silent_since_us = None;
    }

    /// Whether nothing has been heard for long.
    pub fn is_out_of_reach(&self, now_us: u64) -> bool {
        self.silent_since_us.is_some_and(|since_us| now_us >= since_us + self.out_of_reach_us())
    }

    /// Another data center has passed on what was not here. There may be more, for which it is asked at once: returns whether parts will do.
    pub fn passed(&mut self, now_us: u64) -> bool {
        self.wanted_us = (now_us, now_us + WANTED_SPACING_US.0);
        self.silent_since_us.is_some_and(|since_us| now_us.saturating_sub(since_us) >= OUT_OF_REACH_FOR_LONG_US)
    }

    /// The connection to the sender is new: it is to be asked at once.
    pub fn reconnected(&mut self) {
        self.asked_at_us = None;
        self.resumed = None;
    }

    /// The acknowledgement that is due.
    pub fn acknowledge_due(&mut self, now_us: u64, planted: Planted) -> Option<Timestamp> {
        let upto = if planted.is("acknowledged-before-durable") { self.received } else { self.durable };
        if upto <= self.acknowledged || now_us.saturating_sub(self.acknowledged_at_us) < self.acknowledge_spacing_us() {
            return None;
        }
        self.acknowledged = upto;
        self.acknowledged_at_us = now_us;
        Some(upto)
    }

    /// When, on the monotonic clock, something may be due without any input.
    pub fn next_us(&self) -> u64 {
        let acknowledge = if self.durable > self.acknowledged { self.acknowledged_at_us + self.acknowledge_spacing_us() } else { u64::MAX };
        self.ask_us().min(acknowledge).min(self.next_wanted_us())
    }

    /// When others are to be asked what they have.
    pub fn next_wanted_us(&self) -> u64 {
        self.silent_since_us.map_or(u64::MAX, |since_us| (since_us + self.out_of_reach_us()).max(self.wanted_us.1))
    }
}
