use super::*;
use crate::config::{KeyspaceConfig, Member as Configured};
use rheostat_core::answer::{Quality, Read};
use rheostat_core::dial::{Dial, Level};
use rheostat_core::operation::Change;
use rheostat_core::version::{Value, VersionId};

fn peer() -> (Peer, KeyspaceInfo) {
    let mut config = NodeConfig::new("test", "a0", "a");
    let member = |name: &str| Configured {
        name: name.into(),
        data_center: "a".into(),
        peer: Some("127.0.0.1:1".into()),
        resp: None,
        grpc: None,
        admin: None,
        partitions: None,
        added: false,
    };
    config.members = vec![member("a0"), member("a1")];
    config.partitions = 2;
    config.limits.max_forwarded = 3;
    let keyspace: KeyspaceConfig = toml::from_str("name = \"k\"\nprotocol = \"causal\"").unwrap();
    let topology = Topology::new(&config);
    let peer = Peer::new(&config, &topology, &topology.nodes[1]);
    peer.set_connected();
    (peer, KeyspaceInfo::new(KeyspaceId(0), &keyspace, false).unwrap())
}

fn gets(of: &[u16]) -> VecDeque<(PartitionId, Operation)> {
    of.iter().map(|of| (PartitionId(*of), Operation::Get { key: b"k".as_slice().into(), dial: Dial::default() })).collect()
}

type Answered = oneshot::Receiver<Result<(Vec<Outcome>, Session), Failure>>;

fn forward(peer: &Peer, info: &KeyspaceInfo, operations: &VecDeque<(PartitionId, Operation)>) -> Result<Answered, Failure> {
    let (sender, answer) = oneshot::channel();
    peer.forward(0, KeyspaceId(0), info.new_session(), operations, Asker::Several(sender)).map(|()| answer)
}

/// The number of the one request that waits.
fn number(peer: &Peer) -> u64 {
    let waiting = lock(&peer.waiting);
    assert_eq!(waiting.requests.len(), 1);
    *waiting.requests.keys().next().unwrap()
}

/// A leader answers for as long as its own `failover_ms` lets it, and the others elect another one when theirs has passed.
#[test]
fn nodes_that_replace_a_leader_after_different_times_do_not_speak_to_each_other() {
    let mut config = NodeConfig::new("test", "a0", "a");
    let topology = Topology::new(&config);
    let mut told = |protocol: &str, ms: u64| {
        let keyspace = format!("name = \"k\"\nprotocol = \"{protocol}\"\nreplicas = 3\nfailover_ms = {ms}");
        config.keyspaces = vec![toml::from_str(&keyspace).unwrap()];
        agreement(&config, &topology)
    };
    let (one, other) = (told("causal", FAILOVER_MS), told("causal", 5_000));
    assert_ne!(one, other);
    assert!(!one.contains("failover"), "as nodes say it that know nothing of this: {one}");
    assert_eq!(told("session", 5_000), told("session", FAILOVER_MS), "it has options of its own");
}

/// Numbers begin anew with each start, and the other node may answer what was asked before it.
#[test]
fn an_answer_to_what_was_asked_before_a_restart_is_nobodys() {
    let ((before, info), (after, _)) = (peer(), peer());
    let _gone = forward(&before, &info, &gets(&[1])).unwrap();
    let mut answer = forward(&after, &info, &gets(&[1])).unwrap();
    let session = info.new_session().to_bytes();
    let infos = [info];
    after.on_response(&infos, number(&before), 0, vec![Outcome::Count(1)], &session);
    assert!(answer.try_recv().is_err() && after.is_awaited());
    after.on_response(&infos, number(&after), 0, vec![Outcome::Count(2)], &session);
    let (outcomes, _) = answer.try_recv().unwrap().unwrap();
    assert!(matches!(outcomes[..], [Outcome::Count(2)]), "{outcomes:?}");
}

