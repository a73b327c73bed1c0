//! Members of groups that start again: what they had applied, and what has been collected since, is not decided anew.

use crate::common::{Desk, Frame, key, server, text};
use rheostat_core::dial::{Dial, Level};
use rheostat_core::ids::{KeyspaceId, OpId, Place, ServerId};
use rheostat_core::operation::{Change, Expiry, Guard, Operation, SetCondition};
use rheostat_core::outcome::Outcome;
use rheostat_core::replica::{Execution, ReplicaConfig};
use rheostat_core::store::{Durability, Recovered};
use rheostat_core::version::{Item, Key};
use rheostat_core::wire::Wire;
use rheostat_protocols::session::{Everywhere, InDataCenter, Message, Replicated, Scope};
use rheostat_stack::{AnyStore, Driver, Inner};
use rheostat_storage::MemoryStore;
use std::any::Any;
use std::marker::PhantomData;

/// A log that is cut soon, and no entries but those of the test.
const OPTIONS: &str = "heartbeat_ms = 5\nelection_ms = 30\nquiet_ms = 60000\nkeep_entries = 4";

fn all(_: ServerId, _: ServerId) -> bool {
    true
}

/// Members of a group, each over a disk.
struct Members<W: Scope> {
    desk: Desk,
    data_centers: u8,
    replicas: u8,
    scope: PhantomData<W>,
}

impl<W: Scope> Members<W> {
    fn new(data_centers: u8, replicas: u8) -> Members<W> {
        let desk = Desk::with_replicas(W::NAME, OPTIONS, data_centers, 1, replicas);
        let mut members = Members { desk, data_centers, replicas, scope: PhantomData };
        members.desk.under_way.clear();
        for id in members.desk.servers() {
            members.begin(id, MemoryStore::with_simulated_disk(), Recovered::default());
        }
        members.pass(300, all);
        members
    }

    fn begin(&mut self, id: ServerId, store: MemoryStore<u64>, found: Recovered) {
        let (data_centers, replicas) = (self.data_centers, self.replicas);
        let mut config = ReplicaConfig::new(Place { server: id, data_centers, partitions: 1, first_partitions: 1, replicas }, KeyspaceId(0));
        config.durability = Durability::Always;
        config.seed = u64::from(id.dc.0) * 16 + u64::from(id.replica);
        let options = toml::from_str(OPTIONS).unwrap();
        let member = Inner::<Replicated<W>>::new(config, &options, Driver::Memory(Box::new(store)).into(), found).unwrap();
        self.desk.replicas.insert(id, Box::new(member));
        self.desk.with(id, |replica, now, out| replica.start(now, out));
    }

    /// It is killed when all that it had logged is on its disk, and starts again; nobody says anything to it.
    fn restart(&mut self, id: ServerId) {
        let stopped: Box<dyn Any> = self.desk.replicas.remove(&id).unwrap();
        let stopped = stopped.downcast::<Inner<Replicated<W>>>().unwrap();
        let AnyStore::Memory(store) = stopped.store() else { unreachable!("it was made over a store in memory") };
        let (store, found) = store.crash_image_at(rheostat_core::store::Store::end(&**store));
        self.desk.under_way.retain(|(from, to, _)| *from != id && *to != id);
        self.begin(id, store, found);
    }

    /// Lets time pass; disks are flushed every millisecond.
    fn pass(&mut self, ms: u64, wanted: impl Fn(ServerId, ServerId) -> bool) {
        for _ in 0..ms {
            self.desk.pass(1, &wanted);
            self.flush();
        }
    }

    fn flush(&mut self) {
        for id in self.desk.servers() {
            self.desk.with(id, |replica, now, out| {
                replica.write_through();
                while let Some(job) = replica.poll_flush(now) {
                    replica.end_flush(now, job.run(), out);
                }
            });
        }
    }

