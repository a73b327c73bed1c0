use super::benchmark::Line;
use super::*;
use crate::report::{Report, json};
use std::os::unix::fs::PermissionsExt;

fn address(name: &str, port: u16) -> Contender {
    Contender::Address { name: name.to_owned(), host: "127.0.0.1".to_owned(), port, password: Some("secret".to_owned()), database: Some(1) }
}

fn options() -> CompareOptions {
    let mut options = CompareOptions::new(vec![address("rheostat", 1), address("other", 2)]);
    options.rounds = 3;
    options
}

#[test]
fn the_report_reads_as_recorded() {
    let options = options();
    let mut measurements = Vec::new();
    for round in 0..3 {
        for depth in &options.depths {
            for contender in order(2, round) {
                for test in ["SET", "GET"] {
                    let per_second = f64::from(depth.pipeline) * if contender == 0 { 60_000.0 + 6_000.0 * round as f64 } else { 60_000.0 };
                    let line = Line { test: test.to_owned(), per_second, p50_ms: 0.5, p99_ms: 1.25 };
                    measurements.push(Measurement { pipeline: depth.pipeline, contender, line });
                }
            }
        }
    }
    let report = CompareReport::new(&options, vec!["127.0.0.1:1".to_owned(), "127.0.0.1:2".to_owned()], &measurements);
    let wanted = "\
redis-benchmark, 50 connections, 64-byte values, 100000 keys, 3 rounds; medians over rounds, spread in brackets
- rheostat: 127.0.0.1:1
- other: 127.0.0.1:2

test  pipeline  contender  per second  slowest  fastest        over other       p50       p99
SET          1   rheostat       66000    60000    72000  1.10 (1.00-1.20)  0.500 ms  1.250 ms
SET          1      other       60000    60000    60000  1.00 (1.00-1.00)  0.500 ms  1.250 ms
SET         16   rheostat      1.06 M   960000   1.15 M  1.10 (1.00-1.20)  0.500 ms  1.250 ms
SET         16      other      960000   960000   960000  1.00 (1.00-1.00)  0.500 ms  1.250 ms
GET          1   rheostat       66000    60000    72000  1.10 (1.00-1.20)  0.500 ms  1.250 ms
GET          1      other       60000    60000    60000  1.00 (1.00-1.00)  0.500 ms  1.250 ms
GET         16   rheostat      1.06 M   960000   1.15 M  1.10 (1.00-1.20)  0.500 ms  1.250 ms
GET         16      other      960000   960000   960000  1.00 (1.00-1.00)  0.500 ms  1.250 ms
";
    assert_eq!(report.text(), wanted);
    let environment = crate::report::Environment::read(vec!["bench".to_owned()], None, "2026-11-21".to_owned());
    let parsed: serde_json::Value = serde_json::from_str(&json(&environment, &report)).unwrap();
    assert_eq!(parsed["report"]["comparisons"][0]["per_second"]["rounds"], serde_json::json!([60_000.0, 66_000.0, 72_000.0]));
    assert_eq!(parsed["environment"]["date"], "2026-11-21");
}

