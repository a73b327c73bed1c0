//! What replicas cost, and for how long nobody answers when a leader's process is killed: three processes with `replicas = 3` beside one process without, in one run.
//!
//! On one machine all processes and the client share the processors, so beside SETs a second there is the processor time of a SET in each process: it says what machines of their own could do.
//!
//!     cargo run --profile sim -p rheostat --example failover_bench [PROGRAM [KILLS]]
//!
//! And what it costs to ask a node that has to pass operations on, beside the one that runs them: at a follower of three replicas, and at a node that has no server of the partition. Several programs take turns, so that
//! the ratios of two versions are of one run:
//!
//!     cargo run --profile sim -p rheostat --example failover_bench passing PROGRAM...

use rheostat_client::{Client, Options, v1};
use rheostat_cluster::description::{DataCenter, ListedNode};
use rheostat_cluster::{Description, Processes};
use rheostat_server::config::{DurabilityConfig, KeyspaceConfig};
use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// How long SETs are counted.
const COUNTED: Duration = Duration::from_secs(5);
/// Few, so that a SET's latency counts; and many.
const CONNECTIONS: [usize; 2] = [20, 200];
const PIPELINE: usize = 16;

/// How often each program has its turn where operations are passed on.
const ROUNDS: usize = 5;

fn description(name: &str, replicas: u8, nodes: u8, durability: DurabilityConfig) -> Description {
    let owned = |node: u8| ListedNode { partitions: Some(if node == 0 { vec![0] } else { Vec::new() }), ..ListedNode::default() };
    let keyspace = rheostat_cluster::nodes::keyspace("default", "causal").map(|keyspace| KeyspaceConfig { replicas, durability, ..keyspace });
    Description {
        partitions: 1,
        shards: 1,
        keyspaces: keyspace.into_iter().collect(),
        data_centers: vec![DataCenter { name: "here".into(), listed: (0..nodes).map(owned).collect(), ..DataCenter::default() }],
        ..Description::new(name, &[])
    }
}

