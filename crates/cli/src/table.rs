//! Tables of text.

use crate::output;
use crate::paint::Paint;

/// Rows of cells, printed with columns aligned.
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these titles.
    pub fn new<T: Into<String>>(titles: impl IntoIterator<Item = T>) -> Table {
        Table { rows: vec![titles.into_iter().map(Into::into).collect()] }
    }

    /// Adds a row.
    pub fn row<T: Into<String>>(&mut self, cells: impl IntoIterator<Item = T>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// Whether there are no rows but the titles.
    pub fn is_empty(&self) -> bool {
        self.rows.len() == 1
    }

    /// The table, each line with `indent` blanks in front. Columns of numbers are aligned to the right.
    pub fn text(&self, indent: usize) -> String {
        self.painted(indent, Paint::PLAIN)
    }

    /// Prints it, the titles as standard output shows titles.
    pub fn print(&self, indent: usize) {
        output::text(&self.painted(indent, Paint::of_output()));
    }

    /// As [`Table::text`], with titles that are seen as such.
    pub fn painted(&self, indent: usize, paint: Paint) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let cell = |row: &Vec<String>, column: usize| row.get(column).cloned().unwrap_or_default();
        let widths: Vec<usize> =
            (0..columns).map(|column| self.rows.iter().map(|row| cell(row, column).chars().count()).max().unwrap_or(0)).collect();
        let numeric: Vec<bool> = (0..columns)
            .map(|column| {
                !self.is_empty()
                    && self.rows[1..].iter().all(|row| cell(row, column).starts_with(|first: char| first.is_ascii_digit() || first == '-'))
            })
            .collect();
        let mut out = String::new();
        for (index, row) in self.rows.iter().enumerate() {
            let mut line = String::new();
            for column in 0..columns {
                let text = cell(row, column);
                let fill = " ".repeat(widths[column] - text.chars().count());
                line.push_str(&if numeric[column] { fill + &text } else { text + &fill });
                line.push_str("  ");
            }
            let line = line.trim_end();
            if !line.is_empty() {
                out.push_str(&" ".repeat(indent));
                out.push_str(&if index == 0 { paint.title(line) } else { line.to_string() });
            }
            out.push('\n');
        }
        out
    }
}

/// `bytes` with a unit that fits.
pub fn bytes(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", units[unit]) }
}

/// So many of what `one` is: `1 key`, `2 keys`.
pub fn count(number: u64, one: &str) -> String {
    let s = if number == 1 { "" } else { "s" };
    format!("{number} {one}{s}")
}

/// A key or value as text; what is not printable is escaped.
pub fn printable(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.chars().any(char::is_control) => text.to_string(),
        _ => bytes.escape_ascii().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let mut table = Table::new(["name", "keys", "note"]);
        table.row(["a", "5", ""]);
        table.row(["long name", "1234", "x"]);
        assert_eq!(table.text(1), " name       keys  note\n a             5\n long name  1234  x\n");
        assert_eq!(table.painted(1, Paint::shown()), " \x1b[1mname       keys  note\x1b[0m\n a             5\n long name  1234  x\n");
    }

    #[test]
    fn one_is_not_several() {
        assert_eq!([0, 1, 2].map(|number| count(number, "key")), ["0 keys", "1 key", "2 keys"]);
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(u64::MAX), "16777216.0 TiB");
    }
}
