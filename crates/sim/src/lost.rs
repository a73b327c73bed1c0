//! An operator who says that a data center is lost for ever, as `rheostat ctl lost` does it: first that nobody hears it any more; and when all that are left have the same of it, up to where that is.

use crate::marks;
use crate::world::{Event, ServerIndex, World};
use rheostat_core::ids::PartitionId;
use rheostat_core::{DcId, Timestamp};

/// How often the operator looks, in microseconds.
const LOOK_US: u64 = 100_000;

/// A data center that is said to be lost.
pub(crate) struct Lost {
    pub(crate) dc: DcId,
    /// All servers that are left have been told.
    told: bool,
    /// By partition, up to where its servers wrote anything that anybody has.
    pub(crate) ends: Vec<Option<Timestamp>>,
}

impl World<'_> {
    /// The operator begins.
    pub(crate) fn say_lost(&mut self, dc: DcId) {
        if self.lost.iter().all(|lost| lost.dc != dc) {
            self.trace.line(crate::trace::TraceLevel::Story, self.now_us, "operator", || format!("says that data center {dc} is lost"));
            self.lost.push(Lost { dc, told: false, ends: vec![None; usize::from(self.plan.partitions)] });
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
        if self.lost.iter().any(|lost| lost.ends.iter().any(Option::is_none)) && self.failure.is_none() {
            self.schedule(self.now_us + LOOK_US, Event::Operator);
        } else {
            self.marks.see(marks::GIVEN_UP);
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
            let partition = usize::from(self.servers[server].id.partition.0);
            let (dc, end) = (self.lost[place].dc, self.lost[place].ends[partition]);
            let mut out = std::mem::take(&mut self.outbox);
            let Some(node) = &mut self.servers[server].node else { return };
            node.server().lose(now, dc, end, &mut out);
            node.server().end_round(now, &mut out);
            node.server().write_through();
            self.after_round(server, out, Vec::new());
        }
    }

    /// Up to where anybody has what `dc`, which is lost, wrote in `partition`; `None` while that is not known.
    pub(crate) fn end_of(&self, dc: DcId, partition: PartitionId) -> Option<Timestamp> {
        self.lost.iter().find(|lost| lost.dc == dc)?.ends[usize::from(partition.0)]
    }

    /// Whether a data center has died that nobody has given up.
    pub(crate) fn mourns(&self) -> bool {
        self.gone.iter().any(|dc| self.lost.iter().all(|lost| lost.dc != *dc))
    }
}
