//! Who does what is in the course, and puts it right again: signals to processes, and commands as an operator gives them.

use crate::course::{Act, Episode, NodeAt};
use crate::world::KEYSPACE;
use rheostat_cluster::processes::Signal;
use rheostat_cluster::ready::{options, statuses};
use rheostat_cluster::{Description, Processes};
use serde_json::Value;
use std::path::PathBuf;
use std::time::Duration;
use tokio::process::Command;
use tokio::time::Instant;

/// How long a command may take.
const COMMAND: Duration = Duration::from_secs(90);

/// How long a data center is gone before an operator gives it up.
const UNNOTICED: Duration = Duration::from_secs(2);

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(200);

/// The nodes, and how they are told.
pub(crate) struct Operator {
    pub(crate) processes: Processes,
    pub(crate) program: PathBuf,
    pub(crate) description: Description,
    /// How long a node may take until it serves again.
    pub(crate) patience: Duration,
    /// Commands that had to be given more than once since somebody last asked, in words.
    pub(crate) repeated: Vec<String>,
}

/// A part of an act.
#[derive(Clone, Copy, Debug)]
enum Step {
    Begin(Act),
    End(Act),
}

/// When each part of an episode's acts is done, in milliseconds from its beginning.
fn steps(episode: &Episode) -> Vec<(u64, Step)> {
    let mut steps = Vec::new();
    for (from, act) in &episode.acts {
        steps.push((*from, Step::Begin(*act)));
        match act {
            Act::Kill(_, lasts) | Act::Stop(_, lasts) | Act::Pause(_, lasts) | Act::Cut(_, lasts) => steps.push((from + lasts, Step::End(*act))),
            // They end by themselves: the node sees to that.
            Act::Slow(.., lasts) | Act::Clock(.., lasts) => steps.push((from + lasts, Step::End(*act))),
            Act::Move(..) | Act::Wipe(_) | Act::Join(_) | Act::Empty(_) | Act::Split | Act::Lose(_) => {}
        }
    }
    steps.sort_by_key(|(at, _)| *at);
    steps
}

/// What came of telling all nodes of two data centers. Where something else goes wrong beside, one can be away, which is not told and forgets what it knew; otherwise a fault that did not come to be would
/// pass for one that was survived.
fn told(done: Result<(), String>, alone: bool) -> Result<(), String> {
    if alone { done } else { Ok(()) }
}

impl Operator {
    /// The place of a node among all.
    pub(crate) fn index(&self, node: NodeAt) -> usize {
        self.description.data_centers[..node.dc].iter().map(|data_center| data_center.size()).sum::<usize>() + node.place
    }

    /// The name of a node.
    pub(crate) fn name(&self, node: NodeAt) -> &str {
        &self.processes.nodes[self.index(node)].config.node
    }

    /// Does what is in `episode`, and waits until all nodes serve again.
    ///
    /// # Errors
    /// In words: what an operator would not put up with.
    pub(crate) async fn run(&mut self, episode: &Episode) -> Result<(), String> {
        let done = self.go_through(episode).await;
        if done.is_err() {
            self.put_right(episode).await;
        }
        done
    }

    /// Ends what an episode that broke off has left, so that it does not pass for something that is found. Whoever waits for the nodes tells what cannot be ended.
    async fn put_right(&mut self, episode: &Episode) {
        for (_, act) in &episode.acts {
            let left = match *act {
                Act::Kill(node, _) | Act::Stop(node, _) | Act::Empty(node) => vec![self.index(node)],
                Act::Split => (0..self.processes.nodes.len()).collect(),
                _ => Vec::new(),
            };
            for index in left {
                if self.processes.pid(index).is_none() {
                    let _ = self.processes.restart(index);
                }
            }
            match *act {
                Act::Pause(node, _) => drop(self.processes.signal(self.index(node), Signal::CONT)),
                Act::Cut(ends, _) => drop(self.link("resume-link", ends).await),
                _ => {}
            }
        }
    }

    async fn go_through(&mut self, episode: &Episode) -> Result<(), String> {
        let (began, alone) = (Instant::now(), episode.acts.len() == 1);
        for (at_ms, step) in steps(episode) {
            tokio::time::sleep_until(began + Duration::from_millis(at_ms)).await;
            match step {
                Step::Begin(act) => self.begin(act, alone).await?,
                Step::End(act) => self.end(act, alone).await?,
            }
        }
        self.ready().await?;
        for (_, act) in &episode.acts {
            if let Act::Cut([a, b], _) = act {
                self.link("resume-link", [*a, *b]).await?;
            }
        }
        Ok(())
    }

