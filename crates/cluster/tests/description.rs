//! Cluster files: what they make, and what is wrong with them in words.

use rheostat_cluster::Description;
use rheostat_cluster::nodes::Planned;
use rheostat_cluster::ports::{DEFAULT_BASE_PORT, ports_from};
use rheostat_cluster::regions;
use rheostat_server::config::NodeConfig;
use std::path::Path;

const SMALL: &str = r#"
cluster = "shop"
partitions = 4

[[data_center]]
name = "us-east"
nodes = 3

[[data_center]]
name = "eu"

[[keyspace]]
name = "default"
protocol = "causal"
"#;

fn nodes(text: &str) -> Vec<Planned> {
    Description::from_toml(text).unwrap_or_else(|error| panic!("{error}\n{text}")).nodes(None).unwrap()
}

#[test]
fn nodes_get_names_ports_and_their_share_of_the_partitions() {
    let nodes = nodes(SMALL);
    let names: Vec<&str> = nodes.iter().map(|node| node.config.node.as_str()).collect();
    assert_eq!(names, ["us-east-1", "us-east-2", "us-east-3", "eu-1"]);
    let members = &nodes[0].config.members;
    assert_eq!(members.iter().map(|member| member.owned(4, 4).len()).collect::<Vec<_>>(), [2, 1, 1, 4]);
    assert_eq!(nodes[3].ports.resp, DEFAULT_BASE_PORT + 30);
    assert_eq!(nodes[3].config.members[3].grpc.as_deref(), Some("127.0.0.1:7431"));
    assert_eq!(nodes[3].address(nodes[3].ports.peer), "127.0.0.1:7433");
    assert!(nodes.iter().all(|node| node.config.data_dir.as_deref() == Some(Path::new("data"))));
    for node in &nodes {
        let text = toml::to_string(&node.config).unwrap();
        assert_eq!(NodeConfig::from_toml(&text).unwrap(), node.config, "a node reads what it is written");
    }
}

#[test]
fn users_and_service_levels_reach_every_node() {
    let digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    let more = format!(
        "[security]\npassword = \"secret\"\n[[user]]\nname = \"app\"\npassword_sha256 = \"{digest}\"\nrole = \"write\"\nprefixes = [\"app:\"]\n\
         [sla.checkout]\nentries = \"strong 200ms; causal\"\n[cassandra]\ncontact_points = [\"10.0.0.1:9042\"]\n[[keyspace]]"
    );
    let planned = nodes(&SMALL.replacen("[[keyspace]]", &more, 1));
    assert_eq!(planned.len(), 4);
    for node in planned {
        assert_eq!(node.config.users.iter().map(|user| (user.name.as_str(), user.prefixes.len())).collect::<Vec<_>>(), [("app", 1)]);
        assert_eq!(node.config.service_levels["checkout"].entries, "strong 200ms; causal");
        assert_eq!(node.config.cassandra.unwrap().contact_points, ["10.0.0.1:9042"]);
    }
}

#[test]
fn what_is_emulated_reaches_the_nodes() {
    let text = SMALL.replace("nodes = 3", "nodes = 4")
        + r#"
[[data_center]]
name = "mars"
[emulation]
known_regions = true
round_trip_ms = 500.0
jitter_ms = 1.0
clock = [{ node = "us-east-2", offset_ms = -20 }]
slow = [{ data_center = "us-east", partition = 2, ms = 100.0 }]
link = [{ between = ["eu", "mars"], round_trip_ms = 700.0, jitter_ms = 9.0 }]
delay = [{ from = "mars", to = "us-east", one_way_ms = 3.0 }]
"#;
    let nodes = nodes(&text);
    let delays = &nodes[0].config.emulation.delays;
    let one_way = |from: &str, to: &str| {
        let delay = delays.iter().find(|delay| delay.from == from && delay.to == to).unwrap();
        (delay.one_way_ms, delay.jitter_ms)
    };
    assert_eq!(delays.len(), 6);
    assert_eq!(one_way("us-east", "eu"), (48.0, 1.0), "known regions");
    assert_eq!(one_way("us-east", "mars"), (250.0, 1.0), "the round trip of all others");
    assert_eq!(one_way("mars", "us-east"), (3.0, 0.0), "a direction of its own");
    assert_eq!(one_way("mars", "eu"), (350.0, 9.0), "a link of its own");
    let offsets: Vec<i64> = nodes.iter().map(|node| node.config.emulation.clock_offset_ms).collect();
    assert_eq!(offsets, [0, -20, 0, 0, 0, 0]);
    let slow: Vec<f64> = nodes.iter().map(|node| node.config.emulation.slow_ms).collect();
    assert_eq!(slow, [0.0, 0.0, 100.0, 0.0, 0.0, 0.0]);
}

