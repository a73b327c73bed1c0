//! A change feed at one server: how far it goes, what it says of what it replaced, and what it does not keep.

use crate::alone::Alone;
use crate::common::{Desk, START_MS, key, open_keeping, server};
use rheostat_clock::{DcId, Timestamp};
use rheostat_core::dial::{AsOf, Dial};
use rheostat_core::export::Kind;
use rheostat_core::failure::Failure;
use rheostat_core::feed::{Change, Conflict, FeedAnswer, FeedCall, Position};
use rheostat_core::ids::{Place, ServerId};
use rheostat_core::operation::Operation;
use rheostat_core::outcome::Outcome;
use rheostat_core::replica::Execution;
use rheostat_core::session::Session;
use rheostat_core::store::Store;
use rheostat_core::version::{Item, Key, VersionId};
use rheostat_protocols::eventual::Eventual;
use smallvec::smallvec;

const LINKED: [&str; 7] = ["eventual", "gentlerain", "causal", "cops", "hybrid", "adaptive", "quorum"];

/// Data centers of one partition that keep history.
fn desk(history_ms: u64, protocol: &str, data_centers: u8) -> Desk {
    let mut desk = Desk::new(protocol, "", data_centers, 1);
    for id in desk.servers() {
        let place = Place { server: id, data_centers, partitions: 1, first_partitions: 1, replicas: 1 };
        desk.replicas.insert(id, open_keeping(history_ms, protocol, "", place));
    }
    desk.under_way.clear();
    for id in desk.servers() {
        desk.with(id, |replica, now, out| replica.start(now, out));
    }
    desk.pass(300, |_, _| true);
    desk
}

fn ask(desk: &mut Desk, dc: u8, call: FeedCall) -> Result<FeedAnswer, Failure> {
    let mut session = desk.session();
    match desk.with(server(dc, 0), |replica, now, out| replica.execute(now, Operation::Feed { call }, &mut session, out)) {
        Execution::Done { outcome: Outcome::Feed(answer), .. } => Ok(answer),
        Execution::Done { outcome: Outcome::Failed(failure), .. } => Err(failure),
        other => panic!("{other:?}"),
    }
}

fn changes(after: Option<VersionId>) -> FeedCall {
    FeedCall::Changes { after, keys: b"*"[..].into(), limit: 1_000, bytes: 1 << 20 }
}

