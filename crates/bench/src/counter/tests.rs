use super::*;
use crate::report::Report;
use std::collections::BTreeMap;
use std::sync::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

#[derive(Default)]
struct Values {
    /// Per counter with a lower bound, its value.
    bounded: BTreeMap<String, i64>,
    /// Per counter without, what it was made with, and what each data center has added.
    weak: BTreeMap<String, (i64, [i64; 2])>,
    /// In the keyspace `strong`.
    strong: BTreeMap<String, String>,
}

impl Values {
    /// A data center sees no other's updates of weak counters: what clients do there is decided without knowing of each other.
    fn answer(&mut self, here: usize, strong: &mut bool, words: &[&str]) -> String {
        let number = |value: i64| format!("${}\r\n{value}\r\n", value.to_string().len());
        match words {
            ["SELECT", keyspace] => {
                *strong = *keyspace == "strong";
                "+OK\r\n".to_owned()
            }
            ["RHEO", "SCOPE", _] => "+OK\r\n".to_owned(),
            ["RHEO", "COUNTER", "CREATE", key, "MIN", "0", "VALUE", value] => {
                self.bounded.insert(key.to_string(), value.parse().unwrap());
                "+OK\r\n".to_owned()
            }
            ["GET", key] if *strong => self.strong.get(*key).map_or("$-1\r\n".to_owned(), |value| format!("${}\r\n{value}\r\n", value.len())),
            ["GET", key] => match (self.bounded.get(*key), self.weak.get(*key)) {
                (Some(value), _) => number(*value),
                (None, Some((initial, added))) => number(initial + added[here]),
                (None, None) => "$-1\r\n".to_owned(),
            },
            ["SET", key, value] => {
                self.strong.insert(key.to_string(), value.to_string());
                "+OK\r\n".to_owned()
            }
            ["RHEO", "CAS", key, old, new] => {
                let value = self.strong.get_mut(*key).unwrap();
                let same = value == old;
                if same {
                    *value = new.to_string();
                }
                format!(":{}\r\n", u8::from(same))
            }
            ["INCRBY", key, by] => {
                let by: i64 = by.parse().unwrap();
                if let Some(value) = self.bounded.get_mut(*key) {
                    if *value + by < 0 {
                        return "-NORIGHTS none\r\n".to_owned();
                    }
                    *value += by;
                    return format!(":{value}\r\n");
                }
                match self.weak.get_mut(*key) {
                    Some((_, added)) => added[here] += by,
                    None => {
                        self.weak.insert(key.to_string(), (by, [0; 2]));
                    }
                }
                ":1\r\n".to_owned()
            }
            other => format!("-ERR {other:?}\r\n"),
        }
    }
}

async fn server(values: Arc<Mutex<Values>>, here: usize) -> RespTarget {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let values = values.clone();
            tokio::spawn(async move {
                let (mut buffer, mut strong) = (vec![0; 4096], false);
                // A client waits for each answer, so one read is one request.
                while let Ok(count @ 1..) = stream.read(&mut buffer).await {
                    let text = String::from_utf8_lossy(&buffer[..count]).into_owned();
                    let words: Vec<&str> = text.split("\r\n").skip(2).step_by(2).collect();
                    let answer = values.lock().unwrap().answer(here, &mut strong, &words);
                    if stream.write_all(answer.as_bytes()).await.is_err() {
                        break;
                    }
                }
            });
        }
    });
    RespTarget::new(format!("dc{here}"), address)
}

#[tokio::test]
async fn only_weak_counters_are_taken_from_in_excess() {
    let values = Arc::new(Mutex::new(Values::default()));
    let data_centers = vec![server(values.clone(), 0).await, server(values.clone(), 1).await];
    let options = CounterOptions {
        counters: vec![1, 3],
        clients: vec![2],
        duration: Duration::from_millis(300),
        exhausted: 200,
        pause: Duration::from_millis(1),
        scarce: 20,
        timeout: Duration::from_secs(5),
        ..CounterOptions::new(data_centers, 1)
    };
    let report = run(&options, &Progress::hidden()).await.unwrap();
    assert_eq!((report.throughput.len(), report.low_load.len(), report.excess.len()), (6, 3, 3));
    assert!(report.throughput.iter().all(|one| one.clients == 4 && one.per_second > 0.0 && one.failures.total() == 0), "{report:?}");
    assert!(report.throughput.iter().all(|one| (one.conflicts == 0) || one.style == Style::Strong));
    let run = &report.exhaustion;
    assert_eq!((run.made, run.left, run.slices.len()), (200, 0, SLICES), "{run:?}");
    // Each data center sells all of it, since it sees only its own sales.
    let of = |style: Style| report.excess.iter().find(|one| one.style == style).map(|one| (one.made, one.in_excess)).unwrap();
    assert_eq!((of(Style::Bounded), of(Style::Strong)), ((20, 0), (20, 0)));
    let (made, in_excess) = of(Style::Weak);
    assert!(made >= 40 && in_excess == made - 20, "{made}");
    let text = report.text();
    assert!(text.contains("Decrements in excess") && text.contains("dc1") && text.contains("from 200 to 0"), "{text}");
}

#[test]
fn impossible_options_are_refused() {
    let refused = |change: fn(&mut CounterOptions)| {
        let mut options = CounterOptions::new(vec![RespTarget::new("a", "127.0.0.1:1")], 1);
        options.check().unwrap();
        change(&mut options);
        options.check().unwrap_err().to_string()
    };
    assert!(refused(|options| options.data_centers.clear()).contains("number of data centers is 0"));
    assert!(refused(|options| options.clients.push(0)).contains("number of clients is 0"));
    assert!(refused(|options| options.scarce = 0).contains("scarce value is 0"));
}
