//! What a browser calls.
//!
//! Text goes in and out through two pieces of memory that stay where they are between calls: [`input`] makes room for a request and says where, the page writes it there, one of
//! [`catalogue`], [`run`], [`search`] and [`shrink`] reads it and says how long the answer is, and [`output`] says where that is. Nothing here reads or writes through a pointer, so
//! nothing here is unsafe but that the names are as they are written.
#![allow(unsafe_code)]

use std::sync::{Mutex, MutexGuard, PoisonError};

static INPUT: Mutex<Vec<u8>> = Mutex::new(Vec::new());
static OUTPUT: Mutex<Vec<u8>> = Mutex::new(Vec::new());

fn lock(text: &Mutex<Vec<u8>>) -> MutexGuard<'_, Vec<u8>> {
    text.lock().unwrap_or_else(PoisonError::into_inner)
}

// The Raft library seeds a source of randomness of which nothing comes here: groups replace what it draws by what the plan's seed does.
getrandom::register_custom_getrandom!(nothing_at_random);

fn nothing_at_random(bytes: &mut [u8]) -> Result<(), getrandom::Error> {
    bytes.fill(0x5A);
    Ok(())
}

fn answer(answer: impl FnOnce(&str) -> String) -> usize {
    let request = std::mem::take(&mut *lock(&INPUT));
    let text = match std::str::from_utf8(&request) {
        Ok(text) => answer(text),
        Err(_) => "{\"error\":\"a request is text\"}".to_owned(),
    };
    let length = text.len();
    *lock(&OUTPUT) = text.into_bytes();
    length
}

/// Makes room for a request of `length` bytes; where it is. 0: it is too long.
#[unsafe(no_mangle)]
pub extern "C" fn input(length: usize) -> usize {
    if length > crate::request::MOST_BYTES {
        return 0;
    }
    let mut input = lock(&INPUT);
    *input = vec![0; length];
    input.as_ptr() as usize
}

/// Where the last answer is.
#[unsafe(no_mangle)]
pub extern "C" fn output() -> usize {
    lock(&OUTPUT).as_ptr() as usize
}

/// [`crate::catalogue`]; how long the answer is.
#[unsafe(no_mangle)]
pub extern "C" fn catalogue() -> usize {
    std::panic::set_hook(Box::new(|panic| *lock(&OUTPUT) = panic.to_string().into_bytes()));
    answer(|_| crate::catalogue())
}

/// [`crate::run`] of the request; how long the answer is.
#[unsafe(no_mangle)]
pub extern "C" fn run() -> usize {
    answer(crate::run)
}

/// [`crate::search`] of the request; how long the answer is.
#[unsafe(no_mangle)]
pub extern "C" fn search() -> usize {
    answer(crate::search)
}

/// [`crate::shrink`] of the request; how long the answer is.
#[unsafe(no_mangle)]
pub extern "C" fn shrink() -> usize {
    answer(crate::shrink)
}

/// How long the last words of a call are that ended in a trap.
#[unsafe(no_mangle)]
pub extern "C" fn last_words() -> usize {
    lock(&OUTPUT).len()
}
