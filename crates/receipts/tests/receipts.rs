//! Receipts: what is signed, what is noticed when it was altered, and which statements contradict each other.

use proptest::prelude::*;
use rheostat_core::dial::{Guarantees, Level};
use rheostat_core::version::VersionId;
use rheostat_core::{DcId, Timestamp, TimestampVector};
use rheostat_receipts::verify::{Broken, Contradiction, Verdict, compare};
use rheostat_receipts::{Act, Batch, Damaged, Digest, MOST_LINE, Receipt, Signer, Statement, key_of, parse_key};

fn id(ms: u64, dc: u8) -> VersionId {
    VersionId { written: Timestamp::new(ms, 0), origin: DcId(dc) }
}

fn statement(act: Act, key: &str, version: Option<VersionId>) -> Statement {
    Statement {
        cluster: 1,
        node: "a1".into(),
        here: DcId(0),
        keyspace: "default".into(),
        salt: 0,
        key: Statement::key_digest(key.as_bytes()),
        act,
        version,
        lasting: true,
        level: Level::Causal,
        staleness_ms: None,
        began_ms: 1_000,
        before: [0; 32],
        after: [0; 32],
        past: TimestampVector::new(),
        previous: None,
    }
}

/// Signs each alone.
fn sign(statements: Vec<Statement>) -> Vec<Receipt> {
    let signer = Signer::new().unwrap();
    let one = |statement: Statement| {
        let mut batch = Batch::default();
        let place = batch.add(statement.digest()).unwrap();
        batch.receipt(statement, place, &signer).unwrap()
    };
    statements.into_iter().map(one).collect()
}

/// What clients hold, as they go on.
#[derive(Default)]
struct Held {
    statements: Vec<Statement>,
    states: u64,
}

/// A session: what it remembers, and its last statement.
#[derive(Clone, Default)]
struct Session {
    state: Digest,
    last: Option<Digest>,
    wrote: u64,
}

impl Held {
    fn add(&mut self, session: &mut Session, change: impl FnOnce(&mut Statement), act: Act, key: &str, version: Option<VersionId>) -> usize {
        self.states += 1;
        let mut after = [0; 32];
        after[..8].copy_from_slice(&self.states.to_le_bytes());
        if let (Act::Write, Some(version)) = (act, version) {
            session.wrote = session.wrote.max(version.written.millis());
        }
        let past = [(DcId(0), Timestamp::new(session.wrote, 0))].into_iter().collect();
        let mut one = Statement { salt: self.states, before: session.state, after, previous: session.last, past, ..statement(act, key, version) };
        change(&mut one);
        (session.state, session.last) = (after, Some(one.digest()));
        self.statements.push(one);
        self.statements.len() - 1
    }

    fn read(&mut self, session: &mut Session, key: &str, version: Option<VersionId>) -> usize {
        self.add(session, |_| (), Act::Read, key, version)
    }

    fn write(&mut self, session: &mut Session, key: &str, version: VersionId) -> usize {
        self.add(session, |_| (), Act::Write, key, Some(version))
    }

    fn verdict(&self) -> Verdict {
        let verdict = compare(&sign(self.statements.clone())).unwrap();
        // In whatever order they come, and twice.
        let mut turned: Vec<Statement> = self.statements.iter().rev().cloned().collect();
        turned.extend(self.statements.iter().cloned());
        let other = compare(&sign(turned)).unwrap();
        assert_eq!(other.contradictions.len(), verdict.contradictions.len());
        assert_eq!((other.linked, other.caused, other.chains), (verdict.linked, verdict.caused, verdict.chains));
        verdict
    }

    #[track_caller]
    fn contradict(&self, expected: &[(Broken, usize, usize)]) {
        let found: Vec<_> = self.verdict().contradictions.iter().map(|one| (one.broken, one.known, one.later)).collect();
        assert_eq!(found, expected);
    }
}

