//! The network: delays, cuts, loss, doubling, overtaking, broken connections.

use crate::marks;
use crate::plan::{Spread, Transport};
use crate::trace::TraceLevel;
use crate::watch::{BY_HAND, Touch};
use crate::world::{Event, ServerIndex, World};

/// Why nodes do not talk to each other of which one has been split.
pub(crate) const OF_OTHER_PARTITIONS: &str = "one of the two has been split";

/// A new connection between data centers takes so many round trips.
const HANDSHAKE: u64 = 3;

impl World<'_> {
    /// Sends a frame on its way.
    pub(crate) fn send(&mut self, from: ServerIndex, to: ServerIndex, bytes: Vec<u8>) {
        let (source, target) = (self.servers[from].id, self.servers[to].id);
        let remote = source.dc != target.dc;
        self.trace.line(TraceLevel::Full, self.now_us, source, || {
            let words = self.servers[from].node.as_ref().map(|node| node.describe(remote, &bytes));
            format!("sends to {target}: {}", words.unwrap_or_default())
        });
        if remote && self.servers[from].node.as_ref().is_some_and(|node| node.resumes(&bytes)) {
            self.marks.see(marks::LINK_RESUMED);
        }
        let now_us = self.now_us;
        let route = *self.route(source.dc, target.dc);
        let (number, touch) = self.watch_frame(from, to, remote, &bytes);
        if !self.speak_of_the_same(from, to, self.parts(source.dc)) {
            self.watch_lost(number, OF_OTHER_PARTITIONS);
            self.lose();
            return;
        }
        if remote && route.cuts > 0 {
            self.watch_lost(number, "the way is cut");
            self.lose();
            return;
        }
        if !remote && (self.servers[from].isolated > 0 || self.servers[to].isolated > 0) {
            self.watch_lost(number, "a server is cut off in its data center");
            self.lose();
            return;
        }
        let delay = if remote { route.delay.unwrap_or(Spread { least_us: 1_000, jitter_us: 0 }) } else { self.plan.local };
        let slow_us = self.servers[to].slow_us;
        let (transport, healed, parts) = (self.plan.transport, self.healed, self.parts(source.dc));
        let link = self.link(from, to);
        let mut at_us =
            || now_us.max(route.held_until_us) + delay.least_us + link.random.below(delay.jitter_us + 1) + link.slow_us + slow_us + touch.delay_us();
        match transport {
            Transport::Datagram { loss, duplicate } if remote => {
                let at_us = [at_us(), at_us()];
                let (lost, twice) = (link.random.chance(loss.into(), 1000), link.random.chance(duplicate.into(), 1000));
                if lost && !healed || touch == Touch::Drop {
                    self.watch_lost(number, if touch == Touch::Drop { BY_HAND } else { "the network lost it" });
                    self.lose();
                    return;
                }
                if twice && !healed {
                    self.marks.see(marks::FRAME_DOUBLED);
                    self.schedule(at_us[1], Event::Frame { from, to, connection: None, bytes: bytes.clone(), number, parts });
                }
                self.schedule(at_us[0], Event::Frame { from, to, connection: None, bytes, number, parts });
            }
            _ => {
                let at_us = at_us().max(link.last_arrival_us);
                if touch == Touch::Drop {
                    self.watch_lost(number, BY_HAND);
                    self.lose();
                    // A connection loses nothing without breaking.
                    if remote {
                        self.break_connection(from, to);
                        self.connect(from, to);
                    }
                    return;
                }
                link.last_arrival_us = at_us;
                let connection = Some(link.connection);
                self.schedule(at_us, Event::Frame { from, to, connection, bytes, number, parts });
            }
        }
    }

    /// Whether a frame from a server whose partition was as many parts then means the same to the one that it comes to, as nodes find when they greet.
    pub(crate) fn speak_of_the_same(&self, from: ServerIndex, to: ServerIndex, parts: u16) -> bool {
        let [from, to] = [from, to].map(|server| self.parts(self.servers[server].id.dc));
        parts == from && from == to || self.planted.is("split-heard-by-those-that-are-not")
    }

    /// The servers that `server` talks to: of its data center, and of its partition.
    pub(crate) fn others_of(&self, server: ServerIndex) -> impl Iterator<Item = ServerIndex> + use<> {
        let here = self.servers[server].id;
        let ids: Vec<ServerIndex> = self
            .servers
            .iter()
            .enumerate()
            .filter(|(_, other)| other.id != here && (other.id.dc == here.dc || other.id.partition == here.partition))
            .map(|(index, _)| index)
            .collect();
        ids.into_iter()
    }

    /// How long it takes from one server to another, at least; `None` if nothing gets there.
    pub(crate) fn way_us(&mut self, from: ServerIndex, to: ServerIndex) -> Option<u64> {
        let (source, target) = (self.servers[from].id, self.servers[to].id);
        let slow_us = self.servers[to].slow_us + self.link(from, to).slow_us;
        if source.dc == target.dc {
            return Some(self.plan.local.least_us + slow_us);
        }
        let route = *self.route(source.dc, target.dc);
        let delay_us = route.delay.map_or(1_000, |delay| delay.least_us);
        (route.cuts == 0).then(|| route.held_until_us.saturating_sub(self.now_us) + delay_us + slow_us)
    }

    /// A server asks the others for the time.
    pub(crate) fn ask_time(&mut self, server: ServerIndex) {
        let state = &self.servers[server];
        if state.node.is_none() || state.paused_until_us > self.now_us {
            return;
        }
        let (asked_us, incarnation) = (state.clock.monotonic_us(self.now_us), state.incarnation);
        for other in self.others_of(server) {
            if let Some(way_us) = self.way_us(server, other) {
                self.schedule(self.now_us + way_us, Event::TimeAsked { from: server, to: other, asked_us, incarnation });
            }
        }
    }

    /// A server is asked for the time: it says what its clock shows, whatever it thinks of it.
    pub(crate) fn time_asked(&mut self, from: ServerIndex, to: ServerIndex, asked_us: u64, incarnation: u32) {
        let state = &self.servers[to];
        if state.node.is_none() || state.paused_until_us > self.now_us {
            return;
        }
        let physical_us = state.clock.physical_us(self.now_us);
        if let Some(way_us) = self.way_us(to, from) {
            self.schedule(self.now_us + way_us, Event::TimeTold { from: to, to: from, asked_us, incarnation, physical_us });
        }
    }

    /// What a server that starts hears of the others before it does anything else, as fast as the ways are.
    pub(crate) fn hear_others(&mut self, server: ServerIndex) {
        for (number, other) in self.others_of(server).enumerate() {
            let ways = self.way_us(server, other).zip(self.way_us(other, server));
            let state = &self.servers[other];
            if let Some((there_us, back_us)) = ways.filter(|_| state.node.is_some() && state.paused_until_us <= self.now_us) {
                let physical_us = state.clock.physical_us(self.now_us).saturating_sub(back_us);
                let clock = &mut self.servers[server].clock;
                let asked_us = clock.monotonic_us(self.now_us).saturating_sub(there_us + back_us);
                clock.hear(self.now_us, number, asked_us, physical_us);
            }
        }
    }

    fn lose(&mut self) {
        self.marks.see(marks::FRAME_LOST);
        self.trace.number(self.now_us ^ 2);
    }

    /// How long something between a client and a server takes.
    pub(crate) fn local_delay(&mut self, client: usize, server: ServerIndex) -> u64 {
        let Spread { least_us, jitter_us } = self.plan.near;
        least_us + self.clients[client].random.below(jitter_us + 1) + self.servers[server].slow_us
    }

    /// How long a read under a service level takes to a server that is perhaps of another data center, or its answer back; `None`: it is lost.
    pub(crate) fn delay_in_course(&mut self, client: usize, server: ServerIndex, back: bool) -> Option<u64> {
        let near_us = self.local_delay(client, server);
        let id = self.servers[server].id;
        let Some(home) = self.clients[client].away_from().filter(|home| *home != id.dc) else { return Some(near_us) };
        let gate = self.index(rheostat_core::ids::ServerId { dc: home, ..id });
        let way_us = if back { self.way_us(server, gate) } else { self.way_us(gate, server) };
        way_us.map(|way_us| near_us + way_us)
    }

    /// Everything under way between two servers is lost, both ways.
    pub(crate) fn break_connection(&mut self, a: ServerIndex, b: ServerIndex) {
        for (from, to) in [(a, b), (b, a)] {
            let link = self.link(from, to);
            link.connection += 1;
            link.last_arrival_us = 0;
        }
    }

    /// All connections of a server break.
    pub(crate) fn break_connections(&mut self, server: ServerIndex) {
        for other in 0..self.servers.len() {
            if other != server {
                self.break_connection(server, other);
            }
        }
    }

    /// Two servers of different data centers have a connection again; both learn it when the handshake is over.
    pub(crate) fn connect(&mut self, a: ServerIndex, b: ServerIndex) {
        let (here, there) = (self.servers[a].id.dc, self.servers[b].id.dc);
        let one_way = |route: &crate::world::Route| route.delay.map_or(1_000, |delay| delay.least_us);
        let delay_us = one_way(self.route(here, there)).max(one_way(self.route(there, here)));
        for (server, dc) in [(a, there), (b, here)] {
            let incarnation = self.servers[server].incarnation;
            self.schedule(self.now_us + HANDSHAKE * delay_us, Event::Connected { server, incarnation, dc });
        }
    }

    /// A cut of everything from one data center to another begins, or ends.
    pub(crate) fn cut(&mut self, from: rheostat_core::DcId, to: rheostat_core::DcId, begins: bool) {
        let route = self.route(from, to);
        route.cuts = if begins { route.cuts + 1 } else { route.cuts.saturating_sub(1) };
        let whole = route.cuts == 0;
        if self.plan.transport != Transport::Stream {
            return;
        }
        for a in 0..self.servers.len() {
            for b in 0..self.servers.len() {
                let (here, there) = (self.servers[a].id, self.servers[b].id);
                if here.dc != from || there.dc != to || here.partition != there.partition {
                    continue;
                }
                if begins {
                    self.break_connection(a, b);
                } else if whole {
                    self.connect(a, b);
                }
            }
        }
    }
}
