//! Standard output. A reader that has gone away (`rheostat ctl status | head -1`) is no reason to fail.

use std::fmt;
use std::io::Write;

/// Prints `text` and a line feed.
pub fn line(text: fmt::Arguments<'_>) {
    // See the module.
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// Prints `text` as it is.
pub fn text(text: &str) {
    let mut out = std::io::stdout();
    // See the module.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Prints `value` as one line of JSON.
pub fn json(value: &serde_json::Value) {
    line(format_args!("{value}"));
}

/// As `println!`.
macro_rules! say {
    () => { crate::output::line(format_args!("")) };
    ($($argument:tt)*) => { crate::output::line(format_args!($($argument)*)) };
}

pub(crate) use say;
