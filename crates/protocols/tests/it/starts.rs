//! A start that finds what it cannot read: another version's, or another protocol's.

use rheostat_core::ids::{KeyspaceId, Place};
use rheostat_core::protocol::{Protocol, Start};
use rheostat_core::replica::ReplicaConfig;
use rheostat_core::store::Recovered;
use rheostat_protocols::registry;
use rheostat_stack::{Driver, Inner};

/// What the protocol says of a start, and what comes of a replica with its entries.
struct Begin(Start);

impl registry::Visitor for Begin {
    type Output = (Result<(), String>, Result<(), String>);

    fn visit<P: Protocol>(self) -> Self::Output {
        let place = Place { server: crate::common::server(0, 0), data_centers: 3, partitions: 1, first_partitions: 1, replicas: 1 };
        let found = Recovered { entries: self.0.entries.clone(), ..Recovered::default() };
        let made = Inner::<P>::new(ReplicaConfig::new(place, KeyspaceId(0)), &P::Options::default(), Driver::Memory(Box::default()).into(), found);
        (P::readable(&self.0), made.map(drop))
    }
}

#[test]
fn what_cannot_be_read_is_not_taken_for_nothing() {
    for protocol in registry::names() {
        let begin = |start: Start| registry::visit(protocol, Begin(start)).unwrap();
        assert_eq!(begin(Start::default()), (Ok(()), Ok(())), "{protocol}");
        let keeps_nothing = protocol == "eventual";
        let (state, _) = begin(Start { state: Some(vec![0xff; 3]), ..Start::default() });
        assert_eq!(state.as_ref().is_err_and(|why| why.contains("cannot be read by this version")), !keeps_nothing, "{protocol}: {state:?}");
        let has_a_log = ["session", "strong", "staged"].contains(&protocol);
        let entries = vec![(1, vec![0xff; 3])];
        let (log, made) = begin(Start { entries, ..Start::default() });
        assert_eq!(log.as_ref().is_err_and(|why| why.contains("entry 1 of")), has_a_log, "{protocol}: {log:?}");
        assert_eq!(made.is_err(), has_a_log, "{protocol}: no server is made: {made:?}");
    }
}
