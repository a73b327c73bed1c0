//! What is written is read again; what is damaged is told, and never more memory taken than there are bytes.

use proptest::prelude::*;
use rheostat_backup::{
    Cut, Error, FORMAT, Fault, Folder, KeyspaceEntry, MANIFEST, Manifest, Reader, Report, SUMS, Since, Time, Totals, Unfinished, Writer, follows,
    open_records,
};
use rheostat_core::answer::Read;
use rheostat_core::export::{Exported, ExportedCounter};
use rheostat_core::version::VersionId;
use rheostat_core::{DcId, Timestamp};
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

fn begin(folder: &Path) -> Result<Unfinished, Error> {
    Unfinished::begin(Arc::new(Folder::new(folder)))
}

fn read_manifest(folder: &Path) -> Result<(Manifest, String), Error> {
    rheostat_backup::read_manifest(&Folder::new(folder))
}

fn verify(folder: &Path) -> Result<Report, Error> {
    rheostat_backup::verify(&Folder::new(folder))
}

fn value(key: &[u8], value: &[u8], expires_ms: u64) -> Exported {
    let version = Some(VersionId { written: Timestamp::new(1_700_000_000_000, 3), origin: DcId(1) });
    Exported { key: key.into(), reads: vec![Read { value: Some(value.into()), version, expires_ms }], counter: None }
}

fn counter(key: &[u8], value: i64) -> Exported {
    let counter = Some(ExportedCounter { value, lower: Some(0), upper: Some(i64::MAX) });
    Exported { key: key.into(), reads: vec![Read::default()], counter }
}

/// Of every kind, in several blocks.
fn some() -> Vec<Exported> {
    let mut all = vec![
        value(b"", b"", 0),
        value(b"\0\xFF\r\n", &[0, 255, 10], 1),
        value(b"large", &vec![7; 1 << 20], u64::MAX),
        counter(b"stock", -5),
        Exported { key: b"gone"[..].into(), reads: Vec::new(), counter: None },
    ];
    let mut both = value(b"both", b"one", 0);
    both.reads.extend(value(b"both", b"other", 9).reads);
    all.push(both);
    all.extend((0..20_000_u32).map(|number| value(&number.to_le_bytes(), b"some value or other", 0)));
    all
}

fn written(records: &[Exported]) -> (Vec<u8>, Totals) {
    let mut writer = Writer::new(Vec::new()).unwrap();
    records.iter().for_each(|one| writer.push(one).unwrap());
    writer.finish().unwrap()
}

fn read(bytes: &[u8]) -> Result<(Vec<Exported>, Totals), Fault> {
    let mut reader = Reader::new(bytes, bytes.len() as u64)?;
    let mut all = Vec::new();
    while let Some(records) = reader.next_block()? {
        all.extend(records);
    }
    Ok((all, reader.finish()))
}

/// A finished backup with keyspaces `plain` and `posts`.
fn backup(folder: &Path, as_of: u64, since: Option<Since>) -> Manifest {
    let unfinished = begin(folder).unwrap();
    let mut keyspaces = Vec::new();
    for (number, name) in ["plain", "posts"].into_iter().enumerate() {
        let mut file = unfinished.keyspace(number).unwrap();
        some().iter().for_each(|one| file.push(one).unwrap());
        let (file, totals) = file.finish().unwrap();
        keyspaces.push(KeyspaceEntry::new(name.into(), "causal".into(), Cut::Causal, file, totals));
    }
    let manifest = Manifest {
        format: FORMAT,
        cluster: "test".into(),
        release: "0".into(),
        as_of: Time::new(Timestamp::new(as_of, 0), "then".into()),
        since,
        data_center: "a".into(),
        data_centers: vec!["a".into(), "b".into()],
        partitions: 2,
        keyspaces,
    };
    unfinished.finish(&manifest).unwrap();
    manifest
}

#[test]
fn records_of_every_kind_come_back() {
    let records = some();
    let (bytes, totals) = written(&records);
    let (back, found) = read(&bytes).unwrap();
    assert_eq!(back, records);
    assert_eq!(found, totals);
    assert_eq!((totals.keys, totals.counters, totals.values, totals.deleted), (20_005, 1, 20_006, 1));
    assert!(totals.blocks > 3 && totals.size == bytes.len() as u64);
    assert_eq!(read(&written(&[]).0).unwrap().0, []);
}

