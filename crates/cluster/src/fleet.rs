//! All nodes of a cluster file, each at its place: on this machine, or on another over SSH.

use crate::description::Description;
use crate::nodes::Planned;
use crate::pid_file::Running;
use crate::place::{Down, Piece, Place, Up};
use crate::ready::{lacks, options, prepare_split, statuses};
use crate::remote::{Remote, SSH_PATIENCE, is_remote};
use futures::future::try_join_all;
use rheostat_client::{Client, Options, v1};
use rheostat_server::config::{KeyspaceConfig, Limits};
use rheostat_server::parts_of_each;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Between two looks whether nodes are ready.
const PAUSE: Duration = Duration::from_millis(100);

/// Between two looks whether the processes of nodes that do not answer still run.
const LOOK: Duration = Duration::from_secs(2);

/// Pieces of logs that wait to be shown.
pub const PIECES: usize = 64;

/// How long a node may take to end, beyond [`longest_stop`].
const GRACE: Duration = Duration::from_secs(30);

/// Where a node's process runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// On this machine.
    Here(Place),
    /// On another, or on this one as if it were.
    There(Remote),
}

/// A node and its place.
#[derive(Clone, Debug)]
pub struct Member {
    /// The node.
    pub planned: Planned,
    /// Its configuration as TOML.
    pub text: String,
    /// Its place.
    pub access: Access,
}

/// What came of starting a node: its process, and whether that ran already.
pub type Begun = (Running, bool);

/// Something that happens to a node while the fleet is started, or started again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Its process was ended, or there was none.
    Down(Down),
    /// Its process runs.
    Begun(Begun),
    /// It prepares its split, and has copied so many keys.
    Preparing(u64),
    /// It has prepared its split, and has copied so many keys for that.
    Prepared(u64),
    /// Its release does not know how to prepare a split, or it has too little memory for it: the start does all of it.
    NotPrepared,
    /// It serves.
    Ready,
}

/// The nodes of a cluster file: all of them, or those that were chosen.
#[derive(Clone, Debug)]
pub struct Fleet {
    /// The cluster.
    pub description: Description,
    /// The nodes that are meant.
    pub members: Vec<Member>,
    /// All nodes.
    nodes: Vec<Planned>,
    program: PathBuf,
}

/// How long a node waits, when it is to end, for what is under way: first that of gRPC, then that of RESP.
pub(crate) fn longest_stop(limits: &Limits) -> Duration {
    2 * Duration::from_millis(limits.stop_timeout_ms)
}

/// A line as [`Member::action`] of another machine prints it.
pub fn answer(word: &str, running: Option<Running>) -> String {
    running.map_or_else(|| word.to_owned(), |running| format!("{word} {} {}", running.pid, running.since_ms))
}

/// What [`answer`] made.
fn parse_answer(line: &str) -> Option<(String, Option<Running>)> {
    let words: Vec<&str> = line.trim_end().split(' ').collect();
    match words[..] {
        [word] if !word.is_empty() => Some((word.to_owned(), None)),
        [word, pid, since_ms] => Some((word.to_owned(), Some(Running { pid: pid.parse().ok()?, since_ms: since_ms.parse().ok()? }))),
        _ => None,
    }
}

impl Member {
    fn name(&self) -> &str {
        &self.planned.config.node
    }

    fn in_words(&self, why: String) -> String {
        format!("node {}: {why}", self.name())
    }

    /// Runs `action` at another machine; returns what [`answer`] made there.
    async fn action(&self, remote: &Remote, action: &[&str], patience: Duration) -> Result<(String, Option<Running>), String> {
        let printed = remote.run(action, if action == ["up"] { &self.text } else { "" }, patience).await?;
        parse_answer(printed.lines().last().unwrap_or_default()).ok_or_else(|| format!("the other machine's rheostat answers {printed:?}"))
    }

    async fn up(&self, program: &Path) -> Result<Begun, String> {
        match &self.access {
            Access::Here(place) => Ok(match place.up(program, &self.text).await? {
                Up::Started(started) => (started.running, false),
                Up::Was(running) => (running, true),
            }),
            Access::There(remote) => match self.action(remote, &["up"], SSH_PATIENCE).await? {
                (word, Some(running)) => Ok((running, word == "was")),
                (word, None) => Err(format!("the other machine's rheostat answers {word:?}")),
            },
        }
    }

