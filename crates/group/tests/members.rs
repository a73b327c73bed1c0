//! Members that lose their disks: who comes in their place, when that one counts, and what is kept of who they were. Messages go through their byte form; disks are what is left of a log.

use raft::eraftpb::{Entry, Message};
use rheostat_clock::TimestampVector;
use rheostat_core::planted::Planted;
use rheostat_core::random::Random;
use rheostat_core::wire::Wire;
use rheostat_group::{
    Configuration, Kept, Log, LogEntry, Member, Next, RaftMessage, Standing, Verdict, Word, generation_of, is_change, library_entry, seat_of,
};

const ELECTION_TICKS: usize = 8;

/// One server, and what it has applied.
struct Server {
    seat: u64,
    member: Member,
    standing: Standing,
    applied: Vec<Vec<u8>>,
    random: Random,
}

/// All seats, and those that a new group begins with.
type Seats = (Vec<u64>, Vec<u64>);

/// What was on a disk.
struct Disk {
    entries: Vec<(u64, Vec<u8>)>,
    configuration: Configuration,
    kept: Kept,
    stood: (u64, u64),
    applied: Vec<Vec<u8>>,
}

impl Server {
    fn new(seats: &Seats, seat: u64, lost: Option<u64>) -> Server {
        let disk =
            Disk { entries: Vec::new(), configuration: Configuration::first(&seats.1), kept: Kept::default(), stood: (0, 0), applied: Vec::new() };
        Server::open(seats, seat, lost, disk)
    }

    fn open(seats: &Seats, seat: u64, lost: Option<u64>, disk: Disk) -> Server {
        let standing = Standing::new(seats.clone(), seat, disk.stood, lost, Planted::NONE);
        let mut log = Log::new(disk.configuration, (0, 0), TimestampVector::new());
        for (index, bytes) in disk.entries {
            log.append(library_entry(index, LogEntry::from_bytes(&bytes).unwrap()));
        }
        let member = Member::new(standing.me(), log, disk.kept, (1, ELECTION_TICKS)).unwrap();
        Server { seat, member, standing, applied: disk.applied, random: Random::new(seat) }
    }

    /// What a restart finds.
    fn disk(&self) -> Disk {
        let raft = &self.member.raft;
        Disk {
            entries: self.member.log().after(0).map(|entry| (entry.index, LogEntry::of(entry).to_bytes())).collect(),
            configuration: Configuration::from_bytes(&self.member.configuration().to_bytes()).unwrap(),
            kept: Kept { term: raft.term, vote: raft.vote, applied: raft.raft_log.applied },
            stood: self.standing.stood(),
            applied: self.applied.clone(),
        }
    }

    fn become_member(&mut self, number: u64) {
        let kept = Kept { term: self.member.raft.term, vote: 0, applied: self.member.raft.raft_log.applied };
        self.member = Member::new(number, self.member.log().again(), kept, (1, ELECTION_TICKS)).unwrap();
    }

    fn leads(&self) -> bool {
        let raft = &self.member.raft;
        self.member.is_leader() && raft.raft_log.term(raft.raft_log.applied).is_ok_and(|term| term == raft.term)
    }

    fn apply(&mut self, entry: &Entry) {
        match is_change(entry) {
            true => drop(self.member.apply_change(entry).unwrap()),
            false if entry.data.is_empty() => {}
            false => self.applied.push(entry.data.to_vec()),
        }
        self.member.mut_store().applied(entry.index, &TimestampVector::new());
        self.member.advance_applied(entry.index);
    }
}

enum Sent {
    Raft(Vec<u8>),
    Word(Word),
}

/// A group in which every message arrives at once, but to and from who is down.
struct Group {
    servers: Vec<Option<Server>>,
    /// In how many seats it begins; nobody is in the others.
    first: u64,
    sent: Vec<(u64, u64, Sent)>,
}

impl Group {
    fn new(count: u64) -> Group {
        Group::with_free(count, 0)
    }

    fn with_free(first: u64, free: u64) -> Group {
        let mut group = Group { servers: (0..first + free).map(|_| None).collect(), first, sent: Vec::new() };
        let seats = group.seats();
        (1..=first).for_each(|seat| group.servers[seat as usize - 1] = Some(Server::new(&seats, seat, None)));
        group
    }

    fn seats(&self) -> Seats {
        ((1..=self.servers.len() as u64).collect(), (1..=self.first).collect())
    }

