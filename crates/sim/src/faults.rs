//! Faults: what there is, how it reads in a plan, how it begins and ends. Who draws plans chooses among them.

use crate::marks;
use crate::plan::Transport;
use crate::text::{Millis, Parsed, Words, parse_time};
use crate::trace::TraceLevel;
use crate::world::{Event, ServerIndex, World};
use rheostat_core::ids::ServerId;
use rheostat_core::store::Position;
use rheostat_core::{DcId, Timestamp};
use rheostat_stack::Halt;
use std::fmt;

/// Something that goes wrong for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// When it begins.
    pub from_us: u64,
    /// When it ends; of no importance to what happens in a moment.
    pub until_us: u64,
    /// What.
    pub kind: FaultKind,
}

/// When a server dies that is to die: at the fault's beginning, or with the first of what happens at it after that. If none does before the fault's end, it lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// At once.
    AtOnce,
    /// In the middle of its next round: its work is done, but not handed to the operating system, and nothing of it left.
    MidRound,
    /// After the next round in which it logged something that a client asked for: that is handed to the operating system, and nothing of it left.
    Asked,
    /// When it has told a client that something is written.
    Answered,
    /// When a flush has ended, before anything leaves that waited for it.
    Flushed,
    /// After the next round in which it logged something of its own accord, a stable vector for example, that is handed to the operating system, and nothing of it left.
    Kept,
    /// After the next round in which another server sent it something that it logged: as in [`Moment::Kept`].
    Received,
}

impl Moment {
    /// Every moment with its word; at once has none.
    const WORDS: [(Moment, &'static str); 7] = [
        (Moment::AtOnce, ""),
        (Moment::MidRound, "mid-round"),
        (Moment::Asked, "asked"),
        (Moment::Answered, "answered"),
        (Moment::Flushed, "flushed-now"),
        (Moment::Kept, "kept"),
        (Moment::Received, "received"),
    ];

    /// Every moment but at once.
    pub const AIMED: [Moment; 6] = [Moment::MidRound, Moment::Asked, Moment::Answered, Moment::Flushed, Moment::Kept, Moment::Received];
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Moment::WORDS.iter().find(|(moment, _)| moment == self) {
            Some((_, word)) if !word.is_empty() => write!(f, " {word}"),
            _ => Ok(()),
        }
    }
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// Nothing passes from one data center to another. What is sent meanwhile is lost, or waits if `hold`.
    Cut {
        /// The sender's data center.
        from: DcId,
        /// The receiver's.
        to: DcId,
        /// Whether frames wait for the end instead of being lost.
        hold: bool,
    },
    /// Frames from one server to another take longer.
    SlowLink {
        /// The sender.
        from: ServerId,
        /// The receiver.
        to: ServerId,
        /// How much longer, in microseconds.
        extra_us: u64,
    },
    /// Everything that goes to this server takes longer, clients' requests included.
    SlowServer {
        /// The server.
        server: ServerId,
        /// How much longer, in microseconds.
        extra_us: u64,
    },
    /// The connection between two servers breaks, in a moment: what is under way either way is lost.
    Break {
        /// One server.
        a: ServerId,
        /// The other.
        b: ServerId,
    },
    /// The server does nothing; at the end, everything that has come meanwhile at once.
    Pause {
        /// The server.
        server: ServerId,
    },
    /// The server does not hear the other servers of its data center, nor they it: what is sent meanwhile is lost. Clients reach it.
    Isolate {
        /// The server.
        server: ServerId,
    },
    /// The server's process is killed, and starts again at the end. What it handed to the operating system is there.
    Kill {
        /// The server.
        server: ServerId,
        /// When it dies.
        moment: Moment,
    },
    /// The server loses power, and starts again at the end. What its disk confirmed is there.
    PowerLoss {
        /// The server.
        server: ServerId,
        /// A flush that was under way reached the disk, though nobody was told.
        flushed: bool,
        /// When it dies.
        moment: Moment,
    },
    /// The data center loses power, and never comes back. At the end, if that is later, an operator says that it is lost.
    Death {
        /// The data center.
        dc: DcId,
    },
    /// The data center is not there from the beginning: its place is free, as all others know. Without duration, at the beginning.
    Reserved {
        /// The data center.
        dc: DcId,
    },
    /// A data center with nothing on its disks is started in a free place, or in that of one that has died and was said to be lost; when that is done, an operator lets it in.
    Arrival {
        /// Whose place it has.
        dc: DcId,
    },
    /// The server loses its disk, and begins at the end with an empty one.
    LostDisk {
        /// The server.
        server: ServerId,
    },
    /// The server is drained: it hands over what it leads, and leads nothing until the end.
    Drain {
        /// The server.
        server: ServerId,
    },
    /// The server moves to another machine: it is closed with everything on disk, and starts again there at the end, from the same files, with that machine's clocks.
    Move {
        /// The server.
        server: ServerId,
        /// How far ahead the physical clock there is of the one here, in milliseconds.
        by_ms: i64,
    },
    /// The data center's servers are closed with everything on disk, or killed; at the end each begins again as several, of which each has a part of its slots.
    Split {
        /// The data center.
        dc: DcId,
        /// They are killed.
        killed: bool,
    },
    /// The server's flushes take longer.
    SlowDisk {
        /// The server.
        server: ServerId,
        /// How much longer, in microseconds.
        extra_us: u64,
    },
    /// The server's physical clock jumps, in a moment.
    ClockJump {
        /// The server.
        server: ServerId,
        /// How far ahead, in milliseconds.
        by_ms: i64,
    },
}

