//! Standard output. A reader that has gone away (`rheostat ctl status | head -1`) is no reason to fail. What has no end by itself ends then.

use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

static READER_IS_GONE: AtomicBool = AtomicBool::new(false);

/// Whether nobody reads what is printed any more, as far as printing has shown.
pub fn reader_is_gone() -> bool {
    READER_IS_GONE.load(Ordering::Relaxed)
}

fn note(written: io::Result<()>) {
    if written.is_err_and(|error| error.kind() == io::ErrorKind::BrokenPipe) {
        READER_IS_GONE.store(true, Ordering::Relaxed);
    }
}

/// Prints `text` and a line feed.
pub fn line(text: fmt::Arguments<'_>) {
    note(writeln!(io::stdout(), "{text}"));
}

/// Prints `text` as it is.
pub fn text(text: &str) {
    let mut out = io::stdout();
    note(out.write_all(text.as_bytes()).and_then(|()| out.flush()));
}

/// Prints `value` as one line of JSON.
pub fn json(value: &serde_json::Value) {
    line(format_args!("{value}"));
}

/// Finds out whether `file` can be written, and leaves what is in it until there is something else. Errors: it cannot, in words.
pub fn can_be_written(file: &Path) -> Result<(), String> {
    let opened = File::options().append(true).create(true).open(file);
    opened.map(drop).map_err(|error| format!("{}: cannot be written: {error}", file.display()))
}

/// As `println!`.
macro_rules! say {
    () => { crate::output::line(format_args!("")) };
    ($($argument:tt)*) => { crate::output::line(format_args!($($argument)*)) };
}

pub(crate) use say;