    fn at(&mut self, seat: u64) -> &mut Server {
        self.servers[seat as usize - 1].as_mut().expect("it is up")
    }

    fn pump(&mut self) {
        loop {
            for server in self.servers.iter_mut().flatten() {
                let _ = server.member.changed(ELECTION_TICKS, &mut server.random);
                while let Some(wanted) = server.member.take() {
                    for message in wanted.messages.into_iter().chain(wanted.promises) {
                        let to = seat_of(message.to);
                        if let Some(message) = RaftMessage::of(message) {
                            self.sent.push((server.seat, to, Sent::Raft(message.to_bytes())));
                        }
                    }
                    server.member.on_persist_ready(wanted.number);
                    wanted.committed.iter().for_each(|entry| server.apply(entry));
                }
            }
            if self.sent.is_empty() {
                return;
            }
            for (from, to, sent) in std::mem::take(&mut self.sent) {
                if self.servers[from as usize - 1].is_some() && self.servers[to as usize - 1].is_some() {
                    self.deliver(from, to, sent);
                }
            }
        }
    }

    fn deliver(&mut self, from: u64, to: u64, sent: Sent) {
        let server = self.servers[to as usize - 1].as_mut().unwrap();
        match sent {
            Sent::Raft(bytes) => {
                let message = RaftMessage::from_bytes(&bytes).unwrap();
                // As whoever drives a member does: a leader that knows this log better than its disk.
                let forgets = message.committed().is_some_and(|committed| committed > server.member.raft.raft_log.last_index());
                match server.standing.judge(server.member.configuration(), from, &message) {
                    Verdict::Take if forgets => {}
                    Verdict::Take => drop(server.member.step(message.into_library())),
                    Verdict::Drop => {}
                    Verdict::Tell(word) => self.sent.push((to, from, Sent::Word(word))),
                }
            }
            Sent::Word(word) => {
                let leads = server.leads();
                match server.standing.hear(&mut server.member, leads, from, word) {
                    Next::Nothing => {}
                    Next::Answer(word) => self.sent.push((to, from, Sent::Word(word))),
                    Next::Become(number) => server.become_member(number),
                }
            }
        }
    }

    fn tick(&mut self, times: usize) {
        for _ in 0..times {
            for server in self.servers.iter_mut().flatten() {
                if let Some(word) = server.standing.to_say() {
                    let seat = server.seat;
                    self.sent.extend(server.standing.others().map(|other| (seat, other, Sent::Word(word))));
                } else if server.standing.takes_part() {
                    server.member.tick();
                }
                if server.member.is_leader() {
                    server.standing.promote(&mut server.member);
                }
            }
            self.pump();
        }
    }

    fn leader(&mut self) -> Option<&mut Server> {
        self.servers.iter_mut().flatten().filter(|server| server.leads()).max_by_key(|server| server.member.raft.term)
    }

    /// Ticks until there is a leader.
    fn led(&mut self) -> &mut Server {
        for _ in 0..100 {
            if self.leader().is_some() {
                break;
            }
            self.tick(1);
        }
        self.leader().expect("a leader")
    }

    fn write(&mut self, what: &str) {
        self.led().member.propose(Vec::new(), what.into()).unwrap();
        self.pump();
        self.tick(1);
        assert!(self.led().applied.iter().any(|applied| applied == what.as_bytes()), "{what}");
    }

    fn down(&mut self, seat: u64) -> Disk {
        self.servers[seat as usize - 1].take().unwrap().disk()
    }

    fn up(&mut self, seat: u64, disk: Disk) {
        let seats = self.seats();
        self.servers[seat as usize - 1] = Some(Server::open(&seats, seat, None, disk));
    }

    /// The disk of `seat` is lost, and its server starts with nothing.
    fn lose(&mut self, seat: u64, life: u64) {
        let seats = self.seats();
        self.servers[seat as usize - 1] = Some(Server::new(&seats, seat, Some(life)));
    }

    fn counts(&mut self, seat: u64) -> bool {
        let server = self.at(seat);
        server.standing.counts(server.member.configuration())
    }
}

fn texts(server: &Server) -> Vec<String> {
    server.applied.iter().map(|data| String::from_utf8(data.clone()).unwrap()).collect()
}

