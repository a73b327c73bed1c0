//! A node: its shards, its listeners, its connections to other nodes; started and stopped as one.

use crate::clocks::Clocks;
use crate::cold::{self, Cold};
use crate::config::{ConfigError, Listen, NodeConfig};
use crate::console::designer::{Designer, Desk};
use crate::folder::{self, FolderError, Held};
use crate::keyspace::KeyspaceInfo;
use crate::life::Lives;
use crate::memory::Memory;
use crate::moving;
use crate::opening;
use crate::placement::Placement;
use crate::receipts::{self, Receipts};
use crate::router::Router;
use crate::seats::Seats;
use crate::shard::disk::{Disk, Silence};
use crate::shard::mailbox::{Control, mailbox};
use crate::shard::{self, Acceptors, Starting};
use crate::shared::{Shared, lock};
use crate::space::Space;
use crate::splitting;
use crate::spreading;
use crate::tls::{self, Fresh, Identity, Renewed, TlsError};
use crate::token_keys::{self, KeyFileError};
use crate::topology::Topology;
use crate::{admin, grpc, monitors, peer, socket};
use rheostat_core::ids::KeyspaceId;
use rheostat_core::store::Durability;
use rheostat_storage::OpenError;
use std::collections::BTreeSet;
use std::fmt;
use std::future::ready;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};
use tokio::sync::{Notify, oneshot};

/// Why a node could not be started.
#[derive(Debug)]
pub enum StartError {
    /// Its configuration.
    Config(ConfigError),
    /// A certificate or key.
    Tls(TlsError),
    /// An address.
    Listen(SocketAddr, io::Error),
    /// The keys that sign session tokens.
    TokenKeys(KeyFileError),
    /// The key that signs receipts cannot be read or kept.
    ReceiptKey(KeyFileError),
    /// The data directory as a whole.
    Folder(FolderError),
    /// A partition's store or protocol, in words for the operator.
    Partition(String),
    /// The predicates that were kept, in words for the operator.
    Monitors(String),
    /// What was kept of lost data centers cannot be read.
    Lost(String),
    /// Where servers have moved cannot be read.
    Seats(String),
    /// Cassandra, in words for the operator.
    Cold(String),
    /// The operating system has no more threads.
    Thread(io::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Config(error) => error.fmt(f),
            StartError::Tls(error) => error.fmt(f),
            StartError::Listen(address, error) => write!(f, "cannot listen at {address}: {error}"),
            StartError::TokenKeys(error) | StartError::ReceiptKey(error) => error.fmt(f),
            StartError::Folder(error) => error.fmt(f),
            StartError::Partition(why) | StartError::Monitors(why) | StartError::Lost(why) | StartError::Seats(why) | StartError::Cold(why) => {
                f.write_str(why)
            }
            StartError::Thread(error) => write!(f, "a thread cannot be started: {error}"),
        }
    }
}

impl std::error::Error for StartError {}

/// Listening sockets, bound before the node starts: so that several nodes can be told each other's ports when these were chosen by the
/// operating system.
#[derive(Debug, Default)]
pub struct Listeners {
    /// RESP.
    pub resp: Option<TcpListener>,
    /// gRPC.
    pub grpc: Option<TcpListener>,
    /// Metrics and health.
    pub admin: Option<TcpListener>,
    /// Other nodes.
    pub peer: Option<TcpListener>,
}

impl Listeners {
    /// Binds every address in `listen`. Errors: an address is taken, or not this machine's.
    pub fn bind(listen: &Listen) -> Result<Listeners, StartError> {
        let bind = |address: Option<SocketAddr>| match address {
            Some(address) => socket::listen(address).map(Some).map_err(|error| StartError::Listen(address, error)),
            None => Ok(None),
        };
        Ok(Listeners { resp: bind(listen.resp)?, grpc: bind(listen.grpc)?, admin: bind(listen.admin)?, peer: bind(listen.peer)? })
    }

