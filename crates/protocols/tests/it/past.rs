//! Reads as of a time in the past.

use crate::common::{Desk, START_MS, begin, key, open_keeping, server};
use rheostat_clock::{DcId, Timestamp};
use rheostat_core::dial::{AsOf, Dial, Level};
use rheostat_core::failure::Failure;
use rheostat_core::ids::{Place, ServerId};
use rheostat_core::operation::Operation;
use rheostat_core::outcome::Outcome;
use rheostat_core::store::Checkpoints;
use smallvec::smallvec;

/// What is read is done with: no write that comes later belongs there, though it comes in the same millisecond, or after the clock has gone back.
#[test]
fn nothing_is_written_any_more_where_the_past_was_read() {
    for protocol in ["eventual", "gentlerain", "causal", "cops", "hybrid", "adaptive", "quorum"] {
        let mut desk = Desk::new(protocol, "", 1, 1);
        let (here, x) = (server(0, 0), key("x", 0, 1));
        let place = Place { server: here, data_centers: 1, partitions: 1, first_partitions: 1, replicas: 1 };
        desk.replicas.insert(here, open_keeping(60_000, protocol, "", place));
        desk.with(here, |replica, now, out| replica.start(now, out));
        desk.pass(300, |_, _| true);
        let at = Timestamp::new(desk.now(here).physical_ms, u16::MAX);
        let get = |at| Operation::Get { key: x.clone(), dial: Dial { as_of: AsOf::new(at), ..Dial::default() } };
        let absent = |outcome: Outcome| assert!(matches!(&outcome, Outcome::Read(read, _) if read.version.is_none()), "{protocol}: {outcome:?}");
        absent(desk.run(0, &mut desk.session(), get(at)));
        desk.skew_ms.insert(here, -200);
        let item = rheostat_core::version::Item { key: x.clone(), value: Some(b"1"[..].into()), expires_ms: 0 };
        let put = Operation::Put { items: smallvec![item], dial: Dial::default() };
        let written = match desk.run(0, &mut desk.session(), put) {
            Outcome::Written(version) => version,
            other => panic!("{protocol}: {other:?}"),
        };
        assert!(written.written > at, "{protocol}: {written:?}");
        desk.skew_ms.insert(here, 0);
        desk.pass(1, |_, _| true);
        absent(desk.run(0, &mut desk.session(), get(at)));
        // Before its first start, a server does not know what there was.
        let early = desk.run(0, &mut desk.session(), get(Timestamp::new(START_MS, 0)));
        assert!(matches!(&early, Outcome::Failed(Failure::Refused(why)) if why.contains("before what is kept")), "{protocol}: {early:?}");
    }
}

/// A read of the past is one server's: it is refused as a whole if any of its keys is another one's.
#[test]
fn a_read_of_the_past_stays_in_its_partition() {
    let mut desk = Desk::new("causal", "", 1, 2);
    let (x, y, z) = (key("x", 0, 2), key("y", 1, 2), key("z", 0, 2));
    let place = Place { server: server(0, 0), data_centers: 1, partitions: 2, first_partitions: 2, replicas: 1 };
    desk.replicas.insert(server(0, 0), open_keeping(60_000, "causal", "", place));
    desk.with(server(0, 0), |replica, now, out| replica.start(now, out));
    desk.pass(300, |_, _| true);
    let dial = Dial { as_of: AsOf::new(Timestamp::new(desk.now(server(0, 0)).physical_ms, 0)), ..Dial::default() };
    let read = |keys: &[&rheostat_core::version::Key]| Operation::ReadTransaction { keys: keys.iter().map(|key| (*key).clone()).collect(), dial };
    let one = desk.run(0, &mut desk.session(), read(&[&x, &z]));
    assert!(matches!(&one, Outcome::Many(reads, _) if reads.len() == 2), "{one:?}");
    let two = desk.run(0, &mut desk.session(), read(&[&x, &y]));
    assert!(matches!(&two, Outcome::Failed(Failure::Refused(why)) if why.contains("several partitions")), "{two:?}");
}