    /// A frame arrives, without time passing; what forwards a write arrives twice.
    fn deliver(&mut self, (from, to, frame): &Frame) {
        let forwards = matches!(Message::from_bytes(frame), Ok(Message::Forward { .. } | Message::ForwardIf { .. }));
        for _ in 0..if forwards { 2 } else { 1 } {
            self.desk.with(*to, |replica, now, out| replica.receive(now, *from, frame, out));
        }
        self.flush();
    }

    /// Delivers the frame that has been under way for longest; says whether there was one.
    fn deliver_first(&mut self) -> bool {
        if self.desk.under_way.is_empty() {
            return false;
        }
        let frame = self.desk.under_way.remove(0);
        self.deliver(&frame);
        true
    }

    /// Begins an operation that waits.
    fn start(&mut self, at: ServerId, operation: Operation) -> OpId {
        let mut session = self.desk.session();
        match self.desk.with(at, |replica, now, out| replica.execute(now, operation, &mut session, out)) {
            Execution::Waiting(op) => op,
            Execution::Done { outcome, .. } => panic!("{outcome:?}"),
        }
    }

    /// What comes of `operation` at `at` in `ms` milliseconds.
    fn ask(&mut self, at: ServerId, operation: Operation, ms: u64, wanted: impl Fn(ServerId, ServerId) -> bool) -> Option<Outcome> {
        let mut session = self.desk.session();
        let execution = self.desk.with(at, |replica, now, out| replica.execute(now, operation, &mut session, out));
        let op = match execution {
            Execution::Done { outcome, .. } => return Some(outcome),
            Execution::Waiting(op) => op,
        };
        for _ in 0..ms {
            self.pass(1, &wanted);
            if let Some((outcome, _)) = self.desk.done.remove(&(at, op)) {
                return Some(outcome);
            }
        }
        None
    }

    /// Writes, and waits for that.
    fn write(&mut self, at: ServerId, operation: Operation, wanted: impl Fn(ServerId, ServerId) -> bool) {
        let outcome = self.ask(at, operation, 200, wanted);
        assert!(matches!(outcome, Some(Outcome::Written(_) | Outcome::Changed { .. })), "{outcome:?}");
    }

    /// What `at` has of `key`, whoever leads.
    fn has(&mut self, at: ServerId, key: &Key) -> Option<String> {
        match self.ask(at, Operation::Get { key: key.clone(), dial: Dial::at(Level::Eventual) }, 0, all) {
            Some(Outcome::Read(read, _)) => text(read),
            other => panic!("{other:?}"),
        }
    }

    fn versions(&self, at: ServerId) -> u64 {
        self.desk.replicas[&at].status(self.desk.now(at)).store.versions
    }

    fn leader(&self) -> ServerId {
        self.desk.servers().into_iter().find(|id| self.desk.gauge(*id, "leader") == 1.0).expect("somebody leads")
    }

    fn now_ms(&self, at: ServerId) -> u64 {
        self.desk.now(at).physical_ms
    }
}

fn put(key: &Key, value: Option<&str>) -> Operation {
    let item = Item { key: key.clone(), value: value.map(|value| value.as_bytes().into()), expires_ms: 0 };
    Operation::Put { items: [item].into_iter().collect(), dial: Dial::default() }
}

fn set(key: &Key, value: &str, expiry: Expiry, condition: SetCondition) -> Operation {
    Operation::Change { key: key.clone(), change: Change::Set { value: value.as_bytes().into(), expiry, condition }, dial: Dial::default() }
}

/// A lock is taken and expires. Who was refused it does not have it at a member that starts again when it is collected.
#[test]
fn what_was_refused_for_a_key_that_has_expired_since_stays_refused() {
    let mut members = Members::<Everywhere>::new(1, 3);
    let (lock, other) = (key("lock", 0, 1), key("other", 0, 1));
    let leads = members.leader();
    let expires = Expiry::At(members.now_ms(leads) + 500);
    members.write(leads, set(&lock, "first", expires, SetCondition::IfAbsent), all);
    for n in 0..8 {
        members.write(leads, put(&other, Some(&n.to_string())), all);
    }
    members.pass(100, all);
    members.write(leads, set(&lock, "second", Expiry::Never, SetCondition::IfAbsent), all);
    // Longer than clocks of leaders may differ.
    members.pass(12_000, all);
    members.write(leads, put(&other, Some("late")), all);
    members.pass(3_000, all);
    for id in members.desk.servers() {
        assert_eq!(members.versions(id), 1, "the lock is collected at {id}");
        members.restart(id);
        members.pass(300, all);
        assert_eq!(members.has(id, &lock), None, "at {id}");
        assert_eq!(members.has(id, &other).as_deref(), Some("late"), "at {id}");
    }
}

