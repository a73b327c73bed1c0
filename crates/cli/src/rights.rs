//! A counter's rights, drawn.

use crate::table::Table;
use rheostat_client::{CounterView, Rights, Standing};

/// Cells of a bar that stands for all rights together.
const BAR: u64 = 30;

/// `value 7, never below 0, never above 10; at most 12 ms stale`.
pub fn headline(view: &CounterView) -> String {
    let bounds = match (view.lower, view.upper) {
        (None, None) => ", without bounds".to_string(),
        (Some(lower), None) => format!(", never below {lower}"),
        (None, Some(upper)) => format!(", never above {upper}"),
        (Some(lower), Some(upper)) => format!(", never below {lower}, never above {upper}"),
    };
    let stale = view.staleness_ms.map_or("staleness not bounded".to_string(), |ms| format!("at most {ms} ms stale"));
    format!("value {}{bounds}; {stale}", view.value)
}

/// A line for each data center, in the order of their names: its rights as numbers and as bars, and its standing. Each line begins with `indent` blanks.
pub fn bars(view: &CounterView, indent: usize) -> String {
    let mut rights: Vec<&Rights> = view.rights.iter().collect();
    rights.sort_by(|a, b| a.data_center.cmp(&b.data_center));
    let down = view.lower.is_some().then(|| ("decrement", column(&rights, |rights| rights.down)));
    let up = view.upper.is_some().then(|| ("increment", column(&rights, |rights| rights.up)));
    let columns: Vec<_> = down.into_iter().chain(up).collect();
    let titles = columns.iter().flat_map(|(title, _)| ["may", title]);
    let mut table = Table::new(["data center"].into_iter().chain(titles).chain(["standing"]));
    for (index, rights) in rights.iter().enumerate() {
        let cells = columns.iter().flat_map(|(_, column)| {
            let (count, bar) = &column[index];
            [count.clone(), bar.clone()]
        });
        table.row([rights.data_center.clone()].into_iter().chain(cells).chain([standing(&rights.standing)]));
    }
    table.text(indent)
}

/// Numbers and bars; all bars together are [`BAR`] cells long, and what is not nothing has one at least.
fn column(rights: &[&Rights], of: impl Fn(&Rights) -> Option<u64>) -> Vec<(String, String)> {
    let counts: Vec<u64> = rights.iter().map(|rights| of(rights).unwrap_or(0)).collect();
    let all: u128 = counts.iter().map(|count| u128::from(*count)).sum();
    let cells = |count: u64| match count {
        0 => 0,
        count => ((u128::from(count) * u128::from(BAR) + all / 2) / all).max(1) as usize,
    };
    counts.into_iter().map(|count| (count.to_string(), "█".repeat(cells(count)))).collect()
}

fn standing(standing: &Standing) -> String {
    match standing {
        Standing::Member => String::new(),
        Standing::Reclaiming => "its rights are being reclaimed".to_string(),
        Standing::Reclaimed(by) => format!("its rights were reclaimed by {by}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rheostat_client::Level;

    fn view(lower: Option<i64>, upper: Option<i64>, rights: &[(&str, u64, Standing)]) -> CounterView {
        let rights = rights.iter().map(|(name, count, standing)| Rights {
            data_center: name.to_string(),
            down: lower.map(|_| *count),
            up: upper.map(|_| count / 2),
            standing: standing.clone(),
        });
        CounterView { value: 40, lower, upper, rights: rights.collect(), level: Level::Causal, staleness_ms: Some(12), achieved: None }
    }

    #[test]
    fn bars_are_in_proportion_and_nothing_is_no_bar() {
        let drawn =
            view(Some(0), None, &[("west", 10, Standing::Member), ("eu", 0, Standing::Reclaimed("west".into())), ("east", 30, Standing::Member)]);
        assert_eq!(headline(&drawn), "value 40, never below 0; at most 12 ms stale");
        let text = bars(&drawn, 2);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4);
        let length = |line: &str| line.matches('█').count();
        assert!(lines[1].starts_with("  east") && length(lines[1]) == 23, "{text}");
        assert!(lines[2].starts_with("  eu") && length(lines[2]) == 0 && lines[2].ends_with("its rights were reclaimed by west"), "{text}");
        assert!(lines[3].starts_with("  west") && length(lines[3]) == 8, "{text}");
    }

    #[test]
    fn rights_that_no_bound_limits_are_not_drawn() {
        let unbounded = view(None, None, &[("east", 0, Standing::Member)]);
        assert!(headline(&unbounded).contains("without bounds"));
        assert!(!bars(&unbounded, 0).contains("may"));
        let both = bars(&view(Some(0), Some(100), &[("east", u64::MAX, Standing::Member), ("eu", 1, Standing::Reclaiming)]), 0);
        assert_eq!(both.matches("may").count(), 2, "{both}");
        assert!(both.contains("being reclaimed"));
    }
}
