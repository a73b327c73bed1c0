//! Random histories of a small correct store: each data center has the updates of the others up to some point, in order
//! of origin and never before what they depend on; sessions wait until their data center has their past.

use rheostat_checkers::{Action, EventId, History, HistoryBuilder, KeyId, Observation, Outcome, SessionId, UniqueValue, WriteItem};
use rheostat_clock::{DcId, Timestamp};
use rheostat_core::dial::Level;
use rheostat_core::random::Random;
use rheostat_core::version::VersionId;

const DATA_CENTERS: usize = 3;
const SESSIONS: usize = 9;

/// How many updates of each data center.
type Vector = [usize; DATA_CENTERS];

struct Update {
    id: VersionId,
    items: Vec<WriteItem>,
    needs: Vector,
}

struct Model {
    random: Random,
    builder: HistoryBuilder,
    keys: u64,
    /// One put in so many is refused, one never happens, one happens without a reply.
    doubt: u64,
    now_us: u64,
    logs: [Vec<Update>; DATA_CENTERS],
    has: [Vector; DATA_CENTERS],
    clock: [u64; DATA_CENTERS],
    store: [Vec<Observation>; DATA_CENTERS],
    past: [Vector; SESSIONS],
    place: [usize; SESSIONS],
    /// A token that was taken, with the past that it stands for.
    tokens: Vec<(EventId, Vector)>,
}

/// A history of `events` operations on `keys` keys, with final reads, drawn from `seed`. `lag` is how rarely updates
/// travel: 1 makes the store nearly sequential.
pub fn history(seed: u64, events: usize, keys: u32, lag: u64) -> History {
    let mut builder = HistoryBuilder::new(DATA_CENTERS as u8);
    for key in 0..keys {
        builder.key(format!("k{key}").as_bytes());
    }
    let mut random = Random::new(seed);
    let mut model = Model {
        doubt: random.between(4, 40),
        random,
        builder,
        keys: u64::from(keys),
        now_us: 0,
        logs: Default::default(),
        has: Default::default(),
        clock: [1; DATA_CENTERS],
        store: std::array::from_fn(|_| vec![Observation::ABSENT; keys as usize]),
        past: Default::default(),
        place: std::array::from_fn(|session| session % DATA_CENTERS),
        tokens: Vec::new(),
    };
    while model.builder.events().len() < events {
        if model.random.chance(1, lag) {
            let (to, from) = (model.random.below(3) as usize, model.random.below(3) as usize);
            model.deliver(to, from);
        }
        model.operate();
    }
    for dc in 0..DATA_CENTERS {
        let everything: Vector = std::array::from_fn(|from| model.logs[from].len());
        model.catch_up(dc, &everything);
        for key in 0..keys {
            let observed = model.store[dc][key as usize];
            model.builder.final_read(model.now_us + 1, DcId(dc as u8), KeyId(key), observed);
        }
    }
    model.builder.finish().expect("the model records well-formed histories")
}

impl Model {
    fn apply(&mut self, dc: usize, from: usize) {
        let update = &self.logs[from][self.has[dc][from]];
        for item in &update.items {
            let held = &mut self.store[dc][item.key.index()];
            if held.version < Some(update.id) {
                *held = Observation { version: Some(update.id), value: item.value };
            }
        }
        self.clock[dc] = self.clock[dc].max(update.id.written.millis());
        self.has[dc][from] += 1;
    }

    /// Brings the next update of `from` to `dc`, if what it depends on is there.
    fn deliver(&mut self, dc: usize, from: usize) -> bool {
        let here = self.has[dc];
        let arrives = self.logs[from].get(here[from]).is_some_and(|update| (0..DATA_CENTERS).all(|other| update.needs[other] <= here[other]));
        if arrives {
            self.apply(dc, from);
        }
        arrives
    }

    fn catch_up(&mut self, dc: usize, needs: &Vector) {
        while (0..DATA_CENTERS).any(|from| self.has[dc][from] < needs[from]) {
            // What is needed may wait for what is not: then one update of any data center is brought.
            let needed = (0..DATA_CENTERS).any(|from| self.has[dc][from] < needs[from] && self.deliver(dc, from));
            assert!(needed || (0..DATA_CENTERS).any(|from| self.deliver(dc, from)), "the model is stuck");
        }
    }

