//! Aligned text tables.

/// A table with a header. The first column is aligned to the left, the others to the right.
#[derive(Clone, Debug)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these column titles.
    pub fn new<const COLUMNS: usize>(titles: [&str; COLUMNS]) -> Table {
        Table::with_titles(titles.iter().map(|title| (*title).to_owned()).collect())
    }

    /// A table with column titles that are only known when it is made.
    pub fn with_titles(titles: Vec<String>) -> Table {
        Table { rows: vec![titles] }
    }

    /// Adds a row. A row may be shorter than the header.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// The table as lines, each ended by a line feed, without spaces at the end.
    pub fn render(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                if column == 0 {
                    line.push_str(&format!("{cell:<width$}"));
                } else {
                    line.push_str(&format!("  {cell:>width$}"));
                }
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// A rate per second: `81234`, or `1.23 M` from a million on.
pub fn rate(per_second: f64) -> String {
    if per_second >= 1e6 { format!("{:.2} M", per_second / 1e6) } else { format!("{per_second:.0}") }
}

/// A duration in microseconds as text with a unit: `85.1 us`, `12.3 ms`, `1.20 s`.
pub fn duration_us(us: f64) -> String {
    match us.abs() {
        size if size < 1_000.0 => format!("{us:.1} us"),
        size if size < 1_000_000.0 => format!("{:.2} ms", us / 1e3),
        _ => format!("{:.2} s", us / 1e6),
    }
}

/// Median of `values`: the mean of the middle two if their number is even; `None` if there are none.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        length if length % 2 == 1 => Some(sorted[middle]),
        _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
    }
}

/// Smallest and largest of `values`; `None` if there are none.
pub fn spread(values: &[f64]) -> Option<(f64, f64)> {
    let smallest = values.iter().copied().min_by(f64::total_cmp)?;
    let largest = values.iter().copied().max_by(f64::total_cmp)?;
    Some((smallest, largest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(["operation", "count", "p50"]);
        table.row(["READ".to_owned(), "12".to_owned(), "85.1 us".to_owned()]);
        table.row(["UPDATE".to_owned(), "1234567".to_owned()]);
        assert_eq!(table.render(), "operation    count      p50\nREAD            12  85.1 us\nUPDATE     1234567\n");
    }

    #[test]
    fn numbers_have_units() {
        assert_eq!(rate(81_234.4), "81234");
        assert_eq!(rate(1_234_567.0), "1.23 M");
        assert_eq!(duration_us(85.12), "85.1 us");
        assert_eq!(duration_us(-1500.0), "-1.50 ms");
        assert_eq!(duration_us(2_000_000.0), "2.00 s");
    }

    #[test]
    fn medians_and_spreads() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(spread(&[2.0, 1.0, 3.0]), Some((1.0, 3.0)));
        assert_eq!(spread(&[]), None);
    }
}
