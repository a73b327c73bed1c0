use super::*;
use crate::config::NodeConfig;
use rheostat_core::capabilities::Reach;

fn topology(cluster: &str, node: &str) -> Topology {
    Topology::new(&NodeConfig::new(cluster, node, "here"))
}

#[test]
fn a_directory_is_claimed_once() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("a/b");
    claim(&dir, &topology("c", "n")).unwrap();
    std::fs::set_permissions(&dir, Permissions::from_mode(0o755)).unwrap();
    claim(&dir, &topology("c", "n")).unwrap();
    assert_eq!(std::fs::metadata(&dir).unwrap().permissions().mode() & 0o777, 0o700);
    let error = claim(&dir, &topology("c", "other")).unwrap_err().to_string();
    assert!(error.contains("node") && error.contains("other"), "{error}");
    assert!(matches!(claim(&dir, &topology("d", "n")), Err(FolderError::Foreign { entry: "cluster", .. })));
}

#[test]
fn nobody_is_told_to_begin_anew_whose_own_directory_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let told = |text: &str| {
        std::fs::write(folder.path().join(FILE), text).unwrap();
        claim(folder.path(), &topology("c", "n")).unwrap_err().to_string()
    };
    let text = text_of(&topology("c", "n"), []);
    let newer = told(&text.replace("format: 1", "format: 2"));
    assert!(newer.contains("another version"), "{newer}");
    for cut in ["", "format: 1\nclu"] {
        let damaged = told(cut);
        assert!(damaged.contains("not whole"), "{damaged}");
    }
    let before = told(&text.replace("data centers: here", "data centers: there here"));
    assert!(before.contains("another configuration"), "{before}");
    let foreign = told(&text.replace("node: n", "node: m"));
    assert!(foreign.contains("belongs to another node"), "{foreign}");
}

#[test]
fn what_a_first_start_left_that_was_killed_is_nobodys() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    std::fs::write(dir.join(".new.cluster"), "").unwrap();
    std::fs::write(dir.join("other"), "").unwrap();
    assert!(matches!(claim(dir, &topology("c", "n")), Err(FolderError::NotEmpty(_))));
    std::fs::remove_file(dir.join("other")).unwrap();
    claim(dir, &topology("c", "n")).unwrap();
    assert!(!dir.join(".new.cluster").exists());
    claim(dir, &topology("c", "n")).unwrap();
}

#[test]
fn a_file_system_of_its_own_is_an_empty_directory() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("lost+found")).unwrap();
    claim(folder.path(), &topology("c", "n")).unwrap();
}

#[test]
fn a_directory_is_held_by_one_at_a_time_and_not_by_what_a_child_could_keep() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("a/b");
    let held = hold(&dir).unwrap();
    let inherited = held.0.as_ref().unwrap().try_clone().unwrap();
    let refused = hold(&dir).err().unwrap().to_string();
    assert!(refused.contains("b is in use"), "{refused}");
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0, "it is as empty as before");
    drop(held);
    drop(hold(&dir).unwrap());
    drop(inherited);
}

#[test]
fn stores_are_noted_by_whoever_comes_at_the_same_time() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("data");
    claim(&dir, &topology("c", "n")).unwrap();
    let place = "k/p0".to_owned();
    drop(rheostat_storage::DiskStore::<()>::open(&dir.join(&place), rheostat_storage::DiskOptions::default()).unwrap());
    let stores = || {
        let folder = dir.join(&place);
        vec![Configured { place: place.clone(), keyspace: "k".into(), folder, protocol: "causal", durability: Durability::Always }]
    };
    std::thread::scope(|scope| {
        for number in 0..4 {
            // Whether a store has come or gone, the file is written each time.
            let (dir, stores) = (&dir, &stores);
            scope
                .spawn(move || (0..50).for_each(|round| note_stores(dir, || if (number + round) % 2 == 0 { stores() } else { Vec::new() }).unwrap()));
        }
    });
    note_stores(&dir, stores).unwrap();
    let text = std::fs::read_to_string(dir.join(FILE)).unwrap();
    assert_eq!(text.lines().filter_map(noted).map(|noted| noted.place).collect::<Vec<_>>(), ["k/p0"]);
}

#[test]
fn a_directory_takes_more_places_at_the_end_and_no_other_change_of_data_centers() {
    let folder = tempfile::tempdir().unwrap();
    let claim = |names: &[&str], reserved: &[&str]| {
        let mut config = NodeConfig::new("c", "n", "here");
        config.data_centers = names.iter().map(|name| name.to_string()).collect();
        config.reserved_data_centers = reserved.iter().map(|name| name.to_string()).collect();
        super::claim(folder.path(), &Topology::new(&config)).map_err(|error| error.to_string())
    };
    claim(&["here", "there"], &[]).unwrap();
    let file = folder.path().join(FILE);
    let stores = "store k/p0: 00ff causal\n";
    std::fs::write(&file, std::fs::read_to_string(&file).unwrap() + stores).unwrap();
    let refused = |names: &[&str], reserved: &[&str], entry: &str| {
        let why = claim(names, reserved).unwrap_err();
        assert!(why.contains(&format!("directory's {entry} is")), "{names:?} {reserved:?}: {why}");
    };
    // Somebody was there, or would be from one moment to the next.
    refused(&["here", "there"], &["there"], "reserved");
    refused(&["here", "there", "new"], &[], "data centers");
    refused(&["here", "new", "there"], &["new"], "data centers");
    refused(&["here", "there", "new"], &["there", "new"], "data centers");
    claim(&["here", "there", "new"], &["new"]).unwrap();
    claim(&["here", "there", "new"], &["new"]).unwrap();
    refused(&["here", "there"], &[], "data centers");
    refused(&["here", "there", "new"], &[], "reserved");
    refused(&["here", "there", "new", "newer"], &["newer"], "data centers");
    claim(&["here", "there", "new", "newer", "newest"], &["newest", "new", "newer"]).unwrap();
    claim(&["here", "there", "new", "newer", "newest"], &["new", "newer", "newest"]).unwrap();
    assert!(std::fs::read_to_string(&file).unwrap().ends_with(stores), "what is noted of stores stays");
}

