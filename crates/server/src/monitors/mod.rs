//! Monitors of predicates on this node: which predicates there are, where each is watched, and what came of it.
//!
//! Every node knows all predicates, and tells the others what it does not know of them to know ([`registry`]). A shard keeps a detector beside each of its partition servers whose keyspace has a predicate
//! (`shard::watch`). A predicate's monitor runs on one node, which follows from the names of both ([`homes`]), on a thread of its own ([`thread`]). Nothing here makes a write wait: where a queue is full, a detector's
//! report is dropped and counted, and the monitor, which misses it, asks for everything that stands.

mod homes;
mod listen;
mod message;
mod registry;
mod rollback;
mod thread;

pub(crate) use homes::Nodes;
pub(crate) use listen::{Heard, Listening};
pub(crate) use message::Message;
pub use message::{Told, What};
pub(crate) use rollback::run as roll_back;
pub(crate) use thread::{Input, run};

use crate::keyspace::KeyspaceInfo;
use crate::peer::Peer;
use crate::shard::mailbox::Control;
use crate::shared::{Shared, lock};
use crate::topology::{NodeId, Topology};
use hashbrown::HashSet;
use registry::{Entry, Registry};
use rheostat_clock::{Epsilon, MOST_PROCESSES};
use rheostat_core::ids::{KeyspaceId, Place, ServerId};
use rheostat_core::wire::Wire;
use rheostat_monitor::detector::{process_of, processes};
use rheostat_monitor::monitor::Numbers;
use rheostat_monitor::predicate::{Definition, Predicate, Predicates, Target};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;
use tokio::sync::{Semaphore, broadcast, mpsc};

/// Messages that may wait for the monitors of this node.
const WAITING: usize = 8192;

/// What a subscriber may be behind before it misses something, and is told so.
const BEHIND: usize = 1024;

/// What was told last, for those who ask later.
const RECENT: usize = 100;

/// What was told and is not told again.
const SEEN: usize = 4096;

/// What was told before something that is forgotten is not news either, unless it is so much older that a clock was set back, in milliseconds.
const LATE_MS: u64 = 60_000;

/// Between two looks whether there is room for more predicates on the way to a node.
const LOOK_FOR_ROOM: Duration = Duration::from_millis(50);

/// Monitors at a glance.
#[derive(Clone, Debug, Default)]
pub struct MonitorStatus {
    /// Predicates.
    pub predicates: usize,
    /// What this node's monitors have.
    pub numbers: Numbers,
    /// Reports that this node's monitors, or the way to others, had no room for.
    pub dropped: u64,
    /// By predicate: alarms of this node's monitors that were possible when they were first told, and that were or became violations.
    pub alarms: Vec<(String, [u64; 2])>,
    /// Rollbacks that this node's monitors were to start: done, failed, and not begun since there had been too many.
    pub rollbacks: [u64; 3],
}

/// A predicate, as an operator sees it.
#[derive(Clone, Debug)]
pub struct MonitorInfo {
    /// As it was given.
    pub definition: Definition,
    /// `linear`, `semilinear` or `bounded sum`.
    pub kind: &'static str,
    /// The name of the node that watches for it; empty for a pattern, whose predicates are watched on all.
    pub node: String,
}

/// What something told is known by; see [`Told::id`].
type Id = (String, u64, u8);

#[derive(Default)]
struct History {
    seen: HashSet<Id>,
    /// With when it was told.
    seen_in_order: VecDeque<(Id, u64)>,
    /// By node: when what is forgotten of it was told, the last of that.
    forgotten: BTreeMap<String, u64>,
    recent: VecDeque<Arc<Told>>,
    alarms: BTreeMap<String, [u64; 2]>,
    rollbacks: [u64; 3],
    numbers: Numbers,
}

