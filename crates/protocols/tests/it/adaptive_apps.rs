//! Whether checking groups that follow the clients pay: the two applications of the dissertation's §7.3, in virtual time.
//!
//! `cargo test -p rheostat-protocols --test it adaptive_apps -- --nocapture` prints the tables of `adaptive/PAPER.md`.

use crate::common::{Lab, key, server, text};
use rheostat_core::dial::Dial;
use rheostat_core::ids::{OpId, ServerId};
use rheostat_core::operation::Operation;
use rheostat_core::outcome::Outcome;
use rheostat_core::replica::Execution;
use rheostat_core::session::Session;
use rheostat_core::version::Key;

/// How long an application runs, in milliseconds.
const RUN_MS: u64 = 4_000;

/// A client that reads one key after another, one at a time.
struct Reader {
    dc: u8,
    session: Session,
    waiting: Option<(ServerId, OpId)>,
}

impl Reader {
    fn new(lab: &Lab, dc: u8) -> Reader {
        Reader { dc, session: lab.desk.session(), waiting: None }
    }

    /// The value read, if a read of `key` is over by now: one that has waited, or a new one that need not wait.
    fn read(&mut self, lab: &mut Lab, key: &Key) -> Option<u64> {
        let outcome = match self.waiting {
            Some(waiting) => {
                let (outcome, session) = lab.desk.done.remove(&waiting)?;
                (self.session, self.waiting) = (session, None);
                outcome
            }
            None => match lab.desk.start(self.dc, &mut self.session, Operation::Get { key: key.clone(), dial: Dial::default() }) {
                (_, Execution::Done { outcome, .. }) => outcome,
                (at, Execution::Waiting(op)) => {
                    self.waiting = Some((at, op));
                    return None;
                }
            },
        };
        let Outcome::Read(read, _) = outcome else { panic!("{outcome:?}") };
        Some(text(read).map_or(0, |value| value.parse().unwrap()))
    }
}

/// App1: C1 and C2 answer each other through A, in different data centers; what B sends from C1's takes `slow_ms` longer. Answers in a run.
fn app1(options: &str, slow_ms: u64) -> u64 {
    let mut lab = Lab::new("adaptive", options, 2, (server(0, 1), slow_ms));
    let a = key("a", 0, 2);
    let mut clients = [Reader::new(&lab, 0), Reader::new(&lab, 1)];
    let mut turn = 0;
    while lab.ms < RUN_MS {
        let client = &mut clients[turn as usize % 2];
        if client.read(&mut lab, &a) == Some(turn) {
            let dc = client.dc;
            turn += 1;
            lab.put(dc, &mut client.session, &a, turn);
        }
        lab.pass();
    }
    turn
}

/// App2: C3 reads A and B in turns; in the other data center somebody writes both all the time; what `slow` sends takes `slow_ms` longer.
/// Reads in a run, and the mean age of what was read in its second half, in milliseconds.
fn app2(options: &str, partitions: u16, slow: u16, slow_ms: u64) -> (u64, u64) {
    let mut lab = Lab::new("adaptive", options, partitions, (server(1, slow), slow_ms));
    let keys = [key("a", 0, partitions), key("b", 1, partitions)];
    let (mut writer, mut c3) = (lab.desk.session(), Reader::new(&lab, 0));
    let (mut reads, mut aged, mut age_ms) = (0, 0, 0);
    while lab.ms < RUN_MS {
        let ms = lab.ms;
        lab.put(1, &mut writer, &keys[(ms % 2) as usize], ms);
        if let Some(written) = c3.read(&mut lab, &keys[(reads % 2) as usize]) {
            reads += 1;
            if ms >= RUN_MS / 2 {
                (aged, age_ms) = (aged + 1, age_ms + ms - written);
            }
        }
        lab.pass();
    }
    (reads, age_ms / aged.max(1))
}

const ALL: &str = "choose = \"all\"";
const ALONE: &str = "choose = \"alone\"";
const AUTO: &str = "choose = \"auto\"";
const SLOWER_MS: [u64; 4] = [0, 50, 100, 200];

/// `part` of `whole`, in percent.
fn percent(part: u64, whole: u64) -> u64 {
    part * 100 / whole.max(1)
}

/// App1 wants each partition to check alone (4x1 in the paper); nobody tells the automatic choice.
#[test]
fn app1_goes_as_fast_as_with_the_better_fixed_grouping() {
    let best = app1(ALONE, 0);
    println!("App1, answers in percent of the best\n  B slower by   2x2  4x1  auto");
    for slow_ms in SLOWER_MS {
        let [all, alone, auto] = [ALL, ALONE, AUTO].map(|options| percent(app1(options, slow_ms), best));
        println!("  {slow_ms:>8} ms  {all:>4} {alone:>4} {auto:>5}");
        assert!(auto >= 95, "{slow_ms} ms: {auto} %");
        assert!(slow_ms == 0 || all < 50, "{slow_ms} ms: 2x2 does not suffer, {all} %");
    }
}

/// App2 wants both partitions of a data center to check together (2x2).
#[test]
fn app2_goes_as_fast_as_with_the_better_fixed_grouping() {
    println!("App2, reads in percent of those without updates\n  B slower by   2x2  4x1  auto");
    for slow_ms in SLOWER_MS {
        let [all, alone, auto] = [ALL, ALONE, AUTO].map(|options| percent(app2(options, 2, 1, slow_ms).0, RUN_MS));
        println!("  {slow_ms:>8} ms  {all:>4} {alone:>4} {auto:>5}");
        assert!(auto + 6 >= all.max(alone), "{slow_ms} ms: {auto} %");
        assert!(slow_ms == 0 || alone < 25, "{slow_ms} ms: 4x1 does not suffer, {alone} %");
    }
}

/// App2 beside a third partition that is slow and of no importance to it: a group of the two is made, so that what is read is as fresh as the two allow.
#[test]
fn app2_beside_a_slow_partition_gets_a_group_of_its_own() {
    println!("App2, age of what is read, in ms\n  C slower by   all  alone  auto");
    for slow_ms in SLOWER_MS {
        let [all, alone, auto] = [ALL, ALONE, AUTO].map(|options| app2(options, 3, 2, slow_ms));
        println!("  {slow_ms:>8} ms  {:>4} {:>6} {:>5}", all.1, alone.1, auto.1);
        assert!(auto.1 <= 40 && percent(auto.0, RUN_MS) >= 94, "{slow_ms} ms: {auto:?}");
        assert!(all.1 >= slow_ms, "{slow_ms} ms: the whole data center does not suffer, {all:?}");
    }
}