#[test]
fn a_member_that_lost_its_disk_is_replaced_by_one_that_catches_up_and_counts() {
    let mut group = Group::new(3);
    group.write("one");
    let leader = group.led().seat;
    let lost = 1 + leader % 3;
    group.lose(lost, 77);
    assert!(!group.counts(lost));
    group.write("two");
    group.tick(6);
    assert!(group.counts(lost), "{:?}", group.at(lost).member.configuration());
    assert_eq!(texts(group.at(lost)), ["one", "two"]);
    assert_eq!(generation_of(group.at(lost).standing.me()), 1);
    let configuration = group.led().member.configuration().clone();
    assert!(configuration.learners.is_empty() && !configuration.is_joint() && configuration.voters.len() == 3, "{configuration:?}");
    // The other one that had it goes, then the leader, one after the other with a replacement in between: what was acknowledged stays.
    let other = 6 - leader - lost;
    group.lose(other, 78);
    group.tick(8);
    assert!(group.counts(other));
    group.lose(leader, 79);
    group.tick(40);
    assert!(group.counts(leader));
    group.write("three");
    group.tick(4);
    for seat in 1..=3 {
        assert_eq!(texts(group.at(seat)), ["one", "two", "three"], "{seat}");
        assert_eq!(generation_of(group.at(seat).standing.me()), 1);
    }
}

#[test]
fn who_comes_where_nobody_was_is_counted_and_a_free_seat_costs_no_majority() {
    let mut group = Group::with_free(2, 2);
    group.write("one");
    group.lose(3, 70);
    assert!(!group.counts(3) && group.at(3).standing.is_nobody());
    group.tick(8);
    assert!(group.counts(3), "{:?}", group.at(3).member.configuration());
    assert_eq!((generation_of(group.at(3).standing.me()), texts(group.at(3))), (1, vec!["one".to_owned()]));
    let configuration = group.led().member.configuration().clone();
    assert!(configuration.voters.len() == 3 && configuration.learners.is_empty(), "{configuration:?}");
    // Three are a majority with one away; and a disk that is lost is that of a member to be replaced.
    let leader = group.led().seat;
    let away = group.down(leader);
    group.write("two");
    group.up(leader, away);
    group.tick(20);
    group.lose(1, 71);
    group.tick(40);
    group.write("three");
    group.tick(4);
    assert!(group.counts(1) && generation_of(group.at(1).standing.me()) == 1);
    (1..=3).for_each(|seat| assert_eq!(texts(group.at(seat)), ["one", "two", "three"], "{seat}"));
}

#[test]
fn of_two_and_a_free_seat_a_lost_disk_comes_back_as_its_old_self() {
    for leads in [false, true] {
        let mut group = Group::with_free(2, 1);
        group.write("one");
        let leader = group.led().seat;
        let lost = if leads { leader } else { 3 - leader };
        group.lose(lost, 70);
        assert!(group.at(lost).standing.is_nobody(), "where a seat is free, it cannot know that they are two");
        group.tick(40);
        group.write("two");
        group.tick(4);
        assert_eq!((group.at(lost).standing.me(), texts(group.at(lost))), (lost, vec!["one".to_owned(), "two".to_owned()]));
        // Of three that have come to be, nobody is its old self.
        group.lose(3, 71);
        group.tick(8);
        assert!(group.counts(3));
        group.lose(lost, 72);
        group.tick(40);
        assert_eq!(generation_of(group.at(lost).standing.me()), 1);
    }
}

#[test]
fn in_a_free_seat_nobody_takes_a_group_without_a_beginning_for_its_own() {
    let mut group = Group::with_free(2, 1);
    // All of them say that there is nothing yet.
    (1..=3).for_each(|seat| group.lose(seat, 70 + seat));
    group.tick(1);
    assert!(group.at(3).standing.is_nobody());
    group.tick(40);
    group.write("one");
    group.tick(8);
    assert!(group.counts(3) && generation_of(group.at(3).standing.me()) == 1 && group.at(1).standing.me() == 1);
}

#[test]
fn two_lost_of_three_are_nobody_for_as_long_as_it_takes_and_two_of_five_are_replaced() {
    let mut group = Group::new(3);
    group.write("one");
    let kept = group.led().seat;
    for seat in (1..=3).filter(|seat| *seat != kept) {
        group.lose(seat, 70 + seat);
    }
    group.tick(200);
    assert!(group.leader().is_none(), "one of three is no majority");
    for seat in (1..=3).filter(|seat| *seat != kept) {
        assert!(group.at(seat).standing.is_nobody() && group.at(seat).member.raft.term == 0);
    }
    let mut group = Group::new(5);
    group.write("one");
    let kept = group.led().seat;
    let two: Vec<u64> = (1..=5).filter(|seat| *seat != kept).take(2).collect();
    two.iter().for_each(|seat| group.lose(*seat, 70 + seat));
    group.tick(60);
    assert!(two.iter().all(|seat| group.counts(*seat)));
    assert!(two.iter().all(|seat| texts(group.at(*seat)) == ["one"]));
}

