//! An operator who says that a data center is lost for ever, as `rheostat ctl dc lost` does it: first that nobody hears it any more; and when all that are left have the same of it, up to where that is. And who lets
//! another one in, in its place or in one that was free from the beginning, as `rheostat ctl dc add` does it: first each of the others learns of it, then it may begin.

use crate::marks;
use crate::world::{Event, ServerIndex, World};
use rheostat_core::ids::{PartitionId, ServerId};
use rheostat_core::version::VersionId;
use rheostat_core::{DcId, Timestamp};

/// How often the operator looks, in microseconds.
const LOOK_US: u64 = 100_000;

/// How many data centers have had a place when another one has it.
const GENERATION: u32 = 1;

/// A data center that is said to be lost.
pub(crate) struct Lost {
    pub(crate) dc: DcId,
    /// All servers that are left have been told.
    told: bool,
    /// By partition, up to where its servers wrote anything that anybody has.
    pub(crate) ends: Vec<Option<Timestamp>>,
    /// What has become of its place.
    arrival: Arrival,
}

/// How far another one is that has the place of a lost one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Arrival {
    /// There is none.
    None,
    /// It is to come, as soon as all have the same of the lost one.
    Expected,
    /// Its servers have been started.
    Started,
    /// Those in data centers before this one know of it.
    Known(DcId),
    /// It may begin.
    Open,
}

impl Lost {
    /// One that nobody has ever been in.
    pub(crate) fn reserved(dc: DcId, partitions: u16) -> Lost {
        Lost { dc, told: true, ends: vec![Some(Timestamp::ZERO); usize::from(partitions)], arrival: Arrival::None }
    }
}

