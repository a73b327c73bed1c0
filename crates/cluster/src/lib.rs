//! Clusters from one description: the configuration of every node, and their processes.
//!
//! | module | what it is |
//! |---|---|
//! | [`description`] | a cluster file: what it says, what is wrong with it |
//! | [`nodes`] | from there to each node's configuration |
//! | [`in_process`] | a cluster in this process: demonstrations and measurements |
//! | [`processes`] | a cluster of processes that belong to this one: experiments and tests |
//! | [`fleet`] | the nodes of a cluster file as processes that stay, here and over SSH |
//!
//! Beneath them: `folder` (where the nodes of a cluster file have theirs), [`place`] (one node's folder and process), [`pid_file`] (which process that is), [`remote`] (a place on another machine), [`ready`]
//! (whether nodes serve), [`ports`] and [`regions`].

pub mod description;
pub mod fleet;
mod folder;
pub mod in_process;
pub mod nodes;
pub mod pid_file;
pub mod place;
pub mod ports;
pub mod processes;
pub mod ready;
pub mod regions;
pub mod remote;

pub use description::Description;
pub use in_process::InProcess;
pub use ports::Ports;
pub use processes::Processes;