    async fn begin(&mut self, act: Act, alone: bool) -> Result<(), String> {
        match act {
            Act::Kill(node, _) => self.processes.kill(self.index(node)),
            Act::Stop(node, _) => self.processes.stop(self.index(node)).await?,
            Act::Pause(node, _) => self.processes.signal(self.index(node), Signal::STOP)?,
            Act::Cut(ends, _) => told(self.link("pause-link", ends).await, alone)?,
            Act::Slow([a, b], by, lasts) => {
                let (a, b) = (self.data_center(a), self.data_center(b));
                let slowed = self.ctl(&["fault", "slow-link", &a, &b, "--by", &format!("{by}ms"), "--for", &format!("{lasts}ms")]).await;
                told(slowed.map(drop), alone)?;
            }
            Act::Clock(node, by, lasts) => {
                let (name, where_) = (self.name(node).to_owned(), if by < 0 { "--behind" } else { "--ahead" });
                let (by, lasts) = (format!("{}ms", by.unsigned_abs()), format!("{lasts}ms"));
                self.ctl(&["fault", "skew-clock", &name, where_, &by, "--for", &lasts]).await?;
            }
            Act::Wipe(node) => {
                let index = self.index(node);
                self.processes.kill(index);
                self.processes.restart_emptied(index).await?;
            }
            Act::Move(dc, number) => self.move_one(dc, number).await?,
            Act::Join(_) => self.again(&["seats", "spread"]).await?,
            Act::Empty(node) => {
                let (index, name) = (self.index(node), self.name(node).to_owned());
                self.processes.kill(index);
                self.again(&["seats", "empty", &name]).await?;
                self.processes.restart(index)?;
                self.ready().await?;
                self.again(&["seats", "spread"]).await?;
            }
            Act::Split => self.split().await?,
            Act::Lose(dc) => {
                let name = self.data_center(dc);
                self.nodes_of(dc).into_iter().for_each(|index| self.processes.kill(index));
                // The others notice, and go on as far as they can.
                tokio::time::sleep(UNNOTICED).await;
                self.again(&["dc", "lost", &name, "--yes"]).await?;
            }
        }
        Ok(())
    }

    async fn end(&mut self, act: Act, alone: bool) -> Result<(), String> {
        match act {
            Act::Kill(node, _) | Act::Stop(node, _) => self.processes.restart(self.index(node)),
            Act::Pause(node, _) => self.processes.signal(self.index(node), Signal::CONT),
            // It is said once more when all are back.
            Act::Cut(ends, _) => told(self.link("resume-link", ends).await, alone),
            Act::Slow(..) | Act::Clock(..) | Act::Move(..) | Act::Wipe(_) | Act::Join(_) | Act::Empty(_) | Act::Split | Act::Lose(_) => Ok(()),
        }
    }

    /// The places of the nodes of data center `dc` among all.
    fn nodes_of(&self, dc: usize) -> Vec<usize> {
        let name = self.data_center(dc);
        (0..self.processes.nodes.len()).filter(|index| self.processes.nodes[*index].config.data_center == name).collect()
    }

    /// Has each data center start with twice as many partitions, one after the other: the next one when the nodes of the one before answer.
    async fn split(&mut self) -> Result<(), String> {
        self.description.first_partitions = Some(self.description.made_with());
        self.description.partitions *= 2;
        self.processes.describe(&self.description)?;
        let options = options(&self.description)?;
        for dc in 0..self.description.data_centers.len() {
            let (there, until) = (self.nodes_of(dc), Instant::now() + self.patience);
            for index in &there {
                self.processes.stop(*index).await?;
            }
            there.iter().try_for_each(|index| self.processes.restart(*index))?;
            let nodes: Vec<_> = there.iter().map(|index| self.processes.nodes[*index].clone()).collect();
            while let Some(why) = statuses(&options, &nodes).await.into_iter().find_map(Result::err) {
                self.processes.check()?;
                if Instant::now() >= until {
                    return Err(format!("{} does not answer {} s after it was to be split: {why}", self.data_center(dc), self.patience.as_secs()));
                }
                tokio::time::sleep(PAUSE).await;
            }
        }
        Ok(())
    }

