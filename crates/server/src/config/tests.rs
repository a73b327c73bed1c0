use super::{NodeConfig, Secret, TlsFiles};

const SMALL: &str = r#"
cluster = "demo"
node = "a"
data_center = "east"

[listen]
resp = "127.0.0.1:0"

[[keyspace]]
name = "default"
protocol = "PROTOCOL"
"#;

fn small_of(protocol: &str) -> String {
    SMALL.replace("PROTOCOL", protocol)
}

fn small() -> String {
    small_of(rheostat_protocols::registry::names()[0])
}

/// The error of the small configuration with `from` replaced by `to`.
fn error(from: &str, to: &str) -> (Option<usize>, String) {
    let text = small();
    assert!(text.contains(from), "{from}");
    let error = NodeConfig::from_toml(&text.replace(from, to)).expect_err(to);
    (error.line(), error.to_string())
}

#[test]
fn a_small_configuration_is_enough() {
    let config = NodeConfig::from_toml(&small()).unwrap();
    assert_eq!(config.data_center_names(), ["east"]);
    assert_eq!(config.all_members().len(), 1);
    assert_eq!(config.partitions, 1);
    let again = NodeConfig::from_toml(&toml::to_string(&config).unwrap()).unwrap();
    assert_eq!(again, config);
}

#[test]
fn an_error_names_the_line_and_the_reason() {
    for (from, to, line, reason) in [
        ("node = \"a\"", "node = 7", 3, "string"),
        ("node = \"a\"", "node = \"a\"\ncolour = \"red\"", 4, "colour"),
        ("node = \"a\"", "node = \"../a\"", 3, "not a name"),
        ("data_center = \"east\"", "data_center = \"east\"\ndata_centers = [\"west\"]", 4, "not among data_centers"),
        ("data_center = \"east\"", "data_center = \"east\"\npartitions = 0", 5, "1 to 4096"),
        ("127.0.0.1:0", "127.0.0.1", 7, "socket address"),
        ("127.0.0.1:0", "0.0.0.0:0", 7, "security.password"),
        ("[listen]", "[listen", 6, ""),
        ("name = \"default\"", "name = \"7\"", 10, "number"),
        ("name = \"default\"", "name = \"default\"\ndurability = \"never\"", 11, "never"),
        ("[[keyspace]]\n", "[[keyspace]]\noptions = { colour = 1 }\n", 10, "colour"),
        ("[listen]\n", "[limits]\nmax_frame_bytes = 1048576\n[listen]\n", 7, "max_request_bytes"),
        ("[listen]\n", "[limits]\nmax_connections = 0\n[listen]\n", 7, "not from 1"),
        ("[listen]\n", "[emulation]\nslow_ms = -1\n[listen]\n", 7, "not from 0 to 60000"),
        ("[listen]\n", "[[emulation.delay]]\nfrom = \"east\"\nto = \"mars\"\none_way_ms = 1\n[listen]\n", 8, "mars"),
        ("[listen]\n", "[[emulation.delay]]\nfrom = \"east\"\nto = \"east\"\none_way_ms = nan\n[listen]\n", 9, "0 to 60000"),
    ] {
        let (found, text) = error(from, to);
        assert!(text.contains(reason), "{to}: {text}");
        let close = found.is_some_and(|found| found.abs_diff(line) <= 1);
        assert!(close, "{to}: line {found:?}, not {line}: {text}");
    }
}

#[test]
fn no_keyspace_is_called_as_a_file_beside_its_folder() {
    for name in [crate::folder::FILE, "reserve", "reserve.probe"] {
        let in_memory = small().replace("name = \"default\"", &format!("name = \"{name}\""));
        assert!(NodeConfig::from_toml(&in_memory).is_ok(), "nothing is kept anywhere");
        let error = NodeConfig::from_toml(&format!("data_dir = \"data\"\n{in_memory}")).unwrap_err();
        assert!(error.key() == Some("keyspace[0].name") && error.to_string().contains("data_dir"), "{error}");
    }
}

#[test]
fn options_are_checked_against_the_size_of_the_cluster() {
    let three =
        "data_center = \"east\"\ndata_centers = [\"east\", \"west\", \"eu\"]\nreserved_data_centers = [\"west\", \"eu\"]\ndata_dir = \"data\"\n";
    let text = |options: &str| {
        let small = small_of("quorum").replace("data_center = \"east\"\n", three);
        small.replace("protocol =", &format!("options = {{ {options} }}\nprotocol ="))
    };
    assert!(NodeConfig::from_toml(&text("reads = 3")).is_ok());
    let error = NodeConfig::from_toml(&text("reads = 9")).unwrap_err();
    assert_eq!((error.key(), error.line()), (Some("keyspace[0].options"), Some(14)), "{error}");
    assert!(error.to_string().contains("of keyspace default: reads = 9: a partition has 3 replicas"), "{error}");
    let error = NodeConfig::from_toml(&text("round_ms = 0")).unwrap_err().to_string();
    assert!(error.contains("round_ms = 0: must be 1 to 60000"), "{error}");
}