#[test]
fn hosts_by_address_and_by_name() {
    let text = r#"
cluster = "shop"
partitions = 2
security = { password = "a", cluster_password = "b" }
[[data_center]]
name = "a"
host = "10.0.0.1"
[[data_center]]
name = "b"
node = [
    { host = "db.example", partitions = [1], port = 9000 },
    { name = "last", host = "fd00::2", partitions = [0] },
]
[[keyspace]]
name = "default"
protocol = "causal"
"#;
    let nodes = nodes(text);
    let resp: Vec<String> = nodes.iter().map(|node| node.config.listen.resp.unwrap().to_string()).collect();
    assert_eq!(resp, ["10.0.0.1:7400", "0.0.0.0:9000", "[fd00::2]:7420"]);
    let told: Vec<&str> = nodes[0].config.members.iter().filter_map(|member| member.resp.as_deref()).collect();
    assert_eq!(told, ["10.0.0.1:7400", "db.example:9000", "[fd00::2]:7420"]);
    assert_eq!(nodes[2].config.node, "last");
}

/// The error of the small description with `from` replaced by `to`.
#[track_caller]
fn error(from: &str, to: &str) -> String {
    assert!(SMALL.contains(from), "{from}");
    let text = SMALL.replacen(from, to, 1);
    Description::from_toml(&text).map(drop).expect_err(to).to_string()
}

#[test]
fn an_error_names_line_key_and_reason() {
    for (from, to, parts) in [
        ("cluster = \"shop\"", "cluster = \"../shop\"", &["line 2", "cluster", "is not a name"][..]),
        ("partitions = 4", "partitions = 0", &["line 3", "partitions", "not from 1 to 4096"]),
        ("partitions = 4", "colour = 4", &["line 3", "unknown field `colour`"]),
        ("cluster = \"shop\"", "base_port = 65510\ncluster = \"shop\"", &["line 2", "base_port", "beyond 65535"]),
        ("partitions = 4", "partitions = 4\nhost.nowhere = {}", &["line 4", "host.nowhere", "no node has this host"]),
        ("nodes = 3", "nodes = 0", &["line 7", "data_center[0].nodes", "from 1 to 1024"]),
        ("nodes = 3", "nodes = 5", &["member[4].partitions", "owns none"]),
        ("nodes = 3", "nodes = 3\nnode = [{ name = \"x\" }]", &["line 7", "data_center[0].nodes", "listed as well"]),
        ("nodes = 3", "node = [{ partitions = [0] }, {}]", &["line 7", "1 of 2 nodes"]),
        ("nodes = 3", "node = [{ partitions = [0, 1, 2] }]", &["partition 3 of us-east is owned by no node"]),
        ("nodes = 3", "node = [{ port = 65535 }]", &["line 7", "data_center[0].node[0].port", "65535 is not from 1 to 65532"]),
        ("nodes = 3", "node = [{ port = 7410 }]", &["both have port 7410"]),
        ("nodes = 3", "host = \"-oProxyCommand=x\"", &["line 7", "data_center[0].host", "is not a host"]),
        ("nodes = 3", "host = \"10.0.0.1\"", &["listen.resp", "security.password"]),
        ("name = \"eu\"", "name = \"us-east\"", &["line 10", "data_center[1].name", "us-east is there twice"]),
        ("protocol = \"causal\"", "protocol = \"magic\"", &["line 14", "keyspace[0].protocol", "magic"]),
        ("protocol = \"causal\"", "protocol = \"quorum\"\noptions = { reads = 9 }", &["line 15", "keyspace[0].options", "reads = 9"]),
        (
            "[[keyspace]]",
            "[[user]]\nname = \"app\"\npassword_sha256 = \"00\"\nrole = \"read\"\n[[keyspace]]",
            &["line 12", "user", "security.password"],
        ),
        ("[[keyspace]]", "[[user]]\nname = \"app\"\nrole = \"own\"\n[[keyspace]]", &["line 14", "own"]),
        ("[[keyspace]]", "[sla.checkout]\nentries = \"at once\"\n[[keyspace]]", &["line 13", "sla.checkout"]),
        ("[[keyspace]]", "[cassandra]\ncontact_points = []\n[[keyspace]]", &["line 13", "cassandra.contact_points", "there is none"]),
        ("[[keyspace]]", "[emulation]\nround_trip_ms = -1.0\n[[keyspace]]", &["line 13", "emulation.round_trip_ms", "-1 is not from 0"]),
        ("[[keyspace]]", "[emulation]\nknown_regions = true\n[[data_center]]\nname = \"mars\"\n[[keyspace]]", &["line 13", "us-east:mars"]),
        ("[[keyspace]]", "[[emulation.link]]\nbetween = [\"eu\", \"mars\"]\nround_trip_ms = 1.0\n[[keyspace]]", &["line 13", "no data center mars"]),
        ("[[keyspace]]", "[[emulation.link]]\nbetween = [\"eu\"]\nround_trip_ms = 1.0\n[[keyspace]]", &["line 13", "length"]),
        ("[[keyspace]]", "[[emulation.clock]]\nnode = \"x\"\noffset_ms = 1\n[[keyspace]]", &["line 13", "there is no node x"]),
        ("[[keyspace]]", "[[emulation.slow]]\ndata_center = \"eu\"\npartition = 1\nms = 1.0\n[[keyspace]]", &["line 14", "eu-1 owns 4 partitions"]),
        ("[[keyspace]]", "[[emulation.slow]]\ndata_center = \"eu\"\npartition = 4\nms = 1.0\n[[keyspace]]", &["line 14", "4 is not below"]),
    ] {
        let error = error(from, to);
        for part in parts {
            assert!(error.contains(part), "{to:?} does not say {part:?}: {error}");
        }
    }
}

