//! ACCF, claim by claim. Paper: dissertation, chapter 7 and §9.6.

use crate::alone::Alone;
use crate::common::{self, Desk, key, server, text};
use rheostat_core::dial::{Dial, Groups};
use rheostat_core::failure::Failure;
use rheostat_core::ids::{OpId, PartitionId, Place, ServerId};
use rheostat_core::operation::Operation;
use rheostat_core::outcome::Outcome;
use rheostat_core::protocol::Protocol;
use rheostat_core::replica::Execution;
use rheostat_core::session::Session;
use rheostat_core::store::Store;
use rheostat_core::version::{Item, Key};
use rheostat_protocols::adaptive::{Adaptive, Message};

const SLOW: u64 = 60;

fn everything(_: ServerId, _: ServerId) -> bool {
    true
}

/// Everything but what goes to other data centers from `partition`.
fn without(partition: u16) -> impl Fn(ServerId, ServerId) -> bool {
    move |from, to| from.dc == to.dc || from.partition.0 != partition
}

fn groups(numbers: &[u8]) -> Dial {
    Dial { groups: Groups(numbers.iter().map(|number| 1 << number).sum()), ..Dial::default() }
}

/// A GET with checking groups that must not wait.
fn get(desk: &mut Desk, dc: u8, session: &mut Session, key: &Key, dial: Dial) -> Option<String> {
    match desk.start(dc, session, Operation::Get { key: key.clone(), dial }) {
        (_, Execution::Done { outcome: Outcome::Read(read, _), .. }) => text(read),
        (_, other) => panic!("get: {other:?}"),
    }
}

/// A GET that must wait.
fn waits(desk: &mut Desk, dc: u8, session: &mut Session, key: &Key, dial: Dial) -> (ServerId, OpId) {
    match desk.start(dc, session, Operation::Get { key: key.clone(), dial }) {
        (at, Execution::Waiting(op)) => (at, op),
        (_, other) => panic!("get does not wait: {other:?}"),
    }
}

fn gauge(desk: &Desk, id: ServerId, name: &str) -> f64 {
    desk.replicas[&id].status(desk.now(id)).gauges.into_iter().find(|(known, _)| *known == name).unwrap().1
}

/// Figure 7.1: A and B in data centers 0 and 1; in data center 1 somebody writes A, then B, then A again. What B writes does not arrive.
struct Figure {
    desk: Desk,
    a: Key,
    b: Key,
}

fn figure(options: &str, partitions: u16) -> Figure {
    let mut desk = Desk::new("adaptive", options, 2, partitions);
    let (a, b) = (key("a", 0, partitions), key("b", 1, partitions));
    let mut writer = desk.session();
    desk.put(1, &mut writer, &a, "a1");
    desk.put(1, &mut writer, &b, "b1");
    desk.pass(SLOW, everything);
    desk.put(1, &mut writer, &b, "b2");
    desk.put(1, &mut writer, &a, "a2");
    desk.pass(SLOW, without(1));
    Figure { desk, a, b }
}

/// §7.2.2: a client that reads only from servers of its checking group never has to wait; it reads what they all have.
#[test]
fn a_session_that_stays_in_its_group_never_waits() {
    let Figure { mut desk, a, b } = figure("groups = [[0, 1]]", 2);
    for group in [0, 1] {
        let mut reader = desk.session();
        assert_eq!(get(&mut desk, 0, &mut reader, &a, groups(&[group])).as_deref(), Some("a1"));
        assert_eq!(get(&mut desk, 0, &mut reader, &b, groups(&[group])).as_deref(), Some("b1"));
    }
    desk.pass(SLOW, everything);
    let mut reader = desk.session();
    assert_eq!(get(&mut desk, 0, &mut reader, &a, groups(&[1])).as_deref(), Some("a2"));
    assert_eq!(get(&mut desk, 0, &mut reader, &b, groups(&[1])).as_deref(), Some("b2"));
}