#[test]
fn a_wrong_protocol_is_told_with_those_there_are() {
    let name = rheostat_protocols::registry::names()[0];
    let (line, text) = error(&format!("protocol = \"{name}\""), "protocol = \"casual\"");
    assert_eq!(line, Some(11));
    assert!(text.contains("casual") && text.contains(name), "{text}");
    let (_, text) = error("[[keyspace]]", "[[member]]");
    assert!(text.contains("protocol"), "{text}");
}

#[test]
fn replicas_need_a_protocol_that_has_several() {
    let in_memory = |protocol: &str, number: u8| small_of(protocol).replace("protocol =", &format!("replicas = {number}\nprotocol ="));
    let replicas = |protocol: &str, number: u8| format!("data_dir = \"data\"\n{}", in_memory(protocol, number));
    for protocol in rheostat_protocols::registry::list() {
        let able = protocol.can.most_replicas >= 3;
        assert_eq!(NodeConfig::from_toml(&small_of(protocol.name)).unwrap().keyspaces[0].replicas, 1);
        assert!(NodeConfig::from_toml(&replicas(protocol.name, 1)).is_ok());
        let three = NodeConfig::from_toml(&replicas(protocol.name, 3));
        assert_eq!(three.is_ok(), able, "{}: {three:?}", protocol.name);
        for number in [0, 10] {
            let error = NodeConfig::from_toml(&replicas(protocol.name, number)).expect_err("out of range");
            assert!(error.to_string().contains("1 to 9") && error.key() == Some("keyspace[0].replicas"), "{error}");
        }
    }
    let error = NodeConfig::from_toml(&replicas("staged", 2)).unwrap_err().to_string();
    assert!(error.contains("staged") && error.contains("one server of a partition"), "{error}");
    // What a majority has must outlive a restart.
    let error = NodeConfig::from_toml(&in_memory("causal", 3)).unwrap_err();
    assert!(error.key() == Some("keyspace[0].replicas") && error.to_string().contains("data_dir"), "{error}");
    let volatile = replicas("causal", 3).replace("protocol =", "durability = \"memory\"\nprotocol =");
    let error = NodeConfig::from_toml(&volatile).unwrap_err();
    assert!(error.key() == Some("keyspace[0].replicas") && error.to_string().contains("memory"), "{error}");
    assert!(NodeConfig::from_toml(&in_memory("session", 3)).is_ok(), "it says what it does, and warns");
    for ms in [10, 60_001] {
        let error = NodeConfig::from_toml(&replicas("causal", 3).replace("protocol =", &format!("failover_ms = {ms}\nprotocol ="))).unwrap_err();
        assert!(error.key() == Some("keyspace[0].failover_ms"), "{error}");
    }
}

#[test]
fn places_for_data_centers_that_come_later_need_nobody_there() {
    let text = |top: &str, rest: &str| format!("data_dir = \"data\"\n{top}\n{}\n{rest}", small_of("causal"));
    let listed = "data_centers = [\"east\", \"west\", \"eu\"]\n";
    let both = format!("{listed}reserved_data_centers = [\"west\", \"eu\"]");
    let config = NodeConfig::from_toml(&text(&both, "")).unwrap();
    assert_eq!(config.reserved_data_centers, ["west", "eu"]);
    // Two that can move: the group needs no node there either.
    NodeConfig::from_toml(&text(&both, "replicas = 3")).unwrap();
    let refused = |top: &str, rest: &str, key: &str, why: &str| {
        let error = NodeConfig::from_toml(&text(top, rest)).expect_err(top);
        assert!(error.key() == Some(key) && error.to_string().contains(why), "{top}: {error}");
    };
    refused(listed, "", "member", "owned by no node");
    refused(&format!("{listed}reserved_data_centers = [\"eu\"]"), "", "member", "partition 0 of west is owned by no node");
    refused(&format!("{listed}reserved_data_centers = [\"west\", \"eu\", \"mars\"]"), "", "reserved_data_centers[2]", "mars is not among");
    refused(&format!("{listed}reserved_data_centers = [\"west\", \"eu\", \"eu\"]"), "", "reserved_data_centers[2]", "there twice");
    refused(&format!("{listed}reserved_data_centers = [\"west\", \"eu\", \"east\"]"), "", "generation", "generation = 1");
    let east = format!("generation = 1\n{listed}reserved_data_centers = [\"west\", \"eu\", \"east\"]");
    refused(&east, "", "reserved_data_centers", "all data centers");
    refused(&both, "durability = \"memory\"", "reserved_data_centers", "keyspace default keeps nothing on disk");
    NodeConfig::from_toml(&text(&both, "").replace("causal", "strong")).unwrap();
    for protocol in ["session", "staged"] {
        let error = NodeConfig::from_toml(&text(&both, "").replace("causal", protocol)).unwrap_err();
        assert!(error.key() == Some("reserved_data_centers") && error.to_string().contains(protocol), "{error}");
    }
    let error = NodeConfig::from_toml(&text(&both, "").replace("data_dir = \"data\"", "")).unwrap_err();
    assert!(error.key() == Some("reserved_data_centers") && error.to_string().contains("data_dir"), "{error}");
}

