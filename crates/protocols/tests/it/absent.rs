//! Reads that find nothing: what a session remembers of them, and what is left of those that nobody waits for any more.

use crate::common::{Desk, Frame, key, server, text};
use rheostat_core::dial::{Dial, Guarantees, Level};
use rheostat_core::failure::Failure;
use rheostat_core::ids::{OpId, ServerId};
use rheostat_core::operation::{Change, Expiry, Operation, SetCondition};
use rheostat_core::outcome::Outcome;
use rheostat_core::replica::Execution;
use rheostat_core::session::Session;
use rheostat_core::version::{Item, Key};
use rheostat_core::wire::Wire;
use rheostat_protocols::session::Message;

const QUICK: &str = "heartbeat_ms = 5\nelection_ms = 30\nquiet_ms = 50";

fn all(_: ServerId, _: ServerId) -> bool {
    true
}

fn nobody(_: ServerId, _: ServerId) -> bool {
    false
}

fn inside(from: ServerId, to: ServerId) -> bool {
    from.dc == to.dc
}

fn put(key: &Key, value: Option<&str>) -> Operation {
    let item = Item { key: key.clone(), value: value.map(|value| value.as_bytes().into()), expires_ms: 0 };
    Operation::Put { items: [item].into_iter().collect(), dial: Dial::default() }
}

fn get(key: &Key, level: Level) -> Operation {
    Operation::Get { key: key.clone(), dial: Dial::at(level) }
}

fn many(keys: &[&Key]) -> Operation {
    Operation::ReadTransaction { keys: keys.iter().map(|key| Key::clone(key)).collect(), dial: Dial::at(Level::SESSION) }
}

fn set(condition: SetCondition) -> Change {
    Change::Set { value: b"new"[..].into(), expiry: Expiry::Never, condition }
}

/// The values that were read.
fn values(outcome: Option<Outcome>) -> Vec<Option<String>> {
    match outcome {
        Some(Outcome::Read(read, _)) => vec![text(read)],
        Some(Outcome::Many(reads, _)) => reads.into_iter().map(text).collect(),
        other => panic!("{other:?}"),
    }
}

fn value(outcome: Option<Outcome>) -> Option<String> {
    values(outcome).remove(0)
}

fn old() -> Option<String> {
    Some("old".to_owned())
}

/// A group of three of which one member is behind: it has a key that was deleted since, and of which the others have nothing left.
struct Behind {
    desk: Desk,
    leads: ServerId,
    away: ServerId,
    key: Key,
    /// A session that has read the key before.
    alice: Session,
}

impl Behind {
    fn new(protocol: &str) -> Behind {
        let mut desk = Desk::with_replicas(protocol, QUICK, 1, 2, 3);
        desk.pass(300, all);
        let members: Vec<ServerId> = desk.servers().into_iter().filter(|id| id.partition.0 == 1).collect();
        let leads = *members.iter().find(|id| desk.gauge(**id, "leader") == 1.0).expect("somebody leads");
        let away = *members.iter().find(|id| **id != leads).unwrap();
        let (key, alice) = (key("k", 1, 2), desk.session());
        let mut behind = Behind { desk, leads, away, key, alice };
        let mut bob = behind.desk.session();
        behind.write(&mut bob, Some("old"), all);
        let mut alice = behind.alice.clone();
        let read = get(&behind.key, Level::SESSION);
        assert_eq!(value(behind.desk.ask(leads, &mut alice, read, 100, all)), old(), "{protocol}");
        behind.alice = alice;
        behind.desk.pass(100, all);
        assert_eq!(behind.has(Level::SESSION), Some(old()), "{protocol}: it came there");
        behind.desk.under_way.clear();
        behind.write(&mut bob, None, move |from, to| from != away && to != away);
        behind.desk.pass(1_000, move |from, to| from != away && to != away);
        let versions = behind.desk.replicas[&leads].status(behind.desk.now(leads)).store.versions;
        assert_eq!(versions, 0, "{protocol}: the deletion is collected");
        behind
    }

    fn write(&mut self, session: &mut Session, value: Option<&str>, wanted: impl Fn(ServerId, ServerId) -> bool) {
        let outcome = self.desk.ask(self.leads, session, put(&self.key, value), 300, wanted);
        assert!(matches!(outcome, Some(Outcome::Written(_))), "{outcome:?}");
    }

