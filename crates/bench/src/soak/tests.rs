use super::*;
use crate::report::Report;
use rheostat_resp::received::{Reply, parse_reply};
use std::collections::BTreeMap;
use std::sync::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// What a test's server has been asked.
#[derive(Default)]
struct Asked {
    sets: u64,
    expiries: u64,
    deletes: u64,
    keys: BTreeMap<String, u64>,
}

/// A server that answers writes and tells INFO: memory, which is what `memory` makes of the number of writes so far.
async fn server(asked: Arc<Mutex<Asked>>, memory: fn(u64) -> u64) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let asked = asked.clone();
            tokio::spawn(async move {
                let mut input = Vec::new();
                while let Ok(1..) = stream.read_buf(&mut input).await {
                    let mut answer = String::new();
                    // Commands have the form of array replies.
                    while let Ok(Some((Reply::Array(words), length))) = parse_reply(&input) {
                        let text = |reply| if let Reply::Bulk(bytes) = reply { String::from_utf8_lossy(bytes).into_owned() } else { String::new() };
                        let words: Vec<String> = words.map(text).collect();
                        input.drain(..length);
                        let mut asked = asked.lock().unwrap();
                        let words: Vec<&str> = words.iter().map(String::as_str).collect();
                        match words.as_slice() {
                            ["INFO"] => {
                                let bytes = memory(asked.sets + asked.expiries + asked.deletes);
                                let process = std::process::id();
                                let info = format!("process_id:{process}\r\nused_memory:{bytes}\r\nlog_bytes:5\r\ndb0:keys=3,expires=0\r\n");
                                answer.push_str(&format!("${}\r\n{info}\r\n", info.len()));
                                continue;
                            }
                            ["SET", key, _] => {
                                asked.sets += 1;
                                *asked.keys.entry(key.to_string()).or_default() += 1;
                                answer.push_str("+OK\r\n");
                            }
                            ["SET", _, _, "PX", after] if after.parse::<u64>().is_ok_and(|after| (1..=50).contains(&after)) => {
                                asked.expiries += 1;
                                answer.push_str("+OK\r\n");
                            }
                            ["DEL", _] => {
                                asked.deletes += 1;
                                answer.push_str(":1\r\n");
                            }
                            _ => answer.push_str("-ERR unexpected\r\n"),
                        }
                    }
                    if stream.write_all(answer.as_bytes()).await.is_err() {
                        break;
                    }
                }
            });
        }
    });
    address
}

async fn metrics(versions: u64) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 1024];
            let _ = stream.read(&mut request).await;
            let _ = stream.write_all(format!("HTTP/1.1 200 OK\r\n\r\nrheostat_versions{{partition=\"0\"}} {versions}\n").as_bytes()).await;
        }
    });
    address
}

fn options(data_centers: Vec<SoakDataCenter>) -> SoakOptions {
    SoakOptions {
        keys: 20,
        value_length: 8,
        rate: 4_000.0,
        longest_expiry: Duration::from_millis(50),
        duration: Duration::from_secs(2),
        sample_every: Duration::from_millis(50),
        ..SoakOptions::new(data_centers)
    }
}

async fn data_center(asked: &Arc<Mutex<Asked>>, memory: fn(u64) -> u64) -> SoakDataCenter {
    SoakDataCenter { resp: RespTarget::new("a", server(asked.clone(), memory).await), metrics: Vec::new() }
}

#[tokio::test]
async fn a_level_server_is_level_and_gets_all_kinds_of_writes() {
    let (a, b) = <(Arc<Mutex<Asked>>, Arc<Mutex<Asked>>)>::default();
    let mut first = data_center(&a, |_| 1 << 30).await;
    first.metrics.push(metrics(77).await);
    let report = run(&options(vec![first, data_center(&b, |_| 1 << 30).await]), &Progress::hidden()).await.unwrap();
    // A machine under load may be too slow for half the rate; then nothing is known of memory, and all quantities are level even so.
    assert_ne!(report.verdict, Verdict::Growing, "{}", report.text());
    assert!(report.failures.is_empty(), "{:?}", report.failures);
    let (a, b) = (a.lock().unwrap(), b.lock().unwrap());
    assert_eq!([report.sets, report.expiries, report.deletes], [a.sets + b.sets, a.expiries + b.expiries, a.deletes + b.deletes]);
    assert!([a.sets, a.expiries, a.deletes, b.sets, b.expiries, b.deletes].iter().all(|count| *count > 0));
    assert!(a.keys.keys().all(|key| key.strip_prefix("soak:").unwrap().parse::<u64>().unwrap() < 20));
    assert!(report.nodes[0].samples.iter().all(|sample| sample.versions == Some(77) && sample.keys == 3 && sample.log_bytes == 5));
    assert!(report.nodes[1].samples.iter().all(|sample| sample.versions.is_none()));
    assert!(report.text().contains("a versions"), "{}", report.text());
}

#[tokio::test]
async fn a_server_that_keeps_everything_is_found() {
    let asked = Arc::default();
    let report = run(&options(vec![data_center(&asked, |writes| writes << 20).await]), &Progress::hidden()).await.unwrap();
    assert_eq!(report.verdict, Verdict::Growing, "{}", report.text());
    let growing: Vec<&str> = report.series.iter().filter(|one| one.verdict == Verdict::Growing).map(|one| one.quantity).collect();
    assert!(growing.contains(&"memory") && !growing.contains(&"log"), "{growing:?}");
    assert!(report.text().contains("Verdict: GROWING"));
}

#[tokio::test]
async fn refused_writes_make_the_verdict_unknown() {
    let asked = Arc::default();
    let mut refused = options(vec![data_center(&asked, |_| 1).await]);
    refused.deletes_percent = 0;
    refused.expiries_percent = 100;
    // The server refuses longer ones.
    refused.longest_expiry = Duration::from_secs(1_000_000);
    let report = run(&refused, &Progress::hidden()).await.unwrap();
    assert!(report.failures["ERR"] > 0, "{:?}", report.failures);
    assert_eq!(report.verdict, Verdict::Unknown);
}

#[tokio::test]
async fn what_is_not_rheostat_is_refused_at_once() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = [0; 1024];
        while let Ok(1..) = stream.read(&mut request).await {
            stream.write_all(b"$19\r\nredis_version:7.0.0\r\n").await.unwrap();
        }
    });
    let redis = options(vec![SoakDataCenter { resp: RespTarget::new("redis", address), metrics: Vec::new() }]);
    let error = run(&redis, &Progress::hidden()).await.unwrap_err().to_string();
    assert!(error.contains("INFO has no used_memory"), "{error}");
}

#[test]
fn bad_options_are_named() {
    let good = || options(vec![SoakDataCenter { resp: RespTarget::new("a", "h:1"), metrics: Vec::new() }]);
    assert!(good().check().is_ok());
    type Break = fn(&mut SoakOptions);
    let cases: [(&str, Break); 7] = [
        ("number of data centers", |options| options.data_centers.clear()),
        ("addresses of metrics", |options| options.data_centers[0].metrics = vec!["h:1".to_owned(), "h:2".to_owned()]),
        ("number of keys", |options| options.keys = 0),
        ("rate per second", |options| options.rate = f64::NAN),
        ("percentage of expiries", |options| options.expiries_percent = 91),
        ("number of samples", |options| options.sample_every = Duration::from_secs(2)),
        ("tolerance", |options| options.tolerance = -0.1),
    ];
    for (text, spoil) in cases {
        let mut options = good();
        spoil(&mut options);
        let error = options.check().unwrap_err().to_string();
        assert!(error.contains(text), "{error}");
    }
}