/// A member that was cut off decides what it missed at the time of its entry, whatever its clock says by then.
#[test]
fn a_member_that_was_away_decides_as_the_others_did() {
    let mut members = Members::<Everywhere>::new(1, 3);
    let (lock, other) = (key("lock", 0, 1), key("other", 0, 1));
    let leads = members.leader();
    let away = members.desk.servers().into_iter().find(|id| *id != leads).unwrap();
    let expires = Expiry::At(members.now_ms(leads) + 500);
    members.write(leads, set(&lock, "first", expires, SetCondition::IfAbsent), all);
    members.pass(50, all);
    assert_eq!(members.has(away, &lock).as_deref(), Some("first"));
    let without = move |from: ServerId, to: ServerId| from != away && to != away;
    members.write(leads, set(&lock, "second", Expiry::Never, SetCondition::IfAbsent), without);
    members.pass(15_000, without);
    members.desk.under_way.clear();
    members.pass(2_000, all);
    members.write(members.leader(), put(&other, Some("late")), all);
    members.pass(3_000, all);
    for id in members.desk.servers() {
        assert_eq!(members.has(id, &lock), None, "at {id}");
        assert_eq!(members.versions(id), 1, "the lock is collected at {id}");
    }
}

/// A deletion that hid another data center's older write, which came later, has been collected: the write stays hidden at a member that starts again.
#[test]
fn what_a_collected_deletion_hid_stays_hidden() {
    let mut members = Members::<InDataCenter>::new(2, 1);
    let (k, other) = (key("k", 0, 1), key("other", 0, 1));
    let inside = |from: ServerId, to: ServerId| from.dc == to.dc;
    members.write(server(1, 0), put(&k, Some("older")), inside);
    members.pass(5, inside);
    members.write(server(0, 0), put(&k, None), inside);
    for n in 0..8 {
        members.write(server(0, 0), put(&other, Some(&n.to_string())), inside);
    }
    members.pass(100, inside);
    members.desk.under_way.clear();
    members.pass(500, all);
    for round in 0..2 {
        members.write(server(0, 0), put(&other, Some("late")), all);
        members.write(server(1, 0), put(&other, Some(if round == 0 { "there" } else { "last" })), all);
        members.pass(3_000, all);
    }
    for dc in [0, 1] {
        assert_eq!(members.versions(server(dc, 0)), 1, "the deletion is collected in data center {dc}");
        members.restart(server(dc, 0));
        members.pass(300, inside);
        assert_eq!(members.has(server(dc, 0), &k), None, "in data center {dc}");
    }
}

/// What was applied since it was last noted is applied again, and comes to the same.
#[test]
fn what_is_applied_again_comes_to_the_same() {
    let mut members = Members::<Everywhere>::new(1, 3);
    let k = key("k", 0, 1);
    let leads = members.leader();
    for n in 0..30 {
        let condition = if n % 3 == 0 { SetCondition::IfPresent } else { SetCondition::IfAbsent };
        members.write(leads, set(&k, &n.to_string(), Expiry::Never, condition), all);
        if n % 5 == 4 {
            members.write(leads, Operation::Change { key: k.clone(), change: Change::Delete, dial: Dial::default() }, all);
        }
        if n % 4 == 0 {
            members.pass(400, all);
        }
        let follower = members.desk.servers().into_iter().find(|id| *id != leads).unwrap();
        members.pass(20, all);
        let expected = members.has(leads, &k);
        assert_eq!(members.has(follower, &k), expected, "after {n}");
        members.restart(follower);
        members.pass(100, all);
        assert_eq!(members.has(follower, &k), expected, "started again after {n}");
    }
}

