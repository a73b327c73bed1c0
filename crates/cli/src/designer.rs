//! `rheostat designer`.

use crate::Failure;
use crate::output::say;
use crate::signal::Stop;
use clap::Args;
use rheostat_designer::Desk;
use rheostat_designer::run::Limits;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;

const EXAMPLES: &str = "\
Examples:
  rheostat designer                       it prints the page's address; Ctrl-C ends it
  rheostat designer --port 0              at any free port
  rheostat ctl cluster up shop.toml       start the cluster that was drawn
  rheostat lab run shop-experiment.toml   run the experiment that was drawn: the same numbers for the same seed

It listens on this machine only, asks for no password, and reads and writes no files: the browser opens and saves them. Every node's console has the
same page. docs/designer.md";

/// Arguments of `designer`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// The port on this machine; 0 takes any free one
    #[arg(long, value_name = "PORT", default_value = "7480")]
    port: u16,
    /// How long an experiment may run, in seconds of real time
    #[arg(long, value_name = "SECONDS", default_value = "600", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    longest: u64,
}

/// Runs `designer`.
pub fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| format!("no runtime: {error}"))?;
    runtime.block_on(async {
        let mut stop = Stop::listen().map_err(|error| format!("signals cannot be heard: {error}"))?;
        let wanted = SocketAddr::from((Ipv4Addr::LOCALHOST, arguments.port));
        let listener =
            TcpListener::bind(wanted).await.map_err(|error| format!("cannot listen at {wanted}: {error}; --port 0 takes any free port"))?;
        let address = listener.local_addr().map_err(|error| error.to_string())?;
        say!("Designer: http://{address}/\nCtrl-C ends it.");
        let designer = Arc::new(Desk::new(Limits::alone(Duration::from_secs(arguments.longest))));
        rheostat_server::designer::serve(listener, designer, async {
            stop.heard().await;
        })
        .await;
        Ok(ExitCode::SUCCESS)
    })
}
