//! Files as the page has them: nothing of their meaning is lost, and what is wrong is said as on the command line.

use rheostat_cluster::Description;
use rheostat_designer::file::{self, Kind};
use rheostat_designer::run::{Form, Limits};
use rheostat_designer::{Desk, take_over};
use rheostat_lab::catalogue::FILES;
use rheostat_lab::experiment;
use rheostat_server::designer::{Call, Designer};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

fn desk() -> Desk {
    Desk::new(Limits::alone(Duration::from_secs(60)))
}

fn ask(call: Call, body: Value) -> Value {
    serde_json::from_str(&desk().answer(call, body.to_string().as_bytes()).unwrap()).unwrap()
}

fn check(kind: &str, body: Value) -> Value {
    let mut body = body;
    body["kind"] = kind.into();
    ask(Call::Check, body)
}

#[test]
fn every_experiment_keeps_its_meaning() {
    for file in FILES {
        let read = check("experiment", json!({ "text": file.text }));
        assert_eq!((&read["wrong"], &read["name"]), (&Value::Null, &json!(file.name)));
        let written = check("experiment", json!({ "file": read["file"] }));
        assert_eq!((&written["wrong"], &written["file"], &written["drawn"]), (&Value::Null, &read["file"], &read["drawn"]), "{}", file.name);
        let text = written["text"].as_str().unwrap();
        let (before, after) = (experiment::parse(file.name, file.text).unwrap(), experiment::parse(file.name, text).unwrap());
        for full in [false, true] {
            let points = |experiment, text: &str| serde_json::to_value(experiment::points(experiment, text, full).unwrap()).unwrap();
            assert_eq!(points(&before, file.text), points(&after, text), "{}", file.name);
        }
        assert_eq!((before.expect.len(), before.chart.len(), before.paper.len()), (after.expect.len(), after.chart.len(), after.paper.len()));
    }
}

#[test]
fn every_cluster_of_the_examples_keeps_its_meaning() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let mut found = 0;
    for entry in
        std::fs::read_dir(examples).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.extension().is_some_and(|end| end == "toml"))
    {
        let text = std::fs::read_to_string(&entry).unwrap();
        if !text.contains("[[data_center]]") {
            continue;
        }
        found += 1;
        same_cluster(&text);
    }
    assert!(found > 0);
}

fn same_cluster(text: &str) {
    let read = check("cluster", json!({ "text": text }));
    assert_eq!(read["wrong"], Value::Null);
    let written = check("cluster", json!({ "file": read["file"] }));
    let again = written["text"].as_str().unwrap();
    assert_eq!((&written["wrong"], &written["file"], &written["drawn"]), (&Value::Null, &read["file"], &read["drawn"]), "{again}");
    assert_eq!(Description::from_toml(text).unwrap(), Description::from_toml(again).unwrap(), "{again}");
}

/// One with everything that a cluster file can say.
const EVERYTHING: &str = r#"
cluster = "every.thing"
folder = "a folder/with \"quotes\" and \\"
partitions = 3
shards = 2
base_port = 9000

[[data_center]]
name = "east"
host = "10.0.0.5"
[[data_center.node]]
name = "one"
port = 9100
partitions = [0, 2]
[[data_center.node]]
host = "10.0.0.6"
partitions = [1]

[[data_center]]
name = "west"
nodes = 3

[[keyspace]]
name = "orders"
protocol = "session"
replicas = 3
durability = "always"
history_ms = 60000
options = { election_ms = 300 }
[keyspace.counters]
ask_timeout_ms = 250

[[keyspace]]
name = "plain"
protocol = "eventual"

[security]
password = "se\tcret \u0001\u007f\nüñ"
cluster_password = "'''"
allow_insecure = true
[security.tls]
certificate = "c.pem"
key = "k.pem"
authority = "a.pem"

[console]
faults = true

[limits]
max_connections = 100

[host."10.0.0.5"]
ssh = "deploy@10.0.0.5"
ssh_options = ["Port=2222"]
[host."10.0.0.6"]
folder = "/var/lib"

[emulation]
round_trip_ms = 80.5
jitter_ms = 2
jitter_shape = 1.5
[[emulation.link]]
between = ["east", "west"]
round_trip_ms = 1e1
jitter_ms = 0.25
[[emulation.delay]]
from = "west"
to = "east"
one_way_ms = 33.3
[[emulation.clock]]
node = "one"
offset_ms = -20
[[emulation.slow]]
data_center = "west"
partition = 1
ms = 7.5
"#;

