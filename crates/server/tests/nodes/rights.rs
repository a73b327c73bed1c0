//! What a user is told of keys that he has no right to.

use crate::client::Reply;
use crate::cluster::{Plan, keyspace};
use rheostat_core::DcId;
use rheostat_server::NodeConfig;
use rheostat_server::config::{Role, Secret, UserConfig};
use rheostat_server::users::password_sha256;

fn with_a_shop(config: &mut NodeConfig) {
    config.keyspaces = ["cops", "hybrid", "causal"].map(|name| keyspace(name, name)).to_vec();
    // Until the lists are looked at, nothing leaves them.
    config.keyspaces[0].options = toml::from_str("collect_ms = 3600000").unwrap();
    config.security.password = Some(Secret("all".into()));
    let password_sha256 = Secret(password_sha256(b"own"));
    config.users = vec![UserConfig { name: "shop".into(), password_sha256, role: Role::Read, keyspaces: Vec::new(), prefixes: vec!["shop:".into()] }];
}

/// What is said of the newest version: on what it depends, and for what it waits.
fn dependencies(explained: &Reply) -> (String, Option<String>) {
    let fields = explained.items()[0].items();
    assert_eq!((fields[8].text(), fields[10].text()), ("dependencies".into(), "hidden".into()), "{explained:?}");
    (fields[9].text(), Some(&fields[11]).filter(|hidden| **hidden != Reply::Null).map(Reply::text))
}

#[tokio::test]
async fn an_explanation_names_keys_only_to_who_may_see_all_of_them() {
    let cluster = Plan { data_centers: vec!["a", "b"], change: with_a_shop, ..Plan::three(1) }.start(None).await;
    // What the other data center does not have is listed.
    cluster.node(0).router().pause_link(DcId(0), DcId(1)).unwrap();
    let (mut all, mut shop) = (cluster.client(0).await, cluster.client(0).await);
    assert_eq!(all.ask("AUTH all").await, Reply::ok());
    assert_eq!(shop.ask("AUTH shop own").await, Reply::ok());
    for (keyspace, names_keys) in [("cops", true), ("hybrid", true), ("causal", false)] {
        for client in [&mut all, &mut shop] {
            assert_eq!(client.ask(&format!("SELECT {keyspace}")).await, Reply::ok());
        }
        all.ask_until("SET secret:x 1", Reply::ok()).await;
        all.ask_until("SET shop:1 2", Reply::ok()).await;
        let whole = dependencies(&all.ask("RHEO EXPLAIN shop:1").await);
        let own = dependencies(&shop.ask("RHEO EXPLAIN shop:1").await);
        assert_eq!(whole.0.contains("secret:x"), names_keys, "{keyspace}: {whole:?}");
        assert!(own.0.starts_with("not shown") && own.1.is_none_or(|hidden| !hidden.contains("secret:x")), "{keyspace}: {}", own.0);
    }
    cluster.stop_all().await;
}
