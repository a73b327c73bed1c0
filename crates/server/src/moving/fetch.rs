//! The node that a server comes to: asks for its files, and takes them over.

use super::files::{BLOCK_BYTES, Incoming, Listed, total};
use super::question::{Answer, NO_SUCH_SERVER, Question};
use super::{Coming, ComingInfo, Copies, Places, Shared, lock, remove};
use crate::folder;
use crate::peer::Peer;
use crate::seats::{Moved, Seat};
use rheostat_core::ids::ServerId;
use rheostat_core::wire::Wire;
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

/// An answer is waited for so long; a list can take as long as reading all of the files.
const PATIENCE: Duration = Duration::from_secs(30);
const LIST_PATIENCE: Duration = Duration::from_secs(600);
/// Between two looks whether it is still wanted.
const LOOK: Duration = Duration::from_millis(100);
/// Between two questions whether the old node has closed the server, and for how long one attempt asks.
const ASK_AGAIN: Duration = Duration::from_millis(5);
const CLOSED_WITHIN: Duration = Duration::from_secs(10);
/// Connected nodes have so long to say whether they could follow a move: one that says nothing hears of it later.
const FOLLOWS_WITHIN: Duration = Duration::from_secs(5);
/// Blocks that are asked for at once.
const AT_ONCE: usize = 4;
/// While the server still serves, what has changed is copied again until it is less than this, or this often.
const LITTLE_BYTES: u64 = 8 << 20;
const MOST_ROUNDS: u32 = 8;
/// Bytes that are left free on the disk.
const SPARE_BYTES: u64 = 64 << 20;

impl Shared {
    /// As [`Shared::take_seat`], of a server that moves with its files. If they are here already, it is opened from them; else they begin to come from node `from`, and the server with them when most are here. Errors: why that cannot be, in words for the operator; nothing has changed.
    pub(crate) fn take_with_files(self: &Arc<Self>, seat: Seat, from: &str) -> Result<(), String> {
        let name = &self.keyspaces[usize::from(seat.0.0)].name;
        let places = self.places(seat).ok_or_else(|| format!("keyspace {name} keeps nothing on disk"))?;
        let _deciding = self.moving.deciding();
        if let Some(why) = self.lives.lost() {
            // What an older copy of a directory says of moves is over.
            return Err(why);
        }
        let (version, settled) = self.seats.of(seat);
        // It was to move away from here: with its files, which have not been given, this node is the one that has it; without its disk, nobody else has.
        let was_here = version > 0 && !settled && self.seats.comes_from(seat) == self.topology.this().name;
        if !was_here && places.store.exists() {
            let store = places.store.display();
            return Err(match version > 0 && !settled {
                true => format!("{store} is there, and the server is on its way to node {from}: this may be all that is left of it, keep it"),
                false => format!("{store} is there, and is not what the server has now: move it away"),
            });
        }
        if was_here && (places.store.exists() || self.lives.own().is_some_and(|life| life.replaces())) {
            let version = version.checked_add(1).ok_or("this seat was moved too often")?;
            self.moving.stays(seat);
            return self.learn_seats(vec![self.moved_here(seat, version, true, String::new())]);
        }
        if version > 0 && !settled {
            return Err(format!("it is on its way to node {from} already; move it on when it has come, or back to where it comes from"));
        }
        let node = self.topology.nodes_in(self.topology.here).find(|node| node.name == from);
        let peer = node.and_then(|node| self.peer(node.id)).filter(|peer| peer.is_connected()).ok_or_else(|| {
            format!("node {from} does not answer this one, and nobody else has the server's files: a server that stands alone moves with them")
        })?;
        if self.space.as_ref().is_some_and(|space| space.is_short()) {
            return Err("this node's disk is full".into());
        }
        let mut coming = lock(&self.moving.coming);
        if coming.get(&seat).is_some_and(|coming| lock(&coming.failed).is_none() && coming.from == from) {
            return Ok(());
        }
        let one = Arc::new(Coming { from: from.to_owned(), version, ..Coming::default() });
        if let Some(before) = coming.insert(seat, one.clone()) {
            before.decide(false);
        }
        let (shared, peer) = (self.clone(), peer.clone());
        tokio::task::spawn_blocking(move || shared.come_with_files(seat, version, &peer, &places, &one));
        Ok(())
    }

