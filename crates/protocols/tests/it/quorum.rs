//! Quorums and values that stand side by side, claim by claim.

use crate::alone::Alone;
use crate::common::{Desk, Frame, key, server, text};
use rheostat_clock::DcId;
use rheostat_core::dial::{Dial, Quorum};
use rheostat_core::failure::Failure;
use rheostat_core::ids::{Place, ServerId};
use rheostat_core::operation::Operation;
use rheostat_core::outcome::Outcome;
use rheostat_core::protocol::Protocol;
use rheostat_core::session::Session;
use rheostat_core::step::{Departure, Effect, EffectOf};
use rheostat_core::version::{Item, Key};
use rheostat_protocols::quorum::{Message, Quorum as Replica, Resolver};
use rheostat_protocols::registry::Sessions;

fn everything(_: ServerId, _: ServerId) -> bool {
    true
}

fn nothing(_: ServerId, _: ServerId) -> bool {
    false
}

fn dial(reads: u8, writes: u8) -> Dial {
    Dial { quorum: Quorum { asked: 0, reads, writes }, ..Dial::default() }
}

/// A session that has seen nothing.
fn nobody() -> Session {
    (Sessions::named("quorum").unwrap().new)()
}

fn look(desk: &mut Desk, dc: u8, session: &mut Session, key: &Key) -> Vec<String> {
    match desk.run(dc, session, Operation::Siblings { key: key.clone(), dial: dial(1, 1) }) {
        Outcome::Siblings(reads, _) => reads.into_iter().map(|read| text(read).unwrap()).collect(),
        other => panic!("siblings: {other:?}"),
    }
}

fn replace(desk: &mut Desk, dc: u8, session: &mut Session, key: &Key, value: &str) -> Outcome {
    let item = Item { key: key.clone(), value: Some(value.as_bytes().into()), expires_ms: 0 };
    desk.run(dc, session, Operation::Replace { item, dial: dial(1, 1) })
}

/// Two clients that each see their own last write only: 99 writes in turn leave two values, at every replica, in memory too.
#[test]
fn ninety_nine_interleaved_stale_writes_leave_two_siblings() {
    for places in [[0, 0], [0, 1]] {
        let mut desk = Desk::new("quorum", "", 2, 1);
        let x = key("x", 0, 1);
        let mut clients = [desk.session(), desk.session()];
        desk.pass(300, everything);
        for round in 0..99 {
            let one = round % 2;
            let written = replace(&mut desk, places[one], &mut clients[one], &x, &round.to_string());
            assert!(matches!(written, Outcome::Written(_)), "{written:?}");
            desk.pass(20, everything);
        }
        desk.pass(2_000, everything);
        for dc in 0..2 {
            let mut found = look(&mut desk, dc, &mut nobody(), &x);
            found.sort();
            assert_eq!(found, ["97", "98"], "{places:?}");
            let status = desk.replicas[&server(dc, 0)].status(desk.now(server(dc, 0)));
            assert_eq!(status.store.versions, 2, "{places:?}");
        }
        // Who has seen both replaces both, and nothing else.
        let mut third = desk.session();
        look(&mut desk, 1, &mut third, &x);
        replace(&mut desk, places[0], &mut clients[0], &x, "unseen");
        desk.pass(100, everything);
        replace(&mut desk, 1, &mut third, &x, "both");
        desk.pass(300, everything);
        let mut found = look(&mut desk, 0, &mut nobody(), &x);
        found.sort();
        assert_eq!(found, ["both", "unseen"]);
    }
}

/// The published rule compares vectors whose entries are the servers': of two writes that have not seen each other the later one hides the earlier one.
#[test]
fn a_plain_version_vector_loses_what_nobody_has_seen() {
    for (published, left) in [(false, &["one", "other"][..]), (true, &["other"][..])] {
        let mut desk = Desk::new("quorum", &format!("published = {published}"), 2, 1);
        let x = key("x", 0, 1);
        desk.pass(300, everything);
        let (mut one, mut other) = (desk.session(), desk.session());
        look(&mut desk, 0, &mut one, &x);
        look(&mut desk, 0, &mut other, &x);
        replace(&mut desk, 0, &mut one, &x, "one");
        replace(&mut desk, 0, &mut other, &x, "other");
        desk.pass(1_000, everything);
        let mut found = look(&mut desk, 1, &mut nobody(), &x);
        found.sort();
        assert_eq!(found, left, "published: {published}");
    }
}

