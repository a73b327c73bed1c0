//! A cluster of processes that belong to this one: for experiments and tests.

use crate::description::Description;
use crate::fleet::longest_stop;
use crate::nodes::Planned;
use crate::place::Place;
use crate::ports::{Block, Ports};
use crate::ready::{lacks, options, statuses};
use rheostat_server::config::NodeConfig;
use rustix::process::{Pid, kill_process};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;
use tokio::time::Instant;

pub use rustix::process::Signal;

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(50);

/// How long a process may take to end cleanly before it is killed, beyond what it allows itself.
const GRACE: Duration = Duration::from_secs(15);

/// A cluster of processes on loopback. When this is dropped they are killed; when this process dies, they end by themselves.
#[derive(Debug)]
pub struct Processes {
    /// The nodes, in the order of the description.
    pub nodes: Vec<Planned>,
    program: PathBuf,
    places: Vec<Place>,
    children: Vec<Option<Child>>,
    description: Description,
    blocks: Vec<Block>,
}

fn free_ports(nodes: usize) -> Result<Block, String> {
    Block::of_nodes(nodes).map_err(|error| format!("no free ports: {error}"))
}

impl Processes {
    /// Starts the nodes of `description` at free ports, `program` being `rheostat`, each in a folder of its own in `folder`.
    ///
    /// # Errors
    /// In words. Nothing is left running.
    pub async fn start(description: &Description, program: &Path, folder: &Path) -> Result<Processes, String> {
        let count = description.data_centers.iter().map(|data_center| data_center.size()).sum();
        let block = free_ports(count)?;
        let nodes = description.nodes(Some(&block.nodes().collect::<Vec<_>>())).map_err(|error| error.to_string())?;
        let places: Vec<Place> = nodes.iter().map(|node| Place::new(folder.join(&node.config.node))).collect();
        let children = nodes.iter().map(|_| None).collect();
        let mut cluster = Processes { nodes, program: program.to_owned(), places, children, description: description.clone(), blocks: vec![block] };
        for (node, place) in cluster.nodes.iter().zip(&cluster.places) {
            write(place, &node.config)?;
        }
        for index in 0..count {
            cluster.restart(index)?;
        }
        for index in 0..count {
            cluster.settle(index).await?;
        }
        Ok(cluster)
    }

    /// Takes the configurations that follow from `description` for the next starts. Its first nodes are those that there are, at their ports; those that follow are not started yet.
    ///
    /// # Errors
    /// In words; then nothing has changed, or not all files were written.
    pub fn describe(&mut self, description: &Description) -> Result<(), String> {
        let count: usize = description.data_centers.iter().map(|data_center| data_center.size()).sum();
        let block = free_ports(count.saturating_sub(self.nodes.len()))?;
        let ports: Vec<Ports> = self.nodes.iter().map(|node| node.ports).chain(block.nodes()).collect();
        let nodes = description.nodes(Some(&ports)).map_err(|error| error.to_string())?;
        if let Some((before, now)) = self.nodes.iter().zip(&nodes).find(|(before, now)| before.config.node != now.config.node) {
            return Err(format!("node {} would be {}", before.config.node, now.config.node));
        }
        let folder = self.places.first().and_then(|place| place.config().parent()?.parent().map(Path::to_owned)).unwrap_or_default();
        self.places = nodes.iter().map(|node| Place::new(folder.join(&node.config.node))).collect();
        for (node, place) in nodes.iter().zip(&self.places) {
            write(place, &node.config)?;
        }
        self.children.resize_with(count, || None);
        self.blocks.push(block);
        (self.nodes, self.description) = (nodes, description.clone());
        Ok(())
    }

    /// Waits until the process of node `index` says that it runs.
    async fn settle(&mut self, index: usize) -> Result<(), String> {
        let Some(child) = self.children[index].take() else { return Ok(()) };
        self.children[index] = Some(self.places[index].started(child, 0).await?.child);
        Ok(())
    }

