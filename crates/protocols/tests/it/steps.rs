//! The exact list of effects that each handler of each protocol emits, for one course of events: in two data centers of two partitions, a client reads, writes and changes, reads from both
//! partitions, another data center writes, timers run out, and a session travels. `tests/steps/<protocol>.txt` has it, to be read; `RHEOSTAT_BLESS=1` writes it anew.

use crate::alone::StepOf;
use crate::common::{START_MS, key, server};
use rheostat_clock::{DcId, Timestamp};
use rheostat_core::dial::{Groups, Level, Quorum, Strategy};
use rheostat_core::ids::{KeyspaceId, Now, OpId, Place, ServerId};
use rheostat_core::operation::{Change, Expiry, SetCondition};
use rheostat_core::protocol::{Call, Client, Protocol, Start};
use rheostat_core::replica::ReplicaConfig;
use rheostat_core::step::{Effect, EffectOf};
use rheostat_core::store::{Durability, Recovered, Store};
use rheostat_core::version::{Item, Key};
use rheostat_protocols::registry::{self, Visitor};
use rheostat_stack::{Driver, Inner};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write;

struct Course<P: Protocol> {
    servers: BTreeMap<ServerId, Inner<P>>,
    timers: BTreeMap<ServerId, BTreeSet<u8>>,
    replies: BTreeMap<OpId, P::Reply>,
    now_us: u64,
    ops: u64,
    /// What happens is not written down, and no message is left out.
    silent: bool,
    text: String,
}

/// A handler is called with this many messages of one event at most; the rest is chatter.
const MOST_MESSAGES: usize = 12;

impl<P: Protocol> Course<P> {
    fn new() -> Course<P> {
        let open = |id: ServerId| {
            let mut config =
                ReplicaConfig::new(Place { server: id, data_centers: 2, partitions: 2, first_partitions: 2, replicas: 1 }, KeyspaceId(0));
            config.durability = Durability::Memory;
            let server = Inner::<P>::new(config, &P::Options::default(), Driver::Memory(Box::default()).into(), Recovered::default()).unwrap();
            (id, server)
        };
        let servers = (0..2).flat_map(|dc| (0..2).map(move |partition| server(dc, partition))).map(open).collect();
        Course { servers, timers: BTreeMap::new(), replies: BTreeMap::new(), now_us: 1_000_000, ops: 0, silent: false, text: String::new() }
    }