/// Backups are kept for years: what was written by this form is read by it.
#[test]
fn the_form_does_not_change() {
    let (bytes, totals) = written(&[value(b"k", b"v", 7), counter(b"c", 2)]);
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, include_str!("form1.hex").trim(), "a new form needs a new number");
    assert_eq!(totals.sha256.len(), 64);
}

/// A full backup and an incremental one, as the first version that could write them has written them.
#[test]
fn backups_that_were_kept_are_read() {
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/form1");
    let (full, next) = (verify(&kept.join("full")).unwrap(), verify(&kept.join("next")).unwrap());
    assert_eq!((&full.faults[..], &next.faults[..]), (&[][..], &[][..]));
    assert_eq!(follows(Some((&full.manifest, &full.manifest_sha256)), &next.manifest), None);
    let records = |folder: &str, report: &Report| {
        let mut reader = open_records(&Folder::new(kept.join(folder)), &report.manifest.keyspaces[0]).unwrap();
        let mut all = Vec::new();
        while let Some(records) = reader.next_block().unwrap() {
            all.extend(records);
        }
        all
    };
    let all = records("full", &full);
    let find = |key: &[u8]| all.iter().find(|one| &*one.key == key).unwrap();
    let text = |key: &[u8]| find(key).reads[0].value.clone().unwrap().to_vec();
    assert_eq!((all.len(), text(b"greeting"), text(b"empty"), text(b"binary")), (24, b"hello".to_vec(), Vec::new(), b"a\r\n\0\xffb".to_vec()));
    assert_eq!(find(b"short-lived").reads[0].expires_ms, 4_102_444_800_000);
    assert_eq!(find(b"stock").counter, Some(ExportedCounter { value: 99, lower: Some(0), upper: Some(500) }));
    let changed = records("next", &next);
    assert!(changed.len() == 3 && changed.iter().any(|one| &*one.key == b"key3" && one.reads.is_empty()), "{changed:?}");
}

#[test]
fn every_byte_that_is_changed_and_every_cut_is_told() {
    let records: Vec<Exported> = some().into_iter().filter(|one| one.key.len() < 5 && &*one.key != b"" || one.counter.is_some()).take(40).collect();
    let (bytes, totals) = written(&records);
    for at in 0..bytes.len() {
        for bit in [0, 3, 7] {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << bit;
            let fault = read(&damaged).expect_err("it is noticed without the file's sum");
            match at {
                0..7 => assert!(matches!(fault, Fault::Foreign), "{at}: {fault}"),
                7 => assert!(matches!(fault, Fault::Version(_)), "{at}: {fault}"),
                _ => assert!(matches!(fault, Fault::Damaged(8, _) | Fault::Truncated(8)), "{at}: {fault}"),
            }
        }
        let cut = read(&bytes[..at]);
        match at {
            // Nothing but its beginning: the manifest knows of more.
            8 => assert_ne!(cut.unwrap().1, totals),
            _ => assert!(matches!(cut, Err(Fault::Foreign | Fault::Truncated(8))), "{at}: {cut:?}"),
        }
    }
}

proptest! {
    #[test]
    fn nothing_makes_the_reader_panic(body in prop::collection::vec(any::<u8>(), 0..200), sealed in any::<bool>()) {
        let mut bytes = b"rheobak\x01".to_vec();
        if sealed {
            bytes.extend((body.len() as u32).to_le_bytes());
            bytes.extend(crc32fast::hash(&body).to_le_bytes());
        }
        bytes.extend(&body);
        let _ = read(&bytes);
        let _ = read(&body);
    }

    #[test]
    fn any_records_come_back(records in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..20), prop::collection::vec(any::<u8>(), 0..50), any::<u64>()), 0..50)) {
        let records: Vec<Exported> = records.iter().map(|(key, data, expires_ms)| value(key, data, *expires_ms)).collect();
        prop_assert_eq!(read(&written(&records).0).unwrap().0, records);
    }
}

/// A file says that it is large: memory is taken for what is there.
#[test]
fn a_length_that_lies_costs_nothing() {
    let mut bytes = b"rheobak\x01".to_vec();
    bytes.extend(u32::MAX.to_le_bytes());
    bytes.extend([0; 20]);
    assert!(matches!(read(&bytes), Err(Fault::Truncated(8))));
    // And if the size is a lie as well.
    let mut reader = Reader::new(&bytes[..], u64::MAX).unwrap();
    assert!(matches!(reader.next_block(), Err(Fault::Truncated(_))));
}