    /// Where they listen; ports that were 0 are known now.
    pub fn addresses(&self) -> Listen {
        let address = |listener: &Option<TcpListener>| listener.as_ref().and_then(|listener| listener.local_addr().ok());
        Listen { resp: address(&self.resp), grpc: address(&self.grpc), admin: address(&self.admin), peer: address(&self.peer) }
    }
}

/// What a queue may hold however little memory there is.
const LEAST_QUEUE_BYTES: usize = 4 << 20;

/// What is told at the admin port while Cassandra is connected to, and while partitions are split.
const CONNECTING: &str = "connecting to Cassandra: nothing is served meanwhile";
const SPLITTING: &str = "splitting its partitions: nothing is served meanwhile";

/// Between two looks of a node that stops whether its disk answers.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// A running node. Dropping it stops it without waiting; [`Node::shutdown`] waits.
pub struct Node {
    /// As it was told to start, or as it has read again since.
    config: Mutex<NodeConfig>,
    router: Router,
    addresses: Listen,
    threads: Vec<JoinHandle<()>>,
    front: Option<JoinHandle<()>>,
    silence: Silence,
    /// The data directory, if there is one. It is let go when everything that [`Node::shutdown`] waits for has ended.
    held: Option<Held>,
}

impl Node {
    /// Starts a node: binds its addresses, opens its stores (which replays their logs), serves. Errors: see [`StartError`]; nothing is left
    /// running after one.
    pub async fn start(config: NodeConfig) -> Result<Node, StartError> {
        config.validate().map_err(StartError::Config)?;
        let listeners = Listeners::bind(&config.listen)?;
        Node::start_with(config, listeners).await
    }

