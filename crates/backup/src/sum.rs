//! SHA-256, as `sha256sum` writes it.

use ring::digest::{Context, SHA256};

/// The sum of what is added.
pub(crate) struct Sum(Context);

impl Sum {
    pub(crate) fn new() -> Sum {
        Sum(Context::new(&SHA256))
    }

    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// In hexadecimal digits.
    pub(crate) fn finish(self) -> String {
        self.0.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Of `bytes` alone.
    pub(crate) fn of(bytes: &[u8]) -> String {
        let mut sum = Sum::new();
        sum.add(bytes);
        sum.finish()
    }
}
