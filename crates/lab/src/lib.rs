//! Rheostat's laboratory: experiments described in files, run on a ground, drawn and held against what the papers say.
//!
//! [`experiment`] is the form of a file, [`ground`] where it runs, [`row`] what a measurement leaves, [`run`] the loop around them; [`aggregate`] sums rows up,
//! [`expect`] judges them.

pub mod aggregate;
pub mod catalogue;
pub mod chart;
pub mod expect;
pub mod experiment;
pub mod ground;
mod quantile;
pub mod report;
pub mod row;
pub mod run;