    async fn down(&self, kill: bool) -> Result<Down, String> {
        let patience = longest_stop(&self.planned.config.limits) + GRACE;
        match &self.access {
            Access::Here(place) => place.down(patience, kill).await,
            Access::There(remote) => {
                let seconds = patience.as_secs().to_string();
                let mut action = vec!["down", "--patience", &seconds];
                action.extend(kill.then_some("--kill"));
                match self.action(remote, &action, patience + SSH_PATIENCE).await? {
                    (_, None) => Ok(Down::Was),
                    (word, Some(running)) if word == "killed" => Ok(Down::Killed(running)),
                    (_, Some(running)) => Ok(Down::Stopped(running)),
                }
            }
        }
    }

    /// The process that runs the node.
    ///
    /// # Errors
    /// In words: it cannot be found out.
    pub async fn running(&self) -> Result<Option<Running>, String> {
        match &self.access {
            Access::Here(place) => place.running(),
            Access::There(remote) => Ok(self.action(remote, &["state"], SSH_PATIENCE).await?.1),
        }
    }

    /// Where its log is, in words.
    pub fn log_place(&self) -> String {
        match &self.access {
            Access::Here(place) => place.log().display().to_string(),
            Access::There(remote) => remote.log_place(),
        }
    }

    /// As [`Place::send_log`].
    async fn send_log(&self, lines: usize, follow: bool, pieces: &mpsc::Sender<Piece>) -> Result<(), String> {
        let remote = match &self.access {
            Access::Here(place) => return place.send_log(self.name(), lines, follow, pieces).await,
            Access::There(remote) => remote,
        };
        let piece = |text| Piece { node: self.name().to_owned(), text };
        let lines = lines.to_string();
        let mut action = vec!["log", "--lines", &lines];
        if !follow {
            // The receiver may have gone.
            let _ = pieces.send(piece(remote.run(&action, "", SSH_PATIENCE).await?)).await;
            return Ok(());
        }
        action.push("--follow");
        let mut command = remote.command(&action);
        // Its input stays open as long as this follows; the other machine ends with it.
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("ssh cannot be run: {error}"))?;
        let mut output = BufReader::new(child.stdout.take().ok_or("ssh has no output")?).lines();
        while let Some(line) = output.next_line().await.map_err(|error| error.to_string())? {
            if pieces.send(piece(line + "\n")).await.is_err() {
                return Ok(());
            }
        }
        Err("the connection over ssh has ended".to_owned())
    }
}

impl Fleet {
    /// The nodes of the cluster file at `path`; `program` is `rheostat` on this machine.
    ///
    /// # Errors
    /// In words: what is wrong with the file.
    pub fn from_file(path: &Path, program: &Path) -> Result<Fleet, String> {
        let description = Description::from_file(path).map_err(|error| error.to_string())?;
        let planned = description.nodes(None).map_err(|error| error.in_file(path).to_string())?;
        let folder = description.folder.clone().unwrap_or_default();
        let mut members = Vec::new();
        for planned in planned {
            let access = match is_remote(&description, &planned.host) {
                true => Access::There(Remote::new(&description, &planned.host, &planned.config.node)),
                false => Access::Here(Place::new(folder.join(&planned.config.node))),
            };
            let text = toml::to_string(&planned.config).map_err(|error| error.to_string())?;
            members.push(Member { planned, text, access });
        }
        let nodes = members.iter().map(|member: &Member| member.planned.clone()).collect();
        Ok(Fleet { description, members, nodes, program: program.to_owned() })
    }

