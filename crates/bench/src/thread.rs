//! Threads with a runtime of their own, so that a measurement does not depend on how busy the caller's runtime is.

use crate::error::Error;
use std::future::Future;
use std::time::Duration;
use tokio::sync::oneshot;

/// Runs the future that `make` returns on a new thread with a single-threaded runtime. Dropping the returned future stops the thread at its next
/// wait.
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

/// What the system says about the use of CPU by a thread since its start, or by all threads of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CpuUse {
    /// Time on a CPU.
    pub running: Duration,
    /// Time in which a thread could have run and had no CPU.
    pub waiting: Duration,
}

impl CpuUse {
    /// Of the calling thread, if the system says so.
    pub(crate) fn of_this_thread() -> Option<CpuUse> {
        CpuUse::parse(&std::fs::read_to_string("/proc/thread-self/schedstat").ok()?)
    }

    /// Of the threads that process `id` has now. `None` if there is no such process here, or the system does not say.
    pub fn of_process(id: u32) -> Option<CpuUse> {
        let mut all = CpuUse::default();
        for thread in std::fs::read_dir(format!("/proc/{id}/task")).ok()? {
            // A thread that has just ended is left out.
            let Ok(schedstat) = std::fs::read_to_string(thread.ok()?.path().join("schedstat")) else { continue };
            let one = CpuUse::parse(&schedstat)?;
            all = CpuUse { running: all.running + one.running, waiting: all.waiting + one.waiting };
        }
        Some(all)
    }

    /// Reads Linux's `schedstat`: nanoseconds running, nanoseconds waiting, and more.
    pub(crate) fn parse(schedstat: &str) -> Option<CpuUse> {
        let mut numbers = schedstat.split_ascii_whitespace().map(|word| word.parse().ok().map(Duration::from_nanos));
        Some(CpuUse { running: numbers.next()??, waiting: numbers.next()?? })
    }

    /// What was used after `earlier`.
    pub fn since(self, earlier: CpuUse) -> CpuUse {
        CpuUse { running: self.running.saturating_sub(earlier.running), waiting: self.waiting.saturating_sub(earlier.waiting) }
    }
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

    #[test]
    #[cfg(target_os = "linux")]
    fn a_process_has_used_what_its_threads_have() {
        let of_thread = CpuUse::of_this_thread().unwrap();
        assert!(CpuUse::of_process(std::process::id()).unwrap().running >= of_thread.running);
        assert_eq!(CpuUse::of_process(u32::MAX), None);
    }

    #[test]
    fn schedstat_is_read() {
        let used = CpuUse::parse("1500 200 7\n").unwrap();
        assert_eq!(used, CpuUse { running: Duration::from_nanos(1500), waiting: Duration::from_nanos(200) });
        assert_eq!(used.since(used), CpuUse::default());
        assert_eq!(CpuUse::parse("1500"), None);
        assert_eq!(CpuUse::parse("x 1"), None);
    }
}
