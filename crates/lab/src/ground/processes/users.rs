//! Users with sessions over gRPC, each one doing one thing after the other.

use super::describe::{KEYSPACE, LEAST_MS};
use crate::experiment::{Act, Alternating, Amplified, Contender, Groups, Load, Mix, PingPong, Point, Within};
use crate::ground::choice::{Drawing, Drawn, Pool, key, value, written_ns};
use crate::ground::tally::{Kind, Tallies};
use crate::ground::{Measured, Samples};
use rheostat_client::{Client, Dial, Level, Options, Session, v1};
use rheostat_cluster::Processes as Cluster;
use rheostat_cluster::nodes::Planned;
use rheostat_cluster::ready::statuses;
use rheostat_core::answer::Quality;
use rheostat_core::random::Random;
use rheostat_core::version::{Key, Value};
use rheostat_core::{DcId, slots};
use rheostat_protocols::registry;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use tokio::task::LocalSet;
use tokio::time::Instant;

/// How long an operation may take.
const DEADLINE: Duration = Duration::from_secs(10);

/// After a failed operation a user waits so long.
const AFTER_FAILURE: Duration = Duration::from_millis(1);

/// Users begin within this time of each other.
const SPREAD_US: u64 = 5_000;

/// What all users of a run share.
struct World {
    point: Point,
    /// By data center: a client that goes to the owner of each partition.
    clients: Vec<Client>,
    /// By data center, where users go to any of several nodes: a client of each.
    nodes: Vec<Vec<Client>>,
    /// By data center and partition: the node that leads the group, where one does.
    leaders: BTreeMap<(u8, u16), usize>,
    tallies: RefCell<Tallies>,
    pool: RefCell<Pool>,
    began: Instant,
    measured_from: Instant,
    end: Instant,
    /// Measured users that have yet to do as much as they should.
    unfinished: Cell<usize>,
    /// The mean latency of each measured user.
    means: RefCell<Vec<f64>>,
}

/// What came of an operation.
enum Reply {
    Read(Option<bytes::Bytes>, Quality),
    Written,
    Many,
}

struct User {
    world: Rc<World>,
    load: usize,
    place: usize,
    dc: DcId,
    /// What the user has seen and written; `None` before the first operation.
    session: Option<Session>,
    drawing: Drawing,
    step: u64,
    turn: Option<u64>,
    done: u64,
    seen: Samples,
}

/// Puts the load of `point` on `cluster`.
pub(super) async fn run(point: &Point, cluster: &Cluster) -> Result<Measured, String> {
    // A read that is sent again would hide a failure.
    let options = Options { deadline: DEADLINE, read_retries: 0, ..Options::default() };
    let (mut clients, mut nodes) = (Vec::new(), Vec::new());
    for (dc, region) in point.cluster.regions.iter().enumerate() {
        let there: Vec<&Planned> = cluster.nodes.iter().filter(|node| node.config.data_center == *region).collect();
        let addresses: Vec<String> = there.iter().map(|node| node.address(node.ports.grpc)).collect();
        let slow = point.cluster.slow.filter(|slow| usize::from(slow.data_center) == dc && there.len() > 1);
        let mut each = Vec::new();
        for (place, address) in addresses.iter().enumerate() {
            // Each partition has a node of its own then. The clients of the slow one itself would not wait for what it sends.
            let beside_slow = slow.is_some_and(|slow| usize::from(slow.partition) != place);
            if replicated(point) || beside_slow {
                each.push(connect(Options { addresses: vec![address.clone()], direct: true, ..options.clone() }).await?);
            }
        }
        nodes.push(each);
        clients.push(connect(Options { addresses, ..options.clone() }).await?);
    }
    let leaders = leaders(point, &statuses(&options, &cluster.nodes).await);
    let began = Instant::now();
    let measured_from = began + Duration::from_millis(point.size.warm_ms);
    let end = measured_from + Duration::from_millis(point.size.measure_ms);
    let world = World {
        point: point.clone(),
        clients,
        nodes,
        leaders,
        tallies: RefCell::default(),
        pool: RefCell::default(),
        began,
        measured_from,
        end,
        unfinished: Cell::new(0),
        means: RefCell::default(),
    };
    let world = Rc::new(world);
    let users = LocalSet::new();
    let mut random = Random::new(point.seed);
    for user in World::users(&world, &mut random) {
        users.spawn_local(user.live());
    }
    let over = tokio::time::timeout_at(end + 2 * DEADLINE, users).await;
    over.map_err(|_| "the users did not come to an end".to_owned())?;
    let seconds = (Instant::now().min(end).saturating_duration_since(measured_from)).as_secs_f64();
    let tallies = world.tallies.borrow();
    if tallies.operations() == 0 {
        return Err(format!("no operation was answered in the measured time; failures: {}", tallies.failures()));
    }
    let mut measured = Measured::default();
    tallies.sum_up(&mut measured, seconds);
    measured.clients.insert("latency_mean_ms".into(), world.means.borrow().clone());
    Ok(measured)
}

