//! What the owner remembers of a counter.

use super::settled::{alone_with, at, flush, n};
use rheostat_core::counter::{CounterCall, Scope};
use rheostat_core::dial::Dial;
use rheostat_core::operation::Operation;
use rheostat_core::outcome::Outcome;
use rheostat_core::replica::{Execution, PartitionServer};
use rheostat_protocols::cops::{Cops, CopsOptions};

/// Not all that any session has ever seen that changed it, though `cops` lists that one by one.
#[test]
fn a_counter_rests_on_what_its_last_write_rests_on() {
    let (mut server, mut out) = alone_with::<Cops>(CopsOptions { collect_ms: 100, ..CopsOptions::default() });
    for update in 1..=5 {
        for round in 0..100 {
            server.tick(at(update * 1000 + round * 10), &mut out);
            flush(&mut server, &mut out);
        }
        let (mut session, call) =
            (server.new_session(), CounterCall::Add { changes: [(n(), -1)].into_iter().collect(), scope: Scope::Local, name: None });
        let added = server.execute(at(update * 1000 + 999), Operation::Counter { call, dial: Dial::default() }, &mut session, &mut out);
        assert!(matches!(added, Execution::Done { outcome: Outcome::Counted(..), .. }), "{added:?}");
        assert_eq!(server.cells.get(&n()).unwrap().past.to_bytes(), session.to_bytes());
    }
}
