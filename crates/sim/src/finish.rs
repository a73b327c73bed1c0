//! The end of a run: everything heals, everything arrives, the final state is read twice, and the history goes through the checkers.

use crate::clients::expiring::draws_expiry;
use crate::clients::siblings::alone;
use crate::counters::ANSWER_US;
use crate::marks;
use crate::plan::Action;
use crate::trace::TraceLevel;
use crate::world::{Failure, ServerIndex, World};
use rheostat_checkers::as_of;
use rheostat_checkers::{Action as Recorded, History, KeyId, Observation, Outcome as Came, Promises, check, check_all};
use rheostat_core::dial::{Dial, Level};
use rheostat_core::ids::{PartitionId, ServerId};
use rheostat_core::link::OUT_OF_REACH_FOR_LONG_US;
use rheostat_core::operation::Operation;
use rheostat_core::outcome::Outcome;
use rheostat_core::replica::{Execution, Outbox};
use rheostat_core::slots::slot;
use rheostat_core::store::{EXPIRED_KEPT_MS, StoreStats};
use rheostat_core::version::{Key, VersionId};
use rheostat_core::{DcId, Timestamp};
use std::collections::BTreeMap;

/// How long the load may last beyond twice the time that it would take if every answer came at once, in microseconds; what clients have not done by then is
/// left out. They wait for the same few servers, and nothing more is learned from it.
const LOAD_LIMIT_US: u64 = 2_000_000;

/// How long everything may take to arrive.
pub(crate) const SETTLE_LIMIT_US: u64 = 20_000_000;

/// How long a step of a write takes at most whose messages and flushes are not slowed down any more, about.
const STEP_US: u64 = 50_000;

/// After so long whoever was refused for want of room asks again.
const AGAIN_US: u64 = 1_000;

/// How much longer, where a data center has died: it must have been silent for long before the others take parts of what it wrote.
const LAST_WORDS_US: u64 = 2 * OUT_OF_REACH_FOR_LONG_US;

/// How often it is looked whether everything has arrived.
pub(crate) const LOOK_US: u64 = 50_000;

/// How long it is waited until clocks have passed old timestamps, where they cannot be set.
const PATIENCE_US: u64 = 2_000_000;

/// How long a leader without a hybrid clock holds a write at most.
const HELD_WRITES_US: u64 = 5_100_000;

/// How long a group's log may stand still in which something expires, and a little.
const IN_QUIET_US: u64 = 65_000_000;

/// How long old versions and tombstones may take to be collected between the two final readings.
const COLLECTION_US: u64 = 1_600_000;

