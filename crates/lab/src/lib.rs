//! Rheostat's laboratory: experiments described in files, run on a ground, drawn and held against what the papers say.
//!
//! [`experiment`] is the form of a file, [`ground`] where it runs, [`row`] what a measurement leaves, [`run`] the loop around them; [`aggregate`] sums rows up,
//! [`expect`] judges them.

pub mod aggregate;
pub mod catalogue;
pub mod experiment;
pub mod expect;
pub mod ground;
pub mod row;
pub mod run;