#[test]
fn a_cluster_file_with_everything_keeps_its_meaning() {
    same_cluster(EVERYTHING);
    let drawn = &check("cluster", json!({ "text": EVERYTHING }))["drawn"];
    assert_eq!(drawn["nodes"].as_array().unwrap().len(), 5);
    assert_eq!(drawn["nodes"][0]["clock_ms"], -20);
    assert_eq!(drawn["nodes"][3]["slow_ms"], 7.5);
    assert_eq!(
        drawn["ways"],
        json!([{ "from": "east", "to": "west", "ms": 5.0, "jitter_ms": 0.25 }, { "from": "west", "to": "east", "ms": 33.3, "jitter_ms": 0.0 }])
    );
}

#[test]
fn what_is_wrong_is_said_with_file_line_and_key() {
    let wrong = |kind: &str, text: &str| check(kind, json!({ "text": text }))["wrong"].clone();
    assert_eq!(
        wrong("cluster", "cluster = \"shop\"\npartitions = 4\n[[data_center]]\nname = \"a b\"\n"),
        json!({
            "text": "shop.toml, line 4: data_center[0].name: \"a b\" is not a name: 1 to 64 letters, digits, '-', '_', '.', and no '.' in front, since names become folders",
            "line": 4, "key": "data_center[0].name",
        })
    );
    assert_eq!(wrong("cluster", "cluster = \"shop\"\ncolour = 1\n")["line"], 2);
    let text = FILES.iter().find(|file| file.name == "slow-partition.toml").unwrap().text.replace("partition = 0, ms", "partition = 9, ms");
    let said = wrong("experiment", &text);
    assert_eq!(said["text"], experiment::parse("slow-partition.toml", &text).unwrap_err());
    assert!(said["key"] == "cluster.slow" && said["line"].as_u64().unwrap() > 5, "{said}");
}

#[test]
fn what_a_page_cannot_hold_is_said() {
    for (line, says) in [
        ("seed = 9223372036854775807", "seed: 9223372036854775807 is more than a page can hold"),
        ("shows = 1979-05-27", "shows: 1979-05-27 is nothing that a page can hold"),
        ("seed = inf", "inf"),
    ] {
        let text = FILES[0].text.replacen("name = ", &format!("{line}\nname = "), 1);
        let told = check("experiment", json!({ "text": text }));
        assert!(told["file"].is_null(), "{line}");
        assert!(line.starts_with("shows") || told["wrong"]["text"].as_str().unwrap().contains(says), "{line}: {}", told["wrong"]);
    }
    // The one whole number that has no other sign.
    let least = check("experiment", json!({ "text": FILES[0].text.replacen("name = ", "seed = -9223372036854775808\nname = ", 1) }));
    assert!(least["file"].is_null() && least["wrong"]["text"].is_string(), "{least}");
    // A page that has taken away what stood there sends null.
    let told = check(
        "cluster",
        json!({ "file": { "cluster": "c", "partitions": null, "data_center": [{ "name": "a", "host": null }], "keyspace": [{ "name": "k", "protocol": "eventual" }] } }),
    );
    assert_eq!((&told["wrong"], told["text"].as_str().unwrap().contains("partitions")), (&Value::Null, false));
    assert!(desk().answer(Call::Check, json!({ "kind": "cluster", "file": { "partitions": [1, null] } }).to_string().as_bytes()).is_err());
    assert!(desk().answer(Call::Check, b"{\"kind\": \"cluster\", \"file\": 1}").is_err());
    assert!(desk().answer(Call::Check, b"{\"kind\": \"cluster\"}").is_err());
    assert!(desk().answer(Call::Check, b"not json").is_err());
}