#[test]
fn answers_that_come_in_parts_and_in_any_order_are_told_in_order_and_once() {
    let (peer, info) = peer();
    let mut answer = forward(&peer, &info, &gets(&[1, 1, 0])).unwrap();
    let (number, session) = (number(&peer), info.new_session().to_bytes());
    let infos = [info];
    let respond = |request, first, counts: &[u64]| {
        peer.on_response(&infos, request, first, counts.iter().map(|count| Outcome::Count(*count)).collect(), &session);
    };
    respond(number, 2, &[3]);
    // Of no request, and of places that there are not.
    respond(number + 7, 0, &[8, 8, 8]);
    respond(number, 3, &[9]);
    assert!(answer.try_recv().is_err() && peer.is_awaited());
    respond(number, 0, &[1, 2]);
    let (outcomes, _) = answer.try_recv().unwrap().unwrap();
    assert!(matches!(outcomes[..], [Outcome::Count(1), Outcome::Count(2), Outcome::Count(3)]), "{outcomes:?}");
    assert!(!peer.is_awaited() && lock(&peer.waiting).operations == 0);
}

#[test]
fn who_leads_no_more_is_waited_for_a_moment_and_others_as_before() {
    let (peer, info) = peer();
    let mut led = forward(&peer, &info, &gets(&[1])).unwrap();
    let mut other = forward(&peer, &info, &gets(&[0])).unwrap();
    peer.leads_no_more(1_000, (KeyspaceId(1), PartitionId(0)), false, |_| false);
    peer.leads_no_more(1_000, (KeyspaceId(0), PartitionId(1)), false, |_| false);
    peer.expire(1_000 + LED_GRACE_US - 1);
    assert!(led.try_recv().is_err());
    peer.expire(1_000 + LED_GRACE_US);
    assert!(matches!(led.try_recv(), Ok(Err(Failure::Timeout(_)))) && other.try_recv().is_err());
    peer.set_disconnected("gone".into());
    assert!(matches!(other.try_recv(), Ok(Err(Failure::Unreachable(PartitionId(0))))));
    assert!(matches!(forward(&peer, &info, &gets(&[0])), Err(Failure::Unreachable(PartitionId(0)))) && !peer.is_awaited());
}

fn deletes(of: &[u16]) -> VecDeque<(PartitionId, Operation)> {
    let delete = || Operation::Change { key: b"k".as_slice().into(), change: Change::Delete, dial: Dial::default() };
    of.iter().map(|of| (PartitionId(*of), delete())).collect()
}

/// Else every write of the request is told that nobody knows whether it is made, those to the other partition too.
#[test]
fn a_request_is_waited_for_as_long_as_its_node_leads_one_of_its_partitions() {
    let (peer, info) = peer();
    let mut both = forward(&peer, &info, &deletes(&[1, 0])).unwrap();
    peer.leads_no_more(1_000, (KeyspaceId(0), PartitionId(1)), true, |of| of == PartitionId(0));
    peer.expire(1_000 + LED_GRACE_US);
    assert!(both.try_recv().is_err());
    peer.leads_no_more(1_000, (KeyspaceId(0), PartitionId(0)), true, |_| false);
    peer.expire(1_000 + LED_GRACE_US);
    assert!(matches!(both.try_recv(), Ok(Err(Failure::Timeout(_)))));
}