/// See the module.
pub(crate) struct Monitors {
    pub(crate) epsilon: Epsilon,
    pub(crate) nodes: Nodes,
    registry: Mutex<Registry>,
    by_keyspace: RwLock<Vec<Arc<Predicates>>>,
    changes: AtomicU64,
    inbox: SyncSender<Input>,
    inbox_end: Mutex<Option<Receiver<Input>>>,
    tasks: mpsc::Sender<rollback::Task>,
    tasks_end: Mutex<Option<mpsc::Receiver<rollback::Task>>>,
    told: broadcast::Sender<Arc<Told>>,
    /// Places for those who listen.
    subscribers: Arc<Semaphore>,
    heard: Mutex<History>,
    dropped: AtomicU64,
    /// Held by whoever writes the file.
    saving: Mutex<Option<PathBuf>>,
    /// The file does not say what is known.
    unsaved: AtomicBool,
}

impl Monitors {
    pub(crate) fn new(topology: &Topology, keyspaces: usize, epsilon_ms: u64) -> Monitors {
        let (inbox, inbox_end) = sync_channel(WAITING);
        let (tasks, tasks_end) = mpsc::channel(rollback::WAITING);
        Monitors {
            epsilon: Epsilon::Millis(epsilon_ms),
            nodes: Nodes::new(topology),
            registry: Mutex::default(),
            by_keyspace: RwLock::new(vec![Arc::default(); keyspaces]),
            changes: AtomicU64::new(0),
            inbox,
            inbox_end: Mutex::new(Some(inbox_end)),
            tasks,
            tasks_end: Mutex::new(Some(tasks_end)),
            told: broadcast::Sender::new(BEHIND),
            subscribers: Arc::new(Semaphore::new(listen::SUBSCRIBERS)),
            heard: Mutex::default(),
            dropped: AtomicU64::new(0),
            saving: Mutex::new(None),
            unsaved: AtomicBool::new(false),
        }
    }

