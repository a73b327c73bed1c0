//! x
pub mod schedule;
