//! Backups in a store that checks signatures, and fails at each request in each way.

#[allow(dead_code)]
mod support;

use rheostat_backup::{Cut, FORMAT, KeyspaceEntry, MANIFEST, Manifest, SUMS, Store, Time, Unfinished, read_all, verify};
use rheostat_core::Timestamp;
use rheostat_core::answer::Read;
use rheostat_core::export::Exported;
use rheostat_objects::{Bucket, Credentials, Settings};
use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use support::{ACCESS_KEY, Fault, Kind, REGION, SECRET_KEY, Seen, Server};

const BUCKET: &str = "backups";

fn settings(server: &Server) -> Settings {
    let credentials = Credentials { access_key: ACCESS_KEY.into(), secret_key: SECRET_KEY.into(), session_token: None };
    Settings {
        part_bytes: 5 << 20,
        patience: Duration::from_secs(10),
        idle: Duration::from_secs(2),
        ..Settings::new(Some(server.endpoint()), Some(REGION.into()), credentials)
    }
}

fn at(server: &Server, place: &str) -> Arc<Bucket> {
    Arc::new(Bucket::new(&format!("s3://{BUCKET}{place}"), settings(server)).unwrap())
}

fn records(number: u32) -> impl Iterator<Item = Exported> {
    (0..number).map(|number| Exported {
        key: number.to_be_bytes()[..].into(),
        reads: vec![Read { value: Some(vec![number as u8; 1000][..].into()), version: None, expires_ms: 0 }],
        counter: None,
    })
}

fn write(store: Arc<dyn Store>, number: u32) -> Result<Manifest, rheostat_backup::Error> {
    let unfinished = Unfinished::begin(store)?;
    let mut keyspaces = Vec::new();
    for (place, name) in ["large", "empty"].into_iter().enumerate() {
        let mut file = unfinished.keyspace(place)?;
        records(if place == 0 { number } else { 0 }).try_for_each(|one| file.push(&one))?;
        let (file, totals) = file.finish()?;
        keyspaces.push(KeyspaceEntry::new(name.into(), "causal".into(), Cut::Causal, file, totals));
    }
    let manifest = Manifest {
        format: FORMAT,
        cluster: "test".into(),
        release: "0".into(),
        as_of: Time::new(Timestamp::new(5, 0), "then".into()),
        since: None,
        data_center: "a".into(),
        data_centers: vec!["a".into()],
        partitions: 1,
        keyspaces,
    };
    unfinished.finish(&manifest)?;
    Ok(manifest)
}

fn why<T>(result: Result<T, rheostat_backup::Error>) -> String {
    result.map(drop).expect_err("it fails").to_string()
}

fn names(store: &dyn Store, beginning: &str) -> Vec<String> {
    let mut names = Vec::new();
    store
        .list(beginning, &mut |entry| {
            names.push(if entry.is_place { format!("{}/", entry.name) } else { entry.name });
            true
        })
        .unwrap();
    names
}

#[test]
fn a_backup_comes_back_and_its_damage_is_found() {
    let server = Server::start(BUCKET);
    // 18 MB: three parts and a rest.
    let store = at(&server, "/mon day/ü+&%");
    let manifest = write(store.clone(), 18_000).unwrap();
    let report = verify(&*store).unwrap();
    assert_eq!((report.manifest, &report.faults[..]), (manifest.clone(), &[][..]));
    assert_eq!(server.uploads(), 0);
    assert!(why(write(store.clone(), 1)).contains("s3://backups/mon day/ü+&%: there is a backup in it already"));
    let records = format!("mon day/ü+&%/{}", manifest.keyspaces[0].file.name);
    let whole = server.get(BUCKET, &records).unwrap();
    for (name, damaged) in [
        ("bit", {
            let mut bytes = whole.clone();
            bytes[12_000_000] ^= 1;
            bytes
        }),
        ("cut", whole[..9_000_000].to_vec()),
        ("foreign", b"hello, world".to_vec()),
        ("empty", Vec::new()),
    ] {
        server.put(BUCKET, &records, &damaged);
        let faults = verify(&*store).unwrap().faults;
        assert!(faults.len() == 1 && faults[0].starts_with("s3://backups/mon day/ü+&%/keyspace-0-"), "{name}: {faults:?}");
    }
    server.remove(BUCKET, &records);
    assert!(verify(&*store).unwrap().faults[0].ends_with("cannot be read: No such file"));
}

