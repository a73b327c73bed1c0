//! Servers that move with their files: those that stand alone, and those of groups of which too few would be left to make a new member of what they have.
//!
//! A move is a restart at another place: the server is closed on the node that has it, and opened from the same files on the node that it goes to, so no protocol needs to know of it. Most of the files are copied while it still serves
//! ([`Shared::take_with_files`]); then its seat is said to be elsewhere ([`crate::seats`]), the old node closes it, and what has changed since is copied ([`Shared::obtain`]).
//!
//! **The files are at one node's disposal at any time.** That is the node that has the store's folder in its place: no node opens one that it took as the copy of another's before that one has put its own out of the way, for good
//! ([`Question::Give`]), and no node that has done so opens it again. Between the two nobody has it, and the new node asks until it is told that the old one has given it; what it then has is whole, and known to be, on its disk.

mod fetch;
mod files;
mod give;
mod question;

pub(crate) use files::is_open;

use crate::folder;
use crate::seats::Seat;
use crate::shared::{Shared, lock};
use files::Digests;
use rheostat_core::ids::ServerId;
use rheostat_core::store::Durability;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// In the data directory: copies on their way here, and what was given away and is being deleted.
const FOLDER: &str = ".moving";

/// Servers whose files' digests are remembered, at most.
const MOST_DIGESTS: usize = 16;

/// A server that is being copied here while it serves elsewhere.
#[derive(Default, Debug)]
pub(crate) struct Coming {
    /// The node's name that has it.
    from: String,
    /// Bytes of its files, and of what has come of them, as of the last list.
    bytes: AtomicU64,
    copied: AtomicU64,
    /// How often it had moved before.
    version: u32,
    /// Whether it comes: it is being taken over, or it was cancelled. Whichever is first.
    decided: Mutex<Option<bool>>,
    failed: Mutex<Option<String>>,
}

impl Coming {
    /// It comes, or does not; says whether that is so, or the other was said before.
    fn decide(&self, comes: bool) -> bool {
        *lock(&self.decided).get_or_insert(comes) == comes
    }

    fn is_cancelled(&self) -> bool {
        *lock(&self.decided) == Some(false)
    }
}

/// How far a server has come that is being copied here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComingInfo {
    /// The name of the node that has it.
    pub from: String,
    /// Bytes of its files.
    pub bytes: u64,
    /// Those that are here.
    pub copied: u64,
    /// Why it does not come.
    pub failed: Option<String>,
}

/// See the module.
#[derive(Default, Debug)]
pub(crate) struct Moving {
    /// Copied while they serve elsewhere.
    coming: Mutex<BTreeMap<Seat, Arc<Coming>>>,
    /// In whose copies somebody works.
    copied: Mutex<BTreeSet<Seat>>,
    /// Were here, are closed, and are to be another node's.
    closed: Mutex<BTreeSet<Seat>>,
    /// Were to be another node's, and stay: that their stores are here is noted when they are open.
    stay: Mutex<BTreeSet<Seat>>,
    digests: Mutex<BTreeMap<Seat, Arc<Mutex<Digests>>>>,
    /// Held while it is decided whose a server's files are.
    deciding: Mutex<()>,
    /// The node stops.
    stops: Arc<AtomicBool>,
}

impl Moving {
    /// A server is closed here that is to be another node's.
    pub(crate) fn closed(&self, seat: Seat) {
        lock(&self.closed).insert(seat);
    }

    /// It is going to be opened here.
    pub(crate) fn opens(&self, seat: Seat) {
        lock(&self.closed).remove(&seat);
    }

    /// A server that was to be another node's stays.
    fn stays(&self, seat: Seat) {
        lock(&self.stay).insert(seat);
    }

    /// Whether it was to be another node's, and has stayed; asked once.
    pub(crate) fn has_stayed(&self, seat: Seat) -> bool {
        lock(&self.stay).remove(&seat)
    }

    /// While this is held, no files change hands.
    pub(crate) fn deciding(&self) -> MutexGuard<'_, ()> {
        lock(&self.deciding)
    }

    fn is_closed(&self, seat: Seat) -> bool {
        lock(&self.closed).contains(&seat)
    }

    /// The node stops: servers that still serve elsewhere are copied no more, and do not come; no files are read for another node to know which it lacks.
    pub(crate) fn stop(&self) {
        self.stops.store(true, Ordering::Relaxed);
    }

    /// The right to work in the copy of `seat`; `None` while another one does.
    fn copies(&self, seat: Seat) -> Option<Copies<'_>> {
        let is_first = lock(&self.copied).insert(seat);
        // Made only then, and with the list unlocked: what ends it takes it off the list.
        is_first.then(|| Copies { moving: self, seat })
    }

    /// What is known of the files of `seat`. Held while they are read; those of others are read meanwhile.
    fn digests(&self, seat: Seat) -> Arc<Mutex<Digests>> {
        let mut of_all = lock(&self.digests);
        while of_all.len() >= MOST_DIGESTS && !of_all.contains_key(&seat) {
            of_all.pop_first();
        }
        of_all.entry(seat).or_insert_with(|| Arc::new(Mutex::new(Digests::until(&self.stops)))).clone()
    }
}

/// Whoever has it is the only one that works in the copy of a server's files.
struct Copies<'m> {
    moving: &'m Moving,
    seat: Seat,
}

impl Drop for Copies<'_> {
    fn drop(&mut self) {
        lock(&self.moving.copied).remove(&self.seat);
    }
}

