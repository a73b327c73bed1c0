//! Monitors against the reference detector, in random executions: servers in several data centers, clocks astray, updates and reports that take their time.

use rheostat_clock::{DcId, Epsilon, Timestamp};
use rheostat_core::ids::{KeyspaceId, PartitionId, Place, ServerId};
use rheostat_core::planted::Planted;
use rheostat_core::random::Random;
use rheostat_core::version::{Key, VersionId};
use rheostat_core::wire::Wire;
use rheostat_monitor::alarm::{Alarm, Evidence, Verdict};
use rheostat_monitor::detector::{Detector, Standing};
use rheostat_monitor::monitor::{Monitor, Notice};
use rheostat_monitor::predicate::{Clause, Definition, Predicate, Predicates, Target};
use rheostat_monitor::reference::{Cuts, Recorded, is_consistent, violations};
use rheostat_monitor::report::{Event, Report};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const KEYSPACE: KeyspaceId = KeyspaceId(0);
const DATA_CENTERS: u8 = 3;
const PARTITIONS: u16 = 2;
const VARIABLES: u16 = 4;

fn home(_: &Target) -> u16 {
    0
}

fn key(variable: u16) -> Key {
    Key::from(format!("v{variable}").into_bytes())
}

/// What a state is known by: variable, server, and when it began on that server's clock.
type Mark = (Key, ServerId, Timestamp);

struct Server {
    detector: Detector,
    /// How far its clock is ahead of true time, in milliseconds.
    ahead_ms: u64,
    at: Timestamp,
    vector: Vec<u64>,
    has: BTreeMap<u16, (Option<VersionId>, usize, Timestamp)>,
}

enum Message {
    Update { to: ServerId, from: ServerId, sent: Timestamp, variable: u16, version: VersionId, value: u8, vector: Vec<u64> },
    Report(Report),
    Ask { server: ServerId, whole: bool },
}

struct Execution {
    random: Random,
    servers: BTreeMap<ServerId, Server>,
    states: Vec<Recorded>,
    marks: Vec<Mark>,
    /// By time and number: what arrives then.
    agenda: BTreeMap<(u64, u64), Message>,
    fifo: BTreeMap<(ServerId, Option<ServerId>), u64>,
    monitor: Monitor,
    /// Until when the monitor is away, or was, and how many alarms it had raised before.
    away: Option<(u64, usize)>,
    alarms: Vec<Alarm>,
    gaps: usize,
    /// In which order the monitor heard of states.
    heard: BTreeMap<usize, usize>,
    predicate: Arc<Predicate>,
    sent: u64,
    lose_percent: u64,
    now_us: u64,
    horizon_us: u64,
}

/// By then a monitor that is back has been told what stands: a detector tells how far it has come, is asked for everything, and tells it.
const ASKED_WITHIN_US: u64 = 300_000;
/// How long an execution goes on when a monitor has died in it.
const AFTER_DEATH_US: u64 = 2_000_000;

/// How an execution goes.
#[derive(Clone, Copy)]
struct Course {
    seed: u64,
    epsilon: Epsilon,
    skew_ms: u64,
    lose_percent: u64,
    planted: Planted,
    writes: u64,
    /// When so many writes are left, the monitor dies, and knows nothing when it is back.
    dies_before: u64,
}

/// Clocks are ahead by ε at most: who stood beside another for longer than twice that did so for certain.
const CERTAIN_US: u64 = 22_000;

impl Course {
    /// Whether monitors know of each state how long it stood.
    fn tells_for_certain(&self) -> bool {
        self.epsilon == Epsilon::Millis(10) && self.skew_ms <= 10 && (self.lose_percent, self.dies_before) == (0, 0)
    }
}

/// For how long all of `states` stood at once.
fn together_us(states: &[&Recorded]) -> u64 {
    let (from, until) = (states.iter().map(|state| state.moments.0).max(), states.iter().map(|state| state.moments.1).min());
    until.unwrap_or_default().saturating_sub(from.unwrap_or_default())
}