/// Each request of a backup and of its verification fails in each way, and is tried again.
#[test]
fn what_fails_once_is_tried_again_at_every_request() {
    let server = Server::start(BUCKET);
    let store = at(&server, "/plain");
    write(store.clone(), 11_000).unwrap();
    verify(&*store).unwrap();
    let requests = server.requests();
    assert!((15..40).contains(&requests), "{requests}");
    let faults = [
        Fault::Status(500, "InternalError"),
        Fault::Status(503, "SlowDown"),
        Fault::CutRequest,
        Fault::LoseAnswer,
        Fault::CutAnswer,
        Fault::Slow(Duration::from_millis(2_500)),
    ];
    std::thread::scope(|scope| {
        for (place, fault) in faults.into_iter().enumerate() {
            scope.spawn(move || {
                // Each request that is not itself a second try fails the first time.
                let server = Server::start(BUCKET);
                let store = at(&server, &format!("/fault{place}"));
                let seen = std::sync::Mutex::new(std::collections::BTreeSet::new());
                // Of all requests one in three, so that slow ones do not take minutes.
                let every = if matches!(fault, Fault::Slow(_)) { 5 } else { 1 };
                let failed = Arc::new(AtomicU64::new(0));
                let count = failed.clone();
                server.fail(move |request: &Seen| {
                    let what = format!("{} {} {:?}", request.method, request.path, request.query);
                    let is_new = seen.lock().unwrap().insert(what);
                    if is_new && request.number.is_multiple_of(every) {
                        count.fetch_add(1, Ordering::Relaxed);
                        fault
                    } else {
                        Fault::None
                    }
                });
                let manifest = write(store.clone(), 11_000).unwrap_or_else(|error| panic!("{fault:?}: {error}"));
                server.fail(move |request: &Seen| if request.number.is_multiple_of(2) && every == 1 { fault } else { Fault::None });
                let report = verify(&*store).unwrap_or_else(|error| panic!("{fault:?}: {error}"));
                assert_eq!((report.manifest, &report.faults[..]), (manifest, &[][..]), "{fault:?}");
                assert!(failed.load(Ordering::Relaxed) >= 10 / every, "{fault:?}");
                // Where the answer to a beginning was lost, nobody knows its name.
                let lost = matches!(fault, Fault::LoseAnswer | Fault::CutAnswer | Fault::Slow(_));
                assert!(server.uploads() <= usize::from(lost), "{fault:?}");
            });
        }
    });
}

#[test]
fn an_answer_that_is_too_short_is_no_object() {
    let server = Server::start(BUCKET);
    let store = at(&server, "");
    store.put("large", &vec![7; 20 << 20]).unwrap();
    server.fail(|request: &Seen| if request.method == "GET" { Fault::Truncate } else { Fault::None });
    assert!(why(read_all(&*store, "large", 1 << 30)).contains("not what was asked for"));
    // Only later ones.
    server.fail(|_: &Seen| Fault::None);
    let mut opened = store.open("large").unwrap().unwrap();
    server.fail(|_: &Seen| Fault::Truncate);
    let error = opened.input.read_to_end(&mut Vec::new()).unwrap_err().to_string();
    assert!(error.contains("the store gives 4194304 bytes where 8388608 were asked for"), "{error}");
    server.fail(|_: &Seen| Fault::None);
    // Replaced in the middle: not the beginning of the one and the end of the other.
    let mut opened = store.open("large").unwrap().unwrap();
    store.put("large", &vec![8; 20 << 20]).unwrap();
    let error = opened.input.read_to_end(&mut Vec::new()).unwrap_err().to_string();
    assert!(error.contains("replaced, while it was read"), "{error}");
}

