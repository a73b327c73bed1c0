//! What was told before a gap is kept, whatever the place does meanwhile.

use super::*;
use crate::connection::Connection;
use clap::{Args, Command, FromArgMatches};
use rheostat_backup::{Entry, Folder, Opened, Output};
use rheostat_client::v1;
use rheostat_core::DcId;
use rheostat_core::version::VersionId;
use std::sync::atomic::{AtomicBool, Ordering};

/// A folder that takes no writes while it is full.
struct Place {
    folder: Folder,
    is_full: AtomicBool,
}

impl Store for Place {
    fn name(&self) -> &str {
        self.folder.name()
    }

    fn list(&self, beginning: &str, take: &mut dyn FnMut(Entry) -> bool) -> Result<(), Error> {
        self.folder.list(beginning, take)
    }

    fn open(&self, name: &str) -> Result<Option<Opened>, Error> {
        self.folder.open(name)
    }

    fn create(&self, name: &str) -> Result<Box<dyn Output>, Error> {
        match self.is_full.load(Ordering::Relaxed) {
            true => Err(Error::Passing(format!("{name}: the place is full"))),
            false => self.folder.create(name),
        }
    }

    fn remove(&self, name: &str) -> Result<(), Error> {
        self.folder.remove(name)
    }

    fn remove_place(&self, name: &str) -> Result<(), Error> {
        self.folder.remove_place(name)
    }

    fn within(&self, name: &str) -> Arc<dyn Store> {
        self.folder.within(name)
    }

    fn lock(&self) -> Result<Option<Lock>, Error> {
        self.folder.lock()
    }

    fn unlock(&self, lock: Lock) -> Result<(), Error> {
        self.folder.unlock(lock)
    }
}

fn after(millis: u64) -> Position {
    Position::after(Timestamp::new(millis, 0))
}

fn change(millis: u64) -> Change {
    let version = VersionId { written: Timestamp::new(millis, 0), origin: DcId(0) };
    Change { key: b"k"[..].into(), version, value: Some(b"v"[..].into()), expires_ms: 0, over: None }
}

/// An archive of one keyspace in `store`, and of a cluster without a node: nothing is told but by the test.
async fn writer(store: Arc<dyn Store>) -> Writer {
    let said = Connection::augment_args(Command::new("archive")).get_matches_from(["archive", "-a", "127.0.0.1:1"]);
    let connection = Connection::from_arg_matches(&said).unwrap();
    let cluster = Cluster::new(connection, Vec::new(), v1::TopologyResponse::default(), Duration::from_secs(1));
    let followed = Followed { name: "default".into(), protocol: "causal".into(), order: Some(Cut::Causal), why: None };
    let settings =
        Settings { format: ARCHIVE_FORMAT, cluster: "test".into(), release: "0".into(), data_centers: vec!["a".into()], keyspaces: vec![followed] };
    let times = Times { every: Duration::from_secs(5), full_every: Duration::from_secs(60), counters_every: None, keep: None };
    Writer::begin(store, settings, cluster, times, Events::new(false)).await.unwrap()
}

fn runs(store: &dyn Store) -> Vec<(Position, Position)> {
    let archive = Archive::look(store).unwrap().unwrap();
    archive.chains[0].runs().into_iter().map(|run| (run.from, run.to)).collect()
}