/// Figure 7.1b: a server that checks alone shows what it has, whatever the others lack. Alg. 7.2 lines 2 and 3: who then reads elsewhere waits, and
/// finds the cause of what it has seen.
#[test]
fn a_read_outside_its_group_waits_and_never_misses_a_cause() {
    let Figure { mut desk, a, b } = figure("groups = [[0], [1]]", 2);
    let mut reader = desk.session();
    assert_eq!(get(&mut desk, 0, &mut reader, &a, groups(&[1])).as_deref(), Some("a2"));
    let (at, op) = waits(&mut desk, 0, &mut reader, &b, groups(&[2]));
    desk.pass(SLOW, without(1));
    assert!(!desk.done.contains_key(&(at, op)));
    desk.pass(SLOW, everything);
    let Some((Outcome::Read(read, _), _)) = desk.done.remove(&(at, op)) else { panic!("it still waits") };
    assert_eq!(text(read).as_deref(), Some("b2"));
    // The error of one that waits in vain says for what.
    desk.put(1, &mut desk.session(), &b, "b3");
    let mut ahead = desk.session();
    desk.put(1, &mut ahead, &a, "a3");
    desk.pass(SLOW, without(1));
    let mut reader = desk.session();
    get(&mut desk, 0, &mut reader, &a, groups(&[1]));
    let (at, op) = waits(&mut desk, 0, &mut reader, &b, groups(&[2]));
    desk.pass(5_100, without(1));
    let Some((Outcome::Failed(Failure::Timeout(what)), _)) = desk.done.remove(&(at, op)) else { panic!("it does not time out") };
    assert!(what.contains("tracking group 1"), "{what}");
}

/// Alg. 7.2 line 4, as its text says it: versions are chosen by the group while it covers the session. D2: beyond the group a session sees its own past
/// and no more.
#[test]
fn what_a_session_has_seen_stays_visible_to_it_in_any_group() {
    let Figure { mut desk, a, b } = figure("groups = [[0], [0, 1]]", 2);
    let (mut session, mut other) = (desk.session(), desk.session());
    assert_eq!(get(&mut desk, 0, &mut session, &a, groups(&[1])).as_deref(), Some("a2"));
    assert_eq!(get(&mut desk, 0, &mut session, &a, groups(&[2])).as_deref(), Some("a2"), "group 2 lags behind the session");
    assert_eq!(get(&mut desk, 0, &mut other, &a, groups(&[2])).as_deref(), Some("a1"));
    // Its own write depends on what group 2 lacks: visible to itself, not to who is in that group.
    let mine = key("mine", 0, 2);
    desk.put(0, &mut session, &mine, "1");
    assert_eq!(get(&mut desk, 0, &mut session, &mine, groups(&[2])).as_deref(), Some("1"));
    assert_eq!(get(&mut desk, 0, &mut other, &mine, groups(&[2])), None);
    assert_eq!(get(&mut desk, 0, &mut other, &b, groups(&[2])).as_deref(), Some("b1"));
}

/// Alg. 7.2 lines 9 to 16: a put never waits, and its timestamp is above everything it depends on, though the writer's clock is far behind.
#[test]
fn a_put_behind_a_fast_clock_does_not_wait() {
    let mut desk = Desk::new("adaptive", "", 1, 2);
    desk.skew_ms.insert(server(0, 0), 5_000);
    desk.skew_ms.insert(server(0, 1), -5_000);
    let mut client = desk.session();
    let first = desk.put(0, &mut client, &key("x", 0, 2), "1");
    let second = desk.put(0, &mut client, &key("y", 1, 2), "2");
    assert!(second > first);
    assert_eq!(second.millis(), first.millis(), "the clock went on by its counter, not by waiting");
}

/// §9.6: groups that are named together are checked together, by a server too that is in only one of them: their members never make the session wait.
#[test]
fn several_groups_at_once_are_one_group_of_all_their_members() {
    let Figure { mut desk, a, b } = figure("groups = [[0, 2], [1, 2]]", 4);
    let both = groups(&[1, 2]);
    let mut reader = desk.session();
    // Partition 0 hears partition 2, and asks partition 1 now: until then the whole data center counts.
    assert_eq!(get(&mut desk, 0, &mut reader, &a, both).as_deref(), Some("a1"));
    desk.pass(SLOW, without(1));
    assert_eq!(get(&mut desk, 0, &mut reader, &a, groups(&[1])).as_deref(), Some("a2"), "group 1 alone has it");
    let mut reader = desk.session();
    assert_eq!(get(&mut desk, 0, &mut reader, &a, both).as_deref(), Some("a1"));
    assert_eq!(get(&mut desk, 0, &mut reader, &b, both).as_deref(), Some("b1"));
    // Partition 3 is in neither: its being cut off does not matter to the two.
    let no_third = |from: ServerId, to: ServerId| from.dc == to.dc || from.partition.0 != 3;
    desk.pass(SLOW, no_third);
    let mut reader = desk.session();
    assert_eq!(get(&mut desk, 0, &mut reader, &a, both).as_deref(), Some("a2"));
    assert_eq!(get(&mut desk, 0, &mut reader, &b, both).as_deref(), Some("b2"));
}

