//! `rheostat lab`.

use crate::signal::Stop;
use crate::table::Table;
use crate::{Failure, output};
use clap::{Args, Subcommand};
use rheostat_bench::Progress;
use rheostat_lab::expect::{self, Finding, Verdict};
use rheostat_lab::experiment::{self, Experiment, GroundName};
use rheostat_lab::ground::{Ground, Interrupt, Processes, VirtualTime};
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
  rheostat lab report                     one page with the pictures, tables and findings of all built-in experiments

A run that is stopped goes on where it was. The exit code is 1 when something that must hold does not, or was not
measured although its ground was run.";

/// The usual folder of results.
const RESULTS: &str = "lab-results";

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
    /// Write the report of the built-in experiments that were measured
    Report {
        /// Of the large form instead of the small one
        #[arg(long)]
        full: bool,
        /// The folder of results
        #[arg(long, value_name = "FOLDER", default_value = RESULTS)]
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
    #[arg(long, value_name = "FOLDER", default_value = RESULTS)]
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
            match chosen.iter().find(|(other, _)| other.name == experiment.name) {
                None => chosen.push((experiment, text)),
                Some((_, known)) if *known == text => {}
                // Rows and pictures are by name.
                Some(_) => return Err(format!("{word}: another experiment has the same name, {}; give one of them another", experiment.name)),
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

/// Ctrl-C and SIGTERM end a cluster and its folder; where there is none they end this process, and so does the second of them.
fn listening() -> Result<Interrupt, Failure> {
    let interrupt = Interrupt::default();
    let told = interrupt.clone();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| format!("no runtime: {error}"))?;
    let mut stop = runtime.block_on(async { Stop::listen() }).map_err(|error| format!("signals cannot be heard: {error}"))?;
    std::thread::spawn(move || {
        runtime.block_on(async {
            stop.heard().await;
            if told.ask() {
                stop.heard().await;
            }
        });
        std::process::exit(130);
    });
    Ok(interrupt)
}

fn grounds(only: Option<GroundName>) -> Result<Vec<Box<dyn Ground>>, Failure> {
    let program = std::env::current_exe().map_err(|error| format!("this program's own file is not known: {error}"))?;
    let mut grounds: Vec<Box<dyn Ground>> = vec![Box::new(VirtualTime), Box::new(Processes::new(program, listening()?))];
    grounds.retain(|ground| only.is_none_or(|only| only == ground.name()));
    Ok(grounds)
}

fn run_experiments(arguments: &RunArguments) -> Result<ExitCode, Failure> {
    let chosen = choose(&arguments.what)?;
    let folder = folder_of(&arguments.out, arguments.full);
    let progress = Progress::on_stderr();
    let mut grounds = grounds(arguments.ground)?;
    let (mut failed, mut unknown) = (Vec::new(), Vec::new());
    let count = chosen.len();
    let reported = chosen.iter().any(|(experiment, _)| catalogue::FILES.iter().any(|file| file.name == format!("{}.toml", experiment.name)));
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
        for ground in &ran.skipped {
            output::text(&format!("{}: ground {} was not asked for\n", chapter.experiment.name, ground.name()));
        }
        let findings = expect::judge(&chapter.experiment, &chapter.rows);
        if findings.iter().any(|finding| finding.verdict == Verdict::NotMeasured && was_run(finding, &ran.skipped)) {
            unknown.push(chapter.experiment.name.clone());
        }
        if findings.iter().any(|finding| matches!(finding.verdict, Verdict::Failed(_))) {
            failed.push(chapter.experiment.name);
        }
    }
    let report = if reported { format!("; one page of all built-in experiments: {}", report_command(arguments)) } else { String::new() };
    output::text(&format!("Rows and pictures are in {}{report}\n", folder.display()));
    for (names, what) in [(&failed, "Expectations failed in"), (&unknown, "Expectations are of what is not measured in")] {
        if !names.is_empty() {
            output::text(&format!("{what} {}\n", names.join(", ")));
        }
    }
    Ok(if failed.is_empty() && unknown.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Whether all that an expectation needs was run, where `skipped` was not.
fn was_run(finding: &Finding, skipped: &[GroundName]) -> bool {
    finding.ground.map_or(skipped.is_empty(), |ground| !skipped.contains(&ground))
}

/// The command that writes the report of what `arguments` measure.
fn report_command(arguments: &RunArguments) -> String {
    let full = if arguments.full { " --full" } else { "" };
    let out = if arguments.out == Path::new(RESULTS) { String::new() } else { format!(" --out {}", arguments.out.display()) };
    format!("rheostat lab report{full}{out}")
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
        return Err(format!("nothing was measured of the built-in experiments in {} yet; first: rheostat lab run all", folder.display()));
    }
    chapters.iter().try_for_each(|chapter| draw(&folder, chapter))?;
    let file = folder.join("report.html");
    write(&file, &report::html(&chapters)?)?;
    output::text(&format!("{} with {} experiments\n", file.display(), chapters.len()));
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_experiments_of_one_name_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (_, text) = catalogue::find("amplified-skew").unwrap().remove(0);
        let file = |name: &str, text: &str| {
            let file = folder.path().join(name);
            std::fs::write(&file, text).unwrap();
            file.display().to_string()
        };
        let (one, same, other) = (file("one.toml", text), file("same.toml", text), file("other.toml", &format!("{text}\n# Another one.\n")));
        assert_eq!(choose(&[one.clone(), same]).unwrap().len(), 1);
        let error = choose(&[one, other.clone()]).unwrap_err();
        assert!(error.starts_with(&other) && error.contains("the same name, amplified-skew"), "{error}");
    }

    #[test]
    fn an_expectation_between_grounds_needs_both() {
        let (experiment, _) = catalogue::all().unwrap().into_iter().find(|(experiment, _)| experiment.grounds.len() > 1).unwrap();
        let mut finding = expect::judge(&experiment, &[]).remove(0);
        finding.ground = None;
        assert!(was_run(&finding, &[]) && !was_run(&finding, &[GroundName::Processes]));
        finding.ground = Some(GroundName::Virtual);
        assert!(was_run(&finding, &[GroundName::Processes]) && !was_run(&finding, &[GroundName::Virtual]));
    }
}
