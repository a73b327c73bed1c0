//! `rheostat bench ycsb`.

use super::load::{Load, Server};
use super::{Own, show, unless_told};
use crate::Failure;
use crate::signal::Stop;
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

pub(super) async fn run(arguments: Arguments, json: Option<&Path>, stop: &mut Stop) -> Result<ExitCode, Failure> {
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
    let result = unless_told(stop, load::run(&target, &options, &progress)).await;
    if let Some(own) = own {
        own.end().await;
    }
    let report = result?;
    let shown = show(&report, json)?;
    // Where nothing succeeded, nothing was measured.
    Ok(if report.measured.succeeded > 0 { shown } else { ExitCode::FAILURE })
}
