//! What the protocols ask of the network: nothing is sent twice over a slow way, and little is said while nobody asks anything.

use crate::common::{Desk, Frame, begin, key, server};
use rheostat_core::ids::Place;
use rheostat_core::operation::{Dial, Level, Operation, Outcome};
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

fn put(ways: &mut SlowWays, key: &Key, value: Vec<u8>) {
    let item = Item { key: key.clone(), value: Some(value.into()), expires_ms: 0 };
    let outcome = ways.desk.run(0, &mut ways.desk.session(), Operation::Put { items: [item].into_iter().collect(), dial: Dial::default() });
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
        let set_quiet = |ways: &mut SlowWays, quiet: bool| {
            for id in ways.desk.servers() {
                ways.desk.with(id, |replica, _, _| replica.set_quiet(quiet));
            }
        };
        let said = |ways: &mut SlowWays| {
            let before = ways.frames;
            (0..2_000).for_each(|_| ways.pass());
            ways.frames - before
        };
        let k = key("k", 0, 2);
        put(&mut ways, &k, b"1".to_vec());
        let attentive_ms = ways.pass_until_seen(1, &k, b"1", 1_000);
        let attentive = said(&mut ways);
        set_quiet(&mut ways, true);
        let quiet = said(&mut ways);
        // In two seconds, each of four servers: one or two heartbeats, an acknowledgement.
        assert!(quiet <= 20, "{protocol}: {quiet} messages where {attentive} were sent");
        put(&mut ways, &k, b"2".to_vec());
        // A heartbeat's time, and a round's.
        ways.pass_until_seen(1, &k, b"2", 4_100);
        (0..500).for_each(|_| ways.pass());
        set_quiet(&mut ways, false);
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
                let place = Place { server: id, data_centers: 2, partitions: 5, replicas: 1 };
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