#[test]
fn of_two_the_one_that_kept_its_disk_brings_the_other_up() {
    for lost in [1, 2] {
        let mut group = Group::new(2);
        group.write("one");
        group.lose(lost, 77);
        assert!(!group.at(lost).standing.is_nobody());
        group.tick(60);
        group.write("two");
        group.tick(2);
        assert_eq!(texts(group.at(lost)), ["one", "two"]);
        group.lose(3 - lost, 78);
        group.tick(60);
        group.write("three");
        group.tick(2);
        assert_eq!(
            (texts(group.at(1)), texts(group.at(2))),
            (vec!["one".into(), "two".into(), "three".into()], vec!["one".into(), "two".into(), "three".into()])
        );
    }
}

#[test]
fn whoever_was_replaced_is_told_and_counts_for_nothing() {
    let mut group = Group::new(3);
    group.write("one");
    let leader = group.led().seat;
    let lost = 1 + leader % 3;
    let disk = group.down(lost);
    group.lose(lost, 77);
    group.tick(8);
    assert!(group.counts(lost));
    let new = group.at(lost).standing.me();
    group.write("two");
    // An answer of the old one that arrives now: as if it had all that the new one has not said.
    let committed = group.led().member.raft.raft_log.committed;
    let mut message = Message::default();
    message.set_msg_type(raft::eraftpb::MessageType::MsgAppendResponse);
    (message.from, message.to, message.term, message.index) = (lost, leader, group.led().member.raft.term, committed + 9);
    let answer = RaftMessage::of(message).unwrap();
    let server = group.at(leader);
    let told = server.standing.judge(server.member.configuration(), lost, &answer);
    assert!(matches!(told, Verdict::Tell(Word::Replaced(by)) if by == new));
    // The disk was found again, and stands in the new one's place.
    group.up(lost, disk);
    group.tick(30);
    let why = group.at(lost).standing.replaced().expect("it is told");
    assert!(why.contains(&new.to_string()) && why.contains("accept_lost_writes"), "{why}");
    assert!(!group.at(lost).standing.takes_part());
    group.write("three");
    assert_eq!(texts(group.at(lost)), ["one"]);
    // What is meant for the new one tells it too.
    let seats = group.seats();
    let mut standing = Standing::new(seats.clone(), lost, (0, 0), None, Planted::NONE);
    let mut message = Message::default();
    message.set_msg_type(raft::eraftpb::MessageType::MsgHeartbeat);
    (message.from, message.to) = (leader, new);
    assert!(matches!(standing.judge(&Configuration::first(&seats.1), leader, &RaftMessage::of(message).unwrap()), Verdict::Drop));
    assert!(standing.replaced().is_some());
}

#[test]
fn a_message_from_elsewhere_than_its_sender_says_is_dropped() {
    let seats = [1, 2, 3];
    let mut standing = Standing::new((seats.to_vec(), seats.to_vec()), 1, (0, 0), None, Planted::NONE);
    for (from, to) in [(2, 1), (2, 2), (3, 1), (2, u64::MAX), (u64::MAX, 1)] {
        let mut message = Message::default();
        message.set_msg_type(raft::eraftpb::MessageType::MsgHeartbeat);
        (message.from, message.to) = (from, to);
        let verdict = standing.judge(&Configuration::first(&seats), 2, &RaftMessage::of(message).unwrap());
        assert_eq!(matches!(verdict, Verdict::Take), (from, to) == (2, 1), "{from} {to}");
    }
    assert!(standing.replaced().is_none());
}