#[test]
fn what_would_take_long_to_check_is_refused_at_once() {
    let began = std::time::Instant::now();
    let nodes = check(
        "cluster",
        json!({ "text": "cluster = \"c\"\npartitions = 4096\n[[data_center]]\nname = \"a\"\nnodes = 1024\n[[keyspace]]\nname = \"k\"\nprotocol = \"eventual\"\n" }),
    );
    assert!(nodes["wrong"]["text"].as_str().unwrap().contains("1024 nodes are more than a page checks"), "{nodes}");
    let values: Vec<String> = (0..1000).map(|value| value.to_string()).collect();
    let sweep = |name: &str, values: &[String]| {
        format!("[[sweep]]\nname = \"{name}\"\nlabel = \"\"\npaths = [\"cluster.jitter_ms\"]\nquick = [{0}]\nfull = [{0}]\n", values.join(", "))
    };
    let text = FILES.iter().find(|file| file.name == "orion-client.toml").unwrap().text;
    let one = check("experiment", json!({ "text": format!("{text}\n{}", sweep("one", &values)) }));
    let said = one["wrong"]["text"].as_str().unwrap();
    assert!(said.contains("too many to be checked in a page") || said.contains("at most 10000"), "{said}");
    let six: String = (0..6).map(|number| sweep(&format!("s{number}"), &values)).collect();
    let many = check("experiment", json!({ "text": format!("{text}\n{six}") }));
    assert!(many["wrong"]["text"].as_str().unwrap().contains("at most 10000"), "{}", many["wrong"]);
    let eight: String = (0..8).map(|number| sweep(&format!("s{number}"), &values)).collect();
    assert!(
        check("experiment", json!({ "text": format!("{text}\n{eight}") }))["wrong"]["text"]
            .as_str()
            .unwrap()
            .contains("more rows than can be counted")
    );
    assert!(began.elapsed() < Duration::from_secs(20));
}

/// Ways between data centers are as many as their number squared, in the file's meaning and in what is drawn of it.
#[test]
fn more_data_centers_than_a_cluster_has_are_not_drawn() {
    for more in ["", ", reserved = true"] {
        let told = |count: usize| {
            let places: String = (0..count).map(|number| format!("{{ name = 'd{number}'{} }},", if number == 0 { "" } else { more })).collect();
            check("cluster", json!({ "text": format!("cluster = 'c'\ndata_center = [{places}]\nemulation = {{ round_trip_ms = 1 }}\n") }))
        };
        assert_eq!(told(64)["drawn"]["ways"].as_array().unwrap().len(), 64 * 63, "{more}");
        let many = told(65);
        assert_eq!((&many["drawn"], &many["wrong"]["key"]), (&Value::Null, &json!("data_center")), "{more}");
        assert!(many["wrong"]["text"].as_str().unwrap().contains("65 data centers; at most 64"), "{}", many["wrong"]);
    }
}

fn example(kind: &str, name: &str) -> Value {
    check(kind, json!({ "example": name }))["file"].clone()
}