#[test]
fn a_folder_is_a_backup_when_it_is_finished_and_not_before() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("new/monday");
    let unfinished = begin(&folder).unwrap();
    let mut file = unfinished.keyspace(0).unwrap();
    file.push(&value(b"left", b"over", 0)).unwrap();
    let text = |error: Error| error.to_string();
    assert!(begin(&folder).err().map(text).unwrap().contains("another backup is being written"));
    assert!(read_manifest(&folder).map_err(text).unwrap_err().contains("has not been finished"));
    drop((file, unfinished));
    // Killed between the last renames.
    fs::write(folder.join("keyspace-7.records"), b"old").unwrap();
    fs::write(folder.join(SUMS), b"old").unwrap();
    let manifest = backup(&folder, 5, None);
    let mut names: Vec<String> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names, [SUMS, "keyspace-0.records", "keyspace-1.records", MANIFEST]);
    for name in names {
        let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(folder.join(&name)).unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    let report = verify(&folder).unwrap();
    assert_eq!((report.manifest, &report.faults[..]), (manifest, &[][..]));
    assert!(begin(&folder).err().map(text).unwrap().contains("there is a backup in it already"));
    let other = tempfile::tempdir().unwrap();
    fs::write(other.path().join("letter.txt"), b"dear").unwrap();
    assert!(begin(other.path()).err().map(text).unwrap().contains("`letter.txt` is in it"));
    assert!(read_manifest(other.path()).map_err(text).unwrap_err().contains("is no backup"));
}

/// Else a disk that a backup has filled stays full.
#[test]
fn what_is_given_up_takes_no_room() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("monday");
    let names = |folder: &Path| {
        let mut names: Vec<String> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    let unfinished = begin(&folder).unwrap();
    let mut file = unfinished.keyspace(0).unwrap();
    file.push(&value(b"whole", b"file", 0)).unwrap();
    file.finish().unwrap();
    let mut half = unfinished.keyspace(1).unwrap();
    half.push(&value(b"half", b"written", 0)).unwrap();
    assert_eq!(names(&folder), [".partial", "keyspace-0.records"]);
    assert_eq!(names(&folder.join(".partial")), ["keyspace-1.records", "lock"]);
    drop(half);
    assert_eq!(names(&folder.join(".partial")), ["lock"]);
    unfinished.abandon();
    assert_eq!(names(&folder), [".partial"]);
    assert!(read_manifest(&folder).unwrap_err().to_string().contains("has not been finished"));
    backup(&folder, 5, None);
    assert_eq!(names(&folder), [SUMS, "keyspace-0.records", "keyspace-1.records", MANIFEST]);
}

#[test]
fn a_backup_whose_end_fails_takes_no_room() {
    let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let manifest = backup(other.path(), 5, None);
    let folder = folder.path().join("monday");
    let unfinished = begin(&folder).unwrap();
    let mut file = unfinished.keyspace(0).unwrap();
    file.push(&value(b"whole", b"file", 0)).unwrap();
    file.finish().unwrap();
    // No file can have its name.
    fs::create_dir(folder.join(SUMS)).unwrap();
    assert!(unfinished.finish(&manifest).is_err());
    assert!(!folder.join("keyspace-0.records").exists());
    fs::remove_dir(folder.join(SUMS)).unwrap();
    backup(&folder, 5, None);
}