/// A read that R replicas answer finds a write that W have, whichever they are, if R + W is more than the replicas.
#[test]
fn quorums_that_meet_find_what_was_written() {
    let x = key("x", 0, 1);
    for (reads, writes) in [(1, 3), (2, 2), (3, 1)] {
        let mut desk = Desk::new("quorum", "", 3, 1);
        desk.pass(300, everything);
        let put = |value: &str| {
            let item = Item { key: x.clone(), value: Some(value.as_bytes().into()), expires_ms: 0 };
            Operation::Put { items: [item].into_iter().collect(), dial: dial(reads, writes) }
        };
        // Data centers 1 and 2 are cut off from each other: what one of them has of the other it has not.
        let open = |from: ServerId, to: ServerId| from.dc == DcId(0) || to.dc == DcId(0);
        for (round, dc) in (0..6).zip([1u8, 0, 2].into_iter().cycle()) {
            let mut session = desk.session();
            let limit = if writes == 3 || reads == 3 { 50 } else { 2_000 };
            let written = desk.ask(server(dc, 0), &mut session, put(&round.to_string()), limit, open);
            if !matches!(written, Some(Outcome::Written(_))) {
                continue;
            }
            for reader in 0..3 {
                let get = Operation::Get { key: x.clone(), dial: dial(reads, writes) };
                if let Some(Outcome::Read(read, _)) = desk.ask(server(reader, 0), &mut desk.session(), get, 50, open) {
                    let found: u32 = text(read).unwrap().parse().unwrap();
                    assert!(found >= round, "R = {reads}, W = {writes}: data center {reader} found {found} after {round}");
                }
            }
        }
    }
}

/// R + W > N is not linearizable: while a write is under way, a read that meets one of its replicas finds it, and a later read of two others does not.
#[test]
fn a_read_can_go_back_after_one_that_found_a_write_under_way() {
    let mut desk = Desk::new("quorum", "consistency = 'sequential'", 3, 1);
    let x = key("x", 0, 1);
    desk.pass(300, everything);
    let put = |value: &str, dial: Dial| {
        let item = Item { key: x.clone(), value: Some(value.as_bytes().into()), expires_ms: 0 };
        Operation::Put { items: [item].into_iter().collect(), dial }
    };
    let mut writer = desk.session();
    assert!(matches!(desk.ask(server(0, 0), &mut writer, put("old", Dial::default()), 100, everything), Some(Outcome::Written(_))));
    desk.pass(300, everything);
    // It is written in data center 0, and waits for a second one.
    desk.wait(0, &mut writer, put("new", dial(1, 2)));
    let read = |desk: &mut Desk, dc: u8, other: u8| {
        let get = Operation::Get { key: x.clone(), dial: Dial::default() };
        let mut session = desk.session();
        let (at, op) = desk.wait(dc, &mut session, get);
        for _ in 0..10 {
            desk.pass(1, nothing);
            // Updates are on a slow way; questions and answers are not.
            let wanted = |(from, to, frame): &Frame| frame[0] == 6 && [from.dc.0, to.dc.0].iter().all(|at| [dc, other].contains(at));
            while let Some(place) = desk.under_way.iter().position(wanted) {
                let (from, to, frame) = desk.under_way.remove(place);
                desk.with(to, |replica, now, out| replica.receive(now, from, &frame, out));
            }
            desk.under_way.clear();
            if let Some((Outcome::Read(read, _), _)) = desk.done.remove(&(at, op)) {
                return text(read).unwrap();
            }
        }
        panic!("no quorum");
    };
    let (first, second) = (read(&mut desk, 0, 1), read(&mut desk, 1, 2));
    assert_eq!((first.as_str(), second.as_str()), ("new", "old"));
}

