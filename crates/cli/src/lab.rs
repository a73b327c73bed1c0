//! `rheostat lab`.

use crate::table::Table;
use crate::{Failure, output};
use clap::{Args, Subcommand};
use rheostat_bench::Progress;
use rheostat_lab::expect::{self, Verdict};
use rheostat_lab::experiment::{self, Experiment, GroundName};
use rheostat_lab::ground::{Ground, Processes, VirtualTime};
use rheostat_lab::report::{self, Chapter};
use rheostat_lab::row::RowFile;
use rheostat_lab::run::{self, Run};
use rheostat_lab::{catalogue, chart};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  rheostat lab list                       the experiments, and which figures they reproduce
  rheostat lab run figure 5.2             a figure of the papers, in its small form
  rheostat lab run all --full             everything, in its large form: for a night
  rheostat lab run all --ground virtual   only what is computed: other load on the machine does not matter
  rheostat lab run my-experiment.toml     an experiment of your own; the form of the file: docs/lab.md
  rheostat lab report                     one page with all pictures, tables and findings

A run that is stopped goes on where it was. The exit code is 1 when something that must hold does not.";

/// Arguments of `lab`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Run experiments: what is not measured yet is measured, drawn and judged
    Run(RunArguments),
    /// List the built-in experiments
    List,
    /// Write the report of everything that was measured
    Report {
        /// Of the large form instead of the small one
        #[arg(long)]
        full: bool,
        /// The folder of results
        #[arg(long, value_name = "FOLDER", default_value = "lab-results")]
        out: PathBuf,
    },
}

#[derive(Args, Debug)]
struct RunArguments {
    /// `all`, `figure` and a figure's number, an experiment's name, or files that end in .toml
    #[arg(required = true, value_name = "WHAT")]
    what: Vec<String>,
    /// The small form (default)
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// The large form
    #[arg(long)]
    full: bool,
    /// Measure again what is there already
    #[arg(long)]
    again: bool,
    /// Only on this ground: virtual time, or real processes [default: all that an experiment names]
    #[arg(long, value_name = "GROUND", value_parser = ground)]
    ground: Option<GroundName>,
    /// The folder of results
    #[arg(long, value_name = "FOLDER", default_value = "lab-results")]
    out: PathBuf,
}

/// An experiment and the text of its file.
type Chosen = (Experiment, String);

/// Runs `lab`.
pub fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    match arguments.command {
        Command::Run(arguments) => run_experiments(&arguments),
        Command::List => list(),
        Command::Report { full, out } => write_report(&out, full),
    }
}