/// What is told after `after`, and up to where.
fn told(desk: &mut Desk, dc: u8, after: VersionId) -> (Vec<Change>, VersionId) {
    let (mut all, mut after) = (Vec::new(), after);
    loop {
        match ask(desk, dc, changes(Some(after))) {
            Ok(FeedAnswer::Changes { changes, through, more, .. }) => {
                all.extend(changes);
                after = through;
                if !more {
                    return (all, through);
                }
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Up to where everything is, the beginning of what is kept, and the kind of order.
fn reach(desk: &mut Desk, dc: u8) -> (VersionId, VersionId, Kind) {
    loop {
        match ask(desk, dc, changes(None)) {
            Ok(FeedAnswer::Changes { more: true, .. }) => {}
            Ok(FeedAnswer::Changes { changes, through, from, kind, more: false }) if changes.is_empty() => return (through, from, kind),
            other => panic!("{other:?}"),
        }
    }
}

fn conflicts(desk: &mut Desk, dc: u8, key: &Key) -> Result<Vec<Conflict>, Failure> {
    match ask(desk, dc, FeedCall::Conflicts { key: key.clone() })? {
        FeedAnswer::Conflicts(conflicts) => Ok(conflicts),
        other => panic!("{other:?}"),
    }
}

fn counted(desk: &mut Desk, dc: u8) -> u64 {
    desk.with(server(dc, 0), |replica, now, _| replica.status(now).counters.conflicts)
}

fn put_in(desk: &mut Desk, dc: u8, session: &mut Session, key: &Key, value: &[u8]) -> VersionId {
    let items = smallvec![Item { key: key.clone(), value: Some(value.into()), expires_ms: 0 }];
    match desk.run(dc, session, Operation::Put { items, dial: Dial::default() }) {
        Outcome::Written(version) => version,
        other => panic!("{other:?}"),
    }
}

fn put(desk: &mut Desk, dc: u8, key: &Key, value: &[u8]) -> VersionId {
    let mut session = desk.session();
    put_in(desk, dc, &mut session, key, value)
}

fn names(changes: &[Change]) -> Vec<VersionId> {
    changes.iter().map(|change| change.version).collect()
}

#[test]
fn nothing_is_told_before_everything_that_comes_before_has_arrived() {
    for protocol in LINKED {
        let mut desk = desk(60_000, protocol, 3);
        let (x, y) = (key("x", 0, 1), key("y", 0, 1));
        let (begin, _, kind) = reach(&mut desk, 0);
        assert_eq!(kind, if matches!(protocol, "eventual" | "quorum") { Kind::Clocks } else { Kind::Causal }, "{protocol}");
        // What data center 2 writes first does not arrive; what 1 writes then does.
        let first = put(&mut desk, 2, &x, b"first");
        desk.pass(20, |from, _| from.dc != DcId(2));
        let second = put(&mut desk, 1, &y, b"second");
        let own = put(&mut desk, 0, &y, b"own");
        desk.pass(300, |from, _| from.dc != DcId(2));
        let (early, through) = told(&mut desk, 0, begin);
        assert!(early.is_empty() && through < first, "{protocol}: {early:?} up to {through}");
        desk.pass(500, |_, _| true);
        for dc in 0..3 {
            let (all, through) = told(&mut desk, dc, begin);
            let mut expected = vec![first, second, own];
            expected.sort();
            assert_eq!(names(&all), expected, "{protocol} in data center {dc}");
            assert!(through > own);
            assert_eq!(told(&mut desk, dc, second.max(own)).0, [], "{protocol}");
            assert_eq!(names(&told(&mut desk, dc, expected[0]).0), expected[1..], "{protocol}: from each position on");
        }
        // Nothing is written any more where the feed has been, though the clock goes back.
        let (_, through) = told(&mut desk, 0, begin);
        desk.skew_ms.insert(server(0, 0), -200);
        assert!(put(&mut desk, 0, &x, b"late") > through, "{protocol}");
    }
}

#[test]
fn a_page_is_bounded_and_never_parts_a_write() {
    let mut desk = desk(60_000, "causal", 1);
    let (begin, ..) = reach(&mut desk, 0);
    for round in 0..10_u8 {
        let item = |number: u8| Item { key: vec![number].into(), value: Some(vec![round; 1000].into()), expires_ms: 0 };
        let put = Operation::Put { items: (0..5).map(item).collect(), dial: Dial::default() };
        assert!(matches!(desk.run(0, &mut desk.session(), put), Outcome::Written(_)));
    }
    for (limit, bytes, most) in [(1, 1 << 20, 5), (7, 1 << 20, 10), (1_000, 1, 5), (1_000, 6_000, 10), (0, 0, 5), (u32::MAX, u32::MAX, 50)] {
        let (mut after, mut all, mut pages) = (begin, Vec::new(), 0);
        loop {
            let call = FeedCall::Changes { after: Some(after), keys: b"*"[..].into(), limit, bytes };
            let Ok(FeedAnswer::Changes { changes, through, more, .. }) = ask(&mut desk, 0, call) else { panic!() };
            assert!(changes.len().is_multiple_of(5) && changes.len() <= most, "{limit} {bytes}: {}", changes.len());
            assert!(changes.last().is_none_or(|last| last.version <= through));
            (after, pages) = (through, pages + 1);
            all.extend(changes);
            if !more {
                break;
            }
        }
        assert_eq!(all.len(), 50, "{limit} {bytes}");
        assert!(all.is_sorted_by_key(|change| change.version));
        assert!(pages >= 50 / most);
    }
    let call = FeedCall::Changes { after: Some(begin), keys: b"\x03"[..].into(), limit: 100, bytes: 1 << 20 };
    let Ok(FeedAnswer::Changes { changes, .. }) = ask(&mut desk, 0, call) else { panic!() };
    assert_eq!(changes.len(), 10, "of one key");
}

#[test]
fn the_order_is_found_again_in_the_chains_and_is_made_a_few_keys_at_a_time() {
    let mut desk = desk(600_000, "eventual", 1);
    let (begin, ..) = reach(&mut desk, 0);
    let written: Vec<VersionId> = (0..5_000_u32).map(|number| put(&mut desk, 0, &number.to_le_bytes()[..].into(), b"1")).collect();
    // Nobody has asked for so long that the index is gone.
    desk.pass(61_000, |_, _| true);
    let (mut after, mut all, mut empty) = (begin, Vec::new(), 0);
    while all.len() < written.len() {
        let Ok(FeedAnswer::Changes { changes, through, .. }) = ask(&mut desk, 0, changes(Some(after))) else { panic!() };
        empty += usize::from(changes.is_empty());
        assert!(empty < 100);
        all.extend(changes);
        after = through;
    }
    assert_eq!(names(&all), written);
    assert!(empty >= 2, "5,000 keys are more than one call looks at");
}

#[test]
fn a_position_from_before_the_history_is_too_old_and_one_from_the_future_is_none() {
    for protocol in LINKED {
        let mut desk = desk(500, protocol, 2);
        let x = key("x", 0, 1);
        let (begin, ..) = reach(&mut desk, 0);
        put(&mut desk, 0, &x, b"1");
        desk.pass(2_000, |_, _| true);
        let Ok(FeedAnswer::TooOld { from }) = ask(&mut desk, 0, changes(Some(begin))) else { panic!("{protocol}") };
        assert!(from > begin);
        assert_eq!(told(&mut desk, 0, from).0, [], "{protocol}: what it names can be asked for");
        let future = Position::after(Timestamp::new(desk.now(server(0, 0)).physical_ms + 3_600_000, 0));
        assert!(matches!(ask(&mut desk, 0, changes(Some(future.0))), Err(Failure::Refused(why)) if why.contains("in the future")), "{protocol}");
        // One of a server whose clock is a little ahead waits until there is more.
        let ahead = Position::after(Timestamp::new(desk.now(server(0, 0)).physical_ms + 50, 0)).0;
        assert_eq!(told(&mut desk, 0, ahead), (Vec::new(), ahead), "{protocol}");
        let long = FeedCall::Changes { after: None, keys: vec![b'a'; 1025].into(), limit: 1, bytes: 1 };
        assert!(matches!(ask(&mut desk, 0, long), Err(Failure::Refused(why)) if why.contains("at most 1024")), "{protocol}");
    }
}

#[test]
fn a_position_grows_too_old_by_what_has_gone_and_not_by_itself() {
    let mut desk = desk(500, "causal", 2);
    let x = key("x", 0, 1);
    let (begin, ..) = reach(&mut desk, 0);
    desk.pass(5_000, |_, _| true);
    assert_eq!(told(&mut desk, 0, begin).0, [], "nothing was written, so nothing has gone");
    let first = put(&mut desk, 1, &x, b"1");
    desk.pass(300, |_, _| true);
    assert_eq!(names(&told(&mut desk, 0, begin).0), [first]);
    desk.pass(2_000, |_, _| true);
    assert!(matches!(ask(&mut desk, 0, changes(Some(begin))), Ok(FeedAnswer::TooOld { .. })));
    assert_eq!(told(&mut desk, 0, first).0, [], "whoever has seen what has gone misses nothing");
    // The order is made anew from the chains, of which it is not known what has gone from them.
    desk.pass(61_000, |_, _| true);
    assert!(matches!(ask(&mut desk, 0, changes(Some(first))), Ok(FeedAnswer::TooOld { .. })));
}

/// Whoever goes on with a store, after a restart or as the next leader, can have a clock that is behind the one by which versions were let go.
#[test]
fn what_a_clock_ahead_has_let_go_is_not_taken_for_kept_by_one_behind() {
    let place = Place { server: server(0, 0), data_centers: 1, partitions: 1, first_partitions: 1, replicas: 1 };
    let mut first = Alone::<Eventual>::keeping(100, place);
    let x = key("x", 0, 1);
    first.pass(10);
    let begin = Timestamp::new(START_MS + first.now_us / 1000, 0);
    first.pass(10);
    for value in ["1", "2"] {
        first.put(&mut first.session(), &x, value);
        first.pass(5);
    }
    first.pass(400);
    assert_eq!(first.server.store_mut().chain(&x).len(), 1, "what was replaced has gone");
    // By its own clock, all of that was within the history.
    let mut second = first.restarted_behind(350);
    let call = changes(Some(Position::after(begin).0));
    let from = match second.run(&mut second.session(), Operation::Feed { call }) {
        Outcome::Feed(FeedAnswer::TooOld { from }) => from,
        other => panic!("{other:?}"),
    };
    let between = Dial { as_of: AsOf::new(begin.plus_millis(12)), ..Dial::default() };
    let read = second.run(&mut second.session(), Operation::Get { key: x.clone(), dial: between });
    assert!(matches!(&read, Outcome::Failed(Failure::Refused(why)) if why.contains("before what is kept")), "{read:?}");
    // What follows is told.
    second.put(&mut second.session(), &x, "3");
    let told = loop {
        let call = changes(Some(from));
        match second.run(&mut second.session(), Operation::Feed { call }) {
            Outcome::Feed(FeedAnswer::Changes { changes, more: false, .. }) => break changes,
            Outcome::Feed(FeedAnswer::Changes { more: true, .. }) => {}
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(told.len(), 1, "{told:?}");
}

#[test]
fn a_feed_that_begins_with_the_oldest_has_time_to_ask_for_what_follows() {
    let mut desk = desk(2_000, "eventual", 2);
    let x = key("x", 0, 1);
    let mut written = Vec::new();
    let mut write = |desk: &mut Desk, rounds: u32| {
        for _ in 0..rounds {
            written.push(put(desk, 0, &x, b"1"));
            desk.pass(10, |_, _| true);
        }
        written.clone()
    };
    let (early, ..) = reach(&mut desk, 0);
    write(&mut desk, 400);
    let (_, oldest, _) = reach(&mut desk, 0);
    let Ok(FeedAnswer::TooOld { from }) = ask(&mut desk, 0, changes(Some(early))) else { panic!() };
    assert_eq!(from, oldest, "where the error says that a feed can begin again");
    let all = write(&mut desk, 10);
    desk.pass(50, |_, _| true);
    let (now, (told, _)) = (desk.now(server(0, 0)).physical_ms, told(&mut desk, 0, oldest));
    assert_eq!(names(&told), all[all.len() - told.len()..]);
    let reaches_ms = now - told[0].version.written.millis();
    assert!((1_800..=2_200).contains(&reaches_ms), "{reaches_ms} ms of a history of 2,000");
}

#[test]
fn a_feed_begins_when_every_data_center_is_heard() {
    let mut desk = Desk::new("causal", "", 3, 1);
    for id in desk.servers() {
        let place = Place { server: id, data_centers: 3, partitions: 1, first_partitions: 1, replicas: 1 };
        desk.replicas.insert(id, open_keeping(500, "causal", "", place));
    }
    desk.under_way.clear();
    for id in desk.servers() {
        desk.with(id, |replica, now, out| replica.start(now, out));
    }
    desk.pass(300, |from, _| from.dc != DcId(2));
    desk.under_way.clear();
    assert!(matches!(ask(&mut desk, 0, changes(None)), Err(Failure::Busy(why)) if why.contains("not at all yet")));
    desk.pass(2_000, |_, _| true);
    let (begin, ..) = reach(&mut desk, 0);
    assert!(desk.now(server(0, 0)).physical_ms - begin.written.millis() < 400, "not where the history begins");
    // One is not heard for longer than that: what was written meanwhile cannot be told in its place, and goes.
    put(&mut desk, 1, &key("x", 0, 1), b"1");
    desk.pass(2_000, |from, _| from.dc != DcId(2));
    assert!(matches!(ask(&mut desk, 0, changes(Some(begin))), Ok(FeedAnswer::TooOld { .. })));
    assert!(matches!(ask(&mut desk, 0, changes(None)), Err(Failure::Busy(_))));
    desk.pass(2_000, |_, _| true);
    let (again, ..) = reach(&mut desk, 0);
    assert_eq!(told(&mut desk, 0, again).0, []);
}

#[test]
fn what_a_running_server_is_sent_in_parts_ends_its_feeds() {
    let mut desk = desk(500, "eventual", 3);
    let x = key("x", 0, 1);
    let (begin, ..) = reach(&mut desk, 0);
    // Data center 2 alone has what 1 wrote, and has let go of what was replaced, when 1 loses its disk.
    put(&mut desk, 1, &x, b"1");
    put(&mut desk, 1, &x, b"2");
    desk.pass(2_000, |from, to| (from.dc, to.dc) != (DcId(1), DcId(0)));
    put(&mut desk, 1, &x, b"3");
    desk.pass(300, |from, to| (from.dc, to.dc) != (DcId(1), DcId(0)));
    desk.under_way.clear();
    let place = Place { server: server(1, 0), data_centers: 3, partitions: 1, first_partitions: 1, replicas: 1 };
    let refilled = crate::common::begin("eventual", "", place, |config| (config.refill, config.history_ms) = (true, 500));
    desk.replicas.insert(server(1, 0), refilled);
    desk.with(server(1, 0), |replica, now, out| replica.start(now, out));
    for _ in 0..5_000 {
        desk.pass(1, |_, _| true);
        if let Ok(FeedAnswer::Changes { changes, .. }) = ask(&mut desk, 0, changes(Some(begin))) {
            assert_eq!(changes, [], "what was replaced is missing");
        }
    }
    assert!(matches!(ask(&mut desk, 0, changes(Some(begin))), Ok(FeedAnswer::TooOld { .. })));
    let (now, ..) = reach(&mut desk, 0);
    let next = put(&mut desk, 1, &x, b"4");
    desk.pass(300, |_, _| true);
    assert_eq!(names(&told(&mut desk, 0, now).0), [next]);
}

#[test]
fn a_server_that_is_filled_again_says_so_and_begins_anew() {
    let mut desk = desk(60_000, "causal", 2);
    let x = key("x", 0, 1);
    let (begin, ..) = reach(&mut desk, 0);
    put(&mut desk, 1, &x, b"1");
    desk.pass(300, |_, _| true);
    let place = Place { server: server(0, 0), data_centers: 2, partitions: 1, first_partitions: 1, replicas: 1 };
    let refilled = crate::common::begin("causal", "", place, |config| (config.refill, config.history_ms) = (true, 60_000));
    desk.replicas.insert(server(0, 0), refilled);
    desk.with(server(0, 0), |replica, now, out| replica.start(now, out));
    assert!(matches!(ask(&mut desk, 0, changes(Some(begin))), Err(Failure::Busy(_))));
    desk.pass(5_000, |_, _| true);
    assert!(matches!(ask(&mut desk, 0, changes(Some(begin))), Ok(FeedAnswer::TooOld { .. })), "it does not know what it had");
    let (now, ..) = reach(&mut desk, 0);
    let next = put(&mut desk, 1, &x, b"2");
    desk.pass(300, |_, _| true);
    assert_eq!(names(&told(&mut desk, 0, now).0), [next]);
}

#[test]
fn where_versions_tell_it_what_was_replaced_unread_is_known_everywhere() {
    for protocol in LINKED {
        let mut desk = desk(60_000, protocol, 3);
        let x = key("x", 0, 1);
        let (begin, ..) = reach(&mut desk, 0);
        let lost = put(&mut desk, 0, &x, b"lost");
        desk.pass(1, |_, _| false);
        let won = put(&mut desk, 1, &x, b"won");
        desk.pass(500, |_, _| true);
        // Whoever has read it replaces what he has seen.
        let mut reader = desk.session();
        assert!(matches!(desk.run(2, &mut reader, Operation::Get { key: x.clone(), dial: Dial::default() }), Outcome::Read(..)), "{protocol}");
        let seen = put_in(&mut desk, 2, &mut reader, &x, b"seen");
        desk.pass(500, |_, _| true);
        assert!(lost < won && won < seen);
        for dc in 0..3 {
            let (all, _) = told(&mut desk, dc, begin);
            assert_eq!(names(&all), [lost, won, seen], "{protocol}: losers are told, too");
            let over: Vec<Option<VersionId>> = all.iter().map(|change| change.over).collect();
            let found = conflicts(&mut desk, dc, &x);
            if matches!(protocol, "causal" | "cops" | "hybrid") {
                assert_eq!(over, [None, Some(lost), None], "{protocol} in {dc}");
                let found = found.unwrap();
                assert_eq!(found.len(), 1, "{protocol} in {dc}: {found:?}");
                assert_eq!((found[0].winner.version, found[0].loser.version), (won, lost));
                assert_eq!((found[0].winner.value.as_deref(), found[0].loser.value.as_deref()), (Some(&b"won"[..]), Some(&b"lost"[..])));
                assert_eq!(counted(&mut desk, dc), 1, "{protocol} in {dc}");
            } else {
                assert_eq!(over, [None, None, None], "{protocol}: nothing is guessed");
                assert!(matches!(&found, Err(Failure::Refused(why)) if why.contains("do not tell")), "{protocol}: {found:?}");
                assert_eq!(counted(&mut desk, dc), 0, "{protocol}");
            }
        }
    }
}

/// In one data center a later write takes the place of an earlier one, whoever has seen what.
#[test]
fn what_one_data_center_writes_twice_is_no_conflict() {
    let mut desk = desk(60_000, "causal", 2);
    let x = key("x", 0, 1);
    put(&mut desk, 0, &x, b"1");
    put(&mut desk, 0, &x, b"2");
    desk.pass(500, |_, _| true);
    for dc in 0..2 {
        assert_eq!((conflicts(&mut desk, dc, &x), counted(&mut desk, dc)), (Ok(Vec::new()), 0));
    }
}

#[test]
fn who_has_no_feed_says_why() {
    for protocol in ["session", "strong", "staged"] {
        let mut desk = desk(60_000, protocol, 1);
        desk.pass(2_000, |_, _| true);
        assert!(matches!(ask(&mut desk, 0, changes(None)), Err(Failure::Refused(why)) if why.contains("has no change feed")), "{protocol}");
        assert!(matches!(conflicts(&mut desk, 0, &key("x", 0, 1)), Err(Failure::Refused(_))), "{protocol}");
    }
    let mut desk = desk(0, "causal", 2);
    assert!(matches!(ask(&mut desk, 0, changes(None)), Err(Failure::Refused(why)) if why.contains("history_ms")));
    assert!(matches!(conflicts(&mut desk, 0, &key("x", 0, 1)), Err(Failure::Refused(why)) if why.contains("history_ms")));
    // They are counted all the same.
    let x = key("x", 0, 1);
    put(&mut desk, 0, &x, b"1");
    desk.pass(1, |_, _| false);
    put(&mut desk, 1, &x, b"2");
    desk.pass(500, |_, _| true);
    assert_eq!((counted(&mut desk, 0), counted(&mut desk, 1)), (1, 1));
}

/// A data center is given up while one of the others lacks something of what it wrote: that comes yet, by way of who has it.
#[test]
fn what_others_have_of_a_lost_data_center_is_told_before_what_was_written_on_top_of_it() {
    for protocol in LINKED {
        let mut desk = desk(60_000, protocol, 3);
        let (x, y) = (key("x", 0, 1), key("y", 0, 1));
        let (begin, ..) = reach(&mut desk, 0);
        let cause = put(&mut desk, 2, &x, b"cause");
        let apart =
            |from: ServerId, to: ServerId| from.dc != DcId(2) && to.dc != DcId(2) || from.dc.max(to.dc) == DcId(2) && from.dc.min(to.dc) == DcId(1);
        desk.pass(300, apart);
        let mut session = desk.session();
        assert!(matches!(desk.run(1, &mut session, Operation::Get { key: x.clone(), dial: Dial::default() }), Outcome::Read(..)), "{protocol}");
        let effect = put_in(&mut desk, 1, &mut session, &y, b"effect");
        // An operator says that it never comes back. Where its stream ends is not known yet.
        desk.under_way.retain(|(from, to, _)| from.dc != DcId(2) && to.dc != DcId(2));
        let alive = |from: ServerId, to: ServerId| from.dc != DcId(2) && to.dc != DcId(2);
        for dc in [0, 1] {
            desk.with(server(dc, 0), |replica, now, out| replica.lose(now, DcId(2), None, out));
        }
        let (mut all, at) = told(&mut desk, 0, begin);
        let links = desk.replicas[&server(1, 0)].status(desk.now(server(1, 0))).links;
        let end = links.into_iter().find(|link| link.dc == DcId(2)).map(|link| link.received_durable);
        for dc in [0, 1] {
            desk.with(server(dc, 0), |replica, now, out| replica.lose(now, DcId(2), end, out));
        }
        desk.pass(12_000, alive);
        all.extend(told(&mut desk, 0, at).0);
        let place = |version: VersionId| names(&all).iter().position(|one| *one == version);
        assert!(place(cause).is_some() && place(cause) < place(effect), "{protocol}: {cause} and {effect} in {all:?}");
    }
}