    /// At a start: servers that were to move from here to nodes that are not in the configuration, and whose files are here, stay. Nobody else opens what it has got of them, since nobody was given it.
    pub(crate) fn keep_what_nobody_takes(&self) {
        for (seat, node) in self.seats.nowhere(&self.topology) {
            let keyspace = &self.keyspaces[usize::from(seat.0.0)].name;
            let _deciding = self.moving.deciding();
            let (version, settled) = self.seats.of(seat);
            let was_here = !settled && self.topology.moves_by_copy(seat.0) && self.seats.comes_from(seat) == self.topology.this().name;
            // What an older copy of a directory says of moves is over; and what stands in the place of a lost one may be less than what was given away before.
            let is_own = self.lives.lost().is_none() && self.lives.own().is_some_and(|life| !life.replaces());
            let is_kept = was_here && is_own && self.places(seat).is_some_and(|places| places.store.exists());
            let Some(version) = version.checked_add(1).filter(|_| is_kept) else {
                tracing::warn!(%keyspace, server = %seat.1, node, "this server is at a node that is not in the configuration");
                continue;
            };
            tracing::warn!(%keyspace, server = %seat.1, node, "this server was to move to a node that is not in the configuration any more, and stays");
            self.moving.stays(seat);
            if let Err(why) = self.learn_seats(vec![self.moved_here(seat, version, true, String::new())]) {
                tracing::error!(why, "seats could not be kept");
            }
        }
    }

    /// A server that is being copied here is not to come; says whether there was one. One of which the old node has heard comes all the same, and is moved back.
    pub(crate) fn cancel_seat(&self, seat: Seat) -> bool {
        let mut all = lock(&self.moving.coming);
        // One that has failed is only told of.
        let may_go = |coming: &Arc<Coming>| lock(&coming.failed).is_some() || coming.decide(false);
        all.get(&seat).is_some_and(may_go) && all.remove(&seat).is_some()
    }

    /// How far `seat` has come, if it is being copied here.
    pub(crate) fn coming(&self, seat: Seat) -> Option<ComingInfo> {
        let coming = lock(&self.moving.coming).get(&seat).cloned()?;
        // It has come, or is another node's since.
        if self.seats.of(seat).0 != coming.version {
            return None;
        }
        let failed = lock(&coming.failed).clone();
        Some(ComingInfo {
            from: coming.from.clone(),
            bytes: coming.bytes.load(Ordering::Relaxed),
            copied: coming.copied.load(Ordering::Relaxed),
            failed,
        })
    }

    fn moved_here(&self, (keyspace, server): Seat, version: u32, settled: bool, from: String) -> Moved {
        Moved { keyspace, server, version, node: self.topology.this().name.clone(), settled, from }
    }