/// A member that was away catches up while others write on, though it starts again while it is given the state: the entries after that stay, and it is given the state once.
#[test]
fn a_member_catches_up_while_others_write() {
    for starts_again in [false, true] {
        let mut members = Members::<InDataCenter>::new(1, 3);
        let (leads, k) = (members.leader(), key("k", 0, 1));
        let away = members.desk.servers().into_iter().find(|id| *id != leads).unwrap();
        for n in 0..30 {
            members.write(leads, put(&key(&format!("k{n}"), 0, 1), Some("kept")), move |from, to| from != away && to != away);
        }
        members.desk.under_way.clear();
        let installing = |members: &Members<InDataCenter>| members.desk.gauge(away, "installing_snapshot") == 1.0;
        for _ in 0..500 {
            members.pass(1, all);
            if installing(&members) {
                break;
            }
        }
        assert!(installing(&members));
        if starts_again {
            members.restart(away);
        }
        for n in 0..600 {
            members.write(leads, put(&k, Some(&n.to_string())), all);
        }
        assert!(!installing(&members), "started again: {starts_again}");
        let behind = members.desk.gauge(leads, "applied_index") - members.desk.gauge(away, "applied_index");
        assert!(behind <= 4.0, "started again: {starts_again}; {behind} entries");
    }
}

/// A hand-over that nobody takes up ends after an election's time, and what was written meanwhile is done then: here, by way of a follower, and under a condition.
#[test]
fn what_is_written_during_a_hand_over_that_fails_is_done_after_it() {
    for replicas in [2, 3] {
        let mut members = Members::<InDataCenter>::new(1, replicas);
        let (leads, k) = (members.leader(), key("k", 0, 1));
        let follower = members.desk.servers().into_iter().find(|id| *id != leads).unwrap();
        members.write(leads, put(&k, Some("before")), all);
        members.pass(100, all);
        let guarded = put_if_absent(&k, "guarded", &key("other", 0, 1));
        for (at, operation, written) in
            [(leads, put(&k, Some("here")), "here"), (follower, put(&k, Some("there")), "there"), (leads, guarded, "guarded")]
        {
            assert!(members.desk.with(leads, |replica, now, out| replica.hand_over(now, out)));
            // The one that is asked does not hear it.
            members.desk.under_way.clear();
            let outcome = members.ask(at, operation, 1_000, all);
            assert!(matches!(outcome, Some(Outcome::Written(_))), "{written}: {outcome:?}");
            assert_eq!(members.has(leads, &k).as_deref(), Some(written));
            members.pass(100, all);
            assert_eq!(members.leader(), leads);
        }
    }
}

fn put_if_absent(key: &Key, value: &str, guard: &Key) -> Operation {
    let item = Item { key: key.clone(), value: Some(value.as_bytes().into()), expires_ms: 0 };
    let guards = vec![Guard { key: guard.clone(), version: None }];
    Operation::PutIf { items: [item].into_iter().collect(), guards, dial: Dial::default() }
}