/// When too few answer, the error says who did; a write stays where it was made, and goes on.
#[test]
fn an_error_names_the_replicas_that_have_answered() {
    let mut desk = Desk::new("quorum", "", 3, 1);
    let x = key("x", 0, 1);
    desk.pass(300, everything);
    let not_two = |from: ServerId, to: ServerId| from.dc != DcId(2) && to.dc != DcId(2);
    let get = Operation::Get { key: x.clone(), dial: dial(3, 1) };
    let Some(Outcome::Failed(Failure::Insufficient(why))) = desk.ask(server(0, 0), &mut desk.session(), get, 10_000, not_two) else {
        panic!("no such failure")
    };
    assert_eq!((why.write, why.needed, why.answered), (false, 3, vec![DcId(0), DcId(1)]));
    let item = Item { key: x.clone(), value: Some((*b"kept").into()), expires_ms: 0 };
    let put = Operation::Put { items: [item].into_iter().collect(), dial: dial(1, 2) };
    let Some(Outcome::Failed(failure)) = desk.ask(server(0, 0), &mut desk.session(), put, 10_000, nothing) else { panic!("it had a quorum") };
    assert!(failure.to_string().contains("1 of the 2 replicas that this write needs have answered in time: data center 0"), "{failure}");
    assert_eq!(desk.gauge(server(0, 0), "quorum_rounds"), 0.0, "a round whose operation is over is forgotten");
    desk.pass(3_000, everything);
    assert_eq!(desk.get(2, &mut desk.session(), &x).as_deref(), Some("kept"));
}

/// Who does not answer in the first round is asked again, one after the other, and so are those that were not asked at first.
#[test]
fn a_second_round_asks_the_others() {
    let mut desk = Desk::new("quorum", "round_ms = 50", 3, 1);
    let x = key("x", 0, 1);
    desk.pass(300, everything);
    desk.put(2, &mut desk.session(), &x, "there");
    desk.pass(5, everything);
    // Of the two that are asked at first, data center 1 is away.
    let dial = Dial { quorum: Quorum { asked: 2, reads: 2, writes: 1 }, ..Dial::default() };
    let not_one = |from: ServerId, to: ServerId| from.dc != DcId(1) && to.dc != DcId(1);
    let outcome = desk.ask(server(0, 0), &mut desk.session(), Operation::Get { key: x.clone(), dial }, 1_000, not_one);
    let Some(Outcome::Read(read, _)) = outcome else { panic!("{outcome:?}") };
    assert_eq!(text(read).as_deref(), Some("there"));
}

fn put(desk: &mut Desk, dc: u8, key: &Key, value: &str, dial: Dial, limit_ms: u64, open: fn(ServerId, ServerId) -> bool) -> Outcome {
    let item = Item { key: key.clone(), value: Some(value.as_bytes().into()), expires_ms: 0 };
    let put = Operation::Put { items: [item].into_iter().collect(), dial };
    desk.ask(server(dc, 0), &mut desk.session(), put, limit_ms, open).expect("it comes to an end")
}

fn get(desk: &mut Desk, dc: u8, key: &Key, dial: Dial, open: fn(ServerId, ServerId) -> bool) -> Result<Option<String>, Failure> {
    let get = Operation::Get { key: key.clone(), dial };
    match desk.ask(server(dc, 0), &mut desk.session(), get, 6_000, open).expect("it comes to an end") {
        Outcome::Read(read, _) => Ok(text(read)),
        Outcome::Failed(why) => Err(why),
        other => panic!("{other:?}"),
    }
}

fn without_0(from: ServerId, to: ServerId) -> bool {
    from.dc != DcId(0) && to.dc != DcId(0)
}

fn without_2(from: ServerId, to: ServerId) -> bool {
    from.dc != DcId(2) && to.dc != DcId(2)
}

/// A replica whose disk was lost counts for reads when it has all that the others had, and not before.
#[test]
fn a_replica_that_has_lost_what_it_had_counts_for_no_read_until_it_is_whole() {
    for (reads, writes) in [(2, 2), (1, 3)] {
        let mut desk = Desk::new("quorum", "", 3, 1);
        let x = key("x", 0, 1);
        desk.pass(300, everything);
        let open = if writes == 2 { without_2 } else { everything };
        assert!(matches!(put(&mut desk, 0, &x, "there", dial(reads, writes), 100, open), Outcome::Written(_)));
        desk.lose_disk("quorum", "", server(1, 0));
        // The only one left that has it cannot be reached.
        match get(&mut desk, 1, &x, dial(reads, writes), without_0) {
            Err(Failure::Insufficient(why)) => assert_eq!((why.needed, why.answered), (2, vec![DcId(2)]), "its own answer does not count"),
            found => assert_eq!((found, reads), (Ok(Some("there".into())), 1), "another one is asked"),
        }
        let asked = get(&mut desk, 2, &x, dial(2, 2), without_0);
        assert!(matches!(&asked, Err(Failure::Insufficient(why)) if why.answered == [DcId(2)]), "{asked:?}");
        // Alone it says so too, and takes no writes.
        assert!(matches!(get(&mut desk, 1, &x, dial(1, 1), nothing), Err(Failure::Insufficient(_))));
        assert!(matches!(put(&mut desk, 1, &x, "no", dial(1, 1), 100, everything), Outcome::Failed(Failure::Busy(_))));
        desk.pass(2_000, everything);
        assert_eq!(get(&mut desk, 1, &x, dial(2, 2), without_0), Ok(Some("there".into())));
        assert_eq!(get(&mut desk, 1, &x, dial(1, 1), nothing), Ok(Some("there".into())));
        assert!(matches!(put(&mut desk, 1, &x, "newer", dial(2, 2), 100, without_0), Outcome::Written(_)));
    }
}