    /// What Alice gets for `operation` at `at`; the member that is behind hears nothing.
    fn ask(&mut self, at: ServerId, operation: Operation) -> Option<Outcome> {
        let away = self.away;
        self.desk.ask(at, &mut self.alice, operation, 300, move |from, to| from != away && to != away)
    }

    /// What the member that is behind tells a copy of Alice at `level`, if it does at once.
    fn has(&mut self, level: Level) -> Option<Option<String>> {
        let outcome = self.desk.ask(self.away, &mut self.alice.clone(), get(&self.key, level), 0, nobody);
        outcome.map(|outcome| value(Some(outcome)))
    }

    /// The member that is behind does not answer Alice at `level` while it hears nothing; then, when it has all that she has seen and written, as expected.
    fn waits(&mut self, level: Level, expected: Option<&str>, what: &str) {
        let early = self.desk.ask(self.away, &mut self.alice.clone(), get(&self.key, level), 1_000, nobody);
        assert!(early.is_none(), "{what}: {early:?}");
        assert_eq!(self.has(Level::Eventual), Some(old()), "{what}: it is still behind");
        self.desk.under_way.clear();
        let outcome = self.desk.ask(self.away, &mut self.alice, get(&self.key, Level::SESSION), 3_000, all);
        assert_eq!(value(outcome).as_deref(), expected, "{what}");
    }
}

/// A read, and where it is asked for.
type Kind = fn(&Behind) -> (ServerId, Operation);

/// Monotonic reads (D2): who has read that a key is gone does not read it again at a member that has not heard of it, however it was read, and though nothing is left of the deletion.
#[test]
fn a_deletion_that_was_read_does_not_come_undone() {
    for protocol in ["session", "strong"] {
        let kinds: [Kind; 4] = [
            |behind| (behind.leads, get(&behind.key, Level::SESSION)),
            |behind| (behind.leads, Operation::Get { key: behind.key.clone(), dial: Dial::default() }),
            // Of one partition, and of several: by a coordinator that is of another.
            |behind| (behind.leads, many(&[&behind.key, &key("other", 1, 2)])),
            |behind| (ServerId { replica: behind.leads.replica, ..server(0, 0) }, many(&[&key("x", 0, 2), &behind.key])),
        ];
        for (number, kind) in kinds.into_iter().enumerate() {
            let mut behind = Behind::new(protocol);
            let what = format!("{protocol}, read {number}");
            let (at, operation) = kind(&behind);
            let outcome = behind.ask(at, operation);
            assert!(values(outcome).iter().all(Option::is_none), "{what}");
            behind.waits(Level::SESSION, None, &what);
        }
    }
}

/// A change that finds nothing has read that, whether it writes or not.
#[test]
fn a_deletion_that_a_change_has_found_does_not_come_undone() {
    for protocol in ["session", "strong"] {
        for (change, expected) in [(Change::Delete, None), (set(SetCondition::IfPresent), None), (set(SetCondition::IfAbsent), Some("new"))] {
            let mut behind = Behind::new(protocol);
            let what = format!("{protocol}, {change:?}");
            let outcome = behind.ask(behind.leads, Operation::Change { key: behind.key.clone(), change, dial: Dial::default() });
            let Some(Outcome::Changed { before, version }) = outcome else { panic!("{what}: {outcome:?}") };
            assert_eq!((text(before), version.is_some()), (None, expected.is_some()), "{what}");
            behind.waits(Level::Session(Guarantees::MONOTONIC_READS), expected, &what);
        }
    }
}

/// What is read at level eventual is not part of the session's history, and a read that does not ask for monotonic reads is not bound by it.
#[test]
fn only_reads_that_ask_for_it_wait_for_what_may_be_gone() {
    for protocol in ["session", "strong"] {
        let mut behind = Behind::new(protocol);
        let (leads, k) = (behind.leads, behind.key.clone());
        assert_eq!(value(behind.ask(leads, get(&k, Level::Eventual))), None, "{protocol}");
        assert_eq!(behind.has(Level::SESSION), Some(old()), "{protocol}");
        assert_eq!(value(behind.ask(leads, get(&k, Level::SESSION))), None, "{protocol}");
        assert_eq!(behind.has(Level::SESSION), None, "{protocol}");
        assert_eq!(behind.has(Level::Session(Guarantees::READ_YOUR_WRITES)), Some(old()), "{protocol}");
    }
}

