//! A store's engine for whoever may still run when the store is closed.

use crate::engine::Engine;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

/// The engine for jobs that run some time: one that is still to run when the store is closed does not keep the engine open.
#[derive(Clone)]
pub(super) struct Later(Arc<Mutex<Option<Arc<dyn Engine>>>>);

impl Later {
    pub(super) fn new(engine: Arc<dyn Engine>) -> Later {
        Later(Arc::new(Mutex::new(Some(engine))))
    }

    /// The engine, open as long as this lives. Errors: the store was closed.
    pub(super) fn engine(&self) -> io::Result<Arc<dyn Engine>> {
        self.lock().clone().ok_or_else(|| io::Error::other("the store was closed"))
    }

    /// Nobody gets it any more.
    pub(super) fn close(&self) {
        *self.lock() = None;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Arc<dyn Engine>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