#[test]
fn a_directory_knows_with_how_many_partitions_its_cluster_was_made() {
    let folder = tempfile::tempdir().unwrap();
    let with = |first| Topology::new(&NodeConfig { partitions: 4, first_partitions: first, ..NodeConfig::new("c", "n", "here") });
    claim(folder.path(), &with(Some(2))).unwrap();
    for wrong in [None, Some(1)] {
        let error = claim(folder.path(), &with(wrong)).unwrap_err().to_string();
        assert!(error.contains("It takes first_partitions = 2 for good"), "{error}");
    }
    claim(folder.path(), &with(Some(2))).unwrap();
    // Whoever wrote it did not note that, and it is taken as it is configured.
    let file = folder.path().join(FILE);
    let text = std::fs::read_to_string(&file).unwrap() + "store k/p0: 00ff causal\n";
    std::fs::write(&file, text.replace("made with: 2\n", "")).unwrap();
    claim(folder.path(), &with(Some(2))).unwrap();
    assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
}

/// Data center `here` with three nodes, seen from the first, and a keyspace of `replicas` as protocol `span` would have them.
fn grouped(replicas: u8, reach: Reach) -> (Topology, KeyspaceInfo) {
    use crate::config::{KeyspaceConfig, Member};
    let mut config = NodeConfig::new("c", "n0", "here");
    config.partitions = 3;
    let member = |index: u16| Member {
        name: format!("n{index}"),
        data_center: "here".into(),
        peer: None,
        resp: None,
        grpc: None,
        admin: None,
        partitions: Some(vec![index]),
        added: false,
    };
    config.members = (0..3).map(member).collect();
    let keyspace: KeyspaceConfig = toml::from_str("name = \"k\"\nprotocol = \"causal\"").unwrap();
    config.keyspaces = vec![KeyspaceConfig { replicas, ..keyspace }];
    let topology = Topology::new(&config);
    let mut info = KeyspaceInfo::new(rheostat_core::ids::KeyspaceId(0), &config.keyspaces[0], true).unwrap();
    info.can.members = reach;
    (topology, info)
}

#[test]
fn the_servers_of_a_group_stay_the_same_under_their_data() {
    let folder = tempfile::tempdir().unwrap();
    let claim = |replicas, span| {
        let (topology, keyspace) = grouped(replicas, span);
        claim_group(folder.path(), &topology, &keyspace).map_err(|error| error.to_string())
    };
    assert_eq!(claim(1, Reach::Server), Ok(()));
    assert!(!folder.path().join("k").exists(), "nothing is kept together, so nothing is noted");
    assert_eq!(claim(3, Reach::DataCenter), Ok(()));
    assert_eq!(claim(3, Reach::DataCenter), Ok(()));
    let refused = claim(2, Reach::DataCenter).unwrap_err();
    assert!(refused.contains("replicas") && refused.contains("\"3\"") && refused.contains("\"2\""), "{refused}");
    assert!(claim(1, Reach::Server).is_err());
}

#[test]
fn data_of_single_servers_does_not_become_that_of_a_group() {
    let folder = tempfile::tempdir().unwrap();
    let (topology, keyspace) = grouped(3, Reach::Everywhere);
    // A folder that a crash left empty is new.
    std::fs::create_dir(folder.path().join("k")).unwrap();
    claim_group(folder.path(), &topology, &keyspace).unwrap();
    std::fs::remove_file(folder.path().join("k").join(GROUP_FILE)).unwrap();
    std::fs::create_dir(of_server(folder.path(), "k", ServerId::default())).unwrap();
    let refused = claim_group(folder.path(), &topology, &keyspace);
    assert!(matches!(refused, Err(FolderError::Regrouped { entry: "protocol", .. })));
}

#[test]
fn replica_0_has_the_folder_that_a_single_server_has() {
    let server = |replica| ServerId { partition: rheostat_core::ids::PartitionId(4), replica, ..ServerId::default() };
    assert!(of_server(Path::new("data"), "k", server(0)).ends_with("data/k/p4"));
    assert!(of_server(Path::new("data"), "k", server(2)).ends_with("data/k/p4.2"));
}

#[test]
fn a_directory_with_other_files_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("letter.txt"), "dear").unwrap();
    assert!(matches!(claim(folder.path(), &topology("c", "n")), Err(FolderError::NotEmpty(_))));
}