async fn client(address: &str) -> Result<Client> {
    let options = Options { deadline: Duration::from_millis(250), read_retries: 0, ..Options::new([address]) };
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        match Client::connect_with(options.clone()).await {
            Ok(client) => return Ok(client),
            Err(error) if Instant::now() > until => return Err(error.into()),
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

/// The node that leads the partition.
async fn leader(nodes: &Processes) -> Result<usize> {
    let until = Instant::now() + Duration::from_secs(60);
    while Instant::now() < until {
        for (index, node) in nodes.nodes.iter().enumerate() {
            let client = client(&node.address(node.ports.grpc)).await?;
            let Ok(status) = client.admin().status(client.request(v1::StatusRequest {})).await else { continue };
            let leads = |gauge: &v1::Gauge| gauge.name == "leader" && gauge.value == 1.0;
            if status.into_inner().replicas.iter().any(|replica| replica.gauges.iter().any(leads)) {
                return Ok(index);
            }
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Err("nobody leads".into())
}

/// What is asked in pipelines.
#[derive(Clone, Copy)]
enum Asked {
    Set,
    Get,
}

/// SETs or GETs a second over connections with pipelines.
async fn throughput(address: &str, connections: usize, asked: Asked, counted: Duration) -> Result<f64> {
    let mut tasks = Vec::new();
    for number in 0..connections {
        let address = address.to_owned();
        tasks.push(tokio::spawn(async move {
            let Ok(mut stream) = TcpStream::connect(&address).await else { return 0 };
            let key = |place| format!("$10\r\nk{:09}\r\n", number * 1000 + place);
            let request = |place| match asked {
                Asked::Set => format!("*3\r\n$3\r\nSET\r\n{}$16\r\n0123456789abcdef\r\n", key(place)),
                Asked::Get => format!("*2\r\n$3\r\nGET\r\n{}", key(place)),
            };
            // `+OK`, or the value that a SET before has left; and its end.
            let answer = if matches!(asked, Asked::Set) { 5 } else { 23 };
            let requests: String = (0..PIPELINE).map(request).collect();
            let (began, mut done, mut read) = (Instant::now(), 0, vec![0; 4096]);
            while began.elapsed() < counted {
                if stream.write_all(requests.as_bytes()).await.is_err() {
                    return done;
                }
                let mut bytes = 0;
                while bytes < answer * PIPELINE {
                    match stream.read(&mut read).await {
                        Ok(more @ 1..) if read[0] != b'-' => bytes += more,
                        _ => return done,
                    }
                }
                done += PIPELINE;
            }
            done
        }));
    }
    let mut done = 0;
    for task in tasks {
        done += task.await?;
    }
    Ok(done as f64 / counted.as_secs_f64())
}

/// The processor time that each process has used, in microseconds: what the kernel has counted of its threads.
fn processor_us(nodes: &Processes) -> Result<Vec<f64>> {
    let used = |pid| -> Result<f64> {
        let mut sum = 0.0;
        for thread in std::fs::read_dir(format!("/proc/{pid}/task"))? {
            let counted = std::fs::read_to_string(thread?.path().join("schedstat"))?;
            sum += counted.split_whitespace().next().unwrap_or_default().parse::<f64>()?;
        }
        Ok(sum / 1e3)
    };
    (0..nodes.nodes.len()).map(|node| used(nodes.pid(node).ok_or("a process has ended")?)).collect()
}

/// The latency of one SET after the other, in microseconds, sorted.
async fn latencies(address: &str, pipeline: usize) -> Result<Vec<u128>> {
    let mut stream = TcpStream::connect(address).await?;
    let (mut found, mut read) = (Vec::new(), vec![0; 5 * pipeline]);
    let requests = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n".repeat(pipeline);
    for _ in 0..2_000 / pipeline {
        let began = Instant::now();
        stream.write_all(&requests).await?;
        stream.read_exact(&mut read).await?;
        found.push(began.elapsed().as_micros());
    }
    found.sort_unstable();
    Ok(found)
}

/// The longest time without an answer when the leader is killed, at another node, in milliseconds.
async fn outage(nodes: &mut Processes) -> Result<u128> {
    let killed = leader(nodes).await?;
    let other = (killed + 1) % nodes.nodes.len();
    let client = client(&nodes.nodes[other].address(nodes.nodes[other].ports.grpc)).await?;
    let mut session = client.session("default");
    let until = Instant::now() + Duration::from_secs(60);
    while session.put("k", "before").await.is_err() && Instant::now() < until {}
    let mut last = Instant::now();
    let killing = Instant::now();
    nodes.kill(killed);
    let mut longest = Duration::ZERO;
    while killing.elapsed() < Duration::from_secs(3) {
        if session.put("k", "after").await.is_ok() {
            longest = longest.max(last.elapsed());
            last = Instant::now();
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    nodes.restart(killed)?;
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    Ok(longest.as_millis())
}

/// What was found in one turn: one SET and a pipeline of them, in microseconds at the median, and SETs and GETs a second in pipelines.
type Found = [f64; 4];

async fn asked_at(address: &str) -> Result<Found> {
    let counted = Duration::from_secs(2);
    let set = throughput(address, CONNECTIONS[0], Asked::Set, counted).await?;
    let get = throughput(address, CONNECTIONS[0], Asked::Get, counted).await?;
    let (one, many) = (latencies(address, 1).await?, latencies(address, PIPELINE).await?);
    Ok([one[one.len() / 2] as f64, many[many.len() / 2] as f64, set, get])
}

/// What it costs to ask a node that passes operations on.
async fn passing(programs: &[String]) -> Result<()> {
    let folder = std::env::temp_dir().join(format!("rheostat-passing-{}", std::process::id()));
    for (replicas, count, what) in [(3, 3, "three replicas"), (1, 2, "two nodes, no replicas")] {
        // By program: at the node that runs operations, and at another one.
        let mut found: Vec<[Vec<Found>; 2]> = programs.iter().map(|_| Default::default()).collect();
        for round in 0..ROUNDS {
            for (number, program) in programs.iter().enumerate() {
                let place = folder.join(format!("{replicas}-{round}-{number}"));
                let nodes = Processes::start(&description("bench", replicas, count, DurabilityConfig::Interval), Path::new(program), &place).await?;
                let at = if replicas == 1 { 0 } else { leader(&nodes).await? };
                for (other, found) in found[number].iter_mut().enumerate() {
                    let node = &nodes.nodes[(at + other) % nodes.nodes.len()];
                    found.push(asked_at(&node.address(node.ports.resp)).await?);
                }
            }
        }
        for (program, found) in programs.iter().zip(&found) {
            for (found, place) in found.iter().zip(["where they run", "at another node"]) {
                let median = |of: usize| {
                    let mut all: Vec<f64> = found.iter().map(|found| found[of]).collect();
                    all.sort_by(f64::total_cmp);
                    all[all.len() / 2]
                };
                let [one, many, set, get] = [median(0), median(1), median(2) / 1e3, median(3) / 1e3];
                println!(
                    "{what}, {program}, {place}: one SET {one:.0} us, {PIPELINE} in a pipeline {many:.0} us; {set:.1} thousand SETs, {get:.1} thousand GETs a second in pipelines of {PIPELINE}"
                );
            }
        }
    }
    Ok(std::fs::remove_dir_all(folder)?)
}

#[tokio::main]
async fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1).peekable();
    if arguments.next_if(|first| first == "passing").is_some() {
        return passing(&arguments.collect::<Vec<_>>()).await;
    }
    let program = arguments.next().unwrap_or_else(|| "target/sim/rheostat".into());
    let kills: usize = arguments.next().map_or(Ok(20), |kills| kills.parse())?;
    let folder = std::env::temp_dir().join(format!("rheostat-failover-{}", std::process::id()));
    for durability in [DurabilityConfig::Interval, DurabilityConfig::Always] {
        // SETs a second, and processor time of each.
        let mut alone = [(0.0, 0.0); 2];
        for replicas in [1, 3] {
            let place = folder.join(format!("{durability:?}-{replicas}"));
            let mut nodes = Processes::start(&description("bench", replicas, replicas, durability), Path::new(&program), &place).await?;
            let at = if replicas == 1 { 0 } else { leader(&nodes).await? };
            let address = nodes.nodes[at].address(nodes.nodes[at].ports.resp);
            throughput(&address, CONNECTIONS[0], Asked::Set, COUNTED).await?;
            for (connections, alone) in CONNECTIONS.into_iter().zip(&mut alone) {
                let before = processor_us(&nodes)?;
                let rate = throughput(&address, connections, Asked::Set, COUNTED).await?;
                let sets = rate * COUNTED.as_secs_f64();
                let cost: Vec<f64> = processor_us(&nodes)?.iter().zip(&before).map(|(after, before)| (after - before) / sets).collect();
                let lead = cost[at];
                if replicas == 1 {
                    *alone = (rate, lead);
                }
                let others = (cost.iter().sum::<f64>() - lead) / f64::from(replicas.max(2) - 1);
                println!(
                    "{durability:?}, {replicas} processes, {connections} connections: {:.0} thousand SETs a second ({:.2} of one), {lead:.2} us of processor time each where they are led ({:.2} of one), {others:.2} us at each other",
                    rate / 1e3,
                    rate / alone.0,
                    alone.1 / lead,
                );
            }
            let one = latencies(&address, 1).await?;
            println!(
                "{durability:?}, {replicas} processes: one SET {} us at the median, {} us at p99",
                one[one.len() / 2],
                one[one.len() * 99 / 100]
            );
            if replicas == 3 && durability == DurabilityConfig::Interval && kills > 0 {
                let mut outages = Vec::new();
                for _ in 0..kills {
                    outages.push(outage(&mut nodes).await?);
                }
                outages.sort_unstable();
                let (median, last) = (outages[outages.len() / 2], outages[outages.len() - 1]);
                println!("{kills} leaders killed: without an answer for {median} ms at the median, {last} ms at most: {outages:?}");
            }
        }
    }
    Ok(std::fs::remove_dir_all(folder)?)
}