#[test]
fn every_statement_of_a_batch_has_its_receipt_under_one_signature() {
    let signer = Signer::new().unwrap();
    let again = Signer::from_document(signer.document()).unwrap();
    assert_eq!(again.public(), signer.public());
    assert_eq!(parse_key(&signer.public()).map(|key| key_of(&key)), Some(signer.public()));
    assert_eq!((parse_key("12"), parse_key(&"x".repeat(64)), parse_key("")), (None, None, None));
    for count in 1..=33u64 {
        let mut batch = Batch::default();
        let statements: Vec<Statement> = (0..count).map(|salt| Statement { salt, ..statement(Act::Read, "k", None) }).collect();
        let places: Vec<u32> = statements.iter().map(|one| batch.add(one.digest()).unwrap()).collect();
        let mut signatures = Vec::new();
        for (one, place) in statements.iter().zip(places) {
            let receipt = batch.receipt(one.clone(), place, &signer).unwrap();
            let line = receipt.to_line();
            assert!(line.len() < MOST_LINE);
            assert_eq!(Receipt::from_line(line.as_bytes()).as_ref(), Ok(&receipt), "{place} of {count}");
            assert_eq!(key_of(&receipt.key()), signer.public());
            signatures.push(line[line.len() - 192..].to_string());
        }
        signatures.dedup();
        assert_eq!(signatures.len(), 1, "one signature");
        assert_eq!(batch.add([0; 32]), None, "what is signed is closed");
        assert_eq!(batch.receipt(statements[0].clone(), count as u32, &signer), None);
        // A statement at another's place.
        if count > 1 {
            let wrong = batch.receipt(statements[0].clone(), 1, &signer).unwrap();
            assert_eq!(Receipt::from_line(wrong.to_line().as_bytes()), Err(Damaged::Forged));
        }
    }
}

#[test]
fn no_digit_can_be_altered() {
    let signer = Signer::new().unwrap();
    let mut batch = Batch::default();
    let one = Statement { staleness_ms: Some(7), previous: Some([9; 32]), ..statement(Act::Write, "k", Some(id(5, 1))) };
    batch.add([1; 32]);
    let place = batch.add(one.digest()).unwrap();
    batch.add([2; 32]);
    let line = batch.receipt(one, place, &signer).unwrap().to_line();
    let begin = line.find(':').unwrap() + 1;
    for at in begin..line.len() {
        for digit in [b'0', b'7', b'f'] {
            let mut altered = line.clone().into_bytes();
            if altered[at] != digit {
                altered[at] = digit;
                assert!(Receipt::from_line(&altered).is_err(), "digit {at}");
            }
        }
        assert!(Receipt::from_line(&line.as_bytes()[..at]).is_err(), "cut at {at}");
    }
    assert!(Receipt::from_line(format!("{line}00").as_bytes()).is_err());
    assert!(Receipt::from_line(format!(" {} \r\n", line.to_uppercase().replace("RHEO-RECEIPT", "rheo-receipt")).as_bytes()).is_ok());
}

#[test]
fn what_is_no_receipt_is_refused_in_words() {
    for (line, why) in [
        (b"".to_vec(), Damaged::NotAReceipt),
        (b"hello".to_vec(), Damaged::NotAReceipt),
        (vec![0xFF; 100], Damaged::NotAReceipt),
        (b"rheo-receipt-1:".to_vec(), Damaged::Unreadable),
        (b"rheo-receipt-1:abc".to_vec(), Damaged::Unreadable),
        (b"rheo-receipt-1:zz".to_vec(), Damaged::Unreadable),
        (b"rheo-receipt-2:00".to_vec(), Damaged::NotAReceipt),
        ([b"rheo-receipt-1:".to_vec(), vec![b'f'; 4000]].concat(), Damaged::Unreadable),
        (vec![b'f'; MOST_LINE + 1], Damaged::TooLong),
    ] {
        assert_eq!(Receipt::from_line(&line), Err(why), "{:?}", &line[..line.len().min(20)]);
    }
}

proptest! {
    #[test]
    fn nothing_that_is_sent_makes_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let line = format!("rheo-receipt-1:{hex}");
        prop_assert!(Receipt::from_line(line.as_bytes()).is_err());
        prop_assert!(Receipt::from_line(&bytes).is_err());
    }
}