/// What `at` (the next leader, or the third member) has sent to the leader arrives there when that has handed over and so many messages have arrived since, each of those that forward a write twice.
fn others_write_during_a_hand_over<W: Scope>(data_centers: u8, replicas: u8, delivered: usize, (at, guarded): (usize, bool)) {
    let why = format!("{}, {delivered} messages, member {at}, guarded: {guarded}", W::NAME);
    let mut members = Members::<W>::new(data_centers, replicas);
    let (leads, k, other) = (members.leader(), key("k", 0, 1), key("other", 0, 1));
    let others: Vec<ServerId> = members.desk.servers().into_iter().filter(|id| *id != leads).collect();
    let (next, at) = (others[0], others[at]);
    members.pass(100, all);
    while members.deliver_first() {}
    let applied = members.desk.gauge(leads, "applied_index");
    let op = members.start(at, if guarded { put_if_absent(&k, "there", &other) } else { put(&k, Some("there")) });
    members.flush();
    let forwarded = std::mem::take(&mut members.desk.under_way);
    assert_eq!(forwarded.iter().map(|(from, to, _)| (*from, *to)).collect::<Vec<_>>(), [(at, leads)], "{why}");
    members.desk.with(leads, |replica, now, out| replica.hand_over_to(now, next, out)).unwrap();
    members.flush();
    for _ in 0..delivered {
        members.deliver_first();
    }
    members.deliver(&forwarded[0]);
    while members.deliver_first() {}
    members.pass(50, all);
    let outcome = members.desk.done.remove(&(at, op)).map(|(outcome, _)| outcome);
    assert!(matches!(outcome, Some(Outcome::Written(_))), "{why}: {outcome:?}");
    assert_eq!(members.leader(), next, "{why}");
    members.deliver(&forwarded[0]);
    members.pass(50, all);
    for id in members.desk.servers() {
        assert_eq!(members.has(id, &k).as_deref(), Some("there"), "{why}, at {id}");
        assert_eq!(members.desk.gauge(id, "applied_index"), applied + 2.0, "{why}, at {id}: the next leader's first entry, and the write");
    }
}

/// What others have sent to a leader that hands over is done under the next one, once, whenever it comes there.
#[test]
fn what_others_send_to_a_leader_that_hands_over_is_done_by_the_next() {
    for delivered in 0..12 {
        for what in [(0, false), (1, false), (1, true)] {
            others_write_during_a_hand_over::<InDataCenter>(1, 3, delivered, what);
            others_write_during_a_hand_over::<Everywhere>(3, 1, delivered, what);
        }
    }
}

/// A leader that starts again leads no more, and the others learn that when one is elected. What they have sent it meanwhile is done then, also if it is that one again.
#[test]
fn what_is_sent_to_a_leader_that_has_started_again_is_done_by_the_next() {
    for (replicas, guarded, again) in [(2, false, false), (3, false, false), (3, true, false), (3, false, true), (3, true, true)] {
        let why = format!("{replicas} members, guarded: {guarded}, the same one again: {again}");
        let mut members = Members::<InDataCenter>::new(1, replicas);
        let (leads, k, other) = (members.leader(), key("k", 0, 1), key("other", 0, 1));
        let at = members.desk.servers().into_iter().find(|id| *id != leads).unwrap();
        members.write(leads, put(&k, Some("before")), all);
        members.pass(100, all);
        members.restart(leads);
        let op = members.start(at, if guarded { put_if_absent(&k, "after", &other) } else { put(&k, Some("after")) });
        // Where it is to lead again, nobody hears of others who want to.
        let heard = |(from, _, frame): &Frame| {
            let asks = matches!(Message::from_bytes(frame), Ok(Message::Raft(message)) if message.is_candidacy());
            !again || *from == leads || !asks
        };
        let mut outcome = None;
        for _ in 0..1_000 {
            members.pass(1, |_, _| false);
            members.desk.under_way.retain(heard);
            while members.deliver_first() {
                members.desk.under_way.retain(heard);
            }
            outcome = members.desk.done.remove(&(at, op)).map(|(outcome, _)| outcome);
            if outcome.is_some() {
                break;
            }
        }
        assert!(matches!(outcome, Some(Outcome::Written(_))), "{why}: {outcome:?}");
        assert!(!again || members.leader() == leads, "{why}");
        members.pass(50, all);
        for id in members.desk.servers() {
            assert_eq!(members.has(id, &k).as_deref(), Some("after"), "{why}, at {id}");
        }
    }
}

