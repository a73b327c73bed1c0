//! Faults begin and end.

use crate::marks;
use crate::plan::{Fault, FaultKind, Moment, Transport};
use crate::trace::TraceLevel;
use crate::world::{ServerIndex, World};
use rheostat_core::ids::ServerId;
use rheostat_core::store::Position;
use rheostat_stack::Halt;

impl World<'_> {
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
            FaultKind::Kill { server, moment } => self.die(server, moment, Halt::Kill),
            FaultKind::PowerLoss { server, flushed, moment } => {
                self.die(server, moment, if flushed { Halt::PowerLossAfter(Position(0)) } else { Halt::PowerLoss });
            }
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
            FaultKind::Kill { server, .. } | FaultKind::PowerLoss { server, .. } => {
                let server = self.index(server);
                self.servers[server].dying = None;
                self.restart(server);
            }
            FaultKind::Cut { hold: true, .. } | FaultKind::Break { .. } | FaultKind::ClockJump { .. } => {}
        }
    }

    /// A server that stood still goes on: everything that has come meanwhile, at once.
    pub(crate) fn go_on(&mut self, server: ServerIndex) {
        self.servers[server].paused_until_us = 0;
        let backlog = std::mem::take(&mut self.servers[server].backlog);
        if !backlog.is_empty() {
            self.marks.see(marks::PAUSED);
            self.round(server, backlog.into_iter());
        }
    }

    /// Everything is in order from now on: connections, servers, disks, clocks.
    pub(crate) fn heal(&mut self) {
        self.healed = true;
        self.trace.line(TraceLevel::Story, self.now_us, "healing", || "no more faults; every server is up, every clock is right".into());
        self.links.iter_mut().for_each(|link| link.slow_us = 0);
        for from in (0..self.plan.data_centers).map(rheostat_core::DcId) {
            for to in (0..self.plan.data_centers).map(rheostat_core::DcId) {
                self.route(from, to).held_until_us = 0;
                if std::mem::take(&mut self.route(from, to).cuts) > 0 {
                    self.cut(from, to, false);
                }
            }
        }
        for server in 0..self.servers.len() {
            let now_us = self.now_us;
            let state = &mut self.servers[server];
            (state.slow_us, state.slow_disk_us, state.dying) = (0, 0, None);
            state.clock.set_right(now_us);
            self.restart(server);
            self.go_on(server);
        }
    }
}
