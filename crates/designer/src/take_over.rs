//! A file of one kind from one of the other: what both can say is taken over, and of the rest is said what it was.

use crate::file::{self, Kind, name_of};
use rheostat_cluster::Description;
use rheostat_lab::experiment::{ClockPattern, Cluster, Experiment};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// A file, and what was not taken over, in words.
pub type Taken = (Value, Vec<String>);

/// What an experiment begins with: clients that read and write, and the pictures that everybody looks at first.
fn begun(name: &str) -> Value {
    json!({
        "name": name, "source": "drawn", "title": format!("Reads and writes in {name}"), "shows": "", "differs": [], "grounds": ["virtual"], "cluster": {},
        "load": [{ "clients": 4, "does": { "mix": { "put": 0.2, "keys": 1000, "distribution": "zipfian", "think_ms": 1 } } }],
        "quick": { "settle_ms": 3000, "warm_ms": 1000, "measure_ms": 3000 }, "full": { "settle_ms": 3000, "warm_ms": 2000, "measure_ms": 20000, "repetitions": 5 },
        "chart": [
            { "name": "latency", "title": "Latency", "kind": "bar", "y": ["get_p50_ms", "get_p99_ms", "put_p50_ms", "put_p99_ms"], "label": "ms", "log_y": true },
            { "name": "reads", "title": "Latency of reads", "kind": "cdf", "y": ["get_ms"], "label": "ms", "log_x": true },
        ],
        "table": [{ "title": "The whole", "columns": ["operations_per_second", "get_mean_ms", "put_mean_ms", "failures", "remote_messages_per_operation", "remote_bytes_per_operation", "busiest_server_percent"] }],
    })
}

/// A name as an experiment's: small letters, digits, `-` and `.`.
fn experiment_name(name: &str) -> String {
    let plain = |letter: char| if letter.is_ascii_alphanumeric() || letter == '.' { letter.to_ascii_lowercase() } else { '-' };
    let name: String = name.chars().map(plain).collect();
    if name.is_empty() { "experiment".into() } else { name }
}

/// A name as a cluster's or a keyspace's.
fn plain_name(name: &str) -> String {
    let plain = |letter: char| if letter.is_ascii_alphanumeric() || "-_.".contains(letter) { letter } else { '-' };
    let name: String = name.chars().map(plain).take(64).collect();
    let name = name.trim_matches(['.', '-']).to_owned();
    if name.is_empty() { "unnamed".into() } else { name }
}

/// `fields` of `map`, or without them where there is nothing.
fn set(map: &mut Map<String, Value>, field: &str, value: Option<Value>) {
    match value {
        Some(value) => drop(map.insert(field.to_owned(), value)),
        None => drop(map.remove(field)),
    }
}

/// The experiment `into`, or a new one, on the cluster of the cluster file `from`, with a contender for each keyspace.
///
/// # Errors
/// `from` is not right: as the command line says it.
pub fn experiment(from: &Value, into: &Value) -> Result<Taken, String> {
    let text = file::write(from)?;
    let description = file::cluster(&name_of(Kind::Cluster, Some(from)), &text).map_err(|wrong| wrong.text)?;
    let mut notes = Vec::new();
    let mut made = if into.is_object() { into.clone() } else { begun(&format!("{}-experiment", experiment_name(&description.cluster))) };
    let Some(fields) = made.as_object_mut() else { return Err("an experiment is a table".into()) };
    let mut cluster = fields.get("cluster").and_then(Value::as_object).cloned().unwrap_or_default();
    network(&mut cluster, &description, &mut notes);
    let slow = description.emulation.slow.first();
    let place = |name: &str| description.data_centers.iter().position(|data_center| data_center.name == name);
    set(&mut cluster, "slow", slow.map(|slow| json!({ "data_center": place(&slow.data_center), "partition": slow.partition, "ms": slow.ms })));
    if description.emulation.slow.len() > 1 {
        notes.push("an experiment has one slow partition: the first was taken".into());
    }
    if !description.emulation.clocks.is_empty() {
        notes.push("clocks of single nodes were not taken: an experiment's are wrong by a pattern".into());
    }
    let replicas: BTreeSet<u8> = description.keyspaces.iter().map(|keyspace| keyspace.replicas).collect();
    let most = replicas.last().copied().unwrap_or(1);
    set(&mut cluster, "replicas", (most > 1).then(|| json!(most)));
    if replicas.len() > 1 {
        notes.push(format!("keyspaces have {replicas:?} replicas: all contenders have {most}, where their protocol has several"));
    }
    fields.insert("cluster".into(), cluster.into());
    let contenders = description.keyspaces.iter().map(|keyspace| {
        let mut contender = json!({ "name": keyspace.name, "protocol": keyspace.protocol });
        if !keyspace.options.is_empty() {
            contender["options"] = json!(keyspace.options);
        }
        contender
    });
    fields.insert("contender".into(), contenders.collect());
    Ok((made, notes))
}

