//! Reads as of a time in the past.

use crate::common::{Desk, START_MS, key, open_keeping, server};
use rheostat_clock::Timestamp;
use rheostat_core::ids::Place;
use rheostat_core::operation::{AsOf, Dial, Failure, Operation, Outcome};
use smallvec::smallvec;

/// What is read is done with: no write that comes later belongs there, though it comes in the same millisecond, or after the clock has gone back.
#[test]
fn nothing_is_written_any_more_where_the_past_was_read() {
    for protocol in ["eventual", "gentlerain", "causal", "cops", "hybrid", "adaptive", "quorum"] {
        let mut desk = Desk::new(protocol, "", 1, 1);
        let (here, x) = (server(0, 0), key("x", 0, 1));
        let place = Place { server: here, data_centers: 1, partitions: 1, replicas: 1 };
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
    let place = Place { server: server(0, 0), data_centers: 1, partitions: 2, replicas: 1 };
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