#[test]
fn an_old_word_replaces_nobody() {
    let mut group = Group::new(3);
    group.write("one");
    let leader = group.led().seat;
    let lost = 1 + leader % 3;
    group.lose(lost, 77);
    group.tick(8);
    let now = group.at(lost).standing.me();
    for follows in [0, lost, now] {
        let server = group.at(leader);
        let leads = server.leads();
        let next = server.standing.hear(&mut server.member, leads, lost, Word::Lost { life: 76, follows });
        if follows != now {
            assert_eq!(next, Next::Answer(Word::Seat { life: 76, number: now, of: 77, blank: false }), "who is asked again must answer");
            group.tick(4);
            assert_eq!(group.at(leader).member.configuration().holder(lost), Some(now));
        }
    }
    // Who has the number is told so, however often it asks.
    let server = group.at(leader);
    assert_eq!(
        server.standing.hear(&mut server.member, true, lost, Word::Lost { life: 77, follows: lost }),
        Next::Answer(Word::Seat { life: 77, number: now, of: 77, blank: false })
    );
    assert_eq!(server.standing.hear(&mut server.member, true, leader, Word::Lost { life: 5, follows: leader }), Next::Nothing, "of its own seat");
    assert_eq!(server.standing.hear(&mut server.member, true, 9, Word::Lost { life: 5, follows: 9 }), Next::Nothing, "of no seat");
}

#[test]
fn a_group_in_which_nobody_has_anything_begins_and_one_that_has_voted_does_not() {
    let mut group = Group::new(3);
    (1..=3).for_each(|seat| group.lose(seat, 70 + seat));
    group.write("one");
    for seat in 1..=3 {
        assert_eq!(group.at(seat).standing.me(), seat, "the first generation");
    }
    // Two are new, and the third is of that group: it is a member, and they are not.
    group.lose(1, 81);
    group.lose(2, 82);
    group.tick(100);
    assert!(group.at(1).standing.is_nobody() && group.at(2).standing.is_nobody() && !group.at(3).standing.is_nobody());
    // One of them is down: nobody knows what it has.
    let mut group = Group::new(3);
    (1..=2).for_each(|seat| group.lose(seat, 70 + seat));
    group.down(3);
    group.tick(100);
    assert!(group.at(1).standing.is_nobody() && group.at(2).standing.is_nobody());
}

#[test]
fn an_older_copy_of_a_disk_comes_back_as_somebody_else_with_what_it_has() {
    let mut group = Group::new(3);
    group.write("one");
    let leader = group.led().seat;
    let old = 1 + leader % 3;
    let copy = group.down(old);
    let again = Disk { entries: copy.entries.clone(), configuration: copy.configuration.clone(), applied: copy.applied.clone(), ..copy };
    group.up(old, again);
    group.write("two");
    let copy = Disk { entries: copy.entries, configuration: copy.configuration, applied: copy.applied, kept: copy.kept, stood: copy.stood };
    group.down(old);
    group.servers[old as usize - 1] = Some(Server::open(&seats_of(3), old, Some(77), copy));
    assert!(group.at(old).standing.is_nobody());
    group.tick(10);
    assert!(group.counts(old) && generation_of(group.at(old).standing.me()) == 1);
    assert_eq!(texts(group.at(old)), ["one", "two"]);
}

fn seats_of(count: u64) -> Seats {
    ((1..=count).collect(), (1..=count).collect())
}

#[test]
fn replacements_outlive_restarts_and_leaders() {
    for ticks in 0..8 {
        let mut group = Group::new(3);
        group.write("one");
        let leader = group.led().seat;
        let lost = 1 + leader % 3;
        group.lose(lost, 77);
        group.tick(ticks);
        // The leader dies wherever that has come to, and the new one starts again.
        let away = group.down(leader);
        group.tick(30);
        let disk = group.down(lost);
        let seats = group.seats();
        let nobody = disk.stood.0 == u64::MAX;
        match nobody {
            true => group.lose(lost, 78),
            false => group.servers[lost as usize - 1] = Some(Server::open(&seats, lost, None, disk)),
        }
        group.up(leader, away);
        group.tick(60);
        assert!(group.counts(lost), "after {ticks} ticks: {:?}", group.led().member.configuration());
        group.write("two");
        group.tick(4);
        assert_eq!(texts(group.at(lost)), ["one", "two"]);
        let disks: Vec<Disk> = (1..=3).map(|seat| group.down(seat)).collect();
        assert!(disks.windows(2).all(|pair| pair[0].configuration == pair[1].configuration));
        for (seat, disk) in (1..).zip(disks) {
            group.up(seat, disk);
        }
        group.write("three");
    }
}