/// A group is used when every member has said what it has; until then, and when it is gone, the whole data center counts, and nobody waits or misses a cause.
#[test]
fn a_group_that_is_unknown_stands_for_the_whole_data_center() {
    let Figure { mut desk, a, b } = figure("", 2);
    let mut reader = desk.session();
    assert_eq!(get(&mut desk, 0, &mut reader, &a, groups(&[9])).as_deref(), Some("a1"));
    assert_eq!(get(&mut desk, 0, &mut reader, &b, groups(&[9])).as_deref(), Some("b1"));
}

/// §9.6: a group is made when enough reads would have used it, serves its clients better than the whole data center, and goes when nobody uses it.
/// A session that has used it goes on without losing anything.
#[test]
fn groups_come_with_their_readers_and_go_with_them() {
    let mut desk = Desk::new("adaptive", "propose_after = 4\nremove_after_ms = 500", 2, 3);
    let (a, b) = (key("a", 0, 3), key("b", 1, 3));
    // The third partition hears nothing: the whole data center stands still.
    desk.pass(SLOW, without(2));
    let (mut writer, mut reader) = (desk.session(), desk.session());
    desk.put(1, &mut writer, &b, "b1");
    desk.put(1, &mut writer, &a, "a1");
    desk.pass(SLOW, without(2));
    get(&mut desk, 0, &mut reader, &key("other", 0, 3), Dial::default());
    for _ in 0..2 {
        assert_eq!(get(&mut desk, 0, &mut reader, &b, Dial::default()), None, "there is no group of these two yet");
        get(&mut desk, 0, &mut reader, &key("other", 0, 3), Dial::default());
    }
    get(&mut desk, 0, &mut reader, &key("other", 1, 3), Dial::default());
    for _ in 0..6 {
        get(&mut desk, 0, &mut reader, &key("other", 0, 3), Dial::default());
    }
    desk.pass(200, without(2));
    for partition in 0..3 {
        assert_eq!(gauge(&desk, server(0, partition), "checking_groups"), 1.0, "partition {partition}");
        assert_eq!(gauge(&desk, server(1, partition), "checking_groups"), 0.0, "nobody reads this there");
    }
    get(&mut desk, 0, &mut reader, &key("other", 1, 3), Dial::default());
    assert_eq!(get(&mut desk, 0, &mut reader, &a, Dial::default()).as_deref(), Some("a1"));
    assert_eq!(get(&mut desk, 0, &mut reader, &b, Dial::default()).as_deref(), Some("b1"));
    desk.pass(800, without(2));
    for partition in 0..3 {
        assert_eq!(gauge(&desk, server(0, partition), "checking_groups"), 0.0, "partition {partition}");
    }
    // What it has seen it still sees, at once; who has not seen it does not.
    assert_eq!(get(&mut desk, 0, &mut reader, &a, Dial::default()).as_deref(), Some("a1"));
    assert_eq!(get(&mut desk, 0, &mut reader, &b, Dial::default()).as_deref(), Some("b1"));
    let mut other = desk.session();
    assert_eq!(get(&mut desk, 0, &mut other, &a, groups(&[0])), None);
}