/// Lets a millisecond pass, and delivers the frames that are no pages of a state; those are lost.
fn pass_without_pages(desk: &mut Desk) {
    let is_page = |frame: &Frame| matches!(Message::from_bytes(&frame.2), Ok(Message::Page { .. }));
    desk.pass(1, nobody);
    while let Some(at) = desk.under_way.iter().position(|frame| !is_page(frame)) {
        let (from, to, frame) = desk.under_way.remove(at);
        desk.with(to, |replica, now, out| replica.receive(now, from, &frame, out));
    }
    desk.under_way.clear();
}

/// A member that is given the state does not know what is gone before it has all of it (D9): until then it says of no key that there is none, but to those who do not remember it.
#[test]
fn a_member_that_is_given_the_state_says_of_no_key_that_it_is_absent() {
    let mut desk = Desk::with_replicas("session", &format!("{QUICK}\nkeep_entries = 4"), 1, 1, 3);
    desk.pass(200, all);
    let (k, absent) = (key("k", 0, 1), key("absent", 0, 1));
    let leads = desk.servers().into_iter().find(|id| desk.gauge(*id, "leader") == 1.0).expect("somebody leads");
    let away = desk.servers().into_iter().find(|id| *id != leads).unwrap();
    let without = move |from: ServerId, to: ServerId| from != away && to != away;
    let write = |desk: &mut Desk, value: &str, wanted: &dyn Fn(ServerId, ServerId) -> bool| {
        let outcome = desk.ask(leads, &mut desk.session(), put(&k, Some(value)), 100, wanted);
        assert!(matches!(outcome, Some(Outcome::Written(_))), "{outcome:?}");
    };
    write(&mut desk, "old", &all);
    desk.pass(100, all);
    for _ in 0..12 {
        write(&mut desk, "new", &without);
    }
    desk.pass(100, without);
    desk.under_way.clear();
    (0..60).for_each(|_| pass_without_pages(&mut desk));
    assert_eq!(desk.gauge(away, "installing_snapshot"), 1.0);
    assert_eq!(value(desk.ask(away, &mut desk.session(), get(&k, Level::SESSION), 0, nobody)), old(), "it is there");
    assert_eq!(value(desk.ask(away, &mut desk.session(), get(&absent, Level::Eventual), 0, nobody)), None);
    let mut session = desk.session();
    let execution = desk.with(away, |replica, now, out| replica.execute(now, get(&absent, Level::SESSION), &mut session, out));
    let Execution::Waiting(op) = execution else { panic!("{execution:?}") };
    (0..100).for_each(|_| pass_without_pages(&mut desk));
    assert_eq!((desk.gauge(away, "installing_snapshot"), desk.done.contains_key(&(away, op))), (1.0, false));
    desk.pass(1_000, all);
    let (outcome, _) = desk.done.remove(&(away, op)).expect("it has all of the state");
    assert_eq!(value(Some(outcome)), None);
}

/// Begins a read of several keys by `session` at `at`, which has to wait.
fn begin(desk: &mut Desk, at: ServerId, session: &Session, keys: &[&Key]) -> OpId {
    let mut session = session.clone();
    match desk.with(at, |replica, now, out| replica.execute(now, many(keys), &mut session, out)) {
        Execution::Waiting(op) => op,
        Execution::Done { outcome, .. } => panic!("it does not wait: {outcome:?}"),
    }
}

fn timed_out(desk: &mut Desk, at: ServerId, op: OpId) {
    let (outcome, _) = desk.done.remove(&(at, op)).expect("its deadline has passed");
    assert!(matches!(outcome, Outcome::Failed(Failure::Timeout(_))), "{outcome:?}");
}

