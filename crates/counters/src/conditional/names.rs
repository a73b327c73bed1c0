//! Which named updates have been made to a counter, kept in the counter's own value, so that one conditional write makes an update and remembers it.

use rheostat_core::counter::UpdateName;
use rheostat_core::wire_struct;

/// How many clients' last updates are kept.
pub const KEPT: usize = 64;

/// The named updates of the clients that made one last.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Names {
    /// How many named updates have been made in all.
    made: u64,
    /// Each client's last one, at most [`KEPT`], the one made last at the end.
    latest: Vec<Made>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Made {
    name: UpdateName,
    value: i64,
}

/// What is known of a named update.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Known {
    /// It has not been made.
    New,
    /// It was made; the counter's value after it.
    Made(i64),
    /// A later one of this client was made.
    Outdated,
    /// So many others were made since it was first tried that it would be forgotten if it had been made.
    Forgotten,
}

impl Names {
    /// How many named updates have been made in all.
    pub fn made(&self) -> u64 {
        self.made
    }

    /// What is known of update `name`, which was not made yet when `since` updates had been made; `None` if nobody knows when that was, and it counts as new when nothing is known of its client.
    pub fn look(&self, name: UpdateName, since: Option<u64>) -> Known {
        match self.latest.iter().find(|made| made.name.client == name.client) {
            Some(made) if made.name.number == name.number => Known::Made(made.value),
            Some(made) if made.name.number > name.number => Known::Outdated,
            Some(_) => Known::New,
            None if since.is_some_and(|since| self.made.saturating_sub(since) > KEPT as u64) => Known::Forgotten,
            None => Known::New,
        }
    }

    /// Update `name` is made, and `value` is the counter's value after it.
    pub fn record(&mut self, name: UpdateName, value: i64) {
        self.latest.retain(|made| made.name.client != name.client);
        if self.latest.len() >= KEPT {
            self.latest.remove(0);
        }
        self.latest.push(Made { name, value });
        self.made = self.made.saturating_add(1);
    }
}

wire_struct!(Made { name, value });
wire_struct!(Names { made, latest });

#[cfg(test)]
mod tests {
    use super::*;
    use rheostat_core::wire::Wire;

    fn name(client: u64, number: u64) -> UpdateName {
        UpdateName { client, number }
    }

    #[test]
    fn an_update_is_known_by_its_name_and_earlier_ones_are_outdated() {
        let mut names = Names::default();
        assert_eq!(names.look(name(1, 5), None), Known::New);
        names.record(name(1, 5), 42);
        assert_eq!(names.look(name(1, 5), None), Known::Made(42));
        assert_eq!(names.look(name(1, 4), None), Known::Outdated);
        assert_eq!(names.look(name(1, 6), None), Known::New);
        assert_eq!(names.look(name(2, 5), Some(0)), Known::New);
        assert_eq!(Names::from_bytes(&names.to_bytes()), Ok(names));
    }

    #[test]
    fn what_would_be_forgotten_is_not_taken_for_new() {
        let mut names = Names::default();
        names.record(name(0, 1), -1);
        let since = names.made();
        for client in 1..KEPT as u64 {
            names.record(name(client, 1), 0);
            assert_eq!(names.look(name(99, 1), Some(since)), Known::New);
            assert_eq!(names.look(name(0, 1), Some(0)), Known::Made(-1));
        }
        for client in [1000, 1001] {
            assert_eq!(names.look(name(99, 1), Some(since)), Known::New);
            names.record(name(client, 1), 0);
        }
        assert_eq!(names.look(name(99, 1), Some(since)), Known::Forgotten);
        assert_eq!(names.look(name(0, 1), Some(0)), Known::Forgotten);
        assert_eq!(names.look(name(0, 1), None), Known::New);
    }
}