/// The number of groups that are made is bounded.
#[test]
fn no_more_groups_are_made_than_allowed() {
    let mut desk = Desk::new("adaptive", "propose_after = 1\nmax_groups = 2", 1, 5);
    desk.pass(SLOW, everything);
    for (first, second) in [(0, 1), (1, 2), (2, 3), (3, 4), (0, 4)] {
        let mut reader = desk.session();
        for _ in 0..3 {
            get(&mut desk, 0, &mut reader, &key("x", first, 5), Dial::default());
            get(&mut desk, 0, &mut reader, &key("x", second, 5), Dial::default());
        }
        desk.pass(SLOW, everything);
    }
    assert!((0..5).all(|partition| gauge(&desk, server(0, partition), "checking_groups") == 2.0));
}

/// §7.1: tracking by data center takes for a dependency what is none; tracking by server does not.
#[test]
fn finer_tracking_waits_for_less() {
    for (tracking, wait) in [("data-center", true), ("server", false), ("partition", false)] {
        let mut desk = Desk::new("adaptive", &format!("tracking = \"{tracking}\"\nchoose = \"alone\""), 2, 2);
        let (a, b) = (key("a", 0, 2), key("b", 1, 2));
        desk.pass(SLOW, everything);
        desk.put(1, &mut desk.session(), &a, "1");
        desk.pass(SLOW, without(1));
        let mut reader = desk.session();
        assert_eq!(get(&mut desk, 0, &mut reader, &a, Dial::default()).as_deref(), Some("1"), "{tracking}");
        if wait {
            waits(&mut desk, 0, &mut reader, &b, Dial::default());
        } else {
            assert_eq!(get(&mut desk, 0, &mut reader, &b, Dial::default()), None, "{tracking}");
        }
    }
}

/// D4: what a transaction returns is one snapshot, and has in it what the session has seen; inside the group it does not wait.
#[test]
fn a_transaction_reads_one_snapshot_of_its_group() {
    for tracking in ["data-center", "server", "partition"] {
        let Figure { mut desk, a, b } = figure(&format!("tracking = \"{tracking}\"\ngroups = [[0], [0, 1]]"), 2);
        let keys = vec![b.clone(), a.clone()];
        let read = |desk: &mut Desk, session: &mut Session| {
            let outcome = desk.run(0, session, Operation::ReadTransaction { keys: keys.clone(), dial: groups(&[2]) });
            let Outcome::Many(reads, _) = outcome else { panic!("{tracking}: {outcome:?}") };
            reads.into_iter().map(|read| text(read).unwrap_or_default()).collect::<Vec<_>>()
        };
        let mut reader = desk.session();
        assert_eq!(read(&mut desk, &mut reader), ["b1", "a1"], "{tracking}");
        // Who has seen more waits for the rest of it.
        let mut ahead = desk.session();
        assert_eq!(get(&mut desk, 0, &mut ahead, &a, groups(&[1])).as_deref(), Some("a2"), "{tracking}");
        let operation = Operation::ReadTransaction { keys: keys.clone(), dial: groups(&[2]) };
        let (at, Execution::Waiting(op)) = desk.start(0, &mut ahead, operation) else { panic!("{tracking}: it does not wait") };
        desk.pass(SLOW, without(1));
        assert!(!desk.done.contains_key(&(at, op)), "{tracking}");
        desk.pass(SLOW, everything);
        let Some((Outcome::Many(reads, _), _)) = desk.done.remove(&(at, op)) else { panic!("{tracking}: it still waits") };
        assert_eq!(reads.into_iter().map(|read| text(read).unwrap()).collect::<Vec<_>>(), ["b2", "a2"], "{tracking}");
    }
}

/// D4: what is written after a slice was read is above the snapshot, though the writer's clock is behind.
#[test]
fn a_slice_fixes_what_its_partition_will_write_later() {
    let mut desk = Desk::new("adaptive", "", 1, 2);
    desk.skew_ms.insert(server(0, 1), -5_000);
    desk.pass(SLOW, everything);
    let (a, b) = (key("a", 0, 2), key("b", 1, 2));
    let mut reader = desk.session();
    let (at, op) = desk.wait(0, &mut reader, Operation::ReadTransaction { keys: vec![a.clone(), b.clone()], dial: Dial::default() });
    let slice = desk.under_way.iter().position(|(_, to, _)| *to == server(0, 1)).unwrap();
    let (from, to, frame) = desk.under_way.remove(slice);
    desk.with(to, |replica, now, out| replica.receive(now, from, &frame, out));
    let later = desk.put(0, &mut desk.session(), &b, "late");
    assert!(later.millis() >= crate::common::START_MS, "the slow clock was raised to the snapshot: {later}");
    desk.deliver(everything);
    let (outcome, _) = desk.done.remove(&(at, op)).unwrap();
    let Outcome::Many(reads, _) = outcome else { panic!("{outcome:?}") };
    assert!(reads.iter().all(|read| read.value.is_none()));
}