#[test]
fn a_file_is_named_and_its_folder_is_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shop.toml");
    let missing = Description::from_file(&path).unwrap_err().to_string();
    assert!(missing.contains("shop.toml: cannot be read"), "{missing}");
    std::fs::write(&path, SMALL).unwrap();
    assert_eq!(Description::from_file(&path).unwrap().folder, Some(folder.path().join("shop.cluster")));
    std::fs::write(&path, format!("folder = \"run\"\n{SMALL}")).unwrap();
    assert_eq!(Description::from_file(&path).unwrap().folder, Some(folder.path().join("run")));
    std::fs::write(&path, SMALL.replace("partitions = 4", "partitions = 5000")).unwrap();
    let wrong = Description::from_file(&path).unwrap_err().to_string();
    assert!(wrong.contains("shop.toml, line 3: partitions: 5000"), "{wrong}");
}

/// Writes what a start of the nodes of the cluster file at `path` writes to `folder`.
fn started(path: &Path, folder: &Path) {
    for node in Description::from_file(path).unwrap().nodes(None).unwrap() {
        let home = folder.join(&node.config.node);
        std::fs::create_dir_all(&home).unwrap();
        std::fs::write(home.join("node.toml"), toml::to_string(&node.config).unwrap()).unwrap();
    }
}

#[test]
fn files_whose_names_differ_behind_a_dot_have_a_folder_each() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let of = |name: &str| Description::from_file(&at(name)).unwrap().folder.unwrap();
    let elsewhere = format!("base_port = 8000\n{SMALL}");
    std::fs::write(at("shop.prod"), SMALL).unwrap();
    std::fs::write(at("shop.test"), &elsewhere).unwrap();
    assert_eq!((of("shop.prod"), of("shop.test")), (at("shop.prod.cluster"), at("shop.test.cluster")));
    for (file, expected) in [("shop.eu.toml", "shop.eu.cluster"), ("plain", "plain.cluster")] {
        std::fs::write(at(file), SMALL).unwrap();
        assert_eq!(of(file), at(expected));
    }
    // One that was there before is that of the file whose nodes are in it.
    started(&at("shop.prod"), &at("shop.cluster"));
    assert_eq!((of("shop.prod"), of("shop.test")), (at("shop.cluster"), at("shop.test.cluster")));
    // With other addresses it stays so, where no other file can mean it.
    std::fs::write(at("shop.prod"), format!("base_port = 9000\n{SMALL}")).unwrap();
    assert_eq!(of("shop.prod"), at("shop.prod.cluster"), "whose it is cannot be told");
    std::fs::write(at("shop.test"), elsewhere.replace("\"shop\"", "\"try\"")).unwrap();
    assert_eq!((of("shop.prod"), of("shop.test")), (at("shop.cluster"), at("shop.test.cluster")));
    // Who has begun in one of its own stays there.
    started(&at("shop.prod"), &at("shop.prod.cluster"));
    assert_eq!(of("shop.prod"), at("shop.prod.cluster"));
}

#[test]
fn too_many_data_centers_are_refused_before_anything_is_made_of_them() {
    let more: String = (0..63).map(|number| format!("[[data_center]]\nname = \"dc{number}\"\n")).collect();
    let error = error("[[keyspace]]", &format!("{more}[[keyspace]]"));
    assert!(error.contains("data_center: there are more than 64"), "{error}");
}

#[test]
fn every_size_of_cluster_is_valid() {
    for count in 1..=8 {
        let mut description = Description::new("demo", &regions::names(count));
        description.keyspaces = vec![rheostat_cluster::nodes::keyspace("default", "causal").unwrap()];
        description.emulation.round_trip_ms = Some(50.0);
        description.validate().unwrap();
        let nodes = description.nodes(Some(&ports_from(DEFAULT_BASE_PORT, count).unwrap())).unwrap();
        assert_eq!(nodes.len(), count);
        assert!(nodes.iter().all(|node| node.config.emulation.delays.len() == count * (count - 1)));
    }
}
