//! The progress bar.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::convert::Infallible;
use std::io::IsTerminal;
use std::time::Duration;

/// Shows how far a benchmark is, on standard error if that is a terminal, otherwise nowhere.
#[derive(Clone, Debug)]
pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// A bar on standard error if that is a terminal.
    pub fn on_stderr() -> Progress {
        if std::io::stderr().is_terminal() {
            Progress { bar: ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(5)) }
        } else {
            Progress::hidden()
        }
    }

    /// Shows nothing.
    pub fn hidden() -> Progress {
        Progress { bar: ProgressBar::hidden() }
    }

    /// A new stretch of work of `total` units; `None` if it is not known how many there will be.
    pub fn start(&self, what: impl Into<String>, total: Option<u64>) {
        self.bar.reset();
        let template = match total {
            Some(total) => {
                self.bar.set_length(total);
                "{msg:24} [{bar:40}] {pos}/{len} {per_sec} {eta}"
            }
            None => {
                self.bar.unset_length();
                "{msg:24} {spinner} {pos} {per_sec} {elapsed}"
            }
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            self.bar.set_style(style);
        }
        self.bar.set_message(what.into());
        self.bar.set_position(0);
    }

    /// So many units are done.
    pub fn set(&self, position: u64) {
        self.bar.set_position(position);
    }

    /// So many more units are done.
    pub fn add(&self, units: u64) {
        self.bar.inc(units);
    }

    /// The work is over; the bar goes.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }

    /// Sets the position from `read` a few times per second, until dropped.
    pub(crate) async fn follow(&self, read: impl Fn() -> u64) -> Infallible {
        loop {
            tokio::time::sleep(Duration::from_millis(200)).await;
            self.set(read());
        }
    }
}
