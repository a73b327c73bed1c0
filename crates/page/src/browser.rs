//! What a browser calls.
//!
//! Text goes in and out through two pieces of memory that stay where they are between calls: [`input`] makes room for a request and says where, the page writes it there, one of
//! [`catalogue`], [`run`], [`search`] and [`shrink`] reads it and says how long the answer is, and [`output`] says where that is. Nothing here reads or writes through a pointer, so
//! nothing here is unsafe but that the names are as they are written.
#![allow(unsafe_code)]

use std::cell::RefCell;
use std::sync::Once;

/// Every instance has its own, also one that is made after a trap.
static HOOKED: Once = Once::new();

thread_local! {
    static INPUT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    static OUTPUT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

// The Raft library seeds a source of randomness of which nothing comes here: groups replace what it draws by what the plan's seed does.
getrandom::register_custom_getrandom!(nothing_at_random);

fn nothing_at_random(bytes: &mut [u8]) -> Result<(), getrandom::Error> {
    bytes.fill(0x5A);
    Ok(())
}

fn answer(answer: impl FnOnce(&str) -> String) -> usize {
    let request = INPUT.take();
    let text = match std::str::from_utf8(&request) {
        Ok(text) => answer(text),
        Err(_) => "{\"error\":\"a request is text\"}".to_owned(),
    };
    let length = text.len();
    OUTPUT.set(text.into_bytes());
    length
}

/// Makes room for a request of `length` bytes; where it is. 0: it is too long.
#[unsafe(no_mangle)]
pub extern "C" fn input(length: usize) -> usize {
    HOOKED.call_once(|| std::panic::set_hook(Box::new(|panic| OUTPUT.set(panic.to_string().into_bytes()))));
    if length > crate::request::MOST_BYTES {
        return 0;
    }
    INPUT.set(vec![0; length]);
    INPUT.with_borrow(|input| input.as_ptr() as usize)
}

/// Where the last answer is.
#[unsafe(no_mangle)]
pub extern "C" fn output() -> usize {
    OUTPUT.with_borrow(|output| output.as_ptr() as usize)
}

/// [`crate::catalogue`]; how long the answer is.
#[unsafe(no_mangle)]
pub extern "C" fn catalogue() -> usize {
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
    OUTPUT.with_borrow(Vec::len)
}