/// Paper: H. A data center that does not hold a partition stores nothing of it and says where its keys live; sessions go there and back with what they
/// depend on; nobody waits for who holds nothing.
#[test]
fn a_partition_lives_only_where_it_is_placed() {
    let mut desk = Desk::new("adaptive", "placement = [[0, 1], [1, 2]]", 3, 2);
    let (a, b) = (key("a", 0, 2), key("b", 1, 2));
    let mut session = desk.session();
    desk.put(1, &mut session, &b, "cause");
    let written = desk.put(1, &mut session, &a, "effect");
    desk.pass(SLOW, everything);
    for (dc, key, place) in [(0, &b, "1, 2"), (2, &a, "0, 1")] {
        let put = Operation::Put { items: [Item { key: key.clone(), value: None, expires_ms: 0 }].into_iter().collect(), dial: Dial::default() };
        for operation in [Operation::Get { key: key.clone(), dial: Dial::default() }, put] {
            let outcome = desk.run(dc, &mut desk.session(), operation);
            let Outcome::Failed(Failure::Refused(why)) = outcome else { panic!("{outcome:?}") };
            assert!(why.ends_with(&format!("its keys are in data center {place}")), "{why}");
        }
        let other = if dc == 0 { a.clone() } else { b.clone() };
        let outcome = desk.run(dc, &mut desk.session(), Operation::ReadTransaction { keys: vec![other, key.clone()], dial: Dial::default() });
        assert!(matches!(&outcome, Outcome::Failed(Failure::Refused(why)) if why.contains("hold")), "{outcome:?}");
    }
    for id in [server(0, 1), server(2, 0)] {
        let status = desk.replicas[&id].status(desk.now(id));
        assert_eq!((status.store.versions, status.links.len()), (0, 0), "{id}");
    }
    let mut reader = desk.session();
    assert_eq!(get(&mut desk, 0, &mut reader, &a, Dial::default()).as_deref(), Some("effect"));
    assert_eq!(get(&mut desk, 2, &mut reader, &b, Dial::default()).as_deref(), Some("cause"));
    // Only one other data center will ever have it on disk, so no more are waited for.
    desk.pass(200, everything);
    let wait = Operation::AwaitReplication { upto: written, data_centers: 2 };
    let awaited = desk.with(server(1, 0), |replica, now, out| replica.execute(now, wait, &mut session, out));
    assert!(matches!(awaited, Execution::Done { .. }), "{awaited:?}");
}

/// A deletion of what one data center alone holds is hidden nowhere; what it depends on can be. Who has read it waits for that elsewhere, though nothing is left of it.
#[test]
fn a_deletion_where_nobody_else_has_the_key_is_remembered_for_what_it_depends_on() {
    for tracking in ["data-center", "server"] {
        let mut desk = Desk::new("adaptive", &format!("placement = [[0], [0, 1]]\ntracking = \"{tracking}\""), 2, 2);
        let (k, cause) = (key("k", 0, 2), key("cause", 1, 2));
        let (mut writer, mut alice) = (desk.session(), desk.session());
        desk.pass(SLOW, everything);
        desk.put(0, &mut writer, &k, "old");
        assert_eq!(desk.get(0, &mut alice, &k).as_deref(), Some("old"), "{tracking}");
        desk.pass(300, everything);
        desk.put(0, &mut writer, &cause, "cause");
        desk.delete(0, &mut writer, &k);
        desk.pass(3_000, without(1));
        let at = server(0, 0);
        assert_eq!(desk.replicas[&at].status(desk.now(at)).store.versions, 0, "{tracking}: the deletion is collected");
        assert_eq!(desk.get(0, &mut alice, &k), None, "{tracking}");
        assert_eq!(desk.get(0, &mut alice.clone(), &cause).as_deref(), Some("cause"), "{tracking}: at home nothing waits");
        let (at, op) = waits(&mut desk, 1, &mut alice, &cause, Dial::default());
        desk.pass(1_000, everything);
        let Some((Outcome::Read(read, _), _)) = desk.done.remove(&(at, op)) else { panic!("{tracking}: it still waits") };
        assert_eq!(text(read).as_deref(), Some("cause"), "{tracking}");
    }
}

