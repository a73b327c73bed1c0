//! What the protocols ask of the network: nothing is sent twice over a slow way, and little is said while nobody asks anything.

use crate::common::{Desk, Frame, begin, key, server};
use rheostat_core::dial::{Dial, Level};
use rheostat_core::ids::{Place, ServerId};
use rheostat_core::operation::Operation;
use rheostat_core::outcome::Outcome;
use rheostat_core::version::{Item, Key};
use std::collections::{BTreeMap, VecDeque};

/// Those whose data centers send each other updates.
const REPLICATING: &[&str] = &["eventual", "gentlerain", "cops", "causal", "hybrid", "adaptive", "session", "quorum"];

/// The desk, with ways between data centers that carry so many bytes in a millisecond, in order; within one, messages arrive at once.
struct SlowWays {
    desk: Desk,
    bytes_per_ms: usize,
    ways: BTreeMap<(u8, u8), VecDeque<(usize, Frame)>>,
    /// Bytes that were sent from data center to data center.
    sent: BTreeMap<(u8, u8), usize>,
    frames: usize,
}

impl SlowWays {
    fn new(desk: Desk, bytes_per_ms: usize) -> SlowWays {
        SlowWays { desk, bytes_per_ms, ways: BTreeMap::new(), sent: BTreeMap::new(), frames: 0 }
    }

    fn send(&mut self) {
        self.desk.deliver(|from, to| from.dc == to.dc);
        for (from, to, frame) in std::mem::take(&mut self.desk.under_way) {
            self.frames += 1;
            *self.sent.entry((from.dc.0, to.dc.0)).or_default() += frame.len();
            self.ways.entry((from.dc.0, to.dc.0)).or_default().push_back((frame.len(), (from, to, frame)));
        }
    }

    /// One millisecond passes.
    fn pass(&mut self) {
        self.desk.pass(1, |from, to| from.dc == to.dc);
        self.send();
        for way in self.ways.keys().copied().collect::<Vec<_>>() {
            let mut room = self.bytes_per_ms;
            while let Some((left, _)) = self.ways.get_mut(&way).and_then(|frames| frames.front_mut())
                && room > 0
            {
                let carried = room.min(*left);
                (*left, room) = (*left - carried, room - carried);
                if *left == 0
                    && let Some((_, (from, to, frame))) = self.ways.get_mut(&way).and_then(VecDeque::pop_front)
                {
                    self.desk.with(to, |replica, now, out| replica.receive(now, from, &frame, out));
                }
            }
        }
        self.send();
    }

    /// Passes until `value` of `key` is seen in data center `dc`; how long that took, in milliseconds.
    fn pass_until_seen(&mut self, dc: u8, key: &Key, value: &[u8], limit_ms: u64) -> u64 {
        for ms in 0..limit_ms {
            let mut session = self.desk.session();
            let get = Operation::Get { key: key.clone(), dial: Dial::at(Level::SESSION) };
            let get = if self.desk.replicas[&server(0, 0)].status(self.desk.now(server(0, 0))).protocol == "session" {
                get
            } else {
                Operation::Get { key: key.clone(), dial: Dial::default() }
            };
            let outcome = self.desk.run(dc, &mut session, get);
            if matches!(&outcome, Outcome::Read(read, _) if read.value.as_deref() == Some(value)) {
                return ms;
            }
            self.pass();
        }
        panic!("{key:?} is not seen in data center {dc} after {limit_ms} ms");
    }
}

fn write(key: &Key, value: Option<&[u8]>) -> Operation {
    let item = Item { key: key.clone(), value: value.map(Into::into), expires_ms: 0 };
    Operation::Put { items: [item].into_iter().collect(), dial: Dial::default() }
}

fn put(ways: &mut SlowWays, key: &Key, value: Vec<u8>) {
    let outcome = ways.desk.run(0, &mut ways.desk.session(), write(key, Some(&value)));
    assert!(matches!(outcome, Outcome::Written(_)), "{outcome:?}");
    ways.send();
}