    fn come_with_files(self: &Arc<Self>, seat: Seat, version: u32, peer: &Peer, places: &Places, coming: &Arc<Coming>) {
        let keyspace = &self.keyspaces[usize::from(seat.0.0)].name;
        tracing::info!(%keyspace, server = %seat.1, from = coming.from, "copies this server's files, to take it over");
        let began = Instant::now();
        let wanted = || {
            if coming.is_cancelled() || self.moving.stops.load(Ordering::Relaxed) {
                return Err(Ends::Unwanted);
            }
            if self.seats.of(seat).0 != version {
                return Err(Ends::Because("it was moved elsewhere meanwhile".into()));
            }
            Ok(())
        };
        // One that was cancelled may be about to end.
        let copies = self.wait_to_copy(seat, &wanted);
        let follow = copies.as_ref().map_err(Ends::clone).and_then(|_| self.all_follow(seat, &wanted));
        let copied = follow.and_then(|()| self.copy_served(seat, peer, places, coming, &wanted)).and_then(|bytes| {
            let _deciding = self.moving.deciding();
            // If the node stops now, nobody would serve it.
            wanted()?;
            let version = version.checked_add(1).ok_or_else(|| Ends::Because("this seat was moved too often".into()))?;
            // Who cancels it while it is put on disk is told that it comes.
            if !coming.decide(true) {
                return Err(Ends::Unwanted);
            }
            tracing::info!(%keyspace, server = %seat.1, bytes, took_ms = began.elapsed().as_millis() as u64, "has most of this server's files, and takes it over");
            self.learn_seats(vec![self.moved_here(seat, version, false, coming.from.clone())]).map_err(Ends::Because)
        });
        match copied {
            Ok(()) => {
                let mut all = lock(&self.moving.coming);
                if all.get(&seat).is_some_and(|one| Arc::ptr_eq(one, coming)) {
                    all.remove(&seat);
                }
            }
            Err(ends) => {
                if let Ends::Because(why) = &ends {
                    tracing::warn!(%keyspace, server = %seat.1, from = coming.from, why, "this server does not come");
                    *lock(&coming.failed) = Some(why.clone());
                }
                // The seat may be here all the same, although that could not be kept on disk: then they are what it is opened from.
                let is_taken = || {
                    let _deciding = self.moving.deciding();
                    let (now, _, is_here) = self.seats.of_and_here(seat, &self.topology);
                    now != version && is_here
                };
                if copies.is_ok()
                    && !is_taken()
                    && let Err(error) = places.drop_copy()
                {
                    tracing::warn!(%keyspace, server = %seat.1, %error, "what was copied could not be deleted, and is at the next start");
                }
            }
        }
    }

    /// Whether all nodes that are connected can follow a move of `seat`. One that has its keyspace in memory cannot: it would go on sending to where the server was. Errors: it cannot.
    fn all_follow(&self, (keyspace, server): Seat, wanted: &dyn Fn() -> Result<(), Ends>) -> Result<(), Ends> {
        let mut asked = Vec::new();
        for node in &self.topology.nodes {
            let Some(peer) = self.peer(node.id).filter(|peer| peer.is_connected()) else { continue };
            // Of a server of its own data center, and no move that there was: it says only whether such servers move.
            let question = Question::List { seat: (keyspace, ServerId { dc: node.dc, ..server }), version: u32::MAX };
            let Some((id, answer)) = peer.ask_files(self.clocks.monotonic_us(), &question.to_bytes()) else { continue };
            asked.push((node, peer, id, answer));
        }
        let began = Instant::now();
        for (node, peer, id, answer) in asked {
            match wait(peer, id, &answer, FOLLOWS_WITHIN.saturating_sub(began.elapsed()), wanted) {
                Ok(Answer::Refused(why)) if why == NO_SUCH_SERVER => {
                    let (name, keyspace) = (&node.name, &self.keyspaces[usize::from(keyspace.0)].name);
                    return Err(Ends::Because(format!(
                        "node {name} has keyspace {keyspace} in memory, and would not follow the move: keep it on disk there too (data_dir, durability)"
                    )));
                }
                Err(Ends::Unwanted) => return Err(Ends::Unwanted),
                _ => {}
            }
        }
        Ok(())
    }