/// What a leader was asked under a condition, and had not decided when it handed over, is decided by the next one.
#[test]
fn what_a_leader_has_not_decided_when_it_hands_over_is_decided_by_the_next() {
    let mut members = Members::<InDataCenter>::new(1, 3);
    let (leads, k, other) = (members.leader(), key("k", 0, 1), key("other", 0, 1));
    let others: Vec<ServerId> = members.desk.servers().into_iter().filter(|id| *id != leads).collect();
    members.pass(100, all);
    while members.deliver_first() {}
    let op = members.start(others[1], put_if_absent(&k, "there", &other));
    members.flush();
    let forwarded = std::mem::take(&mut members.desk.under_way);
    // The leader cannot decide before this is applied.
    members.start(leads, put(&other, Some("first")));
    members.deliver(&forwarded[0]);
    members.desk.with(leads, |replica, now, out| replica.hand_over_to(now, others[0], out)).unwrap();
    while members.deliver_first() {}
    members.pass(50, all);
    assert_eq!(members.leader(), others[0]);
    let outcome = members.desk.done.remove(&(others[1], op)).map(|(outcome, _)| outcome);
    assert!(matches!(outcome, Some(Outcome::Unmet(_))), "{outcome:?}");
    assert_eq!(members.has(leads, &k), None);
}

/// Timestamps follow the clock that is furthest ahead, in another data center here. Keys do not expire by it under a leader that got the state in pages.
#[test]
fn keys_do_not_expire_by_the_clock_of_another_data_center() {
    let mut members = Members::<InDataCenter>::new(2, 3);
    let (lock, other) = (key("lock", 0, 1), key("other", 0, 1));
    for id in members.desk.servers().into_iter().filter(|id| id.dc.0 == 1) {
        members.desk.skew_ms.insert(id, 40_000);
    }
    members.pass(300, all);
    let leads = |members: &Members<InDataCenter>, dc: u8| {
        members.desk.servers().into_iter().find(|id| id.dc.0 == dc && members.desk.gauge(*id, "leader") == 1.0).expect("somebody leads")
    };
    let (here, there) = (leads(&members, 0), leads(&members, 1));
    members.write(there, put(&other, Some("ahead")), all);
    members.pass(500, all);
    assert_eq!(members.has(here, &other).as_deref(), Some("ahead"));
    let away = members.desk.servers().into_iter().find(|id| id.dc.0 == 0 && *id != here).unwrap();
    for n in 0..12 {
        members.write(here, put(&other, Some(&n.to_string())), |from, to| from != away && to != away);
    }
    members.pass(100, |from, to| from != away && to != away);
    members.desk.under_way.clear();
    members.pass(1_500, all);
    assert_eq!(members.desk.gauge(away, "applied_index"), members.desk.gauge(here, "applied_index"), "it got the state");
    members.desk.with(here, |replica, now, out| replica.hand_over_to(now, away, out)).unwrap();
    members.pass(100, all);
    assert_eq!(leads(&members, 0), away);
    let expires = Expiry::At(members.now_ms(away) + 20_000);
    members.write(away, set(&lock, "first", expires, SetCondition::IfAbsent), all);
    let outcome = members.ask(away, set(&lock, "second", Expiry::Never, SetCondition::IfAbsent), 100, all);
    assert!(matches!(&outcome, Some(Outcome::Changed { before, version: None }) if before.value.is_some()), "{outcome:?}");
}

/// The clock of a group of one has been set back: what decides by it stays as long as ever.
#[test]
fn an_expired_key_stays_for_a_while_though_the_clock_was_ahead_before() {
    let mut members = Members::<InDataCenter>::new(1, 1);
    let (lock, at) = (key("lock", 0, 1), server(0, 0));
    members.desk.skew_ms.insert(at, 30_000);
    members.write(at, put(&key("other", 0, 1), Some("ahead")), all);
    members.pass(300, all);
    members.desk.skew_ms.clear();
    let expires = Expiry::At(members.now_ms(at) + 500);
    members.write(at, set(&lock, "first", expires, SetCondition::IfAbsent), all);
    members.pass(3_000, all);
    assert_eq!((members.has(at, &lock), members.versions(at)), (None, 2));
    members.pass(10_000, all);
    members.write(at, put(&key("other", 0, 1), Some("late")), all);
    members.pass(1_000, all);
    assert_eq!(members.versions(at), 1);
}