fn built_in(found: Vec<(Experiment, &'static str)>) -> Vec<Chosen> {
    found.into_iter().map(|(experiment, text)| (experiment, text.to_owned())).collect()
}

fn choose(what: &[String]) -> Result<Vec<Chosen>, Failure> {
    let mut chosen: Vec<Chosen> = Vec::new();
    for word in what.iter().filter(|word| *word != "figure") {
        let found = if word == "all" {
            built_in(catalogue::all()?)
        } else if word.ends_with(".toml") {
            let text = std::fs::read_to_string(word).map_err(|error| format!("{word}: {error}"))?;
            vec![(experiment::parse(word, &text)?, text)]
        } else {
            built_in(catalogue::find(word)?)
        };
        for (experiment, text) in found {
            if !chosen.iter().any(|(other, _)| other.name == experiment.name) {
                chosen.push((experiment, text));
            }
        }
    }
    if chosen.is_empty() { Err("say what to run: all, figure and its number, an experiment's name or a file".into()) } else { Ok(chosen) }
}

/// The rows of the two forms do not mix.
fn folder_of(out: &Path, full: bool) -> PathBuf {
    out.join(if full { "full" } else { "quick" })
}

fn write(file: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(file, text).map_err(|error| format!("{}: {error}", file.display()))
}

fn draw(folder: &Path, chapter: &Chapter) -> Result<(), Failure> {
    for picture in report::pictures(chapter) {
        write(&folder.join(format!("{}.svg", picture.name)), &chart::svg(&picture)?)?;
        chart::png(&picture, &folder.join(format!("{}.png", picture.name)))?;
    }
    Ok(())
}

fn ground(word: &str) -> Result<GroundName, String> {
    let all = [GroundName::Virtual, GroundName::Processes];
    all.into_iter().find(|ground| ground.name() == word).ok_or_else(|| format!("the grounds are {}", all.map(GroundName::name).join(" and ")))
}

fn grounds(only: Option<GroundName>) -> Result<Vec<Box<dyn Ground>>, Failure> {
    let program = std::env::current_exe().map_err(|error| format!("this program's own file is not known: {error}"))?;
    let mut grounds: Vec<Box<dyn Ground>> = vec![Box::new(VirtualTime), Box::new(Processes::new(program))];
    grounds.retain(|ground| only.is_none_or(|only| only == ground.name()));
    Ok(grounds)
}

fn run_experiments(arguments: &RunArguments) -> Result<ExitCode, Failure> {
    let chosen = choose(&arguments.what)?;
    let folder = folder_of(&arguments.out, arguments.full);
    let progress = Progress::on_stderr();
    let mut grounds = grounds(arguments.ground)?;
    let mut failed = Vec::new();
    let count = chosen.len();
    for (number, (experiment, text)) in (1..).zip(chosen) {
        if count > 1 {
            eprintln!("{number} of {count}: {}", experiment.name);
        }
        let ran = run::run(
            &Run { experiment: &experiment, text: &text, full: arguments.full, again: arguments.again, folder: &folder },
            &mut grounds,
            &progress,
        )?;
        let chapter = Chapter { experiment, rows: ran.rows };
        draw(&folder, &chapter)?;
        output::text(&format!("{}\n", report::text(&chapter)));
        for ground in ran.skipped {
            output::text(&format!("{}: ground {} was not asked for\n", chapter.experiment.name, ground.name()));
        }
        let findings = expect::judge(&chapter.experiment, &chapter.rows);
        if findings.iter().any(|finding| matches!(finding.verdict, Verdict::Failed(_))) {
            failed.push(chapter.experiment.name);
        }
    }
    output::text(&format!("Rows and pictures are in {}; one page of everything: rheostat lab report\n", folder.display()));
    if failed.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    output::text(&format!("Expectations failed in {}\n", failed.join(", ")));
    Ok(ExitCode::FAILURE)
}

fn list() -> Result<ExitCode, Failure> {
    let mut table = Table::new(["experiment", "figures", "grounds", "what"]);
    for (experiment, _) in catalogue::all()? {
        let Experiment { name, figures, source, title, .. } = &experiment;
        let grounds: Vec<&str> = experiment.grounds.iter().map(|ground| ground.name()).collect();
        table.row([name.clone(), figures.join(" "), grounds.join(" "), format!("{source}: {title}")]);
    }
    table.print(0);
    Ok(ExitCode::SUCCESS)
}

/// The rows that were measured of the experiment as it is now, without measuring anything.
fn measured(folder: &Path, full: bool, chosen: Chosen) -> Result<Option<Chapter>, Failure> {
    let (experiment, text) = chosen;
    if !RowFile::path(folder, &experiment.name).exists() {
        return Ok(None);
    }
    let ran = run::run(&Run { experiment: &experiment, text: &text, full, again: false, folder }, &mut [], &Progress::hidden())?;
    Ok((!ran.rows.is_empty()).then_some(Chapter { experiment, rows: ran.rows }))
}

fn write_report(out: &Path, full: bool) -> Result<ExitCode, Failure> {
    let folder = folder_of(out, full);
    let mut chapters = Vec::new();
    for chosen in built_in(catalogue::all()?) {
        chapters.extend(measured(&folder, full, chosen)?);
    }
    if chapters.is_empty() {
        return Err(format!("nothing was measured in {} yet; first: rheostat lab run all", folder.display()));
    }
    chapters.iter().try_for_each(|chapter| draw(&folder, chapter))?;
    let file = folder.join("report.html");
    write(&file, &report::html(&chapters)?)?;
    output::text(&format!("{} with {} experiments\n", file.display(), chapters.len()));
    Ok(ExitCode::SUCCESS)
}