/// Data centers, partitions and ways.
fn network(cluster: &mut Map<String, Value>, description: &Description, notes: &mut Vec<String>) {
    let names = description.names();
    let ways = description.emulation.directions(&names);
    let way = |from: &String, to: &String| ways.iter().find(|way| way.from == *from && way.to == *to);
    let (mut trips, mut links, mut unknown) = (Map::new(), Vec::new(), Vec::new());
    for (a, from) in names.iter().enumerate() {
        for (b, to) in names.iter().enumerate().skip(a + 1) {
            let (there, back) = (way(from, to).map(|way| way.one_way_ms), way(to, from).map(|way| way.one_way_ms));
            if there.or(back).is_none() {
                unknown.push(format!("{from}:{to}"));
            }
            let (there, back) = (there.or(back).unwrap_or(0.0), back.or(there).unwrap_or(0.0));
            trips.insert(format!("{from}:{to}"), json!(there + back));
            if there != back {
                links.extend([json!({ "from": a, "to": b, "ms": there }), json!({ "from": b, "to": a, "ms": back })]);
            }
        }
    }
    if !unknown.is_empty() {
        notes.push(format!("nothing is emulated between {}: taken as 0 ms", unknown.join(", ")));
    }
    let jitter = ways.iter().filter(|way| way.from != way.to).map(|way| way.jitter_ms);
    let most = jitter.clone().fold(0.0, f64::max);
    if jitter.clone().any(|jitter_ms| jitter_ms != most) {
        notes.push(format!("an experiment has one jitter for all ways: the largest, {most} ms on average, was taken"));
    }
    if most > 0.0 {
        notes.push(format!("jitter of {most} ms on average (gamma distribution) became up to {} ms, all alike", most * 2.0));
    }
    cluster.insert("regions".into(), json!(names));
    cluster.insert("partitions".into(), json!(description.partitions));
    set(cluster, "round_trip_ms", None);
    set(cluster, "round_trips_ms", (!trips.is_empty()).then(|| trips.into()));
    set(cluster, "link", (!links.is_empty()).then(|| links.into()));
    set(cluster, "jitter_ms", (most > 0.0).then(|| json!(most * 2.0)));
}