impl Execution {
    fn run(predicate: &Arc<Predicate>, course: Course) -> Execution {
        let predicates = Arc::new(Predicates::new([predicate.clone()]));
        let mut random = Random::new(course.seed);
        let processes = usize::from(DATA_CENTERS) * usize::from(PARTITIONS);
        let mut monitor = Monitor::new(course.epsilon, 64 << 20, 0, course.planted);
        monitor.watch(KEYSPACE, predicates.clone());
        let mut execution = Execution {
            servers: BTreeMap::new(),
            states: Vec::new(),
            marks: Vec::new(),
            agenda: BTreeMap::new(),
            fifo: BTreeMap::new(),
            monitor,
            away: None,
            alarms: Vec::new(),
            gaps: 0,
            heard: BTreeMap::new(),
            predicate: predicate.clone(),
            sent: 0,
            lose_percent: course.lose_percent,
            now_us: 1_000_000,
            horizon_us: 0,
            random: Random::new(course.seed ^ 0x55AA),
        };
        for dc in 0..DATA_CENTERS {
            for partition in 0..PARTITIONS {
                let server = ServerId::new(DcId(dc), PartitionId(partition));
                let place = Place { server, data_centers: DATA_CENTERS, partitions: PARTITIONS, first_partitions: PARTITIONS, replicas: 1 };
                let ahead_ms = random.below(course.skew_ms + 1);
                let at = Timestamp::new(1000 + ahead_ms, 0);
                let mut detector = Detector::new(KEYSPACE, place, course.epsilon, at);
                let own = |key: &Key| (0..VARIABLES).any(|variable| variable % PARTITIONS == partition && **key == *self::key(variable));
                detector.watch(execution.now_us, at, predicates.clone(), &home, |key| own(key).then_some(Standing::NOTHING).into_iter().collect());
                if detector.counting().is_some() {
                    detector.counted(execution.now_us, None);
                }
                let mut has = BTreeMap::new();
                for variable in (0..VARIABLES).filter(|variable| variable % PARTITIONS == partition) {
                    has.insert(variable, (None, execution.states.len(), at));
                    execution.marks.push((key(variable), server, at));
                    execution.states.push(Recorded {
                        server,
                        variable: key(variable),
                        version: None,
                        value: None,
                        moments: (0, u64::MAX),
                        began: vec![0; processes],
                        ended: None,
                    });
                }
                execution.servers.insert(server, Server { detector, ahead_ms, at: at.plus_millis(1), vector: vec![0; processes], has });
            }
        }
        let mut writes = course.writes;
        // A sum is looked at when all servers have told what they have.
        let mut next_write_us = execution.now_us + if predicate.sums() { 200_000 } else { 0 };
        execution.horizon_us = next_write_us;
        while writes > 0 || !execution.agenda.is_empty() || execution.now_us < execution.horizon_us {
            execution.now_us += 500;
            while let Some(entry) = execution.agenda.first_entry().filter(|entry| entry.key().0 <= execution.now_us) {
                let message = entry.remove();
                execution.take(message);
            }
            if writes > 0 && execution.now_us >= next_write_us {
                writes -= 1;
                next_write_us += 500 * execution.random.below(60);
                let (dc, variable) = (DcId(random.below(u64::from(DATA_CENTERS)) as u8), random.below(u64::from(VARIABLES)) as u16);
                execution.write(ServerId::new(dc, PartitionId(variable % PARTITIONS)), variable, random.below(3) as u8);
                execution.horizon_us = execution.now_us + if course.dies_before > 0 { AFTER_DEATH_US } else { 1_000_000 };
                if writes > 0 && writes == course.dies_before {
                    execution.monitor = Monitor::new(course.epsilon, 64 << 20, 1_000_000, course.planted);
                    execution.monitor.watch(KEYSPACE, predicates.clone());
                    execution.heard.clear();
                    execution.away = Some((execution.now_us + random.below(200_000), execution.alarms.len()));
                }
            }
            execution.tell();
        }
        execution
    }

    fn time(&mut self, server: ServerId) -> Timestamp {
        let physical_ms = self.now_us / 1000;
        let server = self.servers.get_mut(&server).unwrap();
        server.at = server.at.successor().max(Timestamp::new(physical_ms + server.ahead_ms, 0));
        server.at
    }

    fn send(&mut self, from: ServerId, to: Option<ServerId>, most_ms: u64, message: Message) {
        let at = self.now_us + 1000 * self.random.below(most_ms) + 500;
        let last = self.fifo.entry((from, to)).or_default();
        *last = at.max(*last);
        self.sent += 1;
        self.agenda.insert((*last, self.sent), message);
    }

