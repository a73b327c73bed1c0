//! One server, whose handlers a test may call itself, and which starts again with what its disk has.

use crate::common::{self, START_MS};
use rheostat_core::dial::Dial;
use rheostat_core::ids::{KeyspaceId, Now, OpId, Place, ServerId};
use rheostat_core::operation::Operation;
use rheostat_core::outcome::Outcome;
use rheostat_core::protocol::Protocol;
use rheostat_core::replica::{Execution, Outbox, PartitionServer, ReplicaConfig};
use rheostat_core::session::Session;
use rheostat_core::step::{Effect, EffectOf, Step};
use rheostat_core::store::{Durability, Position, Recovered, Store};
use rheostat_core::version::{Item, Key, Update};
use rheostat_protocols::registry;
use rheostat_stack::{AnyStore, Driver, Inner};
use rheostat_storage::MemoryStore;
use std::collections::{BTreeMap, VecDeque};

/// What a handler is called with.
pub type StepOf<'a, P> = Step<'a, P, AnyStore<<P as Protocol>::Meta>>;

pub struct Alone<P: Protocol> {
    config: ReplicaConfig,
    options: P::Options,
    pub server: Inner<P>,
    pub now_us: u64,
    /// What it has sent to others, with the data center's own partitions among them.
    pub sent: Vec<(ServerId, Vec<u8>)>,
    done: BTreeMap<OpId, (Outcome, Session)>,
}

impl<P: Protocol> Alone<P> {
    pub fn new(place: Place, options: &str) -> Alone<P> {
        let config = ReplicaConfig { durability: Durability::Always, ..ReplicaConfig::new(place, KeyspaceId(0)) };
        let options = registry::parse_options::<P>(&toml::from_str(options).unwrap()).unwrap();
        Alone::with(config, options, 1_000_000, MemoryStore::with_simulated_disk(), Recovered::default())
    }

    fn with(config: ReplicaConfig, options: P::Options, now_us: u64, store: MemoryStore<P::Meta>, recovered: Recovered) -> Alone<P> {
        let server = Inner::<P>::new(config.clone(), &options, Driver::Memory(Box::new(store)).into(), recovered).unwrap();
        let mut alone = Alone { config, options, server, now_us, sent: Vec::new(), done: BTreeMap::new() };
        alone.act(|server, now, out| server.start(now, out));
        alone
    }

    /// As [`Alone::new`], one that keeps history.
    pub fn keeping(history_ms: u64, place: Place) -> Alone<P> {
        let config = ReplicaConfig { durability: Durability::Always, history_ms, ..ReplicaConfig::new(place, KeyspaceId(0)) };
        Alone::with(config, P::Options::default(), 1_000_000, MemoryStore::with_simulated_disk(), Recovered::default())
    }

    /// As [`Alone::new`], under `interval`, on a machine that can name its run.
    pub fn under_interval(place: Place) -> Alone<P> {
        let config = ReplicaConfig { boot: Some(1), ..ReplicaConfig::new(place, KeyspaceId(0)) };
        Alone::with(config, P::Options::default(), 1_000_000, MemoryStore::with_simulated_disk(), Recovered::default())
    }

    /// Another, on a machine that has lost its power: it has what is on disk.
    pub fn after_power_loss(&self) -> Alone<P> {
        let (store, recovered) = self.disk().crash_image();
        let config = ReplicaConfig { boot: self.config.boot.map(|boot| boot + 1), ..self.config.clone() };
        Alone::with(config, self.options.clone(), self.now_us + 1_000, store, recovered)
    }

    /// Another, that starts with what the disk of this one has up to `upto`, and with these options.
    pub fn again(&self, upto: Position, options: &str) -> Alone<P> {
        let (store, recovered) = self.disk().crash_image_at(upto);
        let options = registry::parse_options::<P>(&toml::from_str(options).unwrap()).unwrap();
        Alone::with(self.config.clone(), options, self.now_us + 1_000, store, recovered)
    }

    /// Another, that starts with all that this one has logged.
    pub fn restarted(&self) -> Alone<P> {
        let (store, recovered) = self.disk().crash_image_at(self.disk().end());
        Alone::with(self.config.clone(), self.options.clone(), self.now_us + 1_000, store, recovered)
    }

    /// As [`Alone::restarted`], at once and on a machine whose clocks are behind this one's.
    pub fn restarted_behind(&self, ms: u64) -> Alone<P> {
        let (store, recovered) = self.disk().crash_image_at(self.disk().end());
        Alone::with(self.config.clone(), self.options.clone(), self.now_us - ms * 1_000, store, recovered)
    }