/// While it is filled it counts for writes: what it has on disk is not lost again.
#[test]
fn a_replica_that_is_filled_counts_for_writes() {
    let mut desk = Desk::new("quorum", "", 3, 1);
    let x = key("x", 0, 1);
    desk.pass(300, everything);
    desk.lose_disk("quorum", "", server(1, 0));
    assert!(matches!(put(&mut desk, 0, &x, "there", dial(1, 2), 1_000, without_2), Outcome::Written(_)));
    assert!(matches!(get(&mut desk, 1, &x, dial(1, 1), without_2), Ok(Some(_))), "another one is asked");
    let alone = get(&mut desk, 1, &x, dial(1, 1), nothing);
    assert!(matches!(alone, Err(Failure::Insufficient(_))), "data center 2 may have more: {alone:?}");
}

/// What a replica counts for is on its disk, whatever the durability: without its power it would answer reads as if it had never had it.
#[test]
fn a_replica_says_that_it_has_what_is_on_its_disk() {
    let place = |dc| Place { server: server(dc, 0), data_centers: 2, partitions: 1, first_partitions: 1, replicas: 1 };
    let (mut far, mut here) = (Alone::<Replica>::new(place(1), ""), Alone::<Replica>::new(place(0), ""));
    let mut writer = far.session();
    far.put(&mut writer, &key("x", 0, 1), "there");
    let update = far.own_updates().remove(0);
    let upto = update.id.written;
    let departures = |effects: Vec<EffectOf<Replica>>| -> Vec<Departure> {
        let answers = effects.into_iter().filter_map(|effect| match effect {
            Effect::Send { message: Message::Has { .. }, departure, .. } => Some(departure),
            _ => None,
        });
        answers.collect()
    };
    let asked_before = here.step(|quorum, step| quorum.on_member_message(step, server(1, 0), Message::Await { round: 1, upto }));
    assert_eq!(departures(asked_before), [], "it has not come");
    let came = here.step(|quorum, step| quorum.on_update(step, DcId(1), update));
    assert_eq!(departures(came), [Departure::FlushedAtOnce]);
    let asked_again = here.step(|quorum, step| quorum.on_member_message(step, server(1, 0), Message::Await { round: 2, upto }));
    assert_eq!(departures(asked_again), [Departure::FlushedAtOnce]);
}

/// All values, of a replica that asks others for them.
fn look_together(desk: &mut Desk, dc: u8, session: &mut Session, key: &Key, open: fn(ServerId, ServerId) -> bool) -> Vec<String> {
    let siblings = Operation::Siblings { key: key.clone(), dial: dial(1, 1) };
    match desk.ask(server(dc, 0), session, siblings, 6_000, open) {
        Some(Outcome::Siblings(reads, _)) => reads.into_iter().map(|read| text(read).unwrap()).collect(),
        other => panic!("siblings: {other:?}"),
    }
}