impl FaultKind {
    /// The servers that it names.
    pub fn servers_mut(&mut self) -> Vec<&mut ServerId> {
        match self {
            FaultKind::Cut { .. } | FaultKind::Death { .. } | FaultKind::Reserved { .. } | FaultKind::Arrival { .. } | FaultKind::Split { .. } => {
                Vec::new()
            }
            FaultKind::SlowLink { from: a, to: b, .. } | FaultKind::Break { a, b } => vec![a, b],
            FaultKind::SlowServer { server, .. }
            | FaultKind::Pause { server }
            | FaultKind::Isolate { server }
            | FaultKind::Kill { server, .. }
            | FaultKind::PowerLoss { server, .. }
            | FaultKind::LostDisk { server }
            | FaultKind::Drain { server }
            | FaultKind::Move { server, .. }
            | FaultKind::SlowDisk { server, .. }
            | FaultKind::ClockJump { server, .. } => vec![server],
        }
    }

    /// The data centers that it names.
    pub fn data_centers(&self) -> Vec<DcId> {
        match self {
            FaultKind::Cut { from, to, .. } => vec![*from, *to],
            FaultKind::Death { dc } | FaultKind::Reserved { dc } | FaultKind::Arrival { dc } | FaultKind::Split { dc, .. } => vec![*dc],
            _ => Vec::new(),
        }
    }

    /// When the server dies, if one does.
    pub fn moment_mut(&mut self) -> Option<&mut Moment> {
        match self {
            FaultKind::Kill { moment, .. } | FaultKind::PowerLoss { moment, .. } => Some(moment),
            _ => None,
        }
    }

    /// Whether a server stops and must start again.
    pub fn is_crash(mut self) -> bool {
        self.moment_mut().is_some()
    }

