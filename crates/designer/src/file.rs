//! A file as the page has it, and what the command line says of it.
//!
//! The page has a file as JSON of the same shape as its TOML. Text is read and written whole: what the page has no field for stays, comments do not.

use rheostat_cluster::Description;
use rheostat_lab::experiment::{self, Act, Cluster, Experiment};
use rheostat_server::config::ConfigError;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::path::Path;

/// The two kinds of files.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// `docs/cluster.md`.
    Cluster,
    /// `docs/lab.md`.
    Experiment,
}

/// The most nodes of a cluster that is checked here: each node's configuration names all nodes, so checking takes their number squared.
const MOST_NODES: usize = 128;

/// The most data centers of a cluster: as many as a node takes. What is drawn of them, and what is emulated, grows with their number squared.
const MOST_PLACES: usize = 64;

/// The most bytes of a file times the rows of one of its sizes: as long as checking an experiment takes.
const MOST_WORK: usize = 8 << 20;

/// Whole numbers that a page can hold.
const LARGEST: u64 = 1 << 53;

/// The tree of a text. Errors: it is not TOML, or has something that a page cannot hold; in words.
fn tree(text: &str) -> Result<Value, String> {
    let table: toml::Table = toml::from_str(text).map_err(|error| error.message().to_owned())?;
    to_json(toml::Value::Table(table), "")
}

fn to_json(value: toml::Value, path: &str) -> Result<Value, String> {
    let below = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    Ok(match value {
        toml::Value::String(text) => text.into(),
        toml::Value::Boolean(one) => one.into(),
        toml::Value::Integer(number) if number.unsigned_abs() <= LARGEST => number.into(),
        toml::Value::Integer(number) => return Err(format!("{path}: {number} is more than a page can hold; the command line takes it")),
        toml::Value::Float(number) if number.is_finite() => number.into(),
        toml::Value::Float(number) => return Err(format!("{path}: {number} is nothing that a page can hold")),
        toml::Value::Datetime(time) => return Err(format!("{path}: {time} is nothing that a page can hold")),
        toml::Value::Array(values) => values.into_iter().map(|value| to_json(value, path)).collect::<Result<Vec<_>, _>>()?.into(),
        toml::Value::Table(table) => {
            table.into_iter().map(|(key, value)| Ok((key.clone(), to_json(value, &below(&key))?))).collect::<Result<Map<_, _>, String>>()?.into()
        }
    })
}

/// Keys in the order in which people write them; others come after these, by their letters.
const ORDER: &[&str] = &[
    "name",
    "cluster",
    "title",
    "source",
    "figures",
    "shows",
    "differs",
    "says",
    "grounds",
    "seed",
    "partitions",
    "shards",
    "replicas",
    "folder",
    "base_port",
    "in_memory",
    "between",
    "from",
    "to",
    "at_ms",
    "round_trip_ms",
    "one_way_ms",
    "jitter_ms",
    "jitter_shape",
    "known_regions",
    "pattern",
    "data_center",
    "partition",
    "protocol",
    "options",
    "regions",
    "round_trips_ms",
    "local_ms",
    "near_ms",
    "nodes",
    "host",
    "node",
    "port",
    "clients",
    "data_centers",
    "measured",
    "does",
    "put",
    "label",
    "paths",
    "quick",
    "full",
    "settle_ms",
    "warm_ms",
    "measure_ms",
    "slice_ms",
    "repetitions",
    "kind",
    "x",
    "y",
    "columns",
    "measure",
    "of",
    "over",
    "at",
    "at_least",
    "at_most",
    "ms",
];

/// Tables of the first level, in the order in which people write them.
const SECTIONS: &[&str] = &[
    "data_center",
    "cluster",
    "load",
    "contender",
    "sweep",
    "quick",
    "full",
    "chart",
    "table",
    "paper",
    "expect",
    "keyspace",
    "security",
    "console",
    "limits",
    "host",
    "emulation",
];

fn rank(order: &[&str], key: &str) -> usize {
    order.iter().position(|known| *known == key).unwrap_or(order.len())
}

fn ordered<'m>(map: &'m Map<String, Value>, order: &[&str]) -> Vec<(&'m String, &'m Value)> {
    // What is null has been taken away by the page.
    let mut entries: Vec<_> = map.iter().filter(|(_, value)| !value.is_null()).collect();
    entries.sort_by_key(|(key, _)| rank(order, key));
    entries
}

