//! Monitors: a detector beside each partition server, and a monitor on each server's machine, on a thread of its own.

use super::{Event, World};
use rheostat_client::v1;
use rheostat_clock::{Epsilon, Timestamp};
use rheostat_core::ids::KeyspaceId;
use rheostat_core::planted::Planted;
use rheostat_core::replica::{Applied, Wanted};
use rheostat_core::wire::Wire;
use rheostat_monitor::alarm::{Alarm, Evidence};
use rheostat_monitor::beside;
use rheostat_monitor::detector::Detector;
use rheostat_monitor::monitor::{Monitor, Notice};
use rheostat_monitor::predicate::{Definition, Predicate, Predicates, Target};
use rheostat_monitor::report::{Event as ReportEvent, Report};
use rheostat_proto::alarm::alarm_out;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

const KEYSPACE: KeyspaceId = KeyspaceId(0);

/// Memory of a monitor, in bytes: the server's default.
const MOST_BYTES: usize = 64 << 20;

/// For so long it is remembered how reports went, in nanoseconds.
const REMEMBERED_NS: u64 = 5_000_000_000;

/// What watches.
pub(super) struct Watching {
    monitors: Vec<Monitor>,
    /// Of each monitor's thread: when it has done what it has been given.
    free_at_ns: Vec<u64>,
    /// Of each: the greatest number of an alarm that was told.
    told: Vec<u64>,
    /// Of each pair of a server and a monitor.
    ways: Vec<VecDeque<Way>>,
}

/// How a report went to a monitor.
#[derive(Clone)]
struct Way {
    leaves_ns: u64,
    arrives_ns: u64,
    /// When the states began of which it tells.
    began: Vec<Timestamp>,
}

/// Which of `servers` watches for `target`.
fn home(target: &Target, servers: usize) -> u16 {
    let bytes = target.name.bytes().chain(target.bindings.iter().flat_map(|bound| bound.iter().copied().chain([0])));
    let hash = bytes.fold(0xCBF2_9CE4_8422_2325u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3));
    ((hash >> 20) % servers as u64) as u16
}