    fn disk(&self) -> &MemoryStore<P::Meta> {
        match self.server.store() {
            AnyStore::Memory(store) => store,
            _ => unreachable!("it was made over a store in memory"),
        }
    }

    fn now(&self) -> Now {
        Now { monotonic_us: self.now_us, physical_ms: START_MS + self.now_us / 1000 }
    }

    /// Calls a handler, and returns its effects, which are not executed.
    pub fn step(&mut self, handler: impl FnOnce(&mut P, &mut StepOf<'_, P>)) -> Vec<EffectOf<P>> {
        self.now_us += 1_000;
        let now = self.now();
        self.server.observe(now, handler)
    }

    /// As [`Alone::step`], and what it says to itself arrives.
    pub fn step_and_hear(&mut self, handler: impl FnOnce(&mut P, &mut StepOf<'_, P>)) {
        let here = self.config.place.server;
        let mut effects: VecDeque<EffectOf<P>> = self.step(handler).into();
        while let Some(effect) = effects.pop_front() {
            if let Effect::Send { to, message, .. } = effect
                && to == here
            {
                effects.extend(self.step(|protocol, step| protocol.on_message(step, here.partition, message)));
            }
        }
    }

    fn act<R>(&mut self, act: impl FnOnce(&mut Inner<P>, Now, &mut Outbox) -> R) -> R {
        let (now, here) = (self.now(), self.config.place.server);
        let mut out = Outbox::default();
        let result = act(&mut self.server, now, &mut out);
        loop {
            self.server.write_through();
            while let Some(job) = self.server.poll_flush(now) {
                self.server.end_flush(now, job.run(), &mut out);
            }
            self.done.extend(out.done.drain(..).map(|done| (done.op, (done.outcome, done.session))));
            let frames = std::mem::take(&mut out.frames);
            if frames.is_empty() {
                return result;
            }
            for (to, frame) in frames {
                match to == here {
                    true => self.server.receive(now, here, &frame, &mut out),
                    false => self.sent.push((to, frame)),
                }
            }
        }
    }

    pub fn pass(&mut self, ms: u64) {
        for _ in 0..ms {
            self.now_us += 1_000;
            self.act(|server, now, out| {
                if server.next_tick_us() <= now.monotonic_us {
                    server.tick(now, out);
                }
            });
        }
    }

    pub fn session(&self) -> Session {
        self.server.new_session()
    }

    /// Begins an operation; its outcome, if it has one at once.
    pub fn begin(&mut self, session: &mut Session, operation: Operation) -> Result<Outcome, OpId> {
        match self.act(|server, now, out| server.execute(now, operation, session, out)) {
            Execution::Done { outcome, .. } => Ok(outcome),
            Execution::Waiting(op) => Err(op),
        }
    }

    /// Lets time pass until an operation is done.
    #[track_caller]
    pub fn run(&mut self, session: &mut Session, operation: Operation) -> Outcome {
        let op = match self.begin(session, operation) {
            Ok(outcome) => return outcome,
            Err(op) => op,
        };
        for _ in 0..6_000 {
            if let Some((outcome, after)) = self.done.remove(&op) {
                *session = after;
                return outcome;
            }
            self.pass(1);
        }
        panic!("the operation still waits");
    }

    #[track_caller]
    pub fn put(&mut self, session: &mut Session, key: &Key, value: &str) {
        let item = Item { key: key.clone(), value: Some(value.as_bytes().into()), expires_ms: 0 };
        let outcome = self.run(session, Operation::Put { items: [item].into_iter().collect(), dial: Dial::default() });
        assert!(matches!(outcome, Outcome::Written(_)), "{outcome:?}");
    }

    #[track_caller]
    pub fn get(&mut self, session: &mut Session, key: &Key) -> Option<String> {
        match self.run(session, Operation::Get { key: key.clone(), dial: Dial::default() }) {
            Outcome::Read(read, _) => common::text(read),
            other => panic!("{other:?}"),
        }
    }

    /// What it has written, oldest first.
    pub fn own_updates(&mut self) -> Vec<Update<P::Meta>> {
        self.server.store_mut().own_updates(Default::default(), usize::MAX).unwrap().0
    }

    pub fn gauge(&self, name: &str) -> f64 {
        let gauges = self.server.status(self.now()).gauges;
        gauges.into_iter().find(|(known, _)| *known == name).unwrap().1
    }
}