    /// Whether a server loses what its disk has not confirmed.
    pub fn takes_power(&self) -> bool {
        matches!(self, FaultKind::PowerLoss { .. })
    }
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flag = |on: bool, word: &'static str| if on { word } else { "" };
        match self {
            FaultKind::Cut { from, to, hold } => write!(f, "cut {from} {to}{}", flag(*hold, " hold")),
            FaultKind::SlowLink { from, to, extra_us } => write!(f, "slow-link {from} {to} {}", Millis(*extra_us)),
            FaultKind::SlowServer { server, extra_us } => write!(f, "slow-server {server} {}", Millis(*extra_us)),
            FaultKind::Break { a, b } => write!(f, "break {a} {b}"),
            FaultKind::Pause { server } => write!(f, "pause {server}"),
            FaultKind::Isolate { server } => write!(f, "isolate {server}"),
            FaultKind::Kill { server, moment } => write!(f, "kill {server}{moment}"),
            FaultKind::PowerLoss { server, flushed, moment } => write!(f, "power-loss {server}{}{moment}", flag(*flushed, " flushed")),
            FaultKind::LostDisk { server } => write!(f, "lost-disk {server}"),
            FaultKind::Drain { server } => write!(f, "drain {server}"),
            FaultKind::Move { server, by_ms } => write!(f, "move {server} {by_ms}ms"),
            FaultKind::Death { dc } => write!(f, "death {dc}"),
            FaultKind::Reserved { dc } => write!(f, "reserved {dc}"),
            FaultKind::Arrival { dc } => write!(f, "arrival {dc}"),
            FaultKind::Split { dc, killed } => write!(f, "split {dc}{}", flag(*killed, " killed")),
            FaultKind::SlowDisk { server, extra_us } => write!(f, "slow-disk {server} {}", Millis(*extra_us)),
            FaultKind::ClockJump { server, by_ms } => write!(f, "clock-jump {server} {by_ms}ms"),
        }
    }
}

impl Fault {
    /// Reads what stands behind `fault` in a plan's line.
    pub(crate) fn parse(words: &mut Words<'_>) -> Parsed<Fault> {
        let window = words.next("a time")?;
        let (from, until) = window.split_once("..").ok_or_else(|| format!("`{window}` is not of the form 5ms..9ms"))?;
        let (from_us, until_us) = (parse_time(from)?, parse_time(until)?);
        let kind = match words.next("a fault")? {
            "cut" => FaultKind::Cut { from: words.dc()?, to: words.dc()?, hold: words.flag("hold")? },
            "slow-link" => FaultKind::SlowLink { from: words.server()?, to: words.server()?, extra_us: words.time("a time")? },
            "slow-server" => FaultKind::SlowServer { server: words.server()?, extra_us: words.time("a time")? },
            "break" => FaultKind::Break { a: words.server()?, b: words.server()? },
            "pause" => FaultKind::Pause { server: words.server()? },
            "isolate" => FaultKind::Isolate { server: words.server()? },
            "kill" => FaultKind::Kill { server: words.server()?, moment: moment(words)? },
            "power-loss" => FaultKind::PowerLoss { server: words.server()?, flushed: words.optional("flushed"), moment: moment(words)? },
            "lost-disk" => FaultKind::LostDisk { server: words.server()? },
            "drain" => FaultKind::Drain { server: words.server()? },
            "move" => FaultKind::Move { server: words.server()?, by_ms: words.unit("ms", "a difference")? },
            "death" => FaultKind::Death { dc: words.dc()? },
            "reserved" => FaultKind::Reserved { dc: words.dc()? },
            "arrival" => FaultKind::Arrival { dc: words.dc()? },
            "split" => FaultKind::Split { dc: words.dc()?, killed: words.flag("killed")? },
            "slow-disk" => FaultKind::SlowDisk { server: words.server()?, extra_us: words.time("a time")? },
            "clock-jump" => FaultKind::ClockJump { server: words.server()?, by_ms: words.unit("ms", "a jump")? },
            other => return Err(format!("there is no fault `{other}`")),
        };
        Ok(Fault { from_us, until_us, kind })
    }
}

/// When a server dies: the last word, if it is not at once.
fn moment(words: &mut Words<'_>) -> Parsed<Moment> {
    let Some(found) = words.rest() else { return Ok(Moment::AtOnce) };
    let known = Moment::WORDS.iter().find(|(_, word)| *word == found);
    known
        .map(|(moment, _)| *moment)
        .ok_or_else(|| format!("`{found}` is no moment: {}", Moment::WORDS[1..].iter().map(|(_, word)| *word).collect::<Vec<_>>().join(", ")))
}

