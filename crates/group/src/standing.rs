//! Who a server is in its group: a member by a number, or nobody, since its disk was lost.
//!
//! What a member has promised (a vote, an entry kept) is on its disk. If that is lost, or an older copy, the server cannot know what it denies, so it is that member no more: it starts as **nobody**, with a *life* that it draws
//! at each start, says so to the others of its group, and neither votes, acknowledges nor leads. The leader has the group agree that the seat's member goes and a new one comes, with the next generation's number, as a learner whose life is this one's.
//! When it has caught up it is made a voter. Only what has that life takes the number.
//!
//! - Nothing is proposed on an old word: who is nobody names the member that it would follow, which it has learned from a leader after it began ([`Word::Lost`]), and that must be the seat's member still.
//! - The change needs a majority of the members that are, so two lost of three stay out.
//! - What an older copy has of the log is what a member that was away for long has: a beginning. Only who it was is given up.
//! - A group in which all say that there is nothing yet (a new cluster, a new keyspace) begins with the first generation. Who has ever voted says otherwise.
//! - Whoever was replaced and comes back is told, and its messages are for nobody.
//! - A seat can be there before anybody is in it: in a data center that is to come. Whoever comes is nobody, and follows the seat's first generation, which never was. Nothing waits for it before it is a member.
//! - In a group of two nothing is decided without both, and neither leads without the other. So whichever kept its disk has all that was decided, and the other one comes back as its old self: what it forgets, the first one
//!   knows. (It could not be replaced: that needs both as well.) Where more seats are to come, only the one that kept its disk knows that they are two, and says so.

use crate::configuration::{Change, Configuration, NOBODY, generation_of, next_in_seat, seat_of};
use crate::member::{Member, is_change};
use crate::message::RaftMessage;
use rheostat_core::ids::Membership;
use rheostat_core::planted::Planted;
use rheostat_core::wire_enum;
use std::collections::{BTreeMap, BTreeSet};

/// Entries that a learner may lack of what is committed when it is made a voter, and a voter when it is asked to lead.
const NEAR: u64 = 64;

/// Ticks for which it counts that a member said that it is drained.
const DRAINED_TICKS: u32 = 8;

/// What servers of a group say to each other of who they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Word {
    /// The sender is nobody, with this life, and would follow this member in its seat; 0: it does not know which.
    Lost {
        /// Its life.
        life: u64,
        /// Whom it would follow.
        follows: u64,
    },
    /// Answer to [`Word::Lost`].
    Seat {
        /// The life that was asked with.
        life: u64,
        /// Who sits in the asker's seat, if the sender leads; else 0.
        number: u64,
        /// That member's life.
        of: u64,
        /// The sender has promised nothing to anybody yet.
        blank: bool,
    },
    /// To one that was replaced: this member sits in its seat.
    Replaced(u64),
    /// The sender is drained: it does not take over the lead. Said with each tick.
    Drained,
}

wire_enum!(Word, "a word between members", { 0 => Lost { life, follows }, 1 => Seat { life, number, of, blank }, 2 => Replaced(number), 3 => Drained });

/// What is to be done with a message of Raft.
pub enum Verdict {
    /// It is for this member and from one that counts.
    Take,
    /// It is not.
    Drop,
    /// Its sender was replaced, and is to be told so.
    Tell(Word),
}

/// What follows from a [`Word`].
#[derive(PartialEq, Eq, Debug)]
pub enum Next {
    /// Nothing.
    Nothing,
    /// This answer.
    Answer(Word),
    /// This server is the member of this number from now on; that must be on disk before it says anything as that one.
    Become(u64),
}

