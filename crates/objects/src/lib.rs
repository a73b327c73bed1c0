//! Object stores that speak S3's protocol, as places of backups and archives (`docs/backup.md`, `docs/decisions/0048-object-stores.md`).
//!
//! Requests are in path style (`endpoint/bucket/name`) and signed with AWS Signature Version 4, their bodies too, so that a store refuses what was damaged on its way. Each is tried again while it fails
//! for a passing reason, for a bounded time. Secrets are in no error and in no log.

mod bucket;
mod calls;
mod settings;
mod sign;
mod upload;
mod xml;

pub use bucket::Bucket;
pub use settings::{Credentials, Settings};