    /// Reads the predicates that were kept in `dir`, and keeps them there from now on. Errors: in words for the operator.
    pub(crate) fn load(&self, dir: &Path, keyspaces: &[KeyspaceInfo]) -> Result<(), String> {
        let path = dir.join(registry::FILE);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(format!("{}: {error}", path.display())),
        };
        let entries = registry::read(&text).map_err(|why| format!("{}: {why}", path.display()))?;
        lock(&self.registry).merge(entries);
        self.make_ready(keyspaces);
        *lock(&self.saving) = Some(dir.to_owned());
        Ok(())
    }

    /// The end at which this node's monitors listen; once.
    pub(crate) fn take_inbox(&self) -> Option<Receiver<Input>> {
        lock(&self.inbox_end).take()
    }

    /// The end at which the part of this node listens that rolls back; once.
    pub(crate) fn take_tasks(&self) -> Option<mpsc::Receiver<rollback::Task>> {
        lock(&self.tasks_end).take()
    }

    /// Hands `task` to the part of this node that rolls back, if there is room.
    fn hand_to_rollback(&self, task: rollback::Task) {
        // Where no keyspace keeps history there is no such part, and nothing is missed.
        if let Err(mpsc::error::TrySendError::Full(_)) = self.tasks.try_send(task) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How often the predicates have changed.
    #[inline]
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// The predicates of `keyspace`.
    pub(crate) fn of(&self, keyspace: KeyspaceId) -> Arc<Predicates> {
        let all = self.by_keyspace.read().unwrap_or_else(PoisonError::into_inner);
        all.get(usize::from(keyspace.0)).cloned().unwrap_or_default()
    }

    /// Makes the predicates of each keyspace anew.
    fn make_ready(&self, keyspaces: &[KeyspaceInfo]) {
        let registry = lock(&self.registry);
        let of = |info: &KeyspaceInfo| Arc::new(Predicates::new(registry.live().filter(|predicate| predicate.definition.keyspace == info.name)));
        let all = keyspaces.iter().map(of).collect();
        *self.by_keyspace.write().unwrap_or_else(PoisonError::into_inner) = all;
        self.changes.fetch_add(1, Ordering::Release);
    }

    /// Hands `input` to this node's monitors, if there is room.
    pub(crate) fn hand_in(&self, input: Input) {
        if self.inbox.try_send(input).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whether there are predicates.
    pub(crate) fn is_empty(&self) -> bool {
        lock(&self.registry).live().next().is_none()
    }

    /// What is told from now on, and the last of what was.
    pub(crate) fn subscribe(&self) -> (broadcast::Receiver<Arc<Told>>, Vec<Arc<Told>>) {
        let heard = lock(&self.heard);
        (self.told.subscribe(), heard.recent.iter().cloned().collect())
    }

    /// Tells this node's subscribers, if it is news, and says whether it is: always where it is of this node's monitor, and not heard from another one (`is_heard`).
    fn publish(&self, told: &Arc<Told>, is_heard: bool) -> bool {
        let mut heard = lock(&self.heard);
        // What a slow node or way brings again, when much was told since, would go round among the nodes without an end.
        let is_late = |upto: &u64| told.at_ms <= *upto && upto - told.at_ms < LATE_MS;
        if is_heard && heard.forgotten.get(&told.node).is_some_and(is_late) {
            return false;
        }
        let id = told.id();
        if !heard.seen.insert(id.clone()) {
            return false;
        }
        heard.seen_in_order.push_back((id, told.at_ms));
        heard.recent.push_back(told.clone());
        if heard.seen_in_order.len() > SEEN
            && let Some((oldest, at_ms)) = heard.seen_in_order.pop_front()
        {
            heard.seen.remove(&oldest);
            heard.forgotten.insert(oldest.0, at_ms);
        }
        if heard.recent.len() > RECENT {
            heard.recent.pop_front();
        }
        // Nobody may be subscribed.
        let _ = self.told.send(told.clone());
        true
    }

    /// For [`crate::status::NodeStatus`].
    pub(crate) fn status(&self) -> MonitorStatus {
        // Those without an alarm too: what is counted from 1 on has not grown, to who looks at it.
        let mut alarms: BTreeMap<String, [u64; 2]> = lock(&self.registry).live().map(|one| (one.definition.name.clone(), [0; 2])).collect();
        let predicates = alarms.len();
        let heard = lock(&self.heard);
        alarms.extend(heard.alarms.iter().map(|(name, counts)| (name.clone(), *counts)));
        let alarms = alarms.into_iter().collect();
        MonitorStatus { predicates, numbers: heard.numbers, dropped: self.dropped.load(Ordering::Relaxed), alarms, rollbacks: heard.rollbacks }
    }
}

impl Shared {
    /// Watches for a new predicate, here and, as soon as they hear of it, on all nodes. Errors: in words for its author.
    pub(crate) fn add_monitor(&self, definition: Definition) -> Result<(), String> {
        let named = self.keyspaces.iter().find(|info| info.name == definition.keyspace || info.id.0.to_string() == definition.keyspace);
        let keyspace = named.ok_or_else(|| {
            let all: Vec<&str> = self.keyspaces.iter().map(|info| info.name.as_str()).collect();
            format!("there is no keyspace `{}`; there are: {}", definition.keyspace, all.join(", "))
        })?;
        if !self.can_watch(keyspace.id) {
            return Err(format!("keyspace {} has more than {MOST_PROCESSES} partition servers; so many are not watched", keyspace.name));
        }
        let predicate = Predicate::new(Definition { keyspace: keyspace.name.clone(), ..definition })?;
        let entry = lock(&self.monitors.registry).add(predicate, self.clocks.physical_ms())?;
        self.learn_monitors(vec![entry]).map_err(|why| format!("it is watched, but not kept on disk yet, which is tried again: {why}"))
    }

    /// Watches for it no more; says whether there was one called `name`. Errors: the disk's.
    pub(crate) fn remove_monitor(&self, name: &str) -> Result<bool, String> {
        let Some(entry) = lock(&self.monitors.registry).remove(name, self.clocks.physical_ms()) else { return Ok(false) };
        let kept = self.learn_monitors(vec![entry]);
        kept.map_err(|why| format!("it is watched no more, but that is not kept on disk yet, which is tried again: {why}"))?;
        Ok(true)
    }

    /// The predicates.
    pub(crate) fn list_monitors(&self) -> Vec<MonitorInfo> {
        let registry = lock(&self.monitors.registry);
        let info = |predicate: Arc<Predicate>| {
            let home = self.monitors.nodes.home_of(&Target { name: predicate.name.clone(), bindings: Vec::new() });
            let node = if predicate.definition.infer { String::new() } else { self.topology.nodes[home.index()].name.clone() };
            MonitorInfo { definition: predicate.definition.clone(), kind: predicate.kind(), node }
        };
        registry.live().map(info).collect()
    }

    /// Takes in `entries`, which another node or an operator has told; what is news is kept, and told to the other nodes. May wait for the disk. Errors: the disk's; all else is done then.
    fn learn_monitors(&self, entries: Vec<Entry>) -> Result<(), String> {
        let news = lock(&self.monitors.registry).merge(entries);
        if news.is_empty() {
            return Ok(());
        }
        self.monitors.make_ready(&self.keyspaces);
        self.monitors.hand_in(Input::Predicates);
        self.shards.iter().for_each(|shard| shard.control(Control::Wake));
        let messages = Message::of_registry(news, self.room_for_predicates());
        for peer in self.peers.iter().flatten() {
            messages.iter().for_each(|message| self.send_monitors_message(peer.node(), message));
        }
        self.save_monitors()
    }

    fn save_monitors(&self) -> Result<(), String> {
        let saving = lock(&self.monitors.saving);
        let Some(dir) = &*saving else { return Ok(()) };
        let path = dir.join(registry::FILE);
        let text = lock(&self.monitors.registry).text();
        let written = crate::folder::write_whole(dir, &path, text.as_bytes());
        self.monitors.unsaved.store(written.is_err(), Ordering::Relaxed);
        written.map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Tries again to keep what could not be kept; says whether something is left.
    fn save_monitors_again(&self) -> bool {
        // That it cannot be was said the first time.
        self.monitors.unsaved.load(Ordering::Relaxed) && self.save_monitors().is_err()
    }

    /// A connection to `peer` was made: it is told of rollbacks that are under way.
    pub(crate) fn greet_monitors(&self, peer: &Peer) {
        self.monitors.hand_to_rollback(rollback::Task::Met(peer.node()));
    }

    /// Tells `peer`, to which a connection was made, all predicates: in as many frames as that takes, and each as soon as there is room for it. Ends when the connection does, at the latest.
    pub(crate) async fn tell_predicates(&self, peer: &Peer) {
        let entries = lock(&self.monitors.registry).entries();
        let name = &self.topology.nodes[peer.node().index()].name;
        for message in Message::of_registry(entries, self.room_for_predicates()) {
            let bytes = (name.clone(), message).to_bytes();
            while !peer.send_monitors(self.clocks.monotonic_us(), &bytes) {
                if !peer.is_connected() {
                    return;
                }
                tokio::time::sleep(LOOK_FOR_ROOM).await;
            }
        }
    }

    /// Bytes of predicates that one message has. One has much less: what else is in a frame has room beside them.
    fn room_for_predicates(&self) -> usize {
        self.config.limits.max_frame_bytes / 2
    }

    /// Sends `message` to node `to`, which may be this one; where there is no connection, by way of one that has one. It may be lost.
    pub(crate) fn send_monitors_message(&self, to: NodeId, message: &Message) {
        if to == self.topology.node {
            return self.take_monitors_message(message.clone());
        }
        let Some(node) = self.topology.nodes.get(to.index()) else {
            self.monitors.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let bytes = (node.name.clone(), message.clone()).to_bytes();
        let between = || self.peers.iter().flatten().filter(|peer| self.topology.talk(peer.node(), to)).find(|peer| peer.is_connected());
        let sent = self.peer(to).or_else(between).is_some_and(|peer| peer.send_monitors(self.clocks.monotonic_us(), &bytes));
        if !sent {
            self.monitors.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A message for the monitors of some node has come.
    pub(crate) fn on_monitors_frame(&self, bytes: &[u8]) {
        let Ok((to, message)) = <(String, Message)>::from_bytes(bytes) else {
            self.monitors.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        };
        if to == self.topology.this().name {
            return self.take_monitors_message(message);
        }
        // It is passed on once: to a node that this one talks to.
        let peer = self.topology.nodes.iter().find(|node| node.name == to).and_then(|node| self.peer(node.id));
        if !peer.is_some_and(|peer| peer.send_monitors(self.clocks.monotonic_us(), bytes)) {
            self.monitors.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn take_monitors_message(&self, message: Message) {
        match message {
            Message::Report(report) => {
                let (server, process) = (report.server, report.upto.process());
                let known = self.is_server(report.keyspace, server) && process == self.process_of(report.keyspace, server);
                if known { self.monitors.hand_in(Input::Report(report)) } else { self.monitors.hand_in(Input::Refused) }
            }
            Message::Ask { from, keyspace, server, whole } => {
                let home = self.topology.nodes.iter().find(|node| node.name == from).map(|node| node.id);
                if let (Some(home), Some(shard)) = (home, self.shard_of(keyspace, server).filter(|_| self.is_server(keyspace, server))) {
                    shard.control(Control::AskDetector { keyspace, server, home, whole });
                }
            }
            Message::Rollback { from, number, keyspace, partition, call } => {
                self.monitors.hand_to_rollback(rollback::Task::Step { from, number, keyspace, partition, call });
            }
            Message::RolledBack { number, outcome } => self.monitors.hand_to_rollback(rollback::Task::Answer { number, outcome }),
            Message::Rolling(rolling) => self.monitors.hand_to_rollback(rollback::Task::Rolling(rolling)),
            Message::RollingOver(over) => self.monitors.hand_to_rollback(rollback::Task::Over(over)),
            Message::Told(told) => self.monitors.hand_in(Input::Told(told)),
            Message::Registry(entries) => self.monitors.hand_in(Input::Registry(entries)),
        }
    }

    fn is_server(&self, keyspace: KeyspaceId, server: ServerId) -> bool {
        let replicas = self.topology.replicas.get(usize::from(keyspace.0)).copied().unwrap_or(0);
        server.dc.index() < self.topology.data_centers.len() && server.partition.0 < self.topology.partitions && server.replica < replicas
    }

    fn process_of(&self, keyspace: KeyspaceId, server: ServerId) -> u32 {
        process_of(&self.place_of(keyspace, server), server)
    }

    /// Whether `keyspace` is small enough for hybrid vector clocks.
    pub(crate) fn can_watch(&self, keyspace: KeyspaceId) -> bool {
        processes(&self.place_of(keyspace, ServerId::default())) <= MOST_PROCESSES
    }

    /// Where `server` of `keyspace` stands.
    pub(crate) fn place_of(&self, keyspace: KeyspaceId, server: ServerId) -> Place {
        let replicas = self.topology.replicas.get(usize::from(keyspace.0)).copied().unwrap_or(1);
        self.topology.place(server, replicas)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::NodeConfig;

    fn told(node: &str, number: u64, at_ms: u64) -> Arc<Told> {
        Arc::new(Told { node: node.into(), number, at_ms, keyspace: String::new(), what: What::Gap(None, "why".into()) })
    }

    /// Each node passes on what is news to it: where each forgets what the others still pass on, that has no end.
    #[test]
    fn what_comes_again_when_much_was_told_since_is_no_news() {
        let monitors = Monitors::new(&Topology::new(&NodeConfig::new("test", "a1", "a")), 0, 20);
        let most = 3 * SEEN as u64;
        let hear = || (0..most).filter(|number| monitors.publish(&told("b1", *number, 1_000_000 + number), true)).count() as u64;
        assert_eq!((hear(), hear()), (most, 0));
        assert!(monitors.publish(&told("b1", 5, 1_000_000 + most), true), "it was told again, later");
        assert!(monitors.publish(&told("c1", 5, 1_000_000), true), "another node has said it");
        assert!(monitors.publish(&told("b1", 6, 1_000_000), false), "of a monitor of this node everything is news");
        assert!(monitors.publish(&told("b1", 7, 1_000), true), "its clock was set back");
    }
}
