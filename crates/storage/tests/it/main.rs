//! Stores, against one conformance suite and by themselves: in memory and on disk, damaged, split, of earlier formats, with an engine that is elsewhere. One program, so that they are compiled once.

mod crash;
mod directory;
mod disk;
mod driver;
mod elsewhere;
mod formats;
mod large;
mod memory;
mod operation;
mod split;