    /// As [`Node::start`], with sockets that are bound already; `config.listen` is taken as checked and not used.
    pub async fn start_with(mut config: NodeConfig, listeners: Listeners) -> Result<Node, StartError> {
        config.validate().map_err(StartError::Config)?;
        let told = Mutex::new(config.clone());
        // Queues have no more than their share of what there is.
        let share = usize::try_from(Memory::new(config.limits.memory_bytes, 0).budget() / 16).unwrap_or(usize::MAX).max(LEAST_QUEUE_BYTES);
        config.limits.mailbox_bytes = config.limits.mailbox_bytes.min(share);
        config.limits.peer_queue_bytes = config.limits.peer_queue_bytes.min(share);
        let certificates = Certificates::load(&config).map_err(StartError::Tls)?;
        let addresses = listeners.addresses();
        let topology = Topology::new(&config);
        let on_disk = config.data_dir.is_some();
        let keyspaces: Result<Vec<KeyspaceInfo>, String> =
            config.keyspaces.iter().enumerate().map(|(index, keyspace)| KeyspaceInfo::new(KeyspaceId(index as u16), keyspace, on_disk)).collect();
        let keyspaces = keyspaces.map_err(StartError::Partition)?;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let held = config.data_dir.as_deref().map(folder::hold).transpose().map_err(StartError::Folder)?;
        let (seats, cold) = (Seats::default(), Arc::new(Cold::default()));
        // What is wrong with the listener is said when it is served.
        let admin = || listeners.admin.as_ref().and_then(|listener| listener.try_clone().and_then(tokio::net::TcpListener::from_std).ok());
        let (connecting, configured, asked) = (cold.clone(), config.clone(), admin().filter(|_| config.uses_cassandra()));
        let connect = tokio::task::spawn_blocking(move || connecting.connect(&configured));
        // It may take as long as it is tried.
        let connected = admin::meanwhile(asked, certificates.client_facing.clone(), CONNECTING, ready(()), connect).await;
        connected.unwrap_or_else(|error| Err(error.to_string())).map_err(StartError::Cold)?;
        if let Some(dir) = config.data_dir.clone() {
            let (config, topology, keyspaces, cold) = (config.clone(), topology.clone(), keyspaces.clone(), cold.clone());
            let begins = Arc::new(Notify::new());
            let begun = begins.clone();
            let split = tokio::task::spawn_blocking(move || splitting::split(&dir, &config, &topology, &keyspaces, &cold, &|| begun.notify_one()));
            // It may take minutes.
            let split = admin::meanwhile(admin(), certificates.client_facing.clone(), SPLITTING, begins.notified(), split).await;
            split.unwrap_or_else(|error| Err(error.to_string())).map_err(StartError::Partition)?;
        }
        if let Some(dir) = &config.data_dir {
            folder::claim(dir, &topology).map_err(StartError::Folder)?;
            let names: Vec<&str> = keyspaces.iter().map(|keyspace| keyspace.name.as_str()).collect();
            seats.load(dir, &names, &topology).map_err(StartError::Seats)?;
            for keyspace in keyspaces.iter().filter(|keyspace| keyspace.durability != Durability::Memory) {
                folder::claim_group(dir, &topology, keyspace).map_err(StartError::Folder)?;
            }
        }
        let placement = Placement::new(&topology, if config.shards == 0 { cores } else { config.shards });
        let shards = placement.shards();
        if let Some(dir) = &config.data_dir {
            let stores = folder::configured(dir, &topology, &placement, &keyspaces);
            let moved = folder::places(&seats.elsewhere(&topology), &keyspaces);
            // What a member of a group had here before may be deleted and still be noted. With an empty store it is nobody in its group, which has it come anew.
            let coming = folder::places(&seats.on_their_way(&topology), &keyspaces);
            folder::check_stores(dir, &stores, &moved, &coming).map_err(StartError::Folder)?;
            // Where the file system cannot lock the directory itself, its stores tell. Before the others hear of another start from it: they would take the node that runs for an older copy of this one.
            for store in stores {
                match moving::is_open(&store.folder) {
                    Ok(false) => {}
                    Ok(true) => return Err(StartError::Folder(FolderError::Store(OpenError::Locked(store.folder)))),
                    Err(error) => return Err(StartError::Folder(FolderError::Io(store.folder, error))),
                }
            }
        }
        warn_of_thin_groups(&topology, &keyspaces);
        warnings(&config).into_iter().for_each(|warning| tracing::warn!("{warning}"));

        let (handles, mailboxes): (Vec<_>, Vec<_>) =
            (0..shards).map(|_| mailbox(config.limits.mailbox_messages, config.limits.mailbox_bytes)).unzip();
        let others = topology.nodes.iter().filter(|node| topology.talks_to(node)).count();
        let clocks = Clocks::new(config.emulation.clock_offset_ms, others, config.limits.max_ahead_ms);
        let token_keys = match &config.security.token_key_file {
            Some(file) => token_keys::read_operators(file),
            None => token_keys::load_or_make(config.data_dir.as_deref(), clocks.physical_ms()),
        };
        let token_keys = token_keys.map_err(StartError::TokenKeys)?;
        let receipts = Receipts::new(receipts::load_or_make(config.data_dir.as_deref()).map_err(StartError::ReceiptKey)?);
        let begin = || Lives::begin(config.data_dir.as_deref(), config.accept_lost_writes, config.generation);
        let lives = begin().or_else(|error| match &config.data_dir {
            // Each start is written down. On a full disk there may be room for that, and for the stores, with what the reserve has held.
            Some(dir) if Arc::new(Space::new(dir, config.limits.disk_reserve_bytes)).look_into() => begin(),
            _ => Err(error),
        });
        let lives = lives.map_err(StartError::Folder)?;
        let max_connections = config.limits.max_connections;
        let shared = Arc::new(Shared::new(
            config,
            topology,
            keyspaces,
            (clocks, lives),
            handles,
            (placement, seats, cold),
            (token_keys, receipts, certificates.identity.clone()),
        ));
        let most = crate::descriptors::most_connections();
        if most < max_connections {
            tracing::warn!(most, max_connections, "the limit on open files (ulimit -n) allows fewer connections than limits.max_connections");
        }
        if let Some(dir) = &shared.config.data_dir {
            shared.monitors.load(dir, &shared.keyspaces).map_err(StartError::Monitors)?;
            shared.lost.load(dir, &shared.topology.data_centers).map_err(StartError::Lost)?;
            shared.lost.reserve(&shared.topology.reserved.iter().copied().filter(|dc| *dc != shared.topology.here).collect::<Vec<_>>());
            for said in [&shared.drained, &shared.closed] {
                said.load(dir).map_err(|error| StartError::Lost(format!("{}: {error}", dir.display())))?;
            }
            shared.clear_seats();
            shared.clear_moving().map_err(|error| StartError::Folder(FolderError::Io(dir.clone(), error)))?;
        }
        tracing::info!(megabytes = shared.budget.budget() >> 20, "memory that this process may use");
        let router = Router::new(shared.clone());
        if shared.lives.own().is_some() {
            peer::hear_others(&shared, certificates.to_peer.clone()).await;
        }

        let Listeners { resp, grpc, admin, peer } = listeners;
        let mut acceptors = Some(Acceptors { peer, peer_tls: certificates.peer_facing });
        let name = shared.topology.this().name.clone();
        let (disk, threads) = Disk::start(&name, shared.config.uses_cassandra()).map_err(StartError::Thread)?;
        let mut node = Node { config: told, router: router.clone(), addresses, threads, front: None, silence: disk.silence().clone(), held };
        let health = grpc::Health::default();
        health.say(false).await;
        let front = Front { grpc, admin, grpc_tls: certificates.grpc, admin_tls: certificates.client_facing.clone(), health: health.clone() };
        // Until the shards have opened their data it says how far they are.
        node.serve_front(&name, front).map_err(StartError::Thread)?;
        // What is wrong with a listener is said when the shards take it.
        if let Some(listener) = resp.as_ref().and_then(|listener| listener.try_clone().and_then(tokio::net::TcpListener::from_std).ok()) {
            tokio::spawn(opening::answer(listener, shared.clone(), certificates.client_facing.clone()));
        }
        if let Some(inbox) = shared.monitors.take_inbox() {
            let shared = shared.clone();
            let thread = std::thread::Builder::new().name(format!("{name}-monitors")).spawn(move || monitors::run(&shared, &inbox));
            node.threads.push(thread.map_err(StartError::Thread)?);
        }
        if let Some(tasks) = shared.monitors.take_tasks().filter(|_| shared.config.keyspaces.iter().any(|keyspace| keyspace.history_ms > 0)) {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().map_err(StartError::Thread)?;
            let shared = shared.clone();
            let thread =
                std::thread::Builder::new().name(format!("{name}-rollback")).spawn(move || runtime.block_on(monitors::roll_back(shared, tasks)));
            node.threads.push(thread.map_err(StartError::Thread)?);
        }
        let mut started = Vec::new();
        for (index, mailbox) in mailboxes.into_iter().enumerate() {
            let peers =
                shared.peers.iter().flatten().enumerate().filter(|(number, _)| number % shards == index).map(|(_, peer)| peer.clone()).collect();
            let starting = Starting {
                shared: shared.clone(),
                index,
                mailbox,
                disk: disk.clone(),
                acceptors: acceptors.take(),
                peers,
                to_peer: certificates.to_peer.clone(),
            };
            let (sender, receiver) = oneshot::channel();
            let thread = std::thread::Builder::new().name(format!("{name}-{index}")).spawn(move || shard::run(starting, sender));
            // What has been started stops when `node` is dropped.
            node.threads.push(thread.map_err(StartError::Thread)?);
            started.push(receiver);
        }
        // Its threads end when the shards, which have clones of it, have ended.
        drop(disk);
        let mut failure = None;
        for receiver in started {
            let result = receiver.await.unwrap_or_else(|_| Err("a shard ended while it started".into()));
            failure = failure.or(result.err());
        }
        if let Some(why) = failure {
            node.shutdown().await;
            return Err(StartError::Partition(why));
        }
        if let Err(error) = shared.try_note_stores() {
            node.shutdown().await;
            return Err(StartError::Folder(error));
        }
        if let Some(space) = &shared.space {
            space.set_aside();
        }
        if let Some(listener) = resp {
            let (sender, receiver) = oneshot::channel();
            let tls = certificates.client_facing;
            shared.shards[0].control(Control::Run(Box::new(move |shard| drop(sender.send(shard::accept_clients(shard, listener, tls))))));
            if let Err(error) = receiver.await.unwrap_or_else(|_| Err(io::Error::other("its shard has ended"))) {
                node.shutdown().await;
                return Err(StartError::Partition(format!("a listener cannot be used: {error}")));
            }
        }
        health.say(true).await;
        shared.beginning.serves();
        shared.serving.send_replace(true);
        if shared.config.spread_leaders_s > 0 && shared.topology.replicas.iter().any(|replicas| *replicas > 1) {
            tokio::spawn(spreading::run(router));
        }
        let replayed = shared.replayed.load(Ordering::Relaxed);
        tracing::info!(node = %name, listens = %node.addresses, shards, replayed, "serving");
        Ok(node)
    }

