//! An answer that everybody gets who asks while it is fresh: what it costs does not grow with those who look.

use bytes::Bytes;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// How long an answer is taken for the present: so long, or as long as making it took several times over, and never longer than the last.
const FRESH: Duration = Duration::from_millis(900);
const TIMES: u32 = 5;
const STALE: Duration = Duration::from_secs(5);

/// See the module.
#[derive(Default)]
pub(super) struct Kept(Mutex<Option<(Bytes, Instant)>>);

impl Kept {
    /// The last answer while it is fresh, else what `make` makes. Who comes while it is being made waits for it.
    pub(super) async fn fresh(&self, make: impl Future<Output = Bytes>) -> Bytes {
        let mut kept = self.0.lock().await;
        if let Some((body, until)) = &*kept
            && Instant::now() < *until
        {
            return body.clone();
        }
        let began = Instant::now();
        let body = make.await;
        *kept = Some((body.clone(), Instant::now() + (began.elapsed() * TIMES).clamp(FRESH, STALE)));
        body
    }

    /// What is known is not the present any more.
    pub(super) async fn forget(&self) {
        *self.0.lock().await = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_answer_is_made_once_while_it_is_fresh() {
        let kept = Kept::default();
        assert_eq!(kept.fresh(async { Bytes::from_static(b"one") }).await, "one");
        assert_eq!(kept.fresh(async { Bytes::from_static(b"two") }).await, "one");
        kept.forget().await;
        assert_eq!(kept.fresh(async { Bytes::from_static(b"two") }).await, "two");
    }
}
