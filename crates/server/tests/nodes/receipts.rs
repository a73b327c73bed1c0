//! Receipts of a connection's operations: what they say, that they hold together, and that they are not there unless they are asked for.

use crate::client::{Client, PATIENCE, Reply, words};
use crate::cluster::{Plan, single, start_single};
use rheostat_core::dial::Level;
use rheostat_receipts::verify::compare;
use rheostat_receipts::{Act, Receipt, Statement, key_of};
use rheostat_server::NodeConfig;
use rheostat_server::config::ServiceLevelConfig;

async fn receipt(client: &mut Client) -> Receipt {
    let reply = client.ask("RHEO RECEIPT").await;
    Receipt::from_line(reply.text().as_bytes()).unwrap_or_else(|why| panic!("{why}: {reply:?}"))
}

#[tokio::test]
async fn a_receipt_says_what_was_done_and_follows_the_one_before_it() {
    let mut config = single(4);
    config.shards = 2;
    config.service_levels.insert("checkout".into(), ServiceLevelConfig { entries: "causal 10s; eventual".into() });
    let (node, mut client) = start_single(config).await;
    assert_eq!(client.ask("SET a 1").await, Reply::ok());
    assert_eq!(client.ask("RHEO RECEIPT").await, Reply::Null, "they are off");
    assert_eq!(client.ask("RHEO RECEIPT ON").await, Reply::ok());
    assert_eq!(client.ask("RHEO RECEIPT").await, Reply::Null, "nothing has been done since");
    let key = client.ask("RHEO RECEIPT KEY").await;
    let mut all = Vec::new();
    // Keys of all partitions, so of both shards.
    for (round, name) in ["a", "b", "c", "d", "e", "f"].into_iter().enumerate() {
        for (request, answer, act) in [
            (format!("SET {name} {round}"), Reply::ok(), Act::Write),
            (format!("GET {name}"), Reply::bulk(&round.to_string()), Act::Read),
            (format!("EXPIRE {name} 1000"), Reply::Integer(1), Act::Write),
            (format!("DEL {name}"), Reply::Integer(1), Act::Write),
            (format!("EXISTS {name}"), Reply::Integer(0), Act::Read),
        ] {
            assert_eq!(client.ask(&request).await, answer, "{request}");
            let one = receipt(&mut client).await;
            let said = &one.statement;
            assert_eq!(Reply::bulk(&key_of(&one.key())), key);
            assert_eq!((said.act, said.key, said.level), (act, Statement::key_digest(name.as_bytes()), Level::Causal), "{request}");
            assert_eq!((said.keyspace.as_str(), said.node.as_str()), ("default", "a"));
            assert_eq!(said.lasting, request.starts_with("SET") || request.starts_with("GET"), "{request}");
            assert_eq!(said.staleness_ms, (act == Act::Read).then_some(0), "{request}: there is no other data center");
            all.push(one);
        }
    }
    for pair in all.windows(2) {
        let [one, next] = [&pair[0].statement, &pair[1].statement];
        assert_eq!((next.previous, next.before), (Some(one.digest()), one.after));
    }
    let verdict = compare(&all).unwrap();
    assert_eq!((verdict.contradictions.len(), verdict.linked, verdict.chains), (0, all.len() - 1, 1));
    assert!(verdict.caused >= 6, "{verdict:?}");
    // Under a service level as well; what is of several keys, or fails, has none.
    assert_eq!(client.ask("RHEO SLA checkout").await, Reply::ok());
    assert_eq!(client.ask("GET a").await, Reply::Null);
    assert_eq!(receipt(&mut client).await.statement.act, Act::Read);
    for request in ["MGET a b", "DEL a b", "INCR n", "RHEO CAS a 1 2"] {
        client.ask(request).await;
        assert_eq!(client.ask("RHEO RECEIPT").await, Reply::Null, "{request}");
    }
    assert!(client.ask("RHEO RECEIPT MAYBE").await.is_error("ERR"));
    assert_eq!(client.ask("SELECT plain").await, Reply::ok());
    assert_eq!(client.ask("SET a 1").await, Reply::ok());
    let plain = receipt(&mut client).await.statement;
    assert_eq!((plain.keyspace.as_str(), plain.level, plain.previous), ("plain", Level::Eventual, None));
    assert_eq!(client.ask("RHEO RECEIPT OFF").await, Reply::ok());
    assert_eq!(client.ask("GET a").await, Reply::bulk("1"));
    assert_eq!(client.ask("RHEO RECEIPT").await, Reply::Null);
    node.shutdown().await;
}

#[tokio::test]
async fn what_is_done_at_another_node_has_a_receipt_without_a_staleness_bound() {
    let plan = Plan { owners: vec![vec![0], vec![1]], data_centers: vec!["a", "b"], change: |_: &mut NodeConfig| {}, ..Plan::three(2) };
    let cluster = plan.start(None).await;
    let mut client = cluster.client(0).await;
    assert_eq!(client.ask("RHEO RECEIPT ON").await, Reply::ok());
    let (mut all, mut bounded) = (Vec::new(), 0);
    for name in ["a", "b", "c", "d", "e", "f", "g", "h"] {
        client.ask_until(&format!("SET {name} 1"), Reply::ok()).await;
        all.push(receipt(&mut client).await);
        assert_eq!(client.ask(&format!("GET {name}")).await, Reply::bulk("1"));
        let one = receipt(&mut client).await;
        bounded += usize::from(one.statement.staleness_ms.is_some());
        all.push(one);
    }
    assert!(bounded < 8, "the bound is by the clock of the node that read");
    let verdict = compare(&all).unwrap();
    assert_eq!((verdict.contradictions.len(), verdict.caused), (0, 8));
    let until = tokio::time::Instant::now() + PATIENCE;
    loop {
        // The other data center has to be heard first.
        let mut bounded = [0; 2];
        for name in ["a", "b", "c", "d", "e", "f", "g", "h"] {
            client.ask(&format!("GET {name}")).await;
            bounded[usize::from(receipt(&mut client).await.statement.staleness_ms.is_some())] += 1;
        }
        if bounded[0] > 0 && bounded[1] > 0 {
            break;
        }
        assert!(tokio::time::Instant::now() < until, "{bounded:?}");
    }
    cluster.stop_all().await;
}

#[tokio::test]
async fn receipts_of_one_turn_are_signed_once() {
    let (node, mut client) = start_single(single(1)).await;
    assert_eq!(client.ask("RHEO RECEIPT ON").await, Reply::ok());
    // What waits for its receipt in one packet does not wait for the turn's end.
    for request in ["SET a 1", "RHEO RECEIPT", "GET a", "RHEO RECEIPT"] {
        client.send(&words(request)).await;
    }
    assert_eq!(client.receive().await.unwrap(), Reply::ok());
    let wrote = Receipt::from_line(client.receive().await.unwrap().text().as_bytes()).unwrap();
    assert_eq!(client.receive().await.unwrap(), Reply::bulk("1"));
    let read = Receipt::from_line(client.receive().await.unwrap().text().as_bytes()).unwrap();
    assert_eq!(read.statement.version, wrote.statement.version);
    assert_eq!(compare(&[wrote, read]).unwrap().linked, 1);
    node.shutdown().await;
}