fn key_text(key: &str) -> String {
    let bare = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
    if bare { key.to_owned() } else { quoted(key) }
}

/// A text on one line.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => out.extend(['\\', letter]),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            control if control.is_control() => out.push_str(&format!("\\u{:04X}", u32::from(control))),
            letter => out.push(letter),
        }
    }
    out.push('"');
    out
}

/// A value on one line.
fn inline(value: &Value) -> Result<String, String> {
    Ok(match value {
        Value::Null => return Err("a list holds nothing at a place".into()),
        Value::Bool(one) => one.to_string(),
        Value::String(text) => quoted(text),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => whole.to_string(),
            (None, Some(number)) => toml::Value::Float(number).to_string(),
            (None, None) => return Err(format!("{number} is no number of TOML")),
        },
        Value::Array(values) => format!("[{}]", values.iter().map(inline).collect::<Result<Vec<_>, _>>()?.join(", ")),
        Value::Object(map) => {
            let entries = ordered(map, ORDER).into_iter().map(|(key, value)| Ok(format!("{} = {}", key_text(key), inline(value)?)));
            match entries.collect::<Result<Vec<_>, String>>()?.join(", ") {
                entries if entries.is_empty() => "{}".into(),
                entries => format!("{{ {entries} }}"),
            }
        }
    })
}

/// From this length on a list of tables or texts has a line for each.
const LONG: usize = 120;

fn entry(key: &str, value: &Value) -> Result<String, String> {
    let line = format!("{} = {}\n", key_text(key), inline(value)?);
    match value {
        Value::Array(values) if line.len() > LONG && values.iter().any(|value| value.is_object() || value.is_string()) => {
            let lines = values.iter().map(|value| Ok(format!("    {},\n", inline(value)?))).collect::<Result<String, String>>()?;
            Ok(format!("{} = [\n{lines}]\n", key_text(key)))
        }
        _ => Ok(line),
    }
}

/// Whether a value is written as a list of sections, `[[name]]`.
fn is_sections(value: &Value) -> bool {
    value.as_array().is_some_and(|values| !values.is_empty() && values.iter().all(Value::is_object))
}

/// The tables below the first level that are written as sections of their own: nodes, and what is emulated.
fn is_nested(path: &str, key: &str, value: &Value) -> bool {
    match path {
        "data_center" => key == "node" && is_sections(value),
        "emulation" => is_sections(value),
        "host" => value.is_object(),
        "security" => value.is_object(),
        _ => false,
    }
}

fn section(out: &mut String, path: &str, head: &str, map: &Map<String, Value>) -> Result<(), String> {
    let entries = ordered(map, ORDER);
    let (nested, plain): (Vec<_>, Vec<_>) = entries.into_iter().partition(|(key, value)| is_nested(path, key, value));
    if !plain.is_empty() || nested.is_empty() || head.starts_with("[[") {
        out.push_str(&format!("\n{head}\n"));
    }
    for (key, value) in plain {
        out.push_str(&entry(key, value)?);
    }
    for (key, value) in nested {
        let name = format!("{path}.{}", key_text(key));
        match value {
            Value::Array(values) => values.iter().filter_map(Value::as_object).try_for_each(|map| section(out, "", &format!("[[{name}]]"), map))?,
            Value::Object(map) => section(out, "", &format!("[{name}]"), map)?,
            _ => {}
        }
    }
    Ok(())
}

/// The text of a tree.
///
/// # Errors
/// It has something that TOML cannot say; in words.
pub fn write(file: &Value) -> Result<String, String> {
    let map = file.as_object().ok_or("a file is a table")?;
    let mut out = String::new();
    let (tables, plain): (Vec<_>, Vec<_>) = ordered(map, ORDER).into_iter().partition(|(_, value)| value.is_object() || is_sections(value));
    for (key, value) in plain {
        out.push_str(&entry(key, value)?);
    }
    let mut tables = tables;
    tables.sort_by_key(|(key, _)| rank(SECTIONS, key));
    for (key, value) in tables {
        match value {
            Value::Object(map) => section(&mut out, key, &format!("[{}]", key_text(key)), map)?,
            Value::Array(values) => {
                values.iter().filter_map(Value::as_object).try_for_each(|map| section(&mut out, key, &format!("[[{}]]", key_text(key)), map))?
            }
            _ => {}
        }
    }
    Ok(out.trim_start_matches('\n').to_owned())
}