/// See the module.
#[derive(Debug)]
pub struct Standing {
    /// The group's seats, those that a new group begins with, and this server's.
    seats: Vec<u64>,
    first: Vec<u64>,
    seat: u64,
    /// Its number.
    me: u64,
    life: u64,
    /// Of somebody who is nobody: whom it would follow, as a leader has said.
    follows: u64,
    /// Seats that have nothing yet, as they said after this life began.
    blank: BTreeSet<u64>,
    /// Who sits in this server's seat, if it was replaced.
    replaced: Option<u64>,
    /// It is not to lead.
    drained: bool,
    /// Seats that are not to lead, as they have said, and for how many ticks that still counts.
    drained_others: BTreeMap<u64, u32>,
}

/// What a restart needs of it: number (0: as the seat's first) and life.
pub type Stood = (u64, u64);

impl Standing {
    /// In `seat` of `seats`, of which a new group begins with those in `first`, as `stood` says; `lost`: with this life, as nobody.
    pub fn new((seats, first): (Vec<u64>, Vec<u64>), seat: u64, stood: Stood, lost: Option<u64>, planted: Planted) -> Standing {
        let of_two = seats.len() <= 2 && first.contains(&seat);
        let (me, life) = match (stood, lost) {
            (_, Some(_)) if planted.is("members-lost-as-old-self") => (seat, 0),
            // Of two, the other one has all that was ever decided, and votes for nobody who has less.
            ((0, life), Some(_)) if of_two => (seat, life),
            (stood, Some(_)) if of_two => stood,
            (_, Some(life)) => (NOBODY, life),
            ((0, life), None) => (seat, life),
            ((number, life), None) => (number, life),
        };
        Standing { seats, first, seat, me, life, follows: 0, blank: BTreeSet::new(), replaced: None, drained: false, drained_others: BTreeMap::new() }
    }

    /// What goes to disk.
    pub fn stood(&self) -> Stood {
        (self.me, self.life)
    }

    /// Its number in the group; [`NOBODY`] if it has none.
    pub fn me(&self) -> u64 {
        self.me
    }

    /// Whether it has lost who it was, and is not somebody new yet.
    pub fn is_nobody(&self) -> bool {
        self.me == NOBODY
    }

    /// Why it takes no part any more, if it was replaced.
    pub fn replaced(&self) -> Option<String> {
        let by = self.replaced?;
        Some(format!(
            "this server is member {} of its group, which was replaced by member {by} when its disk was taken for lost; what is here is not the group's any more. Start the node with the directory that replaced it, or once with \
             accept_lost_writes = true",
            self.me
        ))
    }

    /// Whether it takes part in the group: votes, keeps entries, leads.
    pub fn takes_part(&self) -> bool {
        !self.is_nobody() && self.replaced.is_none()
    }

    /// Whether it is counted in `configuration`, so that it has, or will have, what a majority has.
    pub fn counts(&self, configuration: &Configuration) -> bool {
        self.takes_part() && configuration.voters.contains(&self.me)
    }