    fn operate(&mut self) {
        let session = self.random.below(SESSIONS as u64) as usize;
        if self.random.chance(1, 20) {
            self.place[session] = self.random.below(DATA_CENTERS as u64) as usize;
        }
        let (dc, name) = (self.place[session], SessionId(session as u64));
        let center = DcId(dc as u8);
        self.now_us += self.random.between(1, 50);
        let needs = self.past[session];
        self.catch_up(dc, &needs);
        match self.random.below(20) {
            0 => {
                if let Some(token) = self.builder.token(name) {
                    self.tokens.push((token, self.past[session]));
                }
            }
            1 if !self.tokens.is_empty() => {
                let place = self.random.below(self.tokens.len() as u64) as usize;
                let (token, past) = self.tokens[place];
                self.builder.adopt(name, center, self.now_us, &[token]).expect("the session is idle");
                (0..DATA_CENTERS).for_each(|from| self.past[session][from] = self.past[session][from].max(past[from]));
            }
            2..=8 => self.put(session, dc),
            9..=11 => {
                let keys = self.some_keys(4);
                let observed = keys.iter().map(|key| self.store[dc][key.index()]).collect();
                self.read(session, dc, Action::ReadTransaction { keys, level: Level::Causal }, observed);
            }
            kind => {
                let key = KeyId(self.random.below(self.keys) as u32);
                let level = if kind == 12 { Level::Eventual } else { Level::Causal };
                let observed = self.store[dc][key.index()];
                self.read(session, dc, Action::Get { key, level }, vec![observed]);
            }
        }
    }

    fn some_keys(&mut self, most: u64) -> Vec<KeyId> {
        let wanted = self.random.between(1, most.min(self.keys));
        let first = self.random.below(self.keys);
        (0..wanted).map(|step| KeyId(((first + step) % self.keys) as u32)).collect()
    }

    fn put(&mut self, session: usize, dc: usize) {
        let keys = if self.random.chance(1, 4) { self.some_keys(3) } else { self.some_keys(1) };
        let mut items = Vec::new();
        for key in keys {
            let value: UniqueValue = self.builder.fresh_value();
            items.push(WriteItem { key, value: Some(value).filter(|_| !self.random.chance(1, 6)) });
        }
        let name = SessionId(session as u64);
        let event = self
            .builder
            .begin(name, DcId(dc as u8), self.now_us, Action::Put { items: items.clone(), level: Level::Causal })
            .expect("the session is idle");
        self.now_us += self.random.between(1, 20);
        let outcome = self.random.below(self.doubt);
        if outcome == 0 {
            self.builder.end(event, self.now_us, Outcome::Failed).expect("it is under way");
            return;
        }
        if outcome != 1 {
            self.clock[dc] += 1;
            let id = VersionId { written: Timestamp::new(self.clock[dc], 0), origin: DcId(dc as u8) };
            // As in a server, an update depends on what its session knows, and on what its data center wrote before it.
            let mut needs = self.past[session];
            needs[dc] = self.logs[dc].len();
            self.logs[dc].push(Update { id, items, needs });
            self.apply(dc, dc);
            if outcome > 2 {
                self.past[session][dc] = self.logs[dc].len();
                self.builder.end(event, self.now_us, Outcome::Written(Some(id))).expect("it is under way");
                return;
            }
        }
        self.builder.unknown(event).expect("it is under way");
    }

    fn read(&mut self, session: usize, dc: usize, action: Action, observed: Vec<Observation>) {
        let causal = matches!(action, Action::Get { level: Level::Causal, .. } | Action::ReadTransaction { level: Level::Causal, .. });
        // A tombstone may have been collected, or the interface may not tell versions.
        let mut told = observed;
        for observation in &mut told {
            if self.random.chance(1, 4) {
                observation.version = None;
            }
        }
        let event = self.builder.begin(SessionId(session as u64), DcId(dc as u8), self.now_us, action).expect("the session is idle");
        self.now_us += self.random.between(1, 20);
        self.builder.end(event, self.now_us, Outcome::Read(told)).expect("it is under way");
        if causal {
            // Everything that is here is a safe bound for what was read.
            (0..DATA_CENTERS).for_each(|from| self.past[session][from] = self.past[session][from].max(self.has[dc][from]));
        }
    }
}