impl World<'_> {
    /// Runs the plan to its end; the history, unless the run broke off.
    pub(crate) fn finish(&mut self) -> Option<History> {
        for server in 0..self.servers.len() {
            self.watch_start(server);
            self.start(server);
        }
        self.make_counters();
        let plan = self.plan;
        if plan.steps() > 0 {
            self.run_until(self.now_us + 2 * plan.horizon_us() + LOAD_LIMIT_US, |world| world.clients_are_done());
        }
        if self.failure.is_none() {
            self.heal();
        }
        self.fall_silent();
        let mark = self.settle();
        self.end_feeds(mark);
        let expires = draws_expiry(plan);
        if expires {
            self.outlive();
        }
        self.read_finals();
        self.check_alike();
        self.read_siblings();
        self.read_counters();
        if expires || plan.clients.iter().flat_map(|client| &client.steps).any(|step| deletes(&step.action)) {
            // A timestamp is history only when the clocks have passed it by so much.
            let kept_ms = plan.history_ms + (plan.checkpoints.count + 1) * plan.checkpoints.every_ms;
            let expired = Timestamp::new(self.expiring.last_ms(self.now_us), 0).plus_millis(if expires { EXPIRED_KEPT_MS + 1 } else { 0 });
            let past = mark.max(expired).plus_millis(kept_ms);
            self.set_clocks(past);
            let patient = self.passed_us(past) <= self.now_us + PATIENCE_US;
            let mut until_us = if patient { self.passed_us(past).max(self.now_us) } else { self.now_us } + COLLECTION_US;
            // A tombstone may stay for longer; who has none left need not be waited for.
            // Where a data center has died, nobody knows what it may yet send.
            let mut patient = patient && !self.mourns();
            if expires && self.decides {
                // There time is the log's, which goes on each minute while nobody asks anything.
                patient &= plan.seed.is_multiple_of(8);
                if patient {
                    until_us += IN_QUIET_US;
                }
            }
            while self.failure.is_none() && self.now_us < until_us && self.holds_more(|server, _| self.servers[server].live_keys).is_some() {
                self.run_until(self.now_us + LOOK_US, |_| false);
            }
            self.read_finals();
            self.check_alike();
            self.check_scans();
            if let Some(what) = self.holds_more(|_, stats| stats.keys).filter(|_| patient) {
                self.fail("collection", what);
            }
        }
        for server in 0..self.servers.len() {
            let now = self.servers[server].clock.read(self.now_us);
            if let Some(status) = self.servers[server].node.as_ref().map(|node| node.look().status(now)) {
                self.note_counters(server, &status);
            }
        }
        if self.failure.is_some() {
            return None;
        }
        self.record_expiries();
        let history = std::mem::take(&mut self.history);
        let history = history.finish();
        match history {
            Ok(mut history) => {
                history.lost_allowed = self.lost(&history);
                let history = self.rename_written_again(history);
                self.marks.see_times(marks::NOT_JUDGED, u64::from(history.is_none()));
                history
            }
            Err(error) => {
                self.fail("record", format!("{error}\n"));
                None
            }
        }
    }

    /// The acknowledged writes that went with a server's power.
    fn lost(&self, history: &History) -> Vec<rheostat_checkers::EventId> {
        let lost = |at: DcId, key: KeyId, version: VersionId| {
            let server = self.index(rheostat_core::ids::ServerId::new(at, self.plan.partition(key.index())));
            self.servers[server].lost.iter().any(|(after, upto)| *after < version.written && version.written <= *upto)
        };
        // What a data center that has died had sent to nobody.
        let died = |at: DcId, key: KeyId, version: VersionId| {
            let partition = self.plan.partition(key.index());
            self.gone.contains(&at) && version.written > self.heard_of(at, partition) || self.died_with(&version, partition)
        };
        let lost = |at, key, version| lost(at, key, version) || died(at, key, version);
        let is_lost = |event: &rheostat_checkers::Event| match (event.acknowledged(), &event.outcome) {
            (Some(Some(version)), _) => event.items().first().is_some_and(|item| lost(event.dc, item.key, version)),
            (_, Came::Unknown) => !event.items().is_empty(),
            _ => false,
        };
        if !self.plan.may_lose_acknowledged() && !self.plan.loses_a_data_center() && !self.disk_lost_writes {
            return Vec::new();
        }
        history.numbered().filter(|(_, event)| is_lost(event)).map(|(id, _)| id).collect()
    }

    /// Lets what expires expire by all clocks, but for what outlives the run: then it does not matter at which moment the last reads are.
    fn outlive(&mut self) {
        let last = Timestamp::new(self.expiring.last_ms(self.now_us), 0);
        self.set_clocks(last);
        self.run_until(self.passed_us(last).max(self.now_us), |_| false);
    }

    /// Lets time pass until nothing more can be written: no operation is under way anywhere.
    fn fall_silent(&mut self) {
        let until_us = self.now_us + SETTLE_LIMIT_US;
        while self.failure.is_none() && self.now_us < until_us && !(self.clients_are_idle() && self.nothing_waits()) {
            self.run_until(self.now_us + LOOK_US, |_| false);
        }
        if self.plan.is_grouped() {
            // A write whose client has gone may wait for a disk before it goes to a leader, may be on its way, and may be held there.
            for _ in 0..4 {
                self.run_until(self.last_arrival_us.max(self.last_flush_us).max(self.now_us + STEP_US), |_| false);
            }
        }
        if self.holds_writes() {
            self.run_until(self.now_us + HELD_WRITES_US, |_| false);
        }
    }

    fn nothing_waits(&self) -> bool {
        let waiting = |server: &crate::world::Server| Some(server.node.as_ref()?.look().status(server.clock.read(self.now_us)).waiting);
        self.servers.iter().filter_map(waiting).all(|waiting| waiting == 0)
    }

    /// Lets time pass until everything has arrived and is visible everywhere; returns the greatest timestamp before that.
    pub(crate) fn settle(&mut self) -> Timestamp {
        // Of a data center that has died, whose clock may have been ahead, what others have heard.
        let partitions = || (0..self.plan.partitions).map(PartitionId);
        let last_words = self.gone.iter().flat_map(|dc| partitions().map(|partition| self.heard_of(*dc, partition)));
        let mark = last_words.fold(self.newest_timestamp(), Timestamp::max);
        // A heartbeat passes the mark only when its server's clock does.
        self.set_clocks(mark);
        let until_us = self.passed_us(mark).max(self.now_us) + SETTLE_LIMIT_US + if self.plan.loses_a_data_center() { LAST_WORDS_US } else { 0 };
        while self.failure.is_none() {
            let missing = self.missing(mark);
            let Some(what) = missing else { break };
            if self.now_us >= until_us {
                let text = format!("{} ms after everything healed, {what}\n", SETTLE_LIMIT_US / 1000);
                self.fail("progress", text);
                return mark;
            }
            self.run_until(self.now_us + LOOK_US, |_| false);
        }
        self.trace.line(TraceLevel::Story, self.now_us, "settled", || format!("everything up to {mark} is everywhere"));
        mark
    }

    /// Up to where any server of `partition` has what data center `dc` wrote.
    fn heard_of(&self, dc: DcId, partition: PartitionId) -> Timestamp {
        if let Some(end) = self.end_of(dc, partition) {
            return end;
        }
        let servers = self.servers.iter().filter(|server| server.id.partition == partition && server.id.dc != dc);
        let links = servers.filter_map(|server| Some(server.node.as_ref()?.look().status(server.clock.read(self.now_us)).links)).flatten();
        links.filter(|link| link.dc == dc).map(|link| link.received).max().unwrap_or_default()
    }

    /// What has not arrived, or is not visible, of everything up to `mark`. Of a data center that has died, everything is what any other has.
    fn missing(&self, mark: Timestamp) -> Option<String> {
        let partitions = || (0..self.plan.partitions).map(PartitionId);
        let last_words: Vec<(DcId, Vec<Timestamp>)> = self
            .gone
            .iter()
            .filter(|dc| self.lost.iter().all(|lost| lost.dc != **dc))
            .map(|dc| (*dc, partitions().map(|partition| self.heard_of(*dc, partition).min(mark)).collect()))
            .collect();
        if let Some(what) = self.behind() {
            return Some(what);
        }
        if let Some(dc) = self.awaits_arrival() {
            return Some(format!("nobody has let data center {dc} in"));
        }
        let all = mark;
        let of = |dc: DcId| last_words.iter().find(|(gone, _)| *gone == dc).map(|(_, heard)| heard);
        // One time can stand for all data centers.
        let least = last_words.iter().flat_map(|(_, heard)| heard).min().copied().unwrap_or(all);
        self.servers.iter().filter(|server| !self.gone.contains(&server.id.dc)).find_map(|server| {
            let id = server.id;
            let mark = |dc: DcId| of(dc).map_or(all, |heard| heard[usize::from(id.partition.0)]);
            let Some(node) = &server.node else { return Some(format!("{id} is down")) };
            let status = node.look().status(server.clock.read(self.now_us));
            if let Some(why) = status.failed {
                return Some(format!("{id} serves nothing, though its disk never failed: {why}"));
            }
            if let Some(link) =
                status.links.iter().find(|link| link.received_durable < mark(link.dc).min(link.received) || link.received < mark(link.dc))
            {
                let (from, received, durable) = (link.dc, link.received, link.received_durable);
                let mark = mark(from);
                return Some(format!("{id} has the updates of data center {from} up to {received}, on disk up to {durable}, not up to {mark}"));
            }
            if let Some((dc, stable)) = status.stable.iter().enumerate().find(|(_, stable)| **stable < least) {
                let mark = least;
                return Some(format!("the stable vector of {id} stands at {stable} for data center {dc}, not at {mark}"));
            }
            if status.filling {
                return Some(format!("{id} does not have what it has lost"));
            }
            (status.waiting > 0).then(|| format!("{} operations wait at {id}", status.waiting))
        })
    }

    /// A group has agreed long ago, and so have replicas that answer together: they are looked at one by one. What depends on the last words of a data center that has died can stay
    /// hidden until an operator gives it up; what is there, is there everywhere.
    pub(crate) fn dial_of_last_reads(&self) -> Dial {
        match (self.decides || self.mourns(), self.side_by_side) {
            (_, true) => alone(),
            (true, false) => Dial::at(Level::Eventual),
            (false, false) => Dial::default(),
        }
    }

    /// Reads every key in every data center, each by a session that has seen nothing; from where it is held if not there.
    fn read_finals(&mut self) {
        self.servers.iter_mut().for_each(|server| server.live_keys = 0);
        let dial = self.dial_of_last_reads();
        for id in self.plan.servers() {
            let Some(server) = self.asked_last(ServerId { dc: self.serving(id.dc, id.partition), ..id }) else { continue };
            for key in 0..self.plan.keys.len() {
                if self.failure.is_some() || self.plan.partition(key) != id.partition {
                    continue;
                }
                let get = Operation::Get { key: Key::from(self.plan.keys[key].as_bytes()), dial };
                if self.servers[server].node.is_none() {
                    continue;
                }
                match self.ask_alone(server, get) {
                    Some(Outcome::Read(read, _)) => {
                        let observed = self.observe(&read);
                        self.servers[server].live_keys += u64::from(self.servers[server].id == id && observed.value.is_some());
                        self.trace.number(observed.version.map_or(0, |version| version.written.bits()));
                        self.history.final_read(self.now_us, id.dc, KeyId(key as u32), observed);
                        self.check_kept(key, observed, id.dc);
                    }
                    other => self.fail("progress", format!("the last read of {} at {id} came to {other:?}\n", self.plan.keys[key])),
                }
            }
        }
    }

    /// The server at which `id` is looked at in the end. Replicas that follow have what the leader has, which is looked at in [`World::unlike`].
    fn asked_last(&self, id: ServerId) -> Option<ServerIndex> {
        let server = self.index(id);
        (!self.plan.has_replicas() || self.leads(server)).then_some(server)
    }

    /// Whether a replica leads its partition.
    pub(crate) fn leads(&self, server: ServerIndex) -> bool {
        self.leader_known_at(server).is_some_and(|(leader, _)| leader == self.servers[server].id)
    }

    /// The place of the leader that `server` knows of, and its term.
    fn leader_known_at(&self, server: ServerIndex) -> Option<(ServerId, u64)> {
        let state = &self.servers[server];
        let (leader, term) = state.node.as_ref()?.look().leader()?;
        Some((self.seat_of(state.id.dc, leader), term))
    }

    /// The replica that leads the partition of `id`, as far as any of them knows. One that has been followed by another may think so still.
    pub(crate) fn leader_of(&self, id: ServerId) -> Option<ServerIndex> {
        let group = (0..self.plan.replicas).map(|replica| self.index(ServerId { replica, ..id }));
        let known = group.filter_map(|server| self.leader_known_at(server));
        let (leader, _) = known.max_by_key(|(_, term)| *term)?;
        Some(self.index(leader)).filter(|server| self.leads(*server))
    }

    /// What is not alike, if anything, at the replicas of a partition and data center; all have applied what is decided.
    fn unlike(&mut self) -> Option<String> {
        let plan = self.plan;
        for id in plan.servers().filter(|id| id.replica == 0) {
            let group: Vec<ServerIndex> = (0..plan.replicas).map(|replica| self.index(ServerId { replica, ..id })).collect();
            let Some(leader) = self.leader_of(id) else { return Some(format!("nobody leads {id}\n")) };
            for key in plan.keys.iter().map(|key| Key::from(key.as_bytes())) {
                // A tombstone goes at the leader first, and so does what has expired.
                let mut newest = |server: &ServerIndex| {
                    let now_ms = self.servers[*server].clock.read(self.now_us).physical_ms;
                    let newest = self.servers[*server].node.as_mut()?.server().newest(&key)?;
                    newest.value.filter(|_| newest.expires_ms == 0 || newest.expires_ms > now_ms).map(|_| newest.version)
                };
                let found: Vec<_> = group.iter().map(&mut newest).collect();
                let led = newest(&leader);
                if let Some(other) = found.iter().position(|version| *version != led) {
                    let (key, other) = (String::from_utf8_lossy(&key).into_owned(), &found[other]);
                    return Some(format!("of {key} the leader of {id} has {led:?}, and another replica {other:?}\n"));
                }
            }
            let live = self.servers[leader].live_keys;
            group.iter().for_each(|server| self.servers[*server].live_keys = live);
        }
        None
    }

    /// After a while in which nothing is written, all replicas of a partition are alike.
    fn check_alike(&mut self) {
        let until_us = self.now_us + COLLECTION_US;
        while self.plan.has_replicas() && self.failure.is_none() {
            let Some(what) = self.unlike() else { return };
            if self.now_us > until_us {
                return self.fail("replicas", what);
            }
            self.run_until(self.now_us + LOOK_US, |_| false);
        }
    }

    /// Which partition has no leader, or a replica that is not counted in its group or has not applied everything, if one has.
    fn behind(&self) -> Option<String> {
        let gauge = |server: &crate::world::Server, name: &str| {
            let status = server.node.as_ref()?.look().status(server.clock.read(self.now_us));
            status.gauges.iter().find(|(of, _)| *of == name).map(|(_, value)| *value)
        };
        let outside = |server: &&crate::world::Server| {
            ["member_is_nobody", "member_is_learner", "member_was_replaced"].iter().any(|name| gauge(server, name).is_some_and(|value| value > 0.0))
        };
        if let Some(server) = self.servers.iter().filter(|server| self.plan.is_grouped() && server.node.is_some()).find(outside) {
            return Some(format!("{} is not counted in its group", server.id));
        }
        self.servers.iter().enumerate().filter(|_| self.plan.has_replicas()).find_map(|(_, server)| {
            let id = server.id;
            let Some(leader) = self.leader_of(id) else { return Some(format!("no replica of {id} leads")) };
            let (applied, leads) = (gauge(server, "applied_index"), gauge(&self.servers[leader], "applied_index"));
            // A leader goes on renewing what it has reserved of its clock.
            let near = applied.zip(leads).is_some_and(|(applied, leads)| applied + 2.0 >= leads);
            (!near).then(|| format!("{id} has applied {applied:?} of {leads:?} entries"))
        })
    }

    /// Reads all that stands side by side, in every data center, and sends the record through its checker.
    fn read_siblings(&mut self) {
        if !self.side_by_side {
            return;
        }
        for id in self.plan.servers().filter(|id| !self.gone.contains(&id.dc)).collect::<Vec<_>>() {
            let Some(server) = self.asked_last(id) else { continue };
            for key in 0..self.plan.keys.len() {
                if self.failure.is_none() && self.plan.partition(key) == id.partition {
                    self.final_siblings(server, key);
                }
            }
        }
        let number = |name: &str| self.plan.options.get(name).and_then(toml::Value::as_integer).unwrap_or(1);
        self.beside.quorums_meet = number("reads") + number("writes") > i64::from(self.plan.data_centers);
        // What only one that is gone for ever has is lost with it; what only a disk had that was lost, too.
        let on_one_disk = self.disk_lost_writes && number("writes") == 1;
        self.beside.may_lose = self.plan.may_lose_acknowledged() || self.plan.loses_a_data_center() || on_one_disk;
        self.marks.see_times(marks::QUORUMS_MEET, u64::from(self.beside.quorums_meet && self.plan.data_centers > 1));
        // What was rolled back was acknowledged, and is gone.
        if self.failure.is_none()
            && self.rollbacks.is_empty()
            && let Err(why) = self.beside.check()
        {
            self.fail("siblings", why);
        }
    }

    /// SCAN and DBSIZE find the keys that have a value, each once, page by page.
    fn check_scans(&mut self) {
        // Beside counters stand keys that are not in the plan.
        if !self.plan.counters.is_empty() || !self.gone.is_empty() || self.failure.is_some() {
            return;
        }
        let mut slots: Vec<u16> = self.plan.keys.iter().map(|key| slot(key.as_bytes())).collect();
        slots.sort_unstable();
        slots.dedup();
        for server in (0..self.servers.len()).filter(|server| !self.plan.has_replicas() || self.leads(*server)).collect::<Vec<_>>() {
            let (mut found, mut counted) = (Vec::new(), 0);
            for slot in &slots {
                let mut from = Some(0);
                while let Some(at) = from.take() {
                    let scan = Operation::Scan { slot: *slot, from: at, limit: 1 + (self.plan.seed % 3) as u32 };
                    if let Some(Outcome::Page(keys, next)) = self.look_at(server, scan) {
                        found.extend(keys);
                        from = next.filter(|_| found.len() <= self.plan.keys.len());
                    }
                }
                if let Some(Outcome::Count(count)) = self.look_at(server, Operation::Count { first: *slot, last: *slot }) {
                    counted += count;
                }
            }
            let (id, live, scanned) = (self.servers[server].id, self.servers[server].live_keys, found.len() as u64);
            found.sort_unstable();
            found.dedup();
            if live != scanned || live != counted || scanned != found.len() as u64 {
                let text = format!(
                    "{id} reads {live} keys with a value, SCAN there finds {scanned} ({} of them once), DBSIZE counts {counted}\n",
                    found.len()
                );
                self.fail("scan", text);
                return;
            }
        }
    }

    /// What `server` answers to an operation that looks at what is there, and waits for nothing.
    pub(crate) fn look_at(&mut self, server: ServerIndex, operation: Operation) -> Option<Outcome> {
        let now = self.servers[server].clock.read(self.now_us);
        let node = self.servers[server].node.as_mut()?;
        let mut session = node.look().new_session();
        match node.server().execute(now, operation, &mut session, &mut Outbox::default()) {
            Execution::Done { outcome, .. } => Some(outcome),
            Execution::Waiting(_) => None,
        }
    }

    /// What `server` answers to who asks it before all clients or after them: at once, but for the disk. While it is busy it is asked again, for a while: counters have operations of their own, which can
    /// take the one place that a plan leaves for those that wait.
    pub(crate) fn ask_alone(&mut self, server: ServerIndex, operation: Operation) -> Option<Outcome> {
        let patience_us = if self.plan.cold > 0 { ANSWER_US } else { 0 };
        let until_us = self.now_us + ANSWER_US;
        loop {
            let answer = self.ask_at(server, operation.clone(), patience_us);
            let busy = matches!(answer, Some(Outcome::Failed(rheostat_core::failure::Failure::Busy(_))));
            if !busy || self.now_us >= until_us {
                return answer;
            }
            self.run_until(self.now_us + AGAIN_US, |_| false);
        }
    }

    /// Whether the first server of which that can be said holds more versions than `most` says of it. Nothing is said of a run with counters: beside them stand keys that
    /// are not in the plan, and they are written once more in the end.
    fn holds_more(&self, most: impl Fn(ServerIndex, &StoreStats) -> u64) -> Option<String> {
        // What a restart brings back of what was collected, a follower keeps until the key is written again, or it leads.
        let keeps =
            |(index, server): &(ServerIndex, &crate::world::Server)| self.plan.has_replicas() && server.incarnation > 0 && !self.leads(*index);
        let servers = self.servers.iter().enumerate().filter(|server| self.plan.counters.is_empty() && !keeps(server));
        servers.filter_map(|(index, server)| Some((index, server, server.node.as_ref()?))).find_map(|(index, server, node)| {
            let stats = node.look().status(server.clock.read(self.now_us)).store;
            let (id, StoreStats { versions, keys, .. }) = (server.id, &stats);
            let here = self.beside.finals.iter().filter(|(dc, key, _)| *dc == id.dc && self.plan.partition(key.index()) == id.partition);
            let beside: usize = here.map(|(.., found)| found.len()).sum();
            let what = format!("{id} still holds {versions} versions of {keys} keys when nothing has been written for a while\n");
            (*versions > most(index, &stats) + beside as u64).then_some(what)
        })
    }

    /// Sends the history through the checkers of what the protocol promises.
    pub(crate) fn check(&mut self, history: &History) {
        // What was read of a write that went with the power is in no later read.
        // Elsewhere what another session has written here can still be hidden from the one that changes the key.
        let promises = Promises { change: self.decides, ..Promises::of(self.promised()) };
        self.note_history(history);
        self.note_expired(history);
        // What was lost had been written.
        if !self.plan.may_lose_acknowledged()
            && let Err(why) = as_of::check(history, &self.pasts)
        {
            self.fail("as-of", why);
        }
        let told = self.told_by_feeds();
        if !self.plan.may_lose_acknowledged()
            && let Err(why) = rheostat_checkers::feed::check(history, &told)
        {
            self.fail("feed", why);
        }
        // Several servers that act as one: whoever leads no more answers nobody.
        let one_server = self.plan.has_replicas() && crate::node::shows_at_once(&self.plan.protocol);
        if one_server && !self.plan.may_lose_acknowledged() && !self.disk_lost_writes {
            match rheostat_checkers::recent::check(history) {
                Ok(reads) => self.marks.see_times(marks::RECENT, reads),
                Err(why) => self.fail("recent", why),
            }
        }
        if !self.plan.may_lose_acknowledged()
            && let Err(why) = self.tests.check(history, !crate::node::can(&self.plan.protocol).agrees_everywhere())
        {
            self.fail("test-writes", why);
        }
        // A value that is written back is there twice, and who had read it does not see it any more.
        if !self.rollbacks.is_empty() {
            if !self.plan.may_lose_acknowledged()
                && let Err(why) = rheostat_checkers::rollback::check(history, &self.rollbacks)
            {
                self.fail("rollback", why);
            }
            return;
        }
        let held = || self.plan.held_to.map_or(Ok(()), |promise| check(&at_the_strongest_level(history), promise).map(drop));
        if let Err(violation) = check_all(history, &promises).map(drop).and_then(|()| held()) {
            if let Some(watch) = &mut self.watch {
                watch.course.shown = violation.trace.clone();
            }
            self.failure.get_or_insert_with(|| Failure {
                promise: violation.promise.name().to_owned(),
                text: violation.to_string(),
                events: violation.trace.len(),
            });
        }
    }

    /// The level whose promises the history is checked for: no more than convergence and durability where servers can lose what they acknowledged.
    pub(crate) fn promised(&self) -> Level {
        if self.plan.may_lose_acknowledged() || self.disk_lost_writes { Level::Eventual } else { self.level }
    }

    /// Sees the marks that only the whole history shows.
    fn note_history(&mut self, history: &History) {
        let mut open: BTreeMap<u64, ()> = BTreeMap::new();
        let mut together: Vec<[KeyId; 2]> = Vec::new();
        let mut newest: BTreeMap<KeyId, VersionId> = BTreeMap::new();
        let mut deleted: Vec<KeyId> = Vec::new();
        let mut by_time: Vec<&rheostat_checkers::Event> = history.events.iter().collect();
        by_time.sort_by_key(|event| event.completed_us);
        for event in by_time {
            if event.outcome == Came::Unknown {
                event.items().iter().filter_map(|item| item.value).for_each(|value| {
                    open.insert(value.0, ());
                });
            }
            let items = event.items();
            if let [first, second, ..] = items {
                together.push([first.key, second.key]);
            }
            deleted.extend(items.iter().filter(|item| item.value.is_none()).map(|item| item.key));
            if let Some(Some(version)) = event.acknowledged() {
                for item in items {
                    match newest.get(&item.key) {
                        Some(before) if *before > version => self.marks.see(marks::CLOCK_DECIDED),
                        _ => {
                            newest.insert(item.key, version);
                        }
                    }
                }
            }
        }
        let known = |observed: &Observation| observed.value.is_some_and(|value| open.contains_key(&value.0));
        for event in &history.events {
            let read = event.observations().filter(|(_, observed)| known(observed)).count();
            self.marks.see_times(marks::UNKNOWN_WRITE_READ, read as u64);
            if let (Recorded::ReadTransaction { keys, .. }, Came::Read(_)) = (&event.action, &event.outcome)
                && together.iter().any(|pair| pair.iter().all(|key| keys.contains(key)))
            {
                self.marks.see(marks::PUT_SEEN_WHOLE);
            }
        }
        if history.finals.iter().any(|read| read.observed.is_absent() && deleted.contains(&read.key)) {
            self.marks.see(marks::TOMBSTONE_COLLECTED);
        }
    }
}

fn deletes(action: &Action) -> bool {
    match action {
        Action::Take { .. } => true,
        Action::Put { items } => items.iter().any(|item| item.delete),
        Action::Expiring { action, .. } => deletes(action),
        _ => false,
    }
}

/// `history` as if every operation had asked for all there is.
fn at_the_strongest_level(history: &History) -> History {
    let mut history = history.clone();
    for event in &mut history.events {
        if let Recorded::Put { level, .. } | Recorded::Change { level, .. } | Recorded::Get { level, .. } | Recorded::ReadTransaction { level, .. } =
            &mut event.action
        {
            *level = Level::Strong;
        }
    }
    history
}