/// 8 Mbit/s, values that take seconds each: they go over once, and so does what is written behind them.
#[test]
fn large_values_go_over_a_slow_way_once() {
    for protocol in REPLICATING {
        let mut desk = Desk::new(protocol, "", 2, 1);
        desk.pass(2_000, |_, _| true);
        let mut ways = SlowWays::new(desk, 1_000);
        let (size, count) = (3 << 20, 4);
        for number in 0..count {
            put(&mut ways, &key(&format!("large{number}"), 0, 1), vec![number; size]);
        }
        let last = key("small", 0, 1);
        put(&mut ways, &last, b"behind them".to_vec());
        let took_ms = ways.pass_until_seen(1, &last, b"behind them", 60_000);
        let (written, sent) = (size * usize::from(count), ways.sent[&(0, 1)]);
        assert!(sent as f64 <= 1.2 * written as f64, "{protocol}: {sent} bytes were sent for {written}");
        assert!(took_ms < 16_000, "{protocol}: {took_ms} ms");
        // Nothing comes after it that was sent for nothing.
        (0..3_000).for_each(|_| ways.pass());
        let sent = ways.sent[&(0, 1)];
        assert!(sent as f64 <= 1.2 * written as f64, "{protocol}: {sent} bytes were sent for {written} at last");
    }
}

/// What is lost is sent again, and little else.
#[test]
fn what_is_lost_on_a_slow_way_is_sent_again() {
    for protocol in REPLICATING {
        let mut desk = Desk::new(protocol, "", 2, 1);
        desk.pass(2_000, |_, _| true);
        let mut ways = SlowWays::new(desk, 1_000);
        for number in 0..10u8 {
            put(&mut ways, &key(&format!("large{number}"), 0, 1), vec![number; 300 << 10]);
        }
        // The first value is lost on its way; the others arrive behind the gap.
        let large = |(_, (_, _, frame)): &(usize, Frame)| frame.len() > 200 << 10;
        while !ways.ways.get(&(0, 1)).is_some_and(|way| way.iter().any(large)) {
            ways.pass();
        }
        let way = ways.ways.get_mut(&(0, 1)).unwrap();
        way.remove(way.iter().position(large).unwrap());
        let last = key("small", 0, 1);
        put(&mut ways, &last, b"behind them".to_vec());
        ways.pass_until_seen(1, &last, b"behind them", 60_000);
        let (written, sent) = (3_000 << 10, ways.sent[&(0, 1)]);
        assert!(sent as f64 <= 2.2 * written as f64, "{protocol}: {sent} bytes were sent for {written}");
    }
}

/// While nobody asks anything, a fraction is said of what is said else; what is written then is seen all the same, and as soon as ever if the servers are told of it.
#[test]
fn a_quiet_cluster_says_little_and_wakes_at_once() {
    for protocol in REPLICATING {
        let mut desk = Desk::new(protocol, "", 2, 2);
        desk.pass(3_000, |_, _| true);
        let mut ways = SlowWays::new(desk, 1_000_000);
        let said = |ways: &mut SlowWays| {
            let before = ways.frames;
            (0..2_000).for_each(|_| ways.pass());
            ways.frames - before
        };
        let k = key("k", 0, 2);
        put(&mut ways, &k, b"1".to_vec());
        let attentive_ms = ways.pass_until_seen(1, &k, b"1", 1_000);
        let attentive = said(&mut ways);
        set_quiet(&mut ways.desk, true);
        let quiet = said(&mut ways);
        // In two seconds, each of four servers: one or two heartbeats, an acknowledgement.
        assert!(quiet <= 20, "{protocol}: {quiet} messages where {attentive} were sent");
        put(&mut ways, &k, b"2".to_vec());
        // A heartbeat's time, and a round's.
        ways.pass_until_seen(1, &k, b"2", 4_100);
        (0..500).for_each(|_| ways.pass());
        set_quiet(&mut ways.desk, false);
        put(&mut ways, &k, b"3".to_vec());
        let woken_ms = ways.pass_until_seen(1, &k, b"3", 1_000);
        assert!(woken_ms <= attentive_ms + 10, "{protocol}: seen after {woken_ms} ms, {attentive_ms} ms before");
    }
}

