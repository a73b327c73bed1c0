//! The way between client and servers.

#[cfg(feature = "emulation")]
use async_io::Timer;
#[cfg(feature = "emulation")]
use std::time::Duration;

/// What is emulated of it: nothing without the feature `emulation`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Way {
    #[cfg(feature = "emulation")]
    one_way: Duration,
}

impl Way {
    #[cfg(feature = "emulation")]
    pub(crate) fn of(one_way: Duration) -> Way {
        Way { one_way }
    }

    /// `call`, with the emulated way before and after it. (The runtime's own timer is late by a millisecond.)
    pub(crate) async fn there_and_back<T>(self, call: impl Future<Output = T>) -> T {
        #[cfg(feature = "emulation")]
        if !self.one_way.is_zero() {
            Timer::after(self.one_way).await;
            let answer = call.await;
            Timer::after(self.one_way).await;
            return answer;
        }
        call.await
    }
}