#[test]
fn what_does_not_pass_is_told_at_once_in_words() {
    let server = Server::start(BUCKET);
    let base = settings(&server);
    let look = |address: &str, settings: Settings| Bucket::new(address, settings).and_then(|bucket| bucket.list("", &mut |_| true));
    let with = |access: &str, secret: &str, token: Option<&str>| Settings {
        credentials: Credentials { access_key: access.into(), secret_key: secret.into(), session_token: token.map(String::from) },
        ..base.clone()
    };
    let began = Instant::now();
    for (address, settings, says) in [
        ("s3://backups", with(ACCESS_KEY, "hush", None), "s3://backups: the secret key is not that of the access key"),
        ("s3://backups", with("OTHER", SECRET_KEY, None), "the store does not know this access key"),
        ("s3://backups", with(ACCESS_KEY, SECRET_KEY, Some("hush")), "the session token is not valid any more"),
        ("s3://other/x", base.clone(), "s3://other: the store has no bucket `other`"),
        ("s3://backups", Settings { region: "mars".into(), ..base.clone() }, "the store expects another region than mars"),
        ("s3://backups", Settings { endpoint: "http://10.0.0.1:9".into(), ..base.clone() }, "--s3-plaintext"),
        ("s3://backups", with("", "", None), "the access key is empty"),
        ("s3://backups", Settings { part_bytes: 1, ..base.clone() }, "parts of 0 MiB"),
        ("s3://", base.clone(), "names no bucket"),
        ("s3://a b", base.clone(), "names no bucket"),
        ("s3://../b", base.clone(), "names no bucket"),
        ("s3://b/../c", base.clone(), "has a prefix that"),
        ("s3://b//c", base.clone(), "has a prefix that"),
        ("b", base.clone(), "does not begin with s3://"),
    ] {
        let error = why(look(address, settings));
        assert!(error.contains(says) && !error.contains("hush"), "{address}: {error}");
    }
    server.fail(|_: &Seen| Fault::Status(403, "AccessDenied"));
    assert!(why(look("s3://backups", base.clone())).contains("these keys may not list here (AccessDenied: it is AccessDenied & nothing else)"));
    server.fail(|_: &Seen| Fault::Nonsense);
    assert!(why(look("s3://backups", base.clone())).contains("the store answers as no store of S3's kind does"));
    server.fail(|_: &Seen| Fault::Status(301, "PermanentRedirect"));
    assert!(why(look("s3://backups", base.clone())).contains("elsewhere"));
    server.fail(|request: &Seen| if request.method == "PUT" { Fault::Status(403, "AccessDenied") } else { Fault::None });
    assert!(why(write(at(&server, "/denied"), 10)).contains("these keys may not write here"));
    assert!(why(write(at(&server, "/denied"), 11_000)).contains("these keys may not write here"));
    assert_eq!((server.uploads(), server.names(BUCKET)), (0, vec![]));
    // What was written before the end is refused goes again.
    server.fail(
        |request: &Seen| if request.method == "PUT" && request.path.ends_with(MANIFEST) { Fault::Status(403, "AccessDenied") } else { Fault::None },
    );
    assert!(why(write(at(&server, "/denied"), 10)).contains("these keys may not write here"));
    assert_eq!(server.names(BUCKET), [""; 0]);
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
}

#[test]
fn a_store_that_is_away_is_waited_for_and_no_longer_than_said() {
    let server = Server::start(BUCKET);
    let patient = Settings { patience: Duration::from_secs(2), idle: Duration::from_secs(1), ..settings(&server) };
    let nobody = Settings { endpoint: "http://127.0.0.1:9".into(), ..patient.clone() };
    let look = |settings: Settings| why(Bucket::new("s3://backups", settings).and_then(|bucket| bucket.list("", &mut |_| true)));
    let timed = |settings: Settings, faults: fn(&Seen) -> Fault| {
        server.fail(faults);
        let began = Instant::now();
        (look(settings), began.elapsed())
    };
    let (error, took) = timed(nobody, |_| Fault::None);
    assert!(error.contains("http://127.0.0.1:9 does not answer: ") && error.contains("tried "), "{error}");
    assert!(took < Duration::from_secs(4), "{took:?}");
    let (error, took) = timed(patient.clone(), |_| Fault::Status(503, "SlowDown"));
    assert!(error.contains("cannot list now (SlowDown") && took < Duration::from_secs(4), "{error} {took:?}");
    let (error, took) = timed(patient.clone(), |_| Fault::Slow(Duration::from_secs(5)));
    assert!(error.contains("does not answer in time") && took < Duration::from_secs(6), "{error} {took:?}");
    // One that says something now and then, and comes to no end.
    let (error, took) = timed(patient, |_| Fault::Trickle(Duration::from_millis(500)));
    assert!(error.contains(&server.endpoint()) && took < Duration::from_secs(15), "{error} {took:?}");
}

