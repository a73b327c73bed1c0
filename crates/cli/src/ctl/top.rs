//! `rheostat ctl top`: what the nodes do now, look after look.

use super::status::headline;
use super::status_of_all;
use crate::Failure;
use crate::connection::{Connection, Node, plain};
use crate::date::span;
use crate::output::{self, say};
use crate::paint::Paint;
use crate::table::{Table, bytes};
use clap::Args;
use rheostat_client::v1;
use rheostat_core::sla::parse_bound;
use rheostat_proto::glance::{Answer, Complaint, complaints, places, without_lost};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

/// At least so many milliseconds between two looks, so that nobody keeps the nodes busy with them.
const SHORTEST_MS: u32 = 100;

/// Arguments of `ctl top`.
#[derive(Args, Debug)]
pub struct Arguments {
    /// Time between two looks, as in 500ms or 5s, at least 100ms
    #[arg(long, value_name = "TIME", value_parser = parse_bound, default_value = "1s")]
    every: u32,
    /// End after so many looks [default: with Ctrl-C]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    count: Option<u32>,
}

pub(super) async fn run(arguments: &Arguments, json: bool, connection: &Connection) -> Result<ExitCode, Failure> {
    if arguments.every < SHORTEST_MS {
        return Err(format!("--every {}ms: at least {SHORTEST_MS}ms", arguments.every));
    }
    let paint = Paint::of_output();
    let on_screen = !json && std::io::stdout().is_terminal();
    let (mut topology, mut nodes) = connection.nodes().await?;
    let mut before: BTreeMap<String, v1::StatusResponse> = BTreeMap::new();
    let mut looks = 0;
    loop {
        // A node that could not be reached is dialled again; while nobody can be, the last topology stands.
        if nodes.iter().any(|node| node.client.is_err())
            && let Ok(found) = connection.nodes().await
        {
            (topology, nodes) = found;
        }
        let answers: Vec<Answer> = status_of_all(&nodes).await.into_iter().map(|answer| answer.map_err(|error| plain(&error))).collect();
        // The first answers are what the others are counted from.
        if !before.is_empty() {
            looks += 1;
            let look = Look::new(&topology, &nodes, &answers, &before);
            match (json, on_screen) {
                (true, _) => output::json(&look.json()),
                // From the top of the screen: each line is replaced, and what is left below goes.
                (_, true) => output::text(&format!("\x1b[H{}\x1b[J", look.text(paint).replace('\n', "\x1b[K\n"))),
                _ => say!("{}", look.text(paint)),
            }
            if arguments.count.is_some_and(|count| looks >= count) || output::reader_is_gone() {
                return Ok(ExitCode::SUCCESS);
            }
        } else if on_screen {
            output::text("\x1b[2J");
        }
        let named = nodes.iter().map(|node| node.info.name.clone());
        before = named.zip(answers).filter_map(|(name, answer)| Some((name, answer.ok()?))).collect();
        if before.is_empty() && looks == 0 {
            return Err("no node answers".to_string());
        }
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(arguments.every.into())) => {}
            _ = tokio::signal::ctrl_c() => return Ok(ExitCode::SUCCESS),
        }
    }
}

/// What was counted between two answers of a node, for each second.
#[derive(Clone, Debug, Default, PartialEq)]
struct Rates {
    reads: f64,
    writes: f64,
    others: f64,
    failed: f64,
    /// Requests by how long they took, by powers of two of microseconds.
    latency: Vec<u64>,
}

const READS: [&str; 2] = ["get", "read_transaction"];
const WRITES: [&str; 4] = ["put", "change", "counter", "transact"];