/// It has handed its lead over, and its disk may be slow: only it can say whether the write is made.
#[test]
fn who_leads_no_more_and_speaks_is_waited_for() {
    let (peer, info) = peer();
    let mut write = forward(&peer, &info, &deletes(&[1])).unwrap();
    let mut read = forward(&peer, &info, &gets(&[1])).unwrap();
    let others_lead = |now_us, here| peer.leads_no_more(now_us, (KeyspaceId(0), PartitionId(1)), here, |_| false);
    others_lead(0, false);
    peer.frames_received.fetch_add(1, Ordering::Relaxed);
    peer.expire(LED_GRACE_US);
    assert!(write.try_recv().is_err() && read.try_recv().is_err());
    // A server here answers a read as well.
    others_lead(LED_GRACE_US, true);
    peer.frames_received.fetch_add(1, Ordering::Relaxed);
    peer.expire(2 * LED_GRACE_US);
    assert!(write.try_recv().is_err() && matches!(read.try_recv(), Ok(Err(Failure::Timeout(_)))));
    // From now on it keeps silent.
    others_lead(2 * LED_GRACE_US, true);
    peer.expire(3 * LED_GRACE_US - 1);
    assert!(write.try_recv().is_err());
    peer.expire(3 * LED_GRACE_US);
    assert!(matches!(write.try_recv(), Ok(Err(Failure::Timeout(_)))) && !peer.is_awaited());
}

/// Its node may answer nothing, though the connection stands.
#[test]
fn reads_with_a_bound_are_not_waited_for_as_long_as_others() {
    let (peer, info) = peer();
    let get = |within_us| {
        let dial = Dial { within_us, ..Dial::default() };
        (PartitionId(1), Operation::Get { key: b"k".as_slice().into(), dial })
    };
    let dial = Dial { within_us: Some(50_000), ..Dial::default() };
    let delete = (PartitionId(1), Operation::Change { key: b"k".as_slice().into(), change: Change::Delete, dial });
    for (operations, patience_us) in [
        (vec![get(Some(50_000))], 50_000 + GRACE_US),
        (vec![get(Some(0))], GRACE_US),
        (vec![get(Some(50_000)), get(Some(20_000))], 70_000 + GRACE_US),
        (vec![get(Some(50_000)), get(None)], peer.timeout_us),
        (vec![get(Some(u32::MAX))], peer.timeout_us),
        (vec![delete], peer.timeout_us),
    ] {
        let mut answer = forward(&peer, &info, &operations.into()).unwrap();
        peer.expire(patience_us - 1);
        assert!(answer.try_recv().is_err() && peer.is_awaited(), "{patience_us}");
        peer.expire(patience_us);
        assert!(matches!(answer.try_recv(), Ok(Err(Failure::Timeout(_)))), "{patience_us}");
    }
    // What the way takes is no part of the bound.
    peer.answered_time(0, 300_000);
    let mut answer = forward(&peer, &info, &VecDeque::from([get(Some(50_000))])).unwrap();
    peer.expire(350_000 + GRACE_US - 1);
    assert!(answer.try_recv().is_err());
    peer.expire(350_000 + GRACE_US);
    assert!(answer.try_recv().is_ok());
}

/// Of a write that was sent nobody knows whether it was made; who is told that nobody could be reached sends it again.
#[test]
fn what_was_sent_to_a_node_that_goes_is_told_by_whether_it_writes() {
    let (peer, info) = peer();
    let ask = |operations: &VecDeque<(PartitionId, Operation)>| {
        let (sender, answer) = oneshot::channel();
        peer.forward(0, KeyspaceId(0), info.new_session(), operations, Asker::One(sender)).map(|()| answer)
    };
    let change = Operation::Change { key: b"k".as_slice().into(), change: Change::Delete, dial: Dial::default() };
    let write = VecDeque::from([(PartitionId(1), change)]);
    let (mut written, mut read) = (ask(&write).unwrap(), ask(&gets(&[1])).unwrap());
    peer.set_disconnected("gone".into());
    let (written, read) = (written.try_recv().unwrap().0, read.try_recv().unwrap().0);
    assert!(matches!(&written, Outcome::Failed(Failure::Timeout(why)) if why.contains("not known")), "{written:?}");
    assert_eq!(read, Outcome::Failed(Failure::Unreachable(PartitionId(1))));
    assert!(matches!(ask(&write), Err(Failure::Unreachable(_))), "nothing was sent");
}