/// A context that a replica gives while it is filled covers what it has got back of its own, and not what is still to come: nobody has seen that.
#[test]
fn a_context_of_a_replica_that_is_filled_covers_what_was_seen() {
    for (comes_back_first, seen, left) in [(false, &[][..], &["mine", "there"][..]), (true, &["there"][..], &["mine"][..])] {
        let mut desk = Desk::new("quorum", "", 3, 1);
        let x = key("x", 0, 1);
        desk.pass(300, everything);
        // Data center 0 does not get it.
        replace(&mut desk, 1, &mut nobody(), &x, "there");
        desk.pass(100, without_0);
        assert_eq!(look(&mut desk, 2, &mut nobody(), &x), ["there"]);
        desk.lose_disk("quorum", "", server(1, 0));
        desk.pass(1_000, if comes_back_first { without_0 } else { without_2 });
        let mut reader = desk.session();
        assert_eq!(look_together(&mut desk, 1, &mut reader, &x, without_2), seen);
        desk.pass(5_000, everything);
        assert_eq!(look(&mut desk, 0, &mut nobody(), &x), ["there"], "it has come back");
        replace(&mut desk, 0, &mut reader, &x, "mine");
        desk.pass(1_000, everything);
        for dc in 0..3 {
            let mut found = look(&mut desk, dc, &mut nobody(), &x);
            found.sort();
            assert_eq!(found, left, "in data center {dc}");
        }
    }
}

/// A data center that does not answer is not passed over: a replica that goes on with less would say of what those two had that it is replaced.
#[test]
fn a_replica_that_has_lost_what_it_had_waits_for_all_others() {
    let mut desk = Desk::new("quorum", "", 3, 1);
    let (x, y) = (key("x", 0, 1), key("y", 0, 1));
    desk.pass(300, everything);
    // Only data center 0 gets what data center 1 writes.
    assert!(matches!(put(&mut desk, 1, &x, "there", dial(2, 2), 100, without_2), Outcome::Written(_)));
    desk.lose_disk("quorum", "", server(1, 0));
    desk.pass(60_000, without_0);
    assert!(matches!(put(&mut desk, 1, &y, "no", dial(1, 1), 6_000, without_0), Outcome::Failed(Failure::Busy(_))));
    assert!(matches!(get(&mut desk, 1, &x, dial(2, 2), without_0), Err(Failure::Insufficient(_))));
    desk.pass(3_000, everything);
    assert_eq!(get(&mut desk, 1, &x, dial(1, 1), nothing), Ok(Some("there".into())));
    assert!(matches!(put(&mut desk, 1, &y, "yes", dial(1, 1), 6_000, everything), Outcome::Written(_)));
    assert_eq!(get(&mut desk, 2, &x, dial(2, 2), everything), Ok(Some("there".into())));
}

/// A deletion buries what it replaces, and nothing that stands beside it.
#[test]
fn a_value_beside_a_deletion_comes_back_to_a_disk_that_was_lost() {
    let mut desk = Desk::new("quorum", "", 3, 1);
    let x = key("x", 0, 1);
    desk.pass(300, everything);
    replace(&mut desk, 1, &mut nobody(), &x, "kept");
    desk.pass(3, nothing);
    desk.delete(0, &mut nobody(), &x);
    let chain = |desk: &mut Desk, dc: u8| match desk.run(dc, &mut nobody(), Operation::Explain { key: x.clone() }) {
        Outcome::Explained(versions) => versions.len(),
        other => panic!("{other:?}"),
    };
    while (0..3).any(|dc| chain(&mut desk, dc) < 2) {
        desk.pass(1, everything);
    }
    desk.lose_disk("quorum", "", server(2, 0));
    desk.pass(3_000, everything);
    for dc in 0..3 {
        assert_eq!(look(&mut desk, dc, &mut nobody(), &x), ["kept"], "in data center {dc}");
    }
}

#[test]
fn numbers_that_cannot_be_had_are_refused() {
    let mut desk = Desk::new("quorum", "", 2, 1);
    let get = Operation::Get { key: key("x", 0, 1), dial: dial(3, 1) };
    let Outcome::Failed(Failure::Refused(why)) = desk.run(0, &mut desk.session(), get.clone()) else { panic!("not refused") };
    assert!(why.contains("reads = 3") && why.contains("2 replicas"), "{why}");
    let mut other = Desk::new("causal", "", 2, 1);
    let Outcome::Failed(Failure::Refused(why)) = other.run(0, &mut other.session(), get) else { panic!("not refused") };
    assert!(why.contains("no quorums to choose"), "{why}");
    let mut strong = Desk::new("strong", "", 2, 1);
    let item = Item { key: key("x", 0, 1), value: None, expires_ms: 0 };
    let put_if = Operation::PutIf { items: [item].into_iter().collect(), guards: Vec::new(), dial: dial(2, 1) };
    let Outcome::Failed(Failure::Refused(why)) = strong.run(0, &mut strong.session(), put_if) else { panic!("not refused") };
    assert!(why.contains("no quorums to choose"), "{why}");
    let siblings = Operation::Siblings { key: key("x", 0, 1), dial: Dial::default() };
    let Outcome::Failed(Failure::Refused(why)) = other.run(0, &mut other.session(), siblings) else { panic!("not refused") };
    assert!(why.contains("one value"), "{why}");
}

