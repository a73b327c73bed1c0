//! The node that a server leaves: lists its files, reads them, and gives them away.

use super::files::{self, Listed};
use super::question::{Answer, NO_SUCH_SERVER, Question};
use super::{Places, Shared, lock, remove};
use crate::peer::Peer;
use crate::seats::Seat;
use crate::topology::NodeId;
use rheostat_core::wire::Wire;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// An answer that finds no connection is tried again so often, after so long. Whoever asks is told when there is none any more.
const TRIES: u32 = 200;
const TRY_AGAIN: Duration = Duration::from_millis(25);

impl Shared {
    /// Another node asks for files. They are read on a thread that may wait for the disk.
    pub(crate) fn on_files_question(self: &Arc<Self>, peer: &Arc<Peer>, question: u64, bytes: &[u8]) {
        let Ok(asked) = Question::from_bytes(bytes) else { return };
        let (shared, peer) = (self.clone(), peer.clone());
        tokio::task::spawn_blocking(move || {
            let mut answer = shared.answer_files(peer.node(), &asked).to_bytes();
            if !peer.may_answer_files(answer.len()) {
                let why = format!("{} bytes of it are more than a frame may have (limits.max_frame_bytes)", answer.len());
                answer = Answer::Refused(why).to_bytes();
            }
            let mut tries = 0;
            while tries < TRIES && !peer.answer_files(shared.clocks.monotonic_us(), question, &answer) && !*shared.stopping.borrow() {
                // Where it finds no room there is some later: nobody asks again before a list could have come.
                tries += u32::from(!peer.is_connected());
                std::thread::sleep(TRY_AGAIN);
            }
        });
    }

    fn answer_files(&self, asker: NodeId, question: &Question) -> Answer {
        let (Question::List { seat, .. } | Question::Block { seat, .. } | Question::Give { seat, .. }) = question;
        if !self.topology.has_seat(seat.0, seat.1) || !self.topology.moves_by_copy(seat.0) || seat.1.dc != self.topology.here {
            return Answer::Refused(NO_SUCH_SERVER.into());
        }
        if self.topology.nodes.get(asker.index()).is_none_or(|node| node.dc != self.topology.here) {
            return Answer::Refused("servers move within their data center only".into());
        }
        match question {
            Question::List { version: 0, .. } => self.list_served(*seat),
            Question::List { version, .. } => self.list_closed(asker, *seat, *version),
            Question::Block { file, number, .. } => self.read_block(*seat, file, *number),
            Question::Give { version, .. } => self.give(asker, *seat, *version),
        }
    }

    /// Whether this node's word is that the `version`th move of `seat` was to node `asker`, and no other has followed.
    fn is_of_last_move(&self, asker: NodeId, seat: Seat, version: u32) -> bool {
        let (keyspace, server) = seat;
        self.seats.of(seat).0 == version && self.topology.host(keyspace, server.dc, server.partition, server.replica) == asker
    }

    fn list_served(&self, seat: Seat) -> Answer {
        let (keyspace, server) = seat;
        let Some(places) = self.places(seat) else { return Answer::Refused("it is not on disk".into()) };
        let (version, settled) = self.seats.of(seat);
        let is_here = self.topology.host(keyspace, server.dc, server.partition, server.replica) == self.topology.node;
        if !is_here || version > 0 && !settled || !places.store.exists() {
            return Answer::Refused("the server is not here, or is on its way".into());
        }
        listed(lock(&self.moving.digests(seat)).list_open(&places.store))
    }

    fn list_closed(&self, asker: NodeId, seat: Seat, version: u32) -> Answer {
        let Some(places) = self.places(seat) else { return Answer::Refused("it is not on disk".into()) };
        if !self.is_of_last_move(asker, seat, version) {
            return Answer::NotYet("the node that has it has not heard of the move, or of a later one".into());
        }
        if !places.store.exists() {
            return Answer::Given;
        }
        if let Some(not_yet) = self.not_closed(seat, &places) {
            return not_yet;
        }
        listed(lock(&self.moving.digests(seat)).list(&places.store))
    }