    fn write(&mut self, server: ServerId, variable: u16, value: u8) {
        let at = self.time(server);
        let version = VersionId { written: at, origin: server.dc };
        self.apply(server, at, variable, version, value, None);
        for dc in (0..DATA_CENTERS).map(DcId).filter(|dc| *dc != server.dc) {
            let to = ServerId { dc, ..server };
            let vector = self.servers[&server].vector.clone();
            self.send(server, Some(to), 80, Message::Update { to, from: server, sent: at, variable, version, value, vector });
        }
    }

    fn apply(&mut self, server: ServerId, at: Timestamp, variable: u16, version: VersionId, value: u8, told: Option<&[u64]>) {
        let process = usize::from(server.dc.0) * usize::from(PARTITIONS) + usize::from(server.partition.0);
        // No two things happen at one moment.
        self.now_us += 1;
        let now_us = self.now_us;
        let this = self.servers.get_mut(&server).unwrap();
        if let Some(told) = told {
            this.vector.iter_mut().zip(told).for_each(|(own, told)| *own = (*own).max(*told));
        }
        this.vector[process] += 1;
        if this.has[&variable].0.is_some_and(|had| had > version) {
            return;
        }
        let value: Option<Key> = (value > 0).then(|| Key::from(value.to_string().into_bytes()));
        let before = this.has.insert(variable, (Some(version), self.states.len(), at)).unwrap();
        self.states[before.1].moments.1 = now_us;
        self.states[before.1].ended = Some(this.vector.clone());
        self.marks.push((key(variable), server, at));
        self.states.push(Recorded {
            server,
            variable: key(variable),
            version: Some(version),
            value: value.clone(),
            moments: (now_us, u64::MAX),
            began: this.vector.clone(),
            ended: None,
        });
        this.detector.applied(now_us, at, &key(variable), &[Standing { version: Some(version), value, expires_ms: 0 }], &home);
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Update { to, from, sent, variable, version, value, vector } => {
                let at = self.time(to);
                self.servers.get_mut(&to).unwrap().detector.heard(from, sent);
                self.apply(to, at, variable, version, value, Some(&vector));
            }
            Message::Ask { server, whole } => {
                let detector = &mut self.servers.get_mut(&server).unwrap().detector;
                detector.ask(self.now_us, 0);
                if whole {
                    detector.tell_whole(0);
                }
            }
            Message::Report(_) if self.away.is_some_and(|(until_us, _)| self.now_us < until_us) => {}
            Message::Report(report) => {
                let report = Report::from_bytes(&report.to_bytes()).unwrap();
                let mut heard = Vec::new();
                for event in &report.events {
                    let told = match event {
                        Event::Began(began) => Some((self.predicate.places[usize::from(began.place)].variable.fill(&[]), began)),
                        Event::OfKey(key, began) => Some((key.clone(), began)),
                        Event::Ended(_) | Event::Counted(_) => None,
                    };
                    if let Some((variable, began)) = told {
                        let state = self.state(&variable, report.server, began.start.at());
                        heard.push(state);
                    }
                }
                let of = report.server;
                self.monitor.on_report(self.now_us, report);
                let notices = self.monitor.notices();
                // What comes after something that is missing is told again.
                let is_taken = !notices.iter().any(|notice| matches!(notice, Notice::Ask { server, whole: true, .. } if *server == of));
                for state in heard.into_iter().filter(|_| is_taken) {
                    let order = self.heard.len();
                    self.heard.entry(state).or_insert(order);
                }
                for notice in notices {
                    match notice {
                        Notice::Alarm(alarm) => self.alarms.push(Alarm::from_bytes(&alarm.to_bytes()).unwrap()),
                        Notice::Gap(..) => self.gaps += 1,
                        Notice::Ask { server, whole, .. } => self.send(server, Some(server), 20, Message::Ask { server, whole }),
                    }
                }
            }
        }
    }

    fn tell(&mut self) {
        let all: Vec<ServerId> = self.servers.keys().copied().collect();
        for server in all {
            if self.servers[&server].detector.next_us() > self.now_us {
                continue;
            }
            let at = self.time(server);
            let reports = self.servers.get_mut(&server).unwrap().detector.reports(self.now_us, at);
            // It has told how far it has come, for ever: a run ends.
            for (_, report) in reports {
                if self.now_us < self.horizon_us && self.random.below(100) >= self.lose_percent {
                    self.send(server, None, 60, Message::Report(report));
                }
            }
        }
    }

    /// The state of `variable` that `server` had at its time `at`.
    fn state(&self, variable: &Key, server: ServerId, at: Timestamp) -> usize {
        let known = |mark: &Mark| (&mark.0, mark.1) == (variable, server) && mark.2 <= at;
        self.marks.iter().rposition(known).expect("a state that was")
    }

    fn follows(&self, before: usize, after: usize) -> bool {
        // Several can have begun in one moment.
        let between = |other: usize| self.same(other, after) && other > before;
        before < after && self.same(before, after) && !(before + 1..after).any(between)
    }

    fn same(&self, one: usize, other: usize) -> bool {
        let (one, other) = (&self.states[one], &self.states[other]);
        (one.server, &one.variable) == (other.server, &other.variable)
    }

    /// The state that was told of, if one was: a write that changes nothing for a place goes on with the state before it.
    fn heard_of(&self, mut state: usize) -> Option<usize> {
        while !self.heard.contains_key(&state) {
            state = (0..self.states.len()).find(|before| self.follows(*before, state))?;
        }
        Some(state)
    }

    fn told(&self, state: usize) -> usize {
        self.heard_of(state).unwrap_or_else(|| panic!("not told of: {:?} {:?}", self.states[state], self.predicate.definition))
    }

    /// Whether a monitor has to find what these states violate: one that was away finds what stands for some time when it is back; of servers of which it hears for the first time, too.
    fn is_to_be_found(&self, states: &[usize]) -> bool {
        let stands = |(from_us, until_us): (u64, u64), back_us: u64| until_us > from_us.max(back_us) + ASKED_WITHIN_US;
        self.away.is_none_or(|(back_us, _)| states.iter().all(|state| stands(self.states[*state].moments, back_us)))
    }

    /// `state` as long as it fulfilled `place`.
    fn whole(&self, place: usize, state: usize) -> Recorded {
        let mut last = state;
        let (of, predicate) = (&self.predicate.places[place], &self.predicate);
        while let Some(next) = (0..self.states.len()).find(|next| self.follows(last, *next)) {
            let next_state = &self.states[next];
            let here = predicate.definition.everywhere || next_state.version.is_none_or(|version| version.origin == next_state.server.dc);
            let same = !of.compared || next_state.value == self.states[state].value;
            if !(here && same && of.holds(next_state.value.as_deref(), &[])) {
                break;
            }
            last = next;
        }
        let first = self.states[state].clone();
        Recorded { moments: (first.moments.0, self.states[last].moments.1), ..first }
    }
}