/// Where a server's files are on this node's disk: its store's folder, where a copy of it comes, and the file that says that the copy is whole.
struct Places {
    data: PathBuf,
    store: PathBuf,
    copy: PathBuf,
    whole: PathBuf,
    /// What was given away goes here first.
    given: PathBuf,
}

impl Places {
    fn of(data: &Path, keyspace: &str, server: ServerId) -> Places {
        let name = format!("{keyspace}.{}.{}", server.partition, server.replica);
        let moving = data.join(FOLDER);
        Places {
            data: data.to_owned(),
            store: folder::of_server(data, keyspace, server),
            copy: moving.join(format!("{name}.copy")),
            whole: moving.join(format!("{name}.whole")),
            given: moving.join(format!("{name}.given")),
        }
    }

    fn moving(&self) -> PathBuf {
        self.data.join(FOLDER)
    }

    /// Makes the folders that are not there yet.
    fn prepare(&self) -> io::Result<()> {
        std::fs::create_dir_all(self.moving())?;
        self.store.parent().map_or(Ok(()), std::fs::create_dir_all)
    }

    /// Puts what is in `from` in the place of `to`, which is nothing; on disk when this returns.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)?;
        [from, to].iter().filter_map(|path| path.parent()).try_for_each(|folder| File::open(folder)?.sync_all())
    }

    /// Deletes a copy that is not wanted any more.
    fn drop_copy(&self) -> io::Result<()> {
        remove(&self.whole)?;
        remove(&self.copy)
    }
}

/// Deletes what is at `path`, if there is something.
fn remove(path: &Path) -> io::Result<()> {
    let removed = match std::fs::symlink_metadata(path) {
        Ok(about) if about.is_dir() => std::fs::remove_dir_all(path),
        Ok(_) => std::fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

impl Shared {
    /// Where the files of `seat`, which is one of this data center's, are on this node's disk, if it has one.
    fn places(&self, (keyspace, server): Seat) -> Option<Places> {
        let info = self.keyspaces.get(usize::from(keyspace.0))?;
        let is_kept = info.durability != Durability::Memory && server.dc == self.topology.here;
        self.config.data_dir.as_ref().filter(|_| is_kept).map(|dir| Places::of(dir, &info.name, server))
    }

    /// As [`Moving::closed`], of a server that may have been moved back while it closed: then it is opened here again, or is already.
    pub(crate) fn closed_to_move(&self, seat: Seat) {
        self.keep_given(seat);
        let mut closed = lock(&self.moving.closed);
        // Whoever opens it here has heard that it is back, and takes it off this list then.
        if !self.seats.of_and_here(seat, &self.topology).2 {
            closed.insert(seat);
        }
    }

    /// Before anything is opened: deletes what a node that ended has left of servers that were given away, or have not come. Errors: the disk's.
    pub(crate) fn clear_moving(&self) -> io::Result<()> {
        // Such as are to be another node's and have not been given yet are closed: they are not opened here.
        self.seats.elsewhere(&self.topology).into_iter().for_each(|seat| self.moving.closed(seat));
        let Some(dir) = self.config.data_dir.as_ref().map(|dir| dir.join(FOLDER)).filter(|dir| dir.exists()) else { return Ok(()) };
        let kept: Vec<Places> = self.seats.coming(&self.topology).into_iter().filter_map(|seat| self.places(seat)).collect();
        for entry in std::fs::read_dir(dir)? {
            let path = entry?.path();
            if !kept.iter().any(|places| places.copy == path || places.whole == path) {
                remove(&path)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rheostat_core::DcId;
    use rheostat_core::ids::{KeyspaceId, PartitionId};

    fn seat(partition: u16) -> Seat {
        (KeyspaceId(0), ServerId::new(DcId(0), PartitionId(partition)))
    }

    #[test]
    fn what_is_taken_over_is_not_cancelled_any_more_and_the_other_way_round() {
        for first in [true, false] {
            let coming = Coming::default();
            assert!(!coming.is_cancelled());
            assert_eq!([first, first, !first].map(|comes| coming.decide(comes)), [true, true, false]);
            assert_eq!(coming.is_cancelled(), !first);
        }
    }

    #[test]
    fn one_at_a_time_works_in_a_copy() {
        let moving = Moving::default();
        let first = moving.copies(seat(0)).unwrap();
        assert!(moving.copies(seat(0)).is_none() && moving.copies(seat(1)).is_some());
        drop(first);
        assert!(moving.copies(seat(0)).is_some());
    }

    /// The threads that read are waited for.
    #[test]
    fn what_is_read_for_another_node_is_not_read_to_its_end_when_the_node_stops() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a"), b"a").unwrap();
        let moving = Moving::default();
        let digests = moving.digests(seat(0));
        let mut digests = lock(&digests);
        assert_eq!(digests.list_open(folder.path()).unwrap().len(), 1);
        moving.stop();
        assert!(digests.list_open(folder.path()).is_err() && digests.list(folder.path()).is_err());
    }

    #[test]
    fn files_of_one_server_are_read_while_those_of_another_are() {
        let moving = Moving::default();
        let one = moving.digests(seat(0));
        let _reads = lock(&one);
        assert!(moving.digests(seat(1)).try_lock().is_ok());
        assert!(moving.digests(seat(0)).try_lock().is_err(), "what is known of it is not read twice at once");
        (2..100).for_each(|partition| drop(moving.digests(seat(partition))));
        assert_eq!(lock(&moving.digests).len(), MOST_DIGESTS);
    }
}