impl World<'_> {
    /// Watches for what the application says must never be.
    pub(super) fn watch(&mut self) -> Result<(), String> {
        let Some(app) = self.app.as_ref().filter(|app| app.application.setting.monitor) else { return Ok(()) };
        let expression = app.application.predicate(app.course.prefix());
        let definition = Definition { name: "app".into(), keyspace: "lab".into(), expression, infer: true, everywhere: false };
        let predicates = Arc::new(Predicates::new([Arc::new(Predicate::new(definition)?)]));
        let epsilon = Epsilon::Millis(app.application.epsilon_ms);
        let monitor = |_| {
            let mut monitor = Monitor::new(epsilon, MOST_BYTES, 0, Planted::NONE);
            monitor.watch(KEYSPACE, predicates.clone());
            monitor
        };
        let servers = self.servers.len();
        self.watching = Some(Watching {
            monitors: (0..servers).map(monitor).collect(),
            free_at_ns: vec![0; servers],
            told: vec![0; servers],
            ways: vec![VecDeque::new(); servers * servers],
        });
        for server in &mut self.servers {
            let now = server.reading(self.now_ns);
            let at = beside::time(&*server.node, server.id, now);
            let mut detector = Detector::new(KEYSPACE, server.place, epsilon, at);
            detector.watch(now.monotonic_us, at, predicates.clone(), &|target: &Target| home(target, servers), |_| Vec::new());
            server.detector = Some(detector);
            server.node.tap(Some(predicates.clone() as Arc<dyn Wanted>));
        }
        Ok(())
    }

    /// Hands what a server has applied to its detector, and tells monitors what there is to tell. What that costs its thread, in microseconds.
    pub(super) fn detect(&mut self, server: usize, applied: &mut Vec<Applied>) -> f64 {
        let servers = self.servers.len();
        let homes = |target: &Target| home(target, servers);
        let service = self.point.cluster.service;
        let (now_ns, state) = (self.now_ns, &mut self.servers[server]);
        let Some(detector) = &mut state.detector else { return 0.0 };
        let now = super::server::reading(now_ns, state.ahead_us);
        let mut cost_us = service.tapped_us * applied.len() as f64;
        if !applied.is_empty() {
            beside::detect(detector, &*state.node, (state.id, true), now, applied.drain(..), &homes);
        }
        let reports = beside::reports(detector, &*state.node, state.id, now, &homes);
        let next_us = detector.next_us();
        let (from, leaves_ns) = (state.id, now_ns + (cost_us * 1000.0) as u64);
        for (home, report) in reports {
            let bytes = report.to_bytes().len();
            cost_us += service.message_us + bytes as f64 * service.kilobyte_us / 1000.0;
            let home = usize::from(home);
            let to = self.servers[home].id;
            let at_ns = if home == server { leaves_ns } else { self.passes_ns(leaves_ns, from.dc, to.dc) + self.way_ns(from.dc, to.dc) };
            // One way between two machines is one connection: reports do not overtake each other.
            let Some(watching) = &mut self.watching else { continue };
            let ways = &mut watching.ways[server * servers + home];
            let at_ns = ways.back().map_or(at_ns, |last| at_ns.max(last.arrives_ns));
            let began = |event: &ReportEvent| match event {
                ReportEvent::Began(began) | ReportEvent::OfKey(_, began) => Some(began.start.at()),
                ReportEvent::Ended(_) | ReportEvent::Counted(_) => None,
            };
            ways.push_back(Way { leaves_ns, arrives_ns: at_ns, began: report.events.iter().filter_map(began).collect() });
            while ways.front().is_some_and(|first| first.leaves_ns + REMEMBERED_NS < leaves_ns) {
                ways.pop_front();
            }
            self.schedule(at_ns, Event::Report(home, Box::new(report), bytes));
        }
        let at_ns = super::server::at_ns(next_us, now_ns);
        let state = &mut self.servers[server];
        if next_us < u64::MAX && at_ns < state.telling_at_ns {
            state.telling_at_ns = at_ns;
            self.schedule(at_ns, Event::Tell(server));
        }
        cost_us
    }

    /// A report comes to a monitor's machine: its thread takes it when it is free.
    pub(super) fn report_comes(&mut self, home: usize, report: Box<Report>, bytes: usize) {
        let service = self.point.cluster.service;
        let Some(watching) = &mut self.watching else { return };
        let cost_us = service.message_us + bytes as f64 * service.kilobyte_us / 1000.0 + service.tapped_us * report.events.len() as f64;
        let done_ns = watching.free_at_ns[home].max(self.now_ns) + (cost_us * 1000.0) as u64;
        watching.free_at_ns[home] = done_ns;
        self.schedule(done_ns, Event::Monitor(home, report));
    }

    /// A monitor's thread has a report.
    pub(super) fn on_report(&mut self, home: usize, report: Report) {
        let now = self.servers[home].reading(self.now_ns);
        let Some(watching) = &mut self.watching else { return };
        let monitor = &mut watching.monitors[home];
        monitor.on_report(now.monotonic_us, report);
        monitor.tick(now.monotonic_us);
        let from = self.servers[home].id;
        for notice in monitor.notices() {
            let (number, monitor, what) = match notice {
                Notice::Ask { server, whole, .. } => {
                    let leaves_ns = self.passes_ns(self.now_ns, from.dc, server.dc);
                    let at_ns = if server == from { self.now_ns } else { leaves_ns + self.way_ns(from.dc, server.dc) };
                    let server = self.index(server);
                    self.schedule(at_ns, Event::AskDetector { server, home: home as u16, whole });
                    continue;
                }
                Notice::Alarm(alarm) => {
                    self.count_alarm(home, &alarm);
                    let regions = &self.point.cluster.regions;
                    let told = alarm_out(&alarm, |dc| &regions[dc.index()]);
                    (alarm.number, alarm.target.to_string(), v1::monitor_event::What::Alarm(told))
                }
                Notice::Gap(target, why) => (0, target.map_or_else(String::new, |target| target.to_string()), v1::monitor_event::What::Gap(why)),
            };
            let event =
                v1::MonitorEvent { node: from.to_string(), number, at_ms: now.physical_ms, keyspace: "lab".into(), monitor, what: Some(what) };
            let event = Rc::new(event);
            for dc in (0..self.point.cluster.regions.len() as u8).map(rheostat_core::DcId) {
                let at_ns = self.passes_ns(self.now_ns, from.dc, dc) + self.client_way_ns(dc, from.dc);
                self.schedule(at_ns, Event::Told(dc, event.clone()));
            }
        }
    }

    /// How long the first word of an alarm took, from the last write that took part; and beyond the ways of what it needed: word of each state's beginning, and that it stood when the last began, to within ε.
    fn count_alarm(&mut self, home: usize, alarm: &Alarm) {
        let servers = self.servers.len();
        let Some(watching) = &mut self.watching else { return };
        if alarm.number <= watching.told[home] || self.now_ns < self.begin_ns {
            return;
        }
        watching.told[home] = alarm.number;
        let Some(watching) = &self.watching else { return };
        let epsilon_ms = self.app.as_ref().map_or(0, |app| app.application.epsilon_ms);
        let since_start_ns = |at_ms: u64| at_ms.saturating_sub(super::EPOCH_MS) * 1_000_000;
        let last_ms = alarm.evidence.iter().map(|one| one.from.millis()).max().unwrap_or_default();
        // A report of the same millisecond does not say that it stood in the next.
        let stood_ns = since_start_ns(last_ms.saturating_sub(epsilon_ms) + 1);
        let needed_ns = |one: &Evidence| {
            let ways = &watching.ways[self.index(one.server) * servers + home];
            let of_beginning = ways.iter().find(|way| way.began.contains(&one.from)).map(|way| (since_start_ns(one.from.millis()), way));
            let that_it_stood = ways.iter().find(|way| way.leaves_ns >= stood_ns).map(|way| (stood_ns, way));
            [of_beginning, that_it_stood].into_iter().flatten().map(|(at_ns, way)| at_ns + way.arrives_ns - way.leaves_ns).max().unwrap_or_default()
        };
        let soonest_ns = alarm.evidence.iter().map(needed_ns).max().unwrap_or_default();
        let ms = |from_ns: u64| (self.now_ns as f64 - from_ns as f64) / 1e6;
        let (after_ms, beyond_ms) = (ms(since_start_ns(last_ms)), ms(soonest_ns));
        self.tallies.add("detection", after_ms);
        self.tallies.add("detection_beyond", beyond_ms);
        self.tallies.share("detected_within_50ms", after_ms <= 50.0);
        self.tallies.share("detected_within_10ms_beyond", beyond_ms <= 10.0);
    }

    /// A monitor asks a detector how far its server has come.
    pub(super) fn ask_detector(&mut self, server: usize, home: u16, whole: bool) {
        let now = self.servers[server].reading(self.now_ns);
        if let Some(detector) = &mut self.servers[server].detector {
            detector.ask(now.monotonic_us, home);
            if whole {
                detector.tell_whole(home);
            }
        }
        self.tell(server);
    }

    /// A detector tells what is due.
    pub(super) fn tell(&mut self, server: usize) {
        let cost_us = self.detect(server, &mut Vec::new());
        self.spend(server, cost_us);
    }
}