/// Somebody may empty it, or give it more.
#[test]
fn a_bucket_that_is_full_passes() {
    let server = Server::start(BUCKET);
    let store = Bucket::new("s3://backups", Settings { patience: Duration::ZERO, ..settings(&server) }).unwrap();
    for (status, code) in [(403, "QuotaExceeded"), (400, "XMinioAdminBucketQuotaExceeded")] {
        server.fail(move |_: &Seen| Fault::Status(status, code));
        let error = store.put("x", b"x").unwrap_err();
        assert!(error.is_passing() && error.to_string().contains(&format!("is full ({code}")), "{error}");
    }
}

/// The way in which a store is away that can be counted: its answers say so.
fn is_away(request: &Seen) -> Fault {
    let is_of_parts = request.query.contains_key("uploadId");
    if is_of_parts { Fault::Status(503, "SlowDown") } else { Fault::None }
}

#[test]
fn a_store_that_went_away_is_not_waited_for_again_to_give_an_upload_up() {
    let server = Server::start(BUCKET);
    let patient = Settings { patience: Duration::from_secs(2), idle: Duration::from_secs(60), ..settings(&server) };
    let store = Bucket::new("s3://backups/x", patient).unwrap();
    let given_up = Arc::new(AtomicU64::new(0));
    let count = given_up.clone();
    server.fail(move |request: &Seen| {
        if request.method == "DELETE" {
            count.fetch_add(1, Ordering::Relaxed);
        }
        is_away(request)
    });
    let mut output = store.create("large").unwrap();
    output.write_all(&vec![7; 6 << 20]).unwrap();
    assert!(why(output.finish()).contains("cannot write now (SlowDown"));
    assert_eq!(given_up.load(Ordering::Relaxed), 1, "it is tried once");
}

#[test]
fn an_upload_that_a_store_has_not_begun_is_not_begun_again() {
    let server = Server::start(BUCKET);
    let patient = Settings { patience: Duration::ZERO, ..settings(&server) };
    let store = Bucket::new("s3://backups/x", patient).unwrap();
    server.fail(|_: &Seen| Fault::Status(503, "SlowDown"));
    let mut output = std::io::BufWriter::with_capacity(1 << 18, store.create("large").unwrap());
    assert!(output.write_all(&vec![7; 6 << 20]).is_err());
    assert_eq!(server.requests(), 1);
    // It has something in its buffer.
    output.write_all(&[7; 9]).unwrap();
    assert!(output.flush().is_err());
    drop(output);
    assert_eq!(server.requests(), 1, "it is asked again");
}

#[test]
fn parts_are_not_tried_again_when_their_upload_is_given_up() {
    let server = Server::start(BUCKET);
    // Who waits for them waits for an hour.
    let patient = Settings { patience: Duration::from_secs(3600), ..settings(&server) };
    let store = Bucket::new("s3://backups/x", patient).unwrap();
    server.fail(|request: &Seen| if request.method == "PUT" { is_away(request) } else { Fault::None });
    let mut output = store.create("large").unwrap();
    output.write_all(&vec![7; 11 << 20]).unwrap();
    assert_eq!(server.uploads(), 1);
    drop(output);
    assert_eq!((server.uploads(), server.names(BUCKET)), (0, vec![]));
}

#[test]
fn a_bucket_full_of_foreign_objects_is_no_place_for_a_backup() {
    let server = Server::start(BUCKET);
    for number in 0..2_500 {
        server.put(BUCKET, &format!("photos/{number:05}/a&b.jpg"), b"x");
        server.put(BUCKET, &format!("z{number:05}"), b"x");
    }
    let requests = server.requests();
    assert!(why(write(at(&server, ""), 1)).contains("s3://backups: `photos` is in it; a backup wants a place of its own"));
    assert_eq!(server.requests(), requests + 1, "it looks no further");
    assert!(why(verify(&*at(&server, ""))).contains("is no backup: there is no manifest.json in it"));
    // Beside them, and beside what begins with the same letters.
    server.put(BUCKET, "monday2/manifest.json", b"{}");
    write(at(&server, "/monday"), 10).unwrap();
    assert!(verify(&*at(&server, "/monday")).unwrap().faults.is_empty());
    let all = names(&*at(&server, ""), "");
    assert_eq!((all.len(), &*all[0], &*all[2], &*all[2_502]), (2_503, "monday/", "photos/", "z02499"));
    assert_eq!(names(&*at(&server, "/photos"), "0249").len(), 10);
    assert_eq!(names(&*at(&server, ""), "z0").len(), 2_500);
}