/// One test for all that starts programs: a script that another thread is still writing cannot be executed.
#[tokio::test]
async fn the_program_is_driven_and_its_failures_are_told() {
    let directory = tempfile::tempdir().unwrap();
    let script = |name: &str, body: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    };
    let header = r#"echo '"test","rps","p50_latency_ms","p99_latency_ms"'"#;
    let log = directory.path().join("log");
    let body = format!(
        "echo \"$@\" >> {}\n{header}\ncase \"$*\" in *'-t set,get'*) echo '\"SET\",\"100\",\"1\",\"2\"'; echo '\"GET\",\"200\",\"1\",\"2\"';; \
         *) echo '\"SET\",\"1\",\"1\",\"1\"';; esac",
        log.display()
    );
    let mut options = options();
    let listeners = [(); 2].map(|()| std::net::TcpListener::bind("127.0.0.1:0").unwrap());
    let ports = listeners.each_ref().map(|listener| listener.local_addr().unwrap().port());
    options.contenders = vec![address("rheostat", ports[0]), address("other", ports[1])];
    options.contenders.push(Contender::Limit);
    options.redis_benchmark = script("good", &body);
    let report = run(&options, &Progress::hidden()).await.unwrap();
    assert_eq!(report.comparisons.len(), 12);
    assert!(report.comparisons.iter().all(|one| one.per_second.rounds.len() == 3 && one.over_base.median == 1.0));
    let lines: Vec<String> = std::fs::read_to_string(&log).unwrap().lines().map(str::to_owned).collect();
    assert_eq!(lines.len(), 3 + 3 * 2 * 3);
    let at = format!("-h 127.0.0.1 -p {}", ports[0]);
    assert_eq!(lines[0], format!("{at} -t set --csv -P 16 -n 300000 -c 50 -d 64 -r 100000 -a secret --dbnum 1"));
    assert_eq!(lines[3], format!("{at} -t set,get --csv -P 1 -n 100000 -c 50 -d 64 -r 100000 -a secret --dbnum 1"));

    options.redis_benchmark = script("failing", "echo 'Could not connect to Redis' >&2\nexit 1");
    let error = run(&options, &Progress::hidden()).await.unwrap_err().to_string();
    assert!(error.contains(&format!("against rheostat (127.0.0.1:{})", ports[0])) && error.contains("Could not connect to Redis"), "{error}");
    options.redis_benchmark = script("silent", "exit 0");
    assert!(run(&options, &Progress::hidden()).await.unwrap_err().to_string().contains("no CSV"));
    options.redis_benchmark = script("slow", "exec sleep 600");
    options.timeout = Duration::from_millis(100);
    assert!(run(&options, &Progress::hidden()).await.unwrap_err().to_string().contains("not done after"));

    options.redis_benchmark = directory.path().join("absent");
    let error = run(&options, &Progress::hidden()).await.unwrap_err();
    assert!(matches!(&error, Error::Missing(text) if text.contains("package redis-tools")), "{error}");
    options.contenders = vec![Contender::Redis { program: directory.path().join("absent") }];
    options.base = 0;
    let error = run(&options, &Progress::hidden()).await.unwrap_err();
    assert!(matches!(&error, Error::Missing(text) if text.contains("package redis-server")), "{error}");
    options.contenders = vec![Contender::Redis { program: script("ends", "exit 3") }];
    assert!(run(&options, &Progress::hidden()).await.unwrap_err().to_string().contains("redis-server ended at once"));
}

#[test]
fn impossible_options_are_refused_and_passwords_not_shown() {
    let refused = |change: fn(&mut CompareOptions)| {
        let mut options = options();
        change(&mut options);
        options.check().unwrap_err().to_string()
    };
    options().check().unwrap();
    assert!(refused(|options| options.contenders.clear()).contains("number of contenders is 0"));
    assert!(refused(|options| options.base = 2).contains("place of the base is 2"));
    assert!(refused(|options| options.contenders[1] = address("rheostat", 2)).contains("two contenders have the name rheostat"));
    assert!(refused(|options| options.depths[0].pipeline = 0).contains("pipeline is 0"));
    assert!(!format!("{:?}", options()).contains("secret"));
}

#[tokio::test]
async fn a_contender_at_which_nobody_listens_is_told_at_once() {
    // No port that the system gives away: nobody listens there.
    let nobody = Contender::Address { name: "nobody".into(), host: "127.0.0.1".into(), port: 1, password: None, database: None };
    let error = run(&CompareOptions::new(vec![nobody]), &Progress::hidden()).await.expect_err("nobody answers");
    assert!(matches!(&error, Error::Connection { address, .. } if *address == "127.0.0.1:1"), "{error}");
}