impl Rates {
    /// Between `before` and `now`; nothing if the node was started in between, or counts nothing.
    fn between(before: &v1::StatusResponse, now: &v1::StatusResponse) -> Option<Rates> {
        let seconds = now.uptime_ms.checked_sub(before.uptime_ms).filter(|ms| *ms > 0)? as f64 / 1000.0;
        let (before, now) = (before.counted.as_ref()?, now.counted.as_ref()?);
        let of = |counts: &[v1::Count], name: &str| counts.iter().find(|one| one.name == name).map_or(0, |one| one.count);
        let more = |now: &[v1::Count], before: &[v1::Count], named: &dyn Fn(&str) -> bool| {
            let kinds = now.iter().filter(|one| named(&one.name));
            kinds.map(|one| one.count.saturating_sub(of(before, &one.name))).sum::<u64>() as f64 / seconds
        };
        let operations = |named: &dyn Fn(&str) -> bool| more(&now.operations, &before.operations, named);
        let latency = now.latency_us.iter().enumerate();
        Some(Rates {
            reads: operations(&|name| READS.contains(&name)),
            writes: operations(&|name| WRITES.contains(&name)),
            others: operations(&|name| !READS.contains(&name) && !WRITES.contains(&name)),
            failed: more(&now.failures, &before.failures, &|_| true),
            latency: latency.map(|(at, count)| count.saturating_sub(before.latency_us.get(at).copied().unwrap_or(0))).collect(),
        })
    }

    /// Below how many microseconds this share of the requests stayed; nothing if there were none, or it took longer than is told apart.
    fn below_us(&self, share: f64) -> Option<u64> {
        let all: u64 = self.latency.iter().sum();
        let wanted = (all as f64 * share).ceil().max(1.0) as u64;
        let mut sum = 0;
        let at = self.latency.iter().position(|count| {
            sum += count;
            sum >= wanted
        })?;
        (at + 1 < self.latency.len()).then(|| 1 << at)
    }
}

/// What a node said, and what it did since it was asked last; or why it said nothing.
type Told<'a> = Result<(&'a v1::StatusResponse, Option<Rates>), &'a str>;

/// One look at all nodes.
struct Look<'a> {
    cluster: &'a str,
    wrong: Vec<Complaint>,
    nodes: Vec<(&'a Node, Told<'a>)>,
    behind: BTreeMap<String, String>,
}