/// Servers of one process that have started one after the other do their rounds together, each level of the tree after the one below it, and what is written elsewhere is seen as soon.
#[test]
fn servers_of_a_process_wake_together() {
    for protocol in ["gentlerain", "causal", "hybrid", "adaptive"] {
        let [apart, together] = [false, true].map(|together| {
            let mut desk = Desk::new(protocol, "", 2, 5);
            for partition in 0..5 {
                let id = server(0, partition);
                let place = Place { server: id, data_centers: 2, partitions: 5, first_partitions: 5, replicas: 1 };
                desk.replicas.insert(id, begin(protocol, "", place, |config| config.together = together));
                desk.pass(1, |_, _| true);
                desk.with(id, |replica, now, out| replica.start(now, out));
            }
            desk.pass(1_003, |_, _| true);
            let mut wakes = 0;
            for _ in 0..200 {
                let due = |id| desk.replicas[&id].next_tick_us() <= desk.now_us + 1_000;
                wakes += usize::from(desk.servers().into_iter().filter(|id| id.dc.0 == 0).any(due));
                desk.pass(1, |_, _| true);
            }
            let k = key("k", 3, 5);
            let mut ways = SlowWays::new(desk, 1_000_000);
            let mut seen_ms = Vec::new();
            for number in 0..20u8 {
                let items = smallvec::smallvec![Item { key: k.clone(), value: Some([number].into()), expires_ms: 0 }];
                let mut session = ways.desk.session();
                let written = ways.desk.run(1, &mut session, Operation::Put { items, dial: Dial::default() });
                assert!(matches!(written, Outcome::Written(_)), "{protocol}: {written:?}");
                seen_ms.push(ways.pass_until_seen(0, &k, &[number], 1_000));
                (0..7).for_each(|_| ways.pass());
            }
            (wakes, seen_ms.iter().sum::<u64>())
        });
        // Heartbeats, the leaves' rounds and the root's, each five milliseconds; and what is collected.
        assert!(apart.0 >= 180 && together.0 <= 150, "{protocol}: {} wakes, {} together", apart.0, together.0);
        assert!(together.1 <= apart.1 + 20, "{protocol}: seen after {} ms in twenty times, {} together", apart.1, together.1);
    }
}

/// The desk's servers are told whether anybody asks anything.
fn set_quiet(desk: &mut Desk, quiet: bool) {
    for id in desk.servers() {
        desk.with(id, |replica, _, _| replica.set_quiet(quiet));
    }
}

/// Lets `ms` milliseconds pass, everything arriving at once; how many messages went from server to server.
fn count(desk: &mut Desk, ms: u64) -> usize {
    let mut frames = 0;
    for _ in 0..ms {
        desk.pass(1, |_, _| false);
        while !desk.under_way.is_empty() {
            for (from, to, frame) in std::mem::take(&mut desk.under_way) {
                frames += 1;
                desk.with(to, |replica, now, out| replica.receive(now, from, &frame, out));
            }
        }
    }
    frames
}

/// What the desk's servers have agreed on, in all.
fn agreed(desk: &Desk, gauge: &str) -> f64 {
    desk.servers().into_iter().map(|id| desk.gauge(id, gauge)).sum()
}

/// The protocols whose servers agree on what is written: with so many servers of a partition in a data center, the number that tells how much that was, and the most messages of a quiet minute for each that is sent
/// else.
const AGREEING: &[(&str, u8, &str, f64)] = &[
    ("session", 1, "applied_index", 0.2),
    ("session", 3, "applied_index", 0.4),
    ("strong", 1, "applied_index", 0.25),
    ("staged", 1, "staged_instances", 0.1),
];