/// Superseded versions and tombstones go when nobody here can ask for them, and not before.
#[test]
fn versions_and_tombstones_are_collected_below_the_stable_cut() {
    for tracking in ["data-center", "server", "partition"] {
        common::superseded_versions_are_collected("adaptive", &format!("tracking = \"{tracking}\""));
    }
}

/// Whoever has read what is now collected must find what has replaced it, after a restart too: what is written in this data center only is shown before any round has told of it.
#[test]
fn what_is_written_here_is_shown_from_the_start() {
    let place = Place { server: server(0, 0), data_centers: 2, partitions: 2, first_partitions: 2, replicas: 1 };
    for tracking in ["data-center", "server"] {
        let mut alone = Alone::<Adaptive>::new(place, &format!("tracking = \"{tracking}\"\nchoose = \"all\""));
        let (x, mut first, mut second) = (key("x", 0, 2), alone.session(), alone.session());
        alone.put(&mut first, &x, "first");
        alone.put(&mut second, &x, "second");
        for mut server in [alone.restarted(), alone] {
            assert_eq!(server.get(&mut first.clone(), &x).as_deref(), Some("second"), "{tracking}");
        }
    }
}

/// Options that make no sense are refused in words for the user.
#[test]
fn options_out_of_range_are_refused() {
    use rheostat_core::ids::Place;
    use rheostat_core::planted::Planted;
    use rheostat_core::protocol::Protocol;
    use rheostat_protocols::adaptive::{Adaptive, AdaptiveOptions};
    let place = Place { server: server(0, 0), data_centers: 2, partitions: 2, first_partitions: 2, replicas: 1 };
    for (options, word) in [
        ("groups = [[2]]", "groups"),
        ("groups = [[]]", "groups"),
        ("groups = [[0, 0]]", "groups"),
        ("placement = [[2]]", "placement"),
        ("placement = [[0], [1], [0]]", "placement"),
        ("heartbeat_ms = 0", "heartbeat_ms"),
        ("max_groups = 64", "max_groups"),
        ("propose_after = 0", "propose_after"),
    ] {
        let options: AdaptiveOptions = toml::from_str(options).unwrap();
        let refused = Adaptive::new(place, &options, Planted::NONE).err().unwrap();
        assert!(refused.contains(word), "{refused}");
    }
}

/// Groups that were made at runtime outlive a restart with the same configuration; with another one, that one counts.
#[test]
fn groups_that_were_made_outlive_a_restart() {
    const OPTIONS: &str = "groups = [[0, 1]]";
    // That of partition 0 makes groups for all.
    let place = Place { server: server(0, 0), data_centers: 1, partitions: 3, first_partitions: 3, replicas: 1 };
    let mut registrar = Alone::<Adaptive>::new(place, OPTIONS);
    assert_eq!(registrar.gauge("checking_groups"), 1.0);
    registrar.step(|adaptive, step| adaptive.on_message(step, PartitionId(1), Message::Propose(vec![PartitionId(1), PartitionId(2)])));
    assert_eq!(registrar.gauge("checking_groups"), 2.0);
    assert_eq!(registrar.restarted().gauge("checking_groups"), 2.0);
    let end = registrar.server.store().end();
    assert_eq!(registrar.again(end, "groups = [[0, 2]]").gauge("checking_groups"), 1.0);
    assert_eq!(registrar.again(end, "").gauge("checking_groups"), 0.0);
}