/// A transaction that waits for a data center that is out of reach waits once, however often it is asked for again, and is forgotten with its operation.
#[test]
fn nothing_is_left_of_a_transaction_that_waited_in_vain() {
    let mut desk = Desk::with_replicas("session", QUICK, 2, 1, 1);
    desk.pass(200, all);
    let (a, b, at, mut alice) = (key("a", 0, 1), key("b", 0, 1), server(1, 0), desk.session());
    let outcome = desk.ask(server(0, 0), &mut alice, put(&a, Some("far")), 100, inside);
    assert!(matches!(outcome, Some(Outcome::Written(_))), "{outcome:?}");
    for round in 1..=2 {
        desk.under_way.clear();
        let op = begin(&mut desk, at, &alice, &[&a, &b]);
        desk.pass(3_000, inside);
        assert_eq!(desk.gauge(at, "waiting_reads"), 1.0, "round {round}");
        desk.pass(3_000, inside);
        timed_out(&mut desk, at, op);
        assert_eq!(desk.gauge(at, "waiting_reads"), 0.0, "round {round}");
    }
    // Whoever waits is answered when it comes.
    desk.under_way.clear();
    let op = begin(&mut desk, at, &alice, &[&a, &b]);
    desk.pass(3_000, all);
    let (outcome, _) = desk.done.remove(&(at, op)).expect("it has come");
    assert_eq!(values(Some(outcome)), [Some("far".to_owned()), None]);
    assert_eq!(desk.gauge(at, "waiting_reads"), 0.0);
}

/// Who is asked for a slice is not told that it is not wanted any more: it waits for as long as anybody may, and no longer.
#[test]
fn nothing_is_left_of_a_slice_whose_coordinator_gave_up() {
    let mut desk = Desk::with_replicas("session", QUICK, 2, 2, 1);
    desk.pass(200, all);
    let (near, far, mut alice) = (key("near", 0, 2), key("far", 1, 2), desk.session());
    for (partition, k) in [(0, &near), (1, &far)] {
        let outcome = desk.ask(server(0, partition), &mut alice, put(k, Some("there")), 100, inside);
        assert!(matches!(outcome, Some(Outcome::Written(_))), "{outcome:?}");
    }
    let [at, other] = [server(1, 0), server(1, 1)];
    let waiting = |desk: &Desk| [at, other].map(|id| desk.gauge(id, "waiting_reads"));
    let op = begin(&mut desk, at, &alice, &[&near, &far]);
    desk.pass(3_000, inside);
    assert_eq!(waiting(&desk), [1.0, 1.0]);
    desk.under_way.clear();
    desk.pass(3_000, inside);
    timed_out(&mut desk, at, op);
    // It can have been asked once more just before.
    desk.pass(5_000, inside);
    assert_eq!(waiting(&desk), [0.0, 0.0]);
}

/// The protocols that hide what depends on what has not arrived. In `adaptive` readers check with the whole data center, or nothing would be hidden from those who read of one partition.
const HIDING: [(&str, &str); 5] = [("causal", ""), ("gentlerain", ""), ("cops", ""), ("hybrid", ""), ("adaptive", "choose = \"all\"")];

/// Everything but what partition 1 of data center 0 says to the one of data center 1.
fn without_causes(from: ServerId, to: ServerId) -> bool {
    (from, to) != (server(0, 1), server(1, 1))
}

/// Data center 0 has nothing left of a deletion that is hidden in data center 1, where what it depends on has not arrived. The key, of partition 0.
fn hidden(protocol: &str, options: &str) -> (Desk, Key) {
    let mut desk = Desk::new(protocol, options, 2, 2);
    desk.pass(300, all);
    let (k, cause, mut writer) = (key("k", 0, 2), key("cause", 1, 2), desk.session());
    desk.put(0, &mut writer, &k, "old");
    desk.pass(300, all);
    desk.put(0, &mut writer, &cause, "cause");
    desk.delete(0, &mut writer, &k);
    desk.pass(3_000, without_causes);
    let at = server(0, 0);
    assert_eq!(desk.replicas[&at].status(desk.now(at)).store.versions, 0, "{protocol}: the deletion is collected");
    assert_eq!(desk.get(1, &mut desk.session(), &k), old(), "{protocol}: it is hidden");
    (desk, k)
}

/// A way to read a key, and the partition that is asked.
type Way = fn(&Key) -> (u16, Operation);