    /// Waits until nobody else works in the copy of `seat`.
    fn wait_to_copy(&self, seat: Seat, wanted: &dyn Fn() -> Result<(), Ends>) -> Result<Copies<'_>, Ends> {
        loop {
            if let Some(copies) = self.moving.copies(seat) {
                return Ok(copies);
            }
            wanted()?;
            std::thread::sleep(ASK_AGAIN);
        }
    }

    /// Copies the files while the server is in use, again and again what has changed, until little has. Returns the bytes of all of them.
    fn copy_served(&self, seat: Seat, peer: &Peer, places: &Places, coming: &Coming, wanted: &dyn Fn() -> Result<(), Ends>) -> Result<u64, Ends> {
        wait_to_hear(peer, wanted)?;
        places.prepare()?;
        remove(&places.whole)?;
        let mut incoming = Incoming::open(&places.copy, &self.moving.stops)?;
        for round in 1.. {
            wanted()?;
            let list = match self.ask(peer, &Question::List { seat, version: 0 }, LIST_PATIENCE, wanted)? {
                Answer::Files(list) => list,
                Answer::NotYet(why) | Answer::Refused(why) => return Err(Ends::Because(why)),
                Answer::Block(_) | Answer::Given => return Err(strange()),
            };
            let bytes = total(&list);
            coming.bytes.store(bytes, Ordering::Relaxed);
            let copied =
                self.copy(seat, peer, &list, &mut incoming, wanted, &mut |left| coming.copied.store(bytes.saturating_sub(left), Ordering::Relaxed))?;
            incoming.flush()?;
            if copied.bytes <= LITTLE_BYTES || round == MOST_ROUNDS {
                return Ok(bytes);
            }
        }
        Err(strange())
    }

    /// Copies those blocks of the files in `list` that are others here; `left` is told how many bytes have yet to come.
    fn copy(
        &self,
        seat: Seat,
        peer: &Peer,
        list: &[Listed],
        incoming: &mut Incoming,
        wanted: &dyn Fn() -> Result<(), Ends>,
        left: &mut dyn FnMut(u64),
    ) -> Result<Copied, Ends> {
        let blocks = incoming.shape(list)?;
        let mut copied = Copied { bytes: 0, changed: false };
        let mut to_come = blocks.len() as u64 * BLOCK_BYTES;
        self.has_room(to_come)?;
        let mut asked: VecDeque<Asked> = VecDeque::new();
        let mut next = blocks.into_iter();
        loop {
            left(to_come);
            // As long as answers come at once, nobody else asks.
            wanted()?;
            while asked.len() < AT_ONCE
                && let Some((file, number)) = next.next()
            {
                let question = Question::Block { seat, file: list[file].name.clone(), number };
                let (id, answer) = peer.ask_files(self.clocks.monotonic_us(), &question.to_bytes()).ok_or_else(unreachable)?;
                asked.push_back(Asked { file, number, id, answer });
            }
            let Some(Asked { file, number, id, answer }) = asked.pop_front() else { return Ok(copied) };
            match wait(peer, id, &answer, PATIENCE, wanted)? {
                Answer::Block(bytes) => {
                    copied.bytes += bytes.len() as u64;
                    copied.changed |= !incoming.take(&list[file], number, &bytes)?;
                }
                // It has gone since it was listed.
                Answer::NotYet(_) => copied.changed = true,
                Answer::Refused(why) => return Err(Ends::Because(why)),
                Answer::Files(_) | Answer::Given => return Err(strange()),
            }
            to_come -= BLOCK_BYTES;
        }
    }

    /// Whether the disk has room for so many bytes more.
    fn has_room(&self, bytes: u64) -> Result<(), Ends> {
        let Some(dir) = &self.config.data_dir else { return Ok(()) };
        let disk = rustix::fs::statvfs(dir).map_err(io::Error::from)?;
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        match free >= bytes + SPARE_BYTES {
            true => Ok(()),
            false => Err(Ends::Because(format!("{} MB are to come, and this node's disk has {} MB of room", bytes >> 20, free >> 20))),
        }
    }

    fn ask(&self, peer: &Peer, question: &Question, patience: Duration, wanted: &dyn Fn() -> Result<(), Ends>) -> Result<Answer, Ends> {
        let (id, answer) = peer.ask_files(self.clocks.monotonic_us(), &question.to_bytes()).ok_or_else(unreachable)?;
        wait(peer, id, &answer, patience, wanted)
    }

    /// Whether the server at `seat` has moved to this node, and its files have not all come, or has moved on already.
    pub(crate) fn must_obtain(&self, seat: Seat) -> bool {
        let (version, settled, is_here) = self.seats.of_and_here(seat, &self.topology);
        let is_on_its_way = version > 0 && !(settled && is_here) && self.topology.moves_by_copy(seat.0);
        is_on_its_way && self.places(seat).is_some_and(|places| !places.store.exists())
    }

    /// Before the server at `seat` is opened here: what is missing of its files comes from the node that has them, which then has them no more. May take long. Errors: in words for the operator; to be tried again.
    pub(crate) fn obtain(&self, seat: Seat) -> Result<(), String> {
        self.moving.opens(seat);
        if !self.topology.moves_by_copy(seat.0) {
            // What was here when it was here before is out of the way then, or stays.
            drop(self.moving.deciding());
            return Ok(());
        }
        let Some(places) = self.places(seat) else { return Ok(()) };
        let (version, settled, is_here) = self.seats.of_and_here(seat, &self.topology);
        if !is_here {
            // Without its files it would begin with nothing.
            return Err("it has moved on to another node".into());
        }
        if version == 0 || settled || places.store.exists() {
            return Ok(());
        }
        self.obtain_from(seat, version, &places).map_err(|ends| match ends {
            Ends::Unwanted => "the node stops, or the server was moved on".into(),
            Ends::Because(why) => why,
        })
    }

    fn obtain_from(&self, seat: Seat, version: u32, places: &Places) -> Result<(), Ends> {
        let from = self.seats.comes_from(seat);
        let node = self.topology.nodes_in(self.topology.here).find(|node| node.name == from);
        let peer = node.and_then(|node| self.peer(node.id)).filter(|peer| peer.is_connected() && peer.is_accepted());
        let peer = peer.ok_or_else(|| Ends::Because(format!("its files are at node {from}, which does not answer; they come when it does")))?;
        let wanted = || match *self.stopping.borrow() || self.seats.of(seat).0 != version {
            true => Err(Ends::Unwanted),
            false => Ok(()),
        };
        let _copies = self.wait_to_copy(seat, &wanted)?;
        let began = Instant::now();
        places.prepare()?;
        let mut asks_since = Instant::now();
        let mut told = false;
        let is_whole = || std::fs::read_to_string(&places.whole).is_ok_and(|text| text == version.to_string());
        let mut incoming = None;
        loop {
            let question = match is_whole() {
                true => Question::Give { seat, version },
                false => Question::List { seat, version },
            };
            let list = match self.ask(peer, &question, LIST_PATIENCE, &wanted)? {
                Answer::Given if is_whole() => break,
                // What was here is given up, and what the others have comes back.
                Answer::Given if self.lives.own().is_some_and(|life| life.replaces()) => return Ok(()),
                Answer::Given => {
                    return Err(Ends::Because(format!(
                        "node {from} has them no more, and they are not here; put the directory of either back, or start this node with a new one and accept_lost_writes"
                    )));
                }
                Answer::NotYet(why) => {
                    // It was told by whoever was first; once more does no harm.
                    if !std::mem::replace(&mut told, true) {
                        self.tell_seats(peer);
                    }
                    if asks_since.elapsed() > CLOSED_WITHIN {
                        return Err(Ends::Because(format!("node {from}: {why}")));
                    }
                    wanted()?;
                    std::thread::sleep(ASK_AGAIN);
                    continue;
                }
                Answer::Refused(why) => return Err(Ends::Because(format!("node {from}: {why}"))),
                Answer::Files(list) => list,
                Answer::Block(_) => return Err(strange()),
            };
            let mut here = match incoming.take() {
                Some(here) => here,
                None => Incoming::open(&places.copy, &self.moving.stops)?,
            };
            let copied = self.copy(seat, peer, &list, &mut here, &wanted, &mut |_| {})?;
            if copied.changed {
                // A file that is closed does not change: it was read wrongly, or damaged on its way.
                return Err(Ends::Because(format!("node {from}: what was read of its files is not what was listed")));
            }
            here.flush()?;
            folder::write_whole(&places.moving(), &places.whole, version.to_string().as_bytes())?;
            incoming = Some(here);
            asks_since = Instant::now();
            tracing::info!(server = %seat.1, keyspace = seat.0.0, bytes = total(&list), last_bytes = copied.bytes, took_ms = began.elapsed().as_millis() as u64, "has all of this server's files");
        }
        places.rename(&places.copy, &places.store)?;
        remove(&places.whole)?;
        self.keep_given(seat);
        Ok(())
    }

    /// Of two nodes that took a server over at once, the one that was given its files has it, whichever the names say.
    pub(super) fn keep_given(&self, seat: Seat) {
        let _deciding = self.moving.deciding();
        let (version, settled, is_here) = self.seats.of_and_here(seat, &self.topology);
        let from = self.seats.comes_from(seat);
        // What goes from here is here until it is given away.
        let is_given = version > 0 && !settled && !is_here && !from.is_empty() && from != self.topology.this().name;
        // What an older copy of a directory has was given to nobody.
        if !is_given || self.lives.lost().is_some() || self.places(seat).is_none_or(|places| !places.store.exists()) {
            return;
        }
        let Some(version) = version.checked_add(1) else { return };
        if let Err(why) = self.learn_seats(vec![self.moved_here(seat, version, false, from)]) {
            tracing::error!(why, "seats could not be kept");
        }
    }
}