#[test]
fn verify_tells_each_fault_in_a_line() {
    let whole = tempfile::tempdir().unwrap();
    backup(whole.path(), 5, None);
    type Damage<'a> = &'a dyn Fn(&Path);
    let damage: [(&str, Damage<'_>, &str); 9] = [
        (
            "cut",
            &|path| fs::write(path.join("keyspace-0.records"), &fs::read(path.join("keyspace-0.records")).unwrap()[..700_000]).unwrap(),
            "keyspace-0.records: is cut short in the block",
        ),
        ("missing", &|path| fs::remove_file(path.join("keyspace-1.records")).unwrap(), "keyspace-1.records: cannot be read: No such file"),
        ("bit", &|path| flip(&path.join("keyspace-0.records"), 500_000), "keyspace-0.records: is damaged in the block at byte"),
        ("foreign", &|path| fs::write(path.join("keyspace-0.records"), b"hello, world").unwrap(), "keyspace-0.records: is not a file of a backup"),
        ("newer", &|path| flip(&path.join("keyspace-0.records"), 7), "keyspace-0.records: has form 0"),
        (
            "swapped",
            &|path| fs::copy(path.join("empty"), path.join("keyspace-0.records")).map(drop).unwrap(),
            "keyspace-0.records: has 8 bytes; the manifest says",
        ),
        ("manifest", &|path| edit(&path.join(MANIFEST), "\"test\"", "\"tent\""), "manifest.json: has another sum than SHA256SUMS says"),
        (
            "count",
            &|path| edit(&path.join(MANIFEST), "20005", "20006"),
            "keyspace-0.records: has 20005 keys and 20006 values; the manifest says 20006 and 20006",
        ),
        ("sums", &|path| fs::remove_file(path.join(SUMS)).unwrap(), "SHA256SUMS: No such file"),
    ];
    for (name, damage, says) in damage {
        let folder = tempfile::tempdir().unwrap();
        for entry in fs::read_dir(whole.path()).unwrap() {
            let path = entry.unwrap().path();
            fs::copy(&path, folder.path().join(path.file_name().unwrap())).unwrap();
        }
        fs::write(folder.path().join("empty"), written(&[]).0).unwrap();
        damage(folder.path());
        let report = verify(folder.path()).unwrap();
        assert!(report.faults.iter().any(|fault| fault.contains(says)), "{name}: {:?}", report.faults);
        assert!(report.faults.len() <= 3 && report.faults.iter().all(|fault| !fault.contains('\n')), "{name}: {:?}", report.faults);
    }
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 1;
    fs::write(path, bytes).unwrap();
}

fn edit(path: &Path, from: &str, to: &str) {
    let text = fs::read_to_string(path).unwrap();
    assert!(text.contains(from), "{text}");
    fs::write(path, text.replacen(from, to, 1)).unwrap();
}

#[test]
fn a_manifest_that_is_none_is_refused_in_words() {
    let folder = tempfile::tempdir().unwrap();
    backup(folder.path(), 5, None);
    let path = folder.path().join(MANIFEST);
    let good = fs::read_to_string(&path).unwrap();
    for (from, to, says) in [
        ("\"format\": 1", "\"format\": 2", "has form 2; this version of the software reads form 1"),
        ("\"format\": 1", "\"form\": 1", "it names no form"),
        ("\"cluster\"", "\"clutter\"", "unknown field `clutter`"),
        ("{", "", "is damaged"),
    ] {
        fs::write(&path, good.replacen(from, to, 1)).unwrap();
        let error = verify(folder.path()).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
    // It names no files elsewhere.
    fs::write(&path, good.replacen("keyspace-0.records", "../keyspace-0.records", 1)).unwrap();
    let report = verify(folder.path()).unwrap();
    assert!(report.faults.iter().any(|fault| fault.contains("../keyspace-0.records: is not a file of a backup")), "{:?}", report.faults);
}

#[test]
fn incremental_backups_follow_the_one_before_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let full = backup(&path("monday"), 5, None);
    let (_, sum) = read_manifest(&path("monday")).unwrap();
    let since = Since { as_of: full.as_of.clone(), manifest_sha256: sum.clone() };
    let next = backup(&path("tuesday"), 9, Some(since));
    assert_eq!(follows(None, &full), None);
    assert_eq!(follows(Some((&full, &sum)), &next), None);
    assert!(follows(None, &next).unwrap().contains("only what was written since then"));
    assert!(follows(Some((&full, &sum)), &full).unwrap().contains("a full backup"));
    assert!(follows(Some((&full, "other")), &next).unwrap().contains("not the one before it"));
    let mut fewer = next.clone();
    fewer.keyspaces.pop();
    assert!(follows(Some((&full, &sum)), &fewer).unwrap().contains("other keyspaces"));
}

/// A disk with so much space.
struct Small(usize);

impl Write for Small {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(self.0);
        self.0 -= taken;
        if taken == 0 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(taken) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_disk_is_told() {
    let records = some();
    let (bytes, _) = written(&records);
    for space in [0, 7, 8, 20, 300_000, bytes.len() - 1, bytes.len()] {
        let write = || {
            let mut writer = Writer::new(Small(space))?;
            records.iter().try_for_each(|one| writer.push(one))?;
            writer.finish().map(drop)
        };
        assert_eq!(write().map_err(|error| error.kind()), if space < bytes.len() { Err(io::ErrorKind::StorageFull) } else { Ok(()) }, "{space}");
    }
}
