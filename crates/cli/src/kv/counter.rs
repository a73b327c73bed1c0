//! `rheostat kv counter`.

use crate::output::{self, say};
use crate::rights;
use clap::{Args, Subcommand};
use rheostat_client::{Direction, Error, NewCounter, Scope, Session};

const EXAMPLES: &str = "\
Examples:
  rheostat kv counter create stock --min 0 --value 1000      1000 pieces, never less than none, in any data center
  rheostat kv counter add stock -3                           take three, with the rights of this data center
  rheostat kv counter add stock -3 --global                  and fetch those that are missing from the others
  rheostat kv counter add {cart}a 1 {cart}b -1               both or neither
  rheostat kv counter look stock
  rheostat kv counter move stock eu 100 down                 let eu take 100 more, and this data center 100 less
  rheostat kv counter transfer {bank}alice {bank}bob 20

ctl counter draws the rights as every data center sees them, and reclaims those of one that is gone for ever.";

/// Arguments of `kv counter`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    #[command(subcommand)]
    operation: Operation,
}

#[derive(Subcommand, Debug)]
enum Operation {
    /// Make a counter
    Create {
        /// Its key
        key: String,
        /// It is never below this
        #[arg(long, value_name = "N", allow_negative_numbers = true)]
        min: Option<i64>,
        /// It is never above this
        #[arg(long, value_name = "N", allow_negative_numbers = true)]
        max: Option<i64>,
        /// Its value at first
        #[arg(long, value_name = "N", default_value = "0", allow_negative_numbers = true)]
        value: i64,
        /// Each data center's weight in the placement of the rights, in their order [default: the same]
        #[arg(long, value_name = "WEIGHTS", value_delimiter = ',')]
        place: Vec<u32>,
    },
    /// Add to counters, to all or to none; print the values afterwards
    Add {
        /// A key and what is added to it (less than 0 decrements), and so on
        #[arg(required = true, num_args = 2.., value_names = ["KEY", "DELTA"], allow_negative_numbers = true)]
        pairs: Vec<String>,
        /// Fetch rights that are missing from other data centers
        #[arg(long)]
        global: bool,
    },
    /// Print a counter as it is known here
    Look {
        /// Its key
        key: String,
    },
    /// Move rights of this data center to another one
    Move {
        /// The counter's key
        key: String,
        /// Who gets them
        data_center: String,
        /// How many
        amount: u64,
        /// Which: down (to decrement) or up (to increment)
        #[arg(value_parser = direction)]
        direction: Direction,
    },
    /// Take an amount from one counter and add it to another; print both values afterwards
    Transfer {
        /// The counter that is decremented
        from: String,
        /// The counter that is incremented
        to: String,
        /// By how much
        #[arg(value_parser = clap::value_parser!(i64).range(1..))]
        amount: i64,
        /// Fetch rights that are missing from other data centers
        #[arg(long)]
        global: bool,
    },
}

fn direction(name: &str) -> Result<Direction, String> {
    Direction::from_name(name).ok_or_else(|| "the directions are: down, up".to_string())
}

fn scope(global: bool) -> Scope {
    if global { Scope::Global } else { Scope::Local }
}

/// Keys with what is added to them.
fn additions(pairs: &[String]) -> Result<Vec<(String, i64)>, Error> {
    if !pairs.len().is_multiple_of(2) {
        return Err(Error::Refused(format!("{} has nothing that is added to it", pairs.last().map_or("", String::as_str))));
    }
    let delta = |text: &str| text.parse::<i64>().map_err(|_| Error::Refused(format!("`{text}` cannot be added: it is not an integer of 64 bits")));
    pairs.chunks_exact(2).map(|pair| Ok((pair[0].clone(), delta(&pair[1])?))).collect()
}

/// Runs `kv counter`.
pub async fn run(arguments: &Arguments, session: &mut Session) -> Result<(), Error> {
    let view = match &arguments.operation {
        Operation::Create { key, min, max, value, place } => {
            let counter = NewCounter { lower: *min, upper: *max, initial: *value, placement: place.clone() };
            session.counter(key.clone()).create(counter).await?
        }
        Operation::Look { key } => session.counter(key.clone()).look().await?,
        Operation::Move { key, data_center, amount, direction } => {
            session.counter(key.clone()).move_rights(data_center.clone(), *direction, *amount).await?
        }
        Operation::Add { pairs, global } => {
            let additions = additions(pairs)?;
            let keys: Vec<String> = additions.iter().map(|(key, _)| key.clone()).collect();
            let added = session.add_all(additions, scope(*global)).await?;
            keys.iter().zip(&added.values).for_each(|(key, value)| say!("{key}: {value}"));
            return Ok(());
        }
        Operation::Transfer { from, to, amount, global } => {
            let added = session.add_all([(from.clone(), -amount), (to.clone(), *amount)], scope(*global)).await?;
            [from, to].into_iter().zip(&added.values).for_each(|(key, value)| say!("{key}: {value}"));
            return Ok(());
        }
    };
    say!("{}", rights::headline(&view));
    output::text(&rights::bars(&view, 2));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_keys_and_numbers() {
        let of = |words: &[&str]| additions(&words.iter().map(|word| word.to_string()).collect::<Vec<_>>());
        assert_eq!(of(&["a", "-1", "b", "2"]), Ok(vec![("a".to_string(), -1), ("b".to_string(), 2)]));
        assert!(of(&["a", "1", "b"]).unwrap_err().to_string().contains("b has nothing"));
        assert!(of(&["a", "x"]).unwrap_err().to_string().contains("`x` cannot be added"));
    }
}
