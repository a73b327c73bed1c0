//! What a tapped partition server tells of writes, its own and others'.

use rheostat_core::DcId;
use rheostat_core::counter::{CounterCall, NewCounter};
use rheostat_core::dial::Dial;
use rheostat_core::ids::{KeyspaceId, Now, PartitionId, Place, ServerId};
use rheostat_core::operation::Operation;
use rheostat_core::outcome::Outcome;
use rheostat_core::replica::{Execution, Outbox, ReplicaConfig, Wanted};
use rheostat_core::version::{Item, Key};
use rheostat_counters::Options;
use rheostat_stack::{Backing, Plan, Stack};
use std::sync::Arc;

fn server(dc: u8) -> Box<dyn Stack> {
    server_of("eventual", dc)
}

fn server_of(protocol: &str, dc: u8) -> Box<dyn Stack> {
    let place = Place { server: ServerId::new(DcId(dc), PartitionId(0)), data_centers: 2, partitions: 1, first_partitions: 1, replicas: 1 };
    let counters = Options { confirm: false, ..Options::default() };
    let plan = Plan { protocol, options: &toml::Table::new(), counters: &counters, config: ReplicaConfig::new(place, KeyspaceId(0)) };
    plan.open(Backing::Memory).unwrap().0
}

fn now(millis: u64) -> Now {
    Now { monotonic_us: millis * 1000, physical_ms: millis }
}

fn key(name: &str) -> Key {
    Key::from(name.as_bytes())
}

fn run(stack: &mut Box<dyn Stack>, millis: u64, operation: Operation, out: &mut Outbox) {
    let mut session = stack.look().new_session();
    let done = stack.server().execute(now(millis), operation, &mut session, out);
    assert!(matches!(&done, Execution::Done { outcome, .. } if !matches!(outcome, Outcome::Failed(_))), "{done:?}");
}

fn put(stack: &mut Box<dyn Stack>, millis: u64, items: &[(&str, Option<&str>)], out: &mut Outbox) {
    let item = |(name, value): &(&str, Option<&str>)| Item { key: key(name), value: value.map(|value| Key::from(value.as_bytes())), expires_ms: 0 };
    run(stack, millis, Operation::Put { items: items.iter().map(item).collect(), dial: Dial::default() }, out);
}

fn told(out: &mut Outbox) -> Vec<(String, Option<String>, u8)> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    out.applied.drain(..).map(|applied| (text(&applied.key), applied.value.as_deref().map(text), applied.version.origin.0)).collect()
}

#[test]
fn it_tells_of_what_becomes_the_newest_version_and_of_nothing_else() {
    let (mut here, mut there) = (server(0), server(1));
    let (mut out, mut away) = (Outbox::default(), Outbox::default());
    here.server().start(now(1000), &mut out);
    there.server().start(now(1000), &mut away);
    put(&mut here, 1001, &[("a", Some("0"))], &mut out);
    assert!(told(&mut out).is_empty(), "it is not tapped");
    struct NotB2;
    impl Wanted for NotB2 {
        fn wants(&self, key: &[u8]) -> bool {
            key != b"b2"
        }
    }
    here.server().tap(Some(Arc::new(NotB2)));
    put(&mut here, 2000, &[("a", Some("1")), ("b", Some("2"))], &mut out);
    put(&mut here, 2001, &[("b", None), ("b2", Some("4"))], &mut out);
    let expected = [("a", Some("1"), 0), ("b", Some("2"), 0), ("b", None, 0)].map(|(key, value, dc)| (key.to_owned(), value.map(str::to_owned), dc));
    assert_eq!(told(&mut out), expected);
    // A counter is kept in reserved keys beside the user's.
    let counter = NewCounter { lower: Some(0), ..NewCounter::default() };
    run(&mut here, 2002, Operation::Counter { call: CounterCall::Create { key: key("stock"), counter }, dial: Dial::default() }, &mut out);
    assert!(told(&mut out).iter().all(|(key, ..)| key == "stock"));

    // Elsewhere `a` was written before, and `c`; that arrives later.
    put(&mut there, 1500, &[("a", Some("old"))], &mut away);
    put(&mut there, 1501, &[("c", Some("3"))], &mut away);
    assert!(away.applied.is_empty());
    for millis in [2010, 2020, 2030, 2040] {
        there.server().tick(now(millis), &mut away);
        here.server().tick(now(millis), &mut out);
        for (from, to, frames) in [(1, &mut here, std::mem::take(&mut away.frames)), (0, &mut there, std::mem::take(&mut out.frames))] {
            for (_, frame) in frames {
                let out = if from == 1 { &mut out } else { &mut away };
                to.server().receive(now(millis), ServerId::new(DcId(from), PartitionId(0)), &frame, out);
            }
        }
    }
    let arrived: Vec<_> = told(&mut out).into_iter().filter(|(.., dc)| *dc == 1).collect();
    assert_eq!(arrived, [("c".to_owned(), Some("3".to_owned()), 1)], "what is older than what is here becomes nothing");
    let reached = here.look().reached();
    assert!(reached.get(DcId(1)).millis() >= 1501 && reached.get(DcId(0)).millis() >= 2002, "{reached:?}");
    assert_eq!(here.server().newest(&key("b")).map(|newest| newest.value), Some(None));
    assert!(here.server().newest(&key("nothing")).is_none());
    here.server().tap(None);
    put(&mut here, 3000, &[("a", Some("9"))], &mut out);
    assert!(told(&mut out).is_empty());
}

#[test]
fn where_versions_stand_side_by_side_it_tells_of_all_of_them() {
    let (mut here, mut out) = (server_of("quorum", 0), Outbox::default());
    here.server().start(now(1000), &mut out);
    struct All;
    impl Wanted for All {
        fn wants(&self, _: &[u8]) -> bool {
            true
        }
    }
    here.server().tap(Some(Arc::new(All)));
    let mut beside = |millis: u64, value: &str, out: &mut Outbox| {
        let item = Item { key: key("a"), value: Some(Key::from(value.as_bytes())), expires_ms: 0 };
        run(&mut here, millis, Operation::Replace { item, dial: Dial::default() }, out);
        let applied = out.applied.pop().unwrap();
        let others: Vec<Key> = applied.beside.into_iter().filter_map(|one| one.value).collect();
        (applied.value.unwrap(), others)
    };
    // Each of a session that has seen nothing.
    assert_eq!(beside(2000, "1", &mut out), (key("1"), vec![]));
    assert_eq!(beside(2001, "2", &mut out), (key("2"), vec![key("1")]));
    assert_eq!(beside(2002, "3", &mut out), (key("3"), vec![key("2"), key("1")]));
    let newest = here.server().newest(&key("a")).unwrap();
    assert_eq!((newest.value, newest.beside.len()), (Some(key("3")), 2));
    put(&mut here, 2003, &[("a", Some("4"))], &mut out);
    let applied = out.applied.pop().unwrap();
    assert_eq!((applied.value, applied.beside.len()), (Some(key("4")), 0), "written over whatever is there");
}
