//! Colours, where they are seen.

use anstyle::{AnsiColor, Style};

/// Whether colours are shown. What they say is in the words, too.
#[derive(Clone, Copy, Debug)]
pub struct Paint(bool);

impl Paint {
    /// Text as it is, for files, programs and tests.
    pub const PLAIN: Paint = Paint(false);

    /// As standard output is: colours on a terminal, unless NO_COLOR is set or TERM says that it has none; elsewhere where CLICOLOR_FORCE asks for them.
    pub fn of_output() -> Paint {
        Paint(anstream::AutoStream::choice(&std::io::stdout()) != anstream::ColorChoice::Never)
    }

    /// As standard error is; see [`Paint::of_output`].
    pub fn of_errors() -> Paint {
        Paint(anstream::AutoStream::choice(&std::io::stderr()) != anstream::ColorChoice::Never)
    }

    /// What is as it should be.
    pub fn good(self, text: &str) -> String {
        self.styled(AnsiColor::Green.on_default(), text)
    }

    /// What somebody should look at now.
    pub fn grave(self, text: &str) -> String {
        self.styled(AnsiColor::Red.on_default().bold(), text)
    }

    /// What somebody should look at some time.
    pub fn mild(self, text: &str) -> String {
        self.styled(AnsiColor::Yellow.on_default(), text)
    }

    /// The titles of a table.
    pub fn title(self, text: &str) -> String {
        self.styled(Style::new().bold(), text)
    }

    fn styled(self, style: Style, text: &str) -> String {
        if self.0 { format!("{style}{text}{style:#}") } else { text.to_string() }
    }

    /// As on a terminal that shows colours.
    #[cfg(test)]
    pub const fn shown() -> Paint {
        Paint(true)
    }
}
