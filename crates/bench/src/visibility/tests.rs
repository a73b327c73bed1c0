use super::*;
use crate::report::Report;
use crate::target::resp::RespTarget;
use std::collections::HashMap;
use std::sync::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

type Shared = Arc<Mutex<HashMap<Vec<u8>, Vec<u8>>>>;

/// What a test's server hides from readers.
#[derive(Clone, Copy, PartialEq)]
enum Hides {
    Nothing,
    /// Keys that are causes.
    Causes,
    Everything,
}

/// A server for `SET` and `GET` over a map that all "data centers" share.
async fn server(map: Shared, hides: Hides) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let map = map.clone();
            tokio::spawn(async move {
                let mut buffer = vec![0; 4096];
                // The probes wait for each answer, so one read is one request.
                while let Ok(count @ 1..) = stream.read(&mut buffer).await {
                    let text = String::from_utf8_lossy(&buffer[..count]).into_owned();
                    let words: Vec<&str> = text.split("\r\n").collect();
                    let key = words[4].as_bytes().to_vec();
                    let hidden = match hides {
                        Hides::Nothing => false,
                        Hides::Causes => words[4].contains(":x:"),
                        Hides::Everything => true,
                    };
                    let answer = match words[2] {
                        "SET" => {
                            map.lock().unwrap().insert(key, words[6].as_bytes().to_vec());
                            "+OK\r\n".to_owned()
                        }
                        _ => match map.lock().unwrap().get(&key) {
                            Some(value) if !hidden => format!("${}\r\n{}\r\n", value.len(), String::from_utf8_lossy(value)),
                            _ => "$-1\r\n".to_owned(),
                        },
                    };
                    if stream.write_all(answer.as_bytes()).await.is_err() {
                        break;
                    }
                }
            });
        }
    });
    address
}

async fn options(hides: Hides) -> VisibilityOptions {
    let map = Shared::default();
    let mut data_centers = Vec::new();
    for name in ["a", "b", "c"] {
        data_centers.push(RespTarget::new(name, server(map.clone(), hides).await));
    }
    let mut options = VisibilityOptions::new(data_centers, vec![vec![0.0; 3]; 3], 7);
    options.samples = 10;
    options.warm_up = 2;
    options.partitions = 4;
    options.longest_pause = Duration::ZERO;
    options
}

#[tokio::test]
async fn every_ordered_pair_is_measured() {
    let options = options(Hides::Nothing).await;
    let report = run(&options, &Progress::hidden()).await.unwrap();
    let pairs: Vec<String> = report.pairs.iter().map(|pair| format!("{}{}", pair.from, pair.to)).collect();
    assert_eq!(pairs, ["ab", "ac", "ba", "bc", "ca", "cb"]);
    assert!(report.pairs.iter().all(|pair| pair.visible_after.count == 10 && pair.write.count == 10 && pair.not_seen == 0));
    assert_eq!(report.beyond_delay.count, 60);
    assert!(!report.text().contains("Dependent"));
}

#[tokio::test]
async fn dependent_writes_find_a_missing_cause() {
    let mut dependent = options(Hides::Nothing).await;
    dependent.mode = Mode::Dependent;
    let report = run(&dependent, &Progress::hidden()).await.unwrap();
    assert_eq!((report.causes_checked, report.violations), (60, 0));
    assert!(report.is_measured());
    let mut broken = options(Hides::Causes).await;
    broken.mode = Mode::Dependent;
    let report = run(&broken, &Progress::hidden()).await.unwrap();
    assert_eq!((report.causes_checked, report.violations), (60, 60));
    assert!(report.text().contains("in 60 of 60 samples"), "{}", report.text());
}

#[tokio::test]
async fn what_never_arrives_is_counted() {
    let mut options = options(Hides::Everything).await;
    (options.samples, options.warm_up) = (1, 0);
    // Long enough for each write to be answered.
    options.timeout = Duration::from_secs(1);
    let report = run(&options, &Progress::hidden()).await.unwrap();
    assert_eq!((report.not_seen, report.beyond_delay), (6, SignedPercentiles::default()));
    // Of nothing there is no time.
    let text = report.text();
    assert!(!report.is_measured() && text.contains("nothing was measured"), "{text}");
    assert_eq!(text.lines().filter(|line| line.split_whitespace().rev().take(3).eq(["1", "0", "-"])).count(), 6, "{text}");
}

#[tokio::test]
async fn impossible_options_are_refused_by_name() {
    let good = options(Hides::Nothing).await;
    good.check().unwrap();
    let refused = |change: fn(&mut VisibilityOptions)| {
        let mut options = good.clone();
        change(&mut options);
        options.check().unwrap_err().to_string()
    };
    assert!(refused(|options| options.data_centers.truncate(1)).contains("number of data centers is 1"));
    assert!(refused(|options| options.one_way_delay_ms[1].truncate(2)).contains("3 rows of 3 numbers"));
    assert!(refused(|options| options.one_way_delay_ms[1][2] = -1.0).contains("one-way delay"));
    assert!(refused(|options| (options.mode, options.partitions) = (Mode::Dependent, 1)).contains("at least 2 partitions"));
}

#[test]
fn tags_lie_on_their_partitions() {
    for partitions in [1, 2, 3, 100] {
        let tags = tags(partitions);
        assert_eq!(tags.len(), usize::from(partitions));
        for (partition, tag) in tags.iter().enumerate() {
            let key = format!("visibility:1:{{{tag}}}:5:x:0");
            assert_eq!(usize::from(partition_of(key.as_bytes(), partitions).0), partition);
        }
    }
}

#[test]
fn percentiles_are_exact_and_may_be_negative() {
    let samples: Vec<f64> = (0..1000).rev().map(|sample| f64::from(sample) - 9.0).collect();
    let seen = SignedPercentiles::of(&samples);
    assert_eq!((seen.min_us, seen.p50_us, seen.p99_us, seen.p999_us, seen.max_us), (-9.0, 490.0, 980.0, 989.0, 990.0));
    assert_eq!(SignedPercentiles::of(&[5.0]).p999_us, 5.0);
}
