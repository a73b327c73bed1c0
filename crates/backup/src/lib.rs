//! Backups and archives as objects in a place: files of records, a manifest, and the sums of all of them; and between full backups every change. No network here: what is in a backup, and where it goes,
//! is others' work.
//!
//! A place with `manifest.json` is a finished backup; one without is none. In a folder, what is being written stands in `.partial` beneath it.

pub mod archive;
mod manifest;
mod records;
mod store;
mod sum;
mod unfinished;
mod verify;

pub use manifest::{Cut, FORMAT, FileEntry, KeyspaceEntry, MANIFEST, Manifest, SUMS, Since, Time};
pub use records::{Fault, Reader, Totals, Writer};
pub use store::{Entry, Error, Folder, Lock, Opened, Output, Store, read_all};
pub use unfinished::{KeyspaceFile, Unfinished, open_records, read_manifest};
pub use verify::{Report, follows, verify};
