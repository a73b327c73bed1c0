//! One partition server: one thread, one queue, a clock of its own.

use super::{Asked, EPOCH_MS, Event, World};
use crate::experiment::Point;
use rheostat_core::DcId;
use rheostat_core::ids::{KeyspaceId, Now, OpId, Place, ServerId};
use rheostat_core::operation::Operation;
use rheostat_core::replica::{Done, Execution, Outbox, PartitionServer, ReplicaConfig};
use rheostat_core::session::Session;
use rheostat_core::store::Durability;
use rheostat_monitor::detector::Detector;
use rheostat_protocols::registry;
use rheostat_stack::{Backing, Plan};
use std::collections::{BTreeMap, VecDeque};

/// What a monotonic clock shows at the beginning, in microseconds.
const MONOTONIC_START_US: u64 = 5_000_000;

/// What waits for a server's thread.
pub(super) enum Work {
    /// A client's request.
    Request(Asked, Box<(Operation, Session)>),
    /// A message of another server.
    Frame {
        from: ServerId,
        bytes: Vec<u8>,
        /// Whether it was sent for the sake of an operation.
        caused: bool,
    },
    /// The timer.
    Tick,
}

pub(super) struct Server {
    pub(super) id: ServerId,
    pub(super) place: Place,
    pub(super) node: Box<dyn PartitionServer>,
    /// What watches it, if anything does, and when it tells next.
    pub(super) detector: Option<Detector>,
    pub(super) telling_at_ns: u64,
    pub(super) ahead_us: i64,
    /// What it sends leaves so much later.
    slow_ns: u64,
    /// What waits, and since when.
    queue: VecDeque<(u64, Work)>,
    /// The same, of what goes before.
    first: VecDeque<(u64, Work)>,
    free_at_ns: u64,
    /// An event will take the next thing from the queue.
    waking: bool,
    tick_at_ns: u64,
    waiting: BTreeMap<OpId, Asked>,
    pub(super) busy_ns: u64,
}

/// How many servers a partition has in a data center: those that the protocol knows of.
pub(super) fn replicas(protocol: &str, asked: u8) -> u8 {
    registry::info(protocol).map_or(1, |info| if info.can.agrees() { asked.min(info.can.most_replicas) } else { 1 })
}

impl Server {
    pub(super) fn open(point: &Point, id: ServerId, replicas: u8, ahead_ms: f64, slow_ns: u64, seed: u64) -> Result<Server, String> {
        let cluster = &point.cluster;
        let place = Place {
            server: id,
            data_centers: cluster.regions.len() as u8,
            partitions: cluster.partitions,
            first_partitions: cluster.partitions,
            replicas,
        };
        let mut config = ReplicaConfig::new(place, KeyspaceId(0));
        config.durability = Durability::Memory;
        config.seed = seed;
        // Deadlines are for users; here everything is waited for.
        config.operation_timeout_us = 600_000_000;
        config.max_waiting = 1_000_000;
        let (protocol, options) = (&point.contender.protocol, &point.contender.options);
        let plan = Plan { protocol, options, counters: &rheostat_counters::Options::default(), config };
        let node = plan.open(Backing::Memory)?.0.into_server();
        let (queue, waiting, ahead_us) = (VecDeque::new(), BTreeMap::new(), (ahead_ms * 1000.0) as i64);
        let (detector, telling_at_ns) = (None, u64::MAX);
        Ok(Server {
            id,
            place,
            node,
            detector,
            telling_at_ns,
            ahead_us,
            slow_ns,
            queue,
            first: VecDeque::new(),
            free_at_ns: 0,
            waking: false,
            tick_at_ns: u64::MAX,
            waiting,
            busy_ns: 0,
        })
    }

    /// Both clocks at `now_ns`.
    pub(super) fn reading(&self, now_ns: u64) -> Now {
        reading(now_ns, self.ahead_us)
    }
}

