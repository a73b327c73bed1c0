//! Whom the server inside speaks to: of each partition and data center, the replica that leads.
//!
//! A leader that begins greets the others; after that, whatever comes from one says that it leads, and in which term. What comes from an earlier term is dropped. Who has not been heard for a while is
//! sent to at all its replicas: those that do not lead drop what is not for them.

use super::pages::{OwnPage, Page};
use super::{Replicas, Seat, Sits};
use crate::frame::Frame;
use rheostat_clock::DcId;
use rheostat_core::ids::{Now, PartitionId, ServerId};
use rheostat_core::replica::{Outbox, PartitionServer};
use rheostat_core::version::Value;
use rheostat_core::wire::Wire;

/// A leader that has not been heard for so long may be none, in microseconds.
const HEARD_US: u64 = 1_000_000;

/// Frames that wait for the lease at most.
const MOST_PARKED: usize = 4096;

/// What is known of a partition in a data center.
#[derive(Clone, Copy)]
pub(super) struct Known {
    replica: u8,
    term: u64,
    heard_us: u64,
}

impl<F: Seat> Replicas<F> {
    /// `from` leads in `term`. Says whether that is not known to be over, and whether it is news.
    fn learn(&mut self, now: Now, from: ServerId, term: u64) -> (bool, bool) {
        let known = self.known.entry((from.dc, from.partition)).or_insert(Known { replica: from.replica, term: 0, heard_us: 0 });
        if term < known.term {
            return (false, false);
        }
        let news = term > known.term;
        *known = Known { replica: from.replica, term, heard_us: now.monotonic_us };
        (true, news)
    }

    pub(super) fn send_inside(&mut self, now: Now, to: ServerId, bytes: Vec<u8>, out: &mut Outbox) {
        let frame = Frame::Inside(self.term, Value::from(bytes)).to_bytes();
        match self.known.get(&(to.dc, to.partition)).filter(|known| known.heard_us + HEARD_US > now.monotonic_us) {
            Some(known) => out.frames.push((ServerId { replica: known.replica, ..to }, frame)),
            None => out.frames.extend((0..self.config.place.replicas).map(|replica| (ServerId { replica, ..to }, frame.clone()))),
        }
    }

    /// Tells the other partitions of this data center, and this one in the others (or in `dc` only), who leads here.
    pub(super) fn greet(&mut self, _now: Now, dc: Option<DcId>, out: &mut Outbox) {
        let place = self.config.place;
        let here = place.server;
        let inside = (0..place.partitions).map(|partition| ServerId { partition: PartitionId(partition), ..here });
        let outside = place.peers().map(|dc| ServerId { dc, ..here });
        let groups = inside.chain(outside).filter(|to| (to.dc, to.partition) != (here.dc, here.partition) && dc.is_none_or(|dc| to.dc == dc));
        let frame = Frame::Greeting(self.term, true).to_bytes();
        out.frames.extend(groups.flat_map(|to| (0..place.replicas).map(move |replica| ServerId { replica, ..to })).map(|to| (to, frame.clone())));
    }

    pub(super) fn on_frame(&mut self, now: Now, from: ServerId, bytes: &[u8], out: &mut Outbox) {
        let place = self.config.place;
        let known = from.dc.0 < place.data_centers && from.partition.0 < place.partitions && from.replica < place.replicas;
        let group = from.dc == place.dc() && from.partition == place.server.partition;
        let Some(frame) = Frame::from_bytes(bytes).ok().filter(|_| known && (from.dc == place.dc() || from.partition == place.server.partition))
        else {
            self.refused += 1;
            return;
        };
        match frame {
            Frame::Inside(term, bytes) if !group => self.on_inside(now, from, term, bytes, out),
            Frame::Greeting(term, asks) if !group => {
                let (current, news) = self.learn(now, from, term);
                if !current || !matches!(self.sits, Sits::Leads(_)) {
                    return;
                }
                if asks {
                    self.push_frame(from, &Frame::Greeting(self.term, false), out);
                }
                if news && from.dc != place.dc() && self.may_run(now) {
                    self.run(now, out, |server, out| server.connected(now, from.dc, out));
                }
            }
            _ if !group => self.refused += 1,
            Frame::Raft(message) => self.on_raft(now, from, message, out),
            Frame::Word(word) => self.on_word(from, word, out),
            Frame::Ask(request, operation, session) => self.on_ask(now, from, request, operation, &session, out),
            Frame::Answer(request, outcome, session) => self.on_answer(request, outcome, &session, out),
            Frame::Elsewhere(request) => self.on_elsewhere(request),
            Frame::FetchOwn(snapshot, after) => self.on_fetch_own(now, from, snapshot, after, out),
            Frame::Fetch(snapshot, slot, place) => self.on_fetch(now, from, snapshot, (slot, place), out),
            Frame::Own(snapshot, after, released, upto, state, updates) => {
                self.on_own(now, from, OwnPage { snapshot, after, released, upto, state, updates }, out);
            }
            Frame::Page(snapshot, slot, place, next, updates) => self.on_page(now, from, Page { snapshot, at: (slot, place), next, updates }, out),
            Frame::Inside(..) | Frame::Greeting(..) => self.refused += 1,
        }
    }

    fn on_inside(&mut self, now: Now, from: ServerId, term: u64, bytes: Value, out: &mut Outbox) {
        if !self.learn(now, from, term).0 || !matches!(self.sits, Sits::Leads(_)) {
            return;
        }
        let from = ServerId { replica: 0, ..from };
        if self.may_run(now) && self.parked.is_empty() {
            self.run(now, out, |server, out| server.receive(now, from, &bytes, out));
        } else if self.parked.len() < MOST_PARKED {
            // If the lease does not come back, they are as lost as with a connection.
            self.parked.push_back((from, bytes));
        }
    }

    /// What has come while the server inside might not run.
    pub(super) fn receive_parked(&mut self, now: Now, out: &mut Outbox) {
        while self.may_run(now)
            && let Some((from, bytes)) = self.parked.pop_front()
        {
            self.run(now, out, |server, out| server.receive(now, from, &bytes, out));
        }
    }
}