#[test]
fn an_answer_that_is_too_large_says_whether_the_write_is_made_and_is_never_encoded() {
    let (mut peer, info) = peer();
    peer.max_frame_bytes = 1 << 20;
    let version = VersionId::default();
    let quality = Quality { level: Level::Eventual, staleness_ms: None };
    let value: Value = vec![b'x'; 1 << 19].into();
    let acted = |count: usize| vec![Acted::Read(Read { value: Some(value.clone()), ..Read::default() }); count];
    // A thousand would be half a gigabyte.
    for (outcome, timeout) in [
        (Outcome::Transacted(acted(1000), Some(version), quality), true),
        (Outcome::Transacted(acted(1000), None, quality), false),
        (Outcome::Changed { before: Read { value: Some(vec![b'x'; 1 << 20].into()), ..Read::default() }, version: Some(version) }, true),
    ] {
        peer.respond(0, 1, &[Outcome::Count(7), outcome], &info.new_session());
        let mut batch = Vec::new();
        lock(&peer.leaving).queue.take(0, usize::MAX, &mut batch);
        let (mut told, mut rest) = (Vec::new(), &batch[..]);
        while let Some((body, length)) = frame::split(rest, 1 << 20).unwrap() {
            let Ok(frame::Frame::Response { outcomes, .. }) = frame::Frame::decode(body) else { panic!("no response") };
            told.extend(outcomes);
            rest = &rest[length..];
        }
        let [Outcome::Count(7), Outcome::Failed(failure)] = &told[..] else { panic!("{told:?}") };
        match timeout {
            true => assert!(matches!(failure, Failure::Timeout(why) if why.contains("the write is made")), "{failure:?}"),
            false => assert!(matches!(failure, Failure::Refused(_)), "{failure:?}"),
        }
    }
    // What fits leaves as it is, however large.
    peer.respond(0, 2, &[Outcome::Transacted(acted(1), Some(version), quality)], &info.new_session());
    assert!(lock(&peer.leaving).queue.bytes() > 1 << 19);
}

#[test]
fn an_answer_about_files_that_is_too_large_is_known_before_it_is_sent() {
    let (mut peer, _) = peer();
    peer.max_frame_bytes = 1 << 20;
    let most = (1 << 20) - BESIDE_FILES;
    assert!(peer.may_answer_files(most) && !peer.may_answer_files(most + 1));
    assert!(peer.answer_files(0, u64::MAX, &vec![0; most]) && !peer.answer_files(0, 0, &vec![0; 1 << 20]));
}

/// Else a server that moves is nobody's for as long as the longest list may take.
#[test]
fn who_waits_for_files_is_told_when_the_connection_ends_by_which_they_would_come() {
    let (peer, _) = peer();
    assert!(peer.ask_files(0, b"which").is_none(), "no answer could come");
    let ask = || peer.ask_files(0, b"which").unwrap().1;
    let first = peer.begin_hearing();
    let asked = ask();
    assert_eq!(asked.try_recv(), Err(mpsc::TryRecvError::Empty));
    let second = peer.begin_hearing();
    assert_eq!(asked.try_recv(), Err(mpsc::TryRecvError::Disconnected), "it has connected again");
    let asked = ask();
    assert!(!peer.end_hearing(first) && asked.try_recv() == Err(mpsc::TryRecvError::Empty), "of the one before nothing is heard any more");
    assert!(peer.end_hearing(second));
    assert_eq!(asked.try_recv(), Err(mpsc::TryRecvError::Disconnected));
}

#[test]
fn operations_that_wait_are_bounded_however_they_travel() {
    let (peer, info) = peer();
    let first = forward(&peer, &info, &gets(&[0, 0])).unwrap();
    let second = forward(&peer, &info, &gets(&[0])).unwrap();
    assert!(matches!(forward(&peer, &info, &gets(&[0])), Err(Failure::Busy(_))));
    drop(first);
    peer.expire(1);
    assert!(forward(&peer, &info, &gets(&[0])).is_ok(), "nobody waits for the first two");
    drop(second);
}
