//! A Cassandra that stands still, and does what it was asked for when others have been answered since.

use crate::cassandra::{address, cassandra, connect, settings};
use rheostat_storage::engine::Engines;
use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// Bytes of a frame's header.
const HEADER: usize = 9;

/// A way to Cassandra on which requests can be held, those of the connections that there are.
struct Way {
    address: String,
    state: Arc<(Mutex<State>, Condvar)>,
}

#[derive(Default)]
struct State {
    connections: u64,
    /// Requests of connections before this one are held.
    held: u64,
    /// Their connection's number, the way on, and the frame.
    kept: Vec<(u64, TcpStream, Vec<u8>)>,
    /// Of requests that were held and have gone on: connection and stream, until there is an answer.
    pending: BTreeSet<(u64, [u8; 2])>,
}

/// The next frame; `None` where there are no more.
fn frame(from: &mut TcpStream) -> Option<Vec<u8>> {
    let mut frame = vec![0; HEADER];
    from.read_exact(&mut frame).ok()?;
    let length = u32::from_be_bytes([frame[5], frame[6], frame[7], frame[8]]) as usize;
    frame.resize(HEADER + length, 0);
    from.read_exact(&mut frame[HEADER..]).ok()?;
    Some(frame)
}

fn stream_of(frame: &[u8]) -> [u8; 2] {
    [frame[2], frame[3]]
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().expect("nobody has panicked")
}

impl Way {
    /// `None`, with a line that says why, where Cassandra is on another machine: its nodes say themselves where they are.
    fn to(cassandra: &str) -> Option<Way> {
        let host = cassandra.rsplit_once(':').expect("host:port").0;
        let Ok(listener) = TcpListener::bind((host, 0)) else {
            eprintln!("not tested: Cassandra is not on this machine");
            return None;
        };
        let address = listener.local_addr().expect("is bound").to_string();
        let state = Arc::<(Mutex<State>, Condvar)>::default();
        let (to, shared) = (cassandra.to_owned(), state.clone());
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect(&to) else { continue };
                let number = {
                    let mut state = lock(&shared.0);
                    state.connections += 1;
                    state.connections - 1
                };
                let copy = |stream: &TcpStream| stream.try_clone().expect("is open");
                let (there, back) = ((copy(&client), copy(&server)), (server, client));
                let state = shared.clone();
                std::thread::spawn(move || requests(number, there, &state.0));
                let state = shared.clone();
                std::thread::spawn(move || answers(number, back, &state));
            }
        });
        Some(Way { address, state })
    }

    /// Nothing goes on that is sent from now on, on the connections that there are.
    fn hold(&self) {
        let mut state = lock(&self.state.0);
        state.held = state.connections;
    }

    /// Everything goes on, and has been answered when this returns.
    fn release(&self) {
        let mut state = lock(&self.state.0);
        state.held = 0;
        for (number, mut server, frame) in std::mem::take(&mut state.kept) {
            state.pending.insert((number, stream_of(&frame)));
            server.write_all(&frame).expect("Cassandra listens");
        }
        let is_waiting = |state: &mut State| !state.pending.is_empty();
        let (state, waited) = self.state.1.wait_timeout_while(state, Duration::from_secs(60), is_waiting).expect("nobody has panicked");
        assert!(!waited.timed_out(), "{} requests have no answer", state.pending.len());
    }

    fn is_holding(&self) -> bool {
        !lock(&self.state.0).kept.is_empty()
    }
}

fn requests(number: u64, (mut from, mut to): (TcpStream, TcpStream), state: &Mutex<State>) {
    while let Some(frame) = frame(&mut from) {
        let mut state = lock(state);
        if number < state.held {
            state.kept.push((number, to.try_clone().expect("is open"), frame));
        } else if to.write_all(&frame).is_err() {
            return;
        }
    }
}

fn answers(number: u64, (mut from, mut to): (TcpStream, TcpStream), state: &(Mutex<State>, Condvar)) {
    while let Some(frame) = frame(&mut from) {
        // Whoever has asked may have gone.
        let _ = to.write_all(&frame);
        if lock(&state.0).pending.remove(&(number, stream_of(&frame))) {
            state.1.notify_all();
        }
    }
}

/// A request that has no answer is sent again, and what comes after it is done; then it is carried out itself.
#[test]
fn what_is_done_late_counts_for_nothing() {
    let Some((address, there)) = address().zip(cassandra()) else { return };
    let Some(way) = Way::to(&address) else { return };
    let store = RandomState::new().hash_one(());
    let key = |name: u8| vec![0, name];
    let set = |name: u8| vec![(key(name), Some(b"value".to_vec()))];
    let engine = connect(settings(&way.address)).open(store).expect("opens");
    engine.write(set(1), 1).expect("writes");
    engine.keep("checkpoint", b"first").expect("keeps");
    way.hold();
    engine.keep("checkpoint", b"second").expect("keeps");
    engine.keep("checkpoint", b"third").expect("keeps");
    assert!(way.is_holding());
    way.release();
    assert_eq!(engine.record("checkpoint").expect("reads"), Some(b"third".to_vec()));
    way.hold();
    engine.write(set(2), 2).expect("writes");
    engine.write(set(3), 3).expect("writes");
    assert!(way.is_holding());
    way.release();
    let next = there.open(store).expect("opens");
    assert_eq!(next.count().expect("counts"), 3);
    assert!(engine.keep("checkpoint", b"late").is_err(), "who had it open is shut out");
    there.delete(store).expect("deletes");
    assert!(!there.stores().expect("lists").contains(&store));
}
