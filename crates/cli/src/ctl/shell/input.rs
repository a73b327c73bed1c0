//! Where lines come from: a line editor with history at a terminal, else standard input as it is.

use crate::Failure;
use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{Config, Editor};
use std::io::{BufRead, IsTerminal};
use std::path::PathBuf;

/// Lines that history keeps.
const HISTORY_LINES: usize = 1000;

type LineEditor = Editor<(), FileHistory>;

/// Lines, one after another.
pub struct Input {
    /// Absent where input is no terminal.
    editor: Option<LineEditor>,
    number: usize,
}

/// Where history is kept: `RHEOSTAT_HISTORY`, else among the user's state; `None` if there is no place.
fn history_file() -> Option<PathBuf> {
    if let Some(given) = std::env::var_os("RHEOSTAT_HISTORY") {
        return (!given.is_empty()).then(|| given.into());
    }
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let folder = state.or_else(|| std::env::home_dir().map(|home| home.join(".local/state")))?.join("rheostat");
    // Without it there is no history, and nothing else is amiss.
    std::fs::create_dir_all(&folder).ok()?;
    Some(folder.join("history"))
}

impl Input {
    /// Standard input.
    pub fn open() -> Input {
        let terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
        let config = Config::builder().max_history_size(HISTORY_LINES).map(|config| config.auto_add_history(true).build());
        let editor = match (terminal, config) {
            (true, Ok(config)) => LineEditor::with_config(config).ok(),
            _ => None,
        };
        let mut input = Input { editor, number: 0 };
        if let (Some(editor), Some(file)) = (&mut input.editor, history_file()) {
            // There may be none yet.
            let _ = editor.load_history(&file);
        }
        input
    }

    /// Whether somebody sits there.
    pub fn is_terminal(&self) -> bool {
        self.editor.is_some()
    }

    /// The number of the last line, from 1.
    pub fn number(&self) -> usize {
        self.number
    }

    /// The next line; `None` at the end. While it is waited for, connections are served. Errors: input cannot be read.
    pub async fn line(&mut self, prompt: String) -> Result<Option<String>, Failure> {
        self.number += 1;
        let mut editor = self.editor.take();
        let read = move || {
            let line = match &mut editor {
                Some(editor) => edited(editor, &prompt),
                None => plain(),
            };
            (editor, line)
        };
        let (editor, line) = tokio::task::spawn_blocking(read).await.map_err(|error| error.to_string())?;
        self.editor = editor;
        line
    }
}

fn edited(editor: &mut LineEditor, prompt: &str) -> Result<Option<String>, Failure> {
    loop {
        match editor.readline(prompt) {
            Ok(line) => {
                if let Some(file) = history_file() {
                    // Without a place for it there is no history.
                    let _ = editor.append_history(&file);
                }
                return Ok(Some(line));
            }
            // Ctrl-C forgets the line.
            Err(ReadlineError::Interrupted) => {}
            Err(ReadlineError::Eof) => return Ok(None),
            Err(error) => return Err(format!("input cannot be read: {error}")),
        }
    }
}

fn plain() -> Result<Option<String>, Failure> {
    let mut line = String::new();
    match std::io::stdin().lock().read_line(&mut line) {
        Ok(0) => Ok(None),
        Ok(_) => Ok(Some(line)),
        Err(error) => Err(format!("input cannot be read: {error}")),
    }
}
