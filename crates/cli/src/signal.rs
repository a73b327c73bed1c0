//! What is said to a server from outside: signals, and the end of its input.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGINT (Ctrl-C) and SIGTERM, heard from the moment this is made.
pub struct Stop {
    interrupt: Signal,
    terminate: Signal,
}

impl Stop {
    /// Starts to listen. Errors: the operating system's.
    pub fn listen() -> std::io::Result<Stop> {
        Ok(Stop { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// Waits for one of them; returns its name.
    pub async fn heard(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
        }
    }
}

/// SIGHUP, heard from the moment this is made: read the configuration again.
pub struct Again(Signal);

impl Again {
    /// Starts to listen. Errors: the operating system's.
    pub fn listen() -> std::io::Result<Again> {
        Ok(Again(signal(SignalKind::hangup())?))
    }

    /// Waits for one.
    pub async fn heard(&mut self) {
        self.0.recv().await;
    }
}

/// Waits until standard input ends.
pub async fn input_ends() {
    let (sender, ended) = tokio::sync::oneshot::channel::<()>();
    // A thread of its own, since nothing interrupts a read; a runtime would wait for it when it ends.
    std::thread::spawn(move || {
        // An error is an end too.
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        drop(sender);
    });
    let _ = ended.await;
}