/// Plain writes replace each other by time, seen or not, as in other protocols; and what was written beside others on purpose stays.
#[test]
fn plain_writes_replace_each_other_and_not_what_they_have_not_seen_of_others() {
    let mut desk = Desk::new("quorum", "", 2, 1);
    let x = key("x", 0, 1);
    desk.pass(300, everything);
    desk.put(0, &mut desk.session(), &x, "first");
    desk.now_us += 5_000;
    desk.put(1, &mut desk.session(), &x, "second");
    desk.pass(1_000, everything);
    for dc in 0..2 {
        assert_eq!(look(&mut desk, dc, &mut nobody(), &x), ["second"]);
    }
    replace(&mut desk, 0, &mut nobody(), &x, "beside");
    desk.now_us += 5_000;
    desk.put(1, &mut desk.session(), &x, "third");
    desk.pass(1_000, everything);
    for dc in 0..2 {
        assert_eq!(look(&mut desk, dc, &mut nobody(), &x), ["third", "beside"]);
        assert_eq!(desk.get(dc, &mut desk.session(), &x).as_deref(), Some("third"));
    }
}

/// A key with a tombstone is absent for whoever asks a replica that knows of it, and the tombstone stays until all do.
#[test]
fn what_was_deleted_does_not_come_back_by_a_read_of_several() {
    let mut desk = Desk::new("quorum", "", 3, 1);
    let x = key("x", 0, 1);
    desk.put(1, &mut desk.session(), &x, "old");
    desk.pass(300, everything);
    desk.delete(0, &mut desk.session(), &x);
    // Data center 2 hears nothing of data center 0, and all else arrives.
    let no_news = |from: ServerId, to: ServerId| !(from.dc == DcId(0) && to.dc == DcId(2));
    desk.pass(1_000, no_news);
    let versions = |desk: &Desk, dc| desk.replicas[&server(dc, 0)].status(desk.now(server(dc, 0))).store.versions;
    assert_eq!((versions(&desk, 1), versions(&desk, 2)), (1, 1), "of the value itself nothing is left where the tombstone is");
    assert_eq!(desk.get(2, &mut desk.session(), &x).as_deref(), Some("old"), "one replica alone knows no better");
    let get = Operation::Get { key: x.clone(), dial: dial(2, 1) };
    let outcome = desk.ask(server(1, 0), &mut desk.session(), get, 1_000, no_news);
    let Some(Outcome::Read(read, _)) = outcome else { panic!("{outcome:?}") };
    assert_eq!(text(read), None);
    desk.pass(5_000, everything);
    assert_eq!((versions(&desk, 0), versions(&desk, 1), versions(&desk, 2)), (0, 0, 0));
    assert_eq!(desk.get(2, &mut desk.session(), &x), None);
}

#[test]
fn a_context_is_of_its_key_and_travels() {
    let mut desk = Desk::new("quorum", "", 2, 1);
    let (x, y) = (key("x", 0, 1), key("y", 0, 1));
    replace(&mut desk, 0, &mut nobody(), &x, "x");
    replace(&mut desk, 0, &mut nobody(), &y, "y");
    desk.pass(300, everything);
    let mut session = desk.session();
    assert_eq!(look(&mut desk, 0, &mut session, &x), ["x"]);
    replace(&mut desk, 0, &mut session.clone(), &y, "other");
    desk.pass(300, everything);
    assert_eq!(look(&mut desk, 1, &mut nobody(), &y), ["other", "y"], "what was seen of x says nothing of y");
    let token = session.to_bytes();
    let mut there = desk.replicas[&server(1, 0)].decode_session(&token).unwrap();
    replace(&mut desk, 1, &mut there, &x, "newer");
    desk.pass(300, everything);
    assert_eq!(look(&mut desk, 0, &mut nobody(), &x), ["newer"]);
}