fn predicate(expression: &str, everywhere: bool) -> Arc<Predicate> {
    let definition = Definition { name: "p".into(), keyspace: "k".into(), expression: expression.into(), infer: false, everywhere };
    Arc::new(Predicate::new(definition).unwrap())
}

/// What the monitors have missed of what the reference finds, and violations of which the reference knows nothing.
fn judge(predicate: &Arc<Predicate>, course: Course, cuts: Cuts) -> (Vec<String>, [usize; 3]) {
    let execution = Execution::run(predicate, course);
    let mut faults = Vec::new();
    let number = |evidence: &Evidence| execution.state(&evidence.variable, evidence.server, evidence.from);
    // The first piece of evidence of a sum is the sum.
    let evidence = |alarm: &Alarm| alarm.evidence[usize::from(predicate.sums())..].to_vec();
    let before = execution.away.map_or(0, |(_, before)| before);
    let told = |verdict: fn(Verdict) -> bool| -> BTreeSet<usize> {
        execution.alarms[before..].iter().filter(|alarm| verdict(alarm.verdict)).flat_map(evidence).map(|evidence| number(&evidence)).collect()
    };
    let (alarmed, certain) = (told(|_| true), told(|verdict| verdict == Verdict::Violated));
    let found = violations(predicate, &execution.states, cuts);
    for (clause, states) in found.iter().filter(|(_, states)| execution.is_to_be_found(states)) {
        let told: Option<Vec<usize>> = states.iter().map(|state| execution.heard_of(*state)).collect();
        let last = told.and_then(|told| told.into_iter().max_by_key(|state| execution.heard[state]));
        let whole = || states.iter().map(|state| &execution.states[*state]).collect::<Vec<_>>();
        if !last.is_some_and(|last| alarmed.contains(&last)) {
            faults.push(format!("clause {clause} was missed: {:?}", whole()));
        } else if course.tells_for_certain()
            && !predicate.sums()
            && together_us(&whole()) > CERTAIN_US
            && !last.is_some_and(|last| certain.contains(&last))
        {
            faults.push(format!("clause {clause} is not said to be violated for certain: {:?}", whole()));
        }
    }
    let mut false_alarms = 0;
    let mut seen = BTreeSet::new();
    let cuts: BTreeSet<BTreeSet<usize>> = match predicate.sums() {
        true => found.iter().map(|(_, states)| states.iter().map(|state| execution.told(*state)).collect()).collect(),
        false => BTreeSet::new(),
    };
    for alarm in &execution.alarms {
        if predicate.sums() {
            let really = cuts.contains(&evidence(alarm).iter().map(number).collect::<BTreeSet<usize>>());
            if alarm.verdict == Verdict::Violated && !really {
                faults.push(format!("called a violation, and was none: {alarm:?}"));
            }
            false_alarms += usize::from(seen.insert(alarm.number) && !really);
            continue;
        }
        let variables: Vec<&Key> = alarm.evidence.iter().map(|evidence| &evidence.variable).collect();
        let of = |clause: &&Clause| {
            clause.places.clone().map(|place| predicate.places[place].variable.fill(&[])).collect::<Vec<_>>().iter().eq(variables.iter().copied())
        };
        let clause = predicate.clauses.iter().find(of).unwrap();
        let states: Vec<Recorded> =
            alarm.evidence.iter().zip(clause.places.clone()).map(|(evidence, place)| execution.whole(place, number(evidence))).collect();
        let really = is_consistent(&states.iter().collect::<Vec<_>>(), Cuts::OfAMoment);
        if alarm.verdict == Verdict::Violated && !really {
            faults.push(format!("called a violation, and was none: {alarm:?}"));
        }
        if seen.insert(alarm.number) && !really {
            false_alarms += 1;
        }
    }
    (faults, [found.len(), seen.len(), false_alarms])
}