impl<'a> Look<'a> {
    fn new(topology: &'a v1::TopologyResponse, nodes: &'a [Node], answers: &'a [Answer], before: &BTreeMap<String, v1::StatusResponse>) -> Look<'a> {
        let (infos, living, lost) = without_lost(nodes.iter().map(|node| &node.info).collect(), answers.to_vec());
        let behind = places(topology, &infos, &living).into_iter().map(|place| {
            let each = place.behind_ms.iter().map(|(from, ms)| format!("{from} {}", ms.map_or("?".to_string(), span)));
            (place.name.clone(), each.collect::<Vec<_>>().join(", "))
        });
        let rated = |node: &Node, status| before.get(&node.info.name).and_then(|before| Rates::between(before, status));
        let nodes = nodes.iter().zip(answers).filter(|(node, _)| !lost.contains(&node.info.data_center));
        Look {
            cluster: &topology.cluster,
            wrong: complaints(topology, &infos, &living),
            behind: behind.collect(),
            nodes: nodes.map(|(node, answer)| (node, answer.as_ref().map(|status| (status, rated(node, status))).map_err(String::as_str))).collect(),
        }
    }

    fn text(&self, paint: Paint) -> String {
        let mut out = headline(self.cluster, &self.wrong, paint);
        let mut table = Table::new([
            "data center",
            "node",
            "reads/s",
            "writes/s",
            "others/s",
            "failed/s",
            "half below",
            "99 % below",
            "clients",
            "waiting",
            "memory",
        ]);
        for (node, answer) in &self.nodes {
            let mut row = vec![node.info.data_center.clone(), node.info.name.clone()];
            match answer {
                Err(_) => row.push("does not answer".to_string()),
                Ok((status, rates)) => {
                    let rate = |of: fn(&Rates) -> f64| rates.as_ref().map_or("-".to_string(), |rates| format!("{:.0}", of(rates)));
                    let below = |share| rates.as_ref().and_then(|rates| rates.below_us(share)).map_or("-".to_string(), milliseconds);
                    row.extend([rate(|rates| rates.reads), rate(|rates| rates.writes), rate(|rates| rates.others), rate(|rates| rates.failed)]);
                    row.extend([below(0.5), below(0.99)]);
                    let counted = status.counted.clone().unwrap_or_default();
                    let waiting: u64 = status.replicas.iter().map(|replica| replica.waiting).sum();
                    row.extend([counted.connections.to_string(), waiting.to_string(), bytes(counted.memory_bytes)]);
                }
            }
            table.row(row);
        }
        out.push('\n');
        out.push_str(&table.painted(2, paint));
        let behind: Vec<String> =
            self.behind.iter().filter(|(_, of)| !of.is_empty()).map(|(name, of)| format!("  {name} is behind {of}\n")).collect();
        if !behind.is_empty() {
            out.push('\n');
            out.push_str(&behind.concat());
        }
        out
    }

    fn json(&self) -> Value {
        let node = |(node, answer): &(&Node, Told<'_>)| {
            let mut value = json!({ "node": node.info.name, "data_center": node.info.data_center });
            match answer {
                Err(why) => value["error"] = json!(why),
                Ok((status, rates)) => {
                    let counted = status.counted.clone().unwrap_or_default();
                    value["connections"] = json!(counted.connections);
                    value["memory_bytes"] = json!(counted.memory_bytes);
                    value["waiting"] = json!(status.replicas.iter().map(|replica| replica.waiting).sum::<u64>());
                    if let Some(rates) = rates {
                        value["per_second"] = json!({ "reads": rates.reads, "writes": rates.writes, "others": rates.others, "failed": rates.failed });
                        value["below_us"] = json!({ "p50": rates.below_us(0.5), "p99": rates.below_us(0.99) });
                    }
                }
            }
            value
        };
        let wrong = self.wrong.iter().map(|complaint| format!("{}; {}", complaint.what, complaint.next));
        json!({ "cluster": self.cluster, "wrong": wrong.collect::<Vec<_>>(), "nodes": self.nodes.iter().map(node).collect::<Vec<_>>() })
    }
}

fn milliseconds(us: u64) -> String {
    match us {
        ..1000 => format!("{us} us"),
        _ => format!("{:.1} ms", us as f64 / 1000.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(uptime_ms: u64, counts: &[(&str, u64)], failed: u64, latency_us: &[u64]) -> v1::StatusResponse {
        let count = |(name, count): &(&str, u64)| v1::Count { name: name.to_string(), count: *count };
        let counted = v1::Counted {
            operations: counts.iter().map(count).collect(),
            failures: vec![count(&("timeout", failed))],
            latency_us: latency_us.to_vec(),
            ..Default::default()
        };
        v1::StatusResponse { uptime_ms, counted: Some(counted), ..Default::default() }
    }

    #[test]
    fn rates_are_of_what_came_in_between() {
        let before = status(1_000, &[("get", 10), ("put", 5), ("scan", 1)], 2, &[0, 1, 0, 0]);
        let now = status(3_000, &[("get", 30), ("read_transaction", 4), ("put", 5), ("counter", 2), ("scan", 3)], 3, &[0, 1, 98, 2]);
        let rates = Rates::between(&before, &now).unwrap();
        assert_eq!((rates.reads, rates.writes, rates.others, rates.failed), (12.0, 1.0, 1.0, 0.5));
        // 98 took 2 or 3 us; the last bucket has no bound.
        assert_eq!((rates.below_us(0.5), rates.below_us(0.98), rates.below_us(0.99)), (Some(4), Some(4), None));
    }

    #[test]
    fn a_node_that_was_started_in_between_has_no_rates() {
        let before = status(9_000, &[("get", 10)], 0, &[]);
        assert_eq!(Rates::between(&before, &status(1_000, &[("get", 3)], 0, &[])), None);
        assert_eq!(Rates::between(&before, &before), None);
        assert_eq!(Rates::default().below_us(0.5), None);
    }
}