#[tokio::test]
async fn a_gap_waits_for_a_place_that_takes_no_writes() {
    let folder = tempfile::tempdir().unwrap();
    let place = Arc::new(Place { folder: Folder::new(folder.path().join("archive")), is_full: AtomicBool::new(false) });
    let mut writer = writer(place.clone()).await;
    writer.take(0, Event::Changes(Vec::new(), after(10))).unwrap();
    writer.take(0, Event::Changes(vec![change(20)], after(30))).unwrap();
    place.is_full.store(true, Ordering::Relaxed);
    assert_eq!(writer.take(0, Event::Ended(Why::TooOld)), Ok(true), "an archiver that is told of a gap goes on");
    for _ in 0..2 {
        assert!(writer.write().unwrap_err().is_passing());
        assert_eq!(writer.keyspaces[0].through, Some(after(30)), "it is not followed anew before");
    }
    place.is_full.store(false, Ordering::Relaxed);
    assert!(writer.write().unwrap());
    assert_eq!((writer.keyspaces[0].through, runs(&*place)), (None, vec![(after(10), after(30))]));
    // What it begins with anew.
    writer.take(0, Event::Changes(Vec::new(), after(90))).unwrap();
    writer.write().unwrap();
    assert_eq!(runs(&*place), [(after(10), after(30)), (after(90), after(90))]);
}

/// The head alone says it, and speaks of the new beginning after a gap.
#[tokio::test]
async fn that_nothing_was_written_before_a_gap_stays_known() {
    let folder = tempfile::tempdir().unwrap();
    let place: Arc<dyn Store> = Arc::new(Folder::new(folder.path().join("archive")));
    let mut writer = writer(place.clone()).await;
    for millis in [10, 30, 50] {
        writer.take(0, Event::Changes(Vec::new(), after(millis))).unwrap();
    }
    writer.write().unwrap();
    assert_eq!(runs(&*place), [(after(10), after(50))]);
    writer.take(0, Event::Ended(Why::TooOld)).unwrap();
    writer.write().unwrap();
    writer.take(0, Event::Changes(Vec::new(), after(90))).unwrap();
    writer.write().unwrap();
    assert_eq!(runs(&*place), [(after(10), after(50)), (after(90), after(90))]);
}

#[tokio::test]
async fn an_archive_that_was_removed_is_not_written_on() {
    let folder = tempfile::tempdir().unwrap();
    let place: Arc<dyn Store> = Arc::new(Folder::new(folder.path().join("archive")));
    let mut writer = writer(place.clone()).await;
    writer.take(0, Event::Changes(Vec::new(), after(10))).unwrap();
    writer.write().unwrap();
    // As a bucket's rule does with what is old: the head is not.
    let settings = folder.path().join("archive/archive.json");
    let text = std::fs::read(&settings).unwrap();
    std::fs::remove_file(&settings).unwrap();
    assert!(writer.retire().unwrap_err().to_string().ends_with("the archive has gone; this archiver ends"));
    std::fs::write(&settings, text).unwrap();
    writer.retire().unwrap();
    std::fs::remove_dir_all(folder.path().join("archive")).unwrap();
    writer.take(0, Event::Changes(vec![change(20)], after(30))).unwrap();
    let error = writer.write().unwrap_err();
    assert!(!error.is_passing() && error.to_string().ends_with("the archive has gone; this archiver ends"), "{error}");
}

/// However seldom changes are written, another archiver waits no longer than twenty minutes for a sign.
#[tokio::test]
async fn that_it_runs_is_said_between_two_writes_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let place: Arc<dyn Store> = Arc::new(Folder::new(folder.path().join("archive")));
    let mut writer = writer(place.clone()).await;
    writer.times.every = Duration::from_secs(86_400);
    writer.take(0, Event::Changes(Vec::new(), after(10))).unwrap();
    writer.write().unwrap();
    let before = read_head(&*place).unwrap().unwrap();
    assert_eq!(before.every_ms, 600_000);
    writer.take(0, Event::Changes(vec![change(20)], after(30))).unwrap();
    writer.say_it_runs().unwrap();
    let now = read_head(&*place).unwrap().unwrap();
    assert_eq!(now, Head { tick: before.tick + 1, ..before }, "what was told is not written yet");
    writer.write().unwrap();
    assert_eq!(runs(&*place), [(after(10), after(30))]);
    // Another one that has come since is heard here, too.
    let other = Head { owner: "another".into(), ..now };
    put_head(&*place, &other).unwrap();
    assert!(writer.say_it_runs().unwrap_err().to_string().contains("another archiver has taken over"));
}