#[test]
fn every_partition_has_one_owner_in_each_data_center() {
    let member = |name: &str, dc: &str, partitions: &str| {
        format!("[[member]]\nname = \"{name}\"\ndata_center = \"{dc}\"\npeer = \"127.0.0.1:1\"\npartitions = {partitions}\n")
    };
    let with = |members: &[String]| {
        let text = small().replace("data_center = \"east\"", "data_center = \"east\"\ndata_centers = [\"east\", \"west\"]\npartitions = 2");
        let text = text.replace("[listen]", "[listen]\npeer = \"127.0.0.1:0\"");
        NodeConfig::from_toml(&format!("{text}{}", members.concat())).map(|_| ()).map_err(|error| error.to_string())
    };
    let whole = [member("a", "east", "[0]"), member("b", "east", "[1]"), member("c", "west", "[1, 0]")];
    assert_eq!(with(&whole), Ok(()));
    for (members, reason) in [
        (vec![whole[0].clone(), whole[2].clone()], "partition 1 of east is owned by no node"),
        (vec![whole[0].clone(), whole[1].clone()], "of west is owned by no node"),
        (vec![whole[0].clone(), whole[1].clone(), whole[2].clone(), member("d", "west", "[0]")], "owned by both c and d"),
        (vec![member("x", "east", "[0, 1]"), whole[2].clone()], "a is not among the members"),
        (vec![member("a", "west", "[0, 1]"), member("b", "east", "[0, 1]")], "stands in west"),
        (vec![whole[0].clone(), whole[0].clone()], "twice"),
        (vec![member("a", "east", "[2]")], "not below partitions"),
        (vec![member("a", "north", "[0]")], "north"),
    ] {
        let error = with(&members).expect_err(reason);
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn nothing_listens_beyond_this_machine_without_a_password() {
    let open = small().replace("127.0.0.1:0", "0.0.0.0:0");
    assert!(NodeConfig::from_toml(&open).is_err());
    assert!(NodeConfig::from_toml(&format!("{open}\n[security]\npassword = \"x\"\n")).is_ok());
    assert!(NodeConfig::from_toml(&format!("{open}\n[security]\nallow_insecure = true\n")).is_ok());
    assert!(NodeConfig::from_toml(&format!("{open}\n[security]\ncluster_password = \"x\"\n")).is_err(), "that is for nodes");
}

#[test]
fn a_secret_is_compared_whole_and_not_shown() {
    let secret = Secret("open sesame".into());
    assert!(secret.matches(b"open sesame"));
    for wrong in [b"".as_slice(), b"open", b"open sesame!", b"Open sesame", b"open sesamf"] {
        assert!(!secret.matches(wrong));
    }
    assert!(!format!("{secret:?}").contains("sesame"));
}

#[test]
fn files_are_relative_to_the_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("node.toml");
    std::fs::write(&path, small().replace("node = \"a\"", "node = \"a\"\ndata_dir = \"data\"")).unwrap();
    assert_eq!(NodeConfig::from_file(&path).unwrap().data_dir, Some(folder.path().join("data")));
    std::fs::write(
        &path,
        format!("{}\n[cassandra]\ncontact_points = [\"127.0.0.1:9042\"]\nreplication_factor = 1\ntls_authority = \"cassandra.pem\"\n", small()),
    )
    .unwrap();
    assert_eq!(NodeConfig::from_file(&path).unwrap().cassandra.unwrap().tls_authority, Some(folder.path().join("cassandra.pem")));
    std::fs::write(&path, "cluster = 1").unwrap();
    let error = NodeConfig::from_file(&path).unwrap_err().to_string();
    assert!(error.contains("node.toml, line 1"), "{error}");
    assert!(NodeConfig::from_file(&folder.path().join("none.toml")).is_err());
}

#[test]
fn open_doors_are_told() {
    let mut config = NodeConfig::new("c", "n", "here");
    config.listen.resp = Some("127.0.0.1:1".parse().unwrap());
    assert_eq!(config.warnings(), Vec::<String>::new());
    config.listen.resp = Some("10.0.0.1:1".parse().unwrap());
    config.listen.peer = Some("[::]:2".parse().unwrap());
    let told = config.warnings();
    assert!(told.len() == 2 && told[0].contains("listen.resp") && told[1].contains("listen.peer") && told[0].contains("no password"), "{told:?}");
    config.security.password = Some(Secret("x".into()));
    assert!(config.warnings()[0].contains("TLS"));
    let file = std::path::PathBuf::new;
    config.security.tls = Some(TlsFiles { certificate: file(), key: file(), authority: file(), require_client_certificate: false });
    assert_eq!(config.warnings().len(), 1, "the peers' port still has no password");
    assert_eq!(config.listen.to_string(), "RESP 10.0.0.1:1, peers [::]:2");
}

#[test]
fn what_cassandra_needs_is_said() {
    let with = |keyspace: &str, rest: &str| {
        let text = small().replace("[[keyspace]]\n", &format!("[[keyspace]]\n{keyspace}\n")).replace("[listen]\n", &format!("{rest}\n[listen]\n"));
        NodeConfig::from_toml(&text).map_err(|error| error.to_string())
    };
    let error = |keyspace: &str, rest: &str| with(keyspace, rest).expect_err(rest);
    let points = "contact_points = [\"127.0.0.1:9042\"]";
    // The table alone does nothing.
    assert!(!with("", &format!("[cassandra]\n{points}")).unwrap().uses_cassandra());
    for (rest, reason) in [
        ("[cassandra]\ncontact_points = []".to_owned(), "there is none"),
        (format!("[cassandra]\n{points}\nuser = \"a\""), "user and password go together"),
        (format!("[cassandra]\n{points}\nreplication_factor = 1\nreplication = {{ a = 1 }}"), "one of them is enough"),
        (format!("[cassandra]\n{points}\ntls_authority = \"a\"\ntls_key = \"b\""), "tls_certificate and tls_key go together"),
        (format!("[cassandra]\n{points}\ntls_certificate = \"a\"\ntls_key = \"b\""), "say whose certificates are trusted"),
        (format!("[cassandra]\n{points}\nread_timeout_ms = 0"), "not from 1 to 600000"),
        (format!("[cassandra]\n{points}\nconsistency = \"all\""), "local_quorum"),
    ] {
        let error = error("", &rest);
        assert!(error.contains(reason), "{error}");
    }
    if crate::driver::driver().is_some() {
        let there = "cold = \"cassandra\"";
        assert!(error(there, "data_dir = \"data\"").contains("a table [cassandra]"));
        assert!(error(there, &format!("[cassandra]\n{points}")).contains("it takes a data_dir"));
        let error = error("", "[cassandra]\ncontact_points = [\"db\"]");
        assert!(error.contains("host:port"), "{error}");
        let on_disk = format!("{there}\ndurability = \"always\"");
        let text = small()
            .replace("node = ", "data_dir = \"data\"\nnode = ")
            .replace("[[keyspace]]\n", &format!("[cassandra]\n{points}\n[[keyspace]]\n{on_disk}\n"));
        let config = NodeConfig::from_toml(&text).unwrap();
        assert!(config.uses_cassandra() && config.warnings().is_empty());
        let elsewhere = text.replace("127.0.0.1:9042", "10.0.0.1:9042");
        let warnings = |text: &str| NodeConfig::from_toml(text).unwrap().warnings();
        assert!(warnings(&elsewhere).iter().any(|warning| warning.contains("without TLS")));
        assert!(warnings(&elsewhere.replace("[[keyspace]]", "tls_authority = \"a.pem\"\n[[keyspace]]")).is_empty());
    } else {
        assert!(error("cold = \"cassandra\"", "data_dir = \"data\"").contains("--features cassandra"));
    }
}

#[test]
fn the_operator_s_password_may_stand_as_a_digest() {
    let digest = "AB".repeat(32);
    let validated =
        |security: &str| NodeConfig::from_toml(&format!("{}\n[security]\n{security}\n", small())).map(drop).map_err(|error| error.to_string());
    assert_eq!(validated(&format!("password_sha256 = \"{digest}\"\ncluster_password = \"x\"")), Ok(()));
    for (security, why) in [
        (format!("password_sha256 = \"{digest}\"\npassword = \"x\""), "one of them is enough"),
        (format!("password_sha256 = \"{}\"", &digest[1..]), "64 hexadecimal digits"),
        (format!("password_sha256 = \"{}\"", "xy".repeat(32)), "64 hexadecimal digits"),
        ("password_sha256 = \"\"".to_owned(), "64 hexadecimal digits"),
    ] {
        let refused = validated(&security).unwrap_err();
        assert!(refused.contains("security.password_sha256") && refused.contains(why), "{security}: {refused}");
    }
}
