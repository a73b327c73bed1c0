//! Threads with a runtime of their own, so that a measurement does not depend on how busy the caller's runtime is.

use crate::error::Error;
use std::future::Future;
use std::time::Duration;
use tokio::sync::oneshot;

/// Runs the future that `make` returns on a new thread with a single-threaded runtime. Dropping the returned future stops the thread at its next wait.
pub(crate) async fn run_on_thread<T, F, Fut>(name: &str, make: F) -> Result<T, Error>
where
    T: Send + 'static,
    F: FnOnce() -> Fut + Send + 'static,
    Fut: Future<Output = Result<T, Error>>,
{
    let attempt = format!("starting the thread {name}");
    let (mut answer, result) = oneshot::channel();
    let work = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = match runtime {
            Ok(runtime) => runtime,
            Err(source) => {
                // The caller may be gone; then nobody wants to know.
                let _ = answer.send(Err(Error::Local { attempt: "starting a runtime".to_owned(), source }));
                return;
            }
        };
        let outcome = runtime.block_on(async {
            tokio::select! {
                outcome = make() => Some(outcome),
                () = answer.closed() => None,
            }
        });
        if let Some(outcome) = outcome {
            let _ = answer.send(outcome);
        }
    };
    std::thread::Builder::new().name(name.to_owned()).spawn(work).map_err(Error::local(attempt))?;
    result.await.unwrap_or_else(|_| Err(Error::Program(format!("the thread {name} ended without a result"))))
}

/// CPU time that the calling thread has used, if the system says so.
pub(crate) fn cpu_time() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let ns = text.split_ascii_whitespace().next()?.parse().ok()?;
    Some(Duration::from_nanos(ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_thread_answers_and_an_abandoned_one_stops() {
        assert_eq!(run_on_thread("test", || async { Ok(7) }).await.unwrap(), 7);
        let (sender, receiver) = oneshot::channel::<()>();
        let endless = run_on_thread("test", move || async move {
            let _kept = sender;
            std::future::pending::<Result<(), Error>>().await
        });
        tokio::select! {
            _ = endless => panic!("an endless future ended"),
            () = tokio::task::yield_now() => {}
        }
        // The sender is dropped when the thread stops.
        assert!(receiver.await.is_err());
    }
}
