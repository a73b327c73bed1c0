//! Waiting for a moment more finely than the runtime's timer does, which is late by a millisecond: as much would be added to each emulated way.

use std::time::Instant;

/// A clock that rings on the runtime's own thread (a timer of another thread would cost two switches each time).
#[cfg(target_os = "linux")]
pub(super) struct Alarm(tokio::io::unix::AsyncFd<std::os::fd::OwnedFd>);

/// Elsewhere the runtime's timer has to do.
#[cfg(not(target_os = "linux"))]
pub(super) struct Alarm;

#[cfg(target_os = "linux")]
impl Alarm {
    /// Errors: the system has no descriptors left.
    // What takes its place is unsafe, for types that may hand out another descriptor later; an owned descriptor does not.
    #[allow(deprecated)]
    pub(super) fn new() -> std::io::Result<Alarm> {
        use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        Ok(Alarm(tokio::io::unix::AsyncFd::with_interest(timer, tokio::io::Interest::READABLE)?))
    }

    /// Returns at `when`, or at once if that is past. May be given up and called again.
    pub(super) async fn at(&self, when: Instant) -> std::io::Result<()> {
        use rustix::time::{Itimerspec, TimerfdTimerFlags, Timespec, timerfd_settime};
        let left = when.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        let once = Itimerspec {
            it_interval: Timespec { tv_sec: 0, tv_nsec: 0 },
            it_value: Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() },
        };
        timerfd_settime(self.0.get_ref(), TimerfdTimerFlags::empty(), &once)?;
        loop {
            // That it rang for an earlier call is forgotten when it is set: reading says that it would block.
            let mut ready = self.0.readable().await?;
            if let Ok(rung) = ready.try_io(|timer| Ok(rustix::io::read(timer, &mut [0; 8])?)) {
                return rung.map(|_| ());
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
impl Alarm {
    pub(super) fn new() -> std::io::Result<Alarm> {
        Ok(Alarm)
    }

    pub(super) async fn at(&self, when: Instant) -> std::io::Result<()> {
        tokio::time::sleep_until(when.into()).await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test]
    async fn it_rings_at_its_time_and_not_before_also_when_it_is_set_anew() {
        let alarm = Alarm::new().unwrap();
        let begun = Instant::now();
        alarm.at(begun).await.unwrap();
        // Given up after it has rung, and before.
        for ms in [1, 1000] {
            let given_up = tokio::time::timeout(Duration::from_millis(20), async {
                let _ = alarm.at(Instant::now() + Duration::from_millis(ms)).await;
                std::future::pending::<()>().await;
            });
            assert!(given_up.await.is_err());
        }
        let when = Instant::now() + Duration::from_millis(30);
        tokio::time::timeout(Duration::from_secs(10), alarm.at(when)).await.unwrap().unwrap();
        assert!(Instant::now() >= when);
    }
}