/// A member of a group that was away for long is given the newest versions. Of what these have replaced it knows nothing, and says so.
#[test]
fn a_member_that_was_given_pages_has_no_history_of_before() {
    const OPTIONS: &str = "heartbeat_ms = 5\nelection_ms = 30\nquiet_ms = 50\nkeep_entries = 4";
    for protocol in ["session", "strong"] {
        let mut desk = Desk::with_replicas(protocol, OPTIONS, 1, 1, 3);
        desk.under_way.clear();
        for id in desk.servers() {
            let place = Place { server: id, data_centers: 1, partitions: 1, first_partitions: 1, replicas: 3 };
            desk.replicas.insert(id, open_keeping(60_000, protocol, OPTIONS, place));
            desk.with(id, |replica, now, out| replica.start(now, out));
        }
        desk.pass(300, |_, _| true);
        let leads = desk.servers().into_iter().find(|id| desk.gauge(*id, "leader") == 1.0).unwrap();
        let away = desk.servers().into_iter().find(|id| *id != leads).unwrap();
        let without = move |from: ServerId, to: ServerId| from != away && to != away;
        let x = key("x", 0, 1);
        let put = |desk: &mut Desk, value: &str, wanted: &dyn Fn(ServerId, ServerId) -> bool| {
            let item = rheostat_core::version::Item { key: x.clone(), value: Some(value.as_bytes().into()), expires_ms: 0 };
            let put = Operation::Put { items: smallvec![item], dial: Dial::default() };
            let mut session = desk.session();
            let outcome = desk.ask(leads, &mut session, put, 200, wanted);
            assert!(matches!(outcome, Some(Outcome::Written(_))), "{protocol}: {outcome:?}");
        };
        put(&mut desk, "early", &|_, _| true);
        desk.pass(100, |_, _| true);
        for n in 0..20 {
            put(&mut desk, &n.to_string(), &without);
        }
        desk.pass(100, without);
        let then = Timestamp::new(desk.now(leads).physical_ms, 0);
        desk.pass(100, without);
        put(&mut desk, "late", &without);
        desk.under_way.clear();
        let get = |as_of| Operation::Get { key: x.clone(), dial: Dial { as_of, ..Dial::at(Level::Eventual) } };
        let ask = |desk: &mut Desk, at: ServerId, as_of| {
            let mut session = desk.session();
            desk.ask(at, &mut session, get(as_of), 0, |_, _| false).expect("nothing is waited for")
        };
        let value = |outcome: Outcome| match outcome {
            Outcome::Read(read, _) => crate::common::text(read),
            other => panic!("{protocol}: {other:?}"),
        };
        desk.pass(600, |_, _| true);
        assert_eq!(value(ask(&mut desk, away, None)).as_deref(), Some("late"), "{protocol}: it has caught up");
        assert_eq!(value(ask(&mut desk, leads, AsOf::new(then))).as_deref(), Some("19"), "{protocol}");
        let past = ask(&mut desk, away, AsOf::new(then));
        assert!(matches!(&past, Outcome::Failed(Failure::Refused(why)) if why.contains("before what is kept")), "{protocol}: {past:?}");
        // From then on it has all.
        desk.pass(100, |_, _| true);
        let now = Timestamp::new(desk.now(away).physical_ms, 0);
        desk.pass(100, |_, _| true);
        put(&mut desk, "later", &|_, _| true);
        desk.pass(100, |_, _| true);
        assert_eq!(value(ask(&mut desk, away, AsOf::new(now))).as_deref(), Some("late"), "{protocol}");
    }
}

/// A server that goes on running and is sent another data center's updates in parts lacks what newer versions had replaced by then: it has no checkpoint of before any more.
#[test]
fn what_is_sent_in_parts_ends_the_checkpoints_of_a_running_server() {
    let mut desk = Desk::new("eventual", "", 3, 1);
    let open = |id: ServerId, refill: bool| {
        let place = Place { server: id, data_centers: 3, partitions: 1, first_partitions: 1, replicas: 1 };
        let checkpoints = Checkpoints::new(1_000, 20);
        begin("eventual", "", place, |config| (config.history_ms, config.checkpoints, config.refill) = (500, checkpoints, refill))
    };
    desk.under_way.clear();
    for id in desk.servers() {
        desk.replicas.insert(id, open(id, false));
        desk.with(id, |replica, now, out| replica.start(now, out));
    }
    desk.pass(3_000, |_, _| true);
    // Data center 2 alone has what 1 wrote when 1 loses its disk.
    let without_one = |from: ServerId, to: ServerId| (from.dc, to.dc) != (DcId(1), DcId(0));
    let x = key("x", 0, 1);
    for (value, pass_ms) in [("1", 1_000), ("2", 2_000), ("3", 300)] {
        desk.put(1, &mut desk.session(), &x, value);
        desk.pass(pass_ms, without_one);
    }
    let checkpoint_ms = (desk.now(server(0, 0)).physical_ms - 1_000) / 1_000 * 1_000;
    let get = Operation::Get { key: x, dial: Dial { as_of: AsOf::new(Timestamp::new(checkpoint_ms, 0)), ..Dial::default() } };
    let before = desk.run(0, &mut desk.session(), get.clone());
    assert!(matches!(before, Outcome::Read(..)), "it has lost nothing yet: {before:?}");
    desk.under_way.clear();
    desk.replicas.insert(server(1, 0), open(server(1, 0), true));
    desk.with(server(1, 0), |replica, now, out| replica.start(now, out));
    desk.pass(5_000, |_, _| true);
    let after = desk.run(0, &mut desk.session(), get);
    assert!(matches!(&after, Outcome::Failed(Failure::Refused(why)) if why.contains("before what is kept")), "{after:?}");
}