    /// Why a server's files may still change, if they may.
    fn not_closed(&self, seat: Seat, places: &Places) -> Option<Answer> {
        if !self.moving.is_closed(seat) {
            return Some(Answer::NotYet("it is not closed yet".into()));
        }
        // Whatever is noted, the store itself says whether somebody still has it open.
        match files::is_open(&places.store) {
            Ok(false) => None,
            Ok(true) => Some(Answer::NotYet("its store is not closed yet".into())),
            Err(error) => Some(Answer::NotYet(format!("whether its store is closed is not known: {error}"))),
        }
    }

    fn read_block(&self, seat: Seat, file: &str, number: u32) -> Answer {
        let Some(places) = self.places(seat) else { return Answer::Refused("it is not on disk".into()) };
        match files::block(&places.store, file, number) {
            Ok(bytes) => Answer::Block(bytes),
            // Of a store that is open, files come and go.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Answer::NotYet(format!("{file} is gone")),
            Err(error) => Answer::Refused(format!("{file} cannot be read: {error}")),
        }
    }

    /// Puts the server's files out of the way, for good: `asker` has them.
    fn give(&self, asker: NodeId, seat: Seat, version: u32) -> Answer {
        let Some(places) = self.places(seat) else { return Answer::Refused("it is not on disk".into()) };
        let _deciding = self.moving.deciding();
        if !self.is_of_last_move(asker, seat, version) {
            return Answer::NotYet("the node that has it has not heard of the move, or of a later one".into());
        }
        if !places.store.exists() {
            return Answer::Given;
        }
        if let Some(not_yet) = self.not_closed(seat, &places) {
            return not_yet;
        }
        let given = places.prepare().and_then(|()| remove(&places.given)).and_then(|()| places.rename(&places.store, &places.given));
        if let Err(error) = given {
            return Answer::NotYet(format!("its files cannot be put out of the way: {error}"));
        }
        lock(&self.moving.digests).remove(&seat);
        self.note_stores();
        let keyspace = &self.keyspaces[usize::from(seat.0.0)].name;
        match remove(&places.given) {
            Ok(()) => tracing::info!(%keyspace, server = %seat.1, "gave this server's files away, and deleted them here"),
            Err(error) => {
                tracing::warn!(%keyspace, server = %seat.1, %error, "gave this server's files away; they could not be deleted here, and are at the next start")
            }
        }
        Answer::Given
    }

    /// Deletes what this node has on disk of a member of a group that has moved from here, if who came after is counted. Says whether there was something. May wait for the disk.
    pub(crate) fn delete_moved(&self, seat: Seat) -> bool {
        // Files that a server moves with are given, or are the only ones.
        let Some(places) = self.places(seat).filter(|_| !self.topology.moves_by_copy(seat.0)) else { return false };
        let aside = {
            let _deciding = self.moving.deciding();
            let (_, settled, is_here) = self.seats.of_and_here(seat, &self.topology);
            if !settled || is_here || !places.store.exists() {
                return false;
            }
            // At once: the server may come back while they are deleted, and its new store is no part of them.
            places.prepare().and_then(|()| remove(&places.given)).and_then(|()| places.rename(&places.store, &places.given))
        };
        let keyspace = &self.keyspaces[usize::from(seat.0.0)].name;
        match aside.and_then(|()| remove(&places.given)) {
            Ok(()) => tracing::info!(%keyspace, server = %seat.1, "deleted what was here of a server that has moved"),
            Err(error) => tracing::warn!(%keyspace, server = %seat.1, %error, "what is here of a server that has moved could not be deleted"),
        }
        true
    }
}

fn listed(files: io::Result<Vec<Listed>>) -> Answer {
    match files {
        Ok(files) => Answer::Files(files),
        Err(error) => Answer::Refused(format!("its files cannot be read: {error}")),
    }
}
