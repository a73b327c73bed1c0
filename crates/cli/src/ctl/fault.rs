//! `rheostat ctl fault`: making something go wrong for some time, where nodes allow it.

use super::load::{meant, of_all};
use crate::Failure;
use crate::connection::Node;
use crate::date::span;
use crate::output::{self, say};
use clap::{Args, Subcommand};
use rheostat_client::{Client, v1};
use rheostat_core::sla::parse_bound;
use serde_json::{Value, json};
use std::process::ExitCode;
use v1::begin_fault_request::Fault as Begin;
use v1::fault::Fault as Told;

const EXAMPLES: &str = "\
Examples:
  rheostat ctl fault slow-link us-east eu --by 200ms            what passes between them takes 200 ms longer each way, for half a minute
  rheostat ctl fault pause eu-1 --for 5s                        the node stands still
  rheostat ctl fault skew-clock eu-1 --ahead 2s --for 1m        its clock is wrong
  rheostat ctl fault list
  rheostat ctl fault end                                        all of it, now

Nodes refuse it unless their configuration has console.faults = true, as the demo's have.";

/// Arguments of `ctl fault`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Delay what passes between two data centers, each way
    SlowLink {
        /// The one data center
        a: String,
        /// The other data center
        b: String,
        /// How much later it leaves, as in 200ms; at most 10s
        #[arg(long, value_name = "TIME", value_parser = parse_bound)]
        by: u32,
        /// For how long, as in 30s; at most 10m
        #[arg(long = "for", value_name = "TIME", value_parser = parse_bound, default_value = "30s")]
        lasts: u32,
    },
    /// Have the threads that serve a node's partitions and connections stand still
    Pause {
        /// The node
        node: String,
        /// For how long, as in 5s; at most 1m
        #[arg(long = "for", value_name = "TIME", value_parser = parse_bound, default_value = "5s")]
        lasts: u32,
    },
    /// Have a node's clock show something else
    SkewClock {
        /// The node
        node: String,
        /// By how much it is ahead, as in 2s; at most 10m
        #[arg(long, value_name = "TIME", value_parser = parse_bound, required_unless_present = "behind", conflicts_with = "behind")]
        ahead: Option<u32>,
        /// By how much it is behind
        #[arg(long, value_name = "TIME", value_parser = parse_bound)]
        behind: Option<u32>,
        /// For how long, as in 1m; at most 10m
        #[arg(long = "for", value_name = "TIME", value_parser = parse_bound, default_value = "30s")]
        lasts: u32,
    },
    /// What lasts, and how long still
    List,
    /// End what lasts, at all nodes or at one
    End {
        /// Only at this node
        #[arg(long)]
        node: Option<String>,
    },
}

pub(super) async fn run(arguments: &Arguments, json: bool, topology: &v1::TopologyResponse, nodes: &[Node]) -> Result<ExitCode, Failure> {
    let begin = |fault: Begin, lasts: u32| Some(v1::BeginFaultRequest { fault: Some(fault), for_ms: lasts });
    let (meant, request, ends) = match &arguments.command {
        Command::SlowLink { a, b, by, lasts } => {
            if let Some(unknown) = [a, b].into_iter().find(|end| !topology.data_centers.contains(end)) {
                return Err(format!("there is no data center `{unknown}`; there are: {}", topology.data_centers.join(", ")));
            }
            if a == b {
                return Err("a link is between two different data centers".to_string());
            }
            let ends = nodes.iter().filter(|node| [a, b].contains(&&node.info.data_center)).collect();
            (ends, begin(Begin::SlowLink(v1::SlowLinkFault { data_center: a.clone(), other: b.clone(), one_way_ms: *by }), *lasts), false)
        }
        Command::Pause { node, lasts } => (meant(nodes, Some(node))?, begin(Begin::Pause(v1::PauseFault {}), *lasts), false),
        Command::SkewClock { node, ahead, behind, lasts } => {
            let ahead_ms = i64::from(ahead.unwrap_or(0)) - i64::from(behind.unwrap_or(0));
            (meant(nodes, Some(node))?, begin(Begin::Clock(v1::ClockFault { ahead_ms }), *lasts), false)
        }
        Command::List => (nodes.iter().collect(), None, false),
        Command::End { node } => (meant(nodes, node.as_deref())?, None, true),
    };
    let answers = of_all(&meant, move |client: Client| {
        let request = request.clone();
        async move {
            let mut admin = client.admin();
            let answer = match (request, ends) {
                (Some(request), _) => admin.begin_fault(client.request(request)).await?,
                (None, true) => admin.end_fault(client.request(v1::EndFaultRequest { number: None })).await?,
                (None, false) => admin.list_faults(client.request(v1::ListFaultsRequest {})).await?,
            };
            Ok(answer.into_inner())
        }
    })
    .await;
    let failed = answers.iter().any(|(_, answer)| answer.is_err());
    if json {
        let node = |(name, answer): &(String, Result<v1::FaultsResponse, String>)| match answer {
            Ok(answer) => json!({ "node": name, "allowed": answer.allowed, "faults": answer.faults.iter().map(fault_json).collect::<Vec<_>>() }),
            Err(why) => json!({ "node": name, "error": why }),
        };
        output::json(&json!({ "nodes": answers.iter().map(node).collect::<Vec<_>>() }));
        return Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS });
    }
    for (name, answer) in &answers {
        match answer {
            Err(why) => eprintln!("{name}: {why}"),
            Ok(answer) if answer.faults.is_empty() => {
                say!("{name}: nothing{}", if answer.allowed { "" } else { ", and its configuration allows nothing" })
            }
            Ok(answer) => {
                for fault in &answer.faults {
                    say!("{name}: {}, for another {}", words(fault), span(fault.left_ms));
                }
            }
        }
    }
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn words(fault: &v1::Fault) -> String {
    match &fault.fault {
        Some(Told::Pause(v1::PauseFault {})) => "it stands still".into(),
        Some(Told::Clock(clock)) => {
            let way = if clock.ahead_ms > 0 { "ahead" } else { "behind" };
            format!("its clock is {} {way}", span(clock.ahead_ms.unsigned_abs()))
        }
        Some(Told::SlowLink(link)) => format!("what it sends to {} leaves {} later", link.other, span(link.one_way_ms.into())),
        None => "something that this program does not know".into(),
    }
}

fn fault_json(fault: &v1::Fault) -> Value {
    let mut told = json!({ "number": fault.number, "left_ms": fault.left_ms });
    match &fault.fault {
        Some(Told::Pause(v1::PauseFault {})) => told["kind"] = "pause".into(),
        Some(Told::Clock(clock)) => {
            told["kind"] = "clock".into();
            told["ahead_ms"] = clock.ahead_ms.into();
        }
        Some(Told::SlowLink(link)) => {
            told["kind"] = "slow_link".into();
            told["between"] = json!([link.data_center, link.other]);
            told["one_way_ms"] = link.one_way_ms.into();
        }
        None => told["kind"] = "unknown".into(),
    }
    told
}