    /// Calls a handler of `at`, and those of its data center and its group that what it sends arrives at.
    fn upon(&mut self, at: ServerId, what: &str, handler: impl FnOnce(&mut P, &mut StepOf<'_, P>)) {
        let effects = self.one(at, what, handler);
        self.go_on(at, effects);
    }

    fn go_on(&mut self, at: ServerId, effects: Vec<EffectOf<P>>) {
        let mut under_way: VecDeque<(ServerId, EffectOf<P>)> = effects.into_iter().map(|effect| (at, effect)).collect();
        for _ in 0..if self.silent { usize::MAX } else { MOST_MESSAGES } {
            let Some((from, effect)) = under_way.pop_front() else { return };
            let Effect::Send { to, message, .. } = effect else { continue };
            if !self.servers.contains_key(&to) {
                continue;
            }
            let what = format!("a message from {from}");
            let effects = self.one(to, &what, |protocol, step| match from.dc == to.dc {
                true => protocol.on_message(step, from.partition, message),
                false => protocol.on_member_message(step, from, message),
            });
            under_way.extend(effects.into_iter().map(|effect| (to, effect)));
        }
    }

    fn one(&mut self, at: ServerId, what: &str, handler: impl FnOnce(&mut P, &mut StepOf<'_, P>)) -> Vec<EffectOf<P>> {
        self.now_us += 1000;
        let now = Now { monotonic_us: self.now_us, physical_ms: START_MS + self.now_us / 1000 };
        let effects = self.servers.get_mut(&at).unwrap().observe(now, handler);
        self.tell(at, what, &effects);
        effects
    }

    fn tell(&mut self, at: ServerId, what: &str, effects: &[EffectOf<P>]) {
        if !self.silent {
            writeln!(self.text, "{at}, upon {what}:{}", if effects.is_empty() { " nothing" } else { "" }).unwrap();
        }
        for effect in effects {
            if !self.silent {
                writeln!(self.text, "    {effect:?}").unwrap();
            }
            match effect {
                Effect::Timer { timer, .. } => drop(self.timers.entry(at).or_default().insert(*timer)),
                Effect::Reply { op, reply } => drop(self.replies.insert(*op, reply.clone())),
                _ => {}
            }
        }
    }

    fn start(&mut self, at: ServerId) {
        let start = Start { received: vec![Timestamp::ZERO; 2], ..Start::default() };
        self.upon(at, "start", |protocol, step| protocol.on_start(step, start));
    }

    /// A client's request; what it gets, if it gets something in this event, goes into `client`.
    fn request(&mut self, at: ServerId, what: &str, client: &mut P::Client, call: Call) {
        let request = client.request(call);
        self.make(at, what, client, request);
    }

    fn make(&mut self, at: ServerId, what: &str, client: &mut P::Client, request: P::Request) {
        self.ops += 1;
        let op = OpId(self.ops);
        self.upon(at, what, |protocol, step| protocol.on_request(step, op, request));
        if let Some(reply) = self.replies.remove(&op) {
            let outcome = client.accept(reply);
            writeln!(self.text, "  = {outcome:?}").unwrap();
        }
    }

    /// Of protocols that let values of a key stand side by side, and requests choose their quorum: both of two replicas answer, of which one is away.
    fn side_by_side(&mut self, at: ServerId, client: &mut P::Client, other: &mut P::Client, key: &Key) {
        let quorum = Quorum { asked: 2, reads: 2, writes: 2 };
        let item = |value: &str| Item { key: key.clone(), value: Some(value.as_bytes().into()), expires_ms: 0 };
        let (Some(look), Some(blind)) = (client.siblings(key.clone()), other.replace(item("beside"))) else { return };
        self.make(at, "PUT x beside what is there", other, blind);
        self.make(at, "SIBLINGS x", client, look);
        let replace = client.replace(item("in the place of both")).unwrap();
        self.make(at, "PUT x in the place of both", client, replace);
        let both = [client.siblings(key.clone()), client.replace(item("of two"))].into_iter().flatten();
        for (request, what) in both.zip(["SIBLINGS x of both replicas", "PUT x for both replicas"]) {
            let request = P::Client::for_quorum(request, quorum).unwrap();
            self.make(at, what, client, request);
        }
        self.timers(at);
    }

    fn timers(&mut self, at: ServerId) {
        for timer in self.timers.remove(&at).unwrap_or_default() {
            self.upon(at, &format!("timer {timer}"), |protocol, step| protocol.on_timer(step, timer));
        }
    }
}

fn put(key: &Key, value: &str) -> Call {
    let item = Item { key: key.clone(), value: Some(value.as_bytes().into()), expires_ms: 0 };
    Call::Put { items: [item].into_iter().collect(), level: Level::Eventual }
}

struct Tell;

impl Visitor for Tell {
    type Output = String;

    fn visit<P: Protocol>(self) -> String {
        let mut course = Course::<P>::new();
        let (x, y, here, there) = (key("x", 0, 2), key("y", 1, 2), server(0, 0), server(1, 0));
        let (mut client, mut far) = (P::Client::default(), P::Client::default());
        let (level, groups) = (P::LEVEL, Groups::default());
        for id in course.servers.keys().copied().collect::<Vec<_>>() {
            course.start(id);
        }
        let all: Vec<ServerId> = course.servers.keys().copied().collect();
        all.iter().for_each(|id| course.timers(*id));
        // Groups elect leaders, and have something new to say now and then.
        course.silent = true;
        for _ in 0..if P::CAN.agrees() { 60 } else { 0 } {
            all.iter().for_each(|id| course.timers(*id));
        }
        course.silent = false;
        let get = |key: &Key, level| Call::Get { key: key.clone(), level, groups };
        course.request(here, "GET x", &mut client, get(&x, level));
        course.request(here, "PUT x", &mut client, put(&x, "1"));
        course.request(here, "GET x at level eventual", &mut client, get(&x, Level::Eventual));
        let set = Change::Set { value: (*b"2").into(), expiry: Expiry::Never, condition: SetCondition::Always };
        course.request(here, "GETSET x", &mut client, Call::Change { key: x.clone(), change: set, level, groups });
        course.request(here, "DEL x", &mut client, Call::Change { key: x.clone(), change: Change::Delete, level, groups });
        let strategy = Strategy::Coordinated;
        course.request(here, "ROTX x y", &mut client, Call::ReadTransaction { keys: vec![x.clone(), y], level, strategy, groups });
        course.request(there, "PUT x, far away", &mut far, put(&x, "far"));
        let (updates, _) = course.servers.remove(&there).unwrap().into_store().own_updates(Timestamp::ZERO, 1 << 20).unwrap();
        for update in updates {
            let written = update.id.written;
            course.upon(here, "an update of data center 1", |protocol, step| protocol.on_update(step, DcId(1), update));
            course.upon(here, "a heartbeat of data center 1", |protocol, step| protocol.on_heartbeat(step, DcId(1), written));
        }
        course.request(here, "GET x, which was written far away", &mut client, get(&x, level));
        course.request(here, "GET x of the session from far away", &mut far, get(&x, level));
        course.timers(here);
        course.side_by_side(here, &mut client, &mut far, &x);
        course.text
    }
}

#[test]
fn every_handler_emits_what_is_written() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/steps");
    for name in registry::names() {
        let told = registry::visit(name, Tell).unwrap();
        let path = folder.join(format!("{name}.txt"));
        if std::env::var_os("RHEOSTAT_BLESS").is_some() {
            std::fs::write(&path, &told).unwrap();
        }
        let kept = std::fs::read_to_string(&path).unwrap_or_default();
        let first = told.lines().zip(kept.lines().chain(std::iter::repeat(""))).position(|(told, kept)| told != kept);
        assert!(
            told == kept,
            "{name}: from line {:?} on it is not what {} says; RHEOSTAT_BLESS=1 writes it anew",
            first.map(|line| line + 1),
            path.display()
        );
    }
}