/// What a file is called when it is saved.
pub fn name_of(kind: Kind, tree: Option<&Value>) -> String {
    let field = if kind == Kind::Cluster { "cluster" } else { "name" };
    let name = tree.and_then(|tree| tree[field].as_str()).unwrap_or_default();
    let plain = (1..=64).contains(&name.len())
        && !name.starts_with(['.', '-'])
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    format!(
        "{}.toml",
        if plain {
            name
        } else if kind == Kind::Cluster {
            "cluster"
        } else {
            "experiment"
        }
    )
}

/// What is wrong with a file.
#[derive(Debug, PartialEq)]
pub struct Wrong {
    /// As the command line says it.
    pub text: String,
    /// The line, where known.
    pub line: Option<usize>,
    /// The key, where known.
    pub key: Option<String>,
}

/// The experiment in `text`, called `file` in errors.
///
/// # Errors
/// As `rheostat lab run` says them; or checking would take too long here.
pub fn experiment(file: &str, text: &str) -> Result<Experiment, Wrong> {
    // Where it is no experiment at all, the reader below says so.
    if let Ok(unchecked) = toml::from_str::<Experiment>(text) {
        let rows = [false, true].map(|full| unchecked.rows(full).unwrap_or(usize::MAX));
        // More than 10000 rows are refused by the reader before it has looked at one.
        let work = rows.into_iter().filter(|rows| *rows <= 10_000).max().unwrap_or(0).saturating_mul(text.len());
        if work > MOST_WORK {
            let text = format!(
                "{file}: {} rows of a file of {} bytes are too many to be checked in a page; the command line checks them",
                rows[0].max(rows[1]),
                text.len()
            );
            return Err(Wrong { text, line: None, key: None });
        }
    }
    experiment::parse(file, text).map_err(|error| {
        let line = error.strip_prefix(&format!("{file}:")).and_then(|rest| rest.split_once(':')).and_then(|(line, _)| line.parse().ok());
        let key = error.split(": ").nth(1).filter(|key| key.contains('.') && !key.contains([' ', '`'])).map(str::to_owned);
        Wrong { text: error, line, key }
    })
}

/// The cluster in `text`, called `file` in errors.
///
/// # Errors
/// As `rheostat ctl cluster up` says them; or it has too many data centers or nodes to be checked here.
pub fn cluster(file: &str, text: &str) -> Result<Description, Wrong> {
    let path = Path::new(file);
    let wrong = |error: ConfigError| Wrong { line: error.line(), key: error.key().map(str::to_owned), text: error.in_file(path).to_string() };
    if let Ok(unchecked) = toml::from_str::<Description>(text) {
        let places = unchecked.data_centers.len();
        if places > MOST_PLACES {
            return Err(wrong(ConfigError::at("data_center", format!("there are {places} data centers; at most {MOST_PLACES}"))));
        }
        let nodes = unchecked.data_centers.iter().map(|data_center| data_center.size()).sum::<usize>();
        // Beyond 1024 the reader refuses before it makes one.
        if nodes > MOST_NODES && nodes <= 1024 {
            return Err(wrong(ConfigError::at(
                "data_center",
                format!("{nodes} nodes are more than a page checks, {MOST_NODES}; the command line checks them"),
            )));
        }
    }
    Description::from_toml(text).map_err(wrong)
}

/// A file's tree, its text, what is wrong with it, and what is drawn of it.
pub fn checked(kind: Kind, text: &str) -> Value {
    let tree = tree(text);
    let file = name_of(kind, tree.as_ref().ok());
    let (wrong, drawn) = match kind {
        Kind::Cluster => (cluster(&file, text).err(), drawn_cluster(text)),
        Kind::Experiment => match experiment(&file, text) {
            Ok(experiment) => (None, drawn_experiment(text, Some(&experiment))),
            Err(wrong) => (Some(wrong), drawn_experiment(text, None)),
        },
    };
    let (tree, wrong) = match (tree, wrong) {
        (Ok(tree), wrong) => (tree, wrong),
        (Err(_), Some(wrong)) => (Value::Null, Some(wrong)),
        // Right, and yet nothing that a page can hold.
        (Err(why), None) => (Value::Null, Some(Wrong { text: format!("{file}: {why}"), line: None, key: None })),
    };
    json!({
        "file": tree, "text": text, "name": file, "drawn": drawn,
        "wrong": wrong.map(|Wrong { text, line, key }| json!({ "text": text, "line": line, "key": key })),
    })
}