    /// The other seats.
    pub fn others(&self) -> impl Iterator<Item = u64> + use<'_> {
        self.seats.iter().copied().filter(|seat| *seat != self.seat)
    }

    /// What to say to all others now and then.
    pub fn to_say(&self) -> Option<Word> {
        match self.is_nobody() {
            true => Some(Word::Lost { life: self.life, follows: self.follows }),
            false => (self.drained && self.takes_part()).then_some(Word::Drained),
        }
    }

    /// Whether it is not to lead.
    pub fn is_drained(&self) -> bool {
        self.drained
    }

    /// It is not to lead, or may again.
    pub fn set_drained(&mut self, drained: bool) {
        self.drained = drained;
    }

    /// A tick has passed.
    pub fn tick(&mut self) {
        self.drained_others.retain(|_, ticks| {
            *ticks -= 1;
            *ticks > 0
        });
    }

    /// Of those that were `heard` lately and are not drained, the voter that has most of the log; `asked`, if it is among them.
    pub fn next_leader(&self, member: &Member, heard: impl Fn(u64) -> bool, asked: Option<u64>) -> Option<u64> {
        let prs = member.raft.prs();
        let may = |number: u64| number != self.me && heard(number) && !self.drained_others.contains_key(&seat_of(number));
        let able = member.configuration().voters.iter().copied().filter(|number| may(*number));
        let able = able.filter_map(|number| Some((prs.get(number)?.matched, number)));
        able.max_by_key(|(matched, number)| (Some(*number) == asked, *matched, *number)).map(|(_, number)| number)
    }

    /// The number of the member in `seat`, if it may be asked to take over the lead from this one. Errors: why not, in words for the operator.
    pub fn successor(&self, member: &Member, heard: impl Fn(u64) -> bool, seat: u64) -> Result<u64, String> {
        if !member.is_leader() {
            return Err("this server does not lead any more".into());
        }
        if seat == self.seat {
            return Err("this server leads already".into());
        }
        let Some(number) = member.configuration().voters.iter().copied().find(|voter| seat_of(*voter) == seat) else {
            return Err("that server is not counted in its group: its disk was lost, and it has not caught up yet".into());
        };
        if self.drained_others.contains_key(&seat) {
            return Err("that server is on a node that is drained".into());
        }
        let matched = member.raft.prs().get(number).map_or(0, |progress| progress.matched);
        let lacks = member.raft.raft_log.committed.saturating_sub(matched);
        if !heard(number) || lacks > NEAR {
            return Err(format!("that server was not heard lately, or is behind: it lacks {lacks} entries of the group's log"));
        }
        Ok(number)
    }

    /// Judges a message from whoever is in `from_seat`; `configuration` is of what is applied here.
    pub fn judge(&mut self, configuration: &Configuration, from_seat: u64, message: &RaftMessage) -> Verdict {
        let Some((from, to)) = message.between(from_seat, self.seat) else { return Verdict::Drop };
        if !self.takes_part() {
            return Verdict::Drop;
        }
        match configuration.holder(from_seat) {
            Some(holder) if holder > from => return Verdict::Tell(Word::Replaced(holder)),
            _ => {}
        }
        if to > self.me && to != NOBODY {
            self.replaced = Some(to);
        }
        if to == self.me && from != NOBODY { Verdict::Take } else { Verdict::Drop }
    }

    /// A word from `from_seat`. `leads`: this server leads, and has applied everything that was decided before it did.
    pub fn hear(&mut self, member: &mut Member, leads: bool, from_seat: u64, word: Word) -> Next {
        if !self.seats.contains(&from_seat) || from_seat == self.seat {
            return Next::Nothing;
        }
        match word {
            Word::Lost { life, follows } => self.hear_lost(member, leads, from_seat, life, follows),
            Word::Seat { life, number, of, blank } => self.hear_seat(member, from_seat, life, (number, of), blank),
            Word::Drained => {
                self.drained_others.insert(from_seat, DRAINED_TICKS);
                Next::Nothing
            }
            Word::Replaced(number) => {
                if self.takes_part() && seat_of(number) == self.seat && number > self.me {
                    self.replaced = Some(number);
                }
                Next::Nothing
            }
        }
    }

    fn hear_lost(&mut self, member: &mut Member, leads: bool, from_seat: u64, life: u64, follows: u64) -> Next {
        let blank = self.is_blank(member);
        let configuration = member.configuration();
        let holder = configuration.holder(from_seat);
        if let Some(number) = holder.filter(|number| self.is_of_two_with(member, *number)) {
            return Next::Answer(Word::Seat { life, number, of: life, blank });
        }
        if !leads || !self.takes_part() {
            return Next::Answer(Word::Seat { life, number: 0, of: 0, blank });
        }
        // Where nobody has been, the first generation is the one to follow.
        let number = holder.unwrap_or(from_seat);
        let of = configuration.life_of(number);
        if of != life && follows == number {
            member.propose_change(Change::Replace { old: number, new: next_in_seat(number), life });
            return Next::Nothing;
        }
        Next::Answer(Word::Seat { life, number, of, blank })
    }

    /// Whether this member and `other` are the whole group, of which more seats may be to come, and nothing in the log may have changed that: then everything that was decided is here.
    fn is_of_two_with(&self, member: &Member, other: u64) -> bool {
        let configuration = member.configuration();
        let two = configuration.voters.len() == 2 && configuration.learners.is_empty() && !configuration.is_joint();
        let both = two && [self.me, other].iter().all(|number| configuration.voters.contains(number)) && self.takes_part();
        both && self.seats.len() > 2 && member.log().after(configuration.index).all(|entry| !is_change(entry))
    }

    /// Whether it has promised nothing to anybody, and has nothing.
    fn is_blank(&self, member: &Member) -> bool {
        (self.is_nobody() || self.me == self.seat) && member.raft.term == 0 && member.raft.raft_log.last_index() == 0
    }

    fn hear_seat(&mut self, member: &Member, from_seat: u64, life: u64, (number, of): (u64, u64), blank: bool) -> Next {
        if !self.is_nobody() || life != self.life {
            return Next::Nothing;
        }
        if number != 0 {
            if seat_of(number) != self.seat {
                return Next::Nothing;
            }
            if of == self.life {
                return self.become_member(number);
            }
            self.follows = number;
            return Next::Answer(Word::Lost { life, follows: number });
        }
        match blank {
            true => self.blank.insert(from_seat),
            false => self.blank.remove(&from_seat),
        };
        let others = self.first.iter().filter(|seat| **seat != self.seat);
        let all =
            self.follows == 0 && self.is_blank(member) && self.first.contains(&self.seat) && others.into_iter().all(|seat| self.blank.contains(seat));
        if all { self.become_member(self.seat) } else { Next::Nothing }
    }

    fn become_member(&mut self, number: u64) -> Next {
        self.me = number;
        Next::Become(number)
    }

    /// What the server's log tells of.
    pub fn membership(&self, configuration: &Configuration) -> Membership {
        let number = generation_of(if self.is_nobody() { 0 } else { self.me });
        match self.replaced {
            Some(_) => Membership::Replaced,
            None if self.is_nobody() => Membership::Nobody,
            None if configuration.voters.contains(&self.me) => Membership::Counts(number),
            None => Membership::Learns(number),
        }
    }

    /// What an operator sees of it: what [`crate::gauges::STANDING`] declares.
    pub fn gauges(&self, member: &Member) -> [(&'static str, f64); 7] {
        let configuration = member.configuration();
        let committed = member.raft.raft_log.committed;
        let behind = |number: &u64| committed.saturating_sub(member.raft.prs().get(*number).map_or(0, |progress| progress.matched));
        let behind = if member.is_leader() { configuration.learners.iter().map(behind).max().unwrap_or(0) } else { 0 };
        let flag = |is: bool| f64::from(u8::from(is));
        [
            ("member_generation", if self.is_nobody() { 0.0 } else { generation_of(self.me) as f64 }),
            ("member_is_nobody", flag(self.is_nobody())),
            ("member_is_learner", flag(self.takes_part() && !self.counts(configuration))),
            ("member_was_replaced", flag(self.replaced.is_some())),
            ("member_is_drained", flag(self.drained)),
            ("learners", configuration.learners.len() as f64),
            ("learners_behind_entries", behind as f64),
        ]
    }

    /// The leader makes a learner that has caught up a voter. Says whom.
    pub fn promote(&self, member: &mut Member) -> Option<u64> {
        let raft = &member.raft;
        let (committed, tracker) = (raft.raft_log.committed, raft.prs());
        let near = |number: &u64| {
            let progress = tracker.get(*number)?;
            (progress.recent_active && progress.matched > 0 && progress.matched + NEAR >= committed).then_some(*number)
        };
        let number = member.configuration().learners.iter().find_map(near)?;
        member.propose_change(Change::Promote(number)).then_some(number)
    }
}