impl World<'_> {
    /// Whether the group of `server` has a majority still when its disk is gone as well: those that have lost theirs and are not counted again are too few.
    fn may_lose_disk(&mut self, server: ServerIndex) -> bool {
        if !self.plan.is_grouped() {
            return true;
        }
        let (id, everywhere) = (self.servers[server].id, crate::node::can(&self.plan.protocol).agrees_everywhere());
        let of_group = |other: &&crate::world::Server| other.id.partition == id.partition && (everywhere || other.id.dc == id.dc);
        let is_away = |other: &&crate::world::Server| {
            let gauges = other.node.as_ref().map(|node| node.look().status(other.clock.read(self.now_us)).gauges).unwrap_or_default();
            let counts = |name: &str| gauges.iter().any(|(gauge, value)| *gauge == name && *value == 0.0);
            other.wiped && other.id != id && !(counts("member_is_nobody") && counts("member_is_learner"))
        };
        let seats = self.servers.iter().filter(of_group).filter(|other| !self.plan.reserved().any(|dc| dc == other.id.dc)).count();
        let away = self.servers.iter().filter(of_group).filter(is_away).count();
        // Until the others know that one which came back is counted, they count on the one whose disk is lost now.
        let applied = |other: &crate::world::Server| {
            let gauges = other.node.as_ref()?.look().status(other.clock.read(self.now_us)).gauges;
            gauges.into_iter().find(|(gauge, _)| *gauge == "applied_index").map(|(_, applied)| applied)
        };
        let counted = self.servers.iter().filter(of_group).filter(|other| other.wiped && other.id != id).filter_map(applied).fold(0.0, f64::max);
        let known = self.servers.iter().filter(of_group).filter(|other| other.id != id).filter_map(applied).all(|applied| applied >= counted);
        let may = known && away < (seats - 1) / 2;
        if may && self.servers[server].node.is_some() {
            self.marks.see(marks::MEMBER_LOST);
        }
        may
    }

    pub(crate) fn fault_begins(&mut self, fault: usize) {
        let Fault { until_us, kind, .. } = self.plan.faults[fault];
        if self.healed {
            return;
        }
        self.trace.number(self.now_us ^ 4);
        self.trace.line(TraceLevel::Story, self.now_us, "fault", || format!("{kind}, until {}", crate::text::Millis(until_us)));
        match kind {
            FaultKind::Cut { from, to, hold: false } => self.cut(from, to, true),
            FaultKind::Cut { from, to, hold: true } => {
                let route = self.route(from, to);
                route.held_until_us = route.held_until_us.max(until_us);
            }
            FaultKind::SlowLink { from, to, extra_us } => {
                let (from, to) = (self.index(from), self.index(to));
                self.link(from, to).slow_us += extra_us;
            }
            FaultKind::SlowServer { server, extra_us } => {
                let server = self.index(server);
                self.servers[server].slow_us += extra_us;
            }
            FaultKind::Break { a, b } => {
                let (a, b) = (self.index(a), self.index(b));
                self.break_connection(a, b);
                if self.plan.transport == Transport::Stream && self.servers[a].id.dc != self.servers[b].id.dc {
                    self.connect(a, b);
                }
            }
            FaultKind::Pause { server } => {
                let server = self.index(server);
                self.servers[server].paused_until_us = self.servers[server].paused_until_us.max(until_us);
            }
            FaultKind::Isolate { server } => {
                let server = self.index(server);
                self.servers[server].isolated += 1;
            }
            FaultKind::Kill { server, moment } => self.die(server, moment, Halt::Kill),
            FaultKind::PowerLoss { server, flushed, moment } => {
                self.die(server, moment, if flushed { Halt::PowerLossAfter(Position(0)) } else { Halt::PowerLoss });
            }
            FaultKind::LostDisk { server } => {
                let server = self.index(server);
                if self.may_lose_disk(server) {
                    self.halt(server, Halt::DiskLost);
                }
            }
            FaultKind::Move { server, by_ms } => {
                let server = self.index(server);
                self.close(server);
                if self.servers[server].node.is_some() {
                    self.halt(server, Halt::PowerLoss);
                    self.servers[server].clock.jump(self.now_us, by_ms);
                }
            }
            FaultKind::Drain { server } => {
                let server = self.index(server);
                self.servers[server].drained += 1;
                self.tell_drained(server);
            }
            FaultKind::Death { dc } => {
                self.gone.push(dc);
                for server in (0..self.servers.len()).filter(|server| self.servers[*server].id.dc == dc).collect::<Vec<_>>() {
                    self.note_last_word(server);
                    self.halt(server, Halt::PowerLoss);
                    self.servers[server].restart = None;
                }
            }
            FaultKind::Split { dc, killed } => self.stop_to_split(dc, killed),
            FaultKind::Reserved { .. } => {}
            FaultKind::Arrival { dc } => self.say_arrival(dc),
            FaultKind::SlowDisk { server, extra_us } => {
                let server = self.index(server);
                self.servers[server].slow_disk_us += extra_us;
            }
            FaultKind::ClockJump { server, by_ms } => {
                let server = self.index(server);
                self.servers[server].clock.jump(self.now_us, by_ms);
                if by_ms < 0 {
                    self.marks.see(marks::CLOCK_BACK);
                }
            }
        }
    }

    /// Tells the server whether it is drained, if that has changed. A paused one hears of it when it goes on.
    pub(crate) fn tell_drained(&mut self, server: ServerIndex) {
        let led = self.leads(server);
        let state = &mut self.servers[server];
        let (now, drained) = (state.clock.read(self.now_us), state.drained > 0);
        if state.paused_until_us > self.now_us || state.told_drained == drained {
            return;
        }
        let Some(node) = &mut state.node else { return };
        state.told_drained = drained;
        let mut out = std::mem::take(&mut self.outbox);
        node.server().drain(now, drained, &mut out);
        node.server().end_round(now, &mut out);
        node.server().write_through();
        if drained && led {
            self.marks.see(marks::DRAINED);
        }
        self.after_round(server, out, Vec::new());
    }

    fn die(&mut self, server: ServerId, moment: Moment, how: Halt) {
        let server = self.index(server);
        match moment {
            Moment::AtOnce => self.halt(server, how),
            _ if self.servers[server].node.is_none() => {}
            _ => self.servers[server].dying = Some((moment, how)),
        }
    }

    pub(crate) fn fault_ends(&mut self, fault: usize) {
        if self.healed {
            return;
        }
        match self.plan.faults[fault].kind {
            FaultKind::Cut { from, to, hold: false } => self.cut(from, to, false),
            FaultKind::SlowLink { from, to, extra_us } => {
                let (from, to) = (self.index(from), self.index(to));
                self.link(from, to).slow_us -= extra_us;
            }
            FaultKind::SlowServer { server, extra_us } => {
                let server = self.index(server);
                self.servers[server].slow_us -= extra_us;
            }
            FaultKind::SlowDisk { server, extra_us } => {
                let server = self.index(server);
                self.servers[server].slow_disk_us -= extra_us;
            }
            FaultKind::Pause { server } => {
                let server = self.index(server);
                if self.servers[server].paused_until_us <= self.now_us {
                    self.go_on(server);
                }
            }
            FaultKind::Isolate { server } => {
                let server = self.index(server);
                self.servers[server].isolated -= 1;
            }
            FaultKind::Drain { server } => {
                let server = self.index(server);
                self.servers[server].drained -= 1;
                self.tell_drained(server);
            }
            FaultKind::Kill { server, .. }
            | FaultKind::PowerLoss { server, .. }
            | FaultKind::LostDisk { server }
            | FaultKind::Move { server, .. } => {
                let server = self.index(server);
                self.servers[server].dying = None;
                self.restart(server);
            }
            FaultKind::Split { dc, .. } => self.split(dc),
            FaultKind::Cut { hold: true, .. }
            | FaultKind::Break { .. }
            | FaultKind::ClockJump { .. }
            | FaultKind::Reserved { .. }
            | FaultKind::Arrival { .. } => {}
            FaultKind::Death { dc } => {
                if self.now_us > self.plan.faults[fault].from_us && self.gone.contains(&dc) {
                    self.say_lost(dc);
                }
            }
        }
    }

    /// A server that stood still goes on: everything that has come meanwhile, at once.
    pub(crate) fn go_on(&mut self, server: ServerIndex) {
        self.servers[server].paused_until_us = 0;
        self.tell_drained(server);
        let soon_us = self.now_us + crate::servers::ANSWER_US;
        self.servers[server].waiting.values_mut().for_each(|waiting| waiting.deadline_us = waiting.deadline_us.max(soon_us));
        let backlog = std::mem::take(&mut self.servers[server].backlog);
        if !backlog.is_empty() {
            self.marks.see(marks::PAUSED);
            self.round(server, backlog.into_iter());
        }
    }

    /// Everything is in order from now on: connections, servers, disks, clocks.
    pub(crate) fn heal(&mut self) {
        self.healed = true;
        self.watch_healing();
        self.trace.line(TraceLevel::Story, self.now_us, "healing", || "no more faults; every server is up, every clock is right".into());
        self.links.iter_mut().for_each(|link| link.slow_us = 0);
        for from in (0..self.plan.data_centers).map(DcId) {
            for to in (0..self.plan.data_centers).map(DcId) {
                self.route(from, to).held_until_us = 0;
                if std::mem::take(&mut self.route(from, to).cuts) > 0 {
                    self.cut(from, to, false);
                }
            }
        }
        (0..self.plan.data_centers).for_each(|dc| self.split(DcId(dc)));
        for server in 0..self.servers.len() {
            let state = &mut self.servers[server];
            (state.slow_us, state.slow_disk_us, state.isolated, state.drained, state.dying) = (0, 0, 0, 0, None);
            self.restart(server);
            self.go_on(server);
            if self.plan.sleeps_us > 0 {
                let from = self.servers[server].id.dc;
                self.schedule(self.now_us, Event::Woken { server, from, first: false });
            }
        }
        let newest = self.newest_timestamp();
        self.set_clocks(newest);
        for fault in &self.plan.faults {
            if let FaultKind::Death { dc } = fault.kind
                && fault.until_us > fault.from_us
                && self.gone.contains(&dc)
            {
                self.say_lost(dc);
            }
        }
        for fault in &self.plan.faults {
            if let FaultKind::Arrival { dc } = fault.kind {
                self.say_arrival(dc);
            }
        }
    }

    /// When the servers' clocks, which are right now, will have passed `past`, in microseconds.
    pub(crate) fn passed_us(&self, past: Timestamp) -> u64 {
        (past.millis() + 1).saturating_sub(crate::clock::EPOCH_MS + self.lead_ms) * 1000
    }

    /// Whether leaders without a hybrid clock hold writes until their clock has passed what those follow.
    pub(crate) fn holds_writes(&self) -> bool {
        self.decides && self.plan.options.get("hlc").and_then(toml::Value::as_bool) == Some(false)
    }

    /// The newest timestamp that any server knows of.
    pub(crate) fn newest_timestamp(&self) -> Timestamp {
        let clock = |server: &crate::world::Server| Some(server.node.as_ref()?.look().status(server.clock.read(self.now_us)).clock);
        self.servers.iter().filter_map(clock).max().unwrap_or_default()
    }

    /// Sets every server's clock to one time, at least that of `past`. To wait until right clocks have passed what wrong ones handed out would be the same to the servers, and
    /// take most of a run.
    pub(crate) fn set_clocks(&mut self, past: Timestamp) {
        // Where writes wait until a clock has passed what they follow, that is what is tried.
        if !self.holds_writes() {
            let ahead_ms = (past.millis() + 1).saturating_sub(crate::clock::EPOCH_MS + self.now_us / 1000);
            self.lead_ms = self.lead_ms.max(ahead_ms);
        }
        let (now_us, lead_ms) = (self.now_us, self.lead_ms);
        self.servers.iter_mut().for_each(|server| server.clock.set_right(now_us, lead_ms));
    }
}