/// A context is part of a token, whose length is bounded.
#[test]
fn what_a_context_names_is_no_longer_than_a_token_can_be() {
    let mut desk = Desk::new("quorum", "", 1, 1);
    let long: Key = vec![b'k'; 8193].into();
    let Outcome::Failed(Failure::Refused(why)) = replace(&mut desk, 0, &mut nobody(), &long, "x") else { panic!("not refused") };
    assert!(why.contains("8193 bytes") && why.contains("8192"), "{why}");
    assert!(matches!(replace(&mut desk, 0, &mut nobody(), &long[..8192].into(), "x"), Outcome::Written(_)));
}

#[test]
fn values_that_are_sets_of_lines_are_united() {
    let mut desk = Desk::new("quorum", "resolver = 'union'", 2, 1);
    let x = key("x", 0, 1);
    desk.pass(300, everything);
    desk.put(0, &mut desk.session(), &x, "bread\nmilk");
    desk.put(1, &mut desk.session(), &x, "milk\nsalt");
    desk.pass(300, everything);
    for dc in 0..2 {
        assert_eq!(desk.get(dc, &mut desk.session(), &x).as_deref(), Some("bread\nmilk\nsalt"));
        assert_eq!(look(&mut desk, dc, &mut nobody(), &x).len(), 2);
    }
    desk.put(0, &mut desk.session(), &x, "eggs");
    desk.pass(1_000, everything);
    assert_eq!(desk.get(1, &mut desk.session(), &x).as_deref(), Some("eggs"), "who has seen both replaces both");
}

/// Each writer raises a line of its own. Whoever reads finds all of them, and the greatest number of each.
#[test]
fn counters_with_a_line_for_each_writer_lose_nothing() {
    let mut desk = Desk::new("quorum", "resolver = 'counters'", 2, 1);
    let x = key("x", 0, 1);
    desk.pass(300, everything);
    let (mut here, mut there) = (desk.session(), desk.session());
    desk.put(0, &mut here, &x, "us-east 1");
    desk.pass(300, everything);
    for round in 2..=4 {
        // Both begin with what the round before has left, and neither sees the other's step.
        let counts = |value: Option<String>, name: &str| {
            let others = value.iter().flat_map(|value| value.lines()).filter(|line| !line.starts_with(name));
            others.map(str::to_owned).chain([format!("{name} {round}")]).collect::<Vec<_>>().join("\n")
        };
        let (east, eu) = (desk.get(0, &mut here, &x), desk.get(1, &mut there, &x));
        desk.put(0, &mut here, &x, &counts(east, "us-east"));
        desk.put(1, &mut there, &x, &counts(eu, "eu"));
        desk.pass(300, everything);
        for dc in 0..2 {
            assert_eq!(desk.get(dc, &mut desk.session(), &x), Some(format!("eu {round}\nus-east {round}")));
        }
    }
}

#[test]
fn lines_are_counted_by_what_stands_before_their_number() {
    let merge = |values: &[&str]| String::from_utf8(Resolver::Counters.merge(values.iter().map(|value| value.as_bytes())).unwrap()).unwrap();
    assert_eq!(merge(&["a 9\nb 2", "a 10\nb 1"]), "a 10\nb 2", "numbers, not texts");
    assert_eq!(merge(&["a -5", "a -7"]), "a -5");
    assert_eq!(merge(&["a", "a 1", "a b"]), "a 1\na b", "a number counts more than none");
    assert_eq!(merge(&["a 99999999999999999999", "a 1"]), "a 1\na 99999999999999999999", "what is no number of 64 bits is text");
    assert_eq!(merge(&["", "a 1"]), "\na 1");
    assert_eq!(Resolver::LastWriter.merge([&b"x"[..]].into_iter()), None);
}

#[test]
fn values_side_by_side_are_bounded() {
    let mut desk = Desk::new("quorum", "", 1, 1);
    let x = key("x", 0, 1);
    let mut refused = None;
    for round in 0..=100 {
        desk.now_us += 1_000;
        if let Outcome::Failed(Failure::Refused(why)) = replace(&mut desk, 0, &mut nobody(), &x, &round.to_string()) {
            refused = Some((round, why));
            break;
        }
    }
    let (round, why) = refused.expect("there is a bound");
    assert!(round == 100 && why.contains("100 values"), "{round}: {why}");
    let mut session = desk.session();
    assert_eq!(look(&mut desk, 0, &mut session, &x).len(), 100);
    assert!(matches!(replace(&mut desk, 0, &mut session, &x, "one"), Outcome::Written(_)));
    assert_eq!(look(&mut desk, 0, &mut nobody(), &x), ["one"]);
}
