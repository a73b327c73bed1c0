//! Receipts over gRPC, through the client library; and a store that has lost what it had promised to keep.

use crate::{alone, client, keyspace};
use rheostat_client::{Session, v1};
use rheostat_receipts::verify::{Broken, compare};
use rheostat_receipts::{Act, Receipt, key_of};
use rheostat_server::config::{DurabilityConfig, KeyspaceConfig};
use rheostat_server::node::Node;
use tonic::Code;

fn take(session: &mut Session) -> Receipt {
    let line = session.take_receipt().expect("the operation has a receipt");
    Receipt::from_line(line.as_bytes()).unwrap()
}

#[tokio::test]
async fn a_session_s_receipts_hold_together_and_are_there_only_when_they_are_asked_for() {
    let node = Node::start(alone("receipts")).await.unwrap();
    let client = client(&node).await;
    let mut session = client.session("default");
    session.put("k", "0").await.unwrap();
    assert_eq!(session.take_receipt(), None);
    session.set_receipts(true);
    let mut all = Vec::new();
    for round in 1..5 {
        session.put("k", round.to_string()).await.unwrap();
        all.push(take(&mut session));
        session.get("k").await.unwrap();
        all.push(take(&mut session));
    }
    session.delete("k").await.unwrap();
    all.push(take(&mut session));
    session.delete("k").await.unwrap();
    assert_eq!(session.take_receipt(), None, "nothing was deleted");
    session.get("k").await.unwrap();
    all.push(take(&mut session));
    let verdict = compare(&all).unwrap();
    // Before the last one the session went on without a receipt, and may have learned something.
    let last_linked = all[9].statement.before == all[8].statement.after;
    assert_eq!((verdict.contradictions.len(), verdict.linked), (0, all.len() - 2 + usize::from(last_linked)));
    assert_eq!(verdict.chains, 2 - usize::from(last_linked));
    let status = client.admin().status(client.request(v1::StatusRequest {})).await.unwrap().into_inner();
    assert!(all.iter().all(|receipt| key_of(&receipt.key()) == status.receipt_key));
    // Many at once.
    let asking: Vec<_> = (0..64)
        .map(|number| {
            let mut session = client.session("default");
            session.set_receipts(true);
            tokio::spawn(async move {
                session.put(format!("k{number}"), "v").await.unwrap();
                take(&mut session)
            })
        })
        .collect();
    let mut many = Vec::new();
    for one in asking {
        many.push(one.await.unwrap());
    }
    assert!(many.iter().all(|receipt| receipt.statement.act == Act::Write));
    assert_eq!(compare(&many).unwrap().chains, 64);
    session.set_previous_receipt("not a digest");
    let refused = session.get("k").await.unwrap_err();
    assert!(refused.to_string().contains("no digest of a receipt"), "{refused} {:?}", Code::InvalidArgument);
    node.shutdown().await;
}

#[tokio::test]
async fn a_store_that_has_lost_what_it_acknowledged_is_found_out() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = alone("receipts");
    config.data_dir = Some(folder.path().to_owned());
    config.keyspaces = vec![KeyspaceConfig { durability: DurabilityConfig::Memory, ..keyspace("default", "causal") }];
    let node = Node::start(config.clone()).await.unwrap();
    let mut session = client(&node).await.session("default");
    session.set_receipts(true);
    session.put("k", "kept?").await.unwrap();
    let wrote = take(&mut session);
    node.shutdown().await;
    let node = Node::start(config).await.unwrap();
    let mut session = session.at(&client(&node).await);
    assert_eq!(session.get("k").await.unwrap().value, None, "memory remembers nothing over a restart");
    let read = take(&mut session);
    assert_eq!(read.key(), wrote.key(), "the key is kept");
    let found = compare(&[wrote, read]).unwrap().contradictions;
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].broken, found[0].known, found[0].later, found[0].unless_deleted), (Broken::ReadYourWrites, 0, 1, true));
    node.shutdown().await;
}