    /// Waits until every node that runs serves and is connected with the others, but for those of data centers that were given up.
    ///
    /// # Errors
    /// In words: what is missing after `patience`, or that a process has ended.
    pub async fn ready(&mut self, patience: Duration) -> Result<(), String> {
        let options = options(&self.description)?;
        let until = Instant::now() + patience;
        loop {
            let lacks = lacks(&self.nodes, &statuses(&options, &self.nodes).await, |_, _| true, false);
            let running = self.nodes.iter().zip(&self.children).zip(lacks).filter(|((_, child), _)| child.is_some());
            let Some((node, lack)) = running.map(|((node, _), lack)| (node, lack)).find_map(|(node, lack)| Some((node, lack?))) else {
                return Ok(());
            };
            let name = node.config.node.clone();
            self.check()?;
            if Instant::now() >= until {
                return Err(format!("node {name} is not ready after {} s: {lack}", patience.as_secs()));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Whether all processes that should run do.
    ///
    /// # Errors
    /// In words: the first that has ended, with the end of its log.
    pub fn check(&mut self) -> Result<(), String> {
        for (index, child) in self.children.iter_mut().enumerate() {
            if let Some(Ok(Some(status))) = child.as_mut().map(Child::try_wait) {
                let words = self.places[index].tail(10).map(|(text, _)| text).unwrap_or_default();
                return Err(format!("node {} has ended: {status}\n{}", self.nodes[index].config.node, words.trim_end()));
            }
        }
        Ok(())
    }

    /// Kills the process of node `index` at once.
    pub fn kill(&mut self, index: usize) {
        if let Some(mut child) = self.children[index].take() {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Starts node `index` again, whose process has been killed.
    ///
    /// # Errors
    /// In words.
    pub fn restart(&mut self, index: usize) -> Result<(), String> {
        self.children[index] = Some(self.places[index].spawn(&self.program, true)?);
        Ok(())
    }

    /// Asks the process of node `index` to end (SIGTERM), and waits until it has.
    ///
    /// # Errors
    /// In words: it does not run, or did not end in the time that it allows itself and some more; then it was killed.
    pub async fn stop(&mut self, index: usize) -> Result<(), String> {
        self.signal(index, Signal::TERM)?;
        let until = Instant::now() + GRACE + longest_stop(&self.description.limits);
        while self.children[index].as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None))) {
            if Instant::now() >= until {
                self.kill(index);
                return Err(format!("node {} does not end", self.nodes[index].config.node));
            }
            tokio::time::sleep(PAUSE).await;
        }
        self.children[index] = None;
        Ok(())
    }

    /// Starts node `index`, whose process has been killed, as one that has lost its disk and is told so (`accept_lost_writes`, for this start only).
    ///
    /// # Errors
    /// In words.
    pub async fn restart_emptied(&mut self, index: usize) -> Result<(), String> {
        let (place, mut config) = (self.places[index].clone(), self.nodes[index].config.clone());
        let data = config.data_dir.as_ref().ok_or_else(|| format!("node {} has no disk", config.node))?;
        let data = place.config().with_file_name(data);
        std::fs::remove_dir_all(&data).map_err(|error| format!("{}: {error}", data.display()))?;
        config.accept_lost_writes = true;
        write(&place, &config)?;
        self.restart(index)?;
        // It has read its configuration when it says that it runs.
        let started = self.settle(index).await;
        config.accept_lost_writes = false;
        write(&place, &config)?;
        started
    }

    /// Nodes that are started from now on are this `program`: another release of `rheostat`.
    pub fn set_program(&mut self, program: &Path) {
        program.clone_into(&mut self.program);
    }

    /// Sends the process of node `index` a signal: to stop and to continue it.
    ///
    /// # Errors
    /// In words: it does not run.
    pub fn signal(&self, index: usize, signal: Signal) -> Result<(), String> {
        let pid = self.pid(index).ok_or_else(|| format!("node {} does not run", self.nodes[index].config.node))?;
        kill_process(pid, signal).map_err(|error| format!("node {}: {error}", self.nodes[index].config.node))
    }

    /// The process of node `index`, if it runs.
    pub fn pid(&self, index: usize) -> Option<Pid> {
        self.children[index].as_ref().and_then(|child| i32::try_from(child.id()).ok()).and_then(Pid::from_raw)
    }

    /// Ends all processes cleanly, and kills those that do not end in time.
    pub async fn end(mut self) {
        for index in 0..self.children.len() {
            // One that has ended cannot be told.
            let _ = self.signal(index, Signal::TERM);
        }
        let until = Instant::now() + GRACE + longest_stop(&self.description.limits);
        while Instant::now() < until && self.children.iter_mut().flatten().any(|child| matches!(child.try_wait(), Ok(None))) {
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// Writes the configuration of a node for its next start.
fn write(place: &Place, config: &NodeConfig) -> Result<(), String> {
    let text = toml::to_string(config).map_err(|error| error.to_string())?;
    place.write(&text).map_err(|error| format!("{}: {error}", place.config().display()))
}

impl Drop for Processes {
    fn drop(&mut self) {
        for index in 0..self.children.len() {
            self.kill(index);
        }
    }
}