    /// gRPC and HTTP have a thread and a runtime of their own: the shards' threads run nothing that may take long.
    fn serve_front(&mut self, name: &str, front: Front) -> io::Result<()> {
        if front.grpc.is_none() && front.admin.is_none() {
            return Ok(());
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let router = self.router.clone();
        let stop = self.router.shared().stop_front.subscribe();
        let stopped = move || {
            let mut stop = stop.clone();
            async move {
                // An error is the node's end too.
                let _ = stop.wait_for(|stop| *stop).await;
            }
        };
        let serve = async move {
            let grpc = async {
                if let Some(listener) = front.grpc
                    && let Err(error) = serve_grpc(listener, router.clone(), (front.grpc_tls, front.health), stopped()).await
                {
                    tracing::error!(%error, "the gRPC port is not served any more");
                }
            };
            let admin = async {
                if let Some(listener) = front.admin {
                    match tokio::net::TcpListener::from_std(listener) {
                        Ok(listener) => admin::serve(listener, router.clone(), front.admin_tls, stopped()).await,
                        Err(error) => tracing::error!(%error, "the admin port is not served"),
                    }
                }
            };
            tokio::join!(grpc, admin);
        };
        let thread = std::thread::Builder::new().name(format!("{name}-front")).spawn(move || runtime.block_on(serve))?;
        self.front = Some(thread);
        Ok(())
    }

    /// From now on the console has the page *Designer*, answered by `designer`. Of several the first one stays.
    pub fn offer(&self, designer: Arc<dyn Designer>) {
        self.router.shared().designer.get_or_init(|| Desk::new(designer));
    }

    /// Runs operations on this node and its data center.
    pub fn router(&self) -> &Router {
        &self.router
    }

    /// Takes from `config` what can change while the node runs: users and their passwords, the default one's among them (not whether there is one), and the certificates, keys and authorities in their files, Cassandra's among them.
    /// Connections of users that are gone, or have another password, must show one again; TLS connections stay as they are.
    ///
    /// # Errors
    /// See [`StartError`]; then nothing has changed.
    pub fn reload(&self, config: &NodeConfig) -> Result<Reloaded, StartError> {
        config.validate().map_err(StartError::Config)?;
        let mut told = lock(&self.config);
        let mut next = told.clone();
        next.users = config.users.clone();
        if next.security.has_password() && config.security.has_password() {
            next.security.password = config.security.password.clone();
            next.security.password_sha256 = config.security.password_sha256.clone();
        }
        // Rights are told by the numbers of the keyspaces that run.
        next.validate().map_err(StartError::Config)?;
        let shared = self.router.shared();
        let own = match (&shared.identity, &next.security.tls) {
            (Some(identity), Some(files)) => Some(identity.read_again(files.into()).map_err(StartError::Tls)?),
            _ => None,
        };
        let database = shared.cold.read_again(&next).map_err(StartError::Tls)?;
        let Renewed { certificate, authority } = own.map(Fresh::take).unwrap_or_default();
        let cassandra = database.map(Fresh::take).is_some_and(|renewed| renewed != Renewed::default());
        if certificate || authority {
            shared.identity_changed();
        }
        let users = (&next.users, next.security.digest()) != (&told.users, told.security.digest());
        if users {
            shared.change_users(&next);
        }
        let waiting = differences(&next, config);
        *told = next;
        Ok(Reloaded { users, certificate, authority, cassandra, waiting })
    }

    /// Where it listens; ports that were 0 are known here.
    pub fn addresses(&self) -> &Listen {
        &self.addresses
    }

    /// Stops: accepts nothing more, answers what is under way (at most `limits.stop_timeout_ms` long), writes everything to disk, ends all threads. A disk that stands still then is not waited for: the threads that
    /// do have the data directory until the process ends, and what is there is as after a kill.
    pub async fn shutdown(mut self) {
        // The front first: its requests need the shards. It ends when what it copies has.
        self.router.shared().moving.stop();
        self.router.shared().stop_front.send_replace(true);
        let (front, threads) = (self.front.take(), std::mem::take(&mut self.threads));
        let router = self.router.clone();
        let join = move || {
            front.into_iter().for_each(|thread| drop(thread.join()));
            router.shared().stop();
            threads.into_iter().for_each(|thread| drop(thread.join()));
        };
        let silence = self.silence.clone();
        // The front has this time, and the shards after it.
        let patience = Duration::from_millis(self.router.limits().stop_timeout_ms) * 2;
        let silent = async {
            tokio::time::sleep(patience).await;
            loop {
                if let Some(seconds) = silence.seconds() {
                    return seconds;
                }
                tokio::time::sleep(LOOK_EVERY).await;
            }
        };
        tokio::select! {
            biased;
            // The only error is a panic, which the thread has reported itself.
            _ = tokio::task::spawn_blocking(join) => {}
            seconds = silent => {
                tracing::error!(seconds, "the disk does not answer, and the stop does not wait for it any more: what is on disk is as after a kill");
                std::mem::forget(self.held.take());
            }
        }
    }

    fn stop(&self) {
        self.router.shared().stop_front.send_replace(true);
        self.router.shared().stop();
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn stop(&self) {
        self.moving.stop();
        if !self.stopping.send_replace(true) {
            self.end_faults(None);
            self.cold.stop();
            // Each says itself when nothing waits there any more.
            self.unfinished.iter().for_each(|waiting| waiting.store(1, Ordering::Relaxed));
            for shard in &self.shards {
                shard.control(Control::Stop);
            }
            self.monitors.hand_in(monitors::Input::Stop);
        }
    }
}

/// What has changed by [`Node::reload`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reloaded {
    /// Users, or their passwords or rights.
    pub users: bool,
    /// The certificate.
    pub certificate: bool,
    /// Whose certificates are trusted.
    pub authority: bool,
    /// The certificate that Cassandra is shown, or whose certificates are trusted there.
    pub cassandra: bool,
    /// Keys of the configuration that are another's now, and are taken at the next start.
    pub waiting: Vec<String>,
}

/// The keys in which two configurations differ; of what is in a section, the section and the key.
fn differences(one: &NodeConfig, other: &NodeConfig) -> Vec<String> {
    let table = |config: &NodeConfig| toml::Table::try_from(config).unwrap_or_default();
    let (first, second) = (table(one), table(other));
    let names = |one: &toml::Table, other: &toml::Table| -> BTreeSet<String> {
        one.keys().chain(other.keys()).filter(|key| one.get(*key) != other.get(*key)).cloned().collect()
    };
    let mut found = Vec::new();
    for name in names(&first, &second) {
        match (first.get(&name), second.get(&name)) {
            (Some(toml::Value::Table(one)), Some(toml::Value::Table(other))) => {
                found.extend(names(one, other).iter().map(|key| format!("{name}.{key}")))
            }
            _ => found.push(name),
        }
    }
    if found.is_empty() && one != other {
        found.push("security".into());
    }
    found
}

/// What an operator should know of a configuration that is right; reads its certificates.
pub fn warnings(config: &NodeConfig) -> Vec<String> {
    let mut found = config.warnings();
    let ours = config.security.tls.iter().flat_map(|files| [&files.certificate, &files.authority]);
    let cassandra = config.cassandra.iter().flat_map(|cassandra| cassandra.tls_certificate.iter().chain(&cassandra.tls_authority));
    found.extend(tls::warnings(ours.chain(cassandra).map(PathBuf::as_path), SystemTime::now()));
    found
}

/// Reads what a start would read, certificates, keys and token keys, asks Cassandra if it is used, and starts nothing. Errors: as a start's.
pub fn check(config: &NodeConfig) -> Result<(), StartError> {
    config.validate().map_err(StartError::Config)?;
    Certificates::load(config).map_err(StartError::Tls)?;
    if let Some(file) = &config.security.token_key_file {
        token_keys::read_operators(file).map_err(StartError::TokenKeys)?;
    }
    cold::probe(config).map_err(StartError::Cold)
}

/// Tells the operator where replicas do not buy what they are for.
fn warn_of_thin_groups(topology: &Topology, keyspaces: &[KeyspaceInfo]) {
    let nodes = topology.nodes_in(topology.here).count();
    for keyspace in keyspaces.iter().filter(|keyspace| keyspace.is_grouped()) {
        let (name, replicas) = (&keyspace.name, keyspace.replicas);
        if nodes < usize::from(replicas) {
            tracing::warn!(keyspace = %name, replicas, nodes, "fewer nodes than replicas in this data center: a node's death takes several of a partition");
        }
        if keyspace.durability == Durability::Memory {
            tracing::warn!(keyspace = %name, "its servers remember nothing over a restart, and what a majority has agreed on can be lost with them");
        }
    }
}

/// What the front's thread serves.
struct Front {
    grpc: Option<TcpListener>,
    admin: Option<TcpListener>,
    grpc_tls: Option<Arc<tokio_rustls::rustls::ServerConfig>>,
    admin_tls: Option<Arc<tokio_rustls::rustls::ServerConfig>>,
    health: grpc::Health,
}

async fn serve_grpc(
    listener: TcpListener,
    router: Router,
    shows: (Option<Arc<tokio_rustls::rustls::ServerConfig>>, grpc::Health),
    stopping: impl Future<Output = ()> + Send,
) -> io::Result<()> {
    grpc::serve(tokio::net::TcpListener::from_std(listener)?, router, shows, stopping).await
}

/// What is made from the certificates' files.
#[derive(Default)]
struct Certificates {
    client_facing: Option<Arc<tokio_rustls::rustls::ServerConfig>>,
    peer_facing: Option<Arc<tokio_rustls::rustls::ServerConfig>>,
    to_peer: Option<Arc<tokio_rustls::rustls::ClientConfig>>,
    grpc: Option<Arc<tokio_rustls::rustls::ServerConfig>>,
    /// What all of them show.
    identity: Option<Arc<Identity>>,
}

impl Certificates {
    fn load(config: &NodeConfig) -> Result<Certificates, TlsError> {
        let Some(files) = &config.security.tls else { return Ok(Certificates::default()) };
        let identity = Identity::read(files)?;
        Ok(Certificates {
            client_facing: Some(tls::client_facing(files, &identity)?),
            peer_facing: Some(tls::peer_facing(files, &identity)?),
            to_peer: Some(tls::as_client(&identity, &files.certificate)?),
            grpc: Some(tls::grpc(files, &identity)?),
            identity: Some(identity),
        })
    }
}
