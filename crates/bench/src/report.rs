//! What every result says beside its numbers, and its two forms: text for people, JSON for programs.

use serde::Serialize;
use std::path::Path;

/// A result that can be printed.
pub trait Report: Serialize {
    /// The result as aligned text, ended by a line feed.
    fn text(&self) -> String;
}

/// Where and how a result came about.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Environment {
    /// The command line, program name first. The caller removes passwords.
    pub command_line: Vec<String>,
    /// The commit the program was built from, if known.
    pub commit: Option<String>,
    /// Date and time, as the caller writes it.
    pub date: String,
    /// Number of cores this process may use; 0 if unknown.
    pub cores: usize,
    /// The processor's name, if known.
    pub processor: Option<String>,
    /// Operating system and kernel release.
    pub kernel: String,
    /// Whether this program was built with debug assertions, which makes its own part of every number too slow.
    pub debug_build: bool,
}

impl Environment {
    /// Reads what the machine says about itself, beside what the caller knows.
    pub fn read(command_line: Vec<String>, commit: Option<String>, date: String) -> Environment {
        let line = |path: &str| std::fs::read_to_string(Path::new(path)).ok();
        let release = line("/proc/sys/kernel/osrelease").map(|text| text.trim().to_owned());
        let processor = line("/proc/cpuinfo").and_then(|text| {
            let name = text.lines().find(|line| line.starts_with("model name"))?;
            Some(name.split_once(':')?.1.trim().to_owned())
        });
        Environment {
            command_line,
            commit,
            date,
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            processor,
            kernel: [Some(std::env::consts::OS.to_owned()), release].into_iter().flatten().collect::<Vec<_>>().join(" "),
            debug_build: cfg!(debug_assertions),
        }
    }

    /// A few lines for the head of a text result.
    pub fn text(&self) -> String {
        let commit = self.commit.as_deref().map(|commit| format!(", commit {commit}")).unwrap_or_default();
        let processor = self.processor.as_deref().unwrap_or("unknown processor");
        let warning = if self.debug_build { "warning: debug build; its numbers say little\n" } else { "" };
        format!("{}\n{}{commit}; {} cores, {processor}; {}\n{warning}", self.command_line.join(" "), self.date, self.cores, self.kernel)
    }
}

#[derive(Serialize)]
struct Whole<'a, R> {
    environment: &'a Environment,
    report: &'a R,
}

/// The result as indented JSON: `{"environment": ..., "report": ...}`, ended by a line feed.
pub fn json<R: Report>(environment: &Environment, report: &R) -> String {
    // Every report is a tree of structs, vectors and text-keyed maps, which always has a JSON form (numbers that are not finite become null).
    let text = serde_json::to_string_pretty(&Whole { environment, report });
    text.expect("reports have only text keys") + "\n"
}

/// The result as text, with the environment at its head.
pub fn text<R: Report>(environment: &Environment, report: &R) -> String {
    format!("{}\n{}", environment.text(), report.text())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize)]
    struct Answer {
        value: f64,
    }

    impl Report for Answer {
        fn text(&self) -> String {
            format!("value {}\n", self.value)
        }
    }

    fn environment() -> Environment {
        Environment {
            command_line: vec!["rheostat".to_owned(), "bench".to_owned()],
            commit: Some("abc1234".to_owned()),
            date: "2026-11-21".to_owned(),
            cores: 2,
            processor: None,
            kernel: "linux 6.1".to_owned(),
            debug_build: false,
        }
    }

    #[test]
    fn both_forms_carry_the_environment() {
        let answer = Answer { value: 42.5 };
        let wanted = "rheostat bench\n2026-11-21, commit abc1234; 2 cores, unknown processor; linux 6.1\n\nvalue 42.5\n";
        assert_eq!(text(&environment(), &answer), wanted);
        let parsed: serde_json::Value = serde_json::from_str(&json(&environment(), &answer)).unwrap();
        assert_eq!(parsed["environment"]["commit"], "abc1234");
        assert_eq!(parsed["environment"]["cores"], 2);
        assert_eq!(parsed["report"]["value"], 42.5);
    }

    #[test]
    fn a_debug_build_is_said() {
        let mut environment = environment();
        environment.debug_build = true;
        assert!(environment.text().contains("debug build"));
        let read = Environment::read(Vec::new(), None, String::new());
        assert!(read.kernel.starts_with(std::env::consts::OS));
    }
}