/// The cluster file `into`, or a new one, with the data centers of the experiment `from` and a keyspace for each of its contenders.
///
/// # Errors
/// `from` is not right: as the command line says it.
pub fn cluster(from: &Value, into: &Value) -> Result<Taken, String> {
    let text = file::write(from)?;
    let experiment = file::experiment(&name_of(Kind::Experiment, Some(from)), &text).map_err(|wrong| wrong.text)?;
    let Experiment { cluster, .. } = &experiment;
    let mut notes = Vec::new();
    let mut made = if into.is_object() { into.clone() } else { json!({ "cluster": plain_name(&experiment.name) }) };
    let names: Vec<String> = cluster.regions.iter().map(|region| plain_name(region)).collect();
    let known = made["data_center"].as_array().cloned().unwrap_or_default();
    let data_center = |name: &String| known.iter().find(|known| known["name"] == **name).cloned().unwrap_or_else(|| json!({ "name": name }));
    let mut data_centers: Vec<Value> = names.iter().map(data_center).collect();
    let mut emulation = emulation(cluster, &names);
    if let Some(slow) = cluster.slow {
        let dc = usize::from(slow.data_center);
        // A node for each partition, as a slow one needs.
        if let Some(place) = data_centers[dc].as_object_mut() {
            set(place, "nodes", Some(json!(cluster.partitions)));
            if place.remove("node").is_some() {
                notes.push(format!("the nodes of {} were listed: the list went", names[dc]));
            }
        }
        emulation.insert("slow".into(), json!([{ "data_center": names[dc], "partition": slow.partition, "ms": slow.ms }]));
        notes.push(format!("{} has a node for each partition, since a slow partition needs one of its own", names[dc]));
    }
    // Clocks of single nodes stay, of those that are left.
    let is_left = |clock: &&Value| {
        let node = clock["node"].as_str().unwrap_or_default();
        data_centers.iter().any(|place| {
            let is_listed = place["node"].as_array().is_some_and(|listed| listed.iter().any(|one| one["name"] == node));
            // `us-east-1` is no node of `us`.
            let number = place["name"].as_str().and_then(|name| node.strip_prefix(name)?.strip_prefix('-'));
            is_listed || number.is_some_and(|number| !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit()))
        })
    };
    let clocks: Vec<Value> = made["emulation"]["clock"].as_array().into_iter().flatten().filter(is_left).cloned().collect();
    set(&mut emulation, "clock", (!clocks.is_empty()).then(|| clocks.into()));
    if cluster.jitter_ms > 0.0 {
        notes.push(format!("jitter of up to {} ms became {} ms on average (gamma distribution)", cluster.jitter_ms, cluster.jitter_ms / 2.0));
    }
    let left = [
        (cluster.clocks.pattern != ClockPattern::Right, "clocks that are wrong by a pattern"),
        (!cluster.change.is_empty(), "ways that change while it is measured"),
        (!cluster.cut.is_empty(), "links that are cut"),
        (cluster.megabits.is_some(), "megabits"),
        (cluster.gamma_shape.is_some(), "gamma_shape"),
    ];
    notes.extend(left.into_iter().filter(|(there, _)| *there).map(|(_, what)| format!("not taken, since a cluster file has no word for it: {what}")));
    let mut seen = BTreeSet::new();
    let keyspaces = experiment.contender.iter().map(|contender| contender.get_ref()).filter_map(|contender| {
        let name = plain_name(&contender.name);
        let asks = contender.read_level.is_some() || contender.write_level.is_some() || contender.service_level.is_some();
        if asks {
            notes.push(format!("levels that contender {} asks for were not taken: clients ask for them", contender.name));
        }
        let mut keyspace = json!({ "name": name, "protocol": contender.protocol });
        if cluster.replicas > 1 {
            keyspace["replicas"] = json!(cluster.replicas);
        }
        if !contender.options.is_empty() {
            keyspace["options"] = json!(contender.options);
        }
        seen.insert(name).then_some(keyspace)
    });
    let keyspaces: Vec<Value> = keyspaces.collect();
    if keyspaces.len() < experiment.contender.len() {
        notes.push("contenders whose names become the same became one keyspace".into());
    }
    made["data_center"] = data_centers.into();
    made["partitions"] = json!(cluster.partitions);
    made["keyspace"] = keyspaces.into();
    made["emulation"] = emulation.into();
    Ok((made, notes))
}

/// The ways of an experiment as a cluster file has them.
fn emulation(cluster: &Cluster, names: &[String]) -> Map<String, Value> {
    let mut emulation = Map::new();
    let (mut links, mut delays) = (Vec::new(), Vec::new());
    for (a, from) in names.iter().enumerate() {
        for (b, to) in names.iter().enumerate().skip(a + 1) {
            if let Some(ms) = cluster.round_trip(a, b).filter(|ms| cluster.round_trip_ms != Some(*ms)) {
                links.push(json!({ "between": [from, to], "round_trip_ms": ms }));
            }
        }
    }
    for link in &cluster.link {
        let (from, to) = (&names[usize::from(link.from)], &names[usize::from(link.to)]);
        delays.retain(|delay: &Value| delay["from"] != **from || delay["to"] != **to);
        let mut delay = json!({ "from": from, "to": to, "one_way_ms": link.ms });
        if cluster.jitter_ms > 0.0 {
            delay["jitter_ms"] = json!(cluster.jitter_ms / 2.0);
        }
        delays.push(delay);
    }
    set(&mut emulation, "round_trip_ms", cluster.round_trip_ms.map(|ms| json!(ms)));
    set(&mut emulation, "jitter_ms", (cluster.jitter_ms > 0.0).then(|| json!(cluster.jitter_ms / 2.0)));
    set(&mut emulation, "link", (!links.is_empty()).then(|| links.into()));
    set(&mut emulation, "delay", (!delays.is_empty()).then(|| delays.into()));
    emulation
}
