//! `rheostat completions`, `rheostat man` and `rheostat monitoring`: files for packages, made from what the program knows of itself.

use crate::{Failure, output};
use clap::{Args, Command};
use clap_complete::Shell;
use clap_mangen::Man;
use output::say;
use rheostat_server::monitoring;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  rheostat completions bash > ~/.local/share/bash-completion/completions/rheostat
  rheostat completions zsh > \"${fpath[1]}/_rheostat\"
  rheostat completions fish > ~/.config/fish/completions/rheostat.fish";

/// Arguments of `completions`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Completions {
    /// The shell
    shell: Shell,
}

/// Arguments of `man` and of `monitoring`.
#[derive(Args, Debug)]
pub struct Folder {
    /// The folder; it is made if it is not there
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

/// Prints the completions of `command` for a shell.
pub fn completions(arguments: &Completions, mut command: Command) -> Result<ExitCode, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, "rheostat", &mut script);
    output::text(&String::from_utf8_lossy(&script));
    Ok(ExitCode::SUCCESS)
}

/// Writes a man page of `command` and of each command below it.
pub fn man(arguments: &Folder, command: Command) -> Result<ExitCode, Failure> {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let mut pages = Vec::new();
    write_pages(command, &mut pages).map_err(|error| format!("a man page cannot be made: {error}"))?;
    write(&arguments.folder, &pages)
}

/// Writes the Grafana dashboard and the Prometheus rules.
pub fn monitoring(arguments: &Folder) -> Result<ExitCode, Failure> {
    let files = monitoring::files().map(|(name, text)| (name.to_string(), text.into_bytes()));
    write(&arguments.folder, &files)
}

fn write(folder: &Path, files: &[(String, Vec<u8>)]) -> Result<ExitCode, Failure> {
    std::fs::create_dir_all(folder).map_err(|error| format!("{}: cannot be made: {error}", folder.display()))?;
    for (name, bytes) in files {
        let path = folder.join(name);
        std::fs::write(&path, bytes).map_err(|error| format!("{}: cannot be written: {error}", path.display()))?;
    }
    say!("{}: {} files", folder.display(), files.len());
    Ok(ExitCode::SUCCESS)
}

fn write_pages(command: Command, pages: &mut Vec<(String, Vec<u8>)>) -> std::io::Result<()> {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        write_pages(below.clone(), pages)?;
    }
    // Its lines are examples with columns of their own, which the library would join into one paragraph.
    let after = command.get_after_help().map(ToString::to_string);
    let man = Man::new(command.after_help(None::<&str>)).source(concat!("rheostat ", env!("CARGO_PKG_VERSION"))).manual("Rheostat");
    let mut page = Vec::new();
    man.render(&mut page)?;
    if let Some(after) = after {
        page.extend_from_slice(examples(&after).as_bytes());
    }
    pages.push((man.get_filename(), page));
    Ok(())
}

/// A section with these lines as they are.
fn examples(text: &str) -> String {
    let mut out = String::from(".SH EXAMPLES\n.nf\n");
    for line in text.strip_prefix("Examples:\n").unwrap_or(text).lines() {
        let line = line.strip_prefix("  ").unwrap_or(line).replace('\\', "\\e").replace('-', "\\-");
        // A dot or an apostrophe at a line's beginning would be a request.
        let guard = if line.starts_with(['.', '\'']) { "\\&" } else { "" };
        out.push_str(&format!("{guard}{line}\n"));
    }
    out + ".fi\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    /// Every command with its path, as in `rheostat/ctl/status`.
    fn commands(command: &Command, path: &str, found: &mut Vec<(String, Command)>) {
        found.push((path.to_string(), command.clone()));
        for below in command.get_subcommands().filter(|below| !below.is_hide_set() && below.get_name() != "help") {
            commands(below, &format!("{path}/{}", below.get_name()), found);
        }
    }

    fn all() -> Vec<(String, Command)> {
        let mut command = crate::Arguments::command();
        command.build();
        let mut found = Vec::new();
        commands(&command, "rheostat", &mut found);
        found
    }

    fn options(command: &Command) -> impl Iterator<Item = &str> {
        command.get_arguments().filter(|argument| !argument.is_hide_set()).filter_map(|argument| argument.get_long())
    }

    #[test]
    fn each_command_has_a_page_that_names_its_options_and_examples() {
        let folder = tempfile::tempdir().unwrap();
        let into = Folder { folder: folder.path().join("new") };
        man(&into, crate::Arguments::command()).unwrap();
        let all = all();
        assert_eq!(std::fs::read_dir(&into.folder).unwrap().count(), all.len());
        assert!(all.len() > 40, "{} commands", all.len());
        for (path, command) in &all {
            let path = path.replace('/', "-");
            let page = std::fs::read_to_string(into.folder.join(format!("{path}.1"))).unwrap_or_else(|error| panic!("{path}.1: {error}"));
            for option in options(command) {
                assert!(page.contains(&format!("\\-\\-{}", option.replace('-', "\\-"))), "{path}.1 lacks --{option}");
            }
            assert_eq!(page.contains(".SH EXAMPLES"), command.get_after_help().is_some(), "{path}.1");
            assert!(!page.contains(".SH EXTRA"), "{path}.1");
        }
    }

    #[test]
    fn completions_name_every_command_and_option() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut crate::Arguments::command(), "rheostat", &mut script);
            let script = String::from_utf8(script).unwrap();
            for (path, command) in all() {
                let name = path.rsplit_once('/').map_or("rheostat", |_| command.get_name());
                assert!(script.contains(name), "{shell}: {name}");
                // clap_complete's completions for fish end at the second level: `ctl monitor add` is completed, its options are not.
                let third = path.matches('/').count() > 2 && shell == Shell::Fish;
                for option in options(&command).filter(|_| !third) {
                    assert!(script.contains(option), "{shell}: {path} --{option}");
                }
            }
        }
    }

    #[test]
    fn lines_of_examples_stay_lines_and_are_no_requests() {
        assert_eq!(examples("Examples:\n  a --b\n.c \\d\n'e"), ".SH EXAMPLES\n.nf\na \\-\\-b\n\\&.c \\ed\n\\&'e\n.fi\n");
    }
}