#[test]
fn two_backups_to_one_place_are_not_mixed() {
    let server = Server::start(BUCKET);
    let begin = || Unfinished::begin(at(&server, "/both")).unwrap();
    let put = |unfinished: &Unfinished, number: u32| {
        let mut file = unfinished.keyspace(0).unwrap();
        records(number).for_each(|one| file.push(&one).unwrap());
        let (file, totals) = file.finish().unwrap();
        KeyspaceEntry::new("large".into(), "causal".into(), Cut::Causal, file, totals)
    };
    let (one, other) = (begin(), begin());
    let (first, second) = (put(&one, 10), put(&other, 20));
    let manifest = |entry: KeyspaceEntry| Manifest {
        format: FORMAT,
        cluster: "test".into(),
        release: "0".into(),
        as_of: Time::new(Timestamp::new(5, 0), "then".into()),
        since: None,
        data_center: "a".into(),
        data_centers: vec!["a".into()],
        partitions: 1,
        keyspaces: vec![entry],
    };
    // What an interrupted one has left is cleared away by the next one that ends.
    one.finish(&manifest(first.clone())).unwrap();
    assert!(why(other.finish(&manifest(second))).contains("there is a backup in it already"));
    let report = verify(&*at(&server, "/both")).unwrap();
    assert_eq!((report.manifest.keyspaces, &report.faults[..]), (vec![first.clone()], &[][..]));
    assert_eq!(server.names(BUCKET), [format!("both/{SUMS}"), format!("both/{}", first.file.name), format!("both/{MANIFEST}")]);
    // Whoever gives up takes its own away, and nobody else's.
    let (one, other) = (Unfinished::begin(at(&server, "/third")).unwrap(), Unfinished::begin(at(&server, "/third")).unwrap());
    let kept = put(&other, 5);
    put(&one, 5);
    one.abandon();
    other.finish(&manifest(kept)).unwrap();
    assert!(verify(&*at(&server, "/third")).unwrap().faults.is_empty());
}

#[test]
fn a_clock_that_is_wrong_is_put_right_by_the_stores() {
    for ahead_s in [-86_400, 7_200] {
        let server = Server::of(BUCKET, Kind { ahead_s, ..Kind::default() });
        write(at(&server, "/x"), 10).unwrap();
        assert!(verify(&*at(&server, "/x")).unwrap().faults.is_empty());
    }
}

#[test]
fn a_sessions_token_is_signed() {
    let server = Server::of(BUCKET, Kind { token: Some("session+token/=".into()), ..Kind::default() });
    let mut settings = settings(&server);
    settings.credentials.session_token = Some("session+token/=".into());
    write(Arc::new(Bucket::new("s3://backups/x", settings).unwrap()), 10).unwrap();
}

/// A self-signed certificate, as a file of an authority, and a server that has it.
fn certificate(folder: &std::path::Path) -> (PathBuf, Arc<rustls::ServerConfig>) {
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".into(), "localhost".into()]).unwrap();
    let file = folder.join("authority.pem");
    std::fs::write(&file, made.cert.pem()).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    (file, Arc::new(config.with_no_client_auth().with_single_cert(vec![made.cert.der().clone()], key).unwrap()))
}

#[test]
fn over_tls_the_server_is_one_that_is_trusted() {
    let folder = tempfile::tempdir().unwrap();
    let (file, tls) = certificate(folder.path());
    let server = Server::of(BUCKET, Kind { tls: Some(tls), ..Kind::default() });
    let trusted = Settings { endpoint: format!("https://{}", server.address), authorities: Some(file), ..settings(&server) };
    write(Arc::new(Bucket::new("s3://backups/x", trusted.clone()).unwrap()), 6_000).unwrap();
    assert!(verify(&Bucket::new("s3://backups/x", trusted.clone()).unwrap()).unwrap().faults.is_empty());
    let (other, _) = certificate(folder.path());
    let began = Instant::now();
    let distrusted = Settings { authorities: Some(other), ..trusted.clone() };
    assert!(why(Bucket::new("s3://backups", distrusted).unwrap().list("", &mut |_| true)).contains("the server is not trusted"));
    assert!(began.elapsed() < Duration::from_secs(4));
    let none = Settings { authorities: Some(folder.path().join("none.pem")), ..trusted };
    assert!(why(Bucket::new("s3://backups", none)).contains("has no certificates of authorities"));
}
