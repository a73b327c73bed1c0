//! The stream is exactly once and in order over a transport that loses, repeats and reorders, and over restarts of either end.

use proptest::prelude::*;
use rheostat_clock::Timestamp;
use rheostat_core::link::{LinkFrame, LinkReceiver, LinkSender, Missing, RESUME_SPACING_US, SILENCE_US, Verdict, WINDOW_BYTES};
use rheostat_core::planted::Planted;

fn at(bits: u64) -> Timestamp {
    Timestamp::from_bits(bits)
}

/// What a transport and two crash-prone ends may do.
#[derive(Clone, Debug)]
enum Move {
    Write,
    Heartbeat,
    Send { most: usize },
    Deliver(prop::sample::Index),
    DeliverCopy(prop::sample::Index),
    Lose(prop::sample::Index),
    Flush,
    Wait,
    RestartSender,
    RestartReceiver,
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let one = prop_oneof![
        6 => Just(Move::Write),
        2 => Just(Move::Heartbeat),
        6 => (1usize..4).prop_map(|most| Move::Send { most }),
        8 => any::<prop::sample::Index>().prop_map(Move::Deliver),
        1 => any::<prop::sample::Index>().prop_map(Move::DeliverCopy),
        2 => any::<prop::sample::Index>().prop_map(Move::Lose),
        3 => Just(Move::Flush),
        2 => Just(Move::Wait),
        1 => Just(Move::RestartSender),
        1 => Just(Move::RestartReceiver),
    ];
    prop::collection::vec(one, 1..200)
}

#[derive(Clone, Debug)]
enum Frame {
    Batch { after: Timestamp, through: Timestamp, updates: Vec<Timestamp> },
    Resume(Timestamp),
    Ask(Timestamp, u64),
    Sent(Timestamp, u64),
}

struct World {
    clock: u64,
    log: Vec<Timestamp>,
    heartbeat: Timestamp,
    sender: LinkSender,
    receiver: LinkReceiver,
    /// What the receiver has applied, and how much of it is on its disk.
    applied: Vec<Timestamp>,
    on_disk: usize,
    wire: Vec<Frame>,
    now_us: u64,
}

impl World {
    fn send(&mut self, most: usize) {
        let Some(after) = self.sender.cursor() else { return };
        let updates: Vec<Timestamp> = self.log.iter().copied().filter(|update| *update > after).take(most).collect();
        let complete = self.log.last().is_none_or(|last| updates.last().copied().unwrap_or(after) >= *last);
        let mut through = updates.last().copied().unwrap_or(after);
        if complete {
            through = through.max(self.heartbeat);
        }
        if through > after {
            self.sender.sent(through, updates.len() * 100);
            self.wire.push(Frame::Batch { after, through, updates });
        }
    }

    fn ask(&mut self, missing: Missing) {
        match self.receiver.request_due::<()>(self.now_us, missing) {
            Some(LinkFrame::Resume { received }) => self.wire.push(Frame::Resume(received)),
            Some(LinkFrame::Ask { received, question }) => self.wire.push(Frame::Ask(received, question)),
            None => {}
            Some(other) => panic!("{other:?}"),
        }
    }

    fn deliver(&mut self, frame: Frame) -> Result<(), TestCaseError> {
        match frame {
            Frame::Resume(from) => self.sender.on_resume(from, Planted::NONE),
            Frame::Ask(from, question) => {
                if let Some(through) = self.sender.on_ask(from, Planted::NONE) {
                    self.wire.push(Frame::Sent(through, question));
                }
            }
            Frame::Sent(through, question) => {
                if self.receiver.has_lost(self.now_us, through, question) {
                    self.ask(Missing::Lost);
                }
            }
            Frame::Batch { after, through, updates } => match self.receiver.judge(self.now_us, after, through, Planted::NONE) {
                Verdict::Old => {}
                Verdict::Gap => self.ask(Missing::Gap),
                Verdict::Apply { after } => {
                    self.applied.extend(updates.into_iter().filter(|update| *update > after));
                    self.receiver.applied(through, self.applied.len() as u64);
                }
            },
        }
        let prefix = &self.log[..self.applied.len().min(self.log.len())];
        prop_assert_eq!(&self.applied[..], prefix, "not a prefix of what was written");
        let missed = self.log.get(self.applied.len()).is_some_and(|next| *next <= self.receiver.received());
        prop_assert!(!missed, "received up to {} but {:?} is missing", self.receiver.received(), self.log.get(self.applied.len()));
        Ok(())
    }