/// A session that has read that a key is gone does not find it where the deletion is hidden, however it has read it.
#[test]
fn a_deletion_that_was_read_is_waited_for_where_it_is_hidden() {
    let kinds: [Way; 4] = [
        |k| (0, get(k, Level::Causal)),
        |k| (0, many(&[k, &key("other", 1, 2)])),
        // The coordinator is of another partition.
        |k| (1, many(&[&key("other", 1, 2), k])),
        |k| (0, Operation::Change { key: k.clone(), change: Change::Delete, dial: Dial::default() }),
    ];
    for (protocol, options) in HIDING {
        for (number, kind) in kinds.into_iter().enumerate() {
            let what = format!("{protocol}, read {number}");
            let (mut desk, k) = hidden(protocol, options);
            let ((partition, operation), mut alice) = (kind(&k), desk.session());
            match desk.ask(server(0, partition), &mut alice, operation, 100, without_causes) {
                Some(Outcome::Changed { before, version }) => assert_eq!((text(before), version), (None, None), "{what}"),
                outcome => assert!(values(outcome).iter().all(Option::is_none), "{what}"),
            }
            // At home nothing waits for that.
            assert_eq!(desk.get(0, &mut alice.clone(), &k), None, "{what}");
            desk.put(0, &mut alice.clone(), &key("w", 1, 2), "written");
            assert_eq!(desk.read(0, &mut alice.clone(), &[&key("v", 1, 2), &k]), [None, None], "{what}");
            let read = get(&k, Level::Causal);
            // In `adaptive` it need not wait: that the session has seen it shows the deletion to it.
            let early = desk.ask(server(1, 0), &mut alice.clone(), read.clone(), 1_000, without_causes);
            assert!(early.is_none_or(|early| value(Some(early)).is_none()), "{what}: what was deleted is found");
            assert_eq!(value(desk.ask(server(1, 0), &mut alice, read, 3_000, all)), None, "{what}");
        }
    }
}

/// Nor does who reads what such a session has written since.
#[test]
fn what_was_written_after_a_deletion_that_was_read_is_not_seen_before_it() {
    for (protocol, options) in HIDING {
        for coordinator in 0..2 {
            let what = format!("{protocol}, read at {coordinator}");
            let (mut desk, k) = hidden(protocol, options);
            let (effect, mut alice) = (key("effect", 0, 2), desk.session());
            let read = if coordinator == 0 { get(&k, Level::Causal) } else { many(&[&key("other", 1, 2), &k]) };
            let found = desk.ask(server(0, coordinator), &mut alice, read, 100, without_causes);
            assert!(values(found).iter().all(Option::is_none), "{what}");
            desk.put(0, &mut alice, &effect, "effect");
            for _ in 0..4 {
                desk.pass(300, without_causes);
                let seen = desk.read(1, &mut desk.session(), &[&effect, &k]);
                assert!(seen[0].is_none() || seen[1].is_none(), "{what}: {seen:?}");
                let mut bob = desk.session();
                let seen = desk.get(1, &mut bob, &effect);
                let and = if seen.is_some() { desk.get(1, &mut bob, &k) } else { None };
                assert_eq!(and, None, "{what}: after {seen:?}");
            }
            desk.pass(1_000, all);
            let mut bob = desk.session();
            assert_eq!(desk.get(1, &mut bob, &effect).as_deref(), Some("effect"), "{what}");
            assert_eq!(desk.get(1, &mut bob, &k), None, "{what}");
        }
    }
}

/// A session that finds nothing, again and again, carries no more for it; one that reads at level eventual carries nothing.
#[test]
fn a_session_that_finds_nothing_does_not_grow() {
    for (protocol, options) in HIDING {
        let mut desk = Desk::new(protocol, options, 2, 2);
        desk.pass(1_000, all);
        let (mut alice, mut bob) = (desk.session(), desk.session());
        let (k, nothing) = (key("k", 0, 2), desk.session().to_bytes());
        assert_eq!(value(desk.ask(server(0, 0), &mut bob, get(&k, Level::Eventual), 100, all)), None, "{protocol}");
        assert_eq!(bob.to_bytes(), nothing, "{protocol}");
        let mut lengths = Vec::new();
        for round in 0..60 {
            desk.pass(25, all);
            let absent = key(&format!("absent{round}-"), round % 2, 2);
            assert_eq!(desk.get(0, &mut alice, &absent), None, "{protocol}");
            lengths.push(alice.signed_bytes().len());
        }
        // In `adaptive` a session knows where its last eight reads were.
        assert!(lengths[59] <= lengths[10] + 8, "{protocol}: {lengths:?}");
    }
}
