//! Operations that take long, as SLOWLOG tells them.

use crate::client::{Client, Reply};
use crate::cluster::{Plan, keyspace, single, start_single};
use rheostat_core::DcId;
use rheostat_server::NodeConfig;
use rheostat_server::config::{KeyspaceConfig, Role, Secret, UserConfig};
use std::time::Instant;

fn three() -> Plan {
    Plan {
        change: |config: &mut NodeConfig| {
            let majorities: toml::Table = toml::from_str("consistency = 'sequential'").unwrap();
            config.keyspaces = vec![KeyspaceConfig { options: majorities, ..keyspace("locks", "quorum") }, keyspace("plain", "causal")];
            config.limits.operation_timeout_ms = 400;
            config.limits.slow_operation_ms = 50;
            config.shards = 2;
        },
        ..Plan::three(2)
    }
}

async fn entries(client: &mut Client) -> Vec<Vec<Reply>> {
    client.ask("SLOWLOG GET -1").await.items().iter().map(|entry| entry.items().to_vec()).collect()
}

#[tokio::test]
async fn an_operation_that_waits_for_others_is_told_with_what_it_waited_for() {
    let cluster = three().start(None).await;
    let mut client = cluster.client(0).await;
    client.ask_until("SET {a}lock held", Reply::ok()).await;
    client.ask("CLIENT SETNAME worker").await;
    client.ask("SLOWLOG RESET").await;
    for other in [1, 2] {
        for node in 0..3 {
            // Each node knows its own links.
            let _ = cluster.node(node).router().pause_link(DcId(0), DcId(other));
        }
    }
    let began = Instant::now();
    // Both shards have a partition: one of these waits on the connection's, the other one elsewhere.
    for key in ["{a}lock", "{b}lock", "{c}lock", "{d}lock"] {
        let reply = client.ask(&format!("SET {key} mine")).await;
        assert!(matches!(reply, Reply::Error(_)), "{reply:?}");
    }
    let long = format!("{{a}}{}", "k".repeat(500));
    let reply = client.ask(&format!("GET {long}")).await;
    assert!(matches!(reply, Reply::Error(_)), "{reply:?}");
    let all_us = began.elapsed().as_micros() as i64;
    let told = entries(&mut client).await;
    assert_eq!(client.ask("SLOWLOG LEN").await, Reply::Integer(5));
    assert_eq!(told.len(), 5);
    let words = |entry: &[Reply]| entry[3].items().iter().map(Reply::text).collect::<Vec<_>>();
    let first = words(&told[0]);
    assert_eq!((&first[0][..], first[1].len(), &first[2][..]), ("GET", 128 + "... (375 more bytes)".len(), "keyspace=locks"));
    for entry in &told {
        let Reply::Integer(took_us) = entry[2] else { panic!("{entry:?}") };
        assert!((50_000..=all_us).contains(&took_us), "{took_us} of {all_us}");
        let words = words(entry);
        assert!(words.iter().any(|word| word.starts_with("came-to=") && word != "came-to=ok"), "{words:?}");
        assert!(words.iter().any(|word| word.starts_with("waited-for=") && word.len() > 20), "{words:?}");
        assert_eq!((entry[4].text().starts_with("127.0.0.1:"), entry[5].text()), (true, "worker".into()));
    }
    assert_eq!(words(&told[4])[..2], ["SET", "{a}lock"]);
    assert_eq!(client.ask("SLOWLOG GET").await.items().len(), 5);
    assert_eq!(client.ask("SLOWLOG GET 2").await.items().len(), 2);
    assert!(client.ask("SLOWLOG GET -2").await.is_error("ERR"));
    assert_eq!(client.ask("SLOWLOG RESET").await, Reply::ok());
    assert_eq!(client.ask("SLOWLOG LEN").await, Reply::Integer(0));
    // What waits because it is asked to is not slow, nor what is answered at once.
    client.ask("SELECT plain").await;
    client.ask_until("SET k v", Reply::ok()).await;
    client.ask("SLOWLOG RESET").await;
    client.ask("WAIT 2 200").await;
    client.ask("SET k v").await;
    // On a machine that is busy with something else, a write can be slow.
    for entry in entries(&mut client).await {
        assert!(words(&entry)[0] == "SET" && matches!(entry[2], Reply::Integer(50_000..)), "{entry:?}");
    }
    assert_eq!(client.ask("CONFIG GET slowlog-log-slower-than").await.items()[1].text(), "50000");
    cluster.stop_all().await;
}

#[tokio::test]
async fn only_who_operates_sees_keys_of_others() {
    let mut config = single(1);
    config.security.password = Some(Secret("open sesame".into()));
    let user = |name: &str, role| UserConfig {
        name: name.into(),
        role,
        password_sha256: Secret(rheostat_server::users::password_sha256(b"mine")),
        keyspaces: Vec::new(),
        prefixes: if role == Role::Operate { Vec::new() } else { vec!["own:".into()] },
    };
    config.users = vec![user("writer", Role::Write), user("operator", Role::Operate)];
    let (node, mut client) = start_single(config).await;
    assert_eq!(client.ask("AUTH writer mine").await, Reply::ok());
    for command in ["SLOWLOG GET", "SLOWLOG LEN", "SLOWLOG RESET", "CLIENT LIST"] {
        assert!(client.ask(command).await.is_error("NOPERM"), "{command}");
    }
    assert_eq!(client.ask("AUTH operator mine").await, Reply::ok());
    assert_eq!(client.ask("SLOWLOG LEN").await, Reply::Integer(0));
    node.shutdown().await;
}