const EXPRESSIONS: [&str; 7] = [
    "!(v0 = 1 && v1 = 1)",
    "!(v0 = 1 && v1 = 2 && v2 = 1)",
    "!(v0 = 1 && v0 = 2)",
    "!((v0 = 1 && v3 = 1) || v1 = absent && v2 = 2)",
    "v0 + v1 + v2 <= 4",
    "v0 = absent || v1 = absent || v0 = v1 || v2 != 1",
    "!(v0 > 1 && v1 < 2 && v2 = absent && v3 != 2)",
];

const SUMS: [&str; 4] = ["sum(v*) <= 4", "sum(v[0-2]) >= 3", "2*sum(v*) - sum(v[12]) <= 7", "sum(v[01]) = sum(v[23])"];

fn course(seed: u64) -> Course {
    Course { seed, epsilon: Epsilon::Millis(10), skew_ms: 10, lose_percent: 0, planted: Planted::NONE, writes: 40, dies_before: 0 }
}

#[test]
fn no_violation_is_missed_while_clocks_are_within_epsilon_and_none_is_made_up() {
    let mut sums = [0; 3];
    for seed in 0..30 {
        for (number, expression) in EXPRESSIONS.iter().enumerate() {
            let predicate = predicate(expression, (seed + number as u64).is_multiple_of(2));
            let (faults, numbers) = judge(&predicate, course(seed), Cuts::OfAMoment);
            assert!(faults.is_empty(), "{expression}, seed {seed}: {faults:#?}");
            sums.iter_mut().zip(numbers).for_each(|(sum, number)| *sum += number);
        }
    }
    let [found, alarms, false_alarms] = sums;
    assert!(found > 1000 && alarms > 500, "{sums:?}");
    println!("{found} violating cuts, {alarms} alarms, {false_alarms} of them false (all marked possible)");
    assert!(false_alarms * 4 < alarms, "{sums:?}");
}