    /// Waits until every node serves, and each server counts in its group.
    ///
    /// # Errors
    /// In words: what is missing.
    pub(crate) async fn ready(&mut self) -> Result<(), String> {
        let until = Instant::now() + self.patience;
        self.processes.ready(self.patience).await?;
        let options = options(&self.description)?;
        loop {
            let statuses = statuses(&options, &self.processes.nodes).await;
            let away =
                |gauge: &&rheostat_client::v1::Gauge| ["member_is_nobody", "member_is_learner"].contains(&gauge.name.as_str()) && gauge.value > 0.0;
            // Nodes that were killed for good do not answer.
            let servers = statuses.iter().flatten().flat_map(|status| &status.replicas);
            let waited_for = servers.filter_map(|server| Some((server, server.gauges.iter().find(away)?))).next();
            let Some((server, gauge)) = waited_for else { return Ok(()) };
            if Instant::now() >= until {
                let (keyspace, partition, replica) = (&server.keyspace, server.partition, server.replica);
                return Err(format!(
                    "{keyspace}, partition {partition}, replica {replica}: still {} after {} s",
                    gauge.name,
                    self.patience.as_secs()
                ));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Moves a server of data center `dc` to a node there that has none of its partition; `number` chooses.
    async fn move_one(&mut self, dc: usize, number: u64) -> Result<(), String> {
        let name = self.data_center(dc);
        let said = self.ctl(&["--json", "seats"]).await?;
        let seats: Vec<Value> = serde_json::from_str(&said).map_err(|error| format!("ctl seats: {error}"))?;
        let held: Vec<(u64, &str)> = seats
            .iter()
            .filter(|seat| seat["data_center"] == *name)
            .filter_map(|seat| Some((seat["partition"].as_u64()?, seat["node"].as_str()?)))
            .collect();
        let nodes = self.processes.nodes.iter().filter(|node| node.config.data_center == name).map(|node| node.config.node.as_str());
        let nodes: Vec<&str> = nodes.collect();
        let moves: Vec<(u64, &str, &str)> = held
            .iter()
            .flat_map(|(partition, from)| nodes.iter().map(move |to| (*partition, *from, *to)))
            .filter(|(partition, _, to)| !held.contains(&(*partition, *to)))
            .collect();
        let (partition, from, to) =
            *moves.get((number % moves.len().max(1) as u64) as usize).ok_or_else(|| format!("nothing can move in {name}: {said}"))?;
        let (from, to) = (from.to_owned(), to.to_owned());
        self.again(&["seats", "move", KEYSPACE, &partition.to_string(), &from, &to]).await
    }

    fn data_center(&self, dc: usize) -> String {
        self.description.data_centers[dc].name.clone()
    }

    async fn link(&self, what: &str, [a, b]: [usize; 2]) -> Result<(), String> {
        let (a, b) = (self.data_center(a), self.data_center(b));
        self.ctl(&[what, &a, &b]).await.map(drop)
    }

    /// A command that is safe to repeat, until it succeeds.
    async fn again(&mut self, arguments: &[&str]) -> Result<(), String> {
        let (began, mut failed, mut last) = (Instant::now(), 0, String::new());
        loop {
            let done = self.ctl(arguments).await;
            let waited = began.elapsed();
            match done {
                Err(why) if waited >= self.patience => return Err(why),
                Err(why) => {
                    (failed, last) = (failed + 1, why);
                    tokio::time::sleep(PAUSE).await;
                }
                Ok(_) => {
                    if failed > 0 {
                        self.repeated.push(format!("failed {failed} times in {:.1} s, the last time as {last}", waited.as_secs_f64()));
                    }
                    return Ok(());
                }
            }
        }
    }

    /// What `rheostat ctl ARGUMENTS` says, asked of any node that runs.
    async fn ctl(&self, arguments: &[&str]) -> Result<String, String> {
        let mut command = Command::new(&self.program);
        command.arg("ctl");
        for (_, node) in self.processes.nodes.iter().enumerate().filter(|(index, _)| self.processes.pid(*index).is_some()) {
            command.args(["--address", &node.address(node.ports.grpc)]);
        }
        command.args(arguments).env_remove("RHEOSTAT_ADDRESS").env_remove("RHEOSTAT_LOG").stdin(std::process::Stdio::null()).kill_on_drop(true);
        let words = arguments.join(" ");
        let output =
            tokio::time::timeout(COMMAND, command.output()).await.map_err(|_| format!("ctl {words}: no end after {} s", COMMAND.as_secs()))?;
        let output = output.map_err(|error| format!("{}: {error}", self.program.display()))?;
        let [said, why] = [&output.stdout[..], &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        if output.status.success() { Ok(said) } else { Err(format!("ctl {words}: {}{}", said, why.trim_end())) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_begins_ends_and_in_the_order_of_time() {
        let node = NodeAt { dc: 0, place: 1 };
        let episode = Episode { at_ms: 0, acts: vec![(0, Act::Kill(node, 900)), (300, Act::Cut([0, 1], 200))] };
        let all: Vec<(u64, bool)> = steps(&episode).iter().map(|(at, step)| (*at, matches!(step, Step::Begin(_)))).collect();
        assert_eq!(all, [(0, true), (300, true), (500, false), (900, false)]);
    }
}