impl World<'_> {
    /// The operator begins.
    pub(crate) fn say_lost(&mut self, dc: DcId) {
        if self.lost.iter().all(|lost| lost.dc != dc) {
            self.trace.line(crate::trace::TraceLevel::Story, self.now_us, "operator", || format!("says that data center {dc} is lost"));
            // What a group has decided is its own, wherever it was written.
            let end = crate::node::can(&self.plan.protocol).agrees().then_some(Timestamp::ZERO);
            let ends = vec![end; usize::from(self.plan.partitions)];
            self.lost.push(Lost { dc, told: false, ends, arrival: Arrival::None });
            self.schedule(self.now_us, Event::Operator);
        }
    }

    /// Another data center is there, in the place of `dc`.
    pub(crate) fn say_arrival(&mut self, dc: DcId) {
        let Some(lost) = self.lost.iter_mut().find(|lost| lost.dc == dc && lost.arrival == Arrival::None) else { return };
        lost.arrival = Arrival::Expected;
        if lost.ends.iter().all(Option::is_some) {
            self.schedule(self.now_us, Event::Operator);
        }
    }

    /// The operator goes on.
    pub(crate) fn operate(&mut self) {
        let living: Vec<ServerIndex> = (0..self.servers.len()).filter(|server| !self.gone.contains(&self.servers[*server].id.dc)).collect();
        let answers = |server: &ServerIndex| self.servers[*server].node.is_some() && self.servers[*server].paused_until_us <= self.now_us;
        let all = living.iter().all(answers);
        for place in 0..self.lost.len() {
            if !all || self.failure.is_some() {
                break;
            }
            if self.lost[place].ends.iter().all(Option::is_some) {
                self.let_in(place, &living);
                continue;
            }
            if !std::mem::replace(&mut self.lost[place].told, true) {
                living.iter().for_each(|server| self.tell_lost(*server));
                continue;
            }
            for partition in (0..self.plan.partitions).map(PartitionId) {
                let index = usize::from(partition.0);
                let servers: Vec<ServerIndex> = living.iter().copied().filter(|server| self.servers[*server].id.partition == partition).collect();
                if self.lost[place].ends[index].is_some() {
                    continue;
                }
                if let Some(end) = self.agreed(self.lost[place].dc, &servers) {
                    self.lost[place].ends[index] = Some(end);
                    servers.into_iter().for_each(|server| self.tell_lost(server));
                }
            }
        }
        let waits = |lost: &Lost| lost.ends.iter().any(Option::is_none) || !matches!(lost.arrival, Arrival::None | Arrival::Open);
        if self.lost.iter().any(|lost| lost.ends.iter().all(Option::is_some)) {
            self.marks.see(marks::GIVEN_UP);
        }
        if self.lost.iter().any(waits) && self.failure.is_none() {
            self.schedule(self.now_us + LOOK_US, Event::Operator);
        }
    }

    /// The next step of another data center that is to have the place of a lost one; all servers answer.
    fn let_in(&mut self, place: usize, living: &[ServerIndex]) {
        let dc = self.lost[place].dc;
        let next = match self.lost[place].arrival {
            Arrival::Expected => {
                self.trace.line(crate::trace::TraceLevel::Story, self.now_us, "operator", || format!("starts data center {dc} with nothing"));
                self.arrive(dc);
                Arrival::Started
            }
            Arrival::Started => Arrival::Known(DcId(1)),
            Arrival::Known(next) if next.0 < self.plan.data_centers => Arrival::Known(DcId(next.0 + 1)),
            Arrival::Known(_) => {
                self.marks.see(marks::LET_IN);
                Arrival::Open
            }
            Arrival::None | Arrival::Open => return,
        };
        self.lost[place].arrival = next;
        living.iter().for_each(|server| self.tell_lost(*server));
    }

    /// The servers of `dc` start with nothing.
    fn arrive(&mut self, dc: DcId) {
        self.gone.retain(|gone| *gone != dc);
        // Who has used the one that is lost is none of those who use this one.
        for client in 0..self.clients.len() {
            if self.clients[client].has_asked_in(dc) {
                self.clients[client].end(self.plan.clients[client].steps.len());
            }
        }
        for server in (0..self.servers.len()).filter(|server| self.servers[*server].id.dc == dc).collect::<Vec<_>>() {
            let state = &mut self.servers[server];
            (state.wiped, state.joined, state.incarnation) = (true, true, state.incarnation + 1);
            let config = self.config(server);
            match crate::node::open(&self.plan.protocol, &self.plan.options, &self.plan.counting, config, self.plan.cold) {
                Ok(node) => self.servers[server].node = Some(node),
                Err(why) => return self.fail("progress", format!("{} does not start: {why}\n", self.servers[server].id)),
            }
            self.servers[server].since_us = self.now_us;
            self.start(server);
            for peer in 0..self.servers.len() {
                let (here, there) = (self.servers[server].id, self.servers[peer].id);
                if there.partition == here.partition && there.dc != here.dc {
                    self.connect(peer, server);
                }
            }
        }
    }

    /// Up to where `servers` have on disk what `dc` wrote, if that is the same everywhere.
    fn agreed(&self, dc: DcId, servers: &[ServerIndex]) -> Option<Timestamp> {
        let place = |server: &ServerIndex| {
            let state = &self.servers[*server];
            let links = state.node.as_ref()?.look().status(state.clock.read(self.now_us)).links;
            links.into_iter().find(|link| link.dc == dc).map(|link| (link.received, link.received_durable))
        };
        let places: Option<Vec<(Timestamp, Timestamp)>> = servers.iter().map(place).collect();
        let places = places?;
        let (first, _) = *places.first()?;
        places.iter().all(|(received, durable)| *received == first && *durable == first).then_some(first)
    }

    /// Tells `server` what the operator has said; it is told again at each start.
    pub(crate) fn tell_lost(&mut self, server: ServerIndex) {
        for place in 0..self.lost.len() {
            let now = self.servers[server].clock.read(self.now_us);
            let ServerId { dc: here, partition, .. } = self.servers[server].id;
            let partition = usize::from(partition.0);
            let Lost { dc, arrival, ref ends, .. } = self.lost[place];
            let end = ends[partition];
            let mut out = std::mem::take(&mut self.outbox);
            let Some(node) = &mut self.servers[server].node else { return };
            match arrival {
                Arrival::Known(next) if here < next => node.server().admit(now, dc, GENERATION, false, &mut out),
                Arrival::Open => node.server().admit(now, dc, GENERATION, true, &mut out),
                _ => node.server().lose(now, dc, end, &mut out),
            }
            node.server().end_round(now, &mut out);
            node.server().write_through();
            self.after_round(server, out, Vec::new());
        }
    }

    /// Up to where anybody has what `dc`, which is lost, wrote in `partition`; `None` while that is not known.
    pub(crate) fn end_of(&self, dc: DcId, partition: PartitionId) -> Option<Timestamp> {
        self.lost.iter().find(|lost| lost.dc == dc)?.ends[usize::from(partition.0)]
    }

    /// Notes what `server`, whose data center dies, may have written at most.
    pub(crate) fn note_last_word(&mut self, server: ServerIndex) {
        let now = self.servers[server].clock.read(self.now_us);
        let clock = self.servers[server].node.as_ref().map(|node| node.look().status(now).clock);
        // One that is down already wrote nothing after that.
        self.servers[server].last_word = clock.unwrap_or_else(|| Timestamp::new(now.physical_ms, 0)).max(self.servers[server].last_word);
    }

    /// Whether `version`, of a key of `partition`, was lost with the data center that it was written in.
    pub(crate) fn died_with(&self, version: &VersionId, partition: PartitionId) -> bool {
        if crate::node::can(&self.plan.protocol).agrees() {
            return false;
        }
        let server = self.index(ServerId::new(version.origin, partition));
        self.end_of(version.origin, partition).is_some_and(|end| version.written > end && version.written <= self.servers[server].last_word)
    }

    /// Whether another data center has the place of `dc`, or is going to.
    pub(crate) fn expects(&self, dc: DcId) -> bool {
        self.lost.iter().any(|lost| lost.dc == dc && lost.arrival != Arrival::None)
    }

    /// A data center that is to come, and may not begin yet.
    pub(crate) fn awaits_arrival(&self) -> Option<DcId> {
        let expected = |lost: &&Lost| !matches!(lost.arrival, Arrival::None | Arrival::Open);
        self.lost.iter().find(expected).map(|lost| lost.dc)
    }

    /// Whether a data center has died that nobody has given up.
    pub(crate) fn mourns(&self) -> bool {
        self.gone.iter().any(|dc| self.lost.iter().all(|lost| lost.dc != *dc))
    }
}