/// What the registrar says after it has lost its disk counts for those who have heard of more changes than it has made since.
#[test]
fn groups_are_made_by_a_registrar_that_has_lost_its_table() {
    const OPTIONS: &str = "propose_after = 1\nremove_after_ms = 500";
    let mut desk = Desk::new("adaptive", OPTIONS, 2, 4);
    desk.pass(SLOW, everything);
    let read = |desk: &mut Desk, partitions: [u16; 2]| {
        let mut reader = desk.session();
        for partition in partitions {
            get(desk, 0, &mut reader, &key("x", partition, 4), Dial::default());
        }
        desk.pass(200, everything);
    };
    let known = |desk: &Desk| [0, 1, 2, 3].map(|partition| gauge(desk, server(0, partition), "checking_groups"));
    for _ in 0..3 {
        read(&mut desk, [1, 2]);
        assert_eq!(known(&desk), [1.0; 4]);
        desk.pass(800, everything);
        assert_eq!(known(&desk), [0.0; 4]);
    }
    desk.lose_disk("adaptive", OPTIONS, server(0, 0));
    desk.pass(200, everything);
    read(&mut desk, [2, 3]);
    assert_eq!(known(&desk), [1.0; 4]);
}

/// A server outside of a group asks its members to be told what they have, and again before that ends: so a word that is lost is made up for in time.
#[test]
fn who_checks_with_others_asks_them_again_before_they_stop() {
    let mut desk = Desk::new("adaptive", "groups = [[1]]", 1, 2);
    desk.pass(SLOW, everything);
    let a = key("a", 0, 2);
    let asked = |desk: &mut Desk| {
        desk.under_way.clear();
        let mut reader = desk.session();
        get(desk, 0, &mut reader, &a, groups(&[1]));
        desk.under_way.iter().filter(|(from, to, _)| (*from, *to) == (server(0, 0), server(0, 1))).count()
    };
    assert_eq!((asked(&mut desk), asked(&mut desk)), (1, 0), "once is enough");
    // It is told for half a second; what is said then is that this goes on.
    desk.pass(200, everything);
    assert_eq!(asked(&mut desk), 0);
    desk.pass(150, everything);
    assert_eq!(asked(&mut desk), 1);
}

/// Begins a transaction of both partitions in data center 1, by a session that depends on what has not arrived there.
fn slices_that_wait(desk: &mut Desk) -> (ServerId, OpId) {
    let (near, far, mut session) = (key("near", 0, 2), key("far", 1, 2), desk.session());
    for key in [&near, &far] {
        desk.put(0, &mut session, key, "there");
    }
    desk.wait(1, &mut session, Operation::ReadTransaction { keys: vec![near, far], dial: Dial::default() })
}

/// Whoever is asked for a slice is not told that its coordinator has given up: it keeps it for as long as it is asked again, and not much longer.
#[test]
fn nothing_is_left_of_a_slice_whose_coordinator_gave_up() {
    let mut desk = Desk::new("adaptive", "", 2, 2);
    desk.pass(SLOW, everything);
    let inside = |from: ServerId, to: ServerId| from.dc == to.dc;
    let held = |desk: &Desk| [0, 1].map(|partition| gauge(desk, server(1, partition), "held_reads"));
    let (at, op) = slices_that_wait(&mut desk);
    desk.pass(4_500, inside);
    assert_eq!(held(&desk), [1.0, 1.0], "each is held once, however often it is asked for");
    desk.pass(1_000, inside);
    let (outcome, _) = desk.done.remove(&(at, op)).expect("its deadline has passed");
    assert!(matches!(outcome, Outcome::Failed(Failure::Timeout(_))), "{outcome:?}");
    assert_eq!(held(&desk)[0], 0.0);
    desk.under_way.clear();
    desk.pass(10_000, inside);
    assert_eq!(held(&desk), [0.0, 0.0]);
}

/// A slice that is lost on its way is asked for again.
#[test]
fn a_slice_that_was_lost_is_asked_for_again() {
    let mut desk = Desk::new("adaptive", "", 2, 2);
    desk.pass(SLOW, everything);
    let (at, op) = slices_that_wait(&mut desk);
    desk.under_way.retain(|(from, to, _)| (*from, *to) != (server(1, 0), server(1, 1)));
    desk.pass(1_000, everything);
    assert!(!desk.done.contains_key(&(at, op)));
    desk.pass(2_000, everything);
    let (outcome, _) = desk.done.remove(&(at, op)).expect("it was asked for again");
    assert!(matches!(&outcome, Outcome::Many(reads, _) if reads.iter().all(|read| read.value.is_some())), "{outcome:?}");
}
