//! The `rheostat` command.

mod allocator;
mod app;
mod bench;
mod check;
mod config;
mod connection;
mod ctl;
mod date;
mod deadline;
mod demo;
mod describe;
mod designer;
mod kv;
mod lab;
mod lock;
mod logging;
mod model;
mod nemesis;
mod output;
mod paint;
mod probe;
mod protocols;
mod regions;
mod rights;
mod serve;
mod signal;
mod sim;
mod table;
mod tickets;
mod tour;
mod verify;

use clap::{CommandFactory, Parser, Subcommand};
use paint::Paint;
use std::io::IsTerminal;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: allocator::Allocator = allocator::Allocator::new();

/// A geo-replicated key-value store with a dial between consistency and latency.
#[derive(Parser, Debug)]
#[command(name = "rheostat", version, max_term_width = 120, after_help = EXAMPLES)]
struct Arguments {
    /// How log lines look. What is logged: the environment variable RHEOSTAT_LOG, as in RHEOSTAT_LOG=info,rheostat_server=debug
    #[arg(long, global = true, value_enum, default_value = "text")]
    log_format: logging::Format,
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  rheostat demo                                 three data centers on this machine; it says what to type next
  rheostat serve --config examples/eu.toml      one node as a process of its own
  rheostat ctl status                           nodes, links and lags of the demo's cluster
  rheostat kv put greeting hello                write a key over gRPC
  rheostat sim --seeds 1000                     simulate 1000 clusters under faults, and check every promise

Each command has its own help: rheostat help demo";

#[derive(Subcommand, Debug)]
enum Command {
    /// Start a cluster of several data centers in this process, with the delays between them emulated
    Demo(demo::Arguments),
    /// Run one node from a configuration file
    Serve(serve::Arguments),
    /// Look at a cluster and operate it
    Ctl(ctl::Arguments),
    /// Read and write keys over gRPC
    Kv(kv::Arguments),
    /// Run an application of document 000 on a cluster, and check what becomes of it: graph colouring, weather, predicates
    App(app::Arguments),
    /// Measure: YCSB, visibility between data centers, the limit, Redis beside
    Bench(bench::Arguments),
    /// Reproduce the papers' figures: experiments described in files, pictures, a report
    Lab(lab::Arguments),
    /// Draw clusters and experiments in a browser, check them, and run them in virtual time
    Designer(designer::Arguments),
    /// Simulate clusters in virtual time, under faults, and check every promise
    Sim(sim::Arguments),
    /// Break a cluster of real processes on purpose, under load, and check every promise
    Nemesis(nemesis::Arguments),
    Check(check::Arguments),
    Verify(verify::Arguments),
    /// Explore every state of small models, and check what must hold in each
    Model(model::Arguments),
    /// Compare the protocols that a keyspace can run: promises, waits, bytes, lines of code
    Protocols(protocols::Arguments),
    /// Print a configuration with every key, its default and what it does
    Config,
    /// Ask a node of this machine whether it serves: exit code 0 when it does
    Probe(probe::Arguments),
    /// Read a password, and print its SHA-256 for a user's entry in the configuration
    HashPassword,
    /// Print completions of this command line for a shell
    Completions(describe::Completions),
    /// Write the man pages of this command line
    Man(describe::Folder),
    /// Write a Grafana dashboard and Prometheus alert rules
    Monitoring(describe::Folder),
}

/// Why a command failed, in words for the user.
type Failure = String;

/// Prints the SHA-256 of a password: of the environment's, else of a line that is read.
fn hash_password() -> Result<ExitCode, Failure> {
    let given = std::env::var("RHEOSTAT_PASSWORD").ok().filter(|password| !password.is_empty());
    let password = match given {
        Some(password) => password,
        None => {
            if std::io::stdin().is_terminal() {
                eprintln!("The password, and Enter (it is shown as you type; RHEOSTAT_PASSWORD in the environment is not):");
            }
            let mut line = String::new();
            std::io::stdin().read_line(&mut line).map_err(|error| format!("the password cannot be read: {error}"))?;
            line.trim_end_matches(['\r', '\n']).to_string()
        }
    };
    if password.is_empty() {
        return Err("an empty password opens nothing: give one in RHEOSTAT_PASSWORD, or on a line of the input".into());
    }
    output::line(format_args!("{}", rheostat_server::users::password_sha256(password.as_bytes())));
    Ok(ExitCode::SUCCESS)
}

fn main() -> ExitCode {
    ALLOCATOR.prepare();
    let arguments = Arguments::parse();
    if std::env::args().any(|word| word == "--password" || word.starts_with("--password=")) {
        eprintln!(
            "rheostat: warning: others on this machine can read --password in the list of processes; RHEOSTAT_PASSWORD in the environment is not shown there"
        );
    }
    let default_log = match &arguments.command {
        Command::Demo(demo) if demo.tells() => "error",
        Command::Serve(_) => "info",
        _ => "warn",
    };
    let done = logging::start(arguments.log_format, default_log).and_then(|()| match arguments.command {
        Command::Demo(arguments) => demo::run(arguments),
        Command::Serve(arguments) => serve::run(arguments),
        Command::Ctl(arguments) => block_on_threads(ctl::run(arguments)),
        Command::Kv(arguments) => block_on(kv::run(arguments)),
        Command::App(arguments) => block_on(app::run(arguments)),
        Command::Bench(arguments) => block_on(bench::run(arguments)),
        Command::Lab(arguments) => lab::run(arguments),
        Command::Designer(arguments) => designer::run(&arguments),
        Command::Sim(arguments) => sim::run(arguments),
        Command::Nemesis(arguments) => block_on_threads(nemesis::run(arguments)),
        Command::Check(arguments) => check::run(arguments),
        Command::Verify(arguments) => verify::run(arguments),
        Command::Model(arguments) => model::run(arguments),
        Command::Protocols(arguments) => protocols::run(&arguments),
        Command::Config => config::run(),
        Command::HashPassword => hash_password(),
        Command::Probe(arguments) => block_on(probe::run(&arguments)),
        Command::Completions(arguments) => describe::completions(&arguments, Arguments::command()),
        Command::Man(arguments) => describe::man(&arguments, Arguments::command()),
        Command::Monitoring(arguments) => describe::monitoring(&arguments),
    });
    match done {
        Ok(code) => code,
        Err(why) => {
            eprintln!("{} {why}", Paint::of_errors().grave("rheostat:"));
            ExitCode::FAILURE
        }
    }
}

/// Runs a command that only talks to servers.
fn block_on(command: impl Future<Output = Result<ExitCode, Failure>>) -> Result<ExitCode, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| format!("no runtime: {error}"))?;
    runtime.block_on(command)
}

/// Runs a command that writes to disks and stores between what it asks servers, for which others of its threads go on meanwhile.
fn block_on_threads(command: impl Future<Output = Result<ExitCode, Failure>>) -> Result<ExitCode, Failure> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().map_err(|error| format!("no runtime: {error}"))?;
    let done = runtime.block_on(command);
    // What is still under way is not waited for.
    runtime.shutdown_background();
    done
}
