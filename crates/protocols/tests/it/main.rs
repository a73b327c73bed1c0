//! The protocols on replicas whose messages the tests deliver.

mod absent;
mod adaptive;
mod adaptive_apps;
mod alone;
mod causal;
mod common;
mod cops;
mod eventual;
mod export;
mod feed;
mod gentlerain;
mod hybrid;
mod network;
mod notch;
mod orion;
mod past;
mod quorum;
mod refilled;
mod replica;
mod restarts;
mod rollback;
mod session;
mod staged;
mod starts;
mod steps;
mod within;