    fn make(&mut self, step: Move) -> Result<(), TestCaseError> {
        self.clock += 1;
        self.now_us += 1_000;
        match step {
            Move::Write => self.log.push(at(self.clock)),
            Move::Heartbeat => self.heartbeat = at(self.clock),
            Move::Send { most } => self.send(most),
            Move::Deliver(index) if !self.wire.is_empty() => {
                let frame = self.wire.remove(index.index(self.wire.len()));
                self.deliver(frame)?;
            }
            Move::DeliverCopy(index) if !self.wire.is_empty() => {
                let frame = self.wire[index.index(self.wire.len())].clone();
                self.deliver(frame)?;
            }
            Move::Lose(index) if !self.wire.is_empty() => drop(self.wire.remove(index.index(self.wire.len()))),
            Move::Flush => {
                self.on_disk = self.applied.len();
                self.receiver.on_durable(self.on_disk as u64);
                if let Some(durable) = self.receiver.acknowledge_due(self.now_us + SILENCE_US, Planted::NONE) {
                    prop_assert!(self.applied[..self.on_disk].len() == self.log.iter().filter(|update| **update <= durable).count());
                    self.sender.on_acknowledge(durable);
                }
            }
            Move::Wait => {
                self.now_us += SILENCE_US.max(RESUME_SPACING_US);
                self.ask(Missing::Nothing);
            }
            Move::RestartSender => self.sender = LinkSender::default(),
            Move::RestartReceiver => {
                self.applied.truncate(self.on_disk);
                self.receiver = LinkReceiver::new(self.receiver.durable());
            }
            Move::Deliver(_) | Move::DeliverCopy(_) | Move::Lose(_) => {}
        }
        Ok(())
    }
}

proptest! {
    #[test]
    fn exactly_once_in_order_and_then_all_of_it(moves in moves()) {
        let mut world = World {
            clock: 0,
            log: Vec::new(),
            heartbeat: Timestamp::ZERO,
            sender: LinkSender::default(),
            receiver: LinkReceiver::new(Timestamp::ZERO),
            applied: Vec::new(),
            on_disk: 0,
            wire: Vec::new(),
            now_us: 0,
        };
        for step in moves {
            world.make(step)?;
        }
        // On a transport that works again, everything arrives.
        for _ in 0..50 {
            world.make(Move::Wait)?;
            world.send(usize::MAX);
            for frame in std::mem::take(&mut world.wire) {
                world.deliver(frame)?;
            }
            world.make(Move::Flush)?;
        }
        prop_assert_eq!(&world.applied, &world.log);
    }
}

#[test]
fn a_sender_stops_at_its_window_and_goes_on_when_acknowledged() {
    let mut sender = LinkSender::default();
    assert_eq!(sender.cursor(), None, "the receiver has not said where it stands");
    sender.on_resume(Timestamp::ZERO, Planted::NONE);
    sender.sent(at(1), WINDOW_BYTES);
    assert_eq!(sender.cursor(), None);
    assert!(sender.on_acknowledge(at(1)));
    assert!(!sender.on_acknowledge(at(1)));
    assert_eq!(sender.cursor(), Some(at(1)));
    assert_eq!(sender.bytes_under_way(), 0);
    // One that was under way for long takes nothing back.
    assert!(sender.on_acknowledge(at(9)) && !sender.on_acknowledge(at(5)));
    assert_eq!(sender.acknowledged(), at(9));
}

#[test]
fn what_a_receiver_has_lost_it_has_not_acknowledged() {
    let mut sender = LinkSender::default();
    sender.on_resume(Timestamp::ZERO, Planted::NONE);
    sender.sent(at(9), 1);
    assert!(sender.on_acknowledge(at(7)));
    // It has more than it has on disk.
    sender.on_resume(at(8), Planted::NONE);
    assert_eq!(sender.acknowledged(), at(7));
    sender.on_resume(at(3), Planted::NONE);
    assert_eq!(sender.acknowledged(), at(3), "its disk was lost, or is an older one");
    assert!(sender.on_acknowledge(at(7)), "it is news again");
    assert_eq!(sender.acknowledged(), at(7));
}

fn request(receiver: &mut LinkReceiver, now_us: u64, missing: Missing) -> Option<LinkFrame<()>> {
    receiver.request_due(now_us, missing)
}

#[test]
fn what_is_missing_is_sent_again_once_and_only_when_it_is_known_to_be_lost() {
    let mut receiver = LinkReceiver::new(at(5));
    assert_eq!(
        request(&mut receiver, 0, Missing::Nothing),
        Some(LinkFrame::Resume { received: at(5) }),
        "what was under way before its start is lost"
    );
    assert_eq!(receiver.judge(0, at(5), at(6), Planted::NONE), Verdict::Apply { after: at(5) });
    receiver.applied(at(6), 1);
    assert_eq!(request(&mut receiver, SILENCE_US - 1, Missing::Nothing), None);
    // Something large is under way: silence only asks, as often as it likes.
    for question in 1..10 {
        assert_eq!(request(&mut receiver, question * SILENCE_US, Missing::Nothing), Some(LinkFrame::Ask { received: at(6), question }));
    }
    let now_us = 9 * SILENCE_US;
    assert_eq!(receiver.judge(now_us, at(7), at(9), Planted::NONE), Verdict::Gap);
    assert_eq!(request(&mut receiver, now_us, Missing::Gap), Some(LinkFrame::Resume { received: at(6) }));
    // What was under way behind the gap, and the answers to older questions, prove nothing.
    assert_eq!(request(&mut receiver, now_us + 1, Missing::Gap), None);
    assert!(!receiver.has_lost(now_us + 1, at(9), 9), "asked before");
    assert_eq!(request(&mut receiver, now_us + RESUME_SPACING_US - 1, Missing::Gap), None);
    assert_eq!(request(&mut receiver, now_us + RESUME_SPACING_US, Missing::Gap), Some(LinkFrame::Ask { received: at(6), question: 10 }));
    assert!(!receiver.has_lost(now_us + RESUME_SPACING_US, at(6), 10), "everything has come");
    assert!(!receiver.has_lost(now_us + RESUME_SPACING_US, at(9), 11), "nobody has asked that");
    assert!(receiver.has_lost(now_us + RESUME_SPACING_US, at(9), 10), "sent after it was asked for again, and not here");
    assert_eq!(request(&mut receiver, now_us + RESUME_SPACING_US, Missing::Lost), Some(LinkFrame::Resume { received: at(6) }));
    receiver.reconnected();
    assert_eq!(request(&mut receiver, now_us + RESUME_SPACING_US + 1, Missing::Nothing), Some(LinkFrame::Ask { received: at(6), question: 11 }));
    assert_eq!(receiver.judge(now_us + RESUME_SPACING_US + 2, at(7), at(9), Planted::NONE), Verdict::Gap);
    assert_eq!(request(&mut receiver, now_us + RESUME_SPACING_US + 2, Missing::Gap), Some(LinkFrame::Resume { received: at(6) }));
}

