//! Counters through the client library.

use crate::{alone, client, grpc_address, keyspace, pair_in};
use rheostat_client::{Direction, Error, NewCounter, Scope, Standing, v1};
use rheostat_proto::rights::details_in;
use rheostat_server::node::Node;
use tonic::Code;
use v1::counters_client::CountersClient;

fn stock(initial: i64) -> NewCounter {
    NewCounter { lower: Some(0), initial, ..NewCounter::default() }
}

#[tokio::test]
async fn counters_are_made_updated_and_looked_at() {
    let folder = tempfile::tempdir().unwrap();
    let nodes = pair_in("counters", Some(folder.path())).await;
    let (here, there) = (client(&nodes[0]).await, client(&nodes[1]).await);
    let mut session = here.session("default");
    let view = session.counter("{t}stock").create(NewCounter { placement: vec![1, 3], ..stock(40) }).await.unwrap();
    assert_eq!((view.value, view.lower, view.upper), (40, Some(0), None));
    let rights: Vec<_> = view.rights.iter().map(|rights| (rights.data_center.as_str(), rights.down, rights.up, &rights.standing)).collect();
    assert_eq!(rights, [("a", Some(10), None, &Standing::Member), ("b", Some(30), None, &Standing::Member)]);
    assert!(matches!(session.counter("{t}stock").create(stock(1)).await, Err(Error::Refused(_))));
    assert!(matches!(session.counter("{t}none").look().await, Err(Error::Refused(_))));

    assert_eq!(session.counter("{t}stock").add(-4).await, Ok(36));
    let Err(Error::NoRights(why)) = session.counter("{t}stock").add(-7).await else { panic!("more than is here") };
    assert_eq!((&*why.key, why.value, why.direction), (&b"{t}stock"[..], 36, Direction::Down));
    assert_eq!((why.needed, why.here, why.elsewhere), (7, 6, 30));
    assert_eq!(session.counter("{t}stock").global().add(-20).await, Ok(16));
    let Err(Error::NoRights(why)) = session.counter("{t}stock").global().add(-17).await else { panic!("more than is anywhere") };
    assert_eq!((why.needed, why.here + why.elsewhere), (17, 16));

    // The session has written it, so it sees it in the other data center too.
    let mut travelled = there.resume("default", session.token());
    assert_eq!(travelled.counter("{t}stock").look().await.unwrap().value, 16);

    assert_eq!(session.add_all([("{t}stock", 1), ("{t}sold", 5)], Scope::Local).await.unwrap().values, [17, 5]);
    let all_or_none = session.add_all([("{t}sold", 1), ("{t}stock", -18)], Scope::Global).await;
    assert!(matches!(all_or_none, Err(Error::NoRights(_))), "{all_or_none:?}");
    assert_eq!(session.counter("{t}sold").look().await.unwrap().value, 5);
    assert_eq!(session.counter("{t}sold").transfer("{t}stock", 2).await, Ok((3, 19)));
    assert!(matches!(session.counter("{t}sold").transfer("{t}stock", 0).await, Err(Error::Refused(_))));
    // Of one that nobody has asked for rights: what was asked for comes when it comes.
    session.counter("{t}moved").create(NewCounter { placement: vec![1, 3], ..stock(40) }).await.unwrap();
    let view = session.counter("{t}moved").move_rights("b", Direction::Down, 1).await.unwrap();
    assert_eq!(view.rights[0].down, Some(9));
    assert!(matches!(session.counter("{t}stock").move_rights("mars", Direction::Down, 1).await, Err(Error::Refused(_))));
    for node in nodes {
        node.shutdown().await;
    }
}

#[tokio::test]
async fn an_update_that_is_sent_again_is_made_once_and_what_it_lacks_is_in_the_details() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = alone("again");
    config.data_dir = Some(folder.path().into());
    config.keyspaces.extend([keyspace("groups", "session"), keyspace("world", "strong")]);
    let node = Node::start(config).await.unwrap();
    for keyspace in ["default", "groups", "world"] {
        sent_again(&node, keyspace).await;
    }
    node.shutdown().await;
}

async fn sent_again(node: &Node, keyspace: &str) {
    client(node).await.session(keyspace).counter("k").create(stock(5)).await.unwrap();
    let context = v1::Context { keyspace: keyspace.into(), ..Default::default() };
    let mut raw = CountersClient::connect(format!("http://{}", grpc_address(node))).await.unwrap();
    let add = |delta: i64, number: u64| v1::AddRequest {
        context: Some(context.clone()),
        additions: vec![v1::Addition { key: "k".into(), delta }],
        name: Some(v1::UpdateName { client: 7, number }),
        ..Default::default()
    };
    for (delta, number, left) in [(-1, 1, 4), (-1, 1, 4), (-2, 2, 2), (-2, 2, 2)] {
        assert_eq!(raw.add(add(delta, number)).await.unwrap().into_inner().values, [left]);
    }
    let status = raw.add(add(-3, 3)).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition);
    let why = details_in(status.details()).unwrap();
    assert_eq!((why.needed, why.here, why.elsewhere), (3, 2, 0));

    let code = async |request: v1::AddRequest| raw.clone().add(request).await.unwrap_err().code();
    assert_eq!(code(v1::AddRequest::default()).await, Code::InvalidArgument);
    let twice = [add(1, 4).additions, add(1, 4).additions].concat();
    assert_eq!(code(v1::AddRequest { additions: twice, ..Default::default() }).await, Code::InvalidArgument);
    assert_eq!(code(v1::AddRequest { scope: 9, ..add(1, 4) }).await, Code::InvalidArgument);
    if keyspace == "world" {
        return;
    }
    let move_none = v1::MoveRequest { context: Some(context.clone()), key: "k".into(), data_center: "a".into(), direction: 1, ..Default::default() };
    assert_eq!(raw.r#move(move_none.clone()).await.unwrap_err().code(), Code::InvalidArgument);
    let nowhere = v1::MoveRequest { amount: 1, data_center: "mars".into(), ..move_none };
    assert_eq!(raw.r#move(nowhere).await.unwrap_err().code(), Code::NotFound);
}

/// The client's counters, whose updates have names, in keyspaces whose servers agree.
#[tokio::test]
async fn counters_of_groups_are_made_updated_and_looked_at() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = alone("groups");
    config.data_dir = Some(folder.path().into());
    config.keyspaces.extend([keyspace("groups", "session"), keyspace("world", "strong")]);
    let node = Node::start(config).await.unwrap();
    let client = client(&node).await;
    for keyspace in ["groups", "world"] {
        let mut session = client.session(keyspace);
        let view = session.counter("{t}stock").create(stock(10)).await.unwrap();
        assert_eq!((view.value, view.lower, view.rights[0].down), (10, Some(0), Some(10)), "{keyspace}");
        assert_eq!(session.counter("{t}stock").add(-4).await, Ok(6));
        assert_eq!(session.add_all([("{t}stock", -1), ("{t}sold", 5)], Scope::Local).await.unwrap().values, [5, 5]);
        let Err(Error::NoRights(why)) = session.counter("{t}stock").global().add(-6).await else { panic!("more than there is") };
        assert_eq!((why.value, why.needed, why.here), (5, 6, 5));
        assert_eq!(session.counter("{t}sold").transfer("{t}stock", 2).await, Ok((3, 7)));
        assert_eq!(session.counter("{t}stock").look().await.unwrap().value, 7);
    }
    node.shutdown().await;
}
