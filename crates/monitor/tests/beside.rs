//! What a driver does beside a server.

use rheostat_clock::{DcId, Epsilon, Timestamp};
use rheostat_core::ids::{KeyspaceId, Now, PartitionId, Place, ServerId};
use rheostat_core::replica::ReplicaConfig;
use rheostat_core::store::Recovered;
use rheostat_monitor::beside;
use rheostat_monitor::detector::Detector;
use rheostat_monitor::predicate::{Definition, Predicate, Predicates, Target};
use rheostat_protocols::eventual::Eventual;
use rheostat_stack::{Driver, Inner};
use std::sync::Arc;

fn home(_: &Target) -> u16 {
    7
}

/// Counting the keys of a sum goes on for a bounded time, also where there are hardly any keys: other operations wait for it.
#[test]
fn keys_are_counted_some_slots_at_a_time() {
    let place = Place { server: ServerId::new(DcId(0), PartitionId(0)), data_centers: 1, partitions: 1, first_partitions: 1, replicas: 1 };
    let config = ReplicaConfig::new(place, KeyspaceId(0));
    let mut server = Inner::<Eventual>::new(config, &Default::default(), Driver::Memory(Box::default()).into(), Recovered::default()).unwrap();
    let expression = "sum(stock:*) >= 0".to_owned();
    let definition = Definition { name: "p".into(), keyspace: "k".into(), expression, infer: false, everywhere: false };
    let predicates = Arc::new(Predicates::new([Arc::new(Predicate::new(definition).unwrap())]));
    let now = Now { monotonic_us: 1_000_000, physical_ms: 1_700_000_000_000 };
    let time = Timestamp::new(now.physical_ms, 0);
    let mut detector = Detector::new(KeyspaceId(0), place, Epsilon::Millis(10), time);
    detector.watch(now.monotonic_us, time, predicates, &home, |_| Vec::new());
    let mut rounds = 0;
    while detector.counting().is_some() {
        beside::count(&mut detector, &mut server, place.server, place.partitions, now, &home);
        rounds += 1;
        assert!(rounds < 100, "it comes to an end");
    }
    assert!(rounds >= 4, "all slots were looked at in {rounds} rounds");
}
