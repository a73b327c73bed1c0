//! Backups as files: one of records for each keyspace, a manifest, and the sums of all of them. No network here: what is in a backup, and where it goes, is others' work.
//!
//! A folder with `manifest.json` is a finished backup; one without is none. What is being written stands in `.partial` beneath it.

mod folder;
mod manifest;
mod records;
mod sum;
mod verify;

pub use folder::{Error, KeyspaceFile, Unfinished, open_records, read_manifest};
pub use manifest::{Cut, FORMAT, FileEntry, KeyspaceEntry, MANIFEST, Manifest, SUMS, Since, Time};
pub use records::{Fault, Reader, Totals, Writer};
pub use verify::{Report, follows, verify};