    /// The nodes among them that are of `data_center` and called `node`, where these are given.
    ///
    /// # Errors
    /// In words: there is none.
    pub fn only(mut self, data_center: Option<&str>, node: Option<&str>) -> Result<Fleet, String> {
        let listed = |names: &mut dyn Iterator<Item = &String>| names.map(String::as_str).collect::<Vec<_>>().join(", ");
        let data_centers = || self.description.data_centers.iter().map(|data_center| &data_center.name);
        if let Some(name) = data_center
            && !data_centers().any(|known| known == name)
        {
            return Err(format!("there is no data center {name}; there are: {}", listed(&mut data_centers())));
        }
        let within = |planned: &Planned| data_center.is_none_or(|name| planned.config.data_center == name);
        self.members.retain(|member| within(&member.planned) && node.is_none_or(|name| member.name() == name));
        if self.members.is_empty() {
            let place = data_center.map(|name| format!(" in {name}")).unwrap_or_default();
            let names = listed(&mut self.nodes.iter().filter(|planned| within(planned)).map(|planned| &planned.config.node));
            return Err(match node {
                Some(node) => format!("there is no node {node}{place}; there are: {names}"),
                None => format!("there is no node{place}"),
            });
        }
        Ok(self)
    }

    /// What [`Fleet::up`] (with `up`) or [`Fleet::down`] would run, as lines for a shell, in the order of the nodes.
    pub fn dry_run(&self, up: bool) -> Vec<String> {
        let line = |member: &Member| match (&member.access, up) {
            (Access::There(remote), true) => format!("{} < {}.toml", remote.line(&["up"]), member.name()),
            (Access::There(remote), false) => remote.line(&["down"]),
            (Access::Here(place), true) => {
                let command = place.command(&self.program);
                let words = std::iter::once(command.get_program()).chain(command.get_args()).map(|word| word.to_string_lossy().into_owned());
                format!("{} >> {} 2>&1 < /dev/null &", shell_words::join(words), shell_words::quote(&place.log().to_string_lossy()))
            }
            (Access::Here(place), false) => format!("kill -TERM $(cut -d ' ' -f 1 {})", shell_words::quote(&place.pid().to_string_lossy())),
        };
        self.members.iter().map(line).collect()
    }

    /// Starts every node that does not run, all at the same time, and waits until all serve and are connected with each other; says through `event` what happens to which node.
    ///
    /// # Errors
    /// In words: the nodes that do not start, or what is missing after `patience`. What runs is left running.
    pub async fn up(&self, patience: Duration, mut event: impl FnMut(&Planned, Event)) -> Result<(), String> {
        let options = options(&self.description)?;
        let mut starting = JoinSet::new();
        for (index, member) in self.members.iter().cloned().enumerate() {
            let program = self.program.clone();
            starting.spawn(async move { (index, member.up(&program).await) });
        }
        let mut failed = Vec::new();
        while let Some(done) = starting.join_next().await {
            let (index, result) = done.map_err(|error| error.to_string())?;
            match result {
                Ok(begun) => event(&self.members[index].planned, Event::Begun(begun)),
                Err(why) => failed.push(self.members[index].in_words(why)),
            }
        }
        if !failed.is_empty() {
            return Err(failed.join("\n"));
        }
        let chosen: BTreeSet<&str> = self.members.iter().map(Member::name).collect();
        let needs = |node: &str, peer: &str| chosen.contains(node) && chosen.contains(peer);
        // What is decided by all data centers may need those that are not meant.
        let alone = self.members.len() < self.nodes.len();
        self.wait(&self.members, (&options, patience), needs, alone, event).await
    }