/// Whether several servers of a data center have each partition.
fn replicated(point: &Point) -> bool {
    registry::info(&point.contender.protocol).is_some_and(|info| info.can.agrees()) && point.cluster.replicas > 1
}

async fn connect(options: Options) -> Result<Client, String> {
    Client::connect_with(options).await.map_err(|error| error.to_string())
}

/// Who leads each group, by what the nodes say: the place of the node in its data center.
fn leaders(point: &Point, statuses: &[Result<v1::StatusResponse, String>]) -> BTreeMap<(u8, u16), usize> {
    let mut leaders = BTreeMap::new();
    for (dc, region) in point.cluster.regions.iter().enumerate() {
        let of_region = |status: &&v1::StatusResponse| status.topology.as_ref().is_some_and(|topology| topology.data_center == *region);
        for (place, status) in statuses.iter().flatten().filter(of_region).enumerate() {
            let leads = |replica: &&v1::Replica| replica.gauges.iter().any(|gauge| gauge.name == "leader" && gauge.value == 1.0);
            leaders.extend(status.replicas.iter().filter(leads).map(|replica| ((dc as u8, replica.partition as u16), place)));
        }
    }
    leaders
}

impl World {
    /// Whom a user asks in data center `dc`: a put goes to the leader there, if there is one; everything else to any node, if several have the
    /// partition or one is slow; else to the partition's owner.
    fn client(&self, dc: DcId, kind: Kind, key: Option<&Key>, random: &mut Random) -> &Client {
        let nodes = &self.nodes[dc.index()];
        let partition = key.map_or(0, |key| slots::partition_of(key, self.point.cluster.partitions).0);
        let leader = self.leaders.get(&(dc.0, partition)).filter(|_| kind == Kind::Put);
        match (nodes.len(), leader) {
            (0, _) => &self.clients[dc.index()],
            (_, Some(leader)) => &nodes[*leader],
            (count, None) => &nodes[random.below(count as u64) as usize],
        }
    }

    fn users(world: &Rc<World>, random: &mut Random) -> Vec<User> {
        let mut users = Vec::new();
        for (load, group) in world.point.load.iter().enumerate() {
            let everywhere: Vec<u8> = (0..world.point.cluster.regions.len() as u8).collect();
            let places = if group.data_centers.is_empty() { &everywhere } else { &group.data_centers };
            for (place, dc) in places.iter().enumerate() {
                for _ in 0..group.clients {
                    let mix = if let Act::Mix(mix) = &group.does { Some(mix) } else { None };
                    let drawing = Drawing::new(random.fork(), mix);
                    let world = world.clone();
                    users.push(User {
                        world,
                        load,
                        place,
                        dc: DcId(*dc),
                        session: None,
                        drawing,
                        step: 0,
                        turn: None,
                        done: 0,
                        seen: Samples::default(),
                    });
                }
            }
        }
        let measured = users.iter().filter(|user| user.load().measured).count();
        world.unfinished.set(measured);
        users
    }

    fn now_ns(&self) -> u64 {
        Instant::now().saturating_duration_since(self.began).as_nanos() as u64
    }