#[test]
fn a_sender_that_is_asked_says_what_it_has_sent_and_sends_nothing_again() {
    let mut sender = LinkSender::default();
    assert_eq!(sender.on_ask(at(3), Planted::NONE), None);
    assert_eq!(sender.cursor(), Some(at(3)), "after a restart it begins where the receiver stands");
    sender.sent(at(7), WINDOW_BYTES);
    assert_eq!(sender.on_ask(at(3), Planted::NONE), Some(at(7)));
    assert_eq!((sender.cursor(), sender.bytes_under_way()), (None, WINDOW_BYTES), "it is still under way");
    assert_eq!(sender.on_ask(at(9), Planted::NONE), None);
    assert_eq!(sender.cursor(), Some(at(9)), "the receiver has more than this sender knows of");
}

#[test]
fn while_nobody_asks_anything_heartbeats_are_acknowledged_seldom_and_updates_at_once() {
    let mut receiver = LinkReceiver::new(at(0));
    receiver.set_quiet(true);
    let heartbeat = |receiver: &mut LinkReceiver, through: u64| {
        receiver.applied(at(through), through);
        receiver.on_durable(through);
    };
    heartbeat(&mut receiver, 5);
    assert_eq!(receiver.acknowledge_due(SILENCE_US, Planted::NONE), None);
    assert_eq!(receiver.acknowledge_due(5 * SILENCE_US, Planted::NONE), Some(at(5)));
    heartbeat(&mut receiver, 6);
    assert_eq!(receiver.acknowledge_due(6 * SILENCE_US, Planted::NONE), None);
    receiver.updated(at(7));
    heartbeat(&mut receiver, 7);
    assert_eq!(receiver.acknowledge_due(6 * SILENCE_US, Planted::NONE), Some(at(7)), "somebody may wait for it");
    heartbeat(&mut receiver, 8);
    assert_eq!(receiver.acknowledge_due(7 * SILENCE_US, Planted::NONE), None);
    receiver.set_quiet(false);
    assert_eq!(receiver.acknowledge_due(7 * SILENCE_US, Planted::NONE), Some(at(8)));
}

#[test]
fn who_was_heard_while_nobody_asked_anything_is_not_taken_for_silent_too_soon() {
    let mut receiver = LinkReceiver::new(at(5));
    assert!(request(&mut receiver, 0, Missing::Nothing).is_some());
    receiver.set_quiet(true);
    receiver.judge(10, at(5), at(6), Planted::NONE);
    receiver.applied(at(6), 1);
    assert_eq!(request(&mut receiver, 10 + 4 * SILENCE_US, Missing::Nothing), None);
    receiver.set_quiet(false);
    assert_eq!(request(&mut receiver, 10 + 4 * SILENCE_US, Missing::Nothing), None, "its heartbeat is on the way");
    assert!(request(&mut receiver, 10 + 5 * SILENCE_US, Missing::Nothing).is_some());
    receiver.judge(10 + 5 * SILENCE_US, at(5), at(6), Planted::NONE);
    assert!(request(&mut receiver, 10 + 6 * SILENCE_US, Missing::Nothing).is_some(), "as ever");
}

#[test]
fn an_acknowledgement_that_was_lost_is_said_again() {
    let mut receiver = LinkReceiver::new(at(5));
    assert_eq!(receiver.acknowledge_due(SILENCE_US, Planted::NONE), Some(at(5)));
    assert_eq!(receiver.acknowledge_due(2 * SILENCE_US, Planted::NONE), None);
    assert!(request(&mut receiver, 3 * SILENCE_US, Missing::Nothing).is_some());
    assert_eq!(receiver.acknowledge_due(3 * SILENCE_US, Planted::NONE), Some(at(5)));
}
