//! Reads as of a time in the past.

use crate::common::{Desk, START_MS, begin, key, open_keeping, server};
use rheostat_clock::{DcId, Timestamp};
use rheostat_core::dial::{AsOf, Dial};
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