#[test]
fn a_store_that_keeps_its_promises_is_not_accused() {
    let mut held = Held::default();
    let (mut ann, mut bob) = (Session::default(), Session::default());
    held.read(&mut ann, "x", None);
    held.write(&mut ann, "x", id(10, 0));
    held.read(&mut ann, "x", Some(id(10, 0)));
    held.read(&mut ann, "y", None);
    held.write(&mut ann, "y", id(11, 0));
    // Bob sees the effect, and then the cause, or something newer.
    held.read(&mut bob, "x", None);
    held.read(&mut bob, "y", Some(id(11, 0)));
    held.read(&mut bob, "x", Some(id(12, 1)));
    held.write(&mut bob, "x", id(13, 0));
    // A new session knows of nothing, and another keyspace is another matter.
    held.read(&mut Session::default(), "x", Some(id(3, 1)));
    held.add(&mut ann.clone(), |one| one.keyspace = "other".into(), Act::Read, "x", None);
    // Nor does what eventual reads saw bind anybody.
    let mut eve = Session::default();
    held.add(&mut eve, |one| one.level = Level::Eventual, Act::Read, "x", Some(id(13, 0)));
    held.read(&mut eve, "x", Some(id(10, 0)));
    let verdict = held.verdict();
    assert_eq!(verdict.contradictions, []);
    assert_eq!((verdict.linked, verdict.caused, verdict.chains), (8, 4, 5));
}

#[test]
fn a_session_that_reads_backwards_is_found() {
    let mut held = Held::default();
    let mut ann = Session::default();
    let newer = held.read(&mut ann, "x", Some(id(20, 1)));
    held.read(&mut ann, "y", None);
    let older = held.read(&mut ann, "x", Some(id(10, 1)));
    held.contradict(&[(Broken::MonotonicReads, newer, older)]);
    // With a guarantee that does not say so, it is none.
    let only = |set| move |one: &mut Statement| one.level = Level::Session(set);
    for (set, broken) in [(Guarantees::READ_YOUR_WRITES, false), (Guarantees::MONOTONIC_READS, true)] {
        let (mut held, mut ann) = (Held::default(), Session::default());
        held.add(&mut ann, only(set), Act::Read, "x", Some(id(20, 1)));
        held.add(&mut ann, only(set), Act::Read, "x", Some(id(10, 1)));
        assert_eq!(held.verdict().contradictions.len(), usize::from(broken));
    }
}

#[test]
fn a_session_that_misses_its_own_write_is_found() {
    let mut held = Held::default();
    let mut ann = Session::default();
    let wrote = held.write(&mut ann, "x", id(20, 0));
    let read = held.read(&mut ann, "x", Some(id(19, 1)));
    held.contradict(&[(Broken::ReadYourWrites, wrote, read)]);
    // Absence may be a deletion's doing.
    let (mut held, mut ann) = (Held::default(), Session::default());
    let wrote = held.write(&mut ann, "x", id(20, 0));
    let read = held.read(&mut ann, "x", None);
    let expected = Contradiction { broken: Broken::ReadYourWrites, known: wrote, later: read, unless_deleted: true };
    assert_eq!(held.verdict().contradictions, [expected]);
    // It is where the write itself was one, or the value expires.
    let (mut held, mut ann) = (Held::default(), Session::default());
    held.add(&mut ann, |one| one.lasting = false, Act::Write, "x", Some(id(20, 0)));
    held.read(&mut ann, "x", None);
    assert_eq!(held.verdict().contradictions, []);
}

#[test]
fn an_effect_without_its_cause_is_found_over_sessions() {
    let mut held = Held::default();
    let (mut ann, mut bob, mut eve) = (Session::default(), Session::default(), Session::default());
    let cause = held.write(&mut ann, "photo", id(10, 0));
    held.read(&mut bob, "photo", Some(id(10, 0)));
    held.write(&mut bob, "comment", id(12, 1));
    held.read(&mut eve, "comment", Some(id(12, 1)));
    let without = held.read(&mut eve, "photo", Some(id(5, 2)));
    // Bob's read is what says it last; Ann's write is what it says it of. Either is a witness.
    let found = held.verdict().contradictions;
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].broken, found[0].later), (Broken::CauseBeforeEffect, without));
    assert!([cause, cause + 1].contains(&found[0].known));
    // A write that is put before its cause.
    let (mut held, mut ann) = (Held::default(), Session::default());
    let seen = held.read(&mut ann, "x", Some(id(30, 1)));
    let late = held.write(&mut ann, "x", id(29, 0));
    held.contradict(&[(Broken::WritesInOrder, seen, late)]);
}

#[test]
fn a_read_of_what_was_written_after_it_is_found() {
    let mut held = Held::default();
    let mut ann = Session::default();
    let read = held.read(&mut ann, "x", Some(id(10, 0)));
    let wrote = held.write(&mut ann, "x", id(10, 0));
    let found: Vec<_> = held.verdict().contradictions.iter().map(|one| (one.broken, one.known, one.later)).collect();
    assert_eq!(found, [(Broken::FromTheFuture, wrote, read)]);
}

