//! `rheostat bench limit`.

use super::load::{Load, Server};
use super::{Own, show, unless_told};
use crate::Failure;
use crate::signal::Stop;
use clap::Args;
use rheostat_bench::workload::CoreWorkload;
use rheostat_bench::{Progress, limit};
use std::path::Path;
use std::process::ExitCode;

/// Arguments of `bench limit`.
#[derive(Args, Debug)]
pub struct Arguments {
    /// The workload of the load, as in `bench ycsb`
    #[arg(default_value = "a")]
    workload: CoreWorkload,
    #[command(flatten)]
    load: Load,
    #[command(flatten)]
    server: Server,
    /// Rounds; in each, every server is measured once
    #[arg(long, value_name = "N", default_value = "3")]
    rounds: usize,
}

pub(super) async fn run(arguments: Arguments, json: Option<&Path>, stop: &mut Stop) -> Result<ExitCode, Failure> {
    arguments.server.check()?;
    let load = arguments.load.options(arguments.workload)?;
    let (own, target) = match arguments.server.named() {
        Some(target) => (None, target),
        None => {
            let own = Own::alone(arguments.server.partitions).await?;
            let target = arguments.server.own(own.ports()[0]);
            (Some(own), target)
        }
    };
    let options = limit::LimitOptions { load, targets: vec![target], rounds: arguments.rounds };
    let result = unless_told(stop, limit::run(&options, &Progress::on_stderr())).await;
    if let Some(own) = own {
        own.end().await;
    }
    show(&result?, json)
}