/// A change is proposed only when the one before is committed; so a log with two shows that the first one is, whatever was on disk of that.
#[test]
fn a_restart_knows_what_its_log_shows_to_be_committed() {
    let mut group = Group::new(3);
    group.write("one");
    let leader = group.led().seat;
    let lost = 1 + leader % 3;
    group.lose(lost, 77);
    group.tick(8);
    let other = 6 - leader - lost;
    let disk = group.down(other);
    let changes: Vec<u64> = disk.entries.iter().filter(|(_, bytes)| LogEntry::from_bytes(bytes).unwrap().changes).map(|(index, _)| *index).collect();
    assert_eq!(changes.len(), 3, "it is replaced, the joint configuration ends, it counts");
    let seats = group.seats();
    // Nothing of what was applied is on disk.
    let kept = Kept { applied: 0, ..disk.kept };
    let server = Server::open(&seats, other, None, Disk { configuration: Configuration::first(&seats.1), kept, applied: Vec::new(), ..disk });
    assert_eq!(server.member.raft.raft_log.committed, changes[1]);
}

#[test]
fn byte_forms_are_read_as_they_were_written_and_older_ones_too() {
    let entries = [
        LogEntry { term: 7, changes: false, data: bytes::Bytes::from_static(b"x") },
        LogEntry { term: 7, changes: true, data: bytes::Bytes::from_static(b"y") },
        LogEntry { term: 9, changes: true, data: bytes::Bytes::new() },
    ];
    for entry in &entries {
        assert_eq!(LogEntry::from_bytes(&entry.to_bytes()).as_ref(), Ok(entry));
        let library = library_entry(5, entry.clone());
        assert_eq!((is_change(&library), LogEntry::of(&library)), (entry.changes, entry.clone()));
    }
    // An entry of a version that had no changes.
    let mut old = Vec::new();
    7u64.encode(&mut old);
    1u64.encode(&mut old);
    old.push(b'x');
    assert_eq!(LogEntry::from_bytes(&old).as_ref(), Ok(&entries[0]));
    // A snapshot takes its configuration along.
    let mut configuration = Configuration::first(&[1, 2, 65_539]);
    (configuration.index, configuration.learners) = (9, vec![4]);
    let stable = [(rheostat_clock::DcId(1), rheostat_clock::Timestamp::new(7, 3))].into_iter().collect();
    let mut message = Message::default();
    message.set_msg_type(raft::eraftpb::MessageType::MsgSnapshot);
    (message.from, message.to, message.term) = (1, 4, 3);
    message.set_snapshot(rheostat_group::snapshot((12, 3), &stable, &configuration));
    let message = RaftMessage::of(message).unwrap();
    let read = RaftMessage::from_bytes(&message.to_bytes()).unwrap();
    assert_eq!((&read, read.snapshot()), (&message, Some((12, 3))));
    assert_eq!(rheostat_group::mark_of(read.into_library().get_snapshot()), (stable, configuration));
    for word in [Word::Lost { life: 1, follows: 2 }, Word::Seat { life: 1, number: 65_538, of: 3, blank: true }, Word::Replaced(65_538)] {
        assert_eq!(Word::from_bytes(&word.to_bytes()), Ok(word));
    }
    assert!(Configuration::from_bytes(&Configuration::default().to_bytes()).is_err(), "a group of nobody");
}

/// Who is told that its number has been given to somebody else takes part in nothing any more; a word about another seat, or an older one, changes nothing.
#[test]
fn who_is_told_that_it_was_replaced_stands_aside() {
    let mut group = Group::new(3);
    let server = group.at(1);
    let next = (2..=1 << 17).find(|number| seat_of(*number) == 1 && generation_of(*number) == 1).unwrap();
    let elsewhere = (2..=1 << 17).find(|number| seat_of(*number) == 2 && generation_of(*number) == 1).unwrap();
    for word in [Word::Replaced(elsewhere), Word::Replaced(server.standing.me())] {
        assert_eq!(server.standing.hear(&mut server.member, false, 2, word), Next::Nothing);
        assert!(server.standing.takes_part() && server.standing.replaced().is_none());
    }
    server.standing.hear(&mut server.member, false, 9, Word::Replaced(next));
    assert!(server.standing.takes_part(), "seat 9 is nobody's");
    server.standing.hear(&mut server.member, false, 2, Word::Replaced(next));
    assert!(!server.standing.takes_part());
    assert!(server.standing.replaced().unwrap().contains(&format!("replaced by member {next}")));
}
