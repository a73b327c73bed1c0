//! Transactions that the client library takes to the partitions itself.

use crate::{client, grid, options};
use rheostat_client::{Client, Dial, Error, Options, Session, Strategy};
use rheostat_core::DcId;
use rheostat_server::config::NodeConfig;
use rheostat_server::node::Node;
use std::time::Duration;

/// Keys of partition 0 and of partition 1.
fn keys(node: &Node) -> [String; 2] {
    [0, 1].map(|partition| {
        let mut names = (0..).map(|number| format!("key {number}"));
        names.find(|name| node.router().partition_of(name.as_bytes()).0 == partition).unwrap()
    })
}

fn session(client: &Client, strategy: Strategy) -> Session {
    let mut session = client.session("default");
    session.set_dial(Dial { strategy, ..Dial::default() });
    session
}

async fn write(session: &mut Session, keys: &[String; 2], value: &str) {
    for key in keys {
        session.put(key.clone(), value.to_owned()).await.unwrap();
    }
}

async fn read(session: &mut Session, keys: &[String; 2]) -> Result<Vec<Option<String>>, Error> {
    let many = session.read_transaction(keys.clone()).await?;
    Ok(many.reads.into_iter().map(|read| read.value.map(|value| String::from_utf8(value.to_vec()).unwrap())).collect())
}

/// Of all partition servers of `nodes`, the sum of a number of theirs.
async fn gauge(nodes: &[Node], name: &str) -> f64 {
    let mut sum = 0.0;
    for node in nodes {
        let status = node.router().status().await;
        let gauges = status.replicas.iter().filter(|replica| replica.keyspace.0 == 0).flat_map(|replica| &replica.status.gauges);
        sum += gauges.filter(|(other, _)| *other == name).map(|(_, value)| value).sum::<f64>();
    }
    sum
}

async fn end(nodes: Vec<Node>) {
    for node in nodes {
        node.shutdown().await;
    }
}

#[tokio::test]
async fn every_strategy_shows_the_sessions_own_writes_and_is_counted_once() {
    let nodes = grid("strategies", &["a", "b"], |_| {}).await;
    let (client, keys) = (client(&nodes[0]).await, keys(&nodes[0]));
    for strategy in Strategy::ALL {
        let mut session = session(&client, strategy);
        let names = ["transactions_coordinated", "transactions_predicted", "predictions_refused", "transaction_rounds"];
        let mut before = Vec::new();
        for name in names {
            before.push(gauge(&nodes, name).await);
        }
        for round in 0..25 {
            let value = format!("{} {round}", strategy.name());
            write(&mut session, &keys, &value).await;
            assert_eq!(read(&mut session, &keys).await.unwrap(), [Some(value.clone()), Some(value)]);
        }
        let mut counted = Vec::new();
        for (name, before) in names.into_iter().zip(before) {
            counted.push(gauge(&nodes, name).await - before);
        }
        let [coordinated, predicted, refused, rounds] = counted[..] else { unreachable!("four were asked for") };
        assert_eq!(coordinated + predicted, 25.0, "{strategy:?}");
        assert_eq!(rounds, 2.0 * coordinated + predicted + refused, "{strategy:?}");
        match strategy {
            Strategy::Coordinated => assert_eq!(predicted, 0.0),
            Strategy::Predicted => assert_eq!(coordinated, 0.0),
            Strategy::Auto => assert!(predicted > 0.0),
        }
    }
    end(nodes).await;
}

/// What the nodes of a data center say to each other takes longer than anybody waits.
fn hardly_connected(config: &mut NodeConfig) {
    config.emulation.slow_ms = 60_000.0;
}

#[tokio::test]
async fn a_predicted_transaction_needs_no_word_between_the_nodes() {
    let nodes = grid("words", &["a"], hardly_connected).await;
    let client = Client::connect_with(Options { deadline: Duration::from_secs(4), ..options(&nodes[0]) }).await.unwrap();
    let keys = keys(&nodes[0]);
    let mut predicting = session(&client, Strategy::Predicted);
    write(&mut predicting, &keys, "1").await;
    assert_eq!(read(&mut predicting, &keys).await.unwrap(), [Some("1".to_owned()), Some("1".to_owned())]);
    // The same session, as others would go on with it.
    let mut coordinated = client.resume("default", predicting.token());
    coordinated.set_dial(Dial { strategy: Strategy::Coordinated, ..Dial::default() });
    let error = read(&mut coordinated, &keys).await.unwrap_err();
    assert!(matches!(error, Error::Timeout(_) | Error::Unreachable(_)), "{error}");
    assert_eq!(coordinated.token(), predicting.token());
    end(nodes).await;
}