/// What is drawn of a cluster file, as far as it can be read, right or not.
fn drawn_cluster(text: &str) -> Value {
    let description = toml::from_str::<Description>(text).ok().filter(|description| description.data_centers.len() <= MOST_PLACES);
    let Some(description) = description else { return Value::Null };
    let names = description.names();
    let sizes: usize = description.data_centers.iter().map(|data_center| data_center.size()).sum();
    // Nodes follow from the whole file, where it is right.
    let planned =
        if sizes <= MOST_NODES { description.validate().ok().and_then(|()| description.nodes(None).ok()).unwrap_or_default() } else { Vec::new() };
    let nodes = planned.iter().map(|node| {
        let config = &node.config;
        let member = config.members.iter().find(|member| member.name == config.node);
        let owned = member.map_or(Vec::new(), |member| config.owned(member).iter().map(|partition| partition.0).collect());
        json!({
            "name": config.node, "data_center": config.data_center, "host": node.host, "resp": node.address(node.ports.resp), "console": node.address(node.ports.admin),
            "partitions": owned.len(), "first": owned.first(), "last": owned.last(), "clock_ms": config.emulation.clock_offset_ms, "slow_ms": config.emulation.slow_ms,
        })
    });
    let ways = description.emulation.directions(&names).into_iter().filter(|way| way.from != way.to);
    json!({
        "data_centers": description.data_centers.iter().map(|data_center| json!({ "name": data_center.name, "inside": data_center.size() })).collect::<Vec<_>>(),
        "ways": ways.map(|way| json!({ "from": way.from, "to": way.to, "ms": way.one_way_ms, "jitter_ms": way.jitter_ms })).collect::<Vec<_>>(),
        "nodes": nodes.collect::<Vec<_>>(),
    })
}

/// What is drawn of an experiment.
fn drawn_experiment(text: &str, experiment: Option<&Experiment>) -> Value {
    #[derive(Deserialize)]
    struct Only {
        cluster: Cluster,
    }
    let cluster = experiment.map(|experiment| experiment.cluster.clone()).or_else(|| toml::from_str::<Only>(text).ok().map(|only| only.cluster));
    let Some(cluster) = cluster.filter(|cluster| cluster.regions.len() <= MOST_PLACES) else { return Value::Null };
    let clients = |dc: usize| -> u64 {
        let loads = experiment.map_or(&[][..], |experiment| &experiment.load);
        let there = loads.iter().filter(|load| {
            !matches!(load.does, Act::LinesOfCode(_))
                && (load.data_centers.is_empty() || load.data_centers.iter().any(|other| usize::from(*other) == dc))
        });
        there.map(|load| u64::from(load.clients)).sum()
    };
    let mut ways = Vec::new();
    for (a, from) in cluster.regions.iter().enumerate() {
        for (b, to) in cluster.regions.iter().enumerate().filter(|(b, _)| *b != a) {
            let own = cluster.link.iter().rfind(|link| usize::from(link.from) == a && usize::from(link.to) == b).map(|link| link.ms);
            if let Some(ms) = own.or_else(|| Some(cluster.round_trip(a, b)? / 2.0)) {
                ways.push(json!({ "from": from, "to": to, "ms": ms, "jitter_ms": cluster.jitter_ms }));
            }
        }
    }
    let size = |full: bool| {
        experiment.map(|experiment| {
            let (rows, size) = (experiment.rows(full).unwrap_or(usize::MAX), experiment.size(full));
            let each_ms = size.settle_ms + size.warm_ms + size.measure_ms;
            json!({ "rows": rows, "virtual_s": rows as f64 * each_ms as f64 / 1000.0 })
        })
    };
    json!({
        "data_centers": cluster.regions.iter().enumerate().map(|(dc, name)| json!({ "name": name, "inside": cluster.partitions, "clients": clients(dc) })).collect::<Vec<_>>(),
        "ways": ways, "quick": size(false), "full": size(true),
    })
}