    fn over(&self) -> bool {
        let enough = self.point.size.operations.is_some() && self.unfinished.get() == 0;
        enough || Instant::now() >= self.end
    }

    fn key(&self, partition: u16, which: u64, of: u64) -> Key {
        self.pool.borrow_mut().of(self.point.cluster.partitions, of)[usize::from(partition)][which as usize].clone()
    }
}

fn dial(contender: &Contender, level: &Option<String>, within: Within) -> Dial {
    Dial { level: level.as_deref().and_then(Level::from_name), strategy: contender.strategy.into(), within_us: within.us(), ..Dial::default() }
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

impl User {
    fn load(&self) -> &Load {
        &self.world.point.load[self.load]
    }

    /// From the beginning of the run to its end.
    async fn live(mut self) {
        let spread = Duration::from_micros(self.drawing.random.below(SPREAD_US));
        tokio::time::sleep_until(self.world.began + spread).await;
        let does = self.load().does.clone();
        match &does {
            Act::Mix(mix) => self.mix(mix).await,
            Act::Amplified(amplified) => self.amplified(amplified).await,
            Act::PingPong(ping) => self.ping_pong(ping).await,
            Act::Alternating(alternating) => self.alternating(alternating).await,
            Act::Groups(groups) => self.groups(groups).await,
            // Applications have clients of their own, and lines are counted without any.
            Act::Social(_) | Act::Weather(_) | Act::Conjunctive(_) | Act::LinesOfCode(_) => {}
        }
        if let (true, Some(mean)) = (self.load().measured, self.seen.mean()) {
            self.world.means.borrow_mut().push(mean);
        }
    }

    async fn mix(&mut self, mix: &Mix) {
        let data_centers = self.world.point.cluster.regions.len() as u64;
        let mut meant = Instant::now();
        while !self.world.over() {
            let since = if mix.rate > 0.0 { meant } else { Instant::now() };
            let (drawn, at) = self.drawing.next(mix, self.dc, data_centers);
            let well = match drawn {
                Drawn::Get(key) => self.get(at, key, since).await.is_some(),
                Drawn::Put(key) => {
                    let value = value(self.world.now_ns(), mix.value_bytes);
                    self.put(at, key, value, since).await
                }
                Drawn::Transaction(keys) => self.operate(Kind::Transaction, at, keys, None, since).await.is_some(),
            };
            if well {
                self.did_one(since);
            }
            if mix.rate > 0.0 {
                meant += Duration::from_secs_f64(self.drawing.gap_s(mix.rate));
                let free = Instant::now() < meant;
                tokio::time::sleep_until(meant.min(self.world.end)).await;
                // How late a client is that has nothing else to do: its own share of what is measured.
                if free && self.counted(meant) && meant <= self.world.end {
                    self.world.tallies.borrow_mut().add("client_late", ms(meant.elapsed()));
                }
            } else if mix.think_ms > 0.0 {
                tokio::time::sleep(Duration::from_secs_f64(mix.think_ms / 1000.0)).await;
            }
        }
    }

    async fn amplified(&mut self, amplified: &Amplified) {
        let partitions = self.world.point.cluster.partitions;
        while !self.world.over() {
            let since = Instant::now();
            for _ in 0..amplified.factor {
                // The put that failed is tried again, as a step of its request.
                loop {
                    let which = self.drawing.random.below(amplified.keys);
                    let key = self.world.key((self.step % u64::from(partitions)) as u16, which, amplified.keys);
                    let value = value(self.world.now_ns(), amplified.value_bytes);
                    if self.put(None, key, value, Instant::now()).await {
                        break;
                    }
                    if Instant::now() >= self.world.end {
                        return;
                    }
                }
                self.step += 1;
            }
            if self.counted(since) && Instant::now() <= self.world.end {
                self.world.tallies.borrow_mut().add("request", ms(since.elapsed()));
            }
            self.did_one(since);
        }
    }

    async fn ping_pong(&mut self, ping: &PingPong) {
        let key = self.world.key(ping.partition, 0, 1);
        while !self.world.over() {
            let since = Instant::now();
            if let Some(next) = self.turn {
                if self.put(None, key.clone(), Value::from(next.to_string().into_bytes()), since).await {
                    self.turn = None;
                    self.world.tallies.borrow_mut().written = (next, self.world.now_ns());
                    self.did_one(since);
                }
                continue;
            }
            let Some(read) = self.get(None, key.clone(), since).await else { continue };
            let number: u64 = read.as_deref().and_then(|value| std::str::from_utf8(value).ok()?.parse().ok()).unwrap_or(0);
            if number % 2 == self.place as u64 {
                self.turn = Some(number + 1);
                let mut tallies = self.world.tallies.borrow_mut();
                if self.counted(since) && number > 0 {
                    let lag_ms = tallies.unseen_ms(number, self.world.now_ns());
                    tallies.add("visibility", lag_ms);
                }
            } else if ping.poll_ms > 0.0 {
                tokio::time::sleep(Duration::from_secs_f64(ping.poll_ms / 1000.0)).await;
            }
        }
    }

    async fn alternating(&mut self, alternating: &Alternating) {
        while !self.world.over() {
            let since = Instant::now();
            let turn = self.step as usize % alternating.partitions.len();
            let key = self.world.key(alternating.partitions[turn], 0, 1);
            let well = if alternating.writes {
                let value = value(self.world.now_ns(), 0);
                self.put(None, key, value, since).await
            } else {
                let read = self.get(None, key, since).await;
                if let (true, Some(at_ns)) = (self.counted(since), read.as_ref().and_then(|read| written_ns(read.as_deref()?))) {
                    let age_ms = (self.world.now_ns() as f64 - at_ns as f64) / 1e6;
                    self.world.tallies.borrow_mut().add("age", age_ms);
                }
                read.is_some()
            };
            if well {
                self.step += 1;
                self.did_one(since);
            }
            tokio::time::sleep(Duration::from_secs_f64(alternating.think_ms / 1000.0)).await;
        }
    }

    async fn groups(&mut self, groups: &Groups) {
        while !self.world.over() {
            let key = key(self.drawing.random.below(groups.keys));
            let mut written = Vec::new();
            while written.len() < groups.writes as usize {
                let (since, at_ns) = (Instant::now(), self.world.now_ns());
                if since >= self.world.end {
                    return;
                }
                if self.put(None, key.clone(), value(at_ns, groups.value_bytes), since).await {
                    written.push(at_ns);
                }
            }
            let since = Instant::now();
            let Some(read) = self.get(None, key.clone(), since).await else { continue };
            if self.counted(since) {
                let shown_ns = read.as_deref().and_then(written_ns).unwrap_or(0);
                let covered = if shown_ns == 0 { 0 } else { written.iter().filter(|at_ns| **at_ns <= shown_ns).count() };
                self.world.tallies.borrow_mut().shares_of("covered", covered as u64, written.len() as u64);
            }
            self.did_one(since);
            if groups.settle {
                self.settle(&key).await;
            }
            tokio::time::sleep(Duration::from_secs_f64(groups.think_ms / 1000.0)).await;
        }
    }

    /// Reads `key` without a bound, which is not measured.
    async fn settle(&mut self, key: &Key) {
        let world = self.world.clone();
        let client = world.client(self.dc, Kind::Get, Some(key), &mut self.drawing.random);
        let mut session = self.session.as_ref().map_or_else(|| client.session(KEYSPACE), |session| session.at(client));
        session.set_way(way(&world.point, self.dc, None));
        let contender = Contender { read_within: Within::default(), ..world.point.contender.clone() };
        if ask(&mut session, &contender, Kind::Get, std::slice::from_ref(key), None).await.is_ok() {
            self.session = Some(session);
        }
    }

    /// Whether what began at `since` is measured.
    fn counted(&self, since: Instant) -> bool {
        self.load().measured && since >= self.world.measured_from
    }

    /// An operation or request of this user is done.
    fn did_one(&mut self, since: Instant) {
        if !self.counted(since) {
            return;
        }
        self.done += 1;
        if Some(self.done) == self.world.point.size.operations {
            self.world.unfinished.set(self.world.unfinished.get() - 1);
        }
    }

    /// The value of `key`; `None` if that failed.
    async fn get(&mut self, at: Option<DcId>, key: Key, since: Instant) -> Option<Option<bytes::Bytes>> {
        match self.operate(Kind::Get, at, vec![key], None, since).await {
            Some(Reply::Read(value, _)) => Some(value),
            _ => None,
        }
    }

    /// Writes `key`; says whether that succeeded.
    async fn put(&mut self, at: Option<DcId>, key: Key, value: Value, since: Instant) -> bool {
        self.operate(Kind::Put, at, vec![key], Some(value), since).await.is_some()
    }

    /// One operation, its way to the servers and back included; `None` if it failed.
    async fn operate(&mut self, kind: Kind, at: Option<DcId>, keys: Vec<Key>, value: Option<Value>, since: Instant) -> Option<Reply> {
        let world = self.world.clone();
        let away = at.filter(|at| *at != self.dc);
        let client = world.client(away.unwrap_or(self.dc), kind, keys.first(), &mut self.drawing.random);
        let mut session = self.session.as_ref().map_or_else(|| client.session(KEYSPACE), |session| session.at(client));
        session.set_way(way(&world.point, self.dc, away));
        // What a client of an open loop has waited for its own last operation is not the store's.
        let begun = Instant::now();
        let result = ask(&mut session, &world.point.contender, kind, &keys, value).await;
        let counted = self.counted(since) && Instant::now() <= world.end;
        let (_, within) = bounds(&world.point.contender, kind);
        if let (true, Some(within_ms)) = (counted, within.0) {
            world.tallies.borrow_mut().bounded(kind, ms(begun.elapsed()), within_ms, result.is_ok(), &world.point.cluster);
        }
        match result {
            Ok(reply) => {
                self.session = Some(session);
                if counted {
                    let took_ms = ms(since.elapsed());
                    let mut tallies = world.tallies.borrow_mut();
                    tallies.operation(kind, took_ms, away.unwrap_or(self.dc), &keys, &world.point.cluster);
                    if let Reply::Read(_, quality) = &reply {
                        tallies.quality(*quality);
                    }
                    self.seen.add(took_ms);
                }
                Some(reply)
            }
            Err(error) => {
                if counted {
                    world.tallies.borrow_mut().failed(&error.to_string());
                }
                tokio::time::sleep(AFTER_FAILURE).await;
                None
            }
        }
    }
}

/// How long a request is under way between a user in `home` and the servers it goes to, where that is emulated.
fn way(point: &Point, home: DcId, away: Option<DcId>) -> Duration {
    let between = away.and_then(|away| point.cluster.round_trip(home.index(), away.index())).unwrap_or(0.0) / 2.0;
    let way_ms = between + point.cluster.near_ms;
    if way_ms >= LEAST_MS { Duration::from_secs_f64(way_ms / 1000.0) } else { Duration::ZERO }
}

/// What operations of a kind ask for.
fn bounds(contender: &Contender, kind: Kind) -> (&Option<String>, Within) {
    if kind == Kind::Put { (&contender.write_level, contender.write_within) } else { (&contender.read_level, contender.read_within) }
}

async fn ask(session: &mut Session, contender: &Contender, kind: Kind, keys: &[Key], value: Option<Value>) -> Result<Reply, rheostat_client::Error> {
    let bytes = |key: &Key| bytes::Bytes::copy_from_slice(key);
    let (level, within) = bounds(contender, kind);
    session.set_dial(dial(contender, level, within));
    match (kind, keys.first(), value) {
        (Kind::Put, Some(key), Some(value)) => session.put(bytes(key), bytes::Bytes::copy_from_slice(&value)).await.map(|_| Reply::Written),
        (Kind::Get, Some(key), _) => {
            let read = session.get(bytes(key)).await?;
            Ok(Reply::Read(read.value, Quality { level: read.level, staleness_ms: read.staleness_ms }))
        }
        _ => session.read_transaction(keys.iter().map(bytes)).await.map(|_| Reply::Many),
    }
}
