//! Each thing that [`Counting::settle_all`] would do is done by the next call, where no link to another data center and no message brings it about.

use super::{Counting, OWN, Setup, keys};
use crate::options::{Options, Rebalance};
use rheostat_clock::DcId;
use rheostat_core::counter::{CounterCall, NewCounter, Scope};
use rheostat_core::dial::Dial;
use rheostat_core::failure::Failure;
use rheostat_core::ids::{KeyspaceId, Now, OpId, PartitionId, Place, ServerId};
use rheostat_core::operation::Operation;
use rheostat_core::outcome::Outcome;
use rheostat_core::protocol::Protocol;
use rheostat_core::replica::{Done, Execution, Outbox, PartitionServer, ReplicaConfig};
use rheostat_core::store::{Durability, Position, Recovered, Store};
use rheostat_core::version::Key;
use rheostat_protocols::eventual::{Eventual, EventualOptions};
use rheostat_stack::{Driver, Inner};
use rheostat_storage::MemoryStore;

type Replica = Inner<Eventual>;

/// The one server of the only data center: nothing ever leaves it. It has the counter `n`, and everything is on disk.
fn alone() -> Counting {
    let (server, out) = alone_with::<Eventual>(EventualOptions::default());
    assert!(server.is_settled() && out.is_empty(), "{out:?}");
    server
}

/// As [`alone`], in protocol `P`.
pub(super) fn alone_with<P: Protocol>(options: P::Options) -> (Counting, Outbox) {
    let place = Place { server: ServerId::new(DcId(0), PartitionId(0)), data_centers: 1, partitions: 1, first_partitions: 1, replicas: 1 };
    let config = ReplicaConfig { durability: Durability::Always, ..ReplicaConfig::new(place, KeyspaceId(0)) };
    let setup = Setup::of::<P>(&config, &options, Options { rebalance: Rebalance::Off, ..Options::default() });
    let store = Driver::Memory(Box::new(MemoryStore::with_simulated_disk())).into();
    let replica = Inner::<P>::new(config, &options, store, Recovered::default()).unwrap();
    let (mut server, mut out) = (Counting::new(replica, setup).unwrap(), Outbox::default());
    server.start(at(0), &mut out);
    let counter = NewCounter { lower: Some(0), initial: 10, ..NewCounter::default() };
    let call = CounterCall::Create { key: n(), counter };
    let made = server.execute(at(0), Operation::Counter { call, dial: Dial::default() }, &mut server.new_session(), &mut out);
    assert!(matches!(made, Execution::Done { outcome: Outcome::Counter(_), .. }), "{made:?}");
    let call = CounterCall::Add { changes: [(n(), -1)].into_iter().collect(), scope: Scope::Local, name: None };
    let added = server.execute(at(0), Operation::Counter { call, dial: Dial::default() }, &mut server.new_session(), &mut out);
    assert!(matches!(added, Execution::Done { outcome: Outcome::Counted(..), .. }), "{added:?}");
    flush(&mut server, &mut out);
    (server, out)
}

pub(super) fn n() -> Key {
    b"n"[..].into()
}

pub(super) fn at(ms: u64) -> Now {
    Now { monotonic_us: 1_000_000 + ms * 1000, physical_ms: 1_700_000_000_000 + ms }
}

pub(super) fn flush(server: &mut Counting, out: &mut Outbox) {
    server.write_through();
    while let Some(job) = server.poll_flush(at(0)) {
        server.end_flush(at(0), job.run(), out);
    }
}

fn done(server: &Counting, op: OpId) -> Done {
    Done { op, outcome: Outcome::Failed(Failure::Busy("enough".into())), session: server.new_session() }
}

fn is_stored(server: &mut Counting, key: &Key) -> bool {
    server.newest(at(1), key).is_ok_and(|(read, _)| read.value.is_some())
}

#[test]
fn an_answer_that_waits_for_the_disk_leaves_with_the_flush() {
    let (mut server, mut out) = (alone(), Outbox::default());
    server.touched.insert(n());
    server.tick(at(1), &mut out);
    let end = server.inner::<Replica>().store().end();
    assert!(end > server.durable());
    let answer = done(&server, OpId(OWN | 99));
    server.held.push_back((end, answer));
    flush(&mut server, &mut out);
    assert_eq!(out.done.iter().map(|done| done.op).collect::<Vec<_>>(), [OpId(OWN | 99)]);
}

/// What has changed of a counter in memory goes with it: a write without a row in it could be read neither by other data centers nor from the log.
#[test]
fn of_a_counter_that_is_not_ready_any_more_nothing_is_written() {
    let (mut server, mut out) = (alone(), Outbox::default());
    let before = server.inner::<Replica>().store().end();
    server.touched.insert(n());
    server.let_go(&n());
    assert!(server.is_settled());
    server.tick(at(1), &mut out);
    assert_eq!(server.inner::<Replica>().store().end(), before);
}

#[test]
fn a_row_that_has_changed_on_nobodys_behalf_is_written() {
    let (mut server, mut out) = (alone(), Outbox::default());
    let before = server.inner::<Replica>().store().end();
    server.touched.insert(n());
    server.tick(at(1), &mut out);
    assert!(server.touched.is_empty() && server.inner::<Replica>().store().end() > before);
}

#[test]
fn greetings_that_could_not_be_written_are_with_the_next_tick() {
    let (mut server, mut out) = (alone(), Outbox::default());
    let hello = keys::hello(DcId(0));
    assert!(!is_stored(&mut server, &hello));
    server.greetings_failed = true;
    server.tick(at(1), &mut out);
    assert!(is_stored(&mut server, &hello));
}

#[test]
fn what_a_counter_that_is_gone_has_left_goes() {
    let (mut server, mut out) = (alone(), Outbox::default());
    let row = keys::state(b"n", DcId(0));
    assert!(is_stored(&mut server, &row));
    server.forget(at(1), &n());
    assert!(!server.next.is_empty() && server.flight.is_none());
    server.tick(at(1), &mut out);
    assert!(server.next.is_empty() && !is_stored(&mut server, &row));
}

#[test]
fn an_operation_that_is_answered_is_not_ended_again() {
    let (mut server, mut out) = (alone(), Outbox::default());
    let op = OpId(OWN | 99);
    server.bounded.insert(op, (at(5).monotonic_us, server.new_session()));
    let answer = done(&server, op);
    server.hold(Position(0), answer, &mut out);
    server.settle(at(1), &mut out);
    assert!(server.bounded.is_empty());
    server.tick(at(6), &mut out);
    assert_eq!(out.done.len(), 1);
}