/// Both clocks at `now_ns`, of a server whose physical one is ahead by so much.
pub(super) fn reading(now_ns: u64, ahead_us: i64) -> Now {
    let us = now_ns / 1000;
    Now { monotonic_us: us + MONOTONIC_START_US, physical_ms: (EPOCH_MS * 1000 + us).saturating_add_signed(ahead_us) / 1000 }
}

/// When the monotonic clock shows `us`, or a little after `now_ns` if it has.
pub(super) fn at_ns(us: u64, now_ns: u64) -> u64 {
    us.saturating_sub(MONOTONIC_START_US).saturating_mul(1000).max(now_ns + 1000)
}

impl World<'_> {
    pub(super) fn start(&mut self, server: usize) {
        let now = self.servers[server].reading(self.now_ns);
        let mut out = Outbox::default();
        self.servers[server].node.start(now, &mut out);
        self.leave(server, out, false, 0);
    }

    pub(super) fn arrives(&mut self, server: usize, work: Work) {
        let state = &mut self.servers[server];
        if matches!(work, Work::Tick) && state.tick_at_ns != self.now_ns {
            return;
        }
        if state.free_at_ns <= self.now_ns && state.queue.is_empty() && state.first.is_empty() {
            self.serve(server, self.now_ns, work);
            return;
        }
        let goes_first = self.point.cluster.service.messages_first && !matches!(work, Work::Request(..));
        let queue = if goes_first { &mut state.first } else { &mut state.queue };
        queue.push_back((self.now_ns, work));
        if !state.waking {
            state.waking = true;
            let at_ns = state.free_at_ns;
            self.schedule(at_ns, Event::Free(server));
        }
    }

    pub(super) fn free(&mut self, server: usize) {
        self.servers[server].waking = false;
        let state = &mut self.servers[server];
        if let Some((since_ns, work)) = state.first.pop_front().or_else(|| state.queue.pop_front()) {
            self.serve(server, since_ns, work);
        }
        let state = &mut self.servers[server];
        if !state.queue.is_empty() || !state.first.is_empty() {
            state.waking = true;
            let at_ns = state.free_at_ns;
            self.schedule(at_ns, Event::Free(server));
        }
    }

    /// One step of a server's thread: what it costs passes before anything of it leaves.
    fn serve(&mut self, server: usize, since_ns: u64, work: Work) {
        let service = self.point.cluster.service;
        let per_byte_us = service.kilobyte_us / 1000.0;
        let state = &mut self.servers[server];
        let now = state.reading(self.now_ns);
        let mut out = Outbox::default();
        let (mut cost_us, mut caused, mut answer) = (0.0, false, None);
        match work {
            Work::Request(asked, request) => {
                let (mut operation, mut session) = *request;
                operation.has_waited((self.now_ns - since_ns) / 1000);
                cost_us += service.request_us;
                if let Operation::ReadTransaction { keys, .. } = &operation {
                    cost_us += service.key_us * (keys.len() - 1) as f64;
                }
                caused = true;
                match state.node.execute(now, operation, &mut session, &mut out) {
                    Execution::Done { outcome, .. } => answer = Some((asked, outcome, session)),
                    Execution::Waiting(op) => {
                        state.waiting.insert(op, asked);
                    }
                }
            }
            Work::Frame { from, bytes, caused: for_operation } => {
                cost_us += service.message_us + bytes.len() as f64 * per_byte_us;
                caused = for_operation;
                state.node.receive(now, from, &bytes, &mut out);
            }
            Work::Tick => {
                state.tick_at_ns = u64::MAX;
                if state.node.next_tick_us() <= now.monotonic_us {
                    state.node.tick(now, &mut out);
                }
            }
        }
        let sent: usize = out.frames.iter().map(|(_, bytes)| bytes.len()).sum();
        cost_us += service.message_us * out.frames.len() as f64 + sent as f64 * per_byte_us;
        let cost_ns = (cost_us * 1000.0) as u64;
        self.leave(server, out, caused, cost_ns);
        if let Some((asked, outcome, session)) = answer {
            self.reply(server, asked, outcome, session, cost_ns);
        }
    }

    /// What follows a step: frames and answers leave when its cost has passed, and the timer is set.
    fn leave(&mut self, server: usize, mut out: Outbox, caused: bool, cost_ns: u64) {
        let now_ns = self.now_ns;
        self.servers[server].node.write_through();
        self.servers[server].free_at_ns = now_ns;
        self.spend(server, cost_ns as f64 / 1000.0);
        if self.watching.is_some() {
            let cost_us = self.detect(server, &mut out.applied);
            self.spend(server, cost_us);
        }
        for Done { op, outcome, session } in out.done.drain(..) {
            if let Some(asked) = self.servers[server].waiting.remove(&op) {
                self.reply(server, asked, outcome, session, cost_ns);
            }
        }
        let from = self.servers[server].id;
        for (to, bytes) in out.frames.drain(..) {
            self.unwatched_bytes += bytes.len();
            if self.measuring {
                let length = bytes.len() as u64;
                let messages = &mut self.messages;
                if from.dc != to.dc {
                    (messages.between, messages.between_bytes) = (messages.between + 1, messages.between_bytes + length);
                } else if caused {
                    (messages.inside, messages.inside_bytes) = (messages.inside + 1, messages.inside_bytes + length);
                } else {
                    messages.background += 1;
                }
            }
            let target = self.index(to);
            let leaves_ns = now_ns + cost_ns + self.servers[server].slow_ns;
            let sent_ns = self.sent_at_ns(leaves_ns, (from.dc, to.dc), bytes.len());
            let at_ns = self.passes_ns(sent_ns, from.dc, to.dc) + self.way_ns(from.dc, to.dc);
            let last = &mut self.arrivals_ns[server * self.servers.len() + target];
            *last = at_ns.max(*last);
            let at_ns = *last;
            self.schedule(at_ns, Event::Arrives(target, Work::Frame { from, bytes, caused }));
        }
        let state = &mut self.servers[server];
        let next_us = state.node.next_tick_us();
        if next_us != u64::MAX {
            let at_ns = at_ns(next_us, now_ns);
            if at_ns < state.tick_at_ns {
                state.tick_at_ns = at_ns;
                self.schedule(at_ns, Event::Arrives(server, Work::Tick));
            }
        }
    }

    /// A server's thread is busy for so long.
    pub(super) fn spend(&mut self, server: usize, cost_us: f64) {
        let cost_ns = (cost_us * 1000.0) as u64;
        let state = &mut self.servers[server];
        state.free_at_ns = state.free_at_ns.max(self.now_ns) + cost_ns;
        state.busy_ns += cost_ns;
    }

    /// When the last of so many bytes has left, which are ready to be sent at `ready_ns`: a link takes one after the other.
    fn sent_at_ns(&mut self, ready_ns: u64, (from, to): (DcId, DcId), bytes: usize) -> u64 {
        let Some(megabits) = self.point.cluster.megabits.filter(|_| from != to) else { return ready_ns };
        let sent_ns = &mut self.sent_ns[from.index()][to.index()];
        *sent_ns = ready_ns.max(*sent_ns) + (bytes as f64 * 8_000.0 / megabits) as u64;
        *sent_ns
    }

    fn reply(&mut self, server: usize, asked: Asked, outcome: rheostat_core::outcome::Outcome, session: Session, cost_ns: u64) {
        let from = self.servers[server].id.dc;
        let dc = self.clients[asked.client].dc;
        let leaves_ns = self.now_ns + cost_ns + self.servers[server].slow_ns;
        let at_ns = self.passes_ns(leaves_ns, from, dc) + self.client_way_ns(dc, from);
        self.messages.clients += u64::from(self.measuring);
        self.schedule(at_ns, Event::Answer(Box::new(super::Answer { asked, outcome, session })));
    }
}
