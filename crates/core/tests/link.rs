//! The stream is exactly once and in order over a transport that loses, repeats and reorders, and over restarts of either end.

use proptest::prelude::*;
use rheostat_clock::Timestamp;
use rheostat_core::link::{LinkReceiver, LinkSender, RESUME_SPACING_US, SILENCE_US, Verdict, WINDOW_BYTES};
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

    fn resume(&mut self, gap: bool) {
        if let Some(from) = self.receiver.resume_due(self.now_us, gap) {
            self.wire.push(Frame::Resume(from));
        }
    }

    fn deliver(&mut self, frame: Frame) -> Result<(), TestCaseError> {
        match frame {
            Frame::Resume(from) => self.sender.on_resume(from, Planted::NONE),
            Frame::Batch { after, through, updates } => match self.receiver.judge(self.now_us, after, through, Planted::NONE) {
                Verdict::Old => {}
                Verdict::Gap => self.resume(true),
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
                self.resume(false);
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
}

#[test]
fn a_gap_is_asked_about_once_and_again_after_a_while() {
    let mut receiver = LinkReceiver::new(at(5));
    assert_eq!(receiver.resume_due(0, false), Some(at(5)));
    assert_eq!(receiver.judge(10, at(7), at(9), Planted::NONE), Verdict::Gap);
    assert_eq!(receiver.resume_due(10, true), None, "asked a moment ago from the same place");
    assert_eq!(receiver.resume_due(RESUME_SPACING_US, true), Some(at(5)));
    receiver.reconnected();
    assert_eq!(receiver.resume_due(RESUME_SPACING_US + 1, false), Some(at(5)));
}
