//! Monitors of predicates (document 000, §3 to §5): somebody says what must never be true of the data, and is told when it was, with the evidence.
//!
//! - [`predicate`]: what is watched for, from an expression, the paper's XML or a pattern of names.
//! - [`detector`]: beside each partition server; makes candidates of the writes that are applied there.
//! - [`monitor`]: puts the candidates of all servers together and finds the consistent cuts on which a predicate is violated.
//! - [`beside`]: what a driver of partition servers does so that they are watched.
//! - [`report`]: what a detector tells a monitor. [`alarm`]: what a monitor tells everybody.
//! - [`reference`]: finds the same in a recorded execution by trying everything; for tests.
//!
//! Nothing here reads time or does I/O. `PAPER.md` says where each part of the paper is, and what differs.

pub mod alarm;
pub mod beside;
mod condition;
mod cut;
pub mod detector;
mod expression;
pub mod monitor;
mod name;
pub mod predicate;
pub mod reference;
pub mod report;
mod sum;
mod xml;

/// The bugs that can be planted in monitors.
pub const PLANTED: &[&str] = &[
    "monitor-forgets-what-has-ended",
    "monitor-trusts-clocks-too-much",
    "monitor-looks-at-one-server",
    "monitor-hears-no-end",
    "monitor-adds-up-the-newest",
    "monitor-starts-again-and-asks-for-nothing",
];