/// While nobody asks anything, servers that agree on what is written agree on nothing, and say a fraction of what they say else. As soon as they are told that somebody asks, they know of each other up to
/// the present again.
#[test]
fn servers_that_agree_have_nothing_to_agree_on_while_nobody_asks() {
    for (protocol, replicas, gauge, least) in AGREEING {
        let mut desk = Desk::with_replicas(protocol, "", 3, 1, *replicas);
        desk.pass(5_000, |_, _| true);
        let k = key("k", 0, 1);
        let mut session = desk.session();
        let written = desk.ask(server(0, 0), &mut session, write(&k, Some(b"1")), 1_000, |_, _| true);
        assert!(matches!(written, Some(Outcome::Written(_))), "{protocol}: {written:?}");
        let attentive = count(&mut desk, 60_000);
        set_quiet(&mut desk, true);
        desk.pass(10_000, |_, _| true);
        let before = agreed(&desk, gauge);
        let quiet = count(&mut desk, 60_000);
        assert_eq!(agreed(&desk, gauge), before, "{protocol} with {replicas}: something was agreed on");
        assert!((quiet as f64) < least * attentive as f64, "{protocol} with {replicas}: {quiet} messages where {attentive} were sent");
        set_quiet(&mut desk, false);
        let read = Operation::Get { key: k.clone(), dial: Dial { fresh_ms: Some(500), ..Dial::at(Level::Eventual) } };
        for dc in 0..3 {
            let read = desk.ask(server(dc, 0), &mut desk.session(), read.clone(), 1_000, |_, _| true);
            assert!(matches!(&read, Some(Outcome::Read(read, _)) if read.value.as_deref() == Some(b"1")), "{protocol} with {replicas}: {read:?}");
        }
        assert!(agreed(&desk, gauge) > before, "{protocol} with {replicas}");
    }
}

/// What is deleted goes, though nobody asks anything of the other data centers, nor has told them that anybody does.
#[test]
fn what_is_deleted_goes_while_the_others_sleep() {
    for (protocol, replicas, ..) in AGREEING {
        let mut desk = Desk::with_replicas(protocol, "", 3, 1, *replicas);
        desk.pass(5_000, |_, _| true);
        set_quiet(&mut desk, true);
        desk.pass(30_000, |_, _| true);
        let (k, mut session) = (key("k", 0, 1), desk.session());
        for value in [Some(&b"1"[..]), None] {
            let written = desk.ask(server(0, 0), &mut session, write(&k, value), 6_000, |_, _| true);
            assert!(matches!(written, Some(Outcome::Written(_))), "{protocol} with {replicas}: {written:?}");
        }
        desk.pass(30_000, |_, _| true);
        for id in desk.servers() {
            assert_eq!(desk.replicas[&id].status(desk.now(id)).store.versions, 0, "{protocol} with {replicas}: at {id}");
        }
    }
}

/// A member of a group whose leader is gone finds out while nobody asks anything, and while somebody does as soon as ever.
#[test]
fn a_leader_that_goes_while_nobody_asks_is_missed() {
    for asked in [false, true] {
        let mut desk = Desk::with_replicas("strong", "", 3, 1, 1);
        desk.pass(5_000, |_, _| true);
        set_quiet(&mut desk, true);
        desk.pass(30_000, |_, _| true);
        let leads = |desk: &Desk, id: ServerId| desk.gauge(id, "leader") == 1.0;
        let old = desk.servers().into_iter().find(|id| leads(&desk, *id)).unwrap();
        if asked {
            set_quiet(&mut desk, false);
        }
        // An election's time at least, and twice that at most; where nobody asks, a tick takes four times as long until the leader is missed, and as long as ever from then on.
        let limit_ms = if asked { 4_000 } else { 20_000 };
        desk.pass(limit_ms, |from, to| from != old && to != old);
        assert!(desk.servers().into_iter().any(|id| id != old && leads(&desk, id)), "asked: {asked}");
    }
}