/// A long history after it takes no longer than one without it.
#[test]
fn of_what_follows_a_read_from_the_future_only_that_read_is_told() {
    let (mut held, mut ann, mut bob) = (Held::default(), Session::default(), Session::default());
    // A circle over two sessions.
    let read = held.read(&mut ann, "x", Some(id(10, 0)));
    let wrote = held.write(&mut ann, "y", id(11, 0));
    let read_too = held.read(&mut bob, "y", Some(id(11, 0)));
    let wrote_too = held.write(&mut bob, "x", id(10, 0));
    for at in 0..40_000 {
        held.write(&mut ann, "z", id(20 + at, 0));
        held.read(&mut ann, "z", Some(id(20 + at, 0)));
    }
    let signer = Signer::new().unwrap();
    let mut batch = Batch::default();
    let places: Vec<u32> = held.statements.iter().map(|one| batch.add(one.digest()).unwrap()).collect();
    let receipts: Vec<Receipt> = held.statements.into_iter().zip(places).map(|(one, place)| batch.receipt(one, place, &signer).unwrap()).collect();
    let found: Vec<_> = compare(&receipts).unwrap().contradictions.iter().map(|one| (one.broken, one.known, one.later)).collect();
    assert_eq!(found, [(Broken::FromTheFuture, wrote_too, read), (Broken::FromTheFuture, wrote, read_too)]);
}

#[test]
fn a_broken_staleness_bound_is_found_to_the_millisecond() {
    let bound = |here: u8, staleness_ms: u64| {
        move |one: &mut Statement| (one.here, one.staleness_ms, one.began_ms, one.level) = (DcId(here), Some(staleness_ms), 1_000, Level::Eventual)
    };
    for (written_ms, here, staleness_ms, broken) in
        [(899, 0, 100, true), (900, 0, 100, false), (899, 1, 100, false), (899, 0, 101, false), (899, 0, 5_000, false)]
    {
        let mut held = Held::default();
        let wrote = held.write(&mut Session::default(), "x", id(written_ms, 1));
        let read = held.add(&mut Session::default(), bound(here, staleness_ms), Act::Read, "x", Some(id(800, 1)));
        let found: Vec<_> = held.verdict().contradictions.iter().map(|one| (one.broken, one.known, one.later)).collect();
        let expected: &[_] = if broken { &[(Broken::StalenessBound, wrote, read)] } else { &[] };
        assert_eq!(found, expected, "written at {written_ms}, read in {here}, {staleness_ms} ms");
    }
}

#[test]
fn a_session_that_forgets_is_found_and_one_that_is_another_is_not() {
    let mut held = Held::default();
    let mut ann = Session::default();
    let wrote = held.write(&mut ann, "x", id(20, 0));
    let forgot = held.add(&mut ann, |one| one.past = TimestampVector::new(), Act::Read, "y", None);
    held.contradict(&[(Broken::SessionForgot, wrote, forgot)]);
    // Who names a statement and goes on with another session's state has begun another session.
    let mut held = Held::default();
    let (mut ann, mut bob) = (Session::default(), Session::default());
    held.write(&mut ann, "x", id(20, 0));
    held.read(&mut bob, "z", None);
    let mut mixed = Session { state: bob.state, last: ann.last, wrote: 0 };
    held.read(&mut mixed, "x", None);
    assert_eq!((held.verdict().contradictions.len(), held.verdict().linked), (0, 0));
    // Nor does a statement bind whoever comes before it.
    let mut held = Held::default();
    let mut ann = Session::default();
    let before = ann.clone();
    held.write(&mut ann, "x", id(20, 0));
    held.read(&mut before.clone(), "x", None);
    assert_eq!(held.verdict().contradictions, []);
}

#[test]
fn a_session_that_forks_is_followed_on_each_way() {
    let mut held = Held::default();
    let mut ann = Session::default();
    let seen = held.read(&mut ann, "x", Some(id(20, 1)));
    let (mut one, mut two) = (ann.clone(), ann.clone());
    held.read(&mut one, "x", Some(id(30, 1)));
    // The other way has not seen that.
    held.read(&mut two, "x", Some(id(20, 1)));
    let older = held.read(&mut two, "x", Some(id(10, 1)));
    let found = held.verdict().contradictions;
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].broken, found[0].later), (Broken::MonotonicReads, older));
    assert!([seen, seen + 2].contains(&found[0].known));
}
