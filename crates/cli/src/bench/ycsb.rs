//! `rheostat bench ycsb`.

use super::load::{Load, Server};
use super::{Own, show};
use crate::Failure;
use clap::Args;
use rheostat_bench::workload::CoreWorkload;
use rheostat_bench::{Progress, load};
use std::path::Path;
use std::process::ExitCode;

/// Arguments of `bench ycsb`.
#[derive(Args, Debug)]
pub struct Arguments {
    /// The workload: a (half updates), b (5 % updates), c (reads), d (reads of the latest), e (scans), f (read-modify-write)
    workload: CoreWorkload,
    #[command(flatten)]
    load: Load,
    #[command(flatten)]
    server: Server,
}

pub(super) async fn run(arguments: Arguments, json: Option<&Path>) -> Result<ExitCode, Failure> {
    arguments.server.check()?;
    let options = arguments.load.options(arguments.workload)?;
    let progress = Progress::on_stderr();
    let (own, target) = match arguments.server.named() {
        Some(target) => (None, target),
        None => {
            let own = Own::alone(arguments.server.partitions).await?;
            let target = arguments.server.own(own.ports()[0]);
            (Some(own), target)
        }
    };
    let result = load::run(&target, &options, &progress).await;
    if let Some(own) = own {
        own.end().await;
    }
    show(&result.map_err(|error| error.to_string())?, json)
}