#[tokio::test]
async fn a_prediction_that_is_refused_takes_a_second_round() {
    let nodes = grid("rounds", &["a", "b"], |_| {}).await;
    let (client, keys) = (client(&nodes[0]).await, keys(&nodes[0]));
    let mut session = session(&client, Strategy::Predicted);
    write(&mut session, &keys, "1").await;
    // Until the other data center has been heard, nothing is predicted of it.
    while session.get(keys[0].clone()).await.unwrap().staleness_ms.is_none_or(|behind_ms| behind_ms > 60_000) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    read(&mut session, &keys).await.unwrap();
    write(&mut session, &keys, "2").await;
    for node in &nodes {
        node.router().pause_link(DcId(0), DcId(1)).unwrap();
    }
    // What has arrived falls behind, and the session has not learned that it does.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let before = gauge(&nodes, "predictions_refused").await;
    assert_eq!(read(&mut session, &keys).await.unwrap(), [Some("2".to_owned()), Some("2".to_owned())]);
    assert_eq!(gauge(&nodes, "predictions_refused").await, before + 1.0);
    for node in &nodes {
        node.router().resume_link(DcId(0), DcId(1)).unwrap();
    }
    write(&mut session, &keys, "3").await;
    assert_eq!(read(&mut session, &keys).await.unwrap(), [Some("3".to_owned()), Some("3".to_owned())]);
    end(nodes).await;
}

/// Milliseconds by which `a1` is wrong; `a2` is wrong by a little more.
const WRONG_MS: i64 = 600_000;

#[tokio::test]
async fn the_clients_clock_says_nothing_of_the_servers() {
    let ahead: fn(&mut NodeConfig) = |config| config.emulation.clock_offset_ms = if config.node == "a1" { WRONG_MS } else { WRONG_MS + 40 };
    let behind: fn(&mut NodeConfig) = |config| config.emulation.clock_offset_ms = if config.node == "a1" { -WRONG_MS } else { -WRONG_MS - 40 };
    for change in [ahead, behind] {
        let nodes = grid("clocks", &["a", "b"], change).await;
        let (client, keys) = (client(&nodes[0]).await, keys(&nodes[0]));
        let mut session = session(&client, Strategy::Predicted);
        for round in 0..25 {
            write(&mut session, &keys, &round.to_string()).await;
            assert_eq!(read(&mut session, &keys).await.unwrap(), [Some(round.to_string()), Some(round.to_string())]);
        }
        assert_eq!(gauge(&nodes, "transactions_predicted").await, 25.0);
        let written = session.put(keys[0].clone(), "last").await.unwrap();
        let mut latest_ms = 0;
        for node in &nodes {
            latest_ms = latest_ms.max(node.router().status().await.physical_ms);
        }
        assert!(written.millis <= latest_ms, "no snapshot has raised a server's clock above the fastest: {} of {latest_ms}", written.millis);
        end(nodes).await;
    }
}

#[tokio::test]
async fn a_node_that_is_gone_is_an_error_and_the_session_remembers() {
    let mut nodes = grid("gone", &["a"], |_| {}).await;
    let client = Client::connect_with(Options { deadline: Duration::from_secs(2), ..options(&nodes[0]) }).await.unwrap();
    let keys = keys(&nodes[0]);
    let mut session = session(&client, Strategy::Predicted);
    write(&mut session, &keys, "1").await;
    read(&mut session, &keys).await.unwrap();
    nodes.remove(1).shutdown().await;
    let written = session.put(keys[0].clone(), "2").await.unwrap();
    let error = read(&mut session, &keys).await.unwrap_err();
    assert!(matches!(error, Error::Unreachable(_) | Error::Timeout(_)), "{error}");
    let read = client.resume("default", session.token()).get(keys[0].clone()).await.unwrap();
    assert_eq!(read.version, Some(written.clone()));
    assert!(session.put(keys[0].clone(), "3").await.unwrap() > written);
    end(nodes).await;
}

/// The address that others are told of `a2` is one where nobody is.
fn wrongly_announced(config: &mut NodeConfig) {
    let told = config.members.iter_mut().filter(|member| member.name == "a2");
    told.for_each(|member| member.grpc = Some("127.0.0.1:1".into()));
}

#[tokio::test]
async fn a_node_that_this_client_cannot_reach_is_asked_through_another() {
    let nodes = grid("through", &["a"], wrongly_announced).await;
    let (client, keys) = (client(&nodes[0]).await, keys(&nodes[0]));
    let mut session = session(&client, Strategy::Predicted);
    session.put(keys[0].clone(), "1").await.unwrap();
    for round in 0..5 {
        assert_eq!(read(&mut session, &keys).await.unwrap(), [Some("1".to_owned()), None], "{round}");
    }
    write(&mut session, &keys, "2").await;
    assert_eq!(read(&mut session, &keys).await.unwrap(), [Some("2".to_owned()), Some("2".to_owned())]);
    // On a busy machine one of them can need a second round, which counts.
    assert!(gauge(&nodes, "transactions_predicted").await >= 6.0);
    end(nodes).await;
}