    /// Waits until `members` serve, connected with those that they `need`; with `alone`, groups over all data centers need no leader.
    async fn wait(
        &self,
        members: &[Member],
        (options, patience): (&Options, Duration),
        needs: impl Fn(&str, &str) -> bool,
        alone: bool,
        mut event: impl FnMut(&Planned, Event),
    ) -> Result<(), String> {
        let mut ready = vec![false; members.len()];
        let (until, mut look) = (Instant::now() + patience, Instant::now() + LOOK);
        loop {
            // All are asked: one that is not waited for may lead a group.
            let mut lacks = lacks(&self.nodes, &statuses(options, &self.nodes).await, &needs, alone);
            let place = |member: &Member| self.nodes.iter().position(|node| node.config.node == member.name());
            let lacks: Vec<Option<String>> = members.iter().map(|member| lacks[place(member)?].take()).collect();
            for (index, lack) in lacks.iter().enumerate() {
                if lack.is_none() && !std::mem::replace(&mut ready[index], true) {
                    event(&members[index].planned, Event::Ready);
                }
            }
            let Some((member, lack)) = members.iter().zip(&lacks).find_map(|(member, lack)| Some((member, lack.as_ref()?))) else {
                return Ok(());
            };
            let over = Instant::now() >= until;
            if over || Instant::now() >= look {
                Fleet::check_running(members, &lacks).await?;
                look = Instant::now() + LOOK;
            }
            if over {
                return Err(member.in_words(format!("not ready after {} s: {lack}; its log: {}", patience.as_secs(), member.log_place())));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Ends every node and starts it again with what the file says now, one after the other: each serves, and is connected with those with which it was before, when the next one's turn comes. One that did
    /// not run is started. With `kill`, one that does not end in time is killed.
    ///
    /// # Errors
    /// In words: the first node that does not end or start, or what it lacks after `patience`. Those after it are as they were.
    pub async fn restart(&self, patience: Duration, kill: bool, mut event: impl FnMut(&Planned, Event)) -> Result<(), String> {
        let options = options(&self.description)?;
        for member in &self.members {
            let before = statuses(&options, std::slice::from_ref(&member.planned)).await.pop();
            let peers = before.into_iter().flatten().flat_map(|status| status.peers).filter(|peer| peer.connected);
            let connected: BTreeSet<String> = peers.map(|peer| peer.node).collect();
            event(&member.planned, Event::Down(member.down(kill).await.map_err(|why| member.in_words(why))?));
            event(&member.planned, Event::Begun(member.up(&self.program).await.map_err(|why| member.in_words(why))?));
            let needs = |node: &str, peer: &str| node == member.name() && connected.contains(peer);
            self.wait(std::slice::from_ref(member), (&options, patience), needs, false, &mut event).await?;
        }
        Ok(())
    }

    /// The data centers of which a node that runs has other partitions than the file says, in the order of the file: name, and how many these are.
    ///
    /// # Errors
    /// In words: a node does not answer, or what would keep one from starting with what the file says. Nothing has been changed.
    pub async fn to_split(&self) -> Result<Vec<(String, u32)>, String> {
        let description = &self.description;
        let mut found: Vec<(String, u32)> = Vec::new();
        for (node, status) in self.nodes.iter().zip(statuses(&options(description)?, &self.nodes).await) {
            let in_words = |why: String| format!("node {}: {why}", node.config.node);
            let topology = status.map_err(in_words)?.topology.unwrap_or_default();
            let (before, dc) = (topology.partitions, &node.config.data_center);
            if before != u32::from(description.partitions) && !found.iter().any(|(name, _)| name == dc) {
                found.push((dc.clone(), before));
            }
        }
        for (dc, before) in &found {
            parts_of_each(dc, u16::try_from(*before).unwrap_or_default(), (description.made_with(), description.partitions))?;
        }
        match description.keyspaces.iter().find_map(KeyspaceConfig::cannot_split).filter(|_| !found.is_empty()) {
            Some(why) => Err(why),
            None => Ok(found),
        }
    }

    /// Has the nodes of data center `dc`, which serve, prepare a split into what the file says: all at the same time. Says through `event` how far they are.
    ///
    /// # Errors
    /// In words: a node cannot, or gets no further for `patience`. Nothing is split.
    pub async fn prepare_split(&self, dc: &str, patience: Duration, event: impl Fn(&Planned, Event)) -> Result<(), String> {
        let there = self.clone().only(Some(dc), None)?;
        let (options, event) = (options(&self.description)?, &event);
        let prepare = async |node: &Planned| {
            let in_words = |why: String| format!("node {}: {why}", node.config.node);
            let options = Options { addresses: vec![node.address(node.ports.grpc)], ..options.clone() };
            let client = Client::connect_with(options).await.map_err(|error| in_words(error.to_string()))?;
            let far = |told: &v1::PrepareSplitResponse| event(node, Event::Preparing(told.keys));
            let done = prepare_split(&client, self.description.partitions, patience, far).await.map_err(in_words)?;
            let done = done.filter(|done| done.prepared == done.stores);
            event(node, done.map_or(Event::NotPrepared, |done| Event::Prepared(done.keys)));
            Ok::<_, String>(())
        };
        try_join_all(there.members.iter().map(|member| prepare(&member.planned))).await.map(drop)
    }

    /// Ends the nodes of data center `dc` and starts them with what the file says now, all at the same time, and waits until they serve. With `kill`, those that do not end in time are killed.
    ///
    /// # Errors
    /// As [`Fleet::down`] and [`Fleet::up`].
    pub async fn restart_together(&self, dc: &str, patience: Duration, kill: bool, mut event: impl FnMut(&Planned, Event)) -> Result<(), String> {
        let there = self.clone().only(Some(dc), None)?;
        let ended = there.down(kill).await;
        for (member, down) in there.members.iter().zip(ended) {
            event(&member.planned, Event::Down(down.map_err(|why| member.in_words(why))?));
        }
        there.up(patience, event).await
    }

    /// Waits until all nodes serve, connected with all others.
    ///
    /// # Errors
    /// In words: what is missing after `patience`.
    pub async fn ready(&self, patience: Duration) -> Result<(), String> {
        self.wait(&self.members, (&options(&self.description)?, patience), |_, _| true, false, |_, _| {}).await
    }

    /// An error if a node that lacks something has no process any more.
    async fn check_running(members: &[Member], lacks: &[Option<String>]) -> Result<(), String> {
        for (member, _) in members.iter().zip(lacks).filter(|(_, lack)| lack.is_some()) {
            if member.running().await?.is_none() {
                let (sender, mut receiver) = mpsc::channel(PIECES);
                member.send_log(10, false, &sender).await?;
                drop(sender);
                let words = receiver.recv().await.map(|piece| piece.text).unwrap_or_default();
                return Err(member.in_words(format!("its process has ended. The end of its log, {}:\n{}", member.log_place(), words.trim_end())));
            }
        }
        Ok(())
    }

    /// Ends every node that runs, all at the same time; with `kill`, also those that do not end in time. In the order of the nodes.
    pub async fn down(&self, kill: bool) -> Vec<Result<Down, String>> {
        let mut ending = JoinSet::new();
        for (index, member) in self.members.iter().cloned().enumerate() {
            ending.spawn(async move { (index, member.down(kill).await) });
        }
        self.gather(ending).await
    }

    /// The process of every node, asked at the same time. In the order of the nodes.
    pub async fn running(&self) -> Vec<Result<Option<Running>, String>> {
        let mut asking = JoinSet::new();
        for (index, member) in self.members.iter().cloned().enumerate() {
            asking.spawn(async move { (index, member.running().await) });
        }
        self.gather(asking).await
    }

    async fn gather<T: 'static>(&self, mut tasks: JoinSet<(usize, Result<T, String>)>) -> Vec<Result<T, String>> {
        let mut results: Vec<Result<T, String>> = self.members.iter().map(|_| Err("no answer".to_owned())).collect();
        while let Some(done) = tasks.join_next().await {
            if let Ok((index, result)) = done {
                results[index] = result;
            }
        }
        results
    }

    /// Shows the last `lines` lines of the logs of `node`, or of all, and with `follow` what comes after them: `show` gets a piece of one, and says
    /// whether to go on.
    ///
    /// # Errors
    /// In words: there is no such node, or a log cannot be read.
    pub async fn logs(&self, node: Option<&str>, lines: usize, follow: bool, mut show: impl FnMut(&Piece) -> bool) -> Result<(), String> {
        let chosen: Vec<Member> = self.members.iter().filter(|member| node.is_none_or(|node| member.name() == node)).cloned().collect();
        if chosen.is_empty() {
            let names: Vec<&str> = self.members.iter().map(Member::name).collect();
            return Err(format!("there is no node {}; there are: {}", node.unwrap_or_default(), names.join(", ")));
        }
        let (sender, mut pieces) = mpsc::channel(PIECES);
        if !follow {
            for member in chosen {
                member.send_log(lines, false, &sender).await.map_err(|why| member.in_words(why))?;
                while let Ok(piece) = pieces.try_recv() {
                    show(&piece);
                }
            }
            return Ok(());
        }
        let mut reading = JoinSet::new();
        for member in chosen {
            let sender = sender.clone();
            reading.spawn(async move { member.send_log(lines, true, &sender).await.map_err(|why| member.in_words(why)) });
        }
        drop(sender);
        while let Some(piece) = pieces.recv().await {
            if !show(&piece) {
                return Ok(());
            }
        }
        while let Some(done) = reading.join_next().await {
            done.map_err(|error| error.to_string())??;
        }
        Ok(())
    }
}