#[test]
fn no_sum_beyond_its_bound_is_missed_and_none_is_made_up() {
    let mut sums = [0; 3];
    for seed in 0..8 {
        for (number, expression) in SUMS.iter().enumerate() {
            let predicate = predicate(expression, (seed + number as u64).is_multiple_of(2));
            let (faults, numbers) = judge(&predicate, course(seed), Cuts::OfAMoment);
            assert!(faults.is_empty(), "{expression}, seed {seed}: {faults:#?}");
            sums.iter_mut().zip(numbers).for_each(|(sum, number)| *sum += number);
        }
    }
    let [found, alarms, false_alarms] = sums;
    println!("{found} cuts beyond a bound, {alarms} alarms, {false_alarms} of them false (all marked possible)");
    assert!(found > 500 && alarms > 300 && false_alarms * 2 < alarms, "{sums:?}");
}

#[test]
fn without_any_bound_on_clocks_nothing_is_missed_that_happened_before_allows() {
    for seed in 0..15 {
        for expression in EXPRESSIONS {
            let course = Course { epsilon: Epsilon::Infinite, skew_ms: 5000, writes: 20, ..course(seed) };
            let (faults, _) = judge(&predicate(expression, seed.is_multiple_of(2)), course, Cuts::HappenedBefore);
            let missed: Vec<_> = faults.iter().filter(|fault| fault.contains("missed")).collect();
            assert!(missed.is_empty(), "{expression}, seed {seed}: {missed:#?}");
        }
    }
}

#[test]
fn clocks_beyond_epsilon_hide_violations() {
    let missed = |skew_ms: u64| {
        let of = |seed: u64| judge(&predicate(EXPRESSIONS[0], true), Course { skew_ms, ..course(seed) }, Cuts::OfAMoment).0.len();
        (0..40).map(of).sum::<usize>()
    };
    assert_eq!(missed(10), 0);
    assert!(missed(2000) > 0, "what is promised up to ε is not promised beyond it");
}

#[test]
fn lost_reports_are_noticed_and_made_up_for() {
    let (mut gaps, mut alarms) = (0, 0);
    for seed in 0..20 {
        let execution = Execution::run(&predicate(EXPRESSIONS[0], true), Course { lose_percent: 20, ..course(seed) });
        gaps += execution.gaps;
        alarms += execution.alarms.len();
    }
    assert!(gaps > 0 && alarms > 0, "{gaps} gaps, {alarms} alarms");
}

/// The node that watches dies in the middle, and another one, or the same again, begins with nothing.
#[test]
fn a_monitor_that_died_finds_what_stands_when_it_is_back() {
    let (mut found, mut gaps) = (0, 0);
    for seed in 0..60 {
        for (number, expression) in EXPRESSIONS.iter().enumerate() {
            let predicate = predicate(expression, (seed + number as u64).is_multiple_of(2));
            let course = Course { dies_before: 1 + (seed * 7 + number as u64) % 39, ..course(seed) };
            let (faults, _) = judge(&predicate, course, Cuts::OfAMoment);
            assert!(faults.is_empty(), "{expression}, seed {seed}: {faults:#?}");
            let execution = Execution::run(&predicate, course);
            found += violations(&predicate, &execution.states, Cuts::OfAMoment).iter().filter(|(_, states)| execution.is_to_be_found(states)).count();
            gaps += execution.gaps;
        }
    }
    println!("{found} violating cuts that stood for long enough, {gaps} gaps");
    assert!(found > 80 && gaps > 100, "{found} {gaps}");
}

#[test]
fn planted_bugs_are_caught() {
    for planted in rheostat_monitor::PLANTED {
        let caught = (0..60).any(|seed| {
            let course = Course { planted: Planted::bug(planted), ..course(seed) };
            let dies = Course { dies_before: 20, ..course };
            [(EXPRESSIONS[0], course), (EXPRESSIONS[1], course), (SUMS[0], course), (EXPRESSIONS[0], dies), (EXPRESSIONS[3], dies)]
                .into_iter()
                .any(|(expression, course)| !judge(&predicate(expression, true), course, Cuts::OfAMoment).0.is_empty())
        });
        assert!(caught, "{planted} was not caught");
    }
}