/// A block that was asked for.
struct Asked {
    file: usize,
    number: u32,
    id: u64,
    answer: mpsc::Receiver<Vec<u8>>,
}

/// What a round has copied.
struct Copied {
    bytes: u64,
    /// Something was not as it was listed.
    changed: bool,
}

/// Why files do not come.
#[derive(Clone)]
enum Ends {
    /// Nobody wants them any more.
    Unwanted,
    /// In words for the operator.
    Because(String),
}

impl From<io::Error> for Ends {
    fn from(error: io::Error) -> Ends {
        Ends::Because(error.to_string())
    }
}

fn unreachable() -> Ends {
    Ends::Because("the node that has the files does not answer any more".into())
}

fn strange() -> Ends {
    Ends::Because("the node that has the files answers something else".into())
}

/// Waits until the node has connected to this one: when either has just begun, it does so after this one has.
fn wait_to_hear(peer: &Peer, wanted: &dyn Fn() -> Result<(), Ends>) -> Result<(), Ends> {
    let began = Instant::now();
    while !peer.is_accepted() {
        wanted()?;
        if began.elapsed() >= PATIENCE {
            return Err(unreachable());
        }
        std::thread::sleep(ASK_AGAIN);
    }
    Ok(())
}

fn wait(peer: &Peer, id: u64, answer: &mpsc::Receiver<Vec<u8>>, patience: Duration, wanted: &dyn Fn() -> Result<(), Ends>) -> Result<Answer, Ends> {
    let began = Instant::now();
    let give_up = |ends| {
        peer.forget_files(id);
        Err(ends)
    };
    loop {
        match answer.recv_timeout(LOOK) {
            Ok(bytes) => return Answer::from_bytes(&bytes).map_err(|_| strange()),
            Err(mpsc::RecvTimeoutError::Disconnected) => return Err(unreachable()),
            Err(mpsc::RecvTimeoutError::Timeout) if began.elapsed() >= patience => return give_up(unreachable()),
            Err(mpsc::RecvTimeoutError::Timeout) => {
                if let Err(ends) = wanted() {
                    return give_up(ends);
                }
            }
        }
    }
}