#[test]
fn an_experiment_takes_over_a_cluster_and_runs() {
    let demo = example("cluster", "demo");
    let made = ask(Call::TakeOver, json!({ "kind": "experiment", "from": demo, "into": null }));
    assert_eq!((&made["wrong"], &made["notes"]), (&Value::Null, &json!([])));
    assert_eq!(made["file"]["cluster"]["regions"], json!(["us-east", "us-west", "eu"]));
    assert_eq!(made["file"]["cluster"]["round_trips_ms"], json!({ "us-east:us-west": 80.0, "us-east:eu": 96.0, "us-west:eu": 163.0 }));
    let contenders: Vec<&Value> = made["file"]["contender"].as_array().unwrap().iter().map(|contender| &contender["name"]).collect();
    assert_eq!(contenders, ["default", "eventual", "strong", "session", "quorum", "staged"]);
    let desk = desk();
    desk.answer(Call::Run, json!({ "text": made["text"], "form": Form::Quick.name() }).to_string().as_bytes()).unwrap();
    let told = loop {
        let told: Value = serde_json::from_str(&desk.answer(Call::Progress, b"").unwrap()).unwrap();
        if told["state"] != "running" {
            break told;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!((&told["state"], &told["done"]), (&json!("done"), &json!(6)), "{told}");
    // What was there of the experiment stays.
    let mut own = made["file"].clone();
    own["seed"] = json!(5);
    own["load"][0]["clients"] = json!(9);
    let again = ask(Call::TakeOver, json!({ "kind": "experiment", "from": demo, "into": own }));
    assert_eq!(again["file"], own);
}

#[test]
fn ways_go_to_and_fro() {
    let from = check("cluster", json!({ "text": EVERYTHING }))["file"].clone();
    let (experiment, notes) = take_over::experiment(&from, &Value::Null).unwrap();
    assert_eq!(experiment["cluster"]["link"], json!([{ "from": 0, "to": 1, "ms": 5.0 }, { "from": 1, "to": 0, "ms": 33.3 }]));
    assert_eq!(experiment["cluster"]["slow"], json!({ "data_center": 1, "partition": 1, "ms": 7.5 }));
    assert_eq!(experiment["cluster"]["replicas"], 3);
    for word in ["clocks of single nodes", "jitter", "replicas"] {
        assert!(notes.iter().any(|note| note.contains(word)), "{word}: {notes:?}");
    }
    let written = check("experiment", json!({ "file": experiment }));
    assert_eq!(written["wrong"], Value::Null, "{}", written["text"]);
    let (back, _) = take_over::cluster(&experiment, &from).unwrap();
    let told = check("cluster", json!({ "file": back }));
    assert_eq!(told["wrong"], Value::Null, "{}", told["text"]);
    let ways = |told: &Value| told["drawn"]["ways"].as_array().unwrap().iter().map(|way| way["ms"].as_f64().unwrap()).collect::<Vec<_>>();
    assert_eq!((ways(&told), ways(&written)), (vec![5.0, 33.3], vec![5.0, 33.3]));
    assert_eq!(back["security"], from["security"], "what an experiment has no word for stays");
    assert_eq!(back["emulation"]["clock"], from["emulation"]["clock"]);
}

#[test]
fn a_slow_partition_leaves_its_data_center_where_it_is() {
    let mut from = check("cluster", json!({ "text": EVERYTHING }))["file"].clone();
    from["emulation"]["slow"] = json!([{ "data_center": "east", "partition": 2, "ms": 4.0 }]);
    from["data_center"][0]["node"] = json!([{ "name": "one", "partitions": [0, 1] }, { "host": "10.0.0.6", "partitions": [2] }]);
    let (experiment, _) = take_over::experiment(&from, &Value::Null).unwrap();
    let (back, notes) = take_over::cluster(&experiment, &from).unwrap();
    assert_eq!(back["data_center"][0], json!({ "name": "east", "host": "10.0.0.5", "nodes": 3 }));
    assert!(notes.iter().any(|note| note.contains("the nodes of east were listed")), "{notes:?}");
    assert_eq!(back["emulation"]["clock"], Value::Null, "that of a node that is gone");
}

#[test]
fn a_clock_stays_only_where_its_data_center_does() {
    let cluster = |names: [&str; 2], clocks: Value| {
        json!({
            "cluster": "c", "data_center": names.map(|name| json!({ "name": name })), "keyspace": [{ "name": "k", "protocol": "eventual" }],
            "emulation": { "round_trip_ms": 10, "clock": clocks },
        })
    };
    let (experiment, _) = take_over::experiment(&cluster(["us", "eu"], json!([])), &Value::Null).unwrap();
    let clock = |node: &str| json!({ "node": node, "offset_ms": 20 });
    let into = cluster(["us", "us-east"], json!([clock("us-1"), clock("us-east-1")]));
    assert_eq!(check("cluster", json!({ "file": into }))["wrong"], Value::Null);
    let (made, _) = take_over::cluster(&experiment, &into).unwrap();
    assert_eq!(made["emulation"]["clock"], json!([clock("us-1")]));
    assert_eq!(check("cluster", json!({ "file": made }))["wrong"], Value::Null);
}

#[test]
fn every_experiment_becomes_a_cluster() {
    let mut right = 0;
    for known in FILES {
        let file = check("experiment", json!({ "text": known.text }))["file"].clone();
        let (made, _) = take_over::cluster(&file, &Value::Null).unwrap_or_else(|error| panic!("{}: {error}", known.name));
        let told = check("cluster", json!({ "file": made }));
        // `staged` and others may have what a cluster file refuses; then it is said.
        assert!(told["wrong"].is_null() || told["wrong"]["key"].is_string(), "{}: {}", known.name, told["wrong"]);
        right += usize::from(told["wrong"].is_null());
    }
    assert!(right * 10 >= FILES.len() * 9, "{right} of {}", FILES.len());
}

#[test]
fn names_of_files_are_names() {
    let name = |kind: Kind, tree: Value| file::name_of(kind, Some(&tree));
    assert_eq!(name(Kind::Cluster, json!({ "cluster": "../../etc" })), "cluster.toml");
    assert_eq!(name(Kind::Experiment, json!({ "name": "<b>" })), "experiment.toml");
    assert_eq!(name(Kind::Experiment, json!({ "name": "a-1.b" })), "a-1.b.toml");
    assert_eq!(file::name_of(Kind::Cluster, None), "cluster.toml");
}
